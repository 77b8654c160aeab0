"""The certified answer: how it is shown."""

import warnings

import numpy as np
import pytest

import volmar
from volmar.base import RecursiveResult
from volmar.solvers import Result


def test_long_fields_are_shown_by_their_last_value():
    assert "history=<4 values, last 0.333333>" in repr(Result(1.0, history=(3.0, 2.0, 1.0, 1 / 3)))
    several = RecursiveResult(1.0, warnings=("one", "two", "three", "the last one"))
    assert "warnings=<4 values, last 'the last one'>" in repr(several)


@pytest.mark.parametrize("name", volmar.CLUSTERERS)
@pytest.mark.parametrize(("n_clusters", "n"), [(1, 2), (2, 2), (5, 12)])
def test_the_result_of_every_clusterer_is_shown(name, n_clusters, n):
    model = getattr(volmar, name)(n_clusters, random_state=0)
    if "max_iter" in model.get_params():
        model.set_params(max_iter=1 if name in ("SDPMMC", "HardLabelMVC") else 20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(np.random.default_rng(0).normal(size=(n, 2)))
    shown = repr(model.result_)
    assert shown == str(model.result_)
    assert shown.startswith(type(model.result_).__name__)
    assert "status=" in shown
