r"""Clusters of unequal size: their detection in a start, and the weights that make them equal.

A mean score near zero puts about half of the weight on each side. For unequal clusters the margin
methods do not relax the balance constraint. Instead they give both sides of a start the same
weight, in the mean of the rows and in the loss. The balance and C then have the same meaning as
for equal halves: the centre is midway between the means of the sides, and 1/C of the weight is
inside the margin.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.margin.engine.descent import MarginResult, maximise_margin
from volmar.margin.engine.losses import HingeLoss
from volmar.margin.engine.problem import MarginProblem
from volmar.margin.feature_space.space import FeatureSpace

# Default maximum of the absolute mean score, in units of the margin.
BALANCE = 0.05
# Two sides count as halves if their shares differ by at most this.
UNEQUAL = 0.1
# C and relative gap for the comparison of starts. The problem is bounded for C above 1.
SCREENING_C = 1.2
SCREENING_TOL = 0.1
# Relative difference of `margin_between` for two descents to the same labels.
SAME = 0.01
HALVES = (0.5, 0.5)
# Factors by which the margin at C = 2 must be larger than with halves, and that at a larger C for
# kernels that bound all distances. In single groups (normal, uniform, correlated) k-means starts
# seldom differ by more; groups of 70 and 30 % that are five standard deviations apart do.
MARGIN_GAIN = 1.25
GAP_C, GAP_GAIN = 10.0, 3.0


class UnequalStart(NamedTuple):
    """The hyperplane of a start with unequal sides, and the rows with its `equal_weights`."""

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


def are_unequal(labels: NDArray, weights: NDArray | None) -> bool:
    """Return whether the sides are more unequal than 55 to 45 %, and neither is empty."""
    shares = shares_of_sides(labels, weights)
    return min(shares) > 0.0 and abs(shares[1] - shares[0]) > UNEQUAL


def equal_weights(labels: Any, weights: Any, shares: tuple[float, float]) -> Any:
    """Return weights that make both sides equally heavy, and keep proportions within each.

    Their sum is that of the given weights, or the number of rows. `shares` are the values of
    `shares_of_sides`, both positive.
    """
    factors = np.where(labels > 0, 0.5 / shares[1], 0.5 / shares[0])
    return factors if weights is None else factors * weights


def margin_between(result: MarginResult, weights: NDArray | None, C: float) -> float:
    r"""Return the separation of the two sides of a hyperplane by its soft margin at C.

    It is :math:`4 r_0 r_1 m^2`, with the shares r of the sides and the soft margin

    .. math:: m = \max_\rho \; \rho - C \sum_i q_i \max\bigl(0, \rho - |f_i| / \|w\|\bigr),

    where the weights q are those of `equal_weights`. m is the mean distance to the border of the
    share 1/C of the weight that is nearest to it. At C = 1 all rows count, and the value is the
    between-cluster sum of squares along w: the criterion of k-means. Larger values of C measure a
    gap. For equal sides the value is -2 J at the optimal length of w. The factor :math:`r_0 r_1`
    prevents a few distant rows from having the largest value.
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
    """Return the hyperplane for unequal sides of the given sizes, if it is better than halves.

    It is found by one descent at the screening C, with weights that make both sides of the labels
    equally heavy. It is better if its `margin_between` is larger by a quarter for the half of the
    weight that is nearest to the border (C = 2), and not smaller for all rows (C = 1). Separate
    groups of unequal size satisfy both. A cut through the tail of a single group satisfies
    neither, and a few outliers only the first; in these cases the balance constraint is useful.

    Kernels with k(x, x) = 1 bound all distances. A small group then has little of the variance at
    any distance, and no row is an outlier. The criterion is therefore a gap: the value for the
    tenth of the weight nearest to the border (C = 10) must be three times that of halves. Two cuts
    through a single group, even a curved one, differ by less.

    None is returned if halves are as good, or if the sides are not `are_unequal`.
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
