"""The rows of a separation problem, as all starts see them, and scores by separating planes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar.base.validation import check_magnitude
from volmar.rows import (
    DenseRows,
    Moments,
    RowSource,
    RowSpace,
    SparseRows,
    Standardized,
    exactly_standardized,
    mapped_scores,
    moments_of_sides,
)
from volmar.separation.gep import RegularizedCorrelation, mean_difference


@dataclass(eq=False)
class SeparationRows:
    """Rows in units of their standard deviations, with what does not depend on the labels.

    X are the rows, or their features under the kernel whose `feature_map` it is, and `source` the
    same. `scaling` (`standardized`, `exactly_standardized` or `evenly_scaled`) gives them their
    units, `min_weight` is the minimum weight of a cluster, and `reg` the regularisation where no
    race chooses one.
    """

    X: Any
    source: RowSource
    scaling: Callable[..., Standardized]
    reg: float
    feature_map: Any
    min_weight: float
    #: Rows on one side of the cut by which the moments were summed, and their moments.
    _first_cut: tuple[NDArray, Moments] | None = None

    @cached_property
    def z(self) -> Standardized:
        """The rows, standardised: a pass, unless `cut_first` was it."""
        return self._standardized()

    @cached_property
    def regularized(self) -> RegularizedCorrelation:
        """R + reg I."""
        return RegularizedCorrelation(self.z.correlation, self.reg)

    @property
    def given(self) -> Any:
        """Rows in the units of the user, for k-means: only distances count."""
        if self.scaling is exactly_standardized or not isinstance(self.z, RowSpace):
            return self.X
        return self.z.own_units

    @property
    def scaled(self) -> Any:
        """Rows in standard deviations, for k-means."""
        if isinstance(self.z, RowSpace):
            return self.z.T
        scale = 1.0 / self.z.scale
        rows = self.X.multiply(scale).tocsr() if sparse.issparse(self.X) else self.X * scale
        return rows.astype(self.X.dtype, copy=False)

    @property
    def min_share(self) -> float:
        """Minimum share of a cluster."""
        return self.min_weight / self.source.total_weight

    def with_reg(self, reg: float) -> RegularizedCorrelation:
        """Return R + reg I: the one there is, where it has this `reg`."""
        if reg == self.reg:
            return self.regularized
        return RegularizedCorrelation(self.z.correlation, reg)

    def sampled(self, numbers: NDArray) -> SeparationRows:
        """Return rows by their numbers as a problem of its own, all of weight 1."""
        source = DenseRows(self.X[numbers])
        min_weight = self.min_share * numbers.size
        return replace(self, X=source.X, source=source, min_weight=min_weight, _first_cut=None)

    def cut_first(self, planes: SeparatingPlanes) -> tuple[Any, NDArray]:
        """Return labels by a hyperplane, and the difference of the means of its sides in z.

        Of dense rows in memory it takes one pass that sums the moments of both sides, which brings
        the units of the rows, too; moments of other labels later (`sides`) then take the rows that
        differ only.
        """
        normal = planes.coefficients
        threshold = float(normal @ planes.mean) + planes.threshold
        if not isinstance(self.source, DenseRows):
            z = self.z
            scores = z.scores((normal * z.scale)[z.kept])
            labels = scores > threshold - float(normal @ z.mean)
            return labels, mean_difference(z, labels)
        *known, labels, part = self.source.centered_with_cut(normal, threshold)
        self.z = self._standardized(tuple(known))
        self._first_cut = labels, part
        return labels, self.z.difference_of_means(part)

    def sides(self, labels: Any) -> tuple[Moments, Moments]:
        """Return the moments of the labelled rows and of the others: at most one pass."""
        z = self.z
        if self._first_cut is not None:
            first, part = self._first_cut
            switched = labels != first
            n_switched, n_labelled = np.count_nonzero(switched), np.count_nonzero(labels)
            if n_switched < min(n_labelled, labels.size - n_labelled):
                center = part.center
                part = part + z.rows.moments(switched & labels, center=center)
                part = part - z.rows.moments(switched & first, center=center)
                return part, z.moments - part
        return moments_of_sides(z.rows, labels, z.moments)

    def _standardized(self, known: Any = None) -> Standardized:
        z = self.scaling(self.source, known)
        if z.kept.size == 0:
            raise ValueError(
                f"all {self.X.shape[0]} rows of X are the same, there is nothing to separate. "
                "Check that X was loaded correctly."
            )
        return z


@dataclass(frozen=True)
class SeparatingPlanes:
    """Hyperplanes in the coordinates of the data, or of features of the `feature_map`.

    Rows less `mean`, times the `coefficients` (d,) or (d, m), are cut at `threshold`, and scores
    are in units of `unit`. `pairs` (m, 2) are the two clusters that each direction separates; None
    for a direction a cluster, or one.
    """

    mean: NDArray
    coefficients: NDArray
    threshold: Any
    unit: float = 1.0
    pairs: NDArray | None = None
    feature_map: Any = None

    def __call__(self, X: Any) -> NDArray:
        """Return the scores of rows, dense or CSR: (n,), or (n, k) of more than two clusters."""
        if self.feature_map is not None:
            scores = mapped_scores(self.feature_map, X, self.coefficients)
            scores = scores - (self.mean @ self.coefficients).astype(scores.dtype)
        else:
            kind = DenseRows if isinstance(X, np.ndarray) else SparseRows
            scores = kind(X, offset=self.mean).scores(self.coefficients)
        scores = scores - np.asarray(self.threshold, dtype=scores.dtype)
        scores /= scores.dtype.type(self.unit)
        if self.pairs is None:
            return scores
        return least_scores(scores, self.pairs, int(self.pairs.max()) + 1)


def planes_of(rows: SeparationRows, w: NDArray, threshold: Any, **more: Any) -> SeparatingPlanes:
    """Return the planes of directions w of standardised rows."""
    z, features = rows.z, rows.feature_map
    return SeparatingPlanes(z.mean, z.coefficients(w), threshold, feature_map=features, **more)


def check_features(X: Any) -> None:
    """Refuse features of a kernel whose squares do not fit their dtype."""
    try:
        check_magnitude(X)
    except ValueError as error:
        raise ValueError(
            f"the kernel's values are too large or too small for {X.dtype}. Scale X, use other "
            "parameters of the kernel, or float64 rows."
        ) from error


def least_scores(scores: NDArray, pairs: NDArray, k: int) -> NDArray:
    """Return for each row and cluster the least of its scores against the others, (n, k)."""
    least = np.full((scores.shape[0], k), np.inf, dtype=scores.dtype)
    for column, (one, other) in zip(scores.T, pairs, strict=True):
        np.minimum(least[:, one], column, out=least[:, one])
        np.minimum(least[:, other], -column, out=least[:, other])
    return least
