"""Scores of a labelling, with and without the truth.

With the truth: `clustering_error` and `balanced_clustering_error` count points after the best
matching of clusters to classes; `pair_f_measure`, `rand_index` and `normalized_mutual_information`
need no matching. Without it: `normalized_cut` and `volume` judge a split on its graph, `imbalance`
looks at the sizes alone; `separation_score` and `msp_score` ask how well a hyperplane could tell
the clusters apart, from their moments.
"""

from volmar.metrics.agreement import (
    normalized_mutual_information,
    pair_f_measure,
    rand_index,
)
from volmar.metrics.errors import balanced_clustering_error, clustering_error
from volmar.metrics.label_free import imbalance, normalized_cut, volume
from volmar.metrics.separation import msp_score, separation_score

__all__ = [
    "balanced_clustering_error",
    "clustering_error",
    "imbalance",
    "msp_score",
    "normalized_cut",
    "normalized_mutual_information",
    "pair_f_measure",
    "rand_index",
    "separation_score",
    "volume",
]
