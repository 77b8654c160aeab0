"""Tables of pandas, polars and pyarrow whose columns have every dtype, names and indices."""

import datetime
import decimal

import pandas as pd
import polars as pl
import pyarrow as pa

D, T = datetime.date, datetime.datetime
#: Values that a column repeats, and dtypes of each library for them.
VALUES = {
    "numbers": [1, 2, 3, 5, 8],
    "fractions": [0.5, 1.25, None, 8.5, float("nan")],
    "huge": [2**63 - 1, -(2**63), 0, 1, 2],
    "longer": [10**400, 10**40, 1, 2, -(10**400)],
    "infinite": [float("inf"), 1.0, -float("inf"), 1e308, -1e308],
    "words": ["a", "b", None, "c c", ""],
    "odd words": ["\ud800", "\x1b[31m", "a\0b", "=1+1", "\u202e"],
    "numbers in words": ["1", "2.5", "1e999", "nan", "9" * 400],
    "truth": [True, False, None, True, True],
    "dates": [D(2020, 1, 1), D(1, 1, 1), D(9999, 12, 31), None, D(1970, 1, 1)],
    "times": [T(2020, 1, 1), T(1, 1, 1), T(9999, 12, 31), None, T(1970, 1, 1)],
    "hours": [datetime.time(1), datetime.time(2), None, datetime.time(3), datetime.time(4)],
    "lengths": [datetime.timedelta(1), None, datetime.timedelta(-1), datetime.timedelta(0)],
    "decimals": [decimal.Decimal("1.5"), None, decimal.Decimal("2"), decimal.Decimal("-1e30")],
    "signals": [decimal.Decimal("sNaN"), decimal.Decimal("Infinity"), decimal.Decimal(1)],
    "bytes": [b"a", b"\xff", None, b""],
    "lists": [[1], [1, 2], None, []],
    "records": [{"a": 1}, {"a": 2}, None],
    "complex": [1j, 2.0, 3 + 1j],
    "mixed": [1, "a", 2.5, None, True],
    "sets": [{1}, frozenset([2]), (1, 2), range(3), object],
    "nothing": [None],
}
PANDAS = (
    *("Int8", "Int64", "UInt16", "Float32", "boolean", "string", "category", "object", "float16"),
    *("float128", "complex128", "int8[pyarrow]", "double[pyarrow]", "string[pyarrow]", "str"),
    *(
        "bool[pyarrow]",
        "timestamp[s][pyarrow]",
        "date32[day][pyarrow]",
        "datetime64[s]",
        "Sparse[float]",
    ),
    *("period[D]", "timedelta64[s]", "datetime64[ns, UTC]", "interval"),
)
ARROW = (
    *(
        pa.int8(),
        pa.uint64(),
        pa.float16(),
        pa.float32(),
        pa.bool_(),
        pa.string(),
        pa.large_string(),
    ),
    *(pa.binary(), pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns", "UTC")),
    *(
        pa.time32("s"),
        pa.time64("ns"),
        pa.duration("us"),
        pa.decimal128(38, 3),
        pa.decimal256(60, 5),
    ),
    *(pa.null(), pa.list_(pa.int64()), pa.dictionary(pa.int8(), pa.string())),
    *([pa.string_view()] if hasattr(pa, "string_view") else []),
    *(pa.struct([("a", pa.int64())]), pa.dictionary(pa.int32(), pa.float64())),
)
POLARS = (
    *(pl.Int8, pl.UInt64, pl.Float32, pl.Boolean, pl.String, pl.Categorical, pl.Binary, pl.Date),
    *(
        pl.Datetime("ms"),
        pl.Datetime("us", "UTC"),
        pl.Duration,
        pl.Time,
        pl.Decimal(38, 2),
        pl.Null,
    ),
    *(pl.List(pl.Int64), pl.Array(pl.Int64, 2), pl.Struct({"a": pl.Int64}), pl.Object),
    pl.Int128,
    pl.Enum(["a", "b", "c c", ""]),
)
NAMES = (
    "a",
    "b",
    "word",
    "",
    "c",
    1,
    2.5,
    None,
    ("a", "b"),
    float("nan"),
    "x" * 5000,
    "\x1b[2J",
    "\ud800",
)


def draw_table(draw):
    """Return a table and a description of its columns."""
    n = draw.whole(2, 30)
    home = draw.pick("pandas", "pandas", "polars", "pyarrow")
    n_columns = draw.whole(1, 4)
    names = ["a", "b", "c", "d"][:n_columns]
    columns, said = {}, []
    for name in names:
        word = draw.pick(*VALUES, *["numbers"] * 6)
        if home == "polars" and word == "signals":  # for which it panics
            word = "decimals"
        values = (VALUES[word] * n)[:n]
        dtype = draw.pick(*{"pandas": PANDAS, "polars": POLARS, "pyarrow": ARROW}[home])
        column = None
        for wanted in (dtype, None):
            column = _column(home, values, wanted if draw.chance(0.7) else None)
            if column is not None:
                break
        if column is None:
            column = _column(home, list(range(n)), None)
        columns[name] = column
        said.append(f"{word} as {column.type if home == 'pyarrow' else column.dtype}")
    columns["x"] = _column(home, list(draw.rng.normal(size=n)), None)
    text = f"{home}: {', '.join(said)}"
    if home == "polars":
        return pl.DataFrame(columns), text
    if home == "pyarrow":
        return pa.table(columns), text
    frame = pd.DataFrame(columns)
    if draw.chance(0.4):
        frame.columns = pd.Index([draw.pick(*NAMES) for _ in frame.columns], dtype=object)
        text += f", columns {list(frame.columns)!r:.200}"
    if draw.chance(0.1):
        frame.columns = pd.MultiIndex.from_tuples([("a", j) for j in range(len(frame.columns))])
    if draw.chance(0.3):
        frame.index = draw.pick(
            [0] * n, [f"r{i}" for i in range(n)], pd.date_range("2020", periods=n)
        )
    return frame, text


def _column(home, values, dtype):
    """Return a column, or None if the library does not accept these values for this dtype."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if home == "pandas":
                return pd.Series(values, dtype=dtype)
            if home == "polars":
                return pl.Series(values=values, dtype=dtype, strict=False)
            return pa.array(values, type=dtype, from_pandas=True)
        except Exception:  # all that these libraries raise
            return None
