"""The rows of a separation problem, as all starts see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from volmar.rows import Standardized
from volmar.separation.gep import RegularizedCorrelation

__all__ = ["SeparationRows"]


@dataclass(frozen=True)
class SeparationRows:
    """Rows in units of their standard deviations, with what does not depend on the labels.

    Attributes
    ----------
    X : array, CSR matrix or BlockTable of shape (n, d)
        The rows, or their features under the kernel.
    z : Standardized
        The same, standardised.
    regularized : RegularizedCorrelation
        R + reg I.
    feature_map : FeatureMap or None
        That of the kernel.
    min_weight : float
        Minimum weight of a cluster.
    """

    X: Any
    z: Standardized
    regularized: RegularizedCorrelation
    feature_map: Any
    min_weight: float

    @property
    def min_share(self) -> float:
        """Minimum share of a cluster."""
        return self.min_weight / self.z.rows.total_weight

    def with_reg(self, reg: float) -> RegularizedCorrelation:
        """Return R + reg I: the one there is, where it has this `reg`."""
        if reg == self.regularized.reg:
            return self.regularized
        return RegularizedCorrelation(self.z.correlation, reg)
