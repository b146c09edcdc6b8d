"""Codecs beside each other on your own checkpoints: sizes, and speeds in memory, in one process and one run, on one thread.

    field.py DIR|FILE.safetensors... [--quick] [--codec bitsnap,zipnn] [--out RESULT.md]

Prints Markdown: of each file and dtype a table of what packs all its tensors of that dtype. GB/s: 10^9 bytes of tensors a second, the best of
several runs; in brackets, as a share of a copy of the same bytes, which is timed between them. Each codec has the interface that it publishes:
bitsnap writes into the caller's memory, the others allocate their own. What comes back is compared before anything is timed.
Packages that are missing are named and left out: bitsnap (docs/examples/python), numpy, ml_dtypes, numcodecs (zstd), zipnn, openzl.
"""
import argparse
import importlib.metadata
import importlib.util
import pathlib
import platform
import sys
import time

import numpy
import bitsnap

MOST = 256 << 20  # most bytes of a dtype that are measured in a file
FLOATS = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


class Bitsnap:
    def __init__(self, level):
        self.name, self.level = f"bitsnap -l {level}", level

    def prepare(self, data, dtype, tensors):
        """Divides the tensors into frames as files do: all in one, but at level best one for each large matrix, because that
        level uses rows and columns."""
        self.data, self.dtype, self.back, self.parts = data, dtype, numpy.empty_like(data), []
        self.frame = numpy.empty(data.size + data.size // 16 + 65536, numpy.uint8)
        at = 0
        for size, columns in tensors:
            size, columns = min(size, data.size - at), columns if self.level == "best" else 0
            if self.parts and not columns and not self.parts[-1][2]:
                self.parts[-1][1] += size
            elif size:
                self.parts.append([at, size, columns])
            at += size

    def pack(self):
        end, self.ends = 0, []
        for at, size, columns in self.parts:
            end += bitsnap.compress(self.data[at:at + size], self.dtype, level=self.level, columns=columns, out=self.frame[end:])
            self.ends.append(end)
        return self.frame[:end]

    def unpack(self, packed):
        begin = 0
        for (at, size, _), end in zip(self.parts, self.ends):
            bitsnap.decompress_into(packed[begin:end], self.back[at:at + size])
            begin = end
        return self.back


class Zstd:
    def __init__(self, level):
        from numcodecs.zstd import Zstd as codec
        self.name, self.codec = f"zstd -{level}", codec(level)

    def prepare(self, data, dtype, tensors):
        self.data, self.back = data, numpy.empty_like(data)

    def pack(self):
        return self.codec.encode(self.data)

    def unpack(self, packed):
        self.codec.decode(packed, self.back)
        return self.back


class ZipNN:
    def __init__(self):
        import zipnn
        self.name, self.package = "zipnn", zipnn

    def prepare(self, data, dtype, tensors):
        self.codec = self.package.ZipNN(method="HUFFMAN", input_format="byte", bytearray_dtype=FLOATS[dtype], threads=1)
        self.data = data

    def before(self):
        self.taken = bytearray(self.data)  # a copy, because zipnn changes its input

    def pack(self):
        return self.codec.compress(self.taken)

    def unpack(self, packed):
        return self.codec.decompress(packed)


class OpenZL:
    """OpenZL with the one of several graphs that packs the first 4 MiB smallest."""

    def __init__(self):
        from openzl import ext
        self.name, self.ext = "openzl", ext

    def context(self, dtype, k):
        """Returns graph k, ready to pack."""
        c, nodes, graphs = self.ext.Compressor(), self.ext.nodes, self.ext.graphs
        deconstruct = {"BF16": nodes.BFloat16Deconstruct, "F16": nodes.Float16Deconstruct, "F32": nodes.Float32Deconstruct}[dtype]
        signs = nodes.TransposeSplit()(c, graphs.Compress()(c)) if dtype == "F32" else graphs.Store()(c) if k % 2 else graphs.Entropy()(c)
        exponents = (graphs.Huffman, graphs.Huffman, graphs.Fse, graphs.Fse)[k]()(c)
        c.select_starting_graph(deconstruct()(c, signs, exponents))
        context = self.ext.CCtx()
        context.ref_compressor(c)
        context.set_parameter(self.ext.CParam.StickyParameters, 1)
        context.set_parameter(self.ext.CParam.FormatVersion, self.ext.MAX_FORMAT_VERSION)
        return context, c

    def prepare(self, data, dtype, tensors):
        numbers = data.view("u4" if dtype == "F32" else "u2")
        of = lambda numbers: [self.ext.Input(self.ext.Type.Numeric, numbers)]
        best = min(range(4), key=lambda k: len(self.context(dtype, k)[0].compress(of(numbers[:1 << 20]))))
        self.packer, self.input, self.decoder = self.context(dtype, best), of(numbers), self.ext.DCtx()

    def pack(self):
        return self.packer[0].compress(self.input)

    def unpack(self, packed):
        return self.decoder.decompress(packed)[0].content.as_nparray()


def codecs(wanted):
    for make, arguments in ((Bitsnap, ("fast",)), (Bitsnap, ("default",)), (Bitsnap, ("best",)), (ZipNN, ()), (OpenZL, ()), (Zstd, (1,)), (Zstd, (3,))):
        if wanted and make.__name__.lower() not in wanted:
            continue
        try:
            yield make(*arguments)
        except ImportError as error:
            print(f"SKIP {make.__name__}: needs the package {error.name}", file=sys.stderr)


def best_of(run, budget, before=lambda: None):
    """Returns the shortest time of a function in seconds, over at least three runs, within a budget."""
    least, spent, runs = float("inf"), 0, 0
    while runs < 3 or spent < budget:
        before()
        start = time.perf_counter()
        run()
        took = time.perf_counter() - start
        least, spent, runs = min(least, took), spent + took, runs + 1
    return least


LEAST_MATRIX, LEAST_ROW = 32768, 16  # least elements of a tensor with its own frame at level best, and of its rows


def columns_of(shape):
    """Returns the elements of a row by the rule of the tool: the product of the fewest last dimensions that is at least
    LEAST_ROW, without the first dimension."""
    row = 1
    for dimension in reversed(shape[1:]):
        row *= dimension
        if row >= LEAST_ROW:
            return row
    return 0


def arrays(path):
    """Returns, for each dtype, the joined bytes of all tensors, and the size and columns of each tensor."""
    parts = {}
    with bitsnap.safe_open(path, framework="np") as f:
        for name in f.offset_keys():
            array = f.get_tensor(name)
            dtype = bitsnap.dtype_name(array)
            if dtype in FLOATS and array.size:
                columns = columns_of(array.shape) if array.size >= LEAST_MATRIX else 0
                parts.setdefault(dtype, []).append((array.reshape(-1).view("u1"), columns))
    return {dtype: (numpy.concatenate([a for a, _ in those])[:MOST], [(a.size, columns) for a, columns in those]) for dtype, those in parts.items()}


def table(path, dtype, data, tensors, wanted, budget):
    lines = [f"## {path.name}, {dtype}, {data.size} bytes", "", "|                      |     bytes |  ratio | in, GB/s |        | out, GB/s |        |",
             "|---|--:|--:|--:|--:|--:|--:|"]
    copy = numpy.empty_like(data)
    memcpy = lambda: data.size / 1e9 / best_of(lambda: numpy.copyto(copy, data), budget / 4)
    for codec in codecs(wanted):
        codec.prepare(data, dtype, tensors)
        before = getattr(codec, "before", lambda: None)
        before()
        packed = codec.pack()
        if bytes(codec.unpack(packed)) != data.tobytes():
            raise SystemExit(f"not ok - {codec.name} does not give back {path}, {dtype}")
        packed = bytes(packed)
        first, to = memcpy(), data.size / 1e9 / best_of(codec.pack, budget, before)
        out, last = data.size / 1e9 / best_of(lambda: codec.unpack(packed), budget), memcpy()
        lines.append(f"| {codec.name:20} | {len(packed):9} | {data.size / len(packed):6.3f} | {to:8.2f} | ({to / max(first, last):4.2f}) |"
                     f" {out:9.2f} | ({out / max(first, last):4.2f}) |")
    return lines + [""]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="a tenth of the time, and 8 MiB of each dtype at most")
    parser.add_argument("--codec", default="", help="of these only")
    parser.add_argument("--out", type=pathlib.Path, help="the tables go there, too")
    arguments = parser.parse_args()
    files = [f for p in arguments.paths for f in (sorted(p.glob("**/*.safetensors")) if p.is_dir() else [p])]
    if not files:
        parser.error("there is no .safetensors file")
    has = [f"{name} {importlib.metadata.version(name)}" for name in ("zipnn", "openzl", "numcodecs") if importlib.util.find_spec(name)]
    lines = ["# Codecs beside each other, in memory, one thread", "",
             f"{processor()}; bitsnap {bitsnap.__version__}, {', '.join(has)} (zstd of numcodecs); {platform.python_implementation()} {platform.python_version()}.",
             "In brackets: as a share of a copy, in the same run.", ""]
    for path in files:
        for dtype, (data, tensors) in arrays(path).items():
            lines += table(path, dtype, data[:8 << 20] if arguments.quick else data, tensors, arguments.codec.lower(), 0.05 if arguments.quick else 0.5)
    text = "\n".join(lines)
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


def processor():
    try:
        return next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


main()
