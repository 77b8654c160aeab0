"""``volmar score MODEL NEW``: differences between the table of a model and a new table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from volmar._files import printable
from volmar.cli.console import Screen, UsageError, counted, narrow_table, say
from volmar.cli.predict import table_blocks

if TYPE_CHECKING:
    from volmar.diagnostics import DriftReport

__all__ = ["drift_file", "print_drift"]


def drift_file(model: str, source: str, *, as_json: bool = False) -> DriftReport:
    """Compare a table or folder with the table of a saved model, and print the differences."""
    from volmar.diagnostics.drift import compare_summaries
    from volmar.models import load_model
    from volmar.tables import TableError

    with counted("reading"):
        saved = load_model(Path(model).expanduser())
        known = getattr(saved.model, "drift_summary_", None)
        if known is None:
            raise UsageError(
                f"{Path(model).name} has no summary of its training table. It was saved by an "
                "older version, or was not fitted to a table. Fit it again with volmar cluster "
                "--save."
            )
        name, blocks = table_blocks(source, saved.preparation, None)
    found = None
    with counted("comparing") as tell:
        for number, read in enumerate(blocks, start=1):
            table = read()
            if table.data.shape[0]:
                summary = saved.model.summarize_drift(table, known)
                found = summary if found is None else found.joined(summary)
            tell(number, len(blocks))
    if found is None:
        raise TableError(f"{name} has no rows. Give a table with rows.")
    report = compare_summaries(known, found)
    if as_json:
        content = {"model": Path(model).name, "file": name, **report.to_dict()}
        Screen().out(json.dumps(content, allow_nan=False), highlight=False)
    else:
        print_drift(name, report)
    return report


def print_drift(name: str, report: DriftReport) -> None:
    """Print the differences, then a table of cluster shares and median distances."""
    for note in report.notes:
        say(f"note: {note}")
    console = Screen(highlight=False, emoji=False)
    first, *others = report.sentences
    console.print(f"{printable(name)}: {first}", markup=False, soft_wrap=True)
    for sentence in others:
        console.print(f"- {sentence}", markup=False, soft_wrap=True)
    console.print(_table(report))


def _table(report: DriftReport) -> Table:
    from volmar.diagnostics.drift import as_distance

    table = narrow_table()
    table.add_column("cluster", no_wrap=True)
    for title in ("rows before", "now", "share before", "now", "distance before", "now"):
        table.add_column(title, justify="right", no_wrap=True)
    for share, distance in zip(report.shares, report.distances, strict=True):
        table.add_row(
            str(share.cluster),
            f"{share.n_old:,}",
            f"{share.n_new:,}",
            f"{share.old:.1%}",
            f"{share.new:.1%}",
            as_distance(distance.old),
            as_distance(distance.new),
        )
    return table
