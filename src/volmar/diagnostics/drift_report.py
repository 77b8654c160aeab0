"""Report on the drift between two tables under one model."""

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

# Maximum number of clusters, of columns, and of values of a column that are printed.
MAX_SHOWN = 5
# Header of the table of clusters.
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

    A distance is the root mean square over the columns, in units of their standard deviations
    within the old clusters; it is NaN without rows. `p_value` is corrected for the number of
    clusters.
    """

    cluster: int
    old: float
    new: float
    p_value: float


@dataclass(frozen=True)
class ColumnShift:
    """Shift of a column within clusters.

    `shift` is the change of its mean in `cluster`, the cluster with the most significant change,
    in units of its standard deviation within the old clusters. `p_value` is for all clusters
    together, corrected for the number of columns.
    """

    column: str
    shift: float
    cluster: int
    p_value: float


@dataclass(frozen=True)
class CategoryChange:
    """Change of a categorical column.

    `value` is the value with the largest change of its share, from `old` to `new`. `new_values`
    are values that do not occur in the old table, the most frequent first, and `n_new_values` is
    the number of rows with such a value. `p_value` is corrected for the number of columns.
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
    """Fraction of missing values in a column before and now.

    `p_value` is corrected for the number of columns.
    """

    column: str
    old: float
    new: float
    p_value: float


@dataclass(frozen=True, repr=False)
class DriftReport:
    """Changes between an old and a new table under one model.

    The level `alpha` is divided among the kinds of changes (shares, distances, columns,
    categories, missing values), and within each kind p-values are corrected by Holm's method. The
    probability of any false alarm for two tables from the same distribution is therefore at most
    about `alpha`.

    Attributes
    ----------
    n_old, n_new : int
        Number of rows with a cluster in the old and the new table.
    n_left_out : int
        Number of rows of the new table without a cluster, because of missing values.
    shares : list of ShareChange
        Change of the share of each cluster.
    shares_p_value : float
        P-value of the test that the shares are equal; NaN for a single cluster.
    distances : list of DistanceChange
        Change of the distances in each cluster.
    columns : list of ColumnShift
        Shift of each column that could be compared, in ascending order of p-value.
    categories : list of CategoryChange
        Change of each categorical column, in ascending order of p-value.
    missing : list of MissingChange
        Change of each column with missing values in one of the tables.
    alpha : float
        Significance level.
    notes : list of str
        Parts that could not be compared.
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
        """Level of each kind of change: `alpha` divided by the number of tested kinds."""
        return self.alpha / max(len(self._smallest), 1)

    @property
    def p_value(self) -> float:
        """Corrected p-value of the most significant change; 1 if nothing could be tested."""
        smallest = self._smallest
        return min(1.0, max(len(smallest), 1) * min(smallest, default=1.0))

    @property
    def has_drifted(self) -> bool:
        """Whether anything has changed at the level `alpha`."""
        return self.p_value <= self.alpha

    @property
    def _smallest(self) -> list[float]:
        """Smallest p-value of each kind of change."""
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
        """Return the significant changes of one kind.

        Parameters
        ----------
        kind : {"shares", "distances", "columns", "categories", "missing"}
            Attribute that holds the changes.
        """
        if kind == "shares" and not self.shares_p_value <= self.level:
            return []
        return [one for one in getattr(self, kind) if one.p_value <= self.level]

    @property
    def sentences(self) -> list[str]:
        """The significant changes, one sentence per change."""
        first = f"{self.n_new:,} new rows compared with {self.n_old:,} old rows"
        if self.n_left_out:
            first += f" ({self.n_left_out:,} new rows left out because of missing values)"
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
            f"the median distance of rows of cluster {one.cluster} from its centre is "
            f"{one.new:.2f}, {one.old:.2f} before"
            for one in self.changed("distances")
        )
        found += _listed(
            f"the mean of column {one.column} has changed by {one.shift:+.2f} standard deviations "
            f"in cluster {one.cluster} (p = {one.p_value:.2g})"
            for one in self.changed("columns")
        )
        found += _listed(_category_words(one) for one in self.changed("categories"))
        found += _listed(
            f"column {one.column} is missing in {one.new:.1%} of the rows, {one.old:.1%} before"
            for one in self.changed("missing")
        )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dict that can be stored as JSON; None for NaN and infinity."""
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
        """Return the sentences, one per line, and a table of the clusters."""
        lines = [
            *self.sentences,
            "",
            "cluster  rows before     now   share before     now  distance",
        ]
        for share, distance in zip(self.shares, self.distances, strict=True):
            lines.append(
                f"{share.cluster:>7} {share.n_old:>12,} {share.n_new:>7,} {share.old:>14.1%} "
                f"{share.new:>7.1%}  {as_distance(distance.old)} → {as_distance(distance.new)}"
            )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        """Return the p-value and the decision; ``print`` shows the changes."""
        return (
            f"DriftReport(n_new={self.n_new}, p_value={self.p_value:.2g}, "
            f"has_drifted={self.has_drifted})"
        )

    def _repr_html_(self) -> str:
        """Show the sentences and a table of the clusters in a notebook."""
        header = ["Cluster", "Rows before", "Rows now", "Share before", "Share now", "Distance"]
        rows: list[list[str | int]] = [
            [
                f"cluster {one.cluster}",
                one.n_old,
                one.n_new,
                f"{one.old:.1%}",
                f"{one.new:.1%}",
                f"{as_distance(distance.old)} → {as_distance(distance.new)}",
            ]
            for one, distance in zip(self.shares, self.distances, strict=True)
        ]
        return html_card("Drift", [*self.sentences, *self.notes], header, rows)


# ---------------------------------------------------------------------- text


def as_distance(value: float) -> str:
    """Return the text of a median distance; "-" for a cluster without rows."""
    return "-" if np.isnan(value) else f"{value:.2f}"


def _listed(lines: Iterable[str]) -> list[str]:
    """Return the first few lines as sentences, and the number of the others."""
    found = [line[0].upper() + line[1:] + "." for line in lines]
    n_more = len(found) - MAX_SHOWN
    return found if n_more <= 0 else [*found[:MAX_SHOWN], f"... and {n_more} more like this."]


def _category_words(one: CategoryChange) -> str:
    text = (
        f"column {one.column} is {one.value!r} in {one.new:.1%} of the rows, {one.old:.1%} before"
    )
    if one.n_new_values:
        shown = ", ".join(repr(value) for value in one.new_values[:MAX_SHOWN])
        text += f"; {one.n_new_values:,} rows have new values ({shown})"
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return None if isinstance(value, float) and not np.isfinite(value) else value
