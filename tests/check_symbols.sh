#!/bin/sh
# The implementation asks for the memcpy family at most (that of files for strlen, strchr, realloc and free, too, and for
# bitsnap.h), exports bitsnap_* only, and leaves no macro behind that is not called BITSNAP_*, BSN_* or BSF_*; bitsnap_simd.h
# no BSN_* that bitsnap.h does not leave.
cd "$(dirname "$0")/.." || exit 1
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
for compiler in gcc clang; do
    if ! command -v $compiler >/dev/null; then echo "skip - symbols: needs $compiler"; continue; fi
    bad=
    for h in bitsnap bitsnap_simd docs/examples/file/bitsnap_file; do
        case $h in *_file) file=_FILE needs='|malloc|realloc|free|memchr|bcmp|str(len|chr)|bitsnap_[a-z_]+' ;; *) file='' needs='' ;; esac
        printf '#define BITSNAP%s_IMPLEMENTATION\n#include "%s.h"\n' "$file" $h >"$t/a.c"
        for level in -O0 -O2 -O3 -Os; do
            case $h$level in bitsnap-O[!2] | bitsnap_simd-O2) continue ;; esac # which has all of bitsnap.h in it: each level once
            $compiler -std=c99 $level -fno-stack-protector -I. -c "$t/a.c" -o "$t/a.o" || bad="$bad $h$level:compile"
            undefined=$(nm -u "$t/a.o" | awk '{print $2}' | grep -vE '^(mem(cpy|set|cmp|move)|_GLOBAL_OFFSET_TABLE_'"$needs"')$' | tr '\n' ' ')
            [ -z "$undefined" ] || bad="$bad $h$level: undefined $undefined"
            exported=$(nm -g --defined-only "$t/a.o" | awk '{print $3}' | grep -v '^bitsnap_' | tr '\n' ' ')
            [ -z "$exported" ] || bad="$bad $h$level: exported $exported"
            # one word may be written: the features of the processor
            writable=$(objdump -t "$t/a.o" | awk '($4 == ".data" || $4 == ".bss") && $6 !~ /^\.(data|bss)$/ {print $6}' | grep -v '^bsn_x86_has\.known$\|^known\.' | tr '\n' ' ')
            [ -z "$writable" ] || bad="$bad $h$level: writable data $writable"
        done
        printf '#define BITSNAP_STATIC\n#define BITSNAP_IMPLEMENTATION\n#define BITSNAP_FILE_IMPLEMENTATION\n#include "%s.h"\n' $h >"$t/s.c"
        $compiler -std=c99 -w -I. -c "$t/s.c" -o "$t/s.o" || bad="$bad $h static: compile"
        exported=$(nm -g --defined-only "$t/s.o" | awk '{print $3}' | tr '\n' ' ')
        [ -z "$exported" ] || bad="$bad $h static: exported $exported"
        printf '#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n#include <stdlib.h>\n#if defined(__x86_64__)\n#include <immintrin.h>\n#endif\n' >"$t/without.c"
        cat "$t/without.c" "$t/a.c" >"$t/with.c"
        macros=$($compiler -std=c99 -I. -dM -E "$t/with.c" | sort >"$t/with"; $compiler -std=c99 -dM -E "$t/without.c" | sort >"$t/without"
            comm -23 "$t/with" "$t/without" | awk '{print $2}' | grep -vE '^(BITSNAP|BSN|BSF)_' | tr '\n' ' ')
        [ -z "$macros" ] || bad="$bad $h: macros $macros"
        [ $h = bitsnap ] && cp "$t/with" "$t/portable"
        macros=$(comm -23 "$t/with" "$t/portable" | awk '{print $2}' | grep '^BSN_' | tr '\n' ' ')
        [ $h != bitsnap_simd ] || [ -z "$macros" ] || bad="$bad $h: macros $macros"
        printf '#include "%s.h"\n' $h >"$t/d.c"
        macros=$($compiler -std=c99 -I. -dM -E "$t/d.c" | awk '{print $2}' | grep -E '^(BSN|BSF)_' | tr '\n' ' ')
        [ -z "$macros" ] || bad="$bad $h declared: macros $macros"
    done
    if [ -z "$bad" ]; then echo "ok - symbols: $compiler"; else echo "not ok - symbols: $compiler:$bad"; fi
done
