"""bitsnap: compression of tensor checkpoints. Frames of arrays here; files of tensors in bitsnap.numpy and bitsnap.torch.

    frame = bitsnap.compress(array)                          # a numpy array, a torch tensor, or bytes with dtype="BF16"
    bitsnap.decompress_into(frame, out)                      # or decompress(frame), which gives bytes
    delta = bitsnap.delta(array, base)                       # what changed since base
    bitsnap.apply(base, delta)                               # turns base into array, in place, as a whole or not at all

    with bitsnap.safe_open("model.bsnap", "pt") as f:        # a file, a folder of shards, or a step of a store
        tensor = f.get_tensor("embed.weight")
    bitsnap.test("model.bsnap")                              # reads and checks all of it

`python -m bitsnap pack state.pt` packs what torch.save wrote. With `import bitsnap.auto`, the loaders of safetensors, torch and transformers
find packed files. bitsnap.transformers, bitsnap.dcp, bitsnap.megatron, bitsnap.zarr, bitsnap.numcodecs and bitsnap.stream are for the
libraries of these names.

Sizes are checked before they are used: a damaged or hostile frame is a bitsnap.Error (a ValueError), and never more. The interpreter's
lock is released while elements are coded. Arrays must be contiguous and in the host's memory; none is copied.
"""
from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from . import _core
from ._arrays import dtype_name, flat, takes
from ._core import CONTENT_ID, IGNORE_CHECKS, NO_CHECKS, SELF_CONTAINED, VERIFY, Error, hash
from .files import Bases, File, safe_open

__all__ = ["Error", "File", "apply", "compress", "content_id", "decompress", "decompress_into", "delta", "hash", "info", "invert", "merge",
           "safe_open", "test", "CONTENT_ID", "IGNORE_CHECKS", "NO_CHECKS", "SELF_CONTAINED", "VERIFY"]

__version__: str = _core.version
LEVELS = {"fast": 1, "default": 2, "best": 3}
Progress = Callable[[int, int], Any]


def _level(level):
    try:
        return LEVELS[level] if isinstance(level, str) else int(level)
    except KeyError:
        raise ValueError(f'"{level}" is no level; levels are fast, default and best') from None


def _flat(array):
    return None if array is None else flat(array)


def compress(data: Any, dtype: str | None = None, *, level: str | int = "default", threads: int = 1, max_relative_error: float | None = None,
             clusters: int = 0, columns: int | None = None, flags: int = 0, out: Any = None, progress: Progress | None = None) -> Any:
    """Compresses an array's elements to one frame, bytes; with `out`, a writable buffer, returns the frame's size.

    dtype: the name in .safetensors files ("BF16"); arrays have one themselves.
    level: "fast", "default" or "best".
    max_relative_error: lossy, each float (F16, BF16, F32, F64) within this bound. The frame holds the measured errors, in
        info()["certificate"].
    clusters: lossy without a bound: the number of values in each block, as in BitSnap's paper (2 to 256, usually 16).
    columns: for lossy frames and level "best": the last dimension. Arrays of two dimensions or more give it themselves.
    flags: CONTENT_ID, NO_CHECKS, VERIFY
    progress: called with (elements done, of how many), from time to time; an exception ends the call.
    """
    cells = _core.log_cells(max_relative_error) if max_relative_error is not None else 0
    memory = flat(data)
    if columns is None:
        shape: Any = getattr(data, "shape", ())
        columns = int(shape[-1]) if len(shape) > 1 and (cells or clusters or _level(level) == 3) else 0
    return _core.compress(memory, dtype or dtype_name(data), level=_level(level), threads=threads, cells=cells, clusters=clusters,
                          columns=columns, flags=flags, out=_flat(out), progress=progress)


def decompress(frame: Any, *, base: Any = None, threads: int = 1, first: int = 0, count: int | None = None, flags: int = 0,
               progress: Progress | None = None) -> bytes:
    """Decodes a frame, or its `count` elements from number `first` on, to bytes.

    base: what a delta was made against.
    flags: IGNORE_CHECKS
    progress: called with (elements done, of how many), from time to time; an exception ends the call.
    """
    data: bytes = _core.decompress(frame, base=_flat(base), threads=threads, flags=flags, progress=progress, **_range(first, count))
    return data


def decompress_into(frame: Any, out: Any, *, base: Any = None, threads: int = 1, first: int = 0, count: int | None = None, flags: int = 0,
                    progress: Progress | None = None) -> Any:
    """Decodes a frame, or a part of it, into an array or a writable buffer of just that size, which is returned. After an error it holds a
    mixture. An array has the dtype of the frame; one of integers, and a buffer, takes the bits of any. Options: as in decompress."""
    takes(out, _core.info(frame)["dtype"])
    _core.decompress(frame, out=flat(out), base=_flat(base), threads=threads, flags=flags, progress=progress, **_range(first, count))
    return out


def _range(first, count):
    return {"first": first} if count is None else {"first": first, "count": count}


def delta(data: Any, base: Any, dtype: str | None = None, base_dtype: str | None = None, *, level: str | int = "default", threads: int = 1,
          flags: int = CONTENT_ID, out: Any = None, progress: Progress | None = None) -> Any:
    """Compresses the differences of an array from an earlier state of the same tensor, or of F16 or BF16 from its F32 master.

    flags: with SELF_CONTAINED the frame can be merged and inverted without the base.
    base_dtype: default: `dtype` if that is given and both arrays have the same type (BF16 kept as uint16), else that of `base`.
    Other options: as in compress.
    """
    if base_dtype is None:
        alike = dtype is not None and getattr(base, "dtype", None) == getattr(data, "dtype", None)
        base_dtype = dtype if alike else dtype_name(base, dtype)
    return _core.compress(flat(data), dtype or dtype_name(data), base=flat(base), base_dtype=base_dtype,
                          level=_level(level), threads=threads, flags=flags, out=_flat(out), progress=progress)


def apply(elements: Any, frame: Any, *, threads: int = 1) -> Any:
    """Turns the base of a delta into its result, in place, as a whole or not at all. Returns the array."""
    takes(elements, _core.info(frame)["dtype"])
    _core.apply(flat(elements), frame, threads=threads)
    return elements


def merge(first: Any, second: Any, *, base: Any = None) -> bytes:
    """Makes one delta of two that follow each other. Needs the `base` of the first, unless both were made with SELF_CONTAINED."""
    return _core.merge(first, second, base=_flat(base))


def invert(frame: Any, *, base: Any = None) -> bytes:
    """Makes the delta that leads back. Needs the `base`, unless the delta was made with SELF_CONTAINED."""
    return _core.invert(frame, base=_flat(base))


def content_id(data: Any, dtype: str | None = None) -> int:
    """The id of elements, which the frames of these elements carry."""
    return _core.content_id(flat(data), dtype or dtype_name(data))


def _is_path(source):
    return isinstance(source, (str, os.PathLike))


def test(source: Any, *, base: Any = None, step: int | str | None = None, threads: int = 1) -> None:
    """Reads and checks everything in a frame, or at a path. bitsnap.Error says what is damaged.

    source: a frame, as bytes; or the path (a str or os.PathLike) of a file, a folder or a store, as File takes it.
    base: what a delta is against: an array, or a path or paths. step: of a store.
    """
    if not _is_path(source):
        return _core.test(source, base=_flat(base), threads=threads)
    with File(source, base=base, step=step, threads=threads) as file:
        file.verify()


def info(source: Any, *, base: Bases = None, step: int | str | None = None) -> dict[str, Any]:
    """What a frame, or a path, holds, by its headers alone.

    Of a frame, as bytes: "dtype", "count", "frame_size", "blocks", "block_log2", "checks", "cells", "clusters" and "columns"; "content_id",
    "base_id", "base_dtype" and "certificate" where it has them.
    Of a path (a str or os.PathLike) of a file, a folder or a store: what File.info() gives; `base` and `step` are those of File.
    """
    if not _is_path(source):
        return _core.info(source)
    with File(source, base=base, step=step) as file:
        return file.info()
