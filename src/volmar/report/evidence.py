"""The evidence for the clusters of a fit, as values and sentences."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from volmar._checks import check_random_state
from volmar._clones import refuse_pairwise
from volmar.evidence import LabelTestResult, label_test, split_test
from volmar.evidence.split_test import FEWEST_ROWS
from volmar.report.outcome import LEVEL, Evidence
from volmar.report.verdict import (
    groups_sentence,
    join_sentence,
    split_sentence,
    tree_sentence,
    unsplit_sentence,
    untested_sentence,
)
from volmar.rows.anywhere import drawn_rows

Progress = Callable[[int, int], None]
# Maximum number of tested rows; more take longer without a better answer.
MAX_ROWS = 100_000
# Maximum number of clusters whose borders are tested; more take longer than the fit.
MAX_CLUSTERS = 50


def evidence_of(
    model: Any,
    X: ArrayLike,
    labels: ArrayLike,
    *,
    n_clusters: int | str | None,
    random_state: int | np.random.RandomState | None = 0,
    progress: Progress | None = None,
) -> list[Evidence]:
    """Return the evidence for the clusters of a fitted model, or of any labels if it is None.

    With ``n_clusters="auto"`` the splits were tested when they were made, and the evidence is read
    from the tree. For a given number of clusters, two tests are made here:
    whether there is more than one group (`volmar.split_test`), and which borders between
    the clusters have a gap (`volmar.label_test`). Of more than 100,000 rows, a random
    sample is tested.

    The list has the test of more than one group, then the number of groups among the clusters,
    then each join of clusters. It is empty if one cluster was requested. If a test cannot be made,
    a sentence gives the reason.
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
    if isinstance(n_clusters, Integral) and n_clusters < 2:
        return []
    if n < FEWEST_ROWS:
        return [Evidence("p-value", None, f"{n} rows are too few to test a split.")]
    if n_clusters == "auto" and tree is not None and np.isfinite(tree.root.p_value):
        return _from_tree(estimator)
    try:
        if estimator is not None:
            refuse_pairwise(estimator)
    except ValueError as error:
        return [_not_tested("p-value", "The clusters were", error)]
    rng = check_random_state(random_state)
    if n > MAX_ROWS:
        chosen = drawn_rows(n, None, MAX_ROWS, np.random.default_rng(rng.randint(2**31 - 1)))
        rows, given = rows[chosen], given[chosen]
    seeds = rng.randint(2**31 - 1, size=2)
    try:
        tested = _borders(rows, given, int(seeds[0]), progress)
    except (ValueError, TypeError) as error:
        tested = None
        about = [_not_tested("untested", "The borders of the clusters were", error)]
    else:
        about = [] if tested is None else _about_clusters(tested, n_clusters)
    return [_more_than_one(rows, tested, int(seeds[1]), progress), *about]


def _from_tree(model: Any) -> list[Evidence]:
    """Return the evidence of splits that were tested when they were made."""
    tree = model.tree_
    splits = tree.splits()
    if not splits:
        return [_of_node(tree.root, unsplit_sentence(model))]
    worst = max(splits, key=lambda node: node.p_value)
    return [_of_node(worst, tree_sentence(worst, len(splits)))]


def _of_node(node: Any, sentence: str) -> Evidence:
    return Evidence(
        "p-value",
        float(node.p_value),
        sentence,
        float(node.level),
        effect=None if np.isnan(node.effect) else float(node.effect),
        repeats=None if np.isnan(node.repeats) else float(node.repeats),
    )


def _more_than_one(
    X: Any, borders: LabelTestResult | None, seed: int, progress: Progress | None
) -> Evidence:
    """Test whether there is more than one group, without the cluster labels."""
    done = 0 if borders is None else len(borders.tree)
    try:
        tell = _after(progress, done, 0)
        found = split_test(X, alpha=LEVEL, progress=tell, random_state=seed)
    except (ValueError, TypeError) as error:
        return _not_tested("p-value", "The split was", error)
    k = 0 if borders is None or borders.n_real < len(borders.clusters) else borders.n_real
    return Evidence(
        "p-value",
        float(found.p_value),
        split_sentence(found, k),
        level=found.alpha,
        effect=found.effect,
        repeats=None if np.isnan(found.repeats) else found.repeats,
    )


def _borders(
    X: Any, labels: NDArray, seed: int, progress: Progress | None
) -> LabelTestResult | None:
    """Test the borders between given clusters; return None for fewer than two."""
    clusters = {str(label) for label in np.unique(labels).tolist()} - {"-1"}
    if len(clusters) < 2:
        return None
    if len(clusters) > MAX_CLUSTERS:
        raise ValueError(
            f"there are {len(clusters)} clusters, and at most {MAX_CLUSTERS} are tested. Use "
            "volmar.label_test for more."
        )
    return label_test(X, labels, alpha=LEVEL, progress=_after(progress, 0, 1), random_state=seed)


def _about_clusters(tested: LabelTestResult, n_clusters: int | str | None) -> list[Evidence]:
    """Return the number of groups, each join, and the clusters too small to test."""
    joins = [
        Evidence(
            "join",
            float(join.p_value),
            join_sentence(join),
            level=float(join.level),
            clusters=join.tested,
            effect=join.effect,
        )
        for join in sorted(tested.tree, key=lambda join: join.is_real)
    ]
    found = joins
    if len(joins) > 1:
        sentence = groups_sentence(tested, is_asked=isinstance(n_clusters, Integral))
        n_real, groups = float(tested.n_real), tested.groups
        found = [Evidence("groups", n_real, sentence, level=tested.alpha, clusters=groups), *joins]
    if tested.untested:
        found.append(Evidence("untested", None, untested_sentence(tested.untested)))
    return found


def _after(progress: Progress | None, before: int, after: int) -> Progress | None:
    """Return a callback for one of two tests that counts the steps of both."""
    if progress is None:
        return None
    return lambda done, wanted: progress(before + done, before + wanted + after)


def _not_tested(kind: str, what: str, error: Exception) -> Evidence:
    return Evidence(kind, None, f"{what} not tested: {' '.join(str(error).split())}")
