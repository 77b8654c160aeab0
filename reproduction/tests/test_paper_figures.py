"""Figures of the papers: measures of fitted estimators, their summaries and their picture."""

import json
import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from paper_experiments import FIGURE

from reproduction import (
    CellResult,
    MeasuresDisplay,
    Panel,
    PaperFigureDisplay,
    Point,
    Reproduction,
    Results,
    Spread,
    Store,
    parse_experiment,
    run_cell,
    run_cells,
)
from reproduction.datasets import load
from reproduction.figure_display import has_picture
from reproduction.measures import take_measures
from volmar import NormalizedSpectralClustering, SoftLabelMVC
from volmar.graphs import gaussian_similarity
from volmar.metrics import clustering_error


@pytest.fixture
def experiment():
    return parse_experiment("small", FIGURE)


def made_up(experiment, measures_of, value_of=lambda _: 0.1):
    """Results whose measures are given instead of computed."""
    return [
        CellResult(cell, value_of(cell), 1.0, "converged", {"volmar": "0"}, measures_of(cell))
        for cell in own(experiment)
    ]


def own(experiment):
    """Cells without the reference."""
    return [cell for cell in experiment.cells() if cell.column != "reference"]


def measured(experiment, results):
    """Points of the measures."""
    points = Results(experiment, results).points()
    return [point for point in points if point.quantity in experiment.measures]


# ------------------------------------------------------------------------------------ cells


def test_a_figure_runs_the_papers_setting_at_every_size(experiment):
    cells = own(experiment)
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
    references = [c for c in experiment.cells() if c.column == "reference"]
    assert {str(c.measures) for c in references} == {"{}"}  # k-means has none of them


def test_measures_are_taken_in_both_columns(experiment):
    both = replace(experiment, columns=("hindsight", "label-free"))
    cells = [c for c in both.cells(1) if c.column == "label-free"]
    assert cells[0].measures == experiment.measures
    result = run_cell(cells[0])
    assert list(result.measures) == ["iterations", "v2", "h*"]
    points = list(Results(both, [result]).points())
    assert {(p.series, p.column) for p in points if p.quantity == "h*"} == {("h*", "label-free")}


def test_the_key_sees_the_measures(experiment):
    cell = own(experiment)[0]
    assert replace(cell, measures={}).key != cell.key
    assert replace(cell, measures={**cell.measures, "h0": "result_.start"}).key != cell.key


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sizes = [30, 40]", "", "sampling has no sizes; add them"),
        (
            "sizes = [30, 40]",
            "sizes = [30]\nwhole_sets = true",
            "there are sizes, whole_sets; lea",
        ),
        ('["v2", "h*"]', '["v2", "h1"]', "panels names 'h1', and there are: 'iterations', 'v2', "),
        (
            'matrix = "affinity"',
            'matrix = "affinity"\nsimilarity = "cosine"',
            "similarity of MVC-SL names 'cosine', and there are: 'default'",
        ),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(old, new, message):
    assert old in FIGURE
    with pytest.raises(ValueError, match=f"small: .*{message}"):
        parse_experiment("small", FIGURE.replace(old, new))


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
    cell = own(experiment)[0]
    result = run_cell(cell)
    data = load("two-gaussians", n_samples=30, realization=1)
    W = gaussian_similarity(data.X, sigma="mean/10")
    model = SoftLabelMVC(affinity="precomputed", mode="paper", random_state=1).fit(W)
    assert result.measures["iterations"] == model.n_iter_
    assert result.measures["h*"] == result.value == clustering_error(data.y, model.labels_)
    assert list(result.measures) == ["iterations", "v2", "h*"]


def test_measures_of_a_failed_cell_are_empty(experiment):
    cell = replace(own(experiment)[0], similarity={"affinity": "gaussian", "sigma": -1.0})
    result = run_cell(cell)
    assert (result.value, result.measures) == (None, {})
    assert list(Results(experiment, [result]).points()) == []


def test_the_store_keeps_measures_and_reads_lines_without(experiment, tmp_path):
    store = Store(tmp_path / "cells.jsonl")
    results = run_cells(own(experiment)[:2], store)
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


def test_points_are_for_each_set_and_size(experiment):
    def value(cell, name):
        n, offset = cell.sampling["n_samples"], len(name) + len(cell.dataset)
        return (n + offset + cell.seed**2) / 100

    results = made_up(experiment, lambda cell: {m: value(cell, m) for m in cell.measures})
    points = measured(experiment, results)
    assert [(point.dataset, point.x, point.series) for point in points] == [
        (dataset, size, measure)
        for dataset in ("two-gaussians", "two-circles")
        for size in (30, 40)
        for measure in ("iterations", "v2", "h*")
    ]
    assert {point.column for point in points} == {"hindsight"}
    for point in points:
        assert point.quantity == point.series
        values = [
            # Shares are in percent where their panel says so.
            value(cell, point.series) * (1 if point.series == "iterations" else 100)
            for cell in own(experiment)
            if (cell.dataset, cell.sampling["n_samples"]) == (point.dataset, point.x)
        ]
        assert point.spread.n == len(values) == 3
        assert point.spread.mean == pytest.approx(sum(values) / 3)
        assert point.spread.standard_error == pytest.approx(statistics.stdev(values) / 3**0.5)
        middle = sorted(values)[1]
        assert point.spread.median == pytest.approx(middle)
        deviation = sorted(abs(v - middle) for v in values)[1]
        assert point.spread.median_error == pytest.approx(deviation / 3**0.5)


def test_of_a_grid_the_best_setting_is_measured():
    text = FIGURE.replace('"mean/10"', '["mean/10", "mean"]').replace(
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
    points = measured(experiment, results)
    assert {point.spread.n for point in points} == {1}
    assert {p.spread.mean for p in points if p.series == "iterations"} == {7.0}


# ---------------------------------------------------------------------------------- picture


def lengths(container):
    """Lengths of the bars of a curve."""
    return [np.ptp(segment[:, 1]) for segment in container.lines[2][0].get_segments()]


@pytest.mark.usefixtures("figures")
def test_the_picture_has_its_panels_and_points(experiment):
    # Shares 1, 2 and 6 thousandths of the size: mean 3, median 2.
    shares = {1: 0.001, 2: 0.002, 3: 0.006}
    results = made_up(
        experiment,
        lambda cell: dict.fromkeys(cell.measures, shares[cell.seed] * cell.sampling["n_samples"]),
    )
    display = MeasuresDisplay(measured(experiment, results), experiment.panels).plot()
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


@pytest.mark.usefixtures("figures")
def test_the_picture_is_as_high_as_its_rows():
    points = [
        Point(dataset, m, "hindsight", 50, m, Spread.of([1.0, 2.0]))
        for dataset in ("moons", "circles")
        for m in ("x", "y")
    ]
    display = MeasuresDisplay(points, [Panel("x and y", ("x", "y"))]).plot()
    assert [ax.get_title() for ax in display.axes_] == ["(a) moons", "(a) circles"]
    both = MeasuresDisplay(points, [Panel("x", ("x",)), Panel("", ("x", "y"))])
    assert display.size[1] < both.size[1]
    # Panels of one measure share a row.
    single = MeasuresDisplay(points, [Panel("x", ("x",)), Panel("y", ("y",))])
    assert single.size == display.size


@pytest.mark.usefixtures("figures")
def test_the_figure_of_an_experiment_has_the_same_panels(experiment):
    results = made_up(experiment, lambda cell: dict.fromkeys(cell.measures, 0.01 * cell.seed))
    shown = Reproduction.of(experiment, results)
    display = PaperFigureDisplay(shown).plot()
    panels = ["(a)", "(b) two-gaussians", "(b) two-circles"]
    assert [ax.get_title() for ax in display.axes_] == panels
    both = replace(experiment, columns=("hindsight", "label-free"))
    results = [
        CellResult(cell, 0.1, 1.0, "converged", {}, dict.fromkeys(cell.measures, 0.02))
        for cell in own(both)
    ]
    display = PaperFigureDisplay(Reproduction.of(both, results)).plot()
    assert [ax.get_title() for ax in display.axes_] == 2 * panels


def test_without_results_there_is_no_picture(experiment):
    empty = Reproduction.of(experiment, [])
    assert not has_picture(empty)
    with pytest.raises(ValueError, match=r"'small' .*has nothing to draw"):
        PaperFigureDisplay(empty).plot()
