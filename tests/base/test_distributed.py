"""Fits on a real cluster: answers as in memory, blocks that stay, workers that die."""

import contextlib
import os
import pickle
import signal
import time
import warnings

import numpy as np
import pytest

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

from helpers.dask_clusters import (  # noqa: E402
    CHUNKS,
    MODELS,
    answer,
    assert_same,
    bounded,
    cluster_of,
    fit_reporting,
    fitted,
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
    KernelCPMMC,
)
from volmar.distributed import (  # noqa: E402
    LostBlocksError,
    report_passes,
)
from volmar.rows.blocks import (  # noqa: E402
    as_table,
    passes,
)
from volmar.rows.blocks.recipes import RowNumbers  # noqa: E402
from volmar.rows.blocks.sums import Picked, Sum  # noqa: E402

# ------------------------------------------------------------------ the same answer


# Each model once, and each kind of chunks both held and lazy.
CASES = [
    *(("gep", chunks, kind) for chunks in ("uneven", "many") for kind in ("held", "lazy")),
    ("mpm", "equal", "held"),
    ("cpmmc", "uneven", "held"),
    ("cpmmc of three", "equal", "lazy"),
    ("nystroem", "uneven", "lazy"),
    ("skmmc", "equal", "held"),
    ("machine", "uneven", "held"),
]


@pytest.mark.parametrize(("name", "chunks", "kind"), CASES)
def test_same_answer_as_in_memory(client, rows, tmp_path, name, chunks, kind):
    X, y = rows
    expected = answer(fitted(name, X, y), X)
    blocks = stored(tmp_path, X, CHUNKS[chunks])
    labels = da.from_array(y, chunks=(CHUNKS[chunks],))
    if kind == "held":
        blocks, labels = persisted(blocks), persisted(labels)
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
    # The scheduler keeps all prefixes.
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
    """Dask warns about graphs above 10 MB, and warnings are errors here."""
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
    "margin of the start": (
        lambda: CPMMC(3, random_state=0),
        lambda report: "BitSums" in report.figures,
    ),
    "margins": (
        lambda: CPMMC(3, random_state=0),
        lambda report: report.figures.count("Combination") == 3,
    ),
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


@pytest.mark.nightly
def test_a_killed_worker_changes_nothing(rows, tmp_path, monkeypatch):
    """Nannies start new workers meanwhile; with three, a slow one does not matter.

    Every night, because the next test kills a worker at the worst moment of one of the stages.
    """
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
    """Return a function that kills its worker once, in a pass of the GEP stage."""

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
            remedy = "^blocks"
            with pytest.raises(LostBlocksError, match=remedy):
                bounded(fit_reporting, model, blocks, killer, seconds=30.0)
            assert killer.killed
            # And again, with blocks that are known to be lost.
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
            with pytest.raises(LostBlocksError, match="no worker for 1 seconds"):
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
    three = CPMMC(3, random_state=0, max_iter=5)
    with warnings.catch_warnings(action="ignore"):
        expected = three.fit(X).predict(X)
    with cluster_of(2) as client:
        held = persisted(stored(tmp_path, X, CHUNKS["equal"]))
        worker = next(iter(client.nthreads()))

        def paused(dask_worker):
            from distributed.core import Status

            dask_worker.status = Status.paused

        def listener(report):
            if report.number == 1:
                client.run(paused, workers=[worker])
                time.sleep(0.3)  # until the scheduler notices

        with pytest.warns(UserWarning, match="1 of 2 workers are paused"):
            total = bounded(lambda: fit_reporting_sum(held, listener))
        assert total == 1199 * 600
        with warnings.catch_warnings(action="ignore"):
            model = bounded(three.fit, held)
        np.testing.assert_array_equal(model.predict(X), expected)


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

        with pytest.raises(LostBlocksError, match=r"connection .*lost"):
            bounded(fit_reporting, MSPC(random_state=0), held, listener)
