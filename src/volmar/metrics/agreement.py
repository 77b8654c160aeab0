"""Agreement of two partitions by pairs of points and by information: no matching needed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import normalized_mutual_info_score, rand_score

from volmar.metrics.contingency import contingency_table, encode_pair

__all__ = ["normalized_mutual_information", "pair_f_measure", "rand_index"]


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
    if not 0 < beta < math.inf:
        raise ValueError(
            f"beta must be a positive finite number, got {beta!r}; the paper takes 1.5."
        )
    table = contingency_table(labels_true, labels_pred)
    joined_in_both = _pairs(table)
    missed = _pairs(table.sum(axis=1)) - joined_in_both
    false = _pairs(table.sum(axis=0)) - joined_in_both
    if joined_in_both + missed + false == 0:
        return 1.0
    hits = (1 + beta**2) * joined_in_both
    return float(hits / (hits + beta**2 * missed + false))


def rand_index(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Share of pairs on which the partitions agree (multivariate MMC eq. 5).

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,)
        Labels of any kind.

    Returns
    -------
    float
        From 0 to 1 (the same partition); scikit-learn's `rand_score`.

    Examples
    --------
    >>> rand_index([0, 0, 1, 1], [0, 0, 0, 1])
    0.5
    """
    true, _, pred, _ = encode_pair(labels_true, labels_pred)
    return float(rand_score(true, pred))


def normalized_mutual_information(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    r"""Mutual information over the geometric mean of the entropies (multivariate MMC eq. 2).

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,)
        Labels of any kind.

    Returns
    -------
    float
        From 0 (independent) to 1 (the same partition); scikit-learn's
        `normalized_mutual_info_score` with the paper's mean. Where the formula is 0/0 it is 0 if
        one labelling has one cluster, 1 if both have.

    Examples
    --------
    >>> round(normalized_mutual_information([0, 0, 1, 1], [1, 1, 0, 0]), 6)
    1.0
    """
    true, _, pred, _ = encode_pair(labels_true, labels_pred)
    return float(normalized_mutual_info_score(true, pred, average_method="geometric"))


def _pairs(counts: np.ndarray) -> int:
    return int((counts * (counts - 1) // 2).sum())
