# make demo   install everything into .venv (once) and optimise full-size SqueezeNet1.1
# make test   install everything into .venv (once), then ruff, mypy and the tests
# make test-full   the same with what takes long: full-size networks, all of onnx's own cases, many random graphs
# make test-sb3    trains sb3-contrib's MaskablePPO on the environment; installs PyTorch first
# make lint   ruff and mypy only

PYTHON ?= python3
JOBS   ?= 2
SEED   ?= 0

VENV   := .venv
BIN    := $(VENV)/bin
# Both stamps are written last: an interrupted step leaves none and is done again by the same command.
INSTALLED := $(VENV)/.installed
BUILT     := $(VENV)/.built
ENGINE_SOURCES := $(wildcard taso_ext/src/*)

# The nets are small: a thread per process is faster than two, and leaves the cores to the test workers.
ONE_THREAD := OMP_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 TF_CPP_MIN_LOG_LEVEL=3

.PHONY: demo test test-full test-sb3 lint install clean
.SHELLFLAGS := -eu -c

demo: $(BUILT)
	$(BIN)/rlflow optimise squeezenet1.1 -o runs/squeezenet1.1.opt.onnx --force --preset demo --seed $(SEED)

test: lint
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

test-full: lint
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not sb3"

test-sb3: $(BUILT)
	$(BIN)/python -m pip install --disable-pip-version-check --no-build-isolation --editable ".[dev,sb3]"
	$(ONE_THREAD) $(BIN)/python -m pytest -m sb3 tests/environment/test_candidates_sb3.py

lint: $(BUILT)
	$(BIN)/ruff check .
	$(BIN)/mypy

install: $(BUILT)

clean:
	rm -rf build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f taso_ext/_core.*.so $(BUILT)

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
	@echo "Installing into $(VENV): about 670 MB to download, 3 GB on disk."
	test -f $@ || $(PYTHON) -m venv --clear $(VENV)
	rm -f $@ $(BUILT)
	$(BIN)/python -m pip install --disable-pip-version-check --upgrade "pip>=24" "setuptools>=77" "pybind11~=3.0"
	$(BIN)/python -m pip install --disable-pip-version-check --no-build-isolation --editable ".[dev]"
	touch $@

$(BUILT): $(INSTALLED) $(ENGINE_SOURCES) setup.py
	$(BIN)/python setup.py -q build_ext --inplace
	touch $@
