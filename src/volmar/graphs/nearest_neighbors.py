"""The binary similarity on the graph of nearest neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from volmar.graphs.neighbors import NeighborExtension, NeighborRecipe, symmetrize
from volmar.graphs.validation import MatrixLike

__all__ = ["NearestNeighborsSimilarity", "nearest_neighbors_similarity"]


@dataclass(frozen=True, kw_only=True, eq=False)
class NearestNeighborsSimilarity(NeighborRecipe):
    """Recipe for the binary similarity; parameters as in `nearest_neighbors_similarity`."""

    n_neighbors: int = 7
    mutual: bool = False

    def build(self, X: MatrixLike) -> tuple[Any, NearestNeighborsExtension]:
        """Build the similarity graph, and its extension to new points."""
        search = self.search(X)
        directed = search.graph(self.n_neighbors)
        # The distance to a duplicate is a stored zero, which is an edge like any other.
        directed.data[:] = 1.0
        W = symmetrize(directed, "mutual" if self.mutual else "union")
        return W, NearestNeighborsExtension(search, self.n_neighbors)


@dataclass(frozen=True, eq=False)
class NearestNeighborsExtension(NeighborExtension):
    """Binary similarities of new points to their nearest training points.

    Only the neighbours of new points count. Neighbours of training points are not searched again,
    not even for the mutual graph.
    """

    def __call__(self, X_new: MatrixLike) -> Any:
        near = self.search.query(X_new, self.n_neighbors)
        near.data[:] = 1.0
        return near


def nearest_neighbors_similarity(
    X: MatrixLike,
    *,
    n_neighbors: int = 7,
    mutual: bool = False,
    neighbors: Any = "auto",
    random_state: int | np.random.RandomState | None = None,
    n_jobs: int | None = None,
) -> Any:
    """Compute the binary similarity of nearest neighbours.

    ``W_ij = 1`` if one of the two points is among the k nearest neighbours of the other, and 0
    otherwise. The diagonal is zero, because a point is not its own neighbour.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        The points.
    n_neighbors : int, default=7
        Number of neighbours of each point, by Euclidean distance.
    mutual : bool, default=False
        Whether to keep only edges between points that are neighbours of each other. Such a graph
        has far fewer edges, and is more often disconnected.
    neighbors, random_state, n_jobs
        As in `NeighborSearch`.

    Returns
    -------
    csr_array of shape (n, n)
        Similarities in X's float dtype, exactly symmetric.

    Examples
    --------
    >>> from volmar.graphs import nearest_neighbors_similarity
    >>> X = [[0.0], [1.0], [3.0]]
    >>> nearest_neighbors_similarity(X, n_neighbors=1).toarray()
    array([[0., 1., 0.],
           [1., 0., 1.],
           [0., 1., 0.]])
    >>> nearest_neighbors_similarity(X, n_neighbors=1, mutual=True).nnz
    2
    """
    spec = NearestNeighborsSimilarity(
        n_neighbors=n_neighbors,
        mutual=mutual,
        neighbors=neighbors,
        random_state=random_state,
        n_jobs=n_jobs,
    )
    return spec.build(X)[0]
