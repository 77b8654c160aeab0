"""Outcomes of artificial runs, and the text of their pages."""

import json
import re

import numpy as np
import pytest

from helpers.pages import Reader

pytest.importorskip("jinja2")

from volmar.metrics.scores import LabelScore
from volmar.report.cluster_page import write_report
from volmar.report.outcome import Evidence, Outcome

HOSTILE = "<script>alert(1)</script>"
ENDING = "</script><img src=x onerror=alert(2)>"
QUOTES = "\"quoted\" & 'single' <b>title</b>"


class Hyperplane:
    """Two clusters by the sign of a linear score."""

    def __init__(self, coef, intercept=0.0, result=None):
        self.coef_ = np.atleast_2d(np.asarray(coef, dtype=float))
        self.intercept_ = intercept
        if result is not None:
            self.result_ = result

    def decision_function(self, X):
        return np.ravel(X @ self.coef_[0]) + self.intercept_

    def predict(self, X):
        return (self.decision_function(X) > 0).astype(int)


def outcome_of(X, model, labels=None, scores=None, **changes):
    n, d = X.shape
    scores = model.decision_function(X) if scores is None else scores
    labels = model.predict(X) if labels is None else labels
    given = {
        "title": "Flowers",
        "command": "volmar cluster flowers.csv --seed 3",
        "asked": {"--n-clusters": "auto"},
        "source": "flowers.csv",
        "n_rows": n,
        "n_columns": d,
        "notes": ["Columns were scaled."],
        "method": type(model).__name__,
        "parameters": {"C": 2.0},
        "seed": 3,
        "X": X,
        "feature_names": [f"column {j}" for j in range(d)],
        "ids": np.arange(n),
        "id_name": "row",
        "labels": labels,
        "scores": scores,
        "model": model,
        "n_found": max(np.unique(labels).size, 1),
        "evidence": [Evidence("p-value", 0.004, "There is a gap.")],
        "quality": [LabelScore("silhouette", 0.61, "higher", "Above 0.5 is clear.")],
        "warnings": [],
        "seconds": {"fit": 0.5},
    }
    return Outcome(**given | changes)


def two_groups(n=120, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X[:, 0] += np.where(np.arange(n) < n // 3, -4.0, 4.0)
    return X


def simple(**changes):
    X = changes.pop("X", None)
    X = two_groups() if X is None else X
    coef = np.zeros(X.shape[1])
    coef[0] = 0.25
    return outcome_of(X, changes.pop("model", Hyperplane(coef)), **changes)


def written(outcome, tmp_path):
    path = tmp_path / "report.html"
    write_report(outcome, path, force=True)
    reader = Reader()
    reader.html = path.read_text(encoding="utf-8")
    reader.feed(reader.html)
    reader.words = " ".join(" ".join(reader.text).split())
    reader.data = json.loads(reader.scripts[0])
    reader.outcome = outcome
    return reader


def section(page, name):
    """Return the text of a section of the page."""
    inside = re.search(rf'<section id="{name}".*?</section>', page.html, re.S)
    reader = Reader()
    reader.feed(inside[0])
    return " ".join(" ".join(reader.text).split())


def groups(n, centers, d=4, seed=0):
    """Gaussian groups of equal size, with `centers` along the first columns."""
    rng = np.random.default_rng(seed)
    means = np.zeros((len(centers), d))
    for i, center in enumerate(centers):
        means[i, : len(center)] = center
    return rng.normal(size=(n, d)) + means[np.arange(n) % len(centers)]


TWO = [(0.0,), (6.0,)]
THREE = [(0.0, 0.0), (9.0, 1.0), (4.0, 8.0)]
