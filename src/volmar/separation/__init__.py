"""Maximin separation probability: clustering (MSPC) and the classifier behind it."""

from volmar.separation.gep import SeparationResult
from volmar.separation.minimax_probability_machine import MinimaxProbabilityMachine
from volmar.separation.mspc import MSPC
from volmar.separation.relabelling import MultiwaySeparationResult

__all__ = ["MSPC", "MinimaxProbabilityMachine", "MultiwaySeparationResult", "SeparationResult"]
