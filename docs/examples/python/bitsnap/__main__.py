"""python -m bitsnap pack|unpack FILE ...: packs what torch.save wrote, .safetensors files and folders, and makes files again.
python -m bitsnap run SCRIPT ...: runs a program of Python that finds packed files where it asks for plain ones."""
from __future__ import annotations

import argparse
import os
import runpy
import sys

from .files import File, is_there, whole_file
from .pack import SAFETENSORS, pack_file, pack_folder


def _unpack(path, output, options):
    import torch

    from . import torch as ours

    state = ours.load(path, base=options.base, threads=options.threads, progress=options.progress)
    if output.endswith(SAFETENSORS):
        from safetensors.torch import save

        with File(path, base=options.base) as file, whole_file(output) as f:
            f.write(save(state, file.metadata()))
    else:
        with whole_file(output) as f:
            torch.save(state, f)
    if options.remove:
        os.unlink(path)
    return os.path.getsize(output)


def _folder(path, options):
    """Packs a folder; returns what it says of each file."""
    if options.command == "unpack" or options.output or options.base:
        raise ValueError(f"{path} is a folder: pack alone takes folders, without -o and -b. `bitsnap decompress -r` and unpack of each file restore it")
    found = pack_folder(path, level=options.level, threads=options.threads, references=options.references, remove=options.remove,
                        progress=options.progress)
    return [f"{os.path.join(path, name)}: " + (f"{size} bytes" if isinstance(size, int) else f"stays plain: {size}") for name, size in found.items()]


def _one(path, options):
    """Packs or unpacks a file; returns what it says of it."""
    pack = options.command == "pack"
    output = options.output or (path + ".bsnap" if pack else path[:-len(".bsnap")] if path.endswith(".bsnap") else "")
    if not output:
        raise ValueError(f"{path} does not end with .bsnap: give the output's name with -o")
    if is_there(output, path):
        raise ValueError(f"{output} is the file that is read: give another name with -o")
    if is_there(output) and not options.force:
        raise ValueError(f"{output} is there already: -f replaces it, -o gives another name")
    before = os.path.getsize(path)
    size = pack_file(path, output, base=options.base, level=options.level, threads=options.threads, references=options.references,
                     remove=options.remove, progress=options.progress) if pack else _unpack(path, output, options)
    return [f"{output}: {before} -> {size} bytes"]


def _options(arguments):
    parser = argparse.ArgumentParser("python -m bitsnap", description="Packs what torch.save wrote, .safetensors files and folders, and makes files "
                                     "again. Nothing in a file is run.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="pack|unpack|run")
    command = commands.add_parser("run", help="runs a program of Python for which `import bitsnap.auto` was done: it finds packed files")
    command.add_argument("script", metavar="SCRIPT")
    command.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    for name, text in (("pack", "packs each FILE, of torch.save (.pt, .pth, .bin, .ckpt) or .safetensors, to FILE.bsnap, or all such files in a folder"),
                       ("unpack", "makes the file again from each FILE, whose name ends with .bsnap")):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("files", nargs="+", metavar="FILE")
        command.add_argument("-o", "--output", help="of one FILE: the name of what is written")
        command.add_argument("-b", "--base", help="of a delta: the packed state that it is against")
        command.add_argument("-f", "--force", action="store_true", help="replace an output that is there")
        command.add_argument("--remove", action="store_true", help="remove each input when its output is on the disk")
        command.add_argument("--progress", action="store_true", help="show how far it is, by tqdm")
        command.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
        command.add_argument("-T", "--threads", type=int, default=os.cpu_count() or 1, metavar="N")
        if name == "pack":
            command.add_argument("-l", "--level", choices=("fast", "default", "best"), default="default")
            command.add_argument("--no-references", dest="references", action="store_false",
                                 help="no tensor is coded against an earlier one of FILE")
    options = parser.parse_args(arguments)
    if options.command != "run" and options.output and len(options.files) > 1:
        parser.error("--output is for one FILE")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0, or 1 if a file failed."""
    options, status = _options(arguments), 0
    if options.command == "run":
        return _run(options.script, options.arguments)
    for path in options.files:
        try:
            lines = (_folder if os.path.isdir(path) else _one)(path, options)
        except (OSError, ValueError, TypeError, MemoryError, ImportError) as error:
            where = "" if path in str(error) else f"{path}: "
            print(f"bitsnap: {where}{error or type(error).__name__}", file=sys.stderr)
            status = 1
            continue
        if not options.quiet:
            print(*lines, sep="\n")
    return status


def _run(script: str, arguments: list[str]) -> int:
    """As `python SCRIPT ARGUMENT ...` after `import bitsnap.auto`."""
    from . import auto  # noqa: F401

    sys.argv[:] = [script, *arguments]
    if not getattr(sys.flags, "safe_path", False):  # as with python -P
        sys.path[0] = script if os.path.isdir(script) else os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
