"""Minimum density hyperplanes of Pavlidis, Hofmeyr and Tasoulis (2016)."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar._checks import check_random_state, fix_signs
from volmar._eigen import eigenpairs
from volmar.base import WeightedClusterer
from volmar.base.recursion import GrownTree
from volmar.base.row_density import RowDensity, row_density
from volmar.base.validation import (
    check_choice,
    check_cluster_size,
    check_count,
    check_number,
    check_start_labels,
)
from volmar.baselines.projected_kmeans import varying
from volmar.evidence import column_resolutions
from volmar.rows import (
    DenseRows,
    RowSpace,
    SparseRows,
    Standardized,
    drawn_by_weight,
    take_rows,
)
from volmar.solvers.hyperplane_density import HyperplaneDensity
from volmar.solvers.minimum_density import (
    MinimumDensityResult,
    minimum_density,
    refined,
    visible_depth,
)

# Size of the sample on which starts are compared: at least MIN_ROWS, or ROWS_PER_FEATURE times the
# number of features as long as the sample has at most MAX_ENTRIES entries.
MIN_ROWS, ROWS_PER_FEATURE, MAX_ENTRIES = 2000, 10, 1 << 24
# Number of steps in which the slab grows from 0 to `max_offset`.
N_STEPS = 3
# Default minimum cluster size, as a fraction of the rows.
DEFAULT_SHARE = 0.02
# Attributes of a single split, which a tree with two leaves has too.
OF_A_SPLIT = ("coef_", "intercept_", "mean_", "relative_depth_")


@dataclass(frozen=True)
class DensityProblem:
    """Standardised rows, the density on hyperplanes, and a sample for the starts.

    `few` is the density of the sample. `noise` (p,) holds the rounding variances of the
    coordinates, in the units of `few`.
    """

    X: Any
    z: Standardized
    density: RowDensity
    few: HyperplaneDensity
    noise: NDArray
    min_share: float

    @property
    def is_whole(self) -> bool:
        """Whether the sample contains all rows."""
        return self.few.shares.size == self.X.shape[0]

    def between_means(self, labels: NDArray) -> NDArray:
        """Return the difference of the two cluster means; the first axis if they are equal."""
        v = self.z.combine(self.density.problem.shares * labels)
        return v if np.linalg.norm(v) > 0 else np.eye(self.z.size)[0]


def density_problem(
    X: Any, weights: NDArray | None, max_offset: float, min_share: float, rng: np.random.Generator
) -> DensityProblem:
    """Return the problem for standardised rows, with a sample drawn by weight."""
    z = varying(X, weights)
    density = row_density(z, max_offset)
    n, p = X.shape[0], z.size
    size = max(MIN_ROWS, min(ROWS_PER_FEATURE * p, MAX_ENTRIES // p))
    is_whole = n <= size
    chosen = np.arange(n) if is_whole else drawn_by_weight(n, weights, size, rng)
    if isinstance(z, RowSpace):
        Z = z.T[chosen]
    else:
        Z = z.transform(take_rows(X, chosen) if is_whole or weights is None else X[chosen])
    shares = density.problem.shares if is_whole else None
    noise = np.zeros(p) if isinstance(z, RowSpace) else rounding_noise(Z, shares) / density.unit**2
    few = density.of(Z, shares)
    return DensityProblem(X, z, density, few, noise, min_share)


def rounding_noise(Z: NDArray, shares: NDArray | None) -> NDArray:
    """Return the rounding variance of each column, r^2 / 12 for a resolution r.

    Copies of rows are dropped, because they do not indicate rounding of single columns.
    """
    counted = Z if shares is None else Z[shares > 0]
    direction = np.random.default_rng(0).standard_normal((Z.shape[1], 1))
    along = (counted @ direction.astype(Z.dtype))[:, 0]
    distinct = np.unique(along, return_index=True)[1]
    return column_resolutions(counted[distinct]) ** 2 / 12.0


def start_directions(
    problem: DensityProblem, n_starts: int, rng: np.random.Generator
) -> list[NDArray]:
    """Return directions to start from: the first principal one, then those with deepest valleys.

    The candidates are other principal directions, random combinations of principal components in
    proportion to their standard deviations and, unless there are more features than rows, single
    features. Within each of these kinds, candidates are sorted by the relative depth of the lowest
    cut along them. The kinds take turns, so that none displaces the others.
    """
    z, p = problem.z, problem.z.size
    count = min(p, 2 * n_starts)
    values, vectors = eigenpairs(z.correlation, (p - count, p - 1))
    coefficients = z.coefficients(vectors)  # the signs of the basis are arbitrary
    signs = np.where((coefficients * fix_signs(coefficients)).sum(axis=0) < 0, -1.0, 1.0)
    principal = (vectors * signs)[:, ::-1]
    spread = np.sqrt(np.maximum(values[::-1], 0.0))
    random = principal @ (spread[:, None] * rng.standard_normal((count, 2 * n_starts)))
    kinds = [list(principal.T[1:]), list(random.T)]
    if not isinstance(z, RowSpace):
        kinds.append(list(np.eye(p)))

    def depth(v: NDArray) -> float:
        return visible_depth(problem.few, v, None, problem.noise)

    queues = [sorted(kind, key=depth, reverse=True) for kind in kinds]
    starts = [principal[:, 0]]
    while len(starts) < n_starts and any(queues):
        starts += [queue.pop(0) for queue in queues if queue]
    return starts[:n_starts]


class MinimumDensityHyperplane(WeightedClusterer):
    r"""Minimum density hyperplane (Pavlidis, Hofmeyr and Tasoulis 2016).

    Two clusters are separated by the hyperplane :math:`v'z = b` with the lowest density of rows.
    With :math:`p_i = v'z_i` the projections of the standardised rows on a unit vector, the density
    on the hyperplane is the kernel density estimate of the projections at b. It is minimised
    within a slab around the mean; otherwise the hyperplane would have all rows on one side:

    .. math::
        \min_{|v| = 1} \; \min_b \; \frac{1}{n \sqrt{2\pi}\, h} \sum_i
        e^{-(b - p_i)^2 / 2h^2} + \frac{L}{\eta} \max(0, |b| - \alpha\sigma_v)^2 .

    :math:`\sigma_v` is the standard deviation of the projections, :math:`h = 0.9\,\sigma_1
    n^{-1/5}` with :math:`\sigma_1` the standard deviation along the first principal component,
    :math:`L = (e^{1/2} h^2 \sqrt{2\pi})^{-1}` and :math:`\eta = h / 10`. L-BFGS is run from
    several directions, with :math:`\alpha` growing from 0 to `max_offset`. The solution is the
    minimum with the largest relative depth among all that are found.

    Parameters
    ----------
    n_clusters : int or "auto", default=2
        Number of clusters. If larger than 2, the rows are split recursively (see `tree_`). The
        cluster with the largest :math:`\sqrt{n}` times the excess over 1/2 of the separation
        probability of its two sides is split next. If "auto", a cluster is split only if held-out
        rows confirm that it has more than one group (see `volmar.evidence.split_test`).
    max_offset : float, default=0.9
        :math:`\alpha`, the maximum distance of the hyperplane from the mean of the rows, in
        standard deviations along its normal. The paper's 0.9 reaches the middle between two
        distant groups if the smaller one has a sixth of the rows. A fraction r of the rows
        requires :math:`(1/2 - r) / \sqrt{r (1 - r)}`, which is 1.4 for a tenth. With larger
        values, hyperplanes that cut off a few outliers are chosen more often.
    init : "auto", array of shape (n_samples,) or fitted clusterer, default="auto"
        If "auto", the first principal direction, followed by the principal directions, single
        features and random directions with the deepest valleys. If an array of labels of two
        clusters, the difference of their means. If a clusterer fitted to the same columns, the
        difference of the means of the clusters that it predicts; clusters that match keep their
        numbers.
    n_init : int, default=10
        Number of directions to start from with init="auto".
    min_cluster_size : int or float, optional
        Minimum cluster size, a count or a fraction of the rows. Hyperplanes with a smaller side
        are used only if there are no others. If None, 0.02 of the rows (of the cluster that is
        split).
    max_iter : int, default=200
        Maximum number of iterations per descent.
    tol : float, default=1e-6
        Stopping tolerance of the last descent for the decrease of the objective in one iteration.
        Earlier descents stop at 100 times this value.
    alpha : float, default=0.05
        Significance level of the tests with n_clusters="auto", from 0.001 to 0.5: the probability
        of one or more false splits. Small values make the tests slower. Not used otherwise.
    max_clusters : int, optional
        Maximum number of clusters with n_clusters="auto". If None, there is no limit. The
        strongest splits are made first, and a warning is issued if further splits are left out.
    random_state : int, RandomState or None, default=None
        Random seed of the random directions and of the sample.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row. Clusters are numbered by size, 0 is the largest.
    coef_ : ndarray of shape (1, n_features)
        Normal of the hyperplane, of length 1 in units of the features' standard deviations. Like
        the next three attributes, only for two clusters.
    intercept_ : ndarray of shape (1,)
        Offset. Rows with ``X @ coef_[0] + intercept_[0] > 0`` are in cluster 1.
    mean_ : ndarray of shape (n_features,)
        Weighted mean of X.
    relative_depth_ : float
        :math:`(\min(m_1, m_2) - I) / I`, with I the density on the hyperplane and :math:`m_1, m_2`
        the largest densities on its two sides. It is 0 if there is no valley.
    tree_ : SplitTree
        The splits, for more than two clusters or with n_clusters="auto".
    objective_ : float
        The minimum above, in units of :math:`1 / \sigma_1`. For more than two clusters, the sum
        over all splits.
    status_ : Status
        Status of the solver.
    n_iter_ : int
        Number of iterations of the descents that led to the hyperplane.
    result_ : MinimumDensityResult or RecursiveResult
        Certified result of the solver. The residual "gradient" is the norm of the gradient along
        the sphere, and "slope" the derivative in b; both are 0 at a minimum. There is no `gap`,
        because the density has many local minima.
    n_features_in_ : int
        Number of features.
    previous_clusters_ : ndarray of shape (n_clusters,)
        If `init` is a fitted clusterer, its cluster that each cluster continues; -1 for new ones.

    Notes
    -----
    `decision_function` is the signed distance to the hyperplane in units of the features' standard
    deviations. For more than two clusters, it returns the scores of the tree.

    *Units.* The objective depends on the units of the features: the density is lowest along the
    feature with the largest variance. Rows are therefore always standardised first. Constant
    features are left out.

    *Time.* One evaluation takes two passes over the rows, O(n d). The best b for v is found on a
    grid with steps of h / 8, by convolving a histogram of the projections with the kernel, with an
    error of at most 1/512 of the kernel's height, and refined by Newton steps with exact sums.
    With more than 2,000 rows (10 per feature, if that is more), all starts are run on a sample of
    that size, and only the last descent uses all rows.

    *Weights.* A weight of 2 is equivalent to a duplicated row, also in the bandwidth. With
    weights that sum to 1, the bandwidth would be that of a single row.

    *Columns with few distinct values* have valleys between these values. The descent uses them as
    they are, but relative depths are compared with a bandwidth that is increased by the resolution
    of the columns along v (`volmar.evidence.column_resolutions`).

    *More features than rows.* v lies in the span of the rows, and the search is restricted to it.
    Any labelling of such rows can be separated by an empty region. This is limited only by the
    bandwidth, which for all directions is that of the first principal component.

    References
    ----------
    N. G. Pavlidis, D. P. Hofmeyr and S. K. Tasoulis (2016). Minimum density hyperplanes. JMLR
    17(156).

    Examples
    --------
    >>> import numpy as np
    >>> from volmar import MinimumDensityHyperplane
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 4))
    >>> X[:100, 0] += 8.0
    >>> X[:, 1] *= 100.0                     # units do not matter
    >>> model = MinimumDensityHyperplane(random_state=0).fit(X)
    >>> np.bincount(model.labels_).tolist()
    [200, 100]
    >>> bool(model.relative_depth_ > 3)
    True
    """

    _multiway = "recursive"

    def __init__(
        self,
        n_clusters: int | str = 2,
        *,
        max_offset: float = 0.9,
        init: Any = "auto",
        n_init: int = 10,
        min_cluster_size: float | None = None,
        max_iter: int = 200,
        tol: float = 1e-6,
        alpha: float = 0.05,
        max_clusters: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_offset = max_offset
        self.init = init
        self.n_init = n_init
        self.min_cluster_size = min_cluster_size
        self.max_iter = max_iter
        self.tol = tol
        self.alpha = alpha
        self.max_clusters = max_clusters
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_number("max_offset", self.max_offset, low=0.0, high=10.0)
        check_count("n_init", self.n_init)
        check_count("max_iter", self.max_iter)
        check_number("tol", self.tol, low=0.0, high=1.0, open_low=True)
        if isinstance(self.init, str):
            check_choice("init", self.init, ["auto"])
        if self.min_cluster_size is not None:
            check_cluster_size(self.min_cluster_size)

    def _n_starts(self) -> int:
        return 1  # one run tries all directions: it selects by relative depth, not by density

    def _splits_by_hyperplanes(self) -> bool:
        return True

    def _minimum_share(self, n: int) -> float:
        size = self.min_cluster_size
        if size is None:
            return DEFAULT_SHARE
        return float(size) / n if isinstance(size, Integral) else float(size)

    def _problem(self, X: Any, weights: NDArray | None) -> DensityProblem:
        self._given_labels(X.shape[0])  # raises an error before the computation starts
        seed = copy.deepcopy(check_random_state(self.random_state)).randint(2**31 - 1)
        rng = np.random.default_rng(seed)
        share = self._minimum_share(X.shape[0])
        return density_problem(X, weights, float(self.max_offset), share, rng)

    def _given_labels(self, n_rows: int) -> NDArray | None:
        """Return the labels to start from; None if `init` is a string."""
        if isinstance(self.init, str):
            return None
        return check_start_labels("init", self.init, n_rows, 2)

    def _run(self, problem: DensityProblem, seed: int) -> MinimumDensityResult:
        labels = self._given_labels(problem.X.shape[0])
        offsets = [float(self.max_offset) * i / N_STEPS for i in range(N_STEPS + 1)]
        if labels is None:
            starts = start_directions(problem, int(self.n_init), np.random.default_rng(seed))
        else:
            starts, offsets = [problem.between_means(labels)], offsets[-1:]
        limits: dict[str, Any] = {"max_iter": int(self.max_iter), "tol": float(self.tol)}
        share = problem.min_share
        found = minimum_density(
            problem.few, starts, offsets, noise=problem.noise, min_share=share, **limits
        )
        return (
            found
            if problem.is_whole
            else refined(found, replace(problem.density.problem, offset=found.offset), **limits)
        )

    def _finish(self, problem: DensityProblem, result: Any, weights: Any) -> None:
        """Publish the hyperplane, and set the labels to those of `predict`."""
        result = result.renumbered(self._order(result.labels, weights))
        coefficients = problem.z.coefficients(result.normal)
        self.mean_: NDArray = problem.z.mean
        self.coef_: NDArray = coefficients[None, :]
        offset = coefficients @ self.mean_ + result.threshold * problem.density.unit
        self.intercept_: NDArray = np.array([-offset])
        self.relative_depth_: float = result.relative_depth
        self._set_result(replace(result, labels=self._scores(problem.X) > 0))

    def _fit_tree(self, X: Any, weights: Any, steps: Iterable[int]) -> GrownTree:
        grown = super()._fit_tree(X, weights, steps)
        if len(self.tree_.leaves()) == 2:
            for name in OF_A_SPLIT:
                if hasattr(self.tree_.root.model, name):
                    setattr(self, name, getattr(self.tree_.root.model, name))
        return grown

    def _scores(self, X: Any) -> NDArray:
        kind = DenseRows if isinstance(X, np.ndarray) else SparseRows
        scores = kind(X, offset=self.mean_).scores(self.coef_[0])
        threshold = -float(self.intercept_[0] + self.coef_[0] @ self.mean_)
        return scores - scores.dtype.type(threshold)
