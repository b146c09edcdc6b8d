"""Tests of docs/examples/engine/engine_torch.py: python_engine.py LIBRARY. By check_python.sh."""
import collections
import ctypes
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time

import torch
import torch.distributed as dist
from python_checks import elsewhere, refused, run
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "docs", "examples", "engine"))
from engine_torch import WAITING, Engine, Error, Ranks, _State, shard_name  # noqa: E402


def state(rank, step):
    generator = torch.Generator().manual_seed(100 * rank)
    tensors = {"w": torch.randn(300, 1000, generator=generator), "w.exp_avg": 1e-3 * torch.randn(300, 1000, generator=generator), "half": torch.ones(7).bfloat16()}
    tensors["w"][step % 300] += step
    return tensors


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


def rank(number, store, result, life):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{store}.{life}", 2), rank=number, world_size=2)
    engine = Engine("test", 16 << 20, group=dist.new_group(), library=library, directory=".", say=lambda text: None)
    tensors = {name: torch.zeros_like(t) for name, t in state(number, 0).items()}
    step = engine.recover(tensors)
    result.put((number, step, engine.cost()["source"], step is None or same(tensors, state(number, step))))
    for step in range((step or 0) + 1, 6 if life else 4):
        assert engine.snapshot(step, state(number, step)) and engine.wait(30)
    assert 0 < engine.cost()["sent_size"] < engine.cost()["elements_size"]
    assert threading.active_count() == 2  # one for all messages
    dist.barrier()
    if not life:
        os.kill(os.getpid(), signal.SIGKILL)
    engine.close(remove=True)
    dist.destroy_process_group()


def two_ranks():
    """Both are killed; the memory of one is lost, which comes back from the other."""
    context = multiprocessing.get_context("fork")
    for life in (0, 1):
        result = context.SimpleQueue()
        ranks = [context.Process(target=rank, args=(i, os.path.abspath("store"), result, life)) for i in (0, 1)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        assert [process.exitcode for process in ranks] == ([0, 0] if life else [-signal.SIGKILL] * 2)
        got = sorted(result.get() for _ in ranks)
        if not life:
            assert [x[1] for x in got] == [None, None], got
            os.unlink("bitsnap-test.1")
    assert got == [(0, 3, "memory", True), (1, 3, "partner", True)], got


def one_rank():
    said = []
    engine = Engine("one", 16 << 20, library=library, directory=".", policy="resume", say=said.append)
    assert engine.recover(state(0, 0)) is None
    for step in (1, 2):
        assert engine.snapshot(step, state(0, step))
    refused(Error, "", Engine, "one", 16 << 20, library=library, directory=".")
    tensors = {name: torch.zeros_like(t) for name, t in state(0, 0).items()}
    assert engine.recover(tensors) == 2
    wanted = state(0, 2)
    assert torch.equal(tensors["w"], wanted["w"]) and 0 < ((tensors["w.exp_avg"] - wanted["w.exp_avg"]) / wanted["w.exp_avg"]).abs().max() < 0.011
    assert engine.protection()["memory_step"] == 2 and engine.protection()["reason"] == ""
    assert not engine.snapshot(3, {"large": torch.randn(8 << 20)}) and engine.recover(tensors) == 2
    assert any("open it with a budget of " in text for text in said) and engine.protection()["unprotected"] == 1
    assert engine.recover(tensors, files={"w": 0}) == 2  # files are not asked
    refused(Error, "w: is F32[300,1000] in the snapshot, not F32[1000,300]", engine.recover, {**tensors, "w": tensors["w"].reshape(1000, 300)})
    refused(Error, "w: is F32[300,1000] in the snapshot, not F32[3,100,1000]", engine.recover, {**tensors, "w": tensors["w"].reshape(3, 100, 1000)})
    refused(Error, "w: is F32[300,1000] in the snapshot, not I32[300,1000]", engine.recover, {**tensors, "w": tensors["w"].view(torch.int32)})
    odd = {"byte": torch.arange(24, dtype=torch.uint8).reshape(2, 3, 4), "scalar": torch.tensor(5.0), "none": torch.ones(0, 3)}
    back = {name: torch.zeros_like(t) for name, t in odd.items()}
    assert engine.recover(tensors) == 2
    assert engine.snapshot(3, odd) and engine.recover(back) == 3 and same(back, odd)
    refused(Error, "byte: is U8[2,3,4] in the snapshot, not I8[2,3,4]", engine.recover, {**back, "byte": back["byte"].view(torch.int8)})
    engine.close(remove=True)
    assert not os.listdir()


def refusals():
    """Mistakes of the caller are named. What may become of a snapshot is told apart, and a closed engine is no crash."""
    refused(ValueError, "is no policy", Engine, "two", 16 << 20, library=library, policy="great")
    refused(TypeError, "no option parnter_patience; the nearest is partner_patience", Engine, "two", 16 << 20, library=library, parnter_patience=5.0)
    refused(TypeError, "no option polic; the nearest is policy", Engine, "two", 16 << 20, library=library, polic="small")
    refused(TypeError, "no option transport; the nearest is ", Engine, "two", 16 << 20, library=library, transport=None)
    assert refused(Error, "the agent does not start", Engine, "two", 16 << 20, library=library, directory=".", agent=["./no agent", "two.0"]).status == "system"
    engine = Engine("two", 4 << 20, library=library, directory=".")
    small = {"w": torch.ones(10)}
    assert engine.snapshot(1, small) == "ok"
    refused(ValueError, "step -1 is negative", engine.snapshot, -1, small)
    refused(ValueError, "w: must be contiguous", engine.snapshot, 4, {"w": torch.ones(3, 4).T})
    refused(ValueError, "w: must be contiguous", engine.snapshot, 4, {"w": torch.ones(3, 4).to_sparse()})
    refused(ValueError, "w: is torch.complex64", engine.snapshot, 4, {"w": torch.ones(3, dtype=torch.complex64)})
    full = engine.snapshot(2, {"w": torch.randn(2 << 20)})
    assert not full and full == "full" and "open it with a budget of " in full.message and engine.recover(small) == 1
    engine.close(remove=True)
    engine = Engine("two", 64 << 20, library=library, directory=".", copy=1)
    large = {"w": torch.randn(1 << 22)}
    busy = [engine.snapshot(step, large) for step in (1, 2)]
    assert busy == ["ok", "busy"] and "not finished" in busy[1].message and engine.wait(0) == "busy" and engine.wait(30) == "ok"
    child = os.fork()
    if not child:  # a worker of a DataLoader: the engine is its parent's
        os._exit(refused(Error, "the engine is closed", engine.snapshot, 3, small) is None)
    assert os.waitpid(child, 0)[1] == 0 and engine.snapshot(3, small)
    engine.close(remove=True)
    engine.close()
    for call in (lambda: engine.snapshot(1, small), lambda: engine.recover(small), lambda: engine.wait(0), engine.cost, engine.protection):
        assert refused(Error, "the engine is closed", call).status == "closed"
    assert not os.listdir()


def again():
    """What is there is not begun anew without being asked. A name with snapshots of it goes on, or begins a new run."""
    state = {"w": torch.ones(10)}
    engine = Engine("two", 4 << 20, library=library, directory=".")
    assert engine.recover(state) is None and engine.snapshot(5, state)
    engine.close()
    engine = Engine("two", 4 << 20, library=library, directory=".")
    assert refused(Error, "options.anew", engine.snapshot, 1, state).status == "scattered"
    assert engine.recover(state) == 5 and engine.snapshot(6, state)
    engine.close()
    engine = Engine("two", 4 << 20, library=library, directory=".", anew=1)
    assert engine.recover(state) is None and engine.snapshot(1, state)
    engine.close(remove=True)


class Trainer:
    """A Stateful of torch.distributed.checkpoint."""

    def __init__(self):
        self.model = torch.nn.Linear(30, 20)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.3)
        self.best, self.range = "none yet", (0.0, 1)

    def train(self, step):
        self.optimizer.zero_grad()
        self.model(torch.full((4, 30), float(step))).square().mean().backward()
        self.optimizer.step()
        self.schedule.step()
        self.best, self.range = f"step {step} of a name that is longer", (step + 0.1, 2)

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "schedule": self.schedule.state_dict(), "best": self.best, "range": self.range}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.best, self.range = state["best"], state["range"]


def stateful():
    """Weights, moments, rates, counters and strings of a Stateful come back, into an untrained one."""
    trainer, engine = Trainer(), Engine("two", 16 << 20, library=library, directory=".")
    for step in range(5):
        trainer.train(step)
    assert engine.snapshot(5, trainer)
    other = Trainer()
    assert engine.recover(other) == 5
    assert (other.best, other.range) == ("step 4 of a name that is longer", (4.1, 2)) and type(other.range) is tuple
    assert other.schedule.last_epoch == 5 and other.optimizer.param_groups[0]["lr"] == trainer.optimizer.param_groups[0]["lr"] == 1e-3 * 0.3 * 0.3
    for t in (trainer, other):
        t.train(5)
    assert torch.equal(trainer.model.weight, other.model.weight)
    plain = {"w": torch.ones(3), "n": 5, "list": [1.5, None, (True, "x")]}
    Pair = collections.namedtuple("Pair", "a b")
    assert engine.snapshot(6, {**plain, "pair": Pair(1, 2)})
    found = {"w": torch.zeros(3), "n": 0, "list": [0.0, "", (False, 2)], "pair": Pair(0, 0)}
    refused(Error, "other values that are no tensors: m, n", engine.recover, {"w": torch.ones(3), "m": 0, "list": [0, 0, (0, 0)], "pair": (1, 2)})
    assert engine.recover(found) == 6 and found.pop("w").tolist() == [1, 1, 1] and found == {"n": 5, "list": [1.5, None, (True, "x")], "pair": Pair(1, 2)}
    assert type(found["pair"]) is Pair
    parts = {"model": torch.nn.Linear(3, 2), "n": 1}  # as torch.distributed.checkpoint.save has it
    assert engine.snapshot(7, parts)
    other = {"model": torch.nn.Linear(3, 2), "n": 0}
    assert engine.recover(other) == 7 and other["n"] == 1 and same(dict(other["model"].state_dict()), parts["model"].state_dict())
    refused(ValueError, "s: is a set", engine.snapshot, 7, {**plain, "s": set()})
    refused(ValueError, "the name (values)", engine.snapshot, 7, {"(values)": torch.ones(1), "n": 1})
    refused(ValueError, "a.b: two entries", engine.snapshot, 7, {"a": {"b": torch.ones(1)}, "a.b": torch.ones(1)})
    refused(ValueError, "keep long strings elsewhere", engine.snapshot, 7, {**plain, "text": 200000 * "x"})
    engine.close(remove=True)


class Module:
    """Of a device that there is not: what torch.get_device_module gives."""
    synchronized = 0

    @classmethod
    def synchronize(cls, device):
        cls.synchronized += 1


class Fake(torch.Tensor):
    """A tensor on that device. The host reads and writes it by copy_ alone."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype, device="fake:0")
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        inner = [x.inner if isinstance(x, Fake) else x for x in args]
        if function is torch.ops.aten.copy_.default:
            assert not cls.broken and inner[0].numel() <= 1 << 18
            inner[0].copy_(inner[1])
            return args[0]
        assert function in (torch.ops.aten.detach.default, torch.ops.aten.view.default, torch.ops.aten.slice.Tensor), function
        return Fake(function(*inner, **(kwargs or {})))

    broken = False


def on_device():
    """Tensors on a device come and go by pieces, with masters and weights; a copy that fails is an error."""
    _setup_privateuseone_for_python_backend("fake", backend_module=Module)
    master = torch.randn(300, 1000)
    host = {"w": master.bfloat16(), "w.master": master, "w.exp_avg": 1e-3 * torch.randn(300, 1000), "long": torch.arange(600001), "none": torch.ones(0, 3)}
    pairs = {"masters": {"w": "w.master"}, "weights": {"w.exp_avg": "w.master"}}
    for options in ({}, {"threads": 4, "stage": 1}, {"threads": 4, "copy": 1}):
        engine = Engine("two", 32 << 20, library=library, directory=".", **pairs, **options)
        state = {name: t.clone() if name == "w.exp_avg" else Fake(t.clone()) for name, t in host.items()}
        Module.synchronized = 0
        for step in (1, 2):
            assert engine.snapshot(step, state) and engine.wait(30) and Module.synchronized == step
        assert engine.cost()["cast"] == 2 and engine.cost()["frames_size"] < 0.6 * engine.cost()["elements_size"]
        back = {name: Fake(torch.zeros_like(t)) for name, t in host.items()}
        assert engine.recover(back) == 2 and same({name: t.inner for name, t in back.items()}, host)
        Fake.broken = True
        failed = refused(Error, "fetched", engine.snapshot, 3, state)
        assert isinstance(failed.__cause__, AssertionError) and failed.status == "system"
        refused(Error, "its elements cannot be stored", engine.recover, back)
        Fake.broken = False
        refused(ValueError, "w.master: is named as one of a pair", engine.snapshot, 3, {"w": host["w"], "other.master": master})
        engine.close(remove=True)


def spawn(count, function, *args):
    """Runs function(rank, group, *args) in processes of their own; their exit codes."""
    def child(number):
        torch.set_num_threads(1)
        dist.init_process_group("gloo", store=dist.FileStore(store, count), rank=number, world_size=count)
        function(number, dist.new_group(), *args)
        dist.destroy_process_group()

    spawn.number = getattr(spawn, "number", 0) + 1
    store, context = os.path.abspath(f"store-{spawn.number}"), multiprocessing.get_context("fork")
    ranks = [context.Process(target=child, args=(i,)) for i in range(count)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60)
    return [process.exitcode for process in ranks]


class Talk:
    """Calls the transport as the engine does."""

    def __init__(self, group):
        self.ranks, self.kept = Ranks(group), []

    def begin(self, sends, peer, tag, size_or_bytes):
        data = ctypes.create_string_buffer(size_or_bytes, len(size_or_bytes) if sends else size_or_bytes)
        request = (ctypes.c_void_p * 1)()
        call = self.ranks.table.send if sends else self.ranks.table.receive
        assert call(None, peer, tag, ctypes.addressof(data), len(data), request) == 0
        self.kept.append(data)
        return request, data

    def end(self, message, seconds=20):
        """What was received, "failed", or "open"."""
        done, until = (ctypes.c_int * 1)(), time.monotonic() + seconds
        while time.monotonic() < until:
            if self.ranks.table.test(None, message[0], done):
                return "failed"
            if done[0]:
                return message[1].raw
            time.sleep(0.001)
        return "open"


def talk(number, group):
    talk = Talk(group)
    sizes = [1, 0, 5 << 20, 7, 3 << 20, 100000, 2 << 20] + 40 * [1 << 20]
    if number == 0:  # all at once, before they are wanted
        sent = [talk.begin(True, 1, i % 2 if i < 7 else 2, bytes([i]) * size) for i, size in enumerate(sizes)]
        early = talk.begin(False, 1, 3, 4)
        assert talk.end(early, 0.2) == "open"
        dist.barrier()
    else:
        dist.barrier()
        until = time.monotonic() + 30
        while talk.ranks._peers[0].waiting <= WAITING and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.2)
        assert WAITING < talk.ranks._peers[0].waiting <= WAITING + (1 << 20)  # more is not taken in
        for tag in (1, 0):  # in another order than they were sent
            wanted = list(enumerate(sizes))[tag:7:2]
            got = [talk.begin(False, 0, tag, size) for _, size in wanted]
            assert [talk.end(message) for message in got] == [bytes([i]) * size for i, size in wanted]
        got = [talk.begin(False, 0, 2, size) for size in sizes[7:]]
        assert [talk.end(message)[:1] for message in got] == [bytes([i]) for i in range(7, len(sizes))] and not talk.ranks._peers[0].waiting
        assert talk.end(talk.begin(True, 0, 3, b"last")) == b"last"
    if number == 0:
        assert all(talk.end(message) != "failed" for message in sent) and talk.end(early) == b"last"
        place = talk.ranks._places[0]
        for hello in (b"", b"GET / HTTP/1.1", bytes(20), place[0] + b"\1\0\0\0"):  # no rank, or one that is connected already
            with socket.create_connection(place[1:]) as stranger:
                stranger.sendall(hello)
                stranger.shutdown(socket.SHUT_WR)
                assert stranger.recv(1) == b""
        pending = talk.begin(False, 1, 3, 4)
    dist.barrier()
    if number == 1:  # killed, with a child that has all its descriptors
        if os.fork() == 0:
            time.sleep(2)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    assert talk.end(pending) == "failed" and time.monotonic() - begin < 1.5
    assert talk.end(talk.begin(True, 1, 3, b"more")) == "failed" and threading.active_count() == 2
    talk.ranks.close()
    os._exit(0)


def messages():
    """Messages of any size and order, strangers, and a rank that is killed."""
    assert spawn(2, talk) == [0, -signal.SIGKILL]


def stalls(number, group):
    engine = Engine("stall", 4 << 20, group=group, library=library, directory=".", partner_patience=0.5, unprotected_steps=3, say=lambda text: None)
    state = {"w": torch.randn(1000)}

    def snapshot(step):
        try:
            return engine.snapshot(step, state)
        except Error as error:
            return error.status

    assert engine.recover(state) is None and engine.snapshot(1, state) and engine.wait(20) and engine.protection()["partner_step"] == 1
    if number:
        time.sleep(4)
    outcomes = []
    for step in range(2, 6):
        outcomes.append(snapshot(step))
        time.sleep(0 if number else 0.8)
    if not number:
        assert outcomes == ["ok", "unprotected", "unprotected", "stop"], outcomes
        status = engine.protection()
        assert status["memory_step"] == 5 and status["partner_step"] == 1 and status["partner_age"] > 2 and status["unprotected"] == 3 and "does not answer" in status["reason"]
        assert not outcomes[1] and outcomes[1].message == status["reason"]
    for step in range(6, 30):
        dist.barrier()
        last = snapshot(step)
        time.sleep(0.05)
    assert last == "ok" and engine.wait(20) and engine.protection()["partner_step"] == 29 and not engine.protection()["reason"]
    dist.barrier()
    engine.close(remove=True)


def unprotected():
    """A rank that does not answer leaves the other unprotected, which is told, and an error after unprotected_steps. It heals when the rank answers."""
    assert spawn(2, stalls) == [0, 0]


def hosts(number, group):
    socket.gethostname = lambda: f"host{number}"
    socket.gethostbyname = lambda name: "127.0.1.1"
    refused(Error, "set GLOO_SOCKET_IFNAME", Ranks, group)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    refused(Error, "set GLOO_SOCKET_IFNAME", Ranks, group)


def addresses():
    """Ranks of two hosts that have addresses of the loopback are told what to set."""
    assert spawn(2, hosts) == [0, 0]


def shards(number, group):
    mesh = init_device_mesh("cpu", (2,))
    whole = torch.arange(35.0).reshape(5, 7)
    assert shard_name("w", distribute_tensor(whole, mesh, [Shard(0)])) == f"w[{('0:3', '3:5')[number]},0:7 of 5,7]"
    assert shard_name("w", distribute_tensor(whole, mesh, [Shard(1)])) == f"w[0:5,{('0:4', '4:7')[number]} of 5,7]"
    assert shard_name("w", distribute_tensor(whole, mesh, [Replicate()])) == "w[0:5,0:7 of 5,7]" and shard_name("w", whole) == "w"
    assert shard_name("w", distribute_tensor(whole[:1], mesh, [Shard(0)])) == f"w[{('0:1', '1:1')[number]},0:7 of 1,7]"
    refused(ValueError, "partial sums", shard_name, "w", DTensor.from_local(whole, mesh, [Partial()]))
    engine = Engine("shards", 1 << 20, group=group, library=library, directory=".")
    state = {"w": distribute_tensor(whole, mesh, [Shard(0)]), "one": distribute_tensor(whole[:1], mesh, [Shard(0)])}
    assert engine.recover(state) is None and engine.snapshot(1, state) and engine.wait(20)
    zero = {name: torch.zeros_like(t) for name, t in state.items()}
    assert engine.recover(zero) == 1 and all(torch.equal(zero[name].to_local(), t.to_local()) for name, t in state.items())
    assert "is in the snapshot, but not wanted" in str(refused(Error, "", engine.recover, {**zero, "w": distribute_tensor(whole, mesh, [Shard(1)])}))
    for ranks in (1, 3, 4, 7):  # what files of other numbers of ranks have, and no more of it than this rank needs
        back = {"w": torch.zeros_like(state["w"])}
        found, at = _State(back, False, ranks), 0
        for chunk in torch.chunk(whole, ranks):
            part = found.entries.pop(f"w[{at}:{at + len(chunk)},0:7 of 5,7]", None)
            assert (part is not None) == (at < (3, 5)[number] and at + len(chunk) > (0, 3)[number])
            if part:
                part[1].copy_(chunk)
            at += len(chunk)
        assert not found.entries
        found.take()
        assert torch.equal(back["w"].to_local(), state["w"].to_local())
    dist.barrier()
    engine.close(remove=True)


def dtensors():
    """Shards are told apart by their places: those of another placement are refused, or put together."""
    assert spawn(2, shards) == [0, 0]


library = os.path.abspath(sys.argv[1])
elsewhere()
sys.exit(run("engine", [one_rank, refusals, again, stateful, two_ranks, messages, unprotected, addresses, dtensors, on_device]))
