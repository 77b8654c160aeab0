"""SDPMMC: bounds, equation 22, rounding, unequal groups, edges."""

import itertools
import warnings

import cvxpy as cp
import numpy as np
import pytest
from helpers.cvxpy_references import equation_22, kernel
from scipy import linalg
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from volmar import GMMC, SDPMMC
from volmar.datasets import make_two_circles, make_two_gaussians, make_two_moons
from volmar.graphs.distances import mean_distance
from volmar.margin.sdp_mmc import SDPMMCProblem
from volmar.metrics import clustering_error
from volmar.solvers import Status, solve_elliptope_saddle


def groups(rng, n=30, apart=6.0):
    X = rng.standard_normal((n, 2))
    X[n // 2 :, 0] += apart
    return X, np.repeat([0, 1], [n // 2, n - n // 2])


def quietly(model, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model.fit(X)


def machines(K, C, balance=None):
    """Value of the primal for every labelling: |w|^2 + C sum of hinges, w in feature space."""
    n = len(K)
    F = linalg.cholesky(K + 1e-12 * np.eye(n), lower=True)
    w, y = cp.Variable(n), cp.Parameter(n)
    hinges = cp.sum(cp.pos(1 - cp.multiply(y, F @ w)))
    program = cp.Problem(cp.Minimize(cp.sum_squares(w) + C * hinges))
    values = {}
    for tail in itertools.product([-1.0, 1.0], repeat=n - 1):
        y.value = np.array((1.0, *tail))
        if balance is None or abs(y.value.sum()) <= balance:
            values[tuple(y.value)] = program.solve(solver=cp.CLARABEL)
    return values


@pytest.mark.parametrize(("C", "apart"), [(0.2, 3.0), (1.0, 3.0), (5.0, 1.0)])
def test_no_labels_are_below_the_bound(C, apart, rng):
    """With a <= C / 2 the dual is the primal for every labelling, and the relaxation below."""
    X, _ = groups(rng, 6, apart)
    K = rbf_kernel(X, gamma=0.2)
    values = machines(K, C, balance=1.0)
    problem = SDPMMCProblem(K, C / 2)
    for y, value in values.items():
        assert problem.machine(np.array(y)).value == pytest.approx(value, rel=1e-5)
    relaxed = solve_elliptope_saddle(K, C=C / 2, unit_norm=False, balance=1.0, max_iter=3000)
    assert relaxed.lower_bound <= min(values.values()) * (1 + 1e-7)
    assert relaxed.gap <= 1e-3 * relaxed.objective
    model = quietly(SDPMMC(kernel="precomputed", C=C, center=False, random_state=0), K)
    assert model.result_.lower_bound <= min(values.values()) * (1 + 1e-7)
    y = tuple(np.where(model.labels_ == model.labels_[0], 1.0, -1.0))
    if y in values:
        assert model.result_.labelled_objective == pytest.approx(values[y], rel=1e-5)


def test_the_bound_is_tight_and_the_printed_scale_is_not_one():
    """Two tight groups: with C for the printed 2C the relaxation is the best machine."""
    X = np.repeat([[0.0], [1.0]], 3, axis=0)
    K = rbf_kernel(X, gamma=1.0) + 0.01 * np.eye(6)
    C = 0.1
    best = min(machines(K, C, balance=0.0).values())
    right = solve_elliptope_saddle(K, C=C / 2, unit_norm=False, balance=0.0)
    assert right.objective == pytest.approx(best, rel=1e-5)
    printed = solve_elliptope_saddle(K, C=C, unit_norm=False, balance=0.0)
    assert printed.lower_bound > 1.2 * best  # not a bound
    doubled = min(machines(K, 2 * C, balance=0.0).values())
    assert printed.objective == pytest.approx(doubled, rel=1e-5)


@pytest.mark.parametrize(
    ("make", "box", "balance", "row_balance", "center"),
    [
        (make_two_moons, 0.5, None, False, True),
        (make_two_gaussians, 0.5, None, False, False),
        (make_two_moons, 0.5, 1.0, True, True),
        (make_two_moons, 0.5, 0.2, False, False),
        (make_two_circles, 50.0, 1.0, True, True),
        (make_two_circles, 50.0, 0.05, False, True),
    ],
)
def test_equation_22_against_clarabel(make, box, balance, row_balance, center):
    K = kernel(make, 20, center=center)
    found = solve_elliptope_saddle(
        K,
        C=box,
        unit_norm=False,
        balance=balance,
        row_balance=row_balance,
        tol=1e-6,
        max_iter=3000,
    )
    value = equation_22(K, box, balance, row_balance=row_balance)
    assert found.objective == pytest.approx(value, rel=1e-5)
    assert found.lower_bound <= value * (1 + 1e-6)
    model = SDPMMC(
        kernel="precomputed",
        C=2 * box,
        balance=balance,
        row_balance=row_balance,
        center=center,
        tol=1e-6,
        random_state=0,
    )
    quietly(model, K)  # centred twice is centred
    assert model.objective_ == pytest.approx(value, rel=1e-5)
    assert model.result_.gap <= 1e-4 * value


def test_margin_clustering_is_hard_label_volume_clustering_with_eta_zero():
    """Q = K, gamma = 1 and eta = 0 make AISTATS eq. 10 the program of eq. 22."""
    K = kernel(make_two_moons, 16)
    found = solve_elliptope_saddle(K, reg=1.0, C=1.0, unit_norm=False)
    volume, margin = equation_22(K, 1.0, eta=0.0), equation_22(K, 1.0)
    assert volume == pytest.approx(margin, rel=1e-5)
    assert found.objective == pytest.approx(margin, rel=1e-5)
    assert found.eta == 0.0
    assert found.is_certified(1e-5)
    # They differ only by eta.
    assert equation_22(K, 1.0, eta=-1.0) != pytest.approx(margin, rel=1e-2)
    paper = quietly(SDPMMC(kernel="precomputed", mode="paper", random_state=0), K)
    assert paper.objective_ == pytest.approx(margin, rel=1e-5)


@pytest.mark.parametrize("make", [make_two_gaussians, make_two_circles])
def test_balance_saves_the_relaxation(make):
    """The papers' narrow kernel, five draws of 50 rows; as printed it is far worse."""
    errors = {"default": [], "paper": []}
    for seed in range(5):
        X, y = make(50, random_state=seed)
        gamma = 0.5 / (mean_distance(X) / 10) ** 2
        for mode, found in errors.items():
            model = SDPMMC(gamma=gamma, center=False, mode=mode, tol=1e-4, random_state=0)
            found.append(clustering_error(y, quietly(model, X).labels_))
            assert model.result_.gap <= 1e-3 * model.objective_
    assert np.mean(errors["default"]) <= 0.05
    assert np.mean(errors["paper"]) > 0.1


def test_defaults_on_groups_and_circles():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, y = groups(rng, 50)
        model = SDPMMC(random_state=0).fit(X)
        assert clustering_error(y, model.labels_) <= 0.02
        assert model.result_.is_certified(1e-5)
        assert np.mean(model.predict(X) == model.labels_) >= 0.95
        new, truth = groups(rng, 50)
        swapped = int(model.labels_[0] != y[0])
        assert np.mean(model.predict(new) == (truth ^ swapped)) >= 0.95
        X, y = make_two_circles(50, noise=0.02, factor=0.2, random_state=seed)
        assert clustering_error(y, SDPMMC(random_state=0).fit(X).labels_) == 0.0


def test_random_rounding_never_has_a_larger_objective():
    X, _ = make_two_moons(40, random_state=0)
    one = quietly(SDPMMC(random_state=0), X).result_
    two = quietly(SDPMMC(rounding="random", random_state=0), X).result_
    assert one.lower_bound <= two.labelled_objective <= one.labelled_objective + 1e-9


@pytest.mark.parametrize("center", [True, False])
def test_scores_are_in_units_of_the_margin(center, rng):
    """Free support vectors are at the margin, those at the bound inside, other rows outside."""
    X, _ = groups(rng, 30, apart=4.0)
    model = quietly(SDPMMC(C=0.6, center=center, gamma=0.2, random_state=0), X)
    margins = (2 * model.labels_ - 1) * model.decision_function(X)
    dual = model.result_.dual
    free = (dual > 1e-6) & (dual < 0.3 - 1e-6)
    assert free.any()
    np.testing.assert_allclose(margins[free], 1.0, atol=1e-6)
    assert margins[dual <= 1e-6].min(initial=np.inf) >= 1 - 1e-6
    assert margins[dual >= 0.3 - 1e-6].max(initial=-np.inf) <= 1 + 1e-6
    np.testing.assert_array_equal(model.predict(X), model.decision_function(X) > 0)
    assert model.alpha_.shape == (30,)
    if center:
        assert abs(model.dual_coef_.sum()) < 1e-12
    else:
        assert model.intercept_ == 0.0


def test_precomputed_and_single_precision(rng):
    X, _ = groups(rng)
    new, _ = groups(rng, 10)
    settings = {"tol": 1e-7, "random_state": 0}
    model = SDPMMC(gamma=0.2, **settings).fit(X)
    scores = model.decision_function(new)
    given = SDPMMC(kernel="precomputed", **settings).fit(rbf_kernel(X, gamma=0.2))
    np.testing.assert_array_equal(given.labels_, model.labels_)
    K_new = rbf_kernel(new, X, gamma=0.2)
    np.testing.assert_allclose(given.decision_function(K_new), scores, atol=1e-6)
    single = SDPMMC(gamma=0.2, random_state=0).fit(X.astype(np.float32))
    np.testing.assert_array_equal(single.labels_, model.labels_)
    assert single.objective_ == pytest.approx(model.objective_, rel=1e-4)


def test_the_origin_of_a_linear_kernel_does_not_matter(rng):
    X, y = groups(rng)
    model = SDPMMC(kernel="linear", random_state=0).fit(X)
    far = SDPMMC(kernel="linear", random_state=0).fit(X + 100.0)
    assert clustering_error(y, model.labels_) == 0.0
    np.testing.assert_array_equal(far.labels_, model.labels_)
    np.testing.assert_allclose(
        far.decision_function(X + 100.0), model.decision_function(X), atol=1e-6
    )


def test_degenerate_data(rng):
    X, y = groups(rng, 20)
    twice = SDPMMC(random_state=0).fit(np.vstack([X, X]))
    np.testing.assert_array_equal(twice.labels_[:20], twice.labels_[20:])
    assert clustering_error(np.append(y, y), twice.labels_) == 0.0


@pytest.mark.parametrize(
    ("settings", "X"),
    [
        ({}, np.ones((20, 2))),
        ({"kernel": "precomputed"}, np.zeros((20, 20))),
        ({"kernel": "precomputed"}, np.ones((20, 20))),
        ({"kernel": "precomputed", "center": False}, np.ones((20, 20))),
        ({"gamma": 1e-300}, np.arange(20.0)[:, None]),
    ],
)
def test_rows_that_are_the_same_to_the_kernel_are_refused(settings, X):
    with pytest.raises(ValueError, match=r"rows of X .*kernel"):
        SDPMMC(**settings).fit(X)


def test_a_far_from_two_groups_matrix_is_warned_of_but_certified():
    """Three equal groups: `spread` and a warning concern the labels, `status` the value."""
    X = np.repeat([[0.0, 0.0], [4.0, 0.0], [2.0, 3.4]], 10, axis=0)
    X = X + 0.1 * np.random.default_rng(0).standard_normal(X.shape)
    with pytest.warns(UserWarning, match="ratio of the second"):
        model = SDPMMC(balance=1.0, random_state=0).fit(X)
    assert model.result_.spread > 0.5
    assert model.result_.status is Status.CONVERGED
    assert model.result_.is_certified(1e-5)


def unequal(name):
    rng = np.random.default_rng(0)
    if name == "groups":
        return np.vstack([rng.normal(-3, 1, (180, 2)), rng.normal(3, 1, (20, 2))])
    return {"iris": load_iris, "wine": load_wine}[name]().data


@pytest.mark.parametrize("name", ["iris", "wine", "groups"])
def test_balance_closes_the_gap_on_unequal_groups(name):
    """The last digit for iris depends on the seed, so the gap is checked, not the status."""
    X = unequal(name)
    model = quietly(SDPMMC(balance=1.0, random_state=0), X)
    result = model.result_
    assert result.gap <= 5e-4 * result.objective
    if name != "iris":
        assert result.status is Status.CONVERGED
        assert result.is_certified(1e-5)
    V = result.factor
    assert np.sum(V.sum(axis=0) ** 2) <= len(X) * (1 + 1e-5 * len(X))
    free = quietly(SDPMMC(balance=None, random_state=0), X).result_
    assert free.lower_bound <= result.objective * (1 + 1e-9)
    problem, rng = model._problem(X, None).problem, np.random.default_rng(0)
    for _ in range(5):
        y = rng.permutation(np.repeat([-1.0, 1.0], len(X) // 2))
        assert problem.machine(y).value >= result.lower_bound


@pytest.mark.parametrize("name", ["iris", "wine", "groups"])
def test_the_defaults_close_the_gap_on_unequal_groups(name):
    result = quietly(SDPMMC(random_state=0), unequal(name)).result_
    assert result.gap <= 5e-4 * result.objective
    if name != "iris":
        assert result.status is Status.CONVERGED
        assert result.is_certified(1e-5)


def test_a_bound_is_never_below_that_without_balance():
    """Few iterations: the problem without balance comes first, and its bound is kept."""
    X = load_iris().data
    free = SDPMMC(balance=None, random_state=0).fit(X).result_
    few = quietly(SDPMMC(balance=1.0, max_iter=400, random_state=0), X).result_
    assert few.status is Status.MAX_ITER
    assert few.lower_bound >= free.lower_bound * (1 - 1e-5)
    assert few.gap <= 0.01 * few.objective


def test_the_gap_is_relative_to_the_value_however_small():
    """A linear kernel of large features: the value is a few thousandths."""
    result = quietly(
        SDPMMC(kernel="linear", random_state=0), load_breast_cancer().data[:150]
    ).result_
    assert result.objective < 0.01
    assert result.gap <= 1e-5 * result.objective
    assert result.residuals["relative gap"] <= 1e-5


def test_random_rounding_keeps_the_balance_of_the_centred_one():
    X, _ = make_blobs([40, 20], 2, centers=[[-3, 0], [3, 0]], random_state=0)
    for balance in (0.5, 1.0, 4.0):
        sizes = [
            abs(np.diff(np.bincount(quietly(model, X).labels_))[0])
            for model in (
                SDPMMC(balance=balance, random_state=0),
                SDPMMC(balance=balance, rounding="random", random_state=0),
            )
        ]
        assert sizes[1] <= sizes[0]


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_rounding_is_not_taken_for_an_indefinite_kernel(shift, rng):
    X, y = groups(rng)
    far = SDPMMC(random_state=0).fit(X + shift)
    assert clustering_error(y, far.labels_) == 0.0
    wide = quietly(SDPMMC(gamma=1e-12, random_state=0), X + shift)
    assert clustering_error(y, wide.labels_) == 0.0


def test_an_iteration_limit_keeps_the_certificate(rng):
    X, _ = groups(rng)
    with pytest.warns(ConvergenceWarning, match="after 2 .*max_iter") as seen:
        model = SDPMMC(max_iter=2, random_state=0).fit(X)
    assert seen[0].filename == __file__
    assert model.result_.status is Status.MAX_ITER
    best = SDPMMC(random_state=0).fit(X).objective_
    assert model.result_.lower_bound <= best * (1 + 1e-6)
    assert model.objective_ <= model.result_.lower_bound + model.result_.gap + 1e-9


def test_unequal_groups_without_balance(rng):
    """Centring alone keeps the rows from one cluster, where the printed problem does not."""
    X = np.vstack([rng.normal(-2, 1, (40, 3)), rng.normal(2, 1, (30, 3))])
    y = np.repeat([0, 1], [40, 30])
    model = SDPMMC(balance=None, random_state=0).fit(X)
    assert clustering_error(y, model.labels_) == 0.0
    assert model.result_.is_certified(1e-5)
    # With the default balance, which has one multiplier, no warning and no gap either.
    assert SDPMMC(random_state=0).fit(X).result_.is_certified(1e-5)
    assert SDPMMC(kernel="linear", random_state=0).fit(X).result_.is_certified(1e-5)
    printed = quietly(SDPMMC(mode="paper", random_state=0), X)
    M = printed.result_.factor @ printed.result_.factor.T
    assert M.mean() > 0.9  # nearly all ones


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"C": 0.0}, ValueError, r"^C\b"),
        ({"balance": -1.0}, ValueError, "balance must be at least 0"),
        ({"gamma": "auto"}, ValueError, "^gamma"),
        ({"tol": 0.0}, ValueError, "tol must be greater than 0"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ({"mode": "printed"}, ValueError, "mode must be one of"),
        ({"rounding": "best"}, ValueError, "rounding must be one of"),
        ({"n_clusters": "auto"}, ValueError, "^n_clusters must be a number"),
        ({"row_balance": None}, TypeError, "^row_balance"),
        ({"kernel_params": 3}, TypeError, "^kernel_params"),
        ({"center": 1}, TypeError, "^center"),
        ({"kernel": "nonsense"}, ValueError, "^kernel='nonsense'"),
    ],
)
def test_bad_parameters(parameters, error, message, rng):
    with pytest.raises(error, match=message):
        SDPMMC(**parameters).fit(groups(rng)[0])


def test_bad_kernel_matrices(rng):
    A = rng.standard_normal((12, 12))
    with pytest.raises(ValueError, match=r"symmetric.*K\.T"):
        SDPMMC(kernel="precomputed").fit(A)
    with pytest.raises(ValueError, match="positive semidefinite, but its smallest") as seen:
        SDPMMC(kernel="precomputed").fit(A + A.T)
    shift = float(str(seen.value).split("add ")[1].split()[0])  # the remedy works
    shifted = SDPMMC(kernel="precomputed", random_state=0)
    quietly(shifted, A + A.T + 1.01 * shift * np.eye(12))
    assert np.isfinite(shifted.objective_)


@pytest.mark.parametrize("kind", [SDPMMC, GMMC])
def test_a_kernel_without_a_margin_is_refused_by_name(kind):
    with pytest.raises(ValueError, match="must be positive semidefinite") as caught:
        kind(kernel="precomputed").fit(np.diag([-1.0, -2.0, -1.0, -3.0]))
    assert type(caught.value) is ValueError


def test_one_cluster_is_recognised_in_paper_mode():
    """Not centred and without a bound on row sums, M = 11' is the only solution."""
    X, _ = make_two_circles(60, random_state=0)
    with pytest.warns(UserWarning, match="all ones.*mode='default'"):
        model = SDPMMC(mode="paper", gamma=8.0, random_state=0).fit(X)
    assert model.result_.one_cluster
    with pytest.warns(UserWarning, match="ratio of the second"):
        assert not SDPMMC(random_state=0).fit(X).result_.one_cluster
