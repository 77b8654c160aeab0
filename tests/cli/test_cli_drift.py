"""``volmar score MODEL NEW``."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from volmar.cli.app import app

pd = pytest.importorskip("pandas")


def table(seed, n=300, share=0.4, shift=0.0):
    rng = np.random.default_rng(seed)
    tall = rng.uniform(size=n) < share
    return pd.DataFrame(
        {
            "height": rng.normal(160, 5, n) + 30 * tall,
            "weight": rng.normal(55, 4, n) + 25 * tall + shift,
            "city": rng.choice(["Rome", "Oslo"], n),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drift")
    table(0).to_csv(folder / "old.csv", index=False)
    run("cluster", folder / "old.csv", "-k", "2", "--save", folder / "m.volmar")
    return folder


def run(*arguments, code=0):
    found = CliRunner().invoke(app, [str(one) for one in arguments])
    assert found.exit_code == code, found.output
    return found


def test_report_and_json(folder):
    new = table(1, share=0.7, shift=2.0)
    new.loc[:20, "city"] = "Paris"
    new.to_csv(folder / "new.csv", index=False)
    text = run("score", folder / "m.volmar", folder / "new.csv").stdout
    assert "The mean of column weight has changed" in text
    assert "'Paris'" in text
    assert "share before" in text
    content = json.loads(run("score", folder / "m.volmar", folder / "new.csv", "--json").stdout)
    assert content["has_drifted"] is True
    assert content["columns"][0]["column"] == "weight"
    assert content["n_new"] == 300


def test_same_source(folder):
    table(0).to_csv(folder / "again.csv", index=False)
    assert "no change" in run("score", folder / "m.volmar", folder / "again.csv").stdout


def test_one_row(folder):
    table(5, n=1).to_csv(folder / "one.csv", index=False)
    out = run("score", folder / "m.volmar", folder / "one.csv").output
    assert "no change" in out
    assert "too few rows to compare columns" in " ".join(out.split())
    assert "nan" not in out


def test_folder_block_by_block(folder):
    pytest.importorskip("dask.dataframe")
    parts = folder / "parts"
    parts.mkdir()
    new = table(3, n=400, share=0.7)
    for i in range(4):
        new[i * 100 : (i + 1) * 100].to_csv(parts / f"{i}.csv", index=False)
    new.to_csv(folder / "whole.csv", index=False)
    found, whole = (
        json.loads(run("score", folder / "m.volmar", source, "--json").stdout)
        for source in (parts, folder / "whole.csv")
    )
    assert found["shares"] == whole["shares"]
    assert found["columns"][0]["p_value"] == pytest.approx(whole["columns"][0]["p_value"])


def test_wrong_files_and_options(folder):
    new = folder / "old.csv"
    assert "old.csv" in run("score", new, new, code=2).output  # a table is no model
    assert "none.volmar" in run("score", folder / "none.volmar", new, code=2).output
    other = folder / "other.csv"
    table(0).drop(columns="weight").to_csv(other, index=False)
    assert "weight" in run("score", folder / "m.volmar", other, code=2).output
    both = run("score", folder / "m.volmar", new, "--labels", new, code=2).output
    assert "--labels has no effect" in both
    assert "--labels is missing" in run("score", new, code=2).output
    assert "volmar score MODEL NEW" in run("score", folder / "m.volmar", code=2).output


def test_a_model_without_a_summary(folder):
    from volmar import MSPC
    from volmar.models import save_model

    save_model(folder / "rows.volmar", MSPC(random_state=0).fit(table(0).iloc[:, :2].to_numpy()))
    out = run("score", folder / "rows.volmar", folder / "old.csv", code=2).output
    assert "no summary of its training table" in out
