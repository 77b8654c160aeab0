"""The tree of splits, and the best split without evidence, as the report shows them."""

from __future__ import annotations

from typing import Any

import numpy as np

from volmar.base import SplitTree
from volmar.report.drivers import cluster_moments, drivers
from volmar.report.histogram import bars
from volmar.report.outcome import Outcome
from volmar.report.text import as_count, listed, shortened

__all__ = ["best_split", "tree_lines"]

# Number of columns named for the best split in two.
N_NAMED = 4


def tree_lines(outcome: Outcome) -> dict[str, Any] | None:
    """Return the nodes of the tree of splits from the root down, None without splits.

    They are a flat list, because a tree may be deeper than Python's recursion limit. `closes` is
    the number of nested HTML lists that end after a node.
    """
    tree = getattr(outcome.estimator, "tree_", None)
    if tree is None or not tree.splits():
        return None
    merged = tree.merged()
    total = tree.root.n_rows
    place = {label: i for i, label in enumerate(outcome.clusters.tolist())}
    lines: list[dict[str, Any]] = []
    stack = [(tree.root, 0)]
    while stack:
        node, closes = stack.pop()
        lines.append(
            {
                "n_rows": node.n_rows,
                "share": node.n_rows / total,
                "rank": node.rank,
                "cluster": place.get(node.label),
                "is_leaf": node.is_leaf,
                "is_part": node.label in merged,
                "p": node.p_text,
                "level": None if np.isnan(node.level) else f"{node.level:.2g}",
                "around": node.has_way_around,
                "probability": None if np.isnan(node.probability) else node.probability,
                "leading": [_column(outcome, j) for j, _ in node.leading],
                # The lists of a split end after its last child.
                "closes": closes if node.is_leaf else 0,
            }
        )
        if not node.is_leaf:
            first, second = node.children
            stack += [(second, closes + 1), (first, 0)]
    return {
        "lines": lines,
        "tested": any(line["p"] for line in lines),
        "alpha": f"{100 * tree.root.level:.2g} %",
        # Explanation for each cluster that consists of several leaves.
        "merged": [
            f"Cluster {shortened(str(label))} consists of {len(leaves)} parts of the tree, of "
            f"{listed([as_count(leaf.n_rows) for leaf in leaves])} rows. An earlier split cut "
            "through it, but there is no gap between the parts."
            for label, leaves in merged.items()
            if label in outcome.clusters
        ],
        "note": _note(outcome, tree),
    }


def _column(outcome: Outcome, feature: int) -> str:
    known = outcome.model is outcome.estimator and feature < len(outcome.feature_names)
    return shortened(str(outcome.feature_names[feature])) if known else f"x{feature}"


def _note(outcome: Outcome, tree: SplitTree) -> str:
    """Return a note if sizes in the tree differ from those of the clusters, or ''."""
    if tree.root.n_rows != len(outcome.labels):
        return "Sizes are numbers of the rows that the splits were fitted to."
    return tree.size_note([int(np.sum(outcome.labels == c)) for c in range(tree.n_leaves)])


def best_split(outcome: Outcome) -> dict[str, Any] | None:
    """Return sizes, histogram, columns and command of the best split without evidence."""
    if outcome.best_split is None:
        return None
    two = outcome.in_two()
    lead = np.nan_to_num(two.lead)
    moments = cluster_moments(two.X, two.codes, two.k)
    driving = drivers(two, moments)
    leading: Any = () if driving is None else driving.features[:N_NAMED]
    return {
        "sizes": [int(size) for size in moments.sizes],
        "histogram": bars(two, lead, two.codes),
        "columns": [shortened(str(two.feature_names[j])) for j in leading],
        "command": outcome.best_split.command,
        "method": type(two.estimator).__name__,
    }
