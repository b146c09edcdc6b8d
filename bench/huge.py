#!/usr/bin/env python3
"""Runs the tool on a sparse checkpoint larger than the disk: 100,000 tensors, one of them an eighth of the whole. Every command
must finish within 256 MiB of memory, and commands that look for one tensor must not read the rest.

    huge.py TOOL DIRECTORY SIZE TABLE

SIZE: 1T, 64G, ... (with 1T the large tensor has 2^37 bytes). The table lists seconds, processor seconds, resident MiB, system
calls that read, and MiB read."""
import json
import multiprocessing
import os
import random
import struct
import subprocess
import sys
import time

TENSORS, LAYER, LIMIT = 100000, 1000, 256 << 20
tool, directory, size_text, table = sys.argv[1:]
size = int(size_text[:-1]) << {"G": 30, "T": 40}[size_text[-1]]
base, new = (os.path.join(directory, name) for name in ("step1.safetensors", "step2.safetensors"))


def place_of(i):
    """Returns position and size of the data of tensor i."""
    return (0, large) if i == 0 else (large + (i - 1) * each, each)


large = size // 8
each = (size - large) // (TENSORS - 1) // 4096 * 4096


def make(path, changes):
    tensors = {}
    for i in range(TENSORS):
        at, n = place_of(i)
        dtype, width = ("BF16", 2) if i // LAYER % 2 == 0 else ("F32", 4)
        tensors[name_of(i)] = {"dtype": dtype, "shape": [n // width], "data_offsets": [at, at + n]}
    text = json.dumps(tensors, separators=(",", ":")).encode()
    noise = random.Random(1)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at + n)
        for i in range(0, TENSORS, 97):  # some weights in the middle of tensors, and the last bytes of the large one
            at, n = place_of(i)
            f.seek(8 + len(text) + (at + n - 65536 if i == 0 else at + n // 2 // 4096 * 4096))
            data = bytearray(bytes(noise.choices(range(256), k=4096)) * 16)
            data[1::2] = bytes(0x3C + (b & 3) for b in data[1::2])
            if changes:
                data[::500] = bytes(b ^ 1 for b in data[::500])
            f.write(data)
            if i == 0:
                last = bytes(data[-1024:])
    return last


def name_of(i):
    return "model.layers.%d.experts.%d.weight" % (i // LAYER, i % LAYER)


def run(what, *arguments):
    begun = time.monotonic()
    child = subprocess.Popen([tool, *arguments], stdout=subprocess.DEVNULL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with open("/proc/%d/io" % child.pid) as f:
        io = dict(line.split(": ") for line in f.read().splitlines())
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = status
    seconds = time.monotonic() - begun
    row = "| %s | %.2f | %.2f | %.0f | %d | %.2f |" % (what, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024,
                                                      int(io["syscr"]), int(io["rchar"]) / 2 ** 20)
    print(row, flush=True)
    rows.append(row)
    if status or usage.ru_maxrss << 10 > LIMIT:
        failures.append("%s: %s" % (what, "it failed" if status else "more than 256 MiB"))


def extract(what, last, *arguments):
    out = os.path.join(directory, "element")
    n = large // 2
    run(what, "extract", *arguments, name_of(0), "--range", "%d:%d" % (n - 512, n), "--raw", "-f", "-o", out)
    with open(out, "rb") as f:
        if f.read() != last:
            failures.append("%s: other elements" % what)


rows, failures = [], []
os.makedirs(directory, exist_ok=True)
with multiprocessing.Pool(1) as others:  # a process of their own, so their memory is not counted as the tool's
    last, changed = others.starmap(make, ((base, 0), (new, 1)))
packed, delta = base + ".bsnap", os.path.join(directory, "step2.delta")
run("`compress`", "compress", "-q", "-f", base)
run("`test`", "test", "-q", "--max-output", size_text, packed)
run("`info --no-bound`", "info", "-q", "--no-bound", packed)
extract("`extract` of 512 elements behind byte %d" % (large - 1024), last, packed)
run("`compress -b`", "compress", "-q", "-f", "-b", base, "-o", delta, new)
run("`test -b`", "test", "-q", "-b", base, delta)
extract("`extract -b`", changed, "-b", base, delta)
sizes = [os.path.getsize(path) for path in (base, packed, delta)]
with open(table, "w") as f:
    f.write("# A checkpoint of %s in %d tensors, nearly all of it holes\n\n" % (size_text.replace("G", " GiB").replace("T", " TiB"), TENSORS))
    f.write("`make huge SIZE=%s`: %d bytes, %d compressed, %d as a delta; %s.\n\n" % (size_text, *sizes, os.environ.get("MACHINE", "")))
    f.write("| | s | CPU s | resident MiB | reads | read MiB |\n|---|--:|--:|--:|--:|--:|\n" + "\n".join(rows) + "\n")
for failure in failures:
    print("not ok - huge: " + failure)
sys.exit(bool(failures))
