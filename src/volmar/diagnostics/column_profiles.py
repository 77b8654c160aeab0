"""The columns of a table: as numerical features, and their distribution in every cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.stats import rankdata

from volmar._checks import as_float, check_count, check_random_state
from volmar.metrics.contingency import distinct_labels, is_missing, labels_of_rows, sampled_rows

# Maximum number of levels of a column that are compared, the most frequent ones.
MAX_LEVELS = 50
MISSING = "missing"


class CodedColumn(NamedTuple):
    """A column of levels: their indices in `values`, -1 for missing values."""

    codes: NDArray
    values: list[Any]
    ordered: bool = False


class DatedColumn(NamedTuple):
    """A column of dates, as days since 1970-01-01 (UTC), NaN for missing values."""

    days: NDArray


class Features(NamedTuple):
    """Columns as numbers, of shape (n, p), with names, kinds and levels as in the description.

    A column of numbers, ranks or dates (days since 1970-01-01) is one feature. A column of L
    levels has L features with values 0 and 1, or only one if L = 2, because the other would be
    redundant. A column with missing values has a further feature that is 1 for missing values; its
    other features are NaN there.
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


def _as_float64(values: NDArray) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):  # long doubles; infinity counts as missing
        return values.astype(np.float64)


def as_features(X: Any, names: list[str] | None) -> Features:
    """Return the features of an array, a CSR matrix or a DataFrame (pandas or polars)."""
    if sparse.issparse(X):
        return _sparse_features(X, names)
    if not _is_frame(X):
        X = np.asarray(X)
        if X.dtype.kind in "iuf":
            taken = _names_of(X, names)
            values, missing = _finite(_as_float64(X))
            d = X.shape[1]
            plain = Features(values, taken, ["number"] * d, [""] * d, {}, [])
            return plain if missing is None else _with_missing(plain, missing)
    taken, columns = table_columns(X, names)
    return _join(list(columns), taken)


def table_columns(
    X: Any, names: list[str] | None
) -> tuple[list[str], Iterator[NDArray | CodedColumn | DatedColumn]]:
    """Return the names of the columns of a table, and an iterator over its columns.

    Columns of numbers are float64 with NaN for missing values. All others are dates or levels.
    """
    if sparse.issparse(X):
        X = sparse.csc_array(X)
        taken = _names_of(X, names)
        return taken, (X[:, [j]].toarray().ravel().astype(np.float64) for j in range(X.shape[1]))
    if _is_frame(X):
        taken = _names_of(X, names)
        return taken, (_frame_column(X, j, name) for j, name in enumerate(taken))
    X = np.asarray(X)
    taken = _names_of(X, names)
    return taken, (_plain_column(X[:, j], name) for j, name in enumerate(taken))


def _is_frame(X: Any) -> bool:
    return hasattr(X, "columns") and hasattr(X, "dtypes")


def _names_of(X: Any, names: list[str] | None) -> list[str]:
    found = X.columns if _is_frame(X) else [f"x{j}" for j in range(X.shape[1])]
    if names is not None and len(names) != len(found):
        raise ValueError(
            f"feature_names must have one name for each of the {len(found)} columns of X, got "
            f"{len(names)} names."
        )
    return [str(name) for name in (found if names is None else names)]


def _finite(values: NDArray) -> tuple[NDArray, NDArray | None]:
    """Return values with NaN for infinities, and a mask of missing values (None if none)."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return values, None
    missing = ~np.isfinite(values)
    if not missing.any():
        return values, None
    return np.where(missing, np.nan, values), missing


def _with_missing(found: Features, missing: NDArray) -> Features:
    """Add a feature for each column with missing values."""
    some = np.flatnonzero(missing.any(axis=0))
    return found._replace(
        values=np.hstack([found.values, missing[:, some].astype(np.float64)]),
        columns=found.columns + [found.columns[j] for j in some],
        kinds=found.kinds + [MISSING] * some.size,
        levels=found.levels + [""] * some.size,
    )


def _sparse_features(X: Any, names: list[str] | None) -> Features:
    if X.dtype.kind == "c":
        raise TypeError(
            "X holds complex numbers, which have no order. Pass their real and imaginary parts as "
            "separate columns."
        )
    X = sparse.csr_array(X).astype(np.float64)
    d = X.shape[1]
    taken = _names_of(X, names)
    wrong = int(np.count_nonzero(~np.isfinite(X.data)))
    if wrong:
        raise ValueError(
            f"X is sparse and has {wrong} missing or infinite values, which are not supported. "
            "Remove them, or pass a dense array."
        )
    return Features(X, taken, ["number"] * d, [""] * d, {}, [])


def _frame_column(X: Any, j: int, name: str) -> NDArray | CodedColumn | DatedColumn:
    if not hasattr(X, "iloc"):  # polars
        series = X[:, j]
        if series.dtype.is_numeric():
            return series.cast(float).fill_null(float("nan")).to_numpy()
        # Dates, durations, booleans and text as Python objects.
        return _plain_column(np.array([*series.to_list(), None], dtype=object)[:-1], name)
    import pandas as pd

    series = X.iloc[:, j]
    types = pd.api.types
    if isinstance(series.dtype, pd.SparseDtype):
        series = series.sparse.to_dense()
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        codes = series.cat.codes.to_numpy()
        return CodedColumn(codes, list(dtype.categories), bool(dtype.ordered))
    if isinstance(dtype, pd.PeriodDtype):
        series = series.dt.to_timestamp()
        dtype = series.dtype
    if isinstance(dtype, pd.DatetimeTZDtype):
        series = series.dt.tz_convert(None)
    if types.is_datetime64_any_dtype(dtype) or types.is_timedelta64_dtype(dtype):
        return _plain_column(series.to_numpy(), name)
    if types.is_numeric_dtype(dtype) and dtype.kind in "iuf":
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    if types.is_bool_dtype(dtype) or isinstance(dtype, pd.StringDtype):
        codes, values = pd.factorize(series)
        return CodedColumn(codes, list(values))
    return _plain_column(series.to_numpy(), name)


def _plain_column(column: NDArray, name: str) -> NDArray | CodedColumn | DatedColumn:
    """Return a column as numbers, dates or durations in days, or as codes if it is neither."""
    kind = column.dtype.kind
    if kind in "iuf":
        return _as_float64(column)
    if kind in "mM":
        days = _in_days(column)
        return days if kind == "m" else DatedColumn(days)
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
        numbers = np.array([*map(as_float, place), np.nan])
        return numbers[codes]
    if place and all(isinstance(value, date) for value in place):  # a datetime is a date
        known = np.array([_naive(value) for value in place], dtype="M8[us]")
        return DatedColumn(np.append(_in_days(known), np.nan)[codes])
    if place and all(isinstance(value, timedelta) for value in place):
        return np.array([*(value / timedelta(days=1) for value in place), np.nan])[codes]
    return CodedColumn(codes, list(place))


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


def _join(columns: list[NDArray | CodedColumn | DatedColumn], names: list[str]) -> Features:
    """Return the features of all columns."""
    found: list[tuple[NDArray, str, str, str]] = []
    orders: dict[str, list[str]] = {}
    notes: list[str] = []
    for name, column in zip(names, columns, strict=True):
        if isinstance(column, DatedColumn):
            values, missing = _finite(column.days)
            found.append((values, name, "date", ""))
        elif not isinstance(column, CodedColumn):
            values, missing = _finite(column)
            found.append((values, name, "number", ""))
        else:
            missing = column.codes < 0
            if column.ordered:
                orders[name] = [str(value) for value in column.values]
                found.append((np.where(missing, np.nan, column.codes), name, "ordinal", ""))
            else:
                for level, is_there in _levels(column, name, notes):
                    found.append((np.where(missing, np.nan, is_there), name, "share", level))
        if missing is not None and missing.any():
            found.append((missing.astype(np.float64), name, MISSING, ""))
    if not found:
        raise ValueError("X has no column that can be compared. Pass at least one such column.")
    blocks, of, kinds, levels = map(list, zip(*found, strict=True))
    return Features(np.column_stack(blocks), of, kinds, levels, orders, notes)


def _levels(column: CodedColumn, name: str, notes: list[str]) -> Iterator[tuple[str, NDArray]]:
    """Yield the most frequent levels, each with a mask of its rows."""
    known = column.codes[column.codes >= 0]
    counts = np.bincount(known, minlength=len(column.values))
    texts = [str(value) for value in column.values]
    if np.count_nonzero(counts) == known.size > 2:
        notes.append(f"column {name!r} has a different value in every row and is not compared")
        return
    # Most frequent first, ties by name. Of two levels only one is used: True, or the rarer one.
    ranked = sorted(np.flatnonzero(counts), key=lambda i: (-counts[i], texts[i]))
    if {texts[i] for i in ranked} == {"True", "False"}:
        ranked.sort(key=lambda i: texts[i])
    if len(ranked) > MAX_LEVELS:
        notes.append(
            f"only the {MAX_LEVELS} most frequent of the {len(ranked)} values of column {name!r} "
            "are compared"
        )
    for i in ranked[1:] if len(ranked) == 2 else ranked[:MAX_LEVELS]:
        yield texts[i], column.codes == i


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
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "ColumnProfiles.to_frame needs pandas: pip install 'volmar[io]'. Without it, use "
                "the list `columns`."
            ) from error
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
                        values = [pd.Timestamp(day_text(value)) for value in values]
                    row |= dict(zip(("q25", "median", "q75"), values, strict=True))
                elif (top := one.top_level(i)) is not None:
                    row |= dict(zip(("level", "share"), top, strict=True))
                rows.append(row)
        names = ["column", "kind", "used", "effect", "cluster", "size", "missing"]
        return pd.DataFrame(rows, columns=[*names, "q25", "median", "q75", "level", "share"])

    def __str__(self) -> str:
        """Return a table of the columns, with the median or most frequent level per cluster."""
        head = ["column", "effect", *(f"cluster {label}" for label in self.clusters)]
        lines = [head]
        for one in self.columns:
            effect = "" if np.isnan(one.effect) else f"{one.effect:.2f}"
            cells = [self._cell(one, i) for i in range(len(self.clusters))]
            name = one.name if one.used else f"{one.name} (left out)"
            lines.append([name, effect, *cells])
        widths = [max(len(line[j]) for line in lines) for j in range(len(head))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )

    def _cell(self, one: ColumnProfile, i: int) -> str:
        if one.quartiles is not None:
            low, middle, high = one.quartiles[i]
            if np.isnan(middle):
                return "missing"
            if one.kind == "date":
                return f"{day_text(middle)} ({day_text(low)} to {day_text(high)})"
            return f"{middle:.4g} ({low:.4g} to {high:.4g})"
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
    names, columns = table_columns(X, None if feature_names is None else list(feature_names))
    flags = [True] * len(names) if used is None else [bool(one) for one in used]
    if len(flags) != len(names):
        raise ValueError(
            f"used must have one entry for each of the {len(names)} columns of X, got "
            f"{len(flags)}."
        )
    with np.errstate(over="ignore", invalid="ignore"):  # differences of values near 1e308
        found = [
            _profile(column, name, is_used, codes, clusters.size, n_levels)
            for column, name, is_used in zip(columns, names, flags, strict=True)
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


def _profile(
    column: Any, name: str, used: bool, codes: NDArray, k: int, n_levels: int
) -> ColumnProfile:
    is_coded = isinstance(column, CodedColumn)
    kind = "date" if isinstance(column, DatedColumn) else "number"
    values = column.codes if is_coded else column.days if kind == "date" else column
    known = values >= 0 if is_coded else np.isfinite(values)
    sizes = np.bincount(codes, minlength=k)
    missing = np.bincount(codes, weights=~known, minlength=k) / np.maximum(sizes, 1)
    empty = ColumnProfile(
        name, "empty", used, np.nan, missing, None, None, [], shares=np.empty((k, 0))
    )
    if not known.any():
        return empty
    if is_coded:
        return _of_levels(empty, column, values[known], codes[known], k, n_levels)
    return _of_numbers(empty, values[known], kind, codes[known], k)


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
    empty: ColumnProfile, column: CodedColumn, own: NDArray, codes: NDArray, k: int, n_levels: int
) -> ColumnProfile:
    texts = [str(value) for value in column.values]
    counts = np.bincount(own, minlength=len(texts))
    present = np.flatnonzero(counts)
    # A column is text if more than half of its values are distinct.
    if present.size > max(0.5 * own.size, n_levels) and not column.ordered:
        return replace(empty, kind="text", n_values=present.size)
    if column.ordered:
        kind, ranked = "ordinal", present
        effect = _rank_effect(own.astype(np.float64), codes, k)
    else:
        ranked = np.array(sorted(present, key=lambda i: (-counts[i], texts[i])))
        kind = "category"
        if {texts[i] for i in ranked} <= {"True", "False"}:
            # True comes first, because its share is of interest.
            kind, ranked = "boolean", np.array(sorted(ranked, key=lambda i: texts[i] == "False"))
        effect = _level_effect(own, ranked, codes, k)
    kept = ranked
    # A single remaining level is shown by its name instead of "other".
    if ranked.size > n_levels + 1:
        common = ranked[np.argsort(-counts[ranked], kind="stable")[:n_levels]]
        kept = ranked[np.isin(ranked, common)]
    place = np.full(len(texts), kept.size)
    place[kept] = np.arange(kept.size)
    levels = [texts[i] for i in kept] + [OTHER] * (kept.size < ranked.size)
    shares = _shares(place[own], codes, k, len(levels))
    return replace(
        empty, kind=kind, effect=effect, levels=levels, shares=shares, n_values=present.size
    )


def _shares(bins: NDArray, codes: NDArray, k: int, n_bars: int) -> NDArray:
    """Return the fraction of the known values of each cluster in each bar, NaN without values."""
    counts = np.bincount(codes * n_bars + bins, minlength=k * n_bars).reshape(k, n_bars)
    totals = counts.sum(axis=1, keepdims=True)
    return counts / np.where(totals > 0, totals, np.nan)


def _rank_effect(values: NDArray, codes: NDArray, k: int) -> float:
    """Return the correlation ratio of ranks, corrected for chance (epsilon squared)."""
    n = values.size
    sizes = np.bincount(codes, minlength=k)
    groups = np.count_nonzero(sizes)
    ranks = rankdata(values)
    ranks -= ranks.mean()
    total = float(ranks @ ranks)
    if groups < 2 or n <= groups or total <= 0:
        return 0.0
    sums = np.bincount(codes, weights=ranks, minlength=k)
    between = float(np.sum(sums[sizes > 0] ** 2 / sizes[sizes > 0])) / total
    return float(np.sqrt(max(0.0, 1.0 - (1.0 - between) * (n - 1) / (n - groups))))


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
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    phi = float(np.sum((table - expected) ** 2 / expected)) / n
    phi = max(0.0, phi - (r - 1) * (c - 1) / (n - 1))
    r_fair, c_fair = r - (r - 1) ** 2 / (n - 1), c - (c - 1) ** 2 / (n - 1)
    return float(np.sqrt(min(phi / max(min(r_fair, c_fair) - 1, 1e-12), 1.0)))
