"""The papers' comparison methods that scikit-learn lacks."""

from volmar.baselines.discriminative_kmeans import (
    DiscriminativeKMeans,
    DiscriminativeKMeansResult,
)
from volmar.baselines.kernel_kmeans import KernelKMeans, KernelKMeansResult
from volmar.baselines.lda_kmeans import LDAKMeans, LDAKMeansResult
from volmar.baselines.normalized_cut import CutResult, NormalizedCut
from volmar.baselines.normalized_spectral_clustering import (
    NormalizedSpectralClustering,
    SpectralResult,
)
from volmar.baselines.smic import SMIC, SMICResult

__all__ = [
    "SMIC",
    "CutResult",
    "DiscriminativeKMeans",
    "DiscriminativeKMeansResult",
    "KernelKMeans",
    "KernelKMeansResult",
    "LDAKMeans",
    "LDAKMeansResult",
    "NormalizedCut",
    "NormalizedSpectralClustering",
    "SMICResult",
    "SpectralResult",
]
