"""CPMMC: cutting-plane maximum margin clustering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmar.base import WeightedClusterer
from volmar.base.views import ViewsMixin
from volmar.margin.clusterer import MarginClusterer, MarginInputs
from volmar.margin.engine.descent import MarginResult
from volmar.margin.feature_space.linear import LinearSpace, linear_space
from volmar.margin.guided import GuidedMarginMixin


class CPMMC(ViewsMixin, GuidedMarginMixin, WeightedClusterer, MarginClusterer):
    r"""Cutting-plane maximum margin clustering, linear (Wang et al. 2010; Wu and Zhang, SKMMC).

    Finds the hyperplane with the widest soft margin over all labels:

    .. math:: \min_{w, t, \rho \ge 0} \; \tfrac12 \|w\|^2 - \rho
              + \frac{C}{n} \sum_i \max(0, \rho - |f_i|),
              \qquad f_i = w'(x_i - \bar x) + t, \quad |t| \le b \rho

    (SKMMC eq. 10, centred; ``threshold="fixed"`` has :math:`\rho = 1`, eq. 9). About one in
    C of the rows is inside the margin, so that C has no units. A handful of passes over X.

    More than two clusters are found at once (`multiway`), by the hinge of Crammer and Singer:

    .. math:: \min_{w, \rho \ge 0, y} \; \tfrac12 \sum_p \|w_p\|^2 - \rho + C \sum_i p_i
              \max\bigl(0, \rho - (f_{i y_i} - \max_{r \ne y_i} f_{ir})\bigr),
              \qquad f_{ip} = w_p'(x_i - \bar x) + \rho \beta_p

    where no cluster of y is smaller than `min_cluster_size`. The shares :math:`p_i`, of the mean
    too, give all clusters of the start the same weight, and :math:`\beta` are the offsets of the
    start's rule of the nearest mean, in units of the margin.

    Parameters
    ----------
    n_clusters : int or "auto", default=2
        Number of clusters. For more than two see above and `multiway`. "auto" splits again,
        whatever `multiway` is, but only where held-out rows confirm that there is more than one
        group (see `volmar.evidence.split_test` and `tree_`).
    C : float, optional
        Weight of margin errors; if None, 2 (the paper's 10 with mode="paper"). With the adaptive
        threshold at least 1 / (1 - balance); about 1 / C of the rows are inside the margin there.
        Large values chase thin gaps.
    threshold : {"adaptive", "fixed"}, default="adaptive"
        Whether the margin :math:`\rho` is found (SKMMC's Algorithm 1), or is 1 (the original
        CPMMC), where C depends on the scale of X.
    balance : float, optional
        b: how far from 0 the mean score may be. 0 puts it at 0. If not given it is 0.05, and
        clusters of unequal size may count as balanced (see Notes and `balance_`); with
        mode="paper" it is 0, and no sizes are taken from the start.
    balance_unit : {"margin", "score"}, default="margin"
        Whether `balance` is in units of :math:`\rho` or of f; the papers' l is n times the
        latter. With mode="paper" and with the fixed threshold it is the latter always.
    anneal : "auto" or tuple of float, default="auto"
        Values below C to pass through first, from one near 1, where most starts lead to the same
        labels: 1.2, 3, 7.5 and so on, those given, or none, (). "auto" is 2, 5, 12.5 and so on for
        more than two clusters: at lower ones whole clusters are given up.
    init : {"auto", "k-means", "random"}, array (n_samples,) or fitted clusterer, default="auto"
        "auto": k-means and ``n_init - 1`` random directions, of which the one with the lowest
        objective at C = 1.2 goes on, on at most 2000 rows; k-means also with clusters of its own
        sizes where `balance` is not given (see Notes). "k-means": that one alone. "random":
        random directions. Or the labels to start from. For more than two clusters "auto" is
        "k-means", with centres from 2000 rows or 100 for each cluster, and "random" is refused.
        With mode="paper" the fit begins at the labels themselves: those given, of one run of
        k-means ("auto", too), or half of the rows drawn at random ("random"). A fitted clusterer
        of the same columns: the clusters that it predicts are the start, where there are
        `n_clusters`, and clusters keep its numbers where they match.
    n_init : int, optional
        Starts to compare, 4 if not given. With more than two clusters runs of k-means, 10 if not
        given, of which the one with the smallest sum of squares is the start.
    tol : float, default=0.01
        Certified gap, relative to the objective, at which to stop.
    max_iter : int, optional
        Maximum number of steps (default 1000); with mode="paper" of relabellings, and of cuts for
        each (default 100).
    mode : {"default", "paper"}, default="default"
        "paper": Algorithm 1 of SKMMC as printed (misprints corrected), from the labels of `init`,
        without annealing; `tol`, `anneal` and `n_init` are not used. Where the cuts of an inner
        loop leave w = 0, as those of random labels do (eq. 14 is then 0/0), labels are those of
        the hyperplane before, and ``result_.n_degenerate`` counts it.
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
        "cosine": the method, `coef_` included, sees rows of unit length; sparse X of more than
        1000 columns as text (idf, singular vectors). See the page *Embeddings and text*.
    text_components : int, "auto" or None, default="auto"
        Singular vectors to which metric="cosine" reduces sparse rows. "auto": 100 for more than
        1000 columns, otherwise no reduction. None: no reduction.
    views : list of column groups, optional
        Several views of each row: slices, column numbers or names, or masks, as in scikit-learn's
        ColumnTransformer. Each view counts the same (see `row_map_` and *Embeddings and text*).
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
    tree_ : SplitTree
        The splits, with multiway="recursive" or n_clusters="auto"; what belongs to one hyperplane
        is then found at ``tree_.splits()[i].model``, not here.
    coef_ : ndarray of shape (1, n_features) or (n_clusters, n_features)
        w in units of the margin.
    intercept_ : ndarray of shape (1,) or (n_clusters,)
        Offset; cluster 1 is where ``X @ coef_[0] + intercept_[0] > 0``, and one of more than two
        clusters where its ``X @ coef_[p] + intercept_[p]`` is the largest.
    balance_ : tuple of float
        Shares of the rows (of their weight) in cluster 0 and 1 that count as balanced: halves, or
        the sizes that ``balance=None`` took from the start. Only where there are two clusters.
    status_ : Status
        How the descent ended.
    objective_ : float
        The minimised objective, below 0 with the adaptive threshold. It compares starts, not
        values of C, scalings or kernels.
    result_ : MarginResult
        Certified result: with the labels found no hyperplane is better by more than `gap`;
        `n_passes` counts products with X.
    n_iter_ : int
        Steps.
    previous_clusters_ : ndarray of shape (n_clusters,)
        Where `init` is a fitted clusterer, its cluster that each one continues; -1 for a new one.
    row_map_ : RowMap or ViewMap
        The map of rows with metric="cosine" or `views`; only then.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    KernelCPMMC : The same in the feature space of a kernel.
    MSPC : Separation probability in place of the margin; does not depend on the features' scales.

    Notes
    -----
    `decision_function` is in units of the margin: rows beyond -1 and 1 are outside of it. Of more
    than two clusters a row is outside where the largest score is 1 above the others.

    The papers' nested loops ask for a precision of the inner one. Here its lower bound says when a
    relabelling is worth more than another cut (see `volmar.margin.maximise_margin`), and the
    objective never rises. The objective :math:`J_o` that the paper stops on may rise.

    *Unequal sizes.* A mean score near 0 puts about half of the weight on either side. With
    ``balance=None`` the k-means start (or the labels of `init`) is therefore tried twice: with
    halves, as all starts are, and with weights that give both of its sides the same. The latter
    is taken where it separates more: with the shares r of its sides and the mean distance m to
    the border of the nearest half of the weight, :math:`4 r_0 r_1 m^2` must be larger by a
    quarter, and the same with all of the weight no smaller. The problem above is then solved with
    these weights in place of 1/n, in the mean of the rows, too: C is read as before, and
    objective, gap and residuals are those of the weighted problem.

    *Many rows.* From 50,000 rows on, where 100 rows for each feature are at most a quarter of all,
    the descent is made on a twentieth of the rows first. All rows begin at its hyperplane, with
    the cuts that they have at the hyperplanes of its last cuts: a few passes over X are left.
    Objective and certificate are those of all rows. Clear clusters are the same; where several
    labellings are about as good, it may be another of them.

    With more than two clusters a row goes to the largest :math:`f_{ip} + b_p`. The offsets b are 0
    unless a cluster would be too small, and no part of the hinge. The objective belongs to the
    start, whose shares and offsets it has: it does not compare starts. C = 2 and the default
    minimum size were set on spoken letters, waves, letters K to P and artificial groups.
    `threshold`, `balance`, `balance_unit` and `mode` have no other value than the default there.

    The margin has the units of X: scale features that have different ones. The values C = 2 and
    b = 0.05 come from a prototype that saw labels; on sets that it had not seen it did not
    beat k-means on average.

    *Labels of some rows, links, sizes.* With any of them (see `fit`) the clusters are found
    without them first; then the descent begins at these clusters, at labels that spread from the
    given ones, or both. Every relabelling takes the labels with the lowest loss among those that
    are allowed: a row with a given label has the hinge of this label on whichever side it is, as
    in a support vector machine. ``anneal="auto"`` passes through no other values of C where the
    start has a margin at C, and ``C=None`` is 10 where it is not the clusters found without. The
    certificate is that of the labels, given ones included. ``mode="paper"`` takes none of these.

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
        n_clusters: int | str = 2,
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
        alpha: float = 0.05,
        max_clusters: int | None = None,
        metric: str = "euclidean",
        text_components: int | str | None = "auto",
        views: Sequence[Any] | None = None,
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
        self.alpha = alpha
        self.max_clusters = max_clusters
        self.metric = metric
        self.text_components = text_components
        self.views = views
        self.random_state = random_state

    def _splits_by_hyperplanes(self) -> bool:
        return True

    def _feature_space(self, X: Any, weights: NDArray | None) -> LinearSpace:
        return linear_space(X, weights)

    def _publish(self, inputs: MarginInputs, result: MarginResult) -> None:
        super()._publish(inputs, result)
        self.coef_ = np.atleast_2d(self._hyperplane.coef.T)
        self.intercept_ = np.atleast_1d(self._hyperplane.intercept)
