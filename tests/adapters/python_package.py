"""Tests of the package bitsnap, where it is installed: python_package.py bare | python_package.py TOOL README [TEST ...]. By check_python.sh."""
import ctypes
import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings

import bitsnap
from bitsnap import _core
from python_checks import blocks, elsewhere, refused, run, run_blocks


def frames_of_bytes():
    data = bytes(random.getrandbits(8) & 0x8F for _ in range(200000))
    frame = bitsnap.compress(data, "BF16")
    assert len(frame) < 0.9 * len(data) and bitsnap.decompress(frame) == data
    assert bitsnap.decompress(frame, first=70000, count=3) == data[140000:140006] and bitsnap.decompress(frame, first=100000) == b""
    assert bitsnap.compress(data, "bf16", level="best", threads=2) == bitsnap.compress(memoryview(data), "BF16", level=3)
    assert bitsnap.decompress(bitsnap.compress(b"", "F32")) == b""
    out = bytearray(len(data))
    assert bitsnap.decompress_into(frame, out, threads=2) is out and out == data
    room = bytearray(len(frame))
    assert bitsnap.compress(data, "BF16", out=room) == len(frame) and room == frame
    assert bitsnap.info(frame)["count"] == 100000 and bitsnap.info(frame)["dtype"] == "BF16"
    bitsnap.test(frame)
    seen = []
    bitsnap.compress(data * 50, "BF16", progress=lambda done, total: seen.append((done, total)))
    assert seen and all(done <= total == 5000000 for done, total in seen)
    refused(ZeroDivisionError, "", bitsnap.compress, data * 50, "BF16", progress=lambda done, total: 1 // 0)
    refused(TypeError, "bytes have no dtype", bitsnap.compress, data)
    refused(ValueError, '"Q7" is no dtype', bitsnap.compress, data, "Q7")
    refused(ValueError, '"great" is no level', bitsnap.compress, data, "F16", level="great")
    refused(ValueError, "no elements of 4", bitsnap.compress, data[:-1], "F32")
    refused(ValueError, "data has 199999 bytes, which are no elements of 2", bitsnap.content_id, data[:-1], "BF16")
    refused(ValueError, "base has 199999 bytes, which are no elements of 4", bitsnap.delta, data, data[:-1], "F32")
    refused(bitsnap.Error, "destination too small", bitsnap.compress, data, "BF16", out=bytearray(100))
    refused(ValueError, "out has 9 bytes, the elements have 200000", bitsnap.decompress_into, frame, bytearray(9))
    refused(BufferError, "not writable", bitsnap.decompress_into, frame, bytes(len(data)))
    refused(ValueError, "not in the frame, which has 100000", bitsnap.decompress, frame, first=100001)
    error = refused(bitsnap.Error, "truncated: the data ends inside the frame (R6, byte", bitsnap.decompress, frame[:-1])
    assert isinstance(error, ValueError) and error.rule == 6 and error.status == 6 and error.offset


def deltas_of_bytes():
    base = bytes(random.getrandbits(8) for _ in range(400000))
    data = bytearray(base)
    for _ in range(500):
        data[2 * random.randrange(200000)] ^= 1
    delta = bitsnap.delta(data, base, "BF16", flags=bitsnap.CONTENT_ID | bitsnap.SELF_CONTAINED)
    assert len(delta) < 3000 and bitsnap.decompress(delta, base=base) == data
    assert bitsnap.info(delta)["base_id"] == bitsnap.content_id(base, "BF16")
    assert bitsnap.decompress(bitsnap.invert(delta), base=data) == base
    other = bytearray(data)
    other[7] ^= 3
    both = bitsnap.merge(delta, bitsnap.delta(other, data, "BF16", flags=bitsnap.CONTENT_ID | bitsnap.SELF_CONTAINED))
    live = bytearray(base)
    assert bitsnap.apply(live, both) is live and live == other
    bitsnap.apply(live, both)  # once more is harmless
    assert live == other
    refused(bitsnap.Error, "needs its base", bitsnap.decompress, delta)
    refused(bitsnap.Error, "not the base", bitsnap.decompress, delta, base=bytes(len(base)))
    live[0] ^= 1
    before = bytes(live)
    refused(bitsnap.Error, "not the base", bitsnap.apply, live, both)
    assert live == before
    refused(ValueError, "elements has 3 bytes, those of the frame have 400000", bitsnap.apply, bytearray(3), both)
    refused(TypeError, "not None", bitsnap.merge, delta, None)


def damaged(whole, n):
    """With one bit flipped; every third time cut, too."""
    bad = bytearray(whole)
    bad[random.randrange(len(bad))] ^= 1 << random.randrange(8)
    return bytes(bad[:random.randrange(len(bad))] if n % 3 == 0 else bad)


def damaged_bytes():
    data = bytes(random.getrandbits(8) & 0x9F for _ in range(20000))
    frame = bitsnap.compress(data, "F16")
    file = _core.Writer(-1, [("a", "F16", "[100,100]", 20000)])
    file.write(data)
    file = file.finish()
    for n in range(600):
        for whole in (frame, file):
            bad = damaged(whole, n)
            try:
                if whole is frame:
                    got = bitsnap.decompress(bad)
                else:
                    opened = _core.File(bad)
                    got = opened.read(opened.tensors()[0][0])
                    opened.verify()
                assert got == data
            except bitsnap.Error:
                pass


def misuse_of_files():
    file = _core.Writer(-1, [("a", "I8", "[3]", 3)])
    file.write(b"ab")
    refused(bitsnap.Error, "", file.finish)
    refused(ValueError, "has ended", file.write, b"c")
    refused(TypeError, "must be a list", _core.Writer, -1, ())
    refused(bitsnap.Error, "", _core.Writer, -1, [("a", "I8", "[3]", 3), ("a", "I8", "[3]", 3)])
    file = _core.Writer(-1, [("a", "I8", "[3]", 3)])
    file.write(b"abc")
    whole = file.finish()
    base = _core.File(whole)
    assert base.kind == "safetensors" and base.size == len(whole) and base.data_size == 3 and not base.quantized and base.metadata() is None
    assert base.find("a") == ("a", "I8", (3,), 0, 3) and base.frames()[0]["count"] == 3
    refused(KeyError, "b", base.find, "b")
    refused(UnicodeEncodeError, "", base.find, "\ud800")
    refused(ValueError, "not in the tensor, which has 3", base.read, "a", 2, 2)
    refused(ValueError, "is opened once", base.__init__, whole)
    delta = _core.Writer(-1, [("a", "I8", "[3]", 3)], bases=[base])
    base.close()  # does nothing, as a Writer reads it
    assert base.tensors()[0][0] == "a" and base.read("a") == b"abc"
    spare = _core.File(whole)
    refused(bitsnap.Error, "", _core.File, whole[:-1], [spare])
    refused(OSError, "", _core.Writer, 1 << 20, [("a", "I8", "[3]", 3)], bases=[spare])
    assert spare.find("a")[1] == "I8"  # who failed to open has it no more
    delta.write(b"abd")
    delta = delta.finish()
    opened = _core.File(delta)
    assert opened.kind == "delta" and opened.bases == [""]
    refused(bitsnap.Error, "needs its base", opened.read, "a")
    opened = _core.File(delta, [_core.File(whole)])
    assert opened.read("a") == b"abd" and opened.read("a", 1, 1) == b"b"
    opened.close()
    opened.close()
    refused(ValueError, "is closed", opened.tensors)
    refused(ValueError, "is closed", lambda: opened.kind)
    refused(ValueError, "at most 65534 open Files", _core.File, delta, [3])
    refused(OSError, "", _core.File, 12345)
    refused(OSError, "", _core.File, 1 << 40)
    refused(bitsnap.Error, "neither a .bsnap file nor a .safetensors file", _core.File, b"nothing of the kind, but long enough to be a header")
    gc.collect()


def newer_files():
    """A file with features that this version does not know (docs/FORMAT.md, 8.1): those that are compatible are passed over, others are named."""
    sys.path.insert(0, os.path.join("tests", "format"))
    import decoder
    writer = _core.Writer(-1, [("a", "I8", "[3]", 3)])
    writer.write(b"abc")
    whole = bytearray(writer.finish())
    for at, bit, text in ((28, 1 << 7, None), (24, 1 << 9, "made by a newer bitsnap, with features that this one cannot read: bits 00000200 (S28"), (10, 1, "made by a newer bitsnap")):
        made = bytearray(whole)
        made[at:at + 4] = decoder.le64(decoder.u32(whole, at) ^ bit)[:4]
        made[32:40] = decoder.le64(decoder.xxh3(bytes(made[:32])))
        if text:
            error = refused(bitsnap.Error, text, _core.File, bytes(made))
            assert error.rule == 28 and "damage" not in str(error), error
            continue
        records, end = decoder.RECORD_ENTRY * decoder.u64(whole, len(whole) - decoder.u64(whole, len(whole) - 24) + 16), len(whole) - decoder.u64(whole, len(whole) - 24)
        first = end + decoder.END_PREFIX
        entries = [(decoder.u48(whole, i), decoder.u48(whole, i + 6), decoder.u64(whole, i + 12)) for i in range(first, first + records, decoder.RECORD_ENTRY)]
        made = bytes(made[:end]) + decoder.encode_end_record(bytes(made[32:40]), decoder.u64(whole, end + 8), entries, [], end, bytes(made[24:32]))
        file = _core.File(made)
        assert file.read("a") == b"abc" and not file.verify()
        for changed in range(first + 12, first + records, decoder.RECORD_ENTRY):  # another seal
            bad = bytearray(made)
            bad[changed] ^= 1
            refused(bitsnap.Error, "", _core.File(bytes(bad)).read, "a")
    refused(bitsnap.Error, "frames of a file need checks", no_checks)


def no_checks():
    writer = _core.Writer(-1, [("a", "I8", "[3]", 3)], flags=bitsnap.NO_CHECKS)
    writer.write(b"abc")


def many_bases():
    """More bases than a byte can number."""
    tensors = [("t%d" % i, "I8", "[50]", 50) for i in range(300)]
    bases, data = [], random.randbytes(50)
    for tensor in tensors:
        writer = _core.Writer(-1, [tensor])
        writer.write(data)
        bases.append(_core.File(writer.finish()))
    writer = _core.Writer(-1, tensors, bases=bases)
    writer.write(300 * data)
    file = _core.File(writer.finish(), bases)
    assert len(file.bases) == 300 and file.read("t299") == data and len(file.frames()) == 300
    file.verify()


def other_threads_run():
    data = bytes(1 << 20) + os.urandom(30 << 20)
    ran, done = [], threading.Event()

    def count():
        while not done.is_set():
            ran.append(1)
            done.wait(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    bitsnap.compress(data, "F32", level="best")
    done.set()
    thread.join()
    assert len(ran) > 3, len(ran)


def interrupted_calls():
    """Ctrl-C ends a call while it codes: the frame, the elements or the file are not finished first. The signal comes when the first block is
    done, however fast the machine is: the callback waits for it, or the call waits for a pipe to be read."""
    data = bytearray(os.urandom(16 << 20))
    data[3::4] = b"\x3E\x3F\xBE\x3E" * (1 << 20)
    frame = bitsnap.compress(data, "F32")
    wait = ctypes.CDLL(None).pause  # runs no code of Python, which would handle the signal
    out = None  # what the call writes, until the signal has ended it

    def interrupt(number, where):
        nonlocal out
        if out and any(out[:64]):
            out = None
            raise KeyboardInterrupt

    def interrupted(function, *arguments, **named):
        try:
            function(*arguments, **named)
        except KeyboardInterrupt:
            return True
        return False

    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        for function, whole, expected, named in ((bitsnap.compress, data, frame, {"dtype": "F32"}), (bitsnap.decompress_into, frame, data, {})):
            out = made = bytearray(len(expected))
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            ended = interrupted(function, whole, out=made, progress=wait, **named)
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert ended and made[-64:] != expected[-64:], function
        source, target = os.pipe()

        def read():
            """Without a callback, signals are looked at ten times a second. The call cannot end before, as it writes more than a pipe holds."""
            nonlocal out
            left = 1 << 17  # more than the Writer has written before the call
            while left > 0:
                left -= len(os.read(source, 1 << 16))
            out = b"begun"
            signal.pthread_kill(threading.get_ident(), signal.SIGALRM)  # a signal to the other thread would end its write()
            time.sleep(0.12)
            while os.read(source, 1 << 20):
                pass

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        writer = _core.Writer(target, [("a", "F32", f"[{len(data) // 4}]", len(data))])
        assert interrupted(writer.write, data)
        refused(ValueError, "has ended", writer.finish)
        os.close(target)
        thread.join()
        os.close(source)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


if sys.argv[1] == "bare":
    sys.exit(run("bytes", [frames_of_bytes, deltas_of_bytes, damaged_bytes, misuse_of_files, newer_files, many_bases, other_threads_run, interrupted_calls]))

tool, readme = map(os.path.abspath, sys.argv[1:3])
root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
elsewhere()

import ml_dtypes  # noqa: E402
import numpy  # noqa: E402
import safetensors.numpy  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402

import bitsnap.numpy  # noqa: E402
import bitsnap.torch  # noqa: E402
import bitsnap.zarr  # noqa: E402
from bitsnap._arrays import DTYPES  # noqa: E402

rng = numpy.random.default_rng(1)


def weights(*shape, dtype="float32"):
    return (0.02 * rng.standard_normal(shape)).astype(dtype)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def every_type():
    arrays, tensors = {}, {}
    for name, (kind, _) in DTYPES.items():
        dtype = bitsnap.numpy._dtype(name)
        arrays[name] = numpy.frombuffer(bytes(rng.integers(0, 2 if name == "BOOL" else 256, 24 * dtype.itemsize, numpy.uint8)), dtype).reshape(2, 3, 4)
        frame = bitsnap.compress(arrays[name])
        assert bitsnap.decompress(frame) == arrays[name].tobytes(), name
        if hasattr(torch, kind):
            tensors[name] = torch.frombuffer(bytearray(arrays[name].tobytes()), dtype=getattr(torch, kind)).reshape(2, 3, 4)
            assert bitsnap.compress(tensors[name]) == frame, name
    arrays["none"], arrays["scalar"] = numpy.empty((0, 5), "int16"), numpy.float64(3).reshape(())
    bitsnap.numpy.save_file(arrays, "types.bsnap", {"k": "v", "quote": '"\n'})
    again = bitsnap.numpy.load_file("types.bsnap")
    assert again.keys() == arrays.keys() and all(same(again[name], arrays[name]) for name in arrays)
    again = bitsnap.torch.load_file("types.bsnap", threads=2)
    assert all(t.untyped_storage().nbytes() == again[n].untyped_storage().nbytes() and bytes(again[n].untyped_storage()) == bytes(t.untyped_storage())
               and again[n].dtype == t.dtype for n, t in tensors.items())
    with bitsnap.safe_open("types.bsnap", "np") as f:
        assert f.metadata() == {"k": "v", "quote": '"\n'} and f.keys() == sorted(arrays)
    refused(TypeError, "not supported", bitsnap.compress, numpy.array(["a"]))
    refused(TypeError, "not supported", bitsnap.compress, numpy.zeros(3, ">f4"))
    refused(ValueError, "not contiguous", bitsnap.compress, weights(4, 4).T)
    refused(ValueError, "not contiguous", bitsnap.compress, torch.zeros(4, 4).T)
    refused(ValueError, "meta", bitsnap.compress, torch.zeros(4, device="meta"))


def strong_hashes():
    """A file with a SHA-256, of the .safetensors file that it stands for: a hash of the hashes of its MiB."""
    sys.path.insert(0, os.path.join(root, "tests", "format"))
    import decoder
    arrays = {"a": weights(700, 1000), "b": weights(3)}
    states = {name: torch.from_numpy(array) for name, array in arrays.items()}
    bitsnap.numpy.save_file(arrays, "strong.bsnap", sha256=True)
    bitsnap.torch.save_file(states, "tensors.bsnap", sha256=True)
    bitsnap.torch.save(states, "state.bsnap", sha256=True)
    with open("state-memory.bsnap", "wb") as f:
        bitsnap.torch.save(states, f, sha256=True)
    with open("strong.bsnap", "rb") as f, open("tensors.bsnap", "rb") as g:
        assert f.read() == g.read() == bitsnap.numpy.save(arrays, sha256=True) != bitsnap.numpy.save(arrays)
    for name in ("strong", "state", "state-memory"):
        subprocess.run([tool, "decompress", "-q", "-o", name, name + ".bsnap"], check=True)
        with open(name, "rb") as f, open(name + ".bsnap", "rb") as g:
            digest, made = decoder.strong_hash(f.read()), bytearray(g.read())
        end = len(made) - decoder.u64(made, len(made) - 24)
        prefix = end + decoder.END_PREFIX + 32
        assert made[prefix - 32:prefix] == digest, name
        bitsnap.test(name + ".bsnap")
        made[prefix - 1] ^= 1  # with a check that fits
        made[-16:-8] = decoder.le64(decoder.xxh3(bytes(made[32:40] + made[end:prefix] + made[-40:-16])))
        with open("forged.bsnap", "wb") as f:
            f.write(made)
        assert refused(bitsnap.Error, "the SHA-256 is not that of what the file holds", bitsnap.test, "forged.bsnap").rule == 35


class Foreign:
    """An array of a library that is not known here."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **named):
        return self.tensor.__dlpack__(**named)


def dlpack():
    tensor = torch.from_numpy(weights(100, 100))
    frame = bitsnap.compress(Foreign(tensor), "F32")
    assert frame == bitsnap.compress(tensor)
    out = torch.zeros(100, 100)
    bitsnap.decompress_into(frame, Foreign(out))
    assert torch.equal(out, tensor)
    refused(ValueError, "not contiguous", bitsnap.compress, Foreign(tensor.T), "F32")
    assert bitsnap.decompress(bitsnap.compress(Foreign(torch.zeros(0)), "F32")) == b""


def slices():
    a = weights(100, 30, 7)
    safetensors.numpy.save_file({"a": a, "v": a[0, 0].copy()}, "plain.safetensors")
    bitsnap.numpy.save_file({"a": a, "v": a[0, 0].copy(), "s": numpy.int64(3).reshape(())}, "slices.bsnap")
    for name in ("plain.safetensors", "slices.bsnap"):
        for family in ("np", "pt"):
            with bitsnap.safe_open(name, family) as f:
                part = f.get_slice("a")
                assert part.get_shape() == [100, 30, 7] and part.get_dtype() == "F32"
                steps = [slice(90, 10, -7)] if family == "np" else []
                for index in [5, -1, slice(3, 9), slice(None, None, 10), (slice(90, 200), slice(0, 4), 3), (3, 4), slice(5, 5), slice(9, 3), Ellipsis,
                              (Ellipsis, 3), (slice(2, 4), None), *steps]:
                    assert numpy.array_equal(numpy.asarray(part[index]), a[index]), (name, family, index)
                refused(IndexError, "has 100 rows", part.__getitem__, 100)
                refused(KeyError, "nothing", f.get_slice, "nothing")
                assert numpy.array_equal(numpy.asarray(f.get_slice("v")[2:]), a[0, 0, 2:])
                threads = [threading.Thread(target=lambda: [f.get_tensor("a") for _ in range(20)]) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
    refused(ValueError, "is no framework", bitsnap.safe_open, "slices.bsnap", "jax")
    refused(FileNotFoundError, "absent.bsnap", bitsnap.safe_open, "absent.bsnap", "np")
    refused(bitsnap.Error, readme, bitsnap.safe_open, readme, "np")


def rows_of_a_large_file():
    """One row of 64 MiB: few bytes are read."""
    a = weights(1 << 15, 1 << 10, dtype=ml_dtypes.bfloat16)
    bitsnap.numpy.save_file({"a": a, "b": a[:1].copy()}, "large.bsnap", level="fast")
    before = int(open("/proc/self/io").read().split()[1])
    with bitsnap.safe_open("large.bsnap", "np") as f:
        row = f.get_slice("a")[20000]
    read = int(open("/proc/self/io").read().split()[1]) - before
    assert same(row, a[20000]) and read < 1 << 20, read


def deltas_and_their_bases():
    a, states = weights(300, 300, dtype=ml_dtypes.bfloat16), []
    for step in range(4):
        a = a.copy()
        a.view("uint16").reshape(-1)[step::50] += 1
        states.append({"a": a, "b": weights(7)})
        bitsnap.numpy.save_file(states[-1], f"step-{step}.bsnap", base=f"step-{step - 1}.bsnap" if step else None)
    assert os.path.getsize("step-3.bsnap") < 0.1 * os.path.getsize("step-0.bsnap")
    for step in range(4):
        assert same(bitsnap.numpy.load_file(f"step-{step}.bsnap")["a"], states[step]["a"])
    now, before = (states[k]["a"] for k in (1, 0))
    assert bitsnap.delta(now.view("uint16"), before.view("uint16"), "BF16") == bitsnap.delta(now, before)
    os.mkdir("elsewhere")
    os.rename("step-1.bsnap", "elsewhere/one.bsnap")
    refused(bitsnap.Error, "needs its base", bitsnap.numpy.load_file, "step-3.bsnap")
    again = bitsnap.numpy.load_file("step-3.bsnap", base=["step-0.bsnap", "elsewhere/one.bsnap", "step-2.bsnap"])
    assert same(again["a"], states[3]["a"])
    refused(bitsnap.Error, "step-3.bsnap: ", bitsnap.numpy.load_file, "step-3.bsnap", base="step-0.bsnap")


def the_tool_and_safetensors():
    arrays = {f"layer.{i}.weight": weights(64, 65, dtype=kind) for i, kind in enumerate(["float32", "float16", ml_dtypes.bfloat16] * 3)}
    bitsnap.numpy.save_file(arrays, "ours.bsnap")
    subprocess.run([tool, "test", "-q", "ours.bsnap"], check=True)
    subprocess.run([tool, "decompress", "-q", "ours.bsnap", "-o", "ours.safetensors"], check=True)
    theirs = safetensors.numpy.load_file("ours.safetensors")
    assert theirs.keys() == arrays.keys() and all(same(theirs[n].view(arrays[n].dtype), arrays[n]) for n in arrays)
    safetensors.numpy.save_file(arrays, "theirs.safetensors")
    subprocess.run([tool, "compress", "-q", "theirs.safetensors", "-o", "theirs.bsnap"], check=True)
    for name in ("theirs.bsnap", "theirs.safetensors"):
        again = bitsnap.numpy.load_file(name)
        assert all(same(again[n], arrays[n]) for n in arrays)
    with bitsnap.safe_open("theirs.bsnap", "np") as f, safetensors.safe_open("theirs.safetensors", "np") as g:
        assert f.keys() == sorted(g.keys()) and f.offset_keys() == g.offset_keys()
        f.verify()


def files_appear_as_a_whole():
    import resource

    before = {"a": weights(50)}
    bitsnap.numpy.save_file(before, "kept.bsnap")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100000, limit[1]))
    try:
        refused(OSError, "File too large", bitsnap.numpy.save_file, {"a": weights(500, 500)}, "kept.bsnap")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert same(bitsnap.numpy.load_file("kept.bsnap")["a"], before["a"])
    refused(TypeError, "dictionary of strings", bitsnap.numpy.save_file, before, "kept.bsnap", {"a": 1})
    refused(FileNotFoundError, "", bitsnap.numpy.save_file, before, "no/such/place.bsnap")
    assert not [name for name in os.listdir() if name.startswith(".bitsnap-")]
    os.umask(0o027)
    bitsnap.numpy.save_file(before, "mode.bsnap")
    assert os.stat("mode.bsnap").st_mode & 0o777 == 0o640
    os.umask(0o022)
    assert bitsnap.numpy.save(before) == open("kept.bsnap", "rb").read()


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(type(x) is type(y) and equal(a[x], b[y]) for x, y in zip(a, b))
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and a == b


def states_of_torch():
    model = torch.nn.TransformerEncoderLayer(32, 4, 64).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(3, 1, 32, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    state = {"model": dict(model.state_dict()), "optimizer": optimizer.state_dict(), "step": 7, 1: torch.ones(3), "1": torch.zeros(3), "none": None,
             "list": [1.5, "x", True, (2, 3 + 4j), {}, []], "a": {"b": torch.ones(1)}, "a.b": torch.zeros(1), "t": {"t": "t"}}
    size = bitsnap.torch.save(state, "state.bsnap")
    assert size == os.path.getsize("state.bsnap") and equal(bitsnap.torch.load("state.bsnap"), state)
    optimizer.step()
    state["optimizer"], state["step"] = optimizer.state_dict(), 8
    bitsnap.torch.save(state, "next.bsnap", base="state.bsnap")
    assert equal(bitsnap.torch.load("next.bsnap"), state)
    refused(TypeError, "a.1 is a builtin_function_or_method", bitsnap.torch.save, {"a": [1, print]}, "code.bsnap")
    refused(TypeError, "code is not stored", bitsnap.torch.save, {"f": print}, "code.bsnap")
    state["self"] = {"again": state}
    refused(ValueError, "self.again.self.again", bitsnap.torch.save, state, "code.bsnap")
    deep = 3
    for _ in range(100):
        deep = [deep]
    bitsnap.torch.save(deep, "deep.bsnap")
    assert equal(bitsnap.torch.load("deep.bsnap"), deep)
    refused(TypeError, "a has the key (1, 2), a tuple; keys are strings and numbers", bitsnap.torch.save, {"a": {(1, 2): 3}}, "code.bsnap")
    refused(TypeError, "keys are strings and numbers", bitsnap.torch.save, {(1, 2): 3}, "code.bsnap")
    assert not os.path.exists("code.bsnap")
    tensors = {"a": torch.ones(3, 4, requires_grad=True), "b": torch.ones(4, 3).T}
    bitsnap.torch.save_file(tensors, "tensors.bsnap")
    assert torch.equal(bitsnap.torch.load("tensors.bsnap")["b"], tensors["b"])
    for structure in ("{", '{"t":"nothing"}', "[" * 100000, '{"d":[[[],1]]}', '{"q":1}', "{}", '{"d":7}', '{"l":{"a":3}}', '{"n":["a"]}'):
        bitsnap.torch.save_file({"a": torch.ones(1)}, "bad.bsnap", {bitsnap.torch.STRUCTURE: structure})
        refused(ValueError, "bad.bsnap: what the state is made of is damaged", bitsnap.torch.load, "bad.bsnap")


def outputs_that_are_bases():
    """A delta is never written over what it is against, however that is called: both files stay as they were."""
    a = {"a": weights(300)}
    bitsnap.numpy.save_file(a, "first.bsnap")
    bitsnap.numpy.save_file({"a": a["a"] + 1}, "second.bsnap", base="first.bsnap")
    os.symlink("first.bsnap", "link.bsnap")
    os.link("second.bsnap", "hard.bsnap")
    os.mkdir("beside")
    before = [open(name, "rb").read() for name in ("first.bsnap", "second.bsnap")]
    text = "is one of the files that the delta is against"
    opened = bitsnap.files.open_file("second.bsnap")
    for name, base in (("first.bsnap", "first.bsnap"), ("./first.bsnap", "first.bsnap"), (os.path.abspath("first.bsnap"), "link.bsnap"), ("link.bsnap", "first.bsnap"),
                       ("beside/../second.bsnap", "second.bsnap"), ("hard.bsnap", "second.bsnap"), ("first.bsnap", "hard.bsnap"), ("second.bsnap", opened),
                       ("first.bsnap", opened), (b"first.bsnap", "second.bsnap")):
        refused(ValueError, text, bitsnap.numpy.save_file, a, name, base=base)
        refused(ValueError, text, bitsnap.torch.save, {"a": torch.ones(3)}, name, base=base)
    with open("first.bsnap", "r+b") as f:
        refused(ValueError, "which it would overwrite", _core.Writer, f.fileno(), [("a", "F32", "[300]", 1200)], bases=[opened])
    assert before == [open(name, "rb").read() for name in ("first.bsnap", "second.bsnap")] and os.path.islink("link.bsnap")
    assert not [name for name in os.listdir() if name.startswith(".bsnap") or name.startswith(".bitsnap-")]
    bitsnap.numpy.save_file(a, "third.bsnap", base=opened)
    bitsnap.numpy.save_file(a, "link.bsnap")  # without a base any name is right
    assert open("first.bsnap", "rb").read() == before[0]


def bases_that_are_named_twice():
    """Each file is opened once, whatever the number of ways to it."""
    a = {"a": weights(300)}
    bitsnap.numpy.save_file(a, "way-0.bsnap")
    for k in range(1, 30):
        base = bitsnap.files.open_file(f"way-{k - 1}.bsnap")
        with open(f"way-{k}.bsnap", "wb") as f:
            writer = _core.Writer(f.fileno(), [("a", "F32", "[300]", 1200)], bases=[base, base])
            writer.write(a["a"])
            writer.finish()
    for k in range(2):  # each is the base of the other, and twice
        bases = [_core.File(bitsnap.numpy.save(a), name=f"round-{1 - k}") for _ in range(2)]
        with open(f"round-{k}.bsnap", "wb") as f:
            writer = _core.Writer(f.fileno(), [("a", "F32", "[300]", 1200)], bases=bases)
            writer.write(a["a"])
            writer.finish()
    refused(bitsnap.Error, "round-0.bsnap: ", bitsnap.numpy.load_file, "round-0.bsnap")
    before = len(os.listdir("/proc/self/fd"))
    with bitsnap.safe_open("way-29.bsnap", "np") as f:
        assert same(f.get_tensor("a"), a["a"]) and len(os.listdir("/proc/self/fd")) == before + 30


def tensors_of_every_kind():
    """What torch calls a tensor is written so that it is read again, by safetensors, too, or refused by its name before there is a file."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    warnings.simplefilter("ignore", UserWarning)  # torch warns of most of these kinds
    z = torch.randn(5, 4, dtype=torch.complex64)
    bits = torch.arange(24, dtype=torch.uint8).reshape(2, 3, 4)
    kept = {"conj": z.conj(), "conj.T": z.mH, "neg": torch._neg_view(torch.randn(7)), "imag": z.conj().imag, "c128": z.to(torch.complex128).conj(),
            "parameter": torch.nn.Parameter(torch.ones(3)), "f4": bits.view(torch.float4_e2m1fn_x2), "empty": torch.zeros(0, 4), "part": torch.ones(9)[3:5],
            "expanded": torch.ones(1).expand(5), "f4.none": bits[:0].view(torch.float4_e2m1fn_x2), "f8": torch.ones(4).to(torch.float8_e4m3fn)}
    bitsnap.torch.save_file(kept, "kinds.bsnap")
    again = bitsnap.torch.load_file("kinds.bsnap")
    for name, tensor in kept.items():
        tensor, got = (t.view(torch.uint8) if t.dtype == torch.float4_e2m1fn_x2 else t.detach() for t in (tensor, again[name]))
        assert tensor.dtype == got.dtype and torch.equal(tensor.float() if name == "f8" else tensor, got.float() if name == "f8" else got), name
    bitsnap.torch.save_file({name: tensor for name, tensor in kept.items() if not tensor.is_complex()}, "known.bsnap")
    subprocess.run([tool, "decompress", "-q", "known.bsnap", "-o", "known.safetensors"], check=True)
    theirs = safetensors.torch.load_file("known.safetensors")
    assert theirs["f4"].shape == (2, 3, 4) and theirs["f4"].view(torch.uint8).equal(bits) and theirs["neg"].equal(kept["neg"])
    assert bitsnap.torch.load_file("known.safetensors")["f4"].view(torch.uint8).equal(bits)
    with bitsnap.safe_open("kinds.bsnap") as f:
        part = f.get_slice("f4")
        assert part.get_shape() == [2, 3, 4] and part[1:2].view(torch.uint8).equal(bits[1:2])
    with bitsnap.safe_open("kinds.bsnap", "np") as f:
        refused(TypeError, "numpy has no arrays of F4", f.get_tensor, "f4")
    writer = _core.Writer(-1, [("odd", "F4", "[2,3]", 3)])
    writer.write(b"abc")
    with open("odd.bsnap", "wb") as f:
        f.write(writer.finish())
    refused(TypeError, "odd.bsnap: odd: elements of F4 come in pairs", bitsnap.torch.load_file, "odd.bsnap")
    assert bitsnap.decompress(bitsnap.compress(kept["f4"])) == bytes(range(24))
    with FakeTensorMode():
        fake = torch.ones(3)
    freed = torch.ones(3)
    freed.untyped_storage().resize_(0)

    class Wrapper(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), named=None):
            return function(*args, **(named or {}))

    wrapped = torch.Tensor._make_wrapper_subclass(Wrapper, (3,))
    eye = torch.eye(3)
    for text, tensor in (("makes its elements of other tensors", fake), ("makes its elements of other tensors", wrapped), ("to_dense()", eye.to_sparse()),
                         ("makes its elements", torch.nested.nested_tensor([eye[0], eye[0, :2]], layout=torch.jagged)), ("to_dense()", eye.to_sparse_csr()),
                         ("to_padded_tensor()", torch.nested.nested_tensor([eye[0], eye[0, :2]])), ("to_dense()", eye.to_mkldnn()),
                         ("has no elements", torch.empty(3, device="meta")), ("int_repr()", torch.quantize_per_tensor(eye, 0.1, 0, torch.qint8)),
                         ("complex32 are not supported", torch.zeros(3, dtype=torch.complex32)), ("was freed", freed), ("no tensor of torch", [1.0]),
                         ("uint4 are not supported", torch.empty(3, dtype=torch.uint4)), ("reshape(1)", bits.view(torch.float4_e2m1fn_x2)[0, 0, 0])):
        error = refused((TypeError, ValueError), text, bitsnap.torch.save_file, {"good": eye, "of this kind": tensor}, "refused.bsnap")
        assert "tensor 'of this kind'" in str(error), error
        if isinstance(tensor, torch.Tensor) and tensor.dim():
            refused((TypeError, ValueError), "", bitsnap.compress, tensor)
            refused((TypeError, ValueError), "tensor 'list.1.x'", bitsnap.torch.save, {"list": [eye, {"x": tensor}]}, "refused.bsnap")
    for view in (z.conj(), torch._neg_view(eye)):
        refused(ValueError, "resolve_conj()", bitsnap.compress, view)
    refused(ValueError, "has no memory", _core.compress, Foreign(freed), "F32")
    for text, array in (("masked", numpy.ma.array([1, 2], mask=[0, 1])), ("<U1 are not supported", numpy.array(["a"])), ("object are not", numpy.array([None])),
                        ("datetime64[s] are not", numpy.zeros(3, "M8[s]")), ("newbyteorder", numpy.zeros(3, ">f4")), ("a bytes", b"abc"), ("a list", [1.0]),
                        ("float128 are not", numpy.zeros(3, "longdouble")), ("a Tensor", eye), ("are not supported", numpy.zeros(2, "i4,f4")),
                        ("float4_e2m1fn are not", numpy.zeros(2, ml_dtypes.float4_e2m1fn))):
        error = refused(TypeError, text, bitsnap.numpy.save_file, {"good": weights(3), "of this kind": array}, "refused.bsnap")
        assert "tensor 'of this kind'" in str(error), error
    refused(TypeError, "a masked array", bitsnap.compress, numpy.ma.array([1, 2], mask=[0, 1]))
    assert not os.path.exists("refused.bsnap") and not [name for name in os.listdir() if name.startswith(".bitsnap-")]


def names_of_every_kind():
    ones = torch.ones(1)
    names = ["", "a" * 100000, "a\0b", "\U0001F600", "a/b", "\x7f", '"', "\ufeff", "__metadata"]
    bitsnap.torch.save_file({name: ones for name in names}, "names.bsnap")
    assert set(bitsnap.torch.load_file("names.bsnap")) == set(names)
    subprocess.run([tool, "test", "-q", "names.bsnap"], check=True)
    for save in (bitsnap.torch.save_file, bitsnap.torch.save):
        refused(ValueError, "'\\ud800x' has half of a surrogate pair", save, {"a": ones, "\ud800x": ones + 1}, "refused.bsnap")
    refused(ValueError, "the metadata '\\udfff'", bitsnap.torch.save_file, {"a": ones}, "refused.bsnap", {"a": "\udfff"})
    refused(TypeError, "the name of a tensor 3 is a int", bitsnap.torch.save_file, {3: ones}, "refused.bsnap")
    refused(ValueError, "can be called \"__metadata__\"", bitsnap.torch.save_file, {"__metadata__": ones}, "refused.bsnap")
    assert not os.path.exists("refused.bsnap")
    state = {"__metadata__": ones, "\ud800": ["\ud800", {"x": 1}]}
    bitsnap.torch.save(state, "names.bsnap")
    assert equal(bitsnap.torch.load("names.bsnap"), state)
    for bad in (b'"\\ud800"', b'"\xff"', b'"\xed\xa0\x80"'):  # in a file
        text = b'{%b:{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' % bad
        with open("bad.safetensors", "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text)
        refused(bitsnap.Error, "bad.safetensors: ", bitsnap.torch.load_file, "bad.safetensors")


def messages_with_names():
    """What is wrong with one tensor of a file says with which."""
    for header in ('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b/\u00e9":{"dtype":"F32","shape":[9],"data_offsets":[4,8]}}',
                   '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b/\u00e9":{"dtype":"F32","shape":[1],"data_offsets":[5,9]}}'):
        with open("wrong.safetensors", "wb") as f:
            f.write(len(header.encode()).to_bytes(8, "little") + header.encode() + bytes(9))
        refused(bitsnap.Error, "wrong.safetensors: tensor 'b/\u00e9': ", bitsnap.torch.load_file, "wrong.safetensors")


def arrays_of_another_kind():
    """Elements never become those of another type because their bytes fit."""
    names = {name: torch.zeros(8, dtype=getattr(torch, kind)) for name, (_, kind) in DTYPES.items()}
    names["F4"] = torch.zeros(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    alike = {"C64": "F32", "C128": "F64", "F8_E4M3FNUZ": "F8_E4M3", "F8_E5M2FNUZ": "F8_E5M2"}  # of frames: they have the same codec
    for name, tensor in names.items():
        frame = bitsnap.compress(tensor)
        size = tensor.nbytes
        for other in names:
            if size % names[other].element_size():
                continue
            out = torch.zeros(size, dtype=torch.uint8).view(names[other].dtype)
            if other[0] in "IU" or alike.get(other, other) == alike.get(name, name) or {name, other} <= {"F8_E8M0", "F4", "U8", "I8"}:
                bitsnap.decompress_into(frame, out)
            else:
                refused(ValueError, "in an array of torch.", bitsnap.decompress_into, frame, out)
                refused(ValueError, "in an array of torch.", bitsnap.apply, out, frame)
    frame = bitsnap.compress(weights(8))
    refused(ValueError, "in an array of >f4", bitsnap.decompress_into, frame, numpy.zeros(8, ">f4"))
    refused(ValueError, "in an array of float16", bitsnap.decompress_into, frame, numpy.zeros(16, "float16"))
    refused(ValueError, "not contiguous", bitsnap.apply, weights(4, 4).T, frame)
    pair = weights(8), weights(8)
    assert same(bitsnap.apply(pair[0], bitsnap.delta(pair[1], pair[0])), pair[1])


def more_than_there_is_memory():
    """Sizes that a file claims end as a MemoryError that says of what."""
    import resource

    frame = bitsnap.compress(bytes(1 << 28), "F32", level="fast")
    bitsnap.numpy.save_file({"a": numpy.zeros(1 << 26, "float32")}, "zeros.bsnap", level="fast")
    limit = resource.getrlimit(resource.RLIMIT_AS)
    gc.collect()
    resource.setrlimit(resource.RLIMIT_AS, (int(open("/proc/self/statm").read().split()[0]) * 4096 + (100 << 20), limit[1]))
    try:
        refused(MemoryError, "no memory for elements of 268435456 bytes", bitsnap.decompress, frame)
        refused(MemoryError, "zeros.bsnap: a: no array of F32", bitsnap.numpy.load_file, "zeros.bsnap")
        refused(MemoryError, "zeros.bsnap: a: no array of F32", bitsnap.torch.load_file, "zeros.bsnap")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)
    refused(ValueError, "threads: 100000 are more than", bitsnap.compress, b"abcd", "F32", threads=100000)
    for shape in ([0, 1 << 62, 1 << 62], [1] * 70 + [0]):
        writer = _core.Writer(-1, [("a", "F32", json.dumps(shape), 0)])
        with open("shape.bsnap", "wb") as f:
            f.write(writer.finish())
        for load in bitsnap.numpy.load_file, bitsnap.torch.load_file:
            try:
                assert list(load("shape.bsnap")["a"].shape) == shape
            except (MemoryError, ValueError) as error:
                assert "shape.bsnap: a: no array of F32" in str(error), error


def calls_from_dlpack():
    """An argument that ends what it is an argument of."""
    class Ends:
        def __init__(self, end):
            self.end = end

        def __dlpack__(self, **named):
            self.end()
            return torch.ones(3).__dlpack__()

    writer = _core.Writer(-1, [("a", "F32", "[3]", 12)])
    refused(ValueError, "has ended", writer.write, Ends(lambda: refused(bitsnap.Error, "data is missing", writer.finish)))
    file = _core.File(bitsnap.numpy.save({"a": weights(3)}))
    refused(ValueError, "is closed", file.read, "a", out=Ends(file.close))
    file = _core.File.__new__(_core.File)
    refused(bitsnap.Error, "neither", file.__init__, Ends(lambda: refused(ValueError, "opened once", file.__init__, b"")))


def interrupted_writes():
    """Ctrl-C at any time leaves the file as it was, or the new one, and nothing besides."""

    def after(seconds, function, *args):
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            function(*args)
            signal.setitimer(signal.ITIMER_REAL, 0)
            return 0
        except KeyboardInterrupt:
            return 1

    os.mkdir("interrupted")
    states = [{f"{k}.{n}": weights(50000) for n in range(20)} for k in range(2)]
    path, count = "interrupted/a.bsnap", 0
    bitsnap.numpy.save_file(states[0], path, level="fast")
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for n in range(40):
            count += after(0.0005 * (n + 1), bitsnap.numpy.save_file, states[n % 2], path)
            assert os.listdir("interrupted") == ["a.bsnap"], os.listdir("interrupted")
            found = bitsnap.numpy.load_file(path)
            assert any(all(same(found[name], a) for name, a in state.items()) for state in states if state.keys() == found.keys()), n
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert count > 5, count
    replace = os.replace

    def late(*args):
        replace(*args)
        raise KeyboardInterrupt

    os.replace = late
    try:
        refused(KeyboardInterrupt, "", bitsnap.numpy.save_file, states[0], path)
    finally:
        os.replace = replace
    assert os.listdir("interrupted") == ["a.bsnap"]


def zarr_arrays():
    import numcodecs
    import zarr

    data = {"float32": weights(1000, 77), "int16": rng.integers(-9, 9, (1000, 77), "int16"), "float64": weights(1000, 77, dtype="float64"),
            ">f4": weights(1000, 77, dtype=">f4"), "bool": rng.integers(0, 2, (1000, 77)).astype(bool)}
    for dtype, a in data.items():
        for version in (2, 3):
            codec = {"compressors": numcodecs.get_codec({"id": "bitsnap", "level": "fast"})} if version == 2 else {
                "serializer": bitsnap.zarr.BitsnapCodec(level="fast"), "compressors": None}
            path = f"{dtype}.{version}.zarr"
            z = zarr.create_array(path, shape=a.shape, chunks=(300, 50), dtype=a.dtype, zarr_format=version, **codec)
            z[:] = a
            script = f"import zarr, sys; sys.stdout.buffer.write(zarr.open_array({path!r})[:].tobytes())"
            if dtype in ("float32", ">f4"):
                assert subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout == zarr.open_array(path)[:].tobytes()
            z = zarr.open_array(path)
            for index in [(slice(None),), (slice(5, 9),), (slice(290, 610), slice(45, 60)), (slice(0, 900, 7),), (3, 4), (slice(None), 5), (numpy.array([1, 700]),)]:
                assert numpy.array_equal(z[index], a[index]), (dtype, version, index)
    z = zarr.create_array("bf16.zarr", shape=(100, 100), chunks=(50, 100), dtype="uint16", serializer=bitsnap.zarr.BitsnapCodec(dtype="BF16"), compressors=None)
    b = weights(100, 100, dtype=ml_dtypes.bfloat16).view("uint16")
    z[:] = b
    assert numpy.array_equal(zarr.open_array("bf16.zarr")[:], b) and os.path.getsize("bf16.zarr/c/0/0") < 0.8 * 10000
    frame = bytearray(open("bf16.zarr/c/0/0", "rb").read())
    frame[len(frame) // 2] ^= 4
    open("bf16.zarr/c/0/0", "wb").write(frame)
    refused(bitsnap.Error, "damaged", lambda: zarr.open_array("bf16.zarr")[:])
    open("bf16.zarr/c/0/0", "wb").write(bitsnap.compress(b[:3]))
    refused(ValueError, "a frame of 300 elements of I16 in a chunk of shape (50, 100) and uint16", lambda: zarr.open_array("bf16.zarr")[:])
    refused(ValueError, "is no level", bitsnap.zarr.BitsnapCodec, "great")
    refused(ValueError, "is no dtype", bitsnap.zarr.BitsnapCodec, dtype="float32")
    codec = numcodecs.get_codec({"id": "bitsnap", "dtype": "F16"})
    assert codec.get_config() == {"id": "bitsnap", "level": "default", "dtype": "F16"}
    half = weights(1000, dtype="float16")
    out = numpy.empty_like(half)
    assert codec.decode(codec.encode(half.tobytes())) == half.tobytes() and same(codec.decode(codec.encode(half), out), half)
    refused(bitsnap.Error, "", codec.decode, b"nothing of the kind at all, but long enough")
    refused(ValueError, "is no dtype", numcodecs.get_codec, {"id": "bitsnap", "dtype": "float32"})
    refused(ValueError, "9 is no level", numcodecs.get_codec, {"id": "bitsnap", "level": 9})
    refused(ValueError, "out has 6 bytes, the elements have 0", codec.decode, codec.encode(b""), out[:3])


LAYOUTS = {"scalar": lambda a: a[:1, 0, 0].reshape(()), "row": lambda a: a[:, 0, 0].copy(), "c": lambda a: a, "f": numpy.asfortranarray,
           "transposed": lambda a: a.transpose(1, 2, 0), "strided": lambda a: a[::2, 1::3], "backwards": lambda a: a[::-1, :, ::-1],
           "empty": lambda a: a[:0], "one": lambda a: a[:, :1, :1]}
ARRAYS = ("?", "i1", "u2", "i8", "f2", "f4", "f8", "c8", "c16", ">f4", ">i2", ">c16", "M8[s]", ">m8[ns]", "S5", "U3", "V6", [("a", "f4"), ("b", ">i2")])


def zarr_layouts():
    """z[:] == x, bit for bit, whatever the dtype, the order and the shape, and the same by numcodecs alone."""
    import numcodecs
    import zarr

    warnings.simplefilter("ignore")  # of Zarr: its version 3 has no standard for some of these dtypes
    serializer, codec = bitsnap.zarr.BitsnapCodec(level="fast"), numcodecs.get_codec({"id": "bitsnap", "level": "fast"})
    formats = {"2 C": {"zarr_format": 2, "order": "C", "compressors": codec}, "2 F": {"zarr_format": 2, "order": "F", "compressors": codec},
               "2 filter": {"zarr_format": 2, "order": "F", "compressors": None, "filters": [codec]},
               "3 C": {"serializer": serializer, "compressors": None}, "3 F": {"serializer": serializer, "compressors": None, "config": {"order": "F"}}}
    for dtype in ARRAYS:
        dtype = numpy.dtype(dtype)
        kind, top = {"b": ("u1", 2), "U": ("u4", 1000)}.get(dtype.kind, ("u1", 100))  # of what any bits are elements
        whole = numpy.frombuffer(rng.integers(0, top, 13 * 7 * 6 * dtype.itemsize // numpy.dtype(kind).itemsize, kind).tobytes(), dtype).reshape(13, 7, 6)
        for layout, make in LAYOUTS.items():
            a = make(whole)
            for name, options in formats.items():
                store = zarr.storage.MemoryStore()
                z = zarr.create_array(store, shape=a.shape, chunks=tuple(max(1, n if i == 2 else -(-n // 2)) for i, n in enumerate(a.shape)), dtype=dtype, **options)
                z[...] = a
                z = zarr.open_array(store, mode="r")
                got = z[...]
                assert got.dtype.newbyteorder("=") == dtype.newbyteorder("=") and numpy.array_equal(got, a), (dtype, layout, name)
                assert numpy.asarray(got).astype(dtype).tobytes() == a.tobytes(), (dtype, layout, name)
                if a.ndim == 3 and a.size:
                    assert numpy.array_equal(z[1:9, ::2], a[1:9, ::2]), (dtype, layout, name)
            if a.flags.forc:
                data = codec.encode(a)
                out = numpy.empty_like(a)
                assert codec.decode(data) == a.tobytes("A") and codec.decode(data, out) is out and out.tobytes() == a.tobytes(), (dtype, layout)
            else:
                refused(ValueError, f"{dtype} and shape {a.shape} whose elements do not follow each other", codec.encode, a)


def zarr_codecs():
    """Behind other codecs, in shards, with a dtype of another width; what cannot be given back is refused before anything is stored."""
    import numcodecs
    import zarr

    a, codec = weights(24, 20), bitsnap.zarr.BitsnapCodec
    for options in ({"filters": [zarr.codecs.TransposeCodec(order=(1, 0))]}, {"shards": (12, 20)}, {"compressors": [zarr.codecs.ZstdCodec()]},
                    {"serializer": codec(dtype="BF16")}, {"serializer": codec(dtype="U8")}, {"filters": [zarr.codecs.TransposeCodec(order=(1, 0))], "shards": (24, 20)}):
        store = zarr.storage.MemoryStore()
        zarr.create_array(store, shape=a.shape, chunks=(6, 10), dtype=a.dtype, **{"serializer": codec(), "compressors": None, **options})[:] = a
        for index in ((slice(None), slice(None)), (slice(2, 9), slice(3, 4)), (slice(None, None, 3), 5), (numpy.array([1, 22]), slice(None))):
            assert numpy.array_equal(zarr.open_array(store, mode="r")[index], a[index]), (options, index)
    for filters in ([numcodecs.Delta("f4")], [numcodecs.Shuffle(4)], [numcodecs.FixedScaleOffset(0, 1, "f4", "f4")]):
        for order in "CF":
            b = numpy.arange(480, dtype="f4").reshape(24, 20)
            z = zarr.create_array(zarr.storage.MemoryStore(), shape=b.shape, chunks=(6, 20), dtype=b.dtype, zarr_format=2, order=order, filters=filters,
                                  compressors=numcodecs.get_codec({"id": "bitsnap"}))
            z[:] = b
            assert numpy.array_equal(z[:], b), (filters, order)
    for dtype, name, text in (("f4", "F64", "elements of float32, 4 bytes each, are not whole elements of F64"), ("S5", "U16", "are not whole elements of U16"),
                              (str, None, "hold references, which are not stored"), (str, "U8", "leave them to Zarr's own serializer")):
        for more in ({}, {"shards": (12,)}):
            store = zarr.storage.MemoryStore()
            refused((TypeError, ValueError), text, zarr.create_array, store, shape=(24,), chunks=(6,), dtype=dtype, serializer=codec(dtype=name), compressors=None, **more)
            assert not store._store_dict
    refused(TypeError, "arrays of object hold references", numcodecs.get_codec({"id": "bitsnap"}).encode, numpy.array([1, "a"], object))
    refused(ValueError, "6 bytes of uint8 are no elements of F32", numcodecs.get_codec({"id": "bitsnap", "dtype": "F32"}).encode, b"012345")
    old = zarr.storage.MemoryStore()  # a chunk of complex numbers as 1.0.0-rc1 wrote it
    z = zarr.create_array(old, shape=(8,), chunks=(8,), dtype="c8", serializer=codec(), compressors=None)
    z[:] = numpy.arange(8) * 1j
    assert bitsnap.info(old._store_dict["c/0"].to_bytes())["count"] == 16 and numpy.array_equal(z[2:5], numpy.arange(2, 5) * 1j)


def damaged_chunks():
    """What a damaged chunk gives through Zarr, version 3, or numcodecs is an error, or what was there."""
    import numcodecs
    import zarr

    a = weights(60, 50)
    zarr.create_array("damaged.zarr", shape=a.shape, chunks=a.shape, dtype=a.dtype, serializer=bitsnap.zarr.BitsnapCodec(), compressors=None)[:] = a
    codec = numcodecs.get_codec({"id": "bitsnap"})
    whole, errors = open("damaged.zarr/c/0/0", "rb").read(), 0
    for n in range(300):
        bad, out = damaged(whole, n), numpy.zeros_like(a)
        open("damaged.zarr/c/0/0", "wb").write(bad)
        for read in (lambda: zarr.open_array("damaged.zarr")[10:50], lambda: codec.decode(bad, out)[10:50], lambda: numpy.frombuffer(codec.decode(bad), a.dtype).reshape(a.shape)[10:50]):
            try:
                assert same(read(), a[10:50])
            except ValueError:
                errors += 1
    assert errors > 850, errors


def the_readmes():
    run_blocks(readme, "python", "python torch", "python zarr")
    run_blocks(os.path.join(root, "README.md"), "python")
    torch.save({"a": torch.ones(9)}, "state.pt")
    os.mkdir("checkpoint-100")
    torch.save({"a": torch.ones(9000)}, "checkpoint-100/optimizer.pt")
    code, = [code for code in blocks(readme, "sh") if "-m bitsnap" in code]
    subprocess.run(["sh", "-ec", code], check=True, env={**os.environ, "PATH": os.path.dirname(sys.executable) + ":" + os.environ["PATH"]})
    assert torch.load("state.pt", weights_only=True)["a"].sum() == 9 and os.path.exists("checkpoint-100/optimizer.pt.bsnap")


every = [every_type, strong_hashes, dlpack, slices, rows_of_a_large_file, deltas_and_their_bases, the_tool_and_safetensors,
         files_appear_as_a_whole, states_of_torch, outputs_that_are_bases, bases_that_are_named_twice, tensors_of_every_kind,
         names_of_every_kind, messages_with_names, arrays_of_another_kind, more_than_there_is_memory, calls_from_dlpack,
         interrupted_writes, zarr_arrays, zarr_layouts, zarr_codecs, damaged_chunks, the_readmes]
sys.exit(run("arrays", [test for test in every if not sys.argv[3:] or test.__name__ in sys.argv[3:]]))
