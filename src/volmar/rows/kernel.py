"""Kernels by name, sums of Gaussian kernels, and feature maps: landmarks and kernel PCA."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import kernel_metrics

from volmar._checks import check_random_state, check_symmetric, fix_signs, is_finite, shown
from volmar._eigen import eigenpairs
from volmar._memory import require_memory
from volmar._warn import quiet_fit, warn_user
from volmar.rows.blocks.table import BlockTable
from volmar.rows.protocol import as_matrix

# Maximum number of kernel values that are held at a time when rows are scored.
KERNEL_BLOCK = 2**23
# Kernels of scikit-learn whose compiled code supports neither read-only memory nor sparse rows.
NEEDS_WRITABLE = ("chi2", "additive_chi2")


class Kernel:
    """A kernel k(x, y), evaluated between two sets of rows.

    As in scikit-learn, a named kernel uses those of gamma, degree and coef0 that it has, and
    ignores the others. The kernel matrix of float32 points is float32.
    """

    def __init__(
        self,
        kernel: str | Callable[..., Any],
        *,
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: Mapping[str, Any] | None = None,
    ) -> None:
        self.kernel = kernel
        self._function: Callable[..., Any] | None = None
        self._arguments: dict[str, Any] = dict(kernel_params or {})
        if not (isinstance(kernel, str) or callable(kernel)):
            raise TypeError(
                f"kernel must be a name or a callable that takes two matrices, got "
                f"{shown(kernel)}."
            )
        if callable(kernel):
            if gamma is not None:
                raise ValueError(
                    f"gamma={shown(gamma)} has no meaning for a callable kernel. Pass it in "
                    "kernel_params instead."
                )
            self._function = kernel
            return
        if kernel_params:
            raise ValueError(
                f"kernel_params={shown(dict(kernel_params))} is only for callable kernels, but "
                f"kernel is {kernel!r}. Use gamma, degree and coef0."
            )
        if kernel == "precomputed":
            return
        functions = kernel_metrics()
        if kernel not in functions:
            raise ValueError(
                f"kernel={shown(kernel)} is not known. Use one of {sorted(functions)} or a "
                "callable that takes two matrices."
            )
        self._function = functions[kernel]
        offered = {"gamma": gamma, "degree": degree, "coef0": coef0}
        taken = inspect.signature(functions[kernel]).parameters
        self._arguments = {
            name: value for name, value in offered.items() if name in taken and value is not None
        }

    def gamma(self, n_features: int) -> float | None:
        """Return the coefficient gamma for rows with `n_features` features.

        It is None for kernels without gamma and for callable kernels.
        """
        if self._function is None or callable(self.kernel):
            return None
        parameter = inspect.signature(self._function).parameters.get("gamma")
        if parameter is None:
            return None
        value = self._arguments.get("gamma", parameter.default)
        return 1.0 / n_features if value is None else float(value)

    @property
    def precomputed(self) -> bool:
        """Whether the user's matrix is the kernel matrix itself."""
        return self._function is None

    def __call__(self, X: Any, Y: Any) -> np.ndarray:
        """Return the kernel matrix between the rows of X and those of Y, dense."""
        if self._function is None:
            raise ValueError("kernel='precomputed' cannot be evaluated between points.")
        if self.kernel in NEEDS_WRITABLE:
            if sparse.issparse(X) or sparse.issparse(Y):
                raise TypeError(
                    f"kernel={self.kernel!r} does not support sparse X. Pass X.toarray(), or use "
                    "another kernel."
                )
            X, Y = _writable(X), _writable(Y)
        with np.errstate(all="ignore"):  # overflow is refused below
            try:
                matrix = self._function(X, Y, **self._arguments)
            except ValueError as error:
                if type(error).__name__ != "InvalidParameterError":  # of scikit-learn
                    raise
                raise ValueError(f"kernel={self.kernel!r} cannot be computed: {error}") from error
        matrix = matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)
        if matrix.shape != (X.shape[0], Y.shape[0]):
            raise ValueError(
                f"the callable kernel returned shape {matrix.shape} for matrices of shapes "
                f"{X.shape} and {Y.shape}, not {(X.shape[0], Y.shape[0])}. A function of two "
                "single points can be wrapped by sklearn.metrics.pairwise.pairwise_kernels."
            )
        if matrix.dtype.kind in "biu":
            matrix = matrix.astype(np.float64)
        elif matrix.dtype.kind != "f":
            raise TypeError(
                f"kernel={self.kernel!r} returned values of type {matrix.dtype}. It must return "
                "real numbers."
            )
        if not is_finite(matrix):
            raise ValueError(
                f"kernel={self.kernel!r} has NaN or infinite values on X. Scale X, or check the "
                f"kernel's parameters {self._arguments}."
            )
        return matrix

    def sums(
        self, X: Any, points: Any, coefficients: np.ndarray, offset: np.ndarray | None = None
    ) -> np.ndarray:
        """Return sum_j c_j k(x - offset, p_j) for every row x of X.

        Kernel values are computed block by block. For "rbf" and dense rows, `gaussian_sums` is
        used, which may compute in float32.
        """
        is_dense = not (sparse.issparse(X) or sparse.issparse(points))
        if self.kernel == "rbf" and is_dense:
            gamma = self._arguments.get("gamma", 1.0 / X.shape[1])
            return gaussian_sums(X, points, gamma, coefficients, offset)
        step = max(1, KERNEL_BLOCK // max(points.shape))
        blocks = [
            self(shifted(X[i : i + step], offset), points) @ coefficients
            for i in range(0, X.shape[0], step)
        ]
        return np.concatenate(blocks)


def shifted(X: Any, offset: np.ndarray | None) -> Any:
    """Return rows minus `offset` in their dtype; sparse rows become dense if there is one."""
    if offset is None:
        return X
    rows = X.toarray() if sparse.issparse(X) else X
    return (rows - offset).astype(X.dtype, copy=False)


def _writable(X: Any) -> Any:
    """Return X, or a copy if it is a read-only array, as those of data frames are."""
    return X if sparse.issparse(X) or X.flags.writeable else X.copy()


# ---------------------- sums of Gaussian kernels at many rows, computed without the kernel matrix


# Number of kernel values of a tile, which stay in the cache from the product to the sum.
TILE_VALUES = 2**17
# Maximum number of rows for which float64 is always used.
FLOAT64_UP_TO = 4096
# Maximum error of float32 sums, as a fraction of the standard deviation of the sums.
FLOAT32_LOSS = 1e-3


def gaussian_sums(
    X: NDArray, points: NDArray, gamma: float, coefficients: NDArray, offset: NDArray | None = None
) -> NDArray:
    r"""Return :math:`f(x) = \sum_j c_j \exp(-\gamma |x - p_j|^2)` for every row x of X.

    The exponents :math:`2\gamma x'p_j - \gamma |x|^2 - \gamma |p_j|^2`, about the mean of the
    points, take one matrix product per tile. More than 4096 rows are computed in float32 if the
    error bound :math:`\epsilon \sum_j |c_j| (1 + 4 \gamma R^2)`, with R the largest distance of a
    point from the mean of the points, is below 1e-3 of the standard deviation of f at the points.
    Otherwise float64 is used. The bound assumes that all rounding errors add up; measured errors
    are a tenth of it or less. If :math:`\gamma R^2` is above 1e9, which outliers can cause,
    rounding would make exponents positive. Differences of rows and points are then squared
    instead.
    """
    if len(points) == 0:
        return np.zeros((len(X), *coefficients.shape[1:]))
    centre = points.mean(axis=0, dtype=np.float64)
    # In the dtype of the rows, from which it is subtracted without a conversion.
    shift = (centre if offset is None else centre + offset).astype(X.dtype)
    centred = points - (shift.astype(np.float64) if offset is None else shift - offset)
    # Beyond this exponent, rounding shows in the expanded sums.
    if gamma * np.einsum("ij,ij->i", centred, centred).max() > 1e9:
        return _sums_of_differences(X, points, gamma, coefficients, offset)
    dtype: Any = np.float64
    if X.shape[0] > FLOAT64_UP_TO and _takes_float32(centred, gamma, coefficients):
        dtype = np.float32
    return _tiled_sums(X, shift, centred, gamma, coefficients, dtype)


def _sums_of_differences(
    X: NDArray, points: NDArray, gamma: float, coefficients: NDArray, offset: NDArray | None
) -> NDArray:
    """Return the sums at the rows of X minus `offset`, from differences to every point."""
    sums = np.empty((len(X), *coefficients.shape[1:]))
    step = max(1, TILE_VALUES // max(points.shape))
    for start in range(0, len(X), step):
        rows = X[start : start + step].astype(np.float64)
        if offset is not None:
            rows -= offset
        kernel = np.exp(-gamma * cdist(rows, points, "sqeuclidean"))
        sums[start : start + step] = kernel @ coefficients
    return sums


def _takes_float32(points: NDArray, gamma: float, coefficients: NDArray) -> bool:
    """Return whether float32 sums are accurate to `FLOAT32_LOSS`; `points` are centred."""
    radius = float(np.einsum("ij,ij->i", points, points).max())
    size = np.abs(coefficients).sum(axis=0) * (1.0 + 4.0 * gamma * radius)
    probes = points[:: -(-len(points) // 200)]
    values = _tiled_sums(
        probes, np.zeros(points.shape[1]), points, gamma, coefficients, np.float64
    )
    rounding = float(np.finfo(np.float32).eps)
    return bool(np.all(rounding * size <= FLOAT32_LOSS * values.std(axis=0)))


def _tiled_sums(
    X: NDArray, shift: NDArray, points: NDArray, gamma: float, coefficients: NDArray, dtype: Any
) -> NDArray:
    """Return the sums at the rows of X minus `shift`; `points` are centred."""
    n, (m, d) = X.shape[0], points.shape
    # The exponents are the products of (x, |x|^2, 1) with this matrix.
    factor = np.empty((d + 2, m), dtype=dtype)
    factor[:d] = 2.0 * gamma * points.T
    factor[d] = -gamma
    factor[d + 1] = -gamma * np.einsum("ij,ij->i", points, points)
    c = coefficients.astype(dtype)
    step = max(1, min(n, TILE_VALUES // max(m, d)))
    tile, values = np.ones((step, d + 2), dtype=dtype), np.empty((step, m), dtype=dtype)
    # Differences of float64 rows are rounded to float32, not the rows.
    wide = np.empty((step, d)) if X.dtype.itemsize > tile.itemsize else tile[:, :d]
    shift = shift.astype(wide.dtype, copy=False)
    sums = np.empty((n, *c.shape[1:]))
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, n, step):
            rows = X[start : start + step]
            part, kernel = tile[: len(rows)], values[: len(rows)]
            np.subtract(rows, shift, out=wide[: len(rows)])
            if wide.dtype != dtype:
                part[:, :d] = wide[: len(rows)]
            np.einsum("ij,ij->i", part[:, :d], part[:, :d], out=part[:, d])
            np.matmul(part, factor, out=kernel)
            total = np.exp(kernel, out=kernel) @ c
            if dtype == np.float32 and not np.isfinite(total).all():  # squares overflow float32
                total = _tiled_sums(rows, shift, points, gamma, coefficients, np.float64)
            sums[start : start + len(rows)] = total
    return sums


# ------------------- the base class of the feature maps, and the positive part of a kernel matrix


def rank_tolerance(size: int, dtype: Any) -> float:
    """Return the relative size below which an eigenvalue counts as rounding error."""
    return max(1e-12, size * float(np.finfo(dtype).eps))


class KernelMap:
    """Base class of the feature maps, with the kernel, the checks and the memory test.

    A subclass calls `_set_fitted` at the end of its `fit`.
    """

    def __init__(self, kernel: str | Callable[..., Any], **parameters: Any) -> None:
        self._kernel = Kernel(kernel, **parameters)
        self._n_components = 0
        self.n_features_in_: int | None = None

    @property
    def n_components(self) -> int:
        """The number of features, available after `fit`."""
        self._check_fitted()
        return self._n_components

    @property
    def kernel(self) -> str | Callable[..., Any]:
        """The name of the kernel, or the kernel function."""
        return self._kernel.kernel

    @property
    def gamma(self) -> float | None:
        """The coefficient gamma in use after `fit`, or None for kernels without gamma."""
        self._check_fitted()
        return self._kernel.gamma(self.n_features_in_ or 1)

    def _set_fitted(self, n_components: int, n_features: int) -> None:
        self._n_components = n_components
        self.n_features_in_ = n_features

    def _check_fitted(self) -> None:
        if self.n_features_in_ is None:
            raise NotFittedError(f"{type(self).__name__} has not been fitted. Call fit(X) first.")

    def _check_new(self, X: Any) -> Any:
        """Check that the map is fitted, and that X has the same number of features as in fit."""
        self._check_fitted()
        X = as_matrix(X)
        if X.shape[1] != self.n_features_in_:
            what = "columns (training points)" if self._kernel.precomputed else "features"
            raise ValueError(
                f"X has {X.shape[1]} {what}, but the map was fitted to {self.n_features_in_}."
            )
        return X

    def _cross_kernel(self, X: Any, points: Any) -> np.ndarray:
        n, m = X.shape[0], points.shape[0]
        require_memory(
            2 * n * m * max(X.dtype.itemsize, points.dtype.itemsize),
            f"The kernel between {n} rows and {m} points",
            "Use MappedRows, which computes the features tile by tile.",
        )
        return self._kernel(X, points)

    def _training_kernel(self, X: Any) -> tuple[Any, np.ndarray, float]:
        """Return the points (None if precomputed), their kernel matrix and its rank tolerance.

        The matrix is a new float64 array. float32 points are converted to float64 first, since an
        exact factor of a matrix rounded to float32 would not be a factor of the kernel.
        """
        n = X.shape[0]
        require_memory(
            4 * 8 * n**2, f"The kernel matrix of {n} points", "Use NystroemMap instead."
        )
        if not self._kernel.precomputed:
            points = X.astype(np.float64)  # a copy: the map outlives X
            return points, self._symmetric_kernel(points), rank_tolerance(n, np.float64)
        if sparse.issparse(X):
            raise TypeError("a precomputed kernel matrix must be dense. Pass K.toarray().")
        if X.shape[0] != X.shape[1]:
            raise ValueError(
                "with kernel='precomputed', fit takes the square kernel matrix of the training "
                f"points, got shape {X.shape}."
            )
        check_symmetric(X, "K", what="the kernel matrix")
        return None, X.astype(np.float64), rank_tolerance(n, X.dtype)

    def _symmetric_kernel(self, points: Any) -> np.ndarray:
        matrix = np.array(self._kernel(points, points), dtype=np.float64)
        check_symmetric(matrix, "K", what="the kernel matrix")
        return matrix


def positive_part(
    matrix: np.ndarray,
    tolerance: float,
    *,
    scale: float = 0.0,
    n_components: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the positive eigenvalues, largest first, and their eigenvectors.

    Eigenvalues below `tolerance` times the maximum of the largest eigenvalue, the largest entry
    and `scale` (the size of the numbers that the matrix was computed from) are dropped, since
    their inverse roots would be noise. The entry of largest modulus of each eigenvector is made
    positive, so that the result does not depend on LAPACK's signs. Since trace = Σ λ, the weight
    of the negative eigenvalues is at least Σ_{computed λ > 0} λ - trace; they need not be
    computed.
    """
    m = matrix.shape[0]
    leading = None if n_components is None else (m - n_components, m - 1)
    values, vectors = eigenpairs(matrix, leading)
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = values > tolerance * max(values[0], scale, np.abs(matrix).max())
    if not kept.any():
        raise ValueError(
            "the kernel matrix has no positive eigenvalue above rounding error: all the points "
            "look alike to this kernel. Check that X is not constant, and the kernel's parameters."
        )
    values, vectors = values[kept], vectors[:, kept]
    positive = float(values.sum())
    negative = max(positive - float(np.trace(matrix)), 0.0)
    if negative > 0.01 * (positive + negative):
        warn_user(
            f"the kernel is not positive semidefinite: {negative / (positive + negative):.0%} of "
            "its eigenvalues' weight is negative and is dropped. The features approximate only "
            "its positive part. Use a positive semidefinite kernel (e.g. 'rbf') to avoid this."
        )
    return values, np.ascontiguousarray(fix_signs(vectors))


# ----------------- the Nyström feature map: approximate features of a kernel from a few landmarks


class NystroemMap(KernelMap):
    """Features z(x) = Λ^{-1/2} U' k(L, x) for landmarks L with K(L, L) = U Λ U'.

    Then z(x)' z(y) = k(x, L) K(L, L)⁺ k(L, y), the Nyström approximation of k(x, y), exact on the
    span of the landmarks. The cost per row is m kernel values and m r multiplications, for m
    landmarks of numerical rank r.
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
        # k-means only spreads the landmarks: 20 rows per landmark and 20 iterations suffice.
        size = min(n, 20 * count)
        sample = X[:] if size == n else X[np.sort(rng.choice(n, size, replace=False))]
        kmeans = KMeans(count, n_init=1, max_iter=20, random_state=random_state.randint(2**31 - 1))
        # Fewer distinct rows than landmarks: the rank cut-off handles repeated landmarks.
        return quiet_fit(kmeans, sample).cluster_centers_


# --------------------------------- the kernel PCA feature map: exact features of a centred kernel


class KernelPCAMap(KernelMap):
    """Features of the centred kernel in the basis of its principal components.

    With k_c(x, y) = <φ(x) - m, φ(y) - m>, m the mean of the training points' φ, and the centred
    training kernel matrix K_c = U Λ U', the features are z(x) = Λ^{-1/2} U' (k(x) - K1/n). On the
    training points z(x)' z(y) = k_c(x, y) exactly when all components are kept. (The remaining
    terms of k_c(x) are constant over the training points, to which every column of U is
    orthogonal.)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kernel: str | Callable[..., Any] = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            kernel, gamma=gamma, degree=degree, coef0=coef0, kernel_params=kernel_params
        )
        if n_components is not None and not isinstance(n_components, numbers.Integral):
            raise TypeError(f"n_components must be an integer or None, got {n_components!r}.")
        self._wanted_components = n_components

    def fit(self, X: Any) -> Self:
        """Decompose the centred kernel matrix of the rows of X (or X itself if precomputed)."""
        X = X[:] if isinstance(X, BlockTable) else as_matrix(X)
        points, matrix, tolerance = self._training_kernel(X)
        n = matrix.shape[0]
        wanted = self._wanted_components
        if wanted is not None and not 1 <= wanted <= n:
            raise ValueError(
                f"n_components={wanted} must be between 1 and the number of points, {n}, or None."
            )
        scale = float(np.abs(matrix).max())
        column_means = matrix.mean(axis=0)
        matrix -= column_means
        matrix -= column_means[:, np.newaxis] - column_means.mean()
        values, vectors = positive_part(matrix, tolerance, scale=scale, n_components=wanted)
        self._points = points
        self._column_means = column_means
        # Eigenvectors of small eigenvalues are orthogonal to 1 only to a few digits. With their
        # means subtracted, the projection also centres a row of kernel values.
        vectors -= vectors.mean(axis=0)
        self._projection = vectors / np.sqrt(values)
        self.eigenvalues_ = values
        self._set_fitted(values.size, X.shape[1])
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Map rows (or rows of kernel values) to features, in the dtype of X."""
        X = self._check_new(X)
        values = X if self._points is None else self._cross_kernel(X, self._points)
        features = (values - self._column_means) @ self._projection
        return features.astype(X.dtype, copy=False)

    def scores(self, X: Any, w: np.ndarray) -> np.ndarray:
        """Return z(x)'w for every row, in the dtype of X, without computing features.

        See `gaussian_sums` for the precision of "rbf".
        """
        X = self._check_new(X)
        coefficients = self._projection @ w
        if self._points is None:
            sums = X @ coefficients
        else:
            sums = self._kernel.sums(X, self._points, coefficients)
        return (sums - self._column_means @ coefficients).astype(X.dtype, copy=False)
