"""MSPC-GEP: maximise Theorem 2's bound, alternating between the direction and the labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from volmar._checks import check_number
from volmar.metrics.separation_bound import probability
from volmar.rows import Standardized, bin_sums, constant_vector
from volmar.separation.bound import best_split, edge_split
from volmar.solvers import Result, Status

# With a larger multiple of the identity, the correlations would be lost to rounding.
LARGEST_REG = 1e15
# Relative increase of the bound below which it is attributed to rounding.
ROUNDING = 1e-12
# Number of bins, and their range in standard deviations on either side of the mean. The first and
# the last bin include all rows beyond. A bin is 1/85 of a standard deviation wide.
N_BINS, N_DEVIATIONS = 1024, 6.0


def check_reg(reg: Any) -> None:
    """Raise an error if `reg` is negative or above `LARGEST_REG`."""
    check_number("reg", reg, low=0.0)
    check_number("reg", reg, low=0.0, high=LARGEST_REG)


@dataclass(frozen=True, repr=False)
class SeparationResult(Result):
    """A hyperplane and the labels on its two sides.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        1 above the threshold, 0 below.
    w : ndarray of shape (p,)
        Direction in standardised coordinates.
    threshold : float
        Threshold of the projection: cluster 1 is z'w > threshold.
    lower_bound : float
        Theorem 2's bound on the separation probability of the labels; NaN if not computed.
    reg : float
        Regularisation of the objective, in units of the features' variances.
    held_out_bound : float
        Theorem 2's bound on the separation probability along the winning start of the race, on
        held-out rows and not regularised; NaN without a race.
    held_out_score : float
        Score of that start on held-out rows (see `held_out_scores`); NaN without a race.
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
    """A cut of a projection; its labels are True for rows above the threshold.

    `kappa2` is Theorem 2's bound on kappa^2, -inf if no cut is allowed. `moves` is the share of
    rows whose label changed, and `difference` the mean of the rows with label True minus that of
    the others, if the scan computed it.
    """

    labels: Any
    threshold: float
    kappa2: float
    moves: float
    difference: NDArray | None = None


def exact_scan(
    z: Standardized, w: NDArray, labels: Any, variance: float, min_weight: float
) -> ScanCut:
    """Return the best of all cuts of z'w for rows in memory, by sorting, in one pass.

    `labels` are the previous labels, `variance` is w'(R + reg I)w, and `min_weight` is the minimum
    weight of a side.
    """
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
    high = N_DEVIATIONS * float(np.sqrt(max(w @ (z.correlation @ w), 0.0)))
    if not high > 0:
        return None
    # The mean is the centre of a bin, not an edge: many rows may lie exactly at the mean.
    return np.linspace(-high - high / N_BINS, high - high / N_BINS, N_BINS + 1)


def mean_difference(z: Standardized, mask: Any) -> NDArray:
    """Return the mean of the masked rows minus that of the others in z, in one pass.

    Since all rows are centred, it is sum_1 total / (weight_1 (total - weight_1)).
    """
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
        if history and cut.kappa2 <= (1.0 + ROUNDING) * history[-1]:
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
