"""More than two clusters at once on the rows of dask collections: the answer in memory."""

import dask
import dask.array as da
import numpy as np
import pytest
from helpers.block_models import in_blocks

from volmar import CPMMC, KernelCPMMC
from volmar.distributed import report_passes
from volmar.margin import multiway
from volmar.margin.multiway import shares_of_clusters, sized_labels
from volmar.rows.anywhere import as_rows
from volmar.rows.blocks import as_table

N, K = 2600, 4
CHUNKINGS = [(N,), (900,), (0, 1237, 1, 1362)]


@pytest.fixture(autouse=True)
def _threads():
    with dask.config.set(scheduler="threads", num_workers=2):
        yield


def four_groups(n=N, d=5, spread=1.0, seed=0, dtype=np.float64):
    """Groups of 40, 30, 20 and 10 % about random centres."""
    rng = np.random.default_rng(seed)
    y = rng.choice(K, n, p=[0.4, 0.3, 0.2, 0.1])
    return (3.0 * rng.normal(size=(K, d))[y] + spread * rng.normal(size=(n, d))).astype(dtype), y


MODELS = {
    "CPMMC": CPMMC(K, random_state=0),
    "CPMMC C=3": CPMMC(K, C=3.0, random_state=0),
    "sizes": CPMMC(K, min_cluster_size=0.2, random_state=0),
    "landmarks": KernelCPMMC(K, method="nystroem", n_landmarks=20, gamma="scale", random_state=0),
    "width": KernelCPMMC(3, method="nystroem", n_landmarks=20, random_state=0),
}


def check_same(near, far, X, D, atol=1e-9):
    np.testing.assert_array_equal(far.labels_.compute(), near.labels_)
    np.testing.assert_array_equal(far.predict(D).compute(), near.predict(X))
    scores = far.decision_function(D).compute()
    np.testing.assert_allclose(scores, near.decision_function(X), rtol=0, atol=atol)
    assert (far.n_iter_, far.status_) == (near.n_iter_, near.status_)
    assert far.objective_ == pytest.approx(near.objective_, rel=1e-8)
    assert far.result_.gap == pytest.approx(near.result_.gap, rel=1e-5, abs=1e-12)
    assert far.result_.scores.shape == near.result_.scores.shape
    np.testing.assert_allclose(far.result_.scores.compute(), near.result_.scores, atol=atol)


@pytest.mark.parametrize("name", MODELS)
def test_the_same_clusters_as_in_memory(name):
    X, _ = four_groups()
    near = MODELS[name].fit(X)
    for sizes in CHUNKINGS if name == "CPMMC" else CHUNKINGS[2:]:
        D = in_blocks(X, sizes)
        far = MODELS[name].__class__(**MODELS[name].get_params()).fit(D)
        check_same(near, far, X, D)


@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_weights_in_blocks_are_those_in_memory(spread):
    X, _ = four_groups(spread=spread)
    weights = np.random.default_rng(1).integers(0, 3, N).astype(float)
    D = in_blocks(X, CHUNKINGS[2])
    near = CPMMC(K, random_state=0).fit(X, sample_weight=weights)
    for given in (weights, da.from_array(weights, chunks=700)):
        far = CPMMC(K, random_state=0).fit(D, sample_weight=given)
        check_same(near, far, X, D)


def test_labels_to_start_from():
    X, y = four_groups(spread=2.0)
    names = np.array(["d", "a", "c", "b"])[y]
    near = CPMMC(K, init=names, random_state=0).fit(X)
    for given in (names, da.from_array(names, chunks=700)):
        far = CPMMC(K, init=given, random_state=0).fit(in_blocks(X))
        check_same(near, far, X, in_blocks(X))
    with pytest.raises(ValueError, match=r"^init .*got 2"):
        CPMMC(K, init=y > 1).fit(in_blocks(X))


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_float32(offset):
    X, _ = four_groups()
    X = (X + offset).astype(np.float32)
    near, far = (CPMMC(K, random_state=0).fit(rows) for rows in (X, in_blocks(X)))
    assert far.decision_function(X).dtype == np.float32
    assert np.mean(far.labels_.compute() != near.labels_) <= 1e-3
    assert far.objective_ == pytest.approx(near.objective_, rel=1e-3)


def test_a_data_frame_with_labels_beside_its_columns():
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    X, _ = four_groups()
    frame = pd.DataFrame(X, columns=list("abcde"))
    parts = dd.from_pandas(frame, npartitions=3)
    near, far = (CPMMC(K, random_state=0).fit(rows) for rows in (frame, parts))
    found = parts.assign(cluster=far.predict(parts), fitted=far.labels_).compute()
    np.testing.assert_array_equal(found["cluster"], near.labels_)
    np.testing.assert_array_equal(found["fitted"], near.labels_)


@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_a_step_is_one_pass(spread):
    X, _ = four_groups(spread=spread)
    passes = []
    with report_passes(passes.append):
        model = CPMMC(K, random_state=0).fit(in_blocks(X))
    # Besides steps: first rows, checks, sample for starts, sizes, weighted mean (2), sizes, means,
    # offsets, margin (2), first cuts (2), rows for offsets, final mean, sizes, and a second if
    # the sample was wrong about the need for offsets.
    assert len(passes) <= 1.1 * model.n_iter_ + 17
    assert sum("Picked" in one.figures for one in passes) <= 3


def test_few_numbers_travel():
    X, _ = four_groups(30_000, d=3, spread=2.0)
    passes = []
    with report_passes(passes.append):
        CPMMC(K, random_state=0).fit(in_blocks(X, (9000,)))
    assert not {"Given", "Distinct"} & {kind for one in passes for kind in one.figures}


# ------------------------------------------------------------------ sizes


@pytest.mark.parametrize(
    ("floor", "weighted"),
    [(0.05, False), (0.15, False), (0.25, False), (0.15, True), (0.24, True)],
)
def test_offsets_in_blocks_are_those_in_memory(monkeypatch, floor, weighted):
    monkeypatch.setattr(multiway, "MIN_SAMPLE", 400)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    W = rng.normal(size=(3, K))
    table = as_table(in_blocks(X, CHUNKINGS[2]))
    shares = rng.random(N)
    shares /= shares.sum()
    p = shares if weighted else None
    there = table.beside(da.from_array(shares, chunks=(table.rows_of.X.chunks[0],)))
    shift = np.array([3.0, 0.0, 0.0, -1.0])
    near = sized_labels(as_rows(X).scores(W) + shift, p, floor)
    far = sized_labels(as_rows(table).scores(W) + shift, there if weighted else None, floor)
    np.testing.assert_allclose(far.offsets, near.offsets, atol=1e-9)
    np.testing.assert_array_equal(far.labels.to_dask().compute(), near.labels)
    assert shares_of_clusters(near.labels, K, p).min() >= floor * (1 - 1e-9)


def test_clusters_that_no_rows_can_fill_are_reported():
    X = np.repeat(np.eye(4), 30, axis=0)
    with pytest.raises(ValueError, match="Lower n_clusters"):
        CPMMC(5, random_state=0).fit(in_blocks(X, (50,)))
