#!/usr/bin/env python3
"""Runs the tool on hostile files: those of the corpus; .bsnap, .safetensors and delta files with changed bytes, cut, or with
bytes of other files; and a store with a damaged manifest. Passes if no command ends by a signal or a sanitizer report.
check_sanitize.sh compiles the tool with sanitizers for this.
    hostile_files.py TOOL"""
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "format"))
from decoder import xxh3  # noqa: E402
from vectors import frozen  # noqa: E402

tool = os.path.abspath(sys.argv[1])
top = tempfile.mkdtemp()
os.chdir(top)
os.environ.update(TMPDIR=top, ASAN_OPTIONS="exitcode=98", UBSAN_OPTIONS="exitcode=98:print_stacktrace=1")
bad, runs = [], 0
r = random.Random(1)


def run(*arguments):
    global runs
    runs += 1
    got = subprocess.run([tool, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=120)
    said = got.stderr.decode(errors="replace")
    if got.returncode not in (0, 1, 2) or re.search("Sanitizer|runtime error", said):
        bad.append(f"{' '.join(arguments)[:200]}: {got.returncode}: {said[-600:]}")


def write(name, data):
    with open(name, "wb") as f:
        f.write(data)


def read(name):
    with open(name, "rb") as f:
        return f.read()


def model(seed):
    n, q = 6000, random.Random(seed)
    data = bytes(q.randrange(256) if i % 4 < 2 else 60 + i % 4 for i in range(4 * n))
    head = "{" + ",".join('"%s":{"dtype":"%s","shape":[%d],"data_offsets":[%d,%d]}' % x for x in
                          (("a", "F32", n // 4, 0, n), ("exp_avg_sq", "BF16", n // 2, n, 2 * n), ("c", "I8", n, 2 * n, 3 * n), ("d", "F16", n // 2, 3 * n, 4 * n))) + "}"
    return struct.pack("<Q", len(head)) + head.encode() + data


def damaged(data, others):
    """Damages data: one bit, 8 zero bytes, a very large number, the end of another file, or a cut."""
    at, data = r.randrange(len(data)), bytearray(data)
    kind = r.randrange(5)
    if kind == 0:
        data[at] ^= 1 << r.randrange(8)
    elif kind == 1:
        data[at:at + 8] = bytes(len(data[at:at + 8]))
    elif kind == 2:
        data[at:at + 8] = r.choice((b"\xff" * 8, b"\xff\xff\xff\x7f\0\0\0\0", b"\0\0\0\0\1\0\0\0"))[:len(data[at:at + 8])]
    elif kind == 3:
        data[at:] = r.choice(others)[at:]
    else:
        del data[at:]
    return bytes(data)


count = 0
for vector in (vector for _, found in frozen() for vector in found if "file" in vector.parts):
    name, bases, of = f"vector{count}", [base for _, base in vector.bases], []
    write(name, vector.parts["file"])
    for i, base in enumerate(bases):
        write(f"{name}.{i}", base)
        of += ["-b", f"{name}.{i}"]
    if bases:
        run("test", "-q", *of[:2], name)
        run("info", *of[:2], name)
    count += 1
one, two = model(1), bytearray(model(2))
two[:len(one) // 2] = one[:len(one) // 2]
write("base", one)
write("two", bytes(two))
run("compress", "-q", "base", "-o", "whole.bsnap")
run("compress", "-q", "-l", "best", "--adam", "small", "--adam-min", "100", "base", "-o", "lossy.bsnap")
run("compress", "-q", "-b", "base", "--self-contained", "two", "-o", "delta.bsnap")
good = [read(name) for name in ("whole.bsnap", "lossy.bsnap", "delta.bsnap", "base")]
for i in range(160):
    write(f"damaged{i}" + (".bsnap" if i % 4 < 3 else ""), damaged(good[i % 4], good))
# tensors refer to earlier ones of the file; place and kept records have random numbers and right checks
half = bytes(r.choice((0x3C, 0xBD)) if i % 2 else r.randrange(256) for i in range(12000))
titles = ("a", "again.a", "third.a")
head = "{" + ",".join('"%s":{"dtype":"BF16","shape":[6000],"data_offsets":[%d,%d]}' % (title, 12000 * i, 12000 * i + 12000) for i, title in enumerate(titles)) + "}"
write("tied", struct.pack("<Q", len(head)) + head.encode() + 3 * half)
run("compress", "-q", "tied", "-o", "tied.bsnap")
tied = read("tied.bsnap")
marks = [at for at in range(len(tied)) if tied[at:at + 4] in (b"\xB5PLC", b"\xB5KEP")]
if len(marks) < 2:
    bad.append("no tensor refers to another")
for i in range(60):
    data, at = bytearray(tied), r.choice(marks)
    data[at + 4:at + 12] = struct.pack("<Q", r.choice((0xFFFF, 0, 1)) | r.choice((0, 2, 12000, 12001, 24000, 36000, 1 << 47, r.randrange(40000))) << 16)
    if i % 5 == 0:
        data[at:at + 4] = r.choice((b"\xB5PLC", b"\xB5KEP"))
    data[at + 12:at + 16] = struct.pack("<Q", xxh3(bytes(data[at:at + 12])))[:4]
    write(f"tied{i}.bsnap", bytes(data))
    if i < 20:
        for title in titles:
            run("extract", "-f", "-o", "x", f"tied{i}.bsnap", title)
every = sorted(name for name in os.listdir(".") if os.path.isfile(name))
for line in (("test", "-q"), ("info",), ("info", "-v", "--no-bound", "--json"), ("decompress", "-q", "-f", "-o", "out/")):
    if line[-1] == "out/":
        os.makedirs("out", exist_ok=True)
    run(*line, *every)
run("test", "-q", "-b", "base", *(f"damaged{i}.bsnap" for i in range(2, 160, 4)))
run("compress", "-q", "-f", "--adam", "small", "--adam-min", "100", "-o", "out/", *(f"damaged{i}" for i in range(3, 160, 4)))
for i in range(24):
    name = f"damaged{i}" + (".bsnap" if i % 4 < 3 else "")
    run("extract", "-b", "base", "-f", "-o", "x", name, "*") if i % 4 == 2 else run("extract", "-f", "-o", "x", name, "a")
    run("compare", "-q", "base", name)
    if i % 4 == 2:
        run("merge", "-f", "-o", "x", name, "delta.bsnap")
        run("invert", "-f", "-o", "x", name)
os.mkdir("in")
shutil.copyfile("two", "in/two.safetensors")
run("snapshot", "-q", "store", "in")
whole = read("store/manifest.json")
for i in range(12):
    write("store/manifest.json", damaged(whole[:-28] if i % 2 else whole, [one]))
    run("verify", "-q", "store")
    run("log", "-q", "store")

# 30 deltas; each names the one before as its base 100 times. Every file is read once, not 100^30 times
text = b'{"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}   '
check = lambda data: struct.pack("<Q", xxh3(data))
write("f0", struct.pack("<Q", len(text)) + text)
for k in range(1, 31):
    head = b"\xB5SNPFILE" + bytes([1, 2, 0, 0]) + struct.pack("<IQQ", len(text), 8 + len(text), 0)
    name = b"f%d" % (k - 1)
    entries = 100 * (struct.pack("<IQ", len(text), 0) + check(text) + bytes([len(name)]) + name)
    bases = b"\xB5BAS" + struct.pack("<HHI", 100, 1, len(entries)) + check(text) + entries
    first = b"\xB5END" + struct.pack("<IQQQQ", 0, 8 + len(text), 0, 0, len(head) + 8 + len(bases) + 8)
    last = struct.pack("<QQQ", 0, 0, 80)
    write(f"f{k}.bsnap", head + check(head) + bases + check(bases) + first + last + check(check(head) + first + last) + b"ELIFPNS\xB5")
if subprocess.run([tool, "test", "-q", "f30.bsnap"], timeout=120).returncode:
    bad.append("a chain of deltas that name their base often is refused")
shutil.rmtree(top)
if count < 70:
    bad.append(f"only {count} files of the corpus")
print(f"not ok - sanitize: the tool on hostile files: {bad[0]}" if bad else f"ok - sanitize: the tool on {len(every)} hostile files, in {runs} runs")
sys.exit(bool(bad))
