"""The generated table of ``volmar demo``, with the usual defects of real tables."""

from __future__ import annotations

import csv
import io
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["DemoTable", "make_customers"]

# Name and share of each group; its mean age, median basket, mean visits and median income.
GROUPS = (
    ("families", 0.55, 41.0, 78.0, 4.0, 46_000.0),
    ("students", 0.30, 23.0, 14.0, 9.0, 14_000.0),
    ("retired", 0.15, 69.0, 32.0, 13.0, 27_000.0),
)
CONTRACTS = ("prepaid", "monthly", "yearly")
# Share of missing values in the columns income and basket.
MISSING = 0.03


class DemoTable(NamedTuple):
    """A table as CSV text, and the true group of each row."""

    text: str
    groups: NDArray


def make_customers(n_rows: int, seed: int) -> DemoTable:
    """Return a table of customers from three groups of unequal size.

    The table has an id, columns in different units, a category, missing values, and a column that
    is unrelated to the groups (`shoe_size`).
    """
    rng = np.random.default_rng(seed)
    shares = np.array([group[1] for group in GROUPS])
    groups = rng.permutation(np.repeat(np.arange(len(GROUPS)), _sizes(shares, n_rows)))
    age, basket, visits, income = (
        np.array([group[column] for group in GROUPS])[groups] for column in (2, 3, 4, 5)
    )
    # Two thirds of each group have the usual contract of the group, the others a random one.
    contract = np.where(rng.random(n_rows) < 2 / 3, 2 - groups, rng.integers(0, 3, n_rows))
    columns = {
        "customer_id": [f"C{number:05d}" for number in range(1, n_rows + 1)],
        "age": (age + rng.normal(0.0, 4.0, n_rows)).round().astype(int).tolist(),
        "income": (income * rng.lognormal(0.0, 0.2, n_rows)).round(-2).astype(int).tolist(),
        "basket": (basket * rng.lognormal(0.0, 0.2, n_rows)).round(2).tolist(),
        "visits": rng.poisson(visits).tolist(),
        "contract": [CONTRACTS[one] for one in contract],
        "shoe_size": rng.integers(36, 47, n_rows).tolist(),
    }
    for name in ("income", "basket"):
        for row in np.flatnonzero(rng.random(n_rows) < MISSING):
            columns[name][row] = ""
    file = io.StringIO()
    write = csv.writer(file, lineterminator="\n")
    write.writerow(columns)
    write.writerows(zip(*columns.values(), strict=True))
    return DemoTable(file.getvalue(), groups)


def _sizes(shares: NDArray, n_rows: int) -> NDArray:
    """Return numbers of rows in proportion to `shares`, with sum `n_rows`."""
    ends = np.round(np.cumsum(shares) * n_rows).astype(int)
    return np.diff(ends, prepend=0)
