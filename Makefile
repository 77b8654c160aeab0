# Every target installs what it needs in .venv first.
# Only Python 3.11 or newer, pip and make are required.
PYTHON ?= python3
VENV   := .venv
OLDEST := .venv-oldest
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
NAME   ?=

# Tests of make quick: packages with cheap tests, less than 90 seconds on two cores.
CHEAP  := $(addprefix tests/, test_generators.py diagnostics graphs metrics operators plots rows separation solvers volume)

.PHONY: demo test quick fuzz oldest wheels nightly release lint bench house words docs reproduce reproduction clean

demo: $(VENV)/.ready
	$(BIN)/python -m volmar demo --out demo --force

# COVERAGE=1 adds the line coverage of the package, as .ci/run does.
test: $(VENV)/.ready
	$(BIN)/python -m pytest $(if $(COVERAGE),--cov --cov-report=term:skip-covered)

quick: $(VENV)/.ready
	$(BIN)/python -m pytest -m "not slow and not nightly" $(CHEAP)

# Invalid and extreme input, and relations between results (make fuzz DOMAIN=metamorphic N=3000): make fuzz N=20000
# with a new seed, make fuzz CASE=estimators:123 to replay one case.
fuzz: $(VENV)/.ready
	PYTHONPATH=tests $(BIN)/python -m fuzz $(if $(CASE),--case $(CASE),--cases $(or $(N),2000) $(if $(SEED),--seed $(SEED)) $(if $(DOMAIN),--domain $(DOMAIN)))

# The quick tests and some of files and models with the minimum versions of pyproject.toml, in a separate environment.
# Warnings are not errors here, because old packages warn about each other.
oldest: $(OLDEST)/.ready
	$(OLDEST)/bin/python -m pytest -m "not slow and not nightly" -o filterwarnings=default $(CHEAP) $(addprefix tests/, \
	  base/test_base.py cli/test_cli.py margin/test_cpmmc.py models/test_models.py table_clusterer/test_table_clusterer.py \
	  tables/test_tables_read.py)

# The wheel in fresh environments of the oldest and newest supported Python that are installed.
# make wheels PYTHONS="python3.12 python3.13" selects others.
wheels: $(VENV)/.ready
	$(BIN)/python tests/wheels/install.py $(PYTHONS)

# What is not needed for every change: run each night, and before a release.
nightly: oldest wheels
	$(BIN)/python -m pytest -m nightly
	$(BIN)/python -m pytest reproduction/tests
	$(MAKE) fuzz

release: lint test docs nightly

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m benchmarks.house --check

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks $(NAME)

# Sizes of the code and their budget (benchmarks/house.toml); CHECKOUT=folder measures another checkout.
house: $(VENV)/.ready
	$(BIN)/python -m benchmarks.house $(CHECKOUT)

# Uses of words that the style guide replaces; CHECKOUT=folder counts another one.
words: $(VENV)/.ready
	$(BIN)/python -m benchmarks.words $(CHECKOUT)

docs: $(VENV)/.ready
	rm -rf docs/api docs/auto_examples
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

# Runs tables and figures of the papers: make reproduce NAME="mvc-jmlr-2013-table-2 -j 2" QUICK=1.
# Lists them if NAME is empty. Results are stored in results/, and an interrupted run continues.
reproduce: $(VENV)/.ready
	$(BIN)/python -m reproduction $(NAME) $(if $(QUICK),--quick)

# Writes the page of the papers' tables and its plots from the stored cells.
reproduction: $(VENV)/.ready
	$(BIN)/python -m reproduction.expected docs/reproduction
	$(BIN)/python -m reproduction --all --no-run --out docs/reproduction --page docs/reproduction.md

clean:
	rm -rf $(VENV) $(OLDEST) demo build dist bench-results docs/_build docs/auto_examples docs/api

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

$(OLDEST)/.ready: pyproject.toml constraints-oldest.txt
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13) and "the oldest numpy has wheels for Python 3.11 and 3.12: make oldest PYTHON=python3.11")'
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip --disable-pip-version-check --quiet install -c constraints-oldest.txt pip
	$(OLDEST)/bin/python -m pip --disable-pip-version-check --quiet install -c constraints-oldest.txt --group test -e '.[all]'
	touch $@
