"""Random halves of clusters by row number, equal for data in memory and in dask blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar._checks import check_random_state
from volmar.rows import chosen_entries, numbers_of_rows, row_wise, scramble

__all__ = ["random_halves"]

# Maximum cluster size with exact halves. The halves of larger clusters differ by less than 2 %.
EXACT_UP_TO = 10_000


def random_halves(
    codes: Any, sizes: NDArray, random_state: int | np.random.RandomState | None
) -> Any:
    """Return 0 or 1 for each row, which divides each cluster into random halves.

    Each row gets a pseudo-random value between 0 and 1 that depends only on the random seed and on
    the row number. In clusters of up to 10,000 rows, the half with the smaller values is 0. In
    larger clusters, rows with a value of at most 0.5 are 0.

    Parameters
    ----------
    codes : vector of shape (n,)
        Cluster of each row, 0 to k - 1, in memory or in dask blocks.
    sizes : ndarray of shape (k,)
        Number of rows of each cluster.
    random_state : int, RandomState or None
        Random seed of the halves.
    """
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    coins = row_wise(unit_hash, numbers_of_rows(codes), seed)
    borders = np.full(sizes.size, 0.5)
    small = sizes <= EXACT_UP_TO
    if small.any():
        listed = np.sort(chosen_entries(codes + coins, row_wise(np.take, small, codes)))
        # The sorted values list clusters one after the other; take the last of each first half.
        ends = np.cumsum(np.where(small, sizes, 0))
        last = ends - np.where(small, sizes, 0) + (sizes + 1) // 2 - 1
        borders[small] = listed[last[small]] - np.flatnonzero(small)
    return row_wise(second_half, codes, coins, borders)


def unit_hash(numbers: NDArray, seed: int) -> NDArray:
    """Return pseudo-random values in [0, 1) of 32 bits, so that adding a label is exact."""
    mixed = scramble(scramble(numbers) ^ scramble(np.array([seed], dtype=np.uint64)))
    return (mixed >> np.uint64(32)).astype(np.float64) * 2.0**-32


def second_half(codes: NDArray, coins: NDArray, borders: NDArray) -> NDArray:
    """Return 1 for rows whose value is above the border of their cluster, 0 otherwise."""
    return (coins > borders[codes]).astype(np.int64)
