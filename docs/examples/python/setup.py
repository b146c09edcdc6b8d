"""Builds bitsnap._core from the headers of this repository. From CPython 3.11 on it uses the stable ABI: one wheel serves every later release.
3.9 and 3.10, whose stable ABI has no buffers, and builds without the interpreter's lock get a wheel of their own. An sdist holds a copy of
the headers in repository/, and builds from that."""
import os
import re
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.sdist import sdist

here = os.path.dirname(os.path.abspath(__file__))
root = "repository" if os.path.isdir(os.path.join(here, "repository")) else os.path.join("..", "..", "..")
HEADERS = ("bitsnap.h", "bitsnap_simd.h", "docs/examples/file/bitsnap_file.h", "docs/examples/file/bitsnap_references.h",
           "docs/examples/tool/console/fault.h", *(f"docs/examples/tool/system/{name}.h" for name in ("parallel", "paths", "place", "posix")))
PARALLEL = "docs/examples/tool/system/parallel.c"
STABLE = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")


class whole_sdist(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        for name in (*HEADERS, PARALLEL):
            to = os.path.join(base_dir, "repository", name)
            self.mkpath(os.path.dirname(to))
            self.copy_file(os.path.join(root, name), to)


with open(os.path.join(here, root, "bitsnap.h"), encoding="utf-8") as f:
    version = re.search(r'#define BITSNAP_VERSION "([^"]+)"', f.read()).group(1).replace("-", "")

core = Extension("bitsnap._core", ["bitsnap/_core.c", "bitsnap/_parallel.c"], include_dirs=[root, os.path.join(root, "docs", "examples")],
                 define_macros=[("_XOPEN_SOURCE", "700"), ("_FILE_OFFSET_BITS", "64"), *([("Py_LIMITED_API", "0x030B0000")] if STABLE else [])],
                 depends=[os.path.join(root, name) for name in (*HEADERS, PARALLEL)], libraries=["pthread"], py_limited_api=STABLE,
                 extra_compile_args=["-g0", *([] if "-O" in os.environ.get("CFLAGS", "") else ["-O2"])],
                 extra_link_args=["-Wl,-s"] if sys.platform == "linux" else [])
setup(version=version, ext_modules=[core], cmdclass={"sdist": whole_sdist},
      options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE else {})
