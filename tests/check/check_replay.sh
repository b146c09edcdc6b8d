#!/bin/sh
# Runs the fuzz targets without a fuzzer, on their seeds, on prefixes and mutations of them, and on what a fuzzer has found
# (build/corpus). Uses the address and undefined behaviour sanitizers if the compiler has them.
cd "$(dirname "$0")/../.." || exit 1
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
cc=${CC:-cc}
sanitize='-fsanitize=address,undefined -fno-sanitize-recover=undefined'
printf 'int main(void) { return 0; }\n' >"$t/a.c"
# shellcheck disable=SC2086
$cc $sanitize "$t/a.c" -o "$t/a" 2>/dev/null && "$t/a" || sanitize=
# as in check_sanitize.sh: -Og and no AVX-512 each take half of the time that compiling takes
CC=$cc CFLAGS="-Og -g1 $sanitize -DBITSNAP_NO_AVX512 -w" OUT=$t LIB_FUZZING_ENGINE='' fuzz/build.sh >"$t/out" 2>&1 ||
    { echo "not ok - replay: fuzz/build.sh fails"; head -n 20 "$t/out"; exit; }
for source in fuzz/*.c; do
    target=$(basename "$source" .c)
    case $target in codec | replay) continue ;; round_trip) mutations=30 ;; *) mutations=300 ;; esac
    [ -x "$t/$target" ] || { echo "skip - replay $target: $cc does not trace loads, as clang does"; continue; }
    mkdir "$t/seeds-$target"
    FUZZ_SEEDS="$t/seeds-$target" "$t/$target"
    if "$t/$target" -m $mutations "$t/seeds-$target"/* >"$t/out" 2>"$t/err"; then sed "s|$t/||" "$t/out"
    else echo "not ok - replay $target"; head -n 20 "$t/err"; fi
    if ls "build/corpus/$target/"* >/dev/null 2>&1; then
        if "$t/$target" -m 0 "build/corpus/$target"/* >"$t/out" 2>"$t/err"; then echo "ok - replay $target: corpus of the fuzzer"
        else echo "not ok - replay $target: corpus of the fuzzer"; head -n 20 "$t/err"; fi
    fi
done
