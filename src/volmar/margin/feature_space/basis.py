"""Rows in the feature space of the RBF kernel, projected onto a few basis vectors (SKMMC)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import solve_triangular

from volmar._checks import check_choice, check_count, check_number, check_random_state
from volmar._memory import require_memory
from volmar.margin.feature_space.space import FeatureSpace, Hyperplane
from volmar.rows.anywhere import drawn_rows, first_beyond, in_one_pass, is_in_memory, mapped_scores
from volmar.rows.blocks import BlockRows, BlockTable, RowVector
from volmar.rows.blocks.table import HeldRows
from volmar.rows.kernel import gaussian_sums, shifted
from volmar.rows.standardized import RowSpace
from volmar.rows.tiled import MappedRows

# ------------------------------------------------------------------ search for basis vectors

# Maximum number of rows on which basis vectors are searched. Any vector is valid in the basis; on
# a sample the projections onto the vectors found are only slightly shorter.
PILOT_ROWS = 2000
# Algorithm 4: number of rows averaged for a start, and of restarts after a divergence.
N_AVERAGED, MAX_RESTARTS = 3, 5
MAX_STEPS, MAX_HALVINGS = 100, 20
# A search ends at this squared step, in units of sigma^2 (delta of Algorithm 4, which is printed
# as an absolute number).
STEP_TOL = 1e-3
# Dense rows are centred if |mean|^2 over mean |x - mean|^2 is above this value: squared distances
# are differences of squared norms, and lose as many digits as this ratio has.
FAR = 10.0


class KernelRows:
    """Rows, and their values of the RBF kernel."""

    def __init__(self, X: Any, gamma: float):
        self.X, self.gamma, self.squares = X, gamma, squares(X)

    def kernel(self, b: NDArray) -> NDArray:
        """Return k(x_i, b) of every row."""
        b = b.astype(self.X.dtype, copy=False)
        return rbf(self.X @ b, self.squares, b @ b, self.gamma)

    def combine(self, v: NDArray) -> NDArray:
        """Return sum_i v_i x_i in float64."""
        v = v.astype(self.X.dtype, copy=False)
        return (self.X.T @ v if sparse.issparse(self.X) else v @ self.X).astype(np.float64)

    def row(self, i: int) -> NDArray:
        """Return one row, dense."""
        return _dense(self.X[[i]])[0].astype(np.float64)


@dataclass(frozen=True)
class Field:
    """The function <R, phi(b)> of b, for R = sum_i r_i phi(x_i) - sum_k q_k phi(b_k)."""

    rows: KernelRows
    r: NDArray
    vectors: NDArray
    q: NDArray

    def terms(self, b: NDArray) -> tuple[NDArray, NDArray]:
        """Return the terms r_i k(x_i, b) and q_k k(b_k, b)."""
        k = rbf(self.vectors @ b, squares(self.vectors), b @ b, self.rows.gamma)
        return self.r * self.rows.kernel(b), self.q * k

    def fixed_point(self, terms: tuple[NDArray, NDArray], value: float) -> NDArray:
        """Return the right-hand side of eq. 46, with m >= 1 in it, or of eq. 47."""
        return (self.rows.combine(terms[0]) - terms[1] @ self.vectors) / value


class Pilot:
    """A sample of the rows, on which searches are run.

    `index` are the indices of its rows among all rows, `inverse` is the number of rows that each
    of them represents (see `drawn`), and `entries` returns the entries of a vector over all rows
    at those of the sample.
    """

    def __init__(
        self,
        rows: KernelRows,
        index: NDArray,
        inverse: NDArray,
        shares: NDArray | None,
        random: np.random.RandomState,
        entries: Callable[[Any], NDArray],
    ):
        dtype = rows.X.dtype
        self.rows, self.index, self.random, self._entries = rows, index, random, entries
        self.inverse = inverse.astype(dtype)
        p = self.inverse if shares is None else shares * self.inverse
        self.shares = (p / p.sum()).astype(dtype)
        self.images = np.empty((0, index.size), dtype=dtype)
        # Number of rows of the sample tried as starts of a search, in addition to the mean.
        few = random.choice(index.size, min(32, index.size), replace=False)
        self.starts = _dense(self.rows.X[np.sort(few)]).astype(np.float64)
        self.start_images = np.array([self.rows.kernel(b) for b in self.starts])
        self.centre = self.rows.combine(self.shares)
        far = self.rows.squares - 2 * (self.rows.X @ self.centre.astype(dtype))
        self.radius = float(np.sqrt(max(far.max() + self.centre @ self.centre, 0.0)))
        self.n_diverged = 0

    def restricted(self, v: Any) -> NDArray:
        """Return coefficients of the sampled rows that represent those of all rows."""
        return self._entries(v).astype(self.inverse.dtype) * self.inverse

    def centred(self, r: NDArray) -> NDArray:
        """Return the coefficients in phi(x_i) of the combination r of the z_i."""
        return r - r.sum() * self.shares

    def field(self, r: NDArray) -> Field:
        """Return the function <sum_i r_i phi(x_i), phi(b)> of b."""
        return Field(self.rows, r, np.empty((0, self.starts.shape[1])), np.empty(0))

    def mode(self, weights: NDArray) -> NDArray:
        """Return a mode of the density with weights >= 0, by mean shift from the best start."""
        field = self.field(weights)
        mean = self.rows.combine(weights) / float(weights.sum(dtype=np.float64))
        return self.climb(field, self.best_start(field, mean))

    def best_start(self, field: Field, mean: NDArray | None = None) -> NDArray:
        """Return the start at which the field has the largest absolute value."""
        values = self.start_images @ field.r
        if len(field.q):
            dots = self.starts @ field.vectors.T
            both = squares(self.starts)[:, None], squares(field.vectors)
            values = values - rbf(dots, *both, field.rows.gamma) @ field.q
        values = np.abs(values)
        best = int(values.argmax())
        if mean is not None and _value(field.terms(mean)) >= values[best] > 0:
            return mean
        if values[best] > 0:
            return self.starts[best]
        # The kernel is so narrow that no weighted row is near a start.
        return self.rows.row(int(np.abs(field.r).argmax()))

    def climb(self, field: Field, b: NDArray) -> NDArray:
        """Return a fixed point of eq. 46, by steps that never lower the field's absolute value.

        The denominator is the field itself, and the step is its gradient over it: an ascent
        direction of the absolute value. With weights of one sign the whole step ascends (mean
        shift). With weights of both signs it may be too long and is halved.
        """
        terms = field.terms(b)
        value = _value(terms)
        slack = 1.0 - 8 * np.finfo(self.inverse.dtype).eps
        for _ in range(MAX_STEPS):
            if _vanishes(value, terms):
                break
            step = field.fixed_point(terms, value) - b
            for _ in range(MAX_HALVINGS):
                terms = field.terms(b + step)
                if abs(_value(terms)) >= slack * abs(value):
                    break
                step /= 2
            else:
                break
            b, value = b + step, _value(terms)
            if 2 * field.rows.gamma * (step @ step) <= STEP_TOL:
                break
        return b

    def printed(self, field: Field) -> NDArray:
        """Return the result of Algorithm 4, or the best point visited if it does not converge.

        It starts from averages of rows. An iteration is abandoned if the denominator vanishes or
        changes sign, or if b is 3 sigma outside the data: fixed points of a wide kernel also lie
        outside, at about one sigma.
        """
        best, largest = self.centre, -1.0
        reach = self.radius + 3 / np.sqrt(2 * field.rows.gamma)
        for _ in range(1 + MAX_RESTARTS):
            few = self.random.choice(
                self.index.size, min(N_AVERAGED, self.index.size), replace=False
            )
            b = np.mean([self.rows.row(i) for i in few], axis=0)
            terms = field.terms(b)
            value = _value(terms)
            for _ in range(MAX_STEPS):
                if abs(value) > largest:
                    best, largest = b, abs(value)
                if _vanishes(value, terms):
                    break
                before, last = b, value
                b = field.fixed_point(terms, value)
                if np.linalg.norm(b - self.centre) > reach:
                    break
                terms = field.terms(b)
                value = _value(terms)
                if value * last <= 0:
                    break
                if 2 * field.rows.gamma * np.sum((b - before) ** 2) <= STEP_TOL:
                    return b
            self.n_diverged += 1
        return best


def _value(terms: tuple[NDArray, NDArray]) -> float:
    return float(terms[0].sum(dtype=np.float64)) - float(terms[1].sum())


def _vanishes(value: float, terms: tuple[NDArray, NDArray]) -> bool:
    """Return whether a sum is zero up to the rounding of its terms."""
    size = float(np.abs(terms[0]).sum(dtype=np.float64)) + float(np.abs(terms[1]).sum())
    return abs(value) <= np.finfo(terms[0].dtype).eps * size


def drawn(n: int, shares: Any, random: np.random.RandomState) -> tuple[NDArray, NDArray]:
    """Draw the pilot rows, the same in memory and in blocks: their indices and their weights.

    Rows are drawn by their shares with replacement, or without replacement if there are no shares.
    If few rows have a positive share, all of them are used. The weight of a row is the number of
    rows that it represents: the expectation of the weighted sum over these rows is the sum over
    all rows.
    """
    rng = np.random.default_rng(random.randint(2**31 - 1))
    if shares is None or np.count_nonzero(shares) <= PILOT_ROWS:
        index = drawn_rows(n, shares, PILOT_ROWS, rng)
        return index, np.full(index.size, n / index.size if shares is None else 1.0)
    targets = rng.random(PILOT_ROWS)
    index, counts = np.unique(first_beyond(shares, targets), return_counts=True)
    return index, counts / (PILOT_ROWS * shares[index])


def far_mean(X: Any) -> NDArray | None:
    """Return the mean of dense rows if it is so far from 0 that distances would lose digits."""
    if sparse.issparse(X):
        return None
    mean = X.mean(axis=0, dtype=np.float64)
    spread = float(squares(X - mean).mean())
    return mean if mean @ mean > FAR * spread else None


def _dense(X: Any) -> NDArray:
    return X.toarray() if sparse.issparse(X) else X


def squares(X: Any) -> NDArray:
    """Return the squared norms of the rows."""
    if sparse.issparse(X):
        return np.asarray(X.multiply(X).sum(axis=1), dtype=X.dtype).ravel()
    return np.einsum("ij,ij->i", X, X)


def rbf(dots: NDArray, squares: NDArray, others: Any, gamma: float) -> NDArray:
    """Return exp(-gamma |x - y|^2) from x'y, which it overwrites, and the squared norms."""
    dots *= -2
    dots += squares
    dots += others
    np.maximum(dots, 0, out=dots)
    dots *= -gamma
    return np.exp(dots, out=dots)


# ------------------------------------------------------------------ images of rows in blocks

# Number of basis vectors per feature map. One pass may need scores for several sizes of the basis;
# they share the maps of all full groups.
GROUP = 8


class KernelFeatures:
    """Feature map k(b_k, x) - mu_k of a row x minus the offset."""

    def __init__(self, vectors: NDArray, means: NDArray, gamma: float, offset: NDArray | None):
        self.vectors, self.means, self.gamma, self.offset = vectors, means, gamma, offset

    def transform(self, X: Any) -> NDArray:
        """Return the features of rows, dense or CSR, shape (n, m), in their dtype."""
        rows = shifted(X, self.offset)
        vectors = self.vectors.astype(X.dtype, copy=False)
        k = rbf(rows @ vectors.T, squares(rows)[:, None], squares(vectors), self.gamma)
        # In float64: a mean rounded to float32 would be off in the same way in all rows.
        return np.subtract(k, self.means, out=k, dtype=np.float64, casting="same_kind")

    def scores(self, X: Any, w: NDArray) -> NDArray:
        """Return the products of w with the features of rows, shape (n,), in their dtype."""
        if sparse.issparse(X):
            return MappedRows(X, self).scores(w)
        sums = gaussian_sums(X, self.vectors, self.gamma, w, self.offset)
        return (sums - w @ self.means).astype(X.dtype, copy=False)


class BlockImages:
    r"""Centred kernel values of all rows with each basis vector, computed by passes.

    The mean :math:`\mu_k` of a new vector's kernel values is only known after a pass over the
    rows. The same pass also computes products with the new values, relative to a guess
    :math:`m_k`:

    .. math:: \sum_i v_i (k(b_k, x_i) - \mu_k)
              = \sum_i v_i (k(b_k, x_i) - m_k) - (\mu_k - m_k) \sum_i v_i.
    """

    def __init__(
        self, table: BlockTable, gamma: float, offset: NDArray | None, shares: RowVector | None
    ):
        self.table, self.gamma, self.offset, self.shares = table, gamma, offset, shares
        self._vectors = np.empty((0, table.shape[1]))
        self._means = np.empty(0)
        # Guesses of the means that are not known yet, those of the last vectors.
        self._guesses = np.empty(0)
        self._groups: list[BlockRows] = []

    def prefetch(self, f: Callable[[], Any]) -> None:
        """Compute all results that `f` requests in a single pass."""
        self.table.prefetch(f)

    def ask(self, v: RowVector) -> None:
        """Request the products of a vector with all images, inside `prefetch`."""
        self._found([v], [0])

    def full(self, value: float) -> RowVector:
        """Return a vector with the same value for every row."""
        return self.table.full(value, self.table.dtype)

    @property
    def means(self) -> NDArray:
        """Means of the kernel values, shape (m,)."""
        self._settle()
        return self._means

    def append(self, b: NDArray, image: NDArray, pilot_shares: NDArray) -> None:
        """Add a vector, given its kernel values on the pilot rows and the shares of these."""
        self._vectors = np.vstack([self._vectors, b])
        self._guesses = np.append(self._guesses, float(pilot_shares @ image))

    def products(self, vectors: Sequence[RowVector], starts: Sequence[int]) -> list[NDArray]:
        """Return the products of each vector with the images from its start on, in one pass."""
        found, means = in_one_pass(lambda: self._found(vectors, starts), self.table)
        self._know(means)
        return found

    def combined(self, coefficients: NDArray) -> RowVector:
        """Return the combination of all images."""
        self._settle()
        total = self.full(0.0)
        for i, rows in enumerate(self._groups):
            part = rows.scores(coefficients[i * GROUP : (i + 1) * GROUP])
            total = total + part if i else part
        return total

    def _found(
        self, vectors: Sequence[RowVector], starts: Sequence[int]
    ) -> tuple[list[NDArray], NDArray]:
        """Return the products, and the means that were not known yet."""
        known = len(self._means)
        fresh = self._rows(slice(known, None), self._guesses) if len(self._guesses) else None
        beyond = np.empty(0) if fresh is None else self._mean_of(fresh)
        found = []
        for v, start in zip(vectors, starts, strict=True):
            first = start // GROUP if start < known else len(self._groups)
            parts = [rows.combine(v) for rows in self._groups[first:]]
            if fresh is not None:
                parts.append(fresh.combine(v) - beyond * v.sum())
            whole = np.concatenate(parts) if parts else np.empty(0)
            found.append(whole[start - min(first * GROUP, known) :])
        return found, self._guesses + beyond

    def _mean_of(self, rows: BlockRows) -> NDArray:
        if self.shares is not None:
            return rows.combine(self.shares)
        return rows.combine(self.full(1.0)) / self.table.n_rows

    def _settle(self) -> None:
        """Compute the unknown means in one pass."""
        if len(self._guesses):
            self._know(self._found([], [])[1])

    def _know(self, means: NDArray) -> None:
        """Store new means, and put their vectors into groups."""
        if not len(means):
            return
        full = len(self._means) // GROUP
        self._means = np.concatenate([self._means, means])
        self._guesses = np.empty(0)
        del self._groups[full:]
        for start in range(full * GROUP, len(self._means), GROUP):
            group = slice(start, start + GROUP)
            self._groups.append(self._rows(group, self._means[group]))

    def _rows(self, group: slice, means: NDArray) -> BlockRows:
        features = KernelFeatures(self._vectors[group], means, self.gamma, self.offset)
        return BlockRows(self.table.mapped(features))


# ------------------------------------------------------------------ the space of basis vectors

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
        v = self.coefficients
        return Projection(-self.coordinates, None if v is None else -v)


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
            # A search ends after this many consecutive rounds without a new vector.
            if self.version >= self.max_basis or n_misses == 3:
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
        # Minimum squared distance of a unit vector to the span of the basis. Its inverse root
        # magnifies the rounding of kernel values: float32 keeps three digits.
        if square <= 1e-7:
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


# ------------------------------------------------------------------ Algorithm 4 of the SKMMC paper

# Delta of Algorithm 4: the squared step at which a search ends, in the units of the rows.
DELTA = 0.01
# A step below this multiple of the rounding error of b is rounding.
ROUNDINGS = 4.0


@dataclass(frozen=True)
class SparseVector:
    """The vector sum_k c_k phi(b_k), and its inner products with phi(x_i) of every row."""

    vectors: NDArray
    coefficients: NDArray
    image: NDArray

    def __neg__(self) -> SparseVector:
        return SparseVector(self.vectors, -self.coefficients, -self.image)


class PrintedBasisSpace(FeatureSpace):
    r"""Rows in the feature space of the RBF kernel, with Algorithm 4 of SKMMC for combinations.

    `vector` approximates :math:`\Psi = \sum_i v_i \phi(x_i)` by
    :math:`\hat\Psi = \sum_{j \le N} \beta_j \phi(b_j)`, with N separate basis vectors (eq. 27;
    N = 1 in the paper): fixed points of eq. 46 and 47 with coefficients of eq. 49. Only `scores`
    are centred; they have mean 0 by the intercept of eq. 23. Combinations share no vectors. `mean`
    is :math:`\hat\Psi_0` of eq. 26.

    As printed, a search starts at the mean of rows drawn at random and ends once a squared step is
    at most 0.01, in the units of the rows. A search that runs into 0/0 or does not converge is
    restarted; `n_diverged` counts the restarts. After six such starts, the visited b with the
    largest :math:`|\langle \Psi, \phi(b) \rangle|` is used. A repeated b makes eq. 49 singular;
    its solution of minimum norm is used.
    """

    has_equal_lengths = True

    def __init__(
        self,
        X: Any,
        weights: NDArray | None = None,
        *,
        gamma: float,
        n_basis: int = 1,
        random_state: Any = None,
    ):
        self.gamma = check_number("gamma", gamma, low=0.0, open_low=True)
        self.n_basis = check_count("n_basis", n_basis)
        self.random_state, self.random = random_state, check_random_state(random_state)
        self.X, self.weights = X, weights
        self.n_rows, self.dtype = X.shape[0], X.dtype
        self.shares = shares = None if weights is None else weights / weights.sum()
        self._p = np.full(self.n_rows, 1.0 / self.n_rows) if shares is None else shares
        self._weighing = np.flatnonzero(self._p)
        self.offset = far_mean(X)
        self.rows = KernelRows(shifted(X, self.offset), self.gamma)
        self.n_passes = self.n_diverged = 0
        self.mean = self.vector(self._p)

    def vector(self, v: NDArray) -> SparseVector:
        """Return the approximation of sum_i v_i phi(x_i) by separate basis vectors."""
        require_memory(
            float(self.n_basis * self.n_rows * self.dtype.itemsize),
            f"the kernel values of another cut with {self.n_rows} rows",
            "Lower max_iter, or use fewer rows.",
        )
        v = v.astype(np.float64, copy=False)
        vectors, images = np.empty((0, self.X.shape[1])), np.empty((0, self.n_rows))
        beta = np.empty(0)
        for _ in range(self.n_basis):
            b = self._fixed_point(Field(self.rows, v, vectors, beta))
            vectors = np.vstack([vectors, b])
            images = np.vstack([images, self.rows.kernel(b)])
            beta = np.linalg.lstsq(self._kernel(vectors, vectors), images @ v, rcond=None)[0]
        self.n_passes += self.n_basis
        return SparseVector(vectors, beta, beta @ images)

    def inner(self, vector: SparseVector, others: Sequence[SparseVector]) -> NDArray:
        """Return the inner products of a vector with others."""
        left = vector.coefficients @ self._kernel(
            vector.vectors, np.concatenate([other.vectors for other in others])
        )
        ends = np.cumsum([len(other.coefficients) for other in others])[:-1]
        parts = np.split(left, ends)
        return np.array([part @ b.coefficients for part, b in zip(parts, others, strict=True)])

    def combination(self, vectors: Sequence[SparseVector], weights: NDArray) -> SparseVector:
        """Return sum_k weights_k vectors_k, with the basis vectors of all of them."""
        image = np.zeros(self.n_rows)
        for weight, one in zip(weights, vectors, strict=True):
            if weight:
                image += weight * one.image
        parts = [w * one.coefficients for w, one in zip(weights, vectors, strict=True)]
        basis = np.concatenate([one.vectors for one in vectors])
        return SparseVector(basis, np.concatenate(parts), image)

    def scores(self, w: SparseVector) -> NDArray:
        """Return <w, phi(x_i)> + b of every row, with b of eq. 23, so that their mean is 0."""
        return (w.image - self._p @ w.image).astype(self.dtype)

    # ------------------------------------------------------------------ of a fit

    def hyperplane(self, normal: SparseVector, rho: float, t: float) -> BasisHyperplane:
        """Return basis vectors and their coefficients."""
        means = np.array([self._p @ self.rows.kernel(b) for b in normal.vectors])
        vectors = normal.vectors if self.offset is None else normal.vectors + self.offset
        coefficients = normal.coefficients / rho
        expansion = BasisExpansion(vectors, coefficients, means, self.gamma, self.offset)
        return BasisHyperplane(expansion, t / rho)

    def start_rows(self) -> Any:
        """Return the rows."""
        return self.X

    def reweighted(self, weights: NDArray) -> PrintedBasisSpace:
        """Return the same rows with other weights."""
        return PrintedBasisSpace(
            self.X,
            weights,
            gamma=self.gamma,
            n_basis=self.n_basis,
            random_state=self.random_state,
        )

    # ------------------------------------------------------------------ Algorithm 4

    def _kernel(self, A: NDArray, B: NDArray) -> NDArray:
        return rbf(A @ B.T, squares(A)[:, None], squares(B), self.gamma)

    def _fixed_point(self, field: Field) -> NDArray:
        """Return a fixed point of eq. 46 and 47, from the mean of a few rows drawn at random."""
        best, largest = np.zeros(self.X.shape[1]), -1.0
        for _ in range(1 + MAX_RESTARTS):
            few = min(N_AVERAGED, self._weighing.size)
            drawn = self.random.choice(self._weighing, few, replace=False)
            b = np.mean([self.rows.row(i) for i in drawn], axis=0)
            for _ in range(MAX_STEPS):
                terms = field.terms(b)
                self.n_passes += 1
                value = float(terms[0].sum()) - float(terms[1].sum())
                if abs(value) > largest:
                    best, largest = b, abs(value)
                with np.errstate(all="ignore"):
                    after = field.fixed_point(terms, value)
                    square = float(np.sum((after - b) ** 2))
                    size = float(np.sum(after**2))
                if not np.isfinite(square + size):
                    break  # 0/0, or a b whose kernel values are 0
                b = after
                if square <= max(DELTA, (ROUNDINGS * np.finfo(b.dtype).eps) ** 2 * size):
                    return b
            self.n_diverged += 1
        return best
