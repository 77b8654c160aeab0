"""``volmar cluster`` and ``volmar predict`` as a person uses them."""

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from volmar import MSPC, TableClusterer
from volmar.cli import cluster_blocks
from volmar.cli.app import app
from volmar.cli.cluster import Asked, command_for_two
from volmar.cli.methods import clusterer_names, make_method, parse_settings
from volmar.datasets import make_blobs, make_two_moons
from volmar.metrics import clustering_error
from volmar.models import load_model
from volmar.report import evidence_of

pandas = pytest.importorskip("pandas")


@pytest.fixture
def invoke():
    return lambda *arguments: CliRunner().invoke(
        app, [str(a) for a in arguments], catch_exceptions=False
    )


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """A table with ids, text, gaps and two groups in two of its numbers."""
    rng = np.random.default_rng(0)
    n = 400
    group = rng.random(n) < 0.45
    frame = pandas.DataFrame(
        {
            "name": [f"person {i}" for i in range(n)],
            "height": rng.normal(160, 5, n) + 30 * group,
            "weight": rng.normal(55, 4, n) + 25 * group,
            "age": rng.normal(40, 10, n),
            "region": rng.choice(["north", "south"], n),
        }
    )
    frame.loc[::50, "age"] = np.nan
    path = tmp_path_factory.mktemp("tables") / "people.csv"
    frame.to_csv(path, index=False)
    return path, group


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_table_with_ids_text_and_gaps(invoke, people, tmp_path):
    path, group = people
    labels, page, model = (tmp_path / name for name in ("labels.csv", "report.html", "m.volmar"))
    result = invoke(
        *("cluster", path, "--id", "name", "--missing", "impute", "--drop", "region"),
        *("-o", labels, "--report", page, "--save", model),
    )
    assert result.exit_code == 0, result.output
    assert "2 clusters by MSPC" in result.output
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


def test_categories_describe_with_a_note(invoke, people):
    arguments = ("cluster", people[0], "--id", "name", "--missing", "drop", "-k", 2)
    result = invoke(*arguments)
    assert result.exit_code == 0
    assert "describe the clusters and do not make them: 'region'" in result.stderr
    assert "3 columns" in result.stdout
    result = invoke(*arguments, "--kind", "age=ignore", "--kind", "region=ignore")
    assert result.exit_code == 0
    assert "2 columns" in result.stdout
    assert "'region'" not in result.stderr


def test_noise_is_not_split(invoke, tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 4))
    np.save(tmp_path / "noise.npy", X)
    out, page = tmp_path / "labels.csv", tmp_path / "page.html"
    result = invoke("cluster", tmp_path / "noise.npy", "-o", out, "--report", page)
    assert result.exit_code == 0
    assert "No evidence for more than one group (p = " in result.output
    assert "One cluster." in result.output
    assert {row["label"] for row in read(out)} == {"0"}
    command = f"volmar cluster {tmp_path / 'noise.npy'} --n-clusters 2"
    assert command in result.output
    html = page.read_text(encoding="utf-8")
    assert "The best split in two, if you insist" in html
    assert "Not supported by the rows" in html
    assert command in html
    result = invoke(*command.split()[1:])
    assert "2 clusters by MSPC" in result.output
    assert "No evidence for more than one group" in result.output
    result = invoke("cluster", tmp_path / "noise.npy", "--split-anyway", "--method", "CPMMC")
    assert "2 clusters by CPMMC" in result.output
    assert "no evidence supports it" in result.output


def test_the_best_split_is_shown_only_where_it_is_quick(invoke, tmp_path, monkeypatch):
    from volmar.report import judging

    np.save(tmp_path / "noise.npy", np.random.default_rng(0).normal(size=(100, 2)))
    page = tmp_path / "page.html"
    monkeypatch.setattr(judging, "MOST_ROWS", 99)
    result = invoke("cluster", tmp_path / "noise.npy", "--report", page)
    assert result.exit_code == 0, result.output
    assert "if you insist" not in page.read_text(encoding="utf-8")


def test_the_command_for_two_keeps_the_other_options():
    asked = Asked(
        source="my table.csv",
        method="SoftLabelMVC",
        columns=("a", "b c"),
        id_column="name",
        scale="none",
        missing="drop",
        settings={"n_neighbors": 5, "affinity": "rbf", "anneal": (1, 2)},
        seed=3,
        out=Path("labels.csv"),
    )
    words = shlex.split(command_for_two(asked))
    assert words[:3] == ["volmar", "cluster", "my table.csv"]
    pairs = list(zip(words[3::2], words[4::2], strict=True))
    assert pairs == [
        ("--method", "SoftLabelMVC"),
        ("--n-clusters", "2"),
        ("--columns", "a"),
        ("--columns", "b c"),
        ("--id", "name"),
        ("--scale", "none"),
        ("--missing", "drop"),
        ("--seed", "3"),
        ("--set", "n_neighbors=5"),
        ("--set", "affinity=rbf"),
        ("--set", "anneal=[1, 2]"),
    ]
    assert parse_settings([text for name, text in pairs if name == "--set"]) == asked.settings


def test_curved_methods_find_the_number_themselves(invoke, tmp_path):
    X, _ = make_two_moons(400, noise=0.05, random_state=0)
    np.save(tmp_path / "moons.npy", X)
    page = tmp_path / "page.html"
    options = ("-m", "SoftLabelMVC", "--report", page, "--save", tmp_path / "m.volmar")
    result = invoke("cluster", tmp_path / "moons.npy", *options)
    assert result.exit_code == 0, result.output
    assert "2 clusters by SoftLabelMVC" in result.output
    assert "The split was found on one half of the rows" in result.output
    assert "not split further" in page.read_text(encoding="utf-8")
    # The number is given: the test is of the method's own split.
    result = invoke("cluster", tmp_path / "moons.npy", "-m", "SoftLabelMVC", "-k", 2)
    assert "There is more than one group (p ≤ " in result.output


def test_a_ring_is_one_group(invoke, tmp_path):
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 500)
    X = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.05 * rng.normal(size=(500, 2))
    np.save(tmp_path / "ring.npy", X)
    result = invoke("cluster", tmp_path / "ring.npy")
    assert result.exit_code == 0, result.output
    assert "One cluster." in result.output
    assert "other rows connect its two sides around it" in result.output


def test_merged_parts_are_reported():
    X = np.random.default_rng(0).normal(size=(400, 3))
    X[:100, 0] += 12
    X[100:200, 1] += 9
    X[200:300, 2] += 10
    model = MSPC("auto", random_state=0).fit(X)
    assert model.tree_.n_leaves == 4
    model.tree_.relabel(np.array([0, 1, 0, 2]))
    worst, merged = evidence_of(model, X, model.labels_, n_clusters="auto")
    # Three splits were tested, though there are three clusters.
    assert worst.sentence.startswith("Each of 3 splits")
    assert merged.sentence.startswith("2 parts of the tree were merged into one cluster")


def test_three_groups_are_three(invoke, tmp_path):
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 1.0], [4.0, 8.0, 0.0]])
    X = rng.normal(size=(600, 3)) + corners[rng.integers(0, 3, 600)]
    np.savez(tmp_path / "blobs.npz", X=X)
    out = tmp_path / "labels.csv"
    result = invoke("cluster", tmp_path / "blobs.npz", "-o", out, "--report", tmp_path / "r.html")
    assert result.exit_code == 0, result.output
    assert "3 clusters by MSPC" in result.output
    assert len(read(out)) == 600


def test_a_built_in_set(invoke):
    result = invoke("cluster", "digits-3v8", "--n-clusters", 2)
    assert result.exit_code == 0
    assert "357 rows" in result.output


@pytest.mark.parametrize("method", clusterer_names())
def test_every_method_by_its_name(invoke, method, tmp_path):
    X, _ = make_blobs(60, n_features=3, random_state=0)
    np.save(tmp_path / "x.npy", X)
    out = tmp_path / "labels.csv"
    result = invoke("cluster", tmp_path / "x.npy", "-m", method.lower(), "-k", 2, "-o", out)
    assert result.exit_code == 0, result.output
    assert {row["label"] for row in read(out)} == {"0", "1"}


@pytest.mark.parametrize("method", clusterer_names())
def test_every_method_finds_the_number(invoke, method, tmp_path):
    X, _ = make_blobs(100, n_features=3, random_state=0)
    np.save(tmp_path / "x.npy", X)
    result = invoke("cluster", tmp_path / "x.npy", "-m", method)
    assert result.exit_code == 0, result.output
    assert f"2 clusters by {method}" in result.output
    assert "The split was found on one half of the rows and seen again" in result.output


def test_one_cluster_is_saved_and_predicted(invoke, tmp_path):
    np.save(tmp_path / "noise.npy", np.random.default_rng(0).normal(size=(100, 2)))
    model, out = tmp_path / "m.volmar", tmp_path / "labels.csv"
    for options in ((), ("-k", 1), ("-m", "SoftLabelMVC", "-k", 1)):
        result = invoke("cluster", tmp_path / "noise.npy", *options, "--save", model, "--force")
        assert result.exit_code == 0, result.output
        assert f"wrote {model}" in result.stderr
        result = invoke("predict", model, tmp_path / "noise.npy", "-o", out, "--force")
        assert result.exit_code == 0, result.output
        assert {row["label"] for row in read(out)} == {"0"}


def test_the_saved_model_takes_tables_in_python(invoke, people, tmp_path):
    path, _ = people
    model, out = tmp_path / "m.volmar", tmp_path / "labels.csv"
    result = invoke("cluster", path, "--id", "name", "-k", 2, "--save", model, "-o", out)
    assert result.exit_code == 0, result.output
    saved = load_model(model)
    assert isinstance(saved.model, TableClusterer)
    assert isinstance(saved.clusterer, MSPC)
    assert saved.preparation is saved.model.preparation_
    labels = [int(row["label"]) for row in read(out)]
    assert saved.model.predict(pandas.read_csv(path)).tolist() == labels


def test_the_summary_for_scripts(invoke, people, tmp_path):
    path, _ = people
    summary, out = tmp_path / "summary.json", tmp_path / "labels.csv"
    arguments = ("cluster", path, "--id", "name", "--missing", "drop", "--drop", "region")
    result = invoke(*arguments, "--json", summary, "-o", out)
    assert result.exit_code == 0, result.output
    found = json.loads(summary.read_text(encoding="utf-8"))
    labels = [int(row["label"]) for row in read(out)]
    assert found["sizes"] == np.bincount(labels).tolist()
    assert found["n_rows"] == 400
    assert found["n_rows_used"] == 392
    assert found["evidence"][0]["sentence"] in result.stdout
    result = invoke(*arguments, "--json", summary)
    assert result.exit_code == 2
    assert "--json" in result.stderr
    assert "--force" in result.stderr


def test_pictures_of_a_run(invoke, people, tmp_path):
    pytest.importorskip("matplotlib")
    path, _ = people
    folder = tmp_path / "pictures"
    arguments = ("cluster", path, "--id", "name", "--drop", "region", "--pictures", folder)
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    suffixes = {file.suffix for file in folder.iterdir()}
    assert suffixes == {".png", ".svg"}
    assert (folder / "clusters.png").read_bytes()[:4] == b"\x89PNG"
    assert f"pictures to {folder}" in result.stderr
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "--force" in result.stderr
    result = invoke("cluster", path, "--pictures", path)
    assert result.exit_code == 2
    assert "is a file" in result.stderr


def test_the_level_and_the_maximum_number(invoke, people, tmp_path):
    path, _ = people
    summary = tmp_path / "summary.json"
    arguments = ("cluster", path, "--id", "name", "--json", summary)
    result = invoke(*arguments, "--alpha", 0.03, "--max-clusters", 5)
    assert result.exit_code == 0, result.output
    assert "level 0.03" in result.stdout
    found = json.loads(summary.read_text(encoding="utf-8"))
    assert found["parameters"]["max_clusters"] == 5
    assert found["splits"][0]["level"] == 0.03
    result = invoke("cluster", path, "--id", "name", "--max-clusters", 1)
    assert result.exit_code == 0, result.output
    assert "One cluster." in result.stdout
    result = invoke("cluster", path, "--alpha", 7)
    assert result.exit_code == 2
    assert "alpha" in result.stderr
    result = invoke("cluster", path, "--max-clusters", 0)
    assert result.exit_code == 2


def test_rows_are_written_with_their_cluster(invoke, people, tmp_path):
    path, _ = people
    arguments = ("cluster", path, "--id", "name", "--missing", "drop", "-k", 2)
    labels, rows = tmp_path / "labels.csv", tmp_path / "rows.csv"
    assert invoke(*arguments, "-o", labels).exit_code == 0
    result = invoke(*arguments, "-o", rows, "--append")
    assert result.exit_code == 0, result.output
    source, written = read(path), read(rows)
    assert list(written[0]) == [*source[0], "cluster"]
    assert [row["height"] for row in written] == [row["height"] for row in source]
    by_name = {row["name"]: row["label"] for row in read(labels)}
    assert [row["cluster"] for row in written] == [by_name.get(r["name"], "") for r in source]
    assert sum(row["cluster"] == "" for row in written) == 8
    result = invoke(*arguments, "--append")
    assert result.exit_code == 2
    assert "give -o, too" in result.stderr


@pytest.mark.parametrize("suffix", [".tsv", ".parquet"])
def test_labels_by_the_suffix_of_the_file(invoke, people, tmp_path, suffix):
    pytest.importorskip("pyarrow")
    path, _ = people
    out = tmp_path / f"labels{suffix}"
    arguments = ("cluster", path, "--id", "name", "-k", 2)
    assert invoke(*arguments, "-o", out).exit_code == 0
    reader = pandas.read_parquet if suffix == ".parquet" else pandas.read_table
    frame = reader(out)
    assert list(frame.columns) == ["name", "label", "score", "confidence"]
    assert len(frame) == 400


def test_settings():
    given = ["C=2", "kernel=rbf", "anneal=[1.2, 3]", "init=none", "each_row=true"]
    assert parse_settings(given) == {
        "C": 2,
        "kernel": "rbf",
        "anneal": (1.2, 3),
        "init": None,
        "each_row": True,
    }


def wrong(tmp_path):
    """Cases by name: arguments, and what the one line must say."""
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("a,b\n")
    (tmp_path / "one.csv").write_text("a,b\n1,2\n")
    (tmp_path / "constant.csv").write_text("a,b\n" + "1,2\n" * 9)
    (tmp_path / "column.csv").write_text("a\n" + "x\n" * 3)
    (tmp_path / "gaps.csv").write_text("a,b\n1,\n2,3\n4,5\n")
    (tmp_path / "names.csv").write_text("a,b\n" + "".join(f"{i},n{i}\n" for i in range(99)))
    (tmp_path / "folder").mkdir()
    (tmp_path / "good.csv").write_text("a,b\n" + "".join(f"{i},{i * i}\n" for i in range(9)))
    (tmp_path / "there.csv").write_text("")
    good = tmp_path / "good.csv"
    return {
        "no such file": ([tmp_path / "nowhere.csv"], "nowhere.csv"),
        "empty": ([tmp_path / "empty.csv"], "empty"),
        "header only": ([tmp_path / "header.csv"], "header.csv"),
        "one row": ([tmp_path / "one.csv"], "row"),
        "constant": ([tmp_path / "constant.csv"], "constant"),
        "constant text": ([tmp_path / "column.csv"], "two different values"),
        "gaps": ([tmp_path / "gaps.csv", "--missing", "error"], "--missing"),
        "a name for each row": ([tmp_path / "names.csv"], "--kind"),
        "no kind": ([good, "--kind", "a"], "NAME=KIND"),
        "unknown kind": ([good, "--kind", "a=number"], "number"),
        "kind of no column": ([good, "--kind", "z=numeric"], "z"),
        "empty folder": ([tmp_path / "folder"], "folder"),
        "unknown column": ([good, "--columns", "z"], "z"),
        "unknown id": ([good, "--id", "z"], "z"),
        "unknown method": ([good, "-m", "KMean"], "KMean"),
        "unknown setting": ([good, "--set", "reg2=1"], "Did you mean reg?"),
        "wrong setting": ([good, "-k", "2", "--set", "reg=-1"], "reg"),
        "no setting": ([good, "--set", "reg"], "NAME=VALUE"),
        "too many clusters": ([good, "-k", "99"], "99"),
        "no number": ([good, "-k", "many"], "many"),
        "file is there": ([good, "-o", tmp_path / "there.csv"], "--force"),
        "no folder": ([good, "-o", tmp_path / "no" / "x.csv"], "no folder"),
        "no such suffix": ([tmp_path / "nowhere.csv", "-o", tmp_path / "x.xlsx"], ".parquet"),
        "no name": ([""], "no file"),
        "a folder as file": ([good, "-o", tmp_path / "folder", "--force"], "is a folder"),
        "over the table": ([good, "-o", good, "--force"], "which is read"),
        "one file twice": (
            [good, "-o", tmp_path / "x", "--report", tmp_path / "folder" / ".." / "x"],
            "the same file as that of -o",
        ),
        "wrong seed": ([good, "--seed", "-1"], "'--seed': Input should be greater than or equal"),
        "wrong seed's value": ([good, "--seed=-1"], "got '-1'"),
        "unknown scale": ([good, "--scale", "wide"], "'wide' is not one of 'none'"),
        "unknown option": ([good, "--nosuch"], "--nosuch"),
        "option without value": ([good, "-k"], "'-k' requires an argument"),
        "no file": ([], "'FILE'"),
    }


def test_wrong_input_is_one_line(invoke, tmp_path, subtests):
    for name, (arguments, says) in wrong(tmp_path).items():
        with subtests.test(name):
            result = invoke("cluster", *arguments)
            assert result.exit_code == 2, result.output
            errors = result.stderr.splitlines()
            lines = [line for line in errors if line.startswith("volmar cluster:")]
            assert len(lines) == 1, result.output
            assert says in lines[0]
            assert "Traceback" not in result.output


def test_settings_are_checked_before_the_table_is_read(invoke, tmp_path):
    result = invoke("cluster", tmp_path / "nowhere.csv", "--set", "nosuch=1")
    assert result.exit_code == 2
    assert "--set nosuch" in result.stderr


def test_commands_that_are_none(invoke):
    result = invoke("nosuch")
    assert result.exit_code == 2
    assert result.stderr == "volmar: No such command 'nosuch'. See volmar --help.\n"
    result = invoke()
    assert result.exit_code == 0
    assert "Usage" in result.stdout


@pytest.fixture
def saved(invoke, tmp_path):
    """A table without gaps, and a model of it."""
    X, _ = make_blobs(100, n_features=3, random_state=0)
    table, model = tmp_path / "x.csv", tmp_path / "m.volmar"
    pandas.DataFrame(X, columns=list("abc")).to_csv(table, index=False)
    options = ("-k", 2, "--missing", "error", "--save", model)
    assert invoke("cluster", table, *options).exit_code == 0
    return table, model


def test_predict_refuses_in_a_line(invoke, saved, tmp_path, subtests):
    table, model = saved
    (tmp_path / "gaps.csv").write_text("a,b,c\n1,,3\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "x.csv").write_text("a,b,c\n1,2,3\n")
    cases = {
        # predict has no --missing, so that must not be the remedy
        "gaps": ([tmp_path / "gaps.csv"], "fit it again with --missing"),
        "no folder": ([table, "-o", tmp_path / "no" / "l.csv"], "there is no folder"),
        "over the model": ([table, "-o", model, "--force"], "which is read"),
        "a folder as file": ([table, "-o", tmp_path / "parts", "--force"], "is a folder"),
    }
    for name, (arguments, says) in cases.items():
        with subtests.test(name):
            result = invoke("predict", model, *arguments)
            assert result.exit_code == 2, result.output
            assert not result.stdout
            assert result.stderr.startswith("volmar predict: ")
            assert len(result.stderr.splitlines()) == 1
            assert says in result.stderr


def test_a_model_of_another_version_is_a_sentence(invoke, saved, monkeypatch):
    from volmar.models import store

    table, model = saved
    monkeypatch.setattr(store, "__version__", "99.0")
    result = invoke("predict", model, table)
    assert result.exit_code == 0
    assert f"warning: {model} was written by volmar" in result.stderr
    assert "UserWarning" not in result.stderr


def test_predict_refuses_what_is_no_model(invoke, people, tmp_path):
    (tmp_path / "rubbish.volmar").write_bytes(b"rubbish")
    result = invoke("predict", tmp_path / "rubbish.volmar", people[0])
    assert result.exit_code == 2
    assert "rubbish.volmar" in result.output
    result = invoke("predict", tmp_path / "nowhere.volmar", people[0])
    assert result.exit_code == 2


def test_info(invoke):
    result = invoke("info")
    assert result.exit_code == 0
    assert "scikit-learn" in result.output
    assert "extra dask" in result.output


def test_a_folder_goes_by_blocks(invoke, tmp_path):
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


def test_a_folder_of_noise_is_one_cluster(invoke, tmp_path):
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


def test_blocks_keep_the_split_that_was_tested(invoke, tmp_path, monkeypatch):
    """The fit to all rows is by other means than the search, and may end in another split."""
    pytest.importorskip("dask")
    X, _ = make_blobs(600, n_features=4, random_state=0)
    folder = tmp_path / "parts"
    folder.mkdir()
    for i in range(2):
        frame = pandas.DataFrame(X[300 * i : 300 * (i + 1)], columns=list("abcd"))
        frame.to_csv(folder / f"part-{i}.csv", index=False)

    def other_split(*_):
        model = make_method("MSPC", 2, 0, {})
        model.fit = lambda _: MSPC(2, random_state=0).fit(X[:, ::-1] ** 2)
        return model

    monkeypatch.setattr(cluster_blocks, "make_method", other_split)
    result = invoke("cluster", folder, "-o", tmp_path / "labels.csv")
    assert result.exit_code == 0, result.output
    assert "another split than the one that was tested" in result.output
    labels = np.array([int(row["label"]) for row in read(tmp_path / "labels.csv")])
    tested = MSPC("auto", random_state=0).fit((X - X.mean(axis=0)) / X.std(axis=0))
    assert clustering_error(labels, tested.labels_) < 0.02


@pytest.mark.parametrize("is_number", [False, True])
def test_ids_of_a_folder_belong_to_the_rows_that_are_left(invoke, tmp_path, is_number):
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


def test_files_are_written_though_nobody_reads_the_screen(people, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    out = tmp_path / "labels.csv"
    arguments = ["cluster", str(people[0]), "--id", "name", "--missing", "drop", "-k", "2"]
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "volmar", *arguments, "-o", str(out)],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Broken" not in ended.stderr
    assert len(read(out)) == 392


def test_ctrl_c_stops_cleanly(tmp_path):
    X = np.random.default_rng(0).normal(size=(60_000, 40))
    np.save(tmp_path / "x.npy", X)
    out = tmp_path / "labels.csv"
    arguments = ["cluster", str(tmp_path / "x.npy"), "-m", "LGMMC", "-k", "2"]
    arguments += ["--set", "method=nystroem", "-o", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "volmar", *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    lines = [line for line in errors.splitlines() if not line.startswith("note: ")]
    # Without the second part where the machine is so slow that nothing has begun.
    assert lines in (
        ["volmar cluster: stopped; complete: nothing."],
        ["volmar cluster: stopped."],
    )
    assert "Traceback" not in errors
    assert not list(tmp_path.glob("*labels*"))


def test_the_report_describes_the_columns_of_the_table(invoke, people, tmp_path, monkeypatch):
    path, group = people
    page = tmp_path / "report.html"
    arguments = ["cluster", path, "--id", "name", "--missing", "impute", "-k", "2"]
    result = invoke(*arguments, "--report", page, "--method", "MSPC")
    assert result.exit_code == 0, result.output
    html = page.read_text(encoding="utf-8")
    apart = html[html.index('<section id="apart"') : html.index('<section id="evidence"')]
    frame = pandas.read_csv(path)
    # In centimetres, with text as text, what is missing as missing, and rows by their names.
    assert f"{frame['height'][group].mean():.1f}" in apart
    assert "region = " in apart
    assert "age is missing" in apart
    assert "person " in apart
    assert "clustered independently" in apart

    monkeypatch.setattr("volmar.report.judging.LONG_FIT", 0.0)
    result = invoke(*arguments, "--report", page, "--method", "MSPC", "--force")
    assert result.exit_code == 0, result.output
    html = page.read_text(encoding="utf-8")
    assert "was not tested: it takes too long" in html
    apart = html[html.index('<section id="apart"') : html.index('<section id="evidence"')]
    assert '<span class="pill real">' not in apart
