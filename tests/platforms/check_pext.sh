#!/bin/sh
# AVX2 on machines whose pdep and pext are slow (AMD before Zen 3): its kernels take other ways there. On any machine with AVX2,
# with the question for pext answered no: each kernel against the scalar one, and the frozen bytes.
cd "$(dirname "$0")/../.." || exit 1
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
unset LONG # programs that are slow on purpose run the short lengths
name='AVX2 without pext'
grep -qw avx2 /proc/cpuinfo 2>/dev/null || { echo "skip - $name: needs AVX2"; exit; }
sed -e 's/ has |= BSN_HAS_BMI2;/ has |= 0;/' bitsnap_simd.h >"$t/bitsnap_simd.h"
[ "$(diff bitsnap_simd.h "$t/bitsnap_simd.h" | grep -c '^>')" = 1 ] ||
    { echo "not ok - $name: bitsnap_simd.h has changed where it is patched"; exit; }
cp bitsnap.h "$t"
${CC:-cc} -D_GNU_SOURCE -std=c99 -O1 -w -DBITSNAP_NO_AVX512 -I"$t" -I. tests/unit/codec.c tests/unit/inside.c -o "$t/bytes" -lpthread -lm \
    >"$t/compiled" 2>&1
ln "$t/bytes" "$t/test_kernels"; ln "$t/bytes" "$t/test_delta"
for test in test_kernels test_delta 'bytes 0' 'bytes 1'; do
    "$t/"$test >"$t/out" 2>&1
    status=$?
    case $test in
    bytes*) cmp -s "$t/out" tests/format/bytes.txt || status=1 ;;
    *) grep -q '^not ok\|^skip.*avx2' "$t/out" && status=1 ;;
    esac
    if [ $status = 0 ]; then echo "ok - $name, $test"
    else echo "not ok - $name, $test"; cat "$t/compiled"; grep -v '^ok' "$t/out" | head -n 20; fi
done
