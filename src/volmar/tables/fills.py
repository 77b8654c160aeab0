"""Fill in missing values from similar rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Filled", "Fills", "learn_fills"]

# Maximum number of donor rows, from which values are taken, and of their entries. A value is
# filled in from the nearest `N_NEAREST` donor rows.
MAX_DONORS, MAX_ENTRIES, N_NEAREST = 500, 2_000_000, 5
# Minimum share of distinct values in a continuous column.
CONTINUOUS = 0.9
_ROWS = 2048

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Filled:
    """Filled-in values: their positions, and the values of similar rows."""

    rows: NDArray[np.intp]  # rows and columns of the filled-in values
    columns: NDArray[np.intp]
    choices: Array  # values of the most similar rows, (m, 5)
    is_drawn: NDArray[np.bool_]  # True in a discrete column, for which one of the choices is drawn

    def draw(self, rng: np.random.Generator) -> Array:
        """Draw the filled-in values at random, to reflect their uncertainty.

        Each is one of the choices, or a normal draw with their mean and standard deviation.
        Medians would vary less than observed values do, and many of them would look like a group.
        """
        m, k = self.choices.shape
        one = self.choices[np.arange(m), rng.integers(k, size=m)]
        # Not with n - 1: the mean of the choices varies, too, and adds the rest of the variance.
        spread = self.choices.std(axis=1)
        between = self.choices.mean(axis=1) + spread * rng.standard_normal(m)
        return np.where(self.is_drawn, one, between)


@dataclass(frozen=True)
class Fills:
    """Fill in missing values from similar rows.

    A missing value becomes the median over the five most similar rows with a value in that column.
    The median of the whole column would add a group, possibly between two others. It is used only
    for rows without any values.
    """

    donors: Array  # rows from which values are taken; empty if no values were missing
    medians: Array
    scales: Array  # standard deviations, the units of distances between rows

    def fill(self, X: Array) -> tuple[Array, Filled | None]:
        """Return rows without missing values (X itself if none is), and the filled-in values."""
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
        """Return the values in column j of the rows most similar to each row, (m, 5)."""
        out = np.full((len(apart), N_NEAREST), self.medians[j])
        able = np.flatnonzero(known_there)
        if not able.size:
            return out
        # Rows without any values have no distances.
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
        """Return the mask of the discrete columns, in which many values are repeated."""
        return np.array(
            [
                np.unique(known).size < CONTINUOUS * known.size
                for known in (column[~np.isnan(column)] for column in self.donors.T)
            ]
        )


def _distances(here: Array, known: NDArray, there: Array, known_there: NDArray) -> Array:
    """Return squared distances. A term with a missing value is replaced by its expectation, 2."""
    mask, mask_there = known.astype(np.float64), known_there.astype(np.float64)
    return (
        (here**2) @ mask_there.T
        - 2.0 * here @ there.T
        + mask @ (there**2).T
        + 2.0 * mask @ (1.0 - mask_there).T
    )


def learn_fills(X: Array) -> Fills:
    """Choose donor rows: a random choice among those with the lowest numbers of missing values."""
    n, d = X.shape
    n_missing = np.isnan(X).sum(axis=1)
    n_donors = int(np.clip(MAX_ENTRIES // max(d, 1), 1, MAX_DONORS))
    order = np.random.default_rng(0).permutation(n)
    chosen = np.sort(order[np.argsort(n_missing[order], kind="stable")[:n_donors]])
    if not n_missing.any():
        # New rows may have missing values. They get medians, so that the model stores no rows.
        return Fills(np.empty((0, d)), np.median(X, axis=0), np.ones(d))
    scales = np.nanstd(X, axis=0)
    return Fills(X[chosen], np.nanmedian(X, axis=0), np.where(scales > 0, scales, 1.0))
