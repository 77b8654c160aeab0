"""Lines of a reproduced table: distances from printed values, verdicts, reasons of empty ones."""

import math
import statistics
from dataclasses import replace

import pytest
from paper_results import TABLE, line_of, results_of

from reproduction import (
    CellResult,
    Reproduction,
    Results,
    Summary,
    load_experiment,
    make_lines,
    parse_experiment,
    published,
)
from reproduction.store import NO_DATA


def test_differences_and_their_standard_errors_by_hand(table, printed):
    printed({("left", "A"): (20.0, 0.5), ("left", "B"): (20.0, None)})
    values = [0.21, 0.23, 0.22, 0.24]
    results = results_of(table, lambda cell: values[cell.seed - 1])
    ours = Summary.of([100 * v for v in values])
    line = line_of(table, results)
    assert line.hindsight.difference == pytest.approx(2.5)
    own = statistics.stdev([21, 23, 22, 24]) / 2
    assert ours.standard_error == pytest.approx(own)
    assert line.hindsight.distance == pytest.approx(2.5 / math.hypot(own, 0.5))
    assert line_of(table, results, method="B").hindsight.distance == pytest.approx(2.5 / own)
    # The paper prints nothing there.
    other = line_of(table, results, "right")
    assert (other.paper, other.verdict) == (Summary(None, None, 0), "not printed")
    assert (other.hindsight.difference, other.hindsight.distance) == (None, None)


def test_a_single_sampling_has_no_distance(table, printed):
    printed({("left", "A"): (20.0, 0.5)})
    quick = replace(table, quick=True)
    line = line_of(quick, results_of(quick, lambda _: 0.215))
    assert line.hindsight.difference == pytest.approx(1.5)
    assert (line.hindsight.distance, line.hindsight.summary.standard_error) == (None, None)
    # Nor have samplings without variance, where the paper prints no error.
    printed({("left", "A"): (20.0, None)})
    assert line_of(table, results_of(table, lambda _: 0.215)).hindsight.distance is None


WORDS = [
    # points under the paper's protocol, of the label-free default, words
    (0.0, 0.0, "reproduced", "as good as printed"),
    (2.0, 2.0, "reproduced", "as good as printed"),
    (-2.0, 2.0, "reproduced", "as good as printed"),
    (2.0, -30.0, "reproduced", "as good as printed"),
    (2.0, 2.0625, "reproduced", "worse than printed"),
    (-2.0, None, "reproduced", "not run"),
    (2.0625, 0.0, "worse than printed", "as good as printed"),
    (-2.0625, 0.0, "better than printed", "as good as printed"),
    (-2.0625, 30.0, "better than printed", "worse than printed"),
]


@pytest.mark.parametrize(("hindsight", "label_free", "word", "free"), WORDS)
def test_words_at_the_edges_of_the_tolerance(table, printed, hindsight, label_free, word, free):
    printed({("left", "A"): (25.0, None)})

    def value(cell):
        # Sixteenths of points are exact in binary, their hundredths nearly so.
        points = hindsight if cell.column == "hindsight" else label_free
        return "not there" if points is None else (25.0 + points) / 100

    line = line_of(table, results_of(table, value))
    assert line.hindsight.difference == hindsight
    assert (line.verdict, line.label_free_verdict) == (word, free)


@pytest.mark.parametrize(("hindsight", "label_free", "word", "free"), WORDS)
def test_words_of_an_agreement(table, printed, hindsight, label_free, word, free):
    table = replace(table, metric="normalized_mutual_information")
    printed({("left", "A"): (50.0, None)})

    def value(cell):
        points = hindsight if cell.column == "hindsight" else label_free
        return "not there" if points is None else (50.0 - points) / 100

    line = line_of(table, results_of(table, value))
    assert (line.verdict, line.label_free_verdict) == (word, free)


def test_times_are_compared_as_ratios(table, printed):
    times = replace(table, view="times")
    figures = {("left", "A"): (4.0, None), ("left", "B"): (0.5, None), ("left", "C"): (0.0, None)}
    printed(figures)
    results = results_of(
        times, lambda _: 0.5, lambda cell: 1.0 if cell.column == "hindsight" else 3.0
    )
    fast, slow, nothing = (line_of(times, results, method=m) for m in "ABC")
    assert (fast.hindsight.difference, fast.label_free.difference) == (0.25, 0.75)
    assert (fast.verdict, slow.verdict) == ("faster", "slower")
    assert slow.hindsight.difference == 2.0
    assert fast.hindsight.distance is None
    # A printed time of 0 cannot be a reference.
    assert nothing.hindsight.difference is None
    assert line_of(times, results, "right").verdict == "not printed"
    shown = Reproduction.of(times, results)
    assert shown.verdict.status == "shown"
    # Ratios 0.25 and 2: the median is 1.125.
    assert (
        "1 of 2 times are shorter than printed, and the printed time is 0.889 times ours"
        in shown.verdict.sentence
    )


def test_lines_are_every_method_that_is_run_or_printed(table, printed):
    printed({("right", "SVM"): (3.0, None), ("left", "B"): (1.0, None), ("left", "D"): None})
    experiment = replace(table, absent={"SVM": "a supervised method", "D/left": "no code"})
    lines = make_lines(Results(experiment, results_of(experiment, lambda _: 0.01)))
    assert [(x.dataset, x.method, x.verdict, x.reason) for x in lines] == [
        ("left", "A", "not printed", ""),
        ("left", "B", "reproduced", ""),
        ("left", "C", "not printed", ""),
        ("left", "D", "not run", "no code; the paper has no value either"),
        ("right", "A", "not printed", ""),
        ("right", "B", "not printed", ""),
        ("right", "C", "not printed", ""),
        ("right", "SVM", "not run", "a supervised method"),
    ]


def test_a_remark_stands_beside_its_line(table, printed):
    printed({("left", "A"): (20.0, None), ("right", "A"): (20.0, None), ("left", "B"): None})
    remarks = {"A/left": "from a single run", "B": "of B", "C/left": "never run"}
    experiment = replace(table, remarks=remarks)
    results = [r for r in results_of(experiment, lambda _: 0.5) if r.cell.method != "C"]
    assert line_of(experiment, results).reason == "from a single run"
    assert line_of(experiment, results).verdict == "worse than printed"
    assert line_of(experiment, results, "right").reason == ""
    # The reason of an empty line comes first.
    assert line_of(experiment, results, method="C").reason == "not run yet"
    assert line_of(experiment, results, method="B").reason == "the paper has no value"
    assert line_of(experiment, results, "right", "B").reason == "of B"


def test_lines_of_a_part_are_of_its_data_sets():
    """As with --only: the paper's other data sets have no lines."""
    experiment = load_experiment("mvc-jmlr-2013-table-2")
    part = replace(experiment, datasets={"ida-heart": experiment.datasets["ida-heart"]})
    lines = make_lines(Results(part, []))
    assert {line.dataset for line in lines} == {"ida-heart"}
    assert {line.method for line in lines} >= set(experiment.methods)
    figures = published("mvc-jmlr-2013", "2")
    (nsc,) = [line for line in lines if line.method == "NSC"]
    assert (nsc.paper.mean, nsc.paper.standard_error) == figures["ida-heart", "NSC"]


def test_an_empty_line_has_its_reason(table, printed):
    printed({("left", "A"): (20.0, None), ("left", "B"): None, ("left", "D"): (1.0, None)})
    assert line_of(table, []).reason == "not run yet"
    assert line_of(table, [], method="B").reason == "the paper has no value either"
    assert line_of(table, [], method="D").reason == "the method is not declared"
    refused = line_of(table, results_of(table, lambda _: "ValueError: no"))
    assert (refused.verdict, refused.reason) == ("failed", "ValueError: no")
    missing = line_of(table, results_of(table, lambda _: f"{NO_DATA}OSError: no file"))
    assert (missing.verdict, missing.reason) == ("not run", "no data: OSError: no file")
    narrow = replace(table, methods={**table.methods, "A": {"estimator": "x", "datasets": []}})
    assert line_of(narrow, []).reason == "the file leaves it out"


def test_a_line_without_hindsight_says_why(table, printed):
    printed({("left", "A"): (20.0, None)})

    def value(cell):
        return "ValueError: no" if cell.column == "hindsight" else 0.2

    line = line_of(table, results_of(table, value))
    assert (line.verdict, line.reason) == ("failed", "ValueError: no")
    assert line.label_free_verdict == "as good as printed"
    assert line.label_free.summary.mean == pytest.approx(20.0)
    # Nothing failed: it has not been run, or is not run at all.
    only = [r for r in results_of(table, lambda _: 0.2) if r.cell.column == "label-free"]
    line = line_of(table, only)
    assert (line.verdict, line.reason) == ("not run", "not run yet")


def test_what_a_quick_run_left_out_and_what_it_has_not_come_to(table, printed):
    printed({("left", "A"): (20.0, None)})
    experiment = parse_experiment(
        "sizes",
        TABLE.replace("realizations = 4", "realizations = 4\nsizes = [10, 20, 30]").replace(
            "grid = { n_init = [1, 2] }", "sizes = [30]"
        ),
    )
    quick = replace(experiment, quick=True)
    assert {c.method for c in quick.cells()} == {"KMeans", "B", "C"}
    assert line_of(quick, [], method="A").reason == "not part of a quick run"
    assert line_of(quick, [], method="B").reason == "not run yet"


def test_golden_lines_of_a_made_up_table_2():
    """Results equal to the printed values: every line is reproduced, with distance 0."""
    experiment = load_experiment("mvc-jmlr-2013-table-2")
    figures = published("mvc-jmlr-2013", "2")
    results = []
    for cell in experiment.cells(2):
        value = figures.get((cell.dataset, cell.method), (50.0, None))[0] / 100
        results.append(CellResult(cell, value, 1.0, "converged", {"volmar": "1"}))
    shown = Reproduction.of(experiment, results, n_cells=len(results))
    for line in shown.lines:
        if line.paper.mean is not None and line.method in experiment.methods:
            assert line.verdict == "reproduced"
            assert line.label_free_verdict == "as good as printed"
            assert line.hindsight.difference == pytest.approx(0.0, abs=1e-9)
    assert (shown.verdict.status, shown.verdict.label_free) == ("reproduced", "as good as printed")
