"""Checks of `must_link` and `cannot_link`, the known links between rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from volmar._input import known_values

__all__ = ["check_cannot_link", "check_contradictions", "check_must_link"]


def check_must_link(must_link: Any, n_samples: int) -> NDArray | None:
    """Return the number of each row's unit, from 0, or None if no rows are linked.

    Rows with the same id are linked. `volmar._input.known_values` decides which rows have none.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.guidance.links import check_must_link
    >>> check_must_link([5, -1, 5, -1], 4)
    array([0, 1, 0, 2])
    """
    if must_link is None:
        return None
    ids, is_grouped = known_values(must_link, "must_link", n_samples)
    numbers: dict[Any, int] = {}
    units = np.empty(n_samples, dtype=np.int64)
    n_units = 0
    for row, value in enumerate(ids.tolist()):
        unit = numbers.setdefault(value, n_units) if is_grouped[row] else n_units
        n_units += unit == n_units
        units[row] = unit
    return units if n_units < n_samples else None


def check_cannot_link(cannot_link: Any, n_samples: int) -> NDArray:
    """Return the distinct pairs of rows, shape (q, 2)."""
    if cannot_link is None or np.size(cannot_link) == 0:
        return np.empty((0, 2), dtype=np.int64)
    pairs = check_array(cannot_link, dtype=None, input_name="cannot_link")
    if pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ValueError(
            f"cannot_link must hold pairs of row numbers, integers of shape (n_pairs, 2), got "
            f"shape {pairs.shape} and dtype {pairs.dtype}."
        )
    if pairs.min() < 0 or pairs.max() >= n_samples:
        wrong = int(pairs.min()) if pairs.min() < 0 else int(pairs.max())
        raise ValueError(
            f"cannot_link has row {wrong}, but X has rows 0 to {n_samples - 1}. Use row numbers "
            "in this range."
        )
    same = pairs[:, 0] == pairs[:, 1]
    if same.any():
        raise ValueError(
            f"cannot_link has a pair of row {pairs[same][0, 0]} with itself. Leave the pair out."
        )
    return np.unique(np.sort(pairs.astype(np.int64), axis=1), axis=0)


def check_contradictions(
    seeds: NDArray, names: NDArray, units: NDArray | None, apart: NDArray
) -> None:
    """Raise an error if seeds and links contradict each other, naming the rows."""
    known = np.flatnonzero(seeds >= 0)
    unit_of = np.arange(seeds.size) if units is None else units
    if units is not None:
        first = np.full(int(units.max()) + 1, -1)
        first[units[known][::-1]] = known[::-1]  # the first known row of each unit
        others = first[units[known]]
        wrong = known[seeds[others] != seeds[known]]
        if wrong.size:
            row, other = int(wrong[0]), int(first[units[wrong[0]]])
            one, two = names[seeds[[other, row]]].tolist()
            raise ValueError(
                f"must_link puts rows {other} and {row} in one cluster, but y gives them the "
                f"labels {one!r} and {two!r}. Change must_link or y."
            )
    if not apart.size:
        return
    same = unit_of[apart[:, 0]] == unit_of[apart[:, 1]]
    if same.any():
        row, other = apart[same][0]
        raise ValueError(
            f"must_link puts rows {row} and {other} in one cluster, but cannot_link in different "
            "clusters. Leave one of the links out."
        )
    of_units = np.full(int(unit_of.max()) + 1, -1)
    of_units[unit_of[known]] = seeds[known]
    left, right = of_units[unit_of[apart]].T
    equal = (left >= 0) & (left == right)
    if equal.any():
        row, other = apart[equal][0]
        raise ValueError(
            f"cannot_link puts rows {row} and {other} in different clusters, but y (with "
            f"must_link) gives both the label {names[left[equal][0]].item()!r}. Leave the pair "
            "out, or change y."
        )
