"""MSPC: maximin separation probability clustering."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from volmar._checks import check_choice, check_count, check_number, check_random_state, shown
from volmar._clones import silent_clone
from volmar._memory import explain_memory, require_memory
from volmar._threads import one_thread
from volmar._warn import warn_user
from volmar._weights import check_sample_weight
from volmar.base.blocks import refuse_blocks, without_vectors
from volmar.base.clusterer import WeightedClusterer
from volmar.base.guided import GuidedMixin
from volmar.base.kernel import KernelMixin
from volmar.base.numbering import order_by_size
from volmar.base.outcome import check_fitted_values, forget, quiet
from volmar.base.recursion import GrownTree, PartRows
from volmar.base.validation import check_cluster_size
from volmar.guidance.guide import Guide
from volmar.guidance.knowledge import Seeds, check_seeds
from volmar.rows.anywhere import (
    as_rows,
    centered_with_moments,
    constant_vector,
    drawn_rows,
    features_of,
    in_one_pass,
    is_in_memory,
    lazy_vector,
    of_rows,
)
from volmar.rows.blocks import is_dask
from volmar.rows.protocol import Moments, RowSource
from volmar.rows.standardized import (
    RowSpace,
    Standardized,
    evenly_scaled,
    exactly_standardized,
    standardized,
)
from volmar.rows.tiled import TILE_ROWS
from volmar.separation.batch_moments import (
    BatchMoments,
    clusters_from_moments,
    hyperplane_from_moments,
)
from volmar.separation.discriminants import (
    MANY_CLUSTERS,
    LargestDiscriminant,
    MultiwaySeparationResult,
    k_means_starts,
    refine_leaves,
    refine_on_all,
)
from volmar.separation.gep import check_reg
from volmar.separation.guided import guided_clusters, seeded_clusters, seeded_sample
from volmar.separation.problem import SeparationRows, check_features, planes_of
from volmar.separation.two_way import TwoWaySolver, cross_fit_probability, describe_split
from volmar.solvers import Status

# Maximum number of rows for cross-fitting; the error of the probability is then 0.01 to 0.02.
CROSS_FIT_ROWS = 4000
# Attributes of a split that are also set on the model if the tree has only this split.
OF_A_SPLIT = (
    "coef_",
    "intercept_",
    "gamma_",
    "reg_",
    "msp_",
    "msp_lower_bound_",
    "side_probability_",
    "kept_variance_",
)
# Required values of parameters: batches are clustered by linear discriminants of moments.
NEEDED = {"kernel": "linear", "solver": "gep", "mode": "default"}


class MSPC(GuidedMixin, KernelMixin, WeightedClusterer):
    r"""Maximin separation probability clustering (Huang et al., AAAI 2015).

    Finds the hyperplane that separates two clusters with the highest worst-case probability p,
    over all distributions with the means and covariances of the clusters (MSPC eq. 3):

    .. math:: \max_{w, y} \kappa = \frac{|w'(\mu_1 - \mu_2)|}
              {\sqrt{w'(\Sigma_1 + \lambda\Lambda)w} + \sqrt{w'(\Sigma_2 + \lambda\Lambda)w}},
              \qquad p = \frac{\kappa^2}{1 + \kappa^2}

    with :math:`\Lambda = diag(\Sigma)`, so that the scales of the features do not matter. More
    than two clusters are found by repeated splits (see Notes).

    Parameters
    ----------
    n_clusters : int, default=2
        Number of clusters.
    solver : {"gep", "mpm", "eig"}, default="gep"
        "gep" maximises the lower bound on p of Theorem 2, which also penalises unequal cluster
        sizes; no iteration lowers it. "mpm" alternates between the minimax probability machine and
        the labels that it predicts, as in the paper. This is a fixed-point iteration; it starts
        from the result of "gep" if init="auto". "eig" is the paper's relaxation: the first
        principal component of the standardised rows, cut at its mean, for every `reg`.
    reg : float, optional
        Regularisation :math:`\lambda` in units of the features' variances, at most 1e15. Small
        values tend to split the noise; 0 needs nonsingular covariances. If None, 1, or 0.1 if
        init="auto" finds a valley of the density with 0.1 but none with 1 (see `reg_`), as for
        groups that lie side by side in strongly correlated features.
    init : {"auto", "k-means"}, array of shape (n_samples,) or fitted clusterer, default="auto"
        Start of the search. "auto" compares single features, principal and random directions, and
        k-means on the standardised rows and on X. They are fitted to one half of a sample and
        ranked on the other half, by the bound without `reg` and by the valley of the density at
        the cut. "k-means" is k-means on X, as in the paper. An array contains the labels to start
        from, for two clusters. A fitted clusterer of the same columns starts from the clusters
        that it predicts (one more start for n_clusters > 2), and clusters that match keep its
        numbers.
    n_init : int, optional
        Number of directions compared by init="auto", or of restarts of k-means with
        init="k-means". If None, 16; with mode="paper" 1, as in the paper.
    kernel : str or callable, default="linear"
        "linear", the name of a scikit-learn kernel, a function of two matrices, or "precomputed".
        Other kernels than "linear" are exact up to 1000 rows (and if precomputed), and
        approximated by 100 landmarks beyond.
    gamma : float, str or None, default="scale"
        Kernel coefficient: a number, a rule or a multiple of one ("scale" is 1 / (n_features *
        variance of X), "rms", "4*scale"), or None for scikit-learn's default.
    {degree}
    {coef0}
    {kernel_params}
    scan : {"auto", "exact", "histogram"}, default="auto"
        How solver="gep" finds the best cut along a direction: "exact" tries the cuts between all
        rows, "histogram" the edges of 1024 bins, without sorting. "auto" is "exact" for rows in
        memory and "histogram" for dask collections, the only choice for those.
    min_cluster_size : int, float or array of shape (n_clusters,), optional
        Minimum cluster size: a count, a fraction of all rows, or one value per cluster. If None,
        the fraction 0.04 / n_clusters (and 0.02 of the part in each split), because a few outlying
        rows could otherwise be the best separated cluster; clusters with labelled rows (see `fit`)
        have no minimum then. If None and mode="paper", 1 row.
    {max_cluster_size}
    max_iter : int, optional
        Maximum number of iterations. If None, 100; with mode="paper" there is no limit.
    tol : float, optional
        The fit stops once an iteration moves at most this share of the rows to another cluster;
        0 means none. If None, 1e-3; with mode="paper" 0.
    mode : {"default", "paper"}, default="default"
        "paper" runs the algorithms of the paper's Table 1 as printed. "mpm" and "gep" start from
        k-means on X (also with init="auto") and alternate until no row changes clusters; "eig"
        takes the sign of XX'q, and not of q as the default does. `n_init`, `max_iter`, `tol` and
        `min_cluster_size` have the paper's values if None. The paper chose lambda by the true
        labels from 1e-4, 1e-3, ..., 1e4; `reg` is 1, the middle value, if None. See Notes.
    random_state : int, RandomState or None, default=None
        Random seed of starts, samples and landmarks.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row, numbered by size: 0 is the largest. If `fit` was given labels
        of rows, the name of the cluster (see `classes_`).
    {classes_}
    {broken_links_}
    tree_ : SplitTree
        The splits, for more than two clusters. Not set if `fit` was given labels or links.
        Rows may have moved after the splits (see `labels_`).
    coef_ : ndarray of shape (1, n_features) or (n_clusters, n_features)
        Direction, scaled so that the means of the clusters are 1 apart; with more than two
        clusters their discriminants. Only for kernel="linear". Not set for more than two
        clusters if the result is the tree itself (see `result_`).
    intercept_ : ndarray of shape (1,) or (n_clusters,)
        Offset; rows with ``X @ coef_[0] + intercept_[0] > 0`` are in cluster 1.
    msp_ : float
        Minimum separation probability of the labels, regularised: p of eq. 3 at the best w for
        them. For two clusters only, like the next two.
    msp_lower_bound_ : float
        Lower bound on `msp_` by Theorem 2. Prefer it to `msp_` for comparing labellings.
    side_probability_ : ndarray of shape (2,)
        For each cluster, the worst-case probability of its side of the hyperplane over all
        distributions with its mean and covariance (Chebyshev's bound along `coef_`, not
        regularised). It describes the clusters that were found, not the true groups.
    kept_variance_ : float
        Share of the variance of the standardised features in the search, usually 1 (see Notes).
    min_cluster_weight_ : float
        Minimum weight of a cluster. NaN if clusters were found by repeated splits and
        `min_cluster_size` is None: each split has its own minimum.
    gamma_ : float or None
        Kernel coefficient, None for kernels without one. Not set for one cluster.
    reg_ : float
        The `reg` that was used; for more than two clusters, that of the discriminants.
    status_ : Status
        How the solver ended.
    objective_ : float
        Minimised objective: minus the bound on kappa^2 ("gep"), minus p ("mpm"), or minus the
        leading eigenvalue ("eig"). With more than two clusters, minus their separation
        :math:`tr((R + \lambda I)^{-1} B)`.
    result_ : SeparationResult, MultiwaySeparationResult or RecursiveResult
        The certified result. It is that of the tree itself if fewer than three clusters are
        found, or if discriminants would make a cluster too small in their first step.
    n_iter_ : int
        Number of iterations.
    n_features_in_ : int
        Number of features.
    {previous_clusters_}
    n_samples_seen_ : int
        Number of rows in all batches. Only after `partial_fit`.
    batch_moments_ : BatchMoments
        Weights, means and second moments of these rows. Only after `partial_fit`.

    Notes
    -----
    `decision_function` is the signed distance to the hyperplane in units of the distance between
    the means of the clusters. With more than two clusters it returns the discriminants.

    *More than two clusters.* The part whose split separates held-out rows best is split next (see
    `tree_`). Then all clusters compete for all rows by the linear discriminants :math:`\mu_j' (S +
    \lambda\Lambda)^{-1} (x - \mu_j / 2)`, S the covariance within clusters, until the labels
    converge. With init="auto" they also start from k-means, and the
    better separated clusters are kept (as measured by `volmar.metrics.separation_score`, but with
    one covariance within all clusters). Parts of more than 20,000 rows are split on a sample of
    20,000, which is the same for rows in memory and for dask. The discriminants converge on 20,000
    rows before they continue on all rows.

    With init="auto" and 20,000 dense rows or more, a sample is clustered first: 5 % of the rows
    (up to 8 million values), at least 4,000. Then all rows alternate until `tol` is reached.

    Probabilities are estimated from the same rows as the split and are therefore optimistic. Use
    `volmar.metrics.separation_score` with ``cross_fit=True`` for an estimate on held-out rows.

    *Labels and links.* If `fit` is given labels of some rows or links between rows, clusters are
    first found without them, as `solver`, `scan` and `mode` specify. The start is
    these clusters, or the given labels spread over a graph of neighbours if those predict held-out
    labels better. The hyperplane of two clusters, or the discriminants of more, and the labels are
    then updated in turn as usual, but only allowed labels are used, and `reg_` is fixed. There is
    only one step if that predicts more held-out labels. With dask, `fit` accepts labels (10,000 of
    them in a first sample) but no links.

    *EIG.* The relaxed labels of Theorem 3 are the leading left singular vector q of the
    standardised rows, for every `reg`. The default takes the sign of q, to which Xw* is
    proportional; mode="paper" takes that of "the predict vector" XX'q, as printed.

    *Deviations from the paper.* MSPC-MPM stops before a step that would empty a cluster
    (`status_` DEGENERATE), and if labels recur (CYCLE): its sign step is not an ascent. Rows of
    equal projection stay together. Constant features are ignored.

    *More features than rows.* Directions lie in the span of the standardised rows. With d > n the
    fit uses their Gram matrix, in O(n² d + n³) and without a d × d matrix, with the same result.
    With more than 2000 such rows (500 if sparse), or if a d × d matrix does not fit in memory, the
    search is limited to the 100 leading principal directions. `kept_variance_` is their share of
    the variance, and a warning is given if the next directions are more than noise. mode="paper"
    always searches the whole span.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar import MSPC
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 10)) * 10.0 ** np.arange(-4, 6)
    >>> X[:150, 2] += 0.06                     # one feature of ten is bimodal
    >>> labels = MSPC(random_state=0).fit(X).labels_
    >>> bool((labels[:150] == labels[0]).mean() > 0.95)
    True
    """

    _multiway = "recursive"
    _postpones = True
    _hurdle: float = 0.0
    _cluster_floor: float = 0.0
    _n_halves: int = 2
    _takes_blocks = True
    _has_first_step = True
    _may_be_nan = ("min_cluster_weight_",)
    # The paper's Table 1: one run of k-means, and steps "until converge" (a finite number).
    _mode_defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"n_init": 16, "max_iter": 100, "tol": 1e-3},
        "paper": {"n_init": 1, "max_iter": 2**31 - 1, "tol": 0.0},
    }

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        solver: str = "gep",
        reg: float | None = None,
        init: Any = "auto",
        n_init: int | None = None,
        kernel: str | Callable[..., Any] = "linear",
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        scan: str = "auto",
        min_cluster_size: float | ArrayLike | None = None,
        max_cluster_size: float | ArrayLike | None = None,
        max_iter: int | None = None,
        tol: float | None = None,
        mode: str = "default",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.solver = solver
        self.reg = reg
        self.init = init
        self.n_init = n_init
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.scan = scan
        self.min_cluster_size = min_cluster_size
        self.max_cluster_size = max_cluster_size
        self.max_iter = max_iter
        self.tol = tol
        self.mode = mode
        self.random_state = random_state

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
        check_choice("solver", self.solver, ["gep", "mpm", "eig"])
        check_choice("mode", self.mode, ["default", "paper"])
        check_choice("scan", self.scan, ["auto", "exact", "histogram"])
        if self.reg is not None:
            check_reg(self.reg)
        self._check_kernel()
        for name in ("n_init", "max_iter"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if self.tol is not None:
            check_number("tol", self.tol, low=0.0, high=1.0)
        if isinstance(self.init, str):
            check_choice("init", self.init, ["auto", "k-means"])
        if self.min_cluster_size is not None and np.ndim(self.min_cluster_size) == 0:
            check_cluster_size(self.min_cluster_size)

    @property
    def _keeps_minimum(self) -> bool:
        return True

    def _n_starts(self) -> int:
        return 1  # a run compares its own starts

    def _solver(self) -> TwoWaySolver:
        return TwoWaySolver(**{one.name: self._value_of(one.name) for one in fields(TwoWaySolver)})

    def _minimum_share(self, n: int, k: int) -> float:
        size: Any = self.min_cluster_size
        if size is None or np.ndim(size) > 0:  # the guide handles one limit per cluster
            # Default minimum size of a cluster, as a share of the mean cluster size.
            return 1.0 / n if self.mode == "paper" else 0.04 / k
        share = float(size) / n if isinstance(size, Integral) else float(size)
        if share * k > 1.0:
            raise ValueError(
                f"min_cluster_size={size} is too large for {k} clusters of {n} rows. "
                f"Lower it to at most {n // k}."
            )
        return share

    def _of_previous(self, model: Any) -> dict[str, Any]:
        is_same = isinstance(model, MSPC) and hasattr(model, "reg_")
        return {"reg": model.reg_} if is_same and self.reg is None else {}

    # ------------------------------------------------------------------ two clusters

    def _problem(
        self,
        X: Any,
        weights: Any,
        k: int | None = None,
        *,
        n_rows: int | None = None,
        feature_map: Any = None,
    ) -> SeparationRows:
        solver = self._solver()
        if k is None:
            solver.check_rows(X)
        if not self._is_linear():
            feature_map = feature_map or self._feature_map(X, weights)
            X = features_of(feature_map, X)
            if is_in_memory(X):
                check_features(X)
        self.gamma_ = None if feature_map is None else feature_map.gamma
        rows = as_rows(X, sample_weight=weights)
        scaling = exactly_standardized if self.mode == "paper" else standardized
        scaling = scaling if feature_map is None else evenly_scaled
        share = self._minimum_share(n_rows or X.shape[0], k or int(self.n_clusters))
        min_weight = share * rows.total_weight
        return SeparationRows(X, rows, scaling, solver.usual_reg, feature_map, min_weight)

    def _ask_first(self, rows: RowSource) -> None:
        if self._is_linear():
            centered_with_moments(rows)
        else:
            rows.mean()

    def _run(self, rows: SeparationRows, seed: int) -> Any:
        if self._guide is not None:
            momentum = 0.0 if self.mode == "paper" else 1.0
            steps = self._solver().steps | ({"max_iter": 1} if self._ends_first else {})
            found = guided_clusters(rows, self._guide, self.init, momentum=momentum, **steps)
            return replace(found, status=Status.CONVERGED) if self._ends_first else found
        return self._solver().solve(rows, seed, hurdle=self._hurdle, n_halves=self._n_halves)

    def _finish(self, rows: SeparationRows, result: Any, weights: Any) -> None:
        if isinstance(result, MultiwaySeparationResult):
            super()._finish(rows, result, weights)
            return
        z, labels = rows.z, result.labels.astype(bool)
        n_second, order, sides = z.rows.in_one_pass(
            lambda: (int(labels.sum()), self._order(labels, weights), rows.sides(labels))
        )
        if n_second in (0, labels.size):
            raise ValueError(
                "no hyperplane was found that leaves enough rows on both sides (a weight of "
                f"{rows.min_weight:.3g}). Use a smaller min_cluster_size, or check that the rows "
                "differ."
            )
        result = result.renumbered(order)
        self._set_result(result)
        self._publish_sides(rows, result, sides if order[0] == 1 else sides[::-1])

    def _publish_sides(
        self, rows: SeparationRows, result: Any, sides: tuple[Moments, Moments]
    ) -> None:
        z = rows.z
        found = describe_split(z, rows.with_reg(result.reg), result, sides)
        unit, self.side_probability_, self.msp_, self.msp_lower_bound_ = found
        self._state_loss(z)
        self.reg_ = result.reg
        self.min_cluster_weight_ = rows.min_weight
        self._planes = planes_of(rows, result.w, result.threshold, unit=unit)
        if rows.feature_map is None:
            coefficients = self._planes.coefficients / unit
            self.coef_ = coefficients[None, :]
            offset = coefficients @ z.mean + result.threshold / unit
            self.intercept_ = np.array([-offset])

    # ------------------------------------------------------------------ fitted

    def _status_words(self, result: Any) -> str:
        is_joint = isinstance(result, MultiwaySeparationResult)
        if not is_joint or result.status is not Status.DEGENERATE:
            return super()._status_words(result)
        given = "" if self.min_cluster_size is None else f"={self.min_cluster_size}"
        what = f"the next step would make a cluster smaller than min_cluster_size{given}"
        remedy = "Use a smaller min_cluster_size or n_clusters"
        return f"{what}. The labels before that step are kept. {remedy}"

    def _publish(
        self, rows: SeparationRows, result: MultiwaySeparationResult, reg: float | None = None
    ) -> None:
        self._state_loss(rows.z)
        self.reg_ = rows.reg if reg is None else reg
        self.min_cluster_weight_ = rows.min_weight
        self._planes = planes_of(rows, result.directions, -result.offsets)
        if rows.feature_map is None:
            self.coef_ = np.ascontiguousarray(self._planes.coefficients.T)
            self.intercept_ = result.offsets - self.coef_ @ rows.z.mean

    def _state_loss(self, z: Standardized) -> None:
        """Set `kept_variance_`, and warn if directions left out are more than noise."""
        self.kept_variance_ = z.kept_variance
        if isinstance(z, RowSpace) and z.leaves_structure:
            warn_user(
                f"the search was limited to {z.lift.shape[1]} principal directions with "
                f"{z.kept_variance:.0%} of the variance of {z.kept.size} standardised features. "
                "The next directions are more than noise. If they may matter, reduce the "
                "features first, e.g. with sklearn.decomposition.TruncatedSVD(300)."
            )

    def _scores(self, X: Any) -> NDArray:
        return self._planes(X)

    def _predicted(self, X: Any) -> NDArray[np.int64]:
        """Return the clusters of rows in memory, with the scores of one tile of rows at a time."""
        check_is_fitted(self, "result_")
        if not isinstance(self.result_, MultiwaySeparationResult):
            return super()._predicted(X)
        rows = self._validate(X, reset=False)
        labels = np.empty(rows.shape[0], dtype=np.int64)
        for start in range(0, rows.shape[0], TILE_ROWS):
            tile = slice(start, start + TILE_ROWS)
            labels[tile] = np.argmax(self._finite_scores(rows[tile]), axis=1)
        return labels

    # ------------------------------------------------------------------ more than two clusters

    def _fit_tree(self, X: Any, weights: Any, steps: Iterable[int]) -> GrownTree:
        """Split repeatedly; then let all clusters compete for all rows.

        With many rows, clusters are refined on a sample first, and then on all rows.
        """
        n = X.shape[0]
        self.min_cluster_weight_ = self._minimum_in_tree(n, weights)
        self._cluster_floor = self._smallest_leaf(n, weights)
        grown = super()._fit_tree(X, weights, steps)
        del self._cluster_floor
        k, sample = self.tree_.n_leaves, grown.sample
        if len(self.tree_.leaves()) == 2:
            if not sample.is_whole and hasattr(self.tree_.root.model, "coef_"):
                self._refit_root(X, weights)
            for name in OF_A_SPLIT:
                if hasattr(self.tree_.root.model, name):
                    setattr(self, name, getattr(self.tree_.root.model, name))
        if k <= 2:
            return grown
        rows = self._problem(sample.X, sample.weights, k, n_rows=n)
        reg = min(node.model.reg_ for node in self.tree_.splits())
        starts, solver, seed = [grown.sample_labels()], self._solver(), None
        if k == self.n_clusters and solver.races and not self._is_pairwise():
            seed = check_random_state(self.random_state).randint(2**31 - 1)
            starts += k_means_starts(rows, k, seed)
        if self._previous is not None:
            old = self._previous.labels[sample.numbers]
            starts += [old] if np.array_equal(np.unique(old), np.arange(k)) else []
        found = refine_leaves(rows, reg, starts, k, seed=seed, **solver.steps)
        if found is None:
            return grown
        best = found.result
        if sample.is_whole:
            order = self._cluster_order(best.labels, sample.weights, k)
            counts = np.bincount(best.labels, minlength=k)
        else:
            everything = self._problem(X, weights, k, feature_map=rows.feature_map)
            best, sums = refine_on_all(rows, everything, reg, found, **solver.steps)
            rows, counts = everything, sums.n_rows
            order = order_by_size(sums.weight, sums.first)
            if self._previous is not None:
                order = self._cluster_order(best.labels, weights, k)
        self.tree_.relabel(np.argsort(order))
        best = best.renumbered(order)
        self._publish(rows, best, reg)
        if sample.is_whole and not is_in_memory(X):
            labels = of_rows(X, LargestDiscriminant(self._planes), np.int64)
            best = replace(best, labels=labels)
        self._set_result(best)
        self.tree_.sizes = tuple(counts[order].tolist())
        return grown

    def _guided_params(self, free: Any) -> dict[str, Any]:
        """Return the smallest regularisation of the model without guidance and of its splits."""
        models = [node.model for node in free.tree_.splits()] if hasattr(free, "tree_") else []
        regs = [model.reg_ for model in [free, *models] if hasattr(model, "reg_")]
        return {"reg": min(regs)} if regs else {}

    def _fit_seeded_blocks(self, X: Any, weights: Any, seeds: Seeds, /) -> None:
        """Fit a sample with known labels, and continue from there with all rows."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        names, numbers = seeds
        rows_of_sample, own, known = seeded_sample(X, weights, numbers, names.size, seed)
        few = silent_clone(self).set_params(random_state=seed)
        few.n_features_in_ = X.shape[1]
        guide = Guide(0, known, weights=own)
        once = few._fit_guided(rows_of_sample, own, names, guide)
        classes = few.classes_
        if classes.size < 2:
            self._take_over(few)
            rows = as_rows(X)
            self._set_result(replace(few.result_, labels=constant_vector(rows, 0, np.int64)))
            labels = constant_vector(rows, classes[0], classes.dtype)
        else:
            model = silent_clone(self).set_params(n_clusters=classes.size, reg=few.reg_)
            model.n_features_in_ = X.shape[1]
            model._guide = replace(guide, k=classes.size)  # keeps the numbers of the clusters
            planes, result = few._planes, few.result_
            rows = model._problem(X, weights, classes.size, feature_map=planes.feature_map)
            momentum, steps = 0.0 if self.mode == "paper" else 1.0, self._solver().steps
            steps |= {"max_iter": 0} if once else {}
            one = seeded_clusters(rows, numbers, planes, result, momentum=momentum, **steps)
            model._finish(rows, one, weights)
            self._take_over(model)
            labels = one.labels.astype(np.int64).choose(classes)
        self.classes_ = classes
        self.labels_ = lazy_vector(labels)

    def _refit_root(self, X: Any, weights: Any) -> None:
        """Fit the only split of a tree to all rows, starting from the split of a sample."""
        root, solver = self.tree_.root, self._solver()
        sampled, planes = root.model, root.model._planes
        model = silent_clone(self).set_params(n_clusters=2, random_state=sampled.random_state)
        self._hand_on(model).n_features_in_ = X.shape[1]
        rows = model._problem(X, weights, 2, feature_map=planes.feature_map)
        z = rows.z
        w = z.direction(planes.coefficients)
        cut = float(planes.threshold + planes.coefficients @ (planes.mean - z.mean))
        if sampled.result_.history:
            result = solver.solve_from(rows, w, cut, sampled.reg_)
        else:
            result = replace(sampled.result_, labels=z.scores(w) > cut, w=w, threshold=cut)
        second = result.labels.astype(bool)
        n_second, weight = in_one_pass(
            lambda: (
                int(second.sum()),
                float((second if weights is None else weights * second).sum()),
            ),
            second,
        )
        model._finish(rows, result, weights)
        sizes = [(root.n_rows - n_second, root.weight - weight), (n_second, weight)]
        is_turned = float(model.result_.w @ result.w) < 0
        for label, (node, size) in enumerate(
            zip(root.children, sizes[::-1] if is_turned else sizes, strict=True)
        ):
            node.label, (node.n_rows, node.weight) = label, size
        labels = model.labels_
        vars(model).pop("_previous", None)
        root.model = model if is_in_memory(X) else without_vectors(model)
        self._set_result(replace(self.result_, labels=labels))
        self.tree_.sizes = tuple(node.n_rows for node in root.children)

    def _minimum_in_tree(self, n: int, weights: NDArray | None) -> float:
        """Return the minimum weight of a cluster; NaN without a single `min_cluster_size`."""
        self._minimum_share(n, self.n_clusters)  # raises an error if no labels could meet it
        size: Any = self.min_cluster_size
        if size is None or np.ndim(size) > 0:
            return float("nan")
        count = int(size) if isinstance(size, Integral) else int(np.ceil(float(size) * n))
        return float(count) if weights is None else count / n * float(weights.sum())

    def _smallest_leaf(self, n: int, weights: Any) -> float:
        """Return the minimum weight of a leaf.

        If `min_cluster_size` is None, each split has its own minimum, a share of its part. With
        many clusters some would then be single rows of small parts.
        """
        if self.min_cluster_size is not None or self._solver().mode == "paper":
            return 0.0
        total = float(n if weights is None else weights.sum())
        return self._minimum_share(n, self.n_clusters) * total

    def _minimum_in_part(self, part: PartRows) -> float | None:
        if np.isnan(self.min_cluster_weight_):
            share = self._cluster_floor / part.weight
            if share > 0.5:
                raise ValueError(
                    f"a part of {part.X.shape[0]} rows is too small for two clusters of at least "
                    f"{self._cluster_floor:.3g} rows each. Lower min_cluster_size or n_clusters."
                )
            own = self._minimum_share(part.X.shape[0], 2)
            return share if share > own else None
        share = self.min_cluster_weight_ / part.weight
        if share > 0.5:
            raise ValueError(
                f"min_cluster_size={self.min_cluster_size!r} is more than half of the weight of "
                f"a part of {part.X.shape[0]} rows. Lower min_cluster_size."
            )
        return share

    def _fit_part(self, part: PartRows, **params: Any) -> Any:
        return super()._fit_part(part, min_cluster_size=self._minimum_in_part(part), **params)

    def _of_part(self, part: PartRows) -> dict[str, Any]:
        """With many clusters, splits are one of several starts: races use one half only."""
        is_one_start = {"_n_halves": 1} if self.n_clusters >= MANY_CLUSTERS else {}
        return super()._of_part(part) | is_one_start

    def _split_probability(self, model: Any, X: Any, weights: NDArray | None) -> float:
        """Return the held-out bound of the race, or else cross-fit two halves of the rows."""
        raced = float(model.result_.held_out_bound)
        if np.isfinite(raced):
            return raced
        if X.shape[0] > CROSS_FIT_ROWS and not self._is_pairwise():
            rng = np.random.default_rng(int(model.random_state))
            chosen = drawn_rows(X.shape[0], weights, CROSS_FIT_ROWS, rng)
            X, weights = X[chosen], None if weights is None else weights[chosen]
        return cross_fit_probability(
            X,
            weights,
            model._problem,
            model._solver(),
            int(model.random_state),
            pairwise=self._is_pairwise(),
        )

    def _split_worth(self, model: Any, probability: float) -> float:
        """Return the held-out score: parts with a valley are split before parts without one."""
        score = getattr(model.result_, "held_out_score", np.nan)
        return float(score) if np.isfinite(score) else probability

    # ------------------------------------------------------------------ batches of rows

    @one_thread()
    @explain_memory
    def partial_fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Update the clusters with a batch of rows.

        The first batch is clustered by `fit`. A model that was fitted by `fit` starts again with a
        warning, because its rows were not kept. Each later batch is assigned to clusters by the
        current discriminants. Its moments are added to those of the earlier batches: weight, mean
        and second moments of all rows, and weight and mean of each cluster. The discriminants are
        then computed again from the sums. For two clusters they are the hyperplane of MSPC-GEP for
        these moments, cut midway between the means. Rows are not kept.

        A batch of n rows costs O(n d²) and an update of k clusters O(d³ + k d²), independent of
        the number of earlier rows. Earlier rows are not reassigned, so the result depends on the
        order of the batches. The first batch should have a few hundred rows from all clusters.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Batch of rows in memory, dense or CSR. Later batches may have a single row.
        y : array of shape (n_samples,), optional
            Ignored if all labels are known, as in `fit`. Labels of some rows are refused, because
            only `fit` can use them.
        sample_weight : array of shape (n_samples,), optional
            Weight of each row; weight 2 is the same as a duplicated row.

        Returns
        -------
        self
            `labels_` and `result_` refer to the last batch, `n_samples_seen_` to all batches.
            Cluster numbers do not change, even if the order of the sizes does. `tree_` describes
            the first batch and is removed with the second. `min_cluster_size` applies to the
            first batch only.

        Examples
        --------
        >>> from volmar import MSPC
        >>> from volmar.datasets import make_blobs
        >>> X, _ = make_blobs(900, centers=3, random_state=0)
        >>> model = MSPC(3, random_state=0)
        >>> for batch in (X[:300], X[300:600], X[600:]):
        ...     model = model.partial_fit(batch)
        >>> model.n_samples_seen_, model.labels_.shape, model.coef_.shape[0]
        (900, (300,), 3)
        """
        self._check_batches(X)
        if y is not None and np.ndim(X) == 2 and check_seeds(y, np.shape(X)[0]) is not None:
            raise ValueError(
                "y holds labels of some rows, which partial_fit cannot use. Use fit with y, or "
                "leave y out."
            )
        if hasattr(self, "batch_moments_"):
            self._add_batch(X, sample_weight)
            return self
        if hasattr(self, "result_"):
            warn_user(
                "this model was fitted by fit, which keeps no moments. partial_fit starts again "
                "with this batch. Use partial_fit from the first batch on, or "
                "MSPC(..., init=model).partial_fit(X) to start from the clusters of a model."
            )
        self.fit(X, sample_weight=sample_weight)
        try:
            self._begin(X, sample_weight)
        except BaseException:
            forget(self)
            raise
        return self

    def _check_batches(self, X: Any) -> None:
        if is_dask(X):
            refuse_blocks("MSPC.partial_fit", "a batch must be in memory; use fit for all blocks")
        if not isinstance(self.n_clusters, Integral) or int(self.n_clusters) < 2:
            raise ValueError(
                f"n_clusters={shown(self.n_clusters)} must be an integer of at least 2 for "
                "partial_fit. Find it with volmar.AutoClusterer on a sample."
            )
        for name, needed in NEEDED.items():
            if getattr(self, name) != needed:
                raise ValueError(
                    f"partial_fit does not support {name}={shown(getattr(self, name))}, because "
                    f"it keeps only moments of rows. Use {name}={needed!r}, or fit."
                )

    def _begin(self, X: Any, sample_weight: Any) -> None:
        """Keep the moments of the first batch."""
        k, rows = int(self.n_clusters), self._validate(X, reset=False)
        d = rows.shape[1]
        require_memory(
            (4.0 if k > 2 else 6.0) * 8 * d**2,
            f"the second moments of {d} columns",
            "Reduce the columns first, e.g. with sklearn.decomposition.TruncatedSVD(100).",
        )
        weights = check_sample_weight(sample_weight, rows.shape[0])
        with quiet():
            source = as_rows(rows, sample_weight=weights)
            moments = BatchMoments.of_rows(source, self.labels_, k)
        if not moments.weight.min() > 0:
            found = int(np.count_nonzero(moments.weight))
            raise ValueError(
                f"the first batch of {rows.shape[0]} rows has only {found} of n_clusters={k} "
                "clusters. Start with a larger batch, or lower n_clusters."
            )
        if not hasattr(self, "reg_"):  # the result is the tree itself
            found_regs = [node.model.reg_ for node in self.tree_.splits()]
            self.reg_ = min(found_regs, default=self._solver().usual_reg)
        self.batch_moments_, self.n_samples_seen_ = moments, moments.n_rows

    def _add_batch(self, X: Any, sample_weight: Any) -> None:
        """Add a batch; the model is unchanged if that fails."""
        before = self.batch_moments_
        k = before.weight.size
        if int(self.n_clusters) != k:
            raise ValueError(
                f"n_clusters={self.n_clusters} differs from the {k} clusters of earlier batches. "
                f"Set n_clusters={k}, or start with a clone of the model."
            )
        rows = self._validate(X, reset=False)
        weights = check_sample_weight(sample_weight, rows.shape[0])
        with quiet():
            labels = self._predicted(X)
            source = as_rows(rows, sample_weight=weights)
            moments = before.joined(BatchMoments.of_rows(source, labels, k))
            new = object.__new__(type(self))
            vars(new).update(vars(self))
            vars(new).pop("tree_", None)
            new._set_moments(moments)
            # The clusters of the updated model are those that `predict` gives.
            after = new._predicted(X)
        moved = float(np.count_nonzero(after != labels)) / labels.size
        status = Status.CONVERGED if moved <= self._value_of("tol") else Status.MAX_ITER
        new._set_result(
            replace(new.result_, labels=after, residuals={"moves": moved}, status=status)
        )
        check_fitted_values(new, rows)
        vars(self).pop("tree_", None)
        vars(self).update(vars(new))

    def _set_moments(self, moments: BatchMoments) -> None:
        """Update the fitted attributes from moments."""
        z, reg = moments.standardized(), float(self.reg_)
        rows: Any = SeparationRows(None, z.rows, standardized, reg, None, self.min_cluster_weight_)
        rows.z = z
        if moments.weight.size == 2:
            result = hyperplane_from_moments(moments, z, reg)
            self.result_ = result
            self._publish_sides(rows, result, moments.sides(z))
        else:
            self.result_ = clusters_from_moments(moments, z, reg)
            self._publish(rows, self.result_, reg)
        self.batch_moments_, self.n_samples_seen_ = moments, moments.n_rows
