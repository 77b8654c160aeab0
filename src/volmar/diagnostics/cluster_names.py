"""Short names of clusters, from the columns that distinguish them."""

from __future__ import annotations

from typing import Any

import numpy as np

from volmar.diagnostics.cluster_description import ClusterDescription, Difference

__all__ = ["NO_NAME", "suggested_names"]

NO_NAME = "no leading column"
# Number of columns in a name, and its maximum if two clusters would have the same name.
N_COLUMNS, MAX_COLUMNS = 2, 4
# Minimum effect of a column in a name, large by Cohen's convention. Two groups whose means are 0.8
# standard deviations apart overlap by two thirds. A smaller effect would describe few of the rows.
MIN_EFFECT = 0.8
# Further columns need at least half of the largest effect. Every cluster is compared with all
# others, so that a column that distinguishes another cluster has a smaller effect here, too. The
# effect of shares is at most pi; larger effects count as 3.
SHARE_OF_FIRST, LARGEST_EFFECT = 0.5, 3.0
# A level is named without "more" if at least this fraction of the rows has it, and its absence
# without "fewer" if at most the second fraction has it.
MAJORITY, RARE = 0.5, 0.1
# Maximum number of letters of a column or a level in a name.
MAX_LETTERS = 28


def suggested_names(description: ClusterDescription) -> dict[Any, str]:
    """Suggest a short name for each cluster, from the columns that distinguish it most.

    A name describes the rows of the cluster in comparison with the other clusters, such as "high
    income, plan = premium". It uses columns with an effect of at least 0.8 and of at least half
    the largest effect, real differences first. Clusters that would have the same name get a
    further column or a number.

    Parameters
    ----------
    description : ClusterDescription
        Result of `volmar.diagnostics.describe_clusters`.

    Returns
    -------
    dict of label to str
        A distinct name for each cluster. A cluster between two others is called "middle" of the
        column that distinguishes the others. If no column has a sufficient effect, the name is
        "no leading column".

    See Also
    --------
    describe_clusters : Differences between clusters, with tests.

    Notes
    -----
    A name describes the given rows only. `describe_clusters` tests whether the differences would
    be found again in other rows.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.diagnostics import describe_clusters, suggested_names
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 3))
    >>> X[:100, 0] += 6.0
    >>> X[100:200, 1] -= 5.0
    >>> labels = np.repeat([0, 1, 2], 100)
    >>> suggested_names(describe_clusters(X, labels, feature_names=["income", "age", "height"]))
    {0: 'high income', 1: 'low age', 2: 'low income, high age'}
    """
    leading = {label: _leading(description, label) for label in description.clusters}
    words = {label: [_words(one) for one in found] for label, found in leading.items()}
    chosen = {label: tuple(every[:N_COLUMNS]) for label, every in words.items()}
    for label, every in words.items():
        if not every:
            chosen[label] = (_middle(description, label, leading),)
    for count in range(N_COLUMNS + 1, MAX_COLUMNS + 1):
        # Names with the same columns in another order count as equal.
        taken = [frozenset(parts) for parts in chosen.values()]
        for label, parts in chosen.items():
            if taken.count(frozenset(parts)) > 1 and len(words[label]) >= count:
                chosen[label] = tuple(words[label][:count])
    return _numbered(chosen)


def _leading(description: ClusterDescription, label: Any) -> list[Difference]:
    """Return the large differences, one per column: real ones first, then by size."""
    every = sorted(description.differences(label), key=lambda one: not one.real)
    first = max((min(abs(one.effect), LARGEST_EFFECT) for one in every), default=0.0)
    minimum = max(MIN_EFFECT, SHARE_OF_FIRST * first)
    found: dict[str, Difference] = {}
    for one in every:
        if abs(one.effect) < minimum:
            continue
        # The presence of a level is more informative than the absence of another.
        if one.column not in found or (one.effect > 0 > found[one.column].effect):
            found[one.column] = one
    return list(found.values())[:MAX_COLUMNS]


def _words(one: Difference) -> str:
    column, more = _shortened(one.column), one.effect > 0
    if one.kind == "missing":
        if not more:
            return f"{column} known"
        return f"{column} missing" if one.inside >= MAJORITY else f"{column} often missing"
    if one.kind == "share":
        level = f"{column} = {_shortened(one.level)}"
        if more:
            return level if one.inside >= MAJORITY else f"more {level}"
        return f"not {level}" if one.inside <= RARE else f"fewer {level}"
    low, high = ("early", "late") if one.kind == "date" else ("low", "high")
    return f"{high if more else low} {column}"


def _middle(
    description: ClusterDescription, label: Any, leading: dict[Any, list[Difference]]
) -> str:
    """Name a cluster between two others by a column in which these are high and low."""
    i = description.clusters.index(label)
    for j in np.argsort(-np.nanmax(np.abs(description.effect), axis=0, initial=0), kind="stable"):
        kind, column = description.kinds[j], description.columns[j]
        signs = {
            one.effect > 0
            for found in leading.values()
            for one in found
            if one.column == column and one.kind == kind
        }
        if kind in ("number", "ordinal", "date") and len(signs) == 2:
            means = description.inside[:, j]
            if np.nanmin(means) < means[i] < np.nanmax(means):
                return f"middle {_shortened(column)}"
    return NO_NAME


def _numbered(chosen: dict[Any, tuple[str, ...]]) -> dict[Any, str]:
    """Join the parts of each name, and number duplicates."""
    found: dict[Any, str] = {}
    seen: dict[frozenset[str], int] = {}
    for label, parts in chosen.items():
        name = ", ".join(parts)
        key = frozenset(parts)
        seen[key] = seen.get(key, 0) + 1
        unique = name if seen[key] == 1 else f"{name} ({seen[key]})"
        while unique in found.values():  # a level may end in a number in brackets
            seen[key] += 1
            unique = f"{name} ({seen[key]})"
        found[label] = unique
    return found


def _shortened(text: str) -> str:
    text = " ".join(str(text).split())
    return text if len(text) <= MAX_LETTERS else text[: MAX_LETTERS - 1] + "…"
