"""Candidates for splitting rows in two, and their tests on held-out rows."""

from volmar.splits.along import separation_along
from volmar.splits.cells import LinearCells
from volmar.splits.curved import fitted_border, walk_candidate
from volmar.splits.held_out import (
    DIRECTION,
    LINEAR,
    Candidate,
    HeldOutTest,
    SeenRows,
    held_out_test,
)
from volmar.splits.made import make_split
from volmar.splits.merging import merged_labels
from volmar.splits.pairs import CellPair, clearest_pairs
from volmar.splits.searched import SearchedRows, n_searched, searched_rows
from volmar.splits.two_groups import two_group_direction

__all__ = [
    "DIRECTION",
    "LINEAR",
    "Candidate",
    "CellPair",
    "HeldOutTest",
    "LinearCells",
    "SearchedRows",
    "SeenRows",
    "clearest_pairs",
    "fitted_border",
    "held_out_test",
    "make_split",
    "merged_labels",
    "n_searched",
    "searched_rows",
    "separation_along",
    "two_group_direction",
    "walk_candidate",
]
