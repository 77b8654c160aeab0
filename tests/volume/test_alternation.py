"""Soft responses of given labels, and the limits of the problem."""

import itertools

import numpy as np
import pytest
from helpers.volume_problems import WatchedOperator, laplacian_of, random_spd, random_spectrum
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg
from scipy.optimize import brentq, minimize

from volmar.datasets import make_two_moons
from volmar.graphs import gaussian_similarity, laplacian
from volmar.operators import as_operator
from volmar.solvers import Status
from volmar.volume.descent import alternate, minimise_given_labels, sqp
from volmar.volume.problem import VolumeProblem, signs


@given(
    seed=st.integers(0, 10_000),
    log_reg=st.floats(-2, 4),
    balance=st.sampled_from([0.0, 0.2, 1.0, 3.0]),
)
@settings(max_examples=25, deadline=None)
def test_responses_given_labels_are_the_global_minimum(seed, log_reg, balance):
    rng = np.random.default_rng(seed)
    n, reg = int(rng.integers(2, 7)), 10**log_reg
    Q = random_spd(rng, n)
    y = signs(rng.standard_normal(n))
    problem = VolumeProblem(as_operator(Q), reg, balance)
    best = minimise_given_labels(problem, y, np.linalg.eigvalsh(Q))
    assert abs(np.linalg.norm(best.h) - 1) < 1e-8
    assert abs(best.h.sum()) <= balance + 1e-8

    def value(h):
        return -2 * y @ h + reg * h @ Q @ h

    for _ in range(8):
        start = rng.standard_normal(n)
        start -= start.mean()
        other = minimize(
            value,
            start / np.linalg.norm(start),
            jac=lambda h: -2 * y + 2 * reg * Q @ h,
            method="SLSQP",
            constraints=[
                {"type": "eq", "fun": lambda h: h @ h - 1, "jac": lambda h: 2 * h},
                {"type": "ineq", "fun": lambda h: balance - h.sum()},
                {"type": "ineq", "fun": lambda h: balance + h.sum()},
            ],
        ).x
        if abs(other @ other - 1) < 1e-8 and abs(other.sum()) <= balance + 1e-8:
            assert value(best.h) <= value(other) + 1e-6 * max(1, abs(value(other)))


def test_hard_case_is_filled_up_with_the_eigenvector():
    """Labels orthogonal to the lowest eigenvector: the rest of the norm lies along it."""
    Q = np.diag([1.0, 2.0, 2.0, 3.0])
    problem = VolumeProblem(as_operator(Q), 100.0, 10.0)
    y = np.array([0.0, 1.0, -1.0, 1.0])  # no label for the first, so exactly orthogonal
    best = minimise_given_labels(problem, y, np.diag(Q))
    assert np.linalg.norm(best.h) == pytest.approx(1.0, abs=1e-9)
    assert best.eta == pytest.approx(100.0, rel=1e-6)
    assert abs(best.h[0]) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("reg", [1e-2, 1.0, 30.0, 1e4])
def test_alternation_never_rises_and_ends_stationary(reg, rng):
    Q = laplacian_of("moons", 80)
    problem = VolumeProblem(as_operator(Q), reg, 1 / 80)
    for _ in range(5):
        found = alternate(problem, signs(rng.standard_normal(80)), np.linalg.eigvalsh(Q)[:3])
        assert found.status is Status.CONVERGED
        assert np.all(np.diff(found.history) <= 1e-12 * abs(found.objective))
        assert max(found.residuals.values()) < 1e-8


def test_every_partition_is_a_local_minimum_at_the_papers_reg(rng):
    """The opposite of the papers' stability theorem (notes, section 6), by enumeration."""
    Q = random_spd(rng, 6)
    problem = VolumeProblem(as_operator(Q), 1e-2, np.sqrt(6.0))
    for tail in itertools.product([-1.0, 1.0], repeat=5):
        y = np.array([1.0, *tail])
        found = alternate(problem, y, np.linalg.eigvalsh(Q)[:3])
        np.testing.assert_array_equal(signs(found.h), y)
        # Reduced Hessian: reg Q - eta I is positive definite outright.
        assert found.multiplier < 1e-2 * np.linalg.eigvalsh(Q)[0]


def limit(Q, balance, reg, rng):
    problem = VolumeProblem(as_operator(Q), reg, balance)
    y = signs(rng.standard_normal(len(Q)))
    found = alternate(problem, y, np.linalg.eigvalsh(Q)[:3])
    assert found.status is Status.CONVERGED
    return found


@pytest.fixture
def moons_kernel():
    X, _ = make_two_moons(120, random_state=0)
    return X, gaussian_similarity(X, sigma="mean/4")


def one_minus_cosine(h, v):
    return 1 - abs(h @ v) / np.linalg.norm(v)


def test_limit_is_unnormalised_spectral_clustering(moons_kernel, rng):
    _, W = moons_kernel
    Q = laplacian(W, kind="unnormalized") + 0.1 * np.eye(120)
    found = limit(Q, 0.0, 1e6, rng)
    values, vectors = np.linalg.eigh(Q)
    assert one_minus_cosine(found.h, vectors[:, 1]) < 1e-6
    assert found.objective / 1e6 == pytest.approx(values[1], rel=1e-4)
    # The break test of Algorithm 1 would return the start, the exact test continues.
    start = signs(vectors[:, 1] - vectors[:, 1].mean()) / np.sqrt(120)
    steps = sqp(VolumeProblem(as_operator(Q), 1e6, 0.0), start, values[:3])
    assert steps.status is Status.CONVERGED
    assert steps.multiplier > 1e6 * values[0]
    assert one_minus_cosine(steps.h, vectors[:, 1]) < 1e-6


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "kernel"])
def test_limit_is_relaxed_k_means(moons_kernel, rng, plain):
    X, W = moons_kernel
    C = np.eye(120) - 1 / 120
    K = C @ (X @ X.T if plain else W) @ C
    values, vectors = np.linalg.eigh(K)
    found = limit(1.1 * values[-1] * np.eye(120) - K, np.sqrt(120.0), 1e6, rng)
    assert one_minus_cosine(found.h, vectors[:, -1]) < 1e-6  # v1, not v2 as in eq. 9


def test_limit_is_smic(moons_kernel, rng):
    _, W = moons_kernel
    K2 = W @ W
    values, vectors = np.linalg.eigh(K2)
    Q = 1.1 * values[-1] * np.eye(120) - K2
    first = limit(Q, np.sqrt(120.0), 1e6, rng)
    assert one_minus_cosine(first.h, vectors[:, -1]) < 1e-6
    # h orthogonal to the first (eq. 18): a large multiple of its projector keeps h away.
    away = 1e3 * values[-1] * np.outer(first.h, first.h)
    second = limit(Q + away, np.sqrt(120.0), 1e6, rng)
    assert one_minus_cosine(second.h, vectors[:, -2]) < 1e-6


def given_objective(problem, y, h):
    return problem.reg * (h @ problem.operator.matvec(h)) - 2 * y @ h


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
        Q, eigenvalues = random_spectrum(rng, n)
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
    """A wrong slope converges too, but slowly. A balance above sqrt(n) leaves only the sphere.

    Each step takes two solves. If one search is not enough, both planes and the sphere are
    searched.
    """
    for _ in range(40):
        Q, eigenvalues = random_spectrum(rng, 12)
        operator = WatchedOperator(as_operator(Q))
        y = signs(rng.standard_normal(12))
        minimise_given_labels(VolumeProblem(operator, 3.0, balance), y, eigenvalues)
        assert len(operator.allowed) <= 2 * most


def test_the_hard_case_on_the_plane():
    """Labels orthogonal to the eigenvector at the pole: the rest of the norm lies along it."""
    eigenvalues = np.array([4.0, 4.0, 3.0, 2.0, 1.0])
    y = np.array([-1.0, -1.0, 1.0, -1.0, 1.0])
    problem = VolumeProblem(as_operator(np.diag(eigenvalues)), 4.0, 0.0)
    found = minimise_given_labels(problem, y, np.sort(eigenvalues))
    np.testing.assert_allclose(found.h, [-1 / 6, -1 / 6, 0, -1 / 2, 5 / 6], atol=1e-5)
    assert given_objective(problem, y, found.h) == pytest.approx(7 / 3, abs=1e-8)


def test_labels_on_one_side_leave_the_smoothest_balanced_responses():
    """With b = 0 the term of the labels is 0, and the smallest eigenvalue on the plane remains."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 9))
        Q, eigenvalues = random_spectrum(rng, n)
        reg = 10 ** rng.uniform(-1, 3)
        problem = VolumeProblem(as_operator(Q), reg, 0.0)
        h = minimise_given_labels(problem, np.ones(n), eigenvalues[:3]).h
        assert np.linalg.norm(h) == pytest.approx(1.0)
        assert abs(h.sum()) < 1e-9
        plane = linalg.null_space(np.ones((1, n)))
        smallest = np.linalg.eigvalsh(plane.T @ Q @ plane)[0]
        assert reg * h @ Q @ h == pytest.approx(reg * smallest, rel=1e-6)
