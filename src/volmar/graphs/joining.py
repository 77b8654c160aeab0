"""Short edges that connect the components of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse import csgraph
from sklearn.metrics import pairwise_distances_argmin_min

from volmar.graphs.distances import candidate_distances
from volmar.graphs.neighbor_backends import ExactBackend

__all__ = ["joining_edges"]

# If a component has at most SMALL rows, the nearest row outside is among the SMALL + 1 nearest
# neighbours of its rows.
SMALL = 32
# Number of rows from which the search in a larger component starts, and its maximum number of
# steps.
N_TRIED = 100
MAX_STEPS = 10


def joining_edges(rows: Any, graph: Any) -> Any:
    """Find short edges that join the connected components of a graph.

    This is Borůvka's minimum spanning tree of the components. Every component except the largest
    is joined to the nearest row outside. This is repeated with the merged components until one is
    left. In a component of more than `SMALL` rows, the nearest pair is found by alternation: from
    the best of `N_TRIED` rows to the nearest row outside, then to the row of the component nearest
    to that, and so on. The search ends at a pair of mutual nearest rows. It is short, and nearly
    always the shortest.

    Edges of the graph count in either direction, and stored zeros are edges. Returns the distances
    along the new edges as a CSR array, in one direction each.
    """
    n = rows.shape[0]
    edges = sp.csr_array((np.ones(graph.indices.size), graph.indices, graph.indptr), shape=(n, n))
    n_pieces, piece = csgraph.connected_components(edges, directed=False)
    found = [np.empty((0, 2), dtype=np.intp)]
    while n_pieces > 1:
        sizes = np.bincount(piece)
        sizes[np.argmax(sizes)] = 0
        small = np.flatnonzero((sizes > 0) & (sizes <= SMALL))
        new = _ways_out_of_small(rows, piece, small)
        new += [_way_out(rows, piece == one) for one in np.flatnonzero(sizes > SMALL)]
        # Two components may have found the same edge from both sides.
        pairs = np.unique(np.sort(new, axis=1), axis=0)
        found.append(pairs)
        between = sp.coo_array((np.ones(len(pairs)), tuple(piece[pairs.T])), shape=(n_pieces,) * 2)
        n_pieces, merged = csgraph.connected_components(between, directed=False)
        piece = merged[piece]
    row, column = np.concatenate(found).T
    distances = candidate_distances(rows[row], rows, column[:, None], "euclidean").ravel()
    return sp.coo_array((distances.astype(rows.dtype), (row, column)), shape=(n, n)).tocsr()


def _ways_out_of_small(rows: Any, piece: NDArray, small: NDArray) -> list[tuple[int, int]]:
    """Return the nearest pair (inside, outside) of each small component, by a single search."""
    inside = np.flatnonzero(np.isin(piece, small))
    if not inside.size:
        return []
    k = min(SMALL + 1, rows.shape[0])
    near = ExactBackend(rows, None).near(rows[inside], k)
    distances = candidate_distances(rows[inside], rows, near, "euclidean")
    outside = piece[near] != piece[inside][:, None]
    distances = np.where(outside, distances, np.inf)
    column = np.argmin(distances, axis=1)
    length = np.take_along_axis(distances, column[:, None], axis=1).ravel()
    order = np.lexsort((length, piece[inside]))
    first = order[np.unique(piece[inside][order], return_index=True)[1]]
    return [(int(inside[i]), int(near[i, column[i]])) for i in first]


def _way_out(rows: Any, inside: NDArray) -> tuple[int, int]:
    """Return a pair of rows (inside, outside) that are mutual nearest neighbours."""
    members, others = np.flatnonzero(inside), np.flatnonzero(~inside)
    rows_inside, rows_outside = rows[members], rows[others]
    tried = np.arange(0, members.size, max(1, members.size // N_TRIED))
    near, distances = pairwise_distances_argmin_min(rows_inside[tried], rows_outside)
    best = int(np.argmin(distances))
    i, j = int(tried[best]), int(near[best])
    for _ in range(MAX_STEPS):
        back = int(pairwise_distances_argmin_min(rows_outside[[j]], rows_inside)[0][0])
        out = int(pairwise_distances_argmin_min(rows_inside[[back]], rows_outside)[0][0])
        if (back, out) == (i, j):
            break
        i, j = back, out
    return int(members[i]), int(others[j])
