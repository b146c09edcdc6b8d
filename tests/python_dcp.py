"""Tests of bitsnap.dcp, where it is installed: python_dcp.py TRAIN README [TEST ...], with docs/examples/python/train/fsdp.py. By check_python.sh."""
import importlib.util
import io
import logging
import multiprocessing
import os
import pickle
import shutil
import sys
import warnings

import bitsnap
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from bitsnap.dcp import CHECKPOINT, BitsnapReader, BitsnapWriter, Stored, certificates
from bitsnap.stream import BitsnapTransform
from python_checks import elsewhere, refused, run, run_blocks
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint._extension import ExtensionRegistry

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)


def state(of=torch.randn):
    torch.manual_seed(1)
    return {"model": {"w": of(500, 300), "b": of(7).bfloat16(), "none": of(0, 3), "whole": of(9).long()}, "optim": {"m": of(500, 300), "lr": 0.1, "b": (0.9, 1), "n": None},
            "step": of(()), "name": "x"}


def same(a, b):
    return type(a) is type(b) and (a.dtype == b.dtype and torch.equal(a, b) if isinstance(a, torch.Tensor) else
                                   a.keys() == b.keys() and all(same(a[k], b[k]) for k in a) if isinstance(a, dict) else a == b)


def empty():
    into = state(torch.zeros)
    into["optim"].update({"lr": 0, "b": (), "n": 4})
    return {**into, "name": ""}


def loaded(path, reader=BitsnapReader):
    into = empty()
    dcp.load(into, storage_reader=reader(path))
    return into


def states():
    a = state()
    dcp.save(a, storage_writer=BitsnapWriter("a"))
    assert same(loaded("a"), a) and sorted(os.listdir("a")) == [CHECKPOINT, "rank-0.bsnap"]
    dcp.save(a, checkpoint_id="id", storage_writer=BitsnapWriter(level="fast", threads=2))
    assert same(loaded("id", lambda path: BitsnapReader(path, threads=2)), a)
    refused((Exception, CheckpointException), "has a checkpoint already", dcp.save, a, storage_writer=BitsnapWriter("a"))
    refused((Exception, CheckpointException), "not supported", dcp.save, {"q": torch.quantize_per_tensor(torch.ones(3), 1, 0, torch.qint8)}, storage_writer=BitsnapWriter("q"))
    refused(ValueError, "without collectives", BitsnapWriter("q").set_up_storage_writer, True, use_collectives=False)
    refused((Exception, CheckpointException), "No such file", loaded, "absent")


def objects():
    odd = {"set": {1, 2}, "nan": float("nan"), "big": 1 << 70, "list": [1, [2.5, None]], "size": torch.Size((1, 2)), "bytes": b"ab", "ordered": {"a": {}}, "tensors": [[torch.ones(3)]]}
    dcp.save(odd, storage_writer=BitsnapWriter("odd"))
    into = {name: type(x)() for name, x in odd.items()}
    into["tensors"] = [[torch.zeros(3)]]
    into["ordered"] = {"a": {}}
    dcp.load(into, storage_reader=BitsnapReader("odd"))
    assert str(into) == str(odd)
    refused((Exception, CheckpointException), "code is not stored", dcp.save, {"f": print}, storage_writer=BitsnapWriter("code"))
    assert not os.path.exists("code/" + CHECKPOINT)
    evil = pickle.dumps(print)  # in the place of an object
    with bitsnap.safe_open("odd/rank-0.bsnap") as f:
        tensors = {name: f.get_tensor(name) for name in f.keys()}
    tensors["set"] = torch.frombuffer(bytearray(evil), dtype=torch.uint8)
    bitsnap.torch.save_file(tensors, "odd/rank-0.bsnap")
    refused((Exception, CheckpointException), "set is no object", dcp.load, {"set": set()}, storage_reader=BitsnapReader("odd"))


def deltas():
    a, states = state(), []
    for step in range(5):
        a["model"]["w"][step] += 1
        a["name"] = str(step)
        states.append({**a, "model": {k: t.clone() for k, t in a["model"].items()}})
        dcp.save(a, storage_writer=BitsnapWriter(f"step-{step}", base=f"step-{step - 1}", anchor=3))
    sizes = [os.path.getsize(f"step-{step}/rank-0.bsnap") for step in range(5)]
    assert all((size < 0.1 * sizes[0]) == (step % 3 != 0) for step, size in enumerate(sizes)), sizes
    os.mkdir("moved")
    for step in range(5):
        os.rename(f"step-{step}", f"moved/step-{step}")
        assert step % 3 or same(loaded(f"moved/step-{step}"), states[step])
    for step in range(5):
        assert same(loaded(f"moved/step-{step}"), states[step])
    os.symlink("moved/step-3", "latest")
    dcp.save(states[4], storage_writer=BitsnapWriter("linked", base="latest"))
    os.unlink("latest")
    os.symlink("moved/step-4", "latest")
    assert same(loaded("linked"), states[4]) and os.path.getsize("linked/rank-0.bsnap") < 0.1 * sizes[0]
    planner = {"planner": dcp.DefaultSavePlanner(enable_plan_caching=True)}
    dcp.save(states[0], storage_writer=BitsnapWriter("cached-0"), **planner)
    refused((Exception, CheckpointException), "enable_plan_caching=False", dcp.save, states[0], storage_writer=BitsnapWriter("cached-1", base="cached-0"), **planner)
    shutil.copy("moved/step-3/rank-0.bsnap", "moved/step-0/rank-0.bsnap")
    refused((Exception, CheckpointException), "rank-0.bsnap", loaded, "moved/step-1")  # another base than it was made against


def lossy():
    a = state()
    for base in (None, "bound-None"):
        dcp.save(a, storage_writer=BitsnapWriter(f"bound-{base}", base=base, bounds={"optim.*": 0.01, "model.b": 0.02}))
        again = loaded(f"bound-{base}")
        assert same({**again, "optim": 0}, {**a, "optim": 0}) or (again["model"]["b"] / a["model"]["b"] - 1).abs().max() < 0.03
        worst = ((again["optim"]["m"] - a["optim"]["m"]).abs() / a["optim"]["m"].abs()).max()
        measured = certificates(f"bound-{base}")
        assert measured.keys() == {"optim.m", "model.b"} and 0 < worst <= measured["optim.m"][0]["max_relative"] * 1.0001 < 0.0101
        assert same(again["model"]["w"], a["model"]["w"])
    part(lambda: {"optim": {"m": torch.zeros(500, 300)}}, "bound-None", again["optim"]["m"], ("optim", "m"))


def part(make, path, whole, key):
    """Reads as a rank does that has a part of it."""
    class Planner(dcp.DefaultLoadPlanner):
        def create_local_plan(self):
            plan = super().create_local_plan()
            r = plan.items[0]
            vars(r).update(storage_offsets=torch.Size((11, 7)), dest_offsets=torch.Size((0, 0)), lengths=torch.Size((20, 30)))
            return plan

        def lookup_tensor(self, index):
            return super().lookup_tensor(index)[:20, :30]

    into = make()
    dcp.load(into, storage_reader=BitsnapReader(path), planner=Planner())
    assert torch.equal(into[key[0]][key[1]][:20, :30], whole[11:31, 7:37])


def parts():
    """A rank that wants a part of a chunk reads the blocks with it."""
    w = torch.randn(4096, 1024)
    dcp.save({"m": {"w": w}}, storage_writer=BitsnapWriter("large", level="fast"))
    make = lambda: {"m": {"w": torch.zeros(40, 40)}}  # noqa: E731
    reader, target = BitsnapReader("large"), torch.zeros(20, 30)
    metadata = reader.read_metadata()
    reader.set_up_storage_reader(metadata, True)
    index = next(iter(metadata.storage_data))

    def read(start, size, into):
        request = dcp.planner.ReadItem(dcp.planner.LoadItemType.TENSOR, index, torch.Size((0, 0)), index, torch.Size(start), torch.Size(size))

        class Planner:
            resolve_tensor = staticmethod(lambda r: into)
            commit_tensor = staticmethod(lambda r, t: None)

        before = int(open("/proc/self/io").read().split()[1])
        reader.read_data(dcp.planner.LoadPlan([request]), Planner)
        return int(open("/proc/self/io").read().split()[1]) - before

    size = os.path.getsize("large/rank-0.bsnap")
    assert read((1000, 7), (20, 30), target) < 0.05 * size and torch.equal(target, w[1000:1020, 7:37])
    for start, shape in (((0, 0), (4096, 1024)), ((5, 0), (100, 1024)), ((4095, 1023), (1, 1)), ((3, 9), (0, 4)), ((0, 5), (4096, 1))):
        for target in (torch.zeros(shape), torch.zeros(shape[::-1]).T, torch.zeros(shape, dtype=torch.float64)):
            read(start, shape, target)
            assert torch.equal(target, w[start[0]:start[0] + shape[0], start[1]:start[1] + shape[1]].to(target.dtype))
    refused(ValueError, "in a chunk of shape", read, (4000, 0), (97, 1024), torch.zeros(97, 1024))
    refused(ValueError, "in a chunk of shape", read, (0, 0), (2, 2), torch.zeros(2, 3))
    reader._storage = {index: Stored("../large/rank-0.bsnap", "w")}
    refused(ValueError, "is no name of a file", read, (0, 0), (2, 2), torch.zeros(2, 2))


def damage():
    dcp.save(state(), storage_writer=BitsnapWriter("bad", level="fast"))
    for name in (CHECKPOINT, "rank-0.bsnap"):
        good = open("bad/" + name, "rb").read()
        for i in range(0, len(good), max(len(good) // 40, 1)):
            with open("bad/" + name, "wb") as f:
                f.write(good[:i] if i % 3 else good[:i] + bytes([good[i] ^ 4]) + good[i + 1:])
            refused((Exception, CheckpointException), name, loaded, "bad")
        with open("bad/" + name, "wb") as f:
            f.write(good)
    for text in ("", "{}", '{"version":2,"bases":[],"planner":0,"state":{},"storage":[]}', '{"version":1,"bases":[],"planner":{"d":[]},"state":{"w":["code",[1],false,[]]},"storage":[]}',
                 '{"version":1,"bases":[],"planner":0,"state":{},"storage":[["w",null,0,{"x":1}]]}'):
        bitsnap.torch.save_file({}, "bad/" + CHECKPOINT, {"bitsnap.dcp": text})
        refused(ValueError, CHECKPOINT, BitsnapReader("bad").read_metadata)


def stock_files():
    a = state()
    registry = ExtensionRegistry()
    registry.register(BitsnapTransform)
    dcp.save(a, storage_writer=dcp.FileSystemWriter("plain"))
    dcp.save(a, storage_writer=dcp.FileSystemWriter("stream", _extensions=[BitsnapTransform("fast")]))
    plain, small = (os.path.getsize(path + "/__0_0.distcp") for path in ("plain", "stream"))
    assert small < 0.95 * plain, (small, plain)
    reader = lambda path: dcp.FileSystemReader(path, _extension_registry=registry)  # noqa: E731
    assert same(loaded("stream", reader), a)
    good = bytearray(open("stream/__0_0.distcp", "rb").read())
    good[len(good) // 2] ^= 1
    open("stream/__0_0.distcp", "wb").write(good)
    refused((Exception, CheckpointException), "", loaded, "stream", reader)
    refused(ValueError, "is not known here", BitsnapTransform.from_descriptor, "2")
    packed = io.BytesIO()
    packed.close = lambda: None
    with BitsnapTransform().transform_to(packed) as stream:
        stream.write(bytes(range(251)) * 20000)
    packed = packed.getvalue()
    unpack = BitsnapTransform().transform_from
    assert unpack(io.BytesIO(packed)).read() == bytes(range(251)) * 20000
    stream = unpack(io.BytesIO(packed + b"more"))
    assert len(stream.read()) == 251 * 20000 and stream.read() == b""
    outer = io.BytesIO()
    outer.close = lambda: None
    with BitsnapTransform().transform_to(outer) as stream:
        stream.write(packed)
    assert unpack(unpack(io.BytesIO(outer.getvalue()))).read() == bytes(range(251)) * 20000

    class Broken(BitsnapTransform):
        def frame(self, piece):
            raise RuntimeError("broken")

    outer = io.BytesIO()
    stream = Broken().transform_to(outer)
    stream.write(bytes(8))
    refused(RuntimeError, "broken", stream.close)
    assert stream.closed and outer.closed
    for size in (len(packed) - 1, len(packed) - 7, 100, 2, 0):
        refused(ValueError, "ends inside", unpack(io.BytesIO(packed[:size])).read)
    frame = bitsnap.compress(torch.zeros(5 << 20))
    refused(ValueError, "of more elements", unpack(io.BytesIO(len(frame).to_bytes(4, "little") + frame)).read)


def training():
    """Killed in the middle of a save and gone on with, sharded by FSDP2: the loss of the undisturbed run to the last bit."""
    here = os.path.abspath("run")
    options = [here, "--steps", "24", "--every", "6", "--asynchronous", "thread", "--text", readme]
    undisturbed = train.run(train.options(options))
    assert undisturbed and undisturbed[4] == 4
    os.rename(here, "undisturbed")
    assert train.run(train.options([*options, "--kill", "18"])) is None
    assert train.latest(here) in (6, 12, 18)
    again = train.run(train.options(options))
    assert again[:2] == undisturbed[:2], (again, undisturbed)
    shutil.rmtree("undisturbed/step-24")
    for ranks in (1, 4):
        other = train.run(train.options(["undisturbed", *options[1:], "--every", "0", "--ranks", str(ranks)]))
        assert abs(other[0] - undisturbed[0]) < 1e-3, (ranks, other, undisturbed)


def in_another_process():
    result = train.run(train.options(["process", "--steps", "4", "--every", "2", "--asynchronous", "process", "--to", "quantized", "--text", readme]))
    assert result and train.latest("process") == 4 and len(certificates("process/step-4")) > 20


def megatron_rank(rank, ranks, o, result):
    from bitsnap.megatron import SaveStrategy
    from megatron.core import parallel_state
    from megatron.core.dist_checkpointing import load, load_tensors_metadata, mapping, save
    from megatron.core.models.gpt import GPTModel, gpt_layer_specs
    from megatron.core.transformer.transformer_config import TransformerConfig
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(o.store, ranks), rank=rank, world_size=ranks)
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=ranks)
    config = TransformerConfig(num_layers=2, hidden_size=64, num_attention_heads=4, use_cpu_initialization=True, pipeline_dtype=torch.float32,
                               tensor_model_parallel_size=ranks)
    torch.manual_seed(1)  # parts of the same model, however many
    model = GPTModel(config, gpt_layer_specs.get_gpt_layer_local_spec(), vocab_size=128, max_sequence_length=32)

    def sharded(value):
        return {"model": model.sharded_state_dict(), "rng": mapping.ShardedObject("rng", value, (1,), (0,), replica_id=rank), "iteration": 7}

    def change():
        with torch.no_grad():
            model.decoder.final_layernorm.bias += 1

    if o.write:
        os.makedirs("megatron-1", exist_ok=True)
        os.makedirs("megatron-2", exist_ok=True)
        dist.barrier()
        save(sharded({"path": "megatron-1"}), "megatron-1", SaveStrategy())
        change()
        request = save(sharded({"path": "megatron-2", "x": torch.ones(3)}), "megatron-2", SaveStrategy(base="megatron-1"), async_sharded_save=True)
        writer, _, plan = request.async_fn_args
        process = multiprocessing.get_context("fork").Process(target=request.async_fn, args=(writer, request.preload_fn(), plan))
        process.start()  # as its queues do, which need CUDA
        process.join()
        dist.barrier()
        for finish in request.finalize_fns:
            finish()
    else:
        change()
    wanted = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        p.data.zero_()
    again = load(sharded(None), "megatron-2")
    model.load_state_dict(again["model"])
    assert all(torch.equal(p, w) for p, w in zip(model.parameters(), wanted)) and len(wanted) > 20
    assert again["rng"]["path"] == "megatron-2" and torch.equal(again["rng"]["x"], torch.ones(3)) and again["iteration"] == 7
    assert load_tensors_metadata("megatron-1")["decoder.final_layernorm.bias"].global_shape == (64,)
    dist.barrier()
    if rank == 0:
        result.put(sorted(os.listdir("megatron-2")))


def megatron():
    """A GPTModel saved with tensor parallelism 2, the second time in another process and as a delta; loaded with 2 and 4."""
    import megatron.core.models.gpt  # noqa: F401
    o = train.options(["."])
    for o.ranks, o.write in ((2, True), (4, False)):
        names = train.run(o, megatron_rank)
        assert names == [CHECKPOINT, "common.pt", "metadata.json", "rank-0.bsnap", "rank-1.bsnap"], names
    assert all(os.path.getsize(f"megatron-2/rank-{i}.bsnap") < 0.1 * os.path.getsize(f"megatron-1/rank-{i}.bsnap") for i in (0, 1))


def the_readme():
    run_blocks(readme, "python dcp")


if __name__ == "__main__":  # processes are spawned
    path, readme = map(os.path.abspath, sys.argv[1:3])
    spec = importlib.util.spec_from_file_location("fsdp", path)
    train = importlib.util.module_from_spec(spec)
    sys.modules["fsdp"] = train
    spec.loader.exec_module(train)
    elsewhere()
    every = [training, in_another_process, states, objects, deltas, lossy, parts, damage, stock_files, megatron, the_readme]
    sys.exit(run("dcp", [test for test in every if not sys.argv[3:] or test.__name__ in sys.argv[3:]]))
