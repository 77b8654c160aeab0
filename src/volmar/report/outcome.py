"""What a run of a clusterer leaves behind for its report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.diagnostics import ClusterDescription, LabelTestResult, NumberComparison

__all__ = ["BestSplit", "Evidence", "Outcome", "Score"]


@dataclass(frozen=True)
class Evidence:
    """One reason to trust a split, or not to.

    Attributes
    ----------
    kind : str
        "p-value" (of one group against more), "stability" (mean adjusted Rand index of
        resamples), or any other name; only these two are weighed by the page's own words.
    value : float or None
        The figure, where there is one.
    sentence : str
        What it says, in plain words.
    minimum : float, default=0
        Smallest value that the draws of a test allow: a p-value equal to it is an upper bound.
    """

    kind: str
    value: float | None
    sentence: str
    minimum: float = 0.0


@dataclass(frozen=True)
class Score:
    """A label-free score and what it means.

    Attributes
    ----------
    name : str
        Name of the score.
    value : float
        Its value; NaN where it could not be computed.
    meaning : str
        How to read it, in a sentence.
    """

    name: str
    value: float
    meaning: str


@dataclass(frozen=True, eq=False)
class BestSplit:
    """A split in two of rows that show no evidence for more than one group.

    Attributes
    ----------
    model : object
        The fitted estimator.
    labels : ndarray of shape (n,)
        Its two clusters, of the rows of the outcome.
    scores : ndarray of shape (n,)
        Its scores of these rows.
    command : str
        Command that gives this split.
    """

    model: Any
    labels: NDArray
    scores: NDArray
    command: str


@dataclass(frozen=True, eq=False)
class Outcome:
    """Everything that a run knows: the question, the data, the answer and its evidence.

    Attributes
    ----------
    title : str
        Heading of the report.
    command : str
        Command that gives the same answer again.
    asked : dict of str to str
        Options and their values, as text.
    source : str
        Where the rows come from.
    n_rows, n_columns : int
        Shape of the source; `X` may have fewer rows (dropped, or a sample) and other columns.
    notes : list of str
        What was done to the data, a line each.
    method : str
        Name of the method.
    parameters : dict
        Its parameters.
    seed : int
        Seed of all random draws.
    X : array of shape (n, d)
        Rows as the method saw them, dense or CSR, without NaN.
    feature_names : list of str
        Names of the columns of `X`.
    ids : ndarray of shape (n,)
        Names of the rows of `X`.
    id_name : str
        What such a name is called.
    labels : ndarray of shape (n,)
        Cluster of each row.
    scores : ndarray of shape (n,) or (n, k)
        `decision_function` of the rows.
    model : object or None
        The fitted estimator, or a pipeline that ends in one; None where nothing was split.
    n_found : int
        Number of clusters that were looked for or decided on; 1 where no split is supported. The
        page warns where fewer of them have rows.
    evidence : list of Evidence
        Reasons to trust the answer, or not to.
    quality : list of Score
        Scores that need no true labels.
    warnings : list of str
        What the run warned of.
    seconds : dict of str to float
        Time by stage.
    offsets, scales : ndarray of shape (d,), optional
        Of a linear preparation: ``X * scales + offsets`` is in the source's own units, in which
        means are then shown.
    description : ClusterDescription, optional
        What sets the clusters apart, by `volmar.diagnostics.describe_clusters` and of the source's
        own columns where they are known. Without it, the page describes the columns of `X`.
    best_split : BestSplit, optional
        Where all rows are one cluster: the split in two that the page shows as not supported.
    columns : DataFrame, array or CSR array of n rows, optional
        Columns of the source for the rows of `X`, used or not, in their own units. Without it,
        the page shows the columns of `X`.
    column_names : list of str, optional
        Names of `columns`; by default those of the DataFrame.
    used : list of bool, optional
        Whether the clusters were made from each of `columns`; by default all were.
    numbers : NumberComparison, optional
        Other numbers of clusters, by `volmar.diagnostics.compare_numbers`.
    joins : LabelTestResult, optional
        Which clusters are separated, by `volmar.diagnostics.label_test`; drawn by `save_pictures`.
    """

    title: str
    command: str
    asked: dict[str, str]
    source: str
    n_rows: int
    n_columns: int
    notes: list[str]
    method: str
    parameters: dict[str, Any]
    seed: int
    X: Any
    feature_names: list[str]
    ids: NDArray
    id_name: str
    labels: NDArray
    scores: NDArray
    model: Any
    n_found: int
    evidence: list[Evidence]
    quality: list[Score]
    warnings: list[str]
    seconds: dict[str, float]
    offsets: NDArray | None = None
    scales: NDArray | None = None
    description: ClusterDescription | None = None
    best_split: BestSplit | None = None
    columns: Any = None
    column_names: list[str] | None = None
    used: list[bool] | None = None
    numbers: NumberComparison | None = None
    joins: LabelTestResult | None = None

    def __post_init__(self) -> None:
        n, d = self.X.shape
        for name in ("ids", "labels", "scores"):
            found = len(getattr(self, name))
            if found != n:
                raise ValueError(
                    f"{name} must hold one entry a row of X, {n}, got {found}: pass those of the "
                    "rows that were clustered."
                )
        if len(self.feature_names) != d:
            raise ValueError(
                f"feature_names must name the {d} columns of X, got {len(self.feature_names)}."
            )
        for name in ("offsets", "scales"):
            units = getattr(self, name)
            if units is not None and np.shape(units) != (d,):
                raise ValueError(
                    f"{name} must have one entry a column of X, shape ({d},), got shape "
                    f"{np.shape(units)}."
                )
        if self.description is not None and not set(self.description.clusters) <= set(
            self.clusters.tolist()
        ):
            raise ValueError(
                f"description is of the clusters {self.description.clusters}, and labels has "
                f"{self.clusters.tolist()}: describe the same labels."
            )
        if self.best_split is not None and self.k > 1:
            raise ValueError(
                f"best_split is for rows that are one cluster, and labels has {self.k}: leave it "
                "out."
            )
        self._check_columns(n)
        if self.k > self.n_found:
            raise ValueError(
                f"n_found={self.n_found} is less than the {self.k} clusters in labels."
            )

    def _check_columns(self, n: int) -> None:
        if self.numbers is not None and self.numbers.n_all != n:
            raise ValueError(
                f"numbers compares clusters of {self.numbers.n_all} rows, and X has {n}: compare "
                "numbers of the same rows."
            )
        if self.columns is None:
            return
        rows, width = self.columns.shape
        if rows != n:
            raise ValueError(
                f"columns must have the {n} rows of X, got {rows}: pass those of the rows that "
                "were clustered."
            )
        for name in ("column_names", "used"):
            given = getattr(self, name)
            if given is not None and len(given) != width:
                raise ValueError(
                    f"{name} must have one entry for each of the {width} columns, got "
                    f"{len(given)}."
                )

    @property
    def estimator(self) -> Any:
        """The clusterer itself, the last step of a pipeline."""
        steps = getattr(self.model, "steps", None)
        return steps[-1][1] if steps else self.model

    def in_two(self) -> Outcome:
        """Return the outcome with the clusters of `best_split`."""
        if self.best_split is None:
            raise ValueError("the outcome has no best_split: pass one, of rows in one cluster.")
        return replace(
            self,
            labels=self.best_split.labels,
            scores=self.best_split.scores,
            model=self.best_split.model,
            n_found=2,
            description=None,
            best_split=None,
            joins=None,
        )

    @property
    def k(self) -> int:
        """Number of clusters that have rows."""
        return self.clusters.size

    @cached_property
    def clusters(self) -> NDArray:
        """The labels in use, in order."""
        return np.unique(self.labels)

    @cached_property
    def codes(self) -> NDArray:
        """Labels as positions in `clusters`."""
        return np.unique(self.labels, return_inverse=True)[1].ravel()

    @cached_property
    def lead(self) -> NDArray:
        """How far each row is from the border: the score, or the best less the second best.

        Signed for two clusters (positive for the second), not negative for more; zeros for one.
        """
        scores = np.asarray(self.scores, dtype=np.float64)
        if scores.ndim == 1:
            return scores
        if scores.shape[1] == 1:
            return scores[:, 0]
        if scores.shape[1] == 2:
            return scores[:, 1] - scores[:, 0]
        two = np.partition(scores, -2, axis=1)[:, -2:]
        return two[:, 1] - two[:, 0]
