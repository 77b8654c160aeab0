"""Messages of the library, with command line options in place of argument names."""

from __future__ import annotations

import re

__all__ = ["as_options"]

_OPTIONS = {
    "seeds": "--seeds",
    "must_link": "--must-link",
    "columns": "--columns",
    "drop": "--drop",
    "id_column": "--id",
    "kinds": "--kind",
    "missing": "--missing",
    "scale": "--scale",
}


def as_options(text: str) -> str:
    """Return a message with options in place of arguments: ``--missing drop``, for example."""
    text = re.sub(r"\bkinds=\{'([^']*)': '(\w+)'\}", r"--kind \1=\2", text)
    text = re.sub(r"\b(missing|scale)='(\w+)'", r"--\1 \2", text)
    text = re.sub(r"\b(min|max)_cluster_size=", r"--\1-size ", text)
    text = re.sub(r"\breject(?:=| (?=must be ))", "--reject ", text)
    text = text.replace("force=True", "--force")
    return re.sub(rf"\b({'|'.join(_OPTIONS)})=(?!\w)", lambda found: _OPTIONS[found[1]], text)
