"""``volmar demo``: cluster a generated table, and compare methods on shapes."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np

from volmar._files import expanded_path, write_atomically
from volmar.cli.cluster import ClusterFiles, fitted, outcome_of, write_cluster_labels
from volmar.cli.console import Stages, refuse_files, screen
from volmar.cli.demo_methods import as_png, draw_methods, new_canvas
from volmar.cli.demo_table import DemoTable, make_customers
from volmar.cli.methods import DEFAULT, make_method
from volmar.metrics import clustering_error
from volmar.plots import ClusterDisplay
from volmar.report import sentences_of, write_report
from volmar.table_clusterer import TableClusterer
from volmar.tables import read_table

__all__ = ["run_demo"]

TABLE, LABELS, REPORT = "customers.csv", "labels.csv", "report.html"
MODEL, PICTURE, METHODS = "model.volmar", "clusters.png", "methods.png"
FILES = (TABLE, LABELS, REPORT, MODEL, PICTURE, METHODS)
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
        write_atomically(out / METHODS, draw_methods(seed, progress=tell), force=force)
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
    labels = clusterer.labels_[rows.kept]
    # Prepared columns are on one scale already.
    ClusterDisplay.from_labels(
        rows.X, labels, standardize=False, ax=figure.subplots(), title=TABLE
    )
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
        f"  open {out / REPORT} and {out / METHODS}",
        "  volmar cluster your_table.csv -o labels.csv --report report.html",
        f"  volmar predict {out / MODEL} {out / TABLE} -o new_labels.csv",
    ]
