"""Scores of a labelling, with and without the truth.

With the truth: `clustering_error` and `balanced_clustering_error` count points after the best
matching of clusters to classes; `pair_f_measure`, `rand_index` and `normalized_mutual_information`
need no matching. Without it: `normalized_cut` and `volume` judge a split on its graph, `imbalance`
looks at the sizes alone; `separation_score` and `msp_score` ask how well a hyperplane could tell
the clusters apart, from their moments.
"""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.metrics.agreement import (
        normalized_mutual_information as normalized_mutual_information,
    )
    from volmar.metrics.agreement import pair_f_measure as pair_f_measure
    from volmar.metrics.agreement import rand_index as rand_index
    from volmar.metrics.errors import balanced_clustering_error as balanced_clustering_error
    from volmar.metrics.errors import clustering_error as clustering_error
    from volmar.metrics.label_free import imbalance as imbalance
    from volmar.metrics.label_free import normalized_cut as normalized_cut
    from volmar.metrics.label_free import volume as volume
    from volmar.metrics.separation import msp_score as msp_score
    from volmar.metrics.separation import separation_score as separation_score

attach(__name__)
