"""More than two clusters of dask collections: the same tree and clusters as in memory."""

from __future__ import annotations

import os
import pickle
import signal
import time

import dask
import dask.array as da
import numpy as np
import pytest
from helpers.block_models import in_blocks
from helpers.blocks import csr_blocks, passes_of
from helpers.dask_clusters import bounded, cluster_of, fit_reporting, persisted, stored
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

import volmar.base.clusterer
import volmar.rows.parts
from volmar import CPMMC, MSPC, SKMMC, KernelCPMMC
from volmar.base.recursion import side_of
from volmar.distributed import LostBlocksError
from volmar.rows.blocks import is_dask, passes

N, K = 1500, 5
CHUNKINGS = [(N,), (400,), (0, 37, 900, 1, 562)]
MODELS = {
    "MSPC": MSPC(K, random_state=0),
    "MSPC minimum size": MSPC(K, min_cluster_size=200, random_state=0),
    "MSPC rbf": MSPC(3, kernel="rbf", random_state=0),
    "MSPC exact": MSPC(K, scan="exact", random_state=0),
    "MSPC k-means": MSPC(K, init="k-means", random_state=0),
    "CPMMC": CPMMC(K, multiway="recursive", random_state=0),
    "SKMMC": SKMMC(K, random_state=0),
    "landmarks": KernelCPMMC(
        3, method="nystroem", n_landmarks=15, multiway="recursive", random_state=0
    ),
}
OF_THREE = ["MSPC rbf", "landmarks"]
WITH_WEIGHTS = ["MSPC", "MSPC minimum size", "CPMMC"]
FEW = 300


@pytest.fixture
def few_rows(monkeypatch):
    """Parts above 300 rows are split by a sample, from a pool of at least 700 rows."""
    monkeypatch.setattr(volmar.base.clusterer, "SAMPLED_ROWS", FEW)
    monkeypatch.setattr(volmar.rows.parts, "POOL_BYTES", 700 * 4 * 8)
    monkeypatch.setattr(volmar.rows.parts, "MIN_POOL_ROWS", 60)


@pytest.fixture
def here():
    with dask.config.set(scheduler="synchronous"):
        yield


def groups(dtype=np.float64):
    rng = np.random.default_rng(3)
    truth = rng.choice(K, N, p=[0.35, 0.25, 0.2, 0.15, 0.05])
    rows = rng.normal(size=(N, 4)) + 9.0 * rng.normal(size=(K, 4))[truth]
    return (rows * [1.0, 2.0, 1.0, 0.5] + 3.0).astype(dtype), truth


X, TRUTH = groups()
WEIGHTS = np.random.default_rng(4).integers(0, 3, N).astype(float)


def same_fit(model, expected, rows):
    assert is_dask(model.labels_)
    labels = model.labels_.compute()
    np.testing.assert_array_equal(labels, expected.labels_)
    np.testing.assert_array_equal(model.predict(rows), labels)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(rows), labels)
    ours, theirs = list(model.tree_.nodes()), list(expected.tree_.nodes())
    for one, other in zip(ours, theirs, strict=True):
        assert (one.n_rows, one.label, one.rank) == (other.n_rows, other.label, other.rank)
        assert one.weight == pytest.approx(other.weight, rel=1e-12)
        np.testing.assert_allclose(
            (one.probability, one.p_value), (other.probability, other.p_value), rtol=1e-9
        )
    assert model.tree_.sizes == expected.tree_.sizes
    assert model.tree_.sizes == tuple(np.bincount(labels).tolist())


@pytest.mark.usefixtures("few_rows", "here")
@pytest.mark.parametrize(
    ("name", "weighted"),
    [*((name, False) for name in MODELS), *((name, True) for name in WITH_WEIGHTS)],
)
def test_the_tree_that_memory_grows(name, weighted):
    model = MODELS[name]
    options = {"sample_weight": WEIGHTS} if weighted else {}
    expected = pickle.loads(pickle.dumps(model.fit(X, **options)))
    assert expected.tree_.n_leaves == (3 if name in OF_THREE else K)
    assert expected.tree_.root.n_rows == N
    lazy = in_blocks(X, CHUNKINGS[1] if weighted else CHUNKINGS[2])
    model.fit(lazy, **options)
    assert model.labels_.chunks == lazy.chunks[:1]
    same_fit(model, expected, X)


@pytest.mark.filterwarnings("ignore:Found 2 clusters")
@pytest.mark.usefixtures("few_rows", "here")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("solver", ["gep", "mpm", "eig"])
def test_the_only_split_is_fitted_to_all_rows(solver, weighted):
    rng = np.random.default_rng(0)
    truth = rng.random(N) < 0.4
    rows = rng.normal(size=(N, 4)) + 6.0 * truth[:, None] * [0.0, 1.0, 0.0, 0.5]
    given = {"sample_weight": WEIGHTS} if weighted else {}
    # The parts are too small for two clusters of this size.
    options = {"solver": solver, "min_cluster_size": 0.32, "random_state": 0}
    expected = MSPC(3, **options).fit(rows, **given)
    assert expected.tree_.n_leaves == 2
    model = MSPC(3, **options).fit(in_blocks(rows, (0, 700, 1, 799)), **given)
    same_fit(model, expected, rows)
    two = MSPC(2, scan="histogram", **options).fit(rows, **given)
    for name in ("coef_", "intercept_", "msp_", "side_probability_"):
        np.testing.assert_allclose(getattr(model, name), getattr(expected, name), rtol=1e-6)
        np.testing.assert_allclose(getattr(model, name), getattr(two, name), atol=0.02)
    labels = expected.labels_
    assert [leaf.n_rows for leaf in expected.tree_.leaves()] == np.bincount(labels).tolist()
    weights = WEIGHTS if weighted else np.ones(N)
    sizes = [leaf.weight for leaf in expected.tree_.leaves()]
    np.testing.assert_allclose(sizes, np.bincount(labels, weights))


@pytest.mark.usefixtures("few_rows", "here")
@pytest.mark.parametrize("name", ["MSPC", "CPMMC"])
def test_float32_and_csr(name):
    rows, _ = groups(np.float32)
    model = MODELS[name]
    expected = pickle.loads(pickle.dumps(model.fit(rows)))
    same_fit(model.fit(in_blocks(rows, (400,))), expected, rows)
    spaced = np.where(np.abs(X) > 1.0, X, 0.0)
    expected = pickle.loads(pickle.dumps(model.fit(sparse.csr_matrix(spaced))))
    same_fit(model.fit(csr_blocks(spaced, (400,))), expected, spaced)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["MSPC", "CPMMC"])
def test_few_rows_are_read_three_times(name):
    """All rows fit into the sample of the root, so the blocks are not read again."""
    model = MODELS[name]
    expected = pickle.loads(pickle.dumps(model.fit(X, sample_weight=WEIGHTS)))
    lazy, weights = in_blocks(X, (400,)), da.from_array(WEIGHTS, chunks=((400, 400, 400, 300),))
    found = passes_of(lambda: model.fit(lazy, sample_weight=weights))
    assert len(found) <= 4
    same_fit(model, expected, X)


@pytest.mark.usefixtures("few_rows", "here")
def test_passes_do_not_grow_with_the_number_of_clusters(monkeypatch):
    """Parts are split within the pool. Then there is one pass for sizes, and one per step."""
    monkeypatch.setattr(volmar.rows.parts, "MIN_POOL_ROWS", 1)
    for k in (3, K, 2 * K):
        model = MSPC(k, random_state=0)
        reports = passes_of(lambda model=model: model.fit(in_blocks(X)))
        kinds = [kind for report in reports for kind in report.figures]
        assert kinds.count("Drawn") == 2
        assert kinds.count("ClusterTotals") == model.n_iter_ + 1
        assert set(kinds) == {"Picked", "Squares", "MomentSum", "Drawn", "ClusterTotals"}
        assert len(reports) == 5 + model.n_iter_


@pytest.mark.usefixtures("few_rows", "here")
def test_rows_without_weight_are_not_drawn():
    weights = (TRUTH > 0).astype(float)
    recursive = CPMMC(K - 1, multiway="recursive", random_state=0)
    for model in (MSPC(K - 1, random_state=0), recursive):
        for given in (weights, da.from_array(weights, chunks=400)):
            model.fit(in_blocks(X), sample_weight=given)
            assert model.tree_.n_leaves == K - 1
            assert model.tree_.root.n_rows == N
            counted = TRUTH > 0
            labels = model.labels_.compute()
            assert adjusted_rand_score(TRUTH[counted], labels[counted]) > 0.98


@pytest.mark.usefixtures("few_rows", "here")
def test_a_frame_gets_labels_with_its_index():
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    table = pd.DataFrame(X, columns=list("abcd"), index=np.arange(N)[::-1])
    frame = dd.from_pandas(table, npartitions=4, sort=False)
    expected = MSPC(K, random_state=0).fit(table)
    model = MSPC(K, random_state=0).fit(frame)
    np.testing.assert_array_equal(model.labels_.compute().to_numpy(), expected.labels_)
    assert "labels" in frame.assign(labels=model.labels_).compute()
    assert str(model.tree_) == str(expected.tree_)


@pytest.mark.parametrize("name", ["MSPC", "CPMMC", "SKMMC", "MSPC rbf"])
def test_functions_tell_the_sides_of_a_split(name):
    model = MODELS[name].fit(X[:600])
    for node in model.tree_.splits():
        side = pickle.loads(pickle.dumps(side_of(node.model)))
        expected = node.model.decision_function(X) > 0
        for rows in (X, sparse.csr_matrix(X)):
            np.testing.assert_array_equal(side(rows), expected)


# ---------------------------------------------------------------------- clusters of dask


class Stopper:
    """Does something to the cluster once samples of parts have been drawn."""

    def __init__(self, action):
        self.action, self.n_drawn, self.done = action, 0, 0

    def __call__(self, report):
        self.n_drawn += "Drawn" in report.figures
        if self.n_drawn == 2 and not self.done:
            self.done = report.number
            self.action()


def kill(pid):
    os.kill(pid, signal.SIGKILL)


@pytest.mark.nightly
@pytest.mark.usefixtures("few_rows")
def test_workers_that_are_killed_or_paused(tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "GLANCE", 0.2)
    lazy = stored(tmp_path, X, (150,) * 10)
    with dask.config.set(scheduler="synchronous"):
        expected = MSPC(K, random_state=0).fit(lazy).labels_.compute()

    def paused(dask_worker):
        from distributed.core import Status

        dask_worker.status = Status.paused

    with cluster_of(3) as client:
        held = persisted(lazy)
        pids = client.run(os.getpid)
        address, pid = next(iter(pids.items()))
        killed = Stopper(lambda: kill(pid))
        model = bounded(fit_reporting, MSPC(K, random_state=0), held, killed)
        assert killed.done
        assert pid not in client.run(os.getpid).values()
        np.testing.assert_array_equal(bounded(model.labels_.compute), expected)
    with cluster_of(2) as client:
        held = persisted(lazy)
        address = next(iter(client.nthreads()))

        def pause():
            client.run(paused, workers=[address])
            time.sleep(0.3)  # until the scheduler notices

        stopped = Stopper(pause)
        with pytest.warns(UserWarning, match="1 of 2 workers are paused"):
            model = bounded(fit_reporting, MSPC(K, random_state=0), held, stopped)
        assert stopped.done
        np.testing.assert_array_equal(model.predict(X), expected)


@pytest.mark.usefixtures("few_rows")
def test_no_workers_are_left(tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "GLANCE", 0.2)
    monkeypatch.setattr(passes, "PATIENCE", 1.0)
    with cluster_of(1, processes=False) as client:
        held = persisted(stored(tmp_path, X, (500,) * 3))
        gone = Stopper(lambda: client.cluster.scale(0))
        model = MSPC(K, random_state=0)
        with pytest.raises(LostBlocksError, match="no worker for 1 seconds"):
            bounded(fit_reporting, model, held, gone)
        assert not hasattr(model, "tree_")


@pytest.mark.usefixtures("few_rows", "here")
def test_an_interrupted_fit_leaves_nothing():
    class Interruption(BaseException):
        pass

    def interrupt():
        raise Interruption

    model = MSPC(K, random_state=0).fit(X[:600])
    with pytest.raises(Interruption):
        fit_reporting(model, in_blocks(X), Stopper(interrupt))
    assert not hasattr(model, "labels_")
    assert not hasattr(model, "tree_")
