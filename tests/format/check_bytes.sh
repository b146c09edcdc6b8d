#!/bin/sh
# Every compiler, optimization level, kernel table, word size and byte order must write the bytes of tests/format/bytes.txt.
# To change the bytes on purpose, run `tests/format/check_bytes.sh --update` and say so in the CHANGELOG.
# make check builds for each compiler the variant that differs most from the others; NIGHTLY=1 builds all. For AArch64,
# tests/platforms/check_neon.sh compares the bytes, because it has the codec compiled.
cd "$(dirname "$0")/../.." || exit 1
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
if [ "$1" = --update ]; then
    ${CC:-cc} -std=c99 -O2 -w -I. tests/format/bytes.c -o "$t/bytes" && "$t/bytes" 0 >tests/format/bytes.txt
    exit
fi
compare() { # name, command...
    name=$1; shift
    "$@" >"$t/out" 2>"$t/err"
    status=$?
    case $name in *'table 0') ;; *) if [ $status -eq 0 ] && [ ! -s "$t/out" ]; then return; fi ;; esac # no such table
    if [ $status -eq 0 ] && cmp -s "$t/out" tests/format/bytes.txt; then echo "ok - bytes: $name"
    else echo "not ok - bytes: $name (status $status)"; diff "$t/out" tests/format/bytes.txt | head -n 5; head -n 3 "$t/err"; fi
}
for compiler in gcc clang; do
    if ! command -v $compiler >/dev/null; then echo "skip - bytes: needs $compiler"; continue; fi
    case $compiler in # what only one of them is asked for
    gcc) set -- '-O3 -march=native' ${NIGHTLY:+-O0 '-O2 -DBITSNAP_NO_SIMD' '-Os -DBSN_WIDE_LANES=1 -fwrapv -funsigned-char'} ;;
    clang) set -- '-Os -DBSN_WIDE_LANES=1 -fwrapv -funsigned-char' \
               ${NIGHTLY:+'-O3 -march=native' '-O0 -g1 -DBITSNAP_NO_AVX512 -fsanitize=address,undefined -fno-sanitize-recover=all'} ;;
    esac
    for options; do
        # shellcheck disable=SC2086
        $compiler -std=c99 $options -w -I. tests/format/bytes.c -o "$t/bytes" || { echo "not ok - bytes: $compiler $options does not compile"; continue; }
        for table in 0 1 2 3 4; do
            compare "$compiler $options, table $table" "$t/bytes" $table
        done
    done
done
cross() { # compiler, emulator, package, options
    if ! command -v "$1" >/dev/null || ! command -v "$2" >/dev/null; then echo "skip - bytes: needs $3"; return; fi
    "$1" -std=c99 -O2 -static -w -I. tests/format/bytes.c -o "$t/bytes" || { echo "not ok - bytes: $1 does not compile"; return; }
    for table in 0 1; do
        compare "$1 under $2, table $table" "$2" "$t/bytes" $table
    done
}
cross s390x-linux-gnu-gcc qemu-s390x-static 'gcc-s390x-linux-gnu libc6-dev-s390x-cross qemu-user-static'
cross arm-linux-gnueabihf-gcc qemu-arm-static 'gcc-arm-linux-gnueabihf libc6-dev-armhf-cross qemu-user-static'
