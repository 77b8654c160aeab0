"""``volmar cluster``: from a table to clusters, a reason to trust them, and files."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.cli.cluster_evidence import best_split, command_for_two, decide
from volmar.cli.console import Stages, UsageError, refuse_files, say, screen, written
from volmar.cli.methods import DEFAULT, make_method

if TYPE_CHECKING:
    from volmar.tables import Preparation

__all__ = [
    "Asked",
    "Found",
    "Origin",
    "cluster_file",
    "name_results",
    "one_score",
    "report",
    "save",
]

# Rows of which the number of clusters is told where the rest lies in files.
SAMPLE = 20_000
# Resamplings for the report, made where rows are few and a fit takes less than these seconds.
N_RESAMPLES, LONG_FIT = 10, 3.0
# Rows that are clustered again to tell which differences are real, in subsets or halves.
N_AGAIN, N_SUBSETS, N_HALVINGS = 10_000, 8, 5


@dataclass(frozen=True)
class Asked:
    """What the options of the command ask for."""

    source: str
    method: str = DEFAULT
    n_clusters: str = "auto"
    split_anyway: bool = False
    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    id_column: str | None = None
    scale: str = "standard"
    missing: str = "error"
    settings: dict[str, Any] = field(default_factory=dict)
    out: Path | None = None
    report: Path | None = None
    save: Path | None = None
    force: bool = False
    seed: int = 0
    scheduler: str | None = None
    command: str = ""

    def preparation(self) -> Preparation:
        """Return how the columns are to be prepared."""
        from volmar.tables import Preparation

        return Preparation(
            columns=list(self.columns) or None,
            drop=list(self.drop) or None,
            id_column=self.id_column,
            scale=self.scale,
            missing=self.missing,
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


@dataclass
class Found:
    """What was found so far, and what is written of it."""

    model: Any = None
    labels: Any = None
    scores: Any = None
    n_found: int = 0
    evidence: list[Any] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    complete: list[Path] = field(default_factory=list)


def cluster_file(asked: Asked) -> None:
    """Run the command; on Ctrl-C say what is complete."""
    asked.wanted()
    files = {"-o": asked.out, "--report": asked.report, "--save": asked.save}
    refuse_files(files, asked.source, force=asked.force)
    found = Found()
    try:
        from volmar.tables import is_folder_of_tables

        make_method(asked.method, 2, asked.seed, asked.settings)
        if asked.scheduler or is_folder_of_tables(asked.source):
            from volmar.cli.cluster_blocks import cluster_blocks

            cluster_blocks(asked, found)
        else:
            _cluster(asked, found)
    except KeyboardInterrupt:
        done = ", ".join(str(path) for path in found.complete) or "nothing"
        raise KeyboardInterrupt(f"; complete: {done}") from None


def _cluster(asked: Asked, found: Found) -> None:
    from volmar.tables import read_table

    stages = Stages()
    with stages.stage("reading"):
        table = read_table(asked.source)
    with stages.stage("preparing"):
        preparation = asked.preparation()
        rows = preparation.fit_transform(table)
    for note in rows.notes:
        say(f"note: {note}")
    n = rows.X.shape[0]
    if n < 2:
        raise UsageError(f"{table.name} has {n} row, and clusters need two at least.")
    if (asked.wanted() or 1) > n:
        raise UsageError(
            f"--n-clusters {asked.n_clusters} is more than the {n} rows of {table.name}. Lower it."
        )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with stages.stage("looking for groups") as tell:
            decide(asked, rows.X, found, tell)
        if found.n_found > 1 and found.model is None:
            with stages.stage("clustering"):
                found.model = make_method(
                    asked.method, found.n_found, asked.seed, asked.settings
                ).fit(rows.X)
        name_results(found, rows.X)
    found.warnings += list(dict.fromkeys(str(one.message).splitlines()[0] for one in caught))
    _print(asked, table.name, rows, found)
    if asked.out is not None:
        from volmar.tables import write_labels

        write_labels(
            asked.out,
            rows.ids,
            rows.id_name,
            found.labels,
            one_score(found.scores),
            force=asked.force,
        )
        found.complete.append(asked.out)
        written(asked.out)
    save(asked, found, preparation)
    if asked.report is not None:
        origin = Origin(table.name, table.data.shape, preparation, table)
        report(asked, asked.report, found, origin, rows, stages)


def save(asked: Asked, found: Found, preparation: Any) -> None:
    """Save the model where that was asked for."""
    if asked.save is None:
        return
    if found.model is None:
        say("no model is saved: there is one cluster, and nothing to predict.")
        return
    from volmar.models import save_model

    save_model(asked.save, found.model, preparation=preparation, force=asked.force)
    found.complete.append(asked.save)
    written(asked.save)


# ---------------------------------------------------------------------- labels and scores


def name_results(found: Found, X: Any) -> None:
    """Set labels and scores from the model, or those of one cluster."""
    if found.model is None:
        found.labels = np.zeros(X.shape[0], dtype=np.int64)
        found.scores = np.zeros(X.shape[0])
        return
    found.labels = found.model.labels_
    found.scores = found.model.decision_function(X)


def one_score(scores: NDArray) -> NDArray:
    """Return a number a row: the score of two clusters, or the best less the second best."""
    if scores.ndim == 1:
        return scores
    two = np.partition(scores, scores.shape[1] - 2, axis=1)[:, -2:]
    return two[:, 1] - two[:, 0]


# ---------------------------------------------------------------------- what is shown


def _print(asked: Asked, name: str, rows: Any, found: Found) -> None:
    from volmar.report import sentences_of

    console = screen()
    n, d = rows.X.shape
    console.print(f"{name}: {n} rows, {d} column{'s' if d > 1 else ''}", markup=False)
    for line in sentences_of(found.evidence):
        console.print(line, markup=False)
    sizes = np.bincount(found.labels)
    if found.n_found == 1:
        console.print("One cluster.")
        if asked.wanted() is None:
            say(f"(The best split in two, not supported by the rows: {command_for_two(asked)})")
    else:
        of = " and ".join(str(size) for size in sizes) if sizes.size == 2 else _listed(sizes)
        console.print(f"{sizes.size} clusters by {type(found.model).__name__}: {of} rows.")
        status = getattr(found.model.result_, "status", None)
        if status is not None and not status.ok:
            console.print(f"The solver ended early: {status.value}.")
    for text in found.warnings:
        say(f"warning: {text}")
    if asked.out is None and asked.report is None and found.n_found > 1:
        say("(-o labels.csv keeps the labels, --report report.html explains them.)")


def _listed(sizes: NDArray) -> str:
    shown = ", ".join(str(size) for size in sizes[:20])
    return shown + (", ..." if sizes.size > 20 else "")


class Origin(NamedTuple):
    """Where the rows come from, and how they were prepared."""

    name: str
    shape: tuple[int, int]
    preparation: Any
    table: Any = None


def report(
    asked: Asked, path: Path, found: Found, origin: Origin, rows: Any, stages: Stages
) -> None:
    """Write the page that explains what was found."""
    from volmar.report import Outcome, write_report

    with stages.stage("judging"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quality = _quality(rows.X, found)
    fit = stages.seconds.get("looking for groups", 0.0) + stages.seconds.get("clustering", 0.0)
    if found.n_found > 1 and fit < LONG_FIT and len(rows.ids) <= SAMPLE:
        with stages.stage("resampling") as tell:
            found.evidence += _stability(asked, found, rows.X, tell)
    split = best_split(asked, rows.X, found, stages)
    description = None
    if len(np.unique(found.labels)) > 1:
        with stages.stage("describing") as tell:
            description = _described(asked, found, origin, rows, fit, tell)
    model = found.model
    outcome = Outcome(
        title=f"Clusters of {origin.name}",
        command=asked.command,
        asked=_as_text(asked),
        source=origin.name,
        n_rows=origin.shape[0],
        n_columns=origin.shape[1],
        notes=list(rows.notes),
        method=asked.method if model is None else type(model).__name__,
        parameters={} if model is None else model.get_params(deep=False),
        seed=asked.seed,
        X=rows.X,
        feature_names=list(rows.feature_names),
        ids=rows.ids,
        id_name=rows.id_name,
        labels=found.labels,
        scores=found.scores,
        model=model,
        n_found=found.n_found,
        evidence=found.evidence,
        quality=quality,
        warnings=found.warnings,
        seconds=dict(stages.seconds),
        offsets=origin.preparation.offsets_,
        scales=origin.preparation.scales_,
        description=description,
        best_split=split,
    )
    write_report(outcome, path, force=asked.force)
    found.complete.append(path)
    written(path)


def _as_text(asked: Asked) -> dict[str, str]:
    shown = {
        "data": asked.source,
        "method": asked.method,
        "number of clusters": asked.n_clusters,
        "scale": asked.scale,
        "missing values": asked.missing,
        "seed": str(asked.seed),
    }
    if asked.settings:
        shown["settings"] = ", ".join(f"{name}={value}" for name, value in asked.settings.items())
    return shown


def _quality(X: Any, found: Found) -> list[Any]:
    from sklearn.metrics import calinski_harabasz_score, silhouette_score

    from volmar.metrics import separation_score
    from volmar.report import Score

    if found.n_found < 2:
        return []
    n = X.shape[0]
    scores = [
        Score(
            "separation score",
            separation_score(X, found.labels),
            "worst-case probability that a row is on the side of its cluster; 1 is perfect",
        )
    ]
    if len(np.unique(found.labels)) < n:
        value = silhouette_score(X, found.labels, sample_size=min(n, 2000), random_state=0)
        meaning = (
            "how much nearer rows are to their own cluster than to the next; 1 is perfect; of "
            "2,000 rows at most"
        )
        scores.append(Score("silhouette", float(value), meaning))
        dense = X.toarray() if hasattr(X, "toarray") else X
        value = calinski_harabasz_score(dense, found.labels)
        meaning = "spread between clusters over that within; higher is better, no upper end"
        scores.append(Score("Calinski-Harabasz", float(value), meaning))
    return scores


def _stability(asked: Asked, found: Found, X: Any, tell: Any) -> list[Any]:
    from volmar.diagnostics import stability
    from volmar.report import Evidence

    model = make_method(type(found.model).__name__, found.n_found, asked.seed, asked.settings)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = stability(
                X, model, n_resamples=N_RESAMPLES, progress=tell, random_state=asked.seed
            )
    except ValueError:
        return []  # too few rows to leave some out
    return [Evidence("stability", float(result.agreement), str(result))]


def _described(
    asked: Asked, found: Found, origin: Origin, rows: Any, fit: float, tell: Any
) -> Any:
    """Return what sets the clusters apart in the columns of the source."""
    from dataclasses import replace

    from volmar.diagnostics import describe_clusters
    from volmar.tables import source_columns

    n = len(found.labels)
    # All fits together see each row once for sign flips, and `N_HALVINGS` times for mirrors.
    is_quick = fit * min(1.0, N_AGAIN / n) < LONG_FIT
    columns = None
    if origin.table is not None:
        columns = source_columns(origin.table, origin.preparation, rows.kept)
    shown, names = (rows.X, rows.feature_names) if columns is None else columns
    model = None
    if is_quick:
        model = make_method(type(found.model).__name__, found.n_found, asked.seed, asked.settings)
    options: dict[str, Any] = {
        "model_input": rows.X,
        "feature_names": names,
        "ids": rows.ids,
        "max_rows": N_AGAIN,
        "n_subsets": N_SUBSETS,
        "n_halvings": N_HALVINGS,
        "progress": tell,
        "random_state": asked.seed,
    }
    try:
        result = describe_clusters(shown, found.labels, estimator=model, **options)
    except ValueError:  # the method takes no subset of so few rows
        result = describe_clusters(shown, found.labels, **options)
    if columns is None:
        result = result.in_units(origin.preparation.offsets_, origin.preparation.scales_)
    if not is_quick:
        result = replace(
            result,
            note="Which differences are real was not tested: it takes too long for this method.",
        )
    return result
