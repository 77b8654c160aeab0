"""SKMMC(mode="paper"): Algorithms 3 and 4 against a literal implementation and cvxpy."""

import warnings

import cvxpy
import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from volmar import SKMMC
from volmar.margin.engine.nested import PrintedCuts, printed_sparse_loop
from volmar.margin.engine.problem import HingeLoss, MarginProblem
from volmar.margin.feature_space import basis as printed_basis
from volmar.margin.feature_space.basis import PrintedBasisSpace
from volmar.models import load_model, save_model
from volmar.solvers import Status


def groups(n=80, seed=0, apart=3.0, d=3):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) + apart * (np.arange(n) % 3 > 0)[:, None] * np.eye(d)[0]


def quietly(model, X, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, **kwargs)


# ------------------------------------------------------------------ Algorithm 4


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_basis", [1, 3])
def test_a_vector_is_a_fixed_point_with_the_best_coefficients(n_basis, weighted, monkeypatch):
    monkeypatch.setattr(printed_basis, "DELTA", 1e-18)
    monkeypatch.setattr(printed_basis, "MAX_STEPS", 10_000)
    X = groups()
    rng = np.random.default_rng(1)
    weights = rng.integers(1, 4, len(X)).astype(float) if weighted else None
    space = PrintedBasisSpace(X, weights, gamma=0.1, n_basis=n_basis, random_state=0)
    p = np.full(len(X), 1 / len(X)) if weights is None else weights / weights.sum()
    v = p * np.where(X[:, 0] > 1.5, 1.0, -1.0) * (rng.random(len(X)) < 0.7)
    psi = space.vector(v)
    assert space.n_diverged < 6  # a search that diverged was restarted and converged
    B, beta = psi.vectors, psi.coefficients
    # Eq. 49, by the whole kernel matrix.
    K = rbf_kernel(B, gamma=0.1)
    np.testing.assert_allclose(K @ beta, rbf_kernel(B, X, gamma=0.1) @ v, atol=1e-10)
    np.testing.assert_allclose(psi.image, rbf_kernel(X, B, gamma=0.1) @ beta, atol=1e-10)
    # Eq. 47 and 46: the last vector, given the others and their coefficients.
    r = v * rbf_kernel(X, B[-1:], gamma=0.1)[:, 0]
    others = np.empty(0)
    if n_basis > 1:
        before = np.linalg.solve(K[:-1, :-1], rbf_kernel(B[:-1], X, gamma=0.1) @ v)
        others = before * K[:-1, -1]
    fixed = (r @ X - others @ B[: others.size]) / (r.sum() - others.sum())
    np.testing.assert_allclose(B[-1], fixed, atol=1e-6)
    # Eq. 43, and more vectors leave a smaller residual.
    square = v @ rbf_kernel(X, gamma=0.1) @ v
    left = square - 2 * beta @ (K @ beta) + beta @ K @ beta
    assert left == pytest.approx(square - float(space.inner(psi, [psi])[0]))
    assert -1e-12 <= left < square


def test_a_search_ends_by_the_printed_step_and_counts_what_ends_nowhere():
    X = groups()
    near = PrintedBasisSpace(X / 100, gamma=1000.0, random_state=0)
    v = np.where(X[:, 0] > 1.5, 1.0, -1.0) / len(X)
    passes = near.n_passes
    near.vector(v)
    # Steps of rows this close are below delta = 0.01, which has the units of X: one step.
    assert near.n_passes - passes == 2
    far = PrintedBasisSpace(X, gamma=1e8, random_state=0)  # no row is near a point between them
    assert far.n_diverged >= 6
    assert np.isfinite(far.vector(v).image).all()


# ------------------------------------------------------------------ the quadratic programme


def eq_30(cuts, C, l_over_n, threshold):
    """Solve eq. 30 in gamma = (lambda, mu1, mu2) as printed, with zeta of the right threshold."""
    space, n = cuts.space, len(cuts)
    mean = space.mean
    psi = [*cuts.psi, -mean, mean]
    B = np.vstack([one.vectors for one in psi])
    blocks = np.zeros((len(B), len(psi)))
    at = 0
    for k, one in enumerate(psi):
        blocks[at : at + len(one.coefficients), k] = one.coefficients
        at += len(one.coefficients)
    H = blocks.T @ rbf_kernel(B, gamma=space.gamma) @ blocks
    x = cvxpy.Variable(n + 2, nonneg=True)
    zeta = np.concatenate([np.zeros(n) if threshold == "adaptive" else -cuts.m, [l_over_n] * 2])
    value = 0.5 * cvxpy.quad_form(x, cvxpy.psd_wrap(H)) + zeta @ x
    rows = [cuts.s @ x[:n] - x[n] + x[n + 1] == 0, cvxpy.sum(x[:n]) <= C]
    if threshold == "adaptive":
        rows.append(cuts.m @ x[:n] >= 1)
    problem = cvxpy.Problem(cvxpy.Minimize(value), rows)
    problem.solve(solver=cvxpy.CLARABEL)
    rho = float(rows[-1].dual_value) if threshold == "adaptive" else 1.0
    return -problem.value, x.value, rho


@pytest.mark.parametrize("threshold", ["adaptive", "fixed"])
@pytest.mark.parametrize("tau", [0.0, 0.02])
@pytest.mark.parametrize("seed", range(4))
def test_the_programme_is_eq_30(threshold, tau, seed):
    X = groups(seed=seed)
    rng = np.random.default_rng(seed)
    space = PrintedBasisSpace(X, gamma=0.1, n_basis=1 + seed % 2, random_state=seed)
    problem = MarginProblem(space, HingeLoss(), tau=tau, threshold=threshold, balance="absolute")
    cuts = PrintedCuts(problem, space)
    y = np.where(X[:, 0] > 1.5, 1.0, -1.0)
    for share in (1.0, 0.5, 0.4, 0.3):
        cuts.add(y, rng.random(len(X)) < share)
    solution = cuts.solve(10.0)
    value, x, rho = eq_30(cuts, 10.0, tau, threshold)
    assert solution.found.objective == pytest.approx(value, rel=1e-5, abs=1e-9)
    assert solution.found.rho == pytest.approx(rho, rel=1e-4)
    # Eq. 28 and 23.
    lam, mu = x[:-2], x[-2] - x[-1]
    image = (
        sum(a * one.image for a, one in zip(lam, cuts.psi, strict=True)) - mu * space.mean.image
    )
    size = np.abs(image).max()
    np.testing.assert_allclose(solution.f, image - image.mean(), atol=1e-4 * size)
    # Eq. 34.
    margins = [y * chosen @ solution.f for chosen in (c != 0 for c in cuts.coefficients)]
    xi = lam @ (rho * cuts.m - np.array(margins) / len(X)) / lam.sum()
    assert solution.xi == pytest.approx(max(xi, 0.0), abs=1e-4 * rho)


# ------------------------------------------------------------------ Algorithm 3


def kernel(A, b, gamma):
    return np.exp(-gamma * ((A - b) ** 2).sum(axis=1))


def estimate_basis(X, z, gamma, random):
    """Algorithm 4 with N = 1 and delta = 0.01."""
    while True:
        b = X[random.choice(np.arange(len(X)), 3, replace=False)].mean(axis=0)
        for _ in range(100):
            k = z * kernel(X, b, gamma)
            with np.errstate(invalid="ignore", divide="ignore"):
                after = k @ X / k.sum()
            if not np.isfinite(after).all():
                break
            step = ((after - b) ** 2).sum()
            b = after
            if step <= 0.01:
                return b, kernel(X, b, gamma) @ z / len(X)


def literal(X, y, gamma, C, l, threshold, random, eta=0.01, eps=0.1):  # noqa: E741 -- the paper's
    """Algorithm 3, line by line; labels change outside, and a recurring cut ends a loop."""
    n = len(X)
    b0, beta0 = estimate_basis(X, np.ones(n), gamma, random)
    values = []
    while True:
        c, Omega, basis, beta = random.random_sample(n) < 0.5, [], [], []
        while True:
            b, coefficient = estimate_basis(X, c * y, gamma, random)
            Omega.append(c)
            basis.append(b)
            beta.append(coefficient)
            B = np.array([*basis, b0])
            K = np.exp(-gamma * ((B[:, None] - B) ** 2).sum(axis=2))
            m, s = np.mean(Omega, axis=1), np.array([c @ y for c in Omega]) / n
            lam, mu1, mu2 = cvxpy.Variable(len(m)), cvxpy.Variable(), cvxpy.Variable()
            w = cvxpy.hstack([cvxpy.multiply(beta, lam), -(mu1 - mu2) * beta0])
            root = np.linalg.cholesky(K + 1e-13 * np.eye(len(K))).T
            value = 0.5 * cvxpy.sum_squares(root @ w) + (mu1 + mu2) * l / n
            rows = [mu1 - mu2 == s @ lam, cvxpy.sum(lam) <= C, lam >= 0, mu1 >= 0, mu2 >= 0]
            if threshold == "adaptive":
                rows.append(m @ lam >= 1)
            else:
                value = value - m @ lam
            programme = cvxpy.Problem(cvxpy.Minimize(value), rows)
            programme.solve(solver=cvxpy.CLARABEL, tol_gap_abs=1e-13, tol_gap_rel=1e-13)
            rho = float(rows[-1].dual_value) if threshold == "adaptive" else 1.0
            f = sum(q * kernel(X, b, gamma) for q, b in zip(w.value, B, strict=True))
            f = f - f.mean()
            xi = sum(
                one * (rho * c.sum() - c @ (y * f))
                for one, c in zip(lam.value, Omega, strict=True)
            )
            xi = max(xi / (n * lam.value.sum()), 0.0)
            c = y * f <= rho
            if rho * c.mean() - c @ (y * f) / n <= xi + rho * eta:
                break
            if any(np.array_equal(c, other) for other in Omega):
                break
        y = np.where(f > 0, 1.0, -1.0)
        square = float(w.value @ K @ w.value)
        J = 0.5 * square / rho**2 + C * xi / rho if threshold == "adaptive" else -programme.value
        values.append(J)
        if len(values) > 1 and abs(values[-1] / values[-2] - 1) < eps:
            return y, f, values, len(Omega)


@pytest.mark.parametrize("threshold", ["adaptive", "fixed"])
@pytest.mark.parametrize("l_of_paper", [0, 5])
@pytest.mark.parametrize("seed", range(3))
def test_the_loop_is_algorithm_3(threshold, l_of_paper, seed):
    X = groups(60, seed=seed, apart=2.0)
    gamma = 0.1
    start = X[:, 0] + 0.5 * X[:, 1] > 1.5
    space = PrintedBasisSpace(X, gamma=gamma, random_state=seed)
    problem = MarginProblem(
        space, HingeLoss(), tau=l_of_paper / 60, threshold=threshold, balance="absolute"
    )
    found = printed_sparse_loop(problem, start, C=10.0)
    y, f, values, n_cuts = literal(
        X,
        np.where(start, 1.0, -1.0),
        gamma,
        10.0,
        l_of_paper,
        threshold,
        np.random.RandomState(seed),
    )
    np.testing.assert_allclose(found.history, values, rtol=1e-4)
    np.testing.assert_array_equal(found.labels, y > 0)
    assert found.n_cuts == n_cuts
    np.testing.assert_allclose(found.scores, f, atol=1e-4 * np.abs(f).max())
    hinge = np.maximum(found.rho - np.abs(f), 0).mean()
    J = 0.5 * found.square + 10.0 * hinge - (found.rho if threshold == "adaptive" else 0.0)
    assert found.objective == pytest.approx(J, rel=1e-3, abs=1e-6)


# ------------------------------------------------------------------ the estimator


# Every pair of values of two parameters.
@pytest.mark.parametrize(
    ("init", "l_of_paper", "gamma"),
    [
        ("k-means", 0, "16*rms"),
        ("k-means", 1, "rms"),
        ("k-means", 20, "rms/16"),
        ("random", 0, "rms"),
        ("random", 1, "rms/16"),
        ("random", 20, "16*rms"),
        ("k-means", 0, "rms/16"),
        ("random", 1, "16*rms"),
        ("random", 20, "rms"),
    ],
)
def test_every_setting_has_rows_on_both_sides(init, l_of_paper, gamma):
    X = groups(100, apart=1.0)
    model = SKMMC(
        mode="paper", init=init, gamma=gamma, balance=l_of_paper / 100, random_state=0, max_iter=30
    )
    quietly(model, X)
    assert set(model.labels_) == {0, 1}
    f = model.decision_function(X)
    assert abs(f.mean()) <= 1e-8 * np.abs(f).max()  # eq. 23
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    k = rbf_kernel(X, model.basis_vectors_, gamma=model.gamma_)
    by_hand = k @ model.dual_coef_ + model.intercept_[0]
    np.testing.assert_allclose(f, by_hand, atol=1e-6 * np.abs(f).max())
    result = model.result_
    assert result.t == 0.0
    assert np.isnan(result.gap)
    assert result.lower_bound == -np.inf
    if not result.n_degenerate:
        assert len(model.basis_vectors_) == result.n_cuts + 1
    ended = result.residuals["violation"] <= 0.01
    assert ended == (result.status is Status.CONVERGED) or result.status is Status.MAX_ITER


def test_a_recurring_cut_does_not_count_as_convergence():
    X = groups(100, apart=1.0)
    with pytest.warns(ConvergenceWarning, match="violated cut .*n_basis"):
        model = SKMMC(mode="paper", random_state=0).fit(X)
    assert model.status_ is Status.CYCLE
    assert model.result_.n_repeated >= 1
    assert model.result_.residuals["violation"] > 0.01
    more = quietly(SKMMC(mode="paper", n_basis=6, random_state=0), X)
    assert more.result_.residuals["violation"] < model.result_.residuals["violation"]
    assert len(more.basis_vectors_) == 6 * (more.result_.n_cuts + 1)


def test_parameters_of_the_paper_and_of_the_library():
    X = groups()
    few = quietly(SKMMC(mode="paper", max_basis=3, random_state=0), X)
    assert len(few.basis_vectors_) <= 3
    one = quietly(SKMMC(mode="paper", random_state=0), X)
    other = quietly(SKMMC(mode="paper", basis="single", n_basis=1, gamma="rms", random_state=0), X)
    assert one.objective_ == other.objective_
    with pytest.raises(ValueError, match=r"^basis"):
        SKMMC(mode="paper", basis="split").fit(X)
    default = SKMMC(random_state=0).fit(X)
    same = SKMMC(basis="split", max_basis=50, C=2.0, random_state=0).fit(X)
    assert default.objective_ == same.objective_


def test_the_large_setting_takes_one_random_cut():
    X = groups(200, apart=8.0)
    model = quietly(SKMMC(mode="paper", cut_tol=1.0, cccp_tol=0.3, random_state=0), X)
    assert model.result_.n_cuts == 1
    assert len(model.basis_vectors_) == 2


def test_weights_are_duplicates_of_a_cut():
    X = groups(60)
    weights = 1.0 + (np.arange(60) % 2)
    rows = np.repeat(np.arange(60), weights.astype(int))
    spaces = [
        PrintedBasisSpace(X, weights, gamma=0.1, random_state=0),
        PrintedBasisSpace(X[rows], gamma=0.1, random_state=0),
    ]
    y = np.where(X[:, 0] > 1.5, 1.0, -1.0)
    found = []
    for space, labels in zip(spaces, (y, y[rows]), strict=True):
        space.mean = space.vector(space._p)
        cuts = PrintedCuts(MarginProblem(space, HingeLoss(space.shares)), space)
        cuts.add(labels, labels != 0)
        found.append(cuts.solve(10.0))
    # Searches begin at other rows, and end within delta of the same vectors.
    assert found[0].found.rho == pytest.approx(found[1].found.rho, rel=0.02)
    np.testing.assert_allclose(found[0].f[rows], found[1].f, atol=0.05 * np.abs(found[1].f).max())


def test_sparse_rows_float32_and_a_far_origin():
    X = groups()
    X[np.abs(X) < 0.3] = 0.0
    one = quietly(SKMMC(mode="paper", init=X[:, 0] > 1.5, random_state=0), X)
    for rows in (sparse.csr_matrix(X), X.astype(np.float32), X + 1e4):
        model = quietly(SKMMC(mode="paper", init=X[:, 0] > 1.5, random_state=0), rows)
        assert np.mean(model.labels_ != one.labels_) <= 0.03
        np.testing.assert_array_equal(model.predict(rows), model.labels_)


def test_a_saved_model_predicts_the_same(tmp_path):
    X = groups()
    model = quietly(SKMMC(mode="paper", random_state=0), X)
    save_model(tmp_path / "model.volmar", model)
    again = load_model(tmp_path / "model.volmar").model
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert again.result_.n_cuts == model.result_.n_cuts
