"""What `fit` is given beside rows and weights."""

from __future__ import annotations

from typing import Any, NamedTuple


class Knowledge(NamedTuple):
    """What `fit` was given beside the rows, unchecked."""

    y: Any = None
    must_link: Any = None
    cannot_link: Any = None
    sample_weight: Any = None
