"""The result of a fit that has nothing to divide."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from volmar.solvers import Result


@dataclass(frozen=True, repr=False)
class OneCluster(Result):
    """All rows together: nothing to cut, nothing to gain."""

    labels: NDArray = field(default_factory=lambda: np.empty(0))
