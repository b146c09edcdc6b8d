"""python -m bitsnap pack|unpack FILE ...: packs what torch.save wrote, and makes it again."""
from __future__ import annotations

import argparse
import os
import pickle
import re
import sys
import zipfile


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


def _read(path):
    """The state of a file of torch.save. Nothing in it is run."""
    import torch

    with open(path, "rb") as f:
        if f.read(9)[8:] == b"{":
            raise ValueError(f"{path} is a .safetensors file: `bitsnap compress` packs it")
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except MemoryError:
        raise
    except Exception as error:  # of a file that is cut, torch raises what the system says of a seek before its start, among others
        try:
            unsafe = torch.serialization.get_unsafe_globals_in_checkpoint(path)
            places = _places(path, unsafe)
        except Exception:  # whatever is made of bytes that are no such file; only files that are archives have places
            unsafe, places = re.findall(r"GLOBAL ([\w.]+)", str(error)), []
        if not unsafe:
            raise ValueError(f"{path} is no file of torch.save, or it is damaged") from None
        what = ", ".join(f"{place} is made by {name}" for place, name in places) or f"it holds {', '.join(sorted(unsafe))}"
        raise ValueError(f"{path} cannot be read without running code: {what}. Where you trust it, load it, replace that by tensors, numbers, "
                         "strings, lists and dictionaries or leave it out, and save it anew") from None


def _pack(path, output, options):
    from . import torch

    return torch.save(_read(path), output, base=options.base, level=options.level, threads=options.threads)


def _unpack(path, output, options):
    import torch

    from . import torch as ours
    from .files import whole_file

    state = ours.load(path, base=options.base, threads=options.threads)
    with whole_file(output) as f:
        torch.save(state, f)
    return os.path.getsize(output)


def _options(arguments):
    parser = argparse.ArgumentParser("python -m bitsnap", description="Packs what torch.save wrote, and makes it again. Nothing in a file is run.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="pack|unpack")
    for name, text in (("pack", "packs each FILE of torch.save (.pt, .pth, .bin, .ckpt) to FILE.bsnap"),
                       ("unpack", "makes the file of torch.save again from each FILE, whose name ends with .bsnap")):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("files", nargs="+", metavar="FILE")
        command.add_argument("-o", "--output", help="of one FILE: the name of what is written")
        command.add_argument("-b", "--base", help="of a delta: the packed state that it is against")
        command.add_argument("-f", "--force", action="store_true", help="replace an output that is there")
        command.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
        command.add_argument("-T", "--threads", type=int, default=os.cpu_count() or 1, metavar="N")
        if name == "pack":
            command.add_argument("-l", "--level", choices=("fast", "default", "best"), default="default")
    options = parser.parse_args(arguments)
    if options.output and len(options.files) > 1:
        parser.error("--output is for one FILE")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0, or 1 if a file failed."""
    options, status = _options(arguments), 0
    for path in options.files:
        output = options.output or (path + ".bsnap" if options.command == "pack" else path[:-len(".bsnap")] if path.endswith(".bsnap") else "")
        try:
            if not output:
                raise ValueError(f"{path} does not end with .bsnap: give the output's name with -o")
            if os.path.exists(output) and os.path.samefile(path, output):
                raise ValueError(f"{output} is the file that is read: give another name with -o")
            if os.path.exists(output) and not options.force:
                raise ValueError(f"{output} is there already: -f replaces it, -o gives another name")
            size = (_pack if options.command == "pack" else _unpack)(path, output, options)
        except (OSError, ValueError, TypeError, MemoryError) as error:
            where = "" if path in str(error) else f"{path}: "
            print(f"bitsnap: {where}{error or type(error).__name__}", file=sys.stderr)
            status = 1
            continue
        if not options.quiet:
            print(f"{output}: {os.path.getsize(path)} -> {size} bytes")
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
