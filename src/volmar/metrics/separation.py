"""Scores of a labelling by how well a hyperplane separates the clusters, from their moments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from volmar._checks import check_flag, check_random_state, shown
from volmar._input import check_matrix
from volmar._memory import require_memory
from volmar._threads import one_thread
from volmar.metrics.contingency import encode_labels
from volmar.metrics.separation_bound import kappa2_bound, probability
from volmar.rows.anywhere import (
    as_rows,
    chosen_entries,
    has_sparse_rows,
    numbers_of_rows,
    row_wise,
    scramble,
    take_rows,
)
from volmar.rows.blocks import BlockRows, RowVector, as_beside, as_table, is_dask
from volmar.rows.blocks.sums import Distinct, Squares
from volmar.rows.blocks.table import KEPT_BYTES
from volmar.rows.protocol import RowSource
from volmar.rows.standardized import CONSTANT, is_wide, row_space
from volmar.solvers import solve_minimax_probability

# Maps deviations and means of the features of a pair to the features that are not constant.
_Varying: TypeAlias = Callable[[NDArray, NDArray], NDArray]
# Maps the numbers of two parts, and of two held-out parts, to their pair and the held-out parts.
_PairOf: TypeAlias = Callable[..., tuple[Any, ...]]

# Maximum cluster size with exact halves. The halves of larger clusters differ by less than 2 %.
EXACT_UP_TO = 10_000
# For smaller values of reg, rounding could hide a singular matrix from the Cholesky factorisation.
_RISKY_REG = 1e-8
_SINGULAR = (
    "the covariances of two clusters are singular and `reg` is too small. Some combination of "
    "features varies in neither cluster, so the score would be trivially 1. Pass reg=0.1 (at "
    "least 0.01), or drop duplicated and dependent features."
)


@one_thread()
def msp_score(
    X: Any,
    labels: ArrayLike,
    *,
    reg: float = 0.1,
    cross_fit: bool = False,
    random_state: int | np.random.RandomState | None = None,
) -> float:
    r"""Minimum separation probability of a labelling (MSPC definition 1).

    This is the worst-case accuracy of the best hyperplane between two clusters, over *all* pairs
    of distributions with the clusters' means and covariances (MSPC eq. 1 and 3):

    .. math::

        \kappa = \max_w \frac{w^\top (\mu_1 - \mu_2)}
                 {\sum_{k=1,2} \sqrt{w^\top (\Sigma_k + \lambda \Lambda) w}}, \qquad
        p = \frac{\kappa^2}{1 + \kappa^2}, \qquad \Lambda = \operatorname{diag}(\Sigma),

    where :math:`\Sigma` is the covariance of the rows of both clusters. With more than two
    clusters, each cluster is compared with the cluster from which it is separated worst, and the
    mean is weighted by size: :math:`\sum_i (n_i / n) \min_{j \ne i} p_{ij}`.

    Parameters
    ----------
    X : array-like, sparse matrix, dask array or DataFrame of shape (n, d)
        The rows.
    labels : array-like of shape (n,)
        Labels of any type, of at least two clusters.
    reg : float, default=0.1
        The paper's lambda, relative to each feature's variance; see `separation_score`.
    cross_fit : bool, default=False
        Whether to learn w from a random half of each cluster and to evaluate it on the moments of
        the other half; see `separation_score`.
    random_state : int, RandomState or None, default=None
        Random seed of the halves; not used without `cross_fit`.

    Returns
    -------
    float
        From 0 (every cluster has the mean of another one) to 1.

    See Also
    --------
    separation_score : A lower bound on this score that is robust to clusters of outliers.

    Notes
    -----
    The score does not depend on the units of the features.

    p is computed from estimated moments. It bounds the accuracy only for the true moments. If d is
    not small compared with n, p is too high, and near 1 even for random labels; use `cross_fit` in
    this case.

    A cluster of a few outliers has a high p, because its variance is small and its mean is far
    away. The labelling with the largest p is therefore often degenerate. Use `separation_score` to
    choose between labellings.

    The cost is O(n d² + k² d³). With more features than rows it is O(n² d + n³) per pair of
    clusters.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from volmar.metrics import msp_score
    >>> X, y = load_iris(return_X_y=True)
    >>> X, y = X[y != 0], y[y != 0]
    >>> round(msp_score(X, y), 2)
    0.72

    A single outlier has a higher probability than the species:

    >>> round(msp_score(X, X[:, 0] > 7.8), 2)
    0.87
    """
    return _score(X, labels, reg, cross_fit, random_state, is_bound=False)


@one_thread()
def separation_score(
    X: Any,
    labels: ArrayLike,
    *,
    reg: float = 0.1,
    cross_fit: bool = False,
    random_state: int | np.random.RandomState | None = None,
) -> float:
    r"""Lower bound on the separation probability that favours balance (MSPC theorem 2).

    This is theorem 2's bound at the best direction :math:`w = (\Sigma + \lambda\Lambda)^{-1} D`
    for these labels (MSPC eq. 4 and 5). Here :math:`D = \mu_1 - \mu_2`, :math:`r_1 + r_2 = 1` are
    the shares of the two clusters, :math:`\Sigma` is the covariance of the rows of both clusters,
    and :math:`\Lambda = \operatorname{diag}(\Sigma)`:

    .. math::

        R^2 = r_1 r_2\, D^\top (\Sigma + \lambda\Lambda)^{-1} D, \qquad
        \kappa_{LB}^2 = \frac{R^2}{2 \max(r_1, r_2) (1 - R^2)}, \qquad
        p_{LB} = \frac{\kappa_{LB}^2}{1 + \kappa_{LB}^2}.

    With more than two clusters, each cluster is compared with the cluster from which it is
    separated worst, and the mean is weighted by size:
    :math:`\sum_i (n_i / n) \min_{j \ne i} p_{ij}`.

    Parameters
    ----------
    X : array-like, sparse matrix, dask array or DataFrame of shape (n, d)
        The rows.
    labels : array-like of shape (n,)
        Labels of any type, of at least two clusters. If X is a dask collection, a dask array or
        Series is also accepted. Noise rows with a common label count as a cluster; leave them out
        if they should not.
    reg : float, default=0.1
        The paper's lambda, relative to each feature's variance. The default stabilises directions
        in which few rows vary. It is the same for both scores, so that
        ``separation_score <= msp_score``. Avoid 0: with d >= n every labelling is then perfectly
        separated. p falls as `reg` grows, so compare labellings at the same value.
    cross_fit : bool, default=False
        Whether to learn w from a random half of each cluster and to evaluate the bound on the
        moments of the other half, without regularisation. The halves are then swapped, and the two
        values averaged. Every cluster needs at least two rows. With many rows the value is higher
        than without `cross_fit`, which is regularised; do not compare the two. The half of a row
        depends only on the random seed and on the row number, not on the blocks of a dask
        collection.
    random_state : int, RandomState or None, default=None
        Random seed of the halves; not used without `cross_fit`.

    Returns
    -------
    float
        From 0 (every cluster has the mean of another one) to 1. Without `cross_fit` it is never
        above `msp_score` at the same `reg`.

    See Also
    --------
    msp_score : The probability bounded by this score.
    sklearn.metrics.calinski_harabasz_score : Better at choosing the number of convex clusters.

    Notes
    -----
    Use this score to choose between labellings with the same number of clusters, from restarts,
    different parameters or different methods. It is most useful if features have different units
    (the score does not depend on them) or if clusters are elongated. A cluster of a few outliers
    has a low score, because its small share enters the bound. To choose the *number* of clusters,
    Calinski-Harabasz is better if clusters are convex and the features have a meaningful scale.

    The bound is computed from estimated moments, and is too high if d is not small compared with
    n; use `cross_fit` in this case.

    The cost is O(n d² + k² d³), with one factorisation per pair of clusters. With more features
    than rows it is O(n² d + n³) per pair.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from volmar.metrics import separation_score
    >>> X, y = load_iris(return_X_y=True)
    >>> X, y = X[y != 0], y[y != 0]
    >>> round(separation_score(X, y), 2)
    0.72

    A single outlier has a much lower score:

    >>> round(separation_score(X, X[:, 0] > 7.8), 2)
    0.06
    """
    return _score(X, labels, reg, cross_fit, random_state, is_bound=True)


@dataclass(frozen=True)
class _Part:
    """Number of rows, mean and covariance of some rows."""

    size: int
    mean: NDArray
    covariance: NDArray


@dataclass(frozen=True)
class _Pair:
    """Two parts, standardised by the deviations of their joint rows, and regularised."""

    r1: float
    r2: float
    difference: NDArray
    covariance1: NDArray
    covariance2: NDArray
    kept: NDArray  # the features that are not constant
    scale: NDArray  # their standard deviations

    @property
    def within(self) -> NDArray:
        return self.r1 * self.covariance1 + self.r2 * self.covariance2


def _score(
    X: Any,
    labels: ArrayLike,
    reg: float,
    cross_fit: bool,
    random_state: int | np.random.RandomState | None,
    is_bound: bool,
) -> float:
    """Return the mean over clusters, weighted by size, of each cluster's worst probability."""
    if isinstance(reg, bool) or not isinstance(reg, Real) or not 0 <= reg <= 1e100:
        raise ValueError(
            f"reg must be a number between 0 and 1e+100, got {shown(reg)}. Use 0.1, the default."
        )
    check_flag("cross_fit", cross_fit)
    if is_dask(X):
        rows, of_rows, names, sizes = check_labelled_blocks(X, labels)
    else:
        X = check_matrix(X)
        of_rows, k = encode_labels(labels, "labels", X.shape[0])
        rows, names, sizes = as_rows(X), np.arange(k), np.bincount(of_rows)
    k = sizes.size
    if k < 2:
        raise ValueError(
            "labels must have at least 2 clusters, got 1. The score compares pairs of clusters."
        )
    if cross_fit:
        if sizes.min() < 2:
            raise ValueError(
                f"cross_fit=True needs at least 2 rows in every cluster, got {sizes.min()} in the "
                "smallest. Merge or drop such clusters, or pass cross_fit=False."
            )
        codes = row_wise(np.searchsorted, names, of_rows)
        of_rows, names = 2 * codes + random_halves(codes, sizes, random_state), np.arange(2 * k)
    if is_wide(rows):  # rows in memory, whose labels are the numbers of the parts
        pair_of = _span_pairs(rows, of_rows, reg)
    else:
        pair_of = _column_pairs(rows, of_rows, names, reg)
    worst = np.ones(k)
    for i, j in combinations(range(k), 2):
        if cross_fit:
            first, second = (2 * i, 2 * j), (2 * i + 1, 2 * j + 1)
            halves = (first, second), (second, first)
            p = 0.5 * sum(_probability(is_bound, *pair_of(*half)) for half in halves)
        else:
            p = _probability(is_bound, *pair_of((i, j)))
        worst[[i, j]] = np.minimum(worst[[i, j]], p)
    return float(sizes @ worst / sizes.sum())


def _column_pairs(rows: RowSource, labels: Any, names: Any, reg: float) -> _PairOf:
    """Return a function that makes pairs of parts from the covariances of the features."""
    parts = _parts(rows, labels, names)
    varying = _varying(rows, parts)

    def pair_of(learn: tuple[int, int], judge: tuple[int, ...] = ()) -> tuple[Any, ...]:
        one, two = (parts[i] for i in learn)
        return _pair(one, two, reg, varying), *(parts[i] for i in judge)

    return pair_of


def _span_pairs(rows: Any, labels: NDArray, reg: float) -> _PairOf:
    """Return the same function for more features than rows, in a basis of the rows of a pair.

    Rows are standardised by the pair, so that the regulariser is a multiple of the identity.
    Held-out parts are replaced by their projections, which have the same scores.
    """

    def pair_of(learn: tuple[int, int], judge: tuple[int, ...] = ()) -> tuple[Any, ...]:
        chosen = np.flatnonzero(np.isin(labels, [*learn, *judge]))
        X, own = take_rows(rows.X, chosen), labels[chosen]
        is_learnt = np.isin(own, learn).astype(np.float64)
        z = row_space(as_rows(X, sample_weight=is_learnt), constant=_rounding(rows))
        parts = [_part_of(z.T[own == i]) for i in (*learn, *judge)]
        one, two = parts[:2]
        r1 = one.size / (one.size + two.size)
        ridge = reg * np.eye(z.size)
        S1, S2 = one.covariance + ridge, two.covariance + ridge
        everything = np.arange(z.size), np.ones(z.size)
        pair = _Pair(r1, 1 - r1, one.mean - two.mean, S1, S2, *everything)
        if reg < _RISKY_REG:
            _refuse_singular(pair.within)
        return pair, *parts[2:]

    return pair_of


def _part_of(T: NDArray) -> _Part:
    mean = T.mean(axis=0)
    return _Part(len(T), mean, (T - mean).T @ (T - mean) / len(T))


def _varying(rows: RowSource, parts: list[_Part]) -> _Varying:
    """Return a function that finds the features whose deviations exceed rounding errors."""
    sizes = np.array([part.size for part in parts])
    shares = sizes / sizes.sum()
    means = np.array([part.mean for part in parts])
    mean = shares @ means
    variances = np.array([part.covariance.diagonal() for part in parts])
    deviations = np.sqrt(np.maximum(shares @ (variances + (means - mean) ** 2), 0.0))
    relative = _rounding(rows)
    if has_sparse_rows(rows):  # not centred: sums of squares have n rounding errors of |x|²
        relative = max(relative, math.sqrt(rows.n_rows * np.finfo(np.float64).eps))
    # Per feature: means of a pair lose digits if the overall mean is large.
    absolute = CONSTANT * (np.abs(mean) + deviations)

    def varying(own: NDArray, mean_of_pair: NDArray) -> NDArray:
        return np.flatnonzero(own > relative * (np.abs(mean_of_pair) + own) + absolute)

    return varying


def _rounding(rows: RowSource) -> float:
    """Return the relative deviation of a feature below which it is rounding error."""
    # float32 data are rounded themselves.
    return float(np.finfo(np.float32).eps) if rows.dtype == np.float32 else CONSTANT


def _parts(rows: RowSource, labels: Any, names: Sequence[Any] | NDArray) -> list[_Part]:
    """Return the moments of each part about its own mean, to avoid cancellation."""
    d, n_parts = rows.n_features, len(names)
    require_memory(
        8.0 * n_parts * d**2,
        f"the covariances of {n_parts} groups of rows in {d} features",
        "Reduce the number of features first, for example by TruncatedSVD.",
    )

    def mean(name: Any) -> NDArray:
        return rows.moments(labels == name, second=False).mean

    def part(name_and_mean: tuple[Any, NDArray]) -> _Part:
        name, center = name_and_mean
        moments = rows.moments(labels == name, center=center)
        return _Part(int(moments.weight), moments.mean, moments.covariance())

    means = values_in_few_passes(rows, mean, names, 8 * d)
    return values_in_few_passes(rows, part, list(zip(names, means, strict=True)), 8 * d**2)


def _pair(one: _Part, two: _Part, reg: float, varying: _Varying) -> _Pair:
    """Standardise two parts by their common covariance r1 S1 + r2 S2 + r1 r2 DD'."""
    r1 = one.size / (one.size + two.size)
    r2 = 1 - r1
    gap = one.mean - two.mean
    variances = r1 * one.covariance.diagonal() + r2 * two.covariance.diagonal()
    deviations = np.sqrt(np.maximum(variances + r1 * r2 * gap**2, 0.0))
    kept = varying(deviations, r1 * one.mean + r2 * two.mean)
    scale = deviations[kept]
    ridge = reg * np.eye(kept.size)
    S1, S2 = (
        part.covariance[np.ix_(kept, kept)] / np.outer(scale, scale) + ridge for part in (one, two)
    )
    pair = _Pair(r1, r2, gap[kept] / scale, S1, S2, kept, scale)
    if reg < _RISKY_REG:
        _refuse_singular(pair.within)
    return pair


def _refuse_singular(within: NDArray) -> None:
    """Raise an error if some combination of features varies in neither cluster."""
    deviations = np.sqrt(np.maximum(within.diagonal(), 0.0))
    singular = not deviations.all()
    if not singular and within.size:
        eigenvalues = linalg.eigvalsh(within / np.outer(deviations, deviations))
        singular = eigenvalues[0] <= 10 * len(within) * np.finfo(float).eps * eigenvalues[-1]
    if singular:
        raise ValueError(_SINGULAR)


def _probability(is_bound: bool, pair: _Pair, *judge: _Part) -> float:
    """Return kappa² / (1 + kappa²) along the direction of a pair.

    It is evaluated on the pair itself, or on held-out parts if given. It is 0 if the means are in
    the wrong order.
    """
    difference, S1, S2, r1 = pair.difference, pair.covariance1, pair.covariance2, pair.r1
    if not difference.any():
        return 0.0
    try:
        if is_bound:
            # Eq. 5's w up to its length, by Sherman-Morrison: Sigma = within + r1 r2 DD'.
            factor = linalg.cho_factor(pair.within, lower=True, check_finite=False)
            w = linalg.cho_solve(factor, difference, check_finite=False)
        else:
            w = solve_minimax_probability(difference, S1, S2).w
    except linalg.LinAlgError as error:
        raise ValueError(_SINGULAR) from error
    if judge:
        one, two = judge
        difference, S1, S2 = one.mean - two.mean, one.covariance, two.covariance
        r1 = one.size / (one.size + two.size)
        scaled, w = w / pair.scale, np.zeros(difference.size)
        w[pair.kept] = scaled
    gap = float(w @ difference)
    if gap <= 0:
        return 0.0
    if gap > 1e100:  # the length of w does not matter, and squares must not overflow
        w, gap = w / gap, 1.0
    v1, v2 = (max(float(w @ S @ w), 0.0) for S in (S1, S2))
    if is_bound:
        kappa2 = kappa2_bound(r1 * (1 - r1) * gap**2, r1 * v1 + (1 - r1) * v2, r1)
    else:
        with np.errstate(divide="ignore"):
            kappa2 = np.divide(gap**2, (math.sqrt(v1) + math.sqrt(v2)) ** 2)
    return probability(float(kappa2))


# ---------------------------------------------------------------------- random halves


def random_halves(
    codes: Any, sizes: NDArray, random_state: int | np.random.RandomState | None
) -> Any:
    """Return 0 or 1 for each row, which divides each cluster into random halves.

    Each row gets a pseudo-random value between 0 and 1 that depends only on the random seed and on
    the row number. In clusters of up to 10,000 rows, the half with the smaller values is 0. In
    larger clusters, rows with a value of at most 0.5 are 0, nearly a half.
    """
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    coins = row_wise(unit_hash, numbers_of_rows(codes), seed)
    borders = np.full(sizes.size, 0.5)
    small = sizes <= EXACT_UP_TO
    if small.any():
        listed = np.sort(chosen_entries(codes + coins, row_wise(np.take, small, codes)))
        # The sorted values list clusters one after the other; take the last of each first half.
        ends = np.cumsum(np.where(small, sizes, 0))
        last = ends - np.where(small, sizes, 0) + (sizes + 1) // 2 - 1
        borders[small] = listed[last[small]] - np.flatnonzero(small)
    return row_wise(second_half, codes, coins, borders)


def unit_hash(numbers: NDArray, seed: int) -> NDArray:
    """Return pseudo-random values in [0, 1) of 32 bits, so that adding a label is exact."""
    mixed = scramble(scramble(numbers) ^ scramble(np.array([seed], dtype=np.uint64)))
    return (mixed >> np.uint64(32)).astype(np.float64) * 2.0**-32


def second_half(codes: NDArray, coins: NDArray, borders: NDArray) -> NDArray:
    """Return 1 for rows whose value is above the border of their cluster, 0 otherwise."""
    return (coins > borders[codes]).astype(np.int64)


# ---------------------------------------------------------------------- labels in blocks


def check_labelled_blocks(X: Any, labels: Any) -> tuple[RowSource, RowVector, NDArray, NDArray]:
    """Check the rows and labels of a dask collection in one pass.

    Return the rows (with their mean computed in the same pass), the labels, the sorted distinct
    labels, and the count of each.
    """
    table = as_table(X)
    rows, vector = BlockRows(table), as_beside(table, labels, "labels")
    # The pass subtracts the first guess, and infinity minus infinity would be NaN.
    _require_finite(rows.first_guess())
    try:
        rows.prefetch(lambda: (table.ask(Squares()), rows.mean(), vector.distinct()))
    except TypeError:
        _check_order(vector)
        raise
    _require_finite(table.ask(Squares()))
    names, sizes = vector.distinct()
    if names.dtype.kind == "f" and not np.isfinite(names).all():
        raise ValueError("labels must not contain NaN or infinity. Drop the unlabelled rows.")
    if names.size > Distinct.most:
        raise ValueError(
            f"labels must have at most {Distinct.most} clusters for a dask collection. Give "
            "labels with fewer clusters, or score a sample in memory."
        )
    return rows, vector, names, sizes


def _require_finite(values: NDArray | float) -> None:
    if not np.isfinite(values).all():
        raise ValueError(
            "X contains NaN or infinity (or numbers whose squares overflow). Drop or fill such "
            "rows, or scale X."
        )


def _check_order(labels: RowVector) -> None:
    """Raise a clear error if labels cannot be sorted."""
    try:
        labels.distinct()
    except TypeError as error:
        raise TypeError(
            f"labels must be of one type, got a mixture that cannot be sorted ({error}). Drop the "
            "unlabelled rows, and convert all labels to strings or to integers."
        ) from error


def values_in_few_passes(
    rows: RowSource, value: Callable[[Any], Any], names: Sequence[Any] | NDArray, size: int
) -> list[Any]:
    """Return a statistic of the rows for each name, in as few passes as possible.

    `value` computes the statistic of a name by requests to `rows`. A pass computes only as many
    statistics, of `size` bytes each, as the cache of a table holds; others would be computed
    again, one by one.
    """
    step = max(8, KEPT_BYTES // (2 * size))
    found: list[Any] = []
    for first in range(0, len(names), step):
        some = names[first : first + step]
        found += rows.in_one_pass(partial(lambda few: [value(name) for name in few], some))
    return found
