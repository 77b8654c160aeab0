"""Laplacians of graphs of several shapes, and matrices, for tests of operators."""

import numpy as np
from scipy import linalg, sparse
from sklearn.datasets import make_blobs, make_moons
from sklearn.neighbors import kneighbors_graph

from volmar.datasets import make_two_moons
from volmar.graphs import laplacian, local_scaling_similarity


def normalised_laplacian(X, k=10):
    W = kneighbors_graph(X, k)
    W = sparse.csr_matrix(W.maximum(W.T))
    root = np.sqrt(np.asarray(W.sum(axis=1)).ravel())
    scaled = sparse.diags_array(1 / root) @ W @ sparse.diags_array(1 / root)
    return sparse.csr_matrix(sparse.identity(W.shape[0]) - (scaled + scaled.T) / 2), root


def moons(n, seed=0):
    return normalised_laplacian(make_moons(n, noise=0.08, random_state=seed)[0])


def blobs(n, seed=0, std=6.0):
    X, _ = make_blobs(n, n_features=16, centers=2, cluster_std=std, random_state=seed)
    return normalised_laplacian(X)


def random_spd(rng, n, low=0.1):
    basis = linalg.qr(rng.standard_normal((n, n)))[0]
    return basis @ np.diag(np.sort(low + rng.random(n))) @ basis.T


def moons_laplacian(n):
    """Normalised Laplacian of a k-NN graph, and the roots of the degrees, which it maps to 0."""
    X, _ = make_two_moons(n, noise=0.12, random_state=3)
    W = local_scaling_similarity(X, n_neighbors=8, graph="knn")
    return laplacian(W), np.sqrt(np.asarray(W.sum(axis=1)).ravel())


def random_graph(n, n_edges, seed=0):
    """An expander: each node has edges to a few random nodes."""
    rng = np.random.default_rng(seed)
    i, j = np.repeat(np.arange(n), n_edges), rng.integers(n, size=n * n_edges)
    W = sparse.coo_matrix((np.ones(i.size), (i, j)), shape=(n, n)).tocsr()
    W = sparse.csr_matrix(W.maximum(W.T))
    W.setdiag(0.0)
    W.eliminate_zeros()
    return W
