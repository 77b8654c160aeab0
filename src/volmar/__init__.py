"""volmar: discriminative clustering.

Find the split of unlabelled data that a good classifier would be most confident in: by maximum
volume, maximum margin or maximin separation probability. Estimators are imported from the top
level, as in ``from volmar import KernelKMeans``. Everything else is in the modules named in the
documentation.
"""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar._version import __version__ as __version__
    from volmar.baselines import SMIC as SMIC
    from volmar.baselines import DiscriminativeKMeans as DiscriminativeKMeans
    from volmar.baselines import KernelKMeans as KernelKMeans
    from volmar.baselines import LDAKMeans as LDAKMeans
    from volmar.baselines import NormalizedCut as NormalizedCut
    from volmar.baselines import NormalizedSpectralClustering as NormalizedSpectralClustering
    from volmar.margin import CPMMC as CPMMC
    from volmar.margin import GMMC as GMMC
    from volmar.margin import LGMMC as LGMMC
    from volmar.margin import SDPMMC as SDPMMC
    from volmar.margin import SKMMC as SKMMC
    from volmar.margin import IterSVR as IterSVR
    from volmar.margin import KernelCPMMC as KernelCPMMC
    from volmar.margin import MultivariateMMC as MultivariateMMC
    from volmar.separation import MSPC as MSPC
    from volmar.separation import MinimaxProbabilityMachine as MinimaxProbabilityMachine
    from volmar.table_clusterer import TableClusterer as TableClusterer
    from volmar.volume import HardLabelMVC as HardLabelMVC
    from volmar.volume import SoftLabelMVC as SoftLabelMVC
    from volmar.volume import VolumeRegularizedClassifier as VolumeRegularizedClassifier

# Names rather than classes, so that no estimator is imported before it is used.
CLUSTERERS = (
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
    "MultivariateMMC",
    "NormalizedCut",
    "NormalizedSpectralClustering",
    "SoftLabelMVC",
)

attach(__name__)
