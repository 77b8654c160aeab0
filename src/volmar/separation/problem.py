"""The rows of a separation problem, shared by all starts, and scores by hyperplanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar._checks import check_magnitude
from volmar.rows.anywhere import mapped_scores, moments_of_sides
from volmar.rows.protocol import Moments, RowSource
from volmar.rows.standardized import RowSpace, Standardized, exactly_standardized
from volmar.rows.tiled import DenseRows, SparseRows
from volmar.separation.gep import RegularizedCorrelation, mean_difference


@dataclass(eq=False)
class SeparationRows:
    """Rows in units of their standard deviations, and quantities that do not depend on labels.

    X are the rows, or their kernel features by `feature_map`, and `source` provides passes over
    them. `scaling` (`standardized`, `exactly_standardized` or `evenly_scaled`) computes their
    units, `min_weight` is the minimum weight of a cluster, and `reg` the regularisation unless
    the race of starts chooses one.
    """

    X: Any
    source: RowSource
    scaling: Callable[..., Standardized]
    reg: float
    feature_map: Any
    min_weight: float
    #: Mask of the rows on one side of the first cut, and their moments (see `cut_first`).
    _first_cut: tuple[NDArray, Moments] | None = None

    @cached_property
    def z(self) -> Standardized:
        """The standardised rows: one pass, unless `cut_first` has been called."""
        return self._standardized()

    @cached_property
    def regularized(self) -> RegularizedCorrelation:
        """Factorised R + reg I, with the `reg` of these rows."""
        return RegularizedCorrelation(self.z.correlation, self.reg)

    @property
    def given(self) -> Any:
        """Rows in the user's units for k-means: any coordinates with the same distances."""
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
        """Return R + reg I, factorised; reused if `reg` is that of these rows."""
        if reg == self.reg:
            return self.regularized
        return RegularizedCorrelation(self.z.correlation, reg)

    def sampled(self, numbers: NDArray) -> SeparationRows:
        """Return a separate problem of the rows with these numbers, all of weight 1."""
        source = DenseRows(self.X[numbers])
        min_weight = self.min_share * numbers.size
        return replace(self, X=source.X, source=source, min_weight=min_weight, _first_cut=None)

    def cut_first(self, planes: SeparatingPlanes) -> tuple[Any, NDArray]:
        """Return labels by a hyperplane, and the difference of the means of its sides in z.

        For dense rows in memory, a single pass sums the moments of both sides and computes the
        units of the rows. Moments of other labels (`sides`) then need only the rows whose labels
        differ.
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
        """Return the moments of the rows with label True and of the others: at most one pass."""
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
                f"all {self.X.shape[0]} rows of X are the same, so there is nothing to separate. "
                "Check that X was loaded correctly."
            )
        return z


@dataclass(frozen=True)
class SeparatingPlanes:
    """Hyperplanes in the coordinates of the data, or of the features of `feature_map`.

    The scores are ``((X - mean) @ coefficients - threshold) / unit``, with `coefficients` of shape
    (d,) or (d, m).
    """

    mean: NDArray
    coefficients: NDArray
    threshold: Any
    unit: float = 1.0
    feature_map: Any = None

    def __call__(self, X: Any) -> NDArray:
        """Return the scores of dense or CSR rows: (n,), or (n, k) for k > 2 clusters."""
        if self.feature_map is not None:
            scores = mapped_scores(self.feature_map, X, self.coefficients)
            scores = scores - (self.mean @ self.coefficients).astype(scores.dtype)
        else:
            kind = DenseRows if isinstance(X, np.ndarray) else SparseRows
            scores = kind(X, offset=self.mean).scores(self.coefficients)
        scores = scores - np.asarray(self.threshold, dtype=scores.dtype)
        scores /= scores.dtype.type(self.unit)
        return scores


def planes_of(rows: SeparationRows, w: NDArray, threshold: Any, **more: Any) -> SeparatingPlanes:
    """Return the hyperplanes of directions w of standardised rows."""
    z, features = rows.z, rows.feature_map
    return SeparatingPlanes(z.mean, z.coefficients(w), threshold, feature_map=features, **more)


def check_features(X: Any) -> None:
    """Raise an error if squares of kernel features overflow or underflow their dtype."""
    try:
        check_magnitude(X)
    except ValueError as error:
        raise ValueError(
            f"the kernel's values are too large or too small for {X.dtype}. Scale X, use other "
            "parameters of the kernel, or float64 rows."
        ) from error
