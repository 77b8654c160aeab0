"""The working set of cuts, with their Gram matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from volmar.margin.engine.problem import MarginCut, MarginProblem, Plane
from volmar.solvers import CuttingPlaneResult, solve_cutting_plane_qp

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
