"""Workers that stop in the middle of a pass: paused by dask because memory is low, or frozen."""

import contextlib
import functools
import os
import signal
import time

import numpy as np
import pytest

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")

from helpers.dask_clusters import bounded, cluster_of, persisted, stored, until  # noqa: E402

from volmar.distributed import LostBlocksError  # noqa: E402
from volmar.rows.blocks import (  # noqa: E402
    as_table,
    passes,
)

X = np.arange(600.0)[:, None]
CHUNKS = (50,) * 12
TOTAL = 599 * 300


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(passes, "GLANCE", 0.1)
    monkeypatch.setattr(passes, "PAUSE", 0.5)
    monkeypatch.setattr(passes, "LONG_PAUSE", 1.5)


@pytest.fixture
def pausing(monkeypatch):
    """Pause workers of this process at a task of a pass, while more tasks wait there."""
    original, begun, wanted = passes.block_part, [], []

    @functools.wraps(original)
    def slow(*args):
        worker = distributed.get_worker()
        begun.append(worker.address)
        if len(begun) in wanted:
            worker.status = distributed.core.Status.paused
        time.sleep(0.1)
        return original(*args)

    monkeypatch.setattr(passes, "block_part", slow)
    return wanted


def blocks_of(folder, held):
    lazy = stored(folder, X, CHUNKS)
    return persisted(lazy) if held else lazy


def sum_of(blocks):
    return as_table(blocks).row_numbers().sum()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("held", [True, False])
def test_others_make_the_pass_of_a_worker_that_is_paused_in_it(tmp_path, pausing, held):
    pausing.append(3)
    with cluster_of(2, processes=False):
        blocks = blocks_of(tmp_path, held)
        with pytest.warns(UserWarning, match="^1 of 2 workers"):
            assert bounded(sum_of, blocks, seconds=30.0) == TOTAL


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("held", [True, False])
def test_a_pass_ends_when_all_workers_are_paused(tmp_path, pausing, held):
    pausing.extend([2, *range(4, 30)])
    with cluster_of(2, processes=False):
        blocks = blocks_of(tmp_path, held)
        with (
            pytest.warns(UserWarning, match="of 2 workers are paused"),
            pytest.raises(LostBlocksError, match=r"all 2 workers .*1\.5 sec"),
        ):
            bounded(sum_of, blocks, seconds=30.0)


@pytest.mark.usefixtures("quick")
def test_a_worker_that_goes_on_in_time_is_left_alone(tmp_path, pausing, monkeypatch, recwarn):
    monkeypatch.setattr(passes, "PAUSE", 30.0)
    pausing.append(3)
    with cluster_of(2, processes=False) as client:
        blocks = blocks_of(tmp_path, held=True)
        found = passes_in_a_thread(blocks)
        until(lambda: paused(client))
        for worker in client.cluster.workers.values():
            worker.status = distributed.core.Status.running
        assert found.result(timeout=30.0) == TOTAL
    assert not [one for one in recwarn if "paused" in str(one.message)]


def passes_in_a_thread(blocks):
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1).submit(sum_of, blocks)


def paused(client):
    found = client.scheduler_info(n_workers=-1)["workers"].values()
    return any(worker["status"] == "paused" for worker in found)


@pytest.mark.nightly
@pytest.mark.usefixtures("quick")
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be frozen here")
def test_a_frozen_worker_is_given_up_when_its_heartbeats_are_missed(tmp_path):
    """The scheduler does so after its worker-ttl, five minutes by default."""
    with dask.config.set({"distributed.scheduler.worker-ttl": "1s"}), cluster_of(2) as client:
        blocks = blocks_of(tmp_path, held=True)
        pid = next(iter(client.run(os.getpid).values()))
        os.kill(pid, signal.SIGSTOP)
        try:
            assert bounded(sum_of, blocks, seconds=60.0) == TOTAL
        finally:
            with contextlib.suppress(ProcessLookupError):  # its nanny has killed it
                os.kill(pid, signal.SIGCONT)
