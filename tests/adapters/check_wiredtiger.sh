#!/bin/sh
# docs/examples/wiredtiger: tables in a database, read by another process; damaged files; damaged pages.
cd "$(dirname "$0")/../.." || exit 1
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
command -v python3 >/dev/null || { echo 'skip - wiredtiger: needs python3'; exit 0; }
echo '#include <wiredtiger.h>' | ${CC:-cc} -E - >"$t/log" 2>&1 || { echo 'skip - wiredtiger: needs the library (Debian: libwiredtiger-dev)'; exit 0; }
host=$PWD/tests/adapters/wiredtiger.c readme=$PWD/docs/examples/wiredtiger/README.md cc=${CC:-cc}
ln -s "$PWD/bitsnap.h" "$PWD/bitsnap_simd.h" "$PWD/docs" "$t" && cd "$t" || exit 1
block() { sed -n '/^```'"$1"'$/,/^```$/{/^```/d;p;}' "$readme"; }
if block sh | sed "s/^cc -O2/$cc -std=c99 -O0 -Wall -Wextra -Werror/" >build.sh && sh -e build.sh && block c >use.c && mkdir home &&
    $cc -std=c99 -O1 -Wall -Wextra -Werror use.c -o use -lwiredtiger && ./use && $cc -std=gnu99 -O1 -Wall -Wextra -Werror "$host" -o host -lwiredtiger -ldl
then echo 'ok - wiredtiger: its README compiles and runs'; else echo 'not ok - wiredtiger: its README compiles and runs'; exit 1; fi
./host ./libbitsnap_wiredtiger.so pages
cat >test.py <<'PY'
import os, random, shutil, subprocess


def run(*arguments):
    return subprocess.run(["./host", "./libbitsnap_wiredtiger.so", *arguments], capture_output=True).returncode


def ok(condition, what):
    print(("ok" if condition else "not ok") + " - wiredtiger: " + what)


os.mkdir("whole")
ok([run(what, "whole") for what in ("write", "read", "verify")] == [0, 0, 0], "tables of every form are written, read by another process, verified")
files = [f"t{form}{type}.wt" for form in range(3) for type in range(6)]
size = {f: os.path.getsize("whole/" + f) for f in files}
ok(all(size[f] < 0.96 * size[f[:2] + "5.wt"] for f in files if f[2] != "5"), f"and smaller than without the extension: {size}")

random.seed(1)
results = []
for i in range(100):  # a page that is damaged is an error of WiredTiger's, unless it is one of those that nobody reads
    shutil.rmtree("bad", ignore_errors=True)
    shutil.copytree("whole", "bad")
    name = random.choice([f for f in files if f[2] != "5"])
    with open("bad/" + name, "r+b") as f:
        at = random.randrange(4096, size[name])
        f.seek(at)
        byte = f.read(1)[0] ^ 1 << random.randrange(8)
        f.seek(at)
        f.write(bytes([byte]))
    results.append(run("verify" if i % 4 == 0 else "read", "bad"))
ok(set(results) == {0, 3} and results.count(3) > 50, f"100 damaged files: {results.count(3)} errors, {100 - results.count(3) - results.count(0)} wrong")
PY
python3 test.py || echo 'not ok - wiredtiger: tables'
