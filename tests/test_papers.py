"""The papers' runner: cells, a store that survives interruption, and honest summaries."""

import json
import math
from dataclasses import replace

import pytest

from volmar.datasets import data_folder
from volmar.papers import (
    Cell,
    CellResult,
    Store,
    Summary,
    list_experiments,
    load_experiment,
    parse_experiment,
    published,
    run_cell,
    run_cells,
    summarise,
)
from volmar.papers import runner as runner_module

SMALL = """
title = "A small table"
paper = "mvc-jmlr-2013"
table = "2"
metric = "clustering_error"

[sampling]
realizations = 3

[datasets]
digits-1v7 = { load = { n_samples = 60 } }

[similarities.default]
affinity = "gaussian"
sigma = ["mean", "mean/2"]

[methods.KM]
estimator = "KernelKMeans"
matrix = "kernel"
fixed = { init = "random", n_init = 1 }
"""


@pytest.fixture
def experiment():
    return parse_experiment("small", SMALL)


def test_cells_unfold_the_grid(experiment):
    cells = list(experiment.cells())
    assert len(cells) == 3 * (2 + 1)
    assert [c.column for c in cells[:3]] == ["hindsight", "hindsight", "label-free"]
    assert [c.similarity["sigma"] for c in cells[:2]] == ["mean", "mean/2"]
    assert cells[0].parameters == {"kernel": "precomputed", "init": "random", "n_init": 1}
    assert cells[2].parameters == {}
    assert cells[0].sampling == {"realization": 1, "n_samples": 60}
    assert len({c.key for c in cells}) == len(cells)
    assert len(list(experiment.cells(n_realizations=1))) == 3


def test_the_key_is_stable_and_sees_every_field(experiment):
    cell = next(experiment.cells())
    assert cell.key == Cell(**json.loads(json.dumps(cell.__dict__))).key
    for change in ({"seed": 9}, {"parameters": {}}, {"dataset": "x"}, {"column": "label-free"}):
        assert replace(cell, **change).key != cell.key


def test_a_cell_runs_and_is_stored(experiment, tmp_path):
    store = Store(tmp_path / "deep" / "cells.jsonl")
    heard = []
    results = run_cells(
        experiment.cells(), store, progress=lambda done, wanted: heard.append((done, wanted))
    )
    assert len(results) == 9
    assert heard == [(i, 9) for i in range(10)]
    assert all(0 <= r.value <= 0.5 and r.seconds > 0 for r in results.values())
    assert {r.status for r in results.values()} == {"converged"}
    assert store.read() == results


def test_a_run_goes_on_where_it_stopped(experiment, tmp_path, monkeypatch):
    store = Store(tmp_path / "cells.jsonl")
    cells = list(experiment.cells())
    run_cells(cells[:4], store)
    text = store.path.read_text()
    store.path.write_text(text[:-40])  # a kill in the middle of the last line
    assert len(store.read()) == 3
    ran = []
    real = run_cell
    monkeypatch.setattr(
        runner_module, "run_cell", lambda cell: (ran.append(cell.key), real(cell))[1]
    )
    results = run_cells(cells, store)
    assert ran == [cell.key for cell in cells[3:]]
    assert len(results) == len(Store(store.path).read()) == 9


@pytest.mark.parametrize("line", ["123", "null", "[]", "\udcff", '{"cell": {}}'])
def test_lines_that_are_no_result_are_ignored(experiment, tmp_path, line):
    store = Store(tmp_path / "cells.jsonl")
    run_cells(list(experiment.cells())[:1], store)
    with store.path.open("ab") as file:
        file.write(line.encode("utf-8", "surrogateescape") + b"\n")
    assert len(store.read()) == 1


def test_a_failed_cell_is_recorded_and_tried_again(experiment, tmp_path):
    cell = replace(next(experiment.cells()), similarity={"affinity": "gaussian", "sigma": -1.0})
    store = Store(tmp_path / "cells.jsonl")
    (result,) = run_cells([cell], store).values()
    assert result.value is None
    assert result.status.startswith("ValueError: ")
    run_cells([cell], store)
    assert len(store.path.read_text().splitlines()) == 2
    (line,) = summarise(experiment, [result])
    assert str(line.hindsight) == "-"


@pytest.mark.slow
def test_processes_give_the_same_values(experiment, tmp_path):
    alone = run_cells(experiment.cells(1), Store(tmp_path / "one.jsonl"))
    together = run_cells(experiment.cells(1), Store(tmp_path / "two.jsonl"), jobs=2)
    assert {k: r.value for k, r in alone.items()} == {k: r.value for k, r in together.items()}


def test_summaries_take_the_best_of_the_grid_only_in_hindsight(experiment):
    def result(cell, value):
        return CellResult(cell, value, 1.0, "converged", "0")

    values = {"mean": [0.2, 0.1, 0.3], "mean/2": [0.1, 0.4, 0.3], None: [0.3, 0.3, 0.6]}
    results = [
        result(cell, values[(cell.similarity or {}).get("sigma")][cell.seed - 1])
        for cell in experiment.cells()
    ]
    (line,) = summarise(experiment, results)
    assert line.hindsight.mean == pytest.approx(100 * (0.1 + 0.1 + 0.3) / 3)
    assert line.label_free.mean == pytest.approx(40.0)
    assert line.label_free.standard_error == pytest.approx(10.0)
    assert (line.label_free.n, line.seconds) == (3, 1.0)


def test_summary_text():
    assert str(Summary.of([])) == "-"
    assert str(Summary.of([0.25])) == "25.0"
    assert str(Summary.of([0.2, 0.3])) == "25.0 ± 5.0"


def test_published_figures():
    figures = published("mvc-jmlr-2013", "2")
    assert figures["ida-heart", "NSC"] == (18.0, 0.23)
    assert ("ida-german", "GMMC") not in figures  # not run by the authors
    assert published("nobody", "1") == {}


@pytest.mark.parametrize("name", list_experiments())
def test_every_experiment_is_consistent(name):
    import volmar
    from volmar import metrics
    from volmar.datasets import list_datasets
    from volmar.graphs import make_similarity

    experiment = load_experiment(name)
    figures = published(experiment.paper, experiment.table)
    assert hasattr(metrics, experiment.metric)
    for cell in experiment.cells(1):
        assert cell.dataset in list_datasets()
        assert (cell.dataset, cell.method) in figures
        getattr(volmar, cell.estimator)(**cell.parameters)
        if cell.similarity:
            make_similarity(**cell.similarity)


def test_unknown_experiment():
    with pytest.raises(ValueError, match="no experiment is named 'table-9'; there are: mvc-jmlr"):
        load_experiment("table-9")


@pytest.mark.skipif(data_folder() is None, reason="needs the papers' data sets (VOLMAR_DATA)")
def test_golden_figures_of_jmlr_table_2(tmp_path):
    """NSC on three small sets, five realizations: within three standard errors of the paper."""
    experiment = load_experiment("mvc-jmlr-2013-table-2")
    names = ("ida-breast-cancer", "ida-heart", "ida-titanic")
    part = replace(
        experiment,
        datasets={name: experiment.datasets[name] for name in names},
        methods={"NSC": experiment.methods["NSC"]},
    )
    results = run_cells(part.cells(5), Store(tmp_path / "cells.jsonl"))
    for line in summarise(part, results.values()):
        error = math.hypot(line.hindsight.standard_error, line.paper.standard_error)
        assert abs(line.hindsight.mean - line.paper.mean) < 3 * error
