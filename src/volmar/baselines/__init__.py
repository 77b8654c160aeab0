"""Comparison methods of the papers that are not in scikit-learn."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.baselines.discriminative_kmeans import DiscriminativeKMeans as DiscriminativeKMeans
    from volmar.baselines.discriminative_kmeans import (
        DiscriminativeKMeansResult as DiscriminativeKMeansResult,
    )
    from volmar.baselines.kernel_kmeans import KernelKMeans as KernelKMeans
    from volmar.baselines.kernel_kmeans import KernelKMeansResult as KernelKMeansResult
    from volmar.baselines.lda_kmeans import LDAKMeans as LDAKMeans
    from volmar.baselines.lda_kmeans import LDAKMeansResult as LDAKMeansResult
    from volmar.baselines.normalized_cut import CutResult as CutResult
    from volmar.baselines.normalized_cut import NormalizedCut as NormalizedCut
    from volmar.baselines.normalized_spectral_clustering import (
        NormalizedSpectralClustering as NormalizedSpectralClustering,
    )
    from volmar.baselines.normalized_spectral_clustering import SpectralResult as SpectralResult
    from volmar.baselines.smic import SMIC as SMIC
    from volmar.baselines.smic import SMICResult as SMICResult

attach(__name__)
