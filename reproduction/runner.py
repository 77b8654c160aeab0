"""Run the cells of an experiment, in parallel if asked, and keep each as it completes."""

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
from sklearn.metrics import normalized_mutual_info_score, rand_score
from threadpoolctl import threadpool_limits

import volmar
from reproduction.experiment import Cell
from reproduction.measures import take_measures
from reproduction.store import NO_DATA, CellResult, Store
from volmar import datasets, graphs, metrics
from volmar.cli.signals import without_interrupts

# Cells that wait in a worker's queue, for each worker: enough to keep it busy.
QUEUE = 4


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions of volmar and of what it computes with."""
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
        # What a warning says (components of a graph, say) belongs to the data, not to the run.
        warnings.simplefilter("ignore")
        try:
            X = data.X
            parameters = resolved(cell.parameters, X.shape[0])
            model = find_estimator(cell.estimator)(**parameters, random_state=cell.seed)
            if cell.similarity is not None:
                X = graphs.make_similarity(**cell.similarity).build(X)[0]
            labels = model.fit(X).labels_
            seconds = time.process_time() - start
            metric = partial(find_metric(cell.metric), **cell.metric_params)
            value = float(metric(data.y, labels))
            measures = take_measures(model, cell.measures, data.y, metric)
        except Exception as error:
            # Whatever it is, one cell must not end a run of hours.
            return failed(error)
    status = model.result_.status.name.lower() if hasattr(model, "result_") else "done"
    return CellResult(cell, value, seconds, status, versions(), measures)


def resolved(parameters: Mapping[str, Any], n: int) -> dict[str, Any]:
    """Replace values such as "5/n" by the number: papers bound sums, estimators take means."""
    found = {}
    for name, value in parameters.items():
        over_n = re.fullmatch(r"([0-9.]+)/n", value) if isinstance(value, str) else None
        found[name] = float(over_n[1]) / n if over_n else value
    return found


def find_metric(name: str) -> Callable[..., float]:
    """Return the score of this name: of volmar, or of scikit-learn under the papers' name."""
    if name == "rand_index":
        return rand_score
    if name == "normalized_mutual_information":
        return partial(normalized_mutual_info_score, average_method="geometric")
    return getattr(metrics, name)


def find_estimator(name: str) -> Any:
    """Class of an estimator: a name in `volmar`, or a dotted path."""
    module, _, name = name.rpartition(".")
    return getattr(import_module(module) if module else volmar, name)


# The cells of a sampling follow each other; unpacking MNIST takes longer than most fits, and
# asking for a set that is not there longer still.
@lru_cache(maxsize=1)
def _load(dataset: str, sampling: tuple[tuple[str, Any], ...]) -> tuple[Any, Exception | None]:
    try:
        return _sampled(dataset, dict(sampling)), None
    except (ValueError, OSError, MemoryError) as error:
        return None, error


def _sampled(dataset: str, arguments: dict[str, Any]) -> Any:
    """Load a sampling, with one feature multiplied where it asks for that."""
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
        What is wanted.
    store : Store
        Where results are looked up and kept, each as it completes.
    jobs : int, default=1
        Processes.
    progress : callable, optional
        Called with (done, wanted) at the beginning and after every cell.
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
    # In the order of the cells, however they completed: the first of equal settings stands.
    return {cell.key: results[cell.key] for cell in cells}


def stored_results(cells: Iterable[Cell], store: Store) -> dict[str, CellResult]:
    """Return the results that `store` has of the cells, of whatever version, in their order."""
    known = store.read()
    return {key: known[key] for key in (cell.key for cell in cells) if key in known}


def _stands(result: CellResult, *, retry: bool) -> bool:
    """Whether a cell need not be run again."""
    if result.versions.get("volmar") != volmar.__version__ or result.status.startswith(NO_DATA):
        return False
    return not (retry and result.failed)


def _in_processes(cells: list[Cell], jobs: int) -> Iterator[CellResult]:
    """Results as they complete; a cell that ends its process is found and recorded as failed."""
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
            # Whoever interrupts does not want to wait for the cells that run.
            for child in set(active_children()) - others:
                child.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        # One of those that ran ended its process: memory, or a crash. Alone, it shows which.
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
    """Leave interrupts to the parent, and end with it, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)
