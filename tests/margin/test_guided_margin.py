"""The margin estimators with labels of some rows and links: engine, certificate, splits."""

import itertools

import cvxpy as cp
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.metrics.pairwise import rbf_kernel

from volmar import CPMMC, SKMMC, KernelCPMMC
from volmar.base.guided import grouped_clusters, guide_of_sides
from volmar.guidance.guide import Guide
from volmar.margin.engine import descent as sampling
from volmar.margin.engine.descent import first_sample, maximise_margin
from volmar.margin.engine.problem import HingeLoss, MarginProblem, clusters_allowed, sides_allowed
from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.feature_space.linear import LinearSpace
from volmar.margin.multiway import NearestMean, balanced_weights, maximise_margins
from volmar.solvers import Status

TOL = 1e-4
UNITS = np.array([0, 1, 0, 2, 1, 3, 4])
MODELS = [
    CPMMC(random_state=0),
    KernelCPMMC(gamma=0.05, random_state=0),
    SKMMC(gamma=0.05, random_state=0),
]


def two_groups(rng, n=60, shift=2.0):
    X = rng.standard_normal((n, 3)) * [0.5, 1.0, 2.0]
    X[: n // 3] += shift
    return X, (np.arange(n) < n // 3).astype(int)


def wrong_seeds(labels, rows, k=2):
    """Return seeds that contradict the labels of some rows."""
    seeds = np.full(labels.size, -1)
    seeds[rows] = (labels[rows] + 1) % k
    return seeds


# ---------------------------------------------------------------------- labels


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [2, 3])
def test_allowed_labels_have_the_lowest_hinge(rng, k, weighted):
    """By trying all labels of seven rows in five units, one with a seed, and no empty cluster."""
    rho = 0.8
    for _ in range(10):
        weights = rng.uniform(0.5, 2.0, 7) if weighted else None
        p = rng.dirichlet(np.ones(7)) if weighted else None
        seeds = np.full(7, -1)
        seeds[4] = k - 1
        guide = Guide(k, seeds, UNITS, weights=weights)
        if k == 2:
            f = rng.standard_normal(7)
            found = sides_allowed(guide, f, rho, p)
            columns = np.column_stack([-f, f])
        else:
            columns = rng.standard_normal((7, 3))
            found = clusters_allowed(guide, columns, rho, p).labels

        def hinge(labels, columns=columns, p=p):
            own = columns[np.arange(7), labels]
            if k == 2:
                lack = rho - own
            else:
                others = columns.copy()
                others[np.arange(7), labels] = -np.inf
                lack = rho - own + others.max(axis=1)
            return np.average(np.maximum(lack, 0.0), weights=p)

        allowed = [np.array(c)[UNITS] for c in itertools.product(range(k), repeat=5)]
        full = [labels for labels in allowed if np.unique(labels).size == k]
        best = min(hinge(labels) for labels in full if labels[4] == k - 1)
        assert hinge(found) == pytest.approx(best, abs=1e-12)
        assert found[4] == k - 1
        assert all(np.unique(found[unit == UNITS]).size == 1 for unit in range(5))


# ---------------------------------------------------------------------- the descent


@pytest.mark.parametrize("links", [False, True])
@pytest.mark.parametrize("threshold", ["adaptive", "fixed"])
def test_two_clusters_are_certified_with_seeds_on_the_wrong_side(rng, threshold, links):
    X, y = two_groups(rng)
    n, C = len(y), 3.0
    weights = rng.uniform(0.5, 2.0, n)
    p = weights / weights.sum()
    seeds = wrong_seeds(y, [0, 1, 40])
    units = None
    if links:
        units = np.arange(n)
        units[[5, 50, 6]] = 5
        units = np.unique(units, return_inverse=True)[1]
    guide = Guide(2, seeds, units, weights=weights)
    problem = MarginProblem(
        LinearSpace(X, weights), HingeLoss(p), tau=0.05, threshold=threshold, guide=guide
    )
    start = guide.place(np.eye(2)[y]).labels
    found = maximise_margin(problem, start, C=C, tol=TOL)
    assert found.status is Status.CONVERGED
    known = seeds >= 0
    np.testing.assert_array_equal(found.labels[known], seeds[known])
    signs = 2.0 * found.labels - 1.0
    assert (signs * found.scores)[known].min() < 0
    assert (np.diff(found.history) <= 1e-12).all()
    w, t = cp.Variable(3), cp.Variable()
    rho = cp.Variable(nonneg=True) if threshold == "adaptive" else cp.Constant(1.0)
    lack = rho - cp.multiply(signs, (X - p @ X) @ w + t)
    cost = cp.sum_squares(w) / 2 + C * p @ cp.pos(lack)
    cost -= rho if threshold == "adaptive" else 0.0
    best = cp.Problem(cp.Minimize(cost), [cp.abs(t) <= 0.05 * rho]).solve(solver=cp.CLARABEL)
    assert found.objective - found.gap <= best + 1e-7
    assert best <= found.objective + 1e-7
    assert found.gap <= TOL * abs(found.objective)


@pytest.mark.parametrize("links", [False, True])
@pytest.mark.parametrize("kind", ["linear", "rbf"])
def test_three_clusters_are_certified_with_seeds_on_the_wrong_side(kind, links):
    X, y = make_blobs(45, 2, centers=3, cluster_std=1.5, random_state=3)
    n, k, C = len(y), 3, 2.5
    seeds = wrong_seeds(y, [0, 7, 20], k)
    units = None
    if links:
        units = np.arange(n)
        units[[5, 31]] = 5
        units = np.unique(units, return_inverse=True)[1]
    guide = Guide(k, seeds, units)
    start = guide.place(np.eye(k)[y]).labels
    weights = balanced_weights(start, None, np.bincount(start).astype(float))
    p = weights / weights.sum()
    if kind == "linear":
        space, Z = LinearSpace(X, weights), X - p @ X
    else:
        K = rbf_kernel(X, gamma=0.05)
        H = np.eye(n) - np.outer(np.ones(n), p)
        values, vectors = np.linalg.eigh(H @ K @ H.T)
        Z = vectors * np.sqrt(np.maximum(values, 0.0))
        space = KernelSpace(K, p)
    found = maximise_margins(space, start, k, C=C, min_share=0.05, tol=1e-3, guide=guide)
    assert found.status in (Status.CONVERGED, Status.CYCLE)
    labels = found.labels
    np.testing.assert_array_equal(labels[seeds >= 0], seeds[seeds >= 0])
    assert not links or labels[5] == labels[31]
    assert (np.diff(found.history) <= 1e-12).all()
    W, rho = cp.Variable((Z.shape[1], k)), cp.Variable(nonneg=True)
    beta = NearestMean.of(space, start, k, 0.05, None).in_margins(C)
    cost = cp.sum_squares(W) / 2 - rho
    F = Z @ W
    for i in range(n):
        c = labels[i]
        rivals = [F[i, r] + rho * beta[r] for r in range(k) if r != c]
        cost += C * p[i] * cp.pos(rho - F[i, c] - rho * beta[c] + cp.maximum(*rivals))
    best = cp.Problem(cp.Minimize(cost)).solve(solver=cp.CLARABEL)
    assert found.objective - found.gap <= best + 1e-6
    assert best <= found.objective + 1e-6


def test_a_sample_of_many_rows_has_its_part_of_the_guide(monkeypatch, rng):
    monkeypatch.setattr(sampling, "MANY_ROWS", 2_000)
    monkeypatch.setattr(sampling, "SAMPLE_SHARE", 0.2)
    X, y = two_groups(rng, 3_000, 4.0)
    seeds = wrong_seeds(y, np.arange(0, 3_000, 100))
    problem = MarginProblem(LinearSpace(X, None), HingeLoss(), guide=Guide(2, seeds))
    sample = first_sample(problem, y, 0)
    np.testing.assert_array_equal(sample.problem.guide.seeds, seeds[sample.chosen])
    found = maximise_margin(problem, y, C=2.0, sample=sample)
    known = seeds >= 0
    np.testing.assert_array_equal(found.labels[known], seeds[known])
    assert found.gap <= 0.01 * abs(found.objective)


# ---------------------------------------------------------------------- estimators


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_the_result_belongs_to_the_labels(model, rng):
    X, y = two_groups(rng, 90, 5.0)
    given = np.full(90, -1)
    given[::9] = y[::9]
    given[[1, 60]] = 0, 1  # wrong
    model = clone(model).fit(X, given)
    np.testing.assert_array_equal(model.labels_[given >= 0], given[given >= 0])
    np.testing.assert_array_equal(model.result_.labels, model.labels_)
    assert model.result_.gap <= 0.011 * abs(model.objective_)
    assert np.mean(model.labels_ != y) < 0.1


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_fit_without_labels_remembers_nothing_of_one_with_them(model):
    X, y = make_blobs(90, 3, centers=3, random_state=1)
    given = np.where(np.arange(90) < 12, y, -1)
    model = clone(model).set_params(n_clusters=3)
    free = clone(model).fit(X)
    model.fit(X, given)
    assert not {"_guide", "_origin"} & vars(model).keys()
    again = model.fit(X)
    assert vars(again).keys() == vars(free).keys()
    np.testing.assert_array_equal(again.decision_function(X), free.decision_function(X))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_weight_of_two_is_a_row_twice(model, rng):
    X, y = two_groups(rng, 60, 8.0)
    given = np.where(np.arange(60) % 10 == 0, y, -1)
    given[7] = 0  # wrong
    twice = np.arange(0, 60, 5)
    weights = np.ones(60)
    weights[twice] = 2.0
    one = clone(model).fit(X, given, sample_weight=weights)
    other = clone(model).fit(np.vstack([X, X[twice]]), np.append(given, given[twice]))
    np.testing.assert_array_equal(one.labels_, other.labels_[:60])
    assert one.objective_ == pytest.approx(other.objective_, rel=0.02)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_the_papers_loops_refuse_what_they_do_not_know(model, rng):
    X, y = two_groups(rng)
    given = np.where(np.arange(60) % 10 == 0, y, -1)
    model = clone(model).set_params(mode="paper")
    for known in ({"y": given}, {"must_link": given}, {"cannot_link": [[0, 50]]}):
        with pytest.raises(ValueError, match=r"^mode\b"):
            model.fit(X, **known)


def test_seeds_lead_to_the_other_clusters():
    """Four groups at the corners of a rectangle: the free split is across the longer side."""
    rng = np.random.default_rng(0)
    corner = rng.integers(0, 4, 400)
    X = rng.standard_normal((400, 2)) * 0.5 + np.array([[0, 0], [6, 0], [0, 4], [6, 4]])[corner]
    short, long = corner // 2, corner % 2
    given = np.full(400, -1)
    given[:20] = short[:20]
    for model in MODELS:
        free = clone(model).fit(X).labels_
        assert abs(np.mean(free == long) - 0.5) > 0.45
        assert np.mean(clone(model).fit(X, given).labels_ == short) > 0.98


# ---------------------------------------------------------------------- the tree


def test_clusters_are_grouped_by_most_of_their_rows():
    start = np.array([0, 0, 0, 1, 1, 2, 2, 2, -1])
    sides = np.array([0, 0, 1, 1, 1, 1, 1, 0, 0])
    found = grouped_clusters(start, np.arange(3), sides, None)
    np.testing.assert_array_equal(found, [False, True, True])
    heavy = np.array([1, 1, 5, 1, 1, 1, 1, 1, 1.0])
    found = grouped_clusters(start, np.arange(3), sides, heavy)
    # All have most of their weight on one side: the smallest share changes sides.
    np.testing.assert_array_equal(found, [True, True, False])


def test_the_guide_of_sides_sums_limits_and_keeps_links_of_pairs():
    seeds = np.array([0, 1, 2, -1, 2])
    apart = np.array([[0, 1], [2, 3]])
    limits = np.array([1.0, 2.0, 4.0])
    guide = Guide(3, seeds, None, apart, limits, 2 * limits)
    two = guide_of_sides(guide, np.arange(5), np.arange(3), np.array([False, True, False]))
    np.testing.assert_array_equal(two.seeds, [0, 1, 0, -1, 0])
    np.testing.assert_array_equal(two.low, [5.0, 2.0])
    np.testing.assert_array_equal(two.high, [10.0, 4.0])
    assert two.apart.size == 0
    last = guide_of_sides(guide, np.array([2, 3, 4]), np.array([0, 2]), np.array([False, True]))
    np.testing.assert_array_equal(last.seeds, [1, -1, 1])
    np.testing.assert_array_equal(last.apart, [[0, 1]])
    np.testing.assert_array_equal(last.low, [1.0, 4.0])


@pytest.mark.parametrize("kernel", ["linear", "precomputed"])
def test_each_leaf_is_a_class(kernel):
    X, y = make_blobs(120, 4, centers=4, random_state=5)
    names = np.array(["a", "b", "c", "d"])
    given = np.full(120, None, dtype=object)
    given[:16] = names[y[:16]]
    if kernel == "linear":
        model, rows = CPMMC(4, multiway="recursive", random_state=0), X
    else:
        rows = rbf_kernel(X, gamma=0.02)
        model = KernelCPMMC(4, kernel=kernel, multiway="recursive", random_state=0)
    model.fit(rows, given)
    assert sorted(leaf.label for leaf in model.tree_.leaves()) == [0, 1, 2, 3]
    assert model.tree_.n_leaves == 4
    np.testing.assert_array_equal(model.labels_, names[y])
    np.testing.assert_array_equal(model.predict(rows), model.labels_)
    assert all(not np.ndim(split.model.init) for split in model.tree_.splits())
    assert "a part" not in str(model.tree_)
