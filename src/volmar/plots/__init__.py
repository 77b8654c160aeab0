"""Pictures of clusterings and of the papers' figures (``pip install volmar[plot]``)."""

from volmar.plots.clusters import ClusterDisplay
from volmar.plots.convergence import ConvergenceDisplay, ConvergenceLine
from volmar.plots.eigen import EigenDisplay
from volmar.plots.label_joins import LabelTestDisplay
from volmar.plots.measures import MeasuresDisplay
from volmar.plots.paper_figure import PaperFigureDisplay, has_picture
from volmar.plots.projection import ProjectionDisplay
from volmar.plots.tree import TreeDisplay

__all__ = [
    "ClusterDisplay",
    "ConvergenceDisplay",
    "ConvergenceLine",
    "EigenDisplay",
    "LabelTestDisplay",
    "MeasuresDisplay",
    "PaperFigureDisplay",
    "ProjectionDisplay",
    "TreeDisplay",
    "has_picture",
]
