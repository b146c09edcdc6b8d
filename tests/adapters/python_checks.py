"""What the tests of the package bitsnap share."""
import atexit
import os
import random
import re
import shutil
import sys
import tempfile
import traceback


def elsewhere():
    """Into a directory that goes when the tests end."""
    directory = tempfile.mkdtemp(prefix="bitsnap-python-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    os.chdir(directory)


def refused(kind, text, function, *args, **named):
    """The exception of this kind, the text of which has these words."""
    try:
        function(*args, **named)
    except kind as error:
        assert text in str(error), f"{error!r} does not say: {text}"
        return error
    raise AssertionError(f"{function} was not refused: {text}")


def run(kind, tests):
    failed = False
    random.seed(1)
    for function in tests:
        try:
            function()
            print(f"ok - python: {kind}: {function.__name__}", flush=True)
        except BaseException:  # whatever it is: torch's CheckpointException is no Exception
            traceback.print_exc(file=sys.stdout)
            print(f"not ok - python: {kind}: {function.__name__}", flush=True)
            failed = True
    return int(failed)


def blocks(readme, kind):
    """The blocks of code of a kind in a document: "python", "python torch", "sh"."""
    with open(readme, encoding="utf-8") as f:
        return [code for language, code in re.findall(r"^```([a-z ]*)\n(.*?)^```", f.read(), re.S | re.M) if language == kind]


def run_blocks(readme, *kinds):
    for kind in kinds:
        found = blocks(readme, kind)
        assert found, kind
        for code in found:
            exec(compile(code, readme, "exec"), {})
