"""Builds bitsnap._core from the headers of this repository: one extension for CPython 3.11 and every later release."""
import os
import re

from setuptools import Extension, setup

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.relpath(os.path.join(here, "..", "..", ".."), here)
examples = os.path.join(root, "docs", "examples")
with open(os.path.join(here, root, "bitsnap.h"), encoding="utf-8") as f:
    version = re.search(r'#define BITSNAP_VERSION "([^"]+)"', f.read()).group(1).replace("-", "")

core = Extension("bitsnap._core", ["bitsnap/_core.c", os.path.join(examples, "tool", "system", "parallel.c")],
                 include_dirs=[root, examples], define_macros=[("_XOPEN_SOURCE", "700"), ("_FILE_OFFSET_BITS", "64")],
                 depends=[os.path.join(root, name) for name in ("bitsnap.h", "bitsnap_simd.h", "docs/examples/file/bitsnap_file.h")],
                 extra_compile_args=["-O2"], libraries=["pthread"], py_limited_api=True)
setup(version=version, ext_modules=[core], options={"bdist_wheel": {"py_limited_api": "cp311"}})
