"""``volmar predict``: clusters of new rows by a saved model."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from volmar.cli.cluster import one_score
from volmar.cli.console import Stages, refuse_files, say, screen, written
from volmar.cli.score import refuse_folder

__all__ = ["predict_file"]


def predict_file(
    model: Path, source: str, *, id_column: str | None, out: Path | None, force: bool
) -> None:
    """Read a model and a table, and write or count the clusters of its rows."""
    from volmar.models import load_model
    from volmar.tables import Preparation, read_table, write_labels

    refuse_folder(source, "predict")
    refuse_files({"-o": out}, source, model, force=force)
    stages = Stages()
    with stages.stage("reading"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        saved = load_model(model)
        table = read_table(source)
    preparation = saved.preparation
    if preparation is None:
        preparation = Preparation(scale="none", id_column=id_column).fit(table)
    elif id_column is not None:
        preparation.id_column = id_column
    with stages.stage("predicting"):
        rows = preparation.transform(table)
        labels = saved.clusterer.predict(rows.X)
        scores = one_score(saved.clusterer.decision_function(rows.X))
    for text in dict.fromkeys(str(one.message) for one in caught):
        say(f"warning: {text}")
    for note in rows.notes:
        say(f"note: {note}")
    sizes = np.bincount(labels)
    counts = ", ".join(f"{size} in cluster {label}" for label, size in enumerate(sizes))
    screen().print(f"{table.name}: {len(labels)} rows, {counts}", markup=False)
    if out is None:
        say("(-o labels.csv keeps the labels.)")
        return
    write_labels(out, rows.ids, rows.id_name, labels, scores, force=force)
    written(out)
