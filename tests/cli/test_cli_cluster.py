"""``volmar cluster``: what it finds in tables, by any method."""

import json
import shlex

import numpy as np
import pytest
from helpers.cli import invoke, read

from volmar import TableClusterer
from volmar.cli.cluster import command_for_two, make_method, parse_settings
from volmar.datasets import make_blobs, make_two_moons
from volmar.table_clusterer.estimator import clusterer_names

pandas = pytest.importorskip("pandas")

BEST_SPLIT = '<section id="insist"'


def test_a_table_with_ids_text_and_gaps(people, tmp_path):
    path, group = people
    labels, page, model = (tmp_path / name for name in ("labels.csv", "report.html", "m.volmar"))
    result = invoke(
        *("cluster", path, "--id", "name", "--missing", "impute", "--drop", "region"),
        *("-o", labels, "--report", page, "--save", model),
    )
    assert result.exit_code == 0, result.output
    assert "2 clusters" in result.output
    rows = read(labels)
    assert list(rows[0]) == ["name", "label", "score", "confidence"]
    assert all(0.5 <= float(row["confidence"]) <= 1 for row in rows)
    assert rows[7]["name"] == "person 7"
    found = np.array([int(row["label"]) for row in rows])
    assert max(np.mean(found == group), np.mean(found != group)) > 0.97
    assert all((float(row["score"]) > 0) == (row["label"] == "1") for row in rows)
    assert "<html" in page.read_text(encoding="utf-8")

    again = tmp_path / "again.csv"
    result = invoke("predict", model, path, "-o", again)
    assert result.exit_code == 0, result.output
    assert [row["label"] for row in read(again)] == [row["label"] for row in rows]


def test_categories_describe_with_a_note(people):
    arguments = ("cluster", people[0], "--id", "name", "--missing", "drop", "-k", 2)
    result = invoke(*arguments)
    assert result.exit_code == 0
    assert "'region'" in result.stderr
    assert "3 columns" in result.stdout
    result = invoke(*arguments, "--kind", "age=ignore", "--kind", "region=ignore")
    assert result.exit_code == 0
    assert "2 columns" in result.stdout
    assert "'region'" not in result.stderr


@pytest.mark.usefixtures("full_reports")
def test_noise_is_not_split(tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 4))
    np.save(tmp_path / "noise.npy", X)
    out, page, summary = (tmp_path / name for name in ("labels.csv", "page.html", "s.json"))
    files = ("-o", out, "--report", page, "--json", summary)
    result = invoke("cluster", tmp_path / "noise.npy", *files)
    assert result.exit_code == 0
    found = json.loads(summary.read_text(encoding="utf-8"))
    assert found["sizes"] == [300]
    assert found["evidence"][0]["value"] > 0.05
    assert {row["label"] for row in read(out)} == {"0"}
    command = f"volmar cluster {tmp_path / 'noise.npy'} --n-clusters 2"
    assert command in result.output
    html = page.read_text(encoding="utf-8")
    assert BEST_SPLIT in html
    assert command in html
    result = invoke(*command.split()[1:])
    assert "2 clusters" in result.output
    result = invoke("cluster", tmp_path / "noise.npy", "--split-anyway")
    assert "2 clusters by AutoClusterer" in result.output
    assert "No evidence" in result.output


def test_the_best_split_is_shown_only_where_it_is_quick(tmp_path, monkeypatch):
    from volmar import _clones

    np.save(tmp_path / "noise.npy", np.random.default_rng(0).normal(size=(100, 2)))
    page = tmp_path / "page.html"
    monkeypatch.setattr(_clones, "MAX_REPEATED", 99)
    result = invoke("cluster", tmp_path / "noise.npy", "--report", page)
    assert result.exit_code == 0, result.output
    assert BEST_SPLIT not in page.read_text(encoding="utf-8")


def test_the_command_for_two_keeps_the_other_options():
    settings = {"C": 5, "init": "kmeans", "anneal": (1, 2), "mode": "default"}
    clusterer = TableClusterer(
        clusterer=make_method("cpmmc", 2, 3, settings),
        columns=["a", "b c"],
        id_column="name",
        scale="none",
        missing="drop",
        random_state=3,
    )
    words = shlex.split(command_for_two("my table.csv", clusterer))
    assert words[:3] == ["volmar", "cluster", "my table.csv"]
    pairs = list(zip(words[3::2], words[4::2], strict=True))
    assert pairs == [
        ("--method", "CPMMC"),
        ("--n-clusters", "2"),
        ("--columns", "a"),
        ("--columns", "b c"),
        ("--id", "name"),
        ("--scale", "none"),
        ("--missing", "drop"),
        ("--seed", "3"),
        ("--set", "C=5"),
        ("--set", "anneal=[1, 2]"),
        ("--set", "init=kmeans"),
    ]
    assert parse_settings([text for name, text in pairs if name == "--set"]) == {
        "C": 5,
        "anneal": (1, 2),
        "init": "kmeans",
    }


def test_curved_groups_are_found(tmp_path):
    X, _ = make_two_moons(400, noise=0.05, random_state=0)
    np.save(tmp_path / "moons.npy", X)
    page = tmp_path / "page.html"
    options = ("--report", page, "--save", tmp_path / "m.volmar")
    result = invoke("cluster", tmp_path / "moons.npy", *options)
    assert result.exit_code == 0, result.output
    assert "2 clusters by AutoClusterer" in result.output
    assert page.exists()
    # The number is given: the test is of the method's own split.
    result = invoke("cluster", tmp_path / "moons.npy", "-m", "SoftLabelMVC", "-k", 2)
    assert "more than one group" in result.output


def test_a_ring_is_one_group(tmp_path):
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 500)
    X = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.05 * rng.normal(size=(500, 2))
    np.save(tmp_path / "ring.npy", X)
    result = invoke("cluster", tmp_path / "ring.npy", "--json", tmp_path / "s.json")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))["sizes"] == [500]
    assert "evidence for more than one group" in result.output
    assert "All rows stay in one cluster" in result.output


def test_three_groups_are_three(tmp_path):
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 1.0], [4.0, 8.0, 0.0]])
    X = rng.normal(size=(600, 3)) + corners[rng.integers(0, 3, 600)]
    np.savez(tmp_path / "blobs.npz", X=X)
    out = tmp_path / "labels.csv"
    result = invoke("cluster", tmp_path / "blobs.npz", "-o", out, "--report", tmp_path / "r.html")
    assert result.exit_code == 0, result.output
    assert {row["label"] for row in read(out)} == set("012")
    assert len(read(out)) == 600


@pytest.mark.parametrize("method", clusterer_names())
def test_every_method_by_its_name(method, tmp_path):
    X, _ = make_blobs(60, n_features=3, random_state=0)
    np.save(tmp_path / "x.npy", X)
    out = tmp_path / "labels.csv"
    result = invoke("cluster", tmp_path / "x.npy", "-m", method.lower(), "-k", 2, "-o", out)
    assert result.exit_code == 0, result.output
    assert {row["label"] for row in read(out)} == {"0", "1"}


def test_other_methods_need_a_number(tmp_path):
    X, _ = make_blobs(100, n_features=3, random_state=0)
    np.save(tmp_path / "x.npy", X)
    result = invoke("cluster", tmp_path / "x.npy", "-m", "MSPC")
    assert result.exit_code == 2
    assert "--n-clusters" in result.output
    assert "AutoClusterer" in result.output
