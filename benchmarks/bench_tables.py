"""Tables of mixed columns: number of clusters, ARI and time of ``volmar cluster`` and of rivals.

Every kind of artificial table has planted groups and a twin without groups (table_data.py). volmar
gets the CSV file as it is, with no options. Rivals get the table after the usual preparation: ids
dropped by name, dates as numbers of days, medians for missing values, one-hot categories, standard
scaling. KMeans uses the number of clusters (2 to 10) with the largest silhouette, computed on at
most 5,000 rows; HDBSCAN has a minimum cluster size of 2 % of the rows; k-prototypes of the package
kmodes is fitted to 1,000 rows, assigns the others to its prototypes, and uses the number of
clusters (2 to 10) with the largest silhouette in its own dissimilarity. HDBSCAN without clusters
counts as one cluster, and its noise as a separate group in the ARI. A call that raises an error or
takes longer than the time limit has *failed*: it counts as a wrong number and an ARI of 0, and is
listed.

*Supervised* is the cross-validated ARI of a classifier that is trained on the groups of other
rows (the better of logistic regression and extremely randomised trees, on the usual preparation).
It measures the information on the groups in the columns. Times are CPU seconds, including the
preparation. Draws have the seeds 0 to 19, which are not used in development (see
table_contest.py).
"""

from collections import Counter

import numpy as np

from benchmarks.table import Table, Target
from benchmarks.table_contest import (
    ABSENT,
    LIMIT_SECONDS,
    METHODS,
    OURS,
    SUPERVISED,
    measured,
    one_table,
)
from benchmarks.table_data import BENCHMARK_SEEDS, KINDS

ROWS, DRAWS, RIVAL_DRAWS = 1000, 3, 2
FULL_ROWS, FULL_DRAWS, FULL_RIVAL_DRAWS = 1500, len(BENCHMARK_SEEDS), 5
TIMED_KIND, TIMED_ROWS, TIMED_LIMIT = "customers", 30_000, 300.0
MOST_SECONDS, RIGHT_NUMBER, MEAN_ARI, ONE_CLUSTER = 10.0, 0.80, 0.85, 0.95


def run(*, full: bool) -> Table:
    n_rows, n_draws, n_rival = (
        (FULL_ROWS, FULL_DRAWS, FULL_RIVAL_DRAWS) if full else (ROWS, DRAWS, RIVAL_DRAWS)
    )
    results = measured(KINDS, n_rows, BENCHMARK_SEEDS[:n_draws], n_rival)
    return tables(results, timed(), n_rows)


def timed(n_rows=TIMED_ROWS, methods=METHODS):
    """Return the results and CPU times of all methods on one large table."""
    return one_table(
        TIMED_KIND, n_rows, BENCHMARK_SEEDS[0], methods, supervised=False, limit=TIMED_LIMIT
    )


# ------------------------------------------------------------------ values


def of_groups(results, *, grouped):
    """Return the results of the kinds with groups, or of those without."""
    return {kind: by for kind, by in results.items() if KINDS[kind].grouped == grouped}


def mean(results, method, value):
    """Return the mean of a value of draws over kinds, each with the same weight; NaN if none."""
    by_kind = [np.mean([value(one) for one in by[method]]) for by in results.values()]
    return float(np.mean(by_kind)) if by_kind else float("nan")


def right(one):
    return one.right


def ari(one):
    return one.ari


def seconds(one):
    return one.seconds


def targets(results, times):
    """Return the targets of the project with measured values."""
    grouped, alone = of_groups(results, grouped=True), of_groups(results, grouped=False)
    return [
        Target(
            "right number of clusters, with groups",
            OURS,
            mean(grouped, OURS, right),
            RIGHT_NUMBER,
        ),
        Target("mean ARI, with groups", OURS, mean(grouped, OURS, ari), MEAN_ARI),
        Target("one cluster, without groups", OURS, mean(alone, OURS, right), ONE_CLUSTER),
        Target(
            f"CPU seconds, {TIMED_ROWS:,} {TIMED_KIND}",
            OURS,
            times[OURS].seconds if not times[OURS].error else float("inf"),
            MOST_SECONDS,
            at_most=True,
        ),
    ]


# ------------------------------------------------------------------ tables


def tables(results, times, n_rows) -> Table:
    methods = [m for m in METHODS if all(m in by for by in results.values())]
    table = _summary(results, methods)
    for part in (
        _targets(results, times),
        _with_groups(results, methods, n_rows),
        _without_groups(results, methods),
        _seconds(results, methods),
        _large(times),
        _failures(results, times, methods),
    ):
        table.notes += [part.render(), ""]
    if ABSENT:
        table.notes.append(f"Not installed: {', '.join(ABSENT)}.")
    return table


def _summary(results, methods):
    grouped, alone = of_groups(results, grouped=True), of_groups(results, grouped=False)
    table = Table(
        (
            "method",
            "right number, with groups",
            "ARI, with groups",
            "one cluster, without groups",
            "CPU seconds per table",
            "failed",
        )
    )
    for method in methods:
        every = [one for by in results.values() for one in by[method]]
        table.add(
            method,
            _percent(mean(grouped, method, right)),
            f"{mean(grouped, method, ari):.3f}",
            _percent(mean(alone, method, right)),
            f"{mean(results, method, seconds):.2f}",
            f"{sum(bool(one.error) for one in every)} of {len(every)}",
        )
    table.notes += ["Summary: means over kinds. Failed calls count as wrong.", ""]
    return table


def _targets(results, times):
    table = Table(("target", "method", "measured", "wanted", "met"))
    for target in targets(results, times):
        table.add(target.words, target.method, *target.cells)
    table.notes.append("Targets of the project.")
    return table


def _with_groups(results, methods, n_rows):
    table = Table(("with groups", "rows", "groups", SUPERVISED, *methods))
    for kind, by in of_groups(results, grouped=True).items():
        cells = (
            f"{_percent(np.mean([one.right for one in by[m]]))} / "
            f"{np.mean([one.ari for one in by[m]]):.2f} (k = {_numbers(by[m])})"
            for m in methods
        )
        reachable = f"{np.mean(by[SUPERVISED]):.2f}" if SUPERVISED in by else ""
        table.add(kind, KINDS[kind].n_rows(n_rows), KINDS[kind].n_groups, reachable, *cells)
    table.notes.append(
        "Share of draws with the right number of clusters / mean ARI, and the numbers of clusters "
        "found, the most frequent first (? is a failure)."
    )
    return table


def _without_groups(results, methods):
    table = Table(("without groups", *methods))
    for kind, by in of_groups(results, grouped=False).items():
        cells = (
            f"{_percent(np.mean([one.right for one in by[m]]))} (k = {_numbers(by[m])})"
            for m in methods
        )
        table.add(kind, *cells)
    table.notes.append(
        "Share of draws with one cluster. KMeans and k-prototypes never return a single one."
    )
    return table


def _seconds(results, methods):
    table = Table(("CPU seconds", *methods))
    for kind, by in results.items():
        table.add(kind, *(f"{np.mean([one.seconds for one in by[m]]):.2f}" for m in methods))
    table.notes.append(f"Mean of draws. A call may take {LIMIT_SECONDS:g} s of wall time.")
    return table


def _large(times):
    table = Table((f"{TIMED_ROWS:,} {TIMED_KIND}", "CPU seconds", "clusters", "ARI"))
    for method, one in times.items():
        cells = ("failed", "") if one.error else (one.k, f"{one.ari:.3f}")
        table.add(method, f"{one.seconds:.1f}", *cells)
    table.notes.append(f"A call may take {TIMED_LIMIT:g} s of wall time.")
    return table


def _failures(results, times, methods):
    table = Table(("failed", "method", "draws", "error"))
    every = {**results, f"{TIMED_ROWS:,} {TIMED_KIND}": {m: [one] for m, one in times.items()}}
    for kind, by in every.items():
        for method in methods:
            errors = Counter(one.error for one in by[method] if one.error)
            for error, count in errors.items():
                table.add(kind, method, count, _cut(error))
    if not table.rows:
        table.notes.append("No call failed.")
    return table


def _percent(share):
    return "-" if np.isnan(share) else f"{100 * share:.0f} %"


def _numbers(runs):
    return ", ".join(str(k or "?") for k, _ in Counter(one.k for one in runs).most_common(4))


def _cut(text, most=160):
    text = text.replace("|", "/")
    return text if len(text) <= most else text[: most - 3] + "..."
