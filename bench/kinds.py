"""Files as people have them, made from checkpoints of one run, and their sizes beside those of other codecs.

    kinds.py TOOL DATA [--kind NAME ...] [--keep DIR] [--out RESULT.md] [--plot RESULT.svg]
    kinds.py --draw RESULT.md RESULT.svg      the picture of a table that is there

Each kind has a structure that a histogram of exponents does not show: zeros, copies, rows of another precision, few distinct values, packed codes.
Prints Markdown: ratio of whole files at level default and best, restored and compared, beside zstd -3 and -19 --long=27 of the file, and ZipNN
and OpenZL (the best of six graphs) of its tensors, dtype by dtype. The last column is our smaller file as a share of the smallest of theirs:
below 1 is smaller. Runs by field.sh; needs numpy, ml_dtypes, zipnn, openzl and the program zstd, and names what is missing.
"""
import argparse
import filecmp
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn

NAMES = {bfloat16: "BF16", np.float16: "F16", np.float32: "F32", float8_e4m3fn: "F8_E4M3", np.uint8: "U8"}
NAMES = {np.dtype(t): name for t, name in NAMES.items()}
DTYPES = {name: t for t, name in NAMES.items()}
FLOATS = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


def load(path):
    data = pathlib.Path(path).read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    tensors = {name: t for name, t in json.loads(data[8:end]).items() if name != "__metadata__"}
    return {name: np.frombuffer(data, DTYPES[t["dtype"]], int(np.prod(t["shape"])), end + t["data_offsets"][0]).reshape(t["shape"]) for name, t in tensors.items()}


def save(path, tensors):
    header, end = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [end, end + t.nbytes]}
        end += t.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(np.ascontiguousarray(t).tobytes() for t in tensors.values()))


class Run:
    """The checkpoints that are made into kinds."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def all(self, name):
        return load(self.folder / f"{name}.safetensors")

    def each(self, change, name="bf16-1000"):
        """Applies `change` to every matrix. If it returns a dict, its keys are suffixes of tensor names."""
        out = {}
        for key, t in self.all(name).items():
            if t.size >= 16384:
                made = change(t)
                out.update({key + suffix: v for suffix, v in made.items()} if isinstance(made, dict) else {key: made})
        return out


def pruned(share):
    """Sets the smallest weights to zero, at any position."""
    def change(t):
        size = np.abs(t.astype(np.float32))
        return np.where(size <= np.quantile(size, share), t.dtype.type(0), t)
    return change


def two_of_four(t):
    """Sets the two smallest of every four weights to zero."""
    groups = np.abs(t.astype(np.float32)).ravel()[:t.size // 4 * 4].reshape(-1, 4)
    smallest = np.argsort(groups, 1, kind="stable")[:, :2] + 4 * np.arange(len(groups))[:, None]
    out = t.ravel().copy()
    out[smallest.ravel()] = t.dtype.type(0)
    return out.reshape(t.shape)


def rows(share, change):
    """Applies `change` to random rows."""
    def some(t):
        if t.ndim < 2:
            return t
        out, chosen = t.copy(), np.random.default_rng(1).random(t.shape[0]) < share
        out[chosen] = change(out[chosen])
        return out
    return some


def dequantized(bits, group=0):
    """Quantizes to integers with a scale for each row, or for each `group` of a row, and dequantizes."""
    def change(t):
        if t.ndim < 2:
            return t
        x = t.astype(np.float32)
        x = x.reshape(len(x), -1, group) if group and x.shape[1] % group == 0 else x[:, None, :]
        scale = np.abs(x).max(2, keepdims=True) / (2 ** (bits - 1) - 1) + 1e-30
        return (np.round(x / scale) * scale).reshape(t.shape).astype(t.dtype)
    return change


def int4(t, group=128):
    """Packs two 4-bit codes a byte, like GPTQ and AWQ."""
    x = t.astype(np.float32).ravel()[:t.size // group * group].reshape(-1, group)
    scale = np.abs(x).max(1, keepdims=True) / 7 + 1e-30
    codes = (np.clip(np.round(x / scale), -8, 7) + 8).astype(np.uint8).ravel()
    return codes[0::2] | codes[1::2] << 4


E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6], np.float32)


def mxfp4(t, back=False):
    """Packs E2M1 codes, two a byte, with a power of two for every 32. `back`: returns floats instead."""
    x = t.astype(np.float32).ravel()[:t.size // 32 * 32].reshape(-1, 32)
    power = np.floor(np.log2(np.abs(x).max(1, keepdims=True) + 1e-30)) - 2
    x = x / 2 ** power
    codes = (np.searchsorted((E2M1[1:] + E2M1[:-1]) / 2, np.abs(x)) + 8 * (x < 0)).astype(np.uint8)
    if back:
        return (E2M1[codes & 7] * np.where(codes & 8, -1, 1) * 2.0 ** power).ravel().astype(t.dtype)
    codes = codes.ravel()
    return {".blocks": codes[0::2] | codes[1::2] << 4, ".scales": (power.ravel() + 127).astype(np.uint8)}


def fp8(t, back=False):
    """Converts to E4M3 with a scale for every 128 x 128. `back`: returns floats instead."""
    if t.ndim < 2:
        return t
    x, out = t.astype(np.float32), np.empty(t.shape, t.dtype if back else float8_e4m3fn)
    scales = np.empty([-(-n // 128) for n in t.shape], np.float32)
    for i, j in np.ndindex(scales.shape):
        tile = np.s_[i * 128:i * 128 + 128, j * 128:j * 128 + 128]
        scales[i, j] = np.abs(x[tile]).max() / 448 + 1e-30
        codes = (x[tile] / scales[i, j]).astype(float8_e4m3fn)
        out[tile] = codes.astype(np.float32) * scales[i, j] if back else codes
    return out if back else {"": out, "_scale_inv": scales}


STEP = {"bf16-1000": "model.", "master-1000": "optimizer.fp32_param.", "adam_m-1000": "optimizer.exp_avg.", "adam_v-1000": "optimizer.exp_avg_sq."}


def training(run):
    """The state that a trainer stores after a step."""
    return {prefix + key: t for name, prefix in STEP.items() for key, t in run.all(name).items()}


def training_flat(run):
    """The state in the form of a distributed optimizer: all tensors of a kind joined, in another order."""
    tensors = {"model." + key: t for key, t in run.all("bf16-1000").items()}
    for name, prefix in list(STEP.items())[1:]:
        parts = run.all(name)
        tensors[prefix[:-1]] = np.concatenate([parts[key].ravel() for key in sorted(parts, reverse=True)])
    return tensors


def with_largest(run, change):
    """Copies all weights, and adds the result of `change`, called with name and values of the largest one."""
    tensors = run.all("bf16-1000")
    largest = max(tensors, key=lambda key: tensors[key].size)
    return {**tensors, **change(largest, tensors[largest])}


half, single = lambda t: t.astype(np.float16), lambda t: t.astype(np.float32)
KINDS = {
    "bf16_dense": lambda r: r.each(lambda t: t),
    "bf16_pruned_50": lambda r: r.each(pruned(.5)),
    "bf16_pruned_80": lambda r: r.each(pruned(.8)),
    "bf16_pruned_95": lambda r: r.each(pruned(.95)),
    "bf16_pruned_2_of_4": lambda r: r.each(two_of_four),
    "f16_pruned_70": lambda r: r.each(pruned(.7), "fp16-1000"),
    "f32_pruned_50": lambda r: r.each(pruned(.5), "master-1000"),
    "f32_of_bf16": lambda r: r.each(single),
    "f32_of_f16": lambda r: r.each(single, "fp16-1000"),
    "f16_of_bf16": lambda r: r.each(half),
    "f32_some_rows_of_f16": lambda r: r.each(rows(.05, lambda t: single(half(t))), "master-1000"),
    "f32_half_the_rows_of_bf16": lambda r: r.each(rows(.5, lambda t: single(t.astype(bfloat16))), "master-1000"),
    "f32_moments_some_rows_zero": lambda r: r.each(rows(.3, lambda t: t * 0), "adam_v-1000"),
    "bf16_of_int4_rows": lambda r: r.each(dequantized(4)),
    "bf16_of_int8_groups": lambda r: r.each(dequantized(8, 64)),
    "bf16_of_fp8_blocks": lambda r: r.each(lambda t: fp8(t, back=True)),
    "bf16_of_mxfp4": lambda r: r.each(lambda t: mxfp4(t, back=True)),
    "f8_blocks": lambda r: r.each(fp8),
    "u8_packed_int4": lambda r: r.each(int4),
    "u8_mxfp4": lambda r: r.each(mxfp4),
    "training": training,
    "training_flat": training_flat,
    "tied": lambda r: with_largest(r, lambda key, t: {"lm_head.weight": t}),
    "padded": lambda r: with_largest(r, lambda key, t: {key: np.concatenate([t, np.repeat(t[-1:], len(t) // 4, 0)])}),
}


def run(*command):
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)


def ours(tool, path, scratch):
    for level in ("default", "best"):
        run(tool, "compress", "-q", "-f", "-l", level, "-o", scratch / "packed", path)
        run(tool, "decompress", "-q", "-f", "-o", scratch / "back", scratch / "packed")
        if not filecmp.cmp(scratch / "back", path, shallow=False):
            raise SystemExit(f"not ok - {path.name} is not restored at level {level}")
        yield f"bitsnap {level}", (scratch / "packed").stat().st_size


def zipnn(data, dtype):
    from zipnn import ZipNN
    if dtype not in FLOATS:
        return len(data)
    return len(ZipNN(method="HUFFMAN", input_format="byte", bytearray_dtype=FLOATS[dtype], threads=1).compress(bytearray(data)))


def openzl(data, dtype):
    from openzl import ext
    nodes, graphs, width = ext.nodes, ext.graphs, DTYPES[dtype].itemsize

    def graph(k, c):
        if k == 0:
            return graphs.Compress()(c)
        if k == 1:
            return nodes.TransposeSplit()(c, graphs.Compress()(c))
        split = {"BF16": nodes.BFloat16Deconstruct, "F16": nodes.Float16Deconstruct, "F32": nodes.Float32Deconstruct}[dtype]
        signs = nodes.TransposeSplit()(c, graphs.Compress()(c)) if dtype == "F32" else graphs.Store()(c) if k % 2 else graphs.Entropy()(c)
        return split()(c, signs, (graphs.Huffman, graphs.Fse)[k // 2 - 1]()(c))

    def size(k):
        c, context = ext.Compressor(), ext.CCtx()
        c.select_starting_graph(graph(k, c))
        context.ref_compressor(c)
        context.set_parameter(ext.CParam.StickyParameters, 1)
        context.set_parameter(ext.CParam.FormatVersion, ext.MAX_FORMAT_VERSION)
        return len(context.compress([ext.Input(ext.Type.Numeric, data.view(f"u{width}"))]))

    return min(size(k) for k in range(6 if dtype in FLOATS else 2 if width > 1 else 1))


def theirs(path, scratch):
    for name, options in (("zstd -3", ["-3"]), ("zstd -19", ["-19", "--long=27"])):
        run("zstd", "-q", "-f", *options, "-o", scratch / "peer", path)
        yield name, (scratch / "peer").stat().st_size
    parts = {}
    for t in load(path).values():
        parts.setdefault(NAMES[t.dtype], []).append(np.ascontiguousarray(t).reshape(-1).view(np.uint8))
    rest = path.stat().st_size - sum(len(t) for those in parts.values() for t in those)
    for codec in (zipnn, openzl):
        yield codec.__name__, rest + sum(min(codec(data, dtype), len(data)) for dtype, data in ((d, np.concatenate(those)) for d, those in parts.items()))


# codec: shape around (0, 0), drawn as an outline so that none hides another, and colour; ours is the better level, zstd the
# better of two
SERIES = {"bitsnap": ('<circle r="5"/>', "#0072b2"), "zstd": ('<path d="M-4 -4h8v8h-8z"/>', "#d55e00"), "ZipNN": ('<path d="M0 -5L5 4H-5z"/>', "#009e73"),
          "OpenZL": ('<path d="M0 -6L5 0L0 6L-5 0z"/>', "#cc79a7")}


def plot(table):
    """Draws an SVG with the ratio of each kind, on a logarithmic scale, from the table's rows of ratios."""
    rows = {kind: dict(zip(SERIES, (max(r[:2]), max(r[2:4]), r[4], r[5]))) for kind, r in table.items()}
    place = lambda ratio: 230 + 520 * np.log2(ratio) / np.log2(1.1 * max(max(r.values()) for r in rows.values()))
    text = lambda x, y, words, anchor="start": f'<text x="{x:.0f}" y="{y}" text-anchor="{anchor}">{words}</text>'
    mark = lambda x, y, codec: f'<g transform="translate({x:.1f} {y})" fill="none" stroke="{SERIES[codec][1]}" stroke-width="1.6">{SERIES[codec][0]}</g>'
    bottom = 50 + 20 * len(rows)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 {bottom + 40}" font-family="sans-serif" font-size="12">',
             f'<rect width="780" height="{bottom + 40}" fill="white"/>', text(490, bottom + 32, "ratio of whole files, larger is better", "middle")]
    for i, codec in enumerate(SERIES):
        lines += [mark(240 + 100 * i, 18, codec), text(250 + 100 * i, 22, codec)]
    for ratio in (1, 1.5, 2, 3, 5, 10, 20):
        lines += [f'<path d="M{place(ratio):.1f} 36V{bottom}" stroke="#ccc"/>', text(place(ratio), bottom + 15, ratio, "middle")]
    for i, (kind, ratios) in enumerate(rows.items()):
        y = 50 + 20 * i
        lines += [text(220, y + 4, kind, "end"), f'<path d="M230 {y}H750" stroke="#eee"/>'] + [mark(place(ratios[c]), y, c) for c in reversed(SERIES)]
    return "\n".join(lines) + "\n</svg>\n"


def draw(table, picture):
    """Draws the picture from a table that --out has written."""
    rows = [line.strip("| \n").split(" | ") for line in open(table, encoding="utf-8") if re.match(r"\| \w+ \| [\d.]+ \|", line)]
    pathlib.Path(picture).write_text(plot({kind: [float(r) for r in ratios[:6]] for kind, *ratios in rows}))


def main():
    if sys.argv[1:2] == ["--draw"]:
        return draw(*sys.argv[2:4])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", type=pathlib.Path)
    parser.add_argument("data", type=Run, help="a folder with bf16-1000.safetensors, master-1000, adam_m-1000, adam_v-1000, fp16-1000")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder in which the files stay")
    parser.add_argument("--out", type=pathlib.Path, help="the table is written there, too")
    parser.add_argument("--plot", type=pathlib.Path, help="a picture of the table is written there")
    parser.add_argument("--commit", default="unknown", help="what the table says the tool is")
    arguments = parser.parse_args()
    lines = ["# Kinds of files, beside other codecs", "", f"Ratio of whole files; commit {arguments.commit}. `make bench-kinds` prints this; bench/kinds.py has what each kind is.", "",
             "| kind | bitsnap default | bitsnap best | zstd -3 | zstd -19 | zipnn | openzl | ours / theirs |", "|---|--:|--:|--:|--:|--:|--:|--:|"]
    larger, table = 0, {}
    with tempfile.TemporaryDirectory() as temporary:
        scratch = pathlib.Path(temporary)
        folder = arguments.keep or scratch
        folder.mkdir(parents=True, exist_ok=True)
        for kind in arguments.kind or KINDS:
            path = folder / f"{kind}.safetensors"
            save(path, KINDS[kind](arguments.data))
            mine, others, size = dict(ours(arguments.tool, path, scratch)), dict(theirs(path, scratch)), path.stat().st_size
            share = min(mine.values()) / min(others.values())
            larger += share > 1
            table[kind] = [size / packed for packed in [*mine.values(), *others.values()]]
            lines.append(f"| {kind} | " + " | ".join(f"{ratio:.3f}" for ratio in table[kind]) + f" | {share:.3f} |")
            print(lines[-1], file=sys.stderr, flush=True)
    lines += ["", f"{larger} of {len(arguments.kind or KINDS)} are larger than the smallest of theirs."]
    print("\n".join(lines))
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")
    if arguments.plot:
        arguments.plot.write_text(plot(table))


main()
