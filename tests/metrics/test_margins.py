"""Theorems 4 and 5 of MSPC: checked by cone programs and by brute force."""

from itertools import product

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from volmar.metrics import (
    msp_score,
    normalized_margin,
    separation_score,
)


def msp_from_margin(margin, share):
    """Return the lower bound of p by theorem 4, for a full width of the gap over sigma_max."""
    low, high = min(share, 1 - share), max(share, 1 - share)
    return 1 / (2 / (low * margin**2) - 2 * high + 1)


def relative_margin(scores, labels):
    """Relative margins of theorem 5; the sign is that of a row's own side."""
    gap = scores[labels == 1].mean() - scores[labels == 0].mean()
    return np.where(labels == 1, scores, -scores) / gap


def relative_margin_share(p, rho, threshold="best"):
    """Return 1 - r of theorem 5; the paper's r has the factor 1/4 of the midpoint."""
    reach = (1 - rho) ** 2 * (1 if threshold == "best" else 0.25)
    return reach * p / (1 - p + reach * p)


def machine_by_socp(X, labels):
    """Return w with w'(mu_1 - mu_0) = 1 and kappa of MSPC eq. 2, by a cone program."""
    one, two = X[labels == 1], X[labels == 0]
    roots = [np.linalg.qr(part - part.mean(axis=0))[1] / np.sqrt(len(part)) for part in (one, two)]
    w = cp.Variable(X.shape[1])
    spread = cp.norm(roots[0] @ w) + cp.norm(roots[1] @ w)
    difference = one.mean(axis=0) - two.mean(axis=0)
    problem = cp.Problem(cp.Minimize(spread), [difference @ w == 1])
    problem.solve(solver=cp.CLARABEL)
    return w.value, 1 / problem.value


def widest_gap(X, labels):
    """Return the direction and the full width of the widest gap, or None if there is no gap."""
    w, b = cp.Variable(X.shape[1]), cp.Variable()
    signs = np.where(labels, 1.0, -1.0)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(w)), [cp.multiply(signs, X @ w + b) >= 1])
    problem.solve(solver=cp.CLARABEL)
    if problem.status != "optimal":
        return None
    return w.value, 2 / np.linalg.norm(w.value)


def two_groups(seed, n=40, d=3, gap=None):
    rng = np.random.default_rng(seed)
    labels = (np.arange(n) < n * rng.uniform(0.2, 0.5)).astype(int)
    X = rng.standard_normal((n, d)) * np.exp(rng.standard_normal(d))
    X[labels == 1] *= rng.uniform(0.2, 1.5)
    X[labels == 1, 0] += rng.uniform(0.5, 5.0) * X[:, 0].std() if gap is None else gap
    return X, labels


# ------------------------------------------------------------------------------------ theorem 4


def test_theorem_4_of_the_best_margin_of_all_labellings():
    """The labelling of the widest gap among all 127 has at least the probability of theorem 4."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8, 2)) + 3.0 * (np.arange(8)[:, None] < 3)
    found = []
    for rest in product([0, 1], repeat=7):
        labels = np.array([0, *rest])
        if not labels.any():
            continue
        gap = widest_gap(X, labels)
        if gap is None:
            continue
        w, delta = gap
        sigma = np.sqrt(np.linalg.eigvalsh(np.cov(X.T, bias=True))[-1])
        margin = normalized_margin(X, labels, w)
        assert margin == pytest.approx(delta / sigma, rel=1e-5)
        claim = msp_from_margin(margin, labels.mean())
        if min(labels.sum(), 8 - labels.sum()) > 2:  # the covariances are regular
            kappa = machine_by_socp(X, labels)[1]
            assert claim <= kappa**2 / (1 + kappa**2) + 1e-7
        found.append((delta, claim, tuple(labels)))
    best = max(found)
    assert best[2] == (0, 0, 0, 1, 1, 1, 1, 1)
    assert best[1] > 0.15


@given(seed=st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_theorem_4_is_eq_4_with_the_margin_and_the_largest_variance(seed):
    rng = np.random.default_rng(seed)
    share, sigma = rng.uniform(0.05, 0.95), rng.uniform(0.1, 10.0)
    delta = sigma * rng.uniform(0.0, 1.0) / np.sqrt(share * (1 - share))
    low, high = min(share, 1 - share), max(share, 1 - share)
    kappa2 = delta**2 / (2 / low * sigma**2 - 2 * high * delta**2)  # MSPC eq. 4
    assert msp_from_margin(delta / sigma, share) == pytest.approx(kappa2 / (1 + kappa2))


@given(seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_theorem_4_is_never_violated(seed):
    X, labels = two_groups(seed)
    w = np.random.default_rng(seed).standard_normal(3)
    X[labels == 1] += (np.abs(X @ w).max() * 2 / (w @ w)) * w
    margin = normalized_margin(X, labels, w)
    assert margin > 0
    claim = msp_from_margin(margin, labels.mean())
    assert claim <= separation_score(X, labels, reg=0.0) + 1e-9
    assert claim <= msp_score(X, labels, reg=0.0) + 1e-9


def test_theorem_4_is_attained_by_two_points():
    X, labels = np.array([[0.0], [0.0], [1.0], [1.0], [1.0]]), [0, 0, 1, 1, 1]
    margin = normalized_margin(X, labels, [-2.0])
    assert margin == pytest.approx(1 / np.sqrt(0.4 * 0.6))  # the largest possible
    assert msp_from_margin(margin, 0.4) == pytest.approx(1.0)


def test_normalized_margins_of_overlaps_lengths_and_wide_rows(rng):
    X, labels = two_groups(0, gap=0.0)
    assert normalized_margin(X, labels, np.ones(3)) < 0
    X, labels = two_groups(0, n=20, d=50, gap=30.0)
    w = np.eye(50)[[0]]
    expected = np.ptp([X[labels == 0, 0].max(), X[labels == 1, 0].min()])
    expected /= np.linalg.norm(X - X.mean(axis=0), 2) / np.sqrt(20)
    for rows in (X, sparse.csr_array(X), X + 5.0, 1e-3 * X):
        for direction in (w, -1e-9 * w[0], [1e9] + [0] * 49):
            assert normalized_margin(rows, labels, direction) == pytest.approx(expected)
    assert normalized_margin(X[:, :9], 1 - labels, np.eye(9)[0]) > 0


# ------------------------------------------------------------------------------------ theorem 5


def border_shares(X, labels, rho, best):
    """Return the shares of the clusters beyond the margin, on their own sides, and p."""
    w, kappa = machine_by_socp(X, labels)
    f = X @ w  # the means are 1 apart
    mean1, mean0 = f[labels == 1].mean(), f[labels == 0].mean()
    s1, s0 = f[labels == 1].std(), f[labels == 0].std()
    cut = mean1 - (rho / 2 + (1 - rho) * kappa * s1) if best else (mean1 + mean0) / 2
    if best:
        assert cut == pytest.approx(mean0 + rho / 2 + (1 - rho) * kappa * s0, abs=1e-6)
    margins = relative_margin(f - cut, labels)
    np.testing.assert_allclose(margins, np.where(labels, f - cut, cut - f), atol=1e-7)
    shares = [np.mean(margins[labels == k] >= rho / 2 - 1e-7) for k in (0, 1)]
    return shares, kappa**2 / (1 + kappa**2)


@pytest.mark.parametrize("threshold", ["best", "midpoint"])
@pytest.mark.parametrize("rho", [0.0, 0.3, 0.7, 1.0])
def test_theorem_5_by_the_cone_program(threshold, rho):
    for seed in range(12):
        shares, p = border_shares(*two_groups(seed), rho, threshold == "best")
        claim = relative_margin_share(p, rho, threshold=threshold)
        assert min(shares) >= claim - 1e-9
        if threshold == "midpoint":  # as printed
            r = (1 / p - 1) / ((1 / p - 1) + (1 - rho) ** 2 / 4)
            assert claim == pytest.approx(1 - r)


def test_no_other_hyperplane_ensures_a_larger_share():
    """All directions of the plane and all thresholds, by Chebyshev's inequality."""
    X, labels = two_groups(3, d=2)
    _, kappa = machine_by_socp(X, labels)
    p = kappa**2 / (1 + kappa**2)
    angles = np.linspace(0, np.pi, 4001)
    W = np.column_stack([np.cos(angles), np.sin(angles)])
    one, two = X[labels == 1] @ W.T, X[labels == 0] @ W.T
    gap = one.mean(axis=0) - two.mean(axis=0)
    for rho in (0.0, 0.4, 0.8):
        best = 0.0
        for place in np.linspace(0, 1, 801):  # of the threshold, between the means
            t1 = np.maximum(place - rho / 2, 0.0) * np.abs(gap) / one.std(axis=0)
            t2 = np.maximum(1 - place - rho / 2, 0.0) * np.abs(gap) / two.std(axis=0)
            t = np.minimum(t1, t2).max()
            best = max(best, t**2 / (1 + t**2))
        assert best <= relative_margin_share(p, rho) + 1e-9
        assert best == pytest.approx(relative_margin_share(p, rho), rel=1e-2)


def test_the_share_is_attained():
    """A fifth of each cluster is at the border of the margin, so the share is attained."""
    one = np.array([2.0, 4.5, 4.5, 4.5, 4.5])  # mean 4, standard deviation 1
    scores, labels = np.concatenate([one, -one]), np.repeat([1, 0], 5)
    margins = relative_margin(scores, labels)
    p = msp_score(scores[:, None], labels, reg=0.0)
    assert p == pytest.approx(16 / 17)
    assert np.mean(margins > 0.25 + 1e-9) == pytest.approx(relative_margin_share(p, 0.5))


def test_the_threshold_of_the_machine_does_not_have_the_printed_share():
    """Theorem 5 holds for some hyperplane, but not that of the minimax probability machine."""
    one = np.array([-1.0, 1.0] * 50)  # deviation 1
    scores = np.concatenate([0.05 * one, 4.0 + 2.0 * one])
    labels = np.repeat([0, 1], 100)
    p = msp_score(scores[:, None], labels, reg=0.0)
    kappa = np.sqrt(p / (1 - p))
    f = scores - kappa * 0.05  # both means are kappa deviations away
    rho = 0.2
    printed = relative_margin_share(p, rho, threshold="midpoint")
    assert printed > 0.3
    assert np.mean(np.abs(relative_margin(f, labels)[:100]) >= rho / 2) < printed


# ------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: normalized_margin(np.eye(3), [0, 1, 1], [1.0]),
            "^coef .*entries, but",
        ),
        (lambda: normalized_margin(np.eye(3), [0, 1, 1], np.zeros(3)), "coef must not be 0"),
        (lambda: normalized_margin(np.ones((3, 2)), [0, 1, 1], [1.0, 0.0]), "are equal"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
