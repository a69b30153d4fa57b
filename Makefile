# Everything a newcomer needs: `make run`, `make test`, `make check`. Needs Python 3.11 or newer and its pip; uv is
# used where it is present, because it is quicker. What is installed is pinned in requirements/*.lock: `run` for running,
# `dev` for changing Doorstep, and one file for each extra (make install EXTRAS="otel apprise").

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)

PYTEST := $(BIN)/python -m pytest

# The tests start the program hundreds of times: compiled once, it starts a fifth sooner.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install run test test-all programs check format bench bench-rivals bench-against torture examples demo \
	lock release clean aws-package

help:
	@echo "make install   install Doorstep into $(VENV)"
	@echo "make run       start it at http://127.0.0.1:8080"
	@echo "make test      run the tests that a change needs, in minutes"
	@echo "make test-all  run all tests: both databases, whole matrices, controls"
	@echo "make check     format, lint, types, import rules, generated pages"
	@echo "make bench     measure its speed (make bench-rivals: and that of other queues)"
	@echo "make bench-against REF=main~20   compare its CPU with that of another revision"
	@echo "make torture   the long fault tests"
	@echo "make examples  run the examples"
	@echo "make profile-NAME   start the server of a profile: integrations, protocols, sms, triggers, webhooks"
	@echo "make demo      start it with something to look at"
	@echo "make aws-package   build the packages of the functions on AWS (PROGRAM=folder adds your own)"
	@echo "make lock      pin the newest versions that fit (needs uv)"
	@echo "make release   build and check the files of a release"
	@echo "make clean     remove what was built (not your data)"

install: $(VENV)/.installed-run $(EXTRAS:%=$(VENV)/.installed-%)

run: install
	$(BIN)/doorstep serve

# Twice the cores of a small machine, because many tests wait for a program; whoever is done takes tests of another,
# because the long ones are in few files.
WORKERS := 4

SUITE := $(PYTEST) -q -n $(WORKERS) --dist worksteal tests

test: $(VENV)/.installed-dev programs
	$(SUITE) -m "not full"

test-all: $(VENV)/.installed-dev programs
	$(SUITE)

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python docs/generate.py --check
	$(BIN)/python docs/reference/generate.py --check

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.installed-dev
	$(BIN)/python -m bench

bench-rivals: $(VENV)/.installed-dev
	$(BIN)/python -m bench rivals

# REF: the revision to compare with. HERE: the one to judge, HEAD unless given. Also ONLY="accept start", PAIRS, STORE.
bench-against: $(VENV)/.installed-dev
	$(BIN)/python -m bench.against $(REF) $(if $(HERE),--here $(HERE)) $(if $(STORE),--store $(STORE)) \
		$(if $(PAIRS),--pairs $(PAIRS)) $(if $(ONLY),--only $(ONLY))

torture: $(VENV)/.installed-dev
	TORTURE=1 $(PYTEST) -q -s tests/contract/test_lockstep.py tests/simulation tests/faults
	$(BIN)/python -m tests.faults.torture

examples: install
	@for example in examples/*/__main__.py; do \
		name=$$(basename $$(dirname $$example)); \
		module=examples.$$name; \
		test ! -f examples/$$name/story.py || module=$$module.story; \
		echo; echo "python -m $$module"; echo; \
		$(BIN)/python -m $$module || exit 1; \
	done

# The server of a profile with its simulated counterpart: make profile-triggers. Ctrl-C stops it.
profile-%: install
	$(BIN)/python -m examples.$*

demo: install
	$(BIN)/doorstep demo

# TARGET_PYTHON and TARGET_ARCHITECTURE: what the functions run on; deploy/aws has the same defaults.
TARGET_PYTHON ?= 3.13
TARGET_ARCHITECTURE ?= x86_64

aws-package: $(VENV)/.installed-dev
	$(BIN)/python -m deploy.aws.package --python $(TARGET_PYTHON) --architecture $(TARGET_ARCHITECTURE) \
		$(if $(PROGRAM),--add $(PROGRAM))

lock:
	uv pip compile pyproject.toml --extra server --extra postgres $(LOCK_OPTIONS) -o requirements/run.lock
	uv pip compile pyproject.toml --extra server --extra postgres --extra aws --group dev -c requirements/run.lock $(LOCK_OPTIONS) -o requirements/dev.lock
	uv pip compile --group release -c requirements/dev.lock $(LOCK_OPTIONS) -o requirements/release.lock
	for extra in otel apprise aws; do uv pip compile pyproject.toml --extra server --extra postgres --extra $$extra \
		-c requirements/dev.lock $(LOCK_OPTIONS) -o requirements/$$extra.lock || exit 1; done

LOCK_OPTIONS := --upgrade --universal --python-version 3.11 --no-emit-index-url --no-header --no-annotate --quiet

release: build/release/.installed
	build/release/bin/python -m release $(RELEASE_OPTIONS)

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -- programs that only tests need: browser, Prometheus, PgBouncer, nginx, systemd ----------------------------------------

APT := $(shell command -v apt-get 2>/dev/null)
SUDO := $(if $(filter-out 0,$(shell id -u)),sudo -n,)
MISSING = $(if $(shell command -v chromium chromium-browser google-chrome 2>/dev/null),,chromium fonts-dejavu-core) \
	$(if $(shell command -v promtool 2>/dev/null),,prometheus) \
	$(if $(shell PATH=$$PATH:/usr/sbin command -v pgbouncer 2>/dev/null),,pgbouncer) \
	$(if $(shell PATH=$$PATH:/usr/sbin command -v nginx 2>/dev/null),,nginx-light) \
	$(if $(shell command -v systemd-analyze 2>/dev/null),,systemd)

programs:
	@if [ -n "$(strip $(MISSING))" ] && [ -n "$(APT)" ]; then \
		echo "installing $(strip $(MISSING))"; \
		{ $(SUDO) $(APT) -qq update && \
		DEBIAN_FRONTEND=noninteractive $(SUDO) $(APT) -qq install -y --no-install-recommends $(MISSING); } >/dev/null 2>&1 || \
		echo "could not install $(strip $(MISSING)); install it by hand"; \
	fi

# -- the virtual environment: stamp files make repeated runs quick ----------------------------------------------------

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Doorstep needs Python 3.11 or newer; try make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed-run: requirements/run.lock pyproject.toml | $(VENV)/.made
	@$(call install_lock,$(BIN)/python,requirements/run.lock)
	@echo "building Doorstep"
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --editable .
	@touch $@

$(VENV)/.installed-%: requirements/%.lock $(VENV)/.installed-run
	@$(call install_lock,$(BIN)/python,$<)
	@touch $@

build/release/.installed: requirements/release.lock
	@$(PYTHON) -m venv build/release
	@$(call install_lock,build/release/bin/python,$<)
	@touch $@

# Both show their progress. uv does not read pip's configuration: where only pip knows the package index, uv fails and
# pip does the work.
install_lock = $(if $(UV),$(UV) pip install --python $(1) -r $(2) ||) $(1) requirements/install.py $(2)
