"""Cluster numbers of every estimator: by size, in any memory layout and with any seed."""

import warnings

import numpy as np
import pytest
from sklearn.utils.validation import has_fit_parameter

import volmar
from volmar.base.numbering import cluster_order
from volmar.models import load_model, save_model

CLUSTERERS = volmar.CLUSTERERS
# Their labels are balanced, so rows of the larger group change clusters.
BALANCED = ("HardLabelMVC", "IterSVR")
SIZES = {2: (22, 38), 3: (16, 21, 35)}


def groups(k, seed=0):
    """Well-separated groups; the smallest has the first row."""
    rng = np.random.default_rng(seed)
    centres = 9.0 * np.eye(4)[:k] + 1.0
    truth = np.repeat(np.arange(k), SIZES[k])
    first, rest = truth[0], truth[1:]
    truth = np.concatenate([[first], rng.permutation(rest)])
    return centres[truth] + rng.normal(scale=0.5, size=(truth.size, 4)), truth


def fitted(name, X, k, seed=0, **given):
    sample_weight = given.pop("sample_weight", None)
    model = getattr(volmar, name)(k, random_state=seed, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if sample_weight is not None:
            return model.fit(X, sample_weight=sample_weight)
        return model.fit(X)


def expected(truth):
    """The groups by size: all of these are found by every method."""
    return np.argsort(cluster_order(truth, None, truth.max() + 1))[truth]


def modes():
    for name in CLUSTERERS:
        parameters = getattr(volmar, name)().get_params()
        yield name, 2, {}
        yield name, 3, {}
        if "multiway" in parameters:
            yield name, 3, {"multiway": "recursive"}
        if "mode" in parameters:
            yield name, 2, {"mode": "paper"}
        if name == "MSPC":
            for solver in ("mpm", "eig"):
                yield name, 2, {"solver": solver}
        if name in ("MSPC", "IterSVR", "LGMMC", "MultivariateMMC"):
            yield name, 2, {"kernel": "rbf"}
        if "method" in parameters:
            yield name, 2, {"method": "nystroem", "kernel": "rbf", "n_landmarks": 20}


@pytest.mark.parametrize(("name", "k", "given"), list(modes()))
def test_the_largest_cluster_is_the_first(name, k, given, tmp_path):
    X, truth = groups(k)
    model = fitted(name, X, k, **given)
    labels = model.labels_
    sizes = np.bincount(labels)
    assert (np.diff(sizes) <= 0).all()
    is_rough = name in BALANCED or given.get("mode") == "paper"
    if not is_rough:
        np.testing.assert_array_equal(labels, expected(truth))
    if name != "AutoClusterer":  # a tree of tests, and no optimum
        np.testing.assert_array_equal(labels, model.result_.labels)
    scores = model.decision_function(X)
    by_score = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
    np.testing.assert_array_equal(model.predict(X), by_score)
    if not is_rough:
        np.testing.assert_array_equal(model.predict(X), labels)
    if hasattr(model, "coef_"):
        linear = X @ model.coef_.T + model.intercept_
        np.testing.assert_allclose(linear.squeeze(), scores, atol=1e-6 * np.abs(scores).max())
    if hasattr(model, "tree_"):
        tree = model.tree_
        assert sorted({leaf.label for leaf in tree.leaves()}) == list(range(sizes.size))
        if name != "MSPC":  # moves rows after the splits
            for leaf in tree.leaves():
                assert leaf.n_rows == sizes[leaf.label]
    save_model(tmp_path / "model.zip", model)
    again = load_model(tmp_path / "model.zip").model
    np.testing.assert_array_equal(again.predict(X), by_score)


@pytest.mark.parametrize("name", CLUSTERERS)
@pytest.mark.parametrize("k", [2, 3])
def test_numbers_do_not_depend_on_layout_or_seed(name, k):
    X, truth = groups(k)
    for seed, orders in ((0, "CF"), (1, "C")):
        for order in orders:
            labels = fitted(name, np.array(X, order=order), k, seed).labels_
            if name in BALANCED:
                truth = labels if order == "C" else truth
            np.testing.assert_array_equal(labels, expected(truth))


@pytest.mark.parametrize("name", CLUSTERERS)
def test_ties_go_to_the_first_row(name):
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0, 0.0], [9.0, 9.0]], 20, axis=0) + rng.normal(scale=0.5, size=(40, 2))
    labels = fitted(name, X, 2).labels_
    np.testing.assert_array_equal(labels, np.repeat([0, 1], 20))
    labels = fitted(name, X[::-1].copy(), 2).labels_
    np.testing.assert_array_equal(labels, np.repeat([0, 1], 20))


WEIGHTED = [n for n in CLUSTERERS if has_fit_parameter(getattr(volmar, n)(), "sample_weight")]
STARTED = [n for n in CLUSTERERS if "init" in getattr(volmar, n)().get_params()]


@pytest.mark.parametrize("name", WEIGHTED)
@pytest.mark.parametrize("k", [2, 3])
def test_sizes_are_weights(name, k):
    X, truth = groups(k)
    weights = np.array([5.0, 1.0, 1.0])[truth]
    labels = fitted(name, X, k, sample_weight=weights).labels_
    assert (np.diff(np.bincount(labels, weights)) <= 0).all()
    if (name, k) != ("SKMMC", 3):  # does not find these groups
        assert (labels[truth == 0] == 0).all()


@pytest.mark.parametrize("name", STARTED)
def test_labels_to_start_from_do_not_number_the_clusters(name):
    X, truth = groups(2)
    for start in (truth, 1 - truth):
        labels = fitted(name, X, 2, init=start).labels_
        np.testing.assert_array_equal(labels, expected(truth))


def test_sums_in_another_order_are_the_same_size():
    weights = np.array([0.1, 0.2, 0.3, 0.3, 0.2, 0.1])
    labels = np.array([0, 0, 0, 1, 1, 1])
    sums = np.bincount(labels, weights)
    assert sums[0] != sums[1]  # by rounding
    np.testing.assert_array_equal(cluster_order(labels, weights, 2), [0, 1])
    np.testing.assert_array_equal(cluster_order(1 - labels, weights, 2), [1, 0])


def test_clusters_without_rows_are_last():
    np.testing.assert_array_equal(cluster_order(np.array([3, 1, 1]), None, 5), [1, 3, 0, 2, 4])
