"""Search for basis vectors: modes of weighted densities, and the fixed points of SKMMC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar.rows import drawn_rows, first_beyond

# Maximum number of rows on which basis vectors are searched. Any vector is valid in the basis; on
# a sample the projections onto the vectors found are only slightly shorter.
PILOT_ROWS = 2000
# Number of rows of the sample tried as starts of a search, in addition to the mean.
N_STARTS = 32
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
        few = random.choice(index.size, min(N_STARTS, index.size), replace=False)
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
