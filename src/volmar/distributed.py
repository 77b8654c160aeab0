"""Progress reports and errors of fits on dask collections."""

from volmar.rows.blocks.passes import LostBlocksError
from volmar.rows.blocks.table import report_passes

__all__ = ["LostBlocksError", "report_passes"]
