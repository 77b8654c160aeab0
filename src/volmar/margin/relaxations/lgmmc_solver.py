"""Label generation: optimisation over the convex hull of all balanced labellings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from volmar.margin.feature_space.space import VectorSpace
from volmar.margin.feature_space.subspace import GrowingSubspace
from volmar.margin.relaxations.label_generation import (
    Labelling,
    balanced_labels,
    climb,
    largest_possible_square,
    measure,
)
from volmar.solvers import Result, Status
from volmar.solvers.cutting_plane_certificate import NotAGramMatrixError
from volmar.solvers.label_kernel_svm import LabelKernelResult, solve_label_kernel_svm

# Number of Krylov vectors of the first subspace, which grows by the normals of the labellings.
FIRST_BASIS = 12
MAX_WIDENINGS = 20
# A labelling is dropped after this many rounds without weight.
IDLE_ROUNDS = 3
# Number of unsuccessful searches before the end. A single search can miss violated labellings if
# many are similar.
SEARCHES = 5
# Shares of the tolerance for the programme in the subspace, and for the subspace itself.
IN_SUBSPACE, OF_SUBSPACE = 0.1, 0.3


@dataclass(frozen=True, repr=False)
class LabelGenerationResult(Result):
    """Solution of the relaxation over the labellings generated, and labels from it.

    Attributes
    ----------
    objective : float
        Primal value over the labellings generated: a certified upper bound of the value of the
        relaxation, because more labellings can only lower it.
    gap : float
        `objective` minus `bound`, both of which are certified.
    residuals : mapping of str to float
        Relative to the objective: ``"master gap"``, the certified distance to the optimum over the
        labellings generated, and ``"violation"``, the amount by which the most violated labelling
        *found* would lower the objective. The most violated one of all is NP-hard to find, so a
        violation of 0 is not a proof.
    bound : float
        Certified lower bound of the relaxation, and so of the problem over single labellings: the
        eigenvalue bound of `largest_possible_square` at `alpha`.
    labels : ndarray of shape (n,)
        1 if the score is positive, else 0. With ``reading="eigenvector"``, the signs of the
        leading eigenvector of the mixture.
    scores : ndarray of shape (n,)
        f_i = <w, z_i>. Their (weighted) mean is 0 if rows are centred.
    normal : object
        w, in the vector format of the source.
    rho : float
        Margin of w for the labels of its scores, in units of the scores.
    labelled_objective : float
        Value of the problem at `labels` and the best length of w. No labelling has a value below
        `bound`.
    weights : ndarray of shape (T,)
        Weights mu of the labellings kept, largest first.
    alpha : ndarray of shape (n,)
        Dual weights of the rows. Their sum is 1, and those of rows outside the margin are 0.
    n_labellings : int
        Number of labellings generated, including those dropped later.
    rank_share : float
        Largest eigenvalue of sum_t mu_t y_t y_t' divided by n (scaled by the roots of the rows'
        shares if weights differ). It is 1 if the solution is a single labelling.
    n_passes : int
        Number of products with the data.
    """

    _optimum: ClassVar[str] = "the optimum of the relaxation"
    _signed = ("scores", "normal")

    bound: float = -np.inf
    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    scores: NDArray = field(default_factory=lambda: np.empty(0))
    normal: Any = None
    rho: float = float("nan")
    labelled_objective: float = float("nan")
    weights: NDArray = field(default_factory=lambda: np.empty(0))
    alpha: NDArray = field(default_factory=lambda: np.empty(0))
    n_labellings: int = 0
    rank_share: float = float("nan")
    n_passes: int = 0


def generate_labels(
    source: VectorSpace,
    *,
    C: float,
    limit: float,
    start: NDArray | None = None,
    n_init: int = 10,
    tol: float = 1e-2,
    max_iter: int = 50,
    seed: int = 0,
    reading: str = "margin",
    from_graph: bool = False,
) -> LabelGenerationResult:
    r"""Solve the relaxation by cutting planes, and derive labels from it.

    With centred rows :math:`z_i` of weights :math:`w_i` and the set B of labellings with
    :math:`|\sum_i w_i y_i|` at most `limit`, the relaxation is

    .. math:: \max_{\alpha \ge 0, 1'\alpha = 1} \min_{y \in B} \;
              -\tfrac12 \Big|\sum_i \alpha_i y_i z_i\Big|^2
              - \frac{1}{2C} \sum_i \frac{\alpha_i^2}{w_i} .

    Every round solves it over the labellings generated so far (`solve_label_kernel_svm`, whose
    weights mu are a point of the convex hull of all yy'), and searches for a violated labelling.

    The programme is solved in a subspace of the feature space, to which the true normals are added
    until the gap in the whole space is small. A point of the subspace is also one of the whole
    space, so its primal value is an upper bound there. The dual value is computed with the true
    normals.

    Rows of weight 0 get labels but have no other effect. `limit` must be at least 1 if n is odd
    and all weights are equal, and at least the largest weight otherwise: every order of the rows
    can be cut that evenly. `start` holds labels 0 or 1, from which the first labelling is found.
    `n_init` is the number of starts of each search for a violated labelling. The rounds, at most
    `max_iter`, end once violation and gap, relative to the objective, are at most `tol`.

    `reading` sets how labels are found: "margin", the signs of the scores with the widest margin,
    or "eigenvector", the signs of the leading eigenvector of the mixture. `from_graph` adds starts
    from the axes of the kernel's graph (`KernelSpace.graph_axes`). Narrow kernels need them,
    because their best labellings are far from those found from random directions.
    """
    search = _Search(source, C, limit, n_init, tol, np.random.default_rng(seed))
    search.reading, search.from_graph = reading, from_graph
    found = search.find_violated() if start is None else search.found_from(start)
    for _ in range(max_iter):
        if found is None:
            break
        search.solve_with(found)
        found = search.find_violated()
    status = Status.CONVERGED if found is None else Status.MAX_ITER
    if status is Status.CONVERGED and not search.master_gap <= tol:
        status = Status.FAILED
    return search.result(status)


def row_weights(source: VectorSpace) -> NDArray | None:
    """Return row weights with mean 1 over rows of positive weight; None if all are equal."""
    if source.shares is None:
        return None
    return source.shares * np.count_nonzero(source.shares)


class _Search:
    def __init__(
        self,
        source: VectorSpace,
        C: float,
        limit: float,
        n_init: int,
        tol: float,
        rng: np.random.Generator,
    ):
        self.source, self.C, self.limit = source, C, limit
        self.n_init, self.tol, self.rng = n_init, tol, rng
        self.passes_before = source.n_passes
        self.space = GrowingSubspace(source)
        self.space.add_leading(FIRST_BASIS, rng)
        if not self.space.basis:
            raise NotAGramMatrixError("a random combination of the rows has no length")
        n = source.n_rows
        self.weights = row_weights(source)
        # Rows with positive weight; the programme contains only these.
        self.rows: Any = slice(None) if self.weights is None else np.flatnonzero(self.weights)
        self.kept_weights = None if self.weights is None else self.weights[self.rows]
        self.alpha = np.full(n, 1.0 / n) if source.shares is None else source.shares
        self.kept: list[Labelling] = []
        self.mu = np.empty(0)
        self.idle = np.empty(0, dtype=int)
        self.upper, self.lower = np.inf, -np.inf
        self.violation = np.inf
        self.history: list[float] = []
        self.n_labellings = 0
        self.reading, self.from_graph = "margin", False

    def _value(self, square: float) -> float:
        alpha = self.alpha[self.rows]
        shared = alpha if self.kept_weights is None else alpha / self.kept_weights
        return -0.5 * (square + float(alpha @ shared) / self.C)

    @property
    def master_gap(self) -> float:
        return float(max(self.upper - self.lower, 0.0) / abs(self.upper))

    # ------------------------------------------------------------------ new labellings

    def find_violated(self) -> Labelling | None:
        """Return a labelling violated by more than `tol`; None if several searches find none."""
        self.violation = 0.0
        # Graph starts climb in the whole space: the subspace lacks directions that separate them.
        graph_starts = self._graph_starts() if self.from_graph else []
        for _ in range(SEARCHES):
            candidates = [self._climb(self.space, y) for y in self._starts()]
            best = max(candidates, key=lambda labelling: labelling.square)
            found = max(
                (self._climb(self.source, y) for y in (best.y, *graph_starts)),
                key=lambda labelling: labelling.square,
            )
            graph_starts = []
            if not self.kept:
                return found
            worst = max(found.square, *(labelling.square for labelling in self.kept))
            violation = max(self.upper - self._value(worst), 0.0) / abs(self.upper)
            self.violation = float(max(self.violation, violation))
            if self.upper - self._value(found.square) > self.tol * abs(self.upper):
                return found
        return None

    def found_from(self, labels: NDArray) -> Labelling:
        """Return the labelling found by a climb from the given labels, balanced if necessary."""
        return self._climb(self.source, self._sides(np.where(labels > 0, 1.0, -1.0)))

    def _climb(self, source: VectorSpace, y: NDArray) -> Labelling:
        return climb(source, self.alpha, y, self.limit, self.weights)

    def _sides(self, f: NDArray) -> NDArray:
        return balanced_labels(f, self.alpha, self.limit, self.weights)

    def _starts(self) -> Iterator[NDArray]:
        """Yield labels: those in use, sides of the weighted principal axis, and random sides."""
        F = self.space.features
        values, axes = np.linalg.eigh((F * self.alpha[:, None]).T @ F)
        in_use = [self.kept[t].y for t in np.argsort(-self.mu) if self.mu[t] > 0]
        in_use = in_use[: self.n_init // 2]
        yield from in_use
        yield self._sides(F @ axes[:, -1])
        lengths = np.sqrt(np.maximum(values, 0.0))
        for _ in range(self.n_init - len(in_use) - 1):
            direction = axes @ (lengths * self.rng.standard_normal(lengths.size))
            yield self._sides(F @ direction)

    def _graph_starts(self) -> list[NDArray]:
        """Return the signs of each axis of the kernel's graph, and its halves at the median."""
        axes = self.source.graph_axes()
        centers = np.median(axes[self.rows], axis=0) if axes.size else 0.0
        return [self._sides(f) for f in np.hstack([axes, axes - centers]).T]

    # ------------------------------------------------------------------ the programme over them

    def solve_with(self, found: Labelling) -> None:
        self.n_labellings += 1
        self.kept.append(found)
        self.mu, self.idle = np.append(self.mu, 0.0), np.append(self.idle, 0)
        self.space.add(found.vector)
        Y = np.array([labelling.y for labelling in self.kept], dtype=np.float64)
        for _ in range(MAX_WIDENINGS):
            self._take(
                solve_label_kernel_svm(
                    self.space.features[self.rows],
                    Y[:, self.rows],
                    C=self.C,
                    tol=IN_SUBSPACE * self.tol,
                    weights=self.mu,
                    alpha=self.alpha[self.rows],
                    sample_weight=self.kept_weights,
                )
            )
            if self.master_gap <= OF_SUBSPACE * self.tol or not self._widen():
                break
        self.history.append(self.upper)
        self.idle = np.where(self.mu > 0, 0, self.idle + 1)
        stays = self.idle < IDLE_ROUNDS
        self.kept = [self.kept[t] for t in np.flatnonzero(stays)]
        self.mu, self.idle = self.mu[stays], self.idle[stays]

    def _take(self, found: LabelKernelResult) -> None:
        self.mu, self.upper = found.weights, found.objective
        self.alpha = np.zeros(self.source.n_rows)
        self.alpha[self.rows] = found.alpha
        self.kept = [measure(self.source, self.alpha, labelling.y) for labelling in self.kept]
        self.lower = self._value(max(labelling.square for labelling in self.kept))

    def _widen(self) -> bool:
        """Add the normals of labellings with weight, or the largest square, to the subspace."""
        top = max(labelling.square for labelling in self.kept)
        new = [
            self.space.add(labelling.vector)
            for labelling, weight in zip(self.kept, self.mu, strict=True)
            if weight > 0 or labelling.square == top
        ]
        return any(new)

    # ------------------------------------------------------------------ labels

    def result(self, status: Status) -> LabelGenerationResult:
        order = [t for t in np.argsort(-self.mu, kind="stable") if self.mu[t] > 0]
        kept, mu = [self.kept[t] for t in order], self.mu[order]
        mixture, share = _rank_one(kept, mu, self.weights)
        normals = [labelling.vector for labelling in kept]
        if self.reading == "eigenvector":
            w, f, rho, value, labels = self._read_eigenvector(kept, normals, mixture)
        else:
            if len(kept) > 1:
                normals.append(self.source.combination(normals, mixture))
            w, f, rho, value = min((self._read(w) for w in normals), key=lambda read: read[-1])
            labels = (f > 0).astype(np.int64)
        bound = self._value(largest_possible_square(self.source, self.alpha, self.rng))
        return LabelGenerationResult(
            objective=self.upper,
            gap=max(self.upper - bound, 0.0),
            residuals={"master gap": self.master_gap, "violation": self.violation},
            status=status,
            n_iter=len(self.history),
            history=tuple(self.history),
            bound=bound,
            labels=labels,
            scores=f,
            normal=w,
            rho=rho,
            labelled_objective=value,
            weights=mu,
            alpha=self.alpha,
            n_labellings=self.n_labellings,
            rank_share=share,
            n_passes=self.source.n_passes - self.passes_before,
        )

    def _read(self, w: Any) -> tuple[Any, NDArray, float, float]:
        """Return a normal with its scores, its margin and the value of the problem."""
        f = self.source.scores(w)
        square = float(self.source.inner(w, [w])[0])
        sizes = np.abs(f[self.rows]).astype(np.float64)
        return w, f, *_own_margin(sizes, square, self.C, self.kept_weights)

    def _read_eigenvector(
        self, kept: list[Labelling], normals: list[Any], mixture: NDArray
    ) -> tuple[Any, NDArray, float, float, NDArray]:
        """Return the normal of the mixture, its scores and margin, a value, and labels.

        Labels are the signs of the leading eigenvector of the mixture, and the value is that of
        the problem with these labels, over normals in the subspace.
        """
        w, f, rho, _ = self._read(self.source.combination(normals, mixture))
        Y = np.array([labelling.y for labelling in kept], dtype=np.float64)
        labels = (mixture @ Y > 0).astype(np.int64)
        machine = solve_label_kernel_svm(
            self.space.features[self.rows],
            (2.0 * labels - 1.0)[None, self.rows],
            C=self.C,
            tol=IN_SUBSPACE * self.tol,
            sample_weight=self.kept_weights,
        )
        return w, f, rho, machine.objective, labels


def _rank_one(
    kept: list[Labelling], mu: NDArray, weights: NDArray | None
) -> tuple[NDArray, float]:
    """Return c with u = sum_t c_t y_t leading in sum_t mu_t y_t y_t', and its share of the trace.

    It solves the eigenproblem of the T x T matrix sqrt(mu_t mu_s) y_t'y_s, a weighted sum over the
    rows. The normal of the mixture is sum_i alpha_i u_i z_i = sum_t c_t v_t, which is the normal
    of the labelling if there is only one.
    """
    Y = np.array([labelling.y for labelling in kept], dtype=np.float64)
    root, w = np.sqrt(mu), np.ones(Y.shape[1]) if weights is None else weights
    values, vectors = np.linalg.eigh(np.outer(root, root) * ((Y * w) @ Y.T) / w.sum())
    c = root * vectors[:, -1]
    # The sign is arbitrary; choose it so that the first labelling keeps its sign.
    return c * np.sign(c[0] or 1.0), float(values[-1])


def _own_margin(
    sizes: NDArray, square: float, C: float, weights: NDArray | None
) -> tuple[float, float]:
    """Return the best margin of scores for their own labels, and the objective at the best length.

    With |w| = 1, at length s and margin s r the objective is s^2 (1 + C sum (r - |f_i|)_+^2) / 2 -
    s r. At the best s it is -r^2 / (2 + 2 C sum (r - |f_i|)_+^2), which is minimal at
    C sum (r - |f_i|)_+ |f_i| = 1. The sums are weighted.
    """
    if not square > 0.0 or not sizes.any():
        return float("nan"), 0.0
    length = float(np.sqrt(square))
    sizes = sizes / length
    w = np.ones(sizes.size) if weights is None else weights
    order = np.argsort(sizes)
    ordered = sizes[order]
    sums, squares = np.cumsum(w[order] * ordered), np.cumsum(w[order] * ordered**2)
    with np.errstate(divide="ignore", over="ignore"):
        candidates = (1.0 / C + squares) / sums
    k = int(np.argmax(candidates <= np.append(ordered[1:], np.inf)))
    r = float(candidates[k])
    slack = np.maximum(r - sizes, 0.0)
    return r * length, -0.5 * r**2 / (1.0 + C * float((w * slack) @ slack))
