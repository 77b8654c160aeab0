"""More than two clusters by recursive splits of a two-way clusterer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import has_fit_parameter

from volmar._clones import silent_clone
from volmar._threads import in_jobs
from volmar._warn import collecting, warn_user
from volmar.base.blocks import without_vectors
from volmar.base.numbering import order_by_size
from volmar.base.tree import N_LEADING, SplitNode, SplitTree
from volmar.rows.parts import Part, Parts, Plane, Side, Split
from volmar.solvers import Result, Status

ENDED_EARLY = (Status.MAX_ITER, Status.STOPPED, Status.FAILED)


@dataclass(frozen=True, repr=False)
class RecursiveResult(Result):
    """Clusters of a tree of splits.

    The objective is the sum over the splits, each residual the largest over the splits. The gap is
    NaN: each split may be optimal, but their sequence is greedy. The status is MAX_ITER, STOPPED
    or FAILED if a split ended so, otherwise CONVERGED. `warnings` are those of the splits; those
    of the `n_open` splits that ended early come first.
    """

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    warnings: tuple[str, ...] = ()
    n_open: int = 0


class PartRows(NamedTuple):
    """The rows of a part that are used to split it: all of them or a sample.

    `scale` is the weight of the part divided by that of these rows. `hurdle` is the minimum worth
    of the split to be made next: a fit that will not reach it may be postponed.
    """

    X: Any
    weights: NDArray | None
    seed: int
    scale: float = 1.0
    hurdle: float = 0.0

    @property
    def weight(self) -> float:
        """Weight of the whole part."""
        own = self.X.shape[0] if self.weights is None else self.weights.sum()
        return self.scale * float(own)


class PostponedSplitError(Exception):
    """Raised by a fit that ends early because its split will not be the next one.

    `promise` is a likely upper bound on the worth of the split.
    """

    def __init__(self, promise: float):
        super().__init__(promise)
        self.promise = promise


@dataclass(frozen=True)
class GrownTree:
    """A tree and the rows in its leaves; `leaves` are in the order of ``tree.leaves()``."""

    tree: SplitTree
    parts: Parts
    leaves: list[Part]

    @property
    def sample(self) -> Part:
        """The rows used for the first split."""
        return self.parts.root

    def number_by_size(self) -> None:
        """Set the exact sizes of the nodes, and number clusters by size, the largest first."""
        found = self.parts.sizes(self.leaves)
        order = order_by_size(found.weight, found.first)
        self.tree.relabel(np.argsort(order))
        self.tree.sizes = tuple(int(count) for count in found.n_rows[order])
        for node, n_rows, weight in zip(
            self.tree.leaves(), found.n_rows, found.weight, strict=True
        ):
            node.n_rows, node.weight = int(n_rows), float(weight)
        for node in reversed(list(self.tree.nodes())):
            if node.children:
                node.n_rows = sum(child.n_rows for child in node.children)
                node.weight = sum(child.weight for child in node.children)

    def labels(self) -> Any:
        """Return the cluster of each row: an array, or a lazy vector for a dask collection."""
        return self.parts.labels(self.leaves, self._labels())

    def sample_labels(self) -> NDArray:
        """Return the cluster of each row of the sample."""
        return self.parts.sample_labels(self.leaves, self._labels())

    def _labels(self) -> list[int]:
        return [int(node.label or 0) for node in self.tree.leaves()]


@dataclass(eq=False)
class _Leaf:
    """A leaf during growth: its rows and the split that was found for it."""

    node: SplitNode
    part: Part
    seed: int
    tried: bool = False
    worth: float = float("nan")
    promise: float = -np.inf
    caught: tuple[str, ...] = ()

    @property
    def importance(self) -> float:
        """Priority of the leaf in the choice of the next split; negative if it has no split."""
        if self.node.model is None or np.isnan(self.node.probability):
            return -np.inf
        return float(np.sqrt(self.node.weight) * self.worth)

    @property
    def promised(self) -> float:
        """Upper bound on the importance, if the search for a split was postponed."""
        return float(np.sqrt(self.node.weight) * self.promise)

    def hurdle(self, others: list[_Leaf]) -> float:
        """Return the minimum worth of a split to be made before those of the other leaves."""
        best = max((other.importance for other in others), default=0.0)
        return float(max(best, 0.0) / np.sqrt(self.node.weight))


@dataclass(frozen=True)
class _Trial:
    """A leaf to split (rows and node), and the outcome of the attempt."""

    rows: PartRows
    node: SplitNode
    may_fail: bool
    worth: float = float("nan")
    promise: float = -np.inf
    caught: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Way:
    """The functions that split leaves, named as the arguments of `grow_tree`."""

    fit: Callable[[PartRows], Any]
    probability: Callable[[Any, Any, NDArray | None], float]
    worth: Callable[[Any, float], float] | None

    def tried(self, trial: _Trial) -> _Trial:
        """Return a trial whose node holds the split, or the reason why there is none."""
        node, rows = trial.node, trial.rows
        if node.n_rows < 2:
            node.reason = "a single row"
            return trial
        with collecting() as messages:
            try:
                model = self.fit(rows)
                if np.ptp(model.labels_) == 0:
                    node.reason = "all rows on one side"
                    return trial
                node.probability = self.probability(model, rows.X, rows.weights)
            except PostponedSplitError as postponed:
                return replace(trial, promise=postponed.promise)
            except ValueError as error:
                if not trial.may_fail:
                    raise
                node.reason = str(error)
                return trial
        node.model = model
        node.leading = leading_features(model, rows.X, rows.weights)
        worth = node.probability
        if self.worth is not None:
            worth = self.worth(model, node.probability)
        return replace(trial, worth=worth, caught=tuple(one.text for one in messages))


def grow_tree(
    parts: Parts,
    *,
    fit: Callable[[PartRows], Any],
    probability: Callable[[Any, Any, NDArray | None], float],
    worth: Callable[[Any, float], float] | None = None,
    side: Callable[[Any], Side],
    steps: Iterable[int],
    seeds: np.random.RandomState,
    pairwise: bool = False,
    feature_names: Any = None,
    postpones: bool = False,
) -> tuple[GrownTree, RecursiveResult]:
    r"""Split the part with the best split repeatedly, until there are enough parts.

    A split is fitted to every part. The part with the largest :math:`\sqrt{n}\, p` is split next,
    where n is its weight and p is the `probability` of its split, or its `worth`. The square root
    balances how well a split separates against how much of the data it explains, in the same way
    as the standard error of a mean.

    `fit` returns a two-way clusterer fitted to rows. A `ValueError` means that the part cannot be
    split; for the whole data it is raised. `steps` yields one number per split.

    Large parts are split by a sample of their rows, and the sizes of large parts are estimates
    until the tree is complete (see `volmar.rows.parts`). `side` turns a fitted split into the
    function that returns the sides of rows. New parts are fitted in parallel, by the number of
    processes set with ``joblib.parallel_config``: the split of a part does not depend on others.

    With `postpones`, new parts are fitted one after the other, the largest first. `fit` may then
    raise `PostponedSplitError` if a split is unlikely to be worth `PartRows.hurdle`. The part is
    fitted again when its split may be the next one.

    The result has no labels yet because clusters are still to be numbered.
    """
    way = _Way(fit, probability, worth)

    def leaf_of(part: Part) -> _Leaf:
        node = SplitNode(part.n_rows, part.weight, columns=part.all_numbers if pairwise else None)
        return _Leaf(node, part, int(seeds.randint(2**31 - 1)))

    def look_at(new: list[_Leaf]) -> None:
        parts.draw([leaf.part for leaf in new])
        others = [leaf for leaf in leaves if leaf not in new] if postpones else []
        trials = [
            _Trial(
                PartRows(
                    leaf.part.X,
                    leaf.part.weights,
                    leaf.seed,
                    leaf.part.scale,
                    leaf.hurdle(others),
                ),
                leaf.node,
                may_fail=leaf.part is not parts.root,
            )
            for leaf in new
        ]
        for leaf, trial in zip(new, in_jobs(way.tried, trials), strict=True):
            leaf.tried, leaf.worth, leaf.caught = True, trial.worth, trial.caught
            leaf.promise = trial.promise
            vars(leaf.node).update(vars(trial.node))
            if leaf.part is not parts.root:
                leaf.part.forget()

    leaves = [leaf_of(parts.root)]
    root = leaves[0].node
    stuck = False
    for step in steps:
        if stuck:
            continue
        new = [leaf for leaf in leaves if not leaf.tried]
        if postpones:
            parts.draw([leaf.part for leaf in new])  # one pass for all of them
            for leaf in sorted(new, key=lambda leaf: -leaf.node.weight):
                look_at([leaf])
        else:
            look_at(new)
        best = max(leaves, key=lambda leaf: leaf.importance)
        waiting = max(leaves, key=lambda leaf: leaf.promised)
        while waiting.promised > best.importance:
            look_at([waiting])
            best = max(leaves, key=lambda leaf: leaf.importance)
            waiting = max(leaves, key=lambda leaf: leaf.promised)
        if not best.importance >= 0.0:
            stuck = True
            continue
        model = best.node.model
        sides = Split(model.labels_.astype(bool), side(model))
        halves = [leaf_of(half) for half in parts.split(best.part, sides)]
        best.node.rank = step + 1
        best.node.children = tuple(half.node for half in halves)
        best.node.warnings = best.caught
        leaves.remove(best)
        leaves += halves
    tree = SplitTree(root, feature_names)
    _settle(tree)
    part_of = {id(leaf.node): leaf.part for leaf in leaves}
    grown = GrownTree(tree, parts, [part_of[id(node)] for node in tree.leaves()])
    return grown, tree_result(tree)


def _settle(tree: SplitTree) -> None:
    """Set the labels of the leaves, and delete splits that were fitted but not made."""
    for label, node in enumerate(tree.leaves()):
        node.label, node.model, node.leading = label, None, ()


def tree_result(tree: SplitTree) -> RecursiveResult:
    """Return the combined result of all splits of a tree, without labels."""
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
        warnings=tuple(text for i in order for text in splits[i].warnings),
        n_open=sum(ended_early),
    )


def leading_features(model: Any, X: Any, weights: NDArray | None) -> tuple[tuple[int, float], ...]:
    """Return the leading features of a linear split, by coefficient times standard deviation."""
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


# -------- splits of parts of the rows: fits with two clusters, sides of rows, warnings


class ScoredSide:
    """The side of rows by the sign of a model's scores, as a picklable function."""

    def __init__(self, model: Any):
        self.model = model

    def __call__(self, X: Any) -> NDArray[np.bool_]:
        """Return whether validated rows, dense or CSR, are on the second side."""
        scores: NDArray = self.model._scores(X)
        return scores > 0


def side_of(model: Any) -> Side:
    """Return the function that maps rows to sides, by a hyperplane or by a fitted model."""
    if hasattr(model, "coef_"):
        return Plane(model.coef_[0], float(model.intercept_[0]))
    return ScoredSide(without_vectors(model))


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


def warn_of_tree(tree: SplitTree, n_clusters: int) -> None:
    """Warn if fewer clusters were found than requested."""
    n_found = tree.n_leaves
    if n_found < n_clusters:
        reasons = {leaf.reason for leaf in tree.leaves()}
        why = f"none of them can be split ({'; '.join(sorted(reasons))}). Lower n_clusters."
        if "" in reasons:
            why = "a callback ended the fit before the others were split off."
        warn_user(
            f"Found {n_found} clusters where n_clusters={n_clusters}: {why}", ConvergenceWarning
        )


def tree_words(result: RecursiveResult) -> str:
    """Return the number of splits that ended early, and the first warning of these."""
    first = f" First warning: {result.warnings[0]}" if result.warnings else ""
    return (
        f"{result.n_open} of {len(result.history)} splits ended early.{first} All warnings are in "
        "result_.warnings"
    )
