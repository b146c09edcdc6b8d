"""Tests of docs/examples/engine/engine_torch.py: python_engine.py LIBRARY. By check_python.sh."""
import multiprocessing
import os
import signal
import sys

import torch
import torch.distributed as dist
from python_checks import elsewhere, refused, run

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "docs", "examples", "engine"))
from engine_torch import Engine, Error  # noqa: E402


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
    assert engine.snapshot(3, odd) and engine.recover(back) == 3 and same(back, odd)
    refused(Error, "byte: is U8[2,3,4] in the snapshot, not I8[2,3,4]", engine.recover, {**back, "byte": back["byte"].view(torch.int8)})
    refused(ValueError, "must be contiguous", engine.snapshot, 4, {"w": torch.ones(3, 4).T})
    refused(ValueError, "is no policy", Engine, "two", 16 << 20, library=library, policy="great")
    engine.close(remove=True)
    assert not os.listdir()


library = os.path.abspath(sys.argv[1])
elsewhere()
sys.exit(run("engine", [one_rank, two_ranks]))
