"""Tables: files to rows that a method takes, and labels to files."""

from volmar.tables.blocks import prepare_blocks
from volmar.tables.errors import TableError
from volmar.tables.folder import is_folder_of_tables, read_folder
from volmar.tables.prepare import Preparation, Prepared
from volmar.tables.read import LoadedTable, read_table
from volmar.tables.source import source_columns
from volmar.tables.write import open_labels, write_atomically, write_labels

__all__ = [
    "LoadedTable",
    "Preparation",
    "Prepared",
    "TableError",
    "is_folder_of_tables",
    "open_labels",
    "prepare_blocks",
    "read_folder",
    "read_table",
    "source_columns",
    "write_atomically",
    "write_labels",
]
