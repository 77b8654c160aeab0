"""Prepared rows of a file, or of a sample of a folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from volmar.cli.console import as_options, counted

if TYPE_CHECKING:
    from volmar.tables import Preparation
    from volmar.tables.prepare import PreparedTable

# Number of rows sampled from a folder. `cluster` detects the kinds of columns and tests a given
# number of clusters on them, and its report shows them; `score` and `compare` use them alone.
SAMPLE = 20_000


@dataclass(frozen=True)
class TableRows:
    """Prepared rows, the name of the table, its true classes (or None) and number of rows.

    For a sample, `rows.kept` is the mask of the sampled rows among all rows. Without an id
    column, `rows.ids` are their row numbers.
    """

    name: str
    rows: PreparedTable
    truth: Any
    n_rows: int


def name_columns(estimator: Any, data: Any) -> None:
    """Split --columns and --drop at commas, but not inside the names of columns of the table."""
    known = {str(name) for name in getattr(data, "columns", ())}
    for option in ("columns", "drop"):
        names = []
        for text in getattr(estimator, option) or ():
            pieces = text.split(",")
            while pieces:
                starts = {n: ",".join(pieces[:n]).strip() for n in range(len(pieces), 0, -1)}
                n = next((n for n, name in starts.items() if name in known), 1)
                names += [starts[n]] if starts[n] else []
                pieces = pieces[n:]
        setattr(estimator, option, names or None)


def read_rows(source: str, preparation: Preparation, *, seed: int) -> TableRows:
    """Read a table, or sample rows of a folder, and fit a preparation to them."""
    from volmar.tables import LoadedTable, read_table
    from volmar.tables.blocks import sample_rows
    from volmar.tables.folder import is_folder_of_tables, read_folder

    if not is_folder_of_tables(source):
        with counted("reading"):
            table = read_table(source)
            name_columns(preparation, table.data)
            rows = _in_options(preparation.fit_prepare(table))
        return TableRows(table.name, rows, table.truth, len(rows.kept))
    name = Path(source).expanduser().resolve().name
    with counted("reading") as tell:
        frame = read_folder(source)
        name_columns(preparation, frame)
        drawn = sample_rows(frame, SAMPLE, random_state=seed, progress=tell)
        rows = _in_options(preparation.fit_prepare(LoadedTable(name, drawn.frame)))
    places = drawn.places[rows.kept]
    kept = np.zeros(drawn.n_rows, dtype=bool)
    kept[places] = True
    notes = list(rows.notes)
    if len(drawn.places) < drawn.n_rows:
        notes.insert(
            0, f"{len(drawn.places):,} of {drawn.n_rows:,} rows were drawn at random (--seed)"
        )
    ids = rows.ids if preparation.id_column is not None else places
    return TableRows(name, replace(rows, kept=kept, ids=ids, notes=notes), None, drawn.n_rows)


def _in_options(rows: PreparedTable) -> PreparedTable:
    notes, warnings = ([as_options(text) for text in some] for some in (rows.notes, rows.warnings))
    return replace(rows, notes=notes, warnings=warnings)
