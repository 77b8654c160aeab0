"""Random halves of clusters by the numbers of their rows: the same in memory and in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar._checks import check_random_state
from volmar.rows import chosen_entries, numbers_of_rows, row_wise, scramble

__all__ = ["random_halves"]

# Rows up to which the halves of a cluster are equal; of more they differ by less than 2 %.
EXACT_UP_TO = 10_000


def random_halves(
    codes: Any, sizes: NDArray, random_state: int | np.random.RandomState | None
) -> Any:
    """Return 0 or 1 for each row: a random half of each cluster, whatever the clusters' names.

    Rows get a number between 0 and 1 that depends on the seed and on their number alone. Of a
    cluster of up to 10,000 rows the smaller half of these is 0, of a larger one all below 0.5.

    Parameters
    ----------
    codes : vector over the rows
        Clusters, 0 to k - 1.
    sizes : ndarray of shape (k,)
        Number of rows of each.
    random_state : int, RandomState or None
        Gives the seed.
    """
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    coins = row_wise(unit_hash, numbers_of_rows(codes), seed)
    borders = np.full(sizes.size, 0.5)
    small = sizes <= EXACT_UP_TO
    if small.any():
        listed = np.sort(chosen_entries(codes + coins, row_wise(np.take, small, codes)))
        # The last of the first half: rows of a cluster are together, in the order of coins.
        ends = np.cumsum(np.where(small, sizes, 0))
        last = ends - np.where(small, sizes, 0) + (sizes + 1) // 2 - 1
        borders[small] = listed[last[small]] - np.flatnonzero(small)
    return row_wise(second_half, codes, coins, borders)


def unit_hash(numbers: NDArray, seed: int) -> NDArray:
    """Return numbers in [0, 1) that look random: 32 bits, exact when a label is added."""
    mixed = scramble(scramble(numbers) ^ scramble(np.array([seed], dtype=np.uint64)))
    return (mixed >> np.uint64(32)).astype(np.float64) * 2.0**-32


def second_half(codes: NDArray, coins: NDArray, borders: NDArray) -> NDArray:
    """Return 1 where the coin of a row is above the border of its cluster, 0 elsewhere."""
    return (coins > borders[codes]).astype(np.int64)
