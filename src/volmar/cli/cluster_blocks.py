"""``volmar cluster`` on a folder of files, here or on other machines: rows stay in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from volmar.cli.cluster import ClusterFiles, fitted, outcome_of, print_found
from volmar.cli.console import Stages, UsageError, say

if TYPE_CHECKING:
    from volmar.table_clusterer import TableClusterer

__all__ = ["cluster_blocks"]

# Rows on which the number of clusters is decided.
SAMPLE = 20_000
# Share of the rows in which the split of all rows may differ from the one that was tested.
SAME_SPLIT = 0.05


def cluster_blocks(
    source: str,
    clusterer: TableClusterer,
    files: ClusterFiles,
    split_anyway: bool,
    scheduler: str | None,
    command: str,
) -> None:
    """Decide on a sample, fit to all rows by passes, write labels block by block."""
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
    if files.append:
        raise UsageError("--append takes a single file, got a folder. Leave it out.")
    stages = Stages([*files.stages(), "clustering", "labelling"])
    with _client(scheduler):
        with stages.stage("reading") as tell:
            frame = read_folder(source)
            preparation = clusterer._new_preparation()
            drawn = sample_rows(frame, SAMPLE, random_state=clusterer._seed(), progress=tell)
        with stages.stage("preparing"):
            rows = prepare_blocks(frame, preparation, sample=drawn)
            n, d = rows.X.shape
            sample = prepare_sample(drawn, preparation, notes=rows.notes)
            table = LoadedTable(Path(source).name, drawn.frame)
        for note in rows.notes:
            say(f"note: {note}")
        fitted(
            clusterer,
            lambda progress: clusterer.fit_prepared(
                sample, preparation, table=table, progress=progress
            ),
            stages,
            split_anyway,
        )
        if clusterer.n_clusters_ == 2:
            _fit_all(clusterer, rows.X, sample.X, stages)
        elif clusterer.n_clusters_ > 2:
            say(
                f"{clusterer.n_clusters_} clusters are found on the sample; the other rows are "
                "predicted."
            )
        with stages.stage("labelling") as tell:
            sizes = _labelled(files, clusterer, rows, tell)
    n_drawn = len(sample.ids)
    if n > n_drawn:
        say(f"The number of clusters was decided on {n_drawn} rows drawn at random.")
    heading = f"{Path(source).name}: {n} rows, {d} column{'s' if d > 1 else ''} in blocks"
    print_found(source, clusterer, heading, sizes, files)
    files.keep(clusterer, n_rows=n, n_rows_used=n, sizes=sizes.tolist())
    if files.is_explained:
        outcome = outcome_of(source, clusterer, stages, command)
        shown = f"This page shows {n_drawn} of {n} rows, drawn at random."
        outcome = replace(
            outcome,
            title=f"Clusters of {Path(source).name}",
            source=Path(source).name,
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
        raise UsageError(f"--scheduler {address!r} does not answer ({error}).") from error
    with client:
        yield


def _fit_all(clusterer: TableClusterer, X: Any, sample: Any, stages: Stages) -> None:
    """Fit the split to all rows, and take it where it is the one that was tested."""
    from volmar.distributed import LostBlocksError, report_passes
    from volmar.metrics import clustering_error

    def tell_pass(report: Any) -> None:
        say(f"pass {report.number}: {report.n_rows} rows, {report.seconds:.1f} s")

    try:
        with stages.stage("clustering"), report_passes(tell_pass):
            model = _in_two(clusterer).fit(X)
    except LostBlocksError as error:
        raise UsageError(str(error)) from error
    is_tested = clusterer.n_clusters == "auto"
    tested = clusterer.model_.predict(sample)
    if is_tested and clustering_error(tested, model.predict(sample)) > SAME_SPLIT:
        say("All rows give another split than the one that was tested, which is kept.")
        return
    clusterer.adopt(model)


def _in_two(clusterer: TableClusterer) -> Any:
    return clone(clusterer.clusterer).set_params(n_clusters=2)


def _labelled(
    files: ClusterFiles, clusterer: TableClusterer, rows: Any, tell: Any
) -> NDArray[np.int64]:
    """Return the sizes of the clusters, and write the labels as they come, where asked for."""
    import dask

    from volmar.tables import open_labels

    counts = np.zeros(clusterer.n_clusters_, dtype=np.int64)
    blocks = list(rows.X.to_delayed().ravel())
    file: Any = nullcontext()
    if files.out is not None:
        file = open_labels(files.out, rows.id_name, confidence=True, force=files.force)
    with file as write:
        before = 0
        for i, block in enumerate(blocks):
            X = dask.compute(block)[0]
            labels, scores, confidence = clusterer.label_prepared(X)
            counts += np.bincount(labels, minlength=counts.size)
            if write is not None:
                write(_ids(rows.ids, i, before, len(X)), labels, scores, confidence)
            before += len(labels)
            tell(i + 1, len(blocks))
    if files.out is not None:
        files.done(files.out)
    return counts


def _ids(ids: Any, block: int, before: int, size: int) -> Any:
    """Return the ids of a block: of their column, or the numbers of the rows in the files."""
    if ids is None:
        return np.arange(before, before + size)
    if isinstance(ids, np.ndarray):
        return ids[before : before + size]
    return ids.blocks[block].compute()
