"""Embeddings and text: ARI, NMI, accuracy and CPU time with the number of clusters given.

20 Newsgroups (TF-IDF with logarithms of the counts, truncated SVD), digits, MNIST (grey values in
units of their range) and isolet, all in float32. All methods get the same rows and the number of
classes, no labels, and their default settings. Accuracy is that of the best matching of clusters
and classes. HDBSCAN finds its own number of clusters, and its noise is scored as one more cluster.
Times are CPU seconds relative to those of KMeans with ten starts on the same rows. A contender
that takes longer than the time limit (CPU seconds of one fit) on a set is shown as "-" there.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from statistics import geometric_mean, median

import numpy as np
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import volmar
from benchmarks.embedding_data import drawn, make_groups, news, sets
from benchmarks.rivals import EMBEDDINGS, hdbscan, kmeans
from benchmarks.table import Table
from benchmarks.timing import time_limit
from reproduction.datasets import data_folder
from volmar.metrics import clustering_error

# Methods with their maximum number of rows: KernelCPMMC needs a kernel matrix.
OURS = {
    volmar.CPMMC: np.inf,
    volmar.MSPC: np.inf,
    volmar.SoftLabelMVC: np.inf,
    volmar.KernelCPMMC: 10_000,
}
# CPU seconds for one fit.
LIMIT, QUICK_LIMIT = 600.0, 30.0
SEEDS, QUICK_SEEDS = 3, 1
# The time of HDBSCAN is quadratic here, in compiled code that signals cannot interrupt.
MOST_ROWS_OF_HDBSCAN = 20_000


@dataclass(frozen=True)
class Contender:
    """A method: its name, labels from (rows, number of clusters, seed), and maximum rows."""

    name: str
    labels: Callable
    most_rows: float = np.inf


@dataclass(frozen=True)
class Score:
    """Scores and time of one fit."""

    ari: float
    nmi: float
    accuracy: float
    seconds: float


def run(*, full: bool) -> Table:
    found, missing = sets(full)
    seeds, limit = (SEEDS, LIMIT) if full else (QUICK_SEEDS, QUICK_LIMIT)
    table = compare(found, contenders(), range(seeds), limit)
    if data_folder() is None:
        names = ", ".join(missing)
        table.notes.append(
            f"Left out because the folder of data files (VOLMAR_DATA) is missing: {names}"
        )
        return table
    table.notes += ["", _speed(full, limit).render()]
    return table


def contenders() -> list[Contender]:
    """Return the rivals and volmar's methods, on the rows as given and on rows of unit norm."""
    listed = [Contender(rival.NAME, rival.fit_predict) for rival in EMBEDDINGS]
    listed.append(Contender(hdbscan.NAME, _by_hdbscan, MOST_ROWS_OF_HDBSCAN))
    for method, most in OURS.items():
        listed.append(Contender(method.__name__, _by(method), most))
        by_unit_rows = _by(method, Normalizer())
        listed.append(Contender(f"{method.__name__}, unit norm", by_unit_rows, most))
    return listed


def compare(found, methods, seeds, limit) -> Table:
    """Return the table of ARI and means, with NMI, accuracy and times by set in its notes."""
    scores = {method.name: {} for method in methods}
    for name, load_rows in found.items():
        X, y = load_rows()
        for method in methods:
            scores[method.name][name] = _runs(method, X, y, seeds, limit)
    ratios = _ratios(scores, found)
    header = ("method", *found, "mean ARI", "mean NMI", "mean accuracy", "CPU / KMeans")
    table = Table(header)
    for method, by_set in scores.items():
        means = [_mean(by_set, found, measure) for measure in ("ari", "nmi", "accuracy")]
        ratio = ratios[method].values()
        cells = [_cell(by_set[name], "ari") for name in found]
        overall = "-" if None in ratio else f"{geometric_mean(ratio):.2f}"
        table.add(method, *cells, *means, overall)
    common = [name for name in found if all(by_set[name] for by_set in scores.values())]
    limited = [f"{m.name} above {m.most_rows:,} rows" for m in methods if m.most_rows < np.inf]
    table.notes += [
        f"ARI by set, mean over {len(seeds)} seed(s); the mean of the times is geometric.",
        f'"-": more than {limit:g} CPU seconds on a set, or not run: {", ".join(limited)}.',
    ]
    if len(common) < len(found):
        means = (f"{name} {_mean(by_set, common, 'ari')}" for name, by_set in scores.items())
        names = ", ".join(common) or "none"
        table.notes.append(
            f"Mean ARI over the sets that all methods finished ({names}): {', '.join(means)}."
        )
    for words, measure in (("NMI", "nmi"), ("accuracy", "accuracy")):
        below = Table((words, *found))
        for method, by_set in scores.items():
            below.add(method, *(_cell(by_set[name], measure) for name in found))
        table.notes += ["", below.render()]
    times = Table(("CPU / KMeans", *found))
    for method, by_set in ratios.items():
        times.add(method, *("-" if one is None else f"{one:.2f}" for one in by_set.values()))
    table.notes += ["", times.render()]
    return table


def _by(method, *steps):
    return lambda X, k, seed: make_pipeline(*steps, method(k, random_state=seed)).fit_predict(X)


def _by_hdbscan(X, k, seed):  # noqa: ARG001 -- it finds the number of clusters
    return hdbscan.find_clusters(X, seed)


def _runs(method, X, y, seeds, limit):
    """Return a score for each seed; an empty list if a fit took too long."""
    if len(X) > method.most_rows:
        return []
    runs = []
    for seed in seeds:
        try:
            labels, seconds = _timed(method.labels, X, len(np.unique(y)), seed, limit)
        except TimeoutError:
            return []
        ari, nmi = adjusted_rand_score(y, labels), normalized_mutual_info_score(y, labels)
        runs.append(Score(ari, nmi, 1.0 - clustering_error(y, labels), seconds))
    return runs


def _timed(labels_of, X, k, seed, limit):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        with time_limit(limit, of_cpu=True):
            labels = labels_of(X, k, seed)
        return labels, time.process_time() - start


def _ratios(scores, found):
    """Return CPU times relative to KMeans by method and set; None if one is missing."""
    base = {name: _seconds(scores.get(kmeans.NAME, {}).get(name)) for name in found}
    return {
        method: {
            name: _seconds(runs) / base[name] if runs and base[name] else None
            for name, runs in by_set.items()
        }
        for method, by_set in scores.items()
    }


def _seconds(runs):
    return median(run.seconds for run in runs) if runs else None


def _mean(by_set, names, measure):
    """Return the mean over the sets as text, "-" if one of them is missing."""
    if not names or not all(by_set[name] for name in names):
        return "-"
    values = [np.mean([getattr(run, measure) for run in by_set[name]]) for name in names]
    return f"{np.mean(values):.3f}"


def _cell(runs, measure):
    return f"{np.mean([getattr(run, measure) for run in runs]):.3f}" if runs else "-"


def _speed(full, limit):
    """Return CPU times relative to KMeans, in turns, medians of three rounds (quick: one)."""
    work = {
        "news SVD 100, 6,000 x 100, k = 20": (
            drawn(news(100), 6000),
            (volmar.CPMMC, volmar.KernelCPMMC),
            3 if full else 1,
        )
    }
    if full:
        name = "100 unequal normal groups near 20 directions, 100,000 x 256 float32, k = 100"
        work[name] = (make_groups, (volmar.CPMMC,), 1)
    table = Table(("speed", "method", "CPU s", "CPU / KMeans", "ARI"))
    for name, (load_rows, methods, repeats) in work.items():
        X, y = load_rows()
        calls = {kmeans.NAME: kmeans.fit_predict} | {one.__name__: _by(one) for one in methods}
        runs = {method: [] for method in calls}
        for _ in range(repeats):
            for method, labels_of in calls.items():
                one = _runs(Contender(method, labels_of), X, y, (0,), limit)
                runs[method].append(one[0] if one else None)
        base = runs[kmeans.NAME]
        for method, each in runs.items():
            if None in each:
                table.add(name, method, f"> {limit:g} s", "-", "-")
                continue
            ratio = "-" if None in base else f"{_seconds(each) / _seconds(base):.2f}"
            table.add(name, method, f"{_seconds(each):.2f}", ratio, f"{each[-1].ari:.3f}")
    return table
