"""The cosine similarity on the graph of nearest neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from volmar.graphs.neighbors import NeighborExtension, NeighborRecipe, symmetrize
from volmar.graphs.validation import MatrixLike

__all__ = ["CosineKNNSimilarity", "cosine_knn_similarity"]


@dataclass(frozen=True, kw_only=True, eq=False)
class CosineKNNSimilarity(NeighborRecipe):
    """Recipe for the sparse cosine similarity; see `cosine_knn_similarity` for the parameters."""

    n_neighbors: int = 7
    mutual: bool = False

    def build(self, X: MatrixLike) -> tuple[Any, CosineKNNExtension]:
        """Build the similarity graph, and its extension to new points."""
        search = self.search(X, metric="cosine")
        directed = _cosines(search.graph(self.n_neighbors), "X")
        W = symmetrize(directed, "mutual" if self.mutual else "union")
        return W, CosineKNNExtension(search, self.n_neighbors)


@dataclass(frozen=True, eq=False)
class CosineKNNExtension(NeighborExtension):
    """Cosine similarities of new points to their nearest training points."""

    def __call__(self, X_new: MatrixLike) -> Any:
        return _cosines(self.search.query(X_new, self.n_neighbors), "X_new")


def cosine_knn_similarity(
    X: MatrixLike,
    *,
    n_neighbors: int = 7,
    mutual: bool = False,
    neighbors: Any = "auto",
    random_state: int | np.random.RandomState | None = None,
    n_jobs: int | None = None,
) -> Any:
    """Compute the similarity ``⟨x_i, x_j⟩ / |x_i||x_j|`` of nearest neighbours (JMLR section 8.1).

    The paper states "among the k-nearest neighbours of each other", which is the mutual graph. Its
    tables are reproduced with the union, which is therefore the default. A point is not its own
    neighbour, so that W_ii = 0.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        The points. With nonnegative features, all cosines are nonnegative.
    n_neighbors : int, default=7
        Number of neighbours of each point, by cosine.
    mutual : bool, default=False
        Whether to keep only edges between points that are neighbours of each other.
    neighbors, random_state, n_jobs
        As in `NeighborSearch`.

    Returns
    -------
    csr_array of shape (n, n)
        Similarities in X's float dtype, exactly symmetric.

    Examples
    --------
    >>> from volmar.graphs import cosine_knn_similarity
    >>> X = [[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    >>> cosine_knn_similarity(X, n_neighbors=1).toarray().round(2)
    array([[0.  , 0.71, 0.  ],
           [0.71, 0.  , 0.71],
           [0.  , 0.71, 0.  ]])
    """
    spec = CosineKNNSimilarity(
        n_neighbors=n_neighbors,
        mutual=mutual,
        neighbors=neighbors,
        random_state=random_state,
        n_jobs=n_jobs,
    )
    return spec.build(X)[0]


def _cosines(distances: Any, name: str) -> Any:
    """Return cosines from cosine distances; raise ValueError if one is negative."""
    data = 1 - distances.data
    worst = int(np.argmin(data))
    if data[worst] < 0:
        row = int(np.searchsorted(distances.indptr, worst, side="right")) - 1
        raise ValueError(
            f"The cosine of row {row} of {name} and its neighbour {distances.indices[worst]} is "
            f"{data[worst]:.3g}, but similarities must be nonnegative. Make the features "
            "nonnegative (MinMaxScaler), lower n_neighbors, or use local_scaling_similarity."
        )
    return sp.csr_array((data, distances.indices, distances.indptr), shape=distances.shape)
