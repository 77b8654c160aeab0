"""Which columns of a table are used, and where they are in a new one."""

from __future__ import annotations

from collections.abc import Iterable

from volmar.tables.columns import Columns
from volmar.tables.errors import TableError, shown
from volmar.tables.notes import quoted_names

__all__ = ["chosen_places", "fitted_places"]


def chosen_places(
    table: Columns,
    columns: Iterable[str] | None,
    drop: Iterable[str] | None,
    id_column: str | None,
) -> list[int]:
    """Return the places of the columns that these parameters of `Preparation` leave."""
    places = list(range(len(table.names)))
    if columns is not None:
        places = list(dict.fromkeys(table.find(_names(columns), "columns=")))
    out = set(table.find(_names(drop), "drop="))
    if id_column is not None:
        (j,) = table.find([id_column], "id_column=")
        if columns is not None and j in places:
            raise TableError(
                f"column {shown(id_column)} is in columns= and in id_column=; an id is not "
                "compared, so take it out of one of them"
            )
        out.add(j)
    places = [j for j in places if j not in out]
    if not places:
        raise TableError(
            f"{table.source} has no column left to compare after columns=, drop= and id_column=; "
            f"it has {quoted_names(table.names, 8)}"
        )
    return places


def fitted_places(table: Columns, wanted: list[str], names_in: list[str]) -> list[int]:
    """Return where columns of the fitted table are in a new one; by place, without names."""
    by_place = not table.named and len(table.names) == len(names_in)
    place = {name: j for j, name in enumerate(names_in if by_place else table.names)}
    if absent := [name for name in wanted if name not in place]:
        raise TableError(
            f"{table.source} lacks {len(absent)} of the {len(wanted)} columns that the model "
            f"was fitted on: {quoted_names(absent)}; give a table with these columns"
        )
    return [place[name] for name in wanted]


def _names(names: Iterable[str] | None) -> list[str]:
    if names is None:
        return []
    # A single name is meant as one, not as its letters.
    return [names] if isinstance(names, str) else list(names)
