"""Plot of the tree of a recursive fit."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from volmar._checks import shortened
from volmar.base.tree import SplitNode, SplitTree
from volmar.plots.display import COLOURS, Display, hide_spines


class TreeDisplay(Display):
    r"""Tree of splits, with their sizes, separation and most important features.

    Each split is drawn with its number, its effect or separation probability, and its most
    important features, with their signs on the right side. The width of a branch is proportional
    to its number of rows.

    If splits were tested (`volmar.AutoClusterer`), each split has its p-value and the level of its
    test. Each cluster has those of its clearest candidate. A note is shown if the fit has moved
    rows after the splits.

    Parameters
    ----------
    tree : SplitTree
        Tree to draw, such as `tree_` of a fitted estimator.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        The axes and the figure of the plot.

    Examples
    --------
    >>> from volmar import IterSVR
    >>> from volmar.datasets import make_blobs
    >>> from volmar.plots import TreeDisplay
    >>> X, _ = make_blobs(300, centers=3, random_state=0)
    >>> model = IterSVR(3, kernel="linear", random_state=0).fit(X)
    >>> display = TreeDisplay.from_estimator(model)
    >>> [label.get_text() for label in display.ax_.get_xticklabels()][0]
    'cluster 0\n100 rows'
    """

    def __init__(self, tree: SplitTree):
        self.tree = tree

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, feature_names: Any = None, ax: Any = None
    ) -> TreeDisplay:
        """Plot the tree of a fitted estimator.

        Parameters
        ----------
        estimator : Clusterer
            A fitted estimator with a `tree_`, from recursive splits.
        feature_names : sequence of str, optional
            Names of the features. If None, those that `fit` has seen.
        ax : matplotlib Axes, optional
            Axes to draw on. If None, a new figure is created.
        """
        check_is_fitted(estimator)
        tree = getattr(estimator, "tree_", None)
        if tree is None:
            raise ValueError(
                f"this {type(estimator).__name__} has no tree_, because it was not fitted by "
                "recursive splits. Fit it with more than two clusters, and with "
                "multiway='recursive' if it has that parameter."
            )
        if feature_names is not None:
            if len(feature_names) != estimator.n_features_in_:
                raise ValueError(
                    f"feature_names has {len(feature_names)} names for "
                    f"{estimator.n_features_in_} features."
                )
            tree = SplitTree(tree.root, feature_names, tree.sizes)
        return cls(tree).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> TreeDisplay:
        """Draw on `ax`, or on a new figure."""
        leaves = self.tree.leaves()
        positions, depth = _positions(self.tree)
        ax = self._set_axes(ax)
        for node in self.tree.nodes():
            if node.children:
                self._draw(ax, node, positions)
        ax.set_xticks(range(len(leaves)), [_leaf_words(leaf) for leaf in leaves])
        notes = []
        notes.append(self.tree.size_note())
        letters = int(14 * ax.figure.get_size_inches()[0])  # of the small font
        lines = [line for note in notes for line in textwrap.wrap(note, letters)]
        ax.set_xlabel("\n".join(lines), fontsize="small")
        ax.set_xlim(-0.6, len(leaves) - 0.4)
        ax.set_ylim(-depth, 0.45)
        ax.set_yticks([])
        hide_spines(ax)
        ax.tick_params(axis="x", length=0)
        return self

    @property
    def size(self) -> tuple[float, float]:
        """Suitable width and height in inches, at most 200 for the renderer."""
        size = max(5.0, 1.5 * len(self.tree.leaves())), 1.6 + 1.1 * _positions(self.tree)[1]
        return min(size[0], 200.0), min(size[1], 200.0)

    def _draw(self, ax: Any, node: SplitNode, positions: dict[int, tuple[float, float]]) -> None:
        """Draw a split and the branches to its two sides."""
        x, y = positions[id(node)]
        total = self.tree.root.weight
        for child in node.children:
            below = positions[id(child)]
            colour = "0.6"
            if child.is_leaf and child.label is not None:
                colour = COLOURS[child.label % len(COLOURS)]
            width = 1.0 + 7.0 * child.weight / total
            ends: dict[str, Any] = {"solid_capstyle": "butt", "solid_joinstyle": "miter"}
            ax.plot([x, below[0], below[0]], [y, y, below[1]], color=colour, lw=width, **ends)
        placed = {"ha": "center", "va": "center", "fontsize": "small", "zorder": 4}
        box = {"boxstyle": "round,pad=0.3", "fc": "white", "ec": "0.6"}
        # A name may contain dollar signs.
        ax.text(x, y, self._words(node), parse_math=False, bbox=box, **placed)

    def _words(self, node: SplitNode) -> str:
        # Two names of at most 30 letters: splits of a level are at least 3 inches apart.
        names = [
            f"{shortened(self.tree.name(j), 30)} {'+' if value > 0 else '−'}"
            for j, value in node.leading[:2]
        ]
        value = node.probability if np.isnan(node.effect) else node.effect
        return "\n".join([f"split {node.rank}: {value:.2f}", *_tested(node), *names])


def _tested(node: SplitNode) -> list[str]:
    """Return the p-value and its level on separate lines, because leaves are close."""
    return node.test_text.split(", ") if node.p_text else []


def _leaf_words(leaf: SplitNode) -> str:
    lines = [f"cluster {leaf.label}", f"{leaf.n_rows} rows"]
    return "\n".join([*lines, *_tested(leaf)])


def _positions(tree: SplitTree) -> tuple[dict[int, tuple[float, float]], int]:
    """Return the position of each node by its id, and the depth of the tree.

    Clusters are in a row, and splits are above the middle of their sides. There is no recursion,
    because a tree may be deeper than Python's recursion limit.
    """
    order = list(tree.nodes())
    level = {id(tree.root): 0}
    for node in order:
        level.update({id(child): level[id(node)] + 1 for child in node.children})
    depth = max(level.values())
    places = {id(leaf): (float(x), -float(depth)) for x, leaf in enumerate(tree.leaves())}
    for node in reversed(order):  # children come before their split
        if node.children:
            middle = sum(places[id(child)][0] for child in node.children) / len(node.children)
            places[id(node)] = (middle, -float(level[id(node)]))
    return places, depth
