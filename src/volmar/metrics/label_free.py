"""Scores of a labelling without true classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from sklearn.metrics import calinski_harabasz_score

from volmar._checks import check_symmetric
from volmar._input import check_matrix
from volmar._threads import one_thread
from volmar._vectors import check_vector
from volmar.metrics.contingency import encode_labels


@one_thread()
def normalized_cut(W: Any, labels: ArrayLike) -> float:
    r"""Normalised cut: the sum over the clusters of their cut divided by their volume.

    .. math::

        \mathrm{Ncut} = \sum_k \frac{\sum_{i \in C_k, j \notin C_k} W_{ij}}
                                    {\sum_{i \in C_k} \sum_j W_{ij}}

    Parameters
    ----------
    W : array-like or sparse matrix of shape (n, n)
        Symmetric, non-negative similarities. The diagonal counts in the volumes, as everywhere in
        this library.
    labels : array-like of shape (n,)
        Labels of any type.

    Returns
    -------
    float
        From 0 (no similarity is cut) to the number of clusters. A cluster of volume 0, which
        consists of isolated rows, adds 1. This is the limit for a single row whose last edge
        vanishes. The value for k clusters is then at least the sum of the k smallest eigenvalues
        of L_sym.

    Examples
    --------
    >>> import numpy as np
    >>> W = np.array([[0, 2, 1], [2, 0, 0], [1, 0, 0]])
    >>> normalized_cut(W, [0, 0, 1])
    1.2
    """
    W = check_matrix(W, name="W", is_scaled=False)
    codes, n_clusters = encode_labels(labels, "labels")
    n = codes.size
    if W.shape != (n, n):
        raise ValueError(
            f"W must be of shape ({n}, {n}) for {n} labels, got {W.shape}. Pass the square matrix "
            "of similarities."
        )
    if W.min() < 0:
        raise ValueError(f"W must not be negative, got {W.min():g}. Pass similarities.")
    W = _moderate(W)
    check_symmetric(W, "W")
    return unchecked_cut(W, codes, n_clusters)


def unchecked_cut(W: Any, codes: NDArray, n_clusters: int) -> float:
    """Return `normalized_cut` of valid similarities, for labels from 0 to n_clusters - 1.

    Edges of a sparse W that are cut are added up directly. A difference of volumes would lose cuts
    below the rounding error of the volumes.
    """
    W = _moderate(W)
    if issparse(W):
        W = W.tocoo()
        of_row = codes[W.row]
        cut = of_row != codes[W.col]
        cuts = np.bincount(of_row[cut], W.data[cut], n_clusters)
        volumes = np.bincount(of_row, W.data, n_clusters)
    else:
        members = np.eye(n_clusters, dtype=W.dtype)[codes]
        within = np.einsum("ik,ik->k", members, W @ members, dtype=np.float64)
        volumes = np.bincount(codes, W.sum(axis=1, dtype=np.float64), n_clusters)
        cuts = np.maximum(volumes - within, 0.0)
    empty = volumes <= 0
    return float(np.sum(cuts[~empty] / volumes[~empty]) + empty.sum())


def _moderate(W: Any) -> Any:
    """Return W, scaled if sums of its entries would overflow or underflow; ratios are the same."""
    peak, limits = float(W.max()), np.finfo(W.dtype)
    extreme = peak > np.sqrt(limits.max) or 0 < peak < np.sqrt(limits.tiny)
    return W / W.dtype.type(peak) if extreme else W


def volume(h: ArrayLike, Q: Any) -> float:
    r"""Rayleigh quotient that approximates the volume of h's equivalence class (JMLR eq. 1).

    .. math:: V(h) = \frac{h^\top Q h}{\|h\|_2^2}
                   = \sum_i \lambda_i \left(\frac{h^\top v_i}{\|h\|_2}\right)^2

    The hypotheses form the ellipsoid :math:`h^\top Q h \le 1`, whose axes lie along the
    eigenvectors :math:`v_i` of Q with lengths :math:`1 / \sqrt{\lambda_i}`. All h with the same
    sign pattern form an equivalence class. V is one over the squared radius of the ellipsoid along
    h. A *small* V(h) means that h points along the long axes, so its class has a *large* volume.
    Neither the length nor the sign of h matters.
    """
    soft = check_vector("h", h)
    if not soft.any():
        raise ValueError("h must be a finite vector other than zero. Pass one response per row.")
    n = soft.size
    if not hasattr(Q, "matvec"):
        Q = check_matrix(Q, name="Q", is_scaled=False)
        if Q.shape != (n, n):
            raise ValueError(f"Q must be of shape ({n}, {n}) for {n} responses, got {Q.shape}.")
    soft = soft / np.abs(soft).max()  # squares of tiny or huge entries underflow or overflow
    image = Q.matvec(soft) if hasattr(Q, "matvec") else Q @ soft
    return float(soft @ image / (soft @ soft))


def imbalance(labels: ArrayLike) -> float:
    r"""Difference of the cluster sizes divided by their sum (SKMMC eq. 32, there in per cent).

    .. math:: \frac{|n_+ - n_-|}{n_+ + n_-}

    With more than two clusters, the largest and the smallest are compared. With a single cluster,
    the value is 1.
    """
    codes, n_clusters = encode_labels(labels, "labels")
    sizes = np.bincount(codes)
    smallest = int(sizes.min()) if n_clusters > 1 else 0
    largest = int(sizes.max())
    return (largest - smallest) / (largest + smallest)


def calinski_harabasz(X: Any, labels: ArrayLike) -> float:
    """Calinski-Harabasz score of dense or sparse rows.

    The score is the variance between the clusters divided by the variance within them. It equals
    scikit-learn's `calinski_harabasz_score`, which does not support sparse rows.
    """
    X = check_matrix(X)
    codes, k = encode_labels(labels, "labels", X.shape[0])
    n = codes.size
    if not 2 <= k < n:
        raise ValueError(
            f"labels must have at least 2 clusters and fewer clusters than rows, got {k} clusters "
            f"of {n} rows."
        )
    if not issparse(X):
        return float(calinski_harabasz_score(X, codes))
    members = csr_array((np.ones(n), (codes, np.arange(n))))
    sums = (members @ X).toarray()
    mean = sums.sum(axis=0) / n
    of_mean = n * float(mean @ mean)
    total = float(X.multiply(X).sum()) - of_mean
    between = float((sums**2 / np.bincount(codes)[:, None]).sum()) - of_mean
    within = max(total - between, 0.0)
    return between * (n - k) / (within * (k - 1)) if within > 0 else 1.0
