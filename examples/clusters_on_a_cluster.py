"""
Large data on a dask cluster
============================

This script fits clusterers to rows in files, on a dask cluster of two worker processes. Only a
sample of a few thousand rows is loaded into this process. Run it as
``python clusters_on_a_cluster.py``.
"""

import tempfile
from pathlib import Path

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from sklearn.metrics import adjusted_rand_score

from volmar import CPMMC, MSPC, AutoClusterer
from volmar.distributed import report_passes

ROWS, FEATURES, FILES = 10_000, 10, 8


def write_rows(folder):
    """Write files with rows of three groups, to stand for existing data."""
    rng = np.random.default_rng(0)
    centers = np.array([[0.0, 0.0, 0.0], [2.0, 7.0, 2.0], [-4.0, 2.0, 6.0]])
    for number in range(FILES):
        X = rng.normal(size=(ROWS, FEATURES))
        X[:, :3] += centers[rng.choice(3, ROWS, p=[0.5, 0.3, 0.2])]
        np.save(folder / f"part-{number}.npy", X)


def read_rows(folder):
    """Return a dask array with one block per file, read by the workers when needed."""
    paths = sorted(folder.glob("part-*.npy"))
    blocks = [dask.delayed(np.load)(path) for path in paths]
    return da.concatenate([da.from_delayed(b, (ROWS, FEATURES), np.float64) for b in blocks])


def main():
    """Start a cluster, write the rows, fit two clusterers and print the results."""
    with (
        tempfile.TemporaryDirectory() as name,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        folder = Path(name)
        write_rows(folder)
        X = read_rows(folder).persist()  # workers keep X in memory; omit if it does not fit
        with report_passes(print_pass):
            model = MSPC(random_state=0).fit(X)
        print("sizes:", np.bincount(model.labels_.compute()))
        print("worst-case separation:", round(model.msp_, 2))
        strongest = np.abs(model.coef_[0] * X.std(axis=0).compute()).argmax()
        print("the feature that drives the split:", strongest)
        confident = abs(model.decision_function(X)) > 0.5  # lazy, in blocks like X
        print("share of rows far from the border:", round(float(confident.mean().compute()), 2))

        # Find the number of clusters in a sample, then fit MSPC and CPMMC with that number.
        k = AutoClusterer(random_state=0).fit(X[::20].compute()).n_clusters_
        found = MSPC(k, random_state=0).fit(X)
        print("clusters:", k, np.bincount(found.labels_.compute()))
        margins = CPMMC(k, random_state=0).fit(X)
        same = adjusted_rand_score(found.labels_.compute(), margins.labels_.compute())
        print("agreement of both:", round(same, 2))


def print_pass(report):
    """Print one line per pass over the rows."""
    print(f"pass {report.number}: {', '.join(report.figures)} of {report.n_rows} rows")


if __name__ == "__main__":
    main()
