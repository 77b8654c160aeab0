"""SoftLabelMVC(mode="paper"): Algorithm 1 of JMLR as printed, its break, starts and limits."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from volmar import SMIC, NormalizedCut, NormalizedSpectralClustering, SoftLabelMVC
from volmar.datasets import make_two_circles, make_two_gaussians, make_two_moons
from volmar.graphs import gaussian_similarity, laplacian
from volmar.graphs.distances import mean_distance
from volmar.graphs.similarities import GaussianSimilarity
from volmar.metrics import clustering_error
from volmar.operators import as_operator
from volmar.solvers import Status
from volmar.volume.descent import sqp
from volmar.volume.problem import VolumeProblem, signs

SETS = {"gaussians": make_two_gaussians, "moons": make_two_moons, "circles": make_two_circles}


def qp_by_kkt(Q, reg, balance, h, eta):
    """JMLR eq. 5 in p, by dense linear systems of its optimality conditions."""
    n = len(h)
    hessian, linear = 2 * (reg * Q - eta * np.eye(n)), 2 * (reg * Q @ h - signs(h))

    def solve(rows, right):
        zero = np.zeros((len(rows), len(rows)))
        system = np.block([[hessian, rows.T], [rows, zero]])
        return np.linalg.solve(system, np.concatenate([-linear, right]))[:n]

    p = solve(2 * h[None], [1 - h @ h])
    total = (p + h).sum()
    if abs(total) <= balance:
        return p
    side = np.copysign(balance, total)
    return solve(np.vstack([2 * h, np.ones(n)]), [1 - h @ h, side - h.sum()])


def qp_by_cvxpy(Q, reg, balance, h, eta):
    """The same by an interior point solver."""
    p = cp.Variable(len(h))
    A = reg * Q - eta * np.eye(len(h))
    objective = cp.quad_form(p, cp.psd_wrap(A)) + 2 * p @ (reg * Q @ h - signs(h))
    constraints = [2 * p @ h + h @ h == 1, cp.abs(cp.sum(p) + h.sum()) <= balance]
    cp.Problem(cp.Minimize(objective), constraints).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
    )
    return p.value


def printed(Q, reg, balance, h, solve, eta=0.0, tol=1e-6):
    """Algorithm 1, line by line: returns h_t, t, and whether line 7 ended it."""
    lowest, t = np.linalg.eigvalsh(Q)[0], 0
    while t < 100:
        p = solve(Q, reg, balance, h, eta)
        new = h + p
        new_eta = h @ (reg * Q @ new - eta * p - signs(h)) / (h @ h)  # eq. 7
        if new_eta >= reg * lowest:
            return h, t, True
        change = np.linalg.norm(new - h) + abs(new_eta - eta)
        h, eta, t = new, new_eta, t + 1
        if change <= tol:
            break
    return h, t, False


def q_of(X, sigma):
    """Lsym + I/n of the Gaussian similarity with W_ii = 1 (section 8.1)."""
    W = gaussian_similarity(X, sigma=sigma, self_loops=True)
    roots = np.sqrt(W.sum(axis=1))
    return np.eye(len(X)) * (1 + 1 / len(X)) - W / np.outer(roots, roots)


def printed_fit(X, sigma, reg, solve=qp_by_kkt):
    """Section 8.1: Algorithm 1 from every candidate, v1 left out; the lowest objective wins."""
    n, Q = len(X), q_of(X, sigma)
    values, vectors = np.linalg.eigh(Q)
    if values[1] - values[0] < 1e-12:
        # A disconnected graph: v1 and v2 are an arbitrary basis, rotated so that v1 is trivial.
        W = gaussian_similarity(X, sigma=sigma, self_loops=True)
        one, two = vectors[:, :2].T @ np.sqrt(W.sum(axis=1))
        vectors[:, 1] = vectors[:, :2] @ [-two, one]
    best = None
    for i in np.flatnonzero(np.abs(values - values[1]) < 1e-4):
        if i == 0 or i > 10:
            continue
        start = signs(vectors[:, i] - vectors[:, i].mean()) / np.sqrt(n)
        h, t, broke = printed(Q, reg, 1 / n, start, solve)
        h = h / np.linalg.norm(h)
        objective = -2 * np.abs(h).sum() + reg * h @ Q @ h
        if best is None or objective < best[0]:
            best = objective, h, t, broke
    return best


def paper_fit(X, **settings):
    """Fit in paper mode, ignoring warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SoftLabelMVC(mode="paper", **settings).fit(X)


def assert_same(model, expected):
    objective, h, t, broke = expected
    assert clustering_error((h >= 0).astype(int), model.labels_) == 0
    assert model.objective_ == pytest.approx(objective, rel=1e-9)
    assert model.n_iter_ == t
    assert (model.result_.status is Status.STOPPED) == broke
    np.testing.assert_allclose(np.abs(model.h_), np.abs(h), atol=1e-7)


# ------------------------------------------------------------------ the printed algorithm


@pytest.mark.parametrize("name", SETS)
def test_all_runs_of_the_papers_settings_are_the_printed_ones(name):
    for n in (50, 100, 200):
        for seed in range(6):
            X, _ = SETS[name](n, random_state=seed)
            assert_same(paper_fit(X), printed_fit(X, "mean/10", 1e-2))


@pytest.mark.parametrize("sigma", ["mean/10", "mean/4", "mean"])
@pytest.mark.parametrize("name", SETS)
def test_any_reg_is_the_printed_algorithm(name, sigma):
    """Small, where all converge, and large, where line 7 ends many of them."""
    for reg in (1e-4, 1.0, 30.0, 100.0, 1e3, 1e5):
        for seed in range(2):
            X, _ = SETS[name](60, random_state=seed)
            model = paper_fit(X, affinity="gaussian", sigma=sigma, reg=reg)
            assert_same(model, printed_fit(X, sigma, reg))


@pytest.mark.parametrize("reg", [1e-2, 100.0, 1e4])
def test_an_interior_point_solver_takes_the_same_steps(reg):
    X, y = make_two_gaussians(60, random_state=3)
    n, Q = 60, q_of(X, "mean/4")
    v2 = np.linalg.eigh(Q)[1][:, 1]
    start = signs(v2 - v2.mean()) / np.sqrt(n)
    h, t, broke = printed(Q, reg, 1 / n, start, qp_by_cvxpy)
    h = h / np.linalg.norm(h)
    model = paper_fit(X, affinity="gaussian", sigma="mean/4", reg=reg, n_candidates=1)
    assert model.n_iter_ == t
    assert (model.result_.status is Status.STOPPED) == broke
    np.testing.assert_allclose(np.abs(model.h_), np.abs(h), atol=1e-6)
    assert model.objective_ == pytest.approx(-2 * np.abs(h).sum() + reg * h @ Q @ h, rel=1e-8)
    if reg == 100.0:  # where the exact multiplier in place of eq. 7 ends in the first step
        assert (t, broke) == (12, False)
        assert model.objective_ == pytest.approx(-7.73458, abs=1e-5)
        assert clustering_error(y, model.labels_) == 0
        assert model.result_.check(model.problem_).is_stationary(1e-9)


def test_the_multiplier_is_that_of_eq_7():
    """With an active balance it is not the exact one: they differ by kappa 1'h."""
    X, _ = make_two_moons(80, noise=0.2, random_state=2)
    Q = q_of(X, "mean/4")
    problem = VolumeProblem(as_operator(Q), 1.0, 0.2)
    values, vectors = np.linalg.eigh(Q)
    found = sqp(problem, signs(vectors[:, 1]) / np.sqrt(80), values[:3])
    assert found.status is Status.CONVERGED
    kappa, total = found.balance_multiplier, found.h.sum()
    assert abs(kappa * total) > 1e-3
    exact, exact_kappa = problem.multipliers(found.h)
    assert exact_kappa == pytest.approx(kappa, abs=1e-5)
    assert found.multiplier == pytest.approx(exact - kappa * total, abs=1e-5)


def test_the_break_returns_the_iterate_before_and_warns():
    X, _ = make_two_gaussians(60, random_state=3)
    settings = {"affinity": "gaussian", "sigma": "mean/4", "mode": "paper"}
    with pytest.warns(ConvergenceWarning) as caught:
        model = SoftLabelMVC(reg=1e4, **settings).fit(X)
    (message,) = [str(one.message) for one in caught]
    assert "STOPPED (the algorithm's own rule ended it" in message
    assert "quadratic program need not have a minimum" in message
    assert "Algorithm 1 returns the start. Lower reg=10000, pass init or eta0" in message
    assert "lower bound" not in message
    assert model.status_ is model.result_.status is Status.STOPPED
    assert model.n_iter_ == 0
    assert model.n_moved_ == 0
    np.testing.assert_allclose(model.h_, model.result_.start, rtol=1e-12)
    # Later breaks name the step.
    for reg in np.geomspace(100, 1000, 40):
        model = paper_fit(X, affinity="gaussian", sigma="mean/4", reg=reg)
        if model.result_.status is Status.STOPPED and model.n_iter_ > 0:
            break
    assert f"returns the soft responses of step {model.n_iter_}" in model._status_words(
        model.result_
    )


def test_an_iteration_limit_is_said():
    X, _ = make_two_moons(60, random_state=0)
    with pytest.warns(ConvergenceWarning, match="MAX_ITER.*max_iter=2"):
        model = SoftLabelMVC(mode="paper", n_candidates=1, max_iter=2).fit(X)
    assert model.result_.status is Status.MAX_ITER


@pytest.mark.parametrize("name", SETS)
def test_the_aistats_mode_is_the_algorithm_of_its_paper(name):
    """Q = L_sym, eta0 = -0.001, b = 1e-7, squares in the stopping rule, eq. 6 with eta_t p_t."""
    for n in (50, 100):
        for seed in range(4):
            X, _ = SETS[name](n, random_state=seed)
            W = gaussian_similarity(X, sigma="mean/4", self_loops=True)
            L = q_of(X, "mean/4") - np.eye(n) / n
            values, vectors = np.linalg.eigh(L)
            assert values[1] - values[0] > 1e-10
            h, eta = signs(vectors[:, 1] - vectors[:, 1].mean()) / np.sqrt(n), -1e-3
            t, change = 0, np.inf
            while change > 1e-6 and t < 100:
                p = qp_by_kkt(L, 1e-2, 1e-7, h, eta)
                new_eta = h @ (1e-2 * L @ (h + p) - eta * p - signs(h)) / (h @ h)
                change = p @ p + (new_eta - eta) ** 2
                h, eta, t = h + p, new_eta, t + 1
            model = SoftLabelMVC(mode="aistats", affinity="precomputed").fit(W)
            assert model.n_iter_ == t
            assert model.result_.multiplier == pytest.approx(eta, rel=1e-6)
            np.testing.assert_allclose(np.abs(model.h_), np.abs(h / np.linalg.norm(h)), atol=1e-7)


def test_aistats_ends_where_a_program_has_no_minimum():
    rng = np.random.default_rng(0)
    stopped = None
    for _ in range(200):
        n = int(rng.integers(4, 9))
        basis = np.linalg.qr(rng.standard_normal((n, n)))[0]
        values = np.sort(rng.random(n)) + 0.01
        problem = VolumeProblem(as_operator((basis * values) @ basis.T), 1e3, 0.1)
        h0 = signs(rng.standard_normal(n)) / np.sqrt(n)
        if np.ptp(h0) == 0:
            continue
        found = sqp(problem, h0, values[:3], eta0=-1e-3, algorithm="aistats")
        if found.status is Status.STOPPED:
            stopped = found
    assert stopped is not None
    assert np.linalg.norm(stopped.h) == pytest.approx(1.0)


# ------------------------------------------------------------------ the starts


def test_candidates_are_counted_and_an_ill_defined_q_is_said():
    X, _ = make_two_gaussians(100, random_state=0)
    W = gaussian_similarity(X, sigma="mean/40", self_loops=True) + 1e-6  # in one piece
    with pytest.warns(UserWarning, match="^Q .*eigenvalues"):
        model = SoftLabelMVC(mode="paper", affinity="precomputed").fit(W)
    assert model.ill_defined_ is model.result_.ill_defined is True
    assert model.n_candidates_ == model.result_.n_candidates == 10
    values = np.linalg.eigvalsh(laplacian(W))
    assert np.sum(np.abs(values - values[1]) < 1e-4) > 10
    X, _ = make_two_moons(100, random_state=0)
    values = np.linalg.eigvalsh(q_of(X, "mean/10"))
    near = int(np.sum(np.abs(values[1:] - values[1]) < 1e-4))
    model = SoftLabelMVC(mode="paper").fit(X)
    assert model.n_candidates_ == near <= 10
    assert model.ill_defined_ is False
    assert SoftLabelMVC().fit(X).n_candidates_ == 1
    assert SoftLabelMVC(n_candidates=4).fit(X).n_candidates_ == 4


@pytest.mark.parametrize("mode", ["default", "paper", "aistats"])
def test_the_start_may_be_given(mode):
    X, y = make_two_moons(100, noise=0.15, random_state=0)
    settings = {"mode": mode, "affinity": "nearest_neighbors", "n_candidates": 1}
    auto = SoftLabelMVC(**settings).fit(X)
    del settings["n_candidates"]
    again = SoftLabelMVC(**settings, init=auto.result_.start).fit(X)
    np.testing.assert_array_equal(again.labels_, auto.labels_)
    np.testing.assert_allclose(again.h_, auto.h_, atol=1e-12)
    assert again.degenerate_ is False
    for labels in (y, np.where(y, "b", "a"), y == 1):
        model = SoftLabelMVC(**settings, init=labels).fit(X)
        np.testing.assert_array_equal(np.abs(model.result_.start), np.full(100, 0.1))
        assert clustering_error(y, (model.result_.start > 0).astype(int)) == 0
        assert model.n_moved_ == round(100 * clustering_error(y, model.labels_))
        assert model.n_candidates_ == 1
        assert model.result_.is_stationary(1e-6)
    soft = np.linspace(-3, 5, 100)
    model = SoftLabelMVC(**settings, init=soft).fit(X)
    unit = soft / np.linalg.norm(soft)
    np.testing.assert_allclose(np.abs(model.result_.start), np.abs(unit))
    np.testing.assert_array_equal(model.result_.start, model.result_.chosen_vector)


def test_given_starts_are_those_of_the_printed_algorithm():
    X, _ = make_two_moons(60, noise=0.2, random_state=1)
    rng = np.random.default_rng(0)
    Q = q_of(X, "mean/4")
    for reg, eta0 in ((1e-2, None), (1e-2, -0.5), (5.0, -20.0), (50.0, None)):
        h0 = rng.standard_normal(60)
        h0 /= np.linalg.norm(h0)
        h, t, broke = printed(Q, reg, 1 / 60, h0, qp_by_kkt, eta=eta0 or 0.0)
        model = paper_fit(X, affinity="gaussian", sigma="mean/4", reg=reg, init=h0, eta0=eta0)
        assert model.n_iter_ == t
        assert (model.result_.status is Status.STOPPED) == broke
        np.testing.assert_allclose(np.abs(model.h_), np.abs(h / np.linalg.norm(h)), atol=1e-8)


def test_more_than_two_clusters_start_from_given_labels():
    X, y = make_two_moons(150, random_state=0)
    rows = np.vstack([X, X + np.array([6.0, 0.0])])
    labels = np.concatenate([y, y + 2])
    model = SoftLabelMVC(4, init=labels, affinity="local_scaling").fit(rows)
    assert clustering_error(labels, model.labels_) == 0
    assert model.n_moved_ == 0
    assert model.degenerate_ is False
    with pytest.raises(ValueError, match=r"^init .*n_clusters=3"):
        SoftLabelMVC(3, init=labels).fit(rows)
    with pytest.raises(ValueError, match="init holds one entry per row"):
        SoftLabelMVC(4, init=labels, multiway="recursive").fit(rows)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"init": "k-means"}, "init must be one of"),
        (
            {"init": np.zeros(40)},
            "^init .*responses of both",
        ),
        ({"init": np.arange(1.0, 41.0)}, "^init .*1 to 40"),
        ({"init": np.ones(40), "mode": "paper"}, "soft responses that differ"),
        ({"init": np.arange(39.0)}, "init has shape"),
        ({"init": np.full(40, np.nan)}, "init must be finite"),
        ({"init": np.arange(40) % 2, "n_candidates": 2}, "^n_candidates"),
        ({"eta0": -1.0}, "^eta0=-1.0"),
        ({"eta0": "low", "mode": "paper"}, "eta0 must be a number"),
        ({"eta0": np.inf, "mode": "paper"}, "eta0 must be finite"),
        ({"eta0": 1.0, "mode": "paper"}, "^eta0=1"),
        ({"eta0": 0.0, "mode": "aistats"}, "^eta0=0"),
    ],
)
def test_bad_starts_are_named(settings, message):
    X, _ = make_two_moons(40, random_state=0)
    with pytest.raises((ValueError, TypeError), match=message):
        SoftLabelMVC(**settings).fit(X)


# ------------------------------------------------------------------ the limits of section 4


def limits():
    """The matrices of section 4: Q, the index of the wanted eigenvector, the balance."""
    X, _ = make_two_moons(80, random_state=0)
    n = len(X)
    W = gaussian_similarity(X, sigma="mean/2", self_loops=True)
    C = np.eye(n) - 1 / n
    unnormalised = laplacian(W, kind="unnormalized") + 0.1 * np.eye(n)
    yield pytest.param(W, unnormalised, 1, 0.0, id="spectral clustering")
    for name, M, balance in (
        ("kernel k-means", C @ W @ C, None),
        ("k-means", C @ X @ X.T @ C, None),
        ("SMIC, first", W @ W, np.sqrt(n)),
    ):
        top = np.linalg.norm(M, 2)
        yield pytest.param(W, 1.1 * top * np.eye(n) - M, 0, balance, id=name)
    # Eq. 18: the constraint h'h1 = 0 as a term of Q.
    first = np.linalg.eigh(W @ W)[1][:, -1]
    top = np.linalg.norm(W @ W, 2)
    Q = 1.1 * top * np.eye(n) - W @ W + top * np.outer(first, first)
    yield pytest.param(W, Q, 0, np.sqrt(n), id="SMIC, second")


@pytest.mark.filterwarnings("ignore:All rows are in one cluster")
@pytest.mark.parametrize(("W", "Q", "index", "balance"), list(limits()))
def test_limits_of_section_4(W, Q, index, balance):
    """Algorithm 1 from the wanted vector: 1 - cos falls as reg^-2, to a certified minimum."""
    values, vectors = np.linalg.eigh(Q)
    wanted = vectors[:, index]
    settings = {"affinity": "precomputed", "Q": Q, "balance": balance}
    angles = []
    for reg in (1e2, 1e4, 1e6):
        model = SoftLabelMVC(**settings, mode="paper", reg=reg, init=wanted).fit(W)
        assert model.result_.status is Status.CONVERGED
        assert model.result_.check(model.problem_).is_stationary(1e-9)
        angles.append(1 - abs(model.h_ @ wanted))
    assert angles[1] < 1e-3 * max(angles[0], 1e-12)
    assert angles[2] < 1e-10
    # From labels with the multiplier of the limit, where the labels are near it.
    if np.ptp(signs(wanted)) > 0:
        eta0 = 1e6 * values[index] - np.sqrt(len(W))
        model = SoftLabelMVC(**settings, mode="paper", reg=1e6, init=signs(wanted), eta0=eta0)
        assert 1 - abs(model.fit(W).h_ @ wanted) < 1e-10
        assert model.result_.status is Status.CONVERGED


def test_eq_9_reaches_the_limit_of_spectral_clustering_only():
    """As printed, eta_1 is above the smallest eigenvalue at once, and h0 is returned."""
    for W, Q, index, balance in (one.values for one in limits()):
        model = SoftLabelMVC(affinity="precomputed", Q=Q, balance=balance, mode="paper", reg=1e6)
        if balance == 0:
            model.fit(W)
            assert model.result_.check(model.problem_).is_stationary(1e-9)
            assert 1 - abs(model.h_ @ np.linalg.eigh(Q)[1][:, index]) < 1e-10
            continue
        with pytest.warns(ConvergenceWarning, match="STOPPED"):
            model.fit(W)
        np.testing.assert_allclose(model.h_, model.result_.start, rtol=1e-12)


@pytest.mark.parametrize(
    "method", [SoftLabelMVC, NormalizedSpectralClustering, NormalizedCut, SMIC]
)
def test_the_width_that_was_used_is_published(method):
    X, _ = make_two_moons(60, random_state=0)
    width = mean_distance(X)
    assert method(affinity="gaussian", sigma="mean/4").fit(X).sigma_ == pytest.approx(width / 4)
    assert method(affinity=GaussianSimilarity(sigma=0.3)).fit(X).sigma_ == 0.3
    assert method(affinity="local_scaling").fit(X).sigma_ is None
    W = gaussian_similarity(X, sigma=0.3)
    assert method(affinity="precomputed").fit(W).sigma_ is None
    if method is SoftLabelMVC:
        assert method(mode="paper").fit(X).sigma_ == pytest.approx(width / 10)
