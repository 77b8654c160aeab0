"""More than two clusters from a clusterer for two: split, and split again."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar._threads import in_jobs
from volmar.base.numbering import order_by_size
from volmar.base.tree import N_LEADING, SplitNode, SplitTree
from volmar.evidence import HeldOutTest
from volmar.rows import Part, Parts, Split
from volmar.rows.cells import Side
from volmar.solvers import Result, Status

ENDED_EARLY = (Status.MAX_ITER, Status.STOPPED, Status.FAILED)


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
        MAX_ITER, STOPPED or FAILED where a split ended so, else CONVERGED.
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


class PartRows(NamedTuple):
    """What is looked at to split a part: its rows, or a sample of them.

    Attributes
    ----------
    X : matrix of shape (m, d)
        The rows.
    weights : ndarray of shape (m,) or None
        Their weights.
    seed : int
        Random seed of the split.
    scale : float
        Weight of the part in units of that of these rows, 1 where they are all of it.
    hurdle : float
        What the split must be worth to be the next: one that does not promise it may wait.
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
    """Raised by a fit that was left early, because the split is no candidate for the next one.

    `promise` is more than the split will be worth, most likely.
    """

    def __init__(self, promise: float):
        super().__init__(promise)
        self.promise = promise


@dataclass(frozen=True)
class GrownTree:
    """A tree, and the rows in its leaves.

    Attributes
    ----------
    tree : SplitTree
        The splits. Leaves with the same label are one cluster.
    parts : Parts
        The rows that were split.
    leaves : list of Part
        The rows of each leaf, in the order of ``tree.leaves()``.
    """

    tree: SplitTree
    parts: Parts
    leaves: list[Part]

    @property
    def sample(self) -> Part:
        """All rows, as the first split saw them."""
        return self.parts.root

    def number_by_size(self) -> None:
        """Give nodes their exact sizes, and clusters numbers by size, the largest first."""
        found = self.parts.sizes(self.leaves)
        labels = self._labels()
        k = max(labels) + 1
        first = np.full(k, self.sample.n_rows)
        np.minimum.at(first, labels, found.first)
        order = order_by_size(np.bincount(labels, found.weight, k), first)
        self.tree.relabel(np.argsort(order))
        counts = np.bincount(labels, found.n_rows, k)[order]
        self.tree.sizes = tuple(int(count) for count in counts)
        for node, n_rows, weight in zip(
            self.tree.leaves(), found.n_rows, found.weight, strict=True
        ):
            node.n_rows, node.weight = int(n_rows), float(weight)
        for node in reversed(list(self.tree.nodes())):
            if node.children:
                node.n_rows = sum(child.n_rows for child in node.children)
                node.weight = sum(child.weight for child in node.children)

    def labels(self) -> Any:
        """Return the cluster of each row: an array, or a vector over rows in blocks."""
        return self.parts.labels(self.leaves, self._labels())

    def sample_labels(self) -> NDArray:
        """Return the cluster of each row of the sample."""
        return self.parts.sample_labels(self.leaves, self._labels())

    def _labels(self) -> list[int]:
        return [int(node.label or 0) for node in self.tree.leaves()]


@dataclass(eq=False)
class _Leaf:
    """A leaf in the making: its rows, and the split that was found for it."""

    node: SplitNode
    part: Part
    seed: int
    tried: bool = False
    worth: float = float("nan")
    promise: float = -np.inf
    caught: tuple[str, ...] = ()

    @property
    def importance(self) -> float:
        """What leaves compete by to be split next; negative where there is no split."""
        if self.node.model is None or np.isnan(self.node.probability):
            return -np.inf
        return float(np.sqrt(self.node.weight) * self.worth)

    @property
    def promised(self) -> float:
        """The most that the importance may be, where the search for a split was postponed."""
        return float(np.sqrt(self.node.weight) * self.promise)

    def hurdle(self, others: list[_Leaf]) -> float:
        """Return what a split must be worth to come before those of the other leaves."""
        best = max((other.importance for other in others), default=0.0)
        return float(max(best, 0.0) / np.sqrt(self.node.weight))


@dataclass(frozen=True)
class _Trial:
    """A leaf to split: what is looked at, its node, and its level; then what was found."""

    rows: PartRows
    node: SplitNode
    level: float
    may_fail: bool
    worth: float = float("nan")
    promise: float = -np.inf
    caught: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Way:
    """How leaves are split and tested; the arguments of `grow_tree` with these names."""

    fit: Callable[[PartRows], Any]
    probability: Callable[[Any, Any, NDArray | None], float]
    worth: Callable[[Any, float], float] | None
    test: Callable[[PartRows, float], HeldOutTest] | None
    make: Callable[[PartRows, HeldOutTest], Any] | None

    def tried(self, trial: _Trial) -> _Trial:
        """Return a trial with the split in its node, or the reason why there is none."""
        node, rows = trial.node, trial.rows
        if node.n_rows < 2:
            node.reason = "a single row"
            return trial
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                model = self._model(trial)
                if model is None:
                    return trial
                if np.ptp(model.labels_) == 0:
                    node.reason = "all rows on one side"
                    return trial
                if self.test is None:
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
        return replace(trial, worth=worth, caught=tuple(str(one.message) for one in caught))

    def _model(self, trial: _Trial) -> Any:
        """Return the fitted split; None, with the reason in the node, where there is none."""
        if self.test is None or self.make is None:
            model = self.fit(trial.rows)
        else:
            node, level = trial.node, trial.level
            outcome = self.test(trial.rows, level)
            node.p_value, node.probability = outcome.p_value, outcome.separation
            node.p_minimum, node.level = outcome.p_minimum, level
            node.has_way_around = outcome.has_way_around
            if outcome.p_value > level:
                node.reason = f"{node.p_text}, above its level of {level:.2g}"
                if outcome.has_way_around:
                    node.reason += "; rows connect the two sides around the gap"
                return None
            model = self.make(trial.rows, outcome)
        if model is None:
            trial.node.reason = "all rows on one side"
        return model


def grow_tree(
    parts: Parts,
    *,
    fit: Callable[[PartRows], Any],
    probability: Callable[[Any, Any, NDArray | None], float],
    worth: Callable[[Any, float], float] | None = None,
    test: Callable[[PartRows, float], HeldOutTest] | None = None,
    make: Callable[[PartRows, HeldOutTest], Any] | None = None,
    side: Callable[[Any], Side],
    alpha: float = 1.0,
    max_leaves: int | None = None,
    steps: Iterable[int],
    seeds: np.random.RandomState,
    pairwise: bool = False,
    feature_names: Any = None,
    tell: Callable[[int, int], None] | None = None,
    postpones: bool = False,
) -> tuple[GrownTree, RecursiveResult]:
    r"""Split the part whose split is the best, until there are enough.

    Every part is split once; the one with the largest :math:`\sqrt{n}\, p` is taken, with n its
    weight and p what `probability` says of its split, or `worth`. The square root weighs how well
    a split separates against how much of the data it explains, as the error of a mean does.

    `fit` makes a two-way clusterer of rows; its `ValueError` means that the part cannot be split,
    and that of the whole is raised. With a `test` on held-out rows a part is split, by `make`,
    only if its p-value is at most the level, which is `alpha` times its share of the rows. `alpha`
    is the probability of any split too many: a part is tested only where all parts that it is in
    were split, and levels go with sizes, so that the parts that are clusters are apart, their
    levels sum up to `alpha` at most, and any split too many begins with one of them. At
    `max_leaves` parts it stops, and those that could be split are tested as well. `steps` has a
    number for each split. `tell` gets the number of rows in parts that stay whole, and that of all
    rows.

    A large part is looked at by a sample of its rows, and sizes of parts of many rows are
    estimated until the tree is grown (see `volmar.rows.parts`). `side` makes of a fitted split the
    function that returns the sides of rows. New parts are looked at at the same time, by the
    number of processes that ``joblib.parallel_config`` asks for: how a part is split does not
    depend on the others.

    With `postpones` new parts are looked at one after the other, the larger first, and `fit` may
    raise `PostponedSplitError` where a split does not promise to be worth `PartRows.hurdle`. It is
    fitted again when it may be the next.

    The result has no labels yet: leaves may still be merged.
    """
    n = parts.root.n_rows
    way = _Way(fit, probability, worth, test, make)

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
                alpha * leaf.part.n_rows / n,
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
            if tell is not None:
                settled = [one for one in leaves if one.tried and one.importance < 0.0]
                tell(sum(one.node.n_rows for one in settled), n)

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
        if len(leaves) == max_leaves:
            stuck = True
            continue
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
    left = [leaf for leaf in leaves if leaf.importance >= 0.0] if max_leaves is not None else []
    for leaf in left:
        leaf.node.reason = f"the limit of {max_leaves} clusters was reached"
    tree = SplitTree(root, feature_names)
    _settle(tree)
    part_of = {id(leaf.node): leaf.part for leaf in leaves}
    grown = GrownTree(tree, parts, [part_of[id(node)] for node in tree.leaves()])
    return grown, replace(tree_result(tree), n_left=len(left))


def _settle(tree: SplitTree) -> None:
    """Give the leaves their numbers, and forget splits that were looked at and not made."""
    for label, node in enumerate(tree.leaves()):
        node.label, node.model, node.leading = label, None, ()


def tree_result(tree: SplitTree) -> RecursiveResult:
    """Return what the splits of a tree sum up to, without labels."""
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
    """Return the features of a linear split by coefficient times standard deviation."""
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
