# All commands run in .venv, which `install` makes from exact versions (constraints.txt). PYTHON names the interpreter to build it with.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEED ?= 1
MINUTES ?= 5
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help install demo test lint type contracts docs packaging bench chaos clean

help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Use
install: $(VENV)/.installed ## make .venv with skipprd and its development tools
demo: $(VENV)/.installed ## real data in, Iceberg out, SQL over Flight: the main job end to end
	@$(BIN)/python -m examples.demo

##@ Prove
test: $(VENV)/.installed ## every test that decides whether a change may land (at most 10 minutes on 2 cores)
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "not chaos and not packaging"
packaging: $(VENV)/.installed ## build, install and use the wheel alone, with $(PYTHON)
	@$(BIN)/python -m pytest tests/packaging -m packaging --interpreter "$(PYTHON)"
chaos: $(VENV)/.installed ## lasting proofs: SEED=1 MINUTES=5
	@$(BIN)/python -m tests.chaos --seed $(SEED) --minutes $(MINUTES)
bench: $(VENV)-bench/.installed ## timings beside peers in the same run; results in .bench/
	@$(VENV)-bench/bin/python -m benchmarks

##@ Check
lint: $(VENV)/.installed ## ruff, format of imports and code rules
	@$(BIN)/ruff check .
type: $(VENV)/.installed ## mypy, strict
	@$(BIN)/mypy
contracts: $(VENV)/.installed ## direction of imports
	@$(BIN)/lint-imports

##@ Tidy
clean: ## remove what these commands made
	@rm -rf $(VENV) $(VENV)-bench .demo .bench build dist *.egg-info .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	  { echo "error: $(PYTHON) is not Python 3.11 to 3.13; name one: make PYTHON=python3.12 ..." >&2; exit 3; }
	@echo "making $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,demo]'
	@touch $@

$(VENV)-bench/.installed: pyproject.toml constraints-bench.txt
	@echo "making $(VENV)-bench ..."
	@$(PYTHON) -m venv $(VENV)-bench
	@$(VENV)-bench/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-bench.txt -e '.[bench]'
	@touch $@
