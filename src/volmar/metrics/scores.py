"""The usual scores of a labelling, each with a short explanation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, silhouette_score

from volmar._checks import check_count
from volmar._input import check_matrix
from volmar.graphs import nearest_neighbors_similarity
from volmar.metrics.contingency import encode_labels
from volmar.metrics.errors import clustering_error, pair_f_measure
from volmar.metrics.label_free import calinski_harabasz, imbalance, normalized_cut
from volmar.metrics.separation import msp_score, separation_score

# Maximum number of rows for silhouette and normalised cut, whose cost grows with n².
MOST_SAMPLED = 5000
# Maximum number of clusters for the separation scores, which solve k² problems of cost d³.
MOST_COMPARED = 200


class LabelScore(NamedTuple):
    """One score of a labelling."""

    name: str
    value: float | None
    better: str
    meaning: str


def label_free_scores(X: Any, labels: ArrayLike, *, seed: int = 0) -> list[LabelScore]:
    """Score a labelling without true classes.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, dense or CSR.
    labels : array of shape (n,)
        Labels of at least two clusters.
    seed : int, default=0
        Random seed of the sample of at most 5,000 rows for silhouette and normalised cut.

    Returns
    -------
    list of LabelScore
        Separation score, MSP, silhouette, Calinski-Harabasz, normalised cut between nearest
        neighbours, and imbalance.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from volmar.metrics import label_free_scores
    >>> X, y = load_iris(return_X_y=True)
    >>> for score in label_free_scores(X, y)[2:4]:
    ...     print(f"{score.name}: {score.value:.2f}")
    silhouette: 0.50
    Calinski-Harabasz: 487.33
    """
    check_count("seed", seed, low=0)
    X = check_matrix(X)
    codes, k = encode_labels(labels, "labels", X.shape[0])
    n = codes.size
    chosen: Any = slice(None)
    if n > MOST_SAMPLED:
        chosen = np.sort(np.random.default_rng(seed).choice(n, MOST_SAMPLED, replace=False))
    sampled, some = X[chosen], codes[chosen]
    of_sample = f" (of {some.size:,} rows)" if some.size < n else ""

    def separation(name: str, score: Callable[..., float], meaning: str) -> LabelScore:
        if k > MOST_COMPARED:
            return LabelScore(name, None, "higher", f"left out: {k} clusters have too many pairs")
        try:
            return LabelScore(name, score(X, codes), "higher", meaning)
        except MemoryError as error:
            return LabelScore(name, None, "higher", f"left out: {error}")

    ratio, meaning = None, "left out: every row is a cluster of its own"
    if k < n:
        ratio = calinski_harabasz(X, codes)
        meaning = "variance between clusters divided by that within; no upper limit"
    variance_ratio = LabelScore("Calinski-Harabasz", ratio, "higher", meaning)
    return [
        separation(
            "separation score",
            separation_score,
            "worst-case share of rows that a hyperplane classifies correctly; 1 is perfect",
        ),
        separation(
            "MSP",
            msp_score,
            "the same for the best hyperplane; high if a cluster has only a few outliers",
        ),
        _silhouette(sampled, some, of_sample),
        variance_ratio,
        _cut(sampled, some, of_sample),
        LabelScore(
            "imbalance",
            imbalance(codes),
            "",
            "cluster sizes: 0 if all are equal, near 1 if one is tiny; neither is wrong",
        ),
    ]


def _silhouette(X: Any, codes: NDArray, of_sample: str) -> LabelScore:
    k = np.unique(codes).size
    if not 1 < k < codes.size:
        why = f"left out: a sample of {codes.size} rows has {k} clusters"
        return LabelScore("silhouette", None, "higher", why)
    meaning = "how much closer rows are to their own cluster than to the next one; -1 to 1"
    value = float(silhouette_score(X, codes))
    return LabelScore("silhouette", value, "higher", meaning + of_sample)


def _cut(X: Any, codes: NDArray, of_sample: str) -> LabelScore:
    k = min(10, codes.size - 1)
    W = nearest_neighbors_similarity(X, n_neighbors=k)
    meaning = f"links between {k} nearest neighbours that are cut; 0 to the number of clusters"
    return LabelScore("normalised cut", normalized_cut(W, codes), "lower", meaning + of_sample)


def agreement_scores(labels_true: ArrayLike, labels_pred: ArrayLike) -> list[LabelScore]:
    """Score how well a labelling agrees with true classes."""
    true, _ = encode_labels(labels_true, "labels_true")
    pred, _ = encode_labels(labels_pred, "labels_pred")
    error, f_measure = clustering_error(true, pred), pair_f_measure(true, pred)
    nmi = float(normalized_mutual_info_score(true, pred, average_method="geometric"))
    ari = float(adjusted_rand_score(true, pred))
    outside = "share of rows outside the class matched to their cluster; 0 is perfect"
    information = "normalised mutual information of clusters and classes, from 0 to 1"
    rand = "adjusted Rand index: agreement on pairs of rows; 0 for random labels, 1 is perfect"
    pairs = "precision and recall of pairs in the same cluster, from 0 to 1"
    return [
        LabelScore("error", error, "lower", outside),
        LabelScore("NMI", nmi, "higher", information),
        LabelScore("ARI", ari, "higher", rand),
        LabelScore("F measure", f_measure, "higher", pairs),
    ]
