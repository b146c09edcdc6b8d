"""Shared code of these programs: imports numpy or says how to get it, writes tables as .tsv and Markdown, and gives verdicts."""
import math
import os
import re
import subprocess
import sys

try:
    import numpy  # noqa: F401, used by those who import this module
except ImportError:
    sys.exit("SKIP: needs numpy (Debian: python3-numpy)")


def verdict(good, text):
    return ("PASS" if good else "FAIL") + ": " + text


def origin():
    """Returns machine, compiler and commit. The Makefile sets the latter two in COMPILER and COMMIT."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            text = f.read()
    except OSError:
        text = ""
    found = [re.search(rf"^{key}\s*: (.*)$", text, re.M) for key in ("model name", "cpu family", "model")]
    machine = f"{found[0][1]}, family {found[1][1]}, model {found[2][1]}" if all(found) else os.uname().machine
    command = os.environ.get("COMPILER", "cc").split()
    said = subprocess.run([command[0], "-dumpfullversion", "-dumpversion"], capture_output=True, text=True, check=False).stdout.split()
    return f"{machine}; {' '.join([command[0]] + said[:1] + command[1:])}; commit {os.environ.get('COMMIT', 'unknown')}; numpy {numpy.__version__}"


def cell(value):
    if isinstance(value, float):
        return f"{value:.9g}" if math.isfinite(value) else "-"
    return str(value)


def show(value, per_cent=False):
    """Formats a number with four digits."""
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return "-"
    return f"{100 * value:.4g} %" if per_cent else f"{value:.4g}"


def write_tsv(results, name, title, notes, columns, rows):
    with open(os.path.join(results, name + ".tsv"), "w", encoding="utf-8") as f:
        f.write("".join(f"# {line}\n" for line in [title, origin()] + notes))
        f.write("".join("\t".join(map(cell, row)) + "\n" for row in [columns] + rows))


def write_markdown(results, name, title, text, headings, rows):
    with open(os.path.join(results, name + ".md"), "w", encoding="utf-8") as f:
        f.write(f"# {title}\n\n{origin()}. {text}\n\n")
        f.write("".join("| " + " | ".join(row) + " |\n" for row in [headings, ["---"] + ["--:"] * (len(headings) - 1)] + rows))
