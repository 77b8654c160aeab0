"""MSPC: maximin separation probability clustering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmar._warn import warn_user
from volmar.base.blocks import refuse_blocks
from volmar.base.guided import GuidedMixin
from volmar.base.validation import check_choice, check_cluster_size, check_count, check_number
from volmar.rows import (
    Moments,
    RowSource,
    RowSpace,
    Standardized,
    as_rows,
    centered_with_moments,
    evenly_scaled,
    exactly_standardized,
    features_of,
    is_in_memory,
    standardized,
)
from volmar.separation.gep import check_reg
from volmar.separation.guided import guided_clusters
from volmar.separation.partial_fit import BatchSeparation
from volmar.separation.polish import check_polish, polished
from volmar.separation.problem import SeparationRows, check_features, planes_of
from volmar.separation.relabelling import MultiwaySeparationResult
from volmar.separation.two_way import TwoWaySolver, describe_split
from volmar.solvers import Status

# Default minimum size of a cluster, as a share of the mean cluster size.
DEFAULT_SHARE = 0.04


class MSPC(GuidedMixin, BatchSeparation):
    r"""Maximin separation probability clustering (Huang et al., AAAI 2015).

    Finds the hyperplane that separates two clusters with the highest worst-case probability p,
    over all distributions with the means and covariances of the clusters (MSPC eq. 3):

    .. math:: \max_{w, y} \kappa = \frac{|w'(\mu_1 - \mu_2)|}
              {\sqrt{w'(\Sigma_1 + \lambda\Lambda)w} + \sqrt{w'(\Sigma_2 + \lambda\Lambda)w}},
              \qquad p = \frac{\kappa^2}{1 + \kappa^2}

    with :math:`\Lambda = diag(\Sigma)`, so that the scales of the features do not matter. More
    than two clusters are found by repeated splits, or from pairs of clusters (see `multiway`).

    Parameters
    ----------
    n_clusters : int or "auto", default=2
        Number of clusters. With "auto", a part is split only if held-out rows confirm that it has
        more than one group; pure noise stays a single cluster with probability at least 1 -
        `alpha` (see `volmar.evidence.split_test` and the `p_value` of splits in `tree_`). Parts
        larger than 64 MB (a million rows of 8 columns) are split on a sample of that size.
    multiway : {"recursive", "pairwise"}, default="recursive"
        Method for more than two clusters. "recursive": the part whose split separates held-out
        rows best is split next (see `tree_`). Then all clusters compete for all rows by the linear
        discriminants :math:`\mu_j' (S + \lambda\Lambda)^{-1} (x - \mu_j / 2)`, S the covariance
        within clusters, until the labels converge. With a given number of clusters and init="auto"
        they also start from k-means, and the better separated clusters are kept (as measured by
        `volmar.metrics.separation_score`, but with one covariance within all clusters). Parts of
        more than 20,000 rows are split on a sample of 20,000, which is the same for rows in memory
        and for dask. The discriminants converge on 20,000 rows before they continue on all rows.
        "pairwise" starts from k-means or given labels and fits a minimax probability machine to
        each pair of clusters. A row joins the cluster whose smallest score against another cluster
        is largest.
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
        from, for two clusters or multiway="pairwise". A fitted clusterer of the same columns
        starts from the clusters that it predicts (one more start for n_clusters > 2), and clusters
        that match keep its numbers.
    n_init : int, optional
        Number of directions compared by init="auto", or of restarts of k-means with
        init="k-means" or multiway="pairwise". If None, 16; with mode="paper" 1, as in the paper.
    kernel : str or callable, default="linear"
        "linear", the name of a scikit-learn kernel, a function of two matrices, or "precomputed".
        Other kernels than "linear" are exact up to 1000 rows (and if precomputed), and
        approximated by 100 landmarks beyond.
    gamma : float, str or None, default="scale"
        Kernel coefficient: a number, a rule or a multiple of one ("scale" is 1 / (n_features *
        variance of X), "rms", "4*scale"), or None for scikit-learn's default.
    degree : float, default=3
        Degree of the polynomial kernel, at least 1.
    coef0 : float, default=1
        Constant of the polynomial and sigmoid kernels.
    kernel_params : dict, optional
        Keyword arguments of a callable kernel.
    scan : {"auto", "exact", "histogram"}, default="auto"
        How solver="gep" finds the best cut along a direction: "exact" tries the cuts between all
        rows, "histogram" the edges of 1024 bins, without sorting. "auto" is "exact" for rows in
        memory and "histogram" for dask collections, the only choice for those.
    min_cluster_size : int, float or array of shape (n_clusters,), optional
        Minimum cluster size: a count, a fraction of all rows, or one value per cluster. If None,
        the fraction 0.04 / n_clusters (and 0.02 of the part in each split), because a few outlying
        rows could otherwise be the best separated cluster; clusters with labelled rows (see `fit`)
        have no minimum then. If None and mode="paper", 1 row.
    max_cluster_size : int, float or array of shape (n_clusters,), optional
        Maximum cluster size: a count, a fraction of the rows' weight, or one value per cluster.
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
    polish : {None, "density"}, default=None
        "density": if held-out rows show a gap along the direction of two clusters, the hyperplane
        moves to the nearby minimum of the density, provided that the valley is deeper there
        (`volmar.MinimumDensityHyperplane`). With more than two clusters each split is polished.
    alpha : float, default=0.05
        Significance level of n_clusters="auto": the probability of one or more false
        splits. Between 0.001 and 0.5; tests take longer for small values.
    max_clusters : int, optional
        Maximum number of clusters for n_clusters="auto". The strongest splits are made first, and
        a warning is issued if the limit prevents further ones. If None, there is no limit.
    random_state : int, RandomState or None, default=None
        Random seed of starts, samples and landmarks.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row, numbered by size: 0 is the largest. If `fit` was given labels
        of rows, the name of the cluster (see `classes_`).
    classes_ : ndarray of shape (n_clusters,)
        Names of the clusters. Only if `fit` was given labels of rows.
    broken_links_ : ndarray of shape (n_pairs, 2)
        Pairs of `cannot_link` that share a cluster. Only if `fit` was given such pairs.
    tree_ : SplitTree
        The splits, for more than two clusters or "auto" with multiway="recursive". Not set if
        `fit` was given labels or links. Rows may have moved after the splits (see `labels_`).
    coef_ : ndarray of shape (1, n_features) or (n_clusters, n_features)
        Direction, scaled so that the means of the clusters are 1 apart; with more than two
        clusters their discriminants. Only for kernel="linear". Not set for multiway="pairwise",
        nor for more than two clusters if the result is the tree itself (see `result_`).
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
    polished_ : bool
        Whether `polish` moved the hyperplane.
    kept_variance_ : float
        Share of the variance of the standardised features in the search, usually 1 (see Notes).
    min_cluster_weight_ : float
        Minimum weight of a cluster. NaN if clusters were found by repeated splits and
        `min_cluster_size` is None: each split has its own minimum.
    gamma_ : float or None
        Kernel coefficient, None for kernels without one. Not set for one cluster.
    reg_ : float
        The `reg` that was used; for more than two clusters, that of the discriminants or machines.
    status_ : Status
        How the solver ended.
    objective_ : float
        Minimised objective: minus the bound on kappa^2 ("gep"), minus p ("mpm"), or minus the
        leading eigenvalue ("eig"). With more than two clusters, minus their separation
        :math:`tr((R + \lambda I)^{-1} B)`, or minus the mean p of all pairs ("pairwise").
    result_ : SeparationResult, MultiwaySeparationResult or RecursiveResult
        The certified result. It is that of the tree itself if "auto" finds fewer than three
        clusters, or if discriminants would make a cluster too small in their first step.
    n_iter_ : int
        Number of iterations.
    n_features_in_ : int
        Number of features.
    previous_clusters_ : ndarray of shape (n_clusters,)
        If `init` is a fitted clusterer, its cluster that each cluster continues; -1 if new.
    n_samples_seen_ : int
        Number of rows in all batches. Only after `partial_fit`.
    batch_moments_ : BatchMoments
        Weights, means and second moments of these rows. Only after `partial_fit`.

    Notes
    -----
    `decision_function` is the signed distance to the hyperplane in units of the distance between
    the means of the clusters. With more than two clusters it returns the discriminants, or the
    smallest score against another cluster (multiway="pairwise").

    With init="auto" and 20,000 dense rows or more, a sample is clustered first: 5 % of the rows
    (up to 8 million values), at least 4,000. Then all rows alternate until `tol` is reached.

    Probabilities are estimated from the same rows as the split and are therefore optimistic. Use
    `volmar.metrics.separation_score` with ``cross_fit=True`` for an estimate on held-out rows.

    *Labels and links.* If `fit` is given labels of some rows or links between rows, clusters are
    first found without them, as `solver`, `multiway`, `scan` and `mode` specify. The start is
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
        n_clusters: int | str = 2,
        *,
        multiway: str = "recursive",
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
        polish: str | None = None,
        alpha: float = 0.05,
        max_clusters: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.multiway = multiway
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
        self.polish = polish
        self.alpha = alpha
        self.max_clusters = max_clusters
        self.random_state = random_state

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
        check_choice("solver", self.solver, ["gep", "mpm", "eig"])
        check_choice("multiway", self.multiway, ["recursive", "pairwise"])
        check_choice("mode", self.mode, ["default", "paper"])
        check_choice("scan", self.scan, ["auto", "exact", "histogram"])
        if self.reg is not None:
            check_reg(self.reg)
        self._check_kernel()
        check_polish(self)
        for name in ("n_init", "max_iter"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if self.tol is not None:
            check_number("tol", self.tol, low=0.0, high=1.0)
        if isinstance(self.init, str):
            check_choice("init", self.init, ["auto", "k-means"])
        if self.min_cluster_size is not None and np.ndim(self.min_cluster_size) == 0:
            check_cluster_size(self.min_cluster_size)

    def _check_blocks_parameters(self) -> None:
        if self.polish is not None:
            refuse_blocks(f"MSPC(polish={self.polish!r})", "it reads the rows many times")
        if self.multiway == "pairwise" and self.n_clusters != "auto" and self.n_clusters > 2:
            refuse_blocks(
                f"MSPC(n_clusters={self.n_clusters!r}, multiway='pairwise')",
                "it starts from k-means, which needs rows in memory",
            )

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
            return 1.0 / n if self.mode == "paper" else DEFAULT_SHARE / k
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
        if self.n_clusters > 2:
            from volmar.separation.pairwise_machines import machines_from_start

            size = self.min_cluster_size
            return machines_from_start(rows, self.n_clusters, seed, self._solver(), size)
        found = self._solver().solve(rows, seed, hurdle=self._hurdle, n_halves=self._n_halves)
        return polished(self.polish, rows, found, seed)

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
        self._state_loss(z)
        self.reg_, self.polished_ = result.reg, "gradient" in result.residuals
        self.msp_, self.msp_lower_bound_ = found.msp, found.msp_lower_bound
        self.side_probability_ = found.side_probability
        self.min_cluster_weight_ = rows.min_weight
        self._planes = planes_of(rows, result.w, result.threshold, unit=found.unit)
        if rows.feature_map is None:
            coefficients = self._planes.coefficients / found.unit
            self.coef_ = coefficients[None, :]
            offset = coefficients @ z.mean + result.threshold / found.unit
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

    def _publish(self, rows: SeparationRows, result: MultiwaySeparationResult) -> None:
        self._publish_clusters(rows, result, rows.reg)

    def _publish_clusters(
        self, rows: SeparationRows, result: MultiwaySeparationResult, reg: float
    ) -> None:
        self._state_loss(rows.z)
        self.reg_ = reg
        self.min_cluster_weight_ = rows.min_weight
        pairs = result.pairs if result.pairs.size else None
        self._planes = planes_of(rows, result.directions, -result.offsets, pairs=pairs)
        if rows.feature_map is None and pairs is None:
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
