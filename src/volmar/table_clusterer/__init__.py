"""Tables in one estimator: the preparation of columns and a clusterer, with reports and files."""

from volmar.table_clusterer.estimator import TableClusterer
from volmar.table_clusterer.names import clusterer_names

__all__ = ["TableClusterer", "clusterer_names"]
