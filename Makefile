# `make demo` and `make test` do all the set-up by themselves, in .venv.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

# Threads that spin at barriers make torch many times slower on busy cores.
export OMP_WAIT_POLICY ?= passive

# mkdocs-material tells at every build when its support ends; that is for pyproject.toml to heed.
export NO_MKDOCS_2_WARNING := 1

.PHONY: demo test test-all lint format notebooks docs gallery dist clean

demo: .venv/.base
	$(BIN)/robustpll demo --out demo

# Lint, types, and all tests that need neither a browser nor long.
test: lint
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal

# What `make test` leaves out: slow tests, those in a browser and those on ray, the site, the wheel.
test-all: .venv/.dev docs dist
	$(BIN)/python -m pytest -m "slow or browser or ray"

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Executes the tutorials, and stores their outputs: some minutes.
notebooks: .venv/.dev
	$(BIN)/python docs/tutorials/execute.py

# The site, in site/. A warning is an error.
docs: .venv/.docs
	$(BIN)/mkdocs build --strict

# The pictures of docs/gallery.md, each for light and for dark pages; some minutes.
gallery: .venv/.base
	$(BIN)/python docs/gallery/draw.py

# The files that are published, in dist/, with a bill of materials of all dependencies; the wheel
# is tried in an empty environment.
dist: .venv/.dev .venv/.docs .venv/.crowds
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python benchmarks/dependencies.py --sbom dist/sbom.cdx.json
	@set -e; empty=$$(mktemp -d); trap 'rm -rf "$$empty"' EXIT; \
	  $(PYTHON) -m venv "$$empty"; \
	  "$$empty/bin/pip" install --quiet --disable-pip-version-check --no-compile -c constraints.txt dist/*.whl; \
	  cp examples/table_of_votes.py "$$empty"; cd "$$empty"; \
	  bin/robustpll --version; bin/robustpll methods; bin/python table_of_votes.py

clean:
	rm -rf .venv build dist demo site .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/.base: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "robustpll needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12"; exit 1; }
	@echo "Setting up .venv (once; torch is large, so this takes a minute or more)"
	$(PYTHON) -m venv .venv
	$(PIP) -e .
	@touch $@

.venv/.dev: .venv/.base tests/encoders-requirements.txt
	@echo "Adding the tools for tests"
	$(PIP) -e ".[dev]"
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
	  -r tests/encoders-requirements.txt
	@touch $@

# What other extras do not bring.
.venv/.crowds: .venv/.base
	$(PIP) -e ".[crowds]"
	@touch $@

.venv/.docs: .venv/.base
	@echo "Adding the tools for the site"
	$(PIP) -e ".[docs]"
	@touch $@
