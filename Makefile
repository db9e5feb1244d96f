# Everything a person or a machine does with this checkout. Needs Python 3.11 or newer, make and pip;
# the rest is installed on first use into a virtual environment inside the checkout.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIN := constraints.txt
OLDEST := $(VENV)-oldest
NEEDS := pyproject.toml $(PIN)
KERNELS := $(wildcard solvers/kernels/*.py)

# The tests in these groups need a service or a device of their own.
PLAIN_AND_SLOW := not gpu and not slurm and not kubernetes and not browser

.PHONY: help demo test test-all test-oldest lint docs bench clean
.DELETE_ON_ERROR:

help:
	@echo "make demo      install the planner and plan scenarios/quickstart.yaml"
	@echo "make test      the plain tests, some minutes"
	@echo "make test-all  the plain and the slow tests"
	@echo "make test-oldest  the plain tests on the oldest libraries supported"
	@echo "make lint      ruff and mypy"
	@echo "make docs      write the generated docs anew"
	@echo "make bench     the benchmarks"
	@echo "make clean     remove what make and the tools left here"

demo: $(VENV)/.planner $(VENV)/.kernels
	$(BIN)/planner plan scenarios/quickstart.yaml --out plan.json

test: $(VENV)/.dev $(VENV)/.kernels
	$(BIN)/python -m pytest -q

test-all: $(VENV)/.dev $(VENV)/.kernels
	$(BIN)/python -m pytest -q -m "$(PLAIN_AND_SLOW)"

test-oldest: $(OLDEST)/.dev
	$(OLDEST)/bin/python -m pytest -q -p no:cacheprovider

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/.planner
	$(BIN)/python -m planner schema --table --out docs/keys.md

bench: $(VENV)/.dev $(VENV)/.kernels
	$(BIN)/python tests/benchmarks/load.py
	$(BIN)/python tests/benchmarks/epochs.py
	$(BIN)/python tests/benchmarks/solve_engines.py
	$(BIN)/python tests/benchmarks/solve.py

clean:
	rm -rf .venv .venv-oldest build dist planner.egg-info plan.json .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find planner solvers tests -name __pycache__ -prune -exec rm -rf {} +

# The stamps: a second make finds them newer than what they were made from, and installs nothing.
$(VENV)/.planner: $(NEEDS) | $(BIN)/python
	@echo "Installing the planner into $(VENV) (a minute or two the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(PIN) -e '.[predict]'
	@touch $@

$(VENV)/.dev: $(NEEDS) | $(BIN)/python
	@echo "Installing the planner and its development tools into $(VENV) (a minute or two the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(PIN) -e '.[dev]'
	@touch $@ $(VENV)/.planner

$(VENV)/.kernels: $(KERNELS) | $(BIN)/python
	@echo "Compiling the kernels of the pattern engine (about a minute, once for each version of them)"
	@$(BIN)/python -m solvers.kernels
	@touch $@

# Some systems ship python3 without the bundled pip that venv copies; the system's own pip then fills in.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	    { echo "make: the planner needs Python 3.11 or newer; found $$($(PYTHON) --version 2>&1)." \
	    "Say where one is: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || \
	    { $(PYTHON) -m venv --clear --without-pip $(VENV) && \
	    $(PYTHON) -m pip --python $(BIN)/python install --quiet --disable-pip-version-check pip; }

$(OLDEST)/.dev: pyproject.toml constraints-oldest.txt
	@$(MAKE) --no-print-directory VENV=$(OLDEST) $(OLDEST)/bin/python
	@echo "Installing the oldest supported libraries into $(OLDEST)"
	@$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-oldest.txt -e '.[predict]' pytest hypothesis networkx
	@$(OLDEST)/bin/python -m solvers.kernels
	@touch $@
