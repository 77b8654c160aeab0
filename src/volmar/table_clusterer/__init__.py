"""`TableClusterer`, which prepares and clusters a table, and `compare_methods`."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.table_clusterer.comparison import Comparison as Comparison
    from volmar.table_clusterer.comparison import compare_methods as compare_methods
    from volmar.table_clusterer.estimator import TableClusterer as TableClusterer

attach(__name__)
