#!/bin/sh
# A run on several ranks that is killed repeatedly ends at the bits of an uninterrupted run on one rank.
#   CC=compiler KILLS=number of kills (6)
LC_ALL=C; export LC_ALL
[ "$(uname)" = Linux ] || { echo 'skip - crash: needs Linux'; exit; }
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
if ! command -v mpicc >/dev/null || ! command -v mpirun >/dev/null || ! command -v python3 >/dev/null; then
    echo 'skip - crash: needs libopenmpi-dev, openmpi-bin, python3'; exit
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 1
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_CC=${CC:-cc}; export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_CC
engine=$root/docs/examples/engine
tool=$root/docs/examples/tool
codec=$root/build/tests/engine_codec.o # made by make test
[ -f "$codec" ] && cp "$codec" codec.o || ${CC:-cc} -std=c99 -Og -w -I"$root" -c "$engine/codec.c" -o codec.o || exit 1
for part in "$engine/bitsnap_engine" "$engine/engine_disk" "$engine/engine_store" "$tool/store/manifest" "$tool/store/store" "$tool/console/json" "$tool/console/fault" "$tool/system/paths"; do
    ${CC:-cc} -std=c99 -O1 -w -I"$root" -c "$part.c" -o "$(basename "$part").o" || exit 1
done
objects='codec.o bitsnap_engine.o engine_disk.o engine_store.o manifest.o store.o json.o fault.o paths.o'
# shellcheck disable=SC2086
if ! ${CC:-cc} -std=c99 -O1 -w -I"$root" "$engine/engine_agent.c" $objects -o engine -lpthread ||
   ! ${CC:-cc} -std=c99 -O2 -w "$root/docs/examples/train_gpt.c" -o train_gpt -lm -lpthread ||
   ! mpicc -std=c99 -O2 -w -DTRAIN_MPI -I"$root" "$root/docs/examples/train_gpt.c" "$engine/engine_mpi.c" $objects -o train_mpi -lm -lpthread; then
    echo 'not ok - crash: does not build'; exit 1
fi
failed=0
check() { # name command...
    name=$1; shift
    if "$@" >out 2>&1; then echo "ok - crash: $name"; else echo "not ok - crash: $name ($(tail -n 1 out))"; failed=1; fi
}
options="--quiet --steps 12 --layers 2 --dim 32 --context 32 --batch 6 $root/tests/unit/test.h"
same() { for kind in model master exp_avg exp_avg_sq; do cmp "$1/gpt-00012-$kind.safetensors" "$2/gpt-00012-$kind.safetensors" || return 1; done; }
# shellcheck disable=SC2086
check 'one rank' ./train_gpt --out one $options
for ranks in 2 3; do
    # shellcheck disable=SC2086
    check "$ranks ranks" mpirun --oversubscribe -n $ranks ./train_mpi --threads 1 --out $ranks $options
    check "$ranks ranks have the same bits" same one $ranks
done
# a run of four ranks continues with three, and with one
run=crash-test-$$
listed() { for rank in 0 1 2 3; do grep -q '"step":6,' "disk/$run.$rank.store/manifest.json" || return 1; done; }
until_listed() { i=0; until listed; do i=$((i + 1)); [ $i -lt 100 ] || return 1; sleep 0.1; done; }
end_agents() {
    for rank in 0 1 2 3; do
        pid=$(./engine status $run.$rank 2>/dev/null | sed -n 's/.*, agent \([0-9]*\)$/\1/p')
        [ -z "$pid" ] || kill "$pid"
    done
    i=0
    while [ $i -lt 50 ] && ./engine status 2>/dev/null | grep -q "^$run.*agent"; do i=$((i + 1)); sleep 0.1; done
    for rank in 0 1 2 3; do ./engine remove $run.$rank 2>/dev/null; done
}
with="--engine $run --engine-program ./engine --engine-disk disk --engine-budget 8"
# shellcheck disable=SC2086
check '4 ranks to step 6' mpirun --oversubscribe -n 4 ./train_mpi --threads 1 --out half $with --until 6 $options
check 'their files are there' until_listed
cp -r disk kept
for ranks in 3 1; do
    # shellcheck disable=SC2086
    check "$ranks ranks go on" mpirun --oversubscribe -n $ranks ./train_mpi --threads 1 --out "on$ranks" $with $options
    cp out said
    check "$ranks ranks go on from there" grep -q 'rank 0: step 6 from disk' said
    check "$ranks ranks end at the same bits" same one "on$ranks"
    end_agents
    rm -rf disk; cp -r kept disk
done
check 'help' sh -c './train_mpi --help | grep -q -e "--engine-policy"'
check "killed ${KILLS:-6} times" python3 "$engine/crash_demo.py" ./train_mpi ./engine crash --kills "${KILLS:-6}" "$root/tests/unit/test.h" "$root/tests/unit/data.h"
cp out table
check 'killed 3 times, with parity' python3 "$engine/crash_demo.py" ./train_mpi ./engine crash --kills 3 --seed 3 --group 4 "$root/tests/unit/test.h" "$root/tests/unit/data.h"
check 'it says what that took' grep -q 'recovery from memory' table

exit $failed
