# Everything a developer does here, one word each. Needs make and a Python >= 3.10 with venv; the rest is installed
# into .venv on first use and again when pyproject.toml or constraints.txt change.

# The first Python on the path that is new enough; another one: make PYTHON=/path/to/python3 ...
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && { echo $$p; break; }; done)
# Extra words for pip, e.g. a CPU-only torch: make demo PIP_ARGS='--extra-index-url https://download.pytorch.org/whl/cpu'
PIP_ARGS ?=
# Words passed on to pytest and to the benchmarks: make test ARGS='-k matmul'
ARGS ?=
# Processes of `make test`.
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
# Byte code, which an ordinary installation has too: without it every start compiles the sources again.
COMPILE = $(PY) -m compileall -q nki interpreter nki_lib neuronxcc
INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt $(PIP_ARGS)
PYTEST = $(PY) -m pytest
SMOKE = $(wildcard tests/test_architecture.py tests/ir tests/isa/test_tensor_copy.py tests/isa/test_nc_matmul.py)

# One thread per process: the tests run in several, and the benchmarks compare one thread with one thread.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

##@ First steps

.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z][a-z-]*:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: $(VENV)/.run ## a PyTorch transformer with FlashAttention on our NeuronCore: values, time, profile page
	@$(PY) -m nki_lib.demo $(ARGS)

.PHONY: venv
venv: $(VENV)/.dev ## only the set-up (.venv with everything the targets below need)

##@ While working

.PHONY: smoke
smoke: $(VENV)/.dev ## the tests of the core, in three seconds
	@$(PYTEST) -q -x -n 0 -m 'not slow and not bench' $(SMOKE) $(ARGS)

.PHONY: format
format: $(VENV)/.dev ## let ruff format and repair what it can
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

.PHONY: golden
golden: $(VENV)/.dev ## rewrite tests/golden from what the code does now; read the diff before you commit it
	@$(PYTEST) -n $(JOBS) --update-golden $(ARGS)
	@git --no-pager diff --stat -- tests/golden

.PHONY: docs
docs: $(VENV)/.dev ## write the generated pages under docs/
	@$(PY) -m tools.docs $(ARGS)

##@ Before a commit

.PHONY: lint
lint: static ## ruff, mypy --strict, import contracts, size and naming rules
	@$(PYTEST) -q -n 0 tests/test_architecture.py

# All four always run, so that one visit shows everything.
.PHONY: static
static: $(VENV)/.dev
	@failed=; \
	$(BIN)/ruff check . || failed="$$failed ruff-check"; \
	$(BIN)/ruff format --check . || failed="$$failed ruff-format"; \
	$(BIN)/mypy || failed="$$failed mypy"; \
	$(BIN)/lint-imports --no-logo || failed="$$failed lint-imports"; \
	if [ -n "$$failed" ]; then echo "lint: failed:$$failed" >&2; exit 1; fi

# Both halves always run, so that a missing blank line does not hide a wrong number; pytest's closing line comes last.
.PHONY: test
test: $(VENV)/.dev ## lint and the whole test suite
	@failed=; \
	$(MAKE) --no-print-directory static || failed="$$failed lint"; \
	$(PYTEST) -n $(JOBS) --dist worksteal $(ARGS) || failed="$$failed pytest"; \
	if [ -n "$$failed" ]; then echo "make test: failed:$$failed" >&2; exit 1; fi

.PHONY: property
property: $(VENV)/.dev ## the property tests with many examples (minutes)
	@HYPOTHESIS_PROFILE=long NKI_FUZZ_COUNT=$${NKI_FUZZ_COUNT:-10000} $(PYTEST) -n $(JOBS) --dist worksteal tests/property $(ARGS)

.PHONY: bench
bench: $(VENV)/.run ## the table of benchmarks, against plain NumPy in the same process
	@$(PY) -m benchmarks $(ARGS)

.PHONY: scale
scale: $(VENV)/.run ## the time model on a million instructions: seconds and memory (minutes)
	@$(PY) -m benchmarks.scale

.PHONY: accuracy
accuracy: $(VENV)/.run ## predicted against published times; writes docs/accuracy.md (ten minutes)
	@$(PY) -m benchmarks.accuracy --write

##@ Cleaning up

.PHONY: clean
clean: ## remove caches and build results; keeps .venv
	rm -rf build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## the same, and .venv
	rm -rf $(VENV)

# --- set-up -------------------------------------------------------------------------------------------------------

$(PY):
	@[ -n "$(PYTHON)" ] || { echo 'No Python >= 3.10 on the path. Install one, or say: make PYTHON=/path/to/python3' >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(PY)
	@echo 'Installing what running needs (PyTorch included; the first time takes a few minutes)'
	@$(INSTALL) --editable '.[torch]'
	@$(COMPILE)
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo 'Installing what the tests and the linters need'
	@$(INSTALL) --editable '.[hf,torchao,dev]'
	@$(COMPILE)
	@touch $@
