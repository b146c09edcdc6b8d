#!/bin/sh
# Two independent implementations of docs/FORMAT.md, tests/format/decoder.py and the C code, agree. They agree on frames that
# the encoder makes and on others, with and without a base; on invalid frames and the reasons; and on random damage.
# decoder.py and the tool agree on files, including deltas. All agree with the corpus.
cd "$(dirname "$0")/../.." || exit 1
command -v python3 >/dev/null || { echo "skip - decoder: needs python3"; exit 0; }
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
${CC:-cc} -std=c99 -O2 -w -I. tests/format/exchange.c -o "$t/exchange" || { echo "not ok - decoder: exchange.c does not compile"; exit 1; }
seed=${SEED:-$(date +%j)} # a new one each day; a failure prints it
status=0
for round in 1 2; do
    mkdir "$t/generated$round" "$t/written$round"
    { python3 tests/format/generate.py "$t/generated$round" --seed "$((seed * 10 + round))" --count "${COUNT:-300}" >/dev/null &&
        "$t/exchange" read "$t/generated$round" && python3 tests/format/decoder.py check "$t/generated$round" &&
        "$t/exchange" write "$t/written$round" "$((seed * 10 + round))" && python3 tests/format/decoder.py check "$t/written$round"; } ||
        { echo "not ok - decoder: seed $((seed * 10 + round))"; status=1; }
done
# the tool: generated files, and deltas that it makes
tool=${BITSNAP:-$PWD/build/bitsnap}
[ -x "$tool" ] || { tool=$t/bitsnap; ${CC:-cc} -std=c99 -O2 -w -I. docs/examples/tool/*.c docs/examples/tool/*/*.c -o "$tool" -lpthread; }
for f in "$t"/generated?/[fg]*.bsnap; do
    case $f in
    */f*) "$tool" decompress -q -f -o "$t/back" "$f" 2>"$t/err" && cmp -s "$t/back" "${f%.bsnap}.source" ;;
    *-S1.bsnap) ! "$tool" test -q "$f" 2>"$t/err" && grep -q 'is not a .bsnap file' "$t/err" ;;
    *) rule=${f##*-}; ! "$tool" test -q "$f" 2>"$t/err" && grep -q "(${rule%.bsnap}[),]" "$t/err" ;;
    esac || { echo "not ok - decoder: the tool and ${f##*/}, seed $seed: $(cat "$t/err")"; status=1; break; }
done
python3 tests/format/check_deltas.py "$tool" "$t/deltas" "$seed" || { echo "not ok - decoder deltas: seed $seed"; status=1; }
python3 tests/format/check_newer.py "$tool" "$t/newer" || status=1
# the corpus
python3 tests/format/vectors.py check "$tool" || status=1
exit $status
