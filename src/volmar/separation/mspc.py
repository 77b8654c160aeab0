"""MSPC: maximin separation probability clustering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.cluster import KMeans

from volmar._memory import require_memory
from volmar.base import WeightedClusterer
from volmar.base.blocks import check_block_labels, refuse_blocks
from volmar.base.numbering import ask_sizes
from volmar.base.validation import (
    check_choice,
    check_count,
    check_number,
    check_start_labels,
)
from volmar.evidence import column_resolutions, dithered
from volmar.rows import (
    BlockTable,
    DenseRows,
    KernelPCAMap,
    NystroemMap,
    RowSource,
    RowVector,
    SparseRows,
    Standardized,
    as_rows,
    evenly_scaled,
    features_of,
    moments_of_sides,
    scale_gamma,
    standardized,
)
from volmar.separation.bound import bound, probability
from volmar.separation.eig import separation_eig
from volmar.separation.gep import (
    RegularizedCorrelation,
    SeparationResult,
    separation_gep,
)
from volmar.separation.many_clusters import ONE_UNIT, ManyClusters
from volmar.separation.mpm import separation_machine, separation_mpm
from volmar.separation.pairwise import least_scores
from volmar.separation.race import REG, SMALL_REG, is_lost, race
from volmar.separation.relabelling import MultiwaySeparationResult
from volmar.separation.scan import ExactScan, HistogramScan, mean_difference
from volmar.separation.starts import StartRows, sample_size

# Up to here a kernel is represented exactly, beyond by landmarks.
EXACT_KERNEL_UP_TO = 1000
N_LANDMARKS = 200
# Least size of a cluster where none is given, as a share of the mean size.
DEFAULT_LEAST = 0.04


@dataclass
class Prepared:
    """What all starts share."""

    X: Any  # the rows, or their features under the kernel
    z: Standardized
    regularized: RegularizedCorrelation
    feature_map: Any
    min_weight: float
    swapped: Any = None  # labels in blocks, whose moments are known, before clusters were swapped


class MSPC(WeightedClusterer, ManyClusters):
    r"""Maximin separation probability clustering (Huang et al., AAAI 2015).

    Finds the hyperplane whose two sides can be told apart with the highest probability, whatever
    their distributions are, given their means and covariances (MSPC eq. 3):

    .. math:: \max_{w, y} \kappa = \frac{|w'(\mu_1 - \mu_2)|}
              {\sqrt{w'(\Sigma_1 + \lambda\Lambda)w} + \sqrt{w'(\Sigma_2 + \lambda\Lambda)w}},
              \qquad p = \frac{\kappa^2}{1 + \kappa^2}

    with :math:`\Lambda = diag(\Sigma)`, so that the features' scales do not matter.

    Parameters
    ----------
    n_clusters : int, "auto" or "fast", default=2
        Number of clusters. "auto" splits a part only where held-out rows confirm that there is
        more than one group; pure noise stays a single cluster with probability at least 1 -
        `alpha` (see `volmar.evidence.split_test` and the tree's `p_value`). Of a dask
        collection it looks at 20,000 rows. "fast" splits as long as the two sides are separated
        with a probability of 3/4 or more, which is the largest value for a symmetric density with
        one mode; see the notes for where that fails.
    multiway : {"recursive", "pairwise"}, default="recursive"
        How more than two clusters are found. "recursive": the part whose split separates best is
        split next, each split judged on held-out rows (see `tree_`); then all clusters compete for
        all rows by the linear discriminants :math:`\mu_j' (S + \lambda\Lambda)^{-1} (x - \mu_j /
        2)`, S the covariance within clusters, until the labels settle. With a given number of
        clusters and init="auto" k-means is a start as well, and the better separated clusters
        are taken (`volmar.metrics.separation_score`, with the covariance within all clusters).
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
        other in strongly correlated features.
    init : {"auto", "k-means"} or array of shape (n_samples,), default="auto"
        "auto": single features, principal and random directions, and k-means on standardised
        rows and on X as it is given. They are raced on halves of a sample, and ranked on the other
        halves by the bound without `reg` and by the valley of the density at the cut. "k-means":
        k-means on X as it is given, as in the paper. Or the labels to start from.
    n_init : int, default=16
        Directions of the race with init="auto", restarts of k-means with init="k-means" and
        with multiway="pairwise".
    kernel : str or callable, default="linear"
        "linear", the name of a scikit-learn kernel, a function of two matrices, or "precomputed".
        Kernels other than linear are represented exactly up to 1000 rows (and precomputed), and by
        200 landmarks beyond.
    gamma, degree, coef0, kernel_params
        Parameters of the kernel; gamma="scale" is 1 / (n_features * variance of X).
    scan : {"auto", "exact", "histogram"}, default="auto"
        How solver="gep" looks for the best cut of a direction: among all rows, or among the edges
        of 1024 bins, which needs no sorting. "auto" is "exact" for rows in memory and "histogram"
        for those of a dask collection, which can be cut in no other way.
    min_cluster_size : int or float, optional
        Fewest rows of a cluster, a count or a fraction of all rows. Not given it is 0.04 /
        n_clusters (of the part, where a part is split), and 1 row with mode="paper". A few far
        rows would otherwise make the best-separated cluster.
    max_iter : int, default=100
        Most iterations.
    tol : float, default=1e-3
        Share of rows that switch sides at which to stop; 0 goes on until none does.
    mode : {"default", "paper"}, default="default"
        "paper" starts from k-means on X and goes on until no row switches, and has solver="eig"
        threshold XX'q as the paper did.
    alpha : float, default=0.05
        Level of the tests of n_clusters="auto" (not used otherwise): the probability of any split
        too many. From 0.001, for which tests take longer, to 0.5.
    max_clusters : int, optional
        Maximum number of clusters, only with n_clusters="auto" or "fast"; no limit if not
        given. The strongest splits are made first, and a warning is given where others are left.
    random_state : int, RandomState or None, default=None
        Seed of starts, sample and landmarks.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row, by size: 0 is the largest.
    tree_ : SplitTree
        The splits, where there are more than two clusters or "auto" was asked for, found by
        splitting again. Rows may have changed clusters since (`labels_`): those at the borders,
        and more where a split went through a cluster.
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
        `coef_`, not regularised). It speaks about the moments of the labels found, not about the
        truth.
    reg_ : float
        The `reg` that was used; of more than two clusters that of their discriminants or machines.
    status_ : Status
        How the solver ended.
    objective_ : float
        What the solver minimised: minus the bound on kappa^2 ("gep"), minus p ("mpm"), minus the
        leading eigenvalue ("eig"). Of more than two clusters minus their separation :math:`tr((R +
        \lambda I)^{-1} B)`, or with multiway="pairwise" minus the mean p of the pairs.
    result_ : SeparationResult, MultiwaySeparationResult or RecursiveResult
        The solver's certified result; of the splits alone where "auto" finds fewer than three
        clusters, or the discriminants would leave one below `min_cluster_size` at once.
    n_iter_ : int
        Iterations.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    `decision_function` is the signed distance to the hyperplane in units of the distance between
    the clusters' means along it; of more than two clusters the discriminants, or with
    multiway="pairwise" the least of a cluster's distances to its rivals.

    ``n_clusters="fast"`` fails in both directions. Clusters that overlap are separated with less
    than 3/4 and stay together; features with few different values, or a density with several
    humps that are no clusters, are split further; a split through a cluster is not undone. One
    uniform feature is on the border, and is split now and then.

    Probabilities are plug-in figures of the same rows that chose the split, and optimistic: with
    as many features as rows any labels are separable. `volmar.metrics.separation_score` with
    ``cross_fit=True`` is the honest one.

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
    _finds_number = ("auto", "fast")

    def __init__(
        self,
        n_clusters: int | str = 2,
        *,
        multiway: str = "recursive",
        solver: str = "gep",
        reg: float | None = None,
        init: str | ArrayLike = "auto",
        n_init: int = 16,
        kernel: str | Callable[..., Any] = "linear",
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        scan: str = "auto",
        min_cluster_size: float | None = None,
        max_iter: int = 100,
        tol: float = 1e-3,
        mode: str = "default",
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
        self.max_iter = max_iter
        self.tol = tol
        self.mode = mode
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
            check_number("reg", self.reg, low=0.0)
        check_count("n_init", self.n_init)
        check_count("max_iter", self.max_iter)
        check_number("tol", self.tol, low=0.0, high=1.0)
        if isinstance(self.init, str):
            check_choice("init", self.init, ["auto", "k-means"])
        size = self.min_cluster_size
        if isinstance(size, Integral):
            check_count("min_cluster_size", size)
        elif size is not None:
            check_number("min_cluster_size", size, low=0.0, high=0.5, open_low=True)

    def _n_starts(self) -> int:
        return 1  # the race is inside a run

    def _usual_reg(self) -> float:
        return REG if self.reg is None else float(self.reg)

    def _least_share(self, n: int) -> float:
        """Return the least share of a cluster, of all n rows."""
        size = self.min_cluster_size
        k = self.tree_.n_leaves if hasattr(self, "tree_") else self.n_clusters
        if size is None:
            return 1.0 / n if self.mode == "paper" else DEFAULT_LEAST / k
        share = float(size) / n if isinstance(size, Integral) else float(size)
        if share * k > 1.0:
            raise ValueError(
                f"min_cluster_size={size} is more than the {n} rows have for each of {k} "
                f"clusters. Lower it to at most {n // k}."
            )
        return share

    # ------------------------------------------------------------------ fit

    def _problem(self, X: Any, weights: NDArray | None) -> Prepared:
        d = X.shape[1]
        if isinstance(X, BlockTable):
            self._check_blocks()
        feature_map = None
        if self.kernel != "linear":
            feature_map = self._feature_map(X)
            X = features_of(feature_map, X)
        else:
            require_memory(
                4 * 8.0 * d**2,
                f"the covariance matrix of {d} features",
                "Reduce the features first, with sklearn.decomposition.TruncatedSVD say.",
            )
        rows = as_rows(X, sample_weight=weights)
        z = standardized(rows) if feature_map is None else evenly_scaled(rows)
        if z.kept.size == 0:
            raise ValueError(
                f"all {X.shape[0]} rows of X are the same, there is nothing to separate. Check "
                "that X was loaded rightly."
            )
        return Prepared(
            X,
            z,
            RegularizedCorrelation(z.correlation, self._usual_reg()),
            feature_map,
            self._least_share(X.shape[0]) * z.rows.total_weight,
        )

    def _check_blocks(self) -> None:
        if self.scan == "exact" and self.solver == "gep":
            refuse_blocks("MSPC(scan='exact')", "rows in blocks are not sorted")
        start = "k-means" if self.mode == "paper" and isinstance(self.init, str) else self.init
        if isinstance(start, str) and start == "k-means" and self.solver != "eig":
            refuse_blocks("MSPC with a start by k-means", "k-means takes rows in memory")

    def _ask_first(self, rows: RowSource) -> None:
        if self.kernel == "linear":
            rows.centered_with_moments()
        else:
            rows.mean()

    def _feature_map(self, X: Any) -> Any:
        gamma = self.gamma
        if isinstance(gamma, str):
            check_choice("gamma", gamma, ["scale"])
            gamma = scale_gamma(X)
        parameters: dict[str, Any] = {
            "gamma": None if callable(self.kernel) else gamma,
            "degree": self.degree,
            "coef0": self.coef0,
            "kernel_params": self.kernel_params,
        }
        if X.shape[0] <= EXACT_KERNEL_UP_TO or self._is_pairwise():
            points = X[:] if isinstance(X, BlockTable) else X
            return KernelPCAMap(kernel=self.kernel, **parameters).fit(points)
        seed = self.random_state if isinstance(self.random_state, Integral) else 0
        return NystroemMap(
            self.kernel, landmarks=N_LANDMARKS, random_state=seed, **parameters
        ).fit(X)

    def _run(self, prepared: Prepared, seed: int) -> Any:
        if self.n_clusters > 2:
            return self._run_pairwise(prepared, seed)
        result = self._solve(prepared, seed)
        z = prepared.z
        z.rows.prefetch(
            lambda: (
                result.labels.sum(),
                ask_sizes(result.labels, z.rows.weights),
                z.rows.moments(result.labels, center=z.moments.center),
            )
        )
        if int(result.labels.sum()) in (0, result.labels.size):
            raise ValueError(
                "no hyperplane found leaves enough rows on both sides. Lower min_cluster_size "
                f"(now {self.min_cluster_size}), or check that the rows differ."
            )
        return result

    def _solve(self, prepared: Prepared, seed: int) -> SeparationResult:
        z = prepared.z
        if self.solver == "eig":
            unscaled = self.mode == "paper"
            return replace(separation_eig(z, unscaled=unscaled), reg=self._usual_reg())
        labels = self._start_labels(prepared, seed)
        if labels is None:
            raced = self._raced(prepared, seed)
            if self.solver == "gep":
                return raced
            return replace(
                self._mpm(prepared, raced.labels, raced.reg),
                held_out_bound=raced.held_out_bound,
                held_out_score=raced.held_out_score,
            )
        if self.solver == "gep":
            regularized = prepared.regularized
            return self._gep(prepared, regularized, regularized.solve(mean_difference(z, labels)))
        return self._mpm(prepared, labels, self._usual_reg())

    def _mpm(self, prepared: Prepared, labels: Any, reg: float) -> SeparationResult:
        return separation_mpm(
            prepared.z,
            labels,
            reg,
            min_weight=prepared.min_weight,
            max_iter=self.max_iter,
            tol=0.0 if self.mode == "paper" else self.tol,
        )

    def _gep(
        self, prepared: Prepared, regularized: RegularizedCorrelation, w: NDArray
    ) -> SeparationResult:
        return separation_gep(
            prepared.z,
            regularized,
            w,
            min_weight=prepared.min_weight,
            scan=self._scan(prepared),
            max_iter=self.max_iter,
            tol=0.0 if self.mode == "paper" else self.tol,
            momentum=0.0 if self.mode == "paper" else 1.0,
        )

    def _scan(self, prepared: Prepared) -> type[ExactScan] | type[HistogramScan]:
        in_blocks = isinstance(prepared.X, BlockTable)
        return HistogramScan if in_blocks or self.scan == "histogram" else ExactScan

    def _start_labels(self, prepared: Prepared, seed: int) -> Any:
        """Return the labels to start from, or None for a race."""
        X, z = prepared.X, prepared.z
        if not isinstance(self.init, str):
            if isinstance(X, BlockTable):
                return check_block_labels("init", X, self.init).astype(bool)
            return check_start_labels("init", self.init, X.shape[0], 2).astype(bool)
        if self.init == "auto" and self.mode == "default":
            return None
        kmeans = KMeans(2, n_init=self.n_init, random_state=seed)
        return kmeans.fit_predict(X, sample_weight=z.rows.weights).astype(bool)

    def _raced(self, prepared: Prepared, seed: int) -> SeparationResult:
        """Race directions on a sample; the best goes on with all rows."""
        X, z = prepared.X, prepared.z
        n = X.shape[0]
        rng = np.random.default_rng(seed)
        size = sample_size(n, z.kept.size)
        weights = z.rows.weights
        if isinstance(weights, RowVector):
            targets = np.sort(rng.random(size)) * z.rows.total_weight
            chosen = weights.first_beyond(targets)
        elif size < n or weights is not None:
            chances = None if weights is None else weights / weights.sum()
            chosen = np.sort(rng.choice(n, size, replace=weights is not None, p=chances))
        else:
            chosen = np.arange(n)
        sample = X[chosen]
        sample = sample.toarray() if sparse.issparse(sample) else sample
        rows = _start_rows(sample, z, rng)
        share = prepared.min_weight / z.rows.total_weight
        winner = race(rows, self.reg, self.n_init, share, seed, chosen)
        result = self._gep(prepared, self._regularized(prepared, winner.reg), winner.w)
        if (
            self.reg is None
            and winner.reg > SMALL_REG
            and is_lost(rows, winner.w, result.w, share)
        ):
            looser = self._gep(prepared, self._regularized(prepared, SMALL_REG), winner.w)
            result = result if is_lost(rows, result.w, looser.w, share) else looser
        return replace(
            result,
            held_out_bound=probability(max(winner.kappa2, 0.0)),
            held_out_score=winner.score,
        )

    def _regularized(self, prepared: Prepared, reg: float) -> RegularizedCorrelation:
        """Return R + reg I: the one there is, or another where `reg` was chosen."""
        if self.reg is not None or reg == prepared.regularized.reg:
            return prepared.regularized
        return RegularizedCorrelation(prepared.z.correlation, reg)

    # ------------------------------------------------------------------ fitted

    def _renumbered(self, prepared: Prepared, result: Any, order: NDArray) -> Any:
        if order[0] == 1:
            prepared.swapped = result.labels
        return result.renumbered(order)

    def _publish(self, prepared: Prepared, result: Any) -> None:
        if isinstance(result, MultiwaySeparationResult):
            self._publish_multiway(prepared, result, self._usual_reg())
            return
        z = prepared.z
        self._set_hyperplane(prepared, result)
        self.reg_ = result.reg
        self._describe(prepared, result, result.labels.astype(bool))
        if prepared.feature_map is None:
            coefficients = self._coefficients / self._unit
            self.coef_ = coefficients[None, :]
            offset = coefficients @ z.mean + self._threshold / self._unit
            self.intercept_ = np.array([-offset])

    def _set_hyperplane(self, prepared: Prepared, result: SeparationResult) -> None:
        self._z_mean, self._feature_map_ = prepared.z.mean, prepared.feature_map
        self._unit, self._threshold = 1.0, result.threshold
        self._coefficients = prepared.z.coefficients(result.w)
        self._pairs = None

    def _describe(self, prepared: Prepared, result: SeparationResult, labels: NDArray) -> None:
        z = prepared.z
        if prepared.swapped is None:
            part, rest = moments_of_sides(z.rows, labels, z.moments)
        else:  # labels whose moments are known
            rest, part = moments_of_sides(z.rows, prepared.swapped.astype(bool), z.moments)
        means, variances = [], []
        for moments in (rest, part):
            mean, covariance = z.mean_and_covariance(moments)
            means.append(mean)
            variances.append(float(result.w @ (covariance @ result.w)))
        difference = means[1] - means[0]
        self._unit = float(result.w @ difference) or 1.0
        gaps = np.array(
            [result.threshold - result.w @ means[0], result.w @ means[1] - result.threshold]
        )
        gaps = np.maximum(gaps, 0.0)
        spread = np.maximum(variances, 0.0) + gaps**2
        self.side_probability_ = np.divide(gaps**2, spread, out=np.zeros(2), where=spread > 0)
        share = part.weight / z.rows.total_weight
        regularized = self._regularized(prepared, result.reg)
        explained = share * (1 - share) * difference @ regularized.solve(difference)
        self.msp_lower_bound_ = probability(float(bound(np.array(explained), np.array(share))))
        self.msp_ = separation_machine(z, part, result.reg)[0].probability

    def _scores(self, X: Any) -> NDArray:
        if self._feature_map_ is not None:
            X = self._feature_map_.transform(X)
        kind = SparseRows if sparse.issparse(X) else DenseRows
        rows = kind(X, offset=self._z_mean)
        scores = rows.scores(self._coefficients) - np.asarray(self._threshold, dtype=rows.dtype)
        scores /= rows.dtype.type(self._unit)
        if self._pairs is None:
            return scores
        return least_scores(scores, self._pairs, int(self._pairs.max()) + 1)


def _start_rows(sample: NDArray, z: Standardized, rng: np.random.Generator) -> StartRows:
    """Return the rows of the race: standardised, dithered, and in the units of the user."""
    centred = (sample - z.mean).astype(sample.dtype, copy=False)
    scale = z.scale
    if z.kept.size < scale.size:
        centred, scale = centred[:, z.kept], scale[z.kept]
    Z = (centred / scale).astype(sample.dtype, copy=False)
    noisy = dithered(Z, column_resolutions(Z), rng)
    has_one_unit = np.ptp(scale) <= ONE_UNIT * scale.max()
    return StartRows(Z, noisy, None if has_one_unit else scale)
