"""More than two clusters at once: smooth fields, each cluster against the rest."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from volmar.graphs.graph import Graph
from volmar.metrics import normalized_cut
from volmar.operators import EigenPairs, SPDOperator
from volmar.solvers import Result, Status
from volmar.volume.problem import SINGULAR
from volmar.volume.refinement import Allowed, InverseImages, Refined, repeat_step
from volmar.volume.starts import is_tied

N_INIT = 10
# Coordinates that differ by less are the same row, but for rounding.
SAME_ROW = 1e-9


@dataclass(frozen=True)
class MultiwayProblem:
    """A graph to be cut into clusters, with Q and at least as many eigenpairs as clusters."""

    graph: Graph
    operator: SPDOperator
    pairs: EigenPairs
    n_clusters: int
    balance: float  # b, of every field
    shift: float | None  # where Q is L_sym + shift I; None for any other Q
    init: NDArray | None = None  # labels to start from, where they are given

    @property
    def bound(self) -> float:
        """What no k clusters' normalised cut is below (Ky Fan); NaN where Q is not L_sym's.

        Computed eigenvalues lie within their residual of true ones.
        """
        if self.shift is None:
            return np.nan
        used = slice(0, self.n_clusters)
        lowest = self.pairs.values[used] - self.shift - self.pairs.residuals[used]
        return float(np.maximum(lowest, 0.0).sum())

    @property
    def is_degenerate(self) -> bool:
        """Whether the graph is known not to determine the clusters at the start, if it has to.

        It has more components than those, the last eigenvalue in use is tied with the next, or
        it is one of L_sym at 1 or above: its eigenvector parts rows from their own neighbours,
        which says nothing unless every row is a cluster.
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
    """Clusters with the fields that they are read off, one a cluster.

    `objective` is the normalised cut, `history` the cut of the start and after every step, `gap`
    the cut less the sum of the smallest eigenvalues of L_sym, which no k clusters can undercut
    (NaN for another Q). `residuals` are those of the eigenvectors and of the fields' systems.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        Clusters, none of them empty.
    field : ndarray of shape (n, k)
        Smoothest fields, each cluster against the rest, of roughness ``x'Qx = 1``.
    h : ndarray of shape (n, k)
        The same with columns of norm 1.
    start : ndarray of shape (n,)
        Labels at the start.
    agreement : tuple of float
        Sum over the clusters of ``y_j'x_j``, of every step; it never falls.
    n_moved : int
        Labels that differ between the start and the end.
    n_held : int
        Clusters that the last step would have left without rows, and that kept theirs.
    n_missed : int
        Clusters that k-means left empty at the start, filled by a part of the largest.
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
    """Return the k-means labels of the eigenvectors' unit rows, and how many k-means missed.

    Fewer different rows than clusters (components beyond the eigenvectors in use, isolated nodes)
    leave clusters empty. Each is then given a part of the largest: a component of the graph, else
    the upper half of the coordinate that varies most, else half of the rows.
    """
    k = problem.n_clusters
    vectors = problem.pairs.vectors[:, :k]
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # empty clusters are filled below
        found = KMeans(k, n_init=n_init, random_state=seed).fit_predict(rows)
    labels = np.unique(found, return_inverse=True)[1].astype(np.int64)
    n_found = int(labels.max()) + 1
    for new in range(n_found, k):
        members = np.flatnonzero(labels == np.bincount(labels).argmax())
        part = _part_of(rows[members], problem.graph.components[1][members])
        labels[members[part]] = new
    return labels, k - n_found


def _part_of(rows: NDArray, components: NDArray) -> NDArray:
    """Mask of some rows, not of all and not of none: see `spectral_start`."""
    pieces = np.unique(components, return_inverse=True)[1]
    if pieces.any():
        return pieces == np.bincount(pieces).argmax()
    low, high = rows.min(axis=0), rows.max(axis=0)
    widest = int(np.argmax(high - low))
    if high[widest] - low[widest] > SAME_ROW:
        return rows[:, widest] > (low[widest] + high[widest]) / 2
    return np.arange(len(rows)) < len(rows) // 2


# ------------------------------------------------------------------ the fields


@dataclass(frozen=True)
class Fields:
    """Smoothest fields of labels, each cluster against the rest."""

    x: NDArray  # (n, k), of roughness 1 to the accuracy of the solves
    agreement: float  # sum of y_j'x_j = sqrt(n / roughness_j)
    roughness: NDArray  # x'Qx at the scale of the problem, y_j'x = sqrt(n)
    right: NDArray  # Q x by the optimality conditions: a_j z_j - kappa_j 1, z_j the members

    @property
    def merit(self) -> float:
        """What steps raise: the agreement."""
        return self.agreement

    def residual(self, operator: SPDOperator) -> float:
        """Recompute the largest ``|Q x_j - right_j| / |right_j|`` from Q itself."""
        difference = np.linalg.norm(operator.matvec(self.x) - self.right, axis=0)
        return float(np.max(difference / np.linalg.norm(self.right, axis=0)))


class OneAgainstRest:
    r"""The first step of Algorithm 1 (`FirstStep`) for k clusters at once.

    With :math:`y_j` = 1 in cluster j and -1 outside, the field of cluster j is

    .. math:: \min_x x'Qx \quad \text{s.t.} \quad y_j'x = \sqrt n, \; |1'x| \le b.

    Where the balance is idle it is a multiple of :math:`Q^{-1} y_j`. Where it is active,
    :math:`1'x = s = \pm b`, the members :math:`z_j = (y_j + 1) / 2` carry the same constraint,
    :math:`z_j'x = (\sqrt n + s) / 2`, and

    .. math:: x = a Q^{-1} z_j - \kappa Q^{-1} 1

    with a and :math:`\kappa` from a 2 x 2 system. (In terms of :math:`y_j`, nearly -1 for a small
    cluster among many, that system would be nearly singular.) The images :math:`Q^{-1} z_j` of
    all clusters are one block solve, new labels one for what has changed. With `weights` w of the
    labels both constraints are weighted: :math:`\sum_i w_i y_{ij} x_i = \sqrt n` and
    :math:`|w'x| \le b`, and w takes the place of 1 (and :math:`w_i z_{ij}` of :math:`z_{ij}`).
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
        self.n_clusters = n_clusters
        self.balance = balance
        self.weights = weights
        self._images = InverseImages(operator, rtol, weights)

    def __call__(self, labels: NDArray) -> Fields:
        """Return the smoothest fields of the labels 0 to k - 1, none of them unused."""
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
                f"no field tells a cluster from the rest and holds balance={self.balance:.3g}: "
                "the matrix Q does not tell the rows apart. Check that the rows differ, or give "
                "another Q."
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
    """Return the column of each row's largest entry, and how many columns had to be held.

    Where no row would be left to a cluster its rows stay: they lose nothing by it, and the
    agreement of `refine_jointly` rises with any part of the moves. That may take the last row from
    another, whose rows then stay too.

    Where not all labels are `allowed`, those with the largest sum of entries are taken.
    Linked rows then stay together, and rows that are apart stay apart: all rows of a cluster that
    would be left stay, and none came to it.
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
) -> Refined:
    r"""Move every row to the cluster whose field is largest there, until the labels settle.

    Fields are compared at the same roughness, :math:`x_j'Qx_j = 1`. The agreement
    :math:`\sum_j y_j'x_j` then never falls, for a balance of 0 and for an idle one: :math:`x_j`
    is the best of all fields of roughness up to 1 (with :math:`1'x = 0`) for :math:`y_j`. Of all
    labels, those of the largest entries :math:`y^+` have the largest
    :math:`\sum_j y_j'x_j = \sum_i 2 x_{i, c(i)} - \sum_j 1'x_j`; the old fields are still allowed
    for them, and the best fields for them are at least as good,

    .. math:: \sum_j \max_x {y_j^+}'x \ge \sum_j {y_j^+}'x_j \ge \sum_j y_j'x_j .

    This is the maximisation of a convex function, :math:`2 \sum_j (z_j'\tilde K z_j)^{1/2}` with
    :math:`\tilde K` as in `refine`, over labels. (For columns of norm 1 no such function is
    known.) An active balance above 0 allows fields by how well they agree with their own labels,
    and the first inequality may fail: fields that do not raise the agreement, for that reason or
    by the accuracy of the solves, are not taken but end the run.

    Where not all labels are `allowed`, all this holds for the largest sum over those, if the first
    are among them.
    """
    return repeat_step(step, labels, partial(reassigned, allowed=allowed), max_iter)


def cluster_jointly(
    problem: MultiwayProblem,
    step: OneAgainstRest,
    *,
    max_iter: int = 20,
    seed: int = 0,
    allowed: Allowed | None = None,
) -> MultiwayVolumeResult:
    """Start from the eigenvectors or from given labels, refine, and certify.

    The gap is that of any labels; where only some are `allowed`, the bound stays valid.

    Status DEGENERATE where the graph does not determine the clusters at the start, or where a
    cluster had to be kept from losing all rows.
    """
    start, n_missed = problem.init, 0
    if start is None:
        start, n_missed = spectral_start(problem, seed=seed)
    best = refine_jointly(step, start, max_iter=max_iter, allowed=allowed)
    history = tuple(normalized_cut(problem.graph.W, labels) for labels in best.visited)
    status = Status.CONVERGED if best.settled or max_iter == 1 else Status.MAX_ITER
    if problem.is_degenerate or n_missed or best.n_held:
        status = Status.DEGENERATE
    gap = history[-1] - problem.bound
    return MultiwayVolumeResult(
        objective=history[-1],
        gap=max(gap, 0.0) if np.isfinite(gap) else np.nan,
        residuals={
            "eigenvectors": float(problem.pairs.residuals[: problem.n_clusters].max()),
            "fields": best.fields.residual(problem.operator),
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
