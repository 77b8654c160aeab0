"""Scores of a labelling, with and without the truth.

With the truth: `clustering_error` and `balanced_clustering_error` count points after the best
matching of clusters to classes; `pair_f_measure`, `rand_index` and `normalized_mutual_information`
need no matching. Without it: `normalized_cut` and `volume` judge a split on its graph, `imbalance`
looks at the sizes alone.
"""

from volmar.metrics.agreement import (
    normalized_mutual_information,
    pair_f_measure,
    rand_index,
)
from volmar.metrics.errors import balanced_clustering_error, clustering_error
from volmar.metrics.label_free import imbalance, normalized_cut, volume

__all__ = [
    "balanced_clustering_error",
    "clustering_error",
    "imbalance",
    "normalized_cut",
    "normalized_mutual_information",
    "pair_f_measure",
    "rand_index",
    "volume",
]
