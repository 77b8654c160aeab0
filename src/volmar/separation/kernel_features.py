"""The feature map of a kernel: exact for few rows, by landmarks for many."""

from __future__ import annotations

from typing import Any

from volmar.base.kernel import EXACT_KERNEL_UP_TO, N_LANDMARKS
from volmar.base.validation import check_count
from volmar.rows import KernelPCAMap, NystroemMap, counted_rows

__all__ = ["fit_kernel_map"]


def fit_kernel_map(
    X: Any,
    weights: Any,
    arguments: dict[str, Any],
    *,
    n_components: int | None = None,
    random_state: Any = None,
) -> Any:
    """Return a fitted map to features whose inner products are those of a kernel.

    Parameters
    ----------
    X : array, CSR matrix or BlockTable of shape (n, d)
        The rows, or a precomputed kernel matrix.
    weights : vector over the rows or None
        Their weights. Rows of weight 0 are left out, and weights do not count otherwise.
    arguments : dict
        Kernel and its parameters, as the maps take them.
    n_components : int, optional
        Number of landmarks, or of leading components of a precomputed kernel. None takes up to
        1000 rows and a precomputed kernel exactly, and 100 landmarks beyond.
    random_state : int, RandomState or None, default=None
        Draws the landmarks.

    Returns
    -------
    KernelPCAMap or NystroemMap
    """
    is_precomputed = arguments["kernel"] == "precomputed"
    points = X if is_precomputed else counted_rows(X, weights)
    n = points.shape[0]
    if n_components is not None:
        n_components = check_count("n_components", n_components, high=n)
    if is_precomputed or (n_components is None and n <= EXACT_KERNEL_UP_TO):
        return KernelPCAMap(n_components, **arguments).fit(points)
    count = N_LANDMARKS if n_components is None else n_components
    return NystroemMap(**arguments, landmarks=count, random_state=random_state).fit(points)
