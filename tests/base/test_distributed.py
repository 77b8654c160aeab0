"""Fits on a real cluster: answers as in memory, blocks that stay, workers and clients that die."""

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

from sklearn.exceptions import NotFittedError  # noqa: E402

from volmar import (  # noqa: E402
    CPMMC,
    MSPC,
    SKMMC,
    KernelCPMMC,
    MinimaxProbabilityMachine,
)
from volmar.distributed import LostBlocksError, checkpoint, report_passes  # noqa: E402
from volmar.rows import as_table  # noqa: E402
from volmar.rows.blocks import passes  # noqa: E402
from volmar.rows.blocks.recipes import RowNumbers  # noqa: E402
from volmar.rows.blocks.sums import Picked, Sum  # noqa: E402

# A hang fails its test after so many seconds, and does not stall the suite.
HANG = 60.0
CHUNKS = {"equal": (400,) * 3, "uneven": (500, 1, 399, 300), "many": (100,) * 12}
# In memory with the histogram scan, the only one on blocks.
MODELS = {
    "gep": lambda: MSPC(random_state=0, scan="histogram"),
    "mpm": lambda: MSPC(random_state=0, scan="histogram", solver="mpm"),
    "cpmmc": lambda: CPMMC(random_state=0),
    "nystroem": lambda: KernelCPMMC(method="nystroem", n_landmarks=20, random_state=0),
    "skmmc": lambda: SKMMC(random_state=0),
    "machine": MinimaxProbabilityMachine,
}


def bounded(function, *args, seconds=HANG):
    """Return what a call returns, or raise what it raises; TimeoutError for a hang."""
    outcome = Future()

    def call():
        try:
            outcome.set_result(function(*args))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return outcome.result(timeout=seconds)


def until(condition, seconds=20.0):
    """Wait for what the scheduler does in its own time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the scheduler did not come to this state"
        time.sleep(0.02)


@contextlib.contextmanager
def cluster_of(n_workers, processes=True, **options):
    with (
        distributed.LocalCluster(
            n_workers=n_workers,
            processes=processes,
            threads_per_worker=1,
            host="127.0.0.1" if processes else None,
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
        ) as cluster,
        distributed.Client(cluster, **options) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client():
    with cluster_of(2) as client:
        yield client


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(5)
    truth = rng.random(1200) < 0.4
    X = rng.standard_normal((1200, 5)) * [1.0, 2.0, 1.0, 0.5, 3.0] + 2.0
    X[:, 2] += 5.0 * truth
    return X, truth.astype(int)


def parts_of(array, chunks):
    return np.split(array, np.cumsum(chunks)[:-1])


def stored(folder, array, chunks):
    """Return a lazy dask array of files, which every pass reads again."""
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


# ------------------------------------------------------------------ the same answer


@pytest.mark.parametrize(
    ("name", "chunks"),
    [*((name, chunks) for name in MODELS for chunks in ("equal", "uneven")), ("gep", "many")],
)
def test_same_answer_as_in_memory(client, rows, tmp_path, name, chunks):
    X, y = rows
    expected = answer(fitted(name, X, y), X)
    lazy = stored(tmp_path, X, CHUNKS[chunks])
    beside = da.from_array(y, chunks=(CHUNKS[chunks],))
    for blocks, labels in ((lazy, beside), (persisted(lazy), persisted(beside))):
        model = bounded(fitted, name, blocks, labels)
        assert_same(bounded(answer, model, blocks), expected)


def test_blocks_stay_where_they_are(client, rows, tmp_path):
    X, _ = rows
    held = persisted(stored(tmp_path, X, CHUNKS["many"]))
    before = client.who_has(distributed.futures_of(held))
    assert {len(workers) for workers in before.values()} == {1}
    bounded(MSPC(random_state=0).fit, held)
    bounded(CPMMC(random_state=0).fit, held)
    assert client.who_has(distributed.futures_of(held)) == before


def test_an_idle_worker_takes_no_blocks_over(client, rows):
    """All blocks are on one worker, and tasks are slow: dask alone would move some."""
    X, _ = rows
    (worker, _other) = client.nthreads()
    parts = parts_of(X, CHUNKS["many"])
    futures = client.scatter(
        {("lone", i, 0): part for i, part in enumerate(parts)}, workers=[worker]
    )
    held = da.Array(futures, "lone", (CHUNKS["many"], (5,)), dtype=X.dtype)

    def slow(program, block, start, *given):
        time.sleep(0.1)
        return passes.block_part(program, block, start, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "block_part", slow)
        bounded(as_table(held).ask, Sum(RowNumbers()))
    assert set(client.who_has(distributed.futures_of(held)).values()) == {(worker,)}


def test_a_persisted_collection_need_not_be_there_yet(client, rows):
    X, _ = rows

    def slowly(part):
        time.sleep(0.1)
        return part

    blocks = [
        da.from_delayed(dask.delayed(slowly)(part), part.shape, part.dtype)
        for part in parts_of(X, CHUNKS["equal"])
    ]
    held = da.concatenate(blocks).persist()
    model = bounded(MSPC(random_state=0).fit, held)
    assert_same(bounded(answer, model, held), answer(MODELS["gep"]().fit(X), X))


def test_weights_that_are_not_held_beside_blocks_that_are(client, rows, tmp_path, rng):
    X, _ = rows
    weights = rng.integers(0, 3, X.shape[0]).astype(float)
    expected = answer(MODELS["gep"]().fit(X, sample_weight=weights), X)
    held = persisted(stored(tmp_path, X, CHUNKS["uneven"]))
    model = bounded(lambda: MSPC(random_state=0).fit(held, sample_weight=weights))
    assert_same(bounded(answer, model, held), expected)


# ------------------------------------------------------------------ what travels, what stays


def known_to(client):
    """Return the keys of all tasks that the scheduler has, and of all futures that we hold."""
    keys = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks))
    return {*keys, *client.futures}


def prefixes(client):
    return set(client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_prefixes)))


@pytest.mark.parametrize("kind", ["held", "lazy"])
def test_passes_leave_nothing_on_the_cluster(client, rows, tmp_path, kind):
    X = stored(tmp_path, rows[0], CHUNKS["equal"])
    if kind == "held":
        X = persisted(X)
    before = known_to(client)
    vector = as_table(X).row_numbers().astype(float)
    bounded(vector.sum)
    kinds = prefixes(client)
    for i in range(1, 50):
        assert bounded((vector + i).sum) == 1200 * (599.5 + i)
    until(lambda: known_to(client) <= before)
    # The scheduler never forgets a prefix.
    assert prefixes(client) == kinds


def test_a_large_program_travels_once(client, rows, tmp_path, monkeypatch):
    X, _ = rows
    sent, plain = [], passes._sent

    def spied(*args):
        found = plain(*args)
        sent.append((len(args[1]), isinstance(found, distributed.Future)))
        return found

    monkeypatch.setattr(passes, "_sent", spied)
    make = lambda: KernelCPMMC(method="nystroem", n_landmarks=200, random_state=0)  # noqa: E731
    expected = answer(make().fit(X), X)
    lazy = stored(tmp_path, X, CHUNKS["equal"])
    for blocks in (persisted(lazy), lazy):
        sent.clear()
        model = bounded(make().fit, blocks)
        assert_same(bounded(answer, model, blocks), expected)
        assert max(sent)[0] > 2**16
        assert all(once == (size > 2**16) for size, once in sent)


def test_a_very_large_program_travels_without_a_warning(client, rows, tmp_path):
    """Dask warns of graphs beyond 10 MB, and warnings are errors here."""
    lazy = stored(tmp_path, rows[0], CHUNKS["equal"])
    index = np.repeat([3, 4, 700], 500_000)
    for X in (persisted(lazy), lazy):
        found = bounded(as_table(X).ask, Picked(index, values=RowNumbers()))
        np.testing.assert_array_equal(found, index)


# ------------------------------------------------------------------ workers that die

KILLS = {
    "gep": (lambda: MSPC(random_state=0), lambda report: "Binned" in report.figures),
    "mpm": (
        lambda: MSPC(random_state=0, solver="mpm"),
        lambda report: report.figures.count("MomentSum") == 2,
    ),
    "margin": (lambda: CPMMC(random_state=0), lambda report: report.number == 5),
}


class Killer:
    """Kills a worker that holds blocks by its pid, once, after the first pass of some kind."""

    def __init__(self, client, held, when):
        holder = next(iter(client.who_has(distributed.futures_of(held)).values()))[0]
        (self.pid,) = client.run(os.getpid, workers=[holder]).values()
        self.when, self.killed, self.seen = when, 0, 0

    def __call__(self, report):
        self.seen = report.number
        if not self.killed and self.when(report):
            self.killed = report.number
            os.kill(self.pid, signal.SIGKILL)


def fit_reporting(model, X, listener):
    with report_passes(listener):
        return model.fit(X)


def test_a_killed_worker_changes_nothing(rows, tmp_path, monkeypatch):
    """Nannies start new workers meanwhile; with three, a slow one does not matter."""
    monkeypatch.setattr(passes, "GLANCE", 0.2)
    lazy = stored(tmp_path, rows[0], CHUNKS["many"])
    expected = {}
    with dask.config.set(scheduler="synchronous"):
        for stage, (make, _) in KILLS.items():
            expected[stage] = answer(make().fit(lazy), lazy)
    with cluster_of(3) as client:
        for stage, (make, when) in KILLS.items():
            held = persisted(lazy)
            killer = Killer(client, held, when)
            model = bounded(fit_reporting, make(), held, killer)
            assert 0 < killer.killed < killer.seen
            assert killer.pid not in client.run(os.getpid).values()
            assert_same(bounded(answer, model, held), expected[stage])


def test_a_worker_that_dies_in_the_midst_of_a_pass(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "GLANCE", 0.2)
    lazy = stored(tmp_path, rows[0], CHUNKS["many"])
    with dask.config.set(scheduler="synchronous"):
        expected = answer(MSPC(random_state=0).fit(lazy), lazy)
    with cluster_of(2):
        for kind, blocks in (("held", persisted(lazy)), ("lazy", lazy)):
            marker = str(tmp_path / kind)
            with monkeypatch.context() as patch:
                patch.setattr(passes, "block_part", deadly(marker))
                model = bounded(MSPC(random_state=0).fit, blocks)
            assert os.path.exists(marker)
            assert_same(bounded(answer, model, blocks), expected)


def deadly(marker):
    """Return what kills its worker in a pass of the GEP stage, once."""

    def part(program, block, start, *given):
        if any(type(one).__name__ == "Binned" for one in pickle.loads(program)):
            with contextlib.suppress(FileExistsError), open(marker, "x"):
                os.kill(os.getpid(), signal.SIGKILL)
        return passes.block_part(program, block, start, *given)

    return part


def test_blocks_that_cannot_be_computed_again(rows):
    X, _ = rows
    parts = parts_of(X, CHUNKS["many"])
    with cluster_of(2) as client:
        for kind in ("futures", "delayed"):
            futures = client.scatter(parts, hash=False)
            graph = {("given", i, 0): future for i, future in enumerate(futures)}
            blocks = da.Array(graph, "given", (CHUNKS["many"], (5,)), dtype=X.dtype)
            if kind == "delayed":
                pairs = zip(futures, parts, strict=True)
                blocks = da.concatenate([da.from_delayed(f, p.shape, p.dtype) for f, p in pairs])
            killer = Killer(client, futures, lambda report: "Binned" in report.figures)
            model = MSPC(random_state=0)
            remedy = r"cannot be computed again.*from_delayed"
            with pytest.raises(LostBlocksError, match=remedy):
                bounded(fit_reporting, model, blocks, killer, seconds=30.0)
            assert killer.killed
            # And once more, with blocks that are known to be gone.
            with pytest.raises(LostBlocksError, match=remedy):
                bounded(model.fit, blocks, seconds=30.0)
            with pytest.raises(NotFittedError):
                model.predict(X)


def test_no_worker_at_all(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "GLANCE", 0.2)
    monkeypatch.setattr(passes, "PATIENCE", 1.0)
    lazy = stored(tmp_path, rows[0], CHUNKS["equal"])
    with cluster_of(0) as client:
        for blocks in (lazy.persist(), lazy):
            with pytest.raises(LostBlocksError, match=r"no worker for 1 seconds\. Start workers"):
                bounded(MSPC(random_state=0).fit, blocks)
            until(lambda: not any("_part" in str(k) or "volmar" in k for k in known_to(client)))


def test_the_last_worker_goes_in_the_middle_of_a_fit(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "GLANCE", 0.2)
    monkeypatch.setattr(passes, "PATIENCE", 1.0)
    with cluster_of(1, processes=False) as client:
        held = persisted(stored(tmp_path, rows[0], CHUNKS["equal"]))

        def listener(report):
            if "Binned" in report.figures:
                client.cluster.scale(0)
                until(lambda: not client.nthreads())

        with pytest.raises(LostBlocksError, match="no worker for 1 seconds"):
            bounded(fit_reporting, MSPC(random_state=0), held, listener)


def test_a_paused_worker_does_not_hang_a_fit(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "GLANCE", 0.2)
    X, _ = rows
    with cluster_of(2) as client:
        held = persisted(stored(tmp_path, X, CHUNKS["equal"]))
        worker = next(iter(client.nthreads()))

        def paused(dask_worker):
            from distributed.core import Status

            dask_worker.status = Status.paused

        def listener(report):
            if report.number == 1:
                client.run(paused, workers=[worker])
                time.sleep(0.3)  # for the scheduler to hear of it

        total = bounded(lambda: fit_reporting_sum(held, listener))
        assert total == 1199 * 600


def fit_reporting_sum(X, listener):
    table = as_table(X)
    with report_passes(listener):
        table.row_numbers().max()
        return table.row_numbers().sum()


def test_the_scheduler_goes(rows, tmp_path):
    with cluster_of(1, processes=False) as client:
        held = persisted(stored(tmp_path, rows[0], CHUNKS["equal"]))

        def listener(report):
            if "Binned" in report.figures:
                client.cluster.close()

        with pytest.raises(LostBlocksError, match="connection to the scheduler is lost"):
            bounded(fit_reporting, MSPC(random_state=0), held, listener)


# ------------------------------------------------------------------ errors and interruptions


@pytest.mark.parametrize("kind", ["held", "lazy"])
@pytest.mark.parametrize("error", [ValueError, TimeoutError, OSError])
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
    """As with X.compute(), a scheduler named in dask's configuration goes before a client."""
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
    """As many fits as there are threads: each has to give its own back while it waits."""
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
            with pytest.raises(TypeError, match=r"asynchronous Client.*asyncio\.to_thread"):
                MSPC(random_state=0).fit(held)
            return await asyncio.to_thread(MSPC(random_state=0).fit, held)

    model = bounded(asyncio.run, main())
    np.testing.assert_allclose(model.coef_, MODELS["gep"]().fit(X).coef_, rtol=0, atol=1e-10)


# ------------------------------------------------------------------ clients that die

FIT = """
import json, os, signal, sys
import dask, numpy as np
import dask.array as da
from volmar import CPMMC
from volmar.distributed import checkpoint, report_passes

files, folder, last, address = json.loads(sys.argv[1])
if address:
    from distributed import Client
    Client(address)
else:
    dask.config.set(scheduler="synchronous")
shapes = [np.load(path, mmap_mode="r").shape for path in files]
X = da.concatenate(
    [
        da.from_delayed(dask.delayed(np.load)(path), shape, float)
        for path, shape in zip(files, shapes)
    ]
)
made = []

def listener(report):
    made.append(report.number)
    if last and report.number == last:
        os.kill(os.getpid(), signal.SIGKILL)

with checkpoint(folder) as journal, report_passes(listener):
    model = CPMMC(random_state=0).fit(X)
print(json.dumps([journal.n_read, len(made), model.coef_.tolist()]))
"""


@pytest.mark.parametrize("where", ["here", "cluster"])
def test_a_killed_client_goes_on_where_it_was(request, rows, tmp_path, where):
    X, _ = rows
    address = ""
    if where == "cluster":
        address = request.getfixturevalue("client").scheduler.address
    lazy = stored(tmp_path, X, CHUNKS["equal"])
    reports = []
    with dask.config.set(scheduler="synchronous"), report_passes(reports.append):
        whole = CPMMC(random_state=0).fit(lazy)
    last = len(reports) // 2
    assert last > 2

    def run(last):
        files = sorted(str(path) for path in tmp_path.glob("*.npy"))
        given = json.dumps([files, str(tmp_path / "checkpoint"), last, address])
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", FIT, given],
            capture_output=True,
            text=True,
            timeout=HANG,
            check=False,
        )

    killed = run(last)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    second = run(0)
    assert second.returncode == 0, second.stderr
    n_read, n_passes, coefficients = json.loads(second.stdout)
    assert n_read > 0
    assert n_passes == len(reports) - last  # what the last pass found was saved, too
    np.testing.assert_allclose(coefficients, whole.coef_, rtol=0, atol=1e-12)


def test_a_checkpoint_is_shared_by_cluster_and_memory(client, rows, tmp_path):
    """Figures of a fit on the cluster serve one without it: keys do not depend on where."""
    lazy = stored(tmp_path, rows[0], CHUNKS["equal"])
    folder = tmp_path / "checkpoint"

    def fit():
        with checkpoint(folder) as journal:
            model = MSPC(random_state=0).fit(lazy)
        return model.coef_, journal

    first, written = bounded(fit)
    with dask.config.set(scheduler="synchronous"):
        second, read = fit()
    assert read.n_read == written.n_written > 0
    assert read.n_written == 0
    np.testing.assert_array_equal(first, second)


def test_the_example_runs_as_it_stands():
    script = ROOT / "examples" / "clusters_on_a_cluster.py"
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "pass 1: Picked of 200000 rows" in done.stdout
    assert "the feature that drives the split: 1" in done.stdout
