"""The plot of ``volmar demo`` that compares methods on shapes, as scikit-learn's does."""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.cluster import HDBSCAN, KMeans, SpectralClustering
from threadpoolctl import threadpool_limits

import volmar
from volmar.datasets import make_two_circles, make_two_moons
from volmar.metrics import matched_labels
from volmar.plots.display import COLOURS

__all__ = ["METHODS", "SHAPES", "as_png", "draw_methods", "new_canvas"]

# Number of rows of each shape.
N_ROWS = 400
# Colour of rows without a cluster.
NOISE = "#999999"
METHODS: dict[str, Callable[[int, int], Any]] = {
    "KMeans": lambda k, seed: KMeans(k, n_init=10, random_state=seed),
    "SpectralClustering": lambda k, seed: SpectralClustering(
        k, affinity="nearest_neighbors", random_state=seed
    ),
    "HDBSCAN": lambda _, __: HDBSCAN(min_cluster_size=15, copy=True),
    'MSPC("auto")': lambda _, seed: volmar.MSPC("auto", random_state=seed),
    "MSPC": lambda k, seed: volmar.MSPC(k, random_state=seed),
    "CPMMC": lambda k, seed: volmar.CPMMC(k, random_state=seed),
    "KernelCPMMC": lambda k, seed: volmar.KernelCPMMC(k, random_state=seed),
    "SoftLabelMVC": lambda k, seed: volmar.SoftLabelMVC(k, random_state=seed),
}


def _stretched(rng: np.random.Generator) -> NDArray:
    middles = np.array([[0.0, 0.0], [0.0, 5.0]])
    return middles[np.arange(N_ROWS) % 2] + rng.normal(size=(N_ROWS, 2)) * np.array([8.0, 0.8])


def _unequal(rng: np.random.Generator) -> NDArray:
    sizes, middles = (300, 70, 30), np.array([[0.0, 0.0], [7.0, 1.0], [3.0, 7.0]])
    spreads = (1.5, 0.6, 0.4)
    parts = [
        middle + spread * rng.normal(size=(size, 2))
        for size, middle, spread in zip(sizes, middles, spreads, strict=True)
    ]
    return np.concatenate(parts)


def _blobs(rng: np.random.Generator) -> NDArray:
    middles = np.array([[0.0, 0.0], [7.0, 0.0], [3.5, 6.0]])
    return middles[np.arange(N_ROWS) % 3] + rng.normal(size=(N_ROWS, 2))


# Each shape with the number of clusters given to the methods (noise is a single group).
SHAPES: dict[str, tuple[Callable[[np.random.Generator], NDArray], int]] = {
    "blobs": (_blobs, 3),
    "unequal groups": (_unequal, 3),
    "stretched groups": (_stretched, 2),
    "moons": (lambda rng: make_two_moons(N_ROWS, random_state=int(rng.integers(2**31)))[0], 2),
    "circles": (
        lambda rng: make_two_circles(N_ROWS, random_state=int(rng.integers(2**31)))[0],
        2,
    ),
    "noise": (lambda rng: rng.normal(size=(N_ROWS, 2)), 2),
}


def draw_methods(seed: int, *, progress: Callable[[int, int], None]) -> bytes:
    """Return the plot as a PNG file, with a row per shape and a column per method.

    The CPU time of the fit is in the lower right corner. Within a row, clusters that overlap most
    have the same colour.
    """
    figure = new_canvas((1.75 * len(METHODS), 1.7 * len(SHAPES)))
    axes = figure.subplots(len(SHAPES), len(METHODS))
    total = len(SHAPES) * len(METHODS)
    for i, (shape, (draw, k)) in enumerate(SHAPES.items()):
        X = draw(np.random.default_rng(seed))
        first = None
        for j, (method, make) in enumerate(METHODS.items()):
            labels, seconds = _timed(make(k, seed), X)
            first = labels if first is None else first
            _draw_labels(axes[i, j], X, _numbered_as(first, labels), seconds)
            if i == 0:
                axes[i, j].set_title(method, fontsize=10)
            progress(i * len(METHODS) + j + 1, total)
        axes[i, 0].set_ylabel(shape, fontsize=10)
    return as_png(figure)


def _timed(estimator: Any, X: NDArray) -> tuple[NDArray, float]:
    """Return the labels and the CPU time of the fit.

    One thread makes the CPU time insensitive to other programs. An untimed fit to a quarter of
    the rows comes first, so that lazy imports are not counted.
    """
    with (
        warnings.catch_warnings(action="ignore", category=UserWarning),
        threadpool_limits(1),
    ):
        clone(estimator).fit(X[::4])
        start = time.process_time()
        labels = estimator.fit(X).labels_
    return labels, time.process_time() - start


def _numbered_as(reference: NDArray, labels: NDArray) -> NDArray:
    """Return the labels renumbered to match those of `reference`; noise stays -1."""
    found, is_row = np.full(labels.size, -1), labels >= 0
    if is_row.any():
        found[is_row] = matched_labels(reference[is_row], labels[is_row])
    return found


def _draw_labels(ax: Any, X: NDArray, labels: NDArray, seconds: float) -> None:
    colours = np.array([*COLOURS, NOISE])[np.where(labels < 0, -1, labels % len(COLOURS))]
    ax.scatter(*X.T, s=5, c=colours, linewidths=0)
    ax.set(xticks=[], yticks=[])
    ax.text(
        0.98,
        0.02,
        f"{1000 * seconds:.0f} ms",
        transform=ax.transAxes,
        horizontalalignment="right",
        fontsize=8,
        bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 1},
    )


def new_canvas(size: tuple[float, float]) -> Any:
    """Return a figure without pyplot, so that no window opens."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def as_png(figure: Any) -> bytes:
    """Return the content of a PNG file of a figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=100)
    return buffer.getvalue()
