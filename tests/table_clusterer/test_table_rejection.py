"""`TableClusterer`: rows of a table that belong to no cluster."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

from volmar import TableClusterer
from volmar.models import load_model

pandas = pytest.importorskip("pandas")


def people(rng, n=300):
    tall = rng.random(n) < 0.4
    frame = pandas.DataFrame(
        {
            "height": rng.normal(160, 5, n) + 30 * tall,
            "weight": rng.normal(55, 4, n) + 25 * tall,
            "region": rng.choice(["north", "south"], n),
        }
    )
    frame.loc[::29, "weight"] = np.nan
    return frame


@pytest.fixture(scope="module")
def frames():
    rng = np.random.default_rng(0)
    return people(rng), people(rng)


@pytest.fixture(scope="module")
def fitted(frames):
    return TableClusterer().fit(frames[0])


def test_ordinary_rows_stay_and_strangers_go(fitted, frames):
    new = frames[1]
    p = fitted.novelty_score(new)
    assert (p <= 0.05).mean() <= 0.05 + 2 * np.sqrt(2 * 0.05 * 0.95 / len(p))
    np.testing.assert_array_equal(
        fitted.predict(new, reject=0.05), np.where(p <= 0.05, -1, fitted.predict(new))
    )
    strange = new.assign(height=250.0)
    assert (fitted.predict(strange, reject=0.01) == -1).all()
    assert (fitted.predict(strange) >= 0).all()


@pytest.mark.parametrize("scale", ["auto", "standard"])
@pytest.mark.parametrize("missing", ["impute", "indicator"])
def test_a_value_farther_out_is_never_more_ordinary(frames, scale, missing):
    model = TableClusterer(2, scale=scale, missing=missing).fit(frames[0])
    new = frames[1].dropna()
    for sign in (1, -1):
        before = np.ones(len(new))
        for far in (170.0, 300.0, 1e3, 1e4, 1e6, 1e12, 1e150, np.inf):
            p = model.novelty_score(new.assign(height=sign * far))
            if far > 200:  # beyond both clusters
                assert (p <= before).all(), far
                assert (model.predict(new.assign(height=sign * far), reject=0.02) == -1).all()
                before = p


def test_outliers_of_a_column_of_logs():
    rng = np.random.default_rng(0)
    frame = people(rng).assign(income=np.exp(rng.normal(3, 1, 300)))
    model = TableClusterer(2).fit(frame)
    assert "log(income)" in model.preparation_.feature_names_
    new = people(rng, 50)
    for far in (-1e300, -5.0, 1e-12, 1e12, 1e300, np.inf):
        assert (model.predict(new.assign(income=far), reject=0.02) == -1).all(), far


def test_outlying_rows_have_the_smallest_p_value(fitted, frames):
    far = frames[1].assign(height=1e6)
    assert set(fitted.novelty_score(far)) == {fitted.novelty_.min_p_values.min()}


@pytest.mark.parametrize("missing", ["impute", "indicator"])
def test_rows_without_values_are_warned_of(frames, missing):
    model = TableClusterer(2, missing=missing).fit(frames[0])
    new = frames[1].copy()
    new.loc[[3, 5], ["height", "weight"]] = np.nan
    for call in (model.predict, model.confidence, model.decision_function, model.novelty_score):
        with pytest.warns(UserWarning, match="2 of 300 rows have no value"):
            call(new)
    with pytest.warns(UserWarning, match="reject"):
        labels = model.predict(new, reject=0.02)
    assert (labels[[3, 5]] == -1).all()


def test_rows_without_labels_have_no_p_value(frames):
    dropped = TableClusterer(2, missing="drop").fit(frames[0])
    gone = frames[1].weight.isna().to_numpy()
    np.testing.assert_array_equal(np.isnan(dropped.novelty_score(frames[1])), gone)
    assert (dropped.predict(frames[1], reject=0.02)[gone] == -1).all()


def test_other_clusterers_are_calibrated(frames):
    fitted = TableClusterer(2, clusterer=KMeans(n_init=1)).fit(frames[0])
    assert fitted.novelty_.n_clusters == 2
    assert (fitted.predict(frames[1].assign(height=250.0), reject=0.02) == -1).all()


def test_files_hold_the_calibration_and_others_do_without(fitted, frames, tmp_path):
    fitted.save(tmp_path / "m.volmar")
    again = load_model(tmp_path / "m.volmar").model
    np.testing.assert_array_equal(again.novelty_score(frames[1]), fitted.novelty_score(frames[1]))
    older = TableClusterer().fit(frames[0])
    del older.novelty_
    older.save(tmp_path / "older.volmar")
    older = load_model(tmp_path / "older.volmar").model
    np.testing.assert_array_equal(older.predict(frames[1]), fitted.predict(frames[1]))
    with pytest.raises(ValueError, match=r"p-values.* again"):
        older.predict(frames[1], reject=0.01)
