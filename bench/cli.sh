#!/bin/sh
# The command-line tool beside zstd, lz4, bzip2 and xz: sizes and times of whole processes, files in the page cache in and
# out, by hyperfine. Every output is restored and compared first. Writes RESULT, a table in Markdown, and prints it.
#   cli.sh TOOL DATA SCRATCH RESULT [quick]      DATA: a directory with *.safetensors; quick: one file, fewer rows
# COMMIT in the environment: what RESULT says of the tool's commit.
LC_ALL=C; export LC_ALL
if [ $# -lt 4 ] || [ -z "$2" ]; then
    echo "cli.sh TOOL DATA SCRATCH RESULT [quick]; with make: DATA=dir (make demo leaves checkpoints in build/demo)"; exit 2
fi
tool=$1 data=$2 scratch=$3 result=$4 quick=$5
if ! command -v hyperfine >/dev/null; then echo "SKIP bench-cli: needs hyperfine (Debian: hyperfine)"; exit 0; fi

files=
for name in bf16-1000 fp16-1000 master-1000; do
    if [ -f "$data/$name.safetensors" ]; then files="$files $name"; fi
done
if [ -z "$files" ]; then
    for f in "$data"/*.safetensors; do if [ -f "$f" ]; then files="$files $(basename "$f" .safetensors)"; fi; done
fi
if [ -z "$files" ]; then echo "no .safetensors file in $data"; exit 2; fi
if [ -n "$quick" ]; then for name in $files; do files=$name; break; done; fi
mkdir -p "$scratch" "$(dirname "$result")" || exit 1
trap 'rm -f "$scratch"/cli.*' EXIT
runs=10; if [ -n "$quick" ]; then runs=3; fi

# Threads, where a tool has them: T1 and T0 (one on each processor). Slow ones are left out of quick runs.
list() {
    echo "cat|cat|cat|cat"
    for level in fast default best; do
        for t in 1 0; do
            echo "bitsnap|bitsnap $level -T$t|$tool compress -q --no-progress -c -l $level -T $t|$tool decompress -q --no-progress -c -T $t"
        done
    done
    for level in 1 3 19; do
        for t in 1 0; do
            if [ -n "$quick" ] && [ $level = 19 ]; then continue; fi
            echo "zstd|zstd -$level -T$t|zstd -q -c -$level -T$t|zstd -q -d -c -T$t"
        done
    done
    for level in 1 9; do
        if [ -n "$quick" ] && [ $level = 9 ]; then continue; fi
        if lz4 --help 2>&1 | grep -q -e '-T#'; then
            for t in 1 0; do echo "lz4|lz4 -$level -T$t|lz4 -q -c -$level -T$t|lz4 -q -d -c -T$t"; done
        else
            echo "lz4|lz4 -$level|lz4 -q -c -$level|lz4 -q -d -c"
        fi
    done
    echo "bzip2|bzip2 -9|bzip2 -k -c -9|bzip2 -d -k -c"
    for t in 1 0; do
        if [ -n "$quick" ] && [ $t = 0 ]; then continue; fi
        echo "xz-utils|xz -0 -T$t|xz -q -k -c -0 -T$t|xz -q -d -k -c -T$t"
        if [ -z "$quick" ]; then echo "xz-utils|xz -6 -T$t|xz -q -k -c -6 -T$t|xz -q -d -k -c -T$t"; fi
    done
}

# The shortest time of a command that is given a file and writes another; nothing where it fails.
seconds() { # command input output
    hyperfine -N -w 1 -r "$runs" --style none --output "$3" --export-csv "$scratch/cli.csv" -n it "$1 '$2'" >/dev/null 2>"$scratch/cli.err" &&
        awk -F, 'NR == 2 { print $7 }' "$scratch/cli.csv"
}

row() { # file package name compress decompress
    case $2 in bitsnap) suffix=.bsnap ;; zstd) suffix=.zst ;; lz4) suffix=.lz4 ;; bzip2) suffix=.bz2 ;; xz-utils) suffix=.xz ;; *) suffix= ;; esac
    in=$data/$1.safetensors out=$scratch/cli.packed$suffix back=$scratch/cli.back
    if ! { $4 "$in" >"$out" && $5 "$out" >"$back" && cmp -s "$in" "$back"; }; then
        echo "not ok - $3 does not restore $1" >&2; return 1
    fi
    bytes=$(wc -c <"$in") packed=$(wc -c <"$out")
    to=$(seconds "$4" "$in" "$scratch/cli.again")
    from=$(seconds "$5" "$out" "$back")
    rm -f "$out" "$back" "$scratch/cli.again"
    if [ -z "$to" ] || [ -z "$from" ]; then echo "not ok - $3: $(head -n 1 "$scratch/cli.err")" >&2; return 1; fi
    awk -v name="$3" -v n="$bytes" -v packed="$packed" -v to="$to" -v from="$from" 'BEGIN {
        printf "| %-20s | %10d | %7.4f | %8.4f | %8.1f | %8.4f | %8.1f |\n", name, packed, n / packed, to, n / 1e6 / to, from, n / 1e6 / from }'
}

table() {
    echo "# bitsnap beside other command-line tools"
    echo
    echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1), $(getconf _NPROCESSORS_ONLN) processors; commit ${COMMIT:-unknown};"
    echo "shortest of $runs runs, process and all, from the page cache to the page cache. -T1: one thread, -T0: one for each processor."
    echo "cat copies: what reading and writing cost."
    for name in $files; do
        echo
        echo "## $name.safetensors"
        echo
        printf '| %-20s | %10s | %7s | %8s | %8s | %8s | %8s |\n' "tool" "bytes" "ratio" "in, s" "MB/s" "out, s" "MB/s"
        echo "|---|--:|--:|--:|--:|--:|--:|"
        list | while IFS='|' read -r package title to from; do
            program=${to%% *}
            if ! command -v "$program" >/dev/null; then echo "SKIP $title: needs $program (Debian: $package)" >&2; continue; fi
            row "$name" "$package" "$title" "$to" "$from" || echo "| $title | failed | | | | | |"
        done
    done
}

table >"$scratch/cli.table" || exit 1
mv "$scratch/cli.table" "$result"
cat "$result"
! grep -q '| failed |' "$result"
