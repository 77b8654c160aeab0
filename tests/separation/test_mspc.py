"""MSPC: the bound and its scan, the three solvers, invariance, edges, new rows."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import rbf_kernel

from reproduction.datasets import data_folder, load
from volmar import MSPC
from volmar.datasets import make_two_circles
from volmar.metrics import clustering_error
from volmar.metrics.separation_bound import probability
from volmar.rows.anywhere import as_rows
from volmar.rows.standardized import standardized
from volmar.separation import gep as bound_module
from volmar.separation.gep import (
    RegularizedCorrelation,
    best_split,
    bound,
    mean_difference,
    separation_gep,
)
from volmar.separation.two_way import separation_eig, separation_machine, separation_mpm
from volmar.solvers import Status

needs_data = pytest.mark.skipif(
    data_folder() is None, reason="needs the papers' data sets (VOLMAR_DATA)"
)


def kappa2_of(X, mask, w, reg):
    """Theorem 2's right side (MSPC eq. 4), as printed."""
    X = X - X.mean(axis=0)
    r = np.array([np.mean(~mask), np.mean(mask)])
    delta = w @ (X[mask].mean(axis=0) - X[~mask].mean(axis=0))
    S = np.cov(X.T, bias=True).reshape(X.shape[1], -1)
    v = w @ (S + reg * np.diag(np.diag(S))) @ w
    return delta**2 / (2 * v / r.min() - 2 * r.max() * delta**2)


def kappa_of(X, mask, w, reg):
    """MSPC eq. 3 at given labels and direction."""
    S = np.cov(X.T, bias=True).reshape(X.shape[1], -1)
    ridge = reg * np.diag(np.diag(S))
    delta = abs(w @ (X[mask].mean(axis=0) - X[~mask].mean(axis=0)))
    spread = sum(
        np.sqrt(w @ (np.cov(X[m].T, bias=True).reshape(len(w), -1) + ridge) @ w)
        for m in (mask, ~mask)
    )
    return delta / spread


@given(seed=st.integers(0, 10**6), reg=st.sampled_from([0.0, 0.01, 1.0, 10.0]))
@settings(max_examples=300, deadline=None)
def test_theorem_2_is_never_violated(seed, reg):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(6, 40)), int(rng.integers(1, 5))
    X = rng.standard_normal((n, d)) * np.exp(rng.standard_normal(d))
    for _ in range(10):
        mask = rng.random(n) < rng.uniform(0.1, 0.9)
        if 0 < mask.sum() < n:
            w = rng.standard_normal(d)
            assert kappa_of(X, mask, w, reg) ** 2 >= kappa2_of(X, mask, w, reg) * (1 - 1e-9)


@given(seed=st.integers(0, 10**6), reg=st.floats(0.01, 5))
@settings(max_examples=60, deadline=None)
def test_the_simplified_bound_is_eq_4(seed, reg):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 3)) * [1.0, 5.0, 0.2]
    mask = np.arange(30) < rng.integers(3, 27)
    z = standardized(as_rows(X))
    w = rng.standard_normal(3)
    regularized = RegularizedCorrelation(z.correlation, reg)
    share = mask.mean()
    gap = w @ mean_difference(z, mask)
    explained = share * (1 - share) * gap**2 / regularized.variance(w)
    assert bound(np.array(explained), np.array(share)) == pytest.approx(
        kappa2_of(X, mask, z.coefficients(w), reg), rel=1e-8
    )


@given(seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_the_scan_finds_the_best_of_all_labellings(seed):
    rng = np.random.default_rng(seed)
    p = np.round(rng.standard_normal(9), 1)  # ties on purpose
    p -= p.mean()
    variance = p.var() + 0.5
    best = best_split(p, None, variance, 1.0)
    values = []
    for labels in product([False, True], repeat=9):
        mask = np.array(labels)
        if 0 < mask.sum() < 9:
            share = mask.mean()
            gap = p[mask].mean() - p[~mask].mean()
            explained = share * (1 - share) * gap**2 / variance
            values.append(float(bound(np.array(explained), np.array(share))))
    found = p > best.threshold
    share = found.mean()
    gap = p[found].mean() - p[~found].mean()
    own = float(bound(np.array(share * (1 - share) * gap**2 / variance), np.array(share)))
    assert best.kappa2 == pytest.approx(own)
    # Labellings that separate equal projections are not allowed; no other is better.
    assert best.kappa2 >= max(values) - 1e-9 or len(set(p)) < 9


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", ["normal", "bimodal", "heavy", "integers"])
def test_the_histogram_is_exact(monkeypatch, rng, shape, weighted):
    n = 5000
    p = {
        "normal": lambda: rng.standard_normal(n),
        "bimodal": lambda: rng.standard_normal(n) + 4 * (rng.random(n) < 0.3),
        "heavy": lambda: rng.standard_t(1.5, n),
        "integers": lambda: rng.integers(0, 12, n).astype(float),
    }[shape]()
    weights = rng.random(n) if weighted else None
    p -= np.average(p, weights=weights)
    variance = np.average(p**2, weights=weights) * 1.5
    least = 0.02 * (n if weights is None else weights.sum())
    exact = best_split(p, weights, variance, least)
    monkeypatch.setattr(bound_module, "SORT_UP_TO", 100)
    binned = best_split(p, weights, variance, least)
    assert binned.kappa2 == pytest.approx(exact.kappa2, rel=1e-10)
    assert np.array_equal(p > binned.threshold, p > exact.threshold)


def test_equal_projections_are_never_parted():
    p = np.repeat([-1.0, 0.0, 1.0], 10)
    split = best_split(p, None, 1.0, 1.0)
    assert split.threshold in (-0.5, 0.5)
    assert best_split(np.zeros(10), None, 1.0, 1.0).kappa2 == -np.inf
    assert best_split(p, None, 1.0, 12.0).kappa2 == -np.inf


@pytest.fixture
def humps(rng):
    """One feature of fifty is bimodal; all have different scales."""
    X = rng.standard_normal((1000, 50))
    truth = rng.random(1000) < 0.5
    X[truth, 17] += 6.0
    return X, truth


def test_one_bimodal_feature_is_found_at_any_scale(humps):
    X, truth = humps
    plain = MSPC(random_state=0).fit(X).labels_
    assert clustering_error(truth, plain) < 0.02
    for seed in range(3):
        scales = 10.0 ** np.random.default_rng(seed).uniform(-5, 5, 50)
        assert clustering_error(truth, MSPC(random_state=0).fit(X * scales).labels_) < 0.02
        kmeans = KMeans(2, n_init=10, random_state=0).fit_predict(X * scales)
        assert clustering_error(truth, kmeans) > 0.2


def test_a_column_of_two_values_does_not_win_against_many_features(rng):
    truth = rng.random(300) < 0.5
    X = rng.standard_normal((300, 10)) + 2.5 * truth[:, None]
    X = np.column_stack([X, rng.integers(0, 2, 300)])
    assert clustering_error(truth, MSPC(random_state=0).fit(X).labels_) < 0.05


@pytest.mark.parametrize("solver", ["gep", "mpm", "eig"])
def test_labels_do_not_change_with_the_scales(rng, solver):
    """Powers of two scale without rounding: the labels are the same to the last row."""
    X = np.vstack([rng.normal(0, 1, (80, 6)), rng.normal(1.5, 1, (70, 6))])
    labels = MSPC(solver=solver, random_state=0).fit(X).labels_
    scales = 2.0 ** rng.integers(-20, 20, 6)
    np.testing.assert_array_equal(
        MSPC(solver=solver, random_state=0).fit(X * scales).labels_, labels
    )


def test_theorem_1_msp_does_not_change_under_linear_maps(rng):
    X = np.vstack([rng.normal(0, 1, (60, 4)), rng.normal(1, 2, (60, 4))])
    mask = np.arange(120) >= 60
    P = rng.standard_normal((4, 4)) + 3 * np.eye(4)

    def p(rows, reg):
        z = standardized(as_rows(rows))
        part = z.rows.moments(mask, center=z.moments.center)
        return separation_machine(z, part, reg)[0].probability

    assert p(X @ P, 0.0) == pytest.approx(p(X, 0.0), rel=1e-9)
    assert p(X * [1, 10, 0.1, 5], 1.0) == pytest.approx(p(X, 1.0), rel=1e-9)
    assert p(X @ P, 1.0) != pytest.approx(p(X, 1.0), rel=1e-3)  # only diagonal maps with reg


def machine_of(X, mask, reg=0.0):
    z = standardized(as_rows(X))
    part = z.rows.moments(mask, center=z.moments.center)
    return z, separation_machine(z, part, reg)[0]


@given(seed=st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_theorem_4_a_wide_gap_means_a_high_msp(seed):
    """For labels separated by a gap of width delta, p is at least the bound of the theorem."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 3)) * np.exp(rng.standard_normal(3))
    w = rng.standard_normal(3)
    w /= np.linalg.norm(w)
    order = np.argsort(X @ w)
    cut = int(rng.integers(10, 30))
    X[order[cut:]] += rng.uniform(0, 5) * w
    mask = np.isin(np.arange(40), order[cut:])
    delta = (X[mask] @ w).min() - (X[~mask] @ w).max()
    share = mask.mean()
    sigma2 = np.linalg.eigvalsh(np.cov(X.T, bias=True))[-1]
    _, machine = machine_of(X, mask)
    claim = 1 / (2 / min(share, 1 - share) * sigma2 / delta**2 - 2 * max(share, 1 - share) + 1)
    assert machine.probability >= claim - 1e-9


@given(seed=st.integers(0, 10**6), rho=st.floats(0, 0.9))
@settings(max_examples=100, deadline=None)
def test_theorem_5_most_rows_keep_a_relative_margin_of_the_midpoint(seed, rho):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((50, 3))
    mask = rng.random(50) < rng.uniform(0.2, 0.8)
    mask[:4] = [True, True, False, False]
    X[mask] += rng.uniform(0, 4)
    z, machine = machine_of(X, mask)
    f = z.scores(machine.w)
    middle = (f[mask].mean() + f[~mask].mean()) / 2
    gap = f[mask].mean() - f[~mask].mean()
    odds = 1 / machine.probability - 1
    r = odds / (odds + (1 - rho) ** 2 / 4)
    assert np.mean(f[mask] - middle >= rho * gap / 2 - 1e-9) >= 1 - r - 1e-9
    assert np.mean(middle - f[~mask] >= rho * gap / 2 - 1e-9) >= 1 - r - 1e-9


@given(seed=st.integers(0, 10**6), momentum=st.sampled_from([0.0, 1.0, 5.0]))
@settings(max_examples=60, deadline=None)
def test_gep_never_falls_and_its_bound_is_the_labels_own(seed, momentum):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 4)) + 2 * (rng.random((60, 1)) < 0.4)
    z = standardized(as_rows(X))
    regularized = RegularizedCorrelation(z.correlation, 1.0)
    result = separation_gep(
        z, regularized, rng.standard_normal(4), min_weight=2.0, momentum=momentum
    )
    assert result.status is Status.CONVERGED
    assert np.all(np.diff(result.history) <= 0)
    w = z.coefficients(result.w)
    assert -result.objective == pytest.approx(kappa2_of(X, result.labels, w, 1.0), rel=1e-8)
    assert result.lower_bound == pytest.approx(probability(-result.objective))


@given(seed=st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_mpm_ends_at_a_fixed_point_of_its_own_machine(seed):
    rng = np.random.default_rng(seed)
    X = np.vstack([rng.normal(0, 1, (50, 3)), rng.normal(2.5, 1, (40, 3))])
    z = standardized(as_rows(X))
    start = rng.random(90) < np.where(np.arange(90) < 50, 0.2, 0.8)
    result = separation_mpm(z, start, 1.0, min_weight=2.0)
    assert result.status in (Status.CONVERGED, Status.CYCLE)
    if result.status is Status.CONVERGED:
        part = z.rows.moments(result.labels, center=z.moments.center)
        machine, mean1, _ = separation_machine(z, part, 1.0)
        again = z.scores(machine.w) > -machine.intercept(mean1)
        np.testing.assert_array_equal(again, result.labels)
        assert machine.is_certified(1e-6)


def test_mpm_stops_before_it_empties_a_cluster(rng):
    X = rng.standard_normal((40, 2))
    z = standardized(as_rows(X))
    result = separation_mpm(z, X[:, 0] > 0, 1.0, min_weight=20.5)
    assert result.status is Status.DEGENERATE
    assert 0 < result.labels.sum() < 40


def test_eig_is_the_first_principal_component_for_every_reg(rng):
    X = rng.standard_normal((50, 5)) @ rng.standard_normal((5, 5))
    z = standardized(as_rows(X))
    result = separation_eig(z)
    assert result.residuals["eigenvector"] < 1e-10
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    for reg in (1e-3, 1.0, 1e3):
        kernel = Z @ np.linalg.solve(Z.T @ Z + reg * np.eye(5), Z.T)  # Theorem 3's matrix
        q = np.linalg.eigh(kernel)[1][:, -1]
        assert clustering_error(q > 0, result.labels) == 0.0
    C = X - X.mean(axis=0)
    q = np.linalg.svd(Z)[0][:, 0]
    paper = separation_eig(z, unscaled=True)
    assert clustering_error(C @ (C.T @ q) > 0, paper.labels) == 0.0


def test_fitted_attributes_match_their_definitions(rng):
    X = np.vstack([rng.normal(0, 1, (100, 3)), rng.normal(3, 2, (60, 3))]) * [1, 10, 0.1]
    for solver in ("gep", "mpm", "eig"):
        model = MSPC(solver=solver, tol=0.0, random_state=0).fit(X)
        mask = model.labels_ == 1
        scores = model.decision_function(X)
        np.testing.assert_array_equal(scores > 0, mask)
        np.testing.assert_array_equal(model.predict(X), model.labels_)
        np.testing.assert_allclose(X @ model.coef_[0] + model.intercept_[0], scores, atol=1e-9)
        assert scores[mask].mean() - scores[~mask].mean() == pytest.approx(1.0)
        assert 0 <= model.msp_lower_bound_ <= model.msp_ <= 1
        for k, side in enumerate((~mask, mask)):
            gap, variance = abs(scores[side].mean()), scores[side].var()
            assert model.side_probability_[k] == pytest.approx(gap**2 / (gap**2 + variance))
            assert np.mean((scores[side] > 0) == bool(k)) >= model.side_probability_[k]
        assert model.status_ is model.result_.status


def test_weight_two_is_a_row_written_twice(rng):
    X = np.vstack([rng.normal(0, 1, (60, 3)), rng.normal(3, 1, (60, 3))])
    weights = rng.integers(0, 3, 120)
    start = X[:, 0] > 1.5
    for solver in ("gep", "mpm"):
        one = MSPC(solver=solver, init=start, min_cluster_size=0.05, tol=0).fit(
            X, sample_weight=weights
        )
        two = MSPC(solver=solver, init=np.repeat(start, weights), min_cluster_size=0.05, tol=0)
        two.fit(np.repeat(X, weights, axis=0))
        np.testing.assert_array_equal(np.repeat(one.labels_, weights), two.labels_)
        assert one.msp_ == pytest.approx(two.msp_, rel=1e-8)


def test_dense_sparse_and_float32(rng):
    X = np.abs(np.vstack([rng.normal(0, 1, (80, 5)), rng.normal(4, 1, (80, 5))]))
    X[X < 0.5] = 0.0
    dense = MSPC(random_state=0).fit(X)
    csr = MSPC(random_state=0).fit(sparse.csr_matrix(X))
    single = MSPC(random_state=0).fit(X.astype(np.float32))
    assert clustering_error(dense.labels_, csr.labels_) == 0.0
    assert clustering_error(dense.labels_, single.labels_) < 0.02
    np.testing.assert_allclose(csr.coef_, dense.coef_, rtol=1e-6)
    np.testing.assert_array_equal(csr.predict(sparse.csr_matrix(X)), csr.labels_)


@pytest.mark.parametrize("n", [400, 1500])
def test_kernel_form_exact_and_by_landmarks(n):
    X, y = make_two_circles(n, factor=0.3, random_state=0)
    model = MSPC(kernel="rbf", gamma=2.0, reg=0.1, random_state=0).fit(X)
    assert clustering_error(y, model.labels_) < 0.01
    X_new, y_new = make_two_circles(200, factor=0.3, random_state=1)
    assert clustering_error(y_new, model.predict(X_new)) < 0.01
    assert not hasattr(model, "coef_")


def test_kernel_rules_and_seeds_are_those_of_other_methods():
    X, _ = make_two_circles(1200, factor=0.3, random_state=0)
    by_rule = MSPC(kernel="rbf", gamma="4*scale", random_state=0).fit(X[:300])
    scale = 1.0 / (X.shape[1] * X[:300].var())
    by_number = MSPC(kernel="rbf", gamma=4 * scale, random_state=0).fit(X[:300])
    assert by_rule.objective_ == pytest.approx(by_number.objective_, rel=1e-6)
    landmarks = [
        MSPC(kernel="rbf", random_state=np.random.RandomState(seed))
        .fit(X)
        ._planes.feature_map.landmarks_
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(landmarks[0], landmarks[1])
    assert not np.array_equal(landmarks[0], landmarks[2])


def test_a_large_sample_is_raced_on_a_part(rng):
    n = 30_000
    truth = rng.random(n) < 0.5
    X = rng.standard_normal((n, 5)) @ rng.standard_normal((5, 5))
    X[:, 2] += np.where(truth, 20.0, 0.0)
    assert clustering_error(truth, MSPC(random_state=0).fit(X).labels_) < 0.05


@pytest.mark.parametrize(
    "spoil",
    [
        lambda X: np.column_stack([X, np.ones(len(X))]),
        lambda X: np.column_stack([X, X[:, 0]]),
        lambda X: np.repeat(X, 2, axis=0),
        lambda X: X[:6],
        lambda X: X + 1e6,
        lambda X: X * 1e-8,
    ],
    ids=["constant", "duplicated feature", "duplicated rows", "d >= n", "offset", "tiny"],
)
@pytest.mark.parametrize("solver", ["gep", "mpm", "eig"])
def test_awkward_data_are_handled(rng, spoil, solver):
    X = np.vstack([rng.normal(0, 1, (30, 8)), rng.normal(4, 1, (30, 8))])[rng.permutation(60)]
    X = spoil(X)
    model = MSPC(solver=solver, random_state=0).fit(X)
    assert set(model.labels_) == {0, 1}
    assert np.isfinite(model.decision_function(X)).all()


def test_constant_features_get_no_weight(rng):
    X = np.column_stack([rng.standard_normal(50), np.full(50, 7.0)])
    assert MSPC(random_state=0).fit(X).coef_[0, 1] == 0.0


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"solver": "svm"}, "^solver"),
        ({"reg": -1.0}, r"^reg\b"),
        ({"reg": 0.0}, "singular.*reg=1"),
        ({"init": "pca"}, "^init .*'k-means'"),
        ({"mode": "exact"}, "mode must be one of"),
        ({"min_cluster_size": 30}, "Lower it to at most 10"),
        ({"tol": 2.0}, "tol must be"),
        ({"kernel": "gauss"}, "kernel='gauss' is not known"),
    ],
)
def test_bad_parameters(rng, parameters, message):
    X = rng.standard_normal((20, 3))
    X = np.column_stack([X, X[:, 0]])
    with pytest.raises(ValueError, match=message):
        MSPC(**parameters).fit(X)


def test_equal_rows_are_refused():
    with pytest.raises(ValueError, match="all 10 rows of X"):
        MSPC().fit(np.ones((10, 3)))


def test_a_floor_that_no_cut_keeps_is_said():
    X = np.r_[np.zeros(9), 1.0][:, None]
    with pytest.raises(ValueError, match=r"no hyperplane .*weight of 3\)"):
        MSPC(min_cluster_size=0.3).fit(X)


def test_precomputed_kernels_of_any_size(rng):
    X, y = make_two_circles(1100, factor=0.3, random_state=0)
    K = rbf_kernel(X, gamma=2.0)
    model = MSPC(kernel="precomputed", reg=0.1, random_state=0).fit(K)
    assert clustering_error(y, model.labels_) < 0.01
    np.testing.assert_array_equal(model.predict(K[:50]), model.labels_[:50])


GOLDEN = {
    "ionosphere": (28.77, 29.63),
    "breast-with-id": (2.93, 2.63),
    "australian": (14.49, 14.06),
    "diabetes": (32.55, 31.51),
    "letter-AvB": (5.59, 5.53),
    "satellite-1v2": (0.63, 3.80),
}


@needs_data
@pytest.mark.parametrize("name", GOLDEN)
def test_table_2_on_the_small_sets(name):
    """Paper mode with the best lambda of its grid, chosen by the true labels as in the paper."""
    data = load(name, scale="symmetric")
    for solver, printed in zip(("mpm", "gep"), GOLDEN[name], strict=True):
        errors = [
            100
            * clustering_error(
                data.y,
                MSPC(solver=solver, mode="paper", reg=reg, n_init=10, random_state=0)
                .fit(data.X)
                .labels_,
            )
            for reg in 10.0 ** np.arange(-4, 5)
        ]
        assert min(errors) == pytest.approx(printed, abs=0.2)
