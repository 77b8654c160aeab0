"""The certified answer that every solver returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray


class Status(Enum):
    """How a solver ended.

    - ``CONVERGED``: it reached what it was asked for.
    - ``MAX_ITER``: the iteration limit came first.
    - ``CYCLE``: labels, or a cut, came back.
    - ``DEGENERATE``: the data do not determine the answer; another is as good.
    - ``UNBOUNDED``: the objective has no lower bound.
    - ``STOPPED``: a rule of the algorithm ended it before it converged.
    - ``FAILED``: the numbers broke down.
    """

    CONVERGED = "converged"
    MAX_ITER = "iteration limit reached"
    CYCLE = "labels or a cut came back: the iteration cycles"
    DEGENERATE = "the problem does not determine its answer"
    UNBOUNDED = "the objective has no lower bound"
    STOPPED = "the algorithm's own rule ended it before it converged"
    FAILED = "the numbers broke down"

    @property
    def ok(self) -> bool:
        """Whether the solver reached what it was asked for."""
        return self is Status.CONVERGED


@dataclass(frozen=True)
class Certificate:
    """Objective, gap and residuals of a point, as a problem computes them from its own data.

    `gap` and `residuals` are those of `Result`.
    """

    objective: float
    residuals: Mapping[str, float] = field(default_factory=dict)
    gap: float = float("nan")


class CertifyingProblem(Protocol):
    """A problem that computes the certificate of any point."""

    #: A function of the fields that `Result._solution` names.
    certificate: Any


@dataclass(frozen=True)
class Result:
    """What a solver found, with what is needed to check it.

    Attributes
    ----------
    objective : float
        Value of the minimised objective at the returned point.
    gap : float
        Certified distance of `objective` to the optimum; NaN where none was proved.
    residuals : mapping of str to float
        Named optimality residuals, each zero at an exact solution; NaN where one is undefined.
    status : Status
        How the solver ended.
    n_iter : int
        Iterations of the run that was kept.
    history : tuple of float
        The objective along that run: after each iteration of an iterative solver, the one value
        of a direct one.
    """

    #: Fields that a problem's `certificate` is a function of.
    _solution: ClassVar[tuple[str, ...]] = ()
    #: Fields that hold numbers of clusters.
    _numbers: ClassVar[tuple[str, ...]] = ("labels",)
    #: Fields whose sign tells two clusters apart; of more they have one entry each, on the last
    #: axis.
    _signed: ClassVar[tuple[str, ...]] = ()
    #: Fields with an entry for each cluster, two or more, on the given axis.
    _per_cluster: ClassVar[Mapping[str, int]] = MappingProxyType({})

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
        for one in fields(self):
            name, value = one.name, getattr(self, one.name)
            if isinstance(value, np.ndarray):
                value = f"<array of shape {value.shape}>"
            elif isinstance(value, tuple) and len(value) > 3:
                last = value[-1]  # of the history, or of warnings
                last = f"{last:.6g}" if isinstance(last, float) else repr(last)
                value = f"<{len(value)} values, last {last}>"
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
        state = {one.name: getattr(self, one.name) for one in fields(self)}
        return _rebuild, (type(self), state | {"residuals": dict(self.residuals)})

    def renumbered(self, order: NDArray) -> Self:
        """Return the same answer with its clusters renumbered: j for what was ``order[j]``."""
        if np.array_equal(order, np.arange(len(order))):
            return self
        changed: dict[str, Any] = {}
        for name in self._numbers:
            changed[name] = _renumbered(getattr(self, name), order)
        for name in self._signed:
            value = getattr(self, name)
            changed[name] = -value if len(order) == 2 else np.take(value, order, axis=-1)
        for name, axis in self._per_cluster.items():
            value = getattr(self, name)  # clusters without rows, which are last, may have no entry
            changed[name] = np.take(value, order[order < value.shape[axis]], axis=axis)
        if "scores" in self._signed and len(order) == 2:
            # A row on the border belongs to cluster 0, whichever that is.
            changed["labels"] = changed["labels"] * (changed["scores"] != 0)
        return replace(self, **changed)

    def is_certified(self, tol: float) -> bool:
        """Whether the solver converged and proved it: gap and residuals are within `tol`.

        The gap may be `tol` times the objective (or times 1, where that is smaller). An undefined
        gap proves nothing: see `is_stationary` for solvers of problems without a bound.
        """
        is_near = self.gap <= tol * max(1.0, abs(self.objective))  # NaN is not
        return bool(self.status.ok and is_near and all(r <= tol for r in self.residuals.values()))

    def is_stationary(self, tol: float) -> bool:
        """Whether all residuals are within `tol`; False where there are none, or one is NaN."""
        return bool(self.residuals) and all(r <= tol for r in self.residuals.values())

    def check(self, problem: CertifyingProblem) -> Self:
        """Return this result with objective, gap and residuals computed anew from the problem.

        That is the problem of which it is a solution: a VolumeProblem, AVRProblem or WorkingSet,
        say.
        """
        if not self._solution:
            raise TypeError(f"{type(self).__name__} has no problem that can check it.")
        solution = (getattr(self, name) for name in self._solution)
        return replace(self, **vars(problem.certificate(*solution)))


def _rebuild(cls: type[Result], state: dict) -> Result:
    return cls(**state)


def _renumbered(labels: Any, order: NDArray) -> Any:
    """Return labels by the new numbers."""
    if len(order) == 2:
        return (labels == 0).astype(np.int64)
    ranks = np.argsort(order)
    # Rows in blocks have no array of labels.
    return ranks[labels] if isinstance(labels, np.ndarray) else labels.choose(ranks)
