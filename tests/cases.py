#!/usr/bin/env python3
"""Writes tests/cases.txt, which tests/test_cases.c reads: a small frame of each recipe of generate.py, valid and invalid.

    cases.py >tests/cases.txt

A line: name, the condition it is rejected by (or -), the frame, XXH3-64 of its elements (or -), the dtype of its base (or -) and
its elements, and what decoder.py says, without heeding checks, of the frame damaged in 32 ways (see damaged): in which of them it
is accepted, as bits, and the XXH3-64 of the elements then, combined by exclusive or (or - -). Bytes are in hexadecimal; HEX*N
repeats HEX until there are N bytes; + joins.
"""
import random
import sys

import decoder
import generate

TRIES = 12
MOST = {"invalid": 8700, "valid": 1100}  # characters of a line; larger ones are left out
DAMAGES = 32
FEW = 5000  # elements at most, where a frame is to be decoded so often


def text_of(data):
    """Repeats are what makes bases large; their last element is another."""
    if len(data) > 4000:
        for width in (1, 2, 4, 8):
            for period in (997 * width, width):
                for same in range(len(data), len(data) - 9, -width):
                    if (data[:period] * (same // period + 1))[:same] == data[:same]:
                        return "%s*%d" % (data[:period].hex(), same) + ("+" + data[same:].hex() if data[same:] else "")
    return data.hex() or "-"


def damaged(frame, header, number):
    """A byte behind the header is changed: one bit, or all of them."""
    x = (number * 6364136223846793005 + len(frame) * 1442695040888963407) & decoder.M64
    x = (x ^ x >> 29) * 0x9E3779B97F4A7C15 & decoder.M64
    place, value = header + (x >> 32) % (len(frame) - header), 1 << (x >> 16 & 7)
    if number % 2:
        value = x >> 8 & 255 or 1
    return frame[:place] + bytes([frame[place] ^ value]) + frame[place + 1:]


def verdicts(frame, header, base, count):
    accepted = found = 0
    for number in range(DAMAGES):
        try:
            elements = decoder.decode_frame(damaged(frame, header, number), ignore_checks=True, base=base).elements
        except decoder.Reject:
            continue
        accepted |= 1 << number
        found ^= decoder.xxh3(elements)
    return "%x %016x" % (accepted, found)


def line_of(kind, name, rule, recipe, seed):
    frame, data = generate.attempt(recipe, random.Random(seed))
    base = frame.given_base if frame else None
    elements = more = "-"
    try:
        decoded = decoder.decode_frame(data, base=base)
        elements = "%016x" % decoder.xxh3(decoded.elements)
        header = len(frame.header())
        more = (header, base, frame.count) if frame.count <= FEW and header < len(data) else "-"
        assert kind == "valid"
    except decoder.Reject as reject:
        assert kind == "invalid" and decoder.rule_agrees(rule, reject.rule), (name, reject.rule)
    given = "%02x %s" % (base.dtype, text_of(base.elements)) if base else "- -"
    return "%s %s %s %s %s" % (name, "R%d" % rule if rule else "-", text_of(data), elements, given), data, more


def main():
    recipes = [("invalid", "R%d-%d" % (rule, k), rule, recipe)
               for rule, some in generate.invalid_recipes().items() for k, recipe in enumerate(some)]
    recipes += [("valid", "valid-%d" % k, 0, recipe) for k, recipe in enumerate(generate.valid_recipes())]
    print("# Written by tests/cases.py, which says what the columns are.")
    for kind, name, rule, recipe in recipes:
        lines = []
        for seed in range(TRIES):
            try:
                lines.append(line_of(kind, name, rule, recipe, "%s/%d" % (name, seed)))
            except RuntimeError:
                continue
            if len(lines[-1][0]) < 200:
                break
        line, data, more = min(lines, key=lambda made: len(made[0]))
        if len(line) <= MOST[kind]:
            print(line, "- -" if more == "-" else verdicts(data, *more))
        else:
            print("left out: %s, %d characters" % (name, len(line)), file=sys.stderr)


main()
