"""``volmar cluster`` on a folder of files, here or on other machines: rows stay in blocks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from volmar.cli.cluster import (
    SAMPLE,
    Asked,
    Found,
    Origin,
    name_results,
    report,
    save,
)
from volmar.cli.cluster_evidence import command_for_two, decide
from volmar.cli.console import Stages, UsageError, say, screen, written
from volmar.cli.methods import make_method

__all__ = ["cluster_blocks"]

# Share of the rows in which the split of all rows may differ from the one that was tested.
SAME_SPLIT = 0.05


def cluster_blocks(asked: Asked, found: Found) -> None:
    """Decide on a sample, fit to all rows by passes, write labels block by block."""
    from volmar.report import sentences_of
    from volmar.rows import as_table, drawn_rows
    from volmar.tables import is_folder_of_tables, prepare_blocks, read_folder

    if not is_folder_of_tables(asked.source):
        raise UsageError(
            f"--scheduler takes a folder of Parquet or CSV files, got {asked.source!r}. Leave "
            "--scheduler out for a single file."
        )
    stages = Stages()
    with _client(asked.scheduler):
        with stages.stage("reading"):
            frame = read_folder(asked.source)
            preparation = asked.preparation()
            rows = prepare_blocks(frame, preparation)
            table = as_table(rows.X)
            n, d = table.shape
            chosen = drawn_rows(n, None, SAMPLE, np.random.default_rng(asked.seed))
            sample = table[chosen]
        for note in rows.notes:
            say(f"note: {note}")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with stages.stage("looking for groups") as tell:
                decide(asked, sample, found, tell)
            if found.n_found > 1:
                _fit(asked, found, rows.X, sample, stages)
        found.warnings += list(dict.fromkeys(str(w.message).splitlines()[0] for w in caught))
        with stages.stage("labelling") as tell:
            sizes = _labelled(asked, found, rows, tell)
    screen().print(
        f"{Path(asked.source).name}: {n} rows, {d} column{'s' if d > 1 else ''} in blocks",
        markup=False,
    )
    if n > len(sample):
        say(f"The number of clusters was decided on {len(sample)} rows drawn at random.")
    for line in sentences_of(found.evidence):
        screen().print(line, markup=False)
    if found.n_found == 1:
        screen().print("One cluster.")
        if asked.wanted() is None:
            say(f"(The best split in two, not supported by the rows: {command_for_two(asked)})")
    else:
        counts = ", ".join(str(size) for size in sizes)
        screen().print(f"{len(sizes)} clusters by {type(found.model).__name__}: {counts} rows.")
    for text in found.warnings:
        say(f"warning: {text}")
    save(asked, found, preparation)
    if asked.report is not None:
        shape = (n, len(frame.columns))
        _report_sample(asked, found, rows, sample, chosen, shape, preparation, stages)


@contextmanager
def _client(address: str | None) -> Iterator[None]:
    if address is None:
        yield
        return
    from distributed import Client

    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError, TimeoutError) as error:
        raise UsageError(f"--scheduler {address!r} does not answer ({error}).") from error
    with client:
        yield


def _fit(asked: Asked, found: Found, X: Any, sample: Any, stages: Stages) -> None:
    from volmar.distributed import LostBlocksError, report_passes

    if found.n_found > 2:
        say(f"{found.n_found} clusters are found on the sample; the other rows are predicted.")
        if found.model is None:
            with stages.stage("clustering"):
                model = make_method(asked.method, found.n_found, asked.seed, asked.settings)
                found.model = model.fit(sample)
        return

    def tell_pass(report: Any) -> None:
        say(f"pass {report.number}: {report.n_rows} rows, {report.seconds:.1f} s")

    try:
        with stages.stage("clustering"), report_passes(tell_pass):
            model = make_method(asked.method, 2, asked.seed, asked.settings).fit(X)
    except LostBlocksError as error:
        raise UsageError(str(error)) from error
    tested = found.model
    if tested is not None:
        from volmar.metrics import clustering_error

        if clustering_error(tested.predict(sample), model.predict(sample)) > SAME_SPLIT:
            say("All rows give another split than the one that was tested, which is kept.")
            return
    found.model = model


def _labelled(asked: Asked, found: Found, rows: Any, tell: Any) -> list[int]:
    """Return the sizes of the clusters, and write the labels as they come, where asked for."""
    import dask

    from volmar.tables import open_labels

    counts = np.zeros(max(found.n_found, 1), dtype=np.int64)
    blocks = list(rows.X.to_delayed().ravel())
    out = asked.out
    file: Any = nullcontext() if out is None else open_labels(out, rows.id_name, force=asked.force)
    with file as write:
        before = 0
        for i, block in enumerate(blocks):
            X = dask.compute(block)[0]
            part = Found(model=found.model)
            if found.model is None:
                name_results(part, X)
            else:
                part.labels = found.model.predict(X)
                part.scores = found.model.decision_function(X)
            counts += np.bincount(part.labels, minlength=counts.size)
            if write is not None:
                write(_ids(rows.ids, i, before, len(X)), part.labels, part.scores)
            before += len(part.labels)
            tell(i + 1, len(blocks))
    if asked.out is not None:
        found.complete.append(asked.out)
        written(asked.out)
    return [int(count) for count in counts]


def _ids(ids: Any, block: int, before: int, size: int) -> Any:
    """Return the ids of a block: of their column, or the numbers of the rows in the files."""
    if ids is None:
        return np.arange(before, before + size)
    if isinstance(ids, np.ndarray):
        return ids[before : before + size]
    return ids.blocks[block].compute()


def _report_sample(
    asked: Asked,
    found: Found,
    rows: Any,
    sample: Any,
    chosen: Any,
    shape: tuple[int, int],
    preparation: Any,
    stages: Stages,
) -> None:
    few = Found(model=found.model, n_found=found.n_found, evidence=found.evidence)
    few.warnings, few.complete = found.warnings, found.complete
    few.labels, few.scores = np.zeros(len(sample), dtype=np.int64), np.zeros(len(sample))
    if found.model is not None:
        few.labels = found.model.predict(sample)
        few.scores = found.model.decision_function(sample)
    notes = [*rows.notes, f"This page shows {len(sample)} of {shape[0]} rows, drawn at random."]
    few_rows = replace(rows, X=sample, ids=chosen, id_name="row", notes=notes)
    if asked.report is not None:
        origin = Origin(Path(asked.source).name, shape, preparation)
        report(asked, asked.report, few, origin, few_rows, stages)
