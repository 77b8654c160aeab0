"""From results to lines, marks and points, with artificial results."""

import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from paper_results import CURVES, TABLE, curve_results, line_of, msp_results, results_of
from scipy import stats

from reproduction import Reproduction, Results, Summary, make_lines, parse_experiment

# -------------------------------------------------------------------------------- summaries


def test_summary_text():
    assert str(Summary.of([])) == "-"
    assert Summary.of([]) == Summary(None, None, 0)
    assert str(Summary.of([25.0])) == "25.0"
    assert str(Summary.of([20.0, 30.0])) == "25.0 ± 5.0"
    assert Summary.of([20.0, 30.0, 70.0]) == Summary(
        40.0, pytest.approx(math.sqrt(700 / 3)), 3
    )  # deviations 20, 10, 30


@pytest.mark.usefixtures("printed")
def test_hindsight_takes_the_best_of_the_grid_for_each_sampling(table):
    values = {1: [0.2, 0.1, 0.3, 0.2], 2: [0.1, 0.4, 0.3, 0.4], None: [0.3, 0.3, 0.6, 0.4]}
    results = results_of(table, lambda cell: values[cell.parameters.get("n_init")][cell.seed - 1])
    line = line_of(table, results)
    assert line.hindsight.summary.mean == pytest.approx(100 * (0.1 + 0.1 + 0.3 + 0.2) / 4)
    assert line.label_free.summary.mean == pytest.approx(40.0)
    assert line.label_free.summary.standard_error == pytest.approx(math.sqrt(200) / 2)
    assert (line.hindsight.summary.n, line.label_free.summary.n) == (4, 4)


@pytest.mark.usefixtures("printed")
def test_hindsight_on_whole_sets_is_for_each_seed(table):
    table = replace(table, whole_sets=True)
    values = {(1, 1): 0.2, (1, 2): 0.3, (2, 1): 0.5, (2, 2): 0.4}
    results = [
        r
        for r in results_of(
            table, lambda cell: values.get((cell.seed, cell.parameters.get("n_init")), 0.0)
        )
        if r.cell.seed < 3 and r.cell.parameters.get("n_init") in (1, 2)
    ]
    line = line_of(table, results)
    assert line.hindsight.summary.mean == pytest.approx(100 * (0.2 + 0.4) / 2)
    assert (line.hindsight.summary.n, line.label_free.summary.n) == (2, 0)


@pytest.mark.usefixtures("printed")
def test_the_largest_agreement_is_the_best(table):
    table = replace(table, metric="rand_index")
    results = results_of(table, lambda cell: 0.5 + 0.1 * cell.parameters.get("n_init", 0))
    assert line_of(table, results).hindsight.summary.mean == pytest.approx(70.0)


@pytest.mark.usefixtures("printed")
def test_times_are_of_the_chosen_settings_and_relations_to_k_means_on_their_rows(table):
    # The second setting is the better one on samplings 1 and 2.
    better = {1: 2, 2: 2, 3: 1, 4: 1}

    def value(cell):
        return 0.1 if cell.parameters.get("n_init") == better[cell.seed] else 0.2

    def seconds(cell):
        if cell.column == "reference":
            return 10.0 ** (cell.seed - 2)
        return cell.seed * {1: 1.0, 2: 3.0}.get(cell.parameters.get("n_init"), 0.5)

    results = results_of(table, value, seconds)
    sides = line_of(table, results)
    assert sides.hindsight.seconds == pytest.approx((3 + 6 + 3 + 4) / 4)
    references = [0.1, 1.0, 10.0, 100.0]
    assert sides.hindsight.relation == pytest.approx(16 / sum(references))
    assert sides.label_free.seconds == pytest.approx(0.5 * 10 / 4)
    assert sides.label_free.relation == pytest.approx(5 / sum(references))
    # C has two samplings, and its unit has the same two.
    few = line_of(table, results, method="C")
    assert few.hindsight.relation == pytest.approx((0.5 + 1.0) / (0.1 + 1.0))
    assert (few.hindsight.summary.n, few.label_free.summary.n) == (2, 2)


@pytest.mark.usefixtures("printed")
def test_without_its_unit_there_is_no_relation(table):
    results = results_of(table, lambda _: 0.1)
    some = [r for r in results if not (r.cell.column == "reference" and r.cell.seed == 3)]
    assert math.isnan(line_of(table, some).hindsight.relation)
    # On the samplings of C nothing is missing.
    assert line_of(table, some, method="C").hindsight.relation == 1.0
    assert line_of(table, some).hindsight.seconds == 1.0
    nothing = line_of(table, []).hindsight
    assert math.isnan(nothing.seconds)
    assert math.isnan(nothing.relation)
    assert nothing.summary == Summary(None, None, 0)


@pytest.mark.usefixtures("printed")
def test_an_axis_of_parameters_shares_its_unit(curves):
    text = CURVES.replace("sizes = [40, 20, 80]", "").replace(
        "[datasets]", '[axis]\nparameter = "n_init"\nvalues = [1, 2]\nlabel = "n"\n[datasets]'
    )
    experiment = parse_experiment(
        "axis", text.replace("[sampling]", 'columns = ["hindsight"]\n[sampling]')
    )
    results = results_of(
        experiment,
        lambda _: 0.1,
        lambda cell: 2.0 if cell.column == "reference" else cell.x,
        lambda _: {"cuts": 1.0},
    )
    line = line_of(experiment, results)
    assert line.hindsight.summary.n == 4
    assert line.hindsight.relation == pytest.approx(1.5 / 2.0)


# ---------------------------------------------------------------------------------- best of

BEST = (
    CURVES
    + """
[methods.both]
best_of = ["A", "B"]
"""
)


def test_the_best_of_two_methods_is_for_each_data_set_and_place(printed):
    experiment = parse_experiment("best", BEST)
    printed({("left", "both"): (20.0, None)})
    cells = list(experiment.cells())
    assert {cell.method for cell in cells} == {"KMeans", "A", "B"}
    # By the mean of two samplings A is the better one at 20 rows, B beyond; on the right A.
    errors = {"A": {20: (10, 30), 40: (30, 30), 80: (50, 10)}, "B": {20: (5, 45), 40: (20, 30)}}

    def value(cell):
        if cell.dataset == "right":
            return 0.1 + 0.1 * (cell.method == "B")
        of = errors[cell.method].get(cell.x, (20, 20))
        return (of[cell.seed - 1] + 7 * (cell.column == "label-free")) / 100

    results = curve_results(experiment, value)
    at = {
        (p.dataset, p.column, p.x): p.spread.mean
        for p in Results(experiment, results).points()
        if (p.series, p.quantity) == ("both", "value")
    }
    # At 20 rows the best of each sampling would have had (5 + 30) / 2.
    assert [at["left", "hindsight", x] for x in (20, 40, 80)] == pytest.approx([20, 25, 20])
    assert [at["right", "hindsight", x] for x in (20, 40, 80)] == pytest.approx([10, 10, 10])
    # Without labels nothing tells which is the better one: the first.
    assert [at["left", "label-free", x] for x in (20, 40, 80)] == pytest.approx([27, 37, 37])
    line = line_of(experiment, results, method="both")
    assert line.hindsight.summary.mean == pytest.approx((10 + 30 + 20 + 30 + 20 + 20) / 6)
    assert line.hindsight.summary.n == 6
    assert line.verdict == "reproduced"


def test_the_best_of_methods_is_that_of_an_agreement(printed):
    experiment = replace(parse_experiment("best", BEST), metric="rand_index")
    results = curve_results(experiment, lambda cell: 0.5 + 0.1 * (cell.method == "B"))
    line = line_of(experiment, results, method="both")
    assert line.hindsight.summary.mean == pytest.approx(60.0)
    # What failed for all of them failed, and what is not run yet is not.
    failed = curve_results(experiment, lambda cell: "ValueError: no")
    assert line_of(experiment, failed, method="both").reason == "ValueError: no"
    assert line_of(experiment, [], method="both").reason == "not run yet"
    assert line_of(replace(experiment, quick=True), [], method="both").reason == "not run yet"
    half = curve_results(experiment, lambda c: "ValueError: no" if c.method == "B" else 0.5)
    assert line_of(experiment, half, method="both").hindsight.summary.mean == pytest.approx(50.0)


# ------------------------------------------------------------------------------------ marks


def marks(experiment, columns, column="hindsight"):
    """Marked methods on one data set, where `columns` has the methods' values."""

    def value(cell):
        values = columns.get(cell.method, {})
        return values.get(cell.seed, "not there") if isinstance(values, dict) else values

    ordered = Results(experiment, results_of(experiment, value))
    return ordered.comparable("left", column)


def numbered(values, first=1):
    return dict(enumerate(values, first))


@pytest.mark.parametrize("test", ["paired", "unpaired"])
@pytest.mark.parametrize("metric", ["clustering_error", "rand_index"])
def test_marks_are_those_of_the_t_test(test, metric):
    rng = np.random.default_rng(7)
    seen = set()
    for shift in np.linspace(0.0, 0.15, 16):
        text = TABLE.replace("realizations = 4", "realizations = 9").replace(
            "realizations = 2", "realizations = 6"
        )
        experiment = replace(parse_experiment("t", text), test=test, metric=metric)
        a = 0.2 + 0.04 * rng.standard_normal(9)
        b = a + shift + 0.03 * rng.standard_normal(9)
        c = 0.25 + 0.06 * rng.standard_normal(6)
        values = {"A": a, "B": b, "C": c}
        means = {method: float(np.mean(v)) for method, v in values.items()}
        best = (max if metric == "rand_index" else min)(means, key=means.get)
        expected = {best}
        for method in values.keys() - {best}:
            one, other = values[method], values[best]
            if test == "paired":
                n = min(len(one), len(other))
                p = stats.ttest_rel(one[:n], other[:n]).pvalue
            else:
                p = stats.ttest_ind(one, other).pvalue
            if p > 0.05:
                expected.add(method)
        found = marks(experiment, {m: numbered(map(float, v)) for m, v in values.items()})
        assert found == expected
        seen.add(frozenset(found))
    assert len(seen) > 1


def test_the_paired_test_takes_common_samplings_only(table):
    experiment = replace(table, test="paired")
    # Level on the samplings that both have, though not in the mean.
    columns = {
        "A": numbered([0.10, 0.12, 0.11, 0.01]),
        "B": numbered([0.11, 0.11, 0.11]),
    }
    assert stats.ttest_rel([0.10, 0.12, 0.11], [0.11, 0.11, 0.11]).pvalue > 0.05
    assert marks(experiment, columns) == {"A", "B"}
    # One common sampling is not enough for a test.
    assert marks(experiment, {"A": {1: 0.1, 2: 0.1}, "B": {2: 0.1, 3: 0.3}}) == {"A"}


@pytest.mark.parametrize("test", ["paired", "unpaired"])
def test_methods_without_variance_are_the_same_or_different(table, test):
    experiment = replace(table, test=test)
    level = numbered([0.1] * 4)
    assert marks(experiment, {"A": level, "B": level}) == {"A", "B"}
    assert marks(experiment, {"A": level, "B": numbered([0.11] * 4)}) == {"A"}
    # 0.1 + 0.2 is not 0.3 in floating point, but the same error.
    near = numbered([0.3] * 4)
    assert marks(experiment, {"A": near, "B": numbered([0.1 + 0.2] * 4)}) == {"A", "B"}


def test_a_difference_without_variance_is_beyond_doubt(table):
    experiment = replace(table, test="paired")
    a = [0.10, 0.15, 0.20, 0.13]
    assert marks(experiment, {"A": numbered(a), "B": numbered([v + 0.01 for v in a])}) == {"A"}
    assert marks(experiment, {"A": numbered(a), "B": numbered(a)}) == {"A", "B"}


def test_one_method_without_variance_is_compared_without_a_warning(table):
    """Deterministic methods on whole sets have the same error in every sampling."""
    experiment = replace(table, test="unpaired")
    wide = [0.3, 0.2, 0.1, 0.2]
    p = 2 * stats.t.sf((0.2 - 0.19) / math.sqrt((np.var(wide, ddof=1) + 0.0) / 2 * (2 / 4)), 6)
    assert p > 0.05
    assert marks(experiment, {"A": numbered([0.19] * 4), "B": numbered(wide)}) == {"A", "B"}
    assert marks(experiment, {"A": numbered([0.01] * 4), "B": numbered(wide)}) == {"A"}


@pytest.mark.usefixtures("printed")
def test_marks_are_for_each_column_and_only_where_there_is_a_test(table):
    columns = {"A": 0.1, "B": 0.2, "C": 0.3}
    assert marks(table, columns) == set()
    experiment = replace(table, test="unpaired")
    assert marks(experiment, columns) == {"A"}
    assert marks(experiment, {}) == set()

    def value(cell):
        return {"A": 0.1, "B": 0.2, "C": 0.3}[cell.method] * (
            1 if cell.column == "hindsight" else -1
        ) + 0.5

    lines = make_lines(Results(experiment, results_of(experiment, value)))
    best = {(x.method, x.hindsight.best, x.label_free.best) for x in lines if x.dataset == "left"}
    assert best == {("A", True, False), ("B", False, False), ("C", False, True)}


# ------------------------------------------------------------------------------ correlation


def test_correlations_are_those_of_the_groups(correlation):
    accuracies = {"a": 60.0, "b": 70.0, "c": 85.0, "d": 90.0}
    msps = {"a": 10.0, "b": 40.0, "c": 30.0, "d": 70.0}
    results = msp_results(correlation, accuracies, msps)
    everything, two = make_lines(Results(correlation, results))
    wanted = np.corrcoef(list(accuracies.values()), list(msps.values()))[0, 1]
    assert (everything.dataset, everything.method) == (
        "all of them",
        "correlation of MSP and accuracy",
    )
    assert everything.hindsight.summary.mean == pytest.approx(100 * wanted)
    assert everything.hindsight.summary.n == 4
    assert everything.label_free.summary.mean == pytest.approx(100 * wanted)
    assert everything.paper.mean == pytest.approx(70.0)
    assert everything.hindsight.difference == pytest.approx(100 * wanted - 70)
    assert two.verdict == "not run"
    assert two.reason.startswith("fewer than three data sets have run, or all gave the same")
    shown = Reproduction.of(correlation, results)
    points = {(p.dataset, p.series, p.column): p for p in shown.points}
    assert len(points) == 4 * 2 * 2
    for dataset, column in (("a", "hindsight"), ("d", "label-free")):
        accuracy, msp = (points[dataset, s, column] for s in ("accuracy", "msp"))
        assert accuracy.spread.mean == pytest.approx(accuracies[dataset])
        assert msp.spread.mean == pytest.approx(msps[dataset])
        assert (accuracy.x, accuracy.quantity, msp.quantity) == (None, "value", "value")


@pytest.mark.parametrize(
    ("printed_value", "word", "status"),
    [
        (0.95, "reproduced", "reproduced"),
        (0.8, "better than printed", "not reproduced"),
    ],
)
def test_words_of_a_correlation(correlation, printed_value, word, status):
    experiment = replace(correlation, printed={"all of them": printed_value})
    accuracies = {"a": 60.0, "b": 70.0, "c": 80.0, "d": 90.0}
    results = msp_results(experiment, accuracies, accuracies)  # correlation 1
    shown = Reproduction.of(experiment, results)
    assert shown.lines[0].hindsight.summary.mean == pytest.approx(100.0)
    assert shown.lines[0].verdict == word
    assert (shown.verdict.status, shown.verdict.label_free) == (status, "as good as printed")


def test_a_worse_correlation_by_default_is_judged_by_itself(correlation):
    accuracies = {"a": 60.0, "b": 70.0, "c": 80.0, "d": 90.0}
    experiment = replace(correlation, printed={"all of them": 1.0})
    results = [
        replace(r, measures={"msp": 1 - r.value}) if r.cell.column == "hindsight" else r
        for r in msp_results(experiment, accuracies, {"a": 90.0, "b": 1.0, "c": 70.0, "d": 2.0})
    ]
    shown = Reproduction.of(experiment, results)
    words = shown.lines[0].verdict, shown.lines[0].label_free_verdict
    assert words == ("reproduced", "worse than printed")
    assert (shown.verdict.status, shown.verdict.label_free) == ("reproduced", "worse than printed")


MSPS = {  # data set to the separation probability at reg = 0.1 and at 1, in percent
    "a": (10.0, 40.0),
    "b": (20.0, 30.0),
    "c": (30.0, 20.0),
    "d": (40.0, 10.0),
}


def common_results(experiment, better):
    """Accuracies 60 to 90, ten points more at the value `better` of reg, or at reg = 1 on `d`."""

    def value(cell):
        reg = cell.parameters.get("reg")
        gain = 0.2 if cell.dataset == "d" and reg == 1.0 else 0.1 if reg == better else 0.0
        return {"a": 0.5, "b": 0.4, "c": 0.3, "d": 0.2}[cell.dataset] - gain

    def measures(cell):
        first, second = MSPS[cell.dataset]
        return {"msp": (second if cell.parameters.get("reg") == 1.0 else first) / 100}

    return results_of(experiment, value, measures_of=measures)


def test_a_common_parameter_has_one_value_for_all_data_sets(correlation):
    experiment = replace(correlation, common="reg", printed={"all of them": 0.95})
    shown = Reproduction.of(experiment, common_results(experiment, better=0.1))
    # The best of 0.1 and 1 for each data set would take 1 on d; 0.1 is the better in the mean.
    lines = {(line.dataset, line.method): line for line in shown.lines}
    first = lines["all of them", "correlation of MSP and accuracy"]
    assert first.reason == "at reg = 0.1, the best for the mean accuracy"
    # Accuracies 60, 70, 80, 90 and probabilities 10, 20, 30, 40.
    assert first.hindsight.summary.mean == pytest.approx(100.0)
    assert lines["all of them", "at reg = 0.1"].hindsight == first.hindsight
    other = lines["all of them", "at reg = 1"]
    wanted = 100 * np.corrcoef([50.0, 60.0, 70.0, 100.0], [40.0, 30.0, 20.0, 10.0])[0, 1]
    assert other.hindsight.summary.mean == pytest.approx(wanted)
    assert (other.verdict, other.label_free_verdict) == ("worse than printed", "not run")
    # The verdict and the points are of the value that was picked.
    assert shown.verdict.status == "reproduced"
    assert "1 of 1 values are within 10 points" in shown.verdict.detail
    msps = {p.dataset: p.spread.mean for p in shown.points if p.series == "msp"}
    assert msps == pytest.approx({name: first for name, (first, _) in MSPS.items()})
    turned = Reproduction.of(experiment, common_results(experiment, better=1.0))
    assert turned.lines[0].reason.startswith("at reg = 1,")
    assert turned.verdict.status == "not reproduced"
    # Label-free there is one setting anyway.
    assert turned.lines[0].label_free == shown.lines[0].label_free


def test_a_common_value_that_failed_somewhere_is_not_picked(correlation):
    experiment = replace(correlation, common="reg")
    results = [
        replace(r, value=None, status="ValueError: no", measures={})
        if (r.cell.dataset, r.cell.parameters.get("reg")) == ("b", 0.1)
        else r
        for r in common_results(experiment, better=0.1)
    ]
    assert Results(experiment, results).common == 1.0
    nothing = Results(experiment, [])
    assert nothing.common is None
    assert make_lines(nothing)[0].verdict == "not run"


@pytest.mark.parametrize("rounding", [False, True])
def test_a_constant_probability_has_no_correlation(correlation, rounding):
    accuracies = {"a": 60.0, "b": 70.0, "c": 80.0, "d": 90.0}
    values = (
        {"a": 0.1 + 0.2, "b": 0.3, "c": 0.3, "d": 0.3} if rounding else dict.fromkeys("abcd", 0)
    )
    results = [
        replace(r, measures={"msp": float(values[r.cell.dataset])} if r.measures else {})
        for r in msp_results(correlation, accuracies, accuracies)
    ]
    shown = Reproduction.of(correlation, results)
    assert shown.lines[0].hindsight.summary.mean is None
    assert shown.lines[0].verdict not in ("reproduced", "better than printed")


def test_of_a_part_of_the_sets_those_that_ran_are_correlated(correlation):
    part = replace(correlation, datasets={"a": {}, "b": {}, "c": {}})
    accuracies = {"a": 60.0, "b": 70.0, "c": 85.0}
    msps = {"a": 10.0, "b": 40.0, "c": 30.0}
    line = make_lines(Results(part, msp_results(part, accuracies, msps)))[0]
    wanted = np.corrcoef(list(accuracies.values()), list(msps.values()))[0, 1]
    assert line.hindsight.summary.mean == pytest.approx(100 * wanted)
    assert line.hindsight.summary.n == 3


# ----------------------------------------------------------------------------------- points


def test_points_are_every_quantity_at_every_place(curves):
    def value(cell):
        return (cell.x + 10 * cell.seed + 5 * (cell.method == "B")) / 1000

    shown = Reproduction.of(curves, curve_results(curves, value))
    assert len(shown.points) == 2 * 2 * 2 * 3 * 3
    for point in shown.points:
        values = {
            "value": [(point.x + 10 * s + 5 * (point.series == "B")) / 10 for s in (1, 2)],
            "seconds": [s * point.x / 100 for s in (1, 2)],
            "cuts": [s + point.x for s in (1, 2)],
        }[point.quantity]
        assert point.spread.mean == pytest.approx(statistics.mean(values))
        assert point.spread.standard_error == pytest.approx(statistics.stdev(values) / 2**0.5)
        assert point.spread.n == 2
    first = [
        p for p in shown.points if (p.dataset, p.series, p.column) == ("left", "A", "hindsight")
    ]
    assert [p.x for p in first if p.quantity == "value"] == [20, 40, 80]
    assert {p.series for p in shown.points} == {"A", "B"}


def test_points_of_measures_are_series_of_their_own(curves):
    experiment = replace(curves, view="measures")
    points = list(Results(experiment, curve_results(experiment, lambda _: 0.1)).points())
    assert {p.quantity for p in points if p.series == "cuts"} == {"cuts"}
    assert {p.quantity for p in points if p.series != "cuts"} == {"value", "seconds"}


def test_failed_cells_are_no_points(curves):
    def value(cell):
        return "ValueError: no" if (cell.seed, cell.x) in ((1, 20), (1, 40), (2, 40)) else 0.1

    points = list(Results(curves, curve_results(curves, value)).points())
    places = {p.x: p.spread.n for p in points}
    assert places == {20: 1, 80: 2}
