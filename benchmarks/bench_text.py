"""Text: pipelines on word counts of 20 Newsgroups, ARI and CPU seconds.

Random rows of the word counts, 20 clusters, no labels. Rows are the raw counts, their TF-IDF
(logarithms of the counts, unit norm), 100 singular vectors of these, and the latter scaled to unit
norm. Cells are the mean adjusted Rand index over the seeds, and the median CPU seconds of a fit
with the steps before it, except that KMeans gets transformed rows.
"""

import time
import warnings
from functools import partial
from statistics import median

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import volmar
from benchmarks.rivals import kmeans
from benchmarks.table import Table
from reproduction.datasets import data_folder, load

N_CLUSTERS = 20
METHODS = (volmar.CPMMC, volmar.MSPC, volmar.SoftLabelMVC)


def run(*, full: bool) -> Table:
    names = [method.__name__ for method in METHODS]
    table = Table(("rows", kmeans.NAME, *names))
    if data_folder() is None:
        table.notes.append("Not run: the folder of data files (VOLMAR_DATA) is missing.")
        return table
    counts, y = _counts(6000 if full else 1500)
    weights, vectors = TfidfTransformer(sublinear_tf=True), TruncatedSVD(100, random_state=0)
    weighted = weights.fit_transform(counts)
    reduced = vectors.fit_transform(weighted)
    seeds = range(2)
    forms = {
        "raw counts": (None, _ours(counts)),
        "TF-IDF, sparse": (weighted, _ours(counts, weights)),
        "singular vectors of TF-IDF": (reduced, None),
        "singular vectors of TF-IDF, unit norm": (
            Normalizer().fit_transform(reduced),
            _ours(counts, weights, vectors, Normalizer()),
        ),
    }
    for form, (rows, ours) in forms.items():
        calls = [None if rows is None else _by_k_means(rows), *(ours or [None] * len(METHODS))]
        table.add(form, *(_cell(call, y, seeds) if call else "" for call in calls))
    n, d = counts.shape
    table.notes.append(f"{n:,} documents, {d:,} words; ARI, CPU seconds.")
    return table


def _counts(n_rows):
    data = load("20news")
    rows = np.sort(np.random.default_rng(0).choice(len(data.y), n_rows, replace=False))
    return data.X[rows].astype(np.float64), data.y[rows]


def _by_k_means(X):
    return lambda seed: kmeans.fit_predict(X, N_CLUSTERS, seed)


def _ours(X, *steps):
    return [partial(_labels, X, method, steps) for method in METHODS]


def _labels(X, method, steps, seed):
    steps = [step.set_params(random_state=seed) if "SVD" in repr(step) else step for step in steps]
    return make_pipeline(*steps, method(N_CLUSTERS, random_state=seed)).fit_predict(X)


def _cell(call, y, seeds):
    scores, seconds = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            start = time.process_time()
            labels = call(seed)
            seconds.append(time.process_time() - start)
            scores.append(adjusted_rand_score(y, labels))
    return f"{np.mean(scores):.2f}, {median(seconds):.1f} s"
