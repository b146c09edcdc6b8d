#!/bin/sh
# docs/examples/hdf5: the filter in h5py and h5repack, both ways; damaged chunks; its README.
cd "$(dirname "$0")/../.." || exit 1
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
python=/usr/bin/python3 # that of Debian's h5py, which shares its library with the filter
pkg-config --exists hdf5 2>/dev/null || { echo 'skip - hdf5: needs the library (Debian: libhdf5-dev)'; exit 0; }
command -v h5repack >/dev/null || { echo 'skip - hdf5: needs h5repack (Debian: hdf5-tools)'; exit 0; }
"$python" -c 'import h5py, numpy' 2>/dev/null || { echo 'skip - hdf5: needs h5py (Debian: python3-h5py)'; exit 0; }
# shellcheck disable=SC2046
if ${CC:-cc} -std=c99 -O1 -Wall -Wextra -Werror -shared -fPIC -I. $(pkg-config --cflags hdf5) docs/examples/hdf5/bitsnap_hdf5.c \
    -o "$t/libbitsnap_hdf5.so" $(pkg-config --libs hdf5); then echo 'ok - hdf5: compiled'; else echo 'not ok - hdf5: compiled'; exit 1; fi
HDF5_PLUGIN_PATH=$t; export HDF5_PLUGIN_PATH
readme=$PWD/docs/examples/hdf5/README.md
cd "$t" || exit 1
cat >test.py <<'PY'
import random, re, struct, sys
import h5py, numpy

rng = numpy.random.default_rng(1)
data = {"f2": rng.standard_normal((300, 70)).astype("f2"), "f4": rng.standard_normal((300, 70)).astype("f4"), "f8": rng.standard_normal((300, 70)),
        "big": rng.standard_normal((300, 70)).astype(">f4"), "i2": rng.integers(-9, 9, (300, 70), "i2"), "i8": rng.integers(0, 9, (300, 70), "i8"),
        "b": rng.integers(0, 2, (300, 70)).astype(bool), "c": numpy.zeros(1000, [("x", "i4"), ("y", "f8")]), "u1": rng.integers(0, 9, 5000, "u1"), "noise": rng.integers(0, 256, 3000, "u1"),
        "bf16": (rng.standard_normal((300, 70)).astype("f4").view("u4") >> 16).astype("u2")}


def same(file):
    with h5py.File(file) as f:
        return sorted(f) == sorted(data) and all((f[n][()].tobytes() == data[n].tobytes() and f[n].dtype == data[n].dtype) for n in data)


def ok(condition, what):
    print(("ok" if condition else "not ok") + " - hdf5: " + what)


if sys.argv[1] == "write":
    with h5py.File("a.h5", "w") as f:
        for n, a in data.items():
            f.create_dataset(n, data=a, chunks=(100, 50) if a.ndim == 2 else (300,), compression=411, compression_opts=(n == "f4", 9 if n == "bf16" else 0))
        sizes = {n: f[n].id.get_storage_size() / (f[n].id.get_num_chunks() * numpy.prod(f[n].chunks) * a.itemsize) for n, a in data.items()}
    ok(same("a.h5"), "every type comes back, edges of chunks and all")
    ok(sizes["f4"] < 0.95 and sizes["bf16"] < 0.8 and sizes["i2"] < 0.4 and sizes["c"] < 0.1 and sizes["noise"] == 1, f"and is smaller: {sizes}")
    with h5py.File("must.h5", "w") as f: # where it may not be left out
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        how.set_chunk((300,))
        how.set_filter(411, h5py.h5z.FLAG_MANDATORY, (0, 0))
        h5py.h5d.create(f.id, b"n", h5py.h5t.STD_U8LE, h5py.h5s.create_simple((3000,)), how).write(h5py.h5s.ALL, h5py.h5s.ALL, data["noise"])
        ok(f["n"][()].tobytes() == data["noise"].tobytes() and 1 < f["n"].id.get_storage_size() / 3000 < 1.2, "noise grows a little")
    for options in ((4, 0), (1, 99)):
        try:
            h5py.File("no.h5", "w").create_dataset("x", data=data["f4"], chunks=(10, 10), compression=411, compression_opts=options)
            ok(False, f"options {options} are refused")
        except (ValueError, OSError):
            ok(True, f"options {options} are refused")
    # what the file says of its chunks: too much is refused; and another size than the frame has
    try:
        h5py.File("no.h5", "w").create_dataset("x", shape=(1 << 29,), dtype="f4", chunks=((1 << 28) + 1,), compression=411)
        ok(False, "a chunk of more than 1 GiB is refused")
    except (ValueError, OSError):
        ok(True, "a chunk of more than 1 GiB is refused")
    for size in (400, 4004, 1 << 31, 1 << 33):
        with h5py.File("lies.h5", "w") as f:
            how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            how.set_chunk((1000,))
            how.set_filter(411, h5py.h5z.FLAG_MANDATORY, (0, 0))
            h5py.h5d.create(f.id, b"x", h5py.h5t.NATIVE_FLOAT, h5py.h5s.create_simple((1000,)), how).write(h5py.h5s.ALL, h5py.h5s.ALL, numpy.ones(1000, "f4"))
        lies = open("lies.h5", "rb").read()
        was, now = struct.pack("<4I", 0, 10, 4000, 0), struct.pack("<2IQ", 0, 10, size)
        open("lies.h5", "wb").write(lies.replace(was, now))
        try:
            with h5py.File("lies.h5") as f:
                f["x"][()]
            refused = False
        except OSError:
            refused = True
        ok(lies.count(was) == 1 and refused, f"client data of {size} bytes, but a frame of 4000")
    exec(compile(re.search(r"```python\n(.*?)```", open(sys.argv[2]).read(), re.S).group(1), "README", "exec"))
    ok(True, "its README")
elif sys.argv[1] == "same":
    ok(same(sys.argv[2]), f"repacked: {sys.argv[2]}")
else:  # what a damaged chunk gives is an error, or what was there
    random.seed(1)
    whole, wrong, errors = bytearray(open("a.h5", "rb").read()), 0, 0
    with h5py.File("a.h5") as f:
        places = [(c.byte_offset, c.size) for n in ("f4", "i2") for c in (f[n].id.get_chunk_info(i) for i in range(f[n].id.get_num_chunks()))]
    for _ in range(300):
        at, size = random.choice(places)
        bad = bytearray(whole)
        bad[at + random.randrange(size)] ^= 1 << random.randrange(8)
        open("bad.h5", "wb").write(bad)
        for n in ("f4", "i2"):
            try:
                with h5py.File("bad.h5") as f:
                    wrong += f[n][()].tobytes() != data[n].tobytes()
            except OSError:
                errors += 1
    ok(not wrong and errors > 250, f"300 damaged chunks: {errors} errors, {wrong} wrong")
PY
"$python" test.py write "$readme" || echo 'not ok - hdf5: h5py'
h5repack -f NONE a.h5 plain.h5 && h5repack -f UD=411,0,2,2,0 plain.h5 again.h5 || echo 'not ok - hdf5: h5repack'
"$python" test.py same plain.h5 && HDF5_PLUGIN_PATH=/nowhere "$python" test.py same plain.h5 && "$python" test.py same again.h5 || echo 'not ok - hdf5: repacked'
"$python" test.py damaged || echo 'not ok - hdf5: damaged chunks'
