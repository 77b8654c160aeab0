"""Columns of all dtypes of pandas, polars and pyarrow, and values that are not numbers."""

import datetime
import decimal
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from volmar import TableClusterer
from volmar.tables import LoadedTable, Preparation, TableError
from volmar.tables.blocks import prepare_blocks
from volmar.tables.columns import as_columns
from volmar.tables.folder import read_folder
from volmar.tables.kinds import as_numbers
from volmar.tables.write import match_labels


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1, 10**400, -(10**400)], [1, np.inf, -np.inf]),
        (["1", "9" * 400, "x"], [1, np.inf, np.nan]),
        ([decimal.Decimal("1.5"), None, decimal.Decimal("1e400")], [1.5, np.nan, np.inf]),
        ([1j, 2, 3.5], [np.nan, 2, 3.5]),
        ([int, 2, 3.5], [np.nan, 2, 3.5]),
        ([[1], {}, 3.5], [np.nan, np.nan, 3.5]),
        ([True, False, None], [1, 0, np.nan]),
    ],
)
def test_objects_as_numbers(values, wanted):
    np.testing.assert_array_equal(as_numbers(pd.Series(values, dtype=object)), wanted)


def _table(**columns):
    n = 30
    x = np.random.default_rng(0).normal(size=n) + 8 * (np.arange(n) % 2)
    return {"x": list(x), **{name: (values * n)[:n] for name, values in columns.items()}}


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([1, 2**100] * 15, dtype=pl.Int128),
        pl.Series([[1, 2], [3, 4]] * 15, dtype=pl.Array(pl.Int64, 2)),
        pl.Series([{"a": 1}, {"a": 2}] * 15),
        pl.Series([[1], [2, 3]] * 15),
        pl.Series([object(), int] * 15, dtype=pl.Object),
        pl.Series([datetime.timedelta(1), None] * 15),
        pl.Series(["a", None] * 15, dtype=pl.Enum(["a", "b"])),
    ],
    ids=lambda column: str(column.dtype),
)
def test_columns_of_polars(column):
    table = pl.DataFrame(_table()).with_columns(c=column)
    labels = TableClusterer(2).fit(table).labels_
    assert sorted(np.bincount(labels).tolist()) == [15, 15]


@pytest.mark.parametrize(
    "column",
    [
        pa.DictionaryArray.from_arrays([0, 1, 2] * 10, ["a", None, "b"]),
        pa.DictionaryArray.from_arrays([0, 1, 2] * 10, ["a", "a", "b"]),
        pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31)] * 15, pa.date64()),
        pa.array([10**15, -(10**15)] * 15, pa.timestamp("s")),
        pa.array([decimal.Decimal("1.5"), None] * 15, pa.decimal256(60, 5)),
        pa.array([[("a", 1)], None] * 15, pa.map_(pa.string(), pa.int64())),
        pa.array([{"a": 1}, None] * 15),
        pa.nulls(30),
    ],
    ids=lambda column: str(column.type),
)
def test_columns_of_pyarrow(column):
    table = pa.table({**_table(), "c": column})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # warnings about missing values
        labels = TableClusterer(2).fit(table).labels_
    assert set(labels.tolist()) <= {0, 1}


def test_names_that_are_no_text():
    frame = pd.DataFrame(np.eye(3), columns=pd.Index([1, ("a", 2), "\ud800"], dtype=object))
    assert as_columns(frame).names == ["1", "('a', 2)", r"\ud800"]
    with pytest.raises(TableError, match="both called '1'"):
        as_columns(pd.DataFrame(np.eye(2), columns=pd.Index([1, "1"], dtype=object)))


def test_days_of_pyarrow_are_dates():
    days = pd.array(["2020-01-01", "2021-07-02", None] * 10, dtype="date32[day][pyarrow]")
    preparation = Preparation().fit(pd.DataFrame(_table()).assign(c=days))
    assert preparation.kinds_["c"] == "date"
    assert preparation.feature_names_ == ["x", "c (year)"]


def test_a_signalling_nan_is_refused():
    frame = pd.DataFrame(_table(c=[decimal.Decimal("sNaN"), decimal.Decimal(1)]))
    with pytest.raises(TableError, match="'c' holds a signalling NaN"):
        TableClusterer(2).fit(frame)


def test_lists_in_a_column_of_categories_are_refused():
    frame = pd.DataFrame(_table(c=[[1], [2]]))
    with pytest.raises(TableError, match=r"'c' must hold categories"):
        TableClusterer(2, kinds={"c": "categorical"}).fit(frame)


def test_lists_as_ids_and_labels_are_refused():
    frame = pd.DataFrame(_table(c=[[1], [2]]))
    with pytest.raises(TableError, match=r"id column 'c' holds lists"):
        TableClusterer(2, id_column="c").fit(frame)
    rows = Preparation(columns=["x"]).fit_prepare(frame)
    with pytest.raises(TableError, match=r"nested values as labels"):
        match_labels(frame[["c"]], rows)
    with pytest.raises(TableError, match="both called 'label'"):
        match_labels(pd.DataFrame(np.eye(2), columns=["label", "label"]), rows)


def test_complex_numbers_in_new_rows_are_refused():
    model = TableClusterer(2).fit(pd.DataFrame(_table(y=[1.5, 2.5, 3.0])))
    with pytest.raises(TableError, match=r"'x' must hold numbers"):
        model.predict(pd.DataFrame({"x": [1j, 2j], "y": [1.0, 2.0]}))


@pytest.mark.parametrize("values", [["low", "medium", "high"], ["2024-01-01", "2024-02-05"] * 2])
def test_an_array_has_no_words_and_dates(values):
    frame = pd.DataFrame(_table(c=[*values, "2024-03-07" if "2024-01-01" in values else "low"]))
    model = TableClusterer(2).fit(frame)
    table = LoadedTable("a.npy", np.ones((3, 2)))
    with pytest.raises(TableError, match=r"a\.npy: column 'x1' holds numbers"):
        model.predict(table)


@pytest.mark.parametrize("scale", ["auto", "standard", "minmax", "none"])
@pytest.mark.parametrize("missing", ["impute", "drop", "indicator"])
def test_values_near_the_limits_are_refused_without_warnings(scale, missing):
    huge = [1e308, -1e308, None, 1.5, 1.7e308, -1.6e308]
    preparation = Preparation(scale=scale, missing=missing)
    if scale == "none":
        rows = preparation.fit_prepare(pd.DataFrame(_table(c=huge)))
        assert np.isfinite(rows.X).all()
        assert np.isfinite(rows.dithered(0)).all()
    else:
        with pytest.raises(TableError, match="'c'"):
            preparation.fit_prepare(pd.DataFrame(_table(c=huge)))


def test_new_values_that_cannot_be_scaled_are_refused():
    frame = pd.DataFrame(_table(y=[1e-9, 2e-9, 4e-9, 7e-9]))
    preparation = Preparation(scale="standard").fit(frame)
    with pytest.raises(TableError, match="'y' are too near the limits"):
        preparation.transform(pd.DataFrame({"x": [1.0, 2.0], "y": [1e308, 1.0]}))


def test_a_folder_of_huge_values_prints_nothing(tmp_path, recwarn):
    for i in range(3):
        frame = pd.DataFrame(_table(c=[1e308, -1e308, 1.0 + i]))
        frame.to_csv(tmp_path / f"{i}.csv", index=False)
    with pytest.raises(TableError, match="'c'"):
        prepare_blocks(read_folder(tmp_path), Preparation(scale="standard"))
    assert not [one for one in recwarn if one.category is RuntimeWarning]
