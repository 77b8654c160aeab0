"""Make docs/images/report.png, the report of `volmar demo` as a user sees it, and methods.png.

Run it from the root of the repository as ``python docs/images/make_pictures.py``; it needs
Chromium, and volmar with its extras.
"""

import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.cluster import HDBSCAN, KMeans, SpectralClustering
from threadpoolctl import threadpool_limits

import volmar
from volmar.datasets import make_two_circles, make_two_moons
from volmar.metrics import matched_labels
from volmar.plots.display import COLOURS

HERE = Path(__file__).parent
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--hide-scrollbars --virtual-time-budget=8000 --window-size=1200,1220"
)


N_ROWS = 400  # of each shape
METHODS: dict[str, Callable[[int, int], Any]] = {
    "KMeans": lambda k, seed: KMeans(k, n_init=10, random_state=seed),
    "SpectralClustering": lambda k, seed: SpectralClustering(
        k, affinity="nearest_neighbors", random_state=seed
    ),
    "HDBSCAN": lambda _, __: HDBSCAN(min_cluster_size=15, copy=True),
    "AutoClusterer": lambda _, seed: volmar.AutoClusterer(random_state=seed),
}


def _ours(name: str, k: int, seed: int) -> Any:
    return getattr(volmar, name)(k, random_state=seed)


METHODS |= {
    name: partial(_ours, name) for name in ("MSPC", "CPMMC", "KernelCPMMC", "SoftLabelMVC")
}


def _stretched(rng: np.random.Generator) -> NDArray:
    middles = np.array([[0.0, 0.0], [0.0, 5.0]])
    return middles[np.arange(N_ROWS) % 2] + rng.normal(size=(N_ROWS, 2)) * np.array([8.0, 0.8])


def _unequal(rng: np.random.Generator) -> NDArray:
    groups = ((300, (0.0, 0.0), 1.5), (70, (7.0, 1.0), 0.6), (30, (3.0, 7.0), 0.4))
    return np.concatenate([m + spread * rng.normal(size=(n, 2)) for n, m, spread in groups])


def _blobs(rng: np.random.Generator) -> NDArray:
    middles = np.array([[0.0, 0.0], [7.0, 0.0], [3.5, 6.0]])
    return middles[np.arange(N_ROWS) % 3] + rng.normal(size=(N_ROWS, 2))


# Each shape with the number of clusters given to the methods (noise is a single group).
SHAPES: dict[str, tuple[Callable[[np.random.Generator], NDArray], int]] = {
    "blobs": (_blobs, 3),
    "unequal groups": (_unequal, 3),
    "stretched groups": (_stretched, 2),
    "moons": (lambda rng: make_two_moons(N_ROWS, random_state=int(rng.integers(2**31)))[0], 2),
    "circles": (lambda rng: make_two_circles(N_ROWS, random_state=int(rng.integers(2**31)))[0], 2),
    "noise": (lambda rng: rng.normal(size=(N_ROWS, 2)), 2),
}


def draw_methods(path: Path, seed: int = 0) -> None:
    """Draw a row per shape and a column per method, with the CPU time.

    Within a row, clusters that overlap most have the same colour.
    """
    figure = Figure(figsize=(1.75 * len(METHODS), 1.7 * len(SHAPES)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(SHAPES), len(METHODS))
    for i, (shape, (draw, k)) in enumerate(SHAPES.items()):
        X = draw(np.random.default_rng(seed))
        first = None
        for j, (method, make) in enumerate(METHODS.items()):
            labels, seconds = _timed(make(k, seed), X)
            first = labels if first is None else first
            _draw_labels(axes[i, j], X, _numbered_as(first, labels), seconds)
            if i == 0:
                axes[i, j].set_title(method, fontsize=10)
        axes[i, 0].set_ylabel(shape, fontsize=10)
    figure.savefig(path, dpi=100)


def _timed(estimator: Any, X: NDArray) -> tuple[NDArray, float]:
    """Return the labels and the CPU time of the fit, in one thread, without lazy imports."""
    with warnings.catch_warnings(action="ignore", category=UserWarning), threadpool_limits(1):
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
    colours = np.array([*COLOURS, "#999999"])[np.where(labels < 0, -1, labels % len(COLOURS))]
    ax.scatter(*X.T, s=5, c=colours, linewidths=0)
    ax.set(xticks=[], yticks=[])
    box = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 1}
    style = {"transform": ax.transAxes, "ha": "right", "fontsize": 8, "bbox": box}
    ax.text(0.98, 0.02, f"{1000 * seconds:.0f} ms", **style)


def main():
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("no chromium found: install it first")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "volmar", "demo"], check=True, cwd=folder)
        demo = Path(folder) / "demo"
        picture = f"--screenshot={HERE / 'report.png'}"
        flags = [*FLAGS.split(), f"--user-data-dir={folder}/profile", picture]
        page = (demo / "report.html").as_uri()
        subprocess.run([browser, *flags, page], check=True, capture_output=True)
    draw_methods(HERE / "methods.png")
    sys.stdout.write(f"wrote {HERE / 'report.png'} and {HERE / 'methods.png'}\n")


if __name__ == "__main__":
    main()
