"""The result of a fit with a single cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from volmar.solvers import Result


@dataclass(frozen=True, repr=False)
class OneCluster(Result):
    """All rows in one cluster, with an objective and a gap of 0."""

    labels: NDArray = field(default_factory=lambda: np.empty(0))
