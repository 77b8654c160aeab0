"""The representation of certified results."""

import warnings

import numpy as np
import pytest

import volmar
from volmar.base.recursion import RecursiveResult
from volmar.solvers import Result, Status


def test_long_fields_are_shown_by_their_last_value():
    assert "history=<4 values, last 0.333333>" in repr(Result(1.0, history=(3.0, 2.0, 1.0, 1 / 3)))
    several = RecursiveResult(1.0, warnings=("one", "two", "three", "the last one"))
    assert "warnings=<4 values, last 'the last one'>" in repr(several)


@pytest.mark.parametrize("name", [one for one in volmar.CLUSTERERS if one != "AutoClusterer"])
@pytest.mark.parametrize(("n_clusters", "n"), [(1, 2), (2, 2), (5, 12)])
def test_the_result_of_every_clusterer_is_shown(name, n_clusters, n):
    model = getattr(volmar, name)(n_clusters, random_state=0)
    if "max_iter" in model.get_params():
        model.set_params(max_iter=1 if name in ("SDPMMC", "HardLabelMVC") else 20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(np.random.default_rng(0).normal(size=(n, 2)))
    shown = repr(model.result_)
    assert shown.startswith(type(model.result_).__name__)
    assert str(model.result_).startswith(f"{type(model.result_).__name__}: ")
    assert "volmar-card" in model.result_._repr_html_()
    assert "status=" in shown


def test_print_summarises_the_run_and_its_certificate():
    result = Result(1.5, gap=0.01, residuals={"gradient": 1e-9}, n_iter=3, history=(2.0, 1.5))
    assert str(result).splitlines() == [
        "Result: converged, 3 iterations.",
        "objective: 1.5",
        "gap: at most 0.01 above the optimum",
        "residuals: gradient 1e-09 (0 at a solution)",
    ]
    unknown = Result(2.0, status=Status.MAX_ITER, n_iter=1)
    assert "iteration limit reached, 1 iteration." in str(unknown)
    assert "no bound is known" in str(unknown)
    assert "residuals" not in str(unknown)


def test_notebooks_show_the_same_summary():
    page = Result(1.5, residuals={"a<b": 0.1})._repr_html_()
    assert "a&lt;b 0.1" in page
    assert "converged, 0 iterations." in page
