# Everything here needs Python 3.11 or newer, pip and make. `make` alone lists what there is.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.set-up
BENCH_STAMP := $(VENV)/.set-up-bench
BENCH_OUT := build/bench

# Extra words for the command a target runs, e.g. make test ARGS="-k timing -x"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup lab test test-fast test-planted lint format render bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## build .venv with everything but the benchmark peers (a few minutes, about 6 GB)

# The stamp is written last, so an interrupted set-up is taken up again; a newer pyproject.toml renews it.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(v < (3, 11) and "loaderscope needs Python 3.11 or newer, and $(PYTHON) is %d.%d: run make PYTHON=python3.12 (or the like)" % v)'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --editable ".[dev,storage,frames]"
	@touch $@

lab: $(STAMP) ## open JupyterLab on the first notebook; a headless host: make lab ARGS="--no-browser --allow-root"
	$(RUN) -m jupyterlab --ip=127.0.0.1 $(ARGS) notebooks/00_start_here.ipynb

test: $(STAMP) ## the whole suite
	$(RUN) -m pytest $(ARGS)

test-fast: $(STAMP) ## all but the slow suites, the notebooks and the browser; under 3 minutes
	$(RUN) -m pytest -m "not slow and not browser and not notebook" $(ARGS)

test-planted: $(STAMP) ## diagnose the whole list of planted loaders, three times each; some two hours
	LOADERSCOPE_PLANTED=all LOADERSCOPE_REPEATS=3 $(RUN) -m pytest tests/test_planted.py $(ARGS)

lint: $(STAMP) ## what the linter and the formatter have to say
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

format: $(STAMP) ## apply the linter's safe fixes and the formatter
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

render: $(STAMP) ## run notebooks and write their outputs; some only: make render ARGS="03 05"
	$(RUN) tests/notebook_tools.py render $(ARGS)

$(BENCH_STAMP): $(STAMP)
	$(RUN) -m pip install --quiet --editable ".[bench]"
	@touch $@

bench: $(BENCH_STAMP) ## run tests/benchmarks/bench_*.py; results go to build/bench
	@mkdir -p $(BENCH_OUT)
	@set -e; for script in $(wildcard tests/benchmarks/bench_*.py); do \
		echo "== $$script"; $(RUN) $$script --out $(BENCH_OUT) $(ARGS); \
	done

clean: ## remove what builds and tests left, and .venv
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis lib/*.egg-info
	find lib tests notebooks -name __pycache__ -prune -exec rm -rf {} +
