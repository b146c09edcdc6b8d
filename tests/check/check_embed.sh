#!/bin/sh
# Embeds the headers into other projects in the usual ways. Optimization does not matter here, so everything is compiled fast
# (gcc: -Og). AVX-512 takes half of the time, so only C++ compiles it.
cd "$(dirname "$0")/../.." || exit 1
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
warnings='-Wall -Wextra -Wpedantic -Werror' w=$warnings less=-DBITSNAP_NO_AVX512
check() { # name, shell command
    if sh -c "$2" >"$t/out" 2>&1; then echo "ok - embed: $1"; else echo "not ok - embed: $1"; head -n 12 "$t/out"; fi
}
use='
    static unsigned char workspace[BITSNAP_WORKSPACE];
    unsigned short a[1000], back[1000];
    unsigned char frame[4096];
    size_t size, i;
    bitsnap b;
    for (i = 0; i < 1000; i++) a[i] = (unsigned short)(0x3C00 + i * 37 % 512);
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = sizeof workspace;
    if (bitsnap_encode(&b, frame, sizeof frame, &size, a, 1000, BITSNAP_BF16)) return 1;
    if (bitsnap_decode(&b, back, 1000, BITSNAP_BF16, frame, size)) return 2;
    return memcmp(a, back, sizeof a) != 0;
'
for h in bitsnap bitsnap_simd; do
    printf '#include "%s.h"\n#include <string.h>\nint user(void);\nint user(void) {%s}\n' $h "$use" >"$t/user.c"
    printf '#include "%s.h"\n#include "bitsnap.h"\n#include "%s.h"\nint user(void);\nint main(void) { return user(); }\n' $h $h >"$t/main.c"
    printf '#include "%s.h"\n#define BITSNAP_IMPLEMENTATION\n#include "%s.h"\n#include "%s.h"\n' $h $h $h >"$t/implementation.c"
    for compiler in gcc clang; do
        command -v $compiler >/dev/null || { echo "skip - embed: needs $compiler"; continue; }
        case $compiler in gcc) w="$warnings -Og" ;; *) w=$warnings ;; esac
        check "$compiler: $h.h in three files, the implementation after its own declarations" \
            "$compiler -std=c99 $w $less -I. -c $t/implementation.c -o $t/c.o && $compiler -std=c99 $w -I. $t/user.c $t/main.c $t/c.o -o $t/a && $t/a"
        check "$compiler: $h.h from C++ to a C implementation" \
            "$compiler -x c++ -std=c++11 $w -I. -c $t/user.c -o $t/u.o && $compiler -x c++ -std=c++11 $w -I. -c $t/main.c -o $t/m.o &&
             ${compiler%cc}++ $t/c.o $t/u.o $t/m.o -o $t/a && $t/a"
        check "$compiler: $h.h implemented in C++" \
            "$compiler -x c++ -std=c++17 -fno-exceptions $w -I. -c $t/implementation.c -o $t/i.o && $compiler -std=c99 $w -I. -c $t/user.c -o $t/u.o &&
             $compiler -std=c99 $w -I. -c $t/main.c -o $t/m.o && $compiler $t/u.o $t/m.o $t/i.o -o $t/a && $t/a"
        printf '#define BITSNAP_STATIC\n#define BITSNAP_IMPLEMENTATION\n#include "%s.h"\nint user(void);\nint user(void) {%s}\n' $h "$use" >"$t/s1.c"
        printf '#define BITSNAP_STATIC\n#define BITSNAP_IMPLEMENTATION\n#include "%s.h"\nint user(void);\nint main(void) { return user() + (bitsnap_width(BITSNAP_F32) != 4); }\n' $h >"$t/s2.c"
        check "$compiler: $h.h static in two files of one program" "$compiler -std=c99 $w $less -Wno-unused-function -I. $t/s1.c $t/s2.c -o $t/a && $t/a"
    done
done
# two shared libraries in one process, each with a version of its own, whose names all can see: each calls its own
printf '#include "bitsnap.h"\nint OWN(void);\nint OWN(void) { return bitsnap_status_message(BITSNAP_OK)[0]; }\n' >"$t/lib.c"
cat >"$t/load.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    void *a = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL), *b = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
    int (*first)(void), (*second)(void);
    if (argc != 3 || !a || !b) return 1;
    *(void **)&first = dlsym(a, "first");
    *(void **)&second = dlsym(b, "second");
    printf("%c%c", first(), second());
    return 0;
}
END
mkdir "$t/1" "$t/2" && cp bitsnap.h "$t/1"
sed 's/"no error"/"another version"/' bitsnap.h >"$t/2/bitsnap.h"
printf '#define BITSNAP_IMPLEMENTATION\n#include "bitsnap.h"\n' >"$t/body.c"
cc=${CC:-cc}
if [ "$(uname -s)" = Linux ] && command -v "$cc" >/dev/null; then
    library="$cc -std=c99 -shared -fPIC $w"
    check "two versions in two shared libraries, side by side: each calls its own" \
        "$library -DOWN=first -I$t/1 $t/lib.c $t/body.c -o $t/1.so && $library -DOWN=second -I$t/2 $t/lib.c $t/body.c -o $t/2.so &&
         $cc -std=c99 $t/load.c -o $t/load -ldl && test \$($t/load $t/1.so $t/2.so) = na && ! nm -D --defined-only $t/1.so | grep bitsnap_"
    check "BITSNAP_EXPORT: a program calls a shared library" \
        "$library -DBITSNAP_EXPORT -I. $t/body.c -o $t/libbitsnap.so && printf 'int main(void) { return user(); }' | cat $t/user.c - >$t/uses.c &&
         $cc -std=c99 $w -DBITSNAP_EXPORT -I. $t/uses.c -L$t -lbitsnap -Wl,-rpath,$t -o $t/a && $t/a"
else
    echo "skip - embed: shared libraries are tested on Linux"
fi
# scalar code alone is never what somebody gets who asked for more
printf '#define BITSNAP_IMPLEMENTATION\n#include "bitsnap.h"\n#include "bitsnap_simd.h"\n' >"$t/late.c"
printf '#include "bitsnap.h"\n#define BITSNAP_IMPLEMENTATION\n#include "bitsnap_simd.h"\n#include "bitsnap.h"\n#include "bitsnap_simd.h"\n' >"$t/early.c"
for compiler in gcc clang; do
    command -v $compiler >/dev/null || continue
    check "$compiler: bitsnap.h implemented before bitsnap_simd.h is an error that says what to do" \
        "$compiler -std=c99 -I. -fsyntax-only $t/late.c 2>$t/late; grep -q 'include bitsnap_simd.h before' $t/late &&
         $compiler -std=c99 -I. -DBITSNAP_NO_SIMD -fsyntax-only $t/late.c && $compiler -std=c99 -I. -fsyntax-only $t/early.c"
done
# no C library at all: four functions of our own, and a start that calls one
cat >"$t/bare.c" <<'END'
#define BITSNAP_IMPLEMENTATION
#include "bitsnap.h"
void *memcpy(void *d, const void *s, size_t n) { unsigned char *a = d; const unsigned char *b = s; while (n--) *a++ = *b++; return d; }
void *memmove(void *d, const void *s, size_t n) { unsigned char *a = d; const unsigned char *b = s; if (a < b) while (n--) *a++ = *b++; else while (n--) a[n] = b[n]; return d; }
void *memset(void *d, int c, size_t n) { unsigned char *a = d; while (n--) *a++ = (unsigned char)c; return d; }
int memcmp(const void *d, const void *s, size_t n) { const unsigned char *a = d, *b = s; for (; n; n--, a++, b++) if (*a != *b) return *a - *b; return 0; }
END
printf 'static int run(void) {%s}\n' "$use" >>"$t/bare.c"
cat >>"$t/bare.c" <<'END'
__attribute__((force_align_arg_pointer)) void _start(void)
{
    long status = run();
    __asm__ volatile("syscall" : : "a"(60L), "D"(status) : "memory");
    for (;;) { }
}
END
if [ "$(uname -sm)" = "Linux x86_64" ]; then
    for compiler in gcc clang; do
        command -v $compiler >/dev/null || continue
        check "$compiler: freestanding, without a C library" \
            "$compiler -std=gnu99 -O2 -fno-builtin -fno-tree-loop-distribute-patterns -ffreestanding -nostdlib -static -fno-stack-protector -I. $t/bare.c -o $t/a 2>&1 ||
             $compiler -std=gnu99 -O2 -fno-builtin -ffreestanding -nostdlib -static -fno-stack-protector -I. $t/bare.c -o $t/a; $t/a"
        { cat <<'END'; cat "$t/bare.c"; } >"$t/own.c"
#include <stddef.h>
static int calls;
static void *own_copy(void *d, const void *s, size_t n) { calls++; return __builtin_memcpy(d, s, n); }
static void *own_move(void *d, const void *s, size_t n) { return __builtin_memmove(d, s, n); }
static void *own_set(void *d, int c, size_t n) { calls++; return __builtin_memset(d, c, n); }
END
        check "$compiler: freestanding, with no header but the compiler's own: BITSNAP_MEMCPY, BITSNAP_MEMMOVE, BITSNAP_MEMSET" \
            "sed -i 's/long status = run();/long status = run() || !calls;/' $t/own.c &&
             $compiler -std=gnu99 -O1 -fno-builtin -ffreestanding -nostdinc -isystem $($compiler -print-file-name=include) -nostdlib -static -fno-stack-protector \
                 -DBITSNAP_MEMCPY=own_copy -DBITSNAP_MEMMOVE=own_move -DBITSNAP_MEMSET=own_set -I. $t/own.c -o $t/a && $t/a"
    done
else
    echo "skip - embed: the freestanding test needs Linux on x86-64"
fi
