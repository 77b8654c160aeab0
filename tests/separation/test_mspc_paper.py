"""MSPC to the letter: the paper's defaults, both thresholds of EIG, Theorem 3's N x N matrix."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

from reproduction.datasets import data_folder, load
from volmar import MSPC
from volmar.metrics import clustering_error, msp_score
from volmar.solvers import Status

needs_data = pytest.mark.skipif(
    data_folder() is None, reason="needs the papers' data sets (VOLMAR_DATA)"
)


def overlapping(n=300, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X[: n // 3, :2] += 1.5
    return X * np.exp(rng.standard_normal(d))


def moments(X, mask):
    part = X[mask]
    return part.mean(axis=0), np.cov(part.T, bias=True)


def printed_gep(X, y, reg):
    """Table 1, second column, typed from the paper."""
    Sigma = np.cov(X.T, bias=True)
    Sigma = Sigma + reg * np.diag(np.diag(Sigma))
    while True:
        D = X[y].mean(axis=0) - X[~y].mean(axis=0)
        w = np.linalg.solve(Sigma, D)
        order = np.argsort(X @ w)
        best = -np.inf
        for n1 in range(1, len(X)):
            above = np.zeros(len(X), dtype=bool)
            above[order[n1:]] = True
            r = np.array([n1, len(X) - n1]) / len(X)
            gap = w @ (X[above].mean(axis=0) - X[~above].mean(axis=0))
            value = gap**2 / (2 / r.min() * (w @ Sigma @ w) - 2 * r.max() * gap**2)
            if value > best:
                best, found = value, above
        if np.array_equal(found, y):
            return y
        y = found


def printed_mpm(X, y, reg):
    """Table 1, first column; the machine by iterated least squares (Lanckriet et al. 2003)."""
    ridge = reg * np.diag(X.var(axis=0))
    while True:
        (m1, S1), (m2, S2) = moments(X, y), moments(X, ~y)
        S1, S2, a, b = S1 + ridge, S2 + ridge, 1.0, 1.0
        for _ in range(1000):
            w = np.linalg.solve(S1 / a + S2 / b, m1 - m2)
            w /= w @ (m1 - m2)
            a, b = np.sqrt(w @ S1 @ w), np.sqrt(w @ S2 @ w)
        found = X @ w > w @ m1 - a / (a + b)
        if np.array_equal(found, y):
            return y
        y = found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("reg", [0.1, None])
def test_paper_mode_alone_is_table_1(seed, reg):
    """One run of k-means on X, then the printed steps until no row switches."""
    X = overlapping(n=120, d=4, seed=seed)
    for solver, printed in (("gep", printed_gep), ("mpm", printed_mpm)):
        model = MSPC(solver=solver, mode="paper", reg=reg, random_state=seed).fit(X)
        run_seed = np.random.RandomState(seed).randint(2**31 - 1)
        start = KMeans(2, n_init=1, random_state=run_seed).fit_predict(X).astype(bool)
        expected = printed(X, start, 1.0 if reg is None else reg)
        assert clustering_error(expected, model.labels_) == 0.0
        assert model.status_ is Status.CONVERGED
        assert model.result_.residuals["moves"] == 0.0
        assert model.reg_ == (1.0 if reg is None else reg)


def test_parameters_left_out_depend_on_the_mode():
    default, paper = MSPC()._solver(), MSPC(mode="paper")._solver()
    assert (default.n_init, default.max_iter, default.tol) == (16, 100, 1e-3)
    assert (paper.n_init, paper.tol) == (1, 0.0)
    assert paper.max_iter > 10**9
    given = MSPC(mode="paper", n_init=5, max_iter=7, tol=0.01)._solver()
    assert (given.n_init, given.max_iter, given.tol) == (5, 7, 0.01)
    assert MSPC(mode="paper")._minimum_share(50, 2) == 1 / 50  # a row


def test_given_parameters_count_in_paper_mode():
    X = overlapping()
    with pytest.warns(UserWarning, match="Raise max_iter"):
        short = MSPC(solver="mpm", mode="paper", max_iter=1, reg=0.01, random_state=0).fit(X)
    assert short.n_iter_ == 1
    rough = MSPC(solver="mpm", mode="paper", tol=0.5, random_state=0).fit(X)
    assert rough.n_iter_ < MSPC(solver="mpm", mode="paper", random_state=0).fit(X).n_iter_


@pytest.mark.parametrize("name", ["n_init", "max_iter", "tol"])
def test_the_defaults_of_both_modes_written_out_change_nothing(name):
    X = overlapping()
    for mode, value in (
        ("default", {"n_init": 16, "max_iter": 100, "tol": 1e-3}[name]),
        ("paper", {"n_init": 1, "max_iter": 10_000, "tol": 0.0}[name]),
    ):
        left_out = MSPC(mode=mode, random_state=0).fit(X)
        written = MSPC(mode=mode, random_state=0, **{name: value}).fit(X)
        np.testing.assert_array_equal(left_out.labels_, written.labels_)
        np.testing.assert_array_equal(left_out.coef_, written.coef_)


@pytest.mark.parametrize("shape", [(60, 8), (40, 90)])
@pytest.mark.parametrize("reg", [1e-2, 1.0, 1e2])
def test_eig_is_the_n_by_n_form_of_theorem_3(shape, reg):
    """q of I - (I + X (reg Lambda)^-1 X')^-1; its sign by default, that of XX'q as printed."""
    n, d = shape
    X = overlapping(n, d, seed=1)
    C = X - X.mean(axis=0)
    inner = C @ np.diag(1 / (reg * X.var(axis=0))) @ C.T
    q = np.linalg.eigh(np.eye(n) - np.linalg.inv(np.eye(n) + inner))[1][:, -1]
    default = MSPC(solver="eig", reg=reg).fit(X)
    paper = MSPC(solver="eig", mode="paper", reg=reg).fit(X)
    assert clustering_error(q > 0, default.labels_) == 0.0
    assert clustering_error(C @ (C.T @ q) > 0, paper.labels_) == 0.0
    assert 0 < clustering_error(default.labels_, paper.labels_) < 0.5  # they are not the same
    np.testing.assert_array_equal(paper.predict(X), paper.labels_)


def test_the_predict_vector_is_proportional_to_q():
    """The paper has Xw* = XX'q*: with w* of eq. 6 it is a multiple of q*."""
    X = overlapping(80, 5)
    C = X - X.mean(axis=0)
    Sigma, Lambda = C.T @ C / 80, np.diag(C.var(axis=0))
    q = np.linalg.svd(C / C.std(axis=0))[0][:, 0]
    score = C @ np.linalg.solve(Sigma + 0.5 * Lambda, C.T @ q)
    assert abs(score @ q) == pytest.approx(np.linalg.norm(score))
    wrong = C @ (C.T @ q)
    assert abs(wrong @ q) < 0.999 * np.linalg.norm(wrong)


@needs_data
def test_both_thresholds_of_eig_on_australian():
    data = load("australian", scale="symmetric")
    errors = [
        100 * clustering_error(data.y, MSPC(solver="eig", mode=mode).fit(data.X).labels_)
        for mode in ("paper", "default")
    ]
    assert errors == pytest.approx([17.25, 16.67], abs=0.005)


SINGLE_RUN = {
    "ionosphere": (28.77, 29.63),
    "breast-with-id": (2.93, 2.63),
    "diabetes": (32.55, 31.51),
    "satellite-1v2": (0.63, 3.80),
    "spam": (13.76, 17.19),
}


@needs_data
@pytest.mark.parametrize("name", SINGLE_RUN)
def test_table_2_from_one_run_of_k_means(name):
    """Paper mode as it is, the lambda by the labels as in the paper, one seed.

    Other seeds agree, but on spam: 4 of the seeds 0 to 9 end in the optimum of k-means with the
    printed errors. Left out are letter (MPM 5.66, printed 5.59) and australian (GEP 13.6, printed
    14.1; from 13.0 to 47.4 over these seeds).
    """
    data = load(name, scale="symmetric")
    for solver, printed in zip(("mpm", "gep"), SINGLE_RUN[name], strict=True):
        errors = [
            100 * clustering_error(data.y, model.fit(data.X).labels_)
            for reg in 10.0 ** np.arange(-4, 5)
            for model in [MSPC(solver=solver, mode="paper", reg=reg, random_state=0)]
        ]
        assert min(errors) == pytest.approx(printed, abs=0.02)


# ------------------------------------------------------------------------------------ theorem 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("solver", ["gep", "mpm"])
def test_theorem_1_any_invertible_map_without_a_regulariser(seed, solver):
    """The same labels from the same start, and the same p, for X and XP + c."""
    rng = np.random.default_rng(seed)
    X = overlapping(seed=seed)
    P = rng.standard_normal((6, 6)) @ np.diag(np.exp(rng.standard_normal(6)))
    start = X[:, 0] > np.median(X[:, 0])
    model = MSPC(solver=solver, mode="paper", reg=0.0, init=start)
    plain = model.fit(X)
    labels, values = plain.labels_, (plain.msp_, plain.msp_lower_bound_, plain.objective_)
    mapped = model.fit(X @ P + rng.standard_normal(6))
    np.testing.assert_array_equal(mapped.labels_, labels)
    found = (mapped.msp_, mapped.msp_lower_bound_, mapped.objective_)
    assert found == pytest.approx(values, rel=1e-8)
    assert msp_score(X @ P, labels, reg=0.0) == pytest.approx(msp_score(X, labels, reg=0.0))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("solver", ["gep", "mpm", "eig"])
@pytest.mark.parametrize("reg", [0.1, 10.0])
def test_theorem_1_diagonal_maps_with_a_regulariser(seed, solver, reg):
    rng = np.random.default_rng(seed)
    X = overlapping(seed=seed)
    scales = rng.choice([-1.0, 1.0], 6) * np.exp(2 * rng.standard_normal(6))
    model = MSPC(solver=solver, reg=reg, init=X[:, 0] > np.median(X[:, 0]), tol=0.0)
    plain = model.fit(X)
    labels, values = plain.labels_, (plain.msp_, plain.msp_lower_bound_, plain.objective_)
    mapped = model.fit(X * scales)
    np.testing.assert_array_equal(mapped.labels_, labels)
    found = (mapped.msp_, mapped.msp_lower_bound_, mapped.objective_)
    assert found == pytest.approx(values, rel=1e-8)


def test_theorem_1_needs_more_than_printed_with_a_regulariser():
    """Lambda = diag(Sigma) follows diagonal maps only."""
    X = overlapping()
    P = np.random.default_rng(0).standard_normal((6, 6))
    labels = X[:, 0] > np.median(X[:, 0])
    assert abs(msp_score(X @ P, labels, reg=0.1) - msp_score(X, labels, reg=0.1)) > 0.01


# ------------------------------------------------------------------------------- fitted attributes


@pytest.mark.parametrize(
    ("kernel", "gamma", "expected"),
    [
        ("linear", "scale", None),
        ("rbf", 0.25, 0.25),
        ("rbf", "scale", "scale"),
        ("rbf", None, 1 / 6),
        ("poly", None, 1 / 6),
        ("cosine", "scale", None),
        ("precomputed", "scale", None),
    ],
)
@pytest.mark.parametrize("n", [60, 1100])
def test_gamma_that_was_used(kernel, gamma, expected, n):
    from volmar import MinimaxProbabilityMachine

    X = overlapping(n)
    if kernel == "precomputed" and n > 60:
        return
    expected = 1 / (6 * X.var()) if expected == "scale" else expected
    X = X @ X.T if kernel == "precomputed" else X
    found = MSPC(kernel=kernel, gamma=gamma, random_state=0).fit(X).gamma_
    machine = MinimaxProbabilityMachine(kernel=kernel, gamma=gamma, random_state=0)
    machine.fit(X, np.arange(n) < n // 3)
    assert found == machine.gamma_
    assert found == expected if expected is None else found == pytest.approx(expected)


def test_chi2_has_a_gamma_of_its_own_and_functions_have_none():
    X = np.abs(overlapping(80))
    assert MSPC(kernel="chi2", gamma=None, random_state=0).fit(X).gamma_ == 1.0
    product = MSPC(kernel=lambda A, B: A @ B.T, random_state=0).fit(X)
    assert product.gamma_ is None


@pytest.mark.parametrize("solver", ["gep", "mpm", "eig"])
@pytest.mark.parametrize("mode", ["default", "paper"])
@pytest.mark.parametrize("shape", [(120, 4), (40, 60)])
def test_intercepts_are_arrays(solver, mode, shape):
    X = overlapping(*shape)
    model = MSPC(solver=solver, mode=mode, random_state=0).fit(X)
    assert model.intercept_.shape == (1,)
    assert model.coef_.shape == (1, shape[1])
    scores = X @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(scores, model.decision_function(X), atol=1e-8)


def test_intercepts_of_more_clusters_and_of_splits():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((240, 3)) + 8.0 * np.eye(3)[np.arange(240) % 3]
    three = MSPC(3, random_state=0).fit(X)
    assert three.intercept_.shape == (3,)
    for node in three.tree_.splits():
        assert node.model.intercept_.shape == (1,)
