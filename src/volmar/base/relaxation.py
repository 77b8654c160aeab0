"""Parameters, rounding and warnings shared by the two semi-definite relaxations of labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from volmar._checks import check_choice, check_count, check_flag, check_number
from volmar._warn import warn_user
from volmar.solvers import Status
from volmar.solvers.elliptope import (
    SPREAD,
    Rounded,
    RoundedResult,
    round_as_printed,
    round_centred,
    round_randomly,
)


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
        if self.balance is not None:
            check_number("balance", self.balance, low=0.0)
        check_flag("row_balance", self.row_balance)
        check_count("max_iter", self.max_iter)

    def _rounded(self, V: NDArray, value: Callable[[NDArray], float], seed: int) -> Rounded:
        """Round M = VV' to labels y; random roundings are compared by their `value`."""
        if self.mode == "paper":
            return round_as_printed(V)
        if self.rounding == "centred":
            return round_centred(V)
        return round_randomly(V, value, 100, seed)

    def _status_words(self, result: Any) -> str:
        if not isinstance(result, RoundedResult) or result.status is not Status.MAX_ITER:
            return super()._status_words(result)  # type: ignore[misc]
        is_free = self.balance is None or self.mode == "paper"
        raised = "" if is_free else ", or balance"
        return (
            f"after {result.n_iter} iterations the gap is "
            f"{result.gap / max(abs(result.objective), 1e-300):.1e} of the objective, and the row "
            f"sums exceed their bound by {result.residuals['balance']:.1e} of n. Raise max_iter "
            f"or tol{raised}"
        )

    def _warn_of_relaxation(self, result: RoundedResult, remedy: str) -> None:
        """Warn if M does not determine two clusters."""
        if result.one_cluster:
            warn_user(
                "The best M does not determine two clusters. It is all ones (a single cluster), "
                f"and the labels come from the deviation that tol={self.tol:g} allows "
                f"(tr(HMH) / n is at most {result.room_beside_one:.1e}). {remedy}."
            )
        elif result.spread > SPREAD:
            warn_user(
                "The best M does not determine two clusters. The ratio of the second to the first "
                f"eigenvalue of the centred M is {result.spread:.2f} (0 for two clusters), so the "
                f"labels may be one choice of several. {remedy}."
            )
