#!/bin/sh
# Machines of 32 bits, by the processor at hand: unit tests, the fuzz targets without a fuzzer, and a file there and back by the
# tool. Portable code; the kernels are for 64 bits.
cd "$(dirname "$0")/../.." || exit 1
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
# gcc-12-multilib leaves out a folder of headers that gcc-multilib has, which cannot be installed beside cross compilers
cc=
printf '#include <errno.h>\n#include <stdio.h>\nint main(void) { return puts("") < 0; }\n' >"$t/a.c"
for compiler in gcc gcc-12; do
    [ -n "$cc" ] || { command -v $compiler >/dev/null || continue; cc="$compiler -m32 -idirafter /usr/include/$($compiler -print-multiarch)"; }
    $cc "$t/a.c" -o "$t/a" 2>/dev/null && "$t/a" >"$t/out" || cc=
done
[ -n "$cc" ] || { echo 'skip - m32: gcc -m32 needs gcc-12-multilib'; exit; }
flags='-O1 -w -I. -DBITSNAP_NO_SIMD'
unset LONG # programs that are slow on purpose run the short lengths
# shellcheck disable=SC2086
$cc -std=c99 $flags -c tests/unit/codec.c -o "$t/tests.o" && $cc -std=c99 $flags tests/unit/inside.c "$t/tests.o" -o "$t/test_frame" -lpthread -lm &&
    ln "$t/test_frame" "$t/test_delta" && $cc -std=c99 $flags tests/unit/test_quantize.c "$t/tests.o" -o "$t/test_quantize" -lpthread -lm ||
    { echo 'not ok - m32: the unit tests do not compile'; head -n 20 "$t/out"; }
for name in test_frame test_delta test_quantize; do
    if "$t/$name" >"$t/out" 2>&1 && ! grep -q '^not ok' "$t/out"; then echo "ok - m32: $name"
    else echo "not ok - m32: $name"; grep -v '^ok' "$t/out" | head -n 20; fi
done
CC=$cc CFLAGS=$flags LIB_FUZZING_ENGINE='' OUT="$t/fuzz" WORK="$t" fuzz/build.sh frame delta files safetensors list info sparse >"$t/out" 2>&1 ||
    { echo "not ok - m32: fuzz/build.sh fails"; head -n 20 "$t/out"; }
for target in frame delta files safetensors list info sparse; do
    mkdir "$t/seeds-$target"
    FUZZ_SEEDS="$t/seeds-$target" "$t/fuzz/$target"
    if "$t/fuzz/$target" -m 50 "$t/seeds-$target"/* >"$t/out" 2>&1; then echo "ok - m32: replay $target"
    else echo "not ok - m32: replay $target"; head -n 20 "$t/out"; fi
done
# shellcheck disable=SC2086
$cc -std=c99 $flags docs/examples/tool/main.c docs/examples/tool/*/*.c "$t/codec.o" -o "$t/bitsnap" -lpthread || { echo 'not ok - m32: the tool does not compile'; exit; }
head -c 3000000 bitsnap.h >"$t/x"
if "$t/bitsnap" compress -q --dtype I8 -o "$t/x.bsnap" "$t/x" && "$t/bitsnap" decompress -q -o "$t/y" "$t/x.bsnap" && cmp "$t/x" "$t/y"; then
    echo 'ok - m32: the tool'
else echo 'not ok - m32: the tool'; fi
