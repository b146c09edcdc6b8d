#!/bin/sh
# docs/examples/python, as pip builds and installs it: a wheel, in an environment without any other package; then with numpy and torch.
cd "$(dirname "$0")/../.." || exit 1
python=${PYTHON:-python3}
venv=$PWD/build/venv
log=$(mktemp) && bare=$(mktemp -d) && trap 'rm -rf "$log" "$bare"' EXIT
skip() { echo "skip - python: $1"; exit 0; }
[ "$(uname -s)" = Linux ] || skip 'tested on Linux'
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || skip 'needs Python 3.11'
if ! cmp -s tests/adapters/requirements.txt "$venv/done"; then
    rm -rf "$venv"
    "$python" -m venv "$venv" >"$log" 2>&1 || skip "needs Python's venv (Debian: python3-venv)"
    "$venv/bin/python" -m pip install -q -r tests/adapters/requirements.txt >"$log" 2>&1 || { tail -n 3 "$log"; skip 'needs the packages in tests/adapters/requirements.txt, from PyPI'; }
    cp tests/adapters/requirements.txt "$venv/done"
fi
[ -e "$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')/Python.h" ] || skip 'needs the headers of Python (Debian: python3-dev)'

mkdir -p "$bare/src/docs/examples" && cp bitsnap.h bitsnap_simd.h LICENSE "$bare/src" && # setuptools builds where the sources are
    cp -R docs/examples/python docs/examples/file docs/examples/tool "$bare/src/docs/examples" || exit 1
rm -rf "$bare"/src/docs/examples/python/build
name='python: a wheel is built from the sdist alone, without a warning, and installed where there is nothing else'
sdist='import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])'
if (cd "$bare/src/docs/examples/python" && "$venv/bin/python" -c "$sdist" "$bare") >"$log" 2>&1 && rm -rf "$bare/src" && # the sdist has to have all that the wheel is made of
    CFLAGS='-O2 -Wall -Wextra -Werror' "$venv/bin/python" -m pip wheel -q --no-build-isolation --no-deps -w "$bare" "$bare"/*.tar.gz >"$log" 2>&1 &&
    "$python" -m venv "$bare/venv" && "$bare/venv/bin/python" -m pip install -q --no-index "$bare"/*.whl >"$log" 2>&1; then
    echo "ok - $name"
else
    tail -n 20 "$log"
    echo "not ok - $name"
    exit 1
fi
case $(echo "$bare"/*.whl) in
*-cp311-abi3-linux_*.whl) echo 'ok - python: it is for every release from 3.11 on' ;;
*) echo "not ok - python: it is for every release from 3.11 on: $(ls "$bare")" ;;
esac
"$bare/venv/bin/python" tests/adapters/python_package.py bare || echo 'not ok - python: without numpy'
"$bare/venv/bin/python" tests/adapters/python_threads.py || echo 'not ok - python: threads'
"$venv/bin/python" -m pip install -q --no-index --no-deps --target "$bare/site" "$bare"/*.whl >"$log" 2>&1
export PYTHONPATH="$bare/site"
readme=docs/examples/python/README.md
"$venv/bin/python" tests/adapters/python_package.py "${BITSNAP:-build/bitsnap}" $readme || echo 'not ok - python: with numpy and torch'
"$venv/bin/python" tests/adapters/python_checkpoints.py "${BITSNAP:-build/bitsnap}" || echo 'not ok - python: folders, stores and files of torch.save'
"$venv/bin/python" tests/adapters/python_dcp.py docs/examples/python/train/fsdp.py $readme 2>"$log" || {
    tail -n 20 "$log"
    echo 'not ok - python: with torch.distributed'
}
if ${CC:-cc} -std=c99 -O1 -DBITSNAP_NO_SIMD -shared -fPIC -I. docs/examples/engine/bitsnap_engine.c docs/examples/engine/engine_disk.c \
    docs/examples/engine/codec.c -o "$bare/engine.so" -lpthread >"$log" 2>&1 &&
    "$venv/bin/python" -W ignore tests/adapters/python_engine.py "$bare/engine.so" 2>"$log" &&
    "$venv/bin/python" -W ignore tests/adapters/python_engine_cuda.py "$bare/engine.so" 2>"$log"; then :; else
    tail -n 20 "$log"
    echo 'not ok - python: the engine for torch.distributed'
fi
name='python: the engine: FSDP2 on 2 ranks, killed 3 times, and refused on 1 and 4'
if timeout 300 "$venv/bin/python" -W ignore docs/examples/engine/crash_torch.py "$bare/engine.so" "$bare/crash" --kills 3 --others 1 4 >"$log" 2>&1; then echo "ok - $name"; else
    tail -n 20 "$log"
    echo "not ok - $name"
fi
"$venv/bin/python" tests/adapters/python_sync.py "${SCHEDULES:-600}" || echo 'not ok - python: docs/examples/sync'

name='python: threads under the thread sanitizer'
real=$("$python" -c 'import sys; print(sys.executable)') include=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
tsan=$(gcc -print-file-name=libtsan.so 2>/dev/null)
if ! LD_PRELOAD=$tsan "$real" -c 'import ctypes, sys; ctypes.CDLL(None).__tsan_init' 2>/dev/null; then
    echo "skip - $name: needs gcc (its libtsan)"
elif mkdir "$bare/race" && cp -R docs/examples/python/bitsnap "$bare/race" &&
    gcc -O0 -g1 -w -DBITSNAP_NO_SIMD -D_XOPEN_SOURCE=700 -D_FILE_OFFSET_BITS=64 -I. -Idocs/examples -I"$include" -fsanitize=thread -shared -fPIC \
        docs/examples/python/bitsnap/_core.c docs/examples/python/bitsnap/_parallel.c -o "$bare/race/bitsnap/_core.abi3.so" -lpthread >"$log" 2>&1 &&
    LD_PRELOAD=$tsan PYTHONPATH="$bare/race" PYTHON_RACES=1 TSAN_OPTIONS=exitcode=66 "$real" tests/adapters/python_threads.py >"$log" 2>&1
then echo "ok - $name"
else
    head -n 40 "$log"
    echo "not ok - $name"
fi
