"""Initial labels: k-means, principal components, or random, and their comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from volmar._warn import quiet_fit
from volmar.margin.engine.descent import MarginResult, maximise_margin
from volmar.margin.engine.problem import HingeLoss, MarginProblem
from volmar.margin.feature_space.space import FeatureSpace, VectorSpace
from volmar.rows.anywhere import as_rows, constant_vector, drawn_rows, is_in_memory, take_rows
from volmar.solvers import Status

# ------------------------------------------------------------------ labels

# Number of steps of power iteration, enough for the signs; no more precision is needed.
POWER_STEPS = 20


def k_means_start(X: Any, weights: NDArray | None, seed: int) -> NDArray:
    """Return the labels of k-means with two clusters."""
    # If all rows are identical, the margin methods report it themselves.
    return quiet_fit(KMeans(2, n_init=1, random_state=seed), X, weights).labels_


def k_way_start(X: Any, k: int, weights: Any, seed: int, *, n_init: int, max_rows: int) -> Any:
    """Return the labels of k-means with k clusters, the best of `n_init` runs.

    Centres come from a sample of at most `max_rows` rows, and each row gets the nearest one. Some
    of the k labels are missing if there are too few rows.
    """
    pool = drawn_rows(X.shape[0], weights, max_rows, np.random.default_rng(seed))
    if pool.size < k:
        return constant_vector(as_rows(X), 0, np.int64)
    few = None if weights is None else weights[pool]
    # The caller reports too few different rows itself.
    model = quiet_fit(KMeans(k, n_init=n_init, random_state=seed), take_rows(X, pool), few)
    if is_in_memory(X) and pool.size == X.shape[0]:
        return model.labels_
    return nearest_center(X, model.cluster_centers_)


def nearest_center(X: Any, centers: NDArray) -> Any:
    """Return the index of the centre nearest to each row.

    With the mean m of the centres, it maximises (x - m)'(c - m) - |c - m|^2 / 2 over centres c.
    """
    centers = centers.astype(np.float64)
    mean = centers.mean(axis=0)
    offsets = 0.5 * (mean @ mean - np.einsum("ij,ij->i", centers, centers))
    scores = as_rows(X).scores((centers - mean).T)
    return np.argmax(scores + offsets.astype(scores.dtype), axis=1)


def principal_scores(space: VectorSpace, k: int, rng: np.random.Generator) -> NDArray:
    """Return the scores of the rows along the k leading principal components, shape (n, k)."""
    f = rng.standard_normal((space.n_rows, k)).astype(space.dtype)
    for _ in range(POWER_STEPS):
        f = np.linalg.qr(_scores_of(space, f))[0].astype(space.dtype, copy=False)
    # Z Z'P f. For orthonormal columns f the products are variances; scores scale with the root.
    images = _scores_of(space, f)
    variances = np.maximum(np.einsum("ij,ij->j", f, images), 0.0)
    return f * np.sqrt(variances)


def principal_start(space: VectorSpace, rng: np.random.Generator) -> NDArray:
    """Return the signs along the leading principal component, a relaxation of k-means."""
    f = rng.standard_normal(space.n_rows).astype(space.dtype)
    for _ in range(POWER_STEPS):
        f = _scores_of(space, f)
        size = float(np.abs(f).max())
        if size == 0.0:
            break
        f /= f.dtype.type(size)
    return f > 0


def random_start(space: VectorSpace, rng: np.random.Generator) -> NDArray:
    """Return the signs along a random combination of the rows with positive weight."""
    v = np.zeros(space.n_rows, dtype=space.dtype)
    rows = slice(None) if space.shares is None else np.flatnonzero(space.shares)
    v[rows] = rng.standard_normal(v[rows].size)
    return _scores_of(space, v) > 0


def _scores_of(space: VectorSpace, v: NDArray) -> NDArray:
    v = v / space.n_rows if space.shares is None else (v.T * space.shares).T
    return space.scores(space.vector(v.astype(space.dtype, copy=False)))


def best_start(
    problem: MarginProblem, candidates: Iterable[NDArray], *, C: float, tol: float
) -> MarginResult:
    """Descend from each start at a small C, and return the result with the lowest J.

    Rows, C and balance are the same for all starts, so their J can be compared.
    """
    best: MarginResult | None = None
    for labels in candidates:
        result = maximise_margin(problem, labels, C=C, tol=tol)
        usable = result.status in (Status.CONVERGED, Status.CYCLE, Status.MAX_ITER)
        if best is None or (usable and (result.objective < best.objective or not best.rho > 0)):
            best = result
    if best is None:
        raise ValueError("there is no start to choose from. n_init must be at least 1.")
    return best


# ------------------------------------------------------------------ clusters of unequal size

# A mean score near zero puts about half of the weight on each side. For unequal clusters the
# margin methods do not relax the balance constraint. Instead they give both sides of a start the
# same weight, in the mean of the rows and in the loss. The balance and C then have the same
# meaning as for equal halves: the centre is midway between the means of the sides, and 1/C of
# the weight is inside the margin.

# Default maximum of the absolute mean score, in units of the margin.
BALANCE = 0.05
# C and relative gap for the comparison of starts. The problem is bounded for C above 1.
SCREENING_C = 1.2
SCREENING_TOL = 0.1
# Relative difference of `margin_between` for two descents to the same labels.
SAME_SEPARATION = 0.01
HALVES = (0.5, 0.5)


class UnequalStart(NamedTuple):
    """The hyperplane of a start with unequal sides, and the rows with its `equal_weights`."""

    result: MarginResult
    space: FeatureSpace


def shares_of_sides(labels: Any, weights: Any) -> tuple[float, float]:
    """Return the shares of the rows (or of their weight) with label 0 and 1."""
    is_one = labels > 0
    if weights is None:
        share = float(is_one.sum()) / len(labels)
    else:
        share = float((is_one * weights).sum()) / float(weights.sum())
    return 1.0 - share, share


def are_unequal(labels: NDArray, weights: NDArray | None) -> bool:
    """Return whether the sides are more unequal than 55 to 45 %, and neither is empty."""
    shares = shares_of_sides(labels, weights)
    # Two sides count as halves if their shares differ by at most this.
    return min(shares) > 0.0 and abs(shares[1] - shares[0]) > 0.1


def equal_weights(labels: Any, weights: Any, shares: tuple[float, float]) -> Any:
    """Return weights that make both sides equally heavy, and keep proportions within each.

    Their sum is that of the given weights, or the number of rows. `shares` are the values of
    `shares_of_sides`, both positive.
    """
    factors = np.where(labels > 0, 0.5 / shares[1], 0.5 / shares[0])
    return factors if weights is None else factors * weights


def margin_between(result: MarginResult, weights: NDArray | None, C: float) -> float:
    r"""Return the separation of the two sides of a hyperplane by its soft margin at C.

    It is :math:`4 r_0 r_1 m^2`, with the shares r of the sides and the soft margin

    .. math:: m = \max_\rho \; \rho - C \sum_i q_i \max\bigl(0, \rho - |f_i| / \|w\|\bigr),

    where the weights q are those of `equal_weights`. m is the mean distance to the border of the
    share 1/C of the weight that is nearest to it. At C = 1 all rows count, and the value is the
    between-cluster sum of squares along w: the criterion of k-means. Larger values of C measure a
    gap. For equal sides the value is -2 J at the optimal length of w. The factor :math:`r_0 r_1`
    prevents a few distant rows from having the largest value.
    """
    shares = shares_of_sides(result.labels, weights)
    if min(shares) <= 0.0 or not result.square > 0.0:
        return 0.0
    q = equal_weights(result.labels, weights, shares)
    distances = np.abs(result.scores.astype(np.float64)) / np.sqrt(result.square)
    order = np.argsort(distances)
    below = np.cumsum(q[order]) / float(q.sum())
    inside = np.diff(np.minimum(below, 1.0 / C), prepend=0.0)
    margin = C * float(inside @ distances[order])
    return 4.0 * shares[0] * shares[1] * margin**2


def unequal_start(
    space: FeatureSpace, labels: NDArray, weights: NDArray | None, even: MarginResult
) -> UnequalStart | None:
    """Return the hyperplane for unequal sides of the given sizes, if it is better than halves.

    It is found by one descent at the screening C, with weights that make both sides of the labels
    equally heavy. It is better if its `margin_between` is larger by a quarter for the half of the
    weight that is nearest to the border (C = 2), and not smaller for all rows (C = 1). Separate
    groups of unequal size satisfy both. A cut through the tail of a single group satisfies
    neither, and a few outliers only the first; in these cases the balance constraint is useful.

    Kernels with k(x, x) = 1 bound all distances. A small group then has little of the variance at
    any distance, and no row is an outlier. The criterion is therefore a gap: the value for the
    tenth of the weight nearest to the border (C = 10) must be three times that of halves. Two cuts
    through a single group, even a curved one, differ by less.

    None is returned if halves are as good, or if the sides are not `are_unequal`.
    """
    if not are_unequal(labels, weights):
        return None
    shares = shares_of_sides(labels, weights)
    sized = space.reweighted(equal_weights(labels, weights, shares))
    problem = MarginProblem(sized, HingeLoss(sized.shares), tau=BALANCE)
    result = maximise_margin(problem, labels, C=SCREENING_C / (1.0 - BALANCE), tol=SCREENING_TOL)
    if result.normal is None or min(shares_of_sides(result.labels, weights)) <= 0.0:
        return None
    if even.normal is not None and not _is_better(space, weights, result, even):
        return None
    return UnequalStart(result, sized)


def _is_better(
    space: FeatureSpace, weights: NDArray | None, unequal: MarginResult, even: MarginResult
) -> bool:
    def gain(C: float) -> float:
        return margin_between(unequal, weights, C) / margin_between(even, weights, C)

    if space.has_equal_lengths:
        # Factors by which the margin at C = 2 must be larger than with halves, and that at a
        # larger C for kernels that bound all distances. In single groups (normal, uniform,
        # correlated) k-means starts seldom differ by more; groups of 70 and 30 % that are five
        # standard deviations apart do.
        return gain(10.0) > 3.0
    return gain(2.0) > 1.25 and gain(1.0) >= 1.0 - SAME_SEPARATION


# ------------------------------------------------------------------ the search

# Maximum number of rows on which starts are compared.
START_ROWS = 2000


class Start(NamedTuple):
    """Labels to start from, and whether sides of their sizes count as balanced."""

    labels: Any
    is_unequal: bool = False


class Way(NamedTuple):
    """A value of C, and the smaller values to solve for first."""

    C: float
    path: list[float]


class Origin(NamedTuple):
    """Where the start of a guided fit comes from.

    `init` is the start of the fit without a guide. `takes_sizes` tells whether sides of the sizes
    of the start count as balanced; if None, they do if they are unequal. `C` is used if the start
    differs from the clusters found without a guide.
    """

    init: Any
    takes_sizes: bool | None
    C: float | None


class _Sample(NamedTuple):
    """Rows on which starts are compared, their weights and their indices (None for all rows)."""

    space: FeatureSpace
    weights: NDArray | None
    chosen: NDArray | None = None


@dataclass(frozen=True)
class StartSearch:
    """The choice of a start. Starts are compared by J at a small C, with equal halves.

    `tau` is the half width of the balance box, in units of the margin if `is_relative`. With
    `takes_sizes`, sides of the sizes of the start may count as balanced (see `unequal_start`).
    """

    space: FeatureSpace
    weights: Any
    seed: int
    tau: float
    is_relative: bool
    takes_sizes: bool

    def best(self, kinds: Sequence[str]) -> Start | None:
        """Return the best of several starts of the kinds "k-means" and "random".

        Starts with meaningful sizes, such as k-means, are also tried with these sizes. Return None
        if no hyperplane has rows on both sides and k-means of all rows is not possible.
        """
        sample = self._sample()
        candidates = self.candidates(kinds, sample)
        is_alone = len(candidates) == 1 and sample.space is self.space
        if is_alone and not self.takes_sizes:
            return Start(candidates[0])
        best, of = self._screened(sample, candidates), sample.space
        unequal = None
        if self.takes_sizes:
            informed = [c for c, kind in zip(candidates, kinds, strict=True) if kind != "random"]
            if not informed and best.normal is not None:
                informed = [best.labels]
            for labels in informed:
                found = unequal_start(sample.space, labels, sample.weights, best)
                if found is not None:
                    unequal, (best, of) = found, found
        if best.normal is None:
            is_here = is_in_memory(self.space.start_rows())
            return Start(self.candidates(kinds[:1])[0]) if is_here else None
        if is_alone and unequal is None:
            return Start(candidates[0])
        labels = best.labels
        if sample.space is not self.space:
            score = of.hyperplane(best.normal, best.rho, best.t)
            labels = score(self.space.start_rows()) > 0
        return Start(labels, unequal is not None)

    def plain(self, kind: str) -> NDArray:
        """Return labels without a descent: those of k-means, or a random half of the rows.

        This is how the papers' loops start here, for rows in memory. The papers do not specify
        their start; "auto" is k-means.
        """
        if kind == "random":
            return np.random.default_rng(self.seed).permutation(np.arange(self.space.n_rows) % 2)
        return self.candidates(["k-means"])[0]

    def given(self, labels: Any, *, keeps_sizes: bool) -> Start:
        """Return given labels; with `keeps_sizes` unequal sides need not have a wider margin."""
        if not self.takes_sizes:
            return Start(labels)
        if keeps_sizes:
            return Start(labels, are_unequal(labels, self.weights))
        sample = self._sample()
        few = labels if sample.chosen is None else labels[sample.chosen]
        even = self._screened(sample, [few])
        found = unequal_start(sample.space, few, sample.weights, even)
        return Start(labels, found is not None)

    def candidates(self, kinds: Sequence[str], of: _Sample | None = None) -> list[NDArray]:
        """Return a labelling of each kind; "k-means" without rows is `principal_start`."""
        space, weights, _ = _Sample(self.space, self.weights) if of is None else of
        rng = np.random.default_rng(self.seed)
        labels = []
        for kind in kinds:
            if kind == "random":
                labels.append(random_start(space, rng))
            elif space.start_rows() is None:
                labels.append(principal_start(space, rng))
            else:
                labels.append(k_means_start(space.start_rows(), weights, self.seed))
        return labels

    def _screened(self, sample: _Sample, candidates: list[NDArray]) -> MarginResult:
        problem = MarginProblem(
            sample.space,
            HingeLoss(sample.space.shares),
            tau=self.tau,
            balance="relative" if self.is_relative else "absolute",
        )
        C = SCREENING_C / (1.0 - min(self.tau, 0.99)) if self.is_relative else SCREENING_C
        return best_start(problem, candidates, C=C, tol=SCREENING_TOL)

    def _sample(self) -> _Sample:
        """Return the rows on which starts are compared: a sample, or all rows if there are few."""
        chosen = drawn_rows(
            self.space.n_rows, self.weights, START_ROWS, np.random.default_rng(self.seed)
        )
        part = self.space.sampled(chosen)
        if part is None or part is self.space:
            return _Sample(self.space, self.weights)
        return _Sample(part, None if self.weights is None else self.weights[chosen], chosen)
