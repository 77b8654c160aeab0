"""``volmar score``: scores of a labelling, and differences between a model and a new table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from volmar._files import expanded_path, printable
from volmar.cli.console import (
    Screen,
    UsageError,
    counted,
    narrow_table,
    print_json,
    say,
    sizes_text,
)
from volmar.cli.predict import table_blocks
from volmar.cli.rows import read_rows

if TYPE_CHECKING:
    from volmar.diagnostics import DriftReport
    from volmar.evidence import LabelTestResult
    from volmar.metrics.scores import LabelScore


MAX_PRINTED = 10  # separated borders that are printed; borders to merge are all printed


@dataclass(frozen=True)
class ScoredLabels:
    """Results of ``volmar score`` on `n_rows` rows, possibly a sample of `n_all` rows."""

    source: str
    n_rows: int
    n_all: int
    sizes: dict[str, int]
    scores: list[LabelScore]
    agreement: list[LabelScore]
    notes: list[str]
    tested: LabelTestResult | None = None

    def content(self) -> dict[str, Any]:
        """Return the results as the content of a JSON object."""
        return {
            "file": self.source,
            "rows": self.n_all,
            "rows scored": self.n_rows,
            "clusters": self.sizes,
            "scores": {one.name: one.value for one in self.scores},
            "agreement": {one.name: one.value for one in self.agreement},
            "label test": _test_content(self.tested),
            "notes": self.notes,
        }


def check_labels(source: str, labels: Path | None) -> Path:
    """Return --labels; raise an error that explains both forms of the command if missing."""
    if labels is not None:
        return labels
    if Path(source).suffix.lower() == ".volmar":
        raise UsageError(
            f"{Path(source).name} is a model, and the new table is missing. Give it as in volmar "
            "score MODEL NEW.csv, or give a table and --labels."
        )
    raise UsageError("--labels is missing. Give the table of labels to score.")


def score_file(
    source: str,
    labels: Path,
    *,
    truth: Path | None = None,
    seed: int = 0,
    test: bool = True,
    as_json: bool = False,
    **preparation: Any,
) -> ScoredLabels:
    """Score the labels in one file for the rows in another, and print the scores.

    By default, the truth is taken from an svmlight file with true classes.
    """
    from volmar.metrics import label_free_scores
    from volmar.metrics.scores import agreement_scores
    from volmar.tables import Preparation
    from volmar.tables.write import match_labels

    with counted("reading"):
        given = _read_labels("--labels", labels)
        true = _read_labels("--truth", truth) if truth is not None else None
    table = read_rows(source, Preparation(**preparation), seed=seed)
    rows = table.rows
    notes = [*rows.notes, *rows.warnings]
    found = match_labels(given, rows, name=f"--labels {Path(labels).name}", notes=notes)
    classes = None
    if true is not None and truth is not None:
        classes = match_labels(true, rows, name=f"--truth {Path(truth).name}", notes=notes)
    elif table.truth is not None:
        classes = np.asarray(table.truth)[rows.kept]
        notes.append(f"true classes were taken from {table.name}")
    # Labels -1 and 1 are a usual coding of two classes; -1 is not noise then.
    noise = None if set(np.unique(found)) == {"-1", "1"} else "-1"
    in_cluster = found != (noise or "")
    names, codes = np.unique(found[in_cluster], return_inverse=True)
    _check_clusters(labels, len(names), len(found), len(found) - len(codes))
    X = rows.X
    if not in_cluster.all():
        n_noise = int(np.count_nonzero(~in_cluster))
        notes.append(
            f"{n_noise:,} of {len(found):,} rows have the label -1 (noise) and are left out of "
            "the scores"
        )
        X = X[in_cluster]
        classes = None if classes is None else classes[in_cluster]
    with counted("scoring"):
        scores = label_free_scores(X, codes, seed=seed)
        agreement = [] if classes is None else agreement_scores(classes, codes)
    tested = _tested(rows.X, found, noise, seed, notes) if test else None
    sizes = dict(zip(map(str, names), np.bincount(codes).tolist(), strict=True))
    scored = ScoredLabels(
        table.name, len(found), table.n_rows, sizes, scores, agreement, notes, tested
    )
    print_scores(scored, as_json=as_json)
    return scored


# ---------------------------------------------------------------------- labels of the rows


def _read_labels(option: str, path: Path) -> Any:
    from volmar.tables import read_table

    path = expanded_path(path)
    if not path.is_file():
        what = "that is a folder" if path.is_dir() else "there is no such file"
        raise UsageError(f"{option} {path}: {what}. Check the path.")
    return read_table(path).data


def _check_clusters(path: Path, n_clusters: int, n_rows: int, n_noise: int) -> None:
    name = Path(path).name
    if n_clusters < 2:
        beside = f", apart from {n_noise} rows of noise (label -1)" if n_noise else ""
        raise UsageError(
            f"--labels {name} has one label for all {n_rows - n_noise} rows{beside}. Give labels "
            "of at least two clusters."
        )
    if n_clusters > n_rows / 2 and n_clusters > 2:
        raise UsageError(
            f"--labels {name} has {n_clusters} different labels for {n_rows} rows. Check that "
            "its column label contains clusters, not ids."
        )


def _tested(
    X: Any, labels: NDArray, noise: str | None, seed: int, notes: list[str]
) -> LabelTestResult | None:
    """Return the result of `label_test`; if it fails, return None and add a note."""
    from volmar.evidence import label_test

    try:
        with counted("testing the clusters") as tell:
            return label_test(X, labels, noise_label=noise, progress=tell, random_state=seed)
    except ValueError as error:
        notes.append(f"the clusters were not tested: {error}")
        return None


# ---------------------------------------------------------------------- print


def print_scores(scored: ScoredLabels, *, as_json: bool = False) -> None:
    """Print the scores as a table, or as JSON."""
    if as_json:
        print_json(scored.content())
        return
    for note in scored.notes:
        say(f"note: {note}")
    console = Screen(highlight=False, emoji=False)
    of_all = f" of {scored.n_all}" if scored.n_rows < scored.n_all else ""
    console.print(
        f"{printable(scored.source)}: {scored.n_rows}{of_all} rows in {len(scored.sizes)} "
        f"clusters of {sizes_text(list(scored.sizes.values()))}",
        markup=False,
        soft_wrap=True,
    )
    console.print("\nScores without true classes:")
    console.print(_table(scored.scores))
    if scored.agreement:
        console.print("Agreement with the true classes:")
        console.print(_table(scored.agreement))
    if scored.tested is not None:
        print_label_test(console, scored.tested)


def _table(scores: list[LabelScore]) -> Table:
    table = narrow_table("score", "value", "better")
    table.columns[2].justify = "left"
    table.add_column("what it means")
    for one in scores:
        table.add_row(one.name, score_text(one.value), one.better, one.meaning)
    return table


def score_text(value: float | None) -> str:
    """Return a score with three decimals (none from 100 on), or a dash if undefined."""
    if value is None or not np.isfinite(value):
        return "-"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"


def _test_content(result: LabelTestResult | None) -> dict[str, Any] | None:
    if result is None:
        return None
    return {
        "summary": result.summary,
        "separated groups": result.n_real,
        "groups": [list(group) for group in result.groups],
        "untested": list(result.untested),
        "noise rows": result.n_noise,
        "alpha": result.alpha,
        "joins": [
            {
                "clusters": [list(side) for side in join.tested],
                "rows": list(join.n_tested),
                "separated": join.is_real,
                "p": join.p_value,
                "level": join.level,
                "effect": join.effect,
                "sentence": str(join),
            }
            for join in result.tree
        ],
    }


def print_label_test(console: Console, result: LabelTestResult) -> None:
    """Print the summary, all borders to merge, and the first `MAX_PRINTED` separated ones."""
    merged = [str(join) for join in result.tree if not join.is_real]
    separated = [str(join) for join in result.tree if join.is_real]
    others = result.sentences[len(result.tree) :]
    n_more = len(separated) - MAX_PRINTED
    more = [f"... and {n_more} more pairs are separated (--json lists all)."] if n_more > 0 else []
    console.print("Which clusters are real?")
    console.print(result.summary, markup=False)
    lines = Table.grid(padding=(0, 1, 0, 0))
    for line in (*merged, *separated[:MAX_PRINTED], *more, *others):
        lines.add_row("-", Text(line))
    console.print(lines)


# ---------------------------------------------------------------------- drift


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
        print_json({"model": Path(model).name, "file": name, **report.to_dict()})
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
    console.print(_drift_table(report))


def _drift_table(report: DriftReport) -> Table:
    titles = ("rows before", "now", "share before", "now", "distance before", "now")
    table = narrow_table("cluster", *titles)
    for j, n_old, n_new, *shown in report.by_cluster():
        table.add_row(str(j), f"{n_old:,}", f"{n_new:,}", *shown)
    return table
