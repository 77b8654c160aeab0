"""Missing values, filled in from rows that are alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Filled", "Fills", "learn_fills"]

# Rows that values are taken from, as many as these entries allow, and the nearest ones of them.
MOST_DONORS, MOST_ENTRIES, N_NEAREST = 500, 2_000_000, 5
# A column with fewer different values than this share has few of them.
CONTINUOUS = 0.9
_ROWS = 2048

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Filled:
    """Values that were filled in, and what they could have been."""

    rows: NDArray[np.intp]  # where they are
    columns: NDArray[np.intp]
    choices: Array  # values of the most similar rows, (m, 5)
    is_drawn: NDArray[np.bool_]  # few values in this column: one of the choices is drawn

    def draw(self, rng: np.random.Generator) -> Array:
        """Return values as uncertain as they are.

        One of the choices, or a normal draw of their mean and standard deviation. Medians would
        be closer together than values are, which looks like a group in many rows.
        """
        m, k = self.choices.shape
        one = self.choices[np.arange(m), rng.integers(k, size=m)]
        # Without n - 1: the mean has the rest of the variance.
        spread = self.choices.std(axis=1)
        between = self.choices.mean(axis=1) + spread * rng.standard_normal(m)
        return np.where(self.is_drawn, one, between)


@dataclass(frozen=True)
class Fills:
    """What missing values are filled in with.

    A missing value becomes the median of the five most similar rows that have one there. The
    median of the whole column would be a group of its own, between two others perhaps. A row
    without any value gets the medians.
    """

    donors: Array  # rows that values are taken from; none where the table was complete
    medians: Array
    scales: Array  # standard deviations, the units of distances between rows

    def fill(self, X: Array) -> tuple[Array, Filled | None]:
        """Return rows without missing values (X itself if it has none), and what was filled in."""
        unknown = np.isnan(X)
        rows = np.flatnonzero(unknown.any(axis=1))
        if not rows.size:
            return X, None
        X = X.copy()
        found: list[tuple[NDArray, NDArray, Array]] = []
        known_there = ~np.isnan(self.donors)
        there = np.where(known_there, (self.donors - self.medians) / self.scales, 0.0)
        for start in range(0, rows.size, _ROWS):
            some = rows[start : start + _ROWS]
            known = ~unknown[some]
            here = np.where(known, (X[some] - self.medians) / self.scales, 0.0)
            apart = _distances(here, known, there, known_there)
            apart[~known.any(axis=1)] = np.nan
            absent = np.asarray(~known)
            for j in np.flatnonzero(absent.any(axis=0)):
                which = np.flatnonzero(absent[:, j])
                choices = self._choices(int(j), apart[which], known_there[:, j])
                X[some[which], j] = np.median(choices, axis=1)
                found.append((some[which], np.full(which.size, j), choices))
        few: NDArray[np.bool_] = self._has_few_values()
        at, columns, values = (np.concatenate(part) for part in zip(*found, strict=True))
        return X, Filled(at, columns, values, few[columns])

    def _choices(self, j: int, apart: Array, known_there: NDArray) -> Array:
        """Return what the rows most similar to some have in a column, (m, 5)."""
        out = np.full((len(apart), N_NEAREST), self.medians[j])
        able = np.flatnonzero(known_there)
        if not able.size:
            return out
        # Rows without any value are similar to none.
        lonely: NDArray = np.asarray(np.isnan(apart).any(axis=1))
        distance = np.where(lonely[:, None], 0.0, apart[:, able])
        if able.size > N_NEAREST:
            nearest = np.argpartition(distance, N_NEAREST - 1, axis=1)[:, :N_NEAREST]
        else:
            nearest = np.tile(np.arange(N_NEAREST) % able.size, (len(apart), 1))
        out[:] = self.donors[able[nearest], j]
        out[lonely] = self.medians[j]
        return out

    def _has_few_values(self) -> NDArray[np.bool_]:
        """Tell which columns have so few values that they come repeatedly."""
        return np.array(
            [
                np.unique(known).size < CONTINUOUS * known.size
                for known in (column[~np.isnan(column)] for column in self.donors.T)
            ]
        )


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
    """Choose the rows that values are taken from: those with the most values, at random."""
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
