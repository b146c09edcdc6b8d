#!/bin/sh
# The device code of docs/examples/offload: as fibers under sanitizers and for races, as OpenCL C for clang and for Oclgrind, and, where there
# is nvcc, compiled for three GPUs without a warning. ROUNDS=n: damaged blocks (300).
cd "$(dirname "$0")/../.." || exit 1
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
if ! command -v "${CXX:-g++}" >/dev/null; then echo "skip - offload: needs a C++ compiler"; exit 0; fi
"${CC:-cc}" -std=c99 -O1 -fPIC -DBITSNAP_NO_SIMD -DBITSNAP_OFFLOAD -I. -c docs/examples/tool/bitsnap.c -o "$t/bitsnap.o" || exit 1
cxx() { "${CXX:-g++}" -fno-operator-names -O1 -Wall -Wextra -Wno-clobbered -Werror -I. "$@" 2>"$t/log"; }
failed() { echo "not ok - offload: $1"; grep -v WARNING "$t/log" | head -n 20; }

# ASan knows of the stacks of fibers only that they are memory
if cxx -fsanitize=address,undefined -fno-sanitize-recover=undefined tests/adapters/offload.cpp "$t/bitsnap.o" -o "$t/offload"; then
    ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0 ROUNDS="${ROUNDS:-300}" "$t/offload" 2>"$t/log" || failed "under sanitizers"
else
    failed "fibers do not compile without a warning"
fi
# what -fsanitize=thread calls is here: offload_races.cpp
if cxx -DOFFLOAD_RACES -fsanitize=thread -c tests/adapters/offload.cpp -o "$t/offload.o" &&
    cxx -O2 "$t/offload.o" tests/adapters/offload_races.cpp "$t/bitsnap.o" -o "$t/races"; then
    ROUNDS=100 "$t/races" 2>"$t/log" || failed "races"
else
    failed "fibers do not compile for races"
fi
if ! command -v clang >/dev/null; then
    echo "skip - offload as OpenCL C: needs clang"
elif printf '#include "quantize.h"\n' | clang -x cl -cl-std=CL1.2 -D__OPENCL_VERSION__=120 -Xclang -finclude-default-header -Wall -Wextra -Werror \
    -fsyntax-only -Idocs/examples/offload - 2>"$t/log"; then
    echo "ok - offload as OpenCL C 1.2"
else
    echo "not ok - offload as OpenCL C 1.2"; head -n 20 "$t/log"
fi
# opencl.h on PoCL; the kernels under Oclgrind, which interprets, and knows of accesses outside of memory, and of barriers that some do not
# come to. It counts the local memory of all kernels together.
if ! printf '#define CL_TARGET_OPENCL_VERSION 200\n#include <CL/cl.h>\nint main(void) { return clGetPlatformIDs(0, 0, 0) == 1; }\n' |
    "${CC:-cc}" -x c - -lOpenCL -o "$t/cl" 2>"$t/log"; then
    echo "skip - offload with OpenCL: needs ocl-icd-opencl-dev"
elif ! "${CC:-cc}" -std=c99 -O1 -Wall -Wextra -Werror -I. tests/adapters/offload_opencl.c "$t/bitsnap.o" -o "$t/opencl" -lOpenCL -lpthread -lm 2>"$t/log" ||
    ! "${CXX:-g++}" -fno-operator-names -O1 -Wall -Wextra -Werror -DOFFLOAD_OPENCL -I. tests/adapters/offload.cpp "$t/bitsnap.o" -lOpenCL -o "$t/kernels" 2>"$t/log"; then
    echo "not ok - offload with OpenCL: does not compile without a warning"; head -n 20 "$t/log"
else
    POCL_CACHE_DIR="$t/pocl" "$t/opencl" 2>"$t/log" || { echo "not ok - offload: opencl.h"; head -n 20 "$t/log"; }
    if ! command -v oclgrind >/dev/null; then
        echo "skip - offload under Oclgrind: needs oclgrind"
    elif ! ROUNDS=30 oclgrind --local-mem-size 65536 --max-errors 20 --log "$t/errors" "$t/kernels" 2>"$t/log" || [ -s "$t/errors" ]; then
        echo "not ok - offload under Oclgrind"; head -n 20 "$t/log" "$t/errors"
    fi
fi
# the library for other languages, without a GPU; PyTorch is where check_python.sh has put it
if [ -x build/venv/bin/python ] && build/venv/bin/python -c 'import torch' 2>"$t/log"; then
    if "${CC:-cc}" -O1 -Wall -Wextra -Werror -fPIC -shared -I. -x c docs/examples/offload/library.cu -x none "$t/bitsnap.o" -o "$t/liboffload.so" 2>"$t/log" &&
        FRAME="$t/frame" build/venv/bin/python docs/examples/offload/torch_offload.py "$t/liboffload.so" >"$t/out" 2>"$t/log" && [ -s "$t/frame" ]
    then echo "ok - offload: torch_offload.py: $(cat "$t/out")"; else echo "not ok - offload: torch_offload.py"; tail -n 20 "$t/log"; fi
else
    echo "skip - offload: torch_offload.py needs torch in build/venv, as tests/adapters/check_python.sh makes it"
fi
if ! command -v nvcc >/dev/null; then echo "skip - offload for GPUs: needs nvcc"; exit 0; fi
printf '#define BITSNAP_OFFLOAD\n#include "docs/examples/offload/decode.h"\n' >"$t/kernels.cu"
for arch in sm_80 sm_90 sm_100; do
    nvcc -O3 -arch=$arch -Xptxas -v -I. -cubin "$t/kernels.cu" -o "$t/kernels.cubin" >"$t/log" 2>&1
    if [ $? -ne 0 ] || grep -q -i warning "$t/log"; then echo "not ok - offload for $arch"; head -n 20 "$t/log"; continue; fi
    echo "ok - offload for $arch: $(sed -n 's/.*Used \([0-9]* registers\).*/\1/p' "$t/log" | tr "\\n" " ")"
done
nvcc -Xcicc -O0 -gencode arch=compute_90,code=compute_90 -Xcompiler -fPIC -c -I. docs/examples/offload/library.cu -o "$t/library.o" >"$t/log" 2>&1 && [ ! -s "$t/log" ] &&
    echo "ok - offload: library.cu for GPUs" || { echo "not ok - offload: library.cu for GPUs"; head -n 20 "$t/log"; }
