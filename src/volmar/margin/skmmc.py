"""SKMMC: sparse kernel maximum margin clustering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from volmar._checks import check_random_state
from volmar._memory import require_memory
from volmar.base import WeightedClusterer
from volmar.base.blocks import require_in_memory
from volmar.base.kernel import KernelMixin
from volmar.base.kernel_width import GammaWidth
from volmar.base.validation import check_choice, check_count
from volmar.base.warn import warn_user
from volmar.margin.clusterer import MarginClusterer, MarginInputs
from volmar.margin.engine.descent import MarginResult
from volmar.margin.engine.sparse_nested import printed_sparse_loop
from volmar.margin.feature_space.basis import BasisSpace, SpannedBasisSpace
from volmar.margin.feature_space.basis_search import FAR
from volmar.margin.feature_space.linear import span_of
from volmar.margin.feature_space.printed_basis import PrintedBasisSpace
from volmar.margin.guided import GuidedMarginMixin
from volmar.rows import as_rows

# Basis vectors where their number is not given.
MAX_BASIS = 50
# Digits of a gamma that follows from the rows by a rule.
GAMMA_DIGITS = 12


class SKMMC(GuidedMarginMixin, GammaWidth, KernelMixin, WeightedClusterer, MarginClusterer):
    r"""Sparse kernel maximum margin clustering (Wu and Zhang).

    The problem of `KernelCPMMC` under the Gaussian kernel
    :math:`k(x, y) = \exp(-\gamma \|x - y\|^2)`, with w in the span of a few basis vectors
    :math:`\phi(b)` that are found on the way (cutting-plane subspace pursuit, eq. 27):

    .. math:: \min_{w, t, \rho \ge 0} \; \tfrac12 \|w\|^2 - \rho
              + \frac{C}{n} \sum_i \max(0, \rho - |f_i|), \qquad
              f(x) = \sum_k \beta_k k(b_k, x) + const, \quad |t| \le b \rho

    Time and memory are linear in the number of rows, and so is the cost of a prediction in that
    of basis vectors.

    Parameters
    ----------
    n_clusters : int or "auto", default=2
        Number of clusters. More than 2 are found by splitting again: the part whose split
        separates best is split next (see `tree_`). "auto": only where held-out rows confirm the
        split, by their distances to its border (see `volmar.evidence.split_test`).
    gamma : float, str or None, default="auto"
        Kernel coefficient. "scale" is 1 / (n_features * variance of X), "4*scale" and "scale/4"
        are multiples of it; None is 1 / n_features. "rms" is the kernel whose standard deviation
        is the root of the mean squared distance of two rows, the middle of the paper's grid: about
        "scale/4". "auto" chooses the width, see Notes; it is "rms" for mode="paper" and "scale"
        where `init` holds labels.
    basis : {"split", "single"}, optional
        How basis vectors are found for each cut: "split", one at a mode of the rows of either sign
        (mean shift, which cannot diverge); "single", one for both, by the paper's Algorithm 4,
        whose weights have both signs: where it diverges it starts anew, and `n_diverged_` counts.
        If None, "split" (the paper's "single" with mode="paper", which has no other).
    n_basis : int, optional
        Basis vectors for each part of a cut (N of Algorithm 4), 1 if not given. With gamma="auto"
        a kernel that is m times narrower than "scale" has m: a cluster that is long beside the
        kernel has a mean that no single vector is near to.
    max_basis : int, optional
        Maximum number of basis vectors. More of them find a slightly lower objective, at a cost
        that grows with their number. If None, 50 (no limit but `max_iter` with mode="paper").
    C : float, optional
        Weight of margin errors; if None, 2 (the paper's 10 with mode="paper"). With the adaptive
        threshold at least 1 / (1 - balance); about 1 / C of the rows are inside the margin there.
    threshold : {"adaptive", "fixed"}, default="adaptive"
        Whether the margin :math:`\rho` is found, or is 1 (the paper's SKMMCv2).
    balance : float, optional
        b: how far from 0 the mean score may be. 0 puts it at 0. If not given it is 0.05, and
        clusters of unequal size may count as balanced (see Notes and `balance_`); with
        mode="paper" it is 0, and no sizes are taken from the start.
    balance_unit : {"margin", "score"}, default="margin"
        Whether `balance` is in units of :math:`\rho` or of f; the paper's l is n times the latter.
        With mode="paper" and with the fixed threshold it is the latter always.
    anneal : "auto" or tuple of float, default="auto"
        Values below C to pass through first: 1.2, 3, 7.5 and so on, those given, or none, ().
    init : {"auto", "k-means", "random"}, array (n_samples,) or fitted clusterer, default="auto"
        As for `CPMMC`; a fitted clusterer also gives the `gamma_` that it has found.
    n_init : int, default=4
        Starts to compare.
    tol : float, default=0.01
        Certified gap, relative to the objective, at which to stop.
    max_iter : int, optional
        Maximum number of steps (default 1000); with mode="paper" of relabellings, and of cuts for
        each (default 100).
    mode : {"default", "paper"}, default="default"
        "paper": Algorithm 3 (Appendix B for the fixed threshold) with Algorithm 4, in the paper's
        setting, from the labels of `init`; see Notes. `tol`, `anneal` and `n_init` are not used.
    cut_tol : float, optional
        The paper's :math:`\eta` (eq. 13), 0.01 if not given; 1 for large data. Only with
        mode="paper".
    cccp_tol : float, optional
        The paper's :math:`\epsilon` (eq. 15), 0.1 if not given; 0.3 for large data. Only with
        mode="paper".
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
    random_state : int, RandomState or None, default=None
        Seed of starts and searches.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row, by size: 0 is the largest.
    classes_ : ndarray of shape (n_clusters,)
        Names of the clusters, which `labels_` holds; only where `fit` was given labels of rows.
    broken_links_ : ndarray of shape (n_pairs, 2)
        Pairs of `cannot_link` in one cluster; only where `fit` was given any.
    tree_ : SplitTree
        The splits, where there are more than two clusters; what belongs to one hyperplane is then
        found at ``tree_.splits()[i].model``, not here.
    basis_vectors_ : ndarray of shape (n_vectors, n_features)
        The b.
    dual_coef_ : ndarray of shape (n_vectors,)
        Their coefficients, in units of the margin.
    intercept_ : ndarray of shape (1,)
        Constant of the decision function.
    gamma_ : float
        Kernel coefficient.
    cut_ : float
        Ratio cut of the clusters by which widths were compared; only where they were.
    n_diverged_ : int
        Fixed-point iterations of Algorithm 4 that were given up.
    balance_ : tuple of float
        Shares of the rows (of their weight) in cluster 0 and 1 that count as balanced: halves, or
        the sizes that ``balance=None`` took from the start. Only where there are two clusters.
    status_ : Status
        How the descent ended.
    objective_ : float
        The minimised objective. It compares starts, not values of C or gamma.
    result_ : MarginResult
        Certified result: with the labels found no hyperplane in the span of the basis is better by
        more than `gap`.
    n_iter_ : int
        Steps.
    previous_clusters_ : ndarray of shape (n_clusters,)
        Where `init` is a fitted clusterer, its cluster that each one continues; -1 for a new one.
    row_map_ : RowMap
        The map of rows with metric="cosine"; only then.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    KernelCPMMC : With the whole kernel matrix, or landmarks.

    Notes
    -----
    *Width of the kernel.* gamma="auto" takes the widest of at most five kernels whose clusters cut
    a graph of the rows about as little as any known, by the rule of `KernelCPMMC` (see its Notes).
    Starts are those of `CPMMC` and two clusterings of that graph; only "scale" does not start from
    one to clusters of less than half of n / n_clusters rows.

    `decision_function` is in units of the margin.

    One Gaussian bump cannot be near the difference of two means, which a cut is, so that the
    printed basis="single" loses much of each cut. All cuts share one basis here, onto whose
    span each is projected, which makes the cuts hold exactly and the bound a true one.

    *The paper.* ``SKMMC(mode="paper")`` is the setting of sec. 5.1 with l = 0 and the middle of
    its widths: C = 10, :math:`\eta` = 0.01, :math:`\epsilon` = 0.1, :math:`\sigma = \sqrt\gamma`
    (gamma="rms"), one basis vector for each cut and one for the mean of the rows, all found
    anew after a relabelling; scores have mean 0 (eq. 23). ``balance=l/n`` is its l,
    ``threshold="fixed"`` is SKMMCv2, and ``cut_tol=1, cccp_tol=0.3`` the setting of sec. 5.3. The
    paper does not say from which labels it starts; "auto" is k-means. Not as printed are:

    - :math:`\rho` of eq. 24, which is 0/0 wherever there are margin errors, is a multiplier of the
      quadratic programme.
    - Labels change after an inner loop, as in the text and Algorithm 1; line 11 changes them under
      cuts that hold for the old ones.
    - The first cut, random as printed, is that of all rows where C times its share is below 1.
    - A search of Algorithm 4 that meets 0/0, or ends nowhere in 100 steps, begins anew
      (`n_diverged_`). Its :math:`\delta` = 0.01 is in the units of X, as printed.
    - An inner loop also ends where the cut violated most is one that it has: as approximated it
      would come back for ever. Then ``result_.n_repeated`` counts, the violation stays above
      `cut_tol`, and the status is CYCLE with a warning.
    - Where the cuts leave w = 0, labels are those of the hyperplane before
      (``result_.n_degenerate``).

    Approximated cuts bound nothing: there is no gap. Rows must be in memory.

    *Unequal sizes.* With ``balance=None`` both sides of a start of unequal size get the same
    weight where that has a clear gap between them (see `CPMMC`, and
    `volmar.margin.engine.unequal_sizes` for the rule).

    Of a dask collection at most 2000 rows are brought here to search for basis vectors. A step is
    one pass over the blocks, and another where it found some; kernel values are computed in each.
    The answer is that in memory but for rounding, which the kernel matrix of vectors close to each
    other magnifies in either.

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
    >>> from volmar import SKMMC
    >>> from volmar.datasets import make_two_circles
    >>> from volmar.metrics import clustering_error
    >>> X, y = make_two_circles(400, noise=0.02, factor=0.2, random_state=0)
    >>> model = SKMMC(gamma="scale", random_state=0).fit(X)
    >>> clustering_error(y, model.labels_)
    0.0
    >>> len(model.basis_vectors_) <= 50
    True
    """

    kernel = "rbf"
    _takes_blocks = True
    _paper_loop = staticmethod(printed_sparse_loop)

    def __init__(
        self,
        n_clusters: int | str = 2,
        *,
        gamma: float | str | None = "auto",
        basis: str | None = None,
        n_basis: int | None = None,
        max_basis: int | None = None,
        C: float | None = None,
        threshold: str = "adaptive",
        balance: float | None = None,
        balance_unit: str = "margin",
        anneal: str | Sequence[float] = "auto",
        init: Any = "auto",
        n_init: int = 4,
        tol: float = 0.01,
        max_iter: int | None = None,
        mode: str = "default",
        cut_tol: float | None = None,
        cccp_tol: float | None = None,
        max_cluster_size: float | ArrayLike | None = None,
        alpha: float = 0.05,
        max_clusters: int | None = None,
        metric: str = "euclidean",
        text_components: int | str | None = "auto",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.gamma = gamma
        self.basis = basis
        self.n_basis = n_basis
        self.max_basis = max_basis
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
        self.max_cluster_size = max_cluster_size
        self.alpha = alpha
        self.max_clusters = max_clusters
        self.metric = metric
        self.text_components = text_components
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_gamma()
        if self.basis is not None:
            check_choice("basis", self.basis, ["split", "single"])
        if self.basis == "split" and self.mode == "paper":
            raise ValueError(
                "basis='split' is not the paper's: its Algorithm 4 finds one vector for both "
                "signs. Leave basis out, or use mode='default'."
            )
        if self.n_basis is not None:
            check_count("n_basis", self.n_basis)
        if self.max_basis is not None:
            check_count("max_basis", self.max_basis, low=2)

    def _paper_options(self) -> dict[str, Any]:
        if self.max_basis is None:
            return {}
        each = self.n_basis or 1
        return {"max_cuts": min(max(self.max_basis // each - 1, 1), self._most_steps())}

    def _feature_space(self, X: Any, weights: NDArray | None) -> BasisSpace | PrintedBasisSpace:
        self._resolved_gamma(X, weights)
        if not 1e-200 < self.gamma_ < 1e200:
            raise ValueError(
                f"gamma={self.gamma!r} gives the coefficient {self.gamma_:.3g}, which is out of "
                "range. Scale X, or give a gamma near 1 / its squared distances."
            )
        if sparse.issparse(X):
            X = self._near_the_origin(X, weights)
        n_basis = self.n_basis or 1
        random_state = int(check_random_state(self.random_state).randint(2**31 - 1))
        if self.mode == "paper":
            name = "SKMMC(mode='paper')"
            require_in_memory(X, name, "every step of its Algorithm 4 is a pass over all rows")
            return PrintedBasisSpace(
                X, weights, gamma=self.gamma_, n_basis=n_basis, random_state=random_state
            )
        span = span_of(X, weights)
        space: Any = BasisSpace if span is None else SpannedBasisSpace
        return space(
            X if span is None else span,
            weights,
            gamma=self.gamma_,
            basis=self.basis or "split",
            n_basis=n_basis,
            max_basis=self.max_basis or MAX_BASIS,
            random_state=random_state,
        )

    def _gamma_rule(self) -> Any:
        return "rms" if self._is_width_open() and self.mode == "paper" else super()._gamma_rule()

    def _resolved_gamma(self, X: Any, weights: Any) -> float | None:
        gamma = super()._resolved_gamma(X, weights)
        if gamma is not None and isinstance(self.gamma, str):
            # The digits beyond depend on the order of sums, and a basis close to dependent
            # magnifies them: blocks of rows would have a width, and scores, of their own.
            gamma = self.gamma_ = float(f"{gamma:.{GAMMA_DIGITS}g}")
        return gamma

    def _adopts_trial(self, n: int) -> bool:  # noqa: ARG002 -- the same for any number
        return False

    def _at_width(self, gamma: float, widest: float) -> dict[str, Any]:
        n_basis = round(np.sqrt(gamma / widest)) if self.n_basis is None else self.n_basis
        return {"gamma": gamma, "n_basis": n_basis}

    def _near_the_origin(self, X: Any, weights: NDArray | None) -> Any:
        """Return sparse rows as they are, or dense where their mean is far: they can be moved."""
        rows = as_rows(X, sample_weight=weights)
        mean = rows.mean()
        if mean @ mean <= FAR * rows.centered().mean_squared_norm():
            return X
        require_memory(
            X.dtype.itemsize * X.shape[0] * X.shape[1],
            f"{X.shape[0]} sparse rows far from the origin, made dense,",
            "Subtract their mean, or scale them.",
        )
        return X.toarray()

    def _publish(self, inputs: MarginInputs, result: MarginResult) -> None:
        super()._publish(inputs, result)
        expansion = self._hyperplane.expansion
        self.basis_vectors_ = expansion.vectors
        self.dual_coef_ = expansion.coefficients
        self.intercept_ = np.array([expansion.intercept + self._hyperplane.t])
        self.n_diverged_ = inputs.space.n_diverged
        if len(self.basis_vectors_) < 2:
            warn_user(
                f"gamma={self.gamma_:.3g} is so small that all rows look alike: one basis vector "
                "was found. Raise gamma ('scale' follows the variance of X)."
            )
