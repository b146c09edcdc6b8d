#!/usr/bin/env python3
"""The switches that leave parts out. Each switch alone and both profiles compile without warnings (gcc and clang), and the rest
works (tests/check/switches.c). A profile equals its switches, however they are defined. Profiles and static functions also
compile without warnings at -O1 and -Os. Code is within the budgets of tests/check/footprint.test. The table of sizes in
docs/EMBEDDING.md is right within 3 % for portable code.
    check_switches.py        all of that
    check_switches.py all    every combination (nightly)
    check_switches.py write  writes the table anew, with seconds and kernels"""
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
names = ["ENCODE", "DELTA", "QUANTIZE", "PARTS", "EXTRAS"]
profiles = {"LOSSLESS_ONLY": names[1:], "DECODE_ONLY": names}
warnings = "-std=c99 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Wundef -Werror".split()
page = os.path.join(root, "docs", "EMBEDDING.md")
heading = r"\| left out \| bitsnap\.h alone \| with AVX2 \| with AVX2 and AVX-512 \| gcc -O2 takes \|\n\|[-:| ]*\|\n"
mode = sys.argv[1] if len(sys.argv) > 1 else ""
gcc, clang = shutil.which("gcc"), shutil.which("clang")
if not gcc:
    print("skip - switches: needs gcc")
    sys.exit()
failed = False


def report(good, what, more=""):
    global failed
    failed |= not good
    print(f"{'ok' if good else 'not ok'} - switches: {what}{': ' + more if more and not good else ''}", flush=True)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return "" if not done.returncode else (done.stdout + done.stderr)[:800] or f"exit status {done.returncode}"


def title(left_out):
    return ", ".join(f"`BITSNAP_{n if n in profiles else 'NO_' + n}`" for n in left_out) or "nothing"


def flags(left_out):
    return [f"-DBITSNAP_{n if n in profiles else 'NO_' + n}" for n in left_out]


def text_size(path):
    return int(subprocess.check_output(["size", path], text=True).splitlines()[1].split()[0])


def build(left_out):
    """Compiles and runs. Returns the problem and the size of the portable code."""
    tag = os.path.join(folder, "-".join(left_out) or "nothing")
    bad = run(gcc, *warnings, "-O2", *flags(left_out), "-I" + root, "-c", os.path.join(folder, "bitsnap.c"), "-o", tag + ".o")
    bad = bad or run(gcc, *warnings, "-O1", *flags(left_out), "-I" + root, os.path.join(root, "tests/check/switches.c"), tag + ".o", "-o", tag)
    bad = bad or run(gcc, *warnings, "-fsyntax-only", *flags(left_out), "-I" + root, os.path.join(folder, "bitsnap_simd.c"))
    bad = bad or run(gcc, "-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", *flags(left_out), "-I" + root,
                     os.path.join(folder, "bitsnap_simd.c"))
    if clang:
        bad = bad or run(clang, *warnings, "-fsyntax-only", *flags(left_out), "-I" + root, os.path.join(folder, "bitsnap_simd.c"))
    if not left_out:
        bad = bad or run(tag, "make", folder)
    elif mode != "all":
        bad = bad or unreachable(left_out)
    return bad, text_size(tag + ".o") if not bad else 0


def unreachable(left_out):
    """The kernels that are left out but still called."""
    header = open(os.path.join(root, "bitsnap.h"), encoding="utf-8").read()
    gone = []
    parts_out = [part for n in left_out for part in profiles.get(n, [n])]
    for what, slot in re.findall(r"^    SLOT\((\w+), [\w *]+, (\w+), ", header, re.M):
        parts = ["ENCODE", "PARTS"] if what == "MASKS" else what.split("_")
        if (all if what == "MASKS" else any)(p in parts_out for p in parts):
            gone.append(slot)
    if not gone:
        return ""
    where = os.path.join(folder, "called-" + "-".join(left_out))
    os.mkdir(where)
    header = re.sub(r"[\w.>-]*kernels->(%s)\(" % "|".join(gone), r"called_\1->\1(", header)
    begin = "static const bitsnap_kernels *bsn_kernels_best(void);\n"
    header = header.replace(begin, begin + "".join(f"extern const bitsnap_kernels *called_{s};\n" for s in gone), 1)
    with open(os.path.join(where, "bitsnap.h"), "w", encoding="utf-8") as f:
        f.write(header)
    bad = run(gcc, "-std=c99", "-w", "-O1", *flags(left_out), "-I" + where, "-c", os.path.join(folder, "bitsnap.c"), "-o", where + ".o")
    return bad or " ".join(re.findall(r"called_\w+", subprocess.check_output(["nm", "-u", where + ".o"], text=True)))


def same_text(*builds):
    """True if the preprocessor gives the same text for all these builds."""
    command = [gcc, "-std=c99", "-E", "-P", "-I" + root, os.path.join(folder, "bitsnap.c")]
    return len({subprocess.check_output(command + flags(b)) for b in builds}) == 1


def warns(build):
    """Compiles a file with one function that decodes. If the codec is static, gcc inlines more and warns more."""
    left_out, static, level = build
    define = flags(left_out) + ["-DBITSNAP_STATIC"] * static
    return run(gcc, *warnings, level, *define, "-I" + root, "-c", os.path.join(folder, "user.c"), "-o", os.devnull)


def measure(left_out, header, *more):
    """The size in KB, and the processor time of gcc in seconds."""
    out = os.path.join(folder, "one.o")
    before = os.times()
    subprocess.check_call([gcc, "-std=c99", "-O2", *flags(left_out), *more, "-I" + root, "-c", os.path.join(folder, header + ".c"), "-o", out])
    after = os.times()
    return text_size(out) / 1000, after.children_user + after.children_system - before.children_user - before.children_system


with tempfile.TemporaryDirectory() as folder:
    for header in ("bitsnap", "bitsnap_simd"):
        with open(os.path.join(folder, header + ".c"), "w") as f:
            f.write(f'#define BITSNAP_IMPLEMENTATION\n#include "{header}.h"\n')
    with open(os.path.join(folder, "user.c"), "w") as f:
        f.write('#define BITSNAP_IMPLEMENTATION\n#include "bitsnap.h"\n'
                'int user(bitsnap *b, void *to, size_t n, const void *p, size_t size);\n'
                'int user(bitsnap *b, void *to, size_t n, const void *p, size_t size)\n'
                '{ return bitsnap_decode(b, to, n, BITSNAP_BF16, p, size); }\n')
    builds = [[]] + [[n] for n in names] + [[n] for n in profiles]
    if mode == "all":
        builds = [list(c) for k in range(6) for c in itertools.combinations(names, k)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        results = list(pool.map(build, builds if mode != "write" else []))
    sizes = {}
    for left_out, (bad, size) in zip(builds, results):
        bad = bad or run(os.path.join(folder, "-".join(left_out) or "nothing"), "use", folder)
        report(not bad, f"left out {title(left_out)}: no warnings, and what is left works", bad)
        sizes[title(left_out)] = size
    if not mode:
        out = os.path.join(folder, "with")
        bad = run(gcc, "-std=c99", "-O0", "-DBITSNAP_DECODE_ONLY", "-I" + root, os.path.join(folder, "bitsnap_simd.c"), os.path.join(root, "tests/check/switches.c"), "-o", out)
        bad = bad or run(out, "use", folder)
        report(not bad, "left out `BITSNAP_DECODE_ONLY`, with SIMD kernels", bad)
        for n, parts in profiles.items():
            report(same_text([n], parts) and same_text([n, "PARTS"], parts), f"BITSNAP_{n} is its switches, alone and beside one of them")
        report(same_text(list(profiles), names), "both profiles are the smaller one")
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            bad = "".join(pool.map(warns, [(n, static, o) for n in [["DECODE_ONLY"], ["LOSSLESS_ONLY"], []]
                                           for static in (False, True) if n or static for o in ("-O1", "-Os")]))
        report(not bad, "profiles and static functions: no warnings at -O1 and -Os", bad)
        bad = subprocess.run([os.path.join(root, "tests/check/footprint.test"), "all"], env={**os.environ, "CC": gcc}).returncode
        failed |= bool(bad)

    version = subprocess.check_output([gcc, "-dumpfullversion"], text=True).strip()
    machine = subprocess.check_output([gcc, "-dumpmachine"], text=True).strip()
    text = open(page, encoding="utf-8").read()
    named = re.search(r"Sizes by gcc ([\d.]+) for (\S+),", text)
    table = re.search(heading + r"((?:\|.*\n)*)", text)
    if mode == "write":
        rows = ""
        for left_out in builds:
            columns = [measure(left_out, "bitsnap")]
            if left_out in ([], ["ENCODE"], *([n] for n in profiles)): # half a minute each
                columns += [measure(left_out, "bitsnap_simd", "-DBITSNAP_NO_AVX512"), measure(left_out, "bitsnap_simd")]
            columns += [(0, 0)] * (3 - len(columns))
            cells = [f"{size:.0f} KB" if size else "" for size, _ in columns]
            rows += f"| {title(left_out)} | {' | '.join(cells)} | {', '.join(f'{s:.1f}' for _, s in columns if s)} s |\n"
            print(rows.splitlines()[-1], flush=True)
        text = text[:table.start(1)] + rows + text[table.end(1):]
        text = re.sub(r"Sizes by gcc [\d.]+ for \S+,", f"Sizes by gcc {version} for {machine},", text)
        open(page, "w", encoding="utf-8").write(text)
    elif mode != "all":
        if (version, machine) != named.groups():
            print(f"skip - switches: the table of sizes in EMBEDDING.md is for gcc {named[1]}, {named[2]}; this is {version}, {machine}")
        else:
            written = {row.split("|")[1].strip(): int(re.match(r"\s*(\d+) KB", row.split("|")[2])[1]) for row in table[1].splitlines()}
            bad = [f"{name}: {size / 1000:.0f} KB, the table has {written.get(name)}" for name, size in sizes.items()
                   if abs(size / 1000 - written.get(name, 0)) > max(0.03 * size / 1000, 1)]
            report(not bad and len(written) == len(sizes), "the sizes in EMBEDDING.md are true, to 3 %", "; ".join(bad))
sys.exit(failed)
