"""Statistical tests for clusters: whether a split is real, and whether given labels are.

`split_test` tests whether the rows form more than one group, `label_test` which given clusters are
separated, and `calibrate_novelty` finds rows that belong to no cluster.
"""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.evidence.borders import Border as Border
    from volmar.evidence.borders import fitted_border as fitted_border
    from volmar.evidence.borders import walk_candidate as walk_candidate
    from volmar.evidence.dither import column_resolutions as column_resolutions
    from volmar.evidence.dither import dithered as dithered
    from volmar.evidence.dither import dithered_scores as dithered_scores
    from volmar.evidence.held_out import DIRECTION as DIRECTION
    from volmar.evidence.held_out import LINEAR as LINEAR
    from volmar.evidence.held_out import Candidate as Candidate
    from volmar.evidence.held_out import HeldOutTest as HeldOutTest
    from volmar.evidence.held_out import SeenRows as SeenRows
    from volmar.evidence.held_out import combine_p_values as combine_p_values
    from volmar.evidence.held_out import held_out_test as held_out_test
    from volmar.evidence.held_out import make_split as make_split
    from volmar.evidence.humps import HumpTest as HumpTest
    from volmar.evidence.humps import hump_test as hump_test
    from volmar.evidence.label_test import LabelJoin as LabelJoin
    from volmar.evidence.label_test import LabelTestResult as LabelTestResult
    from volmar.evidence.label_test import label_test as label_test
    from volmar.evidence.novelty import ClusterNovelty as ClusterNovelty
    from volmar.evidence.novelty import calibrate_novelty as calibrate_novelty
    from volmar.evidence.pairs import CellPair as CellPair
    from volmar.evidence.pairs import LinearCells as LinearCells
    from volmar.evidence.pairs import clearest_pairs as clearest_pairs
    from volmar.evidence.pairs import merged_labels as merged_labels
    from volmar.evidence.split_test import SplitTestResult as SplitTestResult
    from volmar.evidence.split_test import split_test as split_test
    from volmar.evidence.two_groups import SearchedRows as SearchedRows
    from volmar.evidence.two_groups import n_searched as n_searched
    from volmar.evidence.two_groups import searched_rows as searched_rows
    from volmar.evidence.two_groups import two_group_direction as two_group_direction
    from volmar.evidence.way_around import has_way_around as has_way_around

attach(__name__)
