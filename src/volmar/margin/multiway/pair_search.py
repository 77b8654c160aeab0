"""Search for the most violated labelling of k clusters under the Rand loss."""

from __future__ import annotations

import heapq
from itertools import count
from typing import Any, NamedTuple

import daqp
import numpy as np
from numpy.typing import NDArray

# Maximum number of cuts in the dual of a box, and of tables that a box passes to its halves.
MAX_CUTS, MAX_TABLES = 60, 40
# A box is split in the middle if its best table is closer than this share of its width to an end.
NEAR_END = 0.1
# Maximum number of boxes whose mixtures are rounded to labels, and of single-row moves from there.
MAX_ROUNDED, MAX_MOVES = 10, 20
# Value added to the diagonal of the quadratic programme of the tables to make it definite.
RIDGE = 1e-9


class FoundLabelling(NamedTuple):
    """Labels y' with their slack, and an upper bound of the slack of all labels."""

    labels: NDArray
    slack: float
    upper: float
    n_boxes: int


class _Box(NamedTuple):
    """Bounds of the cluster sizes of y', in rows."""

    low: NDArray
    high: NDArray

    def tightened(self, n: int) -> _Box | None:
        """Return the box without sizes that cannot sum to n with the others; None if empty."""
        low, high = self
        for _ in range(2):
            low = np.maximum(low, n - (high.sum() - high))
            high = np.minimum(high, n - (low.sum() - low))
        return None if (low > high).any() else _Box(low, high)


class _Bound(NamedTuple):
    """An upper bound on a box, with its multipliers and mean table."""

    upper: float
    multipliers: NDArray
    table: NDArray
    tables: list[tuple[NDArray, float]]


def most_violated_pairs(
    y: NDArray, f: NDArray, rho: float, *, tol: float = 1e-3, max_boxes: int = 400
) -> FoundLabelling:
    r"""Find the labels y' with the largest slack under the Rand loss, with a certificate.

    With :math:`\Delta` one minus the Rand index, they maximise

    .. math:: \rho \Delta(y, y') + \frac1n \sum_i (f_{i y'_i} - f_{i y_i}).

    Let :math:`\tau_{pj}` be the share of all rows with y = p and y' = j, and :math:`\mu_j` and
    :math:`r_p` its sums over p and j. Then

    .. math:: \Delta = \frac{n}{n - 1} \Bigl( \sum_p r_p^2 + \sum_j \mu_j^2
              - 2 \sum_{pj} \tau_{pj}^2 \Bigr).

    In each column of the table this quadratic form has the eigenvalue k - 2 along the sum and -2
    across it. For two clusters it is concave. For k > 2 it is a concave form plus
    :math:`(1 - 2/k) \sum_j \mu_j^2`, which is convex, but only in the k - 1 free sizes. Over a box
    of sizes the chord :math:`\mu^2 \le (l + u) \mu - l u` makes it concave, with an error of at
    most :math:`(1 - 2/k) \sum_j (u_j - l_j)^2 / 4`. A branch and bound over boxes of *sizes*,
    instead of the :math:`O(n^{k (k - 1)})` tables, therefore needs a number of boxes that does not
    depend on n.

    The bound of a box is the dual of the concave problem in :math:`\lambda`, with one multiplier
    per entry of the table,

    .. math:: \frac1n \sum_i \max_j (f_{ij} - f_{i y_i} + \lambda_{y_i j}) + \max_\tau \bigl(
              q(\tau) - \langle \lambda, \tau \rangle \bigr),

    whose second part has a closed form. Any :math:`\lambda` gives a valid bound. It is found by a
    quadratic programme over the tables seen so far, and the maxima of the rows give the next
    table. Tables count whole rows, while the bound allows fractions: a difference of at most about
    :math:`k^2 / (2 n^2)` remains, however small the boxes are.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Labels from 0.
    f : ndarray of shape (n, k)
        Scores.
    rho : float
        Margin.
    tol : float, default=1e-3
        The search stops once the bound is within `tol`, in units of rho.
    max_boxes : int, default=400
        Maximum number of boxes. The bound is also valid if the search stops at it.
    """
    n = f.shape[0]
    rows = np.arange(n)
    gains = f.astype(np.float64)
    gains -= gains[rows, y][:, None]
    if n < 2 or rho <= 0.0:
        z = np.argmax(gains, axis=1)
        slack = float(gains[rows, z].mean())
        return FoundLabelling(z, slack, slack, 0)
    search = _Search(y, gains / rho)
    found = search.run(tol, max_boxes)
    return found._replace(slack=rho * found.slack, upper=rho * found.upper)


class _Search:
    """A branch and bound, in units of rho."""

    def __init__(self, y: NDArray, gains: NDArray):
        self.y, self.gains = y, gains
        self.n, self.k = gains.shape
        self.factor = self.n / (self.n - 1)
        self.squares = float(np.square(np.bincount(y, minlength=self.k) / self.n).sum())
        self.convex = 1.0 - 2.0 / self.k
        self._rows = np.arange(self.n)
        self.best, self.labels = 0.0, y
        self.corners = [self._seen(np.full(self.n, j)) for j in range(self.k)]
        self.corners.append(self._seen(y))

    def run(self, tol: float, max_boxes: int) -> FoundLabelling:
        whole = _Box(np.zeros(self.k), np.full(self.k, float(self.n)))
        bound = self._bound(whole, np.zeros((self.k, self.k)), [], tol)
        numbers, n_boxes = count(), 1
        heap: list[Any] = [(-bound.upper, next(numbers), whole, bound)]
        closed = -np.inf
        self._round(bound)
        while heap:
            minus_upper, _, box, bound = heapq.heappop(heap)
            upper = max(-minus_upper, closed)
            if upper <= self.best + tol or n_boxes >= max_boxes:
                return FoundLabelling(self.labels, self.best, max(upper, self.best), n_boxes)
            halves = self._halves(box, bound.table)
            if not halves:
                # All sizes are fixed; the remaining difference comes from fractions of rows.
                closed = max(closed, bound.upper)
            for half in halves:
                part = self._bound(half, bound.multipliers, bound.tables, tol)
                n_boxes += 1
                if n_boxes <= MAX_ROUNDED and part.upper > self.best + tol:
                    self._round(part)
                upper = min(part.upper, bound.upper)
                heapq.heappush(heap, (-upper, next(numbers), half, part))
        return FoundLabelling(self.labels, self.best, max(closed, self.best), n_boxes)

    def _halves(self, box: _Box, table: NDArray) -> list[_Box]:
        low, high = box
        if (low == high).all():
            return []
        sizes = np.clip(self.n * table.sum(axis=0), low, high)
        j = int(np.argmax((high - sizes) * (sizes - low) + 1e-9 * (high - low)))
        cut, width = sizes[j], high[j] - low[j]
        if min(cut - low[j], high[j] - cut) < NEAR_END * width:
            cut = 0.5 * (low[j] + high[j])
        below, above = high.copy(), low.copy()
        below[j] = min(np.floor(cut), high[j] - 1)
        above[j] = below[j] + 1
        parts = (_Box(low, below).tightened(self.n), _Box(above, high).tightened(self.n))
        return [part for part in parts if part is not None]

    def _seen(self, z: NDArray) -> tuple[NDArray, float]:
        """Return the table of labels and their mean gain, and store the best labels."""
        table = np.bincount(self.y * self.k + z, minlength=self.k**2) / self.n
        table = table.reshape(self.k, self.k)
        gain = float(self.gains[self._rows, z].mean())
        loss = self.squares + np.square(table.sum(axis=0)).sum() - 2.0 * np.square(table).sum()
        slack = self.factor * float(loss) + gain
        if slack > self.best:
            self.best, self.labels = slack, z
        return table, gain

    def _round(self, bound: _Bound) -> None:
        """Try labels whose table is close to the mixture of a bound, and improve them.

        The maxima of the rows move rows with equal scores together. Here the rows with the
        clearest preference choose first, up to the counts of the mixture.
        """
        scores = self.gains + bound.multipliers[self.y]
        z = np.empty(self.n, dtype=np.intp)
        for p in range(self.k):
            (rows,) = np.nonzero(self.y == p)
            if not rows.size:
                continue
            own = scores[rows]
            top = np.sort(own, axis=1)
            rows = rows[np.argsort(top[:, -2] - top[:, -1], kind="stable")]
            room = _whole(rows.size * bound.table[p] / bound.table[p].sum(), rows.size)
            # Each row in turn takes its best cluster with room, in bulk until a cluster is full.
            while rows.size:
                choice = np.argmax(np.where(room > 0, scores[rows], -np.inf), axis=1)
                rank = _rank_among_equal(choice, self.k)
                fits = np.cumsum(rank >= room[choice]) == 0
                z[rows[fits]] = choice[fits]
                room -= np.bincount(choice[fits], minlength=self.k)
                rows = rows[~fits]
        self._ascend(z)

    def _ascend(self, z: NDArray) -> None:
        """Move single rows to other clusters while this raises the slack."""
        k, n = self.k, self.n
        steps = 2.0 * self.factor / n**2
        for _ in range(MAX_MOVES):
            table, _gain = self._seen(z)
            counts, sizes = n * table, n * table.sum(axis=0)
            # A move from a to b in class p changes two sizes and two entries of the table by 1.
            loss = sizes[None, :] - 2.0 * counts
            change = steps * (loss[self.y] - loss[self.y, z][:, None] - 1.0)
            change += (self.gains - self.gains[self._rows, z][:, None]) / n
            change[self._rows, z] = -np.inf
            best = int(np.argmax(change))
            if change.flat[best] <= 1e-13:
                return
            z = z.copy()
            z[best // k] = best % k

    def _bound(
        self, box: _Box, multipliers: NDArray, tables: list[tuple[NDArray, float]], tol: float
    ) -> _Bound:
        """Minimise the dual of a box by cuts, from the multipliers of the enclosing box."""
        low, high = box.low / self.n, box.high / self.n
        upper, seen = self._dual(multipliers, low, high)
        best = _Bound(upper, multipliers, seen[0], [])
        known = [*self.corners, *tables, seen]
        for _ in range(MAX_CUTS):
            if best.upper <= self.best + tol:
                break
            solved = self._combined(known, low, high)
            if solved is None:
                break
            multipliers, table, value, active = solved
            upper, seen = self._dual(multipliers, low, high)
            if upper < best.upper:
                best = _Bound(upper, multipliers, table, active)
            if upper - value <= 0.25 * tol:
                break
            known.append(seen)
        return best

    def _dual(
        self, multipliers: NDArray, low: NDArray, high: NDArray
    ) -> tuple[float, tuple[NDArray, float]]:
        """Return the dual value, an upper bound on the box, and the table of the row maxima."""
        scores = self.gains + multipliers[self.y]
        z = np.argmax(scores, axis=1)
        mean = multipliers.mean(axis=0)
        slope = self.factor * self.convex * (low + high) - mean
        upper = float(scores[self._rows, z].mean())
        upper += float(np.square(multipliers - mean).sum()) / (8.0 * self.factor)
        upper += float(np.maximum(slope * low, slope * high).sum())
        upper += self.factor * (self.squares - self.convex * float(low @ high))
        return upper, self._seen(z)

    def _combined(
        self, known: list[tuple[NDArray, float]], low: NDArray, high: NDArray
    ) -> tuple[NDArray, NDArray, float, list[tuple[NDArray, float]]] | None:
        """Return multipliers, mean table, value and tables of the best mixture in the box."""
        tables = np.array([table for table, _ in known])
        sizes, size = tables.sum(axis=1), len(known)
        across = (tables - tables.mean(axis=1, keepdims=True)).reshape(size, -1)
        linear = np.array([gain for _, gain in known])
        linear += self.factor * self.convex * (sizes @ (low + high))
        hessian = 4.0 * self.factor * (across @ across.T)
        hessian[np.diag_indices(size)] += RIDGE
        rows = np.ascontiguousarray(np.vstack([np.ones(size), sizes.T]))
        lower = np.concatenate([np.zeros(size), [1.0], low])
        upper = np.concatenate([np.ones(size), [1.0], high])
        sense = np.zeros(lower.size, dtype=np.int32)
        sense[size] = 5  # equality constraint
        weights, _, flag, info = daqp.solve(hessian, -linear, rows, upper, lower, sense)
        if flag < 0:
            return None
        table = np.tensordot(weights, tables, 1)
        offsets = table - table.mean(axis=0)
        multipliers = self.factor * (self.convex * (low + high) - 4.0 * offsets)
        multipliers -= info["lam"][size + 1 :]
        value = float(weights @ linear) - 2.0 * self.factor * float(np.square(offsets).sum())
        value += self.factor * (self.squares - self.convex * float(low @ high))
        order = np.argsort(-weights)[:MAX_TABLES]
        first = len(self.corners)
        active = [known[i] for i in order if weights[i] > 0 and i >= first]
        return multipliers, table, value, active


def _whole(counts: NDArray, total: int) -> NDArray:
    """Return whole numbers close to the counts, with the same sum."""
    whole = np.floor(counts)
    order = np.argsort(whole - counts, kind="stable")
    whole[order[: round(total - whole.sum())]] += 1
    return whole.astype(np.intp)


def _rank_among_equal(choice: NDArray, k: int) -> NDArray:
    """Return the number of equal entries before each entry."""
    rank = np.empty(choice.size, dtype=np.intp)
    for j in range(k):
        (those,) = np.nonzero(choice == j)
        rank[those] = np.arange(those.size)
    return rank
