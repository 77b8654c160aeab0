"""Fits to a dask array on two worker processes, against one thread in memory, in the same run.

Rows are two Gaussians 4 standard deviations apart along one direction of the whitened space, or
ten about random centres (of which two are about 6 standard deviations apart), made block by block.
"of memory" is the time over that of the same estimator on one array in this
process (MSPC with its default scan there, which sorts). "peak" is the largest resident memory that
a worker ever had, and "of its share" that over the data it holds. A rival's errors are of one
start. Rows that are made anew in every pass are never in memory at once.
"""

import re
import time
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.rivals import dask_ml_kmeans
from benchmarks.table import Table
from volmar import CPMMC, MSPC, SKMMC, KernelCPMMC
from volmar.distributed import report_passes
from volmar.metrics import clustering_error

N_WORKERS = 2
HELD = (2_000_000, 50, 20)  # rows, features, blocks
MADE_ANEW = (20_000_000, 20, 100)
MOST_OF_MEMORY = {
    "MSPC": 1.2,
    "CPMMC": 2.0,
    "MSPC, k = 10": 1.5,
    "MSPC, k = auto": 1.5,
    "CPMMC, k = 10": 1.5,
}
MOST_OF_SHARE = 2.5
ESTIMATED = (1e9, 100, 128)  # rows, features, cores


def run(*, full: bool) -> Table:
    from distributed import Client, LocalCluster

    table = Table(
        ("data", "method", "seconds", "of memory", "passes", "error %", "peak MB", "of its share")
    )
    settings = {"n_workers": N_WORKERS, "threads_per_worker": 1, "dashboard_address": ":0"}
    for n_groups in (2, 10):
        with LocalCluster(**settings) as cluster, Client(cluster) as client:
            _held(table, client, n_groups, full=full)
    with LocalCluster(**settings) as cluster, Client(cluster) as client:
        _made_anew(table, client, full=full)
    return table


def block(n, d, k, number):
    """Return rows and labels of one block of k groups, which depend on its number."""
    rng = np.random.default_rng(0)
    u = rng.standard_normal(d)
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    s = rng.lognormal(0.0, 0.5, d)
    centers = np.array([[-2.0], [2.0]]) * u / np.linalg.norm(u)
    if k > 2:
        centers = 6.0 / np.sqrt(2 * d) * rng.standard_normal((k, d))
    rng = np.random.default_rng((0, number))
    y = rng.integers(0, k, n)
    return (rng.standard_normal((n, d)) + centers[y]) @ (Q * s).T, y


def rows_of_block(n, d, k, number):
    return block(n, d, k, number)[0]


def labels_of_block(n, d, k, number):
    return block(n, d, k, number)[1]


def in_blocks(make, n, d, n_blocks, tail, k=2):
    """Return a dask array whose blocks are made where they are needed."""
    import dask
    import dask.array as da

    size = n // n_blocks
    made = [dask.delayed(make)(size, d, k, i) for i in range(n_blocks)]
    dtype = np.float64 if tail else np.int64
    return da.concatenate([da.from_delayed(one, (size, *tail), dtype) for one in made])


def _makers(k):
    """Return the estimators that are timed, by name."""
    if k > 2:
        return {
            f"MSPC, k = {k}": lambda: MSPC(k, random_state=0),
            "MSPC, k = auto": lambda: MSPC("auto", random_state=0),
            f"CPMMC, k = {k}": lambda: CPMMC(k, random_state=0),
        }
    return {
        "MSPC": lambda: MSPC(random_state=0),
        "MSPC, solver='mpm'": lambda: MSPC(solver="mpm", random_state=0),
        "CPMMC": lambda: CPMMC(random_state=0),
    }


def _held(table, client, k, *, full):
    """Rows of k groups that the workers hold, and the same rows here."""
    from distributed import wait

    n, d, n_blocks = HELD
    name = f"{n:.0e} x {d}, held" if k == 2 else f"{n:.0e} x {d}, {k} groups, held"
    X = in_blocks(rows_of_block, n, d, n_blocks, (d,), k).persist()
    y = in_blocks(labels_of_block, n, d, n_blocks, (), k).compute()
    wait(X)
    here = np.concatenate([rows_of_block(n // n_blocks, d, k, i) for i in range(n_blocks)])
    makers = _makers(k)
    if full and k == 2:
        makers["KernelCPMMC, Nyström 100"] = lambda: KernelCPMMC(method="nystroem", random_state=0)
        makers["SKMMC"] = lambda: SKMMC(random_state=0)
    repeats = (5 if full else 3) if k == 2 else 1 + 2 * full
    costs = {}
    for key, make in makers.items():
        make().fit(here[:5000])  # warms up
        seconds, in_memory, passes = [], [], []
        for _ in range(repeats if key in MOST_OF_MEMORY else 1):
            in_memory.append(_timed(lambda: make().fit(here))[0])
            passes.clear()
            with report_passes(passes.append):
                took, model = _timed(lambda: make().fit(X))
            seconds.append(took)
        ratio = median(a / b for a, b in zip(seconds, in_memory, strict=True))
        error = 100 * clustering_error(y, model.labels_.compute())
        table.add(name, key, median(seconds), ratio, len(passes), error, *_memory(client, n, d))
        if key in MOST_OF_MEMORY:
            costs[key] = list(passes)
            verdict = "met" if ratio <= MOST_OF_MEMORY[key] else "MISSED"
            table.notes.append(
                f"{key}: {ratio:.2f} times the time in memory (at most "
                f"{MOST_OF_MEMORY[key]:g}: {verdict})."
            )
    share = _memory(client, n, d)[1]
    verdict = "met" if share <= MOST_OF_SHARE else "MISSED"
    table.notes.append(
        f"Largest memory of a worker over its share of the rows of {k} groups, before any rival: "
        f"{share:.2f} (at most {MOST_OF_SHARE:g}: {verdict})."
    )
    table.notes += [_estimate(key, passes, n, d) for key, passes in costs.items()]
    if k > 2:
        return
    if not dask_ml_kmeans.available():
        table.notes.append("dask-ml is not installed: no rival.")
        return
    for init in ("k-means||", "random"):
        took, model = _timed(lambda: dask_ml_kmeans.fit(X, 2, 0, init))
        error = 100 * clustering_error(y, model.labels_.compute())
        rival = f"{dask_ml_kmeans.NAME}, {init}"
        table.add(name, rival, took, None, None, error, *_memory(client, n, d))


def _made_anew(table, client, *, full):
    """Rows that no machine holds: every pass makes them again, block by block."""
    n, d, n_blocks = MADE_ANEW
    few = {"MSPC", "MSPC, k = auto"}
    for k in (2, 10):
        name = f"{n:.0e} x {d}, {'' if k == 2 else f'{k} groups, '}made anew in each pass"
        X = in_blocks(rows_of_block, n, d, n_blocks, (d,), k)
        y = in_blocks(labels_of_block, n, d, n_blocks, (), k).astype(np.int8)
        for key, make in _makers(k).items():
            if key not in few and not (full and "mpm" not in key):
                continue
            passes = []
            with report_passes(passes.append):
                took, model = _timed(lambda: make().fit(X))
            peak = _memory(client, n, d)  # of the fit: the error is not part of it
            error = 100 * clustering_error(y.compute(), model.labels_.astype(np.int8).compute())
            table.add(name, key, took, None, len(passes), error, peak[0], peak[1])


def _estimate(key, passes, n, d):
    """Return what the measured passes would cost with far more rows, on far more cores."""
    rows, features, cores = ESTIMATED
    # Second moments grow with the square of d (those of the mean alone do not, and count so here
    # all the same); all other figures with d.
    squared = sum(one.seconds for one in passes if "MomentSum" in one.figures)
    plain = sum(one.seconds for one in passes) - squared
    growth = features / d
    total = N_WORKERS * (squared * growth**2 + plain * growth) * rows / n / cores
    size = rows * features * 8
    return (
        f"{key} at {rows:.0e} x {features} by these times: {len(passes)} passes over "
        f"{size / 1e12:.1f} TB, {len(passes) * size / 1e12:.0f} TB read in all; {total / 60:.1f} "
        f"minutes on {cores} cores that hold the rows, or more where reading takes longer."
    )


def _timed(call):
    start = time.perf_counter()
    value = call()
    return time.perf_counter() - start, value


def _peak():
    # Not getrusage: its maximum includes the process that this one was forked from.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])


def _memory(client, n, d):
    peak = max(client.run(_peak).values())
    return peak / 1e6, peak / (n * d * 8 / N_WORKERS)
