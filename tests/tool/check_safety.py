#!/usr/bin/env python3
"""No command loses a checkpoint. Tests a table of situations, commands, -f, --rm and links. After every cell the old or the new
content can be restored from the files; a refused command changes no file."""
import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

import safety
from safety import Place, read, report, tool, write

p = Place()
GROUP = "safety"


class Table:
    """The cells of one situation. One line of output sums them up."""

    def __init__(self, what):
        self.what, self.cells, self.bad = what, 0, []

    def __enter__(self):
        return self

    def check(self, cell, good, more=""):
        self.cells += 1
        if not good:
            self.bad.append(f"{cell} ({more})")

    def refused(self, cell, before, got, says):
        """Expects an error with these words, and no change of files."""
        after = p.state()
        changed = sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
        self.check(cell, got.returncode == 1 and got.stderr.count("\n") == 1 and says in got.stderr and not changed,
                   f"status {got.returncode}, {got.stderr.strip()}, changed: {changed}")

    def __exit__(self, kind, value, trace):
        if not kind:
            report(GROUP, not self.bad, f"{self.what}, {self.cells} cells", f"{len(self.bad)} bad: " + "; ".join(self.bad[:4]))


# ------------------------------------------------------------------ an output that is also an input
READS = [  # command, its inputs; OUT is the output
    ("c -o OUT s0", "s0"), ("c -b s0 -o OUT s1", "s0 s1"), ("c -b s0.bsnap -o OUT s1", "s0.bsnap s1"), ("c -b s0.bsnap -b d1 -o OUT s2", "s0.bsnap d1 s2"),
    ("d -o OUT s0.bsnap", "s0.bsnap"), ("d -b s0 -o OUT d1", "s0 d1"), ("d -b s0.bsnap -b d1 -o OUT d2", "s0.bsnap d1 d2"),
    ("merge -o OUT d1 d2", "d1 d2"), ("merge -b s0 -o OUT d1 d2", "s0 d1 d2"), ("invert -o OUT d1", "d1"), ("invert -b s0 -o OUT d1", "s0 d1"),
    ("extract -o OUT s0.bsnap a", "s0.bsnap"), ("extract -b s0 -b d1 -o OUT d2 a", "s0 d1 d2"),
]
with Table("outputs that are inputs are refused") as t:
    for line, inputs in READS:
        for victim in inputs.split():
            for kind in ("name", "spelled", "symlink", "hardlink", "dirlink"):
                for force in ("", "-f"):
                    for rm in ("", "--rm") if line[0] in "cd" else ("",):
                        p.begin(inputs)
                        out = {"name": victim, "spelled": f"./../{os.path.basename(os.getcwd())}/{victim}", "dirlink": f"here/{victim}"}.get(kind, "link")
                        if kind == "symlink":
                            os.symlink(victim, "link")
                        elif kind == "hardlink":
                            os.link(victim, "link")
                        elif kind == "dirlink":
                            os.symlink(".", "here")
                        before = p.state()
                        text = line.replace("OUT", out).split()
                        got = p.run(" ".join([text[0], force, rm, *text[1:]]))
                        t.refused(f"{' '.join(text)} {force} {rm} by {kind}", before, got, "choose another output with -o")
    # default names
    p.begin("s0 s1")
    p.run("c --rm s0")
    os.rename("s1", "s0")
    for force in ("", "-f"):
        for rm in ("", "--rm"):
            before = p.state()
            t.refused(f"c {force} {rm} -b s0.bsnap s0", before, p.run(f"c {force} {rm} -b s0.bsnap s0"), "is also the base s0.bsnap")
    p.begin("d1")
    write("d1.bsnap", read("d1"))
    write("s0.safetensors", p.content["s0"])
    os.unlink("d1")
    os.link("s0.safetensors", "d1")
    before = p.state()
    t.refused("d -f -b s0.safetensors d1.bsnap", before, p.run("d -f --rm -b s0.safetensors d1.bsnap"), "is also the base s0.safetensors")
    # the output of one input is the next input, or its output
    p.begin("s0 s1")
    os.rename("s1", "s0.bsnap")
    for force in ("", "-f"):
        before = p.state()
        got = p.run(f"c {force} --dtype bf16 s0 s0.bsnap")
        t.check(f"c {force} s0 s0.bsnap", got.returncode == 1 and "is also an input (s0.bsnap)" in got.stderr and p.state().items() >= before.items(), got.stderr)
    p.begin("s0")
    got = p.run("c --dtype bf16 s0 s0.bsnap")
    t.check("c s0 s0.bsnap, which is to come", got.returncode == 1 and "is also an input" in got.stderr and p.restorable() == {"s0"}, got.stderr)
    p.begin("s0")
    os.symlink(".", "here")
    got = p.run("c -f --rm s0 here/s0")
    t.check("c --rm s0 here/s0", got.returncode == 1 and p.restorable() == {"s0"}, got.stderr)
    p.begin("s0")
    got = p.run("c -f s0 s0")
    t.check("c -f s0 s0", got.returncode == 1 and "is already the output" in got.stderr and p.restorable() == {"s0"}, got.stderr)
    # standard output
    for line, inputs in READS:
        for victim in inputs.split():
            p.begin(inputs)
            before = p.state()
            with open(victim, "ab") as out:
                got = p.run(line.replace("OUT", "-"), stdout=out)
            t.refused(f"{line} >>{victim}", before, got, "(standard output)")
    for line, inputs in [("c --json -f -o x s0", "s0"), ("c --dry-run --adam small s0", "s0"), ("c --json -f -b s0.bsnap -o x s1", "s0.bsnap s1"), ("d --json -f -o x s0.bsnap", "s0.bsnap"),
                         ("i --json -b s0 d1", "s0 d1"), ("i d1", "d1"), ("t s0.bsnap", "s0.bsnap"), ("benchmark s0", "s0"), ("apply d1 s0", "d1 s0"), ("merge --json -o x d1 d2", "d1 d2"),
                         ("compare s0 s0.bsnap", "s0 s0.bsnap")]:
        for victim in inputs.split():
            p.begin(inputs)
            before = p.state()
            with open(victim, "r+b") as out:
                got = p.run(line, stdout=out)
            says = "is the file that standard output leads to"
            if line.startswith("compare"):
                t.check(f"{line} 1<>{victim}", got.returncode == 2 and says in got.stderr and p.state() == before, got.stderr)
            else:
                t.refused(f"{line} 1<>{victim}", before, got, says)
    p.begin("s0")
    with open("s0", "r+b") as out:
        got = p.run("c -o x s0", stdout=out)
    t.check("c -o x s0 1<>s0 prints nothing", got.returncode == 0 and p.restorable() == {"s0"}, got.stderr)
    # weights, and a moment that is read beside the file
    p.begin("s0")
    for name in ("adam_m", "adam_v", "w"):
        write(name, p.content["s0"])
    for victim in ("w", "adam_v", "adam_m"):
        before = p.state()
        t.refused(f"c --adam stage -o {victim}", before, p.run(f"c -f --adam stage --weights w -o {victim} adam_m"), "choose another output with -o")

# ------------------------------------------------------------------ outputs that are there already
WRITES = [  # command, inputs, the checkpoint that the output holds
    ("c -o OUT s1", "s1", "s1"), ("c -b s0 -o OUT s1", "s0 s1", "s1"), ("d -o OUT s1.bsnap", "s1.bsnap", "s1"), ("d -b s0 -o OUT d1", "s0 d1", "s1"),
    ("merge -o OUT d1 d2", "s0 d1 d2", "s2"), ("merge -b s0 -o OUT d1 d2", "s0 d1 d2", "s2"), ("invert -o OUT d1", "s1 d1", "s0"), ("invert -b s0 -o OUT d1", "s0 d1", "s0"),
]
with Table("outputs that are there are replaced only with -f, and then as a whole") as t:
    for line, inputs, want in WRITES:
        for kind in ("absent", "file", "read-only", "symlink", "dangling", "hardlink", "directory"):
            for force in ("", "-f"):
                for rm in ("", "--rm") if line[0] in "cd" else ("",):
                    p.begin(inputs)
                    if kind in ("file", "read-only"):
                        write("out", p.content["other"])
                    if kind == "read-only":
                        os.chmod("out", 0o444)
                    if kind in ("symlink", "hardlink"):
                        write("real", p.content["other"])
                        (os.symlink if kind == "symlink" else os.link)("real", "out")
                    if kind == "dangling":
                        os.symlink("nowhere", "out")
                    if kind == "directory":
                        os.mkdir("out")
                    before = p.state()
                    old = p.restorable(before)
                    text = line.replace("OUT", "out").split()
                    cell = f"{' '.join(text)} {force} {rm} {kind}"
                    got = p.run(" ".join([text[0], force, rm, *text[1:]]))
                    if kind == "directory" or (kind != "absent" and not force):
                        t.refused(cell, before, got, "is a directory" if kind == "directory" else "exists already")
                        continue
                    now = p.restorable()
                    lost = old - now - {"other"}
                    kept = kind != "hardlink" or read("real") == p.content["other"]
                    kept = kept and (kind != "symlink" or os.path.islink("out"))
                    source = text[-1]
                    t.check(cell, got.returncode == 0 and not got.stderr and want in now and not lost and kept and os.path.exists(source) == (not rm) and not p.leftovers(),
                            f"status {got.returncode}, {got.stderr.strip()}, lost {lost}, {p.leftovers()}")

# ------------------------------------------------------------------ --rm
with Table("--rm removes only what can be had again") as t:
    for line, name in (("c --rm -o OUT s1", "s1"), ("c --rm -b s0 -o OUT s1", "s1"), ("d --rm -o OUT s1.bsnap", "s1.bsnap"), ("d --rm -b s0 -o OUT d1", "d1")):
        for out, says in (("/dev/null", "output that is a file"), ("x" * 256, "name too long"), ("nowhere/x", "cannot be")):
            p.begin("s0 s1 s1.bsnap d1")
            before = p.state()
            got = p.run(line.replace("OUT", out))
            t.refused(f"{line} {out[:9]}", before, got, "") if says != "name too long" else t.refused(line + " long name", before, got, os.strerror(errno.ENAMETOOLONG))
        for kind in ("symlink", "hardlink", "own base", "base's link"):
            p.begin("s0 s1 s1.bsnap d1")
            if kind in ("own base", "base's link"):
                if line[0] == "d":
                    continue
                os.link("s1", "link")
                before = p.state()
                t.refused(f"{kind} {line}", before, p.run(f"c --rm -b {'s1' if kind == 'own base' else 'link'} -o x s1"), "own base")
                continue
            (os.symlink if kind == "symlink" else os.link)(name, "link")
            before = p.state()
            got = p.run(line.replace(" " + name, " link").replace("OUT", "x"))
            t.check(f"{line} {kind}", got.returncode == 0 and not os.path.lexists("link") and read(name) == p.files[name], got.stderr)

# ------------------------------------------------------------------ apply
with Table("apply: read-only files, links, attributes") as t:
    for mode in (0o644, 0o444, 0o400, 0o555):
        for kind in ("file", "symlink", "hardlink"):
            for force in ("", "-f"):
                p.begin("d1")
                write("blob", p.content["s0"])
                os.chmod("blob", mode)
                if kind != "file":
                    (os.symlink if kind == "symlink" else os.link)("blob", "name")
                before = p.state()
                got = p.run(f"apply {force} d1 {'blob' if kind == 'file' else 'name'}")
                cell = f"apply {force} {mode:o} {kind}"
                if not mode & 0o200 and not force:
                    t.refused(cell, before, got, "is read-only")
                    continue
                blob = p.content["s0" if kind == "hardlink" else "s1"]
                t.check(cell, got.returncode == 0 and read("name" if kind != "file" else "blob") == p.content["s1"] and read("blob") == blob and
                        os.stat("blob").st_mode & 0o777 == mode and (kind != "symlink" or os.path.islink("name")) and
                        ("warning: has other names" in got.stderr) == (kind == "hardlink") and not p.leftovers(), got.stderr)
    p.begin("d1 s0")
    os.chmod("s0", 0o444)
    write("s1", p.content["s1"])
    os.chmod("s1", 0o444)
    t.check("apply on the result, read-only", p.run("apply d1 s1").returncode == 0)
    p.begin("d1 s0")
    try:
        os.setxattr("s0", "user.note", b"of ours")
    except (OSError, AttributeError):
        pass
    else:
        got = p.run("apply d1 s0")
        t.check("extended attributes", got.returncode == 0 and not got.stderr and os.listxattr("s0").count("user.note") == 1 and os.getxattr("s0", "user.note") == b"of ours", got.stderr)
    if os.geteuid() == 0:
        for line, name, out in (("apply d1 s0", "s0", "s0"), ("c -o x s0", "s0", "x"), ("d -o x s0.bsnap", "s0.bsnap", "x")):
            p.begin("d1 s0 s0.bsnap")
            os.chown(name, 1234, 2345)
            os.chmod(name, 0o640)
            got = p.run(line)
            st = os.stat(out)
            t.check(f"owner: {line}", got.returncode == 0 and (st.st_uid, st.st_gid, st.st_mode & 0o777) == (1234, 2345, 0o640), got.stderr)

# ------------------------------------------------------------------ what fails at the end fails before the work
with Table("what cannot be made is refused before the work") as t:
    for line, inputs, want in WRITES + [("apply d1 OUT", "d1", "s1")]:
        for kind in ("long name", "sticky", "immutable", "no directory"):
            out, undo = "out", None
            p.begin(inputs)
            if line.startswith("apply"):
                if kind in ("long name", "no directory"):
                    continue
                write("out", p.content["s0"])
            if kind == "long name":
                out = "n" * 256
            elif kind == "no directory":
                out = "none/out"
            elif kind == "sticky":
                if os.geteuid() != 0:
                    continue
                os.mkdir("dir")
                if line.startswith("apply"):
                    os.rename("out", "dir/out")
                else:
                    write("dir/out", p.content["other"])
                out = "dir/out"
                os.chmod("dir", 0o1777)
                os.chmod(".", 0o755)
                os.chmod("..", 0o755)
            elif kind == "immutable":
                if not line.startswith("apply"):
                    write("out", p.content["other"])
                if os.geteuid() != 0 or subprocess.run(["chattr", "+i", "out"], capture_output=True).returncode != 0:
                    continue
                undo = ["chattr", "-i", "out"]
            before = p.state()
            more = {"user": 1234, "program": shutil.copy(tool, p.top)} if kind == "sticky" else {}
            text = line.replace("OUT", out).split()
            created = p.calls(line.replace("OUT", out) if line.startswith("apply") else " ".join([text[0], "-f", *text[1:]])) if kind != "sticky" and p.has_shim else []
            got = p.run(" ".join([text[0], "-f", *text[1:]]), **more)
            if undo:
                subprocess.run(undo)
            says = {"long name": os.strerror(errno.ENAMETOOLONG), "sticky": "cannot be replaced", "immutable": "cannot be replaced", "no directory": "cannot be"}[kind]
            t.refused(f"{line} {kind}", before, got, says)
            t.check(f"{line} {kind}: nothing is written", "write" not in created and "exchange" not in created, " ".join(created))
    for size in (255 - 6, 200, 128, 90, 40):  # names up to the longest work
        for name in ("n" * size, "ü" * (size // 2)):
            p.begin("s0")
            os.rename("s0", name)
            got = p.run(["compress", name])
            good = got.returncode == 0 and p.restorable() == {"s0"}
            os.unlink(name)
            got = p.run(["decompress", "--rm", name + ".bsnap"])  # but --rm needs space for a longer name
            if size <= 200:
                t.check(f"a name of {size} bytes", good and got.returncode == 0 and read(name) == p.content["s0"], got.stderr)
            else:
                t.check(f"a name of {size} bytes", good and got.returncode == 1 and "leave out --rm" in got.stderr and os.listdir(".") == [name + ".bsnap"], got.stderr)

# ------------------------------------------------------------------ races
def last(calls, *names):
    """The number of the last call with the first of these names that occurs."""
    return next(i for name in names for i in range(len(calls), 0, -1) if calls[i - 1] == name)


if not p.has_shim:
    print(f"skip - {GROUP}: races: no library can be preloaded")
else:
    RM = [("c --rm -o x s1", "s1", "s1"), ("c --rm -b s0 -o x s1", "s1", "s1"), ("d --rm -o x s1.bsnap", "s1.bsnap", "s1"), ("d --rm -b s0 -o x d1", "d1", "s1")]
    with Table("--rm while a newer file is renamed onto the input") as t:
        for line, name, old in RM:
            for kind in ("file", "symlink"):
                p.begin("s0 s1 s1.bsnap d1 newer")
                calls = p.calls(line)
                opened = p.paths.index(name) + 1
                for at in range(opened + 1, len(calls) + 1):
                    p.begin("s0 s1 s1.bsnap d1")
                    if kind == "symlink":
                        os.rename(name, "real")
                        os.symlink("real", name)
                    write("newer.tmp", p.content["newer"])
                    got = p.run(line, shim=f"*:{at} rename newer.tmp {name}")
                    moved = last(calls, "move", "unlink") + 1  # from this call on, the file that is moved away is the old one
                    there = os.path.exists(name) and read(name) == p.content["newer"]
                    t.check(f"{line} {kind} before call {at} ({calls[at - 1]})", there and {"newer", old} <= p.restorable() and
                            (got.returncode == (0 if at >= moved else 1)) and not p.leftovers(), f"status {got.returncode}, {got.stderr.strip()} {sorted(os.listdir('.'))}")
                # a second newer file arrives while the first one is compared: both stay
                move = last(calls, "move", "unlink")
                p.begin("s0 s1 s1.bsnap d1 other newer")
                got = p.run(line, shim=f"*:{move} rename newer {name};*:{move + 1} rename other {name}")
                t.check(f"{line} twice", got.returncode == 1 and "kept as .bitsnap-old-" in got.stderr and {"newer", "other", old} <= p.restorable() and len(p.leftovers()) == 1, got.stderr)
                # the output is moved while the command runs
                p.begin("s0 s1 s1.bsnap d1 newer")
                got = p.run(line, shim=f"*:{move} rename x y")
                t.check(f"{line}, output moved", old in p.restorable(), got.stderr)
    APPLY = [("apply d1 out", "s0", "s1")] + [(line.replace("-o OUT", "-f -o out"), None, want) for line, inputs, want in WRITES]
    with Table("a newer file is renamed onto the target meanwhile") as t:
        for line, there, want in APPLY:
            start = "s0 s1 s1.bsnap d1 d2"
            p.begin(start)
            write("out", p.content[there or "other"])
            calls = p.calls(line)
            exchanged = last(calls, "exchange", "rename")
            first = max((i for i, c in enumerate(calls) if c == "create" or p.paths[i] == "out"), default=0) + 2
            for at in range(first, exchanged + 1):
                p.begin(start)
                write("out", p.content[there or "other"])
                write("newer.tmp", p.content["newer"])
                got = p.run(line, shim=f"*:{at} rename newer.tmp out")
                t.check(f"{line} before call {at} ({calls[at - 1]})", got.returncode == 1 and "while this command ran" in got.stderr and read("out") == p.content["newer"] and not p.leftovers(),
                        f"status {got.returncode}, {got.stderr.strip()}, {p.leftovers()}")
            p.begin(start)  # the second replaces the first, which need not be kept
            write("out", p.content[there or "other"])
            write("first", p.content["other"])
            write("newer.tmp", p.content["newer"])
            got = p.run(line, shim="exchange:1 rename first out;exchange:2 rename newer.tmp out")
            t.check(f"{line} twice", got.returncode == 1 and "while this command ran" in got.stderr and "newer" in p.restorable(), f"status {got.returncode}, {got.stderr.strip()} {p.leftovers()}")
            # systems that cannot exchange two names
            p.begin(start)
            write("out", p.content[there or "other"])
            got = p.run(line, shim=f"exchange:1 fail {errno.EINVAL}")
            t.check(f"{line} without exchange", got.returncode == 0 and want in p.restorable() and not p.leftovers(), got.stderr)
            p.begin(start)
            write("out", p.content[there or "other"])
            got = p.run(line, shim=";".join(f"{c}:{k} fail {errno.EINVAL}" for c in ("exchange", "move") for k in (1, 2, 3)))
            t.check(f"{line} without both", got.returncode == 0 and want in p.restorable() and not p.leftovers(), got.stderr)
        for line, inputs, want in WRITES:  # without -f: a file that appears during the run stays
            for shim in ("", f";move:1 fail {errno.EINVAL}", f";move:1 fail {errno.EINVAL};link:1 fail {errno.EPERM}"):
                p.begin(inputs)
                write("newer.tmp", p.content["newer"])
                got = p.run(line.replace("OUT", "out"), shim=f"fsync:1 rename newer.tmp out{shim}")
                t.check(f"{line} {shim}", got.returncode == 1 and "was created while this command ran" in got.stderr and read("out") == p.content["newer"] and not p.leftovers(), got.stderr)

    with Table("inputs and bases that change while they are read") as t:
        for line, inputs, want in WRITES + [("apply d1 OUT", "d1", "s1")]:
            for victim in inputs.split() + (["out"] if line.startswith("apply") else []):
                if victim not in line.replace("OUT", "out").split():
                    continue
                for action in ("poke", "rename") if line[0] in "cmi" and f"-b {victim}" in line else ("poke",):
                    p.begin(inputs)
                    if line.startswith("apply"):
                        write("out", p.content["s0"])
                    write("other", p.content["other"])
                    old = p.restorable()
                    when = "write:1"
                    if line.startswith(("merge -o", "invert -o")):  # these read everything before they write
                        if victim != "d1" or line[0] == "i":
                            continue
                        p.calls(line.replace("OUT", "out"))
                        when = f"*:{p.paths.index('d2') + 1}"
                        if os.path.exists("out"):
                            os.unlink("out")
                    time.sleep(0.02)
                    got = p.run(line.replace("OUT", "out"), shim=f"{when} {action} {'other ' if action == 'rename' else ''}{victim}")
                    good = read("out") != p.content["s1"] if line.startswith("apply") else not os.path.exists("out")
                    t.check(f"{line} {action} {victim}", got.returncode == 1 and good and not p.leftovers(), f"status {got.returncode} {got.stderr.strip()}")

        for line, victim in ("extract -o out s0.bsnap a", "s0.bsnap"), ("extract -b s0.bsnap -b d1 -o out d2 a", "d1"), ("extract -o out s0 a", "s0"):
            p.begin("s0 d1 d2 s0.bsnap")
            time.sleep(0.02)
            got = p.run(line, shim=f"write:1 poke {victim}")
            t.check(f"{line} poke {victim}", got.returncode == 1 and "has changed while it was read" in got.stderr and not os.path.exists("out") and not p.leftovers(),
                    f"status {got.returncode} {got.stderr.strip()}")

    with Table("permissions, owner and time that cannot be set are a warning") as t:
        for line, inputs, want in [w for w in WRITES if w[0][0] in "cdi"] + [("apply d1 OUT", "d1", "s1")]:
            for call in ("fchmod", "fchown", "futimens"):
                for number in (errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL):
                    for quiet in ("", "-q"):
                        p.begin(inputs)
                        name = line.split()[-1]
                        if line.startswith("apply"):
                            write("out", p.content["s0"])
                            name = "out"
                        if os.geteuid() == 0:
                            os.chown(name, 1234, 2345)
                        text = line.replace("OUT", "out").split()
                        got = p.run(" ".join([text[0], quiet, *text[1:]]), shim=f"{call}:1 fail {number}")
                        said = "warning: " in got.stderr
                        t.check(f"{line} {quiet} {call} {errno.errorcode[number]}", got.returncode == 0 and want in p.restorable() and (not quiet or not said) and
                                (quiet or said or call != "fchmod"), f"status {got.returncode} {got.stderr.strip()}")

# ------------------------------------------------------------------ pipes that do not wait
with Table("pipes in non-blocking mode") as t:
    big = safety.model(5, 0) * 9  # raw bytes, more than a pipe holds
    p.begin("s0")
    write("big", big)
    want = p.run("c -c --dtype bf16 big", text=False).stdout
    r, w = os.pipe()
    os.set_blocking(w, False)
    q = subprocess.Popen([tool, "c", "-T1", "-c", "--dtype", "bf16", "big"], stdout=w, stderr=subprocess.PIPE)
    os.close(w)
    time.sleep(0.2)
    got = b""
    while block := os.read(r, 65536):
        got += block
    os.close(r)
    t.check("standard output", q.wait() == 0 and got == want, q.stderr.read().decode())
    many = b",".join(b'"tensor number %d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i for i in range(3000))
    write("many", (len(many) + 2).to_bytes(8, "little") + b"{" + many + b"}")
    p.run("c many")
    want = p.run("i many.bsnap").stdout
    r, w = os.pipe()
    os.set_blocking(w, False)
    q = subprocess.Popen([tool, "i", "many.bsnap"], stdout=w, stderr=subprocess.PIPE)
    os.close(w)
    time.sleep(0.1)
    got = b""
    while block := os.read(r, 65536):
        got += block
    os.close(r)
    if sys.platform == "linux":
        t.check("what is printed", q.wait() == 0 and got.decode() == want and len(want) > 70000, q.stderr.read().decode())
    r, w = os.pipe()
    os.set_blocking(r, False)
    q = subprocess.Popen([tool, "c", "-T1", "-c", "--dtype", "bf16", "-"], stdin=r, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.close(r)
    time.sleep(0.1)
    try:
        for i in range(0, len(big), 30000):
            os.write(w, big[i:i + 30000])
            time.sleep(0.005)
    except BrokenPipeError:
        pass
    os.close(w)
    out, err = q.communicate()
    write("back", out)
    t.check("standard input", q.returncode == 0 and p.run("d -c back", text=False).stdout == big, err.decode())

# ------------------------------------------------------------------ signals, and leftovers of those that could not be caught
IGNORED = {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGCONT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGURG, signal.SIGWINCH}


def waiting(out, prepare=None):
    """Starts a compress that waits for more input. Returns it and the pipe."""
    r, w = os.pipe()
    q = subprocess.Popen([tool, "c", "-q", "-T2", "-f", "-o", out, "-"], stdin=r, stderr=subprocess.PIPE, preexec_fn=prepare)
    os.close(r)
    os.write(w, p.content["s0"][:9000])
    for _ in range(5000):
        if p.leftovers():
            break
        time.sleep(0.002)
    return q, w


def defaults():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for s in signal.valid_signals() - IGNORED:
        signal.signal(s, signal.SIG_DFL)


with Table("signals that end a program leave nothing") as t:
    for s in sorted(signal.valid_signals() - IGNORED):
        p.begin("s0")
        q, w = waiting("out", defaults)
        there = len(p.leftovers())
        q.send_signal(s)
        if s == signal.SIGXFSZ:  # ignored, so that a size limit is an error of write
            time.sleep(0.05)
        else:
            q.wait(30)
        os.close(w)
        status = q.wait()
        t.check(f"signal {int(s)}", there == 1 and status == (1 if s == signal.SIGXFSZ else -s) and os.listdir(".") == ["s0"], f"status {status}, {os.listdir('.')}, {there}")
    for s in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGPIPE):
        p.begin("s0")
        q, w = waiting("out", lambda: signal.signal(s, signal.SIG_IGN))
        q.send_signal(s)
        os.write(w, p.content["s0"][9000:])
        os.close(w)
        t.check(f"signal {int(s)}, ignored", q.wait() == 0 and p.restorable() == {"s0"} and not p.leftovers())

    for line in ("c -T1 -b s0 -o out s1", "c -T3 -b s0 -o out s1", "d -T3 -b s0 -o out d1") if p.has_shim else ():  # read in pieces, and cut while it is read
        p.begin("s0 s1 d1")
        got = p.run(line, shim="write:1 cut s0", preexec_fn=defaults)
        t.check(line, got.returncode == 1 and got.stderr.count("\n") == 1 and sorted(os.listdir(".")) == ["d1", "s0", "s1"], f"status {got.returncode}, {got.stderr}, {os.listdir('.')}")
    p.begin("s0")
    for line, status in (("i -b long -", 1), ("t -b long -", 1), ("compare -b long s0 -", 2)):
        write("long", p.content["s0"])
        r, w = os.pipe()  # the tool has opened the base and waits for input
        q = subprocess.Popen([tool, *line.split()], stdin=r, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        os.close(r)
        time.sleep(0.1)
        os.truncate("long", 4096)
        os.write(w, p.files["d1"])
        os.close(w)
        err = q.communicate()[1]
        t.check(f"{line}, cut short", q.returncode == status and err.startswith("bitsnap: long: has changed while it was read"), f"status {q.returncode}, {err}")

with Table("leftovers of a run that was killed") as t:
    p.begin("s0 s1")
    live, w = waiting("live")
    name = p.leftovers()
    r, v = os.pipe()
    dead = subprocess.Popen([tool, "c", "-q", "-T1", "-o", "dead", "-"], stdin=r)
    os.close(r)
    os.write(v, p.content["s1"][:9000])
    for _ in range(5000):
        if len(p.leftovers()) == 2:
            break
        time.sleep(0.002)
    dead.kill()
    dead.wait()
    os.close(v)
    two = p.leftovers()
    os.mkdir("elsewhere")
    host = two[0].split("-")[2] if two[0].count("-") > 2 else "0"
    foreign = ".bitsnap-new-%08x-1-1~dead" % (int(host, 16) ^ 1)
    write(foreign, b"of another host")
    write(".bitsnap-new", b"of somebody else")
    got = p.run("c -o other s1")
    left = p.leftovers()
    t.check("the dead one's is removed, the live one's and others' stay", got.returncode == 0 and not got.stderr and len(two) == 2 and
            set(left) == {*name, "./" + foreign, "./.bitsnap-new"}, f"{got.stderr} {left}")
    os.write(w, p.content["s0"][9000:])
    os.close(w)
    t.check("the live one ends well", live.wait() == 0 and p.whole(read("live"), []) == "s0", live.stderr.read().decode())
    # moved files are put back if their name is free, and otherwise kept and reported
    gone = subprocess.Popen(["true"])
    gone.wait()
    for there in (False, True):
        p.begin("s1 newer")
        os.rename("newer", f".bitsnap-old-{host}-{gone.pid}-1~lost")
        if there:
            write("lost", p.content["other"])
        got = p.run("c -o x s1")
        if there:
            good = "left by a run that was killed" in got.stderr and len(p.leftovers()) == 1 and p.restorable() == {"s1", "newer", "other"}
        else:
            good = not got.stderr and os.path.exists("lost") and read("lost") == p.content["newer"] and not p.leftovers()
        t.check(f"moved away, {'another is there' if there else 'nothing is there'}", got.returncode == 0 and good, got.stderr)
    p.begin("s1 newer")
    os.rename("newer", f".bitsnap-old-{host}-{os.getpid()}-1~lost")
    p.run("c -o x s1")
    t.check("moved away by a run that lives", len(p.leftovers()) == 1)
    # a limit of the size of files
    p.begin("s0 s0.bsnap d1")
    for line in ("d -o out s0.bsnap", "c -o out --dtype i8 s0", "apply d1 s0"):
        got = subprocess.run([tool, *line.split()], capture_output=True, text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)))
        t.check(f"limit: {line}", got.returncode == 1 and os.strerror(errno.EFBIG) in got.stderr and not p.leftovers() and not os.path.exists("out"), got.stderr)

# ------------------------------------------------------------------ folders that change while a command runs
def folder(of):
    """The files of a folder, with their content."""
    return {n.split("/", 2)[2]: d for n, d in p.state().items() if n.startswith(f"./{of}/")}


def two_folders():
    p.begin("")
    os.makedirs("in/z")
    os.mkdir("out")
    write("in/a.safetensors", p.content["other"])
    write("in/z/b.safetensors", p.content["s0"])
    write("out/old", b"old")
    write("b.tmp", p.content["s1"])
    write("new.tmp", b"second")


if p.has_shim:
    with Table("a folder that changes while it is read is made of one moment or not at all, and one that has changed is not replaced") as t:
        two_folders()
        p.run("c -r -o first in")
        first = folder("first")
        os.replace("b.tmp", "in/z/b.safetensors")
        os.replace("new.tmp", "in/new.json")
        p.run("c -r -o second in")
        second = folder("second")
        two_folders()
        calls = p.calls("c -r -f -o out in")
        for k, call in enumerate(calls, 1):
            two_folders()
            got = p.run("c -r -f -o out in", shim=f"*:{k} rename b.tmp in/z/b.safetensors;*:{k} rename new.tmp in/new.json")
            now = folder("out")
            t.check(f"in at {k} ({call})", now in (first, second) if got.returncode == 0 else now == {"old": b"old"} and "while this command ran" in got.stderr, f"{got.returncode} {got.stderr} {sorted(now)}")
            two_folders()
            got = p.run("c -r -f -o out in", shim=f"*:{k} rename new.tmp out/old")
            now = folder("out")
            seen = k > calls.index("flock") # before that it is what was there when the command began
            t.check(f"out at {k} ({call})", now == first if not seen and not got.returncode else b"second" in p.state().values(), f"{got.returncode} {got.stderr} {sorted(now)}")

p.end()
sys.exit(safety.failed)
