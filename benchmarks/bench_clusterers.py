"""Two clusters on small data, every clusterer and every rival: error and time.

No method uses labels, and all have their default settings. Errors are means over the seeds of
data and methods, times the median ratio over all of them.
"""

import warnings

import numpy as np

import volmar
from benchmarks.rivals import ALL, kmeans
from benchmarks.table import Table
from benchmarks.timing import in_turns
from reproduction.datasets import load
from volmar.datasets import make_two_circles, make_two_gaussians, make_two_moons
from volmar.metrics import clustering_error
from volmar.table_clusterer.estimator import clusterer_names

# Too slow here; bench_elliptope and bench_gmmc measure them.
SEMI_DEFINITE = frozenset({"GMMC", "HardLabelMVC", "SDPMMC"})


def run(*, full: bool) -> Table:
    n_seeds = 10 if full else 5
    sets = _data(1000 if full else 300)
    errors, ratios = {}, {}
    for name, draw in sets.items():
        for seed in range(n_seeds):
            X, y = draw(seed)
            timings = in_turns(_contenders(X, seed), repeats=2, budget=30)
            base = timings[kmeans.NAME].median
            for method, timing in timings.items():
                errors.setdefault((method, name), []).append(clustering_error(y, timing.value))
                ratios.setdefault(method, []).append(timing.median / base)
    table = Table(("method", *(f"{name}, error %" for name in sets), "time / KMeans"))
    for method, values in ratios.items():
        cells = (f"{100 * np.mean(errors[method, name]):.1f}" for name in sets)
        table.add(method, *cells, f"{np.median(values):.1f}")
    return table


def _data(n):
    def digits(seed):
        bunch = load("digits-3v8", n_samples=300, realization=seed + 1)
        return bunch.X, bunch.y

    return {
        "two moons": lambda seed: make_two_moons(n, random_state=seed),
        "two circles": lambda seed: make_two_circles(n, random_state=seed),
        "two gaussians": lambda seed: make_two_gaussians(n, random_state=seed),
        "digits 3 and 8": digits,
    }


def _contenders(X, seed):
    calls = {
        rival.NAME: lambda rival=rival: _quiet(rival.fit_predict, X, 2, seed)
        for rival in ALL
        if rival.available()
    }
    for name in clusterer_names():
        if name not in SEMI_DEFINITE:
            model = getattr(volmar, name)(random_state=seed)
            calls[name] = lambda model=model: _quiet(model.fit_predict, X)
    return calls


def _quiet(call, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*arguments)
