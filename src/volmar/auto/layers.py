"""The chosen tree as a tree of splits in two, for printing and pictures."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from volmar.auto.grow import Branch, Part
from volmar.base.tree import SplitNode, SplitTree


def branch_tree(branch: Branch, order: NDArray, alpha: float, names: Any = None) -> SplitTree:
    """Return the splits in two of a tree of branches; leaf ``order[j]`` is cluster j."""
    cluster = {leaf: j for j, leaf in enumerate(order.tolist())}
    labels = {id(leaf): cluster.get(i, i) for i, leaf in enumerate(branch.leaves())}

    def node_of(one: Branch) -> SplitNode:
        if one.division is None:
            node = SplitNode(one.part.rows.size, float(one.part.rows.size), label=labels[id(one)])
            clearest = one.part.candidates[:1]
            return _with_evidence(node, one.part, clearest[0] if clearest else None, alpha)
        nodes = [node_of(child) for child in one.children]
        for border, first, second in one.division.joins:
            a, b = nodes[first], nodes[second]
            joined = SplitNode(a.n_rows + b.n_rows, a.weight + b.weight, children=(a, b))
            nodes = [joined if node is a or node is b else node for node in nodes]
            _with_evidence(joined, one.part, border, alpha)
        return nodes[0]

    tree = SplitTree(node_of(branch), names)
    splits = [node for node in tree.nodes() if not node.is_leaf]
    for rank, node in enumerate(splits, start=1):
        node.rank = rank
    return tree


def _with_evidence(node: SplitNode, part: Part, border: int | None, alpha: float) -> SplitNode:
    """Set the evidence of a split, or of the clearest candidate of a cluster."""
    node.level, node.p_value = alpha, 1.0
    if border is not None:
        found = part.found[border]
        node.p_value, node.effect, node.repeats = (float(value) for value in found)
    elif part.rows.size < 2 * part.fewest:
        node.reason = "too few rows to test"
    return node
