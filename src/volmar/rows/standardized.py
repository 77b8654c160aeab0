"""Standardised rows, and the span of few wide rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from volmar._checks import fix_signs
from volmar._eigen import eigenpairs, eigenvalues
from volmar._memory import available_memory, require_memory
from volmar.rows.anywhere import centered_with_moments
from volmar.rows.protocol import Moments, RowSource
from volmar.rows.tiled import DenseRows, SparseRows

# ---------------------------------- rows in units of their standard deviations, scaled implicitly


# Number of columns up to which a square matrix is assumed to fit in memory.
FITTING_COLUMNS = 2000
# A feature is constant if its standard deviation is at most this fraction of |mean| + deviation.
CONSTANT = 1e-12


@dataclass(frozen=True)
class Standardized:
    """A row source seen as z = (x - mean) / scale, without constant features.

    `rows` are centred at their weighted mean, and `moments` are about it. `kept` are the features
    that are not constant, and `correlation` is the covariance of z.
    """

    rows: RowSource
    moments: Moments
    mean: NDArray
    scale: NDArray
    kept: NDArray
    correlation: NDArray

    @property
    def kept_variance(self) -> float:
        """Fraction of the variance that is kept, which is always 1 here."""
        return 1.0

    @property
    def size(self) -> int:
        """Number of coordinates of z."""
        return self.correlation.shape[0]

    def coefficients(self, w: NDArray) -> NDArray:
        """Return a direction w of z, (p,) or (p, k), as a direction of x, (d,) or (d, k).

        Coefficients of constant features are 0.
        """
        full = np.zeros((self.scale.size, *w.shape[1:]))
        full[self.kept] = (w.T / self.scale[self.kept]).T
        return full

    def direction(self, normal: NDArray) -> NDArray:
        """Return a direction (d,) or (d, k) of x as a direction of z."""
        return (normal.T * self.scale).T[self.kept]

    def of_rows(self, w: NDArray) -> NDArray:
        """Return a direction w of z as a direction of `rows`."""
        return self.coefficients(w)

    def from_rows(self, sums: NDArray) -> NDArray:
        """Return a combination of `rows`, (d,) or (d, k), as a combination of z."""
        return ((sums.T / self.scale).T)[self.kept]

    def own_units_direction(self, v: NDArray) -> NDArray:
        """Return sum_i v_i (x_i - mean), in the original units, as a direction of z.

        The result is scaled by a power of two, since squares of the original units may overflow.
        """
        return (self.combine(v).T * relative_scale(self.scale[self.kept]) ** 2).T

    def scores(self, w: NDArray) -> NDArray:
        """Return z'w for every row, in one pass."""
        return self.rows.scores(self.of_rows(w))

    def combine(self, v: NDArray) -> NDArray:
        """Return sum_i v_i z_i in one pass, of shape (p,), or (p, k) for v of shape (n, k)."""
        return self.from_rows(self.rows.combine(v))

    def transform(self, X: Any) -> NDArray:
        """Return z for the given rows, dense or CSR, in their dtype."""
        rows = X.toarray() if sparse.issparse(X) else X
        centred = (rows - self.mean).astype(rows.dtype, copy=False)
        if self.kept.size < self.scale.size:
            centred = centred[:, self.kept]
        return (centred / self.scale[self.kept]).astype(rows.dtype, copy=False)

    def difference_of_means(self, part: Moments) -> NDArray:
        """Return the mean in z of a subset, given its moments, minus the mean of all other rows.

        Since all rows together are centred, it is sum total / (weight (total - weight)).
        """
        total, weight = self.moments.weight, part.weight
        return self.from_rows(part.sum) * (total / (weight * (total - weight)))

    def mean_and_covariance(self, part: Moments) -> tuple[NDArray, NDArray]:
        """Return mean and covariance in z of a subset, given its moments about the same centre."""
        scale = self.scale[self.kept]
        covariance = part.covariance()
        if self.kept.size < self.scale.size:
            covariance = covariance[np.ix_(self.kept, self.kept)]
        covariance /= scale
        covariance /= scale[:, None]
        return part.mean[self.kept] / scale, covariance


def relative_scale(scale: NDArray) -> NDArray:
    """Return units divided by a power of two near the largest, so that their squares fit.

    The division is exact.
    """
    return np.ldexp(scale, -int(np.frexp(np.abs(scale).max(initial=0.0))[1]))


def is_varying(deviations: NDArray, mean: NDArray, constant: float = CONSTANT) -> NDArray:
    """Return which features are not constant."""
    return deviations > constant * (np.abs(mean) + deviations)


def standardized(rows: RowSource, known: tuple[RowSource, Moments] | None = None) -> Standardized:
    """Return `rows` in units of their standard deviations.

    Rows in memory with more columns than rows are represented in a basis of their span
    (`row_space`), which needs the Gram matrix of the rows instead of the moments of the columns.
    For more than 2000 such rows (500 if sparse), or if a d × d matrix does not fit in memory, the
    basis consists of the 100 leading principal directions (`leading_space`).
    """
    if known is None and is_wide(rows):
        return span_of_rows(rows)
    d = rows.n_features
    is_large = d > FITTING_COLUMNS and 4 * 8 * d**2 > available_memory()
    if known is None and is_large and isinstance(rows, (DenseRows, SparseRows)):
        return leading_space(rows)
    return standardized_columns(rows, known)


def exactly_standardized(
    rows: RowSource, known: tuple[RowSource, Moments] | None = None
) -> Standardized:
    """Return `rows` in units of their standard deviations, without dropping any direction.

    In contrast to `standardized`, rows with more columns than rows are represented in their whole
    span, for any number n of rows, in O(n² d + n³) time. A MemoryError is raised if the matrices
    do not fit in memory.
    """
    if known is None and is_wide(rows):
        return row_space(rows)
    return standardized_columns(rows, known)


def standardized_columns(
    rows: RowSource, known: tuple[RowSource, Moments] | None = None
) -> Standardized:
    """Return `rows` in units of standard deviations, from the d × d moments of their columns."""
    centred, moments = known or centered_with_moments(rows)
    mean = rows.mean()
    covariance = moments.covariance()
    deviations = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    kept = np.flatnonzero(is_varying(deviations, mean))
    scale = np.where(np.isin(np.arange(mean.size), kept), deviations, 1.0)
    correlation = covariance[np.ix_(kept, kept)] / np.outer(deviations[kept], deviations[kept])
    return Standardized(centred, moments, mean, scale, kept, correlation)


def evenly_scaled(rows: RowSource, known: tuple[RowSource, Moments] | None = None) -> Standardized:
    """Return centred `rows` with the same unit for all features: the largest deviation.

    The unit is sqrt(e1), where e1 is the largest eigenvalue of the covariance, so that the matrix
    e1 I becomes the identity. Unlike the diagonal of the covariance, e1 does not depend on the
    basis of the features, which a kernel does not determine.
    """
    d = rows.n_features
    centred, moments = known or centered_with_moments(rows)
    mean = rows.mean()
    covariance = moments.covariance()
    e1 = float(eigenvalues(covariance, (d - 1, d - 1))[0])
    # Rows that differ only by rounding keep the unit 1.
    e1 = e1 if e1 > np.finfo(rows.dtype).eps * float(mean @ mean) else 1.0
    scale = np.full(d, np.sqrt(e1))
    return Standardized(centred, moments, mean, scale, np.arange(d), covariance / e1)


# --------------- standardised rows in a basis of their span, for data with more columns than rows


# Maximum number of rows, dense or sparse, for which the whole span is used.
EXACT_ROWS, EXACT_SPARSE_ROWS = 2000, 500
# Number of leading principal directions that are used for more rows.
COMPONENTS = 100
# Multiple of the largest eigenvalue of pure noise above which a component is more than noise.
STRUCTURE = 1.5
# Number of entries of a tile of columns, in float64, and its minimum width.
_TILE_ENTRIES, _MIN_TILE_COLUMNS = 2**19, 64


class StandardizedColumns(LinearOperator):  # type: ignore[misc]
    """The matrix Z (n, p) of standardised rows, computed one tile of columns at a time."""

    def __init__(self, source: Any, mean: NDArray, scale: NDArray, kept: NDArray) -> None:
        super().__init__(np.dtype(np.float64), (source.n_rows, kept.size))
        self.source, self.mean, self.scale, self.kept = source, mean, scale, kept

    def tiles(
        self, rows: Any = slice(None), *, as_given: bool = False
    ) -> Iterator[tuple[slice, NDArray]]:
        """Yield slices of the kept columns, and the given rows of these columns of z, in float64.

        With `as_given`, columns of x are returned instead of z.
        """
        X = self.source.X
        if sparse.issparse(X):
            X, rows = X[rows].tocsc(), slice(None)
        n = X.shape[0] if isinstance(rows, slice) else len(rows)
        for part in _slices(n, self.kept.size):
            columns = self.kept[part]
            tile = X[:, columns[0] : columns[-1] + 1]
            tile = tile.toarray() if sparse.issparse(tile) else tile[rows]
            if tile.shape[1] > columns.size:
                tile = tile[:, columns - columns[0]]
            tile = tile.astype(np.float64)
            if not as_given:
                tile -= self.mean[columns]
                tile /= self.scale[columns]
            yield part, tile

    def values(self, numbers: NDArray) -> NDArray:
        """Return the columns of Z with the given indices, in float64."""
        columns = self.kept[numbers]
        X = self.source.X[:, columns]
        X = (X.toarray() if sparse.issparse(X) else X).astype(np.float64)
        return (X - self.mean[columns]) / self.scale[columns]

    def _matmat(self, u: NDArray) -> NDArray:
        if isinstance(self.source, SparseRows):
            coefficients = np.zeros((self.mean.size, u.shape[1]))
            coefficients[self.kept] = u / self.scale[self.kept][:, None]
            return self.source.X @ coefficients - self.mean @ coefficients
        scores = np.zeros((self.shape[0], u.shape[1]))
        for part, tile in self.tiles():
            scores += tile @ u[part]
        return scores

    def _rmatmat(self, v: NDArray) -> NDArray:
        if isinstance(self.source, SparseRows):
            sums = self.source.X.T @ v - np.outer(self.mean, v.sum(axis=0))
            return sums[self.kept] / self.scale[self.kept][:, None]
        combined = np.empty((self.shape[1], v.shape[1]))
        for part, tile in self.tiles():
            combined[part] = tile.T @ v
        return combined

    def _rmatvec(self, v: NDArray) -> NDArray:
        return self._rmatmat(v.reshape(-1, 1))[:, 0]  # not needed from SciPy 1.16 on


@dataclass(frozen=True)
class RowSpace(Standardized):
    r"""Standardised rows Z (n, p) as :math:`T = Z V`, V (p, r) an orthonormal basis of their span.

    If the regulariser of a problem is the identity in z, its solution lies in the span of the
    rows, and rotations do not change the identity. The problem in T therefore has the same
    solution as the problem in z, and a direction t of T is the direction V t of z. No p × p matrix
    is needed. For many rows V contains only the leading principal directions, and `kept_variance`
    is the fraction of the variance along them.

    If V does not span all of z, directions of T have one more coordinate than V has columns: the
    length of the component of a direction in which no row varies. The last column of T is then 0.
    """

    Z: StandardizedColumns
    lift: NDArray

    @property
    def T(self) -> NDArray:  # noqa: N802 -- the name of the matrix
        """The rows in the basis, shape (n, size)."""
        return self.rows.X  # type: ignore[attr-defined]

    @property
    def kept_variance(self) -> float:
        """Fraction of the variance of z that lies in the span of V."""
        return min(1.0, float(np.trace(self.correlation)) / max(self.kept.size, 1))

    @property
    def leaves_structure(self) -> bool:
        """Whether the omitted components may be more than noise.

        The largest eigenvalue of the correlation matrix of n rows with p independent columns is
        about (1 + sqrt(p / n))². The last component that is kept is compared with this value.
        """
        n, r = self.lift.shape
        p, noise = self.kept.size, (1.0 + np.sqrt(self.kept.size / n)) ** 2
        is_part = r == COMPONENTS < min(n - 1, p)
        return bool(is_part and self.correlation[r - 1, r - 1] > STRUCTURE * noise)

    @property
    def basis(self) -> Any:
        """The basis V, a LinearOperator of shape (p, r)."""
        return self.Z.T @ aslinearoperator(self.lift)

    def basis_tiles(self) -> Iterator[tuple[slice, NDArray]]:
        """Yield slices of the kept columns, and the corresponding rows of V."""
        if isinstance(self.Z.source, SparseRows):
            yield slice(0, self.kept.size), self.Z.T @ self.lift
            return
        for part, tile in self.Z.tiles():
            yield part, tile.T @ self.lift

    def coefficients(self, w: NDArray) -> NDArray:
        """Return a direction w of T as a direction of x, (d,) or (d, k), in one pass."""
        return super().coefficients(self.basis @ w[: self.lift.shape[1]])

    def of_rows(self, w: NDArray) -> NDArray:
        """Return w unchanged, since T is not scaled."""
        return w

    def from_rows(self, sums: NDArray) -> NDArray:
        """Return the sums unchanged, since T is not scaled."""
        return sums

    def transform(self, X: Any) -> NDArray:
        """Return new rows, dense or CSR, in the basis, in their dtype."""
        T = (self.basis.T @ super().transform(X).T).T
        return np.pad(T, ((0, 0), (0, self.size - T.shape[1]))).astype(X.dtype, copy=False)

    def mean_and_covariance(self, part: Moments) -> tuple[NDArray, NDArray]:
        """Return the mean and covariance of a subset of the rows, given its moments."""
        return part.mean, part.covariance()

    def direction(self, normal: NDArray) -> NDArray:
        """Return a direction (d,) or (d, k) of the columns as a direction of T, in one pass."""
        return self._with_rest(super().direction(normal))

    def own_units_direction(self, v: NDArray) -> NDArray:
        """Return sum_i v_i (x_i - mean), in the original units, as a direction of T."""
        own = relative_scale(self.scale[self.kept])
        return self._with_rest(((self.Z.T @ v).T * own**2).T)

    def column_directions(self, columns: NDArray) -> NDArray:
        """Return single columns, by their indices in z, as directions (size, k) of T."""
        return self._long(self.lift.T @ self.Z.values(columns), 1.0)

    @cached_property
    def own_units(self) -> NDArray:
        """The centred rows in the original units, in a basis of their span."""
        return span_of_rows(self.Z.source, standardize=False).T

    def _with_rest(self, w: NDArray) -> NDArray:
        """Return directions (p,) or (p, k) of z as directions of T of the same length."""
        return self._long(self.basis.T @ w, (w**2).sum(axis=0))

    def _long(self, t: NDArray, square: Any) -> NDArray:
        """Append the coordinate that gives directions of T these squared lengths."""
        if self.size == t.shape[0]:
            return t
        rest = np.maximum(square - (t**2).sum(axis=0), 0.0)
        return np.concatenate([t, np.sqrt(rest)[None]])


def row_space(source: Any, *, standardize: bool = True, constant: float = CONSTANT) -> RowSpace:
    r"""Return rows in memory in the basis of their span, computed from their Gram matrix.

    With the eigenvectors U and eigenvalues :math:`\Lambda` of :math:`Z Z'`, :math:`T = U
    \Lambda^{1/2}` and :math:`V = Z' U \Lambda^{-1/2}`. Eigenvalues below n times the rounding
    error of the largest (for sparse rows, also of their squares about 0) are dropped. The Gram
    matrix is summed over tiles of columns, in float64. Rows of weight 0 do not contribute to U and
    are projected onto the basis.
    """
    n = source.n_rows
    if n > 512:  # a smaller Gram matrix fits any memory, and a check would take longer
        require_memory(
            6 * 8.0 * n**2,
            f"the Gram matrix of {n} rows",
            "Reduce the features first, e.g. with sklearn.decomposition.TruncatedSVD.",
        )
    weights = source.weights
    of = _sparse_gram if isinstance(source, SparseRows) else _dense_gram
    gram, size, mean, scale, kept = of(source, standardize, constant)
    Z = StandardizedColumns(source, mean, scale, kept)
    counted = np.arange(n) if weights is None else np.flatnonzero(weights)
    inner = gram if counted.size == n else gram[np.ix_(counted, counted)]
    values, vectors = eigenpairs(inner, driver="evd")
    large = values > np.finfo(np.float64).eps * n * max(values[-1], size)
    if not large.any():  # all rows are the same
        large[-1], values[-1] = True, 1.0
        vectors[:, -1] = 0.0
    roots, U = np.sqrt(values[large][::-1]), fix_signs(vectors[:, large][:, ::-1])
    lift = np.zeros((n, roots.size))
    lift[counted] = U / roots
    T = np.empty((n, roots.size))
    T[counted] = U * roots
    if counted.size < n:
        others = np.flatnonzero(weights == 0)
        T[others] = gram[np.ix_(others, counted)] @ lift[counted]
    return _spanned(Z, T, lift, standardize)


def _spanned(Z: StandardizedColumns, T: NDArray, lift: NDArray, standardize: bool) -> RowSpace:
    if standardize and lift.shape[1] < Z.shape[1]:
        T = np.hstack([T, np.zeros((len(T), 1))])
    rows = DenseRows(T, sample_weight=Z.source.weights)
    moments = rows.moments(center=np.zeros(T.shape[1]))
    return RowSpace(rows, moments, Z.mean, Z.scale, Z.kept, moments.covariance(), Z=Z, lift=lift)


def leading_space(
    source: Any, *, standardize: bool = True, constant: float = CONSTANT
) -> RowSpace:
    r"""Return rows in memory in the basis of approximately their 100 leading principal directions.

    It is used if there are too many rows for the Gram matrix and too many columns for the
    covariance matrix. The directions are found by subspace iteration, with 12 products of the
    (weighted) standardised rows, centred implicitly, with 120 vectors. The remaining variance is
    dropped (`RowSpace.kept_variance`). Differences of groups in directions of small variance,
    above all in single columns, are lost with it.
    """
    n = source.n_rows
    mean, scale, kept = _column_units(source, standardize, constant)
    Z = StandardizedColumns(source, mean, scale, kept)
    size = min(COMPONENTS + 20, n, max(kept.size, 1))
    require_memory(
        4 * 8.0 * size * (n + kept.size),
        f"{size} principal directions of {n} rows of {kept.size} features",
        "Cluster a sample of the rows, and use predict for the rest.",
    )
    roots = np.ones((n, 1)) if source.weights is None else np.sqrt(source.weights)[:, None]
    B = np.random.default_rng(0).standard_normal((kept.size, size))
    for _ in range(6):
        Q = linalg.qr(roots * (Z @ B), mode="economic", check_finite=False)[0]
        B = Z.T @ (roots * Q)
    values, vectors = eigenpairs(B.T @ B)
    large = np.flatnonzero(values > np.finfo(np.float64).eps * n * values[-1])[::-1][:COMPONENTS]
    V = (B @ vectors[:, large]) / np.sqrt(values[large])
    signs = np.sign((V * fix_signs(V)).sum(axis=0))
    lift = roots * (Q @ vectors[:, large]) * (signs / np.sqrt(values[large]))
    return _spanned(Z, Z @ (V * signs), lift, standardize)


def span_of_rows(source: Any, *, standardize: bool = True) -> RowSpace:
    """Return the rows in a basis of their span.

    The basis is complete for up to 2000 dense or 500 sparse rows (`row_space`). For more rows, it
    consists of the leading principal directions (`leading_space`).
    """
    limit = EXACT_SPARSE_ROWS if isinstance(source, SparseRows) else EXACT_ROWS
    span = row_space if source.n_rows <= limit else leading_space
    return span(source, standardize=standardize)


def is_wide(rows: RowSource) -> bool:
    """Return whether rows in memory have more columns than there are rows."""
    return isinstance(rows, (DenseRows, SparseRows)) and rows.n_features > rows.n_rows


def _slices(n_rows: int, n_columns: int) -> Iterator[slice]:
    width = max(_MIN_TILE_COLUMNS, _TILE_ENTRIES // n_rows)
    for start in range(0, n_columns, width):
        yield slice(start, min(start + width, n_columns))


def _dense_gram(source: DenseRows, standardize: bool, constant: float) -> tuple[Any, ...]:
    """Return the Gram matrix of z, a scale of its rounding errors, and mean, scale and kept."""
    n, d = source.X.shape
    shares = None if source.weights is None else source.weights / source.total_weight
    gram, mean, scale = np.zeros((n, n)), np.empty(d), np.ones(d)
    kept = np.ones(d, dtype=bool)
    for part in _slices(n, d):
        tile = source.X[:, part].astype(np.float64)
        mean[part] = tile.mean(axis=0) if shares is None else shares @ tile
        tile -= mean[part]
        weighted = tile / n if shares is None else tile * shares[:, None]
        deviations = np.sqrt(np.einsum("ij,ij->j", tile, weighted))
        varies = kept[part] = is_varying(deviations, mean[part], constant)
        if not varies.all():
            tile = tile[:, varies]
        if standardize:
            scale[part][varies] = deviations[varies]
            tile /= deviations[varies]
        gram += tile @ tile.T
    return gram, np.finfo(np.float64).tiny, mean, scale, np.flatnonzero(kept)


def _sparse_gram(source: SparseRows, standardize: bool, constant: float) -> tuple[Any, ...]:
    """Return the results of `_dense_gram` for sparse rows, whose Gram matrix is centred last."""
    X = source.X.astype(np.float64)
    mean, scale, kept = _column_units(source, standardize, constant)
    X = sparse.csr_array(X.multiply(1.0 / scale))[:, kept]
    center = mean[kept] / scale[kept]
    across = X @ center
    gram = (X @ X.T).toarray()
    size = 8.0 * float(gram.diagonal().max())  # sums and differences of numbers of this size
    gram -= across[:, None] + across - float(center @ center)
    return gram, size, mean, scale, kept


def _column_units(
    source: Any, standardize: bool, constant: float
) -> tuple[NDArray, NDArray, NDArray]:
    """Return mean and scale of the columns, and the indices of those that vary."""
    mean = source.mean()
    of = _sparse_deviations if isinstance(source, SparseRows) else _dense_deviations
    deviations, scale = of(source, mean), np.ones(mean.size)
    kept = np.flatnonzero(is_varying(deviations, mean, constant))
    if standardize:
        scale[kept] = deviations[kept]
    return mean, scale, kept


def _sparse_deviations(source: SparseRows, mean: NDArray) -> NDArray:
    """Return standard deviations of columns; stored entries and zeros are summed separately."""
    X = source.X.tocsc()
    weights = np.ones(source.n_rows) if source.weights is None else source.weights
    of_entry = weights[X.indices]
    columns = np.repeat(np.arange(mean.size), np.diff(X.indptr))
    present = np.bincount(columns, of_entry, mean.size)
    squares = np.bincount(columns, of_entry * (X.data - mean[columns]) ** 2, mean.size)
    absent = np.maximum(source.total_weight - present, 0.0)
    return np.sqrt((squares + absent * mean**2) / source.total_weight)


def _dense_deviations(source: DenseRows, mean: NDArray) -> NDArray:
    every = StandardizedColumns(source, mean, np.ones(mean.size), np.arange(mean.size))
    weights = np.ones(source.n_rows) if source.weights is None else source.weights
    squares = [np.einsum("ij,ij,i->j", tile, tile, weights) for _, tile in every.tiles()]
    return np.sqrt(np.concatenate(squares) / source.total_weight)
