"""A fitted model, and its file."""

import copy

import pytest
from helpers.models import (
    X,
    fit,
)

from volmar.models import save_model


@pytest.fixture(scope="module")
def fitted_once():
    return fit("MSPC", {"n_clusters": 3}, X)


@pytest.fixture
def model(fitted_once):
    return copy.deepcopy(fitted_once)


@pytest.fixture
def saved(model, tmp_path):
    save_model(tmp_path / "m.volmar", model)
    return tmp_path / "m.volmar"
