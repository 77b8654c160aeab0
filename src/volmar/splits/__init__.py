"""Candidates for splitting rows in two, and their tests on held-out rows."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.splits.along import separation_along as separation_along
    from volmar.splits.cells import LinearCells as LinearCells
    from volmar.splits.curved import fitted_border as fitted_border
    from volmar.splits.curved import walk_candidate as walk_candidate
    from volmar.splits.held_out import DIRECTION as DIRECTION
    from volmar.splits.held_out import LINEAR as LINEAR
    from volmar.splits.held_out import Candidate as Candidate
    from volmar.splits.held_out import HeldOutTest as HeldOutTest
    from volmar.splits.held_out import SeenRows as SeenRows
    from volmar.splits.held_out import held_out_test as held_out_test
    from volmar.splits.made import make_split as make_split
    from volmar.splits.merging import merged_labels as merged_labels
    from volmar.splits.pairs import CellPair as CellPair
    from volmar.splits.pairs import clearest_pairs as clearest_pairs
    from volmar.splits.searched import SearchedRows as SearchedRows
    from volmar.splits.searched import n_searched as n_searched
    from volmar.splits.searched import searched_rows as searched_rows
    from volmar.splits.two_groups import two_group_direction as two_group_direction
else:
    attach(
        __name__,
        along="separation_along",
        cells="LinearCells",
        curved="fitted_border walk_candidate",
        held_out="DIRECTION LINEAR Candidate HeldOutTest SeenRows held_out_test",
        made="make_split",
        merging="merged_labels",
        pairs="CellPair clearest_pairs",
        searched="SearchedRows n_searched searched_rows",
        two_groups="two_group_direction",
    )
