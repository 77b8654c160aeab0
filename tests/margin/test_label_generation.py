"""Search for violated labellings, and the bound of all of them."""

import numpy as np
import pytest
from helpers.cvxpy_references import all_labellings, centred

from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.feature_space.linear import LinearSpace
from volmar.margin.lgmmc import balanced_labels, climb, images, largest_possible_square


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
    for n_starts in (1, 1, 1, 5, 5):
        alpha = rng.dirichlet(np.ones(20))
        starts = [balanced_labels(f, alpha, limit) for f in rng.standard_normal((n_starts, 20))]
        end, square = climb(source, alpha, np.array(starts), limit)
        _, squares = images(source, (alpha * np.array(starts)).T)
        assert square >= squares.max()
        scores, again = images(source, (alpha * end)[:, None])
        assert square == pytest.approx(again[0])
        assert abs(int(end.sum())) <= limit
        following = balanced_labels(scores[:, 0], alpha, limit)
        assert images(source, (alpha * following)[:, None])[1][0] <= square * (1 + 1e-8)


def test_climbing_together_is_climbing_alone(rng):
    Z, alpha = centred(rng, 40, 6), rng.dirichlet(np.ones(40))
    starts = np.array([balanced_labels(Z @ v, alpha, 20) for v in rng.standard_normal((6, 6))])
    for source in (LinearSpace(Z), KernelSpace(Z @ Z.T)):
        alone = [climb(source, alpha, y[None], 20)[1] for y in starts]
        assert climb(source, alpha, starts, 20)[1] == pytest.approx(max(alone))


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
