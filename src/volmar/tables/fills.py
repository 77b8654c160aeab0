"""Missing values, filled in from rows that are alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Fills", "learn_fills"]

# Rows that values are taken from, as many as these entries allow, and the nearest ones of them.
MOST_DONORS, MOST_ENTRIES, N_NEAREST = 500, 2_000_000, 5
_ROWS = 2048

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Fills:
    """What missing values are filled in with.

    A missing value becomes the median of the five most similar rows that have one there. The
    median of the whole column would be a group of its own, between two others perhaps.

    Attributes
    ----------
    donors : ndarray of shape (m, d)
        Rows that values are taken from, NaN where they have none; none at all where the table
        was complete.
    medians, scales : ndarray of shape (d,)
        Medians and standard deviations of the columns: a row without any value gets the medians,
        and distances between rows are in units of the deviations.
    """

    donors: Array
    medians: Array
    scales: Array

    def fill(self, X: Array) -> Array:
        """Return rows without missing values; X itself where it has none."""
        unknown = np.isnan(X)
        rows = np.flatnonzero(unknown.any(axis=1))
        if not rows.size:
            return X
        X = X.copy()
        known_there = ~np.isnan(self.donors)
        there = np.where(known_there, (self.donors - self.medians) / self.scales, 0.0)
        for start in range(0, rows.size, _ROWS):
            some = rows[start : start + _ROWS]
            known = ~unknown[some]
            here = np.where(known, (X[some] - self.medians) / self.scales, 0.0)
            apart = _distances(here, known, there, known_there)
            apart[~known.any(axis=1)] = np.nan
            self._fill_block(X, some, ~known, apart, known_there)
        return X

    def _fill_block(
        self, X: Array, rows: NDArray, missing: NDArray, apart: Array, known_there: NDArray
    ) -> None:
        for j in np.flatnonzero(missing.any(axis=0)):
            which = np.flatnonzero(missing[:, j])
            X[rows[which], j] = self.medians[j]
            which = which[~np.isnan(apart[which, 0])]
            able = np.flatnonzero(known_there[:, j])
            if not able.size or not which.size:
                continue
            distance = apart[np.ix_(which, able)]
            if able.size > N_NEAREST:
                nearest = np.argpartition(distance, N_NEAREST - 1, axis=1)[:, :N_NEAREST]
            else:
                nearest = np.tile(np.arange(able.size), (which.size, 1))
            X[rows[which], j] = np.median(self.donors[able[nearest], j], axis=1)


def _distances(here: Array, known: NDArray, there: Array, known_there: NDArray) -> Array:
    """Return squared distances; where a value is missing its square is the expected one, 2."""
    mask, mask_there = known.astype(np.float64), known_there.astype(np.float64)
    return (
        (here**2) @ mask_there.T
        - 2.0 * here @ there.T
        + mask @ (there**2).T
        + 2.0 * mask @ (1.0 - mask_there).T
    )


def learn_fills(X: Array) -> Fills:
    """Choose the rows that values are taken from: those with the most values, at random.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Columns, NaN for missing values; each has a value at least.
    """
    n, d = X.shape
    n_missing = np.isnan(X).sum(axis=1)
    most = int(np.clip(MOST_ENTRIES // max(d, 1), 1, MOST_DONORS))
    order = np.random.default_rng(0).permutation(n)
    chosen = np.sort(order[np.argsort(n_missing[order], kind="stable")[:most]])
    if not n_missing.any():
        # New rows may still miss a value, and a model keeps no rows without need.
        return Fills(np.empty((0, d)), np.median(X, axis=0), np.ones(d))
    scales = np.nanstd(X, axis=0)
    return Fills(X[chosen], np.nanmedian(X, axis=0), np.where(scales > 0, scales, 1.0))
