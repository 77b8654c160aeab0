"""The papers' tables and figures, run again: one page, as Markdown and as HTML."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from reproduction.page_sections import Part, make_page
from reproduction.page_tables import Grid
from volmar._files import write_atomically
from volmar._text import as_count
from volmar._version import __version__
from volmar.report.cluster_page import page_environment

if TYPE_CHECKING:
    from reproduction.verdict import Reproduction

__all__ = ["to_markdown", "write_reproduction"]

TITLE = "The papers' tables, run again"
READING = {
    "paper's protocol": "the paper's algorithm with the paper's grid; the labels pick the best "
    "setting for each sampling, as in the papers. It shows whether the paper's values come out, "
    "not what a user can expect",
    "label-free": "the estimator's default on the rows alone, which is what a user gets",
    "reproduced": "under the paper's protocol, a value is within the tolerance of the print; a "
    "table is reproduced if enough of its values are, and a figure without printed values if "
    "enough of the text's statements hold (each section gives the tolerance and the share)",
    "better, worse than printed": "under the paper's protocol, a value differs from the print by "
    "more than the tolerance; a table in which too many do is not reproduced, even if they are "
    "better",
    "as good as printed": "without labels, a value is no worse than the print plus the tolerance; "
    "it may be better. Of a table, enough of its values are; of a figure without printed values, "
    "enough statements hold. It is worse than printed otherwise",
    "faster, slower": "a fit takes less or more time than printed, on another machine",
    "quick look": "one sampling and part of the grid, too little for a verdict",
    "incomplete": "some cells have not been run",
    "shown": "there is nothing to compare with",
    "time over KMeans": "the CPU seconds of a fit over those of scikit-learn's KMeans with ten "
    "starts on the same rows in the same run, paper's protocol / label-free",
}


def to_markdown(
    reproductions: Sequence[Reproduction], *, command: str, pictures: Mapping[str, PurePath | str]
) -> str:
    """Return the page as Markdown for the docs (MyST).

    Parameters
    ----------
    reproductions : sequence of Reproduction
        Results to show, each experiment once.
    command : str
        Command that computes the results.
    pictures : mapping of str to path
        Plots by the names of experiments, as paths relative to the page.

    Returns
    -------
    str
        Text without dates, machine names and absolute paths: equal for equal arguments.
    """
    for name, picture in pictures.items():
        if PurePath(picture).is_absolute():
            raise ValueError(
                f"pictures[{name!r}]={str(picture)!r} is absolute. Give it relative to the page."
            )
    page = make_page(reproductions)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", command)), default=0))
    lines = [f"# {TITLE}", page["headline"]]
    lines += ["\n".join(f"- **{word}**: {_escaped(text)}." for word, text in READING.items())]
    lines += ["Made by", f"{fence}text\n{command.strip()}\n{fence}"]
    if page["versions"]:
        lines += [f"with {_escaped(_joined(page['versions']))}."]
    if page["quick"]:
        lines += [f"**{page['quick']}**"]
    lines += [_markdown_table(page["overview"])]
    for paper, parts in page["papers"]:
        lines.append(f"## {_escaped(paper)}")
        for part in parts:
            lines += _markdown_part(part, pictures.get(part.name))
    return "\n\n".join(lines) + "\n"


def write_reproduction(
    reproductions: Sequence[Reproduction],
    folder: Path,
    *,
    command: str,
    pictures: Mapping[str, Path],
    stem: str = "reproduction",
) -> tuple[Path, Path]:
    """Write the page as Markdown and as HTML; older files of these names are replaced.

    The HTML file contains its plots and needs no network; the Markdown file links to them. Each
    file is written completely or not at all.

    Parameters
    ----------
    reproductions : sequence of Reproduction
        Results to show, each experiment once.
    folder : Path
        Folder of the files, created if it does not exist.
    command : str
        Command that computes the results.
    pictures : mapping of str to Path
        PNG files by the names of experiments.
    stem : str, default="reproduction"
        Name of the files, which end in ``.md`` and ``.html``.

    Returns
    -------
    tuple of Path
        The Markdown and the HTML file.
    """
    folder = Path(folder)
    links = {name: os.path.relpath(picture, folder) for name, picture in pictures.items()}
    markdown = to_markdown(reproductions, command=command, pictures=links)
    environment = _environment()
    environment.filters["count"] = as_count
    html = environment.get_template("reproduction.html").render(
        **make_page(reproductions),
        title=TITLE,
        version=__version__,
        command=command.strip(),
        reading=READING,
        pictures={name: Picture.read(name, picture) for name, picture in pictures.items()},
    )
    written = folder / f"{stem}.md", folder / f"{stem}.html"
    for path, text in zip(written, (markdown, html), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text, force=True)
    return written


def _environment() -> Any:
    """Return the environment of volmar's reports, with the template of this page."""
    from jinja2 import ChoiceLoader, PackageLoader

    environment = page_environment()
    environment.loader = ChoiceLoader([PackageLoader("reproduction"), environment.loader])
    return environment


@dataclass(frozen=True)
class Picture:
    """A PNG file as a data URL, with its size in pixels."""

    source: str
    width: int
    height: int

    @classmethod
    def read(cls, name: str, path: Path) -> Picture:
        data = Path(path).read_bytes()
        if data[:8] != b"\x89PNG\r\n\x1a\n":
            raise ValueError(f"pictures[{name!r}]={str(path)!r} is not a PNG file. Give one.")
        width, height = (int.from_bytes(data[i : i + 4], "big") for i in (16, 20))
        coded = base64.b64encode(data).decode("ascii")
        return cls(f"data:image/png;base64,{coded}", width, height)


# ------------------------------------------------------------------------------ Markdown


def _markdown_part(part: Part, picture: PurePath | str | None) -> list[str]:
    """Return the paragraphs of a section."""
    lines = [f"({part.anchor})=\n### {_escaped(part.heading)}"]
    lines.append(f"**{part.title}.** {_escaped(part.detail)}")
    if part.claims:
        lines.append("What the paper says of it:")
        lines.append("\n".join(_markdown_claim(**claim) for claim in part.claims))
    if picture is not None:
        lines.append(f"![{_escaped(part.heading)}]({quote(PurePath(picture).as_posix())})")
    lines.append(_block(part.about))
    for grid in part.grids:
        lines.append(_markdown_table(grid))
        if grid.notes:
            lines.append("\n".join(f"- {_block(note)}" for note in grid.notes))
    if part.note:
        lines.append(_block(part.note))
    if part.failures:
        lines.append("What failed:")
        lines.append("\n".join(f"- {_block(text)}" for text in part.failures))
    return lines


def _markdown_claim(says: str, word: str, detail: str, **_: str) -> str:
    ending = f" ({_escaped(detail)})" if detail else ""
    return f"- {_block(says)}: **{word}**{ending}."


def _markdown_table(grid: Grid) -> str:
    rows = [grid.header, [":---" if i in grid.left else "---:" for i in range(len(grid.header))]]
    for row in grid.rows:
        texts = [_escaped(cell.text) for cell in row]
        texts = [f"**{t}**" if cell.bold else t for t, cell in zip(texts, row, strict=True)]
        rows.append(
            [
                f"[{t}](#{cell.link})" if cell.link else t
                for t, cell in zip(texts, row, strict=True)
            ]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _escaped(text: str) -> str:
    """Return text with all Markdown, MyST and formula syntax escaped."""
    text = re.sub(r"([\\`*\[\]$|~])", r"\\\1", text)
    text = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)
    text = re.sub(r"<(?=[A-Za-z/!?])", r"\\<", text)
    return re.sub(r"&(?=#?\w+;)", r"\\&", text)


def _block(text: str) -> str:
    """Return escaped text that does not start a heading, list, quotation, comment or target."""
    return re.sub(r"^(?=[#>%+=:(-])|^(\d+)(?=[.)](\s|$))", r"\1\\", _escaped(text))


def _joined(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
