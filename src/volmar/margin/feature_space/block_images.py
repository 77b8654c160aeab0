"""Kernel values of basis vectors with rows in blocks, computed in each pass and not stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar.margin.feature_space.basis_search import rbf, squares
from volmar.rows import BlockRows, BlockTable, MappedRows, RowVector, in_one_pass
from volmar.rows.kernel import gaussian_sums, shifted

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
