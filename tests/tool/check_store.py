#!/usr/bin/env python3
"""Stores of snapshots. Six steps of a model in three shards are restored and compared, and pruned. Every object and all parts
of the manifest are damaged, and manifests are hostile. snapshot and prune are killed at every system call that touches a file
and at random moments, and each such call fails.
    KILLS=n   random moments for each command, 10 by default"""
import errno
import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import safety
from safety import Place, model, read, tool, write

GROUP = "store"
KILLS = int(os.environ.get("KILLS", "10"))
p = Place()
trouble = []
sys.excepthook = lambda kind, e, at: (print("not ok - store: before", kind.__name__, e, "at line", at.tb_lineno, "; ".join(trouble[:5])), shutil.rmtree(p.top, ignore_errors=True))


def result(what):
    safety.report(GROUP, not trouble, what, f"{len(trouble)} bad: " + "; ".join(trouble[:5])[:1500])
    trouble.clear()


def expect(true, what):
    if not true:
        trouble.append(str(what))


def run(status, line, says="", silent=True):
    """Runs a command. Expects its status and message; a successful command prints no message."""
    got = p.run(line)
    expect(got.returncode == status, f"{line} ended with {got.returncode}: {got.stderr}")
    if says:
        expect(re.search(says, got.stderr), f"{line} did not say {says}, but {got.stderr}")
    elif status == 0 and silent:
        expect(not got.stderr, f"{line} said {got.stderr}")
    return got.stdout


def tree(top):
    """All names with contents, permissions and links."""
    found = {}
    for base, folders, names in os.walk(top):
        for name in folders + names:
            path = os.path.join(base, name)
            mode = os.lstat(path).st_mode & 0o777
            found[os.path.relpath(path, top)] = os.readlink(path) if os.path.islink(path) else mode if os.path.isdir(path) else (mode, read(path))
    return found


def checkpoint(step, where="in", shards=3):
    shutil.rmtree(where, ignore_errors=True)
    os.makedirs(f"{where}/optimizer/empty")
    for i in range(shards):
        write(f"{where}/model-{i + 1:05}-of-{shards:05}.safetensors", model(i, step))
    write(f"{where}/model.safetensors.index.json", b'{"weight_map":{"a":"model-00001-of-00003.safetensors"}}')
    write(f"{where}/config.json", b"{}")
    write(f"{where}/optimizer/state.pt", b"step %d" % step)
    write(f"{where}/none", b"")
    os.chmod(f"{where}/config.json", 0o640)
    os.chmod(f"{where}/optimizer", 0o750)
    os.symlink("../config.json", f"{where}/optimizer/config")
    return tree(where)


def manifest(store="run"):
    return json.loads(read(f"{store}/manifest.json"))


def log(store="run"):
    return json.loads(run(0, f"log --json {store}"))["steps"]


def steps_of(store="run"):
    return [s["step"] for s in log(store)]


def listed(store="run"):
    """The steps in the manifest, read without the tool."""
    return [s["step"] for s in manifest(store)["steps"]]


def objects_of(store="run"):
    return {o["id"] + ("-" + o["base"] if "base" in o else "") + (".bsnap" if o["kind"] == "tensors" else "") for o in manifest(store)["objects"]}


def records_of(store="run"):
    return {f"step-{s['step']}.json" for s in manifest(store)["steps"]}


def names_of(store="run"):
    return objects_of(store) | records_of(store)


def clean(store="run"):
    """Expects exactly the files that belong to the store."""
    expect(set(os.listdir(f"{store}/objects")) == names_of(store), f"objects: {set(os.listdir(store + '/objects')) ^ names_of(store)}")
    expect(set(os.listdir(store)) - {"manifest-before.json"} == {"manifest.json", "objects", "lock"} and not read(f"{store}/lock"), f"in the store: {os.listdir(store)}")


def restored(want, store="run"):
    """Expects these steps, each restored to its content."""
    expect(steps_of(store) == sorted(want), f"steps {steps_of(store)}, not {sorted(want)}")
    for step in steps_of(store):
        shutil.rmtree("out", ignore_errors=True)
        run(0, f"restore {store} {step} -o out")
        expect(step in want and os.path.exists("out") and tree("out") == want[step], f"step {step} is another")
    left = [n for n in p.leftovers() if not n.startswith("./run/")]
    expect(not left, left)


def begin(store):
    """Makes `run` a fresh copy of a kept store."""
    shutil.rmtree("run", ignore_errors=True)
    shutil.copytree(store, "run", symlinks=True)


# ------------------------------------------------------------------ six steps
p.begin("")
want = {}
for step in range(6):
    want[100 * step] = checkpoint(step)
    run(0, f"snapshot run in --step {100 * step}")
restored(want)
clean()
kinds = [(s["kind"], s.get("base"), s["chain"], s["files"]) for s in log()]
expect(kinds == [("whole", None, 1, 7)] + [("delta", 100 * i, i + 2, 7) for i in range(5)], kinds)
expect(log()[5]["bytes_out"] < log()[0]["bytes_out"] / 8, log())
expect(len(manifest()["objects"]) == 6 * 3 + 6 + 3, "the same content more than once")
expect(tree("in") == want[500], "the folder has changed")
run(0, "restore run latest -o out -f")
expect(tree("out") == want[500], "latest is another")
run(0, "verify run")
shutil.copytree("run", "six")
result("six steps of three shards, index, configuration, optimizer, link and empty folder; each comes back with permissions, the same content is kept once")

objects = {o["id"]: o for o in manifest()["objects"]}
chain = [next(o for o in objects.values() if o["kind"] == "tensors" and "base" not in o)]
while following := [o for o in objects.values() if o.get("base") == chain[-1]["id"]]:
    chain += following
paths = [f"run/objects/{o['id']}{'-' + o['base'] if 'base' in o else ''}.bsnap" for o in chain]
bases = " ".join("-b " + path for path in paths[:-1])
run(0, "test -q " + paths[0])
run(0, f"test -q {bases} {paths[-1]}")
run(0, f"info -q --no-bound {bases} {paths[-1]}")
run(0, f"decompress -q {bases} -o x.safetensors {paths[-1]}")
expect(any(v[1] == read("x.safetensors") for v in want[500].values() if isinstance(v, tuple)), "the end of a chain is another")
result("objects are .bsnap files that the other commands read")

# ------------------------------------------------------------------ chains
for most, chains in ((1, [1] * 6), (2, [1, 2] * 3), (4, [1, 2, 3, 4, 1, 2])):
    shutil.rmtree("run")
    for step in range(6):
        checkpoint(step)
        run(0, f"snapshot run in --max-chain {most}")
    expect([s["chain"] for s in log()] == chains, f"--max-chain {most}: {[s['chain'] for s in log()]}")
    run(0, "verify -q run")
shutil.rmtree("run")
for step in range(4):  # other numbers each time: no delta helps
    shutil.rmtree("in")
    os.mkdir("in")
    write("in/a.safetensors", model(50 + step, 0))
    run(0, "snapshot run in")
expect([s["kind"] for s in log()] == ["whole"] * 4, [s["kind"] for s in log()])
shutil.rmtree("run")
for step in range(8):  # half of every file is new, so a delta has half its size, and five deltas exceed twice its size
    write("in/a.safetensors", model(50, 0)[:9000] + model(70 + step, 0)[9000:])
    run(0, "snapshot run in")
expect([s["chain"] for s in log()] == [1, 2, 3, 4, 5, 6, 1, 2] or max(s["chain"] for s in log()) < 7, [s["chain"] for s in log()])
run(0, "verify -q run")
shutil.rmtree("run")
moved = {0: checkpoint(0)}
run(0, "snapshot run in --step 0")
checkpoint(1)
os.rename("in/model-00001-of-00003.safetensors", "in/consolidated.safetensors")
os.remove("in/model-00002-of-00003.safetensors")
os.remove("in/model-00003-of-00003.safetensors")
moved[1] = tree("in")
run(0, "snapshot run in")
new = [o for o in manifest()["objects"] if o["size"] == os.stat("in/consolidated.safetensors").st_size and "base" in o]
expect(len(new) == 1 and new[0]["bytes"] < new[0]["size"] / 8, f"a file of another name: {new}")
restored(moved)
run(0, "verify -q run")
result("--max-chain; files whole where a delta does not help, and where the deltas have become twice what the whole takes")

# ------------------------------------------------------------------ what is in a folder
shutil.rmtree("run")
checkpoint(0)
write("in/same.safetensors", model(0, 0))
write("in/copy.txt", model(0, 0))
run(0, "snapshot run in")
first = objects_of()
expect(sum(n.endswith(".bsnap") for n in first) == 3, first)
os.rename("in/model.safetensors.index.json", "in/other.json")
got = json.loads(run(0, "snapshot --json run in --step 7"))
expect(got["objects"] == 0 and got["step"] == 7 and objects_of() == first, got)
run(1, "snapshot run in --step 7", "run: has a step 7 already")
run(0, "snapshot run in --step 3")  # between
expect(steps_of() == [1, 3, 7], steps_of())
shutil.rmtree("in")
checkpoint(1)
for i in range(2):
    write(f"in/cut{i}.safetensors", model(0, 0)[:5000 + i])
os.mkfifo("in/pipe")
os.symlink("/etc/passwd", "in/passwd")
os.symlink("../outside", "in/out")
os.symlink("optimizer/../config.json", "in/around")
os.symlink("nowhere", "in/nowhere")
got = p.run("snapshot run in")
expect(got.returncode == 0 and len(got.stderr.splitlines()) == 7 and all(": warning: " in line for line in got.stderr.splitlines()), got.stderr)
run(0, "restore -f run 8 -o out")
expect(sorted(os.listdir("in")) == sorted(os.listdir("out") + ["pipe", "passwd", "out", "around", "nowhere"]), os.listdir("out"))
expect(read("out/cut1.safetensors") == read("in/cut1.safetensors"), "a file that is cut is another")
os.unlink("in/nowhere")
write("outside", model(3, 0))
run(0, "snapshot run in -L --exclude *.json --exclude pipe --exclude cut* --exclude passwd --exclude optimizer -q")
run(0, "restore -f run latest -o out")
expect(read("out/out") == model(3, 0) and sorted(os.listdir("out")) == sorted(["around", "none", "out"] + [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]), os.listdir("out"))
run(0, "snapshot run in --include *.safetensors --exclude cut* -q")
run(0, "verify -q run")
clean()
result("the same content under several names, files that are no tensor files though they are called so, links that lead out, pipes, -L, --include, --exclude")

# ------------------------------------------------------------------ refusals
shutil.rmtree("in")
checkpoint(0)
before = tree("run")
os.makedirs("other/deep")
write("file", b"x")
os.mkdir(b"in/\xff\xfe")
for line, says in [
    ("snapshot run in", r"in/.*: has a name that is not UTF-8"), ("snapshot run nothing", "nothing: cannot be opened"), ("snapshot other in", "other: is not a store of snapshots, and"),
    ("snapshot file in", "file: is not a folder"), ("snapshot in/run in", "is in in, or contains it"), ("snapshot run run/objects", "is in run/objects, or contains"),
    ("snapshot run .", "is in ., or"), ("snapshot new other", "other: has no file that the options select"), ("restore run 99 -o x", "run: has no step 99; bitsnap log"),
    ("restore run x -o x", "needs the number of a step, or latest"), ("restore run 1 -o other", "other: exists already"), ("restore run 1 -o run/x", "run/x: is run, or inside it"),
    ("restore -f run 1 -o run", "run: is run, or inside it"), ("restore other 1 -o x", "other: is not a store"), ("log nothing", "nothing: cannot be opened"), ("log file", "file: is not a folder"),
    ("verify other", "is not a store of snapshots: it has no manifest.json"), ("prune run --keep-every 100", "would have no step left"),
]:
    run(1, line, says)
os.rmdir(b"in/\xff\xfe")
for line, says in [
    ("snapshot run", "snapshot needs a store and a folder"), ("restore run 1", "restore needs the name of a new folder"), ("restore run -o x", "restore needs a store and a step"),
    ("log", "log needs a store"), ("prune run", "prune needs the steps to keep"), ("snapshot run in --step x", "--step takes a number from 0"), ("verify -", "is a folder, not '-'"),
    ("snapshot run in --max-chain 0", "--max-chain takes a number from 1 to 256"), ("prune run --keep-last 0", "--keep-last takes"), ("prune run --remove 1,", "--remove takes"), ("prune run --remove latest", "--remove takes"), ("snapshot run in -b x", "--base has no effect on snapshot"),
]:
    run(2, line, says)
expect(tree("run") == before and not os.path.exists("new") and not os.path.exists("x"), "something has changed")
with open("run/lock", "r+b") as held:
    fcntl.flock(held, fcntl.LOCK_EX)
    held.write(b"bitsnap snapshot, process 7 on moon")
    held.flush()
    run(1, "snapshot run in", "run: is in use by bitsnap snapshot, process 7 on moon; try again")
    run(1, "verify run", "is in use by bitsnap snapshot, process 7 on moon")
    table = run(0, "log run").splitlines()
    expect(len(table) > 2 and all(len(line) < 80 for line in table), f"a table for 80 columns: {table}")
with open("run/lock", "rb") as held:
    fcntl.flock(held, fcntl.LOCK_SH)
    run(0, "verify run")
    run(1, "prune run --keep-last 1", "is in use by a run that reads it")
run(0, "snapshot run in --step 1000")
clean()
result("what is refused, and says why; one run changes a store at a time, and says which")

# ------------------------------------------------------------------ what is not this store's own
LOOKERS, CHANGERS = ("log run", "verify run", "restore run latest -o x"), ("snapshot run in", "prune run --keep-last 1")
for name, make in {
    "none": lambda: None, "empty": lambda: write("run/manifest.json", b""), "cut": lambda: write("run/manifest.json", read("six/manifest.json")[:-30]),
    "a folder": lambda: os.mkdir("run/manifest.json"), "a pipe": lambda: os.mkfifo("run/manifest.json"), "a link": lambda: os.symlink("../six/manifest.json", "run/manifest.json"),
    "a link that leads nowhere": lambda: os.symlink("nothing", "run/manifest.json"), "no JSON": lambda: write("run/manifest.json", b"manifest"),
}.items():
    for before in (True, False):
        begin("six")
        write("run/objects/mine", b"a foreign file")
        os.unlink("run/manifest.json")
        if not before:
            os.unlink("run/manifest-before.json")
        make()
        there = {n: read(f"run/objects/{n}") for n in os.listdir("run/objects")}
        says = "^bitsnap: run: has no manifest.json, but something in it that only that file explains; bitsnap fsck rebuilds it; nothing is removed" if name == "none" else "run/manifest.json: "
        for line in LOOKERS + CHANGERS:
            got = p.run(line)
            expect(got.returncode == 1 and re.search(says, got.stderr), f"{line}, {name}: {got}")
        taken = before and name in ("none", "empty", "cut", "no JSON")
        got = p.run("restore run 300 -o x")
        expect(got.returncode == (not taken) and re.search("manifest.json.*; bitsnap fsck rebuilds it.*; taken is manifest-before.json\n" if taken else "manifest.json", got.stderr), f"restore, {name}: {got}")
        expect(not taken or tree("x") == want[300], "another step is restored")
        shutil.rmtree("x", ignore_errors=True)
        expect({n: read(f"run/objects/{n}") for n in os.listdir("run/objects")} == there, f"a manifest that is {name}: something has changed")
begin("six")
run(0, "prune run --keep-last 2 -q")
write("run/manifest.json", b"")
run(1, "restore run 500 -o x", "run/manifest.json: ")  # manifest-before.json names objects that are gone
begin("six")
os.replace("run/manifest.json", "run/kept")
os.rename("run/objects", "elsewhere")
os.symlink("../elsewhere", "run/objects")
os.replace("run/kept", "run/manifest.json")
run(1, "snapshot run in", "run/objects: is a link, and may belong to another store")
expect(steps_of() == list(want), "what only reads follows links")
os.unlink("run/objects")
os.rename("elsewhere", "run/objects")
result("a store whose manifest is gone, empty, cut, a folder, a pipe, a link: a step by its number comes back by the manifest before, all else is refused, and all objects stay")

for line, left in (("snapshot run in --step 700", 7), ("prune run --keep-last 1", 1)):
    begin("six")
    foreign = {"objects/mine": b"1", "objects/" + "ab" * 8 + ".bsnap": b"2", "objects/" + "cd" * 8: b"3", "objects/.bsnap-new": b"4", ".bitsnap-new-1-1-1~other": b"5", "objects/.bitsnap-mine": b"6"}
    for name, data in foreign.items():
        write(f"run/{name}", data)
    run(0, line, silent=False)
    expect(all(read(f"run/{name}") == data for name, data in foreign.items() if os.path.exists(f"run/{name}") or expect(False, f"{line} removes {name}")), f"{line} changes what is foreign")
    expect(len(steps_of()) == left, line)
    run(0, "verify run", "run: warning: 5 files in it belong to no step, such as .*; look at them")
begin("six")
shutil.rmtree("in")
checkpoint(8)
run(0, "snapshot second in")
shutil.copyfile("second/manifest.json", "run/manifest.json")  # the manifest of another store
there = set(os.listdir("run/objects"))
p.run("snapshot run in --step 9000")
p.run("prune run --keep-last 1")
expect(there <= set(os.listdir("run/objects")), "the manifest of another store: objects are removed")
shutil.rmtree("second")
for missing in (n for n in sorted(names_of("six")) if n.endswith(".bsnap") and "-" not in n):
    begin("six")
    data = read(f"run/objects/{missing}")
    for make in (lambda: os.unlink(f"run/objects/{missing}"), lambda: write(f"run/objects/{missing}", data[:-1])):
        make()
        before = tree("run")
        for more in ("", " --dry-run"):
            run(1, "prune run --keep-last 3" + more, f"run/objects/{missing}: .*; step [0-9]+, which is to stay, needs it; nothing is removed; bitsnap verify")
        expect(tree("run") == before, f"prune without {missing} has changed something")
result("what no manifest of the store has named stays; prune removes nothing if what stays lacks an object, or a byte of one")

for i in range(6):  # two begin one store
    shutil.rmtree("run")
    both = [subprocess.Popen([tool, *f"snapshot run in --step {n}".split()], stderr=subprocess.PIPE, text=True) for n in (1, 2)]
    ended = [(q.communicate()[1], q.returncode) for q in both]
    done = [n for n, (says, status) in zip((1, 2), ended) if not status]
    expect(done and all(not status or "is in use by" in says for says, status in ended) and steps_of() == done, f"two at once: {ended}")
    run(0, "verify -q run")
    clean()
shutil.rmtree("run")
os.mkdir("run")
os.mkdir("empty")
run(1, "snapshot run empty", "has no file that the options select")
expect(os.listdir("run") == [], f"what failed leaves {os.listdir('run')}")
shutil.rmtree("in")
checkpoint(0)
result("two runs that begin one store: one does, the other does after it, or is told; a first step that fails leaves nothing")

# ------------------------------------------------------------------ prune
for keep, left in (("--keep-last 3", [300, 400, 500]), ("--keep-last 1", [500]), ("--keep-every 200", [0, 200, 400]), ("--keep-every 300 --keep-last 1", [0, 300, 500]), ("--keep-last 6", list(want)),
                   ("--remove 0,200", [100, 300, 400, 500]), ("--remove 400,500 --keep-last 3", [100, 200, 300]), ("--remove 0 --remove=100,500 --remove 200", [300, 400])):
    begin("six")
    before = tree("run")
    run(0, f"prune run {keep} --dry-run")
    expect(tree("run") == before, "--dry-run changes something")
    got = json.loads(run(0, f"prune run --json {keep}"))
    expect(got["removed"] == [s for s in want if s not in left] and got["steps"] == len(left), got)
    restored({s: want[s] for s in left})
    clean()
    run(0, "verify -q run")
    if "remove" not in keep:
        run(0, f"prune run {keep}")  # once more: nothing
        restored({s: want[s] for s in left})
begin("six")
run(0, "prune run --keep-every 300 -q")
expect([s["kind"] for s in log()] == ["whole", "delta"], log())
mode = {os.stat(f"run/objects/{n}").st_mode & 0o777 for n in names_of() if n.endswith(".bsnap")}
expect(mode == {os.stat("in/model-00001-of-00003.safetensors").st_mode & 0o777}, mode)
for remove, says in (("7", "run: has no step 7; bitsnap log"), ("0,300,6", "has no step 6;"), ("0,300", "would have no step left")):
    run(1, f"prune run --remove {remove}", says)
result("prune: by the newest, by multiples, by both, by name; what stays comes back, chains are joined, nothing is left behind")

# ------------------------------------------------------------------ damage
r = random.Random(1)
found = 0
for name in sorted(objects_of("six")):
    if not os.path.getsize(f"six/objects/{name}"):
        continue
    begin("six")
    data = bytearray(read(f"run/objects/{name}"))
    data[r.randrange(len(data))] ^= 1 << r.randrange(8)
    write(f"run/objects/{name}", data)
    run(1, "verify run", f"run/objects/{name}: .*\n.*run: 1 of 27 objects damaged; [1-6] of 6 steps cannot be restored: ")
    if name.endswith(".bsnap"):
        lost = json.loads(p.run("verify --json run").stdout)["lost_steps"]
        for step in want:
            got = p.run(f"restore run {step} -o out -f")
            expect(got.returncode == (step in lost) and (step in lost or tree("out") == want[step]), f"{name}, step {step}: {got.returncode} {got.stderr}")
    found += 1
begin("six")
os.unlink("run/objects/" + sorted(objects_of())[0])
run(1, "verify run", "cannot be opened: No such file")
two = [n for n in sorted(names_of()) if n.endswith(".bsnap")][:2]
begin("six")
os.replace(f"run/objects/{two[0]}", f"run/objects/{two[1]}")
run(1, "verify run", "2 of 27 objects damaged|cannot be opened")
begin("six")
two = [n for n in sorted(names_of()) if len(n) == 22][:2]
shutil.copyfile(f"run/objects/{two[0]}", f"run/objects/{two[1]}")
run(1, "verify run", f"{two[1]}: does not have the content that the manifest says")
run(1, "restore run 0 -o out2", "differs from what was stored")
expect(not os.path.exists("out2"), "a folder is there")
result(f"verify finds a bit that has changed in each of {found} objects, an object that has gone, and one in the place of another; steps that it does not name come back")

begin("six")
for name in objects_of():
    write(f"run/objects/{name}", b"nothing")
checkpoint(5)
got = p.run("snapshot run in")
expect(got.returncode == 0 and got.stderr.count("is damaged, and written anew") == 7, got.stderr)
run(0, "restore -f run 501 -o out")
run(0, "restore -f run 500 -o out")
expect(tree("out") == want[500], "what was damaged is not whole again")
checkpoint(9)
begin("six")
newest = {o["id"] for o in manifest()["objects"]} - {o["base"] for o in manifest()["objects"] if "base" in o}
for name in names_of():
    if name.endswith(".bsnap") and name[:16] in newest:
        write(f"run/objects/{name}", b"nothing")
want_nine = tree("in")
got = p.run("snapshot run in --step 600")
expect(got.returncode == 0 and got.stderr.count("is damaged, and not used as a base") == 3, got.stderr)
run(0, "restore -f run 600 -o out")
expect(tree("out") == want_nine, "a step on damaged bases is another")
result("a snapshot makes whole again what is damaged, and does without a base that is")

ids = {step["step"]: {e["id"] for e in step["entries"] if "id" in e} for step in manifest("six")["steps"]}
third = next(n for n in sorted(names_of("six")) if n.endswith(".bsnap") and n[:16] in ids[300])
begin("six")
data = bytearray(read(f"run/objects/{third}"))
data[len(data) // 2] ^= 1
write(f"run/objects/{third}", data)
before = tree("run")
shutil.copytree("run", "hurt")
for line, step in (("prune run --keep-every 200", 400), ("prune run --keep-last 1", 500), ("prune run --remove 300", 400)):
    run(1, line, f"bitsnap: run/objects/{third}: .*; step {step}, which is to stay, needs it; nothing is removed; bitsnap verify says which steps are lost")
    expect(tree("run") == before, f"{line} has changed something")
run(1, "prune run --keep-every 300 --dry-run", f"bitsnap: run/objects/{third}: .*; step 300, which is to stay, needs it; nothing is removed")
lost = re.search("cannot be restored: ([0-9,]*); a snapshot of .* prune --remove gives them up", p.run("verify run").stderr)
expect(lost and lost[1] == "300,400,500", f"what is lost: {lost}")
run(0, f"prune run --remove {lost[1]}")
restored({s: want[s] for s in (0, 100, 200)})
run(0, "verify -q run")
clean()
begin("hurt")
checkpoint(3)
run(0, "snapshot run in --step 600", "is damaged, and written anew")
run(0, "prune run --keep-every 200")
restored({0: want[0], 200: want[200], 400: want[400], 600: want[300]})
run(0, "verify -q run")
clean()
result("prune removes nothing where what stays needs what is damaged, and says which; it does when that is given up, or is whole again")

copy = next(n for n in sorted(objects_of("six")) if n in ids[300] - ids[200])
first = next(n for n in sorted(objects_of("six")) if n.endswith(".bsnap") and "-" not in n)
for name in (copy, third, first):  # none of these is made anew
    begin("six")
    data = bytearray(read(f"run/objects/{name}"))
    data[-1] ^= 1
    write(f"run/objects/{name}", data)
    before = tree("run")
    for line in ("prune run --remove 500", "prune run --remove 500 --dry-run"):
        run(1, line, f"bitsnap: run/objects/{name}: .*; step {0 if name == first else 300}, which is to stay, needs it; nothing is removed")
    expect(tree("run") == before, f"prune of a store with a damaged {name} has changed something")
result("prune decodes all that stays: with a bit changed in a copy, a delta or a whole file, which it need not make anew, it removes nothing")

begin("six")
before = tree("run")
got = json.loads(p.run("verify --json run --temp nowhere").stdout)
expect(got["lost_steps"] == [] and not got["ok"], f"steps are lost for want of room: {got}")
run(1, "verify run --temp nowhere", "temporary file in nowhere: cannot be made: .*\n(.*\n)+.*run: [0-9]+ of 27 objects not verified: they, or .* could not be read, perhaps only now; none is known")
run(1, "prune run --remove 200 --temp nowhere", "temporary file in nowhere: cannot be made: .*; nothing is removed$")
expect(tree("run") == before, "prune without room has changed something")
state = next(n for n in sorted(names_of()) if n in ids[300] - ids[200])  # a copy
write(f"run/objects/{state}", b"nothing")
lost = json.loads(p.run("verify --json run --temp nowhere").stdout)["lost_steps"]
expect(lost == [300], f"what is lost: {lost}")
clean()
result("what cannot be checked for want of room is neither lost nor given up")

if p.has_shim:
    begin("six")
    before = tree("run")
    for sick in (state, third, next(n for n in sorted(names_of()) if n.endswith(".bsnap") and "-" not in n)):  # a copy; a delta; a base of deltas
        os.environ["SHIM_SICK"] = f"run/objects/{sick}"
        got = json.loads(p.run("verify --json run", shim="").stdout)
        expect(got["lost_steps"] == [] and not got["ok"] and got["not_verified"] > 0, f"{sick}: {got}")
        expect(got["problems"] == [{"file": f"run/objects/{sick}", "error": got["problems"][0]["error"]}] and got["problems"][0]["error"].endswith(": Input/output error"), f"{sick}: {got}")
        said = p.run("verify run", shim="")
        expect(said.returncode == 1 and re.search(f"run: {got['not_verified']} of 27 objects not verified: ", said.stderr) and "--remove" not in said.stderr, f"{sick}: {said.stderr}")
    write(f"run/objects/{third}", b"nothing")
    said = p.run("verify run", shim="").stderr
    expect(re.search(r"1 of 27 objects damaged, [0-9]+ not verified; [0-9] of 6 steps cannot", said), f"both: {said}")
    write(f"run/objects/{third}", before[f"objects/{third}"][1])
    said = p.run("prune run --remove 0", shim="")
    expect(said.returncode == 1 and said.stderr.endswith("Input/output error; nothing is removed\n"), f"prune: {said.stderr}")
    expect(tree("run") == before, "something has changed")
    os.environ["SHIM_SICK"] = f"run/objects/{state}"
    checkpoint(3)
    said = p.run("snapshot run in --step 600", shim="")
    expect(said.returncode == 0 and said.stderr == f"bitsnap: run/objects/{state}: warning: cannot be read, and is written anew\n", f"snapshot: {said.stderr}")
    del os.environ["SHIM_SICK"]
    run(0, "verify -q run")
    result("what the disk cannot read is said, not verified, neither lost nor given up; nor does prune go on; a snapshot writes it anew")

# ------------------------------------------------------------------ fsck
def same_as(store, steps=None):
    """Expects the manifest of `run` to equal that of a store, or that of these steps of it."""
    now, then = manifest(), manifest(store)
    for m in now, then:
        del m["check"]
    if steps is not None:
        then["steps"] = [s for s in then["steps"] if s["step"] in steps]
    expect(now["steps"] == then["steps"] and (steps is not None or now["objects"] == then["objects"]), "the manifest is another than it was")


for make in (lambda: os.unlink("run/manifest.json"), lambda: write("run/manifest.json", b""), lambda: write("run/manifest.json", read("six/manifest.json").replace(b'"mode":"6', b'"mode":"7', 1))):
    begin("six")
    make()
    before = tree("run")
    got = p.run("fsck run --dry-run")
    expect(got.returncode == 0 and got.stdout == "run: manifest.json would be made anew, steps: 6, objects: 27\n" and "bitsnap: run" in got.stderr, got)
    expect(tree("run") == before, "--dry-run changes something")
    got = json.loads(p.run("fsck run --json").stdout)
    expect(got == {"command": "fsck", "file": "run", "rebuilt": True, "steps": 6, "objects": 27}, got)
    same_as("six")
    after = tree("run")
    expect(after.pop("manifest-damaged.json", (0, None))[1] == before.get("manifest.json", (0, None))[1], "the damaged manifest is not kept")
    expect({n: x for n, x in after.items() if n != "manifest.json"} == {n: x for n, x in before.items() if n != "manifest.json"}, "more has changed")
    restored(want)
    checkpoint(6)
    run(0, "snapshot run in --step 600 -q")
    run(0, "verify -q run")
begin("six")
run(0, "prune run --keep-every 200 -q")
shutil.rmtree("kept", ignore_errors=True)
shutil.copytree("run", "kept")
os.unlink("run/manifest.json")
run(0, "fsck run -q")  # records tell of deltas that prune has made anew since
same_as("kept")
restored({s: want[s] for s in (0, 200, 400)})
shutil.rmtree("kept")
begin("six")
os.unlink("run/manifest.json")
record = bytearray(read("run/objects/step-300.json"))
record[len(record) // 2] ^= 1
write("run/objects/step-300.json", record)
write("run/objects/step-500.json", read("run/objects/step-400.json"))  # a good one, of another step
there = set(os.listdir("run/objects"))
run(1, "fsck run", "run/objects/step-300.json: is not a valid manifest(.*\n)+.*run: 2 records of steps cannot be used")
same_as("six", (0, 100, 200, 400))
expect(set(os.listdir("run/objects")) == there, "fsck has removed something")
run(0, "fsck run")
restored({s: want[s] for s in (0, 100, 200, 400)})
begin("six")
os.unlink("run/manifest.json")
third = next(n for n in sorted(objects_of("six")) if n.endswith(".bsnap") and n[:16] in ids[300])
os.unlink(f"run/objects/{third}")
run(1, "fsck run", "run/objects/step-300.json: step 300 cannot be restored: model-.* is in no object, or in a delta(.*\n)+.*run: 3 records of steps cannot be used")
restored({s: want[s] for s in (0, 100, 200)})
run(0, "verify -q run", silent=False)
write("run/objects/" + third, read("six/objects/" + third))  # found again
os.unlink("run/manifest.json")
run(0, "fsck run -q")
same_as("six")
restored(want)
begin("six")
for name in records_of():
    os.unlink(f"run/objects/{name}")
before = tree("run")
run(0, "verify -q run")
os.rename("run/manifest.json", "run.kept")
run(1, "fsck run", "run: has no record of a step that can be restored .objects/step-N.json; earlier versions wrote none.; restore a copy of manifest.json")
os.rename("run.kept", "run/manifest.json")
expect(tree("run") == before, "fsck without records has changed something")
expect(run(0, "fsck run") == "run: manifest.json is good, steps: 6, objects: 27\n", "what fsck says of a good store")
clean()
os.unlink("run/manifest.json")
run(0, "fsck run -q")
restored(want)
begin("six")
os.unlink("run/manifest.json")
write("run/in.lock", b"")
os.unlink("run/in.lock")
with open("run/lock", "r+b") as held:
    fcntl.flock(held, fcntl.LOCK_EX)
    run(1, "fsck run", "is in use by")
shutil.rmtree("other", ignore_errors=True)
os.makedirs("other/deep")
run(1, "fsck other", "other: is not a store of snapshots")
run(1, "fsck nothing", "nothing: cannot be opened")
expect(os.listdir("other") == ["deep"], "fsck has made something in what is no store")
write("newer", read("six/manifest.json").replace(b'"bitsnap_store":1', b'"bitsnap_store":2', 1)[:-28])
shutil.rmtree("in")
os.mkdir("in")
os.rename("newer", "in/newer")
run(0, "snapshot hashes in")  # a copy is called by the XXH3 of its bytes
write("run/manifest.json", read("in/newer") + b'"check":"%s"}\n' % manifest("hashes")["objects"][0]["id"].encode())
before = tree("run")
for line in ("fsck run", "log run", "restore run 300 -o x", "snapshot run in"):
    run(1, line, "run/manifest.json: has version 2, this program knows 1\n")
expect(tree("run") == before, "the manifest of a later version has been changed")
shutil.rmtree("hashes")
result("fsck makes the manifest anew from records, after prune, too; names a record that is damaged, or another's, and a step that lacks an object; removes nothing")

if p.has_shim:
    begin("six")
    os.unlink("run/manifest.json")
    runs = 0
    calls = p.calls("fsck run -q")
    for k in range(1, len(calls) + 1):
        for action in ("kill", f"fail {errno.ENOSPC}"):
            begin("six")
            write("run/manifest.json", b"damaged")
            got = p.run("fsck run -q", shim=f"*:{k} {action}")
            again = p.run("fsck run -q")
            expect(again.returncode == 0, f"fsck, {action} at {k}: {again.stderr}")
            same_as("six")
            run(0, "verify -q run")
            runs += 1
    result(f"fsck: {len(calls)} calls, each the last or failing ({runs} runs): the next one does it")

    stray = "run/objects/0123456789abcdef.bsnap"

    def killed():
        """A store in the state after a run was killed while it added an object."""
        begin("six")
        write("run/lock", b"bitsnap snapshot, process 1 on node1\n0123456789abcdef.bsnap\n")
        write(stray, b"")
    killed()
    k = p.calls("fsck run -q").index("unlinkat") + 1
    killed()
    got = p.run("fsck run -q", shim=f"*:{k} fail {errno.EIO}")
    expect(got.returncode == 1 and "cannot be removed" in got.stderr and os.path.exists(stray), got)
    run(0, "fsck run -q")
    expect(not os.path.exists(stray), "the lock has lost the name of an object that could not be removed")
    result("an object of a run that was killed, which the next one cannot remove, is removed by the one after it")

checkpoint(1, shards=1)
shutil.rmtree("in/optimizer")
run(0, "snapshot small in --step 1")
os.unlink("in/none")
run(0, "snapshot small in --step 2")
text, old = read("small/manifest.json"), tree("in")
for at in range(len(text)):
    data = bytearray(text)
    data[at] ^= 1 << at % 8
    write("small/manifest.json", data)
    run(1, "snapshot small in", "small/manifest.json: .*; bitsnap fsck rebuilds it\n")
write("small/manifest.json", text)
run(0, "restore small 2 -o x")
expect(tree("x") == old, "step 2 is another")
shutil.rmtree("small")
shutil.rmtree("x")
result(f"each of {len(text)} bytes of a small manifest changed: refused")

accepted = 0
text = read("six/manifest.json")
for i in range(400):
    data = bytearray(text)
    if i % 4:
        data[r.randrange(len(data))] ^= 1 << r.randrange(8)
    elif i % 8:
        del data[r.randrange(len(data)):]
    else:
        a, b = sorted(r.sample(range(len(data)), 2))
        data[a:a] = data[b:b + r.randrange(200)]
    shutil.rmtree("out", ignore_errors=True)
    os.chmod("six/manifest.json", 0o644)
    write("six/manifest.json", data)
    got = p.run("log six")
    expect(got.returncode == (data != text), f"log, {i}: {got.returncode} {got.stderr}")
    accepted += got.returncode == 0 and data != text
write("six/manifest.json", text)
expect(not accepted, f"{accepted} damaged manifests are taken for good ones")
text = text[:text.index(b'"check":')].rstrip(b",\n") + b"}\n"  # as earlier versions wrote
write("six/manifest.json", text)
expect(steps_of("six") == list(want), "a manifest without a check")
result("400 damaged manifests: none is taken for a good one; one without a check is read")

one = '{"id":"%s","kind":"copy","size":1,"bytes":1}' % ("0" * 15 + "1")
step = '{"step":1,"time":"2026-01-01T00:00:00Z","mode":"755","entries":[%s]}'
entry = '{"file":"%s","mode":"644","id":"' + "0" * 15 + '1"}'
hostile = {
    "a path": [entry % path for path in ("../x", "/x", "a/../../x", "", ".", "..", "a//b", "a/", "./a")],
    "is in no listed folder": [entry % "a/b", entry % "a" + "," + entry % "a/b", '{"link":"a","to":"b"},{"folder":"b","mode":"755"},' + entry % "a/x"],
    "link leads out": ['{"link":"%s","to":"%s"}' % link for link in (("a", "/x"), ("a", ".."), ("a", "../x"), ("d/a", "../../x"), ("a", "b/../../x"), ("a", "b/.."), ("a", ""))],
    "twice": [entry % "a" + "," + entry % "a", entry % "a" + "," + '{"folder":"a","mode":"755"}'],
    "in no object": [(entry % "a").replace("01\"}", "02\"}")],
    "too few or too many members|a member is missing|does not know|appears twice": ['{"file":"a"}', '{"file":"a","mode":"644","id":"%s","to":"b"}' % ("0" * 16), '{"file":"a","file":"b"}', '{"x":1}',
                                                                       '{"steps":[]}', '{"file":"a","mode":"644","id":"%s","entries":[]}' % ("0" * 16)],
    "a mode is none": ['{"folder":"a","mode":"7777"}', '{"folder":"a","mode":"9"}'],
    "an id is none": ['{"file":"a","mode":"644","id":"../../../../x"}'],
    "invalid UTF-8": [entry % "a\x01", ],
    "half a character|character is invalid": [entry % "\\ud800", entry % "\\udc00x", entry % "\\ud800\\u0041", entry % "\\u0000"],
    "too long": [entry % ("x" * 5000)],
}
whole = '{"bitsnap_store":1,"objects":[%s],"steps":[%s]}'
cases = [(whole % (one, step % e), says) for says, entries in hostile.items() for e in entries]
a, b, c = ('{"id":"%016x","kind":"tensors","base":"%016x","size":1,"bytes":1}' % pair for pair in ((1, 2), (2, 1), (3, 3)))
cases += [
    (whole % (a + "," + b, ""), "is a delta to itself, or needs more"), (whole % (c, ""), "is a delta to itself"), (whole % (a, ""), "is a delta to an object that is not listed"),
    (whole % (one + "," + one, ""), "appears twice"), (whole % (a + "," + one.replace("01\"", "02\""), ""), "is a delta to an object that is not listed"),
    (whole % (one.replace("copy", "other"), ""), "is of no kind"), (whole % (one.replace('"size":1', '"size":99999999999999999999'), ""), "number is too large"),
    (whole % (one.replace('"size":1', '"size":-1'), ""), "there is no number"), (whole % (one, step % "" + "," + step % ""), "a step appears twice, or out of order"),
    (whole % (one, (step % "").replace("01-01T", "01-0xT")), "a time is none"), (whole.replace(":1,", ":2,") % ("", ""), "has version 2, this program knows 1"),
    (whole % ("", "") + "x", "something follows"), (whole.replace(',"steps":[%s]', "") % "", "a member is missing"), ("[" * 100000, "there is no {"), ('{"steps":' * 50000, r"there is no \["),
    ('{"steps":[' * 50000, "."), ("", "is not a valid manifest"), ("\0" * 5000, "there is no {"),
    (whole % (",".join('{"id":"%016x","kind":"tensors","base":"%016x","size":1,"bytes":1}' % (i, i + 1) for i in range(1, 400)) + ',{"id":"%016x","kind":"tensors","size":1,"bytes":1}' % 400, ""),
     "needs more than 256"),
]
begin("six")
os.unlink("run/manifest-before.json")
for name in records_of():
    os.unlink(f"run/objects/{name}")
for text, says in cases:
    write("run/manifest.json", text.encode())
    write("run/objects/step-1.json", text.encode())
    for line in ("log run", "restore run 1 -o out2", "verify run", "prune run --keep-last 1", "snapshot run in", "fsck run"):
        run(1, line, f"run/manifest.json: .*({says})")
    expect(not os.path.exists("out2") and read("run/manifest.json") == text.encode(), f"something is written: {text[:100]}")
big = '{"id":"%016x","kind":"tensors","size":9007199254740991,"bytes":1}' % 1
write("run/manifest.json", (whole % (big, step % (entry % "a.safetensors"))).encode())
run(1, "restore run 1 -o out2", "--max-output")
write("run/manifest.json", (whole % (one, "\n " + step % (entry % "\\u00e9\\ud83d\\ude00\\n"))).replace(":", " :\t").replace("T00 :\t00 :\t00", "T00:00:00").encode())
run(0, "log run")
result(f"{len(cases)} manifests that are made to do harm: refused by every command, and nothing is written; what is JSON otherwise is read")

# ------------------------------------------------------------------ killed
small = {}
shutil.rmtree("six")
shutil.rmtree("run")
for step in (1, 2, 3):
    small[step] = checkpoint(step, shards=1)
    run(0, f"snapshot run in --step {step}")
os.rename("run", "kept")
new = checkpoint(4, shards=1)
COMMANDS = [("snapshot run in --step 4", {**small, 4: new}), ("prune run --keep-last 1", {3: small[3]}), ("prune run --keep-every 2", {2: small[2]})]


def settled(line, before, after, what):
    """After the command was killed, expects the steps before or after it, all restorable; then repeats the command."""
    try:
        now = listed()
    except (OSError, ValueError, KeyError):
        now = None
    expect(now in (sorted(before), sorted(after)), f"{what}: steps {now}")
    got = p.run("verify -q run")
    expect(got.returncode == 0, f"{what}: {got.stderr}")
    done = now == sorted(after)
    got = p.run(line)
    expect(got.returncode == 0 or (done and re.search("has a step [45] already", got.stderr)), f"{what}, then: {got.stderr}")
    expect(listed() == sorted(after) and p.run("verify -q run").returncode == 0, f"{what}, then it is damaged")
    if done:
        p.run("prune run --keep-last 9")
    clean()
    return done


if p.has_shim:
    for line, after in COMMANDS:
        runs = 0
        begin("kept")
        calls = p.calls(line)
        for k, call in enumerate(calls, 1):
            actions = ["kill"] + (["killafter"] if call in ("write", "create", "rename", "move", "exchange", "unlink", "unlinkat") else [])
            actions += [f"fail {errno.ENOSPC}"] if call in ("write", "create", "fsync", "rename", "move", "exchange", "unlinkat", "close") else []
            for action in actions:
                begin("kept")
                got = p.run(line, shim=f"*:{k} {action}")
                what = f"{line}: {action} at {k} ({call} {p.paths[k - 1]})"
                good = got.returncode in (0, 1) if action.startswith("fail") else got.returncode == -signal.SIGKILL
                expect(good, f"{what}: {got.returncode} {got.stderr}")
                if got.returncode == 0:
                    expect(listed() == sorted(after), f"{what}: status 0, and nothing is done")
                expect(got.returncode != 1 or not got.stdout, f"{what}: status 1, but {got.stdout}")
                settled(line, small, after, what)
                runs += 1
        result(f"{line}: {len(calls)} calls, each the last or failing ({runs} runs): the steps of before or after, and it is done by the next run")
    for line, after in COMMANDS[:2]:
        begin("kept")
        before = tree("run")
        writes = [k for k, call in enumerate(p.calls(line), 1) if call == "write"]
        for k in writes:
            begin("kept")
            got = p.run(line, shim=f"*:{k} full")
            after = tree("run")
            if after["manifest-before.json"][1] == before["manifest.json"][1]:  # the last file that is written before manifest.json
                after["manifest-before.json"] = before["manifest-before.json"]
            expect(got.returncode == 1 and "No space left" in got.stderr and after == before, f"{line}, no space from call {k} on: {got}")
    result("no space is left, from each write on: the store is as it was, and the command says so")
    shutil.rmtree("in")
    os.mkdir("in")
    for i in range(3):
        write(f"in/{i}.safetensors", model(i, 0))
    shutil.rmtree("run")
    run(0, "snapshot run in")
    for i in range(3):  # a fifth is new: the delta is compared with the whole file
        write(f"in/{i}.safetensors", model(i, 0)[:14000] + model(90 + i, 0)[14000:])
    os.rename("run", "kept2")
    begin("kept2")
    calls = p.calls("snapshot run in")
    staged = set()
    for k in [k for k, call in enumerate(calls, 1) if call == "fsync"]:
        begin("kept2")
        p.run("snapshot run in", shim=f"*:{k} kill")
        staged.add(tuple(sorted({n.split("~")[-1][:16] for n in os.listdir("run/objects") if n.endswith((".delta", ".whole"))})))
    expect(max(map(len, staged)) == 1 and len(staged) == 4, f"objects that are there in two forms: {staged}")
    shutil.rmtree("kept2")
    result("a snapshot needs room for a second form of one object at a time")
    line, after = COMMANDS[0]
    begin("kept")
    checkpoint(4, shards=1)
    calls = p.calls(line)
    for k in [k for k, call in enumerate(calls, 1) if call in ("create", "write", "exchange")]:
        begin("kept")
        checkpoint(4, shards=1)
        got = p.run(line, shim=f"*:{k} poke in/model-00001-of-00001.safetensors")
        now = [step for step in steps_of() if step == 4]
        if now:  # too late to be noticed, so it is what it was
            shutil.rmtree("out", ignore_errors=True)
            run(0, "restore run 4 -o out")
            expect(tree("out") in (new, tree("in")), f"changed at {k}: step 4 is neither")
        else:
            expect(got.returncode == 1 and re.search("(has|was) changed", got.stderr), f"changed at {k}: {got.returncode} {got.stderr}")
        clean()
    result("a file that changes while it is stored: no step, or the one of before the change")
else:
    print(f"skip - {GROUP}: no library can be preloaded")


def larger(step):
    """A checkpoint that takes longer."""
    shutil.rmtree("in", ignore_errors=True)
    os.mkdir("in")
    for i in range(2):
        data = model(i, step)
        body = data[8 + int.from_bytes(data[:8], "little"):] * 30
        head = b'{"a":{"dtype":"BF16","shape":[%d],"data_offsets":[0,%d]}}' % (len(body) // 2, len(body))
        write(f"in/{i}.safetensors", len(head).to_bytes(8, "little") + head + body)
    return tree("in")


shutil.rmtree("kept", ignore_errors=True)
shutil.rmtree("run", ignore_errors=True)
old = {}
for step in (1, 2, 3, 4):
    old[step] = larger(step)
    run(0, f"snapshot run in --step {step}")
os.rename("run", "kept")
old5 = larger(5)
for line, after in [("snapshot run in --step 5", {**old, 5: old5}), ("prune run --keep-last 1", {4: old[4]}), ("prune run --keep-every 2", {2: old[2], 4: old[4]})] if KILLS else []:
    r, killed, done = random.Random(line), 0, 0
    begin("kept")
    start = time.monotonic()
    p.run(line)
    took = time.monotonic() - start
    for i in range(KILLS):
        begin("kept")
        q = subprocess.Popen([tool, *line.split()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(r.random() * took * 1.5)
        q.kill()
        status = q.wait()
        killed += status == -signal.SIGKILL
        now = steps_of()
        restored({step: tree_of for step, tree_of in {**old, 5: old5}.items() if step in now} if now in (sorted(old), sorted(after)) else {})
        done += settled(line, old, after, f"kill {i} ({status})")
    result(f"{line}: {KILLS} random moments, {killed} before its end, {done} times it was done; every step that is listed comes back, and the next run does it")
p.end()
sys.exit(safety.failed)
