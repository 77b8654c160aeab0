"""Search for violated labellings, and the subspace of their normals."""

import numpy as np
import pytest
from helpers.cvxpy_references import all_labellings, centred
from sklearn.metrics.pairwise import laplacian_kernel

from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.feature_space.linear import LinearSpace
from volmar.margin.feature_space.subspace import GrowingSubspace
from volmar.margin.relaxations.label_generation import (
    balanced_labels,
    climb,
    largest_possible_square,
    measure,
)


@pytest.mark.parametrize("limit", [0, 2, 4, 8])
def test_sorting_is_the_best_balanced_labelling(rng, limit):
    Y = all_labellings(8, limit)
    for _ in range(20):
        f, alpha = rng.standard_normal(8) + 0.7, rng.random(8) * (rng.random(8) < 0.7)
        y = balanced_labels(f, alpha, limit)
        assert abs(int(y.sum())) <= limit
        assert y @ (alpha * f) == pytest.approx(np.abs(Y @ (alpha * f)).max())


def test_rows_of_no_weight_change_sides_first():
    f = np.array([5.0, 4.0, 3.0, 2.0, 1.0, -1.0])
    alpha = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    np.testing.assert_array_equal(balanced_labels(f, alpha, 2), [1, -1, 1, 1, 1, -1])


@pytest.mark.parametrize("limit", [0, 6, 20])
def test_climbing_never_falls_and_ends_where_sorting_changes_nothing(rng, limit):
    source = LinearSpace(rng.standard_normal((20, 3)))
    for _ in range(20):
        alpha = rng.dirichlet(np.ones(20))
        start = balanced_labels(rng.standard_normal(20), alpha, limit)
        end = climb(source, alpha, start, limit)
        assert end.square >= measure(source, alpha, start).square
        assert end.square == pytest.approx(measure(source, alpha, end.y).square)
        assert abs(int(end.y.sum())) <= limit
        again = balanced_labels(source.scores(end.vector), alpha, limit)
        assert measure(source, alpha, again).square <= end.square * (1 + 1e-8)


@pytest.mark.parametrize("n", [9, 70])
def test_no_labelling_is_beyond_the_eigenvalue(rng, n):
    Z = centred(rng, n, 3)
    for _ in range(5):
        alpha = rng.dirichlet(np.full(n, 0.3))
        bound = largest_possible_square(LinearSpace(Z), alpha, rng)
        exact = np.linalg.eigvalsh(Z.T @ (Z * alpha[:, None]))[-1]
        assert exact * (1 - 1e-9) <= bound <= exact * 1.0011
        if n == 9:
            squares = np.square((all_labellings(9, 9) * alpha) @ Z).sum(axis=1)
            assert squares.max() <= bound


def test_no_eigenvalue_hides_behind_many_that_are_alike(rng):
    n = 300
    Q = np.linalg.qr(np.column_stack([np.ones(n), rng.standard_normal((n, n - 1))]))[0][:, 1:]
    values = np.concatenate([[1.005], np.ones(n // 2), 0.99 * rng.random(n // 2 - 2)])
    source = KernelSpace((Q * values) @ Q.T)
    for seed in range(40):
        start = np.random.default_rng(seed)
        assert largest_possible_square(source, np.full(n, 1 / n), start) >= 1.005 / n


@pytest.mark.parametrize("kind", ["linear", "kernel"])
def test_the_subspace_is_orthonormal_and_shortens(rng, kind):
    Z = centred(rng, 30, 6)
    source = LinearSpace(Z) if kind == "linear" else KernelSpace(Z @ Z.T)
    space = GrowingSubspace(source)
    space.add_leading(4, rng)
    gram = [source.inner(vector, space.basis) for vector in space.basis]
    np.testing.assert_allclose(gram, np.eye(4), atol=1e-10)
    v = rng.standard_normal(30)
    whole = source.vector(v)
    short = space.vector(v)
    np.testing.assert_allclose(short, space.coordinates(whole), atol=1e-10)
    assert short @ short < source.inner(whole, [whole])[0]
    np.testing.assert_allclose(
        source.scores(source.combination(space.basis, short)), space.scores(short), atol=1e-10
    )
    # The whole space has six dimensions, and no seventh is made of rounding.
    space.add_leading(20, rng)
    for _ in range(5):
        space.add(source.vector(rng.standard_normal(30)))
    assert len(space.basis) == 6


def test_the_subspace_of_a_kernel_near_the_identity_stays_orthonormal(rng):
    """Each Krylov vector is new by 1e-5 of its length or less, and errors must not add up."""
    X = rng.standard_normal((60, 5))
    source = KernelSpace(laplacian_kernel(X, gamma=1.5))
    space = GrowingSubspace(source)
    space.add_leading(12, rng)
    for _ in range(5):
        space.add(source.vector(rng.standard_normal(60)))
    gram = [source.inner(vector, space.basis) for vector in space.basis]
    assert len(gram) > 8
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-8)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9])
def test_sorting_by_weight_is_balanced_and_nearly_the_best(rng, share):
    exact = 0
    for _ in range(60):
        weights = rng.uniform(0.1, 2.0, 8)
        f, alpha = rng.standard_normal(8) + 0.7, rng.random(8) * (rng.random(8) < 0.8)
        limit = max(share * weights.sum(), weights.max())
        y = balanced_labels(f, alpha, limit, weights)
        assert abs(weights @ y) <= limit * (1 + 1e-12)
        best = np.abs(all_labellings(8, limit, weights) @ (alpha * f)).max()
        assert best - y @ (alpha * f) <= 2 * np.max(alpha * np.abs(f))
        exact += y @ (alpha * f) >= best - 1e-12
        if abs(weights @ np.sign(f)) <= limit:
            np.testing.assert_array_equal(y, np.sign(f))
    assert exact >= 30


def test_the_row_that_the_relaxation_cuts_in_two_changes_sides():
    """Costs of 5, 4 and 1 per unit of weight: the second row does not fit, but the third does."""
    f, weights = np.array([5.0, 4.0, 1.0, -1.0]), np.array([2.0, 2.0, 1.0, 1.0])
    y = balanced_labels(f, weights, 2.0, weights)
    np.testing.assert_array_equal(y, [1, 1, -1, -1])
    y = balanced_labels(f, weights, 1.0, np.array([2.0, 3.0, 1.0, 1.0]))
    np.testing.assert_array_equal(y, [1, -1, 1, -1])
    np.testing.assert_array_equal(balanced_labels(-f, weights, 2.0, weights), [-1, -1, 1, 1])
    # Two of weight 2 that cost 1/8 per unit make room for four that cost 1/5.
    alpha, weights = np.array([0.25, 0.25, 0.2, 0.2, 0.2, 0.2]), np.array([2.0, 2, 1, 1, 1, 1])
    y = balanced_labels(np.ones(6), alpha, 2.0, weights)
    np.testing.assert_array_equal(y, [-1, -1, 1, 1, 1, 1])


@pytest.mark.parametrize("limit", [0, 3, 6])
def test_sorting_by_equal_weights_is_sorting(rng, limit):
    for n in (8, 9):
        allowed = max(limit, n % 2)
        for _ in range(20):
            f, alpha = rng.standard_normal(n) + 0.7, rng.random(n)
            y = balanced_labels(f, alpha, max(allowed, 1), np.ones(n))
            np.testing.assert_array_equal(y, balanced_labels(f, alpha, allowed))


def test_climbing_and_the_bound_with_weights_are_those_of_rows_written_often(rng):
    weights = rng.integers(1, 4, 20)
    written = np.repeat(np.arange(20), weights)
    Z = rng.standard_normal((20, 3))
    one = LinearSpace(Z, weights)
    often = LinearSpace(Z[written])
    limit = 0.9 * weights.sum()
    for _ in range(20):
        alpha = rng.dirichlet(np.ones(20))
        shared = (alpha / weights)[written]
        start = balanced_labels(rng.standard_normal(20), alpha, limit, weights)
        end = climb(one, alpha, start, limit, weights)
        same = climb(often, shared, start[written], limit)
        np.testing.assert_array_equal(end.y[written], same.y)
        assert end.square == pytest.approx(same.square)
        bounds = [
            largest_possible_square(source, pulls, np.random.default_rng(0))
            for source, pulls in ((one, alpha), (often, shared))
        ]
        assert bounds[0] == pytest.approx(bounds[1], rel=2e-3)
