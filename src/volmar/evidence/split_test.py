"""Test whether rows form more than one group: a border on held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.pipeline import Pipeline

from volmar._checks import check_number, check_random_state
from volmar._clones import refuse_pairwise, seeded
from volmar._input import check_matrix
from volmar._notebook import html_card
from volmar._threads import one_thread
from volmar.evidence.linear import held_out_scores, hyperplane, searched
from volmar.evidence.sides import Half, Sides
from volmar.evidence.space import Rows, sampled_numbers, smallest_cluster, space_of
from volmar.evidence.splits import (
    AGREEMENT,
    FEWEST_IN_HALF,
    MIN_EFFECT,
    Found,
    halves,
    held_out_distances,
)
from volmar.evidence.wording import HINT, p_value_text
from volmar.rows.anywhere import draw_from_collection
from volmar.rows.blocks import is_dask

# Minimum number of rows.
FEWEST_ROWS = 2 * FEWEST_IN_HALF
# Maximum number of halvings for an estimator, which is fitted to each half.
MAX_HALVINGS = 3
# Below this share of halves that find a border again, there is doubt about where it is.
UNSETTLED = 0.75

Progress = Callable[[int, int], None]


@dataclass(frozen=True, repr=False)
class SplitTestResult:
    """Outcome of the test of one group against more.

    Attributes
    ----------
    p_value : float
        P-value of the clearest border.
    alpha : float
        Level of the test.
    effect : float
        Share by which the density at the border is below that of its sparser side, a lower 90 %
        limit: 1 for an empty gap, 0 or less without a valley; -1 if no border was found.
    repeats : float
        Share of the halves of the rows in which the border is found again; NaN if not needed.
    scores : ndarray
        Signed distances of held-out rows to the border that the other half has found, for two
        halves; empty if no border was found.
    """

    p_value: float
    alpha: float
    effect: float
    repeats: float
    scores: NDArray = field(repr=False)

    @property
    def is_real(self) -> bool:
        """Whether the p-value is at most the level, and the effect at least 0.2."""
        return self.p_value <= self.alpha and self.effect >= MIN_EFFECT

    def __str__(self) -> str:
        """Return the outcome in sentences."""
        p_text = p_value_text(self.p_value, level=self.alpha)
        if self.is_real:
            remedy = ""
            if self.repeats < UNSETTLED:
                remedy = (
                    f" Only {100 * self.repeats:.0f} % of the halves of the rows find this border "
                    "again. There are groups, but it is not clear which split separates them. "
                    "This happens if there are more than two groups. Try another number of "
                    "clusters, or another method."
                )
            return (
                f"There is more than one group ({p_text}): the density at the border between them "
                f"is at least {100 * self.effect:.0f} % below that of both sides.{remedy}"
            )
        if self.p_value <= HINT and self.effect > 0:
            return (
                f"Not enough evidence for more than one group ({p_text}): the rows hint at a "
                "gap that one group could have by chance. More rows are needed to decide."
            )
        return (
            f"No evidence for more than one group ({p_text}): there is no border with a density "
            "clearly below that of both sides. There may be groups that overlap."
        )

    def __repr__(self) -> str:
        """Return the outcome in short form; ``print`` shows it in sentences."""
        return f"SplitTestResult(is_real={self.is_real}, p_value={self.p_value:.4g})"

    def _repr_html_(self) -> str:
        """Return the sentences and the numbers as HTML for a notebook."""
        rows = [
            ["p-value", p_value_text(self.p_value)],
            ["level", f"{self.alpha:g}"],
            ["effect", f"{self.effect:.2f}"],
            ["halves that find the border", "-"]
            if np.isnan(self.repeats)
            else ["halves that find the border", f"{100 * self.repeats:.0f} %"],
        ]
        return html_card("Test of one group against more", [str(self)], rows=rows)


@one_thread()
def split_test(
    X: ArrayLike,
    estimator: Any = None,
    *,
    alpha: float = 0.05,
    progress: Progress | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> SplitTestResult:
    """Test whether rows form more than one group.

    A border between groups counts if it is significant *and* the density there is clearly below
    that of both sides, measured along the data. The border is learnt on one half of the rows and
    tested on the other.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, dense or CSR, at least 24. If X is a dask array or DataFrame, a random sample of
        20,000 rows is drawn.
    estimator : clusterer or None, default=None
        Clusterer for two clusters that finds the border, or a pipeline that ends in one. If None,
        borders of any shape are searched by neighbours, and hyperplanes where none is confirmed:
        the test of the first split of `volmar.AutoClusterer`.
    alpha : float, default=0.05
        Level of the test.
    progress : callable, optional
        Function called with (done, total) before the first and after each fit.
    random_state : int, RandomState or None, default=None
        Random seed of halves and starts, and of the estimator if it has none.

    Returns
    -------
    SplitTestResult

    Notes
    -----
    The test does not detect groups that overlap so much that the density between them is not
    lower.

    Ties in a column are spread over the interval around their value. A single
    column of few values is no evidence, but several that agree are. Drop duplicate rows
    first, because copies of a row may fall into both halves.

    Held-out rows are on the side of an estimator that their nearest rows in the other half are on.
    They are counted by their distance to the border along a neighbour graph, and in more than
    three columns along the linear discriminant of the two sides.

    Of many rows, a sample is tested: 20,000 rows of up to three columns, 5,000 of more.

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
    check_number("alpha", alpha, low=0.0, high=1.0, open_low=True)
    if estimator is not None:
        _check_estimator(estimator)
    if is_dask(X):
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        X = draw_from_collection(X, seed=seed).rows
    given: Any = _checked_rows(X)
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    numbers = sampled_numbers(given, rng)
    given = given[numbers]
    space = space_of(given, int(rng.integers(2**31 - 1)))
    rows = space.spread(space.columns(given), rng)
    tell: Progress = progress or (lambda done, wanted: None)  # noqa: ARG005
    if estimator is None:
        tell(0, 1)
        found, scores = _searched(rows, float(alpha), rng)
        tell(1, 1)
    else:
        found, scores = _of_estimator(given, rows, estimator, rng, tell)
    p_value, effect, repeats = (float(one) for one in found)
    return SplitTestResult(p_value, float(alpha), effect, repeats, scores)


def _searched(rows: Rows, alpha: float, rng: np.random.Generator) -> tuple[Found, NDArray]:
    """Return the evidence for the clearest border, and scores of held-out rows."""
    min_rows = smallest_cluster(len(rows.X))
    best = searched(rows, min_rows, alpha, rng)
    order = best.confirmed or sorted(range(len(best.found)), key=lambda j: -best.found[j].effect)
    if best.partition is None:
        scores = held_out_scores(rows.X, rng, search=best.search or hyperplane)
        return (best.found[order[0]] if order else Found(1.0, -1.0, np.nan)), scores
    j = order[0]
    return best.found[j], held_out_distances(rows.near, best.partition, j, min_rows, rng)


def _of_estimator(
    X: Any, rows: Rows, estimator: Any, rng: np.random.Generator, tell: Progress
) -> tuple[Found, NDArray]:
    """Return the evidence for the border of an estimator, and scores of held-out rows."""
    pairs = list(islice(halves(X.shape[0], rng), 2 * MAX_HALVINGS))
    wanted = 1 + len(pairs)
    tell(0, wanted)
    labels = _fitted_labels(X, estimator, rng)
    tell(1, wanted)
    if labels.max() == 0:  # one cluster
        return Found(1.0, -1.0, 0.0), np.zeros(0)
    found = []
    for done, (learnt, unseen) in enumerate(pairs, start=2):
        own = _fitted_labels(X[learnt], estimator, rng)
        tell(done, wanted)
        known = own >= 0
        each = [own[known & (labels[learnt] == side)] for side in (0, 1)]
        if min(one.size for one in each) == 0:
            continue
        upper = [np.mean(one == 1) for one in each]
        if abs(upper[1] - upper[0]) >= 2.0 * AGREEMENT - 1.0:
            own = own if upper[1] > upper[0] else 1 - own
            found.append(Half(learnt[known], own[known], unseen))
    sides = Sides(rows, labels, found, len(pairs), rng)
    border, groups = np.array([-1, 1]), np.arange(2)
    repeats = len(found) / max(len(pairs), 1)
    evidence = sides.evidence(border, groups, 0, 1)
    distances = [one.distances(border) for one in sides.half_borders[:2]]
    return Found(*evidence, repeats), np.concatenate([*distances, np.zeros(0)])


def _fitted_labels(X: Any, estimator: Any, rng: np.random.Generator) -> NDArray[np.int64]:
    """Fit the estimator for two clusters, and return the labels 0 and 1."""
    model = last = seeded(estimator, int(rng.integers(2**31 - 1))).fit(X)
    while isinstance(last, Pipeline):
        last = last[-1]
    name = type(last).__name__
    if hasattr(last, "labels_"):
        labels = np.asarray(last.labels_)
    elif hasattr(model, "predict"):
        labels = np.asarray(model.predict(X))
    else:
        raise TypeError(
            f"estimator {name} has no labels_ or predict after fit. Use a clusterer of volmar, or "
            "one such as KMeans(2)."
        )
    known = labels >= 0  # -1 is noise
    names, codes = np.unique(labels[known], return_inverse=True)
    if names.size == 0:
        raise ValueError(
            f"estimator {name} labelled all rows as noise. Check its parameters on these rows."
        )
    if names.size > 2:
        raise ValueError(
            f"estimator {name} found {names.size} clusters, but a split has two. Use n_clusters=2."
        )
    found = np.full(labels.size, -1)
    found[known] = codes
    return found


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
