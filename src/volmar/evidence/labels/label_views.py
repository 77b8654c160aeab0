"""Linear discriminants of given clusters, learnt on some rows, and scores of held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from volmar.evidence.dither import dithered_scores
from volmar.metrics.contingency import sampled_rows
from volmar.rows.standardized import CONSTANT

__all__ = [
    "Discriminants",
    "PairScores",
    "SplitView",
    "split_view",
    "thresholds",
    "without_far_rows",
]

# Ridge, relative to the variance of each column within clusters. It stabilises directions that are
# learnt on few rows.
REG = 0.1
# Minimum standard deviation within clusters, as a share of that of all rows.
NARROWEST = 1e-3
# Maximum number of rows that directions are learnt from, of their entries, and of rows if columns
# are many.
MAX_LEARNT, MAX_ENTRIES, MAX_LEARNT_WIDE = 20_000, 20_000_000, 2_000
# With more columns than this, the dual system, of the size of the rows, is solved.
WIDE = 2_000
# Maximum error of the sides at which a hyperplane counts as the border of two clusters.
LINEAR_ERROR = 0.05
# Maximum number of rows of the larger side of a pair, per row of the smaller side.
MAX_RATIO = 4.0
# Minimum number of rows of each side in the region of a pair that is tested.
MIN_INSIDE = 5
# Mean error above which scores do not separate the two sides, and the amount by which the error of
# a threshold at the border may exceed the minimum.
APART, SLACK = 0.25, 0.05
# Number of weights between 0 and 1 that are tried for a half-space.
N_WEIGHTS = 21


class PairScores(NamedTuple):
    """Rows between two groups, and their scores, which increase towards the first group.

    `first` and `second` are the scores of the seen rows of the two groups in the region, `rows`
    the held-out rows in the region and `scores` the scores of these.
    """

    first: NDArray
    second: NDArray
    rows: NDArray
    scores: NDArray

    @property
    def is_linear(self) -> bool:
        """Whether a threshold puts nearly all seen rows of both groups on the correct side."""
        return self.error <= LINEAR_ERROR

    @property
    def error(self) -> float:
        """Share of seen rows on the wrong side of the best threshold, averaged over both sides."""
        return side_error(self.first, self.second)


@dataclass(frozen=True)
class Discriminants:
    r"""Linear discriminants of groups of the given clusters.

    :math:`f_a(x) = \mu_a' (S + \lambda I)^{-1} (x - \tfrac12 \mu_a)`, with S the covariance within
    the groups. :math:`f_a - f_b` is half the difference of the squared distances to b and a.
    `seen` (m, g) are the values at the rows that were learnt from, `groups` (m,) the groups of
    these rows, and `held_out` (n, g) the values at the held-out rows. `distances` (g, g) are
    squared distances between the means, in standard deviations within the groups.
    """

    seen: NDArray
    held_out: NDArray
    distances: NDArray
    groups: NDArray

    def is_linear(self, a: int, b: int) -> bool:
        """Return whether a hyperplane separates nearly all seen rows of two groups."""
        first, second = self.groups == a, self.groups == b
        difference = self.seen[:, a] - self.seen[:, b]
        return side_error(difference[first], difference[second]) <= LINEAR_ERROR

    def pair(self, a: int, b: int) -> PairScores | None:
        r"""Return the scores of the held-out rows in a convex region that contains a and b.

        For every other group c the region is cut by the half-space

        .. math:: t f_a(x) + (1 - t) f_b(x) \ge f_c(x).

        The mean of a is inside if :math:`1 - t \le D_{ac}^2 / D_{ab}^2`, and the mean of b if
        :math:`t \le D_{bc}^2 / D_{ab}^2`. Such a t exists if c is outside the ball with a and b as
        its poles, and therefore always for the closest two groups. It is chosen so that the means
        are as far inside as possible: 1/2 for groups at equal distances. Groups that no hyperplane
        separates from a and b are not cut off.

        A log-concave density has one mode in the region, along any direction. The result is None
        if either group has fewer than `MIN_INSIDE` seen rows in the region.
        """
        keep_seen = np.ones(len(self.seen), dtype=bool)
        keep_held = np.ones(len(self.held_out), dtype=bool)
        for c in range(self.distances.shape[0]):
            if c in (a, b) or not (self.is_linear(a, c) and self.is_linear(b, c)):
                continue
            t = _best_weight(self.distances, a, b, c)
            keep_seen &= _inside(self.seen, a, b, c, t)
            keep_held &= _inside(self.held_out, a, b, c, t)
        scores = self.seen[:, a] - self.seen[:, b]
        first = scores[keep_seen & (self.groups == a)]
        second = scores[keep_seen & (self.groups == b)]
        if min(first.size, second.size) < MIN_INSIDE:
            return None
        rows = np.flatnonzero(keep_held)
        return PairScores(first, second, rows, (self.held_out[:, a] - self.held_out[:, b])[rows])


def _best_weight(distances: NDArray, a: int, b: int, c: int) -> float:
    """Return the t for which both means are farthest inside the half-space."""
    t = np.linspace(0.0, 1.0, N_WEIGHTS)
    to_a, to_b, between = distances[a, c], distances[b, c], distances[a, b]
    square = t * to_a + (1.0 - t) * to_b - t * (1.0 - t) * between
    lower = np.minimum(to_a - (1.0 - t) * between, to_b - t * between)
    margins = lower / np.sqrt(np.maximum(square, np.finfo(np.float64).tiny))
    # Ties are broken in favour of the weight nearest to 1/2.
    best = np.flatnonzero(margins >= margins.max() - 1e-9 * abs(margins.max()))
    return float(t[best[np.argmin(np.abs(t[best] - 0.5))]])


def _inside(f: NDArray, a: int, b: int, c: int, t: float) -> NDArray:
    return t * f[:, a] + (1.0 - t) * f[:, b] >= f[:, c]


def without_far_rows(scores: NDArray, first: NDArray, second: NDArray) -> NDArray:
    """Return the indices of the scores that are left after cutting off far rows of a large side.

    A small group beside a large one is hard to detect. Per row of the smaller side, at most
    `MAX_RATIO` rows of the larger side are kept. The cut is a half-line, so that a unimodal
    density stays unimodal. Its end is computed from the seen scores `first` and `second` of the
    two sides, of which the first are higher.
    """
    low, high = -np.inf, np.inf
    if first.size > MAX_RATIO * second.size:
        high = float(np.quantile(first, MAX_RATIO * second.size / first.size))
    elif second.size > MAX_RATIO * first.size:
        low = float(np.quantile(second, 1.0 - MAX_RATIO * first.size / second.size))
    return np.flatnonzero((scores >= low) & (scores <= high))


def side_error(first: NDArray, second: NDArray) -> float:
    """Return the minimum mean error of a threshold between two sides, the first of them above."""
    return float(_threshold_errors(first, second)[1].min())


def thresholds(first: NDArray, second: NDArray) -> tuple[float, float]:
    """Return the lower and upper end of the nearly optimal thresholds between two sides.

    Their mean error exceeds the minimum by at most `SLACK`. If the minimum is above `APART`, the
    scores do not separate the sides, and the result is (inf, -inf).
    """
    scores, errors = _threshold_errors(first, second)
    if errors.min() > APART:
        return np.inf, -np.inf
    good = np.flatnonzero(errors <= errors.min() + SLACK)
    # A threshold lies between two scores.
    low, high = max(good[0] - 1, 0), min(good[-1], scores.size - 1)
    return float(scores[low]), float(scores[high])


def _threshold_errors(first: NDArray, second: NDArray) -> tuple[NDArray, NDArray]:
    """Return the sorted scores, and mean errors of thresholds before, between and after them."""
    scores = np.concatenate([second, first])
    order = np.argsort(scores, kind="stable")
    # Below a threshold, rows of the second side are correct and rows of the first are wrong.
    is_first = order >= second.size
    wrong_first = np.concatenate([[0], np.cumsum(is_first)]) / max(first.size, 1)
    right_second = np.concatenate([[0], np.cumsum(~is_first)]) / max(second.size, 1)
    return scores[order], 0.5 * (wrong_first + 1.0 - right_second)


@dataclass(frozen=True)
class SplitView:
    r"""Statistics of one split of the rows, from which discriminants of any groups follow.

    Let R be the covariance of the rows that are learnt from, and M the means of the k given
    clusters. `inner` is :math:`M' (R + \lambda I)^{-1} M`. `seen` (m, k) and `held_out` (n, k) are
    the scores :math:`x' (R + \lambda I)^{-1} M` of the rows that are learnt from and of the
    held-out rows. With these, merging clusters takes no further pass over the rows. `shares` are
    the shares of the clusters among the rows that are learnt from, `codes` the clusters of these
    rows, and `seen_rows` and `held_out_rows` the indices of the rows in X.
    """

    shares: NDArray
    inner: NDArray
    seen: NDArray
    held_out: NDArray
    codes: NDArray
    seen_rows: NDArray
    held_out_rows: NDArray

    def discriminants(self, groups: NDArray) -> Discriminants:
        """Return the discriminants of groups of clusters; `groups` (k,) is numbered from 0."""
        k, g = self.shares.size, int(groups.max()) + 1
        total = np.bincount(groups, self.shares, g)
        weights = np.zeros((k, g))
        weights[np.arange(k), groups] = self.shares / np.sqrt(total[groups])
        # S = R - UU', U the means times the roots of the shares: `separation/discriminants.py`.
        inside = np.eye(g) - weights.T @ self.inner @ weights
        coefficients = weights @ linalg.inv(inside) / np.sqrt(total)
        products = (weights / np.sqrt(total)).T @ self.inner @ coefficients
        squares = products.diagonal()
        distances = np.maximum(squares[:, None] + squares - products - products.T, 0.0)
        offsets = -0.5 * squares
        return Discriminants(
            self.seen @ coefficients + offsets,
            self.held_out @ coefficients + offsets,
            distances,
            groups[self.codes],
        )


def split_view(
    X: Any,
    codes: NDArray,
    k: int,
    seen_rows: NDArray,
    held_out_rows: NDArray,
    resolutions: NDArray,
    rng: np.random.Generator,
) -> SplitView:
    """Learn discriminants of the given clusters on seen rows, and score dithered held-out rows.

    `codes` is -1 for rows that are not used for learning. `seen_rows` has at least one row of each
    cluster.
    """
    d = X.shape[1]
    learnt = seen_rows[codes[seen_rows] >= 0]
    most = min(MAX_LEARNT, max(MAX_ENTRIES // d, 1)) if d <= WIDE else MAX_LEARNT_WIDE
    learnt = learnt[sampled_rows(codes[learnt], max(most, 2 * k), rng, 10)]
    rows, given = X[learnt], codes[learnt]
    score, shares, inner = _learn(rows, given, k)
    held_out = dithered_scores(score, X[held_out_rows], resolutions, rng)
    return SplitView(shares, inner, score(rows), held_out, given, learnt, held_out_rows)


def _learn(rows: Any, codes: NDArray, k: int) -> tuple[Callable[[Any], NDArray], NDArray, NDArray]:
    """Return the score function x'(R + reg I)^-1 M, the shares, and M'(R + reg I)^-1 M."""
    m, d = rows.shape
    sizes = np.bincount(codes, minlength=k).astype(np.float64)
    members = sparse.csr_array((np.ones(m), (codes, np.arange(m))), shape=(k, m))
    centre = np.asarray(rows.mean(axis=0, dtype=np.float64)).ravel()
    is_wide = d > WIDE
    if not sparse.issparse(rows) or not is_wide:
        rows = rows.toarray() if sparse.issparse(rows) else rows
        rows = rows.astype(np.float64) - centre
        means = np.asarray(members @ rows) / sizes[:, None]
        total = np.einsum("ij,ij->j", rows, rows) / m
    else:
        rows = rows.astype(np.float64)
        means = (members @ rows).toarray() / sizes[:, None] - centre
        total = np.asarray(rows.multiply(rows).mean(axis=0)).ravel() - centre**2
    between = (sizes / m) @ means**2
    deviations = np.sqrt(np.maximum(total, 0.0))
    within = np.sqrt(np.maximum(total - between, 0.0))
    varies = deviations > CONSTANT * (np.abs(centre) + deviations)
    scale = np.where(varies, np.maximum(within, NARROWEST * deviations), np.inf)
    means = means / scale
    if not is_wide:
        rows = rows / scale
        images = linalg.solve(rows.T @ rows / m + REG * np.eye(d), means.T, assume_a="pos")
    else:
        # (Z'Z / m + reg I)^-1 Z'B = Z'(ZZ' / m + reg I)^-1 B, and M' = Z'B with B the shares.
        is_sparse = sparse.issparse(rows)
        scaled = sparse.csr_array(rows.multiply(1.0 / scale)) if is_sparse else rows / scale
        gram = scaled @ scaled.T
        if is_sparse:
            gram = gram.toarray()
            of_rows = gram.mean(axis=0)
            gram = gram - of_rows - of_rows[:, None] + of_rows.mean()
        shares = members.toarray().T / sizes
        duals = linalg.solve(gram / m + REG * np.eye(m), shares, assume_a="pos")
        images = np.asarray(scaled.T @ duals)
        if is_sparse:
            images -= (centre / scale)[:, None] * duals.sum(axis=0)
    coefficients = images / scale[:, None]
    shift = centre @ coefficients

    def score(x: Any) -> NDArray:
        return np.asarray(x @ coefficients) - shift

    return score, sizes / m, means @ images
