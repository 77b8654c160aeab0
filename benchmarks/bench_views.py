"""Several views of the same rows: adjusted Rand index with `views`, and without.

"best view" is the better of the two views alone, chosen by the classes; "concatenation" has all
columns as they are. Alternatives that are not part of the library: for `KernelCPMMC` the
arithmetic mean of the views' Gaussian kernels, for `MSPC` one ridge discriminant per view, with
labels by the sum of their scores, started from k-means. Means over seeds.
"""

import warnings
from itertools import pairwise

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import rbf_kernel

from benchmarks.table import Table
from volmar import CPMMC, MSPC, KernelCPMMC
from volmar.datasets import data_folder, load
from volmar.rows import fit_view_map

# Maximum number of rows, and that of KernelCPMMC, whose time is quadratic.
N_ROWS, N_QUICK, N_KERNEL = 2000, 600, 1000
STEPS = 60


def run(*, full: bool) -> Table:
    table = Table(("views", "method", "best view", "concatenation", "views=", "alternative"))
    n, seeds = (N_ROWS, (0, 1)) if full else (N_QUICK, (0,))
    makers = dict(SETS)
    if data_folder() is None:
        table.notes.append("MNIST is left out: it needs the folder of data files (VOLMAR_DATA).")
        makers = {name: make for name, make in SETS.items() if "MNIST" not in name}
    for name, make in makers.items():
        views, y = make(n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for method, (fit, alternative, most) in METHODS.items():
                few = [view[:most] for view in views]
                table.add(name, method, *_scores(few, y[:most], fit, alternative, seeds))
    table.notes.append(
        f"At most {n} rows ({min(n, N_KERNEL)} for KernelCPMMC), the true number of clusters, "
        f"seeds {seeds}."
    )
    return table


def _scores(views, y, fit, alternative, seeds):
    k, X = np.unique(y).size, np.hstack(views)
    ends = np.cumsum([0] + [view.shape[1] for view in views])
    groups = [slice(a, b) for a, b in pairwise(ends)]

    def mean(labels_of):
        return f"{np.mean([adjusted_rand_score(y, labels_of(seed)) for seed in seeds]):.2f}"

    best = max(mean(lambda seed, view=view: fit(k, view, seed)) for view in views)
    plain, ours = mean(lambda s: fit(k, X, s)), mean(lambda s: fit(k, X, s, views=groups))
    other = None if alternative is None else mean(lambda s: alternative(views, k, s))
    return best, plain, ours, other


def mean_of_kernels(views, k, seed):
    """Return labels by the mean of the views' Gaussian kernels, each with its own width."""
    K = np.mean([rbf_kernel(view, gamma=1.0 / view.var(axis=0).sum()) for view in views], axis=0)
    return KernelCPMMC(k, kernel="precomputed", random_state=seed).fit_predict(K)


def tied_discriminants(views, k, seed, reg=1.0):
    """Return labels by the sum of the scores of one ridge discriminant per view."""
    X = np.hstack(views)
    ends = np.cumsum([view.shape[1] for view in views])
    groups = np.split(np.arange(X.shape[1]), ends[:-1])
    same = fit_view_map(X, groups, lambda _: None).transform(X)
    labels = KMeans(k, n_init=10, random_state=seed).fit_predict(same)
    scaled = []
    for view in views:
        deviation = view.std(axis=0)
        kept = deviation > 0
        scaled.append((view - view.mean(axis=0))[:, kept] / deviation[kept])
    for _ in range(STEPS):
        scores = sum(_discriminants(Z, labels, k, reg) for Z in scaled)
        new = np.argmax(scores, axis=1)
        if np.mean(new != labels) < 1e-3 or np.unique(new).size < k:
            break
        labels = new
    return labels


def _discriminants(Z, labels, k, reg):
    means = np.stack([Z[labels == j].mean(axis=0) for j in range(k)])
    within = Z - means[labels]
    R = within.T @ within / len(Z) + reg * np.eye(Z.shape[1])
    directions = np.linalg.solve(R, means.T)
    return Z @ directions - 0.5 * (means * directions.T).sum(axis=1)


def one_of_noise(n):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 4
    first = 1.32 * rng.normal(size=(4, 10))[y] + rng.normal(size=(n, 10))
    return [first, rng.normal(size=(n, 1000))], y


def two_weak(n):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 4
    first = rng.normal(size=(4, 10))[y] + rng.normal(size=(n, 10))
    second = 0.21 * rng.normal(size=(4, 200))[y] + rng.normal(size=(n, 200))
    return [first, 50.0 * second], y


def digits(n):
    data = load_digits()
    spectra = np.abs(np.fft.fft2(data.images))[:, :5, :]
    return [data.data[:n], spectra.reshape(len(spectra), -1)[:n]], data.target[:n]


def halves(n):
    images, y = _mnist(n)
    return [images[:, :, :14].reshape(n, -1), images[:, :, 14:].reshape(n, -1)], y


def gradients(n):
    """Return pixels, and sums of gradient lengths by six directions in cells of 4 x 4 pixels."""
    images, y = _mnist(n)
    down, right = np.gradient(images, axis=(1, 2))
    lengths, angles = np.hypot(right, down), np.mod(np.arctan2(down, right), np.pi)
    bins = np.minimum((angles / np.pi * 6).astype(int), 5)
    sums = [
        (lengths * (bins == b)).reshape(n, 7, 4, 7, 4).sum(axis=(2, 4)).reshape(n, -1)
        for b in range(6)
    ]
    return [images.reshape(n, -1), np.hstack(sums)], y


def _mnist(n):
    data = load("mnist")
    chosen = np.random.default_rng(0).permutation(data.y.size)[:n]
    return np.asarray(data.X[chosen], dtype=np.float64).reshape(n, 28, 28) / 255.0, data.y[chosen]


def _margin(k, X, seed, **params):
    return CPMMC(k, random_state=seed, **params).fit_predict(X)


def _kernel_margin(k, X, seed, **params):
    return KernelCPMMC(k, gamma="scale", random_state=seed, **params).fit_predict(X)


def _separation(k, X, seed, **params):
    return MSPC(k, random_state=seed, **params).fit_predict(X)


SETS = {
    "10 columns, and 1000 of noise": one_of_noise,
    "two weak views, 10 and 200 columns": two_weak,
    "digits: pixels, Fourier magnitudes": digits,
    "MNIST: left half, right half": halves,
    "MNIST: pixels, gradients": gradients,
}
METHODS = {
    "CPMMC": (_margin, None, None),
    "KernelCPMMC": (_kernel_margin, mean_of_kernels, N_KERNEL),
    "MSPC": (_separation, tied_discriminants, None),
}
