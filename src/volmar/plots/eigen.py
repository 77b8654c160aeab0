"""Eigenvalues of a spectral method, and the gap that speaks for its number of clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from volmar.plots.clusters import COLOURS, new_axes

UNUSED = "0.6"


class EigenDisplay:
    """Eigenvalues that a spectral method worked with, and the gap after the last that it used.

    A wide gap between the k-th eigenvalue and the next speaks for k clusters; where there is
    hardly one, another number would do as well.

    Parameters
    ----------
    eigenvalues : ndarray of shape (m,)
        In the order of their use: smallest first for graphs, largest first for kernels.
    n_clusters : int
        Number k of eigenvalues used.

    Attributes
    ----------
    gap_ : float
        Distance between eigenvalue k and the next; NaN where the next was not computed.
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        The figure of `ax_`.

    Examples
    --------
    >>> from volmar import NormalizedSpectralClustering
    >>> from volmar.datasets import make_blobs
    >>> from volmar.plots import EigenDisplay
    >>> X, _ = make_blobs(150, centers=3, random_state=0)
    >>> model = NormalizedSpectralClustering(3, random_state=0).fit(X)
    >>> display = EigenDisplay.from_estimator(model)
    >>> bool(display.gap_ > 10 * model.eigenvalues_[2])
    True
    """

    def __init__(self, eigenvalues, n_clusters):
        self.eigenvalues = eigenvalues
        self.n_clusters = n_clusters

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> EigenDisplay:
        """Draw the `eigenvalues_` of a fitted estimator.

        Parameters
        ----------
        estimator : fitted clusterer or pipeline
            With `eigenvalues_`: NormalizedSpectralClustering, NormalizedCut, SMIC, SoftLabelMVC.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if not given.

        Returns
        -------
        EigenDisplay
        """
        check_is_fitted(estimator)
        model = estimator[-1] if isinstance(estimator, Pipeline) else estimator
        name = type(model).__name__
        eigenvalues = getattr(model, "eigenvalues_", None)
        if eigenvalues is None:
            remedy = (
                "Its splits may have some: pass tree_.splits()[0].model."
                if hasattr(model, "tree_")
                else "Use NormalizedSpectralClustering, NormalizedCut, SMIC or SoftLabelMVC."
            )
            raise ValueError(f"this {name} has no eigenvalues_. {remedy}")
        return cls(np.asarray(eigenvalues), model.n_clusters).plot(ax=ax, title=name)

    def plot(self, *, ax: Any = None, title: str | None = None) -> EigenDisplay:
        """Draw on `ax`, or on a new figure.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure if not given.
        title : str, optional
            Title of the axes.

        Returns
        -------
        EigenDisplay
        """
        from matplotlib.ticker import MaxNLocator

        if ax is None:
            ax = new_axes((5.0, 3.6))
        values, k = np.asarray(self.eigenvalues, dtype=np.float64), self.n_clusters
        place = np.arange(1, len(values) + 1)
        for name, part, colour in (
            (f"used for {k} clusters", slice(None, k), COLOURS[0]),
            ("next", slice(k, None), UNUSED),
        ):
            if values[part].size:
                ax.plot(place[part], values[part], "o", color=colour, markersize=7, label=name)
        self.gap_ = float(abs(values[k] - values[k - 1])) if len(values) > k else float("nan")
        if np.isfinite(self.gap_):
            self._draw_gap(ax, values, k)
        falls = len(values) > 1 and values[-1] < values[0]
        ax.set_xlabel(f"number of the eigenvalue, {'largest' if falls else 'smallest'} first")
        ax.set_ylabel("eigenvalue")
        ax.set_xlim(0.5, len(values) + 0.9)
        ax.margins(y=0.12)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.grid(visible=True, axis="y", linewidth=0.5, alpha=0.4)
        if title:
            ax.set_title(title)
        ax.legend(fontsize="small")
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw_gap(self, ax: Any, values: np.ndarray, k: int) -> None:
        low, high = sorted((values[k - 1], values[k]))
        ax.axhspan(low, high, color=COLOURS[4], alpha=0.18, lw=0)
        ax.text(
            k + 0.5,
            (low + high) / 2,
            f"gap {self.gap_:.3g}",
            ha="center",
            va="center",
            fontsize="small",
        )
