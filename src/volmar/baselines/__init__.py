"""The papers' comparison methods that scikit-learn lacks."""

from volmar.baselines.kernel_kmeans import KernelKMeans, KernelKMeansResult
from volmar.baselines.normalized_cut import CutResult, NormalizedCut
from volmar.baselines.normalized_spectral_clustering import (
    NormalizedSpectralClustering,
    SpectralResult,
)

__all__ = [
    "CutResult",
    "KernelKMeans",
    "KernelKMeansResult",
    "NormalizedCut",
    "NormalizedSpectralClustering",
    "SpectralResult",
]
