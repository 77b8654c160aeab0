"""Tests for drift between two tables under one fitted model, and their report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from volmar._checks import check_number
from volmar._input import check_matrix
from volmar._notebook import html_card
from volmar.diagnostics.drift_summary import CategoryCounts, DriftSummary

# Maximum number of clusters, of columns, and of values of a column that are printed.
MAX_SHOWN = 5
KINDS = ("shares", "distances", "columns", "categories", "missing")


# The p-value of each change is corrected for the number of clusters or columns.


class ShareChange(NamedTuple):
    """Share of a cluster before and now."""

    cluster: int
    n_old: int
    n_new: int
    old: float
    new: float
    p_value: float


class DistanceChange(NamedTuple):
    """Median distance of the rows of a cluster from its centre, before and now, NaN without rows.

    A distance is the root mean square over the columns, in units of their standard deviations
    within the old clusters.
    """

    cluster: int
    old: float
    new: float
    p_value: float


class ColumnShift(NamedTuple):
    """Change of the mean of a column in `cluster`, where it is most significant.

    It is in units of the standard deviation within the old clusters. `p_value` is for all clusters
    together.
    """

    column: str
    shift: float
    cluster: int
    p_value: float


class CategoryChange(NamedTuple):
    """Largest change of the share of a value of a column.

    `new_values` do not occur in the old table, the most frequent first; `n_new_values` is their
    number of rows.
    """

    column: str
    value: str
    old: float
    new: float
    p_value: float
    new_values: tuple[str, ...] = ()
    n_new_values: int = 0


class MissingChange(NamedTuple):
    """Fraction of missing values in a column before and now."""

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
        found = [self.shares_p_value]
        for kind in KINDS[1:]:
            known = [one.p_value for one in getattr(self, kind) if np.isfinite(one.p_value)]
            found.append(min(known, default=np.nan))
        return [float(p) for p in found if np.isfinite(p)]

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
        return {
            "n_old": self.n_old,
            "n_new": self.n_new,
            "n_left_out": self.n_left_out,
            "alpha": self.alpha,
            "level": self.level,
            "p_value": self.p_value,
            "has_drifted": self.has_drifted,
            "shares_p_value": plain(self.shares_p_value),
            **{kind: [plain(one._asdict()) for one in getattr(self, kind)] for kind in KINDS},
            "notes": list(self.notes),
            "sentences": self.sentences,
        }

    def __str__(self) -> str:
        """Return the sentences, one per line, and a table of the clusters."""
        head = "cluster  rows before     now   share before     now  distance"
        lines = [*self.sentences, "", head]
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


# ------------------------------------------------------------------------------ text


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


def plain(value: Any) -> Any:
    """Return a value for JSON: None for NaN and infinity, and the repr of other objects."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(part) for part in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else repr(value)


# -------------------------------------------------------------- tests for drift between two tables


# Minimum number of rows of a cluster, in both tables, for a comparison of its columns, and minimum
# expected count of a chi-squared test; smaller counts are merged before.
MIN_ROWS = 5


def drift(model: Any, X_new: Any, X_old: Any = None, *, alpha: float = 0.05) -> DriftReport:
    """Compare new rows with old rows under a fitted model.

    The comparison covers the shares of the clusters, the distances of rows from their cluster
    centres, and the mean of each column within clusters. For tables it also covers categories and
    missing values.

    Parameters
    ----------
    model : estimator
        A fitted clusterer with `predict`, or a `TableClusterer`.
    X_new : array of shape (n_samples, n_features) or table
        New rows, in the form that `predict` expects.
    X_old : array of shape (n_samples, n_features) or table, optional
        Rows to compare with, such as those of the fit. Not required for a `TableClusterer`, which
        keeps a summary of its table.
    alpha : float, default=0.05
        Significance level: the approximate maximum probability that rows from the same
        distribution are reported as changed. The tests ignore that the model was fitted to the old
        rows. These are a little closer to their centres than other rows, which matters with few
        rows and many columns.

    Returns
    -------
    DriftReport

    Notes
    -----
    The shares of all clusters, and categories, are compared by chi-squared tests, in which rare
    values are merged, or by Fisher's exact test if there are too few rows. The share of a single
    cluster, missing values, and the shares of distances below the deciles of the old distances are
    compared by Fisher's exact test. A column is compared in each cluster with at least 5 rows in
    both tables, by the larger p-value of Welch's and Student's t tests; the test statistic is the
    sum of the squared normal quantiles of these p-values. Memory is O(k d) in addition to the
    rows.

    Examples
    --------
    >>> from volmar import MSPC
    >>> from volmar.datasets import make_blobs
    >>> from volmar.diagnostics import drift
    >>> X, _ = make_blobs(600, random_state=0)
    >>> model = MSPC(random_state=0).fit(X[:300])
    >>> drift(model, X[300:], X[:300]).has_drifted
    False
    >>> moved = drift(model, X[300:] + [0.0, 1.0], X[:300])
    >>> moved.changed("columns")[0].column
    'x1'
    """
    check_number("alpha", alpha, low=0.0, high=0.5, open_low=True)
    if hasattr(model, "summarize_drift"):
        old = model.drift_summary_ if X_old is None else model.summarize_drift(X_old, None)
        return compare_summaries(old, model.summarize_drift(X_new, old), alpha=alpha)
    if X_old is None:
        raise ValueError(
            f"X_old=None requires a model that keeps a summary of its rows, and "
            f"{type(model).__name__} does not. Pass X_old, such as the rows of the fit, or use "
            "TableClusterer."
        )
    names = [str(name) for name in _names(model, X_new)]
    old_rows, new_rows = check_matrix(X_old), check_matrix(X_new)
    for rows, name in ((old_rows, "X_old"), (new_rows, "X_new")):
        if rows.shape[0] < 1:
            raise ValueError(f"{name} has no rows. Pass at least one row.")
    old_labels, new_labels = (np.asarray(model.predict(X)) for X in (X_old, X_new))
    k = int(max(old_labels.max(initial=0), new_labels.max(initial=0))) + 1
    old = DriftSummary.of_rows(old_rows, old_labels, k, names)
    new = DriftSummary.of_rows(new_rows, new_labels, k, names, reference=old)
    return compare_summaries(old, new, alpha=alpha)


def _names(model: Any, X: Any) -> Iterable[Any]:
    known = getattr(model, "feature_names_in_", getattr(X, "columns", None))
    return known if known is not None else [f"x{j}" for j in range(np.shape(X)[1])]


# ------------------------------------------------------------------------------ tests


def compare_summaries(
    old: DriftSummary, new: DriftSummary, *, alpha: float = 0.05, notes: Iterable[str] = ()
) -> DriftReport:
    """Return the report of a summary that was made with the old one as its reference."""
    if old.n_rows < 1 or new.n_rows < 1:
        raise ValueError(
            "a table without rows in clusters cannot be compared. Pass a table with such rows."
        )
    remarks = list(notes)
    gone = [name for name in old.categories if name not in new.categories]
    if gone:
        remarks.append(f"columns missing in the new table: {', '.join(gone)}")
    columns = _columns(old, new)
    if not columns:
        remarks.append(
            f"too few rows to compare columns: no cluster has {MIN_ROWS} rows in both tables"
        )
    return DriftReport(
        old.n_rows,
        new.n_rows,
        new.n_left_out,
        _shares(old, new),
        homogeneity(old.counts, new.counts),
        _distances(old, new),
        columns,
        _categories(old, new),
        _missing(old, new),
        alpha,
        remarks,
    )


def homogeneity(first: NDArray, second: NDArray) -> float:
    """Return the p-value of the test that two vectors of counts have equal shares.

    Counts with an expected value below 5 in either vector are merged first. If all expected values
    are at least 5 then, the test is the chi-squared test, otherwise Fisher's exact test of each
    category with Bonferroni's correction. The result is NaN if fewer than two categories occur.
    """
    table = np.array([first, second], dtype=np.int64)
    table = table[:, table.sum(axis=0) > 0]
    sizes = table.sum(axis=1)
    if min(sizes) <= 0 or table.shape[1] < 2:
        return float("nan")
    smaller = sizes.min() / sizes.sum()
    rare = table.sum(axis=0) * smaller < MIN_ROWS
    if rare.any() and not rare.all():
        table = np.column_stack([table[:, ~rare], table[:, rare].sum(axis=1)])
    if (table.sum(axis=0) * smaller).min() >= MIN_ROWS:
        return float(stats.chi2_contingency(table, correction=False).pvalue)
    p = _two_shares(table[0], sizes[0], table[1], sizes[1])
    n_tests = 1 if p.size == 2 else p.size  # two shares add up to 1
    return min(1.0, n_tests * float(p.min()))


def holm(p_values: NDArray) -> NDArray:
    """Return p-values corrected by Holm's method, ignoring NaN."""
    corrected = np.full(p_values.shape, np.nan)
    known = np.flatnonzero(~np.isnan(p_values))
    order = known[np.argsort(p_values[known], kind="stable")]
    steps = p_values[order] * np.arange(order.size, 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected


def _shares(old: DriftSummary, new: DriftSummary) -> list[ShareChange]:
    n_old, n_new = old.n_rows, new.n_rows
    p = holm(_two_shares(old.counts, n_old, new.counts, n_new))
    return [
        ShareChange(j, int(a), int(b), a / n_old, b / n_new, float(p[j]))
        for j, (a, b) in enumerate(zip(old.counts.tolist(), new.counts.tolist(), strict=True))
    ]


def _two_shares(a: NDArray, n_a: int, b: NDArray, n_b: int) -> NDArray:
    """Return p-values of the equality of two shares, a of n_a and b of n_b, for each entry.

    Uses the two one-sided tests of Fisher, which are valid for any counts. They are also valid if
    the a first rows are those below a quantile of their own values: by the order of all values,
    the number b below it has the hypergeometric tails.
    """
    n, drawn = n_a + n_b, a + b
    lower = stats.hypergeom.cdf(b, n, drawn, n_b)
    upper = stats.hypergeom.sf(b - 1, n, drawn, n_b)
    return np.clip(2.0 * np.minimum(lower, upper), 0.0, 1.0)


def _distances(old: DriftSummary, new: DriftSummary) -> list[DistanceChange]:
    both = zip(old.distance_counts, new.distance_counts, strict=True)
    p = holm(np.array([_distance_test(before, now) for before, now in both]))
    pairs = zip(old.median_distances(), new.median_distances(), p, strict=True)
    return [DistanceChange(j, *map(float, pair)) for j, pair in enumerate(pairs)]


def _distance_test(old: NDArray, new: NDArray) -> float:
    """Return the p-value of the tests of the shares below each decile of the old distances."""
    n_old, n_new = int(old.sum()), int(new.sum())
    if min(n_old, n_new) == 0:
        return float("nan")
    below = np.unique(np.cumsum([old, new], axis=1)[:, :-1], axis=1)
    return min(1.0, below.shape[1] * float(_two_shares(below[0], n_old, below[1], n_new).min()))


def _columns(old: DriftSummary, new: DriftSummary) -> list[ColumnShift]:
    """Return the shifts of columns within clusters that have enough rows in both tables."""
    seen = np.flatnonzero(np.minimum(old.counts, new.counts) >= MIN_ROWS)
    if seen.size == 0:
        return []
    n_old, n_new = (one.counts[seen, None] for one in (old, new))
    shift = (new.means - old.means)[seen]
    parts = [one.variances[seen] / one.counts[seen, None] for one in (old, new)]
    square = parts[0] + parts[1]
    pooled = (old.squares + new.squares)[seen] / (n_old + n_new - 2) * (1 / n_old + 1 / n_new)
    # Variances within rounding error count as zero.
    known = square > 1e-24 * np.square(np.abs(old.means) + np.abs(new.means))[seen]
    with np.errstate(divide="ignore", invalid="ignore"):
        df = square**2 / (parts[0] ** 2 / (n_old - 1) + parts[1] ** 2 / (n_new - 1))
        # Welch's test alone rejects few rows of a skewed column too often: their variance is small
        # where their mean is small. The pooled variance errs on the other side only.
        tail = np.maximum(
            stats.t.sf(np.abs(shift) / np.sqrt(square), df),
            stats.t.sf(np.abs(shift) / np.sqrt(pooled), n_old + n_new - 2),
        )
    tail = np.where(known, tail, 0.5 * (shift == 0.0))
    tail = np.maximum(tail, 1e-300)
    z = stats.norm.isf(tail)
    p = holm(stats.chi2.sf(np.square(z).sum(axis=0), seen.size))
    clearest = z.argmax(axis=0)
    found = [
        ColumnShift(
            name, float(shift[clearest[j], j] / old.scales[j]), int(seen[clearest[j]]), float(p[j])
        )
        for j, name in enumerate(old.names)
    ]
    return sorted(found, key=lambda one: (one.p_value, -abs(one.shift)))


def _categories(old: DriftSummary, new: DriftSummary) -> list[CategoryChange]:
    both = [name for name in old.categories if name in new.categories]
    found = [_category_change(name, old.categories[name], new.categories[name]) for name in both]
    p = holm(np.array([one.p_value for one in found]))
    found = [one._replace(p_value=float(p[i])) for i, one in enumerate(found)]
    return sorted(found, key=lambda one: (np.isnan(one.p_value), one.p_value))


def _category_change(name: str, old: CategoryCounts, new: CategoryCounts) -> CategoryChange:
    values = list(dict.fromkeys([*old.counts, *new.counts]))
    before, now = (np.array([one.counts.get(v, 0) for v in values], float) for one in (old, new))
    p_value = homogeneity(np.append(before, old.n_other), np.append(now, new.n_other))
    if not values:
        return CategoryChange(name, "", float("nan"), float("nan"), p_value)
    shares = [
        counts / max(counts.sum() + one.n_other, 1) for counts, one in ((before, old), (now, new))
    ]
    largest = int(np.abs(shares[1] - shares[0]).argmax())
    # If not all old values were kept, unknown values need not be new.
    is_new = (before == 0) & (old.n_other == 0)
    order = [i for i in np.argsort(-now, kind="stable") if is_new[i] and now[i] > 0]
    was, is_now = (float(share[largest]) for share in shares)
    new_values = tuple(values[i] for i in order[:10])
    n_new = int(now[is_new].sum())
    return CategoryChange(name, values[largest], was, is_now, p_value, new_values, n_new)


def _missing(old: DriftSummary, new: DriftSummary) -> list[MissingChange]:
    totals = [one.n_rows + one.n_left_out for one in (old, new)]
    counts = [
        one.missing | {name: c.n_missing for name, c in one.categories.items()}
        for one in (old, new)
    ]
    names = [n for n in dict.fromkeys([*counts[0], *counts[1]]) if any(c.get(n) for c in counts)]
    a, b = (np.array([c.get(n, 0) for n in names], dtype=np.int64) for c in counts)
    p = holm(_two_shares(a, totals[0], b, totals[1]))
    return [
        MissingChange(n, float(a[i] / totals[0]), float(b[i] / totals[1]), float(p[i]))
        for i, n in enumerate(names)
    ]
