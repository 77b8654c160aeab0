"""``python -m benchmarks.same_answers FILE``: labels of about 200 fits, stored or compared.

A change that only moves or removes code must not change them. The first run writes the labels to
FILE, and each later one prints the fits whose labels differ from those in FILE.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_blobs,
    make_circles,
    make_moons,
)
from sklearn.metrics import adjusted_rand_score

import volmar

METHODS = ("MSPC", "CPMMC", "KernelCPMMC", "SKMMC", "SoftLabelMVC")
NUMBERS = (2, 5)


def data_sets():
    """Return small data sets by name: easy, overlapping, curved, real and without groups."""
    rng = np.random.default_rng(0)
    digits = load_digits()
    few = np.isin(digits.target, (1, 7))
    return {
        "blobs2": make_blobs(300, 4, centers=2, random_state=1)[0],
        "blobs5": make_blobs(400, 3, centers=5, random_state=2)[0],
        "overlapping": make_blobs(400, 6, centers=3, cluster_std=4.0, random_state=3)[0],
        "unequal": np.vstack((rng.normal(size=(360, 3)), rng.normal(4, 0.5, size=(40, 3)))),
        "moons": make_moons(300, noise=0.06, random_state=4)[0],
        "circles": make_circles(300, noise=0.05, factor=0.4, random_state=5)[0],
        "noise": rng.normal(size=(300, 5)),
        "uniform": rng.uniform(size=(250, 2)),
        "skewed": rng.lognormal(size=(300, 4)),
        "wide": make_blobs(120, 200, centers=3, cluster_std=6.0, random_state=6)[0],
        "iris": load_iris().data,
        "wine": load_wine().data,
        "cancer": load_breast_cancer().data,
        "digits": digits.data[few].astype(np.float32),
    }


def fits():
    """Yield the name and the labels of each fit."""
    for name, X in data_sets().items():
        for method in METHODS:
            for k in NUMBERS:
                try:
                    labels = getattr(volmar, method)(k, random_state=0).fit(X).labels_
                except ValueError:
                    labels = np.full(len(X), -1)
                yield f"{name} {method}({k})", labels


def main():
    """Store the labels, or compare them with the stored ones."""
    path = Path(sys.argv[1])
    warnings.simplefilter("ignore")
    new = dict(fits())
    if not path.exists():
        np.savez_compressed(path, **new)
        print(f"{len(new)} fits stored in {path}")
        return
    old = np.load(path)
    differ = [name for name, labels in new.items() if not np.array_equal(labels, old[name])]
    for name in differ:
        print(f"{name}: adjusted Rand index {adjusted_rand_score(old[name], new[name]):.4f}")
    print(f"{len(new) - len(differ)} of {len(new)} fits have the same labels")


if __name__ == "__main__":
    main()
