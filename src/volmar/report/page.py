"""One self-contained HTML page: no script, no network, pictures inside."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path

from volmar._version import __version__
from volmar.report.environment import page_environment


@dataclass(frozen=True)
class Table:
    """Rows under a header; the columns named in `right` are right-aligned."""

    header: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    right: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Section:
    """A part of the page: a heading, and text, a table or a picture below it."""

    heading: str
    text: str = ""
    table: Table | None = None
    picture: Path | None = None
    alt: str = ""


def write_page(path: Path, title: str, sections: list[Section]) -> Path:
    """Write the sections as one HTML file and return its path."""
    html = (
        page_environment()
        .get_template("page.html")
        .render(
            title=title,
            version=__version__,
            sections=[(section, _data_uri(section.picture)) for section in sections],
        )
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html, encoding="utf-8")
    return path


def _data_uri(picture: Path | None) -> str | None:
    if picture is None:
        return None
    return "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode("ascii")
