#!/bin/sh
# Fuzzes as users do: fuzz/build.sh with libFuzzer, MemorySanitizer and AFL++, and the program of fuzz/README.md. Only portable
# code, which compiles fast; make fuzz-smoke fuzzes the kernels.
cd "$(dirname "$0")/../.." || exit 1
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
printf '#include <stdint.h>\n#include <stddef.h>\nint LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) { return p && n > 1u << 30; }\n' >"$t/a.c"
can() { # what, package, command...
    what=$1 package=$2; shift 2
    command -v "$1" >/dev/null && "$@" "$t/a.c" -o "$t/a" >/dev/null 2>&1 || { echo "skip - fuzz: $what needs $package"; return 1; }
}
build() { # name, compiler, flags, targets...
    name=$1 compiler=$2 flags=$3; shift 3
    CC=$compiler CFLAGS="-O1 -g1 -w -DBITSNAP_NO_SIMD $flags" LIB_FUZZING_ENGINE="-fsanitize=fuzzer" OUT="$t/$name" fuzz/build.sh "$@" \
        >"$t/out" 2>&1 || { echo "not ok - fuzz: build.sh, $name"; head -n 20 "$t/out"; return 1; }
}
fuzz() { # name, target, options...: on its seeds
    name=$1 target=$2; shift 2
    mkdir -p "$t/seeds/$target"
    FUZZ_SEEDS="$t/seeds/$target" "$t/$name/$target" >/dev/null 2>&1
    if "$t/$name/$target" "$@" -dict="$t/$name/$target.dict" -artifact_prefix="$t/" "$t/seeds/$target" >"$t/out" 2>&1; then echo "ok - fuzz: $name, $target"
    else echo "not ok - fuzz: $name, $target"; grep -v '^#' "$t/out" | head -n 20; fi
}
if can libFuzzer 'clang, libclang-rt-dev' clang -fsanitize=fuzzer && build libFuzzer clang -fsanitize=fuzzer-no-link; then
    for target in fuzz/*.c; do
        target=$(basename "$target" .c)
        case $target in codec | replay) continue ;; esac
        fuzz libFuzzer "$target" -max_total_time=1
        if [ -f "$t/libFuzzer/$target.options" ] && [ "$(python3 -m zipfile -l "$t/libFuzzer/${target}_seed_corpus.zip" | wc -l)" -gt 7 ]
        then echo "ok - fuzz: options and seeds of $target"; else echo "not ok - fuzz: options and seeds of $target"; fi
    done
    mkdir "$t/readme"
    awk -v dir="$t/readme/" '/^```c$/ { getline; out = dir $2; print >out; next } /^```sh$/ { out = dir "commands"; next } /^```/ { out = ""; next }
        out { print >out }' fuzz/README.md
    ln -s "$PWD"/*.h "$t/readme"
    if (cd "$t/readme" && sh -e commands) >"$t/out" 2>&1 && [ "$(find "$t/readme/corpus" -type f | wc -l)" -gt 20 ]; then
        echo "ok - fuzz: the program of fuzz/README.md"
    else echo "not ok - fuzz: the program of fuzz/README.md"; head -n 20 "$t/out"; fi
fi
if can 'memory sanitizer' 'clang, libclang-rt-dev' clang -fsanitize=fuzzer,memory && build memory clang -fsanitize=fuzzer-no-link,memory frame delta; then
    fuzz memory frame -runs=1000
    fuzz memory delta -runs=300
fi
AFL_QUIET=1 AFL_NO_UI=1 AFL_SKIP_CPUFREQ=1 AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES=1
export AFL_QUIET AFL_NO_UI AFL_SKIP_CPUFREQ AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES
if can AFL++ 'afl++' afl-clang-fast -fsanitize=fuzzer && build afl afl-clang-fast '' frame; then
    mkdir "$t/seeds/few"
    cp "$t/seeds/frame/seed-00"* "$t/seeds/few"
    if afl-fuzz -V 3 -i "$t/seeds/few" -o "$t/found" -x "$t/afl/frame.dict" "$t/afl/frame" >"$t/out" 2>&1 &&
        grep -q '^saved_crashes *: 0' "$t/found/default/fuzzer_stats"; then
        echo "ok - fuzz: AFL++, $(sed -n 's/^execs_done *: //p' "$t/found/default/fuzzer_stats") executions"
    else echo "not ok - fuzz: AFL++"; tail -n 20 "$t/out"; fi
fi
