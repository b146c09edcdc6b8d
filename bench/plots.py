#!/usr/bin/env python3
"""Draws bench/results/*.svg from the *.json beside them, with gnuplot (plots.gp). `make bench-plots` measures and calls it.
  plots.py RESULTS SCRATCH      SCRATCH: folder for the tables that gnuplot reads"""
import json
import os
import shutil
import subprocess
import sys

results, scratch = sys.argv[1:3]
script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "plots.gp")
if not shutil.which("gnuplot"):
    sys.exit("SKIP plots: needs gnuplot (Debian: gnuplot-nox); the figures are in " + results)
os.makedirs(scratch, exist_ok=True)


def read(name):
    path = os.path.join(results, name + ".json")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def origin(data):
    return f"{data['machine']}; {data['compiler']} {data['flags']}; commit {data['commit']}"


def blocks(series):
    """Returns consecutive tables, each under its title, as gnuplot's `index` expects them."""
    return "\n\n\n".join("\n".join([f'"{title}"'] + ["\t".join(f'"{c}"' if isinstance(c, str) else f"{c:.6g}" for c in row) for row in rows])
                       for title, rows in series.items() if rows) + "\n"


def draw(plot, name, series, title, data, **more):
    table = os.path.join(scratch, name + ".tsv")
    with open(table, "w", encoding="utf-8") as f:
        f.write(blocks(series))
    values = {"plot": plot, "table": table, "output": os.path.join(results, name + ".svg"), "heading": title, "origin": origin(data),
              **{k: v for k, v in more.items() if isinstance(v, str)}}
    numbers = {"count": sum(1 for rows in series.values() if rows), **{k: v for k, v in more.items() if not isinstance(v, str)}}
    quoted = [k + "='" + v.replace("'", "''") + "'" for k, v in values.items()]
    subprocess.run(["gnuplot", "-e", "; ".join(quoted + [f"{k}={v}" for k, v in numbers.items()]), script], check=True)
    print(values["output"])


def add(series, title, row):
    series.setdefault(title, []).append(row)


def codecs(data):
    """Draws ratio against speed in memory, one picture for each file. Speeds are shares of the memcpy of the same row, because
    the load of the machine may differ between rows."""
    shapes = {"fast": 8, "default": 6, "best": 12}  # shapes of gnuplot: triangle, circle, diamond; hollow, so none hides another
    rows = [r for r in data["results"] if r["where"] == "dram"]
    for file in dict.fromkeys(r["file"] for r in rows):
        ours, others = {}, {}
        here = [r for r in rows if r["file"] == file]
        for r in here:
            row = [r["ratio"], r["compress_gbps"] / r["memcpy_gbps"], r["decompress_gbps"] / r["memcpy_gbps"], shapes.get(r["level"], 0)]
            if r["codec"] == "bitsnap" and r["hashes"]:
                add(ours, f"bitsnap, {r['isa']}", row)
            elif r["codec"] not in ("bitsnap", "memcpy"):
                add(others, r["codec"], row[:3])
        best = max(r["memcpy_gbps"] for r in here)
        all_rows = [*ours.values(), *others.values()]
        draw("codecs", "ratio-speed-" + file, {**ours, **others},
             f"{file}, {here[0]['dtype']}, {here[0]['bytes'] >> 20} MiB; memcpy at its best: {best:.1f} GB/s", data, ours=len(ours),
             names=" ".join(title.split(", ")[1] for title in ours), **{f"least_{i}": min(row[i] for rows in all_rows for row in rows) for i in (0, 1, 2)})


def sizes(data):
    series = {}
    for r in data["sizes"]:
        add(series, r["isa"], [r["bytes"], r["memcpy_us"], r["compress_us"], r["decompress_us"]])
    first = data["sizes"][0]
    draw("sizes", "cost-size", series, f"{first['file']}, {first['dtype']}: time of a tensor by its size", data)


def threads(data):
    series = {}
    for r in data["threads"]:
        add(series, r["isa"], [r["threads"], r["memcpy_gbps"], r["compress_gbps"], r["decompress_gbps"]])
    first = data["threads"][0]
    draw("threads", "speed-threads", series, f"{first['file']}, {first['dtype']}, {first['bytes'] >> 20} MiB: speed by threads", data,
         processors=data["processors"])


def kernels(data):
    """Draws the speed of each kernel as a share of memcpy's, in the second-level cache."""
    series = {}
    rows = [r for r in data["kernels"] if r["where"] == "l2"]
    names = list(dict.fromkeys((r["kernel"] + " " + r["variant"]).strip() for r in rows))
    for r in rows:
        name = (r["kernel"] + " " + r["variant"]).strip()
        add(series, r["isa"], [-names.index(name), r["gbps"] / r["memcpy_gbps"], name.replace("_", "\\\\_")])
    draw("kernels", "kernels", series, "kernels in the second-level cache: share of memcpy's speed", data, lines=len(names))


for name, function in (("codecs", codecs), ("sizes", sizes), ("threads", threads), ("kernels", kernels)):
    data = read(name)
    if data and data.get({"codecs": "results"}.get(name, name)):
        function(data)
