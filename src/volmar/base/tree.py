"""A tree of two-way splits: what a recursive fit leaves behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.wording import level_text, p_value_text

# Features that a printed split names, and clusters whose sizes a note has.
N_LEADING, MOST_SIZES = 3, 20


@dataclass(repr=False)
class SplitNode:
    """A part of the rows, split in two or a cluster.

    Attributes
    ----------
    n_rows : int
        Training rows in it.
    weight : float
        Their weight, `n_rows` where there are no weights.
    probability : float
        How well its split separates it: a probability from 0 to 1. NaN where no split was looked
        for or found; of a cluster, that of the split that was found and not made.
    p_value : float
        Of one mode against more, where splits are tested (n_clusters="auto"); NaN otherwise.
    p_minimum : float
        Smallest p-value that the test could have given; 0 where it is not known.
    level : float
        Level that the p-value was compared with; NaN without a test.
    has_way_around : bool
        Whether a valley was not counted because rows connect its sides around it.
    rank : int or None
        Number of its split, from 1 in the order in which they were made; None for a cluster.
    label : int or None
        Number of the cluster; None for a split.
    model : object
        The fitted two-way clusterer of the split; None for a cluster.
    children : tuple of SplitNode
        The sides where its scores are not positive and where they are; empty for a cluster.
    leading : tuple of (int, float)
        Features that count most in a linear split, with coefficient times standard deviation of
        the feature in the node, largest first.
    columns : ndarray of int or None
        Columns of a precomputed matrix that belong to it.
    reason : str
        Why a node could not be split, where that is so.
    warnings : tuple of str
        What the fit of the split warned of.
    """

    n_rows: int
    weight: float
    probability: float = float("nan")
    p_value: float = float("nan")
    rank: int | None = None
    label: int | None = None
    model: Any = None
    children: tuple[SplitNode, ...] = ()
    leading: tuple[tuple[int, float], ...] = ()
    columns: NDArray | None = None
    reason: str = ""
    warnings: tuple[str, ...] = ()
    p_minimum: float = 0.0
    level: float = float("nan")
    has_way_around: bool = False

    @property
    def p_text(self) -> str:
        """The p-value in words, as an upper bound where the draws allow no smaller one."""
        return "" if np.isnan(self.p_value) else p_value_text(self.p_value, self.p_minimum)

    def __repr__(self) -> str:
        role = f"cluster {self.label}" if self.is_leaf else f"split {self.rank}"
        return f"SplitNode({role}, {self.n_rows} rows)"

    @property
    def test_text(self) -> str:
        """The p-value and the level that it was compared with; empty without a test."""
        return self.p_text and self.p_text + level_text(self.level)

    @property
    def is_leaf(self) -> bool:
        """Whether it is a cluster."""
        return not self.children

    def score(self, X: Any) -> NDArray:
        """Scores of rows by the split, positive for the second side.

        0 for rows without any of the given similarities to a part of the training rows. Without
        one to all of them a row is refused.
        """
        if self.columns is None:
            return self.model.decision_function(X)
        is_part = self.columns.size < X.shape[1]
        X = X[:, self.columns]
        return scores_in_graph(self.model, X) if is_part else self.model.decision_function(X)


def scores_in_graph(model: Any, X: Any) -> NDArray:
    """Return the scores of rows, 0 for those that given similarities join to no row of the model.

    A part of a graph may have rows all of whose neighbours are in another part.
    """
    affinity = getattr(model, "affinity", None)
    if not isinstance(affinity, str) or affinity != "precomputed":
        return model.decision_function(X)
    joined = np.flatnonzero(np.asarray(abs(X).sum(axis=1)))
    scores = np.zeros(X.shape[0])
    if joined.size:
        scores[joined] = model.decision_function(X[joined])
    return scores


@dataclass(repr=False)
class SplitTree:
    """The splits of a recursive fit.

    Attributes
    ----------
    root : SplitNode
        All rows.
    feature_names : sequence of str or None
        Names for printing.
    sizes : tuple of int or None
        Rows of each cluster after the fit, which may have moved some of them since the splits;
        None where they are not known.

    Examples
    --------
    >>> from volmar import MSPC
    >>> from volmar.datasets import make_blobs
    >>> X, _ = make_blobs(300, centers=3, random_state=0)
    >>> tree = MSPC(3, random_state=0).fit(X).tree_
    >>> tree.n_leaves, len(tree.splits())
    (3, 2)
    """

    root: SplitNode
    feature_names: Sequence[str] | None = field(default=None, repr=False)
    sizes: tuple[int, ...] | None = field(default=None, repr=False)

    def nodes(self) -> Iterator[SplitNode]:
        """Nodes from the root down, the first side of a split before the second."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def leaves(self) -> list[SplitNode]:
        """Return the clusters from the first side of the first split on.

        Their labels are by size, and leaves that were merged share one.
        """
        return [node for node in self.nodes() if node.is_leaf]

    def splits(self) -> list[SplitNode]:
        """Return the splits, in the order in which they were made."""
        made = [node for node in self.nodes() if not node.is_leaf]
        return sorted(made, key=lambda node: node.rank or 0)

    @property
    def n_leaves(self) -> int:
        """Number of clusters; leaves with the same label are one."""
        leaves = self.leaves()
        return len({leaf.label for leaf in leaves}) if leaves[0].label is not None else len(leaves)

    def merged(self) -> dict[int, list[SplitNode]]:
        """Return the leaves of each cluster that is several of them, by its label."""
        parts: dict[int, list[SplitNode]] = {}
        for leaf in self.leaves():
            if leaf.label is not None:
                parts.setdefault(leaf.label, []).append(leaf)
        return {label: leaves for label, leaves in parts.items() if len(leaves) > 1}

    def siblings(self) -> list[tuple[int, int]]:
        """Return the pairs of labels of leaves that one split separates."""
        return [
            (first.label, second.label)
            for first, second in (node.children for node in self.splits())
            if first.label is not None and second.label is not None
        ]

    def relabel(self, labels: NDArray) -> None:
        """Give the leaves new labels, ``labels[old]``."""
        for leaf in self.leaves():
            leaf.label = int(labels[leaf.label])
        self.sizes = None  # those of other clusters

    def size_note(self, sizes: Sequence[int] | None = None) -> str:
        """Return why sizes in the tree are not those of the clusters; empty where they are.

        Parameters
        ----------
        sizes : sequence of int, optional
            Rows of clusters 0, 1 and so on; `sizes` of the tree if not given.
        """
        sizes = self.sizes if sizes is None else sizes
        if sizes is None:
            return ""
        counted = [0] * len(sizes)
        for leaf in self.leaves():
            if leaf.label is None or leaf.label >= len(sizes):
                return ""
            counted[leaf.label] += leaf.n_rows
        if counted == list(sizes):
            return ""
        if len(sizes) > 1:
            some, more = sizes[:MOST_SIZES], ", ..." if len(sizes) > MOST_SIZES else ""
            clusters = f"the clusters have {', '.join(f'{size:,}' for size in some)}{more} rows"
        else:
            clusters = f"the cluster has {sizes[0]:,} rows"
        if sum(counted) != sum(sizes):
            return f"Sizes are those of {sum(counted):,} rows that were split; {clusters}."
        return (
            "Sizes are those at the time of the split; rows changed clusters afterwards, and now "
            f"{clusters}."
        )

    def scores(self, X: Any) -> NDArray:
        """Return scores (n, k): the least score towards the cluster on the way down to it.

        Of two clusters it is the score of the split, (n,), and of one zero.

        Splits score the rows that come down to them, and no others: a row and a cluster that
        were separated keep the score of the split that did so, which is negative. The cluster that
        a row falls into has a score that is not: it is the largest. A row on the border
        (score 0) belongs to the first side.
        """
        n = X.shape[0]
        if self.n_leaves == 1:
            return np.zeros(n)
        leaves = self.leaves()
        if len(leaves) == 2:
            f = self.root.score(X)
            return f if leaves[1].label != 0 else -f
        columns: list[NDArray] = []
        stack = [(self.root, np.full(n, np.inf), np.arange(n))]
        while stack:
            node, least, rows = stack.pop()
            if node.is_leaf:
                columns.append(least)
                continue
            f = np.zeros(0)
            if rows.size:
                f = node.score(X if rows.size == n else X[rows])
            first, second = least.copy(), least
            first[rows] = np.minimum(least[rows], -f)
            # On the border the first side is ahead, whichever of the two has the lower number.
            second[rows] = np.minimum(least[rows], np.where(f == 0, -np.finfo(f.dtype).tiny, f))
            stack.append((node.children[1], second, rows[f > 0]))
            stack.append((node.children[0], first, rows[f <= 0]))
        scores = np.column_stack(columns)
        if leaves[0].label is not None:
            # Of a cluster that is several leaves the nearest one counts.
            labels = np.array([leaf.label for leaf in leaves])
            scores = np.column_stack(
                [scores[:, labels == label].max(axis=1) for label in range(self.n_leaves)]
            )
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def __str__(self) -> str:
        lines = []
        stack = [(self.root, "", "")]
        while stack:  # no function calls itself: a tree may be deeper than Python's stack
            node, first, indent = stack.pop()
            lines.append(first + self.describe(node))
            for child, tick, bar in reversed(
                list(zip(node.children, ("├─ ", "└─ "), ("│  ", "   "), strict=False))
            ):
                stack.append((child, indent + tick, indent + bar))
        note = self.size_note()
        return "\n".join([*lines, note] if note else lines)

    def __repr__(self) -> str:
        n = len(self.splits())
        splits = f"{n} split" if n == 1 else f"{n} splits"
        clusters = "1 cluster" if self.n_leaves == 1 else f"{self.n_leaves} clusters"
        return f"SplitTree({clusters}, {splits}, {self.root.n_rows} rows)"

    def _repr_html_(self) -> str:
        """Show the tree in a notebook: a sentence, and a row for each node."""
        rows: list[list[str | int]] = []
        stack = [(self.root, 0)]
        while stack:
            node, depth = stack.pop()
            stack.extend((child, depth + 1) for child in reversed(node.children))
            name = f"cluster {node.label}" if node.is_leaf else f"split {node.rank}"
            separated = "" if node.is_leaf else f"{node.probability:.2f}"
            leading = ", ".join(f"{self.name(j)} ({value:+.2g})" for j, value in node.leading)
            level = "" if np.isnan(node.level) else f"{node.level:.2g}"
            rows.append(
                ["\u2003" * depth + name, node.n_rows, separated, node.p_text, level, leading]
            )
        header = ["Node", "Rows", "Separation", "p-value", "Level", "Leading features"]
        shown = [0, 1, *(j for j in range(2, 6) if any(row[j] for row in rows))]
        from volmar._notebook import html_card

        return html_card(
            "Tree of splits",
            [self._summary()],
            [header[j] for j in shown],
            [[row[j] for j in shown] for row in rows],
        )

    def _summary(self) -> str:
        n, k = len(self.splits()), self.n_leaves
        rows = f"{self.root.n_rows:,} rows"
        if n == 0:
            return f"{rows} stay one cluster: no split was made."
        text = f"{rows} fall into {k} clusters by {n} split{'s' if n > 1 else ''}."
        if self.merged():
            text += " Leaves with one number are one cluster: there is no valley between them."
        return f"{text} {self.size_note()}".strip()

    def __getstate__(self) -> dict[str, Any]:
        """Return the nodes in a list, and their children by number: pickles at any depth."""
        nodes = list(self.nodes())
        number = {id(node): i for i, node in enumerate(nodes)}
        return {
            "nodes": [{**vars(node), "children": ()} for node in nodes],
            "children": [[number[id(child)] for child in node.children] for node in nodes],
            "feature_names": self.feature_names,
            "sizes": self.sizes,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        nodes = [SplitNode(**values) for values in state["nodes"]]
        for node, children in zip(nodes, state["children"], strict=True):
            node.children = tuple(nodes[i] for i in children)
        self.root, self.feature_names = nodes[0], state["feature_names"]
        self.sizes = state.get("sizes")  # pickles of earlier versions have none

    def describe(self, node: SplitNode) -> str:
        """Return size, split and leading features of a node in a line."""
        text = f"{node.n_rows} rows"
        if node.is_leaf:
            text = f"cluster {node.label}: {text}"
            return f"{text}, not split ({node.test_text})" if node.p_text else text
        text += f", split {node.rank}, separated with probability {node.probability:.2f}"
        if node.p_text:
            text += f" ({node.test_text})"
        if node.leading:
            names = [f"{self.name(j)} ({value:+.2g})" for j, value in node.leading]
            text += ", by " + ", ".join(names)
        return text

    def name(self, feature: int) -> str:
        """Return the name of a feature, x0 and so on where there are none."""
        return f"x{feature}" if self.feature_names is None else str(self.feature_names[feature])
