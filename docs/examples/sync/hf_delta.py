"""Version directories of slime and ModelExpress. A trainer of bitsnap_sync can publish for their engines; a rollout can read
theirs.

A directory has model-NNNNN-of-NNNNN.safetensors and model.safetensors.index.json. The former holds each changed tensor as U8: the
zstd frame of its delta. Its __metadata__ has the checksum of each tensor's result. The index has weight_map and metadata:
version, base_version, delta_encoding (xor, overwrite), compression_format (zstd), checksum_format. Sources: THUDM/slime at
624b824 (docs/en/advanced/delta-weight-sync.md; weight_vNNNNNN, versions of six digits) and ai-dynamo/modelexpress at 0441baa
(docs/S3_DELTA_WEIGHT_REFIT.md; only xor and adler32, versions with other names). Needs numcodecs and safetensors.
"""
import contextlib
import json
import os
import zlib

import numpy
import safetensors
import safetensors.numpy
from numcodecs.zstd import Zstd

from bitsnap_sync import MessageError, WrongBase, put

INDEX = "model.safetensors.index.json"


def _checksums():
    kinds = {"adler32": lambda data: f"{zlib.adler32(data):08x}"}
    try:
        import xxhash

        kinds["xxh3-128"] = lambda data: xxhash.xxh3_128_hexdigest(data)
    except ImportError:
        pass
    return kinds


def _checksum(kind):
    try:
        return _checksums()[kind]
    except KeyError:
        raise MessageError(f"checksums of {kind} are not known" + (" (the package xxhash has them)" if kind == "xxh3-128" else "")) from None


def write(path, new, old, version, base_version, *, encoding="xor", checksum="adler32"):
    """Writes a directory with the delta between two bitsnap_sync.Weights of the same tensors. The index is written last."""
    check, deltas, checks = _checksum(checksum), {}, {}
    if encoding not in ("xor", "overwrite"):
        raise ValueError(f'"{encoding}" is no encoding; they are xor and overwrite')
    for name, _, _, begin, end in new.table:
        after, before = new.data[begin:end], old.data[begin:end]
        changed = numpy.flatnonzero(after != before)
        if not changed.size:
            continue
        delta = after ^ before
        if encoding == "overwrite":  # number of changed bytes, their positions, their values
            if end - begin >= 1 << 32:
                raise ValueError(f"{name} has {end - begin} bytes; overwrite reaches 2^32")
            delta = numpy.concatenate([numpy.append(changed.size, changed).astype("<u4").view(numpy.uint8), after[changed]])
        deltas[name] = numpy.frombuffer(Zstd(1).encode(delta), numpy.uint8)
        checks[name] = check(after)
    os.makedirs(path, exist_ok=True)
    file = "model-00000-of-00001.safetensors"
    with contextlib.suppress(FileNotFoundError):  # an older index would name the new file
        os.unlink(os.path.join(path, INDEX))
    if deltas:
        put(os.path.join(path, file), safetensors.numpy.save(deltas, metadata=checks))
    index = {"metadata": {"version": version, "base_version": base_version, "delta_encoding": encoding, "compression_format": "zstd",
                          "checksum_format": checksum}, "weight_map": dict.fromkeys(deltas, file)}
    put(os.path.join(path, INDEX), json.dumps(index).encode())


def read(path, weights, version):
    """Brings a bitsnap_sync.Weights from `version` to the version of a directory, and returns the latter. Changes all tensors or
    none."""
    with open(os.path.join(path, INDEX), encoding="utf-8") as f:
        try:
            index = json.load(f)
            meta, files = index["metadata"], set(index["weight_map"].values())
            result, base, encoding = meta["version"], meta["base_version"], meta["delta_encoding"]
            check, zstd = _checksum(meta["checksum_format"]), meta["compression_format"] == "zstd"
        except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise MessageError(f"{path}: no index of deltas") from error
    if encoding not in ("xor", "overwrite") or not zstd:
        raise MessageError(f"{path}: deltas of another kind")
    if result == version:
        return result
    if base != version:
        raise WrongBase(f"{path}: a delta against {base}; here is {version}")
    places = {name: weights.data[begin:end] for name, _, _, begin, end in weights.table}
    made = {}
    for file in sorted(files):
        if os.path.basename(file) != file:
            raise MessageError(f"{path}: the index names a file elsewhere")
        try:
            with safetensors.safe_open(os.path.join(path, file), "np") as f:
                checks = f.metadata() or {}
                for name in f.keys():
                    if name not in places:
                        raise MessageError(f"{path}: {name} is not in the model")
                    made[name] = _made(places[name], f.get_tensor(name), encoding)
                    if check(made[name]) != checks.get(name):
                        raise MessageError(f"{path}: {name} is damaged, or was changed from other weights")
        except safetensors.SafetensorError as error:
            raise MessageError(f"{path}: {file}: {error}") from error
    if made.keys() != index["weight_map"].keys():
        raise MessageError(f"{path}: the index does not match the files")
    for name, data in made.items():
        places[name][:] = data
    return result


def _made(old, frame, encoding):
    """Returns the new bytes of a tensor."""
    delta = numpy.zeros(old.size if encoding == "xor" else 4 + 5 * old.size, numpy.uint8)  # the largest delta allowed
    try:
        Zstd().decode(frame, delta)
    except (RuntimeError, ValueError) as error:
        raise MessageError(f"zstd: {error}") from error
    if encoding == "xor":
        return old ^ delta
    count = int.from_bytes(delta[:4].tobytes(), "little")
    at = delta[4:4 + 4 * count].view("<u4") if count <= old.size else delta
    if count > old.size or (count and at.max() >= old.size):
        raise MessageError("a delta that changes what is not there")
    new = old.copy()
    new[at] = delta[4 + 4 * count:4 + 5 * count]
    return new
