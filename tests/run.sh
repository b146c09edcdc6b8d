#!/bin/sh
# Runs test programs and sums up their lines: "ok - ...", "not ok - ...", "skip - ...". A program that ends with
# another status than 0, or says nothing, is a failure of its own. The last line is the sum.
#   tests/run.sh [--into FILE] PROGRAM...      FILE: lines are appended there, for a later sum
#   tests/run.sh --sum FILE
LC_ALL=C; export LC_ALL
log=
if [ "$1" = --sum ]; then
    sum=$2; shift 2
else
    if [ "$1" = --into ]; then log=$2; shift 2; fi
    sum=$(mktemp) || exit 1
    trap 'rm -f "$sum" "$sum.one"' EXIT
    for program in "$@"; do
        "$program" >"$sum.one" 2>&1
        status=$?
        grep -E '^(ok|skip) - ' "$sum.one" | grep '^skip' # what is fine needs no line; what is skipped does
        if [ $status -ne 0 ] || ! grep -qE '^(ok|not ok|skip) - ' "$sum.one"; then
            echo "not ok - $program: exit status $status" >>"$sum.one"
        fi
        if grep -q '^not ok' "$sum.one"; then cat "$sum.one"; fi
        cat "$sum.one" >>"$sum"
    done
    if [ -n "$log" ]; then cat "$sum" >>"$log"; fi
fi
passed=$(grep -c '^ok - ' "$sum"); failed=$(grep -c '^not ok - ' "$sum"); skipped=$(grep -c '^skip - ' "$sum")
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
