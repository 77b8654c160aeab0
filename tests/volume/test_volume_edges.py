"""Soft-label maximum volume at its edges: indefinite programs, hard cases, any regulariser."""

import numpy as np
import pytest
from scipy import linalg
from scipy.optimize import brentq

from volmar import SoftLabelMVC
from volmar.datasets import make_two_moons
from volmar.graphs import laplacian, local_scaling_similarity
from volmar.operators import SparseOperator, as_operator
from volmar.operators import sparse as sparse_module
from volmar.solvers import Status
from volmar.volume import VolumeProblem, refinement
from volmar.volume.alternation import minimise_given_labels
from volmar.volume.problem import signs
from volmar.volume.refinement import FirstStep, refine
from volmar.volume.sqp import solve_qp, sqp


def random_spd(rng, n):
    """Symmetric positive definite matrix of eigenvalues from e^-3 to e, and those, ascending."""
    basis = np.linalg.qr(rng.standard_normal((n, n)))[0]
    eigenvalues = np.sort(np.exp(rng.uniform(-3, 1, n)))
    Q = (basis * eigenvalues) @ basis.T
    return (Q + Q.T) / 2, eigenvalues


def moons_graph(n):
    """Rows and the normalised Laplacian of their k-NN graph."""
    X, _ = make_two_moons(n, noise=0.12, random_state=3)
    return X, laplacian(local_scaling_similarity(X, n_neighbors=8, graph="knn"))


def given_objective(problem, y, h):
    return problem.reg * (h @ problem.operator.matvec(h)) - 2 * y @ h


class WatchedOperator:
    """An operator that notes the accuracy of each solve: the residual allowed, as a norm."""

    def __init__(self, operator):
        self.operator = operator
        self.n = operator.n
        self.bounds = operator.bounds
        self.matvec = operator.matvec
        self.allowed = []

    def solve(self, shift, block, *, rtol=1e-8):
        self.allowed.append(rtol * np.linalg.norm(block))
        return self.operator.solve(shift, block)


# ---------------------------------------------------------------------------------- one program


def qp_by_brute_force(A, h, balance):
    """Lowest value of x'Ax - 2 sign(h)'x where h'x = (1 + h'h) / 2 and |1'x| <= balance.

    Returns which constraints keep it bounded as well, and no value where none does.
    """
    n, s, ones = h.size, signs(h), np.ones_like(h)

    def is_convex(rows):
        free = linalg.null_space(rows)
        return np.linalg.eigvalsh(free.T @ A @ free).min() > 0

    def lowest(rows, right):
        m = len(rows)
        system = np.block([[A, -rows.T], [rows, np.zeros((m, m))]])
        x = np.linalg.solve(system, np.concatenate([s, right]))[:n]
        return x @ A @ x - 2 * s @ x, x.sum()

    middle = (1 + h @ h) / 2
    norm, both = h[None], np.vstack([h, ones])
    at_bounds = min(lowest(both, [middle, side])[0] for side in (balance, -balance))
    if is_convex(norm):
        value, total = lowest(norm, [middle])
        return "norm", value if abs(total) <= balance else at_bounds
    return ("both", at_bounds) if is_convex(both) else ("none", None)


def test_programs_of_an_indefinite_matrix_agree_with_brute_force():
    """With one or two negative eigenvalues, constraints may or may not keep it bounded."""
    seen = set()
    for seed in range(400):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 8))
        Q, eigenvalues = random_spd(rng, n)
        reg, balance = 10 ** rng.uniform(-1, 2), float(rng.choice([0.1, 0.5, 2.0]))
        h = rng.standard_normal(n) * rng.uniform(0.5, 1.5) / np.sqrt(n)
        n_negative = int(rng.integers(1, 3))
        below, above = eigenvalues[n_negative - 1 : n_negative + 1]
        eta = reg * (below + (above - below) * rng.uniform(0.1, 0.9))
        kind, value = qp_by_brute_force(reg * Q - eta * np.eye(n), h, balance)
        seen.add(kind)
        step = solve_qp(VolumeProblem(as_operator(Q), reg, balance), h, eta, eigenvalues[:3])
        if kind == "none":
            assert step is None
            continue
        x, s = step.x, signs(h)
        assert h @ x == pytest.approx((1 + h @ h) / 2)
        assert abs(x.sum()) <= balance + 1e-6
        found = reg * x @ Q @ x - eta * x @ x - 2 * s @ x
        assert found == pytest.approx(value, rel=1e-6, abs=1e-6)
    assert seen == {"norm", "both", "none"}


def test_unfinished_responses_have_norm_one():
    """An h that is too long would win every comparison of objectives."""
    n = 200
    Q = moons_graph(n)[1].toarray() + np.eye(n) / n
    eigenvalues, vectors = np.linalg.eigh(Q)
    start = signs(vectors[:, 1] - vectors[:, 1].mean()) / np.sqrt(n)
    problem = VolumeProblem(as_operator(Q), 1e-2, 1 / n)
    found = sqp(problem, start, eigenvalues[:3], max_iter=1)
    assert found.status is Status.MAX_ITER
    assert np.linalg.norm(found.h) == pytest.approx(1.0, abs=1e-12)
    assert found.residuals["norm"] < 1e-12


def test_an_idle_balance_has_no_multiplier(rng):
    for _ in range(20):
        Q, _ = random_spd(rng, 6)
        h = rng.standard_normal(6)
        h /= np.linalg.norm(h)
        problem = VolumeProblem(as_operator(Q), 1.0, abs(h.sum()) + 0.1)
        assert problem.multipliers(h)[1] == 0.0


# ---------------------------------------------------------------------------------- given labels


def minimum_on_plane(Q, reg, y, total):
    """Minimise reg h'Qh - 2 y'h where |h| = 1 and 1'h = total, in a basis of the plane."""
    n = y.size
    plane = linalg.null_space(np.ones((1, n)))
    poles, vectors = np.linalg.eigh(reg * plane.T @ Q @ plane)
    linear = vectors.T @ plane.T @ (y - reg * Q @ np.full(n, total / n))
    radius = np.sqrt(1 - total**2 / n)

    def excess(eta):
        return np.linalg.norm(linear / (poles - eta)) - radius

    low = poles[0] - np.linalg.norm(linear) / radius - 1
    eta = brentq(excess, low, poles[0] * (1 - 1e-12), xtol=1e-14, rtol=1e-14)
    return plane @ vectors @ (linear / (poles - eta)) + total / n


def test_responses_are_no_worse_than_either_side_of_the_balance():
    for seed in range(400):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(4, 9))
        Q, eigenvalues = random_spd(rng, n)
        reg, y = 10 ** rng.uniform(0, 3), signs(rng.standard_normal(n))
        balance = float(rng.choice([0.1, 0.5, 1.0]))
        if abs(y.sum()) == n:
            continue
        problem = VolumeProblem(as_operator(Q), reg, balance)
        found = minimise_given_labels(problem, y, eigenvalues[:3])
        assert abs(found.h.sum()) <= balance + 1e-9
        assert np.linalg.norm(found.h) == pytest.approx(1.0)
        sides = [minimum_on_plane(Q, reg, y, total) for total in (balance, -balance)]
        best = min(given_objective(problem, y, h) for h in sides)
        assert given_objective(problem, y, found.h) <= best + 1e-7 * max(1, abs(best))


@pytest.mark.parametrize(("balance", "most"), [(0.3, 18), (4.0, 8)])
def test_the_multiplier_takes_a_few_newton_steps(balance, most, rng):
    """A wrong slope converges too, but slowly. A balance above sqrt(n) leaves the sphere alone.

    Each step is two solves; both planes and the sphere are searched where one is not enough.
    """
    for _ in range(40):
        Q, eigenvalues = random_spd(rng, 12)
        operator = WatchedOperator(as_operator(Q))
        y = signs(rng.standard_normal(12))
        minimise_given_labels(VolumeProblem(operator, 3.0, balance), y, eigenvalues)
        assert len(operator.allowed) <= 2 * most


def test_the_hard_case_on_the_plane():
    """Labels orthogonal to what the pole leaves: the norm is filled up along its eigenvector."""
    eigenvalues = np.array([4.0, 4.0, 3.0, 2.0, 1.0])
    y = np.array([-1.0, -1.0, 1.0, -1.0, 1.0])
    problem = VolumeProblem(as_operator(np.diag(eigenvalues)), 4.0, 0.0)
    found = minimise_given_labels(problem, y, np.sort(eigenvalues))
    np.testing.assert_allclose(found.h, [-1 / 6, -1 / 6, 0, -1 / 2, 5 / 6], atol=1e-5)
    assert given_objective(problem, y, found.h) == pytest.approx(7 / 3, abs=1e-8)


def test_labels_on_one_side_leave_the_smoothest_balanced_responses():
    """With b = 0 the labels' term is 0, and the smallest eigenvalue on the plane is left."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 9))
        Q, eigenvalues = random_spd(rng, n)
        reg = 10 ** rng.uniform(-1, 3)
        problem = VolumeProblem(as_operator(Q), reg, 0.0)
        h = minimise_given_labels(problem, np.ones(n), eigenvalues[:3]).h
        assert np.linalg.norm(h) == pytest.approx(1.0)
        assert abs(h.sum()) < 1e-9
        plane = linalg.null_space(np.ones((1, n)))
        smallest = np.linalg.eigvalsh(plane.T @ Q @ plane)[0]
        assert reg * h @ Q @ h == pytest.approx(reg * smallest, rel=1e-6)


# ---------------------------------------------------------------------------------- refinement


def test_changed_labels_are_solved_as_accurately_as_new_ones(rng):
    """The right side of a change is shorter, so that its relative accuracy may be lower."""
    n = 400
    operator = WatchedOperator(as_operator(random_spd(rng, n)[0]))
    step = FirstStep(operator, 0.1, rtol=1e-3)
    y = signs(rng.standard_normal(n))
    step(y)
    y[:100] *= -1
    step(y)
    assert len(operator.allowed) == 3
    np.testing.assert_allclose(operator.allowed, 1e-3 * np.sqrt(n))


@pytest.mark.parametrize("balance", [0.0, 1 / 3000, 0.5])
def test_constraints_hold_exactly_whatever_the_solves(monkeypatch, balance):
    """Rough solves are not those of a symmetric inverse: y'Z1 is not 1'Zy."""
    monkeypatch.setattr(sparse_module, "TWO_LEVEL_FROM", 1)
    n = 3000
    X, L = moons_graph(n)
    operator = SparseOperator(L, shift=1 / n, bounds=(0, 2))
    assert operator.solve(0.0, np.ones(n), rtol=1e-2).method == "two-level"
    step = FirstStep(operator, balance, rtol=1e-2)
    for column in X.T:
        y = signs(column - np.quantile(column, 0.4))
        x = step(y).x
        assert y @ x == pytest.approx(np.sqrt(n), rel=1e-9)
        assert abs(x.sum()) == pytest.approx(balance, abs=1e-9 * np.abs(x).sum())


def test_few_rows_settle_at_a_fixed_point_of_the_plain_step():
    """Two in a thousand of below 500 rows are none."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        operator = as_operator(random_spd(rng, 60)[0])
        found = refine(FirstStep(operator, 0.1), signs(rng.standard_normal(60)), max_iter=100)
        assert found.settled
        np.testing.assert_array_equal(signs(FirstStep(operator, 0.1)(found.y).x), found.y)


def test_extrapolation_saves_steps(monkeypatch):
    n = 3000
    X, L = moons_graph(n)
    operator = SparseOperator(L, shift=1 / n, bounds=(0, 2))
    y = signs(X[:, 0] - np.median(X[:, 0]))
    extrapolated = refine(FirstStep(operator, 1 / n), y, max_iter=200)
    monkeypatch.setattr(refinement, "MAX_BETA", 0.0)
    plain = refine(FirstStep(operator, 1 / n), y, max_iter=200)
    assert len(extrapolated.roughness) < len(plain.roughness)


# ---------------------------------------------------------------------------------- estimator


def path(n):
    return np.eye(n, k=1) + np.eye(n, k=-1)


def clique(n):
    return np.ones((n, n)) - np.eye(n)


def twice(W, between):
    """Two copies of a graph, each node joined to its twin."""
    return np.kron(np.eye(2), W) + np.kron(path(2), between * np.eye(len(W)))


SMALL_GRAPHS = {
    "path": path(10),
    "K4": clique(4),
    "K33": np.kron(path(2), np.ones((3, 3))),
    "ladder": twice(path(10), 1.0),
    "cliques": twice(clique(10), 0.5),
}


@pytest.mark.parametrize("reg", [10, 1e3, 1e6, 1e11])
@pytest.mark.parametrize("name", SMALL_GRAPHS)
def test_symmetric_graphs_at_a_large_reg(name, reg):
    """Repeated eigenvalues and labels orthogonal to eigenvectors: hard cases throughout."""
    model = SoftLabelMVC(affinity="precomputed", reg=reg).fit(SMALL_GRAPHS[name])
    assert model.result_.residuals["stationarity"] < 1e-6
    assert model.result_.residuals["norm"] < 1e-9
    assert model.result_.residuals["balance"] < 1e-9


def test_aistats_at_a_large_reg_is_certified():
    model = SoftLabelMVC(affinity="precomputed", mode="aistats", reg=1e4, balance=0.3)
    residuals = model.fit(path(10)).result_.residuals
    assert max(residuals.values()) < 1e-6


@pytest.mark.parametrize("n", [60, 200])
def test_the_field_has_the_signs_of_the_labels(n):
    """At a large reg later steps move labels, and the first step's field is another's."""
    X, _ = make_two_moons(n, noise=0.12, random_state=0)
    model = SoftLabelMVC(mode="paper", reg=1e5).fit(X)
    np.testing.assert_array_equal(model.field_ >= 0, model.labels_ == 1)


@pytest.mark.parametrize(
    ("Q", "remedy"),
    [
        ("kernel", "Divide the similarities"),
        (np.diag(np.arange(20.0) - 5.0), "multiple of the identity"),
        (np.diag(np.arange(20.0)), "multiple of the identity"),
    ],
    ids=["kernel", "indefinite", "singular"],
)
@pytest.mark.parametrize("mode", ["default", "paper"])
def test_a_matrix_that_is_not_positive_definite_is_refused(Q, remedy, mode):
    W = 100.0 * np.ones((20, 20))
    with pytest.raises(ValueError, match=f"Q must be positive definite.*{remedy}"):
        SoftLabelMVC(affinity="precomputed", Q=Q, mode=mode).fit(W)


def test_a_fit_that_is_cut_short_says_so():
    X, _ = make_two_moons(400, noise=0.2, random_state=1)
    full = SoftLabelMVC().fit(X)
    assert full.n_iter_ > 2
    assert full.result_.status is Status.CONVERGED
    assert SoftLabelMVC(max_iter=2).fit(X).result_.status is Status.MAX_ITER
