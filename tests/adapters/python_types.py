"""Uses everything public of the package bitsnap, for mypy --strict. When it is run, it looks for what is public and not annotated, not documented,
or not used here. By check_package.sh."""
from __future__ import annotations

import ast
import io
import os
import sys
from typing import TYPE_CHECKING

import bitsnap

if TYPE_CHECKING:  # it is run without these
    import numpy
    import torch
    import torch.distributed.checkpoint as dcp

    import bitsnap.auto
    import bitsnap.dcp
    import bitsnap.files
    import bitsnap.megatron
    import bitsnap.numcodecs
    import bitsnap.numpy
    import bitsnap.pack
    import bitsnap.stream
    import bitsnap.torch
    import bitsnap.transformers
    import bitsnap.zarr


def progress(done: int, total: int) -> None:
    print(done, total, bitsnap.__version__)


def frames(a: numpy.ndarray[tuple[int], numpy.dtype[numpy.float32]]) -> int:
    frame: bytes = bitsnap.compress(a, level="fast", threads=2, max_relative_error=0.01, columns=3, flags=bitsnap.VERIFY, progress=progress)
    size: int = bitsnap.compress(b"ab", "BF16", out=bytearray(100), clusters=16)
    data: bytes = bitsnap.decompress(frame, first=1, count=2, flags=bitsnap.IGNORE_CHECKS | bitsnap.NO_CHECKS)
    bitsnap.decompress_into(frame, a, base=None)
    delta: bytes = bitsnap.delta(data, data, "BF16", flags=bitsnap.CONTENT_ID | bitsnap.SELF_CONTAINED)
    bitsnap.apply(a, delta)
    both: bytes = bitsnap.merge(delta, bitsnap.invert(delta, base=a), base=a)
    bitsnap.test(both, base=a)
    try:
        print(bitsnap.info(both)["dtype"])
    except bitsnap.Error as error:
        return error.rule + error.status + error.offset + error.needed
    return size + bitsnap.content_id(a) + bitsnap.hash(data)


def files() -> None:
    with bitsnap.File("a", base=["b", "c"], threads=2) as file:
        dtype, shape = file.find(file.names()[0])
        part: bytes = file.read(file.keys()[0], 1, 2)
        print(dtype.lower(), len(shape), part, file.metadata(), file.info()["size"], file.name.upper())
        file.verify()
    file.close()
    with bitsnap.safe_open("a", "np", "cpu", step="latest") as f:
        names: list[str] = f.keys() + f.offset_keys()
        rows = f.get_slice("a")
        print(names, rows[1:2], rows.get_shape()[0] + 1, rows.get_dtype().lower(), f.metadata(), f.get_tensors(["a"])["a"], f.get_tensor("a"))
        f.verify()
    bitsnap.test("a", step=3, threads=2)
    print(bitsnap.info("a", base="b"))
    print(bitsnap.files.open_file("a").kind)


def numpy_files() -> int:
    arrays = bitsnap.numpy.load_file("a", base="b", step=1, threads=2)
    data: bytes = bitsnap.numpy.save(arrays, {"a": "b"}, base="c", level=1)
    size: int = bitsnap.numpy.save_folder(arrays, "d", max_shard_size="1GB", base="c")
    size += len(bitsnap.numpy.load_file("a", progress=progress)) + bitsnap.numpy.save_file(arrays, "d", progress=True)
    return size + len(data) + bitsnap.numpy.save_file(arrays, "d", {"a": "b"}, base=["b", "c"], level="best", threads=2, sha256=True,
                                                             references=False)


def torch_files() -> int:
    tensors = bitsnap.torch.load_file("a", "cuda", base="b", step=1, threads=2)
    size: int = bitsnap.torch.save_folder(tensors, "d", max_shard_size=1 << 30, base="c", references=False) + bitsnap.torch.save_file(tensors, "d")
    size += len(bitsnap.torch.load_file("a", progress=progress)) + bitsnap.torch.save_folder(tensors, "d", progress=progress)
    state = bitsnap.torch.load(io.BytesIO(), map_location=torch.device("cpu"), mmap=True, progress=True)
    return size + bitsnap.torch.save(state, "a", base="b") + bitsnap.torch.save(state, io.BytesIO())


def packs() -> int:
    bitsnap.auto.undo()
    bitsnap.auto.enable()
    found: dict[str, int | str] = bitsnap.pack.pack_folder("a", level="fast", threads=2, remove=True, progress=progress)
    bitsnap.transformers.PackCheckpoints(level="fast", threads=2).wait()
    print(found, bitsnap.pack.read("a.pt"))
    return bitsnap.pack.pack_file("a.pt", "b", base="c", level=1, references=False, remove=True, progress=True)


def adapters() -> None:
    dcp.save({}, storage_writer=bitsnap.dcp.BitsnapWriter("a", base="b", anchor=3, bounds={"*": 0.1}, level="fast", threads=2, references=False))
    dcp.load({}, storage_reader=bitsnap.dcp.BitsnapReader("a", threads=2))
    print(bitsnap.dcp.certificates("a")["a"][0]["bound"])
    codec = bitsnap.numcodecs.Bitsnap(level="fast", dtype="BF16")
    print(codec.decode(codec.encode(b"")), bitsnap.zarr.BitsnapCodec(level="fast", dtype="BF16").to_dict())
    print(bitsnap.stream.BitsnapTransform("fast").get_descriptor())
    bitsnap.megatron.SaveStrategy(base="a", threads=2)
    bitsnap.megatron.LoadStrategy()


def missing(folder: str) -> list[str]:
    """What is public in the sources of the package, by a name without an underscore, and lacks annotations, a text for help() or a use here."""
    with open(__file__, encoding="utf-8") as f:
        used = f.read()
    found = []
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".py") or file in ("_arrays.py", "__main__.py"):
            continue
        with open(os.path.join(folder, file), encoding="utf-8") as f:
            tree = ast.parse(f.read())
        if not ast.get_docstring(tree):
            found.append(f"{file} has no text")
        inherited = file in ("dcp.py", "megatron.py", "numcodecs.py", "stream.py", "transformers.py", "zarr.py")  # their libraries document and call the methods
        exported = next((ast.literal_eval(x.value) for x in tree.body if isinstance(x, ast.Assign) and ast.unparse(x.targets[0]) == "__all__"), None)
        for node in tree.body:
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name.startswith("_"):
                continue
            inside = [x for x in node.body if isinstance(x, ast.FunctionDef)] if isinstance(node, ast.ClassDef) else []
            for x in [node, *inside]:
                place = f"{file}: {node.name if x is node else f'{node.name}.{x.name}'}"
                if isinstance(x, ast.FunctionDef) and (x is node or not x.name.startswith("_") or x.name == "__init__"):
                    arguments = [*x.args.args, *x.args.kwonlyargs, *x.args.posonlyargs, *filter(None, (x.args.vararg, x.args.kwarg))]
                    if x.returns is None or any(a.annotation is None for a in arguments if a.arg not in ("self", "cls")):
                        found.append(f"{place} is not annotated")
                if not x.name.startswith("_") and not ast.get_docstring(x) and not (inherited and x is not node):
                    found.append(f"{place} has no text")
                if exported is not None and x is node and x.name in exported and x.name not in used:
                    found.append(f"{place} is not used here")
    return found


if __name__ == "__main__":
    lost = missing(os.path.dirname(os.path.abspath(bitsnap.__file__)))
    print("\n".join(lost))
    sys.exit(bool(lost))
