"""States of AdamW in safetensors files, and the forms that store them: the elements that a form restores, and its size.

A form is a function of a file and a kind: the first ("m") or the second moment ("v"). It returns the restored elements and the
size of the file in bits, without and with an order-0 Huffman stage (None: not computed)."""
import collections
import heapq
import json
import os
import subprocess

import numpy

BLOCK = 65536  # elements that share a Huffman code

File = collections.namedtuple("File", "head values bounds")  # bytes before the data; float32; begin and end of each tensor
Stored = collections.namedtuple("Stored", "values bits huffman")  # bits: of the whole file


def read(path):
    """Reads a file of consecutive F32 tensors."""
    with open(path, "rb") as f:
        data = f.read()
    size = 8 + int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:size])
    except ValueError as error:
        raise ValueError(path + ": not a safetensors file") from error
    header.pop("__metadata__", None)
    spans = sorted(tuple(entry["data_offsets"]) for entry in header.values() if entry["data_offsets"][1] > entry["data_offsets"][0])
    ends = [0] + [end for _, end in spans]
    if any(entry["dtype"] != "F32" for entry in header.values()) or [start for start, _ in spans] != ends[:-1] or size + ends[-1] != len(data):
        raise ValueError(path + ": not a file of F32 tensors alone")
    return File(data[:size], numpy.frombuffer(data, "<f4", offset=size), [(a // 4, b // 4) for a, b in spans])


def write(path, head, values):
    with open(path, "wb") as f:
        f.write(head)
        f.write(values.astype("<f4").tobytes())


# ------------------------------------------------------------------------------------------------------------- what codes take

def huffman(codes):
    """Returns the bits of a Huffman code for each block: the codes, 4 bits for the length of each symbol between the smallest
    and the largest, and 32 bits more."""
    total = 0
    for first in range(0, len(codes), BLOCK):
        block = codes[first:first + BLOCK].astype(numpy.int64)
        counts = numpy.bincount(block - block.min())
        total += 32 + 4 * len(counts)
        heap = sorted(int(count) for count in counts if count)
        if len(heap) == 1:
            continue
        while len(heap) > 1:
            both = heapq.heappop(heap) + heapq.heappop(heap)
            total += both
            heapq.heappush(heap, both)
    return total


# ------------------------------------------------------------------------------------------------------------------- the forms

def lossless(file, kind):
    return Stored(file.values, 32 * len(file.values), None)


def one_ulp(file, kind):
    """Changes each element by one unit in the last place, to see how training reacts to the smallest possible change."""
    changed = file.values.view(numpy.uint32) ^ (file.values != 0).astype(numpy.uint32)
    return Stored(changed.view(numpy.float32), 32 * len(changed), None)


def bfloat16(file, kind):
    bits = file.values.view(numpy.uint32).astype(numpy.int64)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    back = (bits << 16).astype(numpy.uint32).view(numpy.float32)
    return Stored(back, 16 * len(bits), huffman(bits >> 7 & 255) + (8 if kind == "m" else 7) * len(bits))


def scaled(values, wanted):
    """Divides a tensor into blocks of `wanted` elements (0: one block), and each block by its largest magnitude. Returns the
    blocks as rows, padded with zeros, and the magnitudes."""
    size = wanted or len(values)
    rows = -(-len(values) // size)
    blocks = numpy.zeros(rows * size, numpy.float32)
    blocks[:len(values)] = values
    blocks = blocks.reshape(rows, size)
    scales = numpy.abs(blocks).max(axis=1, keepdims=True)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        return numpy.where(scales > 0, blocks / scales, 0), scales


def by_table(file, size, table):
    """Divides each element by the largest magnitude of its block, and rounds it to the nearest of at most 256 numbers."""
    x = file.values
    back, codes = numpy.empty_like(x), numpy.empty(len(x), numpy.uint8)
    middles, side = ((table[:-1] + table[1:]) / 2).astype(numpy.float32), 0
    for start, end in file.bounds:
        blocks, scales = scaled(x[start:end], size)
        code = numpy.searchsorted(middles, blocks).astype(numpy.uint8)
        back[start:end] = (table[code] * scales).ravel()[:end - start]
        codes[start:end] = code.ravel()[:end - start]
        side += 32 * len(scales)
    return Stored(back, 8 * len(x) + side, huffman(codes) + side)


def linear(size):
    """8 bits: m has 255 steps from -scale to scale, v has 256 from 0 to scale. Each block has a float32 scale."""
    def form(file, kind):
        table = numpy.arange(-127, 128) / 127 if kind == "m" else numpy.arange(256) / 255
        return by_table(file, size, table.astype(numpy.float32))
    return form


def dynamic_table(signed):
    """Returns the map of 8-bit optimizers: 0, 1, and seven decades, each with twice the steps of the one below."""
    numbers = [0.0, 1.0]
    for decade in range(7):
        edges = numpy.linspace(0.1, 1, 2 ** (decade + (not signed)) + 1)
        middles = 10.0 ** (decade - 6) * (edges[:-1] + edges[1:]) / 2
        numbers += list(middles) + (list(-middles) if signed else [])
    return numpy.array(sorted(numbers), numpy.float32)


def dynamic(size):
    def form(file, kind):
        return by_table(file, size, dynamic_table(kind == "m"))
    return form


def quantile(clusters, width):
    """Sorts the elements of a tensor into clusters of equal size. A cluster stores its smallest and largest element; an element
    has its label and a linear code of `width` bits between the two."""
    def form(file, kind):
        x = file.values
        back, codes, side = numpy.empty_like(x), numpy.empty(len(x), numpy.int64), 0
        label_bits, steps = (clusters - 1).bit_length(), 2 ** width - 1
        for start, end in file.bounds:
            order = numpy.argsort(x[start:end], kind="stable") + start
            for label, members in enumerate(numpy.array_split(order, clusters)):
                if len(members):
                    least, greatest = float(x[members[0]]), float(x[members[-1]])
                    step = (greatest - least) / steps
                    code = numpy.rint((x[members] - least) / step) if step else numpy.zeros(len(members))
                    back[members] = least + code * step
                    codes[members] = label << width | code.astype(numpy.int64)
            side += 64 * clusters
        # The Huffman stage codes the upper 8 bits; lower ones are stored as they are.
        low = max(0, label_bits + width - 8)
        return Stored(back, (label_bits + width) * len(x) + side, huffman(codes >> low) + low * len(x) + side)
    return form


def log_thresholds(n):
    """Returns the thresholds of n bins that divide an octave evenly: T[j] is the smallest integer with T^n >= 2^(23n + j)."""
    thresholds = []
    for j in range(n + 1):
        low, high = 2 ** 23, 2 ** 24
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if middle ** n >= 2 ** (23 * n + j) else (middle + 1, high)
        thresholds.append(low)
    return numpy.array(thresholds, numpy.int64)


def logarithmic(n_m, n_v):
    """LOG-n: stores octave, bin and sign of each element. It is restored as the harmonic mean of the bin's ends, which has the
    same relative error to both. Zeros, subnormals, infinities and NaNs are exact. The size is that of one Huffman code for the
    upper bits of octave and bin, without a prediction."""
    def form(file, kind):
        n = n_m if kind == "m" else n_v
        edges = log_thresholds(n)
        a, b = edges[:-1], edges[1:]
        middles = (4 * a * b + a + b) // (2 * (a + b))  # 2ab / (a + b), rounded
        bits = file.values.view(numpy.uint32)
        exponent, significand = (bits >> 23 & 255).astype(numpy.int64), (bits & 0x7FFFFF | 0x800000).astype(numpy.int64)
        plain = (exponent > 0) & (exponent < 255)
        cell = numpy.searchsorted(edges, significand, side="right") - 1
        back = (bits & numpy.uint32(0xFF800000)) | (middles[cell] & 0x7FFFFF).astype(numpy.uint32)
        q = numpy.where(plain, n * exponent + cell, 0)[plain]
        fixed = (len(bits) if kind == "m" else 0) + 32 * int((~plain).sum())
        size = min((huffman(q >> low) + low * len(q) for low in range(1, 6)), default=0)
        return Stored(numpy.where(plain, back, bits).astype(numpy.uint32).view(numpy.float32), fixed + size, fixed + size)
    return form


PRESETS = {"resume": (70, 35), "standard": (16, 8), "small": (8, 4)}  # bins of m and of v


def by_tool(tool, preset, scratch):
    """Compresses and restores a file with the tool. The size is that of the whole .bsnap file."""
    def form(file, kind):
        name = os.path.join(scratch, "exp_avg" if kind == "m" else "exp_avg_sq")
        paths = [name + end for end in (".safetensors", ".safetensors.bsnap", ".back.safetensors")]
        write(paths[0], file.head, file.values)
        subprocess.run([tool, "compress", "-q", "-f", "--adam", preset, paths[0], "-o", paths[1]], check=True)
        subprocess.run([tool, "decompress", "-q", "-f", paths[1], "-o", paths[2]], check=True)
        back, size = read(paths[2]), 8 * os.path.getsize(paths[1])
        if back.head != file.head:
            raise ValueError(f"--adam {preset} does not bring back the header")
        for path in paths:
            os.remove(path)
        return Stored(back.values, size, size)
    return form


def forms(tool, scratch):
    """Returns all forms by name."""
    presets = {name: by_tool(tool, name, scratch) for name in PRESETS}
    return {**presets, "bf16 cast": bfloat16, "quantile 16 + 8 bit": quantile(16, 8), "dynamic 8 /256": dynamic(256),
            "linear 8 /256": linear(256), "linear 8 tensor": linear(0)}


# ------------------------------------------------------------------------------------------------------- what a form does to
# AdamW

EPSILON = 1e-8
BETA1 = 0.9


def update(m, v, gradient, beta2, step):
    """Returns the update after `step` others, in units of the learning rate. Double precision, to judge float32 against."""
    m = BETA1 * m.astype(numpy.float64) + (1 - BETA1) * gradient
    v = beta2 * v.astype(numpy.float64) + (1 - beta2) * gradient * gradient
    return m / (1 - BETA1 ** (step + 1)) / (numpy.sqrt(v / (1 - beta2 ** (step + 1))) + EPSILON)


def update_error(m, v, back_m, back_v, gradient, beta2, step):
    """Returns the error of the next update, for the same gradient: relative in L2, and the worst element in units of the rate."""
    exact = update(m, v, gradient, beta2, step)
    error = update(back_m, back_v, gradient, beta2, step) - exact
    return float(numpy.sqrt((error * error).sum() / (exact * exact).sum())), float(numpy.abs(error).max())
