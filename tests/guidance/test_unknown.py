"""Every spelling of an unknown label or group id has one meaning, or is refused by name."""

import datetime
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from helpers.cli import invoke
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.pipeline import make_pipeline

from volmar import CPMMC, MSPC, SKMMC, KernelCPMMC, SoftLabelMVC, TableClusterer
from volmar.guidance.knowledge import check_must_link, check_seeds, names_of_clusters
from volmar.models import load_model, save_model
from volmar.tables import TableError

GUIDED = [
    MSPC(3, random_state=0),
    CPMMC(3, random_state=0),
    KernelCPMMC(3, gamma=0.05, random_state=0),
    SKMMC(3, gamma=0.05, random_state=0),
    SoftLabelMVC(3, random_state=0),
]
N = 60
X, TRUTH = make_blobs(N, 3, centers=3, cluster_std=1.5, random_state=1)
KNOWN = np.arange(N) % 6 == 0
INTEGERS = np.array([3, 7, 12])[TRUTH]
STRINGS = np.array(["ash", "oak", "yew"])[TRUTH]


def beside(values, unknown):
    """Return a list of the known values, and `unknown` in all other rows."""
    return [value if known else unknown for value, known in zip(values, KNOWN, strict=True)]


def numbers(unknown):
    return beside(INTEGERS.tolist(), unknown)


def words(unknown):
    return beside(STRINGS.tolist(), unknown)


OF_INTEGERS = {
    "-1": np.array(numbers(-1)),
    "int8": np.array(numbers(-1), dtype=np.int8),
    "list": numbers(-1),
    "tuple": tuple(numbers(-1)),
    "series": pd.Series(numbers(-1)),
    "float": np.array(numbers(-1.0)),
    "float32": np.array(numbers(-1), dtype=np.float32),
    "nan": np.array(numbers(np.nan)),
    "float16 nan": np.array(numbers(np.nan), dtype=np.float16),
    "series nan": pd.Series(numbers(np.nan)),
    "list of nan": numbers(float("nan")),
    "list of None": numbers(None),
    "object None": np.array(numbers(None), dtype=object),
    "object -1.0": np.array(numbers(-1.0), dtype=object),
    "list of text": numbers("-1"),
    "list of blanks": numbers(" "),
    "NA": np.array(numbers(pd.NA), dtype=object),
    "NaT": numbers(pd.NaT),
    "Decimal": numbers(Decimal("NaN")),
    "Int64": pd.Series(numbers(pd.NA), dtype="Int64"),
    "Int64 array": pd.array(numbers(pd.NA), dtype="Int64"),
    "Float64": pd.Series(numbers(pd.NA), dtype="Float64"),
    "category": pd.Series(numbers(None), dtype="category"),
    "categorical": pd.Categorical(numbers(None)),
    "masked": np.ma.masked_array(INTEGERS, ~KNOWN),
    "masked float": np.ma.masked_array(INTEGERS.astype(float), ~KNOWN),
    "list of masked": numbers(np.ma.masked),
    "mixed": [
        value if known else (-1, None, np.nan, "", pd.NA, "-1", -1.0, pd.NaT)[row % 8]
        for row, (value, known) in enumerate(zip(INTEGERS.tolist(), KNOWN, strict=True))
    ],
}
OF_STRINGS = {
    "None": np.array(words(None), dtype=object),
    "list of None": words(None),
    "list of -1": words(-1),
    "list of -1.0": words(-1.0),
    "text": np.array(words(-1)),
    "text -1.0": np.array(words("-1.0")),
    "empty": np.array(words("")),
    "blank": words("  "),
    "nan": words(np.nan),
    "series nan": pd.Series(words(np.nan)),
    "series None": pd.Series(words(None)),
    "NA": pd.Series(words(pd.NA)),
    "string": pd.Series(words(pd.NA), dtype="string"),
    "string array": pd.array(words(None), dtype="string"),
    "category": pd.Series(words(None), dtype="category"),
    "masked": np.ma.masked_array(STRINGS, ~KNOWN),
}
SPELLINGS = [
    *(pytest.param(y, [3, 7, 12], id=f"integers {name}") for name, y in OF_INTEGERS.items()),
    *(pytest.param(y, ["ash", "oak", "yew"], id=f"{name}") for name, y in OF_STRINGS.items()),
]


@pytest.mark.parametrize(("y", "names"), SPELLINGS)
def test_one_function_reads_labels_and_ids(y, names):
    seeds = check_seeds(y, N)
    assert seeds.names.tolist() == names
    np.testing.assert_array_equal(seeds.numbers, np.where(KNOWN, TRUTH, -1))
    units = check_must_link(y, N)
    np.testing.assert_array_equal(units, check_must_link(np.where(KNOWN, TRUTH, -1), N))


@pytest.mark.parametrize("turn", range(len(GUIDED)), ids=lambda i: type(GUIDED[i]).__name__)
def test_all_spellings_give_one_fit(turn):
    """Labels and ids, all with MSPC, and each with another estimator; equal bit for bit."""
    model = GUIDED[turn]
    expected = clone(model).fit(X, np.where(KNOWN, TRUTH, -1))
    linked = clone(model).fit(X, must_link=np.where(KNOWN, TRUTH, -1)).labels_
    assert np.array_equal(expected.labels_[KNOWN], TRUTH[KNOWN])
    chosen = slice(None) if turn == 0 else slice(turn - 1, None, len(GUIDED) - 1)
    for name, y in [*OF_INTEGERS.items()][chosen]:
        found = clone(model).fit(X, y)
        np.testing.assert_array_equal(found.classes_, [3, 7, 12], err_msg=name)
        np.testing.assert_array_equal(found.labels_, found.classes_[expected.labels_])
    for name, y in [*OF_STRINGS.items()][chosen]:
        found = clone(model).fit(X, y)
        np.testing.assert_array_equal(found.classes_, ["ash", "oak", "yew"], err_msg=name)
        np.testing.assert_array_equal(found.labels_, found.classes_[expected.labels_])
        again = clone(model).fit(X, must_link=y).labels_
        np.testing.assert_array_equal(again, linked, err_msg=name)


NONE = [-1, "", "-1", None, np.nan, pd.NA]


@pytest.mark.parametrize(
    ("model", "none"),
    [*((GUIDED[0], none) for none in NONE), *zip(GUIDED[1:], NONE[1:], strict=False)],
)
def test_rows_without_an_id_are_not_linked(model, none):
    """Four clear groups, and nine rows of three households within them."""
    corners = 20.0 * np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    rows, truth = make_blobs([30] * 4, centers=corners, shuffle=False, random_state=0)
    ids = [none] * 120
    for first, name in ((0, "smith"), (30, "jones"), (60, "brown")):
        ids[first : first + 3] = [name] * 3
    labels = clone(model).set_params(n_clusters=4).fit(rows, must_link=ids).labels_
    assert np.bincount(labels).tolist() == [30] * 4
    assert all(np.ptp(labels[truth == group]) == 0 for group in range(4))


COMPLETE = {
    "integers": INTEGERS,
    "strings": STRINGS,
    "list": STRINGS.tolist(),
    "booleans": TRUTH > 0,
    "uint8": INTEGERS.astype(np.uint8),
    "regression target": np.random.default_rng(0).standard_normal(N),
    "mixed": [*INTEGERS[:30].tolist(), *STRINGS[30:].tolist()],
    "dates": np.datetime64("2020-01-01") + TRUTH,
    "no labels": np.full(N, -1),
    "no labels, NaN": np.full(N, np.nan),
}


@pytest.mark.parametrize("y", COMPLETE.values(), ids=COMPLETE)
def test_complete_labels_are_ignored(y):
    found = MSPC(3, random_state=0).fit(X, y)
    np.testing.assert_array_equal(found.labels_, MSPC(3, random_state=0).fit(X).labels_)
    assert not hasattr(found, "classes_")


WRAPPED = np.array(numbers(-1)).astype(np.uint8)
HALVES = [value / 2 for value in INTEGERS.tolist()]
REFUSED = {
    "uint8": (WRAPPED, "^y .*uint8"),
    "converted nan": (np.array(words(np.nan)), "^y .*'nan'"),
    "converted None": (OF_STRINGS["None"].astype(str), "^y .*'None'"),
    "converted NA": (words("<NA>"), "^y .*text '<NA>'"),
    "booleans": (beside([True] * N, None), "y holds labels of type bool"),
    "nullable booleans": (pd.array(beside([True] * N, None)), "y holds labels of type bool"),
    "dates": (
        np.array(beside([np.datetime64("2020-01-01")] * N, np.datetime64("NaT"))),
        "^y .*datetime64",
    ),
    "objects": (beside([datetime.date(2020, 1, 1)] * N, None), "y holds labels of type date"),
    "bytes": (beside([b"a"] * N, b""), "y holds labels of type bytes"),
    "mixed": ([1, "a", *[-1] * (N - 2)], "^y .*type int"),
    "complex": (np.array(beside([1j] * N, -1)), "^y .*complex"),
    "fractions": (np.array(beside(HALVES, np.nan)), "y holds the number"),
    "list of fractions": (beside(HALVES, None), "y holds the number"),
    "infinite": (np.array(beside([np.inf] * N, np.nan)), "y holds the number inf"),
    "2**70": (beside([2**70] * N, -1), "^y .*1180591620717411303424"),
    "1e300": (np.array(beside([1e300] * N, np.nan)), "y has the label 1000"),
    "uint64": (beside([np.uint64(2**63)] * N, -1), "^y .*9223372036854775808"),
    "lists": (beside([[1, 2]] * N, -1), r"^y .*\[1, 2\] in row 0"),
    "arrays": (beside([np.zeros(2)] * N, -1), "^y .*integer or string"),
    "two columns": (np.zeros((N, 2)), r"^y .*\(60, 2\)"),
    "one column": (np.zeros((N, 1)), "^y .*value per"),
    "frame": (pd.DataFrame({"a": numbers(-1)}), "^y .*value per"),
    "too few": (numbers(-1)[1:], "^y .*value per"),
    "a dict": ({0: 1}, "^y .*value per"),
}


@pytest.mark.parametrize("model", GUIDED, ids=lambda model: type(model).__name__)
def test_labels_that_cannot_be_used_are_refused(model):
    for name, (y, message) in REFUSED.items():
        with pytest.raises((TypeError, ValueError), match=message):
            model.fit(X, y)
        assert not hasattr(model, "labels_"), name


def test_a_regression_target_with_a_value_of_minus_one_is_reported():
    """A pipeline passes the target of its last step to all steps."""
    y = np.array(beside(HALVES, -1.0))
    for given in (y, y.tolist()):
        with pytest.warns(UserWarning, match="^y .*ignored"):
            found = MSPC(3, random_state=0).fit(X, given)
        np.testing.assert_array_equal(found.labels_, MSPC(3, random_state=0).fit(X).labels_)
    y = np.linspace(-0.9, 3, N)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_pipeline(MSPC(3, random_state=0)).fit(X, y)


@pytest.mark.parametrize("model", GUIDED, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, np.zeros(2), {1}])
def test_ids_that_cannot_be_compared_are_refused(model, value):
    with pytest.raises(TypeError, match=r"^must_link .*integer"):
        model.fit(X, must_link=[value, *[-1] * (N - 1)])


@pytest.mark.parametrize(
    "ids",
    [
        np.array(beside([np.datetime64("2020-01-01")] * N, np.datetime64("NaT"))),
        beside([datetime.date(2020, 1, 1)] * N, pd.NaT),
        beside([("a", 1)] * N, None),
        beside([True] * N, None),
        beside([2**70] * N, -1),
        np.array(beside([0.5] * N, np.nan)),
        np.array(beside([2**63] * N, 5), dtype=np.uint64),
    ],
)
def test_ids_of_other_types_link_rows(ids):
    units = check_must_link(ids, N)
    first = np.flatnonzero(KNOWN)
    assert np.unique(units[first]).size == 1
    if isinstance(ids, list) or ids.dtype.kind != "u":
        assert np.unique(units).size == N - first.size + 1


def test_a_wrapped_id_is_refused():
    with pytest.raises(ValueError, match=r"^must_link .*dtype"):
        MSPC(3).fit(X, must_link=WRAPPED)
    with pytest.raises(ValueError, match="must_link has the text 'nan'"):
        MSPC(3).fit(X, must_link=np.array(words(np.nan)))


def test_large_labels_come_back_as_given(tmp_path):
    large = 2**63 - 1
    y = np.where(KNOWN, np.array([7, large, 9])[TRUTH], -1)
    found = MSPC(3, random_state=0).fit(X, y)
    assert found.classes_.tolist() == [7, 9, large]
    assert set(found.labels_.tolist()) == {7, 9, large}
    save_model(tmp_path / "m.volmar", found)
    again = load_model(tmp_path / "m.volmar").model
    np.testing.assert_array_equal(again.predict(X), found.predict(X))
    with pytest.raises(ValueError, match=f"y has the label {large}, after which"):
        MSPC(4, random_state=0).fit(X, y)
    assert names_of_clusters(np.array([large - 2]), 3).tolist() == [large - 2, large - 1, large]


# ------------------------------------------------------------------------------ dask


@pytest.fixture(scope="module")
def blocks():
    da = pytest.importorskip("dask.array")
    return da.from_array(X, chunks=(17, 3))


def test_all_spellings_give_one_fit_in_blocks(blocks):
    import dask.array as da

    model = MSPC(3, random_state=0)
    expected = clone(model).fit(blocks, np.where(KNOWN, TRUTH, -1)).labels_.compute()
    for name in ("-1", "int8", "float", "nan", "float16 nan"):
        y = da.from_array(OF_INTEGERS[name], chunks=23)
        found = clone(model).fit(blocks, y)
        np.testing.assert_array_equal(found.classes_, [3, 7, 12], err_msg=name)
        assert found.classes_.dtype == np.int64
        np.testing.assert_array_equal(found.labels_.compute(), found.classes_[expected])
    for y in (OF_INTEGERS["list of None"], *OF_STRINGS.values()):
        found = clone(model).fit(blocks, y)
        np.testing.assert_array_equal(found.labels_.compute(), found.classes_[expected])


@pytest.mark.parametrize("unknown", [-1, -1.0, np.nan])
def test_a_dask_series_keeps_its_labels(unknown):
    dd = pytest.importorskip("dask.dataframe")
    given = pd.Series(numbers(unknown))
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abc")), npartitions=3)
    found = MSPC(3, random_state=0).fit(frame, dd.from_pandas(given, npartitions=3))
    labels = found.labels_.compute()
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(labels[KNOWN], INTEGERS[KNOWN])


def test_lazy_labels_that_cannot_be_used_are_refused(blocks):
    import dask.array as da
    import dask.dataframe as dd

    for given in (WRAPPED, OF_STRINGS["text"], OF_INTEGERS["NA"]):
        with pytest.raises((TypeError, ValueError), match=r"y (has|must hold)"):
            MSPC(3).fit(blocks, da.from_array(given, chunks=23))
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abc")), npartitions=3)
    with pytest.raises(TypeError, match="y must hold integers"):
        MSPC(3).fit(frame, dd.from_pandas(OF_INTEGERS["Int64"], npartitions=3))
    with pytest.warns(UserWarning, match="^y .*ignored"):
        MSPC(3, random_state=0).fit(blocks, da.from_array(np.array(beside(HALVES, np.nan)), 23))


# ------------------------------------------------------------------------------ tables

METHOD = "MSPC"
IN_TABLES = {
    name: y
    for name, y in [*OF_INTEGERS.items(), *OF_STRINGS.items()]
    if not isinstance(y, np.ma.MaskedArray) and name not in ("list of masked", "float16 nan")
}


def table_of(y):
    return pd.DataFrame(X, columns=["a", "b", "c"]).assign(s=y)


@pytest.fixture(scope="module")
def expected():
    return TableClusterer(3, clusterer=METHOD, seeds="s").fit(table_of(words(None))).labels_


@pytest.mark.parametrize("y", IN_TABLES.values(), ids=IN_TABLES)
def test_all_spellings_give_one_fit_of_a_table(y, expected):
    model = TableClusterer(3, clusterer=METHOD, seeds="s").fit(table_of(y))
    assert model.cluster_names_ in (["ash", "oak", "yew"], ["12", "3", "7"])
    names = np.array(model.cluster_names_)[model.labels_]
    is_text = model.cluster_names_[0] == "ash"
    order = ["ash", "oak", "yew"] if is_text else ["3", "7", "12"]
    np.testing.assert_array_equal(names, np.array(order)[expected])
    linked = TableClusterer(3, clusterer=METHOD, must_link="s").fit(table_of(y)).labels_
    assert all(np.ptp(linked[KNOWN & (group == TRUTH)]) == 0 for group in range(3))


@pytest.mark.parametrize("unknown", ["", "-1", "-1.0", " ", "NA", "nan"])
def test_all_spellings_give_one_result_of_the_command(unknown, expected, tmp_path):
    source, out = tmp_path / "t.csv", tmp_path / "labels.csv"
    table_of(words(unknown)).to_csv(source, index=False)
    result = invoke(
        "cluster", str(source), "-k", "3", "-m", METHOD, "--seeds", "s", "-o", str(out)
    )
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(
        pd.read_csv(out)["label"], np.array(["ash", "oak", "yew"])[expected]
    )


def test_columns_that_cannot_be_read_are_refused():
    for y, message in ((WRAPPED, "has dtype uint8"), (words("<NA>"), "has the text '<NA>'")):
        for argument in ("seeds", "must_link"):
            model = TableClusterer(3, clusterer=METHOD, **{argument: "s"})
            with pytest.raises(TableError, match=f"Column 's' {message}"):
                model.fit(table_of(y))
