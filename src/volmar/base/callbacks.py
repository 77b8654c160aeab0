"""Progress through scikit-learn's callbacks (1.9 and later); no progress in earlier versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Placeholder for versions of scikit-learn without callbacks."""

    def with_callbacks(method: F) -> F:
        """Return the method unchanged, because there are no callbacks to tear down."""
        return method


__all__ = ["CallbackSupportMixin", "fit_steps", "with_callbacks"]


def fit_steps(estimator: Any, X: Any, n_steps: int, name: str = "start") -> Iterator[int]:
    """Yield 0, ..., n_steps - 1, and notify the estimator's callbacks of each step.

    If a callback requests a stop, the loop ends after the current step. Call this function once,
    inside a `fit` decorated with `with_callbacks`. During a fit, `estimator` is a working copy:
    callbacks get the estimator of the user.
    """
    estimator = getattr(estimator, "_user_model", estimator)
    if not getattr(estimator, "_skl_callbacks", None):
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
