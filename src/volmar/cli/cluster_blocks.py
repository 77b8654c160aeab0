"""``volmar cluster`` on a folder of files, block by block, locally or on a dask cluster."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from volmar._files import printable, real_path
from volmar._memory import available_memory
from volmar.cli.cluster import ClusterFiles, fitted, outcome_of, print_found
from volmar.cli.console import Stages, UsageError, say
from volmar.cli.rows import name_columns

if TYPE_CHECKING:
    from volmar.table_clusterer import TableClusterer

__all__ = ["cluster_blocks"]

# Number of rows in the sample. It determines the kinds of the columns. Tests of a given number of
# clusters use it, and the report shows it.
SAMPLE = 20_000
# Prepared rows are kept in memory, so that files are read only once, if they need at most this
# share of it.
HELD = 0.25
# Seconds between two lines of progress.
PROGRESS_SECONDS = 2.0


def cluster_blocks(
    source: str,
    clusterer: TableClusterer,
    files: ClusterFiles,
    split_anyway: bool,
    scheduler: str | None,
    command: str,
) -> None:
    """Fit to all rows in passes, test on a sample, and write labels block by block."""
    from volmar.tables import (
        LoadedTable,
        is_folder_of_tables,
        prepare_blocks,
        prepare_sample,
        read_folder,
        sample_rows,
    )

    if not is_folder_of_tables(source):
        raise UsageError(
            f"--scheduler takes a folder of Parquet or CSV files, got {source!r}. Leave "
            "--scheduler out for a single file."
        )
    if clusterer.seeds is not None or clusterer.must_link is not None:
        option = "--seeds" if clusterer.seeds is not None else "--must-link"
        raise UsageError(
            f"{option} needs the rows in memory, and {source!r} is read block by block. Give a "
            "single file, or a sample of the rows."
        )
    stages = Stages([*files.stages(), "labelling"])
    with _client(scheduler):
        with stages.stage("reading") as tell:
            frame = read_folder(source)
            name_columns(clusterer, frame)
            preparation = clusterer._new_preparation()
            drawn = sample_rows(frame, SAMPLE, random_state=clusterer._seed(), progress=tell)
        with stages.stage("preparing"):
            rows = prepare_blocks(frame, preparation, sample=drawn)
            n, d = rows.X.shape
            sample = prepare_sample(drawn, preparation, notes=rows.notes)
            table = LoadedTable(Path(source).name, drawn.frame)
        for note in rows.notes:
            say(f"note: {note}")
        _fit(clusterer, sample, preparation, table, rows, stages, split_anyway)
        with stages.stage("labelling") as tell:
            if files.append:
                sizes = _appended(files, clusterer, frame, tell)
            else:
                sizes = _labelled(files, clusterer, rows, tell)
    n_drawn = len(sample.ids)
    if n > n_drawn and not clusterer.is_fitted_to_blocks_:
        name = type(clusterer.model_).__name__
        say(
            f"{name} cannot be fitted in blocks. It was fitted to {n_drawn} rows drawn at random, "
            "and the other rows were predicted."
        )
    elif n > n_drawn and clusterer.n_clusters != "auto":
        say(f"The clusters were fitted to all rows. Tests used {n_drawn} rows drawn at random.")
    name = printable(real_path(source).name)
    heading = f"{name}: {n} rows, {d} column{'s' if d > 1 else ''} in blocks"
    print_found(source, clusterer, heading, sizes, files)
    files.keep(clusterer, n_rows=n, n_rows_used=n, sizes=sizes.tolist())
    if files.is_explained:
        outcome = outcome_of(source, clusterer, stages, command)
        shown = f"This page shows {n_drawn} of {n} rows, drawn at random."
        outcome = replace(
            outcome,
            title=f"Clusters of {name}",
            source=name,
            n_rows=n,
            notes=[*outcome.notes, shown],
        )
        files.explain(outcome, stages)


@contextmanager
def _client(address: str | None) -> Iterator[None]:
    if address is None:
        yield
        return
    from distributed import Client

    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError, TimeoutError) as error:
        raise UsageError(
            f"--scheduler {address!r} does not answer ({error}). Check the address."
        ) from error
    with client:
        yield


def _fit(
    clusterer: TableClusterer,
    sample: Any,
    preparation: Any,
    table: Any,
    rows: Any,
    stages: Stages,
    split_anyway: bool,
) -> None:
    """Fit to all rows if the method supports blocks, else to the sample."""
    from volmar.distributed import LostBlocksError, report_passes

    rows = _held(rows, clusterer._seed())
    passes = _PassProgress()
    try:
        with report_passes(passes):
            fitted(
                clusterer,
                lambda progress: clusterer.fit_prepared(
                    sample, preparation, table=table, blocks=rows, progress=progress
                ),
                stages,
                split_anyway,
            )
    except LostBlocksError as error:
        raise UsageError(str(error)) from error
    if passes.n_passes:
        say(f"{passes.n_passes} passes over {rows.X.shape[0]} rows.")


def _held(rows: Any, seed: int) -> Any:
    """Return the rows with their blocks kept in memory, if they fit."""
    free = _memory_of_workers() or available_memory()
    if rows.X.nbytes > HELD * free:
        say(
            f"The prepared rows take {rows.X.nbytes / 2**30:.1f} GiB of the "
            f"{free / 2**30:.1f} GiB of memory. The files are read again in each pass."
        )
        return rows
    return replace(rows, X=rows.dithered(seed).persist(), noise=None)


def _memory_of_workers() -> int:
    """Return the total memory limit of connected dask workers, 0 if there is none."""
    distributed = sys.modules.get("distributed")
    try:
        client = None if distributed is None else distributed.get_client()
    except ValueError:
        return 0
    if client is None:
        return 0
    return sum(one["memory_limit"] or 0 for one in client.scheduler_info()["workers"].values())


class _PassProgress:
    """Counts passes, and prints a line about one of them every `PROGRESS_SECONDS`."""

    def __init__(self) -> None:
        self.n_passes = 0
        self._last = time.monotonic()

    def __call__(self, report: Any) -> None:
        """Count a pass, and print a line if the last one is old enough."""
        self.n_passes += 1
        if time.monotonic() - self._last >= PROGRESS_SECONDS:
            self._last = time.monotonic()
            say(f"pass {self.n_passes}: {report.n_rows} rows, {report.seconds:.1f} s")


def _labelled(
    files: ClusterFiles, clusterer: TableClusterer, rows: Any, tell: Any
) -> NDArray[np.int64]:
    """Label the rows block by block, write the labels to -o if given, return cluster sizes."""
    import dask

    from volmar.tables import open_labels

    counts = np.zeros(clusterer.n_clusters_, dtype=np.int64)
    blocks = list(rows.X.to_delayed().ravel())
    file: Any = nullcontext()
    if files.out is not None:
        options = {"force": files.force, "raw_ids": files.raw_ids}
        file = open_labels(files.out, rows.id_name, confidence=True, **options)
    with file as write:
        before = 0
        for i, block in enumerate(blocks):
            X = dask.compute(block)[0]
            if len(X):
                labels, scores, confidence = clusterer.label_prepared(X)
                counts += np.bincount(labels, minlength=counts.size)
                if write is not None:
                    write(_ids(rows.ids, i, before, len(X)), labels, scores, confidence)
                before += len(labels)
            tell(i + 1, len(blocks))
    if files.out is not None:
        files.done(files.out)
    return counts


def _appended(
    files: ClusterFiles, clusterer: TableClusterer, frame: Any, tell: Any
) -> NDArray[np.int64]:
    """Write the rows with their labels block by block, and return cluster sizes."""
    from volmar.tables import LoadedTable, open_rows
    from volmar.tables.folder import computed
    from volmar.tables.write import free_name

    if files.out is None:
        raise UsageError("--append needs an output file. Give one with -o.")
    counts = np.zeros(clusterer.n_clusters_, dtype=np.int64)
    parts = list(frame.to_delayed())
    name = free_name("cluster", frame.columns)
    options = {"force": files.force, "raw_ids": files.raw_ids}
    with open_rows(files.out, name=name, **options) as write:
        for i, part in enumerate(parts):
            block = computed([part])[0]
            if len(block):
                rows = clusterer.preparation_.prepare(LoadedTable("a block of the folder", block))
                labels = clusterer.label_prepared(rows.X)[0]
                counts += np.bincount(labels, minlength=counts.size)
                write(block, labels, rows.kept)
            tell(i + 1, len(parts))
    files.done(files.out)
    return counts


def _ids(ids: Any, block: int, before: int, size: int) -> Any:
    """Return the ids of a block: from the id column, or row numbers over all files."""
    if ids is None:
        return np.arange(before, before + size)
    if isinstance(ids, np.ndarray):
        return ids[before : before + size]
    return ids.blocks[block].compute()
