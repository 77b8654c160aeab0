"""The conclusions of the report."""

import dataclasses
import re

import numpy as np
import pytest
from sklearn.cluster import KMeans

pytest.importorskip("jinja2")

from helpers.outcomes import (
    HOSTILE,
    THREE,
    TWO,
    Hyperplane,
    groups,
    outcome_of,
    section,
    simple,
    written,
)

from volmar import MSPC, AutoClusterer
from volmar.evidence import SplitTestResult
from volmar.report import Evidence, evidence_of
from volmar.report.cluster_page import write_report
from volmar.report.verdict import split_sentence
from volmar.solvers import Result


def by_kind(found):
    return {kind: [one for one in found if one.kind == kind] for kind in {e.kind for e in found}}


def join(p, *sides, level=0.05):
    words = "a gap" if p <= level else "no gap"
    return Evidence("join", p, f"{sides}: {words}", level, sides)


def badge(page):
    return re.search(r'<div class="card (\w+)"><div class="what">Evidence', page.html)[1]


def several(k, **changes):
    """An outcome with k clusters of 60 rows."""
    X = groups(60 * k, [(10.0 * i,) for i in range(k)])
    labels = np.arange(60 * k) % k
    scores = np.eye(k)[labels] if k > 2 else 2.0 * labels - 1
    return outcome_of(X, KMeans(k), labels, scores, **changes)


def more(p=0.002, **changes):
    return Evidence("p-value", p, "As it is.", 0.05, **changes)


def test_the_headline_says_how_many_groups_there_are(tmp_path):
    evidence = [
        more(),
        Evidence("groups", 2.0, "Evidence for 2.", clusters=((0, 2, 4), (1, 3))),
        join(0.43, (0,), (2,)),
        join(0.9, (1,), (3,)),
        join(0.6, (0, 2), (4,)),
        join(0.001, (0, 2, 4), (1, 3)),
    ]
    page = written(several(5, evidence=evidence), tmp_path)
    assert (
        "The 300 rows were divided into five clusters; the evidence supports two groups."
        in page.words
    )
    assert "Clusters 0, 2 and 4 are parts of one group, and so are clusters 1 and 3." in page.words
    assert "Evidence for two groups no gap at 3 of 5 borders" not in page.words
    assert "no gap at 3 of 4 borders: p ≥ 0.43, level 0.05" in page.words
    assert "Not every border is confirmed" in section(page, "warnings")
    assert badge(page) == "fair"
    assert "evidence is strong" not in page.words
    words = section(page, "evidence")
    assert words.count(": no gap") == 3
    assert words.index(": no gap") < words.index(": a gap")


@pytest.mark.parametrize("is_more", [True, False])
def test_no_border_is_a_gap(tmp_path, is_more):
    evidence = [more(0.002 if is_more else 0.6), join(0.8, (0,), (1,))]
    page = written(several(2, evidence=evidence), tmp_path)
    assert "were divided into two clusters; no evidence supports them." in page.words
    assert badge(page) == "weak"
    assert ("There is more than one group, but the border is not where" in page.words) == is_more
    assert ("Treat the clusters as a convenient division" in page.words) != is_more
    assert "It is found again" not in page.words
    stable = [*evidence, Evidence("stability", 0.95, "They stay.")]
    page = written(several(2, evidence=stable), tmp_path)
    assert "It is found again when rows are left out" in page.words


@pytest.mark.parametrize("is_more", [True, False])
def test_borders_that_are_nearly_gaps_are_not_called_none(tmp_path, is_more):
    """Of few rows a gap may be missed: what is not shown is not denied."""
    evidence = [more(0.015 if is_more else 0.3), join(0.08, (0,), (1,)), join(0.12, (1,), (2,))]
    page = written(several(3, evidence=evidence), tmp_path)
    assert "were divided into three clusters; the evidence for them is not enough." in page.words
    assert "More rows are needed to decide." in page.words
    assert "no clear gap at 2 of 2 borders: p ≥ 0.08, level 0.05" in page.words
    assert ("There is more than one group." in page.words) == is_more
    assert "no evidence" not in page.words.lower()
    assert badge(page) == "fair"


def test_every_border_is_a_gap(tmp_path):
    evidence = [more(), join(0.004, (0,), (1,)), join(0.001, (1,), (2,))]
    page = written(several(3, evidence=evidence), tmp_path)
    assert "fall into three clusters" in page.words
    assert "Held-out rows show a gap at every border between them. The evidence is strong." in (
        page.words
    )
    assert "p = 0.004, level 0.05" in page.words
    assert badge(page) == "good"
    # The badge shows the weakest border.
    evidence[1] = join(0.03, (0,), (1,))
    page = written(several(3, evidence=evidence), tmp_path)
    assert "The evidence is fair." in page.words
    # The labels were fitted to all rows, the test of more than one group to half of them.
    page = written(several(3, evidence=[more(0.3), *evidence[2:]]), tmp_path)
    assert (
        "A test that does not use the cluster labels finds no gap (p = 0.3, level 0.05)"
        in page.words
    )
    assert badge(page) == "fair"


def test_unstable_clusters_are_not_called_strong(tmp_path):
    evidence = [more(), join(0.001, (0,), (1,)), Evidence("stability", 0.3, "They change.")]
    page = written(several(2, evidence=evidence), tmp_path)
    assert badge(page) == "fair"
    assert "strong" not in section(page, "evidence").lower()
    head = page.words[: page.words.index("Scatter plot of the rows")]
    assert "(adjusted Rand index 0.30): their borders are uncertain. Try another number" in head


def test_untested_clusters_are_not_called_strong(tmp_path):
    """A test of more than one group does not test six small clusters."""
    small = Evidence("untested", None, "Clusters 0, 1, 2 are too small to test.")
    page = written(several(3, evidence=[more(), small]), tmp_path)
    assert "were divided into three clusters; there is more than one group." in page.words
    assert "too small to test. It is not known whether they are groups." in page.words
    assert badge(page) == "fair"
    page = written(several(3, evidence=[more(), join(0.001, (0,), (1,)), small]), tmp_path)
    assert "fall into three clusters" in page.words
    assert badge(page) == "fair"


def test_a_border_that_few_halves_find_is_not_called_strong(tmp_path):
    evidence = [more(repeats=0.6)]
    page = written(several(2, evidence=evidence), tmp_path)
    head = page.words[: page.words.index("Scatter plot of the rows")]
    assert "Only 60 % of the halves of the rows find the border again: there are groups" in head
    assert "but this border is uncertain." in head
    assert "Try another number of clusters, or another method." in head
    assert badge(page) == "fair"
    page = written(several(2, evidence=[more(repeats=0.9)]), tmp_path)
    assert badge(page) == "good"
    # The best split in two of three groups does not matter for the three.
    evidence += [join(0.001, (0,), (1,)), join(0.001, (1,), (2,))]
    page = written(several(3, evidence=evidence), tmp_path)
    assert badge(page) == "good"


def test_three_groups_do_not_depend_on_a_split_in_two():
    found = SplitTestResult(0.001, 0.05, 0.6, 0.55, np.zeros(0))
    assert "but the 3 clusters do not depend on it" in split_sentence(found, 3)
    assert "try another" not in split_sentence(found, 3).lower()
    assert split_sentence(found, 2) == str(found)


@pytest.mark.parametrize(
    ("names", "weights", "words", "tone"),
    [
        (["a", "b", "c", "d"], [1, 1, 1, 1], None, "good"),
        (["a", "st=1", "st=2", "d"], [0.1, 2, 2, 0.1], "categories of 'st' dominate the", "fair"),
        (["a", "st=1", "gr=2", "d"], [0.1, 3, 2, 0.1], "of 'st' and 'gr' dominate the", "good"),
        (["a", "st=1", "st=2", "d"], [9, 1, 1, 1], None, "good"),
    ],
)
def test_categories_that_lead_stand_in_the_head(tmp_path, names, weights, words, tone):
    # All columns have a standard deviation of 1, so the weights are the coefficients.
    X = np.random.default_rng(0).normal(size=(400, 4))
    X /= X.std(axis=0)
    model = Hyperplane(weights)
    outcome = outcome_of(X, model, feature_names=names, evidence=[more()])
    page = written(outcome, tmp_path)
    head = page.words[: page.words.index("Scatter plot of the rows")]
    assert ("The categories of" in head) == (words is not None)
    assert words is None or words in head
    assert badge(page) == tone


def test_categories_by_name_and_of_one_split(tmp_path):
    X = groups(450, THREE)
    model = MSPC(3, random_state=0).fit(X)
    names = ["income=1", "colour", "c", "d"]
    outcome = outcome_of(X, model, feature_names=names, evidence=[more()], categorical=())
    assert "The categories of" not in written(outcome, tmp_path).words
    outcome = dataclasses.replace(outcome, categorical=("colour",))
    by_colour = [
        node.rank for node in model.tree_.splits() if node.leading and node.leading[0][0] == 1
    ]
    words = written(outcome, tmp_path).words
    assert by_colour
    assert re.search(r"The categories of 'colour' dominate (split \d|the clusters)", words)


def test_a_p_value_just_above_the_level(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 5))
    zeros = np.zeros(200, dtype=int)
    hint = Evidence("p-value", 0.052, "Not enough.", 0.05)
    page = written(outcome_of(X, None, zeros, zeros, evidence=[hint], method="MSPC"), tmp_path)
    assert "Not enough evidence for more than one group (p = 0.052, level 0.05)." in page.words
    assert "more rows are needed to decide" in page.words
    assert "would appear in about 5.2 % of cases" in page.words
    clear = dataclasses.replace(hint, value=0.63)
    page = written(outcome_of(X, None, zeros, zeros, evidence=[clear], method="MSPC"), tmp_path)
    assert "No evidence for more than one group (p = 0.63, level 0.05)." in page.words


def test_columns_are_used_or_left_out(tmp_path):
    outcome = simple(
        n_columns=7, left_out={"id": "names the rows", HOSTILE: "one value only", "zip": "asked"}
    )
    page = written(outcome, tmp_path)
    assert "Columns 4 of 7 used; 3 left out" in page.words
    assert "3 columns left out, with reasons" in page.words
    assert f"{HOSTILE}: one value only" in page.words
    assert "Columns 4 of 6 used; 2 left out" in written(simple(n_columns=6), tmp_path).words
    made = simple(n_columns=4, left_out={"id": "names the rows"})
    assert "Columns 3 of 4 used; 1 left out; 4 features made from them" in (
        written(made, tmp_path).words
    )
    assert "Columns 4 all used" in written(simple(), tmp_path).words


def test_what_was_checked_comes_before_what_no_bound_covers(tmp_path):
    X = groups(300, THREE)
    page = written(outcome_of(X, MSPC(2, random_state=0).fit(X), evidence=[more()]), tmp_path)
    words = section(page, "certificate")
    checked = words.index("no row would change its cluster in a further step")
    assert words.index("optimum not proved") < checked
    assert checked < words.lower().index("no bound")
    # There is no objective to solve.
    model = AutoClusterer(random_state=0).fit(X)
    words = section(written(outcome_of(X, model, evidence=[more()]), tmp_path), "certificate")
    assert "AutoClusterer does not report how close its solution is to the optimum." in words
    assert "optimum not proved" not in words
    result = Result(2.0, residuals={"stationarity": 3e-9, "balance": 0.0})
    page = written(simple(model=Hyperplane([0.25, 0, 0, 0], result=result)), tmp_path)
    assert "the optimality conditions hold up to a residual of 3.0e−09." in page.words
    result = dataclasses.replace(result, residuals={"stationarity": 0.5})
    words = section(
        written(simple(model=Hyperplane([0.25, 0, 0, 0], result=result)), tmp_path), "certificate"
    )
    assert "Not proved" in words
    assert "Conditions satisfied" not in words
    assert "a residual of 0.5." in words


def test_labels_that_are_markup_are_escaped(tmp_path):
    outcome = several(2, evidence=[more()])
    labels = np.array([HOSTILE, "plain"], dtype=object)[outcome.labels]
    evidence = evidence_of(None, outcome.X, labels, n_clusters=2)
    page = written(dataclasses.replace(outcome, labels=labels, evidence=evidence), tmp_path)
    assert page.tags.count("script") == 2
    assert f"{HOSTILE} and plain" in page.words


# ------------------------------------------------------------------------------ in a browser


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_borders_and_remarks(browser, tmp_path, width, theme):
    X = groups(900, TWO)
    model = MSPC(6, random_state=0).fit(X)
    evidence = evidence_of(model, X, model.labels_, n_clusters=6)
    evidence.append(Evidence("stability", 0.4, "They change."))
    names = ["st=1", "st=2", "c", "d"]
    path = tmp_path / "report.html"
    write_report(outcome_of(X, model, evidence=evidence, feature_names=names), path)
    browser.open(path, width, theme)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.querySelector('main').scrollWidth") <= width
    assert browser.run("document.querySelectorAll('.borders li').length") == 5
    assert browser.run("document.querySelectorAll('.borders li.open').length") == 4
    assert browser.run("document.querySelectorAll('.hero .remark').length") >= 1
    # Numbers beside bars, "< 0.1 %" among them, stay on one line.
    tallest = browser.run(
        "Math.max(...[...document.querySelectorAll('.bar-row:not(.head) .number')].map(e => {"
        "e.textContent = '< 0.1 %';"
        "return e.getBoundingClientRect().height / parseFloat(getComputedStyle(e).lineHeight)}))"
    )
    assert tallest < 1.5
    assert browser.complaints() == []
