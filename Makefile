# Two commands on a fresh checkout: `make demo` and `make test`. Both set up .venv themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test lint bench gpu-test format clean

demo: $(VENV)/core.stamp
	@$(BIN)/warplens demo --output demo-output --force

# The whole suite with the oldest supported Triton, then what touches Triton with the newest.
test: $(VENV)/dev.stamp $(VENV)/triton-newest.stamp
	$(BIN)/python -m pytest tests -n 2 --dist worksteal --ignore tests/gpu $(TEST_ARGS)
	PYTHONPATH=$(CURDIR)/$(VENV)/triton-newest $(BIN)/python -m pytest tests/unit -k triton -n 2 --dist worksteal $(TEST_ARGS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix src tests benchmarks examples
	$(BIN)/ruff format src tests benchmarks examples

bench: $(VENV)/dev.stamp
	@$(BIN)/python benchmarks/run.py

# On a machine with a GPU, with that machine's own Python and packages.
gpu-test:
	PYTHONPATH=src $(PYTHON) -m pytest tests/gpu -q

clean:
	rm -rf $(VENV) demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "warplens needs Python 3.10 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "setting up $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV) >&2

$(VENV)/core.stamp: pyproject.toml | $(BIN)/python
	@$(PIP) --editable . >&2
	@touch $@

$(VENV)/triton-newest.stamp: Makefile | $(VENV)/dev.stamp
	@$(PIP) --no-deps --upgrade --target $(VENV)/triton-newest 'triton==3.9.0' >&2
	@touch $@

$(VENV)/dev.stamp: pyproject.toml | $(BIN)/python
	@$(PIP) --editable '.[dev]' >&2
	@touch $@ $(VENV)/core.stamp
