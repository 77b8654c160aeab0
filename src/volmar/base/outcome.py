"""What every fit goes through: callbacks, checks of its values and of scores, the status."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from traceback import walk_tb
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from volmar._checks import is_finite, is_number, shown
from volmar._warn import warn_user
from volmar.solvers import Result, Status

#: Explanation and remedy for each status, unless the method has its own text.
WORDS: Mapping[Status, str] = MappingProxyType(
    {
        Status.MAX_ITER: "the fit has not converged. Raise max_iter",
        Status.CYCLE: (
            "the labels repeat in a cycle, and the best of them are kept. Try another init or "
            "random_state"
        ),
        Status.DEGENERATE: (
            "other clusters are equally good. Check that the rows differ, or use another "
            "n_clusters"
        ),
        Status.UNBOUNDED: "this problem has no optimal solution. Use other parameters",
        Status.STOPPED: "the algorithm cannot make further progress. Use other parameters",
        Status.FAILED: (
            "rounding errors ended the search. Scale X (sklearn.preprocessing.StandardScaler), or "
            "use float64"
        ),
    }
)


def quiet() -> np.errstate:
    """Return a context without NumPy's warnings of overflow, which point to lines of volmar.

    Values that overflow in a fit or in scores are found by the checks of this module.
    """
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")


@contextmanager
def fresh_fit(estimator: Any, X: Any) -> Iterator[Any]:
    """Yield a copy of an estimator to be fitted, check the copy, and publish its fit at once.

    The fit may change parameters of the copy and set flags on it. The estimator keeps those of the
    user at any time, for callbacks and for other threads. Values that are not finite raise an
    error, and a status other than CONVERGED causes a warning. A fit that fails or is interrupted
    leaves no fitted attributes.
    """
    fitted = object.__new__(type(estimator))
    vars(fitted).update(vars(estimator), _user_model=estimator)
    forget(fitted)
    try:
        with quiet():
            yield fitted
        check_fitted_values(fitted, X)
        _publish(estimator, fitted)
        message = status_message(estimator)
        if message:
            warn_user(message, ConvergenceWarning)
    except (ArithmeticError, np.linalg.LinAlgError) as error:
        forget(estimator)
        if _is_of_the_user(error):
            raise
        raise ValueError(
            f"the fit of {type(estimator).__name__} failed numerically ({error})"
            f"{_extremes(estimator, X)}. {REMEDY}"
        ) from error
    except BaseException:
        forget(estimator)
        raise


def forget(estimator: Any) -> None:
    """Delete the fitted attributes of an estimator."""
    for name in [name for name in vars(estimator) if name.endswith("_") and name[0] != "_"]:
        vars(estimator).pop(name, None)


def _is_of_the_user(error: BaseException) -> bool:
    """Return whether an error was raised by a task of dask that is not a function of volmar."""
    names = [one.f_globals.get("__name__", "") for one, _ in walk_tb(error.__traceback__)]
    packages = [name.split(".")[0] for name in names]
    inside = [i for i, package in enumerate(packages) if package in ("dask", "distributed")]
    return bool(inside) and packages[inside[-1] + 1 : inside[-1] + 2] != ["volmar"]


def _publish(estimator: Any, fitted: Any) -> None:
    """Give an estimator the attributes of its fitted copy, except parameters and flags."""
    params = estimator.get_params(deep=False)

    def of(model: Any, *, is_own: bool) -> dict[str, Any]:
        names = [one for one in vars(model) if (one in params or one.startswith(OWN)) == is_own]
        return {name: vars(model)[name] for name in names}

    # A single assignment: another thread sees the previous fit or this one, never a mixture.
    estimator.__dict__ = of(estimator, is_own=True) | of(fitted, is_own=False)


# Beginnings of names of attributes that belong to an estimator or to a fit, not to its result.
OWN = (
    "_user_model",
    "_previous",
    "_keeps_sizes",
    "_skl_callback",
    "_callback",
    "_parent_callback",
)


# Remedy for values that are not finite.
REMEDY = (
    "Scale X (sklearn.preprocessing.StandardScaler), or use sample weights of a smaller range or "
    "less extreme parameters."
)


def status_message(estimator: Any) -> str:
    """Return a warning with the status of a fit, its meaning and a remedy; "" if it converged.

    The text of the estimator's `_status_words` takes precedence over `WORDS`.
    """
    result = estimator.result_
    if result.status.ok:
        return ""
    own = getattr(estimator, "_status_words", None)
    words = (own(result) if own is not None else "") or WORDS[result.status]
    limit = ""
    if result.status is Status.MAX_ITER and getattr(estimator, "max_iter", None) is not None:
        limit = f", max_iter={estimator.max_iter}"
    return (
        f"{type(estimator).__name__} ended with the status {result.status.name} "
        f"({result.status.value}{limit}): {words.rstrip('.')}."
    )


def check_fitted_values(estimator: Any, X: Any) -> None:
    """Raise an error if a fitted attribute is not finite.

    The check covers public attributes that are numbers, arrays or sparse matrices. Dask arrays
    are not computed, and `result_` is not checked (its gap is NaN if no bound was proved).
    Attributes in the estimator's `_may_be_nan` may be NaN.
    """
    named = getattr(estimator, "_may_be_nan", ())
    for name, value in vars(estimator).items():
        is_public = name.endswith("_") and not name.startswith("_") and name not in named
        if is_public and not _is_finite(value):
            raise ValueError(
                f"{name} is not finite. Values in the fit of {type(estimator).__name__} were too "
                f"large or too small for {_dtype_of(X)}{_extremes(estimator, X)}. {REMEDY}"
            )


def finite_scores(scores: NDArray, X: Any, estimator: Any) -> NDArray:
    """Return scores of rows; raise an error that names the rows if scores are not finite."""
    if is_finite(scores):
        return scores
    wrong = np.flatnonzero(~np.isfinite(scores.reshape(scores.shape[0], -1)).all(axis=1))
    which = (
        f"row {wrong[0]}" if wrong.size == 1 else f"{wrong.size} rows, the first row {wrong[0]}"
    )
    entries = X[int(wrong[0])]
    values = entries.data if sparse.issparse(entries) else entries
    raise ValueError(
        f"X has {which}, whose scores by {type(estimator).__name__} are not finite. Entries of up "
        f"to {np.abs(values).max(initial=0.0):.3g} are too far from the training rows, or too "
        f"extreme for the parameters{_extremes(estimator, None)}. Leave such rows out, or scale X "
        "and fit again in float64."
    )


def _is_finite(value: Any) -> bool:
    if isinstance(value, (float, np.floating)):
        return bool(np.isfinite(value))
    values = value.data if sparse.issparse(value) else value
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fc":
        return True
    return is_finite(values)


def _dtype_of(X: Any) -> str:
    return str(getattr(X, "dtype", "float64"))


def _extremes(estimator: Any, X: Any) -> str:
    """Return a text with the largest entry of X and the numbers set by the user."""
    values = X.data if sparse.issparse(X) else X
    texts = []
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        texts.append(f"X has entries of up to {np.abs(values).max(initial=0.0):.3g}")
    defaults = inspect.signature(type(estimator)).parameters
    for name, value in estimator.get_params(deep=False).items():
        if is_number(value) and name in defaults and value != defaults[name].default:
            texts.append(f"{name}={shown(value)}")
    return f" ({', '.join(texts)})" if texts else ""


# ------------------------------------------------------ the result of a fit with a single cluster


@dataclass(frozen=True, repr=False)
class OneCluster(Result):
    """All rows in one cluster, with an objective and a gap of 0."""

    labels: NDArray = field(default_factory=lambda: np.empty(0))


# ----- progress through scikit-learn's callbacks (1.9 and later); no progress in earlier versions


F = TypeVar("F", bound=Callable[..., Any])

try:
    from sklearn.callback import CallbackSupportMixin as CallbackSupportMixin  # noqa: PLC0414
    from sklearn.callback import with_callbacks as with_callbacks  # noqa: PLC0414
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Placeholder for versions of scikit-learn without callbacks."""

    def with_callbacks(method: F) -> F:
        """Return the method unchanged, because there are no callbacks to tear down."""
        return method


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
