"""``volmar cluster``: cluster a table or a folder, print the evidence, and write files."""

from __future__ import annotations

import difflib
import json
import shlex
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from volmar._files import printable, real_path, write_atomically
from volmar._memory import available_memory
from volmar.cli.console import (
    Stages,
    UsageError,
    as_options,
    refuse_files,
    say,
    screen,
    sizes_text,
    written,
)
from volmar.cli.rows import SAMPLE, name_columns
from volmar.table_clusterer.estimator import new_clusterer

if TYPE_CHECKING:
    from volmar.report import Outcome
    from volmar.table_clusterer import TableClusterer


# ---------------------------------------------------------------------- options


DEFAULT = "AutoClusterer"  # clusters of any shape, and their number


def parse_number(text: str, minimum: int) -> int | str:
    """Return --n-clusters as an int of at least `minimum`, or "auto"."""
    if text == "auto":
        return text
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < minimum:
        raise UsageError(
            f"--n-clusters must be a whole number of at least {minimum}, or auto, got {text!r}."
        )
    return count


def parse_size(option: str, text: str | None) -> float | None:
    """Return a cluster size: a whole number of rows, or a share between 0 and 1."""
    if text is None:
        return None
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if 1.0 <= size < 2.0**53 and size == int(size) and "." not in text:
        return int(size)
    if not 0.0 < size < 1.0:
        raise UsageError(
            f"{option} takes a whole number of rows, or a share between 0 and 1, got {text!r}."
        )
    return size


def parse_settings(given: Sequence[str]) -> dict[str, Any]:
    """Return settings from NAME=VALUE; values are JSON, true, false, none, or else text."""
    settings: dict[str, Any] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"--set takes NAME=VALUE, such as C=2, got {text!r}.")
        if name.strip() in ("n_clusters", "random_state"):
            option = {"n_clusters": "--n-clusters", "random_state": "--seed"}[name.strip()]
            raise UsageError(f"--set cannot change {name.strip()}, got {text!r}. Use {option}.")
        settings[name.strip()] = _value(value.strip())
    return settings


def _value(text: str) -> Any:
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        value = json.loads(text)
    except ValueError:
        return text
    except RecursionError:
        raise UsageError(f"--set {text[:20]}...: brackets are nested too deeply.") from None
    return tuple(value) if isinstance(value, list) else value


def make_method(name: str, n_clusters: Any, seed: int, settings: dict[str, Any]) -> Any:
    """Return a new clusterer of the given class name, with the given settings."""
    estimator = new_clusterer(name, "--method ", n_clusters=n_clusters, random_state=seed)
    if n_clusters == "auto" and type(estimator).__name__ != DEFAULT:
        raise UsageError(
            f"--method {name} needs a number of clusters: add --n-clusters K. Only {DEFAULT}, the "
            "default, finds it."
        )
    known = estimator.get_params()
    for setting in settings:
        if setting not in known:
            near = difflib.get_close_matches(setting, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise UsageError(
                f"--set {setting}: {name} has no such parameter.{hint} Its parameters are "
                f"{', '.join(sorted(known))}."
            )
    return estimator.set_params(**settings)


# ---------------------------------------------------------------------- commands


# Parameters that the report lists if they are given.
GIVEN = ("alpha", "max_clusters", "seeds", "must_link", "min_cluster_size", "max_cluster_size")

STAGES = ("reading", "preparing", "looking for groups", "testing")
STAGES_OF_REPORT = ("judging", "resampling", "describing", "comparing numbers")


@dataclass(frozen=True)
class ClusterFiles:
    """Output files of a run; `complete` lists those that are finished."""

    out: Path | None = None
    append: bool = False
    report: Path | None = None
    save: Path | None = None
    json: Path | None = None
    pictures: Path | None = None
    force: bool = False
    raw_ids: bool = False
    complete: list[Path] = field(default_factory=list)

    @property
    def is_explained(self) -> bool:
        """Whether a report or pictures were requested."""
        return self.report is not None or self.pictures is not None

    def stages(self) -> tuple[str, ...]:
        """Return the planned stages of the command; some of them may be skipped."""
        last = ("testing borders",) if self.pictures is not None else ()
        return STAGES + (STAGES_OF_REPORT if self.is_explained else ()) + last

    def check(self, source: str) -> None:
        """Raise an error for files that cannot be written, before anything is computed."""
        from volmar.tables.write import written_kind

        if self.append and self.out is None:
            raise UsageError("--append needs an output file. Give one with -o.")
        named = {"-o": self.out, "--report": self.report, "--save": self.save, "--json": self.json}
        refuse_files(named, source, force=self.force, pictures=self.pictures)
        if self.out is not None:
            written_kind(self.out)
        if self.pictures is not None and find_spec("matplotlib") is None:
            raise ImportError(
                "--pictures needs matplotlib, which is not installed: pip install 'volmar[plot]'"
            )

    def done(self, path: Path) -> None:
        """Add a file to the complete ones, and print its name."""
        self.complete.append(path)
        written(path)

    def keep(self, clusterer: TableClusterer, **changes: Any) -> None:
        """Write the model and the summary; `changes` replace entries of the summary."""
        if self.save is not None:
            clusterer.save(self.save, force=self.force)
            self.done(self.save)
        if self.json is not None:
            text = json.dumps({**clusterer.summary(), **changes}, indent=2, allow_nan=False)
            write_atomically(self.json, text + "\n", force=self.force)
            self.done(self.json)

    def explain(self, outcome: Outcome, stages: Stages) -> None:
        """Write the report and the pictures that were requested."""
        from volmar.report import save_pictures
        from volmar.report.cluster_page import write_report
        from volmar.report.judging import with_joins
        from volmar.report.outcome import StageTimes

        if self.report is not None:
            write_report(outcome, self.report, force=self.force)
            self.done(self.report)
        if self.pictures is not None:
            with warnings.catch_warnings(action="ignore"), stages.watching() as progress:
                outcome = with_joins(outcome, StageTimes(progress))
            names = save_pictures(self.pictures, outcome, force=self.force)
            self.complete.extend(names)
            say(f"wrote {len(names)} pictures to {self.pictures}")


def cluster_file(
    source: str,
    clusterer: TableClusterer,
    files: ClusterFiles,
    *,
    split_anyway: bool = False,
    scheduler: str | None = None,
    command: str = "",
) -> None:
    """Run the command; if interrupted, list the complete files. The report shows `command`."""
    from volmar.tables.folder import is_folder_of_tables

    files.check(source)
    try:
        if scheduler or is_folder_of_tables(source):
            cluster_blocks(source, clusterer, files, split_anyway, scheduler, command)
        else:
            _cluster(source, clusterer, files, split_anyway, command)
    except KeyboardInterrupt:
        done = ", ".join(str(path) for path in files.complete) or "nothing"
        raise KeyboardInterrupt(f"; complete: {done}") from None


def _cluster(
    source: str, clusterer: TableClusterer, files: ClusterFiles, split_anyway: bool, command: str
) -> None:
    from volmar.tables import read_table

    stages = Stages(files.stages())
    with stages.stage("reading"):
        table = read_table(source)
        name_columns(clusterer, table.data)
    fitted(
        clusterer, lambda progress: clusterer.fit(table, progress=progress), stages, split_anyway
    )
    rows = clusterer._rows()
    for note in rows.notes:
        say(f"note: {note}")
    d = rows.X.shape[1]
    used = clusterer.labels_[clusterer.labels_ >= 0]
    heading = f"{printable(table.name)}: {used.size} rows, {d} column{'s' if d > 1 else ''}"
    sizes = np.bincount(used, minlength=clusterer.n_clusters_)
    print_found(source, clusterer, heading, sizes, files)
    if files.out is not None:
        write_cluster_labels(files.out, files, clusterer, table)
        files.done(files.out)
    files.keep(clusterer)
    if files.is_explained:
        files.explain(outcome_of(source, clusterer, stages, command), stages)


def fitted(clusterer: TableClusterer, fit: Any, stages: Stages, split_anyway: bool) -> None:
    """Fit the estimator; with `split_anyway`, split in two if it finds one cluster.

    Warnings are not shown here: the estimator collects them, and the command prints them later.
    """
    with warnings.catch_warnings(action="ignore"), stages.watching() as progress:
        fit(progress)
        if clusterer.n_clusters_ == 1 and split_anyway and clusterer.n_clusters == "auto":
            clusterer.set_params(n_clusters=2)
            fit(progress)
            clusterer.warnings_.append(
                "No evidence supports this split. It was made because of --split-anyway."
            )


def outcome_of(source: str, clusterer: TableClusterer, stages: Stages, command: str) -> Outcome:
    """Return the content of the report, with options in place of parameter names."""
    with warnings.catch_warnings(action="ignore"), stages.watching() as progress:
        outcome = clusterer.outcome(
            command=command,
            command_for_two=command_for_two(source, clusterer),
            asked=_asked(source, clusterer),
            progress=progress,
        )
    return replace(
        outcome,
        notes=[as_options(text) for text in outcome.notes],
        warnings=[as_options(text) for text in outcome.warnings],
    )


def write_cluster_labels(
    path: Path, files: ClusterFiles, clusterer: TableClusterer, table: Any
) -> None:
    """Write the labels, or with `files.append` the whole table with a column of labels."""
    from volmar.tables.write import write_labels, write_rows

    rows = clusterer._rows()
    labels = named(clusterer, clusterer.labels_[rows.kept])
    options: dict[str, Any] = {"force": files.force, "raw_ids": files.raw_ids}
    if files.append:
        write_rows(path, table, labels, kept=rows.kept, **options)
        return
    scores, confidence = clusterer.label_prepared(rows.X)[1], clusterer.confidence_[rows.kept]
    options |= {"confidence": confidence}
    write_labels(path, rows.ids, rows.id_name, labels, scores, **options)


def named(clusterer: Any, labels: NDArray) -> NDArray:
    """Return names in place of labels, if the clusters have names; -1 stays -1."""
    names = getattr(clusterer, "cluster_names_", None)
    return labels if names is None else np.array([*names, "-1"])[labels]


# ---------------------------------------------------------------------- printed output


def print_found(
    source: str, clusterer: TableClusterer, heading: str, sizes: NDArray, files: ClusterFiles
) -> None:
    """Print the evidence, the sizes of the clusters, and warnings."""
    from volmar.report.verdict import sentences_of

    console = screen()
    console.print(heading, markup=False)
    for line in sentences_of(clusterer.evidence_):
        console.print(line, markup=False)
    if clusterer.n_clusters_ == 1:
        console.print("All rows stay in one cluster.")
        if clusterer.n_clusters == "auto":
            two = command_for_two(source, clusterer)
            say(f"(For the best split in two, which no evidence supports: {two})")
    else:
        of = " and ".join(map(str, sizes)) if sizes.size == 2 else sizes_text(sizes)
        method = type(clusterer.model_).__name__
        console.print(f"{sizes.size} clusters by {method}: {of} rows.")
        names = getattr(clusterer, "cluster_names_", None)
        if names is not None:
            listed = ", ".join(f"{number} is {name}" for number, name in enumerate(names))
            console.print(printable(f"Names of the clusters: {listed}."), markup=False)
        status = getattr(getattr(clusterer.model_, "result_", None), "status", None)
        if status is not None and not status.ok:
            console.print(f"The solver ended early: {status.value}.")
    for text in clusterer.warnings_:
        say(f"warning: {text}")
    if files.out is None and files.report is None and clusterer.n_clusters_ > 1:
        say("(-o labels.csv writes the labels, --report report.html explains the clusters.)")


def _settings(clusterer: TableClusterer) -> dict[str, Any]:
    """Return the parameters of the method that differ from their defaults."""
    given = clusterer.clusterer
    usual = type(given)().get_params(deep=False)
    usual.update(n_clusters=given.n_clusters, random_state=getattr(given, "random_state", None))
    changed = given.get_params(deep=False)
    return {name: value for name, value in changed.items() if value != usual[name]}


def _asked(source: str, clusterer: TableClusterer) -> dict[str, str]:
    """Return the options that the report lists."""
    shown = {
        "data": source,
        "method": type(clusterer.clusterer).__name__,
        "number of clusters": str(clusterer.n_clusters),
        "scale": clusterer.scale,
        "missing values": clusterer.missing,
        "seed": str(clusterer.random_state),
    }
    for name in GIVEN:
        if getattr(clusterer, name) is not None:
            shown[name.replace("_", "-")] = str(getattr(clusterer, name))
    for name, pairs in (("kinds", clusterer.kinds or {}), ("settings", _settings(clusterer))):
        if pairs:
            shown[name] = ", ".join(f"{key}={value}" for key, value in pairs.items())
    return shown


def command_for_two(source: str, clusterer: TableClusterer) -> str:
    """Return the command that splits the same rows in two."""
    method = type(clusterer.clusterer).__name__
    words = ["volmar", "cluster", source]
    words += ["--method", method] if method != DEFAULT else []
    words += ["--n-clusters", "2"]
    for option, names in (("--columns", clusterer.columns), ("--drop", clusterer.drop)):
        words += [word for name in names or () for word in (option, name)]
    words += ["--id", clusterer.id_column] if clusterer.id_column is not None else []
    for name, kind in (clusterer.kinds or {}).items():
        words += ["--kind", f"{name}={kind}"]
    for option, value, default in (
        ("--seeds", clusterer.seeds, None),
        ("--must-link", clusterer.must_link, None),
        ("--scale", clusterer.scale, "auto"),
        ("--missing", clusterer.missing, "impute"),
        ("--seed", str(clusterer.random_state), "0"),
    ):
        words += [option, str(value)] if value != default else []
    for name, value in _settings(clusterer).items():
        words += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
    return shlex.join(words)


# ---------------------------------------------------------------------- folders


def cluster_blocks(
    source: str,
    clusterer: TableClusterer,
    files: ClusterFiles,
    split_anyway: bool,
    scheduler: str | None,
    command: str,
) -> None:
    """Fit to all rows in passes, test on a sample, and write labels block by block."""
    from volmar.distributed import LostBlocksError, report_passes
    from volmar.tables import LoadedTable
    from volmar.tables.blocks import prepare_blocks, prepare_sample, sample_rows
    from volmar.tables.folder import is_folder_of_tables, read_folder

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
        held, passes = _held(rows, clusterer._seed()), _PassProgress()
        try:
            with report_passes(passes):
                # To all rows if the method supports blocks, else to the sample.
                fitted(
                    clusterer,
                    lambda progress: clusterer.fit_prepared(
                        sample, preparation, table=table, blocks=held, progress=progress
                    ),
                    stages,
                    split_anyway,
                )
        except LostBlocksError as error:
            raise UsageError(str(error)) from error
        if passes.n_passes:
            say(f"{passes.n_passes} passes over {n} rows.")
        with stages.stage("labelling") as tell:
            sizes = _label_blocks(files, clusterer, rows, frame, tell)
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
        notes = [*outcome.notes, f"This page shows {n_drawn} of {n} rows, drawn at random."]
        title = f"Clusters of {name}"
        outcome = replace(outcome, title=title, source=name, n_rows=n, notes=notes)
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


def _held(rows: Any, seed: int) -> Any:
    """Return the rows with their blocks in memory, if they need at most a quarter of it."""
    free = _memory_of_workers() or available_memory()
    if rows.X.nbytes > 0.25 * free:
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
    """Counts passes, and prints a line about one of them every two seconds."""

    def __init__(self) -> None:
        self.n_passes, self._last = 0, time.monotonic()

    def __call__(self, report: Any) -> None:
        self.n_passes += 1
        if time.monotonic() - self._last >= 2.0:
            self._last = time.monotonic()
            say(f"pass {self.n_passes}: {report.n_rows} rows, {report.seconds:.1f} s")


def _label_blocks(
    files: ClusterFiles, clusterer: TableClusterer, rows: Any, frame: Any, tell: Any
) -> NDArray[np.int64]:
    """Label the rows block by block, write -o if it is given, and return cluster sizes.

    With --append, the blocks of the table are read and prepared again, and written with labels.
    """
    from volmar.tables import LoadedTable
    from volmar.tables.folder import computed
    from volmar.tables.write import free_name, open_labels, open_rows

    counts = np.zeros(clusterer.n_clusters_, dtype=np.int64)
    parts = list(frame.to_delayed()) if files.append else list(rows.X.to_delayed().ravel())
    options = {"force": files.force, "raw_ids": files.raw_ids}
    file: Any = nullcontext()
    if files.out is not None and files.append:
        file = open_rows(files.out, name=free_name("cluster", frame.columns), **options)
    elif files.out is not None:
        file = open_labels(files.out, rows.id_name, confidence=True, **options)
    before = 0
    with file as write:
        for i, part in enumerate(parts):
            block = computed([part])[0]
            labels = np.empty(0, dtype=np.intp)
            if len(block) and files.append:
                found = clusterer.preparation_.prepare(LoadedTable("a block of the folder", block))
                labels = clusterer.label_prepared(found.X)[0]
                write(block, labels, found.kept)
            elif len(block):
                labels, scores, confidence = clusterer.label_prepared(block)
                if write is not None:
                    write(_ids(rows.ids, i, before, len(block)), labels, scores, confidence)
                before += len(block)
            counts += np.bincount(labels, minlength=counts.size)
            tell(i + 1, len(parts))
    if files.out is not None:
        files.done(files.out)
    return counts


def _ids(ids: Any, block: int, before: int, size: int) -> Any:
    """Return the ids of a block: from the id column, or row numbers over all files."""
    if ids is None:
        return np.arange(before, before + size)
    if isinstance(ids, np.ndarray):
        return ids[before : before + size]
    return ids.blocks[block].compute()
