#!/bin/sh
# Compares the command-line tool with cp, zstd, lz4 and bzip2: sizes, times and processor time of whole processes, with files in
# the page cache, by hyperfine. Every output is restored and compared first. Writes RESULT, tables in Markdown, and prints it.
#   cli.sh TOOL DATA SCRATCH RESULT [quick]      DATA: a directory with *.safetensors; quick: one file, fewer rows, 3 runs
# COMMIT and COMPILER in the environment: commit and compiler of the tool, for RESULT.
LC_ALL=C; export LC_ALL
if [ $# -lt 4 ] || [ -z "$2" ]; then
    echo "cli.sh TOOL DATA SCRATCH RESULT [quick]; with make: DATA=dir (make demo leaves checkpoints in build/demo)"; exit 2
fi
tool=$1 data=$2 scratch=$3 result=$4 quick=$5
if ! command -v hyperfine >/dev/null; then echo "SKIP bench-cli: needs hyperfine (Debian: hyperfine)"; exit 0; fi
mkdir -p "$scratch" "$(dirname "$result")" || exit 1
trap 'rm -f "$scratch"/cli.*' EXIT
runs='-m 2 -M 10'; if [ -n "$quick" ]; then runs='-r 3'; fi
back=$scratch/cli.back

# TITLE|PACKED FILE|COMMAND|COMMAND BACK for $in, or for $in against $base. Tools with threads run on one, and on one for each
# processor.
list() {
    p=$scratch/cli
    if [ -n "$base" ]; then
        echo "bitsnap -T1|$p.bsnap|$tool compress -q -c -T 1 -b '$base' '$in'|$tool decompress -q -c -T 1 -b '$base' $p.bsnap"
        echo "bitsnap|$p.bsnap|$tool compress -q -c -b '$base' '$in'|$tool decompress -q -c -b '$base' $p.bsnap"
        for level in 1 3; do
            echo "zstd -$level|$p.zst|zstd -q -c -$level --long=27 --patch-from='$base' '$in'|zstd -q -d -c --long=27 --patch-from='$base' $p.zst"
        done
        return
    fi
    echo "cp|$p.cp|cp '$in' $p.cp|cp $p.cp $back"
    for level in fast default best; do
        if [ -n "$quick" ] && [ $level != default ]; then continue; fi
        name="bitsnap -l $level"; if [ $level = default ]; then name=bitsnap; fi
        echo "$name -T1|$p.bsnap|$tool compress -q -c -l $level -T 1 '$in'|$tool decompress -q -c -T 1 $p.bsnap"
        echo "$name|$p.bsnap|$tool compress -q -c -l $level '$in'|$tool decompress -q -c $p.bsnap"
    done
    for level in 1 3; do
        echo "zstd -$level|$p.zst|zstd -q -c -$level '$in'|zstd -q -d -c $p.zst"
        echo "zstd -$level -T0|$p.zst|zstd -q -c -$level -T0 '$in'|zstd -q -d -c $p.zst"
    done
    echo "bzip2|$p.bz2|bzip2 -k -c '$in'|bzip2 -d -k -c $p.bz2"
    if [ -n "$quick" ]; then return; fi
    echo "lz4|$p.lz4|lz4 -q -c '$in'|lz4 -q -d -c $p.lz4"
}

# Prints the shortest time of a command whose output goes to a file, and its mean processor time; nothing if it fails.
seconds() { # command output
    # shellcheck disable=SC2086
    hyperfine -N $runs --style none --output "$2" --export-csv "$scratch/cli.csv" -n it "$1" >/dev/null 2>"$scratch/cli.err" &&
        awk -F, 'NR == 2 { print $7, $5 + $6 }' "$scratch/cli.csv"
}

row() { # title packed command back
    if ! { sh -c "$3" >"$2" && sh -c "$4" >"$back" && cmp -s "$in" "$back"; }; then echo "not ok - $1 does not restore $in" >&2; return 1; fi
    to=$(seconds "$3" "$2") && from=$(seconds "$4" "$back") || { echo "not ok - $1: $(head -n 1 "$scratch/cli.err")" >&2; return 1; }
    echo "$1|$(wc -c <"$in")|$(wc -c <"$2")|$to $from" | awk -F'|' '{
        split($4, s, " ")
        printf "| %-20s | %9d | %6.3f | %7.3f | %7.3f | %7.3f | %7.3f |\n", $1, $3, $2 / $3, s[1], s[2], s[3], s[4] }'
    rm -f "$2" "$back"
}

table() { # title
    echo
    echo "## $1, $(wc -c <"$in") bytes"
    echo
    printf '| %-20s | %9s | %6s | %7s | %7s | %7s | %7s |\n' "" bytes ratio "in, s" CPU "out, s" CPU
    echo "|---|--:|--:|--:|--:|--:|--:|"
    list | while IFS='|' read -r title packed to from; do
        program=${to%% *}
        if ! command -v "$program" >/dev/null; then echo "SKIP $title: needs $program" >&2; continue; fi
        row "$title" "$packed" "$to" "$from" || echo "| $title | failed | | | | | |"
    done
}

tables() {
    echo "# bitsnap beside other command-line tools"
    echo
    echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1), $(getconf _NPROCESSORS_ONLN) processors; commit ${COMMIT:-unknown}, ${COMPILER:-compiler unknown}; $(zstd --version 2>/dev/null | grep -o 'v[0-9.]*' | head -n 1 | sed 's/^v/zstd /')."
    echo "The shortest of 2 to 10 runs, process and all, from the page cache to the page cache; CPU: seconds of all processors together."
    echo "-T1: one thread, -T0: one on each processor, which is what bitsnap does by itself; zstd: one thread."
    base=
    in=$scratch/cli.safetensors
    if [ -z "$quick" ] && python3 bench/join.py "$in" "$data/bf16-1000.safetensors" "$data/master-1000.safetensors" \
        "$data/adam_m-1000.safetensors" "$data/adam_v-1000.safetensors" 2>/dev/null; then
        table "A checkpoint: weights in BF16, master copy and both moments of Adam in F32"
    fi
    for name in $files; do in=$data/$name.safetensors; table "$name.safetensors"; done
    for pair in 'bf16-1000 bf16-1010' 'bf16-2410 bf16-tune10'; do
        base=$data/${pair% *}.safetensors in=$data/${pair#* }.safetensors
        if [ -f "$base" ] && [ -f "$in" ]; then table "${pair#* }.safetensors against ${pair% *}.safetensors"; fi
        if [ -n "$quick" ]; then break; fi
    done
}

files=
if [ -f "$data/bf16-1000.safetensors" ]; then
    files=bf16-1000
else
    for f in "$data"/*.safetensors; do if [ -f "$f" ]; then files="$files $(basename "$f" .safetensors)"; fi; done
fi
if [ -z "$files" ]; then echo "no .safetensors file in $data"; exit 2; fi
if [ -n "$quick" ]; then for name in $files; do files=$name; break; done; fi
tables >"$scratch/cli.table" || exit 1
mv "$scratch/cli.table" "$result"
cat "$result"
! grep -q '| failed |' "$result"
