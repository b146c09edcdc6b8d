#!/usr/bin/env python3
"""crash_demo.py - kills training on several ranks again and again; it must end at the same bits as without kills.
Part of bitsnap; MIT licence, see bitsnap.h.

    crash_demo.py TRAIN_MPI ENGINE WORK [--ranks N] [--kills N] [--seed N] [--group N] TEXT...

Each kill comes at a random moment. It hits a trainer, the agent of a rank, or a whole rank with its agent and its shared memory,
as if its machine were gone; sometimes a rank and its partner at once, so that only files are left. The run is started again, and
continues from memory, from the partner of a lost rank, or from disk. Prints the times of snapshots and recoveries."""
import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

p = argparse.ArgumentParser()
p.add_argument("train"), p.add_argument("engine"), p.add_argument("work"), p.add_argument("text", nargs="+")
p.add_argument("--ranks", type=int, default=4), p.add_argument("--kills", type=int, default=50), p.add_argument("--seed", type=int, default=1)
p.add_argument("--policy", default="lossless"), p.add_argument("--group", default="0")
o = p.parse_args()
steps = 20 + 8 * o.kills
NAME, KINDS = f"crash-{os.getpid()}", ("model", "master", "exp_avg", "exp_avg_sq")
shutil.rmtree(o.work, ignore_errors=True)
os.makedirs(o.work)
work, train, engine = os.path.abspath(o.work), os.path.abspath(o.train), os.path.abspath(o.engine)
text = [shutil.copy(t, os.path.join(work, f"{i}.txt")) for i, t in enumerate(o.text)]  # edits during the run change nothing
environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
choose = random.Random(o.seed)


def command(out, more):
    return ["mpirun", "--oversubscribe", "-n", str(o.ranks), train, "--quiet", "--threads", "1", "--steps", str(steps), "--save", str(steps), "--layers", "2",
            "--dim", "64", "--context", "64", "--batch", "8", "--out", os.path.join(work, out), *more, *text]


def name(rank):
    return f"{NAME}.{rank}"


def segment(rank):
    return f"/dev/shm/bitsnap-{name(rank)}"


def agent(rank):
    said = subprocess.run([engine, "status", name(rank)], capture_output=True, text=True).stdout
    m = re.search(r"agent (\d+)$", said, re.M)
    return int(m[1]) if m else None


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, TypeError):
        pass


def trainers():
    """Finds the trainers of this run by the name in their command lines. Returns rank -> process."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            arguments = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
            if arguments[0].decode() != train or NAME.encode() not in arguments:
                continue
            ranks = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", open(f"/proc/{pid}/environ", "rb").read())
            found[int(ranks[1])] = int(pid)
        except (OSError, TypeError):
            continue
    return found


def progress():
    """Returns the last step that rank 0 has handed to the engine."""
    try:
        with open(os.path.join(work, "log.0"), "rb") as f:
            f.seek(max(0, os.path.getsize(f.name) - 400))
            return int(f.read().split(b"\n")[-2].split(b",")[0])
    except (OSError, IndexError, ValueError):
        return 0


def clean():
    for rank in range(o.ranks):
        kill(agent(rank))
        if os.path.exists(segment(rank)):
            os.unlink(segment(rank))


def failed(why):
    print("FAIL:", why)
    clean()
    sys.exit(1)


start = time.time()
done = subprocess.run(command("straight", []), env=environment, capture_output=True, text=True)
if done.returncode:
    failed("the undisturbed run: " + done.stderr[-400:])
print(f"undisturbed: {steps} steps on {o.ranks} ranks in {time.time() - start:.1f} s")

more = ["--engine", NAME, "--engine-program", engine, "--engine-disk", os.path.join(work, "disk"), "--engine-every", "5", "--engine-policy", o.policy, "--engine-group", o.group,
        "--engine-budget", "16", "--engine-log", os.path.join(work, "log")]
kills = {"trainer": 0, "agent": 0, "rank": 0, "pair": 0}
kinds = 5 * ["trainer", "agent", "rank"] + ["pair"]
recoveries, messages, launches, lost, furthest = {"memory": [], "partner": [], "disk": []}, {}, 0, {"memory": 0, "disk": 0}, 0
start = time.time()
while True:
    launches += 1
    reached = furthest
    log = open(os.path.join(work, "said"), "w+")
    run = subprocess.Popen(command("crashed", more), env=environment, stdout=log, stderr=log)
    begun, first = time.time(), progress()
    while sum(kills.values()) < o.kills and run.poll() is None:
        goal, until = progress() + choose.randint(1, 6), time.time() + 60
        while progress() < goal and run.poll() is None and time.time() < until:
            time.sleep(0.01)
        time.sleep(choose.random() * 0.05)
        if run.poll() is not None:
            break
        if time.time() >= until:
            run.kill()
            failed(f"no progress behind step {progress()}")
        what, rank = choose.choice(kinds), choose.randrange(o.ranks)
        pids = trainers()
        if what != "agent" and rank not in pids:
            continue
        kills[what] += 1
        furthest = max(furthest, progress())
        for r in (rank, (rank + 1) % o.ranks) if what == "pair" else (rank,):
            if what != "trainer":
                kill(agent(r))
            if what in ("rank", "pair") and os.path.exists(segment(r)):
                os.unlink(segment(r))
        if what != "agent":
            kill(pids[rank])
            break
    status = run.wait()
    log.seek(0)
    said = log.read()
    for rank, step, source, *times in re.findall(r"rank (\d+): step (\d+) from (\w+), in ([\d.]+) ms: ([\d.]+) to agree, ([\d.]+) to fetch, ([\d.]+) to", said):
        recoveries[source].append([float(t) for t in times])
        kind = "disk" if " from disk" in said else "memory"
        lost[kind] = max(lost[kind], reached - int(step))
    for message in re.findall(r"^train_gpt: rank \d+: (?!step \d+ from)(.*)$", said, re.M):
        message = re.sub(r"\d+", "N", message)
        messages[message] = messages.get(message, 0) + 1
    if not status:
        break
    if "train_gpt:" in said and re.search(r"^train_gpt: (?!rank)", said, re.M):
        failed(re.search(r"^train_gpt: (?!rank).*", said, re.M)[0])
    if launches > 4 * o.kills + 10:
        failed("it does not end: " + said[-400:])
seconds = time.time() - start

rows = []
for rank in range(o.ranks):
    for line in open(os.path.join(work, f"log.{rank}")):
        cells = line.strip().split(",")
        if len(cells) == 8 and cells[1] == "0":
            rows.append([float(c) for c in cells])
disk = [os.path.getsize(os.path.join(folder, f)) for folder, _, files in os.walk(os.path.join(work, "disk")) for f in files if f.endswith(".bsnap")]


def middle(numbers):
    return sorted(numbers)[len(numbers) // 2] if numbers else 0


print(f"disturbed: {sum(kills.values())} kills ({', '.join(f'{n} {k}' for k, n in kills.items())}), {launches} starts, {seconds:.1f} s; "
      f"at most {lost['memory']} step{'s' * (lost['memory'] != 1)} to do again, {lost['disk']} from disk")
print(f"of each rank, the middle of {len(rows)} snapshots:")
print(f"  state                    {middle([r[5] for r in rows]) / 1024:9.0f} KiB")
print(f"  in memory, a snapshot    {middle([r[6] for r in rows]) / 1024:9.0f} KiB")
print(f"  to others                {middle([r[7] for r in rows]) / 1024:9.0f} KiB")
print(f"  to disk, a file          {middle(disk) / 1024:9.0f} KiB")
print(f"  blocks training          {1000 * middle([r[2] for r in rows]):9.2f} ms, of which {1000 * middle([r[3] for r in rows]):.2f} to encode; memcpy "
      f"of the state {1000 * middle([r[4] for r in rows]):.2f} ms")
for source, times in recoveries.items():
    print(f"  recovery from {source:8} {middle([t[0] for t in times]):12.1f} ms, {len(times)} times: opened, "
          "{:.1f} to agree, {:.1f} to fetch, {:.1f} to decode".format(*(middle([t[i] for t in times]) for i in (1, 2, 3))))
for message, times in sorted(messages.items()):
    print(f"  said {times} times: {message}")
clean()
different = [k for k in KINDS if open(f"{work}/straight/gpt-{steps:05}-{k}.safetensors", "rb").read() != open(f"{work}/crashed/gpt-{steps:05}-{k}.safetensors", "rb").read()]
if different:
    failed("not the bits of the undisturbed run: " + ", ".join(different))
if not middle([r[7] for r in rows]):
    failed("nothing was sent to others")
print("PASS: the same bits as the undisturbed run")
