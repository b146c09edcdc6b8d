"""Tests of the package bitsnap with threads, forks and calls inside calls: python_threads.py [SECONDS]. By check_python.sh; it needs no numpy.

With the extension built for the thread sanitizer, SECONDS of 3 and PYTHON_RACES=1, which leaves out what forks, the same finds data races.
A test that hangs ends with the stacks of all threads."""
import faulthandler
import gc
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
from python_checks import elsewhere, refused, run

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 1
NAMES = [f"layer{i:02d}" for i in range(40)]
SIZE = 12000
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of a fork with threads, which is what is tested
faulthandler.dump_traceback_later(120 + 10 * SECONDS, exit=True)
elsewhere()


def elements(seed):
    random.seed(seed)
    return {name: bytes(random.getrandbits(8) & 0x9F for _ in range(SIZE)) for name in NAMES}


def changed(tensors, seed):
    random.seed(seed)
    result = {name: bytearray(data) for name, data in tensors.items()}
    for data in result.values():
        for _ in range(50):
            data[random.randrange(SIZE)] ^= 1
    return {name: bytes(data) for name, data in result.items()}


def written(tensors, bases=(), **named):
    writer = _core.Writer(-1, [(name, "F32", f"[{SIZE // 4}]", SIZE) for name in tensors], bases=bases, **named)
    for data in tensors.values():
        writer.write(data)
    return writer.finish()


WEIGHTS = elements(1)
LATER = changed(WEIGHTS, 2)
LAST = changed(LATER, 3)
WHOLE = written(WEIGHTS)
DELTA = written(LATER, [_core.File(WHOLE)])
for name, data in ("whole.bsnap", WHOLE), ("delta.bsnap", DELTA):
    with open(name, "wb") as f:
        f.write(data)
TWICE = written(LAST, [_core.File(DELTA, [_core.File(WHOLE)]), _core.File(WHOLE)])


def together(*functions, seconds=SECONDS):
    """Calls each again and again, in a thread of its own; what one raises ends all."""
    errors, end = [], time.monotonic() + seconds

    def repeat(function):
        try:
            n = 0
            while not errors and time.monotonic() < end:
                function(n)
                n += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=[function]) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def reads(file, tensors):
    def read(n):
        name = NAMES[n % len(NAMES)]
        assert file.read(name) == tensors[name], f"wrong elements of {name}"
    return read


def a_base_that_is_read():
    """A File that one thread reads is made a base by others, again and again."""
    bases = [_core.File(WHOLE)]

    def replace(n):
        bases[0] = _core.File(WHOLE)
        time.sleep(0.002)

    def read(n):
        base = bases[0]
        for k in range(20):
            reads(base, WEIGHTS)(n + k)

    def write(n):
        assert written(LATER, [bases[0]]) == DELTA

    def delta(n):
        file = _core.File(DELTA, [bases[0]])
        reads(file, LATER)(n)
        file.close()

    together(replace, read, write, delta)


def bases_in_any_order():
    """Files that share bases, named in another order each: who locks in the order of names waits for ever."""
    whole = _core.File(WHOLE)
    delta = _core.File(DELTA, [whole])
    files = [_core.File(TWICE, [delta, whole]), _core.File(TWICE, [_core.File(DELTA, [whole]), whole])]
    both = written(WEIGHTS, [whole, delta]), written(WEIGHTS, [delta, whole])
    files += [_core.File(both[0], [whole, delta]), _core.File(both[1], [delta, whole])]
    together(reads(files[0], LAST), reads(files[1], LAST), reads(files[2], WEIGHTS), reads(files[3], WEIGHTS), reads(whole, WEIGHTS), reads(delta, LATER))
    whole.close()
    assert whole.read(NAMES[0]) == WEIGHTS[NAMES[0]]  # others read it
    del files, delta
    whole.close()
    refused(ValueError, "is closed", whole.read, NAMES[0])


def a_writer_of_many_threads():
    for _ in range(5):
        writer = _core.Writer(-1, [("a", "U8", f"[{400 * 250}]", 400 * 250)], bases=[_core.File(WHOLE)])
        threads = [threading.Thread(target=lambda: [writer.write(b"\3" * 250) for _ in range(100)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert _core.File(writer.finish(), [_core.File(WHOLE)]).read("a") == b"\3" * 100000
        refused(ValueError, "has ended", writer.write, b"")


def a_file_that_is_closed():
    for n in range(10):
        file = _core.File(DELTA, [_core.File(WHOLE)], 2)

        def read():
            try:
                while True:
                    reads(file, LATER)(n)
            except ValueError as error:
                assert "is closed" in str(error), error

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.002 * n)
        file.close()
        for thread in threads:
            thread.join()


def calls_inside_calls():
    """The garbage that a call collects uses the File that is called."""
    file, heard = _core.File(written(WEIGHTS, metadata='{"k":"v"}')), []

    class Garbage:
        def __init__(self):
            self.me = self

        def __del__(self):
            try:
                heard.append(file.read(NAMES[0]) == WEIGHTS[NAMES[0]])
                file.close()
            except ValueError as error:
                heard.append("cannot begin another" in str(error) or "is closed" in str(error))

    before = gc.get_threshold()
    try:
        for _ in range(3):
            gc.collect()
            Garbage()
            gc.set_threshold(1)
            try:
                file.frames()
                file.tensors()
            except ValueError as error:
                assert "is closed" in str(error)
            gc.set_threshold(*before)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert heard and all(heard), heard


def beginnings():
    """Files and Writers before they are open."""
    refused(TypeError, "a list of tuples", _core.Writer, -1, [3])

    class Again:
        def __iter__(self):
            file.__init__(WHOLE)

    file = _core.File.__new__(_core.File)
    refused(ValueError, "is opened once", file.__init__, WHOLE, Again())
    refused(ValueError, "is closed", file.read, "a")
    file = _core.File.__new__(_core.File)
    refused(ValueError, "at most 65534 open Files", file.__init__, DELTA, [file])
    refused(ValueError, "is closed", _core.File.__new__(_core.File).tensors)
    refused(ValueError, "has ended", _core.Writer.__new__(_core.Writer).finish)


def child(function):
    """What the function, in a forked child, returns: a string, or that it did not end."""
    back, forth = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            signal.alarm(20)
            os.write(forth, function().encode())
        except BaseException as error:
            os.write(forth, repr(error).encode())
        os._exit(0)
    os.close(forth)
    with open(back, "rb") as f:
        said = f.read().decode()
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"status {status}: {said}"
    return said


def forked_children():
    fd = os.open("whole.bsnap", os.O_RDONLY)
    whole = _core.File(fd, (), 2)
    delta = _core.File(DELTA, [whole], 3)
    writer = _core.Writer(os.open("to", os.O_WRONLY | os.O_CREAT), [("a", "U8", "[3]", 3)])
    writer.write(b"ab")

    def use():
        for n in range(len(NAMES)):
            reads(delta, LATER)(n)
        together(reads(whole, WEIGHTS), reads(delta, LATER), seconds=0.05)
        refused(ValueError, "in the process that made it", writer.write, b"c")
        refused(ValueError, "in the process that made it", writer.finish)
        delta.close()
        whole.close()
        return "closed"

    for _ in range(3):
        use_before = delta.read(NAMES[0])  # its threads are there
        assert use_before == LATER[NAMES[0]] and child(use) == "closed"
    writer.write(b"c")
    writer.finish()
    with open("to", "rb") as f:
        assert _core.File(f.read()).read("a") == b"abc"
    assert child(lambda: str(len(bitsnap.compress(bytes(1 << 20), "F32", threads=3)) > 0)) == "True"

    forks, said = 25, set()

    def in_use():
        try:
            assert delta.read(NAMES[3]) == LATER[NAMES[3]]
            delta.close()
            return "read"
        except ValueError as error:
            assert "when this process was forked" in str(error), error
            return "refused"

    stop = threading.Event()
    threads = [threading.Thread(target=lambda: [reads(delta, LATER)(n % 40) for n in iter(lambda: random.randrange(40) if not stop.is_set() else None, None)])
               for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(forks):
            said.add(child(in_use))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert said <= {"read", "refused"}, said
    reads(delta, LATER)(7)


def the_end_of_the_interpreter():
    """It ends while threads are in calls that never return."""
    script = """if True:
        import threading, time
        from bitsnap import _core
        file = _core.File(open("delta.bsnap", "rb").read(), [_core.File(open("whole.bsnap", "rb").read())], 2)
        def work():
            while True: file.verify()
        for _ in range(3): threading.Thread(target=work, daemon=True).start()
        time.sleep(0.05)
    """
    said = subprocess.run([sys.executable, "-c", script], check=True, timeout=30, stderr=subprocess.PIPE).stderr
    assert not said, said


def interrupts_while_waiting():
    """Ctrl-C ends a wait for a File that another thread is in."""
    big = os.urandom(1 << 25)
    writer = _core.Writer(-1, [("a", "F32", f"[{1 << 23}]", 1 << 25)], level=1)
    writer.write(big)
    file = _core.File(writer.finish())
    stop = threading.Event()
    thread = threading.Thread(target=lambda: [file.verify() for _ in iter(stop.is_set, True)])
    thread.start()
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        while True:
            file.find("a")
    except KeyboardInterrupt:
        pass
    finally:
        stop.set()
        thread.join()
    assert file.read("a", 0, 2) == big[:8]


def interrupts_while_reading():
    """Ctrl-C ends the read of a tensor before its last elements are there. Another process stops this one while it reads, for more than the
    tenth of a second after which signals are looked at, and sends the signal."""
    size = 1 << 26
    data = os.urandom(size)
    with open("large.bsnap", "w+b") as f:
        writer = _core.Writer(f.fileno(), [("a", "F32", f"[{size // 4}]", size)], level=1)
        writer.write(data)
        writer.finish()
        file, out = _core.File(f.fileno(), (), 2), bytearray(size)

    def interrupt(number, where):
        if any(out[:64]) and not any(out[-64:]):
            raise KeyboardInterrupt

    before, caught = signal.signal(signal.SIGALRM, interrupt), 0
    try:
        for n in range(100):
            out[:64] = out[-64:] = bytes(64)
            pid = os.fork()
            if not pid:
                time.sleep(0.001 * (n % 10))
                for number in (signal.SIGSTOP, signal.SIGALRM, signal.SIGCONT):
                    os.kill(os.getppid(), number)
                    time.sleep(0.12 if number == signal.SIGSTOP else 0)
                os._exit(0)
            try:
                file.read("a", out=out)
            except KeyboardInterrupt:
                caught += not any(out[-64:])
            os.waitpid(pid, 0)
            if caught == 2:
                break
    finally:
        signal.signal(signal.SIGALRM, before)
    assert caught == 2, f"{caught} of {n}"
    assert file.read("a") == data  # it is of use as before
    file.verify()


def the_end_while_files_are_written():
    """The interpreter ends while threads write files: a file is whole, or not there. A thread that is no daemon writes to its end."""
    script = """if True:
        import sys, threading, time
        from bitsnap import files
        data = bytes(range(256)) * 65536
        def work(name):
            files.write(name, [("a", "F32", (len(data) // 4,), data)], None, 3, 2, None)
        for n in range(2): threading.Thread(target=work, args=[f"daemon-{n}"], daemon=True).start()
        threading.Thread(target=work, args=["kept"]).start()
        time.sleep(float(sys.argv[1]))
    """
    for n in range(4):
        said = subprocess.run([sys.executable, "-c", script, str(0.01 * n)], check=True, timeout=60, stderr=subprocess.PIPE).stderr
        assert not said, said
        for name in {"kept", "daemon-0", "daemon-1"} & ({"kept"} | set(os.listdir())):
            with bitsnap.File(name) as file:
                assert file.read("a") == bytes(range(256)) * 65536
            os.unlink(name)


TESTS = [a_base_that_is_read, bases_in_any_order, a_writer_of_many_threads, a_file_that_is_closed, calls_inside_calls, beginnings]
if not os.environ.get("PYTHON_RACES"):
    TESTS += [forked_children, the_end_of_the_interpreter, interrupts_while_waiting, interrupts_while_reading, the_end_while_files_are_written]
sys.exit(run("threads", TESTS))
