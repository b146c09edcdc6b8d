#!/usr/bin/env python3
"""Warp instructions of the device code of docs/examples/offload, counted without a GPU: what nvcc makes of the kernels is
disassembled and executed here, by one group, for a block of 65536 elements of each file, at levels fast and default. What comes out
must be what the codec has, byte for byte, else the count says nothing. An instruction that a warp issues counts once, whichever
of its work-items take part; how long it takes, and for what it waits, is not looked at.

    tests/adapters/offload_sass.py [-v] [-l LEVEL] FILE.safetensors ...    -v: which functions and operations they are

Needs nvcc, numpy and nvdisasm (pip install nvidia-cuda-nvdisasm); says "skip" where one of them is not there."""
import argparse, collections, json, os, re, shutil, struct, subprocess, sys, tempfile

try:
    import numpy as np
except ImportError:
    print("skip - offload, counted: needs numpy")
    sys.exit(0)

ARCH = "sm_90"
THREADS, WARP = 256, 32
MEMORY = 48 << 10                                   # of a group, as in cuda.h
SCRATCH = 1056 << 10
SHARED, GLOBAL, LOCAL = 0x7001 << 32, 1 << 32, 0x7002 << 32  # windows of the generic address space
STACK = 4096
FULL = np.ones(WARP, bool)
u32, u64 = np.uint32, np.uint64
np.seterr(over="ignore")                            # of lanes that take no part


def disassembler():
    found = shutil.which("nvdisasm")
    for folder in sys.path:
        for cuda in ("cu13", "cu12", "cuda_nvdisasm"):
            path = os.path.join(folder, "nvidia", cuda, "bin", "nvdisasm")
            if not found and os.access(path, os.X_OK):
                found = path
    return found


# ---- operands: each a function of the warp, which gives 32 values ----

class Warp:
    def __init__(self, number, memory, constants):
        self.r = np.zeros((256, WARP), u32)         # 255: RZ
        self.u = np.zeros((64, WARP), u32)          # 63: URZ; all lanes the same
        self.p = np.zeros((8, WARP), bool)
        self.up = np.zeros((8, WARP), bool)
        self.p[7] = self.up[7] = True
        self.local = np.zeros((WARP, STACK), np.uint8)
        self.barrier = [[None] * WARP for _ in range(16)]
        self.moved = [None]                         # barriers whose numbers here are in registers
        self.memory, self.constants = memory, constants
        self.lanes = np.arange(WARP, dtype=u32)
        self.special = {"SR_TID.X": self.lanes + u32(number * WARP), "SR_LANEID": self.lanes, "SR_SWINHI": np.full(WARP, SHARED >> 32, u32)}
        self.alive = FULL.copy()
        self.ready = [(0, FULL.copy())]             # groups of lanes: where they go on
        self.waiting = []                           # at WARPSYNC
        self.stopped = []                           # at BAR


def operand(text):
    """A source of 32 bits."""
    text = text.replace(".reuse", "")
    if text[0] in "-~":
        inner, minus = operand(text[1:]), text[0] == "-"
        if re.match(r"-0x|-\d", text):
            value = np.full(WARP, int(text, 0) & 0xFFFFFFFF, u32)
            return lambda w: value
        return (lambda w: u32(0) - inner(w)) if minus else (lambda w: ~inner(w))
    if re.match(r"[0-9]", text):
        value = np.full(WARP, int(text, 0) & 0xFFFFFFFF, u32)
        return lambda w: value
    found = re.fullmatch(r"(U?)R(\d+|Z)", text)
    if found:
        i = (63 if found[1] else 255) if found[2] == "Z" else int(found[2])
        return (lambda w: w.u[i]) if found[1] else (lambda w: w.r[i])
    found = re.fullmatch(r"c\[(\w+)\]\[(.*)\]", text)
    if found:
        bank, at = int(found[1], 0), address("[" + found[2] + "]")
        return lambda w: read(w.constants[bank], at(w), 4)[0]
    raise ValueError("operand " + text)


def pair(text):
    """A source of 64 bits: two registers."""
    found = re.fullmatch(r"(U?)R(\d+|Z)", text.replace(".reuse", ""))
    if found[2] == "Z":
        return lambda w: np.zeros(WARP, u64)
    i, uniform = int(found[2]), found[1]
    return lambda w: (w.u if uniform else w.r)[i].astype(u64) | (w.u if uniform else w.r)[i + 1].astype(u64) << u64(32)


def predicate(text):
    found = re.fullmatch(r"(!?)(U?)P(\d|T)", text)
    i = 7 if found[3] == "T" else int(found[3])
    if found[1]:
        return (lambda w: ~w.up[i]) if found[2] else (lambda w: ~w.p[i])
    return (lambda w: w.up[i]) if found[2] else (lambda w: w.p[i])


def address(text):
    """[R4.64+0x8], [R4+UR5+-0x8]: as 64 bits."""
    parts = []
    for part in re.fullmatch(r"\[(.*)\]", text)[1].split("+"):
        if part.endswith(".64"):
            parts.append(pair(part[:-3]))
        elif re.match(r"-?0x|-?\d", part):
            value = np.full(WARP, int(part, 0) & (2**64 - 1), u64)
            parts.append(lambda w, value=value: value)
        else:
            inner = operand(part)
            parts.append(lambda w, inner=inner: inner(w).astype(u64))
    if len(parts) == 1:
        return parts[0]
    if len(parts) == 2:
        return lambda w: parts[0](w) + parts[1](w)
    return lambda w: parts[0](w) + parts[1](w) + parts[2](w)


def read(data, at, size):
    """Words of lanes: rows of u32."""
    if size >= 4:
        assert not (at % u64(size)).any(), "misaligned"
        return [data.view(u32)[(at >> u64(2)) + u64(k)] for k in range(size // 4)]
    return [data.view(np.uint16 if size == 2 else np.uint8)[at >> u64(size - 1)].astype(u32)]


def write(data, at, values, size):
    if size >= 4:
        assert not (at % u64(size)).any(), "misaligned"
        for k in range(size // 4):
            data.view(u32)[(at >> u64(2)) + u64(k)] = values[k]
    else:
        data.view(np.uint16 if size == 2 else np.uint8)[at >> u64(size - 1)] = values[0].astype(np.uint16 if size == 2 else np.uint8)


def place(w, op, at, mask):
    """The memory that an instruction means, and where in it, for the lanes of the mask."""
    at = at[mask]
    if op.startswith(("LDS", "STS", "ATOMS")):
        return w.memory["shared"], at & u64(0xFFFFFFFF)
    if op.startswith(("LDL", "STL")):
        return w.local.reshape(-1), (at & u64(0xFFFFFFFF)) + (w.lanes[mask] * u32(STACK)).astype(u64)
    high = at[0] & u64(0xFFFF << 32 if at[0] >= GLOBAL else 0)
    if high == SHARED:
        return w.memory["shared"], at - u64(SHARED)
    if high == LOCAL:
        return w.local.reshape(-1), at - u64(LOCAL) + (w.lanes[mask] * u32(STACK)).astype(u64)
    assert (at >= u64(GLOBAL)).all()
    return w.memory["global"], at - u64(GLOBAL)


# ---- instructions: each a function of the warp and the lanes that take part ----

def lut(table, a, b, c):
    if table == 0xC0:
        return a & b
    if table == 0xFC:
        return a | b
    if table == 0x3C:
        return a ^ b
    out = a ^ a
    for i in range(8):
        if table >> i & 1:
            out = out | ((a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c))
    return out


def permute(a, selector, c):
    both = a.astype(u64) | c.astype(u64) << u64(32)
    out = np.zeros(WARP, u64)
    for i in range(4):
        s = (selector >> u32(4 * i)).astype(u64)
        byte = both >> ((s & u64(7)) << u64(3)) & u64(255)
        out |= np.where(s & u64(8), (byte >> u64(7)) * u64(255), byte) << u64(8 * i)
    return out.astype(u32)


def compare(name, a, b, signed):
    if signed:
        a, b = a.view(np.int32), b.view(np.int32)
    return {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal}[name](a, b)


def bits_of(x):
    return sum(1 << i for i in range(WARP) if x[i])


def highest(x):
    return np.where(x == 0, u32(0xFFFFFFFF), np.frexp(x.astype(np.float64))[1].astype(np.int64) - 1).astype(u32)


def ones(x):
    return np.bitwise_count(x).astype(u32)


def shift(op, a, s, c):
    both = a.astype(u64) | c.astype(u64) << u64(32)
    s = (s & u32(31)).astype(u64) if ".W" in op else np.minimum(s, u32(63 if "64" in op else 32)).astype(u64)
    if op.startswith("SHF.R.S32"):
        return (c.view(np.int32).astype(np.int64) >> s.astype(np.int64)).astype(u32)
    moved = both >> s if ".R" in op else both << s
    if ".R" not in op and "HI" not in op:
        return moved.astype(u32)
    return (moved >> u64(32) if "HI" in op else moved).astype(u32)


def shuffle(op, w, a, b, c):
    c = int(c[0])
    lane, limit, segment = w.lanes.astype(np.int64), c & 31, c >> 8 & 31
    low = lane & segment
    high = low | (limit & ~segment)
    step = b.astype(np.int64)
    if "IDX" in op:
        j = low | (step & 31 & ~segment)
        valid = j <= high
    elif "UP" in op:
        j = lane - step
        valid = j >= high
    elif "DOWN" in op:
        j = lane + step
        valid = j <= high
    else:
        j = lane ^ step
        valid = j <= high
    j = np.where(valid, j, lane)
    return a[j], valid


def split_predicates(texts):
    """Predicates at the beginning: results of an instruction."""
    n = 0
    while n < len(texts) and re.fullmatch(r"!?U?P(\d|T)", texts[n]):
        n += 1
    return texts[:n], texts[n:]


def keep(w, text, value, mask):
    """Stores a result: register, or predicate."""
    if text in ("RZ", "URZ", "PT", "UPT"):
        return
    found = re.fullmatch(r"(U?)(R|P)(\d+)", text)
    row = {"R": w.r, "P": w.p, "UR": w.u, "UP": w.up}[found[1] + found[2]][int(found[3])]
    if found[1]:
        if mask.any():
            row[:] = value[int(np.argmax(mask))]
    elif mask is FULL:
        row[:] = value
    else:
        row[mask] = value[mask]


def keep_pair(w, text, value, mask):
    keep(w, text, value.astype(u32), mask)
    keep(w, re.sub(r"\d+", lambda m: str(int(m[0]) + 1), text), (value >> u64(32)).astype(u32), mask)


def arithmetic(op, texts):
    """What computes registers and predicates from such."""
    base = op[1:] if op[0] == "U" else op
    name = base.split(".")[0]
    outs, rest = split_predicates(texts)
    if name in ("ISETP",):
        parts = op.split(".")
        how, signed, join = parts[1], "U32" not in parts, parts[3] if parts[2] == "U32" else parts[2]
        a, b, extra = operand(rest[0]), operand(rest[1]), [predicate(t) for t in rest[2:]]

        def run(w, mask):
            x, y = a(w), b(w)
            result = compare(how, x, y, signed)
            if "EX" in parts:
                low = extra[1](w)
                result = {"EQ": result & low, "NE": result | low}.get(how)
                if result is None:
                    result = compare(how[0] + "T", x, y, signed) | (x == y) & low
            c = extra[0](w)
            keep(w, outs[0], result & c if join == "AND" else result | c, mask)
            keep(w, outs[1], ~result & c if join == "AND" else ~result | c, mask)
        return run
    if name == "PLOP3":
        sources = [predicate(t) for t in outs[2:]]
        tables = [int(t, 0) for t in rest]

        def run(w, mask):
            a, b, c = (s(w) for s in sources)
            first, second = lut(tables[0], a, b, c), lut(tables[1], a, b, c)
            keep(w, outs[0], first, mask)
            keep(w, outs[1], second, mask)
        return run
    to, texts = rest[0], rest[1:]
    if not outs and name not in ("VOTE", "VOTEU"):
        outs, texts = split_predicates(texts)
    preds = [predicate(t) for t in texts if re.fullmatch(r"!?U?P(\d|T)", t)]
    texts = [t for t in texts if not re.fullmatch(r"!?U?P(\d|T)", t)]
    if name in ("IADD3", "LEA", "VIADD"):
        if name == "LEA":
            amount = int(texts[-1], 0)
            high = ".HI" in op
            a, b = operand(texts[0]), operand(texts[1].lstrip("-~"))
            c = operand(texts[2]) if high else None
            sign = texts[1][0]

            def terms(w):
                x, y = a(w).astype(u64), b(w).astype(u64)
                x = (x | c(w).astype(u64) << u64(32)) << u64(amount) >> u64(32) if high else x << u64(amount)
                y = u64(1 << 32) - y if sign == "-" else y ^ u64(0xFFFFFFFF) if sign == "~" else y
                return (x & u64(0xFFFFFFFF)) + y
        else:
            sources = [(t[0], operand(t.lstrip("-~") if not re.match(r"-0x|-\d", t) else t)) for t in texts]
            signs = [s if not re.match(r"-0x|-\d", t) else "" for (s, _), t in zip(sources, texts)]
            values = [f for _, f in sources]

            def terms(w):
                total = np.zeros(WARP, u64)
                for s, f in zip(signs, values):
                    y = f(w).astype(u64)
                    total = total + (u64(1 << 32) - y if s == "-" else y ^ u64(0xFFFFFFFF) if s == "~" else y)
                return total
        carried = ".X" in op

        def run(w, mask):
            total = terms(w)
            if carried:
                for p in preds:
                    total = total + p(w).astype(u64)
            if outs:
                over = total >> u64(32)
                for i, out in enumerate(outs):
                    keep(w, out, over > u64(i), mask)
            keep(w, to, total.astype(u32), mask)
        return run
    if name == "IMAD" and ".WIDE" in op:
        a, b, c = operand(texts[0]), operand(texts[1]), pair(texts[2])
        signed = "U32" not in op

        def run(w, mask):
            x, y = a(w), b(w)
            z = c(w)
            product = (x.view(np.int32).astype(np.int64) * y.view(np.int32).astype(np.int64)).view(u64) if signed else x.astype(u64) * y.astype(u64)
            total = product + z
            over = total < z
            if preds:
                more = preds[0](w).astype(u64)
                over = over | (total + more < more)
                total = total + more
            if outs:
                keep(w, outs[0], over, mask)
            keep_pair(w, to, total, mask)
        return run
    if name == "IMAD" and ".HI" in op:
        a, b, c = operand(texts[0]), operand(texts[1]), pair(texts[2])
        assert "U32" in op

        def run(w, mask):
            z = c(w)
            total = a(w).astype(u64) * b(w).astype(u64) + z
            if outs:
                keep(w, outs[0], total < z, mask)
            keep(w, to, (total >> u64(32)).astype(u32), mask)
        return run
    if name == "CS2R":
        return lambda w, mask: keep_pair(w, to, np.zeros(WARP, u64), mask)
    if name == "VOTE" or name == "VOTEU":
        source = preds[1]

        def run(w, mask):
            value = bits_of(source(w) & mask)
            keep(w, to, np.full(WARP, value, u32), mask)
        return run
    if name in ("P2R", "P2UR"):
        assert texts[0] in ("PR", "UPR")
        c, chosen = operand(texts[1]), int(texts[2], 0)

        def run(w, mask):
            value = sum(((w.up if name == "P2UR" else w.p)[i].astype(u32) << u32(i) for i in range(7)), np.zeros(WARP, u32))
            keep(w, to, (value & u32(chosen)) | (c(w) & u32(~chosen & 0xFFFFFFFF)), mask)
        return run
    if name in ("S2R", "S2UR"):
        return lambda w, mask: keep(w, to, w.special.get(texts[0], np.zeros(WARP, u32)), mask)
    if name == "SHFL":
        a, b, c = (operand(t) for t in texts)

        def run(w, mask):
            value, valid = shuffle(op, w, a(w), b(w), c(w))
            keep(w, to, value, mask)
            keep(w, outs[0], valid, mask)
        return run
    if name in ("I2F", "F2I") and "U64" in op:
        a = pair(texts[0]) if name == "I2F" else operand(texts[0])
        return (lambda w, mask: keep(w, to, toward_infinity(a(w)), mask)) if name == "I2F" else \
               (lambda w, mask: keep_pair(w, to, np.where(mask, a(w).view(np.float32), 0).astype(u64), mask))
    sources = [operand(t) for t in texts]
    signed = "U32" not in op
    if name == "LOP3":
        table = int(texts[3], 0)
        sources = sources[:3]

        def run(w, mask):
            value = lut(table, *(s(w) for s in sources))
            keep(w, to, value, mask)
            if outs:
                keep(w, outs[0], (value != 0) | preds[0](w), mask)
        return run
    if name == "REDUX" or name == "R2UR":
        def run(w, mask):
            if not mask.any():
                return
            x = sources[0](w)[mask]
            value = x[:1] if name == "R2UR" else np.bitwise_or.reduce(x) if "OR" in op else x.sum(dtype=u32)
            keep(w, to, np.full(WARP, value, u32), FULL)
        return run

    def minmax(a, b, which):
        if signed:
            a, b = a.view(np.int32), b.view(np.int32)
        return np.where(which, np.minimum(a, b), np.maximum(a, b)).astype(u32)
    functions = {
        "IMAD": lambda w, a, b, c: a * b + c + (preds[0](w).astype(u32) if ".X" in op else u32(0)),
        "MOV": lambda w, a: a, "PRMT": lambda w, a, b, c: permute(a, b, c), "SHF": lambda w, a, s, c: shift(base, a, s, c),
        "SEL": lambda w, a, b: np.where(preds[0](w), a, b), "POPC": lambda w, a: ones(a),
        "VIMNMX": lambda w, a, b: minmax(a, b, preds[0](w)), "IMNMX": lambda w, a, b: minmax(a, b, preds[0](w)),
        "VIMNMX3": lambda w, a, b, c: minmax(minmax(a, b, preds[0](w)), c, preds[0](w)),
        "VIADDMNMX": lambda w, a, b, c: minmax(a + b, c, preds[0](w)),
        "FLO": lambda w, a: np.where(a == 0, u32(0xFFFFFFFF), u32(31) - highest(a) if ".SH" in op else highest(a)).astype(u32),
        "BREV": lambda w, a: sum(((a >> u32(i) & u32(1)) << u32(31 - i) for i in range(32)), np.zeros(WARP, u32)),
        "I2F": lambda w, a: toward_infinity(a), "MUFU": lambda w, a: (np.float32(1) / a.view(np.float32)).view(u32),
        "F2I": lambda w, a: np.minimum(np.trunc(a.view(np.float32).astype(np.float64)), 2.0**32 - 1).astype(u64).astype(u32),
    }
    compute = functions[name]
    if len(sources) == 1:
        return lambda w, mask: keep(w, to, compute(w, sources[0](w)), mask)
    if len(sources) == 2:
        return lambda w, mask: keep(w, to, compute(w, sources[0](w), sources[1](w)), mask)
    return lambda w, mask: keep(w, to, compute(w, sources[0](w), sources[1](w), sources[2](w)), mask)


def toward_infinity(a):
    near = a.astype(np.float32)
    return np.where((near < 2.0**64) & (np.where(near < 2.0**64, near, 0).astype(u64) < a), np.nextafter(near, np.float32(np.inf)), near).view(u32)


def size_of(op):
    parts = op.split(".")
    return 16 if "128" in parts else 8 if "64" in parts else 2 if "U16" in parts else 1 if "U8" in parts else 4


def access(op, texts):
    size = size_of(op)
    name = op.split(".")[0]
    texts = [re.sub(r"^desc\[\w+\]", "", t) for t in texts]
    if name in ("LDC", "ULDC"):
        found = re.fullmatch(r"c\[(\w+)\](\[.*\])", texts[1])
        bank, at, to = int(found[1], 0), address(found[2]), texts[0]

        def run(w, mask):
            for k, value in enumerate(read(w.constants[bank], np.where(mask, at(w) & u64(0xFFFFFFFF), u64(0)), size)):
                keep(w, re.sub(r"\d+", lambda m: str(int(m[0]) + k), to), value, mask)
        return run
    if name.startswith("LD"):
        at, first = address(texts[1]), texts[0]
        registers = [int(first[1:]) + k for k in range(max(size // 4, 1))] if first != "RZ" else []

        def run(w, mask):
            if mask.any():
                data, where = place(w, op, at(w), mask)
                for register, value in zip(registers, read(data, where, size)):
                    w.r[register][mask] = value
        return run
    if name.startswith("ST"):
        at, first = address(texts[0]), texts[1].replace(".reuse", "")
        registers = [255 if first == "RZ" else int(first[1:]) + k for k in range(max(size // 4, 1))]

        def run(w, mask):
            if mask.any():
                data, where = place(w, op, at(w), mask)
                write(data, where, [w.r[r][mask] for r in registers], size)
        return run
    assert name == "ATOMS" and texts[0] == "RZ", op
    at, value = address(texts[1]), operand(texts[2]) if len(texts) > 2 else operand("0x1")

    def run(w, mask):
        if mask.any():
            data, where = place(w, op, at(w), mask)
            (np.bitwise_or if "OR" in op else np.add).at(data.view(u32), where >> u64(2), value(w)[mask])
    return run


# ---- a kernel ----

class Barrier:
    def __init__(self, members, pc):
        self.members, self.came, self.pc = members.copy(), np.zeros(WARP, bool), pc


def moved_barrier(op, texts):
    """A convergence barrier goes to a register, and from where it was, or comes back."""
    to, source = texts
    if to[0] == "B":
        number = operand(source)

        def run(w, mask):
            for lane in np.flatnonzero(mask):
                w.barrier[int(to[1:])][lane] = w.moved[number(w)[lane]]
        return run
    assert ".CLEAR" in op, op

    def run(w, mask):
        barriers, numbers = w.barrier[int(source[1:])], np.zeros(WARP, u32)
        for lane in np.flatnonzero(mask):
            if barriers[lane] not in w.moved:
                w.moved.append(barriers[lane])
            numbers[lane] = w.moved.index(barriers[lane])
            barriers[lane] = None
        keep(w, to, numbers, mask)
    return run


def parse(text, kernel):
    """(guard, opcode, operands) of each instruction, by address / 16; and the labels."""
    code, labels, inside = [], {}, False
    for line in text.split("\n"):
        if line.lstrip().startswith(".section"):
            inside = ".text." + kernel + "," in line.replace('"', ",").replace("\t", ",")
        if not inside:
            continue
        found = re.match(r"^([\w.$]+):\s*$", line)
        if found:
            labels[found[1]] = len(code)
        found = re.match(r"^\s+/\*[0-9a-f]+\*/\s+(?:@(!?U?P\w+)\s+)?([\w.]+)\s*(.*?)\s*;", line)
        if found:
            rest = re.sub(r"\(\*.*\*\)", "", found[3]).strip()
            code.append((found[1], found[2], [t.strip() for t in rest.split(",")] if rest else []))
    return code, labels


class Kernel:
    def __init__(self, text, elf, kernel):
        self.code, self.labels = parse(text, kernel)
        self.made = [None] * len(self.code)
        self.constant3 = section(elf, ".nv.constant3")
        self.parameters = len(section(elf, ".nv.constant0." + kernel)) - 40

    def run(self, memory, arguments):
        """One group; counts of instructions by address."""
        zero = np.zeros(1024, np.uint8)
        zero[0x28:0x2C].view(u32)[:] = STACK - 256
        zero[0x0C:0x10].view(u32)[:] = 1            # groups
        zero[0x20:0x28].view(u64)[:] = LOCAL
        zero[self.parameters:self.parameters + len(arguments)] = np.frombuffer(arguments, np.uint8)
        constants = {0: zero, 3: np.frombuffer(self.constant3 + bytes(-len(self.constant3) % 16), np.uint8).copy()}
        warps = [Warp(i, memory, constants) for i in range(THREADS // WARP)]
        self.counts = [0] * len(self.code)
        while any(w.alive.any() for w in warps):
            for w in warps:
                self.until_stopped(w)
            for w in warps:
                assert sum(int(m.sum()) for _, m in w.stopped) == int(w.alive.sum()), "some wait where others do not"
                w.ready, w.stopped = merged(w.stopped), []
        return self.counts

    def until_stopped(self, w):
        while w.ready:
            pc, mask = w.ready.pop()
            self.group(w, pc, mask)

    def arrive(self, w, barrier):
        if (barrier.came == (barrier.members & w.alive)).all() and barrier.came.any():
            w.ready.append((barrier.pc + 1, barrier.came.copy()))
            barrier.came[:] = False

    def group(self, w, pc, mask):
        """Lanes that go together, as far as they do."""
        code, made, counts = self.code, self.made, self.counts
        if mask.all():
            mask = FULL
        while True:
            guard, op, texts = code[pc]
            counts[pc] += 1
            step = made[pc]
            if step is None:
                step = made[pc] = self.make(op, texts, guard)
            if callable(step):
                step(w, mask)
                pc += 1
                continue
            kind, test, a = step
            take = mask if test is None else mask & test(w)
            if kind in ("BRA", "DIV", "CALL", "RET"):
                if kind == "RET":
                    a = int(w.r[a][int(np.argmax(mask))]) // 16
                if kind == "DIV":
                    take = take if bits_of(mask) != int(a[1](w)[0]) else take & False
                    a = a[0]
                if not take.any():
                    pc += 1
                elif (take == mask).all():
                    pc = a
                else:
                    w.ready.append((pc + 1, mask & ~take))
                    pc, mask = a, take
            elif kind == "BSSY":
                barrier = Barrier(mask, 0)
                for lane in np.flatnonzero(mask):
                    w.barrier[a][lane] = barrier
                pc += 1
            elif kind == "BREAK":
                for lane in np.flatnonzero(take):
                    barrier = w.barrier[a][lane]
                    barrier.members[lane] = False
                    self.arrive(w, barrier)
                pc += 1
            elif kind == "BSYNC":
                assert (take == mask).all()
                barrier = w.barrier[a][int(np.argmax(mask))]
                barrier.came |= mask
                barrier.pc = pc
                self.arrive(w, barrier)
                return
            elif kind == "EXIT":
                w.alive &= ~take
                for barriers in w.barrier:
                    for barrier in {id(b): b for b in barriers if b}.values():
                        self.arrive(w, barrier)
                mask = mask & ~take
                if not mask.any():
                    return
                pc += 1
            elif kind == "BAR":
                w.stopped.append((pc + 1, mask.copy()))
                return
            elif kind == "WARPSYNC":
                w.waiting.append((pc + 1, mask.copy()))
                if sum(int(m.sum()) for _, m in w.waiting) == int(w.alive.sum()):
                    w.ready += merged(w.waiting)
                    w.waiting = []
                return

    def make(self, op, texts, guard):
        test = predicate(guard) if guard else None
        name = op.split(".")[0]
        label = texts[-1][2:-1] if texts and texts[-1].startswith("`") else None
        if label is None and texts and "`(" in texts[-1]:
            label = texts[-1].split("`(")[1][:-1]
        if name in ("NOP", "YIELD", "ENDCOLLECTIVE"):
            return lambda w, mask: None
        if name == "BRA":
            target = self.labels[label]
            if ".DIV" in op:
                return "DIV", test, (target, operand(texts[0]))
            if len(texts) > 1:
                more = predicate(texts[0])
                return "BRA", (lambda w: test(w) & more(w)) if test else more, target
            return "BRA", test, target
        if name == "CALL":
            return "CALL", test, self.labels[label]
        if name == "RET":
            return "RET", test, int(re.match(r"R(\d+)", texts[0])[1])
        if name in ("BSSY", "BSYNC", "BREAK"):
            return name, test, int(re.search(r"B(\d+)", " ".join(texts))[1])
        if name in ("EXIT", "BAR", "WARPSYNC"):
            return name, test, None
        makes = moved_barrier if name == "BMOV" else access if re.match(r"U?LD|ST|ATOM|RED\b", op) else arithmetic
        run = makes(op, texts)
        if test is None:
            return run
        return lambda w, mask: run(w, mask & test(w))


def merged(groups):
    at = {}
    for pc, mask in groups:
        at[pc] = at[pc] | mask if pc in at else mask
    return sorted(at.items(), reverse=True)


def section(elf, wanted):
    """Bytes of a section of an ELF file; empty where there is none."""
    offset, = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    heads = [struct.unpack_from("<IIQQQQ", elf, offset + i * size) for i in range(count)]
    for head in heads:
        at = heads[names][4] + head[0]
        if elf[at:elf.index(b"\0", at)].decode() == wanted:
            return bytes(head[5]) if head[1] == 8 else elf[head[4]:head[4] + head[5]]
    return b""


# ---- blocks of tensors ----

CODER = r"""
#define BITSNAP_IMPLEMENTATION
#include "bitsnap.h"
#include <stdio.h>
#include <stdlib.h>
static unsigned char in[1 << 20], out[1 << 21], work[1 << 25];
int main(int argc, char **argv)
{
    bitsnap b = { 0 };
    bitsnap_info info;
    const bitsnap_dtype dtype = (bitsnap_dtype)atoi(argv[1]);
    size_t size = fread(in, 1, sizeof in, stdin), n = size / bitsnap_width(dtype);
    if (argc != 5) return 1;
    b.level = atoi(argv[2]);
    b.quantizer.bins = (unsigned)atoi(argv[3]);
    b.columns = (unsigned)atoi(argv[4]);
    b.block_log2 = 16;
    b.workspace = work;
    b.workspace_size = sizeof work;
    if (bitsnap_encode(&b, out, sizeof out, &size, in, n, dtype) || bitsnap_read_info(&info, out, size) ||
        bitsnap_decode(&b, in, n, dtype, out, size)) return 1;
    return fwrite(&info.header_check, 8, 1, stdout) + fwrite(out + info.header_size, size - info.header_size, 1, stdout) +
           fwrite(in, n * bitsnap_width(dtype), 1, stdout) != 3;
}
"""
DTYPES = {"F16": (8, 2), "BF16": (9, 2), "F32": (10, 4)}
N = 65536
CELLS = 35 # of moments: within 1 %


def elements_of(path):
    """65536 elements from the middle of the largest tensor, and how many are in a row."""
    with open(path, "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        head = json.loads(f.read(size))
        best = max((v for k, v in head.items() if k != "__metadata__" and v["dtype"] in DTYPES),
                   key=lambda v: v["data_offsets"][1] - v["data_offsets"][0])
        dtype, width = DTYPES[best["dtype"]]
        begin, end = best["data_offsets"]
        f.seek(8 + size + begin + (end - begin) // width // 2 // N * N * width)
        return dtype, width, best["shape"][-1], f.read(N * width)


def work_of(source, target, size, head, dtype, level, check, cells, columns):
    return struct.pack("<QQQQQIIIBBBBII", source, target, 0, 0, check, size, N, head, dtype, level, 1, 0, cells, columns)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-v", action="store_true")
    parser.add_argument("-l", type=int, choices=(1, 2))
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    nvdisasm, nvcc = disassembler(), shutil.which("nvcc")
    if not nvdisasm or not nvcc:
        print("skip - offload, counted: needs nvcc and nvdisasm (pip install nvidia-cuda-nvdisasm)")
        return 0
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    with tempfile.TemporaryDirectory() as t:
        with open(t + "/kernels.cu", "w") as f:
            f.write('#define BITSNAP_OFFLOAD\n#include "docs/examples/offload/quantize.h"\n')
        with open(t + "/coder.c", "w") as f:
            f.write(CODER)
        subprocess.run([nvcc, "-O3", "-arch=" + ARCH, "-I" + root, "-cubin", t + "/kernels.cu", "-o", t + "/kernels.cubin"], check=True)
        subprocess.run([os.environ.get("CC", "cc").split()[-1], "-O1", "-I" + root, t + "/coder.c", "-o", t + "/coder"], check=True)
        text = subprocess.run([nvdisasm, "-c", t + "/kernels.cubin"], check=True, capture_output=True, text=True).stdout
        with open(t + "/kernels.cubin", "rb") as f:
            elf = f.read()
        wrong = 0
        plain, quantized = [[Kernel(text, elf, "offload_" + name) for name in names]
                            for names in (("decode", "encode"), ("decode_deltas", "encode_cells"))]
        for path in options.files:
            dtype, width, columns, elements = elements_of(path)
            cells, columns = (CELLS, columns) if os.path.basename(path).startswith("adam") else (0, 0)
            decode, encode = quantized if cells else plain
            for level in (options.l,) if options.l else (1, 2):
                coder = [t + "/coder"] + [str(x) for x in (dtype, level, cells, columns)]
                coded = subprocess.run(coder, input=elements, stdout=subprocess.PIPE, check=True).stdout
                check, head = struct.unpack_from("<QI", coded)
                block, decoded = coded[8:20 + (head >> 8)], coded[-len(elements):]
                report = []
                for kernel, source, size, wanted in (decode, block, len(block), decoded), (encode, elements, N * width + 28, block):
                    shared = np.full(MEMORY + 1024, 0xCD, np.uint8)
                    at = [256, 256 + (len(source) + 271) // 256 * 256]
                    scratch = (at[1] + N * width + 512) // 256 * 256
                    memory = np.full(scratch + SCRATCH, 0xA5, np.uint8)
                    work = work_of(GLOBAL + at[0], GLOBAL + at[1], size, head, dtype, level, check, cells, columns)
                    memory[:len(work)] = np.frombuffer(work, np.uint8)
                    memory[at[0]:at[0] + len(source)] = np.frombuffer(source, np.uint8)
                    arguments = struct.pack("<QQIIQII", GLOBAL, GLOBAL + 128, 1, 0, GLOBAL + scratch, SCRATCH, MEMORY)
                    counts = kernel.run({"shared": shared, "global": memory}, arguments)
                    status, made = memory[128:136].view(u32)
                    right = status == 0 and bytes(memory[at[1]:at[1] + len(wanted)]) == wanted
                    wrong += not right
                    report.append("%7d%s" % (sum(counts), "" if right else " WRONG (status %d)" % status))
                print("%-24s level %d: decode %s, encode %s" % (os.path.basename(path), level, *report), flush=True)
                if options.v:
                    for kernel in decode, encode:
                        profile(kernel)
    return wrong != 0


def profile(kernel):
    """Where the instructions are: by function, and the operations."""
    names = sorted((i, n) for n, i in kernel.labels.items() if not n.startswith(".L") and not n.startswith(".text"))
    for (begin, name), end in zip(names, [i for i, _ in names[1:]] + [len(kernel.code)]):
        print("  %8d %s" % (sum(kernel.counts[begin:end]), name))
    by = collections.Counter()
    for n, (_, op, _) in zip(kernel.counts, kernel.code):
        by[op.split(".")[0]] += n
    print("  " + ", ".join("%s %d" % x for x in by.most_common(16)))


if __name__ == "__main__":
    sys.exit(main())
