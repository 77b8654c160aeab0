"""The papers' data sets by name: from a folder of files, scikit-learn, OpenML or a generator."""

from reproduction.datasets.loading import load
from reproduction.datasets.registry import list_datasets
from reproduction.datasets.sources import data_folder

__all__ = ["data_folder", "list_datasets", "load"]
