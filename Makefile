# bitsnap: `make` builds the command-line tool, `make demo` shows the main job, `make test` tests.
# A C compiler and make are enough for these three. `make help` lists everything.
CC ?= cc
CFLAGS ?= -O3
CXX ?= c++
DATA ?=

# as many jobs as there are processors, unless a -j says otherwise
ifeq ($(findstring -j,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
endif

B = build
HEADERS = bitsnap.h bitsnap_simd.h
WARN = -Wall -Wextra
TOOL_C = $(wildcard docs/examples/tool/*.c docs/examples/tool/*/*.c)
TOOL_H = $(wildcard docs/examples/tool/*/*.h docs/examples/file/*.h)
TOOL_O = $(TOOL_C:docs/examples/tool/%.c=$(B)/tool/%.o)
# test programs: one object, codec.o, has the codec for all, and with it the tests of INSIDE_C; inside.c runs these by the names INSIDE
INSIDE_C = $(addprefix tests/unit/,$(shell sed -n 's/^.include "\(.*test_.*\)"/\1/p' tests/unit/codec.c))
INSIDE = $(addprefix $(B)/tests/,$(shell sed -n 's/^ *{ "\([a-z_]*\)", .*/\1/p' tests/unit/codec.c))
TESTS_C = $(filter-out $(addprefix %/,$(notdir $(INSIDE_C))),$(wildcard tests/*/test_*.c))
LINKED = $(addprefix $(B)/tests/,$(notdir $(TESTS_C:.c=)))
TESTS = $(INSIDE) $(LINKED)
vpath %.c $(sort $(dir $(TESTS_C)))

all: $(B)/bitsnap

help:
	@sed -n 's/^#: //p' Makefile bench/Makefile

#: make             build/bitsnap, the command-line tool (main.c runs one of commands/; these use store/, tensors/, files/, console/, system/)
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

COMPLETIONS = $(addprefix $(B)/bitsnap.,bash zsh fish)
$(B)/bitsnap.man $(COMPLETIONS): $(B)/bitsnap.%: $(B)/bitsnap docs/examples/tool/console/manual.sh
	docs/examples/tool/console/manual.sh $< $* >$@.new && mv $@.new $@

#: make install     the tool, its manual page, completion for bash, zsh and fish, the headers, packages for pkg-config and CMake, and what
#:                  make lib has built; PREFIX (/usr/local), BINDIR, INCLUDEDIR, LIBDIR, MANDIR, COMPLETIONDIR, ZSHDIR, FISHDIR and
#:                  DESTDIR say where to. make uninstall, with the same, takes all of it away
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
INCLUDEDIR ?= $(PREFIX)/include
LIBDIR ?= $(PREFIX)/lib
MANDIR ?= $(PREFIX)/share/man
COMPLETIONDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
install uninstall:
	@DESTDIR='$(DESTDIR)' BINDIR='$(BINDIR)' INCLUDEDIR='$(INCLUDEDIR)' LIBDIR='$(LIBDIR)' MANDIR='$(MANDIR)' \
	    COMPLETIONDIR='$(COMPLETIONDIR)' ZSHDIR='$(ZSHDIR)' FISHDIR='$(FISHDIR)' docs/cmake/install.sh $@ $(B)
install: $(B)/bitsnap $(B)/bitsnap.man $(COMPLETIONS) $(if $(filter lib,$(MAKECMDGOALS)),lib,$(wildcard $(B)/libbitsnap.a $(B)/libbitsnap.so.1))

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
ENGINE_O = $(patsubst %,$(B)/engine.o/%.o,bitsnap_engine engine_disk engine_store codec) $(patsubst %,$(B)/tool/%.o,store/manifest store/store console/json console/fault system/paths)
engine: $(B)/engine
$(B)/engine: $(B)/engine.o/engine_agent.o $(B)/libbitsnap_engine.a
	$(CC) $(CFLAGS) $^ -o $@ -lpthread

$(B)/libbitsnap_engine.a: $(ENGINE_O)
	@rm -f $@
	$(AR) rcs $@ $^

# the engine for engine_torch.py
$(B)/libbitsnap_engine.so: $(patsubst %,docs/examples/engine/%.c,bitsnap_engine engine_disk codec) $(wildcard docs/examples/engine/*.h) docs/examples/file/bitsnap_file.h $(HEADERS)
	@mkdir -p $(@D)
	$(CC) -std=c99 $(CFLAGS) $(WARN) -shared -fPIC -I. $(filter %.c,$^) -o $@ -lpthread

$(B)/engine.o/%.o: docs/examples/engine/%.c $(wildcard docs/examples/engine/*.h) docs/examples/file/bitsnap_file.h $(HEADERS)
	@mkdir -p $(@D)
	$(CC) -std=c99 $(CFLAGS) $(WARN) -I. -c $< -o $@

#: make crash-demo  [KILLS=50] [GROUP=4]   4 ranks under mpirun, killed again and again: trainers, agents, ranks with their memory; the weights must be
#:                  those of a run that was not (needs libopenmpi-dev, openmpi-bin, python3); KILLS=500: a nightly job
#: make crash-demo  TORCH=python [KILLS=50] [RANKS=4]   the same with FSDP2 and gloo, by a Python that has PyTorch: each loss must be that of a run
#:                  that was not killed
KILLS ?= 50
train_mpi: $(B)/train_mpi
$(B)/train_mpi: docs/examples/train_gpt.c docs/examples/engine/engine_mpi.c $(B)/libbitsnap_engine.a
	OMPI_CC='$(CC)' mpicc -std=c99 $(CFLAGS) $(WARN) -DTRAIN_MPI -I. $^ -o $@ -lm -lpthread
crash-demo: $(if $(TORCH),$(B)/libbitsnap_engine.so,$(B)/train_mpi) $(B)/engine
	@$(if $(TORCH),'$(TORCH)' docs/examples/engine/crash_torch.py $(B)/libbitsnap_engine.so $(B)/crash --engine $(B)/engine --ranks $(or $(RANKS),4) \
	    --kills $(KILLS),python3 docs/examples/engine/crash_demo.py $(B)/train_mpi $(B)/engine $(B)/crash --kills $(KILLS) $(if $(GROUP),--group $(GROUP)) $(HEADERS))

#: make test        tests that need a C compiler only; DATA=dir adds real checkpoints
# what takes longest to compile first
test: $(B)/tool/bitsnap.o $(B)/tests/codec.o $(B)/tests/engine_codec.o $(B)/bitsnap $(TESTS)
	@DATA='$(abspath $(DATA))' CC='$(CC)' tests/run.sh $(wildcard tests/*/*.test) $(TESTS)

TEST_H = tests/unit/test.h tests/unit/data.h tests/format/corpus.h tests/unit/inside.h $(HEADERS)
$(LINKED): $(B)/tests/%: %.c $(B)/tests/codec.o $(TEST_H)
	$(CC) -std=c99 $(TEST_CFLAGS) $(WARN) -I. $< $(B)/tests/codec.o -o $@ -lpthread -lm
$(INSIDE): tests/unit/inside.c $(B)/tests/codec.o
	$(CC) -std=c99 $(TEST_CFLAGS) $(WARN) -I. $^ -o $@ -lpthread -lm
$(B)/tests/codec.o: tests/unit/codec.c tests/unit/target.h $(INSIDE_C) $(TEST_H)
	@mkdir -p $(B)/tests
	$(CC) -std=c99 $(TEST_CFLAGS) $(WARN) -I. -c $< -o $@
# the engine's own, for scripts. What they ask does not depend on kernels, which take two thirds of the time to compile
$(B)/tests/engine_codec.o: docs/examples/engine/codec.c docs/examples/file/bitsnap_file.h $(HEADERS)
	@mkdir -p $(B)/tests
	$(CC) -std=c99 $(TEST_CFLAGS) $(WARN) -DBITSNAP_NO_SIMD -I. -c $< -o $@

# -O3 takes three times as long to compile; the tool and make check have it
TEST_CFLAGS = $(CFLAGS) -Og
$(B)/tests/test_safetensors $(B)/tests/test_processors: $(TOOL_C) $(TOOL_H)
$(B)/tests/test_tour: docs/tour.c docs/tour_xxh3.h
$(B)/tests/test_engine $(B)/tests/test_protection: $(wildcard docs/examples/engine/*) docs/examples/file/bitsnap_file.h
$(B)/tests/test_protection: tests/engine/test_engine.c
$(B)/tests/test_identity $(B)/tests/test_schedules: tests/engine/engine_world.h $(wildcard docs/examples/engine/*) docs/examples/file/bitsnap_file.h
$(B)/tests/test_file $(B)/tests/test_references: $(wildcard docs/examples/file/*.h) | $(B)/bitsnap
$(B)/tests/test_kv: $(wildcard docs/examples/kv/*)

#: make check       what must pass before a commit, and what .ci/run runs (needs gcc, clang, python3 and more: what is missing is skipped)
# the longest first, as they run side by side
CHECKS = tests/check/check_sanitize.sh tests/engine/check_crash.sh tests/format/check_bytes.sh \
         tests/platforms/check_neon.sh tests/check/check_strict.sh tests/check/check_docs.py tests/check/check_embed.sh \
         tests/format/check_decoder.sh tests/check/check_switches.py tests/check/check_mutants.sh \
         tests/platforms/check_avx512.sh tests/platforms/check_m32.sh tests/adapters/check_python.sh \
         tests/check/check_race.sh tests/adapters/check_offload.sh tests/platforms/check_windows.sh \
         tests/check/check_layers.py tests/platforms/check_pext.sh tests/tool/check_safety.py tests/tool/check_kill.py \
         tests/tool/check_store.py tests/check/check_stack.py tests/check/check_install.sh \
         tests/platforms/check_languages.sh tests/check/check_shell_docs.py tests/tool/check_terminal.py \
         tests/check/check_lines.py
check: $(B)/tool/bitsnap.o $(B)/tests/codec.o $(B)/tests/engine_codec.o $(B)/bitsnap $(TESTS)
	@LONG=1 DATA='$(abspath $(DATA))' CC='$(CC)' tests/run.sh $(wildcard tests/*/*.test) $(TESTS) $(CHECKS)

#: make checks      the same without what make test has done
# the programs that do more with LONG=1; that is a minute of test_file's, and a job for the night
LONGER = $(addprefix $(B)/tests/,parts test_interrupt test_quantize test_schedules test_options test_pieces)
checks: $(B)/bitsnap $(B)/tests/engine_codec.o $(LONGER)
	@LONG=1 DATA='$(abspath $(DATA))' CC='$(CC)' tests/run.sh $(LONGER) $(CHECKS)

#: make nightly     what takes too long for every commit: MemorySanitizer, AFL++, benchmarks and studies end to end, HDF5, WiredTiger, kills of FSDP2
NIGHTLY = tests/tool/tool.test tests/format/check_bytes.sh tests/platforms/check_neon.sh tests/check/check_strict.sh tests/check/check_replay.sh \
          tests/check/check_memory.sh tests/check/check_fuzz.sh tests/adapters/check_wiredtiger.sh \
          tests/check/check_study.sh tests/check/check_bench.sh tests/check/check_convergence.sh \
          tests/adapters/check_hdf5.sh tests/engine/check_schedules.sh tests/engine/check_fsdp.sh tests/adapters/check_package.sh
nightly: $(B)/bitsnap $(B)/tests/test_file
	@mkdir -p $(B); { NIGHTLY=1 LONG=1 DATA='$(abspath $(DATA))' CC='$(CC)' tests/run.sh $(B)/tests/test_file $(NIGHTLY); status=$$?; $(MAKE) -s fuzz-smoke-fast || status=1; \
	    $(MAKE) -s bench DATA='$(DATA)' BENCH='--quick --codec bitsnap,memcpy' && $(MAKE) -s bench-cli DATA='$(or $(DATA),$(B)/demo)' BENCH=--quick || status=1; \
	    exit $$status; } >$(B)/nightly.log 2>&1; status=$$?; cat $(B)/nightly.log; exit $$status

#: make python-test [SCHEDULES=10000]   the packages in Python alone; so many random orders of messages of docs/examples/sync: a nightly job
python-test: $(B)/bitsnap
	@SCHEDULES=$(or $(SCHEDULES),10000) tests/run.sh tests/adapters/check_python.sh

#: make offload-test  the device code of docs/examples/offload without a GPU, and the hook in bitsnap.h
offload-test: $(B)/tests/test_offload
	@tests/run.sh $(B)/tests/test_offload tests/adapters/check_offload.sh

#: make offload-count DATA=dir   warp instructions of the device code, executed from what nvcc makes of it (needs nvdisasm, no GPU)
offload-count:
	@PATH=$(abspath $(B))/venv/bin:$$PATH CC="$(CC)" tests/adapters/offload_sass.py $(foreach f,bf16 fp16 master adam_v,$(DATA)/$(f)-1000.safetensors)

#: make device DATA=dir [NVCOMP=dir]   what needs a GPU: tests, speeds, compute-sanitizer, counters (needs nvcc; ARCH=sm_90). bench/device.sh
#:                  says how to do it on a machine that has nothing but a GPU
device:
	@bench/device.sh prepare '$(DATA)' && bench/device.sh run $(B)/device/out

#: make switches    every combination of the switches that leave parts out (bitsnap.h names them): a nightly job, ten minutes
switches:
	@tests/check/check_switches.py all

#: make vectors     docs/vectors and tests/format/corpus.txt anew, for a change of the format before 1.0 (needs python3)
vectors:
	@python3 tests/format/vectors.py write

#: make replay      the fuzz targets on their seeds and mutations of them, without libFuzzer
replay:
	@tests/run.sh tests/check/check_replay.sh

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

#: make mutants [COUNT=40]        are missing checks noticed? Each comparison in what reads others' bytes is changed, one at a
#:                  time, and the tests have to fail; an hour for all (needs python3); tests/check/mutants*.txt have what is not noticed, and why
mutants:
	@python3 tests/check/mutants.py $(if $(COUNT),--count $(COUNT))

clean:
	rm -rf $(B)

include bench/Makefile

.PHONY: all help lib install uninstall demo test check checks nightly python-test switches vectors replay fuzz fuzz-smoke fuzz-smoke-fast \
        fuzz-smoke-checked fuzz-soak engine train_mpi crash-demo offload-test offload-count device mutants clean
