"""Layout of an alluvial diagram that compares several numbers of clusters."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.diagnostics.compare_numbers import NumberComparison

__all__ = ["Block", "Flow", "alluvium"]

# Space between two blocks, as a fraction of the height.
GAP = 0.02


class Block(NamedTuple):
    """A cluster in the diagram.

    `level` is the index of its number of clusters. `top` and `bottom` are positions from 0 to 1.
    `colour` is the reference cluster with the largest number of its rows.
    """

    level: int
    cluster: int
    top: float
    bottom: float
    colour: int
    n_rows: int


class Flow(NamedTuple):
    """Rows shared by two clusters of successive levels.

    `left` and `right` are the top and bottom of the flow at either end.
    """

    level: int
    left: tuple[float, float]
    right: tuple[float, float]
    colour: int
    n_rows: int


def alluvium(
    comparison: NumberComparison, reference: NDArray | None = None
) -> tuple[list[Block], list[Flow]]:
    """Return blocks and flows; the blocks of a level are ordered so that few flows cross.

    `reference` (n_rows,) holds labels from 0 on of the rows of the comparison, which determine the
    colours. If None, the labels of the largest number of clusters for which all clusters are
    separated, or else those of the first number.
    """
    found = comparison.found
    if reference is None:
        reference = next(
            (one.labels for one in reversed(found) if one.is_supported), found[0].labels
        )
    orders = _orders(comparison)
    n = comparison.rows.size
    height = 1.0 - GAP * (max(one.sizes.size for one in found) - 1)
    blocks: list[Block] = []
    tops: list[NDArray] = []
    for level, (one, order) in enumerate(zip(found, orders, strict=True)):
        colours = _majority(one.labels, reference, one.sizes.size)
        top = (1.0 - height - GAP * (order.size - 1)) / 2
        starts = np.zeros(order.size)
        for cluster in order:
            share = height * one.sizes[cluster] / n
            starts[cluster] = top
            of, n_rows = int(colours[cluster]), int(one.sizes[cluster])
            blocks.append(Block(level, int(cluster), float(top), float(top + share), of, n_rows))
            top += share + GAP
        tops.append(starts)
    flows: list[Flow] = []
    for level in range(len(found) - 1):
        table = comparison.flows(level)
        colours = _majority(found[level + 1].labels, reference, table.shape[1])
        leave, arrive = tops[level].copy(), tops[level + 1].copy()
        for a, b in product(orders[level], orders[level + 1]):
            if not table[a, b]:
                continue
            share = height * table[a, b] / n
            left = float(leave[a]), float(leave[a] + share)
            right = float(arrive[b]), float(arrive[b] + share)
            flows.append(Flow(level, left, right, int(colours[b]), int(table[a, b])))
            leave[a] += share
            arrive[b] += share
    return blocks, flows


def _orders(comparison: NumberComparison) -> list[NDArray]:
    """Order the first level by size, and others by the mean position of their rows before."""
    first = comparison.found[0]
    orders = [np.argsort(-first.sizes, kind="stable")]
    for i in range(len(comparison.found) - 1):
        table = comparison.flows(i)
        place = np.argsort(orders[-1])
        mean = place @ table / table.sum(axis=0)
        orders.append(np.lexsort((-table.sum(axis=0), mean)))
    return orders


def _majority(labels: NDArray, reference: NDArray, k: int) -> NDArray:
    m = int(reference.max()) + 1
    return np.bincount(labels * m + reference, minlength=k * m).reshape(k, m).argmax(axis=1)
