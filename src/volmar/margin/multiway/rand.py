"""The Rand loss of labels of more than two clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from volmar.margin.engine.losses import Violated
from volmar.margin.multiway.pair_search import most_violated_pairs

# Tolerance of the search's upper bound, in units of rho, and maximum number of boxes: for a cut,
# which is valid for any bound, and for the certificate.
TOL, MAX_BOXES = 5e-4, 100
LAST_TOL, LAST_BOXES = 1e-4, 1000


@dataclass(frozen=True)
class MultiwayRand:
    r"""One minus the Rand index of labels y and other labels y', for scores with offsets.

    A cut chooses for each row nothing (0) or the cluster r of y' as r + 1. It requires the slack
    :math:`\rho \Delta(y, y') + \frac1n \sum_i (f_{i r_i} - f_{i y_i})`. Scores include the offset
    :math:`\rho \beta_p`, so a cut has :math:`m = \Delta + \frac1n \sum_i (\beta_{r_i} -
    \beta_{y_i})`, as in `MultiwayHinge`. The slack of the most violated cut is that of the
    labelling found; `error` bounds the difference to the true maximum.
    """

    offsets: NDArray
    scale: ClassVar[float] = 1.0

    def violated(self, y: NDArray, f: NDArray, rho: float) -> Violated:
        """Return the labelling with the largest slack found by `most_violated_pairs`."""
        found = most_violated_pairs(y, f, rho, tol=TOL, max_boxes=MAX_BOXES)
        chosen = np.where(found.labels == y, 0, found.labels + 1)
        return Violated(chosen, self.value(y, chosen), max(found.slack, 0.0))

    def error(self, y: NDArray, f: NDArray, rho: float) -> float:
        """Return a bound on the difference of the slack of `violated` to the true maximum."""
        found = most_violated_pairs(y, f, rho, tol=LAST_TOL, max_boxes=LAST_BOXES)
        return max(found.upper - self.violated(y, f, rho).xi, 0.0)

    def first(self, y: NDArray, f: NDArray) -> Violated:  # noqa: ARG002 -- the same at all scores
        """Return the cut with the largest m: all rows in one cluster, or clusters mixed evenly."""
        k = self.offsets.size
        others = [np.full(y.size, j) for j in range(k)]
        evenly = np.empty(y.size, dtype=np.intp)
        evenly[np.argsort(y, kind="stable")] = np.arange(y.size) % k
        cuts = []
        for other in (*others, evenly):
            chosen = np.where(other == y, 0, other + 1)
            cuts.append(Violated(chosen, self.value(y, chosen), float("nan")))
        return max(cuts, key=lambda cut: cut.m)

    def value(self, y: NDArray, chosen: NDArray) -> float:
        """Return m of the labels that `chosen` encodes."""
        k, n = self.offsets.size, y.size
        other = np.where(chosen == 0, y, chosen - 1)
        table = np.bincount(y * k + other, minlength=k * k).reshape(k, k)
        pairs = np.square(table.sum(axis=0)).sum() + np.square(table.sum(axis=1)).sum()
        loss = float(pairs - 2 * np.square(table).sum()) / max(n * (n - 1), 1)
        return loss + float((self.offsets[other] - self.offsets[y]).mean())


def unit(k: int) -> float:
    """Return one over the largest loss of k equal clusters, that of all rows in one cluster."""
    return k / (k - 1.0)
