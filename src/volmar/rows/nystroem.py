"""The Nyström feature map: approximate features of a kernel from a few landmarks."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.cluster import KMeans

from volmar._checks import check_random_state
from volmar._memory import require_memory
from volmar._warn import quiet_fit
from volmar.rows._kernel_map import KernelMap, positive_part, rank_tolerance
from volmar.rows._validation import as_matrix
from volmar.rows.blocks.table import BlockTable

# k-means only spreads the landmarks: twenty rows per landmark and twenty iterations suffice.
_POINTS_PER_LANDMARK = 20
_KMEANS_ROUNDS = 20


class NystroemMap(KernelMap):
    """Features z(x) = Λ^{-1/2} U' k(L, x) for landmarks L with K(L, L) = U Λ U'.

    Then z(x)' z(y) = k(x, L) K(L, L)⁺ k(L, y), the Nyström approximation of k(x, y), exact on the
    span of the landmarks. The cost per row is m kernel values and m r multiplications, for m
    landmarks of numerical rank r.

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        The name of a kernel of `sklearn.metrics.pairwise.pairwise_kernels`, or a function
        ``kernel(X, Y, **kernel_params)`` of two *matrices* that returns the kernel matrix
        (as for `sklearn.svm.SVC`).
    landmarks : int, array of int or matrix, default=100
        The number of landmarks to choose, the indices of the rows to use as landmarks, or the
        landmarks themselves, shape (m, d).
    choice : {"kmeans", "random"}, default="kmeans"
        How landmarks are chosen if `landmarks` is a number: "kmeans" uses the centres of k-means
        on a subsample, and "random" uses random rows.
    gamma : float, optional
        Coefficient of "rbf", "laplacian", "poly", "sigmoid" and "chi2". If None, scikit-learn's
        default is used, 1 / n_features (1 for "chi2"). It does not depend on the scale of the
        data and is often poor.
    degree : float, default=3
        Degree of "poly".
    coef0 : float, default=1
        Constant of "poly" and "sigmoid".
    kernel_params : mapping, optional
        Arguments of a callable kernel.
    random_state : int, RandomState or None, default=None
        Random seed of the choice of landmarks.

    Attributes
    ----------
    n_components : int
        The number r of features. Eigenvalues of K(L, L) that are rounding error relative to the
        largest are dropped, so that no feature is divided by their roots.
    landmarks_ : array or sparse matrix of shape (m, d)
        The landmarks. k-means centres of sparse data are dense.
    normalizer_ : ndarray of shape (m, r)
        U Λ^{-1/2}.
    n_features_in_ : int
        The number d of features of X.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.metrics.pairwise import rbf_kernel
    >>> from volmar.rows import NystroemMap
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> Z = NystroemMap("rbf", landmarks=50, gamma=0.5, random_state=0).fit(X).transform(X)
    >>> bool(abs(Z @ Z.T - rbf_kernel(X, gamma=0.5)).max() < 0.1)
    True
    """

    def __init__(
        self,
        kernel: str | Callable[..., Any] = "rbf",
        *,
        landmarks: Any = 100,
        choice: str = "kmeans",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: Mapping[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            kernel, gamma=gamma, degree=degree, coef0=coef0, kernel_params=kernel_params
        )
        if self._kernel.precomputed:
            raise ValueError(
                "NystroemMap cannot use kernel='precomputed', since it needs the kernel between "
                "new points and landmarks. Use KernelPCAMap, or give a callable."
            )
        if choice not in ("kmeans", "random"):
            raise ValueError(f"choice must be 'kmeans' or 'random', got {choice!r}.")
        self.landmarks = landmarks
        self.choice = choice
        self.random_state = random_state

    def fit(self, X: Any) -> Self:
        """Choose the landmarks among the rows of X and factor their kernel matrix."""
        if not isinstance(X, BlockTable):
            X = as_matrix(X)
        landmarks = self._choose(X)
        m = landmarks.shape[0]
        require_memory(
            4 * 8 * m**2, f"The kernel matrix of {m} landmarks", "Choose fewer landmarks."
        )
        matrix = self._symmetric_kernel(landmarks.astype(np.float64))
        # New kernel values are rounded to the dtype of the data, which therefore sets the rank.
        values, vectors = positive_part(matrix, rank_tolerance(m, X.dtype))
        self.landmarks_ = landmarks
        self.normalizer_ = (vectors / np.sqrt(values)).astype(X.dtype, copy=False)
        self._set_fitted(values.size, X.shape[1])
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Map rows, shape (n, d), to features, shape (n, r), in the dtype of X."""
        X = self._check_new(X)
        features = self._cross_kernel(X, self.landmarks_) @ self.normalizer_
        return features.astype(X.dtype, copy=False)

    def scores(self, X: Any, w: np.ndarray) -> np.ndarray:
        """Return z(x)'w = k(x, L) (U Λ^{-1/2} w) for every row, in the dtype of X.

        Features are not computed. See `gaussian_sums` for the precision of "rbf".
        """
        X = self._check_new(X)
        coefficients = self.normalizer_.astype(np.float64) @ w
        return self._kernel.sums(X, self.landmarks_, coefficients).astype(X.dtype, copy=False)

    def _choose(self, X: Any) -> Any:
        if isinstance(self.landmarks, numbers.Integral) and not isinstance(self.landmarks, bool):
            return self._choose_some(X, int(self.landmarks))
        if sparse.issparse(self.landmarks) or np.ndim(self.landmarks) == 2:
            given = as_matrix(self.landmarks, "landmarks")
            if given.shape[1] != X.shape[1]:
                raise ValueError(
                    f"landmarks have {given.shape[1]} features, but X has {X.shape[1]}."
                )
            return given.astype(X.dtype)  # a copy: the map outlives the array
        index = np.asarray(self.landmarks)
        if index.ndim != 1 or index.dtype.kind not in "iu":
            raise TypeError(
                "landmarks must be a number of landmarks, an array of row indices or a matrix of "
                f"landmarks, got {self.landmarks!r}."
            )
        if index.size == 0 or index.min() < 0 or index.max() >= X.shape[0]:
            raise ValueError(
                f"landmarks must be indices between 0 and {X.shape[0] - 1}, at least one, got "
                + ("none." if index.size == 0 else f"{index.min()} to {index.max()}.")
            )
        return X[index]

    def _choose_some(self, X: Any, count: int) -> Any:
        n = X.shape[0]
        if not 1 <= count <= n:
            raise ValueError(
                f"landmarks={count} must be between 1 and the number of rows, {n}. "
                "Choose fewer landmarks, or give the points themselves."
            )
        random_state = check_random_state(self.random_state)
        # A Generator draws a few of many numbers without an array of all of them.
        rng = np.random.default_rng(random_state.randint(2**31 - 1))
        if self.choice == "random":
            return X[np.sort(rng.choice(n, count, replace=False))]
        size = min(n, _POINTS_PER_LANDMARK * count)
        sample = X[:] if size == n else X[np.sort(rng.choice(n, size, replace=False))]
        kmeans = KMeans(
            count, n_init=1, max_iter=_KMEANS_ROUNDS, random_state=random_state.randint(2**31 - 1)
        )
        # Fewer distinct rows than landmarks: the rank cut-off handles repeated landmarks.
        return quiet_fit(kmeans, sample).cluster_centers_
