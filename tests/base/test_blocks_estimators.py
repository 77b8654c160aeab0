"""Estimators on dask collections: the same clusters as in memory, or a clear error."""

from __future__ import annotations

import pickle

import dask.array as da
import numpy as np
import pytest
from helpers.block_models import (
    CHUNKINGS,
    CLUSTERERS,
    MODELS,
    TAKE_BLOCKS,
    WEIGHTS,
    X,
    in_blocks,
    two_humps,
    y,
)
from scipy import sparse
from sklearn.base import clone

import volmar
from volmar import CPMMC, MSPC, KernelCPMMC
from volmar.metrics import clustering_error

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_the_same_clusters_as_in_memory(name, weighted):
    model = MODELS[name]
    # With up to 2000 rows in memory, margin starts are also compared on rows of weight 0.
    positive = isinstance(model.init, str) and not isinstance(model, MSPC)
    # The steps of the paper's algorithm depend on rounding with WEIGHTS, and not in reverse order.
    drawn = WEIGHTS[::-1].copy() if name == "CPMMC paper" else WEIGHTS
    weights = drawn + positive if weighted else None
    here = clone(model).fit(X, sample_weight=weights)
    assert clustering_error(y, here.labels_) < 0.4
    for sizes in CHUNKINGS[1:] if weighted else CHUNKINGS[::2]:
        lazy = in_blocks(X, sizes)
        # As an array, and as a dask array in other chunks.
        given = da.from_array(weights, chunks=300) if weighted and sizes == (400,) else weights
        there = clone(model).fit(lazy, sample_weight=given)
        np.testing.assert_array_equal(there.labels_.compute(), there.predict(X))
        assert there.labels_.dtype == np.int64
        assert there.labels_.chunks == there.predict(lazy).chunks == (lazy.chunks[0],)
        assert there.status_ is here.status_
        np.testing.assert_allclose(
            there.decision_function(X), here.decision_function(X), rtol=0, atol=1e-10
        )
        np.testing.assert_array_equal(there.labels_.compute(), here.labels_)
        assert there.objective_ == pytest.approx(here.objective_, rel=1e-9)
        assert there.n_iter_ == here.n_iter_


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["gep", "CPMMC", "landmarks"])
def test_more_rows_than_a_start_takes(name, weighted):
    """Starts are compared on a sample of rows of positive weight, the same as in memory."""
    X, y, rng = two_humps(2600, seed=1)
    weights = rng.integers(0, 3, 2600).astype(float) if weighted else None
    here = clone(MODELS[name]).fit(X, sample_weight=weights)
    for sizes in ((2600,), (999,)):
        there = clone(MODELS[name]).fit(in_blocks(X, sizes), sample_weight=weights)
        np.testing.assert_allclose(
            there.decision_function(X), here.decision_function(X), rtol=0, atol=1e-10
        )
    assert clustering_error(y, here.labels_) < 0.1


@pytest.mark.parametrize("name", ["gep", "mpm", "CPMMC", "landmarks"])
def test_float32(name):
    small = X.astype(np.float32)
    here = clone(MODELS[name]).fit(X)
    there = clone(MODELS[name]).fit(in_blocks(small))
    scores = there.decision_function(in_blocks(small))
    assert scores.dtype == np.float32
    close = {"rtol": 0, "atol": 0.05 * np.abs(here.decision_function(X)).max()}
    np.testing.assert_allclose(scores.compute(), here.decision_function(X), **close)
    np.testing.assert_array_equal(there.labels_.compute(), there.predict(small))


@pytest.mark.parametrize("name", ["gep", "eig", "CPMMC", "landmarks"])
def test_sparse_blocks(name):
    S = X * (np.random.default_rng(0).random(X.shape) < 0.6)
    lazy = in_blocks(S).map_blocks(
        sparse.csr_matrix, dtype=S.dtype, meta=sparse.csr_matrix((0, 0))
    )
    here = clone(MODELS[name]).fit(sparse.csr_array(S))
    there = clone(MODELS[name]).fit(lazy)
    np.testing.assert_array_equal(there.labels_.compute(), here.labels_)
    scores = there.decision_function(lazy).compute()
    np.testing.assert_allclose(scores, here.decision_function(S), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["gep", "CPMMC"])
def test_integers_truths_and_columns_in_chunks(name):
    counts = np.round(X).astype(np.int16)
    here = clone(MODELS[name]).fit(counts)
    lazy = da.from_array(counts, chunks=(300, 3))
    there = clone(MODELS[name]).fit(lazy)
    np.testing.assert_array_equal(there.labels_.compute(), here.labels_)
    np.testing.assert_array_equal(there.predict(lazy).compute(), here.labels_)


@pytest.mark.parametrize("n", [2, 7])
@pytest.mark.parametrize("name", ["gep", "eig", "CPMMC"])
def test_few_rows(name, n):
    few = np.column_stack([np.arange(n) + 10.0 * (np.arange(n) >= n / 2), np.arange(n) % 2])
    here = clone(MODELS[name]).fit(few)
    there = clone(MODELS[name]).fit(in_blocks(few, (1,)))
    np.testing.assert_array_equal(there.labels_.compute(), here.labels_)


@pytest.mark.parametrize("kind", ["array", "dask", "dask in other chunks", "words", "truths"])
@pytest.mark.parametrize("make", [MSPC, CPMMC])
def test_labels_to_start_from(make, kind):
    init = {
        "array": y,
        "dask": da.from_array(y, chunks=400),
        "dask in other chunks": da.from_array(y, chunks=123),
        "words": np.where(y, "up", "down"),
        "truths": y.astype(bool),
    }[kind]
    # In memory, strings are numbered alphabetically as well.
    here = make(init=y, **({"scan": "histogram"} if make is MSPC else {})).fit(X)
    there = clone(make(init=init)).fit(in_blocks(X))
    np.testing.assert_array_equal(there.labels_.compute(), here.labels_)


@pytest.mark.parametrize("make", [MSPC, CPMMC])
def test_labels_that_cannot_be_started_from(make):
    lazy = in_blocks(X)
    with pytest.raises(ValueError, match=r"^init .*\(1100,\)"):
        make(init=y[:-1]).fit(lazy)
    with pytest.raises(ValueError, match=r"^init .*got 1"):
        make(init=np.zeros(1100)).fit(lazy)
    with pytest.raises(ValueError, match=r"^init .*got 3"):
        make(init=np.arange(1100) % 3).fit(lazy)
    with pytest.raises(ValueError, match="init holds NaN"):
        make(init=np.where(y, 1.0, np.nan)).fit(lazy)


def test_one_cluster():
    for make in (MSPC, CPMMC):
        model = make(n_clusters=1).fit(in_blocks(X))
        assert model.labels_.chunks == ((400, 400, 300),)
        assert not model.labels_.compute().any()
        assert not model.predict(in_blocks(X)).compute().any()
        again = pickle.loads(pickle.dumps(model))
        assert not again.predict(X).any()


# ---------------------------------------------------------------------- refusals


def test_who_takes_blocks():
    assert {"MSPC", "CPMMC", "KernelCPMMC"} <= TAKE_BLOCKS
    assert len(CLUSTERERS) - len(TAKE_BLOCKS) > 8


@pytest.mark.parametrize("name", sorted(set(CLUSTERERS) - TAKE_BLOCKS))
def test_the_others_say_who_can(name):
    lazy = in_blocks(X[:60], (20,))
    with pytest.raises(
        TypeError, match=rf"{name} cannot take a dask array.*MSPC, CPMMC"
    ) as caught:
        getattr(volmar, name)().fit(lazy)
    assert ".compute()" in str(caught.value)


def test_a_second_fit_of_rows_in_blocks_leaves_nothing_of_the_first():
    rng = np.random.default_rng(0)
    three = rng.normal(size=(300, 4)) + 9.0 * np.eye(4)[np.arange(300) % 3]
    four = rng.normal(size=(400, 4)) + 9.0 * np.eye(4)[np.arange(400) % 4]
    model = MSPC(3, random_state=0).fit(in_blocks(three))
    model.set_params(n_clusters=4).fit(in_blocks(four))
    fresh = MSPC(4, random_state=0).fit(in_blocks(four))
    assert fresh.tree_.n_leaves == 4
    np.testing.assert_array_equal(model.decision_function(four), fresh.decision_function(four))


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (MSPC(scan="exact"), "rows in blocks cannot be sorted"),
        (MSPC(init="k-means"), "k-means needs rows in memory"),
        (MSPC(mode="paper"), "k-means needs rows in memory"),
        (MSPC(kernel="precomputed"), "needs all rows at once"),
        (CPMMC(mode="paper"), "give init, the labels to start from"),
        (KernelCPMMC(method="exact"), "whole kernel matrix"),
        (KernelCPMMC(mode="paper", init=np.zeros(3)), "whole kernel matrix"),
        (KernelCPMMC(kernel="precomputed"), "needs all rows at once"),
    ],
)
def test_parameters_that_need_all_rows(model, why):
    with pytest.raises(TypeError, match=rf"cannot take a dask array.*{why}.*MSPC, CPMMC"):
        model.fit(in_blocks(X))
    assert not hasattr(model, "labels_")


@pytest.mark.parametrize(("make", "is_sparse"), [(MSPC, False), (MSPC, True), (CPMMC, False)])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e200])
@pytest.mark.parametrize("row", [0, 1099])
def test_entries_that_are_no_numbers(make, wrong, row, is_sparse):
    bad = X.copy()
    bad[row, 2] = wrong
    lazy = in_blocks(bad)
    if is_sparse:
        lazy = lazy.map_blocks(sparse.csr_matrix, meta=sparse.csr_matrix((0, 0)))
    model = make()
    with pytest.raises(ValueError, match="NaN or infinity"):
        model.fit(lazy)
    assert not hasattr(model, "labels_")


@pytest.mark.parametrize("make", [MSPC, CPMMC])
def test_scales_out_of_range(make):
    for scale in (1e149, 1e-155):
        with pytest.raises(ValueError, match="limits of float64"):
            make().fit(in_blocks(X * scale))


@pytest.mark.parametrize("make", [MSPC, CPMMC])
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_rows_that_are_all_the_same(make, value):
    with pytest.raises(ValueError, match=r"rows of X are the same|rows of X differ"):
        make(random_state=0).fit(da.full((100, 3), value, chunks=(30, 3)))


@pytest.mark.parametrize("make", [MSPC, CPMMC])
def test_shapes_and_kinds(make):
    with pytest.raises(ValueError, match="n_samples=1 row"):
        make().fit(da.ones((1, 3)))
    with pytest.raises(ValueError, match=r"^X .*least one row"):
        make().fit(da.ones((0, 3)))
    with pytest.raises(ValueError, match="two dimensions"):
        make().fit(da.ones(10))
    with pytest.raises(TypeError, match="real numbers"):
        make().fit(da.from_array(np.array([["a", "b"]] * 5)))


@pytest.mark.parametrize("make", [MSPC, CPMMC])
def test_weights_that_are_none(make):
    lazy = in_blocks(X)
    wrong = {
        r"^sample_weight .*\(1100,\)": WEIGHTS[:-1],
        "^sample_weight .*got -1": np.where(np.arange(1100) == 700, -1.0, 1.0),
        "^sample_weight .*got nan": np.where(np.arange(1100) == 700, np.nan, 1.0),
        "^sample_weight .*got inf": np.where(np.arange(1100) == 700, np.inf, 1.0),
        "got only zeros": np.zeros(1100),
        "more than the number of rows with a positive": (np.arange(1100) == 5).astype(float),
    }
    for message, weights in wrong.items():
        with pytest.raises(ValueError, match=message):
            make().fit(lazy, sample_weight=weights)
    lazy_weights = da.from_array(np.where(np.arange(1100) == 700, -1.0, 1.0), chunks=500)
    with pytest.raises(ValueError, match=r"not negative, got -1"):
        make().fit(lazy, sample_weight=lazy_weights)
    with pytest.raises(TypeError, match="sample_weight must hold real numbers"):
        make().fit(lazy, sample_weight=np.full(1100, "a"))


@pytest.mark.parametrize("name", ["eig", "CPMMC"])
def test_one_weight_for_all(name):
    here = clone(MODELS[name]).fit(in_blocks(X))
    for weights in (2.0, np.full(1100, 2.0)):
        there = clone(MODELS[name]).fit(in_blocks(X), sample_weight=weights)
        np.testing.assert_allclose(
            there.decision_function(X), here.decision_function(X), rtol=0, atol=1e-9
        )
