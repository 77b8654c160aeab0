"""``volmar predict --reject``: rows that belong to no cluster."""

import numpy as np
import pytest
from helpers.cli import invoke

from volmar import MSPC
from volmar.models import load_model, save_model

pandas = pytest.importorskip("pandas")


def refused(result, says):
    """One line on the error stream, and exit code 2."""
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def model(people, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "people.volmar"
    result = invoke("cluster", people[0], "--id", "name", "--save", path)
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture
def newcomers(people, tmp_path):
    frame = pandas.read_csv(people[0])[:50]
    frame.loc[:4, "height"] = 400.0
    frame.to_csv(tmp_path / "new.csv", index=False)
    return tmp_path / "new.csv"


def test_strangers_get_minus_one_and_p_values(model, newcomers, tmp_path):
    result = invoke("predict", model, newcomers, "--reject", "0.01", "-o", tmp_path / "l.csv")
    assert result.exit_code == 0, result.output
    found = pandas.read_csv(tmp_path / "l.csv")
    assert list(found.columns) == ["name", "label", "score", "confidence", "p_value"]
    assert (found.label[:5] == -1).all()
    np.testing.assert_array_equal(found.label == -1, found.p_value <= 0.01)
    assert f"{(found.label == -1).sum()} rejected (-1)" in result.output
    saved = load_model(model).model
    frame = pandas.read_csv(newcomers)
    np.testing.assert_array_equal(saved.predict(frame, reject=0.01), found.label)
    np.testing.assert_allclose(saved.novelty_score(frame), found.p_value)


def test_outliers_and_rows_without_values(model, newcomers, tmp_path):
    frame = pandas.read_csv(newcomers)
    frame.loc[:4, "height"] = 1e9
    frame.loc[10:12, frame.columns != "name"] = np.nan
    frame.to_csv(newcomers, index=False)
    result = invoke("predict", model, newcomers, "--reject", "0.01", "-o", tmp_path / "l.csv")
    assert result.exit_code == 0, result.output
    found = pandas.read_csv(tmp_path / "l.csv")
    assert (found.label[[0, 1, 2, 3, 4, 10, 11, 12]] == -1).all()
    text = " ".join(result.stderr.split())
    assert "warning: 3 of 50 rows have no value" in text
    assert "with --reject 0.01" in text


def test_without_the_option_nothing_changes(model, newcomers, tmp_path):
    result = invoke("predict", model, newcomers, "-o", tmp_path / "l.csv")
    assert result.exit_code == 0, result.output
    assert "rejected" not in result.output
    found = pandas.read_csv(tmp_path / "l.csv")
    assert list(found.columns) == ["name", "label", "score", "confidence"]
    assert (found.label >= 0).all()


def test_levels_out_of_reach_are_warned_of(model, newcomers):
    result = invoke("predict", model, newcomers, "--reject", "0.001")
    assert result.exit_code == 0, result.output
    assert "warning: --reject 0.001" in result.output


@pytest.mark.parametrize("level", ["0", "1", "-0.1", "nan"])
def test_wrong_levels_are_refused(model, newcomers, level):
    refused(invoke("predict", model, newcomers, "--reject", level), "--reject must be")


def test_models_without_a_calibration(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 2))
    np.save(tmp_path / "x.npy", X)
    bare = MSPC(random_state=0).fit(X)
    save_model(tmp_path / "m.volmar", bare)
    result = invoke("predict", tmp_path / "m.volmar", tmp_path / "x.npy", "--reject", "0.1")
    refused(result, "was saved without them")
    save_model(tmp_path / "m.volmar", bare.fit_novelty(X), force=True)
    result = invoke("predict", tmp_path / "m.volmar", tmp_path / "x.npy", "--reject", "0.1")
    n_rejected = int((bare.predict(X, reject=0.1) == -1).sum())
    assert f"{n_rejected} rejected (-1)" in result.output
