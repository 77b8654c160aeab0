"""Matrices Q of small maximum volume problems."""

import numpy as np
from scipy import sparse

from volmar.datasets import make_two_circles, make_two_gaussians, make_two_moons
from volmar.graphs import gaussian_similarity, laplacian, local_scaling_similarity
from volmar.operators import as_operator
from volmar.volume.problem import signs

SETS = {"gaussians": make_two_gaussians, "moons": make_two_moons, "circles": make_two_circles}


def random_spd(rng, n, floor=0.05):
    A = rng.standard_normal((n, n))
    return A @ A.T / n + floor * np.eye(n)


def random_spectrum(rng, n):
    """Return a positive definite matrix and its ascending eigenvalues, from e^-3 to e."""
    basis = np.linalg.qr(rng.standard_normal((n, n)))[0]
    eigenvalues = np.sort(np.exp(rng.uniform(-3, 1, n)))
    Q = (basis * eigenvalues) @ basis.T
    return (Q + Q.T) / 2, eigenvalues


def laplacian_of(name, n, seed=0, sigma="mean/10"):
    X, _ = SETS[name](n, random_state=seed)
    return laplacian(gaussian_similarity(X, sigma=sigma)) + np.eye(n) / n


def start_of(Q):
    v2 = np.linalg.eigh(Q)[1][:, 1]
    return signs(v2 - v2.mean()) / np.sqrt(len(Q))


def dense_case(name, n):
    Q = laplacian_of(name, n)
    return Q, as_operator(Q)


def sparse_case(name, n):
    X, _ = SETS[name](n, random_state=1)
    L = laplacian(local_scaling_similarity(X, n_neighbors=6, graph="knn"))
    Q = sparse.csr_matrix(L + sparse.identity(n) / n)
    return Q.toarray(), as_operator(Q)


def low_rank_case(name, n):
    X, _ = SETS[name](n, random_state=2)
    W = gaussian_similarity(X, sigma="mean/4")
    values, vectors = np.linalg.eigh(W / np.sqrt(np.outer(W.sum(0), W.sum(0))))
    Z = vectors[:, -12:] * np.sqrt(np.maximum(values[-12:], 0))
    Q = (1.0 + 1.0 / n) * np.eye(n) - Z @ Z.T
    return Q, as_operator(Q)


CASES = {"dense": dense_case, "sparse": sparse_case, "low-rank": low_rank_case}


def moons_graph(n):
    """Rows and the normalised Laplacian of their k-NN graph."""
    X, _ = make_two_moons(n, noise=0.12, random_state=3)
    return X, laplacian(local_scaling_similarity(X, n_neighbors=8, graph="knn"))


class WatchedOperator:
    """An operator that records the tolerance of each solve, as the norm of the residual."""

    def __init__(self, operator):
        self.operator = operator
        self.n = operator.n
        self.bounds = operator.bounds
        self.matvec = operator.matvec
        self.allowed = []

    def solve(self, shift, block, *, rtol=1e-8):
        self.allowed.append(rtol * np.linalg.norm(block))
        return self.operator.solve(shift, block)
