"""volmar: discriminative clustering."""

from volmar._version import __version__

__all__ = ["__version__"]
