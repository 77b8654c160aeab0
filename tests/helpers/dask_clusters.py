"""Clusters of dask, models for them, and fits that do not hang."""

import contextlib
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")


from volmar import (  # noqa: E402
    CPMMC,
    MSPC,
    SKMMC,
    KernelCPMMC,
    MinimaxProbabilityMachine,
)
from volmar.distributed import report_passes  # noqa: E402

# Seconds after which a hanging test fails, so that it does not stall the suite.
HANG = 60.0
CHUNKS = {"equal": (400,) * 3, "uneven": (500, 1, 399, 300), "many": (100,) * 12}
# In memory, the histogram scan is used, which is the only one for blocks.
MODELS = {
    "gep": lambda: MSPC(random_state=0, scan="histogram"),
    "mpm": lambda: MSPC(random_state=0, scan="histogram", solver="mpm"),
    "cpmmc": lambda: CPMMC(random_state=0),
    "cpmmc of three": lambda: CPMMC(3, random_state=0),
    "nystroem": lambda: KernelCPMMC(method="nystroem", n_landmarks=20, random_state=0),
    "skmmc": lambda: SKMMC(random_state=0),
    "machine": MinimaxProbabilityMachine,
}


def bounded(function, *args, seconds=HANG):
    """Return the result of a call or raise its exception; raise a TimeoutError if it hangs."""
    outcome = Future()

    def call():
        try:
            outcome.set_result(function(*args))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return outcome.result(timeout=seconds)


def until(condition, seconds=20.0):
    """Wait for an asynchronous action of the scheduler."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the scheduler did not come to this state"
        time.sleep(0.02)


def local_cluster(n_workers, processes=True):
    return distributed.LocalCluster(
        n_workers=n_workers,
        processes=processes,
        threads_per_worker=1,
        host="127.0.0.1" if processes else None,
        dashboard_address="127.0.0.1:0",
        memory_limit=0,
    )


@contextlib.contextmanager
def cluster_of(n_workers, processes=True, **options):
    """A cluster of one test, which may kill its workers."""
    with (
        local_cluster(n_workers, processes) as cluster,
        distributed.Client(cluster, **options) as client,
    ):
        yield client


def parts_of(array, chunks):
    return np.split(array, np.cumsum(chunks)[:-1])


def stored(folder, array, chunks):
    """Return a lazy dask array of files, which are read in every pass."""
    blocks = []
    for i, part in enumerate(parts_of(array, chunks)):
        path = Path(folder) / f"{i:03}.npy"
        np.save(path, part)
        block = dask.delayed(np.load)(str(path))
        blocks.append(da.from_delayed(block, part.shape, part.dtype))
    return da.concatenate(blocks)


def persisted(array):
    array = array.persist()
    distributed.wait(array)
    return array


def fitted(name, X, y):
    model = MODELS[name]()
    return model.fit(X, y) if name == "machine" else model.fit(X)


def answer(model, X):
    scores, labels = model.decision_function(X), model.predict(X)
    own = getattr(model, "labels_", None)
    found = [scores, labels] if own is None else [scores, labels, own]
    return dask.compute(*found)


def assert_same(found, expected):
    assert len(found) == len(expected)
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=1e-10)
    for labels, others in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(labels, others)


def known_to(client):
    """Return the keys of all tasks of the scheduler, and of all futures of the client."""
    keys = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks))
    return {*keys, *client.futures}


def fit_reporting(model, X, listener):
    with report_passes(listener):
        return model.fit(X)
