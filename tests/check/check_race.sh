#!/bin/sh
# Runs tests/unit/test_race.c for longer than `make test`: SECONDS (20) with every table of kernels and a second thread that
# changes bytes. Then runs it twice for half that time with loads traced by clang, so that bytes change between two loads:
# alone, and under the address and undefined behaviour sanitizers. Then runs the threads of the engine, including ranks, under
# the thread sanitizer. For an hour: RACE=1800 tests/check/check_race.sh. That hour has all cases of the engine except the one
# with an intended race.
cd "$(dirname "$0")/../.." || exit 1
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
seconds=${RACE:-20} RACE_SEED=${RACE_SEED:-$(date +%s)}
export RACE_SEED
report() { # name, seconds, program
    if RACE_SECONDS=$2 "$3" >"$t/out" 2>&1; then echo "ok - race: $1,$(sed -n 's/^#//p' "$t/out")"
    else echo "not ok - race: $1 (RACE_SEED=$RACE_SEED)"; head -n 30 "$t/out"; fi
}
trace() { # name, options...
    name=$1; shift
    if clang -std=c99 -O1 -g1 -w -DBITSNAP_IMPLEMENTATION -DBITSNAP_NO_SIMD -DRACE_TRACED -fsanitize-coverage=func,trace-loads "$@" -I. tests/unit/test_race.c \
        -o "$t/race" -lpthread -lm 2>"$t/out"
    then report "$name" $((seconds / 2)) "$t/race"
    else echo "not ok - race: $name does not compile"; head -n 5 "$t/out"; fi
}
program=build/tests/test_race
[ -x $program ] || { program=$t/all; ${CC:-cc} -std=c99 -O2 -w -DBITSNAP_IMPLEMENTATION -I. tests/unit/test_race.c -o $program -lpthread -lm || exit 1; }
report 'a second thread, all tables of kernels' "$seconds" "$program"
printf 'void __sanitizer_cov_load4(void *p) { (void)p; }\nint main(int c, char **v) { (void)v; return c - 1; }\n' >"$t/a.c"
if command -v clang >/dev/null && clang -O1 -fsanitize-coverage=func,trace-loads "$t/a.c" -o "$t/a" 2>/dev/null && "$t/a"; then
    trace 'traced loads'
    if clang -fsanitize=address,undefined "$t/a.c" -o "$t/a" 2>/dev/null && "$t/a"; then
        trace 'traced loads, sanitizers' -fsanitize=address,undefined -fno-sanitize-recover=undefined
    else
        echo 'skip - race: traced loads, sanitizers: libclang-rt-dev'
    fi
else
    echo 'skip - race: traced loads: clang'
fi
name='race: the engine under the thread sanitizer'
if ! ${CC:-cc} -fsanitize=thread -x c - -o "$t/a" 2>/dev/null <<END || ! "$t/a"; then echo "skip - $name: needs gcc (its libtsan)"; exit; fi
int main(void) { return 0; }
END
NOT='round_trip deltas follows_the_stage budget_is_enough moments_within_bounds does_not_fit killed damaged changing contents_of_anything
    read_meanwhile large_tensors partners damaged_at_others damaged_file passing_faults left_out late_ranks from_devices refusals anchors_in_time levels
    bounds_follow_updates wrong_headers manifests partner_starves'
[ "$seconds" -le 20 ] || NOT=changing
export NOT
${CC:-cc} -std=c99 -O1 -g1 -w -DELEMENTS=60000 -DBITSNAP_IMPLEMENTATION -DBITSNAP_NO_SIMD -fsanitize=thread -I. tests/engine/test_engine.c -o "$t/engine" -lpthread -lm || exit 1
if "$t/engine" >"$t/out" 2>&1; then echo "ok - $name"; else echo "not ok - $name"; grep -v '^ok' "$t/out" | head -n 30; fi
