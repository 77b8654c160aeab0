"""The parameter `views`: groups of columns, and the scores of rows in each group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from volmar._checks import shown
from volmar.base.blocks import refuse_blocks
from volmar.rows import is_dask

__all__ = ["ViewsMixin", "column_groups"]

# Maximum number of columns listed in a message.
NAMED = 5


class ViewsMixin:
    """Scores per view, for linear clusterers with the parameter `views`."""

    coef_: NDArray[np.float64]
    intercept_: NDArray[np.float64]
    row_map_: Any
    views: Any
    _offsets: Any

    def view_scores(self, X: Any) -> NDArray:
        """Return the scores of rows in each view; their mean is `decision_function`.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows, dense or CSR, in memory.

        Returns
        -------
        ndarray of shape (n_views, n_samples) or (n_views, n_samples, n_clusters)
            Scores as in `decision_function`. If the views of a row disagree, its scores have
            different signs (two clusters) or different largest columns (more clusters).
        """
        check_is_fitted(self, "result_")
        if not hasattr(getattr(self, "row_map_", None), "view_scores"):
            raise AttributeError(
                "view_scores needs a model that was fitted with views. Fit with views=[...]."
            )
        if not hasattr(self, "coef_"):
            raise AttributeError(
                "view_scores needs coef_, one set of hyperplanes for all clusters. Models with a "
                "nonlinear kernel or with recursive splits have none. Use a linear kernel, and "
                "multiway='joint' (CPMMC) with a given n_clusters."
            )
        constant = self.intercept_ + self.coef_ @ self.row_map_.mean
        if self._offsets is not None:
            is_two = constant.size == 1
            constant = constant + (np.diff(self._offsets) if is_two else self._offsets)
        if is_dask(X):
            refuse_blocks(f"{type(self).__name__}.view_scores", "it takes rows in memory")
        rows = self._validate(X, reset=False)
        scores = self.row_map_.view_scores(rows, self.coef_, constant)
        return scores[:, :, 0] if scores.shape[2] == 1 else scores

    def _validate(self, X: Any, *, reset: bool) -> Any:
        return super()._validate(X, reset=reset)  # type: ignore[misc]


def column_groups(views: Any, n_features: int, names: Any) -> list[NDArray[np.int64]]:
    """Return the column numbers of each view.

    Parameters
    ----------
    views : sequence
        For each view a slice, an array of column numbers or names, or a mask of all columns.
    n_features : int
        Number of columns.
    names : sequence of str or None
        Names of the columns, or None if they have none.

    Examples
    --------
    >>> from volmar.base.views import column_groups
    >>> column_groups([slice(0, 2), ["c", "a"]], 3, ["a", "b", "c"])
    [array([0, 1]), array([2, 0])]
    """
    is_list = isinstance(views, Sequence) and not isinstance(views, (str, bytes))
    if not is_list and not (isinstance(views, np.ndarray) and views.ndim > 0):
        raise TypeError(
            f"views must be a list of groups of columns, one per view, got {shown(views)}. "
            "Use views=[slice(0, 10), slice(10, None)] for example."
        )
    if len(views) == 0:
        raise ValueError("views is empty. Give at least one group of columns, or views=None.")
    groups = [_columns(i, one, n_features, names) for i, one in enumerate(views)]
    seen = np.zeros(n_features, dtype=bool)
    seen[np.concatenate(groups)] = True
    left = np.flatnonzero(~seen)
    if left.size:
        few = ", ".join(str(j if names is None else names[j]) for j in left[:NAMED].tolist())
        more = ", ..." if left.size > NAMED else ""
        raise ValueError(
            f"views leaves out {left.size} of the {n_features} columns of X: {few}{more}. Add "
            "them to a view, or drop them from X."
        )
    return groups


def _columns(i: int, group: Any, d: int, names: Any) -> NDArray[np.int64]:
    what = f"views[{i}]"
    if isinstance(group, slice):
        if any(isinstance(end, str) for end in (group.start, group.stop)):
            raise TypeError(
                f"{what} must not be a slice of names, got {group}. Give a list of names."
            )
        found = np.arange(d)[group]
    else:
        try:
            values = np.atleast_1d(np.asarray(group))
        except ValueError:  # lists of different lengths
            values = np.empty((0, 0))
        if values.ndim != 1 or (values.size and values.dtype.kind not in "biuUO"):
            raise TypeError(
                f"{what} must be a slice, column numbers, column names or a mask of all columns, "
                f"got {shown(group)}."
            )
        if values.dtype.kind == "b":
            if values.size != d:
                raise ValueError(f"{what} is a mask of {values.size} columns, but X has {d}.")
            found = np.flatnonzero(values)
        elif values.dtype.kind in "UO":
            found = _named(what, values.tolist(), names)
        else:
            found = values.astype(np.int64)
            outside = found[(found < -d) | (found >= d)]
            if outside.size:
                raise ValueError(f"{what} has the column {outside[0]}, but X has {d} columns.")
            found = np.where(found < 0, found + d, found)
    if found.size == 0:
        raise ValueError(f"{what} has no columns. Leave it out, or give at least one.")
    if np.unique(found).size < found.size:
        raise ValueError(f"{what} has a column twice. Give each column of a view once.")
    return found.astype(np.int64)


def _named(what: str, wanted: list[Any], names: Any) -> NDArray[np.int64]:
    if not all(isinstance(name, str) for name in wanted):
        raise TypeError(
            f"{what} mixes column names with other values, got {shown(wanted)}. Give either names "
            "or column numbers."
        )
    if names is None:
        raise ValueError(
            f"{what} has column names, but X has none. Pass a DataFrame, or use column numbers."
        )
    places = {name: j for j, name in enumerate(names)}
    unknown = [name for name in wanted if name not in places]
    if unknown:
        raise ValueError(f"{what} has the column {unknown[0]!r}, which X does not have.")
    return np.array([places[name] for name in wanted], dtype=np.int64)
