#!/usr/bin/env python3
"""What forms of AdamW's moments take and what they do to them, on one pair of files: sizes, errors, and the error of the next
update. `make quantizers DATA=dir` calls it.
  quantizers.py TOOL M V RESULTS [--beta2 X] [--step N]
M and V are safetensors files of F32 tensors. The next update takes a gradient drawn from a normal distribution with the
variance that V tells, the same for all forms. Also one large drawn tensor, flat and as a matrix. Writes quantizers.tsv and quantizers.md into RESULTS, and prints PASS or FAIL:
whether the tool's presets bring back what a computation of their own, in numpy, says that they should.
Example: quantizers.py build/bitsnap adam_m.safetensors adam_v.safetensors results --beta2 0.95 --step 1000"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import report
from report import numpy
import states

COLUMNS = ["form", "m_bits", "v_bits", "m_huffman", "v_huffman", "m_mre", "v_mre", "m_max", "v_max", "m_mse", "v_mse", "m_zeroed", "v_zeroed",
           "update_l2", "next_l2", "next_worst"]
HEADINGS = ["form", "m, bits", "v, bits", "m, Huffman", "v, Huffman", "m, MRE", "v, MRE", "m, worst", "v, worst", "m, MSE", "v, MSE", "m to 0", "v to 0",
            "update, L2", "next update, L2", "next update, worst / lr"]


def errors(x, y):
    """Returns mean and largest relative error of nonzero elements, the mean squared error, and the elements that became 0."""
    d, there = y.astype(numpy.float64) - x, x != 0
    relative = numpy.abs(d[there] / x[there])
    return float(relative.mean()), float(relative.max()), float((d * d).mean()), int((y[there] == 0).sum())


def matrix(tool, scratch, side=4096):
    """Measures one large second moment whose rows and columns differ in scale (factors exp(N(0, 1.5)), elements chi squared of
    8): bits an element without and with columns, lossless and quantized. In small tensors, scales take a larger share."""
    draw = numpy.random.default_rng(2)
    rows, columns = numpy.exp(draw.normal(0, 1.5, (side, 1))), numpy.exp(draw.normal(0, 1.5, (1, side)))
    values = (1e-9 * rows * columns * draw.chisquare(8, (side, side))).astype(numpy.float32)
    heads = {}
    for name, shape in (("flat", [side * side]), ("matrix", [side, side])):
        text = json.dumps({"exp_avg_sq": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4 * side * side]}}).encode()
        heads[name] = len(text).to_bytes(8, "little") + text
    out = []
    for what, options in (("lossless, level best", ["-l", "best"]), ("resume (LOG-35)", ["--adam", "resume"]), ("standard (LOG-8)", ["--adam", "standard"])):
        bits = []
        for name, head in heads.items():
            path = os.path.join(scratch, name + ".safetensors")
            states.write(path, head, values)
            subprocess.run([tool, "compress", "-q", "-f", *options, path, "-o", path + ".bsnap"], check=True)
            bits.append(8 * os.path.getsize(path + ".bsnap") / values.size)
            os.remove(path)
            os.remove(path + ".bsnap")
        out.append([what] + bits)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("tool", "m", "v", "results"):
        parser.add_argument(name, metavar=name.upper())
    parser.add_argument("--beta2", type=float, default=0.95, metavar="X", help="of the run that the files are from [0.95]")
    parser.add_argument("--step", type=int, default=1000, metavar="N", help="that they are of [1000]")
    o = parser.parse_args()
    try:
        m, v = states.read(o.m), states.read(o.v)
    except (OSError, ValueError) as error:
        sys.exit(f"quantizers: {error}")
    os.makedirs(o.results, exist_ok=True)
    if m.bounds != v.bounds:
        sys.exit("quantizers: the two files are not of the same tensors")
    n = len(m.values)
    gradient = numpy.random.default_rng(1).standard_normal(n) * numpy.sqrt(v.values.astype(numpy.float64))
    exact = m.values / (numpy.sqrt(v.values.astype(numpy.float64)) + states.EPSILON)
    rows, failed, raw = [], False, {}
    with tempfile.TemporaryDirectory() as scratch:
        forms = states.forms(o.tool, scratch)
        for cells in (70, 35, 16, 8):
            forms[f"LOG-{cells} (numpy)"] = states.logarithmic(cells, cells)
        large = matrix(o.tool, scratch)
        for what, flat, scaled in large:
            print(f"4096 x 4096 second moment, {what}: {flat:.3f} bits without columns, {scaled:.3f} with")
        for name, form in forms.items():
            a, b = form(m, "m"), form(v, "v")
            u = a.values / (numpy.sqrt(b.values.astype(numpy.float64)) + states.EPSILON)
            l2 = float(numpy.sqrt(((u - exact) ** 2).sum() / (exact ** 2).sum()))
            em, ev = errors(m.values, a.values), errors(v.values, b.values)
            rows.append([name, a.bits / n, b.bits / n, a.huffman / n, b.huffman / n] + [e for pair in zip(em, ev) for e in pair] + [l2] +
                        list(states.update_error(m.values, v.values, a.values, b.values, gradient, o.beta2, o.step)))
            raw[name] = a.values, b.values
            print(f"{name:22} {rows[-1][1]:7.3f} {rows[-1][2]:7.3f} bits, next update off by {rows[-1][-1]:.4g} lr at most", flush=True)
    taken = numpy.concatenate([numpy.full(end - start, end - start >= 4096) for start, end in m.bounds])  # smaller ones stay exact
    for name, cells in states.PRESETS.items():
        if name in raw:
            same, kept = True, 0
            for (file, kind), values in zip(((m, "m"), (v, "v")), raw[name]):
                wanted = states.logarithmic(*cells)(file, kind).values
                back, wanted, given = (x.view(numpy.uint32) for x in (values, wanted, file.values))
                same &= bool(((back == wanted) | (back == given)).all())
                kept = max(kept, float((back != wanted)[taken].mean()))  # exactly stored elements, far from all others
            same &= kept < 0.01
            print(report.verdict(same, f"preset {name} brings back LOG-{cells[0]} and LOG-{cells[1]} as numpy has them, but for "
                                       f"small tensors and {kept:.2%} that it keeps"))
            failed |= not same
    per_cent = ("m_mre", "v_mre", "m_max", "v_max", "update_l2", "next_l2")
    report.write_tsv(o.results, "quantizers", "Forms of AdamW's moments", [
        f"{n} elements, {len(m.bounds)} tensors. Bits an element; huffman: with an order-0 stage, too. mre, max: mean and largest relative error. mse:",
        "mean squared error. zeroed: elements not 0 that become 0. update_l2: relative L2 error of m / (sqrt(v) + eps). next:",
        f"of the update after one more gradient, drawn from N(0, v), beta2 {o.beta2}; worst element in units of the learning rate."], COLUMNS, rows)
    report.write_markdown(o.results, "quantizers", "Forms of AdamW's moments",
                          f"{n} elements in {len(m.bounds)} tensors; the columns are explained in quantizers.tsv.", HEADINGS,
                          [[report.show(value, column in per_cent) for column, value in zip(COLUMNS, row)] for row in rows])
    report.write_tsv(o.results, "quantizers-matrix", "What scales of rows and columns bring to one large tensor", [
        "A second moment of 4096 x 4096 elements, drawn: rows and columns with factors exp(N(0, 1.5)), elements chi squared of 8 degrees. Bits an element."],
        ["form", "flat", "matrix"], large)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
