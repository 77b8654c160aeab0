"""Fits with labels of some rows, and links between rows."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning

from volmar import CPMMC, MSPC, SKMMC, KernelCPMMC, SoftLabelMVC
from volmar.guidance.guide import Guide
from volmar.models import load_model, save_model

#: Every clusterer that takes what the user knows, with quick parameters.
GUIDED = [
    MSPC(random_state=0),
    CPMMC(random_state=0),
    CPMMC(multiway="recursive", random_state=0),
    KernelCPMMC(gamma=0.05, random_state=0),
    KernelCPMMC(gamma=0.05, multiway="recursive", random_state=0),
    KernelCPMMC(method="nystroem", n_landmarks=50, gamma=0.05, random_state=0),
    SKMMC(gamma=0.05, random_state=0),
    SoftLabelMVC(random_state=0),
]


def some_labels(y, n, seed=0):
    """Return y with all labels but n unknown, at least one of each class known."""
    rng = np.random.default_rng(seed)
    first = [rng.choice(np.flatnonzero(y == label)) for label in np.unique(y)]
    others = rng.permutation(np.setdiff1d(np.arange(y.size), first))
    known = [*first, *others][:n]
    seeds = np.full(y.size, -1)
    seeds[known] = y[known]
    return seeds


@pytest.fixture(params=GUIDED, ids=lambda model: type(model).__name__)
def model(request):
    return clone(request.param)


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(150, 3, centers=3, cluster_std=1.5, random_state=1)


@pytest.mark.parametrize("k", [2, 3])
def test_seeds_keep_their_labels(model, blobs, k):
    X, y = blobs
    if k == 2:
        X, y = X[y < 2], y[y < 2]
    seeds = some_labels(y, 12)
    names = np.array([4, 9, 11])
    given = np.where(seeds >= 0, names[seeds], -1)
    model.set_params(n_clusters=k).fit(X, given)
    known = seeds >= 0
    np.testing.assert_array_equal(model.labels_[known], given[known])
    assert set(np.unique(given[known])) <= set(model.classes_)
    assert np.mean(model.labels_ == names[y]) > 0.95
    # The other rows are in the clusters that `predict` returns.
    np.testing.assert_array_equal(model.predict(X)[~known], model.labels_[~known])


def test_names_are_strings_or_integers(model, blobs):
    X, _ = blobs
    given = np.full(150, None, dtype=object)
    given[:2] = "this"
    labels = model.set_params(n_clusters=3).fit(X, given).labels_
    assert model.classes_.tolist() == ["this", "new 1", "new 2"]
    assert set(labels) == {"this", "new 1", "new 2"}


def test_fit_predict_takes_labels_and_links(model, blobs):
    X, y = blobs
    given = np.where(np.arange(150) < 20, y + 5, -1)
    groups = np.where(np.arange(150) > 140, 0, -1)
    model.set_params(n_clusters=3)
    labels = model.fit_predict(X, given, must_link=groups)
    np.testing.assert_array_equal(labels, clone(model).fit(X, given, must_link=groups).labels_)
    np.testing.assert_array_equal(labels[:20], given[:20])


def test_complete_labels_are_ignored(model, blobs):
    """GridSearchCV passes true classes to score a clustering by them."""
    X, y = blobs
    free = clone(model).set_params(n_clusters=3).fit(X)
    other = clone(model).set_params(n_clusters=3).fit(X, y)
    np.testing.assert_array_equal(free.labels_, other.labels_)
    assert not hasattr(other, "classes_")


@pytest.mark.parametrize("k", [2, 3])
def test_linked_rows_are_in_one_cluster(model, blobs, k):
    X, _ = blobs
    groups = np.full(150, -1)
    groups[:40:4] = 7
    groups[1:40:4] = 3
    labels = model.set_params(n_clusters=k).fit(X, must_link=groups).labels_
    assert all(np.unique(labels[groups == group]).size == 1 for group in (3, 7))
    assert np.unique(labels).size == k


@pytest.mark.parametrize(("n_groups", "k"), [(2, 2), (3, 3), (3, 2), (5, 3), (4, 4)])
def test_few_groups_are_kept(model, n_groups, k):
    """Groups that both clusters of the unguided fit share; n_clusters groups leave no choice."""
    X = make_blobs(120, 3, centers=2, random_state=1)[0]
    groups = np.arange(120) % n_groups
    X[:, 2] += 12.0 * groups  # every method can separate them
    free = clone(model).set_params(n_clusters=2).fit(X[:, :2]).labels_
    assert all(np.unique(free[groups == group]).size == 2 for group in range(n_groups))
    labels = model.set_params(n_clusters=k).fit(X, must_link=groups).labels_
    assert np.unique(labels).size == k
    assert all(np.unique(labels[groups == group]).size == 1 for group in range(n_groups))


@pytest.mark.parametrize("k", [2, 3])
def test_groups_without_structure_are_kept_or_refused_with_the_reason(model, k):
    """A hyperplane with a margin does not exist between random halves, but their names do."""
    X = make_blobs(100, 3, centers=2, random_state=1)[0]
    groups = np.arange(100) * k // 100
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if isinstance(model, CPMMC):
            with pytest.raises(ValueError, match=r"links .*size limits"):
                model.set_params(n_clusters=k).fit(X, must_link=groups)
            return
        if isinstance(model, KernelCPMMC) and k > 2:
            model.set_params(multiway="recursive")
        labels = model.set_params(n_clusters=k).fit(X, must_link=groups).labels_
    assert np.unique(np.column_stack([labels, groups]), axis=0).shape[0] == k


def test_too_many_clusters_for_the_groups_are_refused(model, blobs):
    X, _ = blobs
    model.set_params(n_clusters=3)
    with pytest.raises(ValueError, match=r"^n_clusters=3"):
        model.fit(X, must_link=np.arange(150) % 2)
    y = np.zeros(150, dtype=int)
    y[0] = -1
    with pytest.raises(ValueError, match=r"^n_clusters=3"):
        model.fit(X, y)
    with pytest.raises(ValueError, match=r"^n_clusters=3 .*at most 1"):
        model.fit(X, must_link=np.zeros(150))


def test_no_pairs_have_no_broken_links(model, blobs, tmp_path):
    X, y = blobs
    model.set_params(n_clusters=3)
    free = clone(model).fit(X)
    assert not hasattr(free, "broken_links_")
    for pairs, given in (
        ([], {}),
        ([], {"y": some_labels(y, 9)}),
        (np.empty((0, 2), dtype=int), {"must_link": np.where(y == 0, 4, -1)}),
    ):
        found = clone(model).fit(X, cannot_link=pairs, **given)
        assert found.broken_links_.shape == (0, 2)
        np.testing.assert_array_equal(found.labels_, clone(model).fit(X, **given).labels_)
        save_model(tmp_path / "model.volmar", found, force=True)
        assert load_model(tmp_path / "model.volmar").model.broken_links_.shape == (0, 2)


def test_contradictions_name_the_rows(model, blobs):
    X, _ = blobs
    y = np.full(150, -1)
    y[[3, 8]] = 0, 1
    groups = np.where(np.isin(np.arange(150), [3, 8]), 5, -1)
    with pytest.raises(ValueError, match=r"^must_link .*but y"):
        model.fit(X, y, must_link=groups)
    with pytest.raises(ValueError, match=r"^must_link .*cannot_link"):
        model.fit(X, must_link=groups, cannot_link=[[8, 3]])
    y[8] = 0
    with pytest.raises(ValueError, match=r"^cannot_link .*puts"):
        model.fit(X, y, cannot_link=[[3, 8]])
    y[:4] = 0, 1, 2, 3
    with pytest.raises(ValueError, match=r"^n_clusters=2"):
        model.set_params(n_clusters=2).fit(X, y)
    with pytest.raises(ValueError, match="cannot_link has row 150"):
        model.fit(X, cannot_link=[[0, 150]])
    with pytest.raises(ValueError, match=r"^must_link .*value"):
        model.fit(X, must_link=[1, 2])
    with pytest.raises(ValueError, match=r"^y .*value"):
        model.fit(X, [-1, 0])


def test_wrong_seeds_do_no_harm_beyond_their_rows(model):
    """Random labels carry no information, and do not change the clusters."""
    X, y = make_blobs([100, 100], 4, centers=[[0] * 4, [3] * 4], random_state=0)
    free = np.mean(clone(model).fit(X).labels_ != y)
    free = min(free, 1 - free)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        given = np.full(200, -1)
        known = rng.choice(200, 12, replace=False)
        given[known] = rng.integers(0, 2, 12)
        labels = clone(model).fit(X, given).labels_
        error = np.mean((labels != y)[given < 0])
        assert min(error, 1 - error) <= free + 0.02


def test_the_place_of_units_is_the_best():
    """By trying all labels of seven rows in three units that leave no cluster empty."""
    rng = np.random.default_rng(0)
    units = np.array([0, 1, 0, 2, 1, 0, 2])
    weights = rng.uniform(0.5, 2.0, 7)
    gains = rng.standard_normal((7, 3))
    seeds = np.full(7, -1)
    seeds[4] = 2
    guide = Guide(3, seeds, units, weights=weights)
    found = guide.place(gains).labels
    best = max(
        (sum(weights[i] * gains[i, c[units[i]]] for i in range(7)), c)
        for c in np.ndindex(3, 3, 3)
        if c[1] == 2 and len(set(c)) == 3
    )[1]
    np.testing.assert_array_equal(found, np.array(best)[units])


def test_a_saved_model_keeps_the_names(model, blobs, tmp_path):
    X, y = blobs
    names = np.array(["a", "b", "c"])
    given = np.where(some_labels(y, 9) >= 0, names[y], None)
    model.set_params(n_clusters=3).fit(X, given)
    save_model(tmp_path / "model.volmar", model)
    again = load_model(tmp_path / "model.volmar").model
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
