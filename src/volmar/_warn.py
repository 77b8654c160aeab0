"""Warnings that point to the user's line of code, and that code of volmar can collect.

Filters of the module `warnings` are shared by all threads before Python 3.14: two threads that use
`warnings.catch_warnings` at the same time may leave filters behind that hide all warnings of the
process. volmar therefore uses none. Warnings of volmar are collected by `collecting`; those of
other libraries are avoided at their cause, removed by `without_warnings`, or reach the user.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple


class UserMessage(NamedTuple):
    """A warning that was collected."""

    text: str
    category: type[Warning]


_COLLECTED: ContextVar[list[UserMessage] | None] = ContextVar("_COLLECTED", default=None)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line outside this package, at any depth of the call stack."""
    collected = _COLLECTED.get()
    if collected is not None:
        collected.append(UserMessage(message, category))
        return
    inside = ("volmar", "sklearn", "contextlib")  # between a warning and the user's call of fit
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in inside:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def collecting() -> Iterator[list[UserMessage]]:
    """Collect the warnings of volmar inside the context in a list, instead of issuing them.

    Only the calling thread is affected; see `volmar._threads.in_jobs` for calls in parallel.
    """
    found: list[UserMessage] = []
    token = _COLLECTED.set(found)
    try:
        yield found
    finally:
        _COLLECTED.reset(token)


@cache
def without_warnings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy of a Python function of another library, in which ``warn`` does nothing."""
    given: Any = inspect.unwrap(function)
    silent = SimpleNamespace(**{**vars(warnings), "warn": lambda *_, **__: None})
    names = {**given.__globals__, "warnings": silent}
    copied = FunctionType(
        given.__code__, names, given.__name__, given.__defaults__, given.__closure__
    )
    copied.__kwdefaults__ = given.__kwdefaults__
    return copied


def quiet_fit(model: Any, X: Any, sample_weight: Any = None) -> Any:
    """Fit a KMeans of scikit-learn, without its warning of fewer distinct rows than clusters."""
    without_warnings(type(model).fit)(model, X, sample_weight=sample_weight)
    return model
