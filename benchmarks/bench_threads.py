"""Every clusterer with the default number of threads against itself with one: wall and CPU time.

Times of a fit, and of predictions for 20,000 rows. Both take turns in one process. The target is
1: a fit must not be slower than on one thread because BLAS threads wait for each other. Threads
that wait in loops increase the CPU time.
"""

import resource
import time
import warnings
from functools import partial

import numpy as np
from joblib import cpu_count
from threadpoolctl import threadpool_limits

import volmar
from benchmarks.table import Table
from volmar.datasets import make_blobs

REPEATS, BUDGET = 7, 6.0
PREDICTED = 20_000
# Rows and columns. Methods not listed here need all pairs of rows, and get fewer rows.
PAIRS = (400, 10)
SIZES = {
    "CPMMC": (50_000, 20),
    "DiscriminativeKMeans": (5_000, 20),
    "GMMC": (100, 10),
    "HardLabelMVC": (60, 10),
    "LDAKMeans": (5_000, 20),
    "MSPC": (50_000, 20),
    "MultivariateMMC": (2_000, 20),
    "SDPMMC": (60, 10),
    "SKMMC": (2_000, 20),
    "SoftLabelMVC": (2_000, 10),
}
# Clusterers that find several clusters by another algorithm than two; they get fewer rows.
SEVERAL, ROWS_OF_SEVERAL = ("CPMMC", "MSPC"), (10_000, 20)


def run(*, full: bool) -> Table:
    n_threads = cpu_count()
    table = Table(
        (
            "clusterer",
            "rows",
            "fit, one thread, s",
            "fit, default / one: wall",
            "CPU",
            "predict, default / one: wall",
            "CPU",
        )
    )
    calls = [(name, 2) for name in volmar.CLUSTERERS] + [(name, 5) for name in SEVERAL]
    for name, k in calls:
        n, d = SIZES.get(name, PAIRS) if k == 2 else ROWS_OF_SEVERAL
        X, _ = make_blobs(n, centers=k, n_features=d, random_state=0)
        new, _ = make_blobs(PREDICTED, centers=k, n_features=d, random_state=1)
        model = getattr(volmar, name)(k, random_state=0)
        seconds, *ratios = _compared(partial(model.fit, X), n_threads, full=full)
        _, *of_predict = _compared(partial(model.predict, new), n_threads, full=full)
        cells = (f"{ratio:.2f}" for ratio in (*ratios, *of_predict))
        table.add(f"{name}({k})", f"{n} x {d}", seconds, *cells)
    table.notes.append(f"Ratios of the fastest of the repeats; {n_threads} threads.")
    return table


def _compared(call, n_threads, *, full):
    """Return seconds with one thread, and wall and CPU times with several relative to one."""
    one, several = _in_turns(call, n_threads, 2 if full else 1)
    return float(np.median(one[:, 0])), *several.min(axis=0) / one.min(axis=0)


def _in_turns(call, n_threads, scale):
    """Return wall and CPU seconds of the repeats with one thread and with several."""
    taken = {1: [], n_threads: []}
    begin = time.perf_counter()
    for repeat in range(scale * REPEATS + 1):
        for threads, seconds in taken.items():
            with threadpool_limits(threads), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                wall, cpu = time.perf_counter(), _cpu_seconds()
                call()
                seconds.append((time.perf_counter() - wall, _cpu_seconds() - cpu))
        if repeat > 1 and time.perf_counter() - begin > scale * BUDGET:
            break
    # The first round warms caches and imports.
    return [np.array(seconds[1:]) for seconds in taken.values()]


def _cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
