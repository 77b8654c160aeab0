"""Kernel k-means: Lloyd's iteration in feature space, the papers' method KM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar._checks import check_choice, check_count
from volmar._memory import require_memory
from volmar.base.clusterer import Clusterer, two_column_scores
from volmar.base.kernel import KernelExpansion, KernelMixin
from volmar.base.numbering import nearest_by_size
from volmar.base.validation import check_start_labels
from volmar.solvers import Result, Status
from volmar.solvers.result import Certificate


@dataclass(frozen=True)
class KernelProblem:
    """Minimise sum_i |phi(x_i) - m_c(i)|^2 over labels c, with m_c the means of the clusters."""

    K: NDArray

    @cached_property
    def order(self) -> NDArray:
        """Row indices sorted by mean similarity to all rows, independent of the input order."""
        return np.argsort(self.K.sum(axis=1), kind="stable")

    @property
    def rounding(self) -> float:
        """Bound on the rounding error of the objective."""
        scale = float(np.abs(self.K.diagonal()).sum(dtype=np.float64))
        return float(10 * np.finfo(self.K.dtype).eps * scale)

    def sums(self, labels: NDArray, n_clusters: int) -> NDArray:
        """Return S_ic, the sum over cluster c of K_ij, in float64."""
        return (self.K @ np.eye(n_clusters, dtype=self.K.dtype)[labels]).astype(np.float64)

    def costs(self, S: NDArray, labels: NDArray) -> NDArray:
        """Return the squared distances to the means, less K_ii.

        |phi(x_i) - m_c|^2 = K_ii - 2 S_ic / n_c + sum_{j in c} S_jc / n_c^2.
        """
        k = S.shape[1]
        sizes = np.bincount(labels, minlength=k)
        within = np.bincount(labels, S[np.arange(labels.size), labels], k)
        safe = np.maximum(sizes, 1)
        costs = within / safe**2 - 2 * S / safe
        costs[:, sizes == 0] = np.inf
        return costs

    def objective(self, costs: NDArray, labels: NDArray) -> float:
        """Return the sum of squared distances to the means."""
        own = self.K.diagonal() + costs[np.arange(labels.size), labels]
        return float(own.sum(dtype=np.float64))

    def nearest(self, costs: NDArray, labels: NDArray) -> NDArray:
        """Return the nearest cluster of each row; in ties up to rounding, the current one."""
        nearest = np.argmin(costs, axis=1)
        rows = np.arange(labels.size)
        stays = costs[rows, labels] <= costs[rows, nearest] + self.rounding / labels.size
        return np.where(stays, labels, nearest)

    def certificate(self, labels: NDArray) -> Certificate:
        """Compute the objective, and the fraction of the rows that are closer to another mean."""
        costs = self.costs(self.sums(labels, int(labels.max()) + 1), labels)
        moves = float(np.mean(self.nearest(costs, labels) != labels))
        return Certificate(self.objective(costs, labels), {"moves": moves})


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
    problem: KernelProblem, labels: NDArray, n_clusters: int, *, max_iter: int = 300
) -> KernelKMeansResult:
    """Run Lloyd's iteration from `labels` until no row moves.

    With a positive semidefinite K the objective decreases at every step. If it increases for an
    indefinite K, the best labels are returned with `Status.CYCLE`.
    """
    S = problem.sums(labels, n_clusters)
    costs = problem.costs(S, labels)
    objective, tiny = problem.objective(costs, labels), problem.rounding
    history = [objective]
    status, n_iter = Status.MAX_ITER, 0
    for n_iter in range(1, max_iter + 1):  # noqa: B007 -- the count is part of the result
        proposed = _fill_empty(problem, costs, problem.nearest(costs, labels))
        if np.array_equal(proposed, labels):
            status = Status.CONVERGED
            break
        next_S = problem.sums(proposed, n_clusters)
        next_costs = problem.costs(next_S, proposed)
        next_objective = problem.objective(next_costs, proposed)
        if next_objective > objective - tiny:
            # A change within rounding is convergence. A larger increase means that K is not
            # positive semidefinite.
            is_still = next_objective <= objective + tiny
            status = Status.CONVERGED if is_still else Status.CYCLE
            break
        S, costs, labels, objective = next_S, next_costs, proposed, next_objective
        history.append(objective)
    if status.ok and _closest_means(S, labels) * labels.size <= tiny:
        status = Status.DEGENERATE
    return KernelKMeansResult(
        objective=objective,
        residuals={"moves": float(np.mean(problem.nearest(costs, labels) != labels))},
        status=status,
        n_iter=n_iter,
        history=tuple(history),
        labels=labels,
    )


def _closest_means(S: NDArray, labels: NDArray) -> float:
    """Return the smallest squared distance between two cluster means."""
    k = S.shape[1]
    sizes = np.bincount(labels, minlength=k)
    if k == 1 or np.any(sizes == 0):
        return np.inf
    products = np.stack([S[labels == c].mean(axis=0) for c in range(k)]) / sizes
    norms = products.diagonal()
    distances = norms[:, None] + norms - products - products.T
    return float(distances[np.triu_indices(k, 1)].min())


def _fill_empty(problem: KernelProblem, costs: NDArray, labels: NDArray) -> NDArray:
    """Move the row farthest from its own mean to each empty cluster."""
    k = costs.shape[1]
    sizes = np.bincount(labels, minlength=k)
    if np.all(sizes > 0):
        return labels
    labels = labels.copy()
    own = costs[np.arange(labels.size), labels]
    far = problem.K.diagonal() + np.where(np.isfinite(own), own, 0.0)
    for empty in np.flatnonzero(sizes == 0):
        movable = np.bincount(labels, minlength=k)[labels] > 1
        if not movable.any():
            break
        row = int(np.argmax(np.where(movable, far, -np.inf)))
        labels[row] = empty
        far[row] = -np.inf
    return labels


def start_labels(problem: KernelProblem, n_clusters: int, init: str, seed: int) -> NDArray:
    """Return labels by the nearest of `n_clusters` rows drawn at random or by k-means++.

    Rows are drawn in the order of mean similarity, which does not depend on the order of the
    input. Permuted rows therefore get the same start from the same seed.
    """
    rng = np.random.default_rng(seed)
    order = problem.order
    diagonal = problem.K.diagonal().astype(np.float64)
    nearest = np.ones(order.size)
    labels = np.zeros(order.size, dtype=np.intp)
    for c in range(n_clusters):
        # "random" leaves out rows that equal a previous centre.
        density = nearest if init == "k-means++" else (nearest > 0).astype(float)
        cumulated = np.cumsum(density[order])
        if cumulated[-1] <= 0:  # fewer distinct rows than clusters
            break
        draw = np.searchsorted(cumulated, rng.random() * cumulated[-1], side="right")
        # A subnormal number times a factor below 1 may be rounded back to itself.
        centre = order[min(draw, np.flatnonzero(density[order])[-1])]
        distance = np.maximum(diagonal + diagonal[centre] - 2.0 * problem.K[:, centre], 0.0)
        distance[centre] = 0.0
        if c > 0:
            labels[distance < nearest] = c
            distance = np.minimum(nearest, distance)
        nearest = distance
    return _fill_empty(problem, np.zeros((order.size, n_clusters)), labels)


class KernelKMeans(KernelMixin, Clusterer):
    r"""Kernel k-means, the method KM of the maximum volume papers.

    Minimises :math:`\sum_i \|\phi(x_i) - m_{c(i)}\|^2` over labels c, where :math:`m_c` is the
    mean of cluster c in feature space and :math:`\langle\phi(x), \phi(y)\rangle = k(x, y)`.

    Parameters
    ----------
    n_clusters : int, default=2
        Number of clusters.
    kernel : str or callable, default="rbf"
        Name of a scikit-learn kernel, a function of two matrices, or "precomputed".
    {gamma}
    {degree}
    {coef0}
    {kernel_params}
    init : {"k-means++", "random"} or array of shape (n_samples,), default="k-means++"
        Method to draw a start ("random" takes random rows as centres), or the labels to start
        from.
    n_init : int, default=10
        Number of starts. The one with the lowest objective is kept. If `init` gives labels, there
        is a single start.
    max_iter : int, default=300
        Maximum number of iterations per start.
    random_state : int, RandomState or None, default=None
        Random seed of the starts.

    Attributes
    ----------
    {labels_}
    objective_ : float
        Sum of squared distances to the cluster means in feature space.
    {gamma_}
    n_iter_ : int
        Number of iterations of the start that was kept.
    result_ : KernelKMeansResult
        Certified result of the solver. Its residual "moves" is the fraction of the rows that one
        more iteration would move.
    {kernel:n_features_in_}

    See Also
    --------
    sklearn.cluster.KMeans : The same method with the linear kernel, in linear time.

    Notes
    -----
    For two clusters, `decision_function` is the squared distance to the mean of cluster 0 less
    that to the mean of cluster 1. For more, it is the negative squared distance to each mean, up
    to a constant per row.

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

    _accepts_sparse = False
    _min_clusters = 1
    _kernels_of_differences = ("linear", "rbf", "laplacian")

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        kernel: str | Callable[..., Any] = "rbf",
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        init: Any = "k-means++",
        n_init: int = 10,
        max_iter: int = 300,
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
            check_choice("init", self.init, ["k-means++", "random"])

    def _n_starts(self) -> int:
        return self.n_init if isinstance(self.init, str) else 1

    def _problem(self, X: Any, weights: Any) -> KernelMeansInputs:  # noqa: ARG002 -- no weights here
        n = X.shape[0]
        if not isinstance(self.init, str):
            check_start_labels("init", self.init, n, self.n_clusters)
        require_memory(
            2.0 * X.dtype.itemsize * n**2,
            f"the kernel matrix of {n} rows",
            "Cluster a sample and use predict for the rest, or sklearn.cluster.KMeans on features "
            "by sklearn.kernel_approximation.Nystroem.",
        )
        K, expansion = self._kernel_matrix(X)
        self.gamma_ = expansion.gamma
        return KernelMeansInputs(KernelProblem(K), expansion)

    def _run(self, prepared: KernelMeansInputs, seed: int) -> KernelKMeansResult:
        problem, k = prepared.problem, self.n_clusters
        if isinstance(self.init, str):
            labels = start_labels(problem, k, self.init, seed)
        else:
            labels = check_start_labels("init", self.init, problem.K.shape[0], k)
        return kernel_kmeans(problem, labels, k, max_iter=self.max_iter)

    def _finish(
        self, prepared: KernelMeansInputs, result: KernelKMeansResult, weights: Any
    ) -> None:
        """Set the labels to those of `predict`, unless this increases the objective.

        They may differ after max_iter iterations. The objective can increase for kernels that are
        not positive semidefinite.
        """
        problem, self._expansion = prepared.problem, prepared.expansion
        known, numbers = np.unique(result.labels, return_inverse=True)
        members = np.eye(known.size, dtype=problem.K.dtype)[numbers]
        means = members / members.sum(axis=0)
        images = problem.K @ means
        norms = np.einsum("ic,ic->c", means, images)
        labels, order = nearest_by_size(2 * images - norms, weights, self._cluster_order)
        if not np.array_equal(order[labels], numbers):
            certificate = problem.certificate(labels)
            if certificate.objective <= result.objective + problem.rounding:
                result = replace(result, **vars(certificate))
            else:
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
