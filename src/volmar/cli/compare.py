"""``volmar compare``: several methods on one table, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from volmar._files import printable
from volmar.cli.cluster import parse_number
from volmar.cli.console import (
    Screen,
    Stages,
    UsageError,
    narrow_table,
    print_json,
    refuse_files,
    say,
    written,
)
from volmar.cli.rows import read_rows
from volmar.cli.score import score_text
from volmar.table_clusterer import Comparison, compare_methods
from volmar.table_clusterer.comparison import DEFAULT_METHODS, spelled


def compare_file(
    source: str,
    methods: Sequence[str] = (),
    *,
    n_clusters: str = "auto",
    out: Path | None = None,
    force: bool = False,
    raw_ids: bool = False,
    seed: int = 0,
    as_json: bool = False,
    **preparation: Any,
) -> Comparison:
    """Cluster a table with several methods, and print the comparison as tables or JSON."""
    from volmar.tables import Preparation
    from volmar.tables.write import open_columns, written_kind

    names = spelled(methods or DEFAULT_METHODS, "--method ")
    number = parse_number(n_clusters, minimum=2)
    refuse_files({"-o": out}, source, force=force)
    if out is not None:
        written_kind(out)
    table = read_rows(source, Preparation(**preparation), seed=seed)
    rows = table.rows
    if rows.X.shape[0] < 2:
        raise UsageError(
            f"{table.name} has {rows.X.shape[0]} row. Give a table of at least two rows."
        )
    found = Comparison(notes=list(rows.notes), warnings=list(rows.warnings))
    stopped: KeyboardInterrupt | None = None
    try:
        with Stages().watching() as progress:
            compare_methods(
                rows.X,
                names,
                n_clusters=number,
                fit_rows=rows.dithered(seed),
                random_state=seed,
                progress=progress,
                into=found,
            )
    except KeyboardInterrupt:
        done = ", ".join(run.method for run in found.runs) or "nothing"
        stopped = KeyboardInterrupt(f"; complete: {done}")
    if not found.runs and stopped is None:
        name, reason = next(iter(found.left_out.items()))
        raise UsageError(f"no method could cluster {table.name}. {name}: {reason}")
    if found.runs:  # the complete ones
        print_comparison(found, table.name, table.n_rows, as_json=as_json)
        if out is not None:
            names = [rows.id_name, *(run.method for run in found.runs)]
            with open_columns(out, names, force=force, raw_ids=raw_ids) as write:
                write(rows.ids, *(run.labels for run in found.runs))
            written(out)
    if stopped is not None:
        raise stopped
    return found


def print_comparison(found: Comparison, source: str, n_all: int, *, as_json: bool = False) -> None:
    """Print scores, agreement and skipped methods as tables, or everything as JSON."""
    if as_json:
        print_json({"file": source, "rows": n_all, **found.summary()})
        return
    for note in found.notes:
        say(f"note: {note}")
    console = Screen(highlight=False, emoji=False)
    of_all = f" of {n_all}" if n_all > found.n_rows else ""
    console.print(
        f"{printable(source)}: {found.n_rows}{of_all} rows, {found.n_columns} columns, "
        f"{found.n_clusters} clusters requested",
        markup=False,
        soft_wrap=True,
    )
    console.print("\nScores without true labels (↑ higher is better, ↓ lower is better):")
    console.print(_scores_table(found))
    if sampled := [run for run in found.runs if run.n_fitted < found.n_rows]:
        sizes = ", ".join(f"{run.method} {run.n_fitted:,} rows" for run in sampled)
        console.print(f"* fitted to a sample, other rows predicted: {sizes}.\n")
    if len(found.runs) > 1:
        console.print("Agreement (adjusted Rand index: 1 = same clusters, 0 = chance):")
        console.print(_agreement_table(found))
    for name, reason in found.left_out.items():
        say(f"left out: {name}: {reason}")
    for text in found.warnings:
        say(f"warning: {text}")


# Short headers, so that names of methods fit into 80 columns.
_HEADERS = {
    "separation score": "separ-\nation ↑",
    "MSP": "MSP ↑",
    "silhouette": "silhou-\nette ↑",
    "Calinski-Harabasz": "Cal.-\nHar. ↑",
    "normalised cut": "Ncut ↓",
    "imbalance": "imbal-\nance",
}


def _scores_table(found: Comparison) -> Table:
    table = narrow_table("method", "clus-\nters", "sec-\nonds", *_HEADERS.values())
    table.columns[0].no_wrap, table.columns[0].overflow = False, "fold"
    for run in found.runs:
        values = {one.name: one.value for one in run.scores}
        texts = [score_text(values.get(name)) for name in _HEADERS]
        name = run.method + (" *" if run.n_fitted < found.n_rows else "")
        table.add_row(name, str(run.n_clusters), f"{run.seconds:.2f}", *texts)
    return table


def _agreement_table(found: Comparison) -> Table:
    """Return the matrix; numbers in place of names keep its columns narrow."""
    table = narrow_table("", *map(str, range(1, len(found.runs) + 1)))
    table.columns[0].no_wrap = False
    for i, (run, line) in enumerate(zip(found.runs, found.agreement(), strict=True), start=1):
        table.add_row(f"{i} {run.method}", *(f"{value:.2f}" for value in line))
    return table
