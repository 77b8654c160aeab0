"""MSPC: maximin separation probability clustering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmar.base.blocks import refuse_blocks
from volmar.base.guided import GuidedMixin
from volmar.base.validation import check_choice, check_cluster_size, check_count, check_number
from volmar.base.views import ViewsMixin
from volmar.base.warn import warn_user
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

# Minimum size of a cluster where none is given, as a share of the mean size.
DEFAULT_SHARE = 0.04


class MSPC(ViewsMixin, GuidedMixin, BatchSeparation):
    r"""Maximin separation probability clustering (Huang et al., AAAI 2015).

    Finds the hyperplane whose two sides can be told apart with the highest probability, whatever
    their distributions are, given their means and covariances (MSPC eq. 3):

    .. math:: \max_{w, y} \kappa = \frac{|w'(\mu_1 - \mu_2)|}
              {\sqrt{w'(\Sigma_1 + \lambda\Lambda)w} + \sqrt{w'(\Sigma_2 + \lambda\Lambda)w}},
              \qquad p = \frac{\kappa^2}{1 + \kappa^2}

    with :math:`\Lambda = diag(\Sigma)`, so that the features' scales do not matter.

    Parameters
    ----------
    n_clusters : int or "auto", default=2
        Number of clusters. "auto" splits a part only where held-out rows confirm that there is
        more than one group; pure noise stays a single cluster with probability at least 1 -
        `alpha` (see `volmar.evidence.split_test` and the tree's `p_value`). Beyond 64 MB (a
        million rows of 8 columns) parts are tested and split by a sample of that size.
    multiway : {"recursive", "pairwise"}, default="recursive"
        How more than two clusters are found. "recursive": the part whose split separates best is
        split next, each split judged on held-out rows (see `tree_`); then all clusters compete for
        all rows by the linear discriminants :math:`\mu_j' (S + \lambda\Lambda)^{-1} (x - \mu_j /
        2)`, S the covariance within clusters, until the labels settle. With a given number of
        clusters and init="auto" k-means is a start as well, and the better separated clusters
        are taken (`volmar.metrics.separation_score`, with the covariance within all clusters).
        A part of more than 20,000 rows is split by as many of them, the same ones in memory and
        of a dask collection, and the discriminants settle on 20,000 rows before they do on all.
        "pairwise": from k-means or given labels, the minimax probability machines of all pairs, a
        row to the cluster whose worst rival it beats by most.
    solver : {"gep", "mpm", "eig"}, default="gep"
        "gep" maximises Theorem 2's lower bound of p, which also penalises unequal clusters, and
        never falls. "mpm" is the paper's alternation of the minimax probability machine and its
        own labels, a fixed-point iteration (started from "gep" where init="auto"). "eig" is the
        paper's relaxation, which is the first principal component of the standardised rows cut
        at its mean, for every reg.
    reg : float, optional
        Regularisation lambda, in units of the features' variances. Small values drift to
        splits of the noise; 0 needs regular covariances. Not given, it is 1, or 0.1 where
        init="auto" finds no valley with 1 and one with 0.1 (see `reg_`): groups beside each
        other in strongly correlated features. At most 1e15.
    init : {"auto", "k-means"}, array of shape (n_samples,) or fitted clusterer, default="auto"
        "auto": single features, principal and random directions, and k-means on standardised
        rows and on X as it is given. They are raced on halves of a sample, and ranked on the other
        halves by the bound without `reg` and by the valley of the density at the cut. "k-means":
        k-means on X as it is given, as in the paper. Or the labels to start from. A fitted
        clusterer of the same columns: the clusters that it predicts are the start (of more than
        two a start of the discriminants), and clusters keep its numbers where they match.
    n_init : int, optional
        Directions of the race with init="auto", restarts of k-means with init="k-means" and
        with multiway="pairwise". If None, 16; with mode="paper" 1, because the paper starts from
        one run of k-means.
    kernel : str or callable, default="linear"
        "linear", the name of a scikit-learn kernel, a function of two matrices, or "precomputed".
        Kernels other than linear are represented exactly up to 1000 rows (and precomputed), and by
        100 landmarks beyond.
    gamma : float, str or None, default="scale"
        Coefficient of the kernel: a number, a rule or a multiple of one ("scale" is 1 /
        (n_features * variance of X), "rms", "4*scale"), or None for scikit-learn's own.
    degree, coef0, kernel_params
        Further parameters of the kernel.
    scan : {"auto", "exact", "histogram"}, default="auto"
        How solver="gep" looks for the best cut of a direction: among all rows, or among the edges
        of 1024 bins, which needs no sorting. "auto" is "exact" for rows in memory and "histogram"
        for those of a dask collection, which can be cut in no other way.
    min_cluster_size : int, float or array of shape (n_clusters,), optional
        Minimum size of a cluster, a count or a fraction of all rows, or one for each. Not given it
        is 0.04 / n_clusters (of the part, where a part is split), and 1 row with mode="paper"; a
        few far rows would otherwise make the best-separated cluster. Clusters that `fit` is given
        labels of have no minimum then.
    max_cluster_size : int, float or array of shape (n_clusters,), optional
        Maximum size of a cluster, a count or a fraction of the rows' weight, or one for each.
    max_iter : int, optional
        Maximum number of iterations. If None, 100; with mode="paper" there is no limit.
    tol : float, optional
        Share of rows that switch sides at which to stop; 0 goes on until none does. If None,
        1e-3; with mode="paper" 0.
    mode : {"default", "paper"}, default="default"
        "paper" runs the algorithms of the paper's Table 1 as printed: "mpm" and "gep" start from
        k-means on X (init="auto" is "k-means") and alternate until no row switches; "eig" takes
        the sign of XX'q, where the default takes that of q. `n_init`, `max_iter`, `tol` and
        `min_cluster_size` that are not given are those of the paper. Its lambda was chosen by
        the true labels among 1e-4, 1e-3, ..., 1e4; `reg` is 1, the middle of these, where it is
        not given. See Notes.
    polish : {None, "density"}, default=None
        "density": where held-out rows show a gap along the direction of two clusters, the
        hyperplane moves to the minimum of the density near it, if the valley is deeper there
        (`volmar.MinimumDensityHyperplane`). Of more than two clusters the splits are polished.
    alpha : float, default=0.05
        Level of the tests of n_clusters="auto": the probability of any split too many. From 0.001,
        for which tests take longer, to 0.5.
    max_clusters : int, optional
        Maximum number of clusters, only with n_clusters="auto"; the strongest splits are made
        first, and a warning is given where others are left.
    metric : {"euclidean", "cosine"}, default="euclidean"
        "cosine": the method, `coef_` included, sees rows of unit length; sparse X of more than
        1000 columns as text (idf, singular vectors). See the page *Embeddings and text*.
    text_components : int, "auto" or None, default="auto"
        Singular vectors to which metric="cosine" reduces sparse rows. "auto": 100 for text only.
    views : list of column groups, optional
        Views of each row, which count the same: slices, column numbers or names, or masks.
    random_state : int, RandomState or None, default=None
        Seed of starts, sample and landmarks.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row, by size: 0 is the largest. With `classes_` its name.
    classes_ : ndarray of shape (n_clusters,)
        Names of the clusters; only where `fit` was given labels of rows.
    broken_links_ : ndarray of shape (n_pairs, 2)
        Pairs of `cannot_link` in one cluster; only where `fit` was given any.
    tree_ : SplitTree
        The splits, of more than two clusters or "auto", found by splitting again; not where `fit`
        was given labels or links. Rows may have changed clusters since (`labels_`).
    coef_ : ndarray of shape (1, n_features) or (n_clusters, n_features)
        Direction, scaled so that the clusters' means are 1 apart; of more than two clusters their
        discriminants. Only for kernel="linear", and not for multiway="pairwise", nor for more than
        two clusters where the splits alone are the answer (see `result_`).
    intercept_ : ndarray of shape (1,) or (n_clusters,)
        Offset; cluster 1 is where ``X @ coef_[0] + intercept_[0] > 0``.
    msp_ : float
        Minimum separation probability of the labels, regularised: the p of eq. 3 at its best w.
        Of two clusters only, as the next two.
    msp_lower_bound_ : float
        Theorem 2's lower bound of it, the better score to compare labellings by.
    side_probability_ : ndarray of shape (2,)
        Worst-case probability, over all distributions with the cluster's mean and covariance,
        that cluster 0 and cluster 1 lie on their sides of the hyperplane (Chebyshev's bound along
        `coef_`, not regularised): about the moments of the labels found, not about the truth.
    polished_ : bool
        Whether `polish` has moved the hyperplane.
    kept_variance_ : float
        Share of the standardised features' variance that was searched (see Notes), mostly 1.
    min_cluster_weight_ : float
        Minimum weight of a cluster. NaN where clusters were found by splitting again without a
        `min_cluster_size`: then each split has its own.
    gamma_ : float or None
        Coefficient of the kernel, None for kernels without one; not set for one cluster.
    reg_ : float
        The `reg` that was used; of more than two clusters that of their discriminants or machines.
    status_ : Status
        How the solver ended.
    objective_ : float
        What the solver minimised: minus the bound on kappa^2 ("gep"), minus p ("mpm"), minus the
        leading eigenvalue ("eig"). Of more than two clusters minus their separation :math:`tr((R +
        \lambda I)^{-1} B)`, or with multiway="pairwise" minus the mean p of the pairs.
    result_ : SeparationResult, MultiwaySeparationResult or RecursiveResult
        The certified result; of the splits alone where "auto" finds fewer than three clusters,
        or the discriminants would leave one below `min_cluster_size` at once.
    n_iter_ : int
        Iterations.
    row_map_ : RowMap or ViewMap
        The map of rows with metric="cosine" or `views`; only then.
    n_features_in_ : int
        Number of features.
    previous_clusters_ : ndarray of shape (n_clusters,)
        Cluster of the model `init`, where that is one, that each continues; -1 for a new one.
    n_samples_seen_ : int
        Rows of all batches, after `partial_fit` only.
    batch_moments_ : BatchMoments
        What is kept of them: weights, means and second moments, see `partial_fit`.

    Notes
    -----
    `decision_function` is the signed distance to the hyperplane over that of the clusters' means;
    of more than two clusters the discriminants, or the least distances (multiway="pairwise").

    Of 20,000 dense rows or more in memory (100 a feature, if that is more) a twentieth, and 4,000
    at least, is clustered first. Then all rows alternate until no more than `tol` switch sides.

    Probabilities are plug-in values of the rows that chose the split, and optimistic; use
    `volmar.metrics.separation_score` with ``cross_fit=True``.

    *Labels and links.* With labels of some rows or links between rows (see `fit`), clusters are
    found without them first, by `solver`, `multiway`, `scan` and `mode`. From there, or from the
    labels as they spread along a graph of neighbours, whichever predicts held-out labels better,
    the bound of two clusters ascends and discriminants of more alternate with labels, as without,
    among the labels that are allowed; `reg_` stays. The fit ends after the first step where that
    predicts more held-out labels. Rows in blocks take labels (a sample of 10,000), but no links.

    *EIG.* The relaxed labels of Theorem 3 are the leading left singular vector q of the
    standardised rows, for every `reg`. The default takes the sign of q, to which Xw* is
    proportional; mode="paper" that of "the predict vector" XX'q, as printed.

    *Where the paper cannot run as printed.* MSPC-MPM stops before a step that would empty a
    cluster (`status_` DEGENERATE) and where labels come back (CYCLE): its sign step is no ascent.
    Rows of equal projection stay together. Constant features are left out.

    *More features than rows.* Directions lie in the span of the standardised rows: with d > n a
    fit works with their Gram matrix, in O(n² d + n³) and without a d × d matrix, and has the same
    answer. Of more than 2000 such rows (500 sparse ones), and where a d × d matrix does not fit in
    memory, the hyperplane is searched among the 100 leading principal directions of the
    standardised rows. `kept_variance_` is the share of their variance, and a warning is given
    where the next directions are more than noise. mode="paper" always takes the whole span.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar import MSPC
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 10)) * 10.0 ** np.arange(-4, 6)
    >>> X[:150, 2] += 0.06                     # one feature of ten has two humps
    >>> labels = MSPC(random_state=0).fit(X).labels_
    >>> bool((labels[:150] == labels[0]).mean() > 0.95)
    True
    """

    _takes_blocks = True
    _has_first_step = True
    _may_be_nan = ("min_cluster_weight_",)
    # The paper's Table 1: one run of k-means, and steps "until converge", which are finite.
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
        metric: str = "euclidean",
        text_components: int | str | None = "auto",
        views: Sequence[Any] | None = None,
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
        self.metric = metric
        self.text_components = text_components
        self.views = views
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
            refuse_blocks(f"MSPC(polish={self.polish!r})", "it goes over the rows many times")
        if self.multiway == "pairwise" and self.n_clusters != "auto" and self.n_clusters > 2:
            refuse_blocks(
                f"MSPC(n_clusters={self.n_clusters!r}, multiway='pairwise')",
                "it starts from k-means, which takes rows in memory",
            )

    @property
    def _keeps_minimum(self) -> bool:
        return True

    def _n_starts(self) -> int:
        return 1  # the race is inside a run

    def _solver(self) -> TwoWaySolver:
        """Return how two clusters are found, from the parameters of the same names."""
        return TwoWaySolver(**{one.name: self._value_of(one.name) for one in fields(TwoWaySolver)})

    def _minimum_share(self, n: int, k: int) -> float:
        """Return the minimum share of a cluster, of n rows in k clusters."""
        size: Any = self.min_cluster_size
        if size is None or np.ndim(size) > 0:  # a limit of each cluster is that of a guide
            return 1.0 / n if self.mode == "paper" else DEFAULT_SHARE / k
        share = float(size) / n if isinstance(size, Integral) else float(size)
        if share * k > 1.0:
            raise ValueError(
                f"min_cluster_size={size} is more than the {n} rows have for each of {k} "
                f"clusters. Lower it to at most {n // k}."
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
        """Return the rows, or their features under the kernel, standardised.

        k is given where clusters of a tree compete, `n_rows` where X is a sample of so many rows.
        """
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
            lambda: (
                int(labels.sum()),
                self._order(labels, weights),
                rows.sides(labels),
            )
        )
        if n_second in (0, labels.size):
            raise ValueError(
                "no hyperplane found leaves enough rows on both sides. Lower min_cluster_size "
                f"(now {self.min_cluster_size}), or check that the rows differ."
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
        return (
            "another step would leave a cluster with less than min_cluster_size="
            f"{self.min_cluster_size}, and the labels before it are kept. Lower min_cluster_size "
            "or n_clusters"
        )

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
        """Set the share of the variance that was searched, and warn where structure is left."""
        self.kept_variance_ = z.kept_variance
        if isinstance(z, RowSpace) and z.leaves_structure:
            warn_user(
                f"clusters were searched in {z.lift.shape[1]} principal directions, which have "
                f"{z.kept_variance:.0%} of the variance of the {z.kept.size} standardised "
                "features, and the next ones are more than noise. Reduce the features first if "
                "these may matter, with sklearn.decomposition.TruncatedSVD(300) say."
            )

    def _scores(self, X: Any) -> NDArray:
        return self._planes(X)
