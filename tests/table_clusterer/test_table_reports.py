"""Reports of a fitted `TableClusterer`, and of other models."""

import json
import pickle
import sys
import time
import warnings

import numpy as np
import pytest
from sklearn.cluster import DBSCAN, HDBSCAN, AgglomerativeClustering, KMeans
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from volmar import MSPC, AutoClusterer, TableClusterer
from volmar.datasets import make_blobs
from volmar.models import ModelError, save_model
from volmar.report import Outcome, judging, save_report
from volmar.report.cluster_page import write_report

pd = pytest.importorskip("pandas")


def test_the_description_is_in_the_units_of_the_table(fitted, table):
    frame, group = table
    description = fitted.describe()
    text = str(description)
    assert "height" in text
    assert "person " in text
    inside = description.inside[fitted.labels_[np.flatnonzero(group)[0]]]
    tall = frame["height"][fitted.labels_ == fitted.labels_[np.flatnonzero(group)[0]]].mean()
    assert np.isclose(inside, tall).any()


def test_new_rows_with_unknown_levels_are_described_without_them(table):
    """A value that was not in the fitted table has no rank."""
    frame, group = table
    sizes = np.where(group, "large", np.where(np.arange(400) % 2, "small", "medium"))
    model = TableClusterer(2).fit(frame.assign(size=sizes))
    new = frame.assign(size=np.where(np.arange(400) % 40 == 0, "enormous", sizes))
    with pytest.warns(UserWarning, match="'size'") as caught:
        text = str(model.describe(new))
    assert len(caught) == 1
    assert "height" in text
    assert "enormous" not in text


def test_the_summary_is_json(fitted):
    summary = json.loads(json.dumps(fitted.summary(), allow_nan=False))
    assert summary["n_clusters"] == 2
    assert sum(summary["sizes"]) == 400
    assert summary["method"] == "AutoClusterer"
    assert summary["evidence"][0]["value"] < 0.05
    assert summary["splits"][0]["level"] == 0.05
    assert summary["splits"][0]["p_value"] == summary["evidence"][0]["value"]
    assert summary["columns"]["height"] == "numeric"
    assert summary["parameters"]["n_clusters"] == "auto"


@pytest.mark.slow
@pytest.mark.usefixtures("full_reports")
def test_the_report_is_a_page(fitted, tmp_path):
    page = tmp_path / "report.html"
    fitted.report(page)
    html = page.read_text(encoding="utf-8")
    assert "height" in html
    assert "person " in html
    assert "TableClusterer(id_column=&#39;name&#39;).fit(table)" in html
    with pytest.raises(FileExistsError):
        fitted.report(page)


@pytest.fixture(scope="module")
def outcome(fitted):
    """With the stages that fit many times."""
    return fitted.outcome()


@pytest.mark.usefixtures("full_reports")
def test_what_the_report_shows(fitted, outcome, monkeypatch):
    assert [one.n_clusters for one in outcome.numbers.found][:2] == [2, 3]
    assert outcome.used == [True, True, True]
    assert outcome.column_names == ["height", "weight", "age"]
    assert {one.kind for one in outcome.evidence} == {"p-value", "stability"}
    assert outcome.description.columns is not None
    monkeypatch.setattr(judging, "repeatable_rows", lambda *_: 50)
    large = fitted.outcome()
    assert {one.kind for one in large.evidence} == {"p-value"}


@pytest.mark.usefixtures("full_reports")
def test_a_report_does_not_depend_on_the_clock(fitted, outcome, monkeypatch):
    """Everything but the run times is the same if each look at the clock is an hour later."""
    hours = iter(range(0, 10**9, 3600))
    for clock in ("perf_counter", "process_time", "monotonic", "time"):
        monkeypatch.setattr(time, clock, lambda: float(next(hours)))
    busy = fitted.outcome()
    assert str(busy.numbers) == str(outcome.numbers)
    assert busy.evidence == outcome.evidence
    assert str(busy.description) == str(outcome.description)


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
    with pytest.raises(ValueError, match=r"^max_clusters=3"):
        TableClusterer(2, clusterer=KMeans(), max_clusters=3).fit(X)


def test_copies_leave_the_table_behind(fitted, table, tmp_path):
    frame, _ = table
    fitted.save(tmp_path / "m.volmar")
    copies = [pickle.loads(pickle.dumps(fitted)), TableClusterer.load(tmp_path / "m.volmar")]
    assert copies[0].summary() == fitted.summary()
    np.testing.assert_array_equal(copies[0].labels_, fitted.labels_)
    with pytest.raises(AttributeError, match="does not hold"):
        copies[1].summary()
    save_model(tmp_path / "other.volmar", MSPC(2).fit(frame[["height", "weight"]]))
    with pytest.raises(ModelError, match="holds a MSPC, not a TableClusterer"):
        TableClusterer.load(tmp_path / "other.volmar")
    for copy in copies:
        assert isinstance(copy, TableClusterer)
        np.testing.assert_array_equal(copy.predict(frame), fitted.labels_)
        np.testing.assert_allclose(copy.confidence(frame), fitted.confidence_)
        assert copy.evidence_ == fitted.evidence_
        for ask in (copy.describe, copy.outcome):
            with pytest.raises(ValueError, match="Give the table as data"):
                ask()
        assert str(copy.describe(frame)) == str(fitted.describe())
        copy.report(tmp_path / "report.html", frame, force=True)
    assert (tmp_path / "m.volmar").stat().st_size < 100_000


@pytest.mark.slow
def test_a_report_of_any_clusterer(table, tmp_path):
    frame = table[0][["height", "weight"]]
    page = tmp_path / "page.html"
    pipeline = make_pipeline(StandardScaler(), PCA(2), AutoClusterer(random_state=0))
    models = {
        "MSPC": MSPC(3, random_state=0),
        "auto": AutoClusterer(random_state=0),
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
    # Unused columns are described, and rows are named by the index.
    save_report(page, models["KMeans"], table[0].set_index("name"), force=True)
    assert "age" in page.read_text(encoding="utf-8")
    assert "person 7" in page.read_text(encoding="utf-8")
    save_report(page, MSPC(2, random_state=0).fit(frame.to_numpy()), frame.to_numpy(), force=True)
    assert "x1" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("clusterer", [MSPC(2, random_state=0), KMeans(2, n_init=1)])
def test_a_report_of_new_rows_has_their_predicted_clusters(clusterer, monkeypatch):
    """Also if they are as many as those of the fit: other rows, and the same in another order."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    X[:200, 0] += 9.0
    model = clusterer.fit(X)
    shown = []
    module = sys.modules["volmar.report.save_report"]
    monkeypatch.setattr(module, "write_report", lambda outcome, *_, **__: shown.append(outcome))
    for rows in (X, X[::-1], pd.DataFrame(X[::-1], columns=["a", "b"])):
        save_report("page.html", model, rows)
        labels = shown[-1].labels
        np.testing.assert_array_equal(labels, model.predict(np.asarray(rows)))
        high = int(np.asarray(rows)[labels == 1, 0].mean() > 4.5)
        inside = shown[-1].description.inside
        assert inside[high].max() > 8.0 > inside[1 - high].max()
    one_group = rng.normal(size=(300, 2))
    save_report("page.html", model, one_group)
    np.testing.assert_array_equal(shown[-1].labels, model.predict(one_group))
    assert shown[-1].k == 1
    assert not any("cannot predict" in note for one in shown for note in one.notes)


def test_a_model_without_predict_says_so(tmp_path):
    X, _ = make_blobs(100, random_state=0)
    save_report(tmp_path / "page.html", AgglomerativeClustering(2).fit(X), X)
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "AgglomerativeClustering cannot predict" in html


def test_noise_is_left_out_of_a_report(table, tmp_path):
    frame = table[0][["height", "weight"]]
    far = pd.concat([frame, pd.DataFrame({"height": [900.0], "weight": [900.0]})])
    model = DBSCAN(eps=8, min_samples=5).fit(far)
    assert (model.labels_ == -1).sum() >= 1
    save_report(tmp_path / "page.html", model, far)
    count = (model.labels_ == -1).sum()
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"{count} rows without a cluster (-1) were left out" in html
    nothing = DBSCAN(eps=1e-9).fit(frame)
    with pytest.raises(ValueError, match="labelled every row -1"):
        save_report(tmp_path / "other.html", nothing, frame)


def test_reports_refuse_what_they_cannot_show(table, tmp_path):
    frame = table[0][["height", "weight"]]
    model = KMeans(2, n_init=1).fit(frame)
    page = tmp_path / "page.html"
    for given, data, message in (
        (model, None, "Pass them as data"),
        (model, frame[["height"]], "^data .*'weight'"),
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
