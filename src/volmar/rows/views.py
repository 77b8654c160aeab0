"""Several views of the same rows: groups of columns, each scaled to the same total variance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar.rows.convert import as_rows, rows_through
from volmar.rows.row_map import RowMap

__all__ = ["ViewMap", "fit_view_map"]


@dataclass(frozen=True, eq=False)
class ViewMap:
    r"""A fitted map of rows to the concatenation of their views, each of total variance 1.

    Attributes
    ----------
    columns : ndarray of int
        Columns of X of all views, one view after the other.
    starts : ndarray of shape (n_views + 1,)
        Start of each view in `columns`, and the number of columns.
    ends : ndarray of shape (n_views + 1,)
        Start of each view in the mapped rows, and their number of columns.
    scales : ndarray of shape (n_views,)
        Factor of each view.
    mean : ndarray
        Mean of the mapped training rows.
    maps : list of RowMap or None
        Map that is applied to each view first, or None for views that are only scaled.
    """

    columns: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    scales: NDArray[np.float64]
    mean: NDArray[np.float64]
    maps: list[RowMap | None]

    @property
    def n_views(self) -> int:
        """Number of views."""
        return int(self.scales.size)

    @property
    def groups(self) -> list[NDArray[np.int64]]:
        """Columns of each view."""
        return np.split(self.columns, self.starts[1:-1])

    @property
    def is_reduced(self) -> bool:
        """Whether any view is reduced to components, rather than keeping its columns of X."""
        return any(one is not None and one.is_reduced for one in self.maps)

    def transform(self, X: Any) -> Any:
        """Return the concatenated views of rows, as CSR if all views are sparse."""
        views = map(_View, self.groups, self.maps, self.scales.tolist())
        parts = [view.transform(X) for view in views]
        if all(map(sparse.issparse, parts)):
            return sparse.hstack(parts, format="csr")
        return np.hstack([one.toarray() if sparse.issparse(one) else one for one in parts])

    def view_scores(self, rows: Any, coef: NDArray, constant: NDArray) -> NDArray:
        """Return scores (n_views, n, k) of mapped rows in each view.

        With the coefficients w of all columns, the score of view v of V views is
        V w_v'(x_v - mean_v) + constant. The mean over the views is the score by all columns.
        """
        return np.stack(
            [
                self.n_views * (rows[:, own] @ coef[:, own].T - coef[:, own] @ self.mean[own])
                + constant
                for own in map(slice, self.ends[:-1].tolist(), self.ends[1:].tolist())
            ]
        )


def fit_view_map(
    X: Any,
    groups: Sequence[NDArray[np.int64]],
    fit_map: Callable[[Any], RowMap | None],
    sample_weight: Any = None,
) -> ViewMap:
    r"""Return the map to the concatenation of views, each of total variance 1.

    View v, with the columns :math:`x_v`, becomes :math:`x_v / s_v` with the total variance
    :math:`s_v^2 = E|x_v - \bar x_v|^2`. Each view then contributes equally to squared distances of
    rows, regardless of its number of columns and its units. Constant views are not scaled.

    Parameters
    ----------
    X : array, CSR matrix or BlockTable of shape (n, d)
        The rows.
    groups : sequence of int arrays
        Columns of each view.
    fit_map : callable
        Function that takes the rows of a view, and returns its `RowMap` or None.
    sample_weight : vector over the rows, optional
        Sample weights.
    """
    maps, scales, means = [], [], []
    for columns in groups:
        row_map = fit_map(rows_through(_View(columns), X))
        view = rows_through(_View(columns, row_map), X)
        rows = as_rows(view, sample_weight=sample_weight).centered()
        variance = float(rows.mean_squared_norm())
        scale = 1.0 / np.sqrt(variance) if variance > 0 else 1.0
        maps.append(row_map)
        scales.append(scale)
        means.append(scale * np.asarray(rows.offset))
    return ViewMap(
        columns=np.concatenate(groups).astype(np.int64),
        starts=_borders([columns.size for columns in groups]),
        ends=_borders([mean.size for mean in means]),
        scales=np.array(scales),
        mean=np.concatenate(means),
        maps=maps,
    )


class _View(NamedTuple):
    """The map of rows to one view."""

    columns: NDArray[np.int64]
    row_map: RowMap | None = None
    scale: float = 1.0

    def transform(self, X: Any) -> Any:
        rows = X[:, self.columns]
        if self.row_map is not None:
            rows = self.row_map.transform(rows)
        return rows if self.scale == 1.0 else rows * rows.dtype.type(self.scale)


def _borders(sizes: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
