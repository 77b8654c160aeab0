"""Comparison methods of the papers that are not in scikit-learn."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.baselines.kernel_kmeans import KernelKMeans as KernelKMeans
    from volmar.baselines.kernel_kmeans import KernelKMeansResult as KernelKMeansResult
    from volmar.baselines.projected_kmeans import DiscriminativeKMeans as DiscriminativeKMeans
    from volmar.baselines.projected_kmeans import (
        DiscriminativeKMeansResult as DiscriminativeKMeansResult,
    )
    from volmar.baselines.projected_kmeans import LDAKMeans as LDAKMeans
    from volmar.baselines.projected_kmeans import LDAKMeansResult as LDAKMeansResult
    from volmar.baselines.smic import SMIC as SMIC
    from volmar.baselines.smic import SMICResult as SMICResult
    from volmar.baselines.spectral import CutResult as CutResult
    from volmar.baselines.spectral import NormalizedCut as NormalizedCut
    from volmar.baselines.spectral import (
        NormalizedSpectralClustering as NormalizedSpectralClustering,
    )
    from volmar.baselines.spectral import SpectralResult as SpectralResult

attach(__name__)
