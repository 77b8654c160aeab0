"""HTML representations of results for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

MOST_ROWS = 50  # maximum number of rows of a table that are shown
# Colours are inherited from the page, so that light and dark themes both work.
STYLE = (
    ".volmar-card{color:inherit;font-size:.95em;line-height:1.45;max-width:60em;"
    "border-left:3px solid #6a8fbd;padding:.2em 0 .2em .9em;margin:.4em 0}"
    ".volmar-card p{margin:.25em 0}"
    ".volmar-card .volmar-kind{font-size:.85em;opacity:.7}"
    ".volmar-card table{border-collapse:collapse;margin:.5em 0;background:none;color:inherit}"
    # Notebooks align cells of tables by rules of their own.
    ".volmar-card th,.volmar-card td{padding:.15em .8em .15em 0;text-align:left!important;"
    "background:none;color:inherit;border:0;border-bottom:1px solid rgba(128,128,128,.35);"
    "white-space:pre;vertical-align:top}"
    ".volmar-card td.volmar-long{white-space:pre-wrap}"
    ".volmar-card td.volmar-number{text-align:right!important;"
    "font-variant-numeric:tabular-nums}"
)


def html_card(
    kind: str,
    sentences: Iterable[str],
    header: Sequence[str] = (),
    rows: Sequence[Sequence[str | int]] = (),
) -> str:
    """Return sentences and a table as self-contained HTML, in the colours of the page.

    `kind` is the caption. All text is escaped. Integers are right-aligned, and only the first 50
    rows of the table are shown.
    """
    parts = [f"<style>{STYLE}</style>", '<div class="volmar-card">']
    parts.append(f'<p class="volmar-kind">{escape(kind)}</p>')
    parts += [f"<p>{escape(sentence)}</p>" for sentence in sentences]
    if rows:
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
        head = f"<thead><tr>{head}</tr></thead>" if head else ""
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:MOST_ROWS])
        parts.append(f"<table>{head}<tbody>{body}</tbody></table>")
        if len(rows) > MOST_ROWS:
            parts.append(f"<p>{len(rows) - MOST_ROWS} more rows are not shown.</p>")
    return "".join([*parts, "</div>"])


def _cell(value: str | int) -> str:
    if not isinstance(value, str):
        return f'<td class="volmar-number">{value:,}</td>'
    kind = ' class="volmar-long"' if len(value) > 40 else ""
    return f"<td{kind}>{escape(value)}</td>"
