#!/usr/bin/env python3
"""The tool killed, and failing, at every place: before and after each system call that touches a file, and at random moments;
and each such call failing. After each, the old content or the new can be restored, nothing half has a final name, and the next
run removes what was left.
    KILLS=n   random moments of each command, 10 by default        ONLY=START,...   of the commands that begin so
    ERRNOS=...   the errors of calls that fail"""
import errno
import os
import random
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

# command, files at the start, the target that it replaces, what it makes
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
    """What is wrong with the files that are there; and after a run that cleans up."""
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
    """The same command once more makes what it was to make, if its input is still there."""
    line, files, target, want = command
    if line.startswith("apply"):
        return p.run(line).returncode == 0 and read("out") == p.content["s1"]
    if not os.path.exists(line.split()[-1]):
        return True
    text = line.split()
    return p.run(" ".join([text[0], "-f", *text[1:]])).returncode == 0 and want in p.restorable()


def bigger():
    """The same names, with checkpoints that take longer: sixty tensors' worth of each."""
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
p.end()
sys.exit(safety.failed)
