"""Trains a small GPT on bytes of text, sharded by FSDP2 over processes of this machine (gloo), and saves it with torch.distributed.checkpoint.

    python fsdp.py DIRECTORY [--ranks 2] [--steps 40] [--every 10] [--to bitsnap] [--asynchronous thread] [--text FILE ...]

Saves DIRECTORY/step-10, step-20, ...; started again it goes on from the last that is whole, on any number of ranks.
--to: bitsnap, quantized (the same, AdamW's moments within 1 %), stock (FileSystemWriter), torch (torch.save of all by rank 0, which blocks)
--table: trains once for each of these, and prints what they take
"""
import argparse
import glob
import hashlib
import multiprocessing
import os
import pathlib
import signal
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.fsdp import fully_shard

from bitsnap.dcp import CHECKPOINT, BitsnapReader, BitsnapWriter

CONTEXT, BATCH = 64, 8
MOMENTS = {"optim.state.*.exp_avg": 0.01, "optim.state.*.exp_avg_sq": 0.01}


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(self.before(x)).chunk(3, -1))
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


class GPT(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.token, self.place = nn.Embedding(256, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, tokens):
        x = self.token(tokens) + self.place.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batch(text, step, rank, ranks):
    """The same sequences in each step, on whatever number of ranks."""
    first = torch.randint(len(text) - CONTEXT, (BATCH,), generator=torch.Generator().manual_seed(step))[rank::ranks]
    tokens = torch.stack([text[i:i + CONTEXT + 1] for i in first]).long()
    return tokens[:, :-1], tokens[:, 1:]


def latest(directory):
    """The number of the last step that is whole."""
    steps = [int(os.path.dirname(path).rpartition("-")[2]) for path in glob.glob(os.path.join(directory, "step-*", CHECKPOINT))]
    return max(steps, default=0)


def save(to, state, model, optimizer, path, base, kind, group):
    """Begins, and gives what is to be waited for."""
    if to == "torch":
        whole = get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if dist.get_rank() == 0:
            os.makedirs(path)
            torch.save({"model": whole[0], "optim": whole[1], "step": state["step"]}, os.path.join(path, "all.pt"))
        return None
    writer = dcp.FileSystemWriter(path) if to == "stock" else BitsnapWriter(path, base=base, bounds=MOMENTS if to == "quantized" else None)
    if kind is None:
        dcp.save(state, storage_writer=writer)
        return None
    return dcp.async_save(state, storage_writer=writer, process_group=group, async_checkpointer_type=AsyncCheckpointerType(kind))


def train(rank, ranks, o, result):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(o.store, ranks), rank=rank, world_size=ranks)
    saving = dist.new_group()  # its collectives are those of another thread
    torch.manual_seed(1)
    model = GPT(o.width, o.layers)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = latest(o.directory)
    if step:
        state = dict(zip(("model", "optim"), get_state_dict(model, optimizer)), step=0)
        dcp.load(state, storage_reader=BitsnapReader(os.path.join(o.directory, f"step-{step}")))
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
        assert state["step"] == step
    text = torch.frombuffer(bytearray(b"".join(pathlib.Path(path).read_bytes() for path in o.text)), dtype=torch.uint8)
    pending, base, blocked, total = None, f"step-{step}", 0.0, []
    while step < o.steps:
        tokens, wanted = batch(text, step, rank, ranks)
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if o.every and step % o.every == 0:
            begin = time.perf_counter()
            if pending:
                pending.result()
            state = dict(zip(("model", "optim"), get_state_dict(model, optimizer)), step=step)
            name = f"step-{step}"
            pending = save(o.to, state, model, optimizer, *(os.path.join(o.directory, x) for x in (name, base)), o.asynchronous, saving)
            base = name
            blocked += time.perf_counter() - begin
            if pending:
                pending.add_done_callback(lambda _, begin=begin: total.append(time.perf_counter() - begin))
            else:
                total.append(time.perf_counter() - begin)
        if step == o.kill:
            os.kill(os.getpid(), signal.SIGKILL)
    if pending:
        pending.result()
    loss = loss.detach()
    dist.all_reduce(loss)
    weights = hashlib.sha256()
    for parameter in model.parameters():
        weights.update(parameter.full_tensor().detach().numpy().tobytes())
    if rank == 0:
        result.put((float(loss) / ranks, weights.hexdigest(), blocked, sum(total), len(total)))
    dist.barrier()
    dist.destroy_process_group()


def run(o, rank=train):
    """On o.ranks processes: (loss, hash of the weights, seconds that training stood still, seconds of saving, checkpoints), or None."""
    os.makedirs(o.directory, exist_ok=True)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    context = multiprocessing.get_context("fork")
    result = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as meeting:
        o.store = os.path.join(meeting, "store")
        ranks = [context.Process(target=rank, args=(i, o.ranks, o, result)) for i in range(o.ranks)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
    return None if any(process.exitcode for process in ranks) else result.get()


def options(argv=None):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("directory")
    for name, value in (("ranks", 2), ("steps", 40), ("every", 10), ("width", 64), ("layers", 2), ("kill", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--to", default="bitsnap", choices=("bitsnap", "quantized", "stock", "torch"))
    parser.add_argument("--asynchronous", choices=("thread", "process"))
    parser.add_argument("--text", nargs="+", default=[__file__])
    parser.add_argument("--table", action="store_true")
    return parser.parse_args(argv)


def table(o):
    directory = o.directory
    print("to           bytes a checkpoint   blocking ms   total ms   loss")
    for o.to in ("torch", "stock", "bitsnap", "quantized"):
        o.directory = os.path.join(directory, o.to)
        loss, _, blocked, total, count = run(o)
        size = sum(os.path.getsize(path) for path in glob.glob(os.path.join(o.directory, "step-*", "*")) +
                   glob.glob(os.path.join(o.directory, "step-*", ".metadata")))
        print(f"{o.to:10} {size / count:20,.0f} {1e3 * blocked / count:13.1f} {1e3 * total / count:10.1f}   {loss:.6f}")


if __name__ == "__main__":
    parsed = options()
    if parsed.table:
        table(parsed)
    else:
        print(run(parsed))
