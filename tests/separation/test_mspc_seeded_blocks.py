"""MSPC of rows in blocks, some of which have labels."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from volmar import MSPC
from volmar.base.blocks import RefusedBlocksError
from volmar.guidance.guide import Guide
from volmar.rows.anywhere import as_rows, reweighted
from volmar.rows.standardized import standardized
from volmar.separation import guided as seeded_blocks
from volmar.separation.gep import RegularizedCorrelation
from volmar.separation.guided import GuidedScan, SeededScan

da = pytest.importorskip("dask.array")

NAMES = np.array([4, 9, 11, 20])


@pytest.fixture(scope="module")
def square():
    corners = np.array([[0, 0, 0], [0, 8, 0], [8, 0, 0], [8, 8, 0.0]])
    X, corner = make_blobs([300] * 4, centers=corners, cluster_std=1.5, random_state=0)
    return X, corner


def seeds_of(truth, step):
    y = np.full(truth.size, -1)
    y[::step] = NAMES[truth[::step]]
    return y


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("is_lazy", [True, False])
@pytest.mark.parametrize("is_weighted", [True, False])
def test_labels_in_blocks_are_those_in_memory(square, k, is_lazy, is_weighted):
    X, corner = square
    truth = corner if k == 4 else corner % 2
    y = seeds_of(truth, 13)
    y[[3, 500]] = NAMES[(truth[[3, 500]] + 1) % 2]  # wrong ones
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 1200) if is_weighted else None
    blocks = da.from_array(X, chunks=(170, 3))
    given = da.from_array(y, chunks=300) if is_lazy else y
    model = MSPC(k, random_state=0).fit(blocks, given, weights)
    here = MSPC(k, random_state=0).fit(X, y, weights)
    labels = model.labels_.compute()
    np.testing.assert_array_equal(model.classes_, NAMES[:k])
    np.testing.assert_array_equal(labels[y >= 0], y[y >= 0])
    np.testing.assert_array_equal(labels[y < 0], model.predict(blocks).compute()[y < 0])
    assert np.mean(labels == here.labels_) > 0.99
    assert np.mean(labels == NAMES[truth]) > 0.97


def test_a_small_sample_is_enough(square, monkeypatch):
    """Labels outside the sample count in the sums, and every class is in the sample."""
    monkeypatch.setattr(seeded_blocks, "DRAWN_ROWS", 200)
    monkeypatch.setattr(seeded_blocks, "MAX_SEEDS", 30)
    X, corner = square
    order = np.argsort(corner, kind="stable")  # the first labels are those of one class
    X, corner = X[order], corner[order]
    y = seeds_of(corner, 5)
    model = MSPC(4, tol=0.0, random_state=0).fit(da.from_array(X, chunks=(250, 3)), y)
    labels = model.labels_.compute()
    np.testing.assert_array_equal(labels[y >= 0], y[y >= 0])
    assert np.mean(labels == NAMES[corner]) > 0.98
    # The discriminants are those of the moments of these labels.
    numbers = np.searchsorted(NAMES, labels)
    guide = Guide(4, np.where(y >= 0, np.searchsorted(NAMES, y), -1))
    refit = MSPC(4, init=numbers, reg=model.reg_, tol=0.0, random_state=0)
    refit._guide, refit.n_features_in_ = guide, 3
    refit._fit_once(X, None)
    np.testing.assert_allclose(refit.coef_, model.coef_, rtol=1e-8, atol=1e-10)


def test_the_scan_of_blocks_is_that_of_memory(square):
    X, corner = square
    rng = np.random.default_rng(0)
    seeds = np.where(rng.random(1200) < 0.1, corner % 2, -1)
    weights = rng.uniform(0.5, 2.0, 1200)
    here = standardized(as_rows(X, sample_weight=weights))
    blocks = da.from_array(X, chunks=(170, 3))
    source = as_rows(blocks, sample_weight=da.from_array(weights, chunks=170))
    there = standardized(source)
    vector = source.table.beside(da.from_array(seeds, chunks=170))
    w = np.array([0.2, 1.0, -0.1])
    variance = RegularizedCorrelation(here.correlation, 1.0).variance(w)
    exact = GuidedScan(Guide(2, seeds, weights=weights), weights)
    one = exact(here, w, np.zeros(1200, dtype=bool), variance, 0.0)
    two = SeededScan(there, vector)(there, w, vector == 1, variance, 0.0)
    assert two.kappa2 <= one.kappa2 * (1 + 1e-12)
    assert two.kappa2 == pytest.approx(one.kappa2, rel=1e-2)
    labels = two.labels.to_dask().compute()
    assert np.mean(labels == one.labels) > 0.99
    Z = here.transform(X)
    means = [np.average(Z[labels == c], axis=0, weights=weights[labels == c]) for c in (0, 1)]
    np.testing.assert_allclose(two.difference, means[1] - means[0], atol=1e-10)


def test_other_weights_of_the_same_rows(square):
    X, _ = square
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 1200)
    rows = as_rows(X).centered()
    again = reweighted(rows, weights)
    np.testing.assert_allclose(again.mean(), weights @ (X - X.mean(axis=0)) / weights.sum())
    assert again.total_weight == pytest.approx(weights.sum())
    assert rows.total_weight == 1200


def test_names_in_memory(square):
    X, corner = square
    y = np.full(1200, None, dtype=object)
    y[::13] = np.array(["a", "b", "c", "d"])[corner[::13]]
    blocks = da.from_array(X, chunks=(400, 3))
    model = MSPC(4, random_state=0).fit(blocks, y)
    assert model.classes_.tolist() == ["a", "b", "c", "d"]
    assert model.labels_.compute()[0] == y[0]
    noise = da.from_array(np.random.default_rng(0).standard_normal((300, 3)), chunks=(100, 3))
    one = np.full(300, -1)
    one[5] = 7
    found = MSPC(1, random_state=0).fit(noise, one)
    assert found.labels_.compute().tolist() == [7] * 300


@pytest.mark.parametrize("kernel", ["rbf"])
def test_a_kernel_in_blocks(square, kernel):
    X, corner = square
    blocks = da.from_array(X, chunks=(400, 3))
    model = MSPC(4, kernel=kernel, gamma=0.05, random_state=0).fit(blocks, seeds_of(corner, 13))
    assert np.mean(model.labels_.compute() == NAMES[corner]) > 0.95


def test_a_frame_has_labels_of_its_index(square):
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    X, corner = square
    frame = pd.DataFrame(X, columns=["a", "b", "c"], index=np.arange(1200) + 5)
    frame["y"] = seeds_of(corner, 13)
    parts = dd.from_pandas(frame, npartitions=3)
    model = MSPC(4, random_state=0).fit(parts[["a", "b", "c"]], parts["y"])
    together = parts.assign(found=model.labels_).compute()
    known = together["y"] >= 0
    assert (together["found"] == together["y"])[known].all()
    assert np.mean(together["found"].to_numpy() == NAMES[corner]) > 0.97


def test_complete_and_empty_labels_are_ignored(square):
    X, corner = square
    blocks = da.from_array(X, chunks=(400, 3))
    free = MSPC(4, random_state=0).fit(blocks)
    for y in (corner, da.from_array(corner, chunks=400), np.full(1200, -1), None):
        model = MSPC(4, random_state=0).fit(blocks, y)
        np.testing.assert_array_equal(model.coef_, free.coef_)
        assert not hasattr(model, "classes_")


def test_what_blocks_do_not_take(square):
    X, corner = square
    blocks = da.from_array(X, chunks=(400, 3))
    with pytest.raises(RefusedBlocksError, match="must_link or cannot_link"):
        MSPC(random_state=0).fit(blocks, must_link=np.zeros(1200))
    with pytest.raises(RefusedBlocksError, match="limit on cluster sizes"):
        MSPC(max_cluster_size=700, random_state=0).fit(blocks)
    with pytest.raises(TypeError, match="y must hold integers"):
        MSPC(random_state=0).fit(blocks, da.from_array(np.full(1200, "a"), chunks=400))
    with pytest.raises(ValueError, match=r"^y .*each row"):
        MSPC(random_state=0).fit(blocks, da.from_array(corner[:7], chunks=400))
    with pytest.raises(ValueError, match=r"^n_clusters=2"):
        MSPC(random_state=0).fit(blocks, seeds_of(corner, 13))
