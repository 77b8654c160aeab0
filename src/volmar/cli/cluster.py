"""``volmar cluster``: cluster a table, print the evidence, and write files.

`volmar.TableClusterer` does the computation. This module prints and writes its results.
"""

from __future__ import annotations

import json
import shlex
import warnings
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from volmar._files import printable, write_atomically
from volmar.cli.as_options import as_options
from volmar.cli.console import (
    Stages,
    UsageError,
    refuse_files,
    say,
    screen,
    sizes_text,
    written,
)
from volmar.cli.methods import DEFAULT
from volmar.cli.rows import name_columns

if TYPE_CHECKING:
    from volmar.report import Outcome
    from volmar.table_clusterer import TableClusterer

__all__ = [
    "ClusterFiles",
    "cluster_file",
    "command_for_two",
    "fitted",
    "named",
    "outcome_of",
    "write_cluster_labels",
]

# Parameters that the report lists if they are given.
GIVEN = (
    "alpha",
    "max_clusters",
    "seeds",
    "must_link",
    "min_cluster_size",
    "max_cluster_size",
)

STAGES = ("reading", "preparing", "looking for groups", "testing")
STAGES_OF_REPORT = (*("judging", "resampling", "describing", "comparing numbers"),)


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
        from volmar.tables import written_kind

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
        from volmar.report import save_pictures, write_report
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
    from volmar.tables import is_folder_of_tables

    files.check(source)
    try:
        if scheduler or is_folder_of_tables(source):
            from volmar.cli.cluster_blocks import cluster_blocks

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
    rows = clusterer._rows()
    labels = named(clusterer, clusterer.labels_[rows.kept])
    if files.append:
        from volmar.tables import write_rows

        write_rows(path, table, labels, kept=rows.kept, force=files.force, raw_ids=files.raw_ids)
        return
    from volmar.tables import write_labels

    write_labels(
        path,
        rows.ids,
        rows.id_name,
        labels,
        clusterer.label_prepared(rows.X)[1],
        confidence=clusterer.confidence_[rows.kept],
        force=files.force,
        raw_ids=files.raw_ids,
    )


def named(clusterer: Any, labels: NDArray) -> NDArray:
    """Return names in place of labels, if the clusters have names; -1 stays -1."""
    names = getattr(clusterer, "cluster_names_", None)
    return labels if names is None else np.array([*names, "-1"])[labels]


# ---------------------------------------------------------------------- printed output


def print_found(
    source: str,
    clusterer: TableClusterer,
    heading: str,
    sizes: NDArray,
    files: ClusterFiles,
) -> None:
    """Print the evidence, the sizes of the clusters, and warnings."""
    from volmar.report import sentences_of

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
        status = getattr(clusterer.model_.result_, "status", None)
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
        for name in names or ():
            words += [option, name]
    if clusterer.id_column is not None:
        words += ["--id", clusterer.id_column]
    for name, kind in (clusterer.kinds or {}).items():
        words += ["--kind", f"{name}={kind}"]
    for option, value in (("--seeds", clusterer.seeds), ("--must-link", clusterer.must_link)):
        words += [option, value] if value is not None else []
    for option, value, default in (
        ("--scale", clusterer.scale, "auto"),
        ("--missing", clusterer.missing, "impute"),
        ("--seed", str(clusterer.random_state), "0"),
    ):
        words += [option, value] if value != default else []
    for name, value in _settings(clusterer).items():
        words += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
    return shlex.join(words)
