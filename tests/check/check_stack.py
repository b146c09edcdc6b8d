#!/usr/bin/env python3
"""Stack use at -O2: every frame is under 2 KiB, and the deepest chain of calls under 8 KiB. Some calls go through tables of
kernels, of forms of blocks or of tasks. The source tells which tables a function or its inlined callees use. Such a call counts
as its deepest entry. The only recursion is in bitsnap_file.h, from a file to its base. For that header the result is its own
stack without bitsnap.h and callbacks: for one file, and for each further file of a chain."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
gcc = shutil.which(os.environ.get("GCC", "gcc"))
if not gcc:
    print("skip - stack: needs gcc")
    sys.exit(0)
failed = False
flags = sys.argv[1:]

# From the text of bitsnap.h: the functions in its tables, and the tables that a function calls through, directly or not.
text = re.sub(r"/\*.*?\*/", "", open(os.path.join(root, "bitsnap.h"), encoding="utf-8").read(), flags=re.S)
bodies = {m[1]: m[2] for m in re.finditer(
    r"^(?:static|BSN_INLINE|BSN_FUNCTION|BITSNAP_API)\b[^;{}#=]*?\b(\w+)\([^;{}]*\)\s*\{(.*?)\n?\}$", text, re.M | re.S)}
tables = {m[1]: set(re.findall(r"\bbsn_\w+", m[2])) & set(bodies)
          for m in re.finditer(r"^static const \w+ (\w+)\[\] = \{(.*?)^\};", text, re.M | re.S)}
form_steps, producers = tables.get("bsn_forms", set()), tables.get("bsn_producers", set())
if len(form_steps) < 10 or len(producers) < 6:
    print("not ok - stack: a table of forms is not in bitsnap.h")
    failed = True
WAYS = {"kernels": r"\bkernels\)?->\w+\(", "forms": r"\bform->(?:base|open|make)\(", "producers": r"\.produce\(",
        "tasks": r"\btask\(|->run\("}
ways_of = {}


def ways(n):
    """The kinds of tables that a function and its callees call through."""
    if n not in ways_of:
        ways_of[n] = set()
        found = {way for way, call in WAYS.items() if re.search(call, bodies[n])}
        for called in set(re.findall(r"\b(bsn_\w+|bitsnap_\w+)\s*\(", bodies[n])) & set(bodies):
            found |= ways(called)
        ways_of[n] = found
    return ways_of[n]


for header in ("bitsnap.h",) if flags else ("bitsnap.h", "bitsnap_simd.h", "docs/examples/file/bitsnap_file.h"):
    implementation = "BITSNAP_FILE_IMPLEMENTATION" if "file" in header else "BITSNAP_IMPLEMENTATION"
    with tempfile.TemporaryDirectory() as t:
        source = os.path.join(t, "a.c")
        open(source, "w").write(f'#define {implementation}\n#include "{header}"\n')
        subprocess.check_call([gcc, "-std=c99", "-O2", *flags, "-fcallgraph-info=su", "-I" + root, "-c", source, "-o", os.path.join(t, "a.o")], cwd=t)
        graph = next(os.path.join(t, f) for f in os.listdir(t) if f.endswith(".ci"))
        text = open(graph).read()
    frame, calls = {}, {}
    for title, label in re.findall(r'node: \{ title: "([^"]+)" label: "([^"]*)"', text):
        m = re.search(r"\\n(\d+) bytes \(([\w,]+)\)", label)
        if m:
            frame[title] = int(m[1])
            if m[2] == "dynamic":
                print(f"not ok - stack: {title} has a frame of varying size")
                failed = True
    for a, b in re.findall(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', text):
        calls.setdefault(a, set()).add(b)
    name = lambda n: n.split(":")[-1]
    kernels = [n for n in frame if re.match(r"bsn_(scalar|avx2|avx512|neon)_", name(n))]
    tasks = [n for n in frame if re.match(r"bsn_\w+_task", name(n))]
    steps = [n for n in frame if name(n).split(".")[0] in form_steps]
    produce = [n for n in frame if name(n).split(".")[0] in producers]
    below_tasks, todo = set(), list(tasks)
    while todo:
        n = todo.pop()
        if n not in below_tasks:
            below_tasks.add(n)
            todo += calls.get(n, ())
    depth, path, member = {}, {}, {}
    reads = next((n for n in frame if name(n) == "bitsnap_file_read_data"), None)

    def to_base(n):
        """The most bytes from n down to the read of a base; -1: n does not read a base."""
        if n not in member:
            member[n] = -1
            ways = [0 if k == reads else to_base(k) for k in calls.get(n, ()) if k in frame and k != n]
            if max(ways, default=-1) >= 0:
                member[n] = frame[n] + 8 + max(ways)
        return member[n]

    def deepest(n, stack):
        """The stack of n and its callees. Calls through tables reach kernels; callbacks belong to the caller."""
        global failed
        if n in stack:
            print(f"not ok - stack: recursion through {name(n)}")
            failed = True
            return 0
        if n not in depth:
            best, via = 0, None
            source = name(n).split(".")[0]
            known = ways(source) if source in bodies else {"tasks"}
            indirect = kernels if n in steps or n in produce else \
                [*kernels, *(steps if "forms" in known else ()), *(produce if "producers" in known else ()),
                 *(tasks if "tasks" in known and n not in below_tasks else ())]
            for c in calls.get(n, ()):
                targets = [c] if c != "__indirect_call" else indirect
                for k in targets:
                    if k == n or k not in frame or (c == "__indirect_call" and n in kernels):
                        continue
                    if k == reads and name(n).startswith("bsf_"):
                        continue
                    d = deepest(k, stack | {n})
                    if d > best:
                        best, via = d, k
            depth[n] = frame[n] + best + 8  # 8: the return address
            path[n] = via
        return depth[n]

    if reads and to_base(reads) > 1024:
        print(f"not ok - stack: {to_base(reads)} bytes for each file of a chain")
        failed = True
    worst_frame = max(frame, key=frame.get)
    worst_chain = max(frame, key=lambda n: deepest(n, frozenset()))
    chain, n = [], worst_chain
    while n:
        chain.append(f"{name(n)} {frame[n]}")
        n = path[n]
    ok = frame[worst_frame] < 2048 and depth[worst_chain] < 8192
    failed |= not ok
    print(f"{'ok' if ok else 'not ok'} - stack: {os.path.basename(header)}: largest frame {frame[worst_frame]} ({name(worst_frame)}), "
          f"deepest chain {depth[worst_chain]} ({', '.join(chain)})")
sys.exit(failed)
