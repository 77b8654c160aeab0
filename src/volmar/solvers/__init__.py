"""Generic small optimisers that return multipliers and certificates."""

from volmar.solvers.cutting_plane_qp import CuttingPlaneResult, solve_cutting_plane_qp
from volmar.solvers.elliptope import ElliptopeResult, solve_elliptope_saddle
from volmar.solvers.elliptope_triangles import TriangleResult, solve_elliptope_triangles
from volmar.solvers.minimax_probability import (
    MinimaxProbabilityResult,
    solve_minimax_probability,
)
from volmar.solvers.packing_sdp import PackingResult, solve_packing_sdp
from volmar.solvers.result import Result, Status

__all__ = [
    "CuttingPlaneResult",
    "ElliptopeResult",
    "MinimaxProbabilityResult",
    "PackingResult",
    "Result",
    "Status",
    "TriangleResult",
    "solve_cutting_plane_qp",
    "solve_elliptope_saddle",
    "solve_elliptope_triangles",
    "solve_minimax_probability",
    "solve_packing_sdp",
]
