"""Scores of a labelling, with and without true classes.

With true classes, `clustering_error` and `balanced_clustering_error` count wrong rows after the
best matching of clusters to classes (`matched_labels`). `pair_f_measure` needs no matching, like
scikit-learn's `rand_score` and `normalized_mutual_info_score`.

Without true classes, `normalized_cut` and `volume` evaluate a split on its graph. `imbalance`
compares the cluster sizes, and `calinski_harabasz` the variances. `separation_score` and
`msp_score` measure how well a hyperplane can separate the clusters, from their moments.

`label_free_scores` and `agreement_scores` compute the usual scores together.
"""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.metrics.errors import balanced_clustering_error as balanced_clustering_error
    from volmar.metrics.errors import clustering_error as clustering_error
    from volmar.metrics.errors import matched_labels as matched_labels
    from volmar.metrics.errors import pair_f_measure as pair_f_measure
    from volmar.metrics.label_free import normalized_cut as normalized_cut
    from volmar.metrics.margins import normalized_margin as normalized_margin
    from volmar.metrics.scores import label_free_scores as label_free_scores
    from volmar.metrics.separation import msp_score as msp_score
    from volmar.metrics.separation import separation_score as separation_score

attach(__name__)
