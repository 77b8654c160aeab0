"""The papers' experiments: their files, the cells they unfold into, the runner and its store."""

import json
import lzma
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import volmar
from conftest import ROOT
from volmar import MSPC, NormalizedSpectralClustering, metrics
from volmar.datasets import data_folder, list_datasets, load
from volmar.datasets.tasks import find_task
from volmar.graphs import make_similarity
from volmar.metrics import clustering_error, pair_f_measure
from volmar.papers import (
    Cell,
    CellResult,
    Results,
    Store,
    list_experiments,
    load_experiment,
    make_lines,
    parse_experiment,
    published,
    published_cells,
    reproduction,
    run_cell,
    run_cells,
    stored_results,
)
from volmar.papers import expected as expected_module
from volmar.papers import runner as runner_module
from volmar.papers.expected import read_expected, write_expected
from volmar.papers.store import NO_DATA

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

ON_ROWS = """
title = "A grid on rows"
paper = "mspc-aaai-2015"
table = "2"
metric = "clustering_error"

[sampling]
realizations = 2
whole_sets = true

[datasets]
digits-1v7 = { load = { scale = "unit" } }

[methods.MSPC-MPM]
estimator = "MSPC"
fixed = { solver = "mpm", mode = "paper", n_init = 1 }
grid = { reg = [0.1, 1.0], max_iter = [50, 100] }
default = { solver = "mpm" }

[methods.MSPC-EIG]
estimator = "MSPC"
fixed = { solver = "eig", mode = "paper" }
default = { solver = "eig" }
"""


SIZES = """
title = "Sizes, and similarities by method"
paper = "mvc-jmlr-2013"
table = "3"
metric = "clustering_error"

[sampling]
realizations = 2
sizes = [40, 60]

[datasets]
digits-1v7 = { load = { scale = "unit" } }
digits-3v8 = { load = { scale = "unit" }, similarity = "wide" }

[similarities.default]
affinity = "gaussian"
sigma = ["mean", "mean/2", "mean/4"]

[similarities.cosine]
affinity = "cosine_knn"
n_neighbors = [3, 5]

[similarities.wide]
affinity = "gaussian"
sigma = "4*mean"

[methods.KM]
estimator = "KernelKMeans"
matrix = "kernel"

[methods.NSC]
estimator = "NormalizedSpectralClustering"
matrix = "affinity"
similarity = "cosine"
"""

STRETCHED = """
title = "One feature multiplied"
paper = "mspc-aaai-2015"
figure = "1"
view = "curves"
metric = "clustering_error"

[sampling]
realizations = 3
stretches = [1, 4, 16]

[datasets]
digits-1v7 = {}

[methods.KM]
estimator = "sklearn.cluster.KMeans"
fixed = { n_clusters = 2, n_init = 1 }
default = { n_clusters = 2 }
"""

PARAMETER = """
title = "Against a parameter"
paper = "skmmc-nnw"
figure = "4"
view = "curves"
metric = "clustering_error"
columns = ["hindsight"]

[sampling]
realizations = 2

[axis]
parameter = "max_iter"
values = [1, 2, 5, 10, 20]
label = "iterations"
log = true

[datasets]
digits-1v7 = { load = { n_samples = 60 } }

[methods.KM]
estimator = "sklearn.cluster.KMeans"
fixed = { n_clusters = 2 }
grid = { n_init = [1, 2] }
"""

# Estimators that a worker can import: one that takes its time, one that ends its process.
ESTIMATORS = """
import os
import time


class Slow:
    def __init__(self, setting=0, random_state=None):
        self.setting, self.random_state = setting, random_state

    def fit(self, X):
        time.sleep(float(os.environ.get("SLOW_SECONDS", "0")))
        self.labels_ = (X[:, 20] > X[:, 20].mean()).astype(int)
        return self


class Dying(Slow):
    def fit(self, X):
        if self.random_state == 2:
            os._exit(1)
        return super().fit(X)
"""

PATIENT = """
title = "Cells that take their time"
paper = "mvc-jmlr-2013"
table = "2"
metric = "clustering_error"

[sampling]
realizations = 2

[datasets]
digits-1v7 = { load = { n_samples = 60 } }
digits-3v8 = { load = { n_samples = 60 } }

[methods.A]
estimator = "slow_estimators.Slow"
grid = { setting = [1, 2, 3, 4] }

[methods.B]
estimator = "slow_estimators.Slow"
fixed = { setting = 5 }
"""


@pytest.fixture
def experiment():
    return parse_experiment("small", SMALL)


@pytest.fixture
def on_rows():
    return parse_experiment("on-rows", ON_ROWS)


@pytest.fixture
def slow_estimators(tmp_path, monkeypatch):
    (tmp_path / "slow_estimators.py").write_text(ESTIMATORS)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("slow_estimators", None)


def own(cells):
    """Cells without the reference."""
    return [cell for cell in cells if cell.column != "reference"]


def made_up(cell, value, seconds=1.0, status="converged"):
    return CellResult(cell, value, seconds, status, {"volmar": volmar.__version__})


# ------------------------------------------------------------------------------------ cells


def test_cells_unfold_the_grid(experiment):
    cells = list(experiment.cells())
    assert len(cells) == 3 * (1 + 2 + 1)
    assert [c.column for c in cells[:4]] == ["reference", "hindsight", "hindsight", "label-free"]
    assert [c.similarity["sigma"] for c in cells[1:3]] == ["mean", "mean/2"]
    assert cells[1].parameters == {"kernel": "precomputed", "init": "random", "n_init": 1}
    assert cells[3].parameters == {}
    assert cells[1].sampling == {"realization": 1, "n_samples": 60}
    assert {c.experiment for c in cells} == {"small"}
    assert len({c.key for c in cells}) == len(cells)
    assert len(list(experiment.cells(n_realizations=1))) == 4


def test_the_reference_is_k_means_on_the_rows_of_every_sampling(experiment):
    cells = list(experiment.cells())
    references = [c for c in cells if c.column == "reference"]
    assert [c.rows_key for c in references] == list(dict.fromkeys(c.rows_key for c in cells))
    for cell in references:
        assert (cell.method, cell.estimator) == ("KMeans", "sklearn.cluster.KMeans")
        assert cell.parameters == {"n_clusters": 2, "n_init": 10}
        assert cell.similarity is None
        assert cell.measures == {}
    data = load("digits-1v7", **references[1].sampling)
    model = runner_module.find_estimator("sklearn.cluster.KMeans")(
        n_clusters=2, n_init=10, random_state=2
    )
    assert run_cell(references[1]).value == clustering_error(data.y, model.fit(data.X).labels_)


def test_cells_of_a_grid_on_rows(on_rows):
    cells = list(on_rows.cells())
    assert len(cells) == 2 * (1 + (4 + 1) + (1 + 1))
    assert {str(c.sampling) for c in cells} == {"{'scale': 'unit'}"}
    assert [c.seed for c in cells] == 8 * [1] + 8 * [2]
    assert {c.similarity for c in cells} == {None}
    fixed = {"solver": "mpm", "mode": "paper", "n_init": 1}
    assert [c.parameters for c in cells[1:6]] == [
        {**fixed, "reg": 0.1, "max_iter": 50},
        {**fixed, "reg": 0.1, "max_iter": 100},
        {**fixed, "reg": 1.0, "max_iter": 50},
        {**fixed, "reg": 1.0, "max_iter": 100},
        {"solver": "mpm"},
    ]
    assert [c.parameters for c in cells[6:8]] == [
        {"solver": "eig", "mode": "paper"},
        {"solver": "eig"},
    ]
    assert len({c.key for c in cells}) == len(cells)


def test_a_cell_on_rows_is_a_plain_fit(on_rows):
    data = load("digits-1v7", scale="unit")
    values = set()
    for cell in own(on_rows.cells()):
        model = MSPC(**cell.parameters, random_state=cell.seed).fit(data.X)
        result = run_cell(cell)
        assert result.value == clustering_error(data.y, model.labels_)
        values.add(result.value)
    assert len(values) > 1


def test_cells_of_sizes_and_similarities_by_method():
    experiment = parse_experiment("sizes", SIZES)
    cells = list(experiment.cells())
    # On 1 and 7 three widths for KM and two graphs for NSC; on 3 and 8 the set's own for both.
    assert len(own(cells)) == 2 * 2 * ((3 + 1) + (2 + 1) + (1 + 1) + (1 + 1))
    assert len(cells) - len(own(cells)) == 2 * 2 * 2
    grids = {}
    for cell in cells:
        if cell.similarity:
            setting = cell.similarity.get("sigma") or cell.similarity["n_neighbors"]
            grids.setdefault((cell.dataset, cell.method), set()).add(setting)
    assert grids == {
        ("digits-1v7", "KM"): {"mean", "mean/2", "mean/4"},
        ("digits-1v7", "NSC"): {3, 5},
        ("digits-3v8", "KM"): {"4*mean"},
        ("digits-3v8", "NSC"): {"4*mean"},
    }
    assert cells[0].sampling == {"realization": 1, "n_samples": 40, "scale": "unit"}
    samplings = [(c.sampling["realization"], c.sampling["n_samples"], c.seed) for c in cells]
    assert list(dict.fromkeys(samplings)) == [(1, 40, 1), (1, 60, 1), (2, 40, 2), (2, 60, 2)]
    assert all(c.x == c.sampling["n_samples"] for c in cells)
    assert len({c.key for c in cells}) == len(cells)
    assert (experiment.axis.kind, experiment.sizes) == ("size", (40, 60))
    assert (experiment.axis_label, experiment.axis_log) == ("sample size (rows)", False)


def test_hindsight_over_sizes_is_for_each_sampling():
    experiment = parse_experiment("sizes", SIZES)
    values = {(1, 40): 0.1, (1, 60): 0.2, (2, 40): 0.3, (2, 60): 0.4}
    results = [
        # The first setting of each grid is the best one.
        made_up(
            cell,
            values[cell.sampling["realization"], cell.sampling["n_samples"]]
            + 0.05 * (cell.similarity["sigma"] != "mean"),
        )
        for cell in experiment.cells()
        if (cell.dataset, cell.method, cell.column) == ("digits-1v7", "KM", "hindsight")
    ]
    summary = Results(experiment, results).side("digits-1v7", "KM", "hindsight").summary
    assert summary.mean == pytest.approx(25.0)
    assert summary.n == 4
    # Variance of 10, 20, 30, 40 over 4.
    assert summary.standard_error == pytest.approx(math.sqrt(500 / 3 / 4))


@pytest.fixture
def rows_of(monkeypatch):
    """What the estimator of a cell is given."""
    given = []

    class Recorder:
        def __init__(self, **_):
            pass

        def fit(self, X):
            given.append(X)
            self.labels_ = np.arange(len(X)) % 2
            return self

    monkeypatch.setattr(runner_module, "find_estimator", lambda name: Recorder)
    return lambda cell: (run_cell(cell), given.pop())[1]


def test_a_stretch_multiplies_one_feature_and_each_sampling_another(rows_of):
    experiment = parse_experiment("stretched", STRETCHED)
    cells = own(experiment.cells())
    assert len(cells) == 3 * 3 * 2
    plain = load("digits-1v7").X
    stretched = {}
    for cell in cells:
        assert cell.sampling == {"stretch": cell.x, "feature": cell.seed}
        X = rows_of(cell)
        (changed,) = np.nonzero(np.any(plain != X, axis=0))
        if cell.x == 1:
            assert changed.size == 0
            continue
        # A feature that is zero throughout stays as it is.
        for column in changed:
            np.testing.assert_array_equal(X[:, column], cell.x * plain[:, column])
        assert changed.size <= 1
        stretched.setdefault(cell.seed, set()).add(tuple(changed))
    order = np.random.default_rng(0).permutation(plain.shape[1])
    for seed, columns in stretched.items():
        constant = not plain[:, order[seed - 1]].any()
        assert columns == ({()} if constant else {(order[seed - 1],)})
    assert len({str(columns) for columns in stretched.values()}) == 3
    assert (experiment.axis.kind, experiment.axis_log) == ("stretch", True)
    references = [c for c in experiment.cells() if c.column == "reference"]
    assert len({c.rows_key for c in references}) == len(references) == 3 * 3


def test_a_stretched_cell_is_a_fit_on_stretched_rows():
    cell = own(parse_experiment("stretched", STRETCHED).cells())[-1]
    data = load("digits-1v7")
    order = np.random.default_rng(0).permutation(data.X.shape[1])
    X = data.X.copy()
    X[:, order[2]] *= 16
    model = runner_module.find_estimator(cell.estimator)(n_clusters=2, random_state=3)
    assert run_cell(cell).value == clustering_error(data.y, model.fit(X).labels_)


def test_features_of_stretches_begin_anew_where_there_are_fewer(rows_of):
    cell = own(parse_experiment("stretched", STRETCHED).cells())[-1]
    assert load(cell.dataset).X.shape[1] == 64
    samplings = [{"stretch": 2.0, "feature": feature} for feature in (3, 3 + 64, 4)]
    same, again, other = (rows_of(replace(cell, sampling=sampling)) for sampling in samplings)
    np.testing.assert_array_equal(same, again)
    assert np.any(same != other)


def test_an_axis_of_a_parameter_sets_it_and_runs_the_reference_once():
    experiment = parse_experiment("parameter", PARAMETER)
    cells = list(experiment.cells())
    mine = own(cells)
    assert len(mine) == 2 * 5 * 2
    assert len(cells) - len(mine) == 2  # the rows are the same at every place
    assert all(c.parameters["max_iter"] == c.x for c in mine)
    assert {c.column for c in mine} == {"hindsight"}
    assert (experiment.axis.kind, experiment.axis_label) == ("parameter", "iterations")
    # Hindsight chooses at each place of the axis, and all places share a reference.
    assert len({c.sampling_key for c in mine}) == 2 * 5
    assert {c.rows_key for c in mine} == {c.rows_key for c in cells if c not in mine}


def test_methods_and_sets_leave_out_what_is_too_dear():
    text = SIZES.replace(
        'similarity = "wide" }', 'similarity = "wide", realizations = 1, sizes = [60] }'
    )
    text += """
[methods.B]
estimator = "sklearn.cluster.KMeans"
fixed = { n_clusters = 2 }
realizations = 1
sizes = [40]
datasets = ["digits-1v7"]
columns = ["hindsight"]
on.digits-1v7 = { n_init = 3 }

[methods.C]
estimator = "sklearn.cluster.KMeans"
fixed = { n_clusters = 2, n_init = 1 }
on.digits-3v8 = { n_init = 4 }
columns = ["label-free"]
"""
    cells = list(parse_experiment("dear", text).cells())

    def places(*wanted):
        return {
            (c.sampling["realization"], c.x)
            for c in cells
            if (c.dataset, c.method, c.column) == wanted
        }

    everywhere = {(1, 40), (1, 60), (2, 40), (2, 60)}
    assert places("digits-1v7", "KM", "hindsight") == everywhere
    assert places("digits-1v7", "KMeans", "reference") == everywhere
    assert places("digits-3v8", "KM", "hindsight") == {(1, 60)}
    assert places("digits-3v8", "KMeans", "reference") == {(1, 60)}
    assert places("digits-1v7", "B", "hindsight") == {(1, 40)}
    assert places("digits-1v7", "B", "label-free") == set()
    assert places("digits-3v8", "B", "hindsight") == set()
    assert places("digits-3v8", "C", "hindsight") == set()
    assert places("digits-1v7", "C", "label-free") == everywhere
    (only,) = [c for c in cells if c.method == "B"]
    assert only.parameters == {"n_clusters": 2, "n_init": 3}


def test_parameters_of_one_data_set_go_before_the_fixed_ones():
    text = SMALL.replace("[similarities", "digits-3v8 = {}\n\n[similarities")
    text += "on.digits-3v8 = { n_init = 7, max_iter = 9 }\n"
    fixed = {"kernel": "precomputed", "init": "random"}
    for cell in parse_experiment("on", text).cells():
        if cell.column == "hindsight":
            special = cell.dataset == "digits-3v8"
            wanted = {"n_init": 7, "max_iter": 9} if special else {"n_init": 1}
            assert cell.parameters == {**fixed, **wanted}
        elif cell.column == "label-free":
            assert cell.parameters == {}


def test_a_quick_run_is_a_stratified_part():
    text = SIZES.replace("sizes = [40, 60]", "sizes = [30, 40, 50, 60, 70]").replace(
        'sigma = ["mean", "mean/2", "mean/4"]', "sigma = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]"
    )
    experiment = parse_experiment("quick", text)
    quick = list(replace(experiment, quick=True).cells())
    assert {c.key for c in quick} < {c.key for c in experiment.cells()}
    assert {(c.seed, c.x) for c in quick} == {(1, 30), (1, 50)}
    sigmas = [c.similarity["sigma"] for c in quick if c.method == "KM" and c.similarity]
    assert sigmas == [1.0, 3.0, 5.0, "4*mean"] * 2


def test_table_3_has_eighty_samplings_of_twelve_pairs():
    experiment = load_experiment("mvc-jmlr-2013-table-3")
    cells = list(experiment.cells())
    # GMMC is dear and has fewer samplings of each size.
    dear = experiment.methods["GMMC"]
    plain = 12 * 80 * (1 + (5 + 1) + (6 + 1) + (6 + 1) + (5 + 1))
    n_settings = 5 * len(dear["grid"]["C"])
    assert len(cells) == plain + 12 * 8 * dear["realizations"] * (n_settings + 1)
    assert {c.sampling["scale"] for c in cells} == {"unit"}
    affinities = {(c.method, c.similarity["affinity"]) for c in cells if c.similarity}
    assert affinities == {
        ("KM", "gaussian"),
        ("NSC", "cosine_knn"),
        ("MVC-SL", "cosine_knn"),
        ("LGMMC", "gaussian"),
        ("GMMC", "gaussian"),
    }
    assert {c.similarity["n_neighbors"] for c in cells if c.method == "NSC" and c.similarity} == {
        *range(3, 9)
    }
    assert published("mvc-jmlr-2013", "3")["usps-1v7", "MVC-SL"] == (10.3, 0.89)


def test_figure_6_is_as_the_paper_describes_it():
    experiment = load_experiment("mvc-jmlr-2013-figure-6")
    cells = [c for c in experiment.cells() if c.column == "hindsight"]
    assert len(cells) == 3 * 6 * 100
    assert {c.sampling["n_samples"] for c in cells} == {50, 100, 150, 200, 250, 300}
    assert {c.dataset for c in cells} == {"two-gaussians", "two-moons", "two-circles"}
    assert {str(c.parameters) for c in cells} == {"{'affinity': 'precomputed', 'mode': 'paper'}"}


def test_keys_of_stored_results_do_not_change():
    """Results that are stored already are found by them."""
    cells = load_experiment("mvc-jmlr-2013-table-2").cells()
    assert [next(cells).key, next(cells).key] == ["e82782b49e9adefe579d", "104f972030941fdfacf8"]
    assert next(load_experiment("mvc-jmlr-2013-figure-6").cells()).key == "aea3ec2514d934e6e646"


def test_the_key_is_stable_and_sees_every_field(experiment):
    cell = list(experiment.cells())[1]
    assert cell.key == Cell(**json.loads(json.dumps(asdict(cell)))).key
    changes = {
        "experiment": "x",
        "dataset": "x",
        "method": "x",
        "column": "label-free",
        "estimator": "x",
        "parameters": {},
        "similarity": None,
        "sampling": {},
        "metric": "x",
        "seed": 9,
        "x": 1.0,
        "measures": {"x": "n_iter_"},
        "metric_params": {"beta": 2.0},
    }
    assert changes.keys() == asdict(cell).keys()
    keys = {replace(cell, **{field: value}).key for field, value in changes.items()}
    assert len(keys | {cell.key}) == len(changes) + 1


# ------------------------------------------------------------------------- the declared files


@lru_cache(maxsize=4)
def unfolded(source):
    """Cells of an experiment by their keys; several experiments show the same ones."""
    cells = list(load_experiment(source).cells())
    by_key = {cell.key: cell for cell in cells}
    assert len(by_key) == len(cells)
    return by_key


@pytest.mark.parametrize("name", list_experiments())
def test_every_experiment_is_consistent(name):
    experiment = load_experiment(name)
    assert experiment.title
    assert bool(experiment.table) != bool(experiment.figure)
    assert name.startswith(f"{experiment.paper}-")
    if experiment.view == "data":
        assert not experiment.methods
        assert set(experiment.datasets) <= set(list_datasets())
        return
    assert hasattr(metrics, experiment.metric)
    by_key = unfolded(experiment.source)
    cells = list(by_key.values())
    assert list(experiment.cells(1)) == [c for c in cells if c.seed == 1]
    assert {c.experiment for c in cells} == {experiment.source}
    pairs = {
        (d, m, column)
        for d in experiment.datasets
        for m, spec in experiment.methods.items()
        if d in spec.get("datasets", experiment.datasets)
        for column in spec.get("columns", experiment.columns)
    }
    assert {(c.dataset, c.method, c.column) for c in own(cells)} == pairs
    references = Counter((c.dataset, c.rows_key) for c in cells if c.column == "reference")
    assert set(references) == {(c.dataset, c.rows_key) for c in cells}
    assert set(references.values()) == {1}
    for dataset in experiment.datasets:
        assert dataset in list_datasets() or find_task(dataset)

    for setting in {
        (c.estimator, str(c.parameters), str(c.similarity)): c for c in cells
    }.values():
        runner_module.find_estimator(setting.estimator)(**setting.parameters, random_state=0)
        if setting.similarity:
            make_similarity(**setting.similarity)
    # A quick run is a part of it, with every set and method.
    quick = replace(experiment, quick=True)
    few = list(quick.cells())
    assert len({c.key for c in few}) == len(few)
    assert {c.key for c in few} <= by_key.keys()
    assert {c.seed for c in few} == {1}
    places = set(quick.places())
    assert len(places) <= 2
    wanted = {
        (c.dataset, c.method, c.column)
        for c in cells
        # What a method's sizes leave out at the quick run's places.
        if places & set(experiment.methods.get(c.method, {}).get("sizes", places))
    }
    assert {(c.dataset, c.method, c.column) for c in few} == wanted
    settings = Counter(
        (c.sampling_key, c.dataset, c.method) for c in few if c.column == "hindsight"
    )
    assert max(settings.values()) <= 3


@pytest.mark.parametrize("name", list_experiments())
def test_every_printed_cell_is_run_or_has_a_reason(name):
    experiment = load_experiment(name)
    printed = published_cells(experiment.paper, experiment.table)
    assert len(set(printed)) == len(printed)
    declared = {(c.dataset, c.method) for c in experiment.cells(1)}
    for dataset, method in printed:
        reason = experiment.absent.get(f"{method}/{dataset}") or experiment.absent.get(method)
        assert ((dataset, method) in declared) != bool(reason), (dataset, method)
    assert {key.split("/")[0] for key in experiment.absent} <= {method for _, method in printed}
    for method, spec in experiment.methods.items():
        if spec.get("unprinted"):
            assert all(one != method for _, one in printed)
    figures = published(experiment.paper, experiment.table)
    n_cells = sum(1 for _ in experiment.cells(1))
    empty = reproduction(experiment, [], n_cells=n_cells)
    assert (empty.n_done, empty.n_cells) == (0, n_cells)
    assert empty.verdict.status == ("shown" if experiment.view == "data" else "incomplete")
    if experiment.view not in ("data", "correlation"):
        lines = {(line.dataset, line.method): line for line in empty.lines}
        assert len(lines) == len(empty.lines)
        assert set(lines) >= declared - {(d, "KMeans") for d in experiment.datasets}
        assert set(lines) >= set(printed)
    for line in empty.lines:
        assert line.verdict == "not run"
        assert line.reason
        assert line.reason not in ("the method is not declared", "the file leaves it out")
        if experiment.view != "correlation":
            assert (line.paper.mean is None) == ((line.dataset, line.method) not in figures)


def test_the_packaged_figures_are_the_transcribed_ones():
    transcribed = ROOT.parent / "shared" / "papers" / "tables.csv"
    if not transcribed.is_file():
        pytest.skip("needs the transcribed tables beside the repository")
    packaged = ROOT / "src" / "volmar" / "papers" / "published.csv"
    assert packaged.read_bytes() == transcribed.read_bytes()


def test_published_figures():
    figures = published("mvc-jmlr-2013", "2")
    assert figures["ida-heart", "NSC"] == (18.0, 0.23)
    assert ("ida-german", "GMMC") not in figures  # not run by the authors
    assert ("ida-german", "GMMC") in published_cells("mvc-jmlr-2013", "2")
    assert published("nobody", "1") == {}
    assert published_cells("nobody", "1") == []


def test_unknown_experiment():
    with pytest.raises(ValueError, match="no experiment is named 'table-9'; there are: mmc-multi"):
        load_experiment("table-9")


# ----------------------------------------------------------------------------- other sides


def test_another_side_has_the_cells_of_its_source():
    source = load_experiment("mvc-jmlr-2013-figure-4")
    side = load_experiment("mvc-jmlr-2013-figure-5")
    assert side.source == source.name
    assert [c.key for c in side.cells(1)] == [c.key for c in source.cells(1)]
    assert (side.quantities, side.log) == (("seconds",), ("seconds",))
    assert side.statements != source.statements
    groups = load_experiment("mspc-aaai-2015-figure-2").groups
    assert load_experiment("mspc-aaai-2015-figure-3").groups == groups != {}


def test_another_side_starts_without_the_words_of_its_source():
    text = """
title = "Times"
paper = "mvc-jmlr-2013"
figure = "7"
view = "times"
cells_of = "mvc-jmlr-2013-table-3"
"""
    source, side = load_experiment("mvc-jmlr-2013-table-3"), parse_experiment("side", text)
    assert source.note
    assert source.reason
    assert source.statements
    assert (side.name, side.source, side.view) == ("side", source.name, "times")
    assert (side.table, side.figure) == ("", "7")
    assert (side.note, side.reason, side.test, side.statements) == ("", "", "", ())
    assert side.datasets == source.datasets


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('metric = "rand_index"', "metric"),
        ("[sampling]\nrealizations = 3", "sampling"),
        ("[datasets]\ndigits-1v7 = {}", "datasets"),
        ('[methods.A]\nestimator = "MSPC"', "methods"),
        ('columns = ["hindsight"]', "columns"),
        ('[measures]\nx = "n_iter_"', "measures"),
    ],
)
def test_another_side_runs_nothing_of_its_own(line, key):
    text = f'title = "t"\npaper = "mvc-jmlr-2013"\ncells_of = "mvc-jmlr-2013-table-3"\n{line}\n'
    with pytest.raises(
        ValueError, match=rf"side: it shows the cells of mvc-jmlr-2013-table-3.*leave out: {key}\."
    ):
        parse_experiment("side", text)


def test_another_side_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no experiment is named 'table-9'"):
        parse_experiment("side", 'title = "t"\npaper = "skmmc-nnw"\ncells_of = "table-9"\n')


# ------------------------------------------------------------------ files that contradict

PANELS = '\n[measures]\nm = "n_iter_"\n[[panels]]\naxis = "steps"\nmeasures = ["m"]\n'
CLAIM = '\n[[claims]]\nsays = "s"\nof = "KM"\nbelow = 3.0\n'


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (SIZES, "[sampling]", 'view = "graph"\n[sampling]', "view names 'graph'.*'curves'"),
        (SIZES, "[sampling]", 'test = "sign"\n[sampling]', "test names 'sign'.*'paired'"),
        (
            SIZES,
            "[sampling]",
            'columns = ["free"]\n[sampling]',
            "columns names 'free'.*'label-free'",
        ),
        (SIZES, "[sampling]", 'judged = ["XX"]\n[sampling]', "judged names 'XX'.*'KM', 'NSC'"),
        (SIZES, "[sampling]", 'quantities = ["msp"]\n[sampling]', "quantities names 'msp'"),
        (SIZES, "[sampling]", '[groups]\na = ["iris"]\n[sampling]', "groups names 'iris'.*digits"),
        (SIZES, "[sampling]", '[parts]\na = ["iris"]\n[sampling]', "parts names 'iris'.*digits"),
        (SIZES, "[sampling]", '[absent]\n"KM/iris" = "no"\n[sampling]', "absent names 'iris'"),
        (SIZES, "[sampling]", "[sampling]\nwhole_sets = true", "sizes, whole_sets; leave one"),
        (SIZES, "[sampling]", "[sampling]\nstretches = [2]", "sizes, stretches; leave one"),
        (
            SIZES,
            "[sampling]",
            '[axis]\nparameter = "C"\nvalues = [1]\nlabel = "C"\n[sampling]',
            "sizes, axis; leave one",
        ),
        (SIZES, 'similarity = "cosine"', 'similarity = "cos"', "similarity of NSC names 'cos'"),
        (SIZES, 'similarity = "wide"', 'similarity = "w"', "similarity of KM names 'w'.*'cosine'"),
        (SIZES, 'similarity = "cosine"', 'datasets = ["iris"]', "datasets of NSC names 'iris'"),
        (SIZES, 'similarity = "cosine"', "on.iris = {}", "on of NSC names 'iris'"),
        (SIZES, 'similarity = "cosine"', 'columns = ["x"]', "columns of NSC names 'x'"),
        (PARAMETER, 'columns = ["hindsight"]', "", 'label-free.*say columns = \\["hindsight"\\]'),
        (SIZES + CLAIM, 'of = "KM"', 'of = "GMMC"', "claim 's' names 'GMMC'.*'KM', 'NSC'"),
        (SIZES + CLAIM, "below = 3.0", 'below = "GMMC"', "claim 's' names 'GMMC'"),
        (SIZES + CLAIM, "below = 3.0", "", "claim 's' has 0 of below and above; give it one"),
        (SIZES + CLAIM, "below = 3.0", "below = 3.0\nabove = 2.0", "claim 's' has 2 of below and"),
        (SIZES + CLAIM, "below = 3.0", 'below = 3.0\non = ["iris"]', "claim 's' names 'iris'"),
        (SIZES + CLAIM, "below = 3.0", "below = 3.0\nat = [40, 50]", "claim 's' names '50'.*40"),
        (SIZES + CLAIM, "below = 3.0", "below = 3.0\nbelow_at = 50", "claim 's' names '50'.*40"),
        (SIZES + CLAIM, "below = 3.0", 'below = 3.0\nquantity = "x"', "claim 's' names 'x'.*seco"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(text, old, new, message):
    parse_experiment("file", text)
    assert old in text
    with pytest.raises(ValueError, match=f"^file: .*{message}"):
        parse_experiment("file", text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (SIZES, "[sampling]", 'log = ["second"]\n[sampling]', "log names 'second'.*'seconds'"),
        (SIZES, "[sampling]", "repeats = 3\n[sampling]", "'repeats'"),
        (SIZES, "realizations = 2", "realizations = 2\nsize = [3]", "sampling names 'size'"),
        (SIZES, "realizations = 2\n", "", "realizations"),
        (SIZES, 'title = "Sizes, and similarities by method"\n', "", "title"),
        (SIZES, 'similarity = "wide"', "sizes = [50]", "sizes of digits-3v8 names '50'.*40"),
        (SIZES, 'similarity = "wide"', "sampling = 1", "digits-3v8 names 'sampling'"),
        (SIZES, 'similarity = "cosine"', "sizes = [50]", "sizes of NSC names '50'.*40"),
        (SIZES, 'similarity = "cosine"', "realisations = 1", "NSC names 'realisations'"),
        (SIZES, 'similarity = "cosine"', "grids = {}", "NSC names 'grids'"),
        (SMALL, 'matrix = "kernel"', 'matrix = "kernel"\nsizes = [40]', "sizes of KM names '40'"),
        (PARAMETER, 'label = "iterations"\n', "", "label"),
        (
            PARAMETER,
            "grid = {",
            'columns = ["label-free"]\ngrid = {',
            "columns of KM names 'label-free'",
        ),
        (SIZES + CLAIM, "below = 3.0", "below = 3.0\nabove_at = 40", "claim 's'.*'above_at'"),
        (SIZES + CLAIM, "below = 3.0", "below = 3.0\nshares = 0.5", "claim 's'.*'shares'"),
        (SIZES + CLAIM, 'says = "s"\n', "", "says"),
        (
            SIZES,
            "[sampling]",
            '[printed]\nall = 0.5\n[groups]\nsome = ["digits-1v7"]\n[sampling]',
            "printed names 'all'.*'some'",
        ),
        (SIZES, "[sampling]", '[absent]\n"SVN" = "no"\n[sampling]', "absent names 'SVN'"),
        (SIZES + PANELS, 'axis = "steps"\n', "", "axis"),
        (SIZES + PANELS, 'axis = "steps"', 'axis = "steps"\npercents = true', "'percents'"),
    ],
)
def test_a_file_with_words_that_mean_nothing_is_refused(text, old, new, message):
    parse_experiment("file", text)
    assert old in text
    with pytest.raises(ValueError, match=f"^file: .*{message}"):
        parse_experiment("file", text.replace(old, new, 1))


# ----------------------------------------------------------------------------------- runner


def test_a_sampling_is_loaded_once_and_a_run_loads_anew(tmp_path, monkeypatch):
    cells = list(parse_experiment("sizes", SIZES).cells(1))[:13]  # 1 and 7, then 3 and 8
    assert cells[-1].method == "NSC"
    loaded = []
    real = runner_module.datasets.load

    def count(name, **arguments):
        loaded.append((name, arguments["n_samples"]))
        return real(name, **arguments)

    monkeypatch.setattr(runner_module.datasets, "load", count)
    run_cells(cells, Store(tmp_path / "one.jsonl"))
    assert loaded == [("digits-1v7", 40), ("digits-3v8", 40)]
    last = next(c for c in reversed(cells) if c.similarity)
    alone = run_cells([last], Store(tmp_path / "two.jsonl"))
    assert loaded[2:] == [("digits-3v8", 40)]
    direct = real("digits-3v8", **last.sampling)
    model = NormalizedSpectralClustering(**last.parameters, random_state=1)
    W = make_similarity(**last.similarity).build(direct.X)[0]
    assert alone[last.key].value == clustering_error(direct.y, model.fit(W).labels_)


def test_a_cell_runs_and_is_stored(experiment, tmp_path):
    store = Store(tmp_path / "deep" / "cells.jsonl")
    heard = []
    results = run_cells(
        experiment.cells(), store, progress=lambda done, wanted: heard.append((done, wanted))
    )
    assert list(results) == [cell.key for cell in experiment.cells()]
    assert heard == [(i, 12) for i in range(13)]
    assert all(0 <= r.value <= 0.5 and r.seconds > 0 for r in results.values())
    assert {r.status for r in results.values() if r.cell.method == "KM"} == {"converged"}
    assert {r.status for r in results.values() if r.cell.method == "KMeans"} == {"done"}
    assert store.read() == results
    packages = {"volmar", "python", "numpy", "scipy", "scikit-learn"}
    assert all(r.versions.keys() == packages for r in results.values())


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
    assert len(results) == len(Store(store.path).read()) == 12


def test_results_come_in_the_order_of_the_cells(experiment, tmp_path):
    """Of settings that are equally good the first counts, whichever was complete first."""
    store = Store(tmp_path / "cells.jsonl")
    cells = list(experiment.cells(1))
    run_cells(cells[2:], store)
    assert list(run_cells(cells, store)) == [cell.key for cell in cells]


@pytest.mark.parametrize(
    "line", ["123", "null", "[]", "\udcff", '{"cell": {}}', '"text"', '{"cell": 3}']
)
def test_lines_that_are_no_result_are_ignored(experiment, tmp_path, line):
    store = Store(tmp_path / "cells.jsonl")
    run_cells(list(experiment.cells())[:1], store)
    with store.path.open("ab") as file:
        file.write(line.encode("utf-8", "surrogateescape") + b"\n")
    assert len(store.read()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"value": "0.1"},
        {"value": math.nan},
        {"seconds": None},
        {"seconds": math.inf},
        {"surplus": 1},
        {"versions": "0.1"},
    ],
)
def test_results_that_are_not_whole_run_again(experiment, tmp_path, change):
    store = Store(tmp_path / "cells.jsonl")
    cell = next(experiment.cells())
    raw = {**asdict(made_up(cell, 0.1)), **change}
    store.path.write_text(json.dumps(raw) + "\n")
    assert store.read() == {}
    (result,) = run_cells([cell], store).values()
    assert not result.failed


def refused(cell):
    return replace(cell, similarity={"affinity": "gaussian", "sigma": -1.0})


def test_a_refused_cell_is_recorded_and_not_tried_again(experiment, tmp_path):
    good, cell = list(experiment.cells())[:2]
    cell, store = refused(cell), Store(tmp_path / "cells.jsonl")
    results = run_cells([cell, good], store)
    assert results[good.key].value is not None  # the rest goes on
    result = results[cell.key]
    assert (result.value, result.failed, result.measures) == (None, True, {})
    assert result.status.startswith("ValueError: ")
    run_cells([cell, good], store)
    assert len(store.path.read_text().splitlines()) == 2
    run_cells([cell, good], store, retry=True)
    assert len(store.path.read_text().splitlines()) == 3
    assert str(Results(experiment, [result]).side("digits-1v7", "KM", "hindsight").summary) == "-"


def test_a_cell_without_its_data_is_tried_again(experiment, tmp_path, monkeypatch):
    monkeypatch.setenv("VOLMAR_DATA", str(tmp_path))
    cell = replace(next(experiment.cells()), dataset="ida-heart", sampling={"realization": 1})
    store = Store(tmp_path / "cells.jsonl")
    (result,) = run_cells([cell], store).values()
    assert result.failed
    assert result.status.startswith("no data: FileNotFoundError: ")
    assert "ida_heart.npz" in result.status
    assert stored_results([cell], store) == {cell.key: result}  # shown, but not for good
    run_cells([cell], store)
    assert len(store.path.read_text().splitlines()) == 2


def test_data_that_is_not_there_is_looked_for_once_a_sampling(experiment, tmp_path, monkeypatch):
    """Asking OpenML without a network takes seconds, and a sampling has dozens of cells."""
    asked = []

    def missing(name, **arguments):
        asked.append(arguments["realization"])
        raise ConnectionError("nobody answers")

    monkeypatch.setattr(runner_module.datasets, "load", missing)
    results = run_cells(experiment.cells(), Store(tmp_path / "cells.jsonl"))
    assert {r.status for r in results.values()} == {"no data: ConnectionError: nobody answers"}
    assert asked == [1, 2, 3]


def test_results_of_another_version_do_not_count(experiment, tmp_path):
    cell = next(experiment.cells())
    store = Store(tmp_path / "cells.jsonl")
    store.append(CellResult(cell, 0.1, 1.0, "done", {"volmar": "0.0.0"}))
    assert stored_results([cell], store)[cell.key].versions == {"volmar": "0.0.0"}
    (result,) = run_cells([cell], store).values()
    assert result.versions["volmar"] == volmar.__version__
    assert stored_results([cell], store) == {cell.key: result}


def test_processes_give_the_same_values(experiment, tmp_path):
    alone = run_cells(experiment.cells(1), Store(tmp_path / "one.jsonl"))
    together = run_cells(experiment.cells(1), Store(tmp_path / "two.jsonl"), jobs=2)
    assert {k: r.value for k, r in alone.items()} == {k: r.value for k, r in together.items()}
    assert {k: r.value for k, r in Store(tmp_path / "two.jsonl").read().items()} == {
        k: r.value for k, r in alone.items()
    }


@pytest.mark.usefixtures("slow_estimators")
def test_a_worker_that_dies_is_recorded_and_the_rest_goes_on(tmp_path):
    text = PATIENT.split("[methods.A]", maxsplit=1)[0].replace(
        "realizations = 2", "realizations = 3"
    )
    text = text.replace("digits-3v8 = { load = { n_samples = 60 } }\n", "")
    text += '[methods.A]\nestimator = "slow_estimators.Dying"\ncolumns = ["label-free"]\n'
    cells = own(parse_experiment("dying", text).cells())
    assert [c.seed for c in cells] == [1, 2, 3]
    store = Store(tmp_path / "cells.jsonl")
    results = run_cells(cells, store, jobs=2)
    statuses = [results[cell.key].status for cell in cells]
    assert statuses == ["done", "process ended: out of memory, or a crash", "done"]
    assert [results[cell.key].failed for cell in cells] == [False, True, False]
    assert store.read() == results
    run_cells(cells, store, jobs=2)
    assert len(store.path.read_text().splitlines()) == 3  # it would die again


def script(folder):
    """Write a program that runs the patient experiment; returns what starts it."""
    (folder / "patient.py").write_text(
        f"""
import sys
from dataclasses import replace
from pathlib import Path

from volmar.papers import Store, parse_experiment, run_cells

if __name__ == "__main__":
    experiment = replace(parse_experiment("patient", '''{PATIENT}'''), quick="quick" in sys.argv)
    run_cells(experiment.cells(), Store(Path("cells.jsonl")), jobs=2)
"""
    )
    return [sys.executable, "patient.py"]


def start(command, folder, seconds=0.5):
    """Start a program with a process group of its own, whose cells take some seconds."""
    return subprocess.Popen(
        command,
        cwd=folder,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "SLOW_SECONDS": str(seconds)},
    )


def wait_for(condition, process, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "it ended before it could be stopped"
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.usefixtures("slow_estimators")
@pytest.mark.parametrize("quick", [True, False])
def test_a_run_that_was_killed_goes_on(tmp_path, quick):
    command = [*script(tmp_path), *(["quick"] if quick else [])]
    experiment = replace(parse_experiment("patient", PATIENT), quick=quick)
    wanted = {cell.key for cell in experiment.cells()}
    store = Store(tmp_path / "cells.jsonl")

    def stored():
        return store.path.read_bytes().count(b"\n") if store.path.exists() else 0

    process = start(command, tmp_path)
    try:
        wait_for(lambda: stored() >= 3, process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    before = store.read()
    assert 3 <= len(before) < len(wanted)
    lines = store.path.read_bytes().splitlines()
    run_cells(experiment.cells(), store)
    after = store.read()
    assert after.keys() == wanted
    assert {key: after[key] for key in before} == before
    # Nothing that was there ran again.
    added = store.path.read_bytes().splitlines()[len(lines) :]
    assert len(added) == len(wanted) - len(before)


@pytest.mark.usefixtures("slow_estimators")
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_workers_do_not_outlive_a_killed_parent(tmp_path):
    process = start(script(tmp_path), tmp_path)
    store = tmp_path / "cells.jsonl"

    def members():
        """Processes of the group that have not ended."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                state, _, group, *_ = stat.read_text().rpartition(")")[2].split()
                if int(group) == process.pid and state != "Z":
                    found.append(int(stat.parent.name))
        return found

    try:
        wait_for(lambda: store.exists() and store.stat().st_size > 0, process)
        assert len(members()) >= 3
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        end = time.monotonic() + 30
        while members() and time.monotonic() < end:
            time.sleep(0.1)
        assert members() == []
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.usefixtures("slow_estimators")
def test_an_interrupt_does_not_wait_for_long_cells(tmp_path):
    store = tmp_path / "cells.jsonl"
    process = start(script(tmp_path), tmp_path, seconds=3600)
    try:
        # K-means is there at once.
        wait_for(lambda: store.exists() and store.stat().st_size > 0, process)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert len(Store(store).read()) >= 1


def test_workers_that_cannot_start_end_the_run(experiment, tmp_path, monkeypatch):
    """As in a script without a main guard: no cell is to blame, and none is recorded."""

    class Pool:
        def submit(self, *_):
            future = Future()
            future.set_exception(BrokenProcessPool("it ended"))
            return future

        def shutdown(self, **_):
            pass

    monkeypatch.setattr(runner_module, "_pool", lambda jobs: Pool())
    store = Store(tmp_path / "cells.jsonl")
    with pytest.raises(RuntimeError, match=r"jobs: .*\(it ended\); take jobs=1, and in a script"):
        run_cells(experiment.cells(), store, jobs=2)
    assert store.read() == {}


# ------------------------------------------------------------------------------------ store


def test_packing_keeps_results_and_goes_on_beside_them(experiment, tmp_path):
    store = Store(tmp_path / "cells.jsonl")
    cells = list(experiment.cells())
    results = [made_up(cell, i / 100, 1 + i / 1e6) for i, cell in enumerate(cells)]
    results[3] = made_up(cells[3], None, status="ValueError: no")
    for result in results[:8]:
        store.append(result)
    store.pack()
    assert not store.path.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["cells.jsonl.xz"]
    read = store.read()
    assert read.keys() == {cell.key for cell in cells[:8]}
    for result in results[:8]:
        packed = read[result.cell.key]
        assert packed == replace(result, seconds=float(f"{result.seconds:.3g}"))
    # Later lines win over packed ones.
    again = replace(results[0], value=0.5, seconds=7.0)
    for result in (again, *results[8:]):
        store.append(result)
    assert store.read()[cells[0].key] == again
    assert len(store.read()) == len(cells)
    assert stored_results(cells, store).keys() == {cell.key for cell in cells}
    store.pack()
    assert Store(store.path).read()[cells[0].key] == again
    assert len(store.read()) == len(cells)


def test_packing_twice_gives_the_same_bytes(experiment, tmp_path):
    cells = list(experiment.cells())
    texts = []
    for name, order in (("a", cells), ("b", cells[::-1])):
        store = Store(tmp_path / f"{name}.jsonl")
        for cell in order:
            store.append(made_up(cell, 0.25, 0.123456 + cell.seed))
        store.pack()
        texts.append(store.packed.read_bytes())
        store.pack()
        assert store.packed.read_bytes() == texts[-1]
    assert texts[0] == texts[1]
    lines = lzma.decompress(texts[0]).decode().splitlines()
    assert len(lines) == len(cells)
    assert all(json.loads(line)["seconds"] == pytest.approx(0.123456, abs=3.01) for line in lines)


def test_packed_cells_are_not_run_again(experiment, tmp_path, monkeypatch):
    store = Store(tmp_path / "cells.jsonl")
    cells = list(experiment.cells(1))
    first = run_cells(cells, store)
    store.pack()
    monkeypatch.setattr(runner_module, "run_cell", lambda cell: pytest.fail("it ran again"))
    second = run_cells(cells, store)
    assert {k: r.value for k, r in second.items()} == {k: r.value for k, r in first.items()}
    assert not store.path.exists()


def test_a_packed_file_that_is_damaged_is_named(experiment, tmp_path):
    store = Store(tmp_path / "cells.jsonl")
    store.append(made_up(next(experiment.cells()), 0.1))
    store.pack()
    store.packed.write_bytes(store.packed.read_bytes()[:-20])
    with pytest.raises((ValueError, OSError), match=r"cells\.jsonl\.xz"):
        store.read()


def test_a_failed_value_may_be_zero_but_not_missing(experiment, tmp_path):
    store = Store(tmp_path / "cells.jsonl")
    result = made_up(next(experiment.cells()), 0.0)
    store.append(result)
    assert not store.read()[result.cell.key].failed


# ------------------------------------------------------------------------- agreements, times

AGREEMENT = """
title = "A rival of scikit-learn's, judged by an agreement"
paper = "mmc-multivariate-loss"
table = "V"
metric = "pair_f_measure"
metric_params = { beta = 1.5 }

[sampling]
realizations = 1
whole_sets = true

[datasets]
digits-1v7 = {}

[methods.KM]
estimator = "sklearn.cluster.KMeans"
fixed = { n_clusters = 2, n_init = 1 }
grid = { max_iter = [1, 100] }
default = { n_clusters = 2, n_init = 10 }
"""


def test_of_an_agreement_the_largest_is_the_best(tmp_path):
    experiment = parse_experiment("agreement", AGREEMENT)
    assert experiment.larger_is_better
    results = run_cells(experiment.cells(), Store(tmp_path / "cells.jsonl"))
    values = [r.value for r in results.values() if r.cell.column == "hindsight"]
    line = next(
        line
        for line in make_lines(Results(experiment, results.values()))
        if (line.dataset, line.method) == ("digits-1v7", "KM")
    )
    assert line.hindsight.summary.mean == pytest.approx(100 * max(values))
    assert line.paper.mean == pytest.approx(99.4)  # printed as a share
    assert {r.status for r in results.values()} == {"done"}
    (default,) = [r for r in results.values() if r.cell.column == "label-free"]
    data = load("digits-1v7")
    labels = runner_module.find_estimator("sklearn.cluster.KMeans")(
        n_clusters=2, n_init=10, random_state=1
    ).fit_predict(data.X)
    assert default.value == pytest.approx(pair_f_measure(data.y, labels, beta=1.5))


def test_expected_times_are_of_complete_experiments(tmp_path, monkeypatch):
    names = ["mvc-jmlr-2013-figure-3", *(f"skmmc-nnw-figure-{number}" for number in (4, 5, 6))]
    monkeypatch.setattr(expected_module, "list_experiments", lambda: names)
    assert set(read_expected()) <= set(list_experiments())
    experiment = load_experiment("skmmc-nnw-figure-6")
    store = Store(tmp_path / f"{experiment.name}.jsonl")
    cells = list(experiment.cells())
    for cell in cells:
        store.append(replace(made_up(cell, 0.1, 2.0), measures=dict.fromkeys(cell.measures, 1.0)))
    # Neither one that has begun nor one whose data are not there.
    part, empty = (load_experiment(f"skmmc-nnw-figure-{number}") for number in (4, 5))
    Store(tmp_path / f"{part.name}.jsonl").append(made_up(next(part.cells()), 0.1))
    for cell in empty.cells():
        result = made_up(cell, None, 0.0, f"{NO_DATA}OSError: no file")
        Store(tmp_path / f"{empty.name}.jsonl").append(result)
    write_expected(tmp_path, tmp_path / "expected.csv")
    n_quick = len(list(replace(experiment, quick=True).cells()))
    head, *rows = (tmp_path / "expected.csv").read_text().splitlines()
    assert head == "experiment,seconds,quick_seconds"
    # An experiment without cells takes no time.
    rows = [row for row in rows if not row.startswith("mvc-jmlr-2013-figure-3,0,")]
    assert rows == [f"{experiment.name},{2.0 * len(cells):.3g},{2.0 * n_quick:.3g}"]


# ----------------------------------------------------------------------------- golden figures

needs_data = pytest.mark.skipif(
    data_folder() is None, reason="needs the papers' data sets (VOLMAR_DATA)"
)


def judged(part, cells, tmp_path):
    """Lines of what was run of an experiment."""
    results = run_cells(own(cells), Store(tmp_path / "cells.jsonl")).values()
    lines = make_lines(Results(part, results))
    return [line for line in lines if line.hindsight.summary.n]


@needs_data
def test_golden_figures_of_jmlr_table_2(tmp_path):
    """NSC on three small sets, five realizations: within three standard errors of the paper."""
    experiment = load_experiment("mvc-jmlr-2013-table-2")
    names = ("ida-breast-cancer", "ida-heart", "ida-titanic")
    part = replace(
        experiment,
        datasets={name: experiment.datasets[name] for name in names},
        methods={"NSC": experiment.methods["NSC"]},
    )
    lines = judged(part, part.cells(5), tmp_path)
    assert [line.dataset for line in lines] == list(names)
    for line in lines:
        error = math.hypot(line.hindsight.summary.standard_error, line.paper.standard_error)
        difference = line.hindsight.summary.mean - line.paper.mean
        assert abs(difference) < 3 * error
        assert line.hindsight.distance == pytest.approx(difference / error)


@needs_data
def test_golden_figures_of_jmlr_table_3(tmp_path):
    """MVC-SL on a pair, part of the sizes: within four points of what the paper printed.

    With the mutual graph that the paper describes it would be more than eight points off.
    """
    experiment = load_experiment("mvc-jmlr-2013-table-3")
    part = replace(
        experiment,
        datasets={"usps-3v8": experiment.datasets["usps-3v8"]},
        methods={"MVC-SL": experiment.methods["MVC-SL"]},
        axis=replace(experiment.axis, values=(50, 150, 300)),
    )
    cells = [cell for cell in part.cells(4) if cell.column == "hindsight"]
    (line,) = judged(part, cells, tmp_path)
    assert line.hindsight.summary.n == 12
    assert abs(line.hindsight.summary.mean - line.paper.mean) < 4


@needs_data
@pytest.mark.parametrize(
    "name",
    ["ionosphere", "breast-with-id", "australian", "diabetes", "letter-AvB", "satellite-1v2"],
)
def test_golden_figures_of_mspc_table_2(name, tmp_path):
    """MPM and GEP on the small sets: within 0.2 points of what the paper printed."""
    experiment = load_experiment("mspc-aaai-2015-table-2")
    part = replace(
        experiment,
        datasets={name: experiment.datasets[name]},
        methods={m: experiment.methods[m] for m in ("MSPC-MPM", "MSPC-GEP")},
    )
    cells = [cell for cell in part.cells() if cell.column == "hindsight"]
    lines = judged(part, cells, tmp_path)
    assert [line.method for line in lines] == ["MSPC-MPM", "MSPC-GEP"]
    for line in lines:
        assert abs(line.hindsight.summary.mean - line.paper.mean) < 0.2, line.method
