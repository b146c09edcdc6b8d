#!/usr/bin/env python3
"""Checks the documents. Every C block compiles and runs, with portable code, which compiles fast. Every link has a target. Every
reject condition of FORMAT.md has its sentence in the code and a test. The tables of FORMAT.md and bitsnap.h agree. The codec and
docs/tour.c give the frame of section 10. Vectors and corpus are those of FROZEN.

    check_docs.py           checks all of that
    check_docs.py freeze    writes FROZEN anew; this is a decision, because later releases read what any release 1.x writes
"""
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
failed = False


def report(good, what, more=""):
    global failed
    failed |= not good
    print(f"{'ok' if good else 'not ok'} - docs: {what}{': ' + more if more and not good else ''}")


def read(name):
    with open(os.path.join(root, name), encoding="utf-8") as f:
        return f.read()


# sha256 of what is never to change within version 1 (once 1.0 is released)
FROZEN = {
    "docs/vectors": "d9b6fcec84cf4cadf1ec445ab876768935262efb4c0a1695f83ff7e57190b03c",
    "tests/format/corpus.txt": "f817b1b2fd86418db6f2774083ad110260fddfc7fcc0762c1cfe79da42c9f10f",
    "tests/format/bytes.txt": "4df76f41415f5d14f6c67886560b2ead68ca6d50af72b077b6ab10d0634fb67e",
}


def digest(name):
    path, h = os.path.join(root, name), hashlib.sha256()
    files = [path + "/" + f for f in sorted(os.listdir(path)) if f.endswith(".txt")] if os.path.isdir(path) else [path]
    for file in files:
        if os.path.exists(file):
            with open(file, "rb") as f:
                h.update(os.path.basename(file).encode() + b"\0" + hashlib.sha256(f.read()).digest())
    return h.hexdigest()


if sys.argv[1:] == ["freeze"]:
    text = read("tests/check/check_docs.py")
    for name in FROZEN:
        text = re.sub(r'(    "%s": )"\w*"' % re.escape(name), r'\g<1>"%s"' % digest(name), text, count=1)
    with open(os.path.join(root, "tests/check/check_docs.py"), "w", encoding="utf-8") as f:
        f.write(text)
    sys.exit(0)
for name, expected in FROZEN.items():
    report(digest(name) == expected, name + " is as it was frozen", "a change of what must not change? if not: tests/check/check_docs.py freeze")

documents = ["README.md"] + sorted("docs/" + f for f in os.listdir(os.path.join(root, "docs")) if f.endswith(".md"))
documents = [d for d in documents if os.path.exists(os.path.join(root, d))] + ["docs/examples/kv/README.md"]
rooms = sorted(set(glob.glob("*/README.md", root_dir=root) + glob.glob("docs/examples/**/README.md", root_dir=root, recursive=True)) - set(documents))
compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")

for document in documents + rooms:
    text = read(document)
    blocks = [] if document in rooms else re.findall(r"^```c\n(.*?)^```", text, re.M | re.S)  # blocks of other READMEs need libraries
    for number, block in enumerate(blocks, 1):
        with tempfile.TemporaryDirectory() as t:
            source, program = os.path.join(t, "a.c"), os.path.join(t, "a")
            with open(source, "w", encoding="utf-8") as f:
                f.write(block)
            threads = "omp.h" in block and shutil.which("gcc")
            built = subprocess.run([shutil.which("gcc") if threads else compiler, "-std=c99", "-O0", "-DBITSNAP_NO_SIMD", "-pthread", "-Wall", "-Wextra", "-Werror", "-fopenmp" if threads else "-Wno-unknown-pragmas", "-I" + root, "-I" + os.path.join(root, "docs/examples/file"), source, "-o", program], capture_output=True, text=True)
            good = built.returncode == 0 and not built.stderr
            more = built.stderr[:500]
            if good:
                ran = subprocess.run([program], capture_output=True, text=True, cwd=t, env=dict(os.environ, OMP_NUM_THREADS="16", OMP_WAIT_POLICY="passive"))
                good, more = ran.returncode == 0, f"exit status {ran.returncode} {ran.stderr[:200]}"
            report(good, f"{document}, program {number} compiles and runs", more)
    bad = []
    for target in re.findall(r"\]\(([^)#\s]+)\)", text):
        if not re.match(r"[a-z]+:", target) and not os.path.exists(os.path.join(root, os.path.dirname(document), target)):
            bad.append(target)
    for target in re.findall(r"\]\(#([^)]+)\)", text):
        anchors = [re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", text, re.M)]
        if target not in anchors:
            bad.append("#" + target)
    report(not bad, f"{document}: links", ", ".join(bad))

report(read("README.md").count("\n") <= 150, "README.md has at most 150 lines")
# rows of tables in documents must be rows of the result file
whole, shown = read("bench/results/cli.md"), {d: read(d) for d in ("README.md", "docs/PERFORMANCE.md")}
for result, pattern, rows in (("cli.md", r"^\| (?:cp|bitsnap|zstd|bzip2)\b[^|\n]*\|(?: +[0-9.]+ \|){6}$|commit \w+, cc", {"README.md": 2, "docs/PERFORMANCE.md": 8}),
                              ("models.md", r"^\| (?:bitsnap|zipnn|openzl|zstd)[^\n]*\) \|$", {"README.md": 4, "docs/PERFORMANCE.md": 8}),
                              ("kinds.md", r"^\| \w+_\w+ \|(?: [0-9.]+ \|){7}$", {"docs/PERFORMANCE.md": 11})):
    kept = read("bench/results/" + result)
    for document, least in rows.items():
        found = [r[0] for r in re.finditer(pattern, shown[document], re.M)]
        bad = [r for r in found if r not in kept]
        report(len(found) >= least and not bad, f"{document}: rows of bench/results/{result}", " ".join(bad))
kinds = {kind: cells for kind, *cells in re.findall(r"^\| (\w+) \| (\S+) \| \S+ \| \S+ \| (\S+) \| (\S+) \| (\S+) \| \S+ \|$", read("bench/results/kinds.md"), re.M)}
rows = re.findall(r"^\| ([^|\n]+) \| ([0-9.]+) \| ([0-9.]+) \| ([0-9.]+) \| ([0-9.]+) \|$", shown["README.md"], re.M)
bad = [name for name, *cells in rows if cells not in kinds.values()]
report(len(rows) >= 4 and not bad, "README.md: its kinds of files are rows of bench/results/kinds.md", " ".join(bad))

measured = re.findall(r"^\| [^|\n]+ \| (\d+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| [^|\n]+ \|$", read("docs/SCALE.md"), re.M)
bad = []
for m in measured:
    tables = [t for t in whole.split("\n## ") if t.split("\n")[0].endswith(", %s bytes" % m[0])]
    row = r"^\| bitsnap +\| +%s \|[^|\n]*\|[^|\n]*\| +%s \|[^|\n]*\| +%s \|$" % m[1:]
    bad += [m[0]] if not any(re.search(row, t, re.M) for t in tables) else []
report(len(measured) == 4 and not bad, "what docs/SCALE.md starts from are rows of bench/results/cli.md", " ".join(bad))

form, header = read("docs/FORMAT.md"), read("bitsnap.h")
conditions = {number: (name, status) for number, name, status in re.findall(r"^\| R(\d+) \| (\w+) \| ([A-Z]+) \|", form, re.M)}
rules = {number: (name, status) for number, status, name in re.findall(r'^    R\((\d\d?), ([A-Z]+), (\w+), "', header, re.M)}
bad = [f"R{i}" for i in conditions.keys() | rules.keys() if conditions.get(i) != rules.get(i)]
report(len(rules) > 40 and not bad, "the reject conditions of FORMAT.md are those of bitsnap.h: number, name, status", ", ".join(bad))
recipes = set(re.findall(r"^\s+(\d+): ", read("tests/format/generate.py"), re.M))
bad = [f"R{i}" for i in rules if i not in recipes]
report(not bad, "every reject condition has a recipe of broken frames in tests/format/generate.py", ", ".join(bad))
for name, value in (("BSN_MIN_TREE 16 ", "need m >= 16"), ("BSN_MAX_DEPTH 5 ", "A list of depth 5 is of kind"),
                    ("BSN_LOG2_MAX 20", "L, 6 .. 20"), ("BSN_COUNT_MAX (UINT64_C(1) << 48)", "at most 2^48")):
    report(name in header and value in " ".join(form.split()), f"constant of FORMAT.md and bitsnap.h: {value}")

# docs/TRUST.md: each promise names a test and the lengths that run it
makefile, trust = read("Makefile"), read("docs/TRUST.md")
checks, nightly = (set(re.findall(r"tests/\w+/check_\w+\.\w+", re.search(rf"^{name} =(?:.*\\\n)*.*", makefile, re.M)[0])) for name in ("CHECKS", "NIGHTLY"))
bad, rows = [], re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([\w, ]*) \|$", trust[:trust.index("## Limits")], re.M)[1:]
for promise, tests, lengths in rows:
    names = set(re.findall(r"tests/[\w/]+\.\w+", tests))
    true = [length for length, holds in (
        ("test", any(re.search(r"/test_\w+\.c$|\.test$", name) for name in names)),
        ("check", names & checks or "LONG=1" in tests),
        ("nightly", names & nightly or "make nightly" in tests)) if holds]
    gone = [name for name in names if not os.path.exists(os.path.join(root, name))]
    if gone or not true or lengths != ", ".join(true):
        bad.append(f"{promise}: {', '.join(gone) or 'in ' + (', '.join(true) or 'no test by name')}")
report(len(rows) == trust.count("\n| ") - 1 and not bad, "docs/TRUST.md: each promise names its tests and the lengths that run them", "; ".join(bad))

# the dtypes that types of other programs are coded as
section = form[form.index("## 3."):form.index("### 3.1")]
stated = {name: name for name in re.findall(r"^\| \d+ \| (\w+)", section, re.M)}
for names, dtype in re.findall(r"^\| ([^|]*) \| (\w+) \|$", section[section.index("other programs' types"):], re.M):
    stated.update((name, dtype) for name in re.findall(r"\b[A-Z]+\d+\w*", re.sub(r"\([^)]*\)", "", names)))
source = read("docs/examples/file/bitsnap_file.h")
coded = dict(re.findall(r'\{ "(\w+)", \d+, BITSNAP_(\w+) \}', source))
bad = [f"{name}: {stated.get(name)}, {coded.get(name)}" for name in sorted(stated.keys() | coded.keys()) if stated.get(name) != coded.get(name)]
report(len(coded) == 23 and not bad and "t->type->codec : BITSNAP_I8" in source, "the types of FORMAT.md section 3 are those of bitsnap_file.h", "; ".join(bad))

# members of the tool's JSON
text, names = read("docs/TOOL.md").split("## --json", 1)[1], set()
for source in sorted(glob.glob("docs/examples/tool/**/*.c", root_dir=root, recursive=True)):
    if source.endswith("manifest.c"):
        continue  # a file of stores, not output
    names |= set(re.findall(r'(?:json_name|json_member_\w+|put_id|put_ratio)\((?:&?\w+->|&)?\w+, "(\w+)"', read(source)))
bad = [n for n in sorted(names) if f"`{n}`" not in text]
bad += [n for cell in re.findall(r"^\|([^|]*)\|", text, re.M) for n in re.findall(r"`(\w+)`", cell) if n not in names]
report(len(names) > 70 and not bad, "docs/TOOL.md has every member of the tool's JSON", ", ".join(bad))

# the table of deltas in PERFORMANCE.md: the figures of the study
figures = [l.split("\t") for l in read("bench/results/study-pairs.tsv").split("\n") if l and l[0] != "#"]
figures = {(r["from"], r["to"]): r for r in (dict(zip(figures[0], row)) for row in figures[1:])}
shown = re.findall(r"^\| (\w+) (\w+) -> (\w+) \| ([\d.]+) % \|(.*)\|$", read("docs/PERFORMANCE.md"), re.M)
bad = []
for dtype, base, to, changed, cells in shown:
    prefix = "master" if dtype == "fp32" else dtype
    row = figures.get((f"{prefix}-{base}", f"{prefix}-{to}"))
    wanted = [(changed, 100 * int(row["changed"]) / int(row["elements"]))] if row else []
    if row:
        wanted += zip(cells.split("|"), (float(row[f]) for f in ("mask", "xor-huffman", "xor-zstd-19", "default", "best", "self")))
    if len(wanted) != 7 or any(f"{value:.{len(text.strip().partition('.')[2])}f}" != text.strip() for text, value in wanted):
        bad.append(f"{dtype} {base} -> {to}")
report(len(shown) >= 8 and not bad, "docs/PERFORMANCE.md: the table of deltas is that of bench/results/study-pairs.tsv", ", ".join(bad))

# section 10: the bytes of the dump, and what the codec makes of the elements
section = form[form.index("## 10."):form.index("## 11.")]
elements = re.search(r"BF16 elements: ([0-9A-F\s]+)\.", section)[1].split()
dump = "".join(re.match(r"((?:[0-9A-F]{2} ?)*)", line)[1].replace(" ", "") for line in re.search(r"```\n(.*?)```", section, re.S)[1].split("\n"))
program = f"""
#define BITSNAP_IMPLEMENTATION
#include "bitsnap.h"
#include <stdio.h>
int main(void)
{{
    static unsigned char workspace[BITSNAP_WORKSPACE], frame[4096];
    const unsigned short elements[] = {{ {', '.join('0x' + e for e in elements)} }};
    size_t size, i;
    bitsnap b = {{0}};
    b.workspace = workspace;
    b.workspace_size = sizeof workspace;
    if (bitsnap_encode(&b, frame, sizeof frame, &size, elements, {len(elements)}, BITSNAP_BF16)) return 1;
    for (i = 0; i < size; i++) printf("%02X", frame[i]);
    return 0;
}}
"""
with tempfile.TemporaryDirectory() as t:
    with open(os.path.join(t, "a.c"), "w", encoding="utf-8") as f:
        f.write(program)
    subprocess.check_call([compiler, "-std=c99", "-I" + root, os.path.join(t, "a.c"), "-o", os.path.join(t, "a")])
    got = subprocess.run([os.path.join(t, "a")], capture_output=True, text=True).stdout
report(got == dump and len(elements) == 24, "the frame of FORMAT.md section 10", got)

# docs/tour.c: the commands in its head, if xxd is installed
commands = re.findall(r"^ \*     (cc .*|sed .*?)(?: \*/)?$", read("docs/tour.c"), re.M)
with tempfile.TemporaryDirectory() as t:
    os.symlink(os.path.join(root, "docs"), os.path.join(t, "docs"))
    script = "\n".join(commands).replace("cc ", compiler + " -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror ", 1)
    ran = subprocess.run(["sh", "-c", script], capture_output=True, text=True, cwd=t) if shutil.which("xxd") else None
    if ran:
        report(len(commands) == 2 and ran.stdout.upper().split() == elements, "the commands of docs/tour.c print the elements of section 10",
               ran.stderr[:500].strip())
    else:
        print("skip - docs: the commands of docs/tour.c: no xxd")

# the synopsis at the top of the header, as a program
lines = [l[3:] for l in header[:header.index("How it works")].split("\n") if l.startswith(" *     ")]
synopsis = "\n".join(l.rstrip() for l in lines if "#define" not in l and "#include" not in l and not l.strip().startswith("..."))
program = ('#define BITSNAP_IMPLEMENTATION\n#include "bitsnap_simd.h"\n#include <stdio.h>\n'
           "static unsigned short weights[1000], some[10]; static unsigned char frame[8192];\n"
           "int main(void) { size_t n = 1000, first = 5, count = 10; bitsnap_info info;\n" + synopsis.replace("frame, size))", "frame, size)) return 1;", 1) + "\nreturn b.error.status != 0 || info.count != n; }\n")
with tempfile.TemporaryDirectory() as t:
    with open(os.path.join(t, "a.c"), "w", encoding="utf-8") as f:
        f.write(program)
    built = subprocess.run([compiler, "-std=c99", "-w", "-I" + root, os.path.join(t, "a.c"), "-o", os.path.join(t, "a")], capture_output=True, text=True)
    good = built.returncode == 0 and subprocess.run([os.path.join(t, "a")]).returncode == 0
report(good, "the synopsis of bitsnap.h", built.stderr[:600])

# the examples of the parts, one after the other
calls = re.findall(r"^ \*     (bitsnap_\w+\([^;]*\));", header[header.index("= BITMASK"):header.index("= FRAME")], flags=re.M)
program = ('#define BITSNAP_IMPLEMENTATION\n#include "bitsnap_simd.h"\n'
           "enum { n = 1000 }; static unsigned short live[n], base[n], copy[n], values[n]; static float numbers[n], ends[32];\n"
           "static unsigned char mask[n], planes[4 * n], list[n + 1], labels[n], codes[n], room[1 << 20], workspace[1 << 21];\n"
           "int main(void) { bitsnap b = {0}; size_t changed, size; unsigned used, i; b.workspace = workspace; b.workspace_size = sizeof workspace;\n"
           "for (i = 0; i < n; i++) numbers[i] = (float)i, live[i] = (unsigned short)(i % 7);\n" +
           "".join("if (%s) return 1;\n" % call for call in calls) + "return copy[6] != 6 || numbers[500] < 400 || numbers[500] > 600; }\n")
with tempfile.TemporaryDirectory() as t:
    with open(os.path.join(t, "a.c"), "w", encoding="utf-8") as f:
        f.write(program)
    built = subprocess.run([compiler, "-std=c99", "-w", "-I" + root, os.path.join(t, "a.c"), "-o", os.path.join(t, "a")], capture_output=True, text=True)
    good = len(calls) == 8 and built.returncode == 0 and subprocess.run([os.path.join(t, "a")]).returncode == 0
report(good, "the examples of the parts in bitsnap.h", "%d calls. %s" % (len(calls), built.stderr[:600]))
sys.exit(failed)
