"""Semi-supervised clustering: known labels, links between rows, limits on cluster sizes."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.guidance.guide import Guide as Guide
    from volmar.guidance.guide import Placement as Placement

attach(__name__)
