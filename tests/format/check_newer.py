#!/usr/bin/env python3
"""Files that a later release 1.x might write: unknown features, ancillary records, a critical extension. The tool reads all that it
can, names the rest, and calls none of it damaged. And a delta against 300 files.

    check_newer.py TOOL DIRECTORY"""
import os
import random
import struct
import subprocess
import sys

import decoder
from decoder import le64, u32, u48, u64, xxh3
from generate import ancillary

tool, directory = os.path.abspath(sys.argv[1]), sys.argv[2]
os.makedirs(directory, exist_ok=True)
os.chdir(directory)
rng = random.Random(1)
failed = 0


def report(good, name, why=""):
    global failed
    failed |= not good
    print("ok - newer: " + name if good else "not ok - newer: %s: %s" % (name, why))


def write(name, data):
    with open(name, "wb") as f:
        f.write(data)


def read(name):
    with open(name, "rb") as f:
        return f.read()


def run(*arguments):
    """The exit status and the output"""
    done = subprocess.run([tool, *arguments], capture_output=True, timeout=60)
    return done.returncode, done.stderr.decode()


def safetensors(tensors):
    """tensors: (name, dtype, bytes of an element, data)"""
    text, at = [], 0
    for name, dtype, width, data in tensors:
        text.append('"%s":{"dtype":"%s","shape":[%d],"data_offsets":[%d,%d]}' % (name, dtype, len(data) // width, at, at + len(data)))
        at += len(data)
    text = ("{" + ",".join(text) + "}").encode()
    return le64(len(text)) + text + b"".join(data for *_, data in tensors)


tensors = [("a", "F32", 4, rng.randbytes(4000)), ("b", "I16", 2, rng.randbytes(200000)), ("c", "F32", 4, rng.randbytes(4)), ("d", "BOOL", 1, bytes(99))]
source = safetensors(tensors)
write("model", source)
assert run("compress", "-q", "-f", "-o", "model.bsnap", "model")[0] == 0
packed = read("model.bsnap")
end = len(packed) - u64(packed, len(packed) - 24)
places = [u48(packed, end + decoder.END_PREFIX + decoder.RECORD_ENTRY * i + 6) for i in range(u64(packed, end + 16))] + [end]
records = [packed[i:j] for i, j in zip(places, places[1:])]
assert len(records) == 5


def build(parts=records, header=b"", features=(0, 0), between=lambda: b""):
    """header: other bytes from byte 8 of the file header on; between: what lies before each record and before the end record"""
    head = bytearray(decoder.encode_file_header(1, u64(source, 0), len(source), *features)[:32])
    head[8:8 + len(header)] = header
    data = bytes(head) + le64(xxh3(bytes(head)))
    check, entries, begin = data[32:], [], 8
    for part in parts:
        frame = part[:4] == decoder.MAGIC # all have a footer here
        entries.append((begin, len(data), u64(part, len(part) - (12 if frame else 8))))
        begin += u64(part, 8) * decoder.DTYPES[part[5]].width if frame else u32(part, 4)
        data += between() + part
    at = len(data)
    return data + between() + decoder.encode_end_record(check, len(source), entries, [], at, bytes(head[24:32]))


def whole(data, name):
    """The problem, or None if all readers read all of it"""
    write("x.bsnap", data)
    if run("test", "-q", "x.bsnap")[0] or run("decompress", "-q", "-f", "-o", "back", "x.bsnap")[0] or read("back") != source:
        return "%s: %s" % (name, run("test", "x.bsnap")[1])
    if run("info", "-q", "x.bsnap")[0] or run("info", "--json", "--no-bound", "x.bsnap")[0]:
        return name + ": info"
    return next((name + ": extract " + title for title, _, _, content in tensors if taken("x.bsnap", title) != content), None)


def taken(file, title):
    status, said = run("extract", "-f", "--raw", "-o", "one", file, title)
    return said if status else read("one")


def some_ancillary():
    return b"".join(rng.choice((ancillary(0, bytes(rng.randint(0, 5000))), ancillary(rng.randint(1, 63), rng.randbytes(rng.randint(0, 300))),
                                ancillary(rng.randint(64, 127), rng.randbytes(90)))) for _ in range(rng.randint(0, 3)))


problem = whole(build(), "as it is") or (build() != packed and "another file than the tool's")
for bit in (2, 3, 17, 31):
    problem = problem or whole(build(features=(0, 1 << bit)), "compatible feature %d" % bit)
for i in range(5):
    problem = problem or whole(build(between=some_ancillary), "ancillary records")
report(not problem, "compatible features and ancillary records are passed over", problem)


def is_new(data, name):
    """The problem, or None if the message says that a newer bitsnap made the file"""
    write("x.bsnap", data)
    for command in (("test", "-q"), ("decompress", "-q", "-f", "-o", "back"), ("info", "-q"), ("extract", "-f", "--raw", "-o", "one")):
        status, said = run(*command, "x.bsnap", *(["b"] if command[0] == "extract" else []))
        if status != 1 or "newer bitsnap" not in said or "damage" in said or "copy" in said:
            return "%s: %s: %s" % (name, command[0], said)
    return None


problem = None
for bit in (1, 2, 12, 31):
    problem = problem or is_new(build(features=(1 << bit, 0)), "incompatible feature %d" % bit)
    problem = problem or (("%08X" % (1 << bit)) not in run("test", "x.bsnap")[1] and "bit %d is not named" % bit)
for header in (b"\2", b"\1\3", b"\1\1\1", b"\1\1\0\1"):
    problem = problem or is_new(build(header=header), "file header %s" % header.hex())
problem = problem or is_new(build(between=lambda: ancillary(128, b"")), "a reserved record")
report(not problem, "what cannot be read is called new, not damaged", problem)

# a frame with a critical extension that is unknown: only its elements are lost. These bytes are extensions with sizes of one byte and of two
frame = max(records, key=len)
header = frame[:7] + bytes([frame[7] | 0x80]) + frame[8:16] + bytes([7, 0, 190, 0, 0, 1, 1, 0, 0])
new = header + le64(xxh3(header)) + frame[24:]
lost = tensors[[part for part in records if part[:4] == decoder.MAGIC].index(frame)][0]
write("x.bsnap", build([new if part == frame else part for part in records]))
problem = next(("%s: %r" % (title, taken("x.bsnap", title)) for title, _, _, content in tensors if title != lost and taken("x.bsnap", title) != content), None)
for command in (("test", "-q"), ("extract", "-f", "--raw", "-o", "one")):
    status, said = run(*command, "x.bsnap", *([lost] if command[0] == "extract" else []))
    problem = problem or ((status != 1 or "newer bitsnap" not in said or "copy" in said) and "%s: %s" % (command[0], said))
report(not problem, "a frame with an unknown extension: the other tensors are read", problem)

# damage in an ancillary record is found by readers of the whole file
problem = None
for kind in (0, 9, 100):
    data = build(between=lambda: ancillary(kind, bytes(40)))
    for at in [i for i in range(len(data) - 4) if data[i:i + 4] == decoder.ANCILLARY_MAGIC]:
        bad = data[:at + 20] + b"\1" + data[at + 21:]
        write("x.bsnap", bad)
        status, said = run("test", "-q", "x.bsnap")
        problem = problem or ((status != 1 or "(S9," not in said) and "test: " + said)
        problem = problem or next((title for title, _, _, content in tensors if taken("x.bsnap", title) != content), None)
        write("x.bsnap", data[:at + 4] + b"\x80" + data[at + 5:]) # damage, and no type of a newer release
        status, said = run("test", "-q", "x.bsnap")
        problem = problem or ((status != 1 or "(S9," not in said) and "a damaged type: " + said)
        write("x.bsnap", data[:at + 8] + b"\x29" + data[at + 9:]) # its size is another, so no record follows where one should
        for title, _, _, content in tensors:
            status, said = run("extract", "-f", "x.bsnap", title, "-o", "lost")
            problem = problem or (status and "take another copy" not in said and "a damaged size: " + said)
report(not problem, "damage in ancillary records: test finds it, tensors are read", problem)

# frames at multiples of a page; the check of a file
problem = None
for size in (512, 4096):
    for base in ((), ("-b", "model")):
        said = run("compress", "-q", "-f", "--align", str(size), *base, "-o", "aligned", "model")[1] or run("test", "-q", *base, "aligned")[1]
        data = read("aligned")
        at = len(data) - u64(data, len(data) - 24) + decoder.END_PREFIX
        begins = [decoder.pass_ancillary(data, u48(data, i + 6)) for i in range(at, at + decoder.RECORD_ENTRY * u64(data, at - decoder.END_PREFIX + 16), decoder.RECORD_ENTRY)]
        frames = [i + 16 if data[i:i + 4] == decoder.PLACE_MAGIC else i for i in begins if data[i:i + 4] != decoder.TEXT_MAGIC]
        problem = problem or said or (any(i % size or data[i:i + 4] != decoder.MAGIC for i in frames) or not frames) and "frames at %s" % frames
        out = subprocess.run([tool, "info", "--no-bound", "--json", "aligned"], capture_output=True).stdout.decode()
        problem = problem or ('"check":"%016x"' % u64(data, len(data) - 16) not in out and out)
report(not problem, "frames at multiples of a page, and the check of a file", problem)

# 300 bases
os.makedirs("shards", exist_ok=True)
parts = [("layer.%d" % i, "F32", 4, rng.randbytes(400)) for i in range(300)]
for i, part in enumerate(parts):
    write("shards/model-%05d-of-00300.safetensors" % (i + 1), safetensors([part]))
changed = [(name, dtype, width, bytes([data[0] ^ 1]) + data[1:]) for name, dtype, width, data in parts]
write("whole.safetensors", safetensors(changed))
said = run("compress", "-q", "-f", "-b", "shards", "-o", "delta", "whole.safetensors")[1] or run("decompress", "-q", "-f", "-b", "shards", "-o", "back", "delta")[1]
problem = said or (read("back") != read("whole.safetensors") and "another file came back") or (len(read("delta")) > 80000 and "%d bytes" % len(read("delta")))
count = int.from_bytes(read("delta")[decoder.FILE_HEADER + 4:decoder.FILE_HEADER + 6], "little")
problem = problem or (count != 300 and "%d bases" % count)
problem = problem or (decoder.decode_file(read("delta"), base=[read("shards/model-%05d-of-00300.safetensors" % (i + 1)) for i in range(300)]) !=
                      read("whole.safetensors") and "decoder.py")
report(not problem, "a delta against 300 files", problem)
sys.exit(failed)
