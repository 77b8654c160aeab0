"""Minimum density hyperplanes: descent on the sphere, with a growing slab around the mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from volmar.solvers.hyperplane_density import HyperplaneDensity
from volmar.solvers.result import Result, Status

# Length of the first vector of L-BFGS. Its first step has length 1 at most, a fifth of a radian.
LENGTH = 5.0
# Cosine above which two directions count as equal, and only one of them is continued.
SAME = 0.999
# Number of paths that are continued after the first descents.
N_KEPT = 3
# Relative depth from which a valley is a gap, a tenth of the lower mode, and ends the search.
GAP = 9.0
# Tolerance of all descents before the last, in units of the tolerance of the last.
LOOSER = 100.0
# Maximum gradient at which a descent that ends in its line search counts as converged. The density
# has a kink where two cuts are equally low.
KINK = 0.05


@dataclass(frozen=True, repr=False)
class MinimumDensityResult(Result):
    """A hyperplane with the density on it.

    `objective` is the penalised density of `HyperplaneDensity`. The residual "gradient" is the
    norm of its gradient along the sphere, "slope" its derivative in the threshold.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        1 above the threshold, 0 below.
    normal : ndarray of shape (d,)
        Unit normal vector v.
    threshold : float
        Threshold b: cluster 1 is v'x > b.
    offset : float
        Half-width of the slab that contains b, in standard deviations of the projections.
    relative_depth : float
        Depth of the valley, relative to the density on the hyperplane: the smaller of the maximum
        densities on its two sides minus that on the hyperplane, divided by the latter.
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

    The density does not depend on the length of the vector, which L-BFGS may change. It ends when
    an iteration decreases the density by less than `tol`. Since `tol` has the unit of the density,
    the first principal component of the rows should have a standard deviation of about 1.
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

    From each direction the density is minimised within the first slab ``|b| <= offset sigma``, and
    also within the last slab if the lowest cut across the direction is already in a valley. The
    three deepest minima continue in growing slabs: the minimum in one slab starts the descent in
    the next. A gap, a valley of at most a tenth of the lower adjacent mode, ends the search. The
    minimum with the largest relative depth is refined and returned. Minima that leave at least
    `min_share` of the rows on both sides are preferred.

    Parameters
    ----------
    problem : HyperplaneDensity
        Density of the rows; its own offset is ignored.
    starts : sequence of ndarray of shape (d,)
        Start directions.
    offsets : sequence of float
        Half-widths of the slabs, ascending.
    noise : ndarray of shape (d,)
        Variances of the errors of the coordinates, taken into account by relative depths (see
        `visible_depth`).
    min_share : float
        Minimum share of the rows on the smaller side.
    max_iter : int
        Maximum number of iterations per descent.
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

    The values of coordinate j have errors of variance `noise[j]`. For example, a column of
    integers has gaps that are not valleys. Gaussian noise of these variances has the variance
    :math:`s^2 = \sum_j v_j^2 noise_j` along a unit vector, which changes the bandwidth h to
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
    """Return whether two hyperplanes have nearly the same normal, and slabs of equal width."""
    return one.offset == other.offset and abs(float(one.normal @ other.normal)) > SAME


def refined(
    start: MinimumDensityResult, problem: HyperplaneDensity, *, max_iter: int, tol: float
) -> MinimumDensityResult:
    """Return the minimum near `start`, for more rows, a wider slab or a smaller `tol`.

    If it leaves all rows on one side, the cut at the mean along the start is returned instead.
    """
    found = descend(problem, start.normal, max_iter=max_iter, tol=tol)
    counted = found.labels[problem.shares > 0]
    if counted.all() or not counted.any():
        found = descend(replace(problem, offset=0.0), start.normal, max_iter=0, tol=tol)
    return replace(
        found, n_iter=start.n_iter + found.n_iter, history=start.history + found.history
    )
