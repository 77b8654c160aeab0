"""Checks of statements, and verdicts, with artificial results."""

from dataclasses import replace

import pytest
from paper_results import CORRELATION, CURVES, TABLE, curve_results, msp_results, results_of

from reproduction import (
    Claim,
    Reproduction,
    Side,
    Spread,
    Summary,
    load_experiment,
    parse_experiment,
)
from reproduction.store import NO_DATA

# ----------------------------------------------------------------------------------- claims

LEVELS = {  # data set and method to the error at 20, 40 and 80 rows, in percent
    ("left", "A"): (30.0, 20.0, 10.0),
    ("left", "B"): (25.0, 25.0, 25.0),
    ("right", "A"): (40.0, 40.0, 40.0),
    ("right", "B"): (35.0, 35.0, 50.0),
}


def check(curves, text, value_of=None, **changes):
    """Check one claim on the curves of `LEVELS`."""
    claim = f'\n[[claims]]\nsays = "so it is"\n{text}\n'
    experiment = replace(parse_experiment("curves", CURVES + claim), **changes)

    def value(cell):
        level = LEVELS[cell.dataset, cell.method][(20, 40, 80).index(cell.x)]
        # Label-free is ten points worse everywhere, but for A, which is thirty points worse.
        worse = {"A": 30.0, "B": 10.0}[cell.method] if cell.column == "label-free" else 0.0
        return (level + worse) / 100

    (claim,) = Reproduction.of(experiment, curve_results(experiment, value_of or value)).claims
    return claim


@pytest.mark.parametrize(
    ("text", "hindsight", "label_free"),
    [
        # A's means are 20 and 40, B's 25 and 40: level on the right is neither below nor above.
        ('of = "A"\nbelow = "B"', False, False),
        ('of = "A"\nbelow = "B"\nmargin = 0.1', True, False),
        ('of = "A"\nabove = "B"', False, True),
        ('of = "A"\nabove = "B"\nshare = 0.5', False, True),
        ('of = "A"\nbelow = "B"\non = ["left"]\nat = [20]', False, False),
        ('of = "A"\nbelow = "B"\non = ["left"]\nat = 80', True, False),
        ('of = "A"\nbelow = "B"\nmargin = -1.0', False, False),
        ('of = "A"\nbelow = "B"\nmargin = -1.0\nshare = 0.5', True, False),
        ('of = "A"\nbelow = "B"\nmargin = 20.0', True, False),
        ('of = "A"\nbelow = "B"\nmargin = 20.1', True, True),
        ('of = "A"\nbelow = "B"\nfactor = 0.81\non = ["left"]', True, False),
        ('of = "A"\nbelow = "B"\nfactor = 0.8\non = ["left"]', False, False),
        ('of = "A"\nbelow = "B"\nfactor = 2.0', True, True),
        ('of = "A"\nbelow = 20.1\non = ["left"]', True, False),
        ('of = "A"\nbelow = 20.0\non = ["left"]', False, False),
        ('of = "A"\nabove = 19', True, True),
        # A at 80 rows against A at 20 rows.
        (
            'of = "A"\nat = [80]\nbelow = "A"\nbelow_at = 20\nmargin = -19.9\non = ["left"]',
            True,
            True,
        ),
        (
            'of = "A"\nat = [80]\nbelow = "A"\nbelow_at = 20\nmargin = -20.0\non = ["left"]',
            False,
            False,
        ),
        ('of = "A"\nat = [40, 80]\nabove = "B"\nabove_at = [20, 40]\non = ["right"]', True, True),
        # Seconds are 0.015 times the rows, cuts 1.5 more than the rows.
        ('of = "A"\nquantity = "seconds"\nat = [20]\nbelow = 0.301', True, True),
        ('of = "A"\nquantity = "seconds"\nat = [20]\nabove = 0.31', False, False),
        (
            'of = "A"\nquantity = "seconds"\nat = [80]\nabove = "B"\nabove_at = 20\nfactor = 3.9',
            True,
            True,
        ),
        (
            'of = "A"\nquantity = "seconds"\nat = [80]\nabove = "B"\nabove_at = 20\nfactor = 4.0',
            False,
            False,
        ),
        ('of = "B"\nquantity = "cuts"\nat = [40]\nbelow = 41.6', True, True),
        ('of = "B"\nquantity = "cuts"\nat = [40]\nbelow = 41.5', False, False),
    ],
)
def test_claims(curves, text, hindsight, label_free):
    claim = check(curves, text)
    assert (claim.says, claim.hindsight, claim.label_free) == ("so it is", hindsight, label_free)
    assert claim.detail.startswith("paper's protocol: ")
    assert "; label-free: " in claim.detail


def test_claims_say_what_they_rest_on(curves):
    claim = check(curves, 'of = "A"\nbelow = "B"\nfactor = 0.8\non = ["left"]')
    assert claim.detail == (
        "paper's protocol: 20 against 20 on left; label-free: 50 against 28 on left"
    )
    claim = check(curves, 'of = "A"\nbelow = "B"\nmargin = -1.0')
    assert claim.detail == "paper's protocol: 1 of 2 data sets; label-free: 0 of 2 data sets"


@pytest.mark.parametrize(
    ("text", "hindsight", "label_free"),
    [
        # A has 30, 20, 10 on the left and 40 on the right; label-free 30 points more.
        ('of = "A"\nbelow = 29.9', False, False),
        ('of = "A"\nbelow = 29.9\non = ["left"]', False, False),
        ('of = "A"\nbelow = 29.9\non = ["left"]\nat = [40, 80]', True, False),
        ('of = "A"\nabove = 9.9', True, True),
        ('of = "A"\nabove = 10.0', False, True),
        ('of = "A"\nbelow = "B"\non = ["left"]', False, False),
        # Two of six points: share is that of points.
        ('of = "A"\nbelow = "B"\nshare = 0.5', True, False),
        ('of = "A"\nbelow = "B"\nshare = 0.51', False, False),
        ('of = "A"\nbelow = "B"\nfactor = 1.2\nmargin = 0.1\non = ["left"]', True, False),
        ('of = "A"\nquantity = "seconds"\nbelow = 0.5\nat = [20]', True, True),
        ('of = "A"\nquantity = "seconds"\nbelow = 0.5', False, False),
    ],
)
def test_pointwise_claims_hold_at_every_place(curves, text, hindsight, label_free):
    claim = check(curves, f"{text}\npointwise = true")
    assert (claim.hindsight, claim.label_free) == (hindsight, label_free)


def test_pointwise_claims_name_the_first_exception(curves):
    claim = check(curves, 'of = "A"\nabove = 15.0\npointwise = true')
    assert claim.detail == (
        "paper's protocol: 5 of 6 points, the first exception 10 against 15 on left at 80; "
        "label-free: 6 of 6 points"
    )
    # The mean over the places of the left is 20: judged by it, the statement would hold.
    assert check(curves, 'of = "A"\nabove = 15.0').hindsight is True
    claim = check(curves, 'of = "A"\nabove = 15.0\npointwise = true\non = ["left"]\nat = 80')
    assert claim.detail.startswith("paper's protocol: 10 against 15 on left at 80;")


def test_pointwise_claims_compare_at_places_that_both_sides_have(curves):
    def value(cell):
        return "too expensive" if (cell.method, cell.x) == ("B", 80) else 0.1 + cell.x / 1000

    claim = check(curves, 'of = "A"\nbelow = "B"\nmargin = 0.1\npointwise = true', value)
    assert claim.detail.startswith("paper's protocol: 4 of 4 points")


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        (CURVES, 'of = "A"\nat = [80]\nbelow = "A"\nbelow_at = 20'),
        (TABLE, 'of = "A"\nbelow = "B"'),
    ],
)
def test_pointwise_claims_need_the_places_of_an_axis(text, claim):
    text += f'\n[[claims]]\nsays = "s"\n{claim}\npointwise = true\n'
    with pytest.raises(ValueError, match=r"file: claim 's' is pointwise, .*; leave out pointwise"):
        parse_experiment("file", text)
    parse_experiment("file", text.replace("pointwise = true", "pointwise = false"))


def test_claims_that_nothing_can_tell(curves):
    claim = check(curves, 'of = "A"\nbelow = "B"', lambda _: "ValueError: no")
    assert claim == Claim("so it is", None, None, "")
    claim = check(curves, 'of = "A"\nbelow = "B"\non = ["left"]', columns=("hindsight",))
    assert (claim.hindsight, claim.label_free) == (True, None)
    # One side ran.
    claim = check(curves, 'of = "A"\nbelow = "B"', lambda c: 0.1 if c.method == "A" else "no")
    assert (claim.hindsight, claim.label_free) == (None, None)
    # On the right nothing ran: the left decides.
    claim = check(
        curves,
        'of = "A"\nbelow = "B"',
        lambda c: "no" if c.dataset == "right" else 0.1 + 0.1 * (c.method == "B"),
    )
    assert (claim.hindsight, claim.label_free) == (True, True)


def test_claims_compare_at_places_that_both_sides_have(curves):
    """An expensive method at small sizes only is not compared with others at all sizes."""

    def value(cell):
        if cell.method == "B" and cell.x != 20:
            return "too expensive"
        return {20: 0.3, 40: 0.1, 80: 0.05}[cell.x] - 0.01 * (cell.method == "B")

    # At 20 rows B is the better one; A has larger samples, too, and is better in their mean.
    claim = check(curves, 'of = "A"\nbelow = "B"', value)
    assert (claim.hindsight, claim.label_free) == (False, False)


def test_claims_of_measures(curves):
    text = CURVES.replace('view = "curves"', 'view = "measures"').replace(
        "[measures]", '[measures]\nsteps = "n_iter_"'
    )
    text = (
        text.split("[methods.B]")[0]
        + """
[[claims]]
says = "fewer steps than cuts"
of = "steps"
below = "cuts"
"""
    )
    experiment = parse_experiment("measures", text)

    def check_with(steps):
        results = results_of(
            experiment, lambda _: 0.1, measures_of=lambda _: {"steps": steps, "cuts": 2.0}
        )
        return Reproduction.of(experiment, results).claims[0]

    assert check_with(1.5).hindsight is True
    assert check_with(2.5).hindsight is False


def test_claims_of_correlations_are_of_groups(correlation):
    claim = '\n[[claims]]\nsays = "together"\nof = "all of them"\nabove = 90.0\n'
    experiment = parse_experiment("correlation", CORRELATION + claim)
    accuracies = {"a": 60.0, "b": 70.0, "c": 80.0, "d": 90.0}
    (claim,) = Reproduction.of(experiment, msp_results(experiment, accuracies, accuracies)).claims
    assert (claim.hindsight, claim.label_free) == (True, True)
    assert claim.detail.startswith("paper's protocol: 100 against 90 on all of them")
    turned = {name: 100 - value for name, value in accuracies.items()}
    (claim,) = Reproduction.of(experiment, msp_results(experiment, accuracies, turned)).claims
    assert (claim.hindsight, claim.label_free) == (False, False)
    (claim,) = Reproduction.of(experiment, []).claims
    assert (claim.hindsight, claim.label_free) == (None, None)


@pytest.mark.parametrize(
    ("text", "of"),
    [
        (CORRELATION, "MSPC"),  # figures of a correlation are groups
        (CURVES, "cuts"),  # a measure is a quantity of methods here
        (CURVES.replace('view = "curves"', 'view = "measures"'), "A"),  # and a series there
    ],
)
def test_claims_of_series_that_the_view_does_not_have_are_refused(text, of):
    claim = f'\n[[claims]]\nsays = "s"\nof = "{of}"\nabove = 90.0\n'
    with pytest.raises(ValueError, match=f"file: claim 's' names '{of}'"):
        parse_experiment("file", text + claim)


# --------------------------------------------------------------------------------- verdicts

REASON = "The samplings are not the paper's. MVC takes the best of six."
FREE_REASON = "One graph serves all sets."


def judged(table, points, **changes):
    """Verdict on a table whose printed values are all 25; points by method and column."""

    def value(cell):
        given = points[cell.method]
        if isinstance(given, str):
            return given
        return (25.0 + given[cell.column != "hindsight"]) / 100

    experiment = replace(table, reason=REASON, label_free_reason=FREE_REASON, **changes)
    return Reproduction.of(experiment, results_of(experiment, value))


@pytest.fixture
def all_25(printed):
    printed({(dataset, method): (25.0, None) for dataset in ("left", "right") for method in "ABC"})


GOOD, HINDSIGHT, BAD, BETTER = (0.0, 0.0), (1.0, 9.0), (9.0, 9.0), (-9.0, -9.0)
AS_GOOD, WORSE = "as good as printed", "worse than printed"


@pytest.mark.usefixtures("all_25")
@pytest.mark.parametrize(
    ("points", "changes", "status", "label_free"),
    [
        ({"A": GOOD, "B": GOOD, "C": GOOD}, {}, "reproduced", AS_GOOD),
        ({"A": GOOD, "B": GOOD, "C": BAD}, {}, "not reproduced", WORSE),
        ({"A": GOOD, "B": GOOD, "C": BAD}, {"needed": 0.66}, "reproduced", AS_GOOD),
        ({"A": GOOD, "B": GOOD, "C": BAD}, {"judged": ("A", "B")}, "reproduced", AS_GOOD),
        # The two judgements do not depend on each other.
        ({"A": GOOD, "B": GOOD, "C": HINDSIGHT}, {}, "reproduced", WORSE),
        ({"A": HINDSIGHT, "B": HINDSIGHT, "C": HINDSIGHT}, {}, "reproduced", WORSE),
        ({"A": BETTER, "B": BETTER, "C": BETTER}, {}, "not reproduced", AS_GOOD),
        ({"A": (9.0, 0.0), "B": GOOD, "C": GOOD}, {}, "not reproduced", AS_GOOD),
        ({"A": HINDSIGHT, "B": HINDSIGHT, "C": BAD}, {}, "not reproduced", WORSE),
        ({"A": GOOD, "B": GOOD, "C": "ValueError: no"}, {}, "not reproduced", WORSE),
        ({"A": GOOD, "B": GOOD, "C": GOOD}, {"columns": ("hindsight",)}, "reproduced", "not run"),
    ],
)
def test_verdict_of_a_table(table, points, changes, status, label_free):
    verdict = judged(table, points, **changes).verdict
    assert (verdict.status, verdict.label_free) == (status, label_free)
    assert verdict.title == (
        f"{status.capitalize()} under the paper's protocol; {label_free} without labels"
    )
    assert verdict.sentence == f"{verdict.title}. {verdict.detail}"
    assert verdict.sentence.endswith(".")
    assert ".." not in verdict.sentence
    assert (f" Likely reasons: {REASON}" in verdict.detail) == (status != "reproduced")
    without = f" Likely reasons without labels: {FREE_REASON}"
    assert (without in verdict.detail) == (label_free == WORSE)
    assert ("Without labels" in verdict.detail) == (label_free != "not run")


@pytest.mark.usefixtures("all_25")
def test_counts_of_a_table(table):
    parts = {"the one": ("left",), "the other": ("right",)}
    shown = judged(table, {"A": GOOD, "B": HINDSIGHT, "C": BETTER}, parts=parts)
    assert shown.verdict.detail.startswith(
        "Under the paper's protocol, 4 of 6 values are within 2 points of the print (A 2 of 2, B "
        "2 of 2, C 0 of 2, the one 2 of 3, the other 2 of 3), 2 better. Without labels, 4 of 6 "
        "values are as good as printed or better. Likely reasons: "
    )
    shown = judged(table, {"A": BAD, "B": "ValueError: no", "C": BETTER})
    assert "(A 0 of 2, B 0 of 2, C 0 of 2), 2 better, 2 worse, 2 failed." in shown.verdict.detail


@pytest.mark.usefixtures("all_25")
def test_statements_are_counted_beside_values(table):
    text = TABLE + '\n[[claims]]\nsays = "s"\nof = "A"\nbelow = "B"\n'
    experiment = parse_experiment("table", text)
    shown = judged(experiment, {"A": GOOD, "B": HINDSIGHT, "C": GOOD})
    assert "; 1 of 1 statement of the text holds. Without labels, 4 of 6" in shown.verdict.detail
    assert "as good as printed or better; 1 of 1 statement holds." in shown.verdict.detail


@pytest.mark.usefixtures("all_25")
def test_an_incomplete_run_has_no_verdict(table):
    results = results_of(table, lambda _: 0.25)
    shown = Reproduction.of(table, results[:-3])
    assert shown.verdict.status == "incomplete"
    assert shown.verdict.sentence == "Incomplete. 3 cells have not been run."
    assert shown.verdict.label_free == ""
    assert (shown.n_cells, shown.n_done, shown.n_failed) == (len(results), len(results) - 3, 0)
    # Wanted were fewer, as with --realizations.
    assert (
        Reproduction.of(table, results[:-3], n_cells=len(results) - 3).verdict.status
        != "incomplete"
    )


@pytest.mark.usefixtures("all_25")
def test_a_run_without_some_of_its_data_is_incomplete(table):
    def value(cell):
        return 0.25 if cell.dataset == "left" else f"{NO_DATA}OSError: no file"

    shown = Reproduction.of(table, results_of(table, value))
    assert shown.verdict.status == "incomplete"


@pytest.mark.usefixtures("all_25")
def test_a_quick_run_is_called_so(table):
    shown = judged(table, {"A": GOOD, "B": GOOD, "C": BAD}, quick=True)
    assert shown.quick
    assert "quick" in shown.verdict.status + shown.verdict.sentence.lower()
    assert shown.verdict.label_free == ""
    assert "4 of 6 values" in shown.verdict.sentence
    assert "Likely reasons" not in shown.verdict.sentence


@pytest.mark.parametrize(
    ("claims", "columns", "status", "label_free"),
    [
        (["below = 50.0"], ("hindsight", "label-free"), "reproduced", AS_GOOD),
        (["below = 25.0"], ("hindsight", "label-free"), "reproduced", WORSE),
        (["below = 25.0"], ("hindsight",), "reproduced", "not run"),
        (["above = 25.0"], ("hindsight", "label-free"), "not reproduced", AS_GOOD),
        (["below = 15.0"], ("hindsight", "label-free"), "not reproduced", WORSE),
        (["below = 50.0"] * 3 + ["below = 15.0"], ("hindsight",), "reproduced", "not run"),
        (["below = 50.0"] * 2 + ["below = 15.0"], ("hindsight",), "not reproduced", "not run"),
        ([], ("hindsight", "label-free"), "shown", ""),
    ],
)
def test_verdict_of_a_figure_rests_on_its_statements(claims, columns, status, label_free):
    text = "".join(f'\n[[claims]]\nsays = "s"\nof = "A"\n{claim}\n' for claim in claims)
    experiment = replace(
        parse_experiment("curves", CURVES + text),
        columns=columns,
        reason=REASON,
        label_free_reason=FREE_REASON,
    )
    results = curve_results(experiment, lambda cell: 0.2 if cell.column == "hindsight" else 0.3)
    verdict = Reproduction.of(experiment, results).verdict
    assert (verdict.status, verdict.label_free) == (status, label_free)
    if claims:
        n_held = sum(claim in ("below = 50.0", "below = 25.0") for claim in claims)
        assert f"{n_held} of {len(claims)} statement" in verdict.detail
    else:
        assert verdict.sentence == "Shown. There is no value to compare with."
    assert (f"Likely reasons: {REASON}" in verdict.detail) == (status == "not reproduced")
    assert ("Likely reasons without labels: " in verdict.detail) == (label_free == WORSE)


def test_data_are_shown():
    shown = Reproduction.of(load_experiment("mvc-jmlr-2013-figure-3"), [])
    assert (shown.verdict.status, shown.lines, shown.points) == ("shown", (), ())
    assert shown.verdict.sentence == "Shown. The paper's picture of the data has no values."


@pytest.mark.usefixtures("printed")
def test_a_reproduction_counts_its_cells(table):
    def value(cell):
        if cell.method == "C":
            return "ValueError: no"
        return "KeyError: never" if (cell.method, cell.seed) == ("B", 1) else 0.1

    results = results_of(table, value, lambda cell: 0.5)
    mixed = [replace(results[0], versions={"volmar": "1", "numpy": "3"}), *results[1:]]
    shown = Reproduction.of(table, mixed)
    n_cells = 2 * (4 * (1 + 3 + 2) + 2 * 2)
    assert (shown.n_cells, shown.n_done) == (n_cells, n_cells)
    assert shown.n_failed == 2 * (2 * 2 + 2)
    assert shown.failures == ("8 times: ValueError: no", "4 times: KeyError: never")
    assert shown.seconds == pytest.approx(0.5 * n_cells)
    assert shown.versions == {"numpy": "2, 3", "volmar": "1"}
    assert not shown.quick


def test_defaults_of_a_side():
    side = Side()
    assert (side.summary, side.difference, side.distance, side.best) == (
        Summary(None, None, 0),
        None,
        None,
        False,
    )
    assert Spread.of([1.0]).n == 1
