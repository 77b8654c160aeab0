"""Easy data of many kinds, each with the rivals that usually solve it.

A kind is a function of a random generator that returns rows and groups. Rows are used in the units
of the function, without standardisation. `shape` determines the reference methods: `KMeans` and
`GaussianMixture` for "round" and "stretched" groups, `SpectralClustering` for "bent" ones.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from sklearn.datasets import make_circles, make_moons

__all__ = ["KINDS", "Kind"]

Draw = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


class Kind(NamedTuple):
    """A kind of data.

    Attributes
    ----------
    name : str
        Description in tables.
    family : str
        Kinds that are counted together.
    shape : {"round", "stretched", "bent"}
        Shape of the groups, which determines the reference methods.
    draw : callable
        Function of a random generator that returns rows and groups.
    noise_columns : bool
        Whether most columns are pure noise.
    """

    name: str
    family: str
    shape: str
    draw: Draw
    noise_columns: bool = False


def _sizes(n, shares):
    ends = np.round(n * np.cumsum(shares) / np.sum(shares)).astype(int)
    return np.diff(ends, prepend=0)


def _labels(n, shares):
    return np.repeat(np.arange(len(shares)), _sizes(n, shares))


def _two(n, d, distance, share, informative=None):
    """Two spherical groups, `distance` standard deviations apart in all (or some) columns."""

    def draw(rng):
        y = _labels(n, (1 - share, share))
        X = rng.normal(size=(n, d))
        used = d if informative is None else informative
        X[:, :used] += np.outer(y, np.full(used, distance / np.sqrt(used)))
        return X, y

    return draw


def _many(n, d, shares, spread, least):
    """Spherical groups whose centres are at least `least` standard deviations apart."""

    def draw(rng):
        k = len(shares)
        side = spread
        while True:
            centres = rng.uniform(-side, side, size=(k, d))
            gaps = np.linalg.norm(centres[:, None] - centres, axis=2)[np.triu_indices(k, 1)]
            if gaps.min() >= least:
                break
            side *= 1.02
        y = _labels(n, shares)
        return centres[y] + rng.normal(size=(n, d)), y

    return draw


def _line(n, d, shares, distance):
    """Put groups in a line along one column; the other columns are noise."""

    def draw(rng):
        y = _labels(n, shares)
        X = rng.normal(size=(n, d))
        X[:, 0] += distance * y
        return X, y

    return draw


def _stretched(n, share, length, distance):
    """Two groups beside each other, each `length` times as long as wide, at a random angle."""

    def draw(rng):
        y = _labels(n, (1 - share, share))
        X = rng.normal(size=(n, 2)) * [length, 1.0]
        X[:, 1] += distance * y
        angle = rng.uniform(0, np.pi)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        return X @ turn.T, y

    return draw


def _correlated(n, d, shares, distance, condition):
    """Give groups one covariance, their means `distance` of its standard deviations apart."""

    def draw(rng):
        turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
        root = turn * np.sqrt(np.geomspace(1.0, condition, d))
        y = _labels(n, shares)
        simplex = np.eye(len(shares), d) * distance / np.sqrt(2)
        return (rng.normal(size=(n, d)) + simplex[y]) @ root.T, y

    return draw


def _in_units(draw_rows, decades):
    """Scale each column to a different unit."""

    def draw(rng):
        X, y = draw_rows(rng)
        return X * 10.0 ** rng.uniform(-decades / 2, decades / 2, size=X.shape[1]), y

    return draw


def _beside(draw_rows, *columns):
    """Append unrelated columns, drawn by functions of (rng, n)."""

    def draw(rng):
        X, y = draw_rows(rng)
        return np.column_stack([X, *(column(rng, len(y)) for column in columns)]), y

    return draw


def _with_outliers(draw_rows, share, reach):
    """Move some rows far out, into a box `reach` times as wide as the rows."""

    def draw(rng):
        X, y = draw_rows(rng)
        chosen = rng.choice(len(y), max(1, round(share * len(y))), replace=False)
        half = 0.5 * np.ptp(X, axis=0)
        X[chosen] = X.mean(axis=0) + rng.uniform(-reach, reach, (len(chosen), X.shape[1])) * half
        return X, y

    return draw


def _noise(n, d, share, distance, sample):
    """Two groups, spread by `sample`, `distance` apart in every column."""

    def draw(rng):
        y = _labels(n, (1 - share, share))
        return sample(rng, (n, d)) + distance * y[:, None], y

    return draw


def _rounded(draw_rows, step):
    """Round values to multiples of `step`."""

    def draw(rng):
        X, y = draw_rows(rng)
        return np.round(X / step) * step, y

    return draw


def _seed(rng):
    return int(rng.integers(2**31 - 1))


def _moons(n, noise, share=0.5):
    def draw(rng):
        sizes = tuple(int(size) for size in _sizes(n, (1 - share, share)))
        return make_moons(sizes, noise=noise, random_state=_seed(rng))

    return draw


def _circles(n, noise, factor):
    def draw(rng):
        return make_circles(n, noise=noise, factor=factor, random_state=_seed(rng))

    return draw


def _rings(n, radii, noise, shares):
    def draw(rng):
        y = _labels(n, shares)
        angle = rng.uniform(0, 2 * np.pi, n)
        radius = np.asarray(radii)[y]
        X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
        return X + noise * rng.normal(size=(n, 2)), y

    return draw


def _spirals(n, turns, noise):
    def draw(rng):
        y = _labels(n, (1, 1))
        along = np.sqrt(rng.uniform(0.03, 1.0, n))
        angle = 2 * np.pi * turns * along + np.pi * y
        X = (along * np.array([np.cos(angle), np.sin(angle)])).T
        return X + noise * rng.normal(size=(n, 2)), y

    return draw


def _waves(n, distance, noise, share=0.5):
    """Two bands, one above the other, that follow a wave."""

    def draw(rng):
        y = _labels(n, (1 - share, share))
        x = rng.uniform(0, 3 * np.pi, n)
        return np.column_stack([x, np.sin(x) + distance * y + noise * rng.normal(size=n)]), y

    return draw


def _bands(n, length, distance):
    """Two straight bands, uniform along them."""

    def draw(rng):
        y = _labels(n, (1, 1))
        return np.column_stack([rng.uniform(0, length, n), rng.normal(size=n) + distance * y]), y

    return draw


def _embedded(draw_rows, d, noise):
    """Rotate rows at random into d columns, and add a little noise to all of them."""

    def draw(rng):
        X, y = draw_rows(rng)
        basis = np.linalg.qr(rng.normal(size=(d, X.shape[1])))[0]
        return X @ basis.T + noise * rng.normal(size=(len(y), d)), y

    return draw


def _binary(p):
    return lambda rng, n: (rng.random(n) < p).astype(float)


def _likert(rng, n):
    return rng.integers(1, 6, n).astype(float)


def _counts(rng, n):
    return rng.poisson(2.0, n).astype(float)


def _grade(rng, n):
    return rng.choice([0.0, 1.0, 2.0], n, p=[0.5, 0.3, 0.2])


def _one_column(name, *arguments):
    return Kind(name, "one column", "round", _two(*arguments, informative=1), noise_columns=True)


PLAIN = _two(400, 4, 8.0, 0.3)
KINDS = (
    Kind("2 columns, 50/50, 8 sd", "round", "round", _two(400, 2, 8.0, 0.5)),
    Kind("2 columns, 50/50, 5 sd", "round", "round", _two(400, 2, 5.0, 0.5)),
    Kind("2 columns, 70/30, 6 sd", "round", "round", _two(400, 2, 6.0, 0.3)),
    Kind("2 columns, 80/20, 6 sd", "round", "round", _two(400, 2, 6.0, 0.2)),
    Kind("2 columns, 90/10, 8 sd", "round", "round", _two(400, 2, 8.0, 0.1)),
    Kind("2 columns, 95/5, 8 sd", "round", "round", _two(600, 2, 8.0, 0.05)),
    Kind("80 rows, 2 columns, 75/25, 6 sd", "round", "round", _two(80, 2, 6.0, 0.25)),
    Kind("10 columns, 50/50, 6 sd", "round", "round", _two(400, 10, 6.0, 0.5)),
    Kind("10 columns, 90/10, 8 sd", "round", "round", _two(400, 10, 8.0, 0.1)),
    Kind("50 columns, 80/20, 8 sd", "round", "round", _two(500, 50, 8.0, 0.2)),
    Kind("100 columns, 50/50, 8 sd", "round", "round", _two(800, 100, 8.0, 0.5)),
    Kind("5000 rows, 10 columns, 70/30, 6 sd", "round", "round", _two(5000, 10, 6.0, 0.3)),
    _one_column("1 of 10, 70/30, 6 sd", 400, 10, 6.0, 0.3),
    _one_column("1 of 10, 90/10, 8 sd", 400, 10, 8.0, 0.1),
    _one_column("1 of 10, 80/20, 5 sd", 400, 10, 5.0, 0.2),
    _one_column("1 of 50, 50/50, 6 sd", 400, 50, 6.0, 0.5),
    _one_column("1 of 100, 50/50, 6 sd", 800, 100, 6.0, 0.5),
    _one_column("5000 rows, 1 of 100, 80/20, 6 sd", 5000, 100, 6.0, 0.2),
    Kind(
        "4 of 40, 60/40, 6 sd",
        "one column",
        "round",
        _two(500, 40, 6.0, 0.4, informative=4),
        noise_columns=True,
    ),
    Kind("stretched 8 times, 50/50, 6 sd", "stretched", "stretched", _stretched(400, 0.5, 8, 6.0)),
    Kind("stretched 5 times, 80/20, 7 sd", "stretched", "stretched", _stretched(400, 0.2, 5, 7.0)),
    Kind("straight bands, 7 sd", "stretched", "stretched", _bands(500, 40.0, 7.0)),
    Kind(
        "correlated, 5 columns, 50/50, 6 sd",
        "stretched",
        "stretched",
        _correlated(400, 5, (1, 1), 6.0, 25.0),
    ),
    Kind(
        "correlated, 10 columns, 75/25, 7 sd",
        "stretched",
        "stretched",
        _correlated(600, 10, (3, 1), 7.0, 100.0),
    ),
    Kind(
        "units over 1e4, 4 columns, 70/30, 8 sd",
        "stretched",
        "stretched",
        _in_units(PLAIN, 4.0),
    ),
    Kind(
        "units over 1e4, 10 columns, 50/50, 8 sd",
        "stretched",
        "stretched",
        _in_units(_two(1000, 10, 8.0, 0.5), 4.0),
    ),
    Kind(
        "integers of 0 to 20",
        "columns of few values",
        "round",
        _rounded(_two(400, 3, 8.0, 0.3), 1.0),
    ),
    Kind(
        "a binary column beside",
        "columns of few values",
        "round",
        _beside(PLAIN, _binary(0.5)),
    ),
    Kind(
        "five binary columns beside",
        "columns of few values",
        "round",
        _beside(PLAIN, *(_binary(p) for p in (0.5, 0.4, 0.3, 0.2, 0.1))),
    ),
    Kind(
        "Likert, counts and grades beside",
        "columns of few values",
        "round",
        _beside(_two(600, 3, 8.0, 0.2), _likert, _likert, _counts, _grade),
    ),
    Kind(
        "rare binary columns beside, 10 columns",
        "columns of few values",
        "round",
        _beside(_two(800, 10, 8.0, 0.4), _binary(0.05), _binary(0.1), _likert),
    ),
    Kind(
        "1 % outliers, 2 columns, 60/40",
        "outliers and tails",
        "round",
        _with_outliers(_two(500, 2, 8.0, 0.4), 0.01, 2.0),
    ),
    Kind(
        "1 % outliers, 10 columns, 80/20",
        "outliers and tails",
        "round",
        _with_outliers(_two(500, 10, 8.0, 0.2), 0.01, 2.0),
    ),
    Kind(
        "t(3) tails, 2 columns, 60/40",
        "outliers and tails",
        "round",
        _noise(500, 2, 0.4, 8.0, lambda rng, size: rng.standard_t(3, size)),
    ),
    Kind(
        "exponential, 3 columns, 70/30",
        "outliers and tails",
        "round",
        _noise(500, 3, 0.3, 6.0, lambda rng, size: rng.exponential(size=size)),
    ),
    Kind(
        "uniform squares, 50/50",
        "outliers and tails",
        "round",
        _noise(400, 2, 0.5, 1.3, lambda rng, size: rng.random(size)),
    ),
    Kind("3 groups, 2 columns", "k > 2", "round", _many(450, 2, (1, 1, 1), 8.0, 7.0)),
    Kind("3 groups, 70/20/10, 5 columns", "k > 2", "round", _many(500, 5, (7, 2, 1), 6.0, 8.0)),
    Kind("3 groups along 1 of 6", "k > 2", "round", _line(600, 6, (1, 1, 1), 7.0)),
    Kind(
        "3 groups, correlated, 4 columns",
        "k > 2",
        "stretched",
        _correlated(600, 4, (1, 1, 1), 7.0, 25.0),
    ),
    Kind("5 groups, 2 columns", "k > 2", "round", _many(600, 2, (1,) * 5, 12.0, 7.0)),
    Kind(
        "5 groups, unequal, 10 columns", "k > 2", "round", _many(1000, 10, (5, 4, 3, 2, 1), 6, 8)
    ),
    Kind("8 groups, 3 columns", "k > 2", "round", _many(800, 3, (1,) * 8, 12.0, 7.0)),
    Kind("8 groups, 20 columns", "k > 2", "round", _many(1600, 20, (1,) * 8, 4.0, 8.0)),
    Kind("moons, 200 rows, noise .05", "bent", "bent", _moons(200, 0.05)),
    Kind("moons, 400 rows, noise .1", "bent", "bent", _moons(400, 0.1)),
    Kind("moons, 1000 rows, noise .15", "bent", "bent", _moons(1000, 0.15)),
    Kind("moons, 5000 rows, noise .1", "bent", "bent", _moons(5000, 0.1)),
    Kind("moons, 75/25, noise .07", "bent", "bent", _moons(600, 0.07, 0.25)),
    Kind("circles, 80 rows, noise .05", "bent", "bent", _circles(80, 0.05, 0.5)),
    Kind("circles, 300 rows, noise .08", "bent", "bent", _circles(300, 0.08, 0.5)),
    Kind("circles, 1000 rows, noise .05", "bent", "bent", _circles(1000, 0.05, 0.4)),
    Kind("spirals, 600 rows", "bent", "bent", _spirals(600, 1.25, 0.02)),
    Kind("waving bands, 600 rows", "bent", "bent", _waves(600, 1.5, 0.15)),
    Kind("a blob in a ring, 30/70", "bent", "bent", _rings(400, (0.0, 5.0), 0.6, (3, 7))),
    Kind("a blob in a ring, 10/90", "bent", "bent", _rings(600, (0.0, 5.0), 0.6, (1, 9))),
    Kind("three rings", "bent", "bent", _rings(900, (1.0, 3.0, 5.0), 0.2, (1, 3, 5))),
    Kind(
        "moons in 10 columns",
        "bent",
        "bent",
        _embedded(_moons(600, 0.06), 10, 0.06),
    ),
)
