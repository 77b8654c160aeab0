"""Offsets and scales of columns, and rows moved and scaled, a few thousand rows at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.tables.errors import TableError, shown

__all__ = ["Figures", "add_figures", "figures_of", "offsets_and_scales", "scaled_into"]

_ROWS = 4096

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Figures:
    """What is known of columns: counts, ranges, means and sums of squares about the means."""

    count: Array
    low: Array
    high: Array
    mean: Array
    squares: Array


def figures_of(X: Array, *, spread: bool = True) -> Figures:
    """Return the figures of columns without missing values.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The rows.
    spread : bool, default=True
        Whether means and sums of squares are wanted; otherwise they are 0.
    """
    n, d = X.shape
    mean, squares = np.zeros(d), np.zeros(d)
    if n == 0:
        return Figures(np.zeros(d), np.full(d, np.inf), np.full(d, -np.inf), mean, squares)
    with np.errstate(over="ignore", invalid="ignore"):
        if spread:
            mean = X.mean(axis=0)
            for start in range(0, n, _ROWS):
                centred = X[start : start + _ROWS] - mean
                squares += np.einsum("ij,ij->j", centred, centred)
        return Figures(np.full(d, float(n)), X.min(axis=0), X.max(axis=0), mean, squares)


def add_figures(first: Figures, second: Figures) -> Figures:
    """Return the figures of the rows of both, by the update of Chan, Golub and LeVeque."""
    count = first.count + second.count
    part = second.count / np.maximum(count, 1.0)
    step = second.mean - first.mean
    return Figures(
        count,
        np.minimum(first.low, second.low),
        np.maximum(first.high, second.high),
        first.mean + step * part,
        first.squares + second.squares + step * step * first.count * part,
    )


def offsets_and_scales(
    source: str, names: list[str], figures: Figures, scale: str
) -> tuple[Array, Array]:
    """Return what is subtracted from columns and what they are divided by then.

    "standard" subtracts the mean and divides by the standard deviation (of the n rows, not
    n - 1); "minmax" maps the range to [0, 1].
    """
    d = len(names)
    if scale == "none":
        return np.zeros(d), np.ones(d)
    with np.errstate(over="ignore", invalid="ignore"):
        if scale == "standard":
            offsets, scales = figures.mean, np.sqrt(figures.squares / figures.count)
        else:
            offsets, scales = figures.low, figures.high - figures.low
    wrong = np.flatnonzero(~(np.isfinite(offsets) & np.isfinite(scales) & (scales > 1e-150)))
    if wrong.size:
        j = wrong[0]
        raise TableError(
            f"{source}: column {shown(names[j])} runs from {figures.low[j]:.3g} to "
            f"{figures.high[j]:.3g}, too near the limits of float64 to be scaled; change its "
            "unit, or leave it out with --drop"
        )
    return offsets, scales


def scaled_into(out: Any, X: Array, offsets: Array, scales: Array) -> None:
    """Write (X - offsets) / scales; in blocks, so that either memory order is read well."""
    for start in range(0, len(X), _ROWS):
        rows = slice(start, start + _ROWS)
        np.subtract(X[rows], offsets, out=out[rows])
        out[rows] /= scales
