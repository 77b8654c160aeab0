"""Agreement of a clustering with classes: errors after the best matching, and pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from volmar._checks import check_number
from volmar.metrics.contingency import contingency_table, encode_labels

__all__ = ["balanced_clustering_error", "clustering_error", "matched_labels", "pair_f_measure"]


def clustering_error(
    labels_true: ArrayLike, labels_pred: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    r"""Share of points outside the class that their cluster stands for.

    For two clusters this is the JMLR paper's clustering error rate,

    .. math:: \frac1n d_H(y, y^*) = \frac{1}{2n} \min(\|y + y^*\|_1, \|y - y^*\|_1)

    with labels of ±1, at most 1/2. In general each cluster is matched to at most one class and
    each class to at most one cluster, so as to make the error smallest; points of unmatched
    clusters and classes are errors.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,)
        Labels of any kind; neither the names nor the numbers of the labels need agree.
    sample_weight : array-like of shape (n,), default=None
        Weight of each point.

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
    r"""Mean over the classes of the error inside each class.

    For two classes this is SKMMC's eq. 31,
    :math:`B\_Err = \frac12 (Err^+ + Err^-)`, under the better of the two matchings. In general
    clusters are matched to classes one to one so as to make the mean smallest; a class without a
    cluster has the error 1.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,)
        Labels of any kind; neither the names nor the numbers of the labels need agree.
    sample_weight : array-like of shape (n,), default=None
        Weight of each point; classes without weight do not count.

    Returns
    -------
    float
        The error, from 0 (the same partition) to below 1.

    Examples
    --------
    One of eight points is wrong, but it is half of its class.

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
    """Return labels with the numbers of another labelling, so that most points agree.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,)
        Labels of any kind; neither the names nor the numbers of the labels need agree.

    Returns
    -------
    ndarray of shape (n,)
        For each point the place of the label that its cluster in `labels_pred` is matched with
        among the sorted labels of `labels_true`. Clusters without a match have the numbers after
        these.

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
    r"""F-measure over pairs of points (multivariate MMC eq. 6, 7 and 19).

    A pair in one cluster is a true positive if its points share a class and a false positive
    otherwise; a pair of one class in two clusters is a false negative:

    .. math:: F_\beta = \frac{(1 + \beta^2)\, TP}{(1 + \beta^2)\, TP + \beta^2 FN + FP}.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,)
        Labels of any kind.
    beta : float, default=1.0
        Above 1, splitting a class costs more than joining two. The paper leaves beta to the user
        and its table V takes 1.5.

    Returns
    -------
    float
        From 0 to 1 (the same partition). Partitions into single points agree: 1.

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
    # Beyond 1e100 it is the recall to all digits, and the square would not be a number.
    square = min(beta, 1e100) ** 2
    hits = (1 + square) * joined_in_both
    return float(hits / (hits + square * missed + false))


def _pairs(counts: np.ndarray) -> int:
    return int((counts * (counts - 1) // 2).sum())
