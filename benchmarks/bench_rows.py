"""Row sources against the bare BLAS call: overhead of the protocol for one pass over X."""

import numpy as np
from scipy import sparse

from benchmarks.table import Table
from benchmarks.timing import in_turns
from volmar.rows.tiled import DenseRows, SparseRows


def run(*, full: bool) -> Table:
    rng = np.random.default_rng(0)
    table = Table(("data", "pass", "bare s", "volmar s", "volmar / bare"))
    for n, d, dtype in ((14_000, 784, np.float32), (100_000, 50, np.float64)):
        X = rng.standard_normal((n, d)).astype(dtype)
        w, v = rng.standard_normal(d).astype(dtype), rng.standard_normal(n).astype(dtype)
        rows = DenseRows(X).centered()
        name = f"dense {n} x {d} {dtype.__name__}"
        _compare(table, name, "scores", lambda: X @ w, lambda: rows.scores(w), full)
        _compare(table, name, "combine", lambda: X.T @ v, lambda: rows.combine(v), full)
        _compare(table, name, "moments", lambda: X.T @ X, rows.moments, full)
    S = sparse.random(100_000, 1000, 0.01, format="csr", random_state=0)
    w, v = rng.standard_normal(1000), rng.standard_normal(100_000)
    rows = SparseRows(S).centered()
    name = "CSR 100000 x 1000, 1 % float64"
    _compare(table, name, "scores", lambda: S @ w, lambda: rows.scores(w), full)
    _compare(table, name, "combine", lambda: S.T @ v, lambda: rows.combine(v), full)
    return table


def _compare(table, data, name, bare, ours, full):
    timings = in_turns({"bare": bare, "ours": ours}, repeats=51 if full else 15)
    one, two = timings["bare"].median, timings["ours"].median
    table.add(data, name, one, two, two / one)
