#!/bin/sh
# Compiles the headers, as declarations and as implementation, in every promised standard of C and C++, without a warning.
# Objects need at most the memcpy family. The header of files also needs strlen, strchr, realloc, free and bitsnap.h, and that
# of references malloc, calloc and qsort. Objects export only bitsnap_*. All macros are called BITSNAP_*, BSN_* or BSF_*, and
# bitsnap_simd.h adds no BSN_* to those of bitsnap.h. make check makes objects with gcc -O0 and -O3, because some warnings, as
# of unused functions, need code, and with clang -Os for its symbols. Warnings of clang do not need code. NIGHTLY=1 makes
# objects of all builds.
cd "$(dirname "$0")/../.." || exit 1
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
warnings='-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Wcast-align -Wpointer-arith -Wwrite-strings -Wvla'
for h in bitsnap bitsnap_simd docs/examples/file/bitsnap_file docs/examples/file/bitsnap_references; do
    case $h in *_file) file=_FILE ;; *_references) file=_REFERENCES ;; *) file= ;; esac
    name=${h##*/}
    printf '#include "%s.h"\n#include "%s.h"\n' $h $h >"$t/$name-declared.c"
    printf '#define BITSNAP%s_IMPLEMENTATION\n#include "%s.h"\n' "$file" $h >"$t/$name-implemented.c"
    printf '#define BITSNAP_STATIC\n#define BITSNAP_IMPLEMENTATION\n#define BITSNAP_FILE_IMPLEMENTATION\n#define BITSNAP_REFERENCES_IMPLEMENTATION\n#include "%s.h"\nint main(void) { return bitsnap_hash("", 0) == 1; }\n' \
        $h >"$t/$name-static.c"
done
symbols() { # name of a source: what its object, a.o, asks for and has
    case $1 in *_file-* | *_references-*) needs='|malloc|calloc|qsort|realloc|free|memchr|bcmp|str(len|chr)|bitsnap_[a-z_]+' ;; *) needs= ;; esac
    case $1 in *-static) own='^main$' ;; *) own='^bitsnap_' ;; esac
    nm -u "$t/a.o" | awk '{print $2}' | grep -vE '^(mem(cpy|set|cmp|move)|_GLOBAL_OFFSET_TABLE_'"$needs"')$' | sed 's/^/undefined: /'
    nm -g --defined-only "$t/a.o" | awk '{print $3}' | grep -v "$own" | sed 's/^/exported: /'
    # one word may be written: the features of the processor
    objdump -t "$t/a.o" | awk '($4 == ".data" || $4 == ".bss") && $6 !~ /^\.(data|bss)$/ {print $6}' |
        grep -v '^bsn_x86_has\.known$\|^known\.' | sed 's/^/writable data: /'
}
compile() { # compiler standard extra...
    compiler=$1 standard=$2; shift 2
    for f in "$t"/*-*.c; do
        # once: all of bitsnap.h is in bitsnap_simd.h, too, and this takes its time
        case $f in *-static.c | */bitsnap-implemented.c) [ "$standard $*" = "$once" ] || continue ;; esac
        case $standard in c++*) x=c++ w= ;; *) x=c w='-Wstrict-prototypes -Wmissing-declarations -Wold-style-definition' ;; esac
        rm -f "$t/a.o"
        # shellcheck disable=SC2086
        "$compiler" -x $x -std=$standard $warnings $w "$@" -fno-stack-protector -I. -c "$f" -o "$t/a.o" >"$t/out" 2>&1 || echo "exit status $?" >>"$t/out"
        if [ $x = c ] && [ -f "$t/a.o" ]; then symbols "$(basename "$f" .c)" >>"$t/out"; fi
        if [ -s "$t/out" ]; then
            echo "not ok - strict: $compiler -std=$standard $* $(basename "$f" .c)"; head -n 12 "$t/out"; return
        fi
    done
    echo "ok - strict: $compiler -std=$standard $*"
}
macros() { # compiler: those that stay
    printf '#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n#include <stdlib.h>\n#if defined(__x86_64__)\n#include <immintrin.h>\n#endif\n' >"$t/without.c"
    $1 -std=c99 -dM -E "$t/without.c" | sort >"$t/without"
    for name in bitsnap bitsnap_simd bitsnap_file bitsnap_references; do
        cat "$t/without.c" "$t/$name-implemented.c" >"$t/with.c"
        $1 -std=c99 -I. -dM -E "$t/with.c" | sort >"$t/$name"
        comm -23 "$t/$name" "$t/without" | awk '{print $2}' | grep -vE '^(BITSNAP|BSN|BSF)_'
        $1 -std=c99 -I. -dM -E "$t/$name-declared.c" | awk '{print $2}' | grep -E '^(BSN|BSF)_'
    done
    comm -23 "$t/bitsnap_simd" "$t/bitsnap" | awk '{print $2}' | grep '^BSN_'
}
for compiler in gcc clang; do
    if ! command -v $compiler >/dev/null; then echo "skip - strict: needs $compiler"; continue; fi
    once=
    for standard in c11 c17 c++11 c++14 c++20; do compile $compiler $standard -fsyntax-only; done
    case $compiler$NIGHTLY in
    gcc) once='c99 -O0'; set -- 'c99 -O0' 'c99 -O3' 'c++17 -fsyntax-only' 'c99 -O0 -DBITSNAP_NO_SIMD' ;;
    clang) once='c99 -Os'; set -- 'c99 -Os' 'c++17 -fsyntax-only' 'c99 -DBITSNAP_NO_SIMD -fsyntax-only' ;;
    *) once='c99 -O0'; set -- 'c99 -O0' 'c99 -O3' 'c99 -Os' 'c++17 -O0' 'c99 -O2 -DBITSNAP_NO_SIMD' ;;
    esac
    for options; do
        # shellcheck disable=SC2086
        compile $compiler $options
    done
    left=$(macros $compiler | tr '\n' ' ')
    if [ -z "$left" ]; then echo "ok - strict: $compiler, no macro stays"; else echo "not ok - strict: $compiler: macros stay: $left"; fi
done
