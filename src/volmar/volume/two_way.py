"""Two clusters from all candidates, by the papers' algorithm or by repeating its first step."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar._vectors import check_vector
from volmar.base.validation import check_start_labels
from volmar.graphs.graph import Graph
from volmar.metrics.label_free import unchecked_cut
from volmar.operators.protocol import EigenPairs, SPDOperator
from volmar.solvers import Status
from volmar.volume.descent import (
    Allowed,
    FirstStep,
    SoftResponses,
    alternate,
    is_above,
    refine,
    sqp,
)
from volmar.volume.problem import VolumeProblem, signs

# ---- starts


# The paper's candidates have eigenvalues within this distance of the second.
WINDOW = 1e-4
MAX_CANDIDATES = 10
# Eigenvalues count as equal if they differ by at most this fraction of their scale.
SAME = 1e-9
# Below this number of rows, eigenpairs are computed by LAPACK.
SMALL = 1500


@dataclass(frozen=True)
class Candidates:
    """Eigenvectors to start from, ordered by eigenvalue from v2 on, without the trivial one."""

    vectors: NDArray
    values: NDArray
    degenerate: bool  # whether v2 is arbitrary: its eigenvalue is tied with the third or the first
    ill_defined: bool = False  # JMLR 8.1: more than ten eigenvalues in the window about the second

    def labels(self, j: int) -> NDArray:
        """Return the signs of candidate j about its mean (JMLR eq. 9, times sqrt(n)).

        Entries that differ from the mean only by rounding are all put on the positive side.
        """
        vector = self.vectors[:, j]
        centred = vector - vector.mean()
        # Deviations from the mean below this fraction of the largest entry are rounding error.
        return signs(np.where(np.abs(centred) <= 1e-12 * np.abs(vector).max(), 0.0, centred))


def n_pairs_needed(n: int, n_candidates: int | None, *, with_next: bool = False) -> int:
    """Return the number of eigenpairs to compute: the trivial one and the candidates.

    One more eigenpair shows whether the last candidate is tied. It is included in three cases:
    LAPACK computes it anyway; the paper's rule needs it to find the last candidate; or `with_next`
    is set, because quadratic programs need three eigenvalues to detect whether they have a
    minimum.
    """
    if n_candidates is None:
        return min(n, 2 + MAX_CANDIDATES)
    return min(n, 1 + n_candidates + (n < SMALL or with_next))


def is_tied(values: NDArray, n_used: int = 2) -> bool:
    """Return whether the last eigenvalue in use and the next are too close to separate.

    With two in use, the second and third are then so close that v2 is arbitrary.
    """
    spread = values[n_used - 1] - values[0]
    smallest = SAME * max(abs(values[-1]), np.finfo(float).tiny)
    # The second and third eigenvalue count as tied if they differ by at most this fraction of the
    # distance between the first and the second.
    return bool(values[n_used] - values[n_used - 1] <= 1e-3 * max(spread, smallest))


def candidates(
    pairs: EigenPairs, *, trivial: NDArray | None = None, n_candidates: int | None = None
) -> Candidates:
    r"""Pick starts from the smallest eigenpairs of Q, `n_pairs_needed` in number.

    `trivial` is an eigenvector of the smallest eigenvalue that carries no information about
    clusters (the square roots of the degrees, for a normalised Laplacian). If that eigenvalue is
    repeated (a disconnected graph), the eigenvectors are rotated so that `trivial` is the first.
    With two components, v2 then separates them, regardless of the computed basis. `n_candidates`
    counts from v2 on. If None, the paper's rule is used,
    :math:`|\lambda_i - \lambda_2| < 10^{-4}`, with at most the ten nearest, and Q is "ill-defined"
    if there are more.

    As printed, the rule includes v1 if :math:`\lambda_2 - \lambda_1 < 10^{-4}`. Here v1 counts
    towards "ill-defined" but is never a start: v1 of a normalised Laplacian, the square roots of
    the degrees, separates rows with many edges from rows with few, independently of the clusters.
    """
    values, vectors = pairs.values, pairs.vectors
    scale = max(abs(values[-1]), np.finfo(float).tiny)
    n_lowest = int(np.sum(values - values[0] <= SAME * scale))
    turned = trivial is not None and n_lowest > 1
    if trivial is not None and n_lowest > 1:
        vectors = vectors.copy()
        vectors[:, :n_lowest] = _trivial_first(vectors[:, :n_lowest], trivial)
    if values.size == 1:
        raise ValueError(
            "a start needs at least two eigenpairs of Q, but Q has one row. Use more rows."
        )
    ill_defined = False
    if n_candidates is None:
        window = np.flatnonzero(np.abs(values - values[1]) < WINDOW)
        ill_defined = window.size > MAX_CANDIDATES
        near = window[window > 0][:MAX_CANDIDATES]
    else:
        near = np.arange(1, min(1 + n_candidates, values.size))
    tied_below = n_lowest > 1 and not turned
    tied_above = values.size > 2 and is_tied(values)
    return Candidates(vectors[:, near], values[near], tied_below or tied_above, ill_defined)


def given_start(init: Any, n: int, *, two_sided: bool) -> NDArray:
    """Return the soft responses h0, of norm 1, of the parameter `init`.

    An `init` with two distinct values holds labels, of which the larger is the positive side. Any
    other `init` holds soft responses, which need both signs if `two_sided`.
    """
    given = np.asarray(init)
    if given.shape == (n,) and (given.dtype.kind in "OSU" or np.unique(given).size == 2):
        return (2.0 * check_start_labels("init", init, n, 2) - 1.0) / np.sqrt(n)
    soft = check_vector("init", init, n)
    sides = signs(soft) if two_sided else soft
    if np.ptp(sides) == 0:
        raise ValueError(
            "init must hold labels of two clusters or soft responses "
            + ("of both signs" if two_sided else "that differ")
            + f", got {n} entries from {soft.min():.3g} to {soft.max():.3g}."
        )
    soft = soft / np.abs(soft).max()  # squares of tiny or huge entries would under- or overflow
    return soft / np.linalg.norm(soft)


def _trivial_first(block: NDArray, trivial: NDArray) -> NDArray:
    """Rotate an orthonormal basis so that its first vector is the projection of `trivial`."""
    along = block.T @ trivial
    if not np.linalg.norm(along) > 0:
        return block
    rotation = np.linalg.qr(np.column_stack([along, np.eye(along.size)]))[0]
    return block @ rotation


# ---- two way


MAX_REFINE = 20
MAX_SQP = 100


@dataclass(frozen=True, repr=False)
class VolumeResult(SoftResponses):
    """Soft responses with their labels and their start.

    `start` is h0: the signs of `chosen_vector` about its mean, divided by sqrt(n), or the given
    start. `second_vector` is the eigenvector v2 of Q, `chosen_vector` the candidate with the
    lowest objective. `ill_defined` is JMLR section 8.1's: more than ten eigenvalues of Q are
    within 1e-4 of the second. It is checked only if the paper's rule picks the starts.
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
        # The initial multipliers of AISTATS 2011, section 3.2, and JMLR 2013, eq. 9.
        eta0 = -1e-3 if aistats else 0.0
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
    # Accuracy of the field if it is computed by an iterative solver.
    step = FirstStep(operator, problem.balance, rtol=1e-3, weights=weights)
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
