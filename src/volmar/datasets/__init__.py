"""Benchmark data sets of the papers, and generators of artificial data."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.datasets.generators import make_blobs as make_blobs
    from volmar.datasets.generators import make_two_circles as make_two_circles
    from volmar.datasets.generators import make_two_gaussians as make_two_gaussians
    from volmar.datasets.generators import make_two_moons as make_two_moons
    from volmar.datasets.loading import load as load
    from volmar.datasets.registry import list_datasets as list_datasets
    from volmar.datasets.sources import data_folder as data_folder

attach(__name__)
