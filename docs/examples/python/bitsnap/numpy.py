"""Files and folders of numpy arrays. bfloat16 and float8 arrays need the package ml_dtypes.

    bitsnap.numpy.save_file({"a": array}, "a.bsnap")
    arrays = bitsnap.numpy.load_file("a.bsnap")
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

from . import files
from ._arrays import DTYPES, dtype_name, flat
from .files import Bases, Path, Progress, _label

__all__ = ["load_file", "save", "save_file", "save_folder"]


def _dtype(name):
    if name not in DTYPES:
        raise TypeError(f"numpy has no arrays of {name}")
    kind = DTYPES[name][0]
    if hasattr(numpy, kind) or kind == "bool":
        return numpy.dtype(kind)
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(f"arrays of {name} need the package ml_dtypes") from None
    return numpy.dtype(getattr(ml_dtypes, kind))


def new(name: str, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """An array, and its memory as bytes."""
    array = numpy.empty(shape, _dtype(name))
    return array, flat(array)


def move(array: Any, device: Any) -> Any:
    """The array itself, if that is what is asked for."""
    if device != "cpu":
        raise ValueError("arrays of numpy are in the host's memory: device must be \"cpu\"")
    return array


def _table(tensors):
    return [files.entry(name, _host, array) for name, array in tensors.items()]


def _host(array):
    if not isinstance(array, (numpy.ndarray, numpy.generic)):
        raise TypeError(f"a {type(array).__name__}, and no numpy array")
    if array.dtype.byteorder == ">":
        raise TypeError(f"elements of {array.dtype} are in the byte order of other machines: astype(array.dtype.newbyteorder(\"=\")) converts them")
    return dtype_name(array), array.shape, flat(array if isinstance(array, numpy.ma.MaskedArray) else numpy.ascontiguousarray(array))


def save_file(tensors: Mapping[str, Any], filename: Path, metadata: Mapping[str, str] | None = None, *, base: Any = None,
              level: str | int = "default", threads: int = 1, sha256: bool = False, references: bool = True, progress: Progress = None) -> int:
    """Writes a dictionary of arrays, and returns the size of the file. The file appears as a whole or not at all.

    metadata: strings to store in the file.
    base: the path of an earlier file or folder, or a chain of paths, each against the one before. The file is then a delta,
        and is read with all of them.
    level: "fast", "default" or "best".
    sha256: True: the file also holds the SHA-256 of the .safetensors file (FORMAT.md, 8.3). bitsnap.test compares it.
    references: False: none of the arrays is coded against an earlier one that is equal, or equal after rounding one of them.
    progress: called from time to time with (bytes done, bytes in all) of the arrays. An exception ends the call.
        True: tqdm shows them.
    """
    table = files.order(_table(tensors))
    with files.reports(progress, files.total(table), _label(filename)) as told:
        size: int = files.write(filename, table, metadata, level, threads, base, sha256=sha256, told=told, references=references)
    return size


def save(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None, *, base: Any = None, level: str | int = "default",
         threads: int = 1, sha256: bool = False, references: bool = True) -> bytes:
    """What save_file writes, as bytes."""
    data: bytes = files.write(None, files.order(_table(tensors)), metadata, level, threads, base, sha256=sha256, references=references)
    return data


def save_folder(tensors: Mapping[str, Any], folder: Path, metadata: Mapping[str, str] | None = None, *, max_shard_size: int | str = "5GB",
                base: Any = None, level: str | int = "default", threads: int = 1, references: bool = True,
                progress: Progress = None) -> int:
    """Writes a dictionary of arrays to a folder, as transformers names the shards of a model and their index, each packed; returns the size
    of the files. The folder may have other files, but no tensors. Shards get their names when all are whole, the index last.

    max_shard_size: bytes of tensors in a file, as a number or as "5GB".
    base: an earlier folder or file. The new folder holds the differences to it, and needs it to be read. A base folder beside the new one is
        found.
    metadata, level, references, progress: as in save_file.
    """
    table = _table(tensors)
    with files.reports(progress, files.total(table), _label(folder)) as told:
        return files.write_folder(folder, table, metadata, max_shard_size, level, threads, base, told, references)


def load_file(filename: Path, *, base: Bases = None, step: int | str | None = None, threads: int = 1,
              progress: Progress = None) -> dict[str, Any]:
    """All arrays of a file, a folder, or a step of a store, by their names. bitsnap.File explains these, base and step.

    progress: called after each array with (bytes done, of how many); an exception ends the call. True: tqdm shows them.
    """
    with files.safe_open(filename, "np", base=base, step=step, threads=threads) as f:
        return f.get_tensors(progress=progress)
