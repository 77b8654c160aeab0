"""
Eigenvectors by the shape of the graph
======================================

A sparse factorisation of a k-NN graph is cheap in two dimensions, but too expensive in sixteen.
volmar predicts the fill-in of the factors from two small parts of the graph. If the predicted fill
is small it uses shift-invert, otherwise Lanczos.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs, make_moons

from volmar.graphs import laplacian, local_scaling_similarity
from volmar.operators.sparse import SparseOperator

n = 4000
graphs = {
    "moons, 2 features": make_moons(n, noise=0.08, random_state=0)[0],
    "blobs, 16 features": make_blobs(n, 16, centers=2, cluster_std=6.0, random_state=0)[0],
}
figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
for ax, (name, X) in zip(axes, graphs.items(), strict=True):
    W = local_scaling_similarity(X, n_neighbors=10, graph="knn")
    operator = SparseOperator(laplacian(W), bounds=(0.0, 2.0))
    start = time.perf_counter()
    pairs = operator.smallest_eigenpairs(2)
    seconds = time.perf_counter() - start
    print(
        f"{name}: predicted fill {operator.fill:.0f}, {pairs.method}, {seconds:.2f} s, "
        f"largest residual {pairs.residuals.max():.0e}"
    )
    ax.plot(np.sort(pairs.vectors[:, 1]))
    ax.set(title=f"{name} ({pairs.method})", xlabel="rows, sorted", ylabel="second eigenvector")
