"""Rounding of a correlation matrix M = VV' to two clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from volmar._checks import fix_signs
from volmar._eigen import singular_values, thin_svd
from volmar.solvers.elliptope import ElliptopeResult

# If the leading eigenvalue of the centred M is below this share of n, M counts as 11'.
TRIVIAL = 1e-3
# Maximum ratio of the second to the first eigenvalue of the centred M for two clear clusters.
SPREAD = 0.5
# Maximum tr(HMH) / n up to which M counts as 11'; clusters of one and six rows have as much.
ROOM = 0.5


@dataclass(frozen=True)
class Rounded:
    """Signs y in {-1, 1} rounded from M, and the scores of which they are the signs.

    `spread` is the ratio of the second to the first eigenvalue of the centred M. It is 0 if M has
    exactly two clusters, and 1 if two directions are equally good or M is constant. `rank` is the
    numerical rank of M.
    """

    y: NDArray
    scores: NDArray
    spread: float
    rank: int

    @property
    def determined(self) -> bool:
        """Whether M is close to two clusters."""
        return self.spread <= SPREAD


@dataclass(frozen=True, repr=False)
class RoundedResult(ElliptopeResult):
    """Solution of the relaxation with labels rounded from it.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        Cluster of each row, 0 or 1.
    scores : ndarray of shape (n,)
        Entries of the vector whose signs are the labels.
    rank : int
        Numerical rank of M.
    spread : float
        Ratio of the second to the first eigenvalue of the centred M. Above 1/2, M is far from two
        clusters and the labels may be one choice of several, even if the gap is small: the gap
        bounds the value of the relaxation, not the labels. `status` is that of the relaxation.
    room_beside_one : float
        Without a bound on row sums, the maximum distance tr(HMH) / n from a single cluster,
        M = 11', that a gap of `tol` allows, over the rows with positive a. Up to 1/2, M = 11' is
        the solution, and the labels are due to the tolerance (see `one_cluster`). 1 if M = 11' is
        not known to be the unique solution.
    """

    _optimum: ClassVar[str] = "the optimum of the relaxation"
    _signed = ("scores",)

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    scores: NDArray = field(default_factory=lambda: np.empty(0))
    rank: int = 0
    spread: float = 1.0
    room_beside_one: float = 1.0

    @property
    def one_cluster(self) -> bool:
        """Whether the relaxation is solved by one cluster, M = 11', up to the tolerance."""
        return self.room_beside_one <= ROOM

    @classmethod
    def of(cls, found: ElliptopeResult, rounded: Rounded, **more: Any) -> Self:
        """Return the result of the relaxation with the rounded labels added."""
        return cls(
            **{one.name: getattr(found, one.name) for one in fields(ElliptopeResult)},
            labels=(rounded.y > 0).astype(np.int64),
            scores=rounded.scores,
            rank=rounded.rank,
            spread=rounded.spread,
            **more,
        )


def round_centred(V: NDArray) -> Rounded:
    """Round to the signs of the leading eigenvector of HMH, with H the centring matrix."""
    centred = V - V.mean(axis=0)
    left, values, _ = thin_svd(centred)
    return _rounded(V, left[:, 0], values**2)


def round_as_printed(V: NDArray) -> Rounded:
    """Round to the signs of the leading eigenvector of M minus its mean (JMLR section 3.3)."""
    left = thin_svd(V)[0][:, 0]
    centred = singular_values(V - V.mean(axis=0)) ** 2
    return _rounded(V, left - left.mean(), centred)


def round_randomly(
    V: NDArray, value: Callable[[NDArray], float], n_rounds: int, seed: int
) -> Rounded:
    """Round to signs of random projections of V; the y with the lowest ``value(y)`` is kept.

    Projections are cut at their mean, as in `round_centred`. Labels are skipped if their clusters
    differ more in size than those of `round_centred`: the balance is a constraint on M, which the
    value alone does not enforce.
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
