"""Rows of the benchmark of embeddings and text, in float32, with their classes."""

from functools import cache

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer

from reproduction.datasets import data_folder, load

N_TRAINING = 60_000


def news(n_components):
    """Return 20 Newsgroups: TF-IDF with logarithms of the counts, then a truncated SVD."""
    return lambda: (_news_by_svd(n_components), _news()[1])


def digits():
    data = load("digits", scale="unit")
    return data.X.astype(np.float32), data.y


def mnist():
    data = load("mnist", scale="unit")
    return data.X[:N_TRAINING].astype(np.float32), data.y[:N_TRAINING]


def isolet():
    data = load("isolet")
    return data.X.astype(np.float32), data.y


def drawn(source, n_rows):
    """Return a random sample of the rows of a set, the same one in each call."""

    def load_rows():
        X, y = source()
        rows = np.sort(np.random.default_rng(0).choice(len(y), n_rows, replace=False))
        return X[rows], y[rows]

    return load_rows


FULL = {
    "news SVD 100": news(100),
    "news SVD 300": news(300),
    "digits": digits,
    "MNIST 5,000": drawn(mnist, 5000),
    "MNIST 60,000": mnist,
    "isolet": isolet,
}
QUICK = {
    "news SVD 100, 3,000 rows": drawn(news(100), 3000),
    "digits": digits,
    "MNIST 1,000": drawn(mnist, 1000),
}
WITHOUT_FOLDER = ("digits",)


def sets(full):
    """Return the sets that can be loaded, and the names of those that need the data folder."""
    wanted = FULL if full else QUICK
    if data_folder() is not None:
        return wanted, []
    found = {name: wanted[name] for name in WITHOUT_FOLDER}
    return found, [name for name in wanted if name not in found]


def make_groups(n_rows=100_000, n_columns=256, n_groups=100, n_directions=20, seed=0):
    """Return normal groups of unequal size and shape near a subspace of few directions.

    Group g has a share in proportion to 1 / (g + 10). Its mean and its covariance are random in a
    common subspace, with standard deviations from 0.3 to 1.5 along random directions; noise of
    standard deviation 0.1 is added to all columns.
    """
    rng = np.random.default_rng(seed)
    shares = 1.0 / (np.arange(n_groups) + 10.0)
    y = rng.choice(n_groups, n_rows, p=shares / shares.sum())
    basis = np.linalg.qr(rng.normal(size=(n_columns, n_directions)))[0].T
    X = rng.normal(0.0, 0.1, size=(n_rows, n_columns)).astype(np.float32)
    for group in range(n_groups):
        inside = np.flatnonzero(y == group)
        turn = np.linalg.qr(rng.normal(size=(n_directions, n_directions)))[0]
        shape = rng.uniform(0.3, 1.5, n_directions)[:, None] * turn
        mean = rng.normal(0.0, 2.0, n_directions)
        near = rng.normal(size=(inside.size, n_directions)) @ shape + mean
        X[inside] += (near @ basis).astype(np.float32)
    return X, y


@cache
def _news():
    data = load("20news")
    return TfidfTransformer(sublinear_tf=True).fit_transform(data.X.astype(np.float64)), data.y


@cache
def _news_by_svd(n_components):
    svd = TruncatedSVD(n_components, random_state=0)
    return svd.fit_transform(_news()[0]).astype(np.float32)
