"""Test which of given clusters are separated."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse
from sklearn.metrics.pairwise import euclidean_distances

from volmar._checks import check_count, check_number, check_random_state
from volmar._input import check_matrix
from volmar._notebook import html_card
from volmar._text import counted
from volmar._threads import one_thread
from volmar.evidence.densities import valleys_at
from volmar.evidence.dither import column_resolutions, dithered, dithered_scores
from volmar.evidence.held_out import LARGE, combine_p_values
from volmar.evidence.humps import N_DRAWS, deepest_valley, hump_test
from volmar.evidence.walks import N_NEIGHBORS, fitted_border
from volmar.evidence.way_around import MAX_ENTRIES, MAX_ROWS, has_way_around
from volmar.evidence.wording import p_value_text
from volmar.metrics.contingency import encode_labels, is_missing, labels_of_rows, sampled_rows
from volmar.rows.anywhere import draw_from_collection
from volmar.rows.blocks import is_dask
from volmar.rows.standardized import CONSTANT

# ------------- the outcome of `label_test`: a tree over given clusters, and the clusters to merge


@dataclass(frozen=True)
class LabelJoin:
    """Two sides of the tree over given clusters, and the test of the border between them.

    `tested` are the closest two groups, one from each side, whose border was tested (a group is a
    cluster, or several that had been merged before). The border is a gap if `p_value` is at most
    `level`; a p-value equal to `p_minimum` is an upper bound. `distance` is that of the means in
    standard deviations within groups, `depth` that of the valley on held-out rows: 0 without a
    valley, 1 for an empty gap. If `is_curved`, rows were scored by their distance to a curved
    border, because no hyperplane separates the two groups.
    """

    left: tuple[Any, ...]
    right: tuple[Any, ...]
    n_left: int
    n_right: int
    tested: tuple[tuple[Any, ...], tuple[Any, ...]]
    n_tested: tuple[int, int]
    p_value: float
    level: float
    distance: float
    depth: float
    is_curved: bool
    p_minimum: float = 0.0

    @property
    def is_real(self) -> bool:
        """Whether one mode is rejected, so that there is a gap between the sides."""
        return self.p_value <= self.level

    @property
    def p_text(self) -> str:
        """The formatted p-value and its level."""
        return p_value_text(self.p_value, self.p_minimum, self.level)

    def __str__(self) -> str:
        """Return the outcome of the test as a sentence."""
        names = named_pair(*self.tested)
        rows = f"{self.n_tested[0]} and {self.n_tested[1]} rows"
        if self.is_real:
            return f"{names} ({rows}) are separated ({self.p_text})."
        return f"{names} ({rows}) are not separated ({self.p_text}): merge them."


@dataclass(frozen=True, repr=False)
class LabelTestResult:
    """Which given clusters are separated from each other, and which should be merged.

    Attributes
    ----------
    tree : tuple of LabelJoin
        The joins of a binary tree over the tested clusters, from the bottom up: first the joins of
        groups that are not separated, then those of separated groups, in the order of their
        distance. The last join contains all tested clusters.
    clusters : tuple
        Labels that were tested, in sorted order.
    sizes : tuple of int
        Number of rows of each tested cluster.
    untested : tuple
        Labels with fewer rows than `min_cluster_size`. They keep their label in `merged_labels`
        and count neither as real nor as merged.
    untested_sizes : tuple of int
        Number of rows of each untested cluster.
    n_noise : int
        Number of rows without a cluster.
    alpha : float
        Family-wise level of the test: the requested bound on the probability of any false
        separation.
    merged_labels : ndarray of shape (n,)
        The given labels, where clusters that are not separated share the label of the largest of
        them. Noise and untested clusters keep their labels.
    """

    tree: tuple[LabelJoin, ...]
    clusters: tuple[Any, ...]
    sizes: tuple[int, ...]
    untested: tuple[Any, ...]
    untested_sizes: tuple[int, ...]
    n_noise: int
    alpha: float
    merged_labels: NDArray = field(repr=False)

    @property
    def p_values(self) -> tuple[float, ...]:
        """P-value of each join of the tree."""
        return tuple(join.p_value for join in self.tree)

    @property
    def groups(self) -> tuple[tuple[Any, ...], ...]:
        """Labels of the clusters in each group after merging, largest group first."""
        members = {label: [label] for label in self.clusters}
        for join in self.tree:
            if not join.is_real:
                left, right = members[join.left[0]], members[join.right[0]]
                left.extend(right)
                members.update(dict.fromkeys(right, left))
        size = dict(zip(self.clusters, self.sizes, strict=True))
        order = {label: i for i, label in enumerate(self.clusters)}
        distinct = {id(group): group for group in members.values()}.values()
        found = [tuple(sorted(group, key=order.__getitem__)) for group in distinct]
        return tuple(sorted(found, key=lambda group: -sum(size[label] for label in group)))

    @property
    def n_real(self) -> int:
        """Number of groups that are separated from each other; 1 without evidence of a gap."""
        return 1 + sum(join.is_real for join in self.tree)

    @property
    def is_real(self) -> dict[Any, bool]:
        """Whether each given cluster is separated from all others.

        False for clusters that should be merged, for untested clusters, and for all clusters if
        there is no evidence for more than one group.
        """
        alone = {group[0] for group in self.groups if len(group) == 1 and self.n_real > 1}
        return {label: label in alone for label in (*self.clusters, *self.untested)}

    @property
    def sentences(self) -> tuple[str, ...]:
        """One sentence for each join, for each untested cluster, and for noise."""
        found = [str(join) for join in self.tree]
        for label, size in zip(self.untested, self.untested_sizes, strict=True):
            rows = counted(size, "row")
            found.append(f"Cluster {label} ({rows}) is too small to test and is left unchanged.")
        if self.n_noise:
            rows = counted(self.n_noise, "row")
            found.append(f"The label of {rows} without a cluster (noise) is unchanged.")
        return tuple(found)

    @property
    def summary(self) -> str:
        """The outcome in one sentence."""
        given = len(self.clusters) + len(self.untested)
        if self.n_real == 1:
            return (
                f"No two of the {given} given clusters are separated (family-wise level "
                f"{self.alpha:g}): no gap was found at any border between them."
            )
        if self.n_real == len(self.clusters):
            every = "Both" if self.n_real == 2 else f"All {self.n_real}"
            return (
                f"{every} tested clusters are separated from each other "
                f"(family-wise level {self.alpha:g})."
            )
        return (
            f"{len(self.clusters)} tested clusters form {self.n_real} groups that are separated "
            f"from each other (family-wise level {self.alpha:g})."
        )

    def __str__(self) -> str:
        """Return the summary, then a sentence for each join."""
        return "\n".join([self.summary, *self.sentences])

    def __repr__(self) -> str:
        """Return the outcome in short form; ``print`` shows it in sentences."""
        given = len(self.clusters) + len(self.untested)
        return f"LabelTestResult({self.n_real} groups of {given} clusters, alpha={self.alpha:g})"

    def _repr_html_(self) -> str:
        """Show the summary and a row for each border in a notebook."""
        rows = [
            [
                named_pair(*join.tested),
                " and ".join(f"{n:,}" for n in join.n_tested),
                f"{join.p_value:.2g}",
                f"{join.level:.2g}",
                "separated" if join.is_real else "not separated: merge them",
            ]
            for join in self.tree
        ]
        header = ["Border", "Rows", "p-value", "Level", ""]
        notes = self.sentences[len(self.tree) :]
        return html_card("Test of given clusters", [self.summary, *notes], header, rows)


def named_pair(left: Sequence[Any], right: Sequence[Any]) -> str:
    """Return "Clusters 3 and 7", or "Clusters 3, 4 and cluster 7" for groups of several."""
    if len(left) == len(right) == 1:
        return f"Clusters {left[0]} and {right[0]}"
    first = _named(left)
    return f"{first[0].upper()}{first[1:]} and {_named(right)}"


def _named(labels: Sequence[Any]) -> str:
    if len(labels) == 1:
        return f"cluster {labels[0]}"
    return f"clusters {' + '.join(map(str, labels[:6]))}" + (" + ..." if len(labels) > 6 else "")


# ------- linear discriminants of given clusters, learnt on some rows, and scores of held-out rows

# Ridge, relative to the variance of each column within clusters. It stabilises directions that are
# learnt on few rows.
REG = 0.1
# Maximum number of rows that directions are learnt from.
MAX_LEARNT = 20_000
# With more columns than this, the dual system, of the size of the rows, is solved.
WIDE = 2_000
# Maximum error of the sides at which a hyperplane counts as the border of two clusters.
LINEAR_ERROR = 0.05
# Maximum number of rows of the larger side of a pair, per row of the smaller side.
MAX_RATIO = 4.0


class PairScores(NamedTuple):
    """Scores of the seen rows of two groups in a region, and its held-out `rows` and `scores`.

    The scores increase towards the first group.
    """

    first: NDArray
    second: NDArray
    rows: NDArray
    scores: NDArray

    @property
    def is_linear(self) -> bool:
        """Whether a threshold puts nearly all seen rows of both groups on the correct side."""
        return self.error <= LINEAR_ERROR

    @property
    def error(self) -> float:
        """Share of seen rows on the wrong side of the best threshold, averaged over both sides."""
        return side_error(self.first, self.second)


@dataclass(frozen=True)
class Discriminants:
    r"""Linear discriminants of groups of the given clusters.

    :math:`f_a(x) = \mu_a' (S + \lambda I)^{-1} (x - \tfrac12 \mu_a)`, with S the covariance within
    the groups. :math:`f_a - f_b` is half the difference of the squared distances to b and a.
    `seen` (m, g) and `held_out` (n, g) are the values at the rows that were learnt from, and at
    the held-out rows; `distances` (g, g) are squared Mahalanobis distances between the means.
    """

    seen: NDArray
    held_out: NDArray
    distances: NDArray
    groups: NDArray

    def is_linear(self, a: int, b: int) -> bool:
        """Return whether a hyperplane separates nearly all seen rows of two groups."""
        first, second = self.groups == a, self.groups == b
        difference = self.seen[:, a] - self.seen[:, b]
        return side_error(difference[first], difference[second]) <= LINEAR_ERROR

    def pair(self, a: int, b: int) -> PairScores | None:
        r"""Return the scores of the held-out rows in a convex region that contains a and b.

        For every other group c the region is cut by the half-space

        .. math:: t f_a(x) + (1 - t) f_b(x) \ge f_c(x).

        The mean of a is inside if :math:`1 - t \le D_{ac}^2 / D_{ab}^2`, and the mean of b if
        :math:`t \le D_{bc}^2 / D_{ab}^2`. Such a t exists if c is outside the ball with a and b as
        its poles, and therefore always for the closest two groups. It is chosen so that the means
        are as far inside as possible: 1/2 for groups at equal distances. Groups that no hyperplane
        separates from a and b are not cut off.

        A log-concave density has one mode in the region, along any direction. The result is None
        if either group has fewer than five seen rows in the region.
        """
        keep_seen = np.ones(len(self.seen), dtype=bool)
        keep_held = np.ones(len(self.held_out), dtype=bool)
        for c in range(self.distances.shape[0]):
            if c in (a, b) or not (self.is_linear(a, c) and self.is_linear(b, c)):
                continue
            t = _best_weight(self.distances, a, b, c)
            keep_seen &= _inside(self.seen, a, b, c, t)
            keep_held &= _inside(self.held_out, a, b, c, t)
        scores = self.seen[:, a] - self.seen[:, b]
        first = scores[keep_seen & (self.groups == a)]
        second = scores[keep_seen & (self.groups == b)]
        if min(first.size, second.size) < 5:
            return None
        rows = np.flatnonzero(keep_held)
        return PairScores(first, second, rows, (self.held_out[:, a] - self.held_out[:, b])[rows])


def _best_weight(distances: NDArray, a: int, b: int, c: int) -> float:
    """Return the t for which both means are farthest inside the half-space."""
    t = np.linspace(0.0, 1.0, 21)
    to_a, to_b, between = distances[a, c], distances[b, c], distances[a, b]
    square = t * to_a + (1.0 - t) * to_b - t * (1.0 - t) * between
    lower = np.minimum(to_a - (1.0 - t) * between, to_b - t * between)
    margins = lower / np.sqrt(np.maximum(square, np.finfo(np.float64).tiny))
    # Ties are broken in favour of the weight nearest to 1/2.
    best = np.flatnonzero(margins >= margins.max() - 1e-9 * abs(margins.max()))
    return float(t[best[np.argmin(np.abs(t[best] - 0.5))]])


def _inside(f: NDArray, a: int, b: int, c: int, t: float) -> NDArray:
    return t * f[:, a] + (1.0 - t) * f[:, b] >= f[:, c]


def without_far_rows(scores: NDArray, first: NDArray, second: NDArray) -> NDArray:
    """Return the indices of the scores that are left after cutting off far rows of a large side.

    A small group beside a large one is hard to detect. Per row of the smaller side, at most
    `MAX_RATIO` rows of the larger side are kept. The cut is a half-line, so that a unimodal
    density stays unimodal. Its end is computed from the seen scores `first` and `second` of the
    two sides, of which the first are higher.
    """
    low, high = -np.inf, np.inf
    if first.size > MAX_RATIO * second.size:
        high = float(np.quantile(first, MAX_RATIO * second.size / first.size))
    elif second.size > MAX_RATIO * first.size:
        low = float(np.quantile(second, 1.0 - MAX_RATIO * first.size / second.size))
    return np.flatnonzero((scores >= low) & (scores <= high))


def side_error(first: NDArray, second: NDArray) -> float:
    """Return the minimum mean error of a threshold between two sides, the first of them above."""
    return float(_threshold_errors(first, second)[1].min())


def thresholds(first: NDArray, second: NDArray) -> tuple[float, float]:
    """Return the lower and upper end of the nearly optimal thresholds between two sides.

    Their mean error exceeds the minimum by at most 0.05. If the minimum is above 1/4, the scores
    do not separate the sides, and the result is (inf, -inf).
    """
    scores, errors = _threshold_errors(first, second)
    if errors.min() > 0.25:
        return np.inf, -np.inf
    good = np.flatnonzero(errors <= errors.min() + 0.05)
    # A threshold lies between two scores.
    low, high = max(good[0] - 1, 0), min(good[-1], scores.size - 1)
    return float(scores[low]), float(scores[high])


def _threshold_errors(first: NDArray, second: NDArray) -> tuple[NDArray, NDArray]:
    """Return the sorted scores, and mean errors of thresholds before, between and after them."""
    scores = np.concatenate([second, first])
    order = np.argsort(scores, kind="stable")
    # Below a threshold, rows of the second side are correct and rows of the first are wrong.
    is_first = order >= second.size
    wrong_first = np.concatenate([[0], np.cumsum(is_first)]) / max(first.size, 1)
    right_second = np.concatenate([[0], np.cumsum(~is_first)]) / max(second.size, 1)
    return scores[order], 0.5 * (wrong_first + 1.0 - right_second)


@dataclass(frozen=True)
class SplitView:
    r"""Statistics of one split of the rows, from which discriminants of any groups follow.

    Let R be the covariance of the rows that are learnt from, and M the means of the k given
    clusters. `inner` is :math:`M' (R + \lambda I)^{-1} M`. `seen` (m, k) and `held_out` (n, k) are
    the scores :math:`x' (R + \lambda I)^{-1} M` of the rows that are learnt from and of the
    held-out rows. With these, merging clusters takes no further pass over the rows. `shares` and
    `codes` are those of the clusters in the rows that are learnt from.
    """

    shares: NDArray
    inner: NDArray
    seen: NDArray
    held_out: NDArray
    codes: NDArray
    seen_rows: NDArray
    held_out_rows: NDArray

    def discriminants(self, groups: NDArray) -> Discriminants:
        """Return the discriminants of groups of clusters; `groups` (k,) is numbered from 0."""
        k, g = self.shares.size, int(groups.max()) + 1
        total = np.bincount(groups, self.shares, g)
        weights = np.zeros((k, g))
        weights[np.arange(k), groups] = self.shares / np.sqrt(total[groups])
        # S = R - UU', U the means times the roots of the shares: `separation/discriminants.py`.
        inside = np.eye(g) - weights.T @ self.inner @ weights
        coefficients = weights @ linalg.inv(inside) / np.sqrt(total)
        products = (weights / np.sqrt(total)).T @ self.inner @ coefficients
        squares = products.diagonal()
        distances = np.maximum(squares[:, None] + squares - products - products.T, 0.0)
        offsets = -0.5 * squares
        return Discriminants(
            self.seen @ coefficients + offsets,
            self.held_out @ coefficients + offsets,
            distances,
            groups[self.codes],
        )


def split_view(
    X: Any,
    codes: NDArray,
    k: int,
    seen_rows: NDArray,
    held_out_rows: NDArray,
    resolutions: NDArray,
    rng: np.random.Generator,
) -> SplitView:
    """Learn discriminants of the given clusters on seen rows, and score dithered held-out rows.

    Rows whose code is -1 are not used for learning.
    """
    d = X.shape[1]
    learnt = seen_rows[codes[seen_rows] >= 0]
    most = min(MAX_LEARNT, max(MAX_ENTRIES // d, 1)) if d <= WIDE else MAX_ROWS
    learnt = learnt[sampled_rows(codes[learnt], max(most, 2 * k), rng, 10)]
    rows, given = X[learnt], codes[learnt]
    score, shares, inner = _learn(rows, given, k)
    held_out = dithered_scores(score, X[held_out_rows], resolutions, rng)
    return SplitView(shares, inner, score(rows), held_out, given, learnt, held_out_rows)


def _learn(rows: Any, codes: NDArray, k: int) -> tuple[Callable[[Any], NDArray], NDArray, NDArray]:
    """Return the score function x'(R + reg I)^-1 M, the shares, and M'(R + reg I)^-1 M."""
    m, d = rows.shape
    sizes = np.bincount(codes, minlength=k).astype(np.float64)
    members = sparse.csr_array((np.ones(m), (codes, np.arange(m))), shape=(k, m))
    centre = np.asarray(rows.mean(axis=0, dtype=np.float64)).ravel()
    is_wide = d > WIDE
    if not sparse.issparse(rows) or not is_wide:
        rows = rows.toarray() if sparse.issparse(rows) else rows
        rows = rows.astype(np.float64) - centre
        means = np.asarray(members @ rows) / sizes[:, None]
        total = np.einsum("ij,ij->j", rows, rows) / m
    else:
        rows = rows.astype(np.float64)
        means = (members @ rows).toarray() / sizes[:, None] - centre
        total = np.asarray(rows.multiply(rows).mean(axis=0)).ravel() - centre**2
    between = (sizes / m) @ means**2
    deviations = np.sqrt(np.maximum(total, 0.0))
    within = np.sqrt(np.maximum(total - between, 0.0))
    varies = deviations > CONSTANT * (np.abs(centre) + deviations)
    # Minimum standard deviation within clusters, as a share of that of all rows.
    scale = np.where(varies, np.maximum(within, 1e-3 * deviations), np.inf)
    means = means / scale
    if not is_wide:
        rows = rows / scale
        images = linalg.solve(rows.T @ rows / m + REG * np.eye(d), means.T, assume_a="pos")
    else:
        # (Z'Z / m + reg I)^-1 Z'B = Z'(ZZ' / m + reg I)^-1 B, and M' = Z'B with B the shares.
        is_sparse = sparse.issparse(rows)
        scaled = sparse.csr_array(rows.multiply(1.0 / scale)) if is_sparse else rows / scale
        gram = scaled @ scaled.T
        if is_sparse:
            gram = gram.toarray()
            of_rows = gram.mean(axis=0)
            gram = gram - of_rows - of_rows[:, None] + of_rows.mean()
        shares = members.toarray().T / sizes
        duals = linalg.solve(gram / m + REG * np.eye(m), shares, assume_a="pos")
        images = np.asarray(scaled.T @ duals)
        if is_sparse:
            images -= (centre / scale)[:, None] * duals.sum(axis=0)
    coefficients = images / scale[:, None]
    shift = centre @ coefficients

    def score(x: Any) -> NDArray:
        return np.asarray(x @ coefficients) - shift

    return score, sizes / m, means @ images


# ---------------------- test of the border between two groups of given clusters, on held-out rows


class BorderTest(NamedTuple):
    """Outcome of the test of a border; see `LabelJoin` for the fields."""

    p_value: float
    distance: float
    depth: float
    is_curved: bool
    p_minimum: float


def border_test(
    X: Any,
    splits: list[SplitView],
    views: list[Discriminants],
    a: int,
    b: int,
    *,
    resolutions: NDArray,
    n_draws: int,
    rng: np.random.Generator,
) -> BorderTest:
    """Test on each split whether rows are unimodal across the border between groups a and b."""
    p_values: list[float] = []
    depths, curved = [], []
    for split, view in zip(splits, views, strict=True):
        found = _held_out(X, split, view, a, b, resolutions, n_draws, rng)
        if found is None:
            p_values.append(1.0)
            continue
        rows, scores, border, is_curved = found
        p_value, depth, deepest = 1.0, *_depths(scores, *border)
        # A gap inside one of the groups is not a gap between them.
        if depth >= 0.5 * deepest > 0:
            p_value = hump_test(scores, rng, n_draws=n_draws).p_value
        # A bent band is bimodal along a line, but it is a single piece. Only clear valleys are
        # checked, which takes time.
        if p_value <= 0.1 and X.shape[1] <= WIDE:
            noisy = dithered(X[rows], resolutions, rng)
            p_value = 1.0 if has_way_around(noisy, scores) else p_value
        p_values.append(p_value)
        depths.append(depth)
        curved.append(is_curved)
        p_values.extend(_settled(p_values, len(splits), 1.0 / (1 + n_draws)))
        if len(p_values) == len(splits):
            break
    distance = float(np.mean([np.sqrt(view.distances[a, b]) for view in views]))
    return BorderTest(
        combine_p_values(p_values),
        distance,
        float(np.mean(depths)) if depths else 0.0,
        bool(curved) and float(np.mean(curved)) > 0.5,
        combine_p_values([1.0 / (1 + n_draws)] * len(splits)),
    )


def _held_out(
    X: Any,
    split: SplitView,
    view: Discriminants,
    a: int,
    b: int,
    resolutions: NDArray,
    n_draws: int,
    rng: np.random.Generator,
) -> tuple[NDArray, NDArray, tuple[float, float], bool] | None:
    """Return held-out rows, their scores, the thresholds at the border, and whether it is curved.

    Scores are those along the discriminant, or signed distances to a curved border.
    """
    pair = view.pair(a, b)
    if pair is None:
        return None
    # At most this number of values is drawn for a test (rows times draws), but all of 1,000 rows.
    most = max(1_600_000 // n_draws, 1_000)
    rows, scores = split.held_out_rows[pair.rows], pair.scores
    is_ours = (view.groups == a) | (view.groups == b)
    seen, sides = split.seen_rows[is_ours], view.groups[is_ours] == a
    is_curved = not pair.is_linear and _is_bent(X[_evenly(seen)], _evenly(sides), pair.error)
    if is_curved:
        kept = _drawn(rows.size, most, rng)
        rows = rows[kept]
        border = fitted_border(sides.astype(np.int64), X[seen], resolutions, rng, name="")
        scores = dithered_scores(border.distances, X[rows], resolutions, rng)
        first, second = scores[scores > 0], scores[scores <= 0]
        near = without_far_rows(scores, first, second)
    else:
        first, second = pair.first, pair.second
        near = without_far_rows(scores, first, second)
        near = near[_drawn(near.size, most, rng)]
    return rows[near], scores[near], thresholds(first, second), is_curved


def is_blocked(X: Any, split: SplitView, view: Discriminants, a: int, b: int) -> bool:
    """Return whether another group lies between groups a and b that no hyperplane separates.

    Each of the rows of a that are nearest to b is paired with its nearest row in b. The groups are
    blocked if most of the balls with such a pair as poles contain a row of another group.
    """
    pair = view.pair(a, b)
    if pair is None or pair.is_linear or view.distances.shape[0] == 2:
        return False
    few = _evenly(np.arange(view.groups.size))
    groups = view.groups[few]
    first, second = np.flatnonzero(groups == a), np.flatnonzero(groups == b)
    others = np.flatnonzero((groups != a) & (groups != b))
    if min(first.size, second.size, others.size) == 0:
        return False
    rows = _centred(X[split.seen_rows[few]])
    squares = euclidean_distances(rows[first], rows[second], squared=True)
    nearest = squares.argmin(axis=1)
    square = squares[np.arange(first.size), nearest]
    near = np.argsort(square)[: max(first.size // 4, 1)]
    # |z - middle|^2 < |x - y|^2 / 4 is |z - x|^2 + |z - y|^2 < |x - y|^2.
    around = euclidean_distances(rows[first[near]], rows[others], squared=True)
    around += euclidean_distances(rows[second[nearest[near]]], rows[others], squared=True)
    return bool(np.mean(around.min(axis=1) < square[near]) > 0.5)


def _is_bent(seen: Any, sides: NDArray, linear_error: float) -> bool:
    """Return whether the nearest rows predict the side much better than the hyperplane does.

    If groups overlap, the nearest rows are wrong as well, and the hyperplane is kept.
    """
    if sides.all() or not sides.any():
        return False
    squares = euclidean_distances(_centred(seen), squared=True)
    np.fill_diagonal(squares, np.inf)
    nearest = np.argpartition(squares, N_NEIGHBORS, axis=1)[:, :N_NEIGHBORS]
    votes = sides[nearest].mean(axis=1) > 0.5
    error = 0.5 * (np.mean(~votes[sides]) + np.mean(votes[~sides]))
    return bool(error < 0.5 * linear_error)


def _centred(rows: Any) -> Any:
    """Centre dense rows: far from the origin, squares would lose the distances."""
    if sparse.issparse(rows):
        return rows
    return rows - rows.mean(axis=0, dtype=np.float64)


def _evenly(rows: NDArray) -> NDArray:
    """Return at most `MAX_ROWS` of the entries, at even steps."""
    at = np.linspace(0, rows.size - 1, MAX_ROWS).astype(np.intp)
    return rows if rows.size <= MAX_ROWS else rows[at]


def _settled(p_values: list[float], n_splits: int, minimum: float) -> list[float]:
    """Return p-values of 1 for the remaining splits if these cannot change the combined p-value.

    It depends on a single rank, and is settled once enough p-values are the smallest possible.
    """
    padded = p_values + [1.0] * (n_splits - len(p_values))
    is_settled = combine_p_values(padded) <= combine_p_values([minimum] * n_splits)
    return padded[len(p_values) :] if is_settled else []


def _drawn(n: int, most: int, rng: np.random.Generator) -> NDArray:
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


def _depths(scores: NDArray, low: float, high: float) -> tuple[float, float]:
    """Return the depth of the deepest valley at the border, and of the deepest one anywhere."""
    if scores.size == 0 or low > high:
        return 0.0, 0.0
    cuts = np.append(np.linspace(low, high, 17), deepest_valley(scores))
    ordered = np.broadcast_to(np.sort(scores), (cuts.size, scores.size))
    depths = np.clip(valleys_at(ordered, cuts).depth, 0.0, 1.0)
    return float(depths[:-1].max()), float(depths.max())


# ----------------------------- test which given clusters are separated by a gap, on held-out rows

# Maximum number of held-out rows that are tested.
MAX_HELD_OUT = 20_000
# Minimum level of a single test. Below it, the draws would take too long.
MIN_LEVEL = 2.5e-4


@one_thread()
def label_test(
    X: ArrayLike,
    labels: ArrayLike,
    *,
    alpha: float = 0.05,
    n_splits: int | None = None,
    min_cluster_size: int = 20,
    noise_label: Any = -1,
    progress: Callable[[int, int], None] | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> LabelTestResult:
    r"""Test which given clusters, from any tool, are separated, and which should be merged.

    Clusters are joined in a tree, starting with the closest two. Each join tests the border
    between its two sides. Discriminants of the clusters are learnt on a random share of the rows.
    The held-out rows that lie between the two closest groups of the sides are then tested for one
    mode against more. If one mode is not rejected, the two groups
    should be merged.

    Parameters
    ----------
    X : array of shape (n, d)
        The rows that were clustered, dense or CSR. If X is a dask array or DataFrame, a random
        sample of 20,000 rows is tested.
    labels : array of shape (n,)
        Cluster of each row: integers, strings, or values of any one type that can be sorted.
    alpha : float, default=0.05
        Family-wise level: probability that any two groups are falsely reported as separated. With
        k tested clusters, alpha / (k - 1) must be at least 0.00025.
    n_splits : int or None, default=None
        Number of random splits into rows to learn from and held-out rows. If None, 6, or 2 for
        20,000 rows or more.
    min_cluster_size : int, default=20
        Minimum number of rows of a tested cluster; must be at least 10. Smaller clusters are not
        tested and keep their labels.
    noise_label : object, default=-1
        Label of rows without a cluster; the string "-1" counts as -1. Such rows keep their label.
        They are not used for learning, but they are tested as rows that may lie in a gap.
    progress : callable, optional
        Function called with (done, total) as joins are tested.
    random_state : int, RandomState or None, default=None
        Random seed of the splits and the draws.

    Returns
    -------
    LabelTestResult
        Tree, p-values and merged labels. ``print`` shows a sentence for each join.

    See Also
    --------
    split_test : Test whether the rows form more than one group.
    volmar.plots.LabelTestDisplay : Plot of the result.

    Notes
    -----
    **The rows of a test.** The labels were computed from all rows. Selecting held-out rows by
    their own labels would create gaps: a single Gaussian cut in two has one between its halves.
    Held-out rows are therefore used without labels. The rows between groups a and b are those in
    a convex region, :math:`t f_a + (1 - t) f_b \ge f_c` for every other group c, where f are the
    learnt linear discriminants. A log-concave density that is restricted to a convex set and
    projected on a line has one mode (Prékopa). The scores are :math:`f_a - f_b`. If one side is
    much larger than the other, its rows far from the border are left out, so that small clusters
    can be detected. A valley with a way around it is not a gap
    (see the page *Evidence*).

    The valley must be at the border. Labels that do not follow a gap (a border through the middle
    of a group, or random labels) are not separated, even if there are gaps elsewhere.

    **Curved borders.** The discriminant may put more than 5 % of the learnt rows of two groups on
    the wrong side. If the nearest rows misplace less than half as many, the scores are signed
    distances to a curved border, in the same region.

    **Which borders.** There are k - 1 tests, one for each join: two sides are separated if their
    closest pair of groups is. Groups without any sign of a gap (p > 0.2) are merged for the
    following tests. Other groups are merged only in the result, so that one weak border does not
    affect the other tests.

    **The family-wise level.** The k - 1 p-values are compared with Holm's levels: the smallest
    with alpha / (k - 1), the next with alpha / (k - 2), up to the first that is above its level.
    This is valid under any dependence, for given borders. Testing the tree from the top down would
    instead merge everything below a join without a clear gap.

    **Limitations.** The labels were computed with the held-out rows included. With as many columns
    as rows, a method that searches extensively can find a gap that exists by chance in all rows,
    and therefore also in the held-out rows. New rows labelled by the same model would not have
    it. Pieces of one bent cluster (two moons cut into eight) may be joined in the wrong order.

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> from volmar.datasets import make_blobs
    >>> from volmar import label_test
    >>> X, y = make_blobs(600, centers=3, random_state=0)
    >>> too_many = KMeans(5, n_init=10, random_state=0).fit_predict(X)
    >>> label_test(X, too_many, random_state=0).n_real
    3
    """
    check_number("alpha", alpha, low=0.0, high=1.0, open_low=True)
    if n_splits is not None:
        check_count("n_splits", n_splits)
    check_count("min_cluster_size", min_cluster_size, low=10)
    if hasattr(noise_label, "__len__") and not isinstance(noise_label, (str, bytes, tuple)):
        raise TypeError(
            f"noise_label must be a single label, got a {type(noise_label).__name__}. Relabel "
            "these rows with one label first, such as -1."
        )
    if is_dask(X):
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        X, (labels,), *_ = draw_from_collection(X, labels, seed=seed)
    rows: Any = check_matrix(X)
    given = _Clusters(labels, rows.shape[0], min_cluster_size, noise_label)
    k = len(given.names)
    level = float(alpha) / max(k - 1, 1)
    if level < MIN_LEVEL:
        raise ValueError(
            f"alpha={alpha:g} is too small for {k} clusters: the level of each of the {k - 1} "
            f"tests is {level:.2g}, and the minimum is {MIN_LEVEL:g}. Raise alpha, raise "
            "min_cluster_size, or test fewer clusters."
        )
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    wanted = n_splits or (2 if rows.shape[0] >= LARGE else 6)
    resolutions = column_resolutions(rows)
    splits = list(_splits(rows, given, resolutions, wanted, rng)) if k > 1 else []
    # The smallest combined p-value is three divided by the number of draws.
    n_draws = max(N_DRAWS, math.ceil(4.0 / level))
    tests = _test_joins(rows, splits, k, resolutions, n_draws, rng, progress)
    return _result(given, tests, float(alpha))


class _Test(NamedTuple):
    """Masks of the clusters in two groups, and the test of the border between the groups."""

    first: NDArray
    second: NDArray
    border: BorderTest


class _Clusters:
    """Given labels as integer codes; -1 for noise and for clusters too small to test."""

    def __init__(self, labels: ArrayLike, n: int, min_size: int, noise_label: Any):
        self.labels = _checked_labels(labels, n)
        codes, _ = encode_labels(self.labels, "labels")
        names, sizes = np.unique(self.labels), np.bincount(codes)
        is_noise = np.array([_is_noise(name, noise_label) for name in names.tolist()])
        if is_noise.all():
            raise ValueError(
                f"labels has no cluster: all {n} rows are noise (label {names[0]!s}). Pass labels "
                "with at least two clusters, or noise_label=None if this label is a cluster."
            )
        if np.count_nonzero(~is_noise) < 2:
            raise ValueError(
                f"labels has only one cluster ({names[~is_noise][0]!s}). Pass labels with at "
                "least two clusters. To test whether rows form more than one group, use "
                "volmar.split_test."
            )
        is_tested = ~is_noise & (sizes >= min_size)
        if not is_tested.any():
            raise ValueError(
                f"no cluster in labels has min_cluster_size={min_size} rows; the largest has "
                f"{sizes[~is_noise].max()}. Lower min_cluster_size (10 is the minimum), or use "
                "fewer clusters."
            )
        number = np.full(names.size, -1)
        number[is_tested] = np.arange(np.count_nonzero(is_tested))
        self.codes = number[codes]
        self.names: list[Any] = names[is_tested].tolist()
        self.sizes: list[int] = sizes[is_tested].tolist()
        is_small = ~is_noise & ~is_tested
        self.small_names: list[Any] = names[is_small].tolist()
        self.small_sizes: list[int] = sizes[is_small].tolist()
        self.n_noise = int(sizes[is_noise].sum())


def _checked_labels(labels: ArrayLike, n: int) -> NDArray:
    found = labels_of_rows(labels, n)
    missing = np.zeros(n, dtype=bool)
    if found.dtype.kind == "O":
        missing = np.array([is_missing(value) for value in found])
    elif found.dtype.kind == "f":
        missing = ~np.isfinite(found)
    elif found.dtype.kind not in "iubUS":
        raise TypeError(f"labels has dtype {found.dtype}. Pass one integer or string per row.")
    if missing.any():
        place = int(np.argmax(missing))
        raise ValueError(
            f"labels holds {found[place]} at position {place}, which is not a label. Give every "
            "row a label; use -1 for rows without a cluster."
        )
    return found


def _is_noise(name: Any, noise_label: Any) -> bool:
    if isinstance(name, bytes):
        name = name.decode(errors="replace")
    if isinstance(name, bool):
        return isinstance(noise_label, bool) and name == noise_label
    if isinstance(name, str) and not isinstance(noise_label, str):
        return noise_label is not None and name == str(noise_label)
    return bool(name == noise_label)


def _splits(
    rows: Any, given: _Clusters, resolutions: NDArray, n_splits: int, rng: np.random.Generator
) -> Iterator[SplitView]:
    """Yield views learnt on a random share of each cluster, with scores of the held-out rows.

    Learning the means of given clusters takes fewer rows than detecting a gap. A quarter of the
    rows is used for learning, and up to a half if the smallest cluster has few rows per column.
    """
    k, n = len(given.names), rows.shape[0]
    share = float(np.clip(6.0 * rows.shape[1] / min(given.sizes), 0.25, 0.5))
    for _ in range(n_splits):
        order = rng.permutation(n)
        order = order[np.argsort(given.codes[order], kind="stable")]
        # Rows at even steps within each cluster: a row is seen when the sum passes an integer.
        is_seen = np.diff(np.floor(share * np.arange(n + 1) + rng.random())) > 0
        seen, held_out = np.sort(order[is_seen]), np.sort(order[~is_seen])
        if held_out.size > MAX_HELD_OUT:
            held_out = np.sort(rng.choice(held_out, MAX_HELD_OUT, replace=False))
        yield split_view(rows, given.codes, k, seen, held_out, resolutions, rng)


def _test_joins(
    rows: Any,
    splits: list[SplitView],
    k: int,
    resolutions: NDArray,
    n_draws: int,
    rng: np.random.Generator,
    progress: Callable[[int, int], None] | None,
) -> list[_Test]:
    """Test the closest two groups of different components until a single component is left.

    Groups without any sign of a gap are merged for the following tests.
    """
    groups, components = np.arange(k), np.arange(k)
    tests: list[_Test] = []
    views = [split.discriminants(groups) for split in splits]
    while len(tests) < k - 1:
        if progress is not None:
            progress(len(tests), k - 1)
        a, b = _closest(rows, splits, views, groups, components)
        border = border_test(
            rows, splits, views, a, b, resolutions=resolutions, n_draws=n_draws, rng=rng
        )
        first, second = groups == a, groups == b
        tests.append(_Test(first, second, border))
        components[components == components[np.argmax(second)]] = components[np.argmax(first)]
        if border.p_value > 0.2:
            groups = np.unique(np.where(second, a, groups), return_inverse=True)[1]
            views = [split.discriminants(groups) for split in splits]
    if progress is not None:
        progress(k - 1, k - 1)
    return tests


def _closest(
    rows: Any,
    splits: list[SplitView],
    views: list[Discriminants],
    groups: NDArray,
    components: NDArray,
) -> tuple[int, int]:
    """Return the two closest groups of different components with no other group between them."""
    component = np.empty(int(groups.max()) + 1, dtype=np.int64)
    component[groups] = components
    distances = np.mean([view.distances for view in views], axis=0)
    upper = np.triu(component[:, None] != component)
    pairs = np.argwhere(upper)[np.argsort(distances[upper], kind="stable")]
    for a, b in pairs[:20]:
        if not is_blocked(rows, splits[0], views[0], a, b):
            return int(a), int(b)
    return int(pairs[0, 0]), int(pairs[0, 1])


def _holm_levels(p_values: NDArray, alpha: float) -> NDArray:
    """Return the level of each p-value in Holm's procedure; see the notes of `label_test`.

    All p-values after the first that is above its level have the level of that one.
    """
    m = p_values.size
    order = np.argsort(p_values, kind="stable")
    levels = alpha / np.arange(m, 0, -1)
    above = p_values[order] > levels
    if above.any():
        levels[np.argmax(above) :] = levels[np.argmax(above)]
    found = np.empty(m)
    found[order] = levels
    return found


def _result(given: _Clusters, tests: list[_Test], alpha: float) -> LabelTestResult:
    """Assemble the result, merged joins first: joins form a tree over clusters in any order."""
    names, sizes = np.empty(len(given.names), dtype=object), np.array(given.sizes)
    names[:] = given.names
    levels = _holm_levels(np.array([test.border.p_value for test in tests]), alpha)
    is_real = [test.border.p_value <= level for test, level in zip(tests, levels, strict=True)]
    places = sorted(range(len(tests)), key=lambda i: is_real[i] * (1 + tests[i].border.distance))
    side = np.arange(names.size)
    merged = side.copy()
    joins = []
    for i in places:
        first, second, border = tests[i]
        left, right = (side == side[np.argmax(group)] for group in (first, second))
        joins.append(
            LabelJoin(
                left=tuple(names[left]),
                right=tuple(names[right]),
                n_left=int(sizes[left].sum()),
                n_right=int(sizes[right].sum()),
                tested=(tuple(names[first]), tuple(names[second])),
                n_tested=(int(sizes[first].sum()), int(sizes[second].sum())),
                level=float(levels[i]),
                **border._asdict(),
            )
        )
        side[right] = side[np.argmax(left)]
        if not is_real[i]:
            merged = side.copy()
    labels = given.labels.copy()
    for group in np.unique(merged):
        members = np.flatnonzero(merged == group)
        largest = members[np.argmax(sizes[members])]
        if members.size > 1:
            labels[np.isin(given.codes, members)] = given.names[largest]
    return LabelTestResult(
        tuple(joins),
        tuple(given.names),
        tuple(given.sizes),
        tuple(given.small_names),
        tuple(given.small_sizes),
        given.n_noise,
        alpha,
        labels,
    )
