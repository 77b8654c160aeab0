"""`TableClusterer`: tables of any library in, clusters, descriptions, pages and files out."""

import json
import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import DBSCAN, HDBSCAN, KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import volmar
from volmar import CPMMC, MSPC, TableClusterer
from volmar.datasets import make_blobs
from volmar.models import load_model
from volmar.report import Outcome, judging, save_report, write_report
from volmar.table_clusterer import clusterer_names
from volmar.table_clusterer.confidence import confidence_of, score_slopes

pd = pytest.importorskip("pandas")


def people(n=400, seed=0):
    """Two groups in height and weight; names, missing ages, and a region that says nothing."""
    rng = np.random.default_rng(seed)
    group = rng.random(n) < 0.4
    frame = pd.DataFrame(
        {
            "name": [f"person {i}" for i in range(n)],
            "height": rng.normal(160, 5, n) + 30 * group,
            "weight": rng.normal(55, 4, n) + 25 * group,
            "age": rng.normal(40, 10, n),
        }
    )
    frame.loc[::50, "age"] = np.nan
    return frame, group


@pytest.fixture(scope="module")
def table():
    return people()


@pytest.fixture(scope="module")
def fitted(table):
    return TableClusterer(id_column="name").fit(table[0])


def test_what_a_fit_leaves_behind(fitted, table):
    frame, group = table
    assert fitted.n_clusters_ == 2
    assert adjusted_rand_score(group, fitted.labels_) > 0.95
    np.testing.assert_array_equal(fitted.predict(frame), fitted.labels_)
    assert isinstance(fitted.model_, MSPC)
    assert fitted.preparation_.numbers_ == ["height", "weight", "age"]
    assert fitted.evidence_[0].value < 0.05
    assert any("8 missing values" in note for note in fitted.notes_)
    assert fitted.warnings_ == []
    assert list(fitted.seconds_)[:2] == ["preparing", "looking for groups"]
    assert fitted.feature_names_in_.tolist() == list(frame.columns)
    scores = fitted.decision_function(frame)
    np.testing.assert_array_equal(scores > 0, fitted.labels_ == 1)
    np.testing.assert_allclose(fitted.confidence(frame), fitted.confidence_)


def test_columns_go_by_name(fitted, table):
    frame, _ = table
    moved = frame[["age", "name", "weight", "height"]].assign(other="x")
    np.testing.assert_array_equal(fitted.predict(moved), fitted.labels_)
    with pytest.raises(ValueError, match=r"lacks 1 of the 3 columns.*'age'"):
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
    # As the clusterer itself gives them for the prepared rows.
    scaled = StandardScaler().fit_transform(X)
    np.testing.assert_array_equal(labels, MSPC("auto", random_state=0).fit_predict(scaled))


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


def test_one_cluster_is_predicted_by_a_model(tmp_path):
    noise = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 3)), columns=list("abc"))
    for clusterer in (TableClusterer(), TableClusterer(1), TableClusterer(1, clusterer="SMIC")):
        clusterer.fit(noise)
        assert clusterer.n_clusters_ == 1
        assert not clusterer.predict(noise).any()
        np.testing.assert_array_equal(clusterer.confidence_, 1.0)
        clusterer.report(tmp_path / "page.html", force=True)
        clusterer.save(tmp_path / "m.volmar", force=True)
        assert not load_model(tmp_path / "m.volmar").model.predict(noise).any()
        json.dumps(clusterer.summary(), allow_nan=False)
    TableClusterer().fit(noise).report(tmp_path / "page.html", force=True)
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "TableClusterer(n_clusters=2).fit(table)" in html


@pytest.mark.parametrize("name", clusterer_names())
@pytest.mark.filterwarnings("ignore")  # of methods that are unsure of so few rows
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
    with pytest.raises(AttributeError, match="KMeans has no decision_function"):
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
        ({"clusterer": "KMean"}, ValueError, "clusterer='KMean' is not known. Did you mean"),
        ({"clusterer": 3}, TypeError, "clusterer must be the name .* got 3"),
        ({"clusterer": MSPC}, TypeError, "clusterer must be the name"),
        ({"clusterer": DBSCAN()}, TypeError, "a parameter n_clusters, got DBSCAN"),
        ({"clusterer": KMeans()}, ValueError, "n_clusters='auto' needs a clusterer of volmar"),
        ({"n_clusters": 999}, ValueError, "n_clusters=999 is more than the 400 rows"),
        ({"n_clusters": "many"}, ValueError, "n_clusters must be an integer"),
        ({"n_clusters": 0}, ValueError, "n_clusters"),
        ({"columns": ["heigth"]}, ValueError, "no column 'heigth'.*did you mean 'height'"),
        ({"missing": "ignore"}, ValueError, "^missing='ignore' must be one of"),
        ({"missing": "error"}, ValueError, "give missing='drop' to leave .* columns in drop="),
        ({"scale": "wide"}, ValueError, "^scale='wide' must be one of"),
        ({"kinds": {"age": "number"}}, ValueError, "^kinds={'age': 'number'} must have"),
        ({"id_column": "nmae"}, ValueError, "'nmae', which id_column= names"),
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
    # Columns that make no features describe the clusters.
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


def test_warnings_of_the_fit_are_kept_and_issued(table):
    frame = table[0][["height", "weight"]]
    with pytest.warns(UserWarning, match="n_clusters|Found"):
        clusterer = TableClusterer(3).fit(frame.iloc[[0, 0, 0, 1]])
    assert clusterer.warnings_


def test_progress_is_reported(table, monkeypatch):
    monkeypatch.setattr(judging, "LONG_FIT", 1e9)
    monkeypatch.setattr(judging, "MAX_SECONDS", 1e9)
    seen = []
    clusterer = TableClusterer(2, id_column="name")
    clusterer.fit(table[0], progress=lambda *news: seen.append(news))
    stages = list(dict.fromkeys(stage for stage, _, _ in seen))
    assert stages == ["preparing", "looking for groups", "testing"]
    assert all(0 <= done <= total or total == 0 for _, done, total in seen)
    seen.clear()
    clusterer.outcome(progress=lambda *news: seen.append(news))
    assert {stage for stage, _, _ in seen} == {
        *("judging", "resampling", "describing", "comparing numbers"),
    }
    assert ("resampling", 10, 10) in seen


# ---------------------------------------------------------------------- what was found


def test_the_description_is_in_the_units_of_the_table(fitted, table):
    frame, group = table
    description = fitted.describe()
    text = str(description)
    assert "height" in text
    assert "person " in text
    inside = description.inside[fitted.labels_[np.flatnonzero(group)[0]]]
    tall = frame["height"][fitted.labels_ == fitted.labels_[np.flatnonzero(group)[0]]].mean()
    assert np.isclose(inside, tall).any()


def test_the_summary_is_json(fitted):
    summary = json.loads(json.dumps(fitted.summary(), allow_nan=False))
    assert summary["n_clusters"] == 2
    assert sum(summary["sizes"]) == 400
    assert summary["method"] == "MSPC"
    assert summary["evidence"][0]["value"] < 0.05
    assert summary["splits"][0]["level"] == 0.05
    assert summary["splits"][0]["p_value"] == summary["evidence"][0]["value"]
    assert summary["columns"]["height"] == "numeric"
    assert summary["parameters"]["n_clusters"] == "auto"


def test_the_report_is_a_page(fitted, table, tmp_path):
    page = tmp_path / "report.html"
    fitted.report(page)
    html = page.read_text(encoding="utf-8")
    assert "height" in html
    assert "person " in html
    assert "TableClusterer(id_column=&#39;name&#39;).fit(table)" in html
    with pytest.raises(FileExistsError):
        fitted.report(page)
    fitted.report(page, force=True)


def test_what_the_report_shows(fitted, table, monkeypatch):
    monkeypatch.setattr(judging, "LONG_FIT", 1e9)
    outcome = fitted.outcome()
    assert [one.n_clusters for one in outcome.numbers.found][:2] == [2, 3]
    assert outcome.used == [True, True, True]
    assert outcome.column_names == ["height", "weight", "age"]
    assert {one.kind for one in outcome.evidence} == {"p-value", "stability"}
    assert outcome.description.columns is not None
    monkeypatch.setattr(judging, "LONG_FIT", 0.0)
    monkeypatch.setattr(judging, "MAX_SECONDS", 0.0)
    slow = fitted.outcome()
    assert slow.numbers is None
    assert {one.kind for one in slow.evidence} == {"p-value"}
    assert "takes too long" in slow.description.note


def test_pictures(fitted, tmp_path):
    pytest.importorskip("matplotlib")
    written = fitted.pictures(tmp_path / "pictures", formats=["svg"])
    names = {path.name for path in written}
    assert {"clusters.svg", "scores.svg", "tree.svg", "columns.svg", "borders.svg"} <= names
    assert all(path.exists() for path in written)
    with pytest.raises(FileExistsError):
        fitted.pictures(tmp_path / "pictures", formats=["svg"])


def test_the_level_and_the_maximum_are_those_of_the_clusterer():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2)) + 9 * np.eye(2)[rng.integers(0, 2, 400)]
    X[:100] -= 9
    free = TableClusterer().fit(X)
    assert free.n_clusters_ == 4
    assert free.summary()["splits"][0]["level"] == 0.05
    strict = TableClusterer(alpha=0.03).fit(X)
    assert strict.model_.alpha == 0.03
    assert strict.summary()["splits"][0]["level"] == 0.03
    with pytest.warns(UserWarning, match="max_clusters=2"):
        few = TableClusterer(max_clusters=2).fit(X)
    assert few.n_clusters_ == 2
    assert any("max_clusters=2" in text for text in few.warnings_)
    with pytest.raises(ValueError, match="alpha"):
        TableClusterer(alpha=2.0).fit(X)
    with pytest.raises(ValueError, match="max_clusters=3: KMeans has no such parameter"):
        TableClusterer(2, clusterer=KMeans(), max_clusters=3).fit(X)


def test_copies_leave_the_table_behind(fitted, table, tmp_path):
    frame, _ = table
    fitted.save(tmp_path / "m.volmar")
    copies = [pickle.loads(pickle.dumps(fitted)), load_model(tmp_path / "m.volmar").model]
    for copy in copies:
        assert isinstance(copy, TableClusterer)
        np.testing.assert_array_equal(copy.labels_, fitted.labels_)
        np.testing.assert_array_equal(copy.predict(frame), fitted.labels_)
        np.testing.assert_allclose(copy.confidence(frame), fitted.confidence_)
        assert copy.summary() == fitted.summary()
        assert copy.evidence_ == fitted.evidence_
        for ask in (copy.describe, copy.outcome):
            with pytest.raises(ValueError, match="Give the table as data"):
                ask()
        assert str(copy.describe(frame)) == str(fitted.describe())
        copy.report(tmp_path / "report.html", frame, force=True)
    assert (tmp_path / "m.volmar").stat().st_size < 60_000


# ---------------------------------------------------------------------- confidences


def overlapping(sep, n, k=2, d=5, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.linalg.qr(rng.normal(size=(d, d)))[0][:k] * sep / np.sqrt(2)
    y = rng.integers(0, k, n)
    return centres[y] + rng.normal(size=(n, d)), y


@pytest.mark.parametrize(("k", "sep"), [(2, 2.5), (2, 4.0), (3, 4.0)])
def test_confidences_of_normal_groups_are_near_the_share_of_right_rows(k, sep):
    X, y = overlapping(sep, 3000, k, seed=11)
    clusterer = TableClusterer(k, scale="none").fit(X)
    counts = np.zeros((k, k))
    np.add.at(counts, (clusterer.labels_, y), 1)
    is_right = counts.argmax(axis=1)[clusterer.labels_] == y
    confidence = clusterer.confidence_
    assert abs(confidence.mean() - is_right.mean()) < 0.03
    low = np.argsort(confidence)[:600]  # the fifth that is least sure
    assert abs(confidence[low].mean() - is_right[low].mean()) < 0.08


def test_confidences_rise_with_the_distance_from_the_border():
    scores = np.concatenate([np.linspace(-3, -0.5, 50), np.linspace(0.5, 3, 50)])
    labels = (scores > 0).astype(int)
    slopes = score_slopes(scores, labels)
    confidence = confidence_of(scores, labels, slopes)
    order = np.argsort(np.abs(scores))
    assert (np.diff(confidence[order]) >= 0).all()
    assert confidence_of(np.zeros(2), np.array([0, 0]), slopes).tolist() == [0.5, 0.5]
    # The same in other units, and where the scores have an outlier.
    again = confidence_of(1e9 * scores, labels, score_slopes(1e9 * scores, labels))
    np.testing.assert_allclose(again, confidence)
    far = np.append(scores, 1e6)
    with_outlier = score_slopes(far, (far > 0).astype(int))
    assert np.isfinite(list(with_outlier.values())).all()


def test_confidences_of_degenerate_scores():
    assert score_slopes(np.zeros(5), np.zeros(5, int)) == {}
    np.testing.assert_array_equal(confidence_of(np.zeros(5), np.zeros(5, int), {}), 1.0)
    two = np.array([-1.0, 1.0])
    confidence = confidence_of(two, np.array([0, 1]), score_slopes(two, np.array([0, 1])))
    assert ((confidence >= 0.5) & (confidence <= 1)).all()


# ---------------------------------------------------------------------- a report of any model


def test_a_report_of_any_clusterer(table, tmp_path):
    frame = table[0][["height", "weight"]]
    page = tmp_path / "page.html"
    pipeline = make_pipeline(StandardScaler(), PCA(2), MSPC("auto", random_state=0))
    models = {
        "MSPC": MSPC(3, random_state=0),
        "auto": MSPC("auto", random_state=0),
        "one": MSPC(1),
        "KMeans": KMeans(2, n_init=1, random_state=0),
        "HDBSCAN": HDBSCAN(min_cluster_size=20, copy=True),
        "pipeline": pipeline,
    }
    for name, model in models.items():
        model.fit(frame)
        save_report(page, model, frame, title=f"By {name}", force=True)
        html = page.read_text(encoding="utf-8")
        assert f"By {name}" in html
        assert "height" in html, name
        if name in ("KMeans", "HDBSCAN"):
            assert "has no scores" in html
    # Columns that the model does not use are described, and rows have the names of the index.
    save_report(page, models["KMeans"], table[0].set_index("name"), force=True)
    assert "age" in page.read_text(encoding="utf-8")
    assert "person 7" in page.read_text(encoding="utf-8")
    save_report(page, MSPC(2, random_state=0).fit(frame.to_numpy()), frame.to_numpy(), force=True)
    assert "x1" in page.read_text(encoding="utf-8")


def test_noise_is_left_out_of_a_report(table, tmp_path):
    frame = table[0][["height", "weight"]]
    far = pd.concat([frame, pd.DataFrame({"height": [900.0], "weight": [900.0]})])
    model = DBSCAN(eps=8, min_samples=5).fit(far)
    assert (model.labels_ == -1).sum() >= 1
    save_report(tmp_path / "page.html", model, far)
    count = (model.labels_ == -1).sum()
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"{count} rows without a cluster (-1) are left out" in html
    nothing = DBSCAN(eps=1e-9).fit(frame)
    with pytest.raises(ValueError, match="labelled every row -1"):
        save_report(tmp_path / "other.html", nothing, frame)


def test_reports_refuse_what_they_cannot_show(table, tmp_path):
    frame = table[0][["height", "weight"]]
    model = KMeans(2, n_init=1).fit(frame)
    page = tmp_path / "page.html"
    for given, data, message in (
        (model, None, "Give them as data"),
        (model, frame[["height"]], "data lacks the column 'weight'"),
        (DBSCAN(eps=8).fit(frame), frame[:10], "cannot predict other rows"),
        (KMeans, frame, "Fit an instance"),
        (StandardScaler().fit(frame), frame, "neither labels_ nor predict"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            save_report(page, given, data)
    assert not page.exists()


def test_an_outcome_needs_rows_and_labels_only(tmp_path):
    X, _ = make_blobs(60, random_state=0)
    labels = np.arange(60) % 3
    outcome = Outcome(X=X, labels=labels)
    assert outcome.n_rows == 60
    assert outcome.n_found == 3
    assert outcome.feature_names == ["x0", "x1"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_report(outcome, tmp_path / "page.html")
    assert "three clusters" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_search_reports_settled_rows():
    """Rows in clusters that stay whole, of all rows, never fewer than before."""
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
