"""Notes and messages about the preparation of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from volmar.tables.columns import Columns
from volmar.tables.errors import listed, quoted_names, shown

if TYPE_CHECKING:
    from volmar.tables.prepare import Preparation

__all__ = [
    "all_alike",
    "missing_refused",
    "note_huge",
    "note_kinds",
    "note_left_out",
    "note_missing",
    "note_same",
]

# Share of missing values in a column above which a warning is given.
MANY_MISSING = 0.2
ONE_VALUE = "one value only"
USES_ONE = "kinds={'NAME': 'numeric'} or kinds={'NAME': 'categorical'} uses such a column"


def all_alike(source: str, left_out: dict[str, str]) -> str:
    """Return the message for a table without a usable column."""
    gone = [f"{shown(name)} ({why})" for name, why in left_out.items() if why]
    remedy = "Give a table whose rows differ, or other columns=."
    if gone:
        remedy = f"Left out were {listed(gone)}. {USES_ONE}."
    return f"{source}: no usable column has two different values, so all rows are equal. {remedy}"


def missing_refused(
    source: str, names: list[str], counts: Any, n_rows: int | None, *, fitted: bool
) -> str:
    """Return the message for missing values that are not allowed.

    The remedy differs for new rows of a `fitted` preparation, which cannot choose another option.
    """
    which = [f"{shown(name)} {count}" for name, count in zip(names, counts, strict=True) if count]
    rows = "their rows" if n_rows is None else "1 row" if n_rows == 1 else f"{n_rows} rows"
    total = sum(int(count) for count in counts)
    remedy = (
        f"Give missing='drop' to leave out {rows}, missing='impute' to fill them in, or name "
        "these columns in drop=."
    )
    if fitted:
        remedy = (
            "The model was fitted with missing='error'. Fill them in, or fit it again with "
            "missing='impute' or missing='drop'."
        )
    return (
        f"{source}: {total} {'value is' if total == 1 else 'values are'} missing (or infinite), "
        f"by column: {listed(which)}. {remedy}"
    )


def note_left_out(
    notes: list[str], names: list[str], which: str = "with one value only", why: str = ONE_VALUE
) -> dict[str, str]:
    """Note the columns that were left out, and return the reason for each."""
    if names:
        notes.append(f"columns {which} were left out: {quoted_names(names)}")
    return dict.fromkeys(names, why)


def note_same(notes: list[str], name: str, first: str) -> None:
    """Note that a column is left out because it duplicates another one."""
    notes.append(f"column {shown(name)} duplicates {shown(first)} and was left out")


def note_missing(
    notes: list[str], warnings: list[str], names: list[str], counts: Any, n_rows: int
) -> None:
    """Note the number of filled-in values, and warn about columns with many of them."""
    gone = [(name, int(count)) for name, count in zip(names, counts, strict=True) if count]
    total = sum(count for _, count in gone)
    which = listed(f"{shown(name)} {count:,}" for name, count in gone)
    notes.append(
        f"{total:,} missing value{'s were' if total > 1 else ' was'} filled in from similar rows, "
        f"by column: {which}"
    )
    many = [(name, count / n_rows) for name, count in gone if count > MANY_MISSING * n_rows]
    if many:
        worst = listed(f"{shown(name)} {100 * share:.0f} %" for name, share in many)
        warnings.append(
            f"many values are missing ({worst}), and clusters may depend on the values filled in; "
            "name these columns in drop=, or compare with missing='drop'"
        )


def note_huge(notes: list[str], table: Columns, places: list[int], X: NDArray[Any]) -> None:
    """Note integer columns whose values are not exact in float64."""
    if not table.is_frame:
        return
    dtypes = list(table.data.dtypes)
    huge = [
        table.names[j]
        for k, j in enumerate(places)
        if dtypes[j].kind in "iu" and np.abs(X[:, k]).max() > 2.0**53
    ]
    if huge:
        notes.append(
            f"integers above 2^53 lose their last digits: {quoted_names(huge)}; "
            "if they are ids, name them in id_column= or drop="
        )


def note_kinds(notes: list[str], preparation: Preparation) -> None:
    """Note the scaling of features, and the use of ordinal columns, dates, ids and categories."""
    if preparation.scale == "minmax":
        notes.append("features were scaled to the range 0 to 1")
    elif preparation.scale != "none":
        notes.append("features were scaled to mean 0 and standard deviation 1")
    by_kind: dict[str, list[str]] = {}
    for name, kind in zip(preparation.numbers_, preparation.number_kinds_, strict=True):
        by_kind.setdefault(kind.kind, []).append(name)
        if kind.kind == "date" and kind.reason:
            notes.append(
                f"every date of column {shown(name)} may have the day or the month first; they "
                f"were read with the {kind.layout} ({kind.reason}); if this is wrong, write them "
                "as 2024-12-31"
            )
    if ordinal := by_kind.get("ordinal"):
        notes.append(
            f"ordinal columns were replaced by the rank of their values: {quoted_names(ordinal)}"
        )
    if dates := by_kind.get("date"):
        notes.append(f"dates were converted to decimal years: {quoted_names(dates)}")
    left_out = preparation.left_out_
    guessed = [
        f"{shown(name)} ({reason})"
        for name, reason in left_out.items()
        if preparation.kinds_.get(name) in ("id", "text", "ignore")
        and name not in (preparation.kinds or {})
        and reason not in ("not chosen", "names the rows")
    ]
    if guessed:
        notes.append(f"columns of ids or text were left out: {listed(guessed)} ({USES_ONE})")
    if described := [name for name, why in left_out.items() if why.startswith("a category that")]:
        notes.append(
            f"categories describe the clusters but are not features: {quoted_names(described)}"
        )
    scores = preparation.scores_
    if scores is not None and preparation.numbers_:
        leading = list(dict.fromkeys(name for names in scores.leading for name in names))
        notes.append(
            f"categories that agree with each other give {scores.n_scores} "
            f"feature{'s' if scores.n_scores > 1 else ''}: {quoted_names(leading)}"
        )
