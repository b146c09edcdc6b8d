#!/bin/sh
# Windows: both headers compile as clang-cl takes them, with the words that windows.h makes macros of; and what mingw's gcc
# makes of the codec gives the frozen bytes and passes its tests, under Wine.
cd "$(dirname "$0")/../.." || exit 1
t=$(mktemp -d) && trap 'WINEPREFIX="$t/wine" wineserver -k 2>/dev/null; rm -rf "$t"' EXIT
if command -v clang >/dev/null; then
    mkdir "$t/include" # as much of Microsoft's as is needed
    cat >"$t/include/string.h" <<'END'
#include <stddef.h>
void *memcpy(void *, const void *, size_t);
void *memmove(void *, const void *, size_t);
void *memset(void *, int, size_t);
int memcmp(const void *, const void *, size_t);
#define near
#define far
#define small char
#define interface struct
#define IN
#define OUT
#define CONST const
#define min(a, b) (((a) < (b)) ? (a) : (b))
#define max(a, b) (((a) > (b)) ? (a) : (b))
END
    for h in bitsnap bitsnap_simd; do
        printf '#include <string.h>\n#define BITSNAP_IMPLEMENTATION\n#include "%s.h"\n' $h >"$t/a.c"
        if clang --target=x86_64-pc-windows-msvc -std=c99 -Wall -Wextra -Werror -ffreestanding -fsyntax-only \
            -isystem "$t/include" -I. "$t/a.c" 2>"$t/err"; then echo "ok - windows: $h.h for clang-cl"
        else echo "not ok - windows: $h.h for clang-cl"; head -n 20 "$t/err"; fi
    done
else
    echo 'skip - windows: clang-cl: needs clang'
fi
if ! command -v x86_64-w64-mingw32-gcc >/dev/null || ! command -v wine >/dev/null; then
    echo 'skip - windows: needs gcc for mingw-w64 and Wine'; exit
fi
export WINEPREFIX="$t/wine" WINEDEBUG=-all
build() { x86_64-w64-mingw32-gcc -std=gnu99 -O1 -DBITSNAP_MINGW_AVX -w -I. tests/*/"$1.c" -static -o "$t/$1.exe" 2>"$t/err"; }
if build bytes; then
    for table in 0 1 2 3; do # a table that the machine does not have prints nothing
        wine "$t/bytes.exe" $table >"$t/out" 2>/dev/null; status=$?
        if [ $table -gt 0 ] && [ $status -eq 0 ] && [ ! -s "$t/out" ]; then break; fi
        if tr -d '\r' <"$t/out" | cmp -s - tests/format/bytes.txt; then echo "ok - windows: the frozen bytes, table $table"
        else echo "not ok - windows: the frozen bytes, table $table"; fi
    done
else
    echo 'not ok - windows: bytes.c does not compile'; head -n 20 "$t/err"
fi
if build test_frame; then
    wine "$t/test_frame.exe" >"$t/out" 2>/dev/null; status=$?
    tr -d '\r' <"$t/out" | sed 's/^ok - /ok - windows: /; s/^not ok - /not ok - windows: /'
    [ $status -eq 0 ] || echo "not ok - windows: test_frame ended with $status"
else
    echo 'not ok - windows: test_frame.c does not compile'; head -n 20 "$t/err"
fi
