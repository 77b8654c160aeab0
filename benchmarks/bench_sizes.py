"""Clusters of limited size: time and inertia against the package k-means-constrained.

The groups overlap and have unequal sizes (in proportion to 1, 2, ..., k). No cluster may be larger
than "largest". volmar assigns labels by `volmar.guidance.guide.Guide.place`, in Lloyd's iteration
on the rows. All methods start from the same centres of k-means++. Both solve each step exactly, so
inertia differs only by the rounding of costs to integers and by the local optimum. "gap" is the
certified distance of volmar's last step from the best labels for its means. The other method is
stopped after `MAX_SECONDS`.
"""

import numpy as np
from sklearn.cluster import KMeans, kmeans_plusplus

from benchmarks.rivals import k_means_constrained
from benchmarks.table import Table
from benchmarks.timing import in_turns, time_limit
from volmar import MSPC
from volmar.guidance.guide import Guide

# Rows, features, clusters, and maximum size as a multiple of n / k.
SIZES = (
    (2000, 10, 10, 1.0),
    (2000, 10, 10, 1.25),
    (23_000, 50, 50, 1.0),
    (23_000, 50, 50, 1.25),
)
MAX_SECONDS = 600
MAX_ITER = 300


def run(*, full: bool) -> Table:
    table = Table(("rows", "k", "largest", "method", "seconds", "inertia", "sizes", "gap"))
    missing = k_means_constrained.reason_it_is_missing()
    if missing:
        table.notes.append(f"k-means-constrained is left out: {missing}.")
    for n, d, k, room in SIZES:
        X = make_unequal(n, d, k, seed=0)
        largest = int(np.ceil(room * n / k))
        centers = kmeans_plusplus(X, k, random_state=0)[0]
        calls = {
            "KMeans without limits": lambda X=X, c=centers: (_k_means(X, c), None),
            "Guide.place in k-means": lambda X=X, c=centers, m=largest: limited_k_means(X, c, m),
        }
        if "max_cluster_size" in MSPC().get_params():
            calls["MSPC"] = lambda X=X, k=k, m=largest: (_separation(X, k, m), None)
        if not missing:
            calls[k_means_constrained.NAME] = lambda X=X, c=centers, m=largest: (
                _rival(X, c, m),
                None,
            )
        timings = in_turns(calls, repeats=5 if full else 1, budget=60 if full else 0)
        for name, timing in timings.items():
            labels, gap = timing.value
            if labels is None:
                table.add(f"{n} x {d}", k, largest, name, f"> {MAX_SECONDS}", None, None, None)
                continue
            counts = np.bincount(labels, minlength=k)
            inertia = f"{inertia_of(X, labels, k):.7g}"
            sizes = f"{counts.min()} to {counts.max()}"
            table.add(f"{n} x {d}", k, largest, name, timing.median, inertia, sizes, gap)
    return table


def make_unequal(n, d, k, seed):
    """Return rows of k Gaussians whose sizes are in proportion to 1, 2, ..., k."""
    rng = np.random.default_rng(seed)
    shares = np.arange(1, k + 1) / (k * (k + 1) / 2)
    y = rng.choice(k, n, p=shares)
    return rng.standard_normal((k, d))[y] * 2.0 + rng.standard_normal((n, d))


def limited_k_means(X, centers, largest):
    """Return labels of Lloyd's iteration with a maximum size, and the gap of the last step."""
    n, k = X.shape[0], centers.shape[0]
    guide = Guide(k, np.full(n, -1), high=np.full(k, float(largest)))
    labels = offsets = placed = None
    for _ in range(MAX_ITER):
        placed = guide.place(2.0 * X @ centers.T - (centers**2).sum(axis=1), offsets)
        if labels is not None and np.array_equal(placed.labels, labels):
            break
        labels, offsets = placed.labels, placed.offsets
        counts = np.bincount(labels, minlength=k)
        sums = np.stack([np.bincount(labels, column, k) for column in X.T], axis=1)
        centers = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centers)
    return labels, placed.gap


def inertia_of(X, labels, k):
    """Return the sum of squared distances to the means."""
    return sum(
        float(((rows - rows.mean(axis=0)) ** 2).sum())
        for c in range(k)
        if (rows := X[labels == c]).size
    )


def _k_means(X, centers):
    k = centers.shape[0]
    return KMeans(k, init=centers, n_init=1, max_iter=MAX_ITER, tol=0.0).fit_predict(X)


def _separation(X, k, largest):
    return MSPC(k, max_cluster_size=largest, random_state=0).fit_predict(X)


def _rival(X, centers, largest):
    try:
        with time_limit(MAX_SECONDS):
            return k_means_constrained.fit_predict(X, centers, None, largest, MAX_ITER)
    except TimeoutError:
        return None
