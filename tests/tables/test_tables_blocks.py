"""Folders whose columns are text, booleans and dates as well as numbers."""

import numpy as np
import pandas as pd
import pytest

from volmar.tables import Preparation, TableError
from volmar.tables.blocks import prepare_blocks, prepare_sample, sample_rows
from volmar.tables.folder import read_folder

N = 4000


@pytest.fixture(autouse=True)
def one_thread():
    import dask

    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def frame(rng):
    group = rng.integers(3, size=N)

    def like_group(words, truth=0.8):
        """Return words that depend on the group, and are random in a fifth of the rows."""
        return np.array(words)[np.where(rng.random(N) < truth, group, rng.integers(3, size=N))]

    frame = pd.DataFrame(
        {
            "customer_id": np.arange(N) + 5000,
            "income": np.exp(rng.normal(10, 1, N)),
            "age": rng.integers(18, 90, N),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, N), "D"),
            "answer": np.array(["low", "medium", "high"])[rng.integers(3, size=N)],
            # columns that agree with each other give features
            "plan": like_group(["basic", "plus", "pro"]),
            "colour": like_group(["red", "green", "blue"]),
            "shop": like_group(["web", "city", "mall"]),
            "member": like_group([False, True, False]),
            "one": 1.0,
        }
    )
    frame.loc[rng.choice(N, 60, replace=False), "age"] = np.nan
    return frame


def write(frame, folder, kind, n_files=5):
    folder.mkdir()
    for number, places in enumerate(np.array_split(np.arange(len(frame)), n_files)):
        part, path = frame.iloc[places], folder / f"{number}.{kind}"
        part.to_csv(path, index=False) if kind == "csv" else part.to_parquet(path, index=False)
    return read_folder(folder)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("missing", ["impute", "drop"])
def test_rows_are_those_of_memory(frame, tmp_path, kind, missing):
    """If all rows are in the sample, the result is the same as in memory."""
    want = Preparation(missing=missing).fit(frame)
    rows = want.prepare(frame)
    model = Preparation(missing=missing)
    found = prepare_blocks(write(frame, tmp_path / "parts", kind), model)
    assert model.kinds_ == want.kinds_
    assert model.left_out_ == want.left_out_
    assert found.feature_names == rows.feature_names
    assert any("categories" in name for name in found.feature_names)
    np.testing.assert_allclose(found.X.compute(), rows.X, rtol=1e-9, atol=1e-9)
    if missing == "drop":
        np.testing.assert_array_equal(found.kept, rows.kept)
        np.testing.assert_array_equal(found.ids, rows.ids)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_fitted_preparation_takes_a_folder(frame, tmp_path, kind):
    model = Preparation(id_column="customer_id").fit(frame)
    found = prepare_blocks(write(frame, tmp_path / "parts", kind), model)
    np.testing.assert_allclose(found.X.compute(), model.prepare(frame).X, atol=1e-9)
    np.testing.assert_array_equal(found.ids.compute(), frame["customer_id"])


def test_dates_are_read_in_the_fitted_layout(frame, tmp_path):
    """Files of a folder may have the year first where the fitted ones have the day first."""
    fitted = frame.assign(since=frame["since"].dt.strftime("%d/%m/%Y"))
    model = Preparation(scale="none")
    X = prepare_blocks(write(fitted, tmp_path / "parts", "csv"), model).X.compute()
    for k, dates in enumerate((frame["since"], frame["since"].dt.strftime("%Y/%m/%dT00:00"))):
        new = write(frame.assign(since=dates), tmp_path / f"new{k}", "csv")
        j = model.feature_names_.index("since (year)")
        np.testing.assert_array_equal(prepare_blocks(new, model).X.compute()[:, j], X[:, j])


@pytest.mark.parametrize("scale", ["auto", "standard", "minmax", "none"])
def test_scales_are_those_of_all_rows(frame, tmp_path, scale):
    table = write(frame, tmp_path / "parts", "parquet")
    model = Preparation(scale=scale)
    X = prepare_blocks(table, model, sample=sample_rows(table, 500)).X.compute()
    p = len(model.numbers_)
    numbers = X[:, :p]
    if scale in ("auto", "standard"):
        np.testing.assert_allclose(numbers.mean(axis=0), 0, atol=1e-9)
        np.testing.assert_allclose(numbers.std(axis=0), 1, rtol=1e-9)
    elif scale == "minmax":
        np.testing.assert_allclose(numbers.min(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(numbers.max(axis=0), 1, rtol=1e-12)
    else:
        np.testing.assert_array_equal(numbers[:, 0], frame["income"])
    # New rows and blocks of a later run are prepared in the same way.
    np.testing.assert_allclose(model.prepare(frame).X, X, atol=1e-9)
    again = prepare_blocks(table, model).X.compute()
    np.testing.assert_array_equal(again, X)


def test_a_sample_is_told(frame, tmp_path):
    table = write(frame, tmp_path / "parts", "parquet")
    found = prepare_blocks(table, Preparation(), sample=sample_rows(table, 500))
    assert any("500 of 4,000 rows" in note for note in found.notes)
    found = prepare_blocks(table, Preparation())
    assert not any("drawn at random" in note for note in found.notes)


@pytest.mark.parametrize("id_column", [None, "customer_id"])
def test_the_sample_is_rows_of_the_blocks(frame, tmp_path, id_column):
    table = write(frame, tmp_path / "parts", "parquet")
    drawn = sample_rows(table, 500)
    model = Preparation(missing="impute", id_column=id_column)
    every = prepare_blocks(table, model, sample=drawn)
    sample = prepare_sample(drawn, model, notes=every.notes)
    np.testing.assert_array_equal(sample.X, every.X.compute()[drawn.places])
    ids = drawn.places if id_column is None else frame["customer_id"][drawn.places]
    np.testing.assert_array_equal(sample.ids, ids)
    # Filled-in values are drawn again, and others are unchanged.
    moved = (sample.dithered(0) != sample.X)[:, model.numbers_.index("age")]
    is_missing = frame["age"].isna().to_numpy()[drawn.places]
    assert not moved[~is_missing].any()
    assert moved[is_missing].any()


def test_values_that_the_sample_lacks(rng, tmp_path):
    """A category in only one row, and a missing value in a block without sampled rows."""
    frame = pd.DataFrame({"a": rng.normal(size=3000), "b": rng.normal(size=3000)})
    groups = rng.integers(2, size=3000)
    frame["u"], frame["v"] = np.array(["x", "y"])[groups], np.array(["p", "q"])[groups]
    frame.loc[2999, ["a", "u"]] = [np.nan, "rare"]
    table = write(frame, tmp_path / "parts", "csv")
    few = sample_rows(table, 100)
    assert 2999 not in few.places
    X = prepare_blocks(table, Preparation(), sample=few).X.compute()
    assert X.shape[0] == 3000
    assert np.isfinite(X).all()
    table = read_folder(tmp_path / "parts")
    with pytest.raises(TableError, match=r"A block of the folder.*'a' 1.*missing="):
        prepare_blocks(table, Preparation(missing="error"), sample=few)


def test_options_are_checked_before_a_pass(frame, tmp_path, monkeypatch):
    table = write(frame, tmp_path / "parts", "csv")
    monkeypatch.setattr("volmar.tables.blocks.sample_rows", None)
    with pytest.raises(TableError, match=r"'incone'.*'income'"):
        prepare_blocks(table, Preparation(columns=["incone"]))


def test_empty_files_among_others(frame, tmp_path):
    table = write(frame, tmp_path / "parts", "parquet")
    frame.iloc[:0].to_parquet(tmp_path / "parts" / "9.parquet", index=False)
    table = read_folder(tmp_path / "parts")
    found = prepare_blocks(table, Preparation(missing="drop"))
    assert found.X.compute().shape[0] == int(found.kept.sum())
