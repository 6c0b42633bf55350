# Tasks of onearena. `make help` lists them. Everything runs in .venv, which the first task makes.
#
#   PYTHON    the interpreter that .venv is made from (3.11, 3.12 or 3.13)
#   PIP_ARGS  more arguments for `pip install`; pip's own variables and files work as always
#   ARGS      more arguments for the command that a task runs

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
ARGS ?=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
COMPILED := $(VENV)/.compiled

# One thread per process: with more, OpenMP workers spin against each other and runs get ten times slower.
export OMP_NUM_THREADS ?= 1

.PHONY: help
help: ## List the tasks.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Made again when pyproject.toml changes; otherwise re-used as it is. Python compiles a package when it
# is first imported; compiling all of them here would take as long as the download.
$(INSTALLED): pyproject.toml
	@echo "setting up $(VENV) (once, 2 to 4 minutes: pip downloads what this machine lacks)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(PIP_ARGS) -e '.[dev]'
	@touch $@

# The kernels' machine code goes to numba's cache once, so that it takes no time from any budget.
$(COMPILED): core/kernels.py | $(INSTALLED)
	@echo "compiling the kernels (once, about a minute)"
	@$(BIN)/python -c 'from onearena.core import kernels; kernels.warm_up()'
	@touch $@

.PHONY: install
install: $(INSTALLED) $(COMPILED) ## Set up .venv with all that development needs.

.PHONY: stress
stress: $(INSTALLED) $(COMPILED) ## Run the main job for 60 seconds on this machine.
	@ci/stress $(BIN) $(ARGS)

.PHONY: test
test: $(INSTALLED) $(COMPILED) ## Run the tests (at most 10 minutes on 2 cores).
	@ci/test $(BIN) $(ARGS)

# `make -k check` goes through all of them even if one fails.
CHECKS := format lint types tidy generated

.PHONY: check $(CHECKS:%=check-%)
check: $(CHECKS:%=check-%) ## Format, lint, types, tidiness and generated pages.
	@echo "all checks passed"

$(CHECKS:%=check-%): check-%: $(INSTALLED)
	@ci/$* $(BIN)

.PHONY: format
format: $(INSTALLED) ## Rewrite the sources in the project's format.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix --select I .

.PHONY: bench
bench: $(INSTALLED) $(COMPILED) ## Measure the allocator's calls.
	@$(BIN)/onearena bench $(ARGS)

.PHONY: mutants
mutants: $(INSTALLED) $(COMPILED) ## Plant every fault of the registry and count the ones caught (minutes).
	@$(BIN)/onearena mutants $(ARGS)

.PHONY: evidence-clean
evidence-clean: $(INSTALLED) $(COMPILED) ## Evidence: clean campaigns with their reach (hours; resumable).
	@ci/evidence $(BIN) clean $(ARGS)

.PHONY: evidence-fit
evidence-fit: $(INSTALLED) $(COMPILED) ## Evidence: exact feasibility against search (hours; resumable).
	@ci/evidence $(BIN) fit $(ARGS)

.PHONY: evidence-order
evidence-order: $(INSTALLED) $(COMPILED) ## Evidence: the order oracle against a slow reference (minutes; resumable).
	@ci/evidence $(BIN) order $(ARGS)

.PHONY: evidence-mutants
evidence-mutants: $(INSTALLED) $(COMPILED) ## Evidence: the score of planted faults (an hour; resumable).
	@ci/evidence $(BIN) mutants $(ARGS)

.PHONY: evidence-threads
evidence-threads: $(INSTALLED) $(COMPILED) ## Evidence: schedules on threads and real bytes (hours; resumable).
	@ci/evidence $(BIN) threads $(ARGS)

.PHONY: evidence-exhaustive
evidence-exhaustive: $(INSTALLED) $(COMPILED) ## Evidence: every program of up to five calls at small scope (hours; resumable).
	@ci/evidence $(BIN) exhaustive $(ARGS)

.PHONY: evidence-shrink
evidence-shrink: $(INSTALLED) $(COMPILED) ## Evidence: how small each planted fault's failure gets (an hour; resumable).
	@ci/evidence $(BIN) shrink $(ARGS)

.PHONY: evidence-cuda
evidence-cuda: $(INSTALLED) $(COMPILED) ## Evidence: choices files on the cuda device over its fake (minutes; resumable).
	@ci/evidence $(BIN) cuda $(ARGS)

.PHONY: evidence-kill9
evidence-kill9: $(INSTALLED) $(COMPILED) ## Evidence: killed campaigns resume to the same result (minutes; resumable).
	@ci/evidence $(BIN) kill9 $(ARGS)

.PHONY: evidence-metrics
evidence-metrics: $(INSTALLED) $(COMPILED) ## Evidence: what being watched costs a campaign (minutes).
	@ci/evidence $(BIN) metrics $(ARGS)

.PHONY: evidence-dashboard
evidence-dashboard: $(INSTALLED) $(COMPILED) ## Evidence: what the dashboard costs browser and campaign (minutes).
	@ci/evidence $(BIN) dashboard $(ARGS)

.PHONY: evidence-price
evidence-price: $(INSTALLED) ## Evidence: prices against replayed traces (minutes).
	@ci/evidence $(BIN) price $(ARGS)

.PHONY: evidence-mutation
evidence-mutation: $(INSTALLED) $(COMPILED) ## Evidence: a sample of small edits and who noticed (a quarter of an hour; resumable).
	@ci/evidence $(BIN) mutation $(ARGS)

.PHONY: clean
clean: ## Remove .venv and everything that tools left behind.
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find core stress metrics dashboard tests -name __pycache__ -type d -prune -exec rm -rf {} +
