"""The transformation of rows for the parameters `metric` and `views`."""

from __future__ import annotations

import copy
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse

from volmar._checks import check_random_state
from volmar._weights import rescaled_sample_weight
from volmar.base.blocks import refuse_blocks
from volmar.base.validation import check_choice, check_count
from volmar.base.views import column_groups
from volmar.rows import RowMap, ViewMap, fit_row_map, fit_view_map, is_in_memory, rows_through
from volmar.rows.row_map import is_text

__all__ = ["METRICS", "check_row_map", "column_names", "mapped_rows", "through_row_map"]

METRICS = ["euclidean", "cosine"]
#: Parameters of the row map, with the values that leave rows unchanged.
WITHOUT: dict[str, Any] = {"metric": "euclidean", "views": None, "text_components": "auto"}


def check_row_map(model: Any) -> None:
    """Raise an error for values of `metric` and `text_components` that are invalid for any X."""
    if not hasattr(model, "metric"):
        return
    check_choice("metric", model.metric, METRICS)
    if isinstance(model.text_components, str):
        check_choice("text_components", model.text_components, ["auto"])
    elif model.text_components is not None:
        check_count("text_components", model.text_components)
        if model.metric == "euclidean":
            raise ValueError(
                f"text_components={model.text_components} has no effect with "
                "metric='euclidean'. Use metric='cosine', or leave text_components out."
            )
    if not model._is_pairwise():
        return
    if model.metric != "euclidean":
        raise ValueError(
            f"metric={model.metric!r} needs rows, but with 'precomputed' X holds values for pairs "
            "of rows. Compute the matrix from rows of unit length "
            "(sklearn.preprocessing.normalize), and leave metric out."
        )
    if getattr(model, "views", None) is not None:
        raise ValueError(
            "views are groups of columns, but with 'precomputed' X holds values for pairs of "
            "rows. Pass the mean of the views' matrices, and leave views out."
        )


def mapped_rows(model: Any, X: Any, sample_weight: Any) -> Any:
    """Fit the row map, `row_map_`, of a working copy of an estimator, and return mapped rows of X.

    The working copy and its clones then have the parameter values of `WITHOUT`, so that rows are
    not transformed twice. If no row map is needed, X itself is returned.
    """
    given = {name: getattr(model, name) for name in WITHOUT if hasattr(model, name)}
    if given.get("metric", "euclidean") == "euclidean" and given.get("views") is None:
        return X
    model.row_map_ = _fitted(model, X, sample_weight)
    vars(model).update({name: WITHOUT[name] for name in given})
    return rows_through(model.row_map_, X)


def through_row_map(model: Any, X: Any) -> Any:
    """Return validated rows, transformed by the fitted row map if there is one."""
    found = getattr(model, "row_map_", None)
    return X if found is None else found.transform(X)


def column_names(model: Any) -> Any:
    """Return the names of the columns after the row map, or None if they have no names."""
    found, names = getattr(model, "row_map_", None), getattr(model, "feature_names_in_", None)
    if found is None or names is None:
        return names
    if found.is_reduced:
        return None
    return names[found.columns] if isinstance(found, ViewMap) else names


def _fitted(model: Any, X: Any, sample_weight: Any) -> RowMap | ViewMap:
    views, has_lengths = getattr(model, "views", None), model.metric == "euclidean"
    if views is None:
        return _fitted_to_view(model, sample_weight, X)
    names = getattr(model, "feature_names_in_", None)
    groups = column_groups(views, X.shape[1], names)
    fit_map = (lambda _: None) if has_lengths else partial(_fitted_to_view, model, sample_weight)
    weights = sample_weight
    if is_in_memory(X):
        weights = rescaled_sample_weight(sample_weight, X.shape[0])
    elif np.ndim(weights) == 0:
        weights = None
    return fit_view_map(X, groups, fit_map, weights)


def _fitted_to_view(model: Any, sample_weight: Any, X: Any) -> RowMap:
    """Fit the row map of all columns, or of the columns of one view."""
    if not is_in_memory(X):
        if is_text(X):
            refuse_blocks(
                f"{type(model).__name__}(metric={model.metric!r}) with text (sparse blocks of "
                f"{X.shape[1]} columns)",
                "weights of words and singular vectors need all rows at once",
            )
        return RowMap()
    if isinstance(model.text_components, Integral) and not sparse.issparse(X):
        raise ValueError(
            f"text_components={model.text_components} is for sparse rows, but X is dense. Leave "
            "text_components out, or reduce X first (sklearn.decomposition.TruncatedSVD)."
        )
    rng = copy.deepcopy(check_random_state(model.random_state))
    return fit_row_map(
        X,
        text_components=model.text_components,
        weights=rescaled_sample_weight(sample_weight, X.shape[0]),
        seed=int(rng.randint(2**31 - 1)),
    )
