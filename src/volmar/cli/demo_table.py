"""The table of ``volmar demo``: made, and like those that people have."""

from __future__ import annotations

import csv
import io
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["DemoTable", "make_customers"]

# Share, and then means (age, basket, visits a month) and median income of each group.
GROUPS = (
    ("families", 0.55, 41.0, 78.0, 4.0, 46_000.0),
    ("students", 0.30, 23.0, 14.0, 9.0, 14_000.0),
    ("retired", 0.15, 69.0, 32.0, 13.0, 27_000.0),
)
CONTRACTS = ("prepaid", "monthly", "yearly")
# Share of the incomes and baskets that are missing.
MISSING = 0.03


class DemoTable(NamedTuple):
    """A table as CSV text, and the group that each of its rows was drawn from."""

    text: str
    groups: NDArray


def make_customers(n_rows: int, seed: int) -> DemoTable:
    """Return a table of customers from three groups of unequal size.

    It has an id, columns of different units, a category, missing values and a column without
    any relation to the groups (`shoe_size`).
    """
    rng = np.random.default_rng(seed)
    shares = np.array([group[1] for group in GROUPS])
    groups = rng.permutation(np.repeat(np.arange(len(GROUPS)), _sizes(shares, n_rows)))
    age, basket, visits, income = (
        np.array([group[column] for group in GROUPS])[groups] for column in (2, 3, 4, 5)
    )
    # Each group has its usual contract, which two thirds of its customers take.
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
    """Return whole numbers of rows in proportion to shares."""
    ends = np.round(np.cumsum(shares) * n_rows).astype(int)
    return np.diff(ends, prepend=0)
