"""Semi-supervised fits: known labels of some rows, links between rows, limits on cluster sizes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from sklearn.exceptions import ConvergenceWarning

from volmar._checks import check_random_state
from volmar._clones import silent_clone
from volmar._warn import collecting, warn_user
from volmar.base.blocks import is_dask_series, lazily, refuse_blocks
from volmar.base.numbering import cluster_order
from volmar.base.recursion import PartRows, RecursiveResult, leading_features, tree_result
from volmar.base.tree import SplitNode, SplitTree
from volmar.guidance.guide import EmptyClusterError, Guide, Placement
from volmar.guidance.knowledge import (
    Knowledge,
    Seeds,
    check_block_seeds,
    check_cannot_link,
    check_contradictions,
    check_limits,
    check_must_link,
    check_seeds,
    check_size,
    is_array,
    names_of_clusters,
    refuse_impossible,
)
from volmar.guidance.starts import (
    STRICT_LEVEL,
    SpreadGraph,
    beats_chance,
    held_out_folds,
    seeded_start,
)
from volmar.rows.anywhere import is_in_memory

# Maximum number of pairs of rows listed in a warning.
NAMED = 5


class GuidedMixin:
    """A clusterer that takes labels of some rows, links between rows and limits of sizes.

    The mixin comes before `Clusterer` in the bases. Without labels, links and limits, the fit is
    identical to that of the clusterer, bit by bit. Otherwise the clusterer is fitted twice: first
    without this knowledge, then from chosen labels with `_guide` set. In the second fit,
    `_fit_once` begins at the labels in `init`, uses `_guide.place` to turn scores into labels, and
    does not renumber the clusters. A clusterer with `_has_first_step` ends after its first step if
    `_ends_first` is set.
    """

    _takes_models: ClassVar[bool] = True
    #: Whether a guided fit can end after its first step.
    _has_first_step: ClassVar[bool] = False
    _ends_first: bool = False

    classes_: NDArray[np.int64] | NDArray[np.str_]
    init: Any
    n_clusters: Any
    random_state: Any

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        must_link: ArrayLike | None = None,
        cannot_link: ArrayLike | None = None,
    ) -> Self:
        """Find the clusters of X.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_samples, n_samples)
            Rows, dense or CSR. With kernel="precomputed", the kernel values of all pairs of rows.
            `MSPC`, `CPMMC`, `SKMMC`, and `KernelCPMMC` with method="nystroem" also accept dask
            arrays and DataFrames, because they need only sums over rows.
        y : array of shape (n_samples,), optional
            Known labels of some rows, integers or strings, with -1 for all other rows. None, NaN,
            NaT, pandas.NA, blank or masked entries and the text "-1" are read as -1. Labelled rows
            keep their labels, and the clusters are named after them (`classes_`). A `y` without
            unknown labels is ignored, as by all clusterers of scikit-learn.
        sample_weight : array of shape (n_samples,), optional
            Weight of each row. A weight of 2 is the same as repeating the row. If the largest
            weight is above 2**32 or below 2**-32, all weights are divided by a power of two
            (`objective_` is then in that unit). Weights below 2**-100 of the largest count as 0.
        must_link : array of shape (n_samples,), optional
            Group ids. Rows with the same id are put in the same cluster. Rows with -1, or another
            of the unknown values of `y`, are in no group.
        cannot_link : array of shape (n_pairs, 2), optional
            Pairs of row numbers that should be in different clusters. The pairs for which this is
            not possible are in `broken_links_`.

        Returns
        -------
        self
        """
        known = Knowledge(y, must_link, cannot_link, sample_weight)
        return self._fit(X, sample_weight, known)  # type: ignore[attr-defined]

    def fit_predict(self, X: Any, y: ArrayLike | None = None, **kwargs: Any) -> NDArray:
        """Find the clusters of X and return the cluster of each row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows, as in `fit`.
        y : array of shape (n_samples,), optional
            Known labels of some rows, -1 for all other rows.
        **kwargs : dict
            Passed to `fit`: must_link, cannot_link, and sample_weight if the method supports it.
        """
        return self.fit(X, y, **kwargs).labels_

    def _fit_known(self, X: Any, weights: Any, known: Knowledge) -> bool:
        """Fit with labels, links and limits; return False if there are none."""
        n = X.shape[0]
        if not is_in_memory(X):
            return self._fit_known_blocks(X, weights, known)
        seeds = check_seeds(known.y, n)
        units = check_must_link(known.must_link, n)
        apart = check_cannot_link(known.cannot_link, n)
        if known.cannot_link is not None:
            self.broken_links_ = apart[:0]
        if seeds is None and units is None and not apart.size and not self._is_limited():
            return False
        no_names = Seeds(np.empty(0, dtype=np.int64), np.full(n, -1, dtype=np.int64))
        names, numbers = seeds or no_names
        check_contradictions(numbers, names, units, apart)
        unit = 1.0
        if weights is not None:
            # A row of weight 0 keeps its given label, and has no influence.
            weights = np.asarray(weights)
            unit = float(np.max(known.sample_weight)) / float(weights.max())
        guide = Guide(0, numbers, units, apart, weights=weights)
        self._fit_guided(X, weights, names, guide, unit)
        return True

    def _fit_known_blocks(self, X: Any, weights: Any, known: Knowledge) -> bool:
        """Fit a dask collection with some labelled rows; return False if there are none."""
        if self._is_limited():
            self._refuse_in_blocks("a limit on cluster sizes")
        if known.must_link is not None or known.cannot_link is not None:
            self._refuse_in_blocks("must_link or cannot_link")
        seeds = check_block_seeds(known.y, X)
        if seeds is None:
            return False
        names_of_clusters(seeds.names, int(self.n_clusters))
        self._fit_seeded_blocks(X, weights, seeds)  # type: ignore[attr-defined]
        return True

    def _refuse_in_blocks(self, what: str) -> None:
        name = f"{type(self).__name__} with {what}"
        refuse_blocks(name, f"{what} needs the scores of all rows at once")

    def _set_lazy_labels(self, X: Any, known: Knowledge | None = None) -> None:
        """Set the lazy labels of a dask DataFrame; rows with a label in `y` keep it."""
        if not hasattr(self, "classes_"):
            super()._set_lazy_labels(X, known)  # type: ignore[misc]
        elif known is not None and is_dask_series(known.y):
            predicted = lazily(self, "predict", X)
            given = known.y.fillna(-1).astype(np.int64)
            self.labels_ = predicted.where(given == -1, given)

    @property
    def _keeps_minimum(self) -> bool:
        """Whether the method itself enforces a scalar `min_cluster_size`."""
        return False

    def _is_limited(self) -> bool:
        """Return whether there are limits on sizes that the method itself does not enforce."""
        min_size, max_size = self._sizes()
        is_own = self._keeps_minimum and not is_array(min_size)
        return max_size is not None or (min_size is not None and not is_own)

    def _sizes(self) -> tuple[Any, Any]:
        return getattr(self, "min_cluster_size", None), getattr(self, "max_cluster_size", None)

    def _check_all_parameters(self) -> None:
        min_size, max_size = self._sizes()
        check_size("max_cluster_size", max_size)
        if not (self._keeps_minimum and not is_array(min_size)):
            check_size("min_cluster_size", min_size)
        has_arrays = is_array(min_size) or is_array(max_size)
        model: Any = self._without_limits() if has_arrays else self
        model._check_parameters()

    def _without_limits(self) -> Any:
        """Return a copy without the limits that the method itself does not enforce."""
        copy = silent_clone(self)
        min_size, max_size = self._sizes()
        if max_size is not None:
            copy.set_params(max_cluster_size=None)
        if min_size is not None and (is_array(min_size) or not self._keeps_minimum):
            copy.set_params(min_cluster_size=None)
        return copy

    def _fit_free(self, X: Any, weights: Any) -> Any:
        """Return a copy fitted without labels, links and limits."""
        free = self._without_limits()
        free.n_features_in_ = X.shape[1]
        before = free.get_params(deep=False)
        with collecting():
            free._fit_rows(X, weights)
        vars(free).update(before)  # a fit may change the parameters of its copy
        return free

    def _fit_guided(
        self, X: Any, weights: Any, names: NDArray, known: Guide, unit: float = 1.0
    ) -> bool:
        """Fit under a guide; return whether the fit ended after its first step."""
        graph: SpreadGraph | None = None
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        k = int(self.n_clusters)
        names_of_clusters(names, k)  # refuses more classes than clusters
        most = names.size + int(np.count_nonzero(known.unit_seeds < 0))
        if most < k:
            raise ValueError(
                f"n_clusters={k} clusters cannot be formed: y and must_link leave at most "
                f"{most} clusters. Lower n_clusters, or change y or must_link."
            )
        known = self._limited(replace(known, k=k), names, unit)
        free = self._fit_free(X, weights)
        start = free.labels_
        if names.size:
            W = self._similarities(X, free)
            start, graph = seeded_start(X, start, known.seeds, k, seed, W=W)
        once = graph is not None and self._prefers_first(weights, free, graph, known, seed)
        model = free
        if k > 1:
            try:
                model = self._guided_fit(X, weights, free, start, known, once=once)
            except ValueError as error:
                raise ValueError(
                    f"{type(self).__name__} could not find {k} clusters that agree with y, the "
                    f"links and the size limits: {error}"
                ) from error
        self._take_over(model)  # type: ignore[attr-defined]
        placed = model._placed_rows(X, known)
        if placed.offsets.any():
            self._offsets = placed.offsets
        self._set_result(replace(model.result_, labels=placed.labels))  # type: ignore[attr-defined]
        _warn_of(placed, known, unit)
        if known.apart.size:
            self.broken_links_ = placed.broken
        if names.size:
            self.classes_ = names_of_clusters(names, k)
            self.labels_ = self.classes_[placed.labels]
        return once

    def _prefers_first(
        self, weights: Any, free: Any, graph: SpreadGraph, guide: Guide, seed: int
    ) -> bool:
        """Return whether the first step predicts more held-out labels correctly than the last.

        A fit converges to the clusters that separate best, which need not be the classes. For
        large data only the rows of the graph are used.
        """
        if not self._has_first_step or self._is_pairwise():  # type: ignore[attr-defined]
            return False
        rows, few = graph.rows, guide.on(graph.chosen)
        given = None if weights is None else weights[graph.chosen]
        known, found = [], []
        for fold, rest in held_out_folds(few.seeds, seed):
            start, others = graph.labels_in_sample(rest, guide.k), few.without_seeds(fold)
            for once in (False, True):
                try:
                    model = self._guided_fit(rows, given, free, start, others, once=once)
                except ValueError:  # no clusters, or no margin, with the other labels alone
                    return False
                scores = _columns(model._finite_scores(rows[fold]), guide.k)
                found.append(np.argmax(scores, axis=1))
            known.append(few.seeds[fold])
        truth, last, first = (np.concatenate(part) for part in (known, found[::2], found[1::2]))
        is_better = np.count_nonzero(first == truth) > np.count_nonzero(last == truth)
        return bool(is_better) and beats_chance(truth, first, STRICT_LEVEL)

    def _limited(self, guide: Guide, names: NDArray, unit: float) -> Guide:
        """Return a guide with the size limits, given the `unit` of the weights."""
        min_size, max_size = self._sizes()
        sizes = guide.unit_sizes
        limits = check_limits(
            min_size,
            max_size,
            guide.k,
            _total(guide) * unit,
            has_names=bool(names.size),
            is_counted=bool((sizes * unit == np.round(sizes * unit)).all()),
        )
        if limits is None:
            return guide
        guide = replace(guide, low=limits.low / unit, high=limits.high / unit)
        units = np.arange(guide.n_units)
        if guide.units is not None:
            units = np.unique(guide.units, return_index=True)[1]
        refuse_impossible(
            limits,
            sizes * unit,
            guide.unit_seeds,
            names_of_clusters(names, guide.k),
            units,
            is_linked=guide.units is not None,
        )
        return guide

    def _guided_fit(
        self,
        X: Any,
        weights: Any,
        free: Any,
        start: NDArray,
        guide: Guide,
        *,
        once: bool = False,
    ) -> Any:
        """Return a copy fitted from labels under a guide.

        With `once` the fit ends after its first step.
        """
        labels = guide.place(_start_gains(X, free, start, guide)).labels
        if np.unique(labels).size < guide.k:
            raise EmptyClusterError(guide.k)
        params = self._guided_params(free)  # type: ignore[attr-defined]
        model = self._without_limits().set_params(n_clusters=guide.k, init=labels, **params)
        model._guide = guide
        if once:
            model._ends_first = True
        model.n_features_in_ = X.shape[1]
        model._begin_at(start, free)
        model._reuse(free)
        model._fit_once(X, weights)
        return model

    # ------------------------------------------------------------------ for the subclass

    def _similarities(self, X: Any, free: Any) -> Any:  # noqa: ARG002 -- for methods with a graph
        """Return the similarities used to spread labels; None for nearest neighbours in X."""
        return None

    def _reuse(self, free: Any) -> None:
        """Copy from the unguided fit what the guided fit would otherwise compute again."""

    def _training_scores(self, X: Any) -> NDArray:
        """Return the scores that determine the final labels of the training rows."""
        return self._finite_scores(X)  # type: ignore[attr-defined]

    def _begin_at(self, start: NDArray, free: Any) -> None:
        """Prepare a guided fit, given its start labels and the unguided fit."""

    def _forget_start(self) -> None:
        """Delete the attributes that only the guided fit itself needs."""
        for name in ("_guide", "_ends_first"):
            vars(self).pop(name, None)

    def _placed_rows(self, X: Any, guide: Guide) -> Placement:
        """Return the labels of the training rows by their scores."""
        return guide.place(_columns(self._training_scores(X), guide.k))


class GuidedUnweightedMixin(GuidedMixin):
    """`GuidedMixin` for a clusterer without `sample_weight`."""

    def fit(  # type: ignore[override]
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        must_link: ArrayLike | None = None,
        cannot_link: ArrayLike | None = None,
    ) -> Self:
        """Find the clusters of X.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_samples, n_samples)
            Rows, dense or CSR. With affinity="precomputed", the similarities of all pairs of rows.
        y : array of shape (n_samples,), optional
            Known labels of some rows, integers or strings, with -1 for all other rows. None, NaN,
            NaT, pandas.NA, blank or masked entries and the text "-1" are read as -1. Labelled rows
            keep their labels, and the clusters are named after them (`classes_`). A `y` without
            unknown labels is ignored, as by all clusterers of scikit-learn.
        must_link : array of shape (n_samples,), optional
            Group ids. Rows with the same id are put in the same cluster. Rows with -1, or another
            of the unknown values of `y`, are in no group.
        cannot_link : array of shape (n_pairs, 2), optional
            Pairs of row numbers that should be in different clusters. The pairs for which this is
            not possible are in `broken_links_`.

        Returns
        -------
        self
        """
        known = Knowledge(y, must_link, cannot_link)
        return self._fit(X, None, known)  # type: ignore[attr-defined]


def _columns(scores: NDArray, k: int) -> NDArray:
    """Return scores with one column per cluster."""
    if scores.ndim == 2:
        return scores
    return np.column_stack([np.zeros_like(scores), scores])[:, :k]


def _total(guide: Guide) -> float:
    return float(guide.unit_sizes.sum())


def _start_gains(X: Any, free: Any, start: NDArray, guide: Guide) -> NDArray:
    """Return gains for the first placement; the largest gain of a row is that of its start label.

    With limits on sizes, the rows nearest to a border of the unguided clusters move first.
    """
    k = guide.k
    own = np.eye(k)[start]
    if guide.limits is None or int(free.labels_.max()) + 1 != k:
        return own
    shared = np.zeros((k, k))
    np.add.at(shared, (free.labels_, start), 1.0)
    order = np.argsort(linear_sum_assignment(shared, maximize=True)[1])
    scores = _columns(free._finite_scores(X), k).astype(np.float64)[:, order]
    is_other = np.argmax(scores, axis=1) != start
    return scores + np.where(is_other, 2.0 * np.ptp(scores), 0.0)[:, None] * own


def _warn_of(placed: Placement, guide: Guide, unit: float) -> None:
    """Warn about cannot_link pairs in one cluster and about clusters outside their limits."""
    if placed.broken.size:
        few = ", ".join(f"({a}, {b})" for a, b in placed.broken[:NAMED].tolist())
        more = ", ..." if placed.broken.shape[0] > NAMED else ""
        warn_user(
            f"{placed.broken.shape[0]} of {guide.apart.shape[0]} pairs of cannot_link are in one "
            f"cluster, rows {few}{more} (see broken_links_). Raise n_clusters, or leave out pairs "
            "that contradict y, the size limits or each other.",
            ConvergenceWarning,
        )
    if placed.excess and guide.limits is not None:
        weights = np.ones(guide.seeds.size) if guide.weights is None else guide.weights
        sizes = np.bincount(placed.labels, weights, guide.k)
        low, high = guide.limits
        out = np.maximum(sizes - high, low - sizes)
        c = int(np.argmax(out))
        warn_user(
            f"the size limits cannot be met exactly with rows of different weights or linked "
            f"rows. Cluster {c} has size {sizes[c] * unit:g}, outside its limits of "
            f"{low[c] * unit:g} to {high[c] * unit:g}. Change min_cluster_size or "
            "max_cluster_size by the difference.",
            ConvergenceWarning,
        )


# -------- more than two clusters by recursive splitting, with known labels, links and size limits


@dataclass(frozen=True)
class SideGuide(Guide):
    """The guide of a split in two. Each side is a set of clusters, so sides are not renumbered."""

    @property
    def has_names(self) -> bool:
        """Always True: the sides cannot be exchanged."""
        return True


class GuidedTree(NamedTuple):
    """A tree and its result, including the labels."""

    tree: SplitTree
    result: RecursiveResult


class _Open(NamedTuple):
    """A part to split: its rows, its clusters, and start labels (-1 for any other cluster)."""

    node: SplitNode
    rows: NDArray
    clusters: NDArray
    start: NDArray


def grow_guided_tree(
    model: Any, X: Any, weights: Any, labels: NDArray, guide: Guide, *, init: Any
) -> GuidedTree:
    """Split rows recursively until every part is one cluster of the guide.

    A part with several clusters is first split in two without the guide. This split divides the
    clusters into two sets, by the side on which most of their rows are. The part is then split
    again between the two sets, with the seeds, links and limits of the part. The seeds of a
    cluster become seeds of its set, and the limits of a set are the sums over its clusters.
    """
    n, pairwise = X.shape[0], model._is_pairwise()
    seeds = np.random.default_rng(model.random_state if _is_seed(model.random_state) else 0)
    total = float(n if weights is None else weights.sum())
    root = SplitNode(n, total, columns=np.arange(n) if pairwise else None)
    waiting = deque([_Open(root, np.arange(n), np.arange(guide.k), labels)])
    found = np.empty(n, dtype=np.int64)
    n_splits = 0
    while waiting:
        part = waiting.popleft()
        if part.clusters.size == 1:
            part.node.label = int(part.clusters[0])
            found[part.rows] = part.node.label
            continue
        n_splits += 1
        part.node.rank = n_splits
        seed = int(seeds.integers(2**31 - 1))
        waiting.extend(_split(model, part, X, weights, guide, init, seed))
    tree = SplitTree(root)
    if not guide.has_names:
        order = cluster_order(found, weights, guide.k)
        tree.relabel(np.argsort(order))
        found = np.argsort(order)[found]
    return GuidedTree(tree, replace(tree_result(tree), labels=found))


def _is_seed(random_state: Any) -> bool:
    return isinstance(random_state, int | np.integer)


def _split(
    model: Any, part: _Open, X: Any, weights: Any, guide: Guide, init: Any, seed: int
) -> list[_Open]:
    """Split a part and return its two sides; the split is stored in the node of the part."""
    node, rows, clusters, start = part
    inside = _rows_of(X, rows, pairwise=model._is_pairwise())
    w = None if weights is None else weights[rows]
    free = _free_split(model, PartRows(inside, w, seed), init)
    sides = None if free is None else free.labels_
    is_second = grouped_clusters(start, clusters, sides, w)
    start_sides = np.zeros(rows.size, dtype=np.int64) if sides is None else sides.copy()
    placed = start >= 0
    numbers = np.searchsorted(clusters, start[placed])
    start_sides[placed] = is_second[numbers]
    if np.ptp(start_sides) == 0 and sides is not None:
        start_sides = sides
    two = guide_of_sides(guide, rows, clusters, is_second)
    if free is None:
        two = replace(two, low=None, high=None)  # no scores to choose rows by
    with collecting() as messages:
        split = model._guided_fit(inside, w, free, start_sides, two)
    after = split._placed_rows(inside, two)
    split._offsets = after.offsets if after.offsets.any() else None
    split.labels_ = after.labels
    split.init = init  # instead of the labels of all rows
    split._forget_start()
    node.model = split
    node.probability = model._split_probability(split, inside, w)
    node.leading = leading_features(split, inside, w)
    node.warnings = tuple(one.text for one in messages)
    children = []
    for side in (0, 1):
        chosen = after.labels == side
        own = clusters[is_second == side]
        first = np.where(np.isin(start[chosen], own), start[chosen], -1)
        weight = float(np.count_nonzero(chosen) if w is None else w[chosen].sum())
        columns = rows[chosen] if model._is_pairwise() else None
        child = SplitNode(int(np.count_nonzero(chosen)), weight, columns=columns)
        children.append(_Open(child, rows[chosen], own, first))
    node.children = tuple(child.node for child in children)
    return children


def grouped_clusters(
    start: NDArray, clusters: NDArray, sides: NDArray | None, weights: NDArray | None
) -> NDArray[np.bool_]:
    """Return which clusters go to the second side of a split: those with most of their rows there.

    Each side gets at least one cluster. If all clusters have most of their rows on one side, the
    cluster with the largest share on the other side goes there. Clusters without rows go to the
    side with fewer clusters.
    """
    if sides is None:
        return np.arange(clusters.size) > 0
    placed = start >= 0
    numbers = np.searchsorted(clusters, start[placed])
    w = np.ones(numbers.size) if weights is None else weights[placed]
    sizes = np.bincount(numbers, w, clusters.size)
    ones = np.bincount(numbers, w * (sides[placed] > 0), clusters.size)
    shares = np.divide(ones, sizes, out=np.full(clusters.size, np.nan), where=sizes > 0)
    is_second = shares > 0.5
    for cluster in np.flatnonzero(np.isnan(shares)):
        others = is_second[~np.isnan(shares)]
        is_second[cluster] = 2 * np.count_nonzero(others) < others.size
        shares[cluster] = float(is_second[cluster])
    if not is_second.any():
        is_second[np.argmax(shares)] = True
    elif is_second.all():
        is_second[np.argmin(shares)] = False
    return is_second


def guide_of_sides(guide: Guide, rows: NDArray, clusters: NDArray, is_second: NDArray) -> Guide:
    """Return the guide of a split of some rows in two.

    Cannot-link pairs apply only if each side is a single cluster.
    """
    part = guide.on(rows)
    side_of = np.full(guide.k + 1, -1)
    side_of[clusters] = is_second
    low, high = (
        None
        if limit is None
        else np.array([limit[clusters[~is_second]].sum(), limit[clusters[is_second]].sum()])
        for limit in (guide.low, guide.high)
    )
    return SideGuide(
        2,
        side_of[part.seeds],
        part.units,
        part.apart if clusters.size == 2 else np.empty((0, 2), dtype=np.int64),
        low,
        high,
        part.weights,
    )


def _rows_of(X: Any, rows: NDArray, *, pairwise: bool) -> Any:
    if rows.size == X.shape[0]:
        return X
    if not pairwise:
        return X[rows]
    return X[rows][:, rows] if sparse.issparse(X) else X[np.ix_(rows, rows)]


def _free_split(model: Any, part: PartRows, init: Any) -> Any:
    """Return the split of a part without a guide, or None if there is none."""
    with collecting():
        try:
            split = model._fit_part(part, init=init)
        except ValueError:
            return None
    return split if np.ptp(split.labels_) > 0 else None
