"""Files of tensors: .bsnap, .safetensors, and deltas with what they are against."""
from __future__ import annotations

import contextlib
import errno
import itertools
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Union

from . import _core
from ._arrays import DTYPES, PAIRS

Path = Union[str, bytes, "os.PathLike[Any]"]
Bases = Union[Path, Sequence[Path], None]  # one, or a chain, each against the one before it
Progress = Union[Callable[[int, int], Any], bool, None]

_FAMILIES = {"np": "numpy", "numpy": "numpy", "pt": "torch", "torch": "torch"}


def _family(framework):
    """bitsnap.numpy or bitsnap.torch."""
    import importlib

    try:
        return importlib.import_module("bitsnap." + _FAMILIES[framework])
    except KeyError:
        raise ValueError(f'"{framework}" is no framework; known are "np" and "pt"') from None


def _chain(base):
    return [] if base is None else [base] if isinstance(base, (str, bytes, os.PathLike)) else list(base)


def open_file(path: Path, base: Bases = None, threads: int = 1, hint: Callable[[Any], str | bytes] | None = None) -> _core.File:
    """Opens one file. `hint` gives the name that deltas against it have for it. `base`: the path of what a delta is against, or a list of
    paths, each against the one before it. Without `base`, the delta's name for its base is looked for beside the delta."""
    path = os.fspath(path)
    with _place(path):
        return _open(path, _chain(base), threads, 0, {}, hint or _hint)


@contextlib.contextmanager
def _place(path: Any, *more: str) -> Iterator[None]:
    """Errors say which file they are of."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or path
        raise
    except _core.Error as error:
        error.args = (": ".join([os.fsdecode(path), *more, error.args[0]]),)
        raise


def _open(path, chain, threads, depth, known, hint):
    """`known`: the Files that were found beside the first one, by identity, so that each is opened once. None: it is being opened, and is no
    base of its own bases."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        identity = _identity(os.fstat(fd))
        if identity in known:
            return known[identity]
        known[identity] = None
        name = hint(path)
        file = _core.File(fd, (), 1 if chain else threads, name)
        if file.kind == "delta":
            found = [_base(path, chain, name) if depth < 64 else None for name in file.bases]
            bases = [] if None in found else [_open(other, chain[:-1], 1, depth + 1, {} if chain else known, _hint) for other in found]
            if bases and None not in bases:
                file = _core.File(fd, bases, threads, name)
        known[identity] = file  # possibly without its bases: its frames can still be listed
        return file
    finally:
        os.close(fd)


def _hint(path):
    """What deltas against a file call it."""
    return os.path.basename(os.fsencode(path)).removesuffix(b".bsnap")


def _folder_hint(path):
    """The same with its folder, as every checkpoint has a file of that name: "model.safetensors of step-10"."""
    directory, file = os.path.split(os.path.realpath(os.fsdecode(path)))
    return f"{file.removesuffix('.bsnap')} of {os.path.basename(directory)}".replace("\\", "?")  # no name may have a backslash


def _identity(status):
    return status.st_dev, status.st_ino


def is_there(path: Path, *others: Path) -> bool:
    """Whether a path is there; with others, whether it is one of these. bitsnap.auto makes os.path.exists say more."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    return not others or _identity(status) in [_identity(os.stat(other)) for other in others]


def _base(path, chain, name):
    """The path of what a delta calls `name`: the last of the chain, or in the folder that this is, or beside the delta; None: not found."""
    if chain and not os.path.isdir(chain[-1]):
        return chain[-1]
    file, _, folder = name.partition(" of ")
    if chain:
        return _inside(chain[-1], name, path) or _inside(chain[-1], file, path)
    directory = os.path.dirname(os.fsdecode(path))
    found = _inside(directory, name, path)
    for parent in (os.pardir, os.curdir) if os.path.basename(folder) == folder not in ("", os.curdir, os.pardir) else ():
        found = found or _inside(os.path.join(directory, parent, folder), file, path)
    return found


def _inside(directory, name, path):
    """The file of that name in a directory, if there is one and it is not the delta itself."""
    for candidate in (name + ".bsnap", name):
        other = os.path.join(os.fsdecode(directory), candidate)
        if name and os.path.basename(name) == name and os.path.isfile(other) and not os.path.samefile(other, path):
            return other
    return None


# ================================================================================= FOLDERS AND STORES
# A layout is {path of a file: function that opens it} and {tensor: path of its file}; the second is None if only the files tell.
# Names in an index or a manifest may be hostile: none may lead out of its folder.

INDEX = ".safetensors.index.json"
MANIFEST = "manifest.json"
CHECK = b'"check"'  # its value is the hash of the text before it
_OPEN = 16  # most files of a folder that stay open


def _parse(data, path, what):
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no {what}: {error}") from None


def _read(path):
    with open(path, "rb") as f:
        return f.read()


def _weight_map(data, path):
    """{tensor: name of its file} of an index."""
    whole = _parse(data, path, "index of a model")
    names = whole.get("weight_map") if isinstance(whole, dict) else None
    if not isinstance(names, dict) or not all(isinstance(file, str) for file in names.values()):
        raise ValueError(f'{path} is no index of a model: it has no "weight_map" of names')
    for file in set(names.values()):
        if os.path.isabs(file) or os.pardir in file.replace("\\", "/").split("/"):
            raise ValueError(f"{path}: {file!r} leads out of the folder")
    return names


def _folder_layout(path, chain, threads, hint=None):
    """The files of the one index; without one all tensor files."""
    path = os.fsdecode(path)
    names = sorted(name for name in os.listdir(path) if not name.startswith("."))
    if "checkpoint.bsnap" in names:
        raise ValueError(f"{path} is a checkpoint of torch.distributed.checkpoint: bitsnap.dcp.BitsnapReader reads it")
    indexes = [os.path.join(path, name) for name in names if name.endswith(INDEX)]
    index = None
    if len(indexes) == 1:
        index = {tensor: _packed(os.path.join(path, file), indexes[0]) for tensor, file in _weight_map(_read(indexes[0]), indexes[0]).items()}
        files = list(dict.fromkeys(index.values()))
    else:
        files = [os.path.join(path, name) for name in names if name.endswith(".safetensors") or
                 (name.endswith(".bsnap") and name[:-len(".bsnap")] not in names)]
    if not files:
        raise ValueError(f"{path} is a folder without .bsnap or .safetensors files")
    return {file: (lambda file=file: open_file(file, chain, threads, hint)) for file in files}, index


def _packed(path, index):
    """The file itself, or as bitsnap has packed it."""
    for candidate in (path, path + ".bsnap"):
        if is_there(candidate):
            return candidate
    raise FileNotFoundError(errno.ENOENT, f"a file that {index} names is missing; neither it nor {os.path.basename(path)}.bsnap is there", path)


def _manifest(path):
    """The manifest of a store, if it is as it was written: {id: object}, {step: {path of a file: id}}."""
    name = os.path.join(path, MANIFEST)
    data = _read(name)
    whole = _parse(data, name, "manifest of a store")
    try:
        if whole["bitsnap_store"] != 1:
            raise ValueError(f"{name} has version {whole['bitsnap_store']}; version 1 is known here")
        if "check" in whole and whole["check"] != f"{_core.hash(data[:data.rindex(CHECK)]):016x}":
            raise ValueError(f"{name} is damaged: its check differs. `bitsnap verify` says what can be done")
        return ({x["id"]: x for x in whole["objects"]},
                {step["step"]: {x["file"]: x["id"] for x in step["entries"] if "file" in x} for step in whole["steps"]})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{name} is no manifest of a store: {error!r}") from None


def _store_layout(path, step, threads):
    """The tensor files of one step. Their bases are objects of the store."""
    path = os.fsdecode(path)
    objects, steps = _manifest(path)
    number = max(steps, default=None) if step == "latest" else step
    if number not in steps:
        listed = ", ".join(map(str, sorted(steps)[-8:])) or "none"
        raise ValueError(f'{path} is a store of snapshots: say which, as step="latest"; the last steps are {listed}' if step is None else
                         f"{path} has no step {step}; the last steps are {listed}")
    entries = steps[number]

    def place(id):
        x = objects.get(id)
        if x is None or not re.fullmatch("[0-9a-f]{16}", id):
            raise ValueError(f"{path}: step {number} needs the object {id}, which the manifest does not have")
        base = f"-{x['base']}" if "base" in x else ""
        return x, os.path.join(path, "objects", id + (f"{base}.bsnap" if x.get("kind") == "tensors" else ""))

    def opened(id, depth=0):
        x, name = place(id)
        if depth > 256:
            raise ValueError(f"{path}: the chain of step {number} has more than 256 objects")
        with _place(name):
            bases = [opened(x["base"], depth + 1)] if "base" in x else []
            with open(name, "rb") as f:
                return _core.File(f.fileno(), bases, 1 if depth else threads)

    tensors = {file: id for file, id in entries.items() if place(id)[0].get("kind") == "tensors"}
    indexes = [file for file in entries if file.endswith(INDEX) and "/" not in file]
    index = None
    if len(indexes) == 1:
        name = place(entries[indexes[0]])[1]
        data = _read(name)
        if f"{_core.hash(data):016x}" != entries[indexes[0]]:
            raise ValueError(f"{name} is damaged: it is not what the manifest says. `bitsnap verify` says what can be done")
        index = _weight_map(data, name)
        tensors = {file: tensors[file] for file in dict.fromkeys(index.values()) if file in tensors}
        missing = set(index.values()) - set(tensors)
        if missing:
            raise ValueError(f"{path}: step {number} has no file {min(missing)}, which its index names")
    if not tensors:
        raise ValueError(f"{path}: step {number} has no tensor files")
    labels = {file: f"{path}, step {number}: {file}" for file in tensors}
    return ({labels[file]: (lambda id=id: opened(id)) for file, id in tensors.items()},
            index and {tensor: labels[file] for tensor, file in index.items()})


def _from_memory(data, label, chain, threads):
    bases = _bases(chain) if chain else []
    with _place(label):
        return _core.File(data, bases, threads)


def _with_base(file, label):
    """The same, unless it is a delta whose base was not found."""
    if file.kind == "delta" and len(file.identities()) < 2:
        with _place(label):
            try:
                file.tensors()
            except _core.Error as error:
                names = [name for name in file.bases if name] or ["by no name"]
                error.args = (f"{error.args[0]}; give its path as base=; it was called {', '.join(names[:3])}",)
                raise
    return file


class File:
    """The tensors of a path, to be read:

    - a .bsnap or .safetensors file. The base of a delta is `base`, or is found beside it by its name.
    - a folder of such files: those that its index, *.safetensors.index.json, names; without one index all. A delta folder needs `base`, the
      folder that it is against, unless save_folder() made it and that folder is still beside it.
    - a store of snapshots, as `bitsnap snapshot` makes them, with `step`: a number, or "latest".

    - an open binary file, which is read as a whole.

    base: a path, or a list of paths, each against the one before it. threads: how many decode a tensor. The attribute `name` is the path as text.
    Threads may share a File; they take turns. A process forked from this one reads it too. It cannot be pickled.
    """

    def __init__(self, path: Any, *, base: Bases = None, step: int | str | None = None, threads: int = 1) -> None:
        self._opened: dict[str, _core.File] = {}
        self._closed = False
        chain, data = _chain(base), path.read() if hasattr(path, "read") else None
        text = self.name = os.fsdecode(path) if data is None else "the file object"
        self._store = os.path.isfile(os.path.join(text, MANIFEST)) and os.path.isdir(os.path.join(text, "objects"))
        if step is not None and not self._store:
            raise ValueError(f"{text} is no store of snapshots, which `bitsnap snapshot` makes; step= is of no use")
        if self._store:
            if chain:
                raise ValueError(f"{text} is a store of snapshots, which holds the bases of its deltas; base= is of no use")
            self._files, self._index = _store_layout(text, step, threads)
        elif os.path.isdir(text):
            self._files, self._index = _folder_layout(text, chain, threads)
        else:
            self._files = {text: lambda: open_file(text, chain, threads) if data is None else _from_memory(data, text, chain, threads)}
            self._index = None
            self._part(text)

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError(f"an open {type(self).__name__} cannot be pickled: pass its path, and open that in the other process")

    def _part(self, label):
        """One of its files, open. Only some of a folder's stay open."""
        if self._closed:
            raise ValueError(f"{self.name}: this File is closed")
        file = self._opened.get(label)
        if file is None:  # no lock: a process forked at this point would keep it locked. At worst two threads open the file
            file = self._opened[label] = _with_base(self._files[label](), label)
            if len(self._opened) > _OPEN:
                self._opened.pop(next(iter(tuple(self._opened))), None)
        return file

    def _where(self, name):
        """The file that has a tensor."""
        if len(self._files) == 1 and self._index is None:
            return next(iter(self._files))
        with contextlib.suppress(KeyError):
            return self._names()[name]
        raise KeyError(name)

    def _names(self):
        """{tensor: its file}"""
        if self._index is None:
            index = {}
            for label in self._files:
                with _place(label):
                    for name, *_ in self._part(label).tensors():
                        if name in index:
                            raise ValueError(f"{name!r} is in {index[name]} and in {label}: open one of these")
                        index[name] = label
            if len(self._files) == 1:
                return index
            self._index = index
        return self._index

    def names(self) -> list[str]:
        """The names of the tensors, in the order of their bytes, file by file."""
        names = self._names()
        if self._index is None:
            return list(names)
        order = []
        for label in self._files:
            with _place(label):
                order += [t[0] for t in self._part(label).tensors() if names.get(t[0]) == label]
        if len(order) != len(names):
            lost = min(set(names) - set(order))
            raise ValueError(f"{names[lost]} has no tensor {lost!r}, which the index says it has")
        return order

    def keys(self) -> list[str]:
        """The names of the tensors, sorted."""
        return sorted(self._names())

    def find(self, name: str) -> tuple[str, tuple[int, ...]]:
        """The dtype of a tensor, as .safetensors files call it, and its shape. KeyError if no tensor has that name."""
        label = self._where(name)
        with _place(label, name):
            try:
                _, dtype, shape, *_ = self._part(label).find(name)
            except KeyError:
                if self._index is None:
                    raise
                raise ValueError(f"{label} has no tensor {name!r}, which the index says it has") from None
        return dtype, shape

    def read(self, name: str, first: int = 0, count: int | None = None, out: Any = None) -> Any:
        """Elements of a tensor, `count` from number `first` on, as bytes; or into `out`, a writable buffer of that size, which is returned.
        Reads only the blocks with these elements."""
        label = self._where(name)
        with _place(label):
            return self._part(label).read(name, first, out=out, **({} if count is None else {"count": count}))

    def metadata(self) -> dict[str, str] | None:
        """The strings of the file; those of a folder's first file."""
        label = next(iter(self._files))
        with _place(label):
            text = self._part(label).metadata()
        return None if text is None else dict(json.loads(text))

    def verify(self) -> None:
        """Reads and checks everything. bitsnap.Error names what is damaged."""
        self.names()
        for label in self._files:
            with _place(label):
                self._part(label).verify()

    def info(self) -> dict[str, Any]:
        """What it holds: "tensors" {name: {"dtype", "shape"}}, "files" {path: {"kind", "size", "data_size", "quantized", "bases"}}, and
        "size", "data_size" and "quantized" of all. Sizes are bytes: of the files, and of the tensors that they restore."""
        files = {}
        for label in self._files:
            with _place(label):
                file = self._part(label)
                files[label] = {x: getattr(file, x) for x in ("kind", "size", "data_size", "quantized", "bases")}
        tensors = {name: dict(zip(("dtype", "shape"), self.find(name))) for name in self.names()}
        return {"tensors": tensors, "files": files, "size": sum(x["size"] for x in files.values()),
                "data_size": sum(x["data_size"] for x in files.values()), "quantized": any(x["quantized"] for x in files.values())}

    def close(self) -> None:
        """Closes its files. A call of another thread that is under way ends first."""
        self._closed = True
        opened, self._opened = self._opened, {}
        for file in opened.values():
            file.close()


class safe_open:
    """Opens what File opens, and gives arrays: one of them, or a part of it, without the rest. The interface of safetensors.safe_open.

        with bitsnap.safe_open("model.bsnap", framework="pt") as f:
            for name in f.keys():
                tensor = f.get_tensor(name)
            rows = f.get_slice("embed.weight")[100:200]      # reads the blocks with these rows

    framework: "pt", tensors of torch on `device`, or "np", arrays of numpy. base, step, threads: as in File.
    Threads may share one: they take turns. It cannot be pickled.
    """

    def __init__(self, filename: Path, framework: str = "pt", device: Any = "cpu", *, base: Bases = None, step: int | str | None = None,
                 threads: int = 1) -> None:
        self._family = _family(framework)
        self._device = device
        self._file = File(filename, base=base, step=step, threads=threads)

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    __reduce__ = File.__reduce__

    def keys(self) -> list[str]:
        """The names of the tensors, sorted."""
        return self._file.keys()

    def offset_keys(self) -> list[str]:
        """The names of the tensors in the order of their bytes, of a folder file by file."""
        return self._file.names()

    def metadata(self) -> dict[str, str] | None:
        """The strings of the file; those of a folder's first file."""
        return self._file.metadata()

    def get_tensor(self, name: str) -> Any:
        """A whole tensor."""
        dtype, shape = self._find(name)
        return self._read(name, dtype, shape, 0)

    def get_tensors(self, names: Iterable[str] | None = None, *, progress: Progress = None) -> dict[str, Any]:
        """Several tensors by their names, or all, read in the order of the files. progress: as in load_file."""
        order = self.offset_keys()
        if names is not None:
            wanted = set(names)
            lost = wanted.difference(order)
            if lost:
                raise KeyError(min(lost))
            order = [name for name in order if name in wanted]
        sizes = {name: _size_of(*self._file.find(name)) for name in order} if progress else {}
        found: dict[str, Any] = {}
        with reports(progress, sum(sizes.values()), _label(self._file.name)) as told:
            for name in order:
                found[name] = self.get_tensor(name)
                if told:
                    told(sizes[name])
        return found

    def get_slice(self, name: str) -> TensorSlice:
        """A tensor whose parts can be read: get_slice(name)[10:20]."""
        return TensorSlice(self, name, *self._find(name))

    def _find(self, name):
        """Dtype and the shape of the array, whose elements may be pairs of those of the file."""
        dtype, shape = self._file.find(name)
        if dtype not in PAIRS:
            return dtype, shape
        if not shape or shape[-1] % 2:
            raise TypeError(f"{self._label(name)}: {name}: elements of {dtype} come in pairs, but the shape {list(shape)} has no even last "
                            "dimension")
        return dtype, (*shape[:-1], shape[-1] // 2)

    def _label(self, name):
        return self._file._where(name)

    def verify(self) -> None:
        """Reads and checks everything."""
        self._file.verify()

    def _read(self, name, dtype, shape, first):
        if dtype not in DTYPES and dtype not in PAIRS:
            raise TypeError(f"{name} has elements of {dtype}, which no array has")
        try:
            array, memory = self._family.new(dtype, shape)
        except (MemoryError, RuntimeError, OverflowError, ValueError) as error:  # as numpy and torch like it
            kind = ValueError if isinstance(error, ValueError) else MemoryError
            raise kind(f"{self._label(name)}: {name}: no array of {dtype} has the shape {list(shape)} here: {error}") from error
        each = 2 if dtype in PAIRS else 1
        self._file.read(name, each * first, each * math.prod(shape), memory)
        return self._family.move(array, self._device)


class TensorSlice:
    """A tensor whose parts can be read, as in safetensors. safe_open.get_slice() makes it. An index reads only the rows of the first dimension
    that it needs."""

    def __init__(self, file: safe_open, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        self._file, self._name, self._dtype, self._shape = file, name, dtype, shape

    def get_shape(self) -> list[int]:
        """The shape of the whole tensor."""
        return list(self._shape)

    def get_dtype(self) -> str:
        """The dtype, as .safetensors files call it: "BF16"."""
        return self._dtype

    def __getitem__(self, index: Any) -> Any:
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


@contextlib.contextmanager
def reports(progress: Progress, total: int, what: str) -> Iterator[Callable[[int], Any] | None]:
    """A function that takes the bytes of each step, and calls `progress` with those done so far and the total. None without progress. With
    True, tqdm shows them."""
    if progress is True:
        try:
            from tqdm import tqdm
        except ImportError:
            raise ImportError("progress=True needs the package tqdm: install it, or give a function of (bytes done, of how many)") from None
        with tqdm(total=total, unit="B", unit_scale=True, desc=what) as bar:
            yield bar.update
    elif progress:
        done = 0

        def told(size: int) -> None:
            nonlocal done
            done += size
            progress(done, total)

        yield told
    else:
        yield None


def _label(path):
    """What a bar of progress calls it."""
    return os.path.basename(os.path.normpath(os.fsdecode(path))) if isinstance(path, (str, bytes, os.PathLike)) else "file"


def total(tensors: Iterable[Any]) -> int:
    """Bytes of the memory of [(name, dtype, shape, memory), ...]."""
    return sum(_bytes(tensor[3]) for tensor in tensors)


def write(filename: Any, tensors: list[Any], metadata: Mapping[str, str] | str | None, level: str | int, threads: int, base: Any,
          flags: int = 0, sha256: bool = False, told: Callable[[int], Any] | None = None, references: bool = True) -> Any:
    """Writes [(name, dtype, shape, memory), ...] to a file that appears as a whole, or not at all; with filename None to bytes; or to an
    open file. metadata and shapes: as objects, or as the JSON text that the header gets. told: called with the bytes of each step.
    memory: the elements; or a function that is called when they are needed: it gives all bytes, or those from one number to another."""
    from . import _level

    text = metadata if isinstance(metadata, str) else None if metadata is None else _metadata_text(metadata)
    for name, *_ in tensors:
        _text(name, "the name of a tensor")
        if name == "__metadata__":
            raise ValueError('no tensor can be called "__metadata__": that is where .safetensors files have their metadata; rename it')
    table = [(name, dtype, shape if isinstance(shape, str) else json.dumps(list(shape)), _bytes(memory)) for name, dtype, shape, memory in tensors]
    bases = _bases(base)
    options = {"level": _level(level), "threads": threads, "flags": flags, "bases": bases, "sha256": sha256,
               "part": _parts(tensors) if references else None}
    opened = filename if hasattr(filename, "fileno") else None
    if opened is not None:
        return _fill(_core.Writer(opened.fileno(), table, text, **options), tensors, told)
    if filename is not None and is_there(filename) and any(_identity(os.stat(filename)) in file.identities() for file in bases):
        raise ValueError(f"{os.fsdecode(filename)} is one of the files that the delta is against, which it would overwrite: give another name")
    if filename is None:
        return _fill(_core.Writer(-1, table, text, **options), tensors, told)
    with _place(filename), whole_file(filename) as f:
        return _fill(_core.Writer(f.fileno(), table, text, **options), tensors, told)


def _parts(tensors):
    """A function of the number of a tensor, the first byte, and how many bytes."""
    memories = [memoryview(memory) if isinstance(memory, bytes) else memory for *_, memory in tensors]

    def part(number, begin, size):
        memory = memories[number]
        with _tensor(tensors[number][0]):
            return memory(begin, begin + size) if callable(memory) else memory[begin:begin + size]

    return part


def elements_of(begin: int, end: int, each: int) -> tuple[int, int, slice]:
    """The elements, of `each` bytes, that have these bytes, from the first to the one after the last; and where the bytes are in them."""
    first = begin // each
    return first, -(-end // each), slice(begin - first * each, end - first * each)


def _bases(base):
    """The Files that a delta is against: a File, the path of a file or a folder, or the last of a chain of paths."""
    *chain, last = [base] if isinstance(base, _core.File) else _chain(base) or [None]
    if last is None or isinstance(last, _core.File):
        return [] if last is None else [*chain, last]
    if not os.path.isdir(last):
        return [open_file(last, chain or None)]
    files, _ = _folder_layout(last, chain, 1, _folder_hint)
    if len(files) > 255:
        raise ValueError(f"{os.fsdecode(last)} has {len(files)} files; a delta is against at most 255: save without base")
    return [opened() for opened in files.values()]


def _metadata_text(metadata):
    if not all(isinstance(k, str) and isinstance(v, str) for k, v in metadata.items()):
        raise TypeError("metadata must be a dictionary of strings")
    for string in itertools.chain(*metadata.items()):
        _text(string, "the metadata")
    return json.dumps(metadata, ensure_ascii=False)


_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def _size(text):
    """A number of bytes, or such a text as "5GB"."""
    found = re.fullmatch(r"(\d+) *([KMGT]I?B)", text.upper()) if isinstance(text, str) else None
    size = int(found[1]) * _UNITS[found[2]] if found else text
    if not isinstance(size, int) or size < 1:
        raise ValueError(f'{text!r} is no size: give a number of bytes, or a text as "5GB"')
    return size


def write_folder(folder: Path, tensors: list[Any], metadata: Mapping[str, str] | None, most: int | str, level: str | int, threads: int,
                 base: Any, told: Callable[[int], Any] | None = None, references: bool = True) -> int:
    """Writes tensors to a folder as transformers shards them, packed: files of at most `most` bytes of tensors, and an index if there are
    several. All get their names at the end, the index last."""
    folder, most, held = os.fsdecode(folder), _size(most), 0
    shards: list[list[Any]] = []
    for tensor in tensors:
        size = _bytes(tensor[3])
        if not shards or held + size > most:
            shards.append([])
            held = 0
        shards[-1].append(tensor)
        held += size
    names = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))] if len(shards) > 1 else ["model.safetensors"]
    index = {"metadata": {"total_size": total(tensors)},
             "weight_map": {tensor[0]: name for name, shard in zip(names, shards) for tensor in shard}}
    bases, made = _bases(base), not os.path.isdir(folder)
    os.makedirs(folder, exist_ok=True)
    there = [name for name in os.listdir(folder) if name.endswith((".safetensors", ".bsnap", INDEX)) and not name.startswith(".")]
    if there:
        raise FileExistsError(errno.EEXIST, f"the folder has tensors already, as {min(there)}: give another folder, or remove them", folder)
    try:
        with contextlib.ExitStack() as stack:  # leaves them in reverse order
            if len(shards) > 1:
                text = json.dumps(index, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
                stack.enter_context(whole_file(os.path.join(folder, "model" + INDEX))).write(text.encode())
            return sum(write(stack.enter_context(whole_file(os.path.join(folder, name + ".bsnap"))), order(shard), metadata, level, threads, bases,
                             told=told, references=references) for name, shard in zip(names, shards or [[]]))
    except BaseException:
        if made:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        raise


@contextlib.contextmanager
def whole_file(filename: Path) -> Iterator[IO[bytes]]:
    """Opens a new file for writing. When the block ends it is on the disk and gets its name; an exception removes it."""
    directory = os.path.dirname(os.path.abspath(os.fsdecode(filename)))
    temporary = os.path.join(directory, f".bitsnap-{secrets.token_hex(8)}")
    try:
        with open(temporary, "x+b") as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, filename)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):  # an interrupt may come before the file exists, or after it has its name
            os.unlink(temporary)
        raise
    _sync(directory)


_STEP = 1 << 24  # bytes between two calls of told


def _fill(writer, tensors, told):
    for name, *_, memory in tensors:
        with _tensor(name):
            memory = memory() if callable(memory) else memory
            if not told:
                writer.write(memory)
                continue
        view, size = memoryview(memory) if isinstance(memory, bytes) else memory, _bytes(memory)
        for begin in range(0, size, _STEP):
            with _tensor(name):
                writer.write(view[begin:begin + _STEP])
            told(min(_STEP, size - begin))
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


def entry(name: str, host: Callable[[Any], tuple[Any, ...]], array: Any) -> tuple[Any, ...]:
    """(name, dtype, shape, memory), the last three as host(array) gives them."""
    with _tensor(name):
        return (name, *host(array))


def order(tensors: list[Any]) -> list[Any]:
    """As other writers of .safetensors files do: wide elements first, then by name, so that all are aligned. But F16 and BF16 come before F32 if
    that aligns the others, too: then masters refer to weights, and these can be read without the masters."""
    halves = "F16", "BF16"
    first = any(t[1] == "F32" for t in tensors) and total(t for t in tensors if t[1] in halves) % 8 == 0
    return sorted(tensors, key=lambda t: (not (first and t[1] in halves), -_width(t[1]), t[0]))


def _size_of(dtype, shape):
    """Bytes of a tensor in a file."""
    return math.prod(shape) * (4 if dtype == "F4" else 8 * _width(dtype)) // 8


def _width(dtype):
    digits = dtype.split("_")[0].strip("BOLUIFC")
    return 1 if dtype == "BOOL" else int(digits) // 8
