"""Many clusters: cuts that are carried over to new labels, and offsets of sizes found faster."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from volmar import CPMMC, KernelCPMMC
from volmar.margin import multiway
from volmar.margin.engine.problem import Near, Violated
from volmar.margin.feature_space.linear import LinearSpace
from volmar.margin.multiway import (
    MANY_CLUSTERS,
    MAX_MOVED,
    MultiwayHinge,
    MultiwayMarginProblem,
    _Auction,
    _RankedAuction,
    sized_labels,
)

K = MANY_CLUSTERS + 2


def problem_of(rng, weighted, *, n=400, d=7, dtype=np.float64):
    X = rng.standard_normal((n, d)).astype(dtype)
    space = LinearSpace(X, rng.random(n) if weighted else None)
    loss = MultiwayHinge(rng.normal(0, 0.2, K), space.shares)
    return MultiwayMarginProblem(space, loss)


def scores_of(problem, rng):
    w = rng.standard_normal((problem.space.n_coordinates, K))
    return problem.space.scores(w) + 0.5 * problem.offsets


def moved_labels(rng, labels, share):
    moved = rng.random(labels.size) < share
    return np.where(moved, (labels + rng.integers(1, K, labels.size)) % K, labels)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_carried_cut_is_the_cut_of_its_rows_and_the_new_labels(rng, weighted):
    problem = problem_of(rng, weighted)
    before = rng.integers(0, K, problem.space.n_rows)
    cuts = []
    for _ in range(3):
        violated = problem.loss.violated(before, scores_of(problem, rng), 0.5)
        cuts.append(problem.cut(before, violated))
    labels = moved_labels(rng, before, 0.1)
    now = Near(labels, problem.loss.violated(labels, scores_of(problem, rng), 0.5))
    carried = problem.carried(cuts, before, now)
    assert len(carried) == 3
    for cut, old in zip(carried, cuts, strict=True):
        stays = labels == before
        np.testing.assert_array_equal(cut.chosen[stays], old.chosen[stays])
        np.testing.assert_array_equal(cut.chosen[~stays], now.violated.chosen[~stays])
        m = problem.loss.value(labels, cut.chosen)
        again = problem.cut(labels, Violated(cut.chosen, m, np.nan))
        np.testing.assert_allclose(cut.a, again.a, atol=1e-12)
        assert cut.m == pytest.approx(again.m)


def test_cuts_are_not_carried_where_many_rows_moved(rng):
    problem = problem_of(rng, weighted=False)
    before = rng.integers(0, K, problem.space.n_rows)
    violated = problem.loss.violated(before, scores_of(problem, rng), 0.5)
    labels = moved_labels(rng, before, 2 * MAX_MOVED)
    assert problem.carried([problem.cut(before, violated)], before, Near(labels, violated)) == []


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.05, 1.0])
def test_the_most_violated_cut_from_that_of_similar_labels(rng, weighted, share):
    problem = problem_of(rng, weighted)
    f = scores_of(problem, rng)
    labels = np.argmax(f, axis=1)
    others = moved_labels(rng, labels, share)
    near = Near(labels, problem.loss.violated(labels, f, 0.7))
    found = problem.violated_by(others, f, 0.7, near).violated
    whole = problem.loss.violated(others, f, 0.7)
    np.testing.assert_array_equal(found.chosen, whole.chosen)
    assert found.m == pytest.approx(whole.m)
    assert found.xi == pytest.approx(whole.xi)


def test_a_sparse_combination_is_the_dense_one(rng):
    problem = problem_of(rng, weighted=True, dtype=np.float32)
    labels = rng.integers(0, K, problem.space.n_rows)
    violated = problem.loss.violated(labels, scores_of(problem, rng), 0.5)
    a = problem.cut(labels, violated).a
    Z = problem.space.X.astype(np.float64) - problem.space.shares @ problem.space.X
    expected = np.zeros_like(a)
    for z, y, r, p in zip(Z, labels, violated.chosen, problem.space.shares, strict=True):
        if r:
            expected[:, y] += p * z
            expected[:, r - 1] -= p * z
    np.testing.assert_allclose(a, expected, atol=1e-6)


# ---------------------------------------------------------------------- sizes


@pytest.mark.parametrize("seed", range(5))
def test_ranks_that_are_followed_are_those_of_the_scores(seed):
    rng = np.random.default_rng(seed)
    f = rng.standard_normal((60, 12))
    p = np.full(60, 1 / 60)
    ranked, plain = _RankedAuction(f, p, 0.02, None), _Auction(f, p, 0.02, None)
    b = np.zeros(12)
    for _ in range(30):
        b = b.copy()
        b[rng.integers(0, 12, rng.integers(1, 4))] += rng.normal(0, 1.0)
        ranked.set_offsets(b)
        plain.set_offsets(b)
        order = np.argsort(-(f + b), axis=1)
        np.testing.assert_array_equal(ranked.first, order[:, 0])
        np.testing.assert_array_equal(ranked.second, order[:, 1])
        np.testing.assert_allclose(ranked.sizes, plain.sizes)
        for group in np.eye(12, dtype=bool):
            np.testing.assert_allclose(ranked.lead(group), plain.lead(group))
            np.testing.assert_array_equal(
                ranked.best_of_others(group), plain.best_of_others(group)
            )


def test_a_guess_leads_to_sizes_that_are_allowed_at_about_the_same_score(rng):
    f = rng.standard_normal((3000, K)) + 2.0 * rng.standard_normal(K)
    free = sized_labels(f, None, 0.03)
    guess = 1.02 * free.offsets
    found = sized_labels(f, None, 0.03, guess=guess)
    assert np.bincount(found.labels, minlength=K).min() >= 90
    rows = np.arange(len(f))
    best, value = (f[rows, one.labels].sum() for one in (free, found))
    assert value >= best - 0.01 * abs(best)


def test_a_sample_has_enough_rows_of_the_smallest_cluster(rng, monkeypatch):
    n = 60_000
    f = rng.standard_normal((n, 3))
    f[:, 2] -= 5.0
    seen = []
    whole = multiway._offsets
    monkeypatch.setattr(multiway, "_offsets", lambda *of: seen.append(len(of[0])) or whole(*of))
    found = sized_labels(f, None, 0.01)
    assert np.bincount(found.labels).min() >= 0.01 * n
    assert seen[0] >= 20_000 * 0.7


# ---------------------------------------------------------------------- estimators


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_groups_are_found_with_a_certificate(dtype):
    X, y = make_blobs(3000, 20, centers=30, cluster_std=3.0, random_state=0)
    model = CPMMC(30, random_state=0).fit(X.astype(dtype))
    assert adjusted_rand_score(y, model.labels_) > 0.9
    assert model.result_.gap <= 0.01 * abs(model.objective_) * (1 + 1e-6)


def test_landmarks_where_there_are_many_rows_or_clusters(rng):
    X = rng.standard_normal((600, 4))
    assert hasattr(KernelCPMMC(gamma=0.1, random_state=0).fit(X), "dual_coef_")
    many = KernelCPMMC(12, gamma=0.1, random_state=0).fit(X)
    assert not hasattr(many, "dual_coef_")
    assert len(many._hyperplane.linear.coef) <= 120
    exact = KernelCPMMC(12, gamma=0.1, method="exact", random_state=0).fit(X)
    assert hasattr(exact, "dual_coef_")
