"""The optional arguments of `fit` that guide it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Knowledge(NamedTuple):
    """Labels, links and weights passed to `fit`, before any checks."""

    y: Any = None
    must_link: Any = None
    cannot_link: Any = None
    sample_weight: Any = None
