"""Tables: reading files, preparing their columns as features, and writing labels."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.tables.errors import TableError as TableError
    from volmar.tables.prepare import Preparation as Preparation
    from volmar.tables.read import LoadedTable as LoadedTable
    from volmar.tables.read import read_table as read_table

attach(__name__)
