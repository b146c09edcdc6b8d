"""Tests of the package bitsnap with folders, stores of snapshots, files of torch.save and bitsnap.auto: python_checkpoints.py TOOL. By check_python.sh."""
import argparse
import collections
import contextlib
import io
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import threading
import types
import warnings

import safetensors.numpy
import safetensors.torch
import torch

import bitsnap
import bitsnap.numpy
import bitsnap.pack
import bitsnap.torch
from bitsnap import _core
from bitsnap.__main__ import main
from python_checks import elsewhere, refused, run

tool = os.path.abspath(sys.argv[1])
elsewhere()
torch.manual_seed(1)
INDEX = "model.safetensors.index.json"


def shards(count=7, size=500):
    return {f"w{i}": torch.randn(size) for i in range(count)}


def same(a, b):
    return a.keys() == b.keys() and all(a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]) for name in a)


def use(*arguments):
    subprocess.run([tool, *arguments], check=True)


def plain(folder, tensors, names=("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")):
    """A folder as transformers saves a model in two files; returns what is in it."""
    os.mkdir(folder)
    where = {name: names[i % 2] for i, name in enumerate(tensors)}
    for file in names:
        safetensors.torch.save_file({name: t for name, t in tensors.items() if where[name] == file}, os.path.join(folder, file), {"format": "pt"})
    with open(os.path.join(folder, INDEX), "w") as f:
        json.dump({"metadata": {}, "weight_map": where}, f)
    with open(os.path.join(folder, "config.json"), "w") as f:
        f.write("{}")
    return tensors


def packed_folders():
    """Folders that the tool packs are read as the plain ones, with an index and without, and as deltas."""
    first = plain("one", shards())
    second = plain("two", {name: t + (torch.arange(500) % 50 == 0) for name, t in first.items()})
    use("compress", "-q", "-r", "one", "-o", "one.packed")
    use("compress", "-q", "-r", "two", "-b", "one", "-o", "two.delta")
    for path, base, state in (("one", None, first), ("one.packed", None, first), ("two.delta", "one", second), ("two.delta", "one.packed", second),
                              (b"one.packed", None, first)):
        assert same(bitsnap.torch.load_file(path, base=base), state), (path, base)
        bitsnap.test(os.fsdecode(path), base=base)
        with bitsnap.safe_open(path, base=base) as f:
            assert f.keys() == sorted(state) and set(f.offset_keys()) == set(state) and f.metadata() == {"format": "pt"}
            assert torch.equal(f.get_slice("w3")[5:9], state["w3"][5:9]) and same(f.get_tensors(["w6", "w1"]), {name: state[name] for name in ("w6", "w1")})
            refused(KeyError, "w9", f.get_tensor, "w9")
            refused(KeyError, "w9", f.get_tensors, ["w1", "w9"])
            f.verify()
    found = bitsnap.info("one.packed")
    assert found["tensors"]["w1"] == {"dtype": "F32", "shape": (500,)} and len(found["files"]) == 2 and found["data_size"] == 14000
    assert found["size"] == sum(os.path.getsize(os.path.join("one.packed", name)) for name in os.listdir("one.packed") if name.endswith(".bsnap"))
    refused(bitsnap.Error, "give its path as base=; it was called model-00001-of-00002.safetensors", bitsnap.torch.load_file, "two.delta")
    refused(bitsnap.Error, "header", bitsnap.torch.load_file, "two.delta", base=["one.packed", "one.packed/model-00002-of-00002.safetensors.bsnap"])
    os.unlink(f"one.packed/{INDEX}")
    assert same(bitsnap.torch.load_file("one.packed"), first)
    shutil.copy("one.packed/model-00001-of-00002.safetensors.bsnap", "one.packed/again.bsnap")
    refused(ValueError, "'w0' is in one.packed/again.bsnap and in one.packed/model-00001-of-00002.safetensors.bsnap", bitsnap.torch.load_file, "one.packed")
    files = bitsnap.File("one")
    assert bitsnap.files._OPEN >= 2 and files.read("w0", 3, 2) == first["w0"][3:5].numpy().tobytes()
    files.close()
    refused(ValueError, "one: this File is closed", files.read, "w0")


def sibling_folders():
    """Files that the tool has coded against others of their folder, read as folder, alone, from a store, and as the base of a step."""
    os.mkdir("both")
    weights = {f"model.w{i}": torch.randn(9000).bfloat16() for i in range(3)}
    noise = {name: 1 + torch.randint(-100, 100, (9000,)) / 2 ** 16 for name in weights}
    master = {"optim." + name[6:]: (t.float() * noise[name]) for name, t in weights.items()}
    safetensors.torch.save_file(weights, "both/weights.safetensors")
    safetensors.torch.save_file(master, "both/master.safetensors")
    use("compress", "-q", "-r", "both", "-o", "both.packed")
    alone = "both.packed/master.safetensors.bsnap"
    assert bitsnap.info("both.packed")["files"][alone]["bases"] == ["weights.safetensors"]
    assert os.path.getsize(alone) < 60000
    assert same(bitsnap.torch.load_file("both.packed"), {**weights, **master}) and same(bitsnap.torch.load_file(alone), master)
    with bitsnap.safe_open(alone) as f:
        assert torch.equal(f.get_slice("optim.w2")[100:200], master["optim.w2"][100:200])
        f.verify()
    use("snapshot", "-q", "both.store", "both")
    assert same(bitsnap.torch.load_file("both.store", step="latest"), {**weights, **master})
    shutil.copytree("both", "next")
    later = {name: t + (torch.arange(9000) % 100 == 0) for name, t in master.items()}
    safetensors.torch.save_file(later, "next/master.safetensors")
    use("compress", "-q", "-r", "next", "-b", "both.packed", "-o", "next.delta")
    assert same(bitsnap.torch.load_file("next.delta", base="both.packed"), {**weights, **later})
    shutil.copy("both/weights.safetensors", "both.packed")
    os.unlink("both.packed/weights.safetensors.bsnap")
    assert same(bitsnap.torch.load_file(alone), master)
    os.unlink("both.packed/weights.safetensors")
    refused(bitsnap.Error, "it was called weights.safetensors", bitsnap.torch.load_file, alone)
    safetensors.torch.save_file({name: -t for name, t in weights.items()}, "both.packed/weights.safetensors")
    refused(bitsnap.Error, "base", bitsnap.torch.load_file, alone)


def saved_folders():
    """save_folder: what it writes the tool reads, deltas of deltas are found beside, whatever the shards are; nothing is half written."""
    state, total = shards(), 7 * 2000
    size = bitsnap.torch.save_folder(state, "step-1", {"format": "pt"}, max_shard_size="4KB")
    names = sorted(os.listdir("step-1"))
    assert len(names) == 5 and names[0] == "model-00001-of-00004.safetensors.bsnap" and names[-1] == INDEX
    assert size == sum(os.path.getsize(f"step-1/{name}") for name in names[:-1])
    index = json.load(open(f"step-1/{INDEX}"))
    assert index["metadata"] == {"total_size": total} and index["weight_map"]["w6"] == "model-00004-of-00004.safetensors"
    use("test", "-q", "-r", "step-1")
    states = [state]
    for step, most in ((2, 6000), (3, "5GB")):
        states.append({name: t + (torch.arange(500) % 100 == step) for name, t in states[-1].items()})
        size = bitsnap.torch.save_folder(states[-1], f"step-{step}", base=f"step-{step - 1}", max_shard_size=most)
        assert size < total / 4, size
    assert sorted(os.listdir("step-3")) == ["model.safetensors.bsnap"]
    for step, state in enumerate(states, 1):
        assert same(bitsnap.torch.load_file(f"step-{step}"), state)
    use("test", "-q", "-r", "step-2", "-b", "step-1")
    assert same(bitsnap.torch.load_file("step-3", base=["step-1", "step-2"]), states[2])
    bitsnap.torch.save_file(states[1], "alone.bsnap", base="step-1")  # a file against a folder beside it
    assert same(bitsnap.torch.load_file("alone.bsnap"), states[1])
    arrays = bitsnap.numpy.load_file("step-1")
    bitsnap.numpy.save_folder(arrays, "arrays", base="step-1", max_shard_size=1)
    assert len(os.listdir("arrays")) == 8 and same(bitsnap.torch.load_file("arrays"), states[0])
    refused(FileExistsError, "the folder has tensors already, as model.safetensors.bsnap", bitsnap.torch.save_folder, state, "step-3")
    refused(ValueError, "'five' is no size", bitsnap.torch.save_folder, state, "no", max_shard_size="five")
    refused(TypeError, "tensor 'bad'", bitsnap.torch.save_folder, {**state, "bad": torch.eye(2).to_sparse()}, "no")
    os.mkdir("kept")
    open("kept/config.json", "w").close()
    for folder in ("kept", "no"):
        refused(ValueError, "__metadata__", bitsnap.torch.save_folder, {**state, "__metadata__": state["w0"]}, folder, max_shard_size=4000)
    assert os.listdir("kept") == ["config.json"] and not os.path.exists("no")
    bitsnap.torch.save_folder(state, "kept")
    os.rename("step-1", "elsewhere")
    refused(bitsnap.Error, "it was called model-00001-of-00004.safetensors of step-1", bitsnap.torch.load_file, "step-2")
    assert same(bitsnap.torch.load_file("step-2", base="elsewhere"), states[1])


def snapshot_stores():
    """Each step of a store that the tool made; a manifest that is damaged, or leads elsewhere, is refused."""
    states, state = {}, shards(4)
    for step in (10, 20, 30):
        state = {name: t + (torch.arange(500) % 50 == step) for name, t in state.items()}
        states[step] = plain(f"run-{step}", state)
        use("snapshot", "-q", "run.store", f"run-{step}", "--step", str(step))
    for step, state in states.items():
        assert same(bitsnap.torch.load_file("run.store", step=step), state)
        bitsnap.test("run.store", step=step)
    with bitsnap.safe_open("run.store", step="latest") as f:
        assert torch.equal(f.get_slice("w1")[7:9], states[30]["w1"][7:9])
    assert len(bitsnap.info("run.store", step=20)["files"]) == 2
    refused(ValueError, 'say which, as step="latest"; the last steps are 10, 20, 30', bitsnap.safe_open, "run.store")
    refused(ValueError, "has no step 40", bitsnap.safe_open, "run.store", step=40)
    refused(ValueError, "base= is of no use", bitsnap.safe_open, "run.store", step=10, base="run-10")
    refused(ValueError, "step= is of no use", bitsnap.safe_open, "run-10", step=10)
    whole = open("run.store/manifest.json", "rb").read()
    link = "/etc/passwd", "../x", "objects/../../x", "0" * 15 + "/"

    def manifest(text):
        with open("run.store/manifest.json", "wb") as f:
            f.write(text)

    for n in range(0, len(whole), 37):
        manifest(whole[:n] + bytes([whole[n] ^ 1]) + whole[n + 1:])
        refused(ValueError, "run.store", bitsnap.torch.load_file, "run.store", step=30)
    values = json.loads(whole)
    del values["check"]
    for place in ("id", "base"):
        for name in link:
            changed = json.loads(json.dumps(values))
            for x in changed["objects"]:
                x[place] = name
            for entry in changed["steps"][-1]["entries"] if place == "id" else ():
                entry["id"] = name
            manifest(json.dumps(changed).encode())
            refused(ValueError, "run.store", bitsnap.torch.load_file, "run.store", step=30)
    for bad in (b"[]", b"{}", b'{"bitsnap_store":2}', b'{"bitsnap_store":1,"objects":3,"steps":[]}', b"[" * 100000):
        manifest(bad)
        refused(ValueError, "manifest.json", bitsnap.safe_open, "run.store", step=30)
    manifest(whole)
    index, = (name for name in os.listdir("run.store/objects") if "weight_map" in open(f"run.store/objects/{name}", errors="replace").read())
    with open(f"run.store/objects/{index}", "a") as f:
        f.write(" ")
    refused(ValueError, "is damaged: it is not what the manifest says", bitsnap.safe_open, "run.store", step=30)


def foreign_folders():
    """An index may say anything: no name leads outside, and a missing file is named."""
    plain("folder", shards(3))
    for text, words in (("[", "is no index of a model"), ("{}", 'has no "weight_map"'), ('{"weight_map":{"a":3}}', 'has no "weight_map"'),
                        ('{"weight_map":{"a":"../one"}}', "'../one' leads out of the folder"), ('{"weight_map":{"a":"/etc/passwd"}}', "leads out of the folder"),
                        ('{"weight_map":{"a":"b\\\\..\\\\..\\\\c"}}', "leads out"), ('{"weight_map":{}}', "without .bsnap or .safetensors files"),
                        ('{"weight_map":{"w0":"model-00002-of-00002.safetensors"}}', "has no tensor 'w0', which the index says it has")):
        with open(f"folder/{INDEX}", "w") as f:
            f.write(text)
        refused(ValueError, words, bitsnap.torch.load_file, "folder")
    with open(f"folder/{INDEX}", "w") as f:
        f.write('{"weight_map":{"a":"absent.safetensors"}}')
    refused(FileNotFoundError, "absent.safetensors.bsnap is there", bitsnap.safe_open, "folder")
    os.mkdir("empty")
    refused(ValueError, "empty is a folder without .bsnap", bitsnap.safe_open, "empty")
    open("empty/checkpoint.bsnap", "w").close()
    refused(ValueError, "bitsnap.dcp.BitsnapReader reads it", bitsnap.safe_open, "empty")
    base = _core.File(bitsnap.numpy.save(bitsnap.numpy.load_file("folder/model-00001-of-00002.safetensors")), name="a of ..")
    os.mkdir("folder/below")
    shutil.copy("folder/model-00001-of-00002.safetensors", "a")
    bitsnap.torch.save_file(bitsnap.torch.load_file("folder/model-00001-of-00002.safetensors"), "folder/below/delta.bsnap", base=base)
    refused(bitsnap.Error, "it was called a of ..", bitsnap.safe_open, "folder/below/delta.bsnap")


def many_files_and_threads():
    """More files than stay open, read by threads at once; few descriptors."""
    state = shards(40, 50)
    bitsnap.torch.save_folder(state, "many", max_shard_size=1)
    before, wrong = len(os.listdir("/proc/self/fd")), []
    with bitsnap.safe_open("many") as f:
        def read():
            try:
                assert same(f.get_tensors(), state)
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong
        assert len(os.listdir("/proc/self/fd")) <= before + bitsnap.files._OPEN
    assert len(os.listdir("/proc/self/fd")) == before
    for opened in (bitsnap.File("many"), bitsnap.safe_open("many")):
        refused(TypeError, "cannot be pickled: pass its path, and open that in the other process", pickle.dumps, opened)


def states():
    """Everything that a model and an optimizer save, as it was, tied tensors too; by a path, a file object, and mapped."""
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 10), torch.nn.BatchNorm1d(10))
    model[1].weight = model[0].weight
    state = {"model": model.state_dict(), "whole": model[0].weight, "size": torch.Size([1, 2]), "dtype": torch.bfloat16, "device": torch.device("cuda:1"),
             "grad": torch.ones(3, requires_grad=True), "numbers": [1, 10**40, 2.5, float("inf"), 3j, True, None, "x", (1,), ()], "empty": torch.zeros(0)}
    bitsnap.torch.save(state, "state.bsnap")
    data = io.BytesIO()
    assert bitsnap.torch.save(state, data) == len(data.getvalue()) and data.getvalue() == open("state.bsnap", "rb").read()
    with bitsnap.safe_open("state.bsnap") as f:
        assert "model.1.weight" not in f.keys() and "whole" not in f.keys()  # they are model.0.weight
    for load in (lambda: bitsnap.torch.load("state.bsnap"), lambda: bitsnap.torch.load(io.BytesIO(data.getvalue()), "cpu"),
                 lambda: bitsnap.torch.load("state.bsnap", mmap=True, map_location={"cpu": "cpu"})):
        again = load()
        assert type(again["model"]) is collections.OrderedDict and again["model"]._metadata == state["model"]._metadata
        assert same(again["model"], state["model"]) and type(again["model"]._metadata) is type(state["model"]._metadata)
        assert again["model"]["0.weight"].data_ptr() == again["model"]["1.weight"].data_ptr() == again["whole"].data_ptr()
        assert type(again["whole"]) is torch.nn.Parameter and again["whole"].requires_grad and again["grad"].requires_grad and again["grad"].is_leaf
        assert all(again[key] == state[key] and type(again[key]) is type(state[key]) for key in ("size", "dtype", "device", "numbers"))
        assert [type(x) for x in again["numbers"]] == [type(x) for x in state["numbers"]] and again["empty"].shape == (0,)
        again["model"]["0.weight"] += 1  # it is memory of its own
    model.load_state_dict(bitsnap.torch.load("state.bsnap")["model"])
    assert bitsnap.torch.load("state.bsnap", "meta")["grad"].is_meta
    refused(TypeError, "map_location is a function", bitsnap.torch.load, "state.bsnap", lambda storage, location: storage)
    refused(bitsnap.Error, "the file object: ", bitsnap.torch.load, io.BytesIO(data.getvalue()[:-5] + b"12345"))
    for structure in ('{"y":"nn"}', '{"y":3}', '{"v":"nowhere"}', '{"p":["a",1]}', '{"s":[1]}', '{"z":["a"]}', '{"yv":"a"}', '{"p":["b",0,1]}'):
        bitsnap.torch.save_file({"a": torch.ones(1)}, "bad.bsnap", {bitsnap.torch.STRUCTURE: structure})
        refused(ValueError, "bad.bsnap: what the state is made of is damaged", bitsnap.torch.load, "bad.bsnap")


class Own:
    def __reduce__(self):
        return open, ("executed", "w")


DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3, "shared", "data")


def trained():
    """BF16 weights, and F32 masters that round to them: those of a training, where there are any, else of numbers like them."""
    if os.path.isdir(DATA):
        return [safetensors.torch.load_file(os.path.join(DATA, name)) for name in ("bf16-1000.safetensors", "master-1000.safetensors")]
    masters = {f"h.{i}.weight": torch.randn(300, 256) * 0.02 for i in range(8)}
    return [{name: t.bfloat16() for name, t in masters.items()}, masters]


def read_calls(function):
    """How often a function calls the system to read, and the bytes of that."""
    def counts():
        with open("/proc/self/io") as f:
            return [int(line.split()[1]) for line in f if line.startswith(("rchar", "syscr"))]

    before, again = counts(), counts()
    function()
    after = counts()
    return [c - b - (b - a) for a, b, c in zip(before, again, after)]  # without those of counts()


def references():
    """What is equal to an earlier tensor, or rounds to it, or is its rounding, takes next to nothing; every way to read gives it back."""
    weights, masters = trained()
    pair = {**{"model." + name: t for name, t in weights.items()}, **{"optim.master." + name: t for name, t in masters.items()}}
    alone = bitsnap.torch.save_file(masters, "masters.bsnap")
    sizes = {references: bitsnap.torch.save_file(pair, f"pair-{references}.bsnap", references=references) for references in (True, False)}
    assert sizes[True] < 1.005 * alone + 1000 and sizes[False] > 1.3 * alone, (sizes, alone)
    safetensors.torch.save_file(weights, "weights.safetensors")
    role_3 = bitsnap.torch.save_file(masters, "delta.bsnap", base="weights.safetensors") + bitsnap.torch.save_file(weights, "weights.bsnap")
    assert sizes[True] < 1.002 * role_3 + 1000, (sizes, role_3)
    with open("pair-True.bsnap", "rb") as f:
        data = f.read()
    assert same(bitsnap.torch.load_file("pair-True.bsnap", threads=2), pair) and same(bitsnap.torch.load(io.BytesIO(data)), pair)
    assert same(bitsnap.torch.load("pair-True.bsnap", mmap=True), pair) and same(bitsnap.torch.load("pair-True.bsnap", {"cpu": "cpu"}), pair)
    bitsnap.test("pair-True.bsnap")
    use("test", "-q", "pair-True.bsnap")
    use("decompress", "-q", "-o", "pair.safetensors", "pair-True.bsnap")
    assert same(safetensors.torch.load_file("pair.safetensors"), pair)
    frames = _core.File(data).frames()
    assert any("base_id" in frame for frame in frames) and not any("base_id" in frame for frame in _core.File(open("pair-False.bsnap", "rb").read()).frames())
    for name in sorted(pair, key=lambda name: pair[name].numel())[-6:]:  # one tensor, and one row of it: twice the reads and bytes at most
        for whole in (True, False):
            def read(references):
                with bitsnap.safe_open(f"pair-{references}.bsnap", "pt") as f:
                    found.append(f.get_tensor(name) if whole else f.get_slice(name)[:1])

            found = []
            some, others = read_calls(lambda: read(True)), read_calls(lambda: read(False))
            assert torch.equal(found[0], found[1]) and torch.equal(found[0], pair[name] if whole else pair[name][:1]), name
            assert all(a <= 2 * b for a, b in zip(some, others)), (name, some, others)
    some = {name: t for name, t in pair.items() if t.numel() >= 1 << 16}  # the tool joins small tensors
    safetensors.torch.save_file(some, "some.safetensors")
    for level in ("fast", "default"):
        bitsnap.pack.pack_file("some.safetensors", "some.bsnap", level=level)
        use("compress", "-q", "-f", "-l", level, "-o", "tool.bsnap", "some.safetensors")
        with open("some.bsnap", "rb") as a, open("tool.bsnap", "rb") as b:
            assert a.read() == b.read(), level
    # tied heads that are no longer the same memory, in states, in other packages and in packed files
    head = max(weights, key=lambda name: weights[name].numel())
    tied = {**weights, "lm_head.weight": weights[head].clone()}
    once = bitsnap.torch.save_file(weights, "once.bsnap")
    for save, load in ((bitsnap.torch.save_file, bitsnap.torch.load_file), (bitsnap.torch.save, bitsnap.torch.load),
                       (bitsnap.torch.save_folder, bitsnap.torch.load_file)):
        path = f"tied.{save.__name__}"
        size = save(tied, path)
        assert size < 1.01 * once + 3000 and same(load(path), tied), (save, size, once)
        assert save(tied, path + ".not", references=False) > 1.05 * once and same(load(path + ".not"), tied)
    torch.save({"model": tied, "step": 3}, "tied.pt")
    safetensors.torch.save_file(tied, "tied.safetensors")
    for path in ("tied.pt", "tied.safetensors"):
        assert bitsnap.pack.pack_file(path) < 1.01 * once + 3000 and bitsnap.pack.pack_file(path, "without.bsnap", references=False) > 1.05 * once
        assert same(bitsnap.torch.load(path + ".bsnap")["model"] if path == "tied.pt" else bitsnap.torch.load_file(path + ".bsnap"), tied)
    assert main(["pack", "-q", "-f", "--no-references", "tied.pt"]) == 0 and os.path.getsize("tied.pt.bsnap") > 1.05 * once
    arrays = {name: t.numpy() for name, t in masters.items()}
    arrays["again"] = arrays[head].copy()
    assert bitsnap.numpy.save_file(arrays, "arrays.bsnap") < 1.01 * alone + 1000 < len(bitsnap.numpy.save(arrays, references=False))
    assert all((a == arrays[name]).all() for name, a in bitsnap.numpy.load_file("arrays.bsnap").items())
    # in a delta what is equal refers, and masters that have not changed do not
    assert bitsnap.torch.save_file(pair, "later.bsnap", base="pair-True.bsnap") < 5000 and same(bitsnap.torch.load_file("later.bsnap"), pair)
    later = {**pair, "model.xlm_head": pair["model." + head].clone()}
    assert bitsnap.torch.save_file(later, "later.bsnap", base="pair-True.bsnap") < 5000 and same(bitsnap.torch.load_file("later.bsnap"), later)
    assert bitsnap.torch.save_file(later, "later.not", base="pair-True.bsnap", references=False) > 10000
    # damage names what is asked for and what is damaged
    at = next(frame["at"] for frame in frames if frame["begin"] == 0) + 1000
    with open("damaged.bsnap", "wb") as f:
        f.write(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
    first = min(pair, key=lambda name: (name.startswith("optim"), name))
    name = "optim.master." + first.removeprefix("model.")
    with bitsnap.safe_open("damaged.bsnap", "pt") as f:
        refused(bitsnap.Error, f"tensor '{first}': damaged", f.get_tensor, first)
        refused(bitsnap.Error, f"tensor '{name}', which refers to '{first}': damaged", f.get_tensor, name)
    # memory that is asked for its parts: what fails there is raised, and leaves no file
    broken = [("a.x", "F32", "[5000]", 20000), ("b.x", "F32", "[5000]", 20000)]
    refused(ZeroDivisionError, "", _core.Writer, -1, broken, part=lambda number, begin, size: 1 // 0)
    refused(ValueError, "a part of a tensor has 3 bytes, not", _core.Writer, -1, broken, part=lambda number, begin, size: b"abc")
    refused(TypeError, "not None", _core.Writer, -1, broken, part=lambda number, begin, size: None)
    calls = []

    def part(number, begin, size):
        calls.append(size)
        if len(calls) > limit:
            raise KeyboardInterrupt
        return bytes((begin + i) % 251 for i in range(size))

    limit = 10**9
    writer = _core.Writer(-1, broken, part=part)
    writer.write(part(0, 0, 20000))
    limit = len(calls)
    refused(KeyboardInterrupt, "", writer.write, bytes(i % 251 for i in range(20000)))


def command(*arguments, text=None):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        status = main(list(arguments))
    assert status == (text is not None) and (text or "") in said.getvalue(), (arguments, status, said.getvalue())


def files_of_torch_save():
    """pack and unpack: what comes back is what torch.load gives; nothing is run, and what cannot be kept is named with its place."""
    model = torch.nn.Sequential(torch.nn.Embedding(50, 32), torch.nn.Linear(32, 50))
    model[1].weight = model[0].weight
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.arange(5)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state(), "epoch": 3, "name": "x"}
    torch.save(state, "a.pt")
    state = torch.load("a.pt", weights_only=True)  # as steps change what is in the model
    torch.save(state, "old.ckpt", _use_new_zipfile_serialization=False)
    optimizer.step()
    torch.save({**state, "optimizer": optimizer.state_dict()}, "b.pt")
    subprocess.run([sys.executable, "-m", "bitsnap", "pack", "-q", "a.pt", "old.ckpt"], check=True)
    assert os.path.getsize("a.pt.bsnap") == os.path.getsize("old.ckpt.bsnap") < 0.95 * os.path.getsize("a.pt")
    bitsnap.test("a.pt.bsnap")
    command("unpack", "a.pt.bsnap", text="a.pt is there already: -f replaces it, -o gives another name")
    command("unpack", "-q", "a.pt.bsnap", "-o", "again.pt")
    command("pack", "-q", "again.pt")
    assert open("again.pt.bsnap", "rb").read() == open("a.pt.bsnap", "rb").read()
    again = torch.load("again.pt", weights_only=True)
    assert same(again["model"], state["model"]) and again["model"]["0.weight"].data_ptr() == again["model"]["1.weight"].data_ptr()
    assert again["epoch"] == 3 and again["name"] == "x" and torch.equal(again["rng"], state["rng"])
    optimizer.load_state_dict(again["optimizer"])
    command("pack", "-q", "b.pt", "-b", "a.pt.bsnap", "-o", "b.bsnap")
    command("unpack", "-qf", "b.bsnap", "-o", "again.pt")
    assert torch.load("again.pt", weights_only=True)["optimizer"]["state"][0]["step"] == 2 and os.path.getsize("b.bsnap") < os.path.getsize("a.pt.bsnap")
    torch.save({"a": {"b": [1, Own()]}, "args": argparse.Namespace(x=1), "t": torch.ones(3)}, "code.pt")
    command("pack", "code.pt", text="code.pt cannot be read without running code: a.b.1 is made by io.open, args is made by argparse.Namespace.")
    torch.save({"args": argparse.Namespace(x=1)}, "code.pt", _use_new_zipfile_serialization=False)
    command("pack", "code.pt", text="code.pt cannot be read without running code: it holds argparse.Namespace")
    torch.save({"a": [1, {"b": {3}}], "t": torch.ones(3)}, "set.pt")
    command("pack", "set.pt", text="set.pt: a.1.b is a set: states have tensors")
    torch.save({"a": [torch.eye(3).to_sparse()]}, "sparse.pt")
    command("pack", "sparse.pt", text="tensor 'a.0': a tensor of layout torch.sparse_coo")
    safetensors.torch.save_file({"a": torch.ones(3)}, "a.safetensors")
    shutil.copy("a.safetensors", "b.pt")
    command("pack", "-f", "b.pt", text="b.pt is a .safetensors file: give it that ending")
    command("pack", "-f", "a.pt", "-o", "a.pt", text="a.pt is the file that is read")
    command("unpack", "-o", "x", "absent.bsnap", text="No such file or directory")
    with open("text.pt", "w") as f:
        f.write("nothing of the kind")
    command("pack", "text.pt", text="text.pt is no file of torch.save, or it is damaged")
    whole = open("a.pt", "rb").read()
    with open("cut.pt", "wb") as f:
        f.write(whole[:len(whole) // 2])
    command("pack", "cut.pt", text="cut.pt is no file of torch.save, or it is damaged")
    assert not {"executed", "set.pt.bsnap", "code.pt.bsnap", "x"} & set(os.listdir()) and not [name for name in os.listdir() if name.startswith(".bitsnap-")]


def checkpoint(folder):
    """A folder as a Trainer writes it; returns the bytes of its files."""
    plain(folder, shards())
    model = torch.nn.Linear(30, 30)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(30)).sum().backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), os.path.join(folder, "optimizer.pt"))
    torch.save(argparse.Namespace(x=1), os.path.join(folder, "training_args.bin"))
    return {name: open(os.path.join(folder, name), "rb").read() for name in os.listdir(folder)}


def whole(folder, files):
    """Each file of the folder is there, plain or packed or both; returns those that are plain."""
    there = {name for name in os.listdir(folder) if not name.startswith(".bitsnap-")}
    assert {name.removesuffix(".bsnap") for name in there} == files.keys(), there
    for name in there:
        path = os.path.join(folder, name)
        if not name.endswith(".bsnap"):
            assert open(path, "rb").read() == files[name], name
        elif name == "optimizer.pt.bsnap":
            with open("expected.pt", "wb") as f:
                f.write(files["optimizer.pt"])
            again, expected = bitsnap.torch.load(path), torch.load("expected.pt", weights_only=True)
            assert again["param_groups"] == expected["param_groups"] and all(same(again["state"][i], expected["state"][i]) for i in (0, 1))
        else:
            use("decompress", "-qf", path, "-o", "again.safetensors")
            assert open("again.safetensors", "rb").read() == files[name.removesuffix(".bsnap")], name
    return there & files.keys()


def packed_checkpoints():
    """pack_folder: what it packs, and what it leaves and why; a process that is killed, or Ctrl-C, at any time leaves whole files."""
    files, packs = checkpoint("run"), 3
    os.symlink("optimizer.pt", "run/link.pt")
    os.utime("run", (1, 2))
    found = bitsnap.pack.pack_folder("run")
    assert os.path.getmtime("run") == 2
    assert {name for name, size in found.items() if isinstance(size, int)} == {"optimizer.pt", *(f"model-0000{i}-of-00002.safetensors" for i in (1, 2))}
    assert found["link.pt"] == "it is a link" and "the state itself is made by argparse.Namespace" in found["training_args.bin"]
    os.unlink("run/link.pt")
    assert len(whole("run", files)) == len(files)
    safetensors.torch.save_file({"a": torch.randint(256, (99,), dtype=torch.uint8)}, "run/3.safetensors")
    assert bitsnap.pack.pack_folder("run", remove=True)["3.safetensors"] == "it would not become smaller" and os.path.exists("run/3.safetensors")
    os.unlink("run/3.safetensors")
    assert len(whole("run", files)) == len(files) - packs

    calls = "fsync", "replace", "unlink"

    def after(folder, number, end):
        """Packs it and calls end() before call number `number` of the system; returns whether it makes as many calls."""
        count, originals = number, {call: getattr(os, call) for call in calls}

        def counted(call, *arguments):
            nonlocal count
            count -= 1
            if count == 0:
                end()
            return originals[call](*arguments)

        for call in calls:
            setattr(os, call, lambda *arguments, call=call: counted(call, *arguments))
        try:
            bitsnap.pack.pack_folder(folder, remove=True)
        except KeyboardInterrupt:
            pass
        finally:
            for call in calls:
                setattr(os, call, originals[call])
        return count <= 0

    def interrupt():
        raise KeyboardInterrupt

    files, kills, plains = checkpoint("killed"), 0, set()
    while True:
        pid = os.fork()
        if not pid:
            shutil.rmtree("copy", ignore_errors=True)
            shutil.copytree("killed", "copy")
            os._exit(not after("copy", kills + 1, lambda: os.kill(os.getpid(), 9)))
        _, status = os.waitpid(pid, 0)
        plains.add(len(whole("copy", files)))
        if status != 9:
            break
        kills += 1
        bitsnap.pack.pack_folder("copy", remove=True)
        assert len(whole("copy", files)) == len(files) - packs
    assert status == 256 and kills >= 3 * packs and plains == set(range(len(files) - packs, len(files) + 1)), (status, kills, plains)
    for number in range(1, kills + 1):
        shutil.rmtree("copy")
        shutil.copytree("killed", "copy")
        assert after("copy", number, interrupt)
        whole("copy", files)
        assert not [name for name in os.listdir("copy") if name.startswith(".bitsnap-")]
    refused(ValueError, "changed while it was packed: pack it again", bitsnap.pack.pack_file, "killed/optimizer.pt", remove=True,
            progress=lambda done, total: os.utime("killed/optimizer.pt"))
    assert os.path.exists("killed/optimizer.pt") and not os.path.exists("killed/optimizer.pt.bsnap")
    refused(FileNotFoundError, "absent", bitsnap.pack.pack_folder, "absent")
    refused(ValueError, "is the file that is read", bitsnap.pack.pack_file, "killed/optimizer.pt", "killed/optimizer.pt")
    command("pack", "-q", "--remove", "killed")
    assert len(whole("killed", files)) == len(files) - packs
    command("pack", "killed", "-o", "x", text="killed is a folder: pack alone takes folders")
    command("unpack", "-q", *(f"killed/{name}.bsnap" for name in files if name.endswith((".safetensors", "optimizer.pt"))))
    assert {name for name in files if name.endswith(".safetensors")} <= whole("killed", {**files, "optimizer.pt": open("killed/optimizer.pt", "rb").read()})


def transparent_loading():
    """bitsnap.auto: packed files are found where plain ones are asked for, by names that were imported before and after; undo ends that."""
    before = safetensors.safe_open, torch.load, os.path.exists, os.path.isfile, pathlib.Path.exists, pathlib.Path.is_file
    state, path = plain("auto", shards()), os.path.join("auto", "model-00001-of-00002.safetensors")
    torch.save({"a": state["w0"]}, "auto/optimizer.pt")
    first = safetensors.torch.load_file(path)
    bitsnap.pack.pack_folder("auto", remove=True)
    early = types.ModuleType("early")
    exec("from safetensors import safe_open\nfrom os.path import isfile", early.__dict__)
    sys.modules["early"] = early
    refused(FileNotFoundError, "model-00001", early.safe_open, path, "pt")
    from bitsnap import auto
    try:
        assert os.path.exists(path) and early.isfile(path) and pathlib.Path(path).exists() and pathlib.Path(path).is_file() and os.path.isfile(os.fsencode(path))
        assert not os.path.exists("auto/absent.pt") and not os.path.isfile("auto") and os.path.exists(0) and not os.path.exists("auto/config")
        assert same(safetensors.torch.load_file(path), first) and same(safetensors.torch.load_file(pathlib.Path(path), device="cpu"), first)
        assert (safetensors.numpy.load_file(path)["w0"] == first["w0"].numpy()).all()
        with early.safe_open(path, framework="pt", device="cpu") as f:
            assert torch.equal(f.get_slice("w0")[3:9], first["w0"][3:9]) and f.metadata() == {"format": "pt"} and torch.equal(f.get_slice("w0")[...], first["w0"])
        assert torch.equal(torch.load("auto/optimizer.pt", map_location="cpu", weights_only=True)["a"], state["w0"])
        assert torch.equal(torch.load(f="auto/optimizer.pt", weights_only=True)["a"], state["w0"])
        with safetensors.safe_open(filename=path, framework="pt") as f:
            assert sorted(f.keys())
        refused(FileNotFoundError, "absent.pt", torch.load, "auto/absent.pt")
        assert same(bitsnap.torch.load_file("auto"), state)
        linear = torch.nn.Linear(2, 2)
        safetensors.torch.save_model(linear, "auto/linear.safetensors")
        bitsnap.pack.pack_file("auto/linear.safetensors", remove=True)
        refused(FileExistsError, "has tensors already", bitsnap.torch.save_folder, state, "auto")
        assert not safetensors.torch.load_model(torch.nn.Linear(2, 2), "auto/linear.safetensors")[0]
        bitsnap.torch.save_file(state, path, base=path + ".bsnap")  # whose name auto finds before it is there
        os.unlink(path)
        safetensors.torch.save_file({"w0": state["w1"]}, path)  # a plain file goes first
        assert torch.equal(safetensors.torch.load_file(path)["w0"], state["w1"])
        with early.safe_open(path, "pt") as f:
            assert type(f) is before[0]
        os.unlink(path)
        auto.enable()
    finally:
        auto.undo()
    assert before == (safetensors.safe_open, torch.load, os.path.exists, os.path.isfile, pathlib.Path.exists, pathlib.Path.is_file)
    assert early.safe_open is before[0] and not os.path.exists(path)
    refused(FileNotFoundError, "model-00001", safetensors.torch.load_file, path)
    with open("program.py", "w") as f:
        f.write("import sys, safetensors.numpy\nfrom shutil import which\nif __name__ == '__main__': print(sys.argv, len(safetensors.numpy.load_file(sys.argv[1])))")
    said = subprocess.run([sys.executable, "-m", "bitsnap", "run", "program.py", path, "-x"], check=True, capture_output=True, text=True).stdout
    assert said == f"['program.py', '{path}', '-x'] {len(first)}\n", said


def progress():
    """It is told of steps that add up to the bytes of the tensors, by a function or tqdm; what it raises ends the call, and nothing is half."""
    state, heard = {"a": torch.ones(10 << 20), **shards()}, []
    total = sum(tensor.nbytes for tensor in state.values())
    bitsnap.torch.save_file(state, "quiet.bsnap")

    def hear(done, of):
        assert of == total and done > (heard[-1] if heard else 0)
        heard.append(done)

    for steps, function, arguments in ((10, bitsnap.torch.save_file, (state, "told.bsnap")), (10, bitsnap.torch.save_folder, (state, "told")),
                                       (8, bitsnap.torch.load_file, ("told.bsnap",)), (8, bitsnap.torch.load_file, ("told",)),
                                       (10, bitsnap.torch.save, ({"x": state}, "state.bsnap")), (8, bitsnap.torch.load, ("state.bsnap",)),
                                       (8, bitsnap.numpy.load_file, ("told",))):
        heard.clear()
        made = function(*arguments, progress=hear)
        assert heard[-1] == total and len(heard) == steps, (function, heard)
    assert len(made) == 8 and open("told.bsnap", "rb").read() == open("quiet.bsnap", "rb").read()
    os.mkdir("packs")
    safetensors.torch.save_file(state, "packs/a.safetensors")
    torch.save(state, "packs/b.pt")
    for function, path in ((bitsnap.pack.pack_file, "packs/a.safetensors"), (bitsnap.pack.pack_file, "packs/b.pt"), (bitsnap.pack.pack_folder, "packs")):
        heard.clear()
        total = total if function is bitsnap.pack.pack_file else sum(os.path.getsize(f"packs/{name}") for name in ("a.safetensors", "b.pt"))
        function(path, progress=hear)
        assert heard[-1] == total

    def stop(done, of):
        raise EOFError

    before = sorted(os.listdir()), sorted(os.listdir("packs"))
    for function, arguments in ((bitsnap.torch.save_file, (state, "not")), (bitsnap.torch.save_folder, (state, "not")), (bitsnap.torch.load_file, ("told",)),
                                (bitsnap.pack.pack_file, ("packs/a.safetensors", "not")), (bitsnap.torch.load, ("state.bsnap",))):
        refused(EOFError, "", function, *arguments, progress=stop)
    assert before == (sorted(os.listdir()), sorted(os.listdir("packs")))
    bars = []

    class Bar:
        def __init__(self, **named):
            self.named, self.done = named, 0
            bars.append(self)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def update(self, size):
            self.done += size

    there = sys.modules.get("tqdm")
    try:
        sys.modules["tqdm"] = types.SimpleNamespace(tqdm=Bar)
        bitsnap.torch.load_file("told", progress=True)
        assert bars[0].done == bars[0].named["total"] == sum(tensor.nbytes for tensor in state.values()) and bars[0].named["desc"] == "told"
        sys.modules["tqdm"] = None  # it is not installed
        refused(ImportError, "progress=True needs the package tqdm", bitsnap.torch.save_file, state, "not", progress=True)
    finally:
        sys.modules.pop("tqdm")
        if there:
            sys.modules["tqdm"] = there


class Rows(torch.utils.data.Dataset):
    def __init__(self, file):
        self.file = file

    def __len__(self):
        return 50

    def __getitem__(self, i):
        return self.file.get_slice("w1")[10 * i:10 * i + 10]


def data_loaders():
    """Worker processes read a file that was opened before they were forked. Spawned ones open it themselves: an open file is not sent to them."""
    state = shards()
    bitsnap.torch.save_file(state, "rows.bsnap")
    with bitsnap.safe_open("rows.bsnap", threads=2) as f:
        assert torch.equal(f.get_tensor("w1"), state["w1"])  # its threads are there
        loader = torch.utils.data.DataLoader(Rows(f), batch_size=5, num_workers=2)
        for _ in range(2):
            assert torch.equal(torch.cat([batch.flatten() for batch in loader]), state["w1"])
        spawning = torch.utils.data.DataLoader(Rows(f), num_workers=1, multiprocessing_context="spawn")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own word on that
            refused(TypeError, "cannot be pickled: pass its path", iter, spawning)
    with open("spawn.py", "w") as f:
        f.write("import multiprocessing, bitsnap\n\ndef read(path):\n    with bitsnap.File(path) as f:\n        return f.read('w1')\n\n"
                "if __name__ == '__main__':\n    for way in ('spawn', 'forkserver'):\n        with multiprocessing.get_context(way).Pool(2) as pool:\n"
                "            print(*{data.hex() for data in pool.map(read, ['rows.bsnap'] * 4)})\n")
    said = subprocess.run([sys.executable, "spawn.py"], check=True, capture_output=True, text=True, timeout=60).stdout
    assert said == 2 * (state["w1"].numpy().tobytes().hex() + "\n")


every = [packed_folders, sibling_folders, saved_folders, snapshot_stores, foreign_folders, many_files_and_threads, states, references, files_of_torch_save, packed_checkpoints,
         transparent_loading, progress, data_loaders]
sys.exit(run("checkpoints", [test for test in every if not sys.argv[2:] or test.__name__ in sys.argv[2:]]))
