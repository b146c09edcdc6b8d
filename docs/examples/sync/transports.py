"""Messages of bitsnap_sync over sockets and through folders. Whoever misses some asks for what leads from his version to the newest."""
import math
import os
import socket
import socketserver
import struct
import threading

from bitsnap_sync import Message, MessageError, merge, put, route

# ---- sockets: a rollout sends ASK, its version and for how many seconds the trainer may wait for another; the answer is the size of a
# message, 0 for none, and the message.

ASK = struct.Struct("<4sQI")


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


class Server:
    """Answers rollouts from the trainer's history, each in a thread of its own."""

    def __init__(self, trainer, address=("127.0.0.1", 0)):
        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                self.request.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a host that is gone does not stay for ever
                try:
                    while True:
                        magic, have, wait = ASK.unpack(_read(self.request, ASK.size))
                        if magic != b"BSN?":
                            return
                        message = trainer.since(have, min(wait, 600)) or b""
                        self.request.sendall(struct.pack("<Q", len(message)))
                        self.request.sendall(message)
                except OSError:
                    pass  # it asks again, or has ended

        self._server = _Server(address, Handler)
        self.address = self._server.server_address
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


def _read(connection, size):
    data = bytearray()
    while len(data) < size:  # grows with what comes, whatever size is said
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ConnectionError("the connection ended within a message")
        data += part
    return data


class Client:
    """Brings a rollout up to date: pull() until it is False."""

    def __init__(self, rollout, address, timeout=60):
        self._rollout, self._address, self._timeout = rollout, address, timeout
        self._connection = None

    def pull(self, wait=0):
        """Whether there was another version. OSError: no trainer to be reached; the next call tries again."""
        try:
            if self._connection is None:
                self._connection = socket.create_connection(self._address, self._timeout)
            self._connection.settimeout(self._timeout + wait)
            self._connection.sendall(ASK.pack(b"BSN?", self._rollout.have, wait))
            size, = struct.unpack("<Q", _read(self._connection, 8))
            return bool(size) and self._rollout.apply(_read(self._connection, size))
        except BaseException:
            self.close()
            raise

    def close(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None


# ---- folders: delta-BASE-RESULT.bsync, anchor-RESULT.bsync, and `latest`, the name of a version. Each file appears as a whole, and
# before `latest` names it.

class Folder:
    """Where a trainer puts versions: an anchor whenever the deltas since the last one come to `share` of its bytes. Kept are two anchors
    and what came after the first of them."""

    def __init__(self, path, trainer, share=0.5):
        self._path, self._trainer, self._share = path, trainer, share
        os.makedirs(path, exist_ok=True)
        listed = sorted((x for x in os.listdir(path) if x.endswith(".bsync")), key=lambda x: os.stat(os.path.join(path, x)).st_mtime_ns)
        self._files, self._bytes, self._size = listed, 0, 0
        self._put_anchor()
        self._put_latest()

    def publish(self, tensors, step=0):
        """As that of the trainer."""
        base = self._trainer.have
        message = self._trainer.publish(tensors, step)
        if message is not None:
            total, self._bytes = self._bytes + len(message), math.inf  # if this one is lost, an anchor comes next
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

    def _put_latest(self):
        put(os.path.join(self._path, "latest"), b"%016x\n" % self._trainer.have)
        anchors = [x for x in self._files if x.startswith("anchor-")]
        while anchors[2:] and self._files[0] != anchors[-2]:
            os.unlink(os.path.join(self._path, self._files.pop(0)))


def pull(path, rollout):
    """Brings a rollout to the newest version of a folder; False: it had it. What is needed is merged and applied once."""
    for attempt in range(3):
        with open(os.path.join(path, "latest"), "rb") as f:
            latest = int(f.read(17), 16)
        if latest == rollout.have:
            return False
        found = [x.removesuffix(".bsync").split("-") for x in os.listdir(path) if x.endswith(".bsync")]
        deltas = [(int(x[1], 16), int(x[2], 16)) for x in found if x[0] == "delta"]
        starts = [int(x[1], 16) for x in found if x[0] == "anchor"]
        ways = [(start, route(deltas, start, latest)) for start in starts]
        ways = sorted((x for x in ways if x[1] is not None), key=lambda x: len(x[1]))
        try:
            return _follow(path, rollout, route(deltas, rollout.have, latest) if rollout.have else None, ways)
        except FileNotFoundError:
            if attempt == 2:
                raise  # else the trainer has just removed what was listed


def _follow(path, rollout, way, ways):
    def read(name):
        with open(os.path.join(path, name + ".bsync"), "rb") as f:
            return f.read()

    def delta(way):
        return merge([read(f"delta-{base:016x}-{result:016x}") for base, result in way]) if way else None

    if way:
        try:
            return rollout.apply(delta(way))
        except ValueError:
            pass  # a damaged delta: from an anchor, then
    if not ways:
        raise MessageError(f"{path} has no way from {rollout.have:016x} to its latest version")
    start, way = ways[0]
    rest = delta(way)
    rollout.apply(read(f"anchor-{start:016x}"))
    if rest:
        rollout.apply(rest)
    return True
