#!/bin/sh
# The study in one go: trains, measures, draws. `make study` calls it.
#   study.sh TRAINER STUDY SCRATCH RESULTS [DATA [quick]]
# DATA: a directory with checkpoints, see study --help; empty: the trained ones only. Checkpoints in SCRATCH are used again
# if they are complete.
LC_ALL=C; export LC_ALL
if [ $# -lt 4 ]; then sed -n '2,5s/^# *//p' "$0"; exit 2; fi
trainer=$1 study=$2 scratch=$3 results=$4 data=$5 quick=$6
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$scratch" "$results" || exit 1

# Every 25th step, and the steps 1 and 5 after it.
steps=400; options=
if [ -n "$quick" ]; then steps=50; options='--layers 1 --dim 64 --context 32'; fi
saves=$(awk -v n=$steps 'BEGIN { for (b = 0; b < n; b += 25) printf "%d,%d,%d,", b, b + 1, b + 5; print n }')
if [ ! -f "$scratch/complete" ] || [ "$(cat "$scratch/complete")" != "$saves $options" ]; then
    echo "training $steps steps"
    rm -f "$scratch"/gpt-*.safetensors "$scratch/complete"
    root=$here/../..
    # shellcheck disable=SC2086
    "$trainer" --quiet --out "$scratch" --steps $steps --save "$saves" $options "$root/bitsnap.h" "$root/bitsnap_simd.h" \
        "$root"/docs/*.md "$root"/docs/examples/*.c "$root"/docs/examples/tool/*/*.c "$root"/tests/*/*.c || exit 1
    echo "$saves $options" >"$scratch/complete"
fi

weights=$scratch/gpt-$(printf %05d $steps)-model.safetensors
if [ -n "$data" ]; then
    for f in "$data"/bf16-2400.safetensors "$data"/bf16-*.safetensors; do if [ -f "$f" ]; then weights=$f; break; fi; done
fi
measure() { # mode from name
    "$study" "$1" "$2" ${quick:+--quick} --out "$scratch/$3.tsv" && mv "$scratch/$3.tsv" "$results/"
}
measure --steps "$scratch" study-steps && measure --rates "$weights" study-rates || exit 1
if [ -n "$data" ]; then measure --pairs "$data" study-pairs || exit 1; fi

if ! command -v gnuplot >/dev/null; then
    echo; echo "SKIP pictures: needs gnuplot (Debian: gnuplot-nox); the figures are in $results"; exit 0
fi
gnuplot -e "results='$results'" "$here/plots.gp" && echo && ls "$results"/study-*
