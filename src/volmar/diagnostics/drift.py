"""Tests for drift between two tables, under one fitted model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from volmar._checks import check_number
from volmar._input import check_matrix
from volmar.diagnostics.drift_report import (
    CategoryChange,
    ColumnShift,
    DistanceChange,
    DriftReport,
    MissingChange,
    ShareChange,
)
from volmar.diagnostics.drift_summary import CategoryCounts, DriftSummary

__all__ = ["compare_summaries", "drift", "holm", "homogeneity"]

# Minimum number of rows of a cluster, in both tables, for a comparison of its columns.
MIN_ROWS = 5
# Counts with an expected value below this are merged before a chi-squared test.
SMALLEST_COUNT = 5.0
# Maximum number of new values of a categorical column in the report.
MAX_NEW = 10


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
    old_rows, new_rows = _rows(X_old, "X_old"), _rows(X_new, "X_new")
    old_labels, new_labels = (np.asarray(model.predict(X)) for X in (X_old, X_new))
    k = int(max(old_labels.max(initial=0), new_labels.max(initial=0))) + 1
    old = DriftSummary.of_rows(old_rows, old_labels, k, names)
    new = DriftSummary.of_rows(new_rows, new_labels, k, names, reference=old)
    return compare_summaries(old, new, alpha=alpha)


def _rows(X: Any, name: str) -> Any:
    rows = check_matrix(X)
    if rows.shape[0] < 1:
        raise ValueError(f"{name} has no rows. Pass at least one row.")
    return rows


def _names(model: Any, X: Any) -> Iterable[Any]:
    known = getattr(model, "feature_names_in_", getattr(X, "columns", None))
    return known if known is not None else [f"x{j}" for j in range(np.shape(X)[1])]


# ---------------------------------------------------------------------- tests


def compare_summaries(
    old: DriftSummary, new: DriftSummary, *, alpha: float = 0.05, notes: Iterable[str] = ()
) -> DriftReport:
    """Return the report of a new table.

    Parameters
    ----------
    old, new : DriftSummary
        The summaries of both tables. That of the new table must have been made with the old one as
        its reference.
    alpha : float, default=0.05
        Significance level.
    notes : iterable of str, default=()
        Notes of the report about parts that were not compared.
    """
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

    Parameters
    ----------
    first, second : ndarray of shape (m,)
        Counts of the same m categories.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.diagnostics.drift import homogeneity
    >>> round(homogeneity(np.array([50, 50]), np.array([25, 75])), 5)
    0.00026
    """
    table = np.array([first, second], dtype=np.int64)
    table = table[:, table.sum(axis=0) > 0]
    sizes = table.sum(axis=1)
    if min(sizes) <= 0 or table.shape[1] < 2:
        return float("nan")
    smaller = sizes.min() / sizes.sum()
    rare = table.sum(axis=0) * smaller < SMALLEST_COUNT
    if rare.any() and not rare.all():
        table = np.column_stack([table[:, ~rare], table[:, rare].sum(axis=1)])
    if (table.sum(axis=0) * smaller).min() >= SMALLEST_COUNT:
        return float(stats.chi2_contingency(table, correction=False).pvalue)
    p = _two_shares(table[0], sizes[0], table[1], sizes[1])
    n_tests = 1 if p.size == 2 else p.size  # two shares add up to 1
    return min(1.0, n_tests * float(p.min()))


def holm(p_values: NDArray) -> NDArray:
    """Return p-values corrected by Holm's method, ignoring NaN.

    Parameters
    ----------
    p_values : ndarray of shape (m,)
        Uncorrected p-values; NaN for tests that were not possible.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.diagnostics.drift import holm
    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
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
            name,
            float(shift[clearest[j], j] / old.scales[j]),
            int(seen[clearest[j]]),
            float(p[j]),
        )
        for j, name in enumerate(old.names)
    ]
    return sorted(found, key=lambda one: (one.p_value, -abs(one.shift)))


def _categories(old: DriftSummary, new: DriftSummary) -> list[CategoryChange]:
    names = [name for name in old.categories if name in new.categories]
    pairs = [(old.categories[name], new.categories[name]) for name in names]
    p = holm(np.array([_category_test(*pair) for pair in pairs]))
    found = [
        _category_change(name, *pair, float(corrected))
        for name, pair, corrected in zip(names, pairs, p, strict=True)
    ]
    return sorted(found, key=lambda one: (np.isnan(one.p_value), one.p_value))


def _aligned(old: CategoryCounts, new: CategoryCounts) -> tuple[list[str], NDArray, NDArray]:
    """Return the values of a column, and their counts in both tables."""
    values = list(dict.fromkeys([*old.counts, *new.counts]))
    counts = [np.array([one.counts.get(v, 0) for v in values], dtype=float) for one in (old, new)]
    return values, counts[0], counts[1]


def _category_test(old: CategoryCounts, new: CategoryCounts) -> float:
    _, before, now = _aligned(old, new)
    return homogeneity(np.append(before, old.n_other), np.append(now, new.n_other))


def _category_change(
    name: str, old: CategoryCounts, new: CategoryCounts, p_value: float
) -> CategoryChange:
    values, before, now = _aligned(old, new)
    if not values:
        return CategoryChange(name, "", float("nan"), float("nan"), p_value)
    shares = [
        counts / max(counts.sum() + one.n_other, 1) for counts, one in ((before, old), (now, new))
    ]
    largest = int(np.abs(shares[1] - shares[0]).argmax())
    # If not all old values were kept, unknown values need not be new.
    is_new = (before == 0) & (old.n_other == 0)
    order = [i for i in np.argsort(-now, kind="stable") if is_new[i] and now[i] > 0]
    return CategoryChange(
        name,
        values[largest],
        float(shares[0][largest]),
        float(shares[1][largest]),
        p_value,
        tuple(values[i] for i in order[:MAX_NEW]),
        int(now[is_new].sum()),
    )


def _missing(old: DriftSummary, new: DriftSummary) -> list[MissingChange]:
    totals = [one.n_rows + one.n_left_out for one in (old, new)]
    counts: list[dict[str, int]] = []
    for one in (old, new):
        of_categories = {name: c.n_missing for name, c in one.categories.items()}
        counts.append({**one.missing, **of_categories})
    names = [n for n in dict.fromkeys([*counts[0], *counts[1]]) if any(c.get(n) for c in counts)]
    a, b = (np.array([c.get(n, 0) for n in names], dtype=np.int64) for c in counts)
    p = holm(_two_shares(a, totals[0], b, totals[1]))
    return [
        MissingChange(n, float(a[i] / totals[0]), float(b[i] / totals[1]), float(p[i]))
        for i, n in enumerate(names)
    ]
