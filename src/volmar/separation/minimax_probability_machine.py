"""The minimax probability machine: the plane with the best worst-case accuracy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_is_fitted

from volmar._checks import check_random_state
from volmar._eigen import eigenvalues
from volmar._input import check_labelled_rows, check_rows, kind_of_classes
from volmar._memory import explain_memory
from volmar._threads import one_thread
from volmar._weights import rescaled_sample_weight
from volmar.base.blocks import (
    check_block_weights,
    check_blocks,
    check_entries,
    lazily,
    refuse_blocks,
)
from volmar.base.kernel import KernelMixin
from volmar.base.outcome import finite_scores, fresh_fit, quiet
from volmar.base.validation import check_count
from volmar.rows import (
    BlockTable,
    Kernel,
    RowSource,
    RowVector,
    Standardized,
    as_beside,
    as_rows,
    centered_with_moments,
    evenly_scaled,
    in_one_pass,
    is_dask,
    mapped_rows,
    mapped_scores,
    standardized,
)
from volmar.separation.gep import check_reg
from volmar.solvers import MinimaxProbabilityResult, Status, solve_minimax_probability

# A gap up to this share of kappa is as good as none: a better answer predicts the same classes.
WORST_GAP = 1e-6

# ---------------------------------------------------------------------------------- problem


def class_moments(z: Standardized, positive: Any) -> list[tuple[NDArray, NDArray]]:
    """Return the mean and covariance in z of the rows of each class, the positive one first.

    They are summed about the class's own mean: about that of all rows, classes far apart would
    leave no digits for the spread within.
    """
    zero, classes = np.zeros(z.rows.n_features), (positive, ~positive)
    means = z.rows.in_one_pass(
        lambda: [z.rows.moments(c, center=zero, second=False).mean for c in classes]
    )
    parts = z.rows.in_one_pass(
        lambda: [z.rows.moments(c, center=m) for c, m in zip(classes, means, strict=True)]
    )
    return [z.mean_and_covariance(part) for part in parts]


# ----------------------------------------------------------------------------------- solver


def separate(
    z: Standardized, positive: Any, reg: float
) -> tuple[MinimaxProbabilityResult, NDArray, float]:
    """Return the certified result in z, and w and b of the plane in the coordinates of the rows.

    z has units in which the regulariser is reg times the identity.
    """
    (mean1, S1), (mean2, S2) = class_moments(z, positive)
    difference = mean1 - mean2
    eps = float(np.finfo(z.rows.dtype).eps)
    if np.abs(difference).max(initial=0.0) <= 8 * eps:
        difference = np.zeros_like(difference)  # means that differ by rounding are equal
    else:
        _require_regular(S1 + S2, reg, eps)
    for S in (S1, S2):
        S[np.diag_indices_from(S)] += reg
    try:
        result = solve_minimax_probability(difference, S1, S2)
    except np.linalg.LinAlgError as error:
        raise ValueError(_singular(reg)) from error
    w = z.coefficients(result.w)
    return result, w, result.intercept(mean1) - float(w @ z.mean)


def _require_regular(S: NDArray, reg: float, eps: float) -> None:
    """Raise where S + 2 reg I is singular up to rounding: Cholesky may not notice."""
    noise = 4 * eps * float(np.trace(S))
    # S is positive semidefinite: a reg above the noise needs no eigenvalue.
    if 2 * reg <= noise and eigenvalues(S, (0, 0))[0] + 2 * reg <= noise:
        raise ValueError(_singular(reg))


def _singular(reg: float) -> str:
    return (
        f"the covariances of the classes are singular with reg={reg:g}: features depend on each "
        "other within the classes, or the rows are fewer than the features. Use a larger reg, "
        "e.g. the default 0.01."
    )


# -------------------------------------------------------------------------------- estimator


class MinimaxProbabilityMachine(KernelMixin, ClassifierMixin, BaseEstimator):
    r"""The minimax probability machine, a binary classifier without assumed distributions.

    Maximises over planes the probability p that both classes lie on their own sides, in the worst
    case over *all* distributions that have the means and covariances of the classes (Lanckriet
    et al. 2003; MSPC eqs. 1 and 2). By the multivariate Chebyshev inequality

    .. math::

        \kappa = \sqrt{\frac{p}{1 - p}} = \max_w \frac{w'(\mu_1 - \mu_2)}
        {\sqrt{w'(S_1 + \lambda\Lambda) w} + \sqrt{w'(S_2 + \lambda\Lambda) w}},

    where class 1 is `classes_[1]`, :math:`\lambda` is `reg` and :math:`\Lambda` the diagonal of
    the covariance of all training rows. With :math:`w'(\mu_1 - \mu_2) = 1` the threshold is
    :math:`b = \kappa s_1 - w'\mu_1`, :math:`s_1` the first root above.

    Parameters
    ----------
    reg : float, default=1e-2
        Regulariser in units of the features' variances. The default adds a hundredth of each
        feature's variance: little where the covariances are well determined, and enough for
        duplicated features or fewer rows than features. On eight two-class sets the linear
        machine's cross-validated error hardly moved between 1e-6 and 0.1, that of an RBF kernel
        was lowest at 0.01 to 0.1. 0 needs class covariances whose sum is regular.
    kernel : str or callable, default="linear"
        "linear" for planes in X; otherwise the name of a scikit-learn kernel, a function of two
        matrices, or "precomputed".
    gamma : float, str or None, default="scale"
        Kernel coefficient of "rbf", "polynomial", "sigmoid", "laplacian" and "chi2": a number, a
        rule or a multiple of one ("scale" is 1 / (n_features * variance of X), "rms", "4*scale"),
        or None for scikit-learn's 1 / n_features. Other kernels have no use for it.
    degree : float, default=3
        Degree of the polynomial kernel, at least 1.
    coef0 : float, default=1
        Constant of the polynomial and sigmoid kernels.
    kernel_params : dict, optional
        Further arguments of a callable kernel.
    n_components : int, optional
        Number of landmarks of a Nyström approximation of the kernel, or of leading principal
        components of a precomputed one. None takes the kernel exactly up to 1000 rows and 100
        landmarks beyond; a precomputed one always exactly. The linear machine has no use for it.
    random_state : int, RandomState or None, default=None
        Seed of the choice of landmarks; nothing else is random.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The classes, sorted; the second is the positive one.
    coef_ : ndarray of shape (1, n_features)
        w in the coordinates of X; 0 for constant features. Linear only.
    intercept_ : ndarray of shape (1,)
        b.
    gamma_ : float or None
        Coefficient of the kernel that was used, None for kernels without one.
    separation_probability_ : float
        p, between 0 and 1.
    kappa_ : float
        :math:`\sqrt{p / (1 - p)}`.
    feature_map_ : KernelPCAMap or NystroemMap
        The map from X to the features that the plane lies in. Kernels only.
    result_ : MinimaxProbabilityResult
        The solver's certified result, its direction in standardised coordinates.
    n_iter_ : int
        Cholesky factorisations taken.
    n_features_in_ : int
        Number of features (of training rows, with kernel="precomputed").

    See Also
    --------
    sklearn.discriminant_analysis.LinearDiscriminantAnalysis : The same for equal covariances, up
        to the threshold.
    sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis : For Gaussian classes.

    Notes
    -----
    `separation_probability_` is a plug-in bound: it would hold on new data if the sample moments
    were the true ones, which for few rows they are not. As rows get fewer than features it goes to
    1 for any labels. On the training rows it does hold: of each class at least a share p lies on
    its own side, whatever `reg` is. It is a bound for both classes alike; how many rows a class
    has does not enter.

    Rescaling the features changes nothing: :math:`\lambda\Lambda` scales with them. For `reg`
    towards 0 the same is true of any invertible linear map (MSPC, Theorem 1).

    A kernel machine is the linear one on features whose inner products are the kernel, with
    :math:`\Lambda = e_1 I`, :math:`e_1` the largest eigenvalue of the features' covariance: a
    diagonal would depend on their basis. "linear" does not go that way, and differs from a
    precomputed linear kernel by its regulariser. Weights count in the moments, not in the choice
    of landmarks, except that rows of weight 0 are none.

    Time is O(n d^2 + d^3), memory O(d^2) beside X; with landmarks, d is their number. With more
    features than rows it is O(n^2 d + n^3) and O(n^2), by the Gram matrix of the rows (beyond 2000
    of them the plane is found among 100 principal directions, as in `MSPC`). A dask array
    or DataFrame is read block by block, in a few passes whose number does not depend on n.

    References
    ----------
    Lanckriet, El Ghaoui, Bhattacharyya and Jordan (2003), "A robust minimax approach to
    classification", JMLR 3, 555-582.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from volmar import MinimaxProbabilityMachine
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MinimaxProbabilityMachine(reg=0.1).fit(X[::2], y[::2])
    >>> round(model.separation_probability_, 2), round(model.score(X[1::2], y[1::2]), 2)
    (0.76, 0.96)
    """

    def __init__(
        self,
        *,
        reg: float = 1e-2,
        kernel: str | Callable[..., Any] = "linear",
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        n_components: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.reg = reg
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.n_components = n_components
        self.random_state = random_state

    @one_thread()
    @explain_memory
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Find the plane between two classes.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_samples, n_samples)
            Rows, dense or CSR, a dask array or DataFrame, or the dense kernel matrix with
            kernel="precomputed".
        y : array of shape (n_samples,)
            Labels of two classes; with X of dask also a dask array or Series.
        sample_weight : array of shape (n_samples,), optional
            Weight of each row; 2 is the same as writing the row twice. Of dask or not, as y.

        Returns
        -------
        self
        """
        self._check_parameters()
        with fresh_fit(self, X):
            self._fit(X, y, sample_weight)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> None:
        if is_dask(X):
            X, weights, classes, positive = self._validated_blocks(X, y, sample_weight)
        else:
            X, y = check_labelled_rows(X, y, estimator=self, accept_sparse=self._takes_sparse())
            weights = rescaled_sample_weight(sample_weight, X.shape[0])
            classes, positive = self._two_classes(y, weights)
        if self._is_linear():
            z = standardized(as_rows(X, sample_weight=weights))
            result, w, b = separate(z, positive, float(self.reg))
            self.coef_ = w[np.newaxis]
            self.gamma_ = None
        else:
            self.feature_map_ = self._feature_map(X, weights, self.n_components)
            self.gamma_ = self.feature_map_.gamma
            rows = mapped_rows(self.feature_map_, X, sample_weight=weights)
            result, self._w, b = separate(evenly_scaled(rows), positive, float(self.reg))
        if result.gap <= WORST_GAP * result.kappa and result.status is Status.MAX_ITER:
            result = replace(result, status=Status.CONVERGED)
        self.classes_ = classes
        self.intercept_ = np.array([b])
        self.kappa_ = result.kappa
        self.separation_probability_ = result.probability
        self.result_ = result
        self.n_iter_ = result.n_iter

    def _status_words(self, result: MinimaxProbabilityResult) -> str:
        if result.status is not Status.DEGENERATE:
            return (
                f"kappa is certified to {result.gap / result.kappa:.1e} of itself only: the "
                "covariances are nearly singular. Use a larger reg"
            )
        return (
            "the classes have the same mean: no plane separates them, and every row is predicted "
            "to be of classes_[0]. Use another kernel, e.g. kernel='rbf'"
        )

    @one_thread()
    @explain_memory
    def decision_function(self, X: ArrayLike) -> NDArray:
        """Return w'x + b: the signed distance to the plane; the class means are 1 apart.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows, or kernel values with the training rows where those were precomputed.

        Returns
        -------
        ndarray of shape (n_samples,)
            Positive for `classes_[1]`. A lazy dask array in the same blocks where X is one,
            a Series with its index where X is a dask DataFrame.
        """
        check_is_fitted(self, "result_")
        if is_dask(X):
            return lazily(self, "decision_function", X)
        rows: Any = check_rows(X, estimator=self, reset=False, accept_sparse=self._takes_sparse())
        with quiet():
            if self._is_linear():
                # In float64: X may lie far from 0, where float32 has no digits for the distance.
                scores = rows @ self.coef_[0] + self.intercept_[0]
            else:
                scores = mapped_scores(self.feature_map_, rows, self._w) + self.intercept_[0]
        return finite_scores(scores, rows, self)

    def predict(self, X: ArrayLike) -> NDArray:
        """Return the class of the side of the plane that each row lies on.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows, or kernel values with the training rows where those were precomputed.

        Returns
        -------
        ndarray of shape (n_samples,)
            Classes. A lazy dask array in the same blocks where X is one,
            a Series with its index where X is a dask DataFrame.
        """
        if is_dask(X):
            check_is_fitted(self, "result_")
            return lazily(self, "predict", X)
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(np.intp)]

    def __sklearn_tags__(self):
        """Tell scikit-learn which input is taken, and that two classes are the limit."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = self._takes_sparse()
        tags.input_tags.pairwise = self._is_precomputed()
        return tags

    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _takes_sparse(self) -> bool:
        return not self._is_precomputed()

    def _check_parameters(self) -> None:
        check_reg(self.reg)
        check_random_state(self.random_state)
        self._check_kernel()
        if self.n_components is not None:
            check_count("n_components", self.n_components)
        if self._is_linear():
            Kernel("linear", kernel_params=self.kernel_params)  # refuses kernel_params

    def _validated_blocks(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, ...]:
        """Return table, weights, classes and which rows belong to the second, of dask's."""
        if self._is_precomputed():
            name = f"{type(self).__name__}(kernel='precomputed')"
            refuse_blocks(name, "the kernel matrix has a column for each row")
        table, labels, weights = check_labelled_blocks(self, X, y, sample_weight, self._ask_first)
        classes = labels.distinct()[0]
        assert_all_finite(classes, input_name="y")
        # A label for each row would look like a regression: every one is shown twice.
        self._check_binary(np.repeat(classes, 2))
        self._check_classes(classes)
        if weights is not None:
            self._check_mass(classes, class_weights(labels, weights, classes))
        return table, weights, classes, labels == classes[1]

    def _ask_first(self, rows: RowSource) -> None:
        """Ask for what a fit to rows in blocks begins with, so that one pass brings it."""
        if self._is_linear():
            centered_with_moments(rows)
        elif self._scales_gamma():
            rows.mean()

    def _two_classes(self, y: NDArray, weights: NDArray | None) -> tuple[NDArray, NDArray]:
        """Return the sorted classes and which rows belong to the second."""
        self._check_binary(y)
        classes, inverse = np.unique(y, return_inverse=True)
        self._check_classes(classes)
        self._check_mass(classes, np.bincount(inverse, weights))
        return classes, inverse == 1

    def _check_binary(self, y: NDArray) -> None:
        kind = kind_of_classes(y)
        if kind != "binary":
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {kind}. "
                "Wrap the machine in sklearn.multiclass.OneVsOneClassifier for more classes."
            )

    def _check_classes(self, classes: NDArray) -> None:
        if classes.size < 2:
            raise ValueError(
                f"y has 1 class, {classes[0]!r}, and {type(self).__name__} needs 2. Add rows of "
                "another class."
            )

    def _check_mass(self, classes: NDArray, mass: NDArray) -> None:
        if np.any(mass == 0):
            raise ValueError(
                f"sample_weight is 0 for every row of class {classes[np.argmin(mass)]!r}, and "
                f"{type(self).__name__} needs 2 classes. Give some row of it a positive weight."
            )


# ------------------------------------------------------------------------------ rows in blocks


def check_labelled_blocks(
    estimator: Any, X: Any, y: Any, sample_weight: Any, ask_first: Callable[[RowSource], None]
) -> tuple[BlockTable, RowVector, RowVector | None]:
    """Return rows, labels and weights of dask collections, checked but for what the labels are.

    One pass tells that the entries of X are finite, and brings the different labels and what
    `ask_first` asks the row source for. With weights, another before it sees to these and to the
    labels.
    """
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None. Give "
            "the labels of two classes."
        )
    table = check_blocks(estimator, X, reset=True)
    labels = as_beside(table, y, "y")
    weights = sample_weight
    if np.ndim(weights) > 0 or is_dask(weights):
        weights = as_beside(table, weights, "sample_weight")

    def ask() -> None:
        ask_first(as_rows(table, sample_weight=weights))
        values = labels.distinct()[0]
        if weights is not None:  # so that an earlier pass has brought the values
            class_weights(labels, weights, values[:2])

    try:
        if weights is not None:
            _, weights = in_one_pass(
                lambda: (labels.distinct(), check_block_weights(table, sample_weight)), table
            )
        check_entries(table, ask)
    except TypeError:
        _check_order(labels)
        raise
    return table, labels, weights


def _check_order(labels: RowVector) -> None:
    """Say so if labels cannot be sorted."""
    try:
        labels.distinct()
    except TypeError as error:
        raise ValueError(
            f"y holds labels that cannot be put in order ({error}): missing ones, or numbers "
            "among strings. Drop rows without a label, and give all labels as strings or all as "
            "integers."
        ) from error


def class_weights(labels: RowVector, weights: RowVector, classes: NDArray) -> NDArray:
    """Return the weight of the rows of each class; `check_labelled_blocks` asked for it."""
    return np.array([(weights * (labels == value)).sum() for value in classes])
