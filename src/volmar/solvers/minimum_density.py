"""Minimum density hyperplanes: descent on the sphere while the slab around the mean grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from volmar.solvers.hyperplane_density import HyperplaneDensity
from volmar.solvers.result import Result, Status

# Length of the vector that L-BFGS starts from. Its first step is of length 1, at most: a fifth of
# a radian.
LENGTH = 5.0
# Directions with a cosine above this are the same: only one of them goes on.
SAME = 0.999
# Paths that go on after the first descents.
N_KEPT = 3
# A valley of a tenth of the lower mode is a gap: no other is looked for.
GAP = 9.0
# The tolerance of the path to the last descent, in units of that.
LOOSER = 100.0
# A descent that ends at a line search has converged where the gradient is below this: two cuts
# that are equally low make a kink.
KINK = 0.05


@dataclass(frozen=True, repr=False)
class MinimumDensityResult(Result):
    """A hyperplane, and the density on it.

    `objective` is the penalised density of `HyperplaneDensity`. The residual "gradient" is the
    norm of its gradient along the sphere, "slope" its derivative in the threshold.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        1 above the threshold, 0 below.
    normal : ndarray of shape (d,)
        Unit vector v.
    threshold : float
        b: cluster 1 is v'x > b.
    offset : float
        Half-width of the slab that b lies in, in standard deviations of the projections.
    relative_depth : float
        The lower of the largest densities on its two sides, less that on the hyperplane, as a
        multiple of the latter.
    """

    _solution: ClassVar = ("normal",)
    _signed: ClassVar = ("normal", "threshold")

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    normal: NDArray = field(default_factory=lambda: np.empty(0))
    threshold: float = 0.0
    offset: float = 0.0
    relative_depth: float = 0.0


def descend(
    problem: HyperplaneDensity, v: NDArray, *, max_iter: int, tol: float
) -> MinimumDensityResult:
    """Minimise the lowest density across a direction, by L-BFGS from v.

    The density does not depend on the length of the vector, and L-BFGS is free to change it. It
    ends where an iteration lowers the density by less than `tol`, which has the unit of the
    density: rows whose first principal component has a standard deviation of 1 suit it.
    """
    history: list[float] = []

    def objective(w: NDArray) -> tuple[float, NDArray]:
        cut, gradient = problem.value_and_gradient(w)
        return cut.value, gradient

    def keep(intermediate_result: object) -> None:
        history.append(float(intermediate_result.fun))  # type: ignore[attr-defined]

    found = minimize(
        objective,
        LENGTH * v / np.linalg.norm(v),
        jac=True,
        method="L-BFGS-B",
        callback=keep,
        options={"maxiter": max_iter, "gtol": tol / LENGTH, "ftol": tol},
    )
    u = found.x / np.linalg.norm(found.x)
    p = problem.projections(u)
    cut = problem.lowest(p)
    certificate = problem.certificate(u)
    status = Status.CONVERGED
    if found.status == 1:
        status = Status.MAX_ITER
    elif found.status == 2 and certificate.residuals["gradient"] > KINK:
        status = Status.STOPPED
    return MinimumDensityResult(
        **vars(certificate),
        status=status,
        n_iter=int(found.nit),
        history=tuple(history) or (certificate.objective,),
        labels=p > cut.threshold,
        normal=u,
        threshold=cut.threshold,
        offset=problem.offset,
        relative_depth=problem.relative_depth(p, cut.threshold),
    )


def minimum_density(
    problem: HyperplaneDensity,
    starts: Sequence[NDArray],
    offsets: Sequence[float],
    *,
    noise: NDArray,
    min_share: float,
    max_iter: int,
    tol: float,
) -> MinimumDensityResult:
    """Return the deepest of the minimum density hyperplanes from several directions.

    From each direction the density is minimised within the first slab |b| <= offset sigma, and
    within the last one, too, where the lowest cut across the direction is a valley already. The
    three deepest of these go on within slabs that grow: a minimum in one starts the descent in
    the next. A gap, a valley of at most a tenth of the lower mode beside it, ends the search for
    others. Of all minima the one with the largest relative depth is refined and returned, among
    those that leave `min_share` of the rows on both sides, if there are any.

    Parameters
    ----------
    problem : HyperplaneDensity
        The rows; its own offset does not count.
    starts : sequence of ndarray of shape (d,)
        Directions.
    offsets : sequence of float
        Half-widths of the slabs, ascending.
    noise : ndarray of shape (d,)
        Variances with which the coordinates are known, which relative depths allow for: see
        `visible_depth`.
    min_share : float
        Minimum share of the smaller side.
    max_iter : int
        Maximum number of iterations of a descent.
    tol : float
        Decrease of the density at which the last descent ends.
    """
    found: list[tuple[bool, float, MinimumDensityResult]] = []
    widest = replace(problem, offset=float(offsets[-1]))

    def follow(offset: float, before: MinimumDensityResult) -> MinimumDensityResult:
        slab = replace(problem, offset=float(offset))
        one = refined(before, slab, max_iter=max_iter, tol=LOOSER * tol)
        if not any(is_same(one, other) for _, _, other in found):
            share = float(problem.shares @ one.labels)
            depth = visible_depth(problem, one.normal, one.threshold, noise)
            found.append((min(share, 1.0 - share) >= min_share, depth, one))
        return one

    for start in starts:
        before = MinimumDensityResult(np.inf, normal=np.asarray(start))
        follow(offsets[0], before)
        if len(offsets) > 1 and visible_depth(widest, before.normal, None, noise) > 0.0:
            follow(offsets[-1], before)
        if max(map(_rank, found)) >= (True, GAP):
            break
    ranked = sorted(found, key=_rank, reverse=True)
    for _, _, kept in ranked[: 1 if _rank(ranked[0]) >= (True, GAP) else N_KEPT]:
        path = kept
        for offset in offsets[1:]:
            if offset > path.offset:
                path = follow(offset, path)
    best = max(found, key=_rank)[2]
    return refined(best, replace(problem, offset=best.offset), max_iter=max_iter, tol=tol)


def visible_depth(
    problem: HyperplaneDensity, v: NDArray, threshold: float | None, noise: NDArray
) -> float:
    r"""Return the relative depth at a threshold, or at the lowest cut, of rows with noise.

    Values of coordinate j are known with the variance `noise[j]` only: a column of integers has
    gaps that are no valleys. Gaussian noise of these variances has the variance :math:`s^2 =
    \sum_j v_j^2 noise_j` along a unit vector, and takes the place of the bandwidth h by
    :math:`\sqrt{h^2 + s^2}`.
    """
    p = problem.projections(v)
    b = problem.lowest(p).threshold if threshold is None else threshold
    variance = float((v / np.linalg.norm(v)) ** 2 @ noise)
    wide = float(np.sqrt(problem.bandwidth**2 + variance))
    return replace(problem, bandwidth=wide).relative_depth(p, b)


def _rank(one: tuple[bool, float, MinimumDensityResult]) -> tuple[bool, float]:
    return one[:2]


def is_same(one: MinimumDensityResult, other: MinimumDensityResult) -> bool:
    """Whether two hyperplanes have about the same normal, and slabs of the same width."""
    return one.offset == other.offset and abs(float(one.normal @ other.normal)) > SAME


def refined(
    start: MinimumDensityResult, problem: HyperplaneDensity, *, max_iter: int, tol: float
) -> MinimumDensityResult:
    """Return the minimum near another: of more rows, in a wider slab, or to a smaller `tol`.

    Where that leaves all rows on one side, it is the cut of the start at the mean.
    """
    found = descend(problem, start.normal, max_iter=max_iter, tol=tol)
    counted = found.labels[problem.shares > 0]
    if counted.all() or not counted.any():
        found = descend(replace(problem, offset=0.0), start.normal, max_iter=0, tol=tol)
    return replace(
        found, n_iter=start.n_iter + found.n_iter, history=start.history + found.history
    )
