"""bitsnap: compression of tensor checkpoints. Frames of arrays here; files of tensors in bitsnap.numpy and bitsnap.torch.

    frame = bitsnap.compress(array)                          # a numpy array, a torch tensor, or bytes with dtype="BF16"
    bitsnap.decompress_into(frame, out)                      # or decompress(frame), which gives bytes
    delta = bitsnap.delta(array, base)                       # what changed since base
    bitsnap.apply(base, delta)                               # turns base into array, in place, as a whole or not at all

Sizes are checked before they are used: a damaged or hostile frame is a bitsnap.Error (a ValueError), and never more. The interpreter's
lock is released while elements are coded. Arrays must be contiguous and in the host's memory; none is copied.
"""
from ._core import Error, hash, info, invert, merge, test, version as __version__
from ._core import CONTENT_ID, IGNORE_CHECKS, NO_CHECKS, SELF_CONTAINED, VERIFY
from . import _core
from ._arrays import dtype_name, flat, takes
from .files import safe_open

__all__ = ["Error", "apply", "compress", "content_id", "decompress", "decompress_into", "delta", "hash", "info", "invert", "merge",
           "safe_open", "test", "CONTENT_ID", "IGNORE_CHECKS", "NO_CHECKS", "SELF_CONTAINED", "VERIFY"]

LEVELS = {"fast": 1, "default": 2, "best": 3}


def _level(level):
    try:
        return LEVELS[level] if isinstance(level, str) else int(level)
    except KeyError:
        raise ValueError(f'"{level}" is no level; levels are fast, default and best') from None


def compress(data, dtype=None, *, level="default", threads=1, max_relative_error=None, clusters=0, columns=None, flags=0, out=None,
             progress=None):
    """One frame of an array's elements, as bytes; with `out`, a writable buffer, its size.

    dtype: the name in .safetensors files ("BF16"); of arrays it is known.
    max_relative_error: lossy, each float within this bound (F16, BF16, F32, F64); the frame says what was measured: info()["certificate"].
    clusters: lossy without a bound: so many values for each block, as in BitSnap's paper (2 to 256, usually 16).
    columns: of lossy frames and level "best": the last dimension, which is known of arrays of two dimensions and more.
    flags: CONTENT_ID, NO_CHECKS, VERIFY
    progress: called with (elements done, of how many), from time to time; an exception ends the call.
    """
    cells = _core.log_cells(max_relative_error) if max_relative_error is not None else 0
    memory = flat(data)
    if columns is None:
        shape = getattr(data, "shape", ())
        columns = int(shape[-1]) if len(shape) > 1 and (cells or clusters or _level(level) == 3) else 0
    return _core.compress(memory, dtype or dtype_name(data), level=_level(level), threads=threads, cells=cells, clusters=clusters,
                          columns=columns, flags=flags, out=None if out is None else flat(out), progress=progress)


def decompress(frame, *, base=None, threads=1, first=0, count=None, flags=0, progress=None):
    """The elements of a frame, or `count` of them from number `first` on, as bytes. `base`: what a delta was made against."""
    return _core.decompress(frame, base=None if base is None else flat(base), threads=threads, flags=flags, progress=progress,
                            **_range(first, count))


def decompress_into(frame, out, *, base=None, threads=1, first=0, count=None, flags=0, progress=None):
    """The same into an array or a writable buffer of just that size, which is returned. After an error it holds a mixture. An array has the
    dtype of the frame; one of integers, and a buffer, takes the bits of any."""
    takes(out, info(frame)["dtype"])
    _core.decompress(frame, out=flat(out), base=None if base is None else flat(base), threads=threads, flags=flags, progress=progress,
                     **_range(first, count))
    return out


def _range(first, count):
    return {"first": first} if count is None else {"first": first, "count": count}


def delta(data, base, dtype=None, base_dtype=None, *, level="default", threads=1, flags=CONTENT_ID, out=None, progress=None):
    """One frame of how an array differs from an earlier state of the same tensor, or, of F16 and BF16, from its F32 master.
    With SELF_CONTAINED among the flags it can be merged and inverted without the base. `base_dtype` is that of the data where it has not been
    said and both are of one kind: a BF16 tensor that is kept as uint16 has such a base."""
    if base_dtype is None:
        alike = dtype is not None and getattr(base, "dtype", None) == getattr(data, "dtype", None)
        base_dtype = dtype if alike else dtype_name(base, dtype)
    return _core.compress(flat(data), dtype or dtype_name(data), base=flat(base), base_dtype=base_dtype,
                          level=_level(level), threads=threads, flags=flags, out=None if out is None else flat(out), progress=progress)


def apply(elements, frame, *, threads=1):
    """Turns the base of a delta into its result, in place, as a whole or not at all. Returns the array."""
    takes(elements, info(frame)["dtype"])
    _core.apply(flat(elements), frame, threads=threads)
    return elements


def content_id(data, dtype=None):
    """The id of elements that frames carry."""
    return _core.content_id(flat(data), dtype or dtype_name(data))
