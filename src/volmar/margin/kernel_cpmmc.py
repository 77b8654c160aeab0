"""Kernel CPMMC: cutting-plane maximum margin clustering in the feature space of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmar.base import WeightedClusterer
from volmar.base.blocks import require_in_memory
from volmar.base.kernel import N_LANDMARKS
from volmar.base.kernel_width import GammaWidth
from volmar.margin.clusterer import MarginClusterer, MarginInputs
from volmar.margin.engine.descent import MarginResult
from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.feature_space.linear import LinearSpace
from volmar.margin.feature_space.representation import KernelRepresentation
from volmar.margin.guided import GuidedMarginMixin

# Rows times clusters up to which method="auto" takes the whole kernel matrix.
EXACT_UP_TO = 5000
LANDMARKS_OF_A_CLUSTER = 10


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
    n_clusters : int or "auto", default=2
        Number of clusters. For more than two see above and `multiway`. "auto": as many as held-out
        rows confirm, by splitting again; a split is tested by the distances of rows to its
        border (see `volmar.evidence.split_test` and `tree_`).
    kernel : str or callable, default="rbf"
        Name of a scikit-learn kernel, a function of two matrices, or "precomputed".
    gamma : float, str or None, default="auto"
        Kernel coefficient of "rbf", "polynomial", "sigmoid", "laplacian" and "chi2". "scale" is 1
        / (n_features * variance of X), "4*scale" and "scale/4" are multiples of it; None is 1 /
        n_features. "auto" chooses the width of "rbf", see Notes; it is "scale" for other kernels
        and where `init` holds labels, and "rms" (sec. 5.1 of the paper, see `SKMMC`) for
        mode="paper". Other kernels have no use for gamma.
    degree : float, default=3
        Degree of the polynomial kernel, at least 1.
    coef0 : float, default=1
        Constant of the polynomial and sigmoid kernels.
    kernel_params : dict, optional
        Further arguments of a callable kernel.
    method : {"auto", "exact", "nystroem"}, default="auto"
        "exact": the whole kernel matrix, quadratic in the number of rows. "nystroem":
        `n_landmarks` rows, drawn at random, represent the feature space; linear. "auto": exact
        where rows times clusters are at most 5,000 (2,500 rows of two clusters), for a
        precomputed kernel and for mode="paper", landmarks otherwise.
    n_landmarks : int, optional
        Landmarks; if not given 100, and at least ten for each cluster.
    C : float, optional
        Weight of margin errors; if None, 2 (the paper's 10 with mode="paper"). With the adaptive
        threshold at least 1 / (1 - balance); about 1 / C of the rows are inside the margin there.
    threshold : {"adaptive", "fixed"}, default="adaptive"
        Whether the margin :math:`\rho` is found, or is 1.
    balance : float, optional
        b: how far from 0 the mean score may be. 0 puts it at 0. If not given it is 0.05, and
        clusters of unequal size may count as balanced (see Notes and `balance_`); with
        mode="paper" it is 0, and no sizes are taken from the start.
    balance_unit : {"margin", "score"}, default="margin"
        Whether `balance` is in units of :math:`\rho` or of f; the papers' l is n times the
        latter. With mode="paper" and with the fixed threshold it is the latter always.
    anneal : "auto" or tuple of float, default="auto"
        Values below C to pass through first: 1.2, 3, 7.5 and so on (2, 5, 12.5 for more than two
        clusters), those given, or none, ().
    init : {"auto", "k-means", "random"}, array (n_samples,) or fitted clusterer, default="auto"
        "auto": k-means (of the rows; of the landmarks' features; the leading kernel principal
        component where the kernel is precomputed) and ``n_init - 1`` random directions, of which
        the one with the lowest objective at C = 1.2 goes on. "k-means": that one alone. "random":
        random directions. Or the labels to start from. For more than two clusters "auto" is
        "k-means", with centres from 2000 rows or 100 for each cluster (of the leading kernel
        principal components where the kernel is precomputed), and "random" is refused. With
        mode="paper" the fit begins at the labels themselves: those given, of one run of k-means
        ("auto", too), or half of the rows drawn at random ("random"). A fitted clusterer of the
        same columns: the clusters that it predicts are the start, where there are `n_clusters`,
        with the `gamma_` that it has found, and clusters keep its numbers where they match.
    n_init : int, optional
        Starts to compare, 4 if not given. With more than two clusters runs of k-means, 10 if not
        given, of which the one with the smallest sum of squares is the start.
    tol : float, default=0.01
        Certified gap, relative to the objective, at which to stop.
    max_iter : int, optional
        Maximum number of steps (default 1000); with mode="paper" of relabellings, and of cuts for
        each (default 100).
    mode : {"default", "paper"}, default="default"
        "paper": Algorithm 2 (misprints corrected), from the labels of `init`, without annealing;
        `tol`, `anneal` and `n_init` are not used. Where the cuts of an inner loop leave w = 0,
        as for `CPMMC`.
    cut_tol : float, optional
        The paper's :math:`\eta` (eq. 13), 0.01 if not given. Only with mode="paper".
    cccp_tol : float, optional
        The paper's :math:`\epsilon` (eq. 15), 0.1 if not given. Only with mode="paper".
    multiway : {"joint", "recursive"}, default="joint"
        How more than two clusters are found: all at once, or by splitting in two again.
    min_cluster_size : int, float or array of shape (n_clusters,), optional
        Minimum cluster size, for n_clusters > 2 and multiway="joint": a count (or total weight) or
        a share of all rows, at most 1 / n_clusters. Half the size of the smallest cluster of the
        start if not given. Without a minimum clusters would become empty. One for each cluster,
        and one beside `max_cluster_size`, is a limit for any number of clusters.
    max_cluster_size : int, float or array of shape (n_clusters,), optional
        Maximum cluster size: a count (or total weight), a share of all rows, or one for each
        cluster (in the order of `classes_` where `fit` is given labels).
    alpha : float, default=0.05
        Level of the tests of n_clusters="auto" (not used otherwise): the probability of any split
        too many. From 0.001, for which tests take longer, to 0.5.
    max_clusters : int, optional
        Maximum number of clusters, only with n_clusters="auto"; no limit if not given. The
        strongest splits are made first, and a warning is given where others are left.
    metric : {"euclidean", "cosine"}, default="euclidean"
        "cosine": the method sees rows of unit length; sparse X of more than 1000 columns as text
        (idf, singular vectors). See the page *Embeddings and text*.
    text_components : int, "auto" or None, default="auto"
        Singular vectors to which metric="cosine" reduces sparse rows. "auto": 100 for more than
        1000 columns, otherwise no reduction. None: no reduction.
    views : list of column groups, optional
        Several views of each row: slices, column numbers or names, or masks, as in scikit-learn's
        ColumnTransformer. Each view counts the same (see `row_map_` and *Embeddings and text*).
    random_state : int, RandomState or None, default=None
        Seed of starts and landmarks.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row, by size: 0 is the largest.
    classes_ : ndarray of shape (n_clusters,)
        Names of the clusters, which `labels_` holds; only where `fit` was given labels of rows.
    broken_links_ : ndarray of shape (n_pairs, 2)
        Pairs of `cannot_link` in one cluster; only where `fit` was given any.
    tree_ : SplitTree
        The splits, with multiway="recursive"; what belongs to one hyperplane is then found at
        ``tree_.splits()[i].model``, not here.
    dual_coef_ : ndarray of shape (n_samples,) or (n_samples, n_clusters)
        Coefficients of k(x_j, x) in units of the margin, of sum zero; only for method="exact".
    intercept_ : ndarray of shape (1,) or (n_clusters,)
        Constant of the decision function.
    balance_ : tuple of float
        Shares of the rows (of their weight) in cluster 0 and 1 that count as balanced: halves, or
        the sizes that ``balance=None`` took from the start. Only where there are two clusters.
    gamma_ : float or None
        Kernel coefficient that was used; None for kernels without one.
    cut_ : float
        Ratio cut of the clusters by which widths were compared; only where they were.
    status_ : Status
        How the descent ended.
    objective_ : float
        The minimised objective. It compares starts, not values of C or kernels.
    result_ : MarginResult
        Certified result: with the labels found no hyperplane is better by more than `gap`.
    n_iter_ : int
        Steps.
    previous_clusters_ : ndarray of shape (n_clusters,)
        Where `init` is a fitted clusterer, its cluster that each one continues; -1 for a new one.
    row_map_ : RowMap or ViewMap
        The map of rows with metric="cosine" or `views`; only then.
    n_features_in_ : int
        Number of features (of training rows, with kernel="precomputed").

    See Also
    --------
    CPMMC : Linear, for many rows.
    SKMMC : A few basis vectors in place of the kernel matrix.

    Notes
    -----
    *Width of the kernel.* gamma="auto" tries "scale" and kernels half as wide, a quarter and so
    on, at most four, until they are narrower than half of a neighbourhood of the rows. In many
    columns a neighbourhood is nearly as wide as all rows, and "scale" is the only one. Starts are
    the method's own and two clusterings of a graph of nearest neighbours. All clusters found are
    compared by what they cut in that graph: the ratio cut of similarities that are weighted by the
    density, which depends on the rows and labels alone. The widest kernel is taken whose clusters
    cut at most 1.5 times as much as the best clusters known, those of the graph included. Clusters
    of less than 0.04 / n_clusters of the rows count as outliers, and the wide kernels do not start
    from a clustering of the graph to clusters of less than half of n / n_clusters rows. At most
    1000 rows are compared, drawn at random; the fit to more rows starts from the best clusters.

    `decision_function` is in units of the margin. Equation 24 of the paper for :math:`\rho` is 0/0
    wherever there are margin errors; here :math:`\rho` is a multiplier of the quadratic programme.

    *Unequal sizes.* With ``balance=None`` both sides of a start of unequal size get the same
    weight where that has the wider margin; see `CPMMC`. Under kernels with k(x, x) = 1 a clear
    gap decides (see `volmar.margin.engine.unequal_sizes`).

    *Labels of some rows, links, sizes.* With any of them (see `fit`) the clusters are found
    without them first; then the descent begins at these clusters, at labels that spread from the
    given ones, or both. Every relabelling takes the labels with the lowest loss among those that
    are allowed: a row with a given label has the hinge of this label on whichever side it is, as
    in a support vector machine. ``anneal="auto"`` passes through no other values of C where the
    start has a margin at C, and ``C=None`` is 10 where it is not the clusters found without. The
    certificate is that of the labels, given ones included. ``mode="paper"`` takes none of these.

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
    _methods = ("auto", "exact", "nystroem")
    _chooses_landmarks = True

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
        alpha: float = 0.05,
        max_clusters: int | None = None,
        metric: str = "euclidean",
        text_components: int | str | None = "auto",
        views: Sequence[Any] | None = None,
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
        self.alpha = alpha
        self.max_clusters = max_clusters
        self.metric = metric
        self.text_components = text_components
        self.views = views
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_representation()

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
        return max(N_LANDMARKS, LANDMARKS_OF_A_CLUSTER * self._n_clusters_at_once())

    def _is_linear(self) -> bool:
        return False  # kernel="linear" has dual coefficients, too

    def _feature_space(self, X: Any, weights: NDArray | None) -> LinearSpace | KernelSpace:
        is_paper = self.mode == "paper" and self.method == "auto"
        if is_paper or self.method == "exact":
            name = "KernelCPMMC(mode='paper')" if is_paper else "KernelCPMMC(method='exact')"
            remedy = "nystroem" if is_paper else "auto"
            why = f"it needs the whole kernel matrix; use method={remedy!r}"
            require_in_memory(X, name, why)
        return super()._feature_space(X, weights)

    def _publish(self, inputs: MarginInputs, result: MarginResult) -> None:
        super()._publish(inputs, result)
        if isinstance(inputs.space, KernelSpace):
            self.dual_coef_ = self._hyperplane.coef
            self.intercept_ = np.atleast_1d(self._hyperplane.intercept)
        else:
            self.intercept_ = np.atleast_1d(self._hyperplane.linear.intercept)
