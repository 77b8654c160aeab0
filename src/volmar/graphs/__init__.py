"""Graphs of points: similarities, nearest neighbours and Laplacians."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.graphs.density_scaling import (
        density_scaling_similarity as density_scaling_similarity,
    )
    from volmar.graphs.laplacian import laplacian as laplacian
    from volmar.graphs.similarities import cosine_knn_similarity as cosine_knn_similarity
    from volmar.graphs.similarities import gaussian_similarity as gaussian_similarity
    from volmar.graphs.similarities import local_scaling_similarity as local_scaling_similarity
    from volmar.graphs.similarities import (
        nearest_neighbors_similarity as nearest_neighbors_similarity,
    )

attach(__name__)
