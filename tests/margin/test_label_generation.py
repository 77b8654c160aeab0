"""Search for violated labellings, and the subspace of their normals."""

import numpy as np
import pytest
from helpers.cvxpy_references import all_labellings, centred
from sklearn.metrics.pairwise import laplacian_kernel

from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.feature_space.linear import LinearSpace
from volmar.margin.lgmmc import (
    GrowingSubspace,
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
