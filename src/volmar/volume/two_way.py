"""Two clusters from all candidates, by the papers' algorithm or by repeating its first step."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.graphs.graph import Graph
from volmar.metrics.label_free import unchecked_cut
from volmar.operators import EigenPairs, SPDOperator
from volmar.solvers import Status
from volmar.volume.alternation import alternate
from volmar.volume.problem import VolumeProblem, signs
from volmar.volume.refinement import Allowed, FirstStep, refine
from volmar.volume.sqp import SoftResponses, is_above, sqp
from volmar.volume.starts import Candidates

# Initial multipliers of JMLR 2013, eq. 9, and AISTATS 2011, section 3.2.
JMLR_ETA = 0.0
AISTATS_ETA = -1e-3
MAX_REFINE = 20
MAX_SQP = 100
# Accuracy of the field if it is computed by an iterative solver.
FIELD_RTOL = 1e-3


@dataclass(frozen=True, repr=False)
class VolumeResult(SoftResponses):
    """Soft responses with their labels and their start.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        Sides of the soft responses, 0 and 1.
    start : ndarray of shape (n,)
        h0: signs of `chosen_vector` about its mean, divided by sqrt(n), or the given start.
    second_vector, chosen_vector : ndarray of shape (n,)
        Eigenvector v2 of Q, and the candidate with the lowest objective (the same if there was
        only one) or the given start.
    n_moved : int
        Number of labels that differ between the start and the end.
    n_candidates : int
        Number of starts tried.
    ill_defined : bool
        Whether Q is "ill-defined" by JMLR section 8.1: more than ten of its eigenvalues are within
        1e-4 of the second. Checked only if the paper's rule picks the starts.
    """

    _signed = ("h", "field", "balance_multiplier", "start", "second_vector", "chosen_vector")

    labels: NDArray = dataclasses.field(default_factory=lambda: np.empty(0, dtype=np.int64))
    start: NDArray = dataclasses.field(default_factory=lambda: np.empty(0))
    second_vector: NDArray = dataclasses.field(default_factory=lambda: np.empty(0))
    chosen_vector: NDArray = dataclasses.field(default_factory=lambda: np.empty(0))
    n_moved: int = 0
    n_candidates: int = 1
    ill_defined: bool = False


@dataclass(frozen=True)
class TwoWayProblem:
    """The problem with the graph, eigenpairs and starts of all candidates.

    `is_laplacian` is whether Q is L_sym, possibly shifted. `init` holds soft responses of norm 1
    that replace the candidates; None for the candidates.
    """

    graph: Graph
    problem: VolumeProblem
    pairs: EigenPairs
    starts: Candidates
    is_laplacian: bool
    init: NDArray | None = None

    @property
    def operator(self) -> SPDOperator:
        """Q."""
        return self.problem.operator

    @property
    def is_degenerate(self) -> bool:
        """Whether the start is known to be arbitrary; False for a given start.

        An eigenvector of L_sym with an eigenvalue of 1 or more separates rows from their own
        neighbours, which carries no information unless there are only two rows.
        """
        if self.init is not None:
            return False
        if self.graph.components[0] > 2 or self.starts.degenerate:
            return True
        return self.is_laplacian and self.problem.n > 2 and bool(self.pairs.values[1] >= 1.0)

    @property
    def soft_starts(self) -> list[NDArray]:
        """Soft responses h0 to start from (JMLR eq. 9), of norm 1."""
        if self.init is not None:
            return [self.init]
        root = np.sqrt(self.problem.n)
        return [self.starts.labels(j) / root for j in range(self.starts.values.size)]


def cluster_in_two(
    given: TwoWayProblem,
    *,
    mode: str,
    tol: float,
    max_iter: int | None,
    eta0: float | None = None,
    allowed: Allowed | None = None,
) -> VolumeResult:
    """Solve from every candidate, and return the best solution with its labels.

    `mode` is "default", "paper" or "aistats". `tol` is the stopping tolerance of the papers'
    algorithm, or the accuracy of the norm of h in the default mode. `max_iter` defaults to 100
    steps in the paper modes and 20 in the default mode. `eta0` is the initial multiplier of the
    papers' algorithm; None for the papers' value. `allowed` restricts the labels in the default
    mode.
    """
    read = signs if allowed is None else allowed.place
    if mode == "default":
        chosen, found = _repeated(given, tol, max_iter, allowed)
    else:
        chosen, found = _paper(given, tol, max_iter or MAX_SQP, eta0, aistats=mode == "aistats")
    start, vectors = given.soft_starts[chosen], given.starts.vectors
    labels = read(found.h)
    n_moved = int(np.sum(signs(start) != labels))
    status = Status.DEGENERATE if found.status.ok and given.is_degenerate else found.status
    fields = {f.name: getattr(found, f.name) for f in dataclasses.fields(SoftResponses)}
    return VolumeResult(
        **{**fields, "status": status},
        labels=(labels > 0).astype(np.int64),
        start=start,
        second_vector=vectors[:, 0],
        chosen_vector=vectors[:, chosen] if given.init is None else given.init,
        n_moved=min(n_moved, labels.size - n_moved),
        n_candidates=len(given.soft_starts),
        ill_defined=given.init is None and given.starts.ill_defined,
    )


def _paper(
    given: TwoWayProblem, tol: float, max_iter: int, eta0: float | None, *, aistats: bool
) -> tuple[int, SoftResponses]:
    """Run Algorithm 1 from every candidate; return the first with the lowest objective."""
    if eta0 is None:
        eta0 = AISTATS_ETA if aistats else JMLR_ETA
    elif is_above(given.problem, eta0, given.pairs.values):
        lowest = given.problem.reg * float(given.pairs.values[0])
        raise ValueError(
            f"eta0={eta0:g} must be below reg times the smallest eigenvalue of Q, {lowest:.6g}. "
            "Otherwise the first quadratic program need not have a minimum. Lower eta0."
        )
    found = [
        sqp(
            given.problem,
            start,
            given.pairs.values,
            eta0=eta0,
            algorithm="aistats" if aistats else "jmlr",
            tol=tol,
            max_iter=max_iter,
        )
        for start in given.soft_starts
    ]
    return min(enumerate(found), key=lambda pair: pair[1].objective)


def _repeated(
    given: TwoWayProblem,
    tol: float,
    max_iter: int | None,
    allowed: Allowed | None,
) -> tuple[int, SoftResponses]:
    """Repeat the first step from every candidate, then compute h for the best labels."""
    problem = given.problem
    weights = None if allowed is None else allowed.weights
    operator = problem.operator if allowed is None else allowed.operator(problem.operator)
    step = FirstStep(operator, problem.balance, rtol=FIELD_RTOL, weights=weights)
    refined = [
        refine(step, signs(start), max_iter=max_iter or MAX_REFINE, allowed=allowed)
        for start in given.soft_starts
    ]
    chosen = 0
    if len(refined) > 1:
        chosen = int(np.argmin([_natural_objective(problem, one.labels) for one in refined]))
    best = refined[chosen]
    if given.is_laplacian and (allowed is None or allowed.only_cuts) and max_iter != 1:
        # I/n in Q hides eigenvalues of L far below 1/n, so that a smoother field may cut more. The
        # side of a row of small degree is then the sign of its entry, not that about the mean.
        tried = [signs(given.soft_starts[chosen])]
        if given.init is None and allowed is None:
            tried.append(signs(given.starts.vectors[:, chosen]))
        tried = [y for y in tried if np.ptp(y)]
        least = min(tried, key=lambda y: _cut(given.graph.W, y), default=best.labels)
        if np.ptp(best.labels) and _cut(given.graph.W, least) < _cut(given.graph.W, best.labels):
            best = dataclasses.replace(best, labels=least)
    found = alternate(problem, best.labels, given.pairs.values, tol=tol, allowed=allowed)
    read = signs if allowed is None else allowed.place
    moved = not all(np.array_equal(read(x), best.labels) for x in (found.h, best.fields.x))
    return chosen, dataclasses.replace(
        found,
        field=found.h if moved else best.fields.x,
        field_residual=np.nan if moved else best.fields.residual(operator),
        n_iter=len(best.merits),
        status=found.status if best.settled or max_iter == 1 else Status.MAX_ITER,
    )


def _cut(W: Any, y: NDArray) -> float:
    """Return the normalised cut of signs."""
    return unchecked_cut(W, (y > 0).astype(np.intp), 2)


def _natural_objective(problem: VolumeProblem, y: NDArray) -> float:
    """Return the objective at reg = sqrt(n) of the balanced h of the labels y.

    Smoothness and balance have the same weight there: the objective of h = (y - mean) divided by
    its norm is -2 sqrt(n (1 - mean^2)) + sqrt(n) h'Qh.
    """
    h = y - y.mean()
    square = float(h @ h)
    if square == 0.0:
        return np.inf
    return float(np.sqrt(y.size) * (h @ problem.operator.matvec(h)) / square - 2 * np.sqrt(square))
