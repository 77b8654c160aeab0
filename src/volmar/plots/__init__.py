"""Pictures of clusterings (``pip install volmar[plot]``)."""

from volmar.plots.clusters import ClusterDisplay
from volmar.plots.convergence import ConvergenceDisplay, ConvergenceLine
from volmar.plots.eigen import EigenDisplay
from volmar.plots.label_joins import LabelTestDisplay
from volmar.plots.numbers import NumberOfClustersDisplay
from volmar.plots.profiles import ColumnProfilesDisplay, EffectsDisplay
from volmar.plots.projection import ProjectionDisplay
from volmar.plots.silhouette import SilhouetteDisplay
from volmar.plots.tree import TreeDisplay

__all__ = [
    "ClusterDisplay",
    "ColumnProfilesDisplay",
    "ConvergenceDisplay",
    "ConvergenceLine",
    "EffectsDisplay",
    "EigenDisplay",
    "LabelTestDisplay",
    "NumberOfClustersDisplay",
    "ProjectionDisplay",
    "SilhouetteDisplay",
    "TreeDisplay",
]
