"""Copies of a clusterer that are fitted to parts of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

__all__ = ["fitted_labels", "refuse_pairwise", "seeded", "silent_clone"]


def silent_clone(estimator: Any) -> Any:
    """Clone without the callbacks, which hear of the whole fit and not of each of its parts."""
    if isinstance(estimator, type) or not hasattr(estimator, "get_params"):
        what = f"the class {estimator.__name__}" if isinstance(estimator, type) else ""
        raise TypeError(
            f"estimator must be a clusterer with scikit-learn's interface, such as MSPC(), got "
            f"{what or type(estimator).__name__}."
        )
    copy = clone(estimator)
    return copy.set_callbacks() if hasattr(copy, "set_callbacks") else copy


def fitted_labels(estimator: Any, X: Any) -> NDArray:
    """Fit a clone without callbacks and return the labels of the rows."""
    model = silent_clone(estimator)
    if hasattr(model, "fit_predict"):  # pipelines and mixtures have no labels_
        return np.asarray(model.fit_predict(X))
    model.fit(X)
    if not hasattr(model, "labels_"):
        raise TypeError(
            f"estimator {type(model).__name__} has neither fit_predict nor labels_ after fit. Use "
            "a clusterer."
        )
    return np.asarray(model.labels_)


def seeded(estimator: Any, seed: int) -> Any:
    """Clone without callbacks; every random_state in it, nested ones too, that is None is set."""
    model = silent_clone(estimator)
    unset = [
        name
        for name, value in model.get_params().items()
        if value is None and name.split("__")[-1] == "random_state"
    ]
    return model.set_params(**dict.fromkeys(unset, seed))


def refuse_pairwise(estimator: Any) -> None:
    """Raise where rows of X would be pairs of rows, which parts of the rows would break."""
    tags = None if isinstance(estimator, type) else getattr(estimator, "__sklearn_tags__", None)
    if tags is not None and tags().input_tags.pairwise:
        raise ValueError(
            f"estimator {type(estimator).__name__} takes a precomputed matrix, and parts of the "
            "rows are clustered. Pass the rows, with a kernel or an affinity by name."
        )
