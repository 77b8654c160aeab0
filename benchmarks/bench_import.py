"""Import time of volmar, and of all its estimators, against sklearn.cluster.

Each import runs in a new interpreter with a warm file cache; the target is at most 1.3 times.
"""

import subprocess
import sys

from benchmarks.table import Table
from benchmarks.timing import in_turns

STATEMENTS = {
    "import sklearn.cluster": "import sklearn.cluster",
    "import volmar": "import volmar",
    "from volmar import (all estimators)": (
        "import volmar; [getattr(volmar, name) for name in volmar.__all__]"
    ),
    "an empty interpreter": "",
}


def run(*, full: bool) -> Table:
    timings = in_turns(
        {name: lambda code=code: _interpreter(code) for name, code in STATEMENTS.items()},
        repeats=20 if full else 9,
    )
    rival = timings["import sklearn.cluster"].median
    table = Table(("statement", "median s", "spread s", "ratio to sklearn.cluster"))
    for name, timing in timings.items():
        table.add(name, timing.median, timing.spread, timing.median / rival)
    return table


def _interpreter(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)
