"""The foreign battery, and single pieces beside it that must stay whole.

The battery has no set with a single cluster: a rule that is tuned on it alone splits everything.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from reproduction.datasets import data_folder

# Numbers of rows of the single pieces.
SIZES = (100, 300, 1000, 3000)


class BatterySet(NamedTuple):
    """Rows of a set, and its reference labellings; rows labelled 0 are noise."""

    name: str
    X: np.ndarray
    references: list[np.ndarray]

    def numbers(self):
        """Return the number of clusters of each reference labelling."""
        return [np.unique(y[y > 0]).size for y in self.references]


def battery():
    """Return the sets, prepared as in the published runs: centred, and of one common scale."""
    folder = data_folder()
    found = []
    for path in sorted(folder.glob("battery/*.npz")) if folder else ():
        with np.load(path) as arrays:
            X = arrays["X"].astype(float)
            labels = [arrays[key] for key in sorted(arrays.files) if key != "X"]
        X = X[:, np.ptp(X, axis=0) > 0]
        found.append(BatterySet(path.stem, (X - X.mean(axis=0)) / X.std(ddof=1), labels))
    return found


def published():
    """Return the adjusted Rand index of the published partitions: a table of sets by methods."""
    table = pd.read_csv(data_folder() / "battery" / "published.csv")
    best = table.groupby([table.battery + "_" + table.set, "method"])["ari"].max()
    return best.unstack()


# ------------------------------------------------------------------------ single pieces


def _arc(degrees, noise):
    def draw(rng, n):
        angle = np.deg2rad(degrees) * rng.random(n)
        return np.c_[np.cos(angle), np.sin(angle)] + noise * rng.normal(size=(n, 2))

    return draw


def _bent_band(rng, n):
    angle, radius = np.pi * rng.random(n), np.sqrt(rng.uniform(0.36, 1.44, n))
    return np.c_[radius * np.cos(angle), radius * np.sin(angle)]


def _s_shape(rng, n):
    t = 3 * np.pi * (rng.random(n) - 0.5)
    return np.c_[np.sin(t), np.sign(t) * (np.cos(t) - 1)] + 0.1 * rng.normal(size=(n, 2))


def _spiral(rng, n):
    t = 3 * np.pi * np.sqrt(rng.random(n)) + 0.5
    return np.c_[t * np.cos(t), t * np.sin(t)] / 3 + 0.05 * rng.normal(size=(n, 2))


def _wave(rng, n):
    t = 4 * np.pi * rng.random(n)
    return np.c_[t, 2 * np.sin(t)] + 0.15 * rng.normal(size=(n, 2))


def _crossed(wide, narrow):
    def draw(rng, n):
        is_flat = rng.random(n) < 0.5
        a, b = rng.uniform(*wide, n), rng.uniform(*narrow, n)
        return np.where(is_flat[:, None], np.c_[a, b], np.c_[b, a])

    return draw


def _disc(rng, n):
    angle, radius = 2 * np.pi * rng.random(n), np.sqrt(rng.random(n))
    return np.c_[radius * np.cos(angle), radius * np.sin(angle)]


def _with_noise(draw, d):
    """Add columns of noise as wide as the piece."""

    def wider(rng, n):
        X = draw(rng, n)
        return np.c_[X, X.std(axis=0).mean() * rng.normal(size=(n, d))]

    return wider


def _turned(draw, d):
    """Turn the piece into a random plane of d columns, with little noise around it."""

    def turned(rng, n):
        X = draw(rng, n)
        Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
        return np.c_[X, 0.1 * X.std() * rng.normal(size=(n, d - 2))] @ Q

    return turned


CURVED = {
    "arc of 90 degrees": _arc(90, 0.1),
    "arc of 180 degrees": _arc(180, 0.1),
    "arc of 270 degrees": _arc(270, 0.1),
    "thin arc of 270 degrees": _arc(270, 0.03),
    "thin ring": _arc(360, 0.03),
    "ring": _arc(360, 0.1),
    "thick ring": _arc(360, 0.25),
    "bent band": _bent_band,
    "S": _s_shape,
    "spiral": _spiral,
    "wave": _wave,
    "band": lambda rng, n: np.c_[rng.uniform(0, 10, n), rng.random(n)],
    "L": _crossed((0, 4), (0, 1)),
    "cross": _crossed((-3, 3), (-0.5, 0.5)),
    "disc": _disc,
}
ROUND = {
    "Gaussian": lambda rng, n, d: rng.normal(size=(n, d)),
    "cube": lambda rng, n, d: rng.random((n, d)),
    "t3, columns": lambda rng, n, d: rng.standard_t(3, size=(n, d)),
    "t3, rows": lambda rng, n, d: rng.normal(size=(n, d)) / np.sqrt(rng.chisquare(3, (n, 1)) / 3),
    "exponential": lambda rng, n, d: rng.exponential(size=(n, d)),
    "log-normal": lambda rng, n, d: rng.lognormal(size=(n, d)),
    "correlated": lambda rng, n, d: rng.normal(size=(n, 1)) + 0.3 * rng.normal(size=(n, d)),
    "two widths": lambda rng, n, d: (
        rng.normal(size=(n, d)) * np.where(rng.random((n, 1)) < 0.5, 1.0, 5.0)
    ),
}


def _in_columns(draw, d):
    return lambda rng, n: draw(rng, n, d)


PIECES: dict[str, Callable] = {
    f"{name}, {d} columns": _in_columns(draw, d)
    for name, draw in ROUND.items()
    for d in (2, 5, 10)
}
PIECES |= CURVED
for _name in ("arc of 180 degrees", "arc of 270 degrees", "ring", "S", "bent band", "spiral"):
    PIECES[f"{_name} and 3 of noise"] = _with_noise(CURVED[_name], 3)
    PIECES[f"{_name} and 8 of noise"] = _with_noise(CURVED[_name], 8)
    PIECES[f"{_name} in 5 columns"] = _turned(CURVED[_name], 5)


# ------------------------------------------------------------------ columns without groups


def _heaped(rng, n):
    heights = rng.normal(68, 4, n)
    whole, few = heights.round(), n // 7
    whole[:few] = heights[:few].round(2)
    return whole[:, None]


def _top_coded(rng, n):
    return np.c_[np.minimum(rng.exponential(8, n).astype(int), 20), rng.lognormal(11, 0.5, n)]


def _calendar(rng, n):
    hour = rng.choice([0, 6, 12, 18], n)
    hour = np.where(rng.random(n) < 0.02, rng.integers(0, 24, n), hour)
    return np.c_[hour, rng.normal(size=(n, 2))]


def _zero_inflated(rng, n):
    assets = np.where(rng.random(n) < 0.4, 0, rng.lognormal(8.5, 0.8, n).round(-2))
    return np.c_[assets, rng.normal(45, 12, n)]


def _shared_values(rng, n):
    group = rng.integers(0, 40, n)
    scores = rng.normal((60, 50), (20, 15), (40, 2)).round()
    return np.c_[rng.lognormal(5, 0.6, n), scores[group]]


COLUMNS = {
    "heaped": _heaped,
    "top-coded": _top_coded,
    "calendar": _calendar,
    "zero-inflated": _zero_inflated,
    "shared by groups": _shared_values,
    "yes or no": lambda rng, n: 1.0 * (rng.random((n, 10)) < np.linspace(0.1, 0.5, 10)),
    "1 to 5": lambda rng, n: rng.integers(1, 6, (n, 10)).astype(float),
    "counts": lambda rng, n: rng.poisson(2.0, (n, 10)).astype(float),
}


# ------------------------------------------------------------------------------- groups


def _grid(side, separation, n_each=40):
    def draw(rng):
        centres = np.array([(i, j) for i in range(side) for j in range(side)], dtype=float)
        y = np.repeat(np.arange(side * side), n_each)
        return separation * centres[y] + rng.normal(size=(y.size, 2)), y

    return draw


def _scattered(k, separation, d=2, n_each=50):
    """Round groups around k random centres that are at least `separation` apart."""

    def draw(rng):
        width, centres = separation * 1.8 * k ** (1 / d), []
        while len(centres) < k:
            new = width * rng.random(d)
            if all(np.linalg.norm(new - c) >= separation for c in centres):
                centres.append(new)
            width *= 1.001
        y = np.repeat(np.arange(k), n_each)
        return np.array(centres)[y] + rng.normal(size=(y.size, d)), y

    return draw


GROUPS = {
    "4 x 4 groups, 6 sd": _grid(4, 6.0),
    "5 x 5 groups, 6 sd": _grid(5, 6.0),
    "6 x 6 groups, 6 sd": _grid(6, 6.0),
    "12 groups": _scattered(12, 6.0),
    "20 groups": _scattered(20, 6.0),
    "40 groups": _scattered(40, 6.0),
    "10 groups in 10 columns": _scattered(10, 6.0, d=10, n_each=100),
}
