"""Maximum margins of more than two clusters at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar._checks import check_count, check_number
from volmar.guidance.guide import Guide
from volmar.margin.engine.descent import MarginResult, first_sample, maximise_margin
from volmar.margin.engine.problem import (
    MarginCut,
    MarginProblem,
    Near,
    Placed,
    Plane,
    Violated,
    clusters_allowed,
    has_limits,
)
from volmar.margin.engine.starts import START_ROWS, k_way_start, principal_scores
from volmar.margin.feature_space.space import FeatureSpace, VectorSpace
from volmar.rows.anywhere import (
    column_products,
    every,
    is_in_memory,
    prefetch,
    row_wise,
    sums_by_label,
    weighted_quantile,
)
from volmar.solvers import Status
from volmar.solvers.cutting_plane_qp import CuttingPlaneResult

# ------------------------------------------------------------------ minimum sizes

# Offsets are found on a sample if there are more than twice as many rows. The sample has at least
# MIN_SAMPLE rows and, up to MAX_SAMPLE, at least MIN_IN_SMALLEST rows of a cluster of the minimum
# size, so that sampling raises the minimum size by about a fifth.
MIN_SAMPLE, MIN_IN_SMALLEST, MAX_SAMPLE = 5000, 200, 50_000
# Standard errors by which the minimum size is raised in a sample, tried one after another.
LIFTS = (3.0, 6.0)
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
    # Maximum number of rounds that lower offsets: without a guess, and with one.
    rounds = 50 if guess is None else 1
    # Maximum number of rises of offsets, per cluster, before the search fails.
    for step in range(10 * f.shape[1]):
        if auction.sizes.min() >= min_share:
            break
        auction.rise(alone=step % 2 == 0)
    return auction.lowered(rounds) if auction.sizes.min() >= min_share else None


class _Auction:
    """An auction for rows: offsets b rise until every cluster has the minimum size."""

    def __init__(self, f: Any, p: Any, min_share: float, guess: NDArray | None):
        self.f, self.p, self.min_share = f, p, min_share
        # Minimum rise of an offset, as a share of the range of the scores.
        self.min_rise = 1e-7 * float(np.ptp(f))
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
        # Up to this many changed offsets are processed one by one; otherwise all rows are ranked
        # again.
        if changed is not None and changed.size <= 8:
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


# ------------------------------------------------------------------ the problem

# Minimum number of clusters for which cuts are carried over to new labels.
MANY_CLUSTERS = 10
# Maximum share of rows with new labels for which cuts are carried over.
MAX_MOVED = 0.25
# Number of rows that are ranked at a time.
TILE_ROWS = 4096
# In place of a rival: all rivals with equal weights.
EVENLY = -1


@dataclass(frozen=True)
class MultiwayHinge:
    r"""The hinge of Crammer and Singer, sum_i p_i max(0, rho - (f_iy - max_r f_ir)), r != y.

    A cut chooses for each row nothing (0) or a rival cluster r (r + 1). It requires the slack
    :math:`\sum_i p_i c_i (\rho - f_{i y_i} + f_{i r_i})`. Scores include the offset
    :math:`\rho \beta_p`, which is linear in rho, so a cut has
    :math:`m = \sum_i p_i c_i (1 - \beta_{y_i} + \beta_{r_i})`.
    """

    offsets: NDArray
    shares: NDArray | None = None
    scale: float = 1.0

    def violated(self, y: Any, f: Any, rho: float) -> Violated:
        """Return the rows inside the margin with their nearest rivals, and the hinge loss."""
        rivals = row_wise(nearest_rival, f, y)
        lack = row_wise(short_of_margin, f, y, rivals, float(rho))
        chosen = row_wise(rival_if_short, lack, rivals)
        np.maximum(lack, 0.0, out=lack)
        return Violated(chosen, self.value(y, chosen), self._mean(lack))

    def revised(self, y: NDArray, f: NDArray, rho: float, near: Near, moved: NDArray) -> Violated:
        """Return `violated`, given that of labels which differ only for the rows `moved`."""
        if moved.size == 0:
            return near.violated
        p = 1.0 / y.size if self.shares is None else self.shares[moved]
        chosen, m, xi = near.violated.chosen.copy(), near.violated.m, near.violated.xi
        for labels, sign in ((near.labels[moved], -1.0), (y[moved], 1.0)):
            rivals = nearest_rival(f[moved], labels)
            lack = short_of_margin(f[moved], labels, rivals, float(rho))
            chosen[moved] = rival_if_short(lack, rivals)
            units = units_of_margin(labels, chosen[moved], self.offsets)
            m += sign * float(np.sum(p * units))
            xi += sign * float(np.sum(p * np.maximum(lack, 0.0)))
        return Violated(chosen, m, xi)

    def first(self, y: Any, f: Any) -> Violated:  # noqa: ARG002 -- the same at all scores
        """Return the cut with the largest m, which is the most violated one at w = 0.

        Without offsets it contains all rows, with all rivals at equal weights: the largest score
        of the rivals is above their mean.
        """
        beta = self.offsets
        if np.ptp(beta) == 0.0:
            return Violated(row_wise(all_rivals, y), 1.0, float("nan"))
        chosen = row_wise(rival_of_largest_offset, y, beta)
        return Violated(chosen, self.value(y, chosen), float("nan"))

    def value(self, y: Any, chosen: Any) -> float:
        """Return m of the chosen rows and rivals."""
        return self._mean(row_wise(units_of_margin, y, chosen, self.offsets))

    def _mean(self, values: NDArray) -> float:
        if self.shares is None:
            return float(values.mean(dtype=np.float64))
        return float(self.shares @ values)


# ------------------------------------------------------------------ functions of each row


def nearest_rival(f: NDArray, y: NDArray) -> NDArray:
    """Return the cluster other than its own for which a row has the largest score."""
    # A small integer type, because the rivals of many cuts are stored.
    rivals = np.empty(y.size, dtype=np.min_scalar_type(-1 - f.shape[1]))
    for begin in range(0, y.size, TILE_ROWS):
        part = slice(begin, begin + TILE_ROWS)
        others, own = f[part].copy(), y[part]
        others[np.arange(own.size), own] = -np.inf
        rivals[part] = np.argmax(others, axis=1)
    return rivals


def short_of_margin(f: NDArray, y: NDArray, rivals: NDArray, rho: float) -> NDArray:
    """Return rho minus the lead of each row's own cluster over its rival."""
    rows = np.arange(y.size)
    return rho - f[rows, y] + f[rows, rivals]


def rival_if_short(lack: NDArray, rivals: NDArray) -> NDArray:
    """Return the rival r as r + 1 for rows inside the margin, and 0 for others."""
    return (rivals + 1) * (lack > 0)


def all_rivals(y: NDArray) -> NDArray:
    """Return the code for all rivals at equal weights, for every row."""
    return np.full(y.size, EVENLY)


def rival_of_largest_offset(y: NDArray, beta: NDArray) -> NDArray:
    """Return the rival r with the largest offset as r + 1 if it increases m, and 0 otherwise."""
    top, second = np.argsort(-beta, kind="stable")[:2]
    rivals = np.where(y == top, second, top)
    return np.where(1.0 - beta[y] + beta[rivals] > 0, rivals + 1, 0)


def units_of_margin(y: NDArray, chosen: NDArray, beta: NDArray) -> NDArray:
    """Return 1 minus the offset of a row's own cluster plus that of its rival; 0 if none."""
    of_rivals = np.append(beta, 0.0)[chosen - 1]
    if (chosen == EVENLY).any():
        evenly = (beta.sum() - beta[y]) / (beta.size - 1)
        of_rivals = np.where(chosen == EVENLY, evenly, of_rivals)
    return np.where(chosen == 0, 0.0, 1.0 - beta[y] + of_rivals)


def cut_coefficients(
    y: NDArray, chosen: NDArray, shares: NDArray | float, k: int, dtype: str
) -> NDArray:
    """Return coefficients (n, k): the share of a row for its cluster, negated for its rivals."""
    v = np.zeros((y.size, k), dtype=dtype)
    v[chosen == EVENLY] = -1.0 / (k - 1)
    (some,) = np.nonzero(chosen > 0)
    v[some, chosen[some] - 1] = -1.0
    (taken,) = np.nonzero(chosen)
    v[taken, y[taken]] = 1.0
    v *= shares if np.ndim(shares) == 0 else np.asarray(shares)[:, None]
    return v


def sparse_cut_coefficients(
    y: NDArray, chosen: NDArray, shares: NDArray | float, k: int, dtype: str
) -> sparse.csr_array:
    """Return `cut_coefficients` of rows with at most one rival, with two entries per row."""
    taken = chosen > 0
    (some,) = np.nonzero(taken)
    starts = np.zeros(y.size + 1, dtype=np.int64)
    np.cumsum(2 * taken, out=starts[1:])
    columns = np.column_stack([y[some], chosen[some] - 1]).ravel()
    p = np.broadcast_to(shares, y.shape)[some]
    entries = np.column_stack([p, -p]).ravel().astype(dtype)
    return sparse.csr_array((entries, columns, starts), shape=(y.size, k))


def no_scores(y: NDArray, k: int, dtype: str) -> NDArray:
    """Return scores of 0 for k clusters."""
    return np.zeros((y.size, k), dtype=dtype)


def _with_seeds(f: NDArray, seeds: NDArray) -> NDArray:
    """Return scores that keep rows with a given label in its cluster for all offsets."""
    (known,) = np.nonzero(seeds >= 0)
    if known.size == 0:
        return f
    f, spread = f.copy(), np.ptp(f)
    lowest, highest = f.min() - spread, f.max() + spread
    f[known] = lowest
    f[known, seeds[known]] = highest
    return f


@dataclass(frozen=True)
class MultiwayMarginProblem(MarginProblem):
    r"""The maximum margin problem for k clusters with a minimum size.

    With rows :math:`z_i` centred by their shares :math:`p_i` it minimises

    .. math:: J = \tfrac12 \sum_p \|w_p\|^2 - \rho + C \sum_i p_i
              \max\bigl(0, \rho - (f_{i y_i} - \max_{r \ne y_i} f_{ir})\bigr),
              \qquad f_{ip} = \langle w_p, z_i \rangle + \rho \beta_p

    over w, :math:`\rho \ge 0` and labels y with clusters of at least the size s. The offsets
    :math:`\beta` are given: without them clusters would be cones around the mean, and no cluster
    could contain it. They also determine the mean scores, so a balance of mean scores would be no
    constraint, and without the minimum size clusters would become empty.

    For given labels J is convex. The labels for given scores are those with the largest total
    score, :math:`y_i = \arg\max_p f_{ip} + b_p`, with the offsets b of `sized_labels`. If no
    cluster is too small, b is 0 and relabelling never raises J. Otherwise it may, and the engine
    rejects such a step. The offsets b enter the labels but not the scores of the hinge. Cuts
    therefore do not depend on them, and a row that is in a cluster only because of its minimum
    size counts as a margin error.

    `min_share` is s, at most 1/k, and `size_shares` are the shares of the rows in it (1/n if
    None). With a `guide` the labels are the allowed ones with the largest scores (or, with links,
    the lowest hinge); its size limits, if any, replace `min_share`. `min_m` is the minimum m of
    the first cut: below 1/C, rho would grow without limit. tau, threshold and balance must have
    their defaults.
    """

    min_share: float = 0.0
    size_shares: NDArray | None = None
    min_m: float = 0.0

    @property
    def offsets(self) -> NDArray:
        """Offsets beta of shape (k,)."""
        return self.loss.offsets  # type: ignore[attr-defined]

    def _cut(self, labels: Any, violated: Violated) -> MarginCut:
        space, chosen = self.space, violated.chosen
        shares = 1.0 / space.n_rows if space.shares is None else space.shares
        of = (labels, chosen, shares, self.offsets.size, space.dtype.str)
        if self._combines_sparse(labels) and chosen.min() != EVENLY:
            return MarginCut(space.vector(sparse_cut_coefficients(*of)), 0.0, violated.m, chosen)
        return MarginCut(space.vector(row_wise(cut_coefficients, *of)), 0.0, violated.m, chosen)

    def _combines_sparse(self, labels: Any) -> bool:
        return self.space.combines_sparse and is_in_memory(labels)

    def violated_by(self, labels: Any, f: Any, rho: float, near: Near) -> Near:
        """Return the most violated cut of labels; rows with unchanged labels are reused."""
        if not is_in_memory(f):
            return super().violated_by(labels, f, rho, near)
        (moved,) = np.nonzero(labels != near.labels)
        revised = self.loss.revised(labels, f, rho, near, moved)  # type: ignore[attr-defined]
        return Near(labels, revised)

    def carried(self, cuts: Sequence[MarginCut], before: Any, now: Near) -> list[MarginCut]:
        r"""Return cuts of the old labels as cuts of the new ones.

        Any choice of rivals is a valid cut. A row that keeps its label keeps its rival in a cut.
        A row with a new label takes its rival from the most violated cut of the new labels. So
        only rows with new labels change a cut,

        .. math:: a' = a + \sum_{i: y'_i \ne y_i} p_i (v'_i - v_i) z_i,

        which takes their share of a pass, while a new cut takes two passes. No cuts are carried if
        many labels changed, for few clusters, which need few cuts, and for rows in blocks, whose
        rivals are not stored.
        """
        space, k = self.space, self.offsets.size
        if not (cuts and k >= MANY_CLUSTERS and self._combines_sparse(before)):
            return []
        (moved,) = np.nonzero(before != now.labels)
        if moved.size > MAX_MOVED * space.n_rows:
            return []
        if moved.size == 0:
            return list(cuts)
        p = 1.0 / space.n_rows if space.shares is None else space.shares[moved]
        chosen = now.violated.chosen[moved]
        of = now.labels[moved], chosen
        new = sparse_cut_coefficients(*of, p, k, space.dtype.str)
        m = units_of_margin(*of, self.offsets)
        changes, carried = [], []
        for cut in cuts:
            old = (before[moved], cut.chosen[moved])
            changes.append(new - sparse_cut_coefficients(*old, p, k, space.dtype.str))
            gain = np.sum(p * (m - units_of_margin(*old, self.offsets)))
            rivals = cut.chosen.copy()
            rivals[moved] = chosen
            carried.append(cut._replace(m=cut.m + float(gain), chosen=rivals))
        vectors = space.vectors_of(moved, sparse.hstack(changes, format="csr"), k)
        return [
            cut._replace(a=cut.a + vector) for cut, vector in zip(carried, vectors, strict=True)
        ]

    def labels(self, f: NDArray) -> NDArray:
        """Return the cluster with the largest score, the first of several."""
        return np.argmax(f, axis=1)

    def on(self, space: VectorSpace, chosen: NDArray) -> Self:
        """Return the problem of some of the rows."""
        sizes = None if self.size_shares is None else self.size_shares[chosen]
        return replace(
            self,
            space=space,
            loss=replace(self.loss, shares=space.shares),  # type: ignore[type-var]
            size_shares=None if sizes is None else sizes / sizes.sum(),
            guide=self._guide_on(chosen),
        )

    def start(self, labels: NDArray) -> NDArray:
        """Return start labels, numbered from 0."""
        return labels.astype(np.intp)

    def zero_scores(self) -> Any:
        """Return the scores at w = 0 and rho = 0."""
        space = self.space
        return row_wise(no_scores, space.full(0.0), self.offsets.size, space.dtype.str)

    def shifted(self, f: Any, found: CuttingPlaneResult | Plane) -> Any:
        """Add the offsets to the scores of w in place, and return them."""
        f += (found.rho * self.offsets).astype(f.dtype)
        return f

    def placed(
        self,
        f: Any,
        found: CuttingPlaneResult | Plane,
        look_ahead: Callable[[Any, Any], None],
        last: Plane | None = None,
    ) -> Placed:
        """Return the scores with their offsets, the offsets that give the labels, and labels."""
        offsets = (found.rho * self.offsets).astype(f.dtype)
        f += offsets
        if self.guide is not None:
            return self._placed_by(self.guide, f, found.rho, offsets)

        def ahead(labels: Any) -> None:
            self.loss.first(labels, f)
            look_ahead(f, labels)

        guess = None
        if last is not None:
            # In units of the margin the size offsets change little from step to step.
            guess = last.t / last.rho - self.offsets
            # Size offsets below this value, in units of the margin, are rounding.
            guess = found.rho * np.where(guess > 1e-4, guess, 0.0)
        sized = sized_labels(f, self.size_shares, self.min_share, ahead, guess)
        if sized is None:
            labels = self.labels(f)
            self.space.prefetch(lambda: ahead(labels))
            return Placed(f, offsets, labels, is_allowed=False)
        y, b = sized
        self.space.prefetch(lambda: ahead(y))
        return Placed(f, offsets + b, y, is_allowed=self.loss.first(y, f).m >= self.min_m)

    def _placed_by(self, guide: Guide, f: NDArray, rho: float, offsets: NDArray) -> Placed:
        """Return scores and the labels that a guide allows.

        If the guide limits sizes, its offsets are used in place of those of `sized_labels`.
        """
        k = offsets.size
        if has_limits(guide):
            placed = guide.place(f)
            y, b = placed.labels, placed.offsets.astype(f.dtype)
            is_allowed = True
        else:
            sized = sized_labels(_with_seeds(f, guide.seeds), self.size_shares, self.min_share)
            b = np.zeros(k, dtype=f.dtype) if sized is None else sized.offsets
            y = clusters_allowed(guide, f + b, rho, self.space.shares).labels
            sizes = shares_of_clusters(y, k, self.size_shares)
            is_allowed = bool(sizes.min() >= self.min_share * (1.0 - ROUNDING))
        is_allowed = is_allowed and self.loss.first(y, f).m >= self.min_m
        return Placed(f, offsets + b, y, is_allowed=is_allowed)

    def is_first(self, violated: Violated) -> bool:
        """Return whether a cut is also the first cut of its labels."""
        return bool((violated.chosen == EVENLY).all())

    def clusters(self, labels: NDArray) -> NDArray:
        """Return the labels, which are cluster numbers from 0."""
        return labels.astype(np.int64)


# ------------------------------------------------------------------ the descent


def balanced_weights(labels: Any, weights: Any, sizes: NDArray) -> Any:
    """Return weights that give every cluster the weight 1/k, and keep proportions within it.

    A cluster much smaller than the others has little influence in a sum over all rows. The hinge
    would give it up: 1/C of all rows may be inside the margin, and the cluster has fewer rows.
    `sizes` are the weighted sizes of the k clusters.
    """
    each = 1.0 if weights is None else weights
    return row_wise(share_of_cluster, labels, each, 1.0 / (sizes.size * sizes))


@dataclass(frozen=True)
class NearestMean:
    r"""The nearest-mean rule with scores :math:`\langle \mu_p, z \rangle - \frac12 \|\mu_p\|^2`.

    `offsets` are :math:`-\frac12 \|\mu_p\|^2` minus their mean, `margins` are the leads of the
    score of each row's own cluster over the others, and `shares` are the p_i.
    """

    labels: Any
    offsets: NDArray
    margins: Any
    shares: Any

    @classmethod
    def of(
        cls,
        space: VectorSpace,
        labels: Any,
        k: int,
        min_share: float = 0.0,
        size_shares: Any = None,
    ) -> NearestMean:
        """Return the rule of given labels, in two passes.

        If a cluster has less than the minimum share, the labels are replaced by those of the rule
        with the offsets of `sized_labels`, which are added to `offsets`. If there are no such
        offsets, the labels stay.
        """
        p = space.full(1.0 / space.n_rows) if space.shares is None else space.shares

        def sizes_of() -> tuple[NDArray, NDArray]:
            return sums_by_label(labels, p, k), shares_of_clusters(labels, k, size_shares)

        sizes, shares = space.in_one_pass(sizes_of)
        v = row_wise(coefficients_of_mean, labels, p, 1.0 / sizes, space.dtype.str)
        means = space.in_one_pass(lambda: space.vector(v))
        f = space.scores(means).astype(np.float64, copy=False)
        offsets = -0.5 * column_products(v, f)
        f += offsets
        if shares.min() < min_share:
            sized = sized_labels(f, size_shares, min_share)
            if sized is not None:
                labels = sized.labels
                f, offsets = f + sized.offsets, offsets + sized.offsets
        return cls(labels, offsets - offsets.mean(), row_wise(lead_of_cluster, f, labels), p)

    def in_margins(self, C: float) -> NDArray:
        """Return the offsets in units of the margin of the rule at C.

        J is minimal in rho if 1/C of the rows are inside the margin. The offsets are 0 if that
        many rows are on the wrong side.
        """
        rho = weighted_quantile(self.margins, self.shares, 1.0 / C)
        return self.offsets / rho if rho > 0 else np.zeros_like(self.offsets)


# ------------------------------------------------------------------ functions of each row


def share_of_cluster(labels: NDArray, weights: NDArray | float, factors: NDArray) -> NDArray:
    """Return the weight of each row times the factor of its cluster."""
    return weights * factors[labels]


def coefficients_of_mean(
    labels: NDArray, shares: NDArray, factors: NDArray, dtype: str
) -> NDArray:
    """Return the share of each row in the mean of its cluster, shape (n, k)."""
    v = np.zeros((labels.size, factors.size), dtype=dtype)
    v[np.arange(labels.size), labels] = shares * factors[labels]
    return v


def lead_of_cluster(f: NDArray, labels: NDArray) -> NDArray:
    """Return the lead of the score of each row's own cluster over the others."""
    rows = np.arange(labels.size)
    others = f.copy()
    others[rows, labels] = -np.inf
    return f[rows, labels] - others.max(axis=1)


def weighted_scores(f: NDArray, shares: NDArray) -> NDArray:
    """Return the scores of each row times its share."""
    return f * shares[:, None]


def maximise_margins(
    space: VectorSpace,
    labels: Any,
    k: int,
    *,
    C: float,
    path: Sequence[float] = (),
    min_share: float = 0.0,
    size_shares: Any = None,
    tol: float = 1e-2,
    max_iter: int = 1000,
    seed: int | None = None,
    guide: Guide | None = None,
) -> MarginResult:
    """Find k clusters (at least 3) whose maximum margin hyperplanes give the same labels again.

    The offsets of the scores are those of the nearest-mean rule of the start, in units of the
    margin at each C of `path`. The descent is `maximise_margin` on `MultiwayMarginProblem`. All of
    the labels 0 to k - 1 must be present. The scores and t of the result, which determine the
    labels, are relative to the mean of the rows weighted by `size_shares`. If the labels of a
    smaller C have no margin at C, the result is that of the smaller C, with the status DEGENERATE.
    If `seed` is given and there are many rows, the descent starts from the result of a sample
    (`first_sample`).

    With a `guide` only allowed labels are used; `labels` must be allowed.
    """
    rule = NearestMean.of(space, labels, k, min_share, size_shares)
    labels = rule.labels

    problems = [
        MultiwayMarginProblem(
            space,
            MultiwayHinge(rule.in_margins(value), space.shares),
            min_share=min_share,
            size_shares=size_shares,
            min_m=1.0 / value,
            guide=guide,
        )
        for value in [*sorted(value for value in path if value < C), C]
    ]
    best, offsets, n_iter, n_passes = None, np.zeros(k), 0, 2
    sample = None if seed is None else first_sample(problems[-1], labels, seed, k)
    if sample is not None:
        *before, last = problems
        for problem in before:
            few = problem.on(sample.problem.space, sample.chosen)
            found = maximise_margin(few, sample.labels, C=1.0 / few.min_m, tol=tol)
            if found.labels.size:
                sample = sample._replace(labels=found.labels)
            n_iter += found.n_iter
        problems = [last]
    for problem in problems:
        result = maximise_margin(
            problem,
            labels,
            C=1.0 / problem.min_m,
            tol=tol,
            max_iter=max(max_iter - n_iter, 1),
            sample=sample,
        )
        n_iter, n_passes = n_iter + result.n_iter, n_passes + result.n_passes
        if result.normal is not None:
            best, labels, offsets = result, result.labels, result.rho * problem.offsets
        if result.status not in (Status.CONVERGED, Status.CYCLE):
            break
    if best is None:
        return replace(result, n_iter=n_iter, n_passes=n_passes)
    plain = best.scores - offsets.astype(best.scores.dtype)
    if size_shares is None:
        mean = plain.mean(axis=0)
    else:
        mean = row_wise(weighted_scores, plain, size_shares).sum(axis=0)
    scores = plain + best.t.astype(plain.dtype)
    return replace(
        best,
        status=result.status,
        n_iter=n_iter,
        n_passes=n_passes,
        scores=scores,
        t=best.t + mean,
    )


# ------------------------------------------------------------------ the parameters of estimators

# Default minimum cluster size, as a share of the smallest cluster of the start. On speech, waves,
# letters and 28 kinds of artificial groups, with a quarter more clusters collapsed. With a share
# of n / n_clusters, clusters also collapsed, or small groups were split.
MIN_SIZE = 0.5
# Parameters that are only used for two clusters, with their only allowed value and a remedy.
TWO_ONLY = {
    "threshold": ("adaptive", "Use threshold='adaptive'"),
    "mode": ("default", "Use mode='default'"),
    "balance": (None, "Use min_cluster_size to limit the sizes"),
    "balance_unit": ("margin", "Use balance_unit='margin'"),
}


def check_joint(model: Any) -> None:
    """Raise an error for parameters that have no meaning with multiway="joint"."""
    k = model.n_clusters
    for name, (only, remedy) in TWO_ONLY.items():
        value = getattr(model, name)
        if value is not None and value != only:
            raise ValueError(
                f"{name}={value!r} has no meaning for n_clusters={k} with multiway='joint'. "
                f"{remedy}, or use multiway='recursive'."
            )
    if isinstance(model.init, str) and model.init == "random":
        raise ValueError(
            "init='random' is only possible for two clusters, because the objective cannot be "
            f"compared between starts of n_clusters={k}. Use init='k-means', labels, or "
            "multiway='recursive'."
        )
    size = model.min_cluster_size
    if isinstance(size, Integral):
        check_count("min_cluster_size", size)
    elif size is not None and np.ndim(size) == 0:  # the guide checks an array
        check_number("min_cluster_size", size, low=0.0, high=1.0 / k, open_low=True)
    C = model._value_of("C")
    if C < 1.0:
        raise ValueError(f"C={C:g} is too small. Below 1 the margin grows without limit. Raise C.")


def joint_start(space: FeatureSpace, weights: Any, k: int, seed: int, n_init: int | None) -> Any:
    """Return the labels of k-means on the rows, or on kernel principal components."""
    rows = space.start_rows()
    if rows is None:
        rows = principal_scores(space, k, np.random.default_rng(seed))
    # Average number of rows per cluster in the sample for k-means.
    max_rows = max(START_ROWS, 100 * k)
    # Default number of runs of k-means.
    return k_way_start(rows, k, weights, seed, n_init=n_init or 10, max_rows=max_rows)


def cluster_jointly(
    space: FeatureSpace,
    weights: Any,
    labels: Any,
    k: int,
    min_cluster_size: float | None,
    *,
    C: float,
    guide: Guide | None = None,
    **settings: Any,
) -> MarginResult:
    """Return k clusters by `maximise_margins`, with the same weight for all clusters of the start.

    `min_cluster_size` is the minimum number of rows (or weight) of a cluster, or their share. If
    None, it is half of the smallest cluster of the start. Limits of a `guide` replace
    `min_cluster_size`; if it has upper limits only, the lower limit is half of the smallest
    cluster of the start.
    """
    sizes = sums_by_label(labels, weights, k)
    if sizes.min() <= 0:
        found = np.count_nonzero(sizes)
        raise ValueError(
            f"the start has rows of positive weight in only {found} of n_clusters={k} clusters, "
            "because X has too few different rows. Lower n_clusters."
        )
    if guide is not None and guide.high is not None and guide.low is None:
        guide = replace(guide, low=np.full(k, MIN_SIZE * float(sizes.min())))
    min_share = _min_share(min_cluster_size if guide is None else None, sizes, weights)
    balanced = space.reweighted(balanced_weights(labels, weights, sizes))
    result = maximise_margins(
        balanced,
        labels,
        k,
        C=C,
        min_share=min_share,
        size_shares=space.shares,
        guide=guide,
        **settings,
    )
    if result.normal is None:
        share = f"at least {min_share:.2g} of the rows in each"
        raise ValueError(
            f"no margin was found for n_clusters={k} clusters with {share} at C={C:g} "
            f"({result.status.value}). Lower n_clusters, C or min_cluster_size, or start from "
            "other labels (init)."
        )
    return result


def _min_share(size: float | None, sizes: NDArray, weights: Any) -> float:
    """Return the minimum share of the rows in a cluster, from the sizes of the start."""
    total, k = float(sizes.sum()), sizes.size
    if size is None:
        return MIN_SIZE * float(sizes.min()) / total
    if isinstance(size, Integral):
        if int(size) * k > total:
            raise ValueError(
                f"min_cluster_size={size} for each of n_clusters={k} clusters is more than the "
                f"{total:g} rows (or their weight). Lower one of them."
            )
        return int(size) / total
    # Without weights the minimum is a whole number of rows: a third of 100 is 33.
    return float(size) if weights is not None else max(np.floor(size * total), 1.0) / total
