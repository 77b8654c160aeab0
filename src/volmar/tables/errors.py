"""The error of this room, and how its messages show names and values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["TableError", "as_parameters", "listed", "nearest", "need", "shown"]

_VALUES = "auto|standard|minmax|none|impute|drop|indicator|error"
_PARAMETERS = {
    "--columns": "columns",
    "--drop": "drop",
    "--id": "id_column",
    "--kind": "kinds",
    "--missing": "missing",
    "--scale": "scale",
}


class TableError(ValueError):
    """A table, or a wish about it, that cannot be used; one line that ends with the remedy."""


def shown(value: Any) -> str:
    """Return a value as a message shows it: on one line, in quotes, not too long."""
    text = repr(str(value))
    return text if len(text) <= 200 else text[:150] + "..." + text[-40:]


def listed(values: Iterable[str], most: int = 5) -> str:
    """Return a few of the values with commas between, and how many more there are."""
    words = list(values)
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def nearest(name: str, known: Sequence[str]) -> str:
    """Return what to choose from: the names most like this one, or the first few."""
    near = difflib.get_close_matches(name, known, n=3)
    if near:
        return f"did you mean {' or '.join(map(shown, near))}?"
    return f"there are {listed(map(shown, known), 8)}"


def need(package: str, extra: str = "io") -> ImportError:
    """Return the error for a library of an extra that is not installed."""
    return ImportError(
        f"this kind of table needs {package}, which is not installed: "
        f"pip install 'volmar[{extra}]'"
    )


def as_parameters(text: str) -> str:
    """Return a message with the parameters of Python in place of the command's options.

    Parameters
    ----------
    text : str
        A message or a note: "give --missing drop".

    Returns
    -------
    str
        "give missing='drop'".
    """
    text = re.sub(rf"--(missing|scale) ({_VALUES})\b", r"\1='\2'", text)
    text = re.sub(r"--kind (\S+)=(\w+)", r"kinds={'\1': '\2'}", text)
    for option, parameter in _PARAMETERS.items():
        text = re.sub(rf"{option}(?![\w-])", parameter, text)
    return text
