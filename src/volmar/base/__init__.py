"""The estimator base: validation, restarts, callbacks, recursion, certified results."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.base.tree import SplitNode as SplitNode
    from volmar.base.tree import SplitTree as SplitTree

attach(__name__)
