"""The report of a comparison of two tables under one model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from volmar._notebook import html_card

__all__ = [
    "CategoryChange",
    "ColumnShift",
    "DistanceChange",
    "DriftReport",
    "MissingChange",
    "ShareChange",
]

# Clusters, columns and values of a column that are printed.
MOST_SHOWN = 5
# Head of the table of clusters.
HEAD = "cluster  rows before     now   share before     now  distance"


@dataclass(frozen=True)
class ShareChange:
    """Share of a cluster before and now; `p_value` is corrected for the number of clusters."""

    cluster: int
    n_old: int
    n_new: int
    old: float
    new: float
    p_value: float


@dataclass(frozen=True)
class DistanceChange:
    """Median distance of the rows of a cluster from its centre, before and now.

    A distance is the root of the mean square over the columns, in units of their standard
    deviations within the old clusters. `p_value` is corrected for the number of clusters.
    """

    cluster: int
    old: float
    new: float
    p_value: float


@dataclass(frozen=True)
class ColumnShift:
    """How far a column has moved within clusters.

    `shift` is the change of its mean in `cluster`, where it is clearest, in units of its standard
    deviation within the old clusters. `p_value` is that of all clusters together, corrected for
    the number of columns.
    """

    column: str
    shift: float
    cluster: int
    p_value: float


@dataclass(frozen=True)
class CategoryChange:
    """Change of a column of categories.

    `value` is the one whose share has changed most, from `old` to `new`; `new_values` are values
    that the old table did not have, the most frequent first, and `n_new_values` the rows with one
    of them. `p_value` is corrected for the number of columns.
    """

    column: str
    value: str
    old: float
    new: float
    p_value: float
    new_values: tuple[str, ...] = ()
    n_new_values: int = 0


@dataclass(frozen=True)
class MissingChange:
    """Share of the rows without a value in a column, before and now; `p_value` as above."""

    column: str
    old: float
    new: float
    p_value: float


@dataclass(frozen=True, repr=False)
class DriftReport:
    """What has changed between an old and a new table under one model.

    The kinds of changes (shares, distances, columns, categories, missing values) share the level
    `alpha`, and within each kind p-values are corrected by Holm's rule, so that tables of one
    source give any alarm with a probability of about `alpha` at most.

    Attributes
    ----------
    n_old, n_new : int
        Rows with a cluster.
    n_left_out : int
        Rows of the new table without one, for missing values.
    shares : list of ShareChange
        One for each cluster.
    shares_p_value : float
        p-value of the chi-squared test that the shares are the same.
    distances : list of DistanceChange
        One for each cluster.
    columns : list of ColumnShift
        One for each column that could be compared, the smallest p-value first.
    categories : list of CategoryChange
        One for each column of categories, the smallest p-value first.
    missing : list of MissingChange
        One for each column that has missing values in one of the tables.
    alpha : float
        Level.
    notes : list of str
        What could not be compared.
    """

    n_old: int
    n_new: int
    n_left_out: int
    shares: list[ShareChange]
    shares_p_value: float
    distances: list[DistanceChange]
    columns: list[ColumnShift]
    categories: list[CategoryChange]
    missing: list[MissingChange]
    alpha: float
    notes: list[str] = field(default_factory=list)

    @property
    def level(self) -> float:
        """Level of each kind of change: `alpha` over the number of kinds that were tested."""
        return self.alpha / max(len(self._smallest), 1)

    @property
    def p_value(self) -> float:
        """Probability of a change as clear as the clearest one in tables of one source."""
        smallest = self._smallest
        return min(1.0, len(smallest) * min(smallest, default=1.0))

    @property
    def has_drifted(self) -> bool:
        """Whether anything has changed at the level `alpha`."""
        return self.p_value <= self.alpha

    @property
    def _smallest(self) -> list[float]:
        """The smallest p-value of each kind of change."""
        kinds: Sequence[Sequence[Any]] = (
            self.distances,
            self.columns,
            self.categories,
            self.missing,
        )
        found = [self.shares_p_value]
        found += [
            float(np.nanmin(values))
            for kind in kinds
            if np.isfinite(values := np.array([one.p_value for one in kind])).any()
        ]
        return [p for p in found if np.isfinite(p)]

    def changed(self, kind: str) -> list[Any]:
        """Return the changes of a kind that are significant.

        Parameters
        ----------
        kind : {"shares", "distances", "columns", "categories", "missing"}
            The attribute that holds them.
        """
        if kind == "shares" and not self.shares_p_value <= self.level:
            return []
        return [one for one in getattr(self, kind) if one.p_value <= self.level]

    @property
    def sentences(self) -> list[str]:
        """What has changed, a sentence each."""
        first = f"{self.n_new:,} new rows against {self.n_old:,} old ones"
        if self.n_left_out:
            first += f" ({self.n_left_out:,} new rows were left out for missing values)"
        if not self.has_drifted:
            return [f"{first}: no change at the level {self.alpha:g} (p = {self.p_value:.2g})."]
        found = [f"{first}: the data have changed (p = {self.p_value:.2g})."]
        found += _listed(
            f"cluster {one.cluster} has {one.new:.1%} of the rows, {one.old:.1%} before"
            for one in self.changed("shares")
        )
        if self.shares_p_value <= self.level and not self.changed("shares"):
            found.append(
                f"The shares of the clusters have changed (p = {self.shares_p_value:.2g})."
            )
        found += _listed(
            f"rows of cluster {one.cluster} are {one.new:.2f} from its centre in the median, "
            f"{one.old:.2f} before"
            for one in self.changed("distances")
        )
        found += _listed(
            f"column {one.column} has moved by {one.shift:+.2f} standard deviations in cluster "
            f"{one.cluster} (p = {one.p_value:.2g})"
            for one in self.changed("columns")
        )
        found += _listed(_category_words(one) for one in self.changed("categories"))
        found += _listed(
            f"column {one.column} is missing in {one.new:.1%} of the rows, {one.old:.1%} before"
            for one in self.changed("missing")
        )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, which JSON can hold; None for undefined numbers."""
        kinds = ("shares", "distances", "columns", "categories", "missing")
        return {
            "n_old": self.n_old,
            "n_new": self.n_new,
            "n_left_out": self.n_left_out,
            "alpha": self.alpha,
            "level": self.level,
            "p_value": self.p_value,
            "has_drifted": self.has_drifted,
            "shares_p_value": _plain(self.shares_p_value),
            **{kind: [_plain(asdict(one)) for one in getattr(self, kind)] for kind in kinds},
            "notes": list(self.notes),
            "sentences": self.sentences,
        }

    def __str__(self) -> str:
        """Return the sentences, a line each, and a table of the clusters."""
        lines = [
            *self.sentences,
            "",
            "cluster  rows before     now   share before     now  distance",
        ]
        for share, distance in zip(self.shares, self.distances, strict=True):
            lines.append(
                f"{share.cluster:>7} {share.n_old:>12,} {share.n_new:>7,} {share.old:>14.1%} "
                f"{share.new:>7.1%}  {distance.old:.2f} → {distance.new:.2f}"
            )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        """Name the p-value; ``print`` says it in words."""
        return (
            f"DriftReport(n_new={self.n_new}, p_value={self.p_value:.2g}, "
            f"has_drifted={self.has_drifted})"
        )

    def _repr_html_(self) -> str:
        """Show the sentences, and the clusters, in a notebook."""
        header = ["Cluster", "Rows before", "Rows now", "Share before", "Share now", "Distance"]
        rows: list[list[str | int]] = [
            [
                f"cluster {one.cluster}",
                one.n_old,
                one.n_new,
                f"{one.old:.1%}",
                f"{one.new:.1%}",
                f"{distance.old:.2f} → {distance.new:.2f}",
            ]
            for one, distance in zip(self.shares, self.distances, strict=True)
        ]
        return html_card("Drift", [*self.sentences, *self.notes], header, rows)


# ---------------------------------------------------------------------- words


def _listed(lines: Iterable[str]) -> list[str]:
    """Return sentences, the first few, and the number of the others."""
    found = [line[0].upper() + line[1:] + "." for line in lines]
    n_more = len(found) - MOST_SHOWN
    return found if n_more <= 0 else [*found[:MOST_SHOWN], f"... and {n_more} more like this."]


def _category_words(one: CategoryChange) -> str:
    text = (
        f"column {one.column} is {one.value!r} in {one.new:.1%} of the rows, {one.old:.1%} before"
    )
    if one.n_new_values:
        shown = ", ".join(repr(value) for value in one.new_values[:MOST_SHOWN])
        text += f"; {one.n_new_values:,} rows have values that are new ({shown})"
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return None if isinstance(value, float) and not np.isfinite(value) else value
