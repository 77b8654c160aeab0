"""Test which given clusters are separated by a gap, on held-out rows."""

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

# Default number of random splits of the rows, and the number for `LARGE` or more rows.
N_SPLITS, N_SPLITS_LARGE = 6, 2
# Number of rows of the smallest cluster, per column, that are enough to learn from.
LEARNT_FOR_COLUMN = 6.0
# Maximum number of held-out rows that are tested.
MAX_HELD_OUT = 20_000
# The mode test makes this number of draws, divided by the level. The smallest combined p-value is
# three divided by the number of draws.
DRAWS_FOR_LEVEL = 4.0
# Above this p-value there is no sign of a gap: the two groups are merged for the other tests.
NO_SIGN = 0.2
# Minimum level of a single test. Below it, the draws would take too long.
MIN_LEVEL = 2.5e-4
# Maximum number of pairs of groups that are checked for another group between them.
MAX_CHECKED = 20


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
    mode against more (`volmar.evidence.hump_test`). If one mode is not rejected, the two groups
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
    (`volmar.evidence.has_way_around`).

    The valley must be at the border. Labels that do not follow a gap (a border through the middle
    of a group, or random labels) are not separated, even if there are gaps elsewhere.

    **Curved borders.** The discriminant may put more than 5 % of the learnt rows of two groups on
    the wrong side. If the nearest rows misplace less than half as many, the scores are signed
    distances to a curved border (`volmar.evidence.Border`), in the same region.

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
    wanted = n_splits or (N_SPLITS_LARGE if rows.shape[0] >= LARGE else N_SPLITS)
    resolutions = column_resolutions(rows)
    splits = list(_splits(rows, given, resolutions, wanted, rng)) if k > 1 else []
    n_draws = max(N_DRAWS, math.ceil(DRAWS_FOR_LEVEL / level))
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
                "volmar.evidence.split_test."
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
    rows is used for learning, and up to a half if clusters are small or columns are many.
    """
    k, n = len(given.names), rows.shape[0]
    share = float(np.clip(LEARNT_FOR_COLUMN * rows.shape[1] / min(given.sizes), 0.25, 0.5))
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
    for a, b in pairs[:MAX_CHECKED]:
        if not is_blocked(rows, splits[0], views[0], a, b):
            return int(a), int(b)
    return int(pairs[0, 0]), int(pairs[0, 1])


def _holm_levels(p_values: NDArray, alpha: float) -> NDArray:
    """Return the level of each p-value in Holm's procedure.

    The smallest of m p-values has level alpha / m, the next alpha / (m - 1), and so on up to the
    first that is above its level. All later ones have the level of that one.
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
