"""Data for the comparison of methods that find the number of clusters.

A case is a function of a random generator that returns rows and groups. Cases of one topic share a
table: "level" has one group, "power" two of them in a single column, "blobs", "equal distances"
and "tutorial" have round groups of unit variance, "bent" has groups that no hyperplane separates,
and "real" has the classes of data sets of this repository.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from benchmarks.bench_evidence import NOISES
from benchmarks.bench_multiway import BUILT_IN, FROM_FOLDER, GREY, rows_and_classes
from benchmarks.easy_data import KINDS
from reproduction.datasets import data_folder

__all__ = ["CASES", "Case"]

N_ROWS = 600
N_BLOBS, NUMBERS, DIMENSIONS = 1000, range(1, 11), (2, 10, 50)
SIZES = ("equal", "geometric")
# In standard deviations of a blob: minimum distance of two centres, root mean square in the box.
MINIMUM, USUAL = 5.0, 12.0
# Geometric sizes: ratio of successive sizes, and minimum of the smallest share, which may raise
# the ratio.
RATIO, SMALLEST = 0.6, 0.03
SEPARATIONS, SHARES, COLUMNS = (3, 4, 5, 6), (0.5, 0.3, 0.1, 0.05), (10, 50)
# Minimum power by separation, share and columns; our methods get more draws of these cases.
POWER_TARGETS = {(6, 0.3, 10): 0.98, (5, 0.1, 10): 0.85, (3, 0.5, 10): 0.40}
TARGET_FACTOR = 5
N_EQUAL, D_EQUAL = 2000, 8
TUTORIAL_ROWS, TUTORIAL_CENTRES, TUTORIAL_STD = 1000, 4, 0.6
N_REAL, REAL_COLUMNS = 2000, 10


class Case(NamedTuple):
    """A kind of data.

    Attributes
    ----------
    name : str
        Description in tables, unique in its topic.
    topic : str
        Table to which the case belongs.
    draw : callable
        Function of a random generator that returns rows and groups.
    factor : int
        Factor by which the methods of volmar get more draws than usual in the topic.
    """

    name: str
    topic: str
    draw: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]
    factor: int = 1


# ------------------------------------------------------------------ one group


def _around(angle, rng, noise=0.1):
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    return circle + noise * rng.normal(size=circle.shape)


def _dense_and_wide(d):
    """Two Gaussians with one centre, the second five times as wide."""

    def sample(rng, n):
        return rng.normal(size=(n, d)) * np.where(rng.random(n) < 0.5, 1.0, 5.0)[:, None]

    return sample


ONE_GROUP = {
    **{("uniform, d = 10" if name == "uniform" else name): draw for name, draw in NOISES.items()},
    "uniform square": lambda rng, n: rng.random((n, 2)),
    "ring": lambda rng, n: _around(rng.uniform(0, 2 * np.pi, n), rng),
    "bent band": lambda rng, n: _around(rng.uniform(0, np.pi, n), rng),
    "binary columns": lambda rng, n: 1.0 * (rng.random((n, 10)) < np.linspace(0.1, 0.5, 10)),
    "ordinal columns (1 to 5)": lambda rng, n: rng.integers(1, 6, (n, 10)).astype(float),
    "counts (Poisson, mean 2)": lambda rng, n: rng.poisson(2.0, (n, 10)).astype(float),
    "dense and wide, d = 2": _dense_and_wide(2),
    "dense and wide, d = 10": _dense_and_wide(10),
}


def _one_group(sample):
    return lambda rng: (sample(rng, N_ROWS), np.zeros(N_ROWS, dtype=int))


# ------------------------------------------------------------------ round groups


def _two_groups(separation, share, d):
    """Two groups that differ in one column, all columns standardised."""

    def draw(rng):
        y = (np.arange(N_ROWS) < round(share * N_ROWS)).astype(int)
        X = rng.normal(size=(N_ROWS, d))
        X[:, rng.integers(d)] += separation * y
        return StandardScaler().fit_transform(X), y

    return draw


def shares(k, sizes):
    """Return the share of each of k groups; geometric ones never fall below SMALLEST."""
    if sizes == "equal":
        return np.full(k, 1 / k)
    for ratio in np.arange(RATIO, 1.0, 0.01):
        parts = ratio ** np.arange(k)
        if parts[-1] >= SMALLEST * parts.sum():
            break
    return parts / parts.sum()


def centres(k, d, rng):
    """Return centres, uniform in a box, with pairwise distances of at least MINIMUM."""
    side = USUAL * np.sqrt(6.0 / d)
    found = np.empty((0, d))
    while len(found) < k:
        centre = side * rng.random(d)
        if (np.linalg.norm(found - centre, axis=1) >= MINIMUM).all():
            found = np.vstack([found, centre])
        elif rng.random() < 0.05:  # the earlier centres may leave no space for another one
            found = found[:0]
    return found


def _blobs(k, d, sizes):
    def draw(rng):
        ends = np.round(N_BLOBS * np.cumsum(shares(k, sizes))).astype(int)
        y = np.searchsorted(ends, np.arange(N_BLOBS), side="right")
        return centres(k, d, rng)[y] + rng.normal(size=(N_BLOBS, d)), y

    return draw


def _equal_distances(k, distance):
    """Equal groups, every pair of them `distance` standard deviations apart."""

    def draw(rng):
        turn = np.linalg.qr(rng.normal(size=(D_EQUAL, D_EQUAL)))[0]
        y = np.arange(N_EQUAL) % k
        X = rng.normal(size=(N_EQUAL, D_EQUAL))
        return X + turn[y] * distance / np.sqrt(2), y

    return draw


def _tutorial(rng):
    """Blobs as scikit-learn's tutorials draw them, seeds with overlapping centres left out."""
    while True:
        X, y, middles = make_blobs(
            TUTORIAL_ROWS,
            centers=TUTORIAL_CENTRES,
            cluster_std=TUTORIAL_STD,
            random_state=_seed(rng),
            return_centers=True,
        )
        apart = np.linalg.norm(middles[:, None] - middles, axis=2)
        if apart[np.triu_indices(len(middles), 1)].min() >= MINIMUM * TUTORIAL_STD:
            return X, y


def _seed(rng):
    return int(rng.integers(2**31 - 1))


# ------------------------------------------------------------------ bent groups, real sets


def _moons(noise):
    return lambda rng: make_moons(N_ROWS, noise=noise, random_state=_seed(rng))


def _circles(noise):
    return lambda rng: make_circles(N_ROWS, noise=noise, factor=0.5, random_state=_seed(rng))


def _real(name):
    """Return rows and classes of a data set; images as their first principal components."""

    def draw(rng):
        X, y = rows_and_classes(name, _seed(rng))
        rows = rng.permutation(len(y))[:N_REAL]
        X, y = X[rows], y[rows]
        return (PCA(REAL_COLUMNS, random_state=0).fit_transform(X) if name in GREY else X), y

    return draw


BENT = {
    "moons, noise .05": _moons(0.05),
    "moons, noise .1": _moons(0.1),
    "moons, noise .15": _moons(0.15),
    "circles, noise .05": _circles(0.05),
    "circles, noise .1": _circles(0.1),
}
ALSO_BENT = ("spirals, 600 rows", "waving bands, 600 rows", "a blob in a ring, 30/70")
BENT |= {kind.name: kind.draw for kind in KINDS if kind.name in ALSO_BENT}
REAL = (*BUILT_IN, *(FROM_FOLDER if data_folder() is not None else ()))


def power_name(separation, share, d):
    """Return the name of a case with two groups."""
    return f"{separation} sd, {share:.0%}, 1 of {d} columns"


def blobs_name(k, d, sizes):
    """Return the name of a case with blobs."""
    return f"d = {d}, {sizes}, k = {k}"


def distances_name(k, distance):
    """Return the name of a case with groups at equal distances."""
    return f"k = {k}, {distance} sd"


CASES = (
    *(Case(name, "level", _one_group(sample)) for name, sample in ONE_GROUP.items()),
    *(
        Case(
            power_name(separation, share, d),
            "power",
            _two_groups(separation, share, d),
            TARGET_FACTOR if (separation, share, d) in POWER_TARGETS else 1,
        )
        for d in COLUMNS
        for share in SHARES
        for separation in SEPARATIONS
    ),
    *(
        Case(blobs_name(k, d, sizes), "blobs", _blobs(k, d, sizes))
        for d in DIMENSIONS
        for sizes in SIZES
        for k in NUMBERS
    ),
    *(
        Case(distances_name(k, distance), "equal distances", _equal_distances(k, distance))
        for distance in (4, 5)
        for k in (3, 5, 8)
    ),
    Case("tutorial blobs", "tutorial", _tutorial),
    *(Case(name, "bent", draw) for name, draw in BENT.items()),
    *(Case(name, "real", _real(name)) for name in REAL),
)
