"""Rows in dask blocks: lazy vectors over the rows, and sums computed by passes."""

from volmar.rows.blocks.table import BlockRows, BlockTable, as_beside, as_table, is_dask
from volmar.rows.blocks.vector import RowVector

__all__ = ["BlockRows", "BlockTable", "RowVector", "as_beside", "as_table", "is_dask"]
