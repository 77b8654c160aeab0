"""LGMMC: maximum margin clustering by label generation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from volmar.base import Status, WeightedClusterer
from volmar.base.kernel import N_LANDMARKS, GammaWidth
from volmar.base.validation import (
    check_choice,
    check_count,
    check_flag,
    check_number,
    check_start_labels,
)
from volmar.margin.engine.unequal_sizes import (
    HALVES,
    are_unequal,
    equal_weights,
    in_order_of,
    own_sizes,
    shares_of_sides,
    size_start,
)
from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.feature_space.linear import LinearSpace
from volmar.margin.feature_space.representation import KernelRepresentation
from volmar.margin.relaxations.lgmmc_solver import (
    LabelGenerationResult,
    generate_labels,
    row_weights,
)
from volmar.solvers.cutting_plane_certificate import NotAGramMatrixError

# Limits of C. Beyond them only rounding changes: all rows have the same weight in the solution,
# or the margin is hard.
MIN_C, MAX_C = 1e-10, 1e10
MODES = ("default", "paper")
# A difference of two sums of weights below this share of the total weight is rounding.
SUMS = 1e-12


@dataclass
class LabelGenerationInputs:
    """Inputs of the search; `n` is the number of rows with a positive weight.

    A run that adopts the sizes of k-means replaces `space` by the reweighted rows.
    """

    space: LinearSpace | KernelSpace
    weights: NDArray | None
    n: int
    balance: tuple[float, float] = HALVES


class LGMMC(GammaWidth, KernelRepresentation, WeightedClusterer):
    r"""Maximum margin clustering by label generation (Li, Tsang, Kwok and Zhou).

    Maximum margin clustering with squared errors, for centred rows
    :math:`z_i = \phi(x_i) - \bar\phi` and the set B of labellings with :math:`|\mathrm{mean}(y)|`
    at most `balance`,

    .. math:: \min_{y \in B} \min_{w, \rho, \xi} \; \tfrac12 \|w\|^2 - \rho
              + \frac{C}{2 n s} \sum_i \xi_i^2 \quad\text{s.t.}\quad
              y_i \langle w, z_i \rangle \ge \rho - \xi_i,
              \qquad s = \frac1n \sum_i \|z_i\|^2,

    is relaxed to the convex hull of all :math:`yy'` (JMLR 2013, section 7.1):

    .. math:: \min_{\mu} \max_{\alpha \ge 0, 1'\alpha = 1} \; -\tfrac12 \alpha' \Big(
              \sum_{y \in B} \mu_y K \circ yy' + \frac{n s}{C} I \Big) \alpha .

    No convex relaxation of the labels alone is tighter. Labellings are generated one at a time:
    each maximises :math:`\|\sum_i \alpha_i y_i z_i\|^2` at the current :math:`\alpha`.

    Parameters
    ----------
    n_clusters : int or "auto", default=2
        Number of clusters. More than 2 are found by recursive splitting: the cluster whose split
        separates best is split next (see `tree_`). With "auto", a cluster is split only if
        held-out rows confirm that it holds more than one group (see `volmar.evidence.split_test`).
    kernel : str or callable, default="rbf"
        Name of a scikit-learn kernel, a callable that takes two matrices, or "precomputed".
        "linear" uses the rows themselves, dense or CSR, in linear time and memory, unless
        method="nystroem".
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
    centered : bool, optional
        Whether rows are centred in the feature space. Hyperplanes then pass through the mean of
        the rows, and not through the origin. If None, True (False with mode="paper").
    C : float, optional
        Weight of margin errors, between 1e-10 and 1e10. If None, 30 (1 with mode="paper", which
        uses the papers' C). C has no units: the papers' C is C / (n s). If C is small (about 3),
        all rows have the same weight in the solution, and the labels are those of balanced
        k-means. If C is large, few rows are inside the margin, and the solution mixes more
        labellings. With the default, two thirds of Gaussian rows are inside the margin if the
        leading direction has a quarter of their variance.
    balance : float, optional
        Maximum of :math:`|\mathrm{mean}(y)|` over generated labellings y (of -1 and 1). 0 means
        halves, or as near to halves as an odd number of rows allows. If None, it is 0.5, so that
        each side has at least a quarter of the weight, and clusters of unequal size may count as
        balanced (see Notes and `balance_`). With mode="paper", None means 0.3, and unequal sizes
        do not count as balanced. The papers' b is n times `balance`; they print no value, and the
        authors set theirs from the true classes.
    mode : {"default", "paper"}, default="default"
        "paper" is the problem of JMLR section 7.1 as printed: rows not centred, C in the paper's
        units, the whole kernel matrix if `method` is "auto", gamma="auto" read as "scale", and
        labels from the leading eigenvector of the mixture of labellings. The papers do not specify
        the search for a labelling. Here it starts as in the default mode, and also from the
        leading eigenvectors of the kernel's random walk.
    init : "auto", array of shape (n_samples,) or fitted clusterer, default="auto"
        Labels from which the search for the first labelling starts. "auto" uses random sides, and
        clusterings of a graph if the kernel width is chosen (see Notes). With kernel="precomputed"
        or mode="paper" it also uses the signs of the leading eigenvectors of the kernel's random
        walk, because random sides lead to poor labellings if the kernel is narrow. A fitted
        clusterer of the same columns is used as in `CPMMC`.
    n_init : int, default=10
        Number of starts of the search for each labelling.
    tol : float, default=0.01
        Minimum violation, relative to the objective, for a labelling to be added.
    max_iter : int, default=50
        Maximum number of labellings.
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
        w in units of the margin. Only available for kernel="linear" without landmarks.
    dual_coef_ : ndarray of shape (n_samples,)
        Coefficients of k(x_j, x) in units of the margin. Only available if the whole kernel matrix
        is used (see `method`), not for kernel="linear".
    intercept_ : ndarray of shape (1,)
        Constant of the decision function.
    balance_ : tuple of float
        Shares of the rows (or of their weight) in clusters 0 and 1 that count as balanced: halves,
        or the sizes that ``balance=None`` took from k-means.
    gamma_ : float or None
        Kernel coefficient used; None for kernels without one.
    cut_ : float
        Ratio cut of the clusters, by which kernel widths were compared. Only available if they
        were.
    status_ : Status
        How the search ended.
    objective_ : float
        Value of the relaxation over the labellings generated, below 0.
    result_ : LabelGenerationResult
        Result with the attributes `bound`, `gap`, `weights` (mu), `n_labellings` and
        `labelled_objective`.
    n_iter_ : int
        Number of labellings generated.
    n_features_in_ : int
        Number of features (number of training rows with kernel="precomputed").

    See Also
    --------
    KernelCPMMC : Margin errors that are not squared, by local descent.
    SDPMMC, GMMC : Other relaxations of maximum margin clustering.

    Notes
    -----
    *Width of the kernel.* gamma="auto" tries several kernels and chooses the widest whose clusters
    have a ratio cut close to the best one known, by the rule of `KernelCPMMC` (see its Notes). The
    starts are those of `init` and two clusterings of the nearest-neighbour graph.

    *Certificates.* `objective_` is an upper bound of the value of the relaxation: further
    labellings can only lower it. It is within ``residuals["master gap"]`` of the optimum over the
    labellings generated. The most violated labelling would give a lower bound, but it is NP-hard
    to find. The search stops when five rounds of starts find no violated labelling, which is not a
    proof. On pure noise, further starts still find violations above `tol`; a larger `n_init`
    leaves fewer. ``result_.bound`` is a valid lower bound from the largest eigenvalue of the
    weighted covariance of the rows. It is tighter if the rows have similar distances from the
    border; for Gaussian rows its squared norm is too large by a factor of :math:`\pi / 2`. No
    labelling in B has a value below it.

    *Labels.* Candidates are the normals :math:`v_t = \sum_i \alpha_i y_{ti} z_i` of the labellings
    in use, and that of the leading eigenvector of :math:`\sum_t \mu_t y_t y_t'`. The one with the
    lowest objective before relaxation (``labelled_objective``) is kept, and labels are the signs
    of its scores. The scores have mean 0, but the labels need not: `balance` is not imposed on
    them. `predict` returns `labels_` for the training rows, except for rows whose score is zero up
    to rounding.

    *Weights.* A row of weight 2 counts like a duplicated row in the mean used for centring, in s,
    in the loss :math:`\frac{C}{2 s \sum_j w_j} \sum_i w_i \xi_i^2` (:math:`n |\alpha|^2` becomes
    :math:`\sum_j w_j \sum_i \alpha_i^2 / w_i`) and in the mean of y. A weighted row has one label,
    while duplicates may have different ones. Over labellings with equal labels for duplicates both
    relaxations are the same. Over all labellings the duplicated rows have the same value or a
    lower one, and ``result_.bound`` is below that, too. From given labels the search takes the
    same steps unless `balance` binds. Whole rows then change sides, and their choice is a knapsack
    problem, whose relaxation is solved by sorting. The search may therefore miss a labelling, but
    the bounds stay valid. If the heaviest row has a larger share of the weight than `balance`,
    labellings as uneven as that share are allowed, because a more even one may not exist.
    Duplicated rows do have more even labellings, so the values then differ. Random starts are not
    those of the duplicated rows: the labels agree if they do not depend on `random_state`. Rows of
    weight 0 are labelled by their score and have no effect on the fit.

    *Unequal sizes.* Scores have mean 0, so about half of the weight is on each side. With
    ``balance=None`` the two sides of k-means (of the rows, or in the feature space of a
    precomputed kernel) get the same weight if they have unequal sizes and the wider margin, by the
    rule of `CPMMC`. The problem is then solved with these weights.

    *Large C.* The solution is then a mixture of many very different labellings, and labels may
    change with `random_state`. Compare ``result_.labelled_objective``: lower is better.

    *Paper mode.* With a Gaussian kernel all rows lie on the same side of the origin. With
    ``mode="paper"`` two clusters result only from the balance constraint, and the labels, which
    come from the mixture of labellings, may differ from the signs of `decision_function` on the
    training rows. For Gaussian kernels the paper's section 8.2 sets :math:`\sigma` to a tenth of
    the mean distance: ``gamma = 50 / mean_distance(X) ** 2`` (see `volmar.graphs.mean_distance`).

    The margin has the units of X: scale the features if their units differ.

    References
    ----------
    Y.-F. Li, I. W. Tsang, J. T. Kwok, Z.-H. Zhou (2009), Tighter and convex maximum margin
    clustering, AISTATS. Niu, Dai, Shang and Sugiyama (2013), JMLR 14, section 7.1.

    Examples
    --------
    >>> from volmar import LGMMC
    >>> from volmar.datasets import make_two_circles
    >>> from volmar.metrics import clustering_error
    >>> X, y = make_two_circles(200, noise=0.02, factor=0.2, random_state=0)
    >>> model = LGMMC(random_state=0).fit(X)
    >>> clustering_error(y, model.labels_)
    0.0
    >>> model.result_.bound <= model.objective_ < 0
    True
    """

    _multiway = "recursive"
    _methods = ("auto", "exact", "nystroem")
    # JMLR section 8.2 tries C = 0.001, 1 and 1000, and prints no balance. 0.3 is the looser of
    # the two values in use for these methods (0.03 for classes of equal size).
    _mode_defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"C": 30.0, "balance": 0.5, "centered": True},
        "paper": {"C": 1.0, "balance": 0.3, "centered": False},
    }

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
        centered: bool | None = None,
        C: float | None = None,
        balance: float | None = None,
        mode: str = "default",
        init: Any = "auto",
        n_init: int = 10,
        tol: float = 0.01,
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
        self.centered = centered
        self.C = C
        self.balance = balance
        self.mode = mode
        self.init = init
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.alpha = alpha
        self.max_clusters = max_clusters
        self.random_state = random_state

    def _scores(self, X: Any) -> NDArray:
        return self._hyperplane(X)

    def _is_linear(self) -> bool:
        return super()._is_linear() and self.method != "nystroem"

    def _check_parameters(self) -> None:
        self._check_representation()
        check_choice("mode", self.mode, MODES)
        if self.C is not None:
            check_number("C", self.C, low=MIN_C, high=MAX_C)
        if self.centered is not None:
            check_flag("centered", self.centered)
        if self.balance is not None:
            check_number("balance", self.balance, low=0.0)
        if isinstance(self.init, str):
            check_choice("init", self.init, ["auto"])
        check_count("n_init", self.n_init)
        check_number("tol", self.tol, low=0.0, high=0.5, open_low=True)
        check_count("max_iter", self.max_iter)
        if self.balance is not None and self.balance >= 1.0:
            raise ValueError(
                f"balance={self.balance:g} allows all rows on one side. Use a value below 1, or "
                "leave it out."
            )

    def _centers(self) -> bool:
        return bool(self._value_of("centered"))

    def _is_exact(self, n: int) -> bool:
        return super()._is_exact(n) or (self.method == "auto" and self.mode == "paper")

    def _n_starts(self) -> int:
        return 1  # each search for a labelling restarts by itself

    def _problem(self, X: Any, weights: NDArray | None) -> LabelGenerationInputs:
        n = X.shape[0] if weights is None else int(np.count_nonzero(weights))
        prepared = LabelGenerationInputs(self._feature_space(X, weights), weights, n)
        if self._is_linear():
            self.gamma_ = None
        self._formula(prepared)
        return prepared

    def _formula(self, prepared: LabelGenerationInputs) -> tuple[float, float]:
        """Return C of the formula and the maximum of a labelling's absolute weighted sum."""
        space, n = prepared.space, prepared.n
        spread = space.mean_square()
        if spread < 0.0:
            raise self._no_margin()
        if spread == 0.0:
            which = "" if prepared.weights is None else " with a positive sample_weight"
            raise ValueError(
                f"all {n} rows of X{which} are identical under the kernel, so there is nothing to "
                "separate. Check that the rows of X differ, or use another kernel or gamma."
            )
        w = row_weights(space)
        mean = self._value_of("balance")
        limit = _largest_sum(mean, np.ones(n) if w is None else w)
        C = float(self._value_of("C"))
        return (C if self.mode == "paper" else C / (n * spread)), limit

    def _take_sizes(self, prepared: LabelGenerationInputs) -> None:
        """Give both sides of k-means the same weight if they are unequal and well separated."""
        space, weights = prepared.space, prepared.weights
        given = self._start(prepared)
        labels: NDArray | None
        if self._keeps_sizes and given is not None:
            labels = given if are_unequal(given, weights) else None
        else:
            labels = own_sizes(space, size_start(space, weights), weights)
        if labels is not None:
            prepared.balance = shares_of_sides(labels, weights)
            prepared.space = space.reweighted(equal_weights(labels, weights, prepared.balance))

    def _run(self, prepared: LabelGenerationInputs, seed: int) -> LabelGenerationResult:
        try:
            if self.balance is None and self.mode != "paper":
                self._take_sizes(prepared)
            C, limit = self._formula(prepared)
            result = generate_labels(
                prepared.space,
                C=C,
                limit=limit,
                start=self._start(prepared),
                n_init=self.n_init,
                tol=self.tol,
                max_iter=self.max_iter,
                seed=seed,
                reading="eigenvector" if self.mode == "paper" else "margin",
                # If a kernel width is chosen, the starts already include clusters of a graph.
                from_graph=self.mode == "paper" or self.kernel == "precomputed",
            )
        except NotAGramMatrixError as error:
            raise self._no_margin() from error
        shares = prepared.space.shares
        if np.ptp(result.labels if shares is None else result.labels[shares > 0]) == 0:
            raise ValueError(
                "all rows are on one side of the hyperplane found, up to rounding. Check that the "
                "rows of X differ, or scale X."
            )
        return result

    def _start(self, prepared: LabelGenerationInputs) -> NDArray | None:
        if isinstance(self.init, str):
            return None
        return check_start_labels("init", self.init, prepared.space.n_rows, 2)

    def _no_margin(self) -> ValueError:
        return ValueError(
            f"kernel={self.kernel!r} is not positive semi-definite on these rows, so there is no "
            "margin. Use another kernel such as 'rbf', or other kernel parameters."
        )

    def _publish(self, prepared: LabelGenerationInputs, result: LabelGenerationResult) -> None:
        hyperplane: Any = prepared.space.hyperplane(result.normal, result.rho, t=0.0)
        self._hyperplane = hyperplane
        self.balance_ = in_order_of(result.labels, prepared.weights, prepared.balance)
        self.status_ = result.status
        if self._is_linear():
            self.coef_ = hyperplane.coef[None, :]
        elif isinstance(prepared.space, KernelSpace):
            self.dual_coef_ = hyperplane.coef
        linear = getattr(hyperplane, "linear", hyperplane)
        self.intercept_ = np.array([linear.intercept])

    def _status_words(self, result: Any) -> str:
        if not isinstance(result, LabelGenerationResult):
            return super()._status_words(result)
        if result.status is Status.MAX_ITER:
            return (
                f"after {result.n_iter} labellings another one is still violated by "
                f"{result.residuals['violation']:.1e} of the objective. Raise max_iter or tol, "
                "lower C, or raise balance"
            )
        return (
            f"rounding errors keep the gap over the labellings at "
            f"{result.residuals['master gap']:.1e} of the objective. Raise tol, scale X, or use "
            "float64"
        )


def _largest_sum(mean: float, weights: NDArray) -> float:
    """Return the maximum of |sum(weights * y)|: the share `mean` of all weight, with rounding.

    It is at least the weight of the heaviest row: every order of the rows can be cut in the middle
    to within that weight, while it is NP-hard to decide whether a more even labelling exists. It
    is always smaller than the sum with all rows on one side.
    """
    total, heaviest = float(weights.sum()), float(weights.max())
    limit = max(mean * total, heaviest) + SUMS * total
    return min(limit, total - float(weights[weights > 0].min()))
