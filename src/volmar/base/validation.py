"""Checks of parameters and weights whose messages name the argument, the value and the remedy."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse


def check_choice(name: str, value: Any, options: Iterable[str]) -> str:
    """Return `value` if it is one of `options`."""
    options = tuple(options)
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, got {value!r}.")
    return value


def check_flag(name: str, value: Any) -> bool:
    """Return `value` if it is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def check_count(name: str, value: Any, *, low: int = 1, high: int | None = None) -> int:
    """Return `value` as an int if it is a whole number between `low` and `high`."""
    limits = f"at least {low}" if high is None else f"between {low} and {high}"
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer ({limits}), got {value!r}.")
    count = int(value)
    if count < low or (high is not None and count > high):
        raise ValueError(f"{name} must be {limits}, got {count}.")
    return count


def check_number(
    name: str, value: Any, *, low: float = -np.inf, high: float = np.inf, open_low: bool = False
) -> float:
    """Return `value` as a float if it is finite and between `low` and `high`.

    `open_low` leaves out `low` itself.
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    number = float(value)
    inside = (low < number if open_low else low <= number) and number <= high
    if not np.isfinite(number) or not inside:
        relation = "greater than" if open_low else "at least"
        limits = f"{relation} {low:g}" + (f" and at most {high:g}" if np.isfinite(high) else "")
        limits = limits if np.isfinite(low) else "finite"
        if number == np.inf and np.isfinite(low) and high == np.inf:
            limits += " and finite"
        raise ValueError(f"{name} must be {limits}, got {value}.")
    return number


def check_n_clusters(n_clusters: Any, n_samples: int, *, limit: int | None, method: str) -> int:
    """Return `n_clusters` if the data have that many rows and the method a rule for it."""
    n_clusters = check_count("n_clusters", n_clusters)
    if limit is not None and n_clusters > limit:
        raise NotImplementedError(
            f"{method} has no rule for more than {limit} clusters yet, got n_clusters="
            f"{n_clusters}. Use n_clusters={limit}, or KernelKMeans or "
            "NormalizedSpectralClustering, which take any number."
        )
    if n_clusters > n_samples:
        raise ValueError(
            f"n_clusters={n_clusters} is more than the number of rows: X has "
            f"n_samples={n_samples}. Lower n_clusters."
        )
    return n_clusters


def check_magnitude(X: Any) -> None:
    """Refuse rows so large or so small that their squares leave the range of their dtype."""
    values = X.data if sparse.issparse(X) else X
    limits = np.finfo(X.dtype)
    # Squares of sums over many features must fit, with room to divide by them.
    high, low = np.sqrt(float(limits.max)) * 1e-4, np.sqrt(float(limits.tiny)) * 1e4
    with np.errstate(all="ignore"):
        # peak^2 <= sum of squares <= size peak^2: one fast pass settles nearly every X.
        flat = values.ravel(order="K")
        squares = float(flat @ flat)
    if values.size * low**2 < squares < high**2:
        return
    peak = float(max(values.max(initial=0.0), -values.min(initial=0.0)))
    if peak > high or 0 < peak < low:
        raise ValueError(
            f"X has a largest magnitude of {peak:.3g}, whose square does not fit {X.dtype}. Scale "
            f"X to between {low:.0g} and {high:.0g} (sklearn.preprocessing.StandardScaler)."
        )


def with_short_indices(X: Any) -> Any:
    """Return a CSR matrix with 32-bit indices if they fit, sharing its values; others as they are.

    Readers of svmlight files and products of matrices give 64-bit ones, which scikit-learn's
    k-means does not take, and which need twice the memory.
    """
    if not sparse.issparse(X) or X.indices.dtype == X.indptr.dtype == np.int32:
        return X
    if max(X.nnz, *X.shape) > np.iinfo(np.int32).max:
        return X
    short = (X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32))
    return type(X)(short, shape=X.shape)


def check_start_labels(name: str, labels: ArrayLike, n_samples: int, n_clusters: int) -> NDArray:
    """Return given start labels as consecutive ints from 0, every cluster present."""
    given = np.asarray(labels)
    if given.shape != (n_samples,):
        raise ValueError(
            f"{name} must hold one label a row, shape ({n_samples},), got shape {given.shape}."
        )
    if given.dtype.kind == "f" and np.isnan(given).any():
        raise ValueError(f"{name} holds NaN, which is no label. Give every row a label.")
    try:
        values, consecutive = np.unique(given, return_inverse=True)
    except TypeError as error:
        raise TypeError(
            f"{name} holds labels of kinds that cannot be compared ({error}). Give all of them as "
            "integers, or all as strings."
        ) from error
    if values.size != n_clusters:
        raise ValueError(
            f"{name} must hold n_clusters={n_clusters} different labels, got {values.size}."
        )
    return consecutive
