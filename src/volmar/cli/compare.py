"""``volmar compare``: several methods on one table, side by side."""

from __future__ import annotations

import difflib
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.table import Table
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from volmar.cli.console import Screen, UsageError, counted, refuse_files, say, written
from volmar.cli.methods import clusterer_names, make_method
from volmar.cli.rows import read_rows
from volmar.cli.score import Judgement, drawn, label_free_scores, shown

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
# Rows that are fitted where the time is not linear in them; the others are predicted.
# Semi-definite programs are cubic, kernel matrices and neighbours of many columns quadratic.
MOST_FITTED = {
    "GMMC": 1000,
    "SDPMMC": 500,
    "HardLabelMVC": 1000,
    "KernelKMeans": 5000,
    "KernelCPMMC": 5000,
    "IterSVR": 5000,
    "LGMMC": 5000,
    "SoftLabelMVC": 10_000,
    "NormalizedCut": 10_000,
    "NormalizedSpectralClustering": 10_000,
    "SMIC": 10_000,
}
_PIECE = 20_000  # rows predicted at once


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
        How long the fit took, and the prediction of rows that were not fitted.
    scores : list of Judgement
        Label-free scores; empty where it found one cluster.
    n_fitted : int
        Rows that were fitted; the others are predicted.
    """

    method: str
    labels: NDArray
    seconds: float
    scores: list[Judgement]
    n_fitted: int

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
    n_all : int
        Number of all rows, more than `n_rows` where these were drawn from a folder.
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
    n_all: int = 0
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
            "rows": self.n_all,
            "rows compared": self.n_rows,
            "columns": self.n_columns,
            "n_clusters": self.n_clusters,
            "methods": {
                run.method: {
                    "clusters": np.unique(run.labels, return_counts=True)[1].tolist(),
                    "rows fitted": run.n_fitted,
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
    kinds: Mapping[str, str] | None = None,
    scale: str = "auto",
    missing: str = "impute",
    out: Path | None = None,
    force: bool = False,
    seed: int = 0,
    as_json: bool = False,
) -> Comparison:
    """Cluster a table by several methods, and print how they compare.

    Parameters
    ----------
    source : str
        The table, a folder of tables (of which rows are drawn), or the name of a built-in set.
    methods : sequence of str
        Clusterers of the library, or KMeans (scikit-learn's); `DEFAULT_METHODS` if empty.
    n_clusters : str, default="auto"
        Number of clusters, or "auto": as many as MSPC finds evidence for, and 2 where it finds
        none.
    columns, drop, id_column, kinds, scale, missing
        As for `volmar.tables.Preparation`.
    out : Path, optional
        File for the labels, a column for each method: CSV, TSV or Parquet.
    force : bool, default=False
        Whether `out` may be overwritten.
    seed : int, default=0
        Random seed.
    as_json : bool, default=False
        Whether to print one JSON object in place of tables.
    """
    from volmar.tables import Preparation, written_kind

    names = _names(methods)
    wanted = _wanted(n_clusters)
    refuse_files({"-o": out}, source, force=force)
    if out is not None:
        written_kind(out)
    preparation = Preparation(
        columns=list(columns) or None,
        drop=list(drop) or None,
        id_column=id_column,
        kinds=dict(kinds or {}),
        scale=scale,
        missing=missing,
    ).check_parameters()
    table = read_rows(source, preparation, seed=seed)
    rows = table.rows
    n, d = rows.X.shape
    if n < 2:
        raise UsageError(f"{table.name} has {n} row, and clusters need two at least.")
    found = Comparison(table.name, n, d, n_all=table.n_rows, notes=list(rows.notes))
    found.warnings += rows.warnings
    ready: dict[str, Fitted] = {}
    dithered = rows.dithered(seed)
    try:
        if wanted is None:
            ready = _by_evidence(rows.X, dithered, seed, found)
        else:
            found.n_clusters = wanted
        compare_methods(rows.X, names, found, dithered=dithered, ready=ready, seed=seed)
    except KeyboardInterrupt:
        done = ", ".join(run.method for run in found.runs) or "nothing"
        _finish(found, rows, out, force, as_json=as_json)
        raise KeyboardInterrupt(f"; complete: {done}") from None
    if not found.runs:
        name, reason = next(iter(found.left_out.items()))
        raise UsageError(f"no method could take {table.name}; {name}: {reason}")
    _finish(found, rows, out, force, as_json=as_json)
    return found


class Fitted(NamedTuple):
    """Labels of all rows by a method, the time that took, and the rows that were fitted."""

    labels: NDArray
    seconds: float
    n_fitted: int
    warnings: list[str]


def compare_methods(
    X: Any,
    methods: Sequence[str],
    found: Comparison,
    *,
    dithered: Any = None,
    ready: Mapping[str, Fitted] | None = None,
    seed: int = 0,
) -> None:
    """Fit methods to rows one by one, and add what they find to a comparison.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, dense or CSR.
    methods : sequence of str
        Names of methods, as the library spells them.
    found : Comparison
        Gets the runs, the methods that are left out, and warnings.
    dithered : array of shape (n, d), default=None
        The rows to fit, if not X itself: those of `volmar.tables.PreparedTable.dithered`.
    ready : mapping of str to Fitted, default=None
        Methods that need not be fitted again.
    seed : int, default=0
        Random seed of the methods, and of the rows that are fitted where these are a sample.
    """
    ready = ready or {}
    n_fits = len([name for name in methods if name not in ready])
    with counted("comparing") as tell:
        done = 0
        for name in methods:
            if name not in ready:
                tell(done, n_fits, f"comparing: {name} ({done + 1} of {n_fits})")
            try:
                one = ready.get(name) or _fit(X, dithered, name, found.n_clusters, seed)
                run = _run(X, name, one, seed)
            except (ValueError, TypeError, MemoryError, ArithmeticError) as error:
                found.left_out[name] = _one_line(error)
                continue
            finally:
                done += name not in ready
            if found.runs:
                run = replace(run, labels=_numbered_as(found.runs[0].labels, run.labels))
            found.runs.append(run)
            found.warnings += [f"{name}: {text}" for text in one.warnings]


def _fit(X: Any, dithered: Any, name: str, n_clusters: int | str, seed: int) -> Fitted:
    n = X.shape[0]
    size = min(MOST_FITTED.get(name, n), n)
    rows = X if dithered is None else dithered
    if size < n:
        rows = rows[drawn(n, size, seed)]
    estimator = _estimator(name, n_clusters, seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        estimator.fit(rows)
        labels = estimator.labels_ if rows is X else _predicted(estimator, X)
        seconds = time.perf_counter() - start
    texts = list(dict.fromkeys(_one_line(one.message) for one in caught))
    return Fitted(np.unique(labels, return_inverse=True)[1], seconds, size, texts)


def _predicted(estimator: Any, X: Any) -> NDArray:
    """Predict in pieces: kernels with all rows at once would take much memory."""
    starts = range(0, X.shape[0], _PIECE)
    return np.concatenate([estimator.predict(X[start : start + _PIECE]) for start in starts])


def _run(X: Any, name: str, one: Fitted, seed: int) -> Run:
    has_clusters = 1 < int(one.labels.max()) + 1 < len(one.labels)
    scores = label_free_scores(X, one.labels, seed=seed) if has_clusters else []
    return Run(name, one.labels, one.seconds, scores, one.n_fitted)


def _numbered_as(first: NDArray, labels: NDArray) -> NDArray:
    """Return labels with other numbers, those of `first` where most rows agree."""
    k = int(max(first.max(), labels.max())) + 1
    together = sparse.coo_array((np.ones(len(labels)), (labels, first)), shape=(k, k)).toarray()
    return linear_sum_assignment(together, maximize=True)[1][labels]


def _estimator(name: str, n_clusters: int | str, seed: int) -> Any:
    if name == "KMeans":
        from sklearn.cluster import KMeans

        return KMeans(n_clusters, n_init=10, random_state=seed)
    return make_method(name, n_clusters, seed, {})


def _by_evidence(X: Any, dithered: Any, seed: int, found: Comparison) -> dict[str, Fitted]:
    """Set the number of clusters that MSPC finds evidence for, and return its clusters.

    It is 2 without evidence, and then nothing is returned: MSPC at 2 is another fit.
    """
    from volmar.evidence.splits.split_test import FEWEST_ROWS

    found.n_clusters = 2
    if X.shape[0] < FEWEST_ROWS:
        found.notes.append(f"{X.shape[0]} rows are too few to test a split, so 2 clusters")
        return {}
    with counted("looking for groups"):
        tested = _fit(X, dithered, "MSPC", "auto", seed)
    n_found = len(np.unique(tested.labels))
    if n_found == 1:
        found.notes.append(
            "nothing supports a split of these rows; methods are compared at 2 clusters all the "
            "same"
        )
        return {}
    found.notes.append(f"MSPC finds evidence for {n_found} clusters")
    found.n_clusters = n_found
    return {"MSPC": tested}


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
        from volmar.tables import open_columns

        names = [run.method for run in found.runs]
        with open_columns(out, [rows.id_name, *names], force=force) as write:
            write(rows.ids, *(run.labels for run in found.runs))
        written(out)


def print_comparison(found: Comparison, *, as_json: bool = False) -> None:
    """Print scores, agreement and what was left out, or all of it as JSON."""
    if as_json:
        Screen().out(found.as_json(), highlight=False)
        return
    for note in found.notes:
        say(f"note: {note}")
    console = Screen(highlight=False, emoji=False)
    of_all = f" of {found.n_all}" if found.n_all > found.n_rows else ""
    console.print(
        f"{found.source}: {found.n_rows}{of_all} rows, {found.n_columns} columns, "
        f"{found.n_clusters} clusters asked for",
        markup=False,
        soft_wrap=True,
    )
    console.print("\nWithout labels (↑ higher is better, ↓ lower is better):")
    console.print(_scores_table(found))
    if sampled := [run for run in found.runs if run.n_fitted < found.n_rows]:
        sizes = ", ".join(f"{run.method} {run.n_fitted:,} rows" for run in sampled)
        console.print(f"* fitted to a sample, others predicted: {sizes}.\n")
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
        name = run.method + (" *" if run.n_fitted < found.n_rows else "")
        table.add_row(name, str(run.n_clusters), f"{run.seconds:.2f}", *figures)
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
