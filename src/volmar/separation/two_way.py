"""The hyperplane of two clusters: start, solver, and separation probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar._checks import fix_signs
from volmar._eigen import eigenpairs
from volmar.base.blocks import given_start, require_in_memory
from volmar.metrics.separation_bound import probability, separation_along
from volmar.rows.anywhere import (
    drawn_by_weight,
    has_sparse_rows,
    is_in_memory,
    mask_key,
    moments_of_sides,
)
from volmar.rows.protocol import Moments, RowSource
from volmar.rows.standardized import Standardized, is_wide
from volmar.separation.discriminants import k_means_labels
from volmar.separation.gep import (
    RegularizedCorrelation,
    SeparationResult,
    bound,
    exact_scan,
    histogram_scan,
    mean_difference,
    require_sides,
    separation_gep,
)
from volmar.separation.problem import SeparatingPlanes, SeparationRows, planes_of
from volmar.separation.race import REG, sample_size, separation_by_race
from volmar.solvers import Status, solve_minimax_probability
from volmar.solvers.minimax_probability import MinimaxProbabilityResult

# --------- mSPC-MPM: alternate between the minimax probability machine and the labels it predicts

# Tolerance of the machines before the last one; sufficient to decide which rows switch sides.
ROUGH = 1e-4


def separation_machine(
    z: Standardized, part: Moments, reg: float, t: float = 0.5, tol: float = 1e-9
) -> tuple[MinimaxProbabilityResult, NDArray, NDArray]:
    """Solve the minimax probability problem of a cluster against the rest (MSPC eq. 3).

    `part` are the moments of cluster 1 about the centre of z. Returns the machine, with cluster 1
    on its positive side, and the means of cluster 1 and of the rest.
    """
    sides = [z.mean_and_covariance(side) for side in (part, z.moments - part)]
    for _, covariance in sides:
        covariance[np.diag_indices_from(covariance)] += reg
    (mean1, S1), (mean0, S0) = sides
    try:
        return solve_minimax_probability(mean1 - mean0, S1, S0, t=t, tol=tol), mean1, mean0
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"the covariance of a cluster is singular and reg={reg:g} is too small to fix it. Use "
            "reg=1, or at least 0.1."
        ) from error


def separation_mpm(
    z: Standardized,
    labels: NDArray,
    reg: float,
    *,
    min_weight: float,
    max_iter: int = 100,
    tol: float = 0.0,
) -> SeparationResult:
    """Fit the machine to the labels and relabel rows by its sign, until no row switches.

    The moments of cluster 1 are updated with the rows that switch; only those are read. The sign
    step is a fixed-point iteration and not an ascent of the separation probability, which usually
    decreases. Therefore the last iterate is returned, and not the one with the highest
    probability, which is close to the start. The run ends with status CYCLE if labels recur, and
    with DEGENERATE before a step that would empty a cluster. It converges when at most a share
    `tol` of the rows switches.
    """
    rows, total = z.rows, z.rows.total_weight
    labels = labels.astype(bool)
    (part, _), key = rows.in_one_pass(
        lambda: (moments_of_sides(rows, labels, z.moments), mask_key(labels))
    )
    require_sides(part.weight, total)
    seen = {key}
    history: list[float] = []
    status, n_iter, moves, t = Status.MAX_ITER, 0, 1.0, 0.5
    w, threshold = np.zeros(z.size), 0.0
    precision = ROUGH
    for n_iter in range(1, max_iter + 1):  # noqa: B007 -- the count is part of the result
        found, mean1, _ = separation_machine(z, part, reg, t, precision)
        if found.status is Status.DEGENERATE:
            status = Status.DEGENERATE
            break
        t, w, threshold = found.t, found.w, -found.intercept(mean1)
        history.append(-found.probability)
        proposed = z.scores(w) > threshold
        moves, mass, key, joined, left = rows.in_one_pass(
            partial(_changes, rows, z.moments.center, labels, proposed)
        )
        if moves <= tol and precision == ROUGH:
            precision = 1e-9  # repeat with full precision, for a fixed point of the exact machine
            continue
        if moves <= tol:
            labels = proposed  # the sides of the returned hyperplane
            status = Status.CONVERGED
            break
        if not min_weight <= mass <= total - min_weight:
            status = Status.DEGENERATE
            break
        part = part + joined - left
        labels = proposed
        if key in seen:
            status = Status.CYCLE
            break
        seen.add(key)
    return SeparationResult(
        objective=history[-1] if history else 0.0,
        residuals={"moves": moves},
        status=status,
        n_iter=n_iter,
        history=tuple(history),
        labels=labels,
        w=w,
        threshold=threshold,
        reg=reg,
    )


def _changes(
    rows: RowSource, center: NDArray, labels: Any, proposed: Any
) -> tuple[float, float, Any, Moments, Moments]:
    """Return the share of rows that switch, and of cluster 1 weight, key, and changed moments."""
    joined, left = proposed & ~labels, labels & ~proposed
    mass = proposed.sum() if rows.weights is None else (rows.weights * proposed).sum()
    return (
        float(np.mean(joined | left)),
        float(mass),
        mask_key(proposed),
        rows.moments(joined, center=center),
        rows.moments(left, center=center),
    )


# -------------------- the hyperplane of two clusters: start, solver, and separation probabilities

# With at least `LONG` times the rows of the race, a share 1 / `COARSE` of the rows is clustered
# first, with at most `MAX_ENTRIES` entries, because rows in blocks are collected in memory for it.
LONG, COARSE, MAX_ENTRIES = 5, 20, 1 << 23


@dataclass(frozen=True)
class TwoWaySolver:
    """Start and solver of two clusters; the attributes are parameters of `MSPC`."""

    solver: str
    reg: float | None
    init: Any
    n_init: int
    scan: str
    max_iter: int
    tol: float
    mode: str

    @property
    def usual_reg(self) -> float:
        """The given `reg`, or the default if the race of starts does not choose one."""
        return REG if self.reg is None else float(self.reg)

    @property
    def races(self) -> bool:
        """Whether several starts are compared by a race."""
        return isinstance(self.init, str) and self.init == "auto" and self.mode == "default"

    @property
    def steps(self) -> dict[str, Any]:
        """Parameters that end an alternation."""
        return {"max_iter": self.max_iter, "tol": self.tol}

    def check_rows(self, X: Any) -> None:
        """Raise an error for rows in blocks if the start or the scan needs them in memory."""
        if self.scan == "exact" and self.solver == "gep":
            require_in_memory(X, "MSPC(scan='exact')", "rows in blocks cannot be sorted")
        if isinstance(self.init, str) and not self.races and self.solver != "eig":
            why = "k-means needs rows in memory"
            require_in_memory(X, "MSPC with a start by k-means", why)

    def solve(
        self, rows: SeparationRows, seed: int, *, hurdle: float = 0.0, n_halves: int = 2
    ) -> SeparationResult:
        """Return the hyperplane and its labels; `race` describes `hurdle` and `n_halves`."""
        if self.solver == "eig":
            found = separation_eig(rows.z, unscaled=self.mode == "paper")
            return replace(found, reg=self.usual_reg)
        if not self.races:
            labels = self.start_labels(rows, 2, seed).astype(bool)
            if self.solver == "mpm":
                return self._mpm(rows, labels, self.usual_reg)
            start = rows.regularized.solve(mean_difference(rows.z, labels))
            return self._gep(rows, rows.regularized, start)
        raced = self._raced(rows, seed, hurdle=hurdle, n_halves=n_halves)
        if self.solver == "gep":
            return raced
        return replace(
            self._mpm(rows, raced.labels, raced.reg),
            held_out_bound=raced.held_out_bound,
            held_out_score=raced.held_out_score,
        )

    def _raced(self, rows: SeparationRows, seed: int, **race: Any) -> SeparationResult:
        """Race starts, and continue from the best with all rows.

        With many rows, 5 % of them are clustered first. All rows then need only the pass for the
        moments (in memory for those of both sides), and one scan or a few.
        """
        first = self._first_of_sample(rows, seed, **race)
        if first is None:
            gep = partial(self._gep, rows)
            return separation_by_race(rows, gep, self.reg, self.n_init, seed, **race)
        found, planes = first
        start, difference = rows.cut_first(planes)
        regularized = rows.with_reg(found.reg)
        result = self._gep(rows, regularized, regularized.solve(difference), start=start)
        return replace(
            result, held_out_bound=found.held_out_bound, held_out_score=found.held_out_score
        )

    def _first_of_sample(
        self, rows: SeparationRows, seed: int, **race: Any
    ) -> tuple[SeparationResult, SeparatingPlanes] | None:
        """Return the result and hyperplane of a sample of many rows.

        Returns None if there are few rows, or if no cut of the sample is allowed.
        """
        n, d = rows.X.shape
        size = sample_size(n, d)
        if has_sparse_rows(rows.source) or is_wide(rows.source) or n < LONG * size:
            return None
        rng = np.random.default_rng(seed)
        size = max(size, min(n // COARSE, MAX_ENTRIES // d))
        chosen = drawn_by_weight(n, rows.source.weights, size, rng)
        few = rows.sampled(chosen)
        # The same scan for rows in memory and in blocks; only the last cut in memory is exact.
        coarse = self if self.scan == "exact" else replace(self, scan="histogram")
        try:
            found = separation_by_race(
                few, partial(coarse._gep, few), self.reg, self.n_init, seed, chosen, **race
            )
        except ValueError:  # e.g. all rows of the sample are equal
            return None
        return (found, planes_of(few, found.w, found.threshold)) if found.history else None

    def solve_from(
        self, rows: SeparationRows, w: NDArray, threshold: float, reg: float
    ) -> SeparationResult:
        """Continue from a hyperplane near the answer, with the scan for rows in blocks.

        Rows thus have the same labels in memory and in blocks, unless scan="exact".
        """
        if self.solver == "eig":
            return replace(separation_eig(rows.z, unscaled=self.mode == "paper"), reg=reg)
        if self.solver == "mpm":
            return self._mpm(rows, rows.z.scores(w) > threshold, reg)
        scan = "histogram" if self.scan == "auto" else self.scan
        return replace(self, scan=scan)._gep(rows, rows.with_reg(reg), w)

    def start_labels(self, rows: SeparationRows, k: int, seed: int) -> Any:
        """Return the labels of k clusters to start from: given labels, or those of k-means."""
        if not isinstance(self.init, str):
            return given_start("init", self.init, rows.X, k)
        X = rows.scaled if self.races else rows.given
        return k_means_labels(X, k, rows.z.rows.weights, n_init=self.n_init, seed=seed)

    def _mpm(self, rows: SeparationRows, labels: Any, reg: float) -> SeparationResult:
        return separation_mpm(rows.z, labels, reg, min_weight=rows.min_weight, **self.steps)

    def _gep(
        self,
        rows: SeparationRows,
        regularized: RegularizedCorrelation,
        w: NDArray,
        start: Any = None,
    ) -> SeparationResult:
        is_exact = is_in_memory(rows.X) and self.scan != "histogram"
        return separation_gep(
            rows.z,
            regularized,
            w,
            min_weight=rows.min_weight,
            scan=exact_scan if is_exact else histogram_scan,
            momentum=0.0 if self.mode == "paper" else 1.0,
            start=start,
            **self.steps,
        )


def cross_fit_probability(
    X: Any,
    weights: NDArray | None,
    prepare: Callable[[Any, NDArray | None], SeparationRows],
    solver: TwoWaySolver,
    seed: int,
    *,
    pairwise: bool,
) -> float:
    """Return the mean separation of two halves of the rows, each by a hyperplane of the other.

    `prepare` converts rows and weights to the input of the solver.
    """
    n = X.shape[0]
    order = np.random.default_rng(seed).permutation(n)
    halves = order[: n // 2], order[n // 2 :]
    found = []
    for seen, unseen in (halves, halves[::-1]):
        one, other = X[seen], X[unseen]
        if pairwise:
            one, other = one[:, seen], other[:, seen]
        try:
            rows = prepare(one, None if weights is None else weights[seen])
            result = solver.solve(rows, seed)
        except ValueError:
            return 0.0
        scores = planes_of(rows, result.w, result.threshold)(other)
        mass = None if weights is None else weights[unseen]
        found.append(separation_along(scores, scores > 0, mass))
    return float(np.mean(found))


def separation_eig(z: Standardized, *, unscaled: bool = False) -> SeparationResult:
    """Cut the first principal component of the standardised rows at zero (Theorem 3).

    The relaxed q of MSPC eq. 6 is the leading left singular vector of X Lambda^-1/2 for *every*
    reg > 0, because s / (s + reg) increases with s. The regularisation has no effect, and q is the
    first principal component of the standardised rows, computed from one eigenvector of the
    correlation matrix. With `unscaled`, XX'q is thresholded instead of q, as in the paper. The
    paper treats the two as equal, but they are not, and XX'q depends on the features' scales.
    """
    p = z.size
    values, vectors = eigenpairs(z.correlation, (max(p - 2, 0), p - 1))
    w: NDArray = fix_signs(vectors[:, -1])
    if unscaled:
        q = z.scores(w)
        v = q if z.rows.weights is None else z.rows.weights * q
        w = z.own_units_direction(v)
        w /= np.linalg.norm(w)
    residual = float(np.linalg.norm(z.correlation @ vectors[:, -1] - values[-1] * vectors[:, -1]))
    tied = p > 1 and values[-1] - values[0] < 1e-10 * values[-1]
    return SeparationResult(
        objective=-float(values[-1]),
        residuals={"eigenvector": residual},
        status=Status.DEGENERATE if tied else Status.CONVERGED,
        n_iter=1,
        history=(-float(values[-1]),),
        labels=z.scores(w) > 0,
        w=w,
        threshold=0.0,
    )


def describe_split(
    z: Standardized,
    regularized: RegularizedCorrelation,
    result: SeparationResult,
    sides: tuple[Moments, Moments],
) -> tuple[float, NDArray, float, float]:
    """Return the distance of the means along a hyperplane's normal w, and its probabilities.

    These are Chebyshev's bound on the probability that each cluster lies on its side, the
    regularised p of MSPC eq. 3 at the best direction for the labels, and Theorem 2's lower bound
    on it. `sides` are the moments of cluster 0 and of cluster 1 about the centre of z.
    """
    w = result.w
    means, variances = [], []
    for side in sides:
        mean, covariance = z.mean_and_covariance(side)
        means.append(mean)
        variances.append(float(w @ (covariance @ w)))
    difference = means[1] - means[0]
    gaps = np.array([result.threshold - w @ means[0], w @ means[1] - result.threshold])
    gaps = np.maximum(gaps, 0.0)
    spread = np.maximum(variances, 0.0) + gaps**2
    share = sides[1].weight / z.rows.total_weight
    explained = share * (1 - share) * difference @ regularized.solve(difference)
    side_probability = np.divide(gaps**2, spread, out=np.zeros(2), where=spread > 0)
    msp = separation_machine(z, sides[1], result.reg)[0].probability
    lower = probability(float(bound(np.array(explained), np.array(share))))
    return float(w @ difference) or 1.0, side_probability, msp, lower
