"""Tables: files to rows that a method takes, and labels to files."""

from volmar.tables.blocks import RowSample, prepare_blocks, prepare_sample, sample_rows
from volmar.tables.columns import as_pandas
from volmar.tables.errors import TableError
from volmar.tables.folder import is_folder_of_tables, read_folder
from volmar.tables.prepare import Preparation
from volmar.tables.prepared_table import PreparedTable
from volmar.tables.read import LoadedTable, read_table
from volmar.tables.source import source_columns
from volmar.tables.write import open_labels, write_labels
from volmar.tables.write_columns import open_columns, written_kind
from volmar.tables.write_rows import open_rows, write_rows

__all__ = [
    "LoadedTable",
    "Preparation",
    "PreparedTable",
    "RowSample",
    "TableError",
    "as_pandas",
    "is_folder_of_tables",
    "open_columns",
    "open_labels",
    "open_rows",
    "prepare_blocks",
    "prepare_sample",
    "read_folder",
    "read_table",
    "sample_rows",
    "source_columns",
    "write_labels",
    "write_rows",
    "written_kind",
]
