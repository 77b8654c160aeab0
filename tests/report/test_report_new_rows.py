"""Sections of the page on rows to label and rows that belong to no cluster."""

import re
from dataclasses import replace

import numpy as np
import pytest
from helpers.outcomes import Hyperplane, outcome_of

from volmar import MSPC
from volmar.diagnostics import calibrate_novelty
from volmar.diagnostics.suggest_labels import LabelSuggestions
from volmar.report.cluster_page import write_report
from volmar.report.judging import judged
from volmar.report.new_rows import rows_to_label, strangers
from volmar.report.stages import StageTimes


@pytest.fixture
def outcome():
    X = np.random.default_rng(0).normal(size=(300, 2))
    X[:200] += 5.0
    found = outcome_of(X, Hyperplane([1.0, 1.0], -5.0), ids=np.arange(300) + 1000)
    novelty = calibrate_novelty(X, found.labels, random_state=0)
    wanted = LabelSuggestions(
        np.array([3, 250]),
        found.labels[[3, 250]],
        1 - found.labels[[3, 250]],
        np.array([0.5, 0.0]),
    )
    return replace(found, novelty=novelty, suggestions=wanted)


def section(page, name):
    (found,) = re.findall(rf'<section id="{name}".*?</section>', page, re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", found).split())


def test_the_page_has_both_sections(outcome, tmp_path):
    write_report(outcome, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    text = section(page, "strangers")
    p = outcome.novelty.p_values(outcome.X, outcome.labels)
    assert f"{(p <= 0.01).sum()} of 300" in text
    assert "gets the label -1" in text
    assert "volmar predict MODEL TABLE --reject 0.01 -o labels.csv" in text
    text = section(page, "label")
    assert "1003 Cluster 1 Cluster 0 50 %" in text
    assert "1250 Cluster 0 Cluster 1 0 %" in text


def test_clusters_of_few_rows_are_named(outcome):
    few = calibrate_novelty(outcome.X[150:260], outcome.labels[150:260], random_state=0)
    found = strangers(replace(outcome, novelty=few, command="MSPC().fit(X)"))
    assert found["few"] == "cluster 0 (0.016) and cluster 1 (0.02)"
    assert found["command"] == "model.predict(new_rows, reject=0.01)"


def test_the_page_does_without(outcome, tmp_path):
    bare = replace(outcome, novelty=None, suggestions=None)
    assert strangers(bare) is None
    assert rows_to_label(bare) == []
    write_report(bare, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert 'id="strangers"' not in page
    assert 'id="label"' not in page


def test_a_judged_outcome_has_rows_at_the_border(outcome):
    model = MSPC(2, random_state=0).fit(outcome.X)
    found = outcome_of(
        outcome.X, model, clusterer=MSPC(2, random_state=0), labels=model.labels_, ids=None
    )
    rows = judged(found, StageTimes()).suggestions.rows
    assert len(rows) == 10
    lead = np.abs(model.decision_function(outcome.X))
    assert (lead[rows] < np.quantile(lead, 0.3)).all()
