"""Margins of two clusters: those of Theorems 4 and 5 of MSPC."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from volmar._eigen import eigenvalues
from volmar._input import check_matrix
from volmar._threads import one_thread
from volmar._vectors import check_vector
from volmar.metrics.contingency import encode_labels
from volmar.rows.anywhere import as_rows, centered_with_moments
from volmar.rows.standardized import is_wide, row_space


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


def _require_two(k: int) -> None:
    if k != 2:
        raise ValueError(
            f"labels must have 2 clusters, got {k}. Pass the rows and labels of two clusters."
        )
