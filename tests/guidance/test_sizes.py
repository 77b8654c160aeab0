"""Fits with limits on cluster sizes and with cannot-link pairs."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning

from volmar import MSPC
from volmar.guidance.knowledge import check_limits
from volmar.models import load_model, save_model

MODEL = MSPC(3, random_state=0)


@pytest.fixture
def model():
    return clone(MODEL)


@pytest.fixture(scope="module")
def blobs():
    return make_blobs([70, 50, 30], 3, cluster_std=1.5, random_state=1)


@pytest.mark.parametrize(
    ("k", "limits", "low", "high"),
    [
        (2, {"max_cluster_size": 75}, 0, 75),
        (3, {"max_cluster_size": 50}, 0, 50),
        (3, {"max_cluster_size": 0.4}, 0, 60),
        (3, {"max_cluster_size": 1 / 3}, 0, 50),
        (3, {"min_cluster_size": 0.3, "max_cluster_size": 56}, 45, 56),
        (4, {"max_cluster_size": 0.25}, 0, 38),
    ],
)
def test_sizes_are_within_their_limits(model, blobs, k, limits, low, high):
    X = blobs[0]
    model.set_params(n_clusters=k, **limits).fit(X)
    sizes = np.bincount(model.labels_)
    assert sizes.size == k
    assert sizes.min() >= low
    assert sizes.max() <= high
    # Offsets of the scores enforce the limits, so new rows are treated equally.
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_a_limit_for_each_cluster(model, blobs):
    X, y = blobs
    model.set_params(max_cluster_size=[40, 90, 60]).fit(X)
    sizes = np.bincount(model.labels_)
    assert (sizes <= [90, 60, 40]).all()  # the largest cluster has the largest limit
    seeds = np.full(150, -1)
    seeds[[0, 1, 2, 3, 4, 5, 6, 7]] = np.array([8, 6, 4])[y[:8]]
    model.set_params(max_cluster_size=[40, 90, 60], min_cluster_size=[0.1, 0.5, 0.0])
    model.fit(X, seeds)
    assert model.classes_.tolist() == [4, 6, 8]
    sizes = np.array([np.count_nonzero(model.labels_ == name) for name in (4, 6, 8)])
    assert (sizes <= [40, 90, 60]).all()
    assert (sizes >= [15, 75, 0]).all()
    np.testing.assert_array_equal(model.labels_[seeds >= 0], seeds[seeds >= 0])


def test_limits_that_hold_change_nothing(model, blobs):
    """The fit ends where it would without limits."""
    X = blobs[0]
    free = clone(model).fit(X)
    limited = model.set_params(max_cluster_size=149).fit(X)
    np.testing.assert_array_equal(free.labels_, limited.labels_)
    assert limited.objective_ == pytest.approx(free.objective_)


def test_weights_are_limited_where_they_are_given(model, blobs):
    """Weight 2 is the same as repeating a row."""
    X = blobs[0]
    weights = np.where(np.arange(150) % 2 == 0, 2.0, 1.0)
    model.set_params(max_cluster_size=80).fit(X, sample_weight=weights)
    loads = np.bincount(model.labels_, weights)
    assert loads.max() <= 80
    # Weights above 2**32 are rescaled, and the limits with them.
    huge = clone(model).set_params(max_cluster_size=80 * 2**24)
    huge.fit(X, sample_weight=weights * 2.0**24)
    np.testing.assert_array_equal(huge.labels_, model.labels_)


def test_weights_that_do_not_fit_are_reported(model):
    X = np.arange(6.0)[:, None]
    model.set_params(n_clusters=2, max_cluster_size=0.5)
    with pytest.warns(ConvergenceWarning, match=r"size limits .*Cluster \d"):
        model.fit(X, sample_weight=[3.3, 3.3, 3.3, 1.7, 0.0, 3.3])


def test_linked_rows_move_together(model, blobs):
    X = blobs[0]
    groups = np.arange(150) // 5
    model.set_params(max_cluster_size=50).fit(X, must_link=groups)
    assert np.bincount(model.labels_).tolist() == [50, 50, 50]
    assert all(np.unique(model.labels_[groups == g]).size == 1 for g in range(30))


def test_rows_that_are_apart(model, blobs):
    X, y = blobs
    inside = [np.flatnonzero(y == c)[:2] for c in range(3)]
    model.fit(X, cannot_link=inside)
    assert model.broken_links_.shape == (0, 2)
    assert all(model.labels_[a] != model.labels_[b] for a, b in inside)
    with pytest.warns(ConvergenceWarning, match="1 of 3 pairs of cannot_link"):
        model.set_params(n_clusters=2).fit(X, cannot_link=[[0, 1], [0, 2], [1, 2]])
    assert model.broken_links_.shape == (1, 2)
    a, b = model.broken_links_[0]
    assert model.labels_[a] == model.labels_[b]


def test_saved_models_keep_their_offsets(model, blobs, tmp_path):
    X = blobs[0]
    model.set_params(max_cluster_size=50).fit(X)
    assert model._offsets is not None
    save_model(tmp_path / "model.volmar", model)
    again = load_model(tmp_path / "model.volmar").model
    np.testing.assert_array_equal(again.predict(X), model.labels_)


@pytest.mark.parametrize(
    ("params", "error", "words"),
    [
        ({"max_cluster_size": 40}, ValueError, "^max_cluster_size=40"),
        ({"min_cluster_size": 51}, ValueError, "^min_cluster_size=51"),
        ({"max_cluster_size": [0.5, 0.5]}, ValueError, "^max_cluster_size .*got 2"),
        ({"max_cluster_size": 1.5}, ValueError, "max_cluster_size must be"),
        ({"max_cluster_size": [1.5, 3.0, 4.0]}, ValueError, "floats above 1"),
        ({"max_cluster_size": [0, 100, 100]}, ValueError, "^max_cluster_size .*finite"),
        ({"max_cluster_size": "big"}, TypeError, "max_cluster_size must be a number"),
        ({"max_cluster_size": [[50]]}, ValueError, "one number per cluster"),
        ({"max_cluster_size": [[50], [1, 2]]}, ValueError, "one number per cluster"),
        (
            {"min_cluster_size": 50, "max_cluster_size": [40, 60, 60]},
            ValueError,
            "^min_cluster_size=50",
        ),
    ],
)
def test_impossible_limits_are_refused(model, blobs, params, error, words):
    with pytest.raises(error, match=words):
        model.set_params(**params).fit(blobs[0])


def test_limits_that_contradict_labels_and_links_are_refused(model, blobs):
    X = blobs[0]
    seeds = np.full(150, -1)
    seeds[:20] = 7
    with pytest.raises(ValueError, match=r"^max_cluster_size .*allows"):
        model.set_params(max_cluster_size=[10, 150, 150]).fit(X, seeds)
    model.set_params(max_cluster_size=None, min_cluster_size=[2, 66, 66])
    with pytest.raises(ValueError, match=r"^min_cluster_size .*reached"):
        model.fit(X, seeds)
    groups = np.where(np.arange(150) < 60, 1, -1)
    model.set_params(max_cluster_size=55, min_cluster_size=None)
    with pytest.raises(ValueError, match=r"^must_link"):
        model.fit(X, must_link=groups)
    weights = np.ones(150)
    weights[3] = 80
    with pytest.raises(ValueError, match=r"^sample_weight"):
        model.set_params(max_cluster_size=78).fit(X, sample_weight=weights)


def test_fractions_of_whole_rows_are_rounded_outwards():
    assert check_limits(0.5, 0.5, 2, 5, is_counted=True).low.tolist() == [2, 2]
    assert check_limits(0.5, 0.5, 2, 5, is_counted=True).high.tolist() == [3, 3]
    assert check_limits(0.5, 0.5, 2, 5).high.tolist() == [2.5, 2.5]
