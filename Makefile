# Two commands do everything on a machine with Python 3.11, make and the package registries:
#   make demo   a local cluster, a real job on it, its logs and its end
#   make test   every test
PYTHON ?= python3
UV := .tools/bin/uv
BIN := .venv/bin
export PATH := $(CURDIR)/.tools/bin:$(PATH)
export VIRTUAL_ENV := $(CURDIR)/.venv

.PHONY: demo test test-long test-docker env lint types check bench build lock clean

demo: env ## an ephemeral local cluster runs a job of two tasks, shows its logs, and goes
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/demo

test: env ## pure, time-skipping and end to end, but for the long ones and those that need a container engine
	DOCKER_HOST=unix:///no/engine $(BIN)/pytest -m "not long and not docker" -n 4 --dist loadfile

test-long: env ## what kills and restarts whole clusters, and the guides: the gate runs it too
	$(BIN)/pytest -m "long and not docker" --timeout 900 -n 4 --dist loadfile

test-docker: env ## what needs a container engine: scripts/start-docker
	$(BIN)/pytest -m docker --timeout 900 -n 2 --dist loadfile

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: env
	$(BIN)/mypy

check: lint types test build ## what has to pass before a change lands

bench: env ## the table of docs/performance.md, measured here
	$(BIN)/python -m benchmarks

build: env ## sdist, the wheel from it, and the command from the wheel
	scripts/build

env: .venv/.ready

# uv makes the environment in seconds; a plain `pip install` brings uv where it is missing.
$(UV):
	$(PYTHON) -m venv .tools
	.tools/bin/python -m pip install --quiet --disable-pip-version-check uv

.venv/.ready: $(UV) requirements.lock pyproject.toml
	$(UV) venv --quiet --clear --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" .venv
	$(UV) pip sync --quiet --require-hashes requirements.lock
	$(UV) pip install --quiet --no-deps --editable .
	@touch $@

lock: $(UV) ## pin every package by hash; no address of a registry is written down
	$(UV) pip compile --quiet pyproject.toml --extra local --extra gcp --group dev --universal --generate-hashes \
	    --no-emit-index-url --no-header --output-file requirements.lock

clean:
	rm -rf .venv .tools build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
