"""A plain table that reads the same on screen and as Markdown."""

from dataclasses import dataclass, field


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
