#!/bin/sh
# The main job, from nothing: trains a small GPT on the project's own sources and documents, which writes real checkpoints;
# compresses each, restores it, compares every byte; then shows sizes and speeds beside memcpy. `make demo` runs it.
#   demo.sh TRAINER TOOL DIRECTORY
set -e
trainer=$1 tool=$2 out=$3
cd "$(dirname "$0")/../.."
mkdir -p "$out"
rm -f "$out"/*.safetensors "$out"/*.bsnap

echo "== training (a GPT of 842,496 parameters, in C; about half a minute)"
"$trainer" --out "$out" bitsnap.h bitsnap_simd.h docs/*.md docs/examples/*.c docs/examples/tool/*/*.c tests/*.c

echo
echo "== compressing, restoring, comparing"
for f in "$out"/*.safetensors; do
    "$tool" compress -q "$f"
    "$tool" test -q "$f.bsnap"
    "$tool" decompress -q -o "$out/restored" "$f.bsnap"
    cmp "$f" "$out/restored"          # byte for byte, the header text included
    "$tool" compare -q "$f" "$f.bsnap" # and tensor by tensor
    rm "$out/restored"
done
echo "$(ls "$out"/*.bsnap | wc -l) checkpoints came back bit for bit"

echo
echo "== sizes, and speeds in memory on one thread"
tool_from_here=$(pwd)/$tool
(cd "$out" && "$tool_from_here" benchmark *.safetensors)
echo
echo "Look further:  $tool info $out/$(cd "$out" && ls | grep bsnap | tail -n 1)"
