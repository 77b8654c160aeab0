"""Agreement of two partitions by pairs of points: no matching needed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from volmar.metrics.contingency import contingency_table

__all__ = ["pair_f_measure"]


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


def _pairs(counts: np.ndarray) -> int:
    return int((counts * (counts - 1) // 2).sum())
