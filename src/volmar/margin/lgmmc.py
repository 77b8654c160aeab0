"""LGMMC: maximum margin clustering by label generation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from volmar.base import Status, WeightedClusterer
from volmar.base.kernel import N_LANDMARKS
from volmar.base.kernel_width import GammaWidth
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

# Beyond these C nothing changes but rounding: all rows weigh alike, or the margin is hard.
LEAST_C, MOST_C = 1e-10, 1e10
MODES = ("default", "paper")
# Share of all weight below which a difference of two sums of weights is rounding.
SUMS = 1e-12


@dataclass
class LabelGenerationInputs:
    """What the search needs; `n` is the number of rows that weigh.

    A run that takes the sizes of k-means leaves the rows here with its weights.
    """

    space: LinearSpace | KernelSpace
    weights: NDArray | None
    n: int
    balance: tuple[float, float] = HALVES


class LGMMC(GammaWidth, KernelRepresentation, WeightedClusterer):
    r"""Maximum margin clustering by label generation (Li, Tsang, Kwok and Zhou).

    The margin with squared errors over all labellings B with :math:`|\mathrm{mean}(y)|` at most
    `balance`, of centred rows :math:`z_i = \phi(x_i) - \bar\phi`,

    .. math:: \min_{y \in B} \min_{w, \rho, \xi} \; \tfrac12 \|w\|^2 - \rho
              + \frac{C}{2 n s} \sum_i \xi_i^2 \quad\text{s.t.}\quad
              y_i \langle w, z_i \rangle \ge \rho - \xi_i,
              \qquad s = \frac1n \sum_i \|z_i\|^2,

    is relaxed to the convex hull of all :math:`yy'` (JMLR 2013, section 7.1):

    .. math:: \min_{\mu} \max_{\alpha \ge 0, 1'\alpha = 1} \; -\tfrac12 \alpha' \Big(
              \sum_{y \in B} \mu_y K \circ yy' + \frac{n s}{C} I \Big) \alpha .

    No convex relaxation of the labels alone is tighter. Labellings are generated as they are
    needed: one that maximises :math:`\|\sum_i \alpha_i y_i z_i\|^2` at the current
    :math:`\alpha`.

    Parameters
    ----------
    n_clusters : int or "auto", default=2
        Number of clusters. More than 2 are found by splitting again: the part whose split
        separates best is split next (see `tree_`). "auto": only where held-out rows confirm that
        there is more than one group (see `volmar.evidence.split_test`).
    kernel : str or callable, default="rbf"
        Name of a scikit-learn kernel, a function of two matrices, or "precomputed". "linear"
        takes the rows as they are, dense or CSR, in linear time and memory, unless method is
        "nystroem".
    gamma : float, str or None, default="auto"
        Kernel coefficient of "rbf", "polynomial", "sigmoid", "laplacian" and "chi2". "scale" is
        1 / (n_features * variance of X), "4*scale" and "scale/4" are multiples of it; None is
        1 / n_features. "auto" chooses the width of "rbf", see Notes; it is "scale" for other
        kernels and where `init` holds labels. Other kernels have no use for gamma.
    degree : float, default=3
        Degree of the polynomial kernel, at least 1.
    coef0 : float, default=1
        Constant of the polynomial and sigmoid kernels.
    kernel_params : dict, optional
        Further arguments of a callable kernel.
    method : {"auto", "exact", "nystroem"}, default="auto"
        "exact": the whole kernel matrix, between quadratic and cubic in the number of rows.
        "nystroem": `n_landmarks` rows, drawn at random, represent the feature space; linear.
        "auto": "exact" for up to 1000 rows and a precomputed kernel, "nystroem" for more.
    n_landmarks : int, default=100
        Landmarks of method="nystroem" and of "auto".
    centered : bool, optional
        Whether rows are centred in the feature space, so that hyperplanes go through their mean
        and not through the origin. If None, True (False with mode="paper").
    C : float, optional
        Weight of margin errors; if None, 30 (1 with mode="paper", whose C is that of the papers).
        Without units: the papers' C is C / (n s). Between 1e-10 and 1e10.
        Where it is small (about 3) all rows weigh alike, and the labels are those of balanced
        k-means; where it is large few rows are inside the margin, and more labellings share the
        solution. The default puts two thirds of Gaussian rows inside, with a quarter of their
        variance in the leading direction.
    balance : float, optional
        Maximum of :math:`|\mathrm{mean}(y)|` over generated labellings y (of -1 and 1). 0 asks for
        halves, as near as an odd number of rows allows. If None it is 0.5, sides of at least
        a quarter of the weight, and clusters of unequal size may count as balanced (see Notes and
        `balance_`); with mode="paper" it is 0.3 and no more. The papers' b is n times `balance`;
        they print no value, and the authors set theirs from the true classes.
    mode : {"default", "paper"}, default="default"
        "paper" is the problem of JMLR section 7.1 as printed: rows not centred, C in the paper's
        units, the whole kernel matrix where `method` is "auto", the width that gamma says ("scale"
        for "auto"), and labels from the leading eigenvector of the mixture of labellings. What
        the papers leave open is ours: the search for a labelling, whose starts are those of the
        default mode and the sides of the kernel's graph.
    init : "auto", array of shape (n_samples,) or fitted clusterer, default="auto"
        Labels from which the first labelling is found. "auto": random sides, and clusters of a
        graph where the width of the kernel is chosen (see Notes). With kernel="precomputed" and
        mode="paper" sides of the leading eigenvectors of the kernel's random walk are among the
        starts: where the kernel is narrow, random sides lead to labellings far from the best. A
        fitted clusterer of the same columns: as for `CPMMC`.
    n_init : int, default=10
        Number of starts of the search for each labelling.
    tol : float, default=0.01
        Relative to the objective, by how much a labelling must be violated to be added.
    max_iter : int, default=50
        Maximum number of labellings.
    alpha : float, default=0.05
        Level of the tests of n_clusters="auto" (not used otherwise): the probability of any split
        too many. From 0.001, for which tests take longer, to 0.5.
    max_clusters : int, optional
        Maximum number of clusters, only with n_clusters="auto"; no limit if not given. The
        strongest splits are made first, and a warning is given where others are left.
    random_state : int, RandomState or None, default=None
        Seed of starts and landmarks.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row, by size: 0 is the largest.
    tree_ : SplitTree
        The splits, where there are more than two clusters; what belongs to one hyperplane is then
        found at ``tree_.splits()[i].model``, not here.
    coef_ : ndarray of shape (1, n_features)
        w in units of the margin; only for kernel="linear" without landmarks.
    dual_coef_ : ndarray of shape (n_samples,)
        Coefficients of k(x_j, x) in units of the margin; only of the whole kernel
        matrix (see `method`), not for kernel="linear".
    intercept_ : ndarray of shape (1,)
        Constant of the decision function.
    balance_ : tuple of float
        Shares of the rows (of their weight) in cluster 0 and 1 that count as balanced: halves, or
        the sizes that ``balance=None`` took from two-means.
    gamma_ : float or None
        Kernel coefficient that was used; None for kernels without one.
    cut_ : float
        Ratio cut of the clusters by which widths were compared; only where they were.
    status_ : Status
        How the search ended.
    objective_ : float
        Value of the relaxation over the labellings generated, below 0.
    result_ : LabelGenerationResult
        With `bound`, `gap`, `weights` (mu), `n_labellings` and `labelled_objective`.
    n_iter_ : int
        Labellings generated.
    n_features_in_ : int
        Number of features (of training rows, with kernel="precomputed").

    See Also
    --------
    KernelCPMMC : The margin with errors that are not squared, by local descent.
    SDPMMC, GMMC : Other relaxations.

    Notes
    -----
    *Width of the kernel.* gamma="auto" takes the widest of several kernels whose clusters cut a
    graph of the rows about as little as any known, by the rule of `KernelCPMMC` (see its Notes).
    Starts are the method's own and two clusterings of that graph.

    *What is certified.* `objective_` is an upper bound of the relaxation's value: other labellings
    can only lower it. It is within ``residuals["master gap"]`` of the optimum over the labellings
    generated. A lower bound would follow from the most violated labelling, which is NP-hard to
    find: the search stops when five rounds of starts lead to none, which is no proof. On noise
    more starts still find violations above `tol`; more `n_init` leave less.
    ``result_.bound`` is a lower bound all the same, by the largest eigenvalue of the rows'
    weighted covariance. It is the tighter the more alike rows are in their distance from the
    border: of rows spread like a Gaussian its squared norm is too large by a factor of
    :math:`\pi / 2`. No labelling in B has a value below it.

    *Labels.* Of the normals :math:`v_t = \sum_i \alpha_i y_{ti} z_i` of the labellings in use, and
    that of the leading eigenvector of :math:`\sum_t \mu_t y_t y_t'`, the one with the lowest value
    of the problem before its relaxation (``labelled_objective``) is kept, and labels are the signs
    of its scores. Their mean is 0, whatever the labels': `balance` is not imposed on them.
    `predict` returns `labels_` for the training rows, but for rows whose score is rounding.

    *Weights.* A row of weight 2 counts as one written twice, in the mean that centres, in s, in
    the loss :math:`\frac{C}{2 s \sum_j w_j} \sum_i w_i \xi_i^2` (so that :math:`n |\alpha|^2`
    becomes :math:`\sum_j w_j \sum_i \alpha_i^2 / w_i`) and in the mean of y. The copies that a
    weight stands for stay together, while rows written twice may part. Over labellings that keep
    them together both have the same relaxation; over all labellings the rows written twice have
    the same value or a lower one, and ``result_.bound`` is below that, too. From given labels the
    search takes the same steps, unless `balance` binds: rows then change sides whole, and
    which of them should is a knapsack problem, of which the relaxation is solved, by sorting. Its
    rest can leave a labelling unfound, and no bound wrong. Where the heaviest row has a larger
    share of the weight than `balance`, labellings as uneven as that share are allowed, for
    there may be none that are more even (of the rows written twice there are, so that the values
    then differ). Starts are drawn, and not as they are for rows written twice: labels are the same
    where they do not depend on `random_state`. Rows of weight 0 get the label of their score, and
    nothing depends on them.

    *Unequal sizes.* Scores have the mean 0, and so halves, unless rows weigh differently. With
    ``balance=None`` both sides of two-means (of the rows, or in the feature space of a
    precomputed kernel) get the same weight where they are unequal and have the wider margin, by
    the rule of `CPMMC`; the problem is then that of these weights.

    *Large C.* Many labellings share the solution then, far from each other, and labels may change
    with `random_state`: compare ``result_.labelled_objective``, the lower the better.

    *As printed.* Seen from the origin all rows of a Gaussian kernel lie on one side: with
    ``mode="paper"`` it is the balance that makes two clusters, and the labels, which are those of
    the mixture, may differ from the signs of `decision_function` on the training rows. For
    Gaussian kernels the paper's section 8.2 has :math:`\sigma`, a tenth of the mean distance:
    ``gamma = 50 / mean_distance(X) ** 2`` (see `volmar.graphs.mean_distance`).

    The margin has the units of X: scale features that have different ones.

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
    # JMLR section 8.2 has C = 1 among 0.001, 1 and 1000; it prints no balance: 0.3 is the looser
    # of the two in use for these methods (0.03 for classes of equal size).
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
            check_number("C", self.C, low=LEAST_C, high=MOST_C)
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
                f"balance={self.balance:g} allows all rows on one side. Use a value "
                "below 1, or leave it out."
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
        """Return C of the formula and the limit of a labelling's sum."""
        space, n = prepared.space, prepared.n
        spread = space.mean_square()
        if spread < 0.0:
            raise self._no_margin()
        if spread == 0.0:
            which = "" if prepared.weights is None else " with a positive sample_weight"
            raise ValueError(
                f"all {n} rows of X{which} are the same to the kernel, and there is nothing to "
                "separate. Check that the rows of X differ, or use another kernel or gamma."
            )
        w = row_weights(space)
        mean = self._value_of("balance")
        limit = _largest_sum(mean, np.ones(n) if w is None else w)
        C = float(self._value_of("C"))
        return (C if self.mode == "paper" else C / (n * spread)), limit

    def _take_sizes(self, prepared: LabelGenerationInputs) -> None:
        """Give both sides of k-means the same weight where they are unequal and lie apart."""
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
                # Where a width is chosen, clusters of a graph of the rows are starts already.
                from_graph=self.mode == "paper" or self.kernel == "precomputed",
            )
        except NotAGramMatrixError as error:
            raise self._no_margin() from error
        shares = prepared.space.shares
        if np.ptp(result.labels if shares is None else result.labels[shares > 0]) == 0:
            raise ValueError(
                "all rows are on one side of the hyperplane found, up to rounding: check that the "
                "rows of X differ, or scale X."
            )
        return result

    def _start(self, prepared: LabelGenerationInputs) -> NDArray | None:
        if isinstance(self.init, str):
            return None
        return check_start_labels("init", self.init, prepared.space.n_rows, 2)

    def _no_margin(self) -> ValueError:
        return ValueError(
            f"kernel={self.kernel!r} is not positive semi-definite on these rows, so that there "
            "is no margin. Use another, 'rbf' say, or other parameters of it."
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
                f"a labelling is still violated by {result.residuals['violation']:.1e} of the "
                f"objective after {result.n_iter} of them. Raise max_iter or tol, lower C, or "
                "raise balance"
            )
        return (
            f"the gap over the labellings is {result.residuals['master gap']:.1e} of the "
            "objective, and rounding keeps it there. Raise tol, scale X, or use float64"
        )


def _largest_sum(mean: float, weights: NDArray) -> float:
    """Return the maximum of |sum(weights * y)|: `mean` of all, but for rounding.

    Never less than the heaviest row, to within which every order of the rows can be cut in the
    middle, while to find a more even labelling, or that there is none, is NP-hard. All rows on one
    side are more than it.
    """
    total, heaviest = float(weights.sum()), float(weights.max())
    limit = max(mean * total, heaviest) + SUMS * total
    return min(limit, total - float(weights[weights > 0].min()))
