#!/bin/sh
# Builds the fuzz targets (all, or those named) into $OUT, with a dictionary, options and seeds for each, as OSS-Fuzz expects:
# $CC $CFLAGS compiles, $CXX $CXXFLAGS links with $LIB_FUZZING_ENGINE, $WORK keeps objects for the next build.
#   CC=clang CFLAGS='-O1 -g -fsanitize=address,fuzzer-no-link' LIB_FUZZING_ENGINE=-fsanitize=fuzzer OUT=build/mine fuzz/build.sh
# Without an engine the targets run over files and mutations of them: see replay.c.
set -eu
cd "$(dirname "$0")/.."
: "${CC:=cc}" "${CFLAGS=-O1 -g}" "${OUT:=build/fuzz}" "${LIB_FUZZING_ENGINE:=}"
: "${CXX:=$CC}" "${CXXFLAGS=$CFLAGS}"
tool='file delta container manifest index json fault io place paths directory walk names foreign parallel processors progress codec' # sources of the tool that targets need
work=${WORK:-}
temporary=$(mktemp -d) && trap 'rm -rf "$temporary"' EXIT
[ -n "$work" ] || work=$temporary
mkdir -p "$OUT" "$work"

compile() { # source, object, options...: unless that is newer than all it may be made of
    source=$1 object=$2; shift 2
    [ -f "$object" ] && [ -z "$(find "$source" fuzz/*.h fuzz/build.sh bitsnap.h bitsnap_simd.h docs/examples/file docs/examples/tool docs/examples/engine -newer "$object")" ] && return
    # shellcheck disable=SC2086
    $CC $CFLAGS "$@" -I. -c "$source" -o "$object"
}

compile fuzz/codec.c "$work/codec.o" & # which takes as long as all others do
codec=$!
engine=$LIB_FUZZING_ENGINE
[ -n "$engine" ] || { engine=$work/replay.o; compile fuzz/replay.c "$engine"; }
[ $# -gt 0 ] || set -- $(basename -a -s .c fuzz/*.c)
for target; do
    case $target in codec | replay | changing) ;; *) compile "fuzz/$target.c" "$work/$target.o" ;; esac
    if grep -q examples/tool/ "fuzz/$target.c"; then for part in $tool; do compile docs/examples/tool/*/"$part.c" "$work/tool-$part.o"; done; fi
done
wait "$codec"
for target; do
    case $target in codec | replay) continue ;; esac
    objects=$work/codec.o
    if grep -q examples/tool/ "fuzz/$target.c"; then for part in $tool; do objects="$objects $work/tool-$part.o"; done; fi
    if [ "$target" != changing ] || compile fuzz/changing.c "$work/changing.o" -fsanitize-coverage=func,trace-loads 2>"$temporary/why"; then :
    else echo "changing is left out: $CC does not trace loads"; continue; fi
    # shellcheck disable=SC2086
    $CXX $CXXFLAGS "$work/$target.o" $objects $engine -o "$OUT/$target" -lpthread
    printf '[libfuzzer]\nmax_len = 8192\ntimeout = 10\n' >"$OUT/$target.options"
    if [ -f "fuzz/$target.dict" ]; then cp "fuzz/$target.dict" "$OUT/$target.dict"
    else cp fuzz/bitsnap.dict "$OUT/$target.dict"; fi
    seeds=$temporary/seeds
    rm -rf "$seeds" "$OUT/${target}_seed_corpus.zip"
    mkdir "$seeds"
    FUZZ_SEEDS=$seeds "$OUT/$target"
    python3 -m zipfile -c "$OUT/${target}_seed_corpus.zip" "$seeds"/* 2>/dev/null || zip -q -j "$OUT/${target}_seed_corpus.zip" "$seeds"/*
done
