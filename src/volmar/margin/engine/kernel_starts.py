"""Labels to start from that follow the kernel or the graph of the rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.graphs.graph import build_graph
from volmar.margin.engine.starts import principal_start
from volmar.margin.feature_space.space import VectorSpace

__all__ = ["kernel_k_means_start", "spectral_start"]

MAX_STEPS = 100


def kernel_k_means_start(space: VectorSpace, rng: np.random.Generator) -> NDArray:
    r"""Return the labels of two-means in the feature space of the space.

    From the sides of the leading principal component. With centred rows and the shares
    :math:`r_0 + r_1 = 1` the means are :math:`\mu_1 = r_0 w`, :math:`\mu_0 = -r_1 w` for
    :math:`w = \mu_1 - \mu_0`, so that a row z is nearer to the second where
    :math:`\langle w, z \rangle > (r_0 - r_1) |w|^2 / 2`: a step is one cut and its scores. The sum
    of squares within, which is that of all rows less :math:`n r_0 r_1 |w|^2`, never rises.
    """
    labels = principal_start(space, rng)
    shares = np.full(space.n_rows, 1.0 / space.n_rows) if space.shares is None else space.shares
    for _ in range(MAX_STEPS):
        share = float(shares @ labels)
        if not 0.0 < share < 1.0:
            break
        v = shares * np.where(labels, 1.0 / share, -1.0 / (1.0 - share))
        w = space.vector(v.astype(space.dtype))
        square = float(space.inner(w, [w])[0])
        nearer = space.scores(w) > 0.5 * (1.0 - 2.0 * share) * square
        if np.array_equal(nearer, labels) or nearer.all() or not nearer.any():
            break
        labels = nearer
    return labels


def spectral_start(X: Any) -> NDArray:
    """Return the sides of the mean of the second eigenvector of the rows' graph.

    The graph is the default of the graph methods: similarities of the nearest neighbours, locally
    scaled and weighted by the density.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rough eigenvectors are a fine start
        graph = build_graph(X, "density_scaling")
        pairs = graph.normalized_operator(1.0 / X.shape[0]).smallest_eigenpairs(2, tol=1e-3)
    vector = pairs.vectors[:, 1] * graph.inverse_roots
    return vector > np.average(vector, weights=graph.degrees + np.finfo(float).tiny)
