"""Test which of given clusters are separated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmar._checks import check_count, check_number, check_random_state
from volmar._input import check_matrix
from volmar._notebook import html_card
from volmar._text import counted
from volmar._threads import one_thread
from volmar.evidence.borders import Evidence
from volmar.evidence.sides import Half, Sides
from volmar.evidence.space import sampled_numbers, space_of
from volmar.evidence.splits import MIN_EFFECT, halves
from volmar.evidence.wording import p_value_text
from volmar.metrics.contingency import encode_labels, is_missing, labels_of_rows
from volmar.rows.anywhere import draw_from_collection
from volmar.rows.blocks import is_dask

# ------------- the outcome of `label_test`: a tree over given clusters, and the clusters to merge


@dataclass(frozen=True)
class LabelJoin:
    """Two sides of the tree over given clusters, and the test of the border between them.

    `tested` are the closest two groups, one from each side, whose border was tested (a group is a
    cluster, or several that had been merged before). The border is a gap if `p_value` is at most
    `level` and `effect` at least 0.2: the share by which the density at the border is below that
    of its sparser side, a lower 90 % limit (1 for an empty gap, negative without a valley).
    """

    left: tuple[Any, ...]
    right: tuple[Any, ...]
    n_left: int
    n_right: int
    tested: tuple[tuple[Any, ...], tuple[Any, ...]]
    n_tested: tuple[int, int]
    p_value: float
    level: float
    effect: float

    @property
    def is_real(self) -> bool:
        """Whether there is a gap between the sides."""
        return self.p_value <= self.level and self.effect >= MIN_EFFECT

    @property
    def p_text(self) -> str:
        """The formatted p-value and its level."""
        return p_value_text(self.p_value, level=self.level)

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
        effect. The last join contains all tested clusters.
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
        Level of the test.
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
                f"No two of the {given} given clusters are separated (level "
                f"{self.alpha:g}): no gap was found at any border between them."
            )
        if self.n_real == len(self.clusters):
            every = "Both" if self.n_real == 2 else f"All {self.n_real}"
            return f"{every} tested clusters are separated from each other (level {self.alpha:g})."
        return (
            f"{len(self.clusters)} tested clusters form {self.n_real} groups that are separated "
            f"from each other (level {self.alpha:g})."
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


# ------------------------------------- test which given clusters are separated, on held-out rows

# Most open borders are not between groups; below this log of a probability one may be.
OPEN = float(np.log(0.05))
# Minimum number of rows of each cluster in a sample.
FEWEST_DRAWN = 20


@one_thread()
def label_test(
    X: ArrayLike,
    labels: ArrayLike,
    *,
    alpha: float = 0.05,
    min_cluster_size: int = 20,
    noise_label: Any = -1,
    progress: Callable[[int, int], None] | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> LabelTestResult:
    r"""Test which given clusters, from any tool, are separated, and which should be merged.

    The border between two clusters is tested by the density of rows there and on both sides,
    measured along the data. The clusters with the most open border are merged, unless it is
    separated, until all borders are.

    Parameters
    ----------
    X : array of shape (n, d)
        The rows that were clustered, dense or CSR. If X is a dask array or DataFrame, a random
        sample of 20,000 rows is tested.
    labels : array of shape (n,)
        Cluster of each row: integers, strings, or values of any one type that can be sorted.
    alpha : float, default=0.05
        Family-wise level of the borders that are left, which have Holm's levels.
    min_cluster_size : int, default=20
        Minimum number of rows of a tested cluster; must be at least 10. Smaller clusters are not
        tested and keep their labels.
    noise_label : object, default=-1
        Label of rows without a cluster; the string "-1" counts as -1. Such rows keep their label.
        They are counted as rows that may lie in a gap.
    progress : callable, optional
        Function called with (done, total) as clusters are merged.
    random_state : int, RandomState or None, default=None
        Random seed of the halves and of a sample.

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
    A border is separated if its p-value is at most its level *and* its effect is at least 0.2: the
    density at the border is by that share below that of the sparser side, with 90 % confidence.

    The labels were computed from all rows. Rows selected by their own labels would have gaps: a
    single Gaussian cut in two has one between its halves. The rows are therefore divided into
    halves, and rows of one half are on the side that their nearest rows in the other half vote
    for. A second p-value is that of all rows, multiplied by the number of borders that could have
    been chosen (see `volmar.evidence.borders`).

    In more than three columns, where groups may differ in a few of them, rows are also counted
    along the linear discriminant, which is learnt on the other half.

    Of many rows, a sample is tested: 20,000 rows of up to three columns, 5,000 of more.

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
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    k = len(given.names)
    joins = _joins(_sides(rows, given.codes, rng), k, float(alpha), progress) if k > 1 else []
    return _result(given, joins, float(alpha))


class _Join(NamedTuple):
    """Masks of the clusters in two groups, the evidence of their border, and its level."""

    first: NDArray[np.bool_]
    second: NDArray[np.bool_]
    found: Evidence
    level: float

    @property
    def is_real(self) -> bool:
        return bool(self.found.p_value <= self.level and self.found.effect >= MIN_EFFECT)


def _sides(X: Any, codes: NDArray, rng: np.random.Generator) -> Sides:
    """Return the rows of a sample with their codes, and halves of them."""
    numbers = sampled_numbers(X, rng)
    if numbers.size < codes.size:
        order = rng.permutation(codes.size)
        few = [order[codes[order] == c][:FEWEST_DRAWN] for c in range(codes.max() + 1)]
        numbers = np.unique(np.concatenate([numbers, *few]))
        X, codes = X[numbers], codes[numbers]
    space = space_of(X, int(rng.integers(2**31 - 1)))
    rows = space.spread(space.columns(X), rng)
    found = []
    for learnt, unseen in halves(codes.size, rng):
        known = learnt[codes[learnt] >= 0]
        if known.size:
            found.append(Half(known, codes[known], unseen))
    return Sides(rows, codes, found, len(found), rng)


def _joins(
    sides: Sides, k: int, alpha: float, progress: Callable[[int, int], None] | None
) -> list[_Join]:
    """Merge the groups with the most open border until all borders are separated."""
    groups = np.arange(k)
    merged: list[_Join] = []
    kept: list[_Join] = []
    known: dict[bytes, Evidence] = {}
    while True:
        if progress is not None:
            progress(len(merged), k - 1)
        open_ones = sides.openness(groups) if groups.max() > 0 else {}
        tested: list[_Join] = []
        for a, b in sorted(open_ones, key=lambda pair: -open_ones[pair]):
            at = _attached(groups, open_ones, a, b)
            key = np.append(at, 2 * (groups == a) - (groups == b)).tobytes()
            if key not in known:
                known[key] = sides.evidence(at, groups, a, b)
            tested.append(_Join(groups == a, groups == b, known[key], alpha))
            if not tested[-1].is_real:
                break
        if not tested or tested[-1].is_real:
            kept = _with_levels(_tree(tested, groups), alpha)
        failed = [join for join in kept or tested if not join.is_real]
        if not failed:
            break
        merged.append(max(failed, key=lambda join: join.found.p_value))
        first, second = (groups[np.argmax(part)] for part in merged[-1][:2])
        groups = np.unique(np.where(groups == second, first, groups), return_inverse=True)[1]
        kept = []
    if progress is not None:
        progress(k - 1, k - 1)
    return merged + kept


def _tree(tested: list[_Join], groups: NDArray[np.int64]) -> list[_Join]:
    """Return the joins of a tree over the groups, those with the smallest effect first."""
    component, found = groups.copy(), []
    for join in sorted(tested, key=lambda join: join.found.effect):
        one, other = component[np.argmax(join.first)], component[np.argmax(join.second)]
        if one != other:
            found.append(join)
            component[component == other] = one
    return found


def _with_levels(joins: list[_Join], alpha: float) -> list[_Join]:
    """Set the level of each join by Holm's rule: alpha / m for the smallest of m p-values, ..."""
    levels = np.empty(len(joins))
    order = np.argsort([join.found.p_value for join in joins], kind="stable")
    levels[order] = alpha / np.arange(len(joins), 0, -1)
    return [join._replace(level=float(one)) for join, one in zip(joins, levels, strict=True)]


def _attached(
    groups: NDArray, open_ones: dict[tuple[int, int], float], a: int, b: int
) -> NDArray[np.int64]:
    """Return the side of each cluster, 1 with a, -1 with b, or 0.

    Other groups are attached to the side with which they have an open border. Without their rows,
    the border would end there, and the strips beside it would be wider than the border.
    """
    part = np.arange(int(groups.max()) + 1)
    edges = [one for one in open_ones if open_ones[one] > OPEN]
    for ends in sorted(edges, key=lambda one: -open_ones[one]):
        one, other = part[list(ends)]
        if {one, other} != {part[a], part[b]}:
            part[part == other] = one
    side = (part == part[a]).astype(np.int64) - (part == part[b])
    return np.asarray(side[groups])


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


def _result(given: _Clusters, tests: list[_Join], alpha: float) -> LabelTestResult:
    """Assemble the result; the joins of groups that are not separated come first."""
    names, sizes = np.empty(len(given.names), dtype=object), np.array(given.sizes)
    names[:] = given.names
    side = np.arange(names.size)
    merged = side.copy()
    joins = []
    for test in tests:
        first, second = test.first, test.second
        left, right = (side == side[np.argmax(group)] for group in (first, second))
        joins.append(
            LabelJoin(
                left=tuple(names[left]),
                right=tuple(names[right]),
                n_left=int(sizes[left].sum()),
                n_right=int(sizes[right].sum()),
                tested=(tuple(names[first]), tuple(names[second])),
                n_tested=(int(sizes[first].sum()), int(sizes[second].sum())),
                p_value=float(test.found.p_value),
                level=test.level,
                effect=float(test.found.effect),
            )
        )
        side[right] = side[np.argmax(left)]
        if not test.is_real:
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
