"""The splits of a recursive fit, and the one that was not made, as the report shows them."""

from __future__ import annotations

from typing import Any

import numpy as np

from volmar.base import SplitTree
from volmar.report.drivers import cluster_moments, drivers
from volmar.report.histogram import bars
from volmar.report.outcome import Outcome
from volmar.report.text import as_count, listed, shortened

__all__ = ["best_split", "tree_lines"]

# Columns that the split in two is said to go by.
N_NAMED = 4


def tree_lines(outcome: Outcome) -> dict[str, Any] | None:
    """Return the nodes of the tree of splits from the root down, where there are splits.

    They are a list, not nested: a tree may be deeper than Python's stack. A node says how many
    lists it ends.
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
                # Of a split its children end the lists.
                "closes": closes if node.is_leaf else 0,
            }
        )
        if not node.is_leaf:
            first, second = node.children
            stack += [(second, closes + 1), (first, 0)]
    return {
        "lines": lines,
        "tested": any(line["p"] for line in lines),
        # Of each cluster that is several leaves, why they are one.
        "merged": [
            f"Cluster {shortened(str(label))} is {len(leaves)} parts of the tree, of "
            f"{listed([as_count(leaf.n_rows) for leaf in leaves])} rows: an earlier split cut "
            "through it, and there is no valley between the parts."
            for label, leaves in merged.items()
            if label in outcome.clusters
        ],
        "note": _note(outcome, tree),
    }


def _column(outcome: Outcome, feature: int) -> str:
    known = outcome.model is outcome.estimator and feature < len(outcome.feature_names)
    return shortened(str(outcome.feature_names[feature])) if known else f"x{feature}"


def _note(outcome: Outcome, tree: SplitTree) -> str:
    """Say why sizes of the tree are not those of the clusters, where they are not."""
    if tree.root.n_rows != len(outcome.labels):
        return "Sizes are those of the rows that the splits were learnt from."
    return tree.size_note([int(np.sum(outcome.labels == c)) for c in range(tree.n_leaves)])


def best_split(outcome: Outcome) -> dict[str, Any] | None:
    """Return the split in two of rows that are one group, as drawn: its scores and columns."""
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
