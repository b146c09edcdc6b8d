#!/usr/bin/env python3
"""Files that are deltas (FORMAT.md 8.5, 8.6): tests/format/decoder.py and the tool agree on what the tool makes, and, byte for byte, on
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
from decoder import le64, u32, u48, u64, xxh3

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
    """Both restore the same file, or both reject it. valid: the right result; b"" if it must be rejected."""
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
    """The begins and sizes of the records of an undamaged delta."""
    end = len(data) - u64(data, len(data) - 24)
    known = [u48(data, end + decoder.END_PREFIX + decoder.RECORD_ENTRY * i + 6) for i in range(u64(data, end + 16))]
    found, pos = [], decoder.FILE_HEADER
    while pos < end:
        magic = data[pos:pos + 4]
        size = {decoder.BASES_MAGIC: 28 + u32(data, pos + 8), decoder.PLACE_MAGIC: 16,
                decoder.TEXT_MAGIC: 20 + u32(data, pos + 8)}.get(magic) or min(p for p in known + [end] if p > pos) - pos
        found.append((pos, size))
        pos += size
    return found + [(end, len(data) - end)]


def seal(data, parts):
    """Makes all checks anew, except those inside frames and trees. parts: the parts before the change."""
    data = bytearray(data)
    data[32:40] = le64(xxh3(bytes(data[:32])))
    for pos, size in parts[:-1]:
        kind = data[pos:pos + 4]
        if kind == decoder.PLACE_MAGIC:
            data[pos + 12:pos + 16] = le64(xxh3(bytes(data[pos:pos + 12])))[:4]
        elif kind != decoder.MAGIC:
            data[pos + size - 8:pos + size] = le64(xxh3(bytes(data[pos:pos + size - 8])))
    pos = parts[-1][0]
    data[-16:-8] = le64(xxh3(bytes(data[32:40] + data[pos:pos + decoder.END_PREFIX] + data[-40:-16])))
    return bytes(data)


def built(kind, source_size, text_size, parts):
    """A file of these records with a matching end record."""
    header = decoder.encode_file_header(kind, text_size, source_size)
    data, entries, begin, place = header, [], 8 * (kind > 0), None
    for part in parts:
        if part[:4] == decoder.TEXT_MAGIC:
            entries.append((begin, len(data), u64(part, len(part) - 8)))
            begin += u32(part, 4)
        if part[:4] == decoder.MAGIC:
            begin = max(begin, 8 + text_size if kind else 0)
            entries.append((begin, len(data) if place is None else place, decoder.seal_of(part)))
            frame = decoder.decode_header(part)
            begin += frame.count * decoder.DTYPES[frame.dtype].width
        place = len(data) if part[:4] == decoder.PLACE_MAGIC else None
        data += part
    return data + decoder.encode_end_record(header[32:], source_size, entries, [], len(data))


problem, count = None, 0
for file, base in (("s0-moved", "s0"), ("master-cast", "master")):
    data = read(file)
    for n in range(120):
        if n % 3:
            at = random.randrange(len(data)) if n % 3 == 1 else random.choice(
                [random.randrange(p, p + min(s, 60)) for p, s in records(data)] + [random.randrange(decoder.FILE_HEADER)])
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
    texts = [(p, n) for p, n in parts if data[p:p + 4] == decoder.TEXT_MAGIC]
    end = parts[-1][0]
    fields = [(8, 1), (9, 1), (10, 1), (11, 1), (12, 4), (16, 8), (24, 4), (28, 4), (44, 2), (46, 2), (48, 4), (52, 8), (60, 4), (64, 8), (72, 8),
              (80, 1)]
    fields += [(p + 6, 6) for p in places] + [(p + 4, 2) for p in places] + [(p + i, 4) for p, _ in texts for i in (4, 8)]
    fields += [(end + 4, 4)] + [(at, 8) for at in range(end + 8, len(data) - 31, 8)] + [(len(data) - 24, 8)]
    for at, size in fields:
        value = int.from_bytes(data[at:at + size], "little")
        for lie in {0, 1, value + 1, value - 1, value + 2, value ^ 1 << 8 * size - 1, (1 << 8 * size) - 1, (1 << 8 * size) - 9,
                    random.getrandbits(8 * size), random.getrandbits(min(20, 8 * size))}:
            lie %= 1 << 8 * size
            if lie != value:
                write("bad", seal(data[:at] + lie.to_bytes(size, "little") + data[at + size:], parts))
                # at another position in its base a frame may find equal elements
                problem = problem or agree("bad", base, "%s with %d at byte %d" % (file, lie, at), None if at - 6 in places else b"")
                count += 1
    coded = [at for p, n in texts for at in range(p + 12, p + n - 8)]
    for at in random.choices(coded, k=60) if coded else (): # both may accept this if the text of the base is not needed
        write("bad", seal(data[:at] + bytes((random.randrange(256),)) + data[at + 1:], parts))
        problem = problem or agree("bad", base, "%s with another byte %d" % (file, at))
        count += 1
report(not problem, "%d lies with checks that agree" % count, problem or "")

problem, count = None, 0
for file, base in (("s0-moved", "s0"), ("master-cast", "master")):
    data = read(file)
    size, parts = u64(data, 16), [data[p:p + s] for p, s in records(data)][:-1]
    first = next(i for i, part in enumerate(parts) if part[:4] == decoder.PLACE_MAGIC)
    early_end = built(2, size, u32(data, 12), [])[decoder.FILE_HEADER:]
    cases = [("as it is", 2, parts, read(file[len(base) + 1:]))]
    cases += [(name, kind, lie, b"") for name, kind, lie in (
        ("without a place", 2, parts[:first] + parts[first + 1:]), ("a place twice", 2, parts[:first] + [parts[first]] + parts[first:]),
        ("a place at the end", 2, parts + [parts[first]]), ("a place before the base", 2, [parts[first]] + parts),
        ("the base twice", 2, [parts[0]] + parts), ("without its base record", 2, parts[1:]), ("the bases later", 2, parts[1:] + parts[:1]),
        ("kind 0", 0, parts), ("kind 0, without its base record", 0, parts[1:]), ("kind 1", 1, parts),
        ("a base record between a place and its frame", 2, parts[:first + 1] + [parts[0]] + parts[first + 1:]),
        ("an end record early", 2, parts[:-2] + [early_end] + parts[-2:]))]
    for name, kind, lie, valid in cases:
        write("bad", built(kind, size, u32(data, 12) if kind else 0, lie))
        problem = problem or agree("bad", base, "%s, %s" % (file, name), valid)
        count += 1
# a frame of no elements: with a base it needs a place, too, and a delta
header = decoder.MAGIC + bytes((1, 9, 16, 0x83)) + bytes(8) + bytes((13, 0, 129, 10, 0, 1, 9)) + bytes(8)
check = le64(xxh3(header))
fixed = le64(decoder.content_id(b"", 9)) + le64(0) + le64(len(header) + 44)
nothing = header + check + fixed + le64(xxh3(check + fixed)) + decoder.END_MAGIC
place = decoder.PLACE_MAGIC + bytes(8)
place += le64(xxh3(place))[:4]
base_record = read("s0-same")[decoder.FILE_HEADER:][:records(read("s0-same"))[0][1]]
text_size = 8 + len(decoder.split_base(read("s0"))[0])
for name, kind, lie, good in (("kind 0", 0, [nothing], False), ("kind 0 with a place", 0, [place, nothing], False),
                              ("a delta without a place", 2, [base_record, nothing], False), ("a delta", 2, [base_record, place, nothing], True)):
    write("bad", built(kind, text_size if kind else 0, text_size - 8 if kind else 0, lie))
    problem = problem or agree("bad", "s0", "a frame of nothing, " + name, read("s0")[:text_size] if good else b"")
    count += 1
report(not problem, "%d files of records at other places" % count, problem or "")

# ---- one tensor, by the trees ----

problem, count, most = None, 0, 0
many = [("layers.%d.\u00e9\"{}/weight" % i, "BF16", bf16(floats(1 + i % 3))) for i in range(2500)]
model("many", many, {"}": "\\\""})
model("more", [(name + "x" * (i % 2), dtype, stepped(content, 2, 0.1)) for i, (name, dtype, content) in enumerate(many) if i != 7])
model("same-many", next_step(many, 0.1), {"}": "\\\""})
for base, source in ((None, "many"), ("many", "more"), ("many", "same-many"), ("s0", "moved"), (None, "s0")):
    file, given = "%s-of-%s" % (base, source), base and read(base)
    run("compress", "-q", "-f", *(("-b", base) if base else ()), "-o", file, source)
    text, content = decoder.split_base(read(source))
    header = json.loads(text)
    header.pop("__metadata__", None)
    for name in random.sample(sorted(header), min(25, len(header))):
        entry = header[name]
        dtype, shape, elements, seen = decoder.decode_tensor(read(file), name, given)
        most, count = max(most, seen), count + 1
        if (dtype, shape) != (entry["dtype"], entry["shape"]) or elements != content[slice(*entry["data_offsets"])]:
            problem = "%s: another tensor %s" % (file, name)
    try:
        decoder.decode_tensor(read(file), "of no such name", given)
        problem = "%s: a tensor of no such name" % file
    except KeyError:
        pass
data = read("None-of-many") # a changed byte of the trees is found by who looks for all, and by the tool
start = len(data) - u64(data, len(data) - 24)
for at in random.sample(range(start, len(data)), 150):
    bad = data[:at] + bytes((data[at] ^ 1 << random.randrange(8),)) + data[at + 1:]
    write("bad", bad)
    if run("test", "-q", "bad") != 1:
        problem = problem or "byte %d of a tree: accepted" % at
    for name, dtype, content in random.sample(many, 3):
        try:
            if decoder.decode_tensor(bad, name)[2] != content:
                problem = problem or "byte %d of a tree: another tensor" % at
        except decoder.Reject:
            pass
report(not problem and most <= 1 << 16, "%d tensors by the trees, for which at most %d bytes are read" % (count, most), problem or "")
sys.exit(failed)
