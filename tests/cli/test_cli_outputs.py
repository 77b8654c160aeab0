"""What the command line writes, and what it never writes to."""

import os
import re
import stat
import subprocess
import sys

import numpy as np
import pytest
from helpers.cli import invoke, read
from helpers.pipes import reading

from volmar import TableClusterer

pandas = pytest.importorskip("pandas")


@pytest.fixture
def table(tmp_path):
    """A small table with two groups."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) + 6 * (np.arange(60) % 2)[:, None]
    frame = pandas.DataFrame(X, columns=["a", "b"]).assign(name=[f"n{i}" for i in range(60)])
    path = tmp_path / "x.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def folder(table, tmp_path):
    """A folder of two tables."""
    pytest.importorskip("dask")
    pytest.importorskip("pyarrow")
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    for name in ("1.csv", "2.csv"):
        (inputs / name).write_bytes(table.read_bytes())
    return inputs


def cluster(source, *options):
    return invoke("cluster", source, "-k", 2, "--drop", "name", *options)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(result, says, command="cluster"):
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"volmar {command}: ")
    assert says in line
    return line


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize(
    ("option", "begins"),
    [("-o", b"row,"), ("--save", b"PK"), ("--report", b"<!"), ("--json", b"{")],
)
def test_pipes_are_written_to(table, tmp_path, option, begins, force):
    pipe = tmp_path / "pipe"
    with reading(pipe) as found:
        result = cluster(table, option, pipe, *force)
    assert result.exit_code == 0, result.output
    assert found[0].startswith(begins)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe", "x.csv"]


def test_modes_and_links_stay(table, tmp_path):
    names = {"-o": "l.csv", "--save": "m.volmar", "--report": "r.html", "--json": "s.json"}
    (tmp_path / "real").mkdir()
    options = []
    for option, name in names.items():
        (tmp_path / "real" / name).write_text("old")
        (tmp_path / "real" / name).chmod(0o600)
        (tmp_path / name).symlink_to(tmp_path / "real" / name)
        options += [option, tmp_path / name]
    assert cluster(table, *options, "--force").exit_code == 0
    for name in names.values():
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "real" / name).stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "real" / name).stat().st_size > 10
    assert len(list((tmp_path / "real").iterdir())) == len(names)


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("option", ["-o", "--save", "--report", "--json", "--pictures"])
def test_nothing_is_written_into_the_folder_that_is_read(
    folder, tmp_path, monkeypatch, option, force
):
    before = contents(folder)
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "name.csv").symlink_to(folder / "1.csv")
    os.link(folder / "2.csv", tmp_path / "hard.csv")
    places = [folder / "1.csv", folder / "new.csv", tmp_path / "link" / "new.csv"]
    if option == "--pictures":
        places = [folder, folder / "new", tmp_path / "link"]
    elif force:
        places += [tmp_path / "name.csv", tmp_path / "hard.csv"]
    for place in places:
        refused(cluster(folder, option, place, *force), "is in the input folder")
    monkeypatch.chdir(folder)
    refused(cluster(".", option, "new.csv", *force), "is in the input folder")
    assert contents(folder) == before


def test_outputs_beside_the_folder_that_is_read(folder, monkeypatch):
    before = contents(folder)
    monkeypatch.chdir(folder)
    result = cluster(".", "-o", "../labels.csv", "--save", "../m.volmar")
    assert result.exit_code == 0, result.output
    assert len(read(folder.parent / "labels.csv")) == 120
    model = folder.parent / "m.volmar"
    refused(invoke("predict", model, ".", "-o", "1.csv", "--force"), "input folder", "predict")
    refused(invoke("compare", ".", "-o", "1.csv", "--force"), "input folder", "compare")
    assert contents(folder) == before


def test_files_that_are_read_are_kept_by_any_name(table, tmp_path):
    pytest.importorskip("openpyxl")
    sheet = tmp_path / "x.xlsx"
    pandas.read_csv(table).to_excel(sheet, sheet_name="one", index=False)
    os.link(table, tmp_path / "hard.csv")
    before = contents(tmp_path)
    says = "is the input file"
    refused(cluster(table, "-o", tmp_path / "hard.csv", "--force"), says)
    refused(cluster(f"{sheet}#one", "--report", sheet, "--force"), says)
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    (pictures / "clusters.png").symlink_to(table)
    refused(cluster(table, "--pictures", pictures, "--force"), says)
    (pictures / "clusters.png").unlink()
    pictures.rmdir()
    model = tmp_path / "m.volmar"
    assert cluster(table, "--save", model).exit_code == 0
    (tmp_path / "model.csv").symlink_to(model)
    before["m.volmar"] = model.read_bytes()
    result = invoke("predict", model, table, "-o", tmp_path / "model.csv", "--force")
    refused(result, says, "predict")
    (tmp_path / "model.csv").unlink()
    assert contents(tmp_path) == before


def test_two_outputs_are_two_files(table, tmp_path):
    (tmp_path / "one").write_text("")
    os.link(tmp_path / "one", tmp_path / "two")
    names = ("--report", tmp_path / "one", "--json", tmp_path / "two", "--force")
    refused(cluster(table, *names), "the same file as that of --report")
    picture = tmp_path / "p" / "clusters.svg"
    picture.parent.mkdir()
    refused(cluster(table, "--report", picture, "--pictures", picture.parent), "--report")


def test_the_demo_replaces_nothing_unasked(tmp_path):
    (tmp_path / "labels.csv").write_text("mine")
    refused(invoke("demo", "--out", tmp_path), "--force", "demo")
    assert contents(tmp_path) == {"labels.csv": b"mine"}


def test_python_keeps_the_table_that_it_read(table):
    before = table.read_bytes()
    fitted = TableClusterer(2, drop=["name"]).fit(table)
    for write in (fitted.save, fitted.report, fitted.pictures):
        with pytest.raises(ValueError, match="never written to"):
            write(table, force=True)
    assert table.read_bytes() == before


# ---------------------------------------------------------------------- formulas


def test_formulas_among_the_ids(table, folder, tmp_path):
    """Neutral in every table that is written, and labels still find their rows."""
    frame = pandas.read_csv(table).rename(columns={"name": "=id"})
    frame["=id"] = [f"=cmd|' /C calc'!A{i}" if i % 3 else f"'=x{i}" for i in range(60)]
    frame.to_csv(table, index=False)
    (folder / "2.csv").unlink()
    (folder / "1.csv").write_bytes(table.read_bytes())
    model, out = tmp_path / "m.volmar", tmp_path / "out.csv"
    with_ids = ("--id", "=id", "-o", out, "--force")
    for words in (
        ("cluster", table, "-k", 2, "--save", model),
        ("cluster", table, "-k", 2, "--append"),
        ("predict", model, table),
        ("compare", table, "-k", 2, "-m", "MSPC"),
        ("cluster", folder, "-k", 2),
        ("cluster", folder, "-k", 2, "--append"),
    ):
        for raw in ((), ("--raw-ids",)):
            result = invoke(*words, *with_ids, *raw)
            assert result.exit_code == 0, result.output
            rows = read(out)
            name = "=id" if raw else "'=id"
            ids = [one if raw else f"'{one}" for one in frame["=id"]]
            assert [row[name] for row in rows] == ids
            if words[0] == "cluster":
                result = invoke("score", table, "--id", "=id", "--labels", out, "--no-test")
                assert result.exit_code == 0, result.output


# ---------------------------------------------------------------------- names on the screen


def test_names_of_files_and_columns_do_not_steer_the_terminal(table, tmp_path):
    evil = tmp_path / "x\x1b[31m\u202e\r.csv"
    frame = pandas.read_csv(table).rename(columns={"a": "a\x1b]0;evil\x07\x9b"})
    frame.to_csv(evil, index=False)
    report, out = tmp_path / "r\x1b[2J.html", tmp_path / "l\x1b[2J\n.csv"
    pictures = tmp_path / "p\x1b[2J"
    names = ("-o", out, "--report", report, "--pictures", pictures)
    result = cluster(evil, *names)
    assert result.exit_code == 0, result.output
    hidden = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")
    assert not hidden.search(result.output)
    assert "x\\x1b[31m\\u202e\\r.csv" in result.stdout
    assert f"wrote {tmp_path}/l\\x1b[2J\\n.csv\n" in result.stderr
    assert not hidden.search(report.read_text(encoding="utf-8"))
    for picture in pictures.glob("*.svg"):
        assert not hidden.search(picture.read_text(encoding="utf-8"))
    line = refused(cluster(evil, *names), "exists already")
    assert not hidden.search(line)
    assert not hidden.search(refused(invoke("cluster", table, "--n\x1b[31m"), "[31m"))
    for words in (("score", evil, "--drop", "name", "--labels", out), ("compare", evil)):
        for json in ((), ("--json",)):
            result = invoke(*words, *json)
            assert result.exit_code == 0, result.output
            assert not hidden.search(result.output)


def test_a_terminal_of_few_characters_gets_all_lines(table):
    ended = subprocess.run(
        [sys.executable, "-m", "volmar", "compare", table, "-k", "2", "-m", "MSPC"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert ended.returncode == 0, ended.stderr
    assert "? higher is better" in ended.stdout
