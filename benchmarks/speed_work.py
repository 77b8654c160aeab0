"""``python -m benchmarks.speed_work NAME REPEATS``: one piece of work of `bench_speed`, as JSON.

Each piece runs in a separate process: the package of another checkout can then be timed by the
same code, and memory is that of this piece only.
"""

import json
import re
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import KMeans

# Seconds after which no further repeat is started.
BUDGET = 30.0


class Work(NamedTuple):
    """Data, call of volmar and call of the rival (None: the previous version of volmar)."""

    data: Callable[[], Any]
    ours: Callable[[Any], Any]
    rival: Callable[[Any], Any] | None = None
    has_memory: bool = False


def groups(n, d, k, dtype=np.float64):
    """Return rows of k normal groups, about 8 standard deviations apart."""
    rng = np.random.default_rng((n, d, k))
    centres = 6.0 / np.sqrt(d) * rng.standard_normal((k, d))
    X = rng.standard_normal((n, d), dtype=np.float32).astype(dtype, copy=False)
    X += centres.astype(dtype)[rng.integers(k, size=n)]
    return X


def _volmar(name, *args, **params):
    import volmar

    return getattr(volmar, name)(*args, random_state=0, **params)


def _fit(name, *args, **params):
    return lambda X: _volmar(name, *args, **params).fit(X)


def _k_means(k, n_init):
    return lambda X: KMeans(k, n_init=n_init, random_state=0).fit(X)


def _fitted(k, *models):
    """Return fitted models, and a million rows to predict."""
    X = groups(1_000_000, 50, k)
    return [model.fit(X[:20_000]) for model in models], X


def _predict(which):
    return lambda data: data[0][which].predict(data[1])


def _exact_neighbours(X):
    from sklearn.neighbors import NearestNeighbors

    return NearestNeighbors(n_neighbors=10).fit(X).kneighbors()


def _neighbour_graph(n, d):
    from volmar.graphs import density_scaling_similarity

    return density_scaling_similarity(groups(n, d, 2))


def _wide_counts(n=20_000, d=50_000):
    """Return counts of words of two topics, sparse."""
    from scipy import sparse

    rng = np.random.default_rng(0)
    length, topic = 60, rng.integers(2, size=n)
    common = rng.zipf(1.3, size=(n, length)) % d
    own = 1000 * (1 + topic[:, None]) + rng.integers(200, size=(n, length // 6))
    words = np.hstack([common, own])
    words = words.astype(np.int32)  # scikit-learn accepts no others
    numbers = np.repeat(np.arange(n, dtype=np.int32), words.shape[1])
    return sparse.csr_array((np.ones(words.size), (numbers, words.ravel())), shape=(n, d))


def _pair(n, d, k, name, rival, dtype=np.float64, **params):
    return Work(lambda: groups(n, d, k, dtype), _fit(name, k, **params), rival)


WORK = {
    "MSPC k=2, 200 x 10": _pair(200, 10, 2, "MSPC", _k_means(2, 10)),
    "MSPC k=2, 10,000 x 20": _pair(10_000, 20, 2, "MSPC", _k_means(2, 1)),
    "MSPC k=2, 20,000 x 200": _pair(20_000, 200, 2, "MSPC", _k_means(2, 1)),
    "MSPC k=2, 100,000 x 50": _pair(100_000, 50, 2, "MSPC", _k_means(2, 1)),
    "MSPC k=2, 1e6 x 50 f32": _pair(1_000_000, 50, 2, "MSPC", _k_means(2, 1), np.float32),
    "MSPC k=10, 10,000 x 20": _pair(10_000, 20, 10, "MSPC", _k_means(10, 10)),
    "MSPC k=10, 100,000 x 50": _pair(100_000, 50, 10, "MSPC", _k_means(10, 10)),
    "AutoClusterer, five groups, 10,000 x 20": Work(
        lambda: groups(10_000, 20, 5), _fit("AutoClusterer", "auto"), _fit("MSPC", 5)
    ),
    "AutoClusterer, five groups, 100,000 x 50": Work(
        lambda: groups(100_000, 50, 5), _fit("AutoClusterer", "auto"), _fit("MSPC", 5)
    ),
    "MSPC k=2, 120 x 5,000": _pair(120, 5000, 2, "MSPC", _k_means(2, 10)),
    "MSPC k=2, 200 x 20,000": _pair(200, 20_000, 2, "MSPC", _k_means(2, 10)),
    "MSPC k=2, sparse 20,000 x 50,000": Work(_wide_counts, _fit("MSPC", 2), _k_means(2, 10)),
    "CPMMC k=2, 1e6 x 50 f32": _pair(1_000_000, 50, 2, "CPMMC", _k_means(2, 10), np.float32),
    "CPMMC k=10, 100,000 x 50": _pair(100_000, 50, 10, "CPMMC", _k_means(10, 10)),
    "SoftLabelMVC, 100,000 x 16, with neighbours": Work(
        lambda: groups(100_000, 16, 2), _fit("SoftLabelMVC", 2), _exact_neighbours
    ),
    "SoftLabelMVC, given graph of 100,000 x 16": Work(
        lambda: _neighbour_graph(100_000, 16), _fit("SoftLabelMVC", 2, affinity="precomputed")
    ),
    "SoftLabelMVC, 1e6 x 2": Work(lambda: groups(1_000_000, 2, 2), _fit("SoftLabelMVC", 2)),
    "SDPMMC, n = 1,000": Work(lambda: groups(1000, 10, 2), _fit("SDPMMC")),
    "HardLabelMVC, n = 1,000": Work(lambda: groups(1000, 10, 2), _fit("HardLabelMVC")),
    "GMMC, n = 1,000": Work(lambda: groups(1000, 10, 2), _fit("GMMC")),
    "IterSVR, 10,000 x 50": Work(lambda: groups(10_000, 50, 2), _fit("IterSVR", kernel="linear")),
    "LGMMC, 10,000 x 50": Work(lambda: groups(10_000, 50, 2), _fit("LGMMC", kernel="linear")),
    "predict: MSPC k=10, 1e6 x 50": Work(
        lambda: _fitted(10, _volmar("MSPC", 10), KMeans(10, n_init=1, random_state=0)),
        _predict(0),
        _predict(1),
    ),
    "predict: KernelCPMMC k=2, 1e6 x 50": Work(
        lambda: _fitted(2, _volmar("KernelCPMMC", 2, method="nystroem")), _predict(0)
    ),
    "memory beyond X: MSPC, 1e6 x 50": Work(
        lambda: groups(1_000_000, 50, 2), _fit("MSPC", 2), has_memory=True
    ),
    "memory beyond X: CPMMC, 1e6 x 50": Work(
        lambda: groups(1_000_000, 50, 2), _fit("CPMMC", 2), has_memory=True
    ),
}


def _memory(field):
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.search(rf"{field}:\s+(\d+) kB", status)[1])


def _timed(call, data):
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_utime, time.perf_counter()
    call(data)
    user = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
    return user, time.perf_counter() - start


def measured(work: Work, repeats: int) -> dict[str, float]:
    """Return medians of user and wall seconds of volmar and the rival, taken in turns."""
    warnings.simplefilter("ignore")
    data = work.data()
    if work.has_memory:
        work.ours(data[:1000])  # imports
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
        before = _memory("VmRSS")
        work.ours(data)
        return {"ratio": (_memory("VmHWM") - before) / data.nbytes}
    calls = {"ours": work.ours} | ({} if work.rival is None else {"rival": work.rival})
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    begin = time.perf_counter()
    for _ in range(repeats + 1):
        for name, call in calls.items():
            times[name].append(_timed(call, data))
        if time.perf_counter() - begin > BUDGET:
            break
    found = {}
    for name, pairs in times.items():
        counted = pairs[1:] or pairs  # the first warms up
        found[f"{name} user"] = median(pair[0] for pair in counted)
        found[f"{name} wall"] = median(pair[1] for pair in counted)
    if work.rival is not None:
        found["ratio"] = found["ours user"] / max(found["rival user"], 1e-9)
    return found


if __name__ == "__main__":
    print(json.dumps(measured(WORK[sys.argv[1]], int(sys.argv[2]))))
