#!/bin/sh
# Measures a store of 20 snapshots; each changes a fifth of the elements by one unit. Compares the size of the store with zstd -3
# --long=27 of each checkpoint, at the defaults and with --max-chain 32, and prints the seconds of each snapshot.
#   store.sh TOOL [ELEMENTS [SNAPSHOTS]]   ELEMENTS of each of two BF16 shards: 2000000; SNAPSHOTS: 20
# Needs python3 with numpy ($PYTHON), and zstd.
set -eu
tool=$1 elements=${2:-2000000} snapshots=${3:-20}
case $tool in /*) ;; *) tool=$PWD/$tool ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >next.py <<'PYTHON'
"""A checkpoint in two shards and its index: the first, or the next one."""
import json
import os
import sys
import numpy as np

count, step = int(sys.argv[1]), int(sys.argv[2])
os.makedirs("run", exist_ok=True)
for shard in range(2):
    r = np.random.default_rng(100 * step + shard)
    path = f"run/model-{shard + 1:05}-of-00002.safetensors"
    text = json.dumps({"w": {"dtype": "BF16", "shape": [count], "data_offsets": [0, 2 * count]}}).encode()
    if step == 1:
        bits = (r.normal(0, 0.02, count).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        bits = np.fromfile(path, np.uint16, offset=8 + len(text))
        changed = r.random(count) < 0.2
        bits[changed] += np.where(r.random(changed.sum()) < 0.5, 1, -1).astype(np.int16).view(np.uint16)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + bits.tobytes())
with open("run/model.safetensors.index.json", "w") as f:
    json.dump({"weight_map": {"w": "model-00001-of-00002.safetensors"}}, f)
PYTHON
zstd_bytes=0 step=0
bytes() { "$tool" log --json "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)["bytes_out"] + int(sys.argv[1]))' "$(stat -c %s "$1/manifest.json")"; }
seconds() { awk '{ sum += $1 } END { printf "%.2f", sum / NR }' "$1"; }
while [ $((step += 1)) -le "$snapshots" ]; do
    "${PYTHON:-python3}" next.py "$elements" $step
    for n in 16 32; do "$tool" snapshot --json store$n run --max-chain $n | sed 's/.*"seconds":\([0-9.e-]*\).*/\1/' >>seconds$n; done
    zstd_bytes=$((zstd_bytes + $(cat run/* | zstd -q -3 --long=27 -c | wc -c)))
    [ $step -ne 13 ] || cp -r run thirteen
done
echo "| store | bytes | of zstd -3 --long=27 | seconds a snapshot |"
echo "|---|---:|---:|---:|"
echo "| zstd -3 --long=27, each alone | $zstd_bytes | 1 | |"
for n in 16 32; do
    size=$(bytes store$n)
    echo "| --max-chain $n | $size | $(awk "BEGIN { printf \"%.3f\", $size / $zstd_bytes }") | $(seconds seconds$n) |"
    "$tool" restore -q store$n 13 -o day && diff -r thirteen day && rm -r day
    "$tool" prune -q store$n --keep-last 5
    "$tool" verify -q store$n
done
echo "day 13 came back, pruned to 5, verified"
