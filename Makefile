# `make train` and `make test` are all a fresh machine needs: Python >= 3.11 and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready

.PHONY: help setup train test lint types imports pytest test-learning fuzz soak test-smarts test-adapters test-tune test-ray test-backends test-page docs dist lock clean

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 18

setup: $(STAMP)  ## create .venv and install the pinned, hash-checked dependencies

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "TRIDENT needs Python 3.11 or newer: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

train: $(STAMP)  ## the main job: learn to fly a UAV fleet within its limits, then table, curves and GIF
	$(BIN)/trident train uav-mec --episodes 800 --seeds 1

test: $(STAMP) lint types imports pytest  ## ruff, types, import layers, tests

lint: $(STAMP)   ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## pyright
	$(BIN)/basedpyright --level error

imports: $(STAMP)  ## import layers
	$(BIN)/lint-imports --no-cache

pytest: $(STAMP)  ## fast tests, in a process per core (they spend their time in the compiler, which uses one each)
	$(BIN)/python -m pytest -n auto --dist loadfile

test-learning: $(STAMP)  ## the long tests: minutes of training each
	$(BIN)/python -m pytest -m "learning or slow"

SCALE ?= 1
MINUTES ?= 120
SOAK ?= runs/soak

fuzz: $(STAMP)   ## attack it: command lines, files, environments, kills, full disks; counts into docs/reliability.md (SCALE=0.1: minutes)
	$(BIN)/python tests/fuzz/run.py --scale $(SCALE) --record benchmarks/reliability/record.json --docs docs/reliability.md

soak: $(STAMP)   ## one run killed, starved and resumed for MINUTES=120; goes on in SOAK=runs/soak
	$(BIN)/python tests/fuzz/run.py --soak $(MINUTES) --out $(SOAK) --record benchmarks/reliability/soak.json --docs docs/reliability.md

SMARTS := .venv-smarts

$(SMARTS)/.ready: requirements-smarts.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "SMARTS needs Python 3.11: make PYTHON=python3.11 test-smarts"; exit 2; }
	@test -x $(SMARTS)/bin/python || $(PYTHON) -m venv $(SMARTS)
	$(SMARTS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-smarts.lock
	$(SMARTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

test-smarts: $(SMARTS)/.ready  ## the SMARTS adapter, live: an environment of its own (Python 3.11, 2.2 GB), minutes
	$(SMARTS)/bin/python -m pytest -m smarts tests/envs/intersection/test_smarts_live.py

ADAPTERS := .venv-adapters

$(ADAPTERS)/.ready: requirements-adapters.lock pyproject.toml
	@test -x $(ADAPTERS)/bin/python || $(PYTHON) -m venv $(ADAPTERS)
	$(ADAPTERS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-adapters.lock
	$(ADAPTERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

test-adapters: $(ADAPTERS)/.ready  ## adapters and loggers with the packages they are for: an environment of its own, minutes
	$(ADAPTERS)/bin/python -m pytest -m "not slow and not smarts" tests/adapters tests/report/test_loggers.py
	$(ADAPTERS)/bin/python -m pytest -m adapters tests/docs/test_blocks.py

TUNE := .venv-tune

$(TUNE)/.ready: requirements-tune.lock pyproject.toml
	@test -x $(TUNE)/bin/python || $(PYTHON) -m venv $(TUNE)
	$(TUNE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-tune.lock
	$(TUNE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

test-tune: $(TUNE)/.ready  ## tuning with Optuna: an environment of its own, a minute
	$(TUNE)/bin/python -m pytest tests/bench/test_tuning.py

RAY := .venv-ray

$(RAY)/.ready: requirements-ray.lock pyproject.toml
	@test -x $(RAY)/bin/python || $(PYTHON) -m venv $(RAY)
	$(RAY)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-ray.lock
	$(RAY)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

test-ray: $(RAY)/.ready  ## campaigns on a Ray cluster of two nodes and by submitit: an environment of its own (900 MB), minutes
	$(RAY)/bin/python -m pytest -m ray tests/launch/test_clusters.py

BACKENDS := .venv-backends

$(BACKENDS)/.ready: requirements-backends.lock pyproject.toml
	@test -x $(BACKENDS)/bin/python || $(PYTHON) -m venv $(BACKENDS)
	$(BACKENDS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-backends.lock
	$(BACKENDS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

test-backends: $(BACKENDS)/.ready  ## policies by IREE and ONNX Runtime: an environment of its own
	$(BACKENDS)/bin/python -m pytest tests/export/test_backends.py

PAGE := .venv-page
CHROMIUM ?= $(firstword $(wildcard /usr/bin/chromium /usr/bin/chromium-browser /usr/bin/google-chrome))

$(PAGE)/.ready: requirements-page.lock pyproject.toml
	@test -x $(PAGE)/bin/python || $(PYTHON) -m venv $(PAGE)
	$(PAGE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-page.lock
	$(PAGE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

test-page: $(PAGE)/.ready  ## the page in headless Chromium (Debian: apt install chromium), a minute or two
	@test -n "$(CHROMIUM)" || { echo "no Chromium found: install it, or make CHROMIUM=/path/to/it test-page"; exit 2; }
	TRIDENT_CHROMIUM=$(CHROMIUM) $(PAGE)/bin/python -m pytest -m browser tests/browser

DOCS := .venv-docs

$(DOCS)/.ready: requirements-docs.lock
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@touch $@

docs: $(DOCS)/.ready  ## build the documentation into site/, which needs no network
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --quiet
	@echo "site/index.html; with search: $(PYTHON) -m http.server --bind 127.0.0.1 --directory site"

dist: $(STAMP)   ## wheel and sdist in dist/
	rm -rf dist
	$(BIN)/python -m hatchling build

lock:            ## renew every requirements*.lock (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --group dev pyproject.toml -o requirements.lock
	uv pip compile --quiet --python-version 3.11 --generate-hashes --no-header --no-annotate --extra smarts --group smarts pyproject.toml -o requirements-smarts.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --group page pyproject.toml -o requirements-page.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --extra tune --group tune pyproject.toml -o requirements-tune.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --group docs -o requirements-docs.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --extra pettingzoo --extra suites --extra wandb --extra mlflow --extra trackio --group adapters pyproject.toml -o requirements-adapters.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --extra ray --extra slurm --group ray pyproject.toml -o requirements-ray.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --extra iree --extra onnx --group backends pyproject.toml -o requirements-backends.lock

clean:           ## remove the environment and caches (never runs/ or benchmarks/)
	rm -rf $(VENV) $(SMARTS) $(ADAPTERS) $(TUNE) $(RAY) $(BACKENDS) $(PAGE) $(DOCS) site dist .ruff_cache .pytest_cache .hypothesis
