# `make demo` and `make test` do all the set-up by themselves, in .venv.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

# Threads that spin at barriers make torch many times slower on busy cores.
export OMP_WAIT_POLICY ?= passive

.PHONY: demo test test-all lint format clean

demo: .venv/.base
	$(BIN)/robustpll demo --out demo

# Lint, types, and all tests that need neither a browser nor long.
test: lint
	$(BIN)/python -m pytest

# What `make test` leaves out: slow tests, those in a browser and those on ray.
test-all: .venv/.dev
	$(BIN)/python -m pytest -m "slow or browser or ray"

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build dist demo .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/.base: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "robustpll needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12"; exit 1; }
	@echo "Setting up .venv (once; torch is large, so this takes a minute or more)"
	$(PYTHON) -m venv .venv
	$(PIP) -e .
	@touch $@

.venv/.dev: .venv/.base
	@echo "Adding the tools for tests"
	$(PIP) -e ".[dev]"
	@touch $@
