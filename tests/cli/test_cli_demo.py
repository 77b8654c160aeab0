"""The demo: a generated table is clustered."""

import csv
import re

import numpy as np
import pytest
from helpers.cli import invoke
from sklearn.metrics import adjusted_rand_score

from volmar import TableClusterer
from volmar.cli.demo import FILES, GROUPS, make_customers
from volmar.models import load_model


@pytest.mark.usefixtures("full_reports")
def test_the_demo(tmp_path):
    """One run, because it takes long: files, groups, model, printed lines and commands."""
    out = tmp_path / "demo"
    result = invoke("demo", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in out.iterdir()) == sorted(FILES)
    assert (out / "clusters.png").read_bytes()[:4] == b"\x89PNG"
    page = (out / "report.html").read_text()
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)  # nothing is fetched
    # Means of incomes, some of which are missing, have no more digits than their spread allows.
    assert re.search(r">4\d,\d{3}<", page)
    assert not re.search(r">4\d,\d{3}\.\d", page)

    with (out / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["customer_id"] == "C00001"
    labels = [int(row["label"]) for row in rows]
    assert adjusted_rand_score(make_customers(600, 0).groups, labels) > 0.98
    model = load_model(out / "model.volmar").model
    np.testing.assert_array_equal(model.predict(out / "customers.csv"), labels)

    lines = result.output.splitlines()
    assert len(lines) <= 10
    (command,) = (line for line in lines if line.startswith("Ran: volmar cluster"))
    assert f"{out / 'customers.csv'} --id customer_id" in command
    assert any("3 clusters by AutoClusterer: 330, 180, 90 rows." in line for line in lines)
    assert any(line.startswith("  volmar cluster your_table.csv") for line in lines)

    again = tmp_path / "again"
    again.mkdir()
    words = command.removeprefix("Ran: volmar ").replace(f"-o {out}", f"-o {again}")
    words = words.replace(f"--save {out}", f"--save {again}").split(" --report")[0].split()
    assert invoke(*words).exit_code == 0
    assert (again / "labels.csv").read_bytes() == (out / "labels.csv").read_bytes()


@pytest.mark.parametrize("seed", [1, 2])
def test_groups_of_other_tables_are_found(seed):
    table = make_customers(400, seed)
    rows = [line.split(",") for line in table.text.splitlines()]
    frame = dict(zip(rows[0], zip(*rows[1:], strict=True), strict=True))
    columns = {
        name: [float(value) if value else np.nan for value in frame[name]]
        for name in ("age", "income", "basket", "visits", "shoe_size")
    }
    pandas = pytest.importorskip("pandas")
    model = TableClusterer(random_state=0).fit(pandas.DataFrame(columns))
    assert adjusted_rand_score(table.groups, model.labels_) > 0.95


def test_the_table_is_like_a_users():
    table = make_customers(1000, 3)
    lines = table.text.splitlines()
    assert len(lines) == 1001
    assert len({line.split(",")[0] for line in lines[1:]}) == 1000  # an id
    assert ",," in table.text  # missing values
    shares = np.bincount(table.groups) / 1000
    np.testing.assert_allclose(shares, [group[1] for group in GROUPS], atol=0.01)
    assert make_customers(1000, 3).text == table.text


def test_demo_refuses_what_it_cannot_do(tmp_path):
    assert invoke("demo", "--n-samples", "3").exit_code == 2
    blocked = tmp_path / "file"
    blocked.write_text("")
    result = invoke("demo", "--out", str(blocked))
    assert result.exit_code == 2
    assert re.search(r"is a\W+file", result.output)


def test_demo_ends_with_a_line_where_it_cannot_write(tmp_path):
    assert invoke("demo", "--seed", "-1").exit_code == 2
    (tmp_path / "demo" / "labels.csv").mkdir(parents=True)
    result = invoke("demo", "--out", str(tmp_path / "demo"), "--n-samples", "40")
    assert result.exit_code == 2
    assert result.output.splitlines()[-1].startswith("volmar demo: ")


def test_a_small_table_runs_through(tmp_path):
    """Few rows may give too little evidence for three clusters; the demo prints its result."""
    result = invoke("demo", "--out", str(tmp_path), "--n-samples", "20")
    assert result.exit_code == 0, result.output
