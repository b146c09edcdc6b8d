#!/bin/sh
# What only a GPU can tell about docs/examples/offload, in one go: tests, compute-sanitizer, speeds beside a copy and nvCOMP, counters. Two steps,
# as machines with a GPU are often bare, lent by the minute and out of reach of any network:
#
#     bench/device.sh prepare DATA       here: programs and cut files to build/device (needs nvcc; ARCH=sm_90; NVCOMP=dir: the folder
#                                        nvidia/libnvcomp of its package for Python, to be measured beside)
#     bench/device.sh run OUT            there, with that folder: five minutes; what it prints goes to OUT/*.txt, too
#
# DATA: the folder of checkpoints that docs/PERFORMANCE.md measures on.
cd "$(dirname "$0")/.." || exit 1
d=build/device
case $1 in
prepare)
    data=${2:?} arch=${ARCH:-sm_90} pids=
    mkdir -p $d
    cc -std=c99 -O3 -fPIC -DBITSNAP_OFFLOAD -I. -c docs/examples/tool/bitsnap.c -o $d/codec.o || exit 1
    if [ "$NVCOMP" ]; then
        cp -L "$NVCOMP"/lib*/libnvcomp.so.* $d/ || exit 1
        set -- -I"$NVCOMP/include" -Xlinker "$(ls $d/libnvcomp.so.*)" -Xlinker "-rpath=\$ORIGIN"
    else
        set --
    fi
    nvcc -O3 -arch="$arch" -I. tests/adapters/offload_cuda.cu $d/codec.o "$@" -o $d/offload_cuda & pids="$pids $!"
    nvcc -O3 -arch="$arch" -Xcompiler -fPIC,-fopenmp -shared -I. docs/examples/offload/library.cu $d/codec.o -o $d/liboffload.so & pids="$pids $!"
    for p in $pids; do wait "$p" || exit 1; done
    git log -1 --format='commit %h' >$d/commit.txt
    git diff --quiet HEAD -- || echo 'with changes' >>$d/commit.txt
    # the first 2.5 MB of the elements of each file: offload_cuda looks at no header
    for f in bf16-1000 bf16-1001 bf16-2410 bf16-tune1 fp16-1000 master-1000 master-1010 adam_m-1000 adam_v-1000; do
        python3 - "$data/$f.safetensors" $d/$f.safetensors <<'EOF' || exit 1
import sys
with open(sys.argv[1], "rb") as f:
    size = int.from_bytes(f.read(8), "little")
    f.seek(8 + size)
    elements = f.read(2500 << 10)
with open(sys.argv[2], "wb") as f:
    f.write((2).to_bytes(8, "little") + b"{}" + elements)
EOF
    done
    du -sh $d
    ;;
run)
    out=${2:?} status=0
    mkdir -p "$out"
    if [ ! -x $d/offload_cuda ]; then echo "skip - device: bench/device.sh prepare DATA comes first"; exit 0; fi
    if ! command -v nvidia-smi >/dev/null; then echo "skip - device: no GPU"; exit 0; fi
    step() { # name, seconds, command...
        name=$1 most=$2; shift 2
        start=$(date +%s)
        timeout "$most" "$@" >"$out/$name.txt" 2>&1 && ok="ok" || { ok="not ok" status=1; }
        echo "$ok - device: $name, $(($(date +%s) - start)) s"
        [ "$ok" = ok ] || tail -n 12 "$out/$name.txt"
    }
    { nvidia-smi --query-gpu=name,driver_version --format=csv,noheader; cat $d/commit.txt; nvcc --version | tail -n 2; } >"$out/card.txt" 2>&1
    cat "$out/card.txt"
    step check 120 $d/offload_cuda check $d/*.safetensors
    step bench 120 $d/offload_cuda bench $d/*.safetensors
    if python3 -c 'import torch' 2>"$out/log"; then step torch 60 python3 docs/examples/offload/torch_offload.py $d/liboffload.so cuda; fi
    if command -v ncu >/dev/null; then
        step counters 60 ncu --clock-control none --launch-count 12 --metrics "gpu__time_duration.sum,smsp__inst_executed.sum,\
sm__inst_executed.avg.per_cycle_active,dram__bytes_read.sum,dram__bytes_write.sum,lts__t_bytes.sum,\
smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio,smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio,\
smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio,smsp__average_warps_issue_stalled_wait_per_issue_active.ratio,\
smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio,smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio,\
smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio,smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio,\
smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio,smsp__average_warps_issue_stalled_branch_resolve_per_issue_active.ratio" \
            $d/offload_cuda bench1 $d/bf16-1000.safetensors
    fi
    if command -v compute-sanitizer >/dev/null; then
        for tool in memcheck racecheck synccheck; do
            step $tool 60 compute-sanitizer --tool $tool --error-exitcode 1 $d/offload_cuda small $d/bf16-1000.safetensors $d/adam_v-1000.safetensors
        done
    fi
    cat "$out/bench.txt"
    exit $status
    ;;
*)
    sed -n '2,10s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
