"""Progress through scikit-learn's own callbacks (1.9 and later), and nothing without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in where scikit-learn has no callbacks."""

    def with_callbacks(method: F) -> F:
        """Return the method as it is: there are no callbacks to tear down."""
        return method


__all__ = ["CallbackSupportMixin", "fit_steps", "with_callbacks"]


def fit_steps(estimator: Any, X: Any, n_steps: int, name: str = "start") -> Iterator[int]:
    """Yield 0, ..., n_steps - 1, telling the estimator's callbacks when each begins and ends.

    A callback that asks to stop ends the loop after the current step. Call it once, inside a
    `fit` decorated with `with_callbacks`.
    """
    if not hasattr(estimator, "_init_callback_context"):
        yield from range(n_steps)
        return
    context = estimator._init_callback_context(max_subtasks=n_steps)
    context.call_on_fit_task_begin(estimator=estimator, X=X)
    for step in range(n_steps):
        subtask = context.subcontext(task_name=f"{name} {step}")
        subtask.call_on_fit_task_begin(estimator=estimator, X=X)
        yield step
        if subtask.call_on_fit_task_end(estimator=estimator, X=X):
            break
    context.call_on_fit_task_end(estimator=estimator, X=X)
