"""Labels by the largest score, where every cluster must have a minimum size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Rises of prices, for each cluster, after which sizes are given up.
MAX_RISES = 10
# Rounds of lower prices: of few rows, where they end by themselves, and after a guess.
MAX_LOWERED, LOWERED_AFTER_GUESS = 50, 3
# Rows from twice as many on, prices are guessed from this many.
MANY_ROWS = 5000
# Least rise of a price, as a share of the spread of the scores.
LEAST_RISE = 1e-7
# Share of a size that is rounding.
ROUNDING = 1e-9


def shares_of_clusters(labels: NDArray, k: int, shares: NDArray | None) -> NDArray:
    """Return the share of the rows, or of their weight, in each of k clusters."""
    sizes = np.bincount(labels, shares, minlength=k)
    return sizes / labels.size if shares is None else sizes


def size_prices(f: NDArray, shares: NDArray | None, floor: float) -> NDArray | None:
    r"""Return offsets with which every cluster of the largest scores has its minimum size.

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

    `shares` are the p_i (None for 1/n) and `floor` is s, at most 1/k. None where no prices were
    found, as for too few different rows.
    """
    n, k = f.shape
    b = np.zeros(k, dtype=f.dtype)
    sizes = shares_of_clusters(np.argmax(f, axis=1), k, shares)
    least = floor * (1.0 - ROUNDING)
    if sizes.min() >= least:
        return b
    p = np.full(n, 1.0 / n) if shares is None else shares
    auction, rounds = _Auction(f, p, least), MAX_LOWERED
    few = slice(None, None, n // MANY_ROWS + 1)
    if n > 2 * MANY_ROWS and p[few].sum() > 0:
        guess = size_prices(f[few], p[few] / p[few].sum(), floor)
        if guess is not None:
            auction.set_prices(guess)
            rounds = LOWERED_AFTER_GUESS
    for step in range(MAX_RISES * k):
        if auction.sizes.min() >= least:
            break
        auction.rise(alone=step % 2 == 0)
    return auction.lowered(rounds) if auction.sizes.min() >= least else None


class _Auction:
    def __init__(self, f: NDArray, p: NDArray, least: float):
        self.f, self.p, self.least = f, p, least
        self.least_rise = LEAST_RISE * float(np.ptp(f))
        self.set_prices(np.zeros(f.shape[1], dtype=f.dtype))

    def set_prices(self, b: NDArray) -> None:
        self.b, self.g = b, self.f + b
        self.sizes = shares_of_clusters(np.argmax(self.g, axis=1), b.size, self.p)

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
        others = np.where(group, -np.inf, self.g)
        rivals = np.argmax(others, axis=1)
        # Row i comes to the group where its prices rise by more than this.
        asked = others[np.arange(len(others)), rivals] - self.g[:, group].max(axis=1)
        last = _quantile(asked, self.p, self.least * np.count_nonzero(group))
        stays = asked > last
        left = np.bincount(rivals[stays], self.p[stays], minlength=self.b.size)
        rise = 0.5 * float(last + asked[stays].min()) if stays.any() else last
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
        held = self.g[:, group].max(axis=1) - self.g[:, ~group].max(axis=1)
        last = -_quantile(-held, self.p, least)
        goes = (held < last) & (held >= 0)
        most = float(self.b[group].min())
        if goes.any():
            most = min(most, 0.5 * float(last + held[goes].max()))
        elif last <= most:
            return
        before, b = self.b, self.b.copy()
        b[group] -= b.dtype.type(most)
        self.set_prices(b)
        if self.sizes.min() < self.least:
            # Tied rows, that are too many to go.
            self.set_prices(before)


def _quantile(values: NDArray, p: NDArray, share: float) -> float:
    """Return the smallest value up to which values have the share of p."""
    order = np.argsort(values)
    total = np.cumsum(p[order])
    return float(values[order[min(int(np.searchsorted(total, share)), order.size - 1)]])
