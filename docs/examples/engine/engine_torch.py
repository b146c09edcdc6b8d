"""The engine for trainers in PyTorch: snapshots of tensors in the host's memory, ranks that talk by torch.distributed (gloo).

    engine = Engine("run7", 3 * size_of_the_state // 2, group=dist.new_group(backend="gloo"))
    step = engine.recover(tensors)                            # {name: tensor}, written in place; None: begin anew
    while training:
        engine.snapshot(step, tensors)                        # False: this one is left out
    engine.close(remove=True)

needs the engine as a library, and its path in `library` or BITSNAP_ENGINE:
cc -std=c99 -shared -fPIC -O2 -I. docs/examples/engine/bitsnap_engine.c docs/examples/engine/engine_disk.c docs/examples/engine/codec.c \\
    -o build/libbitsnap_engine.so -lpthread
"""
import ctypes
import os
import sys
import threading

import torch
import torch.distributed as dist

# As in bitsnap_engine.h, and the same order. DTYPES: the codec's number, and the name that .safetensors has.
STATUS = ("", "argument", "system", "busy", "full", "none", "damaged", "mismatch", "unprotected", "stop", "scattered", "fenced")
BUSY, FULL, NONE, UNPROTECTED = 3, 4, 5, 8
DTYPES = {torch.bool: (1, "BOOL"), torch.int8: (2, "I8"), torch.uint8: (2, "U8"), torch.int16: (3, "I16"), torch.int32: (4, "I32"), torch.int64: (5, "I64"),
          torch.float8_e4m3fn: (6, "F8_E4M3"), torch.float8_e5m2: (7, "F8_E5M2"), torch.float16: (8, "F16"), torch.bfloat16: (9, "BF16"),
          torch.float32: (10, "F32"), torch.float64: (11, "F64")}
SOURCES = ("memory", "partner", "disk")
c_int, c_uint, c_void_p, c_char_p, c_u64, c_double = ctypes.c_int, ctypes.c_uint, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_double
BEGIN = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint, c_int, c_void_p, ctypes.c_size_t, ctypes.POINTER(c_void_p))
TEST = ctypes.CFUNCTYPE(c_int, c_void_p, ctypes.POINTER(c_void_p), ctypes.POINTER(c_int))
SAY = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)


class _Error(ctypes.Structure):
    _fields_ = [("status", c_int), ("message", ctypes.c_char * 1000)]


class _Tensor(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int), ("data", c_void_p), ("count", c_u64), ("columns", c_u64), ("kind", c_int),
                ("master", c_void_p), ("fetch", c_void_p), ("store", c_void_p), ("weights", c_void_p), ("type", c_char_p), ("file", c_u64)]


class _Transport(ctypes.Structure):
    _fields_ = [("context", c_void_p), ("rank", c_uint), ("ranks", c_uint), ("send", BEGIN), ("receive", BEGIN), ("test", TEST)]


class _Options(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("directory", c_char_p), ("budget", c_u64), ("threads", c_uint), ("level", c_int),
                ("level_most", c_int), ("m_cells", c_uint), ("v_cells", c_uint), ("stage", c_int), ("deltas", c_int), ("delta_percent", c_uint), ("copy", c_int), ("when_busy", c_int), ("patience", c_double),
                ("transport", ctypes.POINTER(_Transport)), ("distance", c_uint), ("group", c_uint), ("partner_patience", c_double), ("unprotected_steps", c_uint),
                ("agent", ctypes.POINTER(c_char_p)), ("disk", c_char_p), ("adopt", c_char_p), ("anew", c_int), ("say", SAY), ("say_context", c_void_p)]


class _Cost(ctypes.Structure):
    _fields_ = [("seconds", c_double), ("encode_seconds", c_double), ("source", c_int), ("agree_seconds", c_double), ("fetch_seconds", c_double),
                ("decode_seconds", c_double)] + [(name, c_u64) for name in ("elements_size", "frames_size", "written_size", "sent_size", "whole", "cast", "delta")] + [("cells", c_double)]


class _Protection(ctypes.Structure):
    _fields_ = [(name, c_u64) for name in ("memory_step", "partner_step", "disk_step")] + \
        [(name, c_double) for name in ("memory_age", "partner_age", "disk_age", "agent_age")] + [("unprotected", c_u64), ("reason", ctypes.c_char * 232)]


class Error(RuntimeError):
    """status: one of STATUS."""


class Gloo:
    """The engine's transport. A thread waits for each message: gloo tells nobody else when one is done."""

    def __init__(self, group):
        self._group, self._open, self._next = group, {}, 0
        self.table = _Transport(None, dist.get_rank(group), dist.get_world_size(group), BEGIN(self._send), BEGIN(self._receive), TEST(self._test))

    def _send(self, _, to, tag, data, size, request):
        return self._begin(request, data, size, lambda bytes: dist.isend(bytes, group=self._group, group_dst=to, tag=tag))

    def _receive(self, _, peer, tag, data, size, request):
        return self._begin(request, data, size, lambda bytes: dist.irecv(bytes, group=self._group, group_src=peer, tag=tag))

    def _begin(self, request, data, size, begin):
        try:
            bytes = torch.frombuffer((ctypes.c_ubyte * size).from_address(data), dtype=torch.uint8)
            work, failed = begin(bytes), []
            thread = threading.Thread(target=self._wait, args=(work, failed), daemon=True)
            thread.start()
        except RuntimeError:
            return 1
        self._next += 1
        self._open[self._next] = thread, failed, bytes
        request[0] = self._next
        return 0

    @staticmethod
    def _wait(work, failed):
        try:
            work.wait()
        except RuntimeError:
            failed.append(True)

    def _test(self, _, request, done):
        thread, failed, _ = self._open[request[0]]
        done[0] = not thread.is_alive()
        if done[0]:
            del self._open[request[0]]
        return len(failed)


class Engine:
    """One of a rank. name: of the run; the segment of rank r is name.r. budget: its bytes. group: of torch.distributed with gloo, and of nobody
    else; None: one rank. moments: what names of AdamW's moments end with, for `policy`. Other options: as those in bitsnap_engine.h."""

    def __init__(self, name, budget, *, group=None, policy="lossless", moments=("exp_avg", "exp_avg_sq"), library=None, say=None, **options):
        self._library = ctypes.CDLL(library or os.environ.get("BITSNAP_ENGINE", "build/libbitsnap_engine.so"))
        self._library.engine_last_cost.restype = ctypes.POINTER(_Cost)
        sizes = (ctypes.c_size_t * 4)()
        self._library.engine_sizes(sizes)
        if list(sizes) != [ctypes.sizeof(x) for x in (_Options, _Tensor, _Cost, _Protection)]:
            raise ImportError("bitsnap's engine is of another version than engine_torch.py")
        self._gloo = Gloo(group) if group is not None else None
        self._moments = moments
        rank = self._gloo.table.rank if self._gloo else 0
        say = say or (lambda text: print(text, file=sys.stderr))
        texts = {k: os.fsencode(v) if isinstance(v, (str, os.PathLike)) else v for k, v in options.items()}
        self._options = _Options(name=f"{name}.{rank}".encode(), budget=budget, say=SAY(lambda _, text: say(text.decode(errors="replace"))), **texts)
        if self._gloo:
            self._options.transport = ctypes.pointer(self._gloo.table)
        if self._library.engine_policy(ctypes.byref(self._options), policy.encode()):
            raise ValueError(f'"{policy}" is no policy; policies are lossless, resume, standard and small')
        self._engine, self._error = c_void_p(), _Error()
        self._call("engine_open", ctypes.byref(self._engine), ctypes.byref(self._options))

    def _call(self, function, *args, expected=()):
        status = getattr(self._library, function)(*args, ctypes.byref(self._error))
        if status and status not in expected:
            error = Error(self._error.message.decode(errors="replace"))
            error.status = STATUS[status]
            raise error
        return status

    def _table(self, tensors, files):
        table = (_Tensor * len(tensors))()
        for entry, (name, tensor) in zip(table, tensors.items()):
            if tensor.device.type != "cpu" or not tensor.is_contiguous() or tensor.dtype not in DTYPES:
                raise ValueError(f"{name} must be contiguous, in the host's memory, and of a type that the codec has")
            entry.dtype, dtype = DTYPES[tensor.dtype]
            entry.name, entry.data, entry.count = name.encode(), tensor.data_ptr(), tensor.numel()
            entry.type = f"{dtype}[{','.join(map(str, tensor.shape))}]".encode()
            entry.file = files[name] + 1 if name in files else 0
            entry.columns = tensor.shape[-1] if tensor.dim() > 1 else 0
            entry.kind = next((kind for kind, end in enumerate(self._moments, 1) if tensor.dtype == torch.float32 and name.endswith(end)), 0)
        return table, len(tensors)

    def snapshot(self, step, tensors):
        """Whether it was taken; all ranks call, with the same step. False: it does not fit, or the one before is still on its way."""
        table, count = self._table(tensors, {})
        return self._call("engine_snapshot", self._engine, c_u64(step), table, ctypes.c_size_t(count), expected=(FULL, BUSY, UNPROTECTED)) in (0, UNPROTECTED)

    def wait(self, seconds):
        """Whether the last snapshot counts: all ranks have it, and their partners. False: not yet, or it never will."""
        return not self._call("engine_wait", self._engine, c_double(seconds), expected=(BUSY, NONE))

    def recover(self, tensors, files={}):
        """The step of the newest snapshot that all ranks can have, which the tensors then hold; None: there is no such step. Names, dtypes and shapes must
        be those of the snapshot. files: {name: rank} says, where the files are of another number of ranks, which rank's has a tensor; one that
        several have needs that, unless its elements are the same in all of them."""
        table, count = self._table(tensors, files)
        step = c_u64()
        found = self._call("engine_recover", self._engine, ctypes.byref(step), table, ctypes.c_size_t(count), expected=(NONE,))
        return None if found else step.value

    def protection(self):
        """What is protected where, and what is wrong: as engine_protection in bitsnap_engine.h."""
        p = _Protection()
        self._library.engine_protected(self._engine, ctypes.byref(p))
        return {**{name: getattr(p, name) for name, _ in _Protection._fields_}, "reason": p.reason.decode(errors="replace")}

    def cost(self):
        """What the last call took: as engine_cost in bitsnap_engine.h, the source by its name."""
        cost = self._library.engine_last_cost(self._engine).contents
        return {**{name: getattr(cost, name) for name, _ in _Cost._fields_}, "source": SOURCES[cost.source]}

    def close(self, remove=False):
        self._library.engine_close(self._engine, c_int(remove))
        self._engine = c_void_p()
