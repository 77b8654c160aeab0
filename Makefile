# Every target sets up what it needs in .venv and then does its job.
# A fresh machine needs Python 3.11 or newer, pip and make; nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
NAME   ?=

.PHONY: demo test lint bench house docs reproduce reproduction clean

demo: $(VENV)/.ready
	$(BIN)/python -m volmar demo --out demo

test: $(VENV)/.ready
	$(BIN)/python -m pytest

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks $(NAME)

# Sizes and rules of the code; CHECKOUT=folder measures another one.
house: $(VENV)/.ready
	$(BIN)/python -m benchmarks.house $(CHECKOUT)

docs: $(VENV)/.ready
	rm -rf docs/api docs/auto_examples
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

# Run tables and figures of the papers: make reproduce NAME="mvc-jmlr-2013-table-2 -j 2" QUICK=1.
# Without a NAME it lists them; results are kept in results/, and an interrupted run continues.
reproduce: $(VENV)/.ready
	$(BIN)/python -m reproduction $(NAME) $(if $(QUICK),--quick)

# The page of the papers' tables and its pictures, from the cells that are stored.
reproduction: $(VENV)/.ready
	$(BIN)/python -m reproduction.expected docs/reproduction
	$(BIN)/python -m reproduction --all --no-run --out docs/reproduction --page docs/reproduction.md

clean:
	rm -rf $(VENV) demo build dist bench-results docs/_build docs/auto_examples docs/api

$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "volmar needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt pip
	touch $@

$(VENV)/.ready: $(VENV)/.python pyproject.toml constraints.txt
	@echo "setting up $(VENV) (about two minutes the first time) ..."
	$(PIP) install -c constraints.txt --group dev -e '.[all]'
	touch $@

$(VENV)/.bench: $(VENV)/.ready
	$(PIP) install -c constraints.txt --group bench
	$(PIP) install -c constraints.txt --no-deps --group bench-no-deps \
	  || echo "left out of make bench NAME=number_of_clusters: rivals that need a C compiler"
	touch $@
