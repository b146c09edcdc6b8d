"""Finds X.bsnap where X is asked for and only X.bsnap is there: for safetensors, torch.load, and the libraries that load by them.

    import bitsnap.auto                                      # before or after transformers, diffusers or accelerate

    model = AutoModel.from_pretrained("folder")              # with model.safetensors.bsnap, or shards X.safetensors.bsnap and their index

X ends with .safetensors, .pt, .pth, .bin or .ckpt. Where X is there, all is as before. Importing this replaces, in every module that has them:

- safetensors.safe_open, which load_file and load_model of safetensors call, and torch.load, if torch is installed
- os.path.exists, os.path.isfile, pathlib.Path.exists and pathlib.Path.is_file, which libraries ask before they load X

X is found by these alone: open() and os.listdir() do not find it. undo() puts everything back. `python -m bitsnap run SCRIPT` does the same for a
program that does not import this module.
"""
from __future__ import annotations

import functools
import importlib.util
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import safetensors

from . import files
from .pack import SAFETENSORS, STATES

__all__ = ["enable", "undo"]

_THREADS = min(4, os.cpu_count() or 1)  # for each file: a model may have hundreds, and libraries open them all
_replaced: list[tuple[Any, Any]] = []  # (the original, its replacement)


def _packed(path, exists):
    """The packed file of a path, if there is one."""
    try:
        path = os.fspath(path)
        packed = path + (".bsnap" if isinstance(path, str) else b".bsnap")
        return packed if os.fsdecode(path).endswith((SAFETENSORS, *STATES)) and exists(packed) else None
    except TypeError:  # a descriptor, or a file object
        return None


def _there(original, exists):
    """Instead of a function that says whether a path is there."""

    @functools.wraps(original)
    def there(path, *args, **named):
        return original(path, *args, **named) or _packed(path, exists) is not None

    return there


def _opener(original, keyword, exists, packed_open):
    """Instead of a function that opens a path, its first argument, which may be given by this keyword."""

    @functools.wraps(original)
    def opener(*args, **named):
        try:
            return original(*args, **named)
        except FileNotFoundError:  # no check first: the file may vanish between a check and its use
            packed = _packed(args[0] if args else named.pop(keyword, None), exists)
            if packed is None:
                raise
        return packed_open(packed, *args[1:], **named)

    return opener


def _safe_open(path, framework="pt", device="cpu", *, backend=None):
    return files.safe_open(path, framework, device, threads=_THREADS)


def _load(path, map_location=None, *args, **named):
    from . import torch as ours

    return ours.load(path, map_location, threads=_THREADS)


def enable() -> None:
    """Finds packed files from now on. Importing the module has done this."""
    if _replaced:
        return
    exists, isfile = os.path.exists, os.path.isfile
    pairs = [(exists, _there(exists, exists)), (isfile, _there(isfile, exists)),
             (safetensors.safe_open, _opener(safetensors.safe_open, "filename", exists, _safe_open))]
    if importlib.util.find_spec("torch"):
        import torch

        pairs.append((torch.load, _opener(torch.load, "f", exists, _load)))
    _replace(pairs)
    for name in ("exists", "is_file"):
        original = getattr(pathlib.Path, name)
        setattr(pathlib.Path, name, _there(original, exists))
        _paths.append((name, original))
    _replaced.extend(pairs)


_paths: list[tuple[str, Callable[..., Any]]] = []  # methods of pathlib.Path: (name, the original)


def undo() -> None:
    """Puts everything back. What was opened before stays open."""
    _replace([(new, old) for old, new in _replaced])
    for name, original in _paths:
        setattr(pathlib.Path, name, original)
    _replaced.clear()
    _paths.clear()


def _replace(pairs):
    """In every module, as `from safetensors import safe_open` leaves it there."""
    instead = {id(old): new for old, new in pairs}
    for module in tuple(sys.modules.values()):
        members = getattr(module, "__dict__", None)
        for name, value in tuple(members.items()) if isinstance(members, dict) else ():
            if id(value) in instead:
                members[name] = instead[id(value)]


enable()
