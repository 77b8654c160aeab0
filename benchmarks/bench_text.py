"""Text: what metric="cosine" makes of word counts of 20 Newsgroups, ARI and CPU seconds.

Random rows of the word counts, 20 clusters, no labels. Rows are the raw counts, their TF-IDF
(logarithms of the counts, unit norm), or the counts with ``metric="cosine"``, which reduces them
to 100 singular vectors or, with ``text_components=None``, keeps them sparse. KMeans gets TF-IDF
rows, their singular vectors, and the rows that ``metric="cosine"`` makes of the counts. Cells are
the mean adjusted Rand index over the seeds, and the median CPU seconds of a fit.
"""

import time
import warnings
from statistics import median

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import adjusted_rand_score

import volmar
from benchmarks.rivals import kmeans
from benchmarks.table import Table
from volmar.datasets import data_folder, load
from volmar.rows import fit_row_map

N_CLUSTERS = 20
METHODS = (volmar.CPMMC, volmar.MSPC, volmar.SoftLabelMVC)


def run(*, full: bool) -> Table:
    names = [method.__name__ for method in METHODS]
    table = Table(("rows", kmeans.NAME, *names))
    if data_folder() is None:
        table.notes.append("Not run: the folder of data files (VOLMAR_DATA) is missing.")
        return table
    counts, y = _counts(6000 if full else 1500)
    weighted = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    reduced = TruncatedSVD(100, random_state=0).fit_transform(weighted)
    mapped = fit_row_map(counts, text_components="auto").transform(counts)
    seeds = range(2)
    forms = {
        "raw counts": (None, _ours(counts)),
        "TF-IDF, sparse": (weighted, _ours(weighted)),
        "singular vectors of TF-IDF": (reduced, None),
        'counts, metric="cosine"': (mapped, _ours(counts, metric="cosine")),
        'counts, metric="cosine", text_components=None': (
            None,
            _ours(counts, metric="cosine", text_components=None),
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


def _ours(X, **settings):
    return [
        lambda seed, method=method: method(N_CLUSTERS, random_state=seed, **settings).fit_predict(
            X
        )
        for method in METHODS
    ]


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
