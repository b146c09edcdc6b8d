"""Tests of bitsnap.dcp, where it is installed: python_dcp.py TRAIN README [TEST ...], with docs/examples/python/train/fsdp.py. By check_python.sh."""
import contextlib
import importlib.util
import io
import json
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
from bitsnap import files
from bitsnap.dcp import CHECKPOINT, BitsnapReader, BitsnapWriter, Stored, _saved, certificates
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


class Odd:
    def __init__(self):
        self.x = 3


def lazy_tensors():
    """Tensors whose conjugate or negative torch has not computed yet, and such targets."""
    c, n = torch.randn(5, dtype=torch.cfloat), torch.randn(6)
    dcp.save({"c": c.conj(), "n": torch._neg_view(n)}, storage_writer=BitsnapWriter("lazy"))
    for into in ({"c": torch.zeros_like(c), "n": torch.zeros(6)}, {"c": torch.zeros_like(c).conj(), "n": torch._neg_view(torch.zeros(6))}):
        dcp.load(into, storage_reader=BitsnapReader("lazy"))
        assert torch.equal(into["c"].resolve_conj(), c.conj().resolve_conj()) and torch.equal(into["n"].resolve_neg(), -n)


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
    with bitsnap.safe_open("odd/rank-0.bsnap") as f:
        tensors, metadata = {name: f.get_tensor(name) for name in f.keys()}, f.metadata()
    for evil, text in ((pickle.dumps(print), "set cannot be read without running code"), (bytes(_saved(Odd()).getbuffer()), "set holds __main__.Odd and cannot be read")):
        tensors["set"] = torch.frombuffer(bytearray(evil), dtype=torch.uint8)
        bitsnap.torch.save_file(tensors, "odd/rank-0.bsnap", metadata)
        refused((Exception, CheckpointException), text, dcp.load, {"set": set()}, storage_reader=BitsnapReader("odd"))
    text = "odd holds __main__.Odd and cannot be read without running code: keep tensors, numbers, strings, lists and dictionaries of it, or call torch.serialization.add_safe_globals([__main__.Odd])"
    refused((Exception, CheckpointException), text, dcp.save, {"odd": Odd()}, storage_writer=BitsnapWriter("type"))
    with torch.serialization.safe_globals([Odd]):
        dcp.save({"odd": Odd()}, storage_writer=BitsnapWriter("type"))
        into = {"odd": None}
        dcp.load(into, storage_reader=BitsnapReader("type"))
    assert into["odd"].x == 3
    into = {"odd": None}
    refused((Exception, CheckpointException), "add_safe_globals([__main__.Odd])", dcp.load, into, storage_reader=BitsnapReader("type"))


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


def mixed(rank, ranks, o, result):
    """BF16 weights and their masters, of which each rank has rows; saved by `write` ranks, loaded by others."""
    from torch.distributed.tensor import DTensor, Shard, init_device_mesh
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(o.store, ranks), rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))

    def of(change):
        torch.manual_seed(3)
        masters = {f"w{i}": torch.randn(200, 128) * 0.02 + change for i in range(3)}
        whole = {"model": {name: t.bfloat16() for name, t in masters.items()}, "optim": {"master": masters}}
        whole["model"]["head"] = whole["model"]["w0"].clone()
        return whole

    def shared_out(x):
        return {k: shared_out(v) for k, v in x.items()} if isinstance(x, dict) else DTensor.from_local(x.chunk(ranks)[rank], mesh, [Shard(0)])

    def equal(a, b):
        return all(equal(a[k], b[k]) for k in a) if isinstance(a, dict) else torch.equal(a.full_tensor(), b)

    if o.write:
        for references in (True, False):
            dcp.save(shared_out(of(0)), storage_writer=BitsnapWriter(f"mixed-{references}", references=references))
        dcp.save(shared_out(of(0.001)), storage_writer=BitsnapWriter("mixed-2", base="mixed-True"))
    for path, change in (("mixed-True", 0), ("mixed-False", 0), ("mixed-2", 0.001)):
        into = shared_out(of(5))
        dcp.load(into, storage_reader=BitsnapReader(path))
        assert equal(into, of(change)), path
    dist.barrier()
    if rank == 0:
        result.put([[os.path.getsize(f"mixed-{x}/rank-{i}.bsnap") for i in range(2)] for x in (True, False)])


def references():
    """A rank's weights take next to nothing beside its masters; other numbers of ranks read them, and deltas against them. A part of a tensor
    that is looked at is that part, however the tensor lies in memory."""
    o = train.options(["."])
    for o.ranks, o.write in ((2, True), (1, False), (4, False)):
        for some, all_ in zip(*train.run(o, mixed)):
            assert some < 0.75 * all_, (some, all_)
    w, c = torch.randn(300, 200) * 0.02, torch.randn(5000, dtype=torch.cfloat)
    odd = {"a": {"w": w.T.bfloat16().T, "c": c.conj(), "n": torch._neg_view(w), "s": torch.ones(())}, "b": {"w": w.T, "c": c.conj().clone(), "n": -w, "t": w.T.contiguous()}}
    dcp.save(odd, storage_writer=BitsnapWriter("odd-views"))
    dcp.save(odd, storage_writer=BitsnapWriter("odd-views-not", references=False))
    into = {k: {name: torch.zeros(t.shape, dtype=t.dtype) for name, t in x.items()} for k, x in odd.items()}
    dcp.load(into, storage_reader=BitsnapReader("odd-views"))
    assert all(torch.equal(t, odd[k][name].resolve_conj().resolve_neg()) for k, x in into.items() for name, t in x.items())
    frames = [bitsnap._core.File(open(f"odd-views{x}/rank-0.bsnap", "rb").read()).frames() for x in ("", "-not")]
    assert sum("base_id" in frame for frame in frames[0]) == 3 and not any("base_id" in frame for frame in frames[1]), frames
    assert os.path.getsize("odd-views/rank-0.bsnap") < 0.6 * os.path.getsize("odd-views-not/rank-0.bsnap")


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


def broken_checkpoints(*changes):
    """Copies of "whole" in which the JSON of checkpoint.bsnap is changed."""
    with bitsnap.safe_open("whole/" + CHECKPOINT) as f:
        text = f.metadata()["bitsnap.dcp"]
    for i, change in enumerate(changes):
        shutil.copytree("whole", f"whole-{i}")
        whole = json.loads(text)
        change(whole)
        bitsnap.torch.save_file({}, f"whole-{i}/{CHECKPOINT}", {"bitsnap.dcp": json.dumps(whole)})
        yield f"whole-{i}"


def warned(function, *args, **named):
    """What a call warns of."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        function(*args, **named)
    return [str(x.message) for x in found if os.path.basename(x.filename) == "dcp.py"]


def conversions():
    """Elements become those of another kind as torch converts them, and it is said; shapes and dtypes are compared."""
    dcp.save({"i": torch.arange(5), "f": torch.arange(5) / 2, "h": torch.ones(4, 3).half()}, storage_writer=BitsnapWriter("whole"))
    into = {"i": torch.zeros(5), "f": torch.zeros(5, dtype=torch.int32), "h": torch.zeros(4, 3)}
    found = warned(dcp.load, into, storage_reader=BitsnapReader("whole"))
    assert sorted(x.split(",")[0] for x in found) == ["f is stored as torch.float32 and is converted to torch.int32", "i is stored as torch.int64 and is converted to torch.float32"], found
    assert into["i"].tolist() == [0, 1, 2, 3, 4] and into["f"].tolist() == [0, 0, 1, 1, 2] and into["h"].sum() == 12
    assert len(warned(dcp.load, {"i": torch.zeros(5, dtype=torch.int8)}, storage_reader=BitsnapReader("whole"))) == 1
    for shape in ((3, 4), (4, 2), (12,)):
        refused((Exception, CheckpointException), "Size mismatch", dcp.load, {"h": torch.zeros(shape)}, storage_reader=BitsnapReader("whole"))

    def other_dtype(whole):
        whole["state"]["i"][0] = "float64"

    def other_shape(whole):
        whole["state"]["h"][1:] = [[3, 4], False, [[[0, 0], [3, 4]]]]

    def no_ids(whole):
        del whole["saves"]

    def few_ids(whole):
        whole["saves"] = []

    *wrong, old, few = broken_checkpoints(other_dtype, other_shape, no_ids, few_ids)
    for path, into, text in zip(wrong, ({"i": torch.zeros(5)}, {"h": torch.zeros(3, 4)}), ("i is I64 of [5] in its file; the checkpoint says F64 of [5]", "h is F16 of [4, 3] in its file")):
        refused((Exception, CheckpointException), text, dcp.load, into, storage_reader=BitsnapReader(path))
    found = warned(dcp.load, {"h": torch.zeros(4, 3)}, storage_reader=BitsnapReader(old))
    assert len(found) == 1 and "saved by 1.0.0-rc1, which gave saves no ids" in found[0], found
    dcp.save({"h": torch.ones(4, 3)}, storage_writer=BitsnapWriter("newer", base=old))
    assert warned(dcp.load, {"h": torch.zeros(4, 3)}, storage_reader=BitsnapReader("newer")) == []
    refused((Exception, CheckpointException), "is damaged", dcp.load, {"h": torch.zeros(4, 3)}, storage_reader=BitsnapReader(few))


def save_of(path):
    with bitsnap.safe_open(path + "/" + CHECKPOINT) as f:
        return json.loads(f.metadata()["bitsnap.dcp"])["saves"][-1]


def saves_that_mix():
    """A file of another save is refused, with both names; a base that is another is passed over."""
    steps = []
    for i in range(3):
        a = state()
        a["model"]["w"] += i
        steps.append(a)
        dcp.save(a, storage_writer=BitsnapWriter(f"mix-{i}", base=f"mix-{i - 1}"))
    dcp.save(steps[0], storage_writer=BitsnapWriter("alike"))
    text = f"mix-0/rank-0.bsnap is of the save {save_of('alike')}; the checkpoint in mix-0 is of the save {save_of('mix-0')}"
    shutil.copy("mix-0/rank-0.bsnap", "kept")
    shutil.copy("alike/rank-0.bsnap", "mix-0/rank-0.bsnap")  # its contents are the same, so nothing else shows it
    refused((Exception, CheckpointException), text, loaded, "mix-0")
    refused((Exception, CheckpointException), "rank-0.bsnap is of the save", loaded, "mix-2")
    found = warned(dcp.save, steps[0], storage_writer=BitsnapWriter("alone", base="mix-0"))
    assert len(found) == 1 and "rank-0.bsnap is written without a base: " in found[0] and same(loaded("alone"), steps[0]), found
    shutil.copy("kept", "mix-0/rank-0.bsnap")
    assert same(loaded("mix-2"), steps[2])
    with bitsnap.safe_open("mix-0/rank-0.bsnap") as f:
        bitsnap.torch.save_file({name: f.get_tensor(name) for name in f.keys()}, "mix-0/rank-0.bsnap")
    refused((Exception, CheckpointException), "mix-0/rank-0.bsnap has no id of a save", loaded, "mix-0")
    shutil.copy("kept", "mix-0/rank-0.bsnap")
    assert files.open_file("mix-1/rank-0.bsnap", "mix-0/rank-0.bsnap").bases == ["rank-0 of mix-0"]
    os.mkdir("a\\b")
    shutil.copy("mix-1/rank-0.bsnap", "alike/rank-0.bsnap")
    refused((Exception, CheckpointException), "alike/rank-0.bsnap is a delta, but the checkpoint names no base", loaded, "alike")
    os.rename("mix-0", "a\\b/away")
    refused((Exception, CheckpointException), "mix-1/rank-0.bsnap is a delta and needs ", loaded, "mix-1")
    refused((Exception, CheckpointException), "mix-0/rank-0.bsnap, which is not there: put that folder back where it was", loaded, "mix-2")
    dcp.save(steps[0], storage_writer=BitsnapWriter("c\\d"))
    dcp.save(steps[1], storage_writer=BitsnapWriter("of-odd", base="c\\d"))
    assert same(loaded("of-odd"), steps[1])


class Killed(BaseException):
    pass


@contextlib.contextmanager
def killed(at, before):
    """In this process: at the rename of that number, before it or after it. No handler of the package can mend what has happened by then."""
    replace, count = os.replace, 0

    def stop(source, target):
        nonlocal count
        count += 1
        if count != at:
            return replace(source, target)
        if not before:
            replace(source, target)
        raise Killed

    os.replace = stop
    try:
        yield
    finally:
        os.replace = replace


def killed_at_each_rename():
    """Whatever was renamed: there is no checkpoint or a whole one, and the next save is whole."""
    old, a = state(), state()
    a["model"]["w"] += 1
    dcp.save(old, storage_writer=BitsnapWriter("kill-base"))
    for at in (1, 2):
        for before in (True, False):
            path, base = f"kill-{at}-{before}", "kill-base" if at == 1 else None
            with killed(at, before):
                refused((Killed, CheckpointException), "", dcp.save, old, storage_writer=BitsnapWriter(path, base=base))
            if (at, before) == (2, False):
                assert same(loaded(path), old)
                refused((Exception, CheckpointException), "has a checkpoint already", dcp.save, a, storage_writer=BitsnapWriter(path))
                continue
            refused((Exception, CheckpointException), "No such file", loaded, path)
            if at == 2:
                os.rename(path + "/rank-0.bsnap", path + "/rank-7.bsnap")  # as if there had been more ranks
            found = warned(dcp.save, a, storage_writer=BitsnapWriter(path, base=base))
            assert same(loaded(path), a) and sorted(os.listdir(path)) == [CHECKPOINT, "rank-0.bsnap"], os.listdir(path)
            assert len(found) == (at == 2) and all("earlier save that did not end: rank-7.bsnap" in x for x in found), found


def what_is_not_removed():
    """A file of a save that did not end stays where it is another's, or where it cannot be told."""
    a = state()
    dcp.save(a, storage_writer=BitsnapWriter("elsewhere"))
    with killed(2, True):
        refused((Killed, CheckpointException), "", dcp.save, a, storage_writer=BitsnapWriter("stays"))
    os.rename("stays/rank-0.bsnap", "stays/rank-1.bsnap")
    shutil.copy("elsewhere/rank-0.bsnap", "stays/rank-2.bsnap")
    os.symlink("rank-1.bsnap", "stays/rank-3.bsnap")
    for name in ("rank-4.bsnap", "rank-x.bsnap", "notes"):
        with open("stays/" + name, "wb") as f:
            f.write(b"notes")
    before, os.geteuid = os.geteuid, lambda: -1
    with killed(2, True):
        refused((Killed, CheckpointException), "", dcp.save, a, storage_writer=BitsnapWriter("stays"))
    try:
        found = warned(dcp.save, a, storage_writer=BitsnapWriter("stays"))
    finally:
        os.geteuid = before
    assert "did not end: rank-1.bsnap, rank-2.bsnap, rank-3.bsnap, rank-4.bsnap;" in found[0], found
    assert [x.split()[0] for x in found[1:]] == [f"stays/rank-{i}.bsnap" for i in (1, 2, 3, 4)] and len(os.listdir("stays")) == 8, found
    os.unlink("stays/" + CHECKPOINT)
    found = warned(dcp.save, a, storage_writer=BitsnapWriter("stays"))
    assert [x.split()[0] for x in found[1:]] == [f"stays/rank-{i}.bsnap" for i in (2, 3, 4)] and len(os.listdir("stays")) == 7, found
    assert same(loaded("stays"), a)


def two_ranks(rank, ranks, o, result):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(o.store, ranks), rank=rank, world_size=ranks)

    def of(step):
        return {f"w{i}": torch.full((100,), float(step * 10 + i)) for i in range(ranks) if i == rank}

    def load(path):
        into = of(0)
        try:
            dcp.load(into, storage_reader=BitsnapReader(path))
        except CheckpointException as error:
            return str(error)
        return into[f"w{rank}"][0].item()

    for step in (1, 2):
        dcp.save(of(step), storage_writer=BitsnapWriter(f"two-{step}", base="two-1"))
    before = load("two-2")
    dist.barrier()
    if rank == 0:
        shutil.copy("two-1/rank-1.bsnap", "two-2/rank-1.bsnap")
    dist.barrier()
    after = load("two-2")
    with killed(2 if rank == 0 else 1, rank == 0):  # the coordinator before it commits, the other after its file
        refused(CheckpointException, "", dcp.save, of(3), storage_writer=BitsnapWriter("two-3", base="two-1"))
    assert before == 20 + rank and "two-2/rank-1.bsnap is of the save" in after and "two-2/rank-1.bsnap is a delta" not in after, (before, after)
    dist.barrier()
    if rank == 0:
        result.put(sorted(os.listdir("two-3")))


def ranks_of_two_saves():
    """One rank's file of another step is refused on all ranks. What a save of two ranks leaves is gone after one of one rank."""
    assert train.run(train.options(["."]), two_ranks) == ["rank-0.bsnap", "rank-1.bsnap"]
    found = warned(dcp.save, {"w": torch.ones(3)}, storage_writer=BitsnapWriter("two-3", base="two-1"))
    assert sorted(os.listdir("two-3")) == [CHECKPOINT, "rank-0.bsnap"] and len(found) == 1 and "did not end: rank-1.bsnap" in found[0], found


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
    for zeros in (torch.zeros(5 << 20), torch.zeros(1 << 20, dtype=torch.float64)):
        frame = bitsnap.compress(zeros)
        refused(ValueError, "of more elements", unpack(io.BytesIO(len(frame).to_bytes(4, "little") + frame)).read)
    refused(ValueError, "says that a frame has 4294967295 bytes", unpack(io.BytesIO(b"\xff" * 100)).read)


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
    from bitsnap import megatron as megatron_module
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
        if rank == 0:  # what another save left in the place of these results is refused
            results = megatron_module._results(writer, plan)
            os.rename(results, "kept-results")
            with open(results, "w") as f:
                json.dump(["other", []], f)
        refused(CheckpointException, "is of the save other, not of", request.finalize_fns[0])
        dist.barrier()
        if rank == 0:
            os.replace("kept-results", results)
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
    bias = "decoder.final_layernorm.bias"
    wrong = {"x": mapping.ShardedTensor.from_rank_offsets(bias, torch.zeros(65), replica_id=rank)}
    refused((Exception, CheckpointException), "Global shape mismatch", load, wrong, "megatron-2")
    other = {"x": mapping.ShardedTensor.from_rank_offsets(bias, torch.zeros(64, dtype=torch.int32), replica_id=rank)}
    assert f"{bias} is stored as torch.float32 and is converted to torch.int32" in " ".join(warned(load, other, "megatron-2"))
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
    every = [training, in_another_process, states, lazy_tensors, objects, deltas, lossy, parts, references, damage, conversions, saves_that_mix, killed_at_each_rename, what_is_not_removed,
             ranks_of_two_saves, stock_files, megatron, the_readme]
    sys.exit(run("dcp", [test for test in every if not sys.argv[3:] or test.__name__ in sys.argv[3:]]))
