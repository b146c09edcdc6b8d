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

#: make demo        the main job: trains a small GPT, compresses its checkpoints, restores, compares
demo: $(B)/bitsnap $(B)/train_gpt
	@docs/examples/demo.sh $(B)/train_gpt $(B)/bitsnap $(B)/demo

$(B)/train_gpt: docs/examples/train_gpt.c
	@mkdir -p $(B)
	$(CC) -std=c99 $(CFLAGS) $(WARN) $< -o $@ -lm -lpthread

#: make test        tests that need a C compiler only; DATA=dir adds real checkpoints
test: $(B)/bitsnap $(TESTS)
	@DATA='$(abspath $(DATA))' CC='$(CC)' tests/run.sh $(TESTS) $(wildcard tests/*.test)

$(B)/tests/%: tests/%.c tests/test.h tests/data.h $(HEADERS)
	@mkdir -p $(B)/tests
	$(CC) -std=c99 $(CFLAGS) $(WARN) -I. $< -o $@ -lpthread -lm

$(B)/tests/test_safetensors: $(TOOL_C) $(TOOL_H)

#: make check       everything that must pass before a commit (needs gcc, clang, python3 and more: what is missing is skipped)
# the longest first, as they run side by side
CHECKS = tests/check_layers.py tests/check_sanitize.sh tests/check_strict.sh tests/check_bytes.sh tests/check_avx512.sh \
         tests/check_embed.sh tests/check_symbols.sh tests/check_replay.sh tests/check_docs.py tests/check_stack.py \
         tests/check_windows.sh tests/check_pext.sh tests/check_decoder.sh tests/check_neon.sh tests/check_bench.sh \
         tests/check_study.sh tests/check_convergence.sh tests/check_mutants.sh
check: $(B)/bitsnap $(TESTS)
	@DATA='$(abspath $(DATA))' CC='$(CC)' tests/run.sh $(TESTS) $(wildcard tests/*.test) $(CHECKS)

#: make checks      the same without what make test does
checks: $(B)/bitsnap
	@DATA='$(abspath $(DATA))' CC='$(CC)' tests/run.sh $(CHECKS)

#: make replay      the fuzz targets on their seeds and mutations of them, without libFuzzer
replay:
	@tests/run.sh tests/check_replay.sh

#: make fuzz T=name [SECONDS=60]   a fuzz target under libFuzzer: frame info list lengths round_trip delta sparse
#:                  safetensors quantize
T ?= frame
SECONDS ?= 60
fuzz: $(B)/fuzz/$(T) $(B)/fuzz/replay-$(T)
	@mkdir -p $(B)/corpus/$(T) $(B)/seeds/$(T)
	@$(B)/fuzz/replay-$(T) -s $(T) $(B)/seeds/$(T)
	$(B)/fuzz/$(T) -max_total_time=$(SECONDS) -max_len=8192 -timeout=5 -rss_limit_mb=1024 $(B)/corpus/$(T) $(B)/seeds/$(T)

#: make fuzz-smoke  every fuzz target, 5 seconds each
FUZZ = $(filter-out codec replay,$(notdir $(basename $(wildcard fuzz/*.c))))
fuzz-smoke: $(FUZZ:%=fuzz-smoke-%)
$(FUZZ:%=fuzz-smoke-%): fuzz-smoke-%: $(B)/fuzz/% $(B)/fuzz/replay-%
	@$(MAKE) -s fuzz T=$* SECONDS=5 >$(B)/fuzz/$*.log 2>&1 || { tail -n 20 $(B)/fuzz/$*.log; exit 1; }; \
	    echo "ok - fuzz $*: $$(grep -o 'Done [0-9]* runs' $(B)/fuzz/$*.log)"

$(B)/fuzz/replay-safetensors: SEEDS = -DSEEDS=fuzz_safetensors_seed
$(B)/fuzz/replay-delta: SEEDS = -DSEEDS=fuzz_delta_seed
$(B)/fuzz/replay-info: SEEDS = -DSEEDS=fuzz_info_seed
$(B)/fuzz/replay-sparse: SEEDS = -DSEEDS=fuzz_sparse_seed
$(B)/fuzz/replay-quantize: SEEDS = -DSEEDS=fuzz_quantize_seed
$(B)/fuzz/replay-safetensors $(B)/fuzz/safetensors: $(TOOL_C) $(TOOL_H)
$(B)/fuzz/replay-%: fuzz/%.c fuzz/replay.c fuzz/fuzz.h $(B)/fuzz/codec.o
	$(CC) -std=c99 -O1 -g $(WARN) -I. $(SEEDS) $< fuzz/replay.c $(B)/fuzz/codec.o -o $@

$(B)/fuzz/codec.o: fuzz/codec.c $(HEADERS)
	@mkdir -p $(B)/fuzz
	$(CC) -std=c99 -O1 -g $(WARN) -I. -c $< -o $@

FUZZER = clang -std=c99 -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -I.
$(B)/fuzz/%: fuzz/%.c fuzz/fuzz.h $(B)/fuzz/codec-checked.o
	$(FUZZER) -fsanitize=fuzzer $< $(B)/fuzz/codec-checked.o -o $@

$(B)/fuzz/codec-checked.o: fuzz/codec.c $(HEADERS)
	@mkdir -p $(B)/fuzz
	$(FUZZER) -fsanitize=fuzzer-no-link -c $< -o $@

#: make bench       against memcpy, zstd and lz4; DATA=dir, JSON=1, BENCH='--quick' or other options (--help lists them)
bench: bench-build
	@$(B)/bench $(if $(JSON),--json) $(if $(DATA),--data '$(DATA)') $(BENCH)

# Always built anew, so that the commit and the flags it prints are its own; results do not make a commit dirty. zstd
# and lz4 take part where a program links with them (Debian: libzstd-dev, liblz4-dev).
FIND_PEERS = has() { printf '\#include <%s.h>\nint main(void) { return 0; }\n' $$1 >$(B)/has.c && \
        $(CC) $(CFLAGS) $(B)/has.c -o $(B)/has -l$$1 2>/dev/null; }; \
    peers=; \
    if has zstd; then peers="$$peers -DBENCH_ZSTD -lzstd"; fi; \
    if has lz4; then peers="$$peers -DBENCH_LZ4 -llz4"; fi
COMMIT = $$(git describe --always 2>/dev/null || echo unknown)$$(git diff --quiet HEAD -- . ':!bench/results' 2>/dev/null || echo -dirty)
bench-build:
	@mkdir -p $(B)
	@$(FIND_PEERS); \
	$(CC) -std=c99 $(CFLAGS) $(WARN) -I. -DBENCH_FLAGS='"$(CFLAGS)"' -DBENCH_COMMIT="\"$(COMMIT)\"" \
	    $(wildcard bench/*.c) docs/examples/tool/parallel.c -o $(B)/bench $$peers -lpthread

#: make bench-plots DATA=dir [BENCH=--quick]   every mode of bench, into bench/results: JSON and pictures (needs gnuplot, python3)
bench-plots: bench-build
	@mkdir -p bench/results
	@for mode in codecs kernels sizes threads; do \
	    flag=--$$mode; if [ $$mode = codecs ]; then flag=; fi; \
	    echo "bench $$flag $(BENCH)"; \
	    $(B)/bench $$flag --json $(if $(DATA),--data '$(DATA)') $(BENCH) >$(B)/$$mode.json || exit 1; \
	    mv $(B)/$$mode.json bench/results/; \
	done
	@python3 bench/plots.py bench/results $(B)/plots

#: make bench-cli DATA=dir [BENCH=--quick]     the tool beside zstd, lz4, bzip2 and xz, into bench/results (needs hyperfine)
bench-cli: $(B)/bitsnap
	@COMMIT="$(COMMIT)" bench/cli.sh $(B)/bitsnap '$(DATA)' $(B)/cli bench/results/cli.md $(if $(findstring --quick,$(BENCH)),quick)

#: make study [DATA=dir]         how checkpoints change, and what storing the change takes in every form: trains, measures,
#:                  draws into bench/results, in five minutes (pictures need gnuplot); STUDY=quick: a glance, into build/study.quick
study: $(B)/train_gpt study-build
	@bench/study/study.sh $(B)/train_gpt $(B)/study $(B)/study.run$(STUDY) $(if $(STUDY),$(B)/study.quick,bench/results) '$(DATA)' '$(STUDY)'

study-build:
	@mkdir -p $(B)
	@$(FIND_PEERS); \
	$(CC) -std=c99 $(CFLAGS) $(WARN) -I. -DBENCH_FLAGS='"$(CFLAGS)"' -DBENCH_COMMIT="\"$(COMMIT)\"" \
	    $(wildcard bench/study/*.c) bench/lmc.c bench/machine.c bench/peers.c bench/tensors.c -o $(B)/study $$peers -lm

#: make convergence [CONVERGENCE='--beta2 0.999']   training on from lossy optimizer states, in every form, against training
#:                  undisturbed: table, pictures, PASS or FAIL, into bench/results; ten minutes on two cores (needs
#:                  python3-numpy, gnuplot)
NUMPY = $$(for p in python3 /usr/bin/python3; do if $$p -c 'import numpy' 2>/dev/null; then break; fi; done; echo $$p)
convergence: $(B)/bitsnap $(B)/train_native
	@COMMIT="$(COMMIT)" COMPILER="$(CC) $(CFLAGS) -march=native" $(NUMPY) bench/convergence/convergence.py \
	    $(B)/train_native $(B)/bitsnap $(B)/convergence.run bench/results $(CONVERGENCE)

$(B)/train_native: docs/examples/train_gpt.c
	@mkdir -p $(B)
	$(CC) -std=c99 $(CFLAGS) -march=native $(WARN) $< -o $@ -lm -lpthread

#: make quantizers DATA=dir      forms of optimizer states: sizes, errors, the next update's error, on DATA/adam_{m,v}-1000.safetensors
quantizers: $(B)/bitsnap
	@COMMIT="$(COMMIT)" COMPILER="$(CC) $(CFLAGS)" $(NUMPY) bench/convergence/quantizers.py --step 1000 $(B)/bitsnap \
	    '$(DATA)/adam_m-1000.safetensors' '$(DATA)/adam_v-1000.safetensors' bench/results

#: make mutants [COUNT=40]        are missing checks noticed? Each comparison in what reads others' bytes is changed, one at a
#:                  time, and the tests have to fail; an hour for all (needs python3); tests/mutants.txt has what is not noticed, and why
mutants:
	@python3 tests/mutants.py $(if $(COUNT),--count $(COUNT))

clean:
	rm -rf $(B)

.PHONY: all help demo test check checks replay fuzz fuzz-smoke $(FUZZ:%=fuzz-smoke-%) bench bench-build bench-plots bench-cli \
        study study-build convergence quantizers mutants clean
