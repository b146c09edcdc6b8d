#!/usr/bin/env python3
"""The corpus of frozen frames and files. docs/vectors has those that a person reads, with a dump; tests/format/corpus.txt has all others,
one a line. No frame is in both. docs/vectors/README.md has the grammar, tests/format/corpus.h reads it in C.

    vectors.py write                writes all of them anew
    vectors.py check [TOOL]         tests/format/decoder.py agrees with each, and so does the tool, if given, with the files; every
                                    numbered condition of section 9, form and kind of list has a vector in docs/vectors

A frame or file is made by a recipe of generate.py, the smallest of some tries. Its dump is what decoder.py reads.
"""
import functools
import os
import random
import re
import subprocess
import sys
import tempfile

import decoder
import generate as g
from decoder import DTYPES, le64, u16, u32, xxh3

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER, CORPUS = os.path.join(HERE, "..", "..", "docs", "vectors"), os.path.join(HERE, "corpus.txt")
TRIES = 12
LINES = 32          # most lines of a vector in docs/vectors, unless no other vector shows its feature
CHARACTERS = 8700   # longest line of the corpus from a recipe for rejected frames
DAMAGES, FEW = 32, 5000
FORMS = ("STORED", "CONST", "SPLIT", "BYTES", "SAME", "CLASSED", "SCALED", "QUANTIZED", "SPARSE", "ZIGZAG", "PARTED", "PATCHED")
BF16, F32 = decoder.BF16, decoder.F32


# ---- what decoder.py reads, with names ----

class Trace:
    """Names for the bytes of a frame or file: the first name that a byte gets is its own."""

    def __init__(self):
        self.names, self.offset = {}, 0

    def note(self, start, size, name):
        for at in range(start + self.offset, start + size + self.offset):
            self.names.setdefault(at, name)


trace = None


def traced(owner, name):
    """Calls `before` ahead of a function of decoder.py, with its arguments, while there is a trace."""
    def decorate(before):
        function = getattr(owner, name)

        @functools.wraps(function)
        def wrapper(*arguments, **options):
            if trace is not None:
                before(*arguments, **options)
            return function(*arguments, **options)
        setattr(owner, name, wrapper)
        return before
    return decorate


def kind_name(kind):
    if kind & 15 == 4 and 1 <= kind >> 4 <= 8:
        return "TREE with an escape of length %d" % (kind >> 4)
    return {0: "RAW", 1: "CONST", 2: "TREE", 5: "SPLIT0", 6: "SPLIT2"}.get(kind, "reserved")


@traced(decoder.ListDecoder, "list")
def _(self, m, b, depth=0):
    if m and self.pos < self.end:
        trace.note(self.pos, 1, "%slist of %d symbol%s of %d bits: %s" % ("  " * depth, m, "s"[m == 1:], b, kind_name(self.data[self.pos])))


@traced(decoder.ListDecoder, "take")
def _(self, size):
    what = {"raw": "symbols", "table": "code lengths", "mask": "node"}.get(sys._getframe(2).f_code.co_name)
    if what and size <= self.end - self.pos:
        trace.note(self.pos, size, what)


@traced(decoder.ListDecoder, "table")
def _(self, b, escape):
    trace.note(self.pos, min(2, self.end - self.pos), "table: the first symbol, count - 1")


@traced(decoder.WordsDecoder, "words")
def _(self, m, level=0, shifted=0):
    if m and self.pos < self.end:
        s = self.data[self.pos]
        trace.note(self.pos, 1, "%d word%s of %d bits, level %d: s = %d" % (m, "s"[m == 1:], 8 * self.w, level, s))
        if s != decoder.RAW_WORDS:
            trace.note(self.pos + 1, min(1, self.end - self.pos - 1), "limit")


@traced(decoder.WordsDecoder, "take")
def _(self, size):
    if size <= self.end - self.pos:
        trace.note(self.pos, size, "words, or low bits of them")


@traced(decoder, "decode_raw_plane")
def _(data, pos, n, varying):
    trace.note(pos, decoder.raw_plane_size(n, varying), "raw plane" if varying == 255 else "bit planes 0x%02X" % varying)


@traced(decoder, "decode_classed")
def _(data, start, end, dtype, predictions):
    trace.note(start, 1, "classes")
    trace.note(start + 1, min(max(data[start] - 1, 0), end - start - 1), "borders")


@traced(decoder, "decode_scales")
def _(data, pos, end, header, first, n):
    trace.note(pos, min(1, end - pos), "1: there are scales, of rows and then of columns; 0: there are none")


@traced(decoder, "decode_scaled")
def _(data, start, end, header, first, n):
    trace.note(start, 1, "signs apart")
    trace.note(start + 1, min(4, end - start - 1), "base")


@traced(decoder, "decode_certificate")
def _(data, start, end):
    for at, size, name in ((0, 8, "certificate: neither zero nor infinite nor NaN"), (8, 8, "X"), (16, 8, "sum of relative errors"), (24, 8, "sum of squares"),
                           (32, 8, "the largest error"), (40, 4, "the largest relative error")):
        trace.note(start + at, max(0, min(size, end - start - at)), name)


@traced(decoder, "decode_exact")
def _(data, pos, end, certificate, w):
    trace.note(pos - 5, 1 if u16(data, pos) is not None and sys._getframe(2).f_locals.get("family") == 1 else 0, "signs")
    trace.note(pos - 4, 4 if sys._getframe(2).f_locals.get("family") == 1 else 0, "base")
    trace.note(pos, min(certificate.exact * w, end - pos), "elements that stand exactly")


@traced(decoder, "decode_cluster_ends")
def _(data, pos, end, header):
    trace.note(pos, min(1, end - pos), "clusters - 1")
    if pos < end:
        trace.note(pos + 1, min((data[pos] + 1) * 2 * DTYPES[header.dtype].width, end - pos - 1), "ends of clusters")


@traced(decoder, "decode_changes")
def _(data, pos, end, n, w):
    for at, size, name in ((0, 2, "c"), (2, 1, "l"), (3, 1, "a, and whether numbers escape"), (4, 2 * (data[pos + 3] >> 7), "f")):
        trace.note(pos + at, max(0, min(size, end - pos - at)), name)
    trace.note(pos, end - pos, "low, high, numbers, escaped")


@traced(decoder, "decode_block")
def _(data, pos, header, cell, ignore_checks, base=None):
    if pos + 4 > len(data):
        return
    head, at, w = u32(data, pos), pos + 4, DTYPES[header.dtype].width
    form = FORMS[head & 255] if head & 255 < len(FORMS) else "form %d" % (head & 255)
    trace.note(pos, 4, "head: %s, %s %d" % (form, "a run of" if head & 255 == 1 else "bytes:", head >> 8))
    for size, name in ((8 * header.has_checks, "check of the block"), (8 * bool(header.base), "cell hash of the base"), (8 * bool(header.base), "cell hash of the elements")):
        trace.note(at, min(size, len(data) - at), name)
        at += size
    size = min(w if head & 255 == 1 else head >> 8, len(data) - at)
    if head & 255 < 2:
        trace.note(at, size, "element" if head & 255 else "elements")


@traced(decoder.SplitBlock, "__init__")
def _(self, data, start, end, dtype, n, is_side=False):
    w, first = DTYPES[dtype].width, data[start]
    p = w - (first & 15 == 8)
    trace.note(start, 1, "descriptor: e = %d, %s" % (first & 15, "constant bits" if first & 16 else "no constant bits"))
    at = start + 1
    if first & 16:
        trace.note(at, max(0, min(p, end - at)), "bits that vary")
        trace.note(at + p, max(0, min(p, end - at - p)), "values of the bits that do not")
        at += 2 * p
    trace.note(at, 2 if dtype == decoder.F64 and at + 2 <= end else 0, "base")


def fields(data, at, *named):
    for size, name in named:
        trace.note(at, max(0, min(size, len(data) - at)), name)
        at += size
    return at


@traced(decoder, "decode_frame")
def _(data, exact=True, ignore_checks=False, limit=0, base=None):
    if sys._getframe(2).f_code.co_name == "decode_file":
        trace.offset = sys._getframe(2).f_locals["pos"]
    at = fields(data, 0, (4, "magic"), (1, "version"), (1, "dtype"), (1, "L"), (1, "flags"), (8, "count"))
    if len(data) > 18 and data[7] & 0x80:
        fields(data, at, (2, "bytes of extensions"), (u16(data, 16), "extensions"))
        at += 2 + u16(data, 16)
    fields(data, at, (8, "check of the header"))


@traced(decoder, "decode_footer")
def _(data, pos, header, blocks, elements, ignore_checks):
    index = decoder.Index(len(blocks), pos, header)
    for level, (start, count, size) in enumerate(index.levels):
        for i in range(0, count, 256):
            trace.note(start + i * size, max(0, min(min(256, count - i) * size, len(data) - start - i * size)),
                       "node %d of level %d: cells, places, hashes" % (i // 256, level) if level else "page %d: heads%s" % (i // 256, " and half checks" * header.has_checks))
    extra = index.end + 8 * header.has_content_id + 44 * header.is_quantized
    fields(data, index.end, (8 * header.has_content_id, "content id"), (44 * header.is_quantized, "certificate of the frame"),
           *((((4, "E"), (u32(data, extra), "extensions of the footer"), (4, "E")) if header.has_footer_extensions else ())),
           (8, "B"), (8, "size of the frame"), (8, "check of the footer"), (4, "end magic"))


@traced(decoder, "decode_file")
def _(data, limit=0, base=None):
    fields(data, 0, (8, "magic"), (1, "version"), (1, "kind"), (2, "0"), (4, "T"), (8, "bytes of the source"),
           (4, "incompatible features"), (4, "compatible features"), (8, "check of the file"))


@traced(decoder, "decode_text_record")
def _(data, pos, at, size, decode=True):
    trace.offset = 0
    coded = max(0, min(u32(data, pos + 8), len(data) - pos - 12))
    fields(data, pos, (4, "text record: magic"), (4, "n"), (4, "C"))
    trace.note(pos + 12 + coded, max(0, min(8, len(data) - pos - 12 - coded)), "check of the record")


@traced(decoder, "pass_ancillary")
def _(data, pos):
    trace.offset = 0
    while data[pos:pos + 4] == decoder.ANCILLARY_MAGIC and pos + 16 <= len(data):
        size = min(decoder.u64(data, pos + 8), max(0, len(data) - pos - 24))
        pos = fields(data, pos, (4, "ancillary record: magic"), (4, "type"), (8, "size"), (size, "contents"), (8, "check of the record"))


@traced(decoder, "decode_bases")
def _(data, pos, header, given):
    trace.offset = 0
    size = decoder.u32(data, pos + 8)
    at = fields(data, pos, (4, "bases record: magic"), (2, "bases"), (2, "bits"), (4, "m"), (8, "XXH3 of the text of the source"))
    while at + 21 <= pos + 20 + size <= len(data):
        at = fields(data, at, (4, "base: bytes of its text"), (8, "bytes of its data"), (8, "XXH3 of its text"), (1, "bytes of its name"), (data[at + 20], "name"))
    fields(data, pos + 20 + size, (8, "check of the record"))


@traced(decoder, "base_of_frame")
def _(data, pos, header, bases, begin, earlier):
    trace.offset = 0
    if data[pos:pos + 4] == decoder.KEPT_MAGIC:
        pos = fields(data, pos, (4, "kept record: magic"), (2, "0"), (6, "begin of the last frame that refers"), (4, "check of the record"))
    if data[pos:pos + 4] == decoder.PLACE_MAGIC:
        fields(data, pos, (4, "place record: magic"), (2, "number of the base"), (6, "byte of its data"), (4, "check of the record"))


@traced(decoder, "decode_end_record")
def _(data, pos, header, source_size, records, text, records_end):
    trace.offset = 0
    tree, names = (decoder.tree_size(count, size) if count < 1000 else 0 for count, size in ((decoder.u64(data, pos + 16), decoder.RECORD_ENTRY), (u32(data, pos + 4), 8)))
    fields(data, pos, (4, "end record: magic"), (4, "N"), (8, "bytes of the source"), (8, "R"), (4, "incompatible features"), (4, "compatible features"),
           (8, "end of the records"), (header.end_prefix - decoder.END_PREFIX, "SHA-256"), (tree, "tree of records"), (names, "tree of names"),
           (8, "check of the root of the tree of records"), (8, "check of the root of the tree of names"), (8, "bytes of this record"),
           (8, "check of the record"), (8, "end magic"))


# ---- text ----

def repeated(data, at, end, unit):
    """The number of bytes from `at` on that repeat the first `unit` bytes"""
    stop = at + unit
    while stop + unit <= end and data[stop:stop + unit] == data[at:at + unit]:
        stop += unit
    return min(stop, end) - at


def hex_lines(data, names=None):
    """Lines of up to 16 bytes with names, or 32 without, or of repeated bytes. The name is that of the first byte."""
    units = (1, 2, 4, 8) if names is not None else (1, 2, 4, 5, 8, 29)      # (small blocks and frames)
    at, lines, names, most = 0, [], names or {}, 16 if names else 32
    while at < len(data):
        name, end = names.get(at), at
        while end < len(data) and names.get(end) == name:
            end += 1
        while at < end:
            unit, size = max(((u, repeated(data, at, end, u)) for u in units), key=lambda found: found[1])
            if size > 2 * most:
                text, at = "%s x%d" % (data[at:at + unit].hex(" ").upper(), size // unit) + ("/%d" % unit if unit > 1 else ""), at + size
            else:
                stop = min(at + most, end)
                text, at = data[at:stop].hex(" ").upper(), stop
            lines.append("  %-48s # %s" % (text, name) if name else "  " + text)
            name = None
    return "\n".join(lines) + "\n"


def hex_tokens(data):
    """The same without names, in one line"""
    at, text = 0, ""
    while at < len(data):
        unit, size = max(((u, repeated(data, at, len(data), u)) for u in (1, 2, 4, 5, 8, 29)), key=lambda found: found[1])
        if size > unit + 8:
            text += "%s x%d%s " % (data[at:at + unit].hex().upper(), size // unit, "/%d" % unit if unit > 1 else "")
            at += size
        else:
            text += data[at:at + 1].hex().upper()
            at += 1
    return text.strip()


def section(title, data, names=None):
    return title + "\n" + (hex_lines(data, names) if data else "")


# ---- damage ----

def damaged(frame, header, number):
    """Changes one bit or one byte after the header, as tests/format/test_cases.c does."""
    x = (number * 6364136223846793005 + len(frame) * 1442695040888963407) & decoder.M64
    x = (x ^ x >> 29) * 0x9E3779B97F4A7C15 & decoder.M64
    place, value = header + (x >> 32) % (len(frame) - header), 1 << (x >> 16 & 7)
    if number % 2:
        value = x >> 8 & 255 or 1
    return frame[:place] + bytes([frame[place] ^ value]) + frame[place + 1:]


def verdicts(frame, base):
    """Which of DAMAGES damaged frames are accepted if checks are ignored, as bits, and the XXH3 of their elements, combined by
    exclusive or. None where nothing follows the header, or there are too many elements to decode so often."""
    header = 24 + (2 + u16(frame, 16) if frame[7] & 0x80 else 0)
    if header == len(frame) or decoder.decode_header(frame).count > FEW:
        return None
    accepted = found = 0
    for number in range(DAMAGES):
        try:
            elements = decoder.decode_frame(damaged(frame, header, number), ignore_checks=True, base=base).elements
        except decoder.Reject:
            continue
        accepted |= 1 << number
        found ^= xxh3(elements)
    return le64(accepted)[:4] + le64(found)


# Forms, kinds of lists and levels of words, with their words in a dump
SHOWN = dict([(form, "head: %s," % form) for form in FORMS] + [("level %d of words" % level, "bits, level %d: s" % level) for level in range(5)] + [
    ("list " + kind_name(kind), ": %s\n" % kind_name(kind)) for kind in (0, 1, 2, *range(0x14, 0x94, 16), 5, 6)])


class Vector:
    """rule: None, a number of R, or "S5". parts: of "frame", "elements", "file", "source", "xxh3", "bytes", "damaged"; bases: (dtype or
    None, bytes)"""

    dumped = True       # with names for the bytes

    def __init__(self, name, rule=None, bases=(), **parts):
        self.name, self.rule, self.bases, self.parts = name, rule, list(bases), parts

    def base(self):
        return decoder.Base(*self.bases[0]) if self.bases else None

    def head(self):
        return "== " + self.name + ("" if self.rule is None else " rejected " + decoder.rule_name(self.rule))

    def text(self):
        """The text for a reader"""
        global trace
        trace = Trace()
        what = self.outcome()
        names, trace = trace.names, None
        text = self.head() + "\n"
        if isinstance(what, decoder.Reject):
            first = "" if what.rule == self.rule else decoder.rule_name(what.rule) + ", which a reader forwards meets first: "
            text += "# byte %d: %s%s\n" % (what.offset, first, what.message)
        for dtype, data in self.bases:
            text += section("base/%d" % dtype if dtype is not None else "base", data, {})
        for title, data in self.parts.items():
            if title != "damaged":
                text += section(title, data, names if title in ("frame", "file") and self.dumped else None)
        return text + self.damage() + "\n"

    def line(self, name):
        """One line. Of the elements it has only the XXH3."""
        parts = [("base/%d" % dtype if dtype is not None else "base", data) for dtype, data in self.bases]
        parts += [("xxh3", le64(xxh3(data))) if title == "elements" else (title, data) for title, data in self.parts.items() if title != "damaged"]
        return " ".join([self.head().replace(self.name, name, 1)] + [title + " " + hex_tokens(data) for title, data in parts]).rstrip() + " " * bool(self.damage()) + (
            self.damage() or "\n")

    def damage(self):
        if "frame" not in self.parts or self.rule is not None:
            return ""
        if "damaged" not in self.parts:
            self.parts["damaged"] = verdicts(self.parts["frame"], self.base())
        return "damaged %s\n" % self.parts["damaged"].hex().upper() if self.parts["damaged"] else ""

    def outcome(self):
        """The result of decoder.py: bytes, or a Reject"""
        try:
            if "bytes" in self.parts:
                return le64(xxh3(self.parts["bytes"]))
            if "frame" in self.parts:
                elements = decoder.decode_frame(self.parts["frame"], base=self.base()).elements
                return le64(xxh3(elements)) if "xxh3" in self.parts else elements
            return decoder.decode_file(self.parts["file"], base=[data for _, data in self.bases] if self.bases else None)
        except decoder.Reject as reject:
            return reject

    def problem(self):
        got = self.outcome()
        if self.rule is None:
            right = next(self.parts[part] for part in ("xxh3", "elements", "source") if part in self.parts)
            if got != right:
                return str(got) if isinstance(got, decoder.Reject) else "another result"
            return "damaged" if self.parts.get("damaged") and verdicts(self.parts["frame"], self.base()) != self.parts["damaged"] else None
        if not isinstance(got, decoder.Reject):
            return "accepted"
        if self.rule == 41:
            last = decoder.decode_header(self.parts["frame"]).count - 1
            rule = decoder.rejected_rule(decoder.decode_range, self.parts["frame"], last, 1, base=self.base())
            return None if rule == 41 else "a range: %s" % rule
        return None if decoder.rule_agrees(self.rule, got.rule) else str(got)


def parse(text):
    """The vectors of a file."""
    vectors, into = [], None
    tokens = iter(re.sub("#.*", "", text).split())
    for token in tokens:
        title, _, dtype = token.partition("/")
        if token == "==":
            vectors.append(Vector(next(tokens)))
        elif token == "rejected":
            rule = next(tokens)
            vectors[-1].rule = int(rule[1:]) if rule[0] == "R" else rule
        elif title == "base":
            into = bytearray()
            vectors[-1].bases.append((int(dtype) if dtype else None, into))
        elif title in ("frame", "file", "elements", "source", "xxh3", "bytes", "damaged"):
            into = vectors[-1].parts[title] = bytearray()
        elif token[0] == "x":
            into.extend(into[-int(dtype or 1):] * (int(title[1:]) - 1))
        else:
            into.extend(bytes.fromhex(token))
    for vector in vectors:
        vector.parts = {title: bytes(data) for title, data in vector.parts.items()}
        vector.bases = [(dtype, bytes(data)) for dtype, data in vector.bases]
    return vectors


def frozen():
    """All entries of the corpus: (file, its vectors)"""
    for path in sorted(os.path.join(FOLDER, name) for name in os.listdir(FOLDER) if name.endswith(".txt")) + [CORPUS]:
        with open(path, encoding="ascii") as stream:
            yield os.path.basename(path)[:-4], parse(stream.read())


# ---- vectors ----

def vector_of(name, rule, made, data):
    if isinstance(made, g.Snap):
        return Vector(name, rule, file=data, **({} if rule else {"source": made.source()}))
    base = made.given_base if made else None
    bases = [(base.dtype, base.elements)] if base else []
    return Vector(name, rule, bases, frame=data, **({} if rule else {"elements": made.elements()}))


def smallest(name, rule, recipe, tries=TRIES):
    best = None
    for seed in range(tries):
        try:
            made, data = g.attempt(recipe, random.Random("vectors/%s/%d" % (name, seed)))
        except RuntimeError:
            continue
        vector = vector_of(name, rule, made, data)
        size = len(data) + sum(len(base) for _, base in vector.bases) + len(vector.parts.get("elements", b""))
        if (best is None or size < best[0]) and not vector.problem():
            best = size, vector
    if best is None:
        raise SystemExit("no vector " + name)
    return best[1]


def rejected(*rules, most=3):
    """Some smallest frames of each rule."""
    found = []
    for rule in rules:
        recipes = g.invalid_recipes() if isinstance(rule, int) else g.invalid_file_recipes()
        number = rule if isinstance(rule, int) else int(rule[1:])
        some = [smallest("%s-%d" % (decoder.rule_name(rule), i + 1), rule, recipe, 5 if isinstance(rule, int) else 20) for i, recipe in enumerate(recipes[number])]
        size = {id(v): sum(map(len, v.parts.values())) + sum(len(b) for _, b in v.bases) for v in some}
        found += sorted(some, key=lambda v: size[id(v)])[:most]
    return found


def valid(name, recipe, tries=TRIES):
    return smallest(name, None, recipe, tries)


def numbers(w, n=67):
    """Element i has the number i as its lowest byte, so the list of that plane shows the pair order."""
    planes = [g.in_pair_order(list(range(n)), w)] + [[k] * n for k in range(1, w)]
    return planes, [b"\0" + bytes(planes[0])] + [bytes([1, k]) for k in range(1, w)]


def ordered(dtype):
    w = DTYPES[dtype].width
    return lambda rng: g.Frame(dtype, 16, [g.encode_bytes(*numbers(w))])


def zigzags(dtype):
    """0, -1, 1, -2, 2, ..."""
    w = DTYPES[dtype].width
    planes, lists = numbers(w, 40)
    planes[1:], lists[1:] = [[0] * 40] * (w - 1), [b"\1\0"] * (w - 1)
    return lambda rng: g.Frame(dtype, 16, [g.zigzag_of(g.encode_bytes(planes, lists), dtype)])


def runs(rng):
    return g.Frame(BF16, 6, [g.const_block(b"\x80\x3F", 320, 5), g.stored_block(bytes(range(128)), 2), g.const_block(b"\0\x80", 64 + 3, 2)])


def of_forms(dtype, make):
    return lambda rng: g.frame_around(rng, dtype, make(rng), 1)


def two_cells(rng):
    """A delta of two cells of 2^16 elements, SAME and STORED"""
    base = decoder.Base(2, bytes(65536) + b"abcde")
    return g.delta_frame(rng, 2, 1, base, [g.same_block(base, 2, 1, 0, 65536), g.stored_block(b"abXde", 1)], 16)


def listed(plan, m=20, b=8, symbols=None):
    return lambda rng: g.frame_of_list(rng, b, m, plan, symbols)


def xxh3_vectors():
    data = bytes(7 * i % 251 for i in range(1088))
    lengths = (0, 1, 2, 3, 4, 7, 8, 9, 13, 16, 17, 31, 32, 33, 64, 65, 96, 97, 128, 129, 143, 144, 192, 240, 241, 256, 320, 512, 1024, 1025, 1088)
    return [Vector("xxh3-%d" % n, bytes=data[:n], xxh3=le64(xxh3(data[:n]))) for n in lengths]


# deltas of files: one tensor of four F32
TEXT = b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
OTHER = TEXT.replace(b'"a"', b'"b"')
DATA = bytes(range(0x40, 0x50))


def safetensors(text, data):
    return le64(len(text)) + text + data


def base_entry(text, bytes_of_data=16, name=b"base", text_size=None):
    return le64(len(text) if text_size is None else text_size)[:4] + le64(bytes_of_data) + le64(xxh3(text)) + bytes([len(name)]) + name


def bases_record(text=TEXT, base_text=TEXT, flags=1, count=1, m=None, behind=b"", **made):
    entry = base_entry(base_text, **made)
    data = decoder.BASES_MAGIC + le64(count)[:2] + le64(flags)[:2] + le64(len(entry + behind) if m is None else m)[:4] + le64(xxh3(text)) + entry + behind
    return data + le64(xxh3(data))


def place_record(number=0, at=0):
    data = decoder.PLACE_MAGIC + le64(number)[:2] + le64(at)[:6]
    return data + le64(xxh3(data))[:4]


def kept_record(last, reserved=0):
    return decoder.KEPT_MAGIC + place_record(reserved, last)[4:12] + le64(xxh3(decoder.KEPT_MAGIC + place_record(reserved, last)[4:12]))[:4]


def text_record(text):
    return g.Snap(1, [], []).text_record(random.Random(0), text)


def delta_frame(data=DATA):
    base = decoder.Base(F32, data)
    values = data[:4] + b"\xFF" + data[5:]
    return g.Frame(F32, 16, [g.stored_block(values, 4)], 3, g.base_extension(g.base_info(1, base)), {}, base)


MARKS = (decoder.PLACE_MAGIC, decoder.KEPT_MAGIC)


def file_of(records, kind=2, text=TEXT, source_size=None, incompatible=0):
    """Consecutive records: (bytes, number of source bytes that they give; None if they are not in the tree)"""
    size = sum(given or 0 for _, given in records) + 8 if source_size is None else source_size
    header = decoder.encode_file_header(kind, len(text), size, incompatible)
    data, entries, begin = header, [], 8
    for record, given in records:
        if given is not None:
            frame = record
            while frame[:4] in MARKS:
                frame = frame[16:]
            if frame[:4] == decoder.MAGIC:
                begin = max(begin, 8 + len(text))
            entries.append((begin, len(data), decoder.seal_of(frame) if frame[:4] == decoder.MAGIC else decoder.u64(record, len(record) - 8)))
            begin += given
        data += record
    return data + decoder.encode_end_record(header[32:], size, entries, [], len(data), header[24:32])


def delta_file(name, rule=None, bases_bytes=None, text=TEXT, given=(safetensors(TEXT, DATA),), before=b"", place=place_record(), frame=None, made=None):
    """If bit 0 of the bases record is set, the text has no record"""
    made = made or {}
    same = made.get("flags", 1) & 1
    records = [(bases_record(text=text, **made) if bases_bytes is None else bases_bytes, None)]
    if made.get("flags", 1) & 2:
        records.append((text_record(TEXT), None))
    if not same:
        records.append((text_record(text), len(text)))
    records.append((place + (frame or delta_frame().write()), 16))
    data = file_of(records, text=text, source_size=8 + len(text) + 16)
    source = safetensors(text, delta_frame().elements())
    return Vector(name, rule, [(None, base) for base in given], file=data, **({} if rule else {"source": source}))


def of_delta(name, rule, bases, records, source):
    return Vector(name, rule, [(None, base) for base in bases], file=file_of(records, text=source[8:8 + decoder.u64(source, 0)], source_size=len(source)),
                  **({} if rule else {"source": source}))


def with_places():
    """A frame without a base, and one with a base that does not begin where the data of the base begins"""
    first, second = g.Frame(F32, 16, [g.stored_block(b"abcd", 4)], 1), delta_frame(DATA[4:])
    return of_delta("place-at-byte-4", None, [safetensors(TEXT, DATA)],
                    [(bases_record(), None), (first.write(), 4), (place_record(0, 4) + second.write(), 12)], safetensors(TEXT, b"abcd" + second.elements()))


def with_two_bases(name, rule=None, most=2):
    frame, data = delta_frame(DATA[::-1][:8]), DATA[::-1]
    record = bases_record(count=2, behind=base_entry(OTHER, name=b"second"))
    frames = [(place_record(number, at) + f.write(), len(f.elements())) for number, at, f in ((1, 0, frame), (0, 8, delta_frame(DATA[8:])))]
    return of_delta(name, rule, [safetensors(TEXT, DATA), safetensors(OTHER, data)][:most], [(record, None)] + frames,
                    safetensors(TEXT, frame.elements() + delta_frame(DATA[8:]).elements()))


def delta_files():
    plain = g.Frame(F32, 16, [g.stored_block(DATA, 4)], 1).write()
    return [
        delta_file("the-text-of-the-base"), delta_file("the-text-of-the-base-follows", made={"flags": 3}),
        with_places(), with_two_bases("two-bases"),
        delta_file("another-text", text=OTHER, made={"flags": 0}), delta_file("another-text-and-that-of-the-base", text=OTHER, made={"flags": 2}),
    ], [
        delta_file("S9-place", "S9", place=place_record()[:-1] + b"\0"),
        delta_file("S9-bases", "S9", bases_record()[:-1] + b"\0"),
        delta_file("S10-no-bases", "S10", place_record()),
        delta_file("S14-no-base", "S14", bases_record(count=0)), delta_file("S14-bits", "S14", bases_record(flags=5)),
        delta_file("S14-m", "S14", bases_record(behind=b"\0")), delta_file("S14-name", "S14", bases_record(name=b"a/b")),
        delta_file("S14-size-of-text", "S14", bases_record(text_size=0)), delta_file("S14-size-of-data", "S14", bases_record(bytes_of_data=1 << 48)),
        delta_file("S15-another-text", "S15", bases_record(text=OTHER)),
        delta_file("S16-text", "S16", bases_record(flags=0, text=TEXT), text=OTHER, made={"flags": 0}),
        delta_file("S17-no-base", "S17", given=()), with_two_bases("S17-one-of-two", "S17", most=1), delta_file("S17-no-safetensors", "S17", given=(b"12345678",)),
        delta_file("S17-two", "S17", given=(safetensors(TEXT, DATA), safetensors(OTHER, DATA))), delta_file("S17-another-text", "S17", given=(safetensors(OTHER, DATA),)),
        delta_file("S18-more-data", "S18", given=(safetensors(TEXT, DATA + b"\0"),)),
        delta_file("S36-itself", "S36", place=place_record(0xFFFF)), delta_file("S19-number", "S19", place=place_record(1)), delta_file("S19-no-place", "S19", place=b""),
        delta_file("S19-no-base", "S19", frame=plain), delta_file("S20-place", "S20", place=place_record(0, 1)),
        delta_file("R44-base", 44, given=(safetensors(TEXT, DATA[:-1] + b"\0"),)),
    ]


REFERENCE_TEXT = (b'{"half":{"dtype":"BF16","shape":[4096],"data_offsets":[0,8192]},'
                  b'"whole":{"dtype":"F32","shape":[4096],"data_offsets":[8192,24576]}}')


def half_frame(element=b"\xC0\x3F", n=4096):
    return g.Frame(9, 16, [g.const_block(element, n, 1)] if n else [], 3)


def referring_frame(base_elements, dtype=F32, base_dtype=9):
    base = decoder.Base(base_dtype, base_elements)
    n, role = len(base_elements) // DTYPES[base_dtype].width, 1 if dtype == base_dtype else 3
    return g.Frame(dtype, 16, [g.same_block(base, dtype, role, 0, n)], 3, g.base_extension(g.base_info(role, base)), {}, base)


def reference_file(name, rule=None, frames=None, incompatible=1, text=REFERENCE_TEXT, bases=(), record=None):
    """A frame of F32 that refers to an earlier one of BF16; or these frames, with the records before each"""
    if frames is None:
        frames = [(kept_record(8192), half_frame()), (place_record(0xFFFF, 0), referring_frame(half_frame().elements()))]
    source = safetensors(text, b"".join(frame.elements() for _, frame in frames))
    records = [(record, None)] if record else [(text_record(text), len(text))]
    records += [(marks + frame.write(), len(frame.elements())) for marks, frame in frames]
    data = file_of(records, 2 if record else 1, text, len(source), incompatible)
    return Vector(name, rule, [(None, base) for base in bases], file=data, **({} if rule else {"source": source}))


def reference_files():
    half, place = half_frame(), place_record(0xFFFF, 0)
    refers, data = referring_frame(half.elements()), half.elements()
    two = [(kept_record(8192), half_frame(n=1000)), (kept_record(8192), half_frame(b"\x40\x40", 3096))]
    spread = referring_frame(two[0][1].elements() + two[1][1].elements())
    text = b'{"a":{"dtype":"BF16","shape":[4096],"data_offsets":[0,8192]},"b":{"dtype":"BF16","shape":[4096],"data_offsets":[8192,16384]}}'
    against = referring_frame(data, 9)
    return [
        reference_file("upcast"), reference_file("of-two-frames", frames=two + [(place, spread)]),
        reference_file("equal", frames=[(kept_record(8192), half), (place, against)], text=text),
        reference_file("with-a-base", frames=[(kept_record(8192) + place_record(), against), (place, against)], text=text,
                       bases=[safetensors(text, data + data)], record=bases_record(text, text, bytes_of_data=16384)),
        reference_file("S9-kept", "S9", [(kept_record(8192)[:-1] + b"\0", half), (place, refers)]),
        reference_file("S36-kept", "S36", incompatible=0), reference_file("S36-none", "S36", [(b"", half)]),
        reference_file("S37-itself", "S37", [(kept_record(8192), half), (place_record(0xFFFF, 8192), refers)]),
        reference_file("S37-part", "S37", [(kept_record(8192), half), (place_record(0xFFFF, 2), refers)]),
        reference_file("S38-two-marks", "S38", [(kept_record(8192), half), (kept_record(24576) + place, refers)]),
        reference_file("S39-not-kept", "S39", [(b"", half), (place, refers)]),
        reference_file("S39-a-part", "S39", [two[0], (b"", two[1][1]), (place, spread)]),
        reference_file("S39-forgotten", "S39", [(kept_record(8192), half), (b"", half_frame(n=1)), (place, refers)]),
        reference_file("S39-forgotten-between", "S39", [(kept_record(1 << 40), half_frame(n=1000)), (kept_record(4096), half_frame(n=1048)),
                                                        (kept_record(1 << 40), half_frame(n=2048)), (place, referring_frame(data))]),
        reference_file("S39-refers-itself", "S39", [(kept_record(1 << 40), half), (place, against), (place_record(0xFFFF, 8192), against)]),
        reference_file("S40-small", "S40", [(kept_record(8192), half), (place, referring_frame(data[2:]))]),
        reference_file("S41-other-elements", "S41", [(kept_record(8192), half_frame(b"\0\0")), (place, refers)]),
        reference_file("S42-reserved", "S42", [(kept_record(8192, 1), half), (place, refers)]),
        reference_file("S42-before-the-end", "S42", [(kept_record(8191), half), (place, refers)]),
        reference_file("S42-no-elements", "S42", [(kept_record(8192), half), (kept_record(8192), half_frame(n=0)), (place, refers)]),
    ]


def all_vectors():
    """(file, what it shows, vectors)"""
    floats = [d for d in DTYPES if DTYPES[d].is_float]
    name = {d: DTYPES[d].name.lower() for d in DTYPES}
    of_deltas, bad_deltas = delta_files()
    return [
        ("xxh3", "Annex B: XXH3-64 of every branch", xxh3_vectors()),
        ("header", "6.1: the header; frames of no elements", [valid("empty", g.with_flags(g.valid_empty, 1, False)), valid("extensions", g.with_flags(g.valid_empty, 3, True))] + rejected(
            1, 2, 3, 6, 7, 8, 13, 14, 34, 35, 36)),
        ("stored", "5, 5.5: STORED blocks of every dtype, checks, sizes", [valid(name[d], lambda rng, d=d: g.valid_stored(rng, d)) for d in DTYPES] + rejected(9, 15, 16, 54)),
        ("cells", "5, 5.1: several cells, CONST and its runs", [valid("runs", runs, 1)] + [valid("cells-%d" % log2, lambda rng, log2=log2: g.valid_cells(rng, log2)) for log2 in (6, 7)] + rejected(17)),
        ("order", "3.2, 5.3: pair order, BYTES and ZIGZAG", [valid("pairs-" + name[d], ordered(d), 1) for d in (3, 4, 5)] + [
            valid("zigzag-" + name[d], zigzags(d), 1) for d in (3, 4, 5)] + [
            valid("bytes-" + name[d], of_forms(d, lambda rng, d=d: g.random_bytes(rng, d, 70))) for d in (1, 2)]),
        ("parted", "5.15: PARTED", [valid("%s-%s" % (name[d], form.__name__), lambda rng, d=d, form=form: g.valid_parted(rng, d, (g.random_const, form)))
            for d, form in ((9, g.random_split), (F32, g.random_stored), (4, g.cheap_bytes), (6, g.one_symbol_split))] + [
            valid("granules-%d" % k, lambda rng, k=k: g.valid_parted(rng, 9, None, k)) for k in (0, 3, 6)] + rejected(56)),
        ("coded", "5.2: coded bits of SPLIT", [valid(name[d], lambda rng, d=d: g.valid_coded(rng, d)) for d in g.RANKED] + [
            valid("side-" + name[d], lambda rng, d=d: g.valid_parted(rng, d, (g.random_const, g.coded_side))) for d in (9, F32)] + rejected(57)),
        ("split-f8", "5.2, 3.1: SPLIT of F8", [valid("%s-e%d" % (name[d], e), lambda rng, d=d, e=e: g.valid_e(rng, d, e)) for d in (6, 7) for e in g.possible_e(d)]),
        ("split-f16", "5.2, 3.1: SPLIT of F16 and BF16", [valid("%s-e%d" % (name[d], e), lambda rng, d=d, e=e: g.valid_e(rng, d, e)) for d in (8, 9) for e in (1, 5, 8)]),
        ("split-f32", "5.2, 3.1: SPLIT of F32 and F64, the base of exponents", [valid("f32-e%d" % e, lambda rng, e=e: g.valid_e(rng, F32, e)) for e in (3, 8)] + [
            valid("f64-base-%d" % base, lambda rng, base=base: g.valid_base(rng, base)) for base in (0, 895, 1792)] + rejected(18, 19, 21)),
        ("bit-planes", "3.3, 5.2: constant bits", [valid("%s-%s" % (name[d], s), lambda rng, d=d, s=s: g.valid_constant_bits(rng, d, s)) for d in (6, 9, 10) for s in ("none", "some")] + rejected(20, 22)),
        ("list-raw", "4: RAW and CONST lists", [valid("raw", listed(("raw",))), valid("const", listed(("const",), 20, 8, b"\x07" * 20)),
                                                 valid("const-of-one", lambda rng: g.valid_small_lists(rng, 2))] + rejected(23, 24, 25)),
        ("list-tree", "4.1 to 4.3: TREE", [valid("tree", lambda rng: g.valid_kind(rng, "tree"))] + [
            valid("%d-codes" % codes, lambda rng, codes=codes: g.valid_many_codes(rng, codes), 4) for codes in (256,)] + rejected(26, 27, 28, 29, 32)),
        ("list-escape", "4.1 to 4.3: TREE with an escape", [valid("escape-%d" % e, lambda rng, e=e: g.valid_escape(rng, None, e, True)) for e in range(1, 9)] + [
            valid("escape-never-used", lambda rng: g.valid_escape(rng, None, 3, False)), escape_not_counted()]),
        ("list-split", "4.4: SPLIT0 and SPLIT2", [valid(kind, lambda rng, kind=kind: g.valid_kind(rng, kind)) for kind in ("split0", "split2")] + [
            valid("masks", g.valid_split_masks), valid("wrong-sides", g.valid_wrong_sides)]),
        ("list-depth", "4: lists inside each other", [valid("depth-5-" + inside, lambda rng, inside=inside: g.valid_deep(rng, (inside,))) for inside in ("tree", "raw", "const")] + rejected(30)),
        ("footer", "6.2, 7: footers", [valid("flags-%d" % flags, lambda rng, flags=flags: g.with_footer(rng, flags)) for flags in range(4)] + [
            of_blocks("R39-byte-before", 39, g.Frame(2, 6, [g.const_block(b"\7", 64, 1), g.const_block(b"\7", 1, 1)], errors={"gap": b"\0"}))] + [
            valid("extensions", lambda rng: g.spoiled(g.footer_extensions(g.with_footer)(rng), footer_extensions=g.extension(5, b"abc"))),
            valid("extensions-of-one-block", g.footer_extensions(lambda rng: g.small_frame(rng, 0, 1))),
            of_blocks("R36-sizes", 36, g.Frame(2, 6, [g.const_block(b"\7", 64, 1), g.const_block(b"\7", 1, 1)], 9, errors={"footer extensions": b"\5\0\0", "last size": b"\2\0\0\0"}))] + rejected(10, 12, 37, 38, 39, 53, most=2)),
        ("index", "6.2: indices of two and three levels", [valid("257-blocks", of_257_blocks, 1), of_65537_blocks()] + rejected(40, 41, most=2)),
        ("delta-base", "6.3, 5.6, 7.1: bases, SAME", [valid("empty", g.valid_delta_empty), valid("two-cells", two_cells, 1)] + [
            valid("role-%d-%s" % (role, name[d]), lambda rng, d=d, role=role: g.valid_same(rng, d, role)) for d, role in ((8, 1), (8, 2), (9, 2), (10, 3))] + [
            valid("cast-" + name[d], lambda rng, d=d: long_cast(rng, d)) for d in (8, 9)] + rejected(42, 43, 44, 45)),
        ("delta-classed", "5.7: CLASSED, classes", [valid("classes-%d" % k, lambda rng, k=k: g.valid_classed(rng, rng.choice(floats), k)) for k in range(1, 9)] + [
            valid("i64", lambda rng: g.valid_classed(rng, 5, 1)), valid("bits-of-f64", classes_of_f64)] + rejected(46)),
        ("delta-words", "5.7: lists of words", [valid("levels-%d" % depth, lambda rng, depth=depth: g.valid_nested(rng, rng.choice([d for d in DTYPES if DTYPES[d].width > 1]), depth)) for depth in (1, 2, 3, 4)] + [
            valid("limit-%d" % limit, lambda rng, limit=limit: g.valid_limit(rng, rng.choice(list(DTYPES)), limit)) for limit in (1, 255)] + [
            valid("raw-words", lambda rng: g.valid_raw_words(rng, 8)), valid("low-bits", lambda rng: g.valid_shifts(rng, F32, (11,))),
            words_of_bits("all-but-1-bit", None, 7), words_of_bits("R47-all-bits", 47, 8)] + rejected(47, most=9)),
        ("delta-sparse", "5.14: SPARSE", [valid(name[d], lambda rng, d=d: g.sparse_delta(rng, d, 1)) for d in DTYPES] + [valid("cast-" + name[d], lambda rng, d=d: g.sparse_delta(rng, d, 2)) for d in (8, 9)] + [
            valid("upcast", lambda rng: g.sparse_delta(rng, F32, 3)),
            valid("escapes", escaping_sparse), sparse_number("largest-number", None, 8, 254), sparse_number("least-escape", None, 4, 15, 15),
            sparse_number("R52-number", 52, 8, 255), sparse_number("R52-escape", 52, 4, 15, 14)] + rejected(52, most=8)),
        ("delta-patched", "5.17: PATCHED", [valid("%s-%s" % (name[d], side.__name__), lambda rng, d=d, side=side: g.valid_patched(rng, d, side))
            for d, side in ((9, g.random_const), (F32, g.random_stored), (4, g.cheap_bytes), (8, g.one_symbol_split), (11, g.random_const))] + rejected(58)),
        ("scaled", "5.8, 5.9: scales, SCALED", [valid(name[d], lambda rng, d=d: g.with_form(rng, lambda rng: g.valid_lossy(rng, d, 0, True, (decoder.SCALED,)), decoder.SCALED)) for d in decoder.FLOATS] + rejected(49)),
        ("quantized-cells", "5.10, 5.11, 5.12, 6.5: QUANTIZED of family 1", [valid("empty", g.valid_lossy_empty), valid("content-id", g.with_content_id(g.some_lossy))] + [
            valid("%s-%s" % (name[d], "scales" if columns else "plain"), lambda rng, d=d, columns=columns: g.with_form(
                rng, lambda rng: g.valid_lossy(rng, d, g.random_cells(rng), columns, (decoder.QUANTIZED,)), decoder.QUANTIZED)) for d in decoder.FLOATS for columns in (False, True)] + [
            of_cells("more-than-the-last-of-a-cell", None, 1420, [11 * 1420 + j for j in range(16)]), of_cells("R50-no-number", 50, 28, [5 * 28 + 8] * 16),
            of_cells("scales-amid-a-row", None, 3, [300] * 20, 64, 12, b"\1\0\x07\x40\0" + bytes(range(12))),
            of_cells("infinite-errors", None, 16, [3000] * 16, sum_of_squares=decoder.MAX_NUMBER, largest=decoder.MAX_NUMBER),
            of_cells("R50-sum-of-squares", 50, 16, [3000] * 16, sum_of_squares=decoder.MAX_NUMBER + 1),
            of_cells("R50-largest", 50, 16, [3000] * 16, largest=1 << 63)] + rejected(4, 48, 50)),
        ("quantized-clusters", "5.13: QUANTIZED of family 2", [valid(name[d], lambda rng, d=d: g.with_form(
            rng, lambda rng: g.valid_lossy(rng, d, (decoder.CLUSTERS, g.random_clusters(rng)), False, (decoder.QUANTIZED,)), decoder.QUANTIZED)) for d in decoder.FLOATS] + rejected(33)),
        ("file", "8, 8.1, 8.3: files of raw elements", [valid("nothing", lambda rng: g.Snap(0, [], []), 1), valid("frames", lambda rng: g.random_snap(rng, 0)),
                                                        valid("ancillary-records", g.with_ancillary), valid("unknown-size", lambda rng: g.with_errors(g.random_snap(rng, 0), unknown_size=True)),
            of_257_frames(), of_names("S8-text", "S8", b"{}", size=lambda size: 9)] + rejected(
            "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S21", "S22", "S23", "S24", "S27", "S28", "S29", "S30", "S31", "S32", "S33", "S35", most=2)),
        ("file-text", "8.2: texts, and trees of names (8.3)", [valid("literals", lambda rng: g.random_snap(rng, 1, b"{}")), valid("repeats", lambda rng: g.random_snap(rng, 1)),
                                                               valid("pieces", lambda rng: g.snap_of_header(rng, 40)), valid("names", named),
            of_names("escapes-and-equal-names", None, rb'{"__metadata__":{"a":"b"}, "b" :{}, "a\n\u00e9\ud83d\ude00\"\/":{"c":[]},' b'\n"b"\r:{}}'),
            of_names("names-of-no-header", None, b'no: ["a":1 {"b":2} "c"] "d":'), of_names("S26-surrogate", "S26", rb'{"a":0,"\ud83d":"b"}', [8]),
            valid("no-header-quantized", quantized_without_header)] + rejected(
            "S9", "S10", "S11", "S12", "S25", "S26", most=2)),
        ("file-delta", "8.5, 8.6: files that are deltas", of_deltas + bad_deltas),
        ("file-references", "8.8: frames that refer to earlier data of the file", reference_files()),
    ]


# cases that a second reading of the document could decide otherwise

def of_blocks(name, rule, frame):
    """elements: the result of decoder.py, if the blocks do not have the elements"""
    data = frame.write()
    vector = Vector(name, rule, [(frame.base.dtype, frame.base.elements)] if frame.base else [], frame=data)
    if rule is None:
        vector.parts["elements"] = frame.elements() or decoder.decode_frame(data).elements
    return vector


def escape_not_counted():
    """r does not count the escape, which here decides k of the root: 3 codes and the escape have 3 bits, 8 codes have 4."""
    body = bytes([0x34, 0, 10, 0x33, 0x43, 0x44, 0x44, 0x44, 4, 0xAA, 0xAA, 0, 0, 0xFF, 0, 0xFF])
    return of_blocks("escape-not-counted", None, g.Frame(2, 6, [g.Block(g.BYTES, body, 16, b"\1\4" * 8)], 1))


def of_65537_blocks():
    block = [g.const_block(b"\7", 64, 1)]
    vector = of_blocks("65537-blocks", None, g.Frame(2, 6, 65536 * block + [g.const_block(b"\7", 1, 1)], 0))
    vector.dumped = False
    return vector


def sparse_number(name, rule, a, number, escaped=None):
    """32 elements of 8 bits that are 0; the first change has this number"""
    base = decoder.Base(2, bytes(32))
    bits = [1] + [0] * 31 + g.bits_of_numbers([number], a) + (g.bits_of_numbers([escaped], 8) if escaped is not None else [])
    body = b"\1\0\0" + bytes([a]) if escaped is None else b"\1\0\0" + bytes([128 + a, 1, 0])
    value = g.difference_of((number if escaped is None else escaped) + 1 & 255, 8)
    block = g.Block(g.SPARSE, body + bytes(g.mask_of(bits)), 32, bytes([value]) + bytes(31))
    return of_blocks(name, rule, g.delta_frame(random.Random(0), 2, 1, base, [block], 16))


def words_of_bits(name, rule, s):
    """Words of 16 bits with 8 low bits; one word escapes, and its remainder has s low bits"""
    base, n = decoder.Base(3, bytes(64)), 32
    words = b"\x08\x09" + bytes(n) + g.zeros_but(n, 9, 1) + bytes([s, 0]) + bytes(1 if s == 8 else s) + b"\1\0"
    block = g.Block(g.CLASSED, b"\1" + words, n, bytes(62) + g.difference_of(9 << 8, 16).to_bytes(2, "little"))
    return of_blocks(name, rule, g.delta_frame(random.Random(0), 3, 1, base, [block], 16))


def classes_of_f64(rng):
    """Classes that fewer bits of the exponent would decide differently"""
    frame = g.valid_classed(rng, decoder.F64, 2)
    borders, data = frame.blocks[0].body[1:2], frame.base.elements
    if all((decoder.u64(data, i) >> 55 & 255 >= borders[0]) == (decoder.u64(data, i) >> 52 & 255 >= borders[0]) for i in range(0, len(data), 8)):
        raise g.Impossible
    return frame


def of_cells(name, rule, cells, qs, before=0, columns=0, scales=b"\0", sum_of_squares=0, largest=0):
    """F64 elements of a quantizer with cells; the words are RAW. A block before them holds `before` elements."""
    certificate = decoder.Certificate(len(qs), 0, 0, sum_of_squares, largest, 0)
    body = bytes(certificate) + b"\0" + bytes(4) + scales + b"\x80" + b"".join(le64(q + 2)[:4] for q in qs)
    blocks = [g.Block(g.STORED, bytes(8 * before), before)] if before else []
    extensions = g.quantizer_extension(cells) + (g.column_extension(columns) if columns else b"")
    return of_blocks(name, rule, g.Frame(decoder.F64, 6, blocks + [g.Block(g.QUANTIZED, body, len(qs), certificate=decoder.Certificate() if rule else certificate)], 4, extensions))


def of_names(name, rule, text, names=None, **errors):
    snap = g.with_errors(g.Snap(1, [text], [g.Frame(2, 6, [g.stored_block(b"ab", 1)], 1)], True), **errors)
    if names is not None:
        snap.errors["names"] = lambda found: names
    return vector_of(name, rule, snap, snap.write(random.Random(0)))


def of_257_frames():
    """A tree of records of two pages"""
    snap = g.Snap(0, [], 257 * [g.Frame(2, 6, [g.stored_block(b"\7", 1)], 1)])
    vector = vector_of("257-frames", None, snap, snap.write(random.Random(0)))
    vector.dumped = False
    return vector


def of_257_blocks(rng):
    return g.Frame(2, 6, [g.const_block(bytes([i // 100]), 64, 1) for i in range(257)], 0)


def long_cast(rng, dtype):
    """Many F32 elements of all kinds, cast"""
    base = g.random_base_of(rng, dtype, 2, 100)
    return g.delta_frame(rng, dtype, 2, base, [g.same_block(base, dtype, 2, 0, 100)])


def escaping_sparse(rng):
    frame = g.sparse_delta(rng, F32, 1)
    if not frame.blocks[0].body[3] >> 7:
        raise g.Impossible
    return frame


def quantized_without_header(rng):
    """The text is no header. Restoring the source does not need to parse it."""
    frame = g.with_form(rng, lambda rng: g.valid_lossy(rng, F32, 64, False, (decoder.QUANTIZED,)), decoder.QUANTIZED)
    text = b"no header at all"
    return g.Snap(1, [text], [frame], errors={"features": g.file_features(0, decoder.FILE_QUANTIZED)})


def named(rng):
    snap = g.snap_of_header(rng)
    if not snap.frames or not decoder.names_of(snap.text()):
        raise g.Impossible
    snap.names = True
    return snap


# Frames with features that no frame above has: recipe/seed. Among all seeds below 6 of every recipe, and some more, only
# these reach a branch of the decoders in bitsnap.h (clang -fsanitize-coverage=inline-8bit-counters, every function that reads
# frames), or have a new form, kind of list, descriptor or level of words for their dtype. Recipes are numbered, so new ones
# are appended.
MORE = """
R6-1/4 R6-5/2 R12-4/2 R18-2/0 R24-8/0 R41-7/6 R44-2/1 R44-2/5 R44-5/2 R44-5/4 R45-4/1 R48-3/2 R50-7/16 R50-13/5 R50-15/3 R50-17/3 R50-20/5
R50-23/4 R52-19/4 valid-3/4 valid-5/2 valid-7/0 valid-25/4 valid-29/5 valid-31/3 valid-32/5 valid-43/0 valid-45/2 valid-46/3 valid-47/1
valid-50/5 valid-51/0 valid-54/4 valid-55/1 valid-57/4 valid-58/4 valid-62/5 valid-65/2 valid-66/3 valid-66/4 valid-67/2 valid-67/3
valid-69/2 valid-72/5 valid-73/5 valid-76/2 valid-78/1 valid-81/4 valid-83/5 valid-85/4 valid-96/4 valid-97/5 valid-98/5 valid-101/1
valid-106/0 valid-116/5 valid-121/5 valid-123/1 valid-124/1 valid-125/1 valid-125/5 valid-127/3 valid-129/5 valid-131/0 valid-137/5
valid-138/3 valid-142/0 valid-158/4 valid-165/5 valid-166/5 valid-168/2 valid-170/0 valid-173/5 valid-186/3 valid-192/2 valid-200/0
valid-202/40 valid-202/57 valid-203/4 valid-203/15 valid-203/21 valid-203/22 valid-203/58 valid-204/2 valid-204/4 valid-205/0 valid-207/4
valid-208/4 valid-209/0 valid-210/0 valid-212/0 valid-212/4 valid-213/2 valid-214/4 valid-216/2 valid-218/1 valid-220/32 valid-220/51
valid-221/0 valid-224/5 valid-230/1 valid-230/2 valid-231/2 valid-231/12 valid-232/2 valid-244/0 valid-272/5 valid-274/0 valid-292/6
valid-302/0 valid-302/4 valid-306/3 valid-311/5 valid-313/3 valid-313/4 valid-319/5 valid-320/5 valid-321/0 valid-323/2 valid-324/5
valid-325/3 valid-328/1
""".split()


def made_by(key):
    name, seed = key.split("/")
    rule = 0 if name.startswith("valid") else int(name[1:].split("-")[0])
    recipes = g.invalid_recipes()[rule] if rule else g.valid_recipes()
    frame, data = g.attempt(recipes[int(name.split("-")[1]) - 1], random.Random("vectors/" + key))
    return vector_of(key, rule or None, frame, data)


def needed(text):
    """The forms, kinds of lists and levels of words in a dump"""
    return {what for what, line in SHOWN.items() if line in text}


def to_read(texts, shown):
    """Chooses the vectors for docs/vectors: short ones, the first one for each rule, and those that show something new"""
    shortest = min((text.count("\n") for vector, text in texts if vector.rule is None), default=0)
    rules, some = set(), []
    for vector, text in texts:
        first = vector.rule is not None and vector.rule not in rules
        if first or (vector.rule is None and text.count("\n") <= max(LINES, shortest)):
            some.append(vector)
            rules.add(vector.rule)
            shown |= needed(text)
    for vector, text in texts:
        if needed(text) - shown:
            some.append(vector)
            shown |= needed(text)
    return some


def write():
    texts, lines, made, shown = {}, [], set(), set()
    for name, title, vectors in all_vectors():
        found = [(vector, vector.text()) for vector in vectors]
        read = to_read(found, shown)
        texts[os.path.join(FOLDER, name + ".txt")] = "# FORMAT.md %s. README.md has the grammar. Written by tests/format/vectors.py.\n\n" % title + "".join(
            text for vector, text in found if vector in read)
        lines += [vector.line(name + "/" + vector.name) for vector in vectors if vector not in read]
        made |= {vector.name for vector in vectors}
    for rule, recipes in g.invalid_recipes().items():
        for i, recipe in enumerate(recipes):
            name = "R%d-%d" % (rule, i + 1)
            line = "" if name in made else smallest(name, rule, recipe, 5).line(name)
            lines += [line] * (0 < len(line) <= CHARACTERS)
    lines += [made_by(key).line(key) for key in MORE]
    texts[CORPUS] = "# Frozen frames and files beside those of docs/vectors, whose README.md has the grammar. Written by tests/format/vectors.py.\n" + "".join(lines)
    for name in os.listdir(FOLDER):
        if name.endswith(".txt"):
            os.remove(os.path.join(FOLDER, name))
    for path, text in texts.items():
        with open(path, "w", encoding="ascii", newline="\n") as stream:
            stream.write(text)
    return 0


def by_tool(tool, vector):
    """The problem with the result of the tool for a file, or None; the tool takes one base at most"""
    with tempfile.TemporaryDirectory() as folder:
        paths = {title: os.path.join(folder, title) for title in ("file", "base", "out")}
        for title, data in (("file", vector.parts["file"]),) + tuple(("base", data) for _, data in vector.bases):
            with open(paths[title], "wb") as stream:
                stream.write(data)
        done = subprocess.run([tool, "decompress", "-q", "-f"] + (["-b", paths["base"]] if vector.bases else []) + ["-o", paths["out"], paths["file"]],
                              stdin=subprocess.DEVNULL, capture_output=True)
        if vector.rule is None and len(vector.bases) < 2:
            if done.returncode:
                return done.stderr.decode(errors="replace")
            with open(paths["out"], "rb") as stream:
                return None if stream.read() == vector.parts["source"] else "another source"
        if not done.returncode:
            return "accepted"
        message, rule = done.stderr.decode(errors="replace"), vector.rule and decoder.rule_name(vector.rule)
        # these messages have words instead of the number
        wanted = [] if rule in (None, "S1", "S17", "S18", "S26") or rule[0] == "R" else [rule]
        return None if re.findall(r"\((S\d+)[,)]", message) in (wanted, [rule]) else message


def check(tool=None):
    failed, rules, shown = 0, set(), set()
    for name, found in frozen():
        problems = ["%s: %s" % (v.name, problem) for v in found for problem in [v.problem()] if problem]
        if tool:
            problems += ["%s, the tool: %s" % (v.name, problem) for v in found if "file" in v.parts for problem in [by_tool(tool, v)] if problem]
        failed += bool(problems)
        print("%sok - vectors: %s (%d)%s" % ("not " if problems else "", name, len(found), ": " + "; ".join(problems) if problems else ""))
        if name != "corpus":
            rules |= {decoder.rule_name(v.rule) for v in found if v.rule is not None}
            with open(os.path.join(FOLDER, name + ".txt"), encoding="ascii") as stream:
                shown |= needed(stream.read())
    with open(os.path.join(FOLDER, "..", "FORMAT.md"), encoding="utf-8") as stream:
        missing = sorted({n for n, rest in re.findall(r"^\| ([RS]\d+) \| (.*)", stream.read(), re.M) if "(not used)" not in rest} - rules)
    missing += sorted(set(SHOWN) - shown)
    print("%sok - vectors: docs/vectors has every condition, form, kind of list and level of words%s" % ("not " if missing else "", ": missing: " + ", ".join(missing) if missing else ""))
    return failed or bool(missing)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("write", "check"):
        sys.exit(__doc__)
    sys.exit(write() if sys.argv[1] == "write" else check(*sys.argv[2:]))
