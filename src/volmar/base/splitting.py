"""Splits of a clusterer for two: of a part of the rows, tested, started in a valley, merged."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import has_fit_parameter

from volmar._clones import silent_clone
from volmar.base.blocks import without_vectors
from volmar.base.numbering import cluster_order
from volmar.base.recursion import PartRows, RecursiveResult
from volmar.base.tree import SplitTree
from volmar.base.warn import warn_user
from volmar.evidence import (
    LINEAR,
    HeldOutTest,
    LinearCells,
    held_out_test,
    make_split,
    merged_labels,
)
from volmar.rows import Plane
from volmar.rows.cells import Side
from volmar.solvers import Result

# Clusters with a p-value up to this may be several, and are not merged.
ONE_GROUP = 0.5
# Share of the smaller side in which a fit may differ from the valley that it started from.
NEAR = 0.1


class CellSplit:
    """A node of a tree that was split by `volmar.evidence.LinearCells`.

    `labels_` are the sides of the rows of the node, 0 or 1, and `result_` is that of a split
    without an objective. Only where there are two cells `coef_` (1, d) and `intercept_` are the
    hyperplane.
    """

    def __init__(self, cells: LinearCells, labels: NDArray[np.int64]):
        self.cells, self.labels_ = cells, labels
        self.result_ = Result(objective=0.0)
        if cells.sides.size == 2:
            second = int(cells.sides[1])
            self.coef_ = (cells.coef[second] - cells.coef[1 - second])[None, :]
            self.intercept_ = cells.decision_function(np.zeros_like(self.coef_))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return scores of rows, positive on the second side."""
        return self.cells.decision_function(X)


class ScoredSide:
    """The side of rows by the sign of a model's scores, as a function that travels."""

    def __init__(self, model: Any):
        self.model = model

    def __call__(self, X: Any) -> NDArray[np.bool_]:
        """Return whether validated rows, dense or CSR, are on the second side."""
        scores = getattr(self.model, "_scores", None) or self.model.decision_function
        return scores(X) > 0


def side_of(model: Any) -> Side:
    """Return the function that tells the sides of rows: of a hyperplane, or of a fitted model."""
    if hasattr(model, "coef_"):
        return Plane(model.coef_[0], float(model.intercept_[0]))
    return ScoredSide(model.cells if isinstance(model, CellSplit) else without_vectors(model))


def fit_in_two(model: Any, part: PartRows, **params: Any) -> Any:
    """Fit a copy of a clusterer for two to a part of the rows."""
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
    """Test on held-out rows whether a part has more than one group; a row counts once."""
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

    Of a method with hyperplanes it is the fit that starts from the deepest valley, if that
    stays there, or else the cells on the two sides of the valley.
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
    """Whether two splits differ in few rows, compared with the smaller side."""
    apart = np.count_nonzero(labels.astype(bool) != sides.astype(bool))
    smaller = min(np.count_nonzero(sides), np.count_nonzero(sides == 0))
    return bool(min(apart, sides.size - apart) <= NEAR * smaller)


def merge_leaves(tree: SplitTree, X: Any, weights: NDArray | None, labels: NDArray) -> None:
    """Give leaves of the tree one label where there is no valley between them.

    Only those that look like one group themselves: the middle of several groups that were not
    told apart has no valley towards the next one. `labels` are the leaves of the rows of X, which
    may be a sample; leaves without a row there are not merged.
    """
    leaves = tree.leaves()
    if len(leaves) < 3:
        return
    apart = set(tree.siblings())
    for one, other in combinations(leaves, 2):
        if min(one.p_value, other.p_value) <= ONE_GROUP:
            apart.add((int(one.label or 0), int(other.label or 0)))
    counted = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights > 0)
    seen, codes = np.unique(labels[counted], return_inverse=True)
    place = {int(label): i for i, label in enumerate(seen)}
    known = {(place[i], place[j]) for i, j in apart if i in place and j in place}
    found = merged_labels(X[counted], codes, np.random.default_rng(0), apart=known)
    new = np.full(len(leaves), -1)
    new[seen] = found
    new[new < 0] = found.max() + 1 + np.arange(len(leaves) - seen.size)
    tree.relabel(new)


def warn_of_tree(
    tree: SplitTree, result: RecursiveResult, n_clusters: Any, max_clusters: int | None
) -> None:
    """Warn of splits that are missing."""
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
            f"max_clusters={max_clusters} ended the splits, and {result.n_left} of the {n_found} "
            "clusters could be split further (see tree_). Raise max_clusters, or leave it out."
        )


def tree_words(result: RecursiveResult) -> str:
    """Return which splits ended early, and what the worst of them warned of."""
    first = f", the first: {result.warnings[0]}" if result.warnings else "."
    return (
        f"of {len(result.history)} splits {result.n_open} ended early{first} All warnings are in "
        "result_.warnings"
    )
