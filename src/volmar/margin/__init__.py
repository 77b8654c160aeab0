"""Maximum margin clustering."""

from volmar.margin.cpmmc import CPMMC
from volmar.margin.engine.descent import MarginResult, maximise_margin
from volmar.margin.engine.problem import MarginProblem
from volmar.margin.gmmc import GMMC, GMMCResult
from volmar.margin.iter_svr import IterSVR
from volmar.margin.kernel_cpmmc import KernelCPMMC
from volmar.margin.lgmmc import LGMMC
from volmar.margin.multivariate_mmc import MultivariateMMC
from volmar.margin.relaxations.gmmc_problem import GMMCProblem
from volmar.margin.relaxations.iter_svr_solver import IterSVRResult
from volmar.margin.relaxations.lgmmc_solver import LabelGenerationResult
from volmar.margin.sdp_mmc import SDPMMC, SDPMMCProblem, SDPMMCResult
from volmar.margin.skmmc import SKMMC

__all__ = [
    "CPMMC",
    "GMMC",
    "LGMMC",
    "SDPMMC",
    "SKMMC",
    "GMMCProblem",
    "GMMCResult",
    "IterSVR",
    "IterSVRResult",
    "KernelCPMMC",
    "LabelGenerationResult",
    "MarginProblem",
    "MarginResult",
    "MultivariateMMC",
    "SDPMMCProblem",
    "SDPMMCResult",
    "maximise_margin",
]
