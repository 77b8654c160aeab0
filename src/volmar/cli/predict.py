"""``volmar predict``: assign new rows to the clusters of a saved model."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from volmar._files import printable
from volmar.cli.cluster import named
from volmar.cli.console import Stages, refuse_files, say, screen, written

if TYPE_CHECKING:
    from volmar.tables import LoadedTable
    from volmar.tables.prepare import PreparedTable


def predict_file(
    model: Path,
    source: str,
    *,
    id_column: str | None,
    out: Path | None,
    reject: float | None,
    **options: bool,
) -> None:
    """Predict the clusters of a table or folder, print their sizes, and write labels to `out`.

    With `reject`, rows with a p-value of at most `reject` get the label -1, and the file has a
    column of p-values. `options` are force and raw_ids of `open_labels`.
    """
    from volmar.models import load_model
    from volmar.table_clusterer.estimator import check_rejection
    from volmar.tables import TableError
    from volmar.tables.write import open_labels, written_kind

    refuse_files({"-o": out}, source, model, force=options["force"])
    if out is not None:
        written_kind(out)
    stages = Stages()
    with stages.stage("reading"):
        saved = load_model(model)
        name, blocks = table_blocks(source, saved.preparation, id_column)
    if reject is not None:
        check_rejection(saved.model, reject)
    if saved.preparation is not None and id_column is not None:
        saved.preparation.id_column = id_column
    counts: list[NDArray] = []
    n_rejected = 0
    notes, before = [], 0
    write = None
    with ExitStack() as files, stages.stage("predicting") as tell:
        for number, read in enumerate(blocks, start=1):
            table = read()
            if table.data.shape[0]:
                rows = _rows(saved, table, id_column)
                labels, scores, confidence = _labelled(saved, rows)
                p_values = None
                if reject is not None:
                    p_values = _p_values(saved.model, rows, labels)
                    labels = np.where(p_values <= reject, -1, labels)
                if out is not None:
                    if write is None:
                        has = {"confidence": confidence is not None, "p_value": reject is not None}
                        opened = open_labels(out, rows.id_name, **has, **options)
                        write = files.enter_context(opened)
                    has_ids = rows.id_name != "row" or len(blocks) == 1
                    ids = rows.ids if has_ids else rows.ids + before
                    write(ids, named(saved.model, labels), scores, confidence, p_values)
                counts.append(np.bincount(labels[labels >= 0]))
                n_rejected += int(np.count_nonzero(labels < 0))
                notes += [f"note: {note}" for note in rows.notes]
                notes += [f"warning: {text}" for text in rows.warnings]
                before += table.data.shape[0]
            tell(number, len(blocks))
        if not before:
            raise TableError(f"{name} has no rows. Give a table with rows.")
    for note in _once(notes):
        say(note)
    sizes = [sum(of_blocks) for of_blocks in zip_longest(*counts, fillvalue=0)]
    names = named(saved.model, np.arange(len(sizes)))
    listed = ", ".join(f"{n} in cluster {name}" for name, n in zip(names, sizes, strict=True))
    if reject is not None:
        listed = f"{listed}{', ' if listed else ''}{n_rejected} rejected (-1)"
    n_rows = sum(sizes) + n_rejected
    screen().print(f"{printable(name)}: {n_rows} rows, {listed}", markup=False)
    if out is not None:
        written(out)
    else:
        say("(-o labels.csv writes the labels.)")


def table_blocks(
    source: str, preparation: Any, id_column: str | None
) -> tuple[str, Sequence[Callable[[], LoadedTable]]]:
    """Return a name, and a function per block that reads it; a file is one block."""
    from volmar.tables import read_table
    from volmar.tables.folder import is_folder_of_tables, read_folder

    if not is_folder_of_tables(source):
        table = read_table(source)
        return table.name, [lambda: table]
    name = Path(source).expanduser().resolve().name
    frame = read_folder(source)
    if preparation is not None:
        wanted = {*preparation.used_, id_column, preparation.id_column}
        # `prepare` raises an error for missing columns.
        used = [column for column in frame.columns if str(column) in wanted]
        frame = frame[used] if used else frame
    return name, [partial(_block, name, part) for part in frame.to_delayed()]


def _block(name: str, part: Any) -> LoadedTable:
    from volmar.tables import LoadedTable
    from volmar.tables.folder import computed

    return LoadedTable(f"a block of {name}", computed([part])[0])


def _labelled(saved: Any, rows: PreparedTable) -> tuple[NDArray, NDArray, NDArray | None]:
    """Return labels, scores and confidences (None if the model has none)."""
    if hasattr(saved.model, "label_prepared"):
        return saved.model.label_prepared(rows.X)
    return saved.model.predict(rows.X), saved.model.decision_function(rows.X), None


def _p_values(model: Any, rows: PreparedTable, labels: NDArray) -> NDArray:
    if hasattr(model, "novelty_prepared"):
        return model.novelty_prepared(rows, labels)
    return model.novelty_score(rows.X)


def _rows(saved: Any, table: LoadedTable, id_column: str | None) -> PreparedTable:
    """Prepare rows in the same way as the training rows."""
    from volmar.tables.columns import as_columns
    from volmar.tables.kinds import ColumnKind
    from volmar.tables.prepare import PreparedTable, without_infinite

    if saved.preparation is not None:
        return saved.preparation.prepare(table)
    # A model without a preparation was fitted to the columns themselves.
    columns = as_columns(table)
    names = [name for name in columns.names if name != id_column]
    ids = np.arange(columns.n_rows) if id_column is None else columns.ids(id_column)
    wanted = getattr(saved.model, "feature_names_in_", None)
    by_name = wanted is not None and columns.is_frame
    if wanted is not None and by_name:
        names = [str(name) for name in wanted]
    places = columns.find(names, "the model")
    if by_name:
        X = columns.data.iloc[:, places]
    elif columns.is_sparse:
        X = columns.data[:, places]
    else:
        X = without_infinite(columns.numbers(places, [ColumnKind("numeric")] * len(places), []))[0]
    kept = np.ones(columns.n_rows, dtype=bool)
    return PreparedTable(X, ids, id_column or "row", names, kept, list(columns.notes))


def _once(notes: Sequence[str]) -> list[str]:
    """Return the notes of all blocks; those that differ only in numbers are joined."""
    found: dict[str, list[str]] = {}
    for note in notes:
        found.setdefault(re.sub(r"[\d,.]+", "#", note), []).append(note)
    return [
        some[0] if len(set(some)) == 1 else f"{some[0]} (similar in {len(some)} blocks)"
        for some in found.values()
    ]
