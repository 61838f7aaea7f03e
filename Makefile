# The two commands of a newcomer are `make reproduce` and `make test`. Both install what the lock files in requirements/
# name into .venv, with nothing but Python's own venv and pip, and install again only when a lock file changes.

PYTHON ?= python3
VENV ?= .venv
SPEC ?= near-tie
JOBS ?= 2

RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip install --quiet --quiet --disable-pip-version-check
# Without a C++ compiler there would be no device `cpu`: the one of a wheel is installed then.
COMPILER := $(or $(filter-out default,$(origin CXX)),$(shell for name in c++ g++ clang++; do command -v $$name; done; true))
# The emulated AMD GPU is used through CuPy's wheel for ROCm, which there is for x86-64 only.
ROCM := $(if $(filter x86_64,$(shell uname -m)),$(VENV)-rocm)
ifneq ($(EMULATE),)
$(if $(ROCM),,$(error an AMD GPU is emulated on x86-64 only: CuPy has no wheel for ROCm on $(shell uname -m)))
endif
# One thread per worker: two workers with two threads each are slower on two cores, and results do not depend on it.
PYTEST := OMP_NUM_THREADS=1 $(if $(ROCM),NEARTIE_ROCM_PYTHON=$(abspath $(ROCM))/bin/python) \
  $(RUN) -m pytest -q -n $(JOBS) --dist worksteal

.PHONY: help reproduce install test test-more test-amd lint format lock clean
.DELETE_ON_ERROR:

help:
	@echo "make reproduce    run the investigation $(SPEC); MODEL=folder DEVICE=name ARGS='...' choose others, SPEC=name too"
	@echo "                  EMULATE=gfx1200 runs it on an emulated AMD GPU"
	@echo "make test         lint, types and the quick tests (at most 15 minutes with the installation)"
	@echo "make test-more    the slow tests"
	@echo "make test-amd     everything compiled for AMD GPUs or run on emulated ones, and nothing else"
	@echo "make lint         ruff, mypy and clang-format; make format repairs what they can repair"
	@echo "make lock         resolve requirements/*.lock again; UPGRADE=--upgrade takes newer releases"
	@echo "make clean        remove the environment and everything that was made"

# EMULATE=gfx1200: the same on an emulated AMD GPU, which is then the backend under investigation.
reproduce: DEVICE ?= $(if $(EMULATE),gpu)
reproduce: $(VENV)/project.installed $(if $(EMULATE)$(filter amd-execution,$(SPEC)),$(ROCM)/installed)
	@$(if $(EMULATE),$(RUN) -m toolkit emulate $(EMULATE) -- $(ROCM)/bin/python,$(RUN)) -m toolkit reproduce $(SPEC) $(if $(MODEL),--model "$(MODEL)") $(if $(DEVICE),-p "device_b=$(DEVICE)") $(ARGS)

install: $(VENV)/dev.installed

test: lint $(if $(ROCM),$(ROCM)/installed)
	$(PYTEST) -m "not slow"

test-more: install $(if $(ROCM),$(ROCM)/installed)
	$(PYTEST) -m slow

# Everything of the AMD tool chain and on emulated AMD GPUs; `test` and `test-more` have it in two parts.
test-amd: install $(if $(ROCM),$(ROCM)/installed)
	$(PYTEST) -m rocm

lint: install
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/clang-format --dry-run -Werror kernels/*.hip kernels/*.h
	test ! -x $(VENV)/bin/shellcheck || $(VENV)/bin/shellcheck .ci/run

format: install
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .
	$(VENV)/bin/clang-format -i kernels/*.hip kernels/*.h

$(RUN):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is needed, and $(PYTHON) is not: run make PYTHON=/path/to/python3.12" >&2; exit 2; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) has no working venv (on Debian and Ubuntu: apt-get install python3-venv)" >&2; exit 2; }

$(VENV)/core.installed: requirements/core.lock requirements/build.lock requirements/compiler.lock $(RUN)
	@echo "installing requirements/core.lock$(if $(COMPILER),, and a C++ compiler from requirements/compiler.lock)"
	@$(PIP) -r requirements/core.lock -r requirements/build.lock $(if $(COMPILER),,-r requirements/compiler.lock)
	@touch $@

$(VENV)/project.installed: pyproject.toml $(VENV)/core.installed
	@$(PIP) --no-build-isolation --no-deps --editable .
	@touch $@

$(VENV)/dev.installed: requirements/dev.lock $(VENV)/project.installed
	@echo "installing requirements/dev.lock"
	@$(PIP) -r requirements/dev.lock
	@touch $@

# CuPy for ROCm has the import name of CuPy for CUDA, so it gets an environment of its own; all else that the environment
# holds is found in the first one.
$(ROCM)/installed: requirements/rocm.lock $(VENV)/project.installed
	@echo "installing requirements/rocm.lock into $(ROCM)"
	@rm -rf $(ROCM)
	@$(RUN) -m venv --without-pip $(ROCM)
	@$(RUN) -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > $$(echo $(ROCM)/lib/python*/site-packages)/shared.pth
	@$(RUN) -m pip --python $(ROCM)/bin/python install --quiet --quiet --disable-pip-version-check -r requirements/rocm.lock
	@touch $@

# The locks are complete, one per extra, so that each installs alone; resolving all extras together first makes them
# agree, and starting from the present locks keeps every release that still fits. They hold hashes for every platform
# and no address of an index.
UV := .venv-lock/bin/uv
COMPILE := $(UV) pip compile --quiet --universal --fork-strategy fewest --python-version 3.11 --generate-hashes \
  --no-header --no-annotate --no-emit-index-url $(UPGRADE)
EXTRAS_dev := --extra dev --extra lab
EXTRAS_rocm := --extra rocm
EXTRAS_cuda := --extra cuda

lock:
	@test -x $(UV) || { $(PYTHON) -m venv .venv-lock && .venv-lock/bin/pip install --quiet uv==0.13.9; }
	@mkdir -p build
	@$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  > build/build-system.in
	@cat requirements/*.lock > build/all.lock
	$(COMPILE) pyproject.toml build/build-system.in --all-extras -o build/all.lock
	$(COMPILE) build/build-system.in -c build/all.lock -o requirements/build.lock
	echo ziglang | $(COMPILE) - -c build/all.lock -o requirements/compiler.lock
	$(foreach name,core dev rocm cuda,$(COMPILE) pyproject.toml $(EXTRAS_$(name)) -c build/all.lock \
	  -o requirements/$(name).lock &&) true

clean:
	rm -rf $(VENV) $(VENV)-rocm .venv-lock build dist out .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
