#!/bin/sh
# The fuzz targets without libFuzzer: their seeds, prefixes and mutations of them, under the address and undefined behaviour
# sanitizers where the compiler has them; and what a fuzzer has found meanwhile (build/corpus).
cd "$(dirname "$0")/.." || exit 1
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
cc=${CC:-cc}
sanitize=-fsanitize=address,undefined
printf 'int main(void) { return 0; }\n' >"$t/a.c"
$cc $sanitize "$t/a.c" -o "$t/a" 2>/dev/null && "$t/a" || sanitize=
compile="$cc -std=c99 -O1 -g1 $sanitize -fno-sanitize-recover=undefined -w -I."
$compile -c fuzz/codec.c -o "$t/codec.o" || { echo "not ok - replay: codec.c does not compile"; exit; }
for source in fuzz/*.c; do
    target=$(basename "$source" .c)
    case $target in codec | replay) continue ;; esac
    more=; mutations=400
    grep -q "^size_t fuzz_${target}_seed" "$source" && more=-DSEEDS=fuzz_${target}_seed # seeds of its own
    [ "$target" = round_trip ] && mutations=30
    # shellcheck disable=SC2086
    $compile $more "$source" fuzz/replay.c "$t/codec.o" -o "$t/$target" ||
        { echo "not ok - replay $target does not compile"; continue; }
    mkdir "$t/seeds-$target"
    "$t/$target" -s "$target" "$t/seeds-$target" || { echo "not ok - replay $target: no seeds"; continue; }
    if "$t/$target" -m $mutations "$t/seeds-$target"/* >"$t/out" 2>"$t/err"; then sed "s|$t/||" "$t/out"
    else echo "not ok - replay $target"; head -n 20 "$t/err"; fi
    if ls "build/corpus/$target/"* >/dev/null 2>&1; then
        if "$t/$target" -m 0 "build/corpus/$target"/* >"$t/out" 2>"$t/err"; then echo "ok - replay $target: corpus of the fuzzer"
        else echo "not ok - replay $target: corpus of the fuzzer"; head -n 20 "$t/err"; fi
    fi
done
