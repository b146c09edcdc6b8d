#!/bin/sh
# Runs fuzz targets under libFuzzer, one after the other, and reports the results. Corpora and artifacts of findings are in
# build/corpus; later runs of any build continue from the corpora. Each run adds a line to build/fuzz/soak.log; `sums` adds
# the lines up.
#   fuzz/soak.sh BUILD SECONDS TARGET...    BUILD: fast or checked, as `make` has built them
#   fuzz/soak.sh sums
cd "$(dirname "$0")/.." || exit 1
log=build/fuzz/soak.log
line='%-12s %-8s %12s %9s %8s %7s %7s %12s %9s\n'
# shellcheck disable=SC2059
title() { printf "$line" target build executions 'a second' corpus edges new 'the last at' findings; }
if [ "$1" = sums ]; then
    title
    sort -s -k 1,2 "$log" | awk -v line="$line" '
        function put() { if (id) { split(id, a, " "); printf line, a[1], a[2], runs, int(runs / seconds), corpus, edges, edges - first, last, bad } }
        { if ($1 " " $2 != id) { put(); id = $1 " " $2; runs = seconds = bad = last = 0; first = $6 }
          if ($7 > $6) last = runs + $8
          runs += $3; seconds += $4; corpus = $5; edges = $7; bad += $9; all += $3; found += $9 }
        END { put(); printf line, "all", "", all, "", "", "", "", "", found }'
    exit
fi
build=$1 seconds=$2
shift 2
mkdir -p build/corpus
out=$(mktemp) && trap 'rm -rf "$out" "$out.seeds"' EXIT
title
failed=0
for target; do
    corpus=build/corpus/$target program=build/fuzz/$build/$target
    rm -rf "$out.seeds" && mkdir -p "$corpus" "$out.seeds"
    FUZZ_SEEDS=$out.seeds "$program" 2>/dev/null
    "$program" -max_total_time="$seconds" -max_len=8192 -timeout=25 -rss_limit_mb=2048 -reload=0 -dict="$program.dict" \
        -print_final_stats=1 -artifact_prefix="build/corpus/$target-" "$corpus" "$out.seeds" >"$out" 2>&1
    status=$?
    # target, build, executions, seconds, corpus, edges before, edges after, execution that found the last one, findings
    awk -v target="$target" -v build="$build" -v seconds="$seconds" -v status="$status" '
        /^#[0-9]+/ { for (i = 2; i < NF; i++) { if ($i == "cov:" && $(i + 1) > cov) { cov = $(i + 1); at = substr($1, 2) }
                                                if ($i == "corp:") { split($(i + 1), c, "/"); corpus = c[1] } } }
        /INITED/ { before = cov; at = 0 }
        /^stat::number_of_executed_units/ { runs = $2 }
        END { print target, build, runs + 0, seconds, corpus + 0, before + 0, cov + 0, at + 0, status != 0 }' "$out" >>"$log"
    tail -n 1 "$log" | awk -v line="$line" '{ printf line, $1, $2, $3, int($3 / $4), $5, $7, $7 - $6, $8, $9 }'
    [ $status -eq 0 ] || { failed=1; grep -E 'broken|ERROR|runtime error|Test unit' "$out"; tail -n 20 "$out"; }
done
exit $failed
