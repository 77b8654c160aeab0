"""Section of the page on rows that belong to no cluster."""

import re
from dataclasses import replace

import numpy as np
import pytest
from helpers.outcomes import Hyperplane, outcome_of

from volmar.evidence import calibrate_novelty
from volmar.report.cluster_page import write_report
from volmar.report.sections import strangers


@pytest.fixture
def outcome():
    X = np.random.default_rng(0).normal(size=(300, 2))
    X[:200] += 5.0
    found = outcome_of(X, Hyperplane([1.0, 1.0], -5.0), ids=np.arange(300) + 1000)
    novelty = calibrate_novelty(X, found.labels, random_state=0)
    return replace(found, novelty=novelty)


def section(page, name):
    (found,) = re.findall(rf'<section id="{name}".*?</section>', page, re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", found).split())


def test_the_page_has_the_section(outcome, tmp_path):
    write_report(outcome, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    text = section(page, "strangers")
    p = outcome.novelty.p_values(outcome.X, outcome.labels)
    assert f"{(p <= 0.01).sum()} of 300" in text
    assert "gets the label -1" in text
    assert "volmar predict MODEL TABLE --reject 0.01 -o labels.csv" in text


def test_clusters_of_few_rows_are_named(outcome):
    few = calibrate_novelty(outcome.X[150:260], outcome.labels[150:260], random_state=0)
    found = strangers(replace(outcome, novelty=few, command="MSPC().fit(X)"))
    assert found["few"] == "cluster 0 (0.016) and cluster 1 (0.02)"
    assert found["command"] == "model.predict(new_rows, reject=0.01)"


def test_the_page_does_without(outcome, tmp_path):
    bare = replace(outcome, novelty=None)
    assert strangers(bare) is None
    write_report(bare, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert 'id="strangers"' not in page
