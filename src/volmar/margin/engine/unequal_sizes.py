r"""Clusters of unequal size: whether a start has them, and the weights that make them equal.

A mean score near zero is half of the rows on either side, unless rows weigh differently. So the
margin methods do not loosen their balance for data without one. They give both sides of a start
the same weight, in the centre of the rows and in the loss alike. The balance and C then mean what
they mean for equal halves: the centre is midway between the means of the sides, and 1/C of the
weight is inside the margin.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.base.kernel import KernelExpansion
from volmar.margin.engine.descent import MarginResult, maximise_margin
from volmar.margin.engine.losses import HingeLoss
from volmar.margin.engine.problem import MarginProblem
from volmar.margin.engine.starts import best_start, kernel_k_means_start, principal_start
from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.feature_space.linear import LinearSpace
from volmar.margin.feature_space.space import FeatureSpace
from volmar.solvers.cutting_plane_certificate import NotAGramMatrixError

# How far the mean score may be from 0, in units of the margin, where nothing else is asked for.
BALANCE = 0.05
# Difference of the shares of two sides up to which they count as halves.
UNEQUAL = 0.1
# Value of C at which starts are compared, and the gap; 1 is the smallest bounded one.
SCREENING_C = 1.2
SCREENING_TOL = 0.1
# Share of `margin_between` within which two descents to the same labels differ.
SAME = 0.01
HALVES = (0.5, 0.5)
# Factors by which the margin at C = 2 must be larger than with halves, and that at a larger C
# under kernels which bound all distances. Starts of k-means in single lumps (normal, uniform,
# correlated) seldom differ by more; groups of 70 and 30 % that lie five deviations apart do.
MARGIN_GAIN = 1.25
GAP_C, GAP_GAIN = 10.0, 3.0


class KernelShares(NamedTuple):
    """Shares q of the rows that make both sides equal (None for 1/n), and those of the sides."""

    q: NDArray | None = None
    sides: tuple[float, float] = HALVES


class UnequalStart(NamedTuple):
    """The hyperplane of a start of unequal sides, and the rows with its `equal_weights`."""

    result: MarginResult
    space: FeatureSpace


def shares_of_sides(labels: Any, weights: Any) -> tuple[float, float]:
    """Return the shares of the rows (or of their weight) with label 0 and 1."""
    is_one = labels > 0
    if weights is None:
        share = float(is_one.sum()) / len(labels)
    else:
        share = float((is_one * weights).sum()) / float(weights.sum())
    return 1.0 - share, share


def in_order_of(labels: NDArray, weights: NDArray | None, sides: tuple[float, float]) -> Any:
    """Return the shares of two sides in the order of the clusters that they led to."""
    share = shares_of_sides(labels, weights)[1]
    return sides if abs(share - sides[1]) <= abs(share - sides[0]) else (sides[1], sides[0])


def are_unequal(labels: NDArray, weights: NDArray | None) -> bool:
    """Tell whether sides are further from halves than 55 to 45 %, and neither is empty."""
    shares = shares_of_sides(labels, weights)
    return min(shares) > 0.0 and abs(shares[1] - shares[0]) > UNEQUAL


def equal_weights(labels: Any, weights: Any, shares: tuple[float, float]) -> Any:
    """Return weights with which both sides have the same, in proportion inside each.

    Their sum is that of the given weights, or the number of rows. `shares` are those of
    `shares_of_sides`, both positive.
    """
    factors = np.where(labels > 0, 0.5 / shares[1], 0.5 / shares[0])
    return factors if weights is None else factors * weights


def margin_between(result: MarginResult, weights: NDArray | None, C: float) -> float:
    r"""Return how much of the rows' spread a hyperplane separates with a margin at C.

    :math:`4 r_0 r_1 m^2`, with the shares r of its sides and the soft margin

    .. math:: m = \max_\rho \; \rho - C \sum_i q_i \max\bigl(0, \rho - |f_i| / \|w\|\bigr),

    where the weights q are those of `equal_weights`. That is the mean distance to the border of
    the 1/C of the weight nearest to it. At C = 1 all rows count, and the value is that part of the
    sum of squares between the sides that w sees: the criterion of k-means. Larger values of C ask
    for a gap. For equal sides it is the objective -2 J of w, scaled best. The shares keep a few
    far rows from having the largest value.
    """
    shares = shares_of_sides(result.labels, weights)
    if min(shares) <= 0.0 or not result.square > 0.0:
        return 0.0
    q = equal_weights(result.labels, weights, shares)
    distances = np.abs(result.scores.astype(np.float64)) / np.sqrt(result.square)
    order = np.argsort(distances)
    below = np.cumsum(q[order]) / float(q.sum())
    inside = np.diff(np.minimum(below, 1.0 / C), prepend=0.0)
    margin = C * float(inside @ distances[order])
    return 4.0 * shares[0] * shares[1] * margin**2


def unequal_start(
    space: FeatureSpace, labels: NDArray, weights: NDArray | None, even: MarginResult
) -> UnequalStart | None:
    """Return what labels lead to with sides of their own sizes, if that is better than halves.

    One descent at the C that starts are compared at, with weights that give both sides of the
    labels the same. It is better where its `margin_between` is larger by a quarter for the half
    of the weight that is nearest to the border (C = 2), and no smaller for all rows (C = 1).
    Groups of unequal size that lie apart have both. A cut through the tail of a single group has
    neither, a few outliers have the first only, and for these the balance is a help.

    Kernels with k(x, x) = 1 bound all distances. A small group has little of the spread then,
    however far it is, and no row is an outlier. There the gap decides: the value for the tenth of
    the weight nearest to the border (C = 10) must be three times that of halves. Two cuts through
    a lump, or through a bent group, differ by less.

    None where halves are as good, or where the labels are equal halves (`are_unequal`).
    """
    if not are_unequal(labels, weights):
        return None
    shares = shares_of_sides(labels, weights)
    sized = space.reweighted(equal_weights(labels, weights, shares))
    problem = MarginProblem(sized, HingeLoss(sized.shares), tau=BALANCE)
    result = maximise_margin(problem, labels, C=SCREENING_C / (1.0 - BALANCE), tol=SCREENING_TOL)
    if result.normal is None or min(shares_of_sides(result.labels, weights)) <= 0.0:
        return None
    if even.normal is not None and not _is_better(space, weights, result, even):
        return None
    return UnequalStart(result, sized)


def _is_better(
    space: FeatureSpace, weights: NDArray | None, unequal: MarginResult, even: MarginResult
) -> bool:
    def gain(C: float) -> float:
        return margin_between(unequal, weights, C) / margin_between(even, weights, C)

    if space.has_equal_lengths:
        return gain(GAP_C) > GAP_GAIN
    return gain(2.0) > MARGIN_GAIN and gain(1.0) >= 1.0 - SAME


def own_sizes(space: FeatureSpace, labels: NDArray, weights: NDArray | None) -> NDArray | None:
    """Return the labels of `unequal_start`, for methods that compare no starts themselves.

    Halves start from the labels, too, and from the sides of the leading principal component. None
    where they are taken, and where products of the rows are no inner products: of a kernel that is
    not positive semidefinite, which the method says, or of weights of very different sizes.
    """
    if not are_unequal(labels, weights):
        return None
    starts = [labels, principal_start(space, np.random.default_rng(0))]
    problem = MarginProblem(space, HingeLoss(space.shares), tau=BALANCE)
    try:
        even = best_start(problem, starts, C=SCREENING_C / (1.0 - BALANCE), tol=SCREENING_TOL)
        found = unequal_start(space, labels, weights, even)
    except NotAGramMatrixError:
        return None
    return None if found is None else found.result.labels


def size_start(space: FeatureSpace, weights: NDArray | None) -> NDArray:
    """Return labels of two-means: of the rows where there are any, and in the feature space else.

    From the sides of the leading principal component: nothing is left to chance.
    """
    rows = space.start_rows()
    space = space if rows is None else LinearSpace(rows, weights)
    return kernel_k_means_start(space, np.random.default_rng(0)).astype(np.int64)


def shares_of_kernel(K: NDArray, expansion: KernelExpansion) -> KernelShares:
    """Return shares of the rows of a kernel matrix by which to centre it.

    For relaxations, which have no start and whose rows all count alike: the hyperplane of a start
    of unequal size goes through the mean by these shares, midway between its sides.
    """
    space = KernelSpace(K, expansion=expansion)
    labels = own_sizes(space, size_start(space, None), None)
    if labels is None:
        return KernelShares()
    sides = shares_of_sides(labels, None)
    return KernelShares(equal_weights(labels, None, sides) / len(K), sides)
