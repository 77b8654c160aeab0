"""IterSVR: maximum margin clustering by iterated support vector regression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.base import Status, WeightedClusterer
from volmar.base.kernel import N_LANDMARKS, GammaWidth
from volmar.base.validation import (
    check_choice,
    check_cluster_size,
    check_count,
    check_number,
    check_start_labels,
)
from volmar.margin.engine.starts import (
    k_means_start,
    kernel_k_means_start,
    principal_start,
    random_start,
    spectral_start,
)
from volmar.margin.engine.unequal_sizes import (
    HALVES,
    are_unequal,
    equal_weights,
    own_sizes,
    shares_of_sides,
)
from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.feature_space.linear import LinearSpace
from volmar.margin.feature_space.representation import KernelRepresentation
from volmar.margin.relaxations.bias_rules import lowest_loss_cut, widest_gap_cut
from volmar.margin.relaxations.iter_svr_solver import IterSVRResult, iterate_svr
from volmar.solvers.cutting_plane_certificate import NotAGramMatrixError

# Value of C="scale" if the squared distances of all rows from their mean sum to 1.
SCALE = 10.0
STARTS = ("auto", "k-means", "kernel k-means", "spectral", "principal", "random")
# Largest C in the same units. Beyond it 1 is lost to rounding in 1 + C * variance.
LARGEST = 1e15
# Kernels that are positive semi-definite on all rows.
DEFINITE = ("rbf", "laplacian", "cosine", "chi2")
RULES = {"balance": lowest_loss_cut, "gap": widest_gap_cut}
# Default minimum share of the weight on each side.
MIN_SHARE = 0.3


@dataclass
class IterSVRInputs:
    """Inputs that all starts share; `floor` is the minimum weight of a side.

    A run that adopts the sizes of its start replaces `space` by the reweighted rows.
    """

    space: LinearSpace | KernelSpace
    C: float
    floor: float
    weights: NDArray | None
    balance: tuple[float, float] = HALVES


class IterSVR(GammaWidth, KernelRepresentation, WeightedClusterer):
    r"""Maximum margin clustering by iterated support vector regression (Zhang et al., 2007).

    Alternates a regression on labels :math:`y_i = \pm 1` with the L1 (Laplacian) loss

    .. math:: \min_{w, b} \; \tfrac12 \|w\|^2
              + C \sum_i |y_i - \langle w, \phi(x_i) \rangle - b|

    with new labels, found by a cut of the scores :math:`\langle w, \phi(x_i) \rangle`, until the
    labels no longer change. Unlike the hinge loss, the L1 loss also penalises rows far beyond the
    margin, so the labels can move away from their start.

    Parameters
    ----------
    n_clusters : int or "auto", default=2
        Number of clusters. More than 2 are found by recursive splitting: the cluster whose split
        separates best is split next (see `tree_`). With "auto", a cluster is split only if
        held-out rows confirm that it holds more than one group (see `volmar.evidence.split_test`).
    kernel : str or callable, default="rbf"
        Name of a scikit-learn kernel, a callable that takes two matrices, or "precomputed".
        "linear" uses the rows themselves, dense or CSR.
    gamma : float, str or None, default="auto"
        Kernel coefficient of "rbf", "polynomial", "sigmoid", "laplacian" and "chi2". "scale" is
        1 / (n_features * variance of X), "4*scale" and "scale/4" are multiples of it; None is
        1 / n_features. "auto" chooses the width of "rbf" (see Notes); it means "scale" for the
        other kernels listed and if `init` is an array of labels. Kernels that are not listed
        ignore gamma.
    degree : float, default=3
        Degree of the polynomial kernel, at least 1.
    coef0 : float, default=1
        Constant of the polynomial and sigmoid kernels.
    kernel_params : dict, optional
        Further keyword arguments for a callable kernel.
    method : {"auto", "exact", "nystroem"}, default="auto"
        "exact" uses the whole kernel matrix; its time is between quadratic and cubic in the number
        of rows. "nystroem" represents the feature space by `n_landmarks` rows drawn at random; its
        time is linear. "auto" is "exact" for up to 1000 rows and for a precomputed kernel, and
        "nystroem" otherwise.
    n_landmarks : int, default=100
        Number of landmarks for method="nystroem" and "auto".
    C : float or "scale", default="scale"
        Weight of the loss. "scale" is ``10 / sum_i |phi(x_i) - mean|^2``. The larger C, the closer
        the regression fits the given labels, including those of the start. The paper uses 500.
    bias : {"gap", "balance"}, default="gap"
        How scores are cut in two. "gap" cuts in the widest gap. "balance", the paper's rule, cuts
        where the L1 loss is lowest; for small C this is always the most uneven cut that
        `min_cluster_size` allows.
    min_cluster_size : int or float, optional
        Minimum cluster size: a count (of rows of mean weight) or a fraction (of the weight). If
        None, it is 0.3, and if the sides of the start have unequal sizes and the wider margin (by
        the rule of `CPMMC`), both get the same weight in regressions and cuts; see `balance_`. The
        paper's balance constraint :math:`|\sum_i y_i| \le l` is the fraction (1 - l / n) / 2. If
        no cut satisfies the minimum, the most even cut is made.
    init : str, array of shape (n_samples,) or fitted clusterer, default="auto"
        Labels to start from. "auto" is "k-means", and also clusters of a graph if the kernel width
        is chosen (see Notes). "k-means" clusters the rows or their landmark features; it is
        "principal" if the kernel is precomputed. "kernel k-means" clusters in the feature space of
        the kernel. "spectral" uses the second eigenvector of the nearest-neighbour graph of the
        rows, or of their landmark features. "principal" and "random" split the rows at the mean
        along the leading kernel principal component or along a random direction. An array holds
        the labels themselves. A fitted clusterer of the same columns is used as in `CPMMC`.
    n_init : int, default=1
        Number of starts for "auto", "k-means" and "random"; other values of `init` have one start.
        The result with the lowest objective is kept, and a degenerate one only if all are
        degenerate.
    tol : float, default=1e-3
        Tolerance of the certified duality gap of each regression, relative to its objective.
    max_iter : int, default=50
        Maximum number of regressions.
    alpha : float, default=0.05
        Significance level of the split tests: the probability of one or more false splits. Must be
        between 0.001 and 0.5; tests take longer for small values. Only used with
        n_clusters="auto".
    max_clusters : int, optional
        Maximum number of clusters. If None, there is no limit. The strongest splits are made
        first, and a warning is issued if the limit prevents further ones. Only used with
        n_clusters="auto".
    random_state : int, RandomState or None, default=None
        Random seed of starts and landmarks.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row. Clusters are numbered by size: 0 is the largest.
    tree_ : SplitTree
        The splits, for more than two clusters or n_clusters="auto". The attributes of a single
        hyperplane are then found at ``tree_.splits()[i].model``, not here.
    coef_ : ndarray of shape (1, n_features)
        w. Only available for kernel="linear".
    dual_coef_ : ndarray of shape (n_samples,)
        Coefficients of k(x_j, x); their sum is zero. Only available if the whole kernel matrix is
        used (see `method`), not for kernel="linear".
    intercept_ : ndarray of shape (1,)
        Constant of the decision function, set by `bias`.
    gamma_ : float or None
        Kernel coefficient used; None for kernels without one.
    cut_ : float
        Ratio cut of the clusters, by which kernel widths were compared. Only available if they
        were.
    C_ : float
        The C used.
    balance_ : tuple of float
        Shares of the rows (or of their weight) in clusters 0 and 1 that count as balanced: halves,
        or the sizes that ``min_cluster_size=None`` took from the start.
    status_ : Status
        How the iteration ended.
    objective_ : float
        Objective of the regression that was kept: the last one, the best of a cycle, or the one
        before a degenerate one.
    result_ : IterSVRResult
        Result with the gap of that regression, and the objectives of all regressions in `history`.
    n_iter_ : int
        Number of regressions.
    n_features_in_ : int
        Number of features (number of training rows with kernel="precomputed").

    See Also
    --------
    KernelCPMMC : The same problem with the hinge loss, certified as a whole.

    Notes
    -----
    *Width of the kernel.* gamma="auto" tries several kernels and chooses the widest whose clusters
    have a ratio cut close to the best one known, by the rule of `KernelCPMMC` (see its Notes). The
    starts are k-means and two clusterings of the nearest-neighbour graph.

    With bias="balance" regression and cut minimise the same objective over labels that respect
    `min_cluster_size`. If all rows have the same weight and no two have the same score, the
    objective never rises (by more than `tol`) from the second regression on. With bias="gap" the
    labels do not minimise it: the objective may rise and labels may recur, which ends the
    iteration with `Status.CYCLE` and a warning.

    For uneven labels the L1 loss can be lowest for a constant function, for any C. The iteration
    then ends with `Status.DEGENERATE` and a warning, as is common for small values of
    `min_cluster_size`. If a regression does not reach `tol`, as happens for very large C, the
    iteration ends with `Status.FAILED` and a warning.

    The factor 10 of C="scale" follows from :math:`|\beta_i| \le C` in
    :math:`w = \sum_i \beta_i \phi(x_i)`: scores reach the targets along a direction only if it has
    more than a tenth of the variance. For a much smaller C scores are small compared with the
    targets, and the most uneven cut has the lowest loss. For a much larger C the regression fits
    any labels and never leaves its start.

    References
    ----------
    K. Zhang, I. W. Tsang, J. T. Kwok (2007), Maximum margin clustering made practical, ICML; IEEE
    Trans. Neural Networks 20 (2009).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from volmar import IterSVR
    >>> from volmar.metrics import clustering_error
    >>> digits = load_digits()
    >>> pair = (digits.target == 2) | (digits.target == 7)
    >>> model = IterSVR(random_state=0).fit(digits.data[pair])
    >>> bool(clustering_error(digits.target[pair], model.labels_) < 0.05)
    True
    >>> bool(model.result_.gap <= 1e-3 * model.objective_)
    True
    """

    _multiway = "recursive"
    _methods = ("auto", "exact", "nystroem")
    _hyperplane: Any

    def __init__(
        self,
        n_clusters: int | str = 2,
        *,
        kernel: str | Callable[..., Any] = "rbf",
        gamma: float | str | None = "auto",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        method: str = "auto",
        n_landmarks: int = N_LANDMARKS,
        C: float | str = "scale",
        bias: str = "gap",
        min_cluster_size: float | None = None,
        init: Any = "auto",
        n_init: int = 1,
        tol: float = 1e-3,
        max_iter: int = 50,
        alpha: float = 0.05,
        max_clusters: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.method = method
        self.n_landmarks = n_landmarks
        self.C = C
        self.bias = bias
        self.min_cluster_size = min_cluster_size
        self.init = init
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.alpha = alpha
        self.max_clusters = max_clusters
        self.random_state = random_state

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
        self._check_representation()
        if self.method == "nystroem" and self._is_linear():
            raise ValueError(
                "method='nystroem' represents a kernel by landmarks, but kernel='linear' uses the "
                "rows themselves. Use method='exact'."
            )
        if isinstance(self.C, str):
            check_choice("C", self.C, ["scale"])
        else:
            check_number("C", self.C, low=0.0, open_low=True)
        check_choice("bias", self.bias, RULES)
        if self.min_cluster_size is not None:
            check_cluster_size(self.min_cluster_size)
        if isinstance(self.init, str):
            check_choice("init", self.init, STARTS)
            if self.init == "spectral" and self._is_pairwise():
                raise ValueError(
                    "init='spectral' needs the rows for a nearest-neighbour graph, but "
                    "kernel='precomputed'. Use init='kernel k-means', or give labels."
                )
        check_count("n_init", self.n_init)
        check_number("tol", self.tol, low=0.0, high=0.1, open_low=True)
        check_count("max_iter", self.max_iter)

    def _n_starts(self) -> int:
        return 1  # starts are compared inside a run, by more than their objective

    def _min_size(self) -> float:
        return MIN_SHARE if self.min_cluster_size is None else self.min_cluster_size

    # ------------------------------------------------------------------ fit

    def _problem(self, X: Any, weights: NDArray | None) -> IterSVRInputs:
        space = self._feature_space(X, weights)
        definite = isinstance(self.kernel, str) and self.kernel in DEFINITE
        if not (definite or space.is_gram()):
            raise self._not_a_kernel()
        return IterSVRInputs(space, *self._penalty_and_floor(space), weights)

    def _penalty_and_floor(self, space: LinearSpace | KernelSpace) -> tuple[float, float]:
        n = space.n_rows
        total = float(n if space.weights is None else space.weights.sum())
        variance = space.mean_square()
        if variance < 0.0:
            raise self._not_a_kernel()
        if variance == 0.0:
            raise ValueError(
                f"all {n} rows of X are identical under kernel={self.kernel!r}, so there is "
                "nothing to separate. Check that X was loaded correctly, or use another kernel."
            )
        C = SCALE / (total * variance) if isinstance(self.C, str) else float(self.C)
        largest = LARGEST / (total * variance)
        if largest < C:
            raise ValueError(
                f"C={C:g} is too large for floating-point arithmetic with these rows. Lower C to "
                f"{1e-6 * largest:.1g} or less, or scale X."
            )
        size = self._min_size()
        share = int(size) / n if isinstance(size, Integral) else float(size)
        if share > 0.5:
            raise ValueError(
                f"min_cluster_size={size} is more than half of the {n} rows, but there are 2 "
                f"clusters. Lower it to at most {n // 2}."
            )
        return C, share * total

    def _take_sizes(self, prepared: IterSVRInputs, labels: NDArray) -> None:
        """Give both sides of the start the same weight if they are unequal and well separated."""
        space, weights = prepared.space, prepared.weights
        if self._keeps_sizes:
            found = labels if are_unequal(labels, weights) else None
        else:
            found = own_sizes(space, labels, weights)
        if found is None:
            return
        prepared.balance = shares_of_sides(found, weights)
        equal = equal_weights(found, weights, prepared.balance)
        prepared.space = space.reweighted(equal)
        prepared.C, prepared.floor = self._penalty_and_floor(prepared.space)

    def _run(self, prepared: IterSVRInputs, seed: int) -> IterSVRResult:
        """Return the best result; degenerate ones come last, as uneven labels have a low loss."""
        several = isinstance(self.init, str) and self.init in ("auto", "k-means", "random")
        more = self.n_init - 1 if several else 0
        seeds = [seed, *np.random.default_rng(seed).integers(2**31 - 1, size=more).tolist()]
        try:
            starts = [self._start(prepared, seed) for seed in seeds]
            if self.min_cluster_size is None:
                self._take_sizes(prepared, starts[0])
            results = [
                iterate_svr(
                    prepared.space,
                    labels,
                    prepared.C,
                    RULES[self.bias],
                    floor=prepared.floor,
                    tol=self.tol,
                    max_iter=self.max_iter,
                )
                for labels in starts
            ]
        except NotAGramMatrixError as error:
            raise self._not_a_kernel() from error
        result = min(results, key=lambda r: (r.status is Status.DEGENERATE, r.objective))
        if result.labels.size == 0:
            raise ValueError(
                f"the regression on the labels of the start is no better than a constant at "
                f"C={prepared.C:.3g}. The labels are too uneven, or unrelated to the rows. Use "
                "another init, or raise C."
            )
        return result

    def _not_a_kernel(self) -> ValueError:
        return ValueError(
            f"kernel={self.kernel!r} is not positive semi-definite on these rows, as the "
            "regression requires. Use another kernel such as 'rbf' or other kernel parameters, or "
            "clip the negative eigenvalues of a precomputed kernel."
        )

    def _start(self, prepared: IterSVRInputs, seed: int) -> NDArray:
        space = prepared.space
        if not isinstance(self.init, str):
            return check_start_labels("init", self.init, space.n_rows, 2)
        rng = np.random.default_rng(seed)
        if self.init == "kernel k-means":
            return kernel_k_means_start(space, rng)
        if self.init == "spectral":
            return spectral_start(space.start_rows())
        if self.init == "random":
            return random_start(space, rng)
        if self.init == "principal" or space.start_rows() is None:
            return principal_start(space, rng)
        return k_means_start(space.start_rows(), prepared.weights, seed)

    # ------------------------------------------------------------------ fitted

    def _renumbered(self, prepared: IterSVRInputs, result: IterSVRResult, order: NDArray) -> Any:
        if order[0] == 1:
            prepared.balance = prepared.balance[::-1]
        return result.renumbered(order)

    def _publish(self, prepared: IterSVRInputs, result: IterSVRResult) -> None:
        self._hyperplane = prepared.space.hyperplane(result.normal, rho=1.0, t=result.bias)
        self.C_ = prepared.C
        self.balance_ = prepared.balance
        self.status_ = result.status
        if self._is_linear():
            self.coef_ = self._hyperplane.coef[None, :]
            self.intercept_ = np.atleast_1d(self._hyperplane.intercept)
        elif isinstance(prepared.space, KernelSpace):
            self.dual_coef_ = self._hyperplane.coef
            self.intercept_ = np.atleast_1d(self._hyperplane.intercept)
        else:
            self.intercept_ = np.atleast_1d(self._hyperplane.linear.intercept)

    def _status_words(self, result: Any) -> str:
        if not isinstance(result, IterSVRResult):
            return super()._status_words(result)
        if result.status is Status.DEGENERATE:
            return (
                "the regression on the labels found is no better than a constant at "
                f"C={self.C_:.3g}, because the labels are too uneven. "
                f"Raise min_cluster_size (now {self._min_size():g}) or C"
            )
        if result.status is Status.FAILED:
            return (
                f"rounding errors stopped the last regression at a duality gap of "
                f"{result.gap:.2g}, above tol={self.tol:g} times its objective of "
                f"{result.objective:.3g}, at C={self.C_:.3g}. Raise tol, lower C, or use float64 "
                "rows"
            )
        other = ", or bias='balance'" if self.bias == "gap" else ""
        return (
            f"the labels still changed after {result.n_iter} regressions: "
            f"{100 * result.residuals['switched']:.2g}% of the rows would switch sides. Raise "
            f"max_iter, or try another init{other}"
        )

    def _scores(self, X: Any) -> NDArray:
        return self._hyperplane(X)
