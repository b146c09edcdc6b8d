#!/bin/sh
# Counts instructions an element on AArch64, of portable code and NEON, and compares them with AVX2. Needs neither a clock nor a
# machine with NEON: qemu logs each instruction of two repetitions and of one, and callgrind counts those of one.
#   bench/instructions/count.sh FOLDER OUT.md      FOLDER for what is compiled
set -e
cd "$(dirname "$0")/../.."
t=$1 out=$2
cross=aarch64-linux-gnu-gcc emulator=qemu-aarch64-static
for tool in $cross $emulator valgrind gcc; do command -v $tool >/dev/null || { echo "needs $tool" >&2; exit 1; }; done
mkdir -p "$t"
$cross -std=c99 -O2 -I. -static bench/instructions/run.c -o "$t/run_arm" &
gcc -std=c99 -O2 -I. bench/instructions/run.c -o "$t/run_x86"
wait $!
one='-one-insn-per-tb'
$emulator $one "$t/run_arm" scalar encode 0 >/dev/null 2>&1 || one=-singlestep
lines() { $emulator $one -d nochain,exec -D /dev/stdout "$t/run_arm" "$1" "$2" "$3" | grep -c '^Trace'; }
arm() { echo $(($(lines "$1" "$2" 2) - $(lines "$1" "$2" 1))); }
x86() { valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect=measured "$t/run_x86" "$1" "$2" 1 2>&1 | sed -n 's/.*Collected *: *\([0-9]*\).*/\1/p'; }
elements=$("$t/run_x86" scalar encode 0)
new="$t/neon.md"
{
    echo '# NEON by instructions'
    echo
    echo "Instructions for an element, all of a frame of $elements elements counted: BF16 as weights have them; deltas of which"
    echo "a quarter has changed; F32 quantized by 96 cells. By \`make bench-neon\`, commit ${COMMIT:-unknown}, -O2:"
    echo "$($cross --version | head -n 1); $(gcc --version | head -n 1)."
    echo
    echo '| | portable, AArch64 | NEON | AVX2 | portable / NEON | NEON / AVX2 |'
    echo '|---|--:|--:|--:|--:|--:|'
    for way in encode decode 'delta encode' 'delta decode' quantize dequantize; do
        arm scalar "$way" >"$t/scalar" &
        echo "$way|$(arm neon "$way")|$(x86 avx2 "$way")" >"$t/fast"
        wait $!
        sed "s/^/$(cat "$t/scalar")|/" "$t/fast" | awk -F'|' -v n="$elements" '{
            printf "| %s | %.2f | %.2f | %.2f | %.2f | %.2f |\n", $2, $1 / n, $3 / n, $4 / n, $1 / $3, $3 / $4 }'
    done
} >"$new"
cat "$new"
mv "$new" "$out"
