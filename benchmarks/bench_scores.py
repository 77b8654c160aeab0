"""Scores of a labelling by moments, against scikit-learn's silhouette, which needs all pairs."""

import numpy as np
from sklearn.metrics import calinski_harabasz_score, silhouette_score

from benchmarks.table import Table
from benchmarks.timing import in_turns
from volmar.metrics import msp_score, separation_score


def run(*, full: bool) -> Table:
    table = Table(("data", "score", "value", "s", "silhouette / score"))
    sizes = [(16_000, 20, 5)]
    if full:
        sizes += [(4_000, 20, 5), (4_000, 256, 10)]
    for n, d, k in sizes:
        _compare(table, n, d, k, repeats=9 if full else 3)
    table.notes.append(
        "The cost is O(n d² + k² d³) against O(n² d): many features and clusters narrow the gap."
    )
    return table


def _compare(table, n, d, k, repeats):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, k, n)
    X = rng.normal(0, 2, (k, d))[labels] + rng.standard_normal((n, d))
    contenders = {
        "silhouette": lambda: silhouette_score(X, labels),
        "calinski_harabasz": lambda: calinski_harabasz_score(X, labels),
        "separation_score": lambda: separation_score(X, labels),
        "msp_score": lambda: msp_score(X, labels),
        "separation_score, cross_fit": lambda: separation_score(
            X, labels, cross_fit=True, random_state=0
        ),
        "msp_score, cross_fit": lambda: msp_score(X, labels, cross_fit=True, random_state=0),
    }
    timings = in_turns(contenders, repeats=repeats)
    slow = timings["silhouette"].median
    for name, timing in timings.items():
        data = f"{k} Gaussian blobs, {n} x {d}"
        table.add(data, name, float(timing.value), timing.median, slow / timing.median)
