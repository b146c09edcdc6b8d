"""Tests of docs/examples/engine/engine_torch.py with tensors on a GPU: python_engine_cuda.py LIBRARY. Skips if torch has no CUDA."""
import os
import sys
import time

import torch
from python_checks import elsewhere, run

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "docs", "examples", "engine"))
from engine_torch import DTYPES, Engine  # noqa: E402


def bits(tensor):
    return tensor.cpu().reshape(-1).view(torch.uint8)


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(bits(a[name]), bits(b[name])) for name in a)


def on_gpu():
    """Tensors of every type, also one element longer than a piece, beside tensors of the host."""
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for dtype in DTYPES:
        for count in (1, 1000, (1 << 18) + 1):
            elements = torch.randint(0, 2 if dtype == torch.bool else 100, (count,), generator=generator).to(dtype)
            tensors[f"{dtype}.{count}"] = elements if count == 1000 else elements.cuda()
    tensors["empty"], tensors["scalar"] = torch.ones(0, 3, device="cuda"), torch.tensor(5.0, device="cuda")
    tensors["shape"] = torch.randn(300, 1000, generator=generator).cuda()
    return tensors


def types_and_sizes():
    for options in ({}, {"threads": 4}, {"threads": 4, "copy": 1}):
        engine = Engine("cuda", 256 << 20, library=library, directory=".", **options)
        tensors = on_gpu()
        wanted = {name: t.clone() for name, t in tensors.items()}
        for step in (1, 2):  # the second one is deltas
            assert engine.snapshot(step, tensors) and engine.wait(60)
        for t in tensors.values():
            t.zero_()
        assert engine.recover(tensors) == 2 and same(tensors, wanted) and tensors["shape"].is_cuda
        engine.close(remove=True)


def after_kernels():
    """A snapshot waits for kernels of any stream that were launched before it. Kernels launched after it do not change it."""
    engine = Engine("cuda", 256 << 20, library=library, directory=".", threads=4)
    large, stream = torch.randn(4096, 4096, device="cuda"), torch.cuda.Stream()
    w = torch.zeros(1 << 22, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(50):
            large = large @ large * 1e-2
        w.add_(1)
    assert engine.snapshot(1, {"w": w})
    w.add_(1)
    assert engine.recover({"w": w}) == 1 and bool((w == 1).all())
    engine.close(remove=True)


def masters():
    """BF16 weights that are the rounded master take no bytes, on a GPU as well."""
    engine = Engine("cuda", 64 << 20, library=library, directory=".", masters={"w": "w.master"}, weights={"w.exp_avg": "w.master"}, stage=1, policy="resume")
    master = torch.randn(1000, 1000, device="cuda")
    state = {"w": master.bfloat16(), "w.master": master, "w.exp_avg": 1e-3 * torch.randn(1000, 1000, device="cuda")}
    wanted = {name: t.clone() for name, t in state.items()}
    assert engine.snapshot(1, state) and engine.cost()["cast"] > 0
    assert engine.cost()["frames_size"] < 7.5e6
    for t in state.values():
        t.zero_()
    assert engine.recover(state) == 1 and same({n: state[n] for n in ("w", "w.master")}, {n: wanted[n] for n in ("w", "w.master")})
    assert 0 < ((state["w.exp_avg"] - wanted["w.exp_avg"]) / wanted["w.exp_avg"]).abs().max() < 0.011
    engine.close(remove=True)


def training():
    """A model in BF16 and AdamW: it goes on with the bits of a run that was not interrupted. Prints what a snapshot takes."""
    def made():
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda().bfloat16()
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3)

    def train(model, optimizer, first, last):
        for step in range(first, last):
            x = torch.randn(64, 1024, generator=torch.Generator().manual_seed(step)).bfloat16().cuda()
            optimizer.zero_grad()
            (model(x) - x).square().mean().backward()
            optimizer.step()
        return {name: t.detach().clone() for name, t in model.state_dict().items()}

    def state(model, optimizer):
        return {"model": model.state_dict(), "optim": optimizer.state_dict()}

    model, optimizer = made()
    train(model, optimizer, 0, 3)
    engine = Engine("cuda", 256 << 20, library=library, directory=".", threads=4)
    whole = state(model, optimizer)
    begin = time.perf_counter()
    assert engine.snapshot(3, whole)
    taken, cost = time.perf_counter() - begin, engine.cost()
    begin = time.perf_counter()
    copied = [t.cpu() for t in model.state_dict().values()]
    copied += [t.cpu() for s in optimizer.state.values() for t in s.values()]
    plain = time.perf_counter() - begin
    print(f"# {cost['elements_size']} bytes on {torch.cuda.get_device_name()}: snapshot {1e3 * taken:.1f} ms, .cpu() of all {1e3 * plain:.1f} ms, "
          f"{cost['frames_size'] / cost['elements_size']:.3f} of the bytes")
    wanted = train(model, optimizer, 3, 6)
    model, optimizer = made()
    train(model, optimizer, 100, 101)  # so that the optimizer has a state
    assert engine.recover(state(model, optimizer)) == 3
    assert same(train(model, optimizer, 3, 6), wanted)
    engine.close(remove=True)


if not torch.cuda.is_available():
    print("skip - python: engine with a GPU: torch has no CUDA here")
    sys.exit()
library = os.path.abspath(sys.argv[1])
elsewhere()
sys.exit(run("engine, GPU", [types_and_sizes, after_kernels, masters, training]))
