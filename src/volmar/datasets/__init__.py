"""Benchmark sets of the papers by name, and artificial data with known labels."""

from volmar.datasets.generators import (
    make_blobs,
    make_two_circles,
    make_two_gaussians,
    make_two_moons,
)
from volmar.datasets.loading import load
from volmar.datasets.sources import data_folder
from volmar.datasets.tasks import list_datasets

__all__ = [
    "data_folder",
    "list_datasets",
    "load",
    "make_blobs",
    "make_two_circles",
    "make_two_gaussians",
    "make_two_moons",
]
