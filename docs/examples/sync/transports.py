"""Messages of bitsnap_sync over sockets and through folders. A rollout that missed some gets one from its version to the
newest."""
import math
import os
import re
import socket
import socketserver
import struct
import threading
import warnings

from bitsnap_sync import Message, MessageError, WrongRun, lock, merge, put, route

# ---- sockets: a rollout sends ASK, with its version and the seconds that the trainer may wait for another. The answer is the
# size of a message, 0 for none, and the message.

ASK = struct.Struct("<4sQI")


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


class Server:
    """Answers rollouts from the trainer's history. Each has a thread of its own."""

    def __init__(self, trainer, address=("127.0.0.1", 0)):
        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                self.request.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # drops rollouts whose host is gone
                try:
                    while True:
                        magic, have, wait = ASK.unpack(_read(self.request, ASK.size))
                        if magic != b"BSN?":
                            return
                        message = trainer.since(have, min(wait, 600)) or b""
                        self.request.sendall(struct.pack("<Q", len(message)))
                        self.request.sendall(message)
                except OSError:
                    pass  # the rollout reconnects, or has ended

        self._server = _Server(address, Handler)
        self.address = self._server.server_address
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


def _read(connection, size):
    data = bytearray()
    while len(data) < size:  # memory grows with the bytes received, not with the claimed size
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ConnectionError("the connection ended within a message")
        data += part
    return data


class Client:
    """Brings a rollout up to date: call pull() until it returns False."""

    def __init__(self, rollout, address, timeout=60):
        self._rollout, self._address, self._timeout = rollout, address, timeout
        self._connection = None

    def pull(self, wait=0):
        """Returns True if the rollout got another version. Raises OSError if no trainer answers; the next call tries again."""
        try:
            if self._connection is None:
                self._connection = socket.create_connection(self._address, self._timeout)
            self._connection.settimeout(self._timeout + wait)
            self._connection.sendall(ASK.pack(b"BSN?", self._rollout.have, wait))
            size, = struct.unpack("<Q", _read(self._connection, 8))
            self._rollout.check_size(size, "the trainer")
            return bool(size) and self._rollout.apply(_read(self._connection, size))
        except BaseException:
            self.close()
            raise

    def close(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None


# ---- folders: delta-BASE-RESULT.bsync, anchor-RESULT.bsync, `latest`, which names a version and the run, and `lock`, which the
# trainer holds. Each file appears as a whole, and before `latest` names it. Files with other names are not touched.

_NAME = re.compile(r"(?:delta-([0-9a-f]{16})|anchor)-([0-9a-f]{16})\.bsync")
_said = set()


def _versions(path):
    """Returns {(base, result): name} of the versions in a folder; an anchor has base 0. Warns once of other files with their
    suffix."""
    found = {}
    for name in os.listdir(path):
        match = _NAME.fullmatch(name)
        if match:
            found[int(match[1] or "0", 16), int(match[2], 16)] = name
        elif name.endswith(".bsync"):
            _say(f"{os.path.join(path, name)} is no version of weights and is passed over: remove it if nobody needs it")
    return found


def _say(text):
    if text not in _said:
        _said.add(text)
        warnings.warn(text)


def _modified(path):
    """Returns the time of a file's last change in ns; 0 if it is gone."""
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


class Folder:
    """Publishes a trainer's versions in a folder. Writes an anchor whenever the deltas since the last one exceed `share` of its
    bytes. Keeps two anchors and everything after the older one. A folder belongs to one run. Raises BlockingIOError if another
    trainer has it open, and WrongRun if it has versions of another run."""

    def __init__(self, path, trainer, share=0.5):
        self._path, self._trainer, self._share = path, trainer, share
        os.makedirs(path, exist_ok=True)
        self._files, self._bytes, self._size, self._latest = [], 0, 0, None
        self._lock = lock(os.path.join(path, "lock"), trainer.run)
        try:
            self._check_alone()
        except BaseException:
            self.close()
            raise
        self._files = sorted(_versions(path).values(), key=lambda name: _modified(os.path.join(path, name)))
        self._put_anchor()
        self._put_latest()

    def publish(self, tensors, step=0):
        """Publishes as Trainer.publish does, and writes the delta here. Raises WrongRun, and publishes nothing, if another
        trainer has written to the folder."""
        self._check_alone()
        base = self._trainer.have
        message = self._trainer.publish(tensors, step)
        if message is not None:
            total, self._bytes = self._bytes + len(message), math.inf  # if the write fails, an anchor comes next
            self._put(f"delta-{base:016x}-{self._trainer.have:016x}.bsync", message)
            self._bytes = total
            if self._bytes > self._share * self._size:
                self._put_anchor()
            self._put_latest()
        return message

    def _put(self, name, message):
        put(os.path.join(self._path, name), message)
        self._files = [x for x in self._files if x != name] + [name]

    def _put_anchor(self):
        message = self._trainer.anchor()
        self._put(f"anchor-{self._trainer.have:016x}.bsync", message)
        self._bytes, self._size = 0, len(message)

    def _check_alone(self):
        """Checks that no other trainer writes here. On a network file system the lock may bind processes of one host only, so
        `latest` is checked, too."""
        path = os.path.join(self._path, "latest")
        version, run = _latest(path) if os.path.exists(path) else (None, None)
        if run not in (None, self._trainer.run):
            raise WrongRun(f"{self._path} has versions of run {run}; this trainer is of run {self._trainer.run}: give it a folder of its own, "
                           f"or, if it goes on with that run, Trainer(run='{run}')")
        if self._latest is not None and version not in (None, self._latest):
            raise WrongRun(f"{path} was written by another trainer of run {run}: end one of them")

    def close(self):
        """Frees the folder for another trainer."""
        self._lock.close()

    def _put_latest(self):
        put(os.path.join(self._path, "latest"), b"%016x %s\n" % (self._trainer.have, self._trainer.run.encode()))
        self._latest = self._trainer.have
        anchors = [x for x in self._files if x.startswith("anchor-")]
        while anchors[2:] and self._files[0] != anchors[-2]:
            try:
                os.unlink(os.path.join(self._path, self._files.pop(0)))
            except FileNotFoundError:
                pass  # another process has removed it
            except OSError as error:  # for example a file of another user
                _say(f"an old version stays: {error}")


def _latest(path):
    """Returns the version and the run that a file names; None if it names none."""
    with open(path, "rb") as f:
        text = f.read(51)
    match = re.fullmatch(rb"([0-9a-f]{16}) ([0-9a-f]{32})\n?", text)
    return (int(match[1], 16), match[2].decode()) if match else (None, None)


def pull(path, rollout):
    """Brings a rollout to the newest version of a folder. Returns False if it had that already. Merges the deltas and applies
    them at once. Raises WrongRun if the folder belongs to another run than the rollout follows."""
    for attempt in range(3):
        latest, run = _latest(os.path.join(path, "latest"))
        if latest is None:
            raise MessageError(f"{os.path.join(path, 'latest')} names no version: it is damaged, until the trainer publishes the next one")
        rollout.check_run(run, path)
        if latest == rollout.have:
            return False
        versions = _versions(path)
        deltas = [x for x in versions if x[0]]
        ways = [(start, route(deltas, start, latest)) for base, start in versions if not base]
        ways = sorted((x for x in ways if x[1] is not None), key=lambda x: len(x[1]))
        try:
            return _follow(path, rollout, run, versions, route(deltas, rollout.have, latest) if rollout.have else None, ways)
        except FileNotFoundError:
            if attempt == 2:
                raise  # before the last attempt, assumes that the trainer has just removed a listed file


def _follow(path, rollout, run, versions, way, ways):
    """Applies the deltas of `way`. If they are damaged, applies the first good one of `ways`: an anchor and the deltas after
    it."""
    def read(version):
        name = os.path.join(path, versions[version])
        with open(name, "rb") as f:
            rollout.check_size(os.fstat(f.fileno()).st_size, name)
            data = f.read()
        try:
            message = Message(data)
        except ValueError as damaged:
            raise MessageError(f"{name}: {damaged}") from damaged
        if (message.base, message.result) != version:
            raise MessageError(f"{name} leads from {message.base:016x} to {message.result:016x}, not where its name says")
        if message.run != run:
            raise WrongRun(f"{name} is of run {message.run}, not of {run} as `latest` says")
        return data

    def delta(way):
        return merge(list(map(read, way))) if way else None

    errors = []
    if way:
        try:
            return rollout.apply(delta(way))
        except ValueError as error:  # tries the anchors next
            errors.append(error)
    for start, way in ways:
        try:
            anchor, rest = read((0, start)), delta(way)
            rollout.apply(anchor)
            if rest:
                rollout.apply(rest)
            return True
        except ValueError as error:
            errors.append(error)
    raise errors[0] if errors else MessageError(f"{path} has no way from {rollout.have:016x} to its latest version")
