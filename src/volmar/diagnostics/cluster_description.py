"""The description of clusters by their differences: sentences and short names."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar._checks import shortened
from volmar._text import as_percent, counted, data_frame, listed

# Minimum mean Jaccard index. Hennig (2007) calls 0.75 and more stable. On samples of noise in two
# dimensions, 0.75 led to claims in one sample of six, 0.8 in one of twenty.
FOUND_AGAIN = 0.8


class Difference(NamedTuple):
    """One difference between a cluster and the others, with the values of `ClusterDescription`.

    `real` is None, and `evidence` NaN, if differences were not tested.
    """

    column: str
    level: str
    kind: str
    inside: float
    outside: float
    effect: float
    real: bool | None
    evidence: float

    def __str__(self) -> str:
        """Return a short text such as "higher income (+2.1 sd)"."""
        more = self.effect > 0
        shares = f"{as_percent(self.inside)} against {as_percent(self.outside)}"
        if self.kind == "missing":
            return f"{self.column} missing {'more' if more else 'less'} often ({shares})"
        if self.kind == "share":
            return f"{'more' if more else 'fewer'} {self.column} = {self.level} ({shares})"
        size = f"{self.effect:+.1f} sd" if np.isfinite(self.effect) else "no overlap"
        low, high = ("earlier", "later") if self.kind == "date" else ("lower", "higher")
        return f"{high if more else low} {self.column} ({size})"


@dataclass(frozen=True, eq=False)
class ClusterDescription:
    """Sizes, typical rows, and the columns that distinguish each cluster.

    A *feature* is a column of numbers, dates or ranks, a level of a category, or "missing" for a
    column with missing values. Each is compared in each of the k clusters with the other clusters.

    Attributes
    ----------
    clusters : list
        Labels of the clusters, without noise.
    sizes : ndarray of shape (k,)
        Number of rows of each cluster.
    n_noise : int
        Number of rows with the label -1, which are not part of any comparison.
    typical : list of ndarray
        Ids of the rows nearest to the mean of each cluster, nearest first.
    columns, kinds, levels : list of str
        Column, kind ("number", "date", "ordinal", "share" or "missing") and level of each feature.
    orders : dict of str to list of str
        Levels of the ordinal columns from low to high. Their means are positions in this list.
    inside, outside : ndarray of shape (k, p)
        Mean or share of each feature in the cluster and in the other clusters, in the units of the
        table.
    spread : ndarray of shape (p,)
        Standard deviation of each feature.
    effect : ndarray of shape (k, p)
        Difference of the means divided by the pooled standard deviation; for shares Cohen's h, the
        difference of ``2 arcsin(sqrt(share))``. Infinite if neither side varies, NaN if one side
        has no values.
    real : ndarray of bool of shape (k, p) or None
        Whether each difference is significant at the false discovery rate; None if not tested.
    evidence : ndarray of shape (k, p) or None
        P-values of the differences; 1 for clusters that were not found again.
    found_again : ndarray of shape (k,) or None
        Mean Jaccard index of each cluster with its counterparts in subsets of the rows. If it is
        below 0.8, no difference of the cluster counts as real.
    q : float
        The false discovery rate.
    note : str
        Meaning of "real", or the reason why nothing was tested.
    remarks : list of str
        Remarks on columns that were left out or compared in part.
    """

    clusters: list[Any]
    sizes: NDArray
    n_noise: int
    typical: list[NDArray] = field(repr=False)
    columns: list[str] = field(repr=False)
    kinds: list[str] = field(repr=False)
    levels: list[str] = field(repr=False)
    orders: dict[str, list[str]] = field(repr=False)
    inside: NDArray = field(repr=False)
    outside: NDArray = field(repr=False)
    spread: NDArray = field(repr=False)
    effect: NDArray = field(repr=False)
    real: NDArray | None = field(repr=False)
    evidence: NDArray | None = field(repr=False)
    found_again: NDArray | None
    q: float
    note: str
    remarks: list[str] = field(repr=False)

    @property
    def shares(self) -> NDArray:
        """Fraction of all rows, noise included, in each cluster."""
        return self.sizes / (self.sizes.sum() + self.n_noise)

    @property
    def names(self) -> dict[Any, str]:
        """Suggested name of each cluster: what most of its columns have in common."""
        return suggested_names(self)

    @property
    def table(self) -> Any:
        """DataFrame with one row per cluster and feature, largest effects first.

        Its columns are cluster, name, size, share, column, level, kind, inside, outside, effect,
        real and p_value. Requires pandas.
        """
        called = self.names
        rows = [
            (label, called[label], int(size), float(share), *one)
            for label, size, share in zip(self.clusters, self.sizes, self.shares, strict=True)
            for one in self.differences(label)
        ]
        names = ["cluster", "name", "size", "share", *Difference._fields[:-1], "p_value"]
        return data_frame(rows, names, "differences(label) or the arrays of the description")

    def differences(self, label: Any, *, real_only: bool = False) -> list[Difference]:
        """Return the differences of a cluster, largest effects first.

        There is one difference per feature with values on both sides. With `real_only`, only real
        differences are returned; the list is empty if they were not tested.
        """
        i = self._place(label)
        real = None if self.real is None else self.real[i]
        order = np.argsort(-np.abs(self.effect[i]), kind="stable")
        order = order[~np.isnan(self.effect[i, order])]
        if real_only:
            order = order[:0] if real is None else order[real[order]]
        return [
            Difference(
                self.columns[j],
                self.levels[j],
                self.kinds[j],
                float(self.inside[i, j]),
                float(self.outside[i, j]),
                float(self.effect[i, j]),
                None if real is None else bool(real[j]),
                float("nan") if self.evidence is None else float(self.evidence[i, j]),
            )
            for j in order
        ]

    def sentence(self, label: Any) -> str:
        """Describe a cluster (or the noise, -1) in a sentence.

        The sentence has the size, up to three columns (only real differences if they were tested)
        and the most typical row.
        """
        if label == -1 and label not in self.clusters:
            if not self.n_noise:
                raise ValueError(
                    f"label=-1 is noise, but no row is noise. The clusters are {self._known()}."
                )
            share = self.n_noise / (self.sizes.sum() + self.n_noise)
            return f"noise: {counted(self.n_noise, 'row')} ({as_percent(share)}), not compared"
        i = self._place(label)
        parts = [
            f"cluster {label}: {counted(int(self.sizes[i]), 'row')} ({as_percent(self.shares[i])})"
        ]
        if len(self.clusters) > 1:
            parts.append(self._words(label))
        if len(self.typical[i]):
            parts.append(f"typical row: {self.typical[i][0]}")
        return "; ".join(parts)

    def __str__(self) -> str:
        """Return one sentence per cluster, suggested names, and a note on the test."""
        lines = [self.sentence(label) for label in self.clusters]
        lines += [self.sentence(-1)] if self.n_noise else []
        if len(self.clusters) > 1:
            called = "; ".join(f"{label}: {name}" for label, name in self.names.items())
            lines.append(f"Suggested names: {called}.")
        return "\n".join([*lines, self.note, *(f"({remark})" for remark in self.remarks)])

    def in_units(self, offsets: NDArray, scales: NDArray) -> ClusterDescription:
        """Return the description with the means of ``X * scales + offsets``."""
        return replace(
            self,
            inside=self.inside * scales + offsets,
            outside=self.outside * scales + offsets,
            spread=self.spread * np.abs(scales),
        )

    def leading(self, label: Any, count: int = 3) -> list[Difference]:
        """Return the largest differences, one per column: real ones first, then large ones.

        If no difference is real or large, the largest are returned.
        """
        found: dict[str, Difference] = {}
        for one in sorted(self.differences(label), key=lambda one: not one.real):
            if one.effect != 0:
                found.setdefault(one.column, one)
        clear = [one for one in found.values() if one.real or abs(one.effect) >= MIN_EFFECT]
        return (clear or list(found.values()))[:count]

    def was_found_again(self, label: Any) -> bool | None:
        """Return whether the cluster was found again in subsets of the rows; None if untested."""
        if self.found_again is None:
            return None
        again = self.found_again >= FOUND_AGAIN
        # Two clusters are only compared with each other.
        return bool(again.all() if again.size == 2 else again[self._place(label)])

    def _words(self, label: Any) -> str:
        leading = self.leading(label)
        if not leading:
            return "no column differs"
        if self.real is None or not any(one.real for one in leading):
            why = "not tested" if self.real is None else "not confirmed"
            if self.was_found_again(label) is False:
                why += ": not found again in subsets of the rows"
            return f"{', '.join(map(str, leading))} ({why})"
        return ", ".join(f"{one}{'' if one.real else ' (not confirmed)'}" for one in leading)

    def _place(self, label: Any) -> int:
        if label not in self.clusters:
            raise ValueError(
                f"label={label!r} is not a cluster. The clusters are {self._known()}."
            )
        return self.clusters.index(label)

    def _known(self) -> str:
        return listed([repr(one) for one in self.clusters], 10)


# ------------------------------------------------------------------------- short names of clusters


# Number of columns in a name, and its maximum if two clusters would have the same name.
N_COLUMNS, MAX_COLUMNS = 2, 4
# Minimum effect of a column in a name, large by Cohen's convention. Two groups whose means are 0.8
# standard deviations apart overlap by two thirds. A smaller effect would describe few of the rows.
MIN_EFFECT = 0.8


def suggested_names(description: ClusterDescription) -> dict[Any, str]:
    """Suggest a short name for each cluster, from the columns that distinguish it most.

    A name describes the rows of the cluster in comparison with the other clusters, such as "high
    income, plan = premium". It uses columns with an effect of at least 0.8 and of at least half
    the largest effect, real differences first. Clusters that would have the same name get a
    further column or a number.

    A name describes the given rows only. `describe_clusters` tests whether the differences would
    be found again in other rows.
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
    # Further columns need at least half of the largest effect. Every cluster is compared with all
    # others, so that a column that distinguishes another cluster has a smaller effect here, too.
    # The effect of shares is at most pi; larger effects count as 3.
    minimum = max(MIN_EFFECT, *(min(abs(one.effect), 3.0) / 2 for one in every), 0.0)
    found: dict[str, Difference] = {}
    for one in every:
        if abs(one.effect) < minimum:
            continue
        # The presence of a level is more informative than the absence of another.
        if one.column not in found or (one.effect > 0 > found[one.column].effect):
            found[one.column] = one
    return list(found.values())[:MAX_COLUMNS]


def _words(one: Difference) -> str:
    column, more = shortened(one.column, 28), one.effect > 0
    if one.kind == "missing":
        if not more:
            return f"{column} known"
        return f"{column} missing" if one.inside >= 0.5 else f"{column} often missing"
    if one.kind == "share":
        level = f"{column} = {shortened(one.level, 28)}"
        if more:
            return level if one.inside >= 0.5 else f"more {level}"
        return f"not {level}" if one.inside <= 0.1 else f"fewer {level}"
    low, high = ("early", "late") if one.kind == "date" else ("low", "high")
    return f"{high if more else low} {column}"


def _middle(
    description: ClusterDescription, label: Any, leading: dict[Any, list[Difference]]
) -> str:
    """Name a cluster between two others by a column in which these are high and low."""
    i = description.clusters.index(label)
    leaders = [one for found in leading.values() for one in found]
    for j in np.argsort(-np.nanmax(np.abs(description.effect), axis=0, initial=0), kind="stable"):
        kind, column = description.kinds[j], description.columns[j]
        signs = {one.effect > 0 for one in leaders if one.column == column and one.kind == kind}
        if kind in ("number", "ordinal", "date") and len(signs) == 2:
            means = description.inside[:, j]
            if np.nanmin(means) < means[i] < np.nanmax(means):
                return f"middle {shortened(column, 28)}"
    return "no leading column"


def _numbered(chosen: dict[Any, tuple[str, ...]]) -> dict[Any, str]:
    """Join the parts of each name, and number duplicates."""
    found: dict[Any, str] = {}
    for label, parts in chosen.items():
        number = 1 + sum(set(parts) == set(chosen[other]) for other in found)
        name = ", ".join(parts)
        found[label] = unique = name if number == 1 else f"{name} ({number})"
        while list(found.values()).count(unique) > 1:  # a level may end in a number in brackets
            number += 1
            found[label] = unique = f"{name} ({number})"
    return found
