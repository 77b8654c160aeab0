"""Rows in the feature space of the RBF kernel, projected onto a few basis vectors (SKMMC)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from volmar._checks import check_random_state
from volmar._memory import require_memory
from volmar.base.validation import check_choice, check_count, check_number
from volmar.margin.feature_space.basis_search import (
    Field,
    KernelRows,
    Pilot,
    drawn,
    far_mean,
    rbf,
    squares,
)
from volmar.margin.feature_space.block_images import BlockImages, KernelFeatures
from volmar.margin.feature_space.space import FeatureSpace, Hyperplane
from volmar.rows import RowSpace, is_in_memory, mapped_scores
from volmar.rows.blocks.held import HeldRows
from volmar.rows.kernel import shifted

# Minimum squared distance of a unit vector to the span of the basis. Its inverse root magnifies
# the rounding of kernel values: float32 keeps three digits.
MIN_DISTANCE = 1e-7
# A search ends after this many consecutive rounds without a new vector.
MAX_MISSES = 3
# Number of images per array, and of values of k(b, x) stored at a time when new rows are scored.
BLOCK, KERNEL_BLOCK = 16, 2**22


@dataclass
class Projection:
    """The orthogonal projection of a vector onto the span of a basis that may still grow.

    `coordinates` are in the orthonormalised basis at the time of the last request. Further
    coordinates follow from the `coefficients` v of the vector sum_i v_i z_i. These are None for a
    vector in the span itself, whose further coordinates are 0.
    """

    coordinates: NDArray
    coefficients: Any = None

    def __neg__(self) -> Projection:

        return Projection(
            -self.coordinates, None if self.coefficients is None else -self.coefficients
        )


@dataclass(frozen=True)
class BasisExpansion:
    r"""The function :math:`f(x) = \sum_k c_k (k(b_k, x) - \mu_k)`.

    The vectors b_k are in the coordinates of the data. `offset` is subtracted from them and from
    rows before distances are computed. The means mu_k of k(b_k, x) over the training rows are
    subtracted first, because the sum and the intercept alone may be far larger than f.
    """

    vectors: NDArray
    coefficients: NDArray
    means: NDArray
    gamma: float
    offset: NDArray | None = None

    @property
    def intercept(self) -> float:
        """The constant term of f, in addition to sum_k c_k k(b_k, x)."""
        return -float(self.coefficients @ self.means)

    def __call__(self, X: Any) -> Any:
        """Evaluate f at the rows of X, dense, CSR or in blocks: shape (n,), in their dtype."""
        vectors = self.vectors if self.offset is None else self.vectors - self.offset
        features = KernelFeatures(vectors, self.means, self.gamma, self.offset)
        return mapped_scores(features, X, self.coefficients)


@dataclass(frozen=True)
class BasisHyperplane(Hyperplane):
    """An expansion in a few basis vectors, plus a constant t."""

    expansion: BasisExpansion
    t: float

    def __call__(self, X: Any) -> Any:
        """Return the value at each row."""
        return self.expansion(X) + X.dtype.type(self.t)


class BasisSpace(FeatureSpace):
    r"""Rows under the RBF kernel, with w in the span of a few basis vectors.

    A cut :math:`a = \sum_i v_i z_i` has n terms. Cutting-plane subspace pursuit (SKMMC sec. 3.3)
    replaces it by basis vectors :math:`\phi(b)`, found by fixed-point iterations. Here the vectors
    of all cuts form one basis B, and every cut is projected orthogonally onto its span. Earlier
    cuts are projected again if B grows:

    .. math::

        \hat a = \sum_k q_k \phi(b_k), \quad q = K_{BB}^{-1} g, \quad
        g_k = \sum_i v_i \Bigl( k(x_i, b_k) - \sum_j p_j k(x_j, b_k) \Bigr).

    For w in the span, :math:`\langle w, \hat a \rangle = \langle w, a \rangle`. The cuts are
    therefore exact, and the engine solves the margin problem over the span with a valid lower
    bound. The mean embedding, which the paper approximates by a separate vector (eq. 26), enters
    as a difference of means and needs none.

    Dense rows are copied if they are far from the origin compared with their spread. For rows in
    blocks, the pilot rows are loaded into memory, and kernel values are computed in every pass.

    `basis` sets how basis vectors are searched. "split" finds one vector for the rows with
    positive v and one for those with negative v, at a mode of their density. The search is mean
    shift with weights of one sign, which always ascends and never divides by zero. "single" finds
    one vector for both, by the fixed point of Algorithm 4 (eq. 47). Its weights have both signs,
    and it diverges from many starts; it is then restarted, and `n_diverged` counts the restarts. A
    single vector cannot be close to the difference of two means.

    `n_basis` vectors are searched for each part of a cut, those after the first on the residual of
    its projection (eq. 44 to 46). Each must increase the squared length of the cut's projection by
    a share `min_gain`. If the basis has `max_basis` vectors, cuts are projected onto it without
    further search, and without a pass over X.

    `version` is the number of vectors: inner products and projections differ between versions.
    `n_passes` counts products with X, one for each basis vector.
    """

    has_equal_lengths = True

    def __init__(
        self,
        X: Any,
        weights: Any = None,
        *,
        gamma: float,
        basis: str = "split",
        n_basis: int = 1,
        max_basis: int = 100,
        min_gain: float = 1e-3,
        random_state: Any = None,
    ):
        self.gamma = check_number("gamma", gamma, low=0.0, open_low=True)
        self.basis = check_choice("basis", basis, ["split", "single"])
        self.n_basis = check_count("n_basis", n_basis)
        self.max_basis = check_count("max_basis", max_basis)
        self.min_gain = check_number("min_gain", min_gain, low=0.0)
        self.random_state = random_state
        self.X, self.weights = X, weights
        self.n_rows, self.dtype = X.shape[0], X.dtype
        self.shares = shares = None if weights is None else weights / weights.sum()
        self.n_passes = self.version = 0
        random = check_random_state(random_state)
        index, inverse = drawn(self.n_rows, shares, random)
        few = X[index]
        self.offset = far_mean(few)
        self._images: _Images | BlockImages
        entries: Callable[[Any], NDArray]
        if is_in_memory(X):
            rows = KernelRows(shifted(X, self.offset), self.gamma)
            self._images = _Images(rows, shares)
            if index.size < self.n_rows:
                rows = KernelRows(rows.X[index], self.gamma)
            entries = itemgetter(index)
        else:
            rows = KernelRows(shifted(few, self.offset), self.gamma)
            self._images = BlockImages(X, self.gamma, self.offset, shares)
            entries = HeldRows(X, index).entries
        few_shares = None if shares is None else shares[index]
        self._pilot = Pilot(rows, index, inverse, few_shares, random, entries)
        self._basis = _Basis(X.shape[1], self.gamma)
        self._latest: Projection | None = None
        self._is_looking_ahead = False

    @property
    def vectors(self) -> NDArray:
        """The basis vectors, shape (m, d), in the coordinates of the data."""
        found = self._basis.vectors
        return found.copy() if self.offset is None else found + self.offset

    @property
    def n_diverged(self) -> int:
        """Number of fixed-point iterations with weights of both signs that were abandoned."""
        return self._pilot.n_diverged

    def full(self, value: float) -> Any:
        """Return a vector with the same value for every row."""
        return self._images.full(value)

    def prefetch(self, f: Callable[[], Any]) -> None:
        """If passes are expensive, compute all results that `f` requests in a single pass.

        Vectors that `f` requests do not change the basis: only their products with it are computed
        from the rows.
        """
        before, self._is_looking_ahead = self._is_looking_ahead, True
        try:
            self._images.prefetch(f)
        finally:
            self._is_looking_ahead = before

    def vector(self, v: Any) -> Projection:
        """Return the projection of sum_i v_i z_i, after a search for basis vectors near it."""
        a = Projection(np.empty(0), v.astype(self.dtype, copy=False))
        if self._is_looking_ahead:
            self._images.ask(a.coefficients)
            return a
        self._latest = a
        r = self._pilot.restricted(v)
        centred = self._pilot.centred(r)
        n_misses = 0
        for k in range(self.n_basis):
            if self.version >= self.max_basis or n_misses == MAX_MISSES:
                break
            before = self.version
            for b in self._proposals(r, centred, first=k == 0):
                if self.version < self.max_basis:
                    self._take(b, centred)
            n_misses = n_misses + 1 if self.version == before else 0
        return a

    def add(self, vectors: NDArray) -> None:
        """Add vectors (m, d) to the basis, if they are outside its span and it has room."""
        for b in vectors if self.offset is None else vectors - self.offset:
            if self.version < self.max_basis:
                self._take(b, None)

    def inner(self, vector: Projection, others: Sequence[Projection]) -> NDArray:
        """Return the inner products of a projection with others, in the current span."""
        self._extend([vector, *others])
        return np.array([vector.coordinates @ other.coordinates for other in others])

    def combination(self, vectors: Sequence[Projection], weights: NDArray) -> Projection:
        """Return sum_k weights_k vectors_k, a vector in the span."""
        self._extend(vectors)
        return Projection(weights @ np.array([one.coordinates for one in vectors]))

    def scores(self, w: Projection) -> Any:
        """Return <w, z_i> of every row."""
        return self._images.combined(self._coefficients(w))

    def expansion(self, w: Projection) -> BasisExpansion:
        """Return the function that gives the scores of w, for any rows."""
        means = np.array(self._images.means)
        return BasisExpansion(self.vectors, self._coefficients(w), means, self.gamma, self.offset)

    # ------------------------------------------------------------------ of a fit

    def hyperplane(self, normal: Projection, rho: float, t: float) -> BasisHyperplane:
        """Return basis vectors and their coefficients."""
        w = self.combination([normal], np.array([1.0 / rho]))
        return BasisHyperplane(self.expansion(w), t / rho)

    def start_rows(self) -> Any:
        """Return the rows."""
        return self.X

    def reweighted(self, weights: Any) -> BasisSpace:
        """Return the same rows with other weights, and a new basis."""
        return self._rebuilt(self.X, weights)

    def sampled(self, chosen: NDArray) -> BasisSpace:
        """Return some of the rows, with a new basis."""
        return self._rebuilt(
            self.X[chosen], None if self.weights is None else self.weights[chosen]
        )

    def _rebuilt(self, X: Any, weights: Any) -> BasisSpace:
        return BasisSpace(X, weights, **self._parameters())

    def _parameters(self) -> dict[str, Any]:
        names = ("gamma", "basis", "n_basis", "max_basis", "min_gain", "random_state")
        return {name: getattr(self, name) for name in names}

    # ------------------------------------------------------------------ the basis

    def _coefficients(self, w: Projection) -> NDArray:
        self._extend([w])
        return self._basis.coefficients(w.coordinates)

    def _extend(self, vectors: Sequence[Projection]) -> None:
        """Extend the coordinates of projections to the current basis."""
        late = {id(a): a for a in vectors if a.coordinates.size < self.version}
        if late and self._latest is not None and self._latest.coordinates.size < self.version:
            late[id(self._latest)] = self._latest  # needed next: use the same pass
        cuts = [a for a in late.values() if a.coefficients is not None]
        found: list[NDArray] = []
        if cuts:
            found = self._images.products(
                [a.coefficients for a in cuts], [a.coordinates.size for a in cuts]
            )
        for a in late.values():
            if a.coefficients is None:
                more = np.zeros(self.version - a.coordinates.size)
            else:
                more = self._basis.further_coordinates(a.coordinates, found.pop(0))
            a.coordinates = np.concatenate([a.coordinates, more])
        if self.version >= self.max_basis:
            for a in vectors:
                a.coefficients = None

    def _proposals(self, r: NDArray, centred: NDArray, first: bool) -> Iterator[NDArray]:
        """Yield vectors for a cut with coefficients r of z_i (`centred` of phi) on pilot rows."""
        search = self._pilot
        if not r.any():
            return
        if self.basis == "single":
            if not self.version:
                yield search.mode(search.shares)
            # Algorithm 4 is for Psi (eq. 25), which is not centred.
            yield search.printed(search.field(r) if first else self._residual(centred))
        elif first:
            for side in (np.maximum(centred, 0), np.maximum(-centred, 0)):
                if side.any():
                    yield search.mode(side)
        else:
            for _ in range(2):
                field = self._residual(centred)
                yield search.climb(field, search.best_start(field))

    def _residual(self, r: NDArray) -> Field:
        """Return <a - P a, phi(b)> as a function of b, a = sum_i r_i phi(x_i), P onto the span."""
        x = self._basis.further_coordinates(np.empty(0), self._pilot.images @ r)
        return Field(self._pilot.rows, r, self._basis.vectors, self._basis.coefficients(x))

    def _take(self, b: NDArray, r: NDArray | None) -> None:
        """Add b to the basis, if it is outside the span and improves the cut r (if any)."""
        b = b.astype(self.dtype).astype(np.float64)
        row, square = self._basis.distance(b)
        if square <= MIN_DISTANCE:
            return
        image = self._pilot.rows.kernel(b)
        if r is not None and self.version:
            x = self._basis.further_coordinates(np.empty(0), self._pilot.images @ r)
            gain = (float(r @ image) - row @ x) ** 2 / square
            if gain <= self.min_gain * (x @ x):
                return
        self._basis.append(b, row, square)
        self.version += 1
        self._pilot.images = np.vstack([self._pilot.images, image])
        self._images.append(b, image, self._pilot.shares)
        self.n_passes += 1


class SpannedBasisSpace(BasisSpace):
    """A `BasisSpace` for few rows with many columns, in a basis of their span.

    Distances and basis vectors are those of the rows: mean shift does not leave their span.
    """

    def __init__(self, span: RowSpace, weights: Any = None, **parameters: Any):
        super().__init__(span.T, weights, **parameters)
        self.span = span

    def reweighted(self, weights: Any) -> SpannedBasisSpace:
        """Return the same rows with other weights, and a new basis."""
        return SpannedBasisSpace(self.span, weights, **self._parameters())

    def expansion(self, w: Projection) -> BasisExpansion:
        """Return the function that gives the scores of w, for any rows."""
        found, mean = super().expansion(w), self.span.mean
        vectors = self.span.coefficients(found.vectors.T).T + mean
        return replace(found, vectors=vectors, offset=mean)


class _Basis:
    """The vectors, and the Cholesky factor of their kernel matrix: K_BB = L L'."""

    def __init__(self, n_features: int, gamma: float):
        self.gamma = gamma
        self.vectors = np.empty((0, n_features))
        self.factor = np.empty((0, 0))

    def distance(self, b: NDArray) -> tuple[NDArray, float]:
        """Return the coordinates of phi(b), and its squared distance to the span."""
        k = rbf(self.vectors @ b, squares(self.vectors), b @ b, self.gamma)
        row = self.further_coordinates(np.empty(0), k)
        return row, 1.0 - float(row @ row)

    def append(self, b: NDArray, row: NDArray, square: float) -> None:
        m = len(self.vectors)
        factor = np.zeros((m + 1, m + 1))
        factor[:m, :m], factor[m, :m], factor[m, m] = self.factor, row, np.sqrt(square)
        self.factor, self.vectors = factor, np.vstack([self.vectors, b])

    def further_coordinates(self, x: NDArray, products: NDArray) -> NDArray:
        """Return the coordinates after x, from the products with the vectors after those of x."""
        known = x.size
        right = products - self.factor[known:, :known] @ x
        return solve_triangular(self.factor[known:, known:], right, lower=True)

    def coefficients(self, x: NDArray) -> NDArray:
        """Return the coefficients in the phi(b_k) of a vector with orthonormal coordinates x."""
        return solve_triangular(self.factor, x, lower=True, trans="T")


class _Images:
    """Centred kernel values of all rows with each basis vector, in blocks of fixed size."""

    def __init__(self, rows: KernelRows, shares: NDArray | None):
        self.rows, self.shares = rows, shares
        self.n_rows, self.dtype = rows.X.shape[0], rows.X.dtype
        self.means: list[float] = []
        self.blocks: list[NDArray] = []

    def prefetch(self, f: Callable[[], Any]) -> None:
        """Do nothing, because images are stored."""

    def ask(self, v: Any) -> None:
        """Do nothing, because images are stored."""

    def full(self, value: float) -> NDArray:
        return np.full(self.n_rows, value, dtype=self.dtype)

    def append(self, b: NDArray, image: NDArray, pilot_shares: NDArray) -> None:  # noqa: ARG002
        """Add a vector, given its kernel values on the pilot rows, which may be all rows."""
        if image.size < self.n_rows:
            image = self.rows.kernel(b)
        mean = float(image.mean(dtype=np.float64) if self.shares is None else self.shares @ image)
        place = len(self.means) % BLOCK
        if place == 0:
            require_memory(
                BLOCK * self.n_rows * self.dtype.itemsize,
                f"{BLOCK} more basis vectors' kernel values with {self.n_rows} rows",
                f"Use max_basis={max(len(self.means), 1)}, or fewer rows.",
            )
            self.blocks.append(np.empty((BLOCK, self.n_rows), dtype=self.dtype))
        # In float64: a mean rounded to float32 would be off in the same way in all rows.
        self.blocks[-1][place] = np.subtract(image, mean, dtype=np.float64)
        self.means.append(mean)

    def products(self, vectors: Sequence[NDArray], starts: Sequence[int]) -> list[NDArray]:
        """Return the products of each vector with the images from its start on, in float64."""
        found = []
        for v, start in zip(vectors, starts, strict=True):
            parts = [block[rows] @ v for block, rows in self._parts(start)]
            found.append(np.concatenate(parts).astype(np.float64, copy=False))
        return found

    def combined(self, coefficients: NDArray) -> NDArray:
        total, done = self.full(0.0), 0
        coefficients = coefficients.astype(self.dtype, copy=False)
        for block, rows in self._parts(0):
            part = block[rows]
            total += coefficients[done : done + len(part)] @ part
            done += len(part)
        return total

    def _parts(self, start: int) -> Iterator[tuple[NDArray, slice]]:
        for first in range(start - start % BLOCK, len(self.means), BLOCK):
            rows = slice(max(start - first, 0), min(len(self.means) - first, BLOCK))
            yield self.blocks[first // BLOCK], rows
