"""Figures of the papers: measures of fitted estimators, their summaries and their picture."""

import json
import math
import statistics
import sys
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from volmar import NormalizedSpectralClustering, SoftLabelMVC
from volmar.cli import reproduce as reproduce_module
from volmar.cli.app import app
from volmar.datasets import load
from volmar.graphs import gaussian_similarity
from volmar.metrics import clustering_error
from volmar.papers import (
    CellResult,
    MeasureLine,
    Panel,
    Spread,
    Store,
    load_experiment,
    parse_experiment,
    run_cell,
    run_cells,
    summarise_measures,
)
from volmar.papers.measures import take_measures
from volmar.plots import MeasuresDisplay

SMALL = """
title = "A small figure"
paper = "mvc-jmlr-2013"
metric = "clustering_error"

[sampling]
realizations = 3
sizes = [30, 40]

[datasets]
two-gaussians = {}
two-circles = {}

[similarities.default]
affinity = "gaussian"
sigma = "mean/10"
self_loops = true

[methods.MVC-SL]
estimator = "SoftLabelMVC"
matrix = "affinity"
fixed = { mode = "paper" }

[measures]
iterations = "n_iter_"
v2 = "result_.second_vector"
"h*" = "result_.h"

[[panels]]
axis = "iterations"
measures = ["iterations"]

[[panels]]
axis = "error (%)"
measures = ["v2", "h*"]
percent = true
"""


@pytest.fixture
def experiment():
    return parse_experiment("small", SMALL)


@pytest.fixture
def without_pyplot_windows():
    import matplotlib as mpl

    mpl.use("agg")
    yield
    mpl.pyplot.close("all")


def made_up(experiment, measures_of, value_of=lambda _: 0.1):
    """Results whose measures are given instead of computed."""
    return [
        CellResult(cell, value_of(cell), 1.0, "converged", "0", measures_of(cell))
        for cell in experiment.cells()
    ]


# ------------------------------------------------------------------------------------ cells


def test_a_figure_runs_the_papers_setting_at_every_size(experiment):
    cells = list(experiment.cells())
    assert len(cells) == 3 * 2 * 2
    assert {c.column for c in cells} == {"hindsight"}
    assert [c.sampling for c in cells[:4]] == [
        {"realization": 1, "n_samples": 30},
        {"realization": 1, "n_samples": 30},
        {"realization": 1, "n_samples": 40},
        {"realization": 1, "n_samples": 40},
    ]
    assert [c.dataset for c in cells[:2]] == ["two-gaussians", "two-circles"]
    assert cells[0].similarity == {"affinity": "gaussian", "sigma": "mean/10", "self_loops": True}
    assert len({c.key for c in cells}) == len(cells)
    assert len({c.sampling_key for c in cells}) == 3 * 2


def test_the_key_sees_the_measures(experiment):
    cell = next(experiment.cells())
    assert replace(cell, measures={}).key != cell.key
    assert replace(cell, measures={**cell.measures, "h0": "result_.start"}).key != cell.key


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sizes = [30, 40]", "", "sampling has no sizes; add them"),
        ("sizes = [30, 40]", "sizes = [30]\nwhole_sets = true", r"both whole_sets and sizes=\[30"),
        ('["v2", "h*"]', '["v2", "h1"]', "a panel shows h1, and there are: iterations, v2, h"),
        (
            'matrix = "affinity"',
            'matrix = "affinity"\nsimilarity = "cosine"',
            "'cosine', and ther",
        ),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(old, new, message):
    assert old in SMALL
    with pytest.raises(ValueError, match=f"small: .*{message}"):
        parse_experiment("small", SMALL.replace(old, new))


def test_figure_6_is_as_the_paper_describes_it():
    experiment = load_experiment("mvc-jmlr-2013-figure-6")
    cells = list(experiment.cells())
    assert len(cells) == 3 * 6 * 100
    assert {c.sampling["n_samples"] for c in cells} == {50, 100, 150, 200, 250, 300}
    assert {c.dataset for c in cells} == {"two-gaussians", "two-moons", "two-circles"}
    assert {str(c.parameters) for c in cells} == {"{'affinity': 'precomputed', 'mode': 'paper'}"}


# --------------------------------------------------------------------------------- measures


def test_measures_are_numbers_and_scores_of_signs():
    data = load("two-circles", n_samples=60, realization=2)
    W = gaussian_similarity(data.X, sigma="mean/10")
    model = SoftLabelMVC(affinity="precomputed", mode="paper", random_state=0).fit(W)
    names = {"eta": "result_.multiplier", "v2": "result_.second_vector", "h*": "result_.h"}
    taken = take_measures(model, names, data.y, clustering_error)
    assert taken["eta"] == model.result_.multiplier
    sides = np.where(model.result_.second_vector < 0, -1, 1)
    truth = 2 * data.y - 1
    wrong = min(np.sum(sides != truth), np.sum(sides == truth))
    assert taken["v2"] == pytest.approx(wrong / 60)
    assert taken["h*"] == clustering_error(data.y, model.labels_)


def test_measures_count_zero_on_the_positive_side():
    class Model:
        response = np.array([0.0, -1.0, 2.0, -3.0])

    y = np.array([1, 0, 1, 0])
    assert take_measures(Model(), {"h": "response"}, y, clustering_error) == {"h": 0.0}
    assert take_measures(Model(), {}, y, clustering_error) == {}


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("result_.nonsense", "measure 'm': a fitted Norm.* has no 'result_.nonsense' .*name an"),
        ("embedding_", r"measure 'm': 'embedding_' of Norm.* has shape \(30, 2\); name a number"),
    ],
)
def test_measures_that_are_not_there_are_refused(attribute, message):
    data = load("two-circles", n_samples=30)
    model = NormalizedSpectralClustering(random_state=0).fit(data.X)
    with pytest.raises(ValueError, match=message):
        take_measures(model, {"m": attribute}, data.y, clustering_error)


def test_a_cell_keeps_its_measures(experiment):
    cell = next(experiment.cells())
    result = run_cell(cell)
    data = load("two-gaussians", n_samples=30, realization=1)
    W = gaussian_similarity(data.X, sigma="mean/10")
    model = SoftLabelMVC(affinity="precomputed", mode="paper", random_state=1).fit(W)
    assert result.measures["iterations"] == model.n_iter_
    assert result.measures["h*"] == result.value == clustering_error(data.y, model.labels_)
    assert list(result.measures) == ["iterations", "v2", "h*"]


def test_measures_of_a_failed_cell_are_empty(experiment):
    cell = replace(next(experiment.cells()), similarity={"affinity": "gaussian", "sigma": -1.0})
    result = run_cell(cell)
    assert (result.value, result.measures) == (None, {})
    assert summarise_measures(experiment, [result]) == []


def test_the_store_keeps_measures_and_reads_lines_without(experiment, tmp_path):
    store = Store(tmp_path / "cells.jsonl")
    results = run_cells(list(experiment.cells())[:2], store)
    assert store.read() == results
    # A line from before there were measures.
    old = json.loads(store.path.read_text().splitlines()[0])
    del old["measures"], old["cell"]["measures"]
    plain = Store(tmp_path / "old.jsonl")
    plain.path.write_text(json.dumps(old) + "\n")
    ((key, read),) = plain.read().items()
    assert read.measures == read.cell.measures == {}
    assert key not in results
    # A line that lacks a measure of its cell is not a whole result.
    line = json.loads(store.path.read_text().splitlines()[0])
    del line["measures"]["v2"]
    plain.path.write_text(json.dumps(line) + "\n")
    assert plain.read() == {}


# -------------------------------------------------------------------------------- summaries


def test_spread_by_hand():
    values = [4.0, 1.0, 2.0, 10.0]  # median 3, deviations 1, 2, 1, 7
    spread = Spread.of(values)
    assert (spread.mean, spread.median, spread.n) == (4.25, 3.0, 4)
    assert spread.median_error == pytest.approx(1.5 / 2)
    variance = sum((v - 4.25) ** 2 for v in values) / 3
    assert spread.standard_error == pytest.approx(math.sqrt(variance / 4))
    assert Spread.of([2.0]) == Spread(2.0, None, 2.0, None, 1)


def test_summaries_are_for_each_set_and_size(experiment):
    def value(cell, name):
        n, offset = cell.sampling["n_samples"], len(name) + len(cell.dataset)
        return (n + offset + cell.seed**2) / 100

    results = made_up(experiment, lambda cell: {m: value(cell, m) for m in cell.measures})
    lines = summarise_measures(experiment, results)
    assert [(line.dataset, line.size, line.measure) for line in lines] == [
        (dataset, size, measure)
        for dataset in ("two-gaussians", "two-circles")
        for size in (30, 40)
        for measure in ("iterations", "v2", "h*")
    ]
    for line in lines:
        values = [
            value(cell, line.measure) * (1 if line.measure == "iterations" else 100)
            for cell in experiment.cells()
            if (cell.dataset, cell.sampling["n_samples"]) == (line.dataset, line.size)
        ]
        assert line.spread.n == len(values) == 3
        assert line.spread.mean == pytest.approx(sum(values) / 3)
        assert line.spread.standard_error == pytest.approx(statistics.stdev(values) / 3**0.5)
        middle = sorted(values)[1]
        assert line.spread.median == pytest.approx(middle)
        deviation = sorted(abs(v - middle) for v in values)[1]
        assert line.spread.median_error == pytest.approx(deviation / 3**0.5)


def test_of_a_grid_the_best_setting_is_measured():
    text = SMALL.replace('"mean/10"', '["mean/10", "mean"]').replace(
        "realizations = 3", "realizations = 1"
    )
    experiment = parse_experiment("grid", text)
    errors = {"mean/10": 0.3, "mean": 0.2}
    results = made_up(
        experiment,
        lambda cell: dict.fromkeys(
            cell.measures, 7.0 if cell.similarity["sigma"] == "mean" else 5.0
        ),
        lambda cell: errors[cell.similarity["sigma"]],
    )
    lines = summarise_measures(experiment, results)
    assert {line.spread.n for line in lines} == {1}
    assert {line.spread.mean for line in lines if line.measure == "iterations"} == {7.0}


# ---------------------------------------------------------------------- picture and command


def lengths(container):
    """Lengths of the bars of a curve."""
    return [np.ptp(segment[:, 1]) for segment in container.lines[2][0].get_segments()]


@pytest.mark.usefixtures("without_pyplot_windows")
def test_the_picture_has_its_panels_and_points(experiment):
    # Shares 1, 2 and 6 thousandths of the size: mean 3, median 2.
    shares = {1: 0.001, 2: 0.002, 3: 0.006}
    results = made_up(
        experiment,
        lambda cell: dict.fromkeys(cell.measures, shares[cell.seed] * cell.sampling["n_samples"]),
    )
    display = MeasuresDisplay.from_results(experiment, results)
    assert [ax.get_title() for ax in display.axes_] == [
        "(a)",
        "(b) two-gaussians",
        "(b) two-circles",
    ]
    assert [ax.get_ylabel() for ax in display.axes_] == ["iterations", "error (%)", ""]
    assert {ax.get_xlabel() for ax in display.axes_} == {"sample size (rows)"}
    single, several, _ = display.axes_
    assert len(single.containers) == 2 * 2  # mean and median of two sets
    assert len(several.containers) == 2  # v2 and h*
    for container in several.containers:
        assert list(container.lines[0].get_ydata()) == pytest.approx([9.0, 12.0])
    means, medians = single.containers[:2]
    assert list(means.lines[0].get_ydata()) == pytest.approx([0.09, 0.12])
    assert list(medians.lines[0].get_ydata()) == pytest.approx([0.06, 0.08])
    deviation = statistics.stdev([0.03, 0.06, 0.18])
    assert lengths(means) == pytest.approx(
        [2 * deviation / 3**0.5, 2 * deviation * 4 / 3 / 3**0.5]
    )
    assert lengths(medians) == pytest.approx([2 * 0.03 / 3**0.5, 2 * 0.04 / 3**0.5])
    # Curves stand beside the sizes, in order and never half a step away.
    positions = np.array([c.lines[0].get_xdata() for c in single.containers], dtype=float)
    assert np.all(np.diff(positions, axis=0) > 0)
    assert np.all(np.abs(positions - [30, 40]) < 5)
    legends = [text.get_text() for sub in display.figure_.subfigs for text in sub.legends[0].texts]
    assert legends == ["two-gaussians", "two-circles", "mean", "median", "v2", "h*"]


@pytest.mark.usefixtures("without_pyplot_windows")
def test_the_picture_names_methods_where_there_are_several():
    lines = [
        MeasureLine("moons", method, 50, m, Spread.of([1.0, 2.0]))
        for method in ("A", "B")
        for m in ("x", "y")
    ]
    display = MeasuresDisplay(lines, [Panel("x and y", ("x", "y"))]).plot()
    assert [ax.get_title() for ax in display.axes_] == ["(a) moons, A", "(a) moons, B"]
    assert (
        display.size[1]
        < MeasuresDisplay(lines, [Panel("x", ("x",)), Panel("", ("x", "y"))]).size[1]
    )


def test_a_table_has_no_picture():
    with pytest.raises(ValueError, match="'mvc-jmlr-2013-table-2' has no panels to draw"):
        MeasuresDisplay.from_results(load_experiment("mvc-jmlr-2013-table-2"), [])


@pytest.fixture
def reproduce(experiment, monkeypatch, tmp_path):
    """The command, on the small figure."""
    monkeypatch.setattr(reproduce_module, "load_experiment", lambda name: experiment)
    arguments = ["reproduce", "small", "--out", str(tmp_path)]
    return lambda *more: CliRunner().invoke(app, [*arguments, *more], catch_exceptions=False)


def test_reproduce_writes_table_and_picture(reproduce, experiment, tmp_path):
    result = reproduce()
    assert result.exit_code == 0
    assert (tmp_path / "small.png").read_bytes()[:4] == b"\x89PNG"
    assert f"picture in {tmp_path / 'small.png'}" in result.output
    page = (tmp_path / "small.md").read_text(encoding="utf-8").splitlines()
    assert page[0] == "| data | n | of | iterations | v2 | h* |"
    assert len(page) == 2 + 2 * 2 * 2 + 2
    lines = summarise_measures(experiment, Store(tmp_path / "small.jsonl").read().values())
    spreads = [line.spread for line in lines if (line.dataset, line.size) == ("two-circles", 40)]
    means = [
        f"{s.mean:.{d}f} ± {s.standard_error:.{d}f}"
        for s, d in zip(spreads, (2, 1, 1), strict=True)
    ]
    assert f"| two-circles | 40 | mean | {' | '.join(means)} |" in page
    assert "v2, h*: error in %. Samplings a set and size: 3." in page[-1]
    assert "…" not in result.output  # 80 columns hold the printed table
    assert reproduce("--only", "two-circles").exit_code == 0
    assert len((tmp_path / "small.md").read_text().splitlines()) == 2 + 2 * 2 + 2


def test_reproduce_without_matplotlib_says_so(reproduce, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = reproduce("--realizations", "1")
    assert result.exit_code == 0
    assert "no picture: matplotlib is not installed (pip install 'volmar[plot]')" in result.output
    assert (tmp_path / "small.md").is_file()
    assert not (tmp_path / "small.png").exists()


def test_reproduce_without_results_draws_nothing(reproduce, experiment, monkeypatch, tmp_path):
    bad = {"default": {"affinity": "gaussian", "sigma": -1.0}}
    monkeypatch.setattr(
        reproduce_module, "load_experiment", lambda name: replace(experiment, similarities=bad)
    )
    result = reproduce("--realizations", "1")
    assert result.exit_code == 0
    assert "4 cells failed; the first: ValueError" in result.output
    assert "no picture: no cell gave a result" in result.output


def test_a_measure_that_is_not_there_ends_the_command(reproduce, experiment, monkeypatch):
    wrong = replace(experiment, measures={"x": "result_.x"}, panels=())
    monkeypatch.setattr(reproduce_module, "load_experiment", lambda name: wrong)
    result = reproduce("--realizations", "1")
    assert result.exit_code == 2
    assert (
        "volmar reproduce: measure 'x': a fitted SoftLabelMVC has no 'result_.x'" in result.output
    )
