"""Artificial tables with realistic columns: units, ids, dates, categories, missing values, groups.

`make_table(kind, n_rows, seed)` returns a table and the planted groups of its rows. Every kind has
a twin without groups, named ``"<kind>, no groups"``: the same columns from one population, whose
scores have the mean and the covariance of the mixture but a single mode (see `Rows`).

Seeds of the committed table are those of `BENCHMARK_SEEDS`. Development uses seeds of at least
`FIRST_SEED_OF_DEVELOPMENT`, so nothing is tuned to the draws of the table.
"""

from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

import numpy as np

from benchmarks import table_kinds
from benchmarks.table_rows import Rows

__all__ = ["BENCHMARK_SEEDS", "FIRST_SEED_OF_DEVELOPMENT", "KINDS", "Kind", "make_table"]

BENCHMARK_SEEDS = range(20)
FIRST_SEED_OF_DEVELOPMENT = 1000
NO_GROUPS = ", no groups"


class Kind(NamedTuple):
    """A kind of table.

    Attributes
    ----------
    name : str
        Name of the kind; that of a twin without groups ends in ", no groups".
    shares : tuple of float
        Share of the rows in each group of the kind.
    columns : callable
        Function of `Rows` that returns a DataFrame.
    id_columns : tuple of str
        Columns that identify a row. Rivals get the table without them.
    max_rows : int or None
        Maximum number of rows of such a table. If None, there is no limit.
    grouped : bool
        Whether there are groups; False for a twin.
    """

    name: str
    shares: tuple[float, ...]
    columns: Callable
    id_columns: tuple[str, ...] = ()
    max_rows: int | None = None
    grouped: bool = True

    @property
    def n_groups(self):
        """Return the number of planted groups, 1 for a twin without groups."""
        return len(self.shares) if self.grouped else 1

    def n_rows(self, wanted):
        """Return the number of rows of a table for which `wanted` rows are requested."""
        return wanted if self.max_rows is None else min(wanted, self.max_rows)


_GROUPED = (
    Kind("customers", (0.7, 0.2, 0.1), table_kinds.customers, ("customer_id", "zip_code")),
    Kind("sensors", (0.4, 0.3, 0.2, 0.1), table_kinds.sensors),
    Kind("survey", (0.5, 0.3, 0.2), table_kinds.survey, ("respondent",)),
    Kind("sales", (0.4, 0.3, 0.2, 0.1), table_kinds.sales, ("order_id",)),
    Kind("clinical", (0.65, 0.35), table_kinds.clinical, ("patient_id",)),
    Kind("web counts", (0.55, 0.3, 0.15), table_kinds.web_counts, ("session",)),
    Kind("mostly categorical", (0.5, 0.3, 0.2), table_kinds.mostly_categorical, ("case_no",)),
    Kind("text counts", (0.4, 0.35, 0.25), table_kinds.text_counts, ("document",)),
    Kind("wide", (0.4, 0.35, 0.25), table_kinds.wide, ("sample",), max_rows=150),
    Kind("outliers", (0.3, 0.25, 0.2, 0.15, 0.1), table_kinds.outliers, ("part_no",)),
    Kind("imbalanced 70/20/10", (0.7, 0.2, 0.1), table_kinds.households, ("meter",)),
    Kind("imbalanced 90/7/3", (0.9, 0.07, 0.03), table_kinds.machines),
    Kind("blobs and yes/no", (0.25,) * 4, table_kinds.blobs_and_yes_no),
)
KINDS = {
    kind.name: kind
    for one in _GROUPED
    for kind in (one, one._replace(name=one.name + NO_GROUPS, grouped=False))
}


def make_table(kind, n_rows, seed):
    """Return a table and the group of each row (None if there are no groups).

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    n_rows : int
        Number of rows. More than `max_rows` of the kind raise an error.
    seed : int
        Seed of the draw.

    Returns
    -------
    frame : pandas.DataFrame
        The table.
    truth : ndarray of shape (n_rows,) or None
        Group of each row, 0 for those of the first share.
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r} is not one of: {', '.join(KINDS)}.")
    one = KINDS[kind]
    if one.n_rows(n_rows) != n_rows:
        raise ValueError(f"n_rows={n_rows}: {kind!r} has {one.max_rows} rows at most.")
    rng = np.random.default_rng(crc32(repr((kind, n_rows, seed)).encode()))
    rows = Rows(rng, n_rows, one.shares, grouped=one.grouped)
    return one.columns(rows), rows.groups
