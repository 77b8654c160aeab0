"""Lazy predictions and passes of estimators on dask collections."""

from __future__ import annotations

import pickle

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from dask.dataframe import from_pandas
from helpers.block_models import (
    CLUSTERERS,
    FAR_APART,
    MODELS,
    X,
    in_blocks,
    two_humps,
)
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import volmar
from volmar import CPMMC, MSPC, KernelCPMMC
from volmar.base.clusterer import Clusterer
from volmar.distributed import report_passes
from volmar.rows.anywhere import as_rows, constant_vector
from volmar.rows.blocks import as_beside, as_table
from volmar.rows.standardized import standardized
from volmar.separation.gep import exact_scan, histogram_scan, mean_difference

pytestmark = pytest.mark.usefixtures("one_thread")


def test_predictions_are_lazy():
    model = clone(MODELS["gep"]).fit(in_blocks(X))
    read = []

    def seen(block):
        read.append(len(block))
        return block

    lazy = in_blocks(X, (300, 0, 50)).map_blocks(seen, meta=X[:0])
    scores, labels = model.decision_function(lazy), model.predict(lazy)
    assert not read
    assert scores.chunks == labels.chunks == (lazy.chunks[0],)
    assert (scores.dtype, labels.dtype) == (np.float64, np.int64)
    np.testing.assert_array_equal(scores.compute(), model.decision_function(X))
    np.testing.assert_array_equal(labels.compute(), model.predict(X))
    assert sum(read) == 2 * len(X)


def test_predictions_of_unknown_chunks():
    model = clone(MODELS["CPMMC"]).fit(in_blocks(X))
    lazy = da.from_array(X, chunks=(300, 3))
    for limit in (5.0, 12.0, 1e9):  # some blocks, and all, are empty
        some = lazy[lazy[:, 0] > limit]
        expected = X[X[:, 0] > limit]
        labels = model.predict(some)
        assert np.isnan(labels.shape[0])
        assert labels.numblocks == (some.numblocks[0],)
        found = labels.compute()
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, model.predict(expected) if len(expected) else [])


def test_fit_to_unknown_chunks():
    lazy = da.from_array(X, chunks=(300, 4))
    some = lazy[lazy[:, 0] > 5.0]
    there = clone(MODELS["CPMMC"]).fit(some, sample_weight=lazy[:, 0][lazy[:, 0] > 5.0])
    kept = X[X[:, 0] > 5.0]
    here = clone(MODELS["CPMMC"]).fit(kept, sample_weight=kept[:, 0])
    np.testing.assert_array_equal(there.labels_.compute(), here.labels_)


def frames():
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(X, columns=["one", "two", "three", "four"])
    return frame, dd.from_pandas(frame, npartitions=3)


def test_data_frames():
    frame, lazy = frames()
    here = clone(MODELS["gep"]).fit(frame)
    there = clone(MODELS["gep"]).fit(lazy)
    assert list(there.feature_names_in_) == list(here.feature_names_in_)
    np.testing.assert_array_equal(there.labels_.compute(), here.labels_)
    for other in (lazy, frame):
        np.testing.assert_array_equal(np.asarray(there.predict(other)), here.labels_)
    np.testing.assert_array_equal(here.predict(lazy).compute(), here.labels_)
    with pytest.raises(ValueError, match=r"^X .*got two, one"):
        there.predict(lazy[["two", "one", "three", "four"]])
    with pytest.raises(ValueError, match=r"columns seen in fit"):
        there.predict(lazy[["one", "two"]])
    with pytest.raises(ValueError, match=r"columns seen in fit|features"):
        there.predict(lazy["one"])
    nameless = clone(MODELS["gep"]).fit(in_blocks(X))
    with pytest.raises(ValueError, match="4 features"):
        nameless.predict(lazy["one"])
    with pytest.raises(TypeError, match="real numbers"):
        nameless.predict(lazy.astype(object))


@pytest.fixture(scope="module")
def many_files(tmp_path_factory):
    """Twelve small Parquet files with columns that are not features, and the same in memory."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(X, columns=["one", "two", "three", "four"]).assign(name="a", number=7)
    folder = tmp_path_factory.mktemp("parquet")
    for i, rows in enumerate(np.array_split(np.arange(len(X)), 12)):
        frame.iloc[rows].to_parquet(folder / f"{i:02}.parquet")
    return folder, frame


FEATURES = ["one", "two", "three", "four"]


@pytest.mark.parametrize(
    "taken",
    [
        lambda dd, folder: dd.read_parquet(folder)[FEATURES],
        lambda dd, folder: dd.read_parquet(folder, columns=FEATURES),
        lambda dd, folder: dd.read_parquet(folder).drop(columns=["name", "number"]),
        lambda dd, folder: dd.read_parquet(folder).drop(columns="number").select_dtypes("number"),
        lambda dd, folder: dd.read_parquet(folder)[FEATURES].repartition(npartitions=5),
        lambda dd, folder: dd.read_parquet(folder)[FEATURES].set_index("one", drop=False),
    ],
    ids=["columns", "columns=", "drop", "select_dtypes", "repartition", "set_index"],
)
def test_parquet_files_are_fitted_and_labels_assigned(taken, many_files):
    dd = pytest.importorskip("dask.dataframe")
    folder, _ = many_files
    lazy = taken(dd, folder)
    frame = lazy.compute()
    here = clone(MODELS["gep"]).fit(frame)
    there = clone(MODELS["gep"]).fit(lazy)
    for labels in (there.labels_, there.result_.labels, there.predict(lazy)):
        assert labels.npartitions == lazy.npartitions
        assert labels.divisions == lazy.divisions
        joined = lazy.assign(cluster=labels).compute()
        np.testing.assert_array_equal(joined["cluster"], here.labels_)
        np.testing.assert_array_equal(joined[FEATURES], frame[FEATURES])
    scores = lazy.assign(score=there.decision_function(lazy)).compute()["score"]
    np.testing.assert_allclose(scores, here.decision_function(frame), rtol=1e-9, atol=1e-9)
    assert not hasattr(pickle.loads(pickle.dumps(there)), "labels_")


def test_parquet_weights_and_start_labels(many_files):
    dd = pytest.importorskip("dask.dataframe")
    folder, frame = many_files
    table = dd.read_parquet(folder)
    start = (table["one"] > frame["one"].median()).astype(int)
    there = clone(MODELS["gep"]).set_params(init=start)
    there.fit(table[FEATURES], sample_weight=abs(table["two"]))
    here = clone(MODELS["gep"]).set_params(init=(frame["one"] > frame["one"].median()).astype(int))
    here.fit(frame[FEATURES], sample_weight=abs(frame["two"]))
    np.testing.assert_array_equal(there.labels_.compute(), here.labels_)


def test_scores_of_several_clusters_have_a_column_each(many_files):
    dd = pytest.importorskip("dask.dataframe")
    folder, frame = many_files
    lazy = dd.read_parquet(folder)[FEATURES]
    model = MSPC(3, random_state=0).fit(frame[FEATURES])
    scores = model.decision_function(lazy)
    assert list(scores.columns) == [0, 1, 2]
    found = scores.compute()
    assert found.index.equals(frame.index)
    np.testing.assert_allclose(found, model.decision_function(frame[FEATURES]), rtol=1e-12)


def test_weights_of_a_data_frame():
    frame, lazy = frames()
    there = clone(MODELS["CPMMC"]).fit(lazy, sample_weight=abs(lazy["one"]))
    here = clone(MODELS["CPMMC"]).fit(frame, sample_weight=abs(frame["one"]))
    np.testing.assert_array_equal(there.labels_.compute(), here.labels_)


def test_predictions_of_other_features():
    model = clone(MODELS["gep"]).fit(in_blocks(X))
    for wrong in (in_blocks(X[:, :3]), in_blocks(np.hstack([X, X])), da.ones(4)):
        for method in (model.predict, model.decision_function):
            with pytest.raises(ValueError, match="4 features"):
                method(wrong)
    with pytest.raises(NotFittedError):
        MSPC().predict(in_blocks(X))
    # Wrong values inside are found when the predictions are computed.
    bad = X.copy()
    bad[500, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.predict(in_blocks(bad)).compute()


def fitted_in_memory(name):
    make = getattr(volmar, name)
    parameters = make().get_params()
    chosen = {"random_state": 0} if "random_state" in parameters else {}
    return make(**chosen).fit(FAR_APART[:80])


@pytest.mark.parametrize("name", CLUSTERERS)
def test_models_fitted_in_memory_predict_blocks(name):
    model = fitted_in_memory(name)
    assert isinstance(model, Clusterer)
    new = FAR_APART[80:200]
    lazy = in_blocks(new, (50, 0, 1))
    found = model.predict(lazy)
    assert found.chunks == (lazy.chunks[0],)
    np.testing.assert_array_equal(found.compute(), model.predict(new))
    scores = model.decision_function(lazy)
    np.testing.assert_allclose(scores.compute(), model.decision_function(new), rtol=1e-9)


def test_models_do_not_get_into_each_others_blocks():
    """Keys in a dask graph differ between models, and between vectors."""
    lazy = in_blocks(X)
    models = [clone(MODELS[name]).fit(lazy) for name in ("gep", "eig", "CPMMC")]
    found = dask.compute(*(model.decision_function(lazy) for model in models))
    labels = dask.compute(*(model.labels_ for model in models))
    for model, scores, own in zip(models, found, labels, strict=True):
        np.testing.assert_array_equal(scores, model.decision_function(X))
        np.testing.assert_array_equal(own, model.predict(X))


def test_similarities_in_blocks():
    few, new = FAR_APART[:60], FAR_APART[60:130]
    scale = float(few.var())
    model = KernelCPMMC(kernel="precomputed", random_state=0).fit(few @ few.T / scale)
    K = new @ few.T / scale
    np.testing.assert_array_equal(model.predict(in_blocks(K, (30,))).compute(), model.predict(K))


@pytest.mark.parametrize("model", [MSPC(3, random_state=0), CPMMC(3, random_state=0)])
def test_models_of_more_clusters_predict_blocks(model):
    wide = X.copy()
    wide[:300, 3] += 60.0
    model.fit(wide)
    lazy = in_blocks(wide, (300, 0, 50))
    scores = model.decision_function(lazy)
    assert scores.chunks == (lazy.chunks[0], (3,))
    np.testing.assert_allclose(scores.compute(), model.decision_function(wide))
    np.testing.assert_array_equal(model.predict(lazy).compute(), model.predict(wide))


# ---------------------------------------------------------------------- saved and copied


@pytest.mark.parametrize("name", ["gep", "CPMMC", "landmarks"])
def test_saved_models_predict(name):
    model = clone(MODELS[name]).fit(in_blocks(X))
    saved = pickle.dumps(model)
    again = pickle.loads(saved)
    assert not hasattr(again, "labels_")
    assert hasattr(model, "labels_")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict(in_blocks(X)).compute(), model.predict(X))
    assert again.objective_ == model.objective_
    fresh = clone(model)
    assert not hasattr(fresh, "objective_")
    np.testing.assert_array_equal(fresh.fit(in_blocks(X)).labels_.compute(), model.predict(X))


def test_saved_models_are_small():
    many = two_humps(20_000)[0]
    for model in (MSPC(random_state=0), CPMMC(random_state=0)):
        assert len(pickle.dumps(model.fit(in_blocks(many, (7000,))))) < 20_000


def test_as_many_features_as_rows():
    """Arrays with one entry per row are distinguished from arrays with one per feature."""
    square = two_humps(12, 12)[0]
    for model in (MSPC(random_state=0), CPMMC(random_state=0)):
        model.fit(in_blocks(square, (5,)))
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.predict(square), model.labels_.compute())


def test_fits_that_fail_leave_nothing():
    model = clone(MODELS["CPMMC"]).fit(in_blocks(X))
    with pytest.raises(TypeError):
        model.set_params(mode="paper").fit(in_blocks(X))
    assert not hasattr(model, "labels_")
    with pytest.raises(NotFittedError):
        model.predict(X)


# ---------------------------------------------------------------------- passes


def test_an_iteration_is_a_pass():
    passes = []
    with report_passes(passes.append):
        model = MSPC(random_state=0).fit(in_blocks(X))
    cuts = [report for report in passes if "Binned" in report.figures]
    assert len(cuts) == model.n_iter_
    assert len(passes) <= model.n_iter_ + 5


def test_threads():
    with dask.config.set(scheduler="threads"):
        for name in ("gep", "CPMMC"):
            there = clone(MODELS[name]).fit(in_blocks(X, (100,)))
            here = clone(MODELS[name]).fit(X)
            np.testing.assert_array_equal(there.labels_.compute(), here.labels_)


# ---------------------------------------------------------------------- the scan


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weighted", [False, True])
def test_histograms_find_nearly_the_best_cut(seed, weighted):
    """The bound at a bin edge is that of its labels, and only slightly below the best."""
    rng = np.random.default_rng(seed)
    X, _, _ = two_humps(3000, seed=seed)
    weights = rng.integers(0, 3, 3000).astype(float) if weighted else None
    z = standardized(as_rows(X, sample_weight=weights))
    least = 0.02 * z.rows.total_weight
    there = standardized(as_rows(in_blocks(X, (0, 999, 1)), sample_weight=weights))
    before = rng.random(3000) < 0.5
    for _ in range(4):
        w = rng.normal(size=4)
        variance = float(w @ z.correlation @ w) + float(w @ w)
        best = exact_scan(z, w, before, variance, least)
        found = histogram_scan(z, w, before, variance, least)
        assert 0.98 * best.kappa2 <= found.kappa2 <= best.kappa2 * (1 + 1e-9)
        np.testing.assert_allclose(
            found.difference, mean_difference(z, found.labels), rtol=1e-8, atol=1e-10
        )
        assert found.moves == np.mean(found.labels != before)
        here = as_beside(there.rows.table, before, "labels")
        lazy = histogram_scan(there, w, here, variance, least)
        assert lazy.threshold == pytest.approx(found.threshold, rel=1e-9)
        assert lazy.kappa2 == pytest.approx(found.kappa2, rel=1e-9)
        assert lazy.moves == found.moves
        np.testing.assert_array_equal(lazy.labels.to_dask().compute(), found.labels)


@pytest.mark.parametrize("kind", ["few values", "atoms among others", "many values"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_labels_of_a_cut_are_those_that_were_counted(kind, dtype):
    """Also if many rows share a value, even the mean, as for symmetric rows."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        whole = rng.integers(-2, 3, (100, 2))
        half = {
            "few values": whole,
            "atoms among others": np.vstack([whole // 2, rng.normal(size=(100, 2))]),
            "many values": rng.integers(0, 2000, (100, 2)) / 7,
        }[kind]
        z = standardized(as_rows(np.vstack([half, -half]).astype(dtype)))
        before = rng.random(2 * len(half)) < 0.5
        for w in (np.array([1.0, 0.0]), np.array([1.0, 1.0]), np.array([-2.0, 1.0])):
            variance = float(w @ z.correlation @ w) + float(w @ w)
            found = histogram_scan(z, w, before, variance, 2.0)
            assert found.moves == np.mean(found.labels != before)
            expected = mean_difference(z, found.labels)
            np.testing.assert_allclose(found.difference, expected, atol=1e-4)


def test_scans_without_a_cut():
    z = standardized(as_rows(X))
    labels = constant_vector(z.rows, False, bool)
    assert histogram_scan(z, np.ones(4), labels, 1.0, 0.6 * len(X)).kappa2 == -np.inf
    found = histogram_scan(z, np.zeros(4), labels, 1.0, 0.6 * len(X))
    assert found.kappa2 == -np.inf
    assert found.difference is None


def test_given_tables_are_used_as_they_are():
    table = as_table(in_blocks(X))
    assert as_rows(table).table is table


# ------------------------------------------------------------------ numbers of the clusters


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "model",
    [
        MSPC(scan="histogram"),
        MSPC(scan="histogram", solver="mpm"),
        CPMMC(),
        CPMMC(mode="paper"),
        KernelCPMMC(method="nystroem", n_landmarks=15, random_state=0),
    ],
)
def test_the_largest_cluster_is_the_first_without_another_pass(model, weighted):
    rng = np.random.default_rng(5)
    truth = (rng.random(600) < 0.3).astype(int)  # the larger group is 0
    rows = rng.normal(size=(600, 3)) + 9.0 * truth[:, None]
    weights = np.where(truth == 1, 4.0, 1.0) if weighted else None  # by weight, group 1 is larger
    expected = 1 - truth if weighted else truth
    numbers = []
    for start in (truth, 1 - truth):
        passes = []
        there = clone(model).set_params(init=start)
        with report_passes(passes.append):
            there.fit(in_blocks(rows), sample_weight=weights)
        numbers.append(len(passes))
        np.testing.assert_array_equal(there.labels_.compute(), expected)
        np.testing.assert_array_equal(there.predict(rows), expected)
        np.testing.assert_array_equal(there.result_.labels.compute(), expected)
        here = clone(model).set_params(init=start).fit(rows, sample_weight=weights)
        np.testing.assert_array_equal(here.labels_, expected)
        if hasattr(here, "side_probability_"):
            np.testing.assert_allclose(there.side_probability_, here.side_probability_, rtol=1e-9)
            np.testing.assert_allclose(there.msp_, here.msp_, rtol=1e-9)
        if hasattr(here, "coef_"):
            np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-6, atol=1e-9)
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize("model", [MSPC(scan="histogram"), CPMMC()])
def test_ties_in_blocks_go_to_the_first_row(model):
    rng = np.random.default_rng(5)
    truth = np.repeat([0, 1], 200)
    rows = rng.normal(size=(400, 3)) + 9.0 * truth[:, None]
    weights = rng.permutation(np.tile([0.1, 0.2, 0.3, 0.7], 50))
    weights = np.concatenate(
        [weights, rng.permutation(weights)]
    )  # the same sum, except for rounding
    for given in (None, weights):
        for start in (truth, 1 - truth):
            there = clone(model).set_params(init=start).fit(in_blocks(rows), sample_weight=given)
            np.testing.assert_array_equal(there.labels_.compute(), truth)


def test_an_array_without_names_is_reported_as_in_memory():
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    model = clone(MODELS["gep"]).fit(from_pandas(frame, npartitions=2))
    for rows in (X, in_blocks(X)):
        with pytest.warns(UserWarning, match="^X .*valid") as issued:
            model.predict(rows[:, ::-1])
        assert len(issued) == 1
    assert model.predict(from_pandas(frame, npartitions=2)).shape[1:] == ()


@pytest.mark.parametrize("error", [ZeroDivisionError, np.linalg.LinAlgError])
def test_an_error_of_the_loader_is_not_one_of_the_fit(error):
    def load(block):
        if len(block):  # dask calls it with an empty block, too
            raise error("of the loader")
        return block

    with pytest.raises(error, match=r"^of the loader$"):
        clone(MODELS["gep"]).fit(in_blocks(X).map_blocks(load, dtype=X.dtype))


def test_an_error_of_the_fit_is_still_explained(monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr(MSPC, "_run", fail)
    with pytest.raises(ValueError, match="MSPC failed numerically"):
        MSPC(random_state=0).fit(in_blocks(X))
