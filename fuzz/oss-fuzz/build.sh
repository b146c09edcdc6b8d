#!/bin/bash -eu
# $CC, $CFLAGS, $CXX, $CXXFLAGS, $LIB_FUZZING_ENGINE, $WORK and $OUT are those of OSS-Fuzz.
"$SRC/bitsnap/fuzz/build.sh"
