"""The estimator base: validation, restarts, callbacks, recursion, certified results."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.base.clusterer import Clusterer as Clusterer
    from volmar.base.clusterer import WeightedClusterer as WeightedClusterer
    from volmar.base.recursion import RecursiveResult as RecursiveResult
    from volmar.base.tree import SplitNode as SplitNode
    from volmar.base.tree import SplitTree as SplitTree
    from volmar.solvers import Result as Result
    from volmar.solvers import Status as Status

attach(__name__)
