"""Checks of the parameters of `SoftLabelMVC`."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from volmar._checks import shown
from volmar.base.validation import check_choice, check_count, check_number
from volmar.operators import EigenPairs, SPDOperator

__all__ = ["check_definite", "check_parameters"]

MODES = ("default", "paper", "aistats")
MATRICES = ("laplacian", "kernel")
MULTIWAY = ("joint", "recursive")
# Parameters without effect on a joint search for more than two clusters, with their defaults.
TWO_WAY = {"reg": 1e-2, "n_candidates": None, "tol": 1e-6}


def check_parameters(model: Any) -> None:
    """Raise an error for parameters that are invalid for any data."""
    check_choice("mode", model.mode, MODES)
    check_choice("multiway", model.multiway, MULTIWAY)
    if isinstance(model.Q, str):
        check_choice("Q", model.Q, MATRICES)
    check_number("reg", model.reg, low=0.0, open_low=True)
    check_number("tol", model.tol, low=0.0, open_low=True)
    if model.balance is not None:
        check_number("balance", model.balance, low=0.0)
    for name in ("n_candidates", "max_iter"):
        if getattr(model, name) is not None:
            check_count(name, getattr(model, name))
    if isinstance(model.init, str):
        check_choice("init", model.init, ["auto"])
    elif model.n_candidates is not None:
        raise ValueError(
            f"n_candidates={model.n_candidates} has no effect if init is given, which is then the "
            "only start. Leave one of them out."
        )
    if model.eta0 is not None:
        check_number("eta0", model.eta0)
        if model.mode == "default":
            raise ValueError(
                f"eta0={shown(model.eta0)} has no effect with mode='default', which computes "
                "the multiplier. Leave it out, or use mode='paper'."
            )
    if isinstance(model.n_clusters, Integral) and int(model.n_clusters) > 2:
        _check_multiway(model)


def _check_multiway(model: Any) -> None:
    given = f"n_clusters={shown(model.n_clusters)} and multiway={model.multiway!r}"
    if model._is_recursive():
        if not isinstance(model.Q, str) and not callable(model.Q):
            raise ValueError(
                f"Q must be a name or a function of the similarities with {given}. A matrix "
                "of all rows does not fit the rows of one cluster. Pass a function, or use "
                "multiway='joint'."
            )
        return
    if model.mode != "default":
        raise ValueError(
            f"mode={model.mode!r} cannot find more than two clusters jointly, got {given}. "
            "Use mode='default', or multiway='recursive'."
        )
    for name, default in TWO_WAY.items():
        if getattr(model, name) != default:
            raise ValueError(
                f"{name}={getattr(model, name)!r} has no effect with {given}. Leave it out, or "
                "use multiway='recursive'."
            )


def check_definite(operator: SPDOperator, pairs: EigenPairs, *, is_named: bool) -> None:
    """Raise an error if the matrix Q is not positive definite."""
    scale = max(map(abs, operator.bounds))
    if pairs.values[0] > 1e-13 * scale:
        return
    remedy = "Add a multiple of the identity to it."
    if is_named:
        remedy = "Divide the similarities by their maximum, so that none exceeds 1."
    raise ValueError(
        "Q must be positive definite, but its smallest eigenvalue is "
        f"{pairs.values[0]:.3g}. {remedy}"
    )
