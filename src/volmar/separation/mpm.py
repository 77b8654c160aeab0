"""MSPC-MPM: the minimax probability machine and its own labels, by turns."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.rows import Moments, RowSource, Standardized, mask_key, moments_of_sides
from volmar.separation.gep import SeparationResult
from volmar.solvers import MinimaxProbabilityResult, Status, solve_minimax_probability

# Gap of the machines on the way: rows switch sides by more than what this leaves open.
ROUGH = 1e-4


def separation_machine(
    z: Standardized, part: Moments, reg: float, t: float = 0.5, tol: float = 1e-9
) -> tuple[MinimaxProbabilityResult, NDArray, NDArray]:
    """Solve the minimax probability problem of a cluster against the rest (MSPC eq. 3).

    Parameters
    ----------
    z : Standardized
        All rows.
    part : Moments
        Moments of cluster 1 about z's centre; cluster 0 is what is left.
    reg : float
        Added to the diagonals of both covariances, in units of the features' variances.
    t : float, default=0.5
        Where to start.
    tol : float, default=1e-9
        Relative gap of kappa at which to stop.

    Returns
    -------
    result : MinimaxProbabilityResult
        The machine; cluster 1 is on its positive side.
    mean1, mean0 : ndarray of shape (p,)
        Means of the two clusters in z.
    """
    mean1, S1 = z.mean_and_covariance(part)
    mean0, S0 = z.mean_and_covariance(z.moments - part)
    for S in (S1, S0):
        S[np.diag_indices_from(S)] += reg
    try:
        result = solve_minimax_probability(mean1 - mean0, S1, S0, t=t, tol=tol)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"the covariance of a cluster is singular and reg={reg:g} is too small to fix it. Use "
            "reg=1, at least 0.1."
        ) from error
    return result, mean1, mean0


def separation_mpm(
    z: Standardized,
    labels: NDArray,
    reg: float,
    *,
    min_weight: float,
    max_iter: int = 100,
    tol: float = 0.0,
) -> SeparationResult:
    """Train the machine on the labels, relabel by its sign, until no row switches.

    The moments of cluster 1 follow the rows that switch: only those are read. The sign step is a
    fixed-point iteration and not an ascent of the separation probability (which usually falls),
    so that the last iterate is returned and not the one of the highest probability, which is
    nearly the start. A labelling that comes back ends the run as a cycle; one that would empty a
    cluster ends it before, as degenerate.

    Parameters
    ----------
    z : Standardized
        The rows.
    labels : bool ndarray of shape (n,)
        Start.
    reg : float
        Regularisation.
    min_weight : float
        Least weight of a cluster.
    max_iter : int, default=100
        Most iterations.
    tol : float, default=0
        Share of switching rows at which to stop.
    """
    rows, total = z.rows, z.rows.total_weight
    center = z.moments.center

    labels = labels.astype(bool)
    (part, _), key = rows.in_one_pass(
        lambda: (moments_of_sides(rows, labels, z.moments), mask_key(labels))
    )
    seen = {key}
    history: list[float] = []
    status, n_iter, moves, t = Status.MAX_ITER, 0, 1.0, 0.5
    w, threshold = np.zeros(z.kept.size), 0.0
    precision = ROUGH
    for n_iter in range(1, max_iter + 1):  # noqa: B007 -- the count is part of the result
        machine, mean1, _ = separation_machine(z, part, reg, t, precision)
        if machine.status is Status.DEGENERATE:
            status = Status.DEGENERATE
            break
        t, w, threshold = machine.t, machine.w, -machine.intercept(mean1)
        history.append(-machine.probability)
        proposed = z.scores(w) > threshold
        moves, mass, key, joined, left = rows.in_one_pass(
            partial(_changes, rows, center, labels, proposed)
        )
        if moves <= tol and precision == ROUGH:
            precision = 1e-9  # once more, exactly: the answer is a fixed point of the machine
            continue
        if moves <= tol:
            labels = proposed  # the sides of the plane that is returned
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
    """Return the share of the rows that switch, weight and signature of the proposed cluster 1.

    And the moments of the rows that join it, and of those that leave it.
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
