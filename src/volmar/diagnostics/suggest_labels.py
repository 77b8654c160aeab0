"""Suggestion of rows to label: border rows on which fits to halves of the rows disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from volmar._checks import check_count, check_random_state
from volmar._clones import refuse_pairwise, seeded
from volmar._input import check_matrix, known_values
from volmar._warn import collecting
from volmar.evidence.novelty import WIDE, Sketch
from volmar.metrics import matched_labels
from volmar.rows import draw_from_collection, is_dask

__all__ = ["LabelSuggestions", "label_suggestions", "suggest_labels"]

# Maximum number of rows that are fitted in halves, and number of random halvings.
FITTED_ROWS, N_HALVINGS = 2000, 4
# Size of the pool of rows nearest to the borders from which suggestions are chosen: a fraction of
# the rows, up to a maximum number, but at least POOL_EACH rows per suggestion.
POOL_SHARE, POOL_ROWS, POOL_EACH = 0.25, 2000, 5
# Weight of a border row without disagreement, relative to one on which all halves differ.
AGREED = 0.01
# Rows are in different regions beyond this quantile of the distances to the mean of the pool.
REACH = 0.5


@dataclass(frozen=True)
class LabelSuggestions:
    """Rows to label, the most useful first.

    Attributes
    ----------
    rows : ndarray of int, shape (m,)
        Indices of the rows.
    clusters, rivals : ndarray of int, shape (m,)
        Cluster of each row, and the cluster with the second-best score.
    disagreement : ndarray of shape (m,)
        Fraction of the fits to halves of the rows that assign the row to another cluster.
    """

    rows: NDArray[np.int64]
    clusters: NDArray[np.int64]
    rivals: NDArray[np.int64]
    disagreement: NDArray[np.float64]


def suggest_labels(
    model: Any,
    X: Any,
    n: int = 10,
    *,
    y: ArrayLike | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> NDArray[np.int64]:
    """Return the rows whose labels would be most informative, the most useful first.

    These are rows near a border between two clusters on which clusterings of random halves of the
    rows disagree. They are chosen successively in different regions: the weight of a row decreases
    if it is close to a row that was chosen before or is already labelled.

    Parameters
    ----------
    model : clusterer
        Fitted clusterer with `predict` and more than one cluster, of volmar or any other library.
    X : array of shape (n_samples, n_features)
        Rows, in the form that `predict` expects. From a dask collection, 20,000 rows are drawn at
        random.
    n : int, default=10
        Number of rows to suggest.
    y : array of shape (n_samples,), optional
        Known labels, -1 for unlabelled rows. Labelled rows are not suggested.
    random_state : int, RandomState or None, default=None
        Random seed of the halves, and of the fits if the model has none.

    Returns
    -------
    ndarray of int, shape (n,)
        Row indices. There are fewer than n if X has fewer distinct unlabelled rows.

    Notes
    -----
    Eight halves of at most 2,000 rows are clustered. All other steps take time linear in the
    number of rows.

    Examples
    --------
    >>> from volmar import MSPC
    >>> from volmar.datasets import make_blobs
    >>> from volmar.diagnostics import suggest_labels
    >>> X, _ = make_blobs(300, random_state=0)
    >>> model = MSPC(random_state=0).fit(X)
    >>> suggest_labels(model, X, 3, random_state=0).shape
    (3,)
    """
    check_count("n", n)
    if isinstance(model, type) or not hasattr(model, "predict"):
        name = model.__name__ if isinstance(model, type) else type(model).__name__
        raise TypeError(
            f"model must be a fitted clusterer with predict, got {name}. Pass a fitted instance."
        )
    check_is_fitted(model)
    refuse_pairwise(model)
    rng = check_random_state(random_state)
    numbers = None
    if is_dask(X):
        drawn = draw_from_collection(X, y, seed=int(rng.randint(2**31 - 1)))
        X, y, numbers = drawn.rows, drawn.beside[0], drawn.numbers
    rows = check_matrix(X)
    labels = np.asarray(model.predict(X))
    scores = model.decision_function(X) if hasattr(model, "decision_function") else None
    found = label_suggestions(rows, labels, scores, model, n, y=y, random_state=rng)
    return found.rows if numbers is None else numbers[found.rows]


def label_suggestions(
    X: Any,
    labels: NDArray,
    scores: ArrayLike | None,
    clusterer: Any,
    n: int,
    *,
    y: ArrayLike | None = None,
    fit_rows: Any = None,
    random_state: int | np.random.RandomState | None = None,
) -> LabelSuggestions:
    """Suggest rows to label as `suggest_labels`, with their clusters and rivals.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        Rows, dense or CSR.
    labels : ndarray of int, shape (n_samples,)
        Cluster of each row; -1 for none.
    scores : array of shape (n_samples,) or (n_samples, n_clusters), or None
        Scores of the rows. If None, distances to the cluster means are used.
    clusterer : clusterer
        Clusterer for halves of the rows; it need not be fitted.
    n : int
        Number of suggestions.
    y : array of shape (n_samples,), optional
        Known labels, -1 for unlabelled rows.
    fit_rows : array of shape (n_samples, n_features), optional
        Rows to which the clusterer is fitted. If None, `X`.
    random_state : int, RandomState or None, default=None
        Random seed of the halves and the fits.

    Returns
    -------
    LabelSuggestions
    """
    clusters = np.unique(labels[labels >= 0])
    if clusters.size < 2:
        raise ValueError(
            f"the model has {clusters.size} cluster in these rows, so that there is no border "
            "between clusters. Use a model with more clusters."
        )
    known = _known(y, X.shape[0])
    rng = check_random_state(random_state)
    margin, rivals = _margins(X, labels, scores)
    is_free = ~known & (labels >= 0)
    free = np.flatnonzero(is_free)
    size = max(min(POOL_ROWS, round(POOL_SHARE * free.size)), POOL_EACH * n)
    pool = np.sort(free[np.argsort(margin[free], kind="stable")[:size]])
    votes = _votes(X, X if fit_rows is None else fit_rows, labels, pool, clusterer, rng)
    own = labels[pool]
    disagreement = (votes != own).mean(axis=0) if len(votes) else np.zeros(len(pool))
    useful = (AGREED + _split(np.vstack([own, votes]))) / (1.0 + margin[pool])
    chosen = _spread_out(_coordinates(X, pool, np.flatnonzero(known), rng), useful, n)
    rows = pool[chosen].astype(np.int64)
    return LabelSuggestions(
        rows,
        labels[rows].astype(np.int64),
        rivals[rows].astype(np.int64),
        disagreement[chosen],
    )


def _known(y: ArrayLike | None, n: int) -> NDArray[np.bool_]:
    if y is None:
        return np.zeros(n, dtype=bool)
    return known_values(y, "y", n)[1]


def _margins(X: Any, labels: NDArray, scores: Any) -> tuple[NDArray[np.float64], NDArray]:
    """Return distances of rows to the border, with median 1 for each pair, and their rivals."""
    clusters, codes = np.unique(labels, return_inverse=True)
    if scores is None:
        matrix, names = -_distances_to_means(X, codes, clusters.size), clusters
    else:
        matrix = np.asarray(scores, dtype=np.float64)
        if matrix.ndim == 1:
            matrix = np.column_stack([-matrix, matrix])
        names = np.arange(matrix.shape[1])
    matrix = np.where(names < 0, -np.inf, matrix)
    place = np.minimum(np.searchsorted(names, labels), names.size - 1)
    every = np.arange(len(labels))
    own = matrix[every, place]
    matrix[every, place] = -np.inf
    rival = np.argmax(matrix, axis=1)
    margin = np.maximum(own - matrix[every, rival], 0.0)
    pair = np.minimum(place, rival) * names.size + np.maximum(place, rival)
    kinds, of_pair = np.unique(pair, return_inverse=True)
    for kind in range(kinds.size):
        inside = of_pair == kind
        unit = float(np.median(margin[inside]))
        if np.isfinite(unit) and unit > 0:
            margin[inside] /= unit
    return np.nan_to_num(margin, nan=np.inf, posinf=np.finfo(np.float64).max), names[rival]


def _distances_to_means(X: Any, codes: NDArray, k: int) -> NDArray[np.float64]:
    """Return squared distances to the means of clusters, in standardised columns."""
    n = X.shape[0]
    scale = _scales(X)
    one = sparse.csr_array((np.ones(n), (codes, np.arange(n))), shape=(k, n))
    total = one @ X
    means = np.asarray(total.toarray() if sparse.issparse(total) else total)
    means = means / np.asarray(one.sum(axis=1)).reshape(-1, 1) / scale
    if sparse.issparse(X):
        products = np.asarray(X @ (means / scale).T)
    else:
        products = np.asarray(X, dtype=np.float64) @ (means / scale).T
    # The squared norm of a row is the same for all clusters, and is left out.
    return (means**2).sum(axis=1) - 2 * products


def _scales(X: Any) -> NDArray[np.float64]:
    """Return standard deviations of the columns, 1 for constant ones."""
    if sparse.issparse(X):
        mean = np.asarray(X.mean(axis=0)).ravel()
        square = np.asarray(X.multiply(X).mean(axis=0)).ravel()
        deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    else:
        deviation = np.asarray(X, dtype=np.float64).std(axis=0)
    return np.where(deviation > 0, deviation, 1.0)


def _votes(
    X: Any, fit_rows: Any, labels: NDArray, pool: NDArray, clusterer: Any, rng: Any
) -> NDArray[np.int64]:
    """Return the clusters of the pool by fits to halves of the rows, one row per fit."""
    n, k = X.shape[0], np.unique(labels[labels >= 0]).size
    sample = np.sort(rng.choice(n, min(n, FITTED_ROWS), replace=False))
    made = seeded(clusterer, int(rng.randint(2**31 - 1)))
    if "n_clusters" in made.get_params(deep=False):
        made.set_params(n_clusters=k)
    both = np.concatenate([sample, pool])
    clusters, own = np.unique(labels[both], return_inverse=True)
    votes = []
    for _ in range(N_HALVINGS):
        order = rng.permutation(sample)
        for half in (order[: len(order) // 2], order[len(order) // 2 :]):
            # The fit of the model has warned already.
            with collecting(), np.errstate(all="ignore"):
                try:
                    fitted = seeded(made, 0).fit(fit_rows[np.sort(half)])
                    found = np.asarray(fitted.predict(X[both]))
                except ValueError:  # a half that cannot be clustered
                    continue
            found = np.unique(found, return_inverse=True)[1].ravel()
            votes.append(matched_labels(own, found)[len(sample) :])
    places = np.array(votes, dtype=np.int64).reshape(-1, len(pool))
    # Clusters of a half without a counterpart in the model get new numbers.
    names = np.append(clusters, np.arange(1, places.max(initial=0) + 2) + clusters[-1])
    return names[places]


def _split(votes: NDArray) -> NDArray[np.float64]:
    """Return the fraction of votes against the most frequent cluster, for each column."""
    names = np.unique(votes)
    counts = np.array([(votes == name).sum(axis=0) for name in names])
    return 1.0 - counts.max(axis=0) / len(votes)


def _coordinates(X: Any, pool: NDArray, known: NDArray, rng: Any) -> tuple[NDArray, NDArray]:
    """Return the pool, and at most the same number of labelled rows, in standardised columns."""
    if known.size > pool.size:
        known = np.sort(rng.choice(known, pool.size, replace=False))
    scale = _scales(X)
    sketch = Sketch.draw(X.shape[1], rng) if X.shape[1] > WIDE else None
    out = []
    for numbers in (pool, known):
        part = X[numbers]
        part = part.multiply(1.0 / scale).tocsr() if sparse.issparse(part) else part / scale
        if sketch is not None:
            part = sketch.of(part)
        dense = part.toarray() if sparse.issparse(part) else part
        out.append(np.asarray(dense, dtype=np.float64))
    return out[0], out[1]


def _spread_out(points: tuple[NDArray, NDArray], useful: NDArray, n: int) -> NDArray[np.intp]:
    """Choose useful rows successively, each far from those before and from labelled rows."""
    pool, known = points
    if not len(pool):
        return np.empty(0, dtype=np.intp)
    centred = np.sqrt(((pool - pool.mean(axis=0)) ** 2).sum(axis=1))
    reach = float(np.quantile(centred, REACH)) or 1.0
    near = np.full(len(pool), reach)
    for row in known:
        near = np.minimum(near, np.sqrt(((pool - row) ** 2).sum(axis=1)))
    chosen: list[int] = []
    while len(chosen) < n:
        worth = useful * near
        best = int(np.argmax(worth))
        if not worth[best] > 0:
            break
        chosen.append(best)
        near = np.minimum(near, np.sqrt(((pool - pool[best]) ** 2).sum(axis=1)))
        near[best] = 0.0
    return np.array(chosen, dtype=np.intp)
