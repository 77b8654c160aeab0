"""``volmar demo``: cluster a generated table, and compare methods on shapes."""

from __future__ import annotations

import csv
import io
import shlex
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.cluster import HDBSCAN, KMeans, SpectralClustering
from threadpoolctl import threadpool_limits

import volmar
from volmar._files import expanded_path, write_atomically
from volmar.cli.cluster import (
    DEFAULT,
    ClusterFiles,
    fitted,
    make_method,
    outcome_of,
    write_cluster_labels,
)
from volmar.cli.console import Stages, refuse_files, screen
from volmar.datasets import make_two_circles, make_two_moons
from volmar.metrics import clustering_error, matched_labels
from volmar.plots import ClusterDisplay
from volmar.plots.display import COLOURS
from volmar.report.cluster_page import write_report
from volmar.report.verdict import sentences_of
from volmar.table_clusterer import TableClusterer
from volmar.tables import read_table

# ---------------------------------------------------------------------- table


# Name and share of each group; its mean age, median basket, mean visits and median income.
GROUPS = (
    ("families", 0.55, 41.0, 78.0, 4.0, 46_000.0),
    ("students", 0.30, 23.0, 14.0, 9.0, 14_000.0),
    ("retired", 0.15, 69.0, 32.0, 13.0, 27_000.0),
)
CONTRACTS = ("prepaid", "monthly", "yearly")


class DemoTable(NamedTuple):
    """A table as CSV text, and the true group of each row."""

    text: str
    groups: NDArray


def make_customers(n_rows: int, seed: int) -> DemoTable:
    """Return a table of customers from three groups, with `shoe_size` unrelated to them."""
    rng = np.random.default_rng(seed)
    ends = np.round(np.cumsum([group[1] for group in GROUPS]) * n_rows).astype(int)
    groups = rng.permutation(np.repeat(np.arange(len(GROUPS)), np.diff(ends, prepend=0)))
    age, basket, visits, income = (
        np.array([group[column] for group in GROUPS])[groups] for column in (2, 3, 4, 5)
    )
    # Two thirds of each group have the usual contract of the group, the others a random one.
    contract = np.where(rng.random(n_rows) < 2 / 3, 2 - groups, rng.integers(0, 3, n_rows))
    columns = {
        "customer_id": [f"C{number:05d}" for number in range(1, n_rows + 1)],
        "age": (age + rng.normal(0.0, 4.0, n_rows)).round().astype(int).tolist(),
        "income": (income * rng.lognormal(0.0, 0.2, n_rows)).round(-2).astype(int).tolist(),
        "basket": (basket * rng.lognormal(0.0, 0.2, n_rows)).round(2).tolist(),
        "visits": rng.poisson(visits).tolist(),
        "contract": [CONTRACTS[one] for one in contract],
        "shoe_size": rng.integers(36, 47, n_rows).tolist(),
    }
    for name in ("income", "basket"):
        for row in np.flatnonzero(rng.random(n_rows) < 0.03):
            columns[name][row] = ""
    file = io.StringIO()
    write = csv.writer(file, lineterminator="\n")
    write.writerow(columns)
    write.writerows(zip(*columns.values(), strict=True))
    return DemoTable(file.getvalue(), groups)


# ---------------------------------------------------------------------- methods


N_ROWS = 400  # of each shape
METHODS: dict[str, Callable[[int, int], Any]] = {
    "KMeans": lambda k, seed: KMeans(k, n_init=10, random_state=seed),
    "SpectralClustering": lambda k, seed: SpectralClustering(
        k, affinity="nearest_neighbors", random_state=seed
    ),
    "HDBSCAN": lambda _, __: HDBSCAN(min_cluster_size=15, copy=True),
    'MSPC("auto")': lambda _, seed: volmar.MSPC("auto", random_state=seed),
}
METHODS |= {
    name: partial(make_method, name, settings={})
    for name in ("MSPC", "CPMMC", "KernelCPMMC", "SoftLabelMVC")
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


def draw_methods(seed: int, *, progress: Callable[[int, int], None]) -> bytes:
    """Return the plot as a PNG file: a row per shape, a column per method, with the CPU time.

    Within a row, clusters that overlap most have the same colour.
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


# ---------------------------------------------------------------------- demo


TABLE, LABELS, REPORT = "customers.csv", "labels.csv", "report.html"
MODEL, PICTURE, GRID = "model.volmar", "clusters.png", "methods.png"
FILES = (TABLE, LABELS, REPORT, MODEL, PICTURE, GRID)
ID = "customer_id"


def run_demo(out: Path, *, n_samples: int, seed: int, force: bool = False) -> None:
    """Run ``volmar cluster`` on a generated table, compare methods, and print the results."""
    out = expanded_path(out)
    out.mkdir(parents=True, exist_ok=True)
    refuse_files({f"--out, {name}:": out / name for name in FILES}, force=force)
    files = ClusterFiles(out / LABELS, report=out / REPORT, force=force)
    stages = Stages((*files.stages(), "comparing methods"))
    table = make_customers(n_samples, seed)
    write_atomically(out / TABLE, table.text, force=force)
    words = ["volmar", "cluster", out / TABLE, "--id", ID, "-o", out / LABELS]
    words += ["--save", out / MODEL, "--report", out / REPORT]
    command = shlex.join(map(str, words))
    clusterer = _clustered(files, out, command, seed, stages)
    write_atomically(out / PICTURE, _picture(clusterer), force=force)
    with stages.stage("comparing methods") as tell:
        write_atomically(out / GRID, draw_methods(seed, progress=tell), force=force)
    console = screen()
    for line in _lines(out, clusterer, table, command):
        console.print(line, markup=False)


def _clustered(
    files: ClusterFiles, out: Path, command: str, seed: int, stages: Stages
) -> TableClusterer:
    """Fit the table, and write labels, model and report."""
    source = str(out / TABLE)
    with stages.stage("reading"):
        table = read_table(source)
    method = make_method(DEFAULT, 2, seed, {})
    clusterer = TableClusterer("auto", clusterer=method, id_column=ID, random_state=seed)
    fitted(clusterer, lambda progress: clusterer.fit(table, progress=progress), stages, False)
    write_cluster_labels(out / LABELS, files, clusterer, table)
    clusterer.save(out / MODEL, force=files.force)
    outcome = outcome_of(source, clusterer, stages, command)
    write_report(outcome, out / REPORT, force=files.force)
    return clusterer


def _picture(clusterer: TableClusterer) -> bytes:
    """Return a scatter plot of the rows, coloured by cluster, as a PNG file."""
    rows, figure = clusterer._rows(), new_canvas((6.0, 4.8))
    style = {"standardize": False, "ax": figure.subplots(), "title": TABLE}  # scaled already
    ClusterDisplay.from_labels(rows.X, clusterer.labels_[rows.kept], **style)
    return as_png(figure)


def _lines(out: Path, clusterer: TableClusterer, table: DemoTable, command: str) -> list[str]:
    """Return the printed lines: what was done, what was found, and next steps."""
    rows = clusterer._rows()
    n, d = rows.X.shape
    labels = clusterer.labels_
    sizes = ", ".join(map(str, np.bincount(labels[labels >= 0])))
    different = round(n * clustering_error(table.groups[rows.kept], labels[rows.kept]))
    n_missing = table.text.count(",,")
    made = f"Generated a table of {n} customers: an id, columns in different units, a category, "
    judged = f"{different} of them are in the cluster of another group of the generator."
    return [
        f"{made}{n_missing} missing values.",
        f"Ran: {command}",
        f"Used {d} columns. The report lists imputed values, and rescaled and omitted columns.",
        *sentences_of(clusterer.evidence_),
        f"{clusterer.n_clusters_} clusters by {DEFAULT}: {sizes} rows. {judged}",
        f"Wrote {', '.join(FILES)} to {out}.",
        "Next:",
        f"  open {out / REPORT} and {out / GRID}",
        "  volmar cluster your_table.csv -o labels.csv --report report.html",
        f"  volmar predict {out / MODEL} {out / TABLE} -o new_labels.csv",
    ]
