#!/bin/sh
# Some checks of what reads others' bytes are switched off or widened, one at a time: the tests notice. Others every day; `make
# mutants` takes all.
cd "$(dirname "$0")/../.." || exit 1
command -v python3 >/dev/null || { echo "skip - mutants: needs python3"; exit 0; }
exec python3 tests/check/mutants.py --count "${COUNT:-10}" ${SEED:+--seed "$SEED"}
