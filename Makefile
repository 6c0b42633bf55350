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

# One thread per process: with more, OpenMP workers spin against each other and runs get ten times slower.
export OMP_NUM_THREADS ?= 1

.PHONY: help
help: ## List the tasks.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Made again when pyproject.toml changes; otherwise re-used as it is.
$(INSTALLED): pyproject.toml
	@echo "setting up $(VENV) (once, 2 to 4 minutes: pip downloads what this machine lacks)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -e '.[dev]'
	@touch $@

.PHONY: install
install: $(INSTALLED) ## Set up .venv with all that development needs.

.PHONY: stress
stress: $(INSTALLED) ## Run the main job for 60 seconds on this machine.
	@ci/stress $(BIN) $(ARGS)

.PHONY: test
test: $(INSTALLED) ## Run the tests (at most 10 minutes on 2 cores).
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
bench: $(INSTALLED) ## Measure the allocator's calls.
	@$(BIN)/onearena bench $(ARGS)

.PHONY: evidence-clean
evidence-clean: $(INSTALLED) ## Evidence: clean campaigns with their reach (hours; resumable).
	@ci/evidence $(BIN) clean $(ARGS)

.PHONY: evidence-fit
evidence-fit: $(INSTALLED) ## Evidence: exact feasibility against search (hours; resumable).
	@ci/evidence $(BIN) fit $(ARGS)

.PHONY: evidence-order
evidence-order: $(INSTALLED) ## Evidence: the order oracle against a slow reference (minutes; resumable).
	@ci/evidence $(BIN) order $(ARGS)

.PHONY: clean
clean: ## Remove .venv and everything that tools left behind.
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find core stress metrics dashboard tests -name __pycache__ -type d -prune -exec rm -rf {} +
