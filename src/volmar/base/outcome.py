"""What every fit and every score is checked for at the end: finite numbers, and a status."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from volmar._checks import is_finite, is_number, shown
from volmar.base.warn import warn_user
from volmar.solvers import Status

__all__ = [
    "check_fitted_values",
    "finite_scores",
    "forget",
    "fresh_fit",
    "quiet",
    "status_message",
]

#: What a status means where a method has no words of its own, and what to do about it.
WORDS: Mapping[Status, str] = MappingProxyType(
    {
        Status.MAX_ITER: "the search had not ended. Raise max_iter",
        Status.CYCLE: (
            "the labels came back to earlier ones, and the best of them are kept. Try another "
            "init or random_state"
        ),
        Status.DEGENERATE: (
            "other clusters are as good as these. Check that the rows differ, or use another "
            "n_clusters"
        ),
        Status.UNBOUNDED: "there is no best answer to this problem. Use other parameters",
        Status.STOPPED: "the algorithm cannot go on from here. Use other parameters",
        Status.FAILED: (
            "rounding ended the search. Scale X (sklearn.preprocessing.StandardScaler), or use "
            "float64"
        ),
    }
)


def quiet() -> np.errstate:
    """Return a context without NumPy's warnings of overflow, which name lines of volmar.

    What overflows in a fit or in scores shows in their values, which are checked.
    """
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")


@contextmanager
def fresh_fit(estimator: Any, X: Any) -> Iterator[None]:
    """Forget the last fit, make the next one inside, and check it.

    Its numbers are finite, and a status other than CONVERGED is warned of. A fit that fails or is
    interrupted leaves nothing, neither of itself nor of the one before.
    """
    forget(estimator)
    try:
        with quiet():
            yield
        check_fitted_values(estimator, X)
        message = status_message(estimator)
        if message:
            warn_user(message, ConvergenceWarning)
    except (ArithmeticError, np.linalg.LinAlgError) as error:
        forget(estimator)
        raise ValueError(
            f"the fit broke down in the numbers of {type(estimator).__name__} ({error})"
            f"{_extremes(estimator, X)}. {REMEDY}"
        ) from error
    except BaseException:
        forget(estimator)
        raise


def forget(estimator: Any) -> None:
    """Delete what was fitted."""
    for name in [name for name in vars(estimator) if name.endswith("_") and name[0] != "_"]:
        delattr(estimator, name)


# What to do about numbers out of range.
REMEDY = (
    "Scale X (sklearn.preprocessing.StandardScaler), use sample weights of a smaller range, or "
    "less extreme parameters."
)


def status_message(estimator: Any) -> str:
    """Return what to warn of: the status of a fit, its meaning and a remedy; "" if it converged.

    The estimator's `_status_words`, where it has them, go before the words for any method.
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
    """Refuse a fit one of whose numbers is not finite.

    Looked at are public attributes that are numbers, arrays or sparse matrices; what lies in
    blocks elsewhere is not computed. `result_` may hold NaN where it says so: no gap was proved.
    Attributes in the estimator's `_may_be_nan` are documented to be.
    """
    named = getattr(estimator, "_may_be_nan", ())
    for name, value in vars(estimator).items():
        is_public = name.endswith("_") and not name.startswith("_") and name not in named
        if is_public and not _is_finite(value):
            raise ValueError(
                f"{name} is not finite: numbers in the fit of {type(estimator).__name__} were too "
                f"large or too small for {_dtype_of(X)}{_extremes(estimator, X)}. {REMEDY}"
            )


def finite_scores(scores: NDArray, X: Any, estimator: Any) -> NDArray:
    """Return scores of rows; refuse those that are not finite, naming the rows."""
    if is_finite(scores):
        return scores
    wrong = np.flatnonzero(~np.isfinite(scores.reshape(scores.shape[0], -1)).all(axis=1))
    which = (
        f"row {wrong[0]}" if wrong.size == 1 else f"{wrong.size} rows, the first row {wrong[0]}"
    )
    entries = X[int(wrong[0])]
    values = entries.data if sparse.issparse(entries) else entries
    raise ValueError(
        f"X has {which}, whose scores by {type(estimator).__name__} are not finite: entries of up "
        f"to {np.abs(values).max(initial=0.0):.3g} are too far from the rows that were fitted, or "
        f"from what its parameters can tell apart{_extremes(estimator, None)}. Leave such rows "
        "out, or scale X and fit again, in float64."
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
    """Return the largest entry of X, and the numbers that the user has set."""
    values = X.data if sparse.issparse(X) else X
    texts = []
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        texts.append(f"X has entries of up to {np.abs(values).max(initial=0.0):.3g}")
    defaults = inspect.signature(type(estimator)).parameters
    for name, value in estimator.get_params(deep=False).items():
        if is_number(value) and name in defaults and value != defaults[name].default:
            texts.append(f"{name}={shown(value)}")
    return f" ({', '.join(texts)})" if texts else ""
