"""The codec "bitsnap" of numcodecs, for Zarr's version 2 and whoever else uses these. It is found by its entry point."""
from __future__ import annotations

from typing import Any

import numpy
from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray_like, ensure_ndarray

from . import _level, compress, decompress, decompress_into, info
from ._arrays import NAMES
from .files import _width


def check_options(level: str | int, dtype: str | None) -> None:
    """Refuses a level or a dtype that there is not."""
    if _level(level) not in range(4):
        raise ValueError(f"{level} is no level; levels are fast, default and best, or 0 to 3")
    if dtype is not None and dtype not in NAMES.values():
        raise ValueError(f'"{dtype}" is no dtype of .safetensors files, as BF16 and F32 are')


def coded_as(dtype: Any, chosen: str | None = None) -> str:
    """The name of the elements that arrays of a numpy dtype are coded as. Arrays without such a name (structures, strings, dates, elements
    in the byte order of other machines) are coded as integers of their width, or as bytes: decoding gives back the same bytes."""
    if dtype.hasobject:
        raise TypeError(f"arrays of {dtype} hold references, which are not stored: encode them first, as the filter VLenUTF8 of "
                        "numcodecs does (Zarr's version 2), or leave them to Zarr's own serializer (version 3)")
    if chosen is not None:
        return chosen
    name = NAMES.get(str(dtype)) if dtype.isnative else None
    return name or {2: "U16", 4: "U32", 8: "U64"}.get(dtype.itemsize, "U8")


class Bitsnap(Codec):
    """dtype: of the elements, where buffers come as bytes, or as another type ("BF16" of uint16)."""

    codec_id = "bitsnap"

    def __init__(self, level: str | int = "default", dtype: str | None = None) -> None:
        check_options(level, dtype)
        self.level = level
        self.dtype = dtype

    def encode(self, buf: Any) -> Any:
        """The elements in the order of memory, which is what Zarr's order="F" relies on. decode() gives the same bytes."""
        array = ensure_ndarray(buf)
        name = coded_as(array.dtype, self.dtype)
        if not array.flags.forc:
            raise ValueError(f"an array of {array.dtype} and shape {array.shape} whose elements do not follow each other in memory: copy it "
                             "first, as numpy.ascontiguousarray does")
        if array.nbytes % _width(name):
            raise ValueError(f"{array.nbytes} bytes of {array.dtype} are no elements of {name}: give the codec another dtype, or none")
        return compress(ensure_contiguous_ndarray_like(array), name, level=self.level, columns=0)

    def decode(self, buf: Any, out: Any = None) -> Any:
        """The bytes that were encoded, or `out`, an array of just that size, filled with them."""
        frame = ensure_contiguous_ndarray_like(buf)
        if out is None:
            return decompress(frame)
        memory, found = ensure_contiguous_ndarray_like(out).view("uint8"), info(frame)
        if memory.nbytes != found["count"] * _width(found["dtype"]):
            raise ValueError(f"out has {memory.nbytes} bytes, the elements have {found['count'] * _width(found['dtype'])}")
        if memory.nbytes:
            decompress_into(frame, memory)
        return out
