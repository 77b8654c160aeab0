"""Fits on dask collections: what each pass finds can be saved, and each pass can be reported."""

from volmar.rows.blocks.journal import Journal, PassReport, checkpoint, report_passes
from volmar.rows.blocks.passes import LostBlocksError

__all__ = ["Journal", "LostBlocksError", "PassReport", "checkpoint", "report_passes"]
