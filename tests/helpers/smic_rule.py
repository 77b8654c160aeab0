"""SMIC's printed rule on the eigenvectors of a kernel."""

import numpy as np
from scipy import linalg


def spd_kernel(rng, n):
    """A positive definite matrix of positive entries."""
    A = rng.random((n, n + 2))
    return A @ A.T / n + 0.1 * np.eye(n)


def leading(K, k):
    values, vectors = linalg.eigh(K)
    return values[::-1][:k], vectors[:, ::-1][:, :k]


def labels_by_the_paper(vectors):
    """The rule as printed in the paper, row by row, for rows with a positive entry."""
    n, k = vectors.shape
    scores = np.empty((n, k))
    for y in range(k):
        total = vectors[:, y].sum()
        signed = vectors[:, y] * (1.0 if total >= 0 else -1.0)
        positive = np.maximum(0.0, signed)
        scores[:, y] = positive / positive.sum()
    assert (scores.max(axis=1) > 0).all()
    return scores.argmax(axis=1)
