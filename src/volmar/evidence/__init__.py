"""Is there more than one group? Tests of a split and of given labels, and what they are made of.

`split_test` asks whether rows have more than one group, `label_test` which given clusters are
separated. `modes/` has the tests of a sample on the line, `splits/` the candidates for a split and
their test on held-out rows, `labels/` the borders between given clusters.
"""

from volmar.evidence.border_walk import Border
from volmar.evidence.combine import combine_p_values
from volmar.evidence.dither import column_resolutions, dithered, dithered_scores
from volmar.evidence.labels.label_result import LabelJoin, LabelTestResult
from volmar.evidence.labels.label_test import label_test
from volmar.evidence.modes.dip import Dip, DipTest, dip_statistic, dip_test
from volmar.evidence.modes.humps import HumpTest, hump_test
from volmar.evidence.splits.along import separation_along
from volmar.evidence.splits.cells import LinearCells
from volmar.evidence.splits.curved import fitted_border, walk_candidate
from volmar.evidence.splits.held_out import (
    DIRECTION,
    LINEAR,
    Candidate,
    HeldOutTest,
    SeenRows,
    held_out_test,
)
from volmar.evidence.splits.made import make_split
from volmar.evidence.splits.merging import merged_labels
from volmar.evidence.splits.pairs import CellPair, clearest_pairs
from volmar.evidence.splits.searched import SearchedRows, n_searched, searched_rows
from volmar.evidence.splits.split_test import SplitTestResult, split_test
from volmar.evidence.splits.two_groups import two_group_direction
from volmar.evidence.way_around import has_way_around

__all__ = [
    "DIRECTION",
    "LINEAR",
    "Border",
    "Candidate",
    "CellPair",
    "Dip",
    "DipTest",
    "HeldOutTest",
    "HumpTest",
    "LabelJoin",
    "LabelTestResult",
    "LinearCells",
    "SearchedRows",
    "SeenRows",
    "SplitTestResult",
    "clearest_pairs",
    "column_resolutions",
    "combine_p_values",
    "dip_statistic",
    "dip_test",
    "dithered",
    "dithered_scores",
    "fitted_border",
    "has_way_around",
    "held_out_test",
    "hump_test",
    "label_test",
    "make_split",
    "merged_labels",
    "n_searched",
    "searched_rows",
    "separation_along",
    "split_test",
    "two_group_direction",
    "walk_candidate",
]
