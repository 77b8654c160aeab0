"""MSPC's time and error against k-means', and its moments pass against the bare product.

Synthetic rows are two Gaussians 4 standard deviations apart along one direction of the whitened
space. The iterations of k-means depend on that direction and on the start, so every repeat draws
new ones. Times are medians, ratios medians of the repeats' ratios, errors means.
"""

from statistics import median

import numpy as np
from sklearn.cluster import KMeans

from benchmarks.table import Table
from benchmarks.timing import in_turns
from reproduction.datasets import data_folder, load
from volmar import MSPC
from volmar.metrics import clustering_error
from volmar.rows.anywhere import as_rows

# Rows, features, and maximum time of MSPC relative to k-means (None: no target).
SIZES = ((100_000, 50, None), (1_000_000, 50, 0.25), (20_000, 200, 0.7))
MOST_FOR_TEN_TIMES_THE_ROWS = 11.0
LEAST_SPEED_OF_MOMENTS = 0.6
MOST_FOR_MNIST = {"gep": 0.2, "mpm": 0.5}


def run(*, full: bool) -> Table:
    times = ("volmar s", "rival s", "volmar / rival")
    errors = ("volmar error %", "rival error %")
    table = Table(("data", "volmar", "rival", *times, *errors, "target"))
    n_draws = 7 if full else 3
    MSPC().fit(make_linear_split(1000, 50, seed=0)[0])  # warms up, as does k-means inside it
    seconds = {}
    for n, d, most in SIZES:
        data = f"linear split {n} x {d}"
        draws = (make_linear_split(n, d, seed) for seed in range(n_draws))
        ours = {"MSPC": (lambda seed: MSPC(random_state=seed), most)}
        seconds[n, d] = _fits(table, data, draws, ours, n_init=1)["MSPC"]
        _moments(table, data, make_linear_split(n, d, seed=0)[0], 51 if full else 9)
    pairs = zip(seconds[1_000_000, 50], seconds[100_000, 50], strict=True)
    ratio = median(more / fewer for more, fewer in pairs)
    verdict = _verdict(ratio, MOST_FOR_TEN_TIMES_THE_ROWS)
    table.notes.append(f"MSPC, 1e6 rows / 1e5 rows of 50 features: {ratio:.1f} times ({verdict}).")
    _mnist(table, n_draws)
    return table


def make_linear_split(n, d, seed):
    """Return rows Q diag(s) z: Q orthogonal, s log-normal, z two Gaussians 4 apart along a u.

    u, Q and s are drawn first, so that they do not depend on n.
    """
    rng = np.random.default_rng(seed)
    u = rng.standard_normal(d)
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    s = rng.lognormal(0.0, 0.5, d)
    y = rng.integers(0, 2, n)
    X = rng.standard_normal((n, d))
    X += np.outer(4.0 * y - 2.0, u / np.linalg.norm(u))
    return X @ (Q * s).T, y


def _fits(table, data, draws, ours, n_init):
    """Add a row per method of volmar (name, constructor and target), against k-means.

    Returns every contender's seconds on each draw.
    """
    rival = f"KMeans (n_init={n_init})"
    makers = {name: make for name, (make, _) in ours.items()}
    makers[rival] = lambda seed: KMeans(2, n_init=n_init, random_state=seed)
    seconds = {name: [] for name in makers}
    errors = {name: [] for name in makers}
    for seed, (X, y) in enumerate(draws):
        calls = {
            name: lambda make=make: make(seed).fit(X).labels_ for name, make in makers.items()
        }
        for name, timing in in_turns(calls, repeats=1, budget=0.0).items():
            seconds[name].append(timing.median)
            errors[name].append(100 * clustering_error(y, timing.value))
    for name, (_, most) in ours.items():
        one, two = seconds[name], seconds[rival]
        ratio = median(mine / theirs for mine, theirs in zip(one, two, strict=True))
        cells = (f"{np.mean(errors[which]):.2f}" for which in (name, rival))
        verdict = None if most is None else _verdict(ratio, most)
        table.add(data, name, rival, median(one), median(two), ratio, *cells, verdict)
    return seconds


def _moments(table, data, X, repeats):
    calls = {"ours": lambda: as_rows(X).moments(), "bare": lambda: X.T @ X}
    timings = in_turns(calls, repeats=repeats, budget=10)
    one, two = timings["ours"].median, timings["bare"].median
    verdict = _verdict(one / two, 1 / LEAST_SPEED_OF_MOMENTS)
    table.add(data, "moments", "X.T @ X", one, two, one / two, None, None, verdict)


def _mnist(table, repeats):
    if data_folder() is None:
        table.notes.append("MNIST is left out: it needs the folder of data files (VOLMAR_DATA).")
        return
    data = load("mnist-3v8", scale="unit")
    start = KMeans(2, n_init=1, random_state=0).fit_predict(data.X)
    ours = {
        f"MSPC ({solver})": (lambda _, solver=solver: MSPC(solver=solver, init=start), most)
        for solver, most in MOST_FOR_MNIST.items()
    }
    name = "MNIST 3 and 8, {} x {}".format(*data.X.shape)
    _fits(table, name, [(data.X, data.y)] * repeats, ours, n_init=10)
    table.notes.append("On MNIST MSPC starts from one k-means' labels, whose time is not counted.")


def _verdict(ratio, most):
    return f"at most {most:.3g}: {'met' if ratio <= most else 'missed'}"
