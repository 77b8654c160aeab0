"""A Markdown table for the terminal and for files, and targets as rows of a table."""

from dataclasses import dataclass, field
from math import isnan
from typing import NamedTuple


@dataclass
class Table:
    """Rows of text or numbers under a header, and notes below."""

    header: tuple[str, ...]
    rows: list[tuple] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells) -> None:
        """Add a row."""
        if len(cells) != len(self.header):
            raise ValueError(f"{len(cells)} cells for {len(self.header)} columns: {cells}")
        self.rows.append(cells)

    def render(self) -> str:
        """Return the table as aligned Markdown."""
        body = [tuple(_text(cell) for cell in row) for row in self.rows]
        widths = [max(map(len, column)) for column in zip(self.header, *body, strict=True)]
        lines = [_line(self.header, widths), "|" + "|".join("-" * (w + 2) for w in widths) + "|"]
        lines += [_line(row, widths) for row in body]
        return "\n".join(lines + [""] * bool(self.notes) + self.notes)


def _line(cells, widths) -> str:
    return "| " + " | ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)) + " |"


def _text(cell) -> str:
    if isinstance(cell, float):
        return f"{cell:.3g}"
    return "" if cell is None else str(cell)


class Target(NamedTuple):
    """Target of the project for one of its methods."""

    words: str
    method: str
    value: float
    wanted: float
    at_most: bool = False

    @property
    def cells(self):
        """Measured value, bound and whether the bound is met, as text."""
        bound = f"{'at most' if self.at_most else 'at least'} {self.wanted:.3g}"
        if isnan(self.value):
            return "-", bound, "-"
        met = self.value <= self.wanted if self.at_most else self.value >= self.wanted
        return f"{self.value:.3f}", bound, "yes" if met else "no"
