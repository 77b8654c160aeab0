"""Agreement of a clustering with classes: errors after the best matching, and pair counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from volmar._checks import check_number
from volmar.metrics.contingency import contingency_table, encode_labels


def clustering_error(
    labels_true: ArrayLike, labels_pred: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    r"""Share of rows outside the class that their cluster is matched to.

    For two clusters this is the JMLR paper's clustering error rate,

    .. math:: \frac1n d_H(y, y^*) = \frac{1}{2n} \min(\|y + y^*\|_1, \|y - y^*\|_1)

    with labels of ±1, and is at most 1/2. In general, each cluster is matched to at most one class
    and each class to at most one cluster, so that the error is as small as possible. Rows of
    unmatched clusters and classes are errors.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,)
        Labels of any type. The two arrays may have different label values and different numbers
        of labels.
    sample_weight : array-like of shape (n,), default=None
        Weight of each row. If None, all rows have weight 1.

    Returns
    -------
    float
        The error, from 0 (the same partition) to below 1.

    Examples
    --------
    >>> clustering_error(["a", "a", "b", "b"], [1, 1, 0, 1])
    0.25
    """
    table = contingency_table(labels_true, labels_pred, sample_weight)
    total = table.sum()
    matched = table[linear_sum_assignment(table, maximize=True)].sum()
    return float(max(total - matched, 0) / total)


def balanced_clustering_error(
    labels_true: ArrayLike, labels_pred: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    r"""Mean over the classes of the error within each class.

    For two classes this is SKMMC's eq. 31,
    :math:`B\_Err = \frac12 (Err^+ + Err^-)`, under the better of the two matchings. In general,
    clusters are matched to classes one to one so that the mean is as small as possible. A class
    without a cluster has an error of 1.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,)
        Labels of any type. The two arrays may have different label values and different numbers
        of labels.
    sample_weight : array-like of shape (n,), default=None
        Weight of each row. If None, all rows have weight 1. Classes of total weight 0 are ignored.

    Returns
    -------
    float
        The error, from 0 (the same partition) to below 1.

    Examples
    --------
    One of eight rows is wrong, but it is half of its class.

    >>> balanced_clustering_error([0, 0, 0, 0, 0, 0, 1, 1], [1, 1, 1, 1, 1, 1, 0, 1])
    0.25
    """
    table = contingency_table(labels_true, labels_pred, sample_weight)
    sizes = table.sum(axis=1)
    table, sizes = table[sizes > 0], sizes[sizes > 0]
    hits = table / sizes[:, None]
    rows, columns = linear_sum_assignment(hits, maximize=True)
    found = np.zeros_like(sizes)
    found[rows] = table[rows, columns]
    return float(np.mean((sizes - found) / sizes))


def matched_labels(labels_true: ArrayLike, labels_pred: ArrayLike) -> NDArray[np.intp]:
    """Renumber the clusters of a labelling so that as many rows as possible agree with another.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,)
        Labels of any type. The two arrays may have different label values and different numbers
        of labels.

    Returns
    -------
    ndarray of shape (n,)
        New number of each row's cluster in `labels_pred`: the index of the matched label among the
        sorted labels of `labels_true`. Unmatched clusters get the numbers after these.

    Examples
    --------
    >>> matched_labels(["a", "a", "b", "b"], [7, 7, 3, 5])
    array([0, 0, 1, 2])
    """
    table = contingency_table(labels_true, labels_pred)
    n_true, n_pred = table.shape
    classes, clusters = linear_sum_assignment(table, maximize=True)
    number = np.full(n_pred, -1)
    number[clusters] = classes
    number[number < 0] = n_true + np.arange(n_pred - clusters.size)
    return number[encode_labels(labels_pred, "labels_pred")[0]]


def pair_f_measure(labels_true: ArrayLike, labels_pred: ArrayLike, *, beta: float = 1.0) -> float:
    r"""F-measure over pairs of rows (multivariate MMC eq. 6, 7 and 19).

    A pair in the same cluster is a true positive if its rows are in the same class, and a false
    positive otherwise. A pair of the same class in two clusters is a false negative:

    .. math:: F_\beta = \frac{(1 + \beta^2)\, TP}{(1 + \beta^2)\, TP + \beta^2 FN + FP}.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,)
        Labels of any type.
    beta : float, default=1.0
        With beta above 1, splitting a class costs more than joining two classes. The paper leaves
        beta to the user, and uses 1.5 in its table V.

    Returns
    -------
    float
        From 0 to 1 (the same partition). The value is 1 if both partitions have only clusters of
        a single row.

    Examples
    --------
    >>> round(pair_f_measure([0, 0, 1, 1], [0, 0, 0, 1]), 6)
    0.4
    """
    beta = check_number("beta", beta, low=0.0, open_low=True)
    table = contingency_table(labels_true, labels_pred)
    joined_in_both = _pairs(table)
    missed = _pairs(table.sum(axis=1)) - joined_in_both
    false = _pairs(table.sum(axis=0)) - joined_in_both
    if joined_in_both + missed + false == 0:
        return 1.0
    if joined_in_both == 0:
        return 0.0
    # For beta above 1e100 the measure equals the recall to all digits, and beta² may overflow.
    square = min(beta, 1e100) ** 2
    hits = (1 + square) * joined_in_both
    return float(hits / (hits + square * missed + false))


def _pairs(counts: np.ndarray) -> int:
    return int((counts * (counts - 1) // 2).sum())
