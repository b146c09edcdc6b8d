#!/bin/sh
# 1,000 random schedules of events in a run of the engine (tests/engine/test_schedules.c). The day gives the seed. COUNT=number,
# SEED=first.
cd "$(dirname "$0")/../.." || exit 1
[ "$(uname)" = Linux ] || { echo 'skip - schedules: needs Linux'; exit; }
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
${CC:-cc} -std=c99 -O1 -w -DBITSNAP_IMPLEMENTATION -I. tests/engine/test_schedules.c -o "$t/schedules" -lpthread -lm || { echo 'not ok - schedules: does not build'; exit 1; }
COUNT=${COUNT:-1000} SEED=${SEED:-$(date +%Y%m%d)000} "$t/schedules"
