"""Files of tensors: .bsnap, .safetensors, and deltas with what they are against."""
import contextlib
import itertools
import json
import math
import os
import secrets

from . import _core
from ._arrays import DTYPES, PAIRS

_FAMILIES = {"np": "numpy", "numpy": "numpy", "pt": "torch", "torch": "torch"}


def _family(framework):
    """bitsnap.numpy or bitsnap.torch."""
    import importlib

    try:
        return importlib.import_module("bitsnap." + _FAMILIES[framework])
    except KeyError:
        raise ValueError(f'"{framework}" is no framework; known are "np" and "pt"') from None


def open_file(path, base=None, threads=1):
    """A _core.File. `base`: of a delta the path of what it is against, or a list of paths, each of which is against the one before
    it; without it the name that the delta has for its base is looked for beside it."""
    path = os.fspath(path)
    chain = [] if base is None else [base] if isinstance(base, (str, bytes, os.PathLike)) else list(base)
    with _place(path):
        return _open(path, chain, threads, 0, {})


@contextlib.contextmanager
def _place(path, *more):
    """Errors say which file they are of."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or path
        raise
    except _core.Error as error:
        error.args = (": ".join([os.fsdecode(path), *more, error.args[0]]),)
        raise


def _open(path, chain, threads, depth, known):
    """`known`: the Files that were found beside the first one, by identity, so that each is opened once. None: it is being opened, and is no
    base of its own bases."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        identity = _identity(os.fstat(fd))
        if identity in known:
            return known[identity]
        known[identity] = None
        name = os.path.basename(os.fsencode(path)).removesuffix(b".bsnap")
        file = _core.File(fd, (), 1 if chain else threads, name)
        if file.kind == "delta":
            if chain:
                bases = [_open(chain[-1], chain[:-1], 1, depth + 1, {})]
            else:
                beside = [_beside(path, name) if depth < 64 else None for name in file.bases]
                bases = [] if None in beside else [_open(other, [], 1, depth + 1, known) for other in beside]
            if bases and None not in bases:
                file = _core.File(fd, bases, threads, name)
        known[identity] = file  # perhaps without its bases: then its frames can be listed
        return file
    finally:
        os.close(fd)


def _identity(status):
    return status.st_dev, status.st_ino


def _beside(path, name):
    """The file of that name in the same directory, if there is one."""
    directory = os.path.dirname(os.fsdecode(path))
    for candidate in (name + ".bsnap", name):
        other = os.path.join(directory, candidate)
        if name and os.path.isfile(other) and not os.path.samefile(other, path):
            return other
    return None


class safe_open:
    """A file of tensors, one of which, or a part of it, can be read without the rest: the interface of safetensors.safe_open.

        with bitsnap.safe_open("model.bsnap", framework="pt") as f:
            for name in f.keys():
                tensor = f.get_tensor(name)
            rows = f.get_slice("embed.weight")[100:200]      # reads the blocks with these rows

    Takes .bsnap files, deltas with their `base` (open_file says how that is found) and .safetensors files. Threads may share one: they
    take turns.
    """

    def __init__(self, filename, framework="pt", device="cpu", *, base=None, threads=1):
        self._family = _family(framework)
        self._device = device
        self._path = os.fspath(filename)
        self._file = open_file(filename, base, threads)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def keys(self):
        return sorted(self.offset_keys())

    def offset_keys(self):
        """Names in the order of their bytes."""
        with _place(self._path):
            return [t[0] for t in self._file.tensors()]

    def metadata(self):
        with _place(self._path):
            text = self._file.metadata()
        return None if text is None else json.loads(text)

    def get_tensor(self, name):
        return self._read(*self._find(name), 0)

    def get_slice(self, name):
        return _Slice(self, *self._find(name))

    def _find(self, name):
        """Name, dtype and the shape of the array, whose elements may be pairs of those of the file."""
        with _place(self._path, name):
            name, dtype, shape, *_ = self._file.find(name)
        if dtype not in PAIRS:
            return name, dtype, shape
        if not shape or shape[-1] % 2:
            raise TypeError(f"{os.fsdecode(self._path)}: {name}: elements of {dtype} come in pairs, but the shape {list(shape)} has no even last "
                            "dimension")
        return name, dtype, (*shape[:-1], shape[-1] // 2)

    def verify(self):
        """Reads and checks everything."""
        with _place(self._path):
            self._file.verify()

    def _read(self, name, dtype, shape, first):
        if dtype not in DTYPES and dtype not in PAIRS:
            raise TypeError(f"{name} has elements of {dtype}, which no array has")
        try:
            array, memory = self._family.new(dtype, shape)
        except (MemoryError, RuntimeError, OverflowError, ValueError) as error:  # as numpy and torch like it
            kind = ValueError if isinstance(error, ValueError) else MemoryError
            raise kind(f"{os.fsdecode(self._path)}: {name}: no array of {dtype} has the shape {list(shape)} here: {error}") from error
        each = 2 if dtype in PAIRS else 1
        with _place(self._path):
            self._file.read(name, each * first, each * math.prod(shape), memory)
        return self._family.move(array, self._device)


class _Slice:
    def __init__(self, file, name, dtype, shape):
        self._file, self._name, self._dtype, self._shape = file, name, dtype, shape

    def get_shape(self):
        return list(self._shape)

    def get_dtype(self):
        return self._dtype

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        if not self._shape or not index or not isinstance(index[0], (int, slice)) or isinstance(index[0], bool):
            return self._file.get_tensor(self._name)[index]
        first, rows = index[0], self._shape[0]
        if isinstance(first, int):
            if not -rows <= first < rows:
                raise IndexError(f"{self._name} has {rows} rows, of which {first} is none")
            start, stop, first = first % rows, first % rows + 1, 0
        else:
            wanted = range(*first.indices(rows))
            start, stop = (min(wanted), max(wanted) + 1) if wanted else (0, 0)
            first = slice(None, None, first.step) if wanted else slice(0, 0)
        part = self._file._read(self._name, self._dtype, (stop - start, *self._shape[1:]), start * math.prod(self._shape[1:]))
        return part[(first, *index[1:])]


def _text(text, what):
    """A string that UTF-8 can hold."""
    if not isinstance(text, str):
        raise TypeError(f"{what} {text!r} is a {type(text).__name__}, and no string")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} {text!r} has half of a surrogate pair, which is no character: rename it") from None


def write(filename, tensors, metadata, level, threads, base, flags=0):
    """Writes [(name, dtype, shape, memory), ...] to a file that appears as a whole, or not at all; with filename None to bytes."""
    from . import _level

    if metadata is not None and not all(isinstance(k, str) and isinstance(v, str) for k, v in metadata.items()):
        raise TypeError("metadata must be a dictionary of strings")
    for text in [] if metadata is None else itertools.chain(*metadata.items()):
        _text(text, "the metadata")
    for name, *_ in tensors:
        _text(name, "the name of a tensor")
        if name == "__metadata__":
            raise ValueError('no tensor can be called "__metadata__": that is where .safetensors files have their metadata; rename it')
    text = None if metadata is None else json.dumps(metadata, ensure_ascii=False)
    table = [(name, dtype, json.dumps(list(shape)), _bytes(memory)) for name, dtype, shape, memory in tensors]
    bases = [] if base is None else [base if isinstance(base, _core.File) else open_file(base)]
    options = {"level": _level(level), "threads": threads, "flags": flags, "bases": bases}
    if filename is not None and os.path.exists(filename) and any(_identity(os.stat(filename)) in file.identities() for file in bases):
        raise ValueError(f"{os.fsdecode(filename)} is one of the files that the delta is against, which it would overwrite: give another name")
    if filename is None:
        return _fill(_core.Writer(-1, table, text, **options), tensors)
    with _place(filename), whole_file(filename) as f:
        return _fill(_core.Writer(f.fileno(), table, text, **options), tensors)


@contextlib.contextmanager
def whole_file(filename):
    """A new file, open to be written, that gets its name when the block ends, and is on the disk then; after an exception there is none."""
    directory = os.path.dirname(os.path.abspath(filename))
    temporary = os.path.join(directory, f".bitsnap-{secrets.token_hex(8)}")
    try:
        with open(temporary, "x+b") as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, filename)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):  # an interrupt may come before the file is there, or after it has its name
            os.unlink(temporary)
        raise
    _sync(directory)


def _fill(writer, tensors):
    for name, *_, memory in tensors:
        with _tensor(name):
            writer.write(memory() if callable(memory) else memory)
    return writer.finish()


@contextlib.contextmanager
def _tensor(name):
    """Errors say which tensor they are of."""
    try:
        yield
    except (TypeError, ValueError, RuntimeError) as error:
        error.args = (f"tensor {name!r}: {error}",)
        raise


def _bytes(memory):
    return memory.nbytes if hasattr(memory, "nbytes") else len(memory)


def _sync(directory):
    """The new name is on the disk, where the file system can do that."""
    try:
        fd = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:
        pass
    finally:
        os.close(fd)


def entry(name, host, array):
    """(name, dtype, shape, memory), the last three as host(array) gives them."""
    with _tensor(name):
        return (name, *host(array))


def order(tensors):
    """As other writers of .safetensors files do: wide elements first, then by name, so that all are aligned."""
    return sorted(tensors, key=lambda t: (-_width(t[1]), t[0]))


def _width(dtype):
    digits = dtype.split("_")[0].strip("BOLUIFC")
    return 1 if dtype == "BOOL" else int(digits) // 8
