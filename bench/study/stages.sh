#!/bin/sh
# What choosing by the stage of training is worth, over whole runs of three architectures. `make study-stages` calls it.
#   stages.sh STAGES SCRATCH RESULTS [quick]
# RESULTS gets study-stages.tsv, -policies.tsv, .md and .svg. Fails where what is chosen takes more than 2 % more bytes than the best fixed policy of the
# run in hindsight (quick: 5 %, as beginnings weigh more).
LC_ALL=C; export LC_ALL
if [ $# -lt 3 ]; then sed -n '2,5s/^# *//p' "$0"; exit 2; fi
stages=$1 scratch=$2 results=$3 quick=$4
here=$(cd "$(dirname "$0")" && pwd) && root=$here/../..
mkdir -p "$scratch" "$results" && results=$(cd "$results" && pwd) || exit 1
options='--steps 300 --layers 2 --context 64' most=2
if [ -n "$quick" ]; then options='--steps 60 --layers 1 --dim 64 --context 32' most=5; fi
for model in gpt gated moe; do
    # shellcheck disable=SC2086
    "$stages" "$scratch/steps.$model" "$scratch/policies.$model" --quiet $options --save 0 --model $model --out "$scratch/checkpoints" \
        "$root/bitsnap.h" "$root/bitsnap_simd.h" "$root"/docs/*.md 2>"$scratch/log.$model" || { tail -n 3 "$scratch/log.$model"; exit 1; }
done
cd "$scratch" || exit 1
made="# train_gpt $options, without text and machine: see study-steps.tsv"
[ -z "$MACHINE" ] || made="# train_gpt $options; $MACHINE"
{ echo "# means of 5 steps; ms: of the processor; deltas: per cent of pieces; cells: of first moments"; echo "$made"
  printf 'model\tset\tstep\tbytes\tof_raw\tms\tmemcpy_ms\tdeltas\tcells\n'; cat steps.gpt steps.gated steps.moe; } >"$results/study-stages.tsv"
{ echo "# bytes of a run; of_raw: mean of a step; below: per cent of elements and steps whose floor a bound does not keep"; echo "$made"
  printf 'model\tset\tpolicy\tbytes\tof_raw\tbelow\n'; cat policies.gpt policies.gated policies.moe; } >"$results/study-stages-policies.tsv"
awk -F'\t' -v most=$most '
    /^#/ || $1 == "model" { next }
    { run = $1 SUBSEP $2; if (!(run in chosen)) order[++runs] = run }
    $3 == "chosen" { chosen[run] = $4; share[run] = $5; below[run] = $6; next }
    $3 ~ /^fast, anchors each 1(,|$)/ && ($2 != "moments" || $3 ~ / 70 cells/) { plain[run] = $4 }
    $2 == "moments" && $6 > 0 { if (!(run in loose) || $4 < loose[run]) loose[run] = $4; next }
    !(run in least) || $4 < least[run] { least[run] = $4; best[run] = $3 }
    END {
        print "# Choosing by the stage of training, beside the best fixed policy in hindsight\n\n" substr("'"$made"'", 3) ". Bytes that a step adds, as a part of the raw ones.\n"
        print "| model | tensors | chosen | over the best fixed | which is | level fast, always whole | below the floor |\n|---|---|--:|--:|---|--:|--:|"
        for (i = 1; i <= runs; i++) {
            r = order[i]; split(r, name, SUBSEP); over = 100 * (chosen[r] / least[r] - 1); bad += over > most
            printf "| %s | %s | %.3f | %+.2f %% | %s | %.3f | %s |\n", name[1], name[2], share[r], over, best[r], share[r] * plain[r] / chosen[r],
                name[2] == "moments" ? below[r] " %" : ""
        }
        exit bad > 0
    }' "$results/study-stages-policies.tsv" >"$results/study-stages.md"
status=$?
cat "$results/study-stages.md"
[ $status -eq 0 ] || echo "stages.sh: more than $most % over the best fixed policy"
if ! command -v gnuplot >/dev/null; then echo "SKIP picture: needs gnuplot (Debian: gnuplot-nox); the figures are in $results"; exit $status; fi
gnuplot -e "results='$results'" "$here/stages.gp" || exit 1
exit $status
