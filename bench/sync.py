#!/usr/bin/env python3
"""Compares deltas of docs/examples/sync with the messages of frameworks, in bytes and seconds. sync.py [DIR] [--mib N]. DIR:
bf16-*.safetensors.

Each form turns `old` into `new` on one thread: encode compares them and makes a message, apply brings a copy of the old weights
to the new ones. Times are the best of several runs, which alternate between the forms. bitsnap checks the weights before and
after; the others check nothing. So a column adds the time of two passes of XXH3 over the weights to theirs, at the trainer and at
the rollout.
"""
import os
import platform
import sys
import time

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(root, "docs", "examples", "sync"))

import numpy  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
from numcodecs.zstd import Zstd  # noqa: E402

import bitsnap  # noqa: E402
from bitsnap_sync import Rollout, Trainer  # noqa: E402

torch.set_num_threads(1)
zstd = Zstd(1)


class Index:
    """int32 positions and values."""

    def encode(self, new, old):
        at = numpy.flatnonzero(new != old).astype("i4")
        return at, new[at]

    def apply(self, live, message):
        live[message[0]] = message[1]


class Xor:
    """zstd -1 of the XOR."""

    def encode(self, new, old):
        return (zstd.encode(new ^ old),)

    def apply(self, live, message):
        numpy.bitwise_xor(live, numpy.frombuffer(zstd.decode(message[0]), live.dtype), out=live)


class Gaps:
    """zstd -1 of uint16 gaps between positions, and of values."""

    def encode(self, new, old):
        at = numpy.flatnonzero(new != old)
        if at.size == 0:
            return ()
        gaps = numpy.diff(at, prepend=-1) - 1
        kind = "u2" if gaps.size == 0 or gaps.max() < 65536 else "u4"
        return zstd.encode(gaps.astype(kind)), zstd.encode(new[at]), kind

    def apply(self, live, message):
        if not message:
            return
        gaps = numpy.frombuffer(zstd.decode(message[0]), message[2])
        live[numpy.cumsum(gaps.astype("i8") + 1) - 1] = numpy.frombuffer(zstd.decode(message[1]), live.dtype)


def clock(function, *args):
    start = time.thread_time()  # processor time, because others may use the machine
    result = function(*args)
    return time.thread_time() - start, result


def measure(name, old, new, repeats):
    """Prints one row for each form. old, new: dictionaries of tensors."""
    trainer = Trainer(old)
    trainer.spare.fill(new)
    changed = total = 0
    pairs = []  # one for each piece, as elements
    for (dtype, after), (_, before) in zip(trainer.spare.pieces, trainer.weights.pieces):
        kind = f"u{bitsnap.files._width(dtype)}"
        pairs.append((after.view(kind), before.view(kind)))
        changed += int((pairs[-1][0] != pairs[-1][1]).sum())
        total += pairs[-1][0].size
    push = trainer.weights.data.nbytes
    forms = {"index": Index(), "xor zstd": Xor(), "gaps zstd": Gaps()}
    best = {form: [9e9, 9e9] for form in [*forms, "bitsnap"]}
    sizes, check = {}, 9e9
    for _ in range(repeats):
        for form, x in forms.items():
            encode, messages = clock(lambda: [x.encode(*pair) for pair in pairs])
            live = [before.copy() for _, before in pairs]
            apply, _ = clock(lambda: [x.apply(*pair) for pair in zip(live, messages)])
            assert all((a == b).all() for a, (b, _) in zip(live, pairs))
            sizes[form] = sum(part.nbytes if hasattr(part, "nbytes") else len(part) for m in messages for part in m if not isinstance(part, str))
            best[form] = [min(best[form][0], encode), min(best[form][1], apply)]
        rollout = Rollout(old)
        encode, (_, message) = clock(trainer._encode, 0)
        apply, _ = clock(rollout.apply, message)
        sizes["bitsnap"] = len(message)
        best["bitsnap"] = [min(best["bitsnap"][0], encode), min(best["bitsnap"][1], apply)]
        check = min(check, 2 * clock(lambda: [bitsnap.hash(b) for _, b in pairs])[0])
    times = {form: sum(best[form]) for form in best}
    least, fastest = min(sizes[f] for f in forms), min(times[f] for f in forms)
    for form in best:
        ratios = (f"{sizes[form] / least:.2f}", f"{times[form] / fastest:.2f}", f"{times[form] / (fastest + check):.2f}") if form == "bitsnap" else ("", "", "")
        print("|", " | ".join([f"{name} ({100 * changed / total:.2f} % changed)" if form == "index" else "", form, f"{sizes[form]:,}", f"{push / sizes[form]:.1f}",
                               *(f"{1e3 * x:.2f}" for x in best[form]), *ratios]), "|", flush=True)


def change(bits, share, rng):
    at = numpy.flatnonzero(rng.random(bits.size) < share)
    bits[at] += rng.choice(numpy.array([1, -1], bits.dtype.str.replace("u", "i")).view(bits.dtype), at.size)  # up or down by one


def synthetic(kind, mib, share):
    """Makes normal numbers, and changes a share of them to a neighbour. FP8: like weights, with a scale for each 128 x 128."""
    rng = numpy.random.default_rng(1)
    count = (mib << 20) // (2 if kind == "BF16" else 1)
    weights = torch.from_numpy(rng.standard_normal(count, "f4")) * 0.02
    if kind == "BF16":
        old = {"w": weights.bfloat16()}
    else:
        blocks = weights.reshape(-1, 16384)
        scale = blocks.abs().amax(1, keepdim=True) / 448
        old = {"w": (blocks / scale).to(torch.float8_e4m3fn), "w.scale": scale}
    new = {name: tensor.clone() for name, tensor in old.items()}
    for tensor in new.values():
        change(tensor.reshape(-1).view(torch.uint8).numpy().view(f"u{tensor.element_size()}"), share, rng)
    return old, new


def eighths(weights):
    """Converts a model to FP8, with a scale for each row."""
    result = {}
    for name, t in weights.items():
        if t.dim() == 2:
            scale = t.float().abs().amax(1, keepdim=True) / 448 + 1e-12
            result[name], result[name + ".scale"] = (t.float() / scale).to(torch.float8_e4m3fn), scale
        else:
            result[name] = t
    return result


words = sys.argv[1:]
mib = int(words.pop(words.index("--mib") + 1)) if "--mib" in words else 64
data = next((w for w in words if not w.startswith("--")), None)
repeats = 3 if mib < 16 else 9
print(f"""One thread of {os.cpu_count()} of {platform.machine()}, milliseconds of its time; {mib} MiB where no file is named. bitsnap {bitsnap.__version__}, numpy {numpy.__version__},
zstd of numcodecs. *least*: to the bytes of the smallest other form. *fastest*: encode and apply, to those of the fastest other form;
*checked*: if that looked at the weights with XXH3, too, at the trainer and at the rollout.

| weights | form | bytes | push / bytes | encode | apply | least | fastest | checked |
|---|---|---|---|---|---|---|---|---|""")
for kind in ("BF16", "FP8"):
    for share in (0.001, 0.01, 0.045, 0.1):
        measure(kind, *synthetic(kind, mib, share), repeats)
for base, result in (("1000", "1001"), ("2400", "2401"), ("2410", "tune1"), ("2410", "tune10")) if data else ():
    old, new = [safetensors.torch.load_file(os.path.join(data, f"bf16-{x}.safetensors")) for x in (base, result)]
    for kind, cast in (("BF16", dict), ("FP8", eighths)):
        measure(f"{kind}, {base} to {result}", cast(old), cast(new), 5 * repeats)
