"""Weights from a trainer to rollouts, as deltas that name what they are against and what they give.

    trainer = Trainer(model.state_dict())                    rollout = Rollout(model.state_dict())
    message = trainer.publish(model.state_dict(), step)      rollout.apply(message)       # all tensors, or none
    message = trainer.since(rollout.have)                    # for who has missed some: one message, whatever is missing

A version is named by its contents: the same weights have the same id in every process. A message is bytes: a delta from one version
to another, or an anchor, which needs none. transports.py carries them by sockets and folders. Every size is checked before it is used.
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

PIECE = 1 << 32  # bytes of tensors of one dtype in a frame, at most: trainer and rollouts need the same
FLAGS = bitsnap.CONTENT_ID | bitsnap.SELF_CONTAINED


class MessageError(ValueError):
    """Bytes that are no good message. Weights are as they were."""


class WrongBase(MessageError):
    """A good message, but against another version than is here: ask for Trainer.since(have)."""


class WrongRun(MessageError):
    """A good message of a run that is not followed here; or a folder where another trainer writes."""


def run_id(run):
    """Checks the id of a run: 32 hexadecimal digits."""
    if not isinstance(run, str) or not re.fullmatch("[0-9a-f]{32}", run):
        raise ValueError(f"{run!r} is not the id of a run: 32 hexadecimal digits, such as Trainer.run")
    return run


_locks = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [f.close() for f in list(_locks)])  # a child that lives on does not keep the lock


def lock(path, what):
    """Locks a file, or raises BlockingIOError with what the holder has written into it. The lock ends with close() and with the process.
    Writes `what` into the file unless it is None."""
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
    """Writes a line into a locked file: this, and who holds the lock."""
    if what is not None:
        f.seek(0)
        f.truncate()
        f.write(f"run {what}, process {os.getpid()} on {socket.gethostname()}\n")
        f.flush()


class Weights:
    """All tensors of a model in one piece of memory, which is a .safetensors file: `text`, its header, then `data`."""

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
        """A copy of a dictionary of arrays."""
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
        """Of these names, with elements of any value."""
        memory = numpy.empty(len(text) + size, numpy.uint8)
        memory[:len(text)] = numpy.frombuffer(text, numpy.uint8)
        return cls(memory)

    def fill(self, tensors):
        """Copies arrays, from wherever they are."""
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
        """The tensors, as views."""
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
        """The id of what the tensors hold."""
        return version(self.name, [bitsnap.content_id(memory, dtype) for dtype, memory in self.pieces])


def version(name, ids):
    return bitsnap.hash(struct.pack(f"<{len(ids) + 1}Q", name, *ids)) or 1


# ---- messages

HEAD = struct.Struct("<8s16sQQqQII")  # magic, run, base (0: an anchor), result, step, hash of the text, frames, bytes of the text
MAGIC = b"BSNSYNC2"


def pack(run, base, result, step, name, text, frames):
    """HEAD, the sizes of the frames, XXH3 of all that; the text, if it is an anchor; the frames."""
    head = HEAD.pack(MAGIC, bytes.fromhex(run), base, result, step, name, len(frames), len(text))
    head += struct.pack(f"<{len(frames)}Q", *map(len, frames))
    return b"".join([head, struct.pack("<Q", bitsnap.hash(head)), text, *frames])


class Message:
    """What a message says, of which all is checked but the elements in the frames."""

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
    """One message of several deltas, each of which is against the result of the one before it."""
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
    """The fewest of `deltas`, (base, result) pairs, that lead from one version to another, or None."""
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
    """Has two copies: `weights`, of what was published last, and `spare`, of what was before, and is published next. `history`: how many
    deltas are kept for who has missed some; older versions are helped by an anchor, as where deltas come to half of the tensors' bytes.
    `run`: the id of the run, 32 hexadecimal digits, which every message has. None draws one. A trainer that goes on with a run gives the
    id of the trainer before: rollouts refuse another one."""

    def __init__(self, tensors, *, run=None, level="fast", threads=1, history=64):
        self.run = os.urandom(16).hex() if run is None else run_id(run)
        self._level, self._threads, self._history = level, threads, history
        self.weights = Weights.of(tensors)
        self.spare = Weights(self.weights.memory.copy())
        self._deltas, self._ready = {}, {}
        self._changed = threading.Condition()
        self.have, self.step = self.weights.version(), 0

    def publish(self, tensors, step=0):
        """The delta from the last version, or None where nothing has changed."""
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
        """The version of now, by itself."""
        with self._changed:
            if 0 not in self._ready:
                frames = [bitsnap.compress(memory, dtype, level=self._level, threads=self._threads, flags=bitsnap.CONTENT_ID)
                          for dtype, memory in self.weights.pieces]
                self._ready[0] = pack(self.run, 0, self.have, self.step, self.weights.name, self.weights.text.tobytes(), frames)
            return self._ready[0]

    def since(self, have, timeout=0):
        """What leads from a version to the newest one: a delta, or an anchor; None where there is none within the timeout."""
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
    """Weights that messages bring from version to version. With tensors it starts from these, and needs no anchor if the trainer has
    had them, too; with a path it keeps them in that .safetensors file, which it maps: a process that is killed finds there the version
    that it had, or the one that it was going to have. `limit`: bytes of tensors, beyond which an anchor is refused, and a message that needs
    more than these bytes and a 64th. `run`: the id of the run to follow; None follows the run of the first message. Messages of another run are
    refused. To change the run, set the attribute: to an id, or to None for that of the next message. One thread at a time."""

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
            self.close()  # whoever keeps the exception does not keep the lock
            raise

    def _keep(self, weights, have):
        if self._path is not None:
            put(self._path, weights.memory)
            weights = self._map()
        self._weights, self._have = weights, have

    @property
    def have(self):
        """The version that is here; 0: none."""
        return self._have

    @property
    def run(self):
        """The id of the run whose messages are taken; None: that of the next message."""
        return self._run

    @run.setter
    def run(self, run):
        self._run = run if run is None else run_id(run)
        if self._lock is not None:
            note(self._lock, self._run or "-")

    def check_run(self, run, where):
        """Refuses a message or a folder of a run that is not followed here."""
        if self._run not in (None, run):
            raise WrongRun(f"{where} is of run {run}; this rollout follows {self._run}: set its attribute `run` if the change is meant")

    def check_size(self, size, where):
        """Refuses a message by the size that somebody claims, before it is read, if it is too large for these weights. Elements that do not
        become smaller grow by far less than a 64th."""
        weights = self._weights
        most, why = (self._limit, "the limit of this rollout") if weights is None else (weights.memory.size, "the weights here")
        most += most // 64 + (1 << 20)
        if size > most:
            raise MessageError(f"{where} says that a message has {size} bytes; {why} allows {most}" +
                               (": give Rollout a larger limit if that is right" if weights is None else ""))

    def tensors(self, framework="pt"):
        """Views of the weights, which deltas change in place. After an anchor they are others: ask again."""
        if not self._have:
            raise MessageError("there are no weights yet: an anchor is needed")
        return self._weights.tensors(framework)

    def apply(self, data):
        """Brings all tensors to the result of a message, or none of them (an exception). False: they had it already."""
        if self._pending:  # an interrupt came between
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
        """Applies a delta; without its bytes, one that was begun: what is done already is left alone. All frames but the largest are tried
        first. What that one refuses has changed nothing; after it nothing is refused."""
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
            self._settle(self._weights.version())  # another one, if somebody else has changed the weights
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
        self.run = anchor.run  # first, so that a process that is killed does not forget it
        self._keep(weights, anchor.result)

    # ---- in a file

    def _map(self):
        return Weights(numpy.memmap(self._path, numpy.uint8, "r+"))

    def _open(self):
        """One process writes; others may map the file, too. The lock file has the run."""
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
        except (FileNotFoundError, ValueError):  # nothing was begun; or what was is not against these weights
            self._settle(self._weights.version())

    @property
    def _name(self):
        return os.fspath(self._path) + ".applying"

    def _journal(self, data):
        """The message that is being applied, beside the file."""
        if self._path is None:
            return
        if data is not None:
            put(self._name, data)
        elif os.path.exists(self._name):
            os.unlink(self._name)

    def close(self):
        if self._lock is not None:
            self._lock.close()
