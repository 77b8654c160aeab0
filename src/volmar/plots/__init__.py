"""Pictures of clusterings and of the papers' figures (``pip install volmar[plot]``)."""

from volmar.plots.clusters import ClustersDisplay
from volmar.plots.measures import MeasuresDisplay

__all__ = ["ClustersDisplay", "MeasuresDisplay"]
