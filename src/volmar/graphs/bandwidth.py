"""Rules for the width `sigma` of a Gaussian similarity."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.sparsefuncs import mean_variance_axis

from volmar._checks import as_float, is_number, shown
from volmar.graphs.distances import centre, shift, upper_blocks
from volmar.graphs.validation import MatrixLike, check_points, is_constant

__all__ = ["distance_range", "mean_distance", "resolve_sigma", "rms_distance"]

_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RULE = re.compile(
    rf"\s*(?:(?P<factor>{_NUMBER})\s*\*\s*)?(?P<rule>[a-z]+)(?:\s*/\s*(?P<divisor>{_NUMBER}))?\s*"
)


def mean_distance(X: MatrixLike) -> float:
    """Compute the mean distance m_σ of the n (n - 1) / 2 pairs of points (JMLR 2013, eq. 27).

    The value is exact for any n and computed in blocks, in O(n² d) time and O(block · n) memory.
    For many more than 20,000 points, prefer `rms_distance`, which is linear in n.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        The points.

    Returns
    -------
    float
        The mean distance.

    Examples
    --------
    >>> from volmar.graphs import mean_distance
    >>> mean_distance([[0.0], [1.0], [3.0]])
    2.0
    """
    X = _about_mean(X)
    n = X.shape[0]
    total = 0.0
    for start, stop, D in upper_blocks(X):
        np.sqrt(D, out=D)
        width = stop - start
        # The square block on the diagonal has each pair twice.
        total += 0.5 * float(D[:, :width].sum()) + float(D[:, width:].sum())
    return total / (n * (n - 1) / 2)


def rms_distance(X: MatrixLike) -> float:
    """Compute the root of the mean squared distance over all n² ordered pairs, sqrt(2 tr cov).

    This is the sqrt(γ) of the sparse kernel MMC paper (section 5), in the usual form: the zero
    distance of a point to itself counts, and cov divides by n. The cost is O(nd).

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        The points.

    Returns
    -------
    float
        The root mean squared distance.

    Examples
    --------
    >>> from volmar.graphs import rms_distance
    >>> rms_distance([[0.0], [2.0]]) ** 2  # (0 + 4 + 4 + 0) / 4, to rounding  # doctest: +ELLIPSIS
    2.0...
    """
    X = check_points(X)
    if sp.issparse(X):
        variances = mean_variance_axis(sp.csr_matrix(X.astype(np.float64)), axis=0)[1]
    else:
        variances = X.var(axis=0, dtype=np.float64)
    return math.sqrt(2.0 * float(variances.sum()))


def distance_range(X: MatrixLike) -> float:
    """Compute the largest minus the smallest distance over all pairs of points.

    This is the σ_0 of the multivariate-loss paper, which uses tenths of it for its normalised cut.
    The value is exact, at the cost of `mean_distance`.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        The points.

    Returns
    -------
    float
        The range of the distances; zero for two points, which have only one distance.

    Examples
    --------
    >>> from volmar.graphs import distance_range
    >>> distance_range([[0.0], [1.0], [3.0]])
    2.0
    """
    X = _about_mean(X)
    smallest, largest = math.inf, 0.0
    for _, _, D in upper_blocks(X):
        largest = max(largest, float(D.max()))
        np.fill_diagonal(D, math.inf)  # leave out the distance of a point to itself
        smallest = min(smallest, float(D.min()))
    return math.sqrt(largest) - math.sqrt(smallest)


def resolve_sigma(X: MatrixLike, sigma: float | str = "mean") -> float:
    """Compute the width of a Gaussian similarity from a number or a rule.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        The points, used only if `sigma` is a rule.
    sigma : float or str, default="mean"
        A positive number, or ``[factor *] rule [/ divisor]``, where the rule is one of

        - ``mean``: the mean pairwise distance (`mean_distance`); ``"mean/10"`` is the width of the
          JMLR paper's artificial sets, ``"4*mean"`` to ``"mean/4"`` its grid on the benchmarks;
        - ``rms``: the root mean squared distance (`rms_distance`); ``"0.25*rms"`` to ``"4*rms"``
          is the grid of the sparse kernel MMC paper;
        - ``range``: the range of the distances (`distance_range`); ``"0.1*range"`` to ``"range"``
          is the grid of the multivariate-loss paper's normalised cut.

    Returns
    -------
    float
        The width, positive and finite.

    Examples
    --------
    >>> from volmar.graphs import resolve_sigma
    >>> resolve_sigma([[0.0], [1.0], [3.0]], "mean/10")
    0.2
    """
    rule = parse_sigma(sigma)
    if isinstance(rule, float):
        return rule
    factor, name, divisor = rule
    X = check_points(X)
    if is_constant(X):
        raise ValueError(
            f"sigma={sigma!r} is computed from the distances between points, but all {X.shape[0]} "
            "rows of X are the same point. Give sigma as a number, or check that X was loaded "
            "correctly."
        )
    value = factor * _RULES[name](X) / divisor
    if not 0 < value < math.inf:
        raise ValueError(
            f"sigma={sigma!r} gives {value} on these points (the range of two points is zero, and "
            "factors can overflow). Give sigma as a number, or use 'mean'."
        )
    return value


def parse_sigma(sigma: float | str) -> float | tuple[float, str, float]:
    """Return a number as a float, and a rule as (factor, name, divisor); reject other values."""
    if isinstance(sigma, str):
        match = _RULE.fullmatch(sigma)
        if match and match["rule"] in _RULES:
            factor, divisor = (float(match[part] or 1) for part in ("factor", "divisor"))
            if 0 < factor < math.inf and 0 < divisor < math.inf:
                return factor, match["rule"], divisor
    elif is_number(sigma):
        number = as_float(sigma)
        if 0 < number < math.inf:
            return number
    raise ValueError(
        f"sigma must be a positive number or a rule such as 'mean', 'mean/10', '2*rms' or "
        f"'0.3*range' (a positive factor or divisor of {', '.join(_RULES)}); got {shown(sigma)}."
    )


def _about_mean(X: MatrixLike) -> Any:
    X = check_points(X)
    return shift(X, centre(X))


_RULES = {"mean": mean_distance, "rms": rms_distance, "range": distance_range}
