"""More than two clusters from a clusterer for two: split, and split again."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar.base.tree import N_LEADING, SplitNode, SplitTree
from volmar.evidence import HeldOutTest
from volmar.solvers import Result, Status

ENDED_EARLY = (Status.MAX_ITER, Status.FAILED)


@dataclass(frozen=True, repr=False)
class RecursiveResult(Result):
    """Clusters of a tree of splits.

    Attributes
    ----------
    objective : float
        Sum of the objectives of the splits.
    gap : float
        NaN: splits may be optimal, their sequence is greedy.
    residuals : mapping
        For each residual of the splits the largest.
    status : Status
        MAX_ITER or FAILED where a split ended so, else CONVERGED.
    labels : ndarray of shape (n,)
        Clusters, by size, the largest first.
    warnings : tuple of str
        What the splits warned of, those first that ended early. Others may be no concern: a split
        of three clusters into two is one choice of several.
    n_open : int
        Splits that ended early.
    n_left : int
        Clusters that would have been split, had the number of clusters not been limited.
    """

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    warnings: tuple[str, ...] = ()
    n_open: int = 0
    n_left: int = 0


@dataclass
class _Part:
    """A leaf in the making: its rows, and the split that was found for it."""

    node: SplitNode
    rows: NDArray
    seed: int
    tried: bool = False
    worth: float = float("nan")
    caught: tuple[warnings.WarningMessage, ...] = ()


def grow_tree(
    X: Any,
    weights: NDArray | None,
    *,
    fit: Callable[[Any, NDArray | None, int], Any],
    probability: Callable[[Any, Any, NDArray | None], float],
    worth: Callable[[Any, float], float] | None = None,
    test: Callable[[Any, NDArray | None, float, int], HeldOutTest] | None = None,
    make: Callable[[Any, NDArray | None, int, HeldOutTest], Any] | None = None,
    alpha: float = 1.0,
    max_leaves: int | None = None,
    steps: Iterable[int],
    seeds: np.random.RandomState,
    pairwise: bool = False,
    feature_names: Any = None,
    tell: Callable[[int, int], None] | None = None,
) -> tuple[SplitTree, RecursiveResult]:
    r"""Split the part whose split is the best, until there are enough.

    Every part is split once; the one with the largest :math:`\sqrt{n}\, p` is taken, with n its
    weight and p what `probability` says of its split, or `worth`. The square root weighs how well
    a split separates against how much of the data it explains, as the error of a mean does.

    `fit` makes a two-way clusterer of rows, weights and a seed; its `ValueError` means that the
    part cannot be split, and that of the whole is raised. With a `test` on held-out rows a part is
    split, by `make`, only if its p-value is at most the level, which is `alpha` times its share of
    the rows. `alpha` is the probability of any split too many: a part is tested only where all
    parts that it is in were split, and levels go with sizes, so that the parts that are clusters
    are apart, their levels sum up to `alpha` at most, and any split too many begins with one of
    them. At `max_leaves` parts it stops, and those that could be split are tested as well. `steps`
    has a number for each split. `tell` gets the number of rows in parts that stay whole, and that
    of all rows.
    """
    n = X.shape[0]

    def part(rows: NDArray) -> _Part:
        weight = float(rows.size if weights is None else weights[rows].sum())
        node = SplitNode(rows.size, weight, columns=rows if pairwise else None)
        return _Part(node, rows, int(seeds.randint(2**31 - 1)))

    def try_to_split(leaf: _Part) -> None:
        leaf.tried = True
        rows, node = leaf.rows, leaf.node
        whole = rows.size == n
        if rows.size < 2:
            node.reason = "a single row"
            return
        inside = X if whole else _taken(X, rows, pairwise)
        w = None if weights is None else weights[rows]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                if test is None or make is None:
                    model = fit(inside, w, leaf.seed)
                else:
                    level = alpha * rows.size / n
                    outcome = test(inside, w, level, leaf.seed)
                    node.p_value, node.probability = outcome.p_value, outcome.separation
                    node.p_minimum, node.level = outcome.p_minimum, level
                    node.has_way_around = outcome.has_way_around
                    if outcome.p_value > level:
                        node.reason = f"{node.p_text}, above its level of {level:.2g}"
                        if outcome.has_way_around:
                            node.reason += "; rows connect the two sides around the gap"
                        return
                    model = make(inside, w, leaf.seed, outcome)
                if model is None or np.ptp(model.labels_) == 0:
                    node.reason = "all rows on one side"
                    return
                if test is None:
                    node.probability = probability(model, inside, w)
            except ValueError as error:
                if whole:
                    raise
                node.reason = str(error)
                return
        node.model = model
        leaf.worth = node.probability if worth is None else worth(model, node.probability)
        node.leading = _leading(model, inside, w)
        leaf.caught = tuple(caught)

    def importance(leaf: _Part) -> float:
        node = leaf.node
        if node.model is None or np.isnan(node.probability):
            return -np.inf
        return float(np.sqrt(node.weight) * leaf.worth)

    root = part(np.arange(n))
    leaves = [root]
    stuck = False
    for step in steps:
        if stuck:
            continue
        for leaf in leaves:
            if not leaf.tried:
                try_to_split(leaf)
                if tell is not None:
                    settled = [one for one in leaves if one.tried and importance(one) < 0.0]
                    tell(sum(one.rows.size for one in settled), n)
        if len(leaves) == max_leaves:
            stuck = True
            continue
        best = max(leaves, key=importance)
        if not importance(best) >= 0.0:
            stuck = True
            continue
        side = best.node.model.labels_.astype(bool)
        halves = [part(best.rows[~side]), part(best.rows[side])]
        best.node.rank = step + 1
        best.node.children = tuple(half.node for half in halves)
        best.node.warnings = tuple(str(one.message) for one in best.caught)
        leaves.remove(best)
        leaves += halves
    left = [leaf for leaf in leaves if importance(leaf) >= 0.0] if max_leaves is not None else []
    for leaf in left:
        leaf.node.reason = f"the limit of {max_leaves} clusters was reached"
    tree = SplitTree(root.node, feature_names)
    _settle(tree)
    labels = np.empty(n, dtype=np.int64)
    for leaf in leaves:
        labels[leaf.rows] = leaf.node.label
    return tree, replace(_result(tree, labels), n_left=len(left))


def _settle(tree: SplitTree) -> None:
    """Give the leaves their numbers, and forget splits that were looked at and not made."""
    for label, node in enumerate(tree.leaves()):
        node.label, node.model, node.leading = label, None, ()


def _result(tree: SplitTree, labels: NDArray) -> RecursiveResult:
    splits = tree.splits()
    results = [node.model.result_ for node in splits]
    residuals: dict[str, float] = {}
    for result in results:
        for name, value in result.residuals.items():
            residuals[name] = max(value, residuals.get(name, 0.0))
    ended_early = [result.status in ENDED_EARLY for result in results]
    order = np.argsort(~np.array(ended_early, dtype=bool), kind="stable")
    history = np.cumsum([result.objective for result in results])
    return RecursiveResult(
        objective=float(history[-1]) if results else 0.0,
        residuals=residuals,
        status=results[order[0]].status if any(ended_early) else Status.CONVERGED,
        n_iter=sum(result.n_iter for result in results),
        history=tuple(float(value) for value in history),
        labels=labels,
        warnings=tuple(text for i in order for text in splits[i].warnings),
        n_open=sum(ended_early),
    )


def _taken(X: Any, rows: NDArray, pairwise: bool) -> Any:
    if not pairwise:
        return X[rows]
    return X[rows][:, rows] if sparse.issparse(X) else X[np.ix_(rows, rows)]


def _leading(model: Any, X: Any, weights: NDArray | None) -> tuple[tuple[int, float], ...]:
    """Features of a linear split by coefficient times standard deviation, largest first."""
    coef = getattr(model, "coef_", None)
    if coef is None:
        return ()
    w = np.full(X.shape[0], 1.0 / X.shape[0]) if weights is None else weights / weights.sum()
    mean = np.asarray(w @ X).ravel()
    if sparse.issparse(X):
        square = np.asarray(w @ X.multiply(X)).ravel()
        deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    else:
        deviation = np.sqrt(w @ (X - mean) ** 2)
    share = np.ravel(coef) * deviation
    largest = np.argsort(-np.abs(share), kind="stable")[:N_LEADING]
    return tuple((int(j), float(share[j])) for j in largest if share[j] != 0)
