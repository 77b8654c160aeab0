"""The descent to k clusters: weights and offsets of the start, then the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from volmar.margin.engine.descent import MarginResult, maximise_margin
from volmar.margin.feature_space.space import VectorSpace
from volmar.margin.multiway.nearest_mean import NearestMean
from volmar.margin.multiway.problem import MultiwayHinge, MultiwayMarginProblem
from volmar.solvers import Status


def maximise_margins(
    space: VectorSpace,
    labels: NDArray,
    k: int,
    *,
    C: float,
    path: Sequence[float] = (),
    min_share: float = 0.0,
    size_shares: NDArray | None = None,
    tol: float = 1e-2,
    max_iter: int = 1000,
) -> MarginResult:
    """Find k clusters (at least 3) that their own widest margins cannot improve.

    The offsets of the scores are those of the rule of the nearest mean of the start, in units of
    the margin at each C of `path`; the descent is that of `maximise_margin` on
    `MultiwayMarginProblem`. All of the labels 0 to k - 1 must be present. The scores and t of the
    result, which labels go by, are about the mean of the rows by `size_shares`. Where C has no
    margin for the labels of a smaller value, it is the result of that, and DEGENERATE.
    """
    rule = NearestMean.of(space, labels, k, min_share, size_shares)
    labels = rule.labels
    best, offsets, n_iter, n_passes = None, np.zeros(k), 0, 2
    for value in [*sorted(value for value in path if value < C), C]:
        beta = rule.in_margins(value)
        result = maximise_margin(
            MultiwayMarginProblem(
                space,
                MultiwayHinge(beta, space.shares),
                min_share=min_share,
                size_shares=size_shares,
                min_m=1.0 / value,
            ),
            labels,
            C=value,
            tol=tol,
            max_iter=max(max_iter - n_iter, 1),
        )
        n_iter, n_passes = n_iter + result.n_iter, n_passes + result.n_passes
        if result.normal is not None:
            best, labels, offsets = result, result.labels, result.rho * beta
        if result.status not in (Status.CONVERGED, Status.CYCLE):
            break
    if best is None:
        return replace(result, n_iter=n_iter, n_passes=n_passes)
    plain = best.scores - offsets.astype(best.scores.dtype)
    mean = np.average(plain, axis=0, weights=size_shares)
    scores = plain + best.t.astype(plain.dtype)
    return replace(
        best,
        status=result.status,
        n_iter=n_iter,
        n_passes=n_passes,
        scores=scores,
        t=best.t + mean,
    )
