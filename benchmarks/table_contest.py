"""Methods that cluster tables, and their results on draws of the kinds of tables.

Draws for development, with seeds that the committed table never uses::

    python -m benchmarks.table_contest --kinds customers survey --rows 1500 --draws 2 --ours
"""

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import cross_val_predict

from benchmarks import table_ours
from benchmarks.rivals import hdbscan, k_prototypes, kmeans_silhouette
from benchmarks.rivals.usual_preparation import usual_preparation
from benchmarks.table_data import FIRST_SEED_OF_DEVELOPMENT, KINDS, make_table
from benchmarks.timing import time_limit

OURS = table_ours.NAME
SUPERVISED = "supervised"
LIMIT_SECONDS = 120.0
MOST_CLUSTERS, SILHOUETTE_ROWS = 10, 5000


class Source(NamedTuple):
    """The input of a method: a table as a file, or as a DataFrame with known id columns."""

    path: Path
    frame: object
    id_columns: tuple[str, ...]

    @property
    def usual(self):
        """Return the table after the usual preparation."""
        return usual_preparation(self.frame, self.id_columns)


def _kmeans(source, seed):
    return kmeans_silhouette.find_clusters(
        source.usual.one_hot, seed, MOST_CLUSTERS, SILHOUETTE_ROWS
    )


def _hdbscan(source, seed):
    return hdbscan.find_clusters(source.usual.one_hot, seed)


def _k_prototypes(source, seed):
    return k_prototypes.find_clusters(*source.usual, seed)


_RIVALS = {kmeans_silhouette: _kmeans, hdbscan: _hdbscan, k_prototypes: _k_prototypes}
RIVALS = {rival.NAME: call for rival, call in _RIVALS.items() if rival.available()}
ABSENT = tuple(rival.NAME for rival in _RIVALS if not rival.available())
METHODS = {OURS: lambda source, seed: table_ours.find_clusters(source.path, seed), **RIVALS}


class Found(NamedTuple):
    """Result of a method on one table.

    Attributes
    ----------
    k : int
        Number of clusters, 0 if the method failed.
    n_groups : int
        Number of planted groups, 1 without groups.
    ari : float
        Adjusted Rand index with the planted groups; 0 if the method failed.
    seconds : float
        CPU time, including the preparation.
    error : str
        Error message; empty if the method did not fail.
    """

    k: int
    n_groups: int
    ari: float
    seconds: float
    error: str = ""

    @property
    def right(self):
        """Whether the number of clusters is that of the groups."""
        return self.k == self.n_groups


def found(method, source, truth, seed, limit=LIMIT_SECONDS):
    """Return the result of a method on a table, within the time limit."""
    groups = np.zeros(len(source.frame)) if truth is None else truth
    n_groups = len(np.unique(groups))
    start = time.process_time()
    try:
        with warnings.catch_warnings(), time_limit(limit):
            warnings.simplefilter("ignore")
            labels = np.asarray(method(source, seed))
    except Exception as error:  # every exception counts as a failure
        message = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return Found(0, n_groups, 0.0, time.process_time() - start, message)
    seconds = time.process_time() - start
    k = max(1, len(np.unique(labels[labels >= 0])))
    return Found(k, n_groups, float(adjusted_rand_score(groups, labels)), seconds)


def one_table(kind, n_rows, seed, methods=METHODS, *, supervised=True, limit=LIMIT_SECONDS):
    """Return the results of all methods on one table, by the name of the method.

    The entry `SUPERVISED` is the cross-validated ARI of a classifier trained on the groups of
    other rows. It measures the information on the groups that the columns contain.
    """
    frame, truth = make_table(kind, n_rows, seed)
    with tempfile.TemporaryDirectory() as folder:
        source = Source(Path(folder, "table.csv"), frame, KINDS[kind].id_columns)
        frame.to_csv(source.path, index=False)
        results = {
            name: found(METHODS[name], source, truth, seed=0, limit=limit) for name in methods
        }
    if supervised and truth is not None:
        results[SUPERVISED] = supervised_ari(source.usual.one_hot, truth)
    return results


def supervised_ari(X, truth):
    """Return the cross-validated ARI of the better of a linear and a nonlinear classifier."""
    classifiers = (
        LogisticRegression(C=0.1, max_iter=500),
        ExtraTreesClassifier(100, random_state=0),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return max(
            adjusted_rand_score(truth, cross_val_predict(one, X, truth, cv=5))
            for one in classifiers
        )


def measured(kinds, n_rows, seeds, n_rival_draws, methods=METHODS):
    """Return the results: {kind: {method: [Found of each seed]}}.

    Rivals and the classifier are run for the first `n_rival_draws` seeds only.
    """
    ours = [name for name in methods if name == OURS]
    calls = [(kind, seed, i < n_rival_draws) for kind in kinds for i, seed in enumerate(seeds)]
    every = Parallel(n_jobs=-1)(
        delayed(one_table)(
            kind,
            KINDS[kind].n_rows(n_rows),
            seed,
            methods if with_rivals else ours,
            supervised=with_rivals,
        )
        for kind, seed, with_rivals in calls
    )
    results = {}
    for (kind, _, _), by_method in zip(calls, every, strict=True):
        here = results.setdefault(kind, {})
        for method, one in by_method.items():
            here.setdefault(method, []).append(one)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED_OF_DEVELOPMENT)
    parser.add_argument("--ours", action="store_true", help="without the rivals")
    arguments = parser.parse_args()
    if arguments.first_seed < FIRST_SEED_OF_DEVELOPMENT:
        parser.error(f"--first-seed must be at least {FIRST_SEED_OF_DEVELOPMENT}.")
    for kind in arguments.kinds:
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.draws):
            results = one_table(
                kind,
                KINDS[kind].n_rows(arguments.rows),
                seed,
                [OURS] if arguments.ours else METHODS,
                supervised=not arguments.ours,
            )
            print(f"{kind}, seed {seed}, {KINDS[kind].n_groups} planted")
            for name, one in results.items():
                if name == SUPERVISED:
                    print(f"  {name:26s}        ARI {one:.3f}")
                    continue
                print(
                    f"  {name:26s} k = {one.k:<3d} ARI {one.ari:.3f} {one.seconds:6.1f} s "
                    f"{one.error}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
