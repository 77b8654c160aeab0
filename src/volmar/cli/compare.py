"""``volmar compare``: several methods on one table, side by side."""

from __future__ import annotations

import csv
import difflib
import io
import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.table import Table
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from volmar.cli.console import Screen, UsageError, counted, refuse_files, say, written
from volmar.cli.methods import clusterer_names, make_method
from volmar.cli.score import Judgement, label_free_scores, refuse_folder, shown

__all__ = [
    "DEFAULT_METHODS",
    "Comparison",
    "Run",
    "compare_file",
    "compare_methods",
    "print_comparison",
]

# One of each family, and what everybody has.
DEFAULT_METHODS = ("MSPC", "CPMMC", "SoftLabelMVC", "KMeans")
# Rows up to which a method ends in a minute or so, where it is not linear in them: semi-definite
# programs are cubic, kernel matrices quadratic, and so are the neighbours of many columns.
MOST_ROWS = {
    "GMMC": 1000,
    "SDPMMC": 500,
    "HardLabelMVC": 1000,
    "KernelKMeans": 20_000,
    "KernelCPMMC": 20_000,
    "IterSVR": 20_000,
    "LGMMC": 10_000,
    "SoftLabelMVC": 100_000,
    "NormalizedCut": 100_000,
    "NormalizedSpectralClustering": 100_000,
    "SMIC": 100_000,
}


@dataclass(frozen=True)
class Run:
    """One method's clusters.

    Attributes
    ----------
    method : str
        Its name.
    labels : ndarray of int, shape (n,)
        Its clusters, numbered so that as many rows as can be have the number that the first method
        gave them.
    seconds : float
        How long the fit took.
    scores : list of Judgement
        Label-free scores; empty where it found one cluster.
    """

    method: str
    labels: NDArray
    seconds: float
    scores: list[Judgement]

    @property
    def n_clusters(self) -> int:
        """Number of clusters that have rows."""
        return len(np.unique(self.labels))


@dataclass
class Comparison:
    """What ``volmar compare`` finds out.

    Attributes
    ----------
    source : str
        The table.
    n_rows, n_columns, n_clusters : int
        Its shape as the methods saw it, and the number of clusters that they were asked for.
    runs : list of Run
        The methods that ended.
    left_out : dict of str to str
        The others, with the reason.
    warnings : list of str
        What the fits warned of, a line each.
    notes : list of str
        What was done to the table.
    """

    source: str = ""
    n_rows: int = 0
    n_columns: int = 0
    n_clusters: int = 2
    runs: list[Run] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def agreement(self) -> NDArray[np.float64]:
        """Return the adjusted Rand index of all pairs of methods: 1 the same, 0 by chance."""
        from sklearn.metrics import adjusted_rand_score

        m = len(self.runs)
        matrix = np.eye(m)
        for i in range(m):
            for j in range(i):
                value = adjusted_rand_score(self.runs[i].labels, self.runs[j].labels)
                matrix[i, j] = matrix[j, i] = value
        return matrix

    def as_json(self) -> str:
        """Return one JSON object."""
        content = {
            "file": self.source,
            "rows": self.n_rows,
            "columns": self.n_columns,
            "n_clusters": self.n_clusters,
            "methods": {
                run.method: {
                    "clusters": np.unique(run.labels, return_counts=True)[1].tolist(),
                    "seconds": run.seconds,
                    "scores": {one.name: one.value for one in run.scores},
                }
                for run in self.runs
            },
            "agreement": {
                "methods": [run.method for run in self.runs],
                "adjusted Rand index": self.agreement().tolist(),
            },
            "left out": self.left_out,
            "warnings": self.warnings,
            "notes": self.notes,
        }
        return json.dumps(content, ensure_ascii=False, allow_nan=False)


def compare_file(
    source: str,
    methods: Sequence[str] = (),
    *,
    n_clusters: str = "auto",
    columns: Sequence[str] = (),
    drop: Sequence[str] = (),
    id_column: str | None = None,
    scale: str = "standard",
    missing: str = "error",
    out: Path | None = None,
    force: bool = False,
    seed: int = 0,
    as_json: bool = False,
) -> Comparison:
    """Cluster a table by several methods, and print how they compare.

    Parameters
    ----------
    source : str
        The table, or the name of a built-in set.
    methods : sequence of str
        Clusterers of the library, or KMeans (scikit-learn's); `DEFAULT_METHODS` if empty.
    n_clusters : str, default="auto"
        How many, or "auto": as many as MSPC finds evidence for, and 2 where it finds none.
    columns, drop, id_column, scale, missing
        As for ``volmar cluster``.
    out : Path, optional
        CSV file for the labels, a column for each method.
    force : bool, default=False
        Whether `out` may be overwritten.
    seed : int, default=0
        Seed of all chance.
    as_json : bool, default=False
        Whether to print one JSON object in place of tables.
    """
    from volmar.tables import Preparation, read_table

    names = _names(methods)
    wanted = _wanted(n_clusters)
    refuse_folder(source, "compare")
    refuse_files({"-o": out}, source, force=force)
    with counted("reading"):
        table = read_table(source)
        preparation = Preparation(
            columns=list(columns) or None,
            drop=list(drop) or None,
            id_column=id_column,
            scale=scale,
            missing=missing,
        )
        rows = preparation.fit_transform(table)
    n, d = rows.X.shape
    if n < 2:
        raise UsageError(f"{table.name} has {n} row, and clusters need two at least.")
    found = Comparison(table.name, n, d, notes=list(rows.notes))
    try:
        found.n_clusters = wanted or _by_evidence(rows.X, seed, found)
        compare_methods(rows.X, names, found, seed=seed)
    except KeyboardInterrupt:
        done = ", ".join(run.method for run in found.runs) or "nothing"
        _finish(found, rows, out, force, as_json=as_json)
        raise KeyboardInterrupt(f"; complete: {done}") from None
    if not found.runs:
        name, reason = next(iter(found.left_out.items()))
        raise UsageError(f"no method could take {table.name}; {name}: {reason}")
    _finish(found, rows, out, force, as_json=as_json)
    return found


def compare_methods(X: Any, methods: Sequence[str], found: Comparison, *, seed: int = 0) -> None:
    """Fit methods to X one by one, and add what they find to `found`."""
    with counted("comparing") as tell:
        for i, name in enumerate(methods):
            tell(i, len(methods))
            most = MOST_ROWS.get(name)
            if most is not None and X.shape[0] > most:
                found.left_out[name] = (
                    f"it would take too long for {X.shape[0]:,} rows (up to {most:,} here; "
                    f"volmar cluster --method {name} runs it all the same)"
                )
                continue
            try:
                run, caught = _run(X, name, found.n_clusters, seed)
            except (ValueError, TypeError, MemoryError, ArithmeticError) as error:
                found.left_out[name] = _one_line(error)
                continue
            if found.runs:
                run = replace(run, labels=_numbered_as(found.runs[0].labels, run.labels))
            found.runs.append(run)
            found.warnings += [f"{name}: {text}" for text in caught]


def _run(X: Any, name: str, n_clusters: int, seed: int) -> tuple[Run, list[str]]:
    estimator = _estimator(name, n_clusters, seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        labels = np.unique(estimator.fit(X).labels_, return_inverse=True)[1]
        seconds = time.perf_counter() - start
    has_clusters = 1 < int(labels.max()) + 1 < len(labels)
    scores = label_free_scores(X, labels, seed=seed) if has_clusters else []
    return Run(name, labels, seconds, scores), list(
        dict.fromkeys(_one_line(one.message) for one in caught)
    )


def _numbered_as(first: NDArray, labels: NDArray) -> NDArray:
    """Return labels with other numbers, those of `first` where most rows agree."""
    k = int(max(first.max(), labels.max())) + 1
    together = sparse.coo_array((np.ones(len(labels)), (labels, first)), shape=(k, k)).toarray()
    return linear_sum_assignment(together, maximize=True)[1][labels]


def _estimator(name: str, n_clusters: int, seed: int) -> Any:
    if name == "KMeans":
        from sklearn.cluster import KMeans

        return KMeans(n_clusters, n_init=10, random_state=seed)
    return make_method(name, n_clusters, seed, {})


def _by_evidence(X: Any, seed: int, found: Comparison) -> int:
    """Return the number of clusters that MSPC finds evidence for, 2 at least."""
    from volmar.splits.held_out import FEWEST_ROWS

    if X.shape[0] < FEWEST_ROWS:
        found.notes.append(f"{X.shape[0]} rows are too few to test a split, so 2 clusters")
        return 2
    with counted("looking for groups"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        n_found = int(make_method("MSPC", "auto", seed, {}).fit(X).tree_.n_leaves)
    if n_found > 1:
        found.notes.append(f"MSPC finds evidence for {n_found} clusters")
        return n_found
    found.notes.append(
        "no evidence for more than one group; methods are compared at 2 clusters all the same"
    )
    return 2


# ---------------------------------------------------------------------- options


def _names(methods: Sequence[str]) -> list[str]:
    """Return the names of methods as the library spells them, each once."""
    names = []
    spelled = {name.lower(): name for name in [*clusterer_names(), "KMeans"]}
    for method in methods or DEFAULT_METHODS:
        known = spelled.get(method.lower())
        if known is None:
            near = difflib.get_close_matches(method.lower(), spelled, n=1, cutoff=0.4)
            hint = f" Did you mean {spelled[near[0]]}?" if near else ""
            raise UsageError(
                f"--method {method!r} is not known.{hint} There are {', '.join(spelled.values())}."
            )
        names.append(known)
    return list(dict.fromkeys(names))


def _wanted(n_clusters: str | int) -> int | None:
    """Return the number of clusters, None for auto."""
    if n_clusters == "auto":
        return None
    try:
        count = int(n_clusters)
    except ValueError:
        count = 0
    if count < 2:
        raise UsageError(
            f"--n-clusters must be a whole number of at least 2, or auto, got {n_clusters!r}."
        )
    return count


def _one_line(error: Any) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# ---------------------------------------------------------------------- files and screen


def _finish(found: Comparison, rows: Any, out: Path | None, force: bool, *, as_json: bool) -> None:
    """Print what is complete, and write it."""
    if not found.runs:
        return
    print_comparison(found, as_json=as_json)
    if out is not None:
        from volmar.tables import write_atomically

        write_atomically(out, _labels_table(found, rows), force=force)
        written(out)


def _labels_table(found: Comparison, rows: Any) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([rows.id_name, *(run.method for run in found.runs)])
    columns = [run.labels.tolist() for run in found.runs]
    writer.writerows(zip(np.asarray(rows.ids).tolist(), *columns, strict=True))
    return text.getvalue()


def print_comparison(found: Comparison, *, as_json: bool = False) -> None:
    """Print scores, agreement and what was left out, or all of it as JSON."""
    if as_json:
        Screen().out(found.as_json(), highlight=False)
        return
    for note in found.notes:
        say(f"note: {note}")
    console = Screen(highlight=False, emoji=False)
    console.print(
        f"{found.source}: {found.n_rows} rows, {found.n_columns} columns, {found.n_clusters} "
        "clusters asked for",
        markup=False,
        soft_wrap=True,
    )
    console.print("\nWithout labels (↑ higher is better, ↓ lower is better):")
    console.print(_scores_table(found))
    if len(found.runs) > 1:
        console.print("Agreement (adjusted Rand index: 1 the same clusters, 0 as by chance):")
        console.print(_agreement_table(found))
    for name, reason in found.left_out.items():
        say(f"left out: {name}: {reason}")
    for text in found.warnings:
        say(f"warning: {text}")


# Headers that leave room for the names of methods in 80 columns.
_HEADERS = {
    "separation score": "separ-\nation ↑",
    "MSP": "MSP ↑",
    "silhouette": "silhou-\nette ↑",
    "Calinski-Harabasz": "Cal.-\nHar. ↑",
    "normalised cut": "Ncut ↓",
    "imbalance": "imbal-\nance",
}


def _scores_table(found: Comparison) -> Table:
    table = _narrow_table()
    table.add_column("method", overflow="fold")
    for header in ("clus-\nters", "sec-\nonds", *_HEADERS.values()):
        table.add_column(header, justify="right", no_wrap=True)
    for run in found.runs:
        values = {one.name: one.value for one in run.scores}
        figures = [shown(values.get(name)) for name in _HEADERS]
        table.add_row(run.method, str(run.n_clusters), f"{run.seconds:.2f}", *figures)
    return table


def _agreement_table(found: Comparison) -> Table:
    """Return the matrix; its columns have the numbers of its rows, for many methods to fit."""
    table = _narrow_table()
    table.add_column("")
    for i, _ in enumerate(found.runs, start=1):
        table.add_column(str(i), justify="right", no_wrap=True)
    for i, (run, line) in enumerate(zip(found.runs, found.agreement(), strict=True), start=1):
        table.add_row(f"{i} {run.method}", *(f"{value:.2f}" for value in line))
    return table


def _narrow_table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
