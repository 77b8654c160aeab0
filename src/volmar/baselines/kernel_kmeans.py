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
from volmar.base.kernel import KernelExpansion, KernelMixin
from volmar.base.kernel_width import GammaWidth
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
        """Rows by their mean similarity to all: an order that no permutation of them changes."""
        return np.argsort(self.K @ self.weights.astype(self.K.dtype), kind="stable")

    def members(self, labels: NDArray, n_clusters: int) -> NDArray:
        """Weights of the rows, each in the column of its cluster."""
        members = np.zeros((labels.size, n_clusters), dtype=self.K.dtype)
        members[np.arange(labels.size), labels] = self.weights
        return members

    def sums(self, labels: NDArray, n_clusters: int) -> NDArray:
        """S_ic = sum over cluster c of w_j K_ij, in float64."""
        return (self.K @ self.members(labels, n_clusters)).astype(np.float64)

    def costs(self, S: NDArray, labels: NDArray) -> NDArray:
        """Squared distances to the means, less K_ii.

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
        """Weighted sum of squared distances to the means."""
        own = self.K.diagonal() + costs[np.arange(labels.size), labels]
        weighs = self.weights > 0  # a cluster of weightless rows has no mean and costs nothing
        return float(self.weights[weighs] @ own[weighs])

    @property
    def rounding(self) -> float:
        """Change of the objective that is rounding."""
        scale = float(self.weights @ np.abs(self.K.diagonal()))
        return float(10 * np.finfo(self.K.dtype).eps * scale)

    def moves(self, costs: NDArray, labels: NDArray) -> float:
        """Share of the weight that lies nearer to another mean, by more than rounding."""
        total = max(self.weights.sum(), 1e-300)
        moves = _nearest(costs, labels, self.rounding / total) != labels
        return float(self.weights[moves].sum() / self.weights.sum())

    def certificate(self, labels: NDArray) -> Certificate:
        """Compute the objective and the share of weight that would move."""
        costs = self.costs(self.sums(labels, int(labels.max()) + 1), labels)
        return Certificate(self.objective(costs, labels), {"moves": self.moves(costs, labels)})


class KernelMeansInputs(NamedTuple):
    """The problem of a fit, with what new rows need to be compared with its rows."""

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

    The sums S are updated from the rows that moved. On a positive semidefinite K the objective
    falls at every step; where an indefinite K makes it rise, the best labels are returned with
    `Status.CYCLE`. With a `guide` rows are placed by it, at the lowest sum of squared distances
    that it allows, and no cluster is filled.
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
            # Below rounding nothing is gained; above it K is not positive semidefinite, or the
            # rows were not placed exactly.
            is_still = next_objective <= objective + tiny or (
                placed is not None and placed.gap > 0
            )
            status = Status.CONVERGED if is_still else Status.CYCLE
            break
        S, costs, labels, objective = next_S, next_costs, proposed, next_objective
        history.append(objective)
    if status.ok and _closest_means(problem, S, labels) <= tiny:
        status = Status.DEGENERATE
    # Rows without weight move nothing, and so need not have moved themselves.
    if guide is None:
        labels = np.where(problem.weights > 0, labels, np.argmin(costs, axis=1))
    moves = problem.moves(costs, labels)
    if guide is not None and status is not Status.MAX_ITER:
        moves = 0.0  # none that it allows
    return KernelKMeansResult(
        objective=objective,
        residuals={"moves": moves},
        status=status,
        n_iter=n_iter,
        history=tuple(history),
        labels=labels,
    )


def _closest_means(problem: KernelProblem, S: NDArray, labels: NDArray) -> float:
    """Smallest squared distance between two cluster means, times the total weight."""
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
    """Cheapest cluster of each row; ties within rounding stay where they are."""
    nearest = np.argmin(costs, axis=1)
    rows = np.arange(labels.size)
    stays = costs[rows, labels] <= costs[rows, nearest] + tolerance
    return np.where(stays, labels, nearest)


def _fill_empty(
    problem: KernelProblem, costs: NDArray, labels: NDArray, n_clusters: int
) -> NDArray:
    """Give every empty cluster the row that lies farthest from its own mean."""
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
    """Labels by the nearest of `n_clusters` rows drawn at random or by k-means++.

    Rows are drawn by the inverse of the cumulated weights along the order of their mean
    similarity. That order does not depend on how the rows are sorted, and equal rows stand side
    by side in it: permuted rows, or a row written twice instead of weighted twice, get the same
    start from the same seed.
    """
    rng = np.random.default_rng(seed)
    order = problem.order
    diagonal = problem.K.diagonal().astype(np.float64)
    nearest = np.full(order.size, np.inf)
    labels = np.zeros(order.size, dtype=np.intp)
    for c in range(n_clusters):
        spread = np.where(np.isfinite(nearest), nearest, 1.0) if init == "k-means++" else 1.0
        if init == "random" and c > 0:
            spread = (nearest > 0).astype(float)  # a second centre on the same spot is no centre
        density = (problem.weights * np.maximum(spread, 0.0))[order]
        cumulated = np.cumsum(density)
        if cumulated[-1] <= 0:  # fewer different rows than clusters
            break
        draw = np.searchsorted(cumulated, rng.random() * cumulated[-1], side="right")
        # The smallest numbers times less than 1 are themselves.
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
        Number of clusters. "auto": as many as held-out rows confirm, by splitting again; a split
        is tested by the distances of rows to its border (see `volmar.evidence.split_test` and
        `tree_`).
    kernel : str or callable, default="rbf"
        Name of a scikit-learn kernel, a function of two matrices, or "precomputed".
    gamma : float, str or None, default="auto"
        Kernel coefficient of "rbf", "polynomial", "sigmoid", "laplacian" and "chi2". "scale" is
        1 / (n_features * variance of X), "4*scale" and "scale/4" are multiples of it; None is
        1 / n_features. "auto" chooses the width of "rbf", see Notes; it is "scale" for other
        kernels and where `init` holds labels. Other kernels have no use for gamma.
    degree : float, default=3
        Degree of the polynomial kernel, at least 1.
    coef0 : float, default=1
        Constant of the polynomial and sigmoid kernels.
    kernel_params : dict, optional
        Further arguments of a callable kernel.
    init : {"auto", "k-means++", "random"}, array (n_samples,) or fitted clusterer, default="auto"
        How a start is drawn ("random": random rows as centres), or the labels to start from.
        "auto": "k-means++", and clusters of a graph where the width of the kernel is chosen (see
        Notes). A fitted clusterer of the same columns: the clusters that it predicts are the
        start, where there are `n_clusters`, with the `gamma_` that it has found, and clusters keep
        its numbers where they match.
    n_init : int, default=10
        Number of starts; the one with the lowest objective is kept. Given labels are one start.
    max_iter : int, default=300
        Maximum number of iterations of a start.
    alpha : float, default=0.05
        Level of the tests of n_clusters="auto" (not used otherwise): the probability of any split
        too many. From 0.001, for which tests take longer, to 0.5.
    max_clusters : int, optional
        Maximum number of clusters, only with n_clusters="auto"; no limit if not given. The
        strongest splits are made first, and a warning is given where others are left.
    min_cluster_size, max_cluster_size : int, float or array of shape (n_clusters,), optional
        Limits of the sizes of clusters: an int is a number of rows (their weight, with
        `sample_weight`), a float a fraction of all. An array has one limit for each cluster, in
        the order of `classes_`; without labels in `y` the largest limits belong to the largest
        clusters. With n_clusters="auto" there are as many clusters as `max_cluster_size` needs.
    metric : {"euclidean", "cosine"}, default="euclidean"
        "cosine": the method sees rows of unit length; sparse X of more than 1000 columns as text
        (idf, singular vectors). See the page *Embeddings and text*.
    text_components : int, "auto" or None, default="auto"
        Singular vectors to which metric="cosine" reduces sparse rows. "auto": 100 for more than
        1000 columns, otherwise no reduction. None: no reduction.
    random_state : int, RandomState or None, default=None
        Seed of the starts.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row, by size: 0 is the largest.
    classes_ : ndarray of shape (n_clusters,)
        Names of the clusters, which `labels_` holds; only where `fit` was given labels of rows.
    broken_links_ : ndarray of shape (n_pairs, 2)
        Pairs of `cannot_link` in one cluster; only where `fit` was given any.
    objective_ : float
        Weighted sum of squared distances to the cluster means in feature space.
    gamma_ : float or None
        Kernel coefficient that was used; None for kernels without one.
    cut_ : float
        Ratio cut of the clusters by which widths were compared; only where they were.
    n_iter_ : int
        Iterations of the start that was kept.
    result_ : KernelKMeansResult
        The solver's certified result; its residual "moves" is the share of weight that one more
        iteration would move.
    previous_clusters_ : ndarray of shape (n_clusters,)
        Where `init` is a fitted clusterer, its cluster that each one continues; -1 for a new one.
    row_map_ : RowMap
        The map of rows with metric="cosine"; only then.
    n_features_in_ : int
        Number of features (of training rows, with kernel="precomputed").

    See Also
    --------
    sklearn.cluster.KMeans : The same with the linear kernel, in linear time.

    Notes
    -----
    *Width of the kernel.* gamma="auto" takes the widest of several kernels whose clusters cut a
    graph of the rows about as little as any known, by the rule of `KernelCPMMC` (see its Notes).
    Starts are those of "k-means++" and two clusterings of that graph.

    `decision_function` is, for two clusters, the squared distance to the mean of cluster 0 less
    that to the mean of cluster 1, and for more the negative squared distance to each mean, up to a
    constant of each row.

    *Sizes.* Rows are placed so that the sum of their squared distances is the smallest within the
    limits: by an offset for each cluster, which is part of `decision_function` and `predict`. New
    rows have no limit. Training rows that seeds, links or ties decide may have other labels than
    `predict` gives them.

    Scale the features first where their units differ. Time and memory are quadratic in the number
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
        metric: str = "euclidean",
        text_components: int | str | None = "auto",
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
        self.metric = metric
        self.text_components = text_components
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
        """Give rows the labels that `predict` gives them, unless the objective would rise.

        Rows of next to no weight, or of a run that the limit of iterations ended, may have other
        labels. The objective rises for kernels that are not positive semidefinite.
        """
        problem, self._expansion = prepared.problem, prepared.expansion
        members = problem.members(result.labels, self.n_clusters)
        mass = members.sum(axis=0, dtype=np.float64)
        known = np.flatnonzero(mass > 0)  # no row goes to a cluster without weight
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
            f"X has fewer different rows than n_clusters={self.n_clusters} to this kernel, and "
            "means of clusters are the same. Lower n_clusters, or check the kernel's parameters"
        )
