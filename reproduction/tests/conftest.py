import os

import pytest
from helpers.pages import browser  # noqa: F401 -- a fixture
from helpers.pictures import figures  # noqa: F401 -- a fixture
from paper_experiments import SMALL
from paper_results import CORRELATION, CURVES, TABLE

from reproduction import parse_experiment
from reproduction import summary as summary_module

# As for the other tests: BLAS threads in addition to workers slow each other down.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def experiment():
    """A small table of two methods."""
    return parse_experiment("small", SMALL)


@pytest.fixture
def table():
    return parse_experiment("table", TABLE)


@pytest.fixture
def curves():
    return parse_experiment("curves", CURVES)


@pytest.fixture
def correlation():
    return parse_experiment("correlation", CORRELATION)


@pytest.fixture
def printed(monkeypatch):
    """Set the printed values: data set and method to value and error, or None for N/A."""

    def set_to(values):
        known = {key: value for key, value in values.items() if value is not None}
        monkeypatch.setattr(summary_module, "published", lambda *_: known)
        monkeypatch.setattr(summary_module, "published_cells", lambda *_: list(values))

    set_to({})
    return set_to
