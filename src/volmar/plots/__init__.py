"""Plots of clusterings (needs matplotlib: ``pip install volmar[plot]``)."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.plots.clusters import ClusterDisplay as ClusterDisplay
    from volmar.plots.label_joins import LabelTestDisplay as LabelTestDisplay
    from volmar.plots.numbers import NumberOfClustersDisplay as NumberOfClustersDisplay
    from volmar.plots.profiles import ColumnProfilesDisplay as ColumnProfilesDisplay
    from volmar.plots.profiles import EffectsDisplay as EffectsDisplay
    from volmar.plots.projection import ProjectionDisplay as ProjectionDisplay
    from volmar.plots.silhouette import SilhouetteDisplay as SilhouetteDisplay
    from volmar.plots.tree import TreeDisplay as TreeDisplay

attach(__name__)
