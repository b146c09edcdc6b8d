"""An extension that compresses what the stock FileSystemWriter of torch.distributed.checkpoint writes."""
from __future__ import annotations

import io
from typing import Any

from torch.distributed.checkpoint._extension import StreamTransformExtension

from . import _level, compress, decompress, info
from .files import _width


class BitsnapTransform(StreamTransformExtension):
    """Give it to FileSystemWriter in `_extensions=[BitsnapTransform()]`. FileSystemReader then needs an `_extension_registry`
    with this class. An item is a sequence of pieces, each a u32, its size, and a frame; a size of 0 ends it."""

    PIECE = 4 << 20
    KINDS = ("F32", "BF16", "F16", "F64", "U8")  # frame() takes the best on a sample, since streams have no dtypes

    def __init__(self, level: str | int = "default") -> None:
        _level(level)
        self.level = level

    @staticmethod
    def registry_name() -> str:
        return "stream.bitsnap"

    @staticmethod
    def from_descriptor(version: str) -> BitsnapTransform:
        if version.partition(".")[0] != "1":
            raise ValueError(f"stream.bitsnap: version {version} is not known here")
        return BitsnapTransform()

    def get_descriptor(self) -> str:
        return f"{self.registry_name()}/1"

    def transform_to(self, output: Any) -> Any:
        return _Packer(output, self)

    def transform_from(self, input: Any) -> Any:
        return _Unpacker(input)

    def frame(self, piece: bytes) -> bytes:
        middle = len(piece) // 16 * 8
        sample = piece[middle:middle + 65536]
        kinds = [kind for kind in self.KINDS if len(piece) % 8 == 0 or kind == "U8"]
        return compress(piece, min(kinds, key=lambda kind: len(compress(sample, kind, level="fast"))), level=self.level)


class _Packer(io.RawIOBase):
    def __init__(self, output, transform):
        self._output, self._transform, self._piece = output, transform, bytearray()

    def writable(self):
        return True

    def write(self, data):
        data = memoryview(data).cast("B")
        self._piece += data
        while len(self._piece) >= self._transform.PIECE:
            self._emit(self._transform.PIECE)
        return len(data)

    def _emit(self, size):
        frame = self._transform.frame(bytes(self._piece[:size]))
        del self._piece[:size]
        self._output.write(len(frame).to_bytes(4, "little") + frame)

    def close(self):
        if self.closed:
            return
        try:
            whole = len(self._piece) & ~7
            for size in (whole, len(self._piece) - whole):
                if size:
                    self._emit(size)
            self._output.write(bytes(4))
        finally:
            super().close()
            self._output.close()


class _Unpacker(io.RawIOBase):
    def __init__(self, input):
        self._input, self._piece, self._ended = input, memoryview(b""), False

    def readable(self):
        return True

    def readinto(self, buffer):
        while not self._piece:
            if self._ended:
                return 0
            size = int.from_bytes(self._exactly(4), "little")
            if not size:
                self._ended = True
                return 0
            if size > 2 * BitsnapTransform.PIECE:  # no frame of a piece is that large
                raise ValueError(f"the stream says that a frame has {size} bytes; no piece takes so many")
            frame = self._exactly(size)
            found = info(frame)
            if found["count"] * max(_width(found["dtype"]), 1) > BitsnapTransform.PIECE:
                raise ValueError("a frame of more elements than a piece has")
            self._piece = memoryview(decompress(frame))
        n = min(len(buffer), len(self._piece))
        buffer[:n], self._piece = self._piece[:n], self._piece[n:]
        return n

    def _exactly(self, size):
        data = bytearray()
        while len(data) < size:
            part = self._input.read(size - len(data))
            if not part:
                raise ValueError("the stream ends inside a frame")
            data += part
        return data
