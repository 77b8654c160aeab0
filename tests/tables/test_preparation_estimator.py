"""`Preparation` as an estimator of scikit-learn."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from volmar import MSPC
from volmar.tables import Preparation, TableError

# Number of checks in the pinned scikit-learn. A lower number means that some were skipped.
AT_LEAST = 40


@pytest.fixture
def table(rng):
    n = 120
    side = rng.integers(2, size=n)
    frame = pd.DataFrame(
        {
            "name": [f"n{i}" for i in range(n)],
            "income": np.exp(rng.normal(3, 1, n)),
            "height": rng.normal(170, 5, n) + 20 * side,
            "answer": rng.choice(["low", "medium", "high"], n),
            "since": pd.date_range("2020", periods=n, freq="31h"),
        }
    )
    frame.loc[3, "height"] = np.nan
    return frame


@pytest.mark.parametrize("scale", ["auto", "minmax"])
def test_scikit_learn_checks(scale):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(Preparation(scale=scale), on_skip=None, on_fail=None)
    not_passed = {r["check_name"]: repr(r["exception"]) for r in results if r["exception"]}
    assert set(not_passed) <= {"check_array_api_input"}, not_passed
    assert len(results) - len(not_passed) >= AT_LEAST


def test_parameters_are_stored_as_given(table):
    kinds, columns = {"answer": "categorical"}, ("income", "height", "answer")
    preparation = Preparation(columns=columns, kinds=kinds, missing="drop")
    assert preparation.columns is columns
    assert preparation.get_params()["kinds"] is kinds
    preparation.fit(table)
    again = clone(preparation)
    assert again.get_params() == preparation.get_params()
    assert not hasattr(again, "feature_names_")
    assert again.set_params(missing="impute", scale="none").missing == "impute"
    assert preparation.columns is columns


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"scale": "max"}, "scale must be one of 'auto', 'standard', .* got 'max'"),
        ({"missing": 3}, "missing must be one of 'impute', .* got 3"),
        ({"kinds": {"a": "number"}}, r"kinds=\{'a': 'number'\} has an unknown kind"),
        ({"drop": ["nothing"]}, "'nothing', given in drop="),
        ({"id_column": "nothing"}, "'nothing', given in id_column="),
    ],
)
def test_errors_name_arguments(table, parameters, words):
    preparation = Preparation(**parameters)
    with pytest.raises(TableError, match=words) as caught:
        preparation.fit(table)
    assert "--" not in str(caught.value)


@pytest.mark.parametrize("clusterer", [MSPC(random_state=0), KMeans(2, random_state=0)])
def test_pipelines(table, clusterer):
    model = make_pipeline(Preparation(), clusterer).fit(table)
    labels = model.predict(table)
    rows = Preparation().fit_prepare(table).X
    np.testing.assert_array_equal(labels, clone(clusterer).fit(rows).predict(rows))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(table), labels)
    assert model.set_params(preparation__scale="minmax").fit(table) is model


def test_arrays_and_their_names(table):
    preparation = Preparation()
    X = preparation.fit_transform(table)
    np.testing.assert_array_equal(preparation.transform(table), X)
    assert isinstance(X, np.ndarray)
    names = preparation.get_feature_names_out()
    assert names.tolist() == ["log(income)", "height", "answer", "since (year)"]
    assert preparation.feature_names_in_.tolist() == list(table)
    frame = preparation.set_output(transform="pandas").transform(table)
    assert list(frame) == names.tolist()
    beside = ColumnTransformer([("own", Preparation(), ["income", "height"])])
    assert beside.fit_transform(table).shape == (120, 2)
    assert "own__height" in beside.get_feature_names_out()


def test_every_row_or_none(table):
    preparation = Preparation(missing="drop").fit(table)
    assert len(preparation.prepare(table).X) == 119
    for call in (preparation.transform, preparation.fit_transform):
        with pytest.raises(TableError, match=r"1 of 120 rows .* prepare"):
            call(table)
    assert preparation.transform(table.drop(index=3)).shape == (119, 4)
