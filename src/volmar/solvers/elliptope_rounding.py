"""From a correlation matrix M = VV' to two groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from volmar._checks import fix_signs
from volmar._eigen import singular_values, thin_svd
from volmar.solvers.elliptope import ElliptopeResult

# Below this share of n the centred M is nothing: M = 11'.
TRIVIAL = 1e-3
# The second eigenvalue of the centred M above this share of the first: M is far from two groups.
SPREAD = 0.5
# tr(HMH) / n that a tolerance may leave of M = 11': two groups of one and six rows have as much.
ROOM = 0.5


@dataclass(frozen=True)
class Rounded:
    """Signs -1 and 1 read off M, the scores they are the signs of, and how well M determines them.

    `spread` is the second over the first eigenvalue of the centred M: 0 for two groups exactly; 1
    where two directions are as good, or M is constant. `rank` is the numerical rank of M.
    """

    y: NDArray
    scores: NDArray
    spread: float
    rank: int

    @property
    def determined(self) -> bool:
        """Whether M is near two groups."""
        return self.spread <= SPREAD


@dataclass(frozen=True, repr=False)
class RoundedResult(ElliptopeResult):
    """Solution of the relaxation, with the labels rounded from it.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        Clusters, 0 and 1.
    scores : ndarray of shape (n,)
        Entries of the vector whose signs the labels are.
    rank : int
        Numerical rank of M.
    spread : float
        Second over first eigenvalue of the centred M. Above 1/2, M is far from two groups and
        labels may be one choice of several, however small the gap: it bounds the value of the
        relaxation, not the labels. `status` is the relaxation's.
    room_beside_one : float
        Where the mean or the size of row sums is not bounded: how far from M = 11', one cluster,
        an M with the gap of `tol` can be, tr(HMH) / n, of the rows that weigh. Up to 1/2, M = 11'
        is the solution and the labels are what `tol` leaves (`one_cluster`). 1, which says
        nothing, where one cluster is no solution, or another M is as good.
    """

    _signed = ("scores",)

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    scores: NDArray = field(default_factory=lambda: np.empty(0))
    rank: int = 0
    spread: float = 1.0
    room_beside_one: float = 1.0

    @property
    def one_cluster(self) -> bool:
        """Whether the solution of the relaxation is one cluster, M = 11', as far as tol tells."""
        return self.room_beside_one <= ROOM

    @classmethod
    def of(cls, found: ElliptopeResult, rounded: Rounded, **more: Any) -> Self:
        """Return the relaxation's result with the labels rounded from it."""
        return cls(
            **{one.name: getattr(found, one.name) for one in fields(ElliptopeResult)},
            labels=(rounded.y > 0).astype(np.int64),
            scores=rounded.scores,
            rank=rounded.rank,
            spread=rounded.spread,
            **more,
        )


def round_centred(V: NDArray) -> Rounded:
    """Signs of the leading eigenvector of HMH, with H the centring: the best two groups in M."""
    centred = V - V.mean(axis=0)
    left, values, _ = thin_svd(centred)
    return _rounded(V, left[:, 0], values**2)


def round_as_printed(V: NDArray) -> Rounded:
    """Signs of M's leading eigenvector about its mean (JMLR section 3.3)."""
    left = thin_svd(V)[0][:, 0]
    centred = singular_values(V - V.mean(axis=0)) ** 2
    return _rounded(V, left - left.mean(), centred)


def round_randomly(
    V: NDArray, value: Callable[[NDArray], float], n_rounds: int, seed: int
) -> Rounded:
    """Signs of projections of V on random directions; the y with the lowest ``value(y)`` is kept.

    Projections are cut at their mean, as the centred rounding does. Labels whose groups differ
    more in size than those of the centred rounding are passed over: a balance is a constraint on
    M, and the value alone would leave it.
    """
    rng = np.random.default_rng(seed)
    best = round_centred(V)
    lowest = value(best.y)
    uneven = abs(best.y.sum())
    for _ in range(n_rounds):
        scores = V @ rng.standard_normal(V.shape[1])
        scores = scores - scores.mean()
        y = np.where(scores >= 0, 1.0, -1.0)
        if abs(y.sum()) > uneven:
            continue
        found = value(y)
        if found < lowest:
            lowest = found
            best = Rounded(y, scores, best.spread, best.rank)
    return best


def _rounded(V: NDArray, scores: NDArray, centred_values: NDArray) -> Rounded:
    n = V.shape[0]
    scores = fix_signs(scores)
    top = float(centred_values[0])
    second = float(centred_values[1]) if centred_values.size > 1 else 0.0
    spread = 1.0 if top <= TRIVIAL * n else second / top
    values = singular_values(V)
    rank = int(np.sum(values > 1e-3 * values[0]))
    return Rounded(np.where(scores >= 0, 1.0, -1.0), scores, spread, rank)
