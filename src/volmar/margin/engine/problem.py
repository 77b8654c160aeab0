"""The maximum margin problem on centred rows, and its objective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from volmar.guidance.guide import Guide, Placement
from volmar.margin.feature_space.space import VectorSpace
from volmar.solvers.cutting_plane_qp import CuttingPlaneResult

# ------------------------------------------------------------------ the hinge


class Violated(NamedTuple):
    """A cut: a set of rows, its loss m, and the slack xi that it requires at given scores."""

    chosen: NDArray
    m: float
    xi: float


class Loss(Protocol):
    """A loss, defined by its cuts.

    With labels y and shares p of the rows (1/n, or their weights), a set c of rows gives the cut

        rho m(c) - sum_i v_i f_i <= xi,    v_i = scale p_i c_i y_i,

    and the loss at scores f is the largest slack xi that any cut requires.
    """

    @property
    def scale(self) -> float:
        """Weight of a row's score in a cut: 1, or 2 if a cut flips labels."""

    def violated(self, y: NDArray, f: NDArray, rho: float) -> Violated:
        """Return the cut that requires the largest slack at scores f."""

    def first(self, y: NDArray, f: NDArray) -> Violated:
        """Return the cut with the largest m; of several, the one with the largest slack at f."""

    def value(self, y: NDArray, chosen: NDArray) -> float:
        """Return the loss m of a set of rows."""


@dataclass(frozen=True)
class HingeLoss:
    """The hinge sum_i p_i max(0, rho - y_i f_i) (SKMMC eq. 10 and 12); p_i is 1/n by default."""

    shares: NDArray | None = None
    scale: float = 1.0

    def violated(self, y: NDArray, f: NDArray, rho: float) -> Violated:
        """Return the rows inside the margin, their share and the hinge loss."""
        lack = rho - y * f
        chosen = lack > 0
        np.maximum(lack, 0.0, out=lack)
        if self.shares is None:
            n = chosen.size
            return Violated(
                chosen, np.count_nonzero(chosen) / n, float(lack.sum(dtype=np.float64)) / n
            )
        m = float(self.shares @ chosen)
        return Violated(chosen, m, float(self.shares @ lack))

    def first(self, y: NDArray, f: NDArray) -> Violated:  # noqa: ARG002 -- the same at all scores
        """Return the cut of all rows. Its slack, which depends on rho, is NaN."""
        return Violated(y != 0, 1.0, float("nan"))

    def value(self, y: NDArray, chosen: NDArray) -> float:
        """Return the share of the chosen rows."""
        if self.shares is None:
            return float(np.count_nonzero(chosen)) / y.size
        return float(self.shares @ chosen)


# ------------------------------------------------------------------ labels of guided fits


def has_limits(guide: Guide) -> bool:
    """Return whether a guide limits the sizes of clusters."""
    return guide.low is not None or guide.high is not None


def sides_allowed(guide: Guide, f: NDArray, rho: float, shares: Any = None) -> NDArray:
    r"""Return the best labels 0 or 1 that a guide allows, for the scores of two clusters.

    They minimise the hinge :math:`\sum_i p_i \max(0, \rho \mp f_i)`, so a relabelling never raises
    the objective. For a row without links this is the sign of its score. With size limits, the
    labels are the best by the scores: they correspond to a shifted border, which also applies to
    new rows.
    """
    if _is_by_scores(guide):
        return guide.place_sides(f).labels
    f = f.astype(np.float64, copy=False)
    gains = -np.maximum(0.0, np.column_stack([rho + f, rho - f]))
    return guide.place(_weighted(gains, guide, shares)).labels


def clusters_allowed(guide: Guide, f: NDArray, rho: float, shares: Any = None) -> Placement:
    """Return the best placement that a guide allows for scores (n, k); see `sides_allowed`.

    The hinge is that of Crammer and Singer: the amount by which the lead over all other clusters
    falls short of rho.
    """
    if _is_by_scores(guide):
        return guide.place(f)
    f = f.astype(np.float64, copy=False)
    order = np.argsort(f, axis=1)
    rows = np.arange(len(f))
    top, second = order[:, -1], order[:, -2]
    rivals = np.repeat(f[rows, top][:, None], f.shape[1], axis=1)
    rivals[rows, top] = f[rows, second]
    gains = -np.maximum(0.0, rho - (f - rivals))
    return guide.place(_weighted(gains, guide, shares))


def _is_by_scores(guide: Guide) -> bool:
    return has_limits(guide) or (guide.units is None and not guide.apart.size)


def _weighted(gains: NDArray, guide: Guide, shares: Any) -> NDArray:
    """Return gains whose sum weighted by the guide equals the sum weighted by `shares`.

    The gains of a row with weight 0 are unchanged; they do not count.
    """
    if shares is None and guide.weights is None:
        return gains
    n = len(gains)
    p = np.ones(n) if shares is None else np.asarray(shares, dtype=np.float64) * n
    w = np.ones(n) if guide.weights is None else np.asarray(guide.weights, dtype=np.float64)
    factors = np.divide(p, w, out=np.ones(n), where=w > 0)
    return gains * factors[:, None]


# ------------------------------------------------------------------ the problem

# A signed sum of shares below this multiple of the machine epsilon is rounding.
ROUNDINGS = 8.0


class MarginCut(NamedTuple):
    """A cut in the space of w: rho m - <w, a> - t s <= xi.

    `chosen` are its rows, if the problem can carry the cut over to other labels.
    """

    a: Any
    s: float
    m: float
    chosen: Any = None


class Plane(NamedTuple):
    """A hyperplane: w, the margin rho and the shift t of its scores."""

    normal: Any
    rho: float
    t: Any


class Placed(NamedTuple):
    """Scores, their shift t, and their labels.

    `is_allowed` is False if the labels violate the size constraint.
    """

    f: NDArray
    t: Any
    labels: NDArray
    is_allowed: bool = True


class Near(NamedTuple):
    """Labels, and their most violated cut at some scores."""

    labels: NDArray
    violated: Violated


@dataclass(frozen=True)
class MarginProblem:
    r"""The maximum margin problem over labels, with a bounded mean score.

    With rows :math:`z_i` centred, scores :math:`f_i = \langle w, z_i \rangle + t` have the mean t,
    and the papers' balance constraint :math:`|\sum_i f_i| \le l` is :math:`|t| \le \tau`. The
    adaptive problem (SKMMC eq. 10 without its labels) is to minimise

    .. math:: J = \tfrac12 \|w\|^2 - \rho + C \, L(\mathrm{sign} f, f, \rho)

    over w, t and :math:`\rho \ge 0`, with the hinge :math:`L = \sum_i p_i \max(0, \rho - |f_i|)`
    or another loss. With the fixed threshold :math:`\rho = 1`, and J has no term :math:`-\rho`.
    For given labels the problem is convex, and its optimal value falls with every relabelling by
    sign f.
    """

    space: VectorSpace
    loss: Loss
    tau: float = 0.0
    threshold: Literal["adaptive", "fixed"] = "adaptive"
    balance: Literal["relative", "absolute"] = "relative"
    guide: Guide | None = None

    def objective(self, square: float, rho: float, slack: float, C: float) -> float:
        """Return J for given ``|w|^2``, rho and loss."""
        return 0.5 * square + C * slack - (rho if self.threshold == "adaptive" else 0.0)

    def at_zero(self, labels: NDArray, C: float) -> float:
        """Return J at w = 0 and t = 0, where the descent starts."""
        if self.threshold == "adaptive":
            return 0.0
        return C * self.loss.violated(labels, self.space.full(0.0), 1.0).xi

    def cut(self, labels: NDArray, violated: Violated) -> MarginCut:
        """Return the cut of a set of rows in the space of w, in one pass over the rows."""
        return self.space.in_one_pass(lambda: self._cut(labels, violated))

    def _cut(self, labels: NDArray, violated: Violated) -> MarginCut:
        v = labels * violated.chosen
        v *= self.loss.scale / (self.space.n_rows if self.space.shares is None else 1.0)
        if self.space.shares is not None:
            v *= self.space.shares
        s = float(v.sum(dtype=np.float64))
        # For sides with the same weight s is 0, and rounding must not determine t.
        if abs(s) <= ROUNDINGS * np.finfo(self.space.dtype).eps * self.loss.scale:
            s = 0.0
        return MarginCut(self.space.vector(v), s, violated.m)

    def labels(self, f: NDArray) -> NDArray:
        """Return sign f as +1 and -1 in the dtype of the scores; 0 counts as -1."""
        one = self.space.dtype.type(1)
        return np.where(f > 0, one, -one)

    # The problem of more than two clusters overrides `cut` and the following methods.

    def on(self, space: VectorSpace, chosen: NDArray) -> Self | None:
        """Return the problem of some of the rows; None for losses that are not means over rows."""
        if not isinstance(self.loss, HingeLoss):
            return None
        loss = replace(self.loss, shares=space.shares)
        return replace(self, space=space, loss=loss, guide=self._guide_on(chosen))

    def _guide_on(self, chosen: NDArray) -> Guide | None:
        return None if self.guide is None else self.guide.on(chosen)

    def start(self, labels: NDArray) -> NDArray:
        """Return start labels, positive or not, in the form of `labels`."""
        return np.where(labels > 0, 1, -1).astype(self.space.dtype)

    def zero_scores(self) -> NDArray:
        """Return the scores at w = 0 and t = 0."""
        return self.space.full(0.0)

    def placed(
        self,
        f: NDArray,
        found: CuttingPlaneResult | Plane,
        look_ahead: Callable[[Any, Any], None],
        last: Plane | None = None,  # noqa: ARG002 -- a start for more than two clusters
    ) -> Placed:
        """Return the scores of w with their shift t and their labels.

        `last` is the hyperplane of the previous step. If passes are expensive, a single pass
        computes all results that `look_ahead` requests for scores and labels.
        """
        if found.t:
            f += f.dtype.type(found.t)
        if self.guide is None:
            labels = self.labels(f)
        else:
            sides = sides_allowed(self.guide, f, found.rho, self.space.shares)
            labels = self.start(sides)
        self.space.prefetch(lambda: look_ahead(f, labels))
        return Placed(f, found.t, labels)

    def violated_by(self, labels: NDArray, f: NDArray, rho: float, near: Near) -> Near:
        """Return the most violated cut of labels, given that of similar labels."""
        if np.array_equal(near.labels, labels):
            return near
        return Near(labels, self.loss.violated(labels, f, rho))

    def carried(
        self,
        cuts: Sequence[MarginCut],  # noqa: ARG002 -- for the problems that can
        before: NDArray,  # noqa: ARG002
        now: Near,  # noqa: ARG002
    ) -> list[MarginCut]:
        """Return cuts of the old labels as cuts of the new ones, if that is cheap."""
        return []

    def shifted(self, f: NDArray, found: CuttingPlaneResult | Plane) -> NDArray:
        """Add the shift t to the scores of w in place, and return them."""
        f += f.dtype.type(found.t)
        return f

    def is_first(self, violated: Violated) -> bool:
        """Return whether a cut is also the first cut of its labels."""
        return bool(violated.chosen.all())

    def clusters(self, labels: NDArray) -> NDArray:
        """Return labels in the form of `labels` as cluster numbers from 0."""
        return (labels > 0).astype(np.int64)
