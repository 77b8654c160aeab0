"""The maximum margin problem for more than two clusters (CPM3C)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar.guidance.guide import Guide
from volmar.margin.engine.guided_labels import clusters_allowed, has_limits
from volmar.margin.engine.losses import Violated
from volmar.margin.engine.problem import MarginCut, MarginProblem, Near, Placed, Plane
from volmar.margin.feature_space.space import VectorSpace
from volmar.margin.multiway.cluster_sizes import ROUNDING, shares_of_clusters, sized_labels
from volmar.rows import is_in_memory, row_wise
from volmar.solvers import CuttingPlaneResult

# Minimum number of clusters for which cuts are carried over to new labels.
MANY_CLUSTERS = 10
# Maximum share of rows with new labels for which cuts are carried over.
MAX_MOVED = 0.25
# Size offsets below this value, in units of the margin, are rounding.
OFFSET_ROUNDING = 1e-4
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
        return Near(labels, self.loss.revised(labels, f, rho, near, moved))

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
            guess = found.rho * np.where(guess > OFFSET_ROUNDING, guess, 0.0)
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
