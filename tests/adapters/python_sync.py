"""Tests of docs/examples/sync: python_sync.py [SCHEDULES [TEST ...]]. By check_python.sh, with bitsnap, numpy and torch installed."""
import contextlib
import errno
import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.dirname(os.path.dirname(here))
room = os.path.join(root, "docs", "examples", "sync")
sys.path.insert(0, room)

import numpy  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402

import bitsnap.torch  # noqa: E402
import bitsnap_sync  # noqa: E402
import hf_delta  # noqa: E402
import transports  # noqa: E402
from bitsnap_sync import Message, MessageError, Rollout, Trainer, Weights, WrongBase, WrongRun, merge  # noqa: E402
from python_checks import refused, run, run_blocks  # noqa: E402

SCHEDULES = int(sys.argv[1]) if sys.argv[1:] else 600


def model(n=20000):
    return {"w": (0.02 * torch.randn(n // 100, 100)).bfloat16(), "w8": torch.randn(n // 50, 50).to(torch.float8_e4m3fn), "w8.scale": torch.rand(n // 50, 1),
            "norm": torch.ones(100, dtype=torch.bfloat16), "step": torch.tensor(0), "none": torch.zeros(0, 3)}


def train(weights, share=0.01):
    """Changes some elements."""
    for tensor in weights.values():
        bits = tensor.reshape(-1).view(torch.uint8)
        if bits.numel():
            bits[torch.randint(0, bits.numel(), (max(1, int(share * bits.numel())),))] ^= 1


def bits(weights):
    return {name: bytes(t.reshape(-1).view(torch.uint8).numpy()) for name, t in weights.items()}


def holds(rollout, weights):
    got = rollout.tensors()
    return bits(got) == bits(weights) and all(got[n].dtype == t.dtype and got[n].shape == t.shape for n, t in weights.items())


def small_pieces(size):
    bitsnap_sync.PIECE = size


def deltas_and_anchors():
    for piece in (1 << 32, 4096):
        small_pieces(piece)
        weights = model()
        trainer, rollout, late = Trainer(weights), Rollout(weights), Rollout()
        assert trainer.have == rollout.have and late.have == 0 and trainer.publish(weights) is None and trainer.since(rollout.have) is None
        refused(MessageError, "there are no weights yet", late.tensors)
        messages = []
        for step in range(5):
            train(weights)
            messages.append(trainer.publish(weights, step))
            assert rollout.apply(messages[-1]) is True and holds(rollout, weights) and rollout.step == step and rollout.have == trainer.have
            assert rollout.apply(messages[-1]) is False and holds(rollout, weights)
        error = refused(WrongBase, "a delta against", rollout.apply, messages[1])
        assert isinstance(error, ValueError) and holds(rollout, weights)
        refused(WrongBase, "here is 0000000000000000", late.apply, messages[0])
        both = merge(messages[1:])
        refused(WrongBase, "does not follow", merge, [messages[0], messages[2]])
        assert late.apply(trainer.since(late.have)) and holds(late, weights)
        assert set(rollout.tensors("np")) == set(weights) and rollout.tensors("np")["w8.scale"].dtype == numpy.float32
        first = Message(messages[0])
        assert first.base and trainer.since(first.result) == both and len(both) < sum(map(len, messages[1:]))
        refused(MessageError, f"the message has {len(messages[0]) + 1} bytes", Message, messages[0] + b"x")
        refused(MessageError, "the check of the message", Message, messages[0][:40] + b"x" + messages[0][41:])  # in the step
        forged = bitsnap_sync.pack(first.run, first.base + 1, first.result, 0, first.name, b"", first.frames)
        refused(MessageError, "not those of these versions", Message, forged)
        old = Rollout(limit=1000)
        refused(MessageError, "the limit is 1000", old.apply, trainer.anchor())
        other = Trainer({"w": torch.ones(3)}, run=trainer.run)
        refused(MessageError, "of another model", rollout.apply, other.anchor())
        refused(ValueError, "tensors; the model has", trainer.publish, {"w": weights["w"]})
        refused(ValueError, "is no longer BF16", trainer.publish, {**weights, "w": weights["w"].float()})
        assert holds(rollout, weights)
    small_pieces(1 << 32)


def lazy_tensors():
    """Tensors whose conjugate or negative torch has not computed yet."""
    c, n = torch.randn(5, dtype=torch.cfloat), torch.randn(6)
    trainer, rollout = Trainer({"c": c, "n": n}), Rollout({"c": c, "n": n})
    rollout.apply(trainer.publish({"c": c.conj(), "n": torch._neg_view(n)}))
    assert torch.equal(rollout.tensors()["c"], c.conj().resolve_conj()) and torch.equal(rollout.tensors()["n"], -n)


def all_tensors_or_none():
    """A delta that one frame of several refuses changes nothing; who has changed weights himself gets an anchor."""
    small_pieces(4096)
    weights = model()
    trainer, rollout = Trainer(weights), Rollout(weights)
    before = bits(weights)
    train(weights)
    data = trainer.publish(weights)
    message = Message(data)
    assert len(message.frames) > 5
    for i, frame in enumerate(message.frames):
        bad = bytearray(data)
        bad[bytes(data).index(frame) + 60] ^= 1
        refused(ValueError, "damaged", rollout.apply, bad)
        assert bits(rollout.tensors()) == before and rollout.have == message.base, i
    interrupted = Rollout({n: torch.frombuffer(bytearray(x), dtype=weights[n].dtype).reshape(weights[n].shape) if x else weights[n] for n, x in before.items()})
    apply, calls = bitsnap.apply, []

    def interrupt(*args, **named):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return apply(*args, **named)

    bitsnap.apply = interrupt
    refused(KeyboardInterrupt, "", interrupted.apply, data)
    bitsnap.apply = apply
    refused(MessageError, "", interrupted.tensors)
    assert interrupted.apply(data) is False and holds(interrupted, weights)
    crafted = [(frame, dtype) for frame, (dtype, _) in zip(message.frames, rollout._weights.pieces)]
    at = max(i for i, (_, dtype) in enumerate(crafted) if dtype == "BF16")  # half of this one, whose ids are right
    half = rollout._weights.pieces[at][1][:len(rollout._weights.pieces[at][1]) // 4 * 2]
    frames = [bitsnap.delta(half, half.copy(), "BF16", "BF16", flags=bitsnap_sync.FLAGS) if i == at else frame for i, (frame, _) in enumerate(crafted)]
    infos = [bitsnap.info(x) for x in frames]
    rollout._have = bitsnap_sync.version(message.name, [x["base_id"] for x in infos])
    result = bitsnap_sync.version(message.name, [x["content_id"] for x in infos])
    refused(WrongBase, "a delta against", rollout.apply, bitsnap_sync.pack(trainer.run, rollout.have, result, 0, message.name, b"", frames))
    rollout._have = message.base
    assert bits(rollout.tensors()) == before
    live = rollout.tensors()["norm"]
    live[7] = 3
    refused(bitsnap.Error, "not the base", rollout.apply, data)
    assert rollout.tensors()["norm"][7] == 3 and rollout.have not in (message.base, message.result)
    refused(WrongBase, "", rollout.apply, data)
    assert rollout.apply(trainer.since(rollout.have)) and holds(rollout, weights)
    small_pieces(1 << 32)


def damaged_messages():
    small_pieces(16384)
    weights = model()
    trainer, versions = Trainer(weights), {}
    deltas = []
    versions[trainer.have] = bits(weights)
    start = {n: t.clone() for n, t in weights.items()}
    for _ in range(3):
        train(weights)
        deltas.append(trainer.publish(weights))
        versions[trainer.have] = bits(weights)
    for n in range(500):
        whole = random.choice((deltas[0], merge(deltas), trainer.anchor()))
        bad = bytearray(whole)
        for _ in range(random.choice((1, 1, 3))):
            at = random.randrange(random.choice((len(bad), 150)))
            bad[at] = random.choice((bad[at] ^ 1 << random.randrange(8), 0, 255))
        if n % 4 == 0:
            del bad[random.randrange(len(bad)):]
        if n % 9 == 0:
            bad += bytes(random.randrange(1, 9))
        if n % 2 and len(bad) > 100:  # one that knows the check
            end = bitsnap_sync.HEAD.size + 8 * min(int.from_bytes(bad[56:60], "little"), 100)
            bad[end:end + 8] = bitsnap.hash(bad[:end]).to_bytes(8, "little")
        rollout = Rollout(start)
        try:
            rollout.apply(bad)
        except ValueError:
            pass
        assert bits(rollout.tensors()) == versions[rollout.have], n
    small_pieces(1 << 32)


def schedules():
    """Duplicates, lost and late messages, in any order, from a trainer that is started anew now and then: each rollout has the weights
    of a version, the name of which it knows, after every message; and in the end the newest."""
    small_pieces(2048)
    refusals = taken = repeated = 0
    for seed in range(SCHEDULES):
        torch.manual_seed(seed)
        r = random.Random(seed)
        weights = {"a": torch.randn(20, 30).bfloat16(), "b": torch.randn(40), "c": torch.randn(700).to(torch.float8_e5m2)}
        trainer = Trainer(weights, history=r.choice((0, 1, 3, 64)))
        versions, rollouts, sent = {trainer.have: bits(weights)}, [Rollout(weights), Rollout()], []
        for _ in range(r.randrange(3, 30)):
            what = r.random()
            if what < 0.3:
                if r.random() < 0.15 and len(versions) > 1:  # back to what was before
                    weights = {n: torch.frombuffer(bytearray(x), dtype=weights[n].dtype).reshape(weights[n].shape) for n, x in r.choice(list(versions.values())).items()}
                else:
                    train(weights)
                message = trainer.publish(weights)
                versions[trainer.have] = bits(weights)
                if message is not None and r.random() < 0.8:  # else it is lost
                    sent.append(message)
            elif what < 0.34:
                trainer = Trainer(weights, run=trainer.run)
            elif what < 0.38:
                rollouts.append(Rollout())
            elif what < 0.42:
                sent.append(trainer.anchor())
            elif sent:
                rollout, message = r.choice(rollouts), r.choice(sent[-r.choice((1, 3, 99)):])
                if r.random() < 0.1:
                    message = trainer.since(rollout.have) or message
                try:
                    if rollout.apply(message):
                        taken += 1
                        assert rollout.have == Message(message).result
                    else:
                        repeated += 1
                except WrongBase:
                    refusals += 1
                assert not rollout.have or bits(rollout.tensors()) == versions[rollout.have], seed
        for rollout in rollouts:
            message = trainer.since(rollout.have)
            assert (message is None) == (rollout.have == trainer.have)
            assert message is None or rollout.apply(message)
            assert holds(rollout, weights), seed
    print(f"# {SCHEDULES} schedules: {taken} messages applied, {repeated} that were there already, {refusals} refused")
    assert min(taken, repeated, refusals) > SCHEDULES // 2
    small_pieces(1 << 32)


def killed_while_applying():
    """A file is found old or new: where a process stopped between any two elements, and where one is killed."""
    small_pieces(100000)
    weights = model(200000)
    trainer = Trainer(weights)
    versions = {trainer.have: bits(weights)}
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "w.safetensors")
        rollout = Rollout(path=path)
        rollout.apply(trainer.anchor())
        refused(BlockingIOError, "", Rollout, path=path)
        other = Rollout(weights, path=os.path.join(directory, "other"))
        assert holds(other, weights) and other.have == trainer.have and bits(safetensors.torch.load_file(os.path.join(directory, "other"))) == bits(weights)
        other.close()
        bitsnap.torch.save_file(weights, os.path.join(directory, "other"))
        kept = refused(MessageError, "not a .safetensors file", Rollout, path=os.path.join(directory, "other"))
        with open(os.path.join(directory, "other.lock")) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        del kept
        for name in ("other", "other.lock"):
            os.unlink(os.path.join(directory, name))
        old = rollout._weights.memory.tobytes()
        train(weights)
        delta = trainer.publish(weights)
        versions[trainer.have] = bits(weights)
        rollout.apply(delta)
        new = rollout._weights.memory.tobytes()
        rollout.close()
        assert bits(safetensors.torch.load_file(path)) == bits(weights)
        changed = [i // 8 * 8 for i in range(len(old)) if old[i] != new[i]]  # whole elements are stored
        for stop in [0, len(old), *random.sample(changed, 40)]:
            with open(path, "wb") as f:
                f.write(new[:stop] + old[stop:])
            with open(path + ".applying", "wb") as f:
                f.write(delta)
            rollout = Rollout(path=path)
            assert holds(rollout, weights) and rollout.have == trainer.have, stop
            assert sorted(os.listdir(directory)) == ["w.safetensors", "w.safetensors.lock"], stop
            rollout.close()
        with open(path + ".applying", "wb") as f:  # a delta that is no good
            f.write(delta[:-1])
        rollout = Rollout(path=path)
        assert rollout.have == trainer.have and not os.path.exists(path + ".applying")
        rollout.close()

        messages = []
        for _ in range(40):
            train(weights, 0.05)
            messages.append(trainer.publish(weights))
            versions[trainer.have] = bits(weights)
        for i, message in enumerate(messages):
            with open(os.path.join(directory, f"{i}"), "wb") as f:
                f.write(message)
        code = ("import sys; sys.path.insert(0, sys.argv[1]); import bitsnap_sync; bitsnap_sync.PIECE = 100000; r = bitsnap_sync.Rollout(path=sys.argv[2])\n"
                "print(flush=True)\nfor i in range(40):\n try: r.apply(open(f'{sys.argv[3]}/{i}', 'rb').read())\n except bitsnap_sync.WrongBase: pass\n")
        journals = 0
        for _ in range(10):
            with open(path, "wb") as f:
                f.write(new)
            child = subprocess.Popen([sys.executable, "-c", code, room, path, directory], stdout=subprocess.PIPE)
            child.stdout.readline()
            time.sleep(random.uniform(0, 0.15))
            child.send_signal(signal.SIGKILL)
            child.wait()
            child.stdout.close()
            journals += os.path.exists(path + ".applying")
            rollout = Rollout(path=path)
            assert bits(rollout.tensors()) == versions[rollout.have]
            rollout.close()
        print(f"# {journals} of 10 processes were killed while they applied a delta")
    small_pieces(1 << 32)


def other_processes():
    """A rollout in a process of its own, over a socket and through a folder."""
    weights = model()
    trainer = Trainer(weights)
    code = ("import sys, time; sys.path.insert(0, sys.argv[1])\nfrom bitsnap_sync import Rollout\nimport transports\nr = Rollout()\n"
            "c = transports.Client(r, ('127.0.0.1', int(sys.argv[2]))) if sys.argv[2].isdigit() else None\nversions = 0\n"
            "while r.step < 20:\n"
            " try: versions += c.pull(5) if c else transports.pull(sys.argv[2], r)\n"
            " except FileNotFoundError: pass\n"
            " if not c: time.sleep(0.01)\n"
            "print(f'{r.have:016x}', versions)")
    with tempfile.TemporaryDirectory() as directory:
        server = transports.Server(trainer)
        folder = transports.Folder(os.path.join(directory, "sync"), trainer)
        children = [subprocess.Popen([sys.executable, "-c", code, room, place], stdout=subprocess.PIPE, text=True)
                    for place in (str(server.address[1]), os.path.join(directory, "sync"))]
        for step in range(1, 21):
            time.sleep(0.1)
            train(weights, 0.03)
            folder.publish(weights, step)
        for child in children:
            have, versions = child.communicate(timeout=60)[0].split()
            assert int(have, 16) == trainer.have and int(versions) > 0
        server.close()


def folders():
    weights = model()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "sync")
        trainer = Trainer(weights)
        folder = transports.Folder(path, trainer)
        steady, late, most = Rollout(weights), Rollout(), 0
        for step in range(40):
            train(weights, 0.05)
            folder.publish(weights, step)
            if step % 3 == 0:
                assert transports.pull(path, steady) and holds(steady, weights) and not transports.pull(path, steady)
            if step % 17 == 0:
                assert transports.pull(path, late) and holds(late, weights)
            most = max(most, len(os.listdir(path)))
        assert most < 30, most  # old ones are removed
        anchors = [x for x in os.listdir(path) if x.startswith("anchor")]
        assert len(anchors) == 2
        if late.have == trainer.have:
            train(weights)
            folder.publish(weights)
        last = max((x for x in os.listdir(path) if x.startswith("delta")), key=lambda x: os.stat(os.path.join(path, x)).st_mtime_ns)
        with open(os.path.join(path, last), "r+b") as f:  # damaged: from the anchor, if that leads further
            f.seek(100)
            f.write(b"damaged")
        before = bits(late.tensors())
        try:
            transports.pull(path, late)
            assert holds(late, weights)
        except ValueError:
            assert bits(late.tensors()) == before
        folder.close()
        again = transports.Folder(path, Trainer(weights, run=trainer.run))  # a trainer that starts anew goes on
        assert again._files and transports.pull(path, late) and holds(late, weights)
        train(weights)
        again.publish(weights)
        assert transports.pull(path, late) and holds(late, weights)
        train(weights)
        with full_disk():
            refused(OSError, "No space", again.publish, weights)
        assert not [x for x in os.listdir(path) if x.startswith(".bitsnap")]
        train(weights)
        again.publish(weights)  # with an anchor, as a delta is missing
        assert transports.pull(path, late) and holds(late, weights)


@contextlib.contextmanager
def warned():
    """The texts of warnings, among them those that were said before."""
    transports._said.clear()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        texts = []
        yield texts
        texts += [str(x.message) for x in found if x.category is not ResourceWarning]  # of what another test left, whenever that is collected


def stray_files():
    """What a folder has besides versions ends no reader, and no trainer removes it."""
    weights = model()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "sync")
        trainer = Trainer(weights)
        folder = transports.Folder(path, trainer)
        strays = ["anchor.bsync", "delta-1.bsync", "delta-1-zz.bsync", "notes.bsync", "anchor-" + "x" * 16 + ".bsync", "delta-" + "0" * 17 + "-" + "1" * 16 + ".bsync", ".bitsnap-1", "README"]
        for name in strays:
            open(os.path.join(path, name), "w").close()
            os.utime(os.path.join(path, name), (1, 1))
        late, steady = Rollout(), Rollout(weights)
        with warned() as texts:
            for _ in range(3):
                train(weights)
                folder.publish(weights)
                assert transports.pull(path, steady) and holds(steady, weights)
            assert transports.pull(path, late) and holds(late, weights)
            folder.close()
            folder = transports.Folder(path, Trainer(weights, run=trainer.run))
            for _ in range(3):  # anchors, so that older files are removed
                train(weights, 0.9)
                folder.publish(weights)
            assert transports.pull(path, late) and holds(late, weights)
        assert sorted(x.split(" is no version")[0] for x in texts) == sorted(os.path.join(path, x) for x in strays[:6]), texts
        assert set(strays) < set(os.listdir(path)) and len([x for x in os.listdir(path) if x.startswith("anchor-")]) == 3
        good = [x for x in folder._files if x.startswith("anchor-")][-1]
        start = int(good[7:23], 16)
        for name, data in ((f"delta-{late.have:016x}-{1:016x}.bsync", b""), (f"anchor-{1:016x}.bsync", open(os.path.join(path, good), "rb").read())):
            with open(os.path.join(path, name), "wb") as f:  # called like a version: nothing, and another one
                f.write(data)
        new = Rollout()
        with open(os.path.join(path, "latest"), "w") as f:
            f.write(f"{1:016x} {trainer.run}\n")
        refused(MessageError, f"delta-{late.have:016x}-{1:016x}.bsync: truncated", transports.pull, path, late)
        refused(MessageError, f"anchor-{1:016x}.bsync leads from {0:016x} to {start:016x}, not where its name says", transports.pull, path, new)
        assert new.have == 0 and holds(late, weights)
        for text in ("", "0", "zz" * 8, "1" * 40, f"{1:016x}\n", f"{1:016x} {trainer.run[1:]}\n", f"{1:016x} {trainer.run}\n\n"):
            with open(os.path.join(path, "latest"), "w") as f:
                f.write(text)
            refused(MessageError, "names no version: it is damaged", transports.pull, path, late)
        train(weights)
        folder.publish(weights)
        with open(os.path.join(path, good), "wb") as f:  # one of two anchors is damaged: from the other
            f.write(b"damaged")
        with warned():
            assert transports.pull(path, new) and holds(new, weights) and transports.pull(path, late) and holds(late, weights)


def two_runs():
    """Two trainers of one folder are noticed, and a rollout keeps to the run that it follows until it is told."""
    weights, others = model(2000), model(2000)
    trainer, other = Trainer(weights), Trainer(others)
    assert re.fullmatch("[0-9a-f]{32}", trainer.run) and trainer.run != other.run
    refused(ValueError, "is not the id of a run", Trainer, weights, run="mine")
    refused(ValueError, "is not the id of a run", Rollout, run="mine")
    with tempfile.TemporaryDirectory() as directory:
        path, kept = os.path.join(directory, "sync"), os.path.join(directory, "w")
        folder = transports.Folder(path, trainer)
        rollout, filed = Rollout(), Rollout(path=kept)
        assert rollout.run is None and transports.pull(path, rollout) and transports.pull(path, filed) and rollout.run == filed.run == trainer.run
        said = f"in use by run {trainer.run}, process {os.getpid()} on "
        refused(BlockingIOError, said, transports.Folder, path, other)
        refused(BlockingIOError, said, transports.Folder, path, Trainer(weights, run=trainer.run))
        refused(BlockingIOError, said, Rollout, path=kept)
        before = {x: os.stat(os.path.join(path, x)).st_mtime_ns for x in os.listdir(path)}
        folder.close()
        error = refused(WrongRun, f"has versions of run {trainer.run}; this trainer is of run {other.run}", transports.Folder, path, other)
        assert isinstance(error, MessageError) and before == {x: os.stat(os.path.join(path, x)).st_mtime_ns for x in before if x != "lock"} | {"lock": before["lock"]}
        # locks that hold nothing, as some network file systems have
        lock, transports.lock = transports.lock, lambda path, what: open(os.devnull)
        try:
            first, second = (transports.Folder(path, Trainer(weights, run=trainer.run)) for _ in range(2))
            train(weights)
            first.publish(weights)
            have, latest = second._trainer.have, open(os.path.join(path, "latest")).read()
            refused(WrongRun, f"was written by another trainer of run {trainer.run}", second.publish, weights)
            assert second._trainer.have == have and open(os.path.join(path, "latest")).read() == latest  # nothing is done
            shutil.copytree(path, path + "-2")
            os.unlink(os.path.join(path + "-2", "latest"))
            stranger = transports.Folder(path + "-2", other)
            shutil.copy(os.path.join(path + "-2", "latest"), path)
            refused(WrongRun, f"has versions of run {other.run}", first.publish, weights)
        finally:
            transports.lock = lock
        for one in (rollout, filed):
            have, old = one.have, bits(one.tensors())
            refused(WrongRun, f"{path}-2 is of run {other.run}; this rollout follows {trainer.run}", transports.pull, path + "-2", one)
            train(others)
            refused(WrongRun, f"the message is of run {other.run}", one.apply, other.anchor())
            assert one.have == have and bits(one.tensors()) == old
        filed.close()
        refused(WrongRun, f"has weights of run {trainer.run}, not of {other.run}", Rollout, path=kept, run=other.run)
        filed = Rollout(path=kept)  # knows it after a restart
        refused(WrongRun, "this rollout follows", transports.pull, path + "-2", filed)
        refused(WrongRun, "this rollout follows", Rollout(run=trainer.run).apply, other.anchor())
        for one, run in ((rollout, None), (filed, other.run)):  # told
            one.run = run
            assert transports.pull(path + "-2", one) and holds(one, stranger._trainer.weights.tensors()) and one.run == other.run
        filed.close()
        stranger.close()
        with open(os.path.join(path + "-2", "latest"), "r+") as f:  # a run that no file is of
            f.seek(17)
            f.write("0" * 32)
        refused(WrongRun, "as `latest` says", transports.pull, path + "-2", Rollout())
    same = Trainer(weights)  # the same weights, hence versions of the same names
    mine = Trainer(weights)
    rollout = Rollout(weights)
    train(weights)
    a, b = same.publish(weights), mine.publish(weights)
    assert rollout.apply(a)
    refused(WrongRun, "the message is of run", rollout.apply, b)
    train(weights)
    refused(WrongRun, "does not follow one of run", merge, [a, mine.publish(weights)])
    refused(MessageError, "of an earlier version", Message, b"BSNSYNC1" + a[8:])


def forked_children():
    """A child that outlives a trainer, as the worker of a DataLoader may, does not keep its folder."""
    code = ("import os, sys, time; sys.path.insert(0, sys.argv[1])\nimport numpy\nfrom bitsnap_sync import Trainer\nimport transports\n"
            "folder = transports.Folder(sys.argv[2], Trainer({'a': numpy.ones(3)}, run='1' * 32))\n"
            "if not os.fork():\n print(flush=True)\n time.sleep(60)\nos._exit(0)")
    with tempfile.TemporaryDirectory() as directory:
        child = subprocess.Popen([sys.executable, "-c", code, room, directory], stdout=subprocess.PIPE, start_new_session=True)
        assert child.stdout.readline()
        child.wait()
        try:
            transports.Folder(directory, Trainer({"a": numpy.ones(3)}, run="1" * 32)).close()
        finally:
            os.killpg(child.pid, signal.SIGKILL)


def sizes_that_are_said():
    """No more is read than the weights allow, or the limit, whatever a socket or a folder says."""
    import socket
    import threading

    weights = model()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "sync")
        folder = transports.Folder(path, Trainer(weights))
        name = f"anchor-{folder._trainer.have:016x}.bsync"
        huge = f"delta-{folder._trainer.have:016x}-{1:016x}.bsync"
        for victim in (name, huge):
            os.truncate(os.open(os.path.join(path, victim), os.O_RDWR | os.O_CREAT), 1 << 41)  # no blocks of the disk
        with open(os.path.join(path, "latest"), "w") as f:
            f.write(f"{1:016x} {folder._trainer.run}\n")
        for rollout, text in ((Rollout(), "the limit of this rollout allows"), (Rollout(limit=1000), "the limit of this rollout allows 1049591: give Rollout a larger limit"), (Rollout(weights), "the weights here allows")):
            refused(MessageError, f"bsync says that a message has {1 << 41} bytes; {text}", transports.pull, path, rollout)
    for size, rollout in ((1 << 60, Rollout()), (2 << 20, Rollout(limit=1000)), (2 << 20, Rollout(weights))):
        listener, connections = socket.create_server(("127.0.0.1", 0)), []
        thread = threading.Thread(target=lambda: (connections.append(listener.accept()[0]), connections[0].recv(16), connections[0].sendall(size.to_bytes(8, "little"))))
        thread.start()
        refused(MessageError, f"the trainer says that a message has {size} bytes", transports.Client(rollout, listener.getsockname()).pull)  # and waits for none of them
        thread.join()
        connections[0].close()
        listener.close()
    for tensors in ({"a": torch.randint(0, 256, (5000,)).to(torch.uint8)}, {"a": torch.randn(1 << 20)}, {f"{i}": torch.randn(1) for i in range(5000)}, {"a": torch.zeros(3)}):
        trainer = Trainer(tensors, level="default")  # what cannot become smaller is within what is allowed
        rollout = Rollout(tensors)
        new = {n: torch.randn(t.shape).to(t.dtype) if t.is_floating_point() else torch.randint(0, 256, t.shape).to(t.dtype) for n, t in tensors.items()}
        for message in (trainer.publish(new), trainer.anchor(), trainer.since(rollout.have)):
            rollout.check_size(len(message), "a trainer")
            assert len(message) < rollout._weights.memory.size * 65 / 64 + 1000 + 64 * len(tensors)


class Killed(BaseException):
    pass


@contextlib.contextmanager
def killed(at, before):
    """At the rename of that number, before it or after it."""
    replace, count = os.replace, []

    def stop(source, target):
        count.append(target)
        if len(count) != at:
            return replace(source, target)
        if not before:
            replace(source, target)
        raise Killed

    os.replace = stop
    try:
        yield count
    finally:
        os.replace = replace


def killed_at_each_rename():
    """Of a trainer that publishes and of a rollout that keeps a file: who reads finds a version, whole, and what comes next is read."""
    seen = set()
    for at in range(1, 7):
        for before in (True, False):
            for share in (0.03, 0.5):  # a delta, and a delta with an anchor
                with tempfile.TemporaryDirectory() as directory:
                    path, weights = os.path.join(directory, "sync"), model(2000)
                    trainer, versions, renames = Trainer(weights), {}, []
                    try:
                        with killed(at, before) as renames:
                            versions[trainer.have] = bits(weights)
                            folder = transports.Folder(path, trainer)
                            train(weights, share)
                            versions[Trainer(weights).have] = bits(weights)
                            folder.publish(weights)
                    except Killed:
                        seen.add((os.path.basename(renames[-1])[:6], before))
                    for rollout in (Rollout(), Rollout(path=os.path.join(directory, "w"))):
                        with contextlib.suppress(FileNotFoundError):  # there is no version yet
                            transports.pull(path, rollout)
                            assert bits(rollout.tensors()) == versions[rollout.have]
                        rollout.close()
                    for share in (0.03, 0.9):
                        old = {n: t.clone() for n, t in weights.items()}
                        train(weights, share)
                        folder = None
                        folder = transports.Folder(path, Trainer(old, run=trainer.run))
                        folder.publish(weights)
                        rollout = Rollout(path=os.path.join(directory, "w"))
                        assert transports.pull(path, rollout) and holds(rollout, weights)
                        rollout.close()
    assert seen == {(name, before) for name in ("anchor", "delta-", "latest") for before in (True, False)}, seen
    for at in range(1, 4):
        for before in (True, False):
            with tempfile.TemporaryDirectory() as directory:
                path, weights = os.path.join(directory, "w"), model(2000)
                trainer, versions = Trainer(weights), {0: None}
                versions[trainer.have] = bits(weights)
                messages = [trainer.anchor()]
                train(weights)
                messages.append(trainer.publish(weights))
                versions[trainer.have] = bits(weights)
                rollout = Rollout(path=path)
                with contextlib.suppress(Killed), killed(at, before):
                    for message in messages:
                        rollout.apply(message)
                rollout.close()
                rollout = Rollout(path=path)
                assert not rollout.have or bits(rollout.tensors()) == versions[rollout.have], (at, before)
                message = trainer.since(rollout.have)
                assert (message is None or rollout.apply(message)) and holds(rollout, weights)
                rollout.close()


@contextlib.contextmanager
def full_disk():
    def fsync(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before, os.fsync = os.fsync, fsync
    try:
        yield
    finally:
        os.fsync = before


def sockets():
    import socket
    import threading

    weights = model()
    trainer = Trainer(weights)
    server = transports.Server(trainer)
    rollout = Rollout(weights)
    client = transports.Client(rollout, server.address)
    assert client.pull() is False
    timer = threading.Timer(0.2, lambda: (train(weights), trainer.publish(weights)))
    timer.start()
    assert client.pull(30) and holds(rollout, weights)
    for junk in (b"", b"GET / HTTP/1.0\r\n\r\n", os.urandom(100)):
        with socket.create_connection(server.address) as s, contextlib.suppress(OSError):  # it may have hung up already
            s.sendall(junk)
            s.shutdown(socket.SHUT_WR)
            assert s.recv(10) == b""
    server.close()
    client.close()
    refused(OSError, "", client.pull)
    # one that says more than it sends, and one that sends nonsense
    for answer in ((1 << 60).to_bytes(8, "little") + bytes(1000), (1000).to_bytes(8, "little") + bytes(1000)):
        listener = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=lambda: (lambda s: (s.recv(16), s.sendall(answer), s.close()))(listener.accept()[0]))
        thread.start()
        refused((OSError, MessageError), "", transports.Client(rollout, listener.getsockname()).pull)
        thread.join()
        listener.close()
    assert holds(rollout, weights)


def version_directories():
    """Those of slime and ModelExpress, written and read; damaged ones change nothing."""
    try:
        import xxhash  # noqa: F401
        checksums = ("adler32", "xxh3-128")
    except ImportError:
        checksums = ("adler32",)
        print("skip - python: sync: checksums of xxh3-128 (PyPI: xxhash)")
    weights = model()
    trainer, here, version = Trainer(weights), Weights.of(weights), "000000"
    with tempfile.TemporaryDirectory() as directory:
        kinds = [(e, c) for e in ("xor", "overwrite") for c in checksums]
        for n, (encoding, checksum) in enumerate(kinds * 3, 1):
            path, after = os.path.join(directory, f"weight_v{n:06d}"), f"{n:06d}"
            train(weights, random.choice((0.01, 0.2)))
            trainer.publish(weights)
            hf_delta.write(path, trainer.weights, trainer.spare, after, version, encoding=encoding, checksum=checksum)
            with open(os.path.join(path, hf_delta.INDEX), encoding="utf-8") as f:
                index = json.load(f)
            with safetensors.safe_open(os.path.join(path, "model-00000-of-00001.safetensors"), "np") as f:
                assert set(f.keys()) == set(f.metadata()) == set(index["weight_map"]) and f.get_tensor("w").dtype == numpy.uint8
            before = here.data.tobytes()
            refused(WrongBase, f"a delta against {version}; here is x", hf_delta.read, path, here, "x")
            file = random.choice((hf_delta.INDEX, "model-00000-of-00001.safetensors"))
            with open(os.path.join(path, file), "rb") as f:
                whole = f.read()
            for _ in range(60):
                bad = bytearray(whole)
                bad[random.randrange(len(bad))] ^= 1 << random.randrange(8)
                if random.random() < 0.2:
                    del bad[random.randrange(len(bad)):]
                with open(os.path.join(path, file), "wb") as f:
                    f.write(bad)
                try:
                    hf_delta.read(path, here, version)
                    assert here.data.tobytes() in (before, trainer.weights.data.tobytes())
                    here.data[:] = numpy.frombuffer(before, numpy.uint8)
                except (ValueError, FileNotFoundError):
                    assert here.data.tobytes() == before
            with open(os.path.join(path, file), "wb") as f:
                f.write(whole)
            version = hf_delta.read(path, here, version)
            assert version == after and bits(here.tensors()) == bits(weights) and hf_delta.read(path, here, version) == after
        index["weight_map"].popitem()
        for at in (1, 2):  # a directory that is written again is never read as the one before it
            for before in (True, False):
                shutil.copytree(path, path + "-again", dirs_exist_ok=True)
                with contextlib.suppress(Killed), killed(at, before):
                    hf_delta.write(path + "-again", trainer.spare, here, "9", version)
                if (at, before) != (2, False):
                    refused(FileNotFoundError, "index.json", hf_delta.read, path + "-again", here, version)
        with open(os.path.join(path, hf_delta.INDEX), "w", encoding="utf-8") as f:
            json.dump(index, f)
        refused(MessageError, "does not match the files", hf_delta.read, path, here, index["metadata"]["base_version"])
        assert bits(here.tensors()) == bits(weights)
        refused(ValueError, "is no encoding", hf_delta.write, directory, here, here, "1", "0", encoding="add")
        refused(MessageError, "checksums of crc are not known", hf_delta.write, directory, here, here, "1", "0", checksum="crc")


def the_bench():
    ran = subprocess.run([sys.executable, os.path.join(root, "bench", "sync.py"), "--mib", "1"], check=True, capture_output=True, text=True)
    rows = [x.split(" | ") for x in ran.stdout.split("\n") if "| bitsnap |" in x]
    assert len(rows) == 8 and all(float(row[6]) < 1 for row in rows), ran.stdout  # smaller than the smallest other form


def the_readme():
    with open(os.path.join(room, "README.md"), encoding="utf-8") as f, open(os.path.join(root, "bench", "results", "sync.md"), encoding="utf-8") as g:
        rows, kept = [x for x in f.read().split("\n") if x.startswith("|")], g.read()
    assert len(rows) > 10 and all(row in kept for row in rows)
    directory = os.getcwd()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        try:
            run_blocks(os.path.join(room, "README.md"), "python")
        finally:
            os.chdir(directory)


torch.manual_seed(1)
every = [deltas_and_anchors, lazy_tensors, all_tensors_or_none, damaged_messages, schedules, killed_while_applying, killed_at_each_rename, folders, stray_files, two_runs, forked_children, sizes_that_are_said,
         sockets, other_processes, version_directories, the_bench, the_readme]
sys.exit(run("sync", [test for test in every if not sys.argv[2:] or test.__name__ in sys.argv[2:]]))
