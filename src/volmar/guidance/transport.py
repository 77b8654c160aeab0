"""Labels with the largest gains under limits on cluster weights, by a transport problem."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

# Minimum number of rows nearest to a border that the first search may move, and their number per
# row that has to move.
NEAR_ROWS, ROWS_PER_MOVE = 2000, 30


class Transport(NamedTuple):
    """A solution of the transport of rows to clusters.

    `labels` holds the cluster with the largest share of each row, and `offsets` the multipliers of
    the limits. `bound` is the value of the dual at the offsets: no labels within the limits have a
    larger gain. `split` lists the rows that are divided between clusters; if all weights are
    equal, there are none.
    """

    labels: NDArray
    offsets: NDArray
    bound: float
    split: NDArray


def transport(
    gains: NDArray, weights: NDArray, limits: Limits, start: NDArray | None = None
) -> Transport:
    r"""Maximise the gains of rows, which may be divided between clusters of limited weight.

    .. math:: \max_{x \ge 0} \sum_{ic} w_i x_{ic} g_{ic} \quad\text{s.t.}\quad \sum_c x_{ic} = 1,
        \quad l_c \le \sum_i w_i x_{ic} \le h_c

    The dual has one offset per cluster. `smooth_offsets` solves it approximately. Excess rows are
    then moved along shortest paths in the graph of the clusters, where the length of an arc is the
    smallest loss of moving a row from one cluster to the other. Labels stay optimal for the
    offsets after each path, so the final labels are optimal.
    """
    total = float(weights.sum())
    limits = Limits(np.maximum(limits.low, 0.0), np.minimum(limits.high, total))
    labels = np.argmax(gains, axis=1)
    if limits.excess(np.bincount(labels, weights, gains.shape[1])) == 0:
        offsets = np.zeros(gains.shape[1])
        bound = float(weights @ gains[np.arange(labels.size), labels])
        return Transport(labels, offsets, bound, np.empty(0, dtype=np.int64))
    # If the limits leave no choice of weights they are equalities, and offsets can have any sign.
    is_full = limits.high.sum() <= total * (1 + 1e-12)
    is_minimal = limits.low.sum() >= total * (1 - 1e-12)
    if is_full or is_minimal:
        exact = limits.high if is_full else limits.low
        found = _solved(gains, weights, Limits(exact, exact), start)
        offsets = found.offsets - (found.offsets.max() if is_full else found.offsets.min())
        return found._replace(offsets=offsets)
    return _solved(gains, weights, limits, start)


def _solved(gains: NDArray, weights: NDArray, limits: Limits, start: NDArray | None) -> Transport:
    offsets = smooth_offsets(gains, weights, limits, start)
    near = _near_borders(gains, weights, limits, offsets)
    while True:
        search = _Search(gains, weights, limits, offsets, near)
        is_done = search.run()
        found = search.result()
        own = float(search.amount @ gains[search.row, search.cluster])
        rounding = 1e-11 * float(weights @ np.abs(gains).max(axis=1))
        if near is None or (is_done and found.bound - own <= rounding):
            return found
        offsets, near = found.offsets, None


def _near_borders(
    gains: NDArray, weights: NDArray, limits: Limits, offsets: NDArray
) -> NDArray | None:
    """Return the rows that are likely to move, or None for all rows."""
    scores = gains + offsets
    labels = np.argmax(scores, axis=1)
    loads = np.bincount(labels, weights, gains.shape[1])
    moved = np.abs(loads - limits.flows(loads, offsets)).sum() / weights.mean()
    n_near = max(NEAR_ROWS, int(ROWS_PER_MOVE * moved))
    if n_near >= labels.size // 2:
        return None
    two = np.partition(scores, -2, axis=1)[:, -2:]
    return np.sort(np.argpartition(two[:, 1] - two[:, 0], n_near)[:n_near])


class _Search:
    """Successive shortest paths between the clusters and a sink, which receives all weight.

    A piece is a row, or a part of a row, in a cluster.
    """

    def __init__(
        self,
        gains: NDArray,
        weights: NDArray,
        limits: Limits,
        offsets: NDArray,
        near: NDArray | None,
    ) -> None:
        self.gains, self.weights, self.limits = gains, weights, limits
        self.k = gains.shape[1]
        self.row = np.arange(gains.shape[0])
        self.cluster = np.argmax(gains + offsets, axis=1)
        self.amount = weights.astype(np.float64)
        self.moves = np.arange(gains.shape[0]) if near is None else near  # pieces that may move
        self.potentials = np.append(offsets, 0.0)
        self.tiny = 1e-12 * float(weights.sum())
        loads = np.bincount(self.cluster, weights, self.k)
        self.flows = limits.flows(loads, offsets)
        self.excess = np.append(loads - self.flows, self.flows.sum() - weights.sum())
        self.excess[np.abs(self.excess) <= self.tiny] = 0.0
        # The smallest loss of moving a piece from one cluster to another, and that piece.
        self.losses = np.full((self.k, self.k), np.inf)
        self.pieces = np.zeros((self.k, self.k), dtype=np.int64)
        for cluster in range(self.k):
            self._refresh(cluster)

    def run(self) -> bool:
        """Move rows until no cluster has an excess; return False if that does not end."""
        for _ in range(20 * self.row.size):  # with more paths, weights split rows without end
            if not (self.excess > 0).any():
                return True
            path = self._shortest_path()
            if path is None:
                return False
            self._push(path)
        return False

    def result(self) -> Transport:
        offsets = self.potentials[:-1] - self.potentials[-1]
        k, m = self.k, self.gains.shape[0]
        shares = np.bincount(self.row, minlength=m)
        labels = np.empty(m, dtype=np.int64)
        labels[self.row[:m]] = self.cluster[:m]
        split = np.flatnonzero(shares > 1)
        if split.size:
            held = np.zeros((m, k))
            np.add.at(held, (self.row, self.cluster), self.amount)
            labels[split] = np.argmax(held[split], axis=1)
            split = split[np.count_nonzero(held[split] > self.tiny, axis=1) > 1]
        bound = dual_value(self.gains, self.weights, self.limits, offsets)
        if not split.size:
            offsets = centred_offsets(self.gains, self.weights, self.limits, labels, offsets)
        return Transport(labels, offsets, bound, split)

    def _refresh(self, cluster: int) -> None:
        """Update the smallest losses of moves from a cluster."""
        inside = self.moves[self.cluster[self.moves] == cluster]
        inside = inside[self.amount[inside] > 0]
        if inside.size == 0:
            self.losses[cluster] = np.inf
            return
        block = self.gains[self.row[inside]]
        lost = block[:, [cluster]] - block
        lowest = np.argmin(lost, axis=0)
        self.losses[cluster] = lost[lowest, np.arange(self.k)]
        self.losses[cluster, cluster] = np.inf
        self.pieces[cluster] = inside[lowest]

    def _lengths(self) -> NDArray:
        """Return the reduced lengths of the arcs, which are not negative."""
        k = self.k
        lengths = np.full((k + 1, k + 1), np.inf)
        lengths[:k, :k] = self.losses
        lengths[:k, k] = np.where(self.limits.high - self.flows > self.tiny, 0.0, np.inf)
        lengths[k, :k] = np.where(self.flows - self.limits.low > self.tiny, 0.0, np.inf)
        lengths += self.potentials[:, None] - self.potentials
        return np.maximum(lengths, 0.0)

    def _shortest_path(self) -> list[int] | None:
        """Find the shortest path from excess to deficit by Dijkstra's algorithm.

        The potentials are updated.
        """
        lengths = self._lengths()
        distances = np.where(self.excess > 0, 0.0, np.inf)
        before = np.full(self.k + 1, -1)
        open_ = distances.copy()
        while True:
            node = int(np.argmin(open_))
            distance = open_[node]
            if not np.isfinite(distance):
                return None
            if self.excess[node] < 0:
                break
            open_[node] = np.inf
            distances[node] = distance
            further = distance + lengths[node]
            shorter = further < distances
            distances[shorter] = further[shorter]
            open_[shorter] = further[shorter]
            before[shorter] = node
        self.potentials += np.minimum(distances, distance)
        path = [node]
        while before[node] >= 0:
            node = int(before[node])
            path.append(node)
        return path[::-1]

    def _push(self, path: list[int]) -> None:
        """Move as much weight as possible along a path."""
        end = self.k
        arcs = list(pairwise(path))
        weight = min(self.excess[path[0]], -self.excess[path[-1]])
        for a, b in arcs:
            if b == end:
                weight = min(weight, self.limits.high[a] - self.flows[a])
            elif a == end:
                weight = min(weight, self.flows[b] - self.limits.low[b])
            else:
                weight = min(weight, self.amount[self.pieces[a, b]])
        left = []
        arrived = []
        for a, b in arcs:
            if b == end:
                self.flows[a] += weight
            elif a == end:
                self.flows[b] -= weight
            else:
                left.append(a)
                arrived.append((self._moved(int(self.pieces[a, b]), b, weight), b))
        for a in left:
            self._refresh(a)
        for piece, b in arrived:
            gains = self.gains[self.row[piece]]
            lost = gains[b] - gains
            lost[b] = np.inf
            lower = lost < self.losses[b]
            self.losses[b, lower] = lost[lower]
            self.pieces[b, lower] = piece
        self.excess[path[0]] -= weight
        self.excess[path[-1]] += weight
        self.excess[np.abs(self.excess) <= self.tiny] = 0.0

    def _moved(self, piece: int, cluster: int, weight: float) -> int:
        """Move a piece, or a part of it; return the number of the moved piece."""
        if self.amount[piece] - weight <= self.tiny:
            self.cluster[piece] = cluster
            return piece
        self.amount[piece] -= weight
        self.row = np.append(self.row, self.row[piece])
        self.cluster = np.append(self.cluster, cluster)
        self.amount = np.append(self.amount, weight)
        new = self.row.size - 1
        self.moves = np.append(self.moves, new)
        return new


def centred_offsets(
    gains: NDArray, weights: NDArray, limits: Limits, labels: NDArray, offsets: NDArray
) -> NDArray:
    r"""Return optimal offsets for which all rows are as far from the borders as possible.

    Offsets :math:`\lambda` are optimal if :math:`\lambda_b - \lambda_a \le d_{ab}`, where
    :math:`d_{ab}` is the smallest loss of moving a row from a to b, and if their signs agree with
    `Limits.flows`. The largest :math:`\epsilon` for which
    :math:`\lambda_b - \lambda_a \le d_{ab} - \epsilon` has a solution is found by bisection;
    solutions are shortest paths. This maximises the smallest margin of all rows, so `predict`
    agrees with `labels` wherever that is possible.
    """
    k = gains.shape[1]
    loads = np.bincount(labels, weights, k)
    tiny = 1e-12 * float(weights.sum())
    arcs = np.full((k + 1, k + 1), np.inf)
    for a in range(k):
        inside = gains[labels == a]
        if inside.size:
            arcs[a, :k] = (inside[:, [a]] - inside).min(axis=0)
    arcs[k, :k] = np.where(loads > limits.low + tiny, 0.0, np.inf)
    arcs[:k, k] = np.where(loads < limits.high - tiny, 0.0, np.inf)
    np.fill_diagonal(arcs, 0.0)
    is_row = np.isfinite(arcs)
    is_row[k], is_row[:, k] = False, False
    np.fill_diagonal(is_row, val=False)
    pairs = (arcs + arcs.T)[is_row & is_row.T]
    if pairs.size == 0:
        return offsets
    # The shortest cycle of two clusters bounds the distance. This bound is tried first.
    low, high = 0.0, max(float(pairs.min()) / 2.0, 0.0)
    middle, best = high, None
    for _ in range(40):  # bisection
        found = _potentials(arcs - middle * is_row)
        if found is None:
            high = middle
        else:
            low, best = middle, found
        if high - low <= 1e-3 * high:
            break
        middle = (low + high) / 2.0
    return offsets if best is None else best[:k] - best[k]


def _potentials(arcs: NDArray) -> NDArray | None:
    """Return p with ``p[b] - p[a] <= arcs[a, b]`` by the Bellman-Ford algorithm, or None."""
    p = np.zeros(arcs.shape[0])
    for _ in range(arcs.shape[0]):
        new = np.minimum(p, (p[:, None] + arcs).min(axis=0))
        if np.array_equal(new, p):
            return p
        p = new
    return None


# ----------- offsets of clusters by a smoothed dual: the start of the exact search in `transport`


# Maximum number of temperatures without progress.
PATIENCE = 2
# A temperature spans this many times the weight that is in the wrong cluster.
SPANNED = 6.0


class Limits(NamedTuple):
    """Lower and upper limits of the weight of each cluster."""

    low: NDArray
    high: NDArray

    def flows(self, loads: NDArray, offsets: NDArray) -> NDArray:
        """Return the cluster weights that the signs of the offsets require.

        A negative offset requires the upper limit, and a positive offset the lower limit.
        """
        inside = np.clip(loads, self.low, self.high)
        return np.where(offsets < 0, self.high, np.where(offsets > 0, self.low, inside))

    def excess(self, loads: NDArray) -> float:
        """Return the total weight above the upper limits and below the lower limits."""
        over = np.maximum(loads - self.high, 0.0)
        return float((over + np.maximum(self.low - loads, 0.0)).sum())


def dual_value(gains: NDArray, weights: NDArray, limits: Limits, offsets: NDArray) -> float:
    r"""Return an upper bound on the gains of all labels within the limits.

    .. math:: \sum_i w_i \max_c (g_{ic} + \lambda_c) - \sum_c \min(l_c \lambda_c, h_c \lambda_c)

    This is the Lagrangian dual function; the bound holds for any offsets :math:`\lambda`.
    """
    best = float(weights @ (gains + offsets).max(axis=1))
    paid = np.where(offsets < 0, limits.high * offsets, limits.low * offsets)
    return best - float(paid.sum())


def smooth_offsets(
    gains: NDArray, weights: NDArray, limits: Limits, start: NDArray | None = None
) -> NDArray:
    r"""Return offsets for which the largest scores give nearly the required cluster weights.

    Newton's method is applied to :func:`dual_value`, with the maximum over clusters replaced by
    :math:`\tau \log \sum_c \exp(\cdot / \tau)`. Offsets of clusters between their limits are 0. A
    step that would change the sign of an offset ends at 0. The temperature :math:`\tau` falls
    until few rows have to be moved. For large data, a sample is solved first.
    """
    stride = gains.shape[0] // 4000
    if start is None and stride > 1:
        part = slice(None, None, stride)
        scale = float(weights[part].sum() / weights.sum())
        few = Limits(limits.low * scale, limits.high * scale)
        start = smooth_offsets(np.ascontiguousarray(gains[part]), weights[part], few)
    offsets = np.zeros(gains.shape[1]) if start is None else start.astype(np.float64)
    best, imbalance = offsets, _imbalance(gains, weights, limits, offsets)
    total, row = float(weights.sum()), float(weights.max())
    tau, patience = np.inf, PATIENCE
    for _ in range(15):  # temperatures
        if imbalance <= row * gains.shape[1] / 2:
            break
        tau = min(tau / 3.0, _band(gains, offsets, SPANNED * imbalance / total))
        if not tau > 0:
            break
        offsets = _newton(_Smoothed(gains, weights, limits, tau), offsets)
        now = _imbalance(gains, weights, limits, offsets)
        if now < imbalance:
            best, imbalance, patience = offsets, now, PATIENCE
        elif SPANNED * imbalance < total:  # otherwise the temperature spans all rows
            patience -= 1
        if patience == 0:
            break
    return best


def _imbalance(gains: NDArray, weights: NDArray, limits: Limits, offsets: NDArray) -> float:
    """Return the weight that is not in the cluster required by the offsets."""
    loads = np.bincount(np.argmax(gains + offsets, axis=1), weights, gains.shape[1])
    flows = limits.flows(loads, offsets)
    return float(np.abs(loads - flows).sum() + abs(flows.sum() - loads.sum())) / 2.0


def _band(gains: NDArray, offsets: NDArray, share: float) -> float:
    """Return the quantile, at `share`, of the difference of the two largest scores of a row."""
    two = np.partition(gains + offsets, -2, axis=1)[:, -2:]
    return float(np.quantile(two[:, 1] - two[:, 0], min(share, 1.0)))


class _Smoothed(NamedTuple):
    """The smoothed dual at a temperature.

    Shares of clusters are float32, because rounding errors are small compared with the smoothing.
    """

    gains: NDArray
    weights: NDArray
    limits: Limits
    tau: float

    def at(self, offsets: NDArray) -> _Point:
        scores = self.gains + offsets
        top = scores.max(axis=1)
        scores -= top[:, None]
        scores /= self.tau
        shares = np.exp(scores.astype(np.float32))
        sums = shares.sum(axis=1)
        shares /= sums[:, None]
        value = float(self.weights @ (top + self.tau * np.log(sums.astype(np.float64))))
        low, high = self.limits
        value -= float(np.where(offsets < 0, high * offsets, low * offsets).sum())
        loads = (self.weights.astype(np.float32) @ shares).astype(np.float64)
        # With equalities, the gradient must be orthogonal to a common shift of all offsets.
        loads *= self.weights.sum() / loads.sum()
        return _Point(offsets, value, shares, loads)

    def gradient(self, point: _Point) -> NDArray:
        """Return the gradient; at an offset of 0, the one-sided gradient of descent."""
        low, high = self.limits
        over, under = point.loads - high, point.loads - low
        at_zero = np.where(over > 0, over, np.minimum(under, 0.0))
        gradient = np.where(point.offsets < 0, over, np.where(point.offsets > 0, under, at_zero))
        return np.where(low == high, over, gradient)

    def hessian(self, point: _Point) -> NDArray:
        """Return the Hessian as a Laplacian, whose rows sum to 0 in spite of rounding."""
        shared = point.shares.T @ (self.weights.astype(np.float32)[:, None] * point.shares)
        shared = shared.astype(np.float64)
        np.fill_diagonal(shared, 0.0)
        return (np.diag(shared.sum(axis=1)) - shared) / self.tau


class _Point(NamedTuple):
    """Offsets, the value of the smoothed dual, the shares of clusters in rows, their weights."""

    offsets: NDArray
    value: float
    shares: NDArray
    loads: NDArray


def _newton(dual: _Smoothed, offsets: NDArray) -> NDArray:
    """Decrease the smoothed dual by projected Newton steps; return the offsets."""
    total = float(dual.weights.sum())
    point, first = dual.at(offsets), None
    for _ in range(6):
        gradient = dual.gradient(point)
        size = float(np.abs(gradient).sum())
        first = size if first is None else first
        if size <= 1e-6 * total or size < 0.02 * first:
            break
        free = np.flatnonzero((point.offsets != 0) | (gradient != 0))
        H = dual.hessian(point)[np.ix_(free, free)]
        # The Hessian may be singular, because a common shift of all offsets may have no effect.
        ridge = 1e-9 * max(float(np.trace(H)) / free.size, 1e-9 * total / dual.tau)
        try:
            step = cho_solve(cho_factor(H + ridge * np.eye(free.size)), -gradient[free])
        except LinAlgError:
            break
        step *= min(1.0, 30.0 * dual.tau / max(float(np.abs(step).max()), 1e-300))
        new = _searched(dual, point, gradient, free, step)
        if new is None:
            break
        point = new
    return point.offsets


def _searched(
    dual: _Smoothed, point: _Point, gradient: NDArray, free: NDArray, step: NDArray
) -> _Point | None:
    """Backtrack until the dual decreases; return None if it does not."""
    low, high = dual.limits
    length = 1.0
    for _ in range(8):
        trial = point.offsets.copy()
        trial[free] += length * step
        side = np.where(point.offsets != 0, np.sign(point.offsets), -np.sign(gradient))
        trial[(np.sign(trial) != side) & (low < high)] = 0.0
        new = dual.at(trial)
        if new.value <= point.value + 1e-4 * float(gradient @ (trial - point.offsets)):
            return new
        length /= 2.0
    return None
