"""Two classes without labels: errors on pairs of multi-class sets, and on generic two-class sets.

Rows are standardised, constant features dropped, at most 1,000 rows per task; no method uses
labels. Errors are means in per cent. Times are CPU times relative to k-means, medians over tasks.
"""

import time
import warnings
from itertools import combinations

import numpy as np
from sklearn.cluster import AgglomerativeClustering, SpectralClustering
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from benchmarks.rivals import kmeans, minimum_density
from benchmarks.table import Table
from reproduction.datasets import data_folder, load
from volmar import CPMMC, MSPC
from volmar.metrics import clustering_error

MULTI_CLASS = ("letter", "satellite", "usps", "mnist", "isolet", "digits")
TWO_CLASS = (
    "ionosphere",
    "australian",
    "diabetes",
    "heart-statlog",
    "german",
    "spam",
    "breast",
    "house-votes",
    "clean1",
    "haberman",
    "liver-disorders",
)
WITHOUT_FOLDER = {"digits"}
MOST_ROWS = 1000
TARGET = 0.75
OURS = ("MSPC", "MSPC (mpm)", "CPMMC")


def run(*, full: bool) -> Table:
    n_pairs = 20 if full else 8
    pairs, skipped = _all_sets(MULTI_CLASS, lambda X, y: class_pairs(X, y, n_pairs))
    generic, also = _all_sets(
        TWO_CLASS, lambda X, y: [sampled_task(X, y, np.random.default_rng(0))]
    )
    table, best = _table(pairs)
    if skipped + also:
        names = ", ".join(skipped + also)
        table.notes.append(
            f"Left out because the folder of data files (VOLMAR_DATA) is missing: {names}."
        )
    if generic:
        beside, best_beside = _table(generic)
        table.notes += ["Generic two-class sets, the same methods:", "", beside.render()]
        table.notes += ["", f"There, {best_beside}."]
    table.notes.append(f"On class pairs (at most {n_pairs} per set), {best} (target {TARGET}).")
    return table


def _all_sets(names, tasks_of):
    """Return errors and CPU times of every method on every set, and the sets left out."""
    results, skipped = {}, []
    for name in names:
        if data_folder() is None and name not in WITHOUT_FOLDER:
            skipped.append(name)
            continue
        data = load(name, missing="mean" if name == "house-votes" else None)
        results[name] = [_measure(X, y) for X, y in tasks_of(data.X, data.y)]
    return results, skipped


def class_pairs(X, y, n_pairs):
    rng = np.random.default_rng(0)
    every = list(combinations(np.unique(y), 2))
    for i in np.sort(rng.permutation(len(every))[:n_pairs]):
        rows = np.isin(y, every[i])
        yield sampled_task(X[rows], y[rows], rng)


def sampled_task(X, y, rng):
    rows = rng.permutation(len(y))[:MOST_ROWS]
    X = X[rows].astype(np.float64)
    return StandardScaler().fit_transform(X[:, np.ptp(X, axis=0) > 0]), y[rows]


def _measure(X, y):
    """Return the error and the CPU seconds of every method."""
    measured = {}
    for name, fit_predict in _methods().items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = time.process_time()
            labels = fit_predict(X)
            seconds = time.process_time() - start
        measured[name] = (clustering_error(y, labels), seconds)
    return measured


def _methods():
    def mixture(covariance_type):
        return GaussianMixture(
            2, covariance_type=covariance_type, reg_covar=1e-3, random_state=0
        ).fit_predict

    ours, ours_too, margin = OURS
    return {
        kmeans.NAME: lambda X: kmeans.fit_predict(X, 2, 0),
        "GaussianMixture (full)": mixture("full"),
        "GaussianMixture (tied)": mixture("tied"),
        "SpectralClustering (10 neighbours)": SpectralClustering(
            2, affinity="nearest_neighbors", n_neighbors=10, random_state=0
        ).fit_predict,
        "AgglomerativeClustering (Ward)": AgglomerativeClustering(2).fit_predict,
        minimum_density.NAME: lambda X: minimum_density.fit_predict(X, 2, 0),
        ours: MSPC(random_state=0).fit_predict,
        ours_too: MSPC(solver="mpm", random_state=0).fit_predict,
        margin: CPMMC(random_state=0).fit_predict,
    }


def _table(results):
    """Return the table of some sets, and a comparison of MSPC with the best peer."""
    table = Table(("method", *(f"{name} %" for name in results), "mean of sets", "CPU / KMeans"))
    means = {}
    for method in _methods():
        errors = [100 * np.mean([task[method][0] for task in tasks]) for tasks in results.values()]
        means[method] = np.mean(errors)
        ratios = [t[method][1] / t[kmeans.NAME][1] for tasks in results.values() for t in tasks]
        cells = (f"{error:.1f}" for error in (*errors, means[method]))
        table.add(method, *cells, f"{np.median(ratios):.2f}")
    peer = min(means.keys() - set(OURS), key=means.get)
    ratio = means[OURS[0]] / means[peer]
    return table, f"{OURS[0]}'s mean error is {ratio:.2f} of the best peer's, {peer}"
