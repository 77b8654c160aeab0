"""The environment of the page templates."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from volmar._files import printable


def page_environment() -> Any:
    """Return the jinja environment of the templates; it escapes all values."""
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
    """Return strings without control characters; trusted markup is unchanged."""
    return printable(value, keep="\n\t") if type(value) is str else value


def fingerprint(script: str) -> str:
    """Return the Content-Security-Policy source that allows only this script to run."""
    digest = hashlib.sha256(str(script).encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
