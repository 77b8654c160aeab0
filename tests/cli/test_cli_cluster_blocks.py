"""``volmar cluster`` on folders of files."""

import json

import numpy as np
import pytest
from helpers.cli import invoke, read
from sklearn.base import clone

from volmar import MSPC
from volmar.cli import cluster_blocks
from volmar.datasets import make_blobs
from volmar.metrics import clustering_error
from volmar.models import load_model

pandas = pytest.importorskip("pandas")


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
    assert "pass 2: 3000 rows" in result.output
    rows = read(out)
    assert [int(row["row"]) for row in rows] == list(range(3000))
    labels = np.array([int(row["label"]) for row in rows])
    sizes = np.bincount(labels)
    assert sizes.min() > 1000
    assert all(0.5 <= float(row["confidence"]) <= 1 for row in rows)
    assert json.loads(summary.read_text(encoding="utf-8"))["sizes"] == sizes.tolist()
    found = load_model(model).model.predict(pandas.DataFrame(X, columns=list("abcd")))
    np.testing.assert_array_equal(found, labels)
    result = invoke("cluster", folder, "-o", out, "--append", "--force")
    assert result.exit_code == 2
    assert "--append takes a single file" in result.stderr


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
    assert "No evidence for more than one group (p = " in result.output
    assert f"volmar cluster {folder} --n-clusters 2" in result.output
    assert {row["label"] for row in read(out)} == {"0"}
    assert "if you insist" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_blocks_keep_the_split_that_was_tested(tmp_path, monkeypatch):
    """The fit to all rows is by other means than the search, and may end in another split."""
    pytest.importorskip("dask")
    X, _ = make_blobs(600, n_features=4, random_state=0)
    folder = tmp_path / "parts"
    folder.mkdir()
    for i in range(2):
        frame = pandas.DataFrame(X[300 * i : 300 * (i + 1)], columns=list("abcd"))
        frame.to_csv(folder / f"part-{i}.csv", index=False)

    def other_split(clusterer):
        model = clone(clusterer.clusterer)
        model.fit = lambda _: MSPC(2, random_state=0).fit(X[:, ::-1] ** 2)
        return model

    monkeypatch.setattr(cluster_blocks, "_in_two", other_split)
    result = invoke("cluster", folder, "-o", tmp_path / "labels.csv")
    assert result.exit_code == 0, result.output
    assert "another split than the one that was tested" in result.output
    labels = np.array([int(row["label"]) for row in read(tmp_path / "labels.csv")])
    tested = MSPC("auto", random_state=0).fit((X - X.mean(axis=0)) / X.std(axis=0))
    assert clustering_error(labels, tested.labels_) < 0.02


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
