#!/bin/sh
# The benchmark: it builds without a warning, every mode prints JSON with the members that other programs read, and pictures
# can be drawn.
cd "$(dirname "$0")/../.." || exit 1
unset MAKEFLAGS MFLAGS MAKELEVEL
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
built=
for compiler in gcc clang; do
    if ! command -v $compiler >/dev/null; then echo "skip - bench: needs $compiler"; continue; fi
    if make -s bench-build B="$t" CC=$compiler CFLAGS=-O2 WARN='-Wall -Wextra -Werror' >"$t/out" 2>&1 && [ ! -s "$t/out" ]; then
        echo "ok - bench: $compiler"; built=1
    else
        echo "not ok - bench: $compiler"; head -n 12 "$t/out"
    fi
done
if ! command -v python3 >/dev/null; then echo "skip - bench: JSON needs python3"; exit 0; fi
if [ -z "$built" ]; then exit 1; fi
failed=0
mode() { # name flag list members...
    name=$1 flag=$2; shift 2
    # shellcheck disable=SC2086
    if "$t/bench" $flag --quick --budget 0.001 --size 1 --json >"$t/$name.json" 2>"$t/out" && python3 - "$t/$name.json" "$@" <<'E2'
import json, sys
with open(sys.argv[1], encoding="utf-8") as f:
    data = json.load(f)
rows = data[sys.argv[2]]
assert rows and all(m in r for r in rows for m in sys.argv[3:]), sys.argv[2:]
assert all(data[m] for m in ("machine", "compiler", "flags", "commit"))
assert sys.argv[2] != "results" or set(data["memcpy_gbps"]) == {"l2", "dram"} and data["published"]
E2
    then echo "ok - bench: JSON of $name"; else echo "not ok - bench: JSON of $name"; head -n 5 "$t/out"; failed=1; fi
}
mode codecs '' results codec isa level dtype hashes where ratio compress_gbps decompress_gbps memcpy_gbps
mode kernels --kernels kernels kernel variant isa where gbps memcpy_gbps
mode sizes --sizes sizes isa bytes memcpy_us compress_us decompress_us
mode deltas --deltas deltas change where isa bits memcpy_gbps encode_gbps decode_gbps
mode threads --threads threads isa threads memcpy_gbps compress_gbps decompress_gbps
mode dtypes '--dtypes --isa scalar' dtypes dtype content isa level bytes compress_gbps compress_of_float decompress_gbps decompress_of_float
mode quantize --quantize quantize isa file cells columns bits memcpy_gbps compress_gbps decompress_gbps
head -c 200000 bitsnap.h >"$t/pages"
if make -s kv-build B="$t" CFLAGS='-O1 -DBITSNAP_NO_SIMD' WARN='-Wall -Wextra -Werror' >"$t/out" 2>&1 && [ ! -s "$t/out" ] &&
    "$t/kv_bench" f8_e4m3 4096 "$t/pages" >"$t/out" 2>&1 && grep -q '^| bitsnap' "$t/out"; then
    echo 'ok - bench: pages of a KV cache'
else
    echo 'not ok - bench: pages of a KV cache'; head -n 5 "$t/out"; failed=1
fi
if ! command -v gnuplot >/dev/null; then echo "skip - bench: pictures need gnuplot (Debian: gnuplot-nox)"; exit $failed; fi
if python3 bench/plots.py "$t" "$t/plots" >"$t/out" 2>&1 && ! grep -q warning "$t/out"; then
    echo "ok - bench: $(grep -c 'svg$' "$t/out") pictures"
else
    echo "not ok - bench: pictures"; head -n 5 "$t/out"; failed=1
fi
exit $failed
