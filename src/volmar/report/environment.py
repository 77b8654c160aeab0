"""What all pages are made with: the templates."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from volmar._files import printable


def page_environment() -> Any:
    """Return jinja's environment of the package's templates; it escapes what it is given."""
    try:
        from jinja2 import Environment, PackageLoader
    except ImportError as error:
        raise ImportError(
            "reports need jinja2, which is not installed: pip install 'volmar[cli]'"
        ) from error
    environment = Environment(
        loader=PackageLoader("volmar.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters["fingerprint"] = fingerprint
    return environment


def _shown(value: Any) -> Any:
    """Return texts without control characters; markup of our own stays as it is."""
    return printable(value, keep="\n\t") if type(value) is str else value


def fingerprint(script: str) -> str:
    """Return the source expression that allows this script, and no other, to run."""
    digest = hashlib.sha256(str(script).encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
