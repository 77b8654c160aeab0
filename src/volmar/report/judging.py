"""From a fitted clusterer to the outcome that its report shows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import calinski_harabasz_score, silhouette_score

from volmar.diagnostics import (
    ClusterDescription,
    NumberComparison,
    compare_numbers,
    describe_clusters,
    label_test,
    stability,
)
from volmar.metrics import separation_score
from volmar.report.outcome import BestSplit, Evidence, Outcome, Score
from volmar.report.stages import StageTimes

__all__ = [
    "Judged",
    "best_split_of",
    "described",
    "judged_outcome",
    "quality_scores",
    "with_joins",
]

# Resamplings, made where rows are few and a fit takes less than these seconds.
N_RESAMPLES, LONG_FIT = 10, 3.0
MOST_ROWS = 20_000
# Rows that are clustered again to test which differences are real, in subsets or halves.
N_AGAIN, N_SUBSETS, N_HALVINGS = 10_000, 8, 5
# A split that no evidence supports is fitted where the search took less than these seconds.
QUICK_SEARCH = 5.0
# Other numbers of clusters are tried on so many rows for as long as this.
N_COMPARED, MAX_SECONDS = 5000, 10.0
# Rows of the silhouette, which takes all pairs of them.
N_SILHOUETTE = 2000


@dataclass(frozen=True, eq=False)
class Judged:
    """A clustering that is judged: the rows, their clusters, and how to find them again.

    Attributes
    ----------
    X : array of shape (n, d)
        The rows.
    labels : ndarray of shape (n,)
        Their clusters.
    estimator : clusterer or None
        Unfitted, with the number of clusters that was found; None where the rows cannot be
        clustered again.
    seed : int
        Random seed of everything that draws rows.
    fit_seconds : float
        How long the fit took; what takes many fits is left out where it is long.
    fit_rows : array of shape (n, d), optional
        Rows that the method is fitted to, where they are not `X` itself.
    columns : DataFrame or array of n rows, optional
        What is described, in its own units; `X` by default.
    names : list of str
        Names of these columns.
    ids : ndarray of shape (n,), optional
        Names of the rows.
    units : tuple of two ndarrays, optional
        Offsets and scales that give `X` its own units again, where `columns` is None.
    """

    X: Any
    labels: NDArray
    estimator: Any
    seed: int = 0
    fit_seconds: float = 0.0
    fit_rows: Any = None
    columns: Any = None
    names: list[str] = field(default_factory=list)
    ids: Any = None
    units: tuple[NDArray, NDArray] | None = None

    @property
    def rows(self) -> Any:
        """What the method is fitted to."""
        return self.X if self.fit_rows is None else self.fit_rows

    @property
    def is_split(self) -> bool:
        """Whether there is more than one cluster."""
        return bool(np.ptp(self.labels) > 0)


def judged_outcome(outcome: Outcome, judged: Judged, times: StageTimes) -> Outcome:
    """Return the outcome with scores, stability and a description.

    Parameters
    ----------
    outcome : Outcome
        What is known from the fit.
    judged : Judged
        The same clustering.
    times : StageTimes
        Keeps the time of each stage.

    Returns
    -------
    Outcome
        `quality`, `evidence`, `description` and `seconds` are filled in.
    """
    evidence, description, numbers = list(outcome.evidence), None, None
    with times.stage("judging"):
        quality = quality_scores(judged.X, judged.labels)
    is_quick = judged.estimator is not None and judged.fit_seconds < LONG_FIT
    if judged.is_split:
        if is_quick and judged.X.shape[0] <= MOST_ROWS:
            with times.stage("resampling") as tell:
                evidence += _stability(judged, tell)
        with times.stage("describing") as tell:
            description = described(judged, tell)
    spent = judged.fit_seconds * min(1.0, N_COMPARED / judged.X.shape[0])
    if judged.estimator is not None and spent < MAX_SECONDS:
        with times.stage("comparing numbers") as tell:
            numbers = _numbers(judged, tell)
    return replace(
        outcome,
        quality=quality,
        evidence=evidence,
        description=description,
        numbers=numbers,
        columns=judged.columns,
        column_names=None if judged.columns is None else judged.names,
        seconds={**outcome.seconds, **times.seconds},
    )


def with_joins(outcome: Outcome, times: StageTimes) -> Outcome:
    """Return the outcome with the test of every border between clusters, for its picture."""
    if outcome.k < 2 or outcome.joins is not None:
        return outcome
    with times.stage("testing borders") as tell:
        try:
            joins = label_test(outcome.X, outcome.labels, progress=tell, random_state=outcome.seed)
        except ValueError:  # too few rows
            return outcome
    return replace(outcome, joins=joins)


def _numbers(judged: Judged, tell: Any) -> NumberComparison | None:
    """Return other numbers of clusters, None where the method takes none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compare_numbers(
                judged.rows,
                clone(judged.estimator),
                max_rows=N_COMPARED,
                max_seconds=MAX_SECONDS,
                progress=tell,
                random_state=judged.seed,
            )
    except (ValueError, TypeError):
        return None


def quality_scores(X: Any, labels: NDArray) -> list[Score]:
    """Return scores of a labelling that need no true labels, none for a single cluster."""
    n, n_clusters = X.shape[0], np.unique(labels).size
    if n_clusters < 2:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = [
            Score(
                "separation score",
                separation_score(X, labels),
                "worst-case probability that a row is on the side of its cluster; 1 is perfect",
            )
        ]
        if n_clusters < n:
            size = min(n, N_SILHOUETTE)
            scores.append(
                Score(
                    "silhouette",
                    _silhouette(X, labels, size),
                    "how much nearer rows are to their own cluster than to the next; 1 is "
                    "perfect; of 2,000 rows at most",
                )
            )
            dense = X.toarray() if hasattr(X, "toarray") else X
            scores.append(
                Score(
                    "Calinski-Harabasz",
                    float(calinski_harabasz_score(dense, labels)),
                    "spread between clusters over that within; higher is better, no upper end",
                )
            )
    return scores


def _silhouette(X: Any, labels: NDArray, size: int) -> float:
    try:
        return float(silhouette_score(X, labels, sample_size=size, random_state=0))
    except ValueError:  # the sample has rows of a single cluster
        return float("nan")


def _stability(judged: Judged, tell: Any) -> list[Evidence]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = stability(
                judged.rows,
                judged.estimator,
                n_resamples=N_RESAMPLES,
                progress=tell,
                random_state=judged.seed,
            )
    except ValueError:
        return []  # too few rows to leave some out
    return [Evidence("stability", float(result.agreement), str(result))]


def described(judged: Judged, tell: Any = None) -> ClusterDescription:
    """Return what sets the clusters apart in the columns of the source.

    Which differences are real is tested where the estimator can cluster rows again, in little
    time.
    """
    n = len(judged.labels)
    # All fits together see each row once for sign flips, and `N_HALVINGS` times for mirrors.
    is_quick = judged.fit_seconds * min(1.0, N_AGAIN / n) < LONG_FIT
    estimator = judged.estimator if is_quick else None
    shown = judged.X if judged.columns is None else judged.columns
    options: dict[str, Any] = {
        "model_input": judged.rows,
        "feature_names": judged.names or None,
        "ids": judged.ids,
        "max_rows": N_AGAIN,
        "n_subsets": N_SUBSETS,
        "n_halvings": N_HALVINGS,
        "progress": tell,
        "random_state": judged.seed,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = describe_clusters(shown, judged.labels, estimator=estimator, **options)
        except ValueError:  # the method takes no subset of so few rows
            result = describe_clusters(shown, judged.labels, **options)
    if judged.columns is None and judged.units is not None:
        result = result.in_units(*judged.units)
    if not is_quick:
        note = "Which differences are real was not tested: it takes too long for this method."
        result = replace(result, note=note)
    return result


def best_split_of(judged: Judged, times: StageTimes, command: str) -> BestSplit | None:
    """Return the split in two that no evidence supports, where it takes little time."""
    if judged.is_split or judged.estimator is None:
        return None
    if judged.fit_seconds > QUICK_SEARCH or judged.X.shape[0] > MOST_ROWS:
        return None
    model = clone(judged.estimator).set_params(n_clusters=2)
    with times.stage("splitting in two"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model.fit(judged.rows)
            scores = model.decision_function(judged.X)
            labels = model.labels_ if judged.rows is judged.X else model.predict(judged.X)
        except (ValueError, MemoryError):
            return None
    if np.unique(labels).size < 2:
        return None
    return BestSplit(model, labels, scores, command)
