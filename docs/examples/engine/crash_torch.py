#!/usr/bin/env python3
"""crash_torch.py - FSDP2 training on several gloo ranks is killed again and again, and has the losses of a run that was not, bit for bit.
Part of bitsnap; MIT licence, see bitsnap.h.

    crash_torch.py LIBRARY WORK [--engine PROGRAM] [--ranks N] [--kills N] [--seed N] [--others N ...]

Each kill comes at a random moment. It hits a trainer, or a whole rank: its trainer, its agent and its shared memory, as if its machine were gone.
With --engine, agents write snapshots to disk and are killed as well, and sometimes a rank and its partner go at once, so that only files are left.
After a kill all other trainers are killed too, as torchrun does, and the run is started again. --others: at the end the snapshot is recovered on these
numbers of ranks. Without shards_of that must be refused; with it, weights and moments must be those of the run, if there are files."""
import argparse
import collections
import hashlib
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time

import torch
import torch._dynamo  # noqa: F401: fully_shard imports it; so it is imported once, and not by each trainer
import torch.distributed as dist
from engine_torch import Engine, Error
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

WIDTH, NAME = 65, f"crash-torch-{os.getpid()}"  # 65 is no multiple of a number of ranks


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.ones(1, WIDTH))  # one row: all ranks but the first have an empty shard

    def forward(self, x):
        return x + self.scale * self.down(nn.functional.gelu(self.up(self.norm(x))))


class Trainer:
    """A model and its optimizer, as torch.distributed.checkpoint wants them: a Stateful."""

    def __init__(self):
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Embedding(256, WIDTH), Block(), nn.Linear(WIDTH, 256))
        for layer in self.model:
            fully_shard(layer)
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 1000)
        self.state_dict()  # makes moments by a step that changes no weights but is counted: so every run begins with it

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optim": optimizer, "schedule": self.schedule.state_dict()}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
        self.schedule.load_state_dict(state["schedule"])

    def step(self, text, step, rank, ranks):
        """The loss of one step, the same on all ranks."""
        first = torch.randint(len(text) - 17, (16,), generator=torch.Generator().manual_seed(step))[rank::ranks]
        tokens = torch.stack([text[i:i + 17] for i in first]).long()
        loss = nn.functional.cross_entropy(self.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        loss = loss.detach()
        dist.all_reduce(loss)
        return float(loss) / ranks

    def digest(self):
        """Of all weights and moments, put together from their shards."""
        found, state = hashlib.sha256(), self.state_dict()
        tensors = {**state["model"], **{f"{n}.{kind}": t for n, s in state["optim"]["state"].items() for kind, t in s.items()}}
        for name, t in sorted(tensors.items()):
            found.update(name.encode() + (t.full_tensor() if isinstance(t, DTensor) else t).detach().numpy().tobytes())
        return found.hexdigest()


def rank(number, ranks, o, task, store):
    """One trainer. task: "straight", without the engine; "crashed"; "refused" and "other": recover what 'crashed' left on another number of ranks."""
    torch.set_num_threads(1)
    said = os.open(os.path.join(o.work, f"said.{number}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 2)
    dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=number, world_size=ranks)
    trainer, step, engine = Trainer(), 0, None
    if task != "straight":
        disk = {"disk": o.disk, "agent": [o.engine, "agent", "--disk", o.disk, f"{NAME}.{number}"]} if o.engine else {}
        engine = Engine(NAME, 8 << 20, group=dist.new_group() if ranks > 1 else None, library=o.library, partner_patience=20.0, when_busy=1, patience=20.0,
                        say=lambda text: print("said:", text, file=sys.stderr), **disk)
        try:
            step = engine.recover(trainer, shards_of=o.ranks if task == "other" else None)
        except Error as error:
            print(f"{error.status}: {error}", file=sys.stderr)
            os._exit(3)
        note(o, task, f"recovered {step} {engine.cost()['source']}")
        step = step or 0
    while step < o.steps:
        loss = trainer.step(o.text, step, number, ranks)
        step += 1
        if engine:
            engine.snapshot(step, trainer)
        if number == 0:
            note(o, task, f"{step} {loss.hex()}")
    if engine and not (outcome := engine.wait(60)):
        print("the last snapshot does not count:", outcome.message, file=sys.stderr)
        os._exit(4)
    digest = trainer.digest()
    if number == 0:
        note(o, task, f"digest {digest}")
    dist.barrier()
    if engine:
        engine.close()
    os._exit(0)


def note(o, task, line):
    with open(os.path.join(o.work, task), "a") as f:
        f.write(line + "\n")


def noted(o, task):
    try:
        with open(os.path.join(o.work, task)) as f:
            return [line.split() for line in f.read().split("\n")[:-1]]
    except FileNotFoundError:
        return []


def progress(o):
    return max((int(line[0]) for line in noted(o, "crashed") if line[0].isdigit()), default=0)


class Launch:
    """The trainers of one start."""
    number = 0

    def __init__(self, o, task, ranks):
        Launch.number += 1
        context, store = multiprocessing.get_context("fork"), os.path.join(o.work, f"store-{Launch.number}")
        self.ranks = [context.Process(target=rank, args=(i, ranks, o, task, store)) for i in range(ranks)]
        for process in self.ranks:
            process.start()

    def end(self, seconds=120):
        """Waits for all, but kills the others when one fails. Their exit codes."""
        until = time.monotonic() + seconds
        while any(p.is_alive() for p in self.ranks):
            if time.monotonic() > until or any(p.exitcode for p in self.ranks):
                time.sleep(0.2)  # others may fail as well, and say why
                for process in self.ranks:
                    process.kill()
            for process in self.ranks:
                process.join(0.05)
        return [process.exitcode for process in self.ranks]


def agents(number):
    """The processes that look after a rank's segment, found by their command lines."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                arguments = f.read().split(b"\0")
            if b"agent" in arguments and f"{NAME}.{number}".encode() in arguments:
                yield int(pid)
        except OSError:
            continue


def lose(number, agent_only=False):
    """Kills the agents of a rank, and removes its memory."""
    for pid in agents(number):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    if not agent_only and os.path.exists(f"/dev/shm/bitsnap-{NAME}.{number}"):
        os.unlink(f"/dev/shm/bitsnap-{NAME}.{number}")


class Failed(Exception):
    pass


def disturb(o, launch, choose, kills):
    """Kills until this start has ended."""
    kinds, first = {"trainer": 5, "rank": 5, **({"agent": 5, "pair": 1} if o.engine else {})}, progress(o)
    while sum(kills.values()) < o.kills:
        kind, number = min(kinds, key=lambda kind: ((kills.get(kind, 0) + choose.random()) / kinds[kind])), choose.randrange(o.ranks)
        least = first + 2 if kind in ("rank", "pair") else 2  # until then the partner of a rank that was lost may not have its copy
        goal, until = max(least, progress(o) + choose.randint(0, 6)), time.monotonic() + 60
        while progress(o) < goal and all(p.is_alive() for p in launch.ranks) and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.2 * choose.random())
        if time.monotonic() >= until:
            raise Failed(f"no progress after step {progress(o)}")
        if not all(p.is_alive() for p in launch.ranks) or progress(o) >= o.steps:
            return
        kills[kind] = kills.get(kind, 0) + 1
        if kind == "agent":
            lose(number, agent_only=True)
            continue
        launch.ranks[number].kill()
        for r in {"trainer": [], "rank": [number], "pair": [number, (number + 1) % o.ranks]}[kind]:
            lose(r)
        return


def crash(o):
    choose, kills, begin = random.Random(o.seed), {}, time.monotonic()
    while True:
        launch = Launch(o, "crashed", o.ranks)
        disturb(o, launch, choose, kills)
        codes = launch.end()
        if not any(codes):
            break
        if 3 in codes or 4 in codes or Launch.number > 4 * o.kills + 10:
            raise Failed(f"exit codes {codes}: {said(o)}")
    lines = noted(o, "crashed")
    sources = collections.Counter(line[2] for line in lines if line[0] == "recovered" and line[1] != "None")
    print(f"crashed: {sum(kills.values())} kills ({', '.join(f'{n} {kind}' for kind, n in sorted(kills.items()))}), {Launch.number - 1} starts, "
          f"{time.monotonic() - begin:.1f} s; ranks recovered {', '.join(f'{n} times from {source}' for source, n in sorted(sources.items()))}")
    wanted = dict(noted(o, "straight"))
    for line in lines:
        if line[0] != "recovered" and wanted[line[0]] != line[1]:
            raise Failed(f"{line[0]}: {line[1]}, not {wanted[line[0]]} as in the run that was not killed")
    if o.kills and not sources:
        raise Failed("no start recovered a snapshot")


def said(o, ranks=None):
    """The last line of each rank."""
    lines = []
    for number in range(ranks or o.ranks):
        path = os.path.join(o.work, f"said.{number}")
        if os.path.exists(path):
            with open(path) as f:
                lines += [f"rank {number}: {line[:150]}" for line in f.read().split("\n")[-2:-1]]
    return "; ".join(lines)


def on_others(o, ranks):
    """What the crashed run left, on another number of ranks."""
    codes = Launch(o, "refused", ranks).end()
    if 3 not in codes or noted(o, "refused"):
        raise Failed(f"{ranks} ranks are not refused the shards of {o.ranks}: exit codes {codes}")
    print(f"{ranks} ranks: refused, {said(o, ranks)}")
    if not o.engine:
        return
    codes, got = Launch(o, "other", ranks).end(), noted(o, "other")
    os.unlink(os.path.join(o.work, "other"))
    if any(codes) or got != ranks * [["recovered", str(o.steps), "disk"]] + [["digest", dict(noted(o, "straight"))["digest"]]]:
        raise Failed(f"{ranks} ranks do not have the weights of {o.ranks}: exit codes {codes}, {got}, {said(o, ranks)}")
    print(f"{ranks} ranks: the same weights and moments, from the files of {o.ranks}")


def wait_for_files(o):
    """Until the agents of all ranks have written the last step."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        files = os.listdir(o.disk)
        if all(any(f.startswith(f"{NAME}.{r}") and f"{o.steps:010}" in f and not f.endswith(".tmp") for f in files) for r in range(o.ranks)):
            return
        time.sleep(0.1)
    raise Failed(f"the agents have not written step {o.steps}: {files}")


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("library"), p.add_argument("work"), p.add_argument("--engine")
    p.add_argument("--ranks", type=int, default=2), p.add_argument("--kills", type=int, default=20), p.add_argument("--seed", type=int, default=1)
    p.add_argument("--others", type=int, nargs="*", default=[])
    o = p.parse_args()
    shutil.rmtree(o.work, ignore_errors=True)
    o.work, o.library, o.steps = os.path.abspath(o.work), os.path.abspath(o.library), 8 + 6 * o.kills
    o.disk, o.engine = os.path.join(o.work, "disk"), o.engine and os.path.abspath(o.engine)
    os.makedirs(o.disk)
    with open(__file__, "rb") as f:
        o.text = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8)
    try:
        begin = time.monotonic()
        if any(Launch(o, "straight", o.ranks).end(600)):
            raise Failed(said(o))
        print(f"straight: {o.steps} steps on {o.ranks} ranks in {time.monotonic() - begin:.1f} s")
        crash(o)
        if o.engine:
            wait_for_files(o)
        for ranks in o.others:
            on_others(o, ranks)
    except Failed as error:
        print("FAIL:", error)
        return 1
    finally:
        for number in range(max(o.ranks, *o.others, 1)):
            lose(number)
    print("PASS: the losses, weights and moments of the run that was not killed, bit for bit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
