"""Maximum margin clustering."""

from volmar.margin.gmmc import GMMC, GMMCResult
from volmar.margin.gmmc_problem import GMMCProblem

__all__ = ["GMMC", "GMMCProblem", "GMMCResult"]
