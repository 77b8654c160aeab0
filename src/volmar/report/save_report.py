"""`save_report`: the report of any fitted clusterer."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from volmar._warn import collecting
from volmar.report.cluster_page import write_report
from volmar.report.drivers import dense
from volmar.report.evidence import evidence_of
from volmar.report.judging import judged
from volmar.report.outcome import Outcome, Progress, StageTimes
from volmar.tables import LoadedTable
from volmar.tables.columns import as_pandas


def save_report(
    path: str | PathLike[str],
    model: Any,
    data: Any = None,
    *,
    title: str | None = None,
    force: bool = False,
    random_state: int = 0,
    progress: Progress | None = None,
) -> None:
    """Write a report of a fitted clusterer as one HTML page that needs no network.

    Parameters
    ----------
    path : str or path
        File to write.
    model : clusterer, Pipeline or TableClusterer
        A fitted clusterer of volmar or of any library with scikit-learn's interface, or a fitted
        pipeline that ends in one.
    data : DataFrame, pyarrow Table, array, sparse array, str or path, optional
        Rows, whose clusters are predicted. A model without `predict` needs the rows that it was
        fitted to, in the same order; only their number is checked. Columns of a DataFrame that the
        model does not use are described, too. If None, `model` must be a `TableClusterer`, which
        keeps its table.
    title : str, optional
        Heading of the page.
    force : bool, default=False
        Whether to overwrite an existing file.
    random_state : int, default=0
        Random seed of tests and samples. A `TableClusterer` uses its own seed.
    progress : callable, optional
        Called as ``progress(stage, done, total)``; total is 0 if steps are not counted.

    Notes
    -----
    For a method without `decision_function`, scores are distances to the means of the clusters.
    Rows labelled -1 (noise) are left out. The page has a note in these cases, and if the clusters
    are not predicted.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklearn.cluster import KMeans
    >>> from volmar.datasets import make_blobs
    >>> from volmar import save_report
    >>> X, _ = make_blobs(200, random_state=0)
    >>> model = KMeans(2, n_init=1, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_report(pathlib.Path(folder) / "report.html", model, X)
    """
    if isinstance(model, type):
        raise TypeError(
            f"model must be a fitted instance, got the class {model.__name__}. Fit an instance."
        )
    if hasattr(model, "outcome"):
        outcome = model.outcome(data, title=title, progress=progress)
    else:
        if data is None:
            raise ValueError(
                f"data is None, and {type(model).__name__} does not keep its training rows. Pass "
                "them as data."
            )
        outcome = _outcome(model, data, title, random_state, StageTimes(progress))
    write_report(outcome, Path(path), force=force)


def _outcome(model: Any, data: Any, title: str | None, seed: int, times: StageTimes) -> Outcome:
    check_is_fitted(model)
    table = as_pandas(data)
    name = table.name if isinstance(table, LoadedTable) else "the rows"
    shown = table.data if isinstance(table, LoadedTable) else table
    X, names = _model_rows(model, shown)
    steps = getattr(model, "steps", None)
    estimator = _without_names(steps[-1][1] if steps else model)
    labels, is_predicted = _labels(estimator, X)
    notes = []
    if not is_predicted:
        notes.append(
            f"{type(estimator).__name__} cannot predict: the clusters are those of the rows of "
            "its fit, which must be these rows in the same order"
        )
    kept = np.flatnonzero(labels != -1)
    if kept.size == 0:
        raise ValueError(
            f"{type(estimator).__name__} has labelled every row -1 (noise), so there is no "
            "cluster to report. Change its parameters."
        )
    if kept.size < labels.size:
        notes.append(f"{labels.size - kept.size:,} rows without a cluster (-1) were left out")
        X, labels = X[kept], labels[kept]
        shown = shown.iloc[kept] if hasattr(shown, "iloc") else shown[kept]
    scores, is_own = _scores(estimator, X, labels)
    if not is_own:
        notes.append(
            f"{type(estimator).__name__} has no scores; distances to the means of the clusters, "
            "in standard deviations, are shown instead"
        )
    n_found = np.unique(labels).size
    asked = estimator.get_params(deep=False).get("n_clusters", n_found)
    with times.stage("testing") as tell, collecting():
        evidence = evidence_of(
            estimator, X, labels, n_clusters=asked, random_state=seed, progress=tell
        )
    ids, id_name, used = kept, "row", None
    column_names = names if len(names) == shown.shape[1] else _numbered(shown)
    if hasattr(shown, "iloc"):
        ids, id_name = shown.index.to_numpy(), str(shown.index.name or "row")
        column_names = [str(one) for one in shown.columns]
        taken = getattr(model, "feature_names_in_", None)
        used = None if taken is None else [one in set(taken) for one in shown.columns]
    again = clone(estimator)
    if "n_clusters" in again.get_params(deep=False):
        again.set_params(n_clusters=n_found)
    found = Outcome(
        title=title or f"Clusters of {name}",
        source=name,
        n_rows=kept.size,
        n_columns=shown.shape[1],
        notes=notes,
        parameters=estimator.get_params(deep=False),
        seed=seed,
        X=X,
        feature_names=names,
        ids=ids,
        id_name=id_name,
        labels=labels,
        scores=scores,
        model=estimator if n_found > 1 else None,
        method=type(estimator).__name__,
        clusterer=again,
        evidence=evidence,
        columns=shown,
        column_names=column_names,
        used=used,
        novelty=getattr(estimator, "novelty_", None),
    )
    return judged(found, times)


def _without_names(estimator: Any) -> Any:
    """Return a copy without feature names, which does not warn about rows without names."""
    unnamed = copy(estimator)
    if hasattr(unnamed, "feature_names_in_"):
        del unnamed.feature_names_in_
    return unnamed


def _model_rows(model: Any, shown: Any) -> tuple[Any, list[str]]:
    """Return the input of the clusterer, and the names of its columns."""
    steps = getattr(model, "steps", None)
    fitted_on = getattr(model, "feature_names_in_", None)
    if hasattr(shown, "iloc") and fitted_on is not None:
        absent = [one for one in fitted_on if one not in shown.columns]
        if absent:
            raise ValueError(
                f"data lacks the column {absent[0]!r}, which the model was fitted to. Pass the "
                "training table."
            )
        shown = shown[list(fitted_on)]
    names = [str(one) for one in shown.columns] if hasattr(shown, "iloc") else []
    rows = shown
    if steps and len(steps) > 1:
        before = model[:-1]
        rows, names = before.transform(shown), []
        with suppress(AttributeError, ValueError):  # a step without names
            names = [str(one) for one in before.get_feature_names_out()]
    if hasattr(rows, "iloc"):
        rows = rows.to_numpy()
    X = check_array(rows, accept_sparse="csr", dtype=[np.float64, np.float32], input_name="data")
    return X, names if len(names) == X.shape[1] else _numbered(X)


def _numbered(X: Any) -> list[str]:
    return [f"x{j}" for j in range(X.shape[1])]


def _labels(estimator: Any, X: Any) -> tuple[NDArray, bool]:
    """Return the clusters of the rows, and whether they are predicted."""
    # A model does not keep its rows: only `predict` knows whether these are the same ones.
    if hasattr(estimator, "predict"):
        return np.asarray(estimator.predict(X)), True
    labels = getattr(estimator, "labels_", None)
    if labels is not None and len(labels) == X.shape[0]:
        return np.asarray(labels), False
    if labels is None:
        raise TypeError(
            f"model {type(estimator).__name__} has neither labels_ nor predict. Pass a fitted "
            "clusterer."
        )
    raise ValueError(
        f"data has {X.shape[0]} rows, but the model was fitted to {len(labels)}, and "
        f"{type(estimator).__name__} cannot predict other rows. Pass the training rows."
    )


def _scores(estimator: Any, X: Any, labels: NDArray) -> tuple[NDArray, bool]:
    """Return the scores of the rows, and whether the method computed them itself."""
    if hasattr(estimator, "decision_function"):
        return np.asarray(estimator.decision_function(X), dtype=np.float64), True
    clusters, codes = np.unique(labels, return_inverse=True)
    if clusters.size == 1:
        return np.zeros(X.shape[0]), True
    rows = dense(X)
    spread = rows.std(axis=0)
    scaled = rows / np.where(spread > 0, spread, 1.0)
    means = np.stack([scaled[codes == i].mean(axis=0) for i in range(clusters.size)])
    # The squared norm of a row is left out: it is the same for all clusters.
    scores = 2 * scaled @ means.T - (means**2).sum(axis=1)
    return (scores[:, 1] - scores[:, 0] if clusters.size == 2 else scores), False
