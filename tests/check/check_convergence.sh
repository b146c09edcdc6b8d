#!/bin/sh
# bench/convergence: a toy run has all figures, and lossless restores end at the same bits. The table of forms has bounded errors
# where expected. Wrong usage is refused. Pictures can be drawn.
cd "$(dirname "$0")/../.." || exit 1
unset MAKEFLAGS MFLAGS MAKELEVEL
for python in python3 /usr/bin/python3 ''; do
    if [ -n "$python" ] && $python -c 'import numpy' 2>/dev/null; then break; fi
done
if [ -z "$python" ]; then echo "skip - convergence: needs numpy (Debian: python3-numpy)"; exit 0; fi
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
make -s "$t/train_gpt" "$t/bitsnap" B="$t" CFLAGS=-O2 >"$t/out" 2>&1 || { echo "not ok - convergence: trainer and tool"; exit 1; }
failed=0
check() { # name command...
    name=$1; shift
    if "$@" >"$t/out" 2>&1; then echo "ok - convergence: $name"; else echo "not ok - convergence: $name"; tail -n 5 "$t/out"; failed=1; fi
}
refuses() { "$@" >/dev/null 2>&1; [ $? -eq 2 ]; }
export PYTHONDONTWRITEBYTECODE=1
driver="$python bench/convergence/convergence.py" forms="$python bench/convergence/quantizers.py"
check help sh -c "$driver --help | grep -q '^Example' && $forms --help | grep -q '^Example'"
check 'no files' refuses $driver
check 'no such option' refuses $driver a b c d --slow
check 'steps that cannot be divided' refuses $driver a b c d --first 7
check run $driver "$t/train_gpt" "$t/bitsnap" "$t/run" "$t/results" --quick
cp "$t/out" "$t/said"
check 'no warnings' sh -c "! grep -i warning '$t/said'"
check 'lossless restores end at the same bits' grep -q '^PASS: lossless' "$t/said"
state=$t/run/seed-1/gpt-00020
check forms $forms "$t/bitsnap" "$state-exp_avg.safetensors" "$state-exp_avg_sq.safetensors" "$t/results" --step 20
figures() { # file, least number of rows, columns that may lack a figure: the others have one in each row
    awk -F'\t' -v least="$2" -v may="$3" '/^#/ { next }
        !columns { for (i = 1; i <= NF; i++) name[i] = $i; columns = NF; next }
        NF != columns { bad = 1 }
        { rows++; for (i = 2; i <= NF; i++) if ($i !~ /^[-+0-9.e]+$/ || ($i == "-" && index(may, name[i]) == 0)) { print name[i]; bad = 1 } }
        END { exit bad || rows < least }' "$t/results/$1"
}
check 'figures of the runs' figures convergence.tsv 20 'm_huffman v_huffman loss loss_difference loss_in_spreads loss_worst distance'
check 'figures of the forms' figures quantizers.tsv 12 ''
check 'what is no file of moments' sh -c "! $forms '$t/bitsnap' '$t/said' '$t/said' '$t/results' 2>'$t/err' && grep -q 'not a safetensors file' '$t/err'"
column() { awk -F'\t' -v row="$2" -v wanted="$3" '/^#/ { next } !at { for (i = 1; i <= NF; i++) if ($i == wanted) at = i; next } index($1, row) == 1 { print $at; exit }' "$t/results/$1"; }
below() { awk -v x="$1" -v most="$2" 'BEGIN { exit !(x != "" && x + 0 <= most) }'; }
check 'resume: no element of m off by more than 0.5 %' below "$(column quantizers.tsv resume m_max)" 0.00496
check 'resume: no element of v off by more than 1 %' below "$(column quantizers.tsv resume v_max)" 0.00991
check 'small: no element of m off by more than 4.4 %' below "$(column quantizers.tsv small m_max)" 0.0434
if ! command -v gnuplot >/dev/null; then echo "skip - convergence: pictures need gnuplot (Debian: gnuplot-nox)"; exit $failed; fi
check pictures sh -c "[ \$(ls '$t/results'/*.svg | wc -l) -eq 2 ]"
exit $failed
