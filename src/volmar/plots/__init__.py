"""Pictures of clusterings (needs matplotlib: ``pip install volmar[plot]``)."""

from volmar.plots.clusters import ClustersDisplay

__all__ = ["ClustersDisplay"]
