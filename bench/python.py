#!/usr/bin/env python3
"""Measures the package bitsnap of docs/examples/python against the C benchmark and safetensors. Prints tables for its README.

    bench/python.py BENCH DATA [GIB]

BENCH: build/bench. DATA: a directory with bf16-1000.safetensors. GIB: size of the file that a row is taken from (2). Needs numpy,
ml_dtypes, safetensors, torch and bitsnap. Runs alternate between the packages, and the best counts."""
import json
import os
import subprocess
import sys
import tempfile
import time

import ml_dtypes  # noqa: F401
import numpy
import safetensors
import safetensors.numpy
import safetensors.torch

import bitsnap
import bitsnap.numpy
import bitsnap.torch


def best(function, rounds, clock=time.perf_counter):
    times = []
    for _ in range(rounds):
        start = clock()
        function()
        times.append(clock() - start)
    return min(times)


def read_bytes():
    with open("/proc/self/io", encoding="ascii") as f:
        return int(f.read().split()[1])


def round_trips(bench, data, weights):
    print("| MiB | compress, C | Python | share | decompress, C | Python | share |\n|---|---|---|---|---|---|---|")
    for mib in (16, 64, 256):
        a = numpy.resize(weights, mib << 19)
        frame, back = numpy.empty(a.nbytes + (1 << 20), "uint8"), numpy.empty_like(a)
        back[:] = 0
        ours, theirs = [1e9, 1e9], [1e9, 1e9]
        for _ in range(3):
            rows = json.loads(subprocess.run([bench, "--data", data, "--codec", "bitsnap", "--isa", "avx512,avx2,neon", "--level", "fast", "--checks", "on", "--dtype", "bf16",
                                              "--where", "dram", "--size", str(mib), "--budget", "1.5", "--json"], capture_output=True, check=True, text=True).stdout)["results"]
            theirs = [min(t, *(a.nbytes / 1e9 / row[way] for row in rows)) for t, way in zip(theirs, ("compress_gbps", "decompress_gbps"))]
            ours[0] = min(ours[0], best(lambda: bitsnap.compress(a, level="fast", out=frame), 20))
            size = bitsnap.compress(a, level="fast", out=frame)
            ours[1] = min(ours[1], best(lambda: bitsnap.decompress_into(frame[:size], back), 20))
        assert (a.view("uint16") == back.view("uint16")).all()
        speed = [[a.nbytes / 1e9 / t for t in side] for side in (theirs, ours)]
        print("| %d | %s |" % (mib, " | ".join(f"{c:.2f} | {p:.2f} | {p / c:.2f}" for c, p in zip(*speed))))


def loads(weights, directory):
    """Loads files from the page cache into new memory. The C library always maps new pages for a tensor of 40 MiB. safetensors
    maps the file, so its tensors are copied."""
    names = [os.path.join(directory, "a." + kind) for kind in ("bsnap", "safetensors")]
    tensors = {f"layers.{i}": numpy.resize(weights, (40 << 20) // 2).reshape(-1, 1024) for i in range(4)}
    bitsnap.numpy.save_file(tensors, names[0], level="fast")
    safetensors.numpy.save_file(tensors, names[1])
    size = sum(t.nbytes for t in tensors.values())
    ways = {"bitsnap.numpy.load_file": lambda: bitsnap.numpy.load_file(names[0]),
            "safetensors.numpy.load_file": lambda: safetensors.numpy.load_file(names[1]),
            "bitsnap.torch.load_file": lambda: bitsnap.torch.load_file(names[0]),
            "safetensors.torch.load_file, cloned": lambda: {k: v.clone() for k, v in safetensors.torch.load_file(names[1]).items()}}
    times = dict.fromkeys(ways, 1e9)
    for _ in range(10):
        for way, function in ways.items():
            times[way] = min(times[way], best(function, 1, time.process_time))  # processor time, without other programs
    print(f"\n| {size >> 20} MiB of bf16 in 4 tensors | GB/s |\n|---|---|")
    for way, seconds in times.items():
        print(f"| {way} | {size / 1e9 / seconds:.2f} |")


def one_row(weights, directory, gib):
    name = os.path.join(directory, "large.bsnap")
    large = numpy.resize(weights, int(gib * (1 << 29))).reshape(-1, 4096)
    bitsnap.numpy.save_file({"embed.weight": large}, name, level="fast")
    numbers = numpy.random.default_rng(1).integers(0, len(large), 20)
    took, reads = [], []
    for number in numbers:
        before, start = read_bytes(), time.perf_counter()
        with bitsnap.safe_open(name, "np") as f:
            row = f.get_slice("embed.weight")[int(number)]
        took.append(time.perf_counter() - start)
        reads.append(read_bytes() - before)
        assert row.tobytes() == large[number].tobytes()
    took.sort()
    print(f"\nOne row of {large.shape[1]} from {large.nbytes / (1 << 30):g} GiB of bf16, the file opened anew each time: "
          f"{took[10] * 1e3:.2f} ms (median of 20; the best {took[0] * 1e3:.2f}, the worst {took[-1] * 1e3:.2f}), at most {max(reads) / 1024:.0f} KiB read.")


def main():
    bench, data, gib = sys.argv[1], sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 2
    with safetensors.safe_open(os.path.join(data, "bf16-1000.safetensors"), "np") as f:
        weights = numpy.concatenate([f.get_tensor(k).reshape(-1) for k in f.keys()])
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(bench))) as directory:
        round_trips(bench, data, weights)
        loads(weights, directory)
        one_row(weights, directory, gib)


if __name__ == "__main__":
    main()
