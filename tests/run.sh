#!/bin/sh
# Runs test programs, as many at a time as there are processors (JOBS=n: n), and sums up their lines: "ok - ...",
# "not ok - ...", "skip - ...". A program that ends with another status than 0, or says nothing, is a failure of its own.
# Before the sum, which is the last line, come the ten that took longest.
#   tests/run.sh PROGRAM...
LC_ALL=C; export LC_ALL
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out" "$out.times"' EXIT
trap 'exit 1' HUP INT TERM
export out
printf '%s\n' "$@" | xargs -P "${JOBS:-$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)}" -I '{}' sh -c '
    one="$out/$(basename "$1")"
    start=$(date +%s)
    "$1" >"$one" 2>&1
    status=$?
    if [ $status -ne 0 ] || ! grep -qE "^(ok|not ok|skip) - " "$one"; then echo "not ok - $1: exit status $status" >>"$one"; fi
    if grep -q "^not ok" "$one"; then cat "$one"; else grep "^skip - " "$one"; fi # what is fine needs no line
    echo "$(($(date +%s) - start)) s  $1" >>"$out.times"
    exit 0' sh '{}'
cat "$out"/* >"$out/sum"
sort -rn "$out.times" | head -n 10
passed=$(grep -c '^ok - ' "$out/sum"); failed=$(grep -c '^not ok - ' "$out/sum"); skipped=$(grep -c '^skip - ' "$out/sum")
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
