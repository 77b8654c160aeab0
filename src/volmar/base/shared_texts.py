"""Texts of parameters and attributes that several estimators share.

A line ``{name}`` of a class docstring stands for the text with this name.
"""

from __future__ import annotations

import re

# A prefix as in "kernel:n_features_in_" tells texts of the same entry apart.
TEXTS = """\
max_cluster_size : int, float or array of shape (n_clusters,), optional
    Maximum cluster size: a count (or total weight) or a share of all rows, for all clusters or one
    per cluster (in the order of `classes_` if `fit` is given labels).

joint:min_cluster_size : int, float or array of shape (n_clusters,), optional
    Minimum cluster size for n_clusters > 2 and multiway="joint": a count (or total weight), or a
    share of all rows of at most 1 / n_clusters. If None, half the size of the smallest cluster of
    the start; without a minimum, clusters would become empty. An array with one minimum per
    cluster, or a minimum given together with `max_cluster_size`, is a limit for any number of
    clusters.

recursive:n_clusters : int, default=2
    Number of clusters. More than 2 are found by recursive splitting: the cluster whose split
    separates best is split next (see `tree_`).

margin:balance : float, optional
    Maximum absolute value b of the mean score. With 0 the mean score is 0. If None, b is 0.05 and
    clusters of unequal size may count as balanced (see Notes and `balance_`). With mode="paper",
    None means 0, and no sizes are taken from the start.

balance_unit : {"margin", "score"}, default="margin"
    Unit of `balance`: the margin :math:`\\rho`, or the score f. The papers' l is n times `balance`
    in units of f. With mode="paper" or the fixed threshold the unit is always f.

margin:balance_ : tuple of float
    Shares of the rows (or of their weight) in clusters 0 and 1 that count as balanced: halves, or
    the sizes that ``balance=None`` took from the start. Only available for two clusters.

margin:max_iter : int, optional
    Maximum number of steps. If None, 1000. With mode="paper", maximum number of relabellings and
    of cuts per relabelling; None then means 100.

margin:n_init : int, optional
    Number of starts to compare (4 if None). For more than two clusters, number of runs of k-means
    (10 if None), of which the one with the smallest sum of squares is the start.

margin:tol : float, default=0.01
    The iteration stops once the certified gap, relative to the objective, is at most `tol`.

coef0 : float, default=1
    Constant of the polynomial and sigmoid kernels.

degree : float, default=3
    Degree of the polynomial kernel, at least 1.

kernel_params : dict, optional
    Keyword arguments of a callable kernel.

gamma : float, str or None, default="scale"
    Kernel coefficient of "rbf", "polynomial", "sigmoid", "laplacian" and "chi2". "scale" is
    1 / (n_features * variance of X), "4*scale" and "scale/4" are multiples of it; None is
    1 / n_features. Other kernels ignore it.

gamma_ : float or None
    Kernel coefficient used; None for kernels without one.

affinity : str, callable or Similarity, default="density_scaling"
    Similarity of rows: "density_scaling" (locally scaled and weighted by the density, see
    `volmar.graphs.density_scaling_similarity`), "local_scaling" (both on the graph of nearest
    neighbours), "gaussian", "cosine_knn", "nearest_neighbors" or "precomputed". Affinities given
    by name have no self-loops. A recipe such as ``GaussianSimilarity(sigma="mean/4")``, a function
    f(X, Y) of similarities or a matrix is used as given.

sigma : float or str, optional
    Width of the Gaussian similarity, a number or a rule such as "mean/4".

sigma_ : float or None
    Width of the Gaussian similarity as a number; None for other affinities.

n_neighbors : int, optional
    Number of neighbours, for affinities that use neighbours. If None, log2(n) + 3 for
    "density_scaling" and 7 for the others.

n_neighbors_ : int or None
    Number of neighbours of the similarity graph; None for affinities without neighbours.

labels_ : ndarray of shape (n_samples,)
    Cluster of each training row. Clusters are numbered by size: 0 is the largest.

classes_ : ndarray of shape (n_clusters,)
    Names of the clusters, as they occur in `labels_`. Only available if `fit` was given labels of
    rows.

broken_links_ : ndarray of shape (n_pairs, 2)
    Pairs of `cannot_link` whose rows are in the same cluster. Only available if `fit` was given
    `cannot_link`.

previous_clusters_ : ndarray of shape (n_clusters,)
    For each cluster, the cluster of `init` that it continues, or -1 for a new one. Only available
    if `init` is a fitted clusterer.

recursive:tree_ : SplitTree
    The splits, for more than two clusters. The attributes of a single split are then those of
    ``tree_.splits()[i].model``.

multiway:tree_ : SplitTree
    The splits, for more than two clusters with multiway="recursive". The attributes of a single
    hyperplane are then found at ``tree_.splits()[i].model``, not here.

kernel:n_features_in_ : int
    Number of features (of training rows, with kernel="precomputed").

graph:n_features_in_ : int
    Number of features (of training rows, with affinity="precomputed").
"""
_BY_NAME = {
    text.split(" : ")[0]: re.sub(r"^\w+:(?=\w)", "", text).replace("\n", "\n    ")
    for text in TEXTS.strip().split("\n\n")
}


def with_shared_texts(doc: str | None) -> str | None:
    """Return a docstring with the shared texts in the place of their names."""
    return doc and re.sub(
        r"(?<=^    )\{([\w:]+)\}$", lambda found: _BY_NAME[found[1]], doc, flags=re.MULTILINE
    )
