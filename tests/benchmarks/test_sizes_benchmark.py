"""Lloyd's iteration with size limits, as in the benchmark of sizes."""

import importlib
import sys

import numpy as np
import pytest
from helpers import ROOT
from sklearn.cluster import kmeans_plusplus


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        del sys.modules[name]


def test_limited_k_means_ends_at_a_fixed_point():
    bench = importlib.import_module("benchmarks.bench_sizes")
    X = bench.make_unequal(300, 3, 4, seed=0)
    centers = kmeans_plusplus(X, 4, random_state=0)[0]
    labels, gap = bench.limited_k_means(X, centers, 80)
    assert np.bincount(labels).max() <= 80
    assert gap <= 1e-8
    means = np.stack([X[labels == c].mean(axis=0) for c in range(4)])
    again, _ = bench.limited_k_means(X, means, 80)
    np.testing.assert_array_equal(again, labels)
    by_hand = ((X - means[labels]) ** 2).sum()
    assert bench.inertia_of(X, labels, 4) == pytest.approx(by_hand)


def test_the_other_package_reaches_the_same_inertia():
    rival = importlib.import_module("benchmarks.rivals.k_means_constrained")
    if rival.reason_it_is_missing():
        pytest.skip(rival.reason_it_is_missing())
    bench = importlib.import_module("benchmarks.bench_sizes")
    X = bench.make_unequal(200, 3, 3, seed=1)
    centers = kmeans_plusplus(X, 3, random_state=0)[0]
    ours = bench.inertia_of(X, bench.limited_k_means(X, centers, 70)[0], 3)
    theirs = bench.inertia_of(X, rival.fit_predict(X, centers, None, 70), 3)
    assert ours == pytest.approx(theirs, rel=0.02)
