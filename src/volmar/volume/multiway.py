"""Joint search for more than two clusters: one smooth field per cluster, against the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from volmar._warn import quiet_fit
from volmar.graphs.graph import Graph
from volmar.metrics.label_free import unchecked_cut
from volmar.operators.protocol import EigenPairs, SPDOperator
from volmar.solvers import Result, Status
from volmar.volume.descent import Allowed, InverseImages, Refined, repeat_step
from volmar.volume.problem import SINGULAR
from volmar.volume.two_way import is_tied

N_INIT = 10


@dataclass(frozen=True)
class MultiwayProblem:
    """The graph to cluster, with Q and at least as many eigenpairs as clusters."""

    graph: Graph
    operator: SPDOperator
    pairs: EigenPairs
    n_clusters: int
    balance: float  # b, the same for every field
    shift: float | None  # if Q is L_sym + shift I; None for any other Q
    init: NDArray | None = None  # labels to start from; None for the spectral start

    @property
    def bound(self) -> float:
        """Lower bound of the normalised cut of any k clusters (Ky Fan); NaN if Q is not L_sym's.

        The computed eigenvalues are within their residuals of exact eigenvalues.
        """
        if self.shift is None:
            return np.nan
        used = slice(0, self.n_clusters)
        lowest = self.pairs.values[used] - self.shift - self.pairs.residuals[used]
        return float(np.maximum(lowest, 0.0).sum())

    @property
    def is_degenerate(self) -> bool:
        """Whether the spectral start is known to be arbitrary; False if labels are given.

        It is arbitrary in three cases: the graph has more components than clusters; the last
        eigenvalue in use is tied with the next; or the last eigenvalue of L_sym is 1 or more. In
        the last case its eigenvector separates rows from their own neighbours, which carries no
        information unless every row is a cluster.
        """
        if self.init is not None:
            return False
        k, values = self.n_clusters, self.pairs.values
        if self.graph.components[0] > k or (values.size > k and is_tied(values, k)):
            return True
        alone = k == self.operator.n
        return self.shift is not None and not alone and bool(values[k - 1] - self.shift >= 1.0)


@dataclass(frozen=True, repr=False)
class MultiwayVolumeResult(Result):
    """Clusters, with one field per cluster from which they are derived.

    `objective` is the normalised cut, and `history` holds the cut of the start and after every
    step. The labels are those with the smallest cut in it, or those of the last step if labels
    have weights or sizes are limited. `gap` is the cut less its lower bound, the sum of the k
    smallest eigenvalues of L_sym (NaN for another Q). `residuals` are those of the eigenvectors
    and of the linear systems of the fields.

    `field` is the smoothest field of each cluster against the rest, with roughness ``x'Qx = 1``,
    and h the same with columns of norm 1. `agreement` is the sum over the clusters of ``y_j'x_j``
    after each step, which never decreases. `n_held` clusters kept their rows because the last step
    would have emptied them. `n_missed` clusters were left empty by k-means at the start; each was
    given a part of the largest cluster.
    """

    _numbers = ("labels", "start")
    _per_cluster: ClassVar = {"field": 1, "h": 1}

    labels: NDArray = dataclasses.field(default_factory=lambda: np.empty(0, dtype=np.int64))
    field: NDArray = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    h: NDArray = dataclasses.field(default_factory=lambda: np.empty((0, 0)))
    start: NDArray = dataclasses.field(default_factory=lambda: np.empty(0, dtype=np.int64))
    agreement: tuple[float, ...] = ()
    n_moved: int = 0
    n_held: int = 0
    n_missed: int = 0


# ------------------------------------------------------------------ the start


def spectral_start(
    problem: MultiwayProblem, *, n_init: int = N_INIT, seed: int = 0
) -> tuple[NDArray, int]:
    """Return the k-means labels of the normalised eigenvector rows, and the number left empty.

    If there are fewer distinct rows than clusters (more components than eigenvectors in use,
    isolated nodes), k-means leaves clusters empty. Each is then given a part of the largest
    cluster: a component of the graph, otherwise the upper half of the coordinate that varies most,
    otherwise half of the rows.
    """
    k = problem.n_clusters
    vectors = problem.pairs.vectors[:, :k]
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    # Empty clusters are filled below.
    found = quiet_fit(KMeans(k, n_init=n_init, random_state=seed), rows).labels_
    labels = np.unique(found, return_inverse=True)[1].astype(np.int64)
    n_found = int(labels.max()) + 1
    for new in range(n_found, k):
        members = np.flatnonzero(labels == np.bincount(labels).argmax())
        part = _part_of(rows[members], problem.graph.components[1][members])
        labels[members[part]] = new
    return labels, k - n_found


def _part_of(rows: NDArray, components: NDArray) -> NDArray:
    """Return a mask of some of the rows, neither all nor none (see `spectral_start`)."""
    pieces = np.unique(components, return_inverse=True)[1]
    if pieces.any():
        return pieces == np.bincount(pieces).argmax()
    low, high = rows.min(axis=0), rows.max(axis=0)
    widest = int(np.argmax(high - low))
    # Rows whose coordinates differ by less than this are equal up to rounding.
    if high[widest] - low[widest] > 1e-9:
        return rows[:, widest] > (low[widest] + high[widest]) / 2
    return np.arange(len(rows)) < len(rows) // 2


# ------------------------------------------------------------------ the fields


@dataclass(frozen=True)
class Fields:
    """Smoothest field of each cluster against the rest, for given labels."""

    x: NDArray  # (n, k), with roughness 1 up to the accuracy of the solves
    agreement: float  # sum of y_j'x_j = sqrt(n / roughness_j)
    roughness: NDArray  # x'Qx for x scaled to y_j'x = sqrt(n)
    right: NDArray  # Q x by the optimality conditions: a_j z_j - kappa_j 1, z_j the members

    @property
    def merit(self) -> float:
        """The agreement, which the steps maximise."""
        return self.agreement

    def residual(self, operator: SPDOperator) -> float:
        """Recompute the largest ``|Q x_j - right_j| / |right_j|`` from Q."""
        difference = np.linalg.norm(operator.matvec(self.x) - self.right, axis=0)
        return float(np.max(difference / np.linalg.norm(self.right, axis=0)))


class OneAgainstRest:
    r"""The first step of Algorithm 1 (`FirstStep`) for k clusters at once.

    With :math:`y_j` = 1 in cluster j and -1 outside, the field of cluster j is

    .. math:: \min_x x'Qx \quad \text{s.t.} \quad y_j'x = \sqrt n, \; |1'x| \le b.

    If the balance constraint is inactive, the field is a multiple of :math:`Q^{-1} y_j`. If it is
    active, :math:`1'x = s = \pm b`, the indicator :math:`z_j = (y_j + 1) / 2` of the members
    gives the equivalent constraint :math:`z_j'x = (\sqrt n + s) / 2`, and

    .. math:: x = a Q^{-1} z_j - \kappa Q^{-1} 1

    with a and :math:`\kappa` from a 2 x 2 system. (In terms of :math:`y_j`, which is nearly -1 for
    a small cluster among many, that system would be nearly singular.) The images
    :math:`Q^{-1} z_j` of all clusters take one block solve; new labels take another, for the
    changed entries only. With `weights` w of the labels, both constraints are weighted,
    :math:`\sum_i w_i y_{ij} x_i = \sqrt n` and :math:`|w'x| \le b`: w replaces 1, and
    :math:`w_i z_{ij}` replaces :math:`z_{ij}`.
    """

    def __init__(
        self,
        operator: SPDOperator,
        n_clusters: int,
        balance: float,
        *,
        rtol: float = 1e-8,
        weights: NDArray | None = None,
    ):
        self.operator = operator
        self.n_clusters = n_clusters
        self.balance = balance
        self.weights = weights
        self._images = InverseImages(operator, rtol, weights)

    def __call__(self, labels: NDArray) -> Fields:
        """Return the smoothest fields of labels from 0 to k - 1, each of which must occur."""
        n = labels.size
        root = float(np.sqrt(n))
        Z = (labels[:, None] == np.arange(self.n_clusters)).astype(np.float64)
        w = self.weights
        if w is not None:
            Z *= w[:, None]
        images, image = self._images(Z), self._images.of_ones
        zz, z1 = np.einsum("ij,ij->j", Z, images), image @ Z
        sums, total = images.sum(axis=0), float(image.sum())
        if w is not None:
            sums, total = w @ images, float(w @ image)
        # Q^-1 y = 2 Q^-1 z - Q^-1 1, along which y'x = sqrt(n) is met with kappa = a / 2.
        a = 2 * root / (4 * zz - 2 * z1 - 2 * sums + total)
        kappa = a / 2
        leaning = a * (sums - total / 2)
        active = np.abs(leaning) > self.balance
        side = np.where(active, np.copysign(self.balance, leaning), leaning)
        inside = (root + side) / 2
        determinant = np.where(active, zz * total - z1 * sums, 1.0)
        if np.any(active & (determinant <= SINGULAR * zz * total)):
            raise ValueError(
                "no field separates a cluster from the rest and satisfies "
                f"balance={self.balance:.3g}, because the matrix Q does not distinguish the rows. "
                "Check that the rows differ, or pass another Q."
            )
        a = np.where(active, (inside * total - side * z1) / determinant, a)
        kappa = np.where(active, (inside * sums - side * zz) / determinant, kappa)
        roughness = a * inside - kappa * side
        scale = np.sqrt(roughness)
        x = images * (a / scale)
        x -= image[:, None] * (kappa / scale)
        right = Z * (a / scale) - (1.0 if w is None else w[:, None]) * (kappa / scale)
        return Fields(x, float((root / scale).sum()), roughness, right)


# ------------------------------------------------------------------ refinement


def reassigned(x: NDArray, labels: NDArray, allowed: Allowed | None = None) -> tuple[NDArray, int]:
    """Return the column of each row's largest entry, and the number of clusters that were held.

    A cluster that would lose all of its rows is held: its rows keep their label. The agreement of
    `refine_jointly` increases with any subset of the moves, so this does no harm. Holding a
    cluster may take the last row from another one, which is then held too.

    If `allowed` restricts the labels, the allowed labelling with the largest sum of entries is
    taken. Must-links and cannot-links remain satisfied when a cluster is held, because all of its
    rows stay and no row has moved into it.
    """
    k = x.shape[1]
    new = np.argmax(x, axis=1) if allowed is None else allowed.place(x)
    held = np.zeros(k, dtype=bool)
    while True:
        empty = np.bincount(new, minlength=k) == 0
        if not empty.any():
            return new, int(held.sum())
        held |= empty
        new = np.where(empty[labels], labels, new)


def refine_jointly(
    step: OneAgainstRest,
    labels: NDArray,
    *,
    max_iter: int = 20,
    allowed: Allowed | None = None,
    cost: Callable[[NDArray], float] | None = None,
) -> Refined:
    r"""Move every row to the cluster with the largest field value, until the labels settle.

    Fields are compared at the same roughness, :math:`x_j'Qx_j = 1`. With a balance of 0 or an
    inactive balance constraint, the agreement :math:`\sum_j y_j'x_j` then never decreases.
    :math:`x_j` is the best field for :math:`y_j` among all fields with roughness up to 1 (and
    :math:`1'x = 0`). Among all labellings, that of the largest entries :math:`y^+` maximises
    :math:`\sum_j y_j'x_j = \sum_i 2 x_{i, c(i)} - \sum_j 1'x_j`. The old fields remain feasible
    for it, and its best fields are at least as good,

    .. math:: \sum_j \max_x {y_j^+}'x \ge \sum_j {y_j^+}'x_j \ge \sum_j y_j'x_j .

    This is the maximisation of a convex function, :math:`2 \sum_j (z_j'\tilde K z_j)^{1/2}` with
    :math:`\tilde K` as in `refine`, over labels. (For columns of norm 1 no such function is
    known.) With an active balance constraint and b > 0, the set of feasible fields depends on the
    labels, and the first inequality may fail. Fields that do not increase the agreement, for that
    reason or because of the accuracy of the solves, are rejected and end the run.

    If `allowed` restricts the labels, the same holds for the maximum over the allowed labellings,
    provided that the start is one of them.
    """
    return repeat_step(step, labels, partial(reassigned, allowed=allowed), max_iter, cost)


def cluster_jointly(
    problem: MultiwayProblem,
    step: OneAgainstRest,
    *,
    max_iter: int = 20,
    seed: int = 0,
    allowed: Allowed | None = None,
) -> MultiwayVolumeResult:
    """Refine the labels from the eigenvectors or from a given start, and certify the result.

    Of the start and all steps, the labels with the smallest cut are kept, unless labels have
    weights or sizes are limited.

    The gap is relative to the lower bound for all labellings, which remains valid if `allowed`
    restricts them.

    The status is DEGENERATE if the graph does not determine the clusters at the start, or if a
    cluster was held because it would have lost all of its rows.
    """
    start, n_missed = problem.init, 0
    if start is None:
        start, n_missed = spectral_start(problem, seed=seed)

    def cut(labels: NDArray) -> float:
        return unchecked_cut(problem.graph.W, labels, problem.n_clusters)

    cost = cut if allowed is None or allowed.only_cuts else None
    best = refine_jointly(step, start, max_iter=max_iter, allowed=allowed, cost=cost)
    history = best.costs or tuple(cut(labels) for labels in best.visited)
    objective = cut(best.labels)
    status = Status.CONVERGED if best.settled or max_iter == 1 else Status.MAX_ITER
    if problem.is_degenerate or n_missed or best.n_held:
        status = Status.DEGENERATE
    gap = objective - problem.bound
    return MultiwayVolumeResult(
        objective=objective,
        gap=max(gap, 0.0) if np.isfinite(gap) else np.nan,
        residuals={
            "eigenvectors": float(problem.pairs.residuals[: problem.n_clusters].max()),
            "fields": best.fields.residual(step.operator),
        },
        status=status,
        n_iter=len(best.merits),
        history=history,
        labels=best.labels,
        field=best.fields.x,
        h=best.fields.x / np.linalg.norm(best.fields.x, axis=0),
        start=start,
        agreement=best.merits,
        n_moved=int(np.sum(start != best.labels)),
        n_held=best.n_held,
        n_missed=n_missed,
    )
