"""``volmar demo``: every clusterer but the semi-definite programs, on built-in data."""

from __future__ import annotations

import base64
import io
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.progress import track
from rich.table import Table as ScreenTable
from sklearn.cluster import KMeans

import volmar
from volmar._files import expanded_path, write_atomically
from volmar._version import __version__
from volmar.cli.console import Screen, refuse_files
from volmar.datasets import load, make_two_circles, make_two_gaussians, make_two_moons
from volmar.metrics import clustering_error
from volmar.plots import ClusterDisplay
from volmar.report.environment import page_environment
from volmar.table_clusterer import clusterer_names
from volmar.tables import open_columns

INTRODUCTION = (
    "Each method ran once with its default settings; no label was used. Errors are the share of "
    "rows on the wrong side after the best matching of clusters to classes, so that 0 is perfect "
    "and 50 % is a coin toss for two classes of equal size. The gap is how far the method's own "
    "objective can be from its best value, at most, where such a bound exists (an empty cell says "
    "that none does); of CPMMC and its kin, and of IterSVR, it holds for the labels found, not "
    "over all labels. All labels are in labels.csv beside this page."
)
# Semi-definite programs take many seconds at the demo's size; they are for some hundred rows.
SEMI_DEFINITE = frozenset({"GMMC", "HardLabelMVC", "SDPMMC"})
# What the picture shows: one method of each kind. The table has all of them.
PICTURED = (
    "KMeans (sklearn)",
    "MSPC",
    "CPMMC",
    "KernelCPMMC",
    "SoftLabelMVC",
    "NormalizedSpectralClustering",
    "SMIC",
)
RIGHT = frozenset({"error %", "seconds", "objective", "gap", "rows", "features", "classes"})


FILES = ("labels.csv", "clusters.png", "report.html")


def run_demo(out: Path, *, n_samples: int, seed: int, force: bool = False) -> None:
    """Run the demo, print its table and write its three files into `out`."""
    console = Screen()
    out = expanded_path(out)
    out.mkdir(parents=True, exist_ok=True)
    refuse_files({f"--out, {name}:": out / name for name in FILES}, force=force)
    sets = _data(n_samples, seed)
    fits = [
        (name, method, *_fit(estimator, X), y)
        for name, X, y in track(sets, "clustering", console=console, transient=True)
        for method, estimator in _methods(seed)
    ]
    rows = tuple(
        (
            name,
            method,
            f"{100 * clustering_error(y, model.labels_):.1f}",
            f"{seconds:.3f}",
            *_certificate(model),
        )
        for name, method, model, seconds, y in fits
    )
    header = ("data", "method", "error %", "seconds", "objective", "gap", "status")
    screen = ScreenTable(
        title="Two clusters, default settings, no labels used", box=box.SIMPLE_HEAD, padding=(0, 1)
    )
    # 80 columns hold neither the objective nor the status, which are in the report.
    shown = [i for i, name in enumerate(header) if name not in {"objective", "status"}]
    for i in shown:
        right = header[i] in RIGHT
        screen.add_column(header[i], justify="right" if right else "left", no_wrap=True)
    for row in rows:
        screen.add_row(*(row[i] for i in shown), end_section=row[1] == fits[-1][1])
    console.print(screen)
    for row in rows:
        if row[-1] not in {"", "converged"}:
            console.print(f"{row[1]} on {row[0]}: {row[-1]}")

    _write_labels(out / "labels.csv", sets, fits, force)
    picture = _drawn(sets, fits)
    write_atomically(out / "clusters.png", picture, force=force)
    shapes = [(name, *X.shape, len(np.unique(y))) for name, X, y in sets]
    page = page_of(
        {
            "heading": "Results",
            "text": INTRODUCTION,
            "table": {"header": header, "rows": rows},
        },
        {
            "heading": "The clusters",
            "text": "A method of each kind; the table has all of them. Rows of more than two "
            "features are shown on two principal components. For the two gaussians these hide "
            "the third feature, +3 in one group and -3 in the other, which separates them. "
            "Colours are matched to the classes.",
            "picture": f"data:image/png;base64,{base64.b64encode(picture).decode('ascii')}",
            "alt": "One panel for each data set and method, rows coloured by cluster.",
        },
        {
            "heading": "The data",
            "text": f"Generated with seed {seed}, or from scikit-learn.",
            "table": {"header": ("data", "rows", "features", "classes"), "rows": shapes},
        },
    )
    write_atomically(out / "report.html", page, force=force)
    for name in FILES:
        console.print(f"wrote {out / name}", highlight=False, soft_wrap=True)


def _data(n_samples: int, seed: int) -> list[tuple[str, np.ndarray, np.ndarray]]:
    digits = load("digits-3v8")
    return [
        ("two moons", *make_two_moons(n_samples, random_state=seed)),
        ("two circles", *make_two_circles(n_samples, random_state=seed)),
        ("two gaussians", *make_two_gaussians(n_samples, random_state=seed)),
        ("digits 3 and 8", digits.X, digits.y),
    ]


def _methods(seed: int) -> Iterator[tuple[str, Any]]:
    yield "KMeans (sklearn)", KMeans(2, n_init=10, random_state=seed)
    for name in clusterer_names():
        if name not in SEMI_DEFINITE:
            yield name, getattr(volmar, name)(random_state=seed)


def _fit(estimator: Any, X: np.ndarray) -> tuple[Any, float]:
    start = time.perf_counter()
    # The status column says what they say.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        model = estimator.fit(X)
    return model, time.perf_counter() - start


def _certificate(model: Any) -> tuple[str, str, str]:
    result = getattr(model, "result_", None)
    if result is None:
        return f"{model.inertia_:.3g}", "", ""
    gap = _short(result.gap) if np.isfinite(result.gap) else ""
    return _short(result.objective), gap, result.status.name.lower()


def _short(value: float) -> str:
    """Three digits; what is rounding of zero is zero."""
    return "0" if abs(value) < 1e-12 else f"{value:.3g}"


def _write_labels(path: Path, sets: list, fits: list, force: bool) -> None:
    methods = dict.fromkeys(fit[1] for fit in fits)
    with open_columns(path, ["data", "row", "truth", *methods], force=force) as write:
        for name, X, y in sets:
            columns = [fit[2].labels_ for fit in fits if fit[0] == name]
            write(np.full(len(X), name), np.arange(len(X)), y, *columns)


def _drawn(sets: list, fits: list) -> bytes:
    """Return the picture as a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fits = [
        fit
        for name, *_ in sets
        for method in PICTURED
        for fit in fits
        if fit[:2] == (name, method)
    ]
    n_columns = len(PICTURED)
    figure = Figure(figsize=(3 * n_columns, 2.8 * len(sets)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(sets), n_columns, squeeze=False)
    data = {name: (X, y) for name, X, y in sets}
    for ax, (name, method, model, _, y) in zip(axes.flat, fits, strict=True):
        swapped = np.mean(model.labels_ == y) < 0.5
        labels = 1 - model.labels_ if swapped else model.labels_
        ClusterDisplay.from_labels(data[name][0], labels, ax=ax, legend=False)
        error = 100 * clustering_error(y, model.labels_)
        ax.set(xticks=[], yticks=[], xlabel=f"error {error:.1f} %", ylabel="")
        if ax in axes[0]:
            ax.set_title(method, fontsize=10)
        if ax in axes[:, 0]:
            ax.set_ylabel(name)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=120)
    return buffer.getvalue()


def page_of(*sections: dict[str, Any]) -> str:
    """Return one HTML page without script or network from headings, texts, tables, pictures."""
    template = page_environment().get_template("demo.html")
    return template.render(
        title="volmar demo", version=__version__, sections=sections, right=RIGHT
    )
