"""Models that accept rows in blocks, and rows for them."""

from __future__ import annotations

import dask.array as da
import numpy as np

import volmar
from helpers.blocks import cut_up
from volmar import CPMMC, MSPC, KernelCPMMC
from volmar.table_clusterer.estimator import clusterer_names

CHUNKINGS = [(1100,), (400,), (0, 537, 1, 562)]


def two_humps(n=1100, d=4, seed=0, dtype=np.float64):
    """Two clusters along one feature of several, on different scales."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.4
    X = rng.normal(size=(n, d))
    X[:, 1] += 4.0 * y
    return (X * np.arange(1, d + 1) + 5.0).astype(dtype), y.astype(int), rng


def in_blocks(X, sizes=(400,)):
    return da.from_array(X, chunks=(cut_up(len(X), sizes), X.shape[1]))


X, y, rng = two_humps()
FAR_APART = X + 30.0 * y[:, None]
WEIGHTS = rng.integers(0, 3, len(X)).astype(float)

MODELS = {
    "gep": MSPC(random_state=0, scan="histogram"),
    "mpm": MSPC(random_state=0, scan="histogram", solver="mpm", tol=0),
    "eig": MSPC(solver="eig"),
    "gep from labels": MSPC(scan="histogram", init=y),
    "rbf": MSPC(random_state=0, scan="histogram", kernel="rbf"),
    "CPMMC": CPMMC(random_state=0),
    "CPMMC C=10": CPMMC(random_state=0, C=10, tol=0.1),
    "CPMMC fixed": CPMMC(random_state=0, threshold="fixed"),
    "CPMMC paper": CPMMC(random_state=0, init=y, mode="paper"),
    "landmarks": KernelCPMMC(method="nystroem", n_landmarks=15, random_state=0),
}
# AutoClusterer is fitted to a sample, and predicts blocks in a TableClusterer.
CLUSTERERS = [name for name in clusterer_names() if name != "AutoClusterer"]
TAKE_BLOCKS = {name for name in CLUSTERERS if getattr(volmar, name)._takes_blocks}
