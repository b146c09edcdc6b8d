#!/usr/bin/env python3
"""Runs the shell blocks of README.md and docs/, and the examples of the help texts. Each document and each help text starts in
a fresh directory with its input files. Its blocks run in order, each in the state that earlier blocks leave. Targets of make
that take minutes (demo, test, check, bench) or write elsewhere (install) do not run; they must exist."""
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
tool = os.path.abspath(os.environ.get("BITSNAP", os.path.join(root, "build/bitsnap")))
shell = shutil.which("bash")
LONG = {"demo", "test", "check", "bench", "lib", "install", "engine", "bench-engine", "crash-demo", "offload-test"}
failed = False


def report(good, what, more=""):
    global failed
    failed |= not good
    print(f"{'ok' if good else 'not ok'} - shell: {what}{': ' + more if more and not good else ''}")


def safetensors(path, tensors, seed, steps=0, cast=False):
    """F32 numbers, or with `cast` BF16, like weights. Each step changes some of them a little."""
    header, data = [], b""
    for name, count in tensors:
        r = random.Random(f"{seed} {name}")
        bits = [struct.unpack("<I", struct.pack("<f", r.gauss(0, 0.02) ** (2 if name.endswith("_sq") else 1)))[0] for _ in range(count)]
        for step in range(steps):
            r = random.Random(f"{step} {name}")
            for i in r.sample(range(count), count // 50):
                bits[i] ^= 1 << 16
        more = struct.pack(f"<{count}H", *(b >> 16 for b in bits)) if cast else struct.pack(f"<{count}I", *bits)
        header.append(f'"{name}":{{"dtype":"{"BF16" if cast else "F32"}","shape":[{count}],"data_offsets":[{len(data)},{len(data) + len(more)}]}}')
        data += more
    text = ("{" + ",".join(header) + "}").encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


W = [("w", 6000), ("b", 300)]
files = {  # makers of input files, by name
    "model": lambda p: safetensors(p, W, 1),
    "master": lambda p: safetensors(p, W, 1),
    "model.bf16": lambda p: safetensors(p, W, 1, cast=True),
    "optimizer": lambda p: safetensors(p, [("w.exp_avg", 6000), ("w.exp_avg_sq", 6000)], 2),
    "blocks": lambda p: safetensors(p, [("layers.0.w", 600), ("layers.0.b", 20), ("layers.1.w", 600)], 3),
    "states": lambda p: safetensors(p, [("w.exp_avg", 6000), ("w.exp_avg_sq", 6000)], 2),
    "step1": lambda p: safetensors(p, W, 1, 1, True), "step2": lambda p: safetensors(p, W, 1, 2, True),
    "step3": lambda p: safetensors(p, W, 1, 3, True), "step1000": lambda p: safetensors(p, W, 1, 4),
    "a": lambda p: safetensors(p, W, 1), "b": lambda p: safetensors(p, W, 1),
    "sunday": lambda p: safetensors(p, W, 1, 0, True), "monday": lambda p: safetensors(p, W, 1, 1, True),
    "tuesday": lambda p: safetensors(p, W, 1, 2, True), "wednesday": lambda p: safetensors(p, W, 1, 3, True),
}
folder = "mkdir checkpoint; cp model.safetensors checkpoint; echo {} >checkpoint/config.json; "
packed = folder + "bitsnap compress -q -r checkpoint -o packed; rm -r checkpoint; "
deltas = "for d in 'step1 step2' 'step2 step3'; do set -- $d; bitsnap compress -q --self-contained -b $1.safetensors -o $2.delta $2.safetensors; done; "
week = ("for d in 'sunday monday' 'monday tuesday' 'tuesday wednesday'; do set -- $d; "
        "bitsnap compress -q --self-contained -b $1.safetensors -o $2.delta $2.safetensors; done; rm [mtw]*day.safetensors")
start = {  # .safetensors files, and commands before the first block
    "README.md": ("model optimizer step1 step2", ""),
    "docs/TOOL.md": ("model model.bf16 optimizer step1 step2 step3", folder + "mkdir step; mv model.bf16.safetensors step/model.safetensors; cp model.safetensors step/master.safetensors; "
                     "mkdir checkpoints; cp {model,step[12]}.safetensors checkpoints; "
                     "for i in 1 2 3; do mkdir -p run/step${i}00; cp step$i.safetensors run/step${i}00/model.safetensors; echo {} >run/step${i}00/config.json; done"),
    "": ("model step1 step2", folder),
    "compress": ("model optimizer step1 step2 step3 master model.bf16", folder + "mkdir backup remote; cp model.safetensors remote; head -c 2000 model.safetensors >weights.bin"),
    "decompress": ("model step1 step2 step3", packed + deltas + "bitsnap compress -q --rm model.safetensors; bitsnap compress -q -o step1.bsnap step1.safetensors; rm step[23].safetensors"),
    "test": ("model step1 step2", packed + deltas.replace("'step2 step3'", "") + "bitsnap compress -q model.safetensors"),
    "info": ("model step1 step2 step3", deltas + "bitsnap compress -q model.safetensors; bitsnap compress -q -o step1.bsnap step1.safetensors"),
    "benchmark": ("model", ""),
    "compare": ("model a b states step1 step2 step1000", "mkdir checkpoint; cp [ab].safetensors checkpoint/; rm checkpoint/b.safetensors; "
                "bitsnap compress -q -r checkpoint -o packed; " + deltas.replace("'step2 step3'", "") + "bitsnap compress -q model.safetensors; "
                "cp step1000.safetensors x; bitsnap compress -q -o step1000.bsnap step1000.safetensors; cp step1000.bsnap step2000.bsnap; rm x; "
                "bitsnap compress -q --adam standard -o s.bsnap states.safetensors; bitsnap decompress -q -o restored.safetensors s.bsnap"),
    "apply": ("step1 step2", deltas.replace("'step2 step3'", "") + "mkdir live new; cp step1.safetensors live/a.safetensors; cp step2.safetensors new/a.safetensors; bitsnap compress -q -r -b live -o deltas new; mv step1.safetensors live.safetensors; rm step2.safetensors"),
    "merge": ("sunday monday tuesday wednesday", week),
    "invert": ("step1 step2", deltas.replace("'step2 step3'", "") + "mv step2.safetensors live.safetensors"),
}
start["extract"] = ("model blocks step1 step2", folder + deltas.replace("'step2 step3'", "") + "bitsnap compress -q model.safetensors")
start["snapshot"] = ("model step1", folder)
start["log"] = start["verify"] = start["restore"] = start["prune"] = start["fsck"] = (
    "model step1", folder + "bitsnap snapshot run.store checkpoint --step 1000; cp step1.safetensors checkpoint/model.safetensors; bitsnap snapshot run.store checkpoint")
# replace external programs; they use the directory
stubs = {"curl": 'shift; cat "remote/${1##*/}"', "ssh": 'shift; exec sh -c "$*"'}


class Place:
    """A fresh directory for one document."""

    def __init__(self, what):
        self.what = what
        self.whole = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.whole.name, "work")
        binaries = os.path.join(self.whole.name, "bin")
        os.makedirs(os.path.join(self.path, "build"))
        os.mkdir(binaries)
        for link in (os.path.join(self.path, "build/bitsnap"), os.path.join(binaries, "bitsnap")):
            os.symlink(tool, link)
        for name, text in stubs.items():
            with open(os.path.join(binaries, name), "w", encoding="utf-8") as f:
                f.write("#!/bin/sh\n" + text + "\n")
            os.chmod(os.path.join(binaries, name), 0o755)
        self.env = dict(os.environ, PATH=binaries + ":" + os.environ["PATH"])
        names, before = start.get(what, start["README.md"])
        for name in names.split():
            files[name](os.path.join(self.path, name + ".safetensors"))
        self.run(before, "its start")

    def run(self, text, what):
        ran = subprocess.run([shell, "-euxo", "pipefail", "-c", text], cwd=self.path, env=self.env, capture_output=True, text=True, errors="replace")
        name = self.what if self.what.endswith(".md") else f"bitsnap {self.what} --help".replace("  ", " ")
        if ran.returncode or what != "its start":
            report(not ran.returncode, f"{name}, {what}", f"exit status {ran.returncode}: ..." + ran.stderr[-400:].replace("\n", " | "))
        return ran.stdout


def without_make(text, what):
    """The lines of a block that run here."""
    lines = []
    for line in text.split("\n"):
        m = re.match(r"make\b([^#]*)", line)
        if not m:
            lines.append(line)
            continue
        words = m[1].split()
        targets = [w for w in words if "=" not in w and w[0] != "-"]
        found = subprocess.run(["make", "-n", *words], cwd=root, capture_output=True, text=True)
        if targets and not set(targets) <= LONG:
            report(False, f"{what}: {line}", "neither known as long nor run")
        report(found.returncode == 0, f"{what}: '{('make ' + m[1].strip()).strip()}' has its target (not run here)", found.stderr[:200])
    return "\n".join(lines)


if not shell:
    print("skip - shell: needs bash")
    sys.exit(0)
documents = ["README.md"] + sorted("docs/" + f for f in os.listdir(os.path.join(root, "docs")) if f.endswith(".md")) + ["docs/examples/engine/README.md"]
blocks = 0
for document in documents:
    with open(os.path.join(root, document), encoding="utf-8") as f:
        texts = re.findall(r"^```(?:sh|bash|shell|console)\n(.*?)^```", f.read(), re.M | re.S)
    if not texts:
        continue
    place = Place(document)
    for number, text in enumerate(texts, 1):
        text = without_make(text, f"{document}, block {number}")
        blocks += 1
        if text.strip():
            place.run(text, f"block {number} runs")
    if document == "README.md":
        files["model"](os.path.join(place.path, "as-it-was"))
        place.run("cmp as-it-was model.safetensors; cmp step2.safetensors live.safetensors", "what it restores is what was there")
report(blocks >= 5, f"{blocks} blocks found")

for command in ["", "compress", "decompress", "test", "info", "benchmark", "compare", "apply", "merge", "invert", "extract", "snapshot", "log", "restore", "verify", "prune", "fsck"]:
    text = subprocess.run([tool, *command.split(), "--help"], capture_output=True, text=True, check=True).stdout
    examples = text.split("\nExamples\n", 1)[-1].split("\nA FILE of -")[0]
    lines = [re.split(r" {3,}", line[2:])[0] for line in examples.split("\n") if re.match(r"  \S", line)]
    if len(lines) < 2 or "\nExamples\n" not in text:
        report(False, f"bitsnap {command} --help has examples")
        continue
    Place(command).run("\n".join(lines), f"{len(lines)} examples run")
sys.exit(failed)
