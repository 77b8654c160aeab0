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
    from volmar.auto.clusterer import AutoClusterer as AutoClusterer
    from volmar.baselines.kernel_kmeans import KernelKMeans as KernelKMeans
    from volmar.baselines.projected_kmeans import DiscriminativeKMeans as DiscriminativeKMeans
    from volmar.baselines.projected_kmeans import LDAKMeans as LDAKMeans
    from volmar.baselines.smic import SMIC as SMIC
    from volmar.baselines.spectral import NormalizedCut as NormalizedCut
    from volmar.baselines.spectral import (
        NormalizedSpectralClustering as NormalizedSpectralClustering,
    )
    from volmar.diagnostics import describe_clusters as describe_clusters
    from volmar.evidence import label_test as label_test
    from volmar.evidence import split_test as split_test
    from volmar.margin.cpmmc import CPMMC as CPMMC
    from volmar.margin.gmmc import GMMC as GMMC
    from volmar.margin.iter_svr import IterSVR as IterSVR
    from volmar.margin.kernel_cpmmc import KernelCPMMC as KernelCPMMC
    from volmar.margin.lgmmc import LGMMC as LGMMC
    from volmar.margin.multivariate_mmc import MultivariateMMC as MultivariateMMC
    from volmar.margin.sdp_mmc import SDPMMC as SDPMMC
    from volmar.margin.skmmc import SKMMC as SKMMC
    from volmar.models import load_model as load_model
    from volmar.models import save_model as save_model
    from volmar.report import save_report as save_report
    from volmar.separation.minimax_probability_machine import (
        MinimaxProbabilityMachine as MinimaxProbabilityMachine,
    )
    from volmar.separation.mspc import MSPC as MSPC
    from volmar.table_clusterer import TableClusterer as TableClusterer
    from volmar.volume.hard_label_mvc import HardLabelMVC as HardLabelMVC
    from volmar.volume.soft_label_mvc import SoftLabelMVC as SoftLabelMVC
    from volmar.volume.volume_regularized_classifier import (
        VolumeRegularizedClassifier as VolumeRegularizedClassifier,
    )

# Names rather than classes, so that no estimator is imported before it is used.
CLUSTERERS = (
    "AutoClusterer",
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
