"""The power of an equivalence class (JMLR section 2), against closed forms and brute force."""

import itertools

import numpy as np
import pytest
from scipy import sparse
from scipy.special import gamma

from volmar.metrics import class_power, volume
from volmar.metrics.equivalence_class import _primes
from volmar.operators import as_operator


def random_spd(rng, n):
    A = rng.standard_normal((n, n))
    return A @ A.T / n + 0.1 * np.eye(n)


def test_two_and_three_rows_have_closed_forms(rng):
    """Orthant probabilities of correlated normals: 1/4 + asin(r)/2pi, 1/8 + sum asin(r)/4pi."""
    for n in (2, 3):
        for _ in range(5):
            Q = random_spd(rng, n)
            S = np.linalg.inv(Q)
            R = S / np.sqrt(np.outer(np.diag(S), np.diag(S)))
            for y in itertools.product([-1, 1], repeat=n):
                angles = [np.arcsin(R[i, j] * y[i] * y[j]) for i, j in _pairs(n)]
                exact = 2.0**-n + sum(angles) / (2 * np.pi if n == 2 else 4 * np.pi)
                found = class_power(y, Q)
                assert found.power == pytest.approx(exact, abs=2e-4)
                assert abs(found.power - exact) <= 6 * found.relative_error * exact + 1e-12


def _pairs(n):
    return itertools.combinations(range(n), 2)


@pytest.mark.parametrize("n", [3, 5])
def test_powers_are_the_shares_of_points_in_the_ellipsoid(rng, n):
    """Count points of a cube that are inside the ellipsoid, by their signs."""
    Q = random_spd(rng, n)
    half = np.sqrt(np.diag(np.linalg.inv(Q)))
    points = rng.uniform(-half, half, (400_000, n))
    inside = points[np.einsum("ij,jk,ik->i", points, Q, points) <= 1]
    volumes = {}
    for y in itertools.product([-1, 1], repeat=n):
        share = np.mean((np.sign(inside) == y).all(axis=1))
        found = class_power(y, Q)
        noise = 5 * np.sqrt(share * (1 - share) / len(inside)) + 5 * found.relative_error * share
        assert found.power == pytest.approx(share, abs=noise)
        assert found.log_power == pytest.approx(np.log(found.power))
        volumes[y] = np.exp(found.log_volume)
    total = np.pi ** (n / 2) / gamma(n / 2 + 1) / np.sqrt(np.linalg.det(Q))
    assert sum(volumes.values()) == pytest.approx(total, rel=1e-2)
    brute = np.prod(2 * half) * len(inside) / len(points)
    assert total == pytest.approx(brute, rel=0.03)


def test_powers_of_many_rows(rng):
    n = 200
    y = np.sign(rng.standard_normal(n))
    found = class_power(y, np.diag(rng.uniform(0.1, 3.0, n)))  # all orthants are equal
    assert found.log_power == pytest.approx(-n * np.log(2))
    assert found.relative_error == pytest.approx(0.0, abs=1e-9)
    # The labels along the longest axis have more power than any other, and the smallest volume.
    Q = np.eye(n) - 0.9 * np.outer(y, y) / n
    other = np.sign(rng.standard_normal(n))
    assert class_power(y, Q).log_power > class_power(other, Q).log_power + 10
    assert volume(y, Q) < volume(other, Q)
    for given in (sparse.csr_matrix(Q), as_operator(Q)):
        assert class_power(y, given) == class_power(y, Q)
    assert class_power(5.0 * y, Q) == class_power(y, Q) == class_power(y, Q, random_state=0)
    assert class_power(-y, Q).log_power == pytest.approx(class_power(y, Q).log_power)


def test_a_class_that_the_points_miss_is_not_known():
    """An ellipsoid of thickness 1e-4 meets the orthant of its short axis near the origin only."""
    y = np.array([1, -1, 1, -1])
    found = class_power(y, np.eye(4) + 1e8 * np.outer(y, y))
    assert found.relative_error > 0.9
    assert np.isfinite(found.log_power)


@pytest.mark.parametrize(
    ("h", "Q", "message"),
    [
        ([1, 0], np.eye(2), "h must not have entries of 0, got 0 at position 1"),
        ([1, -1], np.eye(3), r"Q must be of shape \(2, 2\)"),
        ([1, -1], -np.eye(2), "Q must be positive definite"),
        ([1, -1], np.triu(np.ones((2, 2))), "symmetric"),
        (np.ones(1001), np.eye(2), "h has 1001 entries"),
    ],
)
def test_bad_input_is_named(h, Q, message):
    with pytest.raises(ValueError, match=message):
        class_power(h, Q)
    with pytest.raises(ValueError, match="n_points must be at least 16"):
        class_power([1, 1], np.eye(2), n_points=3)


def test_primes():
    assert _primes(6).tolist() == [2, 3, 5, 7, 11, 13]
    assert _primes(1000).size == 1000
    assert _primes(1000)[-1] == 7919
