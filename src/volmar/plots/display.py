"""Base class and helper functions of all displays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.utils.validation import check_is_fitted

# Okabe and Ito's blue and vermilion, then colours that are distinct from them. Each has a contrast
# of at least 3 to its background. The first four are distinct with each of the three kinds of
# colour blindness. Markers distinguish all clusters a second time.
COLOURS = ("#0072b2", "#d55e00", "#063c42", "#a63c74", "#b88600", "#4a2a82", "#2f9a95", "#858a92")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")


class Display:
    """Base class of plots on one matplotlib Axes."""

    ax_: Any
    figure_: Any
    plot: Callable[..., Any]

    @property
    def size(self) -> tuple[float, float]:
        """Suitable width and height in inches."""
        return 6.0, 3.6

    def _set_axes(self, ax: Any, size: tuple[float, float] | None = None) -> Any:
        """Store and return `ax`, or the axes of a new figure if it is None."""
        self.ax_ = new_figure(size or self.size).subplots() if ax is None else ax
        self.figure_ = self.ax_.figure
        return self.ax_


def new_figure(size: tuple[float, float]) -> Any:
    """Return a new pyplot figure; raise ImportError if matplotlib is not installed."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "plotting needs matplotlib, which is not installed: pip install 'volmar[plot]'"
        ) from error
    return pyplot.figure(figsize=size, layout="constrained")


def labels_of(estimator: Any, X: Any) -> Any:
    """Return `labels_` of a fitted clusterer if X has as many rows, else its predictions."""
    check_is_fitted(estimator)
    labels = getattr(estimator, "labels_", None)
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    return labels if labels is not None and len(labels) == n_rows else estimator.predict(X)


def hide_spines(ax: Any, *sides: str) -> None:
    """Hide the given sides of the frame, or all of them."""
    for side in sides or ("top", "right", "left", "bottom"):
        ax.spines[side].set_visible(False)
