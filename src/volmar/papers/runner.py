"""Run the cells of an experiment, in parallel if asked, and sum them up."""

from __future__ import annotations

import math
import signal
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from multiprocessing import get_context
from statistics import mean, stdev
from typing import Any

from threadpoolctl import threadpool_limits

import volmar
from volmar import datasets, graphs, metrics
from volmar.papers.experiment import Cell, Experiment, published
from volmar.papers.measures import take_measures
from volmar.papers.store import CellResult, Store


def run_cell(cell: Cell) -> CellResult:
    """Run one cell on one thread; an error is recorded as its status, not raised."""
    data = _load(cell.dataset, tuple(sorted(cell.sampling.items())))
    model = find_estimator(cell.estimator)(**cell.parameters, random_state=cell.seed)
    start = time.perf_counter()
    with threadpool_limits(1), warnings.catch_warnings():
        # What a warning says (components of a graph, say) belongs to the data, not to the run.
        warnings.simplefilter("ignore")
        try:
            X = data.X
            if cell.similarity is not None:
                X = graphs.make_similarity(**cell.similarity).build(X)[0]
            labels = model.fit(X).labels_
        except (ValueError, ArithmeticError, MemoryError, RuntimeError) as error:
            seconds = time.perf_counter() - start
            status = f"{type(error).__name__}: {error}"
            return CellResult(cell, None, seconds, status, volmar.__version__)
    seconds = time.perf_counter() - start
    metric = partial(getattr(metrics, cell.metric), **cell.metric_params)
    status = model.result_.status.name.lower() if hasattr(model, "result_") else "done"
    return CellResult(
        cell,
        float(metric(data.y, labels)),
        seconds,
        status,
        volmar.__version__,
        take_measures(model, cell.measures, data.y, metric),
    )


def find_estimator(name: str) -> Any:
    """Return a class of volmar, or of scikit-learn by its dotted path."""
    module, _, name = name.rpartition(".")
    return getattr(import_module(module) if module else volmar, name)


# The cells of a sampling follow each other, and unpacking MNIST takes longer than most fits.
@lru_cache(maxsize=1)
def _load(dataset: str, sampling: tuple[tuple[str, Any], ...]) -> Any:
    return datasets.load(dataset, **dict(sampling))


def run_cells(
    cells: Iterable[Cell],
    store: Store,
    *,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, CellResult]:
    """Run the cells that `store` has no result for, and return the results of all of them.

    Results of another version of volmar do not count.

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
    """
    cells = list(cells)
    _load.cache_clear()  # files and folders may have changed since the last run
    known = {
        key: r
        for key, r in store.read().items()
        if r.value is not None and r.version == volmar.__version__
    }
    results = {cell.key: known[cell.key] for cell in cells if cell.key in known}
    pending = [cell for cell in cells if cell.key not in known]
    report = progress or (lambda *_: None)
    report(len(results), len(cells))

    def keep(result: CellResult) -> None:
        store.append(result)
        results[result.cell.key] = result
        report(len(results), len(cells))

    if jobs == 1:
        for cell in pending:
            keep(run_cell(cell))
        return results
    # Fresh interpreters: a fork of a process whose BLAS has threads may hang.
    pool = ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=_leave_interrupts_to_the_parent
    )
    try:
        for future in as_completed([pool.submit(run_cell, cell) for cell in pending]):
            keep(future.result())
    finally:
        pool.shutdown(cancel_futures=True)
    return results


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclass(frozen=True)
class Summary:
    """Mean, standard error and number of samplings, in percent; mean is None without any."""

    mean: float | None
    standard_error: float | None
    n: int

    @classmethod
    def of(cls, values: list[float]) -> Summary:
        """Sum up values between 0 and 1."""
        if not values:
            return cls(None, None, 0)
        error = 100 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
        return cls(100 * mean(values), error, len(values))

    def __str__(self) -> str:
        if self.mean is None:
            return "-"
        return f"{self.mean:.1f}" + (
            "" if self.standard_error is None else f" ± {self.standard_error:.1f}"
        )


@dataclass(frozen=True)
class Line:
    """A line of a reproduced table."""

    dataset: str
    method: str
    paper: Summary
    hindsight: Summary
    label_free: Summary
    seconds: float


def summarise(experiment: Experiment, results: Iterable[CellResult]) -> list[Line]:
    """Sum up: *hindsight* is the best of the grid for each sampling, *label-free* the default."""
    figures = published(experiment.paper, experiment.table)
    results = [r for r in results if r.value is not None]
    better = max if experiment.larger_is_better else min
    lines = []
    for dataset in experiment.datasets:
        for method in experiment.methods:
            best: dict[str, float] = {}
            default: list[float] = []
            seconds: list[float] = []
            for r in results:
                if (r.cell.dataset, r.cell.method) != (dataset, method) or r.value is None:
                    continue
                if r.cell.column == "label-free":
                    default.append(r.value)
                    seconds.append(r.seconds)
                else:
                    sampling = r.cell.sampling_key
                    best[sampling] = better(r.value, best.get(sampling, r.value))
            value, error = figures.get((dataset, method), (None, None))
            lines.append(
                Line(
                    dataset,
                    method,
                    Summary(value, error, 0),
                    Summary.of(list(best.values())),
                    Summary.of(default),
                    mean(seconds) if seconds else math.nan,
                )
            )
    return lines
