"""Generic small optimisers that return multipliers and certificates."""

from volmar.solvers.cutting_plane_qp import CuttingPlaneResult, solve_cutting_plane_qp
from volmar.solvers.result import Result, Status

__all__ = ["CuttingPlaneResult", "Result", "Status", "solve_cutting_plane_qp"]
