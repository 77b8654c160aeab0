"""Clones of a clusterer that are fitted to subsets of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

# Maximum number of rows to fit, for methods whose time is not linear in it: cubic for semidefinite
# programs, quadratic for kernel matrices and for neighbours in many columns.
MOST_FITTED = {
    "SDPMMC": 500,
    **dict.fromkeys(("GMMC", "HardLabelMVC"), 1000),
    **dict.fromkeys(("KernelKMeans", "KernelCPMMC", "IterSVR", "LGMMC"), 5000),
    **dict.fromkeys(("SoftLabelMVC", "NormalizedCut", "SMIC"), 10_000),
    "NormalizedSpectralClustering": 10_000,
}
# Maximum numbers of rows, and of rows x columns x clusters, of a fit that is repeated.
MAX_REPEATED, MAX_WORK = 20_000, 10_000_000


def repeatable_rows(estimator: Any, n_features: int, n_clusters: int) -> int:
    """Return the maximum number of rows of a fit that is repeated tens of times.

    It depends on the work, not on the time, so that results are the same on a busy machine.
    """
    steps = getattr(estimator, "steps", None)
    name = type(steps[-1][1] if steps else estimator).__name__
    by_work = MAX_WORK // max(n_features * n_clusters, 1)
    return min(MAX_REPEATED, MOST_FITTED.get(name, 2 * MAX_REPEATED) // 2, max(by_work, 100))


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
