"""Builds bitsnap._core from the headers of this repository: one extension for CPython 3.11 and every later release. An sdist has them in
repository/, where a build from it takes them."""
import os
import re

from setuptools import Extension, setup
from setuptools.command.sdist import sdist

here = os.path.dirname(os.path.abspath(__file__))
root = "repository" if os.path.isdir(os.path.join(here, "repository")) else os.path.join("..", "..", "..")
HEADERS = ("bitsnap.h", "bitsnap_simd.h", "docs/examples/file/bitsnap_file.h", "docs/examples/tool/console/fault.h",
           *(f"docs/examples/tool/system/{name}.h" for name in ("parallel", "paths", "place", "posix")))
PARALLEL = "docs/examples/tool/system/parallel.c"


class whole_sdist(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        for name in (*HEADERS, PARALLEL, "LICENSE"):
            to = os.path.join(base_dir, "repository", name)
            self.mkpath(os.path.dirname(to))
            self.copy_file(os.path.join(root, name), to)


with open(os.path.join(here, root, "bitsnap.h"), encoding="utf-8") as f:
    version = re.search(r'#define BITSNAP_VERSION "([^"]+)"', f.read()).group(1).replace("-", "")

core = Extension("bitsnap._core", ["bitsnap/_core.c", os.path.join(root, PARALLEL)], include_dirs=[root, os.path.join(root, "docs", "examples")],
                 define_macros=[("_XOPEN_SOURCE", "700"), ("_FILE_OFFSET_BITS", "64")], depends=[os.path.join(root, name) for name in HEADERS],
                 extra_compile_args=["-O2", "-g0"], libraries=["pthread"], py_limited_api=True)
setup(version=version, ext_modules=[core], cmdclass={"sdist": whole_sdist}, options={"bdist_wheel": {"py_limited_api": "cp311"}})
