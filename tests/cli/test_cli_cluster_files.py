"""``volmar cluster``: the files that it writes, and a stop half way."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from helpers.cli import invoke, read

from volmar import AutoClusterer, TableClusterer
from volmar.models import load_model

pandas = pytest.importorskip("pandas")


def test_one_cluster_is_saved_and_predicted(tmp_path):
    np.save(tmp_path / "noise.npy", np.random.default_rng(0).normal(size=(100, 2)))
    model, out = tmp_path / "m.volmar", tmp_path / "labels.csv"
    for options in ((), ("-k", 1), ("-m", "SoftLabelMVC", "-k", 1)):
        result = invoke("cluster", tmp_path / "noise.npy", *options, "--save", model, "--force")
        assert result.exit_code == 0, result.output
        assert f"wrote {model}" in result.stderr
        result = invoke("predict", model, tmp_path / "noise.npy", "-o", out, "--force")
        assert result.exit_code == 0, result.output
        assert {row["label"] for row in read(out)} == {"0"}


def test_the_saved_model_takes_tables_in_python(people, tmp_path):
    path, _ = people
    model, out = tmp_path / "m.volmar", tmp_path / "labels.csv"
    result = invoke("cluster", path, "--id", "name", "-k", 2, "--save", model, "-o", out)
    assert result.exit_code == 0, result.output
    saved = load_model(model)
    assert isinstance(saved.model, TableClusterer)
    assert isinstance(saved.clusterer, AutoClusterer)
    assert saved.preparation is saved.model.preparation_
    labels = [int(row["label"]) for row in read(out)]
    assert saved.model.predict(pandas.read_csv(path)).tolist() == labels


@pytest.mark.parametrize("is_folder", [False, True])
def test_names_of_columns_with_commas(tmp_path, is_folder):
    """A name of a column is never split at its commas, and other lists still are."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(200, 5)) + 9 * (np.arange(200) % 2)[:, None]
    frame = pandas.DataFrame(values, columns=["a", "Income, EUR", "b", "x,y", "Income"])
    path = tmp_path / "t.csv"
    if is_folder:
        path = tmp_path / "parts"
        path.mkdir()
    frame.to_csv(path / "1.csv" if is_folder else path, index=False)
    model = tmp_path / "m.volmar"
    for options, used in (
        (("--drop", "Income, EUR"), ["a", "b", "x,y", "Income"]),
        (("--drop", "a,Income, EUR, x,y"), ["b", "Income"]),
        (("--drop", "Income,a"), ["Income, EUR", "b", "x,y"]),
        (("--columns", "x,y", "--columns", "Income, EUR,b"), ["x,y", "Income, EUR", "b"]),
        (("--id", "x,y", "--drop", "Income, EUR"), ["a", "b", "Income"]),
        (("--kind", "Income, EUR=ignore"), ["a", "b", "x,y", "Income"]),
    ):
        result = invoke("cluster", path, "-k", 2, *options, "--save", model, "--force")
        assert result.exit_code == 0, result.output
        assert load_model(model).preparation.used_ == used
        score = invoke("compare", path, "-m", "KMeans", "-k", 2, *options)
        assert score.exit_code == 0, score.output
    result = invoke("cluster", path, "--drop", "Incom, EUR")
    assert result.exit_code == 2
    assert "'Incom'" in result.output


def test_the_summary_for_scripts(people, tmp_path):
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


def test_pictures_of_a_run(people, tmp_path):
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


def test_the_level_and_the_maximum_number(people, tmp_path):
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
    assert "one cluster" in result.stdout
    result = invoke("cluster", path, "--alpha", 7)
    assert result.exit_code == 2
    assert "alpha" in result.stderr
    result = invoke("cluster", path, "--max-clusters", 0)
    assert result.exit_code == 2


def test_rows_are_written_with_their_cluster(people, tmp_path):
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
    assert "Give one with -o" in result.stderr


@pytest.mark.parametrize("suffix", [".tsv", ".parquet"])
def test_labels_by_the_suffix_of_the_file(people, tmp_path, suffix):
    pytest.importorskip("pyarrow")
    path, _ = people
    out = tmp_path / f"labels{suffix}"
    arguments = ("cluster", path, "--id", "name", "-k", 2)
    assert invoke(*arguments, "-o", out).exit_code == 0
    reader = pandas.read_parquet if suffix == ".parquet" else pandas.read_table
    frame = reader(out)
    assert list(frame.columns) == ["name", "label", "score", "confidence"]
    assert len(frame) == 400


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
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(60, 4)))
    out = tmp_path / "labels.csv"
    code = """
import signal, time, volmar
from volmar.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it

def fit(self, X, progress=None):
    print("begun", flush=True)
    time.sleep(60)

volmar.AutoClusterer.fit = fit
main()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, "cluster", str(tmp_path / "x.npy"), "-o", str(out)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert errors.splitlines() == ["volmar cluster: stopped; complete: nothing."]
    assert not out.exists()


@pytest.mark.usefixtures("full_reports")
def test_the_report_describes_the_columns_of_the_table(people, tmp_path):
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
