#!/usr/bin/env python3
"""A decoder of the bitsnap format, version 1, written from docs/FORMAT.md alone.

It is slow and plain on purpose. It follows the document section by section and shares no code with the codec. The
numbers in the comments are its sections, and its conditions R1 to R57 and S1 to S35.

    decoder.py frame FILE [--base BASE]    write the elements of a frame to standard output
    decoder.py file FILE [--base BASE ...] write the source of a .bsnap file to standard output
    decoder.py check DIR                   decode all that generate.py wrote to DIR, and compare

The base of a frame is a file that holds one byte, the dtype, and then the elements. The base of a file is a
.safetensors file.
"""

import argparse
import bisect
import fractions
import functools
import hashlib
import json
import math
import os
import struct
import sys
from dataclasses import dataclass, field
from typing import List, Optional, Tuple


def rule_name(rule):
    return rule if isinstance(rule, str) else "R%d" % rule


class Reject(Exception):
    """One of the conditions of section 9 applies: a number for R1 to R57, text for "S1" to "S35"."""

    def __init__(self, rule, message, offset):
        super().__init__("%s at byte %d: %s" % (rule_name(rule), offset, message))
        self.rule = rule
        self.message = message
        self.offset = offset


class TooLarge(Exception):
    """The result would have more bytes than the caller allows. The source may be valid or not."""


DEFAULT_LIMIT = 1 << 30


# ---- 2. Notation: XXH3-64 with seed 0 ----

M32 = 0xFFFFFFFF
M64 = 0xFFFFFFFFFFFFFFFF

P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
MX1, MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")


def u16(data, pos):
    return int.from_bytes(data[pos:pos + 2], "little")


def u32(data, pos):
    return int.from_bytes(data[pos:pos + 4], "little")


def u64(data, pos):
    return int.from_bytes(data[pos:pos + 8], "little")


def le64(value):
    return value.to_bytes(8, "little")


def rotl64(value, bits):
    return (value << bits | value >> (64 - bits)) & M64


def fold128(a, b):
    product = a * b
    return (product ^ product >> 64) & M64


def avalanche_xxh64(h):
    h = (h ^ h >> 33) * P64_2 & M64
    h = (h ^ h >> 29) * P64_3 & M64
    return h ^ h >> 32


def avalanche_xxh3(h):
    h = (h ^ h >> 37) * MX1 & M64
    return h ^ h >> 32


def mix16(data, pos, secret):
    return fold128(u64(data, pos) ^ u64(SECRET, secret), u64(data, pos + 8) ^ u64(SECRET, secret + 8))


def xxh3_upto_16(data):
    n = len(data)
    if n == 0:
        return avalanche_xxh64(u64(SECRET, 56) ^ u64(SECRET, 64))
    if n <= 3:
        combined = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return avalanche_xxh64(combined ^ u32(SECRET, 0) ^ u32(SECRET, 4))
    if n <= 8:
        h = (u32(data, n - 4) + (u32(data, 0) << 32)) ^ u64(SECRET, 8) ^ u64(SECRET, 16)
        h ^= rotl64(h, 49) ^ rotl64(h, 24)
        h = h * MX2 & M64
        h = (h ^ (h >> 35) + n) * MX2 & M64
        return h ^ h >> 28
    low = u64(data, 0) ^ u64(SECRET, 24) ^ u64(SECRET, 32)
    high = u64(data, n - 8) ^ u64(SECRET, 40) ^ u64(SECRET, 48)
    swapped = int.from_bytes(le64(low), "big")
    return avalanche_xxh3((n + swapped + high + fold128(low, high)) & M64)


def xxh3_upto_240(data):
    n = len(data)
    acc = n * P64_1
    if n <= 128:
        for i in range((n - 1) // 32, -1, -1):
            acc += mix16(data, 16 * i, 32 * i) + mix16(data, n - 16 * (i + 1), 32 * i + 16)
        return avalanche_xxh3(acc & M64)
    for i in range(8):
        acc += mix16(data, 16 * i, 16 * i)
    acc = avalanche_xxh3(acc & M64)
    for i in range(8, n // 16):
        acc += mix16(data, 16 * i, 16 * (i - 8) + 3)
    return avalanche_xxh3((acc + mix16(data, n - 16, 136 - 17)) & M64)


def secret_lanes(pos):
    return struct.unpack_from("<8Q", SECRET, pos)


STRIPE_SECRETS = [secret_lanes(8 * i) for i in range(16)]


def accumulate(acc, lanes, secret):
    for i in range(8):
        keyed = lanes[i] ^ secret[i]
        acc[i ^ 1] += lanes[i]
        acc[i] = acc[i] + (keyed & M32) * (keyed >> 32) & M64


def xxh3_long(data):
    n = len(data)
    acc = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]
    # stripes of 64 bytes; the last one, which may overlap the one before, has a place of its own in the secret
    stripes = (n - 1) // 64
    for i in range(stripes):
        accumulate(acc, struct.unpack_from("<8Q", data, 64 * i), STRIPE_SECRETS[i % 16])
        if i % 16 == 15:
            acc = [((a & M64) ^ (a & M64) >> 47 ^ s) * P32_1 & M64 for a, s in zip(acc, secret_lanes(128))]
    accumulate(acc, struct.unpack_from("<8Q", data, n - 64), secret_lanes(121))
    h = n * P64_1
    for i in range(4):
        h += fold128(acc[2 * i] & M64 ^ u64(SECRET, 11 + 16 * i), acc[2 * i + 1] & M64 ^ u64(SECRET, 19 + 16 * i))
    return avalanche_xxh3(h & M64)


def xxh3(data):
    if len(data) <= 16:
        return xxh3_upto_16(data)
    return xxh3_upto_240(data) if len(data) <= 240 else xxh3_long(data)


# ---- 3. Elements and planes ----

@dataclass(frozen=True)
class Dtype:
    name: str
    width: int              # w, bytes
    is_float: bool


DTYPES = {
    1: Dtype("BOOL", 1, False), 2: Dtype("I8", 1, False), 3: Dtype("I16", 2, False), 4: Dtype("I32", 4, False),
    5: Dtype("I64", 8, False), 6: Dtype("F8_E4M3", 1, True), 7: Dtype("F8_E5M2", 1, True), 8: Dtype("F16", 2, True),
    9: Dtype("BF16", 2, True), 10: Dtype("F32", 4, True), 11: Dtype("F64", 8, True),
}
F16, BF16, F32, F64 = 8, 9, 10, 11


def value_of_field_order(x, dtype, e, base):
    """3.1, inverse: the element v whose bits in field order are x."""
    bits = 8 * DTYPES[dtype].width
    if dtype == F64:
        symbol, sign, mantissa = x >> 56, x >> 55 & 1, x >> 3 & ((1 << 52) - 1)
        exponent = symbol + base if symbol else 0
        return sign << 63 | exponent << 52 | mantissa
    rest_bits = bits - 1 - e
    symbol, sign, rest = x >> (bits - e), x >> rest_bits & 1, x & ((1 << rest_bits) - 1)
    return sign << (bits - 1) | symbol << rest_bits | rest


def pair_order(n, w):
    """3.2: the element that each position of a plane belongs to."""
    order = list(range(n))
    for group in range(n // 64):
        for j in range(64 // w):
            for q in range(w):
                order[64 * group + w * j + q] = 64 * group + 64 // w * q + j
    return order


def bits_of(mask, n):
    """The first n bits of a mask (2), as a list."""
    return [byte >> i & 1 for byte in mask for i in range(8)][:n]


def has_bits_behind(mask, n):
    return n % 8 != 0 and mask[-1] >> n % 8 != 0


def raw_plane_size(n, varying):
    """3.3"""
    if varying == 0xFF:
        return n
    return bin(varying).count("1") * (8 * (n // 64) + (n % 64 + 7) // 8)


def decode_raw_plane(data, pos, n, varying):
    """3.3: the varying bits of the n bytes of a plane, in position order."""
    if varying == 0xFF:
        return data[pos:pos + n]
    plane = bytearray(n)
    for start in range(0, n, 64):
        m = min(64, n - start)
        for bit in range(8):
            if varying >> bit & 1:
                mask = data[pos:pos + (m + 7) // 8]
                if has_bits_behind(mask, m):
                    raise Reject(22, "a 1 behind the last bit of a bit plane", pos + len(mask) - 1)
                pos += len(mask)
                for i, one in enumerate(bits_of(mask, m)):
                    plane[start + i] |= one << bit
    return bytes(plane)


# ---- 4. Lists ----

RAW, CONST_LIST, TREE, WITH_ESCAPE, SPLIT0, SPLIT2 = 0, 1, 2, 4, 5, 6
ESCAPE = 256                # 4.1: the escape counts as symbol 256
MAX_DEPTH = 5               # lists of this depth have no lists inside
MIN_SYMBOLS = 16            # of a tree or a split


@dataclass
class Node:
    bits: int                                   # k; there are 2^k slots
    slots: list = field(default_factory=list)   # a symbol, ESCAPE, or a Node


def build_nodes(lengths):
    """4.2 and 4.3: the root of the nodes that the code lengths make."""
    codes = sorted((length, symbol) for symbol, length in lengths.items())
    consumed = 0

    def node(d):
        nonlocal consumed
        length = codes[consumed][0]
        same = [symbol for code_length, symbol in codes[consumed:] if code_length == length]
        with_escape = len(same)
        without_escape = with_escape - (ESCAPE in same)
        m = length - d
        k = m if m <= 2 or (m <= 4 and without_escape + 4 >= 2 ** m) else 2
        a = min(with_escape, 2 ** k) if k == m else 0
        consumed += a
        result = Node(k, same[:a])
        for _ in range(a, 2 ** k):
            result.slots.append(node(d + k))
        return result

    return node(0)


class ListDecoder:
    """Decodes one outermost list, with all lists inside it, from the bytes start .. end - 1 of data."""

    def __init__(self, data, start, end):
        self.data = data
        self.pos = start
        self.end = end

    def take(self, size):
        if size > self.end - self.pos:
            raise Reject(24, "the list does not end inside its bytes", self.end)
        self.pos += size
        return self.data[self.pos - size:self.pos]

    def raw(self, m, b):
        symbols = self.take(m)
        for i, symbol in enumerate(symbols):
            if symbol >> b:
                raise Reject(25, "symbol %d has more than %d bits" % (symbol, b), self.pos - m + i)
        return symbols

    def list(self, m, b, depth=0):
        """4: the m symbols, of b bits each, of the list that begins here."""
        if m == 0:
            return b""
        start = self.pos
        kind = self.take(1)[0]
        if kind == RAW:
            return self.raw(m, b)
        if kind == CONST_LIST:
            return self.raw(1, b) * m

        escape = kind >> 4 if kind & 15 == WITH_ESCAPE and 1 <= kind >> 4 <= 8 else 0
        if kind not in (TREE, SPLIT0, SPLIT2) and not escape:
            raise Reject(23, "a list of the reserved kind 0x%02X" % kind, start)
        if m < MIN_SYMBOLS:
            raise Reject(29, "a list of %d symbols of kind 0x%02X" % (m, kind), start)
        if depth >= MAX_DEPTH and kind != TREE:
            raise Reject(30, "kind 0x%02X at depth %d" % (kind, depth), start)

        if kind == SPLIT0 or kind == SPLIT2:
            return self.split(m, b, kind, depth)
        return self.node(build_nodes(self.table(b, escape)), m, lambda s: self.list(s, b, depth + 1))

    def table(self, b, escape):
        """4.1: the code lengths by symbol, the escape among them."""
        start = self.pos
        first, count = self.take(1)[0], self.take(1)[0] + 1
        if (first + count - 1) >> b:
            raise Reject(25, "a table up to symbol %d, of %d bits" % (first + count - 1, b), start)
        lengths, symbol, absent_before, nibbles, byte = {}, first, 0, 0, 0
        while symbol < first + count:
            if nibbles % 2 == 0:
                byte = self.take(1)[0]
            nibble = byte >> 4 * (nibbles % 2) & 15
            nibbles += 1
            if 1 <= nibble <= 8:
                lengths[symbol] = nibble
                symbol += 1
                absent_before = 0
                continue
            absent = 2 ** (nibble - 8) if nibble else 1
            if symbol == first or symbol + absent >= first + count:
                raise Reject(26, "the table begins or ends with absent symbols", self.pos - 1)
            if absent_before and absent >= absent_before:
                raise Reject(26, "absent symbols that stand not as 4.1 has them", self.pos - 1)
            symbol += absent
            absent_before = absent
        if nibbles % 2 == 1 and byte >> 4:
            raise Reject(27, "the unused nibble of the table is not 0", self.pos - 1)
        if escape:
            lengths[ESCAPE] = escape
        if len(lengths) < 2 or sum(2 ** (8 - length) for length in lengths.values()) != 256:
            raise Reject(28, "the lengths are no complete code", start)
        return lengths

    def mask(self, n):
        mask = self.take((n + 7) // 8)
        if has_bits_behind(mask, n):
            raise Reject(32, "a 1 behind the last bit of a mask", self.pos - 1)
        return bits_of(mask, n)

    def node(self, node, s, escapes):
        """4.3: the symbols of the s that pass this node; escapes(s) decodes s escaped ones."""
        if s == 0:
            return b""
        numbers = [0] * s
        for _ in range(node.bits):
            numbers = [2 * number + one for number, one in zip(numbers, self.mask(s))]
        inside = {}
        for number, slot in enumerate(node.slots):
            if isinstance(slot, Node):
                inside[number] = iter(self.node(slot, numbers.count(number), escapes))
            elif slot == ESCAPE:
                inside[number] = iter(escapes(numbers.count(number)))
        return bytes(next(inside[number]) if number in inside else node.slots[number] for number in numbers)

    def split(self, m, b, kind, depth):
        """4.4"""
        mask = self.list((m + 7) // 8, 8, depth + 1)
        if has_bits_behind(mask, m):
            raise Reject(32, "a 1 behind the last bit of the mask of a split", self.pos - 1)
        ones = bits_of(mask, m)
        if kind == SPLIT0:
            low = bytes(m - sum(ones))
        else:
            low = self.list(m - sum(ones), b, depth + 1)
        high = self.list(sum(ones), b, depth + 1)
        sides = iter(low), iter(high)
        return bytes(next(sides[one]) for one in ones)


def decode_list(data, m, b=8):
    """Decodes one list alone. Returns the bytes of its m symbols, and the position in data where it ends."""
    decoder = ListDecoder(data, 0, len(data))
    return decoder.list(m, b), decoder.pos


# ---- 5. Blocks ----

STORED, CONST, SPLIT, BYTES, SAME, CLASSED, SCALED, QUANTIZED, SPARSE, ZIGZAG, PARTED, PATCHED = range(12)
LAST_FORM = PATCHED         # all above it are of newer versions
MAX_BASE = 1792


@dataclass(frozen=True)
class Base:
    """The base that a delta is decoded with (6.3)."""
    dtype: int
    elements: bytes

    @property
    def count(self):
        return len(self.elements) // DTYPES[self.dtype].width

    def cell(self, first, n):
        w = DTYPES[self.dtype].width
        return self.elements[first * w:(first + n) * w]


@dataclass(frozen=True)
class BaseInfo:
    """The description of the base in the header of a delta (6.3)."""
    role: int
    dtype: int
    id: int


@dataclass
class Header:
    dtype: int
    log2: int                               # L
    flags: int
    count: int
    extensions: List[Tuple[int, bytes]]
    size: int
    check: int
    base: Optional[BaseInfo] = None
    quantizer: Optional[Tuple[int, int]] = None     # its family, and the cells of an octave or the most clusters (6.5)
    columns: Optional[int] = None           # C (6.5)

    @property
    def cell(self):
        return 1 << self.log2

    @property
    def cells(self):
        return (self.count + self.cell - 1) // self.cell

    @property
    def has_checks(self):
        return bool(self.flags & 1)

    @property
    def has_content_id(self):
        return bool(self.flags & 2)

    @property
    def is_quantized(self):
        return bool(self.flags & IS_QUANTIZED)

    @property
    def has_footer(self):
        """6"""
        return self.cells > 1 or bool(self.flags & (HAS_CONTENT_ID | IS_QUANTIZED | HAS_FOOTER_EXTENSIONS))

    @property
    def has_footer_extensions(self):
        return bool(self.flags & HAS_FOOTER_EXTENSIONS)


@dataclass
class Block:
    offset: int         # of the head, in the frame
    size: int           # head, check and body
    head: int
    form: int
    first: int          # the number of its first element in the frame
    count: int          # n
    cells: int          # 1; the length of the run for a CONST block
    check: Optional[int]
    certificate: Optional["Certificate"] = None     # of a QUANTIZED block


def need(data, pos, size):
    if pos + size > len(data):
        raise Reject(6, "the source ends before the frame", len(data))


class SplitBlock:
    """5.2: the parts of a SPLIT block, not yet decoded."""

    def __init__(self, data, start, end, dtype, n, is_side=False):
        self.data, self.start, self.end, self.dtype, self.n = data, start, end, dtype, n
        w = DTYPES[dtype].width
        bits = 8 * w
        if not DTYPES[dtype].is_float:
            raise Reject(19, "a SPLIT block of %s" % DTYPES[dtype].name, start)
        first = data[start]
        self.e = first & 15
        if first >> 6:
            raise Reject(19, "reserved bits of the descriptor", start)
        if self.e != 8 if dtype == F64 else not 1 <= self.e <= min(8, bits - 1):
            raise Reject(19, "a symbol of %d bits" % self.e, start)

        planes = w - 1 if self.e == 8 else w
        self.rest = [0xFF] * planes
        if self.e < 8:
            self.rest[-1] = (1 << (8 - self.e)) - 1
        if dtype == F64:
            self.rest[0] = 0xF8
        self.varying, self.values, self.base = self.rest, bytes(planes), 0

        pos = start + 1
        if first >> 4 & 1:
            self.need(pos + 2 * planes)
            self.varying, self.values = data[pos:pos + planes], data[pos + planes:pos + 2 * planes]
            self.check_constant_bits(pos)
            pos += 2 * planes
        if dtype == F64:
            self.need(pos + 2)
            self.base = u16(data, pos)
            if self.base > MAX_BASE:
                raise Reject(21, "a base of %d" % self.base, pos)
            pos += 2
        self.coded = bytes(planes)
        if first >> 5 & 1:
            self.need(pos + planes)
            self.coded = data[pos:pos + planes]
            for k, (coded, varying) in enumerate(zip(self.coded, self.varying)):
                if coded & ~varying or coded and (k != w - 2 if is_side else k == w - 1):
                    raise Reject(57, "coded bits that a plane cannot have", pos)
            if not any(self.coded):
                raise Reject(57, "there are no coded bits", pos)
            pos += planes
        self.raw = [varying & ~coded for varying, coded in zip(self.varying, self.coded)]
        self.descriptor = data[start:pos]

        self.planes = []        # where each begins
        for varying in self.raw:
            self.planes.append(pos)
            pos += raw_plane_size(n, varying)
            self.need(pos)
        self.list_start = pos

    def need(self, end):
        if end > self.end:
            raise Reject(18, "descriptor and raw planes are longer than the body", self.start)

    def check_constant_bits(self, pos):
        """R20"""
        for rest, varying, value in zip(self.rest, self.varying, self.values):
            if varying & ~rest:
                raise Reject(20, "varying bits that are not rest bits", pos)
            if value & ~(rest & ~varying):
                raise Reject(20, "values outside of the constant bits", pos)
        if list(self.varying) == self.rest:
            raise Reject(20, "there are no constant bits", pos)

    def check_record(self):
        """5.5"""
        record = self.descriptor
        for start, end in zip(self.planes, self.planes[1:] + [self.list_start]):
            record += le64(xxh3(self.data[start:end]))
        return record + le64(xxh3(self.data[self.list_start:self.end]))

    def decode_coded(self, reader, bits):
        """The coded bits of a byte"""
        groups, size = self.n // 64, 32 if bits & 0x80 else 16
        if reader.pos == self.end:
            raise Reject(57, "coded bits without a distance", reader.pos)
        distance = self.data[reader.pos]
        reader = ListDecoder(self.data, reader.pos + 1, self.end)
        stored = bytes(reader.list(groups * size, 8))
        symbols = bytearray(reader.list(self.n, 8))
        masks = []
        for g in range(groups):
            mask = int.from_bytes(stored[g * size:(g + 1) * size], "little")
            masks.append(mask ^ masks[g - distance] if 0 < distance <= g else mask)
            values = [v for v in range(8 * size) if masks[g] >> v & 1]
            for i in range(64 * g, 64 * g + 64):
                if symbols[i] >= len(values):
                    raise Reject(57, "a rank without a value", reader.pos)
                symbols[i] = values[symbols[i]]
        if any(symbol & ~bits for symbol in symbols):
            raise Reject(57, "a value that has other bits than the coded ones", reader.pos)
        return symbols, reader

    def decode(self):
        n, w = self.n, DTYPES[self.dtype].width
        planes = []
        for start, varying, value in zip(self.planes, self.raw, self.values):
            planes.append(bytes(byte | value for byte in decode_raw_plane(self.data, start, n, varying)))
        reader = ListDecoder(self.data, self.list_start, self.end)
        for k, bits in enumerate(self.coded):
            if bits:
                coded, reader = self.decode_coded(reader, bits)
                planes[k] = bytes(a | b for a, b in zip(planes[k], coded))
        symbols = reader.list(n, self.e)
        self.pos = reader.pos
        elements = bytearray(n * w)
        for position, element in enumerate(pair_order(n, w)):
            x = symbols[position] << (8 * w - self.e)
            for k, plane in enumerate(planes):
                x |= plane[position] << 8 * k
            v = value_of_field_order(x, self.dtype, self.e, self.base)
            elements[element * w:element * w + w] = v.to_bytes(w, "little")
        return bytes(elements)


def decode_split(split):
    """5.2"""
    elements = split.decode()
    if split.pos != split.end:
        raise Reject(33, "bytes behind the list of symbols", split.pos)
    return elements


def decode_planes(data, start, end, dtype, n):
    """5.3: the elements, and where they end"""
    w = DTYPES[dtype].width
    elements, order, pos = bytearray(n * w), pair_order(n, w), start
    for k in range(w):
        reader = ListDecoder(data, pos, end)
        plane = reader.list(n, 8)
        pos = reader.pos
        for position, element in enumerate(order):
            elements[element * w + k] = plane[position]
    return bytes(elements), pos


def decode_bytes_block(data, start, end, dtype, n):
    """5.3"""
    elements, pos = decode_planes(data, start, end, dtype, n)
    if pos != end:
        raise Reject(33, "bytes behind the last list", pos)
    return elements


def may_zigzag(dtype):
    """R15"""
    return dtype in (3, 4, 5)


def decode_zigzag(data, start, end, dtype, n):
    """5.3"""
    return of_zigzag(decode_bytes_block(data, start, end, dtype, n), DTYPES[dtype].width)


def of_zigzag(codes, w):
    elements = bytearray()
    for i in range(0, len(codes), w):
        z = int.from_bytes(codes[i:i + w], "little")
        elements += (z >> 1 ^ (1 << 8 * w) - 1 if z & 1 else z >> 1).to_bytes(w, "little")
    return bytes(elements)


def decode_side(data, pos, end, dtype, n, rule=56):
    """5.15, 5.17: the elements of a side, and where they end"""
    w = DTYPES[dtype].width
    if pos == end:
        raise Reject(rule, "a side without a form", pos)
    form, pos = data[pos], pos + 1
    if form in (STORED, CONST):
        size = n * w if form == STORED else w
        if end - pos < size:
            raise Reject(rule, "a side longer than the body", pos)
        return data[pos:pos + size] * (n if form == CONST else 1), pos + size
    if form == SPLIT:
        split = SplitBlock(data, pos, end, dtype, n, True)
        return split.decode(), split.pos
    if form != BYTES and not (form == ZIGZAG and may_zigzag(dtype)):
        raise Reject(rule, "a side of form %d" % form, pos - 1)
    elements, pos = decode_planes(data, pos, end, dtype, n)
    return of_zigzag(elements, w) if form == ZIGZAG else elements, pos


def decode_sides(data, pos, end, g, n):
    """5.15, 5.17: the bit of the mask for each element, and where the mask ends"""
    granules = (n + (1 << g) - 1) >> g
    reader = ListDecoder(data, pos, end)
    mask = int.from_bytes(bytes(reader.list((granules + 7) // 8, 8)), "little")
    if mask >> granules:
        raise Reject(32, "bits behind the mask of granules", reader.pos)
    return [mask >> (i >> g) & 1 for i in range(n)], reader.pos


def decode_parted(data, start, end, dtype, n):
    """5.15"""
    w, g = DTYPES[dtype].width, data[start]
    if g > 6:
        raise Reject(56, "granules of 2^%d elements" % g, start)
    sides, pos = decode_sides(data, start + 1, end, g, n)
    if sum(sides) in (0, n):
        raise Reject(56, "a side without elements", pos)
    first, pos = decode_side(data, pos, end, dtype, n - sum(sides))
    second, pos = decode_side(data, pos, end, dtype, sum(sides))
    if pos != end:
        raise Reject(33, "bytes behind the second side", pos)
    given = [0, 0]
    elements = bytearray()
    for side in sides:
        elements += (first, second)[side][given[side]:given[side] + w]
        given[side] += w
    return bytes(elements)


def decode_patched(data, start, end, dtype, predictions):
    """5.17"""
    w, head = DTYPES[dtype].width, data[start]
    n, g, sign = len(predictions) // w, head & 127, 1 << 8 * w - 1
    if g > 6:
        raise Reject(58, "a first byte of %02X" % head, start)
    if end - start < 1 + w:
        raise Reject(58, "a body that ends before its threshold does", end)
    least = int.from_bytes(data[start + 1:start + 1 + w], "little")
    if least >= sign:
        raise Reject(58, "a threshold of %X" % least, start + 1)
    mask, pos = decode_sides(data, start + 1 + w, end, g, n)
    numbers = [int.from_bytes(predictions[i:i + w], "little") for i in range(0, n * w, w)]
    mask = [bit ^ (v % sign < least) for bit, v in zip(mask, numbers)]
    if sum(mask) in (0, n):
        raise Reject(58, "a side without elements, or with all", pos)
    side, pos = decode_side(data, pos, end, dtype, sum(mask), 58)
    if pos != end:
        raise Reject(33, "bytes behind the side", pos)
    elements, given = bytearray(), 0
    for bit, v in zip(mask, numbers):
        if bit:
            v = int.from_bytes(side[given:given + w], "little") ^ (v & sign if head >> 7 else 0)
            given += w
        elements += v.to_bytes(w, "little")
    return bytes(elements)


def exponent_of(v, dtype):
    """5.7: the values that the borders of the classes are compared with."""
    bits, shift = {6: (4, 3), 7: (5, 2), 8: (5, 10), 9: (8, 7), 10: (8, 23), 11: (8, 55)}[dtype]
    return v >> shift & (1 << bits) - 1


MAX_WORDS_LEVEL = 4         # 5.7: lists of words of this level are RAW
RAW_WORDS = 128


class WordsDecoder:
    """5.7: the lists of words in the bytes start .. end - 1 of data."""

    def __init__(self, data, start, end, w):
        self.data, self.pos, self.end, self.w = data, start, end, w

    def take(self, size):
        if size > self.end - self.pos:
            raise Reject(47, "a list of words is longer than the body", self.end)
        self.pos += size
        return self.data[self.pos - size:self.pos]

    def words(self, m, level=0, shifted=0):
        """Decodes a list of m words. `shifted` is the sum of s over the lists around it."""
        if m == 0:
            return []
        start, w = self.pos, self.w
        s = self.take(1)[0]
        if s == RAW_WORDS:
            data = self.take(m * w)
            return [int.from_bytes(data[i:i + w], "little") for i in range(0, m * w, w)]
        if level == MAX_WORDS_LEVEL:
            raise Reject(47, "a list of words of level %d that is not RAW" % level, start)
        if shifted + s >= 8 * w:
            raise Reject(47, "low bits of %d places in words of %d" % (shifted + s, 8 * w), start)
        limit = self.take(1)[0]
        lows = [0] * m
        for k in range(s // 8):
            lows = [low | byte << 8 * k for low, byte in zip(lows, self.take(m))]
        if s % 8:
            varying = (1 << s % 8) - 1
            begin = self.pos
            self.take(raw_plane_size(m, varying))
            plane = decode_raw_plane(self.data, begin, m, varying)
            lows = [low | byte << s - s % 8 for low, byte in zip(lows, plane)]
        reader = ListDecoder(self.data, self.pos, self.end)
        symbols = reader.list(m, 8)
        self.pos = reader.pos
        if limit and max(symbols) > limit:
            raise Reject(47, "a symbol of %d above the limit of %d" % (max(symbols), limit), start + 1)
        rests = iter(self.words(symbols.count(limit), level + 1, shifted + s) if limit else ())
        return [((symbol + (next(rests) if limit and symbol == limit else 0) << s) + low) % (1 << 8 * w)
                for symbol, low in zip(symbols, lows)]


def decode_classed(data, start, end, dtype, predictions):
    """5.7"""
    w = DTYPES[dtype].width
    classes = data[start]
    if not 1 <= classes <= (8 if DTYPES[dtype].is_float else 1):
        raise Reject(46, "%d classes" % classes, start)
    if classes - 1 > end - start - 1:
        raise Reject(46, "the borders of the classes are longer than the body", end)
    borders = list(data[start + 1:start + classes])
    if any(high <= low for low, high in zip([0] + borders, borders)):
        raise Reject(46, "the borders of the classes", start + 1)
    numbers = [int.from_bytes(predictions[i:i + w], "little") for i in range(0, len(predictions), w)]
    members = [0] * len(numbers)
    if classes > 1:
        members = [sum(border <= exponent_of(v, dtype) for border in borders) for v in numbers]
    reader = WordsDecoder(data, start + classes, end, w)
    lists = [iter(reader.words(members.count(number))) for number in range(classes)]
    if reader.pos != end:
        raise Reject(33, "bytes behind the last list of words", reader.pos)
    elements = bytearray()
    for v, number in zip(numbers, members):
        elements += ((v + difference_of(next(lists[number]))) % (1 << 8 * w)).to_bytes(w, "little")
    return bytes(elements)


def difference_of(z):
    """5.7: the difference that a word codes, modulo 2^W"""
    return -(z + 1 >> 1) if z & 1 else z >> 1


MAX_LOW_BITS = 20           # 5.14: of a place
CHANGES_HEAD = 4


def decode_changes(data, pos, end, n, w):
    """5.14: the places and differences of a cell of n elements."""
    m, k, b = u16(data, pos), data[pos + 2], data[pos + 3]
    if not 1 <= m <= n // 16:
        raise Reject(52, "%d of %d elements that are not their predictions" % (m, n), pos)
    if k > MAX_LOW_BITS:
        raise Reject(52, "%d low bits of a place" % k, pos + 2)
    start, escaping, escapes = pos + CHANGES_HEAD, b >> 7, 0
    if escaping:
        if 2 > end - start:
            raise Reject(52, "the number of escapes behind the body", end)
        b, escapes, start = b - 128, u16(data, start), start + 2
        if not 1 <= escapes <= m:
            raise Reject(52, "%d of %d words escape" % (escapes, m), pos + 4)
    if not escaping <= b <= 8 * w - escaping:
        raise Reject(52, "%d bits of a word" % b, pos + 3)
    u = m + (n - 1 >> k)
    size = m * k + u + m * b + escapes * 8 * w
    after = start + (size + 7) // 8
    if after != end:
        raise Reject(52, "changes of %d bytes in a body of %d" % (after - pos, end - pos), end)
    if has_bits_behind(data[start:after], size):
        raise Reject(52, "a 1 behind the last bit", after - 1)
    bits = bits_of(data[start:after], size)
    lows, uppers, words = bits[:m * k], bits[m * k:m * k + u], bits[m * k + u:]
    if sum(uppers) != m:
        raise Reject(52, "%d places, not %d" % (sum(uppers), m), start)
    ones = [number for number, one in enumerate(uppers) if one]
    places = [one - i << k | number_of_mask(lows[k * i:k * i + k]) for i, one in enumerate(ones)]
    if any(high <= low for low, high in zip(places, places[1:])) or places[-1] >= n:
        raise Reject(52, "places that do not ascend, or are behind the cell", start)
    numbers = [number_of_mask(words[b * i:b * i + b]) for i in range(m)]
    if escaping:
        ones, at = (1 << b) - 1, m * b
        if numbers.count(ones) != escapes:
            raise Reject(52, "%d words escape, not %d" % (numbers.count(ones), escapes), start)
        for i, number in enumerate(numbers):
            if number == ones:
                numbers[i] = number_of_mask(words[at:at + 8 * w])
                at += 8 * w
                if numbers[i] < ones:
                    raise Reject(52, "a word that need not escape", start)
    if max(numbers) >= (1 << 8 * w) - 1:
        raise Reject(52, "a word that changes nothing", start)
    return [(place, difference_of(number + 1)) for place, number in zip(places, numbers)]


def number_of_mask(bits):
    """The number with these bits, least significant bit first."""
    return sum(bit << i for i, bit in enumerate(bits))


def decode_sparse(data, start, end, dtype, predictions):
    """5.14: the elements"""
    w, elements = DTYPES[dtype].width, bytearray(predictions)
    for place, d in decode_changes(data, start, end, len(predictions) // w, w):
        at = slice(place * w, place * w + w)
        elements[at] = ((int.from_bytes(elements[at], "little") + d) % (1 << 8 * w)).to_bytes(w, "little")
    return bytes(elements)


# 5.8 to 5.13: the dtypes that can be quantized, and have scales: the bits of mantissa and exponent
FLOATS = {F16: (10, 5), BF16: (7, 8), F32: (23, 8), F64: (52, 11)}
CELLS, CLUSTERS = 1, 2                          # 6.5: families of quantizers
MAX_QUANTIZERS = {CELLS: 2048, CLUSTERS: 256}
CERTIFICATE_SIZE = 44
MAX_NUMBER = 0x7FF0000000000000     # binary64 numbers of a certificate: infinity
SATURATED = M64


def signed32(x):
    return x - (1 << 32) if x >> 31 else x


def decode_scales(data, pos, end, header, first, n):
    """5.8: the scales of the n elements from `first` on, or None, and the position after them."""
    columns = header.columns
    if pos >= end or data[pos] > 1:
        raise Reject(49, "neither scales nor none", pos)
    if data[pos] == 0:
        return None, pos + 1
    if columns is None or columns > n:
        raise Reject(49, "scales without columns, or of %d elements with more columns" % n, pos)
    reader = ListDecoder(data, pos + 1, end)
    first_row = first // columns
    rows = reader.list((first + n - 1) // columns - first_row + 1, 8)
    reader = ListDecoder(data, reader.pos, end)
    of_columns = reader.list(columns, 8)
    return [rows[i // columns - first_row] + of_columns[i % columns] for i in range(first, first + n)], reader.pos


def decode_scaled(data, start, end, header, first, n):
    """5.9"""
    w = DTYPES[header.dtype].width
    bits, shift = 8 * w, FLOATS[header.dtype][0] - 3
    if end - start < 6 or data[start] > 1:
        raise Reject(49, "the beginning of a SCALED block", start)
    apart, base = data[start] == 1, signed32(u32(data, start + 1))
    scales, pos = decode_scales(data, start + 5, end, header, first, n)
    if scales is None:
        raise Reject(49, "a SCALED block without scales", start + 5)
    reader = WordsDecoder(data, pos, end, w)
    elements = bytearray()
    for word, scale in zip(reader.words(n), scales):
        added = (scale + base) << shift
        if apart:
            v = ((word >> 1) + added) % (1 << bits - 1) | (word & 1) << bits - 1
        else:
            v = (word + added) % (1 << bits)
        elements += v.to_bytes(w, "little")
    if reader.pos != end:
        raise Reject(33, "bytes behind the list of words", reader.pos)
    return bytes(elements)


@dataclass(frozen=True)
class Certificate:
    """5.12: the errors of quantizing. Binary64 numbers are kept as their bits."""
    numbers: int = 0
    exact: int = 0
    sum_relative: int = 0
    sum_squares: int = 0
    largest: int = 0
    largest_relative: int = 0

    @classmethod
    def parse(cls, data, pos):
        return cls(*struct.unpack_from("<QQQQQI", data, pos))

    def __bytes__(self):
        return struct.pack("<QQQQQI", self.numbers, self.exact, self.sum_relative, self.sum_squares, self.largest, self.largest_relative)

    def plus(self, other):
        return Certificate((self.numbers + other.numbers) & M64, (self.exact + other.exact) & M64,
                           min(self.sum_relative + other.sum_relative, SATURATED), sum_upwards(self.sum_squares, other.sum_squares),
                           max(self.largest, other.largest), max(self.largest_relative, other.largest_relative))


def number_of_bits(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def bits_of_number(x):
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def sum_upwards(a, b):
    """5.12: the sum of two binary64 numbers, rounded up; all as bits"""
    if max(a, b) == MAX_NUMBER:
        return MAX_NUMBER
    return bits_upwards(fractions.Fraction(number_of_bits(a)) + fractions.Fraction(number_of_bits(b)))


def bits_upwards(x):
    """The bits of the smallest normal binary64 number >= x; 0 for 0."""
    if x == 0:
        return 0
    try:
        nearest = float(x)
    except OverflowError:
        return MAX_NUMBER
    bits = bits_of_number(nearest) + (fractions.Fraction(nearest) < x)
    return max(bits, 1 << 52)


@functools.lru_cache(maxsize=None)
def threshold(n, j):
    """5.11: T_j, the smallest integer with T_j^n >= 2^(23n + j)"""
    t = int(2.0 ** (23 + j / n))
    while t ** n >= 1 << 23 * n + j:
        t -= 1
    while t ** n < 1 << 23 * n + j:
        t += 1
    return t


@functools.lru_cache(maxsize=None)
def middle(n, j):
    """5.11: r_j"""
    a, b = threshold(n, j), threshold(n, j + 1)
    return (4 * a * b + a + b) // (2 * (a + b))


def relative_error_bound(n):
    """6.5, in 2^-24"""
    errors = []
    for j in range(n):
        a, b, r = threshold(n, j), threshold(n, j + 1), middle(n, j)
        errors += [-(-(r - a << 24) // a), -(-(b - r << 24) // b)]
    return max(errors)


def octaves_of(dtype):
    """5.11: how many there are"""
    mantissa, exponent = FLOATS[dtype]
    return mantissa + (1 << exponent) - 2


@functools.lru_cache(maxsize=None)
def number_of_cell(n, k, j):
    """5.11: the significand of cell j of n, a number of k + 1 bits; None if the cell has no number"""
    if 1 << k <= n:
        return (1 << k) + j if j < 1 << k else None
    if k > 23:
        return middle(n, j) << k - 23
    d = 1 << 23 - k
    low, high = -(-threshold(n, j) // d), (threshold(n, j + 1) - 1) // d
    if low > high:
        return None
    return min((middle(n, j) + d // 2) // d, high)


def magnitude_of_cell(q, n, dtype):
    """5.11: the bits of the magnitude with number q; None if q has no magnitude"""
    mantissa = FLOATS[dtype][0]
    octave, j = divmod(q, n)
    if not 0 <= octave < octaves_of(dtype):
        return None
    significand = number_of_cell(n, min(octave, mantissa), j)
    if significand is None or octave < mantissa:
        return significand
    return (octave - mantissa + 1 << mantissa) | significand - (1 << mantissa)


def decode_quantized(data, start, end, header, first, n):
    """5.10, 5.13: the elements and the certificate"""
    w, (family, number) = DTYPES[header.dtype].width, header.quantizer
    bits = 8 * w
    certificate, pos = decode_certificate(data, start, end)
    if family == CLUSTERS:
        clusters, pos = decode_cluster_ends(data, pos, end, header)
        exact, pos = decode_exact(data, pos, end, certificate, w)
        words = pos
        reader = WordsDecoder(data, pos, end, 4)
        us = [(word, 0) for word in reader.words(n)]

        def value(u, i):
            return number_of_cluster(clusters, u - 2, header.dtype)
    else:
        need_body(pos + 5, end)
        if data[pos] > 1:
            raise Reject(50, "neither signs nor none", pos)
        signs, base = data[pos] == 1, signed32(u32(data, pos + 1))
        exact, pos = decode_exact(data, pos + 5, end, certificate, w)
        scales, pos = decode_scales(data, pos, end, header, first, n)
        words = pos
        reader = WordsDecoder(data, pos, end, 4)
        us = [(word >> 1, word & 1) if signs else (word, 0) for word in reader.words(n)]

        def value(u, i):
            return magnitude_of_cell(u - 2 + base + (number * (scales[i] if scales else 0) + 4) // 8, number, header.dtype)
    elements, used = bytearray(), 0
    for i, (u, sign) in enumerate(us):
        if u == 1:
            used += 1
            if used > certificate.exact:
                raise Reject(50, "more elements that stand exactly than %d" % certificate.exact, words)
            elements += exact[used - 1]
            continue
        v = value(u, i) if u else 0
        if v is None:
            raise Reject(50, "what stands for no number", words)
        elements += (sign << bits - 1 | v).to_bytes(w, "little")
    if used != certificate.exact:
        raise Reject(50, "%d elements that stand exactly, not %d" % (used, certificate.exact), words)
    if reader.pos != end:
        raise Reject(33, "bytes behind the list of words", reader.pos)
    return bytes(elements), certificate


def need_body(pos, end):
    if pos > end:
        raise Reject(50, "the body of a QUANTIZED block ends too early", end)


def decode_certificate(data, start, end):
    """5.12: the certificate of a block, and the position after it"""
    need_body(start + CERTIFICATE_SIZE, end)
    certificate = Certificate.parse(data, start)
    if certificate.sum_squares > MAX_NUMBER or certificate.largest > MAX_NUMBER:
        raise Reject(50, "a certificate with what is no number", start)
    return certificate, start + CERTIFICATE_SIZE


def decode_exact(data, pos, end, certificate, w):
    """5.10, 5.13: the elements that are stored exactly, and the position after them"""
    after = pos + certificate.exact * w
    need_body(after, end)
    return [data[i:i + w] for i in range(pos, after, w)], after


def fixed_point(v, o, dtype):
    """5.13: an element in fixed point; o is the larger octave of the two ends of its cluster"""
    bits, (mantissa, _) = 8 * DTYPES[dtype].width, FLOATS[dtype]
    magnitude = v & (1 << bits - 1) - 1
    if magnitude == 0:
        return 0
    p = octave_of(magnitude, dtype)
    k = min(p, mantissa)
    significand = magnitude & (1 << mantissa) - 1 | (1 << mantissa if p >= mantissa else 0)
    whole = significand << 52 - k >> o - p + 1
    return -whole if v >> bits - 1 else whole


def octave_of(magnitude, dtype):
    """5.11: the octave of an element without its sign; 0 for a zero, None for infinity and NaN"""
    mantissa = FLOATS[dtype][0]
    exponent = magnitude >> mantissa
    octave = mantissa + exponent - 1 if exponent else max(magnitude.bit_length() - 1, 0)
    return octave if octave < octaves_of(dtype) else None


def decode_cluster_ends(data, pos, end, header):
    """5.13: o, A and D of each cluster, and the position after the clusters"""
    w, bits = DTYPES[header.dtype].width, 8 * DTYPES[header.dtype].width
    need_body(pos + 1, end)
    count = data[pos] + 1
    if count > header.quantizer[1]:
        raise Reject(50, "%d clusters" % count, pos)
    need_body(pos + 1 + count * 2 * w, end)
    clusters = []
    for at in range(pos + 1, pos + 1 + count * 2 * w, 2 * w):
        ends = [int.from_bytes(data[i:i + w], "little") for i in (at, at + w)]
        octaves = [octave_of(v & (1 << bits - 1) - 1, header.dtype) for v in ends]
        if None in octaves:
            raise Reject(50, "an end that is no number", at)
        low, high = [fixed_point(v, max(octaves), header.dtype) for v in ends]
        if high < low:
            raise Reject(50, "ends the wrong way round", at)
        clusters.append((max(octaves), low, high - low))
    return clusters, pos + 1 + count * 2 * w


def number_of_cluster(clusters, number, dtype):
    """5.13: the bits of the element; None if the cluster does not exist"""
    cluster, c = divmod(number, 256)
    if cluster >= len(clusters):
        return None
    o, low, size = clusters[cluster]
    fixed = low + (2 * size * c + 255) // 510
    if fixed == 0:
        return 0
    sign, mantissa = (fixed < 0) << 8 * DTYPES[dtype].width - 1, FLOATS[dtype][0]
    # In units of the smallest number of the dtype, neighbours differ by 2^above; subnormal numbers differ by 1.
    above = max(abs(fixed).bit_length() - 1 + o - 51 - mantissa, 0)
    shift = above - (o - 51)
    nearest = round_shifted(abs(fixed), shift) if shift > 0 else abs(fixed) << -shift
    return sign | (above << mantissa) + nearest     # a carry goes on into the exponent


def value_of(v, dtype):
    """The value of an element, as a fraction; None if it is infinite or NaN."""
    mantissa, exponent = FLOATS[dtype]
    e, m, sign = v >> mantissa & (1 << exponent) - 1, v & (1 << mantissa) - 1, v >> mantissa + exponent
    if e == (1 << exponent) - 1:
        return None
    magnitude = fractions.Fraction(m | (1 << mantissa if e else 0)) * fractions.Fraction(2) ** (max(e, 1) - (1 << exponent - 1) + 1 - mantissa)
    return -magnitude if sign else magnitude


def true_certificate(given, decoded, dtype, keeps_signs):
    """5.12: compares what was given with what came back. Returns the number of nonzero numbers; the sum of the relative
    errors in 2^-24, each rounded up; the exact sum of the squared errors; the largest error; the largest relative error in
    2^-24."""
    w = DTYPES[dtype].width
    numbers = sum_relative = largest_relative = 0
    sum_squares = largest = fractions.Fraction(0)
    for i in range(0, len(given), w):
        v, back = int.from_bytes(given[i:i + w], "little"), int.from_bytes(decoded[i:i + w], "little")
        x = value_of(v, dtype)
        if not x:       # a zero, infinite or NaN
            if v != back:
                return None
            continue
        y = value_of(back, dtype)
        if not y or (keeps_signs and (x < 0) != (y < 0)):
            return None
        error = abs(x - y)
        relative = math.ceil(error / abs(x) * (1 << 24))
        numbers += 1
        sum_relative += relative
        largest_relative = max(largest_relative, relative)
        sum_squares += error * error
        largest = max(largest, error)
    return numbers, sum_relative, sum_squares, largest, largest_relative


def round_shifted(value, shift):
    """value / 2^shift to the nearest integer, ties to even."""
    if shift == 0:
        return value
    whole, rest, half = value >> shift, value & (1 << shift) - 1, 1 << shift - 1
    return whole + (rest > half or (rest == half and whole & 1))


def cast_element(x, dtype):
    """6.3: an F32 element rounded to F16 or BF16."""
    sign, exponent, mantissa = x >> 31, x >> 23 & 255, x & (1 << 23) - 1
    if dtype == BF16:
        if exponent == 255:
            return x >> 16 | (1 << 6 if mantissa else 0)
        # all numbers of the type are F32 numbers whose lower half is 0, in the same order; infinity follows the largest
        return sign << 15 | round_shifted(x & M32 >> 1, 16)
    if exponent == 255:
        return sign << 15 | 31 << 10 | (1 << 9 | mantissa >> 13 if mantissa else 0)
    # the value is significand * 2^-149 times 2^(exponent - 1); numbers of F16 are multiples of 2^-24
    significand, power = (mantissa | 1 << 23, exponent - 1) if exponent else (mantissa, 0)
    if exponent >= 127 + 16:
        return sign << 15 | 31 << 10
    if exponent >= 127 - 14:
        # 13 bits are lost; a carry out of the mantissa goes on into the exponent, up to infinity
        return sign << 15 | (exponent - 112 << 10) + round_shifted(mantissa, 13)
    return sign << 15 | round_shifted(significand, 125 - power)


def predict(cell, header):
    """6.3: the predictions of the elements of a cell, from the elements of its base."""
    return cell if header.base.role == 1 else cast_cell(cell, header.base.dtype, header.dtype)


def upcast_element(x, dtype):
    """6.3: an element of F16 or BF16 as the F32 element of equal value."""
    if dtype == BF16:
        return x << 16
    sign, exponent, mantissa = x >> 15 << 31, x >> 10 & 31, x & 1023
    if exponent == 31:
        return sign | 255 << 23 | mantissa << 13
    if exponent:
        return sign | exponent + 112 << 23 | mantissa << 13
    if not mantissa:
        return sign
    high = mantissa.bit_length() - 1    # the value is mantissa * 2^-24
    return sign | high + 103 << 23 | (mantissa ^ 1 << high) << 23 - high


@functools.lru_cache(maxsize=8)     # cells that repeat themselves are cast once
def cast_cell(cell, base_dtype, dtype):
    if dtype == F32:
        return b"".join(upcast_element(cell[i] | cell[i + 1] << 8, base_dtype).to_bytes(4, "little") for i in range(0, len(cell), 2))
    return b"".join(cast_element(u32(cell, i), dtype).to_bytes(2, "little") for i in range(0, len(cell), 4))


def check_body_size(form, size, n, header, pos):
    """R15, R16"""
    if form > LAST_FORM:
        return
    w = DTYPES[header.dtype].width
    needs = {SAME: header.base, CLASSED: header.base, SPARSE: header.base, PATCHED: header.base, SCALED: header.columns, QUANTIZED: header.quantizer,
             ZIGZAG: may_zigzag(header.dtype) or None}
    if needs.get(form, True) is None:
        raise Reject(15, "a block of form %d" % form, pos)
    sizes = {STORED: (n * w, n * w), SAME: (0, 0), SPARSE: (CHANGES_HEAD + 1, n * w)}
    low, high = sizes.get(form, (1, n * w + 2 if form == CLASSED else n * w))
    if form != CONST and not low <= size <= high:
        raise Reject(16, "a body of %d bytes, of a block of form %d and %d elements" % (size, form, n), pos)


def check_head(head, header, cell, pos):
    """R15 to R17: the number of cells of the block that begins with this cell; the sizes before its body and of its body."""
    w, form, size = DTYPES[header.dtype].width, head & 255, head >> 8
    check_body_size(form, size, min(header.cell, header.count - cell * header.cell), header, pos)
    before = (12 if header.has_checks else 4) + (16 if header.base else 0)
    if form != CONST:
        return 1, before, size
    if not 1 <= size <= (1 if header.base else header.cells - cell):
        raise Reject(17, "a run of %d cells" % size, pos)
    return size, before, w


def check_base_hash(data, pos, part, base, cell):
    """R44 for the given cell of the base"""
    if u64(data, pos) != cell_hash(part, base.dtype):
        raise Reject(44, "the cell hash of the base, of cell %d" % cell, pos)


def decode_block(data, pos, header, cell, ignore_checks, base=None):
    """5: the block at pos, whose first cell is given, and its elements."""
    w = DTYPES[header.dtype].width
    first = cell * header.cell
    need(data, pos, 4)
    head = u32(data, pos)
    form = head & 255
    cells, before, size = check_head(head, header, cell, pos)
    start = pos + before
    end = start + size
    need(data, pos, end - pos)
    n = min(cells * header.cell, header.count - first)
    split = SplitBlock(data, start, end, header.dtype, n) if form == SPLIT else None

    check = u64(data, pos + 4) if header.has_checks else None
    hashes = data[start - 16:start] if header.base else b""
    if header.has_checks and not ignore_checks:                         # 5.5
        record = le64(header.check) + le64(first) + le64(n) + data[pos:pos + 4] + hashes
        record += split.check_record() if split else le64(xxh3(data[start:end]))
        if xxh3(record) != check:
            raise Reject(9, "the check of the block", pos + 4)
    if header.base and not ignore_checks:                               # 6.3
        check_base_hash(data, start - 16, base.cell(first, n), base, cell)

    certificate = None
    if form > LAST_FORM:
        raise Reject(54, "a block of form %d" % form, pos)
    if split:
        elements = decode_split(split)
    elif form == PARTED:
        elements = decode_parted(data, start, end, header.dtype, n)
    elif form == BYTES:
        elements = decode_bytes_block(data, start, end, header.dtype, n)
    elif form == ZIGZAG:
        elements = decode_zigzag(data, start, end, header.dtype, n)
    elif form == CONST:
        elements = data[start:start + w] * n
    elif form == SAME:
        elements = predict(base.cell(first, n), header)
    elif form == CLASSED:
        elements = decode_classed(data, start, end, header.dtype, predict(base.cell(first, n), header))
    elif form == SCALED:
        elements = decode_scaled(data, start, end, header, first, n)
    elif form == QUANTIZED:
        elements, certificate = decode_quantized(data, start, end, header, first, n)
    elif form == PATCHED:
        elements = decode_patched(data, start, end, header.dtype, predict(base.cell(first, n), header))
    elif form == SPARSE:
        elements = decode_sparse(data, start, end, header.dtype, predict(base.cell(first, n), header))
    else:
        elements = data[start:end]
    if header.base and not ignore_checks and u64(hashes, 8) != cell_hash(elements, header.dtype):
        raise Reject(45, "the cell hash of the elements", start - 8)
    return Block(pos, end - pos, head, form, first, n, cells, check, certificate), elements


# ---- 6. Frames ----

MAGIC = bytes.fromhex("B5534E50")
END_MAGIC = bytes.fromhex("504E53B5")
VERSION = 1
MAX_COUNT = 1 << 48
HAS_CHECKS, HAS_CONTENT_ID, IS_QUANTIZED, HAS_FOOTER_EXTENSIONS, HAS_EXTENSIONS = 1, 2, 4, 8, 128
BASE_EXTENSION, QUANTIZER_EXTENSION, COLUMNS_EXTENSION = 129, 130, 131
MIN_BASE_LOG2 = 16
FAN = 256                               # 6.2: entries of a page or a node
TAIL_SIZE = 28
NODE_ENTRY = 24                         # bytes of an entry of a node


@dataclass
class Frame:
    dtype: int
    count: int
    elements: bytes
    header: Header
    blocks: List[Block]
    content_id: Optional[int]
    size: int
    certificate: Optional[Certificate] = None


def decode_extensions(data, pos, end):
    """6.1"""
    extensions = []
    while pos < end:
        if pos + 3 > end or pos + 3 + u16(data, pos + 1) > end:
            raise Reject(36, "an extension ends behind the extensions", pos)
        kind, size = data[pos], u16(data, pos + 1)
        if kind >= 128 and kind not in (BASE_EXTENSION, QUANTIZER_EXTENSION, COLUMNS_EXTENSION):
            raise Reject(3, "a critical extension of type %d" % kind, pos)
        extensions.append((kind, data[pos + 3:pos + 3 + size]))
        pos += 3 + size
    return extensions


def decode_base_info(data, extensions):
    """6.3: the base that this data and these extensions of a header describe; None if the frame is not a delta."""
    found = [content for kind, content in extensions if kind == BASE_EXTENSION]
    if not found:
        return None
    if len(found) > 1 or len(found[0]) != 10:
        raise Reject(42, "two bases, or one of another size", 16)
    info = BaseInfo(found[0][0], found[0][1], u64(found[0], 2))
    right = ((info.role == 1 and info.dtype == data[5]) or (info.role == 2 and info.dtype == F32 and data[5] in (F16, BF16)) or
             (info.role == 3 and info.dtype in (F16, BF16) and data[5] == F32))
    if not right or data[7] & 3 != 3 or data[6] < MIN_BASE_LOG2:
        raise Reject(42, "a base that does not fit the frame", 16)
    return info


def decode_quantizer(data, extensions):
    """6.5: family and number of the quantizer that this data and these extensions of a header describe, and the columns.
    None if there is no quantizer."""
    quantizers = [content for kind, content in extensions if kind == QUANTIZER_EXTENSION]
    columns = [content for kind, content in extensions if kind == COLUMNS_EXTENSION]
    if len(quantizers) != (1 if data[7] & IS_QUANTIZED else 0) or len(columns) > 1:
        raise Reject(48, "flag 2 that does not fit, or two extensions of a kind", 7)
    if not quantizers and not columns:
        return None, None
    if any(kind == BASE_EXTENSION for kind, _ in extensions) or data[5] not in FLOATS:
        raise Reject(48, "a quantizer or columns that do not fit the frame", 16)
    quantizer = of_row = None
    if quantizers:
        if len(quantizers[0]) != 3:
            raise Reject(48, "a quantizer of another size", 16)
        quantizer = quantizers[0][0], u16(quantizers[0], 1)
        if quantizer[0] not in MAX_QUANTIZERS:
            raise Reject(4, "a quantizer of family %d" % quantizer[0], 16)
        if not 1 <= quantizer[1] <= MAX_QUANTIZERS[quantizer[0]]:
            raise Reject(48, "a quantizer of %d cells or clusters" % quantizer[1], 16)
    if columns:
        of_row = u64(columns[0], 0)
        if len(columns[0]) != 8 or of_row == 0:
            raise Reject(48, "no columns", 16)
    return quantizer, of_row


def check_given_base(header, base):
    """R43"""
    if header.base and header.count and (base is None or base.dtype != header.base.dtype or base.count != header.count):
        raise Reject(43, "no base, or one of another dtype or count", 16)


def decode_header(data, ignore_checks=False):
    """6.1"""
    if data[:4] != MAGIC[:len(data)]:
        raise Reject(1, "no magic", 0)
    need(data, 0, 5)
    if data[4] != VERSION:
        raise Reject(2, "version %d" % data[4], 4)
    need(data, 0, 24)
    flags, start, end = data[7], 16, 16
    if flags & HAS_EXTENSIONS:
        start, end = 18, 18 + u16(data, 16)
    need(data, 0, end + 8)
    if not ignore_checks and u64(data, end) != xxh3(data[:end]):
        raise Reject(8, "the check of the header", end)
    extensions = decode_extensions(data, start, end)
    if flags & 0x70:
        raise Reject(35, "flags 4 to 6", 7)
    if data[5] not in DTYPES:
        raise Reject(13, "dtype %d" % data[5], 5)
    if not 6 <= data[6] <= 20:
        raise Reject(14, "cells of 2^%d elements" % data[6], 6)
    if u64(data, 8) > MAX_COUNT:
        raise Reject(34, "%d elements" % u64(data, 8), 8)
    info = decode_base_info(data, extensions)
    quantizer, columns = decode_quantizer(data, extensions)
    return Header(data[5], data[6], flags, u64(data, 8), extensions, end + 8, u64(data, end), info, quantizer, columns)


class Index:
    """6.2: the positions of the pages and nodes of an index; its first page is at `start`."""

    def __init__(self, blocks, start, header):
        self.blocks, self.levels, self.end = blocks, [], start
        entries = blocks
        while True:
            size = NODE_ENTRY if self.levels else 8 if header.has_checks else 4
            self.levels.append((self.end, entries, size))
            self.end += entries * size
            if entries <= FAN:
                break
            entries = (entries + FAN - 1) // FAN

    @property
    def root(self):
        return self.levels[-1][0]

    def part(self, level, number):
        """Where a page or node begins and ends."""
        start, entries, size = self.levels[level]
        return start + number * FAN * size, start + min(entries, (number + 1) * FAN) * size


def part_hash(data, part, header):
    """The hash of a page, a node, or the end of a footer"""
    return xxh3(le64(header.check) + data[part[0]:part[1]])


def fixed_size(header):
    """The size of the footer after the root of the index, without extensions."""
    return 8 * header.has_content_id + CERTIFICATE_SIZE * header.is_quantized + 8 * header.has_footer_extensions + TAIL_SIZE


def decode_footer(data, pos, header, blocks, elements, ignore_checks):
    """6.2, as a full decoder reads it: the content id, and the end of the frame."""
    index = Index(len(blocks), pos, header)
    end = index.end + fixed_size(header)
    need(data, pos, end - pos)
    if header.has_footer_extensions:
        size = u32(data, end - TAIL_SIZE - 8)
        end += size
        need(data, pos, end - pos)
        if u32(data, end - TAIL_SIZE - 4) != size:
            raise Reject(36, "two sizes of the extensions of the footer", end - TAIL_SIZE - 4)
    found_id = u64(data, index.end) if header.has_content_id else None
    tail = end - TAIL_SIZE
    if data[end - 4:end] != END_MAGIC:
        raise Reject(37, "no end magic", end - 4)
    if u64(data, tail) != len(blocks):
        raise Reject(39, "%d blocks, not %d" % (u64(data, tail), len(blocks)), tail)
    if not ignore_checks and u64(data, tail + 16) != part_hash(data, (index.root, tail + 16), header):
        raise Reject(10, "the check of the footer", tail + 16)
    if u64(data, tail + 8) != end:
        raise Reject(38, "a frame of %d bytes, not %d" % (u64(data, tail + 8), end), tail + 8)
    entries = [(block.first // header.cell, block.offset) for block in blocks]
    for level, (start, count, _) in enumerate(index.levels[1:]):
        for number in range(count):
            if not ignore_checks and u64(data, start + 24 * number + 16) != part_hash(data, index.part(level, number), header):
                raise Reject(10, "the hash of a page or node", start + 24 * number + 16)
    for level, (start, _, size) in enumerate(index.levels):
        for number, entry in enumerate(entries):
            at = start + number * size
            if level and (u64(data, at), u64(data, at + 8)) != entry or not level and u32(data, at) != blocks[number].head:
                raise Reject(40, "the index does not agree with the blocks", at)
            if not level and header.has_checks and not ignore_checks and u32(data, at + 4) != blocks[number].check & M32:
                raise Reject(53, "another check in the index", at + 4)
        entries = entries[::FAN]
    if not ignore_checks:
        if header.has_content_id and found_id != content_id(elements, header.dtype):
            raise Reject(12, "the content id", index.end)
    return found_id, end


def certificate_of(blocks):
    """5.12: the certificate of a frame"""
    certificate = Certificate()
    for block in blocks:
        if block.certificate:
            certificate = certificate.plus(block.certificate)
    return certificate


def decode_frame(data, exact=True, ignore_checks=False, limit=DEFAULT_LIMIT, base=None):
    """Decodes the frame at the beginning of data. `exact`: the source must hold this one frame alone (R7)."""
    data = bytes(data)
    header = decode_header(data, ignore_checks)
    check_given_base(header, base)
    if header.count * DTYPES[header.dtype].width > limit:
        raise TooLarge("%d elements of %s" % (header.count, DTYPES[header.dtype].name))
    blocks, parts, cell, end = [], [], 0, header.size
    while cell < header.cells:                                          # 5.4
        block, elements = decode_block(data, end, header, cell, ignore_checks, base)
        blocks.append(block)
        parts.append(elements)
        cell += block.cells
        end += block.size
    elements, found_id = b"".join(parts), None
    if header.has_footer:
        found_id, end = decode_footer(data, end, header, blocks, elements, ignore_checks)
    if exact and end != len(data):
        raise Reject(7, "bytes behind the frame", end)
    certificate = certificate_of(blocks) if header.is_quantized else None
    return Frame(header.dtype, header.count, elements, header, blocks, found_id, end, certificate)


def decode_range(data, first, count, ignore_checks=False, limit=DEFAULT_LIMIT, base=None):
    """1: a range decoder: the elements first .. first + count - 1 of a frame. It reads only the blocks that hold them."""
    data = bytes(data)
    header = decode_header(data, ignore_checks)
    check_given_base(header, base)
    w = DTYPES[header.dtype].width
    if first + count > header.count:
        raise ValueError("the frame has %d elements" % header.count)
    if count == 0:
        return b""
    if count * w > limit:
        raise TooLarge("%d elements of %s" % (count, DTYPES[header.dtype].name))
    footer, heads, parts = len(data), [(0, header.size, None, None)], []
    if header.has_footer:
        index = find_index(data, header, ignore_checks)
        footer, heads = index.levels[0][0], heads_from(data, index, header, first // header.cell, ignore_checks)
    for cell, pos, head, half in heads:
        start = cell * header.cell
        if head is not None:
            cells = check_head(head, header, cell, pos)[0]
            if (cell + cells) * header.cell <= first:
                continue
            if min(cells * header.cell, header.count - start) * w > limit:
                raise TooLarge("a run of %d cells" % cells)
        block, elements = decode_block(data[:footer], pos, header, cell, ignore_checks, base)
        if head is not None and block.head != head:
            raise Reject(40, "the index does not agree with the block", pos)
        if half is not None and not ignore_checks and block.check & M32 != half:
            raise Reject(53, "another check in the index", pos)
        parts.append(elements[max(0, first - start) * w:(first + count - start) * w])
        if start + block.count >= first + count:
            return b"".join(parts)


def heads_from(data, index, header, cell, ignore_checks):
    """6.2: for each block from the page that holds `cell` on: first cell, position, head, and half of the check or None"""
    footer = index.levels[0][0]
    while True:
        number, at, until = 0, (0, header.size), (header.cells, footer)
        for level in range(len(index.levels) - 1, 0, -1):
            start, end = index.part(level, number)
            number *= FAN
            for place in range(start, end, 24):
                entry = u64(data, place), u64(data, place + 8)
                if place == start:
                    if entry != at:
                        raise Reject(41, "a node that is not where its entry says", place)
                elif not all(low < x < high for low, x, high in zip(at, entry, until)):
                    raise Reject(41, "entries that do not ascend", place)
                if entry[0] > cell:
                    until = entry
                    break
                at, child, found = entry, u64(data, place + 16), number + (place - start) // 24
            number = found
            if not ignore_checks and child != part_hash(data, index.part(level - 1, number), header):
                raise Reject(10, "the hash of a page or node", index.part(level - 1, number)[0])
        cell, pos = at
        for place in range(*index.part(0, number), index.levels[0][2]):
            if cell >= until[0]:
                raise Reject(41, "more blocks than the entry of their page says", pos)
            head = u32(data, place)
            cells, before, size = check_head(head, header, cell, pos)
            if pos + before + size > until[1]:
                raise Reject(40, "a block that is longer than the entry of its page says", pos)
            if cell + cells > until[0]:
                raise Reject(41, "a run that is longer than the entry of its page says", pos)
            yield cell, pos, head, u32(data, place + 4) if header.has_checks else None
            cell, pos = cell + cells, pos + before + size
        if (cell, pos) != until or cell >= header.cells:
            raise Reject(41, "the blocks of a page do not end where the next one begins", pos)


def find_index(data, header, ignore_checks):
    """6.2, as a range decoder reads it, from the end of the source"""
    fixed, tail = fixed_size(header), len(data) - TAIL_SIZE
    if data[-4:] != END_MAGIC or len(data) < header.size + fixed:
        raise Reject(6, "no footer at the end of the source", len(data))
    blocks = u64(data, tail)
    if blocks > header.cells or (blocks == 0 and header.cells):
        raise Reject(39, "%d blocks" % blocks, tail)
    if header.has_footer_extensions:
        extra = u32(data, tail - 4)
        if extra > len(data) - header.size - fixed or u32(data, tail - 8 - extra) != extra:
            raise Reject(36, "two sizes of the extensions of the footer", tail - 4)
        fixed += extra
    size = Index(blocks, 0, header).end
    if size > len(data) - header.size - fixed:
        raise Reject(39, "%d blocks" % blocks, tail)
    index = Index(blocks, len(data) - fixed - size, header)
    if not ignore_checks and u64(data, tail + 16) != part_hash(data, (index.root, tail + 16), header):
        raise Reject(10, "the check of the footer", tail + 16)
    if u64(data, tail + 8) != len(data):
        raise Reject(38, "a frame of %d bytes, not %d" % (u64(data, tail + 8), len(data)), tail + 8)
    return index


# ---- 7. Content id ----

LEAF = 65536


def content_id(elements, dtype):
    w = DTYPES[dtype].width
    return xxh3(leaves_of(elements, w) + le64(dtype) + le64(len(elements) // w))


def leaves_of(elements, w):
    return b"".join(le64(leaf_hash(elements[i:i + LEAF * w])) for i in range(0, len(elements), LEAF * w))


# The leaves of a frame are hashed for its cells, for its content id and by later passes.
leaf_hash = functools.lru_cache(maxsize=64)(xxh3)


def cell_hash(elements, dtype):
    """7.1: the leaf hashes of a cell"""
    return xxh3(leaves_of(elements, DTYPES[dtype].width))


# ---- 8. Files ----

FILE_MAGIC = bytes.fromhex("B5534E5046494C45")
TEXT_MAGIC = bytes.fromhex("B5545854")
END_RECORD_MAGIC = bytes.fromhex("B5454E44")
FILE_END_MAGIC = bytes.fromhex("454C4946504E53B5")
BASES_MAGIC = bytes.fromhex("B5424153")
PLACE_MAGIC = bytes.fromhex("B5504C43")
KEPT_MAGIC = bytes.fromhex("B54B4550")
ANCILLARY_MAGIC = bytes.fromhex("B5414E43")
KIND_RAW, KIND_SAFETENSORS, KIND_DELTA = 0, 1, 2
MOST_ANCILLARY = 1 << 24
FILE_HEADER, END_PREFIX, END_SUFFIX, RECORD_ENTRY, BASES_PREFIX, SHA256_SIZE = 40, 40, 40, 20, 20, 32
FILE_QUANTIZED, FILE_SHA256 = 1, 2  # compatible features
FILE_REFERENCES = 1                 # the incompatible feature
ITSELF, REFERENCE_LEAST = 0xFFFF, 4096
UNKNOWN_SIZE = M64
MOST = (1 << 48) - 1
MAX_TEXT = 100_000_000
PIECE = 32768
FAN = 256


def file_need(data, pos, size):
    if pos + size > len(data):
        raise Reject("S4", "the file ends too early", len(data))


def moved(reject, offset):
    """A reject from inside a file, with its position moved to that of the file."""
    return Reject(reject.rule, reject.message, reject.offset + offset)


@dataclass
class FileHeader:
    kind: int
    text_size: int
    size: int           # bytes of the source or UNKNOWN_SIZE
    features: bytes     # incompatible ones and compatible ones, 4 bytes each
    check: bytes

    @property
    def is_quantized(self):
        return self.features[4] & FILE_QUANTIZED != 0

    @property
    def has_references(self):
        return self.features[0] & FILE_REFERENCES != 0

    @property
    def end_prefix(self):
        """8.3: the size of the end record before its trees"""
        return END_PREFIX + (SHA256_SIZE if self.features[4] & FILE_SHA256 else 0)

    @property
    def data_begin(self):
        """The position in the source where the data begins"""
        return 8 + self.text_size if self.kind else 0


def decode_file_header(data):
    """8.1"""
    if data[:8] != FILE_MAGIC[:len(data)] or not data:
        raise Reject("S1", "no magic of a file", 0)
    file_need(data, 0, FILE_HEADER)
    if u64(data, 32) != xxh3(data[:32]):
        raise Reject("S6", "the check of the file header", 32)
    if data[8] != 1:
        raise Reject("S2", "version %d of the file" % data[8], 8)
    header = FileHeader(data[9], u32(data, 12), u64(data, 16), data[24:32], data[32:40])
    if header.kind not in (KIND_RAW, KIND_SAFETENSORS, KIND_DELTA):
        raise Reject("S3", "a source of kind %d" % header.kind, 9)
    if data[10] or data[11] or u32(data, 24) & ~FILE_REFERENCES:
        raise Reject("S28", "incompatible features %08X" % u32(data, 24), 24)
    if header.is_quantized and header.kind == KIND_DELTA:
        raise Reject("S7", "a delta with quantized frames", 28)
    if header.text_size > MAX_TEXT or (header.text_size == 0) != (header.kind == KIND_RAW):
        raise Reject("S7", "a text of %d bytes" % header.text_size, 12)
    if header.size == UNKNOWN_SIZE if header.kind == KIND_DELTA else False:
        raise Reject("S8", "a delta to a source of unknown size", 16)
    if header.size != UNKNOWN_SIZE and not header.data_begin <= header.size <= MOST:
        raise Reject("S8", "a source of %d bytes" % header.size, 16)
    return header


def exchange(data, decode=True):
    """8.2: the bytes of a piece from its symbols, or its symbols from the bytes"""
    after6, after3, made, before = bytearray(65536), bytearray(65536), bytearray(), 0
    for x in data:
        i, j = (before >> 16) * 0x9E3779B185EBCA87 % 2 ** 64 >> 48, (before >> 40) * 0x9E3779B185EBCA87 % 2 ** 64 >> 48
        expected = after6[i] or after3[j]
        made.append(expected if x == 0 else 0 if x == expected else x)
        after6[i] = after3[j] = made[-1] if decode else x
        before = before >> 8 | after6[i] << 56
    return bytes(made)


def decode_piece(data, pos, end, n):
    """8.2: decodes the piece in data[pos:end] to n bytes"""
    try:
        reader = ListDecoder(data, pos, end)
        symbols = reader.list(n, 8)
    except Reject as reject:
        raise Reject("S12", reject.message, reject.offset)
    if reader.pos != end:
        raise Reject("S12", "bytes behind the list", reader.pos)
    return exchange(symbols)


def coded_most(n):
    """8.2: the largest size of a coded piece"""
    return 8 * n + 1024


def decode_text_record(data, pos, at, size, decode=True):
    """8.2: the piece at pos, which begins with byte `at` of a text of `size` bytes, and the end of its record. Without
    `decode` the record is only skipped."""
    file_need(data, pos, 12)
    if data[pos:pos + 4] != TEXT_MAGIC:
        raise Reject("S10", "no text record", pos)
    n, coded = u32(data, pos + 4), u32(data, pos + 8)
    if not 1 <= n <= min(PIECE, size - at) or coded > coded_most(n):
        raise Reject("S11", "a piece of %d bytes, coded %d" % (n, coded), pos + 4)
    end = pos + 12 + coded
    file_need(data, pos, end + 8 - pos)
    if u64(data, end) != xxh3(data[pos:end]):
        raise Reject("S9", "the check of the text record", end)
    piece = decode_piece(data, pos + 12, end, n) if decode else bytes(n)
    return piece, end + 8


def pass_ancillary(data, pos):
    """8.7: the position after the ancillary records at pos"""
    while data[pos:pos + 4] == ANCILLARY_MAGIC:
        file_need(data, pos, 16)
        kind, size = u32(data, pos + 4), u64(data, pos + 8)
        if size > MOST_ANCILLARY:
            raise Reject("S33", "an ancillary record of %d bytes" % size, pos + 8)
        file_need(data, pos, 24 + size)
        if u64(data, pos + 16 + size) != xxh3(data[pos:pos + 16 + size]):
            raise Reject("S9", "the check of an ancillary record", pos)
        if kind > 127:
            raise Reject("S32", "an ancillary record of type %d" % kind, pos + 4)
        if kind == 0 and any(data[pos + 16:pos + 16 + size]):
            raise Reject("S33", "padding that is not 0", pos + 16)
        pos += 24 + size
    return pos


def decode_text(data, pos, size, decode=True):
    """8.2: the text whose records begin at pos; position in the text, position in the file and check of each record; their end"""
    text, places = bytearray(), []
    while len(text) < size:
        begin, pos = pos, pass_ancillary(data, pos)
        piece, pos = decode_text_record(data, pos, len(text), size, decode)
        places.append((len(text), begin, u64(data, pos - 8)))
        text += piece
    return bytes(text), places, pos


def split_base(base):
    """8: the text and the data of a .safetensors file"""
    if len(base) < 8 or u64(base, 0) > len(base) - 8:
        raise Reject("S17", "a base that is no .safetensors file", 0)
    return base[8:8 + u64(base, 0)], base[8 + u64(base, 0):]


@dataclass
class Bases:
    same_text: bool
    with_text: bool
    text_hash: int
    texts: list         # (text, data) of each base that is given
    sizes: list         # bytes of the data of each
    first_text: int     # bytes of the text of the first


def decode_bases(data, pos, header, given):
    """8.5: the content of the bases record at pos, and its end. given: the bases as .safetensors files, or None"""
    file_need(data, pos, BASES_PREFIX)
    if data[pos:pos + 4] != BASES_MAGIC:
        raise Reject("S10", "no bases behind the header of a delta", pos)
    count, flags, size = int.from_bytes(data[pos + 4:pos + 6], "little"), int.from_bytes(data[pos + 6:pos + 8], "little"), u32(data, pos + 8)
    if not 21 * count <= size <= 276 * count:
        raise Reject("S14", "%d bytes for %d bases" % (size, count), pos + 8)
    end = pos + BASES_PREFIX + size
    file_need(data, pos, end + 8 - pos)
    if u64(data, end) != xxh3(data[pos:end]):
        raise Reject("S9", "the check of the bases", end)
    if not count or count > 65534 or flags > 3:
        raise Reject("S14", "%d bases, bits %d" % (count, flags), pos + 4)
    entries, at = [], pos + BASES_PREFIX
    for _ in range(count):
        if at + 21 > end or at + 21 + data[at + 20] > end:
            raise Reject("S14", "bases that do not fit", at)
        name = data[at + 21:at + 21 + data[at + 20]]
        entries.append((u32(data, at), u64(data, at + 4), u64(data, at + 12)))
        if not 1 <= entries[-1][0] <= MAX_TEXT or 8 + entries[-1][0] + entries[-1][1] > MOST or set(name) & set(b"\0/\\"):
            raise Reject("S14", "a base of impossible size or name", at)
        at += 21 + len(name)
    if at != end:
        raise Reject("S14", "bytes behind the bases", at)
    text_hash = u64(data, pos + 12)
    if flags & 1 and (header.text_size, text_hash) != (entries[0][0], entries[0][2]):
        raise Reject("S15", "no text, but another than that of the base", pos + 6)
    if given is None or len(given) != count:
        raise Reject("S17", "%d bases are needed" % count, pos)
    texts = [split_base(base) for base in given]
    for (text, base_data), (text_size, data_size, base_hash) in zip(texts, entries):
        if len(text) != text_size or xxh3(text) != base_hash:
            raise Reject("S17", "a base with another text", pos + BASES_PREFIX)
        if len(base_data) != data_size:
            raise Reject("S18", "a base with other data", pos + BASES_PREFIX)
    return Bases(flags & 1 == 1, flags & 2 == 2, text_hash, texts, [entry[1] for entry in entries], entries[0][0]), end + 8


def decode_mark(data, pos):
    """8.6, 8.8: the two numbers of the place or kept record at pos"""
    file_need(data, pos, 16)
    if u32(data, pos + 12) != xxh3(data[pos:pos + 12]) & M32:
        raise Reject("S9", "the check of the place or kept record", pos + 12)
    return int.from_bytes(data[pos + 4:pos + 6], "little"), int.from_bytes(data[pos + 6:pos + 12], "little")


def decode_kept_record(data, pos, header):
    """8.8: the position in the data of the last frame that refers to the next frame"""
    reserved, last = decode_mark(data, pos)
    if not header.has_references:
        raise Reject("S36", "a kept record in a file without references", pos)
    if reserved or not last:
        raise Reject("S42", "a kept record that cannot be", pos + 4)
    return last


def decode_place_record(data, pos, header, bases):
    """8.6: the number of the base, and the position in its data of the base of the next frame"""
    number, place = decode_mark(data, pos)
    if number == ITSELF and not header.has_references:
        raise Reject("S36", "a base that is the file itself", pos + 4)
    if number != ITSELF and (bases is None or number >= len(bases.texts)):
        raise Reject("S19", "a place in base %d" % number, pos + 4)
    return number, place


@dataclass
class FilePlace:
    """A frame of a file: its header, its base or None, its position in the file, the content of its kept record or None,
    and whether it refers to earlier data"""
    header: object
    base: object
    pos: int
    last: object
    refers: bool


def base_of_frame(data, pos, header, bases, begin, earlier):
    """8.1, 8.6, 8.8: the frame at pos, or after the kept and place records there. begin: the position of its elements in
    the data. earlier(first, size): bytes of the data that a frame may refer to"""
    place, number, last = None, None, None
    if data[pos:pos + 4] == KEPT_MAGIC:
        last, pos = decode_kept_record(data, pos, header), pos + 16
    if data[pos:pos + 4] == PLACE_MAGIC:
        if bases is None and not header.has_references:
            raise Reject("S10", "a place in a file whose frames have no bases", pos)
        (number, place), pos = decode_place_record(data, pos, header, bases), pos + 16
    if data[pos:pos + 4] != MAGIC:
        raise Reject("S10", "no frame behind a place or kept record", pos)
    if number == ITSELF and last is not None:
        raise Reject("S38", "a frame that refers and is referred to", pos)
    try:
        frame, base = decode_header(data[pos:]), None
    except Reject as reject:
        raise moved(reject, pos)
    if (frame.base is None) != (place is None):
        raise Reject("S19", "a place without a base, or a base without a place", pos)
    if not frame.has_checks:
        raise Reject("S30", "a frame without checks", pos)
    if last is not None and (not frame.count or last < begin + frame.count * DTYPES[frame.dtype].width):
        raise Reject("S42", "a kept record that cannot be", pos)
    if frame.base:
        size = frame.count * DTYPES[frame.base.dtype].width
        if number == ITSELF:
            if frame.count < REFERENCE_LEAST:
                raise Reject("S40", "a frame of %d elements refers" % frame.count, pos)
            if place + size > begin:
                raise Reject("S37", "a frame refers to what does not lie before it", pos)
            elements = earlier(place, size)
        else:
            if place + size > bases.sizes[number]:
                raise Reject("S20", "a place beyond the end of the base", pos)
            elements = bases.texts[number][1][place:place + size]
        base = Base(frame.base.dtype, elements)
    return FilePlace(frame, base, pos, last, number == ITSELF)


def of_reference(reject, refers):
    """8.8: the reject of a frame. A frame that refers to earlier data has no given base that could be the wrong one."""
    return Reject("S41", reject.message, reject.offset) if refers and reject.rule in (43, 44) else reject


# ---- 8.3. The end record ----

def seal_of(frame):
    """8.3: the seal of a whole frame"""
    header = decode_header(frame)
    if header.has_footer:
        return u64(frame, len(frame) - 12)
    return u64(frame, header.size + 4) if header.count else u64(frame, header.size - 8)


def u48(data, pos):
    return int.from_bytes(data[pos:pos + 6], "little")


def levels_of(count, entry):
    """For each level of a tree with `count` entries: its offset in the tree, its number of entries, the size of an entry"""
    levels, at = [], 0
    while count:
        levels.append((at, count, entry))
        at += count * entry
        if count <= FAN:
            break
        count, entry = -(-count // FAN), 16
    return levels


def tree_size(count, entry):
    return sum(entries * size for _, entries, size in levels_of(count, entry))


def tree_of(entries, check):
    """A tree of entries, and the check of its root. `check` is the check of the file header."""
    data, level = b"", entries
    while level:
        pages = [b"".join(level[i:i + FAN]) for i in range(0, len(level), FAN)]
        data += b"".join(pages)
        checks = [le64(xxh3(check + page)) for page in pages]
        if len(pages) == 1:
            return data, checks[0]
        key = 6 if len(level[0]) == RECORD_ENTRY else 8
        level = [page[:key] + bytes(8 - key) + page_check for page, page_check in zip(pages, checks)]
    return data, bytes(8)


def names_of(text):
    """The keys of the tree of names."""
    places, depth, at, blanks = {}, 0, 0, json.decoder.WHITESPACE.match
    try:
        text = text.decode()
        while at < len(text):
            begin, at = at, at + 1
            depth += (text[begin] in "{[") - (text[begin] in "}]")
            if text[begin] == '"':
                name, at = json.decoder.scanstring(text, at)
                name.encode()       # it has no half of a surrogate pair
                if depth == 1 and text[blanks(text, at).end():][:1] == ":":
                    places[name] = len(text[:begin].encode())
    except ValueError:
        return []
    places.pop("__metadata__", None)
    return sorted((xxh3(name.encode()) & M32) << 32 | place for name, place in places.items())


def encode_file_header(kind, text_size, source_size, incompatible=0, compatible=0):
    """8.1"""
    header = FILE_MAGIC + bytes((1, kind, 0, 0)) + le64(text_size)[:4] + le64(source_size) + le64(incompatible)[:4] + le64(compatible)[:4]
    return header + le64(xxh3(header))


def encode_end_record(check, source_size, records, names, end, features=bytes(8), sha256=b""):
    """8.3: records: (position in the source, position in the file, seal) of each; names: keys; end: where the records end"""
    tree, root = tree_of([le64(begin)[:6] + le64(at)[:6] + le64(seal) for begin, at, seal in records], check)
    more, more_root = tree_of(list(map(le64, names)), check)
    data = END_RECORD_MAGIC + le64(len(names))[:4] + le64(source_size) + le64(len(records)) + features + le64(end) + sha256
    suffix = root + more_root + le64(len(data) + len(tree) + len(more) + END_SUFFIX)
    return data + tree + more + suffix + le64(xxh3(check + data + suffix)) + FILE_END_MAGIC


def strong_hash(source):
    """8.3"""
    pieces = (hashlib.sha256(source[at:at + (1 << 20)]).digest() for at in range(0, len(source), 1 << 20))
    return hashlib.sha256(b"".join(pieces)).digest()


def decode_end_record(data, pos, header, source_size, records, text, records_end):
    file_need(data, pos, header.end_prefix)
    count = u32(data, pos + 4)
    if u64(data, pos + 8) != source_size or header.size not in (UNKNOWN_SIZE, source_size):
        raise Reject("S22", "a source of %d bytes" % source_size, pos + 8)
    if u64(data, pos + 16) != len(records):
        raise Reject("S23", "%d records, not %d" % (u64(data, pos + 16), len(records)), pos + 16)
    if u64(data, pos + 32) != records_end:
        raise Reject("S23", "another end of the records", pos + 32)
    if data[pos + 24:pos + 32] != header.features:
        raise Reject("S29", "other features than in the file header", pos + 24)
    names = names_of(text) if count else []
    if count != len(names):
        raise Reject("S26", "%d names" % count, pos + 4)
    seals = header.end_prefix + RECORD_ENTRY * len(records)
    expected = encode_end_record(header.check, source_size, records, names, records_end, header.features, data[pos + END_PREFIX:pos + header.end_prefix])
    end = pos + len(expected)
    file_need(data, pos, len(expected))
    for at in range(header.end_prefix, seals):
        if data[pos + at] != expected[at]:
            raise Reject("S31" if (at - header.end_prefix) % RECORD_ENTRY >= 12 else "S25", "another record", pos + at)
    for begin, stop, rule in ((0, len(expected) - 24, "S25"), (len(expected) - 24, len(expected) - 16, "S23"),
                              (len(expected) - 16, len(expected) - 8, "S24"), (len(expected) - 8, len(expected), "S27")):
        if data[pos + begin:pos + stop] != expected[begin:stop]:
            raise Reject(rule, "another end record", pos + begin)
    if end != len(data):
        raise Reject("S5", "bytes behind the end record", end)


def decode_file(data, limit=DEFAULT_LIMIT, base=None):
    """8: the source that a .bsnap file holds. base: for a delta, one .safetensors file or a list of them"""
    data = bytes(data)
    header = decode_file_header(data)
    if header.size != UNKNOWN_SIZE and header.size > limit:
        raise TooLarge("a source of %d bytes" % header.size)
    text, records, pos, bases, quantized = b"", [], FILE_HEADER, None, False
    if header.kind == KIND_SAFETENSORS:
        text, records, pos = decode_text(data, pos, header.text_size)
    if header.kind == KIND_DELTA:
        bases, pos = decode_bases(data, pos, header, [base] if isinstance(base, (bytes, bytearray)) else base)
        text = bases.texts[0][0]
        if bases.with_text:
            _, _, pos = decode_text(data, pos, bases.first_text, False)
        if not bases.same_text:
            text, records, pos = decode_text(data, pos, header.text_size)
        if xxh3(text) != bases.text_hash:
            raise Reject("S16", "another text than the bases record says", FILE_HEADER + 12)
    records = [(8 + begin, at, seal) for begin, at, seal in records]
    source = bytearray(le64(len(text)) + text if header.kind else b"")
    kept, refers = [], False

    def earlier(first, size):
        """8.8: bytes of the data, which must all be kept for the next frame"""
        at, own = first, len(source) - header.data_begin
        for low, high, last in kept:
            if low <= at < high and last >= own:
                at = high
        if at < first + size:
            raise Reject("S39", "a frame refers to what is not kept", pos)
        return bytes(source[header.data_begin + first:header.data_begin + first + size])

    while True:
        begin, pos = pos, pass_ancillary(data, pos)
        if data[pos:pos + 4] not in (MAGIC, PLACE_MAGIC, KEPT_MAGIC):
            break
        place = base_of_frame(data, pos, header, bases, len(source) - header.data_begin, earlier)
        frame_header, frame_base, pos = place.header, place.base, place.pos
        if frame_header.is_quantized and not header.is_quantized:
            raise Reject("S21", "a quantized frame", pos)
        if len(source) + frame_header.count * DTYPES[frame_header.dtype].width > min(header.size, MOST):
            raise Reject("S22" if header.size <= MOST else "S8", "too many elements", pos)
        try:
            frame = decode_frame(data[pos:], exact=False, limit=limit - len(source), base=frame_base)
        except Reject as reject:
            raise of_reference(moved(reject, pos), place.refers)
        records.append((len(source), begin, seal_of(data[pos:pos + frame.size])))
        if place.last is not None:
            kept.append((len(source) - header.data_begin, len(source) - header.data_begin + len(frame.elements), place.last))
        source += frame.elements
        refers |= place.refers
        quantized |= frame.header.is_quantized
        pos += frame.size
    file_need(data, pos, 4)
    if data[pos:pos + 4] != END_RECORD_MAGIC:
        raise Reject("S10", "neither a frame nor the end record", pos)
    if refers != header.has_references:
        raise Reject("S36", "the header does not tell whether frames refer", 24)
    if quantized != header.is_quantized:
        raise Reject("S21", "the header does not tell whether frames are quantized", 28)
    decode_end_record(data, pos, header, len(source), records, text, begin)
    if header.end_prefix > END_PREFIX and data[pos + END_PREFIX:pos + header.end_prefix] != strong_hash(source):
        raise Reject("S35", "another SHA-256", pos + END_PREFIX)
    return bytes(source)


# ---- one tensor ----

class Parts:
    """A file that is read in parts. `read` counts the bytes; a part that is read again counts once."""

    def __init__(self, data):
        self.data = data
        self.pieces = set()

    def at(self, pos, size):
        if pos < 0 or pos + size > len(self.data):
            raise Reject("S4", "the file ends too early", len(self.data))
        self.pieces.add((pos, size))
        return self.data[pos:pos + size]

    @property
    def read(self):
        return sum(size for _, size in self.pieces)


class Tree:
    """8.3: a tree that is read and checked node by node"""

    def __init__(self, parts, at, count, entry, root, check):
        self.parts, self.at, self.levels, self.root, self.check = parts, at, levels_of(count, entry), root, check

    def ascending(self, page, entry, where):
        """The keys of a page or node. Keys of names must ascend strictly. Keys of records may repeat, as records may be empty."""
        width = 6 if entry == RECORD_ENTRY else 8
        keys = [int.from_bytes(page[i:i + width], "little") for i in range(0, len(page), entry)]
        strictly = self.levels[0][2] == 8
        if any(a > b or (strictly and a == b) for a, b in zip(keys, keys[1:])):
            raise Reject("S25", "keys that do not ascend", where)
        return keys

    def page(self, number):
        """The entries of page `number` of the lowest level, reached from the root"""
        expected, path = self.root, range(len(self.levels) - 1, -1, -1)
        for level in path:
            begin, count, entry = self.levels[level]
            which = number // FAN ** level
            size = min(FAN, count - which * FAN) * entry
            page = self.parts.at(self.at + begin + which * FAN * entry, size)
            if le64(xxh3(self.check + page)) != expected:
                raise Reject("S24", "a page or node of a tree", self.at + begin)
            self.ascending(page, entry, self.at + begin)
            if level:
                child = number // FAN ** (level - 1) % FAN
                expected = page[16 * child + 8:16 * child + 16]
        return [page[i:i + entry] for i in range(0, size, entry)]

    def last(self, below):
        """The number of the last entry whose key is below `below`, or -1"""
        if not self.levels:
            return -1
        number, expected = 0, self.root
        for level in range(len(self.levels) - 1, -1, -1):
            begin, count, entry = self.levels[level]
            size = min(FAN, count - number * FAN) * entry
            page = self.parts.at(self.at + begin + number * FAN * entry, size)
            if le64(xxh3(self.check + page)) != expected:
                raise Reject("S24", "a page or node of a tree", self.at + begin)
            keys = self.ascending(page, entry, self.at + begin)
            found = bisect.bisect_left(keys, below) - 1
            if level:
                child = max(found, 0)
                number, expected = number * FAN + child, page[16 * child + 8:16 * child + 16]
        return number * FAN + found

    def __getitem__(self, i):
        return self.page(i // FAN)[i % FAN]

    def __len__(self):
        return self.levels[0][1] if self.levels else 0


def decode_tensor(data, name, base=None):
    """8.3: dtype, shape and elements of one tensor, found through the trees; base as in decode_file. Without a tree of names
    the whole text is decoded. The fourth result is the number of bytes read, without bases and frames."""
    parts = data if isinstance(data, Parts) else Parts(bytes(data))
    header = decode_file_header(parts.at(0, FILE_HEADER))
    tail = parts.at(len(parts.data) - 40, 40)
    size = u64(tail, 16)
    if tail[32:] != FILE_END_MAGIC:
        raise Reject("S27", "no end magic", len(parts.data) - 8)
    pos = len(parts.data) - size
    front = parts.at(pos, header.end_prefix)
    if u64(tail, 24) != xxh3(header.check + front + tail[:24]):
        raise Reject("S24", "the check of the end record", len(parts.data) - 16)
    count, names = u64(front, 16), u32(front, 4)
    middle = tree_size(count, RECORD_ENTRY)
    if front[24:32] != header.features:
        raise Reject("S29", "other features than in the file header", pos + 24)
    if front[:4] != END_RECORD_MAGIC or size != header.end_prefix + END_SUFFIX + middle + tree_size(names, 8):
        raise Reject("S23", "the size of the end record", pos)
    records = Tree(parts, pos + header.end_prefix, count, RECORD_ENTRY, tail[:8], header.check)
    keys = Tree(parts, pos + header.end_prefix + middle, names, 8, tail[8:16], header.check)
    bases, text = None, None
    if header.kind == KIND_DELTA:
        record = parts.at(FILE_HEADER, BASES_PREFIX)
        record = parts.at(FILE_HEADER, BASES_PREFIX + 8 + u32(record, 8))
        bases, _ = decode_bases(record, 0, header, [base] if isinstance(base, (bytes, bytearray)) else base)
        text = bases.texts[0][0] if bases.same_text else None

    def record_at(i):
        """The begin of record i in the source and in the file, the begin of the next record in the file, and the seal"""
        entry, following = records[i], records[i + 1] if i + 1 < count else 2 * front[32:38]
        begin, end = u48(entry, 6), u48(following, 6)
        while parts.data[begin:begin + 4] == ANCILLARY_MAGIC:
            begin += 24 + u64(parts.at(begin, 16), 8)
        return u48(entry, 0), begin, end, u64(entry, 12)

    def text_from(at, least):
        """At least `least` bytes of the text from `at` on, or all that are left"""
        if text is not None:
            return text[at:]
        found, i = b"", records.last(8 + at + 1)
        while len(found) < least and at + len(found) < header.text_size:
            begin, where, end, seal = record_at(i)
            piece, size = decode_text_record(parts.at(where, end - where), 0, begin - 8, header.text_size)
            if seal != u64(parts.data, where + size - 8):
                raise Reject("S31", "another text", where)
            found += piece[max(0, at - (begin - 8)):]
            i += 1
        return found

    def member(at):
        """The name at byte `at` of the text, its value, and their size. The first try decodes one piece."""
        for least in (1, 1 << 12, MAX_TEXT):
            part = text_from(at, least).decode(errors="ignore")
            try:
                title, end = json.decoder.scanstring(part, 1)
                found, end = json.JSONDecoder().raw_decode(part, part.index("{", end))
                return title, found, len(part[:end].encode())
            except ValueError:
                pass
        return None, None, 0

    if not names:
        text = text_from(0, header.text_size)
        places = [key & M32 for key in names_of(text)]
    else:
        low, places = (xxh3(name.encode()) & M32) << 32, []
        for i in range(keys.last(low) + 1, names):
            key = u64(keys[i], 0)
            if key >> 32 != low >> 32:
                break
            if places and key & M32 <= places[-1]:
                raise Reject("S25", "keys of names that do not ascend", pos)
            places.append(key & M32)
    entry, behind = None, 0
    for at in places:
        title, entry, size = member(at)
        if names and (at < behind or title is None or xxh3(title.encode()) & M32 != low >> 32):
            raise Reject("S25", "the tree of names has a place that is none", pos)
        if title == name:
            break
        entry, behind = None, at + size
    if entry is None:
        raise KeyError(name)

    def refuse(first, size):
        raise Reject("S38", "a frame that is referred to refers", 0)

    def data_of(begin, end, earlier):
        """Bytes begin .. end - 1 of the data"""
        elements = b""
        while begin < end:
            at = header.data_begin + begin
            first, where, stop, seal = record_at(records.last(at + 1))
            frame_data = parts.data[where:stop]
            place = base_of_frame(frame_data, 0, header, bases, first - header.data_begin, earlier)
            frame_data = frame_data[place.pos:]
            if seal != seal_of(frame_data):
                raise Reject("S31", "another frame", where)
            width = DTYPES[place.header.dtype].width
            low, high = (at - first) // width, -(-(min(header.data_begin + end, first + place.header.count * width) - first) // width)
            try:
                got = decode_range(frame_data, low, high - low, base=place.base)[at - first - low * width:]
            except Reject as reject:
                raise of_reference(reject, place.refers)
            if not got:
                raise Reject("S25", "no record has byte %d of the source" % at, where)
            elements += got[:end - begin]
            begin += len(got[:end - begin])
        return elements

    elements = data_of(*entry["data_offsets"], lambda first, size: data_of(first, first + size, refuse))
    return entry["dtype"], entry["shape"], elements, parts.read


# ---- command line ----

# Rules that may apply when the index was made to break another one. A full decoder expects the rest of the footer after the
# index as it should be, so it reads all of the rest at a wrong position. Only a range decoder can find R41.
ALSO = {39: {6, 7, 10, 11, 12, 37, 38, 40}, 41: {6, 7, 10, 11, 12, 37, 38, 39, 40}}


def rule_agrees(expected, rule):
    return rule == expected or rule in ALSO.get(expected, ())


def rejected_rule(function, *arguments, **options):
    """The rule that the function rejects with; None if it accepts."""
    try:
        function(*arguments, **options)
    except Reject as reject:
        return reject.rule
    return None


def read(directory, name):
    with open(os.path.join(directory, name), "rb") as stream:
        return stream.read()


def parse_base(data):
    """The base of a frame in its own file: one byte, the dtype, and then the elements."""
    return Base(data[0], data[1:])


def read_base(directory, name):
    """The base of a frame; None if it has no base."""
    name = name[:-len(".frame")] + ".base"
    return parse_base(read(directory, name)) if os.path.exists(os.path.join(directory, name)) else None


def certificate_problem(frame, given):
    """6.5 and 5.12: the problem with a quantized frame made of the given elements, or None"""
    w, (family, number) = DTYPES[frame.dtype].width, frame.header.quantizer
    frame_bound = relative_error_bound(number) if family == CELLS else None
    for block in frame.blocks:
        part = slice(block.first * w, (block.first + block.count) * w)
        if block.certificate is None:
            if given[part] != frame.elements[part]:
                return "another element in a block that is not quantized"
            continue
        truth = true_certificate(given[part], frame.elements[part], frame.dtype, family == CELLS)
        if truth is None:
            return "a zero that was none, another sign, or something infinite or NaN that is not exact"
        numbers, sum_relative, sum_squares, largest, largest_relative = truth
        said = block.certificate
        if frame_bound is not None and largest_relative > frame_bound:
            return "an error above the bound"
        if said.numbers != numbers or said.largest_relative < min(largest_relative, M32) or said.sum_relative < min(sum_relative, SATURATED):
            return "relative errors above the certificate"
        if not at_least(said.sum_squares, sum_squares) or not at_least(said.largest, largest):
            return "errors above the certificate"
        # F64 and clusters are measured with 24 bits. Results may exceed the truth by a few units, and by more where errors are
        # larger than the numbers.
        few = 5 if frame.dtype == F64 or family == CLUSTERS else 0
        far = said.largest_relative > largest_relative + few + (few * largest_relative >> 24)
        if far or said.sum_relative > sum_relative + few * numbers + (few * sum_relative >> 24) and said.sum_relative < SATURATED:
            return "relative errors far below the certificate"
    return None


def at_least(bits, x):
    return bits == MAX_NUMBER or fractions.Fraction(number_of_bits(bits)) >= x


def check_valid(directory, name):
    """The problem with a frame that must be accepted, or None."""
    data, stem, base = read(directory, name), name[:-len(".frame")], read_base(directory, name)
    frame = decode_frame(data, base=base)
    if os.path.exists(os.path.join(directory, stem + ".large")):
        if frame.count != int(read(directory, stem + ".large")):
            return "another number of elements"
    elif frame.elements != read(directory, stem + ".elements"):
        return "other elements"
    if frame.content_id is not None and frame.content_id != content_id(frame.elements, frame.dtype):
        return "another content id"
    if base and frame.header.base and frame.header.base.id != content_id(base.elements, base.dtype):
        return "another content id of the base"
    if os.path.exists(os.path.join(directory, stem + ".given")):
        problem = certificate_problem(frame, read(directory, stem + ".given"))
        if problem:
            return problem
    if len(data) < 1 << 16:
        if decode_frame(data, ignore_checks=True, base=base).elements != frame.elements:
            return "other elements without checks"
        w, first, count = DTYPES[frame.dtype].width, frame.count // 3, (frame.count + 2) // 3
        if decode_range(data, first, count, base=base) != frame.elements[first * w:(first + count) * w]:
            return "other elements in a range"
    return None


def check_invalid(directory, name):
    data, expected = read(directory, name), int(name[:-len(".frame")].split("-R")[1])
    base = read_base(directory, name)
    rule = rejected_rule(decode_frame, data, base=base)
    if rule is None or not rule_agrees(expected, rule):
        return "accepted" if rule is None else "R%d" % rule
    if expected == 41:      # 6.2: of the last element, with a range decoder
        header = decode_header(data)
        rule = rejected_rule(decode_range, data, header.count - 1, 1, base=base)
        if rule != expected:
            return "a range of it: " + ("accepted" if rule is None else "R%d" % rule)
    return None


def check_file(directory, name):
    source = decode_file(read(directory, name))
    if source != read(directory, name[:-len(".bsnap")] + ".source"):
        return "another source"
    header = decode_file_header(read(directory, name))
    try:
        whole = json.loads(source[8:header.data_begin].decode()) if header.kind else {}
    except ValueError:
        whole = {}      # a text need not be a header
    for title, entry in whole.items() if isinstance(whole, dict) else ():
        if not isinstance(entry, dict) or "data_offsets" not in entry:
            continue
        begin, end = entry["data_offsets"]
        _, _, elements, count = decode_tensor(read(directory, name), title)
        if elements != source[header.data_begin + begin:header.data_begin + end] or count > 1 << 16:
            return "another tensor, or too many bytes for it"
    return None


def check_invalid_file(directory, name):
    expected, rule = name[:-len(".bsnap")].split("-")[1], rejected_rule(decode_file, read(directory, name))
    return None if rule is not None and rule_name(rule) == expected else "accepted" if rule is None else rule_name(rule)


def check_mutated(directory, name):
    """A damaged frame. It must be accepted if the other decoder accepted it and wrote elements, else rejected. Frames whose
    names begin with n are read without checks, so that damage gets past the checks."""
    data, stem = read(directory, name), name[:-len(".frame")]
    accepted = os.path.exists(os.path.join(directory, stem + ".elements"))
    try:
        frame = decode_frame(data, ignore_checks=name.startswith("n"), limit=1 << 20, base=read_base(directory, name))
    except TooLarge:
        return None
    except Reject as reject:
        return "rejected by %s, but the other decoder accepts it" % rule_name(reject.rule) if accepted else None
    if not accepted:
        return "accepted, but the other decoder rejects it"
    return None if frame.elements == read(directory, stem + ".elements") else "other elements"


GROUPS = (
    ("v", ".frame", "valid", "frames", check_valid),
    ("x", ".frame", "invalid", "frames", check_invalid),
    ("m", ".frame", "mutated", "frames", check_mutated),
    ("n", ".frame", "mutated, checks ignored", "frames", check_mutated),
    ("f", ".bsnap", "files", "files", check_file),
    ("g", ".bsnap", "invalid files", "files", check_invalid_file),
)


def check_directory(directory):
    """Prints a line for each group of test cases. Returns the number of groups that failed; 1 if there are no cases."""
    names = sorted(os.listdir(directory))
    failed = found = 0
    for letter, ending, title, noun, check in GROUPS:
        cases = [name for name in names if name.startswith(letter) and name.endswith(ending)]
        if not cases:
            continue
        found += 1
        problem = None
        for name in cases:
            try:
                problem = check(directory, name)
            except Exception as error:      # whatever goes wrong is a finding about this case
                problem = "%s: %s" % (type(error).__name__, error)
            if problem:
                problem = "%s: %s" % (name, problem)
                break
        if problem:
            failed += 1
            print("not ok - decoder %s: %s" % (title, problem))
        else:
            print("ok - decoder %s (%d %s)" % (title, len(cases), noun))
    if not found:
        print("not ok - decoder: nothing to check in %s" % directory)
    return failed if found else 1


def main():
    parser = argparse.ArgumentParser(description="Decoder of the bitsnap format, written from docs/FORMAT.md alone.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("frame", "write the elements of a frame to standard output"),
                       ("file", "write the source of a .bsnap file to standard output")):
        command = commands.add_parser(name, help=text)
        command.add_argument("path", metavar="FILE")
        command.add_argument("--limit", type=int, default=DEFAULT_LIMIT, help="bytes of output allowed")
        if name == "frame":
            command.add_argument("--ignore-checks", action="store_true", help="ignore R8 to R12, R44 and R45")
        command.add_argument("--base", metavar="BASE", action="append", default=[], help="the base of a delta: of a frame a "
                             "byte, its dtype, and its elements; of a file a .safetensors file, or several of them")
    command = commands.add_parser("check", help="decode all that generate.py or exchange.c wrote to a directory, and compare")
    command.add_argument("path", metavar="DIR")
    arguments = parser.parse_args()

    if arguments.command == "check":
        return 1 if check_directory(arguments.path) else 0
    with open(arguments.path, "rb") as stream:
        data = stream.read()
    bases = []
    for path in arguments.base:
        with open(path, "rb") as stream:
            bases.append(stream.read())
    try:
        if arguments.command == "frame":
            base = parse_base(bases[0]) if bases else None
            output = decode_frame(data, ignore_checks=arguments.ignore_checks, limit=arguments.limit, base=base).elements
        else:
            output = decode_file(data, limit=arguments.limit, base=bases or None)
    except (Reject, TooLarge) as error:
        print(error if isinstance(error, Reject) else "too large: %s" % error, file=sys.stderr)
        return 1
    sys.stdout.buffer.write(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
