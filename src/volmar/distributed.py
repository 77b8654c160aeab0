"""Checkpoints and progress reports for fits on dask collections."""

from volmar.rows.blocks.journal import Journal, PassReport, checkpoint, report_passes
from volmar.rows.blocks.passes import LostBlocksError

__all__ = ["Journal", "LostBlocksError", "PassReport", "checkpoint", "report_passes"]
