# bitsnap: `make` builds the command-line tool, `make demo` shows the main job, `make test` tests.
# A C compiler and make are enough for these three. `make help` lists everything.
CC ?= cc
CFLAGS ?= -O3
CXX ?= c++
DATA ?=

B = build
HEADERS = bitsnap.h bitsnap_simd.h
WARN = -Wall -Wextra
TOOL_C = $(wildcard docs/examples/tool/*.c)
TOOL_H = $(wildcard docs/examples/tool/*.h)
TESTS_C = $(wildcard tests/test_*.c)
TESTS = $(TESTS_C:tests/%.c=$(B)/tests/%)

all: $(B)/bitsnap

help:
	@sed -n 's/^#: //p' Makefile

#: make             build/bitsnap, the command-line tool
$(B)/bitsnap: $(TOOL_C) $(TOOL_H) $(HEADERS)
	@mkdir -p $(B)
	$(CC) -std=c99 $(CFLAGS) $(WARN) -I. $(TOOL_C) -o $@ -lpthread

#: make test        tests that need a C compiler only; DATA=dir adds real checkpoints
test: $(B)/bitsnap $(TESTS)
	@DATA='$(DATA)' CC='$(CC)' tests/run.sh $(TESTS) $(wildcard tests/*.test)

$(B)/tests/%: tests/%.c tests/test.h $(HEADERS)
	@mkdir -p $(B)/tests
	$(CC) -std=c99 $(CFLAGS) $(WARN) -I. $< -o $@ -lpthread -lm

clean:
	rm -rf $(B)

.PHONY: all help test clean
