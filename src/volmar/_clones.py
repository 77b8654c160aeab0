"""Clones of a clusterer that are fitted to subsets of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

__all__ = ["fitted_labels", "refuse_pairwise", "seeded", "silent_clone"]


def silent_clone(estimator: Any) -> Any:
    """Clone without callbacks, which are called for the whole fit and not for each subset."""
    if isinstance(estimator, type) or not hasattr(estimator, "get_params"):
        what = f"the class {estimator.__name__}" if isinstance(estimator, type) else ""
        raise TypeError(
            "estimator must be a clusterer with scikit-learn's interface, such as MSPC(), got "
            f"{what or type(estimator).__name__}."
        )
    copy = clone(estimator)
    return copy.set_callbacks() if hasattr(copy, "set_callbacks") else copy


def fitted_labels(estimator: Any, X: Any) -> NDArray:
    """Fit a clone without callbacks and return its label of each row."""
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
    """Clone without callbacks, with `seed` for each random_state that is None, nested or not."""
    model = silent_clone(estimator)
    unset = [
        name
        for name, value in model.get_params().items()
        if value is None and name.split("__")[-1] == "random_state"
    ]
    return model.set_params(**dict.fromkeys(unset, seed))


def refuse_pairwise(estimator: Any) -> None:
    """Raise if the estimator takes a precomputed matrix, which cannot be split by rows."""
    tags = None if isinstance(estimator, type) else getattr(estimator, "__sklearn_tags__", None)
    if tags is not None and tags().input_tags.pairwise:
        raise ValueError(
            f"estimator {type(estimator).__name__} takes a precomputed matrix, which cannot be "
            "split into subsets of rows. Pass the rows, and give the kernel or affinity by name."
        )
