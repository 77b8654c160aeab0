"""Rules that cut scores in two: at the lowest L1 loss, or in the widest gap."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Minimum distance of the threshold from the two nearest rows, as a share of the gap between them.
AWAY = 0.1
# Sums of weights that differ by less, relative to the total, are equal.
ROUNDING = 1e-9


class ScoreCut(NamedTuple):
    """Labels of the two sides of a cut of scores: 1 if score + bias > 0."""

    labels: NDArray
    bias: float


class SortedScores:
    """Sorted scores, with the places where they may be cut.

    Rows with equal scores stay together, and each side has at least the weight `floor`. If no cut
    satisfies this, the most even one is allowed. Rows of weight 0 get a label but have no effect.
    """

    def __init__(self, scores: NDArray, weights: NDArray | None, floor: float):
        self.scores = scores
        kept = scores if weights is None else scores[weights > 0]
        order = np.argsort(kept, kind="stable")
        self.values = kept[order]
        s = np.ones(kept.size) if weights is None else weights[weights > 0][order]
        self.weight = np.concatenate([[0.0], np.cumsum(s)])
        self.first = np.concatenate([[0.0], np.cumsum(s * self.values)])
        self.total = float(self.weight[-1])
        between = np.flatnonzero(np.diff(self.values) > 0) + 1
        below = self.weight[between]
        smaller = np.minimum(below, self.total - below)
        allowed = smaller >= floor - ROUNDING * self.total
        #: Numbers of rows below a cut, ascending.
        self.cuts = between[allowed] if allowed.any() else between[[smaller.argmax()]]

    def split(self, cut: int, bias: float | None = None) -> ScoreCut:
        """Return the labels of a cut, with the bias nearest to `bias` that gives them."""
        low, high = float(self.values[cut - 1]), float(self.values[cut])
        middle = 0.5 * (low + high)
        if bias is not None:
            room = AWAY * (high - low)
            middle = min(max(-bias, low + room), high - room)
        # There is no number between neighbours in floating point: use the lower one.
        middle = min(middle, float(np.nextafter(high, low)))
        return ScoreCut((self.scores - middle > 0).astype(np.int64), -middle)

    def distances(self, x: NDArray, low: NDArray | int, high: NDArray | int) -> NDArray:
        """Return sum_i s_i |x - value_i| over the sorted rows from `low` to below `high`."""
        at = np.clip(np.searchsorted(self.values, x), low, high)
        W, F = self.weight, self.first
        under = x * (W[at] - W[low]) - (F[at] - F[low])
        return under + (F[high] - F[at]) - x * (W[high] - W[at])


def lowest_loss_cut(
    scores: NDArray, weights: NDArray | None, floor: float, bias: float
) -> ScoreCut:
    r"""Return the labels that minimise the L1 loss of given scores, over a common bias too.

    .. math:: \min_{b, y} \; \sum_i s_i |y_i - g_i - b|, \qquad y_i = \pm 1,

    where each side has at least the weight `floor`. For a given b the rows above a cut have label
    1, and the loss is unimodal in the cut: the best cut is at the change of sign, or the nearest
    one that is allowed. In b the minimum is at some y_i - g_i, since everywhere else the loss is
    linear or has a concave kink. Of equally good biases the one nearest to `bias` is taken.
    """
    line = SortedScores(scores, weights, floor)
    candidates = np.concatenate([1.0 - line.values, -1.0 - line.values])
    # The allowed cuts are all places between different scores in a range. If the cut at the change
    # of sign is outside of it, the nearest end of the range is the best.
    cuts = np.searchsorted(line.values, -candidates, side="right")
    cuts = np.clip(cuts, line.cuts[0], line.cuts[-1])
    losses = line.distances(1.0 - candidates, cuts, line.values.size)
    losses += line.distances(-1.0 - candidates, 0, cuts)
    good = np.flatnonzero(losses <= losses.min() + 1e-12 * line.total)
    best = good[np.abs(candidates[good] - bias).argmin()]
    return line.split(int(cuts[best]), float(candidates[best]))


def widest_gap_cut(
    scores: NDArray, weights: NDArray | None, floor: float, bias: float
) -> ScoreCut:
    """Return the cut in the middle of the widest gap with weight `floor` on each side.

    Of equally wide gaps the one nearest to `bias` is taken.
    """
    line = SortedScores(scores, weights, floor)
    gaps = line.values[line.cuts] - line.values[line.cuts - 1]
    good = line.cuts[gaps >= gaps.max() * (1 - 1e-12)]
    middles = 0.5 * (line.values[good] + line.values[good - 1])
    return line.split(int(good[np.abs(middles + bias).argmin()]))
