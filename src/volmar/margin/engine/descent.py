"""Certified descent that combines cutting planes and relabelling in one loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.margin.engine.problem import MarginCut, MarginProblem, Near, Plane, Violated
from volmar.rows.anywhere import drawn_rows
from volmar.solvers import Result, Status, solve_cutting_plane_qp
from volmar.solvers.cutting_plane_qp import CuttingPlaneResult

# ------------------------------------------------------------------ the cuts

# A cut is dropped after this many consecutive solutions in which it had no weight. Cuts that are
# kept for longer slow the quadratic programme.
IDLE_FOR = 10


class CutPool:
    """Cuts for one labelling, added one at a time.

    `planes` are the hyperplanes at which the cuts were most violated, None for other cuts.
    """

    def __init__(self, problem: MarginProblem):
        self.problem = problem
        self.cuts: list[MarginCut] = []
        self.planes: list[Plane | None] = []
        self.gram = np.empty((0, 0))
        self._idle: list[int] = []
        self._version = problem.space.version

    def __len__(self) -> int:
        return len(self.cuts)

    def add(self, cut: MarginCut, plane: Plane | None = None) -> None:
        """Add a cut and compute its inner products."""
        space = self.problem.space
        if space.version != self._version:
            vectors = [one.a for one in self.cuts]
            rows = [space.inner(vector, vectors) for vector in vectors]
            self.gram = np.array(rows).reshape(len(rows), len(rows))
            self._version = space.version
        self.cuts.append(cut)
        self.planes.append(plane)
        self._idle.append(0)
        n = len(self.cuts)
        gram = np.empty((n, n))
        gram[:-1, :-1] = self.gram
        gram[-1] = gram[:, -1] = space.inner(cut.a, [one.a for one in self.cuts])
        self.gram = gram

    def solve(self, C: float) -> CuttingPlaneResult:
        """Solve the quadratic programme on these cuts."""
        problem = self.problem
        found = solve_cutting_plane_qp(
            self.gram,
            np.array([cut.s for cut in self.cuts]),
            np.array([cut.m for cut in self.cuts]),
            C=C,
            tau=problem.tau,
            threshold=problem.threshold,
            balance=problem.balance,
        )
        self._idle = [
            0 if weight > 0 else idle + 1
            for weight, idle in zip(found.weights, self._idle, strict=True)
        ]
        return found

    def normal(self, found: CuttingPlaneResult) -> tuple[Any, float]:
        """Return the w of a solution and its squared length."""
        w = self.problem.space.combination([cut.a for cut in self.cuts], found.weights)
        return w, float(found.weights @ self.gram @ found.weights)

    def active(self) -> tuple[list[MarginCut], list[Plane | None]]:
        """Return the cuts with weight in the last solution, except the first, and their planes."""
        some = [i for i, idle in enumerate(self._idle) if i > 0 and idle == 0]
        return [self.cuts[i] for i in some], [self.planes[i] for i in some]

    def active_planes(self) -> list[Plane]:
        """Return the hyperplanes of the cuts with weight in the last solution."""
        known = zip(self.planes, self._idle, strict=True)
        return [plane for plane, idle in known if plane is not None and idle == 0]

    def drop_idle(self) -> None:
        """Drop cuts that had no weight for long. The first cut stays, because it bounds rho."""
        kept = [i for i, idle in enumerate(self._idle) if i == 0 or idle < IDLE_FOR]
        if len(kept) < len(self.cuts):
            self.cuts = [self.cuts[i] for i in kept]
            self.planes = [self.planes[i] for i in kept]
            self._idle = [self._idle[i] for i in kept]
            self.gram = self.gram[np.ix_(kept, kept)]


# ------------------------------------------------------------------ a sample of the rows

# Minimum number of rows for which a sample is used.
MANY_ROWS = 50_000
# Size of the sample: this share of the rows, but at most MAX_SAMPLE_ROWS.
SAMPLE_SHARE, MAX_SAMPLE_ROWS = 0.05, 100_000


class Sample(NamedTuple):
    """The problem of some rows, with vectors w of the same space, their labels and indices."""

    problem: MarginProblem
    labels: NDArray
    chosen: NDArray


def first_sample(
    problem: MarginProblem, labels: Any, seed: int, n_clusters: int = 2
) -> Sample | None:
    """Return a sample to start from, which saves passes over all rows; None if it does not pay.

    There is no sample for spaces whose vectors depend on the rows (kernels).
    """
    space: Any = problem.space
    n, d = space.n_rows, getattr(space, "n_coordinates", None)
    if d is None or n < MANY_ROWS:
        return None
    # Minimum size of the sample: rows per coordinate for two clusters, and per coordinate and
    # cluster for more. The data must have four times as many rows.
    minimum = max(100, 20 * n_clusters) * d
    size = max(min(int(SAMPLE_SHARE * n), MAX_SAMPLE_ROWS), minimum)
    if 4 * size > n:
        return None
    chosen = drawn_rows(n, space.weights, size, np.random.default_rng(seed))
    part = problem.on(space.sampled(chosen), chosen)
    return None if part is None else Sample(part, labels[chosen], chosen)


# ------------------------------------------------------------------ the descent

# A difference below this share of J is rounding.
ROUNDING = 1e-10


@dataclass(frozen=True, repr=False)
class MarginResult(Result):
    """A hyperplane that is nearly optimal in the convex problem of its own labels.

    `gap` is J minus `lower_bound`: for `labels` no hyperplane has a J that is lower by more.
    `normal` is w in the vector format of the feature space, `square` its squared norm, `rho` the
    margin and `xi` the loss: ``objective = square / 2 - rho + C xi`` (without rho for the fixed
    threshold; for the papers' loops, of the last working set). `t` is the mean score; for more
    than two clusters, the offset of each cluster's score. `n_passes` counts products with the
    data, and `n_cuts` those of the last working set. In the papers' loops `n_repeated` inner loops
    ended because the most violated cut was already in the working set, and `n_degenerate` ended at
    w = 0 and keep the labels of the previous hyperplane.
    """

    _optimum: ClassVar[str] = "the optimum for these labels"
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
    """A hyperplane with its scores, its labels and its most violated cut."""

    normal: Any
    square: float
    rho: float
    t: Any
    f: NDArray
    labels: NDArray
    violated: Violated
    J: float

    @property
    def plane(self) -> Plane:
        """The hyperplane alone."""
        return Plane(self.normal, self.rho, self.t)


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
    """Find labels whose maximum margin hyperplane gives the same labels again.

    The quadratic programme on the cuts of the current labels gives a hyperplane and a *lower
    bound* of J for these labels. If J at the hyperplane's own labels has fallen by a sufficient
    share of the possible decrease, these labels are adopted (a serious step: the step of the
    constrained concave-convex procedure). Otherwise the most violated cut is added (a null step).
    Cuts are therefore never more exact than the next relabelling needs, J never rises, and the
    loop ends with a certificate: the bound is within `tol` of J.
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
        """Start from labels."""
        self.y = self.problem.start(labels)
        self.cuts = self._first_cuts()

    def begin_on(self, sample: Sample, C: float, path: Sequence[float]) -> bool:
        """Start from the result of a sample; False if it is not feasible for all rows."""
        few = _Descent(sample.problem, self.tol, self.max_iter)
        few.begin(sample.labels)
        if few.follow(C, path) not in (Status.CONVERGED, Status.CYCLE) or few.best is None:
            return False
        own = few.best.plane
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
            # Maximum number of values of C inserted into the path if its steps are too long.
            elif status is Status.DEGENERATE and last is not None and n_between < 8:
                # The labels of the last C have no margin at this one: take smaller steps.
                remaining += [value, float(np.sqrt(last * value))]
                n_between += 1
            elif status is not Status.UNBOUNDED or value == C:
                break
        return status

    def _first_cuts(self) -> CutPool:
        """Return the cut that bounds rho and, if there are scores, the most violated one."""
        cuts = CutPool(self.problem)
        f = self.problem.zero_scores() if self.best is None else self.best.f
        cuts.add(self.problem.cut(self.y, self.problem.loss.first(self.y, f)))
        if self.best is not None and not self.problem.is_first(self.best.violated):
            cuts.add(self.problem.cut(self.y, self.best.violated), self.best.plane)
        return cuts

    def _carry(self, old: CutPool, before: NDArray) -> None:
        """Take over the cuts with weight from the previous labels, if that is cheap."""
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
        # Whether there is a hyperplane that is better than w = 0.
        found_one = zero > J
        while True:
            found = self.cuts.solve(C)
            self.bound = found.lower_bound if found.status.ok else -np.inf
            if not found.status.ok:
                return found.status
            room = J - self.bound
            # With the fixed threshold J is near that of w = 0 for small C, and near 0 for large C.
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
            # A relabelling is accepted if J falls by at least this share of the possible decrease.
            is_serious = J - 0.3 * room >= point.J
            if not is_serious:
                near = Near(point.labels, point.violated)
                own = self.problem.violated_by(self.y, point.f, point.rho, near)
                inner = self.problem.objective(point.square, point.rho, own.violated.xi, C)
                if inner - self.bound <= 0.5 * self.tol * size:
                    # The convex problem of the labels is solved.
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
                self.cuts.add(self.problem.cut(own.labels, own.violated), point.plane)

    def _rescale(self, C: float) -> None:
        """Rescale the best hyperplane to its optimal length at another C.

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
        """Request all results that a step to the labels needs."""
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
