"""`TableClusterer`: fits to tables of any library, descriptions, reports and files."""

import json

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import DBSCAN, KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

import volmar
from volmar import CPMMC, MSPC, AutoClusterer, TableClusterer
from volmar.datasets import make_blobs
from volmar.models import load_model
from volmar.table_clusterer.estimator import clusterer_names

pd = pytest.importorskip("pandas")


def test_what_a_fit_leaves_behind(fitted, table):
    frame, group = table
    assert fitted.n_clusters_ == 2
    assert adjusted_rand_score(group, fitted.labels_) > 0.95
    np.testing.assert_array_equal(fitted.predict(frame), fitted.labels_)
    assert isinstance(fitted.model_, AutoClusterer)
    assert fitted.preparation_.numbers_ == ["height", "weight", "age"]
    assert fitted.evidence_[0].value < 0.05
    assert any("8 missing values" in note for note in fitted.notes_)
    assert fitted.warnings_ == []
    assert list(fitted.seconds_)[:2] == ["preparing", "looking for groups"]
    assert fitted.feature_names_in_.tolist() == list(frame.columns)
    scores = fitted.decision_function(frame)
    np.testing.assert_array_equal(scores > 0, fitted.labels_ == 1)
    np.testing.assert_allclose(fitted.confidence(frame), fitted.confidence_)


def test_values_that_are_not_understood_give_a_warning(table, tmp_path):
    """New rows are never read in another way than the fitted ones without a warning."""
    frame, group = table
    dates = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(400) + 900 * group, "D")
    words = np.where(group, "low", np.where(np.arange(400) % 2, "medium", "high"))
    frame = frame.assign(since=dates.strftime("%d/%m/%Y"), level=words)
    model = TableClusterer(2, random_state=0).fit(frame)
    same = frame.assign(
        since=dates, height=frame["height"].astype(str), level=np.char.add(words, " ")
    )
    np.testing.assert_array_equal(model.predict(same), model.labels_)
    model.save(tmp_path / "m.volmar")
    saved = load_model(tmp_path / "m.volmar").preparation
    want = model.preparation_.transform(frame)
    for new in (frame, same, frame.assign(since=dates.strftime("%Y/%m/%d"))):
        np.testing.assert_allclose(saved.transform(new), want, rtol=1e-12, atol=1e-12)
    few = np.arange(400) % 4 == 1
    for name, other in (
        ("since", dates.strftime("%m/%d/%Y")),
        ("height", [f"{value:.2f}".replace(".", ",") for value in frame["height"]]),
        ("level", np.char.upper(words.astype(str))),
    ):
        new = frame.assign(**{name: np.where(few, other, frame[name].astype(str))})
        for use in (model.predict, model.decision_function, model.preparation_.transform):
            with pytest.warns(UserWarning, match=f"column '{name}'.*treated as missing") as seen:
                use(new)
            assert len(seen) == 1, name
            assert seen[0].filename == __file__, use


def test_columns_go_by_name(fitted, table):
    frame, _ = table
    moved = frame[["age", "name", "weight", "height"]].assign(other="x")
    np.testing.assert_array_equal(fitted.predict(moved), fitted.labels_)
    with pytest.raises(ValueError, match=r"lacks 1 of .*'age'"):
        fitted.predict(frame.drop(columns="age"))


def test_tables_of_other_libraries(fitted, table, tmp_path):
    frame, _ = table
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    frame.to_csv(tmp_path / "people.csv", index=False)
    tables = {
        "polars": pl.from_pandas(frame),
        "lazy": pl.from_pandas(frame).lazy(),
        "pyarrow": pa.Table.from_pandas(frame),
        "str": str(tmp_path / "people.csv"),
        "path": tmp_path / "people.csv",
    }
    for name, given in tables.items():
        again = clone(fitted).fit(given)
        np.testing.assert_array_equal(again.labels_, fitted.labels_, err_msg=name)
        np.testing.assert_array_equal(fitted.predict(given), fitted.labels_, err_msg=name)
        assert list(again.describe().clusters) == [0, 1], name


def test_arrays(table):
    X = table[0][["height", "weight"]].to_numpy()
    labels = TableClusterer().fit_predict(X)
    for rows in (X.astype(np.float32), sparse.csr_array(X), np.asfortranarray(X)):
        np.testing.assert_array_equal(TableClusterer().fit_predict(rows), labels)
    plain = TableClusterer(scale="none").fit(sparse.csr_array(X))
    assert sparse.issparse(plain._rows().X)
    np.testing.assert_array_equal(plain.predict(X), plain.labels_)
    # The scores of the clusterer for the prepared rows.
    scaled = StandardScaler().fit_transform(X)
    np.testing.assert_array_equal(labels, AutoClusterer(random_state=0).fit_predict(scaled))


def test_arrays_of_text_are_refused_with_a_remedy():
    with pytest.raises(ValueError, match=r"data must be a table of real numbers.* DataFrame"):
        TableClusterer(2).fit(np.array([["a", 1.0], ["b", 2.0]] * 9, dtype=object))
    with pytest.raises(ValueError, match="Complex data not supported: data must"):
        TableClusterer(2).fit(np.ones((9, 2)) * 1j)


def test_a_single_column(table):
    column = table[0]["height"]
    labels = TableClusterer().fit_predict(table[0][["height"]])
    np.testing.assert_array_equal(TableClusterer().fit_predict(column), labels)
    pl = pytest.importorskip("polars")
    series = pl.Series("height", column.to_numpy())
    np.testing.assert_array_equal(TableClusterer().fit_predict(series), labels)


def test_dask_collections_are_refused_with_a_remedy(table):
    dd = pytest.importorskip("dask.dataframe")
    with pytest.raises(ValueError, match=r"data.compute\(\)"):
        TableClusterer().fit(dd.from_pandas(table[0], npartitions=2))


def test_rows_that_are_left_out_have_no_label(table):
    frame, _ = table
    clusterer = TableClusterer(id_column="name", missing="drop").fit(frame)
    gone = frame["age"].isna().to_numpy()
    np.testing.assert_array_equal(clusterer.labels_ == -1, gone)
    np.testing.assert_array_equal(np.isnan(clusterer.confidence_), gone)
    np.testing.assert_array_equal(clusterer.predict(frame), clusterer.labels_)
    np.testing.assert_array_equal(np.isnan(clusterer.decision_function(frame)), gone)
    assert clusterer.summary()["n_rows"] == 400
    assert clusterer.summary()["n_rows_used"] == 392
    assert clusterer.describe().sizes.sum() == 392


@pytest.mark.usefixtures("full_reports")
def test_one_cluster_is_predicted_by_a_model(tmp_path):
    noise = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 3)), columns=list("abc"))
    for clusterer in (TableClusterer(), TableClusterer(1), TableClusterer(1, clusterer="SMIC")):
        clusterer.fit(noise)
        assert clusterer.n_clusters_ == 1
        assert not clusterer.predict(noise).any()
        np.testing.assert_array_equal(clusterer.confidence_, 1.0)
        clusterer.save(tmp_path / "m.volmar", force=True)
        assert not load_model(tmp_path / "m.volmar").model.predict(noise).any()
        json.dumps(clusterer.summary(), allow_nan=False)
    TableClusterer().fit(noise).report(tmp_path / "page.html", force=True)
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "TableClusterer(n_clusters=2).fit(table)" in html


@pytest.mark.parametrize("name", clusterer_names())
@pytest.mark.filterwarnings("ignore")  # warnings of methods about the small number of rows
def test_every_clusterer_by_its_name(name):
    X, _ = make_blobs(60, n_features=3, random_state=0)
    clusterer = TableClusterer(2, clusterer=name.upper()).fit(X)
    assert type(clusterer.model_).__name__ == name
    scaled = StandardScaler().fit_transform(X)
    alone = getattr(volmar, name)(2, random_state=0).fit(scaled)
    np.testing.assert_array_equal(clusterer.labels_, alone.labels_)
    assert ((clusterer.confidence_ >= 0.5) & (clusterer.confidence_ <= 1)).all()


def test_an_estimator_as_clusterer(table):
    frame = table[0][["height", "weight"]]
    given = CPMMC(2, C=3.0)
    clusterer = TableClusterer(3, clusterer=given, random_state=5).fit(frame)
    assert clusterer.model_.get_params()["C"] == 3.0
    assert clusterer.model_.n_clusters == 3
    assert clusterer.model_.random_state == 5
    assert given.n_clusters == 2
    assert not hasattr(given, "labels_")
    seeded = TableClusterer(2, clusterer=CPMMC(random_state=9), random_state=5).fit(frame)
    assert seeded.model_.random_state == 9
    nested = TableClusterer(clusterer=CPMMC()).set_params(clusterer__C=7.0)
    assert nested.clusterer.C == 7.0
    means = TableClusterer(2, clusterer=KMeans(n_init=1)).fit(frame)
    assert means.n_clusters_ == 2
    assert np.isnan(means.confidence_).all()
    with pytest.raises(AttributeError, match="decision_function"):
        means.decision_function(frame)


def test_labels_of_fits_are_the_same_again(table):
    frame, _ = table
    first = TableClusterer(id_column="name", random_state=np.random.RandomState(0)).fit(frame)
    assert first.n_clusters_ == 2
    one, two = (TableClusterer(id_column="name").fit(frame) for _ in range(2))
    np.testing.assert_array_equal(one.labels_, two.labels_)
    np.testing.assert_array_equal(one.confidence_, two.confidence_)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"clusterer": "KMean"}, ValueError, "^clusterer='KMean'"),
        ({"clusterer": 3}, TypeError, "^clusterer .*got 3"),
        ({"clusterer": MSPC}, TypeError, "clusterer must be the name"),
        ({"clusterer": DBSCAN()}, TypeError, "^clusterer .*got DBSCAN"),
        ({"clusterer": KMeans()}, ValueError, "^n_clusters='auto'"),
        ({"n_clusters": 999}, ValueError, "^n_clusters=999"),
        ({"n_clusters": "many"}, ValueError, "^n_clusters .*integer"),
        ({"n_clusters": 0}, ValueError, "n_clusters"),
        ({"columns": ["heigth"]}, ValueError, "'heigth'.*'height'"),
        ({"missing": "ignore"}, ValueError, "^missing"),
        ({"missing": "error"}, ValueError, "missing='drop' .*drop="),
        ({"scale": "wide"}, ValueError, "^scale .*got 'wide'"),
        ({"kinds": {"age": "number"}}, ValueError, "^kinds={'age': 'number'} has an unknown kind"),
        ({"id_column": "nmae"}, ValueError, "'nmae', given in id_column="),
        ({"id_column": 3}, ValueError, "^id_column"),
        ({"columns": 3}, ValueError, "^columns must be a list of column names"),
        ({"drop": [["age"]]}, ValueError, r"^drop\b"),
        ({"kinds": True}, ValueError, "^kinds .*column"),
        ({"kinds": {"age": ["numeric"]}}, ValueError, "has an unknown kind"),
        ({"scale": np.zeros(2)}, ValueError, "^scale must be one of"),
    ],
)
def test_wrong_parameters(settings, error, message, table):
    clusterer = TableClusterer(**{"id_column": "name"} | settings)
    with pytest.raises(error, match=message):
        clusterer.fit(table[0])
    assert not hasattr(clusterer, "labels_")


def test_new_rows_may_miss_values_that_the_fit_had(table):
    frame = table[0].dropna()
    clusterer = TableClusterer(id_column="name").fit(frame)
    np.testing.assert_array_equal(clusterer.predict(frame.assign(age=np.nan)), clusterer.labels_)
    strict = TableClusterer(id_column="name", missing="error").fit(frame)
    with pytest.raises(ValueError, match=r"fitted with missing='error'"):
        strict.predict(frame.assign(age=np.nan))


def test_kinds_of_columns_decide_what_is_used():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
    frame["yes"] = rng.random(300) < 0.5
    frame["station"] = rng.choice(["A1", "B7", "C3"], 300)
    clusterer = TableClusterer().fit(frame)
    assert clusterer.n_clusters_ == 1
    assert clusterer.summary()["columns"]["yes"] == "boolean"
    assert "station" in clusterer.summary()["left_out"]
    assert any("'station'" in note for note in clusterer.notes_)
    fewer = TableClusterer(kinds={"a": "ignore"}).fit(frame)
    assert fewer.preparation_.feature_names_ == ["b", "c"]
    # Columns that are not features describe the clusters.
    frame.loc[:149, ["a", "b"]] += 8
    description = TableClusterer().fit(frame).describe()
    assert {"a", "station"} <= set(description.columns)


def test_a_fit_that_fails_leaves_nothing(table):
    frame, _ = table
    clusterer = TableClusterer(id_column="name").fit(frame)
    clusterer.set_params(n_clusters=999)
    with pytest.raises(ValueError, match="999"):
        clusterer.fit(frame)
    assert not [name for name in vars(clusterer) if name.endswith("_")]
    with pytest.raises(ValueError, match="no column 'nowhere'"):
        clusterer.set_params(id_column="nowhere").fit(frame)
    assert not [name for name in vars(clusterer) if name.endswith("_")]


def test_clusters_that_only_rows_with_noise_are_in_are_warned_of():
    frame = pd.DataFrame({"yes": np.arange(30) % 2 == 0})
    with pytest.warns(UserWarning, match="Cluster . of 3 has no rows"):
        clusterer = TableClusterer(3).fit(frame)
    assert set(clusterer.labels_) < {0, 1, 2}
    assert clusterer.n_clusters_ == 3


def test_warnings_of_the_fit_are_kept_and_issued(table):
    frame = table[0][["height", "weight"]]
    with pytest.warns(UserWarning, match="n_clusters|Found"):
        clusterer = TableClusterer(3, clusterer="MSPC").fit(frame.iloc[[0, 0, 0, 1]])
    assert clusterer.warnings_


@pytest.mark.usefixtures("full_reports")
def test_progress_is_reported(table):
    seen = []
    clusterer = TableClusterer(2, id_column="name")
    clusterer.fit(table[0], progress=lambda *news: seen.append(news))
    stages = list(dict.fromkeys(stage for stage, _, _ in seen))
    assert stages == ["preparing", "looking for groups", "testing"]
    assert all(0 <= done <= total or total == 0 for _, done, total in seen)
    seen.clear()
    clusterer.outcome(progress=lambda *news: seen.append(news))
    assert {stage for stage, _, _ in seen} == {
        *("judging", "resampling", "describing", "comparing numbers")
    }
    assert ("resampling", 10, 10) in seen


def test_the_search_reports_settled_rows():
    """The progress, as a share of the rows, never decreases."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(9 * j, 1, (150, 3)) for j in range(3)])
    news = []
    clusterer = TableClusterer().fit(X, progress=lambda *one: news.append(one))
    assert clusterer.n_clusters_ == 3
    found = [(done, total) for stage, done, total in news if stage == "looking for groups"]
    assert found[0] == (0, 0)
    done = [one for one, total in found[1:] if total == 450]
    assert done == sorted(done)
    assert done[0] == 0
    assert done[-1] == 450
    assert "_tell" not in vars(clusterer.model_)
