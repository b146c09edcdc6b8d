#!/bin/sh
# The programs of docs/EMBEDDING.md in other languages than C, linked with the codec that make has compiled for the tool.
cd "$(dirname "$0")/../.." || exit 1
t=$(mktemp -d) && trap 'rm -rf "$t"' EXIT
codec=$PWD/build/tool/bitsnap.o
[ -e "$codec" ] || { echo 'skip - languages: needs make'; exit 0; }
block() { sed -n '/^```'"$1"'$/,/^```$/{/^```/d;p;}' docs/EMBEDDING.md; }
check() { # name, package of Debian's, compiler, command
    command -v "$3" >/dev/null || { echo "skip - languages: $1 needs $3 (Debian: $2)"; return; }
    if sh -c "$4" >"$t/out" 2>&1 && "$t/a"; then echo "ok - languages: $1"; else echo "not ok - languages: $1"; head -n 20 "$t/out"; fi
}
block cpp >"$t/a.cpp" && block rust >"$t/a.rs" && mkdir "$t/go" && block go >"$t/go/a.go" || exit 1
for standard in 11 20; do check "C++$standard" g++ g++ "g++ -std=c++$standard -Wall -Wextra -Wpedantic -Werror -I. $t/a.cpp $codec -o $t/a"; done
check Rust rustc rustc "rustc --edition 2021 -D warnings -A dead_code -C link-arg=$codec $t/a.rs -o $t/a"
ar rcs "$t/libcodec.a" "$codec" # an object would be linked twice
check Go golang-go go "cd $t/go && GOFLAGS=-mod=mod GOCACHE=$t/cache CGO_CFLAGS=-I$PWD CGO_LDFLAGS='-L$t -lcodec' go build -o $t/a a.go"
