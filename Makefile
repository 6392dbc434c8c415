# make demo   install everything into .venv (once) and make full-size MiniLM-L6 faster on this machine
# make test   install everything into .venv (once), then ruff, mypy and the tests
# make test-full   the same with what takes long: full-size networks, all of onnx's own cases, many random graphs
# make test-sb3    trains sb3-contrib's MaskablePPO on the environment; installs PyTorch first
# make test-ray    runs units on Ray clusters of two nodes on this machine, and kills nodes and drivers; installs Ray first
# make test-browser  opens HTML pages in Chromium without a window; installs Altair first (Debian: apt install chromium)
# make docs   build the documentation site in docs/_build/html and check the links in it; installs Sphinx first
# make docs-links  checks the links to other sites too, which needs a network
# make lint   ruff and mypy only
# make sanitize          tests/taso_ext with an engine that checks every access and every integer operation
# make sanitize-threads  the tests of multi-threaded searches with an engine that checks for data races
# make wheel  build dist/*.whl, which installs and runs without a compiler; `make test-full` tests it
# make fuzz   half a minute of random input for each target in tests/fuzz; FUZZ_SECONDS=600 or FUZZ_RUNS=1000000 takes
#             other lengths, FUZZ_TARGETS="rules buffers" some of the targets
# make attack   random nasty models, faults in the middle of runs, and wrong rules (hours); ATTACK_COUNT=100 ATTACK_SEED=5000
#               takes other numbers of each, ATTACKS="models rules" some of them

PYTHON ?= python3
JOBS   ?= 2
SEED   ?= 0
FUZZ_SECONDS ?= 30
FUZZ_RUNS    ?= 0
FUZZ_TARGETS ?=
ATTACKS      ?= models faults rules
ATTACK_COUNT ?=
ATTACK_SEED  ?= 0

VENV   := .venv
BIN    := $(VENV)/bin
# Both stamps are written last: an interrupted step leaves none and is done again by the same command.
INSTALLED := $(VENV)/.installed
BUILT     := $(VENV)/.built
ENGINE_SOURCES := $(wildcard taso_ext/src/*/*)

# The nets are small: a thread per process is faster than two, and leaves the cores to the test workers.
ONE_THREAD := OMP_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 TF_CPP_MIN_LOG_LEVEL=3

.PHONY: demo test test-full test-sb3 test-ray test-browser lint \
  sanitize sanitize-threads fuzz attack wheel docs docs-links install clean
.SHELLFLAGS := -eu -c

demo: $(BUILT)
	$(BIN)/rlflow optimise minilm-l6 -o runs/minilm-l6.opt.onnx --force --preset demo --seed $(SEED)

test: lint
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

test-full: lint
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not sb3 and not ray and not browser"

test-sb3: $(BUILT)
	RLFLOW_PYTHON_ONLY=1 $(BIN)/python -m pip install --disable-pip-version-check --no-build-isolation --editable ".[dev,sb3]"
	$(ONE_THREAD) $(BIN)/python -m pytest -m sb3 tests/environment/substitution/test_candidates_sb3.py tests/controller/sb3

test-ray: $(BUILT)
	RLFLOW_PYTHON_ONLY=1 $(BIN)/python -m pip install --disable-pip-version-check --no-build-isolation --editable ".[dev,ray]"
	$(ONE_THREAD) $(BIN)/python -m pytest -m ray tests/experiments/executors tests/controller/placement

test-browser: $(BUILT)
	RLFLOW_PYTHON_ONLY=1 $(BIN)/python -m pip install --disable-pip-version-check --no-build-isolation --editable ".[dev,report]"
	$(ONE_THREAD) $(BIN)/python -m pytest -m browser tests/experiments/reports

# Warnings are errors: a link that leads nowhere, or markup in a docstring that does not parse.
docs: $(BUILT) $(VENV)/.docs
	$(ONE_THREAD) $(BIN)/python -m sphinx -q -W --keep-going -b html -c docs . docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html

docs-links: $(BUILT) $(VENV)/.docs
	$(ONE_THREAD) $(BIN)/python -m sphinx -q --keep-going -b linkcheck -c docs . docs/_build/linkcheck

$(VENV)/.docs: $(INSTALLED)
	RLFLOW_PYTHON_ONLY=1 $(BIN)/python -m pip install --disable-pip-version-check --no-build-isolation --editable ".[dev,docs]"
	touch $@

lint: $(BUILT)
	$(BIN)/ruff check .
	$(BIN)/mypy

# A second package `taso_ext`, found before the first: the same files, by links, around an engine of its own. The runtime
# of the checks has to be there before Python's first allocation, and libstdc++ before the runtime looks for `throw`.
# pytest must not capture what the runtime prints as it ends the process.
sanitized = $(ONE_THREAD) PYTHONSAFEPATH=1 PYTHONPATH=build/sanitize/$(1):. RLFLOW_ENGINE=build/sanitize/$(1) \
  LD_PRELOAD="$$($${CXX:-g++} -print-file-name=lib$(2).so) $$($${CXX:-g++} -print-file-name=libstdc++.so)"
link_package = ln -sfn $(filter-out %.so %__pycache__,$(wildcard $(CURDIR)/taso_ext/*)) build/sanitize/$(1)/taso_ext/

# Python and its libraries leak by design: only leaks of the engine fail. It may keep what importing it creates.
sanitize: build/sanitize/address/.built
	$(call link_package,address)
	rm -f build/sanitize/leaks.*
	$(call sanitized,address,asan) UBSAN_OPTIONS=print_stacktrace=1 LSAN_OPTIONS=exitcode=0:log_path=build/sanitize/leaks \
	  $(BIN)/python -m pytest --import-mode=append --capture=sys -p no:cacheprovider tests/taso_ext
	@cat build/sanitize/leaks.* 2>/dev/null | awk 'BEGIN { RS = ""; ORS = "\n\n" } \
	  /taso_ext\/_core|rlflow::/ && !/pybind11_exec__core/ { print; found = 1 } END { exit found }'

# Without address randomisation: the checker needs most addresses for itself, and asks for this where it may.
sanitize-threads: build/sanitize/thread/.built
	$(call link_package,thread)
	$(call sanitized,thread,tsan) TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=1 \
	  setarch --addr-no-randomize $(BIN)/python -m pytest --import-mode=append --capture=sys -p no:cacheprovider tests/taso_ext/engine/test_search_threads.py

build/sanitize/address/.built: CHECKS := address,undefined
build/sanitize/thread/.built: CHECKS := thread
build/sanitize/%/.built: $(INSTALLED) $(ENGINE_SOURCES) setup.py
	RLFLOW_SANITIZE=$(CHECKS) $(BIN)/python setup.py -q build_ext --build-lib $(@D) --build-temp $(@D)/objects
	touch $@

fuzz: build/fuzz/rules build/fuzz/buffers build/fuzz/.atheris $(BUILT)
	$(BIN)/python tests/fuzz/fuzz.py --seconds $(FUZZ_SECONDS) --runs $(FUZZ_RUNS) $(FUZZ_TARGETS)

# Each kind of attack runs even if the one before it has found faults.
attack: $(BUILT)
	failed=0; for kind in $(ATTACKS); do \
	  $(ONE_THREAD) $(BIN)/python -m tests.attack $$kind --first $(ATTACK_SEED) $(if $(ATTACK_COUNT),--count $(ATTACK_COUNT)) \
	    --processes $(JOBS) || failed=1; done; exit $$failed

# libFuzzer is part of clang. Comparisons are not traced: the targets choose their own values, and it halves their speed.
FUZZ_CXX   ?= clang++
FUZZ_FLAGS := -std=c++20 -O2 -gline-tables-only -fno-omit-frame-pointer -Wall -Wextra -Werror -Itaso_ext/src -MMD \
  -fsanitize=address,undefined -fno-sanitize-recover=all
# Everything but what only Python needs.
FUZZ_ENGINE := $(patsubst taso_ext/src/%.cpp,build/fuzz/engine/%.o,\
  $(filter-out taso_ext/src/bindings/% taso_ext/src/generator/%,$(wildcard taso_ext/src/*/*.cpp)))

build/fuzz/rules: $(FUZZ_ENGINE) build/fuzz/rules.o
build/fuzz/buffers: $(FUZZ_ENGINE) build/fuzz/drafted_graph.o build/fuzz/buffers.o
build/fuzz/rules build/fuzz/buffers:
	$(FUZZ_CXX) $(FUZZ_FLAGS) -fsanitize=fuzzer $^ -o $@
build/fuzz/engine/%.o: taso_ext/src/%.cpp | build/fuzz/.clang
	@mkdir -p $(@D)
	$(FUZZ_CXX) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -fno-sanitize-coverage=trace-cmp -c $< -o $@
build/fuzz/%.o: tests/fuzz/%.cpp | build/fuzz/.clang
	$(FUZZ_CXX) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -fno-sanitize-coverage=trace-cmp -c $< -o $@
-include $(wildcard build/fuzz/*.d build/fuzz/engine/*/*.d)

build/fuzz/.clang:
	@command -v $(FUZZ_CXX) >/dev/null || { \
	  echo "Fuzzing needs clang++ 14 or newer with libFuzzer. On Debian: apt install clang libclang-rt-14-dev"; exit 1; } >&2
	mkdir -p build/fuzz/engine
	touch $@
build/fuzz/.atheris: $(INSTALLED)
	$(BIN)/python -m pip install --disable-pip-version-check "atheris~=3.0"
	mkdir -p build/fuzz
	touch $@

install: $(BUILT)

# Into an empty folder: files of an earlier build that are gone since would be in the wheel too.
wheel: $(BUILT)
	rm -rf build/wheel
	$(BIN)/python setup.py -q build --build-lib build/wheel bdist_wheel --dist-dir dist

clean:
	rm -rf build dist docs/_build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f taso_ext/_core.*.so taso_ext/_generator.*.so $(BUILT)

# A missing stamp on an existing .venv means an interrupted install. Half-written packages can look complete to pip,
# so the environment is made anew; the downloads are in pip's cache.
$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "RLFlow needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true)." \
	       "Install one (Debian: apt install python3) or name it: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; } >&2
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot create virtual environments. On Debian: apt install python3-venv"; exit 1; } >&2
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || { \
	  echo "The headers of '$(PYTHON)' are missing (Python.h). On Debian: apt install python3-dev"; exit 1; } >&2
	@command -v $${CXX:-g++} >/dev/null || { \
	  echo "No C++ compiler found (g++ 11 or newer). On Debian: apt install build-essential"; exit 1; } >&2
	@echo "Installing into $(VENV): about 680 MB to download, 3 GB on disk."
	test -f $@ || $(PYTHON) -m venv --clear $(VENV)
	rm -f $@ $(BUILT)
	$(BIN)/python -m pip install --disable-pip-version-check --upgrade "pip>=24" "setuptools>=77" "pybind11~=3.0"
	RLFLOW_PYTHON_ONLY=1 $(BIN)/python -m pip install --disable-pip-version-check --no-build-isolation --editable ".[dev]"
	touch $@

$(BUILT): $(INSTALLED) $(ENGINE_SOURCES) setup.py
	$(BIN)/python setup.py -q build_ext --inplace
	touch $@
