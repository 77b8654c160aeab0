"""Drift between two tables under one fitted model: summaries, tests and their report."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, stats

from volmar._checks import check_number
from volmar._input import check_matrix
from volmar._notebook import html_card
from volmar.rows.tiled import cluster_moments, row_blocks

# Maximum number of changes of a kind, and of new values of a column, that are printed.
MAX_SHOWN = 5
# Number of quantile bins of the first table in which distances from the centres are counted.
N_BINS = 10
# Minimum number of rows of a cluster, in both tables, for a comparison of its columns, and minimum
# expected count of a chi-squared test; smaller counts are merged before.
MIN_ROWS = 5


# ------------------------------------------------------------------------------ the report


# The p-value of a change is corrected for the number of clusters or columns. A distance is the
# median, over the rows of a cluster, of the root mean square over the columns of the differences
# from its centre, in standard deviations within the old clusters, as is a shift. A column is shown
# for the cluster in which its mean has changed most significantly, and a category by the value
# whose share has changed most.
ShareChange = namedtuple("ShareChange", "cluster n_old n_new old new p_value")
DistanceChange = namedtuple("DistanceChange", "cluster old new p_value")
ColumnShift = namedtuple("ColumnShift", "column shift cluster p_value")
CategoryChange = namedtuple(
    "CategoryChange", "column value old new p_value new_values n_new_values", defaults=((), 0)
)
MissingChange = namedtuple("MissingChange", "column old new p_value")
WORDS = {
    "shares": "Cluster {0.cluster} has {0.new:.1%} of the rows, {0.old:.1%} before",
    "distances": "The median distance of rows of cluster {0.cluster} from its centre is "
    "{0.new:.2f}, {0.old:.2f} before",
    "columns": "The mean of column {0.column} has changed by {0.shift:+.2f} standard deviations "
    "in cluster {0.cluster} (p = {0.p_value:.2g})",
    "categories": "Column {0.column} is {0.value!r} in {0.new:.1%} of the rows, "
    "{0.old:.1%} before",
    "missing": "Column {0.column} is missing in {0.new:.1%} of the rows, {0.old:.1%} before",
}


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
        return min([1.0, *(len(self._smallest) * p for p in self._smallest)])

    @property
    def has_drifted(self) -> bool:
        """Whether anything has changed at the level `alpha`."""
        return self.p_value <= self.alpha

    @property
    def _smallest(self) -> list[float]:
        """Smallest p-value of each tested kind of change."""
        kinds = [[one.p_value for one in getattr(self, kind)] for kind in list(WORDS)[1:]]
        known = [[p for p in every if np.isfinite(p)] for every in ([self.shares_p_value], *kinds)]
        return [min(every) for every in known if every]

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
        if self.shares_p_value <= self.level and not self.changed("shares"):
            found.append(
                f"The shares of the clusters have changed (p = {self.shares_p_value:.2g})."
            )
        for kind, words in WORDS.items():
            changed = self.changed(kind)
            for one in changed[:MAX_SHOWN]:
                new = ", ".join(map(repr, getattr(one, "new_values", ())[:MAX_SHOWN]))
                new = f"; {one.n_new_values:,} rows have new values ({new})" if new else ""
                found.append(f"{words.format(one)}{new}.")
            if len(changed) > MAX_SHOWN:
                found.append(f"... and {len(changed) - MAX_SHOWN} more like this.")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dict that can be stored as JSON; None for NaN and infinity."""
        names = ["n_old", "n_new", "n_left_out", "alpha", "level", "p_value", "has_drifted"]
        found = {name: getattr(self, name) for name in [*names, "shares_p_value"]}
        found |= {kind: [one._asdict() for one in getattr(self, kind)] for kind in WORDS}
        return plain(found | {"notes": self.notes, "sentences": self.sentences})

    def by_cluster(self) -> list[tuple[int, int, int, str, str, str, str]]:
        """Return rows, share and median distance of each cluster, before and now."""
        gaps = [f"{value:.2f}".replace("nan", "-") for gap in self.distances for value in gap[1:3]]
        pairs = zip(self.shares, gaps[::2], gaps[1::2], strict=True)
        return [
            (one.cluster, one.n_old, one.n_new, f"{one.old:.1%}", f"{one.new:.1%}", old, new)
            for one, old, new in pairs
        ]

    def __str__(self) -> str:
        """Return the sentences, one per line, and a table of the clusters."""
        head = "cluster  rows before     now   share before     now  distance"
        lines = [
            f"{j:>7} {n_old:>12,} {n_new:>7,} {old:>14} {new:>7}  {before} → {now}"
            for j, n_old, n_new, old, new, before, now in self.by_cluster()
        ]
        notes = (f"note: {note}" for note in self.notes)
        return "\n".join([*self.sentences, "", head, *lines, *notes])

    def __repr__(self) -> str:
        """Return the p-value and the decision; ``print`` shows the changes."""
        shown = f"p_value={self.p_value:.2g}, has_drifted={self.has_drifted}"
        return f"DriftReport(n_new={self.n_new}, {shown})"

    def _repr_html_(self) -> str:
        """Show the sentences and a table of the clusters in a notebook."""
        header = ["Cluster", "Rows before", "Rows now", "Share before", "Share now", "Distance"]
        rows: list[list[Any]] = [
            [f"cluster {j}", *sizes, f"{before} → {now}"]
            for j, *sizes, before, now in self.by_cluster()
        ]
        return html_card("Drift", [*self.sentences, *self.notes], header, rows)


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


# ------------------------------------------------------------------------------ summaries


@dataclass(frozen=True)
class CategoryCounts:
    """Numbers of rows: of the frequent values of a categorical column, of others, and missing."""

    counts: dict[str, int]
    n_other: int = 0
    n_missing: int = 0

    @classmethod
    def of_codes(
        cls, codes: NDArray, values: Sequence[str], known: Mapping[str, int] | None = None
    ) -> Self:
        """Return counts of values from their codes, -1 for missing values.

        All values in `known` are counted separately, and at most 100 others.
        """
        n = np.bincount(codes[codes >= 0], minlength=len(values))
        order = np.argsort(-n, kind="stable").tolist()
        kept = [i for i in order if known is not None and values[i] in known]
        kept += [i for i in order if known is None or values[i] not in known][:100]
        counts = {str(values[i]): int(n[i]) for i in kept if n[i] > 0}
        return cls(counts, int(n.sum()) - sum(counts.values()), int(np.sum(codes < 0)))

    def joined(self, other: Self) -> Self:
        """Return the counts of both sets of rows together."""
        counts = _added(self.counts, other.counts)
        return type(self)(counts, self.n_other + other.n_other, self.n_missing + other.n_missing)


def _added(one: dict[str, int], two: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + two.get(name, 0) for name in dict.fromkeys([*one, *two])}


@dataclass(frozen=True, eq=False)
class DriftSummary:
    """Sizes, means and variances of clusters, and distances of rows from the centres.

    `means` and `squares` (k, d) are the means in each cluster and the sums of squared deviations
    from them. `centers`, the `scales` (d,) of the columns and the deciles `edges` (k, 9) of the
    distances are those of the first table, which is the `reference` of the second: its means, its
    standard deviations within clusters (1 for constant columns), and the distances of its rows
    from their centre. `distance_counts` (k, 10) are the numbers of rows between the deciles.
    `missing` counts the missing values of numerical columns that have any, `n_left_out` the rows
    without a cluster.
    """

    names: list[str]
    counts: NDArray[np.int64]
    means: NDArray[np.float64]
    squares: NDArray[np.float64]
    centers: NDArray[np.float64]
    scales: NDArray[np.float64]
    edges: NDArray[np.float64]
    distance_counts: NDArray[np.int64]
    categories: dict[str, CategoryCounts] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    n_left_out: int = 0

    @property
    def n_rows(self) -> int:
        """Number of rows with a cluster."""
        return int(self.counts.sum())

    @property
    def variances(self) -> NDArray[np.float64]:
        """Variance of each column in each cluster, (k, d); 0 for clusters of one row."""
        return self.squares / np.maximum(self.counts - 1, 1)[:, None]

    @classmethod
    def of_rows(
        cls,
        X: Any,
        labels: NDArray,
        k: int,
        names: Sequence[str],
        *,
        reference: DriftSummary | None = None,
    ) -> Self:
        """Return the summary of rows, dense or CSR, with clusters 0 to k - 1, in O(n d).

        Rows with a negative label are left out and counted in `n_left_out`. Without a `reference`,
        the rows are the first table.
        """
        inside = np.flatnonzero(labels >= 0)
        n_left_out = labels.size - inside.size
        if n_left_out:
            X, labels = X[inside], labels[inside]
        counts, means, squares = cluster_moments(X, labels, k)
        if reference is not None:
            centers, scales, edges = reference.centers, reference.scales, reference.edges
            distances = _own_distances(X, labels, centers, scales)
        else:
            within = squares.sum(axis=0) / max(labels.size - np.count_nonzero(counts), 1)
            varies = within > 1e-24 * np.square(means).max(axis=0, initial=0.0)
            centers, scales = means, np.where(varies, np.sqrt(within), 1.0)
            distances = _own_distances(X, labels, means, scales, counts)
            edges = np.zeros((k, N_BINS - 1))
            for j in np.flatnonzero(counts):
                edges[j] = np.quantile(distances[labels == j], np.arange(1, N_BINS) / N_BINS)
        places = [np.searchsorted(edges[j], distances[labels == j]) for j in range(k)]
        binned = np.array([np.bincount(place, minlength=N_BINS) for place in places])
        moments = (counts, means, squares, centers, scales)
        return cls(list(names), *moments, edges, binned, n_left_out=n_left_out)

    def joined(self, other: Self) -> Self:
        """Return the summary of both sets of rows, which must have the same reference."""
        counts = self.counts + other.counts
        share = (other.counts / np.maximum(counts, 1))[:, None]
        shift = other.means - self.means
        both = [name for name in self.categories if name in other.categories]
        return replace(
            self,
            counts=counts,
            means=self.means + share * shift,
            squares=self.squares + other.squares + share * self.counts[:, None] * shift**2,
            distance_counts=self.distance_counts + other.distance_counts,
            categories={n: self.categories[n].joined(other.categories[n]) for n in both},
            missing=_added(self.missing, other.missing),
            n_left_out=self.n_left_out + other.n_left_out,
        )

    def median_distances(self) -> NDArray[np.float64]:
        """Return the median distance of the rows of each cluster, interpolated between deciles."""
        medians = np.full(self.counts.size, np.nan)
        for j in np.flatnonzero(self.distance_counts.sum(axis=1)):
            below = np.cumsum(self.distance_counts[j])[:-1] / self.distance_counts[j].sum()
            medians[j] = np.interp(0.5, below, self.edges[j])
        return medians


def _own_distances(
    X: Any, labels: NDArray, centers: NDArray, scales: NDArray, counts: NDArray | None = None
) -> NDArray:
    r"""Return the root mean square of (x - centre) / scale over the columns, for each row.

    With `counts`, the rows are those from which centres and scales were estimated. Each row is
    then left out of its own centre and scale, to make the distances comparable with those of new
    rows. With f = n / (n - 1) for a cluster of n rows and :math:`\nu` degrees of freedom, the
    square of a column is

    .. math:: \frac{f^2 (x - m)^2}{s_{-}^2}, \qquad
              s_{-}^2 = \frac{\nu s^2 - f (x - m)^2}{\nu - 1}.
    """
    n, d = X.shape
    f, nu = np.ones(n), 0
    if counts is not None:
        f = np.where(counts > 1, counts / np.maximum(counts - 1, 1), 0.0)[labels]
        nu = n - np.count_nonzero(counts)
    if sparse.issparse(X):
        Z, own = X.multiply(1.0 / scales).tocsr(), centers / scales
        square = np.asarray(Z.multiply(Z).sum(axis=1)).ravel() + np.square(own).sum(axis=1)[labels]
        square -= 2.0 * np.asarray((Z @ own.T)[np.arange(n), labels])
        return f * np.sqrt(np.maximum(square, 0.0) / d)  # scales include the row
    found = np.empty(n)
    for part in row_blocks(n, d):
        square = np.square((X[part] - centers[labels[part]]) / scales)
        if nu > 2:
            g = f[part, None]
            square = g**2 * square * (nu - 1) / np.maximum(nu - g * square, 1.0)
        found[part] = np.sqrt(square.mean(axis=1))
    return found


# ------------------------------------------------------------------------------ tests


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
    names = getattr(model, "feature_names_in_", getattr(X_new, "columns", None))
    old_rows, new_rows = check_matrix(X_old, name="X_old"), check_matrix(X_new, name="X_new")
    names = [f"x{j}" for j in range(new_rows.shape[1])] if names is None else names
    old_labels, new_labels = (np.asarray(model.predict(X)) for X in (X_old, X_new))
    k = int(max(old_labels.max(initial=0), new_labels.max(initial=0))) + 1
    names = [str(name) for name in names]
    old = DriftSummary.of_rows(old_rows, old_labels, k, names)
    new = DriftSummary.of_rows(new_rows, new_labels, k, names, reference=old)
    return compare_summaries(old, new, alpha=alpha)


def compare_summaries(old: DriftSummary, new: DriftSummary, *, alpha: float = 0.05) -> DriftReport:
    """Return the report of a summary that was made with the old one as its reference."""
    if old.n_rows < 1 or new.n_rows < 1:
        raise ValueError(
            "a table without rows in clusters cannot be compared. Pass a table with such rows."
        )
    notes = []
    gone = [name for name in old.categories if name not in new.categories]
    if gone:
        notes.append(f"columns missing in the new table: {', '.join(gone)}")
    columns = _columns(old, new)
    if not columns:
        notes.append(
            f"too few rows to compare columns: no cluster has {MIN_ROWS} rows in both tables"
        )
    p = holm(_two_shares(old.counts, old.n_rows, new.counts, new.n_rows))
    pairs = zip(old.counts.tolist(), new.counts.tolist(), p.tolist(), strict=True)
    shares = [
        ShareChange(j, a, b, a / old.n_rows, b / new.n_rows, p)
        for j, (a, b, p) in enumerate(pairs)
    ]
    both = zip(old.distance_counts, new.distance_counts, strict=True)
    p = holm(np.array([_distance_test(before, now) for before, now in both]))
    medians = np.column_stack([old.median_distances(), new.median_distances(), p])
    return DriftReport(
        old.n_rows,
        new.n_rows,
        new.n_left_out,
        shares,
        homogeneity(old.counts, new.counts),
        [DistanceChange(j, *values) for j, values in enumerate(medians.tolist())],
        columns,
        _categories(old, new),
        _missing(old, new),
        alpha,
        notes,
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


def _two_shares(a: NDArray, n_a: int, b: NDArray, n_b: int) -> NDArray:
    """Return p-values of the equality of two shares, a of n_a and b of n_b, for each entry.

    Uses the two one-sided tests of Fisher, which are valid for any counts. They are also valid if
    the a first rows are those below a quantile of their own values: by the order of all values,
    the number b below it has the hypergeometric tails.
    """
    of = (n_a + n_b, a + b, n_b)
    lower, upper = stats.hypergeom.cdf(b, *of), stats.hypergeom.sf(b - 1, *of)
    return np.clip(2.0 * np.minimum(lower, upper), 0.0, 1.0)


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
    shift = (new.means - old.means)[seen]
    both = [(one.means, np.sqrt(one.variances), one.counts[:, None]) for one in (old, new)]
    moments = [values[seen] for one in both for values in one]
    # Variances within rounding error count as zero.
    square = sum(one.variances[seen] / one.counts[seen, None] for one in (old, new))
    known = square > 1e-24 * np.square(np.abs(old.means) + np.abs(new.means))[seen]
    # Welch's test alone rejects few rows of a skewed column too often: their variance is small
    # where their mean is small. The pooled variance errs on the other side only.
    with np.errstate(divide="ignore", invalid="ignore"):
        welch, student = (
            stats.ttest_ind_from_stats(*moments, equal_var=equal).pvalue for equal in (False, True)
        )
    tail = np.where(known, np.maximum(welch, student), shift == 0.0) / 2
    tail = np.maximum(tail, 1e-300)
    z = stats.norm.isf(tail)
    p = holm(stats.chi2.sf(np.square(z).sum(axis=0), seen.size))
    top = z.argmax(axis=0)
    moved = shift[top, np.arange(top.size)] / old.scales
    values = zip(old.names, moved.tolist(), seen[top].tolist(), p.tolist(), strict=True)
    found = [ColumnShift(*one) for one in values]
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
    counts = np.append(before, old.n_other), np.append(now, new.n_other)
    p_value = homogeneity(*counts)
    if not values:
        return CategoryChange(name, "", float("nan"), float("nan"), p_value)
    shares = np.array([one[:-1] / max(one.sum(), 1) for one in counts])
    largest = int(np.abs(shares[1] - shares[0]).argmax())
    # If not all old values were kept, unknown values need not be new.
    is_new = (before == 0) & (now > 0) & (old.n_other == 0)
    order = [i for i in np.argsort(-now, kind="stable") if is_new[i]][:10]
    new_values = tuple(values[i] for i in order)
    was, is_now = shares[:, largest].tolist()
    n_new = int(now @ is_new)
    return CategoryChange(name, values[largest], was, is_now, p_value, new_values, n_new)


def _missing(old: DriftSummary, new: DriftSummary) -> list[MissingChange]:
    totals = np.array([one.n_rows + one.n_left_out for one in (old, new)])
    counts = [
        one.missing | {name: c.n_missing for name, c in one.categories.items()}
        for one in (old, new)
    ]
    names = [n for n in dict.fromkeys([*counts[0], *counts[1]]) if any(c.get(n) for c in counts)]
    a, b = table = np.array([[c.get(n, 0) for n in names] for c in counts], dtype=np.int64)
    values = np.column_stack(
        [*(table / totals[:, None]), holm(_two_shares(a, totals[0], b, totals[1]))]
    )
    return [MissingChange(n, *one) for n, one in zip(names, values.tolist(), strict=True)]
