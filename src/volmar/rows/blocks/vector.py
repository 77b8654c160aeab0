"""Lazy vectors over rows in blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from volmar.rows.blocks.recipes import Apply, Recipe
from volmar.rows.blocks.sums import (
    BlockTotals,
    Distinct,
    Extremes,
    FirstBeyond,
    Picked,
    Sum,
)

if TYPE_CHECKING:
    from volmar.rows.blocks.table import BlockTable


class RowVector(NDArrayOperatorsMixin):
    """A lazy array with one entry, or k entries, per row of a table, described by a recipe.

    Arithmetic, comparisons and `numpy.where` create new recipes and compute nothing. Sums and
    other reductions are requested from the table, which passes over the rows unless it has the
    result already. Algorithms that use scores, labels and weights as NumPy arrays, without
    selecting rows, run on these vectors unchanged.
    """

    def __init__(self, table: BlockTable, recipe: Recipe):
        self.table, self.recipe = table, recipe

    # ------------------------------------------------------------------ as an array

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, and number of columns if there are several."""
        return (self.table.n_rows, *self.recipe.tail)

    @property
    def ndim(self) -> int:
        """Number of dimensions: 1, or 2 with several columns."""
        return 1 + len(self.recipe.tail)

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(np.prod(self.shape))

    @property
    def dtype(self) -> np.dtype:
        """Type of the entries."""
        return self.recipe.dtype

    def __len__(self) -> int:
        return self.table.n_rows

    def __repr__(self) -> str:
        return f"RowVector(shape={self.shape}, dtype={self.dtype})"

    def __bool__(self) -> bool:
        raise TypeError("the truth value of a vector over rows is ambiguous. Use any() or all().")

    def __iter__(self) -> Any:
        raise TypeError(_TOO_MANY)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(_TOO_MANY)

    def __getitem__(self, key: Any) -> Any:
        """Return a column, or the entries of the rows with the given numbers as an array."""
        if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], slice):
            if key[0] != slice(None) or self.ndim != 2:
                raise TypeError("only whole columns of a two-dimensional vector: use v[:, j].")
            return self._applied(_column, [self.recipe, int(key[1])])
        index = row_numbers(key, self.table.n_rows)
        if index.size == 0:
            return np.empty(index.shape + self.recipe.tail, dtype=self.dtype)
        order = np.argsort(index.ravel(), kind="stable")
        found = self.table.ask(Picked(index.ravel()[order], values=self.recipe))
        entries = np.empty_like(found)
        entries[order] = found
        return entries.reshape(index.shape + self.recipe.tail)[()]

    def astype(self, dtype: Any, copy: bool = True) -> RowVector:  # noqa: ARG002 -- numpy's
        """Return the vector in another dtype."""
        if np.dtype(dtype) == self.dtype:
            return RowVector(self.table, self.recipe)
        return self._applied(_cast, [self.recipe, np.dtype(dtype).str])

    def copy(self) -> RowVector:
        """Return another vector with the same recipe."""
        return RowVector(self.table, self.recipe)

    def choose(self, choices: Any) -> RowVector:
        """Return the entries of an array at the indices that this vector contains."""
        return self._applied(np.take, [np.asarray(choices), self.recipe])

    # ------------------------------------------------------------------ reductions

    def sum(self, axis: int | None = None, dtype: Any = None) -> Any:  # noqa: ARG002
        """Return the sum of all entries, or of each column if axis=0.

        Integers and booleans are summed in 64 bits, floats in float64. `dtype` is ignored.
        """
        if axis not in (None, 0):
            raise TypeError(f"a vector over rows can only be summed over axis=0, got {axis}.")
        total = self.table.ask(Sum(self.recipe))
        return total.sum() if axis is None and np.ndim(total) else total

    def mean(self, axis: int | None = None, dtype: Any = None) -> Any:
        """Return the mean of all entries, or of each column if axis=0."""
        return self.sum(axis, dtype) / (self.table.n_rows if axis == 0 else self.size)

    def any(self) -> bool:
        """Return whether any entry is not 0."""
        return bool((self != 0).sum() > 0)

    def all(self) -> bool:
        """Return whether no entry is 0."""
        return not (self == 0).any()

    def min(self) -> Any:
        """Return the smallest entry."""
        return self.table.ask(Extremes(self.recipe))[0]

    def max(self) -> Any:
        """Return the largest entry."""
        return self.table.ask(Extremes(self.recipe))[1]

    def distinct(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct entries, sorted, and the number of rows with each."""
        return self.table.ask(Distinct(self.recipe))

    def first_beyond(self, targets: np.ndarray) -> np.ndarray:
        """Return for each target the first row at which the cumulative sum exceeds it.

        Entries must not be negative. If the total does not exceed a target, the last row with a
        positive entry is returned for it.
        """
        targets = np.asarray(targets)
        if self.ndim != 1 or targets.ndim != 1:
            raise TypeError("first_beyond needs a one-dimensional vector and a list of targets.")
        if targets.size == 0:
            return np.empty(0, dtype=np.int64)
        starts, before = self.table.ask(BlockTotals(self.recipe, self.table.rows_of.bounds))
        if not before[-1] > 0:
            raise ValueError(f"the vector must have a positive sum, got a total of {before[-1]}.")
        order = np.argsort(targets, kind="stable")
        found = self.table.ask(FirstBeyond(self.recipe, targets[order], starts, before))
        numbers = np.empty(targets.size, dtype=np.int64)
        numbers[order] = found
        return numbers

    def to_dask(self) -> Any:
        """Return the vector as a dask array in the blocks of the rows."""
        return self.table.rows_of.as_dask(self.recipe)

    # ------------------------------------------------------------------ numpy's protocols

    def _applied(self, function: Any, arguments: Any, options: Any = None) -> RowVector:
        return RowVector(self.table, Apply(function, arguments, options))

    def _recipes(self, arguments: Any) -> list[Any]:
        """Return arguments with recipes in place of vectors; refuse arrays over the rows."""
        found: list[Any] = []
        ndim = max(a.ndim for a in arguments if isinstance(a, RowVector))
        for argument in arguments:
            if isinstance(argument, RowVector):
                if argument.table.rows_of is not self.table.rows_of:
                    raise ValueError("vectors over different rows cannot be combined.")
                found.append(argument.recipe)
                continue
            shape = np.shape(argument)
            if len(shape) >= ndim and shape[-ndim] == self.table.n_rows > 1:
                raise TypeError(
                    "an array in memory with an entry for each row cannot be combined with a "
                    "vector in blocks. Pass a dask array with the same chunks."
                )
            found.append(np.asarray(argument) if shape else argument)
        return found

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc is np.matmul and method == "__call__":
            return self._inner(*inputs)
        if method != "__call__" or "where" in kwargs:
            return NotImplemented
        out = kwargs.pop("out", None)
        options = {name: value for name, value in kwargs.items() if name != "casting"}
        new = self._applied(ufunc, self._recipes(inputs), options)
        if out is None:
            return new
        (target,) = out
        if not isinstance(target, RowVector):
            return NotImplemented
        if not np.can_cast(new.dtype, target.dtype, kwargs.get("casting", "same_kind")):
            raise TypeError(f"{new.dtype} cannot be written into a vector of {target.dtype}.")
        if new.shape != target.shape:
            raise ValueError(f"shape {new.shape} does not fit a vector of shape {target.shape}.")
        target.recipe = new.astype(target.dtype).recipe
        return target

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        del types
        handler = _HANDLERS.get(function)
        if handler is None:
            return NotImplemented
        return handler(*args, **kwargs)

    def _inner(self, one: Any, two: Any) -> Any:
        for vector in (one, two):
            if not isinstance(vector, RowVector) or vector.ndim != 1:
                return NotImplemented
        return (one.astype(np.float64) * two).sum()


_TOO_MANY = (
    "a vector over rows in blocks may not fit in memory and is not converted to an array. Use "
    "to_dask(), and save or reduce the dask array."
)


def row_numbers(key: Any, n_rows: int) -> np.ndarray:
    """Return row numbers, from 0, as an array, given a slice or an array of integers."""
    if isinstance(key, slice):
        return np.arange(*key.indices(n_rows))
    if isinstance(key, RowVector):
        raise TypeError("rows cannot be selected by a vector over rows. Give row numbers.")
    index = np.asarray(key)
    if index.size == 0:
        return index.astype(np.int64)
    if index.dtype.kind not in "iu":
        raise TypeError(
            f"rows are selected by their numbers, got an array of dtype {index.dtype}."
        )
    if index.min() < -n_rows or index.max() >= n_rows:
        raise IndexError(
            f"row numbers must be at least {-n_rows} and below {n_rows}, the number of rows."
        )
    return np.where(index < 0, index + n_rows, index).astype(np.int64)


def _cast(values: Any, dtype: str) -> Any:
    return values.astype(dtype)


def _column(values: Any, j: int) -> Any:
    return values[:, j]


def _where(condition: Any, one: Any, two: Any) -> RowVector:
    vector = next(v for v in (condition, one, two) if isinstance(v, RowVector))
    return vector._applied(np.where, vector._recipes([condition, one, two]))


def _array_equal(one: Any, two: Any) -> bool:
    return np.shape(one) == np.shape(two) and not (one != two).any()


def _count_nonzero(values: RowVector) -> int:
    return int((values != 0).sum())


def _argmax(values: RowVector, axis: int | None = None) -> RowVector:
    if axis != 1 or values.ndim != 2:
        raise TypeError("argmax is only available over the columns of each row: use axis=1.")
    return values._applied(np.argmax, [values.recipe], {"axis": 1})


def _take(values: RowVector, indices: Any, axis: int | None = None) -> RowVector:
    if values.ndim != 2 or axis not in (1, -1):
        raise TypeError("only whole columns of a two-dimensional vector can be taken: use axis=1.")
    return values._applied(np.take, [values.recipe, np.asarray(indices)], {"axis": 1})


_HANDLERS: dict[Any, Any] = {
    np.where: _where,
    np.array_equal: _array_equal,
    np.count_nonzero: _count_nonzero,
    np.argmax: _argmax,
    np.take: _take,
    np.mean: lambda values, *args, **options: values.mean(*args, **options),
    np.sum: lambda values, *args, **options: values.sum(*args, **options),
    np.any: lambda values: values.any(),
    np.all: lambda values: values.all(),
    np.max: lambda values: values.max(),
    np.min: lambda values: values.min(),
    np.ptp: lambda values: values.max() - values.min(),
    np.shape: lambda values: values.shape,
    np.ndim: lambda values: values.ndim,
}
