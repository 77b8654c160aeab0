"""Graphs of points: similarities, nearest neighbours and Laplacians."""

from volmar.graphs.density_scaling import (
    DensityScalingSimilarity,
    density_scaling_similarity,
)
from volmar.graphs.distances import distance_range, mean_distance, resolve_sigma, rms_distance
from volmar.graphs.graph import Extension, Similarity, make_similarity
from volmar.graphs.laplacian import (
    component_message,
    connected_components,
    degrees,
    laplacian,
)
from volmar.graphs.neighbors import NeighborSearch, neighbor_graph, symmetrize
from volmar.graphs.similarities import (
    CallableSimilarity,
    CosineKNNSimilarity,
    GaussianSimilarity,
    LocalScalingSimilarity,
    NearestNeighborsSimilarity,
    cosine_knn_similarity,
    gaussian_similarity,
    local_scaling_similarity,
    nearest_neighbors_similarity,
)
from volmar.graphs.validation import check_similarity

__all__ = [
    "CallableSimilarity",
    "CosineKNNSimilarity",
    "DensityScalingSimilarity",
    "Extension",
    "GaussianSimilarity",
    "LocalScalingSimilarity",
    "NearestNeighborsSimilarity",
    "NeighborSearch",
    "Similarity",
    "check_similarity",
    "component_message",
    "connected_components",
    "cosine_knn_similarity",
    "degrees",
    "density_scaling_similarity",
    "distance_range",
    "gaussian_similarity",
    "laplacian",
    "local_scaling_similarity",
    "make_similarity",
    "mean_distance",
    "nearest_neighbors_similarity",
    "neighbor_graph",
    "resolve_sigma",
    "rms_distance",
    "symmetrize",
]
