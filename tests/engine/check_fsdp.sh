#!/bin/sh
# docs/examples/engine/crash_torch.py: FSDP2 training on 2 and on 4 gloo ranks is killed at random moments, with agents and files.
#   KILLS=number of kills (20)
cd "$(dirname "$0")/../.." || exit 1
unset MAKEFLAGS MFLAGS MAKELEVEL
export PYTHONDONTWRITEBYTECODE=1
python=
for python in "${PYTHON:-python3}" build/venv/bin/python ''; do # check_python.sh makes the second one
    if [ -n "$python" ] && "$python" -c 'import torch, numpy' 2>/dev/null; then break; fi
done
if [ "$(uname -s)" != Linux ] || [ -z "$python" ]; then echo 'skip - FSDP2: needs Linux and PyTorch (make python-test installs it in build/venv)'; exit 0; fi
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
make -s "$t/engine" "$t/libbitsnap_engine.so" B="$t" CFLAGS=-O2 >"$t/out" 2>&1 || { tail -n 5 "$t/out"; echo 'not ok - FSDP2: builds'; exit 1; }
failed=0
crash() { # name option...
    name=$1; shift
    if timeout 1800 "$python" -W ignore docs/examples/engine/crash_torch.py "$t/libbitsnap_engine.so" "$t/crash" --engine "$t/engine" "$@" >"$t/out" 2>&1
    then echo "ok - FSDP2: $name"; else tail -n 5 "$t/out"; echo "not ok - FSDP2: $name"; failed=1; fi
}
crash '2 ranks, recovered on 1 and 4' --kills "${KILLS:-20}" --others 1 4
crash '4 ranks, recovered on 2 and 3' --kills "${KILLS:-20}" --ranks 4 --seed 2 --others 2 3
exit $failed
