#!/usr/bin/env python3
"""The output of the tool on a terminal, as the terminal shows it. The progress line fits into a window of any width, also after a
resize; no other text overlaps it; several files are counted and summed up. Without a terminal there is no progress line."""
import fcntl
import json
import math
import os
import re
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unicodedata

tool = os.path.abspath(os.environ.get("BITSNAP", os.path.join(os.path.dirname(__file__), "../../build/bitsnap")))
failed = False


def report(good, what, more=""):
    global failed
    failed |= not good
    print(f"{'ok' if good else 'not ok'} - terminal: {what}{': ' + more if more and not good else ''}")


def width_of(text):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def unwrapped(lines):
    return "\n".join(lines).replace("\n   ", "").split("\n")


class Screen:
    """The lines on the screen, and the wiped lines, which are progress, with the number of columns at that time."""

    def __init__(self, columns):
        self.lines, self.line, self.at, self.progress, self.odd, self.columns = [], "", 0, [], "", columns
        self.sizes, self.since = [columns], 0 # of the window; and how many lines have been begun since the last change

    def feed(self, text):
        i = 0
        while i < len(text):
            c = text[i]
            if c == "\r":
                if self.line and text[i + 1:i + 2] != "\n":
                    self.progress.append((self.line, self.columns))
                self.at = 0
            elif c == "\n":
                self.lines.append(self.line)
                self.line, self.at = "", 0
            elif text.startswith("\x1b[K", i):
                self.line = self.line[:self.at]
                i += 2
                self.since += 1
            elif c < " ":
                self.odd += repr(c)
            else:
                self.line = self.line[:self.at] + c + self.line[self.at + 1:]
                self.at += 1
                self.columns = max(self.sizes[-2:]) if self.since < 2 else self.sizes[-1] # the first may have been on its way
            i += 1


def watch(arguments, columns, cwd, feeds=(), resize=()):
    """Runs the tool in a window of `columns` columns (0: unknown). resize: further widths, each set after some progress lines."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    child = subprocess.Popen([tool, *arguments], cwd=cwd, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
    os.close(slave)
    for feed in feeds:
        feed.start()
    screen, sizes, rest = Screen(columns), list(resize), b""
    while True:
        ready = select.select([master], [], [], 0.02)[0]
        if ready:
            try:
                some = os.read(master, 65536)
            except OSError:
                break
            if not some:
                break
            rest += some
            text = rest.decode(errors="ignore")
            if text.encode() == rest and not text.endswith("\r"): # whole characters, and no newline cut in two
                rest = b""
                screen.feed(text)
        elif sizes and screen.since > 2:
            screen.sizes.append(sizes.pop(0))
            screen.since = 0
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, screen.sizes[-1], 0, 0))
    os.close(master)
    status = child.wait()
    for feed in feeds:
        feed.join()
    return screen, status


def slowly(path, data, pieces, pause):
    def go():
        try:
            with open(path, "wb") as f:
                for i in range(pieces):
                    f.write(data[len(data) * i // pieces:len(data) * (i + 1) // pieces])
                    f.flush()
                    time.sleep(pause)
        except BrokenPipeError:
            pass
    return threading.Thread(target=go)


def safetensors(n, byte=1):
    text = b'{"w":{"dtype":"BF16","shape":[%d],"data_offsets":[0,%d]}}' % (n, 2 * n)
    return struct.pack("<Q", len(text)) + text + bytes([byte, 60]) * n


with tempfile.TemporaryDirectory() as t:
    long_name = "checkpoints-of-a-large-model-with-a-name-that-is-long/model-00001-of-00002.safetensors"
    east = "模型/检查点检查点检查点检查点检查点检查点检查点-模型.safetensors"
    for name in (long_name, east, "short.safetensors"):
        os.makedirs(os.path.dirname(os.path.join(t, name)), exist_ok=True)
        with open(os.path.join(t, name), "wb") as f:
            f.write(safetensors(6 << 20))
    os.mkfifo(os.path.join(t, "pipe"))

    for name in (long_name, east, "short.safetensors"):
        bad, shown = [], ""
        for columns in (200, 120, 80, 66, 65, 50, 40, 30, 25, 20, 12, 7, 3, 1, 0):
            s, status = watch(["compress", "-f", name], columns, t)
            width = columns or 80
            lines = [l for l, _ in s.progress]
            bad += [f"{columns} columns: {l!r}" for l in lines if width_of(l) >= width]
            if width >= 7 and not s.progress:
                bad.append(f"{columns} columns: no progress")
            if status or s.odd or (width >= 20 and not any("%" in l for l in lines)) or (width >= 66 and not any("MB/s" in l for l in lines)):
                bad.append(f"{columns} columns: status {status}, {s.odd} {lines}")
            if width >= 20 and not all("name" in l or name[-15:] in l or name[-3:] in l for l in lines):
                bad.append(f"{columns} columns: no end of the name in {lines}")
            if len(s.lines) != 1 or not s.lines[0].startswith(name[:5]) or "ratio" not in s.lines[0]:
                bad.append(f"{columns} columns: left standing: {s.lines}")
        report(not bad, f"the progress line of {name[-40:]} fits 15 widths", "; ".join(bad[:4]))

    # a window that changes while a file is read: the second one comes slowly
    with open(os.path.join(t, long_name), "rb") as f:
        data = f.read()
    for other, verdict in ((data, "equal"), (safetensors(6 << 20, 2), "different")):
        s, status = watch(["compare", long_name, "pipe"], 100, t, [slowly(os.path.join(t, "pipe"), other, 60, 0.03)], [40, 120, 20, 60, 30])
        lines = s.progress
        bad = [f"{c} columns: {l!r}" for l, c in lines if width_of(l) >= c]
        if len({c for _, c in lines}) < 3 or len(lines) < 6:
            bad.append(f"only {len(lines)} lines")
        if not any(" left" in l for l, _ in lines):
            bad.append("no time that is left")
        if not any(re.search(r"  I/O ([6-9]\d|100) %$", l) for l, _ in lines):
            bad.append("not said that it waits for a pipe")
        report(not bad, f"the progress line follows the window ({len(lines)} lines)", "; ".join(bad[:4]))
        wanted = [verdict] if verdict == "equal" else ["w: 6291456 of 6291456 elements differ", verdict]
        whole = unwrapped(s.lines)
        good = len(whole) == len(wanted) and all(l.startswith(w) for l, w in zip(whole, wanted)) and whole[-1] == verdict and not s.line
        report(good and status == (verdict != "equal"), f"the verdict '{verdict}' has a line of its own", repr(s.lines))

    # whatever ends a command wipes the line first
    broken = bytearray(safetensors(6 << 20))
    subprocess.run([tool, "compress", "-q", "-f", "-T", "1", "short.safetensors"], cwd=t, check=True)
    with open(os.path.join(t, "short.safetensors.bsnap"), "rb") as f:
        packed = bytearray(f.read())
    packed[-40] ^= 1
    with open(os.path.join(t, "broken.bsnap"), "wb") as f:
        f.write(packed)
    bad = []
    for arguments in (["test", "broken.bsnap"], ["info", "broken.bsnap"], ["decompress", "-f", "-o", "back", "broken.bsnap"],
                      ["compare", "short.safetensors", "broken.bsnap"], ["compare", "broken.bsnap", "short.safetensors"]):
        s, status = watch(arguments, 80, t)
        if not status or not s.lines or not all(l.startswith("bitsnap: broken.bsnap: ") for l in s.lines[-1:]) or len(s.lines) > 2 or s.line:
            bad.append(f"{arguments}: {s.lines} {s.line!r}")
    for arguments in (["info", "short.safetensors.bsnap"], ["test", "short.safetensors.bsnap"]):
        s, status = watch(arguments, 80, t)
        if status or any("%" in l and "MB/s" in l for l in s.lines) or s.line:
            bad.append(f"{arguments}: {s.lines} {s.line!r}")
    report(not bad, "errors and tables have lines of their own", "; ".join(bad))

    # a table
    names = ["layer", "model.decoder.layers.1.self_attention.query_key_value_and_more_than_that.weight", "\u6a21" * 40]
    text = json.dumps({n: {"dtype": "BF16", "shape": [7, 1], "data_offsets": [14 * i, 14 * i + 14]} for i, n in enumerate(names)}, ensure_ascii=False).encode()
    with open(os.path.join(t, "table.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"\1\60" * 21)
    subprocess.check_call([tool, "compress", "-q", "-f", "table.safetensors"], cwd=t)
    for columns in (70, 80, 100, 120, 170):
        s, status = watch(["info", "table.safetensors.bsnap"], columns, t)
        rows = s.lines[:s.lines.index(next(l for l in s.lines if l.startswith("header")))]
        cells = [l for l in rows if " BF16 " in l or l.startswith("name ")] # names that do not fit have lines of their own
        good = not status and max(map(width_of, rows)) < columns and len({width_of(l) for l in cells}) == 1 and len(cells) == 4 and \
            any(l.startswith(names[1]) or columns < 80 and l == "..." + names[1][-66:] for l in rows) and any(l.startswith("layer ") for l in cells)
        report(good, f"a table is as wide as a window of {columns} columns", repr(rows))

    # tables of many tensors: none of the lines wraps, and every name is there
    names = [f"model.vision_tower.layers.{i}.self_attn.out_projection.weight.{m}" for i in range(60) for m in ("exp_avg", "exp_avg_sq")]
    text = json.dumps({n: {"dtype": "F32", "shape": [5000], "data_offsets": [20000 * i, 20000 * i + 20000]} for i, n in enumerate(names)}).encode()
    with open(os.path.join(t, "many.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + struct.pack("<5000f", *(1e-6 * (i % 999 + 1) for i in range(5000))) * len(names))
    subprocess.check_call([tool, "compress", "-q", "-f", "--adam", "standard", "many.safetensors"], cwd=t)
    for given in (["info", "many.safetensors"], ["info", "many.safetensors.bsnap"], ["compress", "--dry-run", "many.safetensors"],
                  ["compress", "--dry-run", "--adam", "standard", "many.safetensors"]):
        s, status = watch(given, 80, t)
        wide = [l for l in s.lines if width_of(l) >= 80]
        lost = [n for n in names if not any(n in l for l in s.lines)]
        report(not status and not wide and not lost and any(l.startswith("file ") for l in s.lines[-20:]),
               f"{' '.join(given)}: 120 long names in 80 columns, the sum last", f"{status} {wide[:2]} {lost[:2]} {s.lines[-3:]}")

    base = bytearray(open(os.path.join(t, "many.safetensors"), "rb").read())
    for i in range(30000, len(base), 997):
        base[i] ^= 1
    with open(os.path.join(t, "base.safetensors"), "wb") as f:
        f.write(base)
    subprocess.check_call([tool, "compress", "-q", "-f", "-b", "base.safetensors", "-o", "many.delta", "many.safetensors"], cwd=t)
    for given in (["info", "many.delta"], ["info", "-v", "many.delta"], ["info", "-b", "base.safetensors", "many.delta"]):
        s, status = watch(given, 80, t)
        wide = [l for l in s.lines if width_of(l) >= 80]
        report(not status and not wide and any(l.startswith("frame 0 ") for l in s.lines), f"{' '.join(given)} fits 80 columns", f"{status} {wide[:3]}")

    # lines of many parts, and the table of benchmark
    def piped(*arguments):
        return subprocess.run([tool, *arguments], cwd=t, capture_output=True, text=True)
    moments = [f"optimizer.state.model.decoder.layers.1.{role}.self_attention.weight" for role in ("exp_avg", "exp_avg_sq")]
    for name, others in (("first", 0), ("second", 40)):
        text = json.dumps({n: {"dtype": "F32", "shape": [5000], "data_offsets": [20000 * i, 20000 * i + 20000]} for i, n in enumerate(moments)}).encode()
        values = [0.0 if i % 100 == 7 else math.inf if i % 100 == 9 else 1e-5 * (i % 999 + 1) for i in range(10000 - others)]
        with open(os.path.join(t, name + ".safetensors"), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + struct.pack("<10000f", *values, *[2e-5] * others))
    subprocess.check_call([tool, "compress", "-q", "-f", "--adam", "small", "second.safetensors"], cwd=t)
    for columns in (80, 100, 300):
        bad, several = [], 0
        for one, other in (("first", "second"), ("second", "first"), ("second", "second")):
            given = ["compare", one + ".safetensors", other + ".safetensors.bsnap" if other == "second" else other + ".safetensors"]
            s, status = watch(given, columns, t)
            several += len(s.lines) > 4
            if max(map(width_of, s.lines)) >= columns or unwrapped(s.lines) != piped(*given).stdout.splitlines() or status != (one != other):
                bad.append(f"{given}: {status} {s.lines}")
        report(not bad and (several > 0) == (columns < 200), f"compare's lines fit a window of {columns} columns, and say all", "; ".join(bad))
    long_table = "a" * 100 + "table.safetensors"
    os.link(os.path.join(t, "table.safetensors"), os.path.join(t, long_table))
    for columns in (40, 80, 100, 300):
        s, status = watch(["benchmark", "table.safetensors", long_table], columns, t)
        report(not status and len(s.lines) == 3 and len({width_of(l) for l in s.lines}) == 1 and width_of(s.lines[0]) <= max(min(columns - 1, 81), 53) and "..." in s.lines[2]
               and "out GB/s" in s.lines[0], f"benchmark's table fits a window of {columns} columns", repr(s.lines))

    # several files
    names = [f"f{i}.safetensors" for i in range(1, 6)]
    for name in names:
        with open(os.path.join(t, name), "wb") as f:
            f.write(safetensors(1 << 20))
    packed = [n + ".bsnap" for n in names]
    for command, given, sizes in (("compress", names, True), ("test", packed, False), ("info", packed, False), ("decompress", packed, True)):
        s, status = watch([command, "--bytes", *(["-f"] if sizes else []), *given], 100, t)
        counts = [l for l, _ in s.progress]
        bad = [i for i in range(1, 6) if not any(f"{i} of 5" in l and f"f{i}." in l for l in counts)]
        last = s.lines[-1] if s.lines else ""
        report(not status and not bad and last.startswith("5 of 5 files: ") and "ratio" in last, f"{command} of 5 files says which, and their sum", f"{bad} {last!r}")
        if command == "compress":
            bytes_in = 5 * len(safetensors(1 << 20))
            bytes_out = sum(os.path.getsize(os.path.join(t, p)) for p in packed)
            report(f": {bytes_in} bytes -> {bytes_out} bytes" in last, "the sum is that of the sizes", last)
    s, status = watch(["compress", "-f", *names], 100, t)
    report(f": {bytes_in / 2 ** 20:.1f} MiB -> " in s.lines[-1], "without --bytes sizes are rounded", repr(s.lines))
    s, status = watch(["test", packed[0], "missing.bsnap", packed[1]], 100, t)
    report(status == 1 and s.lines[-1].startswith("2 of 3 files: "), "files that failed are not in the sum", repr(s.lines))
    s, status = watch(["test", packed[0]], 100, t)
    report(status == 0 and len(s.lines) == 1, "one file has no sum", repr(s.lines))
    for quiet in ("-q", "--json", "--no-progress"):
        s, status = watch(["compress", "-f", quiet, *names], 100, t)
        good = not status and not any("%" in l for l, _ in s.progress) and (quiet != "-q" or not s.lines) and (quiet != "--json" or len(s.lines) == 5)
        report(good, f"{quiet} shows no progress, and what it should", repr(s.lines[:3]))

    report(piped("compress", "-f", *names).stderr == "", "without a terminal nothing is said")
    report(piped("compress", "-f", "--json", "-v", *names).stderr == "", "nor with --json")
    said = piped("compress", "-f", "-v", *names).stderr.split("\n")
    report(len(said) == 7 and said[5].startswith("5 of 5 files: "), "-v sums up without a terminal", repr(said))
sys.exit(failed)
