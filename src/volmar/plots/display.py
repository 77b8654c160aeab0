"""What all displays share: colours, axes, and names that fit."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

__all__ = ["COLOURS", "MARKERS", "Display", "hide_spines", "labels_of", "new_figure", "shortened"]

# Okabe and Ito's colours, distinct for most colour-blind readers; shapes are a second sign.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")


class Display:
    """A picture on one matplotlib Axes, of the size that suits it."""

    ax_: Any
    figure_: Any

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches that suit the picture."""
        return 6.0, 3.6

    def plot(self, *, ax: Any = None) -> Any:
        """Draw on `ax`, or on a new figure."""
        raise NotImplementedError

    def _set_axes(self, ax: Any, size: tuple[float, float] | None = None) -> Any:
        """Return where to draw, a new figure if not given, and keep it."""
        self.ax_ = new_figure(size or self.size).subplots() if ax is None else ax
        self.figure_ = self.ax_.figure
        return self.ax_


def new_figure(size: tuple[float, float]) -> Any:
    """Return a new figure, or say what to install."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "plotting needs matplotlib, which is not installed: pip install 'volmar[plot]'"
        ) from error
    return pyplot.figure(figsize=size, layout="constrained")


def labels_of(estimator: Any, X: Any) -> Any:
    """Return `labels_` of a fitted clusterer where X has as many rows, else its predictions."""
    check_is_fitted(estimator)
    labels = getattr(estimator, "labels_", None)
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    return labels if labels is not None and len(labels) == n_rows else estimator.predict(X)


def hide_spines(ax: Any, *sides: str) -> None:
    """Hide the frame, or some sides of it."""
    for side in sides or ("top", "right", "left", "bottom"):
        ax.spines[side].set_visible(False)


def shortened(text: str, longest: int = 120) -> str:
    """Return a text that no picture or page breaks on."""
    return text if len(text) <= longest else text[: longest - 1] + "…"
