#!/bin/sh
# The table of kernels for AVX-512 on any machine with AVX2, its intrinsics in C (tests/platforms/avx512.h): each kernel against the
# scalar one, and the frozen bytes, under the address and undefined behaviour sanitizers.
cd "$(dirname "$0")/../.." || exit 1
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
unset LONG # programs that are slow on purpose run the short lengths
name='sanitize: gcc, address,undefined, AVX-512 in C'
grep -qw avx2 /proc/cpuinfo 2>/dev/null || { echo "skip - $name: needs AVX2"; exit; }
printf 'int main(void) { return 0; }\n' >"$t/a.c"
gcc -fsanitize=address,undefined "$t/a.c" -o "$t/a" 2>/dev/null && "$t/a" ||
    { echo "skip - $name: needs gcc, its libasan and libubsan"; exit; }
# where C stands for the processor, nothing is hidden from the compiler, and the table is there
sed -e 's/^#define BSN_OPAQUE(.*__asm__.*/#define BSN_OPAQUE(constraint, x) ((void)0)/' \
    -e '/^#define BSN_AVX512 /,/gfni/c\
#define BSN_AVX512 BSN_AVX2' \
    -e 's/has = bsn_x86_has();/has = bsn_x86_has() | BSN_HAS_AVX512;/' bitsnap_simd.h >"$t/bitsnap_simd.h"
[ "$(diff bitsnap_simd.h "$t/bitsnap_simd.h" | grep -c '^>')" = 3 ] ||
    { echo "not ok - $name: bitsnap_simd.h has changed where it is patched"; exit; }
cp bitsnap.h "$t"
gcc -D_GNU_SOURCE -std=c99 -Og -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -ffp-contract=off -w \
    -include tests/platforms/avx512.h -I"$t" -I. tests/unit/codec.c tests/unit/inside.c -o "$t/bytes" -lpthread -lm >"$t/compiled" 2>&1
ln "$t/bytes" "$t/test_kernels"
result() { # test, status
    if [ "$2" = 0 ] && ! grep -q '^not ok\|^skip.*avx512' "$t/out"; then echo "ok - $name, $1"
    else echo "not ok - $name, $1 (status $2)"; cat "$t/compiled"; grep -v '^ok' "$t/out" | head -n 20; fi
}
"$t/test_kernels" >"$t/out" 2>&1
result test_kernels $?
for table in 4 3 2 1; do # the last there is; those behind it say nothing
    "$t/bytes" $table >"$t/out" 2>&1 && [ ! -s "$t/out" ] && continue
    cmp -s "$t/out" tests/format/bytes.txt
    result bytes $?
    break
done
