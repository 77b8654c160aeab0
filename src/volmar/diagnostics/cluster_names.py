"""Short names of clusters, from the columns that set them apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from volmar.diagnostics.cluster_description import ClusterDescription, Difference

__all__ = ["NO_NAME", "suggested_names"]

NO_NAME = "no leading column"
# Columns that a name has, and at most where two clusters would have the same name.
N_COLUMNS, MOST_COLUMNS = 2, 4
# Smallest effect that leads: large by Cohen's convention. Two groups whose means are 0.8 standard
# deviations apart overlap by two thirds, so that less would name few of their rows.
LEAST_EFFECT = 0.8
# Further columns have half of the first one's effect at least. Every cluster is compared with all
# others, so that a column which sets apart one of these shows in the rest as well, with less. The
# effect of shares ends at pi, so that larger ones count as 3.
SHARE_OF_FIRST, LARGEST_EFFECT = 0.5, 3.0
# A share of rows at least (or, for the absence of a level, at most) this is said of the cluster.
MOST_ROWS, HARDLY_ANY = 0.5, 0.1
# Letters of a name of a column or a level.
MOST_LETTERS = 28


def suggested_names(description: ClusterDescription) -> dict[Any, str]:
    """Suggest a short name for each cluster, from the columns that set it apart most.

    A name says what most rows of the cluster have in common, against the other clusters: "high
    income, plan = premium". Columns with an effect of at least 0.8, and of half the largest
    effect, lead, those called real first. Clusters that would have the same name get a further
    column, or a number.

    Parameters
    ----------
    description : ClusterDescription
        Of `volmar.diagnostics.describe_clusters`.

    Returns
    -------
    dict of label to str
        A name for each cluster, all different. A cluster between two others is "middle" of the
        column that sets the others apart; "no leading column" where no column leads.

    See Also
    --------
    describe_clusters : What sets each cluster apart, with tests.

    Notes
    -----
    A name is a description of the rows, not a claim: whether the differences would be found again
    in other rows is what `describe_clusters` tests.

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
    for count in range(N_COLUMNS + 1, MOST_COLUMNS + 1):
        # The same columns in another order are the same name.
        taken = [frozenset(parts) for parts in chosen.values()]
        for label, parts in chosen.items():
            if taken.count(frozenset(parts)) > 1 and len(words[label]) >= count:
                chosen[label] = tuple(words[label][:count])
    return _numbered(chosen)


def _leading(description: ClusterDescription, label: Any) -> list[Difference]:
    """Return one large difference a column: real ones first, then by size."""
    every = sorted(description.differences(label), key=lambda one: not one.real)
    first = max((min(abs(one.effect), LARGEST_EFFECT) for one in every), default=0.0)
    least = max(LEAST_EFFECT, SHARE_OF_FIRST * first)
    found: dict[str, Difference] = {}
    for one in every:
        if abs(one.effect) < least:
            continue
        # What rows have says more than what they have not.
        if one.column not in found or (one.effect > 0 > found[one.column].effect):
            found[one.column] = one
    return list(found.values())[:MOST_COLUMNS]


def _words(one: Difference) -> str:
    column, more = _shortened(one.column), one.effect > 0
    if one.kind == "missing":
        if not more:
            return f"{column} known"
        return f"{column} missing" if one.inside >= MOST_ROWS else f"{column} often missing"
    if one.kind == "share":
        level = f"{column} = {_shortened(one.level)}"
        if more:
            return level if one.inside >= MOST_ROWS else f"more {level}"
        return f"not {level}" if one.inside <= HARDLY_ANY else f"fewer {level}"
    low, high = ("early", "late") if one.kind == "date" else ("low", "high")
    return f"{high if more else low} {column}"


def _middle(
    description: ClusterDescription, label: Any, leading: dict[Any, list[Difference]]
) -> str:
    """Name a cluster between two others by the column that they lead in, both ways."""
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
    """Join the parts of each name; number those that are taken."""
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
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…"
