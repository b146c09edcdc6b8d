#!/bin/sh
# The headers, as declarations and as implementation, in every standard of C and C++ they promise, without a warning.
cd "$(dirname "$0")/.." || exit 1
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
warnings='-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Wcast-align -Wpointer-arith -Wwrite-strings -Wvla'
for h in bitsnap bitsnap_simd; do
    printf '#include "%s.h"\n#include "%s.h"\nint main(void) { return 0; }\n' $h $h >"$t/$h-declared.c"
    printf '#define BITSNAP_IMPLEMENTATION\n#include "%s.h"\n' $h >"$t/$h-implemented.c"
    printf '#define BITSNAP_STATIC\n#define BITSNAP_IMPLEMENTATION\n#include "%s.h"\nint main(void) { return bitsnap_hash("", 0) == 1; }\n' $h >"$t/$h-static.c"
done
printf '#include "docs/examples/file/bitsnap_file.h"\n' >"$t/file-declared.c"
printf '#define BITSNAP_FILE_IMPLEMENTATION\n#include "docs/examples/file/bitsnap_file.h"\n' >"$t/file-implemented.c"
compile() { # compiler standard extra...
    compiler=$1 standard=$2; shift 2
    for f in "$t"/*.c; do
        # once: all of bitsnap.h is in bitsnap_simd.h, too, and this takes its time
        case $f in *-static.c | */bitsnap-implemented.c) [ "$standard $*" = 'c99 -O0' ] || continue ;; esac
        case $standard in c++*) x=c++ w= ;; *) x=c w='-Wstrict-prototypes -Wmissing-declarations -Wold-style-definition' ;; esac
        # shellcheck disable=SC2086
        "$compiler" -x $x -std=$standard $warnings $w "$@" -I. -c "$f" -o /dev/null >"$t/out" 2>&1
        if [ $? -ne 0 ] || [ -s "$t/out" ]; then
            echo "not ok - strict: $compiler -std=$standard $* $(basename "$f" .c)"; head -n 12 "$t/out"; return
        fi
    done
    echo "ok - strict: $compiler -std=$standard $*"
}
for compiler in gcc clang; do
    if ! command -v $compiler >/dev/null; then echo "skip - strict: needs $compiler"; continue; fi
    for standard in c11 c17 c++11 c++14 c++17 c++20; do compile $compiler $standard -fsyntax-only; done
    compile $compiler c99 -O0
    compile $compiler c99 -O3
    compile $compiler c++17 -O0
    compile $compiler c99 -O2 -DBITSNAP_NO_SIMD
done
