"""``volmar cluster`` on a CSV file against pandas and k-means, each in a separate process.

The table has 100,000 rows of 50 columns in two groups. The rival reads it by `pandas.read_csv`,
standardises it and runs `KMeans(2, n_init=10)`; volmar also tests for the number of clusters
and writes labels. Both times include the start of the interpreter and imports. Times are medians.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.bench_separation import make_linear_split
from benchmarks.table import Table
from benchmarks.timing import in_turns

MAX_RATIO = 2.0
RIVAL = """
import sys
import pandas
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler
X = StandardScaler().fit_transform(pandas.read_csv(sys.argv[1]))
KMeans(2, n_init=10, random_state=0).fit(X)
"""


def run(*, full: bool) -> Table:
    table = Table(("rows", "columns", "command", "seconds", "of pandas + KMeans", "target"))
    n, d = 100_000, 50
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        X, _ = make_linear_split(n, d, seed=0)
        names = ",".join(f"x{j}" for j in range(d))
        np.savetxt(folder / "table.csv", X, "%.6g", ",", header=names, comments="")
        volmar = [sys.executable, "-m", "volmar", "cluster", str(folder / "table.csv"), "--force"]
        labels, page = str(folder / "labels.csv"), str(folder / "report.html")
        calls = {
            "volmar cluster -o": lambda: _call([*volmar, "-o", labels]),
            "volmar cluster -o --report": lambda: _call([*volmar, "-o", labels, "--report", page]),
            "pandas + KMeans": lambda: _call(
                [sys.executable, "-c", RIVAL, str(folder / "table.csv")]
            ),
        }
        timings = in_turns(calls, repeats=5 if full else 2, budget=120.0)
    rival = timings["pandas + KMeans"].median
    for key, timing in timings.items():
        ratio = timing.median / rival
        verdict = None
        if key == "volmar cluster -o":
            verdict = f"{MAX_RATIO:g}: {'met' if ratio <= MAX_RATIO else 'MISSED'}"
        table.add(n, d, key, timing.median, ratio, verdict)
    return table


def _call(command):
    subprocess.run(command, check=True, capture_output=True)
