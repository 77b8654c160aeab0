"""One adapter per rival: its name, whether it is installed, and labels for X.

Rivals of `ALL` are given the number of clusters, those of `FINDING_THE_NUMBER` find it.
Those of `SEEDED` are given classes of some rows, those of `EMBEDDINGS` rows of many columns and
the number of clusters.
"""

from benchmarks.rivals import (
    diagonal_mixture,
    dip_means,
    fast_hdbscan,
    g_means,
    gap_statistic,
    gaussian_mixture,
    gemclus,
    hdbscan,
    isosplit,
    kmeans,
    kmeans_silhouette,
    label_spreading,
    mini_batch_k_means,
    mixture_bic,
    pg_means,
    projected_dip_means,
    seeded_kmeans,
    self_training,
    spectral_clustering,
    spherical_k_means,
    turtle,
)

ALL = (kmeans, spectral_clustering, gaussian_mixture, gemclus)
FINDING_THE_NUMBER = (
    dip_means,
    projected_dip_means,
    g_means,
    pg_means,
    gap_statistic,
    isosplit,
    hdbscan,
    mixture_bic,
    kmeans_silhouette,
)
SEEDED = (label_spreading, self_training, seeded_kmeans, fast_hdbscan)
EMBEDDINGS = (kmeans, mini_batch_k_means, spherical_k_means, diagonal_mixture, turtle)
