"""Maximum margin clustering."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.margin.cpmmc import CPMMC as CPMMC
    from volmar.margin.engine.descent import MarginResult as MarginResult
    from volmar.margin.engine.descent import maximise_margin as maximise_margin
    from volmar.margin.engine.problem import MarginProblem as MarginProblem
    from volmar.margin.gmmc import GMMC as GMMC
    from volmar.margin.gmmc import GMMCProblem as GMMCProblem
    from volmar.margin.gmmc import GMMCResult as GMMCResult
    from volmar.margin.iter_svr import IterSVR as IterSVR
    from volmar.margin.iter_svr import IterSVRResult as IterSVRResult
    from volmar.margin.kernel_cpmmc import KernelCPMMC as KernelCPMMC
    from volmar.margin.lgmmc import LGMMC as LGMMC
    from volmar.margin.lgmmc import (
        LabelGenerationResult as LabelGenerationResult,
    )
    from volmar.margin.multivariate_mmc import MultivariateMMC as MultivariateMMC
    from volmar.margin.sdp_mmc import SDPMMC as SDPMMC
    from volmar.margin.sdp_mmc import SDPMMCProblem as SDPMMCProblem
    from volmar.margin.sdp_mmc import SDPMMCResult as SDPMMCResult
    from volmar.margin.skmmc import SKMMC as SKMMC

attach(__name__)
