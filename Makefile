# Two commands on a fresh checkout: `make demo` and `make test`. Both set up .venv themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

CUTE_NEWEST := $(VENV)/cute-newest
FRONTENDS   := $(VENV)/frontends
ENGINES     := $(VENV)/engines
DOCS        := .venv-docs
SUITE       := $(BIN)/python -m pytest tests -n 2 --dist worksteal --ignore tests/gpu --ignore tests/wheel
CHECKED     := src tests benchmarks examples docsite

# Tests start warplens as a process hundreds of times: without kept bytecode, each compiles all of it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-frontends test-engines test-wheel docs reference lint bench gpu-test format clean

demo: $(VENV)/core.stamp
	@$(BIN)/warplens demo --output demo-output --force

# The suite with the oldest supported Triton and CuTe DSL, then what touches them with the newest.
test: $(VENV)/dev.stamp $(VENV)/triton-newest.stamp $(CUTE_NEWEST).stamp
	$(SUITE) -m "not slow" $(TEST_ARGS)
	PYTHONPATH=$(CURDIR)/$(VENV)/triton-newest $(SUITE) -k triton -m "not slow" $(TEST_ARGS)
	PYTHONPATH=$(CURDIR)/$(CUTE_NEWEST):$(CURDIR)/$(CUTE_NEWEST)/nvidia_cutlass_dsl/dsl_packages \
	  $(BIN)/python -m pytest tests/frontends/cute tests/decode/test_cute_golden.py tests/compat/test_nuggets.py \
	  tests/compat/test_iket.py \
	  -n 2 --dist worksteal -m "not slow" $(TEST_ARGS)

# What `make test` leaves out: sweeps of more than a few seconds each.
test-slow: $(VENV)/dev.stamp
	$(SUITE) -m slow $(TEST_ARGS)

# Front ends of large compilers, each with a real copy of its library; a line and a requirement for each.
test-frontends: $(VENV)/dev.stamp $(FRONTENDS).stamp
	PYTHONPATH=$(CURDIR)/$(FRONTENDS) $(BIN)/python -m pytest tests/frontends/test_nvidia_warp.py \
	  tests/frontends/test_jax_xla.py tests/frontends/triton/test_helion.py tests/frontends/test_tilelang.py \
	  tests/frontends/test_cutile.py tests/frontends/test_collective_operators.py $(TEST_ARGS)

# Install the built wheel in a clean environment of every Python that is here, and use it; needs the package index.
test-wheel: $(VENV)/dev.stamp
	$(BIN)/python -m pytest tests/wheel $(TEST_ARGS)

# The documentation site, in build/site; its links are checked and it loads nothing from the network.
docs: $(DOCS)/stamp
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --config-file docsite/mkdocs.yml
	$(DOCS)/bin/python docsite/check_site.py build/site

# The pages of docs/reference, from the docstrings and the command line.
reference: $(VENV)/dev.stamp
	$(BIN)/python -m docsite.reference_pages

# Datasets on Apache Spark, with two workers on this machine; needs Java (apt-get install default-jre-headless).
test-engines: $(VENV)/dev.stamp $(ENGINES).stamp
	PYTHONPATH=$(CURDIR)/$(ENGINES) $(BIN)/python -m pytest tests/engines $(TEST_ARGS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

bench: $(VENV)/dev.stamp
	@$(BIN)/python benchmarks/run.py

# On a machine with a GPU, with that machine's own Python and packages.
gpu-test:
	PYTHONPATH=src $(PYTHON) -m pytest tests/gpu -q

clean:
	rm -rf $(VENV) $(DOCS) build demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis

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

$(CUTE_NEWEST).stamp: Makefile | $(VENV)/dev.stamp
	@$(PIP) --no-deps --upgrade --target $(CUTE_NEWEST) 'nvidia-cutlass-dsl==4.8.1' 'apache-tvm-ffi==0.1.15' \
	  $(foreach part,base core cu12,'nvidia-cutlass-dsl-libs-$(part)==4.8.1') >&2
	@touch $@

$(FRONTENDS).stamp: Makefile | $(VENV)/dev.stamp
	@$(PIP) --no-deps --upgrade --target $(FRONTENDS) 'warp-lang==1.19.0' \
	  'helion==1.5.1' sympy mpmath networkx fsspec filelock setuptools \
	  'jax==0.10.2' 'jaxlib==0.10.2' 'jax-cuda12-plugin==0.10.2' 'jax-cuda12-pjrt==0.10.2' ml_dtypes opt_einsum scipy \
	  absl-py 'tilelang==0.1.15' 'apache-tvm-ffi==0.1.12' 'z3-solver==4.15.4.0' cloudpickle tqdm psutil \
	  'cuda-tile==1.7.0' $(foreach part,cuda-tileiras cuda-nvcc nvvm,'nvidia-$(part)==13.4.92') >&2
	@$(PIP) --no-deps --upgrade --target $(FRONTENDS) --retries 0 \
	  --extra-index-url https://download.pytorch.org/whl/cpu 'torch==2.13.0+cpu' >&2
	@touch $@

$(ENGINES).stamp: Makefile | $(VENV)/dev.stamp
	@$(PIP) --no-deps --upgrade --target $(ENGINES) 'pyspark==4.3.0' 'py4j==0.10.9.9' >&2
	@touch $@

$(VENV)/dev.stamp: pyproject.toml | $(BIN)/python
	@$(PIP) --editable '.[dev]' >&2
	@touch $@ $(VENV)/core.stamp

$(DOCS)/stamp: docsite/requirements.txt
	@echo "setting up $(DOCS)" >&2
	@$(PYTHON) -m venv $(DOCS) >&2
	@$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $< >&2
	@touch $@
