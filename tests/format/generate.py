#!/usr/bin/env python3
"""Makes test cases for readers of the bitsnap format: frames that no usual encoder writes, and frames that are wrong.

    generate.py OUT_DIR --seed N --count N [--kinds valid,invalid,files]

writes for every i

    v00001.frame, v00001.elements    a valid frame and its elements
    v00002.frame, v00002.large       a valid frame and the number of its elements, if they exceed 4 MiB
    v00003.base, x00002-R44.base     the base to decode this frame with: its dtype as a byte, and its elements.
                                     A frame without this file is decoded without a base
    x00001-R23.frame                 a frame that breaks condition R23 and, as far as possible, no other one
    f00001.bsnap, f00001.source      a valid file (section 8), and its source
    g00001.bsnap                     an invalid file

The encoder was written from docs/FORMAT.md alone. The comments name sections of that document. decoder.py decodes every
case before it is written. One seed always makes the same cases.
"""

import argparse
import dataclasses
import json
import os
import random
import sys
from dataclasses import dataclass, field
from typing import List, Optional

import decoder
from decoder import (BASE_EXTENSION, BF16, BYTES, CELLS, CLASSED, CLUSTERS, COLUMNS_EXTENSION, CONST, DTYPES, ESCAPE,
                     F16, F32, F64, FLOATS, FAN, MAX_LOW_BITS, MAX_WORDS_LEVEL, CHANGES_HEAD, PARTED, PATCHED, QUANTIZED,
                     QUANTIZER_EXTENSION, RAW_WORDS, SAME, SCALED, SPARSE, SPLIT, STORED, ZIGZAG, Base,
                     cell_hash, le64, may_zigzag, xxh3)


class Impossible(Exception):
    """The plan does not work with these symbols. The caller tries others."""


# ---- symbols and codes ----

def random_symbols(rng, m, b):
    """m symbols of b bits, distributed in one of the ways that the kinds of lists are made for."""
    top = (1 << b) - 1
    style = rng.randrange(7)
    if style == 0:
        return bytes([rng.randint(0, top)]) * m
    if style == 1:
        few = [rng.randint(0, top) for _ in range(rng.randint(2, 6))]
        return bytes(rng.choice(few) for _ in range(m))
    if style == 2:
        return bytes(min(top, int(rng.expovariate(0.5))) for _ in range(m))
    if style == 3:
        return bytes(rng.randint(0, top) if rng.random() < 0.15 else 0 for _ in range(m))
    if style == 4:
        return bytes(rng.randint(0, top) & rng.randint(0, top) & rng.randint(0, top) for _ in range(m))
    if style == 5:
        center, spread = rng.randint(0, top), rng.choice((0.5, 2, 8))
        return bytes(min(top, max(0, int(rng.gauss(center, spread)))) for _ in range(m))
    return bytes(rng.randint(0, top) for _ in range(m))


def random_lengths(rng, count, escape):
    """The lengths of a random complete code of about `count` codes. The code of the escape is left out; escape 0: no escape."""
    lengths = list(range(1, escape + 1)) if escape else [1, 1]
    style = rng.choice(("any", "any", "longest", "shortest"))
    while len(lengths) + (escape > 0) < count:
        shorter = [length for length in lengths if length < 8]
        if not shorter:
            break
        length = {"any": rng.choice, "longest": max, "shortest": min}[style](shorter)
        lengths.remove(length)
        lengths += [length + 1] * 2
    return sorted(lengths)


def random_code(rng, symbols, b, escape, for_all=False):
    """Code lengths for some of the symbols, or for all if none may be escaped, and for some symbols that do not occur."""
    by_count = sorted(set(symbols), key=lambda s: -symbols.count(s))
    unused = [s for s in range(1 << b) if s not in by_count]
    rng.shuffle(unused)
    if rng.random() < 0.4:
        rng.shuffle(by_count)
    for_all = for_all or not escape
    if not for_all:
        by_count = by_count[:rng.randint(0 if unused else 1, len(by_count))]
        unused = [s for s in range(1 << b) if s not in by_count]
        rng.shuffle(unused)
    extra = rng.choice((0, 0, 1, 3, 20, 255)) if unused else 0
    wanted = max(2, min(256, len(by_count) + min(extra, len(unused)) + (escape > 0)))
    lengths = random_lengths(rng, wanted, escape)
    if len(lengths) > len(by_count) + len(unused) or (for_all and len(lengths) < len(by_count)):
        raise Impossible("not enough symbols or codes")
    with_code = by_count + unused[:len(lengths) - len(by_count)]
    if rng.random() < 0.3:
        rng.shuffle(with_code)
    code = dict(zip(with_code, lengths))
    if escape:
        code[ESCAPE] = escape
    return code


def canonical_words(lengths):
    """4.2: the code word of each symbol, with its length, in canonical order."""
    words, word, before = {}, 0, 0
    for length, symbol in sorted((length, symbol) for symbol, length in lengths.items()):
        word <<= length - before
        words[symbol] = (word, length)
        word, before = word + 1, length
    return words


def table_of(lengths, unused=0):
    """4.1"""
    symbols = sorted(symbol for symbol in lengths if symbol != ESCAPE)
    nibbles = []
    for before, symbol in zip([symbols[0] - 1] + symbols, symbols):
        absent = symbol - before - 1
        nibbles += [8 + bit if bit else 0 for bit in range(7, -1, -1) if absent >> bit & 1]
        nibbles.append(lengths[symbol])
    return bytes([symbols[0], symbols[-1] - symbols[0]]) + pack_nibbles(nibbles, unused)


def pack_nibbles(nibbles, unused=0):
    nibbles = nibbles + [unused] * (len(nibbles) % 2)
    return bytes(low | high << 4 for low, high in zip(nibbles[::2], nibbles[1::2]))


def mask_of(bits):
    """2"""
    mask = bytearray((len(bits) + 7) // 8)
    for i, bit in enumerate(bits):
        mask[i // 8] |= bit << i % 8
    return mask


# ---- 4. Lists ----

# A plan says how to code a list. None chooses at random. A tuple has a kind and its arguments; the lists inside have
# plans of their own:
#   ("raw",) ("const",) ("tree",) ("escapes", E, escapes) ("split0", mask, high) ("split2", mask, low, high)
KINDS = ("raw", "const", "tree", "escapes", "split0", "split2")


class ListEncoder:
    """Encodes lists at random or by a plan. Other limits make invalid lists."""

    def __init__(self, rng, min_symbols=decoder.MIN_SYMBOLS, max_depth=decoder.MAX_DEPTH):
        self.rng = rng
        self.min_symbols = min_symbols
        self.max_depth = max_depth
        self.dirty_nodes = 0            # the number of masks of nodes that get a 1 after their last bit
        self.dirty_splits = 0           # the number of masks of splits that get one
        self.stray = 0.0                # the probability that a symbol with a code is escaped
        self.codes_for_all = False      # trees have codes for all their symbols, even if they have an escape
        self.lenient = False            # a list that does not fit its plan is coded at random
        self.wrong_sides = False        # 4.4: a decoder does not check the sides of a split

    def outermost(self, symbols, b, plan=None):
        """Encodes an outermost list."""
        return self.list(symbols, b, plan, 0)

    def list(self, symbols, b, plan, depth):
        if not symbols:
            return b""
        if plan is not None:
            try:
                return self.coded(symbols, b, plan, depth)
            except Impossible:
                if not self.lenient:
                    raise
        kinds = list(KINDS[1:])
        self.rng.shuffle(kinds)
        if self.rng.random() < 0.1:
            kinds.insert(0, "raw")
        for kind in kinds:
            try:
                return self.coded(symbols, b, self.random_plan(kind), depth)
            except Impossible:
                pass
        return self.coded(symbols, b, ("raw",), depth)

    def random_plan(self, kind):
        if kind == "escapes":
            return (kind, self.rng.randint(1, 8), None)
        return (kind, None, None, None)

    def coded(self, symbols, b, plan, depth):
        kind, m = plan[0], len(symbols)
        if kind == "raw":
            return b"\x00" + bytes(symbols)
        if kind == "const":
            if len(set(symbols)) > 1:
                raise Impossible("symbols that differ")
            return bytes([1, symbols[0]])
        if m < self.min_symbols or (kind != "tree" and depth >= self.max_depth):
            raise Impossible("a %s here" % kind)
        if kind == "split0" or kind == "split2":
            return self.split(symbols, b, plan, depth)
        inside = plan[2] if len(plan) > 2 else None
        lengths = random_code(self.rng, symbols, b, plan[1] if kind == "escapes" else 0, self.codes_for_all)
        data = bytes([16 * plan[1] + 4 if kind == "escapes" else 2]) + table_of(lengths)
        return data + self.coded_nodes(symbols, lengths, lambda s: self.list(s, b, inside, depth + 1))

    def coded_nodes(self, symbols, lengths, write_escapes):
        words = canonical_words(lengths)
        paths = []
        for symbol in symbols:
            stray = ESCAPE in words and self.stray and self.rng.random() < self.stray
            paths.append((ESCAPE if stray or symbol not in words else symbol, symbol))
        return self.node(words, paths, 0, write_escapes)

    def node(self, words, paths, d, write_escapes):
        """4.3: the node d bits below the root, for the code words `words` and the symbols `paths` that pass it. Its slots are
        the next k bits of the words, so no walk is needed."""
        if not paths:
            return b""
        shortest = min(length for _, length in words.values())
        m = shortest - d
        r = sum(1 for symbol, (_, length) in words.items() if length == shortest and symbol != ESCAPE)
        k = m if m <= 2 or (m <= 4 and r + 4 >= 1 << m) else 2
        slot_of = {symbol: word >> (length - d - k) & ((1 << k) - 1) for symbol, (word, length) in words.items()}
        data = bytearray()
        for j in range(k):
            mask = mask_of([slot_of[code] >> (k - 1 - j) & 1 for code, _ in paths])
            if self.dirty_nodes and len(paths) % 8:
                self.dirty_nodes -= 1
                mask[-1] |= 1 << self.rng.randint(len(paths) % 8, 7)
            data += mask
        for slot in range(1 << k):
            below = {symbol: words[symbol] for symbol in words if slot_of[symbol] == slot}
            taken = [path for path in paths if slot_of[path[0]] == slot]
            (code, (_, length)) = next(iter(below.items()))
            if length > d + k:
                data += self.node(below, taken, d + k, write_escapes)
            elif code == ESCAPE:
                data += write_escapes(bytes(symbol for _, symbol in taken))
        return bytes(data)

    def split(self, symbols, b, plan, depth):
        """4.4"""
        kind, plans = plan[0], list(plan[1:]) + [None] * 3
        last_low = 0 if kind == "split0" else 2
        bits = [int(symbol > last_low) for symbol in symbols]
        if self.wrong_sides and kind == "split2":
            bits = [self.rng.randrange(2) for _ in symbols]
        mask = mask_of(bits)
        if self.dirty_splits and len(bits) % 8:
            self.dirty_splits -= 1
            mask[-1] |= 1 << self.rng.randint(len(bits) % 8, 7)
        data = bytes([5 if kind == "split0" else 6]) + self.list(bytes(mask), 8, plans[0], depth + 1)
        sides = [bytes(s for s, bit in zip(symbols, bits) if bit == side) for side in (0, 1)]
        if kind == "split2":
            data += self.list(sides[0], b, plans[1], depth + 1)
        return data + self.list(sides[1], b, plans[2] if kind == "split2" else plans[1], depth + 1)


# ---- 3. Elements and planes ----

def field_order(v, dtype, e, base):
    """3.1"""
    bits = 8 * DTYPES[dtype].width
    sign = v >> (bits - 1)
    if dtype == F64:
        exponent = v >> 52 & 0x7FF
        symbol = exponent - base if exponent else 0
        if not (exponent == 0 or 1 <= symbol <= 255):
            raise Impossible("an exponent far from the base")
        return symbol << 56 | sign << 55 | (v & (1 << 52) - 1) << 3
    rest_bits = bits - 1 - e
    symbol, rest = v >> rest_bits & (1 << e) - 1, v & (1 << rest_bits) - 1
    return symbol << (bits - e) | sign << rest_bits | rest


def in_pair_order(elements, w):
    """3.2: moves values from the order of elements to the order of positions."""
    n = len(elements)
    group = [64 // w * q + j for j in range(64 // w) for q in range(w)]
    full = n - n % 64
    return [elements[start + i] for start in range(0, full, 64) for i in group] + list(elements[full:])


def raw_plane(plane, varying):
    """3.3"""
    if varying == 0xFF:
        return bytes(plane)
    data = bytearray()
    for start in range(0, len(plane), 64):
        for bit in range(8):
            if varying >> bit & 1:
                data += mask_of([byte >> bit & 1 for byte in plane[start:start + 64]])
    return bytes(data)


def rest_bits(dtype, e):
    """5.2: for each byte with bits outside the symbol, these bits"""
    rest = [0xFF] * (DTYPES[dtype].width - (e == 8))
    if e < 8:
        rest[-1] = (1 << 8 - e) - 1
    if dtype == F64:
        rest[0] = 0xF8
    return rest


def pack(values, w):
    return b"".join(value.to_bytes(w, "little") for value in values)


def values_of(planes):
    """Numbers from their bytes, least significant byte first."""
    return [int.from_bytes(bytes(row), "little") for row in zip(*planes)]


# ---- 5. Blocks ----

@dataclass
class Block:
    form: int
    body: bytes
    n: int
    elements: bytes = b""       # all elements of the block; one for CONST
    cells: int = 1
    pieces: Optional[list] = None   # SPLIT: descriptor, raw planes, list
    check_error: int = 0        # added to the right check
    hash_errors: tuple = (0, 0)     # added to the right cell hashes of the base and of the elements
    size: Optional[int] = None  # the size in the head, unless it is the size of the body or the run of a CONST block
    certificate: Optional[decoder.Certificate] = None   # of a QUANTIZED block

    @property
    def head(self):
        right = self.cells if self.form == CONST else len(self.body)
        return (self.form | (right if self.size is None else self.size) << 8).to_bytes(4, "little")

    @property
    def all_elements(self):
        return self.elements * self.n if self.form == CONST else self.elements

    def hashes(self, base, dtype, first):
        """7.1"""
        if base is None:
            return b""
        return (le64(cell_hash(base.cell(first, self.n), base.dtype) ^ self.hash_errors[0]) +
                le64(cell_hash(self.all_elements, dtype) ^ self.hash_errors[1]))

    def check(self, header_check, first, hashes=b""):
        """5.5"""
        record = header_check + le64(first) + le64(self.n) + self.head + hashes
        if self.pieces:
            record += self.pieces[0] + b"".join(le64(xxh3(piece)) for piece in self.pieces[1:])
        else:
            record += le64(xxh3(self.body))
        return le64(xxh3(record) ^ self.check_error)


def stored_block(elements, w):
    return Block(STORED, elements, len(elements) // w, elements)


def const_block(element, n, run):
    return Block(CONST, element, n, element, run)


def split_block(descriptor, planes, coded, n, elements=b""):
    pieces = [descriptor] + planes + [coded]
    return Block(SPLIT, b"".join(pieces), n, elements, pieces=pieces)


def fitting(block, w):
    """R16"""
    if len(block.body) > block.n * w + (2 if block.form == CLASSED else 0):
        raise Impossible("a body longer than the elements")
    return block


def descriptor_of(dtype, e, varying=None, values=None, base=0, first=None):
    """5.2"""
    if first is None:
        first = e | (varying is not None) << 4
    data = bytes([first])
    if varying is not None:
        data += bytes(varying) + bytes(values)
    return data + base.to_bytes(2, "little") if dtype == F64 else data


def encode_split(encoder, dtype, values, e, base=0, varying=None, plan=None):
    """5.2: elements are given as numbers. varying: the bits that vary; None: no constant bits."""
    w = DTYPES[dtype].width
    xs = in_pair_order([field_order(v, dtype, e, base) for v in values], w)
    rest = rest_bits(dtype, e)
    planes = [[x >> 8 * k & rest[k] for x in xs] for k in range(len(rest))]
    constant = None
    if varying is not None:
        constant = [plane[0] & ~v for plane, v in zip(planes, varying)]
        for plane, v, c in zip(planes, varying, constant):
            if any(byte & ~v != c for byte in plane):
                raise Impossible("bits that vary")
    raw = [raw_plane(plane, v) for plane, v in zip(planes, varying or rest)]
    coded = encoder.outermost(bytes(x >> 8 * w - e for x in xs), e, plan)
    descriptor = descriptor_of(dtype, e, varying, constant, base)
    return fitting(split_block(descriptor, raw, coded, len(values), pack(values, w)), w)


def random_varying(rng, dtype, e):
    """All, some or none of the rest bits of each byte; never all bits of all bytes (R20)."""
    rest = rest_bits(dtype, e)
    while True:
        varying = [rng.choice((bits, bits & rng.getrandbits(8), 0)) for bits in rest]
        if varying != rest:
            return varying


def random_base(rng):
    return rng.choice((0, decoder.MAX_BASE, 896, rng.randint(0, decoder.MAX_BASE)))


def random_e(rng, dtype):
    return 8 if dtype == F64 else rng.randint(1, min(8, 8 * DTYPES[dtype].width - 1))


def random_split(rng, dtype, n, e=None, base=None, varying=None, plan=None, symbols=None, encoder=None):
    """A SPLIT block of random elements. varying: the bits that vary; True: random bits; None: all."""
    w = DTYPES[dtype].width
    e = random_e(rng, dtype) if e is None else e
    base = random_base(rng) if base is None else base
    varying = random_varying(rng, dtype, e) if varying is True else varying
    symbols = random_symbols(rng, n, e) if symbols is None else symbols
    rest = rest_bits(dtype, e)
    planes = []
    for bits, free in zip(rest, varying or rest):
        constant = rng.getrandbits(8) & bits & ~free
        planes.append([rng.getrandbits(8) & free | constant for _ in range(n)])
    if e == 8:
        planes.append([0] * n)
    values = []
    for symbol, x in zip(symbols, values_of(planes)):
        x |= symbol << 8 * w - e
        v = decoder.value_of_field_order(x, dtype, e, base)
        assert field_order(v, dtype, e, base) == x
        values.append(v)
    # `symbols` is the content of the list, in the order of positions. The elements are in their own order.
    order = in_pair_order(list(range(n)), w)
    elements = [0] * n
    for position, element in enumerate(order):
        elements[element] = values[position]
    return encode_split(encoder or ListEncoder(rng), dtype, elements, e, base, varying, plan)


def encode_bytes(planes, lists):
    """5.3: a BYTES block from its planes in the order of positions, and their lists."""
    w, n = len(planes), len(planes[0])
    order = in_pair_order(list(range(n)), w)
    elements = [b""] * n
    for element, row in zip(order, zip(*planes)):
        elements[element] = bytes(row)
    return fitting(Block(BYTES, b"".join(lists), n, b"".join(elements)), w)


def zigzag_of(block, dtype):
    """5.3: turns a BYTES block into a ZIGZAG block. The lists stay and now hold zigzag codes."""
    w = DTYPES[dtype].width
    codes = [int.from_bytes(block.elements[i:i + w], "little") for i in range(0, block.n * w, w)]
    block.form, block.elements = ZIGZAG, pack([z >> 1 ^ (-(z & 1) & (1 << 8 * w) - 1) for z in codes], w)
    return block


def random_bytes(rng, dtype, n, plan=None, symbols=None, encoder=None):
    """A BYTES or ZIGZAG block. A plan or symbols apply to one of its lists; the other lists are then cheap."""
    w = DTYPES[dtype].width
    encoder = encoder or ListEncoder(rng)
    special = rng.randrange(w)
    planes, lists = [], []
    for k in range(w):
        planned = k == special and (plan is not None or symbols is not None)
        if planned:
            plane = random_symbols(rng, n, 8) if symbols is None else symbols
        elif plan is not None or symbols is not None:
            plane = rng.randbytes(1) * n
        else:
            plane = random_symbols(rng, n, 8)
        planes.append(plane)
        lists.append(encoder.outermost(plane, 8, plan if planned else None))
    block = encode_bytes(planes, lists)
    return zigzag_of(block, dtype) if may_zigzag(dtype) and rng.random() < 0.5 else block


SPECIALS = {
    # sign, exponent, mantissa: zeros, infinities, quiet and signalling NaNs, denormals, the largest number, one
    6: (0x00, 0x80, 0x7F, 0xFF, 0x78, 0x79, 0x01, 0x81, 0x38),
    7: (0x00, 0x80, 0x7C, 0xFC, 0x7D, 0xFE, 0x01, 0x83, 0x3C),
    8: (0x0000, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0x7C01, 0xFDFF, 0x0001, 0x83FF, 0x7BFF, 0x3C00),
    9: (0x0000, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0xFFBF, 0x0001, 0x807F, 0x7F7F, 0x3F80),
    10: (0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFBFFFFF, 0x00000001, 0x807FFFFF,
         0x7F7FFFFF, 0x3F800000),
    11: (0x0000000000000000, 0x8000000000000000, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000,
         0x7FF0000000000001, 0xFFF7FFFFFFFFFFFF, 0x0000000000000001, 0x800FFFFFFFFFFFFF, 0x7FEFFFFFFFFFFFFF),
}


def random_element(rng, dtype):
    if dtype in SPECIALS and rng.random() < 0.5:
        return rng.choice(SPECIALS[dtype])
    return rng.getrandbits(8 * DTYPES[dtype].width)


def random_block(rng, dtype, n):
    """A block of one cell, of a random form that works."""
    w = DTYPES[dtype].width
    for _ in range(6):
        form = rng.choice((STORED, CONST, SPLIT, SPLIT, SPLIT, BYTES, BYTES))
        try:
            if form == CONST:
                return const_block(pack([random_element(rng, dtype)], w), n, 1)
            if form == SPLIT and DTYPES[dtype].is_float:
                return random_split(rng, dtype, n, varying=rng.choice((None, True, True)))
            if form == BYTES:
                return random_bytes(rng, dtype, n)
        except Impossible:
            pass
    return stored_block(pack([random_element(rng, dtype) for _ in range(n)], w), w)


def parted_block(rng, dtype, n, g=None, sides=None, wrong=None):
    """5.15: random granules and sides. sides(n) makes other blocks. `wrong` changes [g, mask, sides, bytes after them]."""
    w = DTYPES[dtype].width
    g = rng.choice([k for k in range(7) if n > 1 << k]) if g is None else g
    granules = (n + (1 << g) - 1) >> g
    share = rng.choice((0.03, 0.5, 0.9))
    mask = [rng.random() < share for _ in range(granules)]
    mask[rng.randrange(granules)] = True
    if all(mask):
        mask[rng.randrange(granules)] = False
    if not any(mask) or all(mask):
        raise Impossible("one granule")
    side_of = [mask[i >> g] for i in range(n)]
    blocks = [(sides[k] if sides else random_block)(rng, dtype, sum(side == k for side in side_of)) for k in range(2)]
    given = [iter(range(0, block.n * w, w)) for block in blocks]
    places = [(blocks[side].all_elements, next(given[side])) for side in side_of]
    parts = [g, sum(bit << i for i, bit in enumerate(mask)), [bytes([block.form]) + block.body for block in blocks], b""]
    if wrong:
        wrong(parts, granules)
    bits = parts[1].to_bytes((granules + 7) // 8, "little")
    body = bytes([parts[0]]) + ListEncoder(rng).outermost(bits, 8, rng.choice((None, ("raw",)))) + b"".join(parts[2]) + parts[3]
    return fitting(Block(PARTED, body, n, b"".join(elements[at:at + w] for elements, at in places)), w)


def patched_block(rng, dtype, predictions, side=None, wrong=None):
    """5.17: a random mask, threshold and side. `wrong` changes [first byte, threshold, mask, side, bytes after it]."""
    w, n = DTYPES[dtype].width, len(predictions)
    sign = 1 << 8 * w - 1
    if n < 2:
        raise Impossible("one element")
    g, relative = rng.choice([k for k in range(7) if n > 1 << k]), rng.random() < 0.5
    least = rng.choice((0, 1, rng.choice(predictions) % sign, rng.randrange(sign), sign - 1))
    granules = (n + (1 << g) - 1) >> g
    share = rng.choice((0, 0.03, 0.5, 0.9))
    mask = [rng.random() < share for _ in range(granules)]
    of_side = [mask[i >> g] ^ (v % sign < least) for i, v in enumerate(predictions)]
    if sum(of_side) in (0, n):
        raise Impossible("a side without elements")
    block = (side or random_block)(rng, dtype, sum(of_side))
    given = iter(range(0, block.n * w, w))
    elements = b""
    for bit, v in zip(of_side, predictions):
        if bit:
            at = next(given)
            v = int.from_bytes(block.all_elements[at:at + w], "little") ^ (v & sign if relative else 0)
        elements += v.to_bytes(w, "little")
    parts = [g | relative << 7, least, sum(bit << i for i, bit in enumerate(mask)), bytes([block.form]) + block.body, b""]
    if wrong:
        wrong(parts, granules)
    bits = parts[2].to_bytes((granules + 7) // 8, "little")
    body = bytes([parts[0]]) + parts[1].to_bytes(w, "little") + ListEncoder(rng).outermost(bits, 8, rng.choice((None, ("raw",)))) + parts[3] + parts[4]
    return fitting(Block(PATCHED, body, n, elements), w)


def random_stored(rng, dtype, n):
    w = DTYPES[dtype].width
    return stored_block(rng.randbytes(n * w), w)


def random_const(rng, dtype, n):
    return const_block(rng.choice((bytes(DTYPES[dtype].width), rng.randbytes(DTYPES[dtype].width))), n, 1)


def cheap_bytes(rng, dtype, n):
    return random_bytes(rng, dtype, n, ("const",), rng.randbytes(1) * n)


def one_symbol_split(rng, dtype, n):
    """The shortest SPLIT block."""
    varying = [0] * len(rest_bits(dtype, 8 if dtype == F64 else 1))
    return random_split(rng, dtype, n, 8 if dtype == F64 else 1, varying=varying)


def random_coded(rng, dtype, n, side=False, wrong=None):
    """5.2: a SPLIT block with coded bits. `wrong` changes [coded bits of planes, distance, masks, ranks, None to cut it]."""
    w = DTYPES[dtype].width
    e, base = random_e(rng, dtype), random_base(rng)
    varying = random_varying(rng, dtype, e) if rng.random() < 0.5 else None
    rest = rest_bits(dtype, e)
    free = varying or rest
    coded = [bits & rng.choice((0x7F, 0xFF, rng.getrandbits(8))) if (k == w - 2 if side else k < w - 1 and rng.random() < 0.7) else 0
             for k, bits in enumerate(free)]
    if not any(coded):
        raise Impossible("no coded bits")
    planes, raw, behind, encoder, cut = [], [], b"", ListEncoder(rng), False
    spoiled = rng.choice([k for k, bits in enumerate(coded) if bits])
    stated = list(coded)
    for k, (bits, v) in enumerate(zip(free, coded)):
        constant = rng.getrandbits(8) & rest[k] & ~bits
        few = [rng.getrandbits(8) & v for _ in range(rng.choice((1, 3, 9, 200)))]
        values = [rng.choice(few) for _ in range(n)]
        others = [rng.getrandbits(8) & bits & ~v for _ in range(n)]
        planes.append([constant | a | b for a, b in zip(values, others)])
        raw.append(raw_plane(others, bits & ~v))
        if not v or cut:
            continue
        size = 32 if v & 0x80 else 16
        sets = [sorted(set(values[at:at + 64]) | (set(few) if rng.random() < 0.2 else set())) for at in range(0, n // 64 * 64, 64)]
        distance = rng.choice((0, 0, 1, 2, 255))
        masks = [sum(1 << value for value in one) for one in sets]
        masks = [mask ^ (masks[g - distance] if 0 < distance <= g else 0) for g, mask in enumerate(masks)]
        ranks = [sets[i // 64].index(value) if i < n // 64 * 64 else value for i, value in enumerate(values)]
        parts = [stated, distance, b"".join(mask.to_bytes(size, "little") for mask in masks), bytes(ranks), b""]
        if wrong and k == spoiled:
            wrong(rng, parts, len(masks), v)
        cut = parts[4] is None
        if not cut:
            behind += bytes(parts[1:2]) + encoder.outermost(parts[2], 8, None) + encoder.outermost(parts[3], 8, None)
    xs = values_of(planes + ([[0] * n] if e == 8 else []))
    symbol = rng.randrange(1 << e)
    elements = [0] * n
    for x, i in zip(xs, in_pair_order(list(range(n)), w)):
        elements[i] = decoder.value_of_field_order(x | symbol << 8 * w - e, dtype, e, base)
    values = [plane[0] & ~bits & every for plane, bits, every in zip(planes, free, rest)]
    descriptor = descriptor_of(dtype, e, varying, values, base, e | (varying is not None) << 4 | 32) + bytes(stated)
    behind += b"" if cut else bytes([1, symbol])
    return fitting(split_block(descriptor, raw, behind, n, pack(elements, w)), w)


def coded_side(rng, dtype, n):
    return random_coded(rng, dtype, n, True)


# ---- 6. Frames ----

@dataclass
class Frame:
    """A frame to write. A field that is None gets the right value; other values are errors on purpose."""
    dtype: int
    log2: int
    blocks: List[Block]
    flags: int = 1
    extensions: Optional[bytes] = None
    errors: dict = field(default_factory=dict)
    base: Optional[Base] = None     # of a delta; `extensions` has the extension that describes it

    @property
    def count(self):
        return sum(block.n for block in self.blocks)

    @property
    def given_base(self):
        """The base for the decoder."""
        return self.error("given base", self.base)

    def elements(self):
        return b"".join(block.all_elements for block in self.blocks)

    def error(self, name, right):
        return self.errors.get(name, right)

    def header(self):
        """6.1"""
        flags = self.flags | (0x80 if self.extensions is not None else 0)
        data = self.error("magic", decoder.MAGIC)
        data += bytes([self.error("version", decoder.VERSION), self.error("dtype", self.dtype), self.error("log2", self.log2)])
        data += bytes([flags | self.error("more flags", 0)]) + le64(self.error("count", self.count))
        if self.extensions is not None:
            data += len(self.extensions).to_bytes(2, "little") + self.extensions
        return data + le64(xxh3(data) ^ self.error("header check", 0))

    def write(self):
        data = self.header()
        header_check, first, checks, places = data[-8:], 0, [], []
        for block in self.blocks:
            hashes = block.hashes(self.base, self.dtype, first)
            check = block.check(header_check, first, hashes)
            places.append((first >> self.log2, len(data)))
            data += block.head + (check if self.flags & 1 else b"") + hashes + block.body
            checks.append(check)
            first += block.n
        data += self.error("gap", b"")
        if self.count > 1 << self.log2 or self.flags & 14:
            data += self.footer(len(data), header_check, checks, places)
        return data[:self.error("cut", len(data))] + self.error("behind", b"")

    def footer(self, start, header_check, checks, places):
        """6.2"""
        heads = self.error("heads", lambda same: same)(b"".join(block.head for block in self.blocks))
        index, size = heads, 4
        if self.flags & 1:
            halves = self.error("halves", lambda same: same)([check[:4] for check in checks]) + [bytes(4)] * len(heads)
            index, size = b"".join(heads[4 * i:4 * i + 4] + halves[i] for i in range(len(heads) // 4)), 8
        last = index    # the level below the next one
        while len(last) > FAN * size:
            parts = [last[i:i + FAN * size] for i in range(0, len(last), FAN * size)]
            places = places[::FAN]
            entries = [[cell, offset, xxh3(header_check + part)] for (cell, offset), part in zip(places, parts)]
            self.error("entries", lambda entries: None)(entries)
            last, size = b"".join(le64(x & decoder.M64) for entry in entries for x in entry), 24
            index += last
        root = len(index) - len(last)
        data = index
        if self.flags & 2:
            right = decoder.content_id(self.elements(), self.dtype)
            data += le64(right ^ self.error("content id", 0))
        if self.flags & 4:
            certificate = decoder.Certificate()
            for block in self.blocks:
                if block.form == QUANTIZED:
                    certificate = certificate.plus(block.certificate)
            data += bytes(certificate)
        if self.flags & 8:
            extra = self.error("footer extensions", b"")
            size = len(extra).to_bytes(4, "little")
            data += self.error("first size", size) + extra + self.error("last size", size)
        data += le64((len(heads) // 4 + self.error("blocks", 0)) & decoder.M64)
        data += le64((start + len(data) + 20 + self.error("frame size", 0)) & decoder.M64)
        check = xxh3(header_check + data[root:]) ^ self.error("footer check", 0)
        return data + le64(check) + self.error("end magic", decoder.END_MAGIC)


def random_extensions(rng):
    """6.1: extensions that decoders ignore"""
    data = b""
    for _ in range(rng.randint(0, 4)):
        data += extension(rng.randrange(128), rng.randbytes(rng.choice((0, 1, 7, 255, 256, 700))))
    return data


def extension(kind, value, size=None):
    """6.1"""
    return bytes([kind]) + (len(value) if size is None else size).to_bytes(2, "little") + value


def random_flags(rng):
    return rng.choice((0, 1, 1, 2, 3))


def frame_around(rng, dtype, block, flags=None):
    """A frame with this block as its last cell, and sometimes with cells before it."""
    w = DTYPES[dtype].width
    least = max(6, (block.n - 1).bit_length())
    log2 = rng.choice((least, least, rng.randint(least, 20)))
    blocks = []
    if log2 <= 10:
        for _ in range(rng.choice((0, 0, 1, 2))):
            if rng.random() < 0.5:
                run = rng.randint(1, 3)
                blocks.append(const_block(pack([random_element(rng, dtype)], w), run << log2, run))
            else:
                blocks.append(stored_block(rng.randbytes(w << log2), w))
    extensions = random_extensions(rng) if rng.random() < 0.2 else None
    return Frame(dtype, log2, blocks + [block], random_flags(rng) if flags is None else flags, extensions)


def dtype_for(rng, b, wide=False):
    """A dtype with a list of symbols of b bits, and whether its block must be SPLIT. A list may be longer than its symbols,
    but a body may not be longer than its elements. `wide` asks for a dtype whose other bytes leave space."""
    dtypes = [d for d in DTYPES if DTYPES[d].width >= (4 if wide else 1)]
    if b == 8 and rng.random() < 0.6:
        return rng.choice(dtypes), False
    return rng.choice([d for d in dtypes if b in possible_e(d)]), True


def possible_e(dtype):
    """5.2"""
    if not DTYPES[dtype].is_float:
        return ()
    return (8,) if dtype == F64 else tuple(range(1, min(8, 8 * DTYPES[dtype].width - 1) + 1))


def frame_of_list(rng, b, m, plan=None, symbols=None, encoder=None, wide=False):
    """A frame that contains a list of m symbols of b bits."""
    dtype, split = dtype_for(rng, b, wide)
    if split:
        none = [0] * len(rest_bits(dtype, b))
        varying = none if wide else rng.choice((None, none, True))
        block = random_split(rng, dtype, m, b, varying=varying, plan=plan, symbols=symbols, encoder=encoder)
    else:
        block = random_bytes(rng, dtype, m, plan, symbols, encoder)
    return frame_around(rng, dtype, block)


# ---- valid frames ----

def sizes(rng):
    """Numbers of elements near the limits of bytes, groups and trees."""
    near = rng.choice((2, 8, 16, 32, 64, 128, 192, 300, 511))
    return near + rng.choice((-1, 0, 1))


def valid_empty(rng):
    dtype = rng.choice(list(DTYPES))
    extensions = random_extensions(rng) if rng.random() < 0.3 else None
    return Frame(dtype, rng.randint(6, 20), [], random_flags(rng), extensions)


def valid_stored(rng, dtype):
    w = DTYPES[dtype].width
    elements = pack([random_element(rng, dtype) for _ in range(sizes(rng))], w)
    return frame_around(rng, dtype, stored_block(elements, w))


def valid_cells(rng, log2=None):
    """Blocks of all forms, CONST runs, and last cells of 1 to 64 elements or of a whole cell."""
    dtype = rng.choice(list(DTYPES))
    w = DTYPES[dtype].width
    log2 = rng.choice((6, 6, 6, 7, 7, 8, 9)) if log2 is None else log2
    cell, blocks = 1 << log2, []
    for _ in range(rng.randint(1, 8)):
        if rng.random() < 0.25:
            run = rng.choice((1, 2, 5, 40))
            blocks.append(const_block(pack([random_element(rng, dtype)], w), run * cell, run))
        else:
            blocks.append(random_block(rng, dtype, cell))
    if rng.random() < 0.8:
        last = rng.choice((1, 2, 16, 63, cell - 1, rng.randint(1, 63)))
        if rng.random() < 0.3:
            run = rng.choice((1, 3))
            blocks.append(const_block(pack([random_element(rng, dtype)], w), (run - 1) * cell + last, run))
        else:
            blocks.append(random_block(rng, dtype, last))
    extensions = random_extensions(rng) if rng.random() < 0.3 else None
    return Frame(dtype, log2, blocks, random_flags(rng), extensions)


def valid_log2(rng, log2):
    """Few elements in cells of any size; or whole cells as CONST runs and STORED."""
    dtype = rng.choice(list(DTYPES))
    w = DTYPES[dtype].width
    if rng.random() < 0.5 or log2 < 10:
        return Frame(dtype, log2, [random_block(rng, dtype, min(1 << log2, sizes(rng)))], random_flags(rng))
    dtype = rng.choice([d for d in DTYPES if DTYPES[d].width << log2 <= 1 << 20])
    w, cell = DTYPES[dtype].width, 1 << log2
    blocks = []
    for _ in range(rng.randint(1, 2)):
        if rng.random() < 0.7:
            run = rng.randint(1, 2)
            blocks.append(const_block(pack([random_element(rng, dtype)], w), run * cell, run))
        else:
            blocks.append(stored_block(rng.randbytes(cell * w), w))
    if rng.random() < 0.8:
        blocks.append(random_block(rng, dtype, rng.choice((1, 16, 64, 65))))
    return Frame(dtype, log2, blocks, random_flags(rng))


def many_blocks(rng, blocks=None, flags=None, flat=False):
    """An index of several pages. Most blocks are CONST. flat: all blocks have one cell."""
    dtype, run = rng.choice((1, 2, 6)), 1 if flat or rng.random() < 0.5 else 3
    made = [const_block(rng.randbytes(1), 64 * run, run) if rng.random() < 0.95 else stored_block(rng.randbytes(64), 1)
            for _ in range((blocks or rng.choice((257, 258, 511, 512, 513, rng.randint(300, 900)))) - 1)]
    made.append(stored_block(rng.randbytes(rng.randint(1, 64)), 1))
    return Frame(dtype, 6, made, random_flags(rng) if flags is None else flags)


def valid_e(rng, dtype, e):
    varying = rng.choice((None, True))
    return frame_around(rng, dtype, random_split(rng, dtype, rng.randint(16, 400), e, varying=varying))


def valid_constant_bits(rng, dtype, shape):
    """shape: "none" or "some" of the rest bits of every byte vary; else random ones."""
    e = random_e(rng, dtype)
    rest = rest_bits(dtype, e)
    varying = {"none": [0] * len(rest), "some": [bits & 0x5A for bits in rest]}.get(shape)
    varying = random_varying(rng, dtype, e) if varying is None else varying
    return frame_around(rng, dtype, random_split(rng, dtype, sizes(rng), e, varying=varying))


def valid_base(rng, base):
    n, varying = rng.randint(16, 300), rng.choice((None, True))
    symbols = bytes(rng.choice((0, 1, 254, 255)) for _ in range(n)) if rng.random() < 0.5 else None
    return frame_around(rng, F64, random_split(rng, F64, n, base=base, varying=varying, symbols=symbols))


def valid_specials(rng, dtype):
    """Zeros, infinities and NaNs in a SPLIT block."""
    e, base, choices = random_e(rng, dtype), rng.choice((0, decoder.MAX_BASE)), SPECIALS[dtype]
    if dtype == F64:
        choices = [v for v in choices if (v >> 52 & 0x7FF) in (0, *range(base + 1, base + 256))]
    choices = rng.sample(choices, rng.randint(1, min(5, len(choices))))
    values = rng.choices(choices, k=rng.randint(100, 300))
    varying = [0] * len(rest_bits(dtype, e))
    for value in choices:       # the bits that differ, and random others
        changed = field_order(value, dtype, e, base) ^ field_order(choices[0], dtype, e, base)
        varying = [v | (changed >> 8 * k | rng.getrandbits(8) & rng.getrandbits(8) & rng.getrandbits(8)) & bits
                   for k, (v, bits) in enumerate(zip(varying, rest_bits(dtype, e)))]
    if varying == rest_bits(dtype, e):
        varying = None
    return frame_around(rng, dtype, encode_split(ListEncoder(rng), dtype, values, e, base, varying))


def valid_small_lists(rng, n):
    """Lists of so few symbols that they are RAW or CONST."""
    dtype = rng.choice([d for d in DTYPES if DTYPES[d].is_float])
    if rng.random() < 0.5:
        e, varying = random_e(rng, dtype), rng.choice((None, True))
        symbols = rng.choice((None, bytes([rng.randrange(1 << e)]) * n))
        return frame_around(rng, dtype, random_split(rng, dtype, n, e, varying=varying, symbols=symbols))
    return frame_around(rng, dtype, random_bytes(rng, dtype, n))


def valid_kind(rng, kind):
    b = 8 if rng.random() < 0.5 else rng.randint(1, 7)
    plan = ListEncoder(rng).random_plan(kind)
    m = rng.choice((16, 17, rng.randint(16, 600)))
    symbols = bytes([rng.randrange(1 << b)]) * m if kind == "const" else None
    return frame_of_list(rng, b, m, plan, symbols, wide=rng.random() < 0.3)


def valid_escape(rng, plan, e, used):
    """An escape of each length: for symbols without a code, for symbols with one, or for no symbol."""
    encoder = ListEncoder(rng)
    encoder.codes_for_all = not used
    encoder.stray = rng.choice((0, 0, 0.1, 1)) if used else 0
    b, m = rng.choice((4, 5, 8, 8, 8)), rng.randint(20, 500)
    return frame_of_list(rng, b, m, ("escapes", e, plan), encoder=encoder, wide=rng.random() < 0.5)


def valid_many_codes(rng, codes):
    m = rng.randint(600, 1500)
    used = bytes(rng.sample(range(256), codes))
    symbols = bytes(rng.choices(used, k=m)) + used
    return frame_of_list(rng, 8, len(symbols), ("tree",), symbols, wide=True)


def nested_splits(rng, depth, inside, low):
    """Nested splits with all symbols on one side, so that one list holds all. low: symbols are 1 or 2, else above 2."""
    plan = inside
    for _ in range(depth):
        split2 = ("split2", None, plan, None) if low else ("split2", None, None, plan)
        plan = rng.choice((("split0", None, plan), split2))
    return plan


def valid_deep(rng, inside):
    """Splits down to depth 5. The list there has no lists inside."""
    low = rng.random() < 0.5
    choices = (1, 2) if low else (3, 4, 200)
    if inside[0] == "const":
        choices = choices[:1]
    symbols = bytes(rng.choice(choices) for _ in range(rng.randint(16, 200)))
    return frame_of_list(rng, 8, len(symbols), nested_splits(rng, 5, inside, low), symbols, wide=True)


def valid_bushy(rng):
    """Lists inside lists on all sides, down to depth 5, to reach the largest number of nodes."""
    def plan(depth):
        if depth == decoder.MAX_DEPTH:
            return rng.choice((("tree",), ("tree",), ("raw",), None))
        kind = rng.choice(("escapes", "split0", "split2", "split2", None))
        if kind == "escapes":
            return (kind, rng.randint(1, 3), plan(depth + 1))
        return kind and (kind, None, plan(depth + 1), plan(depth + 1))
    encoder = ListEncoder(rng)
    encoder.lenient = True
    encoder.stray = rng.choice((0, 0.3, 0.7))
    encoder.wrong_sides = rng.random() < 0.5
    m = rng.randint(1000, 4000)
    symbols = bytes(rng.randrange(256) if rng.random() < 0.7 else rng.randrange(4) for _ in range(m))
    return frame_of_list(rng, 8, m, plan(0), symbols, wide=True, encoder=encoder)


def valid_split_masks(rng):
    """Masks that are coded as splits. The masks of these are trees and splits."""
    inner = rng.choice((("split0", None, None), ("split2", None, None, None), ("split0", ("split0", None, None), None)))
    m = 1100 if inner[1] else rng.randint(128, 600)
    symbols = bytes(rng.randrange(4) if rng.random() < 0.1 else 0 for _ in range(m))
    plan = rng.choice((("split0", inner, None), ("split2", inner, None, None)))
    if plan[0] == "split2":
        symbols = bytes(4 * s for s in symbols)
    return frame_of_list(rng, rng.choice((4, 8)), m, plan, symbols, wide=True)


def valid_sparse_mask(rng):
    """Few symbols are not 0, so the bytes of the mask have few values. Rare ones escape."""
    m = rng.randint(200, 2000)
    symbols = bytes(rng.randrange(1, 256) if rng.random() < 0.05 else 0 for _ in range(m))
    coded = ("escapes", rng.randint(1, 8), rng.choice((("raw",), None)))
    mask = rng.choice((("tree",), coded, ("split0", None, coded), ("split0", ("split0", None, None), ("tree",))))
    encoder = ListEncoder(rng)
    encoder.lenient = True
    return frame_of_list(rng, 8, m, ("split0", mask, None), symbols, encoder, wide=True)


def valid_levels(rng):
    """Lists of escapes inside lists of escapes, down to depth 5."""
    plan = rng.choice((("tree",), ("raw",), None))
    for _ in range(rng.randint(2, 5)):
        plan = rng.choice((("escapes", rng.randint(1, 3), plan), ("escapes", 1, plan), ("split2", None, None, plan)))
    encoder = ListEncoder(rng)
    encoder.stray = rng.choice((0.2, 0.6, 0.9))
    return frame_of_list(rng, 8, rng.randint(300, 900), plan, wide=True, encoder=encoder)


def valid_wrong_sides(rng):
    """4.4: a decoder merges the sides of a split by the mask alone. It does not compare the symbols with their side."""
    encoder = ListEncoder(rng)
    encoder.wrong_sides = True
    return frame_of_list(rng, 8, rng.randint(16, 300), ("split2", None, None, None), encoder=encoder, wide=True)


def valid_long_list(rng):
    m = rng.choice((1 << 12, 5000, 1 << 13))
    return frame_of_list(rng, 8, m, rng.choice((("escapes", 6, None), ("tree",), ("split0", None, None))),
                         bytes(min(255, int(rng.expovariate(0.5))) for _ in range(m)), wide=True)


def with_flags(make, flags, extensions):
    def made(rng):
        frame = make(rng)
        frame.flags, frame.extensions = flags, random_extensions(rng) if extensions else None
        return frame
    return made


# ---- deltas ----

def random_prediction(rng, dtype):
    """An element of a base. Most elements are near each other, and some are special."""
    bits = 8 * DTYPES[dtype].width
    if dtype in SPECIALS and rng.random() < 0.8:
        exponent_bits = {6: 4, 7: 5, 8: 5, 9: 8, 10: 8, 11: 11}[dtype]
        mantissa_bits = bits - 1 - exponent_bits
        exponent = max(0, (1 << exponent_bits - 1) - 1 - int(rng.expovariate(0.3)))
        return rng.getrandbits(1) << bits - 1 | exponent << mantissa_bits | rng.getrandbits(mantissa_bits)
    return random_element(rng, dtype)


def random_master(rng, dtype):
    """An F32 element that tests the cast to F16 or BF16 (6.3)."""
    sign, lost = rng.getrandbits(1) << 31, 13 if dtype == F16 else 16
    tie = rng.choice((0, 1 << lost - 1, (1 << lost - 1) - 1, (1 << lost - 1) + 1, (1 << lost) - 1, rng.getrandbits(lost)))
    mantissa = rng.choice((rng.getrandbits(23 - lost), (1 << 23 - lost) - 1, 0, 1)) << lost | tie
    style = rng.randrange(8)
    if style == 0:      # NaNs of all payloads, and infinities
        return sign | 255 << 23 | rng.choice((0, 1, 1 << 12, 1 << 13, 1 << 15, 1 << 16, 1 << 22, rng.getrandbits(23)))
    if style == 1:      # subnormal numbers of F32, and zeros
        return sign | rng.choice((0, 1, rng.getrandbits(23), mantissa, (1 << 23) - 1))
    if style == 2:      # results that are subnormal in F16, and numbers of at most half the smallest one
        exponent = rng.randint(127 - 27, 127 - 14)
        return sign | exponent << 23 | rng.choice((rng.getrandbits(23), 0, 1, 1 << 22, rng.getrandbits(4) << 19))
    if style == 3:      # results that are infinite or almost infinite
        exponent = rng.choice((127 + 15, 127 + 15, 127 + 16)) if dtype == F16 else 254
        return sign | exponent << 23 | ((1 << 23 - lost) - 1) << lost | tie
    return sign | rng.randint(127 - 16, 127 + 2) << 23 | mantissa


def role_of(frame):
    return 1 if frame.base.dtype == frame.dtype else 3 if frame.dtype == F32 else 2


def base_dtype_of(rng, dtype, role):
    return dtype if role == 1 else F32 if role == 2 else rng.choice((F16, BF16))


def random_base_of(rng, dtype, role, n):
    if role == 3:
        dtype = base_dtype_of(rng, dtype, role)
        return Base(dtype, pack([random_element(rng, dtype) for _ in range(n)], 2))
    if role == 2:
        return Base(F32, pack([random_master(rng, dtype) for _ in range(n)], 4))
    return Base(dtype, pack([random_prediction(rng, dtype) for _ in range(n)], DTYPES[dtype].width))


def predictions_of(base, dtype, role, first, n):
    w = DTYPES[dtype].width
    cell = base.cell(first, n) if role == 1 else decoder.cast_cell(base.cell(first, n), base.dtype, dtype)
    return [int.from_bytes(cell[i:i + w], "little") for i in range(0, n * w, w)]


class WordsEncoder:
    """5.7: lists of words, at random or by a plan: (s, limit) for each level, and RAW after the last. None: at random."""

    def __init__(self, rng, w, plan=None, lists=None, wrapped=0.0):
        self.rng, self.bits, self.plan = rng, 8 * w, plan
        self.lists = lists          # the plan of the lists of symbols
        self.wrapped = wrapped      # the probability of a number that is right only modulo 2^W

    def step(self, words, level, shifted):
        """(s, limit) of a list; None for RAW."""
        if self.plan is not None:
            return self.plan[level] if level < len(self.plan) else None
        if level == MAX_WORDS_LEVEL or self.rng.random() < 0.15:
            return None
        s = self.rng.choice((0, 0, self.rng.randrange(self.bits - shifted), min(self.bits - shifted - 1, 8)))
        largest = max(words) >> s
        if largest <= 255 and self.rng.random() < 0.5:
            return s, 0
        return s, self.rng.choice((1, 2, 15, 254, 255, self.rng.randint(1, 255)))

    def words(self, words, level=0, shifted=0):
        if not words:
            return b""
        step = self.step(words, level, shifted)
        if step is None:
            return bytes([RAW_WORDS]) + pack(words, self.bits // 8)
        s, limit = step
        room = 1 << self.bits - s       # the shift drops what is not below this
        symbols, rests = [], []
        for word in words:
            high, wrap = word >> s, self.rng.random() < self.wrapped
            if limit == 0:
                if high > 255:
                    raise Impossible("a word that needs a limit")
                if wrap and room < 256:
                    high += room * self.rng.randint(0, (255 - high) // room)
                symbols.append(high)
            elif high < limit and not wrap:
                symbols.append(high)
            else:
                symbols.append(limit)
                rest = (high - limit) % room
                if wrap:
                    rest += room * self.rng.randrange(1 << s)
                rests.append(rest)
        data = bytes([s, limit])
        for k in range(s // 8):
            data += bytes(word >> 8 * k & 255 for word in words)
        if s % 8:
            data += raw_plane([word >> s - s % 8 & 255 for word in words], (1 << s % 8) - 1)
        data += ListEncoder(self.rng).outermost(bytes(symbols), 8, self.lists)
        return data + self.words(rests, level + 1, shifted + s)


def word_of(d, bits):
    """5.7"""
    return 2 * d if d < 1 << bits - 1 else 2 * ((1 << bits) - d) - 1


def difference_of(word, bits):
    return (word >> 1 if word % 2 == 0 else (1 << bits) - (word + 1) // 2) % (1 << bits)


def random_words(rng, m, bits, top=None):
    """Words like those of differences: most are small. top: the bits of the largest."""
    largest = (1 << (bits if top is None else top)) - 1
    style = rng.randrange(6)
    if style == 0:
        return [min(largest, rng.choice((0, 1, 2, 3, 254, 255, 256, largest)))] * m
    if style == 1:
        return [min(largest, int(rng.expovariate(0.3))) for _ in range(m)]
    if style == 2:
        return [rng.randint(0, largest) if rng.random() < 0.05 else 0 for _ in range(m)]
    if style == 3:
        scale = rng.randint(1, bits)
        return [min(largest, rng.getrandbits(scale) & rng.getrandbits(scale)) for _ in range(m)]
    if style == 4:
        return [min(largest, rng.getrandbits(rng.randint(1, rng.randint(1, bits)))) for _ in range(m)]
    return [min(largest, rng.choice((0, 1, 14, 15, 16, 254, 255, 256, 270, 510, 65535, 1 << bits // 2))) for _ in range(m)]


def classes_of(predictions, dtype, borders):
    if not borders:
        return [0] * len(predictions)
    return [sum(border <= decoder.exponent_of(v, dtype) for border in borders) for v in predictions]


def random_borders(rng, dtype, classes, predictions):
    """Exponents that the elements have, and exponents that they do not have."""
    present = sorted({decoder.exponent_of(v, dtype) for v in predictions}) if classes > 1 else []
    near = [e + d for e in present for d in (0, 1) if 1 <= e + d <= 255]
    choices = list(range(1, 256)) if rng.random() < 0.3 or len(set(near)) < classes else sorted(set(near))
    return sorted(rng.sample(choices, classes - 1))


def classed_block(rng, dtype, predictions, borders, make_words, encoder_of):
    """make_words(class, m) gives m words of a class; encoder_of(class) gives their encoder."""
    w = DTYPES[dtype].width
    members = classes_of(predictions, dtype, borders)
    body, lists = bytes([len(borders) + 1]) + bytes(borders), []
    for number in range(len(borders) + 1):
        words = make_words(number, members.count(number))
        body += encoder_of(number).words(words)
        lists.append(iter(words))
    values = [(v + difference_of(next(lists[number]), 8 * w)) % (1 << 8 * w) for v, number in zip(predictions, members)]
    return fitting(Block(CLASSED, body, len(predictions), pack(values, w)), w)


def random_classed(rng, dtype, predictions, classes=None):
    w = DTYPES[dtype].width
    classes = (rng.randint(1, 8) if DTYPES[dtype].is_float else 1) if classes is None else classes
    for _ in range(30):
        borders = random_borders(rng, dtype, classes, predictions)
        wrapped = rng.choice((0, 0, 0.1))
        top = rng.choice((None, rng.randint(1, 8 * w)))
        try:
            return classed_block(rng, dtype, predictions, borders, lambda number, m: random_words(rng, m, 8 * w, top),
                                 lambda number: WordsEncoder(rng, w, wrapped=wrapped))
        except Impossible:
            pass
    raise Impossible("words that take more room than their elements")


def same_block(base, dtype, role, first, n):
    """5.6"""
    elements = pack(predictions_of(base, dtype, role, first, n), DTYPES[dtype].width)
    return Block(SAME, b"", n, elements)


def base_info(role, base):
    return bytes([role, base.dtype]) + le64(decoder.content_id(base.elements, base.dtype))


def base_extension(info):
    return extension(BASE_EXTENSION, info)


def delta_frame(rng, dtype, role, base, blocks, log2=None):
    """6.3"""
    log2 = rng.choice((16, 16, 18, 20, rng.randint(16, 20))) if log2 is None else log2
    before, behind = (random_extensions(rng) if rng.random() < 0.15 else b"" for _ in range(2))
    return Frame(dtype, log2, blocks, 3, before + base_extension(base_info(role, base)) + behind, {}, base)


def random_role(rng, dtype):
    return rng.choice((1, 2)) if dtype in (F16, BF16) else rng.choice((1, 3)) if dtype == F32 else 1


def valid_delta(rng, dtype, make):
    """A delta of one short cell. make(rng, dtype, predictions, ...) makes its block."""
    role, n = random_role(rng, dtype), sizes(rng)
    base = random_base_of(rng, dtype, role, n)
    return delta_frame(rng, dtype, role, base, [make(rng, dtype, predictions_of(base, dtype, role, 0, n))])


def valid_classed(rng, dtype, classes):
    return valid_delta(rng, dtype, lambda rng, dtype, predictions: random_classed(rng, dtype, predictions, classes))


def valid_patched(rng, dtype, side=None, wrong=None):
    return valid_delta(rng, dtype, lambda rng, dtype, predictions: patched_block(rng, dtype, predictions, side, wrong and (
        lambda parts, granules: wrong(rng, parts, granules))))


def valid_delta_plain(rng, dtype):
    """A block that is coded without the base, in a frame that has one."""
    return valid_delta(rng, dtype, lambda rng, dtype, predictions: random_block(rng, dtype, len(predictions)))


def valid_same(rng, dtype, role):
    n = sizes(rng)
    base = random_base_of(rng, dtype, role, n)
    return delta_frame(rng, dtype, role, base, [same_block(base, dtype, role, 0, n)])


def valid_delta_empty(rng):
    dtype = rng.choice(list(DTYPES))
    role = random_role(rng, dtype)
    return delta_frame(rng, dtype, role, Base(base_dtype_of(rng, dtype, role), b""), [])


def cheap_words(rng, m, bits, s, limit):
    """Words whose upper bits are short for every s. Some reach the limit or exceed it."""
    room = 1 << bits - s
    highs = [0, 1] if limit == 0 else [0, limit, limit + rng.choice((0, 1, 300))]
    highs = [high for high in highs if high < room] or [0]
    weights = [30] + [1] * (len(highs) - 1)
    if rng.random() < 0.3:
        highs, weights = [rng.choice(highs)], [1]
    return [high << s | rng.getrandbits(s) if s else high for high in rng.choices(highs, weights, k=m)]


def valid_shifts(rng, dtype, shifts):
    """Gives each class its own number of low bits, from `shifts`."""
    w, n = DTYPES[dtype].width, rng.randint(150, 400)
    exponents = {6: 4, 7: 5, 8: 5, 9: 8, 10: 8, 11: 11}.get(dtype)
    base = random_base_of(rng, dtype, 1, n)
    predictions, borders = predictions_of(base, dtype, 1, 0, n), []
    shifts = list(shifts) if exponents else [rng.choice(list(shifts))]
    if exponents:
        # exponents of all values
        values = [rng.getrandbits(8 * w) for _ in range(n)]
        base = Base(dtype, pack(values, w))
        predictions = values
        borders = sorted(rng.sample(range(1, 1 << min(8, exponents)), len(shifts) - 1))
        rng.shuffle(shifts)
    steps = [(s, rng.choice((0, 0, 1, 5, 255))) for s in shifts]

    def encoder_of(number):
        s, limit = steps[number]
        further = [(rng.randrange(8 * w - s), 0)] if rng.random() < 0.3 and limit else []
        return WordsEncoder(rng, w, [(s, limit)] + further, wrapped=rng.choice((0, 0.02)))

    block = classed_block(rng, dtype, predictions, borders, lambda number, m: cheap_words(rng, m, 8 * w, *steps[number]),
                          encoder_of)
    return delta_frame(rng, dtype, 1, base, [block])


def valid_nested(rng, dtype, depth):
    """Lists of words inside each other, down to level 4."""
    w, n = DTYPES[dtype].width, rng.randint(100, 400)
    role = random_role(rng, dtype)
    base = random_base_of(rng, dtype, role, n)
    predictions = predictions_of(base, dtype, role, 0, n)
    borders = random_borders(rng, dtype, rng.randint(1, 3), predictions) if DTYPES[dtype].is_float else []
    left, plan = 8 * w - 1, []
    for _ in range(depth):
        s = rng.choice((0, 0, rng.randint(0, min(left, 3)), rng.randint(0, left // 2)))
        left -= s
        plan.append((s, rng.choice((1, 2, 3, 7, 15, 100, 255))))
    if depth < MAX_WORDS_LEVEL and rng.random() < 0.5:
        plan[-1] = (plan[-1][0], 0)

    def some_words(number, m):
        """Some words escape at each level."""
        words = []
        for _ in range(m):
            word, shift = 0, 0
            for s, limit in plan[:rng.choice((0,) * 8 + tuple(range(len(plan) + 1)))]:
                shift += s
                word += limit << shift
            word += rng.getrandbits(2) << shift
            words.append(min(word, (1 << 8 * w) - 1))
        return words

    block = classed_block(rng, dtype, predictions, borders, some_words, lambda number: WordsEncoder(rng, w, plan))
    return delta_frame(rng, dtype, role, base, [block])


def valid_limit(rng, dtype, limit):
    w, n = DTYPES[dtype].width, rng.randint(60, 400)
    base = random_base_of(rng, dtype, 1, n)
    largest = (1 << 8 * w) - 1
    choices = [min(word, largest) for word in (0, limit - 1, limit, limit + 1, limit + 2, largest)]

    def some_words(number, m):
        return [rng.choice(choices) if rng.random() < 0.2 else 0 for _ in range(m)]

    block = classed_block(rng, dtype, predictions_of(base, dtype, 1, 0, n), [], some_words,
                          lambda number: WordsEncoder(rng, w, [(0, limit)]))
    return delta_frame(rng, dtype, 1, base, [block])


def valid_raw_words(rng, dtype):
    """RAW words on level 0. They fit only if other classes are shorter."""
    w, n = DTYPES[dtype].width, rng.randint(60, 400)
    role = random_role(rng, dtype)
    base = random_base_of(rng, dtype, role, n)
    predictions = predictions_of(base, dtype, role, 0, n)
    borders = random_borders(rng, dtype, rng.randint(2, 8), predictions)
    raw = rng.randrange(len(borders) + 1)
    if raw not in classes_of(predictions, dtype, borders):
        raise Impossible("an empty class")
    block = classed_block(rng, dtype, predictions, borders,
                          lambda number, m: [rng.getrandbits(8 * w) if number == raw else 0 for _ in range(m)],
                          lambda number: WordsEncoder(rng, w, [] if number == raw else [(0, 0)], ("const",)))
    return delta_frame(rng, dtype, role, base, [block])


def random_places(rng, n, m):
    """m of n positions in order: anywhere, close together, or at both ends."""
    style = rng.randrange(4)
    if style == 0:
        start = rng.choice((0, n - m, rng.randint(0, n - m)))
        return list(range(start, start + m))
    if style == 1:
        size = rng.randint(m, min(n, 3 * m))
        start = rng.randint(0, n - size)
        return sorted(rng.sample(range(start, start + size), m))
    if style == 2 and m >= 2:
        return [0] + sorted(rng.sample(range(1, n - 1), m - 2)) + [n - 1]
    return sorted(rng.sample(range(n), m))


def bits_of_numbers(numbers, bits):
    return [number >> i & 1 for number in numbers for i in range(bits)]


def bits_of_places(places, k, n):
    """5.14: the low bits of the positions, and their upper bits in unary"""
    upper = [0] * (len(places) + (n - 1 >> k))
    for i, place in enumerate(places):
        upper[(place >> k) + i] = 1
    return bits_of_numbers([place & (1 << k) - 1 for place in places], k), upper


def sparse_block(rng, dtype, role, base, first, n, **errors):
    """5.14. `errors` names what to make wrong: functions change the random values or the bytes. Two of five blocks have words
    that escape."""
    w, bits = DTYPES[dtype].width, 8 * DTYPES[dtype].width
    cell = base.cell(first, n)
    prediction = cell if role == 1 else decoder.cast_cell(cell, base.dtype, dtype)
    most = min(n // 16, 65535)
    for _ in range(20):
        m = rng.choice((1, 2, most, rng.randint(1, max(1, most)), int(rng.expovariate(1 / 20)) + 1))
        m = errors.get("m", lambda m, n: min(m, most))(m, n)
        if m == 0 and "m" not in errors:
            raise Impossible("a cell too short for changes")
        k = rng.choice((max(0, (n // max(m, 1)).bit_length() - 1), rng.choice((0, 1, 7, 8, 16, 20)), rng.randint(0, MAX_LOW_BITS)))
        k = errors.get("k", lambda k: k)(k)
        numbers = [min(number, (1 << bits) - 2) for number in random_words(rng, m, bits, rng.choice((1, 4, bits // 2, bits)))]
        b = max(numbers, default=0).bit_length()
        b = errors.get("b", lambda b, bits: b)(rng.choice((b, b, bits, rng.randint(b, bits))), bits)
        escapes, top = [], min(bits - 1, (max(numbers, default=0) + 1).bit_length() - 1)
        if top and ("escapes" in errors or not ("b" in errors or "numbers" in errors) and rng.random() < 0.4):
            b = rng.randint(1, top)
            escapes = [number for number in numbers if number >= (1 << b) - 1]
        elif "escapes" in errors:
            continue
        if m <= n and m * k + m + (n - 1 >> k) + m * b + len(escapes) * bits <= 8 * (n * w - CHANGES_HEAD - 2):
            break
    else:
        raise Impossible("changes longer than their elements")
    numbers = errors.get("numbers", lambda numbers, bits: numbers)(numbers, bits)
    places = random_places(rng, n, m)
    low, upper = bits_of_places(errors.get("places", lambda same, k, n: same)(places, k, n), k, n)
    count, b_written, escaped = errors.get("escapes", lambda *same: same)(len(escapes), b, escapes)
    coded = low + errors.get("upper", lambda upper: upper)(upper)
    coded += bits_of_numbers([min(number, (1 << b) - 1) for number in numbers] if escapes else numbers, b)
    coded += bits_of_numbers(escaped, bits)
    coded += errors.get("filling", lambda m: [])(-len(coded) % 8)
    elements = bytearray(prediction)
    for place, number in zip(places, numbers):
        at = slice(place * w, place * w + w)
        value = int.from_bytes(prediction[at], "little") + difference_of(number + 1, bits)
        elements[at] = (value % (1 << bits)).to_bytes(w, "little")
    body = m.to_bytes(2, "little") + bytes([k, b_written + 128 if escapes else b])
    body += (count.to_bytes(2, "little") if escapes else b"") + bytes(mask_of(coded)) + errors.get("behind", b"")
    body = errors.get("body", lambda same: same)(body)
    if not CHANGES_HEAD < len(body) <= n * w:
        raise Impossible("a body that is too short or too long")
    return Block(SPARSE, body, n, bytes(elements), hash_errors=errors.get("hashes", (0, 0)))


def few_elements(rng, dtype):
    """A number of elements, usually small and near a multiple of 32."""
    return rng.choice((1, 2, 4, 6)) * 32 + rng.choice((-1, 0, 1, 31)) if rng.random() < 0.7 else rng.randint(300, 5000)


def sparse_delta(rng, dtype=None, role=None, **errors):
    """A delta of one short cell."""
    dtype = rng.choice(list(DTYPES)) if dtype is None else dtype
    role, n, log2 = role or random_role(rng, dtype), few_elements(rng, dtype), rng.randint(16, 20)
    base = random_base_of(rng, dtype, role, n)
    return delta_frame(rng, dtype, role, base, [sparse_block(rng, dtype, role, base, 0, n, **errors)], log2)


def valid_sparse_cell(rng, log2):
    """A whole cell and a shorter cell."""
    dtype = rng.choice([d for d in DTYPES if DTYPES[d].width <= 2])
    cell, last = 1 << log2, rng.choice((0, 16, 20, 100, 1 << 14))
    role = random_role(rng, dtype) if log2 == 16 else 1
    base = large_base(rng, dtype, role, cell + last)
    blocks = [sparse_block(rng, dtype, role, base, 0, cell)] + ([sparse_block(rng, dtype, role, base, cell, last)] if last else [])
    return delta_frame(rng, dtype, role, base, blocks, log2)


def cell_of_delta(rng, dtype, role, base, first, n, log2):
    """A block of one cell that is made quickly."""
    w = DTYPES[dtype].width
    form = rng.choice((SAME, SAME, CONST, STORED, CLASSED, CLASSED, BYTES, SPLIT, SPARSE, SPARSE, PATCHED))
    if form == SAME:
        return same_block(base, dtype, role, first, n)
    if form == SPARSE and n >= 100:
        return sparse_block(rng, dtype, role, base, first, n)
    if form == PATCHED and n >= 100:
        return patched_block(rng, dtype, predictions_of(base, dtype, role, first, n), rng.choice((random_const, cheap_bytes)))
    if form == CONST:
        return const_block(pack([random_element(rng, dtype)], w), n, 1)
    if form == CLASSED:
        few = [0, 1, 2, (1 << 8 * w) - 1]
        borders = random_borders(rng, dtype, rng.randint(1, 3), []) if DTYPES[dtype].is_float and rng.random() < 0.5 else []
        return classed_block(rng, dtype, predictions_of(base, dtype, role, first, n), borders,
                             lambda number, m: rng.choices(few, (2000, 20, 2, 1), k=m),
                             lambda number: WordsEncoder(rng, w, [(0, 2)], ("split0", None, None)))
    if form == BYTES:
        return random_bytes(rng, dtype, n, ("const",), rng.randbytes(1) * n)
    if form == SPLIT and DTYPES[dtype].is_float:
        e = random_e(rng, dtype)
        return random_split(rng, dtype, n, e, varying=[0] * len(rest_bits(dtype, e)), plan=("const",),
                            symbols=bytes([rng.randrange(1 << e)]) * n)
    return stored_block(rng.randbytes(n * w), w)


def large_base(rng, dtype, role, n):
    """A base of many elements. It repeats the first ones, so it is made quickly."""
    some = random_base_of(rng, dtype, role, 997)
    w = DTYPES[some.dtype].width
    repeats = (some.elements * (n // 997 + 1))[:n * w]
    return Base(some.dtype, repeats[:-w] + rng.randbytes(w))


def valid_delta_cells(rng, role, same=0):
    """Cells of all forms; `same` consecutive cells are SAME."""
    dtype = (rng.choice((F16, BF16)) if role == 2 else F32 if role == 3 else
             rng.choice([d for d in DTYPES if DTYPES[d].width <= 2]))
    cells, last = max(2, same), rng.choice((1, 2, 100, 1 << 16))
    n = (cells - 1 << 16) + last
    base, blocks = large_base(rng, dtype, role, n), []
    start = rng.randint(0, cells - same)
    for cell in range(cells):
        first = cell << 16
        size = min(1 << 16, n - first)
        blocks.append(same_block(base, dtype, role, first, size) if start <= cell < start + same else
                      cell_of_delta(rng, dtype, role, base, first, size, 16))
    return delta_frame(rng, dtype, role, base, blocks, 16)


def valid_delta_leaves(rng):
    """A cell of more than one hash leaf."""
    dtype = rng.choice([d for d in DTYPES if DTYPES[d].width <= 2])
    n = (rng.randint(1, 2) << 16) + rng.choice((0, 1, 100))
    base = large_base(rng, dtype, 1, n)
    log2 = 17 if n <= 1 << 17 else 18
    return delta_frame(rng, dtype, 1, base, [cell_of_delta(rng, dtype, 1, base, 0, n, log2)], log2)


def valid_delta_recipes():
    floats = [d for d in DTYPES if DTYPES[d].is_float]
    recipes = [valid_delta_empty, lambda rng: valid_delta_cells(rng, 1), lambda rng: valid_delta_cells(rng, 1, 2),
               lambda rng: valid_delta_cells(rng, 2, 2), lambda rng: valid_delta_cells(rng, 1, 3), lambda rng: valid_delta_cells(rng, 3, 1),
               valid_delta_leaves]
    recipes += [lambda rng, d=d: valid_classed(rng, d, None) for d in DTYPES]
    recipes += [lambda rng, k=k: valid_classed(rng, rng.choice(floats), k) for k in range(1, 9)]
    recipes += [lambda rng, d=d, side=side: valid_patched(rng, d, side) for d in DTYPES for side in (random_const, random_block)]
    recipes += [lambda rng, d=d: valid_delta_plain(rng, d) for d in DTYPES]
    recipes += [lambda rng: valid_same(rng, rng.choice(list(DTYPES)), 1)] * 2
    recipes += [lambda rng, d=d: valid_same(rng, d, 2) for d in (F16, BF16)] * 3
    recipes += [lambda rng: valid_same(rng, F32, 3)] * 4
    recipes += [lambda rng, d=d, s=s: valid_shifts(rng, d, range(s, s + 8))
                for d in floats for s in range(0, 8 * DTYPES[d].width, 8)]
    recipes += [lambda rng, d=d: valid_shifts(rng, d, range(8 * DTYPES[d].width)) for d in (1, 2, 3, 4, 5)]
    recipes += [lambda rng, depth=depth: valid_nested(rng, rng.choice([d for d in DTYPES if DTYPES[d].width > 1]), depth)
                for depth in (1, 2, 3, 4, 4, 4)]
    recipes += [lambda rng, limit=limit: valid_limit(rng, rng.choice(list(DTYPES)), limit) for limit in (1, 2, 127, 254, 255)]
    recipes += [lambda rng: valid_raw_words(rng, rng.choice(floats))] * 3
    recipes += [lambda rng, d=d: sparse_delta(rng, d, 1) for d in DTYPES]
    recipes += [lambda rng, d=d: sparse_delta(rng, d, 2) for d in (F16, BF16)] + [lambda rng: sparse_delta(rng, F32, 3)]
    recipes += [lambda rng: valid_sparse_cell(rng, rng.choice((16, 16, 17, rng.randint(18, 20))))] * 2
    return recipes


# ---- columns and quantizers ----

def column_extension(columns):
    return extension(COLUMNS_EXTENSION, le64(columns))


def quantizer_extension(number, family=CELLS):
    return extension(QUANTIZER_EXTENSION, bytes([family]) + number.to_bytes(2, "little"))


def random_scales(rng, m):
    style = rng.randrange(4)
    if style == 0:
        return bytes([rng.choice((0, 1, 7, 8, 255, rng.randrange(256)))]) * m
    if style == 1:
        return rng.randbytes(m)
    top = rng.choice((1, 7, 24))
    return bytes(rng.randint(0, top) for _ in range(m))


@dataclass
class Scales:
    """5.8: the scales of the elements of a block. columns 0: no scales."""
    columns: int = 0
    rows: bytes = b""
    of_columns: bytes = b""
    first: int = 0

    @staticmethod
    def random(rng, columns, first, n):
        rows = (first + n - 1) // columns - first // columns + 1
        return Scales(columns, random_scales(rng, rows), random_scales(rng, columns), first)

    def of(self, i):
        """The scale of element i of the block."""
        if not self.columns:
            return 0
        i += self.first
        return self.rows[i // self.columns - self.first // self.columns] + self.of_columns[i % self.columns]

    def coded(self, rng):
        if not self.columns:
            return b"\x00"
        encoder = ListEncoder(rng)
        return b"\x01" + encoder.outermost(self.rows, 8) + encoder.outermost(self.of_columns, 8)


def base_bytes(base):
    return (base % (1 << 32)).to_bytes(4, "little")


def random_scaled(rng, dtype, columns, first, n, **errors):
    """5.9: a SCALED block. `errors` names the parts to make wrong."""
    w, bits, shift = DTYPES[dtype].width, 8 * DTYPES[dtype].width, FLOATS[dtype][0] - 3
    scales, signs = Scales.random(rng, columns, first, n), rng.randrange(2)
    base = rng.choice((0, 8, -8, 800, rng.randint(-3000, 3000), -(1 << 31), (1 << 31) - 1))
    words = random_words(rng, n, bits, rng.choice((1, 4, bits // 2, bits)))
    values = []
    for i, word in enumerate(words):
        added = (scales.of(i) + base) * (1 << shift)
        if signs:
            values.append((word // 2 + added) % (1 << bits - 1) + (word % 2 << bits - 1))
        else:
            values.append((word + added) % (1 << bits))
    body = bytes([errors.get("signs", signs)]) + base_bytes(base) + errors.get("scales", scales.coded(rng))
    body += WordsEncoder(rng, w, wrapped=rng.choice((0, 0, 0.1))).words(words) + errors.get("behind", b"")
    return fitting(Block(SCALED, errors.get("body", lambda same: same)(body), n, pack(values, w)), w)


def random_number(rng):
    """A binary64 number for a certificate, as bits."""
    return rng.choice((0, 1, 1 << 52, decoder.MAX_NUMBER, decoder.MAX_NUMBER - 1, 0x3FF0000000000000, rng.randint(0, decoder.MAX_NUMBER),
                       rng.randint(0x3FF0000000000000, 0x40F0000000000000), rng.randint(0, 1 << 53)))


def random_certificate(rng, n, exact):
    """5.12: a random certificate. A decoder cannot tell that it is not true."""
    return decoder.Certificate(rng.choice((0, n, rng.randint(0, n), rng.getrandbits(64))), exact,
                               rng.choice((0, rng.getrandbits(40), decoder.SATURATED, decoder.SATURATED - 1, rng.getrandbits(64))),
                               random_number(rng), random_number(rng), rng.choice((0, rng.getrandbits(24), decoder.M32)))


def random_quantized(rng, dtype, cells, columns, first, n, **errors):
    """5.10: a QUANTIZED block. `errors` names the parts to make wrong."""
    w, count = DTYPES[dtype].width, cells * decoder.octaves_of(dtype)
    scales = Scales.random(rng, columns, first, n) if 0 < columns <= n and rng.random() < 0.7 else Scales()
    expected = [(cells * scales.of(i) + 4) // 8 for i in range(n)]
    signs, spread = rng.randrange(2), rng.choice((1, 3, cells, 5 * cells, count))
    lowest = rng.randint(-min(expected), max(0, count - 1 - max(expected)))
    if rng.random() < 0.2:
        lowest = rng.choice((-min(expected), max(-min(expected), count - 1 - min(expected) - rng.randrange(cells))))
    base = lowest - rng.choice((0, 0, 0, 1, 5, 1 << 20, (1 << 31) - (2 if signs else 0) - count - 10))
    base = max(base, -(1 << 31))
    us, exact, values = [], [], []
    for i in range(n):
        sign, r = rng.getrandbits(1), int(rng.expovariate(1 / spread))
        q = lowest + expected[i] + r
        v = decoder.magnitude_of_cell(q, cells, dtype)
        style = rng.random()
        if style < 0.03 or (v is None and style < 0.5):
            us.append((0, sign))
            values.append((sign if signs else 0) << 8 * w - 1)
        elif style < 0.05 or v is None:
            us.append((1, sign))
            values.append(random_element(rng, dtype))
            exact.append(values[-1])
        else:
            us.append((q - expected[i] - base + 2, sign))
            values.append(v | (sign if signs else 0) << 8 * w - 1)
    exact += [0] * errors.get("more exact", 0)
    certificate = random_certificate(rng, n, len(exact))
    words = [2 * u + sign if signs else u for u, sign in errors.get("us", lambda us, base, expected: us)(us, base, expected)]
    if max(words) >> 32:
        raise Impossible("a word of more than 32 bits")
    body = errors.get("certificate", bytes)(certificate) + bytes([errors.get("signs", signs)]) + base_bytes(base)
    body += pack(exact, w) + errors.get("scales", scales.coded(rng))
    plan = None
    if min(words) >> 24:    # the byte that all have in common
        plan = [(24, 0)]
    body += WordsEncoder(rng, 4, plan, wrapped=rng.choice((0, 0, 0.05))).words(words) + errors.get("behind", b"")
    return fitting(Block(QUANTIZED, errors.get("body", lambda same: same)(body), n, pack(values, w), certificate=certificate), w)


def random_end(rng, dtype, style):
    """5.13: an end of a cluster: a zero, a subnormal number, a neighbour, or any number"""
    bits, mantissa = 8 * DTYPES[dtype].width, FLOATS[dtype][0]
    sign, top = rng.getrandbits(1) << bits - 1, (1 << bits - 1 - mantissa) - 1
    if style == "subnormal":
        return sign | rng.getrandbits(mantissa) >> rng.randrange(mantissa)
    if style == "near":
        return (top // 2 << mantissa) + rng.randrange(4)
    exponent = rng.choice((0, 1, top - 1, top // 2, top // 2 + rng.randint(-3, 3), rng.randrange(top)))
    return sign | rng.choice((0, exponent)) << mantissa | rng.choice((0, 1, (1 << mantissa) - 1, rng.getrandbits(mantissa)))


def random_ends(rng, dtype, count):
    """5.13: valid ends: clusters that overlap, that have a step of 0, and others"""
    bits, ends = 8 * DTYPES[dtype].width, []
    for _ in range(count):
        style = rng.choice(("subnormal", "near", "any", "any", "same", "signs"))
        low, high = random_end(rng, dtype, style), random_end(rng, dtype, style)
        if style == "same":
            low = high
        if style == "signs":
            low, high = low | 1 << bits - 1, high & (1 << bits - 1) - 1
        if decoder.value_of(low, dtype) > decoder.value_of(high, dtype):
            low, high = high, low
        ends += [low, high]
    return ends


def random_clustered(rng, dtype, most, n, **errors):
    """5.13: a QUANTIZED block. `errors` names the parts to make wrong."""
    w = DTYPES[dtype].width
    room = max(1, (n * w - n * rng.choice((1, 2)) - 60) // (2 * w))     # a word takes 1 or 2 bytes
    count = min(rng.choice((1, rng.randint(1, most), most)), room)
    numbers = rng.choice(((0, 255), (0, 1, 127, 128, 254, 255), range(256)))
    ends = errors.get("ends", lambda same: same)(random_ends(rng, dtype, count))
    clusters = decoder.decode_cluster_ends(bytes([count - 1]) + pack(ends, w), 0, 1 + count * 2 * w,
                                           decoder.Header(dtype, 6, 0, 0, [], 0, 0, None, (CLUSTERS, most)))[0] if "ends" not in errors else []
    used = rng.sample(range(count), rng.randint(1, count))      # other clusters have no elements
    us, exact, values = [], [], []
    for _ in range(n):
        style = rng.random()
        if style < 0.03:
            us.append(0)
            values.append(0)
        elif style < 0.05:
            us.append(1)
            values.append(random_element(rng, dtype))
            exact.append(values[-1])
        else:
            number = 256 * rng.choice(used) + rng.choice(numbers)
            us.append(2 + number)
            values.append(decoder.number_of_cluster(clusters, number, dtype) if clusters else 0)
    exact += [0] * errors.get("more exact", 0)
    certificate = random_certificate(rng, n, len(exact))
    words = errors.get("us", lambda us, count: us)(us, count)
    body = errors.get("certificate", bytes)(certificate) + bytes([errors.get("count", count - 1)]) + pack(ends, w)
    body += pack(exact, w)
    body += WordsEncoder(rng, 4, wrapped=rng.choice((0, 0, 0.05))).words(words) + errors.get("behind", b"")
    return fitting(Block(QUANTIZED, errors.get("body", lambda same: same)(body), n, pack(values, w), certificate=certificate), w)


def random_clusters(rng):
    return rng.choice((1, 2, 3, 16, 255, 256, rng.randint(1, 256)))


def random_cells(rng):
    return rng.choice((1, 2, 3, 7, 8, 35, 70, 256, 1000, 2047, 2048, rng.randint(1, 2048)))


def extensions_of(rng, quantizer, columns):
    """6.5: in any order, among other extensions. quantizer: the cells of an octave, or (family, number); 0: no quantizer."""
    family, number = quantizer if isinstance(quantizer, tuple) else (CELLS, quantizer)
    parts = [quantizer_extension(number, family)] * (number > 0) + [column_extension(columns)] * (columns > 0)
    rng.shuffle(parts)
    others = [random_extensions(rng) if rng.random() < 0.15 else b"" for _ in range(3)]
    return b"".join(other + part for other, part in zip(others, parts + [b""] * (3 - len(parts))))


def lossy_block(rng, dtype, cells, columns, first, n, forms):
    for _ in range(8):
        form = rng.choice(forms)
        try:
            if form == SCALED and 0 < columns <= n:
                return random_scaled(rng, dtype, columns, first, n)
            if form == QUANTIZED and isinstance(cells, tuple):
                return random_clustered(rng, dtype, cells[1], n)
            if form == QUANTIZED and cells:
                return random_quantized(rng, dtype, cells, columns, first, n)
        except Impossible:
            pass
    return random_block(rng, dtype, n)


def random_columns(rng, n):
    return rng.choice((1, 2, n, max(1, n - 1), rng.randint(1, n), rng.randint(1, n), rng.randint(1, max(1, n // 4)), n + 1, 1 << 63))


def valid_lossy(rng, dtype, cells, columns, forms):
    """Some cells with blocks of these forms and of others. columns: whether the frame has columns."""
    log2 = rng.choice((6, 7, 8, 8, 9))
    cell, blocks, first = 1 << log2, [], 0
    columns = random_columns(rng, cell) if columns else 0
    for _ in range(rng.randint(0, 3)):
        if rng.random() < 0.15:
            run = rng.choice((1, 2, 5))
            blocks.append(const_block(pack([random_element(rng, dtype)], DTYPES[dtype].width), run * cell, run))
        else:
            blocks.append(lossy_block(rng, dtype, cells, columns, first, cell, forms))
        first += blocks[-1].n
    blocks.append(lossy_block(rng, dtype, cells, columns, first, rng.choice((1, 63, cell, cell - 1, rng.randint(cell // 2, cell))), forms))
    flags = rng.choice((0, 1, 1)) | (4 if cells else rng.choice((0, 0, 2)))
    return Frame(dtype, log2, blocks, flags, extensions_of(rng, cells, columns))


def with_form(rng, make, form):
    """A frame with a block of this form."""
    frame = make(rng)
    if all(block.form != form for block in frame.blocks):
        raise Impossible("no block of the form")
    return frame


def valid_lossy_empty(rng):
    cells = rng.choice((0, random_cells(rng)))
    return Frame(rng.choice(list(FLOATS)), rng.randint(6, 20), [], rng.choice((0, 1)) | (4 if cells else 0),
                 extensions_of(rng, cells, rng.choice((0, 1, 1 << 64 - 1)) if cells else 7))


def valid_lossy_recipes():
    recipes = [valid_lossy_empty]
    for d in FLOATS:
        recipes += [lambda rng, d=d: with_form(rng, lambda rng: valid_lossy(rng, d, 0, True, (SCALED,)), SCALED)] * 2
        recipes += [lambda rng, d=d, columns=columns: with_form(
            rng, lambda rng: valid_lossy(rng, d, random_cells(rng), columns, (QUANTIZED,)), QUANTIZED) for columns in (False, True, True)]
        recipes += [lambda rng, d=d: valid_lossy(rng, d, random_cells(rng), True, (SCALED, QUANTIZED, STORED))] * 2
        recipes += [lambda rng, d=d: with_form(
            rng, lambda rng: valid_lossy(rng, d, (CLUSTERS, random_clusters(rng)), rng.random() < 0.3, (QUANTIZED, QUANTIZED, SCALED)), QUANTIZED)] * 3
    return recipes


def valid_parted(rng, dtype, sides, g=None):
    """5.15: a frame of one PARTED block. Either side may come first."""
    n = rng.choice((rng.randint(2, 40), rng.randint(66, 600), rng.randint(1025, 5000)))
    sides = sides and rng.sample(sides, 2)
    return frame_around(rng, dtype, parted_block(rng, dtype, max(n, (1 << (g or 0)) + 1), g, sides))


RANKED = (8, 9, 10, 11)         # dtypes whose planes may be coded


def valid_coded(rng, dtype):
    """5.2: a frame of one block with coded bits."""
    return frame_around(rng, dtype, random_coded(rng, dtype, rng.choice((rng.randint(8, 80), rng.randint(128, 700)))))


def valid_recipes():
    floats = [d for d in DTYPES if DTYPES[d].is_float]
    recipes = [valid_empty, valid_empty, valid_split_masks, valid_levels, valid_levels, valid_wrong_sides,
               valid_long_list]
    recipes += [valid_bushy] * 4
    recipes += [lambda rng, d=d: valid_stored(rng, d) for d in DTYPES]
    recipes += [valid_cells] * 12 + [many_blocks] * 4
    recipes += [lambda rng, log2=log2: valid_log2(rng, log2) for log2 in range(6, 21)]
    recipes += [lambda rng, d=d, e=e: valid_e(rng, d, e) for d in floats for e in possible_e(d)]
    recipes += [lambda rng, d=d, s=s: valid_constant_bits(rng, d, s) for d in floats for s in ("none", "some", "mixed")]
    recipes += [lambda rng, base=base: valid_base(rng, base) for base in (0, 1, 895, decoder.MAX_BASE)]
    recipes += [lambda rng, d=d: valid_specials(rng, d) for d in floats]
    recipes += [lambda rng, n=n: valid_small_lists(rng, n) for n in (2, 3, 15, 16, 17)]
    recipes += [lambda rng, kind=kind: valid_kind(rng, kind) for kind in KINDS] + [valid_sparse_mask] * 16
    recipes += [lambda rng, plan=plan, e=e, used=used: valid_escape(rng, plan, e, used)
                for plan in (("raw",), None) for e in range(1, 9) for used in (False, True)]
    recipes += [lambda rng, codes=codes: valid_many_codes(rng, codes) for codes in (100, 255, 256)]
    recipes += [lambda rng, inside=inside: valid_deep(rng, inside)
                for inside in (("tree",), ("raw",), ("const",))]
    recipes += [with_flags(valid_cells, flags, extensions) for flags in range(4) for extensions in (False, True)]
    recipes += [lambda rng, d=d, form=form: valid_parted(rng, d, (random_const, form)) for d in DTYPES
                for form in (random_block, random_split if d in floats else random_bytes)]
    recipes += [lambda rng, d=d, g=g: valid_parted(rng, d, None, g) for d in (2, 5, 9, 10) for g in range(7)]
    recipes += [lambda rng, d=d: valid_coded(rng, d) for d in RANKED] * 3
    recipes += [lambda rng, d=d: valid_parted(rng, d, (random_const, coded_side)) for d in RANKED]
    return recipes + valid_delta_recipes() + valid_lossy_recipes() + [footer_extensions(make) for make in (
        small_frame, with_footer, valid_empty, small_delta, many_blocks, some_lossy, lambda rng: with_content_id(some_lossy)(rng))] + [
        with_content_id(some_lossy)] * 3


# ---- invalid frames ----

def small_frame(rng, flags=None, cells=None):
    """A valid frame. Callers make it wrong outside its blocks."""
    dtype = rng.choice(list(DTYPES))
    cells = rng.randint(1, 3) if cells is None else cells
    blocks = [random_block(rng, dtype, 64) for _ in range(cells - 1)] + [random_block(rng, dtype, rng.randint(1, 64))]
    return Frame(dtype, 6, blocks, random_flags(rng) if flags is None else flags)


def with_footer(rng, flags=None):
    return small_frame(rng, rng.choice((0, 1, 2, 3)) if flags is None else flags, rng.randint(2, 4))


def spoiled(frame, **errors):
    frame.errors.update({name.replace("_", " "): error for name, error in errors.items()})
    return frame


def nonzero(rng, bits=64):
    return rng.randrange(1, 1 << bits)


def spoil_header(name, *values):
    return [lambda rng, value=value: spoiled(small_frame(rng), **{name: value(rng) if callable(value) else value})
            for value in values]


def footer_extensions(make, flags=None, **errors):
    """6.2: extensions of the footer, of any size"""
    def made(rng):
        frame = make(rng)
        frame.flags |= 8
        extra = random_extensions(rng)
        return spoiled(frame, footer_extensions=extra if rng.random() < 0.9 else rng.randbytes(rng.randint(1, 20000)), **errors)
    return made


def with_content_id(make):
    """6.5: a quantized frame may have a content id, that of the decoded elements"""
    def made(rng):
        frame = make(rng)
        frame.flags |= 2
        return frame
    return made


def announced(rng):
    """R3: a critical extension of the footer is in the header, too"""
    frame = footer_extensions(with_footer)(rng)
    critical = extension(rng.choice((128, 132, 191, 192, 255)), rng.randbytes(3))
    frame.extensions = critical
    return spoiled(frame, footer_extensions=critical)


def newer(frame, rng):
    """R3: with a newer extension, all later fields of the header may be newer, too"""
    frame.extensions = extension(rng.choice((132, 200)), b"")
    return spoiled(frame, dtype=rng.choice((12, 99)), log2=rng.choice((5, 21)), more_flags=rng.choice((16, 0x70)))


def bad_extensions(*extensions):
    def made(rng, data):
        frame = small_frame(rng)
        front = random_extensions(rng)
        frame.extensions = front + (data(rng) if callable(data) else data)
        return frame
    return [lambda rng, data=data: made(rng, data) for data in extensions]


def cut_at(place):
    """R6: the source ends inside the frame. place: chooses the position."""
    def made(rng):
        frame = with_footer(rng, rng.choice((1, 3)))
        size = len(frame.write())
        return spoiled(frame, cut=place(rng, size, len(frame.header())))
    return made


def replace_block(rng, change, flags=None, dtype=None):
    """A frame with one block that was changed after it was made."""
    dtype = rng.choice(list(DTYPES)) if dtype is None else dtype
    blocks = [random_block(rng, dtype, 64) for _ in range(rng.randint(1, 3))]
    k = rng.randrange(len(blocks))
    blocks[k] = change(blocks[k])
    return Frame(dtype, 6, blocks, random_flags(rng) if flags is None else flags)


def bad_form(*forms):
    def change(block, form):
        block.form, block.pieces = form, None
        return block
    return [lambda rng, form=form: replace_block(rng, lambda block: change(block, form)) for form in forms]


def bad_parted(wrong, sides=(random_const, random_const), dtypes=tuple(DTYPES), n=None):
    """5.15: wrong(rng, parts, granules) makes a block wrong."""
    def made(rng):
        dtype, m = rng.choice(dtypes), n or rng.randint(70, 300)
        block = parted_block(rng, dtype, m, None if n is None else 0, sides, lambda parts, granules: wrong(rng, parts, granules))
        return frame_around(rng, dtype, block, flags=rng.choice((0, 1)))
    return made


def bad_coded(wrong, dtypes=RANKED):
    """5.2: wrong(rng, parts, groups, bits) makes a block with coded bits wrong."""
    def made(rng):
        dtype = rng.choice(dtypes)
        return frame_around(rng, dtype, random_coded(rng, dtype, rng.randint(140, 400), False, wrong), flags=rng.choice((0, 1)))
    return made


def rank_above(rng, parts, groups, bits):
    """R57"""
    parts[3] = bytearray(parts[3])
    parts[3][rng.randrange(64 * groups)] = 255
    parts[3] = bytes(parts[3])
    parts[2] = bytes(a & 0xFE for a in parts[2]) if all(a == 255 for a in parts[2]) else parts[2]


def value_outside(rng, parts, groups, bits):
    """R57"""
    if bits == 0xFF or len(parts[3]) % 64 == 0:
        raise Impossible("every value is possible")
    parts[3] = parts[3][:-1] + bytes([rng.choice([v for v in range(256) if v & ~bits])])


def no_coded_bits(rng, parts, groups, bits):
    parts[0][:] = [0] * len(parts[0])


def no_distance(rng, parts, groups, bits):
    parts[4] = None


def coded_symbol_bits(rng, parts, groups, bits):
    """R57: in the top plane"""
    if len(parts[0]) == 1:
        raise Impossible("no bits in the top plane")
    parts[0][-1] |= 0x80


def more_sides(rng, dtype, n):
    """R57: a side may code bits of one plane only"""
    block = random_coded(rng, dtype, n)
    w = DTYPES[dtype].width
    if not any(bits for k, bits in enumerate(block.pieces[0][-len(block.pieces[1:-1]):]) if k != w - 2):
        raise Impossible("no other plane")
    return block


def side_of_form(*forms):
    """R56"""
    def wrong(rng, parts, granules):
        k = rng.randrange(2)
        parts[2][k] = bytes([rng.choice(forms)]) + parts[2][k][1:]
    return wrong


def one_side(rng, parts, granules):
    parts[1] = rng.choice((0, (1 << granules) - 1))


def granules_of(g):
    def wrong(rng, parts, granules):
        parts[0] = g
    return wrong


def cut_side(rng, parts, granules):
    """Leaves out the last side, which is CONST, or its end."""
    parts[2][1] = parts[2][1][:rng.choice((0, 1, len(parts[2][1]) - 1))]


def bad_patched(wrong, side=random_const, dtypes=tuple(DTYPES)):
    """5.17: wrong(rng, parts, granules) makes a block wrong."""
    return lambda rng: valid_patched(rng, rng.choice(dtypes), side, wrong)


def patched_first(value):
    def wrong(rng, parts, granules):
        parts[0] = value(rng)
    return wrong


def high_threshold(rng, parts, granules):
    """Dtypes of one byte only."""
    parts[1] = rng.choice((128, 255, rng.randint(128, 255)))


def none_or_all_patched(rng, parts, granules):
    parts[1], parts[2] = 0, rng.choice((0, (1 << granules) - 1))


def patched_side(*forms):
    def wrong(rng, parts, granules):
        parts[3] = bytes([rng.choice(forms)]) + parts[3][1:]
    return wrong


def cut_patched(rng, parts, granules):
    """Leaves out the side, which is CONST, or its end."""
    parts[3] = parts[3][:rng.choice((0, 1, len(parts[3]) - 1))]


def patched_behind(rng, parts, granules):
    parts[4] = rng.randbytes(rng.randint(1, 5))


def short_patched(rng):
    dtype = rng.choice(list(DTYPES))
    return valid_delta(rng, dtype, lambda rng, dtype, predictions: Block(
        PATCHED, bytes(rng.randint(1, DTYPES[dtype].width)), len(predictions), bytes(len(predictions) * DTYPES[dtype].width)))


def bytes_behind(rng, parts, granules):
    parts[3] = rng.randbytes(rng.randint(1, 5))


def bits_behind(rng, parts, granules):
    parts[1] |= 1 << granules + rng.randrange(-granules % 8)


NEW_FORMS = [decoder.LAST_FORM + 1, 64, 128, 255]


def new_form(form, size=None):
    """R54: the check is right. size: the size of the body; None: the body of another form"""
    def change(rng, block):
        block.form, block.pieces = form, None
        if size is not None:
            block.body = rng.randbytes(size)
        return block
    return lambda rng: replace_block(rng, lambda block: change(rng, block))


def wrongly_checked(make):
    """R9: a wrong check makes a block with a newer form damaged"""
    def made(rng):
        frame = make(rng)
        frame.flags |= 1
        frame.blocks[-1].check_error = nonzero(rng)
        if decoder.rejected_rule(decoder.decode_frame, frame.write()) != 9:
            raise Impossible("another block is new")
        return frame
    return made


def zigzag_of_other_dtype(rng):
    """R15"""
    dtype = rng.choice([d for d in DTYPES if not may_zigzag(d)])
    return replace_block(rng, lambda _: zigzag_of(random_bytes(rng, dtype, 64, ("const",), b"\x07" * 64), dtype), dtype=dtype)


def bad_body(make):
    """R16: make(rng, w) gives a block of 64 elements."""
    def made(rng):
        dtype = rng.choice((6, 7, 8, 9, 10, 11))
        return replace_block(rng, lambda _: make(rng, DTYPES[dtype].width), dtype=dtype)
    return made


def sized(form, size):
    """A block of 64 elements whose body has a wrong size."""
    def make(rng, w):
        body = rng.randbytes(size(w))
        return Block(form, body, 64, bytes(64 * w) if form != CONST else bytes(w), 1)
    return bad_body(make)


def bad_run(run, before=0):
    """R17: the run of the last CONST block."""
    def made(rng):
        dtype = rng.choice(list(DTYPES))
        w = DTYPES[dtype].width
        blocks = [random_block(rng, dtype, 64) for _ in range(before)]
        wrong = run(rng) if callable(run) else run
        block = const_block(rng.randbytes(w), 64, wrong)
        return Frame(dtype, 6, blocks + [block, random_block(rng, dtype, 10)][:rng.choice((1, 2)) if wrong != 2 else 1],
                     random_flags(rng))
    return made


def split_frame(rng, dtype, descriptor, planes, coded, n):
    block = split_block(descriptor, planes, coded, n, bytes(n * DTYPES[dtype].width))
    if not 1 <= len(block.body) <= n * DTYPES[dtype].width:
        raise Impossible("the size of the body")
    return frame_around(rng, dtype, block, flags=rng.choice((0, 1)))


def bad_descriptor(make):
    """make(rng, n) gives a dtype, a descriptor, and V of each plane."""
    def made(rng):
        n = rng.randint(16, 200)
        dtype, descriptor, varying = make(rng, n)
        planes = [bytes(decoder.raw_plane_size(n, v)) for v in varying]
        return split_frame(rng, dtype, descriptor, planes, b"\x01\x00", n)
    return made


def narrow_descriptor(rng, dtype, e, **options):
    """A descriptor without varying bits."""
    none = [0] * len(rest_bits(dtype, e))
    return descriptor_of(dtype, e, none, none, **options), none


def reserved_descriptor(bits):
    def make(rng, n):
        dtype = rng.choice((6, 7, 8, 9, 10, 11))
        e = random_e(rng, dtype)
        descriptor, varying = narrow_descriptor(rng, dtype, e)
        return dtype, bytes([descriptor[0] | bits]) + descriptor[1:], varying
    return bad_descriptor(make)


def symbol_size(dtypes, sizes_of):
    def make(rng, n):
        dtype = rng.choice(dtypes)
        none = [0] * DTYPES[dtype].width
        return dtype, descriptor_of(dtype, 0, none, none, first=0x10 | rng.choice(sizes_of)), none
    return bad_descriptor(make)


def split_of_integers(rng, n):
    dtype = rng.choice((1, 2, 3, 4, 5))
    w = DTYPES[dtype].width
    e = rng.randint(1, min(8, 8 * w - 1))
    none = [0] * (w - (e == 8))
    return dtype, descriptor_of(dtype, e, none, none), none


def constant_bits(spoil):
    """R20: spoil(rng, rest, varying, values) changes V or the values."""
    def make(rng, n):
        dtype = rng.choice((6, 7, 8, 9, 10, 11))
        e = random_e(rng, dtype)
        rest = rest_bits(dtype, e)
        varying = random_varying(rng, dtype, e)
        values = [rng.getrandbits(8) & bits & ~v for bits, v in zip(rest, varying)]
        spoil(rng, rest, varying, values)
        return dtype, descriptor_of(dtype, e, varying, values), varying
    return bad_descriptor(make)


def set_one(rng, bytes_list, allowed):
    """Sets a random bit. `allowed` has the bits to choose from in each byte."""
    places = [(i, bit) for i, mask in enumerate(allowed) for bit in range(8) if mask >> bit & 1]
    if not places:
        raise Impossible("no such bit")
    i, bit = rng.choice(places)
    bytes_list[i] |= 1 << bit


def varying_symbol_bits(rng, rest, varying, values):
    set_one(rng, varying, [~bits & 0xFF for bits in rest])


def values_that_vary(rng, rest, varying, values):
    set_one(rng, values, varying)


def values_of_symbol_bits(rng, rest, varying, values):
    set_one(rng, values, [~bits & 0xFF for bits in rest])


def all_vary(rng, rest, varying, values):
    varying[:], values[:] = rest, [0] * len(rest)


def short_split(rng):
    """R18: the body ends in the descriptor or in a raw plane."""
    dtype = rng.choice((6, 7, 8, 9, 10, 11))
    block = random_split(rng, dtype, rng.randint(16, 200), varying=rng.choice((None, True)))
    front = len(b"".join(block.pieces[:-1]))
    if front < 2:
        raise Impossible("nothing to cut")
    return cut_split(rng, dtype, block, rng.randint(1, front - 1))


def cut_split(rng, dtype, block, size):
    """Cuts the body to `size` bytes, and its pieces in the same places."""
    pieces, left = [], size
    for piece in block.pieces:
        pieces.append(piece[:left])
        left -= len(pieces[-1])
    block.body, block.pieces = block.body[:size], pieces
    return frame_around(rng, dtype, block, flags=rng.choice((0, 1)))


def short_descriptor(rng):
    dtype = rng.choice((6, 8, 9, 10, 11))
    varying = True if dtype != F64 else rng.choice((None, True))
    block = random_split(rng, dtype, rng.randint(16, 200), varying=varying)
    return cut_split(rng, dtype, block, rng.randint(1, len(block.pieces[0]) - 1))


def bad_base(base):
    def make(rng, n):
        descriptor, none = narrow_descriptor(rng, F64, 8, base=base(rng))
        return F64, descriptor, none
    return bad_descriptor(make)


def dirty_bit_plane(rng):
    """R22"""
    dtype = rng.choice((6, 7, 8, 9, 10, 11))
    n = rng.choice((65, 66, 100, 127, 191, rng.randint(9, 63)))
    if n % 8 == 0:
        raise Impossible("masks of whole bytes")
    block = random_split(rng, dtype, n, varying=True)
    descriptor, planes, coded = block.pieces[0], block.pieces[1:-1], block.pieces[-1]
    e, w = descriptor[0] & 15, DTYPES[dtype].width
    partial = [k for k in range(w - (e == 8)) if descriptor[1 + k] not in (0, 0xFF)]
    if not partial:
        raise Impossible("no bit planes")
    k = rng.choice(partial)
    plane, tail = bytearray(planes[k]), (n % 64 + 7) // 8
    mask = rng.randrange(bin(descriptor[1 + k]).count("1"))
    plane[len(plane) - 1 - mask * tail] |= 1 << rng.randint(n % 8, 7)
    planes[k] = bytes(plane)
    return frame_around(rng, dtype, split_block(descriptor, planes, coded, n, block.elements))


def list_frame(rng, coded, m, b, wide=False):
    """A frame with these bytes as the last list of its block. The list may be invalid."""
    dtype, split = dtype_for(rng, b, wide)
    w = DTYPES[dtype].width
    flags = rng.choice((0, 1))
    if not split:
        block = Block(BYTES, b"\x01\x00" * (w - 1) + coded, m, bytes(m * w))
        if not 1 <= len(block.body) <= m * w:
            raise Impossible("the size of the body")
        return frame_around(rng, dtype, block, flags)
    descriptor, none = narrow_descriptor(rng, dtype, b)
    return split_frame(rng, dtype, descriptor, [b""] * len(none), coded, m)


def bad_list(make):
    """make(rng, b, m) gives the bytes of the list."""
    def made(rng):
        b, m = rng.choice((3, 5, 8, 8)), rng.randint(40, 300)
        return list_frame(rng, make(rng, b, m), m, b)
    return made


def inside_split(make):
    """The bad list is a side of a split."""
    def made(rng, b, m):
        bits = [rng.randrange(2) for _ in range(2 * m)]
        return b"\x06\x00" + bytes(mask_of(bits)) + b"\x01\x01" + make(rng, b, sum(bits)), 2 * m
    def framed(rng):
        b = rng.choice((3, 5, 8, 8))
        coded, m = made(rng, b, rng.randint(40, 150))
        return list_frame(rng, coded, m, b)
    return framed


RESERVED_KINDS = [kind for kind in range(256) if not (kind in (0, 1, 2, 5, 6) or (kind & 15 == 4 and 1 <= kind >> 4 <= 8))]


def reserved_kind(*kinds):
    def make(rng, b, m):
        return bytes([rng.choice(kinds or RESERVED_KINDS)]) + rng.randbytes(rng.randint(1, m // 2))
    return make


def cut_list(plan):
    """R24"""
    def made(rng):
        b, m = rng.choice((3, 5, 8)), rng.randint(20, 300)
        encoder = ListEncoder(rng)
        coded = encoder.outermost(random_symbols(rng, m, b), b, plan)
        return list_frame(rng, coded[:rng.randint(0, len(coded) - 1)], m, b)
    return made


def cut_table(rng, b, m):
    lengths = random_code(rng, random_symbols(rng, m, b), b, 0)
    table = table_of(lengths)
    return b"\x02" + table[:rng.randint(0, len(table) - 1)]


def large_symbol(kind):
    """R25: one symbol is too large; all else is right."""
    def made(rng):
        b, m = rng.randint(1, 7), rng.randint(40, 200)
        bad = rng.choice((1 << b, 255, rng.randint(1 << b, 255)))
        symbols = bytearray(random_symbols(rng, m, b))
        encoder = ListEncoder(rng)
        if kind == "const":
            return list_frame(rng, bytes([1, bad]), m, b)
        symbols[rng.randrange(m)] = bad
        if kind == "raw":
            return list_frame(rng, b"\x00" + bytes(symbols), m, b)
        escape = rng.randint(1, min(8, 1 << b))
        lengths = random_code(rng, bytes(s for s in symbols if s != bad), b, escape)
        if kind == "table":
            some = rng.choice([s for s in lengths if s != ESCAPE])
            lengths[bad] = lengths.pop(some)
            return list_frame(rng, bytes([16 * escape + 4]) + table_of(lengths) +
                              encoder.coded_nodes(bytes(symbols), lengths, raw_list), m, b)
        coded = bytes([16 * escape + 4]) + table_of(lengths)
        return list_frame(rng, coded + encoder.coded_nodes(bytes(symbols), lengths, raw_list), m, b)
    return made


def raw_list(symbols):
    return b"\x00" + symbols if symbols else b""


def table_beyond_255(rng):
    first = rng.randint(200, 255)
    table = bytes([first, rng.randint(256 - first, 255)]) + pack_nibbles([1, 1])
    return list_frame(rng, b"\x02" + table + rng.randbytes(40), 300, 8)


def bad_table(nibbles, first=None, count=None):
    """A TREE, without an escape or with one of length 8 if the nibbles allow it. Random bytes follow the table."""
    def made(rng):
        values = nibbles(rng) if callable(nibbles) else list(nibbles)
        unused = values.pop() if len(values) > 1 and values[-1] is None else 0
        size = sum(1 if 0 <= v <= 8 else 1 << v - 8 for v in values) if count is None else count
        low = rng.randint(0, 256 - size) if first is None else first
        table = bytes([low, size - 1]) + pack_nibbles(values, unused or 0)
        return list_frame(rng, b"\x02" + table + rng.randbytes(60), 300, 8)
    return made


def dirty_table(escape):
    """R27: an odd number of nibbles, and an unused nibble other than 0."""
    def made(rng):
        b, m = rng.choice((4, 8, 8)), rng.randint(40, 300)
        symbols = random_symbols(rng, m, b)
        lengths = random_code(rng, symbols, b, escape)
        table = table_of(lengths, rng.randint(1, 15))
        if table == table_of(lengths):
            raise Impossible("an even number of nibbles")
        encoder = ListEncoder(rng)
        coded = bytes([16 * escape + 4 if escape else 2]) + table
        return list_frame(rng, coded + encoder.coded_nodes(symbols, lengths, raw_list), m, b)
    return made


def bad_lengths(spoil, escape=0):
    """R28"""
    def made(rng):
        b, m = rng.choice((4, 8, 8)), rng.randint(60, 300)
        symbols = random_symbols(rng, m, b)
        lengths = random_code(rng, symbols, b, escape)
        before = dict(lengths)
        spoil(rng, lengths)
        if lengths == before or not any(s != ESCAPE for s in lengths):
            raise Impossible("nothing to spoil")
        e = lengths.get(ESCAPE, 0)
        coded = bytes([16 * e + 4 if e else 2]) + table_of(lengths)
        return list_frame(rng, coded + rng.randbytes(rng.randint(5, 30)), m, b)
    return made


def longer(rng, lengths):
    choices = [s for s in lengths if lengths[s] < 8]
    if not choices:
        raise Impossible("all are of length 8")
    lengths[rng.choice(choices)] += 1


def shorter(rng, lengths):
    choices = [s for s in lengths if lengths[s] > 1]
    if not choices:
        raise Impossible("all are of length 1")
    lengths[rng.choice(choices)] -= 1


def one_less(rng, lengths):
    lengths.pop(rng.choice([s for s in lengths if s != ESCAPE]))


def only_one(length):
    def spoil(rng, lengths):
        symbol = rng.choice([s for s in lengths if s != ESCAPE])
        lengths.clear()
        lengths[symbol] = length
    return spoil


def other_escape(rng, lengths):
    lengths[ESCAPE] = rng.choice([e for e in range(1, 9) if e != lengths[ESCAPE]])


def few_symbols(plan):
    """R29: a tree or a split of fewer than 16 symbols."""
    def made(rng):
        b = rng.choice((4, 8))
        m = rng.choice((15, 15, rng.randint(4, 14)))
        symbols = bytes(rng.choice((1, 2)) for _ in range(m))
        coded = ListEncoder(rng, min_symbols=1).outermost(symbols, b, plan)
        # the block must be large enough for a list longer than its symbols
        return list_frame(rng, coded, m, b)
    return made


def few_symbols_inside(plan_around, plan, choices):
    def made(rng):
        m = rng.randint(60, 300)
        few = rng.randint(2, 15)
        symbols = bytearray(rng.choice(choices[0]) for _ in range(m))
        for i in rng.sample(range(m), few):
            symbols[i] = rng.choice(choices[1])
        encoder = ListEncoder(rng, min_symbols=1)
        return list_frame(rng, encoder.outermost(bytes(symbols), 8, plan_around(plan)), m, 8)
    return made


def few_escapes(rng):
    """R29: in the escapes of a tree."""
    m, few = rng.randint(60, 300), rng.randint(4, 15)
    symbols = bytearray(rng.choice((1, 2, 3)) for _ in range(m))
    for i in rng.sample(range(m), few):
        symbols[i] = rng.choice((250, 251))
    encoder, lengths = ListEncoder(rng, min_symbols=1), {1: 2, 2: 2, 3: 2, ESCAPE: 2}
    nodes = encoder.coded_nodes(bytes(symbols), lengths, lambda s: encoder.list(s, 8, ("tree",), 1))
    return list_frame(rng, b"\x24" + table_of(lengths) + nodes, m, 8)


def too_deep(plan):
    """R30: at depth 5"""
    def made(rng):
        symbols = bytes(rng.choice((3, 4, 200)) for _ in range(rng.randint(300, 600)))
        around = plan
        for _ in range(5):
            around = rng.choice((("split0", ("raw",), around), ("split2", ("raw",), ("raw",), around), ("escapes", 1, around)))
        encoder = ListEncoder(rng, max_depth=8)
        encoder.stray = rng.choice((0.5, 0.8))
        return list_frame(rng, encoder.outermost(symbols, 8, around), len(symbols), 8, wide=True)
    return made


def dirty_masks(plan, splits):
    """R32"""
    def made(rng):
        m = rng.randint(30, 300)
        b = rng.choice((4, 8))
        encoder = ListEncoder(rng)
        symbols = random_symbols(rng, m, b)
        encoder.dirty_splits = int(splits)
        encoder.dirty_nodes = 0 if splits else rng.choice((1, 1, 5))
        wanted = encoder.dirty_splits + encoder.dirty_nodes
        coded = encoder.outermost(symbols, b, plan)
        if encoder.dirty_splits + encoder.dirty_nodes == wanted:
            raise Impossible("masks of whole bytes")
        return list_frame(rng, coded, m, b)
    return made


def left_over(form, size):
    """R33"""
    def made(rng):
        dtype = rng.choice((8, 9, 10, 11))
        n = rng.randint(20, 200)
        more = rng.choice((b"\x00", b"\x01\x00", rng.randbytes(size)))
        if form == SPLIT:
            block = random_split(rng, dtype, n, varying=True)
            block.pieces[-1] += more
        else:
            block = random_bytes(rng, rng.choice(list(DTYPES)), n, plan=("const",), symbols=rng.randbytes(1) * n)
            dtype = {1: 2, 2: 3, 4: 4, 8: 5}[len(block.elements) // n]
        block.body += more
        return frame_around(rng, dtype, fitting(block, DTYPES[dtype].width), flags=rng.choice((0, 1)))
    return made


def count_too_large(rng):
    """R34: one CONST block holds too many elements; all else is right."""
    count = (1 << 48) + rng.choice((1, 2, 1 << 20, rng.randint(1, 1 << 40)))
    dtype = rng.choice(list(DTYPES))
    run = (count + (1 << 20) - 1) >> 20
    longest, w, blocks = (1 << 24) - 1, DTYPES[dtype].width, []
    while run:
        cells = min(run, longest)
        run -= cells
        blocks.append(const_block(rng.randbytes(w), cells << 20 if run else count - (sum(block.cells for block in blocks) << 20), cells))
    return Frame(dtype, 20, blocks, rng.choice((0, 1)))


def footer_error(change=None, make=None, **errors):
    """change(rng, heads) gives the wrong heads."""
    def made(rng):
        frame = (make or with_footer)(rng)
        if change:
            frame.errors["heads"] = lambda heads: change(rng, heads)
        frame.errors.update({name.replace("_", " "): value for name, value in errors.items()})
        return frame
    return made


def entry_error(change):
    """change(rng, entries, frame) changes an entry of the only node: cell, offset, hash"""
    def made(rng):
        frame = many_blocks(rng, flat=True)
        frame.errors["entries"] = lambda entries: change(rng, entries, frame)
        return frame
    return made


def change_entry(which, field, value):
    """value(rng, entry, entries, frame) gives a field of an entry. which: the number of the field."""
    def change(rng, entries, frame):
        entry = entries[which if which < len(entries) else 1]
        entry[field] = value(rng, entry, entries, frame)
    return entry_error(change)


def other_run_in_index(rng):
    dtype = rng.choice(list(DTYPES))
    w = DTYPES[dtype].width
    run = rng.randint(2, 9)
    blocks = [const_block(rng.randbytes(w), 64 * run, run), stored_block(rng.randbytes(10 * w), w)]
    frame = Frame(dtype, 6, blocks, random_flags(rng))
    frame.errors["heads"] = lambda heads: bytes([CONST, run + rng.choice((-1, 1)), 0, 0]) + heads[4:]
    return frame


def swap_heads(rng, index):
    heads = [index[i:i + 4] for i in range(0, len(index), 4)]
    rng.shuffle(heads)
    if b"".join(heads) == index:
        raise Impossible("the same index")
    return b"".join(heads)


def flip_bit(rng, data, start=0, end=None):
    end = len(data) if end is None else end
    i = rng.randrange(start, end)
    return data[:i] + bytes([data[i] ^ 1 << rng.randrange(8)]) + data[i + 1:]


def index_without_last(rng):
    """R41"""
    dtype = rng.choice(list(DTYPES))
    w = DTYPES[dtype].width
    blocks = [stored_block(rng.randbytes(64 * w), w) for _ in range(rng.randint(1, 4))]
    blocks.append(stored_block(rng.randbytes(w * rng.randint(1, 63)), w))
    frame = Frame(dtype, 6, blocks, random_flags(rng))
    missing = rng.randint(1, len(blocks))
    missing = min(missing, len(blocks) - 1)
    frame.errors["heads"] = lambda heads: heads[:len(heads) - 4 * missing]
    return frame


def index_with_short_run(rng):
    """R41: the last run of the index ends before the frame."""
    dtype = rng.choice(list(DTYPES))
    w = DTYPES[dtype].width
    run = rng.randint(2, 9)
    blocks = [stored_block(rng.randbytes(64 * w), w), const_block(rng.randbytes(w), 64 * run - rng.randint(0, 60), run)]
    frame = Frame(dtype, 6, blocks, random_flags(rng))
    frame.errors["heads"] = lambda heads: heads[:-4] + bytes([CONST, rng.randint(1, run - 1), 0, 0])
    return frame


def empty_index(rng):
    """R39"""
    frame = small_frame(rng, rng.choice((2, 3)), 1)
    frame.errors["heads"] = lambda heads: b""
    return frame


def other_half(which, flags=1, make=with_footer):
    """R53: an entry of the index has a wrong half of a check. which(count): the number of the block."""
    def made(rng):
        frame = make(rng, flags=flags)

        def change(halves):
            i = which(len(halves))
            return halves[:i] + [flip_bit(rng, halves[i])] + halves[i + 1:]
        return spoiled(frame, halves=change)
    return made


def block_of_another_frame(rng):
    """R53: replaces a block by one of a frame with the same header. Its own checks are right."""
    w = DTYPES[dtype := rng.choice(list(DTYPES))].width
    blocks = [stored_block(rng.randbytes(64 * w), w) for _ in range(3)]
    frame, other = (Frame(dtype, 6, some, 1) for some in (blocks, [blocks[0], stored_block(rng.randbytes(64 * w), w), blocks[2]]))
    data, size = frame.write(), 12 + 64 * w
    start = len(frame.header()) + size
    return data[:start] + other.write()[start:start + size] + data[start + size:]


def block_check(change):
    def made(rng):
        return replace_block(rng, lambda block: change(rng, block), flags=rng.choice((1, 3)))
    return made


def wrong_check(rng, block):
    block.check_error = rng.choice((1, 1 << 63, nonzero(rng)))
    return block


def swapped_blocks(rng):
    """R9: exchanges two blocks of equal size with their checks. A check covers the position of the block."""
    dtype = rng.choice(list(DTYPES))
    w = DTYPES[dtype].width
    blocks = [stored_block(rng.randbytes(64 * w), w) for _ in range(3)]
    frame = Frame(dtype, 6, blocks, 1)
    data, start = frame.write(), len(frame.header())
    size = 12 + 64 * w
    first, second = data[start:start + size], data[start + size:start + 2 * size]
    return data[:start] + second + first + data[start + 2 * size:]


def changed_stored(rng):
    """R9: one bit of the elements of a STORED block is wrong."""
    dtype = rng.choice(list(DTYPES))
    w, n = DTYPES[dtype].width, rng.randint(1, 64)
    frame = Frame(dtype, 6, [stored_block(rng.randbytes(n * w), w)], 1)
    data = frame.write()
    return flip_bit(rng, data, len(data) - n * w)


def small_delta(rng, dtype=None):
    """A valid delta of one cell. Callers make it wrong."""
    dtype = rng.choice(list(DTYPES)) if dtype is None else dtype
    return valid_same(rng, dtype, random_role(rng, dtype)) if rng.random() < 0.3 else rng.choice(
        (lambda rng, dtype: valid_classed(rng, dtype, None), valid_delta_plain, sparse_delta))(rng, dtype)


def delta_of_form(form):
    def made(rng):
        frame = valid_delta_plain(rng, rng.choice(list(DTYPES)))
        frame.blocks[0].form, frame.blocks[0].pieces = form, None
        return frame
    return made


def without_base(rng):
    """R15: a delta without the extension."""
    dtype = rng.choice(list(DTYPES))
    frame = rng.choice((lambda: valid_classed(rng, dtype, None), lambda: valid_same(rng, dtype, 1),
                        lambda: sparse_delta(rng, dtype, 1)))()
    frame.extensions, frame.base = rng.choice((None, b"")), None
    return frame


def delta_sized(form, size):
    """R16"""
    def made(rng):
        dtype = rng.choice(list(DTYPES))
        n, w = sizes(rng), DTYPES[dtype].width
        base = random_base_of(rng, dtype, 1, n)
        body = rng.randbytes(size(n, w))
        return delta_frame(rng, dtype, 1, base, [Block(form, body, n, bytes(w if form == CONST else n * w))])
    return made


def const_run_of_delta(run):
    """R17: the run is always 1 in frames with a base."""
    def made(rng):
        dtype = rng.choice([d for d in DTYPES if DTYPES[d].width <= 2])
        w, n = DTYPES[dtype].width, (1 << 16) + rng.choice((1, 77, 1 << 16))
        base = large_base(rng, dtype, 1, n)
        return delta_frame(rng, dtype, 1, base, [const_block(rng.randbytes(w), n, run)], 16)
    return made


def delta_check(rng):
    """R9: the check is that of a record without the cell hashes."""
    frame = valid_delta_plain(rng, rng.choice(list(DTYPES)))
    block, header_check = frame.blocks[0], frame.header()[-8:]
    hashes = block.hashes(frame.base, frame.dtype, 0)
    block.check_error = int.from_bytes(block.check(header_check, 0, hashes), "little") ^ int.from_bytes(
        block.check(header_check, 0), "little")
    return frame


def other_form_in_index(rng):
    """R40: the index says another form for a block."""
    frame = valid_delta_cells(rng, 1, 1)
    place = 4 * next(i for i, block in enumerate(frame.blocks) if block.form == SAME)
    frame.errors["heads"] = lambda heads: heads[:place] + bytes([CONST, 1, 0, 0]) + heads[place + 4:]
    return frame


def bad_sparse(make):
    """R44, R45, R52: make(rng) gives the errors of a block."""
    return lambda rng: sparse_delta(rng, **make(rng))


def changed_places(change):
    """change(rng, places, k, n) changes the positions, and returns whether it could."""
    def make(rng):
        def spoil(places, k, n):
            places = list(places)
            if not change(rng, places, k, n):
                raise Impossible("places that cannot be spoiled so")
            return places
        return {"places": spoil}
    return make


def neighbours(rng, places, k):
    """The number of the first of two positions with equal upper bits; None if all differ."""
    near = [i for i in range(len(places) - 1) if places[i] >> k == places[i + 1] >> k]
    return rng.choice(near) if near else None


def equal_places(rng, places, k, n):
    i = neighbours(rng, places, k)
    if i is not None:
        places[i + 1] = places[i]
    return i is not None


def descending_places(rng, places, k, n):
    i = neighbours(rng, places, k)
    if i is not None:
        places[i], places[i + 1] = places[i + 1], places[i]
    return i is not None


def place_behind(rng, places, k, n):
    """A position past the last element, with the upper bits of a valid one."""
    last = (n - 1 >> k) + 1 << k
    if n < last:
        places[-1] = rng.choice((n, last - 1, rng.randrange(n, last)))
    return n < last


def one_more(rng, upper):
    zeros = [i for i, one in enumerate(upper) if not one]
    if not zeros:
        raise Impossible("ones alone")
    i = rng.choice(zeros)
    return upper[:i] + [1] + upper[i + 1:]


def one_fewer(rng, upper):
    i = rng.choice([i for i, one in enumerate(upper) if one])
    return upper[:i] + [0] + upper[i + 1:]


def dirty_filling(rng, m):
    if m == 0:
        raise Impossible("no bits to fill up")
    filling = [rng.randrange(2) for _ in range(m)]
    filling[rng.randrange(m)] = 1
    return filling


def body_byte(place, value):
    """Changes a byte of the body and nothing else."""
    return lambda rng: {"body": lambda body: body[:place] + bytes([value(rng)]) + body[place + 1:]}


def escape_of_ones(rng):
    """Sets the last escape to all ones."""
    return {"escapes": lambda count, b, escapes: (count, b, escapes[:-1] + [(1 << 64) - 1])}


def word_of_ones(rng):
    return {"b": lambda b, bits: bits,
            "numbers": lambda numbers, bits: [(1 << bits) - 1 if i == len(numbers) // 2 else number for i, number in enumerate(numbers)]}


def cut_piece(rng):
    return {"body": lambda body: body[:rng.randint(min(CHANGES_HEAD + 1, len(body) - 1), len(body) - 1)]}


def bad_base_info(change):
    """R42"""
    def made(rng):
        frame = small_delta(rng)
        role = role_of(frame)
        info = base_info(role, frame.base)
        frame.extensions = base_extension(change(rng, info))
        return frame
    return made


def second_base(rng):
    frame = small_delta(rng)
    role = role_of(frame)
    frame.extensions = (frame.extensions + base_extension(base_info(role, frame.base)) if rng.random() < 0.7 else
                        base_extension(rng.randbytes(3)) + frame.extensions)
    return frame


def cast_to(dtype):
    """R42: role 2 with elements that nothing is cast to."""
    def made(rng):
        n, w = sizes(rng), DTYPES[dtype].width
        base = random_base_of(rng, F16, 2, n)
        return delta_frame(rng, dtype, 2, base, [stored_block(rng.randbytes(n * w), w)])
    return made


def upcast_to(dtype):
    """R42: role 3 with elements that nothing is upcast to."""
    def made(rng):
        n, w = sizes(rng), DTYPES[dtype].width
        return delta_frame(rng, dtype, 3, random_base_of(rng, F32, 3, n), [stored_block(rng.randbytes(n * w), w)])
    return made


def bad_base_flags(flags):
    def made(rng):
        frame = small_delta(rng)
        frame.flags = flags
        return frame
    return made


def bad_base_log2(log2):
    def made(rng):
        dtype = rng.choice(list(DTYPES))
        n, w = rng.randint(1, 64), DTYPES[dtype].width
        base = random_base_of(rng, dtype, 1, n)
        return delta_frame(rng, dtype, 1, base, [random_block(rng, dtype, n)], log2)
    return made


def no_base(rng):
    return spoiled(small_delta(rng), given_base=None)


def other_base_dtype(rng):
    """R43: a base of the same elements, but a different dtype of that size; or of elements of a different size."""
    frame = small_delta(rng)
    dtype = rng.choice([d for d in DTYPES if d != frame.base.dtype])
    elements = frame.base.elements
    if DTYPES[dtype].width != DTYPES[frame.base.dtype].width:
        elements = bytes(frame.count * DTYPES[dtype].width)
    return spoiled(frame, given_base=Base(dtype, elements))


def other_base_count(rng):
    frame = small_delta(rng)
    w = DTYPES[frame.base.dtype].width
    elements = frame.base.elements[:-w] if rng.random() < 0.5 else frame.base.elements + bytes(w)
    return spoiled(frame, given_base=Base(frame.base.dtype, elements))


def changed_base(rng):
    """R44: one bit of the base is wrong."""
    frame = rng.choice((small_delta, small_delta, lambda rng: valid_delta_cells(rng, 1, 2)))(rng)
    return spoiled(frame, given_base=Base(frame.base.dtype, flip_bit(rng, frame.base.elements)))


def wrong_base_hash(rng):
    frame = valid_delta_plain(rng, rng.choice(list(DTYPES)))
    frame.blocks[0].hash_errors = (nonzero(rng), 0)
    return frame


def wrong_same_hash(rng):
    frame = valid_delta_cells(rng, 1, 2) if rng.random() < 0.3 else valid_same(rng, rng.choice(list(DTYPES)), 1)
    block = next(block for block in frame.blocks if block.form == SAME)
    block.hash_errors = (nonzero(rng), 0)
    return frame


def wrong_elements_hash(rng):
    dtype = rng.choice(list(DTYPES))
    frame = rng.choice((valid_delta_plain, lambda rng, dtype: valid_classed(rng, dtype, None),
                        lambda rng, dtype: valid_same(rng, dtype, random_role(rng, dtype))))(rng, dtype)
    frame.blocks[0].hash_errors = (0, rng.choice((1, 1 << 63, nonzero(rng))))
    return frame


def classed_frame(rng, dtype, n, body, base=None):
    """A CLASSED block with this body, which may be invalid."""
    base = base or random_base_of(rng, dtype, 1, n)
    w = DTYPES[dtype].width
    return delta_frame(rng, dtype, 1, base, [fitting(Block(CLASSED, body, n, bytes(n * w)), w)])


def bad_classes(make):
    """R46: make(rng) gives the number of classes and the borders. An empty list for each class follows."""
    def made(rng):
        floats = make is not integer_classes
        dtype = rng.choice([d for d in DTYPES if DTYPES[d].is_float == floats])
        start = make(rng)
        behind = b"" if make is cut_borders else b"\x00\x00\x01\x00" * 9
        return classed_frame(rng, dtype, rng.randint(80, 300), start + behind)
    return made


def no_classes(rng):
    return b"\x00"


def many_classes(rng):
    k = rng.choice((9, 9, 10, 128, 255))
    return bytes([k]) + bytes(range(1, min(k, 30)))


def integer_classes(rng):
    k = rng.randint(2, 8)
    return bytes([k]) + bytes(range(1, k))


def border_0(rng):
    k = rng.randint(2, 8)
    return bytes([k]) + bytes(range(k - 1))


def equal_borders(rng):
    k = rng.randint(3, 8)
    borders = sorted(rng.sample(range(1, 256), k - 1))
    i = rng.randrange(k - 2)
    borders[i] = borders[i + 1]
    return bytes([k]) + bytes(borders)


def descending_borders(rng):
    k = rng.randint(3, 8)
    borders = sorted(rng.sample(range(1, 256), k - 1))
    i = rng.randrange(k - 2)
    borders[i], borders[i + 1] = borders[i + 1], borders[i]
    return bytes([k]) + bytes(borders)


def cut_borders(rng):
    k = rng.randint(2, 8)
    return bytes([k]) + bytes(range(1, k))[:rng.randrange(k - 1)]


def bad_words(make):
    """make(rng, n, w) gives a wrong list of words."""
    def made(rng):
        dtype = rng.choice([d for d in DTYPES if DTYPES[d].width > 1])
        n = rng.randint(100, 300)
        return classed_frame(rng, dtype, n, b"\x01" + make(rng, n, DTYPES[dtype].width))
    return made


def zeros_but(n, symbol, times):
    """A list of zeros; the last `times` symbols are `symbol`."""
    return b"\x05\x00" + bytes(mask_of([0] * (n - times) + [1] * times)) + b"\x01" + bytes([symbol])


def reserved_symbols(rng, n, w):
    return b"\x00\x00" + bytes([rng.choice(RESERVED_KINDS)]) + rng.randbytes(20)


def cut_symbols(rng, n, w):
    coded = zeros_but(n, 7, 20)
    return b"\x00\x00" + coded[:rng.randint(0, len(coded) - 1)]


def left_over_words(rng, n, w):
    return b"\x00\x00" + zeros_but(n, 7, 20) + rng.choice((b"\x00", b"\x80", rng.randbytes(9)))


def shift_of_all_bits(rng, n, w):
    return bytes([8 * w, 0]) + b"\x01\x00"


def shift_too_large(rng, n, w):
    return bytes([rng.choice((8 * w + 1, 127, 129, 255)), 0]) + b"\x01\x00" + rng.randbytes(n // 2)


def shifts_too_large(rng, n, w):
    """Two nested lists have too many low bits together. Each number is small enough."""
    s = rng.randint(1, 8 * w - 8)
    low = bytes(n * (s // 8)) + raw_plane([0] * n, (1 << s % 8) - 1)
    times = rng.randint(1, 15)
    return bytes([s, 9]) + low + zeros_but(n, 9, times) + bytes([rng.choice((8 * w - s, 8 * w - 1)), 0]) + bytes(times * w)[:60]


def level_not_raw(rng, n, w):
    data, m = b"", n
    for level in range(4):
        times = rng.randint(2, min(m, 25)) if m < 16 else rng.randint(16, min(m, 40))
        data += b"\x00\x09" + (zeros_but(m, 9, times) if m >= 16 else b"\x00" + bytes(m - times) + b"\x09" * times)
        m = times
    return data + rng.choice((b"\x00\x00\x01\x05", b"\x01\x00" + bytes(8) + b"\x01\x00"))


def above_limit(rng, n, w):
    limit = rng.choice((1, 2, 254, rng.randint(1, 254)))
    return bytes([0, limit]) + zeros_but(n, rng.randint(limit + 1, 255), rng.randint(1, 20))


def nothing_at_all(rng, n, w):
    return b""


def no_limit(rng, n, w):
    return bytes([rng.randint(0, 8 * w - 1)])


def cut_low_bytes(rng, n, w):
    return bytes([8, 0]) + rng.randbytes(rng.randint(0, n - 1))


def cut_low_bits(rng, n, w):
    s = rng.randint(1, 7)
    return bytes([s, 0]) + bytes(rng.randint(0, decoder.raw_plane_size(n, (1 << s) - 1) - 1))


def cut_raw_words(rng, n, w):
    return bytes([RAW_WORDS]) + rng.randbytes(rng.randint(0, n * w - 2))


def cut_rests(rng, n, w):
    times = rng.randint(1, 20)
    return bytes([0, 9]) + zeros_but(n, 9, times) + (bytes([RAW_WORDS]) + rng.randbytes(times * w - 1))[:rng.randint(0, times * w)]


def dirty_words(rng):
    """R22"""
    dtype = rng.choice([d for d in DTYPES if DTYPES[d].width > 1])
    n, s = rng.choice((65, 100, 127, 190)), rng.choice((1, 3, 7))
    if n % 8 == 0:
        raise Impossible("masks of whole bytes")
    plane, tail = bytearray(raw_plane(rng.randbytes(n), (1 << s) - 1)), (n % 64 + 7) // 8
    plane[len(plane) - 1 - tail * rng.randrange(s)] |= 1 << rng.randint(n % 8, 7)
    return classed_frame(rng, dtype, n, bytes([1, s, 0]) + bytes(plane) + b"\x01\x00")


def lossy_frame(rng, block, cells, columns):
    return Frame(block[0], 9, [block[1]], rng.choice((0, 1)) | (4 if cells else 0), extensions_of(rng, cells, columns))


def bad_scaled(**errors):
    """R49 and others, in a SCALED block. errors: as in random_scaled, or functions of rng that give them"""
    def made(rng):
        dtype, n = rng.choice(list(FLOATS)), rng.randint(200, 512)
        columns = rng.randint(2, n // 8)
        some = {name.replace("_", " "): error(rng) if name in ("signs", "scales", "behind") else error for name, error in errors.items()}
        return lossy_frame(rng, (dtype, random_scaled(rng, dtype, columns, 0, n, **some)), 0, columns)
    return made


def bad_quantized(columns=None, **errors):
    """R50 and others, in a QUANTIZED block. errors: as in random_quantized, or functions of rng that give them"""
    def made(rng):
        dtype, n, cells = rng.choice(list(FLOATS)), rng.randint(200, 512), random_cells(rng)
        of_row = rng.choice((0, rng.randint(2, n // 8))) if columns is None else columns(rng, n)
        some = {name.replace("_", " "): error(rng) if name in ("signs", "scales", "behind", "more_exact") else error
                for name, error in errors.items()}
        return lossy_frame(rng, (dtype, random_quantized(rng, dtype, cells, of_row, 0, n, **some)), cells, of_row)
    return made


def change_u(value):
    """R50: a u without a number: value(base, the number expected from the scales of the element)."""
    def change(us, base, expected):
        i = next((i for i, (u, _) in enumerate(us) if u >= 2 and value(base, expected[i]) not in (0, 1)), None)
        if i is None or not 2 <= value(base, expected[i]) < 1 << 31:
            raise Impossible("no such u")
        us[i] = (value(base, expected[i]), us[i][1])
        return us
    return change


def one_exact_more(us, base, expected):
    """R50"""
    if us[-1][0] == 1:
        raise Impossible("the last stands exactly already")
    return us[:-1] + [(1, 0)]


def one_exact_less(us, base, expected):
    """R50"""
    i = next((i for i, (u, _) in enumerate(us) if u == 1), None)
    if i is None:
        raise Impossible("none stands exactly")
    return us[:i] + [(0, 0)] + us[i + 1:]


def cell_without_number(rng):
    """R50: a cell without a number: the octave has fewer numbers than cells, or the cell is too narrow."""
    dtype = rng.choice((F16, BF16, F32, F64))
    cells = rng.choice((3, 70, 2048, 1000))
    for _ in range(200):
        q = rng.randrange(cells * decoder.octaves_of(dtype))
        if decoder.magnitude_of_cell(q, cells, dtype) is None:
            break
    else:
        raise Impossible("no such cell")
    n = rng.randint(200, 512)
    block = random_quantized(rng, dtype, cells, 0, 0, n, us=change_u(lambda base, expected: q + 2 - base))
    return lossy_frame(rng, (dtype, block), cells, 0)


def short_quantized(rng):
    """R50: the body ends before the scales."""
    dtype, n, cells = rng.choice(list(FLOATS)), rng.randint(100, 512), random_cells(rng)
    exact = rng.randint(0, 5)
    size = 49 + exact * DTYPES[dtype].width
    body = bytes(random_certificate(rng, n, exact)) + bytes(5) + rng.randbytes(size - 49)
    block = Block(QUANTIZED, body[:rng.choice((1, 43, 44, 48, size - 1))], n, bytes(n * DTYPES[dtype].width),
                  certificate=decoder.Certificate())
    return lossy_frame(rng, (dtype, fitting(block, DTYPES[dtype].width)), cells, 0)


def huge_exact(rng):
    """R50: the certificate says more exact elements than the body can hold."""
    def change(certificate):
        return bytes(dataclasses.replace(certificate, exact=rng.choice((1 << 61, 1 << 62, 1 << 63, decoder.M64, 10000))))
    return rng.choice((bad_quantized, bad_clustered))(certificate=change)(rng)


def bad_clustered(most=random_clusters, **errors):
    """R50 and others, in a QUANTIZED block with clusters. errors: as in random_clustered, or functions of rng that give them"""
    def made(rng):
        dtype, n, clusters = rng.choice(list(FLOATS)), rng.randint(200, 512), most(rng)
        some = {name.replace("_", " "): error(rng) if name in ("count", "behind", "more_exact") else error for name, error in errors.items()}
        some = {name: error(rng, dtype) if name == "ends" else error for name, error in some.items()}
        return lossy_frame(rng, (dtype, random_clustered(rng, dtype, clusters, n, **some)), (CLUSTERS, clusters), 0)
    return made


def end_of_no_number(rng, dtype):
    """R50"""
    def change(ends):
        bits, mantissa = 8 * DTYPES[dtype].width, FLOATS[dtype][0]
        special = (1 << bits - 1) - (1 << mantissa)
        ends[rng.randrange(len(ends))] = special | rng.choice((0, 1, rng.getrandbits(mantissa))) | rng.getrandbits(1) << bits - 1
        return ends
    return change


def ends_descending(rng, dtype):
    """R50"""
    def change(ends):
        i = 2 * rng.randrange(len(ends) // 2)
        if decoder.value_of(ends[i + 1], dtype) - decoder.value_of(ends[i], dtype) <= abs(decoder.value_of(ends[i + 1], dtype)) / (1 << 20):
            raise Impossible("ends that are the same in fixed point")
        ends[i], ends[i + 1] = ends[i + 1], ends[i]
        return ends
    return change


def change_cluster_u(value):
    """R50: value(number of clusters) is a word without a meaning."""
    def change(us, count):
        i = next((i for i, u in enumerate(us) if u >= 2), None)
        if i is None:
            raise Impossible("no such word")
        us[i] = value(count)
        return us
    return change


def one_exact_of_clusters(to):
    """R50: one exact element more (to is 1) or one less than the certificate says"""
    def change(us, count):
        i = next((i for i, u in enumerate(us) if (u == 1) != (to == 1)), None)
        if i is None:
            raise Impossible("none stands exactly")
        us[i] = to
        return us
    return change


def short_clustered(rng):
    """R50: the body ends before the words."""
    dtype, n, exact = rng.choice(list(FLOATS)), rng.randint(300, 512), rng.randint(0, 5)
    w, clusters = DTYPES[dtype].width, rng.choice((1, 3, 40))
    size = 45 + (2 * clusters + exact) * w
    body = bytes(random_certificate(rng, n, exact)) + bytes([clusters - 1]) + bytes(size - 45)
    block = Block(QUANTIZED, body[:rng.choice((1, 43, 44, 45, 45 + 2 * clusters * w - 1, size - 1))], n, bytes(n * w),
                  certificate=decoder.Certificate())
    if exact == 0 and len(block.body) == size:
        raise Impossible("the words would be too short, no more")
    return lossy_frame(rng, (dtype, fitting(block, w)), (CLUSTERS, 256), 0)


def bad_certificate(name, bad=None):
    bad = bad or bad_quantized

    def made(rng):
        wrong = rng.choice((decoder.MAX_NUMBER + 1, 0x7FF8000000000000, 0x8000000000000000, 0xFFF0000000000000, decoder.M64,
                            rng.randint(decoder.MAX_NUMBER + 1, decoder.M64)))
        return bad(certificate=lambda certificate: bytes(dataclasses.replace(certificate, **{name: wrong})))(rng)
    return made


def many_columns(rng, n):
    return n + rng.choice((1, 1, 100, 1 << 40))


def scales_of_many_columns(rng):
    """R49: more columns than elements. The lists are right."""
    return b"\x01\x00\x00\x01\x07"


def some_lossy(rng, cells=None, columns=None):
    """A valid quantized frame. Callers make it wrong."""
    if cells is None:
        cells = rng.choice((random_cells(rng), (CLUSTERS, random_clusters(rng))))
    return valid_lossy(rng, rng.choice(list(FLOATS)), cells,
                       rng.random() < 0.5 if columns is None else columns, (QUANTIZED,))


def lossy_header(change):
    """R48: change(rng, frame) makes the header wrong."""
    def made(rng):
        frame = some_lossy(rng)
        change(rng, frame)
        return frame
    return made


def drop_flag(rng, frame):
    frame.flags &= ~4


def drop_quantizer(rng, frame):
    frame.extensions = rng.choice((None, b"", b"\x01\x00\x00"))


def set_extensions(make):
    def change(rng, frame):
        frame.extensions = make(rng)
    return change


def other_dtype(rng, frame):
    frame.errors["dtype"] = rng.choice([d for d in DTYPES if d not in FLOATS])


def columns_of_other_dtype(rng):
    """R48"""
    frame = small_frame(rng)
    if frame.dtype in FLOATS:
        raise Impossible("a dtype that may have columns")
    frame.extensions = column_extension(rng.randint(1, 64))
    return frame


def bad_columns(make):
    def made(rng):
        dtype = rng.choice(list(FLOATS))
        return Frame(dtype, 6, [random_block(rng, dtype, 64)], random_flags(rng), make(rng))
    return made


def delta_with(make):
    """R48: an extension that deltas may not have."""
    def made(rng):
        frame = small_delta(rng, rng.choice(list(FLOATS)))
        more = make(rng)
        frame.extensions = rng.choice((frame.extensions + more, more + frame.extensions))
        return frame
    return made


def form_without(form, make):
    """R15: a form that needs a property that the frame lacks."""
    def made(rng):
        frame = make(rng)
        block = rng.choice(frame.blocks)
        block.form, block.pieces, block.cells, block.certificate = form, None, 1, None
        return frame
    return made


def lossy_sized(form, size):
    """R16"""
    def made(rng):
        dtype, n = rng.choice(list(FLOATS)), rng.randint(100, 512)
        block = Block(form, rng.randbytes(size(n * DTYPES[dtype].width)), n, bytes(n * DTYPES[dtype].width), certificate=decoder.Certificate())
        return lossy_frame(rng, (dtype, block), random_cells(rng) if form == QUANTIZED else 0, 5)
    return made


def invalid_recipes():
    """Recipes for each rule."""
    listed = ("escapes", 1, None)
    return {
        1: spoil_header("magic", b"\xB5SNQ", b"BITS", bytes(4), b"\xB4SNP", b"\xB5SN\xD0", lambda rng: b"PNS\xB5"),
        2: spoil_header("version", 0, 2, 128, 255, lambda rng: rng.randint(2, 255)),
        3: bad_extensions(b"\x80\x00\x00", b"\xFF\x03\x00abc", b"\x84\x00\x00\x01\x00\x00",
                          lambda rng: extension(rng.randint(132, 255), b"\x07")) + [announced, lambda rng: newer(small_frame(rng), rng)],
        4: [lossy_header(set_extensions(lambda rng, family=family: quantizer_extension(random_cells(rng), family)))
            for family in (0, 3, 255)],
        6: [cut_at(place) for place in (
            lambda rng, size, header: rng.randrange(1, 24), lambda rng, size, header: header,
            lambda rng, size, header: header + rng.randint(1, 11), lambda rng, size, header: size - 1,
            lambda rng, size, header: rng.randrange(header, size),
            lambda rng, size, header: size - rng.randint(1, 28))],
        7: [lambda rng: spoiled(small_frame(rng), behind=b"\x00"),
            lambda rng: spoiled(small_frame(rng), behind=rng.randbytes(rng.randint(1, 40))),
            lambda rng: spoiled(small_frame(rng), behind=small_frame(rng).write()),
            lambda rng: spoiled(valid_empty(rng), behind=b"PNS\xB5")],
        8: spoil_header("header_check", 1, 1 << 63, nonzero) + [
            lambda rng: flip_bit(rng, small_frame(rng).write(), 16, 24)],
        9: [block_check(wrong_check), swapped_blocks, changed_stored, block_check(wrong_check), delta_check] + [
            wrongly_checked(make) for make in (bad_list(reserved_kind()), new_form(NEW_FORMS[0]), new_form(255, 9))],
        10: [lambda rng: spoiled(with_footer(rng), footer_check=nonzero(rng)),
             lambda rng: spoiled(small_frame(rng, 2, 1), footer_check=1 << rng.randrange(64)),
             change_entry(1, 2, lambda rng, entry, entries, frame: entry[2] ^ nonzero(rng))],
        37: [lambda rng: spoiled(with_footer(rng), end_magic=b"PNS\xB4"),
             lambda rng: spoiled(with_footer(rng), end_magic=bytes(4))],
        12: [lambda rng: spoiled(small_frame(rng, rng.choice((2, 3))), content_id=nonzero(rng)),
             lambda rng: spoiled(small_frame(rng, 2, 1), content_id=1),
             lambda rng: spoiled(with_flags(valid_empty, 3, False)(rng), content_id=1 << 63),
             lambda rng: spoiled(small_delta(rng), content_id=nonzero(rng))],
        13: spoil_header("dtype", 0, 12, 13, 128, 255),
        14: spoil_header("log2", 0, 5, 21, 64, 255),
        15: bad_form(SAME, CLASSED, SCALED, QUANTIZED, SPARSE, PATCHED) + [
            zigzag_of_other_dtype, without_base, delta_of_form(SCALED), delta_of_form(QUANTIZED)] + [
            form_without(form, some_lossy) for form in (SAME, CLASSED, SPARSE, PATCHED, ZIGZAG)] + [
            form_without(SCALED, lambda rng: some_lossy(rng, columns=False)),
            form_without(QUANTIZED, lambda rng: some_lossy(rng, 0, True))],
        16: [sized(STORED, lambda w: 64 * w - 1), sized(STORED, lambda w: 64 * w + 1), sized(STORED, lambda w: 0),
             sized(SPLIT, lambda w: 0), sized(SPLIT, lambda w: 64 * w + 1), sized(BYTES, lambda w: 0),
             sized(BYTES, lambda w: 64 * w + 1)] + [delta_sized(form, change) for form, change in (
                 (SAME, lambda n, w: 8), (SAME, lambda n, w: 1), (CLASSED, lambda n, w: 0),
                 (CLASSED, lambda n, w: n * w + 3), (SPARSE, lambda n, w: 4), (SPARSE, lambda n, w: 0),
                 (SPARSE, lambda n, w: n * w + 1), (STORED, lambda n, w: n * w + 16))] + [
                 lossy_sized(form, size) for form in (SCALED, QUANTIZED) for size in (lambda all: 0, lambda all: all + 1)],
        17: [bad_run(0), bad_run(0, 2), bad_run(lambda rng: rng.choice((3, 100, (1 << 24) - 1)), 1), bad_run(2),
             bad_run(lambda rng: 1 << 23), const_run_of_delta(2), const_run_of_delta(0)],
        18: [short_split, short_descriptor, short_split],
        19: [bad_descriptor(split_of_integers), symbol_size((6, 7), (0, 8, 9, 15)), symbol_size((8, 9, 10), (0, 9, 15)),
             symbol_size((11,), (0, 1, 7, 9, 11))] + [reserved_descriptor(bits) for bits in (0x80, 0x40, 0xC0)] + [
             bad_parted(side_of_form(SPLIT), dtypes=(1, 2, 3, 4, 5))],
        20: [constant_bits(change)
             for change in (varying_symbol_bits, values_that_vary, values_of_symbol_bits, all_vary)],
        21: [bad_base(base) for base in (lambda rng: 1793, lambda rng: 65535, lambda rng: rng.randint(1794, 65535))],
        22: [dirty_bit_plane] * 3 + [dirty_words] * 2,
        23: [bad_list(reserved_kind()), bad_list(reserved_kind(3, 4, 0x13, 0x83)), bad_list(reserved_kind(0x93, 0x94, 0xB4)),
             bad_list(reserved_kind(7, 0x12, 0x15, 0x16, 0x20)), bad_list(reserved_kind(0xC0, 0xC4, 0xFF, 0xBF)),
             bad_scaled(scales=lambda rng: b"\x01" + bytes([rng.choice(RESERVED_KINDS)])),
             inside_split(reserved_kind()), bad_words(reserved_symbols)],
        24: [cut_list(("raw",)), cut_list(("tree",)), cut_list(("escapes", 2, ("raw",))), cut_list(listed),
             cut_list(("escapes", 6, None)), cut_list(("split0", None, None)), cut_list(("split2", None, None, None)),
             bad_list(cut_table), bad_words(cut_symbols)],
        25: [large_symbol(kind) for kind in ("raw", "const", "table", "escape")] + [table_beyond_255],
        26: [bad_table(nibbles) for nibbles in (
            (0, 1, 1), (1, 1, 0), (9, 1, 1), (1, 0, 0, 1), (1, 0, 9, 1), (1, 9, 9, 1), (1, 9, 10, 1), (1, 1, 9),
            (2, 10, 2, 10, 11, 2, 2), lambda rng: [1] + [rng.choice((0, 9, 10))] * 2 + [1])] + [
            bad_table((1, 10, 1), count=4), bad_table((1, 15, 1), count=100), bad_table((1, 13, 1, 1), count=20)],
        27: [dirty_table(0), dirty_table(0), dirty_table(3), dirty_table(1)],
        28: [bad_lengths(longer), bad_lengths(shorter), bad_lengths(one_less), bad_lengths(only_one(1)),
             bad_lengths(only_one(8)), bad_lengths(longer, 2), bad_lengths(shorter, 3), bad_lengths(other_escape, 2),
             bad_lengths(one_less, 4)],
        29: [few_symbols(("tree",)), few_symbols(("escapes", 1, ("raw",))),
             few_symbols(("split0", ("raw",), ("raw",))), few_symbols(("split2", ("raw",), ("raw",), ("raw",))),
             few_escapes,
             few_symbols_inside(lambda plan: ("split0", ("raw",), plan), ("tree",), ((0,), (1, 2))),
             few_symbols_inside(lambda plan: ("split2", ("raw",), plan, ("raw",)), ("escapes", 2, ("raw",)),
                                ((9, 8), (0, 1, 2)))],
        30: [too_deep(("split0", ("raw",), ("raw",))), too_deep(("split2", ("raw",), ("raw",), ("raw",))),
             too_deep(listed)],
        32: [dirty_masks(("tree",), False), dirty_masks(listed, False),
             dirty_masks(("split0", ("raw",), None), True), dirty_masks(("split2", None, None, None), True),
             bad_parted(bits_behind, n=77)],
        33: [left_over(SPLIT, 1), left_over(BYTES, 1), left_over(SPLIT, 9), left_over(BYTES, 30), bad_words(left_over_words),
             bad_scaled(behind=lambda rng: b"\x00"), bad_quantized(behind=lambda rng: rng.randbytes(rng.randint(1, 9))),
             bad_clustered(behind=lambda rng: rng.randbytes(rng.randint(1, 9))), bad_parted(bytes_behind)],
        34: [count_too_large] * 3,
        35: spoil_header("more_flags", 16, 32, 64, 0x70),
        36: bad_extensions(b"\x01", b"\x01\x01\x00", b"\x05\xFF\x00" + bytes(254), lambda rng: extension(rng.randrange(128), bytes(8), 9),
                           b"\x05\x00", b"\x05\x00\x01" + bytes(255)) + [
            footer_extensions(with_footer, last_size=bytes(3) + b"\x01"), footer_extensions(with_footer, last_size=b"\x03\x02\x01\x00"),
            lambda rng: spoiled(footer_extensions(with_footer)(rng), footer_extensions=extension(5, b"abc"), first_size=bytes(4)), footer_extensions(small_frame, last_size=b"\xFF\xFF\xFF\xFF")],
        38: [footer_error(frame_size=error) for error in (1, -1, 8, -(1 << 40), 1 << 62)],
        39: [footer_error(blocks=error) for error in (1, -1, 2, 255, 1 << 40, -(1 << 30))] + [
            footer_error(lambda rng, heads: heads + bytes(4)), footer_error(lambda rng, heads: heads[4:]), empty_index,
            footer_error(gap=bytes(4)), footer_error(gap=b"\x00"), footer_error(make=many_blocks, blocks=1)],
        40: [footer_error(swap_heads), other_run_in_index, footer_error(lambda rng, heads: flip_bit(rng, heads)),
             footer_error(lambda rng, heads: bytes(len(heads))), other_form_in_index, footer_error(swap_heads, many_blocks)] + [
             change_entry(rng_entry, field, lambda rng, entry, entries, frame, field=field: entry[field] ^ nonzero(rng, 40))
             for rng_entry in (0, 1) for field in (0, 1)],
        41: [index_without_last, index_with_short_run] + [change_entry(which, field, value) for which, field, value in (
            (0, 0, lambda rng, entry, entries, frame: nonzero(rng, 30)), (0, 1, lambda rng, entry, entries, frame: entry[1] ^ nonzero(rng)),
            (1, 0, lambda rng, entry, entries, frame: 0), (1, 0, lambda rng, entry, entries, frame: len(frame.blocks) + rng.randrange(1000)),
            (1, 1, lambda rng, entry, entries, frame: rng.randint(0, entries[0][1])), (1, 1, lambda rng, entry, entries, frame: 1 << 63))],
        42: [bad_base_info(change) for change in (
            lambda rng, info: info[:9], lambda rng, info: info + b"\x00", lambda rng, info: b"", lambda rng, info: info[:2],
            lambda rng, info: bytes([rng.choice((0, 3, 4, 255))]) + info[1:],
            lambda rng, info: info[:1] + bytes([rng.choice([d for d in range(256) if d != info[1]])]) + info[2:],
            lambda rng, info: bytes([3 - info[0]]) + info[1:])] + [
            second_base, cast_to(F32), cast_to(5), cast_to(F64), upcast_to(F64), upcast_to(BF16)] + [bad_base_flags(flags) for flags in (0, 1, 2)] + [
            bad_base_log2(log2) for log2 in (6, 15)],
        43: [no_base, other_base_dtype, other_base_count],
        44: [changed_base, wrong_base_hash, wrong_same_hash, changed_base,
             bad_sparse(lambda rng: {"hashes": (nonzero(rng), 0)})],
        45: [wrong_elements_hash] * 3 + [bad_sparse(lambda rng: {"hashes": (0, rng.choice((1, 1 << 63, nonzero(rng))))})],
        46: [bad_classes(change) for change in (no_classes, many_classes, integer_classes, border_0, equal_borders,
                                                descending_borders, cut_borders)],
        47: [bad_words(change) for change in (
            shift_of_all_bits, shift_too_large, shift_too_large, shifts_too_large, level_not_raw, above_limit, above_limit,
            nothing_at_all, no_limit, cut_low_bytes, cut_low_bits, cut_raw_words, cut_rests)],
        48: [lossy_header(change) for change in (drop_flag, drop_quantizer, other_dtype)] + [
            lossy_header(set_extensions(make)) for make in (
                lambda rng: quantizer_extension(0), lambda rng: quantizer_extension(rng.choice((2049, 65535, 4096))),
                lambda rng: quantizer_extension(0, CLUSTERS), lambda rng: quantizer_extension(rng.choice((257, 65535, 512)), CLUSTERS),
                lambda rng: quantizer_extension(8, CLUSTERS) + quantizer_extension(8),
                lambda rng: quantizer_extension(8) * 2, lambda rng: quantizer_extension(8) + quantizer_extension(9),
                lambda rng: b"\x82\x02\x00\x01\x08", lambda rng: b"\x82\x04\x00\x01\x08\x00\x00", lambda rng: b"\x82\x00\x00")] + [
            columns_of_other_dtype] + [bad_columns(make) for make in (
                lambda rng: column_extension(0), lambda rng: column_extension(5) * 2, lambda rng: b"\x83\x00\x00",
                lambda rng: b"\x83\x04\x00" + bytes([1, 0, 0, 0]), lambda rng: b"\x83\x09\x00" + bytes([1] + [0] * 8),
                lambda rng: quantizer_extension(8))] + [
            delta_with(lambda rng: column_extension(9)), delta_with(lambda rng: quantizer_extension(9))],
        49: [bad_scaled(signs=lambda rng: rng.choice((2, 255, rng.randint(2, 255)))),
             bad_scaled(scales=lambda rng: b"\x00"), bad_scaled(scales=lambda rng: bytes([rng.randint(2, 255)])),
             bad_scaled(body=lambda body: body[:1 + body[1] % 5]), bad_scaled(body=lambda body: body[:5]),
             bad_quantized(scales=lambda rng: bytes([rng.choice((2, 128, 255))])),
             bad_quantized(lambda rng, n: 0, scales=lambda rng: b"\x01\x01\x00\x01\x00"),
             bad_quantized(many_columns, scales=scales_of_many_columns)],
        50: [bad_quantized(signs=lambda rng: rng.randint(2, 255)), short_quantized, short_quantized, huge_exact,
             bad_certificate("sum_squares"), bad_certificate("largest"), cell_without_number, cell_without_number,
             bad_quantized(more_exact=lambda rng: rng.randint(1, 3)), bad_quantized(us=one_exact_more), bad_quantized(us=one_exact_less),
             bad_quantized(us=change_u(lambda base, expected: 1 - base - expected)),
             bad_quantized(us=change_u(lambda base, expected: 2 + (1 << 23) - base)),
             bad_quantized(us=change_u(lambda base, expected: 2 + (1 << 24) + 5 - base - expected)),
             bad_quantized(us=change_u(lambda base, expected: (1 << 31) - 1)),
             short_clustered, short_clustered, bad_certificate("sum_squares", bad_clustered), bad_certificate("largest", bad_clustered),
             bad_clustered(ends=end_of_no_number), bad_clustered(ends=end_of_no_number), bad_clustered(ends=ends_descending),
             bad_clustered(lambda rng: rng.choice((1, 3)), count=lambda rng: rng.choice((3, 255))), huge_exact,
             bad_clustered(more_exact=lambda rng: rng.randint(1, 3)), bad_clustered(us=one_exact_of_clusters(1)),
             bad_clustered(us=one_exact_of_clusters(0)), bad_clustered(us=change_cluster_u(lambda count: 2 + 256 * count)),
             bad_clustered(us=change_cluster_u(lambda count: (1 << 32) - 1)),
             bad_clustered(us=change_cluster_u(lambda count: 1 + (1 << 31)))],
        56: [bad_parted(one_side), bad_parted(cut_side), bad_parted(cut_side), bad_parted(granules_of(7)), bad_parted(granules_of(255)),
             bad_parted(side_of_form(SAME, CLASSED, SCALED, QUANTIZED, SPARSE, PARTED, 11, 255)),
             bad_parted(side_of_form(ZIGZAG), dtypes=[d for d in DTYPES if not may_zigzag(d)]),
             bad_parted(side_of_form(STORED), dtypes=(9, 10))],
        57: [bad_coded(rank_above), bad_coded(rank_above), bad_coded(value_outside), bad_coded(no_coded_bits), bad_coded(no_distance),
             bad_coded(coded_symbol_bits, (8,)), lambda rng: frame_around(rng, 10, parted_block(rng, 10, 200, 0, (random_const, more_sides)), flags=1)],
        58: [bad_patched(patched_first(lambda rng: rng.choice((7, 8, 64, 127, 135, rng.randint(8, 127))))), short_patched,
             bad_patched(high_threshold, dtypes=[d for d in DTYPES if DTYPES[d].width == 1]), bad_patched(none_or_all_patched),
             bad_patched(patched_side(SAME, CLASSED, SCALED, QUANTIZED, SPARSE, PARTED, PATCHED, 12, 255)), bad_patched(cut_patched),
             bad_patched(cut_patched), bad_patched(patched_side(ZIGZAG), dtypes=[d for d in DTYPES if not may_zigzag(d)])],
        52: [bad_sparse(make) for make in (
            lambda rng: {"m": lambda m, n: 0}, lambda rng: {"m": lambda m, n: n // 16 + 1},
            lambda rng: {"m": lambda m, n: rng.randint(n // 16 + 1, n // 8 + 1)}, body_byte(1, lambda rng: 255),
            lambda rng: {"k": lambda k: rng.choice((21, 22, 31, 32, 64, 255))},
            body_byte(2, lambda rng: rng.choice((21, 64, 255))),
            lambda rng: {"b": lambda b, bits: rng.choice((bits + 1, bits + 8, 65))}, word_of_ones,
            body_byte(3, lambda rng: rng.choice((65, 128, 255))),
            lambda rng: {"escapes": lambda count, b, escapes: (0, b, escapes)},
            lambda rng: {"escapes": lambda count, b, escapes: (count + 1, b, escapes + [escapes[0]])},
            lambda rng: {"escapes": lambda count, b, escapes: (count - 1, b, escapes[1:])},
            lambda rng: {"escapes": lambda count, b, escapes: (rng.choice((65535, min(65535, count + 4000))), b, escapes)},
            lambda rng: {"escapes": lambda count, b, escapes: (count, 0, escapes)},
            lambda rng: {"escapes": lambda count, b, escapes: (count, rng.choice((64, 65, 127)), escapes)},
            lambda rng: {"escapes": lambda count, b, escapes: (count, b, escapes[:-1] + [(1 << b) - 2])}, escape_of_ones,
            changed_places(equal_places), changed_places(descending_places), changed_places(place_behind),
            changed_places(place_behind), lambda rng: {"upper": lambda upper: one_more(rng, upper)},
            lambda rng: {"upper": lambda upper: one_fewer(rng, upper)},
            lambda rng: {"filling": lambda m: dirty_filling(rng, m)},
            lambda rng: {"behind": rng.choice((b"\x00", rng.randbytes(rng.randint(1, 9))))}, cut_piece)],
        53: [block_of_another_frame, other_half(lambda blocks: 0), other_half(lambda blocks: blocks - 1, 3),
             other_half(lambda blocks: 256, 1, many_blocks), other_half(lambda blocks: 0, 3, lambda rng, flags: small_delta(rng))],
        54: [new_form(form) for form in NEW_FORMS] + [delta_of_form(form) for form in NEW_FORMS[:2]] + [
            form_without(form, some_lossy) for form in NEW_FORMS[-2:]] + [new_form(255, size) for size in (0, 1, 70000)],

    }


# ---- 8. Files ----

def random_text(rng, parts):
    """A text that partly repeats itself."""
    text = bytearray()
    for _ in range(parts):
        text += rng.choice((b"", b'"weight":', b'{"dtype":"BF16","shape":[1,2]}', rng.randbytes(rng.choice((1, 2, 30))),
                            bytes(rng.choice((254, 255, 256, 510, 600)))))
        begin = rng.randint(0, len(text))
        text += text[begin:begin + rng.choice((4, 40, 260, 510))]
    return bytes(text) + rng.choice((b"{", b"{}"))


@dataclass
class Snap:
    """A .bsnap file to write, not a delta. pieces: the pieces of the text; errors: what to make wrong."""
    kind: int
    pieces: list
    frames: List[Frame]
    names: bool = False
    errors: dict = field(default_factory=dict)

    def error(self, name, right):
        return self.errors.get(name, right)

    def text(self):
        return b"".join(self.pieces)

    def source(self):
        text = le64(len(self.text())) + self.text() if self.kind == decoder.KIND_SAFETENSORS else b""
        return text + b"".join(frame.elements() for frame in self.frames)

    def text_record(self, rng, text):
        coded = self.error("coded", lambda same: same)(ListEncoder(rng).outermost(decoder.exchange(text, False), 8))
        data = self.error("text magic", decoder.TEXT_MAGIC) + le64(self.error("piece size", len(text)))[:4] + le64(len(coded))[:4] + coded
        return data + le64(xxh3(data) ^ self.error("text check", 0))

    def end_record(self, check, records, end):
        names = decoder.names_of(self.text()) if self.names else []
        data = bytearray(decoder.encode_end_record(check, (len(self.source()) + self.error("end size", 0)) & decoder.M64,
                                                   self.error("tree", lambda same: same)(records),
                                                   self.error("names", lambda same: same)(names), end,
                                                   self.error("end features", self.error("features", bytes(8))),
                                                   self.error("sha256", lambda right: b"")(decoder.strong_hash(self.source()))))
        for place, change in (("count", 16), ("root", -40), ("record size", -24), ("end check", -16)):
            data[change] ^= self.error(place, 0)
        return bytes(data[:-8]) + self.error("end magic", decoder.FILE_END_MAGIC)

    def write(self, rng):
        size = decoder.UNKNOWN_SIZE if self.error("unknown size", False) else len(self.source())
        header = self.error("magic", decoder.FILE_MAGIC)
        header += bytes([self.error("version", 1), self.error("kind", self.kind)]) + self.error("reserved", bytes(2))
        header += le64(self.error("text size", len(self.text())))[:4] + le64(self.error("size", lambda same: same)(size))
        header += self.error("features", bytes(8))
        check = le64(xxh3(header) ^ self.error("header check", 0))
        data, records, begin = header + check, [], 8 * self.kind
        between = lambda: self.error("ancillary", lambda: b"")()
        for text in self.pieces:
            at = len(data)
            data += between() + self.text_record(rng, text)
            records.append((begin, at, decoder.u64(data, len(data) - 8)))
            begin += len(text)
        for frame in self.frames:
            frame.flags = frame.flags & ~1 if frame is self.error("without checks", None) else frame.flags | 1
            written = frame.write()
            records.append((begin, len(data), decoder.seal_of(written)))
            data += between() + written
            begin += len(frame.elements())
        data += self.error("gap", b"") + between() + self.end_record(check, records, len(data) + self.error("records end", 0))
        return data[:len(data) - self.error("cut", 0)] + self.error("behind", b"")


def some_frames(rng):
    return [rng.choice((small_frame, valid_cells, valid_empty))(rng) for _ in range(rng.choice((0, 1, 1, 2, 3)))]


def cut(rng, text, most):
    pieces = []
    while text:
        n = rng.randint(1, min(most, len(text)))
        pieces.append(text[:n])
        text = text[n:]
    return pieces


def snap_of_header(rng, most=400, titles=20):
    """A file whose header describes tensors that fit the data. It has several pieces, and sometimes a tree of names."""
    frames = some_frames(rng)
    size, at, parts = sum(len(frame.elements()) for frame in frames), 0, []
    while at < size or not parts and rng.random() < 0.8:
        n = min(rng.choice((0, 1, size - at, rng.randint(0, size - at))), size - at)
        if len(parts) > titles:
            n = size - at
        name = rng.choice(("h.%d.weight", "b}\u00e9\"%d", "%d", "\u65e5/%d", "__metadata__%d")) % len(parts)
        parts.append((name, {"dtype": rng.choice(("U8", "I8", "F8_E4M3")), "shape": [n], "data_offsets": [at, at + n]}))
        at += n
    rng.shuffle(parts)
    header = dict(rng.choice(([], [("__metadata__", {"a": "b", "}": "\\"})])) + parts)
    text = json.dumps(header, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, None, 1))).encode()
    return Snap(1, cut(rng, text + b" " * rng.choice((0, 0, 7)), most), frames, rng.random() < 0.8)


def random_snap(rng, kind=None, text=None):
    kind = rng.randrange(2) if kind is None else kind
    if kind == decoder.KIND_RAW:
        return Snap(kind, [], some_frames(rng))
    if text is None:
        pieces = [random_text(rng, rng.randint(1, 30)) for _ in range(rng.choice((1, 1, 2, 3)))]
    else:
        pieces = [text]
    if not all(0 < len(text) <= decoder.PIECE for text in pieces):
        raise Impossible
    return Snap(kind, pieces, some_frames(rng))


def with_errors(snap, **errors):
    snap.errors.update({name.replace("_", " "): error for name, error in errors.items()})
    return snap


def snap_long_text(rng):
    """A piece of the largest size, which repeats its beginning, and a second piece."""
    text = rng.randbytes(rng.choice((20000, 300)))
    text = text + b"\x07" * (decoder.PIECE - len(text) - 200) + text[:200]
    snap = random_snap(rng, 1, text)
    snap.pieces.append(b"{}")
    return snap


def valid_file_recipes():
    return [random_snap, lambda rng: random_snap(rng, 0), lambda rng: random_snap(rng, 1), snap_of_header, snap_of_header,
            lambda rng: with_errors(random_snap(rng), unknown_size=True), snap_long_text, lambda rng: random_snap(rng, 1, b"{}"),
            newer_features, with_sha256(), with_ancillary, with_ancillary, snap_of_header, lambda rng: Snap(0, [], []), lambda rng: snap_of_header(rng, 20)]


def bad_snap(kind=None, **errors):
    return lambda rng: with_errors(random_snap(rng, kind), **errors)


def bad_tree(change):
    def made(rng):
        snap = random_snap(rng)
        snap.frames.append(small_frame(rng))
        return with_errors(snap, tree=change)
    return made


def bad_names(change):
    def made(rng):
        snap = snap_of_header(rng)
        if not decoder.names_of(snap.text()):
            raise Impossible
        snap.names = True
        return with_errors(snap, names=change)
    return made


def name_of_none(snap):
    """A tree of one name for a text that has a different number of names"""
    if len(decoder.names_of(snap.text())) == 1:
        raise Impossible
    return with_errors(snap, names=lambda names: [0])


def text_of_raw(rng):
    """Kind 0 with a text record; all else is right."""
    snap = random_snap(rng, 1)
    return with_errors(snap, kind=0, text_size=0)


def file_features(incompatible, compatible):
    return le64(incompatible)[:4] + le64(compatible)[:4]


def newer_features(rng):
    """Compatible features that this version does not know."""
    return with_errors(random_snap(rng), features=file_features(0, 1 << rng.randrange(2, 32)))


def with_sha256(change=lambda right: right):
    return lambda rng: with_errors(random_snap(rng), features=file_features(0, decoder.FILE_SHA256), sha256=change)


def ancillary(kind, content, check=0):
    data = decoder.ANCILLARY_MAGIC + le64(kind)[:4] + le64(len(content)) + content
    return data + le64(xxh3(data) ^ check)


def with_ancillary(rng):
    """Padding, registered and private records, before, between and after all other records"""
    some = lambda: rng.choice((lambda: ancillary(0, bytes(rng.randint(0, 300))), lambda: ancillary(rng.randint(1, 63), rng.randbytes(rng.randint(0, 300))),
                               lambda: ancillary(rng.randint(64, 127), rng.randbytes(3))))()
    return with_errors(rng.choice((random_snap, snap_of_header))(rng), ancillary=lambda: b"".join(some() for _ in range(rng.randint(0, 3))))


def without_checks(rng):
    snap = random_snap(rng)
    snap.frames.append(small_frame(rng))
    return with_errors(snap, without_checks=rng.choice(snap.frames))


def exchanged(rng):
    """Two frames of equal size change places"""
    dtype = rng.choice(list(DTYPES))
    parts = [pack([random_element(rng, dtype) for _ in range(9)], DTYPES[dtype].width) for _ in range(2)]
    if parts[0] == parts[1]:
        raise Impossible
    snap = Snap(0, [], [Frame(dtype, 6, [stored_block(part, DTYPES[dtype].width)], rng.choice((1, 3))) for part in parts])
    return with_errors(snap, tree=lambda r: [(*r[0][:2], r[1][2]), (*r[1][:2], r[0][2])])


def said_quantized(rng):
    return with_errors(random_snap(rng), features=file_features(0, decoder.FILE_QUANTIZED))


def invalid_file_recipes():
    """Recipes for each condition from S1 to S33 that a file without a base can break."""
    return {
        1: [bad_snap(magic=b"\xB5SNPFILF")], 2: [bad_snap(version=0), bad_snap(version=2)], 3: [bad_snap(kind=3)],
        4: [bad_snap(cut=1), bad_snap(cut=30)], 5: [bad_snap(behind=b"\x00")], 6: [bad_snap(header_check=1)],
        7: [bad_snap(1, text_size=0), bad_snap(0, text_size=9), bad_snap(1, text_size=decoder.MAX_TEXT + 1)],
        8: [bad_snap(size=lambda size: 1 << 48), bad_snap(1, size=lambda size: 8)],
        9: [bad_snap(1, text_check=1 << 63), bad_snap(ancillary=lambda: ancillary(64, b"abc", 1))],
        10: [bad_snap(1, text_magic=b"\xB5TXU"), text_of_raw, bad_snap(0, gap=b"\x00\x00\x00\x00"), bad_snap(gap=b"\xB5ABC"),
             bad_snap(0, gap=decoder.PLACE_MAGIC)],
        11: [bad_snap(1, piece_size=0), bad_snap(1, piece_size=decoder.PIECE + 1), bad_snap(1, coded=lambda coded: coded + bytes(300000))],
        12: [bad_snap(1, coded=lambda coded: coded + b"\x00"), bad_snap(1, coded=lambda coded: coded[:-1]),
             bad_snap(1, coded=lambda coded: b""), bad_snap(1, coded=lambda coded: b"\xFF" + coded[1:])],
        21: [said_quantized], 22: [bad_snap(size=lambda size: size + 1), bad_snap(end_size=-1)],
        23: [bad_snap(count=1), bad_snap(records_end=1), bad_snap(record_size=8)], 24: [bad_snap(end_check=1)],
        25: [bad_snap(root=4), bad_tree(lambda r: r[:-1] + [(r[-1][0] + 1, *r[-1][1:])]),
             bad_tree(lambda r: r[:-1] + [(r[-1][0], r[-1][1] - 1, r[-1][2])]), bad_names(lambda names: names[:-1] + [names[-1] + 1]),
             bad_names(lambda names: names[:-1] + [names[-1] ^ 1 << 63])],
        26: [bad_names(lambda names: names + [5]), lambda rng: name_of_none(random_snap(rng, 1))],
        27: [bad_snap(end_magic=b"ELIFPNS\xB4")],
        28: [bad_snap(reserved=b"\x02\x00"), bad_snap(reserved=b"\x00\x01"), lambda rng: bad_snap(features=file_features(1 << rng.randrange(1, 32), 0))(rng)],
        32: [bad_snap(ancillary=lambda: ancillary(128, b"abc"))],
        33: [bad_snap(ancillary=lambda: ancillary(0, bytes(8) + b"a")),
             bad_snap(ancillary=lambda: decoder.ANCILLARY_MAGIC + bytes(4) + le64(decoder.MOST_ANCILLARY + 1) + bytes(100))],
        30: [without_checks], 31: [exchanged, bad_tree(lambda r: r[:-1] + [(*r[-1][:2], r[-1][2] ^ 1 << 63)])],
        35: [with_sha256(lambda right: right[:-1] + bytes([right[-1] ^ 1])), with_sha256(lambda right: bytes(32))],
        29: [bad_snap(end_features=file_features(0, 4)), bad_snap(end_features=file_features(1, 0))],
    }


# ---- command line ----

def attempt(recipe, rng):
    """Tries a recipe until it succeeds. Some recipes need luck."""
    for _ in range(500):
        try:
            made = recipe(rng)
            if isinstance(made, bytes):
                return None, made
            return made, made.write(rng) if isinstance(made, Snap) else made.write()
        except Impossible:
            pass
    raise RuntimeError("a recipe that never succeeds: %s" % getattr(recipe, "__qualname__", recipe))


class Writer:
    def __init__(self, directory, seed):
        self.directory = directory
        self.seed = seed

    def rng(self, kind, i):
        return random.Random("%d/%s/%d" % (self.seed, kind, i))

    def put(self, name, data):
        with open(os.path.join(self.directory, name), "wb") as stream:
            stream.write(data)

    def put_base(self, stem, frame):
        if frame and frame.given_base:
            self.put(stem + ".base", bytes([frame.given_base.dtype]) + frame.given_base.elements)

    def shuffled(self, kind, recipes):
        """Orders the recipes anew for each seed, so that many seeds with few cases use all recipes."""
        recipes = list(recipes)
        random.Random("%d/%s" % (self.seed, kind)).shuffle(recipes)
        return recipes

    def valid(self, count):
        recipes = self.shuffled("valid", valid_recipes())
        for i in range(1, count + 1):
            frame, data = attempt(recipes[(i - 1) % len(recipes)], self.rng("valid", i))
            stem, elements = "v%05d" % i, frame.elements()
            decoded = decoder.decode_frame(data, base=frame.given_base)
            assert (decoded.elements, decoded.dtype, decoded.size) == (elements, frame.dtype, len(data)), stem
            self.put(stem + ".frame", data)
            self.put_base(stem, frame)
            if len(elements) > 1 << 22:
                self.put(stem + ".large", b"%d" % frame.count)
            else:
                self.put(stem + ".elements", elements)

    def invalid(self, count):
        recipes = invalid_recipes()
        rules = self.shuffled("rules", recipes)
        for i in range(1, count + 1):
            rule = rules[(i - 1) % len(rules)]
            turn = (i - 1) // len(rules) + self.seed
            frame, data = attempt(recipes[rule][turn % len(recipes[rule])], self.rng("invalid", i))
            name = "x%05d-R%d.frame" % (i, rule)
            found = decoder.rejected_rule(decoder.decode_frame, data, base=frame and frame.given_base)
            assert found is not None and decoder.rule_agrees(rule, found), "%s: R%s" % (name, found)
            self.put(name, data)
            self.put_base(name[:-len(".frame")], frame)

    def files(self, count):
        recipes = self.shuffled("files", valid_file_recipes())
        for i in range(1, count + 1):
            snap, data = attempt(recipes[(i - 1) % len(recipes)], self.rng("file", i))
            assert decoder.decode_file(data) == snap.source(), "f%05d" % i
            self.put("f%05d.bsnap" % i, data)
            self.put("f%05d.source" % i, snap.source())
        recipes = invalid_file_recipes()
        rules = self.shuffled("rules of files", recipes)
        for i in range(1, count + 1):
            rule = rules[(i - 1) % len(rules)]
            turn = (i - 1) // len(rules) + self.seed
            _, data = attempt(recipes[rule][turn % len(recipes[rule])], self.rng("invalid file", i))
            name, found = "g%05d-S%d.bsnap" % (i, rule), decoder.rejected_rule(decoder.decode_file, data)
            assert found == "S%d" % rule, "%s: %s" % (name, found)
            self.put(name, data)


def main():
    parser = argparse.ArgumentParser(description="Makes frames and files, valid and invalid, to test readers with.")
    parser.add_argument("directory", metavar="OUT_DIR")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300, help="frames of each kind; of files a quarter of it")
    parser.add_argument("--kinds", default="valid,invalid,files", help="some of valid,invalid,files")
    arguments = parser.parse_args()
    kinds = arguments.kinds.split(",")
    if not set(kinds) <= {"valid", "invalid", "files"}:
        parser.error("kinds are valid, invalid, files")
    os.makedirs(arguments.directory, exist_ok=True)
    writer = Writer(arguments.directory, arguments.seed)
    if "valid" in kinds:
        writer.valid(arguments.count)
    if "invalid" in kinds:
        writer.invalid(arguments.count)
    if "files" in kinds:
        writer.files((arguments.count + 3) // 4)
    return 0


if __name__ == "__main__":
    sys.exit(main())
