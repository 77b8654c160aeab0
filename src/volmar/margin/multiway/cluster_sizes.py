"""Labels by the largest score, with a minimum size of every cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.rows import (
    every,
    is_in_memory,
    prefetch,
    row_wise,
    sums_by_label,
    weighted_quantile,
)

# Maximum number of rises of offsets, per cluster, before the search fails.
MAX_RISES = 10
# Maximum number of rounds that lower offsets: without a guess, and with one.
MAX_LOWERED, LOWERED_AFTER_GUESS = 50, 1
# Offsets are found on a sample if there are more than twice as many rows. The sample has at least
# MIN_SAMPLE rows and, up to MAX_SAMPLE, at least MIN_IN_SMALLEST rows of a cluster of the minimum
# size, so that sampling raises the minimum size by about a fifth.
MIN_SAMPLE, MIN_IN_SMALLEST, MAX_SAMPLE = 5000, 200, 50_000
# Standard errors by which the minimum size is raised in a sample, tried one after another.
LIFTS = (3.0, 6.0)
# Up to this many changed offsets are processed one by one; otherwise all rows are ranked again.
FEW_MOVES = 8
# Minimum rise of an offset, as a share of the range of the scores.
MIN_RISE = 1e-7
# A difference below this share of a size is rounding.
ROUNDING = 1e-9


class SizedLabels(NamedTuple):
    """Labels whose clusters have the minimum size, and the score offsets that give them."""

    labels: Any
    offsets: NDArray


def shares_of_clusters(labels: Any, k: int, shares: Any) -> NDArray:
    """Return the share of the rows, or of their weight, in each of k clusters."""
    sizes = sums_by_label(labels, shares, k)
    return sizes / labels.size if shares is None else sizes


def sized_labels(
    f: Any,
    shares: Any,
    floor: float,
    look_ahead: Callable[[Any], Any] | None = None,
    guess: NDArray | None = None,
) -> SizedLabels | None:
    r"""Return the labels with the largest total score and a minimum size of every cluster.

    They solve

    .. math:: \max_y \sum_i p_i f_{i y_i} \quad \text{such that} \quad
              \sum_{i: y_i = p} p_i \ge s \text{ for all } p,

    a transport problem. Its dual variables :math:`b_p \ge 0` are offsets of the clusters' scores:
    the solution is :math:`y_i = \arg\max_p f_{ip} + b_p`. They are 0 if no cluster is too small.
    Otherwise they are found by an auction algorithm. The offset of a cluster that is too small is
    raised until enough rows join it, to the midpoint between the last row that joins and the first
    that does not. In every second step, the offsets of clusters that would become too small are
    raised together with it. Otherwise clusters with similar scores would take single rows from
    each other in turn. Then the offsets of clusters that are larger than necessary are lowered:
    the labels are optimal if every cluster has an offset of 0 or the minimum size.

    With more than 10,000 rows, the offsets are found on a sample of evenly spaced rows, with a
    minimum size larger by three standard errors (then six). Clusters at the minimum are therefore
    slightly larger than necessary. The sizes are always checked on all rows. If the sample does
    not give large enough clusters, the auction runs on all rows.

    Parameters
    ----------
    f : array over the rows of shape (n, k)
        Scores.
    shares : vector over the rows or None
        The p_i. If None, 1/n.
    floor : float
        s, at most 1/k.
    look_ahead : callable, optional
        Requests results that will be needed for the labels. For rows in blocks, the pass that
        counts the clusters then computes them as well.
    guess : ndarray of shape (k,), optional
        Offsets of similar scores, from which the auction starts.

    Returns
    -------
    SizedLabels or None
        None if no offsets were found, for example with too few different rows.
    """
    n, k = f.shape
    min_share = floor * (1.0 - ROUNDING)
    for_smallest = MIN_IN_SMALLEST / floor if floor > 0 else 0.0
    size = int(max(MIN_SAMPLE, min(for_smallest, MAX_SAMPLE)))
    step = n // size + 1 if n > 2 * size else 1
    plain = SizedLabels(np.argmax(f, axis=1), np.zeros(k, dtype=f.dtype))
    if not is_in_memory(f):
        _ask_ahead(f, shares, floor, step, plain, look_ahead, guess)
    if shares_of_clusters(plain.labels, k, shares).min() >= min_share:
        return plain
    if step == 1:
        few, p = _sample(f, shares, 1)
        b = _offsets(few, p, min_share, guess)
        return None if b is None else _at(f, b)
    for lift in LIFTS:
        found = _offsets_of_sample(f, shares, floor, step, lift, guess)
        if found is None:
            continue
        guess, labelled = found, _at(f, found)
        if shares_of_clusters(labelled.labels, k, shares).min() >= min_share:
            return labelled
    p = row_wise(_even_shares, f, n) if shares is None else shares
    b = _offsets(f, p, min_share, guess)
    return None if b is None else _at(f, b)


def _ask_ahead(
    f: Any, shares: Any, floor: float, step: int, plain: SizedLabels, look_ahead: Any, guess: Any
) -> None:
    """Compute the sizes of the likely labels and the results needed next in one pass."""
    k, likely = f.shape[1], plain
    few, p = _sample(f, shares, step)
    if p is not None and shares_of_clusters(np.argmax(few, axis=1), k, p).min() < floor:
        lift = LIFTS[0] if step > 1 else 0.0
        found = _offsets_of_sample(f, shares, floor, step, lift, guess)
        likely = plain if found is None else _at(f, found)

    def ask() -> None:
        for one in (plain, likely):
            shares_of_clusters(one.labels, k, shares)
        if look_ahead is not None:
            look_ahead(likely.labels)

    prefetch(ask, f)


def _at(f: Any, b: NDArray) -> SizedLabels:
    return SizedLabels(np.argmax(f + b, axis=1), b)


def _sample(f: Any, shares: Any, step: int) -> tuple[NDArray, NDArray | None]:
    """Return every step-th row of scores, and their normalised shares; None if these are 0."""
    few = every(f, step)
    p = np.ones(len(few)) if shares is None else every(shares, step)
    total = float(p.sum())
    return few, p / total if total > 0 else None


def _offsets_of_sample(
    f: Any, shares: Any, floor: float, step: int, lift: float, guess: NDArray | None = None
) -> NDArray | None:
    few, p = _sample(f, shares, step)
    if p is None:
        return None
    error = np.sqrt(floor * (1.0 - floor) * float(p @ p))
    raised = min(floor + lift * error, 1.0 / f.shape[1])
    return _offsets(few, p, raised * (1.0 - ROUNDING), guess)


def _offsets(f: Any, p: Any, min_share: float, guess: NDArray | None) -> NDArray | None:
    """Return the offsets found by an auction, from a guess if there is one."""
    kind = _RankedAuction if is_in_memory(f) else _Auction
    auction = kind(f, p, min_share, guess)
    rounds = MAX_LOWERED if guess is None else LOWERED_AFTER_GUESS
    for step in range(MAX_RISES * f.shape[1]):
        if auction.sizes.min() >= min_share:
            break
        auction.rise(alone=step % 2 == 0)
    return auction.lowered(rounds) if auction.sizes.min() >= min_share else None


class _Auction:
    """An auction for rows: offsets b rise until every cluster has the minimum size."""

    def __init__(self, f: Any, p: Any, min_share: float, guess: NDArray | None):
        self.f, self.p, self.min_share = f, p, min_share
        self.min_rise = MIN_RISE * float(np.ptp(f))
        self.set_offsets(np.zeros(f.shape[1], f.dtype) if guess is None else guess.astype(f.dtype))

    def set_offsets(self, b: NDArray) -> None:
        self.b, self.g = b, self.f + b
        self.sizes = sums_by_label(np.argmax(self.g, axis=1), self.p, b.size)

    def lead(self, group: NDArray) -> Any:
        """Return the lead of the largest score in a group of clusters over the other clusters."""
        return row_wise(_lead_of_columns, self.g, group)

    def best_of_others(self, group: NDArray) -> Any:
        """Return the cluster with the largest score outside a group of clusters."""
        return row_wise(_best_column, self.g, ~group)

    def rise(self, *, alone: bool) -> None:
        """Raise the offset of the smallest cluster.

        Unless `alone`, also raise those of clusters that would become too small.
        """
        group = np.arange(self.b.size) == np.argmin(self.sizes)
        rise, too_small = self._needed_rise(group)
        while not alone and too_small.any():
            group = group | too_small
            if group.all():
                group = np.arange(self.b.size) == np.argmin(self.sizes)
                rise, _ = self._needed_rise(group)
                break
            rise, too_small = self._needed_rise(group)
        if rise < self.min_rise:
            # Clusters take rows from each other in turn. Larger rises end this.
            rise, self.min_rise = self.min_rise, 1.5 * self.min_rise
        b = self.b.copy()
        b[group] += b.dtype.type(rise)
        self.set_offsets(b)

    def _needed_rise(self, group: NDArray) -> tuple[float, NDArray]:
        """Return the rise that fills a group, and the clusters that it leaves too small."""
        rivals = self.best_of_others(group)
        # Row i joins the group if its offsets rise by more than this.
        needed = -self.lead(group)
        last = weighted_quantile(needed, self.p, self.min_share * np.count_nonzero(group))
        stays = needed > last
        left = sums_by_label(rivals, self.p * stays, self.b.size)
        first = float(np.where(stays, needed, np.inf).min())
        rise = 0.5 * (last + first) if np.isfinite(first) else last
        return rise, (left < self.min_share) & (left < self.sizes) & ~group

    def lowered(self, rounds: int) -> NDArray:
        """Return the offsets after those of clusters larger than necessary were lowered."""
        for _ in range(rounds):
            before = self.b
            self.set_offsets(self.b - self.b.min())
            for c in np.flatnonzero(self.b):
                self._lower(np.arange(self.b.size) == c)
            # Lower all together, in case rows are tied between two of them.
            self._lower(self.b > 0)
            if np.array_equal(self.b, before):
                break
        return self.b

    def _lower(self, group: NDArray) -> None:
        """Lower the offsets of a group of clusters as far as their sizes allow."""
        min_share = self.min_share * np.count_nonzero(group)
        if not group.any() or self.sizes[group].sum() <= min_share:
            return
        # Row i leaves the group if its offsets fall by more than this.
        held = self.lead(group)
        last = -weighted_quantile(-held, self.p, min_share)
        goes = (held < last) & (held >= 0)
        fall = float(self.b[group].min())
        highest = float(np.where(goes, held, -np.inf).max())
        if np.isfinite(highest):
            fall = min(fall, 0.5 * (last + highest))
        elif last <= fall:
            return
        before, b = self.b, self.b.copy()
        b[group] -= b.dtype.type(fall)
        self.set_offsets(b)
        if self.sizes.min() < self.min_share:
            # Too many rows are tied to leave.
            self.set_offsets(before)


class _RankedAuction(_Auction):
    """An auction for rows in memory, which stores the best two clusters of each row.

    A step that changes one offset takes O(n) time, not O(n k): a row is ranked again only if the
    cluster is among its best two, or becomes one of them.
    """

    def set_offsets(self, b: NDArray) -> None:
        changed = np.flatnonzero(b != self.b) if hasattr(self, "b") else None
        if changed is not None and changed.size <= FEW_MOVES:
            for c in changed:
                self._move(int(c), b[c])
        else:
            n = len(self.f)
            self.g = self.f + b
            self.first, self.second = np.empty(n, dtype=np.intp), np.empty(n, dtype=np.intp)
            self.best, self.next = np.empty((2, n), dtype=self.f.dtype)
            self._rank(np.arange(n))
        self.b = b
        self.sizes = sums_by_label(self.first, self.p, b.size)

    def _move(self, c: int, offset: float) -> None:
        """Change one offset, and rank the rows for which the cluster may leave the best two."""
        column = self.f[:, c] + offset
        self.g[:, c] = column
        is_first, is_second = self.first == c, self.second == c
        lost = np.flatnonzero((is_first | is_second) & (column < self.next))
        self.best[is_first] = column[is_first]
        passes = np.flatnonzero((column > self.best) & ~is_first)
        nears = np.flatnonzero((column > self.next) & (column <= self.best) & ~is_first)
        self.second[passes], self.next[passes] = self.first[passes], self.best[passes]
        self.first[passes], self.best[passes] = c, column[passes]
        self.second[nears], self.next[nears] = c, column[nears]
        if lost.size:
            self._rank(lost)

    def _rank(self, rows: NDArray) -> None:
        g, of = self.g[rows], np.arange(rows.size)
        for ranks, values in ((self.first, self.best), (self.second, self.next)):
            columns = np.argmax(g, axis=1)
            ranks[rows], values[rows] = columns, g[of, columns]
            g[of, columns] = -np.inf

    def lead(self, group: NDArray) -> NDArray:
        if np.count_nonzero(group) > 1:
            return super().lead(group)
        (c,) = np.flatnonzero(group)
        return np.where(self.first == c, self.best - self.next, self.g[:, c] - self.best)

    def best_of_others(self, group: NDArray) -> NDArray:
        if np.count_nonzero(group) > 1:
            return super().best_of_others(group)
        (c,) = np.flatnonzero(group)
        return np.where(self.first == c, self.second, self.first)


def _even_shares(f: NDArray, n: int) -> NDArray:
    return np.full(len(f), 1.0 / n)


def _best_column(g: NDArray, some: NDArray) -> NDArray:
    """Return the column with the largest entry among some columns."""
    return np.argmax(np.where(some, g, -np.inf), axis=1)


def _lead_of_columns(g: NDArray, some: NDArray) -> NDArray:
    """Return the lead of the largest entry in some columns over the other columns."""
    return g[:, some].max(axis=1) - g[:, ~some].max(axis=1)
