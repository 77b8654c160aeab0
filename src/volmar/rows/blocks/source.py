"""The row source of a table in blocks."""

# ruff: noqa: D102 -- described at RowSource

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from volmar.rows._validation import as_block, as_vector
from volmar.rows.blocks.recipes import Scores
from volmar.rows.blocks.sums import Combination, MomentSum, SquaredNorm
from volmar.rows.blocks.table import BlockTable
from volmar.rows.blocks.vector import RowVector
from volmar.rows.moments import Moments
from volmar.rows.protocol import RowSource

# Maximum and minimum number of leading rows whose mean is the first guess of the mean of all rows,
# and their maximum size.
PIVOT_ROWS, MIN_PIVOT_ROWS, PIVOT_BYTES = 4096, 256, 32 * 2**20


class BlockRows(RowSource):
    """The rows of a table in blocks. Vectors over the rows are lazy.

    Parameters
    ----------
    table : BlockTable
        The rows.
    sample_weight : RowVector, optional
        Sample weights, which must be valid. If None, every row has weight 1.
    """

    weights: Any

    def __init__(self, table: BlockTable, sample_weight: RowVector | None = None):
        self.table, self.view = table, table.view
        self.n_rows, self.n_features = table.shape
        self.dtype = table.dtype
        self.weights = sample_weight
        self.offset = None
        self._mean: np.ndarray | None = None

    @property
    def total_weight(self) -> float:  # type: ignore[override]
        return float(self.n_rows if self.weights is None else self.weights.sum())

    def scores(self, w: np.ndarray) -> Any:
        w = as_block(w, self.n_features, "w", "feature", self.dtype)
        return RowVector(self.table, Scores(self.view, w, self.dtype))

    def combine(self, v: Any) -> np.ndarray:
        coefficients = self.over_rows(v, "v").astype(self.dtype).recipe
        return self.table.ask(Combination(self.view, self.n_features, coefficients))

    def mean(self) -> np.ndarray:
        if self._mean is not None:
            return self._mean.copy()
        mean = self.moments(center=self.first_guess(), second=False).mean
        if not self.table.is_collecting:
            self._mean = mean
        return mean.copy()

    def first_guess(self) -> np.ndarray:
        """Return the mean of the first rows. Sums about it lose few digits."""
        fitting = PIVOT_BYTES // (self.n_features * self.dtype.itemsize)
        first = self.table.first_mean(min(PIVOT_ROWS, max(MIN_PIVOT_ROWS, fitting)))
        return first if self.offset is None else first - self.offset

    def moments(
        self, mask: Any = None, *, center: np.ndarray | None = None, second: bool = True
    ) -> Moments:
        if center is None:
            center = self.mean()
        center = as_vector(center, self.n_features, "center", "feature")
        if mask is not None and self.over_rows(mask, "mask").dtype != bool:
            raise ValueError(
                f"mask must be boolean, got dtype {mask.dtype}. Create a mask by a comparison, "
                "e.g. labels == 1."
            )
        wanted = MomentSum(
            self.view,
            center,
            mask=None if mask is None else mask.recipe,
            weights=None if self.weights is None else self.weights.recipe,
            second=second,
        )
        return self.table.ask(wanted)

    def centered(self) -> Self:
        mean = self.mean()
        other = copy.copy(self)
        other.offset = mean if self.offset is None else self.offset + mean
        other.view = self.view.moved(other.offset)
        other._mean = np.zeros(self.n_features)
        return other

    def mean_squared_norm(self) -> float:
        weights = None if self.weights is None else self.weights.recipe
        return self.table.ask(SquaredNorm(self.view, weights)) / self.total_weight

    def over_rows(self, vector: Any, name: str) -> RowVector:
        """Return `vector` if it is a vector over these rows; raise a TypeError otherwise."""
        if not isinstance(vector, RowVector) or vector.table.rows_of is not self.table.rows_of:
            raise TypeError(
                f"{name} must be a vector over these rows, which are in blocks, got "
                f"{type(vector).__name__}. Use volmar.rows.as_beside to convert an array."
            )
        return vector

    def centered_with_moments(self) -> tuple[Self, Moments]:
        """Return `centered()`, and the moments of the rows about their mean.

        This takes one pass: moments about a first guess are shifted to the mean. Moments of
        float32 rows are summed about the mean itself in a second pass, since their products are
        float32.
        """
        guess = self.first_guess()
        about = self.moments(center=guess, second=self.dtype == np.float64)
        if self.table.is_collecting:
            return self, about
        self._mean = about.mean
        centred = self.centered()
        zero = np.zeros(self.n_features)
        if about.second is None:
            return centred, centred.moments(center=zero)
        moved = about.shifted(about.mean)
        return centred, Moments(zero, moved.weight, moved.sum, moved.second)

    def prefetch(self, f: Callable[[], Any]) -> None:
        self.table.prefetch(f)
