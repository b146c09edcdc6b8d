#!/usr/bin/env python3
"""Files that are deltas (FORMAT.md 8.5, 8.6): tests/decoder.py and the tool agree on what the tool makes, and, byte for byte, on
which damaged files and which lies are rejected.

    check_deltas.py TOOL SCRATCH SEED        check_decoder.sh calls it
"""
import json
import os
import random
import struct
import subprocess
import sys

import decoder
from decoder import le64, u32, u64, xxh3

tool, scratch, seed = os.path.abspath(sys.argv[1]), sys.argv[2], int(sys.argv[3])
os.makedirs(scratch, exist_ok=True)
os.chdir(scratch)
random.seed(seed)
failed = False
WIDTH = {"BOOL": 1, "I8": 1, "U8": 1, "I16": 2, "I32": 4, "I64": 8, "F8_E4M3": 1, "F8_E5M2": 1, "F16": 2, "BF16": 2, "F32": 4, "F64": 8}


def report(good, what, more=""):
    global failed
    failed |= not good
    print("%s - decoder deltas: %s%s" % ("ok" if good else "not ok", what, "" if good else ": " + more))


def run(*arguments):
    return subprocess.run([tool, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def read(name):
    with open(name, "rb") as f:
        return f.read()


def write(name, data):
    with open(name, "wb") as f:
        f.write(data)


def model(name, tensors, metadata=None):
    """A .safetensors file of (name, dtype, bytes)."""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for title, dtype, content in tensors:
        header[title] = {"dtype": dtype, "shape": [len(content) // WIDTH[dtype]], "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    write(name, le64(len(text)) + text + data)


def floats(n):
    return [random.gauss(0, 0.02) for _ in range(n)]


def f32(x):
    return struct.pack("<%df" % len(x), *x)


def f16(x):
    return struct.pack("<%de" % len(x), *x)


def bf16(x):
    return b"".join(struct.pack("<H", (b + 0x7FFF + (b >> 16 & 1)) >> 16) for b, in struct.iter_unpack("<I", f32(x)))


def stepped(content, width, share):
    """Some elements changed a little, a few by anything."""
    content = bytearray(content)
    for i in range(0, len(content), width):
        if random.random() < share:
            x = int.from_bytes(content[i:i + width], "little") + random.choice((1, -1, 1, -1, 2, -3, random.getrandbits(8 * width)))
            content[i:i + width] = (x % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(content)


def next_step(tensors, share):
    return [(name, dtype, stepped(content, WIDTH[dtype], share)) for name, dtype, content in tensors]


def agree(file, base, what, valid=None):
    """Both restore the same, or both reject; valid: what should come out, or b"" where it must be rejected."""
    if os.path.exists("tool.out"):
        os.remove("tool.out")
    status = run("decompress", "-q", "-f", "-b", base, "-o", "tool.out", file)
    by_tool = read("tool.out") if status == 0 else None
    try:
        ours = decoder.decode_file(read(file), base=read(base))
    except decoder.Reject as reject:
        ours, why = None, str(reject)
    if ours != by_tool:
        return "%s: %s" % (what, "other bytes" if None not in (ours, by_tool) else "the tool accepts it, the decoder does not: " + why
                           if ours is None else "the decoder accepts it, the tool does not")
    if valid is not None and (ours or b"") != valid:
        return "%s: %s" % (what, "rejected" if ours is None else "accepted")
    return None


# ---- what the tool makes ----

floats0 = floats(900)
s0 = [("a", "BF16", bf16(floats(1500))), ("b", "F32", f32(floats(300))), ("c", "I8", bytes(random.choices(range(9), k=200))),
      ("d", "BF16", bf16(floats(70))), ("e", "F16", f16(floats(400))), ("f", "I64", bytes(random.choices(range(3), k=800))),
      ("g", "F64", struct.pack("<90d", *floats(90))), ("h", "F8_E4M3", bytes(random.choices(range(40, 60), k=150)))]
s1 = next_step(s0, 0.1)
s2 = next_step(s1, 0.01)
model("s0", s0, {"step": "0"})
model("s1", s1, {"step": "1"})
model("s2", s2, {"step": "2"})
model("same", s0, {"step": "0"})
model("all", next_step(s0, 1), {"step": "0"})
model("moved", [s1[6], ("new", "BF16", bf16(floats(100))), s1[0], s1[3], ("b", "F32", f32(floats(20))), s1[4], ("z", "F16", b"")])
model("master", [("a", "F32", f32(floats0)), ("b", "F32", f32(floats0)), ("c", "F32", f32(floats(50)))])
model("cast", [("a", "BF16", bf16(floats0)), ("b", "F16", f16(floats0)), ("c", "BF16", stepped(bf16(floats(50)), 2, 0.2))])
model("empty", [])
model("hollow", [("q", "F32", b"")], {"a": "b"})
pairs = [("s0", "s1"), ("s0", "s2"), ("s0", "same"), ("s0", "all"), ("s0", "moved"), ("moved", "s0"), ("master", "cast"), ("empty", "s1"),
         ("s1", "empty"), ("hollow", "empty"), ("empty", "hollow"), ("master", "s0")]
problem, count = None, 0
for base, source in pairs:
    for options in ((), ("-l", "best"), ("-l", "fast"), ("--self-contained",)):
        file = "%s-%s%s" % (base, source, "".join(options))
        if run("compress", "-q", *options, "-b", base, "-o", file, source):
            problem = problem or file + ": the tool does not make it"
        else:
            problem = problem or agree(file, base, file, read(source))
            count += 1
report(not problem, "%d files restored" % count, problem or "")

problem = None
for file, first, second in (("d1", "s0", "s1"), ("d2", "s1", "s2")):
    run("compress", "-q", "--self-contained", "-b", first, "-o", file, second)
run("merge", "-q", "d1", "d2", "-o", "d12")
run("invert", "-q", "d1", "-o", "d10")
write("middle", decoder.decode_file(read("d1"), base=read("s0")))
for file, base, source in (("d2", "middle", "s2"), ("d12", "s0", "s2"), ("d10", "s1", "s0")):
    problem = problem or agree(file, base, file, read(source))
report(not problem, "a chain, its merge, an inverse", problem or "")

# ---- wrong bases ----

problem, count = None, 0
for base, source in pairs:
    for wrong in ("s0", "s1", "all", "moved", "master", "empty", "hollow"):
        if read(wrong)[8:] != read(base)[8:]:
            file = "%s-%s" % (base, source)
            problem = problem or agree(file, wrong, file + " with " + wrong)
            count += 1
report(not problem, "%d wrong bases" % count, problem or "")

# ---- damage, and lies with checks that agree ----


def records(data):
    """The places of the records of a delta that has not been damaged: their magics and beginnings."""
    found, pos, place = [], 32, None
    while True:
        magic = data[pos:pos + 4]
        if magic == decoder.BASE_MAGIC:
            size = 52 + u32(data, pos + 36) + u32(data, pos + 40)
        elif magic == decoder.PLACE_MAGIC:
            size = 20
        elif magic == decoder.END_RECORD_MAGIC:
            return found + [(pos, len(data) - pos)]
        else:
            size = frame_sizes(data)[sum(data[p:p + 4] == decoder.MAGIC for p, _ in found)]
        found.append((pos, size))
        pos += size


def frame_sizes(data):
    size = u64(data, len(data) - 24)
    return [u64(data, len(data) - size + 24 + 8 * i) for i in range((size - 48) // 8)]


def seal(data, parts):
    """The checks of everything but the frames made anew; parts: as they were."""
    data = bytearray(data)
    data[24:32] = le64(xxh3(bytes(data[:24])))
    for pos, size in parts:
        if data[pos:pos + 4] != decoder.MAGIC:
            behind = 16 if pos == parts[-1][0] else 8
            data[pos + size - behind:pos + size - behind + 8] = le64(xxh3(bytes(data[pos:pos + size - behind])))
    return bytes(data)


def built(kind, source_size, parts):
    """A file of these records, with an end record that fits."""
    header = decoder.FILE_MAGIC + bytes((0, kind)) + bytes(6) + le64(source_size)
    sizes = [len(p) for p in parts if p[:4] == decoder.MAGIC]
    end = decoder.END_RECORD_MAGIC + bytes(4) + le64(source_size) + le64(len(sizes)) + b"".join(map(le64, sizes)) + le64(8 * len(sizes) + 48)
    return header + le64(xxh3(header)) + b"".join(parts) + end + le64(xxh3(end)) + decoder.FILE_END_MAGIC


problem, count = None, 0
for file, base in (("s0-moved", "s0"), ("master-cast", "master")):
    data = read(file)
    for n in range(120):
        if n % 3:
            at = random.randrange(len(data)) if n % 3 == 1 else random.choice(
                [random.randrange(p, p + min(s, 60)) for p, s in records(data)] + [random.randrange(32)])
            bad = data[:at] + bytes((data[at] ^ 1 << random.randrange(8),)) + data[at + 1:]
        else:
            at = random.randrange(len(data))
            bad = data[:at]
        write("bad", bad)
        problem = problem or agree("bad", base, "%s damaged at byte %d" % (file, at), b"")
        count += 1
    write("bad", data + b"x")
    problem = problem or agree("bad", base, file + " with a byte more", b"")
report(not problem, "%d damaged files" % count, problem or "")

problem, count = None, 0
for file, base in (("s0-moved", "s0"), ("master-cast", "master"), ("s0-same", "s0")):
    data = read(file)
    parts = records(data)
    places = [p for p, _ in parts if data[p:p + 4] == decoder.PLACE_MAGIC]
    fields = [(8, 1), (9, 1), (10, 2), (14, 2), (16, 8), (36, 4), (40, 8), (48, 8), (56, 8), (64, 4), (68, 4), (72, 4)]
    fields += [(p + 4, 8) for p in places] + [(parts[-1][0] + i, 8) for i in range(8, parts[-1][1] - 16, 8)] + [(parts[-1][0] + 4, 4)]
    for at, size in fields:
        value = int.from_bytes(data[at:at + size], "little")
        for lie in {0, 1, value + 1, value - 1, value + 2, value ^ 1 << 8 * size - 1, (1 << 8 * size) - 1, (1 << 8 * size) - 9,
                    random.getrandbits(8 * size), random.getrandbits(min(20, 8 * size))}:
            lie %= 1 << 8 * size
            if lie != value:
                write("bad", seal(data[:at] + lie.to_bytes(size, "little") + data[at + size:], parts))
                # at another place of its base a frame may find the same elements
                problem = problem or agree("bad", base, "%s with %d at byte %d" % (file, lie, at), None if at - 4 in places else b"")
                count += 1
    texts = range(76, parts[0][0] + parts[0][1] - 8)
    for at in random.choices(texts, k=60) if texts else (): # coded ones, of which that of the base is not needed
        write("bad", seal(data[:at] + bytes((random.randrange(256),)) + data[at + 1:], parts))
        problem = problem or agree("bad", base, "%s with another byte %d" % (file, at))
        count += 1
report(not problem, "%d lies with checks that agree" % count, problem or "")

problem, count = None, 0
for file, base in (("s0-moved", "s0"), ("master-cast", "master")):
    data = read(file)
    size, parts = u64(data, 16), [data[p:p + s] for p, s in records(data)][:-1]
    first = next(i for i, part in enumerate(parts) if part[:4] == decoder.PLACE_MAGIC)
    early_end = built(2, size, [])[32:]
    cases = [("as it is", 2, parts, read(file[len(base) + 1:]))]
    cases += [(name, kind, lie, b"") for name, kind, lie in (
        ("without a place", 2, parts[:first] + parts[first + 1:]), ("a place twice", 2, parts[:first] + [parts[first]] + parts[first:]),
        ("a place at the end", 2, parts + [parts[first]]), ("a place before the base", 2, [parts[first]] + parts),
        ("the base twice", 2, [parts[0]] + parts), ("without its base record", 2, parts[1:]), ("the base record later", 2, parts[1:] + parts[:1]),
        ("kind 0", 0, parts), ("kind 0, without its base record", 0, parts[1:]), ("kind 1", 1, parts),
        ("a base record between a place and its frame", 2, parts[:first + 1] + [parts[0]] + parts[first + 1:]),
        ("an end record early", 2, parts[:-2] + [early_end] + parts[-2:]))]
    for name, kind, lie, valid in cases:
        write("bad", built(kind, size, lie))
        problem = problem or agree("bad", base, "%s, %s" % (file, name), valid)
        count += 1
# a frame of no elements: with a base it needs a place, too, and a delta
header = decoder.MAGIC + bytes((0, 9, 16, 0x83)) + bytes(8) + bytes((12, 0, 129, 10, 1, 9)) + bytes(8)
nothing = header + le64(xxh3(header))
tail = le64(decoder.content_id(b"", 9)) + nothing[-8:] + le64(0) + le64(len(nothing) + 44)
nothing += tail + le64(xxh3(tail)) + decoder.END_MAGIC
place = decoder.PLACE_MAGIC + le64(0)
place += le64(xxh3(place))
base_record = read("s0-same")[slice(32, 32 + records(read("s0-same"))[0][1])]
text_size = 8 + len(decoder.split_base(read("s0"))[0])
for name, kind, lie, good in (("kind 0", 0, [nothing], False), ("kind 0 with a place", 0, [place, nothing], False),
                              ("a delta without a place", 2, [base_record, nothing], False), ("a delta", 2, [base_record, place, nothing], True)):
    write("bad", built(kind, text_size if kind else 0, lie))
    problem = problem or agree("bad", "s0", "a frame of nothing, " + name, read("s0")[:text_size] if good else b"")
    count += 1
report(not problem, "%d files of records at other places" % count, problem or "")
sys.exit(failed)
