"""The papers' comparison methods that scikit-learn lacks."""

from volmar.baselines.kernel_kmeans import KernelKMeans
from volmar.baselines.normalized_cut import NormalizedCut
from volmar.baselines.normalized_spectral_clustering import NormalizedSpectralClustering

__all__ = ["KernelKMeans", "NormalizedCut", "NormalizedSpectralClustering"]
