"""More than two clusters at once: sizes, the hinge and its cuts, the descent, the start."""

import dataclasses
import itertools

import cvxpy as cp
import numpy as np
import pytest
from helpers.groups import overlapping_groups
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import optimize
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import rbf_kernel

from volmar import CPMMC, KernelCPMMC
from volmar.margin.engine.descent import CutPool, maximise_margin
from volmar.margin.engine.problem import Violated
from volmar.margin.engine.starts import principal_scores
from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.feature_space.linear import LinearSpace
from volmar.margin.multiway import (
    EVENLY,
    MIN_SAMPLE,
    MultiwayHinge,
    MultiwayMarginProblem,
    NearestMean,
    balanced_weights,
    shares_of_clusters,
    sized_labels,
)
from volmar.solvers import Status
from volmar.solvers.cutting_plane_qp import CuttingPlaneResult

BOTH = [CPMMC, KernelCPMMC]


# ---------------------------------------------------------------------- sizes


def size_offsets(f, shares, floor):
    """Return the offsets of `sized_labels`, and check that they give its labels."""
    sized = sized_labels(f, shares, floor)
    if sized is None:
        return None
    np.testing.assert_array_equal(sized.labels, np.argmax(f + sized.offsets, axis=1))
    return sized.offsets


def labellings(n, k, p, floor):
    """All labels whose clusters have the minimum share."""
    every = np.array(list(itertools.product(range(k), repeat=n)))
    sizes = np.stack([(every == c) @ p for c in range(k)], axis=1)
    return every[sizes.min(axis=1) >= floor - 1e-12]


@given(seed=st.integers(0, 10**6), k=st.integers(2, 3), count=st.integers(1, 2))
@example(seed=6781, k=3, count=2)  # raising offsets in groups alone takes dozens of rounds here
@settings(max_examples=60, deadline=None)
def test_offsets_give_the_best_labels_of_these_sizes(seed, k, count):
    rng = np.random.default_rng(seed)
    n = 7
    # Shifted, so that some clusters are often empty.
    f = rng.standard_normal((n, k)) + 3.0 * rng.standard_normal(k)
    b = size_offsets(f, None, count / n)
    labels = np.argmax(f + b, axis=1)
    assert np.bincount(labels, minlength=k).min() >= count
    assert b.min() >= 0.0
    allowed = labellings(n, k, np.full(n, 1 / n), count / n)
    best = f[np.arange(n), allowed].sum(axis=1).max()
    assert f[np.arange(n), labels].sum() == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_offsets_are_the_dual_of_the_transport_problem(rng, weighted):
    n, k, floor = 60, 5, 0.15
    p = rng.dirichlet(np.full(n, 5.0)) if weighted else np.full(n, 1 / n)
    for _ in range(10):
        f = rng.standard_normal((n, k)) + 2.0 * rng.standard_normal(k)
        b = size_offsets(f, p if weighted else None, floor)
        sizes = np.kron(np.ones(n), np.eye(k)) * -1.0
        whole = np.kron(np.eye(n), np.ones(k))
        lp = optimize.linprog(
            -f.ravel(), A_ub=sizes, b_ub=np.full(k, -floor), A_eq=whole, b_eq=p, method="highs"
        )
        # Weak duality holds for all offsets; whole rows make a cluster exceed its minimum size.
        dual = p @ (f + b).max(axis=1) - floor * b.sum()
        assert dual >= -lp.fun - 1e-9
        assert dual <= -lp.fun + (2 * p.max() * b.sum() if weighted else 1e-6)
        found = shares_of_clusters(np.argmax(f + b, axis=1), k, p)
        assert found.min() >= floor * (1 - 1e-9)
        # An offset is positive only if the minimum size is just reached.
        assert np.all(found[b > 0] <= floor + (2 * p.max() if weighted else 1e-9))


def test_offsets_are_zero_if_no_cluster_is_too_small(rng):
    f = np.eye(4)[np.arange(40) % 4] + 0.1 * rng.random((40, 4))
    np.testing.assert_array_equal(size_offsets(f, None, 0.25), 0.0)


def test_clusters_that_score_alike_share_rows():
    """Two clusters whose scores are nearly the same: offsets must not rise row by row."""
    rng = np.random.default_rng(0)
    f = np.column_stack([5.0 + rng.random(3000), 1e-6 * rng.random((3000, 2))])
    b = size_offsets(f, None, 0.2)
    assert np.bincount(np.argmax(f + b, axis=1)).min() == 600


@pytest.mark.parametrize("weighted", [False, True])
def test_offsets_of_many_rows_are_those_of_a_sample_with_room(rng, weighted):
    n, k, floor = 6 * MIN_SAMPLE, 5, 0.12
    p = rng.dirichlet(np.full(n, 5.0)) if weighted else None
    f = rng.standard_normal((n, k)) + np.array([3.0, 0.0, 0.0, 0.0, -1.0])
    b = size_offsets(f, p, floor)
    found = shares_of_clusters(np.argmax(f + b, axis=1), k, p)
    assert found.min() >= floor * (1 - 1e-9)
    # The smallest clusters exceed the minimum by at most some standard errors of the sample.
    assert np.all(found[b > 0] <= floor + 6 * np.sqrt(floor / MIN_SAMPLE))


def test_exactly_equal_sizes_of_many_rows():
    """No sample with larger clusters exists, so the auction runs on all rows."""
    rng = np.random.default_rng(0)
    n = 2 * MIN_SAMPLE + 2
    f = rng.standard_normal((n, 2)) + np.array([1.0, 0.0])
    b = size_offsets(f, None, 0.5)
    assert np.bincount(np.argmax(f + b, axis=1)).tolist() == [n // 2, n // 2]


def test_too_few_different_rows_have_no_offsets():
    f = np.repeat(np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 3.0]]), 5, axis=0)
    assert size_offsets(f, None, 0.2) is None
    assert size_offsets(np.zeros((6, 3)), None, 0.2) is None


# ---------------------------------------------------------------------- hinge, cuts


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offset", [False, True])
def test_the_hinge_asks_for_the_largest_slack_of_all_cuts(rng, weighted, offset):
    n, k, rho = 5, 3, 0.7
    p = rng.dirichlet(np.ones(n)) if weighted else np.full(n, 1 / n)
    beta = rng.standard_normal(k) if offset else np.zeros(k)
    loss = MultiwayHinge(beta, p if weighted else None)
    rows = np.arange(n)
    for _ in range(10):
        y, raw = rng.integers(0, k, n), rng.standard_normal((n, k))
        f = raw + rho * beta

        def slack(chosen, y=y, raw=raw):
            """Rho m - <w, a>, from the formula."""
            taken, r = chosen > 0, np.maximum(chosen - 1, 0)
            lacks = rho * (1 - beta[y] + beta[r]) - raw[rows, y] + raw[rows, r]
            return p @ (taken * lacks)

        every = [
            np.array(chosen)
            for chosen in itertools.product(range(k + 1), repeat=n)
            if not np.any(np.array(chosen) - 1 == y)
        ]
        found = loss.violated(y, f, rho)
        assert found.xi == pytest.approx(max(map(slack, every)), abs=1e-14)
        assert slack(found.chosen) == pytest.approx(found.xi, abs=1e-14)
        assert found.m == pytest.approx(loss.value(y, found.chosen), abs=1e-15)
        # The first cut bounds rho: none has a larger m.
        first = loss.first(y, f)
        assert first.m == pytest.approx(max(loss.value(y, c) for c in every), abs=1e-14)
        assert first.m == pytest.approx(loss.value(y, first.chosen), abs=1e-15)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_relabelling_by_the_largest_score_never_raises_the_hinge(seed):
    rng = np.random.default_rng(seed)
    y, f, rho = rng.integers(0, 4, 20), rng.standard_normal((20, 4)), rng.random()
    loss = MultiwayHinge(np.zeros(4))
    assert loss.violated(np.argmax(f, axis=1), f, rho).xi <= loss.violated(y, f, rho).xi + 1e-15


def problem_of(X, labels, kind="linear", C=2.0, weights=None, k=4, **options):
    """Return the problem of a start, its centred rows, shares and offsets."""
    p = balanced_weights(labels, weights, np.bincount(labels, weights, k))
    if kind == "linear":
        source, Z = LinearSpace(X, p), X - p @ X
    else:
        K = rbf_kernel(X, gamma=0.2)
        source = KernelSpace(K, p)
        H = np.eye(p.size) - np.outer(np.ones(p.size), p)
        values, vectors = np.linalg.eigh(H @ K @ H.T)
        kept = values > 1e-12 * values.max()
        Z = vectors[:, kept] * np.sqrt(values[kept])
    beta = NearestMean.of(source, labels, k, options.get("least_share", 0.0)).in_margins(C)
    problem = MultiwayMarginProblem(source, MultiwayHinge(beta, p), min_m=1 / C, **options)
    return problem, Z, p, beta


@pytest.mark.parametrize("kind", ["linear", "rbf"])
def test_a_cut_is_the_sum_of_its_rows(rng, kind):
    X, labels = overlapping_groups(rng)
    n, k = len(X), 4
    problem, Z, p, _ = problem_of(X, labels, kind)
    chosen = rng.integers(0, k + 1, n)
    chosen[chosen - 1 == labels] = 0
    chosen[::7] = EVENLY
    v = np.zeros((n, k))
    for i in range(n):
        if chosen[i]:
            v[i, labels[i]] = p[i]
            rivals = [chosen[i] - 1] if chosen[i] > 0 else [r for r in range(k) if r != labels[i]]
            v[i, rivals] = -p[i] / len(rivals)
    cut = problem.cut(labels, Violated(chosen, 0.0, 0.0))
    a = Z.T @ v
    other = problem.cut(labels, problem.loss.first(labels, None))
    inner = problem.space.inner(cut.a, [cut.a, other.a])
    assert inner[0] == pytest.approx((a**2).sum(), rel=1e-9)
    np.testing.assert_allclose(problem.space.scores(cut.a), Z @ a, atol=1e-9)


def optimum(Z, p, y, beta, C):
    """The convex problem of given labels, one slack per row, by an independent solver."""
    n, k = len(y), beta.size
    W, rho, xi = cp.Variable((Z.shape[1], k)), cp.Variable(), cp.Variable(n)
    F = Z @ W + np.ones((n, 1)) @ cp.reshape(rho * beta, (1, k), order="C")
    constraints = [xi >= 0, rho >= 0]
    for i in range(n):
        constraints += [F[i, y[i]] - F[i, r] >= rho - xi[i] for r in range(k) if r != y[i]]
    cost = 0.5 * cp.sum_squares(W) - rho + C * (p @ xi)
    model = cp.Problem(cp.Minimize(cost), constraints)
    model.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return float(model.value)


@pytest.mark.parametrize("kind", ["linear", "rbf"])
@pytest.mark.parametrize("C", [1.2, 2.0, 4.0])
def test_cuts_solve_the_convex_problem_of_given_labels(rng, kind, C):
    X, labels = overlapping_groups(rng, n=40)
    weights = rng.integers(1, 4, 40).astype(float)
    problem, Z, p, beta = problem_of(X, labels, kind, C, weights)
    exact = optimum(Z, p, labels, beta, C)
    cuts = CutPool(problem)
    cuts.add(problem.cut(labels, problem.loss.first(labels, problem.zero_scores())))
    for _ in range(300):
        found = cuts.solve(C)
        w, square = cuts.normal(found)
        f = problem.space.scores(w) + found.rho * beta
        violated = problem.loss.violated(labels, f, found.rho)
        J = problem.objective(square, found.rho, violated.xi, C)
        assert found.lower_bound <= exact + 1e-8
        assert exact - 1e-8 <= J
        if J - found.lower_bound < 1e-7:
            break
        cuts.add(problem.cut(labels, violated))
    assert found.lower_bound == pytest.approx(exact, abs=2e-7)


@pytest.mark.parametrize("kind", ["linear", "rbf"])
@pytest.mark.parametrize("minimum", [0.0, 0.2])
def test_the_bound_holds_for_the_labels_found(kind, minimum):
    for seed in range(2):
        rng = np.random.default_rng(seed)
        X, labels = overlapping_groups(rng, n=50)
        problem, Z, p, beta = problem_of(X, labels, kind, min_share=minimum)
        # A start whose clusters are large enough.
        labels = NearestMean.of(problem.space, labels, 4, minimum).labels
        assert np.bincount(labels).min() >= minimum * 50
        result = maximise_margin(problem, labels, C=2.0, tol=1e-3)
        assert result.status in (Status.CONVERGED, Status.CYCLE)
        assert np.all(np.diff(result.history) <= 0)
        exact = optimum(Z, p, result.labels, beta, 2.0)
        assert result.lower_bound <= exact + 1e-8
        assert exact <= result.objective + 1e-8
        if result.status is Status.CONVERGED:
            assert result.gap <= 1e-3 * abs(result.lower_bound)
        assert np.bincount(result.labels, minlength=4).min() >= minimum * 50
        raw = result.scores - result.rho * beta
        np.testing.assert_array_equal(np.argmax(raw + result.t, axis=1), result.labels)


def test_labels_without_a_lower_bound_are_not_allowed():
    """With w = 0, offsets alone put all rows on the right side if one cluster has nearly all."""
    X = np.arange(10.0)[:, None]
    problem = MultiwayMarginProblem(
        LinearSpace(X), MultiwayHinge(np.array([2.0, 0.0, 0.0])), min_m=0.5
    )
    f = np.zeros((10, 3))
    f[0, 1] = f[1, 2] = 9.0
    assert problem.loss.first(np.argmax(f, axis=1), f).m == pytest.approx(0.6)
    found = CuttingPlaneResult(0.0, rho=1.0)
    assert problem.placed(f.copy(), found, lambda *_: None).is_allowed
    f[1] = 0.0
    assert not problem.placed(f.copy(), found, lambda *_: None).is_allowed


# ---------------------------------------------------------------------- the start


def test_balanced_weights_give_every_cluster_the_same(rng):
    labels = np.array([0, 0, 0, 1, 2, 2])
    weights = rng.random(6)
    for given_weights in (None, weights):
        balanced = balanced_weights(labels, given_weights, np.bincount(labels, given_weights, 3))
        np.testing.assert_allclose(np.bincount(labels, balanced), 1 / 3)
    np.testing.assert_allclose(balanced[4] / balanced[5], weights[4] / weights[5])


@pytest.mark.parametrize("kind", ["linear", "rbf"])
def test_offsets_are_those_of_the_nearest_mean(rng, kind):
    X, labels = overlapping_groups(rng)
    problem, Z, p, beta = problem_of(X, labels, kind)
    rule = NearestMean.of(problem.space, labels, 4)
    means = np.array(
        [np.average(Z[labels == c], axis=0, weights=p[labels == c]) for c in range(4)]
    )
    distances = ((Z[:, None] - means) ** 2).sum(axis=2)
    own = distances[np.arange(len(X)), labels]
    distances[np.arange(len(X)), labels] = np.inf
    np.testing.assert_allclose(rule.margins, (distances.min(axis=1) - own) / 2, atol=1e-9)
    offsets = -0.5 * (means**2).sum(axis=1)
    np.testing.assert_allclose(rule.offsets, offsets - offsets.mean(), atol=1e-10)
    # Half of the rows are inside the margin at C = 2.
    rho = np.ptp(rule.offsets) / np.ptp(beta)
    assert p @ (rule.margins < rho) <= 0.5 <= p @ (rule.margins <= rho) + 1e-12


def test_offsets_of_a_start_without_a_margin_are_zero(rng):
    X = rng.standard_normal((60, 2))
    labels = KMeans(3, n_init=1, random_state=0).fit_predict(X)
    rule = NearestMean.of(LinearSpace(X), (labels + 1) % 3, 3)
    assert np.ptp(rule.in_margins(1.5)) > 0
    swapped = dataclasses.replace(rule, margins=-np.abs(rule.margins))
    np.testing.assert_array_equal(swapped.in_margins(2.0), 0.0)


def test_principal_scores_are_those_of_the_centred_rows(rng):
    X = rng.standard_normal((50, 4)) * [9.0, 3.0, 1.0, 0.2]
    U, s, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    for source in (LinearSpace(X), KernelSpace(X @ X.T)):
        found = principal_scores(source, 3, np.random.default_rng(0))
        # Up to signs and the common factor 1 / sqrt(n) of the mean.
        expected = np.abs(U[:, :3] * s[:3]) / np.sqrt(50)
        np.testing.assert_allclose(np.abs(found), expected, atol=1e-5)
