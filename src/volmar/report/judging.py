"""Scores, stability and descriptions of the clusters that a report shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from volmar._clones import repeatable_rows
from volmar._warn import collecting
from volmar.diagnostics import (
    ClusterDescription,
    NumberComparison,
    compare_numbers,
    describe_clusters,
    stability,
)
from volmar.evidence import label_test
from volmar.metrics import label_free_scores
from volmar.metrics.scores import LabelScore
from volmar.report.outcome import BestSplit, Evidence, Outcome, StageTimes


def judged(outcome: Outcome, times: StageTimes) -> Outcome:
    """Return the outcome with scores, stability, a description and other numbers of clusters."""
    evidence, description, numbers = list(outcome.evidence), None, None
    n = outcome.X.shape[0]
    quality: list[LabelScore] = []
    with times.stage("judging"), collecting():
        if outcome.k > 1:
            shown = ("separation score", "silhouette", "Calinski-Harabasz")
            scores = label_free_scores(outcome.X, outcome.labels, seed=outcome.seed)
            quality = [one for one in scores if one.name in shown]
    if outcome.k > 1:
        if n <= _most_repeated(outcome):
            with times.stage("resampling") as tell:
                evidence += _stability(outcome, tell)
        with times.stage("describing") as tell:
            description = described(outcome, tell)
    if outcome.clusterer is not None:
        with times.stage("comparing numbers") as tell:
            numbers = _numbers(outcome, tell)
    return replace(
        outcome,
        quality=quality,
        evidence=evidence,
        description=description,
        numbers=numbers,
        seconds={**outcome.seconds, **times.seconds},
    )


def _most_repeated(outcome: Outcome) -> int:
    """Return the maximum number of rows of fits that are repeated; 0 without a clusterer."""
    if outcome.clusterer is None:
        return 0
    return repeatable_rows(outcome.clusterer, outcome.fit_rows.shape[1], outcome.k)


def with_joins(outcome: Outcome, times: StageTimes) -> Outcome:
    """Return the outcome with the tests of all borders between clusters, for their plot."""
    if outcome.k < 2 or outcome.joins is not None:
        return outcome
    with times.stage("testing borders") as tell:
        try:
            joins = label_test(outcome.X, outcome.labels, progress=tell, random_state=outcome.seed)
        except ValueError:  # too few rows
            return outcome
    return replace(outcome, joins=joins)


def _numbers(outcome: Outcome, tell: Any) -> NumberComparison | None:
    """Return the comparison of numbers of clusters, or None if it is not possible."""
    try:
        with collecting():
            return compare_numbers(
                outcome.fit_rows,
                clone(outcome.clusterer),
                progress=tell,
                random_state=outcome.seed,
            )
    except (ValueError, TypeError):
        return None


def _stability(outcome: Outcome, tell: Any) -> list[Evidence]:
    try:
        with collecting():
            result = stability(
                outcome.fit_rows,
                outcome.clusterer,
                n_resamples=10,
                progress=tell,
                random_state=outcome.seed,
            )
    except ValueError:
        return []  # too few rows to leave some out
    return [Evidence("stability", float(result.agreement), str(result))]


def described(outcome: Outcome, tell: Any = None) -> ClusterDescription:
    """Return the differences between the clusters in the columns of the source."""
    in_own_units = outcome.columns is not None
    options: dict[str, Any] = {
        "model_input": outcome.fit_rows,
        "feature_names": outcome.column_names if in_own_units else outcome.feature_names,
        "ids": outcome.ids,
        # All fits together use each row once, or twice if clusters are not found again.
        "max_rows": max(min(10_000, _most_repeated(outcome)), 2),
        "progress": tell,
        "random_state": outcome.seed,
    }
    shown = outcome.columns if in_own_units else outcome.X
    with collecting():
        try:
            result = describe_clusters(
                shown, outcome.labels, estimator=outcome.clusterer, **options
            )
        except ValueError:  # the method takes no subset of so few rows
            result = describe_clusters(shown, outcome.labels, **options)
    if not in_own_units and outcome.offsets is not None and outcome.scales is not None:
        result = result.in_units(outcome.offsets, outcome.scales)
    return result


def best_split_of(outcome: Outcome, times: StageTimes, command: str) -> BestSplit | None:
    """Return the best split in two of a single cluster, or None if there are too many rows."""
    X, rows = outcome.X, outcome.fit_rows
    if outcome.k > 1 or X.shape[0] > _most_repeated(outcome):
        return None
    model = clone(outcome.clusterer).set_params(n_clusters=2)
    with times.stage("splitting in two"), collecting():
        try:
            model.fit(rows)
            scores = model.decision_function(X)
            labels = model.labels_ if rows is X else model.predict(X)
        except (ValueError, MemoryError):
            return None
    if np.unique(labels).size < 2:
        return None
    return BestSplit(model, labels, scores, command)
