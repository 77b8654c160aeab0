"""Distances of rows to a curved border between two clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.metrics.pairwise import euclidean_distances

from volmar.evidence.dither import column_resolutions, dithered
from volmar.evidence.held_out import Candidate, Scorer, SeenRows
from volmar.evidence.way_around import BLOCK, MAX_ENTRIES, MAX_ROWS

# Number of nearest rows of each side whose mean distance decides the side of a point.
N_NEIGHBORS = 3
# Maximum number of rows whose distance to a border is computed. In many dimensions, distances of
# rows close to the border are too large, because the nearest row of the other side lies sideways.
# This makes a shallow valley, which a test with more rows would detect.
MAX_WALKS = 1000


class Border:
    """The border, of any shape, between two sides of rows (of a sample of many).

    A point is on the side whose three nearest rows have the smaller mean distance to it.
    """

    def __init__(self, seen: Any, sides: ArrayLike, rng: np.random.Generator):
        sides = np.asarray(sides, dtype=bool)
        if sides.shape != (seen.shape[0],):
            raise ValueError(
                f"sides has shape {sides.shape} for {seen.shape[0]} seen rows. Pass one side for "
                "each row."
            )
        kept = rows_kept(sides, seen.shape[1], rng)
        seen, self._sides = seen[kept], sides[kept]
        # In single precision, squares of rows far from the origin would lose the distances.
        self._centre = None if sparse.issparse(seen) else seen.mean(axis=0, dtype=np.float64)
        seen = self._centred(seen)
        self._unit = float(abs(seen).max()) if seen.shape[0] else 0.0
        self._unit = self._unit if self._unit > 0 else 1.0
        self._seen = seen / self._unit
        self._between = euclidean_distances(self._seen, squared=True)
        self._n_neighbors = min(N_NEIGHBORS, int(self._sides.sum()), int((~self._sides).sum()))

    def distances(self, rows: Any) -> NDArray[np.float64]:
        r"""Return signed distances of rows to the border, positive on side True.

        All are 0 if the seen rows are on one side only. A straight walk leads from a row x to the
        nearest seen row y of the other side. The distance is the length of the walk up to the
        point where the side changes, found by bisection.

        Scores of a kernel or a graph level off inside the clusters. Their density can therefore
        have two modes even if the density of the rows has one. Distances do not level off: when a
        row moves across the border, its distance changes by the length of the move, also in an
        empty gap. The density of the distances has a valley at the border only if the density of
        the rows has one.

        For p = x + t (y - x) and any row z, Stewart's theorem states

        .. math:: |p - z|^2 = (1 - t) |x - z|^2 + t |y - z|^2 - t (1 - t) |x - y|^2,

        so only distances between rows are needed, in any number of dimensions.

        Sides are those of the nearest seen rows, even if the clustering method has its own
        `predict`. In many dimensions, the nearest row on the other side of a hyperplane lies
        sideways. A walk to the hyperplane would be longer than the distance to it, most of all for
        rows close to it. The lengths would have a valley that the rows do not have.
        """
        n = rows.shape[0]
        if rows.shape[1] != self._seen.shape[1]:
            raise ValueError(
                f"rows has {rows.shape[1]} columns and the seen rows have "
                f"{self._seen.shape[1]}. Pass the same columns."
            )
        found = np.zeros(n)
        if self._n_neighbors == 0:
            return found
        step = max(1, BLOCK // max(self._seen.shape))
        for i in range(0, n, step):
            block = self._centred(rows[i : i + step]) / self._unit
            entries = block.data if sparse.issparse(block) else block
            np.clip(entries, -1e100, 1e100, out=entries)
            found[i : i + step] = self._walk(euclidean_distances(block, self._seen, squared=True))
        return found * self._unit

    def _centred(self, rows: Any) -> Any:
        if self._centre is None:
            return sparse.csr_array(rows, dtype=np.float64)
        rows = rows.toarray() if sparse.issparse(rows) else np.asarray(rows)
        return rows - self._centre

    def _walk(self, to_seen: NDArray) -> NDArray[np.float64]:
        own = self._side(to_seen)
        other = np.where(own[:, None] == self._sides, np.inf, to_seen)
        end = np.argmin(other, axis=1)
        square = other[np.arange(end.size), end][:, None]
        from_end = self._between[end]
        low, high = np.zeros(end.size), np.ones(end.size)
        # Bisection steps: the border is located to within 1/512 of the distance to the other side.
        for _ in range(8):
            middle = 0.5 * (low + high)
            t = middle[:, None]
            here = (1.0 - t) * to_seen + t * (from_end - (1.0 - t) * square)
            stays = self._side(here) == own
            low, high = np.where(stays, middle, low), np.where(stays, high, middle)
        length = 0.5 * (low + high) * np.sqrt(square[:, 0])
        return np.where(own, length, -length)

    def _side(self, squares: NDArray) -> NDArray[np.bool_]:
        """Return the sides of points from their squared distances to the seen rows, (b, m)."""
        k, means = self._n_neighbors, []
        for side in (self._sides, ~self._sides):
            nearest = np.partition(squares[:, side], k - 1, axis=1)[:, :k]
            means.append(np.sqrt(np.maximum(nearest, 0.0)).mean(axis=1))
        return means[0] < means[1]


def rows_kept(sides: NDArray, n_features: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the seen rows that a `Border` keeps: all, or a sample with the same side shares."""
    most = min(MAX_ROWS, max(MAX_ENTRIES // max(n_features, 1), 2 * N_NEIGHBORS))
    if sides.size <= most:
        return np.arange(sides.size)
    chosen = []
    for side in (sides, ~sides):
        members = np.flatnonzero(side)
        size = min(members.size, max(N_NEIGHBORS, round(most * members.size / sides.size)))
        chosen.append(rng.choice(members, size, replace=False))
    return np.sort(np.concatenate(chosen))


def fitted_border(
    labels: Any,
    seen: Any,
    resolutions: NDArray,
    rng: np.random.Generator,
    *,
    name: str,
    transform: Callable[[Any], Any] | None = None,
) -> Border:
    """Return the border between two clusters of seen rows, after dithering and `transform`.

    Noise, label -1, is left out. `name` is that of the estimator in errors.
    """
    labels = np.asarray(labels)
    found = np.unique(labels[labels >= 0])
    if found.size > 2:
        raise ValueError(
            f"estimator {name} found {found.size} clusters, but a split has two. Use n_clusters=2."
        )
    if found.size == 0:
        raise ValueError(
            f"estimator {name} labelled all {labels.size} rows of a half -1 (noise), so there is "
            "no split to test. Change its parameters."
        )
    members = np.flatnonzero(labels >= 0)
    sides = labels[members] == (found[-1] if found.size == 2 else -1)
    # Dithering makes sparse rows dense, so only the rows that are kept are dithered.
    kept = rows_kept(sides, seen.shape[1], rng)
    rows = dithered(seen[members[kept]], resolutions, rng)
    return Border(rows if transform is None else transform(rows), sides[kept], rng)


def walk_candidate(fit: Callable[[Any, int], Any]) -> Candidate:
    """Return a candidate for `held_out_test` whose split may have a border of any shape.

    `fit` maps rows and a seed to a clusterer with two clusters in `labels_`.
    """

    def learn(seen: SeenRows, rng: np.random.Generator) -> Scorer | None:
        try:
            model = fit(seen.rows, int(rng.integers(2**31 - 1)))
        except ValueError:
            return None
        resolutions = column_resolutions(seen.rows)
        name = type(model).__name__
        border = fitted_border(model.labels_, seen.rows, resolutions, rng, name=name)
        return Scorer(border.distances, MAX_WALKS)

    return Candidate(learn)
