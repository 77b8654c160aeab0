"""What a run of a clusterer leaves behind for its report."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.wording import p_value_text

if TYPE_CHECKING:
    from volmar.diagnostics import (
        ClusterDescription,
        ClusterNovelty,
        LabelSuggestions,
        LabelTestResult,
        NumberComparison,
    )
    from volmar.metrics import LabelScore

__all__ = ["LEVEL", "BestSplit", "Evidence", "Outcome", "too_few_rows"]

# Level of a p-value that comes without one.
LEVEL = 0.05


@dataclass(frozen=True)
class Evidence:
    """One reason to trust a split, or not to.

    Attributes
    ----------
    kind : str
        "p-value" (of one group against more), "join" (of the border between some of the clusters
        shown), "groups" (number of groups that such joins support), "stability" (mean adjusted
        Rand index of resamples), or any other name; only these four are weighed by the page.
    value : float or None
        The value, where there is one.
    sentence : str
        What it says, in plain words.
    minimum : float, default=0
        Smallest value that the draws of a test allow: a p-value equal to it is an upper bound.
    level : float, optional
        Level that a p-value is compared with, shown beside it.
    clusters : tuple of tuples
        Labels on the two sides of a join; the clusters in each of the groups.
    disagreement : float, optional
        Share of the rows that two halves of them assign to different sides of a split in two.
    """

    kind: str
    value: float | None
    sentence: str
    minimum: float = 0.0
    level: float | None = None
    clusters: tuple[tuple[Any, ...], ...] = ()
    disagreement: float | None = None

    @property
    def is_supported(self) -> bool:
        """Whether a p-value is at most its level, 0.05 where none is given."""
        level = LEVEL if self.level is None else self.level
        return self.value is not None and self.value <= level

    @property
    def p_text(self) -> str:
        """A p-value and its level in words; empty where there is no value."""
        if self.value is None:
            return ""
        return p_value_text(self.value, self.minimum, self.level)


def too_few_rows(n: int) -> Evidence:
    """Return what stands for the test of a split of so few rows."""
    return Evidence("p-value", None, f"{n} rows are too few to test a split of them.")


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


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome:
    """Everything that a run knows: the question, the data, the answer and its evidence.

    Only `X` and `labels` are needed; the page leaves out what is not given.

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
        Shape of the source; `X` may have fewer rows (dropped, or a sample) and other columns. By
        default that of `X`.
    notes : list of str
        What was done to the data, a line each.
    method : str
        Name of the method; by default that of the class of `model`.
    parameters : dict
        Its parameters.
    seed : int
        Seed of all random draws.
    X : array of shape (n, d)
        Rows as the method saw them, dense or CSR, without NaN.
    feature_names : list of str
        Names of the columns of `X`; x0, x1, ... by default.
    ids : ndarray of shape (n,)
        Names of the rows of `X`; their numbers from 0 by default.
    id_name : str
        What such a name is called.
    labels : ndarray of shape (n,)
        Cluster of each row.
    scores : ndarray of shape (n,) or (n, k)
        `decision_function` of the rows; zeros by default.
    model : object or None
        The fitted estimator, or a pipeline that ends in one; None where nothing was split.
    clusterer : clusterer, optional
        Not fitted, with the number of clusters that was found: it clusters rows again where that
        is needed for stability, real differences and other numbers of clusters.
    fit_rows : array of shape (n, d), optional
        Rows that `clusterer` is fitted to, where they are not `X` itself.
    fit_seconds : float
        How long the fit took; what takes many fits is left out where it is long.
    n_found : int
        Number of clusters that were looked for or decided on; 1 where no split is supported. The
        page warns where fewer of them have rows. By default the number in `labels`.
    evidence : list of Evidence
        Reasons to trust the answer, or not to.
    quality : list of volmar.metrics.LabelScore
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
    left_out : dict of str to str
        Columns of the source that are not used, with the reason.
    categorical : tuple of str, optional
        Columns of the source that are used as categories. Not given, features named
        "column=value" are taken to be made of them.
    category_features : dict of str to tuple of str
        Features that several columns of categories make together, and these columns.
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
        Which clusters are separated, by `volmar.evidence.label_test`; drawn by `save_pictures`.
    novelty : ClusterNovelty, optional
        Calibrated p-values of rows in the clusters, by `volmar.evidence.calibrate_novelty`.
    suggestions : LabelSuggestions, optional
        Rows to label first, by `volmar.diagnostics.label_suggestions`.
    seeds : ndarray of shape (n,), optional
        Labels that rows were given, -1 for all others; these are not suggested.
    """

    title: str = "Clusters"
    command: str = ""
    asked: dict[str, str] = field(default_factory=dict)
    source: str = "the rows"
    n_rows: int = 0
    n_columns: int = 0
    notes: list[str] = field(default_factory=list)
    method: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    X: Any
    feature_names: list[str] = field(default_factory=list)
    ids: Any = None
    id_name: str = "row"
    labels: NDArray
    scores: Any = None
    model: Any = None
    clusterer: Any = None
    fit_rows: Any = None
    fit_seconds: float = 0.0
    n_found: int = 0
    evidence: list[Evidence] = field(default_factory=list)
    quality: list[LabelScore] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    offsets: NDArray | None = None
    scales: NDArray | None = None
    description: ClusterDescription | None = None
    best_split: BestSplit | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    categorical: tuple[str, ...] | None = None
    category_features: dict[str, tuple[str, ...]] = field(default_factory=dict)
    columns: Any = None
    column_names: list[str] | None = None
    used: list[bool] | None = None
    numbers: NumberComparison | None = None
    joins: LabelTestResult | None = None
    novelty: ClusterNovelty | None = None
    suggestions: LabelSuggestions | None = None
    seeds: NDArray | None = None

    def __post_init__(self) -> None:
        n, d = self.X.shape
        missing = {
            "n_rows": n,
            "n_columns": d,
            "method": "" if self.model is None else type(self.estimator).__name__,
            "feature_names": [f"x{j}" for j in range(d)],
            "ids": np.arange(n),
            "scores": np.zeros(n),
            "n_found": self.k,
            "fit_rows": self.X,
        }
        for name, value in missing.items():
            given = getattr(self, name)
            if given is None or (isinstance(given, (int, str, list)) and not given):
                object.__setattr__(self, name, value)
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
            novelty=None,
            suggestions=None,
            seeds=None,
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
        if scores.ndim == 1 or scores.shape[1] == 1:
            return scores.ravel()
        if scores.shape[1] == 2:
            return scores[:, 1] - scores[:, 0]
        return np.diff(np.partition(scores, -2, axis=1)[:, -2:]).ravel()
