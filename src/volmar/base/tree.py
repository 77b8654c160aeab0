"""The tree of two-way splits of a recursive fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar._text import counted
from volmar.evidence.wording import HINT, MIN_EFFECT, level_text, p_value_text

# Maximum number of features listed for a split, and of cluster sizes listed in a note.
N_LEADING, MAX_SIZES = 3, 20


@dataclass(repr=False)
class SplitNode:
    """A part of the rows: either a split or a cluster.

    Attributes
    ----------
    n_rows : int
        Number of training rows in the node.
    weight : float
        Weight of these rows; `n_rows` without sample weights.
    probability : float
        Probability, from 0 to 1, with which the split separates the node. For a cluster, that of
        the split that was found but not made. NaN if no split was searched for or found.
    p_value : float
        p-value of the test of the split (`AutoClusterer`); NaN without a test.
    level : float
        Level that the p-value was compared with; NaN without a test.
    rank : int or None
        Number of the split, from 1 in the order in which splits were made; None for a cluster.
    label : int or None
        Number of the cluster; None for a split.
    model : object
        The fitted two-way clusterer of the split; None for a cluster.
    children : tuple of SplitNode
        The side with scores of at most 0 and the side with positive scores; empty for a cluster.
    leading : tuple of (int, float)
        Most important features of a linear split, the largest first, each with its coefficient
        times its standard deviation in the node.
    columns : ndarray of int or None
        Columns of a precomputed matrix that belong to the node.
    reason : str
        Why the node could not be split; empty otherwise.
    warnings : tuple of str
        Warnings of the fit of the split.
    effect : float
        For `AutoClusterer`: share by which the density at the border is below that of its sparser
        side, a lower 90 % limit. NaN without a test of the border.
    repeats : float
        Share of the halves of the rows in which the border is found again; NaN if not needed.
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
    level: float = float("nan")
    effect: float = float("nan")
    repeats: float = float("nan")

    @property
    def p_text(self) -> str:
        """The p-value as text; empty without a test."""
        return "" if np.isnan(self.p_value) else p_value_text(self.p_value)

    def __repr__(self) -> str:
        role = f"cluster {self.label}" if self.is_leaf else f"split {self.rank}"
        return f"SplitNode({role}, {self.n_rows} rows)"

    @property
    def test_text(self) -> str:
        """The p-value and its level as text; empty without a test."""
        return self.p_text and self.p_text + level_text(self.level)

    @property
    def grade(self) -> str:
        """Grade of a border: "confirmed", "candidate" or "none"; of the clearest in a cluster."""
        if self.p_value <= self.level and self.effect >= MIN_EFFECT:
            return "confirmed"
        is_large, is_likely = self.effect >= MIN_EFFECT, self.p_value <= self.level
        if (is_large and self.p_value <= HINT) or (is_likely and self.effect > 0):
            return "candidate"
        return "none"

    @property
    def evidence_text(self) -> str:
        """The effect, the p-value and the repeats of a border as text."""
        text = f"density at the border at least {100 * self.effect:.0f} % lower ({self.test_text}"
        if not np.isnan(self.repeats):
            text += f", found again in {100 * self.repeats:.0f} % of halves"
        return f"{self.grade}, {text})"

    @property
    def is_leaf(self) -> bool:
        """Whether the node is a cluster, that is, has no children."""
        return not self.children

    def score(self, X: Any) -> NDArray:
        """Return scores of rows by the split, positive for the second side.

        With precomputed similarities, a row without similarity to the training rows of this part
        has a score of 0. A row without similarity to any training row raises an error.
        """
        if self.columns is None:
            return self.model.decision_function(X)
        is_part = self.columns.size < X.shape[1]
        X = X[:, self.columns]
        return scores_in_graph(self.model, X) if is_part else self.model.decision_function(X)


def scores_in_graph(model: Any, X: Any) -> NDArray:
    """Return the scores of rows; 0 for rows without precomputed similarity to rows of the model.

    In a part of a graph, all neighbours of a row may be in another part.
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
        The node of all rows.
    feature_names : sequence of str or None
        Names of the features for printing.
    sizes : tuple of int or None
        Number of rows per cluster after the fit, which may have moved rows after the splits; None
        if unknown.

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
        """Yield the nodes from the root down, the first side of a split before the second."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def leaves(self) -> list[SplitNode]:
        """Return the leaves in tree order, beginning with the first side of the first split.

        Labels are by size, not in this order.
        """
        return [node for node in self.nodes() if node.is_leaf]

    def splits(self) -> list[SplitNode]:
        """Return the splits in the order in which they were made."""
        made = [node for node in self.nodes() if not node.is_leaf]
        return sorted(made, key=lambda node: node.rank or 0)

    @property
    def n_leaves(self) -> int:
        """Number of clusters; leaves with the same label count once."""
        leaves = self.leaves()
        return len({leaf.label for leaf in leaves}) if leaves[0].label is not None else len(leaves)

    def relabel(self, labels: NDArray) -> None:
        """Replace the label of each leaf by ``labels[label]``."""
        for leaf in self.leaves():
            leaf.label = int(labels[leaf.label])
        self.sizes = None  # they were in the order of the old labels

    def size_note(self, sizes: Sequence[int] | None = None) -> str:
        """Explain why the sizes in the tree differ from the cluster sizes; empty if they agree.

        Parameters
        ----------
        sizes : sequence of int, optional
            Number of rows of clusters 0, 1 and so on. If None, `self.sizes` is used.
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
            some, more = sizes[:MAX_SIZES], ", ..." if len(sizes) > MAX_SIZES else ""
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
        """Return scores (n, k): the minimum score towards each cluster along its path in the tree.

        For two clusters, the result is the score of the split, (n,); for one cluster, zeros.

        A split scores only the rows that reach it. If a split separates a row from a cluster, the
        row's score for this cluster is that of the split, which is negative. The score for the
        row's own cluster is not negative, and is the largest. A row on the border (score 0)
        belongs to the first side.
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
            node, lowest, rows = stack.pop()
            if node.is_leaf:
                columns.append(lowest)
                continue
            f = np.zeros(0)
            if rows.size:
                f = node.score(X if rows.size == n else X[rows])
            first, second = lowest.copy(), lowest
            first[rows] = np.minimum(lowest[rows], -f)
            # On the border the first side must win, even if its label is the higher one.
            second[rows] = np.minimum(lowest[rows], np.where(f == 0, -np.finfo(f.dtype).tiny, f))
            stack.append((node.children[1], second, rows[f > 0]))
            stack.append((node.children[0], first, rows[f <= 0]))
        scores = np.column_stack(columns)
        if leaves[0].label is not None:
            # The score of a cluster of several leaves is that of the nearest leaf.
            labels = np.array([leaf.label for leaf in leaves])
            scores = np.column_stack(
                [scores[:, labels == label].max(axis=1) for label in range(self.n_leaves)]
            )
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def __str__(self) -> str:
        lines = []
        stack = [(self.root, "", "")]
        while stack:  # not recursive: a tree may be deeper than Python's stack
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
        sizes = f"{counted(self.n_leaves, 'cluster')}, {counted(n, 'split')}"
        return f"SplitTree({sizes}, {self.root.n_rows} rows)"

    def _repr_html_(self) -> str:
        """Show the tree in a notebook: a sentence and a table with one row per node."""
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
        return f"{text} {self.size_note()}".strip()

    def __getstate__(self) -> dict[str, Any]:
        """Return a flat list of nodes with their children by number, to pickle deep trees."""
        nodes = list(self.nodes())
        number = {id(node): i for i, node in enumerate(nodes)}
        return {
            "nodes": [{**vars(node), "children": ()} for node in nodes],
            "children": [[number[id(child)] for child in node.children] for node in nodes],
            "feature_names": self.feature_names,
            "sizes": self.sizes,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        nodes, children = state["nodes"], state["children"]
        # Of a damaged file, a node could be its own descendant, and no walk would end.
        has_two = all(
            len(two) in (0, 2) and min(two, default=i + 1) > i for i, two in enumerate(children)
        )
        if not has_two or sorted(j for two in children for j in two) != list(range(1, len(nodes))):
            raise ValueError("the nodes are not a binary tree")
        known = {one.name for one in fields(SplitNode)}  # files of earlier versions have more
        nodes = [
            SplitNode(**{name: value for name, value in values.items() if name in known})
            for values in nodes
        ]
        for node, children in zip(nodes, state["children"], strict=True):
            node.children = tuple(nodes[i] for i in children)
        self.root, self.feature_names = nodes[0], state["feature_names"]
        self.sizes = state.get("sizes")  # missing in pickles of earlier versions

    def describe(self, node: SplitNode) -> str:
        """Return one line with the size, the split and the leading features of a node."""
        text = f"{node.n_rows} rows"
        if node.is_leaf:
            text = f"cluster {node.label}: {text}"
            if node.reason and node.p_value == 1:
                return f"{text}, {node.reason}"
            if node.grade == "candidate":
                return f"{text}, candidate for a split: {node.evidence_text}"
            return f"{text}, not split ({node.test_text})" if node.p_text else text
        if not np.isnan(node.effect):
            return f"{text}, split {node.rank}: {node.evidence_text}"
        text += f", split {node.rank}, separated with probability {node.probability:.2f}"
        if node.p_text:
            text += f" ({node.test_text})"
        if node.leading:
            names = [f"{self.name(j)} ({value:+.2g})" for j, value in node.leading]
            text += ", by " + ", ".join(names)
        return text

    def name(self, feature: int) -> str:
        """Return the name of a feature; "x0", "x1" and so on if features have no names."""
        return f"x{feature}" if self.feature_names is None else str(self.feature_names[feature])
