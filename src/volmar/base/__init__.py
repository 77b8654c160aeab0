"""The estimator base: validation, restarts, callbacks, recursion, certified results."""

from volmar.base.clusterer import Clusterer, WeightedClusterer
from volmar.base.recursion import RecursiveResult
from volmar.base.tree import SplitNode, SplitTree
from volmar.solvers import Result, Status

__all__ = [
    "Clusterer",
    "RecursiveResult",
    "Result",
    "SplitNode",
    "SplitTree",
    "Status",
    "WeightedClusterer",
]
