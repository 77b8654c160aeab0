"""One adapter a rival: a name, whether it is installed, and labels for X."""

from benchmarks.rivals import gaussian_mixture, gemclus, kmeans, spectral_clustering

ALL = (kmeans, spectral_clustering, gaussian_mixture, gemclus)
