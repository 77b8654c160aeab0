"""The estimator base: validation, restarts, callbacks, and the certified `Result`."""

from volmar.base.clusterer import Clusterer
from volmar.solvers import Result, Status

__all__ = ["Clusterer", "Result", "Status"]
