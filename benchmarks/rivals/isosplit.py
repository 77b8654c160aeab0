"""isosplit6, if installed; in a child process, because it aborts on singular rows."""

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

NAME = "isosplit6"
LIMIT_SECONDS = (
    10.0  # usual calls take less than a second, but calls with binary columns may not end
)
CHILD = """
import sys, numpy, isosplit6
numpy.save(sys.argv[2], isosplit6.isosplit6(numpy.load(sys.argv[1])))
"""


def available() -> bool:
    return find_spec("isosplit6") is not None


def find_clusters(X, seed):  # noqa: ARG001 -- it draws nothing at random
    """Return labels; raise an error if the child process failed or was stopped."""
    with tempfile.TemporaryDirectory() as folder:
        rows, labels = Path(folder, "rows.npy"), Path(folder, "labels.npy")
        np.save(rows, np.ascontiguousarray(X, dtype=np.float64))
        child = subprocess.run(
            [sys.executable, "-c", CHILD, rows, labels],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=LIMIT_SECONDS,
        )
        if child.returncode:
            raise RuntimeError(f"isosplit6 ended with exit status {child.returncode}.")
        return np.load(labels)
