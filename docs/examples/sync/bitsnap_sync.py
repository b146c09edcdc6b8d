"""Sends weights from a trainer to rollouts as deltas. Each delta names its base and its result.

    trainer = Trainer(model.state_dict())                    rollout = Rollout(model.state_dict())
    message = trainer.publish(model.state_dict(), step)      rollout.apply(message)       # all tensors, or none
    message = trainer.since(rollout.have)                    # one message for a rollout that missed any number of them

The id of a version is a hash of its contents, so equal weights have the same id in every process. A message is bytes: a delta
from one version to another, or an anchor, which needs no base. transports.py sends messages through sockets and folders. Every
size is checked before it is used.
"""
import collections
import json
import os
import re
import socket
import struct
import threading
import weakref

import numpy

import bitsnap
from bitsnap import _core, files
from bitsnap._arrays import dtype_name, flat

PIECE = 1 << 32  # most bytes of a frame's tensors, which have one dtype; must be equal at trainer and rollouts
FLAGS = bitsnap.CONTENT_ID | bitsnap.SELF_CONTAINED


class MessageError(ValueError):
    """The bytes are not a valid message. Weights are unchanged."""


class WrongBase(MessageError):
    """A valid delta against another version than the rollout has. Request Trainer.since(have)."""


class WrongRun(MessageError):
    """A valid message of another run than the rollout follows, or a folder that another trainer writes to."""


def run_id(run):
    """Returns the id of a run. Raises ValueError unless it has 32 hexadecimal digits."""
    if not isinstance(run, str) or not re.fullmatch("[0-9a-f]{32}", run):
        raise ValueError(f"{run!r} is not the id of a run: 32 hexadecimal digits, such as Trainer.run")
    return run


_locks = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [f.close() for f in list(_locks)])  # a child must not keep the lock


def lock(path, what):
    """Locks a file and returns it. Writes `what` into it unless that is None. close() or the end of the process unlocks it.
    If another process holds the lock, raises BlockingIOError with the holder's line."""
    import fcntl

    f = open(path, "a+", encoding="utf-8", errors="replace")
    try:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        f.seek(0)
        holder = f.read(200).strip()
        f.close()
        raise BlockingIOError(error.errno, f"in use by {holder or 'a process that does not say who it is'}", os.fspath(path)) from None
    _locks.add(f)
    note(f, what)
    return f


def note(f, what):
    """Writes `what` and the lock's holder into a locked file. None: writes nothing."""
    if what is not None:
        f.seek(0)
        f.truncate()
        f.write(f"run {what}, process {os.getpid()} on {socket.gethostname()}\n")
        f.flush()


class Weights:
    """All tensors of a model, as one .safetensors file in memory: `text`, its header, then `data`."""

    def __init__(self, memory):
        self.memory = memory
        file = _core.File(memory)  # checks the header
        if file.kind != "plain":
            raise MessageError("not a .safetensors file")
        self.table = file.tensors()
        start = file.size - file.data_size
        file.close()
        if start % 8 or memory.ctypes.data % 8:
            raise MessageError("tensors must be aligned to 8 bytes")
        self.text, self.data = memory[:start], memory[start:]
        self.name = bitsnap.hash(self.text)
        self.pieces = []  # (dtype, bytes) of each frame
        for dtype, begin, end in self._runs():
            for at in range(begin, end, PIECE):
                self.pieces.append((dtype, self.data[at:min(at + PIECE, end)]))

    def _runs(self):
        runs = []
        for _, dtype, _, begin, end in self.table:
            if begin == end:
                continue
            if runs and runs[-1][0] == dtype:
                runs[-1][2] = end
            else:
                runs.append([dtype, begin, end])
        return runs

    @classmethod
    def of(cls, tensors):
        """Copies a dictionary of arrays."""
        table, at = {}, 0
        rows = files.order([(name, dtype_name(t), tuple(t.shape), t) for name, t in tensors.items()])
        for name, dtype, shape, tensor in rows:
            size = tensor.nbytes
            table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
            at += size
        text = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-(8 + len(text)) % 64)
        weights = cls.new(struct.pack("<Q", len(text)) + text, at)
        weights.fill(tensors)
        return weights

    @classmethod
    def new(cls, text, size):
        """Makes weights from a header and the size of the data. Elements are uninitialized."""
        memory = numpy.empty(len(text) + size, numpy.uint8)
        memory[:len(text)] = numpy.frombuffer(text, numpy.uint8)
        return cls(memory)

    def fill(self, tensors):
        """Copies arrays from any device. Names, dtypes and shapes must be those of the model."""
        if len(tensors) != len(self.table):
            raise ValueError(f"{len(tensors)} tensors; the model has {len(self.table)}")
        for name, dtype, shape, begin, end in self.table:
            tensor = tensors[name]
            if dtype_name(tensor) != dtype or tuple(tensor.shape) != shape:
                raise ValueError(f"{name} is no longer {dtype} of {list(shape)}")
            if hasattr(tensor, "data_ptr"):  # torch, on any device
                import torch

                torch.from_numpy(self.data[begin:end]).copy_(tensor.detach().contiguous().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8))
            else:
                self.data[begin:end] = flat(numpy.ascontiguousarray(tensor))

    def tensors(self, framework="pt"):
        """Returns the tensors as views."""
        family = files._family(framework)
        result = {}
        for name, dtype, shape, begin, end in self.table:
            memory = self.data[begin:end]
            if framework in ("np", "numpy"):
                result[name] = memory.view(family._dtype(dtype)).reshape(shape)
            else:
                import torch

                result[name] = torch.from_numpy(memory).view(getattr(torch, files.DTYPES[dtype][1])).reshape(shape)
        return result

    def version(self):
        """Returns the id of the tensors' contents."""
        return version(self.name, [bitsnap.content_id(memory, dtype) for dtype, memory in self.pieces])


def version(name, ids):
    return bitsnap.hash(struct.pack(f"<{len(ids) + 1}Q", name, *ids)) or 1


# ---- messages

HEAD = struct.Struct("<8s16sQQqQII")  # magic, run, base (0: an anchor), result, step, hash of the text, frames, bytes of the text
MAGIC = b"BSNSYNC2"


def pack(run, base, result, step, name, text, frames):
    """Builds a message: HEAD, the sizes of the frames, the XXH3 of both, the text of an anchor, the frames."""
    head = HEAD.pack(MAGIC, bytes.fromhex(run), base, result, step, name, len(frames), len(text))
    head += struct.pack(f"<{len(frames)}Q", *map(len, frames))
    return b"".join([head, struct.pack("<Q", bitsnap.hash(head)), text, *frames])


class Message:
    """A parsed message. Everything is checked except the elements in the frames."""

    def __init__(self, data):
        data = memoryview(data).cast("B")
        if len(data) < HEAD.size + 8:
            raise MessageError("truncated: no whole message")
        magic, run, self.base, self.result, self.step, self.name, count, text = HEAD.unpack_from(data)
        self.run = run.hex()
        end = HEAD.size + 8 * count
        if magic == b"BSNSYNC1":
            raise MessageError("a message of an earlier version, which does not say of which run it is: update the trainer")
        if magic != MAGIC:
            raise MessageError("not a message of weights")
        if end + 8 > len(data) or bitsnap.hash(data[:end]) != struct.unpack_from("<Q", data, end)[0]:
            raise MessageError("damaged: the check of the message does not match")
        sizes = struct.unpack_from(f"<{count}Q", data, HEAD.size)
        at = end + 8 + text
        if len(data) != at + sum(sizes):
            raise MessageError(f"the message has {len(data)} bytes; it says {at + sum(sizes)}")
        self.text, self.frames, infos = data[end + 8:at], [], []
        for size in sizes:
            self.frames.append(data[at:at + size])
            infos.append(bitsnap.info(self.frames[-1]))
            at += size
        if bool(text) != (self.base == 0) or (text and bitsnap.hash(self.text) != self.name):
            raise MessageError("damaged: the names of the tensors do not match")
        if (version(self.name, [x.get("content_id", 0) for x in infos]) != self.result
                or (self.base and version(self.name, [x.get("base_id", 0) for x in infos]) != self.base)):
            raise MessageError("damaged: the frames are not those of these versions")
        self.sizes = [x["count"] * files._width(x["dtype"]) for x in infos]
        self.size = sum(self.sizes)


def merge(messages):
    """Merges deltas into one message. The base of each must be the result of the one before it."""
    first, *rest = [Message(data) for data in messages]
    frames = first.frames
    for message in rest:
        if message.run != first.run:
            raise WrongRun(f"a delta of run {message.run} does not follow one of run {first.run}")
        if message.base != first.result or message.name != first.name or not first.base:
            raise WrongBase(f"a delta against {message.base:016x} does not follow {first.result:016x}")
        frames = [bitsnap.merge(a, b) for a, b in zip(frames, message.frames, strict=True)]
        first.result, first.step = message.result, message.step
    return pack(first.run, first.base, first.result, first.step, first.name, first.text, frames)


def route(deltas, have, latest):
    """Returns the shortest chain of `deltas`, (base, result) pairs, from one version to another; None if there is none."""
    before, found = {have: None}, collections.deque([have])
    while found and latest not in before:
        version = found.popleft()
        for base, result in deltas:
            if base == version and result not in before:
                before[result] = base
                found.append(result)
    if latest not in before:
        return None
    way = []
    while before[latest] is not None:
        way.append((before[latest], latest))
        latest = before[latest]
    return way[::-1]


def put(path, data):
    with files.whole_file(path) as f:
        f.write(data)


# ---- the two ends

class Trainer:
    """Publishes versions of a model. Keeps two copies of it: `weights`, the version published last, and `spare`, which receives
    the next. `history`: number of deltas kept for rollouts that missed some. A rollout gets an anchor instead if its version is
    older, or if its deltas have more than half of the tensors' bytes. `run`: the id of the run, 32 hexadecimal digits, which is
    in every message. None draws one. A trainer that continues a run must pass the id of the earlier trainer, because rollouts
    refuse any other."""

    def __init__(self, tensors, *, run=None, level="fast", threads=1, history=64):
        self.run = os.urandom(16).hex() if run is None else run_id(run)
        self._level, self._threads, self._history = level, threads, history
        self.weights = Weights.of(tensors)
        self.spare = Weights(self.weights.memory.copy())
        self._deltas, self._ready = {}, {}
        self._changed = threading.Condition()
        self.have, self.step = self.weights.version(), 0

    def publish(self, tensors, step=0):
        """Publishes the tensors. Returns the delta from the last version, or None if nothing has changed."""
        self.spare.fill(tensors)
        result, message = self._encode(step)
        if result == self.have:
            return None
        with self._changed:
            self._deltas[self.have, result] = message
            while len(self._deltas) > self._history:
                del self._deltas[next(iter(self._deltas))]
            self.weights, self.spare = self.spare, self.weights
            self.have, self.step, self._ready = result, step, {}
            self._changed.notify_all()
        return message

    def _encode(self, step):
        options = {"level": self._level, "threads": self._threads, "flags": FLAGS}
        frames = [bitsnap.delta(new, old, dtype, dtype, **options) for (dtype, new), (_, old) in zip(self.spare.pieces, self.weights.pieces)]
        result = version(self.spare.name, [bitsnap.info(x)["content_id"] for x in frames])
        return result, pack(self.run, self.have, result, step, self.spare.name, b"", frames)

    def anchor(self):
        """Returns the current version as an anchor, which needs no base."""
        with self._changed:
            if 0 not in self._ready:
                frames = [bitsnap.compress(memory, dtype, level=self._level, threads=self._threads, flags=bitsnap.CONTENT_ID)
                          for dtype, memory in self.weights.pieces]
                self._ready[0] = pack(self.run, 0, self.have, self.step, self.weights.name, self.weights.text.tobytes(), frames)
            return self._ready[0]

    def since(self, have, timeout=0):
        """Returns a message from version `have` to the newest one: a delta, or an anchor. If `have` is the newest, waits at most
        `timeout` seconds for the next, then returns None."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.have != have, timeout):
                return None
            if have not in self._ready:
                way = route(self._deltas, have, self.have)
                if way is None or sum(len(self._deltas[x]) for x in way) > self.weights.data.size // 2:
                    return self.anchor()
                self._ready[have] = merge([self._deltas[x] for x in way])
            return self._ready[have]


class Rollout:
    """Weights that messages bring from version to version. One thread at a time may use it.

    `tensors`: the first version. If the trainer has had the same one, no anchor is needed. `path`: a .safetensors file, which is
    mapped and holds the weights. If the process is killed, the next one finds the old version there or completes the new one.
    `limit`: bytes of tensors. A larger anchor is refused, and so is a first message of more than these bytes, a 64th and 1 MiB.
    `run`: the id of the run to follow; messages of another run are refused. None follows the run of the first message. To change
    the run, set the attribute to an id, or to None for the run of the next message."""

    def __init__(self, tensors=None, *, path=None, run=None, threads=1, limit=1 << 40):
        self._path, self._threads, self._limit = path, threads, limit
        self._pending, self._weights, self._have, self._lock, self._run = None, None, 0, None, None
        self.step = 0
        try:
            if path is not None:
                self._open()
            if run is not None and self._run not in (None, run_id(run)):
                raise WrongRun(f"{os.fspath(path)} has weights of run {self._run}, not of {run}: leave out `run`, "
                               "then set the attribute to change it")
            self.run = run or self._run
            if tensors is not None and self._weights is None:
                weights = Weights.of(tensors)
                self._keep(weights, weights.version())
        except BaseException:
            self.close()  # a kept exception must not keep the lock
            raise

    def _keep(self, weights, have):
        if self._path is not None:
            put(self._path, weights.memory)
            weights = self._map()
        self._weights, self._have = weights, have

    @property
    def have(self):
        """The id of the current version; 0: none."""
        return self._have

    @property
    def run(self):
        """The id of the run to follow; None: the run of the next message."""
        return self._run

    @run.setter
    def run(self, run):
        self._run = run if run is None else run_id(run)
        if self._lock is not None:
            note(self._lock, self._run or "-")

    def check_run(self, run, where):
        """Raises WrongRun for a message or folder of another run than this rollout follows."""
        if self._run not in (None, run):
            raise WrongRun(f"{where} is of run {run}; this rollout follows {self._run}: set its attribute `run` if the change is meant")

    def check_size(self, size, where):
        """Raises MessageError if a message of `size` bytes is too large for these weights. Called with the sender's claim, before
        the message is read. Elements that cannot be compressed grow by far less than a 64th."""
        weights = self._weights
        most, why = (self._limit, "the limit of this rollout") if weights is None else (weights.memory.size, "the weights here")
        most += most // 64 + (1 << 20)
        if size > most:
            raise MessageError(f"{where} says that a message has {size} bytes; {why} allows {most}" +
                               (": give Rollout a larger limit if that is right" if weights is None else ""))

    def tensors(self, framework="pt"):
        """Returns views of the weights. Deltas change these in place. After an anchor they are stale: call this again."""
        if not self._have:
            raise MessageError("there are no weights yet: an anchor is needed")
        return self._weights.tensors(framework)

    def apply(self, data):
        """Brings all tensors to the result of a message. Returns False if they had it already. Raises an exception and changes no
        tensor if the message is refused."""
        if self._pending:  # an exception such as KeyboardInterrupt stopped the last apply
            self._commit(self._pending)
        message = Message(data)
        self.check_run(message.run, "the message")
        if message.result == self._have:
            self.run = message.run
            return False
        if message.base == 0:
            self._load(message)
        elif message.base != self._have or message.name != self._weights.name or message.sizes != [x.size for _, x in self._weights.pieces]:
            raise WrongBase(f"a delta against {message.base:016x}; here is {self._have:016x}")
        else:
            self._commit(message, data)
            self.run = message.run
        self.step = message.step
        return True

    def _commit(self, message, data=None):
        """Applies a delta. Without `data`, resumes one that was begun, and leaves finished frames alone. All frames but the
        largest are tested first, and the largest is applied first. If it is refused, nothing has changed; after it, no frame is
        refused."""
        frames = sorted(zip(self._weights.pieces, message.frames, strict=True), key=lambda x: -x[0][1].size)
        try:
            if data is not None:
                for (_, memory), frame in frames[1:]:
                    bitsnap.test(frame, base=memory, threads=self._threads)
                self._journal(data)
            self._pending, self._have = message, 0
            for (_, memory), frame in frames:
                bitsnap.apply(memory, frame, threads=self._threads)
        except ValueError:
            self._settle(self._weights.version())  # not the old version if another process or thread has changed the weights
            raise
        self._settle(message.result)

    def _settle(self, have):
        self._have, self._pending = have, None
        self._journal(None)

    def _load(self, anchor):
        if self._weights is not None and anchor.name != self._weights.name:
            raise MessageError("an anchor of another model")
        if anchor.size > self._limit:
            raise MessageError(f"an anchor of {anchor.size} bytes; the limit is {self._limit}")
        weights = Weights.new(anchor.text, anchor.size)
        for (_, memory), frame in zip(weights.pieces, anchor.frames, strict=True):
            bitsnap.decompress_into(frame, memory, threads=self._threads)
        self.run = anchor.run  # noted before the weights, so a killed process does not lose it
        self._keep(weights, anchor.result)

    # ---- in a file

    def _map(self):
        return Weights(numpy.memmap(self._path, numpy.uint8, "r+"))

    def _open(self):
        """Locks and maps the file, and completes a delta that was begun. One process writes; others may map the file, too. The
        lock file names the run."""
        self._lock = lock(os.fspath(self._path) + ".lock", None)
        if not os.path.exists(self._path):
            return
        self._lock.seek(0)
        known = re.match("run ([0-9a-f]{32}),", self._lock.read(200))
        self._run = known and known[1]
        self._weights = self._map()
        try:
            with open(self._name, "rb") as f:
                message = Message(f.read())
            self._commit(message)
            self._run = message.run
        except (FileNotFoundError, ValueError):  # no delta was begun, or it does not fit these weights
            self._settle(self._weights.version())

    @property
    def _name(self):
        return os.fspath(self._path) + ".applying"

    def _journal(self, data):
        """Keeps the message that is being applied in a file beside the weights; None removes it."""
        if self._path is None:
            return
        if data is not None:
            put(self._name, data)
        elif os.path.exists(self._name):
            os.unlink(self._name)

    def close(self):
        if self._lock is not None:
            self._lock.close()
