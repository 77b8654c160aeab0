"""CPMMC: cutting-plane maximum margin clustering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmar.base.clusterer import WeightedClusterer
from volmar.margin.clusterer import GuidedMarginMixin, MarginClusterer, MarginInputs
from volmar.margin.engine.descent import MarginResult
from volmar.margin.feature_space.linear import LinearSpace, linear_space


class CPMMC(GuidedMarginMixin, WeightedClusterer, MarginClusterer):
    r"""Cutting-plane maximum margin clustering, linear (Wang et al. 2010; Wu and Zhang, SKMMC).

    Finds the hyperplane with the widest soft margin over all labels:

    .. math:: \min_{w, t, \rho \ge 0} \; \tfrac12 \|w\|^2 - \rho
              + \frac{C}{n} \sum_i \max(0, \rho - |f_i|),
              \qquad f_i = w'(x_i - \bar x) + t, \quad |t| \le b \rho

    (SKMMC eq. 10, centred; ``threshold="fixed"`` sets :math:`\rho = 1`, eq. 9). About 1 / C of the
    rows are inside the margin, so C has no units. A fit takes only a few passes over X.

    More than two clusters are found at once (`multiway`), by the hinge of Crammer and Singer:

    .. math:: \min_{w, \rho \ge 0, y} \; \tfrac12 \sum_p \|w_p\|^2 - \rho + C \sum_i p_i
              \max\bigl(0, \rho - (f_{i y_i} - \max_{r \ne y_i} f_{ir})\bigr),
              \qquad f_{ip} = w_p'(x_i - \bar x) + \rho \beta_p

    where no cluster of y is smaller than `min_cluster_size`. The row weights :math:`p_i`, also
    used in the mean, give all clusters of the start the same weight. The :math:`\beta_p` are the
    offsets of the nearest-mean rule of the start, in units of the margin.

    Parameters
    ----------
    n_clusters : int, default=2
        Number of clusters. For more than two see above and `multiway`.
    C : float, optional
        Weight of margin errors. If None, 2 (the paper's 10 with mode="paper"). With the adaptive
        threshold C must be at least 1 / (1 - balance), and about 1 / C of the rows are inside the
        margin. Large values favour thin gaps.
    threshold : {"adaptive", "fixed"}, default="adaptive"
        With "adaptive", the margin :math:`\rho` is optimised (SKMMC's Algorithm 1). With "fixed",
        it is 1 (the original CPMMC), and the effect of C depends on the scale of X.
    {margin:balance}
    {balance_unit}
    anneal : "auto" or tuple of float, default="auto"
        Smaller values of C for which the problem is solved first, in ascending order. For values
        near 1 most starts lead to the same labels. "auto" means 1.2, 3, 7.5 and so on, or 2, 5,
        12.5 and so on for more than two clusters, because smaller values give up whole clusters.
        The empty tuple means none.
    init : {"auto", "k-means", "random"}, array (n_samples,) or fitted clusterer, default="auto"
        Start of the descent. "k-means": k-means. "random": random directions. "auto": k-means and
        ``n_init - 1`` random directions. Several starts are compared on at most 2000 rows, and the
        one with the lowest objective at C = 1.2 is used. If `balance` is None, k-means is also
        tried with the cluster sizes that it found (see Notes). For more than two clusters "auto"
        is "k-means", with centres from 2000 rows or 100 rows per cluster, and "random" is refused.
        With mode="paper" the fit starts from labels as they are: the given ones, those of one run
        of k-means ("auto" and "k-means"), or a random half of the rows ("random"). An array holds
        the labels to start from. A fitted clusterer of the same columns starts the fit from the
        clusters that it predicts, if there are `n_clusters` of them; matching clusters keep its
        numbers.
    {margin:n_init}
    {margin:tol}
    {margin:max_iter}
    mode : {"default", "paper"}, default="default"
        "paper" is Algorithm 1 of SKMMC as printed (misprints corrected), from the labels of `init`
        and without annealing; `tol`, `anneal` and `n_init` are not used. If the cuts of an inner
        loop give w = 0, as those of random labels do (eq. 14 is then 0/0), the labels of the
        previous hyperplane are kept, and ``result_.n_degenerate`` counts such loops.
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
        Random seed of the starts.

    Attributes
    ----------
    {labels_}
    {classes_}
    {broken_links_}
    {multiway:tree_}
    coef_ : ndarray of shape (1, n_features) or (n_clusters, n_features)
        w in units of the margin.
    intercept_ : ndarray of shape (1,) or (n_clusters,)
        Intercept. For two clusters, rows with ``X @ coef_[0] + intercept_[0] > 0`` are in cluster
        1. For more than two, a row is in the cluster p with the largest
        ``X @ coef_[p] + intercept_[p]``.
    {margin:balance_}
    status_ : Status
        How the descent ended.
    objective_ : float
        Objective at the solution, below 0 with the adaptive threshold. It can be compared between
        starts, but not between values of C, scalings or kernels.
    result_ : MarginResult
        Certified result: for the labels found, no hyperplane is better by more than `gap`.
        `n_passes` is the number of products with X.
    n_iter_ : int
        Number of steps.
    {previous_clusters_}
    n_features_in_ : int
        Number of features.

    See Also
    --------
    KernelCPMMC : The same in the feature space of a kernel.
    MSPC : Separation probability in place of the margin; does not depend on the features' scales.

    Notes
    -----
    `decision_function` is in units of the margin: rows with scores below -1 or above 1 are outside
    the margin. For more than two clusters, a row is outside if its largest score exceeds the
    others by 1.

    The papers' nested loops need a tolerance for the inner loop. Here a lower bound decides when a
    relabelling lowers the objective more than another cut,
    and the objective never rises. The objective :math:`J_o` of the paper's stopping test may rise.

    *Unequal sizes.* A mean score near 0 puts about half of the weight on each side. With
    ``balance=None`` the k-means start (or the labels of `init`) is therefore tried twice: with
    halves, as all starts are, and with weights that make both of its sides equally heavy. The
    latter is used if it separates better. Let r be the shares of the two sides, and m the mean
    distance to the border of the nearest half of the weight. Then :math:`4 r_0 r_1 m^2` must be
    larger by a quarter, and the same criterion with all of the weight must not be smaller. The
    problem above is then solved with these weights in place of 1/n, also in the mean of the rows.
    C keeps its meaning; objective, gap and residuals are those of the weighted problem.

    *Many rows.* With at least 50,000 rows and at least 400 rows per feature, the descent first
    runs on a sample of 5 % of the rows (at least 100 rows per feature). The descent on all rows
    starts from the hyperplane found, with cuts computed at the hyperplanes of its last cuts, and
    needs only a few passes over X. Objective and certificate are those of all rows. Clear clusters
    do not change. If several labellings are about equally good, the result may be a different one
    of them.

    *More than two clusters.* A row is in the cluster with the largest :math:`f_{ip} + b_p`. The
    offsets b are 0 unless a cluster would be too small, and they do not enter the hinge. The
    objective uses weights and offsets of the start, and cannot be compared between starts. C = 2
    and the default minimum size were chosen on spoken letters, waves, letters K to P and
    artificial groups. `threshold`, `balance`, `balance_unit` and `mode` must have their default
    values.

    The margin has the units of X: scale the features if their units differ. The values C = 2 and b
    = 0.05 come from a prototype that was tuned with labels. On data sets not used for tuning it
    did not beat k-means on average.

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
    F. Wang, B. Zhao, C. Zhang (2010), Linear time maximum margin clustering, IEEE Trans. Neural
    Networks 21. J. Wu, X.-L. Zhang (2012), Sparse kernel maximum margin clustering, Neural
    Network World 22. B. Zhao, F. Wang, C. Zhang (2008), Efficient multiclass maximum margin
    clustering, ICML. K. Crammer, Y. Singer (2001), On the algorithmic implementation of multiclass
    kernel-based vector machines, JMLR 2.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from volmar import CPMMC
    >>> from volmar.metrics import clustering_error
    >>> digits = load_digits()
    >>> pair = (digits.target == 2) | (digits.target == 7)
    >>> model = CPMMC(C=10, random_state=0).fit(digits.data[pair])
    >>> bool(clustering_error(digits.target[pair], model.labels_) < 0.01)
    True
    >>> bool(model.result_.gap <= 0.01 * abs(model.objective_))
    True
    """

    _takes_blocks = True

    def __init__(
        self,
        n_clusters: int = 2,
        *,
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

    def _feature_space(self, X: Any, weights: NDArray | None) -> LinearSpace:
        return linear_space(X, weights)

    def _publish(self, inputs: MarginInputs, result: MarginResult) -> None:
        super()._publish(inputs, result)
        self.coef_ = np.atleast_2d(self._hyperplane.coef.T)
        self.intercept_ = np.atleast_1d(self._hyperplane.intercept)
