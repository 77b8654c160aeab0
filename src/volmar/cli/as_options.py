"""The library's arguments as the options of the command."""

from __future__ import annotations

import re

__all__ = ["as_options"]

_OPTIONS = {
    "columns": "--columns",
    "drop": "--drop",
    "id_column": "--id",
    "kinds": "--kind",
    "missing": "--missing",
    "scale": "--scale",
}


def as_options(text: str) -> str:
    """Return a message of the library with the options of the command in place of arguments.

    Parameters
    ----------
    text : str
        A message or a note: "give missing='drop'".

    Returns
    -------
    str
        "give --missing drop".
    """
    text = re.sub(r"\bkinds=\{'([^']*)': '(\w+)'\}", r"--kind \1=\2", text)
    text = re.sub(r"\b(missing|scale)='(\w+)'", r"--\1 \2", text)
    text = text.replace("force=True", "--force")
    return re.sub(rf"\b({'|'.join(_OPTIONS)})=(?!\w)", lambda found: _OPTIONS[found[1]], text)
