#!/usr/bin/env python3
"""Writes tests/golden.txt, the frozen frames: small ones of every recipe of generate.py, valid and invalid, and what the encoder
makes of small tensors (by exchange.c).

    golden.py >tests/golden.txt         needs a C compiler

A frozen frame is never to change within version 1; this is run when the format changes before 1.0 is released.
"""
import os
import random
import subprocess
import sys
import tempfile

import decoder
import generate

TRIES = 6
VALID, INVALID, ENCODED = 260, 400, 500  # bytes of a frame at most: each bit of it is flipped by test_golden.c
ELEMENTS = 2048
OF_A_RULE, OF_THE_ENCODER = 6, 60

HEAD = """\
# Frozen frames: name, the condition they are rejected by (or -), the frame, its elements (little-endian; or -).
# Frames with a base have a last column, the base: its dtype as a byte, and its elements (or -, where none is given).
# Every reader of version 1 agrees on them; tests/test_golden.c and tests/check_decoder.sh look. Written by tests/golden.py.
"""


def line_of(name, rule, frame, elements, base, is_delta):
    given = " " + ("%02x%s" % (base.dtype, base.elements.hex()) if base else "-") if base or is_delta else ""
    return "%s %s %s %s%s" % (name, "R%d" % rule if rule else "-", frame.hex(), elements.hex() or "-", given)


def generated(name, rule, recipe, most):
    """The smallest frame of some tries, as a line; none where all are too large."""
    best = None
    for seed in range(TRIES):
        try:
            frame, data = generate.attempt(recipe, random.Random("golden/%s/%d" % (name, seed)))
        except RuntimeError:
            continue
        base = frame.given_base if frame else None
        size = len(data) + (len(base.elements) if base else 0)
        if best is None or size < best[0]:
            best = (size, data, base)
    if best is None or len(best[1]) > most or best[0] > most + ELEMENTS:
        return None
    _, data, base = best
    try:
        elements = decoder.decode_frame(data, base=base).elements
        if rule or len(elements) > ELEMENTS:
            return None
    except decoder.Reject as reject:
        assert rule and decoder.rule_agrees(rule, reject.rule), (name, rule, reject.rule)
        elements = b""
    return line_of(name, rule, data, elements, base, rule == 43)


def encoded():
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "exchange")
        written = os.path.join(folder, "written")
        os.mkdir(written)
        subprocess.run([os.environ.get("CC", "cc"), "-std=c99", "-O1", "-w", "-DBITSNAP_NO_SIMD", "-I", os.path.dirname(here),
                        os.path.join(here, "exchange.c"), "-o", program, "-lm"], check=True)
        subprocess.run([program, "write", written, "1"], check=True, stdout=subprocess.DEVNULL)
        names = sorted(n for n in os.listdir(written) if n.startswith("v") and n.endswith(".bsnap"))
        for name in names:
            stem = os.path.join(written, name[:-len(".bsnap")])
            if os.path.getsize(stem + ".bsnap") > ENCODED:
                continue
            with open(stem + ".bsnap", "rb") as f:
                frame = f.read()
            base = None
            if os.path.exists(stem + ".base"):
                with open(stem + ".base", "rb") as f:
                    base = decoder.parse_base(f.read())
            elements = decoder.decode_frame(frame, base=base).elements
            if len(elements) <= ELEMENTS:
                yield line_of("encoded-" + name[:-len(".bsnap")], 0, frame, elements, base, False)


def main():
    sys.stdout.write(HEAD)
    for k, recipe in enumerate(generate.valid_recipes()):
        line = generated("valid-%d" % k, 0, recipe, VALID)
        if line:
            print(line)
    for rule, some in generate.invalid_recipes().items():
        lines = [generated("reject-R%d-%d" % (rule, k), rule, recipe, INVALID) for k, recipe in enumerate(some)]
        for line in sorted(filter(None, lines), key=len)[:OF_A_RULE]:
            print(line)
    lines = list(encoded())
    step = max(1, len(lines) // OF_THE_ENCODER)
    for line in lines[::step]:
        print(line)


main()
