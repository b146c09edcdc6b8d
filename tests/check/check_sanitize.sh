#!/bin/sh
# Runs the tests of the layers under the address and undefined behaviour sanitizers of gcc. With MEMORY=1 (check_memory.sh) it
# uses the memory sanitizer of clang, which does not understand all vector intrinsics, so it sees only portable code. No
# sanitizer sees all accesses of AVX-512 code. tests/platforms/check_avx512.sh has these kernels in C, so AVX-512 is left out
# here, which halves the time for compiling.
cd "$(dirname "$0")/../.." || exit 1
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
unset LONG # programs that are slow on purpose run the short lengths
printf 'int main(void) { return 0; }\n' >"$t/a.c"
run() { # package, compiler, sanitizers, options...
    package=$1 compiler=$2 sanitizers=$3; shift 3
    command -v "$compiler" >/dev/null && $compiler -fsanitize="$sanitizers" "$t/a.c" -o "$t/a" 2>/dev/null && "$t/a" ||
        { echo "skip - sanitize: $compiler -fsanitize=$sanitizers needs $package"; return; }
    compile() { $compiler -std=c99 -g1 -fsanitize="$sanitizers" -fno-sanitize-recover=all "$@" -w -I.; }
    compile "$@" -c tests/unit/codec.c -o "$t/codec.o" && compile "$@" tests/unit/inside.c "$t/codec.o" -o "$t/inside" -lpthread -lm ||
        { echo "not ok - sanitize: $compiler, $sanitizers: the codec does not compile"; return; }
    for name in $({ sed -n 's/^ *{ "\([a-z_]*\)", .*/\1/p' tests/unit/codec.c; basename -a -s .c tests/*/test_*.c; } | sort -u); do
        # The memory sanitizer cannot run these tests. It takes bytes exchanged by XOR for uninitialised ones. The workspace of
        # the tool is not cleared. Cursors may pass written bytes if the source changes. There are no other kernels to compare.
        # Some tests decode nothing.
        case $sanitizers${name#test} in memory_safetensors | memory_race | memory_kernels | memory_options | memory_processors | memory_interrupt) continue ;; esac
        if grep -q "\"$name\"" tests/unit/codec.c; then ln -f "$t/inside" "$t/$name"
        elif grep -q "[\"/]$name.c\"" tests/unit/codec.c; then continue
        else compile "$@" tests/*/"$name.c" "$t/codec.o" -o "$t/$name" -lpthread -lm; fi || { echo "not ok - sanitize: $name does not compile ($compiler, $sanitizers)"; continue; }
        if "$t/$name" >"$t/out" 2>&1 && ! grep -q '^not ok' "$t/out"; then echo "ok - sanitize: $compiler, $sanitizers, $name"
        else echo "not ok - sanitize: $compiler, $sanitizers, $name"; grep -v '^ok' "$t/out" | head -n 20; fi
    done
    [ -z "$MEMORY" ] || return # the tool's workspace is not cleared
    command -v python3 >/dev/null || { echo 'skip - sanitize: the tool on hostile files needs python3'; return; }
    if compile "$@" -O0 docs/examples/tool/main.c docs/examples/tool/*/*.c "$t/codec.o" -o "$t/tool" -lpthread -lm; then python3 tests/tool/hostile_files.py "$t/tool"
    else echo "not ok - sanitize: the tool does not compile ($compiler, $sanitizers)"; fi
}
if [ -z "$MEMORY" ]; then
    run 'gcc (its libasan and libubsan)' gcc address,undefined -Og -DBITSNAP_NO_AVX512 # -Og: half the time of -O1
else
    run 'clang, libclang-rt-dev' clang memory -O1 -DBITSNAP_NO_SIMD
fi
