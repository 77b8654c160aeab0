"""Generic small optimisers that return multipliers and certificates."""

from volmar.solvers.cutting_plane_qp import CuttingPlaneResult, solve_cutting_plane_qp
from volmar.solvers.minimax_probability import (
    MinimaxProbabilityResult,
    solve_minimax_probability,
)
from volmar.solvers.result import Result, Status

__all__ = [
    "CuttingPlaneResult",
    "MinimaxProbabilityResult",
    "Result",
    "Status",
    "solve_cutting_plane_qp",
    "solve_minimax_probability",
]
