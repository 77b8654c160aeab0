"""Columns of a table with known labels, or with groups of rows that belong together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar._checks import shown
from volmar._input import known_values
from volmar.tables import TableError
from volmar.tables.columns import as_columns

__all__ = ["KnownColumns", "known_columns"]


class KnownColumns(NamedTuple):
    """Class of each row (-1 if unknown), names of the classes, and group of each row."""

    seeds: NDArray | None = None
    names: tuple[str, ...] = ()
    groups: NDArray | None = None

    def of_rows(self, kept: NDArray | None, column: str | None) -> dict[str, NDArray]:
        """Return the arguments of `fit` for the kept rows, given the name of the seeds column.

        An error is raised if no row of a class, or no row without a label, is kept. The names
        would otherwise belong to other clusters.
        """
        if kept is not None and self.seeds is not None:
            numbers = np.unique(self.seeds)
            gone = numbers[~np.isin(numbers, self.seeds[kept])]
            if gone.size:
                lost = " or ".join(shown(self.names[number]) for number in gone if number >= 0)
                raise TableError(
                    f"Column {shown(column)}, given in seeds=: all rows "
                    f"{f'with the label {lost}' if lost else 'without a label'} have missing "
                    "values and are dropped. Use missing='impute', or label other rows."
                )
        given = {"y": self.seeds, "must_link": self.groups}
        return {
            name: value if kept is None else value[kept]
            for name, value in given.items()
            if value is not None
        }


def known_columns(table: Any, seeds: str | None, must_link: str | None) -> KnownColumns:
    """Read the columns of classes and groups. `known_values` decides which fields are unknown."""
    numbers = groups = None
    names: tuple[str, ...] = ()
    if seeds is not None:
        numbers, names = _codes(table, seeds, "seeds=")
        if not names:
            raise TableError(
                f"Column {shown(seeds)}, given in seeds=, has no labels: all rows are empty or "
                "-1. Label some rows, or leave out seeds."
            )
        if (numbers >= 0).all():
            raise TableError(
                f"Column {shown(seeds)}, given in seeds=, has a label in every row, so no rows "
                "are left to cluster. Leave the labels of unknown rows empty."
            )
    if must_link is not None:
        groups = _codes(table, must_link, "must_link=")[0]
    return KnownColumns(numbers, names, groups)


def _codes(table: Any, column: str, argument: str) -> tuple[NDArray, tuple[str, ...]]:
    """Return the number of each row's value, -1 if unknown, and the known values as text."""
    columns = as_columns(table)
    (place,) = columns.find([column], argument)
    codes, words = columns.categories(place)
    try:
        known = known_values(columns.values(place), f"Column {shown(column)}", codes.size)[1]
    except ValueError as error:
        raise TableError(f"{error}") from error
    known &= codes >= 0
    used, numbers = np.unique(codes[known], return_inverse=True)
    found = np.full(codes.size, -1)
    found[known] = numbers
    return found, tuple(words[code] for code in used)
