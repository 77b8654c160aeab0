"""Test whether a split is real: learn it on one half of the rows and test the other half."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.pipeline import Pipeline

from volmar._checks import check_count, check_number, check_random_state
from volmar._clones import refuse_pairwise, seeded
from volmar._input import check_matrix
from volmar._notebook import html_card
from volmar._threads import one_thread
from volmar.evidence.dither import column_resolutions
from volmar.evidence.held_out import LARGE, LINEAR, N_SPLITS, Candidate, Scorer, held_out_test
from volmar.evidence.humps import deepest_valley
from volmar.evidence.walks import MAX_WALKS, fitted_border
from volmar.evidence.wording import HINT, p_value_text
from volmar.metrics import clustering_error
from volmar.rows.anywhere import draw_from_collection
from volmar.rows.blocks import is_dask

# Minimum number of rows.
FEWEST_ROWS = 80
# Share of rows at or above which two halves disagree about the border. Two labellings with
# clusters of equal size that differ in this share of the rows have an adjusted Rand index of 0.6.
UNSETTLED = 0.12


@dataclass(frozen=True, repr=False)
class SplitTestResult:
    """Outcome of the test of one group against more on held-out rows.

    Attributes
    ----------
    p_value : float
        P-value of one group against more, combined over all tests that were made.
    alpha : float
        Level of the test.
    p_values : tuple of float
        P-values of all tests. If both halves have found the same split, their scores are tested
        together.
    separation : float
        Worst-case probability of Theorem 2 along the held-out scores, cut at their deepest
        valley. 3/4 is the largest value for one symmetric mode.
    disagreement : float
        Share of rows that the first two halves assign to different sides: near 0 if both halves
        find the same split, and at most 0.5.
    scores : ndarray of shape (n,)
        Held-out scores of the first two halves, in standard deviations. For a curved split of
        more than 1,000 rows, scores of a random sample of 1,000 rows.
    has_way_around : bool
        Whether a valley was found whose sides are connected around it, like those of a ring
        (see the page *Evidence*). Such a valley counts as a p-value of 1.
    p_minimum : float
        Smallest p-value that the number of draws allows; 0 if unknown. A `p_value` equal to it is
        an upper bound.
    """

    p_value: float
    alpha: float
    p_values: tuple[float, ...]
    separation: float
    disagreement: float
    scores: NDArray = field(repr=False)
    has_way_around: bool = False
    p_minimum: float = 0.0

    @property
    def is_real(self) -> bool:
        """Whether one mode is rejected at the level."""
        return self.p_value <= self.alpha

    def __str__(self) -> str:
        """Return the outcome in sentences."""
        p_text = p_value_text(self.p_value, self.p_minimum, self.alpha)
        if self.is_real:
            remedy = ""
            if self.disagreement >= UNSETTLED:
                remedy = (
                    " There are groups, but it is not clear which split separates them. This "
                    "happens if there are more than two groups. Try another number of clusters, "
                    "or another method."
                )
            return (
                f"There is more than one group ({p_text}): held-out rows have a gap where the "
                "other half of the rows was split. The two halves disagree about "
                f"{100 * self.disagreement:.0f} % of the rows.{remedy}"
            )
        if self.has_way_around:
            return (
                "No evidence for more than one group: scores of held-out rows have two modes, but "
                "other rows connect the two sides around the gap, as in a ring."
            )
        if self.p_value <= HINT:
            return (
                f"Not enough evidence for more than one group ({p_text}): held-out rows hint at a "
                "gap that one group could have by chance. More rows are needed to decide."
            )
        return (
            f"No evidence for more than one group ({p_text}): where one half of the rows would be "
            "split, the other half has no gap. There may be groups that overlap, or that such a "
            "split does not separate."
        )

    def __repr__(self) -> str:
        """Return the outcome in short form; ``print`` shows it in sentences."""
        return f"SplitTestResult(is_real={self.is_real}, p_value={self.p_value:.4g})"

    def _repr_html_(self) -> str:
        """Return the sentences and the numbers as HTML for a notebook."""
        rows = [
            ["p-value", p_value_text(self.p_value, self.p_minimum)],
            ["level", f"{self.alpha:g}"],
            ["p-values of the tests", ", ".join(f"{p:.2g}" for p in self.p_values)],
            ["separation of held-out rows", f"{self.separation:.2f}"],
            ["rows about which the halves disagree", f"{100 * self.disagreement:.0f} %"],
        ]
        return html_card("Test of one group against more", [str(self)], rows=rows)


@one_thread()
def split_test(
    X: ArrayLike,
    estimator: Any = None,
    *,
    alpha: float = 0.05,
    n_splits: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> SplitTestResult:
    """Test whether rows form more than one group.

    The rows are divided at random into halves. A split is learnt on one half, and the scores of
    the other, held-out half are tested for one mode against more. If
    both halves learn the same split, the held-out scores of all rows are tested together. This is
    repeated, and the p-values are combined by a rule that is valid under any dependence.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, dense or CSR, at least 80. If X is a dask array or DataFrame, a random sample of
        20,000 rows is tested.
    estimator : clusterer or None, default=None
        Clusterer for two clusters that finds the split, or a pipeline that ends in one. If None,
        two splits are learnt, which share the level: the direction in which the half looks most
        like two groups of any size (70 % of the level), and the clearest pair of clusters of a
        partition into 2 to 10 clusters (30 %). This is the test of ``volmar.MSPC("auto")``.
    alpha : float, default=0.05
        Level of the test, at least 0.001. A smaller level needs more draws.
    n_splits : int or None, default=None
        Number of times the rows are divided into halves. If None, 3, or 1 for 20,000 rows or more.
    progress : callable, optional
        Function called with (done, total) before the first and after each random split in halves.
    random_state : int, RandomState or None, default=None
        Random seed of halves, starts and draws, and of the estimator if it has none.

    Returns
    -------
    SplitTestResult

    Notes
    -----
    The test does not detect groups that overlap so much that no direction has two modes. For
    groups that no hyperplane separates (moons, nested rings), pass an `estimator` with a kernel or
    a graph.

    Columns with few distinct values are dithered in the tests. A
    single such column is no evidence, but several that agree are. Drop duplicate rows
    first, because copies of a row may fall into both halves.

    If an estimator has an affine `decision_function`, `coef_` or two `cluster_centers_`, rows are
    scored by its hyperplane. Otherwise its split may be curved, and scores of a kernel or a graph
    could have modes that the rows do not have. The score of a held-out row is then its distance to
    the border between the two clusters, in the units of X, or of the
    input of the last step of a pipeline.

    A valley does not count if other rows connect its sides around it, as in a ring.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.datasets import make_blobs
    >>> from volmar import split_test
    >>> X, _ = make_blobs(300, n_features=5, random_state=0)
    >>> split_test(X, random_state=0).is_real
    True
    >>> noise = np.random.default_rng(0).normal(size=(300, 5))
    >>> split_test(noise, random_state=0).is_real
    False
    """
    # Minimum level. It takes tens of thousands of draws.
    check_number("alpha", alpha, low=0.001, high=1.0)
    if n_splits is not None:
        check_count("n_splits", n_splits)
    if estimator is not None:
        _check_estimator(estimator)
    if is_dask(X):
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        X = draw_from_collection(X, seed=seed).rows
    rows: Any = _checked_rows(X)
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    wanted = n_splits or (1 if rows.shape[0] >= LARGE else N_SPLITS)
    candidates = LINEAR
    if estimator is not None:
        candidates = (Candidate(lambda seen, rng: _learnt(seen.rows, estimator, rng)),)
    done = count()

    def tell() -> None:
        if progress is not None:
            progress(next(done), wanted)

    tell()
    found = held_out_test(
        rows, candidates, level=float(alpha), rng=rng, n_splits=wanted, stop_early=False, tell=tell
    )
    cuts = [deepest_valley(side) for side in found.sides]
    sides = [side > cut for side, cut in zip(found.sides, cuts, strict=True)]
    return SplitTestResult(
        found.p_value,
        float(alpha),
        found.p_values,
        found.separation,
        clustering_error(*sides),
        found.scores,
        found.has_way_around,
        found.p_minimum,
    )


def _checked_rows(X: ArrayLike) -> Any:
    rows: Any = check_matrix(X)
    n = rows.shape[0]
    if n < FEWEST_ROWS:
        raise ValueError(
            f"X has {n} rows, which is too few to test halves of them. Pass at least "
            f"{FEWEST_ROWS} rows."
        )
    spread = rows.max(axis=0) - rows.min(axis=0)
    if not (spread.count_nonzero() if sparse.issparse(spread) else spread.any()):
        raise ValueError(
            f"all {n} rows of X are the same and cannot be split. Check that X was loaded "
            "correctly."
        )
    return rows


def _check_estimator(estimator: Any) -> None:
    refuse_pairwise(estimator)
    model = seeded(estimator, 0)
    while isinstance(model, Pipeline):
        model = model[-1]
    n_clusters = model.get_params().get("n_clusters", 2)
    if not (isinstance(n_clusters, Integral) and n_clusters == 2):
        raise ValueError(
            f"estimator {type(model).__name__} has n_clusters={n_clusters!r}, but a split "
            "has two. Use n_clusters=2."
        )


def _learnt(X: Any, estimator: Any, rng: np.random.Generator) -> Scorer:
    """Fit the estimator to one half, and return its scorer."""
    model = seeded(estimator, int(rng.integers(2**31 - 1))).fit(X)
    raw = _raw_scorer(model)
    if raw is not None:
        score = _checked_scorer(raw, type(model).__name__)
        if _is_affine(score, X):
            return Scorer(score)
    return Scorer(_distance_scorer(model, X, rng), MAX_WALKS)


def _checked_scorer(score: Callable[[Any], Any], name: str) -> Callable[[Any], NDArray]:
    def scores(rows: Any) -> NDArray[np.float64]:
        found = np.asarray(score(rows), dtype=np.float64)
        if found.ndim == 2 and found.shape[1] == 1:
            found = found[:, 0]
        if found.ndim != 1:
            raise ValueError(
                f"estimator {name} scores {found.shape[1]} clusters, but a split has two. Use "
                "n_clusters=2."
            )
        if not np.isfinite(found).all():
            raise ValueError(
                f"estimator {name} returns the score {found[~np.isfinite(found)][0]} for a row. "
                "Check its parameters on these rows."
            )
        return found

    return scores


def _is_affine(score: Callable[[Any], NDArray], rows: Any) -> bool:
    """Return whether the score at the midpoint of two rows is the mean of their scores."""
    one, other = np.random.default_rng(0).choice(rows.shape[0], (2, 50))
    ends = score(rows[one]) + score(rows[other])
    middle = score(0.5 * (rows[one] + rows[other]))
    return bool(np.abs(middle - 0.5 * ends).max() <= 1e-4 * max(np.ptp(ends), np.ptp(middle)))


def _distance_scorer(model: Any, X: Any, rng: np.random.Generator) -> Callable[[Any], NDArray]:
    """Return a function of rows: their distances to the border between two fitted clusters."""
    steps, last = [], model
    while isinstance(last, Pipeline):
        steps += [last[:-1]] if len(last) > 1 else []
        last = last[-1]
    name = type(last).__name__
    if hasattr(last, "labels_"):
        labels = last.labels_
    elif hasattr(model, "predict"):
        labels = model.predict(X)
    else:
        raise TypeError(
            f"estimator {name} has no decision_function, coef_, cluster_centers_, labels_ or "
            "predict after fit. Use a clusterer of volmar, or one such as KMeans(2)."
        )

    def transform(rows: Any) -> Any:
        for step in steps:
            rows = step.transform(rows)
        return rows

    border = fitted_border(labels, X, column_resolutions(X), rng, name=name, transform=transform)
    return lambda rows: border.distances(transform(rows))


def _raw_scorer(model: Any) -> Callable[[Any], Any] | None:
    if hasattr(model, "decision_function"):
        return model.decision_function
    if isinstance(model, Pipeline):
        score = _raw_scorer(model[-1])
        if score is None or len(model) == 1:
            return score
        return lambda rows: score(model[:-1].transform(rows))
    if hasattr(model, "coef_"):
        w, b = np.atleast_2d(model.coef_).T, getattr(model, "intercept_", 0.0)
        return lambda rows: rows @ w + b
    if len(getattr(model, "cluster_centers_", ())) == 2:
        low, high = np.asarray(model.cluster_centers_, dtype=np.float64)
        # Nearer to `high`: |x - low|^2 - |x - high|^2 = 2 (x - middle)'w.
        w, middle = high - low, 0.5 * (low + high)
        return lambda rows: rows @ w - middle @ w
    return None
