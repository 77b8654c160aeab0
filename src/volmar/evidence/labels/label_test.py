"""Which given clusters are real? Look for the gaps between them on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmar._checks import check_count, check_number, check_random_state
from volmar._input import check_matrix
from volmar._threads import one_thread
from volmar.evidence.dither import column_resolutions
from volmar.evidence.labels.label_borders import BorderTest, border_test, is_blocked
from volmar.evidence.labels.label_result import LabelJoin, LabelTestResult
from volmar.evidence.labels.label_views import Discriminants, SplitView, split_view
from volmar.evidence.modes.humps import N_DRAWS
from volmar.evidence.splits.held_out import LARGE
from volmar.metrics.contingency import encode_labels, is_missing, labels_of_rows
from volmar.rows import draw_from_collection, is_dask

__all__ = ["label_test"]

# Random splits of the rows, and fewer from `LARGE` rows on.
N_SPLITS, N_SPLITS_LARGE = 6, 2
# Rows of the smallest cluster, for each column, that are enough to learn from.
LEARNT_FOR_COLUMN = 6.0
# Held-out rows that the tests look at.
MOST_HELD_OUT = 20_000
# Draws of the mode test for every unit of one over the level: the least combined p-value is
# three times one over their number.
DRAWS_FOR_LEVEL = 4.0
# Above this p-value there is no sign of a gap, and two groups are one for the other tests.
NO_SIGN = 0.2
# Below this level of one test draws would take too long.
LEAST_LEVEL = 2.5e-4
# Pairs of groups that are asked whether another lies between them.
MOST_ASKED = 20


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

    Clusters are joined from the closest two up. Each join tests the border between its two sides:
    discriminants of the clusters are learnt on a random share of the rows, and the held-out rows
    that lie between the two closest groups of the sides are tested for one mode against more
    (`volmar.evidence.hump_test`). Where one mode is not rejected the two groups should be merged.

    Parameters
    ----------
    X : array of shape (n, d)
        The rows that were clustered, dense or CSR. Of a dask array or DataFrame 20,000 rows are
        drawn at random and tested.
    labels : array of shape (n,)
        Cluster of each row: integers, strings, or any one kind that can be sorted.
    alpha : float, default=0.05
        Family-wise level: probability that any two groups are falsely called separated. With k
        tested clusters alpha / (k - 1) must be at least 0.00025.
    n_splits : int, optional
        Number of random splits into rows to learn from and held-out rows; 6 if not given, 2 from
        20,000 rows on.
    min_cluster_size : int, default=20
        Clusters with fewer rows are not tested, at least 10. They keep their labels.
    noise_label : object, default=-1
        Label of rows without a cluster; the text "-1" counts as -1. Such rows are not learnt
        from, keep their label, and do count as rows that may lie in a gap.
    progress : callable, optional
        Called with (done, wanted) as joins are tested.
    random_state : int, RandomState or None, default=None
        Seed of the halves and the draws.

    Returns
    -------
    LabelTestResult
        Tree, p-values, merged labels; printed, a sentence for each join.

    See Also
    --------
    split_test : Whether rows have more than one group at all.
    volmar.plots.LabelTestDisplay : A picture of the result.

    Notes
    -----
    **The rows of a test.** Labels were made from all rows, so that a held-out row's own label may
    not choose it: one Gaussian cut in two, and each cell looked at, has a gap. Held-out
    rows are used without labels. Those between groups a and b are the ones in a convex region,
    :math:`t f_a + (1 - t) f_b \ge f_c` for every other group c, with f the linear discriminants
    that were learnt. A log-concave density that is restricted to a convex set and projected on a
    line has one mode (Prékopa). The scores are :math:`f_a - f_b`. Rows of a side much larger
    than the other are left out far from the border, so that small clusters can be seen. A valley
    with a way around it is no gap (`volmar.evidence.has_way_around`).

    The valley must be at the border: labels that do not follow a gap (a border through the middle
    of a group, labels drawn at random) are not separated, whatever gaps there are elsewhere.

    **Curved borders.** Where the discriminant has more than 5 % of the learnt rows of two groups
    on the wrong side, and their nearest rows have less than half as many, the scores are signed
    lengths of walks across the border (`volmar.evidence.Border`), in the same region.

    **Which borders.** There are k - 1 tests, one for each join: groups are apart if their
    closest pair is. Groups without any sign of a gap (p > 0.2) are one group for the tests that
    follow; others are merged only in the outcome, so that one weak border does not blur the rest.

    **The family-wise level.** The k - 1 p-values are compared with Holm's levels: the smallest
    with alpha / (k - 1), the next with alpha / (k - 2), up to the first that is above its level.
    That is valid under any dependence. A tree that is tested from the top down would merge all
    that is below a join without a clear gap. The argument takes the borders as given.

    **What it cannot know.** The labels were made with the held-out rows in sight. A tool that
    searches very hard, in columns as many as the rows, can carry a gap that is there by chance
    from all rows to the held-out ones; rows that are new, labelled by the same model, cannot have
    it. Pieces of one bent cluster (two moons cut into eight) may be joined in the wrong order.

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> from volmar.datasets import make_blobs
    >>> from volmar.diagnostics import label_test
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
            f"noise_label must be a single label, got a {type(noise_label).__name__}. Give these "
            "rows one label first, -1 say."
        )
    if is_dask(X):
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        X, (labels,), *_ = draw_from_collection(X, labels, seed=seed)
    rows: Any = check_matrix(X)
    given = _Clusters(labels, rows.shape[0], min_cluster_size, noise_label)
    k = len(given.names)
    level = float(alpha) / max(k - 1, 1)
    if level < LEAST_LEVEL:
        raise ValueError(
            f"alpha={alpha:g} leaves each of the {k - 1} joins of {k} clusters a level of "
            f"{level:.2g}, and draws resolve no less than {LEAST_LEVEL:g}. Raise alpha, raise "
            "min_cluster_size, or test fewer clusters."
        )
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    wanted = n_splits or (N_SPLITS_LARGE if rows.shape[0] >= LARGE else N_SPLITS)
    resolutions = column_resolutions(rows)
    splits = list(_splits(rows, given, resolutions, wanted, rng)) if k > 1 else []
    n_draws = max(N_DRAWS, math.ceil(DRAWS_FOR_LEVEL / level))
    tests = _test_joins(rows, splits, k, resolutions, n_draws, rng, progress)
    return _result(given, tests, float(alpha))


class _Test(NamedTuple):
    """Clusters of two groups (bool arrays), and the test of the border between them."""

    first: NDArray
    second: NDArray
    border: BorderTest


class _Clusters:
    """Given labels as codes: -1 for noise and for clusters that are too small to test."""

    def __init__(self, labels: ArrayLike, n: int, min_size: int, noise_label: Any):
        self.labels = _checked_labels(labels, n)
        codes, _ = encode_labels(self.labels, "labels")
        names, sizes = np.unique(self.labels), np.bincount(codes)
        is_noise = np.array([_is_noise(name, noise_label) for name in names.tolist()])
        if is_noise.all():
            raise ValueError(
                f"labels has no cluster: all {n} rows are noise (label {names[0]!s}). Pass labels "
                "of two clusters or more, or noise_label=None if this is a cluster."
            )
        if np.count_nonzero(~is_noise) < 2:
            raise ValueError(
                f"labels has one cluster only ({names[~is_noise][0]!s}), and there is nothing to "
                "compare it with. Pass labels of two clusters or more; volmar.evidence.split_test "
                "asks whether rows have more than one group."
            )
        is_tested = ~is_noise & (sizes >= min_size)
        if not is_tested.any():
            raise ValueError(
                f"no cluster in labels has min_cluster_size={min_size} rows, the largest has "
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
        raise TypeError(
            f"labels has dtype {found.dtype}. Pass integers or strings, one for each row."
        )
    if missing.any():
        place = int(np.argmax(missing))
        raise ValueError(
            f"labels holds {found[place]} at position {place}, which is no label. Give every row "
            "a label, -1 to rows without a cluster."
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
    """Yield what is learnt on a random share of each cluster, with the scores of the others.

    Means of given clusters are learnt from fewer rows than a gap is seen in: a quarter of the rows
    learns, more where clusters are small or columns many, half at most.
    """
    k, n = len(given.names), rows.shape[0]
    share = float(np.clip(LEARNT_FOR_COLUMN * rows.shape[1] / min(given.sizes), 0.25, 0.5))
    for _ in range(n_splits):
        order = rng.permutation(n)
        order = order[np.argsort(given.codes[order], kind="stable")]
        # Every third row, say, of each cluster: a new one each time that a whole number is passed.
        is_seen = np.diff(np.floor(share * np.arange(n + 1) + rng.random())) > 0
        seen, held_out = np.sort(order[is_seen]), np.sort(order[~is_seen])
        if held_out.size > MOST_HELD_OUT:
            held_out = np.sort(rng.choice(held_out, MOST_HELD_OUT, replace=False))
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
    """Test the closest two groups of different components until there is one component.

    Groups without any sign of a gap are one group for the tests that follow.
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
        if border.p_value > NO_SIGN:
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
    g = int(groups.max()) + 1
    component = np.empty(g, dtype=np.int64)
    component[groups] = components
    distances = np.mean([view.distances for view in views], axis=0)
    upper = np.triu(component[:, None] != component)
    pairs = np.argwhere(upper)[np.argsort(distances[upper], kind="stable")]
    for a, b in pairs[:MOST_ASKED]:
        if not is_blocked(rows, splits[0], views[0], a, b):
            return int(a), int(b)
    return int(pairs[0, 0]), int(pairs[0, 1])


def _holm_levels(p_values: NDArray, alpha: float) -> NDArray:
    """Return the level of each p-value in Holm's procedure.

    The smallest of m has alpha / m, the next alpha / (m - 1), and so on up to the first that is
    above its level; those that follow have the same level.
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
    """Order the joins, merged ones first: they make a tree over the clusters in any order."""
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
