"""The certified answer that every solver returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

import numpy as np


class Status(Enum):
    """How a solver ended.

    - ``CONVERGED``: it reached what it was asked for.
    - ``MAX_ITER``: the iteration limit came first.
    - ``CYCLE``: a labelling came back.
    - ``DEGENERATE``: the data do not determine the answer; another is as good.
    - ``INFEASIBLE``: no point satisfies the constraints.
    - ``UNBOUNDED``: the objective has no lower bound.
    - ``FAILED``: the numbers broke down.
    """

    CONVERGED = "converged"
    MAX_ITER = "iteration limit reached"
    CYCLE = "a labelling came back: the iteration cycles"
    DEGENERATE = "the problem does not determine its answer"
    INFEASIBLE = "no point satisfies the constraints"
    UNBOUNDED = "the objective has no lower bound"
    FAILED = "the numbers broke down"

    @property
    def ok(self) -> bool:
        """Whether the solver reached what it was asked for."""
        return self is Status.CONVERGED


@dataclass(frozen=True)
class Result:
    """What a solver found, with what is needed to check it.

    Attributes
    ----------
    objective : float
        Value of the minimised objective at the returned point.
    gap : float
        Certified distance of `objective` to the optimum; NaN where no certificate exists.
    residuals : mapping of str to float
        Named optimality residuals, each zero at an exact solution.
    status : Status
        How the solver ended.
    n_iter : int
        Iterations of the run that was kept.
    history : tuple of float
        The objective along that run: after each iteration of an iterative solver, the one value
        of a direct one.
    """

    objective: float
    gap: float = float("nan")
    residuals: Mapping[str, float] = field(default_factory=dict)
    status: Status = Status.CONVERGED
    n_iter: int = 0
    history: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "residuals", MappingProxyType(dict(self.residuals)))

    def __repr__(self) -> str:
        """Name every field; arrays by their shape, or a fit's result would fill the screen."""
        parts = []
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                value = f"<array of shape {value.shape}>"
            elif isinstance(value, tuple) and len(value) > 3:
                value = f"<{len(value)} values, last {value[-1]:.6g}>"
            elif isinstance(value, Mapping):
                value = dict(value)
            elif isinstance(value, float):
                value = f"{value:.6g}"
            elif isinstance(value, Enum):
                value = value.name
            parts.append(f"{name}={value}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def __reduce__(self):
        """Pickle through plain dicts: a mapping proxy cannot be pickled."""
        state = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return _rebuild, (type(self), state | {"residuals": dict(self.residuals)})

    def is_certified(self, tol: float) -> bool:
        """Whether the solver converged, its gap (where it has one) and residuals within `tol`."""
        gap_ok = np.isnan(self.gap) or self.gap <= tol * max(1.0, abs(self.objective))
        return self.status.ok and gap_ok and all(r <= tol for r in self.residuals.values())


def _rebuild(cls: type[Result], state: dict) -> Result:
    return cls(**state)
