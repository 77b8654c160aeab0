"""Speed: every size for which the project has a target, against the rival of that target.

User times on one thread, both sides in turns in one process, medians. Rows are normal groups about
8 standard deviations apart, for which k-means needs few iterations. "before" is the same
measurement with the package of another checkout, in the folder VOLMAR_BEFORE. If the rival is
"itself, before", the ratio is that of the times of both checkouts, measured one after the other.
Seconds are those of volmar. Threads and dask have separate benchmarks (`threads`, `distributed`).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.table import Table, Target

HERE = Path(__file__).resolve().parents[1]
ITSELF = "itself, before"

# Work, rival, and maximum ratio (None: no target).
ROWS = (
    ("MSPC k=2, 200 x 10", "KMeans(n_init=10)", None),
    ("MSPC k=2, 10,000 x 20", "KMeans(n_init=1)", 2.0),
    ("MSPC k=2, 20,000 x 200", "KMeans(n_init=1)", None),
    ("MSPC k=2, 100,000 x 50", "KMeans(n_init=1)", 0.6),
    ("MSPC k=2, 1e6 x 50 f32", "KMeans(n_init=1)", 0.5),
    ("MSPC k=10, 10,000 x 20", "KMeans(n_init=10)", 2.0),
    ("MSPC k=10, 100,000 x 50", "KMeans(n_init=10)", 0.6),
    ("AutoClusterer, five groups, 10,000 x 20", "MSPC(5)", 3.0),
    ("AutoClusterer, five groups, 100,000 x 50", "MSPC(5)", 1.5),
    ("MSPC k=2, 120 x 5,000", "KMeans(n_init=10)", 1.5),
    ("MSPC k=2, 200 x 20,000", "KMeans(n_init=10)", None),
    ("MSPC k=2, sparse 20,000 x 50,000", "KMeans(n_init=10)", None),
    ("CPMMC k=2, 1e6 x 50 f32", "KMeans(n_init=10)", 0.15),
    ("CPMMC k=10, 100,000 x 50", "KMeans(n_init=10)", 0.3),
    ("SoftLabelMVC, 100,000 x 16, with neighbours", "exact neighbours of scikit-learn", 0.15),
    ("SoftLabelMVC, given graph of 100,000 x 16", ITSELF, 0.15),
    ("SoftLabelMVC, 1e6 x 2", ITSELF, None),
    ("SDPMMC, n = 1,000", ITSELF, 0.4),
    ("HardLabelMVC, n = 1,000", ITSELF, 0.4),
    ("GMMC, n = 1,000", ITSELF, None),
    ("IterSVR, 10,000 x 50", ITSELF, None),
    ("LGMMC, 10,000 x 50", ITSELF, None),
    ("predict: MSPC k=10, 1e6 x 50", "KMeans.predict", None),
    ("predict: KernelCPMMC k=2, 1e6 x 50", ITSELF, 0.2),
    ("memory beyond X: MSPC, 1e6 x 50", "X itself", 0.2),
    ("memory beyond X: CPMMC, 1e6 x 50", "X itself", 0.2),
)
# Work that the previous version cannot do, or only with all memory of the machine.
TOO_LARGE_BEFORE = ("MSPC k=2, 200 x 20,000", "MSPC k=2, sparse 20,000 x 50,000")


def run(*, full: bool) -> Table:
    table = Table(("work", "rival", "before", "now", "target", "met", "before s", "now s"))
    before = os.environ.get("VOLMAR_BEFORE")
    repeats = 5 if full else 3
    for work, rival, wanted in ROWS:
        now = measured(work, HERE, repeats)
        old = {}
        if before and work not in TOO_LARGE_BEFORE:
            old = measured(work, Path(before), repeats)
        ratio, former = now.get("ratio"), old.get("ratio")
        if rival == ITSELF and old and now:
            ratio, former = now["ours user"] / old["ours user"], 1.0
        bound, met = None, None
        if wanted is not None and ratio is not None:
            _, bound, met = Target(work, "", ratio, wanted, at_most=True).cells
        seconds = old.get("ours user"), now.get("ours user")
        table.add(work, rival, former, ratio, bound, met, *seconds)
        print(table.rows[-1], file=sys.stderr, flush=True)
    if not before:
        table.notes.append(
            "Rows against the method itself before need another checkout: VOLMAR_BEFORE=folder."
        )
    return table


def measured(work: str, checkout: Path, repeats: int) -> dict[str, float]:
    """Measure work in a separate process with the package of a checkout; {} if it fails."""
    environment = dict(os.environ, PYTHONPATH=f"{checkout / 'src'}{os.pathsep}{HERE}")
    command = [sys.executable, "-m", "benchmarks.speed_work", work, str(repeats)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"{work}: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return {}
    return json.loads(done.stdout)
