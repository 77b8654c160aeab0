"""``volmar info``: versions of volmar and its libraries, and installed extras."""

from __future__ import annotations

import platform
from importlib import metadata

from rich.table import Table

from volmar._version import __version__
from volmar.cli.console import screen

# Distribution names of the libraries of each extra.
EXTRAS = {
    "cli": ("typer", "rich", "jinja2"),
    "plot": ("matplotlib",),
    "io": ("pandas", "pyarrow"),
    "dask": ("dask", "distributed"),
    "large": ("faiss-cpu",),
}
ALWAYS = ("numpy", "scipy", "scikit-learn", "joblib", "daqp")


def show_info() -> None:
    """Print the versions of volmar, Python and the libraries, and the missing extras."""
    from volmar.datasets import data_folder

    table = Table(box=None, show_header=False)
    table.add_row("volmar", __version__)
    table.add_row("Python", f"{platform.python_version()} on {platform.system()}")
    for name in ALWAYS:
        table.add_row(name, _version(name) or "missing")
    for extra, names in EXTRAS.items():
        found = {name: _version(name) for name in names}
        text = ", ".join(f"{name} {version}" for name, version in found.items() if version)
        missing = [name for name, version in found.items() if version is None]
        if missing:
            text += f"{'; ' if text else ''}missing {', '.join(missing)}"
            text += f" (pip install 'volmar[{extra}]')"
        table.add_row(f"extra {extra}", text)
    table.add_row("papers' data", "found" if data_folder() else "not found (VOLMAR_DATA)")
    screen().print(table)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
