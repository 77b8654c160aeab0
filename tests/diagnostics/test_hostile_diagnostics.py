"""Invalid arguments of diagnostics and tests raise one error, which names the argument."""

import math
import warnings

import numpy as np
import pytest
from helpers.pairs import spread
from scipy import sparse

from volmar import MSPC
from volmar.diagnostics import (
    column_profiles,
    compare_numbers,
    describe_clusters,
    error_bound,
    stability,
    stability_report,
)
from volmar.evidence import label_test, split_test
from volmar.evidence.dither import column_resolutions, dithered

LABELS = np.arange(90) % 2
X = np.random.default_rng(0).normal(size=(90, 3)) + 6 * LABELS[:, None]
Q = np.exp(-np.abs(np.subtract.outer(X[:20, 0], X[:20, 0])))
H = np.full(20, 1 / math.sqrt(20))
RNG = np.random.default_rng(0)
RAGGED = [[1], [1, 2]]
#: Valid calls, with the arguments that are rows, labels, vectors and numbers.
CALLS = {
    label_test: {"X": X, "labels": LABELS, "alpha": 0.05, "min_cluster_size": 20},
    split_test: {"X": X, "alpha": 0.05},
    column_profiles: {"X": X, "labels": LABELS, "n_levels": 3, "max_rows": 50},
    compare_numbers: {"X": X, "numbers": [2], "n_resamples": 1},
    describe_clusters: {"X": X, "labels_or_model": LABELS, "q": 0.05, "n_typical": 1},
    stability: {"X": X, "estimator": MSPC(random_state=0), "n_resamples": 2, "share": 0.8},
    stability_report: {"Q": Q, "tol": 1e-9, "max_rows_for_si": 5, "max_work": 1e6},
    error_bound: {"Q": Q, "reg": 1.0, "eta": -1.0, "h": H, "n_revealed": 5, "delta": 0.05},
    column_resolutions: {"X": X},
    dithered: {"X": X, "resolutions": np.ones(3), "rng": RNG},
}
ROWS = {
    "text": np.full((90, 3), "a"),
    "one text": [["a", 1.0]] * 90,
    "ragged": RAGGED,
    "NaN": np.where(X > 6, np.nan, X),
    "infinity": np.where(X > 6, np.inf, X),
    "complex": X * 1j,
    "vector": X[:, 0],
    "cube": X[None],
    "nothing": None,
    "number": 3,
    "huge integers": [[10**400, 1]] * 90,
}
VECTORS = {
    "text": ["a"] * 90,
    "ragged": RAGGED,
    "NaN": np.full(90, np.nan),
    "complex": np.ones(90) * 1j,
    "table": X,
    "empty": [],
    "nothing": None,
    "other rows": np.arange(7.0) - 1,
}
NUMBERS = [None, "a", math.nan, math.inf, -1, -(10**400), 10**400, 1j, [1.0], np.ones(2), object()]
#: Arguments for which None is valid.
OPTIONAL = {"n_splits", "n_revealed", "reg", "eta", "h"}


def named(argument, call, value):
    """Return the error of a call with an invalid argument, which names it; None without one."""
    given = {**CALLS[call], argument: value}
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            call(**given)
        except (TypeError, ValueError) as error:
            return str(error) if type(error) in (TypeError, ValueError) else repr(error)
    return None


def arguments(kinds):
    return [(call, name) for call, given in CALLS.items() for name in given if name in kinds]


@pytest.mark.parametrize(("call", "name", "kind"), spread(arguments({"X", "Q"}), ROWS, 6))
def test_wrong_rows_are_named(call, name, kind):
    takes_tables = call in (column_profiles, describe_clusters)
    if takes_tables and kind in ("text", "one text", "NaN", "infinity", "huge integers"):
        assert kind == "one text" or named(name, call, ROWS[kind]) is None
        return
    if call is dithered and kind in ("NaN", "infinity"):
        return  # a step of tests that have looked at all rows
    told = named(name, call, ROWS[kind])
    assert told is not None
    assert name in told or "array" in told, told
    assert not told.startswith(("setting an array", "could not convert", "float() argument"))


@pytest.mark.parametrize(
    ("call", "name", "kind"),
    spread(
        arguments({"x", "h", "scores", "p_values", "labels", "labels_or_model", "resolutions"}),
        VECTORS,
        5,
    ),
)
def test_wrong_vectors_are_named(call, name, kind):
    if kind == "text" and name in ("labels", "labels_or_model"):
        return  # a label like any other
    if kind == "complex" and name == "labels" and call is column_profiles:
        return  # a label like any other
    if kind == "other rows" and name == "x":
        return  # a sample like any other
    if kind == "nothing" and name == "h":
        return  # rho is asked for
    told = named(name, call, VECTORS[kind])
    assert told is not None
    assert name in told or (name == "labels_or_model" and "labels" in told), told


COUNTS = {
    *("alpha", "n_splits", "min_cluster_size", "n_levels", "max_rows", "n_resamples"),
    *("q", "n_typical", "share", "tol", "max_rows_for_si", "max_work"),
    *("reg", "eta", "n_revealed", "delta", "n_draws"),
}


@pytest.mark.parametrize(("call", "name", "value"), spread(arguments(COUNTS), NUMBERS, 5))
def test_wrong_numbers_are_named(call, name, value):
    told = named(name, call, value)
    if told is None:
        assert (value is None and name in OPTIONAL) or (name == "eta" and value == -1)
        return
    assert name in told, told


@pytest.mark.parametrize("seed", ["a", -1, 2**32, 1.5, RAGGED])
@pytest.mark.parametrize(
    "call",
    [label_test, split_test, column_profiles, compare_numbers, describe_clusters, stability],
)
def test_a_wrong_random_state_is_named(call, seed):
    given = {**CALLS[call], "random_state": seed}
    with pytest.raises(ValueError, match=r"^random_state"):
        call(**given)


@pytest.mark.parametrize("estimator", [[], {}, "MSPC", 3, MSPC, object()])
@pytest.mark.parametrize("call", [split_test, compare_numbers, stability])
def test_what_is_no_clusterer_is_named(call, estimator):
    given = {**CALLS[call], "estimator": estimator}
    with pytest.raises(TypeError, match=r"^estimator .*clusterer"):
        call(**given)


@pytest.mark.parametrize("n_jobs", [0, 1.5, "a", math.inf])
def test_a_wrong_number_of_jobs_is_named(n_jobs):
    with pytest.raises(TypeError, match=r"^n_jobs"):
        stability(**CALLS[stability], n_jobs=n_jobs)


def test_jobs_are_no_more_than_parts():
    found = stability(**CALLS[stability], n_jobs=10**6, random_state=0)
    assert found.agreement == stability(**CALLS[stability], random_state=0).agreement


@pytest.mark.parametrize("rng", [None, 0, np.random.RandomState(0), np.random])
@pytest.mark.parametrize("call", [dithered])
def test_a_wrong_generator_is_named(call, rng):
    with pytest.raises(TypeError, match=r"^rng\b"):
        call(**{**CALLS[call], "rng": rng})


@pytest.mark.parametrize("noise", [[-1], np.array([-1, 2]), {-1}, sparse.csr_array(X)])
def test_noise_has_one_label(noise):
    with pytest.raises(TypeError, match=r"^noise_label"):
        label_test(X, LABELS, noise_label=noise)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_resolutions_of_extreme_columns_are_finite(scale):
    column = scale * (np.arange(60.0)[:, None] % 3)
    assert np.isfinite(column_resolutions(column)).all()


def test_the_bound_of_extreme_numbers_is_finite():
    for given in ({"reg": 1e90}, {"eta": -1e90}, {"mu": 1e90}, {"rho": 1e-300}, {"mu": 0.0}):
        bound = error_bound(**{**CALLS[error_bound], **given})
        assert math.isfinite(bound.total)
        assert math.isfinite(bound.printed.total)


def test_sparse_complex_rows_and_values_near_the_largest_float():
    labels = np.arange(12) % 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError, match="X holds complex numbers"):
            describe_clusters(sparse.csr_array(np.ones((12, 2), complex)), labels)
        signs = np.sign(np.random.default_rng(0).normal(size=(12, 2)))
        column_profiles(signs * 1.7e308, labels)
