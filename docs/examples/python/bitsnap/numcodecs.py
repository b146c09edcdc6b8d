"""The codec "bitsnap" of numcodecs, for Zarr's version 2 and whoever else uses these. It is found by its entry point."""
import numpy
from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray_like, ensure_ndarray

from . import _level, compress, decompress, decompress_into, info
from ._arrays import dtype_name


class Bitsnap(Codec):
    """dtype: of the elements, where buffers come as bytes, or as another type ("BF16" of uint16)."""

    codec_id = "bitsnap"

    def __init__(self, level="default", dtype=None):
        _level(level)
        self.level = level
        self.dtype = dtype

    def encode(self, buf):
        array = numpy.ascontiguousarray(ensure_ndarray(buf))
        return compress(array, self.dtype or dtype_name(array), level=self.level, columns=0)

    def decode(self, buf, out=None):
        frame = ensure_contiguous_ndarray_like(buf)
        if out is None:
            return decompress(frame)
        flat = ensure_contiguous_ndarray_like(out).reshape(-1).view("uint8")
        if info(frame)["count"]:
            decompress_into(frame, flat)
        return out
