"""Statements of the texts checked, and verdicts; all results are made up."""

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
    assert claim.detail.startswith("hindsight: ")
    assert "; label-free: " in claim.detail


def test_claims_say_what_they_rest_on(curves):
    claim = check(curves, 'of = "A"\nbelow = "B"\nfactor = 0.8\non = ["left"]')
    assert claim.detail == ("hindsight: 20 against 20 on left; label-free: 50 against 28 on left")
    claim = check(curves, 'of = "A"\nbelow = "B"\nmargin = -1.0')
    assert claim.detail == "hindsight: 1 of 2 data sets; label-free: 0 of 2 data sets"


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
    """A dear method at small sizes only is not compared with others at all sizes."""

    def value(cell):
        if cell.method == "B" and cell.x != 20:
            return "too dear"
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
    assert claim.detail.startswith("hindsight: 100 against 90 on all of them")
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

REASON = "The samplings are not the paper's. MVC takes the best of six. A grid is coarse."


def judged(table, points, **changes):
    """Verdict on a table whose printed figures are all 25; points by method and column."""

    def value(cell):
        given = points[cell.method]
        if isinstance(given, str):
            return given
        return (25.0 + given[cell.column != "hindsight"]) / 100

    experiment = replace(table, reason=REASON, **changes)
    return Reproduction.of(experiment, results_of(experiment, value))


@pytest.fixture
def all_25(printed):
    printed({(dataset, method): (25.0, None) for dataset in ("left", "right") for method in "ABC"})


GOOD, HINDSIGHT, BAD, BETTER = (0.0, 0.0), (1.0, 9.0), (9.0, 9.0), (-9.0, -9.0)


@pytest.mark.usefixtures("all_25")
@pytest.mark.parametrize(
    ("points", "changes", "status"),
    [
        ({"A": GOOD, "B": GOOD, "C": GOOD}, {}, "reproduced"),
        ({"A": GOOD, "B": GOOD, "C": BAD}, {}, "not reproduced"),
        ({"A": GOOD, "B": GOOD, "C": BAD}, {"needed": 0.66}, "reproduced"),
        ({"A": GOOD, "B": GOOD, "C": BAD}, {"judged": ("A", "B")}, "reproduced"),
        ({"A": GOOD, "B": GOOD, "C": HINDSIGHT}, {}, "reproduced only in hindsight"),
        ({"A": BETTER, "B": BETTER, "C": BETTER}, {}, "not reproduced"),
        ({"A": HINDSIGHT, "B": HINDSIGHT, "C": BAD}, {}, "not reproduced"),
        ({"A": GOOD, "B": GOOD, "C": "ValueError: no"}, {}, "not reproduced"),
    ],
)
def test_status_of_a_table(table, points, changes, status):
    shown = judged(table, points, **changes)
    assert shown.verdict.status == status
    assert shown.verdict.sentence.startswith(f"{status.capitalize()}: ")
    assert shown.verdict.sentence.endswith(".")
    assert not shown.verdict.sentence.endswith("..")
    with_reason = (
        ", likely because the samplings are not the paper's, and because MVC takes the best of "
        "six, and because a grid is coarse."
    )
    assert shown.verdict.sentence.endswith(with_reason) == (status != "reproduced")


@pytest.mark.usefixtures("all_25")
def test_sentence_of_a_table(table):
    parts = {"the one": ("left",), "the other": ("right",)}
    shown = judged(table, {"A": GOOD, "B": HINDSIGHT, "C": BETTER}, parts=parts)
    assert shown.verdict.sentence.startswith(
        "Not reproduced: 4 of 6 figures are within 2 points of the print in hindsight (A 2 of 2, "
        "B 2 of 2, C 0 of 2, the one 2 of 3, the other 2 of 3), 2 are better; 4 are no worse than "
        "that label-free, likely because "
    )


@pytest.mark.usefixtures("all_25")
def test_statements_are_told_beside_figures(table):
    text = TABLE + '\n[[claims]]\nsays = "s"\nof = "A"\nbelow = "B"\n'
    experiment = parse_experiment("table", text)
    shown = judged(experiment, {"A": GOOD, "B": HINDSIGHT, "C": GOOD})
    assert "1 of 1 statements of the text hold in hindsight, 1 of 1 label-free" in (
        shown.verdict.sentence
    )


@pytest.mark.usefixtures("all_25")
def test_an_incomplete_run_has_no_verdict(table):
    results = results_of(table, lambda _: 0.25)
    shown = Reproduction.of(table, results[:-3])
    assert shown.verdict.status == "incomplete"
    assert shown.verdict.sentence.startswith("Incomplete: 3 cells have not been run")
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
    assert "4 of 6 figures" in shown.verdict.sentence
    assert "likely because" not in shown.verdict.sentence


@pytest.mark.parametrize(
    ("claims", "columns", "status"),
    [
        (["below = 50.0"], ("hindsight", "label-free"), "reproduced"),
        (["below = 25.0"], ("hindsight", "label-free"), "reproduced only in hindsight"),
        (["below = 25.0"], ("hindsight",), "reproduced"),
        (["below = 15.0"], ("hindsight", "label-free"), "not reproduced"),
        (["below = 50.0"] * 3 + ["below = 15.0"], ("hindsight", "label-free"), "reproduced"),
        (["below = 50.0"] * 2 + ["below = 15.0"], ("hindsight", "label-free"), "not reproduced"),
        ([], ("hindsight", "label-free"), "shown"),
    ],
)
def test_status_of_a_figure_rests_on_its_statements(claims, columns, status):
    text = "".join(f'\n[[claims]]\nsays = "s"\nof = "A"\n{claim}\n' for claim in claims)
    experiment = replace(parse_experiment("curves", CURVES + text), columns=columns, reason=REASON)
    results = curve_results(experiment, lambda cell: 0.2 if cell.column == "hindsight" else 0.3)
    verdict = Reproduction.of(experiment, results).verdict
    assert verdict.status == status
    if claims:
        n_held = sum(claim != "below = 15.0" for claim in claims)
        assert f"{n_held} of {len(claims)} statements of the text hold" in verdict.sentence
    else:
        assert verdict.sentence == "Shown: there is no figure to compare with."
    assert ("likely because" in verdict.sentence) == (status not in ("reproduced", "shown"))


def test_data_are_shown():
    shown = Reproduction.of(load_experiment("mvc-jmlr-2013-figure-3"), [])
    assert (shown.verdict.status, shown.lines, shown.points) == ("shown", (), ())
    assert shown.verdict.sentence == "Shown: the paper's picture of the data has no figures."


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
