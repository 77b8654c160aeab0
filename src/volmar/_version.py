"""The version of the package (SemVer), defined only here."""

__version__ = "0.1.0"
