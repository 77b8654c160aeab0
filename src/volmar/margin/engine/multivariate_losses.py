"""Losses of a whole labelling, not of single rows, with their most violated cuts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from volmar.margin.engine.problem import Violated

# Losses lie between 0 and 1. If they differ by less they count as equal, and the scores decide.
ROUNDING = 1e-12


@dataclass(frozen=True)
class ErrorLoss:
    r"""Twice the share of the flipped rows (multivariate MMC, theorem 2).

    With :math:`\Delta = 2 |c| / n` the slack of the most violated cut is
    :math:`\frac2n \sum_i \max(0, \rho - y_i f_i)`: the hinge loss at twice the C. The paper's sums
    over rows are means here, so the univariate problem arises at half its C for every n.
    """

    scale: ClassVar[float] = 2.0

    def violated(self, y: NDArray, f: NDArray, rho: float) -> Violated:
        """Flip the rows inside the margin; no order is needed."""
        margins = _margins(y, f).astype(np.float64)
        chosen = margins < rho
        cost = 2.0 / y.size * float(margins[chosen].sum())
        return _cut(chosen, self.value(y, chosen), rho, cost)

    def first(self, y: NDArray, f: NDArray) -> Violated:  # noqa: ARG002
        """Flip all rows."""
        return Violated(np.ones(y.size, dtype=bool), 2.0, math.nan)

    def value(self, y: NDArray, chosen: NDArray) -> float:  # noqa: ARG002 -- labels do not matter
        """Return twice the share of the chosen rows."""
        return 2.0 * float(chosen.mean())


@dataclass(frozen=True)
class RandLoss:
    r"""One minus the Rand index of the labels and the flipped ones (multivariate MMC eq. 5).

    The two labellings disagree on a pair if exactly one of its rows is flipped. With e flips
    these are :math:`e (n - e)` pairs for any choice of the rows:

    .. math:: \Delta = 1 - RI = e (n - e) \Big/ \binom n2.

    The best e flips are therefore those with the smallest :math:`y_i f_i`, and one sort finds the
    most violated cut. The paper scans :math:`O(n^2)` contingency tables.
    """

    scale: ClassVar[float] = 2.0

    def violated(self, y: NDArray, f: NDArray, rho: float) -> Violated:
        """Scan the number of flips."""
        margins = _margins(y, f)
        ascending = np.sort(margins)
        sums = _prefix_sums(ascending, margins.size)
        losses = self._losses(margins.size)
        e = int(np.argmax(rho * losses - sums))
        return _cut(_smallest(margins, ascending, e), float(losses[e]), rho, float(sums[e]))

    def first(self, y: NDArray, f: NDArray) -> Violated:
        """Flip half of the rows."""
        margins = _margins(y, f)
        ascending = np.sort(margins)
        e = margins.size // 2
        if margins.size % 2 and ascending[e] < 0:
            e += 1
        m = float(self._losses(margins.size)[e])
        return Violated(_smallest(margins, ascending, e), m, math.nan)

    def value(self, y: NDArray, chosen: NDArray) -> float:
        """Return the share of the pairs with exactly one chosen row."""
        return float(self._losses(y.size)[np.count_nonzero(chosen)])

    @staticmethod
    def _losses(n: int) -> NDArray:
        e = np.arange(n + 1, dtype=np.float64)
        return e * (n - e) / max(n * (n - 1) / 2, 1)


class _ContingencyLoss(ABC):
    r"""A loss of the contingency table of labels and flipped labels, concave along diagonals.

    Let p of the :math:`n_+` positive rows and q of the :math:`n_-` negative ones be flipped, and
    :math:`r = n_+ - p + q` be the size of the positive cluster after the flips. With a convex
    :math:`\varphi` let

    .. math:: W_k(p) = \varphi(n_k) - \varphi(p) - \varphi(n_k - p) \ge 0

    measure the change that the flips make in class k. It is concave, and the losses have the form

    .. math:: \Delta = \text{offset}(r) + \text{slope}(r) \, (W_+(p) + W_-(q)),
              \qquad \text{slope} \ge 0.

    The most violated cut maximises

    .. math:: \rho \Delta(p, q) - \frac2n \Big( \sum_{i \le p} s^+_i + \sum_{i \le q} s^-_i \Big)

    with :math:`s^\pm` the margins :math:`y_i f_i` of a class in ascending order. Tables with the
    same r form a diagonal: each has one more flip in both classes than the one before. Sums of
    sorted margins are convex and the W are concave, so the gain of a step decreases along the
    diagonal. Its change of sign is found by bisection, for all values of r at once, in
    :math:`O(n \log n)` time. The paper scans all :math:`(n_+ + 1) (n_- + 1)` tables.
    """

    scale: ClassVar[float] = 2.0

    def violated(self, y: NDArray, f: NDArray, rho: float) -> Violated:
        """Compare the best cuts for all cluster sizes of the flipped labels."""
        rows = _SortedRows(y, f)
        best = _Contenders.best(_tables(self, rows.n_plus, rows.n_minus), rows.costs, rho)
        i = np.argmax(best.values)
        chosen = rows.flipped(int(best.p[i]), int(best.q[i]))
        return _cut(chosen, float(best.losses[i]), rho, float(best.sums[i]))

    def first(self, y: NDArray, f: NDArray) -> Violated:
        """Compare the largest losses for all cluster sizes of the flipped labels."""
        rows = _SortedRows(y, f)
        best = _tables(self, rows.n_plus, rows.n_minus).largest
        i = np.argmin(rows.costs.sums(best.p, best.q))
        chosen = rows.flipped(int(best.p[i]), int(best.q[i]))
        return Violated(chosen, float(best.losses[i]), math.nan)

    def value(self, y: NDArray, chosen: NDArray) -> float:
        positive = y > 0
        n_plus = int(positive.sum())
        p, q = int(chosen[positive].sum()), int(chosen[~positive].sum())
        return float(_tables(self, n_plus, y.size - n_plus).losses(n_plus - p + q, p, q))

    @abstractmethod
    def _phi(self, counts: NDArray) -> NDArray:
        """Return the convex function phi of the counts."""

    @abstractmethod
    def _offset_and_slope(self, phi: NDArray, n_plus: int) -> tuple[NDArray, NDArray]:
        """Return offset and slope for all r, from phi(0), ..., phi(n)."""


@dataclass(frozen=True)
class FBetaLoss(_ContingencyLoss):
    r"""One minus the F measure over pairs of rows (multivariate MMC eq. 19).

    The labels y are the truth. Let P be the number of pairs in their clusters and Q(r) that of the
    flipped labels. Flips separate :math:`W = p (n_+ - p) + q (n_- - q)` of the P pairs (false
    negatives) and leave :math:`P - W` in common, so that

    .. math:: \Delta = 1 - F_\beta = \frac{\beta^2 W + (Q - P + W)}{\beta^2 P + Q}.

    With `beta` above 1, splitting a cluster costs more than joining two. The default is that of
    the paper's table V.
    """

    beta: float = 1.5

    def __post_init__(self) -> None:
        if not 0 < self.beta < math.inf:
            raise ValueError(
                f"beta must be a positive finite number, got {self.beta!r}. The paper uses 1.5."
            )

    def _phi(self, counts: NDArray) -> NDArray:
        return 0.5 * counts * (counts - 1)

    def _offset_and_slope(self, phi: NDArray, n_plus: int) -> tuple[NDArray, NDArray]:
        Q = phi + phi[::-1]
        bottom = self.beta**2 * Q[n_plus] + Q
        # If neither clustering has pairs (n <= 2), all rows are single in both, without loss.
        bottom[bottom == 0] = np.inf
        return (Q - Q[n_plus]) / bottom, (1 + self.beta**2) / bottom


@dataclass(frozen=True)
class NMILoss(_ContingencyLoss):
    r"""One minus the normalised mutual information (multivariate MMC eq. 2).

    With :math:`\varphi(k) = k \log k`, W is n times the conditional entropy :math:`H(y' | y)` of
    the flipped labels y'. Their entropy H(y') depends on r only:

    .. math:: \Delta = 1 - \frac{H(y') - H(y' | y)}{\sqrt{H(y) H(y')}}.

    If this is 0/0, one of the labellings has a single cluster. The loss is then 1 if the other has
    two, and 0 if it has one as well, as in scikit-learn's score.
    """

    def _phi(self, counts: NDArray) -> NDArray:
        return xlogy(counts, counts)

    def _offset_and_slope(self, phi: NDArray, n_plus: int) -> tuple[NDArray, NDArray]:
        entropy = phi[-1] - (phi + phi[::-1])  # n H(y') for all r
        own = entropy[n_plus]
        if own == 0:
            return (entropy > 0).astype(np.float64), np.zeros(phi.size)
        two = entropy > 0
        slope = np.zeros(phi.size)
        slope[two] = 1.0 / np.sqrt(own * entropy[two])
        return 1.0 - np.sqrt(entropy / own), slope


@dataclass(frozen=True)
class _Tables:
    """The losses of all contingency tables: offset and slope by r, W of the classes by flips."""

    offset: NDArray
    slope: NDArray
    broken_plus: NDArray
    broken_minus: NDArray

    @property
    def n_plus(self) -> int:
        return self.broken_plus.size - 1

    @property
    def n_minus(self) -> int:
        return self.broken_minus.size - 1

    @cached_property
    def steps(self) -> tuple[NDArray, NDArray]:
        """Increase of W by the p-th flip, per class, with an additional entry at both ends."""
        return _padded(np.diff(self.broken_plus), 0.0), _padded(np.diff(self.broken_minus), 0.0)

    @cached_property
    def largest(self) -> _Contenders:
        """The tables with the largest loss.

        One per r is enough, because no two tables with the same r have the largest loss. For NMI
        the largest loss is 1, at independent labels, which occurs once per diagonal. For F, of two
        tables (p, q) and (p + 1, q + 1) with equal W, (p + 1, q) or (p, q + 1) between them has a
        larger loss.
        """
        free = _Costs(np.zeros(self.n_plus), np.zeros(self.n_minus), 1)
        losses = _Contenders.best(self, free, 1.0).losses
        return _Contenders.best(self, free, 1.0, np.flatnonzero(losses >= losses.max() - ROUNDING))

    def losses(self, r: NDArray | int, p: NDArray | int, q: NDArray | int) -> NDArray:
        """Return the losses of p and q flips, r = n_plus - p + q."""
        losses = self.offset[r] + self.slope[r] * (self.broken_plus[p] + self.broken_minus[q])
        return np.clip(losses, 0.0, 1.0)

    def best_flips(self, r: NDArray, rho: float, costs: _Costs) -> tuple[NDArray, NDArray]:
        """Return p and q that maximise rho * slope * W minus the costs, for each r."""
        (plus, minus), (cost_plus, cost_minus) = self.steps, costs.single
        weight, shift = rho * self.slope[r], r - self.n_plus
        p, last = np.maximum(0, -shift), np.minimum(self.n_plus, self.n_minus - shift)
        for k in reversed(range(int((last - p).max()).bit_length())):
            further = np.minimum(p + (1 << k), last)
            q = further + shift
            gain = weight * (plus[further] + minus[q])
            p = np.where(gain > cost_plus[further] + cost_minus[q], further, p)
        return p, p + shift


@lru_cache(maxsize=2)
def _tables(loss: _ContingencyLoss, n_plus: int, n_minus: int) -> _Tables:
    """Return the tables of a loss, which change only with the number of positive rows."""
    phi = _phi(loss, n_plus + n_minus)
    offset, slope = loss._offset_and_slope(phi, n_plus)
    return _Tables(offset, slope, _broken(phi, n_plus), _broken(phi, n_minus))


@lru_cache(maxsize=2)
def _phi(loss: _ContingencyLoss, n: int) -> NDArray:
    return loss._phi(np.arange(n + 1, dtype=np.float64))


class _Costs:
    """Costs of flips: those of single flips per class, ascending, and their prefix sums."""

    def __init__(self, plus: NDArray, minus: NDArray, n: int):
        self._sums = _prefix_sums(plus, n), _prefix_sums(minus, n)
        # No flip comes before the first or after the last.
        self.single = _padded(plus, np.inf, 2.0 / n), _padded(minus, np.inf, 2.0 / n)

    def sums(self, p: NDArray, q: NDArray) -> NDArray:
        """Return the total cost of the p and q cheapest flips."""
        return self._sums[0][p] + self._sums[1][q]


class _Contenders(NamedTuple):
    """The best tables of some r."""

    p: NDArray
    q: NDArray
    losses: NDArray
    sums: NDArray
    values: NDArray

    @classmethod
    def best(
        cls, tables: _Tables, costs: _Costs, rho: float, r: NDArray | None = None
    ) -> _Contenders:
        r = np.arange(tables.offset.size) if r is None else r
        p, q = tables.best_flips(r, rho, costs)
        losses, sums = tables.losses(r, p, q), costs.sums(p, q)
        return cls(p, q, losses, sums, rho * losses - sums)


def _padded(inner: NDArray, end: float, unit: float = 1.0) -> NDArray:
    """Return the array in double precision, times the unit, with -end before and end after it."""
    padded = np.empty(inner.size + 2)
    padded[0], padded[-1] = -end, end
    np.multiply(inner, unit, dtype=np.float64, out=padded[1:-1])
    return padded


class _SortedRows:
    def __init__(self, y: NDArray, f: NDArray):
        self.n = y.size
        self.positive = y > 0
        self.margins = _margins(y, f)
        self.plus = self.margins.compress(self.positive)
        self.minus = self.margins.compress(~self.positive)
        self.n_plus, self.n_minus = self.plus.size, self.minus.size
        self.ascending = np.sort(self.plus), np.sort(self.minus)
        self.costs = _Costs(*self.ascending, self.n)

    def flipped(self, p: int, q: int) -> NDArray:
        plus, minus = self.ascending
        last = np.where(
            self.positive, plus[p - 1] if p else -np.inf, minus[q - 1] if q else -np.inf
        )
        chosen = self.margins <= last
        if np.count_nonzero(chosen) > p + q:
            chosen[self.positive] = _smallest(self.plus, plus, p)
            chosen[~self.positive] = _smallest(self.minus, minus, q)
        return chosen


def _margins(y: NDArray, f: NDArray) -> NDArray:
    """Return y f in the precision of f."""
    return np.where(y > 0, f, -f)


def _prefix_sums(ascending: NDArray, n: int) -> NDArray:
    """Return the sums of the first 0, 1, ... margins, times 2/n."""
    sums = np.zeros(ascending.size + 1)
    np.cumsum(ascending, dtype=np.float64, out=sums[1:])
    sums *= 2.0 / n
    return sums


def _smallest(margins: NDArray, ascending: NDArray, count: int) -> NDArray:
    """Return a mask of exactly `count` rows with the smallest margins; ties go to the first."""
    if count == 0:
        return np.zeros(margins.size, dtype=bool)
    last = ascending[count - 1]
    chosen = margins < last
    ties = np.flatnonzero(margins == last)
    chosen[ties[: count - np.count_nonzero(chosen)]] = True
    return chosen


def _broken(phi: NDArray, n: int) -> NDArray:
    """Return W(0), ..., W(n) of a class of n rows."""
    return phi[n] - (phi[: n + 1] + phi[n::-1])


def _cut(chosen: NDArray, m: float, rho: float, cost: float) -> Violated:
    """Return a cut with its slack, which is at least 0, that of no flips."""
    return Violated(chosen, m, max(float(rho * m - cost), 0.0))
