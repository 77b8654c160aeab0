"""The solver's certificate of its solution, in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from volmar.base.recursion import RecursiveResult
from volmar.report.outcome import Outcome
from volmar.report.text import as_number
from volmar.solvers import Status

__all__ = ["certificate_of"]

# Names of residuals that count rows which would change their cluster.
OF_MOVES = ("moves", "switched")
# Optimality conditions are satisfied if all residuals are at most this large.
SATISFIED = 0.01


def certificate_of(outcome: Outcome) -> dict[str, Any]:
    """Return title, tone and text: what was checked, then what is not proved."""
    result = getattr(outcome.estimator, "result_", None)
    if outcome.k == 1 or result is None:
        title = "No certificate"
        text = f"{outcome.method} does not report how close its solution is to the optimum."
        if outcome.k == 1:
            title, text = "Nothing to solve", "All rows are in one cluster, so there is no border."
        return {"title": title, "tone": "neutral", "text": text, "residuals": {}}
    status = getattr(result, "status", None)
    is_early, ended = False, "The solver finished normally."
    if isinstance(status, Status) and not status.ok:
        is_early, ended = True, f"The solver did not finish normally: {status.value}."
    gap, objective = float(getattr(result, "gap", np.nan)), float(result.objective)
    residuals = {name: float(value) for name, value in getattr(result, "residuals", {}).items()}
    if np.isfinite(gap):
        title, text = _bounded(gap, objective, is_for_labels=hasattr(result, "rho"))
        tone = "fair" if is_early else "good"
    else:
        is_satisfied = bool(residuals) and all(r <= SATISFIED for r in residuals.values())
        checked = _checked(residuals, is_satisfied=is_satisfied)
        # Without a bound there is no proof, even if all residuals are small.
        title = "Conditions satisfied, optimum not proved" if is_satisfied else "Not proved"
        tone = "neutral"
        if is_early:
            title, tone = "The solver did not finish normally", "weak"
        text = f"{checked}{_without_bound(outcome, result)}"
    return {
        "title": title,
        "tone": tone,
        "text": text,
        "status": ended,
        "steps": getattr(result, "n_iter", 0),
        "residuals": {name: as_number(value) for name, value in residuals.items()},
    }


def _bounded(gap: float, objective: float, *, is_for_labels: bool) -> tuple[str, str]:
    for_labels = " for these labels" if is_for_labels else ""
    within = _gap_text(gap, objective)
    text = f"The solution is proved to be within {within} of the best possible{for_labels}. "
    text += (
        "Another division of the rows could still be better; no method can rule that out."
        if for_labels
        else "This is about the method's optimisation problem, not about true groups."
    )
    return f"Within {within} of the best possible{for_labels}", text


def _checked(residuals: dict[str, float], *, is_satisfied: bool) -> str:
    """Return a sentence on the checked conditions; empty if a residual is undefined."""
    if not residuals or np.isnan(list(residuals.values())).any():
        return ""
    if set(residuals) <= set(OF_MOVES) and is_satisfied:
        return "Checked: no row would change its cluster in a further step. "
    value = as_number(max(residuals.values()), 2)
    return f"Checked: the optimality conditions hold up to a residual of {value}. "


def _without_bound(outcome: Outcome, result: Any) -> str:
    if isinstance(result, RecursiveResult) and outcome.k > 2:
        return (
            "Splits are made one after the other, and no bound covers the whole sequence. Another "
            "division of the rows could be better."
        )
    return (
        "No bound on the best possible solution is available for this method. Another division "
        "of the rows could be better."
    )


def _gap_text(gap: float, objective: float) -> str:
    if objective == 0:
        return as_number(gap)
    share = 100 * gap / abs(objective)
    return "0.01 %" if share < 0.01 else f"{as_number(share, 2)} %"
