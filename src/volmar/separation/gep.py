"""MSPC-GEP: maximise Theorem 2's bound by turns over the direction and the labels."""

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

# Beside a larger multiple of the identity the correlations are rounding.
LARGEST_REG = 1e15
# A bound that rises by less than this share rises by rounding.
ROUNDING = 1e-12
# Bins within this many standard deviations of the projection on either side; the first and the
# last take what is beyond. One is an eighty-fifth of a standard deviation wide.
N_BINS, N_DEVIATIONS = 1024, 6.0


def check_reg(reg: Any) -> None:
    """Refuse a regularisation that is negative, or so large that correlations are rounding."""
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
        Where it is cut: cluster 1 is z'w > threshold.
    lower_bound : float
        Theorem 2's bound on the separation probability of the labels; NaN where it was not
        computed.
    reg : float
        Regularisation of the objective.
    held_out_bound : float
        Theorem 2's bound on the separation probability along the start of the race, on held-out
        rows and not regularised; NaN without a race.
    held_out_score : float
        What the race ranked it by (`held_out_scores`).
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
        # LAPACK itself: the matrices are small, and the checks of cho_solve cost more than it.
        self._factor, info = lapack.dpotrf(self.matrix, lower=1)
        if info != 0:
            raise ValueError(
                f"the correlation matrix is singular (features that repeat or add up, or no more "
                f"rows than features) and reg={reg:g} is too small to fix it. "
                "Use reg=1, at least 0.1."
            )

    def solve(self, right: NDArray) -> NDArray:
        """Return (R + reg I)^-1 right."""
        return lapack.dpotrs(self._factor, right, lower=1)[0]

    def whitened(self, directions: NDArray) -> NDArray:
        """Return L^-T times directions, with LL' = R + reg I: random ones of equal variance."""
        return lapack.dtrtrs(self._factor, directions, lower=1, trans=1)[0]

    def variance(self, w: NDArray) -> float:
        """Return w'(R + reg I)w."""
        return float(w @ (self.matrix @ w))


class ScanCut(NamedTuple):
    """The labels of a cut of a projection: rows above the threshold.

    `kappa2` is Theorem 2's bound on kappa^2, -inf where no cut is allowed; `moves` the share of
    the rows whose label is another than before; `difference` the mean of the labelled rows less
    that of the others, where it is known already.
    """

    labels: Any
    threshold: float
    kappa2: float
    moves: float
    difference: NDArray | None = None


def exact_scan(
    z: Standardized, w: NDArray, labels: Any, variance: float, min_weight: float
) -> ScanCut:
    """Return the best of all cuts of z'w of rows in memory, by sorting: one pass.

    `labels` are those before, `variance` is w'(R + reg I)w, `min_weight` the minimum weight of a
    side.
    """
    p = z.scores(w)
    found = best_split(p, z.rows.weights, variance, min_weight)
    proposed = p > found.threshold
    return ScanCut(proposed, *found, float(np.mean(proposed != labels)))


def histogram_scan(
    z: Standardized, w: NDArray, labels: Any, variance: float, min_weight: float
) -> ScanCut:
    """Return the best cut between 1024 bins within 6 standard deviations: one pass.

    It brings the weight, the sum of the projections and the sum of the rows of each bin, so that
    the bound of every cut between bins, and the means of its sides, are exact.
    """
    edges = scan_edges(z, w)
    if edges is None:
        return ScanCut(labels, 0.0, -np.inf, 0.0)
    bins = bin_sums(z.rows, z.of_rows(w), edges[0], edges[-1], N_BINS, labels)
    found = edge_split(bins, edges, variance, min_weight)
    above = edges[:-1] >= found.threshold
    # Labelled rows that are below now, and others that are above.
    moved = bins.labelled[~above].sum() + (bins.rows - bins.labelled)[above].sum()
    weight, total = float(bins.weight[above].sum()), z.rows.total_weight
    difference = None
    if 0 < weight < total:
        sums = z.from_rows(bins.vectors[above].sum(axis=0))
        difference = sums * (total / (weight * (total - weight)))
    proposed = z.scores(w) > found.threshold
    return ScanCut(proposed, *found, float(moved) / z.rows.n_rows, difference)


def scan_edges(z: Standardized, w: NDArray) -> NDArray | None:
    """Return the edges of the bins of a projection; None where it is constant."""
    high = N_DEVIATIONS * float(np.sqrt(max(w @ (z.correlation @ w), 0.0)))
    if not high > 0:
        return None
    # The mean is in the middle of a bin: many rows may lie there, and on no side of an edge.
    return np.linspace(-high - high / N_BINS, high - high / N_BINS, N_BINS + 1)


def mean_difference(z: Standardized, mask: Any) -> NDArray:
    """Return the mean of the masked rows less that of the others, in z: one pass.

    With the whole centred, it is sum_1 total / (weight_1 (total - weight_1)).
    """
    v = mask.astype(z.rows.dtype) if z.rows.weights is None else z.rows.weights * mask
    weight, sums = z.rows.in_one_pass(lambda: (float(v.sum(dtype=np.float64)), z.combine(v)))
    total = z.rows.total_weight
    require_sides(weight, total)
    return sums * (total / (weight * (total - weight)))


def require_sides(weight: float, total: float) -> None:
    """Refuse a side that has all of the weight, or none."""
    if not 0.0 < weight < total:
        raise ValueError(
            "all rows of positive weight are on one side of the start: there is nothing to "
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
    """Alternate the best labels for w (a scan) and the best w for the labels (a solve).

    For given labels the maximiser of MSPC eq. 5 is w = (R + reg I)^-1 D, D the difference of the
    means: the generalised eigenproblem is of rank one, and R + reg I does not depend on the
    labels. The bound never falls. Two passes over the rows an iteration. The residual "moves" is
    the share of rows that the last iteration relabelled, or would without a better bound; at `tol`
    the run ends. `momentum` lengthens steps by that part of the last change of direction, and
    takes them back where the bound would fall. `scan` is how the best labels along a direction
    are found, `exact_scan` or `histogram_scan`. `start` are the labels that w comes from, if it
    does: a first scan that moves few rows ends the run, too.
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
            if plain is not None:  # the longer step was too long: take the plain one
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
