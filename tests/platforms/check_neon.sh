#!/bin/sh
# The NEON table under qemu: the tests of kernels, those of what stands next to them, and the frozen bytes (tests/format/bytes.txt). And
# who must not get it: big-endian AArch64, machines without vectors, and those who ask for no table. make check runs what gcc -O2 makes,
# NIGHTLY=1 what gcc -O3 and clang make, too.
cd "$(dirname "$0")/../.." || exit 1
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
cross=aarch64-linux-gnu-gcc emulator=qemu-aarch64-static
if ! command -v $cross >/dev/null; then echo "skip - neon: needs gcc-aarch64-linux-gnu libc6-dev-arm64-cross"; exit; fi
if ! command -v $emulator >/dev/null; then echo "skip - neon: needs qemu-user-static"; exit; fi
unset LONG # programs that are slow on purpose run the short lengths
warnings='-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Wcast-align -Wpointer-arith -Wwrite-strings -Wvla -Werror'
headers=$(for d in /usr/aarch64-linux-gnu/include "$($cross -print-sysroot)/usr/include"; do [ -f "$d/stdint.h" ] && echo "$d" && break; done)
clang="clang --target=aarch64-linux-gnu -isystem $headers"
printf '#define BITSNAP_IMPLEMENTATION\n#include "bitsnap_simd.h"\n' >"$t/implemented.c"
printf '#define BITSNAP_IMPLEMENTATION\n#include "bitsnap_simd.h"\n#ifndef BITSNAP_SIMD_NEON\n#error left out\n#endif\n' >"$t/has.c"

strict() { # name, compiler...
    name=$1; shift
    case $name in gcc) code=-O0 ;; *) code=-fsyntax-only ;; esac # clang warns without making code
    for options in "-x c -std=c99 $code" '-x c++ -std=c++11 -fsyntax-only' '-x c++ -std=c++20 -fsyntax-only'; do
        case "$name $options" in gcc*c++*) command -v aarch64-linux-gnu-g++ >/dev/null || continue ;; esac
        # shellcheck disable=SC2086
        "$@" $options $warnings -I. -c "$t/implemented.c" -o /dev/null >"$t/out" 2>&1 ||
            { echo "not ok - neon: $name $options warns"; head -n 12 "$t/out"; return; }
    done
    echo "ok - neon: $name has nothing to warn about"
}

printf '#define BITSNAP_IMPLEMENTATION\n#include "bitsnap.h"\n' >"$t/portable.c"
for f in portable implemented; do $cross -include arm_neon.h -I. -dM -E "$t/$f.c" | awk '$2 ~ /^BSN_/ {print $2}' | sort >"$t/$f"; done
left=$(comm -13 "$t/portable" "$t/implemented" | tr '\n' ' ')
if [ -s "$t/portable" ] && [ -z "$left" ]; then echo "ok - neon: no macro stays"; else echo "not ok - neon: macros stay: $left"; fi

mkdir "$t/be" "$t/be/gnu" && : >"$t/be/gnu/stubs-lp64_be.h" # all that the C library's headers lack for big-endian
without() { # name, command that must say "left out"
    name=$1; shift
    if "$@" -isystem "$t/be" -w -I. -fsyntax-only "$t/has.c" 2>&1 | grep -q 'left out'; then echo "ok - neon: not for $name"; else echo "not ok - neon: not for $name"; fi
}

suite() { # name, compiler...
    name=$1; shift
    # shellcheck disable=SC2086
    if ! "$@" -w -I. -c tests/unit/codec.c -o "$t/codec.o" >"$t/out" 2>&1 ||
        ! $cross -std=c99 -w -I. -static tests/unit/inside.c "$t/codec.o" -o "$t/inside" -lpthread -lm >>"$t/out" 2>&1; then
        echo "not ok - neon: $name does not compile"; head -n 12 "$t/out"; return
    fi
    for test in test_kernels parts; do
        ln -f "$t/inside" "$t/$test"
        $emulator "$t/$test" >"$t/out" 2>&1
        status=$?
        if [ $status -eq 0 ] && ! grep -q '^not ok\|^skip.*neon' "$t/out"; then echo "ok - neon: $name, $test"
        else echo "not ok - neon: $name, $test (status $status)"; grep -v '^ok' "$t/out" | head -n 12; fi
    done
    ln -f "$t/inside" "$t/bytes"
    for table in 0 1; do
        if $emulator "$t/bytes" $table | cmp -s - tests/format/bytes.txt; then echo "ok - neon: $name, the frozen bytes, table $table"
        else echo "not ok - neon: $name, the frozen bytes, table $table"; fi
    done
}

strict gcc $cross
without 'big-endian machines, gcc' $cross -mbig-endian
without 'BITSNAP_NO_SIMD' $cross -DBITSNAP_NO_SIMD
without 'machines without vectors' $cross -march=armv8-a+nosimd
suite 'gcc -O2' $cross -std=c99 -O2
[ -z "$NIGHTLY" ] || suite 'gcc -O3' $cross -std=c99 -O3
if ! command -v clang >/dev/null || [ -z "$headers" ]; then echo "skip - neon: needs clang"; exit; fi
# shellcheck disable=SC2086
{
strict clang $clang
without 'big-endian machines, clang' clang --target=aarch64_be-linux-gnu -isystem "$headers"
[ -z "$NIGHTLY" ] || suite 'clang -O2' $clang -std=c99 -O2
}
