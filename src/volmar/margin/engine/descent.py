"""The certified loop: cutting planes and relabelling in one descent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.margin.engine.cut_pool import CutPool
from volmar.margin.engine.losses import Violated
from volmar.margin.engine.problem import MarginCut, MarginProblem, Near, Plane
from volmar.margin.engine.sample import Sample
from volmar.solvers import CuttingPlaneResult, Result, Status

# Share of the possible decrease that makes a relabelling worth its new cuts.
SERIOUS = 0.3
# Values of C put between those of the path where a step is too long.
MAX_BETWEEN = 8
# Share of J below which a difference is rounding.
ROUNDING = 1e-10


@dataclass(frozen=True, repr=False)
class MarginResult(Result):
    """A hyperplane whose labels no solution of their own convex problem can much improve.

    Attributes
    ----------
    objective : float
        J of the hyperplane.
    gap : float
        J less a lower bound of the convex problem of `labels`: with these labels no hyperplane has
        a J that is lower by more.
    labels : ndarray of shape (n,)
        1 where the score is positive; with more than two clusters, where it is largest.
    scores : ndarray of shape (n,) or (n, k)
        f_i, with mean t; with more than two clusters, those of the hinge.
    normal : object
        w, in the form that the space keeps vectors.
    square : float
        ``|w|^2``.
    rho : float
        Margin.
    xi : float
        Slack: the loss at the hyperplane, ``objective = square / 2 - rho + C xi`` (without rho for
        the fixed threshold). Of the papers' loops it is that of the last working set, which
        `history` is computed from.
    t : float or ndarray of shape (k,)
        Mean score; with more than two clusters that of each, which labels go by.
    lower_bound : float
        Lower bound of the convex problem of `labels`; minus infinity where none was proved.
    n_passes : int
        Products with the data.
    n_cuts : int
        Cuts of the last working set.
    n_repeated : int
        Inner loops of SKMMC's Algorithm 3 that ended because the cut violated most was among the
        cuts: its approximation by basis vectors misses it.
    n_degenerate : int
        Inner loops of the papers that ended at w = 0, and whose labels are those of the hyperplane
        before.
    """

    _signed = ("scores", "normal", "t")

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    scores: NDArray = field(default_factory=lambda: np.empty(0))
    normal: Any = None
    square: float = 0.0
    rho: float = float("nan")
    xi: float = float("nan")
    t: Any = 0.0
    lower_bound: float = -np.inf
    n_passes: int = 0
    n_cuts: int = 0
    n_degenerate: int = 0
    n_repeated: int = 0


@dataclass(frozen=True)
class Iterate:
    """A hyperplane with its scores and labels, and the cut that its loss comes from."""

    normal: Any
    square: float
    rho: float
    t: Any
    f: NDArray
    labels: NDArray
    violated: Violated
    J: float


def maximise_margin(
    problem: MarginProblem,
    labels: NDArray,
    *,
    C: float,
    path: Sequence[float] = (),
    tol: float = 1e-2,
    max_iter: int = 1000,
    sample: Sample | None = None,
) -> MarginResult:
    """Find a labelling that its own widest margin cannot improve.

    The quadratic programme on the cuts of the current labels gives a hyperplane and a *lower
    bound* of what these labels can reach. Where J at the hyperplane's own labels has fallen by
    a fair share of what the bound leaves open, they are taken over (a serious step: the step of
    the constrained concave-convex procedure); otherwise the most violated cut is added (a null
    step). So cuts are never more exact than the next relabelling needs, J never rises, and the
    loop ends with a certificate: the bound is within `tol` of J.

    Parameters
    ----------
    problem : MarginProblem
        Rows, loss and balance.
    labels : ndarray of shape (n,)
        Labels to start from, positive or not; with more than two clusters from 0.
    C : float
        Weight of the loss.
    path : sequence of float, default=()
        Values of C to pass through first, each from the labels of the last. Near the smallest C
        for which the problem is bounded nearly all rows are inside the margin, J has few local
        minima, and starts matter little. A value at which it is unbounded is left out.
    tol : float, default=1e-2
        Gap, relative to J, at which to stop.
    max_iter : int, default=1000
        Maximum number of steps in all.
    sample : Sample, optional
        Some of the rows, to which the descent is made first. All rows begin at its hyperplane,
        with the cuts that they have at the hyperplanes of the sample's last cuts: few passes are
        left. What is returned belongs to all rows, and so does its certificate.

    Returns
    -------
    MarginResult
        Its status is UNBOUNDED where J has no lower bound at this C, DEGENERATE where w = 0 is
        the best for the labels (all rows on one side, or all alike, or too mixed for a C as large:
        the hyperplane is then that of the largest C that has one, if any), and CYCLE where the
        convex problem is solved and J is higher at the labels of its solution. That can happen for
        losses that do not fall with a relabelling (F measure, mutual information).
    """
    descent = _Descent(problem, tol, max_iter)
    if sample is None or not descent.begin_on(sample, C, path):
        descent.begin(labels)
        return descent.result(descent.follow(C, path), C)
    return descent.result(descent.follow(C, ()), C)


class _Descent:
    """The state of a descent: labels, their cuts, the best hyperplane so far."""

    y: NDArray
    cuts: CutPool

    def __init__(self, problem: MarginProblem, tol: float, max_iter: int):
        self.problem, self.tol, self.max_iter = problem, tol, max_iter
        self.best: Iterate | None = None
        self.last: Plane | None = None
        self.bound = -np.inf
        self.history: list[float] = []
        self.n_iter = 0
        self.passes_before = problem.space.n_passes

    def begin(self, labels: NDArray) -> None:
        """Begin at labels."""
        self.y = self.problem.start(labels)
        self.cuts = self._first_cuts()

    def begin_on(self, sample: Sample, C: float, path: Sequence[float]) -> bool:
        """Begin where some rows lead to; False where that is no hyperplane for all rows."""
        few = _Descent(sample.problem, self.tol, self.max_iter)
        few.begin(sample.labels)
        if few.follow(C, path) not in (Status.CONVERGED, Status.CYCLE) or few.best is None:
            return False
        own = Plane(few.best.normal, few.best.rho, few.best.t)
        others = [one for one in few.cuts.active_planes() if one.normal is not own.normal]
        problem, space = self.problem, self.problem.space

        def cut(plane: Plane, labels: NDArray) -> MarginCut:
            f = problem.shifted(space.scores(plane.normal), plane)
            return problem.cut(labels, problem.loss.violated(labels, f, plane.rho))

        def look_ahead(f: NDArray, labels: NDArray) -> None:
            self._ask_first_cuts(f, labels, own.rho)
            for plane in others:
                cut(plane, labels)

        f, t, y, is_allowed = problem.placed(space.scores(own.normal), own, look_ahead)
        if not is_allowed:
            return False
        violated = problem.loss.violated(y, f, own.rho)
        square = float(space.inner(own.normal, [own.normal])[0])
        J = problem.objective(square, own.rho, violated.xi, C)
        self.best = Iterate(own.normal, square, own.rho, t, f, y, violated, J)
        self.y, self.n_iter = y, few.n_iter
        self.cuts = self._first_cuts()
        for plane in others:
            self.cuts.add(cut(plane, y), plane)
        return True

    def follow(self, C: float, path: Sequence[float]) -> Status:
        """Descend at each value of the path, then at C, and return how the last descent ended."""
        status, last = Status.UNBOUNDED, None
        remaining = [C, *sorted((value for value in path if value < C), reverse=True)]
        n_between = 0
        while remaining:
            value = remaining.pop()
            status = self.run(value)
            if status in (Status.CONVERGED, Status.CYCLE):
                last = value
            elif status is Status.DEGENERATE and last is not None and n_between < MAX_BETWEEN:
                # The labels of the last C have no margin at this one: go there in smaller steps.
                remaining += [value, float(np.sqrt(last * value))]
                n_between += 1
            elif status is not Status.UNBOUNDED or value == C:
                break
        return status

    def _first_cuts(self) -> CutPool:
        """Return the cut that bounds rho and, where there are scores, the one violated most."""
        cuts = CutPool(self.problem)
        f = self.problem.zero_scores() if self.best is None else self.best.f
        cuts.add(self.problem.cut(self.y, self.problem.loss.first(self.y, f)))
        if self.best is not None and not self.problem.is_first(self.best.violated):
            plane = Plane(self.best.normal, self.best.rho, self.best.t)
            cuts.add(self.problem.cut(self.y, self.best.violated), plane)
        return cuts

    def _carry(self, old: CutPool, before: NDArray) -> None:
        """Take over the cuts with weight of the labels before, where that is cheap."""
        best = self.best
        if best is None:
            return
        cuts, planes = old.active()
        now = Near(best.labels, best.violated)
        for cut, plane in zip(self.problem.carried(cuts, before, now), planes, strict=False):
            self.cuts.add(cut, plane)

    def run(self, C: float) -> Status:
        zero = self.problem.at_zero(self.y, C)
        self._rescale(C)
        J = zero if self.best is None else min(self.best.J, zero)
        # Whether there is a hyperplane that is better than none.
        found_one = zero > J
        while True:
            found = self.cuts.solve(C)
            self.bound = found.lower_bound if found.status.ok else -np.inf
            if not found.status.ok:
                return found.status
            room = J - self.bound
            # The fixed threshold's J is near that of w = 0 where C is small, near 0 where large.
            size = min(abs(self.bound), max(zero - self.bound, ROUNDING * zero))
            size = min(size, abs(J)) if found_one else size
            if room <= self.tol * size or room <= 0:
                return Status.CONVERGED if found_one else Status.DEGENERATE
            if self.n_iter >= self.max_iter:
                return Status.MAX_ITER
            self.n_iter += 1
            point = self._point(found, C)
            if point is None:
                return Status.DEGENERATE
            own = None
            is_serious = J - SERIOUS * room >= point.J
            if not is_serious:
                near = Near(point.labels, point.violated)
                own = self.problem.violated_by(self.y, point.f, point.rho, near)
                inner = self.problem.objective(point.square, point.rho, own.violated.xi, C)
                if inner - self.bound <= 0.5 * self.tol * size:
                    # The labels' own problem is solved.
                    if point.J >= J:
                        self.history.append(J)
                        return Status.CYCLE if found_one else Status.DEGENERATE
                    is_serious = True
            if is_serious:
                J, found_one = point.J, True
                before, old = self.y, self.cuts
                self.best, self.y = point, point.labels
                self.cuts = self._first_cuts()
                self._carry(old, before)
            self.history.append(J)
            if own is not None and not is_serious:
                self.cuts.drop_idle()
                plane = Plane(point.normal, point.rho, point.t)
                self.cuts.add(self.problem.cut(own.labels, own.violated), plane)

    def _rescale(self, C: float) -> None:
        """Bring the best hyperplane to its best length at another C.

        J(s w) = s^2 |w|^2 / 2 - s (rho - C xi), where s scales the scores, the margin and t alike.
        """
        best, problem = self.best, self.problem
        if best is None:
            return
        s = 1.0
        if problem.threshold == "adaptive":
            gain = best.rho - C * best.violated.xi
            s = max(gain, 0.0) / best.square or 1.0
            if problem.balance == "absolute" and best.t:
                s = min(s, problem.tau / abs(best.t))
        violated = best.violated._replace(xi=s * best.violated.xi)
        square, rho = s**2 * best.square, s * best.rho if problem.threshold == "adaptive" else 1.0
        self.best = Iterate(
            problem.space.combination([best.normal], np.array([s])),
            square,
            rho,
            s * best.t,
            best.f * best.f.dtype.type(s),
            best.labels,
            violated,
            problem.objective(square, rho, violated.xi, C),
        )

    def _point(self, found: CuttingPlaneResult, C: float) -> Iterate | None:
        problem = self.problem
        w, square = self.cuts.normal(found)
        if square <= 0.0 or (problem.threshold == "adaptive" and found.rho <= 0.0):
            return None

        def look_ahead(f: NDArray, labels: NDArray) -> None:
            self._ask_first_cuts(f, labels, found.rho)
            np.array_equal(labels, self.y)
            problem.cut(self.y, problem.loss.violated(self.y, f, found.rho))

        f, t, labels, is_allowed = problem.placed(
            problem.space.scores(w), found, look_ahead, self.last
        )
        self.last = Plane(w, found.rho, t)
        violated = problem.loss.violated(labels, f, found.rho)
        J = problem.objective(square, found.rho, violated.xi, C) if is_allowed else np.inf
        return Iterate(w, square, found.rho, t, f, labels, violated, J)

    def _ask_first_cuts(self, f: NDArray, labels: NDArray, rho: float) -> None:
        """Ask for all that a step to the labels asks for."""
        problem = self.problem
        own = problem.loss.violated(labels, f, rho)
        problem.is_first(own)
        problem.cut(labels, problem.loss.first(labels, f))
        problem.cut(labels, own)

    def result(self, status: Status, C: float) -> MarginResult:
        best = self.best
        n_passes = self.problem.space.n_passes - self.passes_before
        if best is None:
            return MarginResult(
                objective=0.0, status=status, n_iter=self.n_iter, n_passes=n_passes
            )
        J = self.problem.objective(best.square, best.rho, best.violated.xi, C)
        gap = max(J - self.bound, 0.0)
        return MarginResult(
            objective=J,
            gap=gap,
            residuals={"relative gap": gap / abs(J) if J else 0.0},
            status=status,
            n_iter=self.n_iter,
            history=tuple(self.history),
            labels=self.problem.clusters(best.labels),
            scores=best.f,
            normal=best.normal,
            square=best.square,
            rho=best.rho,
            xi=best.violated.xi,
            t=best.t,
            lower_bound=self.bound,
            n_passes=n_passes,
            n_cuts=len(self.cuts),
        )
