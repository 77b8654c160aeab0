"""Is a split real? Learn it on one half of the rows, look for the gap on the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, check_random_state

from volmar.base.cross_fit import LARGE, N_SPLITS
from volmar.base.recursion import separation_along
from volmar.base.validation import check_choice, check_count, check_magnitude, check_number
from volmar.base.walk_scores import fitted_border
from volmar.diagnostics.stability import refuse_pairwise, seeded
from volmar.evidence import (
    column_resolutions,
    combine_p_values,
    dip_test,
    dithered_scores,
    has_way_around,
    hump_test,
)
from volmar.evidence.humps import N_DRAWS, deepest_valley
from volmar.metrics import clustering_error
from volmar.separation.two_group_direction import n_searched, two_group_direction

__all__ = ["SplitTestResult", "split_test"]

FEWEST_ROWS = 80
# Three thousand draws a half.
LEAST_ALPHA = 0.001
# Pairs of rows, and the share of the scores' range, by which curved scores are known.
N_PAIRS = 50
CURVED = 1e-4


@dataclass(frozen=True)
class Scorer:
    """What scores rows by a split that was learnt on others; zero is between the sides."""

    score: Callable[[Any], NDArray[np.float64]]
    is_curved: bool = False

    def __call__(self, rows: Any) -> NDArray[np.float64]:
        return self.score(rows)


@dataclass(frozen=True)
class SplitTestResult:
    """What the rows say about a split that they had no part in finding.

    Attributes
    ----------
    p_value : float
        Probability of humps this far apart where there is one; valid under the dependence of the
        halves and splits that it is combined of.
    alpha : float
        Level that was asked for.
    p_values : tuple of float
        Of every half of every split.
    separation : float
        Worst-case probability of Theorem 2 along the held-out scores, the mean over halves: 3/4
        is the most that one symmetric hump can reach.
    disagreement : float
        Share of rows that hyperplanes of the two halves put on different sides, the mean over
        splits: near 0 where both halves see the same split, up to 0.5.
    scores : ndarray of shape (n,)
        Held-out scores of the first split, in standard deviations, positive for the upper side.
    has_way_around : bool
        Whether one mode along the scores was rejected, but not the hypothesis of one piece: the
        sides are connected around the valley, as those of a ring are. The p-values of such halves
        are 1.
    """

    p_value: float
    alpha: float
    p_values: tuple[float, ...]
    separation: float
    disagreement: float
    scores: NDArray = field(repr=False)
    has_way_around: bool = False

    @property
    def is_real(self) -> bool:
        """Whether one hump is rejected at the level."""
        return self.p_value <= self.alpha

    def __str__(self) -> str:
        """Say it in words."""
        if self.is_real:
            return (
                f"There is more than one group (p = {self.p_value:.2g}): the rows of one half "
                f"part where the other half says. The two halves disagree about "
                f"{100 * self.disagreement:.0f} % of the rows."
            )
        if self.has_way_around:
            return (
                "Nothing here speaks for more than one group: scores of held-out rows have two "
                "modes, but rows connect the two sides around the gap, as those of a ring do."
            )
        return (
            f"Nothing here speaks for more than one group (p = {self.p_value:.2g}, more than "
            f"{self.alpha:g}): where one half of the rows would split, the other half has no gap. "
            "There may be groups that overlap, or that no such split shows."
        )


def split_test(
    X: ArrayLike,
    estimator: Any = None,
    *,
    alpha: float = 0.05,
    n_splits: int | None = None,
    test: str = "humps",
    progress: Callable[[int, int], None] | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> SplitTestResult:
    """Test whether rows fall into more than one group.

    The rows are parted at random into halves. A split is learnt on one half; the other half, which
    had no part in it, is projected on it, and its scores are tested for one hump against more. The
    halves change places, the parting is repeated, and the p-values are combined by a rule that is
    valid however they depend on each other (`volmar.evidence.combine_p_values`).

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, dense or CSR, at least 80.
    estimator : clusterer, optional
        What splits: any clusterer for two clusters, or a pipeline that ends in one. Not given, it
        is the direction in which the half looks most like two groups of any size, among those
        that lead to a high separation probability (those of `volmar.MSPC` and single features).
    alpha : float, default=0.05
        Level, at least 0.001. Below 0.0075 there are more draws, so that it can be reached. The
        least p-value of "dip" is 0.0003 up to 4,000 rows and 0.003 beyond 40,000.
    n_splits : int, optional
        How often the rows are parted; 3 if not given, 1 from 20,000 rows on.
    test : {"humps", "dip"}, default="humps"
        "humps": the mass of the valleys of a smoothed density, against draws from the nearest
        density with one hump (`volmar.evidence.hump_test`). "dip": Hartigan's dip, whose null is
        the uniform density: surely valid, and blind for small groups.
    progress : callable, optional
        Called with (done, wanted) after each random split into halves.
    random_state : int, RandomState or None, default=None
        Seed of the halves, the starts and the draws, and of the estimator where it has none of
        its own.

    Returns
    -------
    SplitTestResult

    Notes
    -----
    It cannot see groups that overlap so much that no direction has two humps, nor groups that no
    hyperplane shows (rings), unless `estimator` has a kernel, nor those far away with less than a
    twentieth of the rows, which count as outliers. Columns of few values are dithered where gaps
    are looked for (`volmar.evidence.dithered`): one alone is no evidence, several that agree are.
    Copies of a row fall into both halves: drop them first.

    Where an estimator has an affine `decision_function`, `coef_` or two `cluster_centers_`, scores
    are those of its hyperplane. Otherwise its split may be curved, and scores of a kernel or a
    graph have modes of their own. The score of a held-out row is then its distance to the border
    between the two clusters (`volmar.evidence.Border`), in the units of X, or of the last step
    of a pipeline. The p-value of a half is 1 if rows connect the sides around the valley, as those
    of a ring do (`volmar.evidence.has_way_around`).

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.datasets import make_blobs
    >>> from volmar.diagnostics import split_test
    >>> X, _ = make_blobs(300, n_features=5, random_state=0)
    >>> split_test(X, random_state=0).is_real
    True
    >>> noise = np.random.default_rng(0).normal(size=(300, 5))
    >>> split_test(noise, random_state=0).is_real
    False
    """
    check_number("alpha", alpha, low=LEAST_ALPHA, high=1.0)
    check_choice("test", test, ["humps", "dip"])
    if n_splits is not None:
        check_count("n_splits", n_splits)
    if estimator is not None:
        _check_estimator(estimator)
    rows: Any = _checked_rows(X)
    n = rows.shape[0]
    # Combined, the least p-value is three times 1 / (1 + n_draws).
    n_draws = max(N_DRAWS, math.ceil(3.0 / alpha))
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    p_values, separations, disagreements, first = [], [], [], np.empty(0)
    along_scores = []  # p-values before rows that connect the sides are looked for
    resolutions = column_resolutions(rows)
    wanted = n_splits or (1 if n >= LARGE else N_SPLITS)
    if progress is not None:
        progress(0, wanted)
    for split in range(wanted):
        order = rng.permutation(n)
        halves = np.sort(order[: n // 2]), np.sort(order[n // 2 :])
        scorers = [_scorer(_seen(rows, half, estimator, rng), estimator, rng) for half in halves]
        held_out = np.empty(n)
        everywhere = [scorer(rows) for scorer in scorers]
        for scorer, found, unseen in zip(scorers, everywhere, halves[::-1], strict=True):
            scores = found[unseen]
            if resolutions.any():
                scores = dithered_scores(scorer, rows[unseen], resolutions, rng)
            if test == "dip":
                p_value = float(dip_test(scores).p_value)
            else:
                p_value = hump_test(scores, rng, n_draws=n_draws).p_value
            along_scores.append(p_value)
            is_ring = scorer.is_curved and p_value <= alpha and has_way_around(rows, found)
            p_values.append(1.0 if is_ring else p_value)
            separations.append(separation_along(scores, scores > 0))
            held_out[unseen] = _in_deviations(scores)
        sides = [found > 0 for found in everywhere]
        disagreements.append(clustering_error(sides[0], sides[1]))
        if split == 0:
            turned = np.mean(sides[0] == sides[1]) < 0.5
            held_out[halves[0]] *= -1.0 if turned else 1.0
            first = held_out
        if progress is not None:
            progress(split + 1, wanted)
    p_value = combine_p_values(p_values)
    return SplitTestResult(
        p_value,
        float(alpha),
        tuple(p_values),
        float(np.mean(separations)),
        float(np.mean(disagreements)),
        first,
        p_value > alpha >= combine_p_values(along_scores),
    )


def _checked_rows(X: ArrayLike) -> Any:
    rows: Any = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], input_name="X")
    check_magnitude(rows)
    n = rows.shape[0]
    if n < FEWEST_ROWS:
        raise ValueError(
            f"X has {n} rows, and halves of so few say nothing about humps. Pass at least "
            f"{FEWEST_ROWS} rows."
        )
    spread = rows.max(axis=0) - rows.min(axis=0)
    if not (spread.count_nonzero() if sparse.issparse(spread) else spread.any()):
        raise ValueError(
            f"all {n} rows of X are the same, there is nothing to split. Check that X was loaded "
            "rightly."
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
            f"estimator {type(model).__name__} has n_clusters={n_clusters!r}, and a split "
            "has two. Use n_clusters=2."
        )


def _in_deviations(scores: NDArray) -> NDArray:
    deviation = float(scores.std())
    return scores / deviation if deviation > 0 else scores


def _seen(rows: Any, half: NDArray, estimator: Any, rng: np.random.Generator) -> Any:
    """Return the rows of a half, or as many of them as the search for a direction looks at."""
    most = n_searched(rows.shape[1])
    if estimator is None and half.size > most:
        half = np.sort(rng.choice(half, most, replace=False))
    return rows[half]


def _scorer(X: Any, estimator: Any, rng: np.random.Generator) -> Scorer:
    """Fit to a half, and return what scores rows by it."""
    if estimator is None:
        direction = two_group_direction(X, rng)
        cut = deepest_valley(dithered_scores(direction.scores, X, column_resolutions(X), rng))
        return Scorer(lambda rows: direction.scores(rows) - cut)
    model = seeded(estimator, int(rng.integers(2**31 - 1))).fit(X)
    raw = _raw_scorer(model)
    if raw is not None:
        score = _checked_scorer(raw, type(model).__name__)
        if _is_affine(score, X):
            return Scorer(score)
    return Scorer(_distance_scorer(model, X, rng), is_curved=True)


def _checked_scorer(score: Callable[[Any], Any], name: str) -> Callable[[Any], NDArray]:
    def scores(rows: Any) -> NDArray[np.float64]:
        found = np.asarray(score(rows), dtype=np.float64)
        if found.ndim == 2 and found.shape[1] == 1:
            found = found[:, 0]
        if found.ndim != 1:
            raise ValueError(
                f"estimator {name} scores {found.shape[1]} clusters, and a split has two. Use "
                "n_clusters=2."
            )
        if not np.isfinite(found).all():
            raise ValueError(
                f"estimator {name} scores a row by {found[~np.isfinite(found)][0]}. Check its "
                "parameters on these rows."
            )
        return found

    return scores


def _is_affine(score: Callable[[Any], NDArray], rows: Any) -> bool:
    """Whether the score of a middle is the middle of the scores."""
    one, other = np.random.default_rng(0).choice(rows.shape[0], (2, N_PAIRS))
    ends = score(rows[one]) + score(rows[other])
    middle = score(0.5 * (rows[one] + rows[other]))
    return bool(np.abs(middle - 0.5 * ends).max() <= CURVED * max(np.ptp(ends), np.ptp(middle)))


def _distance_scorer(model: Any, X: Any, rng: np.random.Generator) -> Callable[[Any], NDArray]:
    """Return what measures distances to the border between two fitted clusters."""
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
            "predict after fit. Use a clusterer, such as those of volmar or KMeans(2)."
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
