"""Maximin separation probability: clustering (MSPC) and a classifier by the same criterion."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.separation.discriminants import (
        MultiwaySeparationResult as MultiwaySeparationResult,
    )
    from volmar.separation.gep import SeparationResult as SeparationResult
    from volmar.separation.minimax_probability_machine import (
        MinimaxProbabilityMachine as MinimaxProbabilityMachine,
    )
    from volmar.separation.mspc import MSPC as MSPC

attach(__name__)
