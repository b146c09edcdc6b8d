#!/usr/bin/env python3
"""Compresses tensors of PyTorch in place: on a GPU with the hook, in host memory with the codec. The calls are the same.
Frames are ordinary ones. library.cu says how its library is built.

    codec = Offload("build/liboffload.so", "cuda")      # or "cpu"
    frames = codec.encode(tensors)                      # tensors on the device to bytes in host memory
    codec.decode(frames, tensors)                       # and back
    codec.encode(moments, max_relative_error=0.01)      # lossy: each float within 1 %
    codec.apply(deltas, tensors)                        # in place, for frames with a base
    codec.close()                                       # or: with Offload(...) as codec

    torch_offload.py LIBRARY [cuda]                     # tests a round trip, a quantized one, and a delta applied in place
"""
import contextlib
import ctypes
import os
import sys

import torch

DTYPES = {torch.bool: 1, torch.int8: 2, torch.uint8: 2, torch.int16: 3, torch.int32: 4, torch.int64: 5, torch.float8_e4m3fn: 6,
          torch.float8_e5m2: 7, torch.float16: 8, torch.bfloat16: 9, torch.float32: 10, torch.float64: 11}
ENCODE, DECODE, APPLY = range(3)


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("rule", ctypes.c_uint), ("offset", ctypes.c_uint64), ("element", ctypes.c_uint64),
                ("needed", ctypes.c_uint64), ("argument", ctypes.c_char_p)]


class Request(ctypes.Structure):
    _fields_ = [("frame", ctypes.c_void_p), ("destination", ctypes.c_void_p), ("size", ctypes.c_size_t), ("elements", ctypes.c_uint64),
                ("count", ctypes.c_uint64), ("dtype", ctypes.c_int), ("base_dtype", ctypes.c_int), ("base", ctypes.c_uint64),
                ("base_id", ctypes.c_uint64), ("error", Error)]


class Offload:
    """device: "cuda", "cuda:1" or "cpu"; trusted: frames from the GPU are not verified by decoding them."""

    def __init__(self, library, device="cuda", staging=64 << 20, scratch=256 << 20, workers=None, trusted=False):
        self.handle = None
        self.device, self.workers = torch.device(device), workers or os.cpu_count() or 1
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            if self.device.index is None:
                self.device = torch.device("cuda", torch.cuda.current_device())
        self.library = ctypes.CDLL(os.path.abspath(library))
        self.library.library_begin.restype = ctypes.c_void_p
        self.library.library_begin.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
        self.library.library_end.argtypes = [ctypes.c_void_p]
        self.library.library_message.restype = ctypes.c_char_p
        self.library.library_message.argtypes = [ctypes.c_void_p]
        self.library.library_bound.restype = ctypes.c_size_t
        self.library.library_bound.argtypes = [ctypes.c_uint64, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_uint, ctypes.c_uint64]
        self.library.library_cells.restype = ctypes.c_uint
        self.library.library_cells.argtypes = [ctypes.c_double]
        self.library.library_do.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(Request), ctypes.c_size_t, ctypes.c_int,
                                            ctypes.c_int, ctypes.c_uint, ctypes.c_uint64]
        with self._current():
            self.handle = self.library.library_begin(staging if on_gpu else 0, scratch, trusted)
        if not self.handle:
            raise RuntimeError("no GPU, or a library without code for one")

    def _current(self):
        """Makes the library's GPU the current one inside a with block."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else contextlib.nullcontext()

    def close(self):
        if self.handle:
            with self._current():
                self.library.library_end(self.handle)
        self.handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _request(self, tensor, base=None):
        r = Request()
        for t in (tensor, base):
            if t is not None and (t.device != self.device or not t.is_contiguous() or t.dtype not in DTYPES or t.data_ptr() % 4):
                raise ValueError("tensors must be contiguous, on %s, and at a multiple of 4" % self.device)
        if base is not None and base.numel() != tensor.numel():
            raise ValueError("a base has %d elements, its tensor %d" % (base.numel(), tensor.numel()))
        r.elements, r.count, r.dtype = tensor.data_ptr(), tensor.numel(), DTYPES[tensor.dtype]
        if base is not None:
            r.base, r.base_dtype = base.data_ptr(), DTYPES[base.dtype]
        return r

    def _do(self, what, requests, level=0, cells=0, columns=0):
        array = (Request * len(requests))(*requests)
        with self._current():
            if self.device.type == "cuda":
                torch.cuda.synchronize()  # waits for writers of the tensors, because the hook has its own streams
            failed = self.library.library_do(self.handle, what, array, len(requests), level, self.workers, cells, columns)
        if failed:
            raise RuntimeError(self.library.library_message(self.handle).decode())
        return array

    def encode(self, tensors, bases=None, level=0, max_relative_error=None, columns=None):
        """Returns a frame for each tensor, as a one-dimensional tensor of bytes.

        bases: makes deltas; only on the host. max_relative_error: lossy, each float within this bound; not with bases.
        columns: for lossy frames and level 3, the last dimension; the default is that of tensors of two or more dimensions."""
        if bases is not None and self.device.type == "cuda":
            raise ValueError("devices encode no deltas")
        cells = 0 if max_relative_error is None else self.library.library_cells(max_relative_error)
        if max_relative_error is not None and not cells:
            raise ValueError("no quantizer has a relative error of at most %r" % max_relative_error)
        tensors, frames, calls = list(tensors), [], {}  # calls: for each number of columns, its requests and their indices
        bases = [None] * len(tensors) if bases is None else list(bases)  # kept alive until the library is done
        for tensor, base in zip(tensors, bases, strict=True):
            r = self._request(tensor, base)
            of = columns if columns is not None else tensor.shape[-1] if tensor.dim() > 1 and (cells or level == 3) else 0
            bound = self.library.library_bound(r.count, r.dtype, r.base_dtype, level, cells, of)
            frames.append(torch.empty(bound, dtype=torch.uint8))
            if not frames[-1].numel():
                raise ValueError("there is no such frame of %s" % tensor.dtype)
            r.destination, r.size = frames[-1].data_ptr(), frames[-1].numel()
            calls.setdefault(of, []).append((len(frames) - 1, r))
        for of, some in calls.items():
            for (i, _), r in zip(some, self._do(ENCODE, [r for _, r in some], level, cells, of)):
                frames[i] = frames[i][:r.size].clone()
        return frames

    def _restore(self, what, frames, tensors, bases):
        frames, tensors, requests = list(frames), list(tensors), []
        bases = [None] * len(tensors) if bases is None else list(bases)
        for frame, tensor, base in zip(frames, tensors, bases, strict=True):
            r = self._request(tensor, base)
            if frame.device.type != "cpu" or frame.dtype != torch.uint8 or not frame.is_contiguous():
                raise ValueError("frames must be contiguous bytes in host memory")
            r.frame, r.size = frame.data_ptr(), frame.numel()
            requests.append(r)
        self._do(what, requests)

    def decode(self, frames, tensors, bases=None):
        self._restore(DECODE, frames, tensors, bases)

    def apply(self, deltas, tensors):
        some = [(d, t) for d, t in zip(deltas, tensors, strict=True) if t.numel()]
        self._restore(APPLY, [d for d, _ in some], [t for _, t in some], None)


def refuses(*calls):
    for call in calls:
        try:
            call()
        except ValueError:
            continue
        raise AssertionError("what does not fit together is taken")


def quantizes(codec, cpu):
    generator = torch.Generator().manual_seed(2)
    rand = lambda *shape: torch.rand(shape, generator=generator)
    moments = [((rand(*shape) + 0.5) * torch.exp2(10 * rand(*shape[:-1], 1))).to(dtype)  # each row has a size
               for shape, dtype in [((200, 700), torch.float32), ((90000,), torch.bfloat16), ((30, 10, 100), torch.float16),
                                    ((0, 3), torch.float32)]]
    tensors, sizes = [t.to(codec.device) for t in moments], []
    for options in {"level": 0}, {"level": 1}, {"columns": 0}, {"columns": 700}:
        frames, same = (on.encode(these, max_relative_error=0.01, **options) for on, these in ((codec, tensors), (cpu, moments)))
        assert all(torch.equal(a, b) for a, b in zip(frames, same)), "a GPU makes other bytes"
        back = [torch.zeros_like(t) for t in tensors]
        codec.decode(frames, back)
        assert all(((a - b).abs().double() <= 0.01 * b.abs().double()).all() for a, b in zip(back, tensors)), "beyond the bound"
        sizes.append(len(frames[0]))
    assert sizes[0] == sizes[3] < sizes[2] < moments[0].numel() * 2, sizes
    refuses(lambda: cpu.encode([torch.arange(9)], max_relative_error=0.01), lambda: cpu.encode(moments, max_relative_error=1e-9),
            lambda: cpu.encode(moments, moments, max_relative_error=0.01))


def main(library, device):
    generator = torch.Generator().manual_seed(1)
    host = [(torch.randn(n, generator=generator) * 0.02).to(dtype)
            for n, dtype in [(200000, torch.bfloat16), (70000, torch.float32), (65536, torch.float16), (0, torch.bfloat16),
                             (1000, torch.int64), (1, torch.float32)]]
    codec, cpu = Offload(library, device), Offload(library, "cpu")
    same = lambda a, b: all(torch.equal(x.cpu().view(torch.uint8), y.cpu().view(torch.uint8)) for x, y in zip(a, b))
    tensors = [t.to(codec.device) for t in host]
    frames = codec.encode(tensors)
    assert all(torch.equal(a, b) for a, b in zip(frames, cpu.encode(host))), "a GPU makes other bytes"
    back = [torch.zeros_like(t) for t in tensors]
    codec.decode(frames, back)
    assert same(back, host), "what comes back is something else"
    noise = torch.randint(0, 256, (60, 200), dtype=torch.uint8, generator=generator).view(torch.float32)  # a frame as large as any
    back = [torch.zeros_like(noise).to(codec.device)]
    codec.decode(codec.encode([noise.to(codec.device)], level=3), back)
    assert same(back, [noise]), "what comes back of a matrix is something else"
    quantizes(codec, cpu)
    later = [t.clone() for t in host]
    for t in later:
        t[::17] = t[::17] * 1.01 if t.is_floating_point() else t[::17] + 1
    deltas = cpu.encode(later, host)  # a trainer's, say
    codec.apply(deltas, tensors)
    assert same(tensors, later), "a delta makes something else"
    try:
        codec.apply(deltas[:1], [torch.zeros_like(tensors[0])])
    except RuntimeError as e:
        assert "base" in str(e), e
    else:
        raise AssertionError("a delta is applied to another base")
    refuses(lambda: codec.decode(frames, tensors, [t[:-1] for t in tensors]), lambda: cpu.encode(host, [t[:0] for t in host]),
            lambda: codec.decode([f[::2] for f in frames], tensors),
            lambda: codec.decode([f.to(torch.int16) for f in frames], tensors), lambda: codec.decode(frames[1:], tensors))
    print("%d bytes of %d; deltas %d" % (sum(map(len, frames)), sum(t.numel() * t.element_size() for t in host), sum(map(len, deltas))))
    with open(os.environ.get("FRAME", os.devnull), "wb") as f:
        f.write(frames[0].numpy().tobytes())
    codec.close()
    cpu.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "cpu")
