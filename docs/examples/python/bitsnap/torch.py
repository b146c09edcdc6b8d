"""Files of torch tensors, and whole states: dictionaries in dictionaries, of an optimizer, too, without pickled code."""
import json

import torch

from . import files
from ._core import Error
from ._arrays import DTYPES, PAIRS, dtype_name, flat, strided


def new(name, shape):
    """A tensor, and its memory as bytes."""
    kind = getattr(torch, PAIRS.get(name) or DTYPES[name][1], None)
    if kind is None:
        raise TypeError(f"this torch has no tensors of {name}")
    tensor = torch.empty(shape, dtype=kind)
    return tensor, flat(tensor)


def move(tensor, device):
    return tensor if str(device) == "cpu" else tensor.to(device)


def _table(tensors):
    return files.order([files.entry(name, _host, tensor) for name, tensor in tensors.items()])


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


def save_file(tensors, filename, metadata=None, *, base=None, level="default", threads=1):
    """Writes a dictionary of tensors, as safetensors.torch.save_file does. The file appears as a whole or not at all. `base`: the path of
    an earlier file; the new one then is a delta against it. Returns its size. Tensors that share memory are written twice."""
    return files.write(filename, _table(tensors), metadata, level, threads, base)


def load_file(filename, device="cpu", *, base=None, threads=1):
    """All tensors of a file, by their names."""
    with files.safe_open(filename, "pt", device, base=base, threads=threads) as f:
        return {name: f.get_tensor(name) for name in f.offset_keys()}


# What a state is made of, as JSON in the metadata of its file: {"t": name of a tensor}, {"d": [[key, value], ...]}, {"l": [...]},
# {"u": [...]} (a tuple), {"n": [real, imaginary]}; all else stands for itself.
STRUCTURE = "bitsnap.structure"
DEPTH = 100  # most dictionaries and lists inside each other: reading takes some calls of Python for each


def _take(value, path, tensors, depth=0):
    if depth > DEPTH:
        raise ValueError(f"{path} is in more than {DEPTH} dictionaries and lists, or the state contains itself")
    if isinstance(value, torch.Tensor):
        tensors[path] = value
        return {"t": path}
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, (str, int, float, bool, type(None))):
                raise TypeError(f"{path or 'the state'} has the key {key!r}, a {type(key).__name__}; keys are strings and numbers")
        return {"d": [[key, _take(x, _join(path, key, tensors), tensors, depth + 1)] for key, x in value.items()]}
    if isinstance(value, (list, tuple)):
        return {"l" if isinstance(value, list) else "u": [_take(x, _join(path, i, tensors), tensors, depth + 1) for i, x in enumerate(value)]}
    if isinstance(value, complex):
        return {"n": [value.real, value.imag]}
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    raise TypeError(f"{path or 'the state'} is a {type(value).__name__}: states have tensors, dictionaries, lists, strings and numbers; "
                    "code is not stored. Convert it, as numpy's by item(), tolist() or torch.from_numpy(), or leave it out")


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
    if not isinstance(x, list):
        raise TypeError
    if kind == "d":
        return {key: _give(v, read) for key, v in x}
    if kind in "lu":
        return (list if kind == "l" else tuple)(_give(v, read) for v in x)
    return complex(*x)


def save(state, filename, *, base=None, level="default", threads=1):
    """Writes a state, as model.state_dict() or optimizer.state_dict() are, whatever they are nested in. Returns the file's size."""
    tensors = {}
    structure = json.dumps(_take(state, "", tensors), separators=(",", ":"))
    return save_file(tensors, filename, {STRUCTURE: structure}, base=base, level=level, threads=threads)


def load(filename, device="cpu", *, base=None, threads=1):
    """The state that was saved. Nothing in the file is run. Of a file without one: its tensors by their names."""
    with files.safe_open(filename, "pt", device, base=base, threads=threads) as f:
        structure = (f.metadata() or {}).get(STRUCTURE)
        if structure is None:
            return {name: f.get_tensor(name) for name in f.offset_keys()}
        try:
            return _give(json.loads(structure), f.get_tensor)
        except Error:
            raise
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise ValueError(f"{filename}: what the state is made of is damaged") from error
