"""Classes of some rows: the error on all other rows against the number of seeds.

Pairs of classes and all classes of multi-class sets; rows are standardised, constant features
dropped. There is at least one seed per class, the others are random; means over draws of the
seeds. Without seeds, clusters are matched to classes, so this column uses more information than
the next ones. With seeds, a row is correct only if it has the label of its class. All settings are
defaults.
"""

import inspect
import time
import warnings

import numpy as np
from sklearn.datasets import load_iris, load_wine
from sklearn.preprocessing import StandardScaler

import volmar
from benchmarks.bench_class_pairs import MULTI_CLASS, WITHOUT_FOLDER, class_pairs, sampled_task
from benchmarks.rivals import SEEDED
from benchmarks.table import Table
from reproduction.datasets import data_folder, load
from volmar.metrics import clustering_error

OURS = ("MSPC", "CPMMC", "KernelCPMMC", "SKMMC", "SoftLabelMVC")
# Fits with more than two clusters take seconds, and are part of a full run only.
SLOW = ("SKMMC",)
COUNTS = (0, 2, 5, 10, 20, 50)
SMALL_SETS = {"iris": load_iris, "wine": load_wine}
QUICK_SETS = ("letter", "satellite", "usps", "digits")
MOST_ROWS, QUICK_ROWS = 1000, 300
MOST_CLASSES, QUICK_CLASSES = 26, 10
DRAWS, QUICK_DRAWS = 5, 3


def run(*, full: bool) -> Table:
    ours = [name for name in OURS if full or name not in SLOW]
    ours = [name for name in ours if takes_seeds(getattr(volmar, name))]
    rivals = [rival for rival in SEEDED if rival.available()]
    names = MULTI_CLASS if full else QUICK_SETS
    skipped = [n for n in names if data_folder() is None and n not in WITHOUT_FOLDER]
    sets = {name: load(name) for name in names if name not in skipped}
    most, draws = (MOST_ROWS, DRAWS) if full else (QUICK_ROWS, QUICK_DRAWS)
    pairs = [
        _numbered(X[:most], y[:most])
        for data in sets.values()
        for X, y in class_pairs(data.X, data.y, 4 if full else 1)
    ]
    tables = [_table(pairs, ours, rivals, COUNTS, draws)]
    few = MOST_CLASSES if full else QUICK_CLASSES
    many = [
        _numbered(X[:most], y[:most])
        for data in sets.values()
        if np.unique(data.y).size <= few
        for X, y in [sampled_task(data.X, data.y, np.random.default_rng(0))]
    ]
    many += [_numbered(*_small(load_set())) for load_set in SMALL_SETS.values()]
    tables.append(_table(many, ours, rivals, [count for count in COUNTS if count != 2], draws))
    first, second = tables
    sizes = f"at most {most} rows, {draws} draws of the seeds"
    first.notes += [
        f"Mean error in per cent over {len(pairs)} pairs of classes ({sizes}).",
        "",
        second.render(),
        "",
        f"The same over {len(many)} sets with all classes (at most {few}), each with a seed.",
    ]
    if len(rivals) < len(SEEDED):
        missing = ", ".join(rival.NAME for rival in SEEDED if rival not in rivals)
        first.notes.append(f"Left out because it is not installed or does not run: {missing}.")
    if skipped:
        first.notes.append(
            "Left out because the folder of data files (VOLMAR_DATA) is missing: "
            f"{', '.join(skipped)}."
        )
    return first


def takes_seeds(estimator) -> bool:
    """Return whether an estimator takes labels of some rows; links are then supported as well."""
    return "must_link" in inspect.signature(estimator.fit).parameters


def draw_seeds(y, count, seed):
    """Return y with `count` known classes, at least one of each class, and -1 elsewhere."""
    rng = np.random.default_rng(seed)
    n_classes = int(y.max()) + 1
    first = [rng.choice(np.flatnonzero(y == label)) for label in range(n_classes)]
    others = rng.permutation(np.setdiff1d(np.arange(y.size), first))
    known = [*first, *others][: max(count, n_classes)]
    seeds = np.full(y.size, -1)
    seeds[known] = y[known]
    return seeds


def _small(bunch):
    return StandardScaler().fit_transform(bunch.data), bunch.target


def _numbered(X, y):
    return X, np.unique(y, return_inverse=True)[1]


def _table(tasks, ours, rivals, counts, draws):
    header = ("method", *(f"{count} seeds %" for count in counts), "CPU s per fit")
    table = Table(header)
    for name in ours:
        table.add(name, *_row(_of_ours(name), tasks, counts, draws))
    for rival in rivals:
        table.add(rival.NAME, *_row(_of_rival(rival), tasks, counts, draws))
    return table


def _of_ours(name):
    def fit_predict(X, y, n_clusters, seed):
        return getattr(volmar, name)(n_clusters, random_state=seed).fit(X, y).labels_

    return fit_predict


def _of_rival(rival):
    def fit_predict(X, y, n_clusters, seed):
        if y is not None:
            return rival.fit_predict_seeded(X, y, n_clusters, seed)
        return rival.fit_predict(X, n_clusters, seed) if hasattr(rival, "fit_predict") else None

    return fit_predict


def _row(fit_predict, tasks, counts, draws):
    """Return the mean errors by the number of seeds, and the median CPU seconds of a fit."""
    cells, seconds = [], []
    for count in counts:
        errors = []
        for X, y in tasks:
            for draw in range(draws if count else 1):
                start = time.process_time()
                errors.append(_error(fit_predict, X, y, count, draw))
                seconds += [time.process_time() - start] * bool(count)
        cells.append("-" if None in errors else f"{100 * np.mean(errors):.1f}")
    return *cells, f"{np.median(seconds):.2g}"


def _error(fit_predict, X, y, count, draw):
    """Return the error on rows other than seeds; None if the method needs seeds."""
    seeds = draw_seeds(y, count, draw) if count else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = fit_predict(X, seeds, int(y.max()) + 1, draw)
    if seeds is not None:
        return np.mean((labels != y)[seeds < 0])
    return None if labels is None else clustering_error(y, labels)
