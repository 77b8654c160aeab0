"""The columns of a table: as numerical features, and their distribution in every cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.stats import chi2_contingency, kruskal

from volmar._checks import as_float, check_count, check_random_state
from volmar._text import aligned, as_mean, data_frame
from volmar.metrics.contingency import distinct_labels, is_missing, labels_of_rows, sampled_rows

# Maximum number of levels of a column that are compared, the most frequent ones.
MAX_LEVELS = 50


class Column(NamedTuple):
    """A column as float64, NaN for missing values, with its kind.

    The values of a "number" are finite; those of a "date" are days since 1970-01-01 (UTC), and
    those of an "ordinal" or a "category" are positions in `levels`.
    """

    name: str
    kind: str
    values: NDArray
    levels: Sequence[Any] = ()

    def ranked(self) -> tuple[list[str], NDArray, bool]:
        """Return the levels as text, the positions of those that occur, and if they are boolean.

        Ordered levels keep their order. Others are sorted by frequency, ties by name; but True
        comes before False, because its share is of interest.
        """
        texts = [str(level) for level in self.levels]
        codes = self.values[~np.isnan(self.values)].astype(np.int64)
        counts = np.bincount(codes, minlength=len(texts))
        present = np.flatnonzero(counts).tolist()
        boolean = self.kind == "category" and {texts[i] for i in present} <= {"True", "False"}
        if self.kind == "category":
            by_count = {i: -counts[i] for i in present}
            present.sort(key=lambda i: (texts[i] == "False" if boolean else by_count[i], texts[i]))
        return texts, np.array(present, dtype=np.int64), boolean and bool(present)


class Features(NamedTuple):
    """Columns as numbers, of shape (n, p), with names, kinds and levels as in the description.

    A column of numbers, ranks or dates is one feature. A column of L levels has L features with
    values 0 and 1, or only one if L = 2, because the other would be redundant. A column with
    missing values has a further feature that is 1 for missing values; its other features are NaN
    there.
    """

    values: Any
    columns: list[str]
    kinds: list[str]
    levels: list[str]
    orders: dict[str, list[str]]
    notes: list[str]


def n_rows_of(X: Any) -> int:
    """Return the number of rows of a table; raise an error if it is not two-dimensional."""
    shape = getattr(X, "shape", None)
    if shape is None:
        try:
            shape = np.shape(X)
        except ValueError:  # rows of different lengths
            shape = (len(X),)
    if len(shape) != 2:
        raise ValueError(
            f"X must have rows and columns, got shape {tuple(shape)}. Reshape a single column "
            "with X.reshape(-1, 1)."
        )
    return int(shape[0])


def as_features(X: Any, names: Sequence[str] | None) -> Features:
    """Return the features of an array, a CSR matrix or a DataFrame (pandas or polars)."""
    if sparse.issparse(X):
        return _sparse_features(X, names)
    found: list[tuple[NDArray, str, str, str]] = []
    orders: dict[str, list[str]] = {}
    notes: list[str] = []
    for column in table_columns(X, names)[1]:
        missing, name = np.isnan(column.values), column.name
        if column.kind != "category":
            found.append((column.values, name, column.kind, ""))
            if column.kind == "ordinal":
                orders[name] = [str(level) for level in column.levels]
        else:
            for level, is_there in _compared_levels(column, notes):
                found.append((np.where(missing, np.nan, is_there), name, "share", level))
        if missing.any():
            found.append((missing.astype(np.float64), name, "missing", ""))
    if not found:
        raise ValueError("X has no column that can be compared. Pass at least one such column.")
    blocks, of, kinds, levels = map(list, zip(*found, strict=True))
    return Features(np.column_stack(blocks), of, kinds, levels, orders, notes)


def _compared_levels(column: Column, notes: list[str]) -> Iterator[tuple[str, NDArray]]:
    """Yield the most frequent levels, each with a mask of its rows."""
    texts, ranked, boolean = column.ranked()
    if ranked.size == np.count_nonzero(~np.isnan(column.values)) > 2:
        notes.append(
            f"column {column.name!r} has a different value in every row and is not compared"
        )
        return
    if ranked.size > MAX_LEVELS:
        notes.append(
            f"only the {MAX_LEVELS} most frequent of the {ranked.size} values of column "
            f"{column.name!r} are compared"
        )
    if ranked.size == 2:  # only one is used: True, or the rarer one
        ranked = ranked[:1] if boolean else ranked[1:]
    for i in ranked[:MAX_LEVELS]:
        yield texts[i], column.values == i


def _sparse_features(X: Any, names: Sequence[str] | None) -> Features:
    if X.dtype.kind == "c":
        raise TypeError(
            "X holds complex numbers, which have no order. Pass their real and imaginary parts as "
            "separate columns."
        )
    X = sparse.csr_array(X).astype(np.float64)
    taken, d = _names_of(X, names), X.shape[1]
    wrong = int(np.count_nonzero(~np.isfinite(X.data)))
    if wrong:
        raise ValueError(
            f"X is sparse and has {wrong} missing or infinite values, which are not supported. "
            "Remove them, or pass a dense array."
        )
    return Features(X, taken, ["number"] * d, [""] * d, {}, [])


def table_columns(X: Any, names: Sequence[str] | None) -> tuple[list[str], Iterator[Column]]:
    """Return the names of the columns of a table, and an iterator over its columns."""
    if sparse.issparse(X):
        X = sparse.csc_array(X)
        taken = _names_of(X, names)
        return taken, (
            _plain_column(X[:, [j]].toarray().ravel(), name) for j, name in enumerate(taken)
        )
    if _is_frame(X):
        taken = _names_of(X, names)
        return taken, (_frame_column(X, j, name) for j, name in enumerate(taken))
    X = np.asarray(X)
    taken = _names_of(X, names)
    return taken, (_plain_column(X[:, j], name) for j, name in enumerate(taken))


def _is_frame(X: Any) -> bool:
    return hasattr(X, "columns") and hasattr(X, "dtypes")


def _names_of(X: Any, names: Sequence[str] | None) -> list[str]:
    found = X.columns if _is_frame(X) else [f"x{j}" for j in range(X.shape[1])]
    if names is not None and len(names) != len(found):
        raise ValueError(
            f"feature_names must have one name for each of the {len(found)} columns of X, got "
            f"{len(names)} names."
        )
    return [str(name) for name in (found if names is None else names)]


def _numbers(values: Any, name: str, kind: str = "number") -> Column:
    with np.errstate(over="ignore"):  # long doubles; infinity counts as missing
        values = np.asarray(values).astype(np.float64)
    return Column(name, kind, np.where(np.isfinite(values), values, np.nan))


def _coded(codes: NDArray, levels: Sequence[Any], name: str, kind: str = "category") -> Column:
    return Column(name, kind, np.where(codes < 0, np.nan, codes), levels)


def _frame_column(X: Any, j: int, name: str) -> Column:
    if not hasattr(X, "iloc"):  # polars
        series = X[:, j]
        if series.dtype.is_numeric():
            return _numbers(series.cast(float).fill_null(float("nan")).to_numpy(), name)
        # Dates, durations, booleans and text as Python objects.
        return _plain_column(np.array([*series.to_list(), None], dtype=object)[:-1], name)
    import pandas as pd

    series = X.iloc[:, j]
    if isinstance(series.dtype, pd.SparseDtype):
        series = series.sparse.to_dense()
    if isinstance(series.dtype, pd.CategoricalDtype):
        kind = "ordinal" if series.dtype.ordered else "category"
        return _coded(series.cat.codes.to_numpy(), list(series.dtype.categories), name, kind)
    if isinstance(series.dtype, pd.PeriodDtype):
        series = series.dt.to_timestamp()
    if isinstance(series.dtype, pd.DatetimeTZDtype):
        series = series.dt.tz_convert(None)
    dtype, types = series.dtype, pd.api.types
    if types.is_numeric_dtype(dtype) and dtype.kind in "iuf":
        return _numbers(series.to_numpy(dtype=np.float64, na_value=np.nan), name)
    if types.is_bool_dtype(dtype) or isinstance(dtype, pd.StringDtype):
        codes, levels = pd.factorize(series)
        return _coded(codes, list(levels), name)
    return _plain_column(series.to_numpy(), name)


def _plain_column(column: NDArray, name: str) -> Column:
    """Return a column as numbers, dates or durations in days, or as codes if it is neither."""
    kind = column.dtype.kind
    if kind in "iuf":
        return _numbers(column, name)
    if kind in "mM":
        return _numbers(_in_days(column), name, "number" if kind == "m" else "date")
    if kind == "c":
        raise TypeError(
            f"X: column {name!r} holds complex numbers, which have no order. Pass their real and "
            "imaginary parts as two columns."
        )
    place: dict[Any, int] = {}
    codes = np.empty(column.size, dtype=np.int64)
    for i, value in enumerate(column.tolist()):
        if isinstance(value, list | dict | set | np.ndarray):
            raise TypeError(
                f"X: column {name!r} holds a {type(value).__name__} in row {i}, but single values "
                "are required. Leave the column out, or split it into several columns."
            )
        codes[i] = -1 if is_missing(value) else place.setdefault(value, len(place))
    if place and all(_is_number(value) for value in place):
        return _numbers(np.array([*map(as_float, place), np.nan])[codes], name)
    if place and all(isinstance(value, date) for value in place):  # a datetime is a date
        known = np.array([_naive(value) for value in place], dtype="M8[us]")
        return _numbers(np.append(_in_days(known), np.nan)[codes], name, "date")
    if place and all(isinstance(value, timedelta) for value in place):
        days = [value / timedelta(days=1) for value in place]
        return _numbers(np.array([*days, np.nan])[codes], name)
    return _coded(codes, list(place), name)


def _in_days(times: NDArray) -> NDArray:
    """Return dates or durations as days, NaN for missing values."""
    unit = times.dtype.str[1]
    days = times.astype(f"{unit}8[ms]").astype(np.int64) / 86_400_000.0
    return np.where(np.isnat(times), np.nan, days)


def _naive(value: Any) -> Any:
    """Return a date in UTC without its time zone, as numpy expects it."""
    zone = getattr(value, "tzinfo", None)
    return value if zone is None else value.astimezone(UTC).replace(tzinfo=None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal | np.number) and not isinstance(value, bool)


# --------------------------------------------------- distribution of every column in every cluster

OTHER = "other"


@dataclass(frozen=True, eq=False)
class ColumnProfile:
    """One column in each of k clusters.

    `kind` is "number", "date", "ordinal", "boolean", "category", "text" (most values are distinct)
    or "empty"; dates are days since 1970-01-01. `effect` is the difference between the clusters
    from 0 to 1: the correlation ratio of ranks for numbers, dates and ordinal columns, Cramér's V
    for levels, both corrected for chance, and NaN for text and empty columns. `missing` (k,) are
    shares of missing values, `quartiles` (k, 3) those of numbers and dates, NaN for a cluster
    without values. `edges` are the edges of the bars of the histograms; the outermost bars include
    all values beyond them. `levels` name the bars if they are not intervals: the most frequent
    levels and "other", or the values of a column with few distinct ones. `shares` (k, m) are those
    of the known values of a cluster in each bar.
    """

    name: str
    kind: str
    used: bool
    effect: float
    missing: NDArray = field(repr=False)
    quartiles: NDArray | None = field(repr=False)
    edges: NDArray | None = field(repr=False)
    levels: list[str] = field(repr=False)
    shares: NDArray = field(repr=False)
    n_values: int = 0
    is_whole: bool = False

    @property
    def has_numbers(self) -> bool:
        """Whether the column holds numbers or dates and has quartiles."""
        return self.quartiles is not None

    @property
    def spread(self) -> float:
        """About a standard deviation of a number; it determines the number of decimals."""
        assert self.quartiles is not None
        with np.errstate(all="ignore"):
            width = float(np.nanmean(self.quartiles[:, 2] - self.quartiles[:, 0])) / 1.35
            reach = float(np.nanmax(self.quartiles) - np.nanmin(self.quartiles)) / 3
        return max(width, reach) if np.isfinite(width) else 0.0

    def text(self, value: float) -> str:
        """Return a value of the column as text."""
        if self.kind == "date":
            return day_text(value)
        if self.is_whole and abs(value) < 1e7:
            # Quartiles of whole numbers may be halves, which matter for small numbers.
            places = 1 if abs(value) < 1000 else 0
            return f"{round(value, places) + 0.0:,.{places}f}".removesuffix(".0").replace("-", "−")
        return as_mean(value, self.spread)

    def top_level(self, i: int) -> tuple[str, float] | None:
        """Return the most frequent level of cluster i and its share; None if there is none."""
        if not self.levels or not np.isfinite(self.shares[i]).all():
            return None
        top = int(np.argmax(self.shares[i]))
        return self.levels[top], float(self.shares[i, top])


@dataclass(frozen=True, eq=False)
class ColumnProfiles:
    """Profiles of the columns of a table in each cluster.

    Attributes
    ----------
    clusters : list
        Labels of the clusters, in order.
    sizes : ndarray of shape (k,)
        Number of rows of each cluster.
    columns : list of ColumnProfile
        Columns used for clustering, then the others, each in descending order of effect.
    n_sampled : int
        Number of rows from which quartiles, shares and effects were computed.
    """

    clusters: list[Any]
    sizes: NDArray
    columns: list[ColumnProfile] = field(repr=False)
    n_sampled: int

    def to_frame(self) -> Any:
        """Return a DataFrame with one row per column and cluster (requires pandas).

        Its columns are column, kind, used, effect, cluster, size, missing, q25, median, q75 (for
        numbers and dates), and level and share of the most frequent level in the cluster.
        """
        rows = []
        for one in self.columns:
            for i, label in enumerate(self.clusters):
                row = {
                    "column": one.name,
                    "kind": one.kind,
                    "used": one.used,
                    "effect": one.effect,
                    "cluster": label,
                    "size": int(self.sizes[i]),
                    "missing": float(one.missing[i]),
                }
                if one.quartiles is not None:
                    values: list[Any] = one.quartiles[i].tolist()
                    if one.kind == "date":
                        known = [value for value in values if np.isfinite(value)]
                        values = [*map(datetime.fromisoformat, map(day_text, known))] or values
                    row |= dict(zip(("q25", "median", "q75"), values, strict=True))
                elif (top := one.top_level(i)) is not None:
                    row |= dict(zip(("level", "share"), top, strict=True))
                rows.append(row)
        names = ["column", "kind", "used", "effect", "cluster", "size", "missing"]
        names += ["q25", "median", "q75", "level", "share"]
        return data_frame(rows, names, "the list `columns`")

    def __str__(self) -> str:
        """Return a table of the columns, with the median or most frequent level per cluster."""
        lines = [["column", "effect", *(f"cluster {label}" for label in self.clusters)]]
        for one in self.columns:
            effect = "" if np.isnan(one.effect) else f"{one.effect:.2f}"
            cells = [self._cell(one, i) for i in range(len(self.clusters))]
            name = one.name if one.used else f"{one.name} (left out)"
            lines.append([name, effect, *cells])
        return "\n".join(aligned(lines))

    def _cell(self, one: ColumnProfile, i: int) -> str:
        if one.quartiles is not None:
            low, middle, high = one.quartiles[i].tolist()
            words = f"{one.text(middle)} ({one.text(low)} to {one.text(high)})"
            return "missing" if np.isnan(middle) else words
        if (top := one.top_level(i)) is not None:
            return f"{top[0]} {100 * top[1]:.0f} %"
        return "missing" if one.kind != "text" else f"{one.n_values} values"


def column_profiles(
    X: Any,
    labels: ArrayLike,
    *,
    used: Sequence[bool] | None = None,
    n_levels: int = 6,
    max_rows: int = 50_000,
    feature_names: Sequence[str] | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> ColumnProfiles:
    """Describe every column of a table in each cluster, including columns not used to cluster.

    Numbers and dates have quartiles and a histogram; text and booleans have the shares of their
    most frequent levels. `describe_clusters` compares means and tests which differences are real;
    this function shows the distributions.

    Parameters
    ----------
    X : array, CSR array or DataFrame of shape (n, d)
        The table (pandas or polars) in its original units, with its missing values.
    labels : array of shape (n,)
        Cluster of each row. Noise (-1) is shown as a cluster.
    used : sequence of bool, optional
        Whether each column was used for clustering. If None, all columns.
    n_levels : int, default=6
        Number of levels that are shown. The rest is "other".
    max_rows : int, default=50000
        Maximum number of rows from which quartiles, shares and effects are computed. Of more rows,
        a random sample is drawn, proportional to the cluster sizes with at least 50 rows each.
    feature_names : sequence of str, optional
        Names of the columns. If None, those of the DataFrame, or x0, x1, ...
    random_state : int, RandomState or None, default=None
        Random seed of the sample.

    Returns
    -------
    ColumnProfiles
        ``to_frame()`` returns a DataFrame, and ``print`` shows one line per column.

    See Also
    --------
    describe_clusters : Differences between clusters, with tests.

    Examples
    --------
    >>> from volmar.diagnostics import column_profiles
    >>> ages = [[21, 0], [25, 1], [23, 0], [61, 0], [65, 1], [66, 1]]
    >>> print(column_profiles(ages, [0, 0, 0, 1, 1, 1], feature_names=["age", "member"]))
    column  effect  cluster 0      cluster 1
    age     0.85    23 (22 to 24)  65 (63 to 65.5)
    member  0.00    0 (0 to 0.5)   1 (0.5 to 1)
    """
    check_count("n_levels", n_levels)
    check_count("max_rows", max_rows)
    n = n_rows_of(X)
    if n < 1:
        raise ValueError("X has no rows. Pass at least one row.")
    clusters, codes = distinct_labels(labels_of_rows(labels, n))
    sizes = np.bincount(codes)
    rows = sampled_rows(codes, max_rows, check_random_state(random_state), 50)
    if rows.size < n:
        X, codes = take_rows(X, rows), codes[rows]
    names, columns = table_columns(X, feature_names)
    flags = [True] * len(names) if used is None else [bool(one) for one in used]
    if len(flags) != len(names):
        raise ValueError(
            f"used must have one entry for each of the {len(names)} columns of X, got "
            f"{len(flags)}."
        )
    with np.errstate(over="ignore", invalid="ignore"):  # differences of values near 1e308
        found = [
            _profile(column, is_used, codes, clusters.size, n_levels)
            for column, is_used in zip(columns, flags, strict=True)
        ]
    found.sort(key=lambda one: (not one.used, -np.nan_to_num(one.effect, nan=-1.0)))
    return ColumnProfiles(clusters.tolist(), sizes, found, rows.size)


def day_text(days: float) -> str:
    """Return a number of days since 1970 as an ISO date; empty for NaN."""
    return "" if np.isnan(days) else str(np.datetime64("1970-01-01") + int(np.floor(days)))


def take_rows(X: Any, rows: NDArray) -> Any:
    """Return rows of a table by their numbers."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return (X if hasattr(X, "shape") else np.asarray(X))[rows]


def _profile(column: Column, used: bool, codes: NDArray, k: int, n_levels: int) -> ColumnProfile:
    known = ~np.isnan(column.values)
    sizes = np.bincount(codes, minlength=k)
    missing = np.bincount(codes, weights=~known, minlength=k) / np.maximum(sizes, 1)
    shares = np.empty((k, 0))
    empty = ColumnProfile(column.name, "empty", used, np.nan, missing, None, None, [], shares)
    if not known.any():
        return empty
    if column.kind in ("ordinal", "category"):
        own = column.values[known].astype(np.int64)
        return _of_levels(empty, column, own, codes[known], k, n_levels)
    return _of_numbers(empty, column.values[known], column.kind, codes[known], k)


def _of_numbers(
    empty: ColumnProfile, values: NDArray, kind: str, codes: NDArray, k: int
) -> ColumnProfile:
    distinct = np.unique(values)
    inside = [values[codes == c] for c in range(k)]
    quartiles = np.array(
        [np.quantile(one, [0.25, 0.5, 0.75]) if one.size else np.full(3, np.nan) for one in inside]
    )
    if distinct.size <= 12 and kind == "number":  # one bar per value
        edges, levels = None, [f"{value:.6g}" for value in distinct]
        bins, n_bars = np.searchsorted(distinct, values), distinct.size
    else:
        edges, levels = _edges(values, inside), []
        n_bars = edges.size - 1
        bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, n_bars - 1)
    return replace(
        empty,
        kind=kind,
        effect=_rank_effect(values, codes, k),
        quartiles=quartiles,
        edges=edges,
        levels=levels,
        shares=_shares(bins, codes, k, n_bars),
        n_values=distinct.size,
        is_whole=kind == "number" and bool(np.all(distinct == np.rint(distinct))),
    )


def _edges(values: NDArray, inside: list[NDArray]) -> NDArray:
    """Return bin edges that cover most rows of the table and of every cluster."""
    # A small cluster of outliers must not determine the axis.
    large = [one for one in inside if one.size >= max(0.01 * values.size, 1)]
    reach = np.array([np.quantile(one, (0.02, 0.98)) for one in (values, *large)])
    low, high = float(reach[:, 0].min()), float(reach[:, 1].max())
    if not high > low:
        low, high = float(values.min()), float(values.max())
    if not high > low:  # one date
        low, high = low - 0.5, high + 0.5
    # Halved, so that the difference of huge values does not overflow.
    return 2.0 * np.linspace(low / 2, high / 2, 17)


def _of_levels(
    empty: ColumnProfile, column: Column, own: NDArray, codes: NDArray, k: int, n_levels: int
) -> ColumnProfile:
    texts, ranked, boolean = column.ranked()
    # A column is text if more than half of its values are distinct.
    is_ordered = column.kind == "ordinal"
    if ranked.size > max(0.5 * own.size, n_levels) and not is_ordered:
        return replace(empty, kind="text", n_values=ranked.size)
    kept = ranked
    # A single remaining level is shown by its name instead of "other".
    if ranked.size > n_levels + 1:
        counts = np.bincount(own, minlength=len(texts))[ranked]
        kept = ranked[np.sort(np.argsort(-counts, kind="stable")[:n_levels])]
    place = np.full(len(texts), kept.size)
    place[kept] = np.arange(kept.size)
    levels = [texts[i] for i in kept] + [OTHER] * (kept.size < ranked.size)
    return replace(
        empty,
        kind="boolean" if boolean else column.kind,
        effect=_rank_effect(own, codes, k) if is_ordered else _level_effect(own, ranked, codes, k),
        levels=levels,
        shares=_shares(place[own], codes, k, len(levels)),
        n_values=ranked.size,
    )


def _shares(bins: NDArray, codes: NDArray, k: int, n_bars: int) -> NDArray:
    """Return the fraction of the known values of each cluster in each bar, NaN without values."""
    counts = np.bincount(codes * n_bars + bins, minlength=k * n_bars).reshape(k, n_bars)
    totals = counts.sum(axis=1, keepdims=True)
    return counts / np.where(totals > 0, totals, np.nan)


def _rank_effect(values: NDArray, codes: NDArray, k: int) -> float:
    """Return the correlation ratio of ranks, corrected for chance (epsilon squared)."""
    groups = [values[codes == c] for c in range(k)]
    groups = [one for one in groups if one.size]
    n_more = values.size - len(groups)
    if len(groups) < 2 or n_more < 1 or np.ptp(values) == 0:
        return 0.0
    return float(np.sqrt(max(0.0, (kruskal(*groups).statistic - len(groups) + 1) / n_more)))


def _level_effect(own: NDArray, ranked: NDArray, codes: NDArray, k: int) -> float:
    """Return Cramér's V with Bergsma's correction; rare levels are merged."""
    place = np.full(own.max() + 1, MAX_LEVELS)
    place[ranked[:MAX_LEVELS]] = np.arange(min(ranked.size, MAX_LEVELS))
    table = np.bincount(codes * (MAX_LEVELS + 1) + place[own], minlength=k * (MAX_LEVELS + 1))
    table = table.reshape(k, MAX_LEVELS + 1).astype(np.float64)
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    n, (r, c) = own.size, table.shape
    if min(r, c) < 2 or n < 2:
        return 0.0
    phi = chi2_contingency(table, correction=False).statistic / n
    phi = max(0.0, phi - (r - 1) * (c - 1) / (n - 1))
    r_fair, c_fair = r - (r - 1) ** 2 / (n - 1), c - (c - 1) ** 2 / (n - 1)
    return float(np.sqrt(min(phi / max(min(r_fair, c_fair) - 1, 1e-12), 1.0)))
