"""Labels by the largest score, where every cluster must have a minimum size."""

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

# Rises of prices, for each cluster, after which sizes are given up.
MAX_RISES = 10
# Rounds of lower prices: of few rows, where they end by themselves, and after a guess.
MAX_LOWERED, LOWERED_AFTER_GUESS = 50, 1
# Rows from twice as many on, offsets are those of this many, and at least so many of a cluster of
# the minimum size, up to a limit: what a sample adds to it is then a fifth.
MANY_ROWS, MANY_OF_SMALLEST, MOST_ROWS = 5000, 200, 50_000
# Standard errors of the sizes of a sample by which its minimum size is raised, one after another.
LIFTS = (3.0, 6.0)
# Offsets whose changes are followed one by one; with more of them all rows are ranked again.
FEW_MOVES = 8
# Least rise of a price, as a share of the spread of the scores.
LEAST_RISE = 1e-7
# Share of a size that is rounding.
ROUNDING = 1e-9


class SizedLabels(NamedTuple):
    """Labels whose clusters have their minimum size, and the offsets that lead to them."""

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
    r"""Return the labels of the largest scores with which every cluster has its minimum size.

    The labels with the largest total score are

    .. math:: \max_y \sum_i p_i f_{i y_i} \quad \text{such that} \quad
              \sum_{i: y_i = p} p_i \ge s \text{ for all } p,

    a transport problem. Its dual prices :math:`b_p \ge 0` turn it into
    :math:`y_i = \arg\max_p f_{ip} + b_p`, and are 0 where no cluster is too small. Otherwise they
    are found by an auction. A cluster that is too small raises its price to where enough rows come
    to it, in the middle between the last that comes and the first that stays. Every other time
    clusters that would become too small by that raise theirs with it, which spares clusters of
    similar scores from outbidding each other by a row at a time. Then clusters that are larger
    than they need be lower their prices: labels are best where every price is 0 or that of the
    minimum size.

    The prices of more than 10,000 rows are those of a sample of evenly spaced rows whose minimum
    size is larger by three standard errors (then six). Clusters at the minimum are therefore a
    little larger than they need be; that all are large enough is always counted on all rows. Where
    the sample does not do, the auction is held among all rows.

    Parameters
    ----------
    f : array over the rows of shape (n, k)
        Scores.
    shares : vector over the rows or None
        The p_i, 1/n if not given.
    floor : float
        s, at most 1/k.
    look_ahead : callable, optional
        Asks for what will be needed of the labels, so that the pass over rows in blocks which
        counts the clusters brings it, too.
    guess : ndarray of shape (k,), optional
        Offsets of scores like these, to begin the auction at.

    Returns
    -------
    SizedLabels or None
        None where no prices were found, as for too few different rows.
    """
    n, k = f.shape
    least = floor * (1.0 - ROUNDING)
    of_smallest = MANY_OF_SMALLEST / floor if floor > 0 else 0.0
    most = int(max(MANY_ROWS, min(of_smallest, MOST_ROWS)))
    step = n // most + 1 if n > 2 * most else 1
    plain = SizedLabels(np.argmax(f, axis=1), np.zeros(k, dtype=f.dtype))
    if not is_in_memory(f):
        _ask_ahead(f, shares, floor, step, plain, look_ahead, guess)
    if shares_of_clusters(plain.labels, k, shares).min() >= least:
        return plain
    if step == 1:
        few, p = _sample(f, shares, 1)
        b = _prices(few, p, least, guess)
        return None if b is None else _at(f, b)
    for lift in LIFTS:
        found = _prices_of_sample(f, shares, floor, step, lift, guess)
        if found is None:
            continue
        guess, labelled = found, _at(f, found)
        if shares_of_clusters(labelled.labels, k, shares).min() >= least:
            return labelled
    p = row_wise(_even_shares, f, n) if shares is None else shares
    b = _prices(f, p, least, guess)
    return None if b is None else _at(f, b)


def _ask_ahead(
    f: Any, shares: Any, floor: float, step: int, plain: SizedLabels, look_ahead: Any, guess: Any
) -> None:
    """Have one pass count the clusters of the likely labels, and bring what comes next."""
    k, likely = f.shape[1], plain
    few, p = _sample(f, shares, step)
    if p is not None and shares_of_clusters(np.argmax(few, axis=1), k, p).min() < floor:
        lift = LIFTS[0] if step > 1 else 0.0
        found = _prices_of_sample(f, shares, floor, step, lift, guess)
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
    """Return every step-th row of scores, and their shares of one; None where these are 0."""
    few = every(f, step)
    p = np.ones(len(few)) if shares is None else every(shares, step)
    total = float(p.sum())
    return few, p / total if total > 0 else None


def _prices_of_sample(
    f: Any, shares: Any, floor: float, step: int, lift: float, guess: NDArray | None = None
) -> NDArray | None:
    few, p = _sample(f, shares, step)
    if p is None:
        return None
    error = np.sqrt(floor * (1.0 - floor) * float(p @ p))
    raised = min(floor + lift * error, 1.0 / f.shape[1])
    return _prices(few, p, raised * (1.0 - ROUNDING), guess)


def _prices(f: Any, p: Any, least: float, guess: NDArray | None) -> NDArray | None:
    """Return the prices of an auction, from a guess if there is one."""
    kind = _RankedAuction if is_in_memory(f) else _Auction
    auction = kind(f, p, least, guess)
    rounds = MAX_LOWERED if guess is None else LOWERED_AFTER_GUESS
    for step in range(MAX_RISES * f.shape[1]):
        if auction.sizes.min() >= least:
            break
        auction.rise(alone=step % 2 == 0)
    return auction.lowered(rounds) if auction.sizes.min() >= least else None


class _Auction:
    def __init__(self, f: Any, p: Any, least: float, guess: NDArray | None):
        self.f, self.p, self.least = f, p, least
        self.least_rise = LEAST_RISE * float(np.ptp(f))
        self.set_prices(np.zeros(f.shape[1], f.dtype) if guess is None else guess.astype(f.dtype))

    def set_prices(self, b: NDArray) -> None:
        self.b, self.g = b, self.f + b
        self.sizes = sums_by_label(np.argmax(self.g, axis=1), self.p, b.size)

    def lead(self, group: NDArray) -> Any:
        """Return by how much the largest score of some clusters is above that of the others."""
        return row_wise(_lead_of_columns, self.g, group)

    def best_of_others(self, group: NDArray) -> Any:
        """Return the cluster of the largest score among all but some."""
        return row_wise(_best_column, self.g, ~group)

    def rise(self, *, alone: bool) -> None:
        """Raise the price of the smallest cluster, and unless `alone` those that go with it."""
        group = np.arange(self.b.size) == np.argmin(self.sizes)
        rise, too_small = self._asked(group)
        while not alone and too_small.any():
            group = group | too_small
            if group.all():
                group = np.arange(self.b.size) == np.argmin(self.sizes)
                rise, _ = self._asked(group)
                break
            rise, too_small = self._asked(group)
        if rise < self.least_rise:
            # Clusters outbid each other: by more the next time, and it ends.
            rise, self.least_rise = self.least_rise, 1.5 * self.least_rise
        b = self.b.copy()
        b[group] += b.dtype.type(rise)
        self.set_prices(b)

    def _asked(self, group: NDArray) -> tuple[float, NDArray]:
        """Return the rise that fills some clusters together, and those it leaves too small."""
        rivals = self.best_of_others(group)
        # Row i comes to the group where its prices rise by more than this.
        asked = -self.lead(group)
        last = weighted_quantile(asked, self.p, self.least * np.count_nonzero(group))
        stays = asked > last
        left = sums_by_label(rivals, self.p * stays, self.b.size)
        first = float(np.where(stays, asked, np.inf).min())
        rise = 0.5 * (last + first) if np.isfinite(first) else last
        return rise, (left < self.least) & (left < self.sizes) & ~group

    def lowered(self, rounds: int) -> NDArray:
        """Return the prices after those of clusters that are too large have come down."""
        for _ in range(rounds):
            before = self.b
            self.set_prices(self.b - self.b.min())
            for c in np.flatnonzero(self.b):
                self._lower(np.arange(self.b.size) == c)
            # All together, where rows are tied between two of them.
            self._lower(self.b > 0)
            if np.array_equal(self.b, before):
                break
        return self.b

    def _lower(self, group: NDArray) -> None:
        """Lower the prices of some clusters as far as their sizes allow."""
        least = self.least * np.count_nonzero(group)
        if not group.any() or self.sizes[group].sum() <= least:
            return
        # Row i goes where the prices fall by more than this.
        held = self.lead(group)
        last = -weighted_quantile(-held, self.p, least)
        goes = (held < last) & (held >= 0)
        most = float(self.b[group].min())
        highest = float(np.where(goes, held, -np.inf).max())
        if np.isfinite(highest):
            most = min(most, 0.5 * (last + highest))
        elif last <= most:
            return
        before, b = self.b, self.b.copy()
        b[group] -= b.dtype.type(most)
        self.set_prices(b)
        if self.sizes.min() < self.least:
            # Tied rows, that are too many to go.
            self.set_prices(before)


class _RankedAuction(_Auction):
    """An auction of rows in memory, which knows the first and the second cluster of each row.

    A step that changes one offset costs n, not n k: a row is ranked again only where the cluster
    is among its first two, or comes to be.
    """

    def set_prices(self, b: NDArray) -> None:
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

    def _move(self, c: int, price: float) -> None:
        """Change one offset: rows for which the cluster may leave the first two are ranked."""
        column = self.f[:, c] + price
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
    """Return the column of the largest entry among some columns."""
    return np.argmax(np.where(some, g, -np.inf), axis=1)


def _lead_of_columns(g: NDArray, some: NDArray) -> NDArray:
    """Return by how much the largest of some columns is above the largest of the others."""
    return g[:, some].max(axis=1) - g[:, ~some].max(axis=1)
