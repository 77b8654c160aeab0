"""Kernel CPMMC: cutting-plane maximum margin clustering in the feature space of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmar._checks import check_choice, check_count, check_random_state
from volmar.base.blocks import require_in_memory
from volmar.base.clusterer import WeightedClusterer
from volmar.base.kernel import N_LANDMARKS, GammaWidth
from volmar.margin.clusterer import GuidedMarginMixin, MarginClusterer, MarginInputs
from volmar.margin.engine.descent import MarginResult
from volmar.margin.feature_space.kernel import KernelRepresentation, KernelSpace
from volmar.margin.feature_space.linear import LandmarkSpace, LinearSpace
from volmar.rows.anywhere import drawn_rows, features_of, is_in_memory
from volmar.rows.kernel import NystroemMap

# Maximum of rows times clusters for which method="auto" uses the whole kernel matrix.
EXACT_UP_TO = 5000
LANDMARKS_PER_CLUSTER = 10


class KernelCPMMC(
    GuidedMarginMixin, GammaWidth, KernelRepresentation, WeightedClusterer, MarginClusterer
):
    r"""Maximum margin clustering with a kernel (Wu and Zhang, SKMMC, Algorithm 2).

    The problem of `CPMMC` in the feature space of a kernel, centred there:

    .. math:: \min_{w, t, \rho \ge 0} \; \tfrac12 \|w\|^2 - \rho
              + \frac{C}{n} \sum_i \max(0, \rho - |f_i|),
              \qquad f_i = \langle w, \phi(x_i) - \bar\phi \rangle + t, \quad |t| \le b \rho

    More than two clusters are found at once (`multiway`), by the hinge of Crammer and Singer, as
    in `CPMMC`, with :math:`f_{ip} = \langle w_p, \phi(x_i) - \bar\phi \rangle + \rho \beta_p`.

    Parameters
    ----------
    n_clusters : int, default=2
        Number of clusters. For more than two see above and `multiway`.
    kernel : str or callable, default="rbf"
        Name of a scikit-learn kernel, a callable that takes two matrices, or "precomputed".
    gamma : float, str or None, default="auto"
        Kernel coefficient of "rbf", "polynomial", "sigmoid", "laplacian" and "chi2". "scale" is
        1 / (n_features * variance of X), "4*scale" and "scale/4" are multiples of it; None is
        1 / n_features. "auto" chooses the width of "rbf" (see Notes); it means "scale" for the
        other kernels listed and if `init` is an array of labels, and "rms" (sec. 5.1 of the paper,
        see `SKMMC`) with mode="paper". Kernels that are not listed ignore gamma.
    {degree}
    {coef0}
    {kernel_params}
    method : {"auto", "exact", "nystroem"}, default="auto"
        "exact" uses the whole kernel matrix; time and memory are quadratic in the number of rows.
        "nystroem" represents the feature space by `n_landmarks` rows drawn at random; time and
        memory are linear. "auto" is "exact" if rows times clusters is at most 5,000 (2,500 rows
        for two clusters), for a precomputed kernel and for mode="paper", and "nystroem" otherwise.
    n_landmarks : int, optional
        Number of landmarks. If None, 100, or 10 per cluster if that is more.
    C : float, optional
        Weight of margin errors. If None, 2 (the paper's 10 with mode="paper"). With the adaptive
        threshold C must be at least 1 / (1 - balance), and about 1 / C of the rows are inside the
        margin.
    threshold : {"adaptive", "fixed"}, default="adaptive"
        With "adaptive", the margin :math:`\rho` is optimised. With "fixed", it is 1.
    {margin:balance}
    {balance_unit}
    anneal : "auto" or tuple of float, default="auto"
        Smaller values of C for which the problem is solved first. "auto" means 1.2, 3, 7.5 and so
        on (2, 5, 12.5 and so on for more than two clusters). The empty tuple means none.
    init : {"auto", "k-means", "random"}, array (n_samples,) or fitted clusterer, default="auto"
        Start of the descent. "k-means": k-means of the rows, or of their landmark features; the
        sides of the leading kernel principal component if the kernel is precomputed. "random":
        random directions. "auto": "k-means" and ``n_init - 1`` random directions. Of several
        starts the one with the lowest objective at C = 1.2 is used. For more than two clusters
        "auto" is "k-means", with centres from 2000 rows or 100 rows per cluster (of the leading
        kernel principal components if the kernel is precomputed), and "random" is refused. With
        mode="paper" the fit starts from labels as they are: the given ones, those of one run of
        k-means ("auto" and "k-means"), or a random half of the rows ("random"). An array holds the
        labels to start from. A fitted clusterer of the same columns starts the fit from the
        clusters that it predicts, if there are `n_clusters` of them, and from its `gamma_`;
        matching clusters keep its numbers.
    {margin:n_init}
    {margin:tol}
    {margin:max_iter}
    mode : {"default", "paper"}, default="default"
        "paper" is Algorithm 2 (misprints corrected), from the labels of `init` and without
        annealing; `tol`, `anneal` and `n_init` are not used. Cuts that give w = 0 are handled as
        in `CPMMC`.
    cut_tol : float, optional
        The paper's :math:`\eta` (eq. 13). If None, 0.01. Only used with mode="paper".
    cccp_tol : float, optional
        The paper's :math:`\epsilon` (eq. 15). If None, 0.1. Only used with mode="paper".
    multiway : {"joint", "recursive"}, default="joint"
        How more than two clusters are found: all at once ("joint"), or by recursive splitting in
        two.
    {joint:min_cluster_size}
    {max_cluster_size}
    random_state : int, RandomState or None, default=None
        Random seed of starts and landmarks.

    Attributes
    ----------
    {labels_}
    {classes_}
    {broken_links_}
    {multiway:tree_}
    dual_coef_ : ndarray of shape (n_samples,) or (n_samples, n_clusters)
        Coefficients of k(x_j, x) in units of the margin; their sum is zero. Only available if the
        whole kernel matrix is used (see `method`).
    intercept_ : ndarray of shape (1,) or (n_clusters,)
        Constant of the decision function.
    {margin:balance_}
    {gamma_}
    cut_ : float
        Ratio cut of the clusters, by which kernel widths were compared. Only available if they
        were.
    status_ : Status
        How the descent ended.
    objective_ : float
        Objective at the solution. It can be compared between starts, but not between values of C
        or kernels.
    result_ : MarginResult
        Certified result: for the labels found, no hyperplane is better by more than `gap`.
    n_iter_ : int
        Number of steps.
    {previous_clusters_}
    {kernel:n_features_in_}

    See Also
    --------
    CPMMC : Linear, for many rows.
    SKMMC : A few basis vectors in place of the kernel matrix.

    Notes
    -----
    *Width of the kernel.* gamma="auto" tries "scale" and at most four narrower kernels, each half
    as wide as the one before, down to half of a neighbourhood of the rows. With many columns a
    neighbourhood is nearly as wide as the data, and only "scale" is tried. The starts are those of
    `init` and, with init="auto", two clusterings of a nearest-neighbour graph. All clusters found
    are compared by their ratio cut in that graph, with similarities weighted by the density; it
    depends only on the rows and labels. The widest kernel is chosen whose clusters have at most
    1.5 times the ratio cut of the best clusters known, including those of the graph. Clusters with
    less than 0.04 / n_clusters of the rows count as outliers (0.5 / n_clusters if "scale" starts
    from the graph), and labels with outliers are not chosen. The comparison uses at most 1000
    rows, drawn at random; the fit to more rows starts from the best clusters.

    `decision_function` is in units of the margin. Equation 24 of the paper for :math:`\rho` is 0/0
    if there are margin errors; here :math:`\rho` is a multiplier of the quadratic programme.

    *Unequal sizes.* With ``balance=None`` both sides of a start with unequal sizes get the same
    weight if the margin is then wider; see `CPMMC`. For kernels with k(x, x) = 1 the criterion is
    a clear gap (see `volmar.margin.engine.starts`).

    *Labels of some rows, links, sizes.* If any of them is given (see `fit`), clusters are first
    found without them. The descent then starts from these clusters, from labels that spread from
    the given ones, or from both. Every relabelling takes the labels with the lowest loss among
    those that are allowed: a row with a given label has the hinge loss of this label on either
    side of the hyperplane, as in a support vector machine. ``anneal="auto"`` skips the smaller
    values of C if the start has a margin at C. ``C=None`` is 10 if the start differs from the
    clusters found first. The certificate holds for the labels of the result, given ones included.
    ``mode="paper"`` accepts none of these.

    References
    ----------
    J. Wu, X.-L. Zhang (2012), Sparse kernel maximum margin clustering, Neural Network World 22.

    Examples
    --------
    >>> from volmar import KernelCPMMC
    >>> from volmar.datasets import make_two_circles
    >>> from volmar.metrics import clustering_error
    >>> X, y = make_two_circles(200, noise=0.02, factor=0.2, random_state=0)
    >>> model = KernelCPMMC(random_state=0).fit(X)
    >>> clustering_error(y, model.labels_)
    0.0
    """

    _takes_blocks = True
    _memory_remedy = "Use method='nystroem', or cluster a sample and use predict for the rest."

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        kernel: str | Callable[..., Any] = "rbf",
        gamma: float | str | None = "auto",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        method: str = "auto",
        n_landmarks: int | None = None,
        C: float | None = None,
        threshold: str = "adaptive",
        balance: float | None = None,
        balance_unit: str = "margin",
        anneal: str | Sequence[float] = "auto",
        init: Any = "auto",
        n_init: int | None = None,
        tol: float = 0.01,
        max_iter: int | None = None,
        mode: str = "default",
        cut_tol: float | None = None,
        cccp_tol: float | None = None,
        multiway: str = "joint",
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
        self.method = method
        self.n_landmarks = n_landmarks
        self.C = C
        self.threshold = threshold
        self.balance = balance
        self.balance_unit = balance_unit
        self.anneal = anneal
        self.init = init
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.mode = mode
        self.cut_tol = cut_tol
        self.cccp_tol = cccp_tol
        self.multiway = multiway
        self.min_cluster_size = min_cluster_size
        self.max_cluster_size = max_cluster_size
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_kernel()
        check_choice("method", self.method, ("auto", "exact", "nystroem"))
        if self.n_landmarks is not None:
            check_count("n_landmarks", self.n_landmarks, low=2)
        if self.method == "nystroem" and self.kernel == "precomputed":
            raise ValueError(
                "method='nystroem' needs rows as landmarks, but kernel='precomputed'. Use "
                "method='exact', or give rows and the name of a kernel."
            )

    def _gamma_rule(self) -> Any:
        is_gaussian = isinstance(self.kernel, str) and self.kernel == "rbf"
        is_paper = self.mode == "paper" and is_gaussian
        return "rms" if is_paper and self._is_width_open() else super()._gamma_rule()

    def _adopts_trial(self, n: int) -> bool:
        return self._is_exact(n)

    def _n_clusters_at_once(self) -> int:
        return int(self.n_clusters) if self._is_joint() else 2

    def _is_exact(self, n: int) -> bool:
        if self.method != "auto":
            return self.method == "exact"
        is_small = n * self._n_clusters_at_once() <= EXACT_UP_TO
        return is_small or self.mode == "paper" or self.kernel == "precomputed"

    def _count_of_landmarks(self) -> int:
        if self.n_landmarks is not None:
            return self.n_landmarks
        return max(N_LANDMARKS, LANDMARKS_PER_CLUSTER * self._n_clusters_at_once())

    def _is_linear(self) -> bool:
        return False  # kernel="linear" has dual coefficients, too

    def _feature_space(self, X: Any, weights: NDArray | None) -> LinearSpace | KernelSpace:
        is_paper = self.mode == "paper" and self.method == "auto"
        if is_paper or self.method == "exact":
            name = "KernelCPMMC(mode='paper')" if is_paper else "KernelCPMMC(method='exact')"
            remedy = "nystroem" if is_paper else "auto"
            why = f"it needs the whole kernel matrix; use method={remedy!r}"
            require_in_memory(X, name, why)
        n = X.shape[0]
        if self._is_exact(n) and is_in_memory(X):
            return super()._feature_space(X, weights)
        # Landmarks are drawn at random: to find them by k-means would take longer than the fit.
        n_counted = n if weights is None else int(np.count_nonzero(weights))
        count = min(self._count_of_landmarks(), n_counted)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        feature_map = NystroemMap(
            landmarks=drawn_rows(n, weights, count, rng), **self._kernel_arguments(X, weights)
        ).fit(X)
        return LandmarkSpace(feature_map, features_of(feature_map, X), weights)

    def _publish(self, inputs: MarginInputs, result: MarginResult) -> None:
        super()._publish(inputs, result)
        if isinstance(inputs.space, KernelSpace):
            self.dual_coef_ = self._hyperplane.coef
            self.intercept_ = np.atleast_1d(self._hyperplane.intercept)
        else:
            self.intercept_ = np.atleast_1d(self._hyperplane.linear.intercept)
