"""MSPC-MPM: alternate between the minimax probability machine and the labels it predicts."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.rows import Moments, RowSource, Standardized, mask_key, moments_of_sides
from volmar.separation.gep import SeparationResult, require_sides
from volmar.solvers import MinimaxProbabilityResult, Status, solve_minimax_probability

# Tolerance of the machines before the last one; sufficient to decide which rows switch sides.
ROUGH = 1e-4


def separation_machine(
    z: Standardized, part: Moments, reg: float, t: float = 0.5, tol: float = 1e-9
) -> tuple[MinimaxProbabilityResult, NDArray, NDArray]:
    """Solve the minimax probability problem of a cluster against the rest (MSPC eq. 3).

    `part` are the moments of cluster 1 about the centre of z. Returns the machine, with cluster 1
    on its positive side, and the means of cluster 1 and of the rest.
    """
    one, rest = regular_moments(z, part, reg), regular_moments(z, z.moments - part, reg)
    return machine(one, rest, reg, t=t, tol=tol), one[0], rest[0]


def regular_moments(z: Standardized, part: Moments, reg: float) -> tuple[NDArray, NDArray]:
    """Return the mean of a cluster in z, and its covariance with reg added to the diagonal."""
    mean, covariance = z.mean_and_covariance(part)
    covariance[np.diag_indices_from(covariance)] += reg
    return mean, covariance


def machine(
    one: tuple[NDArray, NDArray], other: tuple[NDArray, NDArray], reg: float, **options: float
) -> MinimaxProbabilityResult:
    """Fit the machine to two clusters, given by `regular_moments`; `one` is positive."""
    try:
        return solve_minimax_probability(one[0] - other[0], one[1], other[1], **options)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"the covariance of a cluster is singular and reg={reg:g} is too small to fix it. Use "
            "reg=1, or at least 0.1."
        ) from error


def separation_mpm(
    z: Standardized,
    labels: NDArray,
    reg: float,
    *,
    min_weight: float,
    max_iter: int = 100,
    tol: float = 0.0,
) -> SeparationResult:
    """Fit the machine to the labels and relabel rows by its sign, until no row switches.

    The moments of cluster 1 are updated with the rows that switch; only those are read. The sign
    step is a fixed-point iteration and not an ascent of the separation probability, which usually
    decreases. Therefore the last iterate is returned, and not the one with the highest
    probability, which is close to the start. The run ends with status CYCLE if labels recur, and
    with DEGENERATE before a step that would empty a cluster. It converges when at most a share
    `tol` of the rows switches.
    """
    rows, total = z.rows, z.rows.total_weight
    center = z.moments.center

    labels = labels.astype(bool)
    (part, _), key = rows.in_one_pass(
        lambda: (moments_of_sides(rows, labels, z.moments), mask_key(labels))
    )
    require_sides(part.weight, total)
    seen = {key}
    history: list[float] = []
    status, n_iter, moves, t = Status.MAX_ITER, 0, 1.0, 0.5
    w, threshold = np.zeros(z.size), 0.0
    precision = ROUGH
    for n_iter in range(1, max_iter + 1):  # noqa: B007 -- the count is part of the result
        found, mean1, _ = separation_machine(z, part, reg, t, precision)
        if found.status is Status.DEGENERATE:
            status = Status.DEGENERATE
            break
        t, w, threshold = found.t, found.w, -found.intercept(mean1)
        history.append(-found.probability)
        proposed = z.scores(w) > threshold
        moves, mass, key, joined, left = rows.in_one_pass(
            partial(_changes, rows, center, labels, proposed)
        )
        if moves <= tol and precision == ROUGH:
            precision = 1e-9  # repeat with full precision, for a fixed point of the exact machine
            continue
        if moves <= tol:
            labels = proposed  # the sides of the returned hyperplane
            status = Status.CONVERGED
            break
        if not min_weight <= mass <= total - min_weight:
            status = Status.DEGENERATE
            break
        part = part + joined - left
        labels = proposed
        if key in seen:
            status = Status.CYCLE
            break
        seen.add(key)
    return SeparationResult(
        objective=history[-1] if history else 0.0,
        residuals={"moves": moves},
        status=status,
        n_iter=n_iter,
        history=tuple(history),
        labels=labels,
        w=w,
        threshold=threshold,
        reg=reg,
    )


def _changes(
    rows: RowSource, center: NDArray, labels: Any, proposed: Any
) -> tuple[float, float, Any, Moments, Moments]:
    """Return the share of rows that switch, and the changes of cluster 1.

    These are its weight and a key of its labels, and the moments of the rows that join and leave.
    """
    joined, left = proposed & ~labels, labels & ~proposed
    mass = proposed.sum() if rows.weights is None else (rows.weights * proposed).sum()
    return (
        float(np.mean(joined | left)),
        float(mass),
        mask_key(proposed),
        rows.moments(joined, center=center),
        rows.moments(left, center=center),
    )
