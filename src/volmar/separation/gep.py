"""The bound of Theorem 2 with its scan along a direction, and MSPC-GEP, which maximises it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from volmar._checks import check_number
from volmar.metrics.separation_bound import kappa2_bound, probability
from volmar.rows.anywhere import bin_sums, constant_vector
from volmar.rows.standardized import Standardized
from volmar.rows.tiled import BinSums
from volmar.solvers import Result, Status

# ----------- theorem 2's bound on the separation, and the split of a projection that maximises it

# Maximum number of rows to sort. With more, a histogram selects the bins to sort.
SORT_UP_TO, N_SORTED_BINS = 20_000, 4096
# Number of bins of `coarse_splits`.
COARSE_BINS = 256


class Split(NamedTuple):
    """A cut of a projection: rows above `threshold` are cluster 1.

    `kappa2` is Theorem 2's bound on kappa^2, -inf if no cut is allowed.
    """

    threshold: float
    kappa2: float


def bound(explained: NDArray, share: NDArray) -> NDArray:
    r"""Return Theorem 2's bound on kappa^2 (`kappa2_bound`).

    `explained` is the explained share of the variance, :math:`R^2 = r_1 r_2 (w'D)^2 / w'(\Sigma +
    \lambda\Lambda)w`, and `share` the share of cluster 1.
    """
    explained = np.minimum(explained, 1 - 1e-15)
    return kappa2_bound(explained, 1 - explained, share)


def best_split(
    projections: NDArray, weights: NDArray | None, variance: float, min_weight: float
) -> Split:
    """Find the cut of a centred projection with the largest bound, among all cuts.

    `variance` is w'(R + reg I)w, `min_weight` the minimum weight of a side.

    For a given w the best labels are contiguous along the projection. Up to 20,000 rows, all cuts
    are tried after a sort. With more rows, sums over 4096 bins give the exact bound at the edges
    of the bins, and an upper limit of it inside each bin. This limit exists because the sum of a
    sorted side is concave in its size: inside a bin it exceeds the larger of its values at the
    edges by at most a quarter of the bin's weight times its width. Only bins whose limit is above
    the best edge are sorted. The result is the same. Equal projections are never separated.
    """
    p = projections.astype(np.float64, copy=False)
    if p.size <= SORT_UP_TO:
        total = float(p.size if weights is None else weights.sum())
        return _sorted_split(p, weights, (0.0, 0.0, total), variance, min_weight)
    return _binned_split(p, weights, variance, min_weight)


def best_split_between(
    points: NDArray,
    weights: NDArray,
    below: tuple[float, float],
    total: float,
    variance: float,
    min_weight: float,
) -> Split:
    """Find the best cut of points that may change sides, if the side of other points is fixed.

    `below` is the weight and the weighted sum of the points fixed below the cut, and `total` the
    weight of all points, whose projections sum to 0. The mean of the lower side must be below that
    of the upper side.
    """
    if points.size == 0:
        return Split(0.0, -np.inf)
    order = np.argsort(points, kind="stable")
    p, w = points[order].astype(np.float64), weights[order]
    mass = below[0] + np.concatenate([[0.0], np.cumsum(w)])
    sums = below[1] + np.concatenate([[0.0], np.cumsum(w * p)])
    values = _values(sums, mass, total, variance, min_weight)
    # Points at a distance of 1 beyond the ends allow cuts with all points on one side.
    ends = np.concatenate([[p[0] - 1.0], p, [p[-1] + 1.0]])
    values[(sums > 0) | ~(np.diff(ends) > 0)] = -np.inf
    best = int(np.argmax(values))
    if not np.isfinite(values[best]):
        return Split(0.0, -np.inf)
    middle = 0.5 * (ends[best] + ends[best + 1])
    threshold = middle if middle < ends[best + 1] else ends[best]
    return Split(float(threshold), float(values[best]))


def bound_of_sides(
    sum_below: float, below: float, total: float, variance: float, min_weight: float
) -> float:
    """Return the bound along a direction for any labels, from the sum and weight of cluster 0.

    It is -inf if a side has less than `min_weight`, or if cluster 0 has the larger mean.
    """
    if sum_below > 0:
        return -np.inf
    values = _values(np.array([sum_below]), np.array([below]), total, variance, min_weight)
    return float(values[0])


def best_splits(
    ordered: NDArray, variances: NDArray, min_share: float, ridge: NDArray | float | None = None
) -> tuple[NDArray, ...]:
    """Find the best cut of each of many projections, the sorted rows of `ordered` (k, n).

    They need not be centred. Returns thresholds and kappa2 (k,) as in `Split`. With a `ridge`
    also returns the largest bound with `ridge` added to the variances.
    """
    k, n = ordered.shape
    min_rows = max(1, int(np.ceil(min_share * n)))
    if 2 * min_rows > n:
        return (np.zeros(k), *(np.full(k, -np.inf) for _ in range(1 if ridge is None else 2)))
    below = np.arange(min_rows, n - min_rows + 1.0)
    centred = ordered - ordered.mean(axis=1, keepdims=True)
    sums = np.cumsum(centred, axis=1)[:, min_rows - 1 : n - min_rows]
    with np.errstate(divide="ignore", invalid="ignore"):
        explained = sums**2 / (below * (n - below) * variances[:, None])
    values = bound(explained, below / n)
    lower, upper = ordered[:, min_rows - 1 : n - min_rows], ordered[:, min_rows : n - min_rows + 1]
    is_tied = ~(upper > lower)
    values[is_tied] = -np.inf
    best = np.argmax(values, axis=1)
    each = np.arange(k)
    lower, upper = lower[each, best], upper[each, best]
    middle = 0.5 * (lower + upper)
    found = np.where(middle < upper, middle, lower), values[each, best]
    if ridge is None:
        return found
    with np.errstate(invalid="ignore"):  # infinite variances of constant projections
        shrunk = explained * np.nan_to_num(variances / (variances + ridge))[:, None]
    with_ridge = bound(shrunk, below / n)
    with_ridge[is_tied] = -np.inf
    return (*found, with_ridge.max(axis=1))


def coarse_splits(
    projections: NDArray, variances: NDArray, ridge: NDArray, min_share: float
) -> NDArray:
    """Return a good cut of each of k centred projections (n, k), inf if none is allowed.

    It is the best edge of `COARSE_BINS` bins within four standard deviations. A bin is 1/32 of a
    standard deviation wide, and the bound of the best of all cuts is hardly larger. No sort is
    needed. `variances` are those of the projections, and the bound adds `ridge` to them.
    """
    n, k = projections.shape
    if k == 0:
        return np.empty(0)
    min_rows = max(1, int(np.ceil(min_share * n)))
    half = 0.5 * COARSE_BINS
    reach = 4.0 * np.sqrt(variances)
    per_unit = np.divide(half, reach, out=np.zeros(k), where=reach > 0)
    places = projections * per_unit.astype(projections.dtype)
    places += half
    np.clip(places, 0, COARSE_BINS - 1, out=places)
    bins = places.astype(np.intp)
    bins += COARSE_BINS * np.arange(k)
    bins = bins.ravel()
    counts = np.bincount(bins, minlength=k * COARSE_BINS).reshape(k, -1)
    sums = np.bincount(bins, projections.ravel(), k * COARSE_BINS).reshape(k, -1)
    below = np.cumsum(counts, axis=1)[:, :-1].astype(np.float64)
    sums = np.cumsum(sums, axis=1)[:, :-1]
    above = n - below
    allowed = (below >= min_rows) & (above >= min_rows)
    spread = below * above * (variances + ridge)[:, None]
    explained = np.divide(sums * sums, spread, out=np.zeros_like(sums), where=allowed)
    values = np.where(allowed, bound(explained, below / n), -np.inf)
    best = np.argmax(values, axis=1)
    found = (best + 1.0 - half) * (reach / half)
    return np.where(allowed[np.arange(k), best], found, np.inf)


def edge_split(bins: BinSums, edges: NDArray, variance: float, min_weight: float) -> Split:
    """Find the exact best cut among the inner edges of the bins of a centred projection."""
    total = float(bins.weight.sum())
    below, sum_below = np.cumsum(bins.weight)[:-1], np.cumsum(bins.scores)[:-1]
    values = _values(sum_below, below, total, variance, min_weight)
    best = int(np.argmax(values))
    if not np.isfinite(values[best]):
        return Split(0.0, -np.inf)
    # Cuts in adjacent empty bins are equivalent: the middle one is farthest from the rows.
    last = int(np.searchsorted(below, below[best], side="right")) - 1
    return Split(float(edges[(best + last) // 2 + 1]), float(values[best]))


def _sorted_split(
    p: NDArray,
    weights: NDArray | None,
    context: tuple[float, float, float],
    variance: float,
    min_weight: float,
) -> Split:
    """Try every cut between two of the given rows.

    `context` is the weight and the sum of the rows below them, and the weight of all rows.
    """
    before, sum_before, total = context
    if weights is None:
        p = np.sort(p)
        below = before + np.arange(1.0, p.size)
        sums = sum_before + np.cumsum(p)[:-1]
    else:
        order = np.argsort(p)
        p = p[order]
        below = before + np.cumsum(weights[order])[:-1]
        sums = sum_before + np.cumsum(weights[order] * p)[:-1]
    values = _values(sums, below, total, variance, min_weight)
    values[~(np.diff(p) > 0)] = -np.inf
    if not np.isfinite(values).any():
        return Split(0.0, -np.inf)
    best = int(np.argmax(values))
    middle = 0.5 * (p[best] + p[best + 1])
    # Between neighbouring floats the middle may round up to the upper one.
    threshold = middle if middle < p[best + 1] else p[best]
    return Split(float(threshold), float(values[best]))


def _values(
    sums: NDArray, below: NDArray, total: float, variance: float, min_weight: float
) -> NDArray:
    """Return the bound of cuts with weight `below` and centred sum `sums` on the lower side.

    It is -inf if a side has less than `min_weight`. The projections sum to 0, so w'D = sums total
    / (below (total - below)) and R^2 = sums^2 / (below (total - below) variance).
    """
    floor = max(min_weight, 1e-12 * total)
    allowed = (below >= floor) & (total - below >= floor)
    sums, below, values = sums[allowed], below[allowed], np.full(below.size, -np.inf)
    values[allowed] = bound(sums**2 / (below * (total - below) * variance), below / total)
    return values


def _binned_split(
    p: NDArray, weights: NDArray | None, variance: float, min_weight: float
) -> Split:
    low, high = float(p.min()), float(p.max())
    if not high > low:
        return Split(0.0, -np.inf)
    width = (high - low) / N_SORTED_BINS
    bins = np.minimum(((p - low) * (1.0 / width)).astype(np.int32), N_SORTED_BINS - 1)
    mass = np.bincount(bins, weights, N_SORTED_BINS).astype(np.float64)
    sums = np.bincount(bins, p if weights is None else weights * p, N_SORTED_BINS)
    total = float(mass.sum())
    after_mass, after_sum = np.cumsum(mass), np.cumsum(sums)
    before_mass, before_sum = after_mass - mass, after_sum - sums
    floor = max(min_weight, 1e-12 * total)

    # 1. Exact bound at the edges. A cut at an edge lies between two bins that contain rows.
    edge_values = _values(after_sum, after_mass, total, variance, min_weight)
    edge = int(np.argmax(edge_values))
    best = Split(0.0, -np.inf)
    if np.isfinite(edge_values[edge]):
        filled = np.flatnonzero(mass)
        following = filled[np.searchsorted(filled, edge, side="right")]
        lower = float(p[bins <= edge].max())
        upper = float(p[bins == following].min())
        best = Split(0.5 * (lower + upper), float(edge_values[edge]))

    # 2. Bins that could contain a better cut.
    largest = np.maximum(np.abs(before_sum), np.abs(after_sum)) + 0.25 * mass * width
    ends = np.stack([before_mass, after_mass]) / total
    spread = np.maximum((ends * (1 - ends)).min(axis=0), 0.0) * total**2
    balance = np.maximum(ends, 1 - ends).min(axis=0)
    balance[(ends[0] < 0.5) & (ends[1] > 0.5)] = 0.5
    with np.errstate(divide="ignore", invalid="ignore"):
        explained = np.minimum(largest**2 / (spread * variance), 1 - 1e-15)
        ceiling = explained / (2 * balance * (1 - explained))
    ceiling[spread == 0] = np.inf
    reachable = (after_mass >= floor) & (total - before_mass >= floor) & (mass > 0)
    for b in np.flatnonzero(reachable & (ceiling > best.kappa2)):
        if ceiling[b] <= best.kappa2:
            continue
        rows = np.flatnonzero(bins == b)
        w = None if weights is None else weights[rows]
        context = (float(before_mass[b]), float(before_sum[b]), total)
        inside = _sorted_split(p[rows], w, context, variance, min_weight)
        best = inside if inside.kappa2 > best.kappa2 else best
    return best


# --------- mSPC-GEP: maximise Theorem 2's bound, alternating between the direction and the labels

# With a larger multiple of the identity, the correlations would be lost to rounding.
LARGEST_REG = 1e15
# Number of bins within six standard deviations on either side of the mean. The first and the last
# bin include all rows beyond. A bin is 1/85 of a standard deviation wide.
N_BINS = 1024


def check_reg(reg: Any) -> None:
    """Raise an error if `reg` is negative or above `LARGEST_REG`."""
    check_number("reg", reg, low=0.0)
    check_number("reg", reg, low=0.0, high=LARGEST_REG)


@dataclass(frozen=True, repr=False)
class SeparationResult(Result):
    """A hyperplane and the labels on its two sides: cluster 1 is z'w > threshold.

    `lower_bound` is Theorem 2's bound on the separation probability of the labels. After a race,
    `held_out_bound` is that bound along the winning start on held-out rows, not regularised, and
    `held_out_score` the score of that start (`held_out_scores`).
    """

    _signed = ("w", "threshold")

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    w: NDArray = field(default_factory=lambda: np.empty(0))
    threshold: float = 0.0
    lower_bound: float = float("nan")
    reg: float = float("nan")
    held_out_bound: float = float("nan")
    held_out_score: float = float("nan")


class RegularizedCorrelation:
    """R + reg I of standardised rows, factorised once for the whole run.

    With `units` (p,) it is R + reg diag(units).
    """

    def __init__(self, correlation: NDArray, reg: float, units: NDArray | None = None):
        self.reg = reg
        self.correlation = correlation
        self.matrix = correlation.copy()
        self.matrix[np.diag_indices_from(self.matrix)] += reg if units is None else reg * units
        # LAPACK is called directly: for small matrices the checks of cho_solve cost more than it.
        self._factor, info = lapack.dpotrf(self.matrix, lower=1)
        if info != 0:
            raise ValueError(
                "the correlation matrix is singular (linearly dependent features, or no more rows "
                f"than features) and reg={reg:g} is too small to fix it. Use reg=1, or at least "
                "0.1."
            )

    def solve(self, right: NDArray) -> NDArray:
        """Return (R + reg I)^-1 right."""
        return lapack.dpotrs(self._factor, right, lower=1)[0]

    def whitened(self, directions: NDArray) -> NDArray:
        """Return L^-T times directions, with LL' = R + reg I, which gives them equal variance."""
        return lapack.dtrtrs(self._factor, directions, lower=1, trans=1)[0]

    def variance(self, w: NDArray) -> float:
        """Return w'(R + reg I)w."""
        return float(w @ (self.matrix @ w))


class ScanCut(NamedTuple):
    """A `Split` of a projection with its labels, True above the threshold.

    `moves` is the share of rows whose label changed, and `difference` the mean of the rows with
    label True minus that of the others, if the scan computed it.
    """

    labels: Any
    threshold: float
    kappa2: float
    moves: float
    difference: NDArray | None = None


def exact_scan(
    z: Standardized, w: NDArray, labels: Any, variance: float, min_weight: float
) -> ScanCut:
    """Return the best of all cuts of z'w for rows in memory; `labels` are the previous labels."""
    p = z.scores(w)
    found = best_split(p, z.rows.weights, variance, min_weight)
    proposed = p > found.threshold
    return ScanCut(proposed, *found, float(np.mean(proposed != labels)))


def histogram_scan(
    z: Standardized, w: NDArray, labels: Any, variance: float, min_weight: float
) -> ScanCut:
    """Return the best cut between 1024 bins within 6 standard deviations, in one pass.

    The pass computes the weight, the sum of the projections and the sum of the rows of each bin.
    The bound of every cut between bins and the means of its sides are therefore exact.
    """
    edges = scan_edges(z, w)
    if edges is None:
        return ScanCut(labels, 0.0, -np.inf, 0.0)
    bins = bin_sums(z.rows, z.of_rows(w), edges[0], edges[-1], N_BINS, labels)
    found = edge_split(bins, edges, variance, min_weight)
    above = edges[:-1] >= found.threshold
    # Rows with label True that are now below, and other rows that are now above.
    moved = bins.labelled[~above].sum() + (bins.rows - bins.labelled)[above].sum()
    weight, total = float(bins.weight[above].sum()), z.rows.total_weight
    difference = None
    if 0 < weight < total:
        sums = z.from_rows(bins.vectors[above].sum(axis=0))
        difference = sums * (total / (weight * (total - weight)))
    proposed = z.scores(w) > found.threshold
    return ScanCut(proposed, *found, float(moved) / z.rows.n_rows, difference)


def scan_edges(z: Standardized, w: NDArray) -> NDArray | None:
    """Return the edges of the bins of a projection; None if it is constant."""
    high = 6.0 * float(np.sqrt(max(w @ (z.correlation @ w), 0.0)))
    if not high > 0:
        return None
    # The mean is the centre of a bin, not an edge: many rows may lie exactly at the mean.
    return np.linspace(-high - high / N_BINS, high - high / N_BINS, N_BINS + 1)


def mean_difference(z: Standardized, mask: Any) -> NDArray:
    """Return the mean of the masked rows minus that of the others in z, in one pass."""
    v = mask.astype(z.rows.dtype) if z.rows.weights is None else z.rows.weights * mask
    weight, sums = z.rows.in_one_pass(lambda: (float(v.sum(dtype=np.float64)), z.combine(v)))
    total = z.rows.total_weight
    require_sides(weight, total)
    return sums * (total / (weight * (total - weight)))


def require_sides(weight: float, total: float) -> None:
    """Raise an error if one side has all of the weight, or none."""
    if not 0.0 < weight < total:
        raise ValueError(
            "all rows of positive weight are on one side of the start, so there is nothing to "
            "separate. Check that the rows differ, or give other labels as init."
        )


def separation_gep(
    z: Standardized,
    regularized: RegularizedCorrelation,
    w: NDArray,
    *,
    min_weight: float,
    scan: Callable[..., ScanCut] = exact_scan,
    max_iter: int = 50,
    tol: float = 0.0,
    momentum: float = 0.0,
    start: Any = None,
) -> SeparationResult:
    """Alternate between the best labels for w (a scan) and the best w for the labels (a solve).

    For given labels the maximiser of MSPC eq. 5 is w = (R + reg I)^-1 D, with D the difference of
    the means: the generalised eigenproblem has rank one, and R + reg I does not depend on the
    labels. The bound never decreases. An iteration takes two passes over the rows.

    The residual "moves" is the share of rows that the last iteration relabelled, or would have
    relabelled without improving the bound. The run ends when it is at most `tol`. `momentum`
    lengthens each step by this multiple of the last change of direction; a longer step is replaced
    by the plain one if the bound would decrease. `scan` finds the best labels along a direction
    (`exact_scan` or `histogram_scan`). `start` are the labels from which w was computed, if any:
    then the run may also end after the first scan.
    """
    history: list[float] = []
    labels = constant_vector(z.rows, False, bool) if start is None else start
    kept, threshold = w, 0.0
    status, n_iter, moves = Status.MAX_ITER, 0, 1.0
    plain = previous = None
    for n_iter in range(1, max_iter + 1):  # noqa: B007 -- the count is part of the result
        cut = scan(z, w, labels, regularized.variance(w), min_weight)
        if not np.isfinite(cut.kappa2):
            status = Status.DEGENERATE
            break
        moves = cut.moves if history or start is not None else 1.0
        # Relative increase of the bound below which it is attributed to rounding.
        if history and cut.kappa2 <= (1.0 + 1e-12) * history[-1]:
            if plain is not None:  # the bound would decrease: take the plain step
                w, plain = plain, None
                continue
            status = Status.CONVERGED
            break
        history.append(cut.kappa2)
        labels, kept, threshold = cut.labels, w, cut.threshold
        if moves <= tol:
            status = Status.CONVERGED
            break
        known = cut.difference
        w = regularized.solve(mean_difference(z, labels) if known is None else known)
        if momentum > 0:
            step = w / np.sqrt(regularized.variance(w))
            if previous is not None:
                plain, w = step, step + momentum * (step - previous)
            previous = step
    kappa2 = history[-1] if history else 0.0
    return SeparationResult(
        objective=-kappa2,
        residuals={"moves": moves},
        status=status,
        n_iter=n_iter,
        history=tuple(-value for value in history),
        labels=labels,
        w=kept,
        threshold=threshold,
        lower_bound=probability(kappa2),
        reg=regularized.reg,
    )
