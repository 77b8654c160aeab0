"""The hyperplane of two clusters: where to start, and which solver goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.base.blocks import given_start, require_in_memory
from volmar.metrics import separation_along
from volmar.rows import is_in_memory
from volmar.separation.gep import RegularizedCorrelation, SeparationResult, separation_gep
from volmar.separation.mpm import separation_mpm
from volmar.separation.multiway import k_means_labels, scaled
from volmar.separation.planes import planes_of
from volmar.separation.problem import SeparationRows
from volmar.separation.race import REG, separation_by_race
from volmar.separation.scan import ExactScan, HistogramScan, mean_difference

__all__ = ["TwoWaySolver", "cross_fit_probability"]


@dataclass(frozen=True)
class TwoWaySolver:
    """A start and a solver; the attributes are parameters of `MSPC`."""

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
        """The regularisation where no race chooses one."""
        return REG if self.reg is None else float(self.reg)

    @property
    def races(self) -> bool:
        """Whether starts are raced."""
        return isinstance(self.init, str) and self.init == "auto" and self.mode == "default"

    @property
    def steps(self) -> dict[str, Any]:
        """When an alternation ends."""
        return {"max_iter": self.max_iter, "tol": 0.0 if self.mode == "paper" else self.tol}

    def check_rows(self, X: Any) -> None:
        """Refuse rows in blocks where the start or the scan needs them in memory."""
        if self.scan == "exact" and self.solver == "gep":
            require_in_memory(X, "MSPC(scan='exact')", "rows in blocks are not sorted")
        if isinstance(self.init, str) and not self.races and self.solver != "eig":
            why = "k-means takes rows in memory"
            require_in_memory(X, "MSPC with a start by k-means", why)

    def solve(self, rows: SeparationRows, seed: int) -> SeparationResult:
        """Return the hyperplane and its labels."""
        if self.solver == "eig":
            from volmar.separation.eig import separation_eig

            found = separation_eig(rows.z, unscaled=self.mode == "paper")
            return replace(found, reg=self.usual_reg)
        if not self.races:
            labels = self.start_labels(rows, 2, seed).astype(bool)
            if self.solver == "mpm":
                return self._mpm(rows, labels, self.usual_reg)
            start = rows.regularized.solve(mean_difference(rows.z, labels))
            return self._gep(rows, rows.regularized, start)
        raced = separation_by_race(
            rows, lambda matrix, w: self._gep(rows, matrix, w), self.reg, self.n_init, seed
        )
        if self.solver == "gep":
            return raced
        return replace(
            self._mpm(rows, raced.labels, raced.reg),
            held_out_bound=raced.held_out_bound,
            held_out_score=raced.held_out_score,
        )

    def start_labels(self, rows: SeparationRows, k: int, seed: int) -> Any:
        """Return the labels of k clusters to start from: those given, or of k-means."""
        if not isinstance(self.init, str):
            return given_start("init", self.init, rows.X, k)
        X = scaled(rows.X, 1.0 / rows.z.scale) if self.races else rows.X
        return k_means_labels(X, k, rows.z.rows.weights, n_init=self.n_init, seed=seed)

    def _mpm(self, rows: SeparationRows, labels: Any, reg: float) -> SeparationResult:
        return separation_mpm(rows.z, labels, reg, min_weight=rows.min_weight, **self.steps)

    def _gep(
        self, rows: SeparationRows, regularized: RegularizedCorrelation, w: NDArray
    ) -> SeparationResult:
        is_exact = is_in_memory(rows.X) and self.scan != "histogram"
        return separation_gep(
            rows.z,
            regularized,
            w,
            min_weight=rows.min_weight,
            scan=ExactScan if is_exact else HistogramScan,
            momentum=0.0 if self.mode == "paper" else 1.0,
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
    """Return how well halves of the rows are separated, each by a hyperplane of the other.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d) or (n, n)
        Rows, or a pairwise matrix.
    weights : ndarray of shape (n,) or None
        Their weights.
    prepare : callable
        From rows and weights to what the solver takes.
    solver : TwoWaySolver
        Finds the hyperplanes.
    seed : int
        Seed of the halves and of the solver.
    pairwise : bool
        Whether X is a pairwise matrix.
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
