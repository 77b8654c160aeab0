"""Splits of parts of the rows: fits with two clusters, tests, merging of leaves, warnings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import has_fit_parameter

from volmar._clones import silent_clone
from volmar._warn import warn_user
from volmar.base.blocks import without_vectors
from volmar.base.numbering import cluster_order
from volmar.base.recursion import PartRows, RecursiveResult
from volmar.base.tree import SplitTree
from volmar.evidence import (
    LINEAR,
    HeldOutTest,
    LinearCells,
    held_out_test,
    hump_test,
    make_split,
)
from volmar.evidence.dither import column_resolutions, dithered_scores
from volmar.evidence.pairs import merged_labels
from volmar.rows import Plane
from volmar.rows.cells import Side
from volmar.solvers import Result

# Clusters with a p-value of at most this may consist of several groups, and are not merged.
ONE_GROUP = 0.5
# Maximum difference between a fit and the valley it started from, as a share of the smaller side.
NEAR = 0.1


class CellSplit:
    """A node of a tree that was split by `volmar.evidence.LinearCells`.

    `labels_` are the sides of the rows of the node, 0 or 1, and `result_` has an objective of 0.
    With exactly two cells, `coef_` (1, d) and `intercept_` hold the separating hyperplane.
    """

    def __init__(self, cells: LinearCells, labels: NDArray[np.int64]):
        self.cells, self.labels_ = cells, labels
        self.result_ = Result(objective=0.0)
        if cells.sides.size == 2:
            second = int(cells.sides[1])
            self.coef_ = (cells.coef[second] - cells.coef[1 - second])[None, :]
            self.intercept_ = cells.decision_function(np.zeros_like(self.coef_))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of rows, which are positive on the second side."""
        return self.cells.decision_function(X)


class ScoredSide:
    """The side of rows by the sign of a model's scores, as a picklable function."""

    def __init__(self, model: Any):
        self.model = model

    def __call__(self, X: Any) -> NDArray[np.bool_]:
        """Return whether validated rows, dense or CSR, are on the second side."""
        return scores_of(self.model)(X) > 0


def scores_of(model: Any) -> Callable[[Any], NDArray]:
    """Return the function that maps validated rows, dense or CSR, to the scores of a split."""
    return getattr(model, "_scores", None) or model.decision_function


def side_of(model: Any) -> Side:
    """Return the function that maps rows to sides, by a hyperplane or by a fitted model."""
    if hasattr(model, "coef_"):
        return Plane(model.coef_[0], float(model.intercept_[0]))
    return ScoredSide(model.cells if isinstance(model, CellSplit) else without_vectors(model))


def fit_in_two(model: Any, part: PartRows, **params: Any) -> Any:
    """Fit a copy of a clusterer with n_clusters=2 to a part of the rows."""
    copy = silent_clone(model).set_params(n_clusters=2, random_state=part.seed, **params)
    private = model._of_part(part)
    vars(copy).update(private)
    if part.weights is None or not has_fit_parameter(copy, "sample_weight"):
        copy.fit(part.X)
    else:
        copy.fit(part.X, sample_weight=part.weights)
    for name in private:
        vars(copy).pop(name, None)
    return copy


def groups_test(model: Any, part: PartRows, level: float) -> HeldOutTest:
    """Test on held-out rows whether a part has more than one group.

    The test ignores the values of weights, but leaves out rows of weight 0.
    """
    X = part.X
    if part.weights is not None:
        X = X[np.flatnonzero(part.weights > 0)]
    candidates = LINEAR
    if not model._splits_by_hyperplanes():
        from volmar.evidence import walk_candidate

        candidates = (walk_candidate(lambda rows, s: model._fit_part(PartRows(rows, None, s))),)
    return held_out_test(X, candidates, level=level, rng=np.random.default_rng(part.seed))


def confirmed_split(model: Any, part: PartRows, outcome: HeldOutTest) -> Any:
    """Fit the split that held-out rows have confirmed.

    For methods that split by hyperplanes, the fit starts from the deepest valley. If it moves away
    from the valley, the cells on the two sides of the valley are returned instead.
    """
    if not model._splits_by_hyperplanes():
        return model._fit_part(part)
    X, weights = part.X, part.weights
    counted = X if weights is None else X[np.flatnonzero(weights > 0)]
    by_direction = LINEAR[outcome.candidate].has_one_border
    rng, known = np.random.default_rng(part.seed), outcome.directions
    cells = make_split(counted, rng, by_direction=by_direction, directions=known)
    if cells is None:
        return None
    sides = cells.predict(X)
    if cluster_order(sides, weights, 2)[0] == 1:
        cells = cells.swapped()
        sides = cells.predict(X)
    own = model._fit_from(part, sides)
    if own is not None and _is_near(own.labels_, sides):
        return own
    return CellSplit(cells, sides)


def _is_near(labels: NDArray, sides: NDArray) -> bool:
    """Return whether two splits differ in few rows relative to the smaller side."""
    apart = np.count_nonzero(labels.astype(bool) != sides.astype(bool))
    smaller = min(np.count_nonzero(sides), np.count_nonzero(sides == 0))
    return bool(min(apart, sides.size - apart) <= NEAR * smaller)


def merge_leaves(tree: SplitTree, X: Any, weights: NDArray | None, labels: NDArray) -> None:
    """Merge leaves of the tree that have no valley between them, by giving them one label.

    Held-out rows have confirmed every split. Leaves on its two sides are merged only if their rows
    look like one mode along its scores, so that its valley is elsewhere and it cuts a mode here.
    Only leaves that look like a single group are merged: the middle of several undetected groups
    has no valley towards its neighbours. `labels` are the leaves of the rows of X. X may be a
    sample; leaves without rows in it are not merged.
    """
    leaves = tree.leaves()
    if len(leaves) < 3:
        return
    if weights is not None:
        X, labels = X[np.flatnonzero(weights > 0)], labels[weights > 0]
    rng, resolutions = np.random.default_rng(0), column_resolutions(X)
    seen, codes = np.unique(labels, return_inverse=True)
    is_one_group = np.array([not leaf.p_value <= ONE_GROUP for leaf in leaves])[seen]
    splits = [
        (
            split.model,
            *({leaf.label for leaf in SplitTree(side).leaves()} for side in split.children),
        )
        for split in tree.splits()
    ]

    def may_merge(*clusters: NDArray) -> bool:
        one, other = (set(seen[cluster].tolist()) for cluster in clusters)
        if not is_one_group[np.concatenate(clusters)].all():
            return False
        pair = X[np.flatnonzero(np.isin(labels, list(one | other)))]
        for model, left, right in splits:
            if (one & left and other & right) or (one & right and other & left):
                scores = dithered_scores(scores_of(model), pair, resolutions, rng)
                if hump_test(scores, rng).p_value <= ONE_GROUP:
                    return False
        return True

    found = merged_labels(X, codes, rng, may_merge=may_merge)
    new = np.full(len(leaves), -1)
    new[seen] = found
    new[new < 0] = found.max() + 1 + np.arange(len(leaves) - seen.size)
    tree.relabel(new)


def warn_of_tree(
    tree: SplitTree, result: RecursiveResult, n_clusters: Any, max_clusters: int | None
) -> None:
    """Warn if fewer clusters were found than requested, or if `max_clusters` ended the splits."""
    n_found = tree.n_leaves
    if not isinstance(n_clusters, str) and n_found < n_clusters:
        reasons = {leaf.reason for leaf in tree.leaves()}
        why = f"none of them can be split ({'; '.join(sorted(reasons))}). Lower n_clusters."
        if "" in reasons:
            why = "a callback ended the fit before the others were split off."
        warn_user(
            f"Found {n_found} clusters where n_clusters={n_clusters}: {why}", ConvergenceWarning
        )
    if result.n_left:
        warn_user(
            f"max_clusters={max_clusters} was reached, but {result.n_left} of the {n_found} "
            "clusters could be split further (see tree_). Raise max_clusters, or leave it out."
        )


def tree_words(result: RecursiveResult) -> str:
    """Return the number of splits that ended early, and the first warning of these."""
    first = f" First warning: {result.warnings[0]}" if result.warnings else ""
    return (
        f"{result.n_open} of {len(result.history)} splits ended early.{first} All warnings are in "
        "result_.warnings"
    )
