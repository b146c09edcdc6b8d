"""Files of numpy arrays. bfloat16 and float8 arrays need the package ml_dtypes."""
import numpy

from . import files
from ._arrays import DTYPES, dtype_name, flat


def _dtype(name):
    if name not in DTYPES:
        raise TypeError(f"numpy has no arrays of {name}")
    kind = DTYPES[name][0]
    if hasattr(numpy, kind) or kind == "bool":
        return numpy.dtype(kind)
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(f"arrays of {name} need the package ml_dtypes") from None
    return numpy.dtype(getattr(ml_dtypes, kind))


def new(name, shape):
    """An array, and its memory as bytes."""
    array = numpy.empty(shape, _dtype(name))
    return array, flat(array)


def move(array, device):
    if device != "cpu":
        raise ValueError("arrays of numpy are in the host's memory: device must be \"cpu\"")
    return array


def _table(tensors):
    return files.order([files.entry(name, _host, array) for name, array in tensors.items()])


def _host(array):
    if not isinstance(array, (numpy.ndarray, numpy.generic)):
        raise TypeError(f"a {type(array).__name__}, and no numpy array")
    if array.dtype.byteorder == ">":
        raise TypeError(f"elements of {array.dtype} are in the byte order of other machines: astype(array.dtype.newbyteorder(\"=\")) converts them")
    return dtype_name(array), array.shape, flat(array if isinstance(array, numpy.ma.MaskedArray) else numpy.ascontiguousarray(array))


def save_file(tensors, filename, metadata=None, *, base=None, level="default", threads=1):
    """Writes a dictionary of arrays. The file appears as a whole or not at all. `base`: the path of an earlier file; the new one then
    is a delta against it. Returns its size."""
    return files.write(filename, _table(tensors), metadata, level, threads, base)


def save(tensors, metadata=None, *, base=None, level="default", threads=1):
    """The same as bytes."""
    return files.write(None, _table(tensors), metadata, level, threads, base)


def load_file(filename, *, base=None, threads=1):
    """All arrays of a file, by their names."""
    with files.safe_open(filename, "np", base=base, threads=threads) as f:
        return {name: f.get_tensor(name) for name in f.offset_keys()}
