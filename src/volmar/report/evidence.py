"""The evidence for the clusters of a fit, as values and sentences."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from volmar._checks import check_random_state
from volmar._clones import refuse_pairwise, silent_clone
from volmar.evidence import LabelJoin, LabelTestResult, label_test, split_test
from volmar.evidence.labels.label_result import named_pair
from volmar.evidence.splits.split_test import FEWEST_ROWS, UNSETTLED
from volmar.evidence.wording import HINT, p_value_text
from volmar.report.outcome import LEVEL, Evidence, too_few_rows
from volmar.rows import drawn_rows

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
    """Return the evidence for the clusters of a fitted model, or of any labels if it is None.

    With ``n_clusters="auto"`` the splits were tested when they were made, and the evidence is read
    from the tree. For a given number of clusters, two tests on held-out rows are made here:
    whether there is more than one group (`volmar.evidence.split_test`), and which borders between
    the clusters have a gap (`volmar.evidence.label_test`). Of more than 100,000 rows, a random
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
    is_tested = tree is not None and (n < FEWEST_ROWS or np.isfinite(tree.root.p_value))
    if n_clusters == "auto" and is_tested:
        return _from_tree(estimator, n)
    if isinstance(n_clusters, Integral) and n_clusters < 2:
        return []

    return evidence_of_number(
        estimator, rows, given, n_clusters=n_clusters, random_state=random_state, progress=progress
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


# --------------------------------------------------------- evidence for a given number of clusters


# Maximum number of tested rows; more take longer without a better answer.
MAX_ROWS = 100_000
# Maximum number of clusters whose borders are tested; more take longer than the fit.
MAX_CLUSTERS = 50
# Maximum number of clusters that a sentence lists.
MAX_NAMED = 8


def evidence_of_number(
    estimator: Any,
    X: Any,
    labels: NDArray,
    *,
    n_clusters: int | str | None,
    random_state: int | np.random.RandomState | None,
    progress: Progress | None,
) -> list[Evidence]:
    """Return the test of more than one group, and the tests of borders between clusters."""
    n = X.shape[0]
    if n < FEWEST_ROWS:
        return [too_few_rows(n)]
    try:
        if estimator is not None:
            refuse_pairwise(estimator)
    except ValueError as error:
        return [_not_tested("p-value", "The clusters were", error)]
    rng = check_random_state(random_state)
    if n > MAX_ROWS:
        chosen = drawn_rows(n, None, MAX_ROWS, np.random.default_rng(rng.randint(2**31 - 1)))
        X, labels = X[chosen], labels[chosen]
    seeds = rng.randint(2**31 - 1, size=2)
    try:
        tested = _borders(X, labels, int(seeds[0]), progress)
    except (ValueError, TypeError) as error:
        tested = None
        about = [_not_tested("untested", "The borders of the clusters were", error)]
    else:
        about = [] if tested is None else _about_clusters(tested, n_clusters)
    return [_more_than_one(estimator, X, tested, int(seeds[1]), progress), *about]


def _more_than_one(
    estimator: Any, X: Any, borders: LabelTestResult | None, seed: int, progress: Progress | None
) -> Evidence:
    """Test whether there is more than one group, without the cluster labels."""
    done = 0 if borders is None else len(borders.tree)
    is_curved = hasattr(estimator, "_splits_by_hyperplanes") and not (
        estimator._splits_by_hyperplanes()
    )
    try:
        # Test the curved split of the method itself, as with n_clusters="auto".
        splitter = silent_clone(estimator).set_params(n_clusters=2) if is_curved else None
        tell = _after(progress, done, 0)
        found = split_test(X, splitter, alpha=LEVEL, progress=tell, random_state=seed)
    except (ValueError, TypeError) as error:
        return _not_tested("p-value", "The split was", error)
    sentence = str(found)
    k = 0 if borders is None or borders.n_real < len(borders.clusters) else borders.n_real
    if found.is_real and k > 2 and found.disagreement >= UNSETTLED:
        p_text = p_value_text(found.p_value, found.p_minimum, found.alpha)
        sentence = (
            f"There is more than one group ({p_text}): held-out rows have a gap where the other "
            "half of the rows was split. The best split in two is uncertain (fits to the halves "
            f"disagree about {100 * found.disagreement:.0f} % of the rows), but the {k} clusters "
            "do not depend on it."
        )
    return Evidence(
        "p-value",
        float(found.p_value),
        sentence,
        found.p_minimum,
        found.alpha,
        disagreement=float(found.disagreement),
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
            "volmar.evidence.label_test for more."
        )
    return label_test(X, labels, alpha=LEVEL, progress=_after(progress, 0, 1), random_state=seed)


def _about_clusters(tested: LabelTestResult, n_clusters: int | str | None) -> list[Evidence]:
    """Return the number of groups, each join, and the clusters too small to test."""
    joins = [
        Evidence(
            "join",
            float(join.p_value),
            _join_sentence(join),
            join.p_minimum,
            float(join.level),
            join.tested,
        )
        for join in sorted(tested.tree, key=lambda join: join.is_real)
    ]
    found = [_groups(tested, n_clusters), *joins] if len(joins) > 1 else joins
    if tested.untested:
        names = ", ".join(str(label) for label in tested.untested[:MAX_NAMED])
        names += ", ..." if len(tested.untested) > MAX_NAMED else ""
        which = f"Cluster {names} is" if len(tested.untested) == 1 else f"Clusters {names} are"
        found.append(Evidence("untested", None, f"{which} too small to test: fewer than 20 rows."))
    return found


def _groups(tested: LabelTestResult, n_clusters: int | str | None) -> Evidence:
    """Return the number of groups among the clusters, with a sentence."""
    k, n_real = len(tested.clusters), tested.n_real
    n_given = k + len(tested.untested)
    where = "that were requested" if isinstance(n_clusters, Integral) else "that were found"
    together = "both borders" if k == 3 else f"all {k - 1} borders"
    level = f"level {tested.alpha:g} for {together} together"
    if n_real == k:
        worst = max(tested.tree, key=lambda join: join.p_value)
        p_text = p_value_text(worst.p_value, worst.p_minimum)
        largest = "largest " if "=" in p_text else ""
        sentence = (
            f"All {k} {'' if k == n_given else 'tested '}clusters are separated from each other "
            f"by a gap ({largest}{p_text}, {level})."
        )
    elif n_real == 1 and all(join.p_value <= HINT for join in tested.tree):
        sentence = (
            f"Not enough evidence for the {n_given} clusters {where}: held-out rows hint at gaps "
            f"between them, but a single group could show such gaps by chance ({level})."
        )
    elif n_real == 1:
        sentence = (
            f"No evidence for the {n_given} clusters {where}: there is no gap at any border "
            f"between them ({level})."
        )
    else:
        sentence = (
            f"Evidence for {n_real} of the {n_given} clusters {where}: several of them are parts "
            f"of one group ({level})."
        )
    return Evidence("groups", float(n_real), sentence, level=tested.alpha, clusters=tested.groups)


def _join_sentence(join: LabelJoin) -> str:
    names = named_pair(*join.tested)
    if join.is_real:
        return f"{names} are separated by a gap ({join.p_text})."
    parts = "halves" if all(len(side) == 1 for side in join.tested) else "parts"
    if join.p_value <= HINT:
        return (
            f"{names} may be {parts} of one group: not enough evidence for a gap between them "
            f"({join.p_text})."
        )
    return f"{names} are {parts} of one group: no gap between them ({join.p_text})."


def _after(progress: Progress | None, before: int, after: int) -> Progress | None:
    """Return a callback for one of two tests that counts the steps of both."""
    if progress is None:
        return None
    return lambda done, wanted: progress(before + done, before + wanted + after)


def _not_tested(kind: str, what: str, error: Exception) -> Evidence:
    return Evidence(kind, None, f"{what} not tested: {' '.join(str(error).split())}")
