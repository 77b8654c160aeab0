"""Fixed-point iteration for k clusters: directions from labels, and labels from directions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.solvers import Result, Status


@dataclass(frozen=True, repr=False)
class MultiwaySeparationResult(Result):
    r"""Clusters that are a fixed point of their linear discriminants.

    Attributes
    ----------
    objective : float
        Minus the separation :math:`tr((R + \lambda I)^{-1} B)` of the clusters, with B the
        covariance of their means (for two clusters minus :math:`R^2` of Theorem 2).
    residuals : mapping
        "moves": share of the rows that the last step relabelled.
    labels : ndarray of shape (n,)
        Cluster of each row.
    directions : ndarray of shape (p, m)
        Directions in the standardised coordinates z.
    offsets : ndarray of shape (m,)
        Constants that are added to the projections.
    """

    _per_cluster: ClassVar = {"directions": 1, "offsets": 0}

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    directions: NDArray = field(default_factory=lambda: np.empty((0, 0)))
    offsets: NDArray = field(default_factory=lambda: np.empty(0))


class Step(NamedTuple):
    """Directions and offsets fitted to labels, their objective `value`, and the new labels.

    `weights` (k,) are the weights of the new clusters, `moves` is the share of relabelled rows,
    and `key` is equal for equal labels.
    """

    directions: NDArray
    offsets: NDArray
    value: float
    labels: Any
    weights: NDArray
    moves: float
    key: bytes


def relabel_until_settled(
    step: Callable[[Any], Step],
    labels: Any,
    *,
    min_weight: float | NDArray,
    max_iter: int = 100,
    tol: float = 1e-3,
    keeps_best: bool = False,
) -> MultiwaySeparationResult:
    """Repeat `step` from nonempty clusters until it relabels at most a share `tol` of the rows.

    This is a fixed-point iteration, not a descent. It also ends if labels recur, or before a step
    that would leave a cluster with less than `min_weight` (one value, or one per cluster). The
    labels of the last valid step are returned with the directions that give them. If no step is
    valid, `history` is empty and the labels are those of the start. With `keeps_best`, a run that
    does not converge returns the step with the largest value.
    """
    seen: set[bytes] = set()
    history: list[float] = []
    status, moves, n_iter = Status.MAX_ITER, 1.0, 0
    kept: Step | None = None
    best: Step | None = None
    for n_iter in range(1, max_iter + 1):  # noqa: B007 -- the count is part of the result
        taken = step(labels)
        if (taken.weights < np.maximum(min_weight, np.finfo(float).tiny)).any():
            status = Status.DEGENERATE
            break
        kept = taken
        if keeps_best and (best is None or taken.value > best.value):
            best = taken
        history.append(-taken.value)
        moves, labels = taken.moves, taken.labels
        if moves <= tol:
            status = Status.CONVERGED
            break
        if taken.key in seen:
            status = Status.CYCLE
            break
        seen.add(taken.key)
    if best is not None and not status.ok:
        kept, labels, moves = best, best.labels, best.moves
    return MultiwaySeparationResult(
        objective=0.0 if kept is None else -kept.value,
        residuals={"moves": moves},
        status=status,
        n_iter=n_iter,
        history=tuple(history),
        labels=labels,
        directions=np.empty((0, 0)) if kept is None else kept.directions,
        offsets=np.empty(0) if kept is None else kept.offsets,
    )
