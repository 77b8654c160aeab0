"""What the two semi-definite relaxations of labels share: parameters, rounding, warnings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from volmar.base.validation import check_choice, check_count, check_flag, check_number
from volmar.base.warn import warn_user
from volmar.solvers import Status
from volmar.solvers.elliptope_rounding import (
    SPREAD,
    Rounded,
    RoundedResult,
    round_as_printed,
    round_centred,
    round_randomly,
)

# Random projections of rounding="random".
N_RANDOM = 100
TINY = 1e-300


class RelaxationMixin:
    """The parameters of a relaxation of labels y to a correlation matrix M in place of yy'."""

    C: Any
    balance: Any
    row_balance: Any
    rounding: Any
    mode: Any
    tol: Any
    max_iter: Any

    def _check_relaxation(self) -> None:
        check_choice("mode", self.mode, ("default", "paper"))
        check_choice("rounding", self.rounding, ("centred", "random"))
        for name in ("C", "tol"):
            check_number(name, getattr(self, name), low=0.0, open_low=True)
        if self.balance is not None and not isinstance(self.balance, str):
            check_number("balance", self.balance, low=0.0)
        check_flag("row_balance", self.row_balance)
        check_count("max_iter", self.max_iter)

    def _rounded(self, V: NDArray, value: Callable[[NDArray], float], seed: int) -> Rounded:
        """Round M = VV' to labels y, by their `value` where random ones are compared."""
        if self.mode == "paper":
            return round_as_printed(V)
        if self.rounding == "centred":
            return round_centred(V)
        return round_randomly(V, value, N_RANDOM, seed)

    def _status_words(self, result: Any) -> str:
        if not isinstance(result, RoundedResult) or result.status is not Status.MAX_ITER:
            return super()._status_words(result)  # type: ignore[misc]
        is_free = self.balance is None or self.mode == "paper"
        raised = "" if is_free else ", or balance"
        return (
            f"the gap is {result.gap / max(abs(result.objective), TINY):.1e} of the objective "
            f"after {result.n_iter} iterations, and the bound on row sums is missed by "
            f"{result.residuals['balance']:.1e} of n. Raise max_iter or tol{raised}"
        )

    def _warn_of_relaxation(self, result: RoundedResult, remedy: str) -> None:
        """Warn of an M of no groups, or of one."""
        if result.one_cluster:
            warn_user(
                "The best M does not determine two clusters: it is all ones, one cluster, and the "
                f"labels are read off what tol={self.tol:g} leaves of it (tr(HMH) / n of at most "
                f"{result.room_beside_one:.1e}). {remedy}."
            )
        elif result.spread > SPREAD:
            warn_user(
                "The best M does not determine two clusters: it is far from two groups (second "
                f"over first eigenvalue of the centred M: {result.spread:.2f}), and the labels "
                f"may be one choice of several. {remedy}."
            )
