"""The margin engine: losses, sources, the certified loop against cvxpy, the papers' loops."""

import itertools

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import normalized_mutual_info_score, rand_score
from sklearn.metrics.pairwise import rbf_kernel

from volmar.margin.engine.descent import IDLE_FOR, CutPool, maximise_margin
from volmar.margin.engine.multivariate_losses import ErrorLoss, FBetaLoss, NMILoss, RandLoss
from volmar.margin.engine.nested import cutting_planes_outside, relabelling_outside
from volmar.margin.engine.problem import HingeLoss, MarginProblem, Violated
from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.feature_space.linear import LinearSpace
from volmar.metrics import pair_f_measure
from volmar.solvers import Status

# The balance boxes of the problem: half width and unit.
BOXES = [(0.0, "relative"), (0.05, "relative"), (0.3, "relative"), (0.3, "absolute")]


def two_groups(rng, n=40, d=3, shift=2.0):
    """Overlapping groups of different sizes, whose features differ in scale."""
    X = rng.standard_normal((n, d))
    X[: n // 3] += shift
    return X * np.linspace(0.5, 2.0, d)


def shares_of(n, weights):
    return np.full(n, 1.0 / n) if weights is None else weights / weights.sum()


def centred_factor(K, p):
    """Rows whose inner products are those of a kernel, centred with shares p."""
    H = np.eye(p.size) - np.outer(np.ones(p.size), p)
    values, vectors = np.linalg.eigh(H @ K @ H.T)
    kept = values > 1e-12 * values.max()
    return vectors[:, kept] * np.sqrt(values[kept])


def make(X, kind="linear", weights=None, **options):
    """Return the problem of a data matrix, and its centred rows."""
    p = shares_of(X.shape[0], weights)
    shares = None if weights is None else p
    if kind == "rbf" and options.get("balance") == "absolute":
        options["tau"] /= 30  # these scores are small, and rows must stay on both sides
    if kind == "linear":
        source, Z = LinearSpace(X, weights), X - p @ X
    else:
        K = rbf_kernel(X, gamma=0.2)
        source, Z = KernelSpace(K, shares), centred_factor(K, p)
    return MarginProblem(source, HingeLoss(shares), **options), Z, p


def n_slack_optimum(problem, Z, p, y, C):
    """The convex problem of given labels, one slack per row, by an independent solver."""
    w, t, rho, xi = cp.Variable(Z.shape[1]), cp.Variable(), cp.Variable(), cp.Variable(len(y))
    constraints = [cp.multiply(y, Z @ w + t) >= rho - xi, xi >= 0, rho >= 0]
    constraints.append(cp.abs(t) <= problem.tau * (rho if problem.balance == "relative" else 1.0))
    cost = 0.5 * cp.sum_squares(w) + C * (p @ xi)
    if problem.threshold == "adaptive":
        cost -= rho
    else:
        constraints.append(rho == 1)
    model = cp.Problem(cp.Minimize(cost), constraints)
    model.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return float(model.value)


def signs(labels):
    return 2.0 * labels - 1.0


# ---------------------------------------------------------------------- losses


@given(
    f=st.lists(st.floats(-5, 5), min_size=1, max_size=30),
    seed=st.integers(0, 10**6),
    rho=st.floats(0, 3),
)
@settings(max_examples=200, deadline=None)
def test_relabelling_by_sign_never_raises_the_hinge(f, seed, rho):
    rng = np.random.default_rng(seed)
    f = np.array(f)
    y = rng.choice([-1.0, 1.0], f.size)
    problem = MarginProblem(KernelSpace(np.eye(f.size)), HingeLoss())
    for loss in (HingeLoss(), HingeLoss(rng.dirichlet(np.ones(f.size)))):
        relabelled = loss.violated(problem.labels(f), f, rho).xi
        assert relabelled <= loss.violated(y, f, rho).xi + 1e-15


@pytest.mark.parametrize("weighted", [False, True])
def test_the_hinge_asks_for_the_largest_slack_of_all_cuts(rng, weighted):
    n, rho = 8, 0.7
    p = rng.dirichlet(np.ones(n)) if weighted else np.full(n, 1 / n)
    loss = HingeLoss(p if weighted else None)
    cuts = np.array(list(itertools.product([0, 1], repeat=n)))
    for _ in range(20):
        y, f = rng.choice([-1.0, 1.0], n), rng.standard_normal(n)
        slacks = rho * cuts @ p - cuts @ (p * y * f)
        found = loss.violated(y, f, rho)
        assert found.xi == pytest.approx(slacks.max(), abs=1e-14)
        assert found.m == pytest.approx(p @ found.chosen, abs=1e-15)
        assert found.m == pytest.approx(loss.value(y, found.chosen), abs=1e-15)
        assert rho * found.m - p @ (found.chosen * y * f) == pytest.approx(found.xi, abs=1e-14)
    first = loss.first(y, f)
    assert first.m == 1.0
    assert first.chosen.all()


# ---------------------------------------------------------------------- sources, problem, cuts


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["dense", "csr", "float32", "kernel"])
def test_sources_are_the_centred_rows(rng, kind, weighted):
    X = two_groups(rng) + 3.0
    weights = rng.uniform(0, 2, len(X)) if weighted else None
    p = shares_of(len(X), weights)
    Z = X - p @ X
    if kind == "kernel":
        source = KernelSpace(X @ X.T, p if weighted else None)
    else:
        rows = {"dense": X, "csr": sparse.csr_array(X), "float32": X.astype(np.float32)}[kind]
        source = LinearSpace(rows, weights)
    tol = 1e-5 if kind == "float32" else 1e-11
    v = rng.standard_normal((3, len(X)))
    vectors = [source.vector(one.astype(source.dtype)) for one in v]
    assert source.n_passes == 3
    expected = v @ Z
    gram = np.array([source.inner(one, vectors) for one in vectors])
    np.testing.assert_allclose(
        gram, expected @ expected.T, rtol=tol, atol=tol * np.abs(gram).max()
    )
    w = source.combination(vectors, np.array([0.5, 0.0, -2.0]))
    normal = np.array([0.5, 0.0, -2.0]) @ expected
    scores = source.scores(w)
    assert scores.dtype == source.dtype
    np.testing.assert_allclose(scores, Z @ normal, atol=tol * np.abs(Z @ normal).max())
    assert abs(p @ scores) <= tol * np.abs(scores).max()
    if weighted:
        np.testing.assert_allclose(source.shares, p)
    else:
        assert source.shares is None


def test_a_cut_is_the_mean_of_its_labelled_rows(rng):
    X = two_groups(rng)
    weights = rng.uniform(0.5, 2, len(X))
    problem, Z, p = make(X, weights=weights)
    y, chosen = rng.choice([-1.0, 1.0], len(X)), rng.random(len(X)) < 0.4
    cut = problem.cut(y, Violated(chosen, float(p @ chosen), np.nan))
    np.testing.assert_allclose(cut.a, (p * y * chosen) @ Z, atol=1e-14)
    assert cut.s == pytest.approx(p @ (y * chosen), abs=1e-15)
    assert cut.m == pytest.approx(p @ chosen, abs=1e-15)


def test_working_cuts_keep_their_gram_matrix_and_drop_idle_cuts(rng):
    X = two_groups(rng)
    problem, _, _ = make(X)
    y = signs(X[:, 0] > 1)
    cuts = CutPool(problem)
    for share in (1.0, 0.5, 0.02):
        cuts.add(problem.cut(y, Violated(rng.random(len(X)) < share, share, np.nan)))
    A = np.array([cut.a for cut in cuts.cuts])
    np.testing.assert_allclose(cuts.gram, A @ A.T, atol=1e-14)
    w, square = cuts.normal(cuts.solve(2.0))
    assert square == pytest.approx(w @ w, rel=1e-10)
    cuts.drop_idle()
    assert len(cuts) == 3
    idle = cuts.solve(2.0).weights <= 0
    assert idle.any()
    for _ in range(IDLE_FOR):
        cuts.solve(2.0)
    first = cuts.cuts[0]
    cuts.drop_idle()
    assert len(cuts) == np.count_nonzero(~idle | [True, False, False])
    assert cuts.cuts[0] is first
    A = np.array([cut.a for cut in cuts.cuts])
    np.testing.assert_allclose(cuts.gram, A @ A.T, atol=1e-14)


# ---------------------------------------------------------------------- the certified loop


@pytest.mark.parametrize("kind", ["linear", "rbf"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("threshold", ["adaptive", "fixed"])
@pytest.mark.parametrize(("tau", "balance"), BOXES)
def test_the_result_solves_the_n_slack_problem_of_its_labels(
    rng, kind, weighted, threshold, tau, balance
):
    X = two_groups(rng)
    weights = rng.uniform(0.2, 3.0, len(X)) if weighted else None
    problem, Z, p = make(X, kind, weights, tau=tau, threshold=threshold, balance=balance)
    C = 3.0 if threshold == "adaptive" else {"linear": 0.7, "rbf": 30.0}[kind]
    result = maximise_margin(problem, X[:, 0] > 0.4, C=C, tol=1e-6)
    assert result.status is Status.CONVERGED
    assert 0 < result.labels.sum() < len(X)
    optimum = n_slack_optimum(problem, Z, p, signs(result.labels), C)
    assert result.objective == pytest.approx(optimum, rel=1e-5)
    assert result.lower_bound <= optimum + 1e-8 * abs(optimum)
    assert result.gap == pytest.approx(result.objective - result.lower_bound, abs=1e-15)
    assert result.gap <= 1e-6 * abs(result.lower_bound)
    assert result.is_certified(1.01e-6)


@pytest.mark.parametrize("tol", [0.3, 0.05, 1e-3])
@pytest.mark.parametrize("max_iter", [4, 1000])
@pytest.mark.parametrize(("tau", "balance"), BOXES[1:])
def test_the_gap_is_a_true_bound_wherever_the_loop_ends(tol, max_iter, tau, balance):
    for seed in range(2):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((30, 4))
        problem, Z, p = make(X, tau=tau, balance=balance)
        result = maximise_margin(
            problem, rng.integers(0, 2, 30), C=2.5, tol=tol, max_iter=max_iter
        )
        if result.status is not Status.CONVERGED:
            assert result.status is Status.MAX_ITER
            assert result.n_iter == max_iter
        optimum = n_slack_optimum(problem, Z, p, signs(result.labels), 2.5)
        assert result.lower_bound - 1e-9 <= optimum <= result.objective + 1e-9
        assert result.objective - result.gap == pytest.approx(result.lower_bound, abs=1e-15)


@pytest.mark.parametrize("kind", ["linear", "rbf"])
@pytest.mark.parametrize("threshold", ["adaptive", "fixed"])
@pytest.mark.parametrize(("tau", "balance"), BOXES)
def test_j_never_rises_and_is_that_of_the_hyperplane(rng, kind, threshold, tau, balance):
    X = two_groups(rng)
    weights = rng.uniform(0.2, 3.0, len(X))
    problem, Z, p = make(X, kind, weights, tau=tau, threshold=threshold, balance=balance)
    C = 4.0 if threshold == "adaptive" else 20.0
    result = maximise_margin(problem, rng.integers(0, 2, len(X)), C=C, tol=1e-4)
    history = np.array(result.history)
    assert history.size == result.n_iter > 3
    assert np.all(np.diff(history) <= 1e-12 * np.abs(history[:-1]))
    assert history[0] <= problem.at_zero(np.ones(len(X)), C)
    assert result.objective <= history[-1] + 1e-12
    f, rho = result.scores, result.rho
    J = 0.5 * result.square + C * p @ np.maximum(0, rho - np.abs(f))
    J -= rho if threshold == "adaptive" else 0.0
    assert result.objective == pytest.approx(J, rel=1e-9)
    np.testing.assert_array_equal(result.labels, (f > 0).astype(int))
    if kind == "linear":
        np.testing.assert_allclose(f, Z @ result.normal + result.t, atol=1e-10)
        assert result.square == pytest.approx(result.normal @ result.normal, rel=1e-9)
    assert p @ f == pytest.approx(result.t, abs=1e-10)
    assert (
        abs(result.t) <= problem.tau * (rho if balance == "relative" else 1.0) * (1 + 1e-9) + 1e-15
    )
    assert rho == 1.0 if threshold == "fixed" else rho > 0


def test_j_never_rises_at_any_C_of_a_path(rng):
    X = two_groups(rng, n=60, d=5, shift=1.0)
    labels = rng.integers(0, 2, 60)
    problem, _, _ = make(X, tau=0.05)
    lengths = [0]
    for k in (1, 2, 3):
        path = (1.2, 3.0, 10.0)[:k]
        result = maximise_margin(problem, labels, C=path[-1], path=path[:-1])
        assert result.status is Status.CONVERGED
        history = np.array(result.history[lengths[-1] :])
        assert np.all(np.diff(history) <= 0)
        lengths.append(len(result.history))
    assert lengths == sorted(set(lengths))


def test_serious_steps_follow_the_objective_not_the_start(rng):
    """A descent from the labels of a certified solution does not lower the objective."""
    X = two_groups(rng)
    problem, _, _ = make(X, tau=0.05)
    first = maximise_margin(problem, X[:, 0] > 0, C=2.0, tol=1e-6)
    again = maximise_margin(problem, first.labels, C=2.0, tol=1e-6)
    np.testing.assert_array_equal(first.labels, again.labels)
    assert again.objective == pytest.approx(first.objective, rel=1e-6)


def test_linear_is_kernel_is_csr(rng):
    X = two_groups(rng, shift=5.0) + 1.0
    labels = X[:, 0] > 3.0
    sources = [
        LinearSpace(X),
        LinearSpace(sparse.csr_array(X)),
        KernelSpace(X @ X.T),
    ]
    # Rows at the margin itself are in a cut or not by rounding: a small tol ends at one point.
    results = [
        maximise_margin(
            MarginProblem(one, HingeLoss(), tau=0.05), labels, C=5.0, path=(1.2,), tol=1e-9
        )
        for one in sources
    ]
    for other in results[1:]:
        assert other.objective == pytest.approx(results[0].objective, rel=1e-8)
        np.testing.assert_array_equal(other.labels, results[0].labels)
        np.testing.assert_allclose(other.scores, results[0].scores, atol=1e-7)
    # A kernel vector holds its scores: only cuts are passes.
    assert results[0].n_passes > results[2].n_passes > 0


def test_C_must_bound_rho(rng):
    X = two_groups(rng)
    labels = X[:, 0] > 0
    problem, _, _ = make(X)
    assert maximise_margin(problem, labels, C=0.99).status is Status.UNBOUNDED
    assert maximise_margin(problem, labels, C=1.0).status is Status.CONVERGED
    wide, _, _ = make(X, tau=0.3)
    one_side = np.ones(len(X))
    assert maximise_margin(wide, one_side, C=1.4).status is Status.UNBOUNDED
    assert maximise_margin(wide, one_side, C=1.45).status is not Status.UNBOUNDED
    # Values of a path that do not, and those above C, are left out.
    plain = maximise_margin(problem, labels, C=2.0)
    path = maximise_margin(problem, labels, C=2.0, path=(0.5, 0.9, 2.0, 7.0))
    assert path.objective == plain.objective
    assert path.n_iter == plain.n_iter


@pytest.mark.parametrize("threshold", ["adaptive", "fixed"])
def test_rows_that_are_all_alike_are_degenerate(threshold):
    X = np.full((12, 2), 4.0)
    problem, _, _ = make(X, threshold=threshold)
    result = maximise_margin(problem, np.arange(12) % 2, C=2.0)
    assert result.status is Status.DEGENERATE
    assert result.labels.size == 0


def test_labels_on_one_side_are_degenerate():
    X = np.array([[-1.0], [1.0], [-2.0], [2.0]])
    problem, _, _ = make(X)
    result = maximise_margin(problem, np.ones(4), C=2.0)
    assert result.status is Status.DEGENERATE


def test_hand_worked_pair():
    """Two rows at -1/2 and 1/2: w = 1/2, f = 1/4 = rho, J = -1/8."""
    problem, _, _ = make(np.array([[0.0], [1.0]]))
    result = maximise_margin(problem, np.array([0, 1]), C=3.0)
    assert result.objective == pytest.approx(-0.125, abs=1e-12)
    assert result.rho == pytest.approx(0.25, abs=1e-9)
    np.testing.assert_allclose(result.scores, [-0.25, 0.25], atol=1e-9)


# ---------------------------------------------------------------------- the papers' loops


@pytest.mark.parametrize("threshold", ["adaptive", "fixed"])
@pytest.mark.parametrize("cut_tol", [0.3, 0.03, 1e-5])
def test_relabelling_outside_ends_with_all_cuts_within_their_tolerance(rng, threshold, cut_tol):
    X = two_groups(rng)
    problem, Z, p = make(X, threshold=threshold, tau=0.1, balance="absolute")
    C = 4.0
    result = relabelling_outside(problem, X[:, 0] > 0, C=C, cut_tol=cut_tol, cccp_tol=1e-6)
    assert result.status is Status.CONVERGED
    # The labels do not change any more, so that the last inner loop ran with them.
    assert np.isfinite(result.gap)
    f = Z @ result.normal + result.t
    hinge = p @ np.maximum(0, result.rho - signs(result.labels) * f)
    xi = (result.history[-1] * result.rho - 0.5 * result.square / result.rho) / C
    if threshold == "fixed":
        xi = (result.history[-1] - 0.5 * result.square) / C
    violation = (hinge - xi) / result.rho
    assert violation <= cut_tol + 1e-9
    assert result.residuals["violation"] == pytest.approx(max(violation, 0.0), abs=1e-7)
    optimum = n_slack_optimum(problem, Z, p, signs(result.labels), C)
    assert result.lower_bound - 1e-8 <= optimum <= result.objective + 1e-8
    if cut_tol == 1e-5:
        assert result.objective == pytest.approx(optimum, abs=C * 1e-5 * result.rho + 1e-8)


@pytest.mark.parametrize("threshold", ["adaptive", "fixed"])
def test_a_cut_tolerance_of_1_uses_the_cut_of_all_rows_alone(rng, threshold):
    X = two_groups(rng)
    problem, Z, p = make(X, threshold=threshold)
    # If margins are heavy-tailed, even this cut can be violated by more than rho.
    result = relabelling_outside(problem, X.sum(axis=1) > 1, C=2.0, cut_tol=1.0, cccp_tol=1e-9)
    assert result.n_cuts == 1
    assert result.n_passes == 2 * result.n_iter
    assert np.isfinite(result.gap)
    # One cut alone: w is a multiple of the difference of the clusters' sums.
    a = (p * signs(result.labels)) @ Z
    cosine = a @ result.normal / np.linalg.norm(a) / np.linalg.norm(result.normal)
    assert cosine == pytest.approx(1.0, abs=1e-12)


def test_relabelling_outside_reports_its_end(rng):
    X = two_groups(rng)
    problem, _, _ = make(X)
    labels = rng.integers(0, 2, len(X))
    assert relabelling_outside(problem, labels, C=0.5).status is Status.UNBOUNDED
    assert relabelling_outside(problem, labels, C=2.0, max_iter=1).status is Status.MAX_ITER
    alike, _, _ = make(np.ones((6, 2)))
    for loop in (relabelling_outside, cutting_planes_outside):
        assert loop(alike, np.arange(6) % 2, C=2.0).status is Status.DEGENERATE


def nmi_loss(y, other):
    return 1 - normalized_mutual_info_score(y, other, average_method="geometric")


@pytest.mark.parametrize(
    ("loss", "delta"),
    [
        (HingeLoss(), lambda y, other: np.mean(y != other)),
        (ErrorLoss(), lambda y, other: 2 * np.mean(y != other)),
        (RandLoss(), lambda y, other: 1 - rand_score(y, other)),
        (FBetaLoss(), lambda y, other: 1 - pair_f_measure(y, other, beta=1.5)),
        (NMILoss(), nmi_loss),
    ],
)
@pytest.mark.parametrize("threshold", ["adaptive", "fixed"])
@pytest.mark.parametrize("cut_tol", [0.2, 1e-3])
def test_theorem_1_all_cuts_hold_with_the_larger_slack(rng, loss, delta, threshold, cut_tol):
    n, C = 8, 3.0
    X = rng.standard_normal((n, 2)) + np.repeat([[0.0], [3.0]], [3, 5], axis=0)
    hinge, Z, _ = make(X, threshold=threshold, tau=0.05)
    problem = MarginProblem(hinge.space, loss, hinge.tau, threshold, hinge.balance)
    result = cutting_planes_outside(problem, X[:, 0] > 1.5, C=C, cut_tol=cut_tol)
    assert result.status is Status.CONVERGED
    f, y = Z @ result.normal + result.t, signs(result.labels)
    flips = np.array(list(itertools.product([False, True], repeat=n)))
    losses = np.array([delta(y, np.where(flip, -y, y)) for flip in flips])
    slacks = result.rho * losses - loss.scale / n * flips @ (y * f)
    xi = (result.history[-1] - problem.objective(result.square, result.rho, 0.0, C)) / C
    assert slacks.max() <= xi + cut_tol * result.rho + 1e-9
    assert result.residuals["violation"] <= cut_tol
    assert result.n_cuts == len(result.history)
    assert result.n_cuts > 1 or cut_tol == 0.2


def test_cutting_planes_outside_solve_the_problem_of_their_labels(rng):
    X = two_groups(rng)
    problem, Z, p = make(X, tau=0.05)
    result = cutting_planes_outside(problem, X[:, 0] > 0, C=3.0, cut_tol=1e-6, cccp_tol=1e-9)
    assert result.status is Status.CONVERGED
    optimum = n_slack_optimum(problem, Z, p, signs(result.labels), 3.0)
    assert result.objective == pytest.approx(optimum, abs=3e-6 * result.rho + 1e-8)
    assert result.lower_bound <= optimum + 1e-8
