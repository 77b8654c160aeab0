"""Run the cells of an experiment, optionally in parallel, and store each when complete."""

from __future__ import annotations

import os
import platform
import re
import signal
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import version
from multiprocessing import active_children, connection, get_context, parent_process
from threading import Thread
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.metrics import normalized_mutual_info_score, rand_score
from sklearn.utils import get_tags
from threadpoolctl import threadpool_limits

import volmar
from reproduction import datasets
from reproduction.experiment import Cell
from reproduction.measures import take_measures
from reproduction.store import NO_DATA, CellResult, Store
from volmar import metrics
from volmar.cli.signals import without_interrupts
from volmar.graphs.graph import make_similarity

# Number of queued cells per worker, sufficient to keep it busy.
QUEUE = 4


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the versions of volmar and of its numerical dependencies."""
    packages = {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    return {"volmar": volmar.__version__, "python": platform.python_version(), **packages}


def run_cell(cell: Cell) -> CellResult:
    """Run one cell on one thread; an error is recorded as its status, not raised."""
    start = time.process_time()

    def failed(error: Exception, where: str = "") -> CellResult:
        status = f"{where}{type(error).__name__}: {error}"
        return CellResult(cell, None, time.process_time() - start, status, versions())

    data, missing = _load(cell.dataset, tuple(sorted(cell.sampling.items())))
    if missing is not None:
        return failed(missing, NO_DATA)
    start = time.process_time()
    with threadpool_limits(1), warnings.catch_warnings():
        # Warnings, for example of components of a graph, concern the data, not the run.
        warnings.simplefilter("ignore")
        try:
            X = data.X
            parameters = resolved(cell.parameters, X.shape[0])
            model = find_estimator(cell.estimator)(**parameters, random_state=cell.seed)
            if issparse(X) and not get_tags(model).input_tags.sparse:
                X = X.toarray()  # the comparison methods take dense rows only
            if cell.similarity is not None:
                X = make_similarity(**cell.similarity).build(X)[0]
            labels = model.fit(X).labels_
            seconds = time.process_time() - start
            metric = partial(find_metric(cell.metric), **cell.metric_params)
            value = float(metric(data.y, labels))
            measures = take_measures(model, cell.measures, data.y, metric)
        except Exception as error:
            # No error of a single cell may end a run of hours.
            return failed(error)
    status = model.result_.status.name.lower() if hasattr(model, "result_") else "done"
    return CellResult(cell, value, seconds, status, versions(), measures)


def resolved(parameters: Mapping[str, Any], n: int) -> dict[str, Any]:
    """Replace values such as "5/n" by numbers: papers bound sums, estimators use means."""
    found = {}
    for name, value in parameters.items():
        over_n = re.fullmatch(r"([0-9.]+)/n", value) if isinstance(value, str) else None
        found[name] = float(over_n[1]) / n if over_n else value
    return found


def find_metric(name: str) -> Callable[..., float]:
    """Return a score by name: one of volmar, or one of scikit-learn under the papers' name."""
    if name == "rand_index":
        return rand_score
    if name == "normalized_mutual_information":
        return partial(normalized_mutual_info_score, average_method="geometric")
    return getattr(metrics, name)


def find_estimator(name: str) -> Any:
    """Return the class of an estimator by its name in `volmar` or a dotted path."""
    module, _, name = name.rpartition(".")
    return getattr(import_module(module) if module else volmar, name)


# The cells of a sampling follow each other. Unpacking MNIST takes longer than most fits, and
# looking for a missing data set takes even longer.
@lru_cache(maxsize=1)
def _load(dataset: str, sampling: tuple[tuple[str, Any], ...]) -> tuple[Any, Exception | None]:
    try:
        return _sampled(dataset, dict(sampling)), None
    except (ValueError, OSError, MemoryError) as error:
        return None, error


def _sampled(dataset: str, arguments: dict[str, Any]) -> Any:
    """Load a sampling, with one feature multiplied if it has a `stretch`."""
    factor = arguments.pop("stretch", None)
    if factor is None:
        return datasets.load(dataset, **arguments)
    feature = arguments.pop("feature")
    data = datasets.load(dataset, **arguments)
    data.X = data.X.copy()
    order = np.random.default_rng(0).permutation(data.X.shape[1])
    data.X[:, order[(feature - 1) % len(order)]] *= factor
    return data


def run_cells(
    cells: Iterable[Cell],
    store: Store,
    *,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
    retry: bool = False,
) -> dict[str, CellResult]:
    """Run the cells that `store` has no result for, and return the results of all of them.

    Results of another version of volmar do not count, nor do those of cells that had no data.

    Parameters
    ----------
    cells : iterable of Cell
        Cells to run.
    store : Store
        Store in which results are looked up and saved, each when it is complete.
    jobs : int, default=1
        Number of processes.
    progress : callable, optional
        Function called with (done, total) at the beginning and after every cell.
    retry : bool, default=False
        Whether cells that failed are run again.
    """
    cells = list(cells)
    _load.cache_clear()  # files and folders may have changed since the last run
    stored = stored_results(cells, store)
    results = {key: r for key, r in stored.items() if _stands(r, retry=retry)}
    pending = [cell for cell in cells if cell.key not in results]
    report = progress or (lambda *_: None)
    report(len(results), len(cells))
    for result in map(run_cell, pending) if jobs == 1 else _in_processes(pending, jobs):
        store.append(result)
        results[result.cell.key] = result
        report(len(results), len(cells))
    # In the order of the cells, not of completion: the first of equal settings is used.
    return {cell.key: results[cell.key] for cell in cells}


def stored_results(cells: Iterable[Cell], store: Store) -> dict[str, CellResult]:
    """Return the stored results of the cells, of any version, in the order of the cells."""
    known = store.read()
    return {key: known[key] for key in (cell.key for cell in cells) if key in known}


def _stands(result: CellResult, *, retry: bool) -> bool:
    """Return whether a cell need not be run again."""
    if result.versions.get("volmar") != volmar.__version__ or result.status.startswith(NO_DATA):
        return False
    return not (retry and result.failed)


def _in_processes(cells: list[Cell], jobs: int) -> Iterator[CellResult]:
    """Yield results when complete; a cell that kills its process is recorded as failed."""
    waiting = deque(cells)
    others = set(active_children())
    while waiting:
        running: dict[Future, Cell] = {}
        pool = _pool(jobs)
        try:
            while waiting or running:
                while waiting and len(running) < QUEUE * jobs:
                    with without_interrupts():  # a worker may start here
                        running[pool.submit(run_cell, waiting[0])] = waiting[0]
                    waiting.popleft()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    result = future.result()
                    del running[future]
                    yield result
        except BrokenProcessPool:
            pass
        except BaseException:
            # An interrupt does not wait for running cells.
            for child in set(active_children()) - others:
                child.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        # A running cell ended its process (out of memory or a crash). Single runs show which.
        for cell in running.values():
            yield _alone(cell)


def _alone(cell: Cell) -> CellResult:
    start = time.perf_counter()
    pool = _pool(1)
    try:
        with without_interrupts():
            first = pool.submit(int)
        first.result()
    except BrokenProcessPool as error:
        raise RuntimeError(
            f"jobs: worker processes end before they run anything ({error}); take jobs=1, and in "
            "a script call from under `if __name__ == '__main__':`."
        ) from error
    try:
        return pool.submit(run_cell, cell).result()
    except BrokenProcessPool:
        status = "process ended: out of memory, or a crash"
        return CellResult(cell, None, time.perf_counter() - start, status, versions())
    finally:
        pool.shutdown(cancel_futures=True)


def _pool(jobs: int) -> ProcessPoolExecutor:
    # Fresh interpreters: a fork of a process whose BLAS has threads may hang.
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_follow_parent)


def _follow_parent() -> None:
    """Ignore interrupts, which the parent handles, and end when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)
