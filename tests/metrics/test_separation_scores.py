"""Separation scores: direct computation, theorem 2, invariances, cross-fitting, bad input."""

from __future__ import annotations

from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import load_iris

from volmar.metrics import msp_score, separation_score
from volmar.metrics.separation_bound import separation_along

BOTH = pytest.mark.parametrize("score", [msp_score, separation_score])
EITHER_WAY = pytest.mark.parametrize("cross_fit", [False, True])


def clusters(seed, sizes=(30, 20), d=4, gap=2.0):
    """Gaussian clusters of different shapes and units, in random order."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    shapes = rng.standard_normal((len(sizes), d, d))
    X = np.einsum("nij,nj->ni", shapes[labels], rng.standard_normal((labels.size, d)))
    X += gap * rng.standard_normal((len(sizes), d))[labels]
    return X * np.exp(rng.normal(0, 2, d)) + rng.normal(0, 10, d), labels


def moments(X, labels, reg):
    """D, S_k + reg diag(Sigma), Sigma + reg diag(Sigma) and shares, as in the paper."""
    parts = [X[labels == c] for c in np.unique(labels)]
    D = parts[0].mean(axis=0) - parts[1].mean(axis=0)
    total = np.atleast_2d(np.cov(X.T, bias=True))
    ridge = reg * np.diag(total.diagonal())
    S1, S2 = (np.atleast_2d(np.cov(part.T, bias=True)) + ridge for part in parts)
    return D, S1, S2, total + ridge, [len(part) / len(X) for part in parts]


def direct_msp_direction(X, labels, reg):
    """MSPC eq. 2 as a second-order cone program; for features of about the same scale."""
    D, S1, S2, _, _ = moments(X, labels, reg)
    w = cp.Variable(D.size)
    roots = [np.linalg.cholesky(S).T for S in (S1, S2)]
    problem = cp.Problem(cp.Minimize(sum(cp.norm(R @ w) for R in roots)), [w @ D == 1])
    problem.solve(solver=cp.CLARABEL)
    return w.value


def direct_msp(X, labels, reg):
    X = X / X.std(axis=0)
    w = direct_msp_direction(X, labels, reg)
    D, S1, S2, _, _ = moments(X, labels, reg)
    kappa = w @ D / (np.sqrt(w @ S1 @ w) + np.sqrt(w @ S2 @ w))
    return kappa**2 / (1 + kappa**2)


def direct_bound(X, labels, reg):
    """MSPC eq. 4 as printed, at the solution of eq. 5, on the raw features."""
    D, _, _, total, (r1, r2) = moments(X, labels, reg)
    w = np.linalg.solve(total, D)
    gap = (w @ D) ** 2
    kappa2 = gap / (2 / min(r1, r2) * (w @ total @ w) - 2 * max(r1, r2) * gap)
    return kappa2 / (1 + kappa2)


@pytest.mark.parametrize("reg", [0.001, 0.1, 1.0])
@pytest.mark.parametrize("sizes", [(30, 20), (200, 12)])
def test_two_clusters_by_the_papers_formulas(reg, sizes):
    for seed in range(5):
        X, labels = clusters(seed, sizes)
        assert msp_score(X, labels, reg=reg) == pytest.approx(direct_msp(X, labels, reg), abs=1e-6)
        expected = direct_bound(X, labels, reg)
        assert separation_score(X, labels, reg=reg) == pytest.approx(expected, rel=1e-9)


def test_no_direction_is_better():
    X, labels = clusters(3)
    D, S1, S2, total, (r1, r2) = moments(X, labels, 0.1)
    W = np.random.default_rng(0).standard_normal((20_000, D.size)) / np.sqrt(total.diagonal())
    s1, s2, v = (np.sqrt(np.einsum("ni,ij,nj->n", W, S, W)) for S in (S1, S2, total))
    kappa2 = ((W @ D) / (s1 + s2)) ** 2
    R2 = r1 * r2 * ((W @ D) / v) ** 2
    bound2 = R2 / (2 * max(r1, r2) * (1 - R2))
    for score, values in ((msp_score, kappa2), (separation_score, bound2)):
        best = (values / (1 + values)).max()
        assert best <= score(X, labels) + 1e-12
        assert best == pytest.approx(score(X, labels), abs=0.02)


def test_theorem_2_holds_in_a_thousand_cases():
    rng = np.random.default_rng(0)
    violations, tight = 0, 0
    for _ in range(1000):
        d, k = int(rng.integers(1, 7)), int(rng.choice([2, 2, 2, 3]))
        sizes = rng.integers(1, 30, k)
        X, labels = clusters(int(rng.integers(2**31)), sizes, d, gap=rng.exponential(2))
        reg = float(rng.choice([0.01, 0.1, 1.0, 10.0]))
        bound, p = separation_score(X, labels, reg=reg), msp_score(X, labels, reg=reg)
        violations += bound > p + 1e-9
        tight += bound > 0.9 * p
    assert violations == 0
    assert tight > 50  # the bound is not trivial


def test_bound_is_attained_by_balanced_clusters_of_one_shape():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 3))
    X, labels = np.vstack([A, A + np.array([1.0, 2.0, 0.5])]), np.repeat([0, 1], 40)
    for reg in (0.0, 0.1):
        assert separation_score(X, labels, reg=reg) == pytest.approx(
            msp_score(X, labels, reg=reg), rel=1e-9
        )


@BOTH
@EITHER_WAY
@given(seed=st.integers(0, 10_000), k=st.integers(2, 4), d=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_units_do_not_matter(score, cross_fit, seed, k, d):
    X, labels = clusters(seed, np.arange(6, 6 + k), d)
    rng = np.random.default_rng(seed)
    scale = rng.choice([-1, 1], d) * np.exp(rng.normal(0, 4, d))
    options = {"cross_fit": cross_fit, "random_state": 0}
    expected = score(X, labels, **options)
    assert score(X * scale, labels, **options) == pytest.approx(expected, abs=1e-9)
    moved = score(X + rng.normal(0, 10, d) * X.std(axis=0), labels, **options)
    assert moved == pytest.approx(expected, abs=1e-9)


@BOTH
@EITHER_WAY
def test_names_of_the_clusters_do_not_matter(score, cross_fit):
    X, labels = clusters(1, (9, 14, 20))
    options = {"cross_fit": cross_fit, "random_state": 3}
    expected = score(X, labels, **options)
    for names in (["z", "b", "k"], [5, -1, 2]):
        assert score(X, np.array(names)[labels], **options) == pytest.approx(expected, abs=1e-12)


@BOTH
def test_order_of_the_rows_does_not_matter(score):
    X, labels = clusters(2, (9, 14, 20))
    order = np.random.default_rng(0).permutation(labels.size)
    assert score(X[order], labels[order]) == pytest.approx(score(X, labels), abs=1e-12)


@BOTH
def test_more_clusters_by_worst_rivals_and_sizes(score):
    X, labels = clusters(4, (40, 8, 15, 3), gap=3.0)
    pairs = {}
    for i, j in combinations(range(4), 2):
        mine = np.isin(labels, [i, j])
        pairs[i, j] = pairs[j, i] = score(X[mine], labels[mine])
    worst = [min(pairs[i, j] for j in range(4) if j != i) for i in labels]
    assert score(X, labels) == pytest.approx(np.mean(worst), rel=1e-9)
    assert len(set(worst)) > 1


@BOTH
def test_random_labels_in_many_features(score):
    rng = np.random.default_rng(0)
    X, labels = rng.standard_normal((100, 400)), np.repeat([0, 1], 50)
    assert score(X, labels) > 0.94
    assert score(X, labels, reg=1e-3) > 0.99
    assert score(X, labels, cross_fit=True, random_state=0) < 0.05
    X[:, :20] += 1.5 * np.where(labels, 1, -1)[:, None]
    assert score(X, labels, cross_fit=True, random_state=0) > 0.9


def held_out(score, X, labels, learn, judge, reg):
    """kappa² / (1 + kappa²) along the w of one half, from the other half's plain moments."""
    X = X / X[learn].std(axis=0)
    if score is msp_score:
        w = direct_msp_direction(X[learn], labels[learn], reg)
    else:
        D, _, _, total, _ = moments(X[learn], labels[learn], reg)
        w = np.linalg.solve(total, D)
    D, S1, S2, total, (r1, r2) = moments(X[judge], labels[judge], 0.0)
    gap = max(w @ D, 0.0)
    if score is msp_score:
        kappa = gap / (np.sqrt(w @ S1 @ w) + np.sqrt(w @ S2 @ w))
        return kappa**2 / (1 + kappa**2)
    R2 = r1 * r2 * gap**2 / (w @ total @ w)
    kappa2 = R2 / (2 * max(r1, r2) * (1 - R2))
    return kappa2 / (1 + kappa2)


@BOTH
def test_cross_fit_is_the_mean_of_one_of_the_possible_splits(score):
    X, labels = clusters(5, (4, 6), d=2, gap=4.0)
    possible = []
    for one in combinations(np.flatnonzero(labels == 0), 2):
        for two in combinations(np.flatnonzero(labels == 1), 3):
            learn = np.isin(np.arange(10), one + two)
            halves = ((learn, ~learn), (~learn, learn))
            possible.append(np.mean([held_out(score, X, labels, *half, 0.3) for half in halves]))
    seen = [score(X, labels, reg=0.3, cross_fit=True, random_state=seed) for seed in range(60)]
    distances = np.abs(np.subtract.outer(seen, possible))
    assert distances.min(axis=1).max() < 1e-5
    assert len(set(distances.argmin(axis=1))) > 20  # of 60 splits in halves


@BOTH
def test_cross_fit_tends_to_the_plug_in(score):
    X, labels = clusters(6, (9000, 6000), d=3)
    value = score(X, labels, cross_fit=True, random_state=0)
    assert value == pytest.approx(score(X, labels, reg=0), abs=0.05)
    assert value == score(X, labels, cross_fit=True, random_state=0)
    assert value != score(X, labels, cross_fit=True, random_state=1)


def test_outliers_win_the_probability_but_not_the_bound():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 500)
    X = rng.standard_normal((1000, 2)) + np.where(labels, 1.0, -1.0)[:, None]
    outliers = np.zeros(1000)
    outliers[np.argsort(X[:, 0] - X[:, 1])[-2:]] = 1
    assert msp_score(X, outliers) > msp_score(X, labels)
    assert separation_score(X, outliers) < 0.2 < separation_score(X, labels)


@BOTH
@EITHER_WAY
@pytest.mark.parametrize("density", [0.05, 0.5])
def test_sparse_is_dense(score, cross_fit, density):
    S = sparse.random(300, 12, density, format="csr", random_state=0)
    labels = np.random.default_rng(0).integers(0, 3, 300)
    S = sparse.csr_array(S + sparse.csr_array((labels == 1)[:, None] * np.eye(12)[3]))
    options = {"cross_fit": cross_fit, "random_state": 0}
    expected = score(S.toarray(), labels, **options)
    assert score(S, labels, **options) == pytest.approx(expected, abs=1e-9)
    assert score(S.tocsc(), labels, **options) == pytest.approx(expected, abs=1e-9)


@BOTH
def test_float32_is_nearly_float64(score):
    X, labels = load_iris(return_X_y=True)
    far = X + 100
    expected = score(far, labels)
    assert score(far.astype(np.float32), labels) == pytest.approx(expected, abs=1e-4)


@BOTH
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_features_constant_in_a_pair_are_left_out(score, kind, dtype):
    """0.1 and 1e6 + 0.1 are not exact; the third cluster moves the overall mean far away."""
    X, labels = clusters(7, (40, 41, 37), d=3)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    constant = np.where(labels == 2, 1e5, 0.1)[:, None]
    zero = np.where(labels == 2, 1e5 / 3, 0.0)[:, None]
    mine = labels < 2
    wide = np.hstack([X, constant, zero, np.full_like(zero, 0.1)]).astype(dtype)
    expected = score(X[mine].astype(dtype), labels[mine])
    assert score(kind(wide[mine]), labels[mine]) == pytest.approx(expected, abs=1e-5)
    # The far cluster is separated better, so the p of the pair decides.
    whole = score(kind(wide), labels)
    far = [score(kind(wide[labels != c]), labels[labels != c]) for c in (0, 1)]
    shares = np.bincount(labels) / labels.size
    assert min(far) > expected
    assert whole == pytest.approx(shares[:2].sum() * expected + shares[2] * min(far), abs=1e-5)


@BOTH
def test_small_and_equal_clusters(score):
    X, labels = clusters(8, (30, 1))
    assert 0 < score(X, labels) < 1
    assert 0 < score(X, labels, reg=0) < 1  # the other cluster varies
    assert 0 < score(np.array([[0.0], [1.0]]), [0, 1]) < 1
    assert score(np.ones((6, 2)), [0, 0, 0, 1, 1, 1]) == 0
    assert score([[1.0], [-1.0], [1.0], [-1.0]], [0, 0, 1, 1]) == 0


def test_one_row_against_a_cluster_has_the_mahalanobis_distance():
    X, labels = clusters(8, (30, 1))
    D, _, S, _, _ = moments(X, 1 - labels, 0.0)  # the row's own covariance is 0
    kappa2 = D @ np.linalg.solve(S, D)
    assert msp_score(X, labels, reg=0) == pytest.approx(kappa2 / (1 + kappa2), rel=1e-9)


@BOTH
@EITHER_WAY
def test_singular_covariances_need_regularisation(score, cross_fit):
    rng = np.random.default_rng(0)
    few = rng.standard_normal((20, 30))
    X, _ = clusters(9, (10, 10))
    labels = np.repeat([0, 1], 10)
    for singular in (few, np.hstack([X, X[:, :1]]), np.hstack([X, X[:, :1] + X[:, 1:2]])):
        with pytest.raises(ValueError, match=r"singular .*reg=0\.1"):
            score(singular, labels, reg=0, cross_fit=cross_fit, random_state=0)
        assert 0 <= score(singular, labels, cross_fit=cross_fit, random_state=0) < 1
    with pytest.raises(ValueError, match="singular"):
        score(labels[:, None], labels, reg=0)


@BOTH
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": np.zeros(50)}, "^labels .*got 1"),
        ({"labels": [0, 1]}, "^labels .*got 2"),
        ({"labels": np.r_[np.nan, np.ones(49)]}, "labels must not contain NaN"),
        ({"labels": np.zeros((50, 2))}, "^labels .*label per"),
        ({"X": np.r_[np.nan, np.ones(49)][:, None]}, "Input X contains NaN"),
        ({"X": np.r_[np.inf, np.ones(49)][:, None]}, "Input X contains infinity"),
        ({"reg": -0.1}, "^reg .*got -0.1"),
        ({"reg": np.inf}, "^reg .*got inf"),
        ({"reg": np.nan}, "^reg .*got nan"),
        ({"reg": "auto"}, "^reg .*got 'auto'"),
        (
            {"labels": np.r_[2, np.arange(49) % 2], "cross_fit": True},
            "^cross_fit",
        ),
    ],
)
def test_bad_input(score, arguments, message):
    X, labels = clusters(0)
    with pytest.raises(ValueError, match=message):
        score(**{"X": X, "labels": labels, **arguments})


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e150, 1e250])
def test_the_unit_of_scores_does_not_change_their_separation(rng, scale):
    scores = rng.standard_normal(40)
    found = separation_along(scores * scale, scores > 0)
    assert found == pytest.approx(separation_along(scores, scores > 0), rel=1e-9)


def test_a_tiny_regulariser_makes_directions_of_any_length():
    labels = np.repeat([0, 1], 4)
    apart = np.column_stack([labels, [0, 0, 0, 1, 0, 0, 0, 0]]).astype(float)
    assert separation_score(apart, labels, reg=1e-300, cross_fit=True, random_state=0) == 1.0
