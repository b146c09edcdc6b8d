"""Files and folders of torch tensors, and whole states: what torch.save takes, but no code.

    bitsnap.torch.save({"model": model.state_dict(), "step": 1}, "state.bsnap")
    state = bitsnap.torch.load("state.bsnap")

A state is made of tensors, dictionaries, lists, tuples, strings and numbers. Nothing in a file is run when it is read.
"""
from __future__ import annotations

import collections
import json
import math
import os
import tempfile
from collections.abc import Mapping
from typing import Any

import torch

from . import files
from ._core import Error
from ._arrays import DTYPES, PAIRS, dtype_name, flat, strided
from .files import Bases, Path, Progress, _label

__all__ = ["load", "load_file", "save", "save_file", "save_folder"]


def _kind(name):
    """The dtype of torch."""
    kind = getattr(torch, PAIRS.get(name) or DTYPES.get(name, ("", ""))[1], None)
    if kind is None:
        raise TypeError(f"this torch has no tensors of {name}")
    return kind


def new(name: str, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """A tensor, and its memory as bytes."""
    tensor = torch.empty(shape, dtype=_kind(name))
    return tensor, flat(tensor)


class _Mapped:
    """Makes tensors in a temporary file, which the system can write out, instead of in memory alone. Its disk space is taken at once."""

    def __init__(self, size):
        self._used = 0
        with tempfile.NamedTemporaryFile(prefix="bitsnap-") as f:
            os.posix_fallocate(f.fileno(), 0, max(size, 1))
            self._storage = torch.UntypedStorage.from_file(f.name, True, size)

    def new(self, name, shape):
        tensor = torch.empty(0, dtype=_kind(name)).set_(self._storage, self._used // _kind(name).itemsize, shape)
        self._used += -(-tensor.nbytes // 64) * 64
        return tensor, flat(tensor)

    @staticmethod
    def move(tensor, device):
        return move(tensor, device)


def move(tensor: Any, device: Any) -> Any:
    """The tensor in the memory of a device."""
    return tensor if str(device) == "cpu" else tensor.to(device)


def _table(tensors):
    return [files.entry(name, _host, tensor) for name, tensor in tensors.items()]


def _host(tensor):
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"a {type(tensor).__name__}, and no tensor of torch")
    strided(tensor)
    dtype, shape = dtype_name(tensor), tuple(tensor.shape)
    if dtype in PAIRS:
        if not shape:
            raise TypeError(f"a {tensor.dtype} without dimensions has no shape in pairs: reshape(1) has one")
        shape = *shape[:-1], 2 * shape[-1]
    return dtype, shape, flat(tensor.detach().resolve_conj().resolve_neg().to("cpu").contiguous())


def save_file(tensors: Mapping[str, Any], filename: Path, metadata: Mapping[str, str] | None = None, *, base: Any = None,
              level: str | int = "default", threads: int = 1, sha256: bool = False, references: bool = True, progress: Progress = None) -> int:
    """Writes a dictionary of tensors, as safetensors.torch.save_file does, and returns the size of the file. The file appears as a whole or
    not at all. Tensors that share memory are two tensors when they are read; save() keeps that.

    metadata: strings to store in the file.
    base: the path of an earlier file or folder, or a chain of paths, each against the one before. The file is then a delta,
        and is read with all of them.
    level: "fast", "default" or "best".
    sha256: True: the file also holds the SHA-256 of the .safetensors file (FORMAT.md, 8.3). bitsnap.test compares it.
    references: False: none of the tensors is coded against an earlier one that is equal, or equal after rounding one of them.
    progress: called from time to time with (bytes done, bytes in all) of the tensors. An exception ends the call.
        True: tqdm shows them.
    """
    table = files.order(_table(tensors))
    with files.reports(progress, files.total(table), _label(filename)) as told:
        size: int = files.write(filename, table, metadata, level, threads, base, sha256=sha256, told=told, references=references)
    return size


def save_folder(tensors: Mapping[str, Any], folder: Path, metadata: Mapping[str, str] | None = None, *, max_shard_size: int | str = "5GB",
                base: Any = None, level: str | int = "default", threads: int = 1, references: bool = True,
                progress: Progress = None) -> int:
    """Writes a dictionary of tensors to a folder, as transformers names the shards of a model and their index, each packed; returns the size
    of the files. The folder may have other files, but no tensors. Shards get their names when all are whole, the index last.

    max_shard_size: bytes of tensors in a file, as a number or as "5GB".
    base: an earlier folder or file. The new folder holds the differences to it, and needs it to be read. A base folder beside the new one is
        found.
    metadata, level, references, progress: as in save_file.
    """
    table = _table(tensors)
    with files.reports(progress, files.total(table), _label(folder)) as told:
        return files.write_folder(folder, table, metadata, max_shard_size, level, threads, base, told, references)


def load_file(filename: Path, device: Any = "cpu", *, base: Bases = None, step: int | str | None = None, threads: int = 1,
              progress: Progress = None) -> dict[str, Any]:
    """All tensors of a file, a folder, or a step of a store, by their names. bitsnap.File explains these, base and step.

    progress: called after each tensor with (bytes done, of how many); an exception ends the call. True: tqdm shows them.
    """
    with files.safe_open(filename, "pt", device, base=base, step=step, threads=threads) as f:
        return f.get_tensors(progress=progress)


# The structure of a state, as JSON in the metadata of its file. Each value is a string, a number, null, or an object of one member:
#     {"t": name of a tensor}        {"p": [name, 1 if it needs gradients, 1 if it is a Parameter]}
#     {"d": [[key, value], ...]}     {"o": the same of an OrderedDict}     {"s": [what is in its _metadata, as state_dict() has it, the same]}
#     {"l": [...]}     {"u": [...]} (a tuple)     {"z": [...]} (a torch.Size)
#     {"n": [real, imaginary]}     {"y": name of a dtype}     {"v": name of a device}
# Tensors that share the same memory, with the same elements, have the same name.
STRUCTURE = "bitsnap.structure"
DEPTH = 100  # most nested dictionaries and lists: reading each takes some nested Python calls


def _take(value, path, tensors, depth=0, known=None):
    """`known`: the name of each tensor, by its place in memory. Tied tensors get one name."""
    if depth > DEPTH:
        raise ValueError(f"{path} is in more than {DEPTH} dictionaries and lists, or the state contains itself")
    if isinstance(value, torch.Tensor):
        name = path if known is None else known.setdefault(_identity(value, path), path)
        tensors.setdefault(name, value)
        parameter = isinstance(value, torch.nn.Parameter)
        return {"p": [name, int(value.requires_grad), int(parameter)]} if parameter or value.requires_grad else {"t": name}
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, (str, int, float, bool, type(None))):
                raise TypeError(f"{path or 'the state'} has the key {key!r}, a {type(key).__name__}; keys are strings and numbers")
        pairs = [[key, _take(x, _join(path, key, tensors), tensors, depth + 1, known)] for key, x in value.items()]
        if not isinstance(value, collections.OrderedDict):
            return {"d": pairs}
        more = getattr(value, "_metadata", None)
        return {"o": pairs} if more is None else {"s": [_take(more, f"{path}._metadata", tensors, depth + 1, known), pairs]}
    if isinstance(value, (list, tuple)):
        kind = "l" if isinstance(value, list) else "z" if isinstance(value, torch.Size) else "u"
        return {kind: [_take(x, _join(path, i, tensors), tensors, depth + 1, known) for i, x in enumerate(value)]}
    if isinstance(value, complex):
        return {"n": [value.real, value.imag]}
    if isinstance(value, (torch.dtype, torch.device)):
        return {"y": str(value).partition(".")[2]} if isinstance(value, torch.dtype) else {"v": str(value)}
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    raise TypeError(f"{path or 'the state'} is a {type(value).__name__}: states have tensors, dictionaries, lists, strings and numbers; "
                    "code is not stored. Convert it, as numpy's by item(), tolist() or torch.from_numpy(), or leave it out")


def _identity(tensor, path):
    """Where its elements are in memory, the same of tied tensors; of what has none the path."""
    odd = type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.is_nested or tensor.layout != torch.strided or tensor.is_meta
    if odd or not tensor.numel():
        return path
    return (tensor.device, tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.dtype, tuple(tensor.shape), tensor.stride(),
            tensor.is_conj(), tensor.is_neg())


def _join(path, key, tensors):
    name = f"{path}.{key}" if path else str(key)
    while name in tensors or name == "__metadata__":  # 1 and "1" in one dictionary; files have no tensor of that name
        name += "'"
    return name


def _give(value, read):
    if not isinstance(value, (dict, list)):
        return value
    (kind, x), = value.items()
    if kind == "t":
        return read(x)
    if kind == "v":
        try:
            return torch.device(x)
        except RuntimeError as error:
            raise ValueError(f"no device: {error}") from None
    if kind == "y":
        return {str(v): v for v in vars(torch).values() if isinstance(v, torch.dtype)}["torch." + x]
    if not isinstance(x, list):
        raise TypeError
    if kind == "p":
        name, gradients, parameter = x
        tensor = read(name)
        return torch.nn.Parameter(tensor, bool(gradients)) if parameter else tensor.requires_grad_(bool(gradients))
    if kind == "d":
        return {key: _give(v, read) for key, v in x}
    if kind in "os":
        state = collections.OrderedDict((key, _give(v, read)) for key, v in (x if kind == "o" else x[1]))
        if kind == "s":
            state._metadata = _give(x[0], read)
        return state
    if kind in "luz":
        return {"l": list, "u": tuple, "z": torch.Size}[kind](_give(v, read) for v in x)
    if kind != "n":
        raise TypeError
    return complex(*x)


def save(state: Any, filename: Any, *, base: Any = None, level: str | int = "default", threads: int = 1, sha256: bool = False,
         references: bool = True, progress: Progress = None) -> int:
    """Writes a state, as model.state_dict() or optimizer.state_dict() are, whatever they are nested in. Returns how many bytes that takes.

    filename: a path, where the file appears as a whole or not at all, or an open binary file.
    base: the path of an earlier state, or a chain of paths; the file then is a delta against it, which needs it to be read.
    sha256, references, progress: as in save_file.

    Kept: tensors with their dtype, whether they are Parameters, need gradients, or are tied; dictionaries, OrderedDicts with their _metadata,
    lists, tuples, torch.Size, dtypes, devices, strings, numbers, None. Not kept: strides, devices of tensors, the memory that different parts
    of a tensor share, subclasses of dictionaries, lists and tuples. What else there is is a TypeError that says where in the state it is.
    """
    table, metadata = table_of(state)
    with files.reports(progress, files.total(table), _label(filename)) as told:
        to = None if hasattr(filename, "write") else filename
        made = files.write(to, table, metadata, level, threads, base, sha256=sha256, told=told, references=references)
    if to is not None:
        size: int = made
        return size
    filename.write(made)
    return len(made)


def table_of(state: Any) -> tuple[list[Any], dict[str, str]]:
    """The tensors of a state, as files.write takes them, and the metadata that say how they make it up."""
    tensors: dict[str, Any] = {}
    structure = _take(state, "", tensors, known={})
    return files.order(_table(tensors)), {STRUCTURE: json.dumps(structure, separators=(",", ":"))}


def load(filename: Any, map_location: Any = None, *, mmap: bool = False, base: Bases = None, step: int | str | None = None,
         threads: int = 1, progress: Progress = None) -> Any:
    """The state that was saved. Nothing in the file is run. Of files without a state, and of folders: their tensors by their names.

    filename: a path, as bitsnap.File takes it with base and step, or an open binary file.
    map_location: the device where tensors go, or {"cpu": device}; without it the host's memory, wherever they were when they were saved.
    mmap: True: tensors are in a temporary file in tempfile.gettempdir(), which the system can write out, so they may be larger than the memory.
    progress: as in load_file.
    """
    if callable(map_location):
        raise TypeError("map_location is a function: files do not say where tensors were; give a device")
    device = map_location.get("cpu", "cpu") if isinstance(map_location, dict) else map_location or "cpu"
    with files.safe_open(filename, "pt", device, base=base, step=step, threads=threads) as f:
        if mmap:
            f._family = _Mapped(sum(-(-math.prod(shape) * _kind(dtype).itemsize // 64) * 64 for dtype, shape in map(f._find, f.offset_keys())))
        structure = (f.metadata() or {}).get(STRUCTURE)
        if structure is None:
            return f.get_tensors(progress=progress)
        tensors = f.get_tensors(progress=progress)
        given: set[str] = set()

        def read(name):
            """The second of tied tensors is another one in the same memory."""
            if name in given:
                return tensors[name].detach()
            given.add(name)
            return tensors[name]

        try:
            return _give(json.loads(structure), read)
        except Error:
            raise
        except (ValueError, TypeError, AttributeError, KeyError, IndexError, RecursionError) as error:
            raise ValueError(f"{f._file.name}: what the state is made of is damaged") from error
