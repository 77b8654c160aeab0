"""Kernel k-means: Lloyd's iteration in feature space, the papers' method KM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmar._memory import require_memory
from volmar.base import Result, Status, WeightedClusterer
from volmar.base.clusterer import two_column_scores
from volmar.base.guided import GuidedMixin
from volmar.base.kernel import GammaWidth, KernelExpansion, KernelMixin
from volmar.base.numbering import nearest_by_size
from volmar.base.validation import check_choice, check_count, check_start_labels
from volmar.guidance.guide import Guide, Placement
from volmar.solvers.result import Certificate


@dataclass(frozen=True)
class KernelProblem:
    """Minimise sum_i w_i |phi(x_i) - m_c(i)|^2 over labels c, with m_c the weighted means."""

    K: NDArray
    weights: NDArray

    @cached_property
    def order(self) -> NDArray:
        """Row indices sorted by mean similarity to all rows, independent of the input order."""
        return np.argsort(self.K @ self.weights.astype(self.K.dtype), kind="stable")

    def members(self, labels: NDArray, n_clusters: int) -> NDArray:
        """Return the weights of the rows, each in the column of its cluster."""
        members = np.zeros((labels.size, n_clusters), dtype=self.K.dtype)
        members[np.arange(labels.size), labels] = self.weights
        return members

    def sums(self, labels: NDArray, n_clusters: int) -> NDArray:
        """Return S_ic, the sum over cluster c of w_j K_ij, in float64."""
        return (self.K @ self.members(labels, n_clusters)).astype(np.float64)

    def costs(self, S: NDArray, labels: NDArray) -> NDArray:
        """Return the squared distances to the means, less K_ii.

        |phi(x_i) - m_c|^2 = K_ii - 2 S_ic / s_c + sum_{j in c} w_j S_jc / s_c^2.
        """
        n_clusters = S.shape[1]
        mass = np.bincount(labels, self.weights, n_clusters)
        own = self.weights * S[np.arange(labels.size), labels]
        within = np.bincount(labels, own, n_clusters)
        safe = np.where(mass > 0, mass, 1.0)
        costs = within / safe**2 - 2 * S / safe
        costs[:, mass == 0] = np.inf
        return costs

    def objective(self, costs: NDArray, labels: NDArray) -> float:
        """Return the weighted sum of squared distances to the means."""
        own = self.K.diagonal() + costs[np.arange(labels.size), labels]
        weighs = self.weights > 0  # a cluster without weight has no mean and does not count
        return float(self.weights[weighs] @ own[weighs])

    @property
    def rounding(self) -> float:
        """Bound on the rounding error of the objective."""
        scale = float(self.weights @ np.abs(self.K.diagonal()))
        return float(10 * np.finfo(self.K.dtype).eps * scale)

    def moves(self, costs: NDArray, labels: NDArray) -> float:
        """Return the fraction of weight that is closer to another mean, beyond rounding."""
        total = max(self.weights.sum(), 1e-300)
        moves = _nearest(costs, labels, self.rounding / total) != labels
        return float(self.weights[moves].sum() / self.weights.sum())

    def certificate(self, labels: NDArray) -> Certificate:
        """Compute the objective and the fraction of weight that would move."""
        costs = self.costs(self.sums(labels, int(labels.max()) + 1), labels)
        return Certificate(self.objective(costs, labels), {"moves": self.moves(costs, labels)})


class KernelMeansInputs(NamedTuple):
    """The problem of a fit, with the kernel expansion for new rows."""

    problem: KernelProblem
    expansion: KernelExpansion


@dataclass(frozen=True, repr=False)
class KernelKMeansResult(Result):
    """Labels of a run of Lloyd's iteration; the residual "moves" is zero at a fixed point."""

    _solution: ClassVar = ("labels",)

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))


def kernel_kmeans(
    problem: KernelProblem,
    labels: NDArray,
    n_clusters: int,
    *,
    max_iter: int = 300,
    guide: Guide | None = None,
) -> KernelKMeansResult:
    """Run Lloyd's iteration from `labels` until no row moves.

    The sums S are updated from the rows that moved. With a positive semidefinite K the objective
    decreases at every step. If it increases for an indefinite K, the best labels are returned with
    `Status.CYCLE`. With a `guide`, rows are assigned by it, with the lowest sum of squared
    distances that it allows, and empty clusters are not filled.
    """
    S = problem.sums(labels, n_clusters)
    costs = problem.costs(S, labels)
    objective = problem.objective(costs, labels)
    tiny = problem.rounding
    history = [objective]
    nearness = tiny / max(problem.weights.sum(), 1e-300)
    status, n_iter = Status.MAX_ITER, 0
    placed: Placement | None = None
    for n_iter in range(1, max_iter + 1):  # noqa: B007 -- the count is part of the result
        if guide is None:
            proposed = _nearest(costs, labels, nearness)
            proposed = _fill_empty(problem, costs, proposed, n_clusters)
        else:
            placed = guide.place(-costs, None if placed is None else placed.offsets)
            proposed = placed.labels
            if np.unique(proposed).size < n_clusters:
                break
        moved = np.flatnonzero(proposed != labels)
        if moved.size == 0:
            status = Status.CONVERGED
            break
        next_S = _updated(problem, S, labels, proposed, moved)
        next_costs = problem.costs(next_S, proposed)
        next_objective = problem.objective(next_costs, proposed)
        if next_objective > objective - tiny:
            # A change within rounding is convergence. A larger increase means that K is not
            # positive semidefinite, or that the guide's assignment is not exact.
            is_still = next_objective <= objective + tiny or (
                placed is not None and placed.gap > 0
            )
            status = Status.CONVERGED if is_still else Status.CYCLE
            break
        S, costs, labels, objective = next_S, next_costs, proposed, next_objective
        history.append(objective)
    if status.ok and _closest_means(problem, S, labels) <= tiny:
        status = Status.DEGENERATE
    # Rows without weight do not affect the iteration, so their labels may be outdated.
    if guide is None:
        labels = np.where(problem.weights > 0, labels, np.argmin(costs, axis=1))
    moves = problem.moves(costs, labels)
    if guide is not None and status is not Status.MAX_ITER:
        moves = 0.0  # the guide allows no further moves
    return KernelKMeansResult(
        objective=objective,
        residuals={"moves": moves},
        status=status,
        n_iter=n_iter,
        history=tuple(history),
        labels=labels,
    )


def _closest_means(problem: KernelProblem, S: NDArray, labels: NDArray) -> float:
    """Return the smallest squared distance between two cluster means, times the total weight."""
    n_clusters = S.shape[1]
    mass = np.bincount(labels, problem.weights, n_clusters)
    if n_clusters == 1 or np.any(mass == 0):
        return np.inf
    weighted = problem.weights[:, None] * S
    products = np.stack([weighted[labels == c].sum(axis=0) / mass[c] for c in range(n_clusters)])
    products /= mass
    norms = products.diagonal()
    distances = norms[:, None] + norms - products - products.T
    return float(distances[np.triu_indices(n_clusters, 1)].min() * mass.sum())


def _nearest(costs: NDArray, labels: NDArray, tolerance: float) -> NDArray:
    """Return the nearest cluster of each row; in ties up to rounding, the current one."""
    nearest = np.argmin(costs, axis=1)
    rows = np.arange(labels.size)
    stays = costs[rows, labels] <= costs[rows, nearest] + tolerance
    return np.where(stays, labels, nearest)


def _fill_empty(
    problem: KernelProblem, costs: NDArray, labels: NDArray, n_clusters: int
) -> NDArray:
    """Move the row farthest from its own mean to each empty cluster."""
    weight = np.bincount(labels, problem.weights, n_clusters)
    if np.all(weight > 0):
        return labels
    labels = labels.copy()
    rows = np.arange(labels.size)
    own = np.where(np.isfinite(costs[rows, labels]), costs[rows, labels], 0.0)
    far = problem.weights * (problem.K.diagonal() + own)
    positive = problem.weights > 0
    for empty in np.flatnonzero(weight == 0):
        count = np.bincount(labels[positive], minlength=n_clusters)
        movable = positive & (count[labels] > 1)
        if not movable.any():
            break
        row = int(np.argmax(np.where(movable, far, -np.inf)))
        labels[row] = empty
        far[row] = -np.inf
    return labels


def _updated(
    problem: KernelProblem, S: NDArray, old: NDArray, new: NDArray, moved: NDArray
) -> NDArray:
    if moved.size > old.size // 3:
        return problem.sums(new, S.shape[1])
    change = np.zeros((moved.size, S.shape[1]), dtype=problem.K.dtype)
    rows = np.arange(moved.size)
    change[rows, old[moved]] = -problem.weights[moved]
    change[rows, new[moved]] = problem.weights[moved]
    return S + problem.K[moved].T @ change


def start_labels(problem: KernelProblem, n_clusters: int, init: str, seed: int) -> NDArray:
    """Return labels by the nearest of `n_clusters` rows drawn at random or by k-means++.

    Rows are drawn by inverting the cumulative weights, in the order of mean similarity. That order
    does not depend on the order of the input, and equal rows are adjacent in it. Permuted rows, or
    two copies of a row instead of a weight of 2, therefore get the same start from the same seed.
    """
    rng = np.random.default_rng(seed)
    order = problem.order
    diagonal = problem.K.diagonal().astype(np.float64)
    nearest = np.full(order.size, np.inf)
    labels = np.zeros(order.size, dtype=np.intp)
    for c in range(n_clusters):
        spread = np.where(np.isfinite(nearest), nearest, 1.0) if init == "k-means++" else 1.0
        if init == "random" and c > 0:
            spread = (nearest > 0).astype(float)  # exclude rows equal to a previous centre
        density = (problem.weights * np.maximum(spread, 0.0))[order]
        cumulated = np.cumsum(density)
        if cumulated[-1] <= 0:  # fewer distinct rows than clusters
            break
        draw = np.searchsorted(cumulated, rng.random() * cumulated[-1], side="right")
        # A subnormal number times a factor below 1 may be rounded back to itself.
        centre = order[min(draw, np.flatnonzero(density)[-1])]
        distance = np.maximum(diagonal + diagonal[centre] - 2.0 * problem.K[:, centre], 0.0)
        distance[centre] = 0.0
        labels[distance < nearest] = c
        nearest = np.minimum(nearest, distance)
    return _fill_empty(problem, np.zeros((order.size, n_clusters)), labels, n_clusters)


class KernelKMeans(GuidedMixin, GammaWidth, KernelMixin, WeightedClusterer):
    r"""Kernel k-means, the method KM of the maximum volume papers.

    Minimises :math:`\sum_i w_i \|\phi(x_i) - m_{c(i)}\|^2` over labels c, where
    :math:`m_c` is the weighted mean of cluster c in feature space and
    :math:`\langle\phi(x), \phi(y)\rangle = k(x, y)`.

    Parameters
    ----------
    n_clusters : int or "auto", default=2
        Number of clusters. If "auto", the rows are split recursively, and a split is made only if
        held-out rows confirm it by their distances to its border (see
        `volmar.evidence.split_test` and `tree_`).
    kernel : str or callable, default="rbf"
        Name of a scikit-learn kernel, a function of two matrices, or "precomputed".
    gamma : float, str or None, default="auto"
        Kernel coefficient of "rbf", "polynomial", "sigmoid", "laplacian" and "chi2". "scale" is
        1 / (n_features * variance of X), "4*scale" and "scale/4" are multiples of it; None is
        1 / n_features. "auto" chooses the width of "rbf", see Notes; it is "scale" for other
        kernels and if `init` holds labels. Other kernels do not use gamma.
    degree : float, default=3
        Degree of the polynomial kernel, at least 1.
    coef0 : float, default=1
        Constant of the polynomial and sigmoid kernels.
    kernel_params : dict, optional
        Further arguments of a callable kernel.
    init : {"auto", "k-means++", "random"}, array (n_samples,) or fitted clusterer, default="auto"
        Method to draw a start ("random" takes random rows as centres), or the labels to start
        from. "auto" is "k-means++", with two more starts from a graph if the kernel width is
        chosen (see Notes). If a clusterer fitted to the same columns that predicts `n_clusters`
        clusters, these and its `gamma_` are the start, and clusters that match keep their numbers.
    n_init : int, default=10
        Number of starts. The one with the lowest objective is kept. If `init` gives labels, there
        is a single start.
    max_iter : int, default=300
        Maximum number of iterations per start.
    alpha : float, default=0.05
        Significance level of the tests with n_clusters="auto", from 0.001 to 0.5: the probability
        of one or more false splits. Small values make the tests slower. Not used otherwise.
    max_clusters : int, optional
        Maximum number of clusters with n_clusters="auto". If None, there is no limit. The
        strongest splits are made first, and a warning is issued if further splits are left out.
    min_cluster_size, max_cluster_size : int, float or array of shape (n_clusters,), optional
        Minimum and maximum cluster size. An int is a number of rows (total weight, with
        `sample_weight`), a float a fraction of all rows. An array has one limit per cluster, in
        the order of `classes_`; without labels in `y`, the largest limits apply to the largest
        clusters. With n_clusters="auto" there are as many clusters as `max_cluster_size` requires.
    random_state : int, RandomState or None, default=None
        Random seed of the starts.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row. Clusters are numbered by size, 0 is the largest.
    classes_ : ndarray of shape (n_clusters,)
        Names of the clusters, as used in `labels_`; only if `y` is passed to `fit`.
    broken_links_ : ndarray of shape (n_pairs, 2)
        Pairs of `cannot_link` that are in one cluster; only if `cannot_link` is passed to `fit`.
    objective_ : float
        Weighted sum of squared distances to the cluster means in feature space.
    gamma_ : float or None
        Kernel coefficient used; None for kernels without one.
    cut_ : float
        Ratio cut of the clusters, the criterion for the kernel width; only if it was chosen.
    n_iter_ : int
        Number of iterations of the start that was kept.
    result_ : KernelKMeansResult
        Certified result of the solver. Its residual "moves" is the fraction of the weight that one
        more iteration would move.
    previous_clusters_ : ndarray of shape (n_clusters,)
        If `init` is a fitted clusterer, its cluster that each cluster continues; -1 for new ones.
    n_features_in_ : int
        Number of features (of training rows, with kernel="precomputed").

    See Also
    --------
    sklearn.cluster.KMeans : The same method with the linear kernel, in linear time.

    Notes
    -----
    *Kernel width.* gamma="auto" takes the widest of several kernels whose clusters have a ratio
    cut on a graph of the rows close to the lowest one known, by the rule of `KernelCPMMC` (see its
    Notes). The starts are those of "k-means++" and two clusterings of that graph.

    For two clusters, `decision_function` is the squared distance to the mean of cluster 0 less
    that to the mean of cluster 1. For more, it is the negative squared distance to each mean, up
    to a constant per row.

    *Size limits.* Rows are assigned with the smallest sum of squared distances within the limits,
    by an offset per cluster that is part of `decision_function` and `predict`. The limits do not
    apply to new rows. Training rows assigned by known labels, links or ties may have other labels
    than those of `predict`.

    Scale the features first if their units differ. Time and memory are quadratic in the number
    of rows. Kernel k-means is a baseline here: on clusters that are not round it depends on the
    width of the kernel and on its start.

    Examples
    --------
    >>> from volmar import KernelKMeans
    >>> from volmar.datasets import make_two_circles
    >>> from volmar.metrics import clustering_error
    >>> X, y = make_two_circles(200, noise=0.02, factor=0.2, random_state=0)
    >>> model = KernelKMeans(gamma=4.0, random_state=0).fit(X)
    >>> clustering_error(y, model.labels_)
    0.0
    """

    _min_clusters = 1
    _kernels_of_differences = ("linear", "rbf", "laplacian")

    def __init__(
        self,
        n_clusters: int | str = 2,
        *,
        kernel: str | Callable[..., Any] = "rbf",
        gamma: float | str | None = "auto",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        init: Any = "auto",
        n_init: int = 10,
        max_iter: int = 300,
        alpha: float = 0.05,
        max_clusters: int | None = None,
        min_cluster_size: float | ArrayLike | None = None,
        max_cluster_size: float | ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.alpha = alpha
        self.max_clusters = max_clusters
        self.min_cluster_size = min_cluster_size
        self.max_cluster_size = max_cluster_size
        self.random_state = random_state

    def _scores(self, X: Any) -> NDArray:
        if self._mean_norms.size == 1:
            return np.zeros(X.shape[0])
        products = self._expansion(X, self._mean_weights)
        return two_column_scores(2 * products - self._mean_norms)

    def _check_parameters(self) -> None:
        check_count("n_init", self.n_init)
        check_count("max_iter", self.max_iter)
        self._check_kernel()
        if isinstance(self.init, str):
            check_choice("init", self.init, ["auto", "k-means++", "random"])

    def _n_starts(self) -> int:
        return self.n_init if isinstance(self.init, str) else 1

    def _problem(self, X: Any, weights: NDArray | None) -> KernelMeansInputs:
        n = X.shape[0]
        if not isinstance(self.init, str):
            check_start_labels("init", self.init, n, self.n_clusters)
        require_memory(
            2.0 * X.dtype.itemsize * n**2,
            f"the kernel matrix of {n} rows",
            "Cluster a sample and use predict for the rest, or sklearn.cluster.KMeans on "
            "volmar.rows.NystroemMap features.",
        )
        K, expansion = self._kernel_matrix(X, weights)
        problem = KernelProblem(K, np.ones(n) if weights is None else weights)
        return KernelMeansInputs(problem, expansion)

    def _run(self, prepared: KernelMeansInputs, seed: int) -> KernelKMeansResult:
        problem = prepared.problem
        if isinstance(self.init, str):
            kind = "k-means++" if self.init == "auto" else self.init
            labels = start_labels(problem, self.n_clusters, kind, seed)
        else:
            labels = check_start_labels("init", self.init, problem.K.shape[0], self.n_clusters)
        return kernel_kmeans(
            problem, labels, self.n_clusters, max_iter=self.max_iter, guide=self._guide
        )

    def _finish(
        self, prepared: KernelMeansInputs, result: KernelKMeansResult, weights: Any
    ) -> None:
        """Set the labels to those of `predict`, unless this increases the objective.

        They may differ for rows with negligible weight or after max_iter iterations. The objective
        can increase for kernels that are not positive semidefinite.
        """
        problem, self._expansion = prepared.problem, prepared.expansion
        members = problem.members(result.labels, self.n_clusters)
        mass = members.sum(axis=0, dtype=np.float64)
        known = np.flatnonzero(mass > 0)  # clusters without weight are left out
        means = members[:, known] / mass[known].astype(members.dtype)
        images = problem.K @ means
        norms = np.einsum("ic,ic->c", means, images)
        scores = 2 * images - norms
        if self._guide is not None:
            order = self._order(result.labels, weights)
            self._mean_weights, self._mean_norms = means[:, order], norms[order]
            self._set_result(replace(result, labels=np.argsort(order)[result.labels]))
            return
        labels, order = nearest_by_size(scores, weights, self._cluster_order)
        if not np.array_equal(known[order][labels], result.labels):
            certificate = problem.certificate(labels)
            if certificate.objective <= result.objective + problem.rounding:
                result = replace(result, **vars(certificate))
            else:
                numbers = np.minimum(np.searchsorted(known, result.labels), known.size - 1)
                order = self._cluster_order(numbers, weights, known.size)
                labels = np.argsort(order)[numbers]
        if order.size < self.n_clusters and result.status.ok:
            result = replace(result, status=Status.DEGENERATE)
        self._mean_weights, self._mean_norms = means[:, order], norms[order]
        self._set_result(replace(result, labels=labels))

    def _status_words(self, result: Any) -> str:
        if result.status is not Status.DEGENERATE:
            return super()._status_words(result)
        return (
            f"with this kernel, X has fewer distinct rows than n_clusters={self.n_clusters}, and "
            "clusters have the same mean. Lower n_clusters, or check the kernel parameters"
        )
