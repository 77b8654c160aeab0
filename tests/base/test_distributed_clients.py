"""Fits on a real cluster: errors, interruptions, choice of the client, clients that die."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

from helpers.dask_clusters import (  # noqa: E402
    CHUNKS,
    MODELS,
    bounded,
    cluster_of,
    fit_reporting,
    known_to,
    parts_of,
    persisted,
    stored,
    until,
)
from sklearn.exceptions import NotFittedError  # noqa: E402

from volmar import (  # noqa: E402
    CPMMC,
    MSPC,
)
from volmar.rows.blocks import passes  # noqa: E402

# ------------------------------------------------------------------ errors and interruptions


@pytest.mark.parametrize(
    ("error", "kind"), [(ValueError, "held"), (TimeoutError, "lazy"), (OSError, "held")]
)
def test_the_error_of_a_block_reaches_the_user(client, rows, kind, error):
    X, _ = rows

    def read(i, part):
        if i == 2:
            raise error(f"file {i} is broken")
        return part

    blocks = da.concatenate(
        [
            da.from_delayed(dask.delayed(read)(i, part), part.shape, part.dtype)
            for i, part in enumerate(parts_of(X, CHUNKS["equal"]))
        ]
    )
    if kind == "held":
        blocks = blocks.persist()
    model = MSPC(random_state=0)
    with pytest.raises(error, match=r"^file 2 is broken$") as caught:
        bounded(model.fit, blocks)
    assert type(caught.value) is error
    assert caught.value.__cause__ is not caught.value
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals go to main threads"
)
@pytest.mark.parametrize("kind", ["held", "lazy"])
def test_an_interrupted_pass_leaves_nothing_behind(client, rows, tmp_path, monkeypatch, kind):
    X, _ = rows
    started, stop = str(tmp_path / "started"), str(tmp_path / "stop")
    blocks = stored(tmp_path, X, CHUNKS["equal"])
    if kind == "held":
        blocks = persisted(blocks)

    def slow(program, block, start, *given):
        with open(started, "w"):
            pass
        end = time.monotonic() + 20
        while not os.path.exists(stop) and time.monotonic() < end:
            time.sleep(0.02)
        return passes.block_part(program, block, start, *given)

    def interrupt():
        until(lambda: os.path.exists(started))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    monkeypatch.setattr(passes, "block_part", slow)
    known = known_to(client)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt, daemon=True)
    model = MSPC(random_state=0)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt) as caught:
            model.fit(blocks)
        # The traceback is still there, and holds no futures.
        until(lambda: known_to(client) <= known)
        assert caught.value.__traceback__ is not None
    finally:
        Path(stop).touch()
        signal.signal(signal.SIGINT, before)
        thread.join()
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_an_interruption_between_passes(client, rows, tmp_path):
    X, _ = rows
    model = CPMMC(random_state=0)

    def listener(report):
        if report.number == 4:
            raise KeyboardInterrupt

    held = persisted(stored(tmp_path, X, CHUNKS["equal"]))
    known = known_to(client)
    with pytest.raises(KeyboardInterrupt):
        bounded(fit_reporting, model, held, listener)
    until(lambda: known_to(client) <= known)
    with pytest.raises(NotFittedError):
        model.predict(X)


# ------------------------------------------------------------------ whose client


def test_the_client_of_the_blocks_is_used(client, rows, tmp_path):
    """The default client belongs to another cluster, which does not have the blocks."""
    X, _ = rows
    lazy = stored(tmp_path, X, CHUNKS["equal"])
    with cluster_of(1, processes=False, set_as_default=False) as other:
        held = other.persist(lazy)
        assert distributed.default_client() is client
        model = bounded(MSPC(random_state=0).fit, held)
        scores = bounded(lambda: other.compute(model.decision_function(held)).result())
    np.testing.assert_allclose(
        scores, MODELS["gep"]().fit(X).decision_function(X), rtol=0, atol=1e-10
    )


def test_the_scheduler_that_was_chosen_is_used(client, rows):
    """As with X.compute(), a scheduler in dask's configuration precedes a client."""
    X, _ = rows
    here = os.getpid()

    def read(part):
        assert os.getpid() == here
        return part

    blocks = da.concatenate(
        [
            da.from_delayed(dask.delayed(read)(part), part.shape, part.dtype)
            for part in parts_of(X, CHUNKS["equal"])
        ]
    )
    with dask.config.set(scheduler="synchronous"):
        MSPC(random_state=0).fit(blocks)
    with pytest.raises(AssertionError):
        bounded(MSPC(random_state=0).fit, blocks)


def test_fits_inside_tasks_do_not_wait_for_themselves(client, rows, tmp_path):
    """As many fits as threads: each has to release its own thread while it waits."""
    X, _ = rows
    expected = MODELS["gep"]().fit(X).coef_
    lazy = stored(tmp_path, X, CHUNKS["equal"])

    def fit(pieces, hold):
        from distributed import get_client

        from volmar import MSPC

        blocks = pickle.loads(pieces)
        if hold:
            blocks = get_client().persist(blocks)
        return MSPC(random_state=0).fit(blocks).coef_

    pieces = pickle.dumps(lazy)
    workers = list(client.nthreads())
    for hold in (False, True):
        futures = [
            client.submit(fit, pieces, hold, workers=[worker], pure=False) for worker in workers
        ]
        for future in futures:
            found = bounded(future.result)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


def test_an_asynchronous_client_is_refused(rows):
    import asyncio

    X, _ = rows

    async def main():
        async with (
            distributed.LocalCluster(
                n_workers=1,
                processes=False,
                asynchronous=True,
                dashboard_address="127.0.0.1:0",
            ) as cluster,
            distributed.Client(cluster, asynchronous=True, set_as_default=False) as client,
        ):
            held = client.persist(da.from_array(X, chunks=(400, 5)))
            with pytest.raises(TypeError, match=r"asyncio\.to_thread"):
                MSPC(random_state=0).fit(held)
            return await asyncio.to_thread(MSPC(random_state=0).fit, held)

    model = bounded(asyncio.run, main())
    np.testing.assert_allclose(model.coef_, MODELS["gep"]().fit(X).coef_, rtol=0, atol=1e-10)


@pytest.mark.nightly
def test_the_example_runs_as_it_stands():
    script = ROOT / "examples" / "clusters_on_a_cluster.py"
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "pass 1: Picked of 80000 rows" in done.stdout
    assert "the feature that drives the split: 1" in done.stdout
    assert "clusters: 3 [" in done.stdout
    assert "agreement of both: 1.0" in done.stdout
