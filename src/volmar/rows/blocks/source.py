"""The row source of a table in blocks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from volmar.rows._validation import as_block, as_vector
from volmar.rows.blocks.recipes import Apply, Scores
from volmar.rows.blocks.sums import Binned, Combination, MomentSum, SquaredNorm
from volmar.rows.blocks.table import BlockTable
from volmar.rows.blocks.vector import RowVector
from volmar.rows.moments import Moments
from volmar.rows.protocol import BinSums, RowSource

__all__ = ["BlockRows"]

# Rows whose mean is near enough that of all rows to sum about it; fewer, where they are wide.
PIVOT_ROWS, LEAST_PIVOT_ROWS, PIVOT_BYTES = 4096, 256, 32 * 2**20


class BlockRows(RowSource):
    """The rows of a table in blocks; vectors over the rows are recipes and not arrays.

    Parameters
    ----------
    table : BlockTable
        The rows.
    sample_weight : RowVector, optional
        Their weights, checked already.
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
        """The sum of the weights."""
        return float(self.n_rows if self.weights is None else self.weights.sum())

    def scores(self, w: np.ndarray) -> Any:
        """Return the recipe of (X - 1 offset') w."""
        w = as_block(w, self.n_features, "w", "feature", self.dtype)
        return RowVector(self.table, Scores(self.view, w, self.dtype))

    def combine(self, v: Any) -> np.ndarray:
        """Return (X - 1 offset')' v by a pass."""
        coefficients = self._over_rows(v, "v").astype(self.dtype).recipe
        return self.table.ask(Combination(self.view, self.n_features, coefficients))

    def mean(self) -> np.ndarray:
        """Return the weighted mean of the rows as seen."""
        if self._mean is not None:
            return self._mean.copy()
        mean = self.moments(center=self.first_guess(), second=False).mean
        if not self.table.is_collecting:
            self._mean = mean
        return mean.copy()

    def first_guess(self) -> np.ndarray:
        """Return the mean of the first rows: sums about it lose few digits."""
        fitting = PIVOT_BYTES // (self.n_features * self.dtype.itemsize)
        first = self.table.first_mean(min(PIVOT_ROWS, max(LEAST_PIVOT_ROWS, fitting)))
        return first if self.offset is None else first - self.offset

    def moments(
        self, mask: Any = None, *, center: np.ndarray | None = None, second: bool = True
    ) -> Moments:
        """Return the weighted moments of the rows as seen, about `center`."""
        if center is None:
            center = self.mean()
        center = as_vector(center, self.n_features, "center", "feature")
        if mask is not None and self._over_rows(mask, "mask").dtype != bool:
            raise ValueError(
                f"mask must be boolean, got dtype {mask.dtype}. Compare labels with a value, e.g. "
                "labels == 1, to make one."
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
        """Return the same source with its offset at its weighted mean."""
        mean = self.mean()
        other = copy.copy(self)
        other.offset = mean if self.offset is None else self.offset + mean
        other.view = self.view.moved(other.offset)
        other._mean = np.zeros(self.n_features)
        return other

    def centered_with_moments(self) -> tuple[Self, Moments]:
        """Return `centered()`, and the moments of the rows about their mean: one pass.

        The moments about a first guess of the mean are moved to it. Of float32 rows they are
        summed about the mean itself, in another pass, since their products are float32.
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

    def binned(
        self, w: np.ndarray, low: float, high: float, n_bins: int, labels: Any = None
    ) -> BinSums:
        """Return sums over the rows of each bin of their scores: one pass."""
        wanted = Binned(
            self.view,
            as_vector(w, self.n_features, "w", "feature", self.dtype),
            (float(low), float(high), int(n_bins)),
            labels=None if labels is None else self._over_rows(labels, "labels").recipe,
            weights=None if self.weights is None else self.weights.recipe,
        )
        return self.table.ask(wanted)

    def mean_squared_norm(self) -> float:
        """Return the weighted mean of ``|x_i - offset|²``."""
        weights = None if self.weights is None else self.weights.recipe
        return self.table.ask(SquaredNorm(self.view, weights)) / self.total_weight

    def _over_rows(self, vector: Any, name: str) -> RowVector:
        if not isinstance(vector, RowVector) or vector.table.rows_of is not self.table.rows_of:
            raise TypeError(
                f"{name} must be a vector over these rows, which lie in blocks, got "
                f"{type(vector).__name__}. Use volmar.rows.as_beside to make one of an array."
            )
        return vector

    def full(self, value: Any, dtype: Any) -> Any:
        """Return the same value for every row."""
        return self.table.full(value, dtype)

    def prefetch(self, f: Callable[[], Any]) -> None:
        """Let one pass bring all that `f` asks for."""
        self.table.prefetch(f)

    def signature(self, mask: Any) -> Any:
        """Return a number that tells sets of rows apart: the sum of their scrambled numbers."""
        numbers = self.table.row_numbers()
        scrambled = RowVector(self.table, Apply(scramble, [numbers.recipe]))
        return int((scrambled * mask.astype(np.uint64)).sum()), int(mask.sum())


def scramble(numbers: np.ndarray) -> np.ndarray:
    """Return 64 well mixed bits for each number (the finaliser of SplitMix64)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
