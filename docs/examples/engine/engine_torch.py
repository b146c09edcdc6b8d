"""Checkpoints in memory for trainers in PyTorch: the engine of bitsnap_engine.h, with sockets between ranks.

    engine = Engine("run7", 3 * size_of_the_state // 2, group=dist.new_group(backend="gloo"))
    step = engine.recover(state)                  # a Stateful, or a dictionary; None: no snapshot exists, begin anew
    while training:
        outcome = engine.snapshot(step, state)    # true if it was taken; otherwise it is "busy", "full" or "unprotected"
    engine.close(remove=True)

Needs the engine as a library. `library` or BITSNAP_ENGINE is its path.
cc -std=c99 -shared -fPIC -O2 -I. docs/examples/engine/bitsnap_engine.c docs/examples/engine/engine_disk.c docs/examples/engine/codec.c \\
    -o build/libbitsnap_engine.so -lpthread
"""
import collections
import ctypes
import difflib
import fcntl
import hmac
import json
import os
import selectors
import socket
import struct
import sys
import threading
import weakref
from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.tensor import DTensor, Partial, Shard

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
COPY = ctypes.CFUNCTYPE(c_int, c_void_p, c_u64, c_u64, c_void_p)


class _Error(ctypes.Structure):
    _fields_ = [("status", c_int), ("message", ctypes.c_char * 1000)]


class _Tensor(ctypes.Structure):
    pass


_Tensor._fields_ = [("name", c_char_p), ("dtype", c_int), ("data", c_void_p), ("count", c_u64), ("columns", c_u64), ("kind", c_int),
                    ("master", ctypes.POINTER(_Tensor)), ("fetch", COPY), ("store", COPY), ("weights", ctypes.POINTER(_Tensor)), ("type", c_char_p), ("file", c_u64)]


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
    """status: one of STATUS, or "closed"."""

    def __init__(self, message, status):
        super().__init__(message)
        self.status = status


class Outcome(str):
    """The outcome of a snapshot: "ok", or one of STATUS, with the engine's message in `message`. True only if it is "ok"."""

    def __new__(cls, status, message):
        outcome = super().__new__(cls, STATUS[status] or "ok")
        outcome.message = message
        return outcome

    def __bool__(self):
        return self == "ok"


# ------------------------------------------------------------------------------------ state

VALUES = "(values)"  # the tensor that holds all other values, as JSON


def _flatten(value, name, tensors, values):
    """Lists tensors and other values by their path: {"model": {"w": t}} -> {"model.w": t}."""
    if isinstance(value, Mapping) or type(value) is list or isinstance(value, tuple):
        for key, x in value.items() if isinstance(value, Mapping) else enumerate(value):
            _flatten(x, f"{name}.{key}" if name else str(key), tensors, values)
    elif name in tensors or name in values:
        raise ValueError(f"{name}: two entries of the state have this name")
    elif isinstance(value, torch.Tensor):
        tensors[name] = value
    elif value is None or type(value) in (bool, int, float, str):
        values[name] = value
    else:
        raise ValueError(f"{name}: is a {type(value).__name__}; the engine keeps tensors, numbers, strings and None, in dictionaries, lists and tuples")


def _replace(value, name, values):
    """Restores values by their paths, in place except for tuples. Returns the replacement of `value`."""
    if not isinstance(value, Mapping) and type(value) is not list and not isinstance(value, tuple):
        return values.get(name, value)
    items = list(value.items() if isinstance(value, Mapping) else enumerate(value))
    new = [(key, _replace(x, f"{name}.{key}" if name else str(key), values)) for key, x in items]
    if all(x is y for (_, x), (_, y) in zip(items, new)):
        return value
    if isinstance(value, tuple):
        return type(value)(*(x for _, x in new)) if hasattr(value, "_fields") else type(value)(x for _, x in new)
    for key, x in new:
        value[key] = x
    return value


def _pack(values, write):
    """Returns the tensor of values. Its size depends only on their names. Numbers may grow, and strings by 64 KiB in all."""
    text = json.dumps(values).encode() if write else b""
    size = (sum(len(name.encode()) + 64 for name in values) // 65536 + 2) * 65536
    if len(text) > size:
        raise ValueError(f"strings and numbers of the state take {len(text)} bytes as JSON, over {size}; keep long strings elsewhere")
    return torch.frombuffer(bytearray(text.ljust(size, b"\0")), dtype=torch.uint8)


class _State:
    """The tensors and values of a Stateful, or of a dictionary that may contain some. entries: {name for the engine: (plain name,
    tensor of this rank)}. ranks: the number of ranks whose shards DTensors are read from; None: each rank reads its own."""

    def __init__(self, state, write, ranks=None):
        self._state = state if isinstance(state, Mapping) else {"": state}
        self._tree = {key: x.state_dict() if isinstance(x, Stateful) else x for key, x in self._state.items()}
        tensors, self._values, self.entries, self._copies = {}, {}, {}, []
        _flatten(self._tree, "", tensors, self._values)
        for name, tensor in tensors.items():
            if ranks and isinstance(tensor, DTensor) and any(isinstance(p, Shard) for p in tensor.placements):
                self._reshard(name, tensor, ranks)
            else:
                self._add(shard_name(name, tensor), name, local(tensor))
        if self._values:
            self._add(VALUES, VALUES, _pack(self._values, write))

    def _add(self, shard, name, tensor):
        if shard in self.entries:
            raise ValueError(f"{name}: two entries of the state have the name {shard}, or it is one of the engine's own")
        self.entries[shard] = name, tensor

    def _reshard(self, name, tensor, ranks):
        """Lists the shards of a tensor on `ranks` ranks that overlap the shard of this rank, with memory for them."""
        if len(tensor.placements) != 1:
            raise ValueError(f"{name}: is sharded on a mesh of {len(tensor.placements)} dimensions; only one can be changed")
        dim, (part,) = tensor.placements[0].dim, tensor.__create_chunk_list__()
        begin, length = part.offsets[dim], part.sizes[dim]
        each = -(-tensor.shape[dim] // ranks)  # as torch.chunk
        for first in range(begin // each * each if length else 0, begin + length, each):
            sizes, offsets = list(tensor.shape), [0] * tensor.dim()
            sizes[dim], offsets[dim] = min(each, tensor.shape[dim] - first), first
            shard = torch.empty(sizes, dtype=tensor.dtype)
            self._add(_shard(name, offsets, sizes, tensor.shape), name, shard)
            at, end = max(begin, first), min(begin + length, first + each)
            self._copies.append((tensor.to_local().detach().narrow(dim, at - begin, end - at), shard.narrow(dim, at - first, end - at)))

    def take(self):
        """Passes the recovered tensors and values to the state."""
        for to, shard in self._copies:
            to.copy_(shard)
        if self._values:
            values = json.loads(bytes(self.entries[VALUES][1].tolist()).rstrip(b"\0"))
            if values.keys() != self._values.keys():
                names = ", ".join(sorted(values.keys() ^ self._values.keys())[:3])
                raise Error(f"the snapshot has other values that are no tensors: {names}", "mismatch")
            _replace(self._tree, "", values)
        for key, x in self._state.items():
            if isinstance(x, Stateful):
                x.load_state_dict(self._tree[key])
            elif self._tree[key] is not x:
                self._state[key] = self._tree[key]


def local(tensor):
    """Returns the part of a tensor on this rank."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _shard(name, offsets, sizes, shape):
    return f"{name}[{','.join(f'{o}:{o + n}' for o, n in zip(offsets, sizes))} of {','.join(map(str, shape))}]"


def shard_name(name, tensor):
    """Returns the engine's name of a tensor. That of a shard includes its position and the whole shape: "w[0:32,0:64 of 64,64]".
    So ranks with other shards do not find it, and ranks with the same part must have the same elements."""
    if not isinstance(tensor, DTensor):
        return name
    if any(isinstance(p, Partial) for p in tensor.placements):
        raise ValueError(f"{name}: is a DTensor of partial sums; reduce it first")
    parts = tensor.__create_chunk_list__()  # torch.distributed.checkpoint's own protocol; empty for a rank outside of the mesh
    if len(parts) != 1:
        raise ValueError(f"{name}: this rank has {len(parts)} parts of this DTensor, not one")
    return _shard(name, parts[0].offsets, parts[0].sizes, tensor.shape)


# ------------------------------------------------------------------------------------ devices


class _Stage:
    """Copies elements of tensors on devices for the engine's threads, at most 2^18 at a time, through pinned memory."""

    def __init__(self):
        self.tensors, self.failed, self._free = [], None, []
        self.fetch = COPY(lambda *where: self._copy(*where, store=False))
        self.store = COPY(lambda *where: self._copy(*where, store=True))

    def begin(self):
        """Forgets the tensors of the last call."""
        self.tensors, self.failed = [], None

    def add(self, tensor):
        """Returns the number of a tensor in callbacks. It is not 0, which would be a null pointer."""
        if tensor.device not in [t.device for t in self.tensors]:
            torch.get_device_module(tensor.device).synchronize(tensor.device)  # the callbacks' streams do not wait for the trainer's
        self.tensors.append(tensor.detach().view(-1))
        return len(self.tensors)

    def _copy(self, number, first, count, address, store):
        try:
            tensor = self.tensors[number - 1]
            pinned = tensor.device.type == "cuda"
            room = self._free.pop() if self._free else torch.empty(8 << 18, dtype=torch.uint8, pin_memory=pinned)
            for at in range(first, first + count, 1 << 18):
                part = tensor[at:min(at + (1 << 18), first + count)]
                size, here = part.numel() * part.element_size(), address + (at - first) * part.element_size()
                host = room[:size].view(part.dtype)
                if store:
                    ctypes.memmove(room.data_ptr(), here, size)
                    part.copy_(host)
                else:
                    host.copy_(part)
                    ctypes.memmove(here, room.data_ptr(), size)
            self._free.append(room)
            return 0
        except Exception as error:
            self.failed = error
            return 1


# ------------------------------------------------------------------------------------ ranks

_open = weakref.WeakSet()  # engines and transports, which a forked child must drop
os.register_at_fork(after_in_child=lambda: [x.leave() for x in list(_open)])


class _Message:
    def __init__(self, data, size):
        self.bytes, self.done, self.failed = memoryview((ctypes.c_ubyte * size).from_address(data)).cast("B"), False, False


class _Peer:
    """The messages to and from another rank."""

    def __init__(self):
        self.out, self.queue = None, collections.deque()  # [bytes, message] that are to be sent
        self.posted, self.came = collections.defaultdict(collections.deque), collections.defaultdict(collections.deque)  # by tag
        self.waiting, self.gone, self.incoming = 0, False, None  # bytes in `came`


class _Incoming:
    """A connection from another rank. It sends a hello, then messages, each after a head."""

    def __init__(self, connection):
        self.socket, self.rank, self.message = connection, None, None
        self.expect(HELLO.size)

    def expect(self, size, view=None):
        self.own = bytearray(size) if view is None else None
        self.view, self.filled = memoryview(self.own) if view is None else view, 0


PLACE, HELLO, HEAD = struct.Struct("=16s4sH64s"), struct.Struct("=16sI"), struct.Struct("=IQ")
WAITING = 16 << 20  # most unrequested bytes from a rank; above this, nothing more is read from it


class Ranks:
    """The engine's transport: one thread handles all messages, through sockets. `group` only exchanges addresses. Messages of
    gloo would need a thread each, because is_completed() of its sends and receives is false until wait() returns."""

    def __init__(self, group):
        self.table = _Transport(None, dist.get_rank(group), dist.get_world_size(group), BEGIN(self._send), BEGIN(self._receive), TEST(self._test))
        self._listener = socket.create_server((_address(), 0), backlog=128)
        self._listener.setblocking(False)
        host, port = self._listener.getsockname()
        self._secret = os.urandom(16)  # connections must begin with it
        mine = PLACE.pack(self._secret, socket.inet_aton(host), port, socket.gethostname().encode())
        places = [torch.empty(PLACE.size, dtype=torch.uint8) for _ in range(self.table.ranks)]
        dist.all_gather(places, torch.frombuffer(bytearray(mine), dtype=torch.uint8), group=group)
        places = [PLACE.unpack(bytes(place.tolist())) for place in places]
        self._places = [(secret, socket.inet_ntoa(address), port) for secret, address, port, _ in places]
        if len({host for *_, host in places}) > 1 and any(address.startswith("127.") for _, address, _ in self._places):
            self._listener.close()
            raise Error("a rank's host has a name that means 127.0.0.0/8, where other hosts cannot reach it; set GLOO_SOCKET_IFNAME", "system")
        self._peers, self._requests, self._number = [_Peer() for _ in places], {}, 0
        self._lock, self._closed = threading.Lock(), False
        self._selector = selectors.DefaultSelector()
        self._bell, self._woken = socket.socketpair()
        for end in (self._bell, self._woken):
            end.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, self._wake)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        _open.add(self)

    def close(self):
        """Ends all messages. After this the engine calls only `test`, which fails."""
        with self._lock:
            self._closed = True
            self._ring()
        self._thread.join()
        self.leave()

    def leave(self):
        """Closes this process's descriptors. If a worker of a DataLoader kept them, other ranks would not notice that its trainer
        was killed."""
        for peer in self._peers:
            for connection in (peer.out, peer.incoming and peer.incoming.socket):
                if connection:
                    connection.close()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()
        self._selector.close()
        self._bell.close()

    # Called by the engine's thread.

    def _send(self, _, to, tag, data, size, request):
        return self._begin(_Message(data, size), request, to, tag, True)

    def _receive(self, _, peer, tag, data, size, request):
        return self._begin(_Message(data, size), request, peer, tag, False)

    def _begin(self, message, request, rank, tag, sends):
        with self._lock:
            peer = self._peers[rank]
            if self._closed:
                return 1
            self._number += 1
            request[0] = self._number
            self._requests[self._number] = message
            if not sends and peer.came[tag]:
                self._deliver(peer, message, peer.came[tag].popleft())
            elif peer.gone:
                message.failed = True
            elif sends:
                peer.queue.append([memoryview(HEAD.pack(tag, len(message.bytes))), None])
                peer.queue.append([message.bytes, message])
            else:
                peer.posted[tag].append(message)
            self._ring()
        return 0

    def _test(self, _, request, done):
        with self._lock:
            message = self._requests[request[0]]
            done[0] = message.done
            if message.done:
                del self._requests[request[0]]
            return int(message.failed or (self._closed and not message.done))

    def _ring(self):
        try:
            self._bell.send(b"x")
        except BlockingIOError:
            pass  # the thread has already been woken

    # Called by the thread of messages, with the lock.

    def _run(self):
        try:
            while not self._closed:
                ready = self._selector.select()
                with self._lock:
                    for key, _ in ready:
                        if not self._closed and key.fileobj.fileno() >= 0:
                            key.data(key.fileobj)
        finally:
            self._closed = True  # for any reason, so that nothing waits for messages that never come

    def _wake(self, woken):
        woken.recv(4096)
        for rank, peer in enumerate(self._peers):
            if peer.queue and peer.out is None:
                self._connect(rank, peer)
            elif peer.queue:
                self._watch(peer.out, selectors.EVENT_WRITE, lambda _, peer=peer: self._write(peer))
            if peer.incoming and peer.waiting <= WAITING:
                self._watch(peer.incoming.socket, selectors.EVENT_READ, lambda _, x=peer.incoming: self._read(x))

    def _watch(self, connection, event, function):
        if connection not in self._selector.get_map():
            self._selector.register(connection, event, function)

    def _connect(self, rank, peer):
        secret, host, port = self._places[rank]
        peer.out = socket.socket()
        peer.out.setblocking(False)
        peer.out.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.out.connect_ex((host, port))  # the first write reports an error
        peer.queue.appendleft([memoryview(HELLO.pack(secret, self.table.rank)), None])
        self._watch(peer.out, selectors.EVENT_WRITE, lambda _: self._write(peer))

    def _write(self, peer):
        try:
            while peer.queue:
                sent = peer.out.send(peer.queue[0][0])
                peer.queue[0][0] = peer.queue[0][0][sent:]
                if not peer.queue[0][0]:
                    message = peer.queue.popleft()[1]
                    if message:
                        message.done = True
            self._selector.unregister(peer.out)
        except BlockingIOError:
            pass
        except OSError:
            self._lose(peer, peer.out)

    def _accept(self, listener):
        try:
            connection = listener.accept()[0]
        except OSError:
            return  # the caller has gone
        connection.setblocking(False)
        incoming = _Incoming(connection)
        self._watch(connection, selectors.EVENT_READ, lambda _: self._read(incoming))

    def _read(self, x):
        try:
            n = x.socket.recv_into(x.view[x.filled:])
        except BlockingIOError:
            return
        except OSError:
            n = 0
        x.filled += n
        if not n:
            self._lose(None if x.rank is None else self._peers[x.rank], x.socket)
        elif x.filled < len(x.view):
            pass
        elif x.rank is None:
            secret, x.rank = HELLO.unpack(x.own)
            if not hmac.compare_digest(secret, self._secret) or x.rank >= len(self._peers) or self._peers[x.rank].incoming:
                self._lose(None, x.socket)
                return
            self._peers[x.rank].incoming = x
            x.expect(HEAD.size)
            x.tag = None
        elif x.tag is None:
            self._begin_message(self._peers[x.rank], x, *HEAD.unpack(x.own))
        else:
            self._end_message(self._peers[x.rank], x)

    def _begin_message(self, peer, x, tag, size):
        x.tag, x.message = tag, peer.posted[tag].popleft() if peer.posted[tag] else None
        if x.message and len(x.message.bytes) != size:
            x.message.failed = True
            self._lose(peer, x.socket)
            return
        x.expect(size, x.message.bytes if x.message else None)
        if not size:
            self._end_message(peer, x)

    def _end_message(self, peer, x):
        posted = peer.posted[x.tag]
        if x.message:
            x.message.done = True
        elif posted:
            self._deliver(peer, posted.popleft(), x.own)
            peer.waiting += len(x.own)
        else:
            peer.came[x.tag].append(x.own)
            peer.waiting += len(x.own)
            if peer.waiting > WAITING:
                self._selector.unregister(x.socket)
        x.message = x.tag = None
        x.expect(HEAD.size)

    @staticmethod
    def _deliver(peer, message, came):
        peer.waiting -= len(came)
        if len(came) == len(message.bytes):
            message.bytes[:] = came
            message.done = True
        else:
            message.failed = True

    def _lose(self, peer, connection):
        if connection in self._selector.get_map():
            self._selector.unregister(connection)
        connection.close()
        if peer is None:
            return
        peer.gone = True
        left = [message for _, message in peer.queue] + [m for posted in peer.posted.values() for m in posted]
        if peer.incoming:
            left.append(peer.incoming.message)
        for message in left:
            if message:
                message.failed = True
        peer.queue.clear()
        peer.posted.clear()


def _address():
    """Returns the address of this host for other ranks, chosen by gloo's rule."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
    if interface:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            return socket.inet_ntoa(fcntl.ioctl(s, 0x8915, struct.pack("256s", interface.encode()))[20:24])  # SIOCGIFADDR
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


# ------------------------------------------------------------------------------------ engine

GIVEN = ("name", "budget", "transport", "say", "say_context")  # options that Engine sets from its arguments


class Engine:
    """The engine of a rank. One thread at a time may use it.
    name: the run; the segment of rank r is name.r. budget: bytes of the segment. group: all ranks, on gloo; None: one rank.
    moments: endings of the names of AdamW's moments, for `policy`. masters: {name of a BF16 or F16 tensor: name of the F32 tensor
    that it is rounded from}. weights: {name of a moment: name of its weights}, for the option `stage`. Other options: see
    engine_options in bitsnap_engine.h."""

    def __init__(self, name, budget, *, group=None, policy="lossless", moments=("exp_avg", "exp_avg_sq"), masters={}, weights={}, library=None, say=None,
                 **options):
        self._engine = self._ranks = None
        known = [field for field, _ in _Options._fields_ if field not in GIVEN]
        for option in set(options) - set(known):
            near = difflib.get_close_matches(option, [*known, "policy", "moments", "masters", "weights", "library", "say", "budget"], 1, 0)[0]
            raise TypeError(f"there is no option {option}; the nearest is {near}")
        self._library = ctypes.CDLL(library or os.environ.get("BITSNAP_ENGINE", "build/libbitsnap_engine.so"))
        self._library.engine_last_cost.restype = ctypes.POINTER(_Cost)
        sizes = (ctypes.c_size_t * 4)()
        self._library.engine_sizes(sizes)
        if list(sizes) != [ctypes.sizeof(x) for x in (_Options, _Tensor, _Cost, _Protection)]:
            raise ImportError("bitsnap's engine is of another version than engine_torch.py")
        self._moments, self._stage, self._error = moments, _Stage(), _Error()
        self._pairs = {"master": dict(masters), "weights": dict(weights)}
        say = say or (lambda text: print(text, file=sys.stderr))
        texts = {k: os.fsencode(v) if isinstance(v, (str, os.PathLike)) else v for k, v in options.items()}
        if options.get("agent"):
            texts["agent"] = (c_char_p * (len(options["agent"]) + 1))(*map(os.fsencode, options["agent"]))
        self._options = _Options(budget=budget, say=SAY(lambda _, text: say(text.decode(errors="replace"))), **texts)
        if self._library.engine_policy(ctypes.byref(self._options), policy.encode()):
            raise ValueError(f'"{policy}" is no policy; policies are lossless, resume, standard and small')
        self._ranks = Ranks(group) if group is not None else None
        self._options.name = f"{name}.{self._ranks.table.rank if self._ranks else 0}".encode()
        if self._ranks:
            self._options.transport = ctypes.pointer(self._ranks.table)
        self._engine = c_void_p()
        _open.add(self)
        try:
            self._call("engine_open", ctypes.byref(self._engine), ctypes.byref(self._options))
        except Error:
            self.close()
            raise

    def _call(self, function, *args, expected=()):
        if self._engine is None:
            raise Error("the engine is closed", "closed")
        status = getattr(self._library, function)(*args, ctypes.byref(self._error))
        self._stage.tensors = []  # device memory may be freed
        message = self._error.message.decode(errors="replace")
        if status and status not in expected:
            raise Error(message, STATUS[status]) from self._stage.failed
        return Outcome(status, message)

    def _table(self, entries, files={}):
        table = (_Tensor * len(entries))()
        number = {name: i for i, (name, _) in enumerate(entries.values())}
        self._stage.begin()
        for entry, (shard, (name, tensor)) in zip(table, entries.items()):
            if tensor.dtype not in DTYPES:
                raise ValueError(f"{name}: is {tensor.dtype}, a type that the codec does not have; torch.view_as_real is F32 or F64 of complex numbers")
            if tensor.layout != torch.strided or not tensor.is_contiguous():
                raise ValueError(f"{name}: must be contiguous")
            entry.dtype, dtype = DTYPES[tensor.dtype]
            entry.name, entry.count = shard.encode(), tensor.numel()
            if tensor.device.type == "cpu":
                entry.data = tensor.data_ptr()
            else:
                entry.data, entry.fetch, entry.store = self._stage.add(tensor), self._stage.fetch, self._stage.store
            entry.type = f"{dtype}[{','.join(map(str, tensor.shape))}]".encode()
            entry.file = files[name] + 1 if name in files else 0
            entry.columns = tensor.shape[-1] if tensor.dim() > 1 else 0
            entry.kind = next((kind for kind, end in enumerate(self._moments, 1) if tensor.dtype == torch.float32 and name.endswith(end)), 0)
        for field, pairs in self._pairs.items():
            for name, other in pairs.items():
                if name not in number or other not in number:
                    raise ValueError(f"{other if name in number else name}: is named as one of a pair of tensors, but the state does not have it")
                setattr(table[number[name]], field, ctypes.pointer(table[number[other]]))
        return table, ctypes.c_size_t(len(entries))

    def snapshot(self, step, state):
        """Takes a snapshot. All ranks must call it with the same step. state: a Stateful of torch.distributed.checkpoint, or a
        dictionary, which may contain some. It may hold dictionaries, lists and tuples of tensors, DTensors, numbers, strings and
        None. Tensors may be on a device.
        Returns an Outcome, which is true if the snapshot was taken and something protects it. "busy": skipped, because the one
        before is not finished. "full": skipped, because it does not fit the budget. "unprotected": taken, but not protected.
        All other errors are exceptions, among them "stop": no protection for options.unprotected_steps snapshots in a row."""
        if step < 0:
            raise ValueError(f"step {step} is negative")
        taken = _State(state, True)
        return self._call("engine_snapshot", self._engine, c_u64(step), *self._table(taken.entries), expected=(FULL, BUSY, UNPROTECTED))

    def wait(self, seconds):
        """Waits until the last snapshot counts, which means that all ranks and their partners have it. Returns an Outcome.
        "busy": it does not count yet. "none": it never will."""
        return self._call("engine_wait", self._engine, c_double(seconds), expected=(BUSY, NONE))

    def recover(self, state, files={}, shards_of=None):
        """Restores `state` from the newest snapshot that all ranks can have. Returns its step, or None if there is no such step.
        Tensors are written in place, other values into their dictionary, and a Stateful gets all by load_state_dict. Names,
        dtypes and shapes must be those of the snapshot. shards_of: the number of ranks that took the snapshot, if it has changed.
        DTensors are then joined from their shards, which needs the files of all these ranks. files: {name: rank} chooses the file
        of a tensor. It is required for a name in several files, unless its elements are the same in all of them."""
        found = _State(state, False, shards_of)
        step = c_u64()
        if not self._call("engine_recover", self._engine, ctypes.byref(step), *self._table(found.entries, files), expected=(NONE,)):
            return None
        found.take()
        return step.value

    def protection(self):
        """Returns what is protected where, its age, and the fault if there is one: see engine_protection in bitsnap_engine.h."""
        if self._engine is None:
            raise Error("the engine is closed", "closed")
        p = _Protection()
        self._library.engine_protected(self._engine, ctypes.byref(p))
        return {**{name: getattr(p, name) for name, _ in _Protection._fields_}, "reason": p.reason.decode(errors="replace")}

    def cost(self):
        """Returns time and bytes of the last call: see engine_cost in bitsnap_engine.h. The source is given by name."""
        if self._engine is None:
            raise Error("the engine is closed", "closed")
        cost = self._library.engine_last_cost(self._engine).contents
        return {**{name: getattr(cost, name) for name, _ in _Cost._fields_}, "source": SOURCES[cost.source]}

    def close(self, remove=False):
        """Closes the engine. Its segment stays for the next trainer, or is removed. Closing twice is allowed."""
        if self._ranks:
            self._ranks.close()  # first, because the engine unmaps memory of open messages
        if self._engine is not None:
            self._library.engine_close(self._engine, c_int(remove))
        self.leave()

    def leave(self):
        """Drops the engine without calling it. In a forked child it belongs to the parent."""
        self._engine = self._ranks = None
