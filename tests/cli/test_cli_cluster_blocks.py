"""``volmar cluster`` on folders of files."""

import json

import numpy as np
import pytest
from helpers.cli import invoke, read
from sklearn.metrics import adjusted_rand_score

from volmar.cli import cluster
from volmar.datasets import make_blobs
from volmar.metrics import clustering_error
from volmar.models import load_model

pandas = pytest.importorskip("pandas")


def five_groups(n=1500):
    """Five groups in three columns, of which some lie between others."""
    y = np.arange(n) % 5
    centers = np.array([[0, 0, 0], [9, 0, 0], [0, 9, 0], [9, 9, 0], [4.5, 4.5, 9]])
    return centers[y] + np.random.default_rng(0).normal(size=(n, 3)), y


def parts(tmp_path, X):
    folder = tmp_path / "parts"
    folder.mkdir()
    for i, rows in enumerate(np.array_split(X, 3)):
        frame = pandas.DataFrame(rows, columns=list("abc"))
        frame.to_csv(folder / f"part-{i}.csv", index=False)
    return folder


def test_a_folder_goes_by_blocks(tmp_path):
    pytest.importorskip("dask")
    X, _ = make_blobs(3000, n_features=4, random_state=0)
    folder = tmp_path / "parts"
    folder.mkdir()
    for i in range(3):
        frame = pandas.DataFrame(X[1000 * i : 1000 * (i + 1)], columns=list("abcd"))
        frame.to_csv(folder / f"part-{i}.csv", index=False)
    out = tmp_path / "labels.csv"
    summary, model = tmp_path / "summary.json", tmp_path / "m.volmar"
    files = ("--report", tmp_path / "report.html", "--json", summary, "--save", model)
    result = invoke("cluster", folder, "-o", out, *files)
    assert result.exit_code == 0, result.output
    rows = read(out)
    assert [int(row["row"]) for row in rows] == list(range(3000))
    labels = np.array([int(row["label"]) for row in rows])
    sizes = np.bincount(labels)
    assert sizes.min() > 1000
    assert all(0.5 <= float(row["confidence"]) <= 1 for row in rows)
    assert json.loads(summary.read_text(encoding="utf-8"))["sizes"] == sizes.tolist()
    found = load_model(model).model.predict(pandas.DataFrame(X, columns=list("abcd")))
    np.testing.assert_array_equal(found, labels)


@pytest.mark.parametrize("k", ["5"])
@pytest.mark.parametrize("method", ["mspc", "cpmmc"])
def test_more_than_two_clusters_of_a_folder(tmp_path, k, method):
    """The clusters are those of all rows in memory, for any sample."""
    pytest.importorskip("dask")
    X, y = five_groups()
    folder = parts(tmp_path, X)
    out, summary = tmp_path / "labels.csv", tmp_path / "s.json"
    files = ("-o", out, "--json", summary, "--save", tmp_path / "m.volmar")
    result = invoke("cluster", folder, "-k", k, "--method", method, *files)
    assert result.exit_code == 0, result.output
    labels = np.array([int(row["label"]) for row in read(out)])
    assert adjusted_rand_score(y, labels) > 0.99
    assert json.loads(summary.read_text(encoding="utf-8"))["sizes"] == np.bincount(labels).tolist()
    assert "in blocks" in result.stdout
    single = tmp_path / "all.csv"
    pandas.DataFrame(X, columns=list("abc")).to_csv(single, index=False)
    result = invoke("predict", tmp_path / "m.volmar", folder, "-o", tmp_path / "again.csv")
    assert result.exit_code == 0, result.output
    assert [int(row["label"]) for row in read(tmp_path / "again.csv")] == labels.tolist()
    result = invoke("cluster", single, "-k", k, "--method", method, "-o", tmp_path / "one.csv")
    assert result.exit_code == 0, result.output
    near = np.array([int(row["label"]) for row in read(tmp_path / "one.csv")])
    assert clustering_error(near, labels) < 0.002


def test_a_method_that_needs_all_rows_is_fitted_to_the_sample(tmp_path, monkeypatch):
    pytest.importorskip("dask")
    monkeypatch.setattr(cluster, "SAMPLE", 300)
    X, y = five_groups(900)
    folder, out = parts(tmp_path, X), tmp_path / "labels.csv"
    result = invoke("cluster", folder, "-k", 5, "--method", "SoftLabelMVC", "-o", out)
    assert result.exit_code == 0, result.output
    assert "SoftLabelMVC" in result.stderr
    assert "300 rows" in result.stderr
    labels = np.array([int(row["label"]) for row in read(out)])
    assert adjusted_rand_score(y, labels) > 0.9


@pytest.mark.slow
def test_a_report_on_blocks_says_which_rows_it_shows(tmp_path, monkeypatch):
    pytest.importorskip("dask")
    monkeypatch.setattr(cluster, "SAMPLE", 400)
    X, _ = five_groups(1200)
    page = tmp_path / "r.html"
    result = invoke("cluster", parts(tmp_path, X), "-k", 5, "--report", page)
    assert result.exit_code == 0, result.output
    assert "400 rows" in result.stderr
    assert "400 of 1200 rows" in page.read_text(encoding="utf-8")


def test_rows_of_a_folder_with_their_clusters(tmp_path):
    pytest.importorskip("dask")
    X, y = five_groups(900)
    frame = pandas.DataFrame(X, columns=["a", "b", "cluster"])
    frame.loc[[7, 500], "b"] = np.nan
    folder = tmp_path / "parts"
    folder.mkdir()
    for i in range(3):
        frame[300 * i : 300 * (i + 1)].to_csv(folder / f"{i}.csv", index=False)
    out = tmp_path / "rows.csv"
    result = invoke("cluster", folder, "-k", 5, "--append", "--missing", "drop", "-o", out)
    assert result.exit_code == 0, result.output
    found = pandas.read_csv(out)
    assert list(found.columns) == ["a", "b", "cluster", "cluster_2"]
    np.testing.assert_allclose(found["a"], X[:, 0])
    assert np.flatnonzero(found["cluster_2"].isna()).tolist() == [7, 500]
    kept = found["cluster_2"].notna()
    assert adjusted_rand_score(y[kept], found["cluster_2"][kept]) > 0.98
    result = invoke("cluster", folder, "--append")
    assert result.exit_code == 2
    assert "Give one with -o" in result.stderr


def test_blocks_that_do_not_fit_are_read_again_in_each_pass(tmp_path, monkeypatch):
    pytest.importorskip("dask")
    X, y = five_groups(900)
    monkeypatch.setattr(cluster, "available_memory", lambda: 1000)
    out = tmp_path / "labels.csv"
    result = invoke("cluster", parts(tmp_path, X), "-k", 5, "-o", out)
    assert result.exit_code == 0, result.output
    assert "each pass" in result.stderr
    labels = np.array([int(row["label"]) for row in read(out)])
    assert adjusted_rand_score(y, labels) > 0.98


def test_an_interrupted_run_leaves_no_half_file(tmp_path, monkeypatch):
    pytest.importorskip("dask")
    X, _ = five_groups(900)
    out = tmp_path / "labels.csv"

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "_ids", stop)
    result = invoke("cluster", parts(tmp_path, X), "-k", 5, "-o", out)
    assert result.exit_code != 0
    assert not out.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts"]


def test_a_folder_of_noise_is_one_cluster(tmp_path):
    pytest.importorskip("dask")
    frame = pandas.DataFrame(np.random.default_rng(0).normal(size=(300, 3)), columns=list("abc"))
    folder = tmp_path / "parts"
    folder.mkdir()
    frame[:150].to_csv(folder / "part-0.csv", index=False)
    frame[150:].to_csv(folder / "part-1.csv", index=False)
    out = tmp_path / "labels.csv"
    result = invoke("cluster", folder, "-o", out, "--report", tmp_path / "report.html")
    assert result.exit_code == 0, result.output
    assert f"volmar cluster {folder} --n-clusters 2" in result.output
    assert {row["label"] for row in read(out)} == {"0"}
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize("is_number", [False, True])
def test_ids_of_a_folder_belong_to_the_rows_that_are_left(tmp_path, is_number):
    pytest.importorskip("dask")
    X, y = make_blobs(600, n_features=4, random_state=0)
    frame = pandas.DataFrame(X, columns=list("abcd"))
    frame["who"] = np.arange(600) + 10 if is_number else [f"n, {i}" for i in range(600)]
    expected = frame["who"].astype(str).to_numpy()
    frame.loc[[3, 250, 599], "b"] = np.nan
    folder = tmp_path / "parts"
    folder.mkdir()
    for i in range(3):
        frame[200 * i : 200 * (i + 1)].to_csv(folder / f"part-{i}.csv", index=False)
    kept = np.setdiff1d(np.arange(600), [3, 250, 599])
    out = tmp_path / "labels.csv"
    arguments = ("cluster", folder, "--missing", "drop", "-k", 2, "-o", out, "--force")
    result = invoke(*arguments, "--id", "who", "--report", tmp_path / "r.html")
    assert result.exit_code == 0, result.output
    rows = read(out)
    assert [row["who"] for row in rows] == expected[kept].tolist()
    found = np.array([int(row["label"]) for row in rows])
    assert max(np.mean(found == y[kept]), np.mean(found != y[kept])) > 0.9
    result = invoke(*arguments, "--drop", "who")
    assert result.exit_code == 0, result.output
    assert [int(row["row"]) for row in read(out)] == kept.tolist()
