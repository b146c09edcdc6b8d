#!/usr/bin/env python3
"""Kills the tool before and after each system call that touches a file, and at random moments, and makes each such call fail.
Afterwards the old or the new content can be restored, no partial file has a final name, and the next run removes leftovers.
    KILLS=n   random moments for each command, 10 by default        ONLY=START,...   only commands that begin so
    ERRNOS=...   the errors of failing calls"""
import errno
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time

import safety
from safety import Place, read, report, tool, write

GROUP = "kill"
ONLY = os.environ.get("ONLY")
KILLS = int(os.environ.get("KILLS", "10"))
ERRORS = [int(getattr(errno, e)) for e in os.environ.get("ERRNOS", "ENOSPC EIO EPERM").split()]
p = Place()

# command, input files, target, the checkpoint that it makes
COMMANDS = [
    ("c --rm -o out s1", "s0 s1", None, "s1"), ("c --rm -f -o out s1", "s1", "out", "s1"), ("c --rm -f -b s0 -o out s1", "s0 s1", "out", "s1"),
    ("d --rm -o out s1.bsnap", "s1.bsnap", None, "s1"), ("d --rm -f -b s0 -o out d1", "s0 d1", "out", "s1"), ("apply d1 out", "d1", "out", "s1"),
    ("merge -f -o out d1 d2", "s0 d1 d2", "out", "s2"), ("merge -f -b s0 -o out d1 d2", "s0 d1 d2", "out", "s2"), ("invert -f -o out d1", "s1 d1", "out", "s0"),
]
if ONLY:
    COMMANDS = [c for c in COMMANDS if any(c[0].startswith(o) for o in ONLY.split(","))]


def begin(command):
    line, files, target, want = command
    p.begin(files)
    if target:
        write(target, p.content["s0" if line.startswith("apply") else "other"])
    return p.state(), p.restorable()


def settled(command, before, old, final):
    """The problems with the files, now and after a run that cleans up."""
    line, files, target, want = command
    wrong = []
    for turn in ("", " after the next run"):
        state = p.state()
        now = p.restorable(state)
        lost = old - now
        if target and want in now:
            lost -= {"other"} if not line.startswith("apply") else old - p.inputs
        if lost:
            wrong.append(f"lost{turn}: {sorted(lost)}")
        for name, data in state.items():
            if not name.startswith("./.bitsnap-") and name not in ("./zz", "./zz.in") and data not in (before.get(name), final.get(name)):
                wrong.append(f"{name}{turn}: neither old nor new, {len(data)} bytes")
        if not turn:
            write("zz.in", p.content["newer"])
            p.run("c -q -f -o zz zz.in")
    if any("-old-" not in n for n in p.leftovers()):
        wrong.append("left behind: " + " ".join(p.leftovers()))
    return wrong, len(p.leftovers())


def again(command):
    """True if repeating the command gives its result, or its input is gone."""
    line, files, target, want = command
    if line.startswith("apply"):
        return p.run(line).returncode == 0 and read("out") == p.content["s1"]
    if not os.path.exists(line.split()[-1]):
        return True
    text = line.split()
    return p.run(" ".join([text[0], "-f", *text[1:]])).returncode == 0 and want in p.restorable()


def bigger():
    """Replaces the checkpoints by ones of 60 times the size, which take longer."""
    for name in ("s0", "s1", "s2", "other", "newer"):
        data = p.content[name][8 + int.from_bytes(p.content[name][:8], "little"):] * 60
        text = b'{"a":{"dtype":"BF16","shape":[540000],"data_offsets":[0,1080000]}}'
        p.content[name] = struct.pack("<Q", len(text)) + text + data
    p.adopt()


if not p.has_shim:
    print(f"skip - {GROUP}: no library can be preloaded")
else:
    fails = kills = places = kept = 0
    bad = []
    for command in COMMANDS:
        line = command[0]
        before, old = begin(command)
        p.inputs = p.restorable({n: d for n, d in before.items() if n != "./out"})
        calls = p.calls(line)
        final = p.state()
        places += len(calls)
        for k, call in enumerate(calls, 1):
            plans = [f"fail {e}" for e in (ERRORS if call in ("write", "fsync", "create", "unlink", "exchange", "move", "rename", "close") else ERRORS[-1:])]
            for action in plans + ["kill", "killafter"]:
                begin(command)
                got = p.run(line, shim=f"*:{k} {action}")
                cell = f"{line}: {action} at {k} ({call} {p.paths[k - 1]})"
                if action.startswith("fail"):
                    fails += 1
                    if got.returncode not in (0, 1) or (got.returncode == 1 and not got.stderr.startswith("bitsnap: ")):
                        bad.append(f"{cell}: status {got.returncode} {got.stderr}")
                    if got.returncode == 0 and command[3] not in p.restorable():
                        bad.append(f"{cell}: status 0, and nothing is made")
                else:
                    kills += 1
                    if got.returncode != -signal.SIGKILL:
                        bad.append(f"{cell}: status {got.returncode}")
                wrong, left = settled(command, before, old, final)
                kept += left > 0
                bad += [f"{cell}: {w}" for w in wrong]
                if not wrong and not again(command):
                    bad.append(f"{cell}: the same command fails afterwards")
    report(GROUP, not bad, f"{len(COMMANDS)} commands, {places} calls: each failing ({fails} runs), or the last before or after it ({kills} runs); "
           f"nothing lost, nothing half, {kept} times an old file kept under another name", f"{len(bad)} bad: " + "; ".join(bad[:5]))

bigger()
for command in COMMANDS if KILLS else []:
    line = command[0]
    bad, killed, left_one, kept = [], 0, 0, 0
    before, old = begin(command)
    p.inputs = p.restorable({n: d for n, d in before.items() if n != "./out"})
    start = time.monotonic()
    p.run(line)
    took = time.monotonic() - start
    final = p.state()
    r = random.Random(line)
    for i in range(KILLS):
        begin(command)
        q = subprocess.Popen([tool, line.split()[0], "-T2", *line.split()[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(r.random() * took * 1.1)
        q.kill()
        status = q.wait()
        killed += status == -signal.SIGKILL
        left_one += bool(p.leftovers())
        wrong, left = settled(command, before, old, final)
        kept += left > 0
        bad += [f"kill {i}: {w}" for w in wrong]
        if status not in (0, -signal.SIGKILL):
            bad.append(f"kill {i}: status {status}")
        if not wrong and not again(command):
            bad.append(f"kill {i}: the same command fails afterwards")
    report(GROUP, not bad, f"{line}: {KILLS} random moments, {killed} before its end, {left_one} left a file, which the next run removed, {kept} times an old file "
           "kept; nothing lost, nothing half", f"{len(bad)} bad: " + "; ".join(bad[:5]))

# ------------------------------------------------------------------ whole folders: the same command goes on, and does nothing twice
SHARDS = {"in/model-00001-of-00003.safetensors": "s0", "in/model-00002-of-00003.safetensors": "s1", "in/model-00003-of-00003.safetensors": "s2",
          "in/optimizer/states.safetensors": "other"}


def folder():
    """A checkpoint in three files, with its index, configurations, a file of an optimizer and a link."""
    p.begin("")
    os.makedirs("in/optimizer")
    os.mkdir("in/empty")
    for name, content in SHARDS.items():
        write(name, p.content[content])
    write("in/model.safetensors.index.json", b'{"weight_map":{"a":"model-00001-of-00003.safetensors"}}')
    write("in/config.json", b"{}")
    write("in/optimizer/rng.pt", bytes(range(256)) * 200)
    os.symlink("model-00001-of-00003.safetensors", "in/last.safetensors")


def below(state, name):
    """The files below a folder, by relative name; None if it does not exist."""
    return {n.split("/", 2)[2]: d for n, d in state.items() if n.startswith(f"./{name}/")} if f"./{name}" in state else None


def inodes(name):
    return {os.path.relpath(os.path.join(b, n), name): os.lstat(os.path.join(b, n)).st_ino for b, _, names in os.walk(name) for n in names}


def make_folders():
    """Makes `in` and `packed`, and returns the files of both."""
    folder()
    one = p.run("c -r -o packed in").returncode
    two = p.run("d -r -o back packed").returncode
    state = p.state()
    report(GROUP, one == two == 0 and below(state, "in") == below(state, "back") and len(below(state, "packed")) == len(below(state, "in")) and
           not p.leftovers(), "a folder of three shards, index, configurations, optimizer and link comes back byte for byte", str(sorted(state)))
    return {"in": below(state, "in"), "packed": below(state, "packed")}


def kill_folder(line, want, old, moment):
    """Runs the command until `moment` ends it, then twice. Returns the problems."""
    folder()
    if want == "in":
        p.run("c -r -o packed in")
    if old:
        os.makedirs("out/deep")
        write("out/deep/old", b"old")
        write("out/config.json", b"older")
    before = below(p.state(), "out")
    status = moment()
    now, wrong, again = below(p.state(), "out"), [], True
    if now not in (before, trees[want]):
        wrong.append(f"half: {sorted(now or [])}")
    done = [inodes(n) for n in os.listdir(".") if n.startswith(".bitsnap-part~")]
    finished = read(".bitsnap-done~out").split(b"\0")[1:-1] if os.path.exists(".bitsnap-done~out") and now == before else []
    got = p.run(line)
    if got.returncode and not (got.returncode == 1 and now == trees[want] and "exists already" in got.stderr):
        wrong.append(f"then {got.returncode}: {got.stderr}")
    if below(p.state(), "out") != trees[want]:
        wrong.append(f"then it is another: {sorted(below(p.state(), 'out') or [])}")
    left = [n for n in os.listdir(".") if n.startswith(".bitsnap-")] + p.leftovers()
    if left:
        wrong.append(f"left behind: {left}")
    names = [r.decode().split(" ", 14)[-1] for r in finished]
    again = [n for n in names if done and done[0].get(n) != inodes("out").get(n)]
    if again:
        wrong.append(f"done twice: {again}")
    return status, wrong, len(names)


trees = make_folders()
FOLDERS = [("c -r -o out in", "packed", False), ("c -r -f -o out in", "packed", True), ("d -r -o out packed", "in", False), ("d -r -f -o out packed", "in", True)]
for line, want, old in FOLDERS if KILLS and not ONLY else []:
    bad, killed, kept = [], 0, 0
    r = random.Random(line)
    start = time.monotonic()
    kill_folder(line, want, old, lambda: p.run(line).returncode)
    took = (time.monotonic() - start) / 2

    def moment():
        q = subprocess.Popen([tool, *line.split()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(r.random() * took)
        q.kill()
        return q.wait()
    for i in range(KILLS):
        status, wrong, finished = kill_folder(line, want, old, moment)
        killed += status == -signal.SIGKILL
        kept += finished
        bad += [f"kill {i} ({status}): {w}" for w in wrong]
    report(GROUP, not bad, f"{line}: {KILLS} random moments, {killed} before its end; each time the same command made the folder, and {kept} files that were "
           "finished were not made again", f"{len(bad)} bad: " + "; ".join(bad[:5]))
if p.has_shim and not ONLY:
    bad, runs = [], 0
    SHARDS = {"in/a.safetensors": "newer"}
    p.content["newer"] = safety.model(3, 0)
    trees = make_folders()
    line = "c -r -f -o out in"
    folder()
    os.mkdir("out")
    calls = p.calls(line)
    for k, call in enumerate(calls, 1):
        for action in (("kill", "killafter", f"fail {errno.EIO}") if call in ("create", "write", "exchange", "rename", "unlink") else ("kill",)):
            status, wrong, _ = kill_folder(line, "packed", True, lambda: p.run(line, shim=f"*:{k} {action}").returncode)
            runs += 1
            bad += [f"{action} at {k} ({call} {p.paths[k - 1]}, {status}): {w}" for w in wrong]
    report(GROUP, not bad, f"{line}: {len(calls)} calls, each the last or failing ({runs} runs): old or new, and the same command makes it", f"{len(bad)} bad: " + "; ".join(bad[:5]))


def step_folder(name, step):
    """Two files and a configuration."""
    os.makedirs(f"{name}/optimizer")
    write(f"{name}/a.safetensors", p.content[f"s{step}"])
    write(f"{name}/optimizer/b.safetensors", p.content[f"s{step + 1}"])
    write(f"{name}/config.json", b"%d" % step)


if p.has_shim and not ONLY:
    bad, runs, line = [], 0, "apply deltas out"
    p.begin("")
    step_folder("out", 0)
    step_folder("new", 1)
    code = p.run("c -q -r -b out -o deltas new").returncode
    before, after, deltas = below(p.state(), "out"), below(p.state(), "new"), os.path.join(p.top, "deltas")
    shutil.rmtree("new")
    shutil.copytree("deltas", deltas)
    calls = p.calls(line)
    if code or below(p.state(), "out") != after or "exchange" not in calls:
        bad.append("it does not make the next step")
    for k, call in enumerate(calls, 1):
        for action in ("kill", "killafter", f"fail {errno.EIO}") if call in ("exchange", "rename", "unlink") else ("kill",):
            p.begin("")
            step_folder("out", 0)
            shutil.copytree(deltas, "deltas")
            status = p.run(line, shim=f"*:{k} {action}").returncode
            cell, runs = f"{action} at {k} ({call} {p.paths[k - 1]}, {status})", runs + 1
            if below(p.state(), "out") not in (before, after):
                bad.append(f"{cell}: half")
            got = p.run(line)
            if got.returncode or below(p.state(), "out") != after or [n for n in os.listdir(".") if n.startswith(".bitsnap-")] + p.leftovers():
                bad.append(f"{cell}: then {got.returncode}, {os.listdir('.')} {got.stderr}")
    report(GROUP, not bad, f"{line}: {len(calls)} calls, each the last or failing ({runs} runs): the step before or this one, and the same command makes it",
           f"{len(bad)} bad: " + "; ".join(bad[:5]))
p.end()
sys.exit(safety.failed)
