#!/bin/sh
# The study: it builds without a warning, every mode prints its figures, wrong usage is refused, and pictures can be drawn.
cd "$(dirname "$0")/../.." || exit 1
unset MAKEFLAGS MFLAGS MAKELEVEL
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
built=
for compiler in gcc clang; do
    if ! command -v $compiler >/dev/null; then echo "skip - study: needs $compiler"; continue; fi
    if make -s study-build B="$t" CC=$compiler CFLAGS=-O2 WARN='-Wall -Wextra -Werror' >"$t/out" 2>&1 && [ ! -s "$t/out" ]; then
        echo "ok - study: $compiler"; built=$compiler
    else
        echo "not ok - study: $compiler"; head -n 12 "$t/out"
    fi
done
if [ -z "$built" ]; then exit 1; fi
failed=0
check() { # name command...
    name=$1; shift
    if "$@" >"$t/out" 2>&1; then echo "ok - study: $name"; else echo "not ok - study: $name"; head -n 5 "$t/out"; failed=1; fi
}
refuses() { "$@" >/dev/null 2>&1; [ $? -eq 2 ]; }
check help sh -c "'$t/study' --help | grep -q examples"
check 'no mode' refuses "$t/study"
check 'two modes' refuses "$t/study" --steps a --rates b
check 'no such option' refuses "$t/study" --step a
make -s "$t/train_gpt" B="$t" CC=$built CFLAGS=-O2 >"$t/out" 2>&1 || { echo "not ok - study: the trainer"; exit 1; }
check run bench/study/study.sh "$t/train_gpt" "$t/study" "$t/run" "$t/results" '' quick
figures() { # file, tensors: each has rows, no row lacks a figure of bitsnap's or a counted one, and no delta is longer than what has no base
    awk -F'\t' -v wanted="$2" '/^#/ { next }
        $1 == "tensor" { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; next }
        NF != columns { bad = 1 }
        { seen[$1]++; n = split("full default best self fast mask", names, " "); for (i in names) if ($at[names[i]] == "-") bad = 1 }
        $at["over_plain"] != "-" && $at["over_plain"] > 200 { bad = 1 }
        END { n = split(wanted, names, " "); for (i in names) if (!seen[names[i]]) bad = 1; exit bad }' "$t/results/$1"
}
check 'figures of a training run' figures study-steps.tsv 'model master exp_avg exp_avg_sq'
check 'figures by rate' figures study-rates.tsv bf16
if make -s "$t/stages" B="$t" CC=$built CFLAGS=-O1 >"$t/out" 2>&1; then
    check 'choosing by the stage of training, beside fixed policies' bench/study/stages.sh "$t/stages" "$t/stages.run" "$t/results" quick
    check 'figures of stages' awk -F'\t' '/^#/ || $1 == "model" { next } NF != 9 || $5 <= 0 || $6 <= 0 || $7 <= 0 { bad = 1 } { rows++ } END { exit bad || rows != 108 }' "$t/results/study-stages.tsv"
else
    echo "not ok - study: stages"; head -n 5 "$t/out"; failed=1
fi
if ! command -v gnuplot >/dev/null; then echo "skip - study: pictures need gnuplot (Debian: gnuplot-nox)"; exit $failed; fi
check pictures sh -c "[ \$(ls '$t/results'/*.svg | wc -l) -eq 5 ] && ! grep -i warning '$t/out'"
exit $failed
