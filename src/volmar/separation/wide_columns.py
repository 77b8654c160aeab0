"""Single columns as starts of the race, for data with more columns than rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar._eigen import eigenpairs
from volmar.evidence import column_resolutions, dithered
from volmar.rows import RowSpace

# Values are clipped to this many standard deviations: a single outlier is not a second group.
FAR = 3.0
# Approximate number of rows for estimating the resolutions of columns.
RESOLUTION_ROWS = 500


@dataclass(frozen=True)
class WideColumns:
    """The columns of some rows of a `RowSpace`, read one tile at a time.

    `numbers` (m,) are the row numbers, and `resolutions` (p,) those of the standardised columns.
    """

    z: RowSpace
    numbers: NDArray
    resolutions: NDArray

    def taken(self, mask: NDArray) -> WideColumns:
        """Return the columns of the rows that `mask` selects."""
        return replace(self, numbers=self.numbers[mask])

    def candidates(
        self, count: int, few: slice, rng: np.random.Generator
    ) -> tuple[NDArray, NDArray, NDArray]:
        """Return the `count` columns with the largest `bimodality` over the rows of `few`.

        Returns their numbers (k,), their standardised values (m, k), and the dithered values of
        the rows of `few`.
        """
        found: list[tuple[NDArray, NDArray, NDArray]] = []
        for part, tile in self.z.Z.tiles(self.numbers[few]):
            noisy = dithered(tile, self.resolutions[part], rng)
            score = bimodality(noisy)
            best = np.argsort(-score, kind="stable")[:count]
            found.append((score[best], part.start + best, noisy[:, best]))
        score, columns, noisy = (
            np.concatenate(each, axis=-1) for each in zip(*found, strict=True)
        )
        best = np.argsort(-score, kind="stable")[:count]
        return columns[best], self.z.Z.values(columns[best])[self.numbers], noisy[:, best]

    def directions(self, columns: NDArray) -> NDArray:
        """Return columns as directions in the coordinates T of the rows."""
        return self.z.column_directions(columns)

    def in_own_units(self) -> NDArray:
        """Return the centred rows in the user's units, in a basis of their span."""
        rows = self.z.own_units[self.numbers]
        return rows - rows.mean(axis=0)

    def between(self, labels: NDArray, few: slice) -> NDArray:
        """Return the differences of the means of labels of the rows of `few`, in the user's units.

        The result has one direction in T per column of labels.
        """
        share = labels.mean(axis=0)
        v = np.zeros((self.z.rows.n_rows, labels.shape[1]))
        weights = np.where(labels, 1.0 / share, -1.0 / (1.0 - share)) / len(labels)
        np.add.at(v, self.numbers[few], weights)  # a row may occur several times in a sample
        return self.z.own_units_direction(v)

    def dithered(self, T: NDArray, rng: np.random.Generator) -> NDArray:
        """Return rows of T with the noise of dithered columns.

        The noise is a sum over many columns, so it is drawn from the normal distribution with the
        same covariance V'CV, with C the variances of the uniform noise of the columns.
        """
        deviations = self.resolutions / np.sqrt(12.0)
        if not deviations.any():
            return T
        covariance: Any = 0.0
        for part, V in self.z.basis_tiles():
            covariance = covariance + (V.T * deviations[part] ** 2) @ V
        values, vectors = eigenpairs(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        noise = rng.standard_normal((len(T), values.size)) @ root.T
        return T + np.pad(noise, ((0, 0), (0, T.shape[1] - values.size)))


def wide_columns(z: RowSpace, numbers: NDArray) -> WideColumns:
    """Return the columns of some rows, with their resolutions."""
    few = numbers[:: max(1, numbers.size // RESOLUTION_ROWS)]
    # The columns as given, because many have only a few distinct values.
    parts = [column_resolutions(tile) for _, tile in z.Z.tiles(few, as_given=True)]
    return WideColumns(z, numbers, np.concatenate(parts) / z.scale[z.kept])


def bimodality(columns: NDArray) -> NDArray:
    r"""Return Sarle's bimodality coefficient of each column, with outliers clipped.

    It is :math:`(s^2 + 1) / k` with skewness s and kurtosis k: 1 for two points of any shares, 5/9
    for a uniform density and 1/3 for a normal density.
    """
    Z = np.clip(columns, -FAR, FAR)
    Z -= Z.mean(axis=0)
    square = Z * Z
    variance = square.mean(axis=0)
    variance[variance <= 0] = np.inf  # constant columns do not have two groups
    skewness2 = (np.einsum("ij,ij->j", square, Z) / len(Z)) ** 2 / variance**3
    kurtosis = np.einsum("ij,ij->j", square, square) / len(Z) / variance**2
    return np.where(kurtosis > 0, (skewness2 + 1.0) / np.maximum(kurtosis, 1.0), 0.0)
