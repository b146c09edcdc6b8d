"""Chunks of Zarr (version 3) as frames: the codec "bitsnap", which replaces "bytes". Zarr finds it by its entry point.

    zarr.create_array(store, shape=..., dtype="float32", serializer=bitsnap.zarr.BitsnapCodec(), compressors=None)

dtype: for arrays whose type is not that of their elements, as "BF16" for uint16.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy
from zarr.abc.codec import ArrayBytesCodec, ArrayBytesCodecPartialDecodeMixin
from zarr.core.common import parse_named_configuration

from . import compress, decompress_into, info
from ._arrays import flat
from .files import _width
from .numcodecs import check_options, coded_as


@dataclass(frozen=True)
class BitsnapCodec(ArrayBytesCodecPartialDecodeMixin, ArrayBytesCodec):
    """level: "fast", "default" or "best". dtype: of the elements, if the type of the array is another: "BF16" of uint16."""

    level: str = "default"
    dtype: str | None = None
    is_fixed_size = False

    def __post_init__(self):
        check_options(self.level, self.dtype)

    def evolve_from_array_spec(self, array_spec: Any) -> BitsnapCodec:
        """Refuses arrays that the codec cannot give back. Zarr asks when it makes and when it opens an array, before anything is stored."""
        self._name(array_spec.dtype.to_native_dtype())
        return self

    def _name(self, dtype):
        name = coded_as(dtype, self.dtype)
        if dtype.itemsize % _width(name):
            raise ValueError(f"elements of {dtype}, {dtype.itemsize} bytes each, are not whole elements of {name}, the codec's dtype: give it "
                             "another one, or none")
        return name

    @classmethod
    def from_dict(cls, data: Any) -> BitsnapCodec:
        configuration: Any
        _, configuration = parse_named_configuration(data, "bitsnap", require_configuration=False)
        return cls(**(configuration or {}))

    def to_dict(self) -> dict[str, Any]:
        return {"name": "bitsnap", "configuration": {"level": self.level, **({"dtype": self.dtype} if self.dtype else {})}}

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        raise NotImplementedError  # the size depends on the elements

    def _encode_sync(self, chunk_array, chunk_spec):
        array = numpy.ascontiguousarray(chunk_array.as_numpy_array())
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        frame = compress(array, self._name(array.dtype), level=self.level, columns=0)
        return chunk_spec.prototype.buffer.from_bytes(frame)

    def _decode_sync(self, chunk_bytes, chunk_spec):
        return self._rows(chunk_bytes, chunk_spec, 0, chunk_spec.shape[0] if chunk_spec.shape else 1)

    def _rows(self, chunk_bytes, chunk_spec, first, rows):
        """Blocks that hold no element of these rows are not decoded."""
        frame = chunk_bytes.as_numpy_array()
        shape = (rows, *chunk_spec.shape[1:]) if chunk_spec.shape else ()
        array = numpy.empty(shape, chunk_spec.dtype.to_native_dtype().newbyteorder("="))
        found, size = info(frame), array.itemsize
        width = _width(found["dtype"])  # several elements of a frame make one of the array: a complex number is two floats
        if found["count"] * width != numpy.prod(chunk_spec.shape, dtype=object) * size or not width or size % width:
            raise ValueError(f"a frame of {found['count']} elements of {found['dtype']} in a chunk of shape {chunk_spec.shape} and {array.dtype}")
        row = int(numpy.prod(chunk_spec.shape[1:], dtype=numpy.int64)) * size // width
        if rows and row:
            decompress_into(frame, flat(array), first=first * row, count=rows * row)
        return chunk_spec.prototype.nd_buffer.from_numpy_array(array)

    async def _encode_single(self, chunk_array, chunk_spec):
        return self._encode_sync(chunk_array, chunk_spec)

    async def _decode_single(self, chunk_bytes, chunk_spec):
        return self._decode_sync(chunk_bytes, chunk_spec)

    async def _decode_partial_single(self, byte_getter, selection, chunk_spec):
        chunk_bytes = await byte_getter.get(prototype=chunk_spec.prototype)
        if chunk_bytes is None:
            return None
        index = selection if isinstance(selection, tuple) else (selection,)
        if not index or not isinstance(index[0], slice) or index[0].step not in (None, 1):
            return self._decode_sync(chunk_bytes, chunk_spec)[selection]
        first, last, _ = index[0].indices(chunk_spec.shape[0])
        return self._rows(chunk_bytes, chunk_spec, first, max(last - first, 0))[(slice(None), *index[1:])]
