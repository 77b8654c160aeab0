"""A growing subspace of the feature space, with few coordinates per row and cheap passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.margin.feature_space.space import VectorSpace
from volmar.solvers.cutting_plane_certificate import NotAGramMatrixError

# If the squared length of a component of a unit vector is this far below 0, it is not rounding.
NEGATIVE = 1e-3


class GrowingSubspace(VectorSpace):
    """Projections of the rows of a source onto an orthonormal basis; also a source itself.

    A projection shortens every combination of rows: a lower bound of a norm in the subspace is
    also one in the whole space. A normal vector in the subspace has the same scores and the same
    norm in both.
    """

    def __init__(self, source: VectorSpace):
        self.source, self.shares = source, source.shares
        self.n_rows, self.dtype = source.n_rows, np.dtype(np.float64)
        # Centred rows span one dimension less than the number of rows with positive weight.
        weighing = self.n_rows if self.shares is None else np.count_nonzero(self.shares)
        self._max_vectors = int(weighing) - source.is_centered
        self.n_passes = 0
        self.basis: list[Any] = []
        self._columns = np.empty((8, self.n_rows))
        # Minimum share of a vector's length outside the subspace for it to be added.
        self._new = 1e-6 if source.dtype == np.float64 else 1e-4

    @property
    def features(self) -> NDArray:
        """Coordinates of the rows, shape (n, m)."""
        return self._columns[: len(self.basis)].T

    def coordinates(self, vector: Any) -> NDArray:
        """Return the projection of a vector of the source, shape (m,)."""
        return self.source.inner(vector, self.basis) if self.basis else np.empty(0)

    def add(self, vector: Any) -> bool:
        """Add a vector of the source to the basis, and return whether it was outside its span.

        If it was, this takes one pass, and two more for a kernel source.
        """
        source = self.source
        length = float(source.inner(vector, [vector])[0])
        if length < 0.0:
            raise NotAGramMatrixError(f"a combination of rows has the squared norm {length:.3g}")
        if not length > 0.0 or len(self.basis) >= self._max_vectors:
            return False
        vector = self._scaled(vector, length)
        share = 1.0
        for _ in range(2):  # twice is enough for orthogonality
            if self.basis:
                weights = np.append(1.0, -self.coordinates(vector))
                vector = source.combination([vector, *self.basis], weights)
            length = float(source.inner(vector, [vector])[0])
            if length < -NEGATIVE:
                raise NotAGramMatrixError(f"a residual vector has the squared norm {length:.3g}")
            share *= length
            if not share > self._new**2:
                return False
            # If most of a vector has been subtracted, coefficients and scores of a kernel would
            # drift apart, by a larger factor with every basis vector.
            vector = source.refreshed(self._scaled(vector, length))
        m = len(self.basis)
        if m == self._columns.shape[0]:
            self._columns = np.concatenate([self._columns, np.empty_like(self._columns)])
        self.basis.append(vector)
        self._columns[m] = source.scores(vector)
        return True

    def _scaled(self, vector: Any, square: float) -> Any:
        return self.source.combination([vector], np.array([1.0 / np.sqrt(square)]))

    def add_leading(self, n_vectors: int, rng: np.random.Generator) -> None:
        """Add a Krylov space, which contains the leading principal components approximately.

        It is restarted if it is exhausted: that of a multiple of the identity has one vector. Rows
        are weighted by their shares: the operator is their weighted covariance, and a random
        combination has the same variance as if rows were repeated according to their weights.
        """
        size = len(self.basis) + n_vectors
        v, is_random = self._random(rng), True
        while len(self.basis) < size:
            if self.add(self.source.vector((v / np.abs(v).sum()).astype(self.source.dtype))):
                v, is_random = self._columns[len(self.basis) - 1], False
                v = v if self.shares is None else self.shares * v
            elif is_random:
                return
            else:
                v, is_random = self._random(rng), True

    def _random(self, rng: np.random.Generator) -> NDArray:
        """Return random coefficients; those of rows without weight are 0 and not drawn."""
        if self.shares is None:
            return rng.standard_normal(self.n_rows)
        v = np.sqrt(self.shares)
        v[v > 0] *= rng.standard_normal(np.count_nonzero(v))
        return v

    # ------------------------------------------------------------------ as a source

    def vector(self, v: NDArray) -> NDArray:
        """Return the projection of sum_i v_i z_i, shape (m,)."""
        self.n_passes += 1
        return self._columns[: len(self.basis)] @ v

    def inner(self, vector: NDArray, others: Sequence[NDArray]) -> NDArray:
        """Return the inner products of a vector with others."""
        return np.array([vector @ other for other in others])

    def combination(self, vectors: Sequence[NDArray], weights: NDArray) -> NDArray:
        """Return the combination, shape (m,)."""
        return np.tensordot(weights, np.stack(vectors), axes=1)

    def scores(self, w: NDArray) -> NDArray:
        """Return <w, z_i> of every row."""
        self.n_passes += 1
        return w @ self._columns[: len(self.basis)]
