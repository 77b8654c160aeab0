"""``volmar cluster``: from a table to clusters, a reason to trust them, and files.

What is decided and computed is `volmar.TableClusterer`'s; here options become its parameters, and
what it found is printed and written.
"""

from __future__ import annotations

import json
import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from volmar.cli.as_options import as_options
from volmar.cli.console import Stages, UsageError, refuse_files, say, screen, written
from volmar.cli.methods import DEFAULT, make_method

if TYPE_CHECKING:
    from volmar.report import Outcome
    from volmar.table_clusterer import TableClusterer

__all__ = ["Asked", "Files", "cluster_file", "command_for_two", "one_score"]

STAGES = ("reading", "preparing", "looking for groups", "testing")
STAGES_OF_REPORT = ("judging", "resampling", "describing", "comparing numbers")


@dataclass(frozen=True)
class Asked:
    """What the options of the command ask for."""

    source: str
    method: str = DEFAULT
    n_clusters: str = "auto"
    split_anyway: bool = False
    alpha: float | None = None
    max_clusters: int | None = None
    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    id_column: str | None = None
    kinds: dict[str, str] = field(default_factory=dict)
    scale: str = "auto"
    missing: str = "impute"
    settings: dict[str, Any] = field(default_factory=dict)
    out: Path | None = None
    append: bool = False
    report: Path | None = None
    save: Path | None = None
    json: Path | None = None
    pictures: Path | None = None
    force: bool = False
    seed: int = 0
    scheduler: str | None = None
    command: str = ""

    def clusterer(self) -> TableClusterer:
        """Return the estimator that does the work."""
        from volmar.table_clusterer import TableClusterer

        return TableClusterer(
            self.wanted() or "auto",
            clusterer=make_method(self.method, 2, self.seed, self.settings),
            columns=list(self.columns) or None,
            drop=list(self.drop) or None,
            id_column=self.id_column,
            kinds=self.kinds or None,
            scale=self.scale,
            missing=self.missing,
            alpha=self.alpha,
            max_clusters=self.max_clusters,
            random_state=self.seed,
        )

    def wanted(self) -> int | None:
        """Return the number of clusters, None for auto."""
        if self.n_clusters == "auto":
            return None
        try:
            count = int(self.n_clusters)
        except ValueError:
            count = 0
        if count < 1:
            raise UsageError(
                f"--n-clusters must be a whole number of at least 1, or auto, got "
                f"{self.n_clusters!r}."
            )
        return count

    def planned(self) -> tuple[str, ...]:
        """Return the stages that the command goes through, most likely."""
        is_judged = self.report is not None or self.pictures is not None
        last = ("testing borders",) if self.pictures is not None else ()
        return STAGES + (STAGES_OF_REPORT if is_judged else ()) + last

    def as_text(self) -> dict[str, str]:
        """Return the options that a report shows."""
        shown = {
            "data": self.source,
            "method": self.method,
            "number of clusters": self.n_clusters,
            "scale": self.scale,
            "missing values": self.missing,
            "seed": str(self.seed),
        }
        for name, value in (("alpha", self.alpha), ("max-clusters", self.max_clusters)):
            if value is not None:
                shown[name] = str(value)
        if self.kinds:
            shown["kinds"] = ", ".join(f"{name}={kind}" for name, kind in self.kinds.items())
        if self.settings:
            pairs = [f"{name}={value}" for name, value in self.settings.items()]
            shown["settings"] = ", ".join(pairs)
        return shown


class Files:
    """The files of a run: those that are complete are named where it is stopped."""

    def __init__(self, asked: Asked):
        self.asked = asked
        self.complete: list[Path] = []

    def done(self, path: Path) -> None:
        """Say that a file is there."""
        self.complete.append(path)
        written(path)

    def save(self, clusterer: TableClusterer) -> None:
        """Save the model where that was asked for."""
        if self.asked.save is not None:
            clusterer.save(self.asked.save, force=self.asked.force)
            self.done(self.asked.save)

    def summary(self, clusterer: TableClusterer, **changes: Any) -> None:
        """Write the summary where that was asked for; `changes` replace entries of it."""
        from volmar._files import write_atomically

        if self.asked.json is not None:
            text = json.dumps({**clusterer.summary(), **changes}, indent=2, allow_nan=False)
            write_atomically(self.asked.json, text + "\n", force=self.asked.force)
            self.done(self.asked.json)

    def explain(self, outcome: Outcome, stages: Stages) -> None:
        """Write the page and the pictures where they were asked for."""
        from volmar.report import save_pictures, write_report
        from volmar.report.judging import with_joins
        from volmar.report.stages import StageTimes

        asked = self.asked
        if asked.report is not None:
            write_report(outcome, asked.report, force=asked.force)
            self.done(asked.report)
        if asked.pictures is not None:
            with silent(), stages.watching() as progress:
                outcome = with_joins(outcome, StageTimes(progress))
            names = save_pictures(asked.pictures, outcome, force=asked.force)
            self.complete += names
            say(f"wrote {len(names)} pictures to {asked.pictures}")


def cluster_file(asked: Asked) -> None:
    """Run the command; on Ctrl-C say what is complete."""
    from volmar.tables import is_folder_of_tables, written_kind

    asked.clusterer()  # refuses wrong options before the table is read
    if asked.append and asked.out is None:
        raise UsageError("--append writes the rows with their clusters to -o: give -o, too.")
    named = {
        "-o": asked.out,
        "--report": asked.report,
        "--save": asked.save,
        "--json": asked.json,
    }
    refuse_files(named, asked.source, force=asked.force)
    if asked.out is not None:
        written_kind(asked.out)
    _refuse_pictures(asked)
    files = Files(asked)
    try:
        if asked.scheduler or is_folder_of_tables(asked.source):
            from volmar.cli.cluster_blocks import cluster_blocks

            cluster_blocks(asked, files)
        else:
            _cluster(asked, files)
    except KeyboardInterrupt:
        done = ", ".join(str(path) for path in files.complete) or "nothing"
        raise KeyboardInterrupt(f"; complete: {done}") from None


def _refuse_pictures(asked: Asked) -> None:
    """Refuse a folder for pictures that cannot be written, before the work."""
    folder = asked.pictures
    if folder is None:
        return
    if find_spec("matplotlib") is None:
        raise ImportError(
            "--pictures needs matplotlib, which is not installed: pip install 'volmar[plot]'"
        )
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--pictures {folder} is a file. Give the name of a folder.")
    if folder.is_dir() and any(folder.iterdir()) and not asked.force:
        raise UsageError(f"--pictures {folder} has files already. Give another name, or --force.")


def _cluster(asked: Asked, files: Files) -> None:
    from volmar.tables import read_table

    stages = Stages(asked.planned())
    with stages.stage("reading"):
        table = read_table(asked.source)
    clusterer = fitted(asked, lambda one, progress: one.fit(table, progress=progress), stages)
    rows = clusterer._rows()
    for note in rows.notes:
        say(f"note: {note}")
    d = rows.X.shape[1]
    used = clusterer.labels_[clusterer.labels_ >= 0]
    heading = f"{table.name}: {used.size} rows, {d} column{'s' if d > 1 else ''}"
    print_found(asked, clusterer, heading, np.bincount(used, minlength=clusterer.n_clusters_))
    if asked.out is not None:
        _write_labels(asked.out, asked, clusterer, table)
        files.done(asked.out)
    files.save(clusterer)
    files.summary(clusterer)
    if asked.report is not None or asked.pictures is not None:
        files.explain(outcome_of(asked, clusterer, stages), stages)


def fitted(asked: Asked, fit: Any, stages: Stages) -> TableClusterer:
    """Return the fitted estimator; split in two where that is asked for in any case."""
    clusterer = asked.clusterer()
    with silent(), stages.watching() as progress:
        fit(clusterer, progress)
        if clusterer.n_clusters_ == 1 and asked.split_anyway and asked.wanted() is None:
            fit(clusterer.set_params(n_clusters=2), progress)
            clusterer.warnings_.append(
                "The split was asked for (--split-anyway); no evidence supports it."
            )
    return clusterer


@contextmanager
def silent() -> Iterator[None]:
    """Leave it to the command to print what the estimator warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def outcome_of(asked: Asked, clusterer: TableClusterer, stages: Stages) -> Outcome:
    """Return what the report shows."""
    with silent(), stages.watching() as progress:
        outcome = clusterer.outcome(
            command=asked.command,
            command_for_two=command_for_two(asked),
            asked=asked.as_text(),
            progress=progress,
        )
    return replace(
        outcome,
        notes=[as_options(text) for text in outcome.notes],
        warnings=[as_options(text) for text in outcome.warnings],
    )


def _write_labels(path: Path, asked: Asked, clusterer: TableClusterer, table: Any) -> None:
    rows = clusterer._rows()
    labels = clusterer.labels_[rows.kept]
    if asked.append:
        from volmar.tables import write_rows

        write_rows(path, table, labels, kept=rows.kept, force=asked.force)
        return
    from volmar.tables import write_labels

    write_labels(
        path,
        rows.ids,
        rows.id_name,
        labels,
        one_score(clusterer.label_prepared(rows.X)[1]),
        confidence=clusterer.confidence_[rows.kept],
        force=asked.force,
    )


def one_score(scores: NDArray) -> NDArray:
    """Return a number a row: the score of two clusters, or the best less the second best."""
    if scores.ndim == 1:
        return scores
    two = np.partition(scores, scores.shape[1] - 2, axis=1)[:, -2:]
    return two[:, 1] - two[:, 0]


# ---------------------------------------------------------------------- what is shown


def print_found(asked: Asked, clusterer: TableClusterer, heading: str, sizes: NDArray) -> None:
    """Print what was found."""
    from volmar.report import sentences_of

    console = screen()
    console.print(heading, markup=False)
    for line in sentences_of(clusterer.evidence_):
        console.print(line, markup=False)
    if clusterer.n_clusters_ == 1:
        console.print("One cluster.")
        if asked.wanted() is None:
            say(f"(The best split in two, not supported by the rows: {command_for_two(asked)})")
    else:
        of = " and ".join(str(size) for size in sizes) if sizes.size == 2 else _listed(sizes)
        method = type(clusterer.model_).__name__
        console.print(f"{sizes.size} clusters by {method}: {of} rows.")
        status = getattr(clusterer.model_.result_, "status", None)
        if status is not None and not status.ok:
            console.print(f"The solver ended early: {status.value}.")
    for text in clusterer.warnings_:
        say(f"warning: {text}")
    if asked.out is None and asked.report is None and clusterer.n_clusters_ > 1:
        say("(-o labels.csv keeps the labels, --report report.html explains them.)")


def _listed(sizes: NDArray) -> str:
    shown = ", ".join(str(size) for size in sizes[:20])
    return shown + (", ..." if sizes.size > 20 else "")


def command_for_two(asked: Asked) -> str:
    """Return the command that splits the same rows in two."""
    words = ["volmar", "cluster", asked.source]
    if asked.method.lower() != DEFAULT.lower():
        words += ["--method", asked.method]
    words += ["--n-clusters", "2"]
    for option, names in (("--columns", asked.columns), ("--drop", asked.drop)):
        for name in names:
            words += [option, name]
    if asked.id_column is not None:
        words += ["--id", asked.id_column]
    for name, kind in asked.kinds.items():
        words += ["--kind", f"{name}={kind}"]
    usual = Asked("")
    for option, value, default in (
        ("--scale", asked.scale, usual.scale),
        ("--missing", asked.missing, usual.missing),
        ("--seed", str(asked.seed), str(usual.seed)),
    ):
        if value != default:
            words += [option, value]
    for name, value in asked.settings.items():
        words += ["--set", f"{name}={_as_setting(value)}"]
    return shlex.join(words)


def _as_setting(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
