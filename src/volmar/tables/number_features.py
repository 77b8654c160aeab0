"""Turn numeric columns into features: shorten tails, fill in missing values, and scale."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.tables.errors import TableError, quoted_names, shown
from volmar.tables.fills import Filled, Fills, learn_fills
from volmar.tables.tails import Tails, find_tails

__all__ = ["ColumnMoments", "NumberFeatures", "column_moments", "learn_features"]

_ROWS = 4096  # rows scaled at once

Array = NDArray[np.float64]


class ColumnMoments(NamedTuple):
    """Number of rows, and the range, mean and sum of squared deviations of each column."""

    n_rows: int
    low: Array
    high: Array
    mean: Array
    squares: Array

    def merged(self, other: ColumnMoments) -> ColumnMoments:
        """Return the moments of the rows of both, by the update of Chan, Golub and LeVeque."""
        n_rows = self.n_rows + other.n_rows
        part = other.n_rows / max(n_rows, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            step = other.mean - self.mean
            return ColumnMoments(
                n_rows,
                np.minimum(self.low, other.low),
                np.maximum(self.high, other.high),
                self.mean + step * part,
                self.squares + other.squares + step * step * self.n_rows * part,
            )

    def offsets_and_scales(self, source: str, names: list[str], scale: str) -> tuple[Array, Array]:
        """Return the offset and the scale of each column.

        "minmax" maps the range to [0, 1]. "auto" and "standard" subtract the mean and divide by
        the standard deviation (with n, not n - 1). "none" gives offsets 0 and scales 1.
        """
        d = len(names)
        if scale == "none":
            return np.zeros(d), np.ones(d)
        with np.errstate(over="ignore", invalid="ignore"):
            if scale == "minmax":
                offsets, scales = self.low, self.high - self.low
            else:
                offsets, scales = self.mean, np.sqrt(self.squares / self.n_rows)
        wrong = np.flatnonzero(~(np.isfinite(offsets) & np.isfinite(scales) & (scales > 1e-150)))
        if wrong.size:
            j = wrong[0]
            raise TableError(
                f"{source}: column {shown(names[j])} ranges from {self.low[j]:.3g} to "
                f"{self.high[j]:.3g}, too near the limits of float64 to be scaled. Change its "
                "unit, or name it in drop=."
            )
        return offsets, scales


def column_moments(X: Array) -> ColumnMoments:
    """Return the moments of columns. They must not have missing values."""
    n, d = X.shape
    squares = np.zeros(d)
    if n == 0:
        return ColumnMoments(0, np.full(d, np.inf), np.full(d, -np.inf), np.zeros(d), squares)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = X.mean(axis=0)
        for start in range(0, n, _ROWS):
            centred = X[start : start + _ROWS] - mean
            squares += np.einsum("ij,ij->j", centred, centred)
    return ColumnMoments(n, X.min(axis=0), X.max(axis=0), mean, squares)


@dataclass(frozen=True)
class NumberFeatures:
    """Transform numeric columns: shorten tails, fill in, and compute (x - offset) / scale."""

    tails: Tails | None
    fills: Fills | None  # None if missing values are dropped or raise an error
    offsets: Array
    scales: Array

    def complete(
        self, X: Array, notes: list[str]
    ) -> tuple[Array, Filled | None, NDArray[np.bool_]]:
        """Return columns with shortened tails, filled-in values, and the mask of outlying rows."""
        outlying = np.zeros(len(X), dtype=bool)
        if self.tails is not None:
            X, outlying = _shortened(self.tails, X, notes, fills=self.fills is not None)
        X, filled = (X, None) if self.fills is None else self.fills.fill(X)
        return X, filled, outlying

    def is_log(self, k: int) -> bool:
        """Return whether the log of column k is taken."""
        return self.tails is not None and bool(np.isfinite(self.tails.shifts[k]))

    @property
    def has_steps(self) -> bool:
        """Whether the log of counts is taken, so that `dither_into` adds noise to them."""
        return self.tails is not None and bool(self.tails.steps.any())

    def scale_into(self, out: Any, X: Array) -> None:
        """Write (X - offsets) / scales to `out`, in blocks for speed with either memory order."""
        for start in range(0, len(X), _ROWS):
            rows = slice(start, start + _ROWS)
            np.subtract(X[rows], self.offsets, out=out[rows])
            out[rows] /= self.scales

    def dither_into(self, out: Any, rng: np.random.Generator, filled: Filled | None) -> None:
        """Add noise to the logs of counts and to filled-in values."""
        own = out * self.scales + self.offsets
        if filled is not None:
            own[filled.rows, filled.columns] = filled.draw(rng)
        if self.tails is not None:
            own = self.tails.dithered(own, rng)
        self.scale_into(out, own)

    def rescaled(self, offsets: Array, scales: Array) -> NumberFeatures:
        """Return the composition with a second shift and scaling of the features.

        With z = (x - a) / s, (z - b) / t is (x - (a + b s)) / (s t).
        """
        return replace(
            self, offsets=self.offsets + offsets * self.scales, scales=self.scales * scales
        )


def learn_features(
    source: str, names: list[str], X: Array, *, scale: str, fills: bool, notes: list[str]
) -> tuple[NumberFeatures, Array, Filled | None, NDArray[np.bool_]]:
    """Return the fitted transformation, and the columns as completed by it.

    `scale` is "standard", "minmax", "none" or "auto", which is "standard" with shortened tails.
    Lines about logs and outliers are appended to `notes`.
    """
    outlying = np.zeros(len(X), dtype=bool)
    tails = find_tails(X) if scale == "auto" else None
    if tails is not None:
        if logs := [name for k, name in enumerate(names) if np.isfinite(tails.shifts[k])]:
            notes.append(
                f"columns with a long tail were put on a log scale: {quoted_names(logs)} "
                "(scale='standard' keeps their scale)"
            )
        X, outlying = _shortened(tails, X, notes, fills=fills)
    learnt, filled = None, None
    if fills:
        learnt = learn_fills(X)
        X, filled = learnt.fill(X)
    offsets, scales = column_moments(X).offsets_and_scales(source, names, scale)
    return NumberFeatures(tails, learnt, offsets, scales), X, filled, outlying


def _shortened(
    tails: Tails, X: Array, notes: list[str], *, fills: bool
) -> tuple[Array, NDArray[np.bool_]]:
    """Return columns with shortened tails, and the mask of the rows with an outlier."""
    X, n_far, outlying = tails.shorten(X, fills=fills)
    if n_far:
        notes.append(
            f"{n_far:,} outlier{'s were' if n_far > 1 else ' was'} "
            + ("treated as missing" if fills else "set to the limit")
            + " (ten times as far from the median as the 5th or 95th percentile)"
        )
    return X, outlying
