"""Columns of a table with known labels, or with groups of rows that belong together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar._checks import shown
from volmar.tables import TableError
from volmar.tables.columns import as_columns

__all__ = ["KnownColumns", "known_columns"]

# Values that stand for "unknown", besides empty fields.
UNKNOWN = ("-1", "-1.0")


class KnownColumns(NamedTuple):
    """Class of each row (-1 if unknown), names of the classes, and group of each row."""

    seeds: NDArray | None = None
    names: tuple[str, ...] = ()
    groups: NDArray | None = None

    def of_rows(self, kept: NDArray | None) -> dict[str, NDArray]:
        """Return the arguments of `fit` for the kept rows."""
        given = {"y": self.seeds, "must_link": self.groups}
        return {
            name: value if kept is None else value[kept]
            for name, value in given.items()
            if value is not None
        }


def known_columns(table: Any, seeds: str | None, must_link: str | None) -> KnownColumns:
    """Read the columns of classes and groups. Empty fields and -1 are unknown."""
    if seeds is None and must_link is None:
        return KnownColumns()
    columns = as_columns(table)
    names: tuple[str, ...] = ()
    numbers = groups = None
    if seeds is not None:
        (place,) = columns.find([seeds], "seeds=")
        codes, words = columns.categories(place)
        known = [word for word in words if word not in UNKNOWN]
        codes = np.array([*(known.index(word) if word in known else -1 for word in words), -1])[
            codes
        ]
        if not known:
            raise TableError(
                f"Column {shown(seeds)}, given in seeds=, has no labels: all rows are empty or "
                "-1. Label some rows, or leave out seeds."
            )
        if (codes >= 0).all():
            raise TableError(
                f"Column {shown(seeds)}, given in seeds=, has a label in every row, so no rows "
                "are left to cluster. Leave the labels of unknown rows empty."
            )
        numbers, names = codes, tuple(known)
    if must_link is not None:
        (place,) = columns.find([must_link], "must_link=")
        codes, words = columns.categories(place)
        is_none = np.array([*(word in UNKNOWN for word in words), True])
        groups = np.where(is_none[codes], -1, codes)
    return KnownColumns(numbers, names, groups)
