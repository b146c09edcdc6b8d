#!/bin/sh
# demo.sh - shows in a minute what bitsnap does. `make demo` runs it.
#   demo.sh TRAINER TOOL DIRECTORY
# It trains a small GPT, which writes real checkpoints. Then it shows how small these become, how fast that is, and that what comes
# back is right: in files, in a live file that takes a delta, in training that continues, and after a kill. It compares everything
# that it claims. The status is 1 if something differs or fails, and the last line names it.
LC_ALL=C; export LC_ALL
set -e
trainer=$1 tool=$2 out=$3
cd "$(dirname "$0")/../.."
work=$out/work name=demo-$$ running=''
first=100 later=110 killed=130 last=150 # steps; the trainer tells of every tenth
budget=24                               # MiB of shared memory: two snapshots of the trainer's state, and a reserve

cleanup() { # also after an error or a signal; the name of the segment is that of docs/examples/engine
    [ -z "$running" ] || kill -9 "$running" 2>/dev/null || :
    rm -rf "$work" "/dev/shm/bitsnap-$name.0" "/dev/shm/bitsnap-$name.0".*.new
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

die() { printf '%sdemo: %s\n' "$end_line" "$1" >&2; exit 1; }
must() { # what, command...
    what=$1; shift
    "$@" >"$work/said" 2>&1 || die "$what: $(tail -n 1 "$work/said")"
}

# A terminal gets the progress in one line, which the next line overwrites. A pipe gets none.
begin_line='' end_line=''
if [ -t 1 ]; then begin_line=$(printf '\r\033[K') end_line=$(printf '\n\r'); fi
progress() { [ -z "$begin_line" ] || printf '%s%.79s' "$begin_line" "$1"; }
lines=0
say() { # format, arguments...: a line of the output, which has to stay short
    # shellcheck disable=SC2059
    line=$(printf "$@")
    lines=$((lines + 1))
    [ ${#line} -le 80 ] && [ $lines -le 30 ] || die "line $lines of the output is above 80 columns or 30 lines: $line"
    printf '%s%s\n' "$begin_line" "$line"
}

state() { for kind in model master exp_avg exp_avg_sq; do echo "$1-$kind.safetensors"; done; } # the files of a checkpoint
bytes() { cat "$@" | wc -c; }
percent() { awk "BEGIN { printf \"%.1f\", 100 * $1 / $2 }"; }
megabytes() { awk "BEGIN { printf \"%.2f\", $1 / 1e6 }"; }
same() { for kind in model master exp_avg exp_avg_sq; do cmp "$1-$kind.safetensors" "$2-$kind.safetensors" || return 1; done; }

# Trains to the last step. Sends SIGKILL when the trainer has said that it is at that step; 0: never.
train() { # label, step to kill at, options...
    label=$1 kill_at=$2; shift 2
    rm -f "$work/lines"
    mkfifo "$work/lines"
    "$trainer" --steps $last --validate "$work/unseen" "$@" --text "$work/text" >"$work/lines" 2>"$work/said" &
    running=$!
    while read -r line; do
        case $line in
        "step $kill_at/"*) kill -9 "$running"; break ;;
        step*) progress "$label: $line" ;;
        *parameters*) weights=${line%% *} ;;
        esac
    done <"$work/lines"
    status=0
    { wait "$running" || status=$?; } 2>/dev/null
    running=''
    if [ "$kill_at" -gt 0 ]; then [ $status -eq 137 ] || die "$label: the trainer ended with status $status before it could be killed"
    else [ $status -eq 0 ] || die "$label: $(tail -n 1 "$work/said")"; fi
}
loss() { awk -F, -v step="$2" -v field="$3" '$1 == step { printf "%.4f", $field }' "$1"; } # log, step, field: 2 of a batch, 5 of unseen text

rm -rf "$work"
rm -f "$out"/*.safetensors "$out"/*.bsnap "$out"/*.delta
mkdir -p "$work/live" "$work/exact" "$work/lossy" "$work/crash"
# copies: the sources may be edited while this runs
cat bitsnap.h bitsnap_simd.h docs/*.md docs/examples/*.c docs/examples/tool/*/*.c tests/*/*.c >"$work/text"
head -c 8193 README.md >"$work/unseen"

say 'bitsnap compresses checkpoints of neural networks. This trains a small GPT, then'
say 'compresses, restores and compares what training wrote. It takes about a minute.'
say ''
start=$(date +%s)
train Training 0 --out "$out" --save $first,$later,$last --log "$work/exact.csv"
say 'Trained %s weights for %d steps (%d s): loss %.2f -> %.2f nats per byte.' "$weights" $last $(($(date +%s) - start)) \
    "$(loss "$work/exact.csv" 1 2)" "$(loss "$work/exact.csv" $last 2)"

# How small, and whether it comes back: all files of all checkpoints, byte for byte with the header text, and tensor by tensor
files=0 checkpoints=0
for step in $first $later $last; do
    checkpoints=$((checkpoints + 1))
    for f in $(state "$out/gpt-00$step"); do
        progress "Compressing and restoring $f"
        must "compress $f" "$tool" compress -q "$f"
        must "test $f.bsnap" "$tool" test -q "$f.bsnap"
        must "decompress $f.bsnap" "$tool" decompress -q -o "$work/restored" "$f.bsnap"
        must "$f is not what comes back" cmp "$f" "$work/restored"
        must "compare $f" "$tool" compare -q "$f" "$f.bsnap"
        if [ "$step" = $first ]; then mv "$work/restored" "$work/exact/${f##*/}"; else rm "$work/restored"; fi
        files=$((files + 1))
    done
done
at=$out/gpt-00$first
# shellcheck disable=SC2046
raw=$(bytes $(state "$at"))
exact=$(bytes "$at"-*.safetensors.bsnap)

# The step as a folder: BF16 weights are their F32 master, rounded, so the master takes its low bits beside them
mkdir "$work/step"
# shellcheck disable=SC2046
cp $(state "$at") "$work/step"
must 'compress the step' "$tool" compress -q -r "$work/step" -o "$work/packed"
must 'restore the step' "$tool" decompress -q -r "$work/packed" -o "$work/again"
must 'the step that was restored' same "$at" "$work/again/${at##*/}"
together=$(bytes "$work/packed"/*)

# Moments within 1 %, and what training makes of them
cp "$work/exact/${at##*/}-master.safetensors" "$work/lossy"
for kind in exp_avg exp_avg_sq; do
    must "compress $at-$kind.safetensors within 1 %" "$tool" compress -q --adam resume -o "$work/$kind.bsnap" "$at-$kind.safetensors"
    must "$at-$kind.safetensors within 1 %" "$tool" compare -q "$at-$kind.safetensors" "$work/$kind.bsnap"
    must "decompress $work/$kind.bsnap" "$tool" decompress -q -o "$work/lossy/${at##*/}-$kind.safetensors" "$work/$kind.bsnap"
done
small=$(bytes "$work/packed"/*-model.safetensors.bsnap "$work/packed"/*-master.safetensors.bsnap "$work"/exp_avg*.bsnap)
train 'From moments within 1 %' 0 --out "$work/lossy" --save $last --log "$work/lossy.csv" --resume "$work/lossy/${at##*/}"

# Weights of some steps later as a delta, applied to the file that a server has
live=$work/live/model.safetensors
cp "$at-model.safetensors" "$live"
must 'compress a delta' "$tool" compress -q -b "$at-model.safetensors" -o "$out/gpt-00$later-model.delta" "$out/gpt-00$later-model.safetensors"
must 'apply the delta' "$tool" apply -q "$out/gpt-00$later-model.delta" "$live"
must 'the live file after the delta' cmp "$live" "$out/gpt-00$later-model.safetensors"
delta=$(bytes "$out/gpt-00$later-model.delta") model=$(bytes "$live")

# A trainer that is killed, and continues from shared memory. It begins with what was restored.
no_engine=''
if ! "$trainer" --help | grep -q -e '--engine'; then no_engine='it needs Linux'
elif ! [ -w /dev/shm ]; then no_engine='there is no /dev/shm to write to'
elif [ "$(df -P -k /dev/shm | awk 'NR == 2 { print $4 }')" -lt $((budget * 1024)) ]; then no_engine="/dev/shm has less than $budget MiB free"; fi
if [ -z "$no_engine" ]; then
    set -- --engine "$name" --engine-budget $budget --resume "$work/exact/${at##*/}" --out "$work/crash" --save $last
    train 'Training, to be killed' $killed "$@"
    [ ! -s "$work/said" ] || die "the trainer that was to be killed: $(tail -n 1 "$work/said")"
    train 'Training, started again' 0 "$@"
    resumed=$(sed -n 's/.*: step \([0-9]*\) from memory, in \([0-9.]*\) ms.*/\1 \2/p' "$work/said")
    [ -n "$resumed" ] && [ "$(wc -l <"$work/said")" -eq 1 ] || die "the trainer that was started again: $(tail -n 1 "$work/said")"
    must 'the killed run ended at other bits' same "$work/crash/gpt-00$last" "$out/gpt-00$last"
fi

# Speeds. One file of all four, again and again, is above 256 MiB, far more than a cache holds: 1-D tensors of the same numbers.
copies=$(((268435456 + raw - 1) / raw)) begin=0 entries='' i=0
elements() { tail -c +$(($(od -A n -t u8 -N 8 "$1") + 9)) "$1"; }
for f in $(state "$at"); do elements "$f" >"$work/${f##*-}"; done
while [ $i -lt $copies ]; do
    for kind in model master exp_avg exp_avg_sq; do
        size=$(bytes "$work/$kind.safetensors") width=4 dtype=F32
        if [ $kind = model ]; then width=2 dtype=BF16; fi
        entries="$entries,\"$i.$kind\":{\"dtype\":\"$dtype\",\"shape\":[$((size / width))],\"data_offsets\":[$begin,$((begin + size))]}"
        begin=$((begin + size))
    done
    i=$((i + 1))
done
header="{${entries#,}}"
{
    i=0 size=${#header}
    while [ $i -lt 8 ]; do printf "\\$(printf %03o $((size % 256)))"; size=$((size / 256)) i=$((i + 1)); done
    printf %s "$header"
    i=0
    while [ $i -lt $copies ]; do (cd "$work" && cat model.safetensors master.safetensors exp_avg.safetensors exp_avg_sq.safetensors); i=$((i + 1)); done
} >"$work/large.safetensors"
progress 'Measuring speeds'
must 'benchmark' "$tool" benchmark --json -T 1 "$work/large.safetensors"
speed() { sed -n "s/.*\"$1_gbps\":\([0-9.]*\).*/\1/p" "$work/said"; }
in=$(speed compress) back=$(speed decompress)
[ -n "$in" ] && [ -n "$back" ] || die "benchmark printed no speeds: $(tail -n 1 "$work/said")"
kernels=$("$tool" --version | sed 's/.*kernels: \(.*\))/\1/; s/avx/AVX/; s/AVX512/AVX-512/; s/neon/NEON/; s/scalar/portable C99/')

row() { say '%-30s %6s %7s  %s' "$1" "$(megabytes "$2")" "$(percent "$2" "$raw") %" "$3"; } # name, bytes, the rest of the line
speeds() { awk "BEGIN { printf \"%8.2f %10.2f\", $1, $2 }"; } # GB/s in, out
say ''
say 'A checkpoint is 4 files, 14 bytes per weight: BF16 weights, their master copy in'
say 'F32, and both Adam moments in F32.'
say '%-30s %14s %10s %10s' '' size compress decompress
say '%-30s %6s %7s %10s %10s' "checkpoint of step $first" MB '% raw' GB/s GB/s
row raw "$raw" ''
if command -v zstd >/dev/null; then
    for level in 1 3; do
        progress "Measuring zstd -$level"
        size=$(for f in $(state "$at"); do zstd -q -$level -c "$f"; done | wc -c)
        must "zstd -$level" zstd -b$level -q -i1 --single-thread "$work/large.safetensors"
        both=$(sed -n 's,.* \([0-9.]*\) MB/s *\([0-9.]*\) MB/s.*,\1e-3 \2e-3,p' "$work/said")
        [ -n "$both" ] || die "zstd -b$level printed no speeds: $(tail -n 1 "$work/said")"
        # shellcheck disable=SC2086
        row "zstd -$level" "$size" "$(speeds $both)"
    done
else
    say '(zstd is not installed, so it is not shown.)'
fi
row 'bitsnap, each file alone' "$exact" "$(speeds "$in" "$back")"
row '  the step together (-r)' "$together" 'exact: BF16 and F32 share bits'
row '  and moments within 1 %' "$small" 'weights exact (see Lossy)'
say 'A whole training step takes %s %% of its bytes, exactly.' "$(percent "$together" "$raw")"
say 'Speeds: one thread, %s kernels, %d MB in memory (these files, repeated).' "$kernels" $((begin / 1000000))
say ''
say 'Exact   %d files of %d checkpoints came back byte for byte.' $files $checkpoints
say 'Lossy   After %d more steps from moments within 1 %% the loss on unseen text is' $((last - first))
say '        %s nats per byte; from exact moments it is %s.' "$(loss "$work/lossy.csv" $last 5)" "$(loss "$work/exact.csv" $last 5)"
say 'Delta   A delta of %s MB updated a live file of %s MB (BF16 weights) from' "$(megabytes "$delta")" "$(megabytes "$model")"
say '        step %d to step %d, byte for byte (bitsnap apply).' $first $later
if [ -n "$no_engine" ]; then
    say 'Crash   Not shown: %s.' "$no_engine"
else
    say 'Crash   The trainer was killed (SIGKILL) at step %d and started again. It' $killed
    # shellcheck disable=SC2086
    say '        continued from shared memory at step %d, after %.0f ms. At step %d its' $resumed $last
    say '        files match those of the uninterrupted run, byte for byte.'
fi
say 'All comparisons passed.'
say ''
say 'Look further: README.md, docs/TOOL.md, docs/examples/engine/README.md (Crash),'
say '  %s info %s' "$tool" "$at-model.safetensors.bsnap"
