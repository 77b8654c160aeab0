"""volmar: discriminative clustering.

Find the split of unlabelled data that a good classifier would be most confident in: by maximum
volume, maximum margin or maximin separation probability. ``from volmar import KernelKMeans`` and
the like give the estimators; everything else is in the modules named in the documentation.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from volmar._version import __version__

if TYPE_CHECKING:
    from volmar.baselines import (
        SMIC,
        DiscriminativeKMeans,
        KernelKMeans,
        LDAKMeans,
        NormalizedCut,
        NormalizedSpectralClustering,
    )
    from volmar.margin import (
        CPMMC,
        GMMC,
        LGMMC,
        SDPMMC,
        SKMMC,
        IterSVR,
        KernelCPMMC,
        MultivariateMMC,
    )
    from volmar.separation import MSPC, MinimaxProbabilityMachine
    from volmar.table_clusterer import TableClusterer
    from volmar.volume import HardLabelMVC, SoftLabelMVC, VolumeRegularizedClassifier

# Estimators are imported when first asked for: `import volmar` alone costs next to nothing.
_HOMES = {
    "CPMMC": "volmar.margin",
    "DiscriminativeKMeans": "volmar.baselines",
    "GMMC": "volmar.margin",
    "LDAKMeans": "volmar.baselines",
    "LGMMC": "volmar.margin",
    "HardLabelMVC": "volmar.volume",
    "IterSVR": "volmar.margin",
    "KernelCPMMC": "volmar.margin",
    "KernelKMeans": "volmar.baselines",
    "MSPC": "volmar.separation",
    "MinimaxProbabilityMachine": "volmar.separation",
    "MultivariateMMC": "volmar.margin",
    "NormalizedCut": "volmar.baselines",
    "NormalizedSpectralClustering": "volmar.baselines",
    "SDPMMC": "volmar.margin",
    "SKMMC": "volmar.margin",
    "SMIC": "volmar.baselines",
    "SoftLabelMVC": "volmar.volume",
    "TableClusterer": "volmar.table_clusterer",
    "VolumeRegularizedClassifier": "volmar.volume",
}

__all__ = [
    "CPMMC",
    "GMMC",
    "LGMMC",
    "MSPC",
    "SDPMMC",
    "SKMMC",
    "SMIC",
    "DiscriminativeKMeans",
    "HardLabelMVC",
    "IterSVR",
    "KernelCPMMC",
    "KernelKMeans",
    "LDAKMeans",
    "MinimaxProbabilityMachine",
    "MultivariateMMC",
    "NormalizedCut",
    "NormalizedSpectralClustering",
    "SoftLabelMVC",
    "TableClusterer",
    "VolumeRegularizedClassifier",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'volmar' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
