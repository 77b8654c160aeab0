"""The maximum margin problem on centred rows, and its objective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from volmar.guidance.guide import Guide
from volmar.margin.engine.guided_labels import sides_allowed
from volmar.margin.engine.losses import HingeLoss, Loss, Violated
from volmar.margin.feature_space.space import VectorSpace
from volmar.solvers import CuttingPlaneResult

# A sum of shares with signs is rounding below this many units in the last place of 1.
ROUNDINGS = 8.0


class MarginCut(NamedTuple):
    """A cut in the space of w: rho m - <w, a> - t s <= xi.

    `chosen` are its rows, where the problem can carry the cut over to other labels.
    """

    a: Any
    s: float
    m: float
    chosen: Any = None


class Plane(NamedTuple):
    """A hyperplane: w, the margin and the shift of its scores."""

    normal: Any
    rho: float
    t: Any


class Placed(NamedTuple):
    """Scores with what they are shifted by, and the labels that they give.

    `is_allowed` is False if the labels violate the size constraint.
    """

    f: NDArray
    t: Any
    labels: NDArray
    is_allowed: bool = True


class Near(NamedTuple):
    """Labels, and the cut that they violate most at some scores."""

    labels: NDArray
    violated: Violated


@dataclass(frozen=True)
class MarginProblem:
    r"""Labels by the widest margin, over hyperplanes whose mean score is in a box.

    With rows :math:`z_i` centred, scores :math:`f_i = \langle w, z_i \rangle + t` have the mean t,
    and the papers' balance constraint :math:`|\sum_i f_i| \le l` is :math:`|t| \le \tau`. The
    adaptive problem (SKMMC eq. 10 without its labels) is to minimise

    .. math:: J = \tfrac12 \|w\|^2 - \rho + C \, L(\mathrm{sign} f, f, \rho)

    over w, t and :math:`\rho \ge 0`, with the hinge
    :math:`L = \sum_i p_i \max(0, \rho - |f_i|)` or another loss; the fixed one has
    :math:`\rho = 1` and no :math:`-\rho`. For given labels it is convex, and its optimal value
    falls with every relabelling by sign f.

    Parameters
    ----------
    space : VectorSpace
        The rows.
    loss : Loss
        The loss.
    tau : float, default=0
        Half width of the balance box.
    threshold : {"adaptive", "fixed"}, default="adaptive"
        Whether rho is a variable or 1.
    balance : {"relative", "absolute"}, default="relative"
        Whether tau bounds t / rho or t.
    guide : Guide, optional
        Which labels are allowed. The labels of scores are then the best of these: a row whose
        label is given has the hinge of this label, on whichever side it is.
    """

    space: VectorSpace
    loss: Loss
    tau: float = 0.0
    threshold: Literal["adaptive", "fixed"] = "adaptive"
    balance: Literal["relative", "absolute"] = "relative"
    guide: Guide | None = None

    def objective(self, square: float, rho: float, slack: float, C: float) -> float:
        """Return J of ``|w|^2``, rho and the loss."""
        return 0.5 * square + C * slack - (rho if self.threshold == "adaptive" else 0.0)

    def at_zero(self, labels: NDArray, C: float) -> float:
        """Return J at w = 0 and t = 0, where every J starts."""
        if self.threshold == "adaptive":
            return 0.0
        return C * self.loss.violated(labels, self.space.full(0.0), 1.0).xi

    def cut(self, labels: NDArray, violated: Violated) -> MarginCut:
        """Return the cut of a set of rows in the space of w: one pass."""
        return self.space.in_one_pass(lambda: self._cut(labels, violated))

    def _cut(self, labels: NDArray, violated: Violated) -> MarginCut:
        v = labels * violated.chosen
        v *= self.loss.scale / (self.space.n_rows if self.space.shares is None else 1.0)
        if self.space.shares is not None:
            v *= self.space.shares
        s = float(v.sum(dtype=np.float64))
        # Of sides with the same weight s is 0, and its rounding must not say where t goes.
        if abs(s) <= ROUNDINGS * np.finfo(self.space.dtype).eps * self.loss.scale:
            s = 0.0
        return MarginCut(self.space.vector(v), s, violated.m)

    def labels(self, f: NDArray) -> NDArray:
        """Return sign f as +1 and -1 in the dtype of the scores; 0 counts as -1."""
        one = self.space.dtype.type(1)
        return np.where(f > 0, one, -one)

    # The rest, with `cut`, is what more than two clusters change.

    def on(self, space: VectorSpace, chosen: NDArray) -> Self | None:
        """Return the problem of some of the rows; None for losses that are no means over rows."""
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

        `last` is the hyperplane of the step before. Where passes are expensive, one brings all
        that `look_ahead` asks for of scores and labels.
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
        """Return the cut that labels violate most, where that of similar labels is known."""
        if np.array_equal(near.labels, labels):
            return near
        return Near(labels, self.loss.violated(labels, f, rho))

    def carried(
        self,
        cuts: Sequence[MarginCut],  # noqa: ARG002 -- for the problems that can
        before: NDArray,  # noqa: ARG002
        now: Near,  # noqa: ARG002
    ) -> list[MarginCut]:
        """Return cuts of the labels before as cuts of the labels now, where that is cheap."""
        return []

    def shifted(self, f: NDArray, found: CuttingPlaneResult | Plane) -> NDArray:
        """Return the scores of w, changed in place, with their shift t."""
        f += f.dtype.type(found.t)
        return f

    def is_first(self, violated: Violated) -> bool:
        """Tell whether a cut is the first of its labels, too."""
        return bool(violated.chosen.all())

    def clusters(self, labels: NDArray) -> NDArray:
        """Return labels in the form of `labels` as clusters, from 0."""
        return (labels > 0).astype(np.int64)
