# Entry points of the project. `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
AGAIN := --last-failed --last-failed-no-failures none
TESTS := tests --ignore=tests/e2e -m "not gpu and not e2e and not journey and not drill"
DRILLS := tests/charts tests/contributing tests/docs tests/engine/cli tests/engine/server tests/examples \
  tests/kernels/test_interpreter.py tests/operator tests/router

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-install coverage drills drills-long e2e journeys compat scale soak faults fuzz prometheus lint fmt bench manifests images constraints clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  \1\t\2/' | expand -t 16

setup: $(STAMP) ## make .venv and install everything, pinned by hash

$(STAMP): constraints/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
	  || { echo "the venv module is missing: apt-get install python3-venv"; exit 1; }
	@echo "installing packages (torch is large: several minutes the first time)"
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --progress-bar off --require-hashes -r constraints/dev.txt
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP) ## run the built-in model through operator, router and engine, and chat with it
	@state=$$(mktemp -d) && trap 'rm -rf "$$state"' EXIT && \
	if [ -t 0 ]; then question=(); else question=(--prompt "What is Kubernetes?"); fi && \
	$(BIN)/yaie up -f manifests/samples/demo.yaml --state-dir "$$state" --port 0 --timeout 300 \
	  -- $(BIN)/yaie chat "$${question[@]}"

lint: $(STAMP) ## formatter, linter, types, import contracts
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet --output-format concise .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache >/dev/null || $(BIN)/lint-imports --no-cache

fmt: $(STAMP) ## format and apply safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: lint ## lint, types and every test that needs no cluster node; what fails runs once more, alone
	$(PYTEST) $(TESTS) -q -n 2 --dist loadfile \
	  || $(PYTEST) $(TESTS) -q $(AGAIN)

test-fast: $(STAMP) ## the tests that need neither Go nor minutes
	$(PYTEST) tests --ignore=tests/e2e -m "not gpu and not e2e and not journey and not drill and not cluster and not slow" -x -q

test-install: $(STAMP) ## install every extra with pip, each into a clean environment, and type its commands
	$(BIN)/python tests/install/run.py

coverage: $(STAMP) ## branch coverage of core, router, operator and API types; fails under a floor
	$(BIN)/python -m coverage run -m pytest tests/engine/core tests/router tests/operator tests/local tests/api \
	  -m "not gpu and not e2e and not cluster and not slow" -q
	$(BIN)/python -m coverage report

drills: $(STAMP) ## what takes minutes: faults of engines, an API server that is away, a real control plane (needs Go), kernels in the interpreter, examples and programs of the documentation; what fails runs once more, alone; YAIE_FAULT_S (600: outages of ten minutes), YAIE_EDITS make them longer
	$(PYTEST) $(DRILLS) -m drill -q -n 2 \
	  || $(PYTEST) $(DRILLS) -m drill -q $(AGAIN)

drills-long: $(STAMP) ## an hour of drills: faults of five minutes, 500 edits, every crash, every edit of every child, every value of every field
	YAIE_FAULT_S=300 YAIE_EDITS=500 YAIE_CRASHES=all YAIE_DRIFTS=all YAIE_EVERY_VALUE=1 \
	  $(PYTEST) tests/operator tests/router/faults -m drill -q -n 2

e2e: $(STAMP) ## a real Kubernetes node, the chart, the images, an OpenAI client (needs root and Go)
	tests/e2e/run.sh

journeys: $(STAMP) ## a first hour with `yaie up`; the pages in a real browser, with axe-core (root installs chromium where it is missing)
	tests/journeys/install.sh
	$(PYTEST) tests/journeys -m journey -q -s || $(PYTEST) tests/journeys -m journey -q -s $(AGAIN)

compat: $(STAMP) ## real clients against serve and router, each in its own environment; writes docs/compat.md
	$(BIN)/python tests/compat/run.py --output docs/compat.md

scale: $(STAMP) ## a thousand models on a real API server: latency, requests, CPU, memory, restart (needs Go)
	$(BIN)/python tests/scale/run.py

soak: $(STAMP) ## 200 mixed clients for ten minutes, a third of which vanish; nothing may be lost or grow
	$(BIN)/python tests/soak/run.py

prometheus: $(STAMP) ## every expression of dashboards and alerts, on a real Prometheus (root installs it where missing)
	tests/prometheus/install.sh
	PYTHONPATH=$(CURDIR)/tests:$$PYTHONPATH $(BIN)/python tests/prometheus/run.py

faults: $(STAMP) ## one engine of four fails in each known way under 128 clients; then signals to real engines
	PYTHONPATH=$(CURDIR)/tests:$$PYTHONPATH $(BIN)/python -m router.faults.matrix
	PYTHONPATH=$(CURDIR)/tests:$$PYTHONPATH $(BIN)/python -m router.faults.matrix --real --clients 24

fuzz: $(STAMP) ## coverage-guided fuzzing of what reads foreign bytes (ten minutes)
	$(BIN)/python tests/fuzz/run.py

bench: $(STAMP) ## batching, prefix cache and stalls as ratios, measured on this machine's CPU
	$(BIN)/python bench/promises.py

manifests: $(STAMP) ## regenerate the CRD, install.yaml and reference pages from their sources
	$(BIN)/python tools/render_dashboards.py
	$(BIN)/python tools/render_manifests.py
	$(BIN)/python tools/render_api.py
	$(BIN)/python tools/render_model.py
	$(BIN)/python tools/render_conditions.py
	$(BIN)/python tools/render_openapi.py
	$(BIN)/python tools/render_settings.py
	$(BIN)/python tools/render_metrics.py

images: $(STAMP) ## build both images with docker or buildah
	images/build.sh

constraints: $(STAMP) ## resolve the pinned requirements again
	tools/pin.sh

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
