"""Generic small optimisers that return multipliers and certificates."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.solvers.cutting_plane_qp import solve_cutting_plane_qp as solve_cutting_plane_qp
    from volmar.solvers.elliptope import solve_elliptope_saddle as solve_elliptope_saddle
    from volmar.solvers.elliptope_barrier import solve_elliptope_barrier as solve_elliptope_barrier
    from volmar.solvers.minimax_probability import (
        solve_minimax_probability as solve_minimax_probability,
    )
    from volmar.solvers.packing_sdp import solve_packing_sdp as solve_packing_sdp
    from volmar.solvers.result import Result as Result
    from volmar.solvers.result import Status as Status

attach(__name__)
