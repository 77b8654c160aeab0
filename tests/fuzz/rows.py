"""Hostile matrices: values, scales, dtypes, layouts and containers, as lines of a script."""

import re

# Lines in braces are formatted with the numbers of the draw; X is the name of the matrix.
VALUES = (
    "rng.normal(size=(n, p))",
    "rng.normal(size=(n, p)) + 6.0 * rng.integers(3, size=(n, 1))",
    "rng.normal(size=(n, p)) + 9.0 * (rng.random((n, 1)) < 0.2)",
    "rng.uniform(size=(n, p))",
    "rng.exponential(size=(n, p)) * (rng.random((n, p)) < 0.3)",
    "rng.integers(3, size=(n, p)).astype(float)",
    "rng.standard_cauchy(size=(n, p))",
)
DEGENERATE = (
    "np.zeros((n, p))",
    "np.full((n, p), rng.normal())",
    "np.array([[0.0] * p, [1.0] * p])[rng.integers(2, size=n)]",
    "np.array([[0.0] * p, [1.0] * p])[rng.integers(2, size=n)] * rng.normal(size=p)",
    "rng.normal(size=(3, p))[rng.integers(3, size=n)]",
    "np.repeat(rng.normal(size=((n + 1) // 2, p)), 2, axis=0)[:n]",
    "np.outer(rng.normal(size=n), rng.normal(size=p))",
    "np.eye(n, p)",
    "np.linspace(0.0, 1.0, n * p).reshape(n, p)",
    "rng.normal(size=(1, p)) + np.zeros((n, 1)) + 1e-14 * rng.normal(size=(n, p))",
    "np.tile(rng.normal(size=(n, 1)), p)",
)
SQUARES = (
    "(lambda A: A @ A.T)(rng.normal(size=(n, p)))",
    "np.exp(-((rng.normal(size=n)[:, None] - rng.normal(size=n)) ** 2))",
    "(lambda x: np.exp(-((x[:, None] - x) ** 2)))(rng.normal(size=n) + 4 * (np.arange(n) % 2))",
    "(lambda A: A + A.T)(rng.normal(size=(n, n)))",
    "rng.normal(size=(n, n))",
    "(lambda A: A + A.T)((rng.random((n, n)) < 0.2).astype(float))",
    "np.eye(n)",
    "-np.eye(n)",
    "np.eye(n, k=1) + np.eye(n, k=-1)",
    "np.zeros((n, n))",
    "np.ones((n, n))",
    "np.kron(np.eye(2), np.ones((n, n)))[:n, :n]",
    "rng.uniform(size=(n, n + 1))",
)
SCALES = (
    "X = X * 1e{hundreds}",
    "X = X * 1e{tens}",
    "X = X * 10.0 ** rng.uniform(-160, 148, X.shape[1])",
    "X = X * 10.0 ** rng.uniform(-8, 8, X.shape[1])",
    "X = X * 10.0 ** rng.uniform(-12, 12, (X.shape[0], 1))",
    "X = X + 1e{offset}",
    "X = np.vstack([X[:-1], X[-1:] * 1e{outlier}])",
    "X.flat[:1] = 1e{outlier}",
    "X.flat[:1] = -1e{outlier}",
    "X[:, :1] = 3.0",
    "X = X * 5e-324",
    "X = np.sign(X) * 1.7e308",
    "X = X * 1e-310",
    "X = -np.abs(X)",
    "X.flat[:2] = -0.0",
)
NOT_FINITE = (
    "X.flat[-1:] = np.nan",
    "X.flat[:1] = np.inf",
    "X.flat[:1] = -np.inf",
    "X[:] = np.nan",
    "X[:, 0] = np.nan",
)
FLOATS = ("np.float32", "np.float32", "np.float16", "np.longdouble")
INTEGERS = (
    *("bool", "np.int8", "np.int16", "np.int32", "np.int64"),
    *("np.uint8", "np.uint16", "np.uint32", "np.uint64"),
)
DTYPES = (
    *(f"X = X.astype({name})" for name in FLOATS),
    *(f"X = (4 * X).astype({name})" for name in INTEGERS),
    "X = X.astype(object)",
    "X = X.astype(object); X.flat[:1] = '1.5'",
    "X = X.astype(object); X.flat[:1] = None",
    "X = X.astype(object); X.flat[:1] = 'a'",
    "X = X.astype(complex)",
    "X = X + 1j",
    "X = X.astype(str)",
    "X = X.astype('S8')",
    "X = np.array(X, dtype='M8[s]')",
)
LAYOUTS = (
    "X = np.asfortranarray(X)",
    "X = np.repeat(X, 2, axis=0)[::2]",
    "X = np.repeat(X, 3, axis=1)[:, ::3]",
    "X = np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1]",
    "X.flags.writeable = False",
    "X = np.frombuffer(X.tobytes(), X.dtype).reshape(X.shape)",
    "X = X.astype(X.dtype.newbyteorder('>'))",
    "X = np.broadcast_to(X[:1], X.shape)",
    "X = np.lib.stride_tricks.as_strided(X, X.shape, (0, X.strides[1]))",
)
# Usual containers of rows, and objects that are not matrices.
CONTAINERS = (
    "X = X.tolist()",
    "X = tuple(map(tuple, X))",
    "X = list(X)",
    "X = np.ma.masked_array(X)",
    "X = np.ma.masked_array(X, mask=rng.random(X.shape) < 0.1)",
    "X = np.asmatrix(X)",
    "X = X.ravel()",
    "X = X[0, 0]",
    "X = X[None]",
    "X = X[:0]",
    "X = X[:, :0]",
    "X = None",
    "X = 'rows'",
    "X = memoryview(np.ascontiguousarray(X))",
    "X = [list(row)[: i % 3 + 1] for i, row in enumerate(X)]",
    "X = np.rec.fromarrays(list(X.T))",
    "X = X[:, 0].astype(object)[:, None] * 10**30",
    "X = type('Rows', (), {'__array__': lambda self, dtype=None, copy=None, A=X: A})()",
    "X = [X, X]",
    "X = dict(enumerate(X))",
)
FRAMES = (
    "X = pd.DataFrame(X)",
    "X = pd.DataFrame(X, columns=[f'c{i}' for i in range(X.shape[1])])",
    "X = pd.DataFrame(X, index=rng.permutation(len(X)), columns=['a'] * X.shape[1])",
    "X = pd.DataFrame(X, index=np.zeros(len(X)), columns=[0, *'bcdefgh' * 20][: X.shape[1]])",
    "X = pd.DataFrame(X).convert_dtypes()",
    "X = pd.DataFrame(X).astype('Float64'); X.iloc[0, 0] = pd.NA",
    "X = pd.DataFrame(X).astype('float32')",
    # pandas makes no categories of float16.
    "X = pd.DataFrame(X).astype({0: object}).astype({0: 'category'})",
    "X = pd.DataFrame(X); X['text'] = 'a'",
    "X = pd.DataFrame(X); X['when'] = pd.Timestamp('2020-01-01')",
    "X = pd.DataFrame(X).astype(pd.SparseDtype('float64', 0.0))",
    "X = pd.Series(list(X))",
)
OTHER_FRAMES = {
    "import polars as pl": (
        "X = pl.DataFrame(X, schema=[f'c{i}' for i in range(X.shape[1])])",
        "X = pl.DataFrame(X.T.tolist(), schema=[f'c{i}' for i in range(X.shape[1])])",
        "X = pl.DataFrame(X).with_columns(pl.lit(None).alias('null'))",
        "X = pl.DataFrame(X).lazy()",
    ),
    "import pyarrow as pa": (
        "X = pa.table({f'c{i}': column for i, column in enumerate(X.T)})",
        "X = pa.table({f'c{i}': [None, *column[1:]] for i, column in enumerate(X.T)})",
    ),
    # On one thread, so that the first of several bad blocks is always the same.
    "import dask, dask.array as da; dask.config.set(scheduler='synchronous')": (
        "X = da.from_array(X, chunks=(max(len(X) // 3, 1), -1))",
    ),
}
SPARSE = (
    *(f"X = sparse.{name}_array(X)" for name in ("csr", "csc", "coo", "dia", "lil", "bsr", "dok")),
    *(f"X = sparse.{name}_matrix(X)" for name in ("csr", "csr", "csc", "coo", "bsr")),
)
SPARSE_FORMS = (
    (
        "X = sparse.csr_array(X); X.indices = X.indices.astype(np.int64); "
        "X.indptr = X.indptr.astype(np.int64)"
    ),
    (
        "X = sparse.csc_array(X); X.indices = X.indices.astype(np.int64); "
        "X.indptr = X.indptr.astype(np.int64)"
    ),
    "X = sparse.csr_array(X); X.indptr = X.indptr.astype(np.int64)",
    (
        "X = sparse.csr_array(X); X = sparse.csr_array((np.repeat(X.data, 2) / 2, "
        "np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape)"
    ),
    "X = sparse.csr_array(X); X.data[::3] = 0",
    "X = sparse.csr_array(np.zeros(X.shape)) if hasattr(X, 'shape') else X",
    "X = sparse.csr_array(X).astype(np.float32)",
    "X = sparse.csr_array(X); [a.setflags(write=False) for a in (X.data, X.indices, X.indptr)]",
    # Entries of each row from the last column to the first.
    (
        "X = sparse.csr_array(X); order = np.lexsort((-X.indices, np.repeat(range(X.shape[0]), "
        "np.diff(X.indptr)))); X = sparse.csr_array((X.data[order], X.indices[order], X.indptr), "
        "shape=X.shape)"
    ),
    (
        "X = sparse.coo_array(X); X = sparse.coo_array((np.tile(X.data, 2), (np.tile(X.row, 2), "
        "np.tile(X.col, 2))), shape=X.shape)"
    ),
)


def draw_size(draw, most=60):
    """Return numbers of rows and columns: mostly a few dozen rows, often fewer than five."""
    n = draw.whole(1, 5) if draw.chance(0.15) else draw.whole(6, most)
    p = draw.pick(1, 2, 2, 3, 3, 4, 5, 6)
    return n, (draw.whole(most, 2 * most) if draw.chance(0.04) else p)


def draw_matrix(draw, script, name="X", *, size=None, square=False, hostility=1.0):
    """Define a matrix in the script; a square one for similarities.

    `hostility` multiplies the probabilities of invalid or unusual input.
    """
    n, p = size or draw_size(draw)
    script.do(f"n, p = {n}, {p}")
    if square:
        lines = [f"{name} = {draw.pick(*SQUARES)}"]
    else:
        values = DEGENERATE if draw.chance(0.3 * hostility) else VALUES
        lines = [f"{name} = {draw.pick(*values)}"]
    lines += [_line(draw, SCALES, name) for _ in range(2) if draw.chance(0.2 * hostility)]
    if draw.chance(0.04 * hostility):
        lines.append(_line(draw, NOT_FINITE, name))
    if draw.chance(0.2 * hostility):
        lines.append(_line(draw, DTYPES, name))
    if draw.chance(0.15 * hostility):
        lines.append(_line(draw, LAYOUTS, name))
    if draw.chance(0.35 * hostility):
        lines += _container(draw, name)
    _run(script, lines)


def _container(draw, name):
    kind = draw.pick("plain", "pandas", "frame", "sparse", "sparse", "sparse form")
    if kind == "plain":
        return [_line(draw, CONTAINERS, name)]
    if kind == "pandas":
        return ["import pandas as pd", _line(draw, FRAMES, name)]
    if kind == "frame":
        needed = draw.pick(*OTHER_FRAMES)
        return [needed, _line(draw, OTHER_FRAMES[needed], name)]
    lines = [_line(draw, SPARSE if kind == "sparse" else SPARSE_FORMS, name)]
    return ["from scipy import sparse", *lines]


def _line(draw, lines, name):
    """Return one of the lines, with numbers and the name of the matrix in it."""
    line = draw.pick(*lines)
    for word, low, high in (
        ("hundreds", -300, 300),
        ("tens", -30, 30),
        ("offset", 2, 16),
        ("outlier", 1, 100),
    ):
        line = line.replace("{" + word + "}", str(draw.whole(low, high)))
    return _renamed(line, name)


def _renamed(line, name):
    """Return a line about X as one about `name`."""
    return line if name == "X" else re.sub(r"\bX\b", name, line)


def _run(script, lines):
    """Run lines, without those that fail for this matrix (such as text as int8)."""
    for line in lines:
        try:
            script.do(line)
        except (TypeError, ValueError, IndexError, AttributeError, OverflowError, KeyError):
            continue
        except Exception as error:  # exceptions of polars and pyarrow
            if not type(error).__module__.startswith(("polars", "pyarrow")):
                raise


WEIGHTS = (
    "rng.uniform(size=n)",
    "rng.integers(4, size=n)",
    "rng.integers(2, size=n).astype(float)",
    "np.ones(n)",
    "10.0 ** rng.uniform(-90, 90, n)",
    "10.0 ** rng.uniform(-12, 12, n)",
    "np.full(n, 1e90)",
    "np.full(n, 1e-90)",
    "np.full(n, 1e50)",
    "rng.uniform(size=n).astype(np.float32)",
    "rng.uniform(size=n).tolist()",
    "rng.random(n) < 0.5",
    "np.repeat(rng.uniform(size=n), 2)[::2]",
    "(np.arange(n) < 2) * 1.0",
    "2.5",
    "1",
)
WRONG_WEIGHTS = (
    "np.zeros(n)",
    "-rng.uniform(size=n)",
    "np.full(n, np.nan)",
    "np.r_[np.inf, np.ones(n - 1)]",
    "np.ones(n + 1)",
    "np.ones((n, 1))",
    "np.full(n, 1e200)",
    "np.full(n, 1e-200)",
    "np.full(n, 5e-324)",
    "0",
    "np.nan",
    "'balanced'",
    "np.array(['a'] * n)",
    "np.array([None] * n)",
    "np.ones(n) + 1j",
    "[]",
    "{}",
    "object()",
)


def draw_weights(draw, script, name="w"):
    """Define weights of the rows of the matrix drawn last, or None."""
    if draw.chance(0.5):
        script.do(f"{name} = None")
        return
    options = WRONG_WEIGHTS if draw.chance(0.2) else WEIGHTS
    script.do(f"{name} = {draw.pick(*options)}")
    if draw.chance(0.1):
        _run(script, ["import pandas as pd", f"{name} = pd.Series({name}, index=range(5, n + 5))"])
