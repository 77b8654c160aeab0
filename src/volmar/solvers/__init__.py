"""Generic small optimisers that return multipliers and certificates."""

from volmar.solvers.result import Result, Status

__all__ = ["Result", "Status"]
