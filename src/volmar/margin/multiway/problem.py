"""The maximum margin problem for more than two clusters (CPM3C)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from volmar.margin.engine.losses import Violated
from volmar.margin.engine.problem import MarginCut, MarginProblem, Placed, Plane
from volmar.margin.feature_space.space import VectorSpace
from volmar.margin.multiway.cluster_sizes import size_prices
from volmar.solvers import CuttingPlaneResult

# In the place of a rival: all of them, evenly.
EVENLY = -1


@dataclass(frozen=True)
class MultiwayHinge:
    r"""The hinge of Crammer and Singer, sum_i p_i max(0, rho - (f_iy - max_r f_ir)), r != y.

    A cut chooses for each row nothing (0) or a rival r (r + 1), and asks for the slack
    :math:`\sum_i p_i c_i (\rho - f_{i y_i} + f_{i r_i})`. Scores include the offset
    :math:`\rho \beta_p`, which is linear in rho: so a cut has
    :math:`m = \sum_i p_i c_i (1 - \beta_{y_i} + \beta_{r_i})`.
    """

    offsets: NDArray
    shares: NDArray | None = None
    scale: float = 1.0

    def violated(self, y: NDArray, f: NDArray, rho: float) -> Violated:
        """Return the rows inside the margin with their nearest rivals, and the hinge loss."""
        rows = np.arange(y.size)
        others = f.copy()
        others[rows, y] = -np.inf
        rivals = np.argmax(others, axis=1)
        lack = rho - f[rows, y] + others[rows, rivals]
        chosen = np.where(lack > 0, rivals + 1, 0)
        np.maximum(lack, 0.0, out=lack)
        return Violated(chosen, self.value(y, chosen), self._mean(lack))

    def first(self, y: NDArray, f: NDArray) -> Violated:  # noqa: ARG002 -- the same at all scores
        """Return the cut with the largest m: the one violated most where w = 0.

        Without offsets it is that of all rows and all rivals evenly, whose largest score is above
        their mean.
        """
        beta = self.offsets
        if np.ptp(beta) == 0.0:
            return Violated(np.full(y.size, EVENLY), 1.0, float("nan"))
        top, second = np.argsort(-beta, kind="stable")[:2]
        rivals = np.where(y == top, second, top)
        chosen = np.where(1.0 - beta[y] + beta[rivals] > 0, rivals + 1, 0)
        return Violated(chosen, self.value(y, chosen), float("nan"))

    def value(self, y: NDArray, chosen: NDArray) -> float:
        """Return m of rows and rivals."""
        beta = self.offsets
        of_rivals = np.append(beta, 0.0)[chosen - 1]
        if (chosen == EVENLY).any():
            evenly = (beta.sum() - beta[y]) / (beta.size - 1)
            of_rivals = np.where(chosen == EVENLY, evenly, of_rivals)
        return self._mean(np.where(chosen == 0, 0.0, 1.0 - beta[y] + of_rivals))

    def _mean(self, values: NDArray) -> float:
        if self.shares is None:
            return float(values.mean(dtype=np.float64))
        return float(self.shares @ values)


@dataclass(frozen=True)
class MultiwayMarginProblem(MarginProblem):
    r"""Labels of k clusters by the widest margin, none of which is smaller than a minimum size.

    With rows :math:`z_i` centred by their shares :math:`p_i` it is to minimise

    .. math:: J = \tfrac12 \sum_p \|w_p\|^2 - \rho + C \sum_i p_i
              \max\bigl(0, \rho - (f_{i y_i} - \max_{r \ne y_i} f_{ir})\bigr),
              \qquad f_{ip} = \langle w_p, z_i \rangle + \rho \beta_p

    over w, :math:`\rho \ge 0` and labels y of which every cluster has at least the size s. The
    offsets :math:`\beta` are given: without them clusters would be cones about the mean, and none
    could lie at it. The mean score is given with them, so that a balance of mean scores is no
    constraint, and without the minimum size clusters do empty.

    For given labels J is convex. The labels of given scores are those of the largest total score,
    :math:`y_i = \arg\max_p f_{ip} + b_p`, with the prices b of `size_prices`. Where no cluster is
    too small b is 0, and relabelling never raises J; elsewhere it may, and the engine takes no
    step that does. The prices belong to the labels and not to the scores of the hinge: so cuts do
    not depend on them, and a row that is in a cluster for its size only counts as the margin
    error that it is.

    `min_share` is s, at most 1/k, and `size_shares` are the rows' shares in it (1/n if not given).
    `min_m` is the minimum m of the first cut: below 1/C, rho would grow without limit. tau,
    threshold and balance have their defaults: the problem has no other form.
    """

    min_share: float = 0.0
    size_shares: NDArray | None = None
    min_m: float = 0.0

    @property
    def offsets(self) -> NDArray:
        """Beta, of shape (k,)."""
        return self.loss.offsets  # type: ignore[attr-defined]

    def cut(self, labels: NDArray, violated: Violated) -> MarginCut:
        """Return the cut of rows and rivals in the space of w: one pass."""
        n, k = labels.size, self.offsets.size
        chosen = violated.chosen
        v = np.zeros((n, k), dtype=self.space.dtype)
        v[chosen == EVENLY] = -1.0 / (k - 1)
        (some,) = np.nonzero(chosen > 0)
        v[some, chosen[some] - 1] = -1.0
        (taken,) = np.nonzero(chosen)
        v[taken, labels[taken]] = 1.0
        if self.space.shares is None:
            v /= n
        else:
            v *= self.space.shares[:, None]
        return MarginCut(self.space.vector(v), 0.0, violated.m)

    def labels(self, f: NDArray) -> NDArray:
        """Return the cluster of the largest score, the first of several."""
        return np.argmax(f, axis=1)

    def on(self, space: VectorSpace, chosen: NDArray) -> Self:
        """Return the problem of some of the rows."""
        sizes = None if self.size_shares is None else self.size_shares[chosen]
        return replace(
            self,
            space=space,
            loss=replace(self.loss, shares=space.shares),  # type: ignore[type-var]
            size_shares=None if sizes is None else sizes / sizes.sum(),
        )

    def start(self, labels: NDArray) -> NDArray:
        """Return start labels, from 0."""
        return labels.astype(np.intp)

    def zero_scores(self) -> NDArray:
        """Return the scores at w = 0 and rho = 0."""
        return np.zeros((self.space.n_rows, self.offsets.size), dtype=self.space.dtype)

    def shifted(self, f: NDArray, found: CuttingPlaneResult | Plane) -> NDArray:
        """Return the scores of w, changed in place, with their offsets."""
        f += (found.rho * self.offsets).astype(f.dtype)
        return f

    def placed(self, f: NDArray, found: CuttingPlaneResult | Plane) -> Placed:
        """Return the scores with their offsets, those with the prices of the sizes, and labels."""
        offsets = (found.rho * self.offsets).astype(f.dtype)
        f += offsets
        b = size_prices(f, self.size_shares, self.min_share)
        if b is None:
            return Placed(f, offsets, self.labels(f), is_allowed=False)
        y = self.labels(f + b if b.any() else f)
        return Placed(f, offsets + b, y, is_allowed=self.loss.first(y, f).m >= self.min_m)

    def is_first(self, violated: Violated) -> bool:
        """Tell whether a cut is the first of its labels, too."""
        return bool((violated.chosen == EVENLY).all())

    def clusters(self, labels: NDArray) -> NDArray:
        """Return the labels: clusters from 0."""
        return labels.astype(np.int64)
