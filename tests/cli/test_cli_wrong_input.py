"""Settings and wrong input of the command line, in a line each."""

import numpy as np
import pytest
from helpers.cli import invoke
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from volmar import MSPC
from volmar.cli.cluster import parse_settings
from volmar.datasets import make_blobs
from volmar.models import save_model

pandas = pytest.importorskip("pandas")


def test_settings():
    given = ["C=2", "kernel=rbf", "anneal=[1.2, 3]", "init=none", "row_balance=true"]
    assert parse_settings(given) == {
        "C": 2,
        "kernel": "rbf",
        "anneal": (1.2, 3),
        "init": None,
        "row_balance": True,
    }


def wrong(tmp_path):
    """Cases by name: arguments, and a part of the expected message."""
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
        "unknown setting": ([good, "--set", "shape=any"], "Did you mean shapes?"),
        "wrong setting": ([good, "-k", "2", "--set", "reg=-1"], "reg"),
        "no setting": ([good, "--set", "reg"], "NAME=VALUE"),
        "too many clusters": ([good, "-k", "99"], "99"),
        "no number": ([good, "-k", "many"], "many"),
        "file is there": ([good, "-o", tmp_path / "there.csv"], "--force"),
        "no folder": ([good, "-o", tmp_path / "no" / "x.csv"], "no folder"),
        "no such suffix": ([tmp_path / "nowhere.csv", "-o", tmp_path / "x.xlsx"], ".parquet"),
        "no name": ([""], "not the path of a file"),
        "an unknown user": (["~nobody_of_this_name/x.csv"], "is not a valid path"),
        "an unknown user's file": (
            [good, "-o", "~nobody_of_this_name/x.csv"],
            "is not a valid path",
        ),
        "brackets": ([good, "--set", "reg=" + "[" * 5000], "nested too deeply"),
        "an endless name": ([good, "-o", "d/" * 3000 + "x.csv"], " ... "),
        "a folder as file": ([good, "-o", tmp_path / "folder", "--force"], "is a folder"),
        "over the table": ([good, "-o", good, "--force"], "is the input file"),
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


def test_wrong_input_is_one_line(tmp_path, subtests):
    for name, (arguments, says) in wrong(tmp_path).items():
        with subtests.test(name):
            result = invoke("cluster", *arguments)
            assert result.exit_code == 2, result.output
            errors = result.stderr.splitlines()
            lines = [line for line in errors if line.startswith("volmar cluster:")]
            assert len(lines) == 1, result.output
            assert says in lines[0]
            assert "Traceback" not in result.output


def test_settings_are_checked_before_the_table_is_read(tmp_path):
    result = invoke("cluster", tmp_path / "nowhere.csv", "--set", "nosuch=1")
    assert result.exit_code == 2
    assert "--set nosuch" in result.stderr


def test_commands_that_are_none():
    result = invoke("nosuch")
    assert result.exit_code == 2
    assert result.stderr == "volmar: No such command 'nosuch'. See volmar --help.\n"
    result = invoke()
    assert result.exit_code == 0
    assert "Usage" in result.stdout


@pytest.fixture
def saved(tmp_path):
    """A table without missing values, and a model of it."""
    X, _ = make_blobs(100, n_features=3, random_state=0)
    table, model = tmp_path / "x.csv", tmp_path / "m.volmar"
    pandas.DataFrame(X, columns=list("abc")).to_csv(table, index=False)
    options = ("-k", 2, "--missing", "error", "--save", model)
    assert invoke("cluster", table, *options).exit_code == 0
    return table, model


def test_predict_refuses_in_a_line(saved, tmp_path, subtests):
    table, model = saved
    (tmp_path / "gaps.csv").write_text("a,b,c\n1,,3\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "x.csv").write_text("a,b,c\n1,2,3\n")
    cases = {
        # predict has no --missing, so the message must not suggest it
        "gaps": ([tmp_path / "gaps.csv"], "fit it again with --missing"),
        "no folder": ([table, "-o", tmp_path / "no" / "l.csv"], "there is no folder"),
        "over the model": ([table, "-o", model, "--force"], "is the input file"),
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


def test_a_model_of_another_version_is_a_sentence(saved, monkeypatch):
    from volmar import models

    table, model = saved
    monkeypatch.setattr(models, "__version__", "99.0")
    result = invoke("predict", model, table)
    assert result.exit_code == 0
    assert f"warning: {model} was written by volmar" in result.stderr
    assert "UserWarning" not in result.stderr


def test_predict_refuses_what_is_no_model(people, tmp_path):
    (tmp_path / "rubbish.volmar").write_bytes(b"rubbish")
    result = invoke("predict", tmp_path / "rubbish.volmar", people[0])
    assert result.exit_code == 2
    assert "rubbish.volmar" in result.output
    result = invoke("predict", tmp_path / "nowhere.volmar", people[0])
    assert result.exit_code == 2


def test_info():
    result = invoke("info")
    assert result.exit_code == 0
    assert "scikit-learn" in result.output
    assert "extra dask" in result.output


def test_a_refused_table_is_one_line_even_after_warnings(tmp_path):
    """scikit-learn warns of names that are missing before the columns are counted."""
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(rng.normal(size=(40, 3)), columns=list("abc"))
    model, rows, fewer = tmp_path / "m.volmar", tmp_path / "rows.npy", tmp_path / "fewer.npy"
    save_model(model, make_pipeline(StandardScaler(), MSPC(2, random_state=0)).fit(frame))
    np.save(rows, frame.to_numpy())
    np.save(fewer, frame.to_numpy()[:, :2])
    result = invoke("predict", model, rows)
    assert result.exit_code == 0
    assert "warning: X " in result.stderr
    assert "validation.py" not in result.stderr
    result = invoke("predict", model, fewer)
    assert result.exit_code == 2
    assert result.stderr.startswith("volmar predict: X has 2 features")
    assert result.stderr.count("\n") == 1
