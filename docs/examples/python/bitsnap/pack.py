"""Packs files beside themselves: those of torch.save, .safetensors files, and folders of both, such as checkpoints.

    bitsnap.pack.pack_folder("checkpoint-100", remove=True)
"""
from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import re
import zipfile
from collections.abc import Callable
from typing import Any

from . import _core, files
from .files import Path, Progress

__all__ = ["pack_file", "pack_folder", "read"]

STATES = (".pt", ".pth", ".bin", ".ckpt")  # names of files of torch.save
SAFETENSORS = ".safetensors"


class _Unknown(dict):  # type: ignore[type-arg]
    """Stands for everything that a pickle would make by code: nothing of it is run."""

    def __new__(cls, *_, **__):
        return dict.__new__(cls)

    def __init__(self, *_, **__):
        super().__init__()

    def __setstate__(self, state):
        pass

    append = extend = add = lambda self, *_: None


class _Names(pickle.Unpickler):
    """Reads what a pickle is made of, without an import: every global is an _Unknown of its name."""

    def find_class(self, module, name):
        return type(name, (_Unknown,), {"called": f"{module}.{name}"})

    def persistent_load(self, _):
        return None


def _places(path, unsafe):
    """Where in a state what torch does not allow is: [(place, name), ...]."""
    with zipfile.ZipFile(path) as archive:
        name, = (name for name in archive.namelist() if name.endswith("/data.pkl"))
        with archive.open(name) as f:
            state = _Names(f).load()
    found, todo, seen = [], [("", state)], set()
    while todo:
        place, value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, type) or type(value) is not dict:
            called = getattr(value, "called", None)
            if called in unsafe:
                found.append((place or "the state itself", called))
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
        todo += [(f"{place}.{key}" if place else str(key), x) for key, x in items]
    return sorted(found)


def read(path: Path) -> Any:
    """The state of a file of torch.save. Nothing in it is run."""
    import torch

    path = os.fsdecode(path)
    with open(path, "rb") as f:
        if f.read(9)[8:] == b"{":
            raise ValueError(f"{path} is a .safetensors file: give it that ending")
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except MemoryError:
        raise
    except Exception as error:  # for a truncated file, torch raises several types, even that of a seek before its start
        try:
            unsafe = torch.serialization.get_unsafe_globals_in_checkpoint(path)
            places = _places(path, unsafe)
        except Exception:  # torch raises many types for other files; only archives have places
            unsafe, places = re.findall(r"GLOBAL ([\w.]+)", str(error)), []
        if not unsafe:
            raise ValueError(f"{path} is no file of torch.save, or it is damaged") from None
        what = ", ".join(f"{place} is made by {name}" for place, name in places) or f"it holds {', '.join(sorted(unsafe))}"
        raise ValueError(f"{path} cannot be read without running code: {what}. Where you trust it, load it, replace that by tensors, numbers, "
                         "strings, lists and dictionaries or leave it out, and save it anew") from None


class _Stored:
    """The memory of a tensor of a file. It is read when it is written."""

    def __init__(self, path, file, name, shape, size):
        self._path, self._file, self._name, self.nbytes = path, file, name, size
        count = math.prod(shape)
        self._each = size // count if count and size % count == 0 else size or 1  # bytes of an element, or of all

    def __call__(self, begin=0, end=None):
        first, last, inner = files.elements_of(begin, self.nbytes if end is None else end, self._each)
        with files._place(self._path):
            if end is None or self._each == self.nbytes:
                return memoryview(self._file.read(self._name))[inner]
            return memoryview(self._file.read(self._name, first, last - first))[inner]


class _NotSmaller(Exception):
    pass


def pack_file(path: Path, output: Path | None = None, *, base: Any = None, level: str | int = "default", threads: int = 1,
              references: bool = True, remove: bool = False, progress: Progress = None) -> int:
    """Packs a .safetensors file, or a file of torch.save, and returns the size of the output, which appears as a whole or not at all. Elements
    are decoded and compared while they are packed.

    output: without it the same name and ".bsnap". An output that is there is replaced.
    remove: True: the file is removed when the output is on the disk.
    base, level, references, progress: as in bitsnap.torch.save_file.
    """
    path = os.fsdecode(path)
    output = path + ".bsnap" if output is None else os.fsdecode(output)
    if files.is_there(output, path):
        raise ValueError(f"{output} is the file that is read: give another name")
    return _pack(path, output, {"base": base, "level": level, "threads": threads, "references": references}, remove, progress)


def _pack(path, output, options, remove, progress, most=None):
    """most: raises _NotSmaller if the output has more bytes."""
    before = os.stat(path)
    with contextlib.ExitStack() as stack:  # leaves them in reverse order: the output gets its name first
        if path.endswith(SAFETENSORS):
            file = stack.enter_context(files.File(path))._part(path)
            metadata = file.metadata()
            table = [(name, dtype, json.dumps(shape, separators=(",", ":")), _Stored(path, file, name, shape, end - begin))
                     for name, dtype, shape, begin, end in file.tensors()]
        else:
            from . import torch

            table, metadata = torch.table_of(read(path))
        told = stack.enter_context(files.reports(progress, files.total(table), os.path.basename(path)))
        stack.enter_context(files._place(output))
        f = stack.enter_context(files.whole_file(output))
        size = files.write(f, table, metadata, **options, flags=_core.VERIFY, told=told)
        if most is not None and size > most:
            raise _NotSmaller
        now = os.stat(path)
        if any(getattr(before, x) != getattr(now, x) for x in ("st_ino", "st_dev", "st_size", "st_mtime_ns")):
            raise ValueError(f"{path} changed while it was packed: pack it again when no program writes to it")
    if remove:
        os.unlink(path)
    return size


def pack_folder(folder: Path, *, level: str | int = "default", threads: int = 1, references: bool = True, remove: bool = False,
                progress: Progress = None) -> dict[str, int | str]:
    """Packs each .safetensors file and each file of torch.save (.pt, .pth, .bin, .ckpt) in a folder and those below it to FILE.bsnap, as
    pack_file does. Returns, for each by its name in the folder, how many bytes its packed file has, or why it stays as it is: it is a link, has
    what only code makes, or would not become smaller. Folders keep their modification times. Trainer removes the checkpoints with the oldest.

    remove: True: each file is removed when its packed one is on the disk. A process that is killed leaves each file plain, packed, or both.
    progress: called with (bytes of files done, of how many). True: tqdm shows them.
    """
    folder = os.fsdecode(folder)
    found: dict[str, int | str] = {}
    names = [os.path.relpath(os.path.join(inner, name), folder) for inner, _, names in os.walk(folder, onerror=_raise) for name in sorted(names)
             if name.endswith((SAFETENSORS, *STATES)) and not name.startswith(".")]
    sizes = {name: os.lstat(os.path.join(folder, name)).st_size for name in names}
    with files.reports(progress, sum(sizes.values()), files._label(folder)) as told:
        for name, size in sizes.items():
            path = os.path.join(folder, name)
            times = os.stat(os.path.dirname(path))
            try:
                if os.path.islink(path):
                    raise ValueError("it is a link")
                options = {"base": None, "level": level, "threads": threads, "references": references}
                found[name] = _pack(path, path + ".bsnap", options, remove, None, size - 1)
            except _NotSmaller:
                found[name] = "it would not become smaller"
            except (ValueError, TypeError) as error:
                found[name] = str(error)
            finally:
                with contextlib.suppress(OSError):  # not its own folder, or the folder is gone
                    os.utime(os.path.dirname(path), ns=(times.st_atime_ns, times.st_mtime_ns))
            if told:
                told(size)
    return found


def _raise(error):
    raise error
