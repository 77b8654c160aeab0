"""The minimax probability machine: the hyperplane with the best worst-case accuracy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_is_fitted

from volmar._checks import check_count, check_random_state
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
from volmar.rows.anywhere import (
    as_rows,
    centered_with_moments,
    in_one_pass,
    mapped_rows,
    mapped_scores,
)
from volmar.rows.blocks import BlockTable, RowVector, as_beside, is_dask
from volmar.rows.kernel import Kernel
from volmar.rows.protocol import RowSource
from volmar.rows.standardized import Standardized, evenly_scaled, standardized
from volmar.separation.gep import check_reg
from volmar.solvers import Status, solve_minimax_probability
from volmar.solvers.minimax_probability import MinimaxProbabilityResult


def class_moments(z: Standardized, positive: Any) -> list[tuple[NDArray, NDArray]]:
    """Return the mean and covariance in z of the rows of each class, the positive one first.

    Each class is summed about its own mean. Sums about the mean of all rows would lose the
    covariance within classes to rounding if the classes are far apart.
    """
    zero, classes = np.zeros(z.rows.n_features), (positive, ~positive)
    means = z.rows.in_one_pass(
        lambda: [z.rows.moments(c, center=zero, second=False).mean for c in classes]
    )
    parts = z.rows.in_one_pass(
        lambda: [z.rows.moments(c, center=m) for c, m in zip(classes, means, strict=True)]
    )
    return [z.mean_and_covariance(part) for part in parts]


def separate(
    z: Standardized, positive: Any, reg: float
) -> tuple[MinimaxProbabilityResult, NDArray, float]:
    """Return the certified result in z, and w and b of the hyperplane in the rows' coordinates.

    In the units of z the regulariser is reg times the identity.
    """
    (mean1, S1), (mean2, S2) = class_moments(z, positive)
    difference = mean1 - mean2
    eps = float(np.finfo(z.rows.dtype).eps)
    if np.abs(difference).max(initial=0.0) <= 8 * eps:
        difference = np.zeros_like(difference)  # means that differ by rounding are equal
    else:
        # Cholesky may miss a matrix that is singular up to rounding. S1 + S2 is positive
        # semidefinite, so a reg above the noise needs no eigenvalue.
        noise = 4 * eps * float(np.trace(S1 + S2))
        if 2 * reg <= noise and eigenvalues(S1 + S2, (0, 0))[0] + 2 * reg <= noise:
            raise ValueError(_singular(reg))
    for S in (S1, S2):
        S[np.diag_indices_from(S)] += reg
    try:
        result = solve_minimax_probability(difference, S1, S2)
    except np.linalg.LinAlgError as error:
        raise ValueError(_singular(reg)) from error
    w = z.coefficients(result.w)
    return result, w, result.intercept(mean1) - float(w @ z.mean)


def _singular(reg: float) -> str:
    return (
        f"the covariances of the classes are singular with reg={reg:g}. Features are linearly "
        "dependent within the classes, or there are fewer rows than features. Use a larger reg, "
        "e.g. the default 0.01."
    )


# -------------------------------------------------------------------------------- estimator


class MinimaxProbabilityMachine(KernelMixin, ClassifierMixin, BaseEstimator):
    r"""Minimax probability machine: a binary classifier that assumes no distributions.

    Finds the hyperplane with the largest probability p that rows of both classes lie on the
    correct side, in the worst case over *all* distributions with the means and covariances of the
    classes (Lanckriet et al. 2003; MSPC eqs. 1 and 2). By the multivariate Chebyshev inequality

    .. math::

        \kappa = \sqrt{\frac{p}{1 - p}} = \max_w \frac{w'(\mu_1 - \mu_2)}
        {\sqrt{w'(S_1 + \lambda\Lambda) w} + \sqrt{w'(S_2 + \lambda\Lambda) w}},

    where class 1 is `classes_[1]`, :math:`\lambda` is `reg` and :math:`\Lambda` is the diagonal of
    the covariance of all training rows. With :math:`w'(\mu_1 - \mu_2) = 1` the threshold is
    :math:`b = \kappa s_1 - w'\mu_1`, where :math:`s_1` is the first square root above.

    Parameters
    ----------
    reg : float, default=1e-2
        Regularisation in units of the features' variances. The default adds a hundredth of each
        feature's variance, which changes little if the covariances are well determined, and is
        enough for duplicated features or fewer rows than features. On eight two-class data sets,
        the cross-validated error was nearly constant between 1e-6 and 0.1 for the linear machine,
        and lowest from 0.01 to 0.1 for an RBF kernel. With 0, the sum of the class covariances
        must be nonsingular.
    kernel : str or callable, default="linear"
        "linear" for a hyperplane in X, the name of a scikit-learn kernel, a function of two
        matrices, or "precomputed".
    gamma : float, str or None, default="scale"
        Kernel coefficient of "rbf", "polynomial", "sigmoid", "laplacian" and "chi2": a number, a
        rule or a multiple of one ("scale" is 1 / (n_features * variance of X), "rms", "4*scale"),
        or None for scikit-learn's 1 / n_features. Other kernels ignore it.
    degree : float, default=3
        Degree of the polynomial kernel, at least 1.
    coef0 : float, default=1
        Constant of the polynomial and sigmoid kernels.
    kernel_params : dict, optional
        Keyword arguments of a callable kernel.
    n_components : int, optional
        Number of landmarks of a Nyström approximation of the kernel, or of leading principal
        components of a precomputed one. If None, the kernel is exact up to 1000 rows and has 100
        landmarks beyond; a precomputed one is always exact. Ignored for kernel="linear".
    random_state : int, RandomState or None, default=None
        Random seed for the choice of landmarks; nothing else is random.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The classes, sorted; the second is the positive one.
    coef_ : ndarray of shape (1, n_features)
        w in the coordinates of X; 0 for constant features. Only for kernel="linear".
    intercept_ : ndarray of shape (1,)
        Offset b.
    gamma_ : float or None
        Coefficient of the kernel that was used, None for kernels without one.
    separation_probability_ : float
        Worst-case probability p, between 0 and 1.
    kappa_ : float
        :math:`\sqrt{p / (1 - p)}`.
    feature_map_ : KernelPCAMap or NystroemMap
        Map from X to the kernel features. Not set for kernel="linear".
    result_ : MinimaxProbabilityResult
        Certified result of the solver; its direction is in standardised coordinates.
    n_iter_ : int
        Number of Cholesky factorisations.
    n_features_in_ : int
        Number of features (of training rows if kernel="precomputed").

    See Also
    --------
    sklearn.discriminant_analysis.LinearDiscriminantAnalysis : Same direction if the covariances
        of the classes are equal.
    sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis : Assumes Gaussian classes.

    Notes
    -----
    `separation_probability_` is computed from sample moments. It would hold on new data if these
    were the true moments, which is a poor approximation for few rows: with fewer rows than
    features it approaches 1 for any labels. It does hold on the training rows for every `reg`: at
    least a share p of each class lies on its own side. The bound is the same for both classes and
    does not depend on their sizes.

    Rescaling the features does not change the result, because :math:`\lambda\Lambda` scales with
    them. As `reg` tends to 0 this holds for any invertible linear map (MSPC, Theorem 1).

    A kernel machine is the linear machine on features whose inner products are the kernel, with
    :math:`\Lambda = e_1 I`, where :math:`e_1` is the largest eigenvalue of the features'
    covariance; a diagonal would depend on their basis. kernel="linear" does not use such features,
    and differs from a precomputed linear kernel by its regulariser. Weights enter the moments, but
    not the choice of landmarks, except that rows of weight 0 are never landmarks.

    Time is O(n d^2 + d^3) and memory O(d^2) in addition to X, where d is the number of features or
    of landmarks. With more features than rows, the Gram matrix of the rows is used, in O(n^2 d +
    n^3) and O(n^2); beyond 2000 such rows the search is limited to 100 principal directions, as in
    `MSPC`. A dask array or DataFrame is read block by block, in a few passes whose number does not
    depend on n.

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
        """Fit the hyperplane between two classes.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_samples, n_samples)
            Rows, dense or CSR, a dask array or DataFrame, or the dense kernel matrix with
            kernel="precomputed".
        y : array of shape (n_samples,)
            Labels of two classes. If X is a dask collection, also a dask array or Series.
        sample_weight : array of shape (n_samples,), optional
            Weight of each row; weight 2 is the same as a duplicated row. May be a dask collection
            like y.

        Returns
        -------
        self
        """
        self._check_parameters()
        with fresh_fit(self, X) as fitted:
            fitted._fit(X, y, sample_weight)
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
        # A smaller relative gap of kappa leaves the predictions unchanged.
        if result.gap <= 1e-6 * result.kappa and result.status is Status.MAX_ITER:
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
                f"kappa is certified only to a relative gap of {result.gap / result.kappa:.1e}, "
                "because the covariances are nearly singular. Use a larger reg"
            )
        return (
            "the classes have the same mean, so that no hyperplane separates them. Every row is "
            "predicted to be of classes_[0]. Use another kernel, e.g. kernel='rbf'"
        )

    @one_thread()
    @explain_memory
    def decision_function(self, X: ArrayLike) -> NDArray:
        """Return w'x + b, the signed distance to the hyperplane; the class means are 1 apart.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows, or kernel values with the training rows where those were precomputed.

        Returns
        -------
        ndarray of shape (n_samples,)
            Positive for `classes_[1]`. If X is a dask array, a lazy dask array in the same blocks;
            if X is a dask DataFrame, a Series with its index.
        """
        check_is_fitted(self, "result_")
        if is_dask(X):
            return lazily(self, "decision_function", X)
        rows: Any = check_rows(X, estimator=self, reset=False, accept_sparse=self._takes_sparse())
        with quiet():
            if self._is_linear():
                # In float64, because float32 loses the distance to rounding if X lies far from 0.
                scores = rows @ self.coef_[0] + self.intercept_[0]
            else:
                scores = mapped_scores(self.feature_map_, rows, self._w) + self.intercept_[0]
        return finite_scores(scores, rows, self)

    def predict(self, X: ArrayLike) -> NDArray:
        """Return the class of each row, by its side of the hyperplane.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows, or kernel values with the training rows where those were precomputed.

        Returns
        -------
        ndarray of shape (n_samples,)
            Classes. If X is a dask array, a lazy dask array in the same blocks; if X is a dask
            DataFrame, a Series with its index.
        """
        if is_dask(X):
            check_is_fitted(self, "result_")
            return lazily(self, "predict", X)
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(np.intp)]

    def __sklearn_tags__(self):
        """Return scikit-learn's tags: the accepted input, and binary classes only."""
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
            Kernel("linear", kernel_params=self.kernel_params)  # raises an error for kernel_params

    def _validated_blocks(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, ...]:
        """Return table, weights, classes and the mask of the second class for dask collections."""
        if self._is_precomputed():
            name = f"{type(self).__name__}(kernel='precomputed')"
            refuse_blocks(name, "the kernel matrix has one column per row")
        table, labels, weights = check_labelled_blocks(self, X, y, sample_weight, self._ask_first)
        classes = labels.distinct()[0]
        assert_all_finite(classes, input_name="y")
        # Unique labels would look like a regression target, so each is repeated.
        self._check_binary(np.repeat(classes, 2))
        self._check_classes(classes)
        if weights is not None:
            self._check_mass(classes, class_weights(labels, weights, classes))
        return table, weights, classes, labels == classes[1]

    def _ask_first(self, rows: RowSource) -> None:
        """Request the first quantities of a fit to rows in blocks, to get them in one pass."""
        if self._is_linear():
            centered_with_moments(rows)
        elif self._scales_gamma():
            rows.mean()

    def _two_classes(self, y: NDArray, weights: NDArray | None) -> tuple[NDArray, NDArray]:
        """Return the sorted classes and the mask of the rows of the second."""
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
                f"y has 1 class, {classes[0]!r}, but {type(self).__name__} needs 2. Add rows of "
                "another class."
            )

    def _check_mass(self, classes: NDArray, mass: NDArray) -> None:
        if np.any(mass == 0):
            raise ValueError(
                f"sample_weight is 0 for every row of class {classes[np.argmin(mass)]!r}, but "
                f"{type(self).__name__} needs 2 classes. Give a row of it a positive weight."
            )


def check_labelled_blocks(
    estimator: Any, X: Any, y: Any, sample_weight: Any, ask_first: Callable[[RowSource], None]
) -> tuple[BlockTable, RowVector, RowVector | None]:
    """Return checked rows, labels and weights of dask collections; labels may have any values.

    One pass checks that the entries of X are finite, finds the distinct labels, and computes the
    quantities that `ask_first` requests of the row source. With weights, an earlier pass checks
    these and finds the distinct labels.
    """
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None. Pass "
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
        if weights is not None:  # only then the values are known from an earlier pass
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
    """Raise an error if labels cannot be sorted."""
    try:
        labels.distinct()
    except TypeError as error:
        raise ValueError(
            f"y has labels that cannot be sorted ({error}): missing labels, or numbers mixed with "
            "strings. Drop rows without a label, and give all labels as strings or all as "
            "integers."
        ) from error


def class_weights(labels: RowVector, weights: RowVector, classes: NDArray) -> NDArray:
    """Return the weight of each class; already computed by `check_labelled_blocks`."""
    return np.array([(weights * (labels == value)).sum() for value in classes])
