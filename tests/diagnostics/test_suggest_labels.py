"""Suggested rows are border rows, far from each other and from the labelled ones."""

import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from volmar import CPMMC, MSPC, KernelKMeans
from volmar.diagnostics import LabelSuggestions, label_suggestions, suggest_labels

N = 12


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2)) * [1.0, 1.5]
    X[:300, 0] += 2.2
    X[300:, 0] -= 2.2
    return X


@pytest.fixture(scope="module")
def model(rows):
    return MSPC(2, random_state=0).fit(rows)


def test_rows_are_at_the_border(model, rows):
    found = suggest_labels(model, rows, N, random_state=0)
    assert found.dtype == np.int64
    assert len(set(found)) == N
    lead = np.abs(model.decision_function(rows))
    assert (lead[found] < np.quantile(lead, 0.2)).all()


def test_rows_are_apart(model, rows):
    """Farther from each other than the rows nearest to the border are."""
    found = suggest_labels(model, rows, N, random_state=0)
    nearest = np.argsort(np.abs(model.decision_function(rows)))[:N]
    assert nearest_other(rows[found]) > 1.5 * nearest_other(rows[nearest])


def nearest_other(points, others=None):
    """Mean distance to the nearest of the other points."""
    apart = np.linalg.norm(points[:, None] - (points if others is None else others), axis=2)
    apart[apart == 0] = np.inf
    return apart.min(axis=1).mean()


def test_the_choice_is_the_greedy_one_by_brute_force():
    """Every chosen row maximises its use times the distance to those before, up to the reach."""
    rng = np.random.default_rng(1)
    pool, known, useful = rng.normal(size=(40, 3)), rng.normal(size=(2, 3)), rng.uniform(size=40)
    module = sys.modules[suggest_labels.__module__]
    chosen = module._spread_out((pool, known), useful, 8)
    reach = np.quantile(np.linalg.norm(pool - pool.mean(axis=0), axis=1), module.REACH)
    before = list(known)
    for step in range(8):
        worth = [
            use * min([reach, *(np.linalg.norm(row - other) for other in before)])
            for row, use in zip(pool, useful, strict=True)
        ]
        assert worth[chosen[step]] == pytest.approx(max(worth))
        before.append(pool[chosen[step]])


def test_rows_on_which_halves_disagree_come_first(model, rows):
    found = label_suggestions(
        rows, model.labels_, model.decision_function(rows), model, N, random_state=0
    )
    assert isinstance(found, LabelSuggestions)
    assert found.disagreement[:4].min() > 0
    assert found.disagreement.mean() > 0.1
    np.testing.assert_array_equal(found.clusters, model.labels_[found.rows])
    np.testing.assert_array_equal(found.rivals, 1 - found.clusters)


def test_seeds_repeat(model, rows):
    a, b = (suggest_labels(model, rows, N, random_state=5) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(model.labels_, MSPC(2, random_state=0).fit(rows).labels_)


def test_labelled_rows_are_left_out_and_kept_away_from(model, rows):
    first = suggest_labels(model, rows, N, random_state=0)
    y = np.full(len(rows), -1)
    y[first] = 1
    second = suggest_labels(model, rows, N, y=y, random_state=0)
    assert not set(first) & set(second)
    order = np.argsort(np.abs(model.decision_function(rows)))
    nearest = [row for row in order if row not in set(first)][:N]
    assert nearest_other(rows[second], rows[first]) > nearest_other(rows[nearest], rows[first])
    names = np.array(["a"] * 600, dtype=object)
    names[:50] = -1
    assert set(suggest_labels(model, rows, N, y=names, random_state=0)) <= set(range(50))


def test_more_clusters_have_their_rivals():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal((4.0 * j, 0.0), 1.0, (150, 2)) for j in range(3)])
    fitted = MSPC(3, random_state=0).fit(X)
    scores = fitted.decision_function(X)
    found = label_suggestions(X, fitted.labels_, scores, fitted, 20, random_state=0)
    for row, cluster, rival in zip(found.rows, found.clusters, found.rivals, strict=True):
        assert list(np.argsort(-scores[row])[:2]) == [cluster, rival]
    middle = np.sort([X[fitted.labels_ == j, 0].mean() for j in range(3)])[1]
    assert (X[found.rows, 0] < middle).any()  # both borders
    assert (X[found.rows, 0] > middle).any()


@pytest.mark.parametrize(
    "made",
    [
        CPMMC(2, random_state=0),
        KernelKMeans(2, random_state=0),
        KMeans(2, n_init=2, random_state=0),
        make_pipeline(StandardScaler(), KMeans(2, n_init=2, random_state=0)),
    ],
)
def test_any_clusterer_that_predicts(made, rows):
    found = suggest_labels(made.fit(rows), rows, N, random_state=0)
    has_scores = hasattr(made, "decision_function")
    lead = np.abs(made.decision_function(rows) if has_scores else rows[:, 0])
    assert lead[found].max() < np.quantile(lead, 0.3)


def test_sparse_and_wide_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 300))
    X[:60] += 0.5
    fitted = CPMMC(2, random_state=0).fit(X)
    found = suggest_labels(fitted, X, 5, random_state=0)
    csr = CPMMC(2, random_state=0).fit(sparse.csr_array(X))
    again = suggest_labels(csr, sparse.csr_array(X), 5, random_state=0)
    np.testing.assert_array_equal(found, again)


def test_dask_rows_have_their_own_numbers(model, rows):
    da = pytest.importorskip("dask.array")
    found = suggest_labels(model, da.from_array(rows, chunks=100), N, random_state=0)
    lead = np.abs(model.decision_function(rows))
    assert (lead[found] < np.quantile(lead, 0.2)).all()


def test_copies_are_suggested_once(rows):
    X = np.repeat(rows[::60], 30, axis=0)
    found = suggest_labels(KMeans(2, n_init=1, random_state=0).fit(X), X, 60, random_state=0)
    assert len(found) == len(np.unique(X[found], axis=0)) == 10


def test_wrong_input_is_refused(model, rows):
    with pytest.raises(ValueError, match="n must be at least 1"):
        suggest_labels(model, rows, 0)
    with pytest.raises(ValueError, match=r"y must hold one value per row, shape \(600,\)"):
        suggest_labels(model, rows, 3, y=[1, 2])
    with pytest.raises(TypeError, match="model must be a fitted clusterer with predict, got MSPC"):
        suggest_labels(MSPC, rows)
    with pytest.raises(ValueError, match="not fitted"):
        suggest_labels(MSPC(), rows)
    one = MSPC(1, random_state=0).fit(rows)
    with pytest.raises(ValueError, match="the model has 1 cluster in these rows"):
        suggest_labels(one, rows)
    pairs = rows[:50] @ rows[:50].T
    given = KernelKMeans(2, kernel="precomputed", random_state=0).fit(pairs)
    with pytest.raises(ValueError, match="precomputed"):
        suggest_labels(given, pairs)
