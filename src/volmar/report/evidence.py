"""The evidence for the clusters of a fitted model: what its tests on held-out rows found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.base import clone

from volmar.base import SplitTree
from volmar.diagnostics import split_test
from volmar.diagnostics.split_test import FEWEST_ROWS
from volmar.report.outcome import Evidence

__all__ = ["evidence_of"]


def evidence_of(
    model: Any,
    X: Any,
    labels: Any,
    *,
    n_clusters: Any,
    random_state: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Evidence]:
    """Return what supports the clusters of a model, or does not.

    Parameters
    ----------
    model : clusterer
        Fitted to `X`.
    X : array of shape (n, d)
        The rows.
    labels : ndarray of shape (n,)
        Their clusters.
    n_clusters : int or "auto"
        Number of clusters that was asked for.
    random_state : int, default=0
        Random seed of the test.
    progress : callable, optional
        Called with (done, total).

    Returns
    -------
    list of Evidence
        Empty where one cluster was asked for.
    """
    del labels
    if n_clusters == 1:
        return []
    n = X.shape[0]
    if n < FEWEST_ROWS:
        return [
            Evidence("p-value", None, f"{n} rows are too few to test a split of them."),
        ]
    if n_clusters == "auto":
        return _from_tree(model.tree_, type(model).__name__)
    return [_tested(model, X, random_state, progress)]


def _from_tree(tree: SplitTree, method: str) -> list[Evidence]:
    root = tree.root
    splits = tree.splits()
    if not splits:
        if not root.p_value <= root.level:
            why = "where one half of the rows would be split, the other half has no gap."
            if root.has_way_around:
                why = "held-out rows have a gap, but other rows connect its two sides around it."
            sentence = f"No evidence for more than one group ({root.p_text}): {why}"
        else:
            sentence = (
                f"There may be more than one group ({root.p_text}), but {method} makes no split "
                f"of them: {root.reason}."
            )
        return [Evidence("p-value", float(root.p_value), sentence, root.p_minimum)]
    worst = max(splits, key=lambda node: node.p_value)
    what = "The split" if len(splits) == 1 else f"Each of {len(splits)} splits"
    most = "" if len(splits) == 1 or "=" not in worst.p_text else " at most"
    sentence = (
        f"{what} was found on one half of the rows and seen again on the other, which was held "
        f"out ({worst.p_text}{most})."
    )
    evidence = [Evidence("p-value", float(worst.p_value), sentence, worst.p_minimum)]
    merged = tree.merged()
    if merged:
        n_parts = sum(len(leaves) for leaves in merged.values())
        which = "one cluster" if len(merged) == 1 else f"{len(merged)} clusters"
        text = (
            f"{n_parts} parts of the tree were merged into {which}: there is no valley between "
            "them."
        )
        evidence.append(Evidence("merged", None, text))
    return evidence


def _tested(model: Any, X: Any, seed: int, progress: Any) -> Evidence:
    by_hyperplanes = getattr(model, "_splits_by_hyperplanes", None)
    try:
        if by_hyperplanes is None or by_hyperplanes():
            result = split_test(X, progress=progress, random_state=seed)
        else:  # the curved split of the method itself, as with n_clusters="auto"
            two = clone(model).set_params(n_clusters=2, random_state=seed)
            result = split_test(X, two, progress=progress, random_state=seed)
    except (ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        return Evidence("p-value", None, f"The split was not tested: {reason}")
    return Evidence("p-value", float(result.p_value), str(result), result.p_minimum)
