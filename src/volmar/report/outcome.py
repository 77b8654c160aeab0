"""The results of a run that the report shows, and the times of its stages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.splits import MIN_EFFECT
from volmar.evidence.wording import p_value_text

if TYPE_CHECKING:
    from volmar.diagnostics import ClusterDescription, NumberComparison
    from volmar.evidence import ClusterNovelty, LabelTestResult
    from volmar.metrics.scores import LabelScore


# Level for p-values without a level of their own.
LEVEL = 0.05


@dataclass(frozen=True)
class Evidence:
    """A piece of evidence for or against a split, as a value and as a sentence.

    Its kind is "p-value" (test of one group against more), "join" (test of the border between two
    sets of clusters), "groups" (number of groups supported by the joins), "stability" (mean
    adjusted Rand index of resamples), or any other name. Only these four affect the conclusion.
    `level` is that of the test, 0.05 if None. `clusters` are the labels on the two sides of
    a join, or those in each of the groups. `effect` is the share by which the density at a border
    is below that of both sides, a lower limit that must be at least 0.2, and `repeats` the share
    of halves of the rows that find the border of a split in two again.
    """

    kind: str
    value: float | None
    sentence: str
    level: float | None = None
    clusters: tuple[tuple[Any, ...], ...] = ()
    effect: float | None = None
    repeats: float | None = None

    @property
    def is_supported(self) -> bool:
        """Whether the p-value is at most its level, 0.05 by default, and the effect is large."""
        level = LEVEL if self.level is None else self.level
        is_large = self.effect is None or self.effect >= MIN_EFFECT
        return self.value is not None and self.value <= level and is_large

    @property
    def p_text(self) -> str:
        """The p-value and its level as text; empty if there is no value."""
        if self.value is None:
            return ""
        return p_value_text(self.value, self.level)


@dataclass(frozen=True, eq=False)
class BestSplit:
    """The best split in two of rows without evidence for more than one group.

    `labels` (0 or 1) and `scores` are those of the rows of the outcome; `command` makes the split.
    """

    model: Any
    labels: NDArray
    scores: NDArray
    command: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome:
    """All results of a run: options, data, clusters and evidence.

    Only `X` (rows that the method was fitted to, dense or CSR, without NaN) and `labels` are
    required. Sections of the page without data are left out.

    `n_rows` and `n_columns` are the shape of the source; `X` may have fewer rows (dropped rows, or
    a sample) and other columns. `scores` is the `decision_function` of the rows. `model` is the
    fitted estimator, or a pipeline that ends in one, None if there was no split. `clusterer` is
    unfitted, with the number of clusters that was found; it is fitted to `fit_rows` to measure
    stability, to find real differences and to compare other numbers of clusters. The page warns if
    fewer than `n_found` clusters have rows. ``X * scales + offsets`` is in the units of the
    source.

    `columns` are all columns of the source for the rows of `X`, used or not, in their original
    units, with `column_names`, and `used` says which were used for clustering; `left_out` has the
    reasons for the others. `categorical` are the categorical columns that are used; if None, they
    are taken from features named "column=value". `category_features` are features made of several
    categorical columns. `joins` are tests of the borders, drawn by `save_pictures`, and `outlying`
    marks rows that belong to no cluster whatever `X` is.
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
    outlying: NDArray | None = None

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

    @property
    def estimator(self) -> Any:
        """The clusterer: `model`, or its last step if it is a pipeline."""
        steps = getattr(self.model, "steps", None)
        return steps[-1][1] if steps else self.model

    def in_two(self) -> Outcome:
        """Return the outcome with the clusters of `best_split`."""
        assert self.best_split is not None
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
        """Distance of each row from the border: its score, or its best minus second best score.

        Signed for two clusters (positive for the second one), nonnegative for more clusters, and
        zero for one cluster.
        """
        scores = np.asarray(self.scores, dtype=np.float64)
        if scores.ndim == 1 or scores.shape[1] == 1:
            return scores.ravel()
        if scores.shape[1] == 2:
            return scores[:, 1] - scores[:, 0]
        return np.diff(np.partition(scores, -2, axis=1)[:, -2:]).ravel()


# ----------------------------------------------------------------------------- the stages of a run


Progress = Callable[[str, int, int], None]


class StageTimes:
    """Seconds by stage, in the order of the stages.

    `progress` is called as ``progress(stage, done, total)``: with (0, 0) when a stage begins, and
    after each step if the steps are counted.
    """

    def __init__(self, progress: Progress | None = None):
        self.progress = progress
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[Callable[[int, int], None]]:
        """Time a stage; the yielded function reports progress as (done, total)."""

        def tell(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(name, done, total)

        tell(0, 0)
        start = time.perf_counter()
        try:
            yield tell
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
