#!/bin/sh
# Switches off or widens some checks of the code that reads foreign data, one at a time. The tests have to notice. Each day other
# checks are chosen; `make mutants` takes all.
cd "$(dirname "$0")/../.." || exit 1
command -v python3 >/dev/null || { echo "skip - mutants: needs python3"; exit 0; }
exec python3 tests/check/mutants.py --count "${COUNT:-10}" ${SEED:+--seed "$SEED"}
