"""Margins and the separation probability: Theorems 4 and 5 of MSPC."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmar._checks import check_choice, check_number
from volmar._eigen import eigenvalues
from volmar._input import check_matrix
from volmar._threads import one_thread
from volmar._vectors import check_vector
from volmar.metrics.contingency import encode_labels
from volmar.rows import as_rows, centered_with_moments, is_wide, row_space

__all__ = ["msp_from_margin", "normalized_margin", "relative_margin", "relative_margin_share"]

# Tolerance of r1 r2 margin² <= 1, which holds for all data up to rounding.
_ROUNDING = 1e-9


@one_thread()
def normalized_margin(X: Any, labels: ArrayLike, coef: ArrayLike) -> float:
    r"""Margin between two clusters along a direction, divided by the largest standard deviation.

    This is :math:`\delta / \sigma_{max}`, the "normalized margin" of the MSPC paper. With
    :math:`w` of length 1 in the direction of `coef`,

    .. math:: \delta = \min_{i \in 1} w'x_i - \max_{i \in 2} w'x_i

    is the *full* width of the gap (:math:`2 / \|w\|` in the notation of support vector machines).
    :math:`\sigma_{max}^2` is the largest eigenvalue of the covariance of X.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        The rows, in memory.
    labels : array-like of shape (n,)
        Labels of two clusters.
    coef : array-like of shape (d,) or (1, d)
        Normal of a hyperplane, such as `coef_` of `volmar.CPMMC`. Its length and sign do not
        matter.

    Returns
    -------
    float
        The margin, negative if the clusters overlap along `coef`.

    See Also
    --------
    msp_from_margin : The separation probability that such a margin guarantees.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.metrics import normalized_margin
    >>> round(normalized_margin(np.array([[0.0], [1.0], [4.0], [5.0]]), [0, 0, 1, 1], [1.0]), 3)
    1.455
    """
    X = check_matrix(X)
    n, d = X.shape
    codes, k = encode_labels(labels, "labels", n)
    _require_two(k)
    is_row = isinstance(coef, np.ndarray) and coef.ndim == 2 and len(coef) == 1
    w = check_vector("coef", coef[0] if is_row else coef)  # type: ignore[index]
    if w.size != d:
        raise ValueError(
            f"coef has {w.size} entries, but X has {d} features. Pass one coefficient per feature."
        )
    largest = float(np.abs(w).max())
    if largest == 0.0:
        raise ValueError("coef must not be 0 in all entries. Pass the normal of a hyperplane.")
    w = w / largest
    rows = as_rows(X)
    if is_wide(rows):
        covariance = row_space(rows, standardize=False).correlation
    else:
        rows, moments = centered_with_moments(rows)
        covariance = moments.covariance()
    size = covariance.shape[0]
    sigma = math.sqrt(max(float(eigenvalues(covariance, (size - 1, size - 1))[0]), 0.0))
    if sigma == 0.0:
        raise ValueError(
            "all rows of X are equal, so there is no margin. Check that X was loaded correctly."
        )
    scores = rows.scores(w / np.linalg.norm(w)).astype(np.float64, copy=False)
    one, two = scores[codes == 1], scores[codes == 0]
    gap = max(float(one.min() - two.max()), float(two.min() - one.max()))
    return gap / sigma


def msp_from_margin(margin: float, share: float) -> float:
    r"""Separation probability that a margin between two clusters guarantees (MSPC theorem 4).

    .. math::

        p \ge \frac{1}{2 \min(r_1, r_2)^{-1} (\sigma_{max} / \delta)^2 - 2 \max(r_1, r_2) + 1}

    for two clusters with shares :math:`r_1 + r_2 = 1` and a gap of width :math:`\delta` between
    them. Here :math:`p` is the minimum separation probability without a regulariser,
    ``msp_score(X, labels, reg=0)``. A margin guarantees a high probability if it is large
    *relative to the spread of the data*.

    The bound follows from theorem 2 along the normal of the hyperplane. In this direction, the
    means are at least :math:`\delta` apart, and the variance is at most :math:`\sigma_{max}^2`.
    The paper does not define the margin :math:`\delta`. The proof holds for the full width of the
    gap. Half of the width, the other usual definition, gives a valid bound that is about four
    times smaller. No row may lie in the gap: a soft margin guarantees nothing. The bound is loose,
    because most rows are usually far from the border of the gap.
    """
    margin = check_number("margin", margin)
    share = check_number("share", share, low=0.0, high=1.0)
    if not 0.0 < share < 1.0:
        raise ValueError(
            f"share must be strictly between 0 and 1, got {share:g}. A cluster without rows has "
            "no margin."
        )
    smaller = min(share, 1.0 - share)
    weighted = smaller * margin * margin
    if margin <= 0.0 or weighted == 0.0:
        return 0.0
    if (1.0 - smaller) * weighted > 1.0 + _ROUNDING:
        most = 1.0 / math.sqrt(share * (1.0 - share))
        raise ValueError(
            f"margin={margin:g} is impossible with share={share:g}. The means of two clusters are "
            f"at most {most:g} times the largest standard deviation apart. Divide the margin by "
            "this standard deviation, or use normalized_margin."
        )
    return 1.0 / max(2.0 / weighted - 2.0 * (1.0 - smaller) + 1.0, 1.0)


def relative_margin(scores: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    r"""Relative margin of each row, :math:`|w'x_i + b| / \Delta` of the MSPC paper (theorem 5).

    :math:`\Delta = |w'(\mu_1 - \mu_2)|` is the distance between the means of two clusters along
    the direction. Unlike an absolute margin, it does not depend on the units of the features.

    Parameters
    ----------
    scores : array-like of shape (n,)
        :math:`w'x_i + b`, such as the `decision_function` of a clusterer for two clusters.
    labels : array-like of shape (n,)
        Labels of two clusters.

    Returns
    -------
    ndarray of shape (n,)
        Relative margins, positive for rows on the side of their own cluster. Positive scores are
        the side of the cluster with the larger mean score. The paper uses absolute values.

    See Also
    --------
    relative_margin_share : Minimum share of rows with a large relative margin.

    Examples
    --------
    >>> from volmar.metrics import relative_margin
    >>> relative_margin([-3.0, -1.0, -1.0, 1.0, 3.0, 2.0], [0, 0, 1, 1, 1, 1]).round(2)
    array([ 0.92,  0.31, -0.31,  0.31,  0.92,  0.62])
    """
    f = check_vector("scores", scores)
    codes, k = encode_labels(labels, "labels", f.size)
    _require_two(k)
    largest = float(np.abs(f).max())
    f = f / largest if largest > 0.0 else f  # the scale does not matter; sums must not overflow
    gap = float(f[codes == 1].mean() - f[codes == 0].mean())
    if gap == 0.0:
        raise ValueError(
            "the clusters have the same mean score, so relative margins are undefined. Pass the "
            "scores of a hyperplane that separates the clusters."
        )
    return np.where(codes == 1, f, -f) / gap


def relative_margin_share(msp: float, rho: float, *, threshold: str = "best") -> float:
    r"""Minimum share of each cluster with a large relative margin (MSPC theorem 5).

    Let two clusters have the minimum separation probability p. For any distributions, there is a
    hyperplane such that at least this share of each cluster is on its own side with
    :math:`|w'x + b| \ge \rho \Delta / 2`, that is, with a `relative_margin` of at least
    :math:`\rho / 2`. The share is

    .. math:: 1 - r, \qquad r = \frac{p^{-1} - 1}{(p^{-1} - 1) + c (1 - \rho)^2},

    with c = 1 for the best threshold b, and c = 1/4 for the threshold half way between the means,
    as printed in the paper.

    Let t be the distance of the mean of a cluster from the border of the margin. At most a share
    :math:`s_k^2 / (s_k^2 + t^2)` of the cluster is beyond the border (one-sided Chebyshev
    inequality). At the midpoint, :math:`t = (1 - \rho)\Delta / 2`, and
    :math:`s_k \le \Delta / \kappa` gives the paper's r. The paper states that a hyperplane exists
    but does not name it. With the threshold of the minimax probability machine the formula fails,
    because for large :math:`\rho` the cluster with the smaller deviation is nearer to it than
    :math:`\rho\Delta/2`. A threshold that makes :math:`t / s_k` equal for both clusters has
    :math:`t = (1 - \rho) \kappa s_k`, which gives c = 1. For :math:`\rho = 0` this is the machine
    itself with 1 - r = p, while the printed r guarantees less.
    """
    msp = check_number("msp", msp, low=0.0, high=1.0)
    rho = check_number("rho", rho, low=0.0, high=1.0)
    check_choice("threshold", threshold, ["best", "midpoint"])
    reach = (1.0 - rho) ** 2 * (1.0 if threshold == "best" else 0.25)
    if msp == 1.0:
        return 1.0  # both clusters are points along w
    return reach * msp / (1.0 - msp + reach * msp)


def _require_two(k: int) -> None:
    if k != 2:
        raise ValueError(
            f"labels must have 2 clusters, got {k}. Pass the rows and labels of two clusters."
        )
