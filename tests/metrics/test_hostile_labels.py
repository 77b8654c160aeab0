"""Labels, weights and numbers of every kind: a value, or one error that names the argument."""

import math
import warnings

import numpy as np
import pytest
from helpers.pairs import spread

from volmar.metrics import (
    balanced_clustering_error,
    clustering_error,
    label_free_scores,
    matched_labels,
    msp_score,
    normalized_cut,
    pair_f_measure,
    separation_score,
)
from volmar.metrics.label_free import calinski_harabasz, imbalance
from volmar.metrics.scores import agreement_scores
from volmar.metrics.separation_bound import separation_along

X = np.random.default_rng(0).normal(size=(12, 2)) + 5 * (np.arange(12) % 2)[:, None]
CODES = np.arange(12) % 2
W = np.ones((12, 12))
#: Metrics of one labelling.
ALONE = {
    "imbalance": imbalance,
    "normalized_cut": lambda labels: normalized_cut(W, labels),
    "calinski_harabasz": lambda labels: calinski_harabasz(X, labels),
    "separation_score": lambda labels: separation_score(X, labels),
    "msp_score": lambda labels: msp_score(X, labels),
    "label_free_scores": lambda labels: label_free_scores(X, labels)[0].value,
}
#: Metrics of two.
BESIDE = {
    "clustering_error": clustering_error,
    "balanced_clustering_error": balanced_clustering_error,
    "pair_f_measure": pair_f_measure,
    "matched_labels": lambda one, two: matched_labels(one, two).tolist(),
    "agreement_scores": lambda one, two: [score.value for score in agreement_scores(one, two)],
}


def in_frame(kind):
    def make(values):
        return pytest.importorskip(kind).Series(values)

    return make


KINDS = {
    "int8": lambda codes: codes.astype(np.int8),
    "uint64": lambda codes: codes.astype(np.uint64) + np.uint64(2**63),
    "bool": lambda codes: codes == 1,
    "float": lambda codes: codes - 0.5,
    "complex": lambda codes: codes * 1j,
    "text": lambda codes: np.array(["a", "b"])[codes],
    "bytes": lambda codes: np.array([b"a", b"b"])[codes],
    "objects": lambda codes: np.array(["a", "b"], dtype=object)[codes],
    "days": lambda codes: np.array(["2001-01-01", "2002-01-01"], dtype="M8[D]")[codes],
    "large integers": lambda codes: np.array([1, 10**30], dtype=object)[codes],
    "negative": lambda codes: codes - 5,
    "list": lambda codes: codes.tolist(),
    "tuple of text": lambda codes: tuple("ab"[code] for code in codes),
    "strided": lambda codes: np.repeat(codes, 2)[::2],
    "pandas": in_frame("pandas"),
    "pandas text": lambda codes: in_frame("pandas")(["ab"[code] for code in codes]),
    "polars": in_frame("polars"),
    "polars text": lambda codes: in_frame("polars")(["ab"[code] for code in codes]),
}


@pytest.mark.parametrize(("name", "kind"), spread(zip(ALONE), KINDS, 6))
def test_labels_of_every_kind(name, kind):
    assert ALONE[name](KINDS[kind](CODES)) == ALONE[name](CODES)


@pytest.mark.parametrize(("name", "kind"), spread(zip(BESIDE), KINDS, 6))
def test_labellings_of_every_kind(name, kind):
    other = np.repeat([0, 1], 6)
    expected = BESIDE[name](CODES, other)
    assert BESIDE[name](KINDS[kind](CODES), KINDS[kind](other)) == expected
    assert BESIDE[name](KINDS[kind](CODES), other) == expected


def with_first(value, dtype=object):
    labels = np.array(CODES, dtype=dtype)
    labels[0] = value
    return labels


WRONG = {
    "NaN": (with_first(np.nan, float), ValueError, "NaN"),
    "infinity": (with_first(np.inf, float), ValueError, "infinity"),
    "None": (with_first(None), ValueError, "missing"),
    "NaN among objects": (with_first(np.nan), ValueError, "missing"),
    "NaT": (np.array(["NaT"] * 12, dtype="M8[D]"), ValueError, "missing"),
    "text among numbers": (with_first("a"), TypeError, "mixture that cannot be sorted"),
    "objects without an order": (with_first(object()), TypeError, "mixture"),
    "arrays": (with_first(np.arange(2)), TypeError, "mixture"),
    "masked": (np.ma.masked_array(CODES, CODES == 1), ValueError, "masked"),
    "table": (np.zeros((12, 2)), ValueError, r"shape \(12, 2\)"),
    "ragged": ([[1], [1, 2]], ValueError, "different lengths"),
    "empty": ([], ValueError, r"shape \(0,\)"),
    "number": (3, ValueError, r"shape \(\)"),
    "nothing": (None, ValueError, r"shape \(\)"),
    "word": ("labels", ValueError, r"shape \(\)"),
    "mapping": ({0: 1}, ValueError, r"shape \(\)"),
}


@pytest.mark.parametrize(("name", "kind"), spread(zip(ALONE), WRONG, 6))
def test_wrong_labels_are_named(name, kind):
    labels, error, message = WRONG[kind]
    with pytest.raises(error, match=rf"^labels .*{message}"):
        ALONE[name](labels)


@pytest.mark.parametrize(("name", "kind"), spread(zip(BESIDE), WRONG, 6))
def test_wrong_labellings_are_named(name, kind):
    labels, error, message = WRONG[kind]
    with pytest.raises(error, match=rf"^labels_true .*{message}"):
        BESIDE[name](labels, CODES)
    with pytest.raises(error, match=rf"^labels_pred .*{message}"):
        BESIDE[name](CODES, labels)


@pytest.mark.parametrize("name", BESIDE)
def test_labellings_of_different_lengths(name):
    with pytest.raises(ValueError, match=r"^labels_true .*got 12 and 11"):
        BESIDE[name](CODES, CODES[1:])


@pytest.mark.parametrize("name", set(ALONE) - {"imbalance"})
def test_labels_of_other_rows(name):
    with pytest.raises(ValueError, match=r"11"):
        ALONE[name](CODES[1:])


@pytest.mark.parametrize("name", BESIDE)
def test_one_cluster_and_single_points(name):
    for true in (np.zeros(12), np.arange(12)):
        for pred in (np.zeros(12), np.arange(12), CODES):
            value = BESIDE[name](true, pred)
            assert np.isfinite(value).all()
    assert BESIDE[name]([7], ["a"]) is not None


# ---------------------------------------------------------------------- numbers


@pytest.mark.parametrize("power", [-300, -200, -100, 100, 200, 300])
def test_the_f_measure_of_an_extreme_beta_is_precision_or_recall(power):
    true, pred = [0, 0, 1, 1], [0, 0, 0, 1]  # TP 1, FP 2, FN 1
    limit = 1 / 3 if power < 0 else 1 / 2
    assert pair_f_measure(true, pred, beta=10.0**power) == pytest.approx(limit)
    assert pair_f_measure([0, 0, 1], [0, 1, 1], beta=10.0**power) == 0.0
    assert pair_f_measure([0, 0], [0, 1], beta=10.0**power) == 0.0
    assert pair_f_measure(true, true, beta=10.0**power) == 1.0


@pytest.mark.parametrize(
    ("beta", "error"),
    [
        (0, ValueError),
        (-1.0, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
        ("a", TypeError),
        (None, TypeError),
        (1j, TypeError),
        ([1.0], TypeError),
        (True, TypeError),
    ],
)
def test_a_wrong_beta_is_named(beta, error):
    with pytest.raises(error, match=r"^beta must be"):
        pair_f_measure([0, 0, 1], [0, 1, 1], beta=beta)


@pytest.mark.parametrize("error_of", [clustering_error, balanced_clustering_error])
def test_weights_of_extreme_scales(error_of):
    true, pred = CODES, np.repeat([0, 1], 6)
    weights = np.arange(1.0, 13.0)
    expected = error_of(true, pred, sample_weight=weights)
    for scale in (1e-90, 1e90):
        value = error_of(true, pred, sample_weight=scale * weights)
        assert value == pytest.approx(expected, rel=1e-12)
    value = error_of(true, pred, sample_weight=10.0 ** np.linspace(-90, 90, 12))
    assert 0 <= value <= 1
    for wrong in (np.nan, np.inf, -1.0, "a", 1j, None):
        given = np.array([wrong] * 12)
        with pytest.raises((TypeError, ValueError), match=r"^sample_weight "):
            error_of(true, pred, sample_weight=given)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-5, 1e5, 1e160, 1e300])
def test_separation_along_has_no_unit(scale):
    scores = np.array([0.0, 1.0, 4.0, 5.0])
    sides = [False, False, True, True]
    expected = separation_along(scores, sides)
    assert separation_along((scale * scores).tolist(), sides) == pytest.approx(expected)
    assert separation_along(scores, sides, np.full(4, scale)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"scores": 3.0}, ValueError, "^scores .*one-dimensional"),
        ({"scores": ["a"] * 4}, TypeError, "^scores .*real numbers"),
        ({"scores": [0.0, 1.0, np.nan, 2.0]}, ValueError, "^scores .*got nan"),
        ({"sides": [True]}, ValueError, r"^sides .*shape \(1,\)"),
        ({"sides": [0, 1, 2, 1]}, ValueError, "^sides .*False"),
        ({"weights": 1j}, TypeError, "^weights .*real numbers"),
        ({"weights": [1.0, 2.0]}, ValueError, r"^weights .*shape \(2,\)"),
        ({"weights": [1.0, -1.0, 1.0, 1.0]}, ValueError, "^weights .*got -1"),
    ],
)
def test_wrong_arguments_of_separation_along(given, error, message):
    good = {"scores": [0.0, 1.0, 4.0, 5.0], "sides": [False, False, True, True]}
    with pytest.raises(error, match=message):
        separation_along(**{**good, **given})


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e150, 1e300])
def test_similarities_of_any_scale_have_one_cut(scale):
    similarities = np.abs(np.subtract.outer(CODES, CODES)) * 0.25 + 1.0
    expected = normalized_cut(similarities, CODES)
    assert normalized_cut(scale * similarities, CODES) == pytest.approx(expected)
    if 1e-30 < scale < 1e30:
        assert normalized_cut(similarities.astype(np.float32), CODES) == pytest.approx(expected)


@pytest.mark.parametrize("scale", [1e-160, 1e160, 1e300])
@pytest.mark.parametrize("name", ["calinski_harabasz", "separation_score", "msp_score"])
def test_rows_beyond_the_range_of_squares_are_refused(name, scale):
    score = {"calinski_harabasz": calinski_harabasz, "separation_score": separation_score}.get(
        name, msp_score
    )
    with pytest.raises(ValueError, match=r"^X .*magnitude"):
        score(scale * X, CODES)


def test_calinski_harabasz_of_dense_and_sparse_rows_refuses_the_same():
    sparse = pytest.importorskip("scipy.sparse")
    for rows in (X, sparse.csr_array(X)):
        for labels, n in ((np.zeros(12), 1), (np.arange(12), 12)):
            with pytest.raises(ValueError, match=f"labels .* got {n} clusters of 12 rows"):
                calinski_harabasz(rows, labels)


def test_every_row_its_own_cluster_leaves_scores_out_with_a_reason():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = {one.name: one for one in label_free_scores(X, np.arange(12))}
    assert scores["Calinski-Harabasz"].value is None
    assert "left out" in scores["Calinski-Harabasz"].meaning


@pytest.mark.parametrize("seed", ["a", -1, 1.5, None])
def test_the_seed_of_a_sample_is_an_integer(seed):
    with pytest.raises((TypeError, ValueError), match=r"^seed must be"):
        label_free_scores(X, CODES, seed=seed)
