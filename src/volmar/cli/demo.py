"""``volmar demo``: cluster a generated table."""

from __future__ import annotations

import csv
import io
import shlex
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
from volmar.metrics import clustering_error
from volmar.plots import ClusterDisplay
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


# ---------------------------------------------------------------------- demo


TABLE, LABELS, REPORT = "customers.csv", "labels.csv", "report.html"
MODEL, PICTURE = "model.volmar", "clusters.png"
FILES = (TABLE, LABELS, REPORT, MODEL, PICTURE)
ID = "customer_id"


def run_demo(out: Path, *, n_samples: int, seed: int, force: bool = False) -> None:
    """Run ``volmar cluster`` on a generated table, and print the results."""
    out = expanded_path(out)
    out.mkdir(parents=True, exist_ok=True)
    refuse_files({f"--out, {name}:": out / name for name in FILES}, force=force)
    files = ClusterFiles(out / LABELS, report=out / REPORT, force=force)
    stages = Stages(files.stages())
    table = make_customers(n_samples, seed)
    write_atomically(out / TABLE, table.text, force=force)
    words = ["volmar", "cluster", out / TABLE, "--id", ID, "-o", out / LABELS]
    words += ["--save", out / MODEL, "--report", out / REPORT]
    command = shlex.join(map(str, words))
    clusterer = _clustered(files, out, command, seed, stages)
    write_atomically(out / PICTURE, _picture(clusterer), force=force)
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
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows, figure = clusterer._rows(), Figure(figsize=(6.0, 4.8), layout="constrained")
    FigureCanvasAgg(figure)  # without pyplot, so that no window opens
    labels, ax = clusterer.labels_[rows.kept], figure.subplots()
    # The rows are scaled already.
    ClusterDisplay.from_labels(rows.X, labels, standardize=False, ax=ax, title=TABLE)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=100)
    return buffer.getvalue()


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
        f"  open {out / REPORT} and {out / PICTURE}",
        "  volmar cluster your_table.csv -o labels.csv --report report.html",
        f"  volmar predict {out / MODEL} {out / TABLE} -o new_labels.csv",
    ]
