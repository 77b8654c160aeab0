"""Tables: reading files, preparing their columns as features, and writing labels."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.tables.blocks import RowSample as RowSample
    from volmar.tables.blocks import prepare_blocks as prepare_blocks
    from volmar.tables.blocks import prepare_sample as prepare_sample
    from volmar.tables.blocks import sample_rows as sample_rows
    from volmar.tables.columns import as_pandas as as_pandas
    from volmar.tables.errors import TableError as TableError
    from volmar.tables.folder import is_folder_of_tables as is_folder_of_tables
    from volmar.tables.folder import read_folder as read_folder
    from volmar.tables.prepare import Preparation as Preparation
    from volmar.tables.prepare import PreparedTable as PreparedTable
    from volmar.tables.prepare import source_columns as source_columns
    from volmar.tables.read import LoadedTable as LoadedTable
    from volmar.tables.read import read_table as read_table
    from volmar.tables.write import match_labels as match_labels
    from volmar.tables.write import open_columns as open_columns
    from volmar.tables.write import open_labels as open_labels
    from volmar.tables.write import open_rows as open_rows
    from volmar.tables.write import write_labels as write_labels
    from volmar.tables.write import write_rows as write_rows
    from volmar.tables.write import written_kind as written_kind

attach(__name__)
