"""What a preparation did with columns that are not plain numbers, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volmar.tables.errors import listed, shown

if TYPE_CHECKING:
    from volmar.tables.prepare import Preparation

__all__ = ["note_kinds", "quoted_names"]


def quoted_names(names: list[str], most: int = 5) -> str:
    """Return names of columns in quotes, the first few of many."""
    return listed(map(shown, names), most)


def note_kinds(notes: list[str], preparation: Preparation) -> None:
    """Add lines about ordinal columns, dates, ids, text and categories.

    Parameters
    ----------
    notes : list of str
        Lines are added.
    preparation : Preparation
        With its columns found.
    """
    by_kind: dict[str, list[str]] = {}
    for name, kind in zip(preparation.numbers_, preparation.number_kinds_, strict=True):
        by_kind.setdefault(kind.kind, []).append(name)
    if ordinal := by_kind.get("ordinal"):
        notes.append(
            f"ordinal columns count by the order of their values: {quoted_names(ordinal)}"
        )
    if dates := by_kind.get("date"):
        notes.append(f"dates were turned into years with a fraction: {quoted_names(dates)}")
    left_out = preparation.left_out_
    guessed = [
        f"{shown(name)} ({reason})"
        for name, reason in left_out.items()
        if preparation.kinds_.get(name) in ("id", "text", "ignore")
        and name not in preparation.kinds
        and reason not in ("not chosen", "names the rows")
    ]
    if guessed:
        notes.append(
            f"columns of ids or text were left out: {listed(guessed)} (--kind NAME=numeric or "
            "categorical uses one)"
        )
    if described := [name for name, why in left_out.items() if why.startswith("a category that")]:
        notes.append(
            f"categories describe the clusters and do not make them: {quoted_names(described)}"
        )
    scores = preparation.scores_
    if scores is not None and preparation.numbers_:
        leading = list(dict.fromkeys(name for names in scores.leading for name in names))
        notes.append(
            f"categories agree with each other, and count as {scores.n_scores} "
            f"column{'s' if scores.n_scores > 1 else ''}: {quoted_names(leading)}"
        )
