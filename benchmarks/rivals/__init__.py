"""One adapter a rival: a name, whether it is installed, and labels for X.

Rivals of `ALL` are given the number of clusters, those of `FINDING_THE_NUMBER` find it.
"""

from benchmarks.rivals import (
    dip_means,
    g_means,
    gap_statistic,
    gaussian_mixture,
    gemclus,
    hdbscan,
    isosplit,
    kmeans,
    kmeans_silhouette,
    mixture_bic,
    pg_means,
    projected_dip_means,
    spectral_clustering,
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
