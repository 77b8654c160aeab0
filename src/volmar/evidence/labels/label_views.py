"""Given clusters seen from some of the rows: discriminants, regions, scores of the others."""

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

# Added to the variance of each column within clusters: steadies directions of few rows.
REG = 0.1
# Least deviation within clusters, as a share of that of all rows.
NARROWEST = 1e-3
# Rows that directions are learnt from, their entries, and rows where columns are many.
MOST_LEARNT, MOST_ENTRIES, MOST_LEARNT_WIDE = 20_000, 20_000_000, 2_000
# Beyond as many columns the system of the rows is smaller than that of the columns.
WIDE = 2_000
# Error of the sides up to which a hyperplane stands for the border of two clusters.
LINEAR_ERROR = 0.05
# Rows of the larger side of a pair that are kept for each row of the smaller side.
MOST_UNEQUAL = 4.0
# Rows of a side in the region of a pair below which the pair is not testable.
FEWEST_INSIDE = 5
# Mean error of the sides above which scores do not tell them apart, and how much more than the
# least one a threshold at the border may have.
APART, SLACK = 0.25, 0.05
# Weights between 0 and 1 that are tried for a half-space.
N_WEIGHTS = 21


class PairScores(NamedTuple):
    """Rows between two groups, and their scores: higher towards the first group.

    `first` and `second` are scores of the seen rows of the two groups in the region, `rows` the
    held-out rows there and `scores` theirs.
    """

    first: NDArray
    second: NDArray
    rows: NDArray
    scores: NDArray

    @property
    def is_linear(self) -> bool:
        """Whether a threshold puts nearly all seen rows of the groups on their sides."""
        return self.error <= LINEAR_ERROR

    @property
    def error(self) -> float:
        """Share of seen rows on the wrong side of the best threshold, the mean of the sides."""
        return side_error(self.first, self.second)


@dataclass(frozen=True)
class Discriminants:
    r"""Linear discriminants of groups of the given clusters.

    :math:`f_a(x) = \mu_a' (S + \lambda I)^{-1} (x - \tfrac12 \mu_a)`, with S the covariance within
    the groups; :math:`f_a - f_b` is half the difference of the squared distances to b and a.
    `seen` (m, g) and `held_out` (n, g) are those of the rows that were learnt from, whose groups
    are `groups`, and of the others; `distances` (g, g) are squared distances between the means, in
    deviations within the groups.
    """

    seen: NDArray
    held_out: NDArray
    distances: NDArray
    groups: NDArray

    def is_linear(self, a: int, b: int) -> bool:
        """Whether a hyperplane puts nearly all seen rows of two groups on their sides."""
        first, second = self.groups == a, self.groups == b
        difference = self.seen[:, a] - self.seen[:, b]
        return side_error(difference[first], difference[second]) <= LINEAR_ERROR

    def pair(self, a: int, b: int) -> PairScores | None:
        r"""Return the scores of the held-out rows in a convex region that holds a and b.

        For every other group c the region is cut by the half-space

        .. math:: t f_a(x) + (1 - t) f_b(x) \ge f_c(x).

        The mean of a is inside where :math:`1 - t \le D_{ac}^2 / D_{ab}^2`, that of b where
        :math:`t \le D_{bc}^2 / D_{ab}^2`. Such a t exists where c is outside the ball with a and b
        as its poles, so for the closest two of any groups; it is chosen so that the means are as
        far inside as possible, 1/2 for groups at equal distances. Groups that no hyperplane
        separates from a and b are not cut off.

        So a log-concave density has one mode in the region, along any direction. None where a
        group has hardly any seen row there.
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
        if min(first.size, second.size) < FEWEST_INSIDE:
            return None
        rows = np.flatnonzero(keep_held)
        return PairScores(first, second, rows, (self.held_out[:, a] - self.held_out[:, b])[rows])


def _best_weight(distances: NDArray, a: int, b: int, c: int) -> float:
    """Return the t with which both means are farthest from the border of the half-space."""
    t = np.linspace(0.0, 1.0, N_WEIGHTS)
    to_a, to_b, between = distances[a, c], distances[b, c], distances[a, b]
    square = t * to_a + (1.0 - t) * to_b - t * (1.0 - t) * between
    lower = np.minimum(to_a - (1.0 - t) * between, to_b - t * between)
    margins = lower / np.sqrt(np.maximum(square, np.finfo(np.float64).tiny))
    # The one nearest to 1/2 of several.
    best = np.flatnonzero(margins >= margins.max() - 1e-9 * abs(margins.max()))
    return float(t[best[np.argmin(np.abs(t[best] - 0.5))]])


def _inside(f: NDArray, a: int, b: int, c: int, t: float) -> NDArray:
    return t * f[:, a] + (1.0 - t) * f[:, b] >= f[:, c]


def without_far_rows(scores: NDArray, first: NDArray, second: NDArray) -> NDArray:
    """Return the places of scores that are not far from the smaller side, on the larger one.

    A small group beside a large one is hard to see. At most `MOST_UNEQUAL` rows of a side are kept
    for each of the other, by a half-line: what has one mode keeps it. Scores of the two sides, the
    first above the second, set its end.
    """
    low, high = -np.inf, np.inf
    if first.size > MOST_UNEQUAL * second.size:
        high = float(np.quantile(first, MOST_UNEQUAL * second.size / first.size))
    elif second.size > MOST_UNEQUAL * first.size:
        low = float(np.quantile(second, 1.0 - MOST_UNEQUAL * first.size / second.size))
    return np.flatnonzero((scores >= low) & (scores <= high))


def side_error(first: NDArray, second: NDArray) -> float:
    """Return the least mean error of a threshold between scores of two sides, first above."""
    return float(_threshold_errors(first, second)[1].min())


def thresholds(first: NDArray, second: NDArray) -> tuple[float, float]:
    """Return the ends of the thresholds that tell two sides apart nearly as well as can be.

    Up to `SLACK` more than the least mean error. Where even that is above `APART` the scores do
    not tell the sides apart, and the ends are infinity and its negative.
    """
    scores, errors = _threshold_errors(first, second)
    if errors.min() > APART:
        return np.inf, -np.inf
    good = np.flatnonzero(errors <= errors.min() + SLACK)
    # A threshold is between two scores.
    low, high = max(good[0] - 1, 0), min(good[-1], scores.size - 1)
    return float(scores[low]), float(scores[high])


def _threshold_errors(first: NDArray, second: NDArray) -> tuple[NDArray, NDArray]:
    """Return the sorted scores, and mean errors of thresholds before, between and after them."""
    scores = np.concatenate([second, first])
    order = np.argsort(scores, kind="stable")
    # Below a threshold: second sides that are right, first sides that are not.
    is_first = order >= second.size
    wrong_first = np.concatenate([[0], np.cumsum(is_first)]) / max(first.size, 1)
    right_second = np.concatenate([[0], np.cumsum(~is_first)]) / max(second.size, 1)
    return scores[order], 0.5 * (wrong_first + 1.0 - right_second)


@dataclass(frozen=True)
class SplitView:
    r"""What discriminants of any groups of k given clusters need of a split of the rows.

    With R the covariance of the rows that are learnt from and M the means of the clusters, all of
    it is in :math:`M' (R + \lambda I)^{-1} M`, `inner`, and the scores :math:`x' (R + \lambda
    I)^{-1} M` of the rows that are learnt from and of the others, `seen` (m, k) and `held_out` (n,
    k): merging clusters takes no further pass over the rows. `shares` are those of the clusters
    among the rows that are learnt from, `codes` the clusters of these, `seen_rows` and
    `held_out_rows` the numbers of the rows in X.
    """

    shares: NDArray
    inner: NDArray
    seen: NDArray
    held_out: NDArray
    codes: NDArray
    seen_rows: NDArray
    held_out_rows: NDArray

    def discriminants(self, groups: NDArray) -> Discriminants:
        """Return the discriminants of groups of clusters; `groups` (k,) has numbers from 0."""
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
    """Learn from the given clusters of some rows, and score the others, which are dithered.

    `codes` are -1 for rows that are not learnt from; `seen_rows` has at least one of each cluster.
    """
    d = X.shape[1]
    learnt = seen_rows[codes[seen_rows] >= 0]
    most = min(MOST_LEARNT, max(MOST_ENTRIES // d, 1)) if d <= WIDE else MOST_LEARNT_WIDE
    learnt = learnt[sampled_rows(codes[learnt], max(most, 2 * k), rng, 10)]
    rows, given = X[learnt], codes[learnt]
    score, shares, inner = _learn(rows, given, k)
    held_out = dithered_scores(score, X[held_out_rows], resolutions, rng)
    return SplitView(shares, inner, score(rows), held_out, given, learnt, held_out_rows)


def _learn(rows: Any, codes: NDArray, k: int) -> tuple[Callable[[Any], NDArray], NDArray, NDArray]:
    """Return what scores rows by (R + reg I)^-1 M, the shares, and M'(R + reg I)^-1 M."""
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
