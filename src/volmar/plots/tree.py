"""The tree of a recursive fit, drawn."""

from __future__ import annotations

import textwrap
from typing import Any

from sklearn.utils.validation import check_is_fitted

from volmar.base.tree import SplitNode, SplitTree
from volmar.plots.display import COLOURS, Display, hide_spines, shortened

# Features that a split is drawn with.
N_NAMED = 2
# Letters of a feature's name that are drawn: splits of a level are 3 inches apart at least.
MOST_LETTERS = 30
# Letters of a small font that an inch of the figure has room for.
LETTERS_OF_INCH = 14
# Largest side of a figure.
MOST_INCHES = 200.0


class TreeDisplay(Display):
    r"""A tree of splits: sizes, how well each separates, the features that lead it.

    Splits hang below each other with their number, the probability with which they separate their
    rows, and the features that count most, with the sign that they have on the right side. The
    width of a branch goes with the share of the rows that take it.

    Where splits were tested (n_clusters="auto"), each has its p-value and the level that it was
    compared with, and so has each cluster: those of the split which was not made. Leaves that were
    merged into one cluster, because there is no valley between them, share a colour and a number,
    and a line below reports it. Another does so where the fit has moved rows since the splits.

    Parameters
    ----------
    tree : SplitTree
        The tree.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn.

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
        """Draw the tree of a fitted estimator.

        Parameters
        ----------
        estimator : Clusterer
            Fitted with more than two clusters by splitting again, so that it has a `tree_`.
        feature_names : sequence of str, optional
            Names of the features, where they were not known to `fit`.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if not given.
        """
        check_is_fitted(estimator)
        tree = getattr(estimator, "tree_", None)
        if tree is None:
            raise ValueError(
                f"this {type(estimator).__name__} was not fitted by splitting again and has no "
                "tree_. Ask for more than two clusters, with multiway='recursive' where there is "
                "a choice."
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
        merged = self.tree.merged()
        positions, depth = _positions(self.tree)
        ax = self._set_axes(ax)
        for node in self.tree.nodes():
            if node.children:
                self._draw(ax, node, positions)
        ax.set_xticks(range(len(leaves)), [_leaf_words(leaf, merged) for leaf in leaves])
        notes = []
        if merged:
            names = ", ".join(str(label) for label in merged)
            notes.append(
                f"Parts with one number ({names}) are one cluster: no valley between them."
            )
        notes.append(self.tree.size_note())
        letters = int(LETTERS_OF_INCH * ax.figure.get_size_inches()[0])
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
        """Width and height in inches that suit the tree; a renderer draws no more than 200."""
        size = max(5.0, 1.5 * len(self.tree.leaves())), 1.6 + 1.1 * _positions(self.tree)[1]
        return min(size[0], MOST_INCHES), min(size[1], MOST_INCHES)

    def _draw(self, ax: Any, node: SplitNode, positions: dict[int, tuple[float, float]]) -> None:
        """Draw a split and the branches to its sides."""
        x, y = positions[id(node)]
        total = self.tree.root.weight
        for child in node.children:
            below = positions[id(child)]
            colour = "0.6"
            if child.is_leaf and child.label is not None:
                colour = COLOURS[child.label % len(COLOURS)]
            ax.plot(
                [x, below[0], below[0]],
                [y, y, below[1]],
                color=colour,
                lw=1.0 + 7.0 * child.weight / total,
                solid_capstyle="butt",
                solid_joinstyle="miter",
            )
        ax.text(
            x,
            y,
            self._words(node),
            ha="center",
            va="center",
            fontsize="small",
            parse_math=False,  # a name may hold dollar signs
            bbox={"boxstyle": "round,pad=0.3", "fc": "white", "ec": "0.6"},
            zorder=4,
        )

    def _words(self, node: SplitNode) -> str:
        names = [
            f"{shortened(self.tree.name(j), MOST_LETTERS)} {'+' if value > 0 else '−'}"
            for j, value in node.leading[:N_NAMED]
        ]
        return "\n".join([f"split {node.rank}: {node.probability:.2f}", *_tested(node), *names])


def _tested(node: SplitNode) -> list[str]:
    """Return the p-value and its level, a line each: leaves stand close to each other."""
    return node.test_text.split(", ") if node.p_text else []


def _leaf_words(leaf: SplitNode, merged: dict[int, list[SplitNode]]) -> str:
    is_part = leaf.label is not None and leaf.label in merged
    lines = [f"cluster {leaf.label}{' (part)' if is_part else ''}", f"{leaf.n_rows} rows"]
    return "\n".join([*lines, *_tested(leaf)])


def _positions(tree: SplitTree) -> tuple[dict[int, tuple[float, float]], int]:
    """Return the place of every node by its id, and the depth of the tree.

    Clusters stand in a row, splits above the middle of their sides. No function calls itself: a
    tree may be deeper than Python's stack.
    """
    order = list(tree.nodes())
    level = {id(tree.root): 0}
    for node in order:
        level.update({id(child): level[id(node)] + 1 for child in node.children})
    depth = max(level.values())
    places = {id(leaf): (float(x), -float(depth)) for x, leaf in enumerate(tree.leaves())}
    for node in reversed(order):  # sides come before their split
        if node.children:
            middle = sum(places[id(child)][0] for child in node.children) / len(node.children)
            places[id(node)] = (middle, -float(level[id(node)]))
    return places, depth
