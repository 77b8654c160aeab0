"""SKMMC: sparse kernel maximum margin clustering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from volmar._checks import check_choice, check_count, check_random_state
from volmar._memory import require_memory
from volmar._warn import warn_user
from volmar.base.blocks import require_in_memory
from volmar.base.clusterer import WeightedClusterer
from volmar.base.kernel import GammaWidth, KernelMixin
from volmar.margin.clusterer import GuidedMarginMixin, MarginClusterer, MarginInputs
from volmar.margin.engine.descent import MarginResult
from volmar.margin.engine.nested import printed_sparse_loop
from volmar.margin.feature_space.basis import FAR, BasisSpace, PrintedBasisSpace, SpannedBasisSpace
from volmar.margin.feature_space.linear import span_of
from volmar.rows.anywhere import as_rows

# Number of digits to which a gamma computed from the rows is rounded.
GAMMA_DIGITS = 12


class SKMMC(GuidedMarginMixin, GammaWidth, KernelMixin, WeightedClusterer, MarginClusterer):
    r"""Sparse kernel maximum margin clustering (Wu and Zhang).

    The problem of `KernelCPMMC` under the Gaussian kernel
    :math:`k(x, y) = \exp(-\gamma \|x - y\|^2)`, with w in the span of a few basis vectors
    :math:`\phi(b)` that are found during the fit (cutting-plane subspace pursuit, eq. 27):

    .. math:: \min_{w, t, \rho \ge 0} \; \tfrac12 \|w\|^2 - \rho
              + \frac{C}{n} \sum_i \max(0, \rho - |f_i|), \qquad
              f(x) = \sum_k \beta_k k(b_k, x) + const, \quad |t| \le b \rho

    Time and memory of a fit are linear in the number of rows. The time of a prediction is linear
    in the number of basis vectors.

    Parameters
    ----------
    n_clusters : int, default=2
        Number of clusters. More than 2 are found by recursive splitting: the cluster whose split
        separates best is split next (see `tree_`).
    gamma : float, str or None, default="auto"
        Kernel coefficient. "scale" is 1 / (n_features * variance of X), "4*scale" and "scale/4"
        are multiples of it; None is 1 / n_features. With "rms" the standard deviation of the
        kernel is the root mean squared distance between two rows, the middle of the paper's grid:
        about "scale/4". "auto" chooses the width (see Notes); it means "rms" with mode="paper" and
        "scale" if `init` is an array of labels.
    basis : {"split", "single"}, optional
        How basis vectors are found for each cut. "split" finds one vector for each sign, at a mode
        of the rows of that sign (mean shift, which cannot diverge). "single" finds one vector for
        both signs by the paper's Algorithm 4, whose weights have both signs; a search that
        diverges is restarted, and `n_diverged_` counts the restarts. If None, "split". With
        mode="paper" only "single" is possible, and the default.
    n_basis : int, optional
        Number of basis vectors for each part of a cut (N of Algorithm 4). If None, 1. With
        gamma="auto", None means m for a kernel that is m times narrower than "scale", because no
        single vector is close to the mean of a cluster that is long compared with the kernel.
    max_basis : int, optional
        Maximum number of basis vectors. More basis vectors give a slightly lower objective and
        take more time. If None, 50. With mode="paper", None means no limit other than `max_iter`.
    C : float, optional
        Weight of margin errors. If None, 2 (the paper's 10 with mode="paper"). With the adaptive
        threshold C must be at least 1 / (1 - balance), and about 1 / C of the rows are inside the
        margin.
    threshold : {"adaptive", "fixed"}, default="adaptive"
        With "adaptive", the margin :math:`\rho` is optimised. With "fixed", it is 1 (the paper's
        SKMMCv2).
    {margin:balance}
    {balance_unit}
    anneal : "auto" or tuple of float, default="auto"
        Smaller values of C for which the problem is solved first. "auto" means 1.2, 3, 7.5 and so
        on. The empty tuple means none.
    init : {"auto", "k-means", "random"}, array (n_samples,) or fitted clusterer, default="auto"
        As for `CPMMC`, but an array only for two clusters. The `gamma_` of a fitted clusterer is
        used, too.
    n_init : int, default=4
        Number of starts to compare.
    {margin:tol}
    {margin:max_iter}
    mode : {"default", "paper"}, default="default"
        "paper" is Algorithm 3 (Appendix B for the fixed threshold) with Algorithm 4, with the
        paper's settings and from the labels of `init`; see Notes. `tol`, `anneal` and `n_init` are
        not used.
    cut_tol : float, optional
        The paper's :math:`\eta` (eq. 13). If None, 0.01; the paper uses 1 for large data. Only
        used with mode="paper".
    cccp_tol : float, optional
        The paper's :math:`\epsilon` (eq. 15). If None, 0.1; the paper uses 0.3 for large data.
        Only used with mode="paper".
    {max_cluster_size}
    random_state : int, RandomState or None, default=None
        Random seed of starts and searches.

    Attributes
    ----------
    {labels_}
    {classes_}
    {broken_links_}
    tree_ : SplitTree
        The splits, for more than two clusters. The attributes of a single
        hyperplane are then found at ``tree_.splits()[i].model``, not here.
    basis_vectors_ : ndarray of shape (n_vectors, n_features)
        Basis vectors b.
    dual_coef_ : ndarray of shape (n_vectors,)
        Coefficients of the basis vectors, in units of the margin.
    intercept_ : ndarray of shape (1,)
        Constant of the decision function.
    gamma_ : float
        Kernel coefficient.
    cut_ : float
        Ratio cut of the clusters, by which kernel widths were compared. Only available if they
        were.
    n_diverged_ : int
        Number of fixed-point iterations of Algorithm 4 that were abandoned.
    {margin:balance_}
    status_ : Status
        How the descent ended.
    objective_ : float
        Objective at the solution. It can be compared between starts, but not between values of C
        or gamma.
    result_ : MarginResult
        Certified result: for the labels found, no hyperplane in the span of the basis is better by
        more than `gap`.
    n_iter_ : int
        Number of steps.
    {previous_clusters_}
    n_features_in_ : int
        Number of features.

    See Also
    --------
    KernelCPMMC : The same with the whole kernel matrix, or landmarks.

    Notes
    -----
    *Width of the kernel.* gamma="auto" tries at most five kernels and chooses the widest whose
    clusters have a ratio cut close to the best one known, by the rule of `KernelCPMMC` (see its
    Notes). The starts are those of `CPMMC` and, with init="auto", two clusterings of the
    nearest-neighbour graph.

    `decision_function` is in units of the margin.

    A cut is a difference of two means, which a single Gaussian function approximates badly. The
    paper's basis="single" therefore loses much of each cut. Here all cuts share one basis and are
    projected onto its span. The cuts are then exact in the span, and the lower bound is valid.

    *The paper.* ``SKMMC(mode="paper")`` uses the settings of sec. 5.1 with l = 0 and the middle of
    its widths: C = 10, :math:`\eta` = 0.01, :math:`\epsilon` = 0.1, :math:`\sigma = \sqrt\gamma`
    (gamma="rms"), one basis vector for each cut and one for the mean of the rows, all recomputed
    after a relabelling. Scores have mean 0 (eq. 23). ``balance=l/n`` is the paper's l,
    ``threshold="fixed"`` is SKMMCv2, and ``cut_tol=1, cccp_tol=0.3`` are the settings of sec. 5.3.
    The paper does not specify the initial labels; "auto" is k-means. The implementation differs
    from the printed algorithm in the following points:

    - :math:`\rho` of eq. 24 is 0/0 if there are margin errors. Here :math:`\rho` is a multiplier
      of the quadratic programme.
    - Labels change after an inner loop, as in the text and Algorithm 1. Line 11 of Algorithm 3
      changes them while the cuts still belong to the old labels.
    - The first cut is random as printed, but that of all rows if C times its share is below 1.
    - A search of Algorithm 4 that runs into 0/0 or does not converge in 100 steps is restarted
      (`n_diverged_`). Its :math:`\delta` = 0.01 is in the units of X, as printed.
    - An inner loop also stops if the most violated cut is already in the working set; because
      of its approximation it would be found again and again. ``result_.n_repeated`` counts such
      loops, the violation stays above `cut_tol`, and the status is CYCLE with a warning.
    - If the cuts give w = 0, the labels of the previous hyperplane are kept
      (``result_.n_degenerate``).

    Approximate cuts give no lower bound, so there is no gap. Rows must be in memory.

    *Unequal sizes.* With ``balance=None`` both sides of a start with unequal sizes get the same
    weight if there is a clear gap between them (see `CPMMC`, and
    `volmar.margin.engine.starts` for the rule).

    *Dask collections.* At most 2000 rows are loaded into memory to search for basis vectors. A
    step is one pass over the blocks, and a second one if it found new basis vectors; kernel values
    are computed in each pass. The result equals that for rows in memory up to rounding errors,
    which grow in both cases if basis vectors are close to each other.

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
        n_clusters: int = 2,
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
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_gamma()
        if self.basis is not None:
            check_choice("basis", self.basis, ["split", "single"])
        if self.basis == "split" and self.mode == "paper":
            raise ValueError(
                "basis='split' cannot be used with mode='paper', whose Algorithm 4 finds one "
                "vector for both signs. Leave basis out, or use mode='default'."
            )
        if self.n_basis is not None:
            check_count("n_basis", self.n_basis)
        if self.max_basis is not None:
            check_count("max_basis", self.max_basis, low=2)

    def _paper_options(self) -> dict[str, Any]:
        if self.max_basis is None:
            return {}
        each = self.n_basis or 1
        return {"max_cuts": min(max(self.max_basis // each - 1, 1), self._max_steps())}

    def _feature_space(self, X: Any, weights: NDArray | None) -> BasisSpace | PrintedBasisSpace:
        self._resolved_gamma(X, weights)
        if not 1e-200 < self.gamma_ < 1e200:
            raise ValueError(
                f"gamma={self.gamma!r} gives a kernel coefficient of {self.gamma_:.3g}, which is "
                "out of range. Scale X, or give a gamma near 1 / its squared distances."
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
        # Default maximum number of basis vectors.
        return space(
            X if span is None else span,
            weights,
            gamma=self.gamma_,
            basis=self.basis or "split",
            n_basis=n_basis,
            max_basis=self.max_basis or 50,
            random_state=random_state,
        )

    def _gamma_rule(self) -> Any:
        return "rms" if self._is_width_open() and self.mode == "paper" else super()._gamma_rule()

    def _resolved_gamma(self, X: Any, weights: Any) -> float | None:
        gamma = super()._resolved_gamma(X, weights)
        if gamma is not None and isinstance(self.gamma, str):
            # Further digits depend on the order of summation, and a nearly dependent basis
            # magnifies them: blocks of rows would have another width, and other scores, than rows
            # in memory.
            gamma = self.gamma_ = float(f"{gamma:.{GAMMA_DIGITS}g}")
        return gamma

    def _adopts_trial(self, n: int) -> bool:  # noqa: ARG002 -- the same for any number
        return False

    def _at_width(self, gamma: float, widest: float) -> dict[str, Any]:
        n_basis = round(np.sqrt(gamma / widest)) if self.n_basis is None else self.n_basis
        return {"gamma": gamma, "n_basis": n_basis}

    def _near_the_origin(self, X: Any, weights: NDArray | None) -> Any:
        """Return sparse rows unchanged, or as dense rows if they must be centred."""
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
                f"Only one basis vector was found, because all rows look alike to a kernel with "
                f"gamma={self.gamma_:.3g}. Raise gamma ('scale' follows the variance of X)."
            )
