"""Warnings that point to the user's line of code instead of a line inside volmar."""

from __future__ import annotations

import inspect
import warnings

# Packages that may be on the stack between a warning and the user's call of fit.
INSIDE = ("volmar", "sklearn", "contextlib")


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line outside this package, at any depth of the call stack."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in INSIDE:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
