"""Checkpoints of torch.distributed.checkpoint: a storage of .bsnap files, one of each rank.

    dcp.save(state, storage_writer=BitsnapWriter("step-20", base="step-10"))         # async_save takes it, too
    dcp.load(state, storage_reader=BitsnapReader("step-20"))                         # on any number of ranks

A checkpoint is a directory: rank-0.bsnap, rank-1.bsnap, ... with the tensors, and checkpoint.bsnap, which says where each chunk is, and is
written last: without it there is no checkpoint. Every save has an id, which each of its files holds, so a file of another save is refused.
Nothing in these files is pickled but objects that JSON does not have; these are read as torch.load(weights_only=True) reads them.
"""
from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import io
import json
import os
import pickle
import re
import secrets
import stat
import warnings
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from . import _core, _level, compress, decompress_into, files, info
from ._arrays import NAMES, dtype_name, flat, strided
from .torch import _give, _take, new

CHECKPOINT = "checkpoint.bsnap"
_KEY = "bitsnap.dcp"        # key in the metadata of the checkpoint
_SAVE = "bitsnap.dcp.save"  # key in the metadata of a rank's file, for the id of the save


@dataclasses.dataclass(frozen=True)
class Stored:
    """Where a chunk or an object is: a tensor of a file, or here."""
    file: str | None = None
    name: str | None = None
    shape: list[int] | None = None         # of a quantized chunk, which is stored as the bytes of its frame
    certificate: dict[str, Any] | None = None   # of a quantized chunk: the measured errors
    value: object = None              # an object as JSON, as in bitsnap.torch.save


def _done(value):
    future = Future()
    future.set_result(value)
    return future


def _saved(value):
    data = io.BytesIO()
    torch.save(value, data)
    return data


def entries(results: list[Any]) -> list[Any]:
    """Results of a rank, as JSON has them; result() makes one of each again."""
    return [[r.index.fqn, r.index.offset, r.index.index, {k: v for k, v in vars(r.storage_data).items() if v is not None}] for r in results]


def result(entry: list[Any]) -> Any:
    """The WriteResult of an entry."""
    fqn, offset, index, stored = entry
    return WriteResult(dcp.MetadataIndex(fqn, offset, index), 0, Stored(**stored))


class _Chunk:
    """A tensor that is asked for when it is written, and not before."""

    def __init__(self, item, planner):
        self.nbytes = item.tensor_data.chunk.sizes.numel() * item.tensor_data.properties.dtype.itemsize
        self._item, self._planner = item, planner

    def __call__(self, begin=0, end=None):
        tensor = self._planner.resolve_data(self._item).detach()
        if end is None:
            end = self.nbytes
        else:
            strided(tensor)
        first, last, inner = files.elements_of(begin, end, tensor.element_size())
        if last - first < tensor.numel():  # only these are copied from a device
            tensor = tensor.reshape(-1)[first:last]
        return flat(tensor.to("cpu").contiguous().resolve_conj().resolve_neg())[inner]


class OtherSave(ValueError):
    """A file of another save than the checkpoint names."""


def _directory_id(path):
    """The first part of the id of every save into a directory, wherever its links lead."""
    return f"{_core.hash(os.fsencode(os.path.realpath(path))):016x}"


def _open(file, chain, threads=1):
    """The file of that name in the last of [(directory, id of its save or None), ...]. Each may be a delta against the one before it."""
    *older, (directory, save) = chain
    path = os.path.join(directory, file)
    with files._place(path), open(path, "rb") as f:
        opened = _core.File(f.fileno(), (), 1 if older else threads, files._folder_hint(path))
        if opened.kind == "delta":
            if not older:
                raise OtherSave(f"{path} is a delta, but the checkpoint names no base: it was left there by another save")
            try:
                opened = _core.File(f.fileno(), [_open(file, older)], threads, files._folder_hint(path))
            except FileNotFoundError as error:
                raise FileNotFoundError(error.errno, f"{path} is a delta and needs {error.filename}, which is not there: put that folder "
                                        "back where it was", error.filename) from None
        found = _save_id(opened)
    if save is not None and found != save:
        raise OtherSave(f"{path} {'is of the save ' + str(found) if found else 'has no id of a save'}; the checkpoint in {directory} is of the "
                        f"save {save}: restore the file that belongs to it, or load another checkpoint")
    return opened


def _save_id(file):
    return json.loads(file.metadata() or "{}").get(_SAVE)


class _Directory:
    """Where a checkpoint is written or read: what torch asks of both."""

    path: Any

    @property
    def checkpoint_id(self) -> Any:
        """The directory."""
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return isinstance(checkpoint_id, (str, os.PathLike)) and "://" not in os.fspath(checkpoint_id)

    def reset(self, checkpoint_id: Any = None) -> None:
        self.path = checkpoint_id or self.path


class BitsnapWriter(_Directory, StorageWriter):
    """path: the directory.
    base: the directory of an earlier checkpoint. The new one is a delta against it, and is read with it and its bases.
        An incomplete checkpoint is not used as a base.
    anchor: the number of checkpoints in a chain; the next one has no base.
    bounds: {pattern of names: relative error} for chunks of floats that may be lossy, as {"optim.state.*.exp_avg": 0.01}.
        The first match counts.
    references: False: no chunk is coded against another of its rank that is equal, or equal after rounding one of them.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, base: str | os.PathLike[str] | None = None, anchor: int = 10,
                 bounds: dict[str, float] | None = None, level: str | int = "default", threads: int = 1, references: bool = True) -> None:
        _level(level)
        self.path = path
        self._base, self._anchor, self._bounds, self._level, self._threads = base, anchor, bounds or {}, level, threads
        self._references = references
        self._chain: list[Any] = []
        self._left: dict[str, Any] = {}

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **named: Any) -> None:
        if not named.get("use_collectives", True):
            raise ValueError("checkpoints without collectives are not supported")

    def prepare_local_plan(self, plan: Any) -> Any:
        if not getattr(plan, "usable", True):  # it would repeat the base of the previous checkpoint
            raise ValueError("plans that the planner has cached are not supported: enable_plan_caching=False")
        os.makedirs(self.path, exist_ok=True)
        if os.path.exists(os.path.join(self.path, CHECKPOINT)):
            raise FileExistsError(f"{self.path} has a checkpoint already, which stays; remove it first")
        return plan

    def prepare_global_plan(self, plans: Any) -> Any:
        self._chain = []
        if self._base is not None and os.path.exists(os.path.join(self._base, CHECKPOINT)):
            base = os.path.realpath(self._base)  # the target of a link may change later
            with _damaged(base):
                chain = _chain(base, _read(base))
            self._chain = chain if len(chain) < self._anchor else []
        self._chain.append((os.path.realpath(self.path), f"{_directory_id(self.path)}-{secrets.token_hex(8)}"))
        names = [f"rank-{i}.bsnap" for i in range(len(plans))]
        self._left = self._left_over(names)
        return [dataclasses.replace(plan, storage_data=(name, self._chain)) for name, plan in zip(names, plans)]

    def _left_over(self, names):
        """Files of ranks in the directory that this save will not overwrite, and the ids of their saves, None where they cannot be read."""
        left = {}
        for name in sorted(os.listdir(self.path)):
            if re.fullmatch(r"rank-\d+\.bsnap", name) and name not in names:
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    left[name] = None
                    left[name] = _save_id(_open(name, [*self._chain[:-1], (self.path, None)]))
        if left:
            warnings.warn(f"{self.path} has files of an earlier save that did not end: {', '.join(left)}; those whose ids are of this "
                          "directory are removed when this save is whole")
        return left

    def _remove_left_over(self):
        """Removes what _left_over found, if it is still the same, of an earlier save into this directory, and of this user."""
        for name, save in self._left.items():
            path = os.path.join(self.path, name)
            with contextlib.suppress(OSError, ValueError, AttributeError):
                status = os.lstat(path)
                if (save and save.startswith(_directory_id(self.path) + "-") and stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
                        and _save_id(_open(name, [*self._chain[:-1], (self.path, None)])) == save):
                    os.unlink(path)
                    continue
            if os.path.lexists(path):
                warnings.warn(f"{path} is no part of the checkpoint and stays: it cannot be told whose it is. Remove it if you know it")

    def write_data(self, plan: Any, planner: Any) -> Any:
        file, chain = plan.storage_data
        *older, (_, save) = chain
        tensors: list[Any] = []
        results = []
        for item in plan.items:
            if item.type == WriteItemType.BYTE_IO:
                data = planner.resolve_data(item)
                stored, size = self._object(item, file, data, tensors), data.getbuffer().nbytes
            else:
                stored, size = self._tensor(item, file, planner, tensors)
            results.append(WriteResult(item.index, size, stored))
        if tensors:
            base = self._open_base(file, older)
            files.write(os.path.join(self.path, file), files.order(tensors), {_SAVE: save}, self._level, self._threads, base,
                        references=self._references)
        return _done(results)

    @staticmethod
    def _open_base(file, chain):
        """The file of this rank in the base; none if there is no such rank, or if it is not what the base says it is."""
        try:
            return _open(file, chain) if chain and os.path.exists(os.path.join(chain[-1][0], file)) else None
        except (FileNotFoundError, OtherSave) as error:
            warnings.warn(f"{file} is written without a base: {error}")
            return None

    def _tensor(self, item, file, planner, tensors):
        fqn, chunk, dtype = item.index.fqn, item.tensor_data.chunk, item.tensor_data.properties.dtype
        name = fqn if chunk.sizes == item.tensor_data.size else f"{fqn}@{','.join(map(str, chunk.offsets))}"
        bound = next((bound for pattern, bound in self._bounds.items() if fnmatch.fnmatchcase(fqn, pattern)), None)
        memory, shape = _Chunk(item, planner), list(chunk.sizes)
        if bound is None or not dtype.is_floating_point or not memory.nbytes:
            tensors.append((name, _dtype(fqn, dtype), shape, memory))
            return Stored(file, name), memory.nbytes
        frame = compress(memory(), _dtype(fqn, dtype), level=self._level, threads=self._threads, max_relative_error=bound,
                         columns=shape[-1] if len(shape) > 1 else 0)
        tensors.append((name, "U8", [len(frame)], frame))
        return Stored(file, name, shape, info(frame)["certificate"]), len(frame)

    def _object(self, item, file, data, tensors):
        """As JSON where that gives the same bytes back, else as the bytes, if no code is in them."""
        name, parts = item.index.fqn, {}
        try:
            data.seek(0)
            value = torch.load(data, weights_only=True)
        except pickle.UnpicklingError as error:
            raise TypeError(f"{name} {_unsafe(data, error)}; code is not stored") from error
        try:
            value = json.loads(json.dumps(_take(value, "", parts)))
            if not parts and _saved(_give(value, None)).getbuffer() == data.getbuffer():
                return Stored(value=value)
        except TypeError:
            pass
        tensors.append((name, "U8", [data.getbuffer().nbytes], data.getbuffer()))
        return Stored(file, name)

    def finish(self, metadata: Any, results: Any) -> None:
        metadata.storage_data = {r.index: r.storage_data for rank in results for r in rank}
        metadata.storage_meta = self.storage_meta()
        state = {fqn: None if isinstance(x, dcp.BytesStorageMetadata) else
                 [str(x.properties.dtype).removeprefix("torch."), x.size, x.properties.requires_grad, [[c.offsets, c.sizes] for c in x.chunks]]
                 for fqn, x in metadata.state_dict_metadata.items()}
        storage = [entry for rank in results for entry in entries(rank)]
        directories, saves = zip(*self._chain)
        whole = {"version": 1, "bases": [os.path.relpath(directory, directories[-1]) for directory in directories[:-1]], "saves": saves,
                 "planner": _take(metadata.planner_data, "", {}), "state": state, "storage": storage}
        files.write(os.path.join(self.path, CHECKPOINT), [], {_KEY: json.dumps(whole, separators=(",", ":"))}, "default", 1, None)
        files._sync(os.path.dirname(os.path.abspath(self.path)))
        self._remove_left_over()

    def storage_meta(self) -> Any:
        return dcp.StorageMeta(checkpoint_id=self.path)


def _dtype(name, dtype):
    try:
        return NAMES[str(dtype).removeprefix("torch.")]
    except KeyError:
        raise TypeError(f"{name} has elements of {dtype}, which are not supported") from None


def _unsafe(data, error):
    """Why an object cannot be read, and what to do."""
    data.seek(0)
    try:
        names = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(data))
    except Exception:  # bytes that are no pickle
        names = []
    if not names:
        return f"cannot be read without running code: {error}"
    return (f"holds {', '.join(names)} and cannot be read without running code: keep tensors, numbers, strings, lists and dictionaries of it, or "
            f"call torch.serialization.add_safe_globals([{', '.join(names)}]) in every process that saves or loads it, if you trust it")


def _chain(path, whole):
    """[(directory, id of its save), ...] of a checkpoint, its own directory last. Ids are None in checkpoints of 1.0.0-rc1."""
    directories = [os.path.join(path, directory) for directory in whole["bases"]] + [path]
    saves = whole.get("saves", [None] * len(directories))
    if len(saves) != len(directories) or not all(isinstance(save, (str, type(None))) for save in saves):
        raise TypeError
    return list(zip(directories, saves))


def _read(path):
    name = os.path.join(path, CHECKPOINT)
    with files.safe_open(name) as file, _damaged(path):
        text = (file.metadata() or {}).get(_KEY)
        if text is not None:
            whole = json.loads(text)
            if whole["version"] == 1:
                return whole
    raise ValueError(f"{name} is no checkpoint of torch.distributed.checkpoint that is known here")


@contextlib.contextmanager
def _damaged(path):
    try:
        yield
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{os.path.join(path, CHECKPOINT)}: what the checkpoint is made of is damaged") from error


def certificates(path: str | os.PathLike[str]) -> dict[str, list[dict[str, Any]]]:
    """What was measured when chunks were quantized: {name: [certificate, ...]}."""
    found: dict[str, list[dict[str, Any]]] = {}
    for fqn, _, _, stored in _read(path)["storage"]:
        if "certificate" in stored:
            found.setdefault(fqn, []).append(stored["certificate"])
    return found


class BitsnapReader(_Directory, StorageReader):
    """Reads what BitsnapWriter wrote, each rank the blocks that it wants (of chunks that are quantized: these chunks)."""

    def __init__(self, path: str | os.PathLike[str] | None = None, *, threads: int = 1) -> None:
        self.path = path
        self._threads = threads
        self._chain: list[Any] = []
        self._storage: dict[Any, Any] = {}
        self._state: dict[str, Any] = {}

    def read_metadata(self) -> Any:
        whole = _read(self.path)
        with _damaged(self.path):
            self._chain = _chain(self.path, whole)
            state = {fqn: dcp.BytesStorageMetadata() if x is None else self._tensor(*x) for fqn, x in whole["state"].items()}
            storage = {x.index: x.storage_data for x in map(result, whole["storage"])}
            planner = _give(whole["planner"], None)
        if self._chain[-1][1] is None:
            warnings.warn(f"{self.path} was saved by 1.0.0-rc1, which gave saves no ids: whether its files are all of one save is not known. "
                          "Save it anew")
        return dcp.Metadata(state, planner, storage, dcp.StorageMeta(checkpoint_id=self.path))

    @staticmethod
    def _tensor(dtype, size, requires_grad, chunks):
        if dtype not in NAMES:
            raise KeyError(dtype)
        properties = dcp.TensorProperties(dtype=getattr(torch, dtype), requires_grad=requires_grad)
        return dcp.TensorStorageMetadata(properties, torch.Size(size), [dcp.ChunkStorageMetadata(*map(torch.Size, chunk)) for chunk in chunks])

    def set_up_storage_reader(self, metadata: Any, is_coordinator: bool) -> None:
        self._storage, self._state = metadata.storage_data, metadata.state_dict_metadata

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def prepare_global_plan(self, plans: Any) -> Any:
        return plans

    def read_data(self, plan: Any, planner: Any) -> Any:
        opened = None, None
        for request in sorted(plan.items, key=lambda r: (self._storage[r.storage_index].file or "", r.storage_index.fqn)):
            stored = self._storage[request.storage_index]
            if stored.file != opened[0]:
                opened = stored.file, self._open(stored.file)
            path = os.path.join(self.path, stored.file or CHECKPOINT)
            with files._place(path, request.storage_index.fqn):
                if request.type == LoadItemType.BYTE_IO:
                    planner.load_bytes(request, self._object(stored, opened[1]))
                else:
                    target = planner.resolve_tensor(request).detach()
                    self._part(request, stored, opened[1], target)
                    planner.commit_tensor(request, target)
        return _done(None)

    def _open(self, file):
        if os.path.basename(file) != file:
            raise ValueError(f"{os.path.join(self.path, CHECKPOINT)}: {file!r} is no name of a file in this directory")
        return _open(file, self._chain, self._threads)

    def _compare(self, index, dtype, shape, target):
        """What the checkpoint says of a chunk, what its file holds, and what it is loaded into."""
        said = self._state[index.fqn]
        chunk = next((c for c in said.chunks if index.offset is None or c.offsets == index.offset), None)
        wanted = _dtype(index.fqn, said.properties.dtype), list(chunk.sizes) if chunk else None
        if (dtype, list(shape)) != wanted:
            raise ValueError(f"{index.fqn} is {dtype} of {list(shape)} in its file; the checkpoint says {wanted[0]} of {wanted[1]}")
        stored = said.properties.dtype
        if stored != target.dtype and not (stored.is_floating_point and target.dtype.is_floating_point):
            warnings.warn(f"{index.fqn} is stored as {stored} and is converted to {target.dtype}, as torch's copy_ converts: load it into a "
                          f"tensor of {stored} if that is not what you want")

    @staticmethod
    def _object(stored, file):
        if stored.file is None:
            data = _saved(_give(stored.value, None))
        else:
            data = io.BytesIO(file.read(stored.name))
            try:  # the planner would unpickle it, and run its code
                torch.load(data, weights_only=True)
            except Exception as error:  # torch raises many types for bytes that are no pickle
                raise ValueError(f"{stored.file}: {stored.name} {_unsafe(data, error)}") from error
        data.seek(0)
        return data

    def _part(self, request, stored, file, target):
        """The elements from the first to the last that are wanted lie in one run; those between are skipped when they are copied."""
        name, dtype, shape, *_ = file.find(stored.name)
        frame = None
        if stored.shape is not None:
            frame, shape = file.read(name), stored.shape
            dtype = info(frame)["dtype"]
            if info(frame)["count"] != torch.Size(shape).numel():
                raise ValueError(f"{name}: a frame of {info(frame)['count']} elements in a chunk of shape {shape}")
        self._compare(request.storage_index, dtype, shape, target)
        start, size = request.storage_offsets, request.lengths
        if len(start) != len(shape) or any(a < 0 or n < 0 or a + n > s for a, n, s in zip(start, size, shape)) or target.shape != size:
            raise ValueError(f"{name}: {list(size)} elements from {list(start)} on, wanted as {list(target.shape)}, in a chunk of shape {list(shape)}")
        if 0 in size:
            return
        strides = [torch.Size(shape[i + 1:]).numel() for i in range(len(shape))]
        count = sum((n - 1) * s for n, s in zip(size, strides)) + 1
        first = sum(a * s for a, s in zip(start, strides))
        direct = (count == size.numel() and target.is_contiguous() and target.device.type == "cpu" and dtype_name(target) == dtype
                  and not target.is_conj() and not target.is_neg())
        tensor, memory = (target, flat(target)) if direct else new(dtype, (count,))
        if frame is None:
            file.read(name, first, count, memory)
        else:
            decompress_into(frame, memory, first=first, count=count)
        if not direct:
            target.copy_(tensor.as_strided(size, strides))
