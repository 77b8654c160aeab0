"""`compare_methods`: cluster the same rows by several methods."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from volmar._clones import MOST_FITTED
from volmar._warn import collecting
from volmar.metrics import label_free_scores
from volmar.metrics.scores import LabelScore
from volmar.report.drivers import sampled
from volmar.report.outcome import Progress
from volmar.table_clusterer.estimator import clusterer_names, find_name, new_clusterer

# One method of each family, and k-means as the usual baseline.
DEFAULT_METHODS = ("AutoClusterer", "MSPC", "SoftLabelMVC", "KMeans")


@dataclass(frozen=True)
class MethodRun:
    """The clusters of one method, numbered so that most rows agree with the first method.

    `seconds` are those of the fit and of the prediction of rows that were not fitted. `scores` is
    empty if the method found a single cluster.
    """

    method: str
    labels: NDArray
    seconds: float
    scores: list[LabelScore]
    n_fitted: int

    @property
    def n_clusters(self) -> int:
        """Number of clusters that have rows."""
        return len(np.unique(self.labels))


@dataclass
class Comparison:
    """The result of `compare_methods`.

    Attributes
    ----------
    n_rows, n_columns : int
        Number of rows and columns.
    n_clusters : int
        Number of clusters that the methods were asked for.
    runs : list of MethodRun
        The methods that completed.
    left_out : dict of str to str
        The methods that failed, and the reason for each.
    warnings : list of str
        Warnings of the fits, one line each.
    notes : list of str
        How the number of clusters was chosen, one line each.
    """

    n_rows: int = 0
    n_columns: int = 0
    n_clusters: int = 2
    runs: list[MethodRun] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def agreement(self) -> NDArray[np.float64]:
        """Return the adjusted Rand index of all pairs of methods.

        Returns
        -------
        ndarray of shape (n_methods, n_methods)
            1 for equal clusters, about 0 for independent ones.
        """
        from sklearn.metrics import adjusted_rand_score

        labels = [run.labels for run in self.runs]
        return np.array([[adjusted_rand_score(a, b) for b in labels] for a in labels])

    def summary(self) -> dict[str, Any]:
        """Return the comparison as plain values, ready for `json.dumps`."""
        return {
            "rows compared": self.n_rows,
            "columns": self.n_columns,
            "n_clusters": self.n_clusters,
            "methods": {
                run.method: {
                    "clusters": np.unique(run.labels, return_counts=True)[1].tolist(),
                    "rows fitted": run.n_fitted,
                    "seconds": run.seconds,
                    "scores": {one.name: one.value for one in run.scores},
                }
                for run in self.runs
            },
            "agreement": {
                "methods": [run.method for run in self.runs],
                "adjusted Rand index": self.agreement().tolist(),
            },
            "left out": self.left_out,
            "warnings": self.warnings,
            "notes": self.notes,
        }


def compare_methods(
    X: Any,
    methods: Sequence[str] = DEFAULT_METHODS,
    *,
    n_clusters: int | str = "auto",
    fit_rows: Any = None,
    random_state: int = 0,
    progress: Progress | None = None,
    into: Comparison | None = None,
) -> Comparison:
    """Cluster rows by several methods, and score the clusters without true labels.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, dense or CSR. They should be scaled, because some methods depend on units.
    methods : sequence of str, default=("AutoClusterer", "MSPC", "SoftLabelMVC", "KMeans")
        Names of clusterers of volmar, or "KMeans" for that of scikit-learn.
    n_clusters : int or "auto", default="auto"
        Number of clusters. With "auto", the number for which `AutoClusterer` finds evidence, and
        2 if it finds none.
    fit_rows : array of shape (n, d), default=None
        The rows to fit, such as dithered ones. If None, `X`.
    random_state : int, default=0
        Random seed of the methods, and of the sample of rows if a method is fitted to a sample.
    progress : callable, default=None
        Called as ``progress(stage, done, total)``.
    into : Comparison, default=None
        Result to which each method is added when it completes, so that it is not lost if the
        comparison is interrupted. If None, a new one is created.

    Returns
    -------
    Comparison
        The clusters and scores of all methods.

    Examples
    --------
    >>> from volmar.datasets import make_blobs
    >>> from volmar.table_clusterer import compare_methods
    >>> X, _ = make_blobs(200, centers=3, random_state=0)
    >>> found = compare_methods(X, ["MSPC", "KMeans"])
    >>> found.n_clusters, [run.method for run in found.runs]
    (3, ['MSPC', 'KMeans'])
    """
    names = spelled(methods, "methods: ")
    found = Comparison() if into is None else into
    found.n_rows, found.n_columns = X.shape
    rows = X if fit_rows is None else fit_rows
    ready: dict[str, tuple[MethodRun, list[str]]] = {}
    if n_clusters == "auto":
        if progress is not None:
            progress("looking for groups", 0, 0)
        ready = _by_evidence(X, rows, random_state, found)
    else:
        found.n_clusters = int(n_clusters)
    fits = [name for name in names if name not in ready]
    for name in names:
        if progress is not None and name in fits:
            done = fits.index(name)
            progress(f"comparing: {name} ({done + 1} of {len(fits)})", done, len(fits))
        try:
            run, texts = ready.get(name) or _fit(X, rows, name, found.n_clusters, random_state)
            if 1 < run.n_clusters < len(run.labels):
                scores = label_free_scores(X, run.labels, seed=random_state)
                run = replace(run, scores=scores)
        except (ValueError, TypeError, MemoryError, ArithmeticError) as error:
            found.left_out[name] = _one_line(error)
            continue
        if found.runs:
            run = replace(run, labels=_numbered_as(found.runs[0].labels, run.labels))
        found.runs.append(run)
        found.warnings += [f"{name}: {text}" for text in texts]
    return found


def spelled(methods: Sequence[str], argument: str) -> list[str]:
    """Return the names of methods in the spelling of volmar, without duplicates."""
    known = [*clusterer_names(), "KMeans"]
    return list(dict.fromkeys(find_name(one, known, argument) for one in methods))


def _fit(
    X: Any, rows: Any, name: str, n_clusters: int | str, seed: int
) -> tuple[MethodRun, list[str]]:
    """Return the clusters of a method, without scores, and the warnings of the fit."""
    from sklearn.cluster import KMeans

    n = X.shape[0]
    size = min(MOST_FITTED.get(name, n), n)
    if size < n:
        rows = rows[sampled(n, size, seed)]
    given = KMeans(n_init=10) if name == "KMeans" else name
    estimator = new_clusterer(given, n_clusters=n_clusters, random_state=seed)
    with collecting() as messages:
        start = time.perf_counter()
        estimator.fit(rows)
        labels = estimator.labels_ if rows is X else _predicted(estimator, X)
        seconds = time.perf_counter() - start
    texts = list(dict.fromkeys(_one_line(one.text) for one in messages))
    codes = np.unique(labels, return_inverse=True)[1]
    return MethodRun(name, codes, seconds, [], size), texts


def _predicted(estimator: Any, X: Any) -> NDArray:
    """Predict in pieces, because kernels with all rows at once would need much memory."""
    starts = range(0, X.shape[0], 20_000)
    return np.concatenate([estimator.predict(X[start : start + 20_000]) for start in starts])


def _numbered_as(first: NDArray, labels: NDArray) -> NDArray:
    """Renumber labels to agree with `first` on as many rows as possible."""
    k = int(max(first.max(), labels.max())) + 1
    together = sparse.coo_array((np.ones(len(labels)), (labels, first)), shape=(k, k)).toarray()
    return linear_sum_assignment(together, maximize=True)[1][labels]


def _by_evidence(
    X: Any, rows: Any, seed: int, found: Comparison
) -> dict[str, tuple[MethodRun, list[str]]]:
    """Set the number of clusters for which AutoClusterer finds evidence, and return its clusters.

    Without evidence the number is 2 and nothing is returned, because 2 clusters are another fit.
    """
    from volmar.evidence.split_test import FEWEST_ROWS

    found.n_clusters = 2
    if X.shape[0] < FEWEST_ROWS:
        found.notes.append(
            f"{X.shape[0]} rows are too few to test a split; the methods have 2 clusters"
        )
        return {}
    tested = _fit(X, rows, "AutoClusterer", "auto", seed)
    n_found = tested[0].n_clusters
    if n_found == 1:
        found.notes.append(
            "there is no evidence for a split of these rows; the methods are compared with 2 "
            "clusters anyway"
        )
        return {}
    found.notes.append(f"AutoClusterer finds evidence for {n_found} clusters")
    found.n_clusters = n_found
    return {"AutoClusterer": tested}


def _one_line(error: Any) -> str:
    return " ".join(str(error).split()) or type(error).__name__
