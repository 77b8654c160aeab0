"""The evidence for the clusters of a fit, as values and sentences."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from volmar.evidence.held_out import FEWEST_ROWS
from volmar.evidence.wording import HINT, p_value_text
from volmar.report.outcome import Evidence, too_few_rows

__all__ = ["evidence_of", "sentences_of"]

# Maximum number of borders without a gap that the command line lists.
MAX_LISTED = 8

Progress = Callable[[int, int], None]


def evidence_of(
    model: Any,
    X: ArrayLike,
    labels: ArrayLike,
    *,
    n_clusters: int | str | None,
    random_state: int | np.random.RandomState | None = 0,
    progress: Progress | None = None,
) -> list[Evidence]:
    """Return the evidence for the clusters of a fitted model.

    With ``n_clusters="auto"`` the splits were tested when they were made, and the evidence is read
    from the tree. For a given number of clusters, two tests on held-out rows are made here:
    whether there is more than one group (`volmar.evidence.split_test`), and which borders between
    the clusters have a gap (`volmar.evidence.label_test`).

    Parameters
    ----------
    model : clusterer, Pipeline or None
        The fitted model; of a pipeline, its last step is used. If None, the labels may come from
        any tool.
    X : array of shape (n, d)
        Rows that the clusterer was fitted to, dense or CSR. If there are more than 100,000, a
        random sample is tested.
    labels : array of shape (n,)
        Cluster of each row.
    n_clusters : int, "auto" or None
        Number of clusters that was requested. If None, none was.
    random_state : int, RandomState or None, default=0
        Random seed of the tests.
    progress : callable, optional
        Called with (done, total) after each step of the tests.

    Returns
    -------
    list of Evidence
        The test of more than one group, then the number of groups among the clusters, then each
        join of clusters. Empty if one cluster was requested. If a test cannot be made, a sentence
        gives the reason.

    Examples
    --------
    >>> from volmar import MSPC
    >>> from volmar.datasets import make_blobs
    >>> from volmar.report import evidence_of
    >>> X, _ = make_blobs(400, centers=2, random_state=0)
    >>> model = MSPC(3, random_state=0).fit(X)
    >>> found = evidence_of(model, X, model.labels_, n_clusters=3)
    >>> [one.kind for one in found]
    ['p-value', 'groups', 'join', 'join']
    >>> found[1].value
    2.0
    """
    steps = getattr(model, "steps", None)
    estimator = steps[-1][1] if steps else model
    tree = getattr(estimator, "tree_", None)
    rows: Any = X if sparse.issparse(X) else np.asarray(X)
    given = np.asarray(labels)
    n = rows.shape[0]
    if given.shape != (n,):
        raise ValueError(
            f"labels must hold one label for each row of X, shape ({n},), got shape {given.shape}."
        )
    is_tested = tree is not None and (n < FEWEST_ROWS or np.isfinite(tree.root.p_value))
    if n_clusters == "auto" and is_tested:
        return _from_tree(estimator, n)
    if isinstance(n_clusters, Integral) and n_clusters < 2:
        return []
    # Imported here, because most runs do not need these tests.
    from volmar.report.evidence_of_number import evidence_of_number

    return evidence_of_number(
        estimator,
        rows,
        given,
        n_clusters=n_clusters,
        random_state=random_state,
        progress=progress,
    )


def sentences_of(evidence: list[Evidence]) -> list[str]:
    """Return the sentences of `evidence_of` to print; of the borders, only those without a gap."""
    joins = [one for one in evidence if one.kind == "join"]
    missing = [one for one in joins if not one.is_supported]
    # A single join has no summary, and is listed itself.
    listed = missing[:MAX_LISTED] if len(joins) > 1 else joins
    lines = [one.sentence for one in evidence if one.kind != "join" or one in listed]
    if len(missing) > MAX_LISTED:
        lines.append(f"... and {len(missing) - MAX_LISTED} more borders without a gap.")
    return lines


# ------------------------------------------------------------------------------ number found


def _from_tree(model: Any, n: int) -> list[Evidence]:
    """Return the evidence of splits that were tested when they were made."""
    if n < FEWEST_ROWS:
        return [too_few_rows(n)]
    tree = model.tree_
    splits = tree.splits()
    if not splits:
        return [_without_split(model)]
    worst = max(splits, key=lambda node: node.p_value)
    what = "The split" if len(splits) == 1 else f"Each of {len(splits)} splits"
    largest = "" if len(splits) == 1 or "=" not in worst.p_text else "largest "
    sentence = (
        f"{what} was found on one half of the rows and confirmed on the other half, which was "
        f"held out ({largest}{worst.p_text}, level {worst.level:.2g})."
    )
    evidence = [
        Evidence("p-value", float(worst.p_value), sentence, worst.p_minimum, float(worst.level))
    ]
    merged = tree.merged()
    if merged:
        n_parts = sum(len(leaves) for leaves in merged.values())
        which = "one cluster" if len(merged) == 1 else f"{len(merged)} clusters"
        text = f"{n_parts} parts of the tree were merged into {which}"
        evidence.append(Evidence("merged", None, f"{text}: there is no gap between them."))
    return evidence


def _without_split(model: Any) -> Evidence:
    root = model.tree_.root
    p, level = float(root.p_value), float(root.level)
    p_text = p_value_text(p, root.p_minimum, level)
    start = f"No evidence for more than one group ({p_text}):"
    rest = "where one half of the rows would be split, the other half has no gap."
    if p <= level:
        start = f"There may be more than one group ({p_text}), but {type(model).__name__}"
        rest = f"makes no split: {root.reason}."
    elif root.has_way_around:
        rest = "held-out rows have a gap, but other rows connect its two sides around it."
    elif p <= HINT:
        start = f"Not enough evidence for more than one group ({p_text}): held-out rows hint"
        rest = "at a gap that one group could have by chance. More rows are needed to decide."
    return Evidence("p-value", p, f"{start} {rest}", root.p_minimum, level)
