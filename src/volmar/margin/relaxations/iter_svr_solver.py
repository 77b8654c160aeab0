"""The loop of IterSVR: alternating support vector regression and relabelling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.margin.relaxations.bias_rules import ScoreCut
from volmar.solvers import Result, Status
from volmar.solvers.l1_regression import (
    L1RegressionResult,
    RegressionSpace,
    solve_l1_regression,
)

BiasRule = Callable[[NDArray, "NDArray | None", float, float], ScoreCut]


@dataclass(frozen=True, repr=False)
class IterSVRResult(Result):
    """Labels that are reproduced by a cut of the scores of their own regression.

    Attributes
    ----------
    objective : float
        ``|w|^2 / 2 + C sum_i s_i |y_i - f_i|`` of the last regression.
    gap : float
        Duality gap of that regression: for its labels no function is better by more. It is no
        bound for other labels.
    residuals : mapping
        "switched": share of the weight of the rows for which the cut changed the labels of the
        regression; 0 at a fixed point.
    history : tuple of float
        Objectives of all regressions.
    labels : ndarray of shape (n,)
        1 if the score is positive, else 0.
    scores : ndarray of shape (n,)
        <w, z_i> + bias.
    normal : ndarray
        w, in the vector format of the feature space.
    bias : float
        Bias set by the rule, for centred rows.
    intercept : float
        Intercept of the regression.
    n_newton : int
        Number of Newton steps of all regressions.
    """

    _optimum: ClassVar[str] = "the optimum for these labels"
    _signed = ("scores", "normal", "bias", "intercept")

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    scores: NDArray = field(default_factory=lambda: np.empty(0))
    normal: NDArray = field(default_factory=lambda: np.empty(0))
    bias: float = 0.0
    intercept: float = 0.0
    n_newton: int = 0


class Round(NamedTuple):
    """A regression, the labels that it was given, and the cut of its scores."""

    given: NDArray
    fit: L1RegressionResult
    cut: ScoreCut


def iterate_svr(
    space: RegressionSpace,
    labels: NDArray,
    C: float,
    rule: BiasRule,
    *,
    floor: float,
    tol: float = 1e-3,
    max_iter: int = 50,
) -> IterSVRResult:
    """Alternate L1 regression on the labels and labels from the regression's scores.

    `rule` returns a `ScoreCut` for scores <w, z_i>, weights, the minimum weight of a side
    (`floor`) and the bias of the regression. With `lowest_loss_cut` regression and cut minimise
    the same objective over labels with at least that weight on each side. If all rows have the
    same weight, the objective never rises (by more than the gaps of the regressions) once the
    labels satisfy the minimum; with other weights the possible sums of a side are coarse. With
    `widest_gap_cut` it may rise. `tol` is the relative duality gap of the regressions.

    The status is CYCLE if earlier labels recur; the round of the cycle with the lowest objective
    is returned. It is DEGENERATE if a regression is no better than a constant; the previous round
    is returned, or no labels if it was the first. It is FAILED if the labels no longer change, but
    their regression did not reach `tol`.
    """
    given = (np.asarray(labels) > 0).astype(np.int64)
    seen: set[bytes] = set()
    rounds: list[float] = []
    last: Round | None = None
    best: Round | None = None  # of a cycle
    repeated = b""
    fit: L1RegressionResult | None = None
    status, n_newton = Status.MAX_ITER, 0
    while len(rounds) < max_iter:
        fit = solve_l1_regression(space, 2.0 * given - 1.0, C, start=fit, tol=tol)
        n_newton += fit.n_iter
        rounds.append(fit.objective)
        g = fit.scores - fit.intercept
        is_flat = np.ptp(g if space.weights is None else g[space.weights > 0]) == 0.0
        if is_flat or _is_constant(fit, given, space.weights, C, tol):
            status = Status.DEGENERATE
            break
        last = Round(given, fit, rule(g, space.weights, floor, fit.intercept))
        if np.array_equal(last.cut.labels, given):
            status, best = Status.CONVERGED if fit.status.ok else Status.FAILED, last
            break
        if repeated and (best is None or fit.objective < best.fit.objective):
            best = last
        seen.add(_key(given))
        given = last.cut.labels
        key = _key(given)
        if key == repeated:
            status = Status.CYCLE
            break
        if key in seen and not repeated:
            repeated = key  # once more around, to find the best of the cycle
    best = last if best is None else best
    if best is None:
        return IterSVRResult(np.inf, status=status, n_iter=len(rounds), history=tuple(rounds))
    return _result(space, best, status, tuple(rounds), n_newton)


def _result(
    space: RegressionSpace, best: Round, status: Status, history: tuple[float, ...], n_newton: int
) -> IterSVRResult:
    changed = best.given != best.cut.labels
    switched = np.average(changed, weights=space.weights)
    return IterSVRResult(
        objective=best.fit.objective,
        gap=best.fit.gap,
        residuals={"switched": float(switched)},
        status=status,
        n_iter=len(history),
        history=history,
        labels=best.cut.labels,
        scores=best.fit.scores - best.fit.intercept + best.cut.bias,
        normal=best.fit.normal,
        bias=best.cut.bias,
        intercept=best.fit.intercept,
        n_newton=n_newton,
    )


def _is_constant(
    fit: L1RegressionResult, labels: NDArray, weights: NDArray | None, C: float, tol: float
) -> bool:
    """Return whether a constant, the label of the larger side, is as good as the regression.

    This is the case at every C if the mean of the smaller side is also a weighted mean of rows of
    the larger side, in which no row counts more than it would in the mean of the smaller side.
    """
    share = float(np.average(labels, weights=weights))
    total = float(labels.size if weights is None else weights.sum())
    constant = 2.0 * C * total * min(share, 1.0 - share)
    return constant - (fit.objective - fit.gap) <= tol * constant


def _key(labels: NDArray) -> bytes:
    return np.packbits(labels.astype(bool)).tobytes()
