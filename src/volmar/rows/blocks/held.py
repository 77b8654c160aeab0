"""Selected rows of a table in memory, on which vectors are computed without a pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from volmar.rows.blocks.recipes import Tile
from volmar.rows.blocks.sums import Picked

if TYPE_CHECKING:
    from volmar.rows.blocks.table import BlockTable
    from volmar.rows.blocks.vector import RowVector


class HeldRows:
    """Rows of a table with the given ascending numbers, held in memory.

    Vectors over all rows are recipes, which can be evaluated on these rows without a pass.
    """

    def __init__(self, table: BlockTable, index: np.ndarray):
        self.table, self.index = table, index
        self._rows = table.ask(Picked(index))
        self._given: list[np.ndarray] = []

    def entries(self, v: RowVector) -> np.ndarray:
        """Return the entries of a vector at these rows."""
        for array in self.table.rows_of.given[len(self._given) :]:
            self._given.append(self.table.beside(array)[self.index])
        return Tile(self._rows, self._given, 0).value(v.recipe)
