"""Pictures of clusterings and of the papers' figures (``pip install volmar[plot]``)."""

from volmar.plots.clusters import ClustersDisplay
from volmar.plots.measures import MeasuresDisplay
from volmar.plots.tree import TreeDisplay

__all__ = ["ClustersDisplay", "MeasuresDisplay", "TreeDisplay"]
