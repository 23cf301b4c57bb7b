# `make test` on a fresh machine with only Python makes .venv, installs what is needed, runs every test.
# A stamp remembers what was installed; only a change of the files it depends on installs again.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# `make test LOCK=lock.txt` takes the versions that all tests have passed with, not the newest ones, and
# checks the hash of each. PyTorch alone has no hash: its builds differ by machine.
LOCK ?=
# Compiled files are kept also where the environment says not to: they save each worker seconds.
# In CI every run has the same order, as hypothesis draws the same examples there.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n $(WORKERS) $(if $(CI),--randomly-seed=4206394953)

.PHONY: test quick torture lint demo docs results wheel format lock mutants bench clean

test: $(VENV)/.dev
	$(PYTEST)

quick: $(VENV)/.dev
	$(PYTEST) -m "not slow and not torture"

# The campaigns in full: hours of kills, flipped bits and odd inputs.
torture: $(VENV)/.dev
	$(PYTEST) -m torture

demo: $(VENV)/.demo
	$(BIN)/snapsure demo

# Material prints a notice about MkDocs 2, which is not installed here. Hide it.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The tables and pictures of the pages, from the archives in results/: a minute or two.
results: $(VENV)/.dev
	$(BIN)/python -m tools.results

# The sdist, a wheel from it, and that wheel in clean environments.
wheel: $(VENV)/.dev
	$(BIN)/python tools/check_wheel.py

lint: $(VENV)/.lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(VENV)/.lint
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The versions that `make test LOCK=lock.txt` takes. Add --upgrade for newer ones.
lock: $(VENV)/.dev
	echo "torch; python_version < '3'" | $(BIN)/uv pip compile --quiet --generate-hashes --extra dev \
	  -c constraints.txt --overrides - --python-version 3.11 --no-header --no-annotate pyproject.toml -o lock.txt

# Small changes of the code that the tests should notice: make mutants ONLY='metrics/*' SEED=1
ONLY ?= *
SEED ?= 0
mutants: $(VENV)/.dev
	$(BIN)/pip install --quiet 'coverage>=7'
	$(BIN)/python -m tools.mutants --workers $(WORKERS) --only '$(ONLY)' --seed $(SEED)

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .mutants

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.dev: pyproject.toml constraints.txt $(LOCK) | $(VENV)/bin/python
ifdef LOCK
	$(BIN)/pip install --quiet --no-deps --require-hashes -r $(LOCK)
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
else
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
endif
	touch $@

# Linters, the demo and the documentation need less than the tests do.
$(VENV)/.lint: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install --quiet -c constraints.txt -e '.[lint]'
	touch $@

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install --quiet -c constraints.txt -e '.[demo]'
	touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install --quiet -c constraints.txt -e '.[docs]'
	touch $@

$(VENV)/.bench: benchmarks/requirements.txt $(VENV)/.dev
	$(BIN)/pip install --quiet -c constraints.txt -r benchmarks/requirements.txt
	touch $@
