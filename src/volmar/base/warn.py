"""Warnings that point at the user's line, not at one of the house's."""

from __future__ import annotations

import inspect
import warnings

# What stands between a warning and the call of fit: scikit-learn wraps it for its callbacks.
INSIDE = ("volmar", "sklearn", "contextlib")


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line outside this package, however deep the call came from."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in INSIDE:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
